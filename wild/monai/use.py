"""A memory-efficient activation, and the replacement of ReLU in guided backpropagation."""

import torch
from monai.networks.blocks.activation import SwishImplementation
from monai.visualize import GuidedBackpropGrad
from torch import nn

torch.manual_seed(0)
SwishImplementation.apply(torch.randn(4, 3, requires_grad=True)).sum().backward()
net = nn.Sequential()
for name, layer in (
    ("conv", nn.Conv2d(1, 2, 3)),
    ("relu", nn.ReLU()),
    ("flat", nn.Flatten()),
    ("out", nn.Linear(32, 2)),
):
    net.add_module(name, layer)
GuidedBackpropGrad(net)(torch.randn(1, 1, 6, 6), index=0)
