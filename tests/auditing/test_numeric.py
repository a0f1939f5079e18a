"""Differences of values: which mistakes they see, and what they let pass because nobody can know better."""

import math
import time
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from autograd_cookbook.auditing.numeric import COORDINATES, Derivative, Mismatch, rounding
from autograd_cookbook.auditing.subject import real, weights_of

Function = Callable[..., Tensor]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def compared(
    function: Function,
    *point: Tensor,
    change: Callable[[Tensor], Tensor] = torch.clone,
    dtype: torch.dtype | None = None,
) -> Mismatch | None:
    """The verdict on torch's own gradient of a function, all of it put through ``change`` as one real vector."""
    leaves = [p.clone().requires_grad_() for p in point]
    outputs = function(*leaves)
    (weights,) = weights_of([outputs])
    grads = torch.autograd.grad(outputs, leaves, weights)

    def value(values: Sequence[Tensor]) -> Tensor:
        return real([function(*values)])

    # Time is no part of what is specified here: on a busy machine, too, all coordinates are looked at.
    numeric = Derivative(value, point, range(len(point)), dtype or point[0].dtype.to_real(), budget=600.0)
    return numeric.compare(change(real(grads)), real([weights]))


SMOOTH: dict[str, tuple[Function, Tensor]] = {
    "square": (torch.square, random(3, 4)),
    "exp": (torch.exp, random(3, 4)),
    "exp of 5 x": (lambda x: torch.exp(5 * x), random(3, 4)),
    "sin of 50 x": (lambda x: torch.sin(50 * x), random(3, 4)),
    "seventh power": (lambda x: x**7, random(3, 4)),
    "inverse": (lambda x: 1 / x, 0.5 + random(3, 4).abs()),
    "log": (torch.log, 0.1 + random(3, 4).abs()),
    "sigmoid": (torch.sigmoid, random(3, 4)),
    "softmax": (lambda x: torch.softmax(x, -1), random(3, 4)),
    "gelu": (F.gelu, random(3, 4)),
    "norm": (lambda x: x.norm(dim=-1), random(3, 4)),
    "product": (lambda x: x.prod(-1), random(3, 4)),
    "layer norm": (lambda x: F.layer_norm(x, (4,)), random(3, 4)),
    "matrix inverse": (torch.linalg.inv, random(3, 3) + 3 * torch.eye(3, dtype=torch.float64)),
    "determinant": (torch.linalg.det, random(4, 4)),
    "logsumexp": (lambda x: x.logsumexp(-1), random(3, 4)),
    "small": (lambda x: 1e-9 * x.sin(), random(3, 4)),
    "large": (lambda x: 1e9 * x.sin(), random(3, 4)),
    "large inputs": (torch.square, 1e6 * random(3, 4)),
    "small inputs": (torch.square, 1e-3 * random(3, 4)),
    "one number": (torch.exp, random()),
    "complex": (lambda z: z * z.conj() * z, random(2, 3, dtype=torch.complex128)),
    "complex to real": (torch.abs, random(2, 3, dtype=torch.complex128)),
    "complex exp": (torch.exp, random(2, 3, dtype=torch.complex128)),
    "Fourier": (torch.fft.rfft, random(6)),
    "kinked elsewhere": (F.relu, random(3, 4)),
    "sorted": (lambda x: x.sort(-1).values, random(3, 4)),
    "many numbers": (torch.sin, random(COORDINATES + 100)),
}
smooth = pytest.mark.parametrize("name", SMOOTH)


# --- what is right passes, what is slightly wrong does not ---


@smooth
def test_the_right_gradient_passes(name: str) -> None:
    function, x = SMOOTH[name]
    assert compared(function, x) is None


@smooth
@pytest.mark.parametrize("factor", [1.0001, 0.9999])
def test_a_factor_near_one_is_seen(name: str, factor: float) -> None:
    function, x = SMOOTH[name]
    mismatch = compared(function, x, change=lambda g: factor * g)
    assert mismatch is not None
    if x.numel() <= COORDINATES:
        assert mismatch.ratio == pytest.approx(factor, rel=3e-5)


@smooth
@pytest.mark.parametrize("change", [torch.neg, torch.zeros_like, lambda g: g.roll(1) + 1, lambda g: g * torch.nan],
                         ids=["sign", "zero", "others", "NaN"])  # fmt: skip
def test_gross_mistakes_are_seen(name: str, change: Callable[[Tensor], Tensor]) -> None:
    function, x = SMOOTH[name]
    assert compared(function, x, change=change) is not None


@pytest.mark.parametrize("wrong", [0, 137, 299])
@pytest.mark.parametrize("size", [1e-3, 1.0, math.inf, math.nan])
def test_one_wrong_entry_among_300_is_seen_and_named(wrong: int, size: float) -> None:
    def change(gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        gradient[wrong] += size
        return gradient

    mismatch = compared(torch.sin, random(300), change=change)
    assert (mismatch.slot, mismatch.index, mismatch.count, mismatch.size) == (0, wrong, 1, 300)
    assert math.isfinite(mismatch.expected)


@pytest.mark.parametrize("wrong", [0, 700, 999])
def test_one_wrong_entry_among_a_thousand_is_found_by_random_directions(wrong: int) -> None:
    def change(gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        gradient[wrong] += 0.5
        return gradient

    mismatch = compared(torch.sin, random(1000), change=change)
    assert mismatch.index == wrong
    assert mismatch.actual - mismatch.expected == pytest.approx(0.5, rel=1e-3)


def test_the_place_is_that_of_the_slot() -> None:
    """Numbers of several tensors form one vector; a mistake in the third entry of the second is named so."""

    def change(gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        gradient[6 + 2] *= 2
        return gradient

    x, w = random(2, 3), random(3, seed=1)
    mismatch = compared(lambda x, w: x * w, x, w, change=change)
    assert (mismatch.slot, mismatch.index, mismatch.count, mismatch.size) == (1, 2, 1, 3)
    assert mismatch.ratio == pytest.approx(2)


def test_imaginary_parts_count() -> None:
    z = random(4, dtype=torch.complex128)
    conjugated = compared(torch.exp, z, change=lambda g: g * torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(4))
    assert conjugated.index % 2 == 1
    assert conjugated.ratio == pytest.approx(-1)


def test_only_some_slots_vary() -> None:
    x, w = random(3), random(3, seed=1)
    ones = torch.ones(3, dtype=torch.float64)
    numeric = Derivative(lambda v: v[0] * v[1], [x, w], [1])
    assert numeric.compare(x, ones) is None
    assert numeric.compare(w, ones).slot == 1
    torch.testing.assert_close(numeric.gradient(ones), x)


# --- kinks ---

TIES = torch.tensor([[1.0, 1.0, 0.5], [2.0, 2.0, 2.0]], dtype=torch.float64)
ZEROS = torch.tensor([0.0, 1.0, -1.0, 0.0], dtype=torch.float64)

KINKED: dict[str, tuple[Function, Tensor]] = {
    "abs": (torch.abs, ZEROS),
    "relu": (torch.relu, ZEROS),
    "leaky relu": (lambda x: F.leaky_relu(x, 0.1), ZEROS),
    "clamp": (lambda x: x.clamp(0, 1), ZEROS),
    "hardtanh": (F.hardtanh, ZEROS),
    "elu": (lambda x: F.elu(x, 2.0), ZEROS),
    "max": (lambda x: x.max(-1).values, TIES),
    "amax": (lambda x: x.amax(-1), TIES),
    "median": (lambda x: x.median(-1).values, TIES),
    "sort": (lambda x: x.sort(-1).values, TIES),
    "topk": (lambda x: x.topk(2).values, TIES),
    "maximum": (lambda x: torch.maximum(x, torch.zeros_like(x)), ZEROS),
    "max pooling": (lambda x: F.max_pool1d(x, 2, 1), TIES),
    "norm at zero": (lambda x: x.norm(dim=-1), torch.zeros(2, 3, dtype=torch.float64)),
    "largest at zero": (lambda x: x.abs().amax(-1), torch.zeros(2, 3, dtype=torch.float64)),
    "square root at zero": (torch.sqrt, ZEROS.abs()),
    "log at the border": (lambda x: x.log(), torch.tensor([1e-300, 1.0], dtype=torch.float64)),
    "arc sine at one": (torch.asin, torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)),
    "arc cosine at almost one": (torch.acos, torch.tensor([1 - 1e-12, 0.0], dtype=torch.float64)),
    "inverse hyperbolic tangent": (torch.atanh, torch.tensor([1 - 1e-10, 0.0], dtype=torch.float64)),
    "step": (lambda x: x.sign() + 0 * x, ZEROS),
    "floor": (lambda x: x.floor() + 0 * x, ZEROS),
    "remainder": (lambda x: x.remainder(0.5), ZEROS),
    "saturated": (torch.sigmoid, 1000 * ZEROS),
    "huge": (torch.exp, torch.tensor([700.0, -700.0, 0.0], dtype=torch.float64)),
    "beyond the largest": (torch.exp, torch.tensor([800.0, 0.0], dtype=torch.float64)),
}


@pytest.mark.parametrize("name", KINKED)
def test_torchs_own_choice_at_a_kink_passes(name: str) -> None:
    function, x = KINKED[name]
    assert compared(function, x) is None


@pytest.mark.parametrize("slope", [-1.0, -0.5, 0.0, 0.3, 1.0])
def test_any_slope_between_those_of_the_sides_passes(slope: float) -> None:
    numeric = Derivative(lambda v: v[0].abs(), [torch.zeros(1, dtype=torch.float64)], [0])
    ones = torch.ones(1, dtype=torch.float64)
    assert numeric.compare(slope * ones, ones) is None
    assert numeric.compare(slope * -ones, -ones) is None


@pytest.mark.parametrize("slope", [-1.01, 1.01, 2.0, -7.0, math.nan, math.inf])
def test_a_slope_outside_of_those_of_the_sides_does_not(slope: float) -> None:
    numeric = Derivative(lambda v: v[0].abs(), [torch.zeros(1, dtype=torch.float64)], [0])
    ones = torch.ones(1, dtype=torch.float64)
    assert numeric.compare(slope * ones, ones) is not None


@pytest.mark.parametrize("slope", [0.0, 1.0, 1e6, math.inf])
def test_where_slopes_grow_without_bound_only_nan_is_wrong(slope: float) -> None:
    ones = torch.ones(1, dtype=torch.float64)
    numeric = Derivative(lambda v: v[0].sqrt(), [torch.zeros(1, dtype=torch.float64)], [0])
    assert numeric.compare(slope * ones, ones) is None
    assert numeric.compare(math.nan * ones, ones) is not None


def test_a_kink_in_one_output_does_not_excuse_another() -> None:
    x = torch.tensor([0.0], dtype=torch.float64)
    numeric = Derivative(lambda v: torch.cat([v[0].abs(), v[0].sin()]), [x], [0])
    one = torch.ones(1, dtype=torch.float64)
    weights = torch.tensor([1.0, 10.0], dtype=torch.float64)
    assert numeric.compare(10.5 * one, weights) is None
    assert numeric.compare(8.5 * one, weights) is not None
    assert numeric.compare(11.5 * one, weights) is not None


def test_outside_of_the_domain_anything_goes() -> None:
    x = torch.tensor([-1.0], dtype=torch.float64)
    numeric = Derivative(lambda v: torch.where(v[0] == -1, 0.0, v[0].sqrt()), [x], [0])
    for slope in (0.0, 5.0):
        assert numeric.compare(torch.tensor([slope], dtype=torch.float64), torch.ones(1, dtype=torch.float64)) is None


def test_where_one_side_is_outside_the_other_decides() -> None:
    x = torch.tensor([0.0], dtype=torch.float64)

    def power(values: Sequence[Tensor]) -> Tensor:
        if (values[0] < 0).any():
            raise ValueError("negative")
        return 3 * values[0] + values[0] ** 1.5

    numeric = Derivative(power, [x], [0])
    one = torch.ones(1, dtype=torch.float64)
    assert numeric.compare(3 * one, one) is None
    assert numeric.compare(0 * one, one) is not None
    assert numeric.compare(3.1 * one, one) is not None


# --- noise, precision, size ---


@pytest.mark.parametrize("name", [n for n in SMOOTH if not SMOOTH[n][1].is_complex() and "large in" not in n])
def test_in_float32_the_right_gradient_passes_and_a_hundredth_is_seen(name: str) -> None:
    function, x = SMOOTH[name]
    x = x.float()
    assert compared(function, x) is None
    if "50 x" not in name:  # too curved for differences of seven digits
        assert compared(function, x, change=lambda g: 1.01 * g) is not None


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9])
def test_rounding_is_no_mistake(offset: float) -> None:
    """Values far larger than their changes have few digits left for a difference."""
    assert compared(lambda x: x.sin() + offset, random(5)) is None
    assert compared(lambda x: x.sin() + offset, random(5), change=lambda g: 1.5 * g) is not None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("gap", [20.0, 40.0, 85.0, 800.0])
def test_what_is_lost_where_a_loss_cancels_is_no_mistake(gap: float, dtype: torch.dtype) -> None:
    """The loss of a certain, right answer rounds to zero or to the spacing of the logits; its gradient is softmax."""
    logits = torch.tensor([[gap, 0.0, -0.3]], dtype=dtype)
    assert compared(lambda x: x.logsumexp(-1) - x[..., 0], logits) is None


@pytest.mark.parametrize("factor", [0.0, 1.01, -1.0])
@pytest.mark.parametrize("tail", [lambda x: torch.exp(-x), torch.erfc, F.logsigmoid], ids=["exp", "erfc", "logsigmoid"])
def test_in_a_tail_that_does_not_cancel_it_is(tail: Function, factor: float) -> None:
    far = torch.tensor([7.1, 12.3], dtype=torch.float64)
    assert compared(tail, far) is None
    assert compared(tail, far, change=lambda g: g * factor)


def test_values_with_float32_on_the_way_are_no_alarm_of_the_gradient() -> None:
    """That digits are lost is the finding of another check."""
    assert compared(lambda x: x.float().sin().double(), random(5), change=lambda g: 1.5 * g) is not None


def test_nothing_to_compare() -> None:
    empty = torch.zeros(0, 3, dtype=torch.float64)
    assert Derivative(lambda v: v[0].sum(0), [empty], [0]).compare(torch.zeros(0), torch.ones(3)) is None


def test_the_point_is_not_written_to() -> None:
    x = random(3)
    before = x.clone()
    numeric = Derivative(lambda v: v[0].mul_(2), [x], [0])
    assert numeric.compare(torch.full((3,), 2.0, dtype=torch.float64), torch.ones(3, dtype=torch.float64)) is None
    assert torch.equal(x, before)


def test_a_slow_function_is_looked_at_along_a_few_directions() -> None:
    calls = []
    numeric = Derivative(lambda v: calls.append(1) or v[0].sin(), [random(50)], [0], budget=1e-9)
    assert not numeric.complete
    assert len(numeric.directions()) == 3
    numeric.compare(random(50).cos(), torch.ones(50, dtype=torch.float64))
    assert len(calls) < 30
    assert numeric.compare(1.001 * random(50).cos(), torch.ones(50, dtype=torch.float64)) is not None


# --- properties ---

numbers = st.floats(-10, 10, allow_subnormal=False)
vectors = st.lists(numbers, min_size=1, max_size=6).map(lambda v: torch.tensor(v, dtype=torch.float64))
coefficients = st.lists(st.floats(-3, 3, allow_subnormal=False), min_size=1, max_size=5)


def polynomial(powers: Sequence[float], x: Tensor) -> Tensor:
    return sum((c * x**k for k, c in enumerate(powers)), torch.zeros_like(x))


@given(x=vectors, powers=coefficients)
def test_gradients_of_polynomials_pass(x: Tensor, powers: Sequence[float]) -> None:
    assert compared(lambda x: polynomial(powers, x), x) is None


@given(x=vectors, powers=coefficients, factor=st.floats(0.5, 2).filter(lambda f: abs(f - 1) > 1e-3))
def test_of_those_that_are_off_by_a_factor_no_entry_of_any_size_passes(
    x: Tensor, powers: Sequence[float], factor: float
) -> None:
    slopes = sum((k * c * x ** (k - 1) for k, c in enumerate(powers) if k), torch.zeros_like(x))
    values = sum((abs(c) * x.abs() ** k for k, c in enumerate(powers)), torch.zeros_like(x))
    visible = bool((slopes.abs() > 1e-3 * (1 + values)).any())
    mismatch = compared(lambda x: polynomial(powers, x), x, change=lambda g: factor * g)
    assert mismatch is not None or not visible


@given(x=vectors, slope=st.floats(-0.99, 0.99), kinks=st.lists(st.booleans(), min_size=6, max_size=6))
def test_kinks_anywhere_pass(x: Tensor, slope: float, kinks: list[bool]) -> None:
    x = torch.where(torch.tensor(kinks[: len(x)]), torch.zeros_like(x), x)
    weights = torch.ones_like(x)
    gradient = torch.where(x == 0, torch.full_like(x, slope), x.sign())
    numeric = Derivative(lambda v: v[0].abs(), [x], [0])
    assert numeric.compare(gradient, weights) is None


@given(scale=st.integers(-12, 12), factor=st.sampled_from([1.0, 1.001]))
def test_the_size_of_the_values_is_no_matter(scale: int, factor: float) -> None:
    mismatch = compared(lambda x: 10.0**scale * x.exp(), random(4), change=lambda g: factor * g)
    assert (mismatch is None) == (factor == 1)


def test_what_counts_as_rounding_has_the_scale_of_outputs_over_input() -> None:
    outputs = [torch.tensor([3.0, -8.0], dtype=torch.float64), torch.tensor([1000])]  # integers are no size to compare
    eps = torch.finfo(torch.float64).eps
    assert rounding(outputs, torch.tensor([0.5, -2.0])) == 64 * eps * 8 / 2
    assert rounding(outputs, torch.zeros(3)) == rounding(outputs[1:], torch.ones(3)) == rounding([], torch.ones(3)) == 0
    assert rounding([torch.tensor([torch.inf, torch.nan, 1.0])], torch.ones(1)) == 64 * torch.finfo(torch.float32).eps


def test_where_all_is_wrong_only_a_few_entries_are_looked_at_closely() -> None:
    """To look at one takes dozens of values, which a slow function has no time for."""
    calls = 0

    def slow(values: list[Tensor]) -> Tensor:
        nonlocal calls
        calls += 1
        start = time.process_time()
        while time.process_time() - start < 2e-3:
            pass
        return values[0].reshape(-1).sin()

    point = torch.linspace(0.1, 1, 30, dtype=torch.float64)
    numeric = Derivative(slow, [point], [0])
    weights = torch.ones(30, dtype=torch.float64)
    mismatch = numeric.compare(2 * point.cos(), weights)
    assert mismatch is not None
    assert mismatch.count == mismatch.size == 30
    assert mismatch.ratio == pytest.approx(2)
    assert calls < 900
