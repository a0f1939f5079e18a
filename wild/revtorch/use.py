"""A stack of reversible blocks, which keeps no activations."""

import revtorch as rv
import torch
from torch import nn

torch.manual_seed(0)


def branch() -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh())


blocks = nn.ModuleList(rv.ReversibleBlock(branch(), branch(), split_along_dim=1) for _ in range(2))
model = rv.ReversibleSequence(blocks)
model(torch.randn(2, 8, 4, 4, requires_grad=True)).square().sum().backward()
