"""Forward mode: both formulas of a function, against each other and against torch."""

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.forward_mode import smooth_maximum, symlog

INF, NAN = float("inf"), float("nan")


def point(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


CALLS = [
    pytest.param(symlog, (point(4, 3),), id="symlog"),
    pytest.param(lambda x, z: smooth_maximum(x, z, 0.3), (point(4, 3), point(4, 3, seed=1)), id="smooth_maximum"),
    pytest.param(lambda x, z: smooth_maximum(x, z, 2.0), (point(4, 1), point(3, seed=1)), id="broadcast"),
]
each_call = pytest.mark.parametrize(("function", "args"), CALLS)


@each_call
def test_forward_mode_is_the_transpose_of_backward(function, args) -> None:
    tangents = tuple(point(*a.shape, seed=7 + i) for i, a in enumerate(args))
    output, moved = jvp(function, args, tangents)
    weight = point(*output.shape, seed=9)
    gradients = vjp(function, *args)[1](weight)
    left = (weight * moved).sum()
    torch.testing.assert_close(left, sum((g * t).sum() for g, t in zip(gradients, tangents, strict=True)))


@each_call
def test_gradcheck_in_every_mode(function, args) -> None:
    args = tuple(a.clone().requires_grad_() for a in args)
    options = {"atol": 1e-8, "rtol": 1e-6}
    assert gradcheck(function, args, check_forward_ad=True, check_batched_forward_grad=True, **options)
    assert gradgradcheck(function, args, check_fwd_over_rev=True, check_rev_over_rev=True, **options)


@each_call
def test_a_tangent_of_one_input_alone(function, args) -> None:
    """By ``torch.func`` and by dual numbers; the other one is None in jvp, and counts as zero."""
    for i, a in enumerate(args):
        tangent = point(*a.shape, seed=3)
        zeros = [tangent if k == i else torch.zeros_like(b) for k, b in enumerate(args)]
        expected = jvp(function, args, tuple(zeros))[1]

        def alone(value, i=i):
            return function(*(value if k == i else b for k, b in enumerate(args)))

        torch.testing.assert_close(jvp(alone, (a,), (tangent,))[1], expected)
        with forward_ad.dual_level():
            dual = forward_ad.unpack_dual(alone(forward_ad.make_dual(a, tangent)))
        torch.testing.assert_close(dual.tangent, expected)


@each_call
def test_jacobians_and_hessians_agree_in_all_mixed_modes(function, args) -> None:
    def of_first(x):
        return function(x, *args[1:])

    def scalar(x):
        return of_first(x).square().sum()

    x = args[0]
    torch.testing.assert_close(jacfwd(of_first)(x), jacrev(of_first)(x))
    expected = jacrev(grad(scalar))(x)
    for mixed in (jacfwd(grad(scalar)), jacrev(jacfwd(scalar)), hessian(scalar)):
        torch.testing.assert_close(mixed(x), expected)


@each_call
def test_vmap_over_forward_mode_is_a_loop(function, args) -> None:
    directions = point(5, *args[0].shape, seed=4)

    def along(v):
        return jvp(lambda x: function(x, *args[1:]), (args[0],), (v,))[1]

    torch.testing.assert_close(vmap(along)(directions), torch.stack([along(v) for v in directions]))


def test_symlog_at_points_that_are_known() -> None:
    x = vector(0.0, math.e - 1, 1 - math.e, -3.0, INF, -INF, NAN, 1e308, -1e-300)
    expected = vector(0.0, 1.0, -1.0, -2 * math.log(2), INF, -INF, NAN, 308 * math.log(10), -1e-300)
    value, slope = jvp(symlog, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(value, expected, rtol=1e-14, atol=0, equal_nan=True)
    slopes = vector(1.0, 1 / math.e, 1 / math.e, 0.25, 0.0, 0.0, NAN, 1e-308, 1.0)
    torch.testing.assert_close(slope, slopes, rtol=1e-12, atol=0, equal_nan=True)
    torch.testing.assert_close(grad(lambda x: symlog(x).sum())(x), slopes, rtol=1e-12, atol=0, equal_nan=True)
    assert symlog(-torch.zeros(())).signbit()


def test_symlog_has_a_slope_at_zero_and_the_composition_has_none() -> None:
    x = torch.zeros((), requires_grad=True)
    assert torch.autograd.grad(symlog(x), x) == (1.0,)
    assert torch.autograd.grad(x.sign() * x.abs().log1p(), x) == (0.0,)


def test_second_derivatives_of_symlog() -> None:
    x = vector(-2.0, 0.0, 1.0)
    second = vmap(grad(grad(symlog)))(x)
    torch.testing.assert_close(second, vector(1 / 9, 0.0, -1 / 4))


def test_smooth_maximum_goes_over_to_the_maximum() -> None:
    x, z = vector(1.0, 2.0, -5.0), vector(2.0, 1.0, -5.0)
    torch.testing.assert_close(smooth_maximum(x, z, 1e-3), vector(2.0, 2.0, -5 + 1e-3 * math.log(2)))
    gradients = vjp(lambda *a: smooth_maximum(*a, 1e-3), x, z)[1](torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(gradients, (vector(0.0, 1.0, 0.5), vector(1.0, 0.0, 0.5)))


@pytest.mark.parametrize(
    ("x", "z", "value", "slopes"),
    [
        (INF, INF, INF, (0.5, 0.5)),
        (-INF, -INF, -INF, (0.5, 0.5)),
        (INF, -INF, INF, (1.0, 0.0)),
        (-INF, 2.0, 2.0, (0.0, 1.0)),
        (1e300, -1e300, 1e300, (1.0, 0.0)),
    ],
)
def test_smooth_maximum_at_infinity(x, z, value, slopes) -> None:
    args = vector(x).squeeze(), vector(z).squeeze()
    assert smooth_maximum(*args).item() == value
    assert tuple(g.item() for g in grad(smooth_maximum, argnums=(0, 1))(*args)) == slopes
    for i in (0, 1):
        unit = [torch.zeros_like(a) for a in args]
        unit[i] += 1
        assert jvp(smooth_maximum, args, tuple(unit))[1].item() == slopes[i]


def test_the_second_derivative_where_both_are_equal() -> None:
    x = torch.full((2,), 1.5, dtype=torch.float64)
    found = hessian(lambda pair: smooth_maximum(pair[0], pair[1], 0.5))(x)
    torch.testing.assert_close(found, torch.tensor([[0.5, -0.5], [-0.5, 0.5]], dtype=torch.float64))


def test_bytes_kept() -> None:
    x, z = (torch.rand(100, requires_grad=True) for _ in range(2))
    assert saved_bytes(lambda x: symlog(x + 0), x) == 400  # the input, which here belongs to nobody else
    assert saved_bytes(lambda x: x.sign() * x.abs().log1p(), x) == 1200
    assert saved_bytes(smooth_maximum, x, z) == 0


def test_a_constant_gets_no_gradient() -> None:
    x, z = torch.rand(3, requires_grad=True), torch.rand(3)
    smooth_maximum(x, z).sum().backward()
    assert z.grad is None
    smooth_maximum(z, x).sum().backward()
    torch.testing.assert_close(x.grad, torch.sigmoid(x - z).detach() * 2)


@pytest.mark.parametrize("temperature", [0.0, -1.0, NAN])
def test_a_bad_temperature_is_named(temperature) -> None:
    with pytest.raises(ValueError, match=f"temperature > 0, got {temperature}"):
        smooth_maximum(torch.ones(2), torch.ones(2), temperature)


def test_bad_dtypes_and_shapes_raise() -> None:
    with pytest.raises(TypeError, match=r"float32 and torch\.float64"):
        smooth_maximum(torch.ones(2), torch.ones(2).double())
    for dtype in (torch.complex64, torch.int64):
        with pytest.raises(TypeError, match=f"{dtype}"):
            smooth_maximum(torch.ones(2, dtype=dtype), torch.ones(2, dtype=dtype))
        with pytest.raises(TypeError, match=f"real floating input, got {dtype}"):
            symlog(torch.ones(2, dtype=dtype))
    with pytest.raises(RuntimeError, match="must match the size"):
        smooth_maximum(torch.ones(2), torch.ones(3))


def test_two_forward_levels_are_lost_and_nothing_else_is() -> None:
    """A bug of torch that the page names: when this fails, the page has good news to tell."""
    x = vector(2.0).squeeze()
    assert jacfwd(jacfwd(symlog))(x).item() == 0
    assert jacfwd(grad(symlog))(x).item() == pytest.approx(-1 / 9)
