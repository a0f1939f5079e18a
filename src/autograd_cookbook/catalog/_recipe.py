"""What the catalog says about one recipe."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor

from autograd_cookbook.catalog._source import standalone


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
class Cost:
    """What a recipe is measured against; ``benchmarks/costs.py`` runs it, and its page shows the table.

    Args:
        inputs: makes the arguments of one call, in float32 and of a million elements or more.
        saved: bytes a unit that the recipe keeps for backward beyond its arguments; a test holds it exactly.
        minimum: bytes a unit that no exact backward can do without.
        composition: what you would write without a recipe, from differentiable parts; called as the recipe is.
        built_in: what torch has for it.
        unit: what is counted, "element" being one of the first tensor among the arguments.
        units: how many of them ``inputs`` has; the elements of the first tensor if None.
        wins: where the recipe is ahead of all others. A test compares "bytes", "peak" and "time" with the
            stored results; "range" (finite or accurate where the others are not), "second order", "forward mode"
            and "gradient" (another one than autograd's, on purpose) are what the page shows and asserts. Empty
            if it wins nothing: then the page says so.
    """

    inputs: Callable[[], tuple[Any, ...]]
    saved: float
    minimum: float
    composition: Callable[..., Any] | None = None
    built_in: Callable[..., Any] | None = None
    unit: str = "element"
    units: int | None = None
    wins: tuple[Literal["bytes", "peak", "time", "range", "second order", "forward mode", "gradient"], ...] = ()

    def count(self, args: tuple[Any, ...]) -> int:
        """How many units the arguments of a call have."""
        return self.units or next(a.numel() for a in args if isinstance(a, Tensor))


@dataclass(frozen=True)
class Limit:
    """Where capabilities end that the typical sample of a recipe has: its badge says so.

    Args:
        capabilities: their names, as an audit reports them.
        where: what they do not hold for, in words that follow "not for".
        samples: the names of the samples on which an audit says "no" to all of them; a test asks it, and that there
            are no others. Empty if a size decides, and not a sample: then a test of scales shows it.
    """

    capabilities: tuple[str, ...]
    where: str
    samples: tuple[str, ...] = ("complex",)


COMPLEX_HALF = Limit(("float16", "bfloat16"), "complex numbers")  # which torch can hardly compute with
COMPLEX_BFLOAT16 = Limit(("bfloat16",), "complex numbers")  # which torch does not have


@dataclass(frozen=True)
class Recipe:
    """One entry of the catalog.

    Args:
        name: unique; the label of the recipe on its page.
        function: what a reader calls.
        exports: names that the copied source must define, the first being ``function``'s.
        samples: yields the calls that the tests verify, the typical one first; None for a tool that is no
            differentiable function.
        reference: the nearest built-in, or a composition of built-ins, called as ``function`` is.
        gradient: "exact"; "surrogate" if the backward declares another gradient on purpose, which is then the
            one that autograd finds for ``reference``; "approximate" if it estimates one.
        tolerance: of an approximate gradient, the largest relative error in float64.
        promises: capabilities that must stay "yes", whatever the verified data says.
        cost: what its bytes and its time are compared with; None where there is nothing to compare.
        limits: where capabilities end that the typical sample has.
    """

    name: str
    function: Callable[..., Any]
    exports: tuple[str, ...]
    samples: Callable[[], Iterator[Sample]] | None = None
    reference: Callable[..., Any] | None = None
    gradient: Literal["exact", "surrogate", "approximate"] = "exact"
    tolerance: float | None = None
    promises: tuple[str, ...] = ("first_order", "second_order", "vmap", "compile")
    cost: Cost | None = None
    limits: tuple[Limit, ...] = ()

    @cached_property
    def calls(self) -> tuple[Sample, ...]:
        """The samples. They are the same in every process, and the global random state is neither read nor moved."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return tuple(self.samples()) if self.samples else ()

    def limit(self, capability: str) -> str:
        """What a capability does not hold for, although the typical sample has it; empty if there is no such limit."""
        return " and ".join(limit.where for limit in self.limits if capability in limit.capabilities)

    @property
    def module(self) -> str:
        """Dotted name of the module that holds the recipe."""
        return self.function.__module__

    @property
    def page(self) -> str:
        """The page that teaches it, which shares its name with the module of the recipe."""
        return self.module.rpartition(".")[2]

    @property
    def names(self) -> tuple[str, ...]:
        """Dotted names of what it exports, by the modules that define it."""
        module = import_module(self.module)
        return tuple(f"{getattr(module, export).__module__}.{export}" for export in self.exports)

    @property
    def audit_options(self) -> dict[str, Any]:
        """What an audit has to be told about it, in addition to the arguments of a call."""
        options: dict[str, dict[str, Any]] = {
            "exact": {"reference": self.reference},
            "surrogate": {"surrogate": self.reference},
            "approximate": {"gradient": "approximate", "tolerance": self.tolerance},
        }
        return options[self.gradient]

    @property
    def source(self) -> str:
        """A file that runs without this package, which is what the copy button yields."""
        return standalone(self.module, self.exports)
