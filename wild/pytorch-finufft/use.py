"""Fourier transforms between points anywhere and a regular grid, with gradients of values and points."""

import torch
from pytorch_finufft.functional import finufft_type1, finufft_type2

torch.manual_seed(0)
points = (2 * torch.pi * torch.rand(1, 12, dtype=torch.float64)).requires_grad_()
values = torch.randn(12, dtype=torch.complex128, requires_grad=True)
modes = torch.randn(7, dtype=torch.complex128, requires_grad=True)
finufft_type1(points, values, (7,)).abs().square().sum().backward()
finufft_type2(points, modes).abs().square().sum().backward()
