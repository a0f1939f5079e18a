r"""Operators between the ranks of a process group, each with its backward.

A tensor is *replicated* if every rank has the same tensor. Then its gradient is replicated, too. All other tensors
*vary* from rank to rank. An operator converts one kind of tensor into the other kind, and its backward converts back.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from autograd_cookbook.recipes._collectives import all_reduced, even_sizes, gathered, own_part, ranks_in, sizes_of_ranks
from autograd_cookbook.recipes._context import Context


class CopyToRanks(Function):
    """Converts a replicated tensor to a varying one: each rank continues with its own copy. Keeps nothing."""

    @staticmethod
    def forward(input: Tensor, group: "dist.ProcessGroup | None") -> Tensor:
        return input.view_as(input)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.group = inputs[1]

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        return ReduceFromRanks.apply(grad_output, ctx.group), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], input: Tensor, group: Any) -> tuple[Tensor, int | None]:
        return CopyToRanks.apply(input, group), in_dims[0]


class ReduceFromRanks(Function):
    """Converts a varying tensor to a replicated one, by a sum over the ranks. Keeps nothing."""

    @staticmethod
    def forward(input: Tensor, group: "dist.ProcessGroup | None") -> Tensor:
        return all_reduced(input, group)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.group = inputs[1]

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        return CopyToRanks.apply(grad_output, ctx.group), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], input: Tensor, group: Any) -> tuple[Tensor, int | None]:
        return ReduceFromRanks.apply(input, group), in_dims[0]


def copy_to_ranks(input: Tensor, group: "dist.ProcessGroup | None" = None) -> Tensor:
    r"""Start a part of the computation that differs from rank to rank, with a tensor that all ranks have.

    .. math:: y_r = x, \qquad \bar{x} = \textstyle\sum_r \bar{y}_r

    Every rank must call such functions in the same order, and run their backwards in the same order.

    Args:
        input: any shape, floating or complex; the same on every rank.
        group: the group of ranks; None for all ranks.

    Returns:
        A view of ``input``. torch raises if you modify the view in place.

    Raises:
        ValueError: if there is no process group.

    Source: M. Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3, where it is called f.

    >>> from autograd_cookbook.recipes.data_parallel import run_ranks
    >>> def gradient():
    ...     import torch
    ...     import torch.distributed as dist
    ...     from autograd_cookbook.recipes.tensor_parallel import copy_to_ranks
    ...
    ...     x = torch.tensor(1.0, requires_grad=True)
    ...     (copy_to_ranks(x) * 10 ** dist.get_rank()).backward()
    ...     return x.grad.item()
    >>> run_ranks(gradient, 2)
    [11.0, 11.0]
    """
    ranks_in(group)  # so that a missing group raises here, and not in backward
    return CopyToRanks.apply(input, group)


def reduce_from_ranks(input: Tensor, group: "dist.ProcessGroup | None" = None) -> Tensor:
    r"""End a part of the computation that differs from rank to rank, with the sum over the ranks.

    .. math:: y = \textstyle\sum_r x_r, \qquad \bar{x}_r = \bar{y}

    The computation that follows must be the same on every rank. Then each rank has the whole :math:`\bar{y}`, and
    backward sends nothing.

    Args:
        input: any floating or complex dtype, the same shape on all ranks.
        group: the group of ranks; None for all ranks.

    Returns:
        A tensor like ``input``, the same on every rank.

    Raises:
        ValueError: if there is no process group.

    Source: M. Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3, where it is called g.
    """
    ranks_in(group)
    return ReduceFromRanks.apply(input, group)


class GatherFromRanks(Function):
    """Converts a varying tensor to a replicated one: joins the parts of all ranks. Keeps no tensor."""

    @staticmethod
    def forward(input: Tensor, dim: int, sizes: tuple[int, ...], group: "dist.ProcessGroup | None") -> Tensor:
        return gathered(input, dim, sizes, group)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, *ctx.how = inputs

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return ScatterToRanks.apply(grad_output, *ctx.how), None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, None, None, None], input: Tensor, dim: int, *how: Any
    ) -> tuple[Tensor, int]:
        return GatherFromRanks.apply(input.movedim(in_dims[0], 0), dim + 1, *how), 0


class ScatterToRanks(Function):
    """Converts a replicated tensor to a varying one: each rank takes its part. Keeps no tensor."""

    @staticmethod
    def forward(input: Tensor, dim: int, sizes: tuple[int, ...], group: "dist.ProcessGroup | None") -> Tensor:
        return own_part(input, dim, sizes, group)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, *ctx.how = inputs

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return GatherFromRanks.apply(grad_output, *ctx.how), None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, None, None, None], input: Tensor, dim: int, *how: Any
    ) -> tuple[Tensor, int]:
        return ScatterToRanks.apply(input.movedim(in_dims[0], 0), dim + 1, *how), 0


def gather_from_ranks(
    input: Tensor, dim: int = -1, group: "dist.ProcessGroup | None" = None, sizes: Sequence[int] | None = None
) -> Tensor:
    r"""Join the parts of all ranks, for a computation that is the same on every rank.

    .. math:: y = [x_0, x_1, \dots], \qquad \bar{x}_r = \text{part } r \text{ of } \bar{y}

    Each rank has the whole :math:`\bar{y}` and takes its part of it, so backward sends nothing. In two cases, use
    :func:`.all_gather` instead. If the ranks continue in different ways, each rank has its own :math:`\bar{y}`, and the
    gradient of this function would be wrong. Under DDP, the gradient would be too small by the number of ranks,
    even if all ranks compute the same loss, because DDP averages over the ranks.

    Args:
        input: at least one dimension. The tensors of the ranks may differ only in the length of ``dim``.
        dim: the dimension along which the function joins the parts.
        group: the group of ranks; None for all ranks.
        sizes: the length of ``dim`` on each rank. If None, the ranks exchange their lengths first. This exchange waits
            for the GPU, and does not work inside of :func:`torch.func.vmap` and similar transforms.

    Returns:
        A tensor like ``input``. Its length in ``dim`` is the length of all parts together.

    Raises:
        IndexError: if there is no such dimension.
        RuntimeError: if the tensors of two ranks do not fit.
        ValueError: if there is no process group, or ``sizes`` are not those of the ranks.

    >>> from autograd_cookbook.recipes.data_parallel import run_ranks
    >>> def gradients():
    ...     import torch
    ...     from autograd_cookbook.recipes.data_parallel import all_gather
    ...     from autograd_cookbook.recipes.tensor_parallel import gather_from_ranks
    ...
    ...     x = torch.tensor([3.0], requires_grad=True)
    ...     loss = gather_from_ranks(x).square().sum() / 2  # the same on both ranks, counted once
    ...     once = torch.autograd.grad(loss, x)[0].item()
    ...     loss = all_gather(x).square().sum() / 2  # each rank has its own loss
    ...     return once, torch.autograd.grad(loss, x)[0].item()
    >>> run_ranks(gradients, 2)
    [(3.0, 6.0), (3.0, 6.0)]
    """
    sizes = sizes_of_ranks(input, dim, group, sizes)
    return GatherFromRanks.apply(input, dim % input.dim(), sizes, group)


def scatter_to_ranks(input: Tensor, dim: int = -1, group: "dist.ProcessGroup | None" = None) -> Tensor:
    r"""Take this rank's part of a tensor that all ranks have.

    .. math:: y_r = \text{part } r \text{ of } x, \qquad \bar{x} = [\bar{y}_0, \bar{y}_1, \dots]

    Args:
        input: at least one dimension; the same on every rank.
        dim: the dimension to split, as :func:`torch.tensor_split` does. If necessary, the first parts are one longer.
        group: the group of ranks; None for all ranks.

    Returns:
        The part, in new memory.

    Raises:
        IndexError: if there is no such dimension.
        ValueError: if there is no process group.
    """
    sizes = even_sizes(input.size(dim), group)
    return ScatterToRanks.apply(input, dim % input.dim(), sizes, group)


def column_parallel_linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, group: "dist.ProcessGroup | None" = None
) -> Tensor:
    r"""A linear layer whose outputs are split over the ranks: each rank has some columns of :math:`W^\top`.

    .. math::
        Y_r = X W_r^\top + b_r, \qquad
        \bar{X} = \textstyle\sum_r \bar{Y}_r W_r, \quad \bar{W}_r = \bar{Y}_r^\top X, \quad
        \bar{b}_r = \textstyle\sum_n \bar{Y}_{r,n}

    Forward sends nothing. Backward sends as many numbers as ``input`` has.

    Args:
        input: ``(..., in_features)``, the same on every rank.
        weight: ``(features of this rank, in_features)``.
        bias: ``(features of this rank,)`` or None.
        group: the group of ranks; None for all ranks.

    Returns:
        ``(..., features of this rank)``, an input for :func:`row_parallel_linear` or :func:`gather_from_ranks`.

    Raises:
        RuntimeError: if shapes or dtypes do not fit, as in :func:`torch.nn.functional.linear`.
        ValueError: if there is no process group.

    Source: M. Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3.

    >>> from autograd_cookbook.recipes.data_parallel import run_ranks
    >>> def two_layers():
    ...     import torch
    ...     from autograd_cookbook.recipes.tensor_parallel import column_parallel_linear, row_parallel_linear
    ...
    ...     x = torch.ones(1, 2, requires_grad=True)
    ...     half = torch.ones(3, 2)  # three of the six hidden units
    ...     y = row_parallel_linear(column_parallel_linear(x, half), half.mT)
    ...     y.sum().backward()
    ...     return y.tolist(), x.grad.tolist()
    >>> run_ranks(two_layers, 2)[0]
    ([[12.0, 12.0]], [[12.0, 12.0]])
    """
    return F.linear(copy_to_ranks(input, group), weight, bias)


def row_parallel_linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, group: "dist.ProcessGroup | None" = None
) -> Tensor:
    r"""A linear layer whose inputs are split over the ranks: each rank has some rows of :math:`W^\top`.

    .. math::
        Y = \textstyle\sum_r X_r W_r^\top + b, \qquad
        \bar{X}_r = \bar{Y} W_r, \quad \bar{W}_r = \bar{Y}^\top X_r, \quad \bar{b} = \textstyle\sum_n \bar{Y}_n

    Forward sends as many numbers as the output has. Backward sends nothing.

    Args:
        input: ``(..., features of this rank)``, from :func:`column_parallel_linear` or :func:`scatter_to_ranks`.
        weight: ``(out_features, features of this rank)``.
        bias: ``(out_features,)`` or None; the same on every rank, and added once.
        group: the group of ranks; None for all ranks.

    Returns:
        ``(..., out_features)``, the same on every rank.

    Raises:
        RuntimeError: if shapes or dtypes do not fit, as in :func:`torch.nn.functional.linear`.
        ValueError: if there is no process group.

    Source: M. Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3.
    """
    output = reduce_from_ranks(F.linear(input, weight), group)
    return output if bias is None else output + bias


def among(target: Tensor, first: int, classes: int) -> tuple[Tensor, Tensor]:
    """Return whether each target is a class of this rank, and its column. Other targets get any valid column."""
    inside = (target >= first) & (target < first + classes)
    return inside, (target - first).clamp(0, classes - 1)


class VocabParallelCrossEntropyFunction(Function):
    """Keeps its arguments and two numbers per token. From these, each rank computes its probabilities."""

    @staticmethod
    def forward(
        input: Tensor, target: Tensor, sizes: tuple[int, ...], ignore_index: int, group: "dist.ProcessGroup | None"
    ) -> tuple[Tensor, Tensor, Tensor]:
        ignored = target == ignore_index
        classes = target.masked_fill(ignored, 0)
        try:
            input.new_empty(1).expand(sum(sizes)).index_select(0, classes.flatten())
        except IndexError:
            raise IndexError(
                f"expected targets from 0 to {sum(sizes) - 1} or {ignore_index}, got {classes.min()} to {classes.max()}"
            ) from None
        logits = input.to(torch.promote_types(input.dtype, torch.float32))
        largest = logits.amax(-1)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        inside, column = among(classes, sum(sizes[: dist.get_rank(group)]), input.size(-1))
        chosen = logits.gather(-1, column.unsqueeze(-1)).squeeze(-1).masked_fill(~inside, 0)
        # Send the sum of exponentials and the logit of the target together.
        sums = torch.stack([logits.sub(largest.unsqueeze(-1)).exp_().sum(-1), chosen])
        dist.all_reduce(sums, group=group)
        # Keep two numbers, because their sum would be rounded. At 100, the rounding error is up to 4e-6, and every
        # probability would have this error.
        excess = sums[0].log()
        return (excess + (largest - sums[1])).masked_fill(ignored, 0), excess, largest

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        input, target, ctx.sizes, ctx.ignore_index, ctx.group = inputs
        ctx.mark_non_differentiable(output[2])  # its changes cancel in the loss
        ctx.save_for_backward(input, target, *output[1:])

    @staticmethod
    def backward(ctx: Context, grad_loss: Tensor, grad_excess: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        input, target, excess, largest = ctx.saved_tensors
        # Here, replicated tensors are combined with the logits of one rank. So in a second derivative, the gradients of
        # the replicated tensors are sums over the ranks.
        shared = torch.stack([excess, grad_loss.masked_fill(target == ctx.ignore_index, 0), grad_excess])
        excess, grad_loss, grad_excess = CopyToRanks.apply(shared, ctx.group)
        probability = (input.to(shared.dtype) - largest.unsqueeze(-1) - excess.unsqueeze(-1)).exp()
        grad = probability * (grad_loss + grad_excess).unsqueeze(-1)
        inside, column = among(target, sum(ctx.sizes[: dist.get_rank(ctx.group)]), input.size(-1))
        of_target = (grad_loss * inside).unsqueeze(-1)
        return grad.scatter_add(-1, column.unsqueeze(-1), -of_target).to(input.dtype), None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], input: Tensor, target: Tensor, *rest: Any
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, int, int]]:
        """The batch is one more dimension of tokens."""

        def batch(tensor: Tensor, dim: int | None) -> Tensor:
            return tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)

        tensors = batch(input, in_dims[0]), batch(target, in_dims[1])
        return VocabParallelCrossEntropyFunction.apply(*tensors, *rest), (0, 0, 0)


def vocab_parallel_cross_entropy(
    input: Tensor,
    target: Tensor,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean",
    group: "dist.ProcessGroup | None" = None,
    sizes: Sequence[int] | None = None,
) -> Tensor:
    r"""Cross-entropy of logits whose classes are split over the ranks. No rank gathers all logits.

    .. math::
        \ell_n = m_n + \log \textstyle\sum_r \sum_{v \in r} e^{z_{nv} - m_n} - z_{n t_n}, \qquad
        \bar{z}_{nv} = \bar{\ell}_n \left( e^{z_{nv} - \operatorname{lse}_n} - [v = t_n] \right)

    where :math:`\operatorname{lse}_n` is the log-sum-exp of the logits of all ranks. Forward sends three numbers per
    token: the largest logit :math:`m_n`, the sum, and the logit of the target. Backward sends nothing. The function
    saves two numbers per token in addition to its arguments. Every rank gets the same loss, and its gradient counts the
    loss once, not once per rank.

    Args:
        input: ``(..., classes of this rank)``, real floating dtype. Rank 0 has the first classes, and so on. The ranks
            can have different numbers of classes. float16 and bfloat16 are summed in float32.
        target: ``(...)``, int64, the same on every rank. A target is a class of any rank, or ``ignore_index``.
        ignore_index: the target of tokens that are ignored.
        reduction: "sum", "none" or "mean". The mean is over the tokens that are not ignored. It is NaN if all tokens
            are ignored.
        group: the group of ranks; None for all ranks.
        sizes: the number of classes on each rank. If None, the ranks exchange these numbers first. This exchange waits
            for the GPU, and does not work inside of :func:`torch.func.vmap` and similar transforms.

    Returns:
        A scalar, or the shape of ``target`` for "none". The dtype is that of ``input``, or float32 under autocast.

    Raises:
        IndexError: if a target is not a class. On a GPU, this is a device-side assertion instead.
        RuntimeError: if ``target`` is not int64, or the logits of two ranks do not fit.
        TypeError: if ``input`` is not of a real floating dtype.
        ValueError: if ``reduction`` is unknown, the shape of ``target`` does not fit, a rank has no class, ``sizes``
            are not those of the ranks, or there is no process group.

    Source: M. Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3, for the idea. The choice of kept tensors and
    the second derivative are our own.

    >>> from autograd_cookbook.recipes.data_parallel import run_ranks
    >>> def loss_and_gradient():
    ...     import torch
    ...     from autograd_cookbook.recipes.tensor_parallel import vocab_parallel_cross_entropy
    ...
    ...     half = torch.zeros(1, 2, requires_grad=True)  # two of the four classes
    ...     loss = vocab_parallel_cross_entropy(half, torch.tensor([2]))
    ...     loss.backward()
    ...     return round(loss.item(), 4), half.grad.tolist()
    >>> run_ranks(loss_and_gradient, 2)
    [(1.3863, [[0.25, 0.25]]), (1.3863, [[-0.75, 0.25]])]
    """
    if not input.is_floating_point():
        raise TypeError(f"expected input of a real floating dtype, got {input.dtype}")
    if target.dtype is not torch.int64:
        raise RuntimeError(f"expected target of dtype torch.int64, got {target.dtype}")
    if target.shape != input.shape[:-1]:
        raise ValueError(f"expected target of shape {tuple(input.shape[:-1])}, got {tuple(target.shape)}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"expected reduction 'mean', 'sum' or 'none', got {reduction!r}")
    sizes = sizes_of_ranks(input, -1, group, sizes)
    if 0 in sizes:
        raise ValueError(f"expected a class or more on each rank, got {sizes}")
    low = torch.is_autocast_enabled(input.device.type) and input.dtype is not torch.float64
    result = torch.float32 if low else input.dtype
    losses, *_ = VocabParallelCrossEntropyFunction.apply(input, target, sizes, ignore_index, group)
    if reduction == "none":
        return losses.to(result)
    total = losses.sum()
    return (total if reduction == "sum" else total / (target != ignore_index).sum()).to(result)
