"""sparse: sums over an index in chunks, in half precision and at the edges; the catalog compares with dense sums."""

import pytest
import torch

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes import sparse
from autograd_cookbook.recipes.sparse import (
    parts,
    sampled_product,
    segment_max,
    segment_mean,
    segment_softmax,
    segment_sum,
    sparse_mm,
    take_rows,
)

SURVIVORS = {
    "total: input[:{1 -> 2}]": "only dtype and shape of the sum are used",
    "total: input[:{1 -> -1}]": "only dtype and shape of the sum are used",
}

HALVES = [torch.float16, torch.bfloat16]
SEGMENTS = [segment_sum, segment_mean, segment_max, segment_softmax]
INF = float("inf")


def problem(nnz=50, rows=7, columns=9, width=4):
    generator = torch.Generator().manual_seed(0)
    indices = torch.stack([torch.randint(n, (nnz,), generator=generator) for n in (rows, columns)])
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((nnz,), (columns, width))]
    return indices, *(t.requires_grad_() for t in tensors), rows


def derivatives(output, tensors):
    """Value, gradients of an uneven sum of it, and the gradients of an uneven sum of those."""
    weights = torch.linspace(1, 2, output.numel(), dtype=output.dtype).reshape(output.shape)
    first = torch.autograd.grad(output, tensors, weights, create_graph=True)
    uneven = sum((g * torch.sin(1.0 + torch.arange(g.numel())).reshape(g.shape)).sum() for g in first)
    return [output.detach(), *(g.detach() for g in first), *torch.autograd.grad(uneven, tensors)]


@pytest.mark.parametrize("chunk", [1, 7, 40, 10**6])
def test_chunks_change_nothing(chunk, monkeypatch) -> None:
    indices, values, input, rows = problem()
    matrix = torch.zeros(rows, len(input), dtype=torch.float64).index_put(tuple(indices), values, accumulate=True)
    expected = derivatives(matrix @ input, (values, input))
    left = torch.randn(rows, 4, dtype=torch.float64, requires_grad=True)
    entries = derivatives((left @ input.T)[tuple(indices)], (left, input))
    monkeypatch.setattr(sparse, "CHUNK", chunk)
    for a, e in zip(derivatives(sparse_mm(indices, values, input, rows), (values, input)), expected, strict=True):
        torch.testing.assert_close(a, e)
    for a, e in zip(derivatives(sampled_product(indices, left, input), (left, input)), entries, strict=True):
        torch.testing.assert_close(a, e)


@pytest.mark.parametrize(
    ("count", "width", "sizes"),
    [(10, 2**16, [4, 4, 2]), (3, 2**20, [1, 1, 1]), (5, 0, [5]), (0, 4, [0]), (8, 2**16, [4, 4])],
)
def test_a_chunk_has_few_numbers(count, width, sizes) -> None:
    assert [len(range(count)[part]) for part in parts(count, width)] == sizes


def test_the_peak_is_one_chunk_beyond_the_gradients() -> None:
    indices, values, input, rows = (
        torch.randint(2000, (2, 60_000)),
        torch.randn(60_000, requires_grad=True),
        torch.randn(2000, 32, requires_grad=True),
        2000,
    )
    peak = peak_bytes(lambda: torch.autograd.grad(sparse_mm(indices, values, input, rows).sum(), (values, input)))
    returned = 4 * (values.numel() + input.numel())
    # The output, what a chunk is made of, and the factors of the sampled product.
    assert peak < returned + 4 * rows * 32 + 4 * 4 * sparse.CHUNK < 2000**2 * 4
    assert saved_bytes(sparse_mm, indices, values, input, rows) == 0


def test_gradients_that_are_not_wanted_are_not_computed() -> None:
    indices, values, input, rows = problem()
    calls = []

    def counted(name, function):
        return lambda *args: calls.append(name) or function(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "in_chunks", counted("product", sparse.in_chunks))
        patch.setattr(sparse, "sample", counted("sample", sparse.sample))
        output = sparse_mm(indices, values, input.detach(), rows)
        torch.autograd.grad(output.sum(), values)
        assert calls == ["product", "sample"]
        calls.clear()
        torch.autograd.grad(sparse_mm(indices, values.detach(), input, rows).sum(), input)
        assert calls == ["product", "product"]
        calls.clear()
        torch.autograd.grad(sampled_product(indices, input[:7].detach(), input).sum(), input)
        torch.autograd.grad(sampled_product(indices, input[:7], input.detach()).sum(), input)
        assert calls == ["sample", "product"] * 2


@pytest.mark.parametrize("dtype", HALVES)
def test_sums_in_half_precision_do_not_stall(dtype) -> None:
    """4000 ones: a sum in bfloat16 ends at 256, and one in float16 at 2048."""
    ones, zeros = torch.ones(4000, dtype=dtype), torch.zeros(4000, dtype=torch.int64)
    places = torch.stack([zeros, torch.arange(4000)])
    assert sparse_mm(places, ones, ones, 1).item() == 4000
    assert sampled_product(zeros[:2, None], ones[None], ones[None]).item() == 4000
    assert segment_sum(ones, zeros, 1).item() == 4000
    assert segment_mean(ones, zeros, 1).item() == 1
    table = torch.zeros(1, 3, dtype=dtype, requires_grad=True)
    take_rows(table, zeros).sum().backward()
    assert table.grad.tolist() == [[4000.0] * 3]
    assert segment_softmax(ones, zeros, 1).double().sum().item() == pytest.approx(1, rel=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
def test_the_mean_of_numbers_whose_sum_overflows(dtype) -> None:
    x = torch.full((4,), torch.finfo(dtype).max, dtype=dtype)
    assert segment_mean(x, torch.zeros(4, dtype=torch.int64), 1).item() == torch.finfo(dtype).max


def test_ties_and_a_maximum_of_zero() -> None:
    x = torch.tensor([0.0, -1.0, 2.0, 2.0, -INF, -INF, 5.0], requires_grad=True)
    index = torch.tensor([0, 0, 2, 2, 3, 3, 4])
    y = segment_max(x, index, 6)
    assert y.tolist() == [0, 0, 2, -INF, 5, 0]
    (gradient,) = torch.autograd.grad(y, x, torch.tensor([1.0, 7.0, 3.0, 2.0, 1.0, 9.0]))
    assert gradient.tolist() == [1, 0, 1.5, 1.5, 1, 1, 1]


def test_second_derivatives_of_segments() -> None:
    index = torch.tensor([2, 0, 2, 3, 2])
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    for function in SEGMENTS:
        assert torch.autograd.gradgradcheck(lambda x, f=function: f(x, index, 4), x)


@pytest.mark.parametrize(
    ("values", "output"),
    [
        ([-INF, -INF], [0.0, 0.0]),
        ([-INF, 0.0], [0.0, 1.0]),
        ([INF, 0.0, INF], [0.5, 0.0, 0.5]),
        ([1e30, 1e30, 0.0], [0.5, 0.5, 0.0]),
        ([-3e38, -3e38], [0.5, 0.5]),
        ([-200.0, -200.0], [0.5, 0.5]),
    ],
)
def test_softmax_of_a_segment_next_to_a_larger_one(values, output) -> None:
    x = torch.tensor([*values, 300.0], requires_grad=True)
    p = segment_softmax(x, torch.tensor([1] * len(values) + [0]), 3)
    assert p.tolist() == pytest.approx([*output, 1.0])
    (gradient,) = torch.autograd.grad(p[0], x)
    assert gradient.isfinite().all()
    assert (gradient[p == 0] == 0).all()


def test_softmax_agrees_with_torchs_for_equal_segments() -> None:
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    index = torch.arange(6).repeat_interleave(5)
    ours = derivatives(segment_softmax(x.flatten(), index, 6).reshape(6, 5), (x,))
    for a, e in zip(ours, derivatives(x.softmax(1), (x,)), strict=True):
        torch.testing.assert_close(a, e)


def test_what_is_kept() -> None:
    x, index = torch.randn(1000, 8, requires_grad=True), torch.randint(50, (1000,))
    kept = [saved_bytes(function, x, index, 50) for function in SEGMENTS]
    assert kept == [0, 0, 50 * 8 * 4, x.numel() * 4]
    assert saved_bytes(take_rows, x, index[:20]) == 0


@pytest.mark.parametrize("wrong", [-1, 7, 9])
def test_places_that_are_not_there(wrong) -> None:
    indices, values, input, rows = problem()
    for where, what, end in ((0, "rows", 6), (1, "columns", 8)):
        if wrong == 7 and where == 1:
            continue  # is a column
        changed = indices.clone()
        changed[where, 3] = wrong
        least, most = changed[where].min(), changed[where].max()
        for call in (
            lambda c=changed: sparse_mm(c, values, input, rows),
            lambda c=changed: sampled_product(c, input[:7], input),
        ):
            with pytest.raises(IndexError, match=f"expected {what} from 0 to {end}, got {least} to {most}"):
                call()


def test_segments_that_are_not_there() -> None:
    x = torch.ones(2)
    for function in SEGMENTS:
        with pytest.raises((RuntimeError, IndexError), match=r"out of (bounds|range)"):
            function(x, torch.tensor([0, 3]), 3)
    with pytest.raises(IndexError):
        take_rows(x, torch.tensor([2]))


def test_what_does_not_fit() -> None:
    indices, values, input, rows = problem()
    cases = [
        (
            RuntimeError,
            r"indices of dtype torch.int64, got torch.int32",
            lambda: sparse_mm(indices.int(), values, input, rows),
        ),
        (ValueError, r"shape \(2, nnz\), got \(50,\)", lambda: sparse_mm(indices[0], values, input, rows)),
        (ValueError, r"shape \(2, nnz\), got \(1, 50\)", lambda: sparse_mm(indices[:1], values, input, rows)),
        (TypeError, r"got torch.int64", lambda: sparse_mm(indices, values.long(), input, rows)),
        (RuntimeError, r"got torch.float64 and torch.float32", lambda: sparse_mm(indices, values, input.float(), rows)),
        (ValueError, r"values of shape \(50,\), got \(49,\)", lambda: sparse_mm(indices, values[1:], input, rows)),
        (ValueError, r"got a scalar", lambda: sparse_mm(indices, values, input[0, 0], rows)),
        (ValueError, r"rows >= 0, got -1", lambda: sparse_mm(indices, values, input, -1)),
        (ValueError, r"got shapes \(9, 4\) and \(9, 3\)", lambda: sampled_product(indices, input, input[:, 1:])),
        (ValueError, r"got shapes \(4,\) and \(9, 4\)", lambda: sampled_product(indices, input[0], input)),
        (ValueError, r"got shapes \(9, 4\) and \(4,\)", lambda: sampled_product(indices, input, input[0])),
        (RuntimeError, r"index of dtype torch.int64, got torch.int32", lambda: take_rows(input, indices[0].int())),
        (ValueError, r"got a scalar", lambda: take_rows(input[0, 0], indices[0])),
        (ValueError, r"index of shape \(9,\), got \(50,\)", lambda: segment_sum(input, indices[0], 9)),
        (ValueError, r"size >= 0, got -1", lambda: segment_mean(values, indices[0], -1)),
        (TypeError, r"got torch.complex64", lambda: segment_max(torch.ones(50) * 1j, indices[0], 9)),
        (TypeError, r"got torch.complex64", lambda: segment_softmax(torch.ones(50) * 1j, indices[0], 9)),
        (TypeError, r"got torch.int64", lambda: segment_sum(indices[0], indices[0], 9)),
    ]
    for error, message, call in cases:
        with pytest.raises(error, match=message):
            call()


def test_no_rows_at_all() -> None:
    nothing = torch.empty(2, 0, dtype=torch.int64)
    assert sparse_mm(nothing, torch.ones(0), torch.ones(3, 2), 0).shape == (0, 2)
    assert segment_sum(torch.ones(0, 2), nothing[0], 0).shape == (0, 2)
