"""The mean of points in hyperbolic space, which a solver computes."""

import torch
from hypll.manifolds.poincare_ball import Curvature, PoincareBall
from hypll.tensors import ManifoldTensor

torch.manual_seed(0)
ball = PoincareBall(c=Curvature(1.0))
points = ManifoldTensor((0.3 * torch.randn(5, 3)).requires_grad_(), manifold=ball, man_dim=-1)
ball.frechet_mean(points).tensor.square().sum().backward()
