"""Second derivatives: of a custom function, as products with a vector, and as whole Hessians."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._logistic import GateSlopeFunction
from autograd_cookbook.recipes.elementwise import wide

Scalar = Callable[[Tensor], Tensor]


Mode = Literal["reverse", "forward_over_reverse"]


class LogCoshFunction(Function):
    """Keeps its input. Backward computes the gradient from the input, so the gradient can be differentiated again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        # log cosh x = log1p(2 sinh²(x / 2)). Near 0, log1p keeps all digits, but log(cosh x) has none. For large
        # inputs, cosh overflows. From 40 on, the function grows as |x| in every dtype.
        size = wide(input).abs()
        near = size.clamp(max=40).div_(2).sinh_().pow_(2).mul_(2).log1p_()
        return near.add_(size.sub_(40).clamp_min_(0)).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        return grad_output * TanhFunction.apply(input)


class TanhFunction(Function):
    """The slope of log cosh. Keeps its input, because 1 - y² of the output y has no digits where y is close to 1."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.tanh()

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        # In float16, the slope would become 0 where its product with a scaled gradient does not.
        return GateSlopeFunction.apply(4 * wide(grad_output), 2 * wide(input)).to(grad_output.dtype)


def log_cosh(input: Tensor) -> Tensor:
    r"""Logarithm of the hyperbolic cosine: a smooth loss, quadratic near 0 and linear far from 0.

    .. math:: y = \log \cosh x, \qquad \bar{x} = \bar{y} \tanh x, \qquad y'' = 1 - \tanh^2 x

    Args:
        input: any shape, real floating dtype, of any size.

    Returns:
        A tensor like ``input``.

    Raises:
        TypeError: if the input is complex, because the absolute value has no complex derivative.

    >>> x = torch.tensor(0.0, requires_grad=True)
    >>> (first,) = torch.autograd.grad(log_cosh(x), x, create_graph=True)
    >>> torch.autograd.grad(first, x)
    (tensor(1.),)
    """
    if input.is_complex():
        raise TypeError(f"expected a real input, got {input.dtype}")
    return LogCoshFunction.apply(input)


def hvp(function: Scalar, input: Tensor, vector: Tensor, mode: Mode = "reverse") -> Tensor:
    r"""Multiply the Hessian of a function by a vector, without computing the Hessian.

    .. math::
        H v = \nabla_x \left( \nabla f(x)^\top v \right) \quad \text{(reverse)}, \qquad
        H v = \left.\frac{d}{dt}\right|_{t=0} \nabla f(x + t v) \quad \text{(forward over reverse)}

    Args:
        function: maps a tensor to a scalar.
        input: the point at which to differentiate; any shape, floating dtype.
        vector: a tensor like ``input``.
        mode: "reverse" uses double backward. It accepts any custom function with ``setup_context`` if its double
            backward is right. "forward_over_reverse" needs forward mode in everything that ``function`` does, so a
            custom function needs a ``jvp``. Which mode is faster depends on the function.

    Returns:
        A tensor like ``input``. You can differentiate it again.

    Raises:
        ValueError: if the output of ``function`` is not a scalar, ``vector`` has another shape, or ``mode`` is unknown.

    Source: B. A. Pearlmutter, Fast exact multiplication by the Hessian, Neural Computation 6 (1994).

    >>> x = torch.tensor([1.0, 2.0])
    >>> hvp(lambda x: (x**3).sum(), x, torch.tensor([1.0, 1.0]))
    tensor([ 6., 12.])
    """
    if vector.shape != input.shape:
        raise ValueError(f"expected a vector of shape {tuple(input.shape)}, got {tuple(vector.shape)}")
    gradient = _gradient_of(function)
    if mode == "forward_over_reverse":
        # Forward mode refuses a tensor whose elements share memory, such as an expanded one.
        return torch.func.jvp(gradient, (input.contiguous(),), (vector.contiguous(),))[1]
    _expect_reverse(mode)
    return torch.func.vjp(gradient, input)[1](vector)[0]


def hessian(function: Scalar, input: Tensor, mode: Mode = "reverse") -> Tensor:
    r"""Compute all second derivatives of a function.

    .. math:: H_{ij} = \frac{\partial^2 f}{\partial x_i \, \partial x_j}

    Args:
        function: maps a tensor to a scalar.
        input: the point at which to differentiate; any shape, floating dtype.
        mode: "reverse" or "forward_over_reverse", see :func:`hvp`.

    Returns:
        A tensor of shape ``(*input.shape, *input.shape)``. You can differentiate it again.

    Raises:
        ValueError: if the output of ``function`` is not a scalar, or ``mode`` is unknown.

    >>> hessian(lambda x: x.prod(), torch.tensor([2.0, 3.0, 5.0]))
    tensor([[0., 5., 3.],
            [5., 0., 2.],
            [3., 2., 0.]])
    """
    return jacobian(_gradient_of(function), input, mode)


def jacobian(function: Callable[[Tensor], Tensor], input: Tensor, mode: Mode = "reverse") -> Tensor:
    r"""Compute all first derivatives of a function with any number of outputs.

    .. math:: J_{ij} = \frac{\partial y_i}{\partial x_j}

    Args:
        function: maps a tensor to a tensor.
        input: the point at which to differentiate; any shape, floating dtype.
        mode: "reverse" runs one backward for each output. "forward_over_reverse" runs forward mode once for each input.
            The name is that of the mode in :func:`hessian`, which applies this function to a gradient.

    Returns:
        A tensor of shape ``(*output.shape, *input.shape)``. You can differentiate it again.

    Raises:
        ValueError: if ``mode`` is unknown.

    >>> jacobian(lambda x: torch.stack([x.sum(), x.prod()]), torch.tensor([2.0, 3.0]))
    tensor([[1., 1.],
            [3., 2.]])
    """
    if mode == "forward_over_reverse":
        input = input.contiguous()  # as for hvp
        columns = torch.func.vmap(lambda v: torch.func.jvp(function, (input,), (v,))[1])(_units(input))
        return columns.movedim(0, -1).reshape((*columns.shape[1:], *input.shape))
    _expect_reverse(mode)
    output, pull_back = torch.func.vjp(function, input)  # type: ignore[misc]  # torch's type allows for has_aux
    rows = torch.func.vmap(lambda v: pull_back(v)[0])(_units(output))
    return rows.reshape((*output.shape, *input.shape))


def _units(like: Tensor) -> Tensor:
    """Return all tensors of this shape that have a single 1 and are 0 elsewhere, stacked."""
    return torch.eye(like.numel(), dtype=like.dtype, device=like.device).reshape((like.numel(), *like.shape))


def _gradient_of(function: Scalar) -> Callable[[Tensor], Tensor]:
    def scalar(input: Tensor) -> Tensor:
        output = function(input)
        if output.dim() != 0:
            raise ValueError(f"expected a function with a scalar output, got shape {tuple(output.shape)}")
        return output

    return torch.func.grad(scalar)


def _expect_reverse(mode: str) -> None:
    if mode != "reverse":
        raise ValueError(f"expected mode 'reverse' or 'forward_over_reverse', got {mode!r}")
