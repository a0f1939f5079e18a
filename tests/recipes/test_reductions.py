"""Reductions: what is special beyond the catalog's own tests."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes import reductions
from tests.support import assert_agrees_with_float64, normal

SURVIVORS = {
    "NormFunction.backward: is_max.sum(ctx.dims, keepdim=True).clamp(min={1 -> -1})": (
        "only a vector with a NaN has no element of its largest size"
    ),
    "NormFunction.backward: size.masked_fill(size == 0, {1 -> 2})": "where the size is 0 it is multiplied by 0",
    "_weights: {x.detach() -> x}.real": "weights do not depend on what is subtracted",
    "_weights: x.masked_fill(largest == torch.inf, -torch.inf).masked_fill(is_inf, {0 -> 1})": (
        "weights do not depend on what is added to all that are not 0"
    ),
    "_weights: largest.masked_fill(largest.isinf(), {0 -> 1})": "weights do not depend on what is subtracted",
    "_weights: powers.sum(dims, keepdim=True).masked_fill(nothing, {1 -> 2})": "0 is divided by it",
    "_weights: weights.shape[-1] > LONG -> weights.shape[-1] >= LONG": "one entry more or less",
    "NormFunction.backward: 2 -> -2": "an order is 1 or more; the branch that 2 leaves out raises to the power 1",
}

INF = float("inf")
BUILT_IN = {name: getattr(torch, name) for name in ("sum", "mean", "amax", "amin", "logsumexp", "var")}
OURS = {name: getattr(reductions, name) for name in BUILT_IN}
BUILT_IN["norm"] = lambda x, dim, keepdim=False: torch.linalg.vector_norm(x, 2, dim, keepdim)
OURS["norm"] = lambda x, dim, keepdim=False: reductions.norm(x, 2, dim, keepdim)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(
    ("dim", "error", "message"),
    [
        (3, IndexError, r"\[-3, 2\], but got 3"),
        (-4, IndexError, "but got -4"),
        ((0, 0), RuntimeError, "dim 0 appears multiple"),
        ((1, -2), RuntimeError, "dim 1 appears multiple"),
    ],
)
def test_a_bad_dim_raises_what_torch_raises(name, dim, error, message) -> None:
    x = torch.randn(2, 3, 4)
    with pytest.raises(error, match=message):
        OURS[name](x, dim)
    with pytest.raises(error):
        BUILT_IN[name](x, dim)


def test_a_dimension_named_twice_is_noticed_before_torch_sees_it() -> None:
    """Not every function hands its dimensions to a reduction of torch."""
    with pytest.raises(RuntimeError, match="dim 1 appears multiple"):
        reductions.as_dims((1, -2), 3)
    assert reductions.as_dims((1, -3), 3) == (1, 0)


@pytest.mark.parametrize("function", [reductions.amax, reductions.amin])
def test_the_maximum_of_nothing_raises(function) -> None:
    with pytest.raises(IndexError, match="non-zero size"):
        function(torch.ones(0, 3), 0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_integers(dtype) -> None:
    x = torch.ones(2, 3, dtype=dtype)
    assert reductions.sum(x, 0).dtype is torch.int64
    assert reductions.sum(x, 0).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match=r"floating.point"):
        reductions.mean(x, 0)


def test_the_mean_of_nothing_is_nan() -> None:
    x = torch.ones(0, 3, requires_grad=True)
    y = reductions.mean(x, 0)
    assert y.isnan().all()
    y.sum().backward()
    assert x.grad.shape == (0, 3)


@pytest.mark.parametrize("values", [[2.0, 2.0, 1.0], [INF, INF, 0.0], [-INF, -INF, -INF], [float("nan"), 1.0, 2.0]])
@pytest.mark.parametrize("name", ["amax", "amin"])
def test_ties_share_as_in_torch(name, values) -> None:
    grads = []
    for function in (OURS[name], BUILT_IN[name]):
        x = torch.tensor(values, requires_grad=True)
        function(x, 0).backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads, equal_nan=True)


@pytest.mark.parametrize(
    ("values", "gradient"),
    [
        ([-INF, -INF], [0.0, 0.0]),
        ([-INF, 0.0], [0.0, 1.0]),
        ([INF, 0.0], [1.0, 0.0]),
        ([INF, INF, -INF], [0.5, 0.5, 0.0]),
        ([1000.0, 1000.0], [0.5, 0.5]),
        ([-1000.0, -1000.0], [0.5, 0.5]),
    ],
)
def test_logsumexp_has_finite_gradients_at_infinity(values, gradient) -> None:
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    y = reductions.logsumexp(x, 0)
    assert y.item() == torch.logsumexp(x, 0).item()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    assert first.tolist() == pytest.approx(gradient, rel=1e-12)
    (second,) = torch.autograd.grad(first[0], x)
    assert second.isfinite().all(), "the second derivative is not finite"


@pytest.mark.parametrize("offset", [0.0, 1000.0, -1000.0])
def test_weights_of_complex_numbers_do_not_depend_on_an_offset(offset) -> None:
    z = torch.tensor([1j, 1 - 2j, -1], dtype=torch.complex128)
    x = (z + offset).requires_grad_()
    y = reductions.logsumexp(x, 0)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    torch.testing.assert_close(gradient, (z.exp() / z.exp().sum()).conj())


@pytest.mark.parametrize(
    ("values", "gradient"),
    [
        ((INF, 1 + 1j), (1, 0)),
        ((INF, INF, 3j), (0.5, 0.5, 0)),
        ((-INF, -INF), (0, 0)),
        ((-INF, 1j), (0, 1)),
    ],
)
def test_complex_infinities_have_the_weights_of_real_ones(values, gradient) -> None:
    x = torch.tensor(values, dtype=torch.complex128, requires_grad=True)
    y = reductions.logsumexp(x, 0)
    (found,) = torch.autograd.grad(y, x, torch.ones_like(y))
    torch.testing.assert_close(found, torch.tensor(gradient, dtype=found.dtype))


def test_logsumexp_keeps_nothing_but_its_input() -> None:
    x = torch.ones(50, 20, requires_grad=True)
    assert saved_bytes(lambda x: reductions.logsumexp(x, 1), x) == 0
    assert saved_bytes(lambda x: x.exp().sum(1).log(), x) > 50 * 20 * 4


def test_a_masked_row_beside_others_passes_gradgradcheck() -> None:
    mask = torch.tensor([[0.0, 0.0, 0.0], [-INF, -INF, -INF], [0.0, -INF, 0.0]], dtype=torch.float64)
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)

    def unmasked_rows(x):
        return reductions.logsumexp(x + mask, 1)[[0, 2]]

    assert gradcheck(unmasked_rows, (x,))
    assert gradgradcheck(unmasked_rows, (x,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2), (-1, 0, 1), ()])
@pytest.mark.parametrize("correction", [0, 1, 0.5, 2])
def test_var_agrees_with_torch_in_all_options(dtype, dim, correction) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, dtype=dtype, requires_grad=True)
    for keepdim in (False, True):
        ours = reductions.var(x, dim, keepdim, correction)
        # None in place of (), for which torch has a wrong gradient: see below.
        theirs = torch.var(x, None if dim == () else dim, correction=correction, keepdim=keepdim)
        torch.testing.assert_close(ours, theirs, rtol=4 * torch.finfo(dtype).eps, atol=0)
        weights = torch.rand_like(theirs)
        (got,) = torch.autograd.grad(ours, x, weights)
        # In float64: torch subtracts a mean that is rounded to float16.
        exact = x.detach().to(torch.promote_types(dtype, torch.float64)).requires_grad_()
        theirs = torch.var(exact, None if dim == () else dim, correction=correction, keepdim=keepdim)
        (expected,) = torch.autograd.grad(theirs, exact, weights.to(theirs.dtype))
        assert got.dtype is dtype
        torch.testing.assert_close(got, expected.to(dtype))


@pytest.mark.parametrize(
    ("values", "correction", "gradient"),
    [
        ([1.0], 1, [float("nan")]),
        ([1.0, 2.0], 2, [-INF, INF]),
        ([1.0, 2.0], 3, [-INF, INF]),
        ([1.0, 2.0, 3.0], 3, [-INF, float("nan"), INF]),
        ([], 1, []),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
def test_var_without_degrees_of_freedom(values, correction, gradient) -> None:
    """The value is torch's. So is the gradient, but for the sign of infinite ones, which torch loses."""
    x = torch.tensor(values, requires_grad=True)
    y = reductions.var(x, correction=correction)
    torch.testing.assert_close(y, torch.var(x, correction=correction), equal_nan=True)
    y.backward()
    torch.testing.assert_close(x.grad, torch.tensor(gradient), equal_nan=True)


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
def test_var_of_no_rows() -> None:
    """torch warns of 0 elements, though each of the rows that there are not has 3."""
    x = torch.ones(0, 3, requires_grad=True)
    y = reductions.var(x, 1)
    assert y.shape == (0,)
    y.sum().backward()
    assert x.grad.shape == (0, 3)


def test_an_empty_dim_of_torchs_var_has_an_infinite_gradient() -> None:
    """Or else the page on reductions is out of date: () means all dimensions forward, and none in its backward."""
    x = torch.randn(2, 3, requires_grad=True)
    y = torch.var(x, ())
    assert y == torch.var(x)
    assert torch.autograd.grad(y, x)[0].isinf().all()


def test_var_keeps_nothing_and_a_composition_keeps_the_deviations() -> None:
    x = torch.ones(50, 20, requires_grad=True)
    assert saved_bytes(lambda x: reductions.var(x, 1), x) == 0
    assert saved_bytes(lambda x: (x - x.mean(1, keepdim=True)).square().sum(1) / 19, x) == 50 * 20 * 4


def test_var_does_not_cancel() -> None:
    x = torch.tensor([1e4, 1e4 + 1, 1e4 + 2], requires_grad=True)
    y = reductions.var(x, correction=0)
    assert y.item() == pytest.approx(2 / 3, rel=1e-6)
    y.backward()
    assert x.grad.tolist() == pytest.approx([-2 / 3, 0, 2 / 3], abs=1e-6)
    assert (x.square().mean() - x.mean().square()).item() != pytest.approx(2 / 3, rel=0.1)


ORDERS = [1, 1.5, 2, 2.5, 3, INF]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2), ()])
@pytest.mark.parametrize("ord", ORDERS)
def test_norm_agrees_with_torch_in_all_options(ord, dim, dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, dtype=dtype)
    x[0, 0, 0] = 0
    x.requires_grad_()
    for keepdim in (False, True):
        ours = reductions.norm(x, ord, dim, keepdim)
        theirs = torch.linalg.vector_norm(x, ord, dim, keepdim)
        torch.testing.assert_close(ours, theirs, rtol=4 * torch.finfo(dtype).eps, atol=0)
        weights = torch.rand_like(theirs)
        got, expected = (torch.autograd.grad(y, x, weights)[0] for y in (ours, theirs))
        assert got.dtype is dtype
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("ord", ORDERS)
def test_norm_at_the_zero_vector_has_gradient_zero_and_a_finite_second_one(ord) -> None:
    """Beside a row that is not zero, whose derivatives stay what they are."""
    x = torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, -4.0]], dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(reductions.norm(x, ord, 1).sum(), x, create_graph=True)
    (expected,) = torch.autograd.grad(torch.linalg.vector_norm(x, ord, 1).sum(), x)
    torch.testing.assert_close(first, expected, rtol=1e-12, atol=0)
    assert first[0].tolist() == [0, 0, 0]
    (second,) = torch.autograd.grad(first, x, torch.arange(6.0).reshape(2, 3).double())
    assert not second[0].any()
    assert second.isfinite().all()


@pytest.mark.parametrize("ord", [1, 1.01, 1.5, 2, 2.5, 2.99, 3, 4, INF])
def test_the_second_derivative_of_torchs_norm_is_nan_at_zero(ord) -> None:
    """Or else the docstring of ours, and its page, are out of date."""
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(torch.linalg.vector_norm(x, ord), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, allow_unused=True, materialize_grads=True)
    assert second.isnan().all() if 1 < ord < 3 else not second.any()


def test_norm_in_half_precision_does_not_overflow_in_backward() -> None:
    """300² is beyond float16, and torch has NaN there."""
    x = torch.tensor([300.0, -400.0], dtype=torch.float16, requires_grad=True)
    (ours,) = torch.autograd.grad(reductions.norm(x, 3), x)
    size = (300**3 + 400**3) ** (1 / 3)
    assert ours.tolist() == pytest.approx([(300 / size) ** 2, -((400 / size) ** 2)], rel=2e-3)
    (theirs,) = torch.autograd.grad(torch.linalg.vector_norm(x, 3), x)
    assert theirs.isnan().all()


@pytest.mark.parametrize(
    ("values", "gradient"), [([2.0, -2.0, 1.0], [0.5, -0.5, 0]), ([0.0, 0.0], [0, 0]), ([INF, 1.0], [1, 0])]
)
def test_ties_of_the_largest_size_share(values, gradient) -> None:
    x = torch.tensor(values, requires_grad=True)
    reductions.norm(x, INF).backward()
    assert x.grad.tolist() == gradient


def test_the_bytes_of_norm() -> None:
    """One number a row, and the 1-norm nothing at all."""
    x = torch.ones(50, 20, requires_grad=True)
    assert saved_bytes(lambda x: reductions.norm(x, 2, 1), x) == 50 * 4
    assert saved_bytes(lambda x: reductions.norm(x, 1, 1), x) == 0


@pytest.mark.parametrize("ord", [0, 0.5, -1, -INF, float("nan")])
def test_norm_is_a_norm(ord) -> None:
    with pytest.raises(ValueError, match=rf"expected ord >= 1, got {ord}"):
        reductions.norm(torch.ones(3), ord)


@pytest.mark.parametrize("function", [reductions.var, reductions.norm])
def test_var_and_norm_refuse_integers(function) -> None:
    with pytest.raises(RuntimeError, match=r"floating.point"):
        function(torch.ones(3, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("ord", [1.5, 2, 3, 10])
def test_norm_of_vectors_of_every_size(ord, dtype) -> None:
    """In one call: the power of an element overflows or vanishes, and the norm does not."""
    info = torch.finfo(dtype)
    # The gradient is a share of the rounded norm, which has few digits below the smallest normal number.
    sizes = torch.logspace(math.log2(info.smallest_normal), math.log2(info.max) - 3, 60, 2, dtype=torch.float64)
    x = (sizes.unsqueeze(1) * torch.tensor([3.0, -4.0, 0.0, 1.0])).to(dtype).requires_grad_()
    y = reductions.norm(x, ord, 1)
    y.sum().backward()
    wide = x.detach().double() / sizes.unsqueeze(1)
    expected = torch.linalg.vector_norm(wide, ord, 1)
    share = wide.sgn() * (wide.abs() / expected.unsqueeze(1)) ** (ord - 1)
    torch.testing.assert_close(y.double() / sizes, expected, rtol=4 * info.eps, atol=0)
    torch.testing.assert_close(x.grad.double(), share, rtol=3 * ord * info.eps, atol=info.tiny)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [1, 1000, 100_000])
@pytest.mark.parametrize("offset", [-1000.0, 0.0, 1000.0, 10000.0])
def test_the_weights_of_logsumexp_add_up_to_one(dtype, length, offset) -> None:
    x = torch.full((length,), offset, dtype=dtype).requires_grad_()
    reductions.logsumexp(x).backward()
    assert x.grad.double().sum().item() == pytest.approx(1, rel=4 * torch.finfo(dtype).eps + 1e-3 * (length > 60_000))


def test_a_norm_of_many_halves_has_a_gradient() -> None:
    """The ratio of an entry to the norm is then less than what float16 has with all digits."""
    x = torch.full((100_000, 1), 1e-4, dtype=torch.float64)
    x[0] = 100.0
    assert_agrees_with_float64(
        reductions.norm, [x.requires_grad_(), 1.5], torch.float16, lambda x, p: torch.linalg.vector_norm(x, p), 2e-3
    )


def test_a_variance_around_a_mean_that_float16_does_not_have() -> None:
    x = (30_008 + 100 * normal(1000)).requires_grad_()
    assert_agrees_with_float64(reductions.var, [x], torch.float16, torch.var, 2e-3, 1000.0)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize(("shape", "dim"), [((1_000_000,), 0), ((1000, 1000), (0, 1)), ((3, 300_000), 1)], ids=str)
def test_weights_of_many_nearly_equal_logits(offset: float, shape: tuple[int, ...], dim: int | tuple[int, ...]) -> None:
    x = (offset + 1e-3 * normal(*shape)).requires_grad_()
    assert_agrees_with_float64(reductions.logsumexp, [x, dim], torch.float32, torch.logsumexp, 2e-5)


def test_a_power_of_two_is_the_largest_that_is_not_larger() -> None:
    sizes = torch.tensor([1.0, 1.5, 2.0, 3.99, 0.3, 1e30, 1e-45, INF, math.nan, 0.0])
    found = reductions.power_of_two(sizes).tolist()
    assert found == [1, 1, 2, 2, 0.25, 2.0**99, 2.0**-149, 1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("ord", [3, 31, 33, 128, 1000, 1e4])
def test_a_norm_of_any_order(ord, size, dtype) -> None:
    """A power of two leaves numbers up to 2, and 1.99 to the power 128 overflows in float32."""
    x = (size * torch.tensor([[1.99, 1.5, -0.3], [1.5, 1.5, 1.5], [0.0, -1.25, 0.0], [0.0] * 3])).to(dtype)
    largest = x.double().abs().amax(1, keepdim=True)
    ratio = x.double() / largest.clamp(min=1e-30)
    total = (ratio.abs() ** ord).sum(1, keepdim=True).clamp(min=1e-30)
    weight = ratio.sgn() * ratio.abs() ** (ord - 1) * total ** (1 / ord - 1)
    leaf = x.requires_grad_()
    found = reductions.norm(leaf, ord, 1)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), (largest * total ** (1 / ord)).squeeze(1), rtol=2 * eps, atol=0)
    (grad,) = torch.autograd.grad(found.sum(), leaf)
    # A power magnifies the rounding error of the ratio, which is in float32 or wider.
    rounding = ord * min(eps, torch.finfo(torch.float32).eps)
    atol = torch.finfo(dtype).smallest_normal
    torch.testing.assert_close(grad.double(), weight, rtol=4 * eps + rounding, atol=atol)


def test_the_other_entries_of_a_norm_with_an_infinity_have_gradient_zero() -> None:
    for ord in (1.5, 2, 3, 40):
        x = torch.tensor([INF, 1.0, 0.0], requires_grad=True)
        (grad,) = torch.autograd.grad(reductions.norm(x, ord), x)
        assert grad[0].isnan()
        assert grad[1:].tolist() == [0, 0]


def test_without_degrees_of_freedom_a_variance_and_its_gradient_are_infinite() -> None:
    """Along a dimension, torch divides the gradient by the negative degrees of freedom."""
    x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    found = reductions.var(x, 1, correction=3)
    with pytest.warns(UserWarning, match="degrees of freedom"):
        theirs = torch.var(x, 1, correction=3)
    assert found == theirs == INF
    assert torch.autograd.grad(found, x)[0].tolist() == [[-INF, INF]]
    assert torch.autograd.grad(theirs, x)[0].isfinite().all()
