"""Attention in tiles: outputs, gradients and second derivatives. Only one tile of scores is in memory at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.recipes._opaque import opaque

# The largest number of queries and keys in a tile: smaller tiles take longer, larger ones are no faster.
BLOCK = 512


# Scores in a tile of a large batch: 4 MB in float32.
TILE = 2**20


def blocks(length: int, size: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``size`` positions."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def visible(rows: slice, keys: int, causal: bool, size: int) -> Iterator[slice]:
    """Yield the blocks of keys that at least one of these queries can see."""
    return blocks(min(keys, rows.stop) if causal else keys, size)


def scores_of(query: Tensor, key: Tensor, rows: slice, columns: slice, causal: bool) -> Tensor:
    """Return a tile of scores. ``query`` has only these rows, scaled. If causal, the score of a later key is -inf."""
    scores = query @ key[:, columns].to(query.dtype).mT
    if causal and columns.stop > rows.start:
        place = torch.arange(rows.start, rows.stop, device=query.device).unsqueeze(1)
        scores.masked_fill_(torch.arange(columns.start, columns.stop, device=query.device) > place, -torch.inf)
    return scores


def exponentials(scores: Tensor, statistics: Tensor) -> Tensor:
    """Overwrite a tile of scores with its probabilities, and return the tile."""
    largest, excess = statistics.split(1, -1)
    return scores.sub_(largest).sub_(excess).exp_()


def attend_tiles(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float, size: int
) -> tuple[Tensor, Tensor]:
    """Return the output, and two statistics of each row of scores.

    The first statistic is the largest score. The second is the logarithm of the sum of ``exp(score - largest)``. The
    sum of both statistics, the log-sum-exp, would not be enough. If it is 1000, its rounding error is 3e-5, and each
    probability would have this error.
    """
    exact = torch.promote_types(query.dtype, torch.float32)
    output = query.new_empty(*query.shape[:2], value.shape[2])
    statistics = query.new_empty(*query.shape[:2], 2, dtype=exact)
    for rows in blocks(query.shape[1], size):
        part = query[:, rows].to(exact) * scale
        largest = part.new_full((*part.shape[:2], 1), -torch.inf)
        total = torch.zeros_like(largest)
        weighted = part.new_zeros(*part.shape[:2], value.shape[2])
        for columns in visible(rows, key.shape[1], causal, size):
            scores = scores_of(part, key, rows, columns, causal)
            # Every query sees the first key, so after the first tile the largest score is never -inf.
            larger = torch.maximum(largest, scores.amax(-1, keepdim=True))
            shrink = torch.exp(largest - larger)
            probability = scores.sub_(larger).exp_()  # not normalized yet
            total = total * shrink + probability.sum(-1, keepdim=True)
            weighted = weighted.mul_(shrink).add_(probability @ value[:, columns].to(exact))
            largest = larger
        # The largest score adds 1 to the total, so the total is at least 1. Without keys, the total is 0, and the
        # output is 0 as in torch.
        output[:, rows] = weighted / total.clamp(min=1)
        statistics[:, rows] = torch.cat([largest, total.log()], -1)
    return output, statistics


def attended(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float, size: int) -> tuple[Tensor, Tensor]:
    """Return tensors like output and statistics, but without values."""
    exact = torch.promote_types(query.dtype, torch.float32)
    return query.new_empty(*query.shape[:2], value.shape[2]), query.new_empty(*query.shape[:2], 2, dtype=exact)


attend = opaque("attend", attend_tiles, attended)


def gradient_tiles(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    statistics: Tensor,
    causal: bool,
    scale: float,
    size: int,
    needed: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients. This function computes each tile of probabilities again, from two statistics per row.

    For a gradient that is not needed, the result is a tensor without elements.
    """
    exact = statistics.dtype
    grad_query = torch.empty_like(query) if needed[0] else None
    grad_key = torch.zeros_like(key, dtype=exact) if needed[1] else None
    grad_value = torch.zeros_like(value, dtype=exact) if needed[2] else None
    for rows in blocks(query.shape[1], size):
        part, grad = query[:, rows].to(exact) * scale, grad_output[:, rows].to(exact)
        delta = (grad * output[:, rows].to(exact)).sum(-1, keepdim=True)
        grad_part = torch.zeros_like(part)
        for columns in visible(rows, key.shape[1], causal, size):
            probability = exponentials(scores_of(part, key, rows, columns, causal), statistics[:, rows])
            if grad_value is not None:
                grad_value[:, columns] += probability.mT @ grad
            if grad_query is None and grad_key is None:
                continue
            grad_scores = (grad @ value[:, columns].to(exact).mT).sub_(delta).mul_(probability)
            if grad_key is not None:
                grad_key[:, columns] += grad_scores.mT @ part
            if grad_query is not None:
                grad_part += grad_scores @ key[:, columns].to(exact)
        if grad_query is not None:
            grad_query[:, rows] = grad_part * scale
    return (
        query.new_empty(0) if grad_query is None else grad_query,
        key.new_empty(0) if grad_key is None else grad_key.to(key.dtype),
        value.new_empty(0) if grad_value is None else grad_value.to(value.dtype),
    )


def gradients_like(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    statistics: Tensor,
    causal: bool,
    scale: float,
    size: int,
    needed: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return tensors like these gradients, but without values."""
    of_query, of_key, of_value = (
        t.new_empty(t.shape if wanted else 0) for t, wanted in zip((query, key, value), needed, strict=True)
    )
    return of_query, of_key, of_value


_attend_gradients = opaque("attend_gradients", gradient_tiles, gradients_like)


def attend_gradients(*args: Any) -> tuple[Tensor | None, ...]:
    """Return the gradients, with None for a gradient that is not needed. The last argument says which are needed."""
    *rest, needed = args
    grads = _attend_gradients(*rest, needed[:3])
    return tuple(grad if wanted else None for grad, wanted in zip(grads, needed, strict=False))


def attend_curvature(
    tangents: tuple[Tensor | None, ...],
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    statistics: Tensor,
    *,
    causal: bool,
    scale: float,
    size: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the inner product of tangents and gradients, which are parts of the second derivative.

    The results are the gradients for ``grad_output``, ``query``, ``key`` and ``value``. The first one is the change of
    the output along the tangents.
    """
    exact = statistics.dtype
    of_query, of_key, of_value = (
        torch.zeros_like(t) if tangent is None else tangent
        for t, tangent in zip((query, key, value), tangents, strict=True)
    )
    of_grad = torch.empty_like(output)
    grad_query = torch.empty_like(query)
    grad_key, grad_value = (torch.zeros_like(t, dtype=exact) for t in (key, value))
    for rows in blocks(query.shape[1], size):
        part, along = query[:, rows].to(exact) * scale, of_query[:, rows].to(exact) * scale
        grad, out = grad_output[:, rows].to(exact), output[:, rows].to(exact)

        def tile(columns: slice, rows: slice = rows, part: Tensor = part, along: Tensor = along) -> tuple[Tensor, ...]:
            """Return keys, their tangents, probabilities, and the change of the scores along the tangents."""
            keys, of_keys = key[:, columns].to(exact), of_key[:, columns].to(exact)
            scores = scores_of(part, key, rows, columns, causal)
            return (
                keys,
                of_keys,
                exponentials(scores, statistics[:, rows]),
                along @ keys.mT + part @ of_keys.mT,
            )

        mean = torch.zeros_like(statistics[:, rows].sum(-1, keepdim=True))
        moved = torch.zeros_like(out)
        for columns in visible(rows, key.shape[1], causal, size):
            _, _, probability, change = tile(columns)
            change.mul_(probability)
            mean += change.sum(-1, keepdim=True)
            moved += change @ value[:, columns].to(exact) + probability @ of_value[:, columns].to(exact)
        moved -= mean * out
        of_grad[:, rows] = moved

        delta = (grad * out).sum(-1, keepdim=True)
        offset = (grad * moved).sum(-1, keepdim=True) - mean * delta
        grad_part = torch.zeros_like(part)
        for columns in visible(rows, key.shape[1], causal, size):
            keys, of_keys, probability, change = tile(columns)
            slope = grad @ value[:, columns].to(exact).mT
            second = change * (slope - delta) - mean * slope + grad @ of_value[:, columns].to(exact).mT - offset
            second.mul_(probability)
            first = slope.sub_(delta).mul_(probability)
            grad_value[:, columns] += change.sub_(mean).mul_(probability).mT @ grad
            grad_key[:, columns] += second.mT @ part + first.mT @ along
            grad_part += second @ keys + first @ of_keys
        grad_query[:, rows] = grad_part * scale
    return of_grad, grad_query, grad_key.to(key.dtype), grad_value.to(value.dtype)


def folded(info: Any, in_dims: tuple[int | None, ...], args: tuple[Any, ...]) -> list[Any]:
    """Return the arguments of a call under vmap, with the mapped dimension moved into the batch."""
    return [
        (a.expand(info.batch_size, *a.shape) if dim is None else a.movedim(dim, 0)).flatten(0, 1)
        if isinstance(a, Tensor)
        else a
        for a, dim in zip(args, in_dims, strict=True)
    ]


def unfolded(info: Any, results: tuple[Tensor | None, ...]) -> tuple[tuple[Tensor | None, ...], tuple[int | None, ...]]:
    """Return the results for :func:`folded` arguments, with the mapped dimension in front again."""
    size = info.batch_size
    return (
        tuple(None if r is None else r.unflatten(0, (size, len(r) // size)) for r in results),
        tuple(None if r is None else 0 for r in results),
    )


def prepared(query: Tensor, key: Tensor, value: Tensor) -> tuple[torch.Size, list[Tensor]]:
    """Return the common batch shape, and the three tensors with one batch dimension. Raise if they do not fit."""
    tensors = [query, key, value]
    if min(t.dim() for t in tensors) < 2:
        raise RuntimeError(
            f"expected at least 2 dimensions, got shapes {', '.join(str(tuple(t.shape)) for t in tensors)}"
        )
    if not query.is_floating_point():
        raise TypeError(f"expected query of a real floating dtype, got {query.dtype}")
    if not query.dtype == key.dtype == value.dtype:
        raise RuntimeError(f"expected the same dtype, got {query.dtype}, {key.dtype} and {value.dtype}")
    if not query.device == key.device == value.device:
        raise RuntimeError(f"expected the same device, got {query.device}, {key.device} and {value.device}")
    if query.shape[-1] != key.shape[-1]:
        raise RuntimeError(f"expected query and key of the same width, got {query.shape[-1]} and {key.shape[-1]}")
    if key.shape[-2] != value.shape[-2]:
        raise RuntimeError(f"expected as many values as keys, got {value.shape[-2]} and {key.shape[-2]}")
    try:
        batch = torch.broadcast_shapes(*(t.shape[:-2] for t in tensors))
    except RuntimeError:
        shapes = ", ".join(str(tuple(t.shape[:-2])) for t in tensors)
        raise RuntimeError(f"expected leading dimensions that broadcast, got {shapes}") from None
    if torch.is_autocast_enabled(query.device.type) and query.dtype is not torch.float64:
        # Convert here, because backward runs without autocast and must see the same numbers.
        tensors = [t.to(torch.get_autocast_dtype(query.device.type)) for t in tensors]
    return batch, [t.expand(*batch, *t.shape[-2:]).reshape(batch.numel(), *t.shape[-2:]) for t in tensors]
