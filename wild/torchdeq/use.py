"""Equilibrium layers with three solvers, differentiated implicitly."""

import torch
from torch import nn
from torchdeq import get_deq

torch.manual_seed(0)
state, source = nn.Linear(4, 4, bias=False), nn.Linear(3, 4)
nn.init.orthogonal_(state.weight, gain=0.5)
for options in ({"f_solver": "fixed_point_iter"}, {"f_solver": "anderson"}, {"f_solver": "broyden"}):
    layer = get_deq(f_max_iter=60, b_max_iter=60, f_tol=1e-9, b_tol=1e-9, ift=True, **options)
    x = torch.randn(5, 3, requires_grad=True)
    fixed, _ = layer(lambda z: torch.tanh(state(z) + source(x)), torch.zeros(5, 4))  # noqa: B023
    fixed[-1].square().sum().backward()
