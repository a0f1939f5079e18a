"""Straight-through estimators: values of the step function, the gradient of what stands in, dtypes kept."""

import pytest
import torch
from torch.autograd import gradcheck

from autograd_cookbook.auditing import audit, saved_bytes
from autograd_cookbook.recipes.straight_through import binarize, round_ste, sign_ste

INF, NAN = float("inf"), float("nan")
ALL = [round_ste, sign_ste, binarize]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def every(dtype: torch.dtype) -> torch.Tensor:
    """All 16-bit numbers, infinities and NaN among them."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (round_ste, [-INF, -2.0, -2.0, -1.0, -0.0, 0.0, 0.0, 1.0, 2.0, 2.0, INF]),
        (sign_ste, [-1.0, -1.0, -1.0, -1.0, -1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        (binarize, [-1.0, -1.0, -1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_values(function, values) -> None:
    x = torch.tensor([-INF, -2.5, -1.5, -1.0, -0.2, 0.0, 0.2, 1.0, 1.5, 2.5, INF])
    assert function(x).tolist() == values


def test_zero_has_a_side_or_none_whatever_its_sign() -> None:
    zeros = torch.tensor([0.0, -0.0])
    assert sign_ste(zeros).tolist() == [0.0, 0.0]
    assert binarize(zeros).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("function", [round_ste, binarize])
def test_nan_stays_nan(function) -> None:
    assert function(torch.tensor([NAN, 1.0])).isnan().tolist() == [True, False]


@pytest.mark.parametrize("function", [round_ste, sign_ste])
def test_the_gradient_is_that_of_the_identity_everywhere(function) -> None:
    x = torch.tensor([-INF, -2.5, -1.0, 0.0, 0.5, 1.0, 7.0, INF, NAN], requires_grad=True)
    grad = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0, INF, 7.0, 8.0, 9.0])
    assert torch.equal(torch.autograd.grad(function(x), x, grad)[0], grad)


def test_binarize_has_a_gradient_from_minus_one_to_one_with_both_ends() -> None:
    above = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0)).item()
    x = torch.tensor([-INF, -above, -1.0, -0.3, -0.0, 0.0, 1.0, above, INF, NAN], requires_grad=True)
    (grad,) = torch.autograd.grad(binarize(x), x, torch.full((10,), -3.0))
    assert grad.tolist() == [0, 0, -3, -3, -3, -3, -3, 0, 0, 0]
    (grad,) = torch.autograd.grad(binarize(x), x, torch.full((10,), INF))
    assert grad.tolist() == [0, 0, INF, INF, INF, INF, INF, 0, 0, 0]


@pytest.mark.parametrize("function", ALL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_dtype_is_kept_by_backward_itself(function, dtype) -> None:
    """By the time that autograd hands a gradient out, it has cast it and hidden a wrong dtype."""
    x = torch.tensor([-0.4, 0.6, 3.0], dtype=dtype, requires_grad=True)
    y = function(x)
    assert y.dtype is dtype
    assert y.grad_fn.apply(torch.ones_like(y)).dtype is dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_all_numbers_of_16_bits(dtype) -> None:
    x = every(dtype)
    finite = x[x.isfinite()]
    assert torch.equal(round_ste(finite), finite.round())
    assert torch.equal(sign_ste(finite), finite.sign())
    assert torch.equal(binarize(finite), torch.where(finite < 0, -torch.ones_like(finite), 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_compositions_get_wrong_among_them(dtype) -> None:
    """The page says so: rounding survives in one order of the terms, the sign in neither."""
    x = every(dtype)
    x = x[x.isfinite()]
    assert torch.equal(x + (x.round() - x), x.round())
    assert not torch.equal(x.round() + x - x, x.round())
    wrong = x + (x.sign() - x) != x.sign()
    assert x[wrong].abs().min() > 1 / torch.finfo(dtype).eps
    assert wrong.float().mean() > 0.1


@pytest.mark.parametrize("function", ALL)
def test_gradcheck_does_not_agree_and_the_audit_does(function) -> None:
    x = torch.tensor([-0.7, -0.2, 0.3, 0.8], dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(function, (x,))
    declared = {binarize: lambda x: torch.where(x.abs() <= 1, x, 0)}.get(function, lambda x: x * 1)
    audit(function, (x,), surrogate=declared, skip=["compile"]).raise_for_findings()


def test_the_audit_tells_the_window_from_none() -> None:
    x = torch.tensor([-1.7, -0.2, 0.3, 1.8], dtype=torch.float64, requires_grad=True)
    assert not audit(binarize, (x,), surrogate=lambda x: x * 1, only=["first_order"]).ok
    assert not audit(sign_ste, (x,), surrogate=lambda x: x.clamp(-1, 1), only=["first_order"]).ok


@pytest.mark.parametrize(("function", "second"), [(round_ste, 2.0), (sign_ste, 2.0)])
def test_a_second_derivative_passes_straight_through_too(function, second) -> None:
    x = torch.tensor([0.7, -3.2], requires_grad=True)
    (first,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
    assert torch.equal(first, 2 * function(x))
    assert torch.autograd.grad(first.sum(), x)[0].tolist() == [second, second]


def test_a_second_derivative_of_binarize_is_masked_alike() -> None:
    x = torch.tensor([0.7, -3.2], requires_grad=True)
    (first,) = torch.autograd.grad(binarize(x).square().sum(), x, create_graph=True)
    assert first.tolist() == [2.0, 0.0]
    assert torch.autograd.grad(first.sum(), x)[0].tolist() == [2.0, 0.0]


@pytest.mark.parametrize("function", ALL)
def test_nothing_is_kept_beyond_the_input(function) -> None:
    assert saved_bytes(function, torch.randn(1000, requires_grad=True)) == 0


@pytest.mark.parametrize(("function", "error"), [(round_ste, RuntimeError), (sign_ste, RuntimeError)])
def test_complex_numbers_are_refused_as_torch_refuses_them(function, error) -> None:
    with pytest.raises(error):
        function(torch.ones(2, dtype=torch.complex64))


def test_complex_numbers_have_no_sign() -> None:
    with pytest.raises(TypeError, match=r"got torch\.complex64"):
        binarize(torch.ones(2, dtype=torch.complex64))


def test_a_weight_of_one_bit_learns_with_it_and_not_without() -> None:
    torch.manual_seed(0)
    x = torch.randn(200, 12)
    signs = torch.tensor([1.0, -1.0] * 6)
    losses = {}
    for function in (binarize, sign_ste, torch.sign):
        weight = torch.linspace(-0.9, 0.8, 12, requires_grad=True)
        for _ in range(100):
            loss = ((x @ function(weight)) - x @ signs).square().mean()
            (grad,) = torch.autograd.grad(loss, weight)
            with torch.no_grad():
                weight -= 0.01 * grad
        losses[function] = loss.item()
    assert losses[binarize] == losses[sign_ste] == 0
    assert losses[torch.sign] > 10
