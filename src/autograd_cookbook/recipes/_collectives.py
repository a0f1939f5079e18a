"""Collective operations of ``torch.distributed`` without a gradient, which the recipes for several ranks use."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F


def ranks_in(group: "dist.ProcessGroup | None") -> int:
    """Return the number of ranks. PyTorch raises if there is no process group."""
    size = dist.get_world_size(group)
    if size < 1:  # this rank is not in the group, so collectives would do nothing
        raise ValueError(f"expected a rank of the group, got rank {dist.get_rank()}, which is not in it")
    return size


def all_reduced(tensor: Tensor, group: "dist.ProcessGroup | None") -> Tensor:
    """Return the sum over all ranks, in a new tensor."""
    result = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(result, group=group)
    return result


def even_sizes(size: int, group: "dist.ProcessGroup | None") -> tuple[int, ...]:
    """Return the lengths of the parts if the ranks share a dimension. If necessary, the first parts are one longer."""
    ranks = ranks_in(group)
    return tuple((size + ranks - 1 - rank) // ranks for rank in range(ranks))


def sizes_of_ranks(
    input: Tensor, dim: int, group: "dist.ProcessGroup | None", sizes: Sequence[int] | None
) -> tuple[int, ...]:
    """Return the length of a dimension on each rank. Without ``sizes``, the ranks exchange their lengths.

    Raises:
        ValueError: if ``sizes`` does not fit the ranks.
        RuntimeError: if the tensors of the ranks differ in another dimension or in the dtype.
    """
    ranks, size, others = ranks_in(group), input.size(dim), list(input.shape)
    if sizes is not None:
        if len(sizes) != ranks or sizes[dist.get_rank(group)] != size:
            raise ValueError(
                f"expected a size for each of {ranks} ranks, {size} for rank {dist.get_rank(group)}, got {sizes}"
            )
        return tuple(sizes)
    del others[dim]
    found: list[Any] = [None] * ranks
    dist.all_gather_object(found, (str(input.dtype), tuple(input.shape), others, size), group=group)
    if any(theirs != others or dtype != found[0][0] for dtype, _, theirs, _ in found):
        listed = ", ".join(f"{shape} of {dtype}" for dtype, shape, _, _ in found)
        raise RuntimeError(f"expected tensors that differ in dimension {dim} alone, got from rank to rank {listed}")
    return tuple(size for *_, size in found)


def gathered(input: Tensor, dim: int, sizes: tuple[int, ...], group: "dist.ProcessGroup | None") -> Tensor:
    """Return the parts of all ranks, joined along a dimension."""
    # Pad first, because not every backend gathers parts of different lengths.
    missing = max(sizes) - input.size(dim)
    padding = [0, 0] * (input.dim() - 1 - dim) + [0, missing]
    padded = F.pad(input, padding).contiguous()
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part.narrow(dim, 0, size) for part, size in zip(parts, sizes, strict=True)], dim)


def own_part(input: Tensor, dim: int, sizes: tuple[int, ...], group: "dist.ProcessGroup | None") -> Tensor:
    """Return this rank's part of a tensor, in new memory."""
    return input.split(sizes, dim)[dist.get_rank(group)].clone(memory_format=torch.contiguous_format)
