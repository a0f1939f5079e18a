"""Functions whose backward limits the gradient by value, by norm, or for each example."""

import math

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.reductions import Dim, as_dims, power_of_two
from autograd_cookbook.recipes.template import rows


def norm_parts(tensor: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the 2-norm over ``dims`` as two factors in float32 or wider. The dimensions stay, with size 1.

    The second factor is the largest absolute value, or 1 if that value is 0 or infinite. The first factor is the norm
    after division by the second one, so no square in it overflows. The product of both factors can still overflow.
    """
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    if not tensor.numel():
        nothing = wide.sum(dims, keepdim=True).abs()
        return nothing, torch.ones_like(nothing)
    with torch.no_grad():  # the choice of ``largest`` does not change the product of both factors
        largest = wide.abs().amax(dims, keepdim=True)
        largest = torch.where((largest == 0) | largest.isinf(), 1, largest)
    return torch.linalg.vector_norm(wide / largest, 2, dims, keepdim=True), largest


def nonzero(norm: Tensor) -> Tensor:
    """Replace a norm of 0 by 1, because a division by 0 would make second derivatives NaN."""
    return torch.where(norm == 0, 1, norm)


def shrunk(grad: Tensor, max_norm: float, norm: Tensor, scale: Tensor) -> Tensor:
    """Scale a gradient down to ``max_norm`` where its norm is larger. The norm is the product ``norm * scale``.

    A smaller gradient stays the same, bit by bit. The factor is 0 for an infinite norm and NaN for a norm of NaN.
    """
    # Use <= and not >: a comparison with NaN is False, so this code does not treat a norm of NaN as small enough.
    fits = norm * scale <= max_norm
    factor = max_norm / nonzero(norm)
    # The factor can be too small for the dtype although the clipped gradient is not. So multiply by two parts of
    # similar size. The first part is a power of two, so the multiplication by it causes no rounding error.
    with torch.no_grad():
        half = power_of_two(factor.sqrt() / scale.sqrt())
    clipped, rest = grad * torch.where(fits, 1, half), torch.where(fits, 1, factor / half / scale)
    # Memory for another result takes longer than the product. But if autograd records, it needs both results.
    return clipped * rest if clipped.requires_grad else clipped.mul_(rest)


def limited(grad: Tensor, max_norm: float, dims: tuple[int, ...]) -> Tensor:
    """Return the gradient, scaled so that its norm over ``dims`` is at most ``max_norm``."""
    return shrunk(grad, max_norm, *norm_parts(grad, dims)).to(grad.dtype)


class ClipGradientValueFunction(Function):
    """Keeps a number and no tensor. The output shares the memory of the input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, clip_value: float) -> Tensor:
        return input.view_as(input)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.clip_value = inputs[1]

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        if ctx.clip_value > torch.finfo(grad_output.dtype).max:  # clamp refuses a bound that the dtype cannot hold
            return grad_output, None
        return grad_output.clamp(-ctx.clip_value, ctx.clip_value), None


def clip_gradient_value(input: Tensor, clip_value: float) -> Tensor:
    r"""Return a tensor unchanged, and limit each element of its gradient to an interval.

    .. math:: y = x, \qquad \bar{x}_i = \min(\max(\bar{y}_i, -c), c)

    An infinite gradient becomes finite, as in :func:`torch.nn.utils.clip_grad_value_`. NaN stays NaN.

    Args:
        input: any shape, floating dtype. Only the gradient through the returned tensor is clipped.
        clip_value: the bound :math:`c`, positive.

    Returns:
        A view of ``input``. PyTorch raises an error if you write to this view in place.

    Raises:
        TypeError: if ``input`` is complex.
        ValueError: if ``clip_value`` is not positive.

    >>> x = torch.zeros(3, requires_grad=True)
    >>> (clip_gradient_value(x, 1.0) * torch.tensor([-5.0, 0.5, 5.0])).sum().backward()
    >>> x.grad
    tensor([-1.0000,  0.5000,  1.0000])
    """
    if input.is_complex():
        raise TypeError(f"expected a real input, got {input.dtype}: complex numbers have no order")
    return ClipGradientValueFunction.apply(input, positive("clip_value", clip_value))


class ClipGradientNormFunction(Function):
    """Keeps a number and dimensions, but no tensor. The output shares the memory of the input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, max_norm: float, dims: tuple[int, ...]) -> Tensor:
        return input.view_as(input)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float, tuple[int, ...]], output: Tensor) -> None:
        _, ctx.max_norm, ctx.dims = inputs

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        return limited(grad_output, ctx.max_norm, ctx.dims), None, None


def clip_gradient_norm(input: Tensor, max_norm: float, dim: Dim = None) -> Tensor:
    r"""Return a tensor unchanged, and limit the norm of its gradient to ``max_norm``.

    .. math:: y = x, \qquad \bar{x} = \bar{y}\,\min\left(1, \frac{c}{\lVert \bar{y} \rVert_2}\right)

    The norm is taken over ``dim``. With ``dim=None``, this is the norm of the whole gradient. With ``dim=-1``, each row
    of the gradient is limited separately. If all elements are finite, the norm does not overflow here, but it can
    overflow in :func:`torch.nn.utils.clip_grad_norm_`. In both functions, an infinite element becomes NaN, and the
    other elements in the same norm become 0. A NaN makes all elements in the same norm NaN.

    Args:
        input: any shape, floating or complex. Only the gradient through the returned tensor is clipped.
        max_norm: the bound :math:`c`, positive.
        dim: one int, which may be negative, several ints, or None for all dimensions.

    Returns:
        A view of ``input``. PyTorch raises an error if you write to this view in place.

    Raises:
        ValueError: if ``max_norm`` is not positive.
        IndexError: if a dimension is out of range.
        RuntimeError: if a dimension is given twice.

    Source: R. Pascanu et al., On the difficulty of training recurrent neural networks, ICML 2013, arXiv:1211.5063.

    >>> x = torch.zeros(2, 2, requires_grad=True)
    >>> (clip_gradient_norm(x, 5.0, dim=1) * torch.tensor([[30.0, 40.0], [0.0, 2.0]])).sum().backward()
    >>> x.grad
    tensor([[3., 4.],
            [0., 2.]])
    """
    return ClipGradientNormFunction.apply(input, positive("max_norm", max_norm), as_dims(dim, input.dim()))


def shares(max_norm: float, dtype: torch.dtype) -> tuple[float, float]:
    """Return two bounds whose product is ``max_norm``: one for the gradient of an example and one for its input.

    Both bounds must be large enough not to underflow. In float16, the bounds have similar sizes. In other dtypes, the
    second bound is about 256, so that this bound divided by the norm of an example does not underflow in float32.
    """
    second = math.sqrt(max_norm) if dtype == torch.float16 else 256.0
    first = 2.0 ** round(math.log2(max_norm / second))
    return first, max_norm / first


class ClippedLinearFunction(Function):
    """Keeps input and weight. Backward computes the norm of each example's gradient as a product of two norms."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None, max_norm: float) -> Tensor:
        output = input @ weight.mT
        return output if bias is None else output + bias

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, Tensor | None, float], output: Tensor) -> None:
        input, weight, bias, ctx.max_norm = inputs
        ctx.has_bias = bias is not None
        ctx.save_for_backward(input, weight)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        input, weight = ctx.saved_tensors
        grad_output = grad_output.to(weight.dtype)  # autocast lowers the dtype in forward and is off in backward
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            grads, examples = rows(grad_output), rows(input)
            norm, scale = norm_parts(grads, (1,))
            norm_input, scale_input = norm_parts(examples, (1,))
            if ctx.has_bias:  # the bias is like a weight whose input is always 1
                larger = scale_input.clamp(min=1)
                norm_input = torch.hypot(norm_input * (scale_input / larger), 1 / larger)
                scale_input = larger
            # With <= instead of >, a norm of NaN is not treated as small enough. Multiply the two scales first: the
            # product of a large and a small scale is moderate, but another order of the factors can overflow.
            fits = norm * norm_input * (scale * scale_input) <= ctx.max_norm
            # The product of gradient and input must have the norm max_norm. If only the gradient were scaled, it could
            # underflow. So gradient and input each get their own bound.
            of_grads, of_examples = shares(ctx.max_norm, grads.dtype)
            grads = grads / torch.where(fits, 1, scale) * torch.where(fits, 1, of_grads / nonzero(norm))
            ones = torch.where(fits, 1, of_examples / nonzero(norm_input) / scale_input)
            grads = grads.to(weight.dtype)
            if ctx.needs_input_grad[1]:
                grad_weight = grads.mT @ (examples * ones).to(weight.dtype).conj()
            if ctx.needs_input_grad[2]:
                grad_bias = (grads.mT @ ones.to(weight.dtype)).squeeze(1)
        if ctx.needs_input_grad[0]:  # last, because now the temporary tensors for the norms are freed
            grad_input = grad_output @ weight.conj()
        return grad_input, grad_weight, grad_bias, None


def clipped_linear(input: Tensor, weight: Tensor, bias: Tensor | None, max_norm: float) -> Tensor:
    r"""Apply an affine map, and limit the norm of the parameters' gradient to ``max_norm`` for each example.

    .. math::
        Y = X W^\top + b, \qquad
        \bar{X} = \bar{Y}\,W^*, \quad
        \bar{W} = \textstyle\sum_n f_n\,\bar{Y}_n X_n^H, \quad
        \bar{b} = \textstyle\sum_n f_n\,\bar{Y}_n, \qquad
        f_n = \min\left(1, \frac{c}{\lVert \bar{Y}_n \rVert \sqrt{\lVert X_n \rVert^2 + 1}}\right)

    The gradient of one example has rank one, so its norm is a product of two norms. The function clips without storing
    the gradient of any single example. The gradient of ``input`` is not clipped.

    Args:
        input: ``(..., in_features)``, floating or complex. Each row is an example, so in ``(batch, tokens, features)``
            each token is one.
        weight: ``(out_features, in_features)``, same dtype and device.
        bias: ``(out_features,)`` or None. Without a bias, the formula has no term 1 under the root.
        max_norm: the bound :math:`c`, positive. If the loss is a *mean* over examples, each gradient is already divided
            by the number of examples, so divide the bound by this number, too.

    Returns:
        ``(..., out_features)``.

    Raises:
        ValueError: if ``max_norm`` is not positive.
        RuntimeError: if the shapes, dtypes or devices do not fit, as in :func:`torch.nn.functional.linear`.

    Source: I. Goodfellow, Efficient per-example gradient computations, arXiv:1510.01799.

    >>> w = torch.zeros(1, 2, requires_grad=True)
    >>> x = torch.tensor([[0.6, 0.8], [60.0, 80.0]])
    >>> clipped_linear(x, w, None, 1.0).sum().backward()
    >>> w.grad
    tensor([[1.2000, 1.6000]])
    """
    if bias is not None and bias.shape != weight.shape[:1]:
        raise RuntimeError(f"expected bias of shape {tuple(weight.shape[:1])}, got {tuple(bias.shape)}")
    if bias is not None and bias.dtype != weight.dtype:
        raise RuntimeError(f"expected bias of dtype {weight.dtype}, got {bias.dtype}")
    return ClippedLinearFunction.apply(input, weight, bias, positive("max_norm", max_norm))


def positive(name: str, bound: float) -> float:
    """Return the bound.

    Raises:
        ValueError: if the bound is not positive.
    """
    if not bound > 0:
        raise ValueError(f"expected {name} > 0, got {bound}")
    return bound
