"""Functions that compute in float32 and round the result once, and custom functions under autocast."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.reductions import largest_size, power_of_two


def direction(input: Tensor, dim: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return vectors divided by their lengths, or by ``eps`` if a length is smaller.

    Also return this divisor as a product of two numbers, and a mask of the vectors that are not shorter than ``eps``.
    """
    exact = input.to(dtype)
    # Squares of large numbers overflow, and squares of small numbers become 0. So first divide each vector by a power
    # of two of about its size, which causes no rounding error. The sum of squares is accurate in float64.
    info = torch.finfo(dtype)
    largest = largest_size(exact.detach(), (dim,)) if exact.numel() else exact.new_ones(())
    unit = power_of_two(largest.clamp(min=max(eps, info.smallest_normal)))
    scaled = exact / unit
    length = torch.linalg.vector_norm(scaled, dim=dim, keepdim=True, dtype=torch.float64).to(dtype)
    divisor = length.clamp(min=eps / unit)
    return scaled / divisor, divisor, unit, length >= eps / unit


class CosineSimilarityFunction(Function):
    """Keeps its arguments in their own precision, but no float32 tensor that is computed from them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, other: Tensor, dim: int, eps: float) -> Tensor:
        result = torch.promote_types(input.dtype, other.dtype)
        exact = torch.promote_types(result, torch.float32)
        return (direction(input, dim, eps, exact)[0] * direction(other, dim, eps, exact)[0]).sum(dim).to(result)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, int, float], output: Tensor) -> None:
        input, other, ctx.dim, ctx.eps = inputs
        ctx.save_for_backward(input, other)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        exact = torch.promote_types(grad_output.dtype, torch.float32)
        # Compute the vectors again from the arguments. Saved float32 vectors would take four times the bytes of one
        # argument, and a second derivative would treat them as constants.
        found = [direction(t, ctx.dim, ctx.eps, exact) for t in tensors]
        cosine = (found[0][0] * found[1][0]).sum(ctx.dim, keepdim=True)
        grad = grad_output.to(exact).reshape(cosine.shape)
        grads: list[Tensor | None] = [None, None]
        for k, (along, divisor, unit, is_long) in enumerate(found):
            if ctx.needs_input_grad[k]:
                # For nearly parallel vectors, this is a difference of nearly equal numbers. In half precision, the
                # result would be only rounding error.
                across = torch.addcmul(found[1 - k][0], along, torch.where(is_long, cosine, 0), value=-1)
                # Divide twice, because the product of both divisors can be too small for the dtype.
                grads[k] = (grad / divisor * across / unit).to(tensors[k].dtype)
        return *grads, None, None


def cosine_similarity(input: Tensor, other: Tensor, dim: int = -1, eps: float = 1e-8) -> Tensor:
    r"""Cosine of the angle between vectors, computed in float32 and rounded once. It saves only its arguments.

    .. math::
        c = a^\top b, \quad a = \frac{x}{\max(\|x\|, \varepsilon)}, \quad b = \frac{y}{\max(\|y\|, \varepsilon)},
        \qquad \bar{x} = \bar{c}\,\frac{b - c\,a}{\|x\|}, \quad \bar{y} = \bar{c}\,\frac{a - c\,b}{\|y\|}

    If a vector is shorter than :math:`\varepsilon`, its gradient has no term with :math:`c`. The function divides each
    vector by a power of two first, because in float32 the squares of numbers above about 1e19 overflow.

    Args:
        input: real floating dtype, any shape.
        other: any shape that broadcasts with the shape of ``input``.
        dim: the dimension of the vectors. The result does not have this dimension.
        eps: the smallest divisor, which replaces a smaller length.

    Returns:
        The cosines, in the dtype that the arguments promote to. Each gradient has the dtype of its argument.

    Raises:
        RuntimeError: if the shapes cannot be broadcast, or neither dtype is floating, as in
            :func:`torch.nn.functional.cosine_similarity`.

    >>> x = torch.tensor([300.0, 400.0], dtype=torch.bfloat16, requires_grad=True)
    >>> c = cosine_similarity(x, torch.tensor([301.0, 400.0]))
    >>> c
    tensor(1.0000, grad_fn=<CosineSimilarityFunctionBackward>)
    >>> torch.autograd.grad(c, x)[0]
    tensor([ 2.5630e-06, -1.9222e-06], dtype=torch.bfloat16)
    """
    result = torch.promote_types(input.dtype, other.dtype)
    if not result.is_floating_point:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {result}")
    return CosineSimilarityFunction.apply(*torch.broadcast_tensors(input, other), dim, eps)


def cast_inputs(function: Callable[..., Any], *args: Any) -> Any:
    r"""Under autocast, cast the tensors to autocast's dtype, and call a function on them.

    .. math::
        y = f(\mathrm{cast}(x)), \qquad \bar{x} = \mathrm{cast}^{-1}\bigl(f'(\mathrm{cast}(x))^\top\,\bar{y}\bigr)

    With this cast, the gradient in backward has the same dtype as the saved tensors. This function is like
    ``torch.amp.custom_fwd(cast_inputs=...)``, but it casts outside of the custom function. So the cast is a part of the
    graph, and the second derivative passes through it. Also, you do not have to name a device type.

    Args:
        function: called as ``function(*args)``, such as the ``apply`` of a :class:`torch.autograd.Function`.
        args: the arguments of the function. Tensors of float16, bfloat16 and float32 are cast. float64 stays, as in
            autocast.

    Returns:
        The result of the function.

    >>> x = torch.ones(2, requires_grad=True)
    >>> cast_inputs(torch.exp, x).dtype
    torch.float32
    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     y = cast_inputs(torch.exp, x)
    >>> y.dtype, torch.autograd.grad(y.sum(), x)[0].dtype
    (torch.bfloat16, torch.float32)
    """
    device = next((a.device.type for a in args if isinstance(a, Tensor)), "cpu")
    if not torch.is_autocast_enabled(device):
        return function(*args)
    dtype = torch.get_autocast_dtype(device)

    def cast(value: Any) -> Any:
        narrow = isinstance(value, Tensor) and value.is_floating_point() and value.dtype is not torch.float64
        return value.to(dtype) if narrow else value

    with torch.autocast(device, enabled=False):
        return function(*map(cast, args))
