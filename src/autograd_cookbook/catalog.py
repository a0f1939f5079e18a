"""Every recipe once: how to call it, what to compare it with, and what it promises.

The tests, the badges, the capability matrix, the benchmarks and the copy button all read this list. To add a
recipe, add its function to a module, one :class:`Recipe` here, and one script to ``examples/``.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook import elementwise, linear
from autograd_cookbook.source import standalone

VERIFIED = Path(__file__).with_name("verified.json")


@dataclass(frozen=True)
class Sample:
    """One call of a recipe in float64; the tensors that require grad are leaves."""

    name: str
    args: tuple[Any, ...]

    def to(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> "Sample":
        """The same call with every floating tensor converted; leaves stay leaves."""

        def convert(value: Any) -> Any:
            if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
                wanted = dtype.to_complex() if value.is_complex() and not dtype.is_complex else dtype
                return value.detach().to(device, wanted).requires_grad_(value.requires_grad)
            if isinstance(value, Tensor):
                return value.to(device)
            return value

        return Sample(self.name, tuple(convert(a) for a in self.args))


@dataclass(frozen=True)
class Recipe:
    """One entry of the catalog.

    Args:
        name: unique; the label of the recipe on its page.
        page: the script in ``examples/`` that teaches it, without suffix.
        function: what a reader calls.
        exports: names that the copied source must define, the first being ``function``'s.
        samples: yields the calls that the tests verify, the typical one first.
        reference: the nearest built-in, or a composition of built-ins, called as ``function`` is.
        gradient: "exact"; "surrogate" if the backward declares another gradient on purpose, which is then the
            one that autograd finds for ``reference``; "approximate" if it estimates one.
        tolerance: of an approximate gradient, the largest relative error in float64.
        promises: capabilities that must stay "yes", whatever the verified data says.
    """

    name: str
    page: str
    function: Callable[..., Any]
    exports: tuple[str, ...]
    samples: Callable[[], Iterator[Sample]]
    reference: Callable[..., Any]
    gradient: Literal["exact", "surrogate", "approximate"] = "exact"
    tolerance: float | None = None
    promises: tuple[str, ...] = ("first_order", "second_order", "vmap", "compile")

    @cached_property
    def calls(self) -> tuple[Sample, ...]:
        """The samples, the same in every process: the global random state is neither read nor moved."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return tuple(self.samples())

    @property
    def module(self) -> str:
        """Dotted name of the module that holds the recipe."""
        return self.function.__module__

    @property
    def source(self) -> str:
        """What the copy button yields: a file that runs without this package."""
        return standalone(self.module, self.exports)


def verified() -> dict[str, Any]:
    """The capabilities of every recipe as last measured, and the torch version that they were measured on."""
    return json.loads(VERIFIED.read_text())


def randn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """A random leaf that requires grad."""
    return torch.randn(shape, dtype=dtype).requires_grad_()


# --- First steps ---


def _linear() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(5, 3), randn(5)))
    yield Sample("no bias", (randn(4, 3), randn(5, 3), None))
    yield Sample("vector", (randn(3), randn(5, 3), randn(5)))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(5, 4), randn(5)))
    yield Sample("empty batch", (randn(0, 3), randn(5, 3), randn(5)))
    yield Sample("no features", (randn(2, 0), randn(5, 0), randn(5)))


def _unary() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3),))
    yield Sample("scalar", (randn(),))
    yield Sample("empty", (randn(0, 3),))
    yield Sample("large", ((randn(5).detach() * 100).requires_grad_(),))


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="linear",
        page="01_first_steps/template",
        function=linear.linear,
        exports=("linear", "Linear"),
        samples=_linear,
        reference=F.linear,
    ),
    Recipe(
        name="relu",
        page="01_first_steps/template",
        function=elementwise.relu,
        exports=("relu",),
        samples=_unary,
        reference=torch.relu,
    ),
    Recipe(
        name="sigmoid",
        page="01_first_steps/template",
        function=elementwise.sigmoid,
        exports=("sigmoid",),
        samples=_unary,
        reference=torch.sigmoid,
    ),
    Recipe(
        name="tanh",
        page="01_first_steps/template",
        function=elementwise.tanh,
        exports=("tanh",),
        samples=_unary,
        reference=torch.tanh,
    ),
)

BY_NAME: dict[str, Recipe] = {recipe.name: recipe for recipe in RECIPES}
