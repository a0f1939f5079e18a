"""Distributions with exact zeros: sparsemax and entmax with alpha 1.5."""

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.cross_entropy import accumulation_dtype


def below_maximum(input: Tensor, dim: int, scale: float) -> tuple[Tensor, Tensor]:
    """Return ``scale * (input - maximum of the row)``, at least -1, and a mask of the rows that contain only ``-inf``.

    An entry at -1 is never in the support. With this limit, the terms of later sums have similar sizes and are finite.
    """
    wide = input.to(accumulation_dtype(input.dtype))
    top = wide.amax(dim, keepdim=True)
    # inf - inf is NaN, so replace infinities by the largest finite number.
    largest = torch.finfo(wide.dtype).max
    distance = wide.clamp(-largest, largest) - top.clamp(-largest, largest)
    return distance.mul_(scale).clamp_min_(-1), top == -torch.inf


def ranks(input: Tensor, dim: int) -> Tensor:
    """Return the numbers 1, 2, ... along a dimension, in a shape that broadcasts with the input."""
    size = input.shape[dim] if input.dim() else 1
    return torch.arange(1, size + 1, dtype=input.dtype, device=input.device).reshape(
        [-1 if d == dim % max(input.dim(), 1) else 1 for d in range(input.dim())]
    )


class SparsemaxFunction(Function):
    """Keeps the output. The gradient depends only on the support, where the output is not 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, dim: int) -> Tensor:
        if input.numel() == 0:
            return input.clone()  # an empty row has no maximum
        z, masked = below_maximum(input, dim, 1.0)
        descending = z.sort(dim, descending=True).values
        total, k = descending.cumsum(dim), ranks(z, dim)
        size = (1 + k * descending > total).sum(dim, keepdim=True).clamp(min=1)
        threshold = (total.gather(dim, size - 1) - 1) / size
        return (z - threshold).clamp_min_(0).masked_fill_(masked, 0).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, int], output: Tensor) -> None:
        ctx.dim = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        support = output > 0
        # Use where instead of a product, because the gradient can be infinite where the probability is 0. Compute in
        # float32 or wider: in half precision, the sum can overflow, and a rounded mean leaves few digits.
        inside = torch.where(support, grad_output, 0.0).to(accumulation_dtype(grad_output.dtype))
        mean = inside.sum(ctx.dim, keepdim=True) / support.sum(ctx.dim, keepdim=True).clamp(min=1)
        return torch.where(support, inside - mean, 0.0).to(grad_output.dtype), None


def sparsemax(input: Tensor, dim: int = -1) -> Tensor:
    r"""Projection onto the probability simplex: like softmax, but with exact zeros.

    .. math::
        p = \operatorname*{argmin}_{p \ge 0,\ \sum_i p_i = 1} \lVert p - x \rVert^2 = \max(x - \tau, 0), \qquad
        \bar{x}_i = [p_i > 0] \Big(\bar{p}_i - \frac{1}{|S|} \sum_{j \in S} \bar{p}_j\Big), \quad S = \{j : p_j > 0\}

    The threshold :math:`\tau` is computed exactly from a sort. An entry of :math:`-\infty` has probability 0. A row
    that contains only :math:`-\infty` is 0, with gradient 0. Entries of :math:`+\infty` share the probability of their
    row. The second derivative is 0 except at the points where the support :math:`S` changes.

    Args:
        input: any shape, floating dtype. The function sums in float32 or wider.
        dim: an int, which may be negative.

    Raises:
        IndexError: if the dimension is out of range.
        TypeError: if the input is not floating.

    Source: Martins, Astudillo, From Softmax to Sparsemax, 2016, algorithm 1 and equation 14.

    >>> x = torch.tensor([1.0, 0.5, -1.0], requires_grad=True)
    >>> p = sparsemax(x)
    >>> p[0].backward()
    >>> p.tolist(), x.grad.tolist()
    ([0.75, 0.25, 0.0], [0.5, -0.5, 0.0])
    """
    if not input.is_floating_point():
        raise TypeError(f"expected a floating input, got {input.dtype}")
    return SparsemaxFunction.apply(input, dim)


class Entmax15Function(Function):
    """Keeps the output. Backward needs its square root, the slope of each entry."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, dim: int) -> Tensor:
        if input.numel() == 0:
            return input.clone()
        z, masked = below_maximum(input, dim, 0.5)
        descending = z.sort(dim, descending=True).values
        k = ranks(z, dim)
        mean, square = descending.cumsum(dim).div_(k), descending.square().cumsum(dim).div_(k)
        # For each size of the support, compute the root of a quadratic equation. If no root is real, the result is NaN,
        # and the comparisons with NaN below are False.
        root = mean - mean.square().sub_(square).add_(1 / k).sqrt_()
        size = ((root <= descending) & (descending > -1)).sum(dim, keepdim=True).clamp(min=1)
        threshold = root.gather(dim, size - 1)
        # One step of Newton's method corrects the rounding error from the difference of the two means.
        excess = (z - threshold).clamp_min_(0)
        threshold = threshold + (excess.square().sum(dim, keepdim=True) - 1) / (2 * excess.sum(dim, keepdim=True))
        return (z - threshold).clamp_min_(0).pow_(2).masked_fill_(masked, 0).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, int], output: Tensor) -> None:
        ctx.dim = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        support = output > 0
        # Take the root of 1 instead of 0. At 0 the slope of the root is infinite, and a second derivative would
        # multiply this slope by 0.
        wide = accumulation_dtype(output.dtype)  # as in the backward of sparsemax
        root = torch.where(support, torch.where(support, output, 1.0).to(wide).sqrt(), 0.0)
        inside = torch.where(support, grad_output, 0.0).to(wide)
        total = root.sum(ctx.dim, keepdim=True)
        mean = (root * inside).sum(ctx.dim, keepdim=True) / (total + (total == 0))
        return (root * (inside - mean)).to(output.dtype), None


def entmax15(input: Tensor, dim: int = -1) -> Tensor:
    r"""Entmax with :math:`\alpha = 1.5`, which has a continuous gradient and exact zeros.

    .. math::
        p_i = \max\Big(\frac{x_i}{2} - \tau, 0\Big)^2, \quad \sum_i p_i = 1, \qquad
        \bar{x}_i = s_i \Big(\bar{p}_i - \frac{\sum_j s_j \bar{p}_j}{\sum_j s_j}\Big), \quad s_i = \sqrt{p_i}

    The threshold :math:`\tau` is computed exactly from a sort. An entry of :math:`-\infty` has probability 0. A row
    that contains only :math:`-\infty` is 0, with gradient 0. Entries of :math:`+\infty` share the probability of their
    row. The second derivative is computed from the rounded output. Compute it in float32 or wider, because in bfloat16
    it can be completely wrong.

    Args:
        input: any shape, floating dtype. The function sums in float32 or wider.
        dim: an int, which may be negative.

    Raises:
        IndexError: if the dimension is out of range.
        TypeError: if the input is not floating.

    Source: Peters, Niculae, Martins, Sparse Sequence-to-Sequence Models, 2019, algorithm 2 and proposition 2.

    >>> entmax15(torch.tensor([1.0, 0.5, -1.0]))
    tensor([0.6740, 0.3260, 0.0000])
    """
    if not input.is_floating_point():
        raise TypeError(f"expected a floating input, got {input.dtype}")
    return Entmax15Function.apply(input, dim)
