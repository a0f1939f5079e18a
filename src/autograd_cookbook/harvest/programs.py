"""Write the program that shows a finding: the recorded call as Python code."""

import math
import sys
from typing import Any

import torch
from torch import Tensor, nn

WRITTEN = 64  # the most elements of a tensor whose numbers are written


class _UnwritableError(Exception):
    """There is no short expression for a value."""


def program_for(name: str, args: tuple[Any, ...], check: str, options: dict[str, Any]) -> str:
    """Return a program that audits the recorded call again with this check only. Empty if there is no such program."""
    lines: list[str] = []
    known: dict[int, str] = {}
    try:
        words = [_written(value, lines, known) for value in args]
    except _UnwritableError:
        return ""
    imports, target = _imported(name)
    said = "".join(f", {key}={value!r}" for key, value in options.items() if key in ("gradient", "tolerance"))
    call = f"{words[0]}," if len(words) == 1 else ", ".join(words)
    return "\n".join(
        [
            "import torch",
            *imports,
            "from autograd_cookbook import audit",
            "",
            "torch.manual_seed(0)",
            *lines,
            f"print(audit({target}, ({call}), only=[{check!r}]{said}))",
            "",
        ]
    )


def _imported(name: str) -> tuple[list[str], str]:
    """Return the import of a function, and the expression for calling it."""
    if "::" in name:
        namespace, _, operator = name.partition("::")
        return ["# import the module that defines the operator"], f"torch.ops.{namespace}.{operator}"
    module, parts = name, [""]
    while module not in sys.modules and "." in module:
        module, _, last = module.rpartition(".")
        parts.insert(0, last)
    path = ".".join(part for part in parts if part)
    if "<locals>" in path:
        return [f"# {path} is defined inside of a function of {module}: bring it here"], f"{path.split('.')[-1]}.apply"
    if module == "__main__":
        spec = getattr(sys.modules["__main__"], "__file__", None) or "the script"
        return [f"# {path} is defined in {spec}: bring it here"], f"{path}.apply"
    return [f"from {module} import {path.split('.')[0]}"], f"{path}.apply"


def _written(value: Any, lines: list[str], known: dict[int, str]) -> str:
    if isinstance(value, Tensor):
        if id(value) not in known:
            known[id(value)] = f"x{len(known)}"
            lines.append(f"{known[id(value)]} = {_tensor(value)}")
        return known[id(value)]
    if isinstance(value, torch.Size):
        return repr(value)
    if isinstance(value, tuple):
        inner = [_written(child, lines, known) for child in value]
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(_written(child, lines, known) for child in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_written(child, lines, known)}' for key, child in value.items())}}}"
    if type(value) is float and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return repr(value)
    if isinstance(value, torch.dtype | torch.device):
        return f"torch.device({str(value)!r})" if isinstance(value, torch.device) else str(value)
    raise _UnwritableError


def _tensor(tensor: Tensor) -> str:
    if tensor.layout is not torch.strided or type(tensor) not in (Tensor, nn.Parameter):
        raise _UnwritableError
    grad = ", requires_grad=True" if tensor.requires_grad else ""
    where = "" if tensor.device.type == "cpu" else f", device={str(tensor.device)!r}"
    values = tensor.detach()
    if tensor.numel() <= WRITTEN and values.isfinite().all():
        empty = "" if tensor.numel() else f".reshape({tuple(tensor.shape)})"
        if empty:
            return f"torch.empty({tuple(tensor.shape)}, dtype={tensor.dtype}{where}{grad})"
        return f"torch.tensor({values.tolist()!r}, dtype={tensor.dtype}{where}{grad})"
    if tensor.is_floating_point() or tensor.is_complex():
        return f"torch.randn({tuple(tensor.shape)}, dtype={tensor.dtype}{where}{grad})"
    low, high = int(values.min()), int(values.max()) + 1
    return f"torch.randint({low}, {high}, {tuple(tensor.shape)}).to({tensor.dtype})"
