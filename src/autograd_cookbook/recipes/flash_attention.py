"""Attention that computes its scores one tile at a time (FlashAttention), with PyTorch's operations and in Triton."""

import math
from typing import Any

from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._attention import (
    BLOCK,
    TILE,
    attend,
    attend_curvature,
    attend_gradients,
    folded,
    prepared,
    unfolded,
)
from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._once import last_derivative
from autograd_cookbook.recipes._triton import backend as backend  # so that a copied recipe has it
from autograd_cookbook.recipes._triton_attention import has_kernel, triton_attention_backward, triton_attention_forward


class AttentionFunction(Function):
    """Keeps its arguments, its output, and two numbers per query."""

    @staticmethod
    def forward(
        query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float, size: int
    ) -> tuple[Tensor, Tensor]:
        return attend(query, key, value, causal, scale, size)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.causal, ctx.scale, ctx.size = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        options = ctx.causal, ctx.scale, ctx.size, ctx.needs_input_grad
        return *AttentionGradient.apply(grad_output, *ctx.saved_tensors, *options), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        return unfolded(info, AttentionFunction.apply(*folded(info, in_dims, args)))


class AttentionGradient(Function):
    """The first derivative. Keeps its arguments. Output and statistics save work, but have no gradient of their own."""

    @staticmethod
    def forward(
        grad_output: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: Tensor,
        statistics: Tensor,
        causal: bool,
        scale: float,
        size: int,
        needed: tuple[bool, ...],
    ) -> tuple[Tensor | None, ...]:
        return attend_gradients(grad_output, query, key, value, output, statistics, causal, scale, size, needed)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor | None, ...]) -> None:
        *tensors, ctx.causal, ctx.scale, ctx.size, _ = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)

    @staticmethod
    @last_derivative
    def backward(ctx: Context, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        grads = attend_curvature(tangents, *ctx.saved_tensors, causal=ctx.causal, scale=ctx.scale, size=ctx.size)
        return *grads, None, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        return unfolded(info, AttentionGradient.apply(*folded(info, in_dims, args)))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = False,
    scale: float | None = None,
    block: int | None = None,
) -> Tensor:
    r"""Scaled dot-product attention. Its memory grows with the length of the sequences, not with the squared length.

    .. math::
        O = P V, \quad
        P = \operatorname{softmax}(s\,Q K^\top), \qquad
        \bar{V} = P^\top \bar{O}, \quad
        \bar{S}_{ij} = P_{ij} \big( \bar{O}_i \cdot V_j - \delta_i \big), \quad
        \delta_i = \bar{O}_i \cdot O_i, \quad
        \bar{Q} = s\,\bar{S} K, \;
        \bar{K} = s\,\bar{S}^\top Q

    Forward computes scores and probabilities one tile at a time, in float32 or wider. Backward computes each tile
    again. For backward, the function saves only its arguments, its output and two numbers per query. The second
    derivative is computed in tiles, too. A third derivative raises. There is no dropout, and no mask except the causal
    one.

    In half precision, :math:`\delta` comes from the rounded output. If all values are far from 0 compared with their
    differences, the gradients of query and key lose digits, as for
    :func:`torch.nn.functional.scaled_dot_product_attention` on a CPU (torch 2.13). In bfloat16, they are 2 to 3 % off
    if the mean of the values is 10 times their standard deviation.

    Args:
        query: ``(..., queries, width)``, real floating dtype.
        key: ``(..., keys, width)``, same dtype.
        value: ``(..., keys, features)``, same dtype. Leading dimensions broadcast.
        causal: whether query i sees only the keys 0 to i, as with ``is_causal`` of PyTorch. This also holds if there
            are more or fewer keys than queries.
        scale: the factor :math:`s` of the scores. None means 1/√width.
        block: the number of queries and the number of keys in a tile. None means as many as make 4 MB of float32 scores
            for the whole batch, but at least 64 and at most 512.

    Returns:
        ``(..., queries, features)``, in the dtype of the arguments; under autocast, in the dtype of autocast.

    Raises:
        RuntimeError: if shapes, dtypes or devices do not fit.
        TypeError: if ``query`` is not of a real floating dtype.
        ValueError: if ``block`` is below 1.

    Source: T. Dao, FlashAttention-2, arXiv:2307.08691, algorithms 1 and 2; M. Milakov and N. Gimelshein,
    arXiv:1805.02867, for the running maximum. The second derivative is our own.

    >>> import torch
    >>> q = torch.zeros(2, 1, requires_grad=True)
    >>> k, v = torch.tensor([[1.0], [-1.0]]), torch.tensor([[2.0], [4.0]])
    >>> attention(q, k, v, causal=True).sum().backward()
    >>> attention(q, k, v, causal=True).detach().flatten(), q.grad.flatten()
    (tensor([2., 3.]), tensor([ 0., -1.]))
    """
    if block is not None and block < 1:
        raise ValueError(f"expected block > 0, got {block}")
    batch, tensors = prepared(query, key, value)
    scale = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    size = block or min(BLOCK, max(64, math.isqrt(TILE // max(batch.numel(), 1))))
    output, _ = AttentionFunction.apply(*tensors, causal, scale, size)
    return output.reshape(*batch, *output.shape[1:])


class TritonAttentionFunction(Function):
    """Keeps its arguments, its output, and two numbers per query."""

    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
        if has_kernel(query, key, value):
            return triton_attention_forward(query, key, value, causal, scale)
        return attend(query, key, value, causal, scale, BLOCK)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.causal, ctx.scale = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        options = ctx.causal, ctx.scale, tuple(ctx.needs_input_grad[:3])
        return *TritonAttentionGradient.apply(grad_output, *ctx.saved_tensors, *options), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        return unfolded(info, TritonAttentionFunction.apply(*folded(info, in_dims, args)))


class TritonAttentionGradient(Function):
    """The first derivative. Keeps its arguments. The second derivative is rarely needed, so it uses no kernel."""

    @staticmethod
    def forward(
        grad_output: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: Tensor,
        statistics: Tensor,
        causal: bool,
        scale: float,
        needed: tuple[bool, bool, bool],
    ) -> tuple[Tensor | None, ...]:
        args = (grad_output, query, key, value, output, statistics, causal, scale)
        if not has_kernel(query, key, value):
            return attend_gradients(*args, BLOCK, needed)
        # The kernel for the queries always runs, because it computes delta for the kernel for the keys.
        grads = triton_attention_backward(*args, needed[1] or needed[2])
        return tuple(grad if need else None for grad, need in zip(grads, needed, strict=True))

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor | None, ...]) -> None:
        *tensors, ctx.causal, ctx.scale, _ = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)

    @staticmethod
    @last_derivative
    def backward(ctx: Context, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        grads = attend_curvature(tangents, *ctx.saved_tensors, causal=ctx.causal, scale=ctx.scale, size=BLOCK)
        return *grads, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        return unfolded(info, TritonAttentionGradient.apply(*folded(info, in_dims, args)))


def triton_attention(
    query: Tensor, key: Tensor, value: Tensor, causal: bool = False, scale: float | None = None
) -> Tensor:
    r"""The same as ``attention``, but with three kernels: one in forward and two in backward.

    .. math:: O = \operatorname{softmax}(s\,Q K^\top)\,V

    For CUDA tensors, the kernels run in Triton. If ``TRITON_INTERPRET`` was 1 when Triton was imported, they run in
    Triton's interpreter, for all tensors. Otherwise, and for rows wider than 128, the function uses PyTorch's
    operations, one tile at a time. ``backend(device)`` says which code runs. Matrix products have factors in the dtype
    of the arguments, and sums in float32 or wider, without TF32. PyTorch's operations compute the second derivative. A
    third derivative raises.

    Args:
        query: ``(..., queries, width)``, real floating dtype.
        key: ``(..., keys, width)``, same dtype.
        value: ``(..., keys, features)``, same dtype. Leading dimensions broadcast.
        causal: whether query i sees only the keys 0 to i.
        scale: the factor :math:`s` of the scores. None means 1/√width.

    Returns:
        ``(..., queries, features)``, in the dtype of the arguments; under autocast, in the dtype of autocast.

    Raises:
        RuntimeError: if shapes, dtypes or devices do not fit.
        TypeError: if ``query`` is not of a real floating dtype.

    Source: T. Dao, FlashAttention-2, arXiv:2307.08691, algorithms 1 and 2.

    >>> import torch
    >>> q, k, v = torch.zeros(2, 1), torch.ones(2, 1), torch.tensor([[2.0], [4.0]])
    >>> triton_attention(q, k, v, causal=True).flatten()
    tensor([2., 3.])
    """
    batch, tensors = prepared(query, key, value)
    scale = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    output, _ = TritonAttentionFunction.apply(*tensors, causal, scale)
    return output.reshape(*batch, *output.shape[1:])
