"""Attention by kernels in Triton. One program of a kernel computes the tiles of one block of rows."""

import functools
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.recipes._triton import INTERPRETED, backend, constexpr, jit, launch, operator, tl, triton

# Rows of this width still fit in the fast memory of a GPU, together with the rest of their block.
LARGEST_WIDTH = 128


@jit
def load(tensor, batch, rows, length, lanes, width):
    """Load a block of rows from one batch element, with zeros outside of the tensor."""
    place = (batch * length + rows[:, None]) * width + lanes[None, :]
    return tl.load(tensor + place, mask=(rows[:, None] < length) & (lanes[None, :] < width), other=0.0)


@jit
def store(tensor, values, batch, rows, length, lanes, width):
    """Write a block of rows, in the dtype of the tensor."""
    place = (batch * length + rows[:, None]) * width + lanes[None, :]
    inside = (rows[:, None] < length) & (lanes[None, :] < width)
    tl.store(tensor + place, values.to(tensor.dtype.element_ty), mask=inside)


@jit
def probabilities(q, k, top, excess, rows, columns, keys, scale, CAUSAL: constexpr):
    """Return a tile of exp(scores - top - excess), with 0 outside of the keys and for keys that the mask hides."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    seen = columns[None, :] < keys
    if CAUSAL:
        seen = seen & (columns[None, :] <= rows[:, None])
    return tl.where(seen, tl.exp(scores - top[:, None] - excess[:, None]), 0.0)


@jit
def attention_kernel(
    query,
    key,
    value,
    output,
    statistics,
    queries,
    keys,
    width,
    features,
    scale,
    CAUSAL: constexpr,
    SIZE: constexpr,
    WIDTH: constexpr,
    FEATURES: constexpr,
):
    """One program for each block of queries. It loops over the keys with a running maximum."""
    wide = statistics.dtype.element_ty
    count = tl.cdiv(queries, SIZE)
    batch = (tl.program_id(0) // count).to(tl.int64)
    first = tl.program_id(0) % count * SIZE
    rows = first + tl.arange(0, SIZE)
    of_width, of_features = tl.arange(0, WIDTH), tl.arange(0, FEATURES)
    q = load(query, batch, rows, queries, of_width, width)
    largest = tl.full((SIZE,), float("-inf"), wide)
    total = tl.zeros((SIZE,), wide)
    weighted = tl.zeros((SIZE, FEATURES), wide)
    last = tl.minimum(keys, first + SIZE) if CAUSAL else keys
    for start in range(0, last, SIZE):
        columns = start + tl.arange(0, SIZE)
        k = load(key, batch, columns, keys, of_width, width)
        v = load(value, batch, columns, keys, of_features, features)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = columns[None, :] < keys
        if CAUSAL:
            seen = seen & (columns[None, :] <= rows[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        # Every query sees the first key, so after the first tile the maximum is never -inf.
        larger = tl.maximum(largest, tl.max(scores, 1))
        shrink = tl.exp(largest - larger)
        p = tl.exp(scores - larger[:, None])
        total = total * shrink + tl.sum(p, 1)
        weighted = weighted * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        largest = larger
    store(output, weighted / tl.maximum(total, 1.0)[:, None], batch, rows, queries, of_features, features)
    place = statistics + 2 * (batch * queries + rows)
    tl.store(place, largest, mask=rows < queries)
    tl.store(place + 1, tl.log(total), mask=rows < queries)


@jit
def query_kernel(
    grad_output,
    query,
    key,
    value,
    output,
    statistics,
    delta,
    grad_query,
    queries,
    keys,
    width,
    features,
    scale,
    CAUSAL: constexpr,
    SIZE: constexpr,
    WIDTH: constexpr,
    FEATURES: constexpr,
):
    """One program for each block of queries. It computes their gradient, and ``delta`` for the other kernel."""
    wide = statistics.dtype.element_ty
    count = tl.cdiv(queries, SIZE)
    batch = (tl.program_id(0) // count).to(tl.int64)
    first = tl.program_id(0) % count * SIZE
    rows = first + tl.arange(0, SIZE)
    of_width, of_features = tl.arange(0, WIDTH), tl.arange(0, FEATURES)
    q = load(query, batch, rows, queries, of_width, width)
    g = load(grad_output, batch, rows, queries, of_features, features)
    o = load(output, batch, rows, queries, of_features, features)
    place = statistics + 2 * (batch * queries + rows)
    top = tl.load(place, mask=rows < queries, other=0.0)
    excess = tl.load(place + 1, mask=rows < queries, other=0.0)
    mean = tl.sum(g.to(wide) * o.to(wide), 1)
    tl.store(delta + batch * queries + rows, mean, mask=rows < queries)
    total = tl.zeros((SIZE, WIDTH), wide)
    last = tl.minimum(keys, first + SIZE) if CAUSAL else keys
    for start in range(0, last, SIZE):
        columns = start + tl.arange(0, SIZE)
        k = load(key, batch, columns, keys, of_width, width)
        v = load(value, batch, columns, keys, of_features, features)
        p = probabilities(q, k, top, excess, rows, columns, keys, scale, CAUSAL)
        grad_scores = p * (tl.dot(g, tl.trans(v), input_precision="ieee") - mean[:, None])
        total += tl.dot(grad_scores.to(k.dtype), k, input_precision="ieee")
    store(grad_query, total * scale, batch, rows, queries, of_width, width)


@jit
def key_kernel(
    grad_output,
    query,
    key,
    value,
    statistics,
    delta,
    grad_key,
    grad_value,
    queries,
    keys,
    width,
    features,
    scale,
    CAUSAL: constexpr,
    SIZE: constexpr,
    WIDTH: constexpr,
    FEATURES: constexpr,
):
    """One program for each block of keys. It writes each gradient once, and waits for no other program."""
    wide = statistics.dtype.element_ty
    count = tl.cdiv(keys, SIZE)
    batch = (tl.program_id(0) // count).to(tl.int64)
    first = tl.program_id(0) % count * SIZE
    columns = first + tl.arange(0, SIZE)
    of_width, of_features = tl.arange(0, WIDTH), tl.arange(0, FEATURES)
    k = load(key, batch, columns, keys, of_width, width)
    v = load(value, batch, columns, keys, of_features, features)
    of_key = tl.zeros((SIZE, WIDTH), wide)
    of_value = tl.zeros((SIZE, FEATURES), wide)
    for start in range(first if CAUSAL else 0, queries, SIZE):
        rows = start + tl.arange(0, SIZE)
        q = load(query, batch, rows, queries, of_width, width)
        g = load(grad_output, batch, rows, queries, of_features, features)
        place = statistics + 2 * (batch * queries + rows)
        top = tl.load(place, mask=rows < queries, other=0.0)
        excess = tl.load(place + 1, mask=rows < queries, other=0.0)
        mean = tl.load(delta + batch * queries + rows, mask=rows < queries, other=0.0)
        p = probabilities(q, k, top, excess, rows, columns, keys, scale, CAUSAL)
        of_value += tl.dot(tl.trans(p).to(g.dtype), g, input_precision="ieee")
        grad_scores = p * (tl.dot(g, tl.trans(v), input_precision="ieee") - mean[:, None])
        of_key += tl.dot(tl.trans(grad_scores).to(q.dtype), q, input_precision="ieee")
    store(grad_key, of_key * scale, batch, columns, keys, of_width, width)
    store(grad_value, of_value, batch, columns, keys, of_features, features)


def constants(query: Tensor, value: Tensor) -> tuple[int, int, int]:
    """Return the rows in a block, and the widths of query and value, rounded up to powers of two of at least 16."""
    width, features = (max(16, triton.next_power_of_2(t.shape[-1])) for t in (query, value))
    # A block of at most 8 kB, because all blocks of a program must fit in the fast memory of one GPU processor.
    return max(16, min(64, 8192 // (query.element_size() * max(width, features)))), width, features


def empty_results(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """Return tensors without values, for the output and for two statistics per query."""
    exact = torch.promote_types(query.dtype, torch.float32)
    return query.new_empty(*query.shape[:2], value.shape[2]), query.new_empty(*query.shape[:2], 2, dtype=exact)


def empty_gradients(
    _: Tensor, query: Tensor, key: Tensor, value: Tensor, *options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return tensors without values for the three gradients. The last two have no elements if they are not needed."""
    whole = functools.partial(torch.empty_like, memory_format=torch.contiguous_format)
    if options and not options[-1]:
        return whole(query), key.new_empty(0), value.new_empty(0)
    return whole(query), whole(key), whole(value)


@operator(empty_results)
def triton_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the output and two statistics per query: the largest score, and log(sum(exp(scores - largest)))."""
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    output, statistics = empty_results(query, key, value)
    size, *widths = constants(query, value)
    shapes = (query.shape[1], key.shape[1], query.shape[2], value.shape[2])
    programs = len(query) * triton.cdiv(query.shape[1], size)
    launch(attention_kernel, programs, query, key, value, output, statistics, *shapes, scale, causal, size, *widths)
    return output, statistics


@operator(empty_gradients)
def triton_attention_backward(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    statistics: Tensor,
    causal: bool,
    scale: float,
    for_keys: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value. The last two are computed only with ``for_keys``."""
    grad_output, query, key, value, output, statistics = (
        t.contiguous() for t in (grad_output, query, key, value, output, statistics)
    )
    grads = empty_gradients(grad_output, query, key, value, for_keys)
    delta = statistics.new_empty(query.shape[:2])
    size, *widths = constants(query, value)
    options = (query.shape[1], key.shape[1], query.shape[2], value.shape[2], scale, causal, size, *widths)
    rows, columns = (len(query) * triton.cdiv(t.shape[1], size) for t in (query, key))
    launch(query_kernel, rows, grad_output, query, key, value, output, statistics, delta, grads[0], *options)
    if for_keys:
        launch(key_kernel, columns, grad_output, query, key, value, statistics, delta, *grads[1:], *options)
    return grads


def has_kernel(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether a kernel can run: no tensor is empty, no row is too wide, and Triton can multiply the dtype."""
    if min(query.numel(), key.numel(), value.numel()) == 0 or max(query.shape[2], value.shape[2]) > LARGEST_WIDTH:
        return False
    # Triton 3.7 interprets bfloat16 as integers when it multiplies matrices.
    return backend(query.device) == "Triton" or (INTERPRETED and query.dtype is not torch.bfloat16)
