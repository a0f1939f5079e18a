"""Saved tensors elsewhere than in memory, or in less of it."""

import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.recipes.hooks import with_saved


class Spool:
    """Tensors one after the other in a file without a name: it is gone when the last of them is, or the process.

    >>> spool = Spool(None)
    >>> read = spool.write(torch.tensor([1.0, 2.0]))
    >>> read()
    tensor([1., 2.])
    """

    def __init__(self, directory: str | Path | None) -> None:
        self.file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  closed with the last that refers to it
        weakref.finalize(self, self.file.close)
        self.end = 0

    def write(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Store a tensor; return a function that reads it, and that keeps the file."""
        # numpy has no bfloat16, but bytes.
        data = tensor.cpu().contiguous().reshape(tensor.numel()).view(torch.uint8).numpy().data
        shape, dtype, device, start, size = tensor.shape, tensor.dtype, tensor.device, self.end, len(data)
        while data:
            written = os.pwrite(self.file.fileno(), data, self.end)
            self.end += written
            data = data[written:]

        def read() -> Tensor:
            buffer = bytearray(size)
            filled = 0
            while filled < size:  # one call reads 2 GB at most
                filled += os.preadv(self.file.fileno(), [memoryview(buffer)[filled:]], start + filled)
            return torch.frombuffer(buffer, dtype=dtype).reshape(shape).to(device)

        return read


def offloaded(function: Callable[..., Any], *args: Any, directory: str | Path | None = None) -> Any:
    r"""Call a function, and keep what it saves for backward on disk.

    .. math:: y = f(x), \qquad \bar{x} = \bar{y}^\top\, \partial f, \text{ each saved tensor read when it is needed}

    Nothing is rounded. All tensors of a call go into one temporary file without a name: its room on the disk is free
    again when the graph is, or when the process ends, however it ends.

    Args:
        function: called as ``function(*args)``.
        args: passed on; tensors among them, and leaves such as parameters, are alive anyway and not written.
        directory: where the file is; the system's place for temporary files if None, which may itself be memory.

    Returns:
        What ``function`` returns.

    Raises:
        FileNotFoundError: if there is no such directory.
        OSError: if the disk is full; nothing is left behind.
        RuntimeError: in backward, if an argument that it needs was written to in between.

    >>> x = torch.ones(2, requires_grad=True)
    >>> offloaded(lambda x: x.exp().sin(), x).sum().backward()
    >>> x.grad
    tensor([-2.4783, -2.4783])
    """
    spool = Spool(directory)

    def pack(tensor: Tensor) -> Any:
        return spool.write(tensor) if tensor.numel() else tensor

    return with_saved(pack, lambda read: read(), function, args)


def compressed(function: Callable[..., Any], *args: Any) -> Any:
    r"""Call a function, and keep what it saves for backward in one byte an element.

    .. math::
        q = \operatorname{round}(s / a), \quad a = \tfrac{1}{127} \max_{\text{row}} |s|, \qquad
        \bar{x} = \bar{y}^\top\, \partial f \text{ from } a q

    for each row of each saved tensor :math:`s`. The value is exact, the gradient is not: an element is off by half a
    step, :math:`a / 2`, at most.

    Args:
        function: called as ``function(*args)``.
        args: passed on; tensors among them, and leaves such as parameters, are alive anyway and kept as they are. So
            are tensors that are not real and floating, hold an infinity or a NaN, or have rows of fewer than 8.

    Returns:
        What ``function`` returns.

    Raises:
        RuntimeError: in backward, if a tensor that was kept as it is was written to in between.

    >>> x = torch.linspace(-1, 1, 16).requires_grad_()
    >>> compressed(lambda x: x.sin().square().sum(), x).backward()
    >>> print(f"{(x.grad - torch.sin(2 * x)).abs().max():.3f}")
    0.005
    """

    def pack(tensor: Tensor) -> Any:
        if not tensor.is_floating_point() or tensor.shape[-1:].numel() < 8 or not tensor.isfinite().all():
            return tensor
        step = (tensor.float().abs().amax(-1, keepdim=True) / 127).clamp(min=torch.finfo(torch.float32).tiny)
        return tensor.dtype, (tensor / step).round().to(torch.int8), step

    def unpack(packed: tuple[torch.dtype, Tensor, Tensor]) -> Tensor:
        dtype, levels, step = packed
        return (levels * step).to(dtype)

    return with_saved(pack, unpack, function, args)
