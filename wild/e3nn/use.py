"""A smooth step, and a cutoff that is made of it."""

import torch
from e3nn.math import soft_one_hot_linspace, soft_unit_step

torch.manual_seed(0)
x = torch.randn(4, 3, requires_grad=True)
soft_unit_step(x).sum().backward()
distances = (2 * torch.rand(5)).requires_grad_()
soft_one_hot_linspace(distances, 0.0, 2.0, 4, basis="smooth_finite", cutoff=True).sum().backward()
