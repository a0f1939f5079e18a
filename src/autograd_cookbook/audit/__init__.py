"""The verifier: it knows torch, and no recipe."""

from autograd_cookbook.audit.capabilities import CAPABILITIES, capabilities
from autograd_cookbook.audit.memory import held_bytes, peak_bytes, saved_bytes

__all__ = ["CAPABILITIES", "capabilities", "held_bytes", "peak_bytes", "saved_bytes"]
