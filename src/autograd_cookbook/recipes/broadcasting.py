"""Inputs of different shapes: backward must sum over the dimensions that forward expands."""

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._logistic import GateSlopeFunction, logistic
from autograd_cookbook.recipes.elementwise import wide


def sum_to_shape(tensor: Tensor, shape: tuple[int, ...] | torch.Size) -> Tensor:
    r"""Sum a tensor to a smaller shape, which must broadcast to the shape of the tensor.

    .. math:: y_j = \sum_{i\,:\,j(i) = j} x_i, \qquad \bar{x}_i = \bar{y}_{j(i)}

    where ``expand`` would copy element :math:`j(i)` to position :math:`i`.

    Args:
        tensor: any dtype.
        shape: the shape of the result. Counted from the right, each size is 1 or equals the size of ``tensor``.

    Returns:
        A tensor of shape ``shape``; ``tensor`` itself if there is nothing to sum.

    Raises:
        RuntimeError: if ``shape`` does not broadcast to the shape of ``tensor``, as in
            :meth:`torch.Tensor.sum_to_size`.

    >>> sum_to_shape(torch.ones(4, 2, 3), (2, 1))
    tensor([[12.],
            [12.]])
    """
    extra = tensor.dim() - len(shape)
    sizes = tuple(tensor.shape)[max(extra, 0) :]
    if extra < 0 or any(target not in (1, size) for target, size in zip(shape, sizes, strict=True)):
        raise RuntimeError(f"cannot sum a tensor of shape {tuple(tensor.shape)} to shape {tuple(shape)}")
    expanded = [extra + i for i, target in enumerate(shape) if target != sizes[i]]
    dims = [*range(extra), *expanded]
    # Tensor.sum sums over all dimensions if the list is empty, so test for an empty list.
    return tensor.sum(dims).reshape(shape) if dims else tensor


class BiasAddFunction(Function):
    """Keeps no tensor, because the gradients do not depend on the values of input and bias."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, bias: Tensor, dim: int) -> Tensor:
        return input + bias.reshape([-1 if i == dim else 1 for i in range(input.dim())])

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        input, _, dim = inputs
        ctx.others = [i for i in range(input.dim()) if i != dim]

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, Tensor | None, None]:
        grad_bias = None
        if ctx.needs_input_grad[1]:
            grad_bias = grad_output.sum(ctx.others) if ctx.others else grad_output
        return grad_output, grad_bias, None


def bias_add(input: Tensor, bias: Tensor, dim: int = 1) -> Tensor:
    r"""Add one number per channel.

    .. math:: Y_{ncs} = X_{ncs} + b_c, \qquad \bar{X} = \bar{Y}, \quad \bar{b}_c = \sum_{n,s} \bar{Y}_{ncs}

    Args:
        input: any shape with at least one dimension, for example ``(batch, channels, height, width)``.
        bias: ``(channels,)``, same dtype and device.
        dim: the dimension of ``input`` that holds the channels. A negative number counts from the end.

    Returns:
        A tensor like ``input``.

    Raises:
        IndexError: if ``input`` has no dimension ``dim``.
        RuntimeError: if ``bias`` is not a vector with one number per channel, or the dtypes or devices differ.

    >>> b = torch.zeros(3, requires_grad=True)
    >>> bias_add(torch.ones(2, 3, 4, 4), b).sum().backward()
    >>> b.grad
    tensor([32., 32., 32.])
    """
    if not -input.dim() <= dim < input.dim():
        raise IndexError(f"expected a dim in [{-input.dim()}, {input.dim() - 1}], got {dim}")
    if bias.shape != input.shape[dim : dim + 1 or None]:
        raise RuntimeError(
            f"expected bias of shape ({input.shape[dim]},) for dim {dim} of an input of shape "
            f"{tuple(input.shape)}, got {tuple(bias.shape)}"
        )
    if bias.dtype != input.dtype:
        raise RuntimeError(f"expected bias of dtype {input.dtype}, got {bias.dtype}")
    return BiasAddFunction.apply(input, bias, dim % input.dim())


class MultiplyFunction(Function):
    """Keeps both inputs in their own shapes, not expanded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, other: Tensor) -> Tensor:
        return input * other

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        input, other = ctx.saved_tensors
        grad_input = grad_other = None
        if ctx.needs_input_grad[0]:
            grad_input = as_gradient(grad_output * other.conj(), input)
        if ctx.needs_input_grad[1]:
            grad_other = as_gradient(grad_output * input.conj(), other)
        return grad_input, grad_other


def as_gradient(tensor: Tensor, input: Tensor) -> Tensor:
    """Give a gradient the shape and the dtype of ``input``, because forward can broadcast and promote the input."""
    if tensor.is_complex() and not input.is_complex():
        tensor = tensor.real
    return sum_to_shape(tensor, input.shape).to(input.dtype)


def multiply(input: Tensor, other: Tensor) -> Tensor:
    r"""Multiply two tensors of any shapes that broadcast.

    .. math::
        Y = X \odot Z, \qquad
        \bar{X} = \operatorname{sum}_X(\bar{Y} \odot Z^*), \quad
        \bar{Z} = \operatorname{sum}_Z(\bar{Y} \odot X^*)

    where :math:`\operatorname{sum}_X` sums a tensor to the shape of :math:`X`.

    Args:
        input: any shape and dtype.
        other: any shape that broadcasts with the shape of ``input``. The dtypes can differ, as for
            :func:`torch.mul`.

    Returns:
        The product, of the broadcast shape and the promoted dtype.

    Raises:
        RuntimeError: if the shapes do not broadcast or the devices differ.

    >>> scale = torch.tensor(2.0, requires_grad=True)
    >>> multiply(torch.ones(4, 3), scale).sum().backward()
    >>> scale.grad
    tensor(12.)
    """
    return MultiplyFunction.apply(input, other)


class ScaledSigmoidFunction(Function):
    """Keeps its inputs in their own shapes. Backward computes the sigmoid again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, scale: Tensor) -> Tensor:
        product = scale * input
        if product.dtype not in (torch.float16, torch.bfloat16):
            return logistic(product)
        # The logistic function of a rounded product of -10 would have few correct digits.
        return logistic(wide(scale) * wide(input)).to(product.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        input, scale = ctx.saved_tensors
        x, s = wide(input), wide(scale)
        # Do not use output * (1 - output): the difference is only rounding error where the output is close to 1.
        grad = GateSlopeFunction.apply(wide(grad_output), s * x)
        grad_input = grad_scale = None
        if ctx.needs_input_grad[0]:
            grad_input = as_gradient(grad * s, input)
        if ctx.needs_input_grad[1]:
            grad_scale = as_gradient(grad * x, scale)
        return grad_input, grad_scale


def scaled_sigmoid(input: Tensor, scale: Tensor) -> Tensor:
    r"""Logistic function of a tensor times a learned scale. The scale is one number, or one number per channel.

    .. math::
        Y = \sigma(S \odot X), \qquad
        \bar{X} = \operatorname{sum}_X(D \odot S), \quad
        \bar{S} = \operatorname{sum}_S(D \odot X), \qquad
        D = \bar{Y} \odot Y \odot (1 - Y)

    where :math:`\operatorname{sum}_X` sums a tensor to the shape of :math:`X`.

    Args:
        input: any shape, real floating dtype.
        scale: any shape that broadcasts with the shape of ``input``, for example ``()`` or ``(channels,)``.

    Returns:
        A tensor of the broadcast shape.

    Raises:
        TypeError: if an argument is complex, because torch's complex logistic function overflows to NaN.
        RuntimeError: if the shapes do not broadcast or the devices differ.

    >>> scale = torch.zeros(2, requires_grad=True)
    >>> scaled_sigmoid(torch.ones(3, 2), scale).sum().backward()
    >>> scale.grad
    tensor([0.7500, 0.7500])
    """
    if input.is_complex() or scale.is_complex():
        raise TypeError(f"expected real tensors, got {input.dtype} and {scale.dtype}")
    return ScaledSigmoidFunction.apply(input, scale)
