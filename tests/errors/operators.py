"""torch.library and custom operators."""
