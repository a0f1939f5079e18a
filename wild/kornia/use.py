"""A focal loss, and essential matrices from seven points."""

import torch
from kornia.geometry.epipolar import find_essential
from kornia.losses import focal_loss

torch.manual_seed(0)
logits = torch.randn(2, 16, 256, 256, requires_grad=True)  # small ones take another way
labels = torch.randint(0, 16, (2, 256, 256))
focal_loss(logits, labels, alpha=0.5, gamma=2.0, reduction="mean").backward()
labels[0, 0, 0] = -100
focal_loss(logits, labels, alpha=0.5, gamma=2.0, reduction="mean", ignore_index=-100).backward()
left = torch.rand(1, 7, 2, dtype=torch.float64, requires_grad=True)
right = torch.rand(1, 7, 2, dtype=torch.float64, requires_grad=True)
find_essential(left, right).square().sum().backward()
