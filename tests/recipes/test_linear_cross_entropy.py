"""linear_cross_entropy: what torch's cross-entropy says, in all options, and a fraction of its memory."""

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from autograd_cookbook.auditing import held_bytes, peak_bytes, saved_bytes
from autograd_cookbook.recipes.linear_cross_entropy import CHUNK, LEAST, linear_cross_entropy, parts

SURVIVORS = {
    "LinearCrossEntropyGradient.backward: change + of_input @ weight[part].mT -> of_input @ weight[part].mT": (
        "what it is added to is 0"
    ),
}

INF = float("inf")
ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "large_vocabulary.json").read_text())


def composed(input, weight, target, bias=None, ignore_index=-100, reduction="mean"):
    logits = F.linear(input, weight, bias)
    return F.cross_entropy(logits, target, ignore_index=ignore_index, reduction=reduction)


def problem(tokens=6, features=4, classes=11, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in ((tokens, features), (classes, features), (classes,))
    ]
    return *tensors, torch.randint(classes, (tokens,), generator=generator)


def derivatives(loss, tensors, order=2):
    """Value, gradients of an uneven sum of it, and the gradients of an uneven sum of those."""
    weights = torch.linspace(1, 2, loss.numel(), dtype=loss.dtype).reshape(loss.shape)
    first = torch.autograd.grad(loss, tensors, weights, create_graph=order > 1)
    found = [loss.detach(), *(g.detach() for g in first)]
    if order == 1:
        return found
    uneven = sum((g * torch.sin(1.0 + torch.arange(g.numel())).reshape(g.shape)).sum() for g in first)
    return found + list(torch.autograd.grad(uneven, tensors))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("chunk_size", [1, 3, 10, 11, 100, None])
@pytest.mark.parametrize("ignore_index", [-100, 7, 0])
def test_values_and_both_derivatives_are_those_of_the_composition(reduction, chunk_size, ignore_index) -> None:
    x, w, b, target = problem()
    target[2] = ignore_index
    ours = derivatives(linear_cross_entropy(x, w, target, b, ignore_index, reduction, chunk_size), (x, w, b))
    theirs = derivatives(composed(x, w, target, b, ignore_index, reduction), (x, w, b))
    for a, e in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_any_subset_of_the_arguments_may_be_frozen(wanted) -> None:
    *tensors, target = problem()
    for i, tensor in enumerate(tensors):
        tensor.requires_grad_(i in wanted)
    chosen = [tensors[i] for i in wanted]
    x, w, b = tensors
    ours = derivatives(linear_cross_entropy(x, w, target, b, chunk_size=4), chosen)
    for a, e in zip(ours, derivatives(composed(x, w, target, b), chosen), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-11, atol=1e-13)


def test_it_need_not_be_the_last_operation_and_can_be_used_twice() -> None:
    x, w, b, target = problem()
    loss = linear_cross_entropy(x, w, target, b, chunk_size=4)
    expected = composed(x, w, target, b)
    for scale in (1.0, -3.0):
        ours = torch.autograd.grad(scale * loss.square(), (x, w, b), retain_graph=True)
        theirs = torch.autograd.grad(scale * expected.square(), (x, w, b), retain_graph=True)
        for a, e in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, e, rtol=1e-11, atol=1e-13)


def test_a_third_derivative_raises() -> None:
    x, w, _, target = problem()
    (first,) = torch.autograd.grad(linear_cross_entropy(x, w, target), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        torch.autograd.grad(second.sum(), x, retain_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        second.sum().backward()


def test_gradients_of_single_tokens_by_vmap() -> None:
    x, w, _, target = problem()
    each = torch.func.vmap(torch.func.grad(lambda x, t: linear_cross_entropy(x[None], w, t[None])))(x, target)
    torch.testing.assert_close(each, torch.autograd.grad(composed(x, w, target, reduction="sum"), x)[0])


def test_if_all_are_ignored_the_mean_is_nan_and_the_sum_zero() -> None:
    x, w, _, target = problem()
    target[:] = -100
    assert linear_cross_entropy(x, w, target).isnan()
    total = linear_cross_entropy(x, w, target, reduction="sum")
    assert total.item() == 0
    assert not any(g.any() for g in torch.autograd.grad(total, (x, w)))


def test_no_tokens_and_no_classes() -> None:
    x, w, b, target = problem(tokens=0)
    total = linear_cross_entropy(x, w, target, b, reduction="sum")
    assert total.item() == 0
    assert [g.shape for g in torch.autograd.grad(total, (x, w, b))] == [x.shape, w.shape, b.shape]
    assert linear_cross_entropy(x, w, target).isnan()
    assert linear_cross_entropy(x, w[:0], target, reduction="none").shape == (0,)


def test_batch_dimensions_are_those_of_the_target() -> None:
    x, w, b, target = problem(tokens=6)
    losses = linear_cross_entropy(x.reshape(2, 3, 4), w, target.reshape(2, 3), b, reduction="none")
    torch.testing.assert_close(losses, composed(x, w, target, b, reduction="none").reshape(2, 3))
    single = linear_cross_entropy(x[0], w, target[0], b, reduction="none")
    assert single.shape == ()
    torch.testing.assert_close(single, losses[0, 0])


def test_a_class_masked_by_minus_infinity_gets_no_gradient() -> None:
    x, w, _, target = problem()
    target[:] = 3
    mask = torch.zeros(11, dtype=torch.float64)
    mask[[0, 1, 2, 5]] = -INF  # the first chunk is masked as a whole
    ours = derivatives(linear_cross_entropy(x, w, target, mask, chunk_size=3), (x, w))
    theirs = derivatives(composed(x, w, target, mask), (x, w))
    for a, e in zip(ours, theirs, strict=True):
        assert a.isfinite().all()
        torch.testing.assert_close(a, e, rtol=1e-11, atol=1e-13)
    assert not ours[2][[0, 1, 2, 5]].any()


def test_a_masked_target_costs_infinity_as_in_torch() -> None:
    x, w, _, target = problem()
    mask = torch.zeros(11, dtype=torch.float64)
    mask[target[0]] = -INF
    losses = linear_cross_entropy(x, w, target, mask, reduction="none", chunk_size=4)
    assert losses[0].item() == INF
    torch.testing.assert_close(losses, composed(x, w, target, mask, reduction="none"))


def test_logits_too_large_for_an_exponential() -> None:
    x = torch.tensor([[1000.0, 0.0], [-1000.0, 500.0]], dtype=torch.float64, requires_grad=True)
    w = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 0])
    ours = derivatives(linear_cross_entropy(x, w, target, chunk_size=1), (x, w), 1)
    for a, e in zip(ours, derivatives(composed(x, w, target), (x, w), 1), strict=True):
        torch.testing.assert_close(a, e)


def accuracy(loss, dtype, chunk_size=None, tokens=512):
    """Relative errors of loss and gradients, against float64 from the same rounded arguments."""
    x, w, b, target = problem(tokens, 32, 2048)
    low = [t.detach().to(dtype).requires_grad_() for t in (x, w, b)]
    exact = [t.detach().double().requires_grad_() for t in low]
    expected = derivatives(composed(exact[0], exact[1], target, exact[2]), exact, 1)
    options = {"chunk_size": chunk_size} if chunk_size else {}
    found = derivatives(loss(low[0], low[1], target, low[2], **options), low, 1)
    assert all(t.dtype is dtype for t in found)
    return [float((f.double() - e).norm() / e.norm()) for f, e in zip(found, expected, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_many_chunks_in_half_precision_are_as_exact_as_none(dtype) -> None:
    """The rounding of the gradient of one chunk stays; sums over chunks and over classes add nothing to it."""
    ours = accuracy(linear_cross_entropy, dtype, chunk_size=16)
    theirs = accuracy(composed, dtype)
    assert ours[0] <= torch.finfo(dtype).eps / 2
    assert all(a < max(1.5 * e, torch.finfo(dtype).eps) for a, e in zip(ours[1:], theirs[1:], strict=True))


def test_in_float16_a_mean_over_many_tokens_neither_overflows_nor_loses_small_probabilities() -> None:
    ours = accuracy(linear_cross_entropy, torch.float16, tokens=4096)
    theirs = accuracy(composed, torch.float16, tokens=4096)
    assert ours[0] < 5e-4
    assert theirs[0] == INF, "torch has begun to sum losses in a wider type: the page can say so"
    assert all(a < 0.8 * e for a, e in zip(ours[1:], theirs[1:], strict=True))


def test_under_autocast_forward_and_backward_see_the_same_logits() -> None:
    x, w, b, target = problem(8, 16, 32, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = linear_cross_entropy(x, w, target, b, reduction="none")
    assert loss.dtype is torch.float32
    (grad,) = torch.autograd.grad(loss.sum(), b)
    low = [t.detach().bfloat16().requires_grad_() for t in (x, w, b)]
    (expected,) = torch.autograd.grad(linear_cross_entropy(*low[:2], target, low[2], reduction="sum"), low[2])
    assert torch.equal(grad, expected.float())
    assert abs(grad.sum()) < 0.05, "probabilities do not sum to 1"


@pytest.mark.parametrize("bad", [11, -1, -99])
def test_a_target_that_is_no_class_is_named(bad) -> None:
    x, w, b, target = problem()
    target[1] = bad
    with pytest.raises(IndexError, match=rf"expected targets from 0 to 10 or -100, got .*{bad}"):
        linear_cross_entropy(x, w, target, b)
    with pytest.raises(IndexError):
        composed(x, w, target, b)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"reduction": "median"}, ValueError, "got 'median'"),
        ({"chunk_size": 0}, ValueError, "expected chunk_size > 0, got 0"),
        ({"target": torch.zeros(5, dtype=torch.int64)}, ValueError, r"expected target of shape \(6,\), got \(5,\)"),
        ({"target": torch.zeros(6, dtype=torch.int32)}, RuntimeError, r"got torch\.int32"),
        ({"bias": torch.zeros(10)}, RuntimeError, r"expected bias of shape \(11,\), got \(10,\)"),
        ({"weight": torch.zeros(11, 5, dtype=torch.float64)}, RuntimeError, "cannot be multiplied"),
        ({"weight": torch.zeros(11, 4)}, RuntimeError, "dtype"),
        ({"input": torch.zeros(6, 4, dtype=torch.complex64)}, TypeError, r"got torch\.complex64"),
        ({"input": torch.zeros(6, 4, dtype=torch.int64)}, TypeError, r"got torch\.int64"),
    ],
)
def test_bad_arguments_are_named(change, error, message) -> None:
    x, w, b, target = problem()
    with pytest.raises(error, match=message):
        linear_cross_entropy(**{"input": x, "weight": w, "target": target, "bias": b} | change)


def test_it_keeps_two_numbers_a_token_and_a_count() -> None:
    x, w, _, target = problem(100, 8, 5000, dtype=torch.float32)
    assert saved_bytes(lambda *args: linear_cross_entropy(*args, reduction="none"), x, w, target) == 100 * 8
    assert saved_bytes(linear_cross_entropy, x, w, target) == 100 * 8 + 8
    # All that is alive after forward: that, and the loss.
    assert held_bytes(linear_cross_entropy, x, w, target) == 100 * 8 + 8 + 4


@pytest.mark.parametrize("offset", [0.0, 100.0, 1e3, 1e4])
def test_logits_of_any_size_lose_no_more_digits_than_in_the_composition(offset) -> None:
    *wide, target = problem(64, 32, 500)
    wide[2] = (wide[2] + offset).detach().requires_grad_()
    narrow = [tensor.detach().float().requires_grad_() for tensor in wide]

    def values(loss, arguments):
        found = loss(*arguments[:2], target, arguments[2], reduction="none")
        return found, *torch.autograd.grad(found.sum(), arguments)

    rows = (values(linear_cross_entropy, narrow), values(composed, narrow), values(composed, wide))
    for name, ours, theirs, right in zip(("loss", "input", "weight", "bias"), *rows, strict=True):
        error, allowed = (ours - right).abs().max(), (theirs - right).abs().max()
        assert error <= 1.5 * allowed, f"{name}: {error:.1e}, and the composition {allowed:.1e}"


def test_the_peak_does_not_grow_with_the_vocabulary() -> None:
    def extra(loss, classes):
        x, w, _, target = problem(256, 8, classes, dtype=torch.float32)
        peak = peak_bytes(lambda: torch.autograd.grad(loss(x, w, target), (x, w)))
        return peak - x.untyped_storage().nbytes() - w.untyped_storage().nbytes()

    def chunked(*args):
        return linear_cross_entropy(*args, chunk_size=512)

    small, large = (extra(chunked, classes) for classes in (4_096, 32_768))
    assert large < 1.01 * small
    assert large < 2.2 * 256 * 512 * 4
    assert large < extra(composed, 32_768) / 20


def test_a_frozen_weight_costs_no_matmul() -> None:
    x, w, _, target = problem()

    def matmuls(*wanted):
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
            torch.autograd.grad(linear_cross_entropy(x, w, target, chunk_size=11), wanted)
        shapes = [event.input_shapes for event in profiler.events() if event.name == "aten::mm"]
        return sum(0 not in [*left, *right] for left, right in shapes)  # a product over nothing makes zeros

    w.requires_grad_(False)
    frozen = matmuls(x)
    w.requires_grad_(True)
    assert (frozen, matmuls(x, w)) == (3, 4)


@pytest.mark.parametrize("classes", RESULTS["classes"])
def test_the_figures_hold_in_the_stored_results(classes) -> None:
    """4096 tokens of width 1024 in float32, on one core."""
    rows = RESULTS["classes"][classes]
    assert (RESULTS["tokens"], RESULTS["width"]) == (4096, 1024)
    assert rows["ours"]["peak"] <= rows["composed"]["peak"] / 20
    assert rows["ours"]["seconds"] <= 1.3 * rows["composed"]["seconds"]
    assert all(row["difference"] < 1e-6 for row in rows.values())


def test_the_page_says_what_was_measured() -> None:
    text = (ROOT / "examples" / "04_memory" / "linear_cross_entropy.py").read_text()
    lines = [
        f'#    "{int(classes):,}", "{name}", "{row["peak"] / 1e6:,.0f}", "{row["held"] / 1e6:,.2f}", '
        f'"{row["seconds"] / rows["composed"]["seconds"]:.2f}"\n'
        for classes, rows in RESULTS["classes"].items()
        for name, row in rows.items()
    ]
    assert "".join(lines) in text, "the table should be:\n" + "".join(lines)
    assert RESULTS["on"]["device"] in text


@pytest.mark.parametrize(
    ("tokens", "classes", "chunk_size", "sizes"),
    [
        pytest.param(1, CHUNK + 5, None, [CHUNK, 5], id="one token"),
        pytest.param(64, CHUNK // 32, None, [CHUNK // 64] * 2, id="few logits in a chunk"),
        pytest.param(CHUNK, 2 * LEAST, None, [LEAST, LEAST], id="but not too few classes"),
        pytest.param(0, 10, None, [10], id="no token"),
        pytest.param(4, 7, 3, [3, 3, 1], id="as asked for"),
        pytest.param(4, 1, 1, [1], id="one class"),
        pytest.param(4, 0, 3, [0], id="no class"),
    ],
)
def test_a_chunk_has_few_logits(tokens, classes, chunk_size, sizes) -> None:
    found = list(parts(tokens, classes, chunk_size))
    assert [part.stop - part.start for part in found] == sizes
    assert [part.start for part in found] == [sum(sizes[:i]) for i in range(len(sizes))]
