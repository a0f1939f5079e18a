"""A tiled loss over a vocabulary, and checkpointed layers."""

import torch
from fairscale.experimental.nn import MEVO
from fairscale.nn.checkpoint import checkpoint_wrapper
from torch import nn

torch.manual_seed(0)
weight = nn.Parameter(torch.randn(6, 4))
loss = MEVO(weight, tile_factor=2, reduction="sum")
loss(torch.randn(1, 8, 4, requires_grad=True), torch.randint(0, 6, (1, 8))).sum().backward()
layer = checkpoint_wrapper(nn.Sequential(nn.Linear(4, 3), nn.Tanh()))
layer(torch.randn(2, 4, requires_grad=True)).sum().backward()
