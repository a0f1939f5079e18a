"""Running backward."""
