"""Hide a function from the compiler in an operator, so that compiled code saves the same tensors as the recipe."""

import re
from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.assume_constant_result
def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` is active. A transform has to see the operations inside of a function."""
    return torch._C._functorch.maybe_current_level() is not None


def opaque(name: str, function: Callable[..., Any], like: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the same, but is one operator for :func:`torch.compile`, which cannot look inside.

    The compiler puts forward and backward of a recipe into one graph, and decides itself which tensors to save between
    them. For example, it can save a tensor that the recipe computes again in backward. Inside of an operator, the
    compiler cannot change the choice of the recipe. In eager mode the function is called as it is, so the transforms of
    ``torch.func`` see the operations inside.

    Args:
        name: the name of the operator. Its namespace is the module of the function: a second operator of the same full
            name would replace the first, for example if a file with a recipe is copied into two libraries.
        function: takes tensors and numbers, and returns one or several tensors. A result must not share memory with
            another result or with an argument. The function needs annotations, because they define the operator's
            schema.
        like: takes the same arguments, and returns tensors of the same shapes and dtypes as the results, but without
            values.
    """
    namespace = re.sub(r"\W", "_", function.__module__)
    operator = torch.library.custom_op(f"{namespace}::{name}", function, mutates_args=())
    operator.register_fake(like)

    def call(*args: Any) -> Any:
        # An exported graph runs in other processes, which do not have this operator.
        hidden = torch.compiler.is_compiling() and not torch.compiler.is_exporting() and not is_transformed()
        return operator(*args) if hidden else function(*args)

    return call
