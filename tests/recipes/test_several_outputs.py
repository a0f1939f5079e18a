"""Several outputs: every subset of them used, the bytes of unused ones, ties, and what has no gradient."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.several_outputs import (
    MaxWithIndexFunction,
    SplitSignFunction,
    max_with_index,
    split_sign,
)

NAN = float("nan")


@pytest.mark.parametrize(
    ("weights", "gradient"),
    [((2.0, 0), [0, 0, 0, 2, 2]), ((0, 3.0), [-3, -3, 0, 0, 0]), ((2.0, 3.0), [-3, -3, 0, 2, 2])],
    ids=["first", "second", "both"],
)
def test_split_sign_with_any_of_its_outputs_used(weights, gradient) -> None:
    x = torch.tensor([-5.0, -0.5, 0.0, 0.5, 7.0], dtype=torch.float64, requires_grad=True)
    outputs = split_sign(x)
    assert outputs[0].tolist() == [0, 0, 0, 0.5, 7]
    assert outputs[1].tolist() == [5, 0.5, 0, 0, 0]
    used = [(y, torch.full_like(y, w)) for y, w in zip(outputs, weights, strict=True) if w]
    parts, grads = zip(*used, strict=True)
    assert torch.autograd.grad(parts, x, grads)[0].tolist() == gradient


@pytest.mark.parametrize("used", [slice(0, 1), slice(1, 2), slice(2)], ids=["first", "second", "both"])
def test_split_sign_differentiates_twice_with_any_of_its_outputs_used(used) -> None:
    def function(x):
        return split_sign(x)[used]

    x = torch.tensor([-2.0, -0.5, 0.5, 3.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(function, (x,), atol=1e-6, rtol=1e-5)
    assert gradgradcheck(function, (x,), atol=1e-6, rtol=1e-5)
    (first,) = torch.autograd.grad(sum(y.pow(3).sum() for y in split_sign(x)), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [12, 3, 3, 18]


def test_the_parts_of_a_number_make_it_up() -> None:
    torch.manual_seed(0)
    x = torch.randn(100)
    positive, negative = split_sign(x)
    assert torch.equal(positive - negative, x)
    assert torch.equal(positive * negative, torch.zeros(100))
    assert not negative.signbit().any(), "a zero with a sign"


def test_nan_stays_nan_in_both_parts_and_infinity_in_its_own() -> None:
    positive, negative = split_sign(torch.tensor([NAN, math.inf, -math.inf]))
    torch.testing.assert_close(positive, torch.tensor([NAN, math.inf, 0]), equal_nan=True)
    torch.testing.assert_close(negative, torch.tensor([NAN, 0, math.inf]), equal_nan=True)


def test_an_infinite_gradient_of_one_part_does_not_reach_the_other() -> None:
    """A product with the mask would be NaN."""
    x = torch.tensor([-1.0, 1.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(split_sign(x)[0], x, torch.full((2,), math.inf))
    assert gradient.tolist() == [0, math.inf]


def test_split_sign_refuses_complex_numbers() -> None:
    with pytest.raises(NotImplementedError, match="complex"):
        split_sign(torch.ones(2, dtype=torch.complex64))


@pytest.mark.parametrize("place", [0, 1])
def test_an_unused_output_allocates_no_zeros(place, monkeypatch) -> None:
    x = torch.randn(1000, requires_grad=True)
    ones = torch.ones(1000)

    def peak():
        return peak_bytes(lambda: torch.autograd.grad(split_sign(x)[place], x, ones))

    without = peak()

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    monkeypatch.setattr(SplitSignFunction, "setup_context", staticmethod(setup_context))
    assert peak() - without >= 4000


def test_split_sign_keeps_nothing_and_two_rectifiers_keep_two_outputs() -> None:
    x = torch.randn(1000, requires_grad=True)
    assert saved_bytes(split_sign, x) == 0
    assert saved_bytes(lambda x: (x.relu(), (-x).relu()), x) == 8000


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_max_with_index_agrees_with_torch_ties_included(dim, keepdim, dtype) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 3, (3, 4, 5)).to(dtype).requires_grad_()
    ours, theirs = max_with_index(x, dim, keepdim), torch.max(x, dim, keepdim)
    for a, e in zip(ours, theirs, strict=True):
        assert torch.equal(a, e)
        assert a.dtype is e.dtype
    weights = torch.rand_like(theirs[0])
    assert torch.equal(torch.autograd.grad(ours[0], x, weights)[0], torch.autograd.grad(theirs[0], x, weights)[0])


@pytest.mark.parametrize("dim", [0, -1])
def test_max_with_index_of_one_number(dim) -> None:
    x = torch.tensor(3.0, requires_grad=True)
    values, index = max_with_index(x, dim)
    assert (values.item(), index.item()) == (3, 0)
    values.backward(torch.tensor(7.0))
    assert x.grad.item() == 7


def test_the_index_has_no_gradient_and_says_so() -> None:
    _, index = max_with_index(torch.randn(2, 3, requires_grad=True))
    assert not index.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        index.backward(torch.ones(2))


def test_the_index_gets_no_zeros() -> None:
    """Without set_materialize_grads(False), backward is handed zeros for it: 8 bytes a row for nothing."""
    seen = []

    class Spy(MaxWithIndexFunction):
        @staticmethod
        def backward(ctx, *grads):
            seen.append(grads)
            return MaxWithIndexFunction.backward(ctx, *grads)

    class Materialized(Spy):
        @staticmethod
        def setup_context(ctx, inputs, output):
            MaxWithIndexFunction.setup_context(ctx, inputs, output)
            ctx.set_materialize_grads(True)

    x = torch.randn(5, 3, requires_grad=True)
    for function in (Spy, Materialized):
        function.apply(x, 1, False)[0].sum().backward()
    assert seen[0][1] is None
    assert seen[1][1].dtype is torch.int64
    assert seen[1][1].untyped_storage().nbytes() == 5 * 8


@pytest.mark.parametrize("function", [split_sign, max_with_index])
def test_no_gradient_at_all_is_a_legal_call_of_backward(function) -> None:
    """As it comes from a node behind, that has none to give."""
    x = torch.randn(3, requires_grad=True)
    outputs = [torch._C._functions.UndefinedGrad()(y) for y in function(x) if y.requires_grad]
    assert torch.autograd.grad(outputs, x, [torch.ones_like(y) for y in outputs], allow_unused=True) == (None,)


def test_max_with_index_keeps_the_index_alone() -> None:
    x = torch.randn(50, 20, requires_grad=True)
    assert saved_bytes(lambda x: max_with_index(x, 1), x) == 50 * 8


@pytest.mark.parametrize(
    ("shape", "dim", "message"), [((2, 3), 2, "got 2"), ((2, 3), -3, "got -3"), ((2, 0), 1, "non-zero size")]
)
def test_a_bad_dim_raises_what_torch_raises(shape, dim, message) -> None:
    with pytest.raises(IndexError, match=message):
        max_with_index(torch.ones(shape), dim)
    with pytest.raises(IndexError):
        torch.max(torch.ones(shape), dim)
