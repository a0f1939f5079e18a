"""Functions that keep their arguments alone."""

import pytest
import torch
from torch.nn import functional as F

from autograd_cookbook.auditing import audit, held_bytes, saved_bytes
from autograd_cookbook.recipes.row_reduction import fused_rms_norm
from autograd_cookbook.recipes.selective_saving import gelu_linear, rms_norm, swiglu_linear
from tests.support import assert_agrees_with_float64, normal


def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype).requires_grad_()


CALLS = {
    "gelu_linear": (gelu_linear, lambda: (leaf(50, 20), leaf(7, 20), leaf(7))),
    "swiglu_linear": (swiglu_linear, lambda: (leaf(50, 20), leaf(50, 20), leaf(7, 20))),
    "rms_norm": (rms_norm, lambda: (leaf(50, 20), leaf(20))),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_is_kept_beyond_the_arguments(name, dtype) -> None:
    function, make = CALLS[name]
    args = [a.detach().to(dtype).requires_grad_() for a in make()]
    assert saved_bytes(function, *args) == 0
    assert held_bytes(function, *args) == function(*args).untyped_storage().nbytes()


def test_what_torch_keeps() -> None:
    """If this changes, so does what the page says."""
    x, w, _ = CALLS["gelu_linear"][1]()
    assert saved_bytes(lambda x, w: F.linear(F.gelu(x), w), x, w) == 4 * x.numel()
    gate, up, w = CALLS["swiglu_linear"][1]()
    assert saved_bytes(lambda g, u, w: F.linear(F.silu(g) * u, w), gate, up, w) == 8 * gate.numel()
    x, w = CALLS["rms_norm"][1]()
    assert saved_bytes(lambda x, w: F.rms_norm(x, (20,), w, 1e-6), x, w) == 4 * x.numel() + 4 * 50


@pytest.mark.parametrize("name", CALLS)
def test_only_gradients_that_are_asked_for(name) -> None:
    function, make = CALLS[name]
    args = make()
    expected = torch.autograd.grad(function(*args).square().sum(), args)
    for k, arg in enumerate(args):
        alone = [a if i == k else a.detach() for i, a in enumerate(args)]
        (found,) = torch.autograd.grad(function(*alone).square().sum(), arg)
        torch.testing.assert_close(found, expected[k])


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_linear_takes_both_forms(approximate) -> None:
    x, w = leaf(6, 5, dtype=torch.float64), leaf(3, 5, dtype=torch.float64)
    ours = gelu_linear(x, w, None, approximate)
    theirs = F.linear(F.gelu(x, approximate=approximate), w)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), (x, w)) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b)
    other = gelu_linear(x, w, None, "tanh" if approximate == "none" else "none")
    assert not torch.equal(ours, other)


def test_gelu_linear_refuses_another_form() -> None:
    with pytest.raises(RuntimeError, match="approximate"):
        gelu_linear(leaf(2, 3), leaf(4, 3), None, "sigmoid")


@pytest.mark.parametrize(
    ("function", "shapes"), [(gelu_linear, [(2, 3), (4, 5)]), (swiglu_linear, [(2, 3), (2, 3), (4, 5)])]
)
def test_weights_that_do_not_fit(function, shapes) -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        function(*(leaf(*shape) for shape in shapes))


def test_gate_and_up_must_be_alike() -> None:
    with pytest.raises(RuntimeError, match=r"shape of gate, \(2, 3\), got \(3,\)"):
        swiglu_linear(leaf(2, 3), leaf(3), leaf(4, 3))
    with pytest.raises(TypeError, match=r"real floating gate, got torch\.complex64"):
        swiglu_linear(*(leaf(2, 2, dtype=torch.complex64) for _ in range(3)))


@pytest.mark.parametrize("function", [gelu_linear, swiglu_linear])
def test_gradients_under_autocast(function) -> None:
    """What is saved is in float32 and the gradient that arrives in bfloat16."""
    args = CALLS[function.__name__][1]()
    with torch.autocast("cpu", torch.bfloat16):
        y = function(*args)
    assert y.dtype is torch.bfloat16
    found = torch.autograd.grad(y.float().sum(), args)
    expected = torch.autograd.grad(function(*args).sum(), args)
    for f, e in zip(found, expected, strict=True):
        assert f.dtype is torch.float32
        assert float((f - e).norm() / e.norm()) < 0.02


def test_rms_norm_by_hand() -> None:
    """One row (3, 4): its mean square is 12.5."""
    x = torch.tensor([[3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    w = torch.tensor([2.0, 5.0], dtype=torch.float64, requires_grad=True)
    y = rms_norm(x, w, 0.0)
    r = 12.5**0.5
    assert y.tolist()[0] == pytest.approx([6 / r, 20 / r])
    grad_x, grad_w = torch.autograd.grad(y[0, 0], (x, w))
    # d(2 x / r)/dx = 2/r - 2 x²/(2 r³), d/dy = -2 x y/(2 r³)
    assert grad_x.tolist()[0] == pytest.approx([2 / r - 9 / r**3, -12 / r**3])
    assert grad_w.tolist() == pytest.approx([3 / r, 0.0])


def test_a_row_of_zeros_has_finite_derivatives() -> None:
    x = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(rms_norm(x, torch.ones(4, dtype=torch.float64), 1e-6).sum(), x, create_graph=True)
    assert first.tolist()[0] == pytest.approx([1000.0] * 4)
    (second,) = torch.autograd.grad(first[0, 0], x)
    assert second.tolist()[0] == [0.0] * 4


def test_float16_is_computed_in_float32() -> None:
    """Squares of 300 overflow in float16."""
    x = torch.full((1, 8), 300.0, dtype=torch.float16, requires_grad=True)
    w = torch.ones(8, dtype=torch.float16, requires_grad=True)
    y = rms_norm(x, w)
    assert y.dtype is torch.float16
    assert y.tolist()[0] == [1.0] * 8
    y.sum().backward()
    assert x.grad.isfinite().all()
    assert w.grad.tolist() == [1.0] * 8


@pytest.mark.parametrize(
    ("x", "w", "error", "message"),
    [
        (torch.ones(2, 3), torch.ones(4), RuntimeError, r"weight of shape \(3,\), got \(4,\)"),
        (torch.ones(()), torch.ones(()), RuntimeError, r"weight of shape \(\), got \(\)"),
        (torch.ones(2, 3, dtype=torch.int64), torch.ones(3), TypeError, "real floating input, got torch.int64"),
        (torch.ones(3, dtype=torch.complex64), torch.ones(3), TypeError, "got torch.complex64"),
    ],
)
def test_rms_norm_refuses(x, w, error, message) -> None:
    with pytest.raises(error, match=message):
        rms_norm(x, w)


def test_a_penalty_on_the_gradient_trains_as_with_the_built_in() -> None:
    x, w = leaf(3, 4, dtype=torch.float64), leaf(4, dtype=torch.float64)
    results = []
    for function in (rms_norm, lambda x, w: F.rms_norm(x, (4,), w, 1e-6)):
        gradients = torch.autograd.grad(function(x, w).square().sum(), (x, w), create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in gradients), (x, w)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_audit_with_a_frozen_weight() -> None:
    args = (leaf(4, 3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    audit(rms_norm, args, skip=["compile"]).raise_for_findings()


def test_the_slope_of_a_large_activation_is_one() -> None:
    """torch computes that of the tanh form from a cube, and inf times 0 is NaN."""
    x, weight = torch.tensor([[1e13, -1e13, 1e30, -1e30, 3.0]]), torch.tensor([[1.0, 2.0, 0.5, 1.0, 1.0]])
    for dtype in (torch.float32, torch.bfloat16):
        leaf = x.to(dtype).requires_grad_()
        (found,) = torch.autograd.grad(gelu_linear(leaf, weight.to(dtype), None, "tanh"), leaf)
        assert found[0, :4].tolist() == [1.0, 0.0, 0.5, 0.0]
        assert 1 <= float(found[0, 4]) < 1.02


def test_a_weight_times_a_gradient_may_be_more_than_float16_has() -> None:
    weight = torch.full((512,), 50.0, dtype=torch.float64, requires_grad=True)
    x = (1000 * normal(1, 512)).requires_grad_()
    for ours in (rms_norm, fused_rms_norm):
        assert_agrees_with_float64(
            ours, [x, weight, 1e-6], torch.float16, lambda x, w, eps: F.rms_norm(x, (512,), w, eps), 4e-3, 4096.0
        )
