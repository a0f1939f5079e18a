"""The recipes of the page ``complex_numbers``."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, randn
from autograd_cookbook.recipes import complex_numbers


def _complex_or_real() -> Iterator[Sample]:
    yield Sample("complex", (complex_randn(4, 3),))
    yield Sample("scalar", (complex_randn(),))
    yield Sample("empty", (complex_randn(0, 3),))
    yield Sample("real", (randn(4, 3),))


def _complex_million() -> tuple[Tensor]:
    return (torch.randn(1000, 1000, dtype=torch.complex64).requires_grad_(),)


ABS_SQUARED = Recipe(
    name="abs_squared",
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
)


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


POLYVAL = Recipe(
    name="polyval",
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
)


PHASOR = Recipe(
    name="phasor",
    function=complex_numbers.phasor,
    exports=("phasor",),
    samples=_complex_or_real,
    reference=torch.sgn,
    cost=Cost(_complex_million, saved=0, minimum=0, composition=lambda z: z / z.abs(), built_in=torch.sgn),
)
