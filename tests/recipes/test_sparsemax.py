"""Sparsemax and entmax: what is special beyond the catalog's own tests."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.sparsemax import entmax15, sparsemax

SURVIVORS = {
    "Entmax15Function.backward: 1.0 -> 2.0": "outside of the support the root is replaced",
    "Entmax15Function.backward: total + (total == 0) -> total": "in a row without support nothing reads the mean",
    "SparsemaxFunction.backward: 1 -> -1": "in a row without support nothing reads the mean",
}

INF = float("inf")
NAN = float("nan")
ALPHA = {sparsemax: 2.0, entmax15: 1.5}
each = pytest.mark.parametrize("function", ALPHA)


def bisected(x, dim, alpha):
    """The root of the sum of probabilities minus 1, without a sort, in float64."""
    z = x.double() * (alpha - 1)
    high = z.amax(dim, keepdim=True)
    low = high - 1
    for _ in range(80):
        middle = (low + high) / 2
        above = (z - middle).clamp(min=0).pow(1 / (alpha - 1)).sum(dim, keepdim=True) > 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return (z - low).clamp(min=0).pow(1 / (alpha - 1))


@each
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-6, 0.03, 1.0, 1e4])
def test_agrees_with_bisection_to_rounding(function, dtype, scale) -> None:
    torch.manual_seed(0)
    for size in (2, 7, 300, 20_000):
        x = (scale * torch.randn(2, size)).to(dtype)
        torch.testing.assert_close(
            function(x, -1).double(),
            bisected(x, -1, ALPHA[function]),
            rtol=2 * torch.finfo(dtype).eps,
            atol=2 * torch.finfo(dtype).eps,
        )


@each
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_above_many_that_are_nearly_equal_sums_to_1(function, dtype) -> None:
    """Where the quadratic equation alone is wrong by more than 10,000 roundings."""
    torch.manual_seed(0)
    for scale in (1e-6, 1e-4):
        x = (scale * torch.randn(2, 20_000)).to(dtype)
        x[:, 0] = 1.9
        p = function(x, -1)
        assert (p.double().sum(-1) - 1).abs().max() < 1000 * torch.finfo(dtype).eps


@each
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_any_dim(function, dim) -> None:
    torch.manual_seed(0)
    x = 2 * torch.randn(3, 4, 5, dtype=torch.float64)
    torch.testing.assert_close(function(x, dim), bisected(x, dim, ALPHA[function]), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(function(x, dim).sum(dim), torch.ones_like(x.sum(dim)))


def test_sparsemax_is_the_nearest_point_of_the_simplex() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, dtype=torch.float64)
    others = torch.distributions.Dirichlet(torch.full((6,), 0.3, dtype=torch.float64)).sample((20_000,))
    nearest = (others - x).square().sum(1).min()
    found = (sparsemax(x) - x).square().sum()
    assert found <= nearest < 1.3 * found


def test_entmax15_maximizes_its_entropy() -> None:
    """Of all distributions it has the largest score plus Tsallis entropy with alpha 1.5."""
    torch.manual_seed(0)
    x = torch.randn(4, dtype=torch.float64)
    others = torch.distributions.Dirichlet(torch.full((4,), 0.5, dtype=torch.float64)).sample((20_000,))

    def objective(p):
        return p @ x + (1 - p.pow(1.5).sum(-1)) / (1.5 * 0.5)

    best = objective(others).max()
    found = objective(entmax15(x))
    assert best <= found < best + 0.01


def test_sparsemax_of_known_numbers() -> None:
    x = torch.tensor([1.0, 0.5, -1.0], dtype=torch.float64, requires_grad=True)
    assert sparsemax(x).tolist() == [0.75, 0.25, 0.0]
    assert torch.autograd.functional.jacobian(sparsemax, x).tolist() == [[0.5, -0.5, 0], [-0.5, 0.5, 0], [0, 0, 0]]


def test_entmax15_of_known_numbers() -> None:
    """Two entries that differ by 2d have roots t + d and t - d, whose squares sum to 1."""
    d = 0.1
    x = torch.tensor([2 * d, -2 * d, -9.0], dtype=torch.float64)
    t = (0.5 - d * d) ** 0.5
    assert entmax15(x).tolist() == pytest.approx([(t + d) ** 2, (t - d) ** 2, 0.0], rel=1e-14)
    a, b = t + d, t - d
    slope = a * b / (a + b)
    jacobian = torch.autograd.functional.jacobian(entmax15, x)
    expected = torch.tensor([[slope, -slope, 0], [-slope, slope, 0], [0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(jacobian, expected, rtol=1e-13, atol=1e-15)


@each
def test_derivatives_beyond_the_catalog(function) -> None:
    """Supports of every size in one batch."""
    rows = [[0.1, 0.2, 0.0, 0.05, 0.15], [0.0, 0.9, 0.4, -2.0, 0.1], [0.0, 5.0, 0.3, -1.0, 1.0]]
    x = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    sizes = (function(x) > 0).sum(1)
    assert len(set(sizes.tolist())) == 3
    assert gradcheck(function, (x,), rtol=1e-6, atol=1e-8)
    assert gradgradcheck(function, (x,), rtol=1e-6, atol=1e-8)


@each
@pytest.mark.parametrize(
    ("values", "output"),
    [
        ([-INF, -INF], [0.0, 0.0]),
        ([-INF, 0.0], [0.0, 1.0]),
        ([-INF, 3.0, 3.0], [0.0, 0.5, 0.5]),
        ([INF, 0.0, -INF], [1.0, 0.0, 0.0]),
        ([INF, INF, 5.0], [0.5, 0.5, 0.0]),
        ([1e30, 1e30, 0.0], [0.5, 0.5, 0.0]),
        ([-1e30, -1e30, -1e38], [0.5, 0.5, 0.0]),
        ([4.0], [1.0]),
        ([0.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_infinities_ties_and_large_numbers(function, values, output) -> None:
    for dtype in (torch.float64, torch.float32):
        x = torch.tensor(values, dtype=dtype, requires_grad=True)
        p = function(x, 0)
        assert p.tolist() == pytest.approx(output, rel=1e-6)
        (gradient,) = torch.autograd.grad(p[0], x)
        assert gradient.isfinite().all()
        assert (gradient[p == 0] == 0).all()


@each
def test_a_scalar_is_certain(function) -> None:
    x = torch.tensor(-3.0, requires_grad=True)
    p = function(x, 0)
    p.backward()
    assert (p.item(), x.grad.item()) == (1.0, 0.0)


@each
def test_nan_stays_in_its_row(function) -> None:
    p = function(torch.tensor([[NAN, 0.0], [0.0, 0.0]]))
    assert p[0].isnan().all()
    assert p[1].tolist() == pytest.approx([0.5, 0.5], rel=1e-6)


@each
def test_the_gradient_of_an_entropy_is_finite(function) -> None:
    """The slope of -p log p is infinite at 0, off the support, where it must not count."""
    x = torch.tensor([1.0, 0.8, -2.0], dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(torch.special.entr(function(x)).sum(), x, create_graph=True)
    pair = x[:2].detach().requires_grad_()
    (expected,) = torch.autograd.grad(torch.special.entr(function(pair)).sum(), pair)
    torch.testing.assert_close(first, torch.cat([expected, torch.zeros(1)]))


def test_entmax15_has_a_finite_second_derivative_where_the_support_ends() -> None:
    x = torch.tensor([1.0, 0.5, -9.0], dtype=torch.float64, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way either
        (first,) = torch.autograd.grad(entmax15(x)[0], x, create_graph=True)
        (second,) = torch.autograd.grad(first[0], x)
    pair = x[:2].detach().requires_grad_()
    (expected,) = torch.autograd.grad(torch.autograd.grad(entmax15(pair)[0], pair, create_graph=True)[0][0], pair)
    torch.testing.assert_close(second, torch.cat([expected, torch.zeros(1)]))
    assert second[0] != 0


@each
def test_it_keeps_its_output_alone(function) -> None:
    x = torch.randn(50, 20, requires_grad=True)
    assert saved_bytes(function, x) == x.numel() * 4


@each
@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_bad_input(function, dtype) -> None:
    with pytest.raises(TypeError, match=f"expected a floating input, got {dtype}"):
        function(torch.ones(2, 3, dtype=dtype))
    with pytest.raises(IndexError, match=r"\[-2, 1\], but got 2"):
        function(torch.ones(2, 3), 2)
