"""Quadratic programs with and without equality constraints; the matrices belong to all problems of the batch."""

import torch
from qpth.qp import QPFunction

torch.manual_seed(0)
kwargs = {"dtype": torch.double, "requires_grad": True}
factor = torch.randn(3, 3, dtype=torch.double)
Q = (factor @ factor.mT + torch.eye(3, dtype=torch.double)).requires_grad_()
p = torch.randn(2, 3, **kwargs)
G = torch.cat([torch.eye(3), -torch.eye(3)]).double().requires_grad_()
h = (1 + torch.rand(6, dtype=torch.double)).requires_grad_()
A = torch.randn(1, 3, **kwargs)
b = torch.randn(1, **kwargs)
none = torch.empty(0)
QPFunction(verbose=False)(Q, p, G, h, none, none).square().sum().backward()
QPFunction(verbose=False)(Q, p, G, h, A, b).square().sum().backward()
