"""Element-wise functions that keep the cheapest tensor from which their gradient follows."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class ReLUFunction(Function):
    """Rectifier; its sign is all that the gradient needs, and the output has it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.clamp(min=0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        # The output and not the input: a following linear layer keeps it anyway, so it costs nothing.
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        # where, not a product: an infinite grad_output times 0 would be NaN. And <=, not >: NaN stays NaN.
        return torch.where(output <= 0, 0, grad_output)


def relu(input: Tensor) -> Tensor:
    r"""Rectified linear unit, with gradient 0 at 0 as in PyTorch.

    .. math:: y = \max(x, 0), \qquad \bar{x} = \bar{y}\,[x > 0]

    Args:
        input: any shape, any floating dtype.

    Returns:
        A tensor like ``input``.

    >>> x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    >>> relu(x).sum().backward()
    >>> x.grad
    tensor([0., 0., 1.])
    """
    return ReLUFunction.apply(input)


class SigmoidFunction(Function):
    """Logistic function; the output alone gives the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.sigmoid()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        return grad_output * (output * (1 - output)).conj()


def sigmoid(input: Tensor) -> Tensor:
    r"""Logistic function.

    .. math:: y = \frac{1}{1 + e^{-x}}, \qquad \bar{x} = \bar{y}\,\overline{y\,(1 - y)}

    Args:
        input: any shape, any floating or complex dtype.

    Returns:
        A tensor like ``input``.

    >>> x = torch.tensor([0.0, 1000.0], requires_grad=True)
    >>> sigmoid(x).sum().backward()
    >>> x.grad
    tensor([0.2500, 0.0000])
    """
    return SigmoidFunction.apply(input)


class TanhFunction(Function):
    """Hyperbolic tangent; the output alone gives the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.tanh()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        # The product keeps its digits where the output is close to 1, and 1 - output² loses them.
        return grad_output * ((1 - output) * (1 + output)).conj()


def tanh(input: Tensor) -> Tensor:
    r"""Hyperbolic tangent.

    .. math:: y = \tanh x, \qquad \bar{x} = \bar{y}\,\overline{(1 - y^2)}

    Args:
        input: any shape, any floating or complex dtype.

    Returns:
        A tensor like ``input``.

    >>> x = torch.zeros(3, requires_grad=True)
    >>> tanh(x).sum().backward()
    >>> x.grad
    tensor([1., 1., 1.])
    """
    return TanhFunction.apply(input)
