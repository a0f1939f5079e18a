"""Matrix products of all shapes that torch multiplies, and a linear layer with a mask on the weight."""

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._opaque import opaque
from autograd_cookbook.recipes.broadcasting import sum_to_shape
from autograd_cookbook.recipes.template import rows


def summed_product(left: Tensor, right: Tensor, shape: torch.Size) -> Tensor:
    """Return ``left.mT @ right``, summed over the batch to ``shape``. Leading dimensions of size 1 can be missing."""
    if shape[:-2].numel() == 1:
        # One matrix is shared by the whole batch. This product of two tall matrices sums over the batch while it
        # multiplies, so no matrix per batch element is stored.
        return rows(left).mT @ rows(right)
    return sum_to_shape(left.mT @ right, shape)


class MatmulFunction(Function):
    """Keeps both factors in their own shapes, not expanded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, other: Tensor) -> Tensor:
        return torch.matmul(input, other)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        input, other = ctx.saved_tensors
        left, right = input, other
        # Under autocast, forward returns half precision, but backward runs without autocast.
        grad_output = grad_output.to(input.dtype)
        # A vector on the left acts as a matrix with one row, and a vector on the right as a matrix with one column.
        # Forward dropped the dimension of size 1, so add it again.
        if other.dim() == 1:
            right, grad_output = other[:, None], grad_output.unsqueeze(-1)
        if input.dim() == 1:
            left, grad_output = input[None], grad_output.unsqueeze(-2)
        grad_input = grad_other = None
        if ctx.needs_input_grad[0]:
            grad_input = summed_product(grad_output.mT, right.mH, left.shape).reshape(input.shape)
        if ctx.needs_input_grad[1]:
            grad_other = summed_product(left.conj(), grad_output, right.shape).reshape(other.shape)
        return grad_input, grad_other


def matmul(input: Tensor, other: Tensor) -> Tensor:
    r"""Matrix product of vectors, matrices, and batches of matrices that broadcast.

    .. math::
        Y = A B, \qquad
        \bar{A} = \operatorname{sum}_A(\bar{Y} B^{\mathsf H}), \quad
        \bar{B} = \operatorname{sum}_B(A^{\mathsf H} \bar{Y})

    where :math:`\operatorname{sum}_A` sums over the batch dimensions along which :math:`A` was broadcast.

    Args:
        input: ``(k,)`` or ``(..., n, k)``, floating or complex; integers have no gradient.
        other: ``(k,)`` or ``(..., k, m)``, same dtype and device. The dimensions before the last two broadcast.

    Returns:
        ``(..., n, m)``, without ``n`` if ``input`` is a vector, and without ``m`` if ``other`` is a vector.

    Raises:
        RuntimeError: if an argument has no dimension, or the shapes, dtypes or devices do not fit, as in
            :func:`torch.matmul`.

    >>> a = torch.ones(4, 2, 3)
    >>> b = torch.zeros(3, 2, requires_grad=True)
    >>> matmul(a, b).sum().backward()
    >>> b.grad
    tensor([[8., 8.],
            [8., 8.],
            [8., 8.]])
    """
    return MatmulFunction.apply(input, other)


def masked_product(input: Tensor, weight: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the input times the transpose of the masked weight."""
    # Use where instead of a product with the mask, because a masked weight can be infinite or NaN.
    return input.to(dtype) @ torch.where(mask, weight, 0).to(dtype).mT


def like_masked_product(input: Tensor, weight: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor like the result of :func:`masked_product`, but without values."""
    return input.new_empty(*input.shape[:-1], len(weight), dtype=dtype)


# Opaque, so that the compiler cannot compute the masked weight in forward and keep it for backward.
swept_product = opaque("masked_product", masked_product, like_masked_product)


class MaskedLinearFunction(Function):
    """Keeps the weight and the mask. Backward computes the masked weight again, which takes one pass."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, weight: Tensor, mask: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
        output = swept_product(input, weight, mask, dtype)
        return output if bias is None else output + bias

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[Tensor, Tensor, Tensor, Tensor | None, torch.dtype], output: Tensor
    ) -> None:
        ctx.save_for_backward(*inputs[:3])

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, None, Tensor | None, None]:
        input, weight, mask = ctx.saved_tensors
        grad_output = grad_output.to(input.dtype)  # under autocast, forward returns half precision
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = MaskedLinearFunction.apply(grad_output, weight.mH, mask.mT, None, input.dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = torch.where(mask, rows(grad_output).mT @ rows(input).conj(), 0)
        if ctx.needs_input_grad[3]:
            grad_bias = rows(grad_output).sum(0)
        return grad_input, grad_weight, None, grad_bias, None


def masked_linear(input: Tensor, weight: Tensor, mask: Tensor, bias: Tensor | None = None) -> Tensor:
    r"""Affine map with a mask of the weights. Weights where the mask is False act as 0.

    .. math::
        Y = X (M \odot W)^\top + b, \qquad
        \bar{X} = \bar{Y}\,(M \odot W)^*, \quad
        \bar{W} = M \odot (\bar{Y}^\top X^*), \quad
        \bar{b} = \textstyle\sum_n \bar{Y}_n

    A masked weight has gradient 0 for any value, also if the value is infinite or NaN.

    Args:
        input: ``(..., in_features)``, floating or complex.
        weight: ``(out_features, in_features)``, same dtype and device.
        mask: bool, of the shape of ``weight``: True where there is a connection.
        bias: ``(out_features,)`` or None.

    Returns:
        ``(..., out_features)``.

    Raises:
        TypeError: if ``mask`` is not bool.
        RuntimeError: if the shapes, dtypes or devices do not fit.

    >>> w = torch.ones(2, 3, requires_grad=True)
    >>> mask = torch.tensor([[True, True, False], [False, False, True]])
    >>> masked_linear(torch.tensor([1.0, 2.0, 3.0]), w, mask)
    tensor([3., 3.], grad_fn=<MaskedLinearFunctionBackward>)
    >>> masked_linear(torch.tensor([1.0, 2.0, 3.0]), w, mask).sum().backward()
    >>> w.grad
    tensor([[1., 2., 0.],
            [0., 0., 3.]])
    """
    if mask.dtype is not torch.bool:
        raise TypeError(f"expected a bool mask, got {mask.dtype}")
    if mask.shape != weight.shape:
        raise RuntimeError(f"expected a mask of shape {tuple(weight.shape)}, got {tuple(mask.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise RuntimeError(f"expected bias of shape {tuple(weight.shape[:1])}, got {tuple(bias.shape)}")
    if bias is not None and bias.dtype != weight.dtype:
        raise RuntimeError(f"expected bias of dtype {weight.dtype}, got {bias.dtype}")
    if weight.dtype != input.dtype or weight.device != input.device:
        raise RuntimeError(f"expected weight of {input.dtype} on {input.device}, got {weight.dtype} on {weight.device}")
    device, dtype = input.device.type, input.dtype
    if torch.is_autocast_enabled(device) and dtype in (torch.float16, torch.bfloat16, torch.float32):
        dtype = torch.get_autocast_dtype(device)
    return MaskedLinearFunction.apply(input, weight, mask, bias, dtype)
