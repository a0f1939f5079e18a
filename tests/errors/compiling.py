"""torch.compile, export and autocast."""
