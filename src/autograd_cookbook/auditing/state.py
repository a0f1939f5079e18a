"""The global state of a process that a function has no business changing."""

import contextlib
import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _device


def settings() -> dict[str, Any]:
    """Every global switch that an operation could leave turned, by name."""
    return {
        "grad mode (torch.is_grad_enabled)": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": str(torch.get_default_device()),
        "default device as set": str(_device.CURRENT_DEVICE),  # in a backward, it is this alone that lasts
        "anomaly detection": torch.is_anomaly_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "deterministic algorithms only warn": torch.is_deterministic_algorithms_warn_only_enabled(),
        "number of threads": torch.get_num_threads(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "flush of denormals": torch.tensor(1e-310, dtype=torch.float64).mul(1.0).item() == 0,
        "autocast": torch.is_autocast_enabled("cpu"),
        "multithreaded backward": torch.autograd.is_multithreading_enabled()
        if hasattr(torch.autograd, "is_multithreading_enabled")
        else None,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "warnings filters": tuple(warnings.filters),
        "NumPy error state": tuple(sorted(numpy.geterr().items())) if (numpy := sys.modules.get("numpy")) else None,
    }


def restore(before: dict[str, Any]) -> None:
    """Set back what :func:`settings` read and Python can write."""
    torch.set_grad_enabled(before["grad mode (torch.is_grad_enabled)"])
    torch.set_default_dtype(before["default dtype"])
    now = str(torch.get_default_device()), str(_device.CURRENT_DEVICE)
    if now != (device := (before["default device"], before["default device as set"])):
        torch.set_default_device(None if device[0] == "cpu" else device[0])
        _device.CURRENT_DEVICE = None if device[1] == "None" else torch.device(device[1])
    torch.autograd.set_detect_anomaly(before["anomaly detection"])
    torch.use_deterministic_algorithms(
        before["deterministic algorithms"], warn_only=before["deterministic algorithms only warn"]
    )
    if torch.get_num_threads() != before["number of threads"]:
        torch.set_num_threads(before["number of threads"])
    torch.set_float32_matmul_precision(before["float32 matmul precision"])
    torch.set_flush_denormal(before["flush of denormals"])
    torch.set_autocast_enabled("cpu", before["autocast"])
    torch.backends.cudnn.benchmark = before["cudnn.benchmark"]
    torch.backends.cudnn.deterministic = before["cudnn.deterministic"]
    if tuple(warnings.filters) != before["warnings filters"]:
        warnings.filters[:] = before["warnings filters"]  # type: ignore[index]  # a list, which is not documented
    if before["NumPy error state"] is not None:
        sys.modules["numpy"].seterr(**dict(before["NumPy error state"]))


def random_states() -> dict[str, Any]:
    """The global generators of torch, Python and, where it is imported, NumPy, in a comparable form."""
    states: dict[str, Any] = {
        "torch": bytes(torch.random.get_rng_state().tolist()),
        "Python": hash(random.getstate()),
    }
    if numpy := sys.modules.get("numpy"):
        kind, keys, position, *rest = numpy.random.get_state()
        states["NumPy"] = (kind, keys.tobytes(), position, *rest)
    return states


def seed_everything(seed: int) -> None:
    """Bring the global generators of the CPU into a known state."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Leave generators, settings and warnings filters as they were, whatever happens inside."""
    before = settings()
    python, numpy = random.getstate(), sys.modules.get("numpy")
    state = numpy.random.get_state() if numpy else None
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        try:
            yield
        finally:
            random.setstate(python)
            if numpy and state is not None:
                numpy.random.set_state(state)
            restore(before)
