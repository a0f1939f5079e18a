"""Invertible blocks instead of stored activations."""

import memcnn
import torch
from torch import nn

torch.manual_seed(0)


class Branch(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


x = torch.randn(2, 4, 3, 3)
for coupling in (memcnn.AdditiveCoupling, memcnn.AffineCoupling):
    block = memcnn.InvertibleModuleWrapper(fn=coupling(Fm=Branch(2), Gm=Branch(2)), keep_input=True)
    block(x.requires_grad_()).square().sum().backward()
    inverse = memcnn.InvertibleModuleWrapper(
        fn=coupling(Fm=Branch(2), Gm=Branch(2)), keep_input=True, keep_input_inverse=True
    )
    inverse.inverse(x.requires_grad_()).square().sum().backward()
