"""Derivatives of derivatives."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook import double_backward, forward_mode, hessian
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
)
