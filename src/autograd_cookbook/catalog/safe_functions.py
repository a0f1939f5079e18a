"""The recipes of the page ``safe_functions``."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.catalog._recipe import COMPLEX_HALF, Cost, Limit, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, million, randn, unary
from autograd_cookbook.recipes import safe_functions


def _softplus() -> Iterator[Sample]:
    yield from unary()
    yield Sample("sharp", (randn(4, 3), 5.0))


def _exact_softplus(input: Tensor, beta: float = 1.0) -> Tensor:
    return torch.logaddexp(beta * input, torch.zeros_like(input)) / beta


SOFTPLUS = Recipe(
    name="softplus",
    function=safe_functions.softplus,
    exports=("softplus",),
    samples=_softplus,
    reference=_exact_softplus,
    cost=Cost(million, saved=0, minimum=0, composition=lambda x: x.exp().log1p(), built_in=F.softplus, wins=("range",)),
)


def _positive(*shape: int) -> Tensor:
    return (torch.rand(shape, dtype=torch.float64) + 0.1).requires_grad_()


def _xlogy() -> Iterator[Sample]:
    yield Sample("same shape", (randn(4, 3), _positive(4, 3)))
    yield Sample("some zeros", (randn(4, 3).detach().clamp(min=0).requires_grad_(), _positive(4, 3)))
    yield Sample("row", (randn(2, 3), _positive(3)))
    yield Sample("frozen targets", (randn(2, 3).detach(), _positive(2, 3)))
    yield Sample("two scalars", (randn(), _positive()))
    yield Sample("empty", (randn(0, 3), _positive(3)))


def _parts() -> tuple[Tensor, Tensor]:
    """Two tensors of a million positive numbers."""
    return torch.rand(1000, 1000).add(0.1).requires_grad_(), torch.rand(1000, 1000).add(0.1).requires_grad_()


XLOGY = Recipe(
    name="xlogy",
    function=safe_functions.xlogy,
    exports=("xlogy",),
    samples=_xlogy,
    reference=torch.xlogy,
    cost=Cost(_parts, saved=0, minimum=0, composition=lambda x, y: x * y.log(), built_in=torch.xlogy, wins=("range",)),
)


def _safe_sqrt() -> Iterator[Sample]:
    yield Sample("matrix", (_positive(4, 3),))
    yield Sample("scalar", (_positive(),))
    yield Sample("empty", (_positive(0, 3),))
    yield Sample("complex", (complex_randn(3),))


def _double_where_sqrt(input: Tensor) -> Tensor:
    return torch.where(input == 0, 0, torch.where(input == 0, 1, input).sqrt())


SAFE_SQRT = Recipe(
    name="safe_sqrt",
    function=safe_functions.safe_sqrt,
    exports=("safe_sqrt",),
    samples=_safe_sqrt,
    reference=_double_where_sqrt,
    cost=Cost(lambda: _parts()[:1], saved=4, minimum=0, composition=_double_where_sqrt, built_in=torch.sqrt),
    limits=(COMPLEX_HALF,),
)


def _safe_divide() -> Iterator[Sample]:
    yield Sample("same shape", (randn(4, 3), _positive(4, 3)))
    yield Sample("by a column", (randn(4, 3), _positive(4, 1)))
    yield Sample("by counts", (randn(2, 3), torch.tensor([2.0, 0.0, 3.0], dtype=torch.float64)))
    yield Sample("two scalars", (randn(), _positive()))
    yield Sample("empty", (randn(0, 3), _positive(3)))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(3)))
    yield Sample("real and complex", (randn(2, 3), complex_randn(3)))


def _double_where_divide(input: Tensor, other: Tensor) -> Tensor:
    return torch.where(other == 0, 0, input / torch.where(other == 0, 1, other))


SAFE_DIVIDE = Recipe(
    name="safe_divide",
    function=safe_functions.safe_divide,
    exports=("safe_divide",),
    samples=_safe_divide,
    reference=_double_where_divide,
    cost=Cost(_parts, saved=0, minimum=0, composition=_double_where_divide, built_in=torch.div),
    limits=(Limit(("float16", "bfloat16"), "complex numbers", ("complex", "real and complex")),),
)
