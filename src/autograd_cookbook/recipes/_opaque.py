"""A function that the compiler treats as one operator, so that it keeps the tensors that the recipe keeps."""

from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.assume_constant_result
def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` is active, which has to see the operations inside."""
    return torch._C._functorch.maybe_current_level() is not None


def opaque(name: str, function: Callable[..., Any], like: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function as an operator, which :func:`torch.compile` calls without looking inside.

    The compiler puts forward and backward of a recipe into one graph and decides itself which tensors to keep. It may
    keep a tensor that the recipe computes again in backward. The compiler cannot look inside an operator, so it cannot
    change this choice there. In eager mode nothing changes, so function transforms see the operations inside.

    Args:
        name: of the operator, in the namespace of this package.
        function: takes tensors and numbers, and returns one or several tensors. No result shares memory with another
            result or with an argument. The function needs annotations, because the operator's schema is made from them.
        like: takes the same arguments, and returns empty tensors like the results.
    """
    operator = torch.library.custom_op(f"autograd_cookbook::{name}", function, mutates_args=())
    operator.register_fake(like)

    def call(*args: Any) -> Any:
        # An exported graph runs in other processes, which do not have this operator.
        hidden = torch.compiler.is_compiling() and not torch.compiler.is_exporting() and not is_transformed()
        return operator(*args) if hidden else function(*args)

    return call
