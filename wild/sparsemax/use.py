"""Sparse probabilities from scores."""

import torch
from sparsemax import Sparsemax

torch.manual_seed(0)
scores = torch.randn(6, 10, dtype=torch.float32, requires_grad=True)
probabilities = Sparsemax(dim=-1)(scores)
probabilities.backward(torch.randn(6, 10))
