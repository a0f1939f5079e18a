"""A function that the compiler takes as one step, so that it keeps what the recipe keeps."""

from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.assume_constant_result
def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` is at work, which has to see what it transforms."""
    return torch._C._functorch.maybe_current_level() is not None


def opaque(name: str, function: Callable[..., Any], like: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which :func:`torch.compile` calls instead of looking inside.

    Compiled, forward and backward of a recipe are one graph, and the compiler decides what to keep: it does not
    compute again what can be kept for a few bytes more, although the recipe says so. Of an operator it sees the name
    alone. In eager mode nothing changes, so that function transforms see what is inside.

    Args:
        name: of the operator, in the namespace of this package.
        function: of tensors and numbers, to one or several tensors, of which none shares memory with another or with
            an argument; annotated, as the operator's schema is made of that.
        like: takes the same arguments, and returns empty tensors like the results.
    """
    operator = torch.library.custom_op(f"autograd_cookbook::{name}", function, mutates_args=())
    operator.register_fake(like)

    def call(*args: Any) -> Any:
        # An exported graph runs elsewhere, without this operator.
        hidden = torch.compiler.is_compiling() and not torch.compiler.is_exporting() and not is_transformed()
        return operator(*args) if hidden else function(*args)

    return call
