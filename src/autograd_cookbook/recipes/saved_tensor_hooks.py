"""Keep saved tensors on disk, or in fewer bytes."""

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
    """Writes tensors to a file without a name. The file exists until its last tensor is freed, or the process ends.

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
        """Store a tensor, and return a function that reads it. The file stays open while this function exists."""
        # NumPy has no bfloat16, so write the tensor as bytes.
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
    r"""Call a function, and keep on disk the tensors that it saves for backward.

    .. math:: y = f(x), \qquad \bar{x} = \bar{y}^\top\, \partial f, \text{ each saved tensor read when it is needed}

    Nothing is rounded. All tensors of a call go into one temporary file without a name. Its space on the disk is free
    again when the graph is freed, or when the process ends, even by a crash.

    Args:
        function: called as ``function(*args)``.
        args: the arguments of ``function``. Tensors among the arguments, and leaves such as parameters, are in memory
            anyway, so they are not written.
        directory: the directory of the file. None means the system's directory for temporary files, which some systems
            keep in memory.

    Returns:
        The result of ``function``.

    Raises:
        FileNotFoundError: if there is no such directory.
        OSError: if the disk is full. No file is left behind.
        RuntimeError: in backward, if a saved argument was modified in place after forward.

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
    r"""Call a function, and keep the tensors that it saves for backward in one byte per element.

    .. math::
        q = \operatorname{round}(s / a), \quad a = \tfrac{1}{127} \max_{\text{row}} |s|, \qquad
        \bar{x} = \bar{y}^\top\, \partial f \text{ from } a q

    for each row of each saved tensor :math:`s`. The output is exact. The gradient is not exact, because each saved
    element has an error of up to half a step, :math:`a / 2`.

    Args:
        function: called as ``function(*args)``.
        args: the arguments of ``function``. Some saved tensors are kept unchanged. These are arguments and leaves such
            as parameters, which are in memory anyway. They are also tensors that are not real and floating, tensors
            with an infinity or a NaN, and tensors with rows of fewer than 8 elements.

    Returns:
        The result of ``function``.

    Raises:
        RuntimeError: in backward, if a tensor that was kept unchanged was modified in place after forward.

    >>> x = torch.linspace(-1, 1, 16).requires_grad_()
    >>> compressed(lambda x: x.sin().square().sum(), x).backward()
    >>> print(f"{(x.grad - torch.sin(2 * x)).abs().max():.3f}")
    0.005
    """

    def pack(tensor: Tensor) -> Any:
        if not tensor.is_floating_point() or tensor.shape[-1:].numel() < 8 or not tensor.isfinite().all():
            return tensor
        largest = tensor.abs().amax(-1, keepdim=True).to(torch.promote_types(tensor.dtype, torch.float32))
        step = (largest / 127).clamp(min=torch.finfo(largest.dtype).tiny)
        return tensor.dtype, (tensor / step).round().to(torch.int8), step

    def unpack(packed: tuple[torch.dtype, Tensor, Tensor]) -> Tensor:
        dtype, levels, step = packed
        return (levels * step).to(dtype)

    return with_saved(pack, unpack, function, args)
