"""Count how often ``torch.compile`` compiles a function, and for which calls."""

from collections.abc import Callable, Iterable
from typing import Any

import torch


def compilations(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], **options: Any) -> list[int]:
    """Count how often ``torch.compile`` has compiled a function, call by call.

    Args:
        function: the function to compile. It is compiled with ``fullgraph=True``, so each compilation is one graph.
        calls: the arguments of each call, in order. Use new tensors: PyTorch stores on a tensor what the compiler has
            learned about the sizes of this tensor, and a later compilation reads this.
        options: options of :func:`torch.compile`, such as ``dynamic=True``.

    Returns:
        The number of compilations up to and including each call. If the number does not grow, the call used existing
        code.

    Raises:
        torch._dynamo.exc.TorchDynamoException: if a graph breaks, or too many versions were compiled.

    >>> compilations(torch.exp, [(torch.ones(n),) for n in (3, 4, 5, 6)])
    [1, 2, 2, 2]
    """
    from torch._dynamo.testing import CompileCounterWithBackend  # slow to import, and needed only here

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(function, fullgraph=True, backend=counter, **options)
    counts = []
    try:
        for args in calls:
            compiled(*args)
            counts.append(counter.frame_count)
    finally:
        torch._dynamo.reset()
    return counts
