"""torch.func, vmap and forward mode."""
