"""A language model of reversible layers."""

import torch
from reformer_pytorch import ReformerLM

torch.manual_seed(0)
model = ReformerLM(
    num_tokens=20, dim=8, depth=2, max_seq_len=16, heads=2, bucket_size=4, n_hashes=2, causal=True, ff_mult=1
)
model(torch.randint(0, 20, (1, 16))).square().mean().backward()
