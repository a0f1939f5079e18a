"""Derivatives of derivatives."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook import complex_numbers, double_backward, forward_mode, hessian, per_sample
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.samples import above, bowl, million, randn, unary


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


def _complex(*shape: int) -> Tensor:
    return randn(*shape, dtype=torch.complex128)


def _complex_or_real() -> Iterator[Sample]:
    yield Sample("complex", (_complex(4, 3),))
    yield Sample("scalar", (_complex(),))
    yield Sample("empty", (_complex(0, 3),))
    yield Sample("real", (randn(4, 3),))


def _polyval() -> Iterator[Sample]:
    yield Sample("complex", (_complex(4), _complex(2, 3)))
    yield Sample("real coefficients", (randn(3), _complex(4)))
    yield Sample("real argument", (_complex(3), randn(4)))
    yield Sample("all real", (randn(5), randn()))
    yield Sample("a line", (_complex(2), _complex(2, 3)))
    yield Sample("empty", (_complex(3), _complex(0)))


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
