"""Cross-entropy and softmax: what is special beyond the catalog's own tests."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.cross_entropy import cross_entropy, softmax

SURVIVORS = {
    "CrossEntropyFunction.backward: 0.0 -> 1.0": "what stands in an ignored row is multiplied by 0",
    "CrossEntropyFunction.backward: total.masked_fill(total == 0, {1 -> 2})": (
        "where the weights sum to 0 each of them is 0"
    ),
}

INF = float("inf")
NAN = float("nan")


def leaf(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def derivatives(loss, x):
    """Loss, gradient of its sum of squares, and a second derivative along an uneven direction."""
    (first,) = torch.autograd.grad(loss.square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first * torch.arange(1.0, x.numel() + 1).to(first).view_as(x)).sum(), x)
    return loss, first, second


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 5, 3), (2, 5, 2, 2)])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy_agrees_with_torch_in_all_options(shape, reduction) -> None:
    torch.manual_seed(0)
    targets = [*shape[:1], *shape[2:]] if len(shape) > 1 else []
    for weighted, smoothing, ignored in itertools.product((False, True), (0.0, 0.3, 1.0), (-100, 2)):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        target = torch.randint(5, targets)
        options = {
            "weight": torch.rand(5, dtype=torch.float64) if weighted else None,
            "ignore_index": ignored,
            "reduction": reduction,
            "label_smoothing": smoothing,
        }
        ours, theirs = (derivatives(f(x, target, **options), x) for f in (cross_entropy, F.cross_entropy))
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13, equal_nan=True)


@pytest.mark.parametrize("shape", [(2, 1), (2, 0), (0, 3), (0, 0)], ids=str)
def test_one_class_no_class_and_no_row_are_as_in_torch(shape) -> None:
    target = torch.full(shape[:1], -100)
    target[: shape[1]] = 0  # of no class there is none
    results = []
    for function in (cross_entropy, F.cross_entropy):
        x = torch.ones(shape, dtype=torch.float64, requires_grad=True)
        loss = function(x, target, label_smoothing=0.25)
        loss.backward()
        results.append((loss.detach(), x.grad))
    torch.testing.assert_close(*results, equal_nan=True)


def test_targets_of_one_byte_are_indices_and_no_mask() -> None:
    x, weight = torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.rand(4, dtype=torch.float64)
    target = torch.tensor([0, 3, 2], dtype=torch.uint8)
    ours, theirs = (torch.autograd.grad(f(x, target, weight), x)[0] for f in (cross_entropy, F.cross_entropy))
    torch.testing.assert_close(ours, theirs)


def test_cross_entropy_with_weights_passes_gradcheck() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([0.5, 2.0, 0.0, 1.0], dtype=torch.float64)
    target = torch.tensor([0, 1, 3])
    for smoothing in (0.0, 0.2):
        assert gradcheck(lambda x, s=smoothing: cross_entropy(x, target, weight, label_smoothing=s), (x,), rtol=1e-6)
        assert gradgradcheck(lambda x, s=smoothing: cross_entropy(x, target, weight, label_smoothing=s), (x,))


def test_cross_entropy_under_vmap_over_targets_alone() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=torch.float64)
    targets = torch.tensor([[0, 1, 2], [3, -100, 0]])
    batched = torch.func.vmap(torch.func.grad(cross_entropy), in_dims=(None, 0))(x, targets)
    expected = torch.stack([torch.func.grad(F.cross_entropy)(x, t) for t in targets])
    torch.testing.assert_close(batched, expected)


@pytest.mark.parametrize("row", [[-INF, -INF, -INF], [NAN, 0.0, 0.0], [INF, 0.0, 1.0]])
def test_an_ignored_row_may_hold_anything(row) -> None:
    x = leaf([row, [0.0, 1.0, 2.0]])
    loss, first, second = derivatives(cross_entropy(x, torch.tensor([-100, 1])), x)
    alone = x[1:].detach().requires_grad_()
    expected = derivatives(F.cross_entropy(alone, torch.tensor([1])), alone)
    torch.testing.assert_close((loss, first[1:]), expected[:2])
    assert first[0].tolist() == second[0].tolist() == [0, 0, 0]
    assert second.isfinite().all()
    theirs = torch.autograd.grad(F.cross_entropy(x, torch.tensor([-100, 1])), x)[0]
    assert theirs[0].isnan().any(), "torch has learned it: say so on the page"


def test_a_masked_class_has_probability_and_gradient_0() -> None:
    x = leaf([[0.0, -INF, 1.0]])
    loss, first, second = derivatives(cross_entropy(x, torch.tensor([0])), x)
    pair = leaf([[0.0, 1.0]])
    expected = derivatives(F.cross_entropy(pair, torch.tensor([0])), pair)
    assert loss.item() == pytest.approx(expected[0].item(), rel=1e-12)
    assert first[0].tolist() == pytest.approx([expected[1][0, 0].item(), 0.0, expected[1][0, 1].item()], rel=1e-12)
    assert second.isfinite().all()
    assert second[0, 1] == 0


def test_a_target_that_is_masked_costs_infinitely_much() -> None:
    x = leaf([[0.0, -INF]])
    loss = cross_entropy(x, torch.tensor([1]))
    loss.backward()
    assert loss.item() == INF
    assert x.grad.tolist() == [[1.0, -1.0]]


def test_a_margin_of_any_size() -> None:
    x = leaf([[0.0, 1e30]])
    loss = cross_entropy(x, torch.tensor([0]))
    loss.backward()
    assert loss.item() == 1e30
    assert x.grad.tolist() == [[-1.0, 1.0]]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_mean_over_nothing_is_nan_with_gradient_0_as_in_torch(smoothing) -> None:
    for function in (cross_entropy, F.cross_entropy):
        x = leaf([[0.0, 1.0]])
        loss = function(x, torch.tensor([-100]), label_smoothing=smoothing)
        loss.backward()
        assert loss.isnan()
        assert x.grad.tolist() == [[0.0, 0.0]]


def test_the_mean_over_nothing_has_a_finite_derivative_by_what_comes_back() -> None:
    x, weight = leaf([[0.0, 1.0]]), leaf(2.0)
    loss = cross_entropy(x, torch.tensor([-100]))
    (gradient,) = torch.autograd.grad(loss, x, weight, create_graph=True)
    assert torch.autograd.grad(gradient.sum(), weight)[0].item() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_mean_in_half_precision_is_summed_in_single(dtype) -> None:
    torch.manual_seed(0)
    x = (3 * torch.randn(2048, 64)).to(dtype).requires_grad_()
    target = torch.randint(64, (2048,))
    exact = x.detach().double().requires_grad_()
    expected = F.cross_entropy(exact, target)
    expected.backward()
    loss = cross_entropy(x, target)
    loss.backward()
    assert loss.dtype is x.grad.dtype is dtype
    torch.testing.assert_close(loss.double(), expected, rtol=torch.finfo(dtype).eps, atol=0)
    # One rounding of each entry: below the smallest normal number it is absolute.
    torch.testing.assert_close(
        x.grad.double(), exact.grad, rtol=torch.finfo(dtype).eps, atol=torch.finfo(dtype).smallest_normal * 2**-10
    )


def test_cross_entropy_keeps_nothing_and_peaks_at_two_thirds_of_torch() -> None:
    x = torch.randn(200, 500, requires_grad=True)
    target = torch.randint(500, (200,))
    size = x.numel() * 4
    assert saved_bytes(cross_entropy, x, target) == 0
    assert size <= saved_bytes(F.cross_entropy, x, target) < 1.1 * size
    ours, theirs = (peak_bytes(lambda f=f: f(x, target).backward()) for f in (cross_entropy, F.cross_entropy))
    assert ours < 2.1 * size
    assert theirs > 2.9 * size


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"target": torch.tensor([0, 3])}, IndexError, "Target 3 is out of bounds"),
        ({"target": torch.tensor([0, -1])}, IndexError, "Target -1 is out of bounds"),
        ({"target": torch.tensor([0])}, ValueError, r"batch_size \(2\) to match target batch_size \(1\)"),
        ({"reduction": "average"}, ValueError, "average is not a valid value for reduction"),
        ({"label_smoothing": 1.5}, RuntimeError, "between 0.0 and 1.0. Got: 1.5"),
        ({"weight": torch.ones(2)}, RuntimeError, "all 3 classes"),
        ({"weight": torch.ones(3, requires_grad=True)}, RuntimeError, "does not require grad"),
        ({"target": torch.rand(2, 3)}, TypeError, "got probabilities of torch.float32"),
        ({"input": torch.ones(2, 3, dtype=torch.int64)}, TypeError, "got torch.int64"),
        ({"input": torch.ones(2, 3, dtype=torch.complex64)}, TypeError, "got torch.complex64"),
    ],
)
def test_bad_input(arguments, error, message) -> None:
    given = {"input": torch.ones(2, 3), "target": torch.tensor([0, 1])} | arguments
    with pytest.raises(error, match=message):
        cross_entropy(**given)


@pytest.mark.parametrize(
    ("values", "output", "gradient"),
    [
        ([-INF, -INF], [0.0, 0.0], [0.0, 0.0]),
        ([-INF, 0.0], [0.0, 1.0], [0.0, 0.0]),
        ([INF, 0.0], [1.0, 0.0], [0.0, 0.0]),
        ([INF, INF, 5.0], [0.5, 0.5, 0.0], [-0.25, 0.25, 0.0]),
        ([1000.0, 1000.0], [0.5, 0.5], [-0.25, 0.25]),
    ],
)
def test_softmax_at_infinity(values, output, gradient) -> None:
    x = leaf(values)
    y = softmax(x, 0)
    assert y.tolist() == output
    (first,) = torch.autograd.grad(y @ torch.arange(1.0, len(values) + 1).double(), x, create_graph=True)
    assert first.tolist() == pytest.approx(gradient, abs=1e-15)
    assert torch.autograd.grad(first[0], x)[0].isfinite().all()


def test_softmax_passes_nan_on_and_keeps_other_rows() -> None:
    x = torch.tensor([[NAN, 0.0], [-INF, -INF], [0.0, 0.0]])
    y = softmax(x, 1)
    assert y[0].isnan().all()
    assert y[1:].tolist() == [[0.0, 0.0], [0.5, 0.5]]


def test_softmax_keeps_its_output_alone() -> None:
    x = torch.randn(50, 20, requires_grad=True)
    assert saved_bytes(lambda x: softmax(x, 1), x) == x.numel() * 4


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_softmax_of_other_numbers_raises(dtype) -> None:
    with pytest.raises(TypeError, match=f"got {dtype}"):
        softmax(torch.ones(2, 3, dtype=dtype))
    with pytest.raises(IndexError, match=r"\[-2, 1\], but got 2"):
        softmax(torch.ones(2, 3), 2)
