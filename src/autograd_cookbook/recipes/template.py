"""The template: an affine map with an optional bias, as ``Function``, function and module. Also three activations."""

import math

import torch
from torch import Tensor, nn
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context


def rows(tensor: Tensor) -> Tensor:
    """View a tensor as a matrix: the last dimension gives the columns, all others together give the rows."""
    # reshape(-1, n) cannot infer the number of rows if n is 0, and flatten does not work with batched gradients.
    return tensor.reshape(tensor.shape[:-1].numel(), tensor.shape[-1])


class LinearFunction(Function):
    """Affine map of the last dimension."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        output = input @ weight.mT
        return output if bias is None else output + bias

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        input, weight, _ = inputs
        ctx.save_for_backward(input, weight)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight = ctx.saved_tensors
        grad_output = grad_output.to(weight.dtype)  # autocast lowers the dtype in forward and is off in backward
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output @ weight.conj()
        if ctx.needs_input_grad[1]:
            grad_weight = rows(grad_output).mT @ rows(input).conj()
        if ctx.needs_input_grad[2]:
            grad_bias = rows(grad_output).sum(0)
        return grad_input, grad_weight, grad_bias


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    r"""Apply an affine map to the last dimension.

    .. math::
        Y = X W^\top + b, \qquad
        \bar{X} = \bar{Y}\,W^*, \quad
        \bar{W} = \bar{Y}^\top X^*, \quad
        \bar{b} = \textstyle\sum_n \bar{Y}_n

    Args:
        input: ``(..., in_features)``, floating or complex.
        weight: ``(out_features, in_features)``, same dtype and device.
        bias: ``(out_features,)`` or None.

    Returns:
        ``(..., out_features)``.

    Raises:
        RuntimeError: if the shapes, dtypes or devices do not fit, as in :func:`torch.nn.functional.linear`.

    >>> x = torch.ones(2, 3)
    >>> w = torch.arange(6.0).reshape(2, 3).requires_grad_()
    >>> linear(x, w).sum().backward()
    >>> w.grad
    tensor([[2., 2., 2.],
            [2., 2., 2.]])
    """
    if bias is not None and bias.shape != weight.shape[:1]:
        raise RuntimeError(f"expected bias of shape {tuple(weight.shape[:1])}, got {tuple(bias.shape)}")
    if bias is not None and bias.dtype != weight.dtype:
        raise RuntimeError(f"expected bias of dtype {weight.dtype}, got {bias.dtype}")
    return LinearFunction.apply(input, weight, bias)


class Linear(nn.Module):
    """A module that calls :func:`linear` with its own parameters. They are initialized as in :class:`torch.nn.Linear`.

    Args:
        in_features: size of the last dimension of the input.
        out_features: size of the last dimension of the output.
        bias: whether to learn an offset.
        device: the device of the parameters.
        dtype: the dtype of the parameters.

    >>> sum(p.numel() for p in Linear(3, 2).parameters())
    8
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        bound = 1 / math.sqrt(in_features) if in_features else 0.0
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class ReLUFunction(Function):
    """Rectifier. The gradient depends only on whether the input is positive, and the output shows this."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.clamp(min=0)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        # Save the output: if a linear layer follows, that layer keeps the same tensor, so saving it costs nothing.
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        # The kernel of torch's relu returns 0 where the output is at most 0. A product of 0 and an infinite grad_output
        # would be NaN, and torch.where takes many times as long on a CPU if its condition is True for some elements.
        return torch.ops.aten.threshold_backward(grad_output, output, 0)


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
    """Logistic function. Keeps only its output, from which backward computes the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.sigmoid()

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        return grad_output * (output * (1 - output)).conj()


def sigmoid(input: Tensor) -> Tensor:
    r"""Logistic function.

    .. math:: y = \frac{1}{1 + e^{-x}}, \qquad \bar{x} = \bar{y}\,(y\,(1 - y))^*

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
    """Hyperbolic tangent. Keeps only its output, from which backward computes the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.tanh()

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        # One fused step for 1 - y²: where y is close to 1, a rounded square leaves few digits of the difference. Do not
        # write (1 - y)(1 + y): near x = 0, its derivative is a difference of two numbers close to 1, so the digits
        # cancel.
        slope = torch.addcmul(output.new_ones(()), output, output, value=-1)
        return grad_output * slope.conj()


def tanh(input: Tensor) -> Tensor:
    r"""Hyperbolic tangent.

    .. math:: y = \tanh x, \qquad \bar{x} = \bar{y}\,(1 - y^2)^*

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
