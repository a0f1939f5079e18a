"""Sparse mappings and their losses, on scores of a small classifier."""

import entmax
import torch

torch.manual_seed(0)
scores = torch.randn(3, 5, requires_grad=True)
target = torch.tensor([0, 3, 1])
alpha = torch.tensor(1.3, requires_grad=True)

for mapping in (entmax.sparsemax, entmax.entmax15, entmax.sparsemax_bisect, entmax.normmax_bisect):
    mapping(scores, dim=-1).square().sum().backward()
entmax.entmax_bisect(scores, alpha, dim=-1).square().sum().backward()
entmax.budget_bisect(scores, budget=2, dim=-1).square().sum().backward()

for loss in (
    entmax.sparsemax_loss,
    entmax.entmax15_loss,
    entmax.sparsemax_bisect_loss,
    entmax.entmax_bisect_loss,
    entmax.normmax_bisect_loss,
):
    loss(scores, target).sum().backward()
