"""Choices with a gradient: one of several, the k largest, and ranks."""

import math
from typing import Any

import torch
from torch import Generator, Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._opaque import opaque
from autograd_cookbook.recipes.cross_entropy import accumulation_dtype
from autograd_cookbook.recipes.per_sample_gradients import pool_violators


def require_positive(name: str, value: float) -> None:
    """Refuse a temperature or a strength that is not positive and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"expected a finite {name} > 0, got {value}")


def require_floating(input: Tensor) -> None:
    """Refuse complex numbers, which have no order, and integers, which have no gradient."""
    if not input.is_floating_point():
        raise TypeError(f"expected a real floating input, got {input.dtype}")


class OneHotFunction(Function):
    """Keeps the input. Backward computes a softmax of the input, and returns the gradient of this softmax."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, dim: int, temperature: float) -> Tensor:
        return torch.zeros_like(input).scatter(dim, input.argmax(dim, keepdim=True), 1)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, int, float], output: Tensor) -> None:
        input, ctx.dim, ctx.temperature = inputs
        ctx.save_for_backward(input)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        (input,) = ctx.saved_tensors
        if input.numel() == 0:
            return grad_output, None, None
        wide = input.to(accumulation_dtype(input.dtype))
        # Subtract the largest entry, so that no quotient overflows. This shift does not change the softmax.
        p = ((wide - wide.amax(ctx.dim, keepdim=True).detach()) / ctx.temperature).softmax(ctx.dim)
        mean = (p * grad_output).sum(ctx.dim, keepdim=True)
        return (p * (grad_output - mean) / ctx.temperature).to(grad_output.dtype), None, None


def one_hot_ste(input: Tensor, dim: int = -1, temperature: float = 1.0) -> Tensor:
    r"""One-hot vector of the largest entry, with the gradient of a softmax.

    .. math::
        y_i = [i = \operatorname{argmax}_j x_j], \qquad
        \bar{x}_i = \frac{p_i}{T} \Big(\bar{y}_i - \sum_j p_j \bar{y}_j\Big), \quad p = \operatorname{softmax}(x / T)

    If you pass ``input + gumbel_like(input)``, the result is a random sample from ``softmax(input)``, and the gradient
    is that of the straight-through Gumbel-softmax.

    Args:
        input: any shape, real floating dtype. If several entries are largest, :func:`torch.argmax` selects one of them.
        dim: an int, which may be negative.
        temperature: :math:`T > 0`, which is used only in the gradient.

    Raises:
        IndexError: if the dimension is out of range, or has no entries.
        TypeError: if the input is not real and floating.
        ValueError: if the temperature is not positive and finite.

    Source: E. Jang et al., Categorical reparameterization with Gumbel-softmax, arXiv:1611.01144, section 2.2.

    >>> x = torch.tensor([2.0, 1.0, -1.0], requires_grad=True)
    >>> y = one_hot_ste(x)
    >>> y[1].backward()
    >>> y.tolist(), x.grad
    ([1.0, 0.0, 0.0], tensor([-0.1830,  0.1922, -0.0091]))
    """
    require_floating(input)
    require_positive("temperature", temperature)
    return OneHotFunction.apply(input, dim, temperature)


def gumbel_like(input: Tensor, generator: Generator | None = None) -> Tensor:
    r"""Gumbel noise. The index of the largest entry of ``input + noise`` is a random sample from ``softmax(input)``.

    .. math:: -\log E, \qquad E \sim \operatorname{Exponential}(1)

    The dtype of the noise is float32 or wider, and so is the dtype of the sum. In bfloat16, many sums would be equal,
    and the first of them would be selected too often.

    Args:
        input: any shape, real floating dtype.
        generator: the generator of the random numbers; torch's global generator if None.

    >>> gumbel_like(torch.zeros(2, 3, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    noise = torch.empty_like(input, dtype=accumulation_dtype(input.dtype), requires_grad=False)
    return noise.exponential_(generator=generator).clamp_(min=torch.finfo(noise.dtype).tiny).log_().neg_()


def largest(input: Tensor, k: int, dim: int) -> Tensor:
    """Return 1 at the k largest entries and 0 elsewhere."""
    if input.dim() == 0:
        return torch.full_like(input, float(k))
    return torch.zeros_like(input).scatter(dim, input.topk(k, dim).indices, 1)


def capped(input: Tensor, k: int, dim: int, strength: float) -> tuple[Tensor, Tensor]:
    """Return the vector in [0, 1] with sum k nearest to ``input / strength``, and a mask of its entries in (0, 1)."""
    if input.numel() == 0 or k in (0, input.shape[dim] if input.dim() else 1):
        return torch.full_like(input, float(k > 0)), torch.zeros_like(input, dtype=torch.bool)
    wide = input.to(accumulation_dtype(input.dtype))
    finite = torch.finfo(wide.dtype).max
    wide = wide.clamp(-finite, finite)  # because inf - inf would be NaN
    # Now the k-th largest entry is 0, and the threshold is between -2 and 0. Entries that the clamp changes become 0 or
    # 1 in the result.
    z = ((wide - wide.topk(k, dim).values.narrow(dim, k - 1, 1)) / strength).clamp(-2, 1)
    # The result is clamp(z - threshold, 0, 1). While the threshold falls, an entry of the result starts to grow when
    # the threshold is z, and reaches 1 when the threshold is z - 1.
    falls, place = torch.cat([z, z - 1], dim).sort(dim=dim, descending=True, stable=True)
    growing = torch.where(place < z.shape[dim], 1, -1).cumsum(dim).narrow(dim, 0, 2 * z.shape[dim] - 1)
    total = (growing * -falls.diff(dim=dim)).cumsum(dim)
    # The sum reaches k in the segment that ends at the first breakpoint with a sum of k or more.
    last = (total < k).sum(dim, keepdim=True).clamp(max=total.shape[dim] - 1)
    excess = total.gather(dim, last) - k
    threshold = falls.gather(dim, last + 1) + excess / growing.gather(dim, last).clamp(min=1)
    # The sums above have rounding errors from all entries. Correct the threshold with sums over the inner entries only.
    for _ in range(2):
        p = z - threshold
        inside = (p > 0) & (p < 1)
        excess = torch.where(inside, p, 0).sum(dim, keepdim=True) + ((p >= 1).sum(dim, keepdim=True) - k)
        threshold = threshold + excess / inside.sum(dim, keepdim=True).clamp(min=1)
    p = z - threshold
    return p.clamp(0, 1).to(input.dtype), (p > 0) & (p < 1)


def centered(grad_output: Tensor, inside: Tensor, dim: int, strength: float) -> Tensor:
    """Return the gradient of :func:`capped`. Entries between 0 and 1 can change, but their sum is fixed."""
    wide = grad_output.to(accumulation_dtype(grad_output.dtype))
    mean = torch.where(inside, wide, 0).sum(dim, keepdim=True) / inside.sum(dim, keepdim=True).clamp(min=1)
    return torch.where(inside, (wide - mean) / strength, 0).to(grad_output.dtype)


class SoftTopKFunction(Function):
    """Keeps one byte per element, which tells whether the element is strictly between 0 and 1."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, k: int, dim: int, strength: float) -> tuple[Tensor, Tensor]:
        return capped(input, k, dim, strength)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, _, ctx.dim, ctx.strength = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        (inside,) = ctx.saved_tensors
        return centered(grad_output, inside, ctx.dim, ctx.strength), None, None, None


def require_k(input: Tensor, k: int, dim: int) -> None:
    """Refuse a ``k`` that is larger than the number of entries, as :func:`torch.topk` does."""
    size = input.shape[dim] if input.dim() else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"expected 0 <= k <= {size}, the size of dim {dim}, got k = {k}")


def soft_top_k(input: Tensor, k: int, dim: int = -1, strength: float = 1.0) -> Tensor:
    r"""Soft mask of the k largest entries: numbers between 0 and 1 whose sum is k.

    .. math::
        y = \operatorname*{argmin}_{0 \le y \le 1,\ \sum_i y_i = k} \lVert y - x / \epsilon \rVert^2, \qquad
        \bar{x}_i = \frac{[i \in S]}{\epsilon} \Big(\bar{y}_i - \frac{1}{|S|} \sum_{j \in S} \bar{y}_j\Big),
        \quad S = \{j : 0 < y_j < 1\}

    If the k-th largest entry is at least :math:`\epsilon` above the next entry, the result is the hard mask, and its
    gradient is 0. The second derivative is 0 except at the points where :math:`S` changes.

    Args:
        input: any shape, real floating dtype. The function sums in float32 or wider.
        k: how many entries to take, from 0 to all.
        dim: an int, which may be negative.
        strength: the width :math:`\epsilon > 0` of the smoothing, in units of the input.

    Raises:
        IndexError: if the dimension is out of range.
        RuntimeError: if there are fewer than ``k`` entries.
        TypeError: if the input is not real and floating.
        ValueError: if the strength is not positive and finite.

    Source: M. Blondel et al., Fast differentiable sorting and ranking, arXiv:2002.08871, for the projection. The
    recipe uses this projection for a vector of k ones and otherwise zeros. The search along the breakpoints is our own.

    >>> x = torch.tensor([3.0, 1.5, 1.0, -1.0], requires_grad=True)
    >>> y = soft_top_k(x, 2)
    >>> y[1].backward()
    >>> y.tolist(), x.grad.tolist()
    ([1.0, 0.75, 0.25, 0.0], [0.0, 0.5, -0.5, 0.0])
    """
    require_floating(input)
    require_positive("strength", strength)
    require_k(input, k, dim)
    output, _ = SoftTopKFunction.apply(input, k, dim, strength)
    return output


class TopKMaskFunction(SoftTopKFunction):
    """Like :class:`SoftTopKFunction`, with the hard mask in forward."""

    @staticmethod
    def forward(input: Tensor, k: int, dim: int, strength: float | None) -> tuple[Tensor, Tensor]:
        free = input.new_empty(0, dtype=torch.bool) if strength is None else capped(input, k, dim, strength)[1]
        return largest(input, k, dim), free

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        if ctx.strength is None:
            return grad_output, None, None, None
        (inside,) = ctx.saved_tensors
        return centered(grad_output, inside, ctx.dim, ctx.strength), None, None, None


def top_k_mask(input: Tensor, k: int, dim: int = -1, strength: float | None = None) -> Tensor:
    r"""Hard mask: 1 at the k largest entries and 0 elsewhere. The gradient is that of the identity or of a soft mask.

    .. math::
        y_i = [x_i \text{ is among the } k \text{ largest}], \qquad
        \bar{x} = \bar{y} \quad \text{or that of soft_top_k}

    Args:
        input: any shape, real floating dtype. Of equal entries, :func:`torch.topk` selects as many as are needed.
        k: how many entries to take, from 0 to all.
        dim: an int, which may be negative.
        strength: the strength of :func:`soft_top_k` for its gradient, or None for the gradient of the identity.

    Raises:
        IndexError: if the dimension is out of range.
        RuntimeError: if there are fewer than ``k`` entries.
        TypeError: if the input is not real and floating.
        ValueError: if the strength is neither None nor positive and finite.

    Source: Y. Bengio et al., arXiv:1308.3432, for the gradient of the identity.

    >>> x = torch.tensor([3.0, 1.5, 1.0, -1.0], requires_grad=True)
    >>> for strength in (None, 1.0):
    ...     y = top_k_mask(x, 2, strength=strength)
    ...     print(y.tolist(), torch.autograd.grad(y[1], x)[0].tolist())
    [1.0, 1.0, 0.0, 0.0] [0.0, 1.0, 0.0, 0.0]
    [1.0, 1.0, 0.0, 0.0] [0.0, 0.5, -0.5, 0.0]
    """
    require_floating(input)
    require_k(input, k, dim)
    if strength is not None:
        require_positive("strength", strength)
    output, _ = TopKMaskFunction.apply(input, k, dim, strength)
    return output


def block_means(values: Tensor, block: Tensor) -> Tensor:
    """Return, for each element, the mean over its block."""
    total = torch.zeros_like(values).scatter_add(-1, block, values)
    count = torch.zeros_like(block).scatter_add(-1, block, torch.ones_like(block))
    return total.gather(-1, block) / count.gather(-1, block)


def pooled_ranks(input: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """Return the soft ranks, and the block of each entry."""
    n = input.shape[-1]
    if input.numel() == 0:
        return input.clone(), torch.zeros_like(input, dtype=torch.int32)
    finite = torch.finfo(input.dtype).max
    ascending, order = input.clamp(-finite, finite).double().sort(-1)
    # No block contains a gap of more than n ranks. So limit the gaps to n: then they cannot overflow, and small gaps
    # keep their digits.
    gaps = (ascending.diff(dim=-1) / strength).clamp(max=n)
    z = torch.nn.functional.pad(gaps.cumsum(-1), (1, 0))
    hard = torch.arange(1, n + 1, dtype=z.dtype, device=z.device)
    rows = (z - hard).reshape(-1, n).cpu().numpy()
    starts = torch.stack([torch.from_numpy(pool_violators(row)[1]) for row in rows]).reshape(z.shape)
    block = starts.to(z.device).cumsum(-1) - 1
    ranks = z - block_means(z - hard, block)
    unsorted = torch.empty_like(block).scatter(-1, order, block)
    return torch.empty_like(z).scatter(-1, order, ranks).to(input.dtype), unsorted.int()


def pooled_ranks_like(input: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """Return tensors like the ranks and the blocks, but without values."""
    return input.new_empty(input.shape), input.new_empty(input.shape, dtype=torch.int32)


opaque_ranks = opaque("soft_rank", pooled_ranks, pooled_ranks_like)


class SoftRankFunction(Function):
    """Keeps four bytes per element for the index of its block. Under vmap, it processes the whole batch at once."""

    @staticmethod
    def forward(input: Tensor, strength: float) -> tuple[Tensor, Tensor]:
        return opaque_ranks(input, strength)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float], output: tuple[Tensor, Tensor]) -> None:
        ctx.strength = inputs[1]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor, _: Tensor) -> tuple[Tensor, None]:
        (block,) = ctx.saved_tensors
        wide = grad_output.to(accumulation_dtype(grad_output.dtype))
        return ((wide - block_means(wide, block.long())) / ctx.strength).to(grad_output.dtype), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, None], input: Tensor, strength: float
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        return SoftRankFunction.apply(input.movedim(in_dims[0], 0), strength), (0, 0)


def soft_rank(input: Tensor, strength: float = 1.0) -> Tensor:
    r"""Soft ranks along the last dimension, with rank 1 for the smallest entry. Entries close to others get a gradient.

    .. math::
        y = \operatorname*{argmin}_{y \in P(1, \dots, n)} \lVert y - x / \epsilon \rVert^2, \qquad
        \bar{x}_i = \frac{1}{\epsilon} \Big(\bar{y}_i - \frac{1}{|B_i|} \sum_{j \in B_i} \bar{y}_j\Big)

    where :math:`P` is the convex hull of all orders of the numbers from 1 to n. An isotonic regression computes
    :math:`y`, and :math:`B_i` is the block of entries that it groups with entry :math:`i`. An entry at a distance of
    :math:`\epsilon` or more from all others gets its hard rank and gradient 0. Equal entries get the mean of their
    ranks. The regression runs in NumPy on the CPU, in float64.

    Args:
        input: ``(..., n)``, real floating dtype, not NaN.
        strength: the width :math:`\epsilon > 0` of the smoothing, in units of the input.

    Raises:
        RuntimeError: if the input has no dimension.
        TypeError: if the input is not real and floating.
        ValueError: if the strength is not positive and finite.

    Source: M. Blondel et al., Fast differentiable sorting and ranking, arXiv:2002.08871, propositions 3 and 4. The
    limit for gaps is our own.

    >>> x = torch.tensor([0.2, 3.0, 0.0, 0.2], requires_grad=True)
    >>> y = soft_rank(x)
    >>> y[0].backward()
    >>> y.detach(), x.grad
    (tensor([2.0667, 4.0000, 1.8667, 2.0667]), tensor([ 0.6667,  0.0000, -0.3333, -0.3333]))
    """
    require_floating(input)
    require_positive("strength", strength)
    if input.dim() == 0:
        raise RuntimeError("expected an input with at least one dimension, got a scalar")
    output, _ = SoftRankFunction.apply(input, strength)
    return output
