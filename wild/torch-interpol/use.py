"""Splines on a small image: pull, push, count, spatial gradient, and coefficients."""

import contextlib

import interpol
import torch

torch.manual_seed(0)
image = torch.randn(1, 1, 3, 4, requires_grad=True)
grid = (2 * torch.rand(1, 3, 4, 2)).requires_grad_()
options = {"interpolation": 3, "bound": "dct2"}
interpol.grid_pull(image, grid, **options).square().sum().backward()
interpol.grid_push(image, grid, shape=(3, 4), **options).square().sum().backward()
interpol.grid_count(grid, shape=(3, 4), **options).square().sum().backward()
interpol.grid_grad(image, grid, **options).square().sum().backward()
interpol.spline_coeff_nd(image, dim=2, **options).square().sum().backward()
# In this version, the backward of this one always raises.
with contextlib.suppress(RuntimeError):
    interpol.spline_coeff(image, dim=-1, **options).square().sum().backward()
