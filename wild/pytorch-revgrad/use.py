"""A domain classifier behind a layer that reverses gradients."""

import torch
from pytorch_revgrad import RevGrad

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(10, 5), torch.nn.Linear(5, 2), RevGrad(alpha=0.5))
model(torch.randn(4, 10)).square().sum().backward()
