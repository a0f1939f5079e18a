"""WRITE(newname): in one line, what the functions of this module are for."""

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context


class NewNameFunction(Function):
    """Saves the input."""

    generate_vmap_rule = True

    # WRITE(newname): your forward, what to save, and your backward; these compute a square.
    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input * input

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return 2 * input * grad_output


def newname(input: Tensor) -> Tensor:
    r"""WRITE(newname): one line; the formulas, shapes and dtypes, errors, source, an example.

    .. math:: y = x^2, \qquad \bar{x} = 2 x \bar{y}

    Args:
        input: any shape, floating.

    Raises:
        TypeError: if ``input`` is not floating.

    >>> x = torch.tensor([3.0, -1.0], requires_grad=True)
    >>> newname(x).sum().backward()
    >>> x.grad
    tensor([ 6., -2.])
    """
    if not torch.is_floating_point(input):
        raise TypeError(f"expected input of a floating dtype, got {input.dtype}")
    return NewNameFunction.apply(input)
