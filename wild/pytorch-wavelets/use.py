"""Wavelet transforms, there and back, and a scattering layer."""

import torch
from pytorch_wavelets import DTCWTForward, DTCWTInverse, DWT1DForward, DWT1DInverse, DWTForward, DWTInverse, ScatLayer

torch.manual_seed(0)
image = torch.randn(2, 1, 8, 8, requires_grad=True)
low, high = DWTForward(J=1, mode="zero", wave="db3")(image)
DWTInverse(mode="zero", wave="db3")((low, high)).square().sum().backward()
low, high = DTCWTForward(J=2, biort="near_sym_a", qshift="qshift_a")(image)
DTCWTInverse(biort="near_sym_a", qshift="qshift_a")((low, high)).square().sum().backward()
ScatLayer()(image).square().sum().backward()
signal = torch.randn(1, 2, 12, requires_grad=True)
low, high = DWT1DForward(J=1, wave="db3", mode="zero")(signal)
DWT1DInverse(wave="db3", mode="zero")((low, high)).square().sum().backward()
