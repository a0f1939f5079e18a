"""Derivatives of derivatives."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook import (
    complex_numbers,
    double_backward,
    forward_mode,
    hessian,
    implicit,
    inner_loop,
    ode,
    per_sample,
)
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.samples import above, bowl, complex_randn, million, randn, unary


def _lambert_w() -> Iterator[Sample]:
    yield Sample("matrix", (above(-0.3, 4, 3),))
    yield Sample("scalar", (above(-0.3),))
    yield Sample("empty", (above(-0.3, 0, 3),))
    yield Sample("below zero", ((torch.rand(5, dtype=torch.float64) * 0.3 - 0.35).requires_grad_(),))
    yield Sample("large", ((torch.rand(5, dtype=torch.float64) * 1e4).requires_grad_(),))


def _newton(input: Tensor) -> Tensor:
    """Lambert W by Newton's method for ``w exp(w) = x``, step after step on the tape."""
    w = torch.log1p(input.clamp(min=-0.3))
    for _ in range(20):
        w = w - (w * w.exp() - input) / (w.exp() * (1 + w))
    return torch.where(input < -1 / math.e, torch.nan, w)


def _newton_between(function: Callable[..., Tensor], low: Tensor, high: Tensor, *parameters: Tensor) -> Tensor:
    z = (low + high) / 2
    for _ in range(40):
        values, pull_back = torch.func.vjp(lambda z: function(z, *parameters), z)
        z = z - values / pull_back(torch.ones_like(values))[0]
    return z


def _kepler(z: Tensor, mean: Tensor, eccentricity: Tensor) -> Tensor:
    return z - eccentricity * z.sin() - mean


def _newton_kepler(function: Any, low: Tensor, high: Tensor, mean: Tensor, eccentricity: Tensor) -> Tensor:
    z = mean
    for _ in range(4):
        z = z - (z - eccentricity * z.sin() - mean) / (1 - eccentricity * z.cos())
    return z


def _linear_solve() -> Iterator[Sample]:
    def matrix(*batch: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return (torch.randn(*batch, 3, 3, dtype=dtype) + 3 * torch.eye(3)).requires_grad_()

    yield Sample("matrix", (matrix(), randn(3, 2)))
    yield Sample("vector", (matrix(), randn(3)))
    yield Sample("batch of vectors", (matrix(2), randn(2, 3)))
    yield Sample("broadcast", (matrix(2, 1), randn(4, 3, 2)))
    yield Sample("complex", (matrix(dtype=torch.complex128), complex_randn(3, 2)))
    yield Sample("empty", (matrix(0), randn(0, 3, 2)))


def _field(t: Tensor, z: Tensor, w: Tensor) -> Tensor:
    return (z @ w).tanh() * t.cos()


def _odeint() -> Iterator[Sample]:
    def times(*values: float) -> Tensor:
        return torch.tensor(values, dtype=torch.float64).requires_grad_()

    yield Sample("batch", (_field, randn(4, 2), times(0.0, 0.1, 0.3), 3, randn(2, 2)))
    yield Sample("scalar, backward in time", (lambda t, z, a: a * z + t, randn(), times(0.4, 0.0), 4, randn()))
    yield Sample("no parameters", (lambda t, z: z.sin() * t, randn(3), times(0.1, 0.2).detach(), 4))
    yield Sample("empty", (_field, randn(0, 2), times(0.0, 0.2), 3, randn(2, 2)))
    yield Sample("complex", (lambda t, z, a: a * z * z + t, complex_randn(2), times(0.0, 0.2), 8, complex_randn()))


def _unrolled_odeint(
    function: Callable[..., Tensor], initial: Tensor, times: Tensor, steps: int, *parameters: Tensor
) -> Tensor:
    states = [initial]
    for n in range(len(times) - 1):
        state, size = states[-1], (times[n + 1] - times[n]) / steps
        for i in range(steps):
            time = times[n] + i * size
            a = function(time, state, *parameters)
            b = function(time + size / 2, state + size / 2 * a, *parameters)
            c = function(time + size / 2, state + size / 2 * b, *parameters)
            d = function(time + size, state + size * c, *parameters)
            state = state + size / 6 * (a + 2 * b + 2 * c + d)
        states.append(state)
    return torch.stack(states)


def _flow() -> tuple[Any, ...]:
    """A problem to measure with: a batch of 10,000 states, ten steps."""
    weight = (0.1 * torch.randn(100, 100)).requires_grad_()
    return (
        lambda t, z, w: (z @ w).tanh(),
        torch.randn(10_000, 100).requires_grad_(),
        torch.tensor([0.0, 1.0]),
        10,
        weight,
    )


def _regression(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return ((x @ w).tanh() - y).square().mean()


def _inner_sgd() -> Iterator[Sample]:
    yield Sample("learned rate", (_regression, randn(3, 2), 3, randn(), randn(5, 3), randn(5, 2)))
    yield Sample("fixed rate", (_regression, randn(3, 2), 2, 0.5, randn(5, 3).detach(), randn(5, 2).detach()))
    yield Sample("scalar", (lambda w, a: (w * a).sin(), randn(), 2, 0.1, randn()))
    yield Sample("no step", (lambda w: w.sum(), randn(3), 0, 0.1))

    def distance(w: Tensor, a: Tensor) -> Tensor:
        return torch.view_as_real(w * w - a).square().sum()  # of abs().square(), autograd's Hessian at 0 is 0

    yield Sample("complex", (distance, complex_randn(2), 2, 0.1, complex_randn(2)))


def _plain_sgd(
    loss: Callable[..., Tensor], parameters: Tensor, steps: int, lr: float | Tensor, *given: Tensor
) -> Tensor:
    for _ in range(steps):
        value = loss(parameters, *given)
        parameters = parameters - lr * torch.autograd.grad(value, parameters, create_graph=True)[0]
    return parameters


def _log_diagonal(input: Tensor) -> Tensor:
    return 2 * torch.linalg.cholesky((input + input.mH) / 2).diagonal(dim1=-2, dim2=-1).real.log().sum(-1)


def _positive_definite(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    factor = torch.randn((*shape, shape[-1]), dtype=dtype) / math.sqrt(max(shape[-1], 1))
    return (factor @ factor.mH + torch.eye(shape[-1], dtype=dtype)).requires_grad_()


def _logdet() -> Iterator[Sample]:
    yield Sample("matrix", (_positive_definite(4),))
    yield Sample("batch", (_positive_definite(2, 3),))
    yield Sample("one by one", (_positive_definite(1),))
    yield Sample("no rows", (_positive_definite(0),))
    yield Sample("empty batch", (_positive_definite(0, 3),))
    yield Sample("complex", (_positive_definite(3, dtype=torch.complex128),))


def _hvp() -> Iterator[Sample]:
    for mode in ("reverse", "forward_over_reverse"):
        yield Sample(f"vector, {mode}", (bowl, randn(3), randn(3), mode))
        yield Sample(f"matrix, {mode}", (bowl, randn(2, 3), randn(2, 3), mode))
        yield Sample(f"scalar, {mode}", (bowl, randn(), randn(), mode))
    yield Sample("custom function inside", (lambda x: hessian.log_cosh(x).sum(), randn(3), randn(3)))


def _hessian() -> Iterator[Sample]:
    for mode in ("reverse", "forward_over_reverse"):
        yield Sample(f"vector, {mode}", (bowl, randn(3), mode))
        yield Sample(f"matrix, {mode}", (bowl, randn(2, 2), mode))
        yield Sample(f"scalar, {mode}", (bowl, randn(), mode))


def _jacobian() -> Iterator[Sample]:
    for mode in ("reverse", "forward_over_reverse"):
        yield Sample(f"vector, {mode}", (lambda x: torch.outer(x.sin(), x), randn(3), mode))
        yield Sample(f"matrix, {mode}", (lambda x: (x.tanh() @ x.tanh().mT).sum(0), randn(2, 3), mode))
        yield Sample(f"scalar output, {mode}", (bowl, randn(2), mode))


def _converged(state: Tensor) -> Tensor:
    """What the recipes do too: no result in place of a wrong one."""
    if not state.isfinite().all():
        raise RuntimeError("the iteration does not converge")
    return state


def _layer(z: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """A contraction, whatever its weight."""
    return torch.tanh(z @ (w / (2 + 2 * w.norm())) + x)


def _fixed_point() -> Iterator[Sample]:
    yield Sample("layer", (_layer, torch.zeros(4, 3, dtype=torch.float64), randn(4, 3), randn(3, 3)))
    yield Sample("scalar", (lambda z, a: (z * a.sin()).cos() / 2, torch.ones((), dtype=torch.float64), randn()))
    yield Sample("empty", (_layer, torch.zeros(0, 3, dtype=torch.float64), randn(0, 3), randn(3, 3)))
    yield Sample("complex", (lambda z, a: (z * a).cos() / 4, torch.zeros(2, dtype=torch.complex128), complex_randn(2)))


def _unrolled(function: Callable[..., Tensor], initial: Tensor, *parameters: Tensor) -> Tensor:
    for _ in range(100):
        initial = function(initial, *parameters)
    return _converged(initial)


def _circle_and_line(z: Tensor, p: Tensor) -> Tensor:
    x, y = z.unbind(-1)
    a, b = p.unbind(-1)
    return torch.stack([x**2 + y**2 - a**2 - 2, b * x - y], -1)


def _root() -> Iterator[Sample]:
    yield Sample("batch", (_circle_and_line, torch.ones(3, 2, dtype=torch.float64), randn(3, 2)))
    yield Sample("one system", (_circle_and_line, torch.ones(2, dtype=torch.float64), randn(2)))
    yield Sample("one unknown", (lambda z, a: z.exp() + z - a**2, torch.zeros(1, dtype=torch.float64), randn(1)))
    yield Sample("empty", (_circle_and_line, torch.ones(0, 2, dtype=torch.float64), randn(0, 2)))


def _unrolled_newton(function: Callable[..., Tensor], initial: Tensor, *parameters: Tensor) -> Tensor:
    for _ in range(30):
        values, pull_back = torch.func.vjp(lambda z: function(z, *parameters), initial)
        units = torch.eye(initial.shape[-1], dtype=initial.dtype)
        jacobian = torch.stack([pull_back(unit.expand(initial.shape))[0] for unit in units], -2)
        initial = initial - torch.linalg.solve(jacobian, values.unsqueeze(-1)).squeeze(-1)
    return _converged(initial)


def _bisect() -> Iterator[Sample]:
    def bounds(*shape: int) -> tuple[Tensor, Tensor]:
        return -2 * torch.ones(shape, dtype=torch.float64), 3 * torch.ones(shape, dtype=torch.float64)

    def cubic(z: Tensor, a: Tensor) -> Tensor:
        return z**3 + z - 2 * a.sin() - 5

    yield Sample("matrix", (cubic, *bounds(4, 3), randn(4, 3)))
    yield Sample(
        "shared", (lambda z, a, b: z**3 + z * (1 + b.sin() ** 2) - 2 * a.sin() - 5, *bounds(3), randn(3), randn())
    )
    yield Sample("scalar", (cubic, *bounds(), randn()))
    yield Sample("empty", (cubic, *bounds(0, 3), randn(0, 3)))


def _smooth_maximum() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), randn(4, 3), 0.5))
    yield Sample("row", (randn(4, 3), randn(3)))
    yield Sample("both sides", (randn(4, 1), randn(3), 2.0))
    yield Sample("scalars", (randn(), randn()))
    yield Sample("a constant", (randn(4, 3), randn().detach(), 0.1))
    yield Sample("empty", (randn(0, 3), randn(3)))


def _logaddexp(input: Tensor, other: Tensor, temperature: float = 1.0) -> Tensor:
    return temperature * torch.logaddexp(input / temperature, other / temperature)


def _isotonic_regression() -> Iterator[Sample]:
    yield Sample("rows", (randn(3, 6),))
    yield Sample("vector", (randn(8),))
    yield Sample("two batch dims", (randn(2, 2, 4),))
    yield Sample("one value", (randn(3, 1),))
    yield Sample("no rows", (randn(0, 3),))
    yield Sample("no values", (randn(2, 0),))


def _minimax(input: Tensor) -> Tensor:
    """Isotonic regression by a formula: the largest, over starts j, of the smallest, over ends k, mean of j to k."""
    n = input.shape[-1]
    if n == 0:
        return input * 1
    until = torch.nn.functional.pad(input.cumsum(-1), (1, 0))
    place = torch.arange(n, device=input.device)
    count = (place - place[:, None] + 1).clamp(min=1)
    means = (until[..., None, 1:] - until[..., :-1, None]) / count
    i, j, k = place[:, None, None], place[:, None], place
    lowest = means[..., None, :, :].masked_fill(k < i, torch.inf).amin(-1)
    return lowest.masked_fill(j.mT > i[..., 0], -torch.inf).amax(-1)


def _loss(weight: Tensor, x: Tensor) -> Tensor:
    return (weight.sin() * x).sum().square() + (weight * x).cos().sum()


def _custom_loss(weight: Tensor, x: Tensor) -> Tensor:
    return double_backward.lambert_w((weight.sin() * x).sum().square())


def _batch(*shape: int) -> tuple[Tensor]:
    return (torch.randn(shape, dtype=torch.float64),)


def _per_sample_gradients() -> Iterator[Sample]:
    yield Sample("vector", (_loss, randn(3), _batch(4, 3)))
    yield Sample("matrix", (_loss, randn(2, 3), _batch(4, 2, 3)))
    yield Sample("scalar", (_loss, randn(), _batch(4)))
    yield Sample("one sample", (_loss, randn(3), _batch(1, 3)))
    yield Sample("in chunks", (_loss, randn(3), _batch(5, 3), 2))
    yield Sample("custom function inside", (_custom_loss, randn(3), _batch(4, 3)))


def _loop(function: Any, parameters: Tensor, batch: tuple[Tensor], _: int | None = None) -> Tensor:
    rows = [torch.autograd.grad(function(parameters, x), parameters, create_graph=True)[0] for x in batch[0].unbind()]
    return torch.stack(rows)


def _clipped_mean_gradient() -> Iterator[Sample]:
    yield Sample("some clipped", (_loss, randn(3), _batch(6, 3), 1.0))
    yield Sample("all clipped", (_loss, randn(3), _batch(4, 3), 0.01))
    yield Sample("none clipped", (_loss, randn(3), _batch(4, 3), 100.0))
    yield Sample("matrix", (_loss, randn(2, 3), _batch(4, 2, 3), 1.0))
    yield Sample("scalar", (_loss, randn(), _batch(4), 0.5))


def _clipped_loop(function: Any, parameters: Tensor, batch: tuple[Tensor], max_norm: float) -> Tensor:
    rows = _loop(function, parameters, batch)
    return torch.stack([row * (max_norm / row.norm()).clamp(max=1) for row in rows]).mean(0)


def _complex_or_real() -> Iterator[Sample]:
    yield Sample("complex", (complex_randn(4, 3),))
    yield Sample("scalar", (complex_randn(),))
    yield Sample("empty", (complex_randn(0, 3),))
    yield Sample("real", (randn(4, 3),))


def _polyval() -> Iterator[Sample]:
    yield Sample("complex", (complex_randn(4), complex_randn(2, 3)))
    yield Sample("real coefficients", (randn(3), complex_randn(4)))
    yield Sample("real argument", (complex_randn(3), randn(4)))
    yield Sample("all real", (randn(5), randn()))
    yield Sample("a line", (complex_randn(2), complex_randn(2, 3)))
    yield Sample("empty", (complex_randn(3), complex_randn(0)))


def _horner(coefficients: Tensor, input: Tensor) -> Tensor:
    output = torch.zeros_like(input) + 0 * coefficients.sum()
    for coefficient in coefficients:
        output = output * input + coefficient
    return output


def _complex_million() -> tuple[Tensor]:
    return (torch.randn(1000, 1000, dtype=torch.complex64).requires_grad_(),)


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="lambert_w",
        page="05_higher_order/double_backward",
        topics=("E1",),
        function=double_backward.lambert_w,
        exports=("lambert_w",),
        samples=_lambert_w,
        reference=_newton,
        cost=Cost(
            lambda: ((torch.rand(1000, 1000) * 10).requires_grad_(),),
            saved=4,
            minimum=0,
            composition=double_backward.LambertWFunction.forward,
        ),
    ),
    Recipe(
        name="logdet",
        page="05_higher_order/double_backward",
        topics=("E1",),
        function=double_backward.logdet,
        exports=("logdet",),
        samples=_logdet,
        reference=_log_diagonal,
        cost=Cost(
            lambda: (_positive_definite(1000, dtype=torch.float32),),
            saved=4,
            minimum=0,
            composition=_log_diagonal,
            built_in=torch.logdet,
            wins=("peak", "time"),
        ),
    ),
    Recipe(
        name="log_cosh",
        page="05_higher_order/hessian",
        topics=("E1",),
        function=hessian.log_cosh,
        exports=("log_cosh",),
        samples=unary,
        reference=lambda input: torch.logaddexp(input, -input) - math.log(2),
        cost=Cost(million, saved=0, minimum=0, composition=lambda x: x.cosh().log(), wins=("range",)),
    ),
    Recipe(
        name="hvp",
        page="05_higher_order/hessian",
        topics=("E2",),
        function=hessian.hvp,
        exports=("hvp",),
        samples=_hvp,
        reference=lambda f, x, v, mode="": torch.autograd.functional.hvp(f, x, v, create_graph=True)[1],
    ),
    Recipe(
        name="hessian",
        page="05_higher_order/hessian",
        topics=("E2",),
        function=hessian.hessian,
        exports=("hessian",),
        samples=_hessian,
        reference=lambda f, x, mode: torch.func.hessian(f)(x),
    ),
    Recipe(
        name="jacobian",
        page="05_higher_order/hessian",
        topics=("E2",),
        function=hessian.jacobian,
        exports=("jacobian",),
        samples=_jacobian,
        reference=lambda f, x, mode: torch.func.jacrev(f)(x),
    ),
    Recipe(
        name="inner_sgd",
        page="05_higher_order/maml",
        topics=("E5",),
        function=inner_loop.inner_sgd,
        exports=("inner_sgd",),
        samples=_inner_sgd,
        reference=_plain_sgd,
        cost=Cost(
            lambda: (
                _regression,
                (0.1 * torch.randn(100, 100)).requires_grad_(),
                5,
                0.1,
                torch.randn(10_000, 100),
                torch.randn(10_000, 100),
            ),
            saved=0.16,
            minimum=0,
            composition=_plain_sgd,
            unit="number in the data",
            units=1_000_000,
            wins=("bytes", "peak"),
        ),
    ),
    Recipe(
        name="fixed_point",
        page="05_higher_order/implicit",
        topics=("E6",),
        function=implicit.fixed_point,
        exports=("fixed_point",),
        samples=_fixed_point,
        reference=_unrolled,
        # It looks at numbers to know when it is done, which the compiler cannot.
        promises=("first_order", "second_order", "vmap", "checkpoint"),
        cost=Cost(
            lambda: (
                lambda z, x, w: (z @ w + x).tanh(),
                torch.zeros(10_000, 100),
                torch.randn(10_000, 100).requires_grad_(),
                (0.05 * torch.randn(100, 100)).requires_grad_(),
            ),
            saved=4,
            minimum=0,
            composition=lambda f, z, *p: functools.reduce(lambda z, _: f(z, *p), range(30), z),
            wins=("bytes", "peak"),
        ),
    ),
    Recipe(
        name="root",
        page="05_higher_order/implicit",
        topics=("E6",),
        function=implicit.root,
        exports=("root",),
        samples=_root,
        reference=_unrolled_newton,
        promises=("first_order", "second_order", "vmap", "checkpoint"),
    ),
    Recipe(
        name="bisect",
        page="05_higher_order/implicit",
        topics=("E6",),
        function=implicit.bisect,
        exports=("bisect",),
        samples=_bisect,
        reference=_newton_between,
        cost=Cost(
            lambda: (
                _kepler,
                torch.zeros(1_000_000),
                torch.full((1_000_000,), 2 * math.pi),
                (2 * math.pi * torch.rand(1_000_000)).requires_grad_(),
                (0.5 * torch.rand(1_000_000)).requires_grad_(),
            ),
            saved=4,
            minimum=0,
            composition=_newton_kepler,
            wins=(),
        ),
    ),
    Recipe(
        name="linear_solve",
        page="05_higher_order/implicit",
        topics=("E6",),
        function=implicit.linear_solve,
        exports=("linear_solve",),
        samples=_linear_solve,
        reference=torch.linalg.solve,
        cost=Cost(
            lambda: ((torch.randn(1000, 1000) + 50 * torch.eye(1000)).requires_grad_(), torch.randn(1000)),
            saved=0.004,
            minimum=0,
            composition=lambda a, b: a.inverse() @ b,
            built_in=torch.linalg.solve,
            wins=("bytes", "peak"),
        ),
    ),
    Recipe(
        name="odeint",
        page="05_higher_order/neural_ode",
        topics=("E7",),
        function=ode.odeint,
        exports=("odeint",),
        samples=_odeint,
        reference=_unrolled_odeint,
        cost=Cost(_flow, saved=8, minimum=0, composition=_unrolled_odeint, wins=("bytes", "peak")),
    ),
    Recipe(
        name="odeint_adjoint",
        page="05_higher_order/neural_ode",
        topics=("E7",),
        function=ode.odeint_adjoint,
        exports=("odeint_adjoint",),
        samples=_odeint,
        reference=_unrolled_odeint,
        gradient="approximate",
        tolerance=1e-5,
        promises=("first_order", "vmap", "compile"),
        cost=Cost(_flow, saved=8, minimum=0, composition=_unrolled_odeint, wins=("bytes", "peak")),
    ),
    Recipe(
        name="symlog",
        page="05_higher_order/forward_mode",
        topics=("E3",),
        function=forward_mode.symlog,
        exports=("symlog",),
        samples=unary,
        reference=lambda input: input.sign() * input.abs().log1p(),
        promises=("first_order", "second_order", "forward_mode", "vmap"),
        cost=Cost(
            million,
            saved=4,
            minimum=0,
            composition=lambda x: x.sign() * x.abs().log1p(),
            wins=("range",),
        ),
    ),
    Recipe(
        name="smooth_maximum",
        page="05_higher_order/forward_mode",
        topics=("E3",),
        function=forward_mode.smooth_maximum,
        exports=("smooth_maximum",),
        samples=_smooth_maximum,
        reference=_logaddexp,
        promises=("first_order", "second_order", "forward_mode", "vmap"),
        cost=Cost(lambda: (*million(), *million(), 0.5), saved=0, minimum=0, composition=_logaddexp),
    ),
    Recipe(
        name="isotonic_regression",
        page="05_higher_order/per_sample_gradients",
        topics=("E4",),
        function=per_sample.isotonic_regression,
        exports=("isotonic_regression",),
        samples=_isotonic_regression,
        reference=_minimax,
        promises=("first_order", "second_order", "vmap"),
    ),
    Recipe(
        name="per_sample_gradients",
        page="05_higher_order/per_sample_gradients",
        topics=("E4",),
        function=per_sample.per_sample_gradients,
        exports=("per_sample_gradients",),
        samples=_per_sample_gradients,
        reference=_loop,
    ),
    Recipe(
        name="clipped_mean_gradient",
        page="05_higher_order/per_sample_gradients",
        topics=("E4",),
        function=per_sample.clipped_mean_gradient,
        exports=("clipped_mean_gradient",),
        samples=_clipped_mean_gradient,
        reference=_clipped_loop,
    ),
    Recipe(
        name="abs_squared",
        page="05_higher_order/complex_numbers",
        topics=("E8",),
        function=complex_numbers.abs_squared,
        exports=("abs_squared",),
        samples=_complex_or_real,
        reference=lambda input: (input * input.conj()).real,
        cost=Cost(
            _complex_million,
            saved=0,
            minimum=0,
            composition=lambda z: (z * z.conj()).real,
            built_in=lambda z: z.abs().square(),
            wins=("peak", "time"),
        ),
    ),
    Recipe(
        name="polyval",
        page="05_higher_order/complex_numbers",
        topics=("E8",),
        function=complex_numbers.polyval,
        exports=("polyval",),
        samples=_polyval,
        reference=_horner,
        cost=Cost(
            lambda: (torch.randn(9, dtype=torch.complex64), *_complex_million()),
            saved=0,
            minimum=0,
            composition=_horner,
            units=1_000_000,
            wins=("bytes", "peak", "time"),
        ),
    ),
    Recipe(
        name="phasor",
        page="05_higher_order/complex_numbers",
        topics=("E8",),
        function=complex_numbers.phasor,
        exports=("phasor",),
        samples=_complex_or_real,
        reference=torch.sgn,
        cost=Cost(_complex_million, saved=0, minimum=0, composition=lambda z: z / z.abs(), built_in=torch.sgn),
    ),
)
