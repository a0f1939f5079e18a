"""Matrix products: all pairs of shapes, the bytes of a shared weight, and what a mask hides."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.matmul import MaskedLinearFunction, MatmulFunction, masked_linear, matmul

sizes = st.integers(0, 3)
batches = st.lists(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2), (0, 1), (1, 0)]), max_size=2)


@given(st.data(), sizes, sizes, sizes, batches)
def test_matmul_agrees_with_torch_on_any_two_shapes(data, n, k, m, batch) -> None:
    """Batch dimensions that broadcast, also where one factor has fewer of them; vectors on either side."""
    left, right = (tuple(pair[i] for pair in batch) for i in (0, 1))
    left, right = left[data.draw(st.integers(0, len(left))) :], right[data.draw(st.integers(0, len(right))) :]
    left, right = (*left, n, k), (*right, k, m)
    left, right = data.draw(st.sampled_from([left, (k,)])), data.draw(st.sampled_from([right, (k,)]))
    pair = [torch.randn(shape, dtype=torch.complex128, requires_grad=True) for shape in (left, right)]
    ours, theirs = matmul(*pair), torch.matmul(*pair)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    weights = torch.randn_like(theirs)
    for a, e in zip(torch.autograd.grad(ours, pair, weights), torch.autograd.grad(theirs, pair, weights), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("left", "right"), [((2, 3), (2, 3)), ((3,), (2,)), ((2, 2, 3), (3, 3, 2)), ((), (3,)), ((2, 3), ())]
)
def test_matmul_refuses_what_torch_refuses(left, right) -> None:
    with pytest.raises(RuntimeError) as theirs:
        torch.matmul(torch.ones(left), torch.ones(right))
    with pytest.raises(RuntimeError) as ours:
        matmul(torch.ones(left), torch.ones(right))
    assert str(ours.value) == str(theirs.value)


def test_matmul_refuses_two_dtypes() -> None:
    with pytest.raises(RuntimeError, match="same dtype"):
        matmul(torch.ones(2, 2), torch.ones(2, 2).double())


def test_matmul_multiplies_integers() -> None:
    assert matmul(torch.tensor([[1, 2]]), torch.tensor([3, 4])).tolist() == [11]


@pytest.mark.parametrize("left_is_shared", [False, True])
def test_a_shared_factor_has_no_gradient_per_batch_element(left_is_shared) -> None:
    """Exact bytes at the worst moment: far below one gradient for each of the 50 elements."""
    shared, batch = torch.randn(40, 40, requires_grad=True), torch.randn(50, 2, 40)
    args = (shared, batch.mT) if left_is_shared else (batch, shared)

    def peak(product):
        return peak_bytes(lambda: torch.autograd.grad(product(*args).sum(), shared))

    assert peak(matmul) <= peak(torch.matmul)
    assert peak(matmul) < 50 * shared.untyped_storage().nbytes() / 2


def test_the_frozen_factor_costs_no_gradient() -> None:
    batch, weight = torch.ones(1, 1000), torch.ones(1000, 1000)

    def peak(*wanted):
        for tensor in (batch, weight):
            tensor.requires_grad_(any(tensor is w for w in wanted))
        return peak_bytes(lambda: torch.autograd.grad(matmul(batch, weight).sum(), wanted))

    assert peak(batch) < weight.untyped_storage().nbytes() <= peak(batch, weight)


def test_nothing_is_saved_beyond_the_arguments() -> None:
    x, w, b = torch.ones(2, 3, requires_grad=True), torch.ones(5, 3, requires_grad=True), torch.ones(5)
    mask = torch.ones(5, 3, dtype=torch.bool)
    assert saved_bytes(matmul, x, w.mT) == 0
    assert saved_bytes(masked_linear, x, w, mask, b) == 0
    assert saved_bytes(lambda *args: F.linear(args[0], args[1] * args[2]), x, w, mask) == 5 * 3 * 4


def test_under_autocast_gradients_keep_full_precision() -> None:
    """Forward returns bfloat16 there, and backward meets float32 factors."""
    x, w = torch.randn(2, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    for product in (lambda x, w: matmul(x, w.mT), lambda x, w: masked_linear(x, w, torch.ones_like(w).bool())):
        with torch.autocast("cpu", torch.bfloat16):
            y = product(x, w)
        assert y.dtype is torch.bfloat16
        for got, expected in zip(
            torch.autograd.grad(y, (x, w), torch.ones_like(y)),
            torch.autograd.grad((x @ w.mT).sum(), (x, w)),
            strict=True,
        ):
            assert torch.equal(got, expected)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_masked_weight_may_be_anything(value) -> None:
    """A product with the mask would make NaN of it, in the output and in the gradient of the input."""
    w = torch.tensor([[value, 2.0], [3.0, -value]], requires_grad=True)
    mask = torch.tensor([[False, True], [True, False]])
    x = torch.tensor([[5.0, 7.0]], requires_grad=True)
    y = masked_linear(x, w, mask)
    assert y.tolist() == [[14.0, 15.0]]
    y.backward(torch.tensor([[1.0, 10.0]]))
    assert x.grad.tolist() == [[30.0, 2.0]]
    assert w.grad.tolist() == [[0.0, 7.0], [50.0, 0.0]]


def test_a_masked_weight_has_gradient_zero_even_from_infinite_ones() -> None:
    w = torch.ones(1, 2, requires_grad=True)
    x = torch.tensor([[1.0, float("inf")]])
    masked_linear(x, w, torch.tensor([[True, False]])).sum().backward()
    assert w.grad.tolist() == [[1.0, 0.0]]


def test_complex_masked_linear_agrees_with_torch() -> None:
    args = [torch.randn(shape, dtype=torch.complex128, requires_grad=True) for shape in ((2, 4, 3), (5, 3), (5,))]
    mask = torch.rand(5, 3) < 0.5
    ours, theirs = masked_linear(*args[:2], mask, args[2]), F.linear(args[0], args[1] * mask, args[2])
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    weights = torch.randn_like(theirs)
    for a, e in zip(torch.autograd.grad(ours, args, weights), torch.autograd.grad(theirs, args, weights), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("place", [0, 1, 2], ids=["input", "weight", "bias"])
def test_masked_linear_with_one_gradient_wanted(place) -> None:
    args = [torch.full(shape, value) for shape, value in (((4, 3), 2.0), ((5, 3), 3.0), ((5,), 1.0))]
    args[place].requires_grad_()
    mask = torch.tensor([True, False, True]).expand(5, 3)
    masked_linear(*args[:2], mask, args[2]).sum().backward()
    expected = [[15.0, 0.0, 15.0], [8.0, 0.0, 8.0], 4.0][place]
    assert torch.equal(args[place].grad, torch.tensor(expected).expand(args[place].shape))


def test_gradients_have_the_shapes_of_their_inputs() -> None:
    """As backward returns them, before the engine sums what is too large, and says nothing."""
    seen = []

    class Spy(MatmulFunction):
        @staticmethod
        def backward(ctx, grad_output):
            seen.extend(MatmulFunction.backward(ctx, grad_output))
            return tuple(seen[-2:])

    shapes = [((3,), (3,)), ((3,), (4, 3, 2)), ((2, 3), (3,)), ((4, 2, 3), (3, 2)), ((1, 2, 3), (5, 3, 2))]
    for pair in shapes:
        args = [torch.randn(shape, requires_grad=True) for shape in pair]
        Spy.apply(*args).sum().backward()
        assert [tuple(g.shape) for g in seen[-2:]] == list(pair)


def test_the_gradient_of_the_bias_has_its_shape() -> None:
    """Not one for each row, which the engine would sum in silence."""
    seen = []

    class Spy(MaskedLinearFunction):
        @staticmethod
        def backward(ctx, grad_output):
            seen.extend(MaskedLinearFunction.backward(ctx, grad_output))
            return tuple(seen)

    args = [torch.randn(shape, requires_grad=True) for shape in ((4, 3), (5, 3), (5,))]
    Spy.apply(*args[:2], torch.ones(5, 3).bool(), args[2], torch.float32).sum().backward()
    assert seen[3].shape == (5,)


def test_training_leaves_masked_weights_where_they_are() -> None:
    torch.manual_seed(0)
    w, mask = torch.randn(4, 3, requires_grad=True), torch.rand(4, 3) < 0.5
    before = w.detach().clone()
    optimizer = torch.optim.Adam([w], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        masked_linear(torch.randn(5, 3), w, mask).square().sum().backward()
        optimizer.step()
    assert torch.equal(w[~mask], before[~mask])
    assert (w[mask] != before[mask]).all()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        pytest.param({"mask": torch.ones(5, 3)}, TypeError, "bool mask, got torch.float32", id="float mask"),
        pytest.param({"mask": torch.ones(5, 3).int()}, TypeError, "got torch.int32", id="int mask"),
        pytest.param({"mask": torch.ones(3).bool()}, RuntimeError, r"\(5, 3\), got \(3,\)", id="shape of the mask"),
        pytest.param({"bias": torch.ones(1)}, RuntimeError, r"\(5,\), got \(1,\)", id="shape of the bias"),
        pytest.param({"bias": torch.ones(5).double()}, RuntimeError, "float32, got torch.float64", id="dtype"),
        pytest.param({"input": torch.ones(2, 4)}, RuntimeError, "2x4 and 3x5", id="features"),
        pytest.param({"input": torch.ones(2, 3).double()}, RuntimeError, "expected weight of", id="dtype of the input"),
    ],
)
def test_bad_input_is_named(arguments, error, message) -> None:
    good = {"input": torch.ones(2, 3), "weight": torch.ones(5, 3), "mask": torch.ones(5, 3).bool()}
    with pytest.raises(error, match=message):
        masked_linear(**(good | arguments))
