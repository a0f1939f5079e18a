"""A language model of reversible layers."""

import torch
from reformer_pytorch import ReformerLM

torch.manual_seed(0)
model = ReformerLM(
    num_tokens=9, dim=4, depth=1, max_seq_len=8, heads=1, bucket_size=2, n_hashes=1, causal=True, ff_mult=1
)
model(torch.randint(0, 9, (1, 8))).square().mean().backward()
