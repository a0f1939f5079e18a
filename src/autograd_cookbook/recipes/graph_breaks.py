"""Find out why ``torch.compile`` cannot compile a function as one graph."""

from collections.abc import Callable
from typing import Any

import torch


def graph_breaks(function: Callable[..., Any], *args: Any) -> tuple[str, ...]:
    """Say why ``torch.compile`` cannot compile a function as one graph.

    Args:
        function: called as ``function(*args)``, a few times.
        args: inputs of typical shapes, because some breaks depend on the shapes.

    Returns:
        One line for each break, with the line of code that causes it. Empty if there is no break.

    >>> from autograd_cookbook.recipes.torch_compile import huber
    >>> graph_breaks(huber, torch.ones(3))
    ()
    """
    function(*args)  # Without the compiler, so that an error of the function itself is raised here.
    torch._dynamo.reset()
    try:
        reasons = torch._dynamo.explain(function)(*args).break_reasons
        if not reasons:
            # explain() lists the breaks in a frame, but says nothing about a frame that the compiler has skipped.
            torch.compile(function, fullgraph=True, backend="eager")(*args)
    except Exception as error:  # mostly Unsupported; some code triggers an assertion inside of the compiler
        return (_headline(str(error)),)
    finally:
        torch._dynamo.reset()
    return tuple(f"{_headline(reason.reason)}: {reason.user_stack[-1].line}" for reason in reasons)


def _headline(message: str) -> str:
    return message.strip().splitlines()[0]
