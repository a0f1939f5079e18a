"""Saved tensors, hooks and checkpoints."""
