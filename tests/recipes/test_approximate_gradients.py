"""Approximate gradients: their quality in float64 against stated tolerances, and the wrapper around them."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from autograd_cookbook.recipes.approximate_gradients import finite_difference, simultaneous_perturbation

SURVIVORS = {
    "SimultaneousPerturbationFunction.backward: ctx.step * signs -> ctx.step / signs": "signs are 1 and -1",
    "SimultaneousPerturbationFunction.backward: torch.randint(0, 2, input.shape, generator=generator).to(point) * "
    "2 - 1 -> 1 - torch.randint(0, 2, input.shape, generator=generator).to(point) * 2": (
        "plus and minus are equally likely, and both are tried"
    ),
}

METHODS = [finite_difference, simultaneous_perturbation]


def rosenbrock(x: torch.Tensor) -> torch.Tensor:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def in_numpy(x: torch.Tensor) -> torch.Tensor:
    """The same where autograd cannot follow."""
    v = x.cpu().numpy()
    return torch.as_tensor(np.sum(100 * (v[1:] - v[:-1] ** 2) ** 2 + (1 - v[:-1]) ** 2))


def point(n: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.linspace(-1, 1, n, dtype=dtype).requires_grad_()


def estimate(method, x: torch.Tensor, *options) -> torch.Tensor:
    return torch.autograd.grad(method(in_numpy, x, *options), x)[0]


def exact(x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(rosenbrock(x), x)[0]


def test_finite_differences_have_nine_digits() -> None:
    x = point(20)
    error = (estimate(finite_difference, x) - exact(x)).norm() / exact(x).norm()
    assert error < 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", METHODS)
def test_narrow_inputs_are_evaluated_in_float64_and_get_gradients_of_their_dtype(method, dtype) -> None:
    seen = []

    def black_box(x):
        seen.append(x.dtype)
        return x.exp()

    x = torch.tensor([0.5], dtype=dtype, requires_grad=True)
    y = method(black_box, x)
    y.sum().backward()
    assert (y.dtype, x.grad.dtype) == (dtype, dtype)
    assert set(seen) == {torch.float64}
    torch.testing.assert_close(x.grad, x.detach().double().exp().to(dtype))


def test_the_error_of_perturbation_falls_as_the_theory_says() -> None:
    """Squared error (n - 1) / K of the squared norm, in the mean over many runs."""
    n, generator = 16, torch.Generator().manual_seed(0)
    x = point(n)
    truth = exact(x)
    for samples in (1, 8, 64):
        errors = [
            float((estimate(simultaneous_perturbation, x, samples, None, generator) - truth).square().sum())
            for _ in range(200)
        ]
        measured = math.fsum(errors) / len(errors) / float(truth.square().sum())
        assert measured == pytest.approx((n - 1) / samples, rel=0.25), f"with {samples} samples"


def test_perturbation_is_unbiased() -> None:
    x, generator = point(8), torch.Generator().manual_seed(0)
    truth = exact(x)
    mean = torch.stack([estimate(simultaneous_perturbation, x, 50, None, generator) for _ in range(100)]).mean(0)
    # 5,000 directions: the standard error is sqrt(7 / 5000) of the norm, about 0.04.
    assert (mean - truth).norm() / truth.norm() < 0.1


def test_enough_samples_point_the_right_way() -> None:
    x, generator = point(16), torch.Generator().manual_seed(0)
    found = estimate(simultaneous_perturbation, x, 256, None, generator)
    assert torch.cosine_similarity(found, exact(x), dim=0) > 0.95


def test_gradcheck_passes_finite_differences_and_fails_random_ones() -> None:
    x = point(5)
    assert gradcheck(lambda x: finite_difference(in_numpy, x), (x,))
    with pytest.raises(RuntimeError, match=r"Jacobian mismatch|not reentrant"):
        gradcheck(lambda x: simultaneous_perturbation(in_numpy, x), (x,))


def test_the_same_call_is_differentiated_alike_twice_and_another_is_not() -> None:
    x = point(6)
    y = simultaneous_perturbation(in_numpy, x)
    first, second = (torch.autograd.grad(y, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    others = [estimate(simultaneous_perturbation, x) for _ in range(20)]
    assert any(not torch.equal(first, other) for other in others)


def test_a_generator_makes_it_reproducible_and_spares_the_global_one() -> None:
    x, state = point(6), torch.random.get_rng_state()
    runs = [estimate(simultaneous_perturbation, x, 1, None, torch.Generator().manual_seed(5)) for _ in range(2)]
    assert torch.equal(*runs)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_finite_differences_cost_two_evaluations_an_element_and_perturbation_two_a_sample() -> None:
    calls = []

    def counted(x):
        calls.append(1)
        return x.sum()

    for method, options, expected in [
        (finite_difference, (), 1 + 2 * 10),
        (simultaneous_perturbation, (3,), 1 + 6),
    ]:
        calls.clear()
        method(counted, point(10), *options).backward()
        assert len(calls) == expected


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("black_box", "error", "message"),
    [
        pytest.param(lambda x: x.numpy(), TypeError, "got ndarray", id="array"),
        pytest.param(lambda x: x > 0, TypeError, r"got torch\.bool", id="bool"),
        pytest.param(lambda x: x.log(), RuntimeError, "returned nan", id="nan"),
        pytest.param(lambda x: 1 / (0 * x), RuntimeError, "returned -?(inf|nan)", id="inf"),
    ],
)
def test_a_black_box_that_misbehaves_is_named(method, black_box, error, message) -> None:
    with pytest.raises(error, match=message):
        method(black_box, point(3))


@pytest.mark.parametrize("method", METHODS)
def test_a_black_box_that_changes_its_shape_is_named(method) -> None:
    sizes = iter([3, 2])
    y = method(lambda x: x[: next(sizes)], point(3))
    with pytest.raises(RuntimeError, match=r"shape \(2,\), and before \(3,\)"):
        y.sum().backward()


@pytest.mark.parametrize("method", METHODS)
def test_a_black_box_may_write_into_its_argument(method) -> None:
    x = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    method(lambda x: x.mul_(3), x).backward()
    assert x.item() == 2
    assert x.grad.item() == pytest.approx(3)


def test_options_out_of_range_are_named() -> None:
    with pytest.raises(ValueError, match="step > 0, got 0"):
        finite_difference(in_numpy, point(2), 0)
    with pytest.raises(ValueError, match="samples >= 1, got 0"):
        simultaneous_perturbation(in_numpy, point(2), 0)


@pytest.mark.parametrize("method", METHODS)
def test_a_second_derivative_is_refused(method) -> None:
    x = point(3)
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(method(in_numpy, x), x, weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("size", [1.0, 1e3, 1e8, 1e12, 1e100])
def test_the_step_of_a_large_element_is_as_large(size) -> None:
    """At 1e12, the next number is 1e-4 away, so a step of 6e-6 would not change it."""
    x = torch.tensor([size, -2 * size, 0.5], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([size, size, 1.0], dtype=torch.float64)
    (found,) = torch.autograd.grad(finite_difference(lambda x: (x / scale).sin(), x), x, scale)
    torch.testing.assert_close(found, (x.detach() / scale).cos(), rtol=1e-9, atol=0)


def test_a_perturbation_is_divided_by_the_distance_of_rounded_points() -> None:
    x = torch.tensor([1e6 + 0.1], dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(simultaneous_perturbation(lambda x: 3 * x, x), x)
    torch.testing.assert_close(found, torch.full_like(found, 3), rtol=1e-9, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_second_derivative_raises_next_to_other_terms(method) -> None:
    x = point(3)
    (first,) = torch.autograd.grad(method(in_numpy, x) + x.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        torch.autograd.grad(first.sum(), x)
