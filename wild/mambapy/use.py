"""A forward and backward pass of a small Mamba on two lengths of sequence."""

import torch
from mambapy.mamba import Mamba, MambaConfig

torch.manual_seed(0)
model = Mamba(MambaConfig(d_model=4, n_layers=1, d_state=3))
for length in (6, 8):
    model(torch.randn(2, length, 4)).square().mean().backward()
