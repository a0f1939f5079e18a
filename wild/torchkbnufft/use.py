"""Fourier transforms of an image at scattered frequencies and back, by tables and by sparse matrices."""

import math

import torch
import torchkbnufft as tkbn

torch.manual_seed(0)
omega = 2 * math.pi * (torch.rand(2, 12) - 0.5)
image = torch.randn(1, 1, 6, 6, dtype=torch.complex64, requires_grad=True)
samples = torch.randn(1, 1, 12, dtype=torch.complex64, requires_grad=True)
forward, adjoint = tkbn.KbNufft(im_size=(6, 6)), tkbn.KbNufftAdjoint(im_size=(6, 6))
matrices = tkbn.calc_tensor_spmatrix(omega, im_size=(6, 6))
for given in (None, matrices):
    forward(image, omega, given).abs().square().sum().backward()
    adjoint(samples, omega, given).abs().square().sum().backward()
