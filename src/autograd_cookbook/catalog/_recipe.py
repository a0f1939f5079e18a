"""What the catalog says about one recipe."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor

from autograd_cookbook.catalog._source import standalone

# At the top of a copied file.
NOTICE = """\
# {name}: a recipe of the Autograd Cookbook.
# Copyright (c) 2026, The Autograd Cookbook authors. SPDX-License-Identifier: BSD-3-Clause
"""


@dataclass(frozen=True)
class Sample:
    """One call of a recipe in float64. The tensors that require grad are leaves."""

    name: str
    args: tuple[Any, ...]

    def to(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> "Sample":
        """Return the same call with every floating or complex tensor converted. Leaves stay leaves."""

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
    """The alternatives with which a recipe is compared. ``benchmarks/costs.py`` measures, and a page shows the table.

    Args:
        inputs: returns the arguments of one call, in float32 and with a million units or more.
        saved: the number of bytes per unit that the recipe saves for backward in addition to its arguments. A test
            asserts that the number is exact.
        minimum: the number of bytes per unit that every exact backward needs.
        composition: the code that you would write without a recipe, from differentiable operations. It takes the same
            arguments as the recipe.
        built_in: PyTorch's own function for the same task.
        unit: the unit that is counted. "element" means an element of the first tensor among the arguments.
        units: the number of units in ``inputs``. None means the number of elements of the first tensor.
        wins: the properties in which the recipe is better than all alternatives, or empty if there is none. A test
            compares "bytes", "peak" and "time" with the stored results. The page of the recipe asserts the others:
            "range" (the recipe is finite or accurate where the alternatives are not), "second order", "forward mode"
            and "gradient" (the gradient differs from autograd's on purpose).
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
        """Return the number of units in the arguments of a call."""
        return self.units or next(a.numel() for a in args if isinstance(a, Tensor))


@dataclass(frozen=True)
class Limit:
    """Calls for which a recipe lacks capabilities that its typical sample has. The badge on its page says so.

    Args:
        capabilities: the names of the capabilities, as in the report of an audit.
        where: the calls without these capabilities, in words that follow "not for".
        samples: the names of the samples for which an audit answers "no" to all of these capabilities. A test asserts
            this, and asserts that there are no other such samples. Empty if the capability depends on a size, not on a
            sample. Then a test of scales shows it.
    """

    capabilities: tuple[str, ...]
    where: str
    samples: tuple[str, ...] = ("complex",)


COMPLEX_HALF = Limit(("float16", "bfloat16"), "complex numbers")  # torch has few operations for them
COMPLEX_BFLOAT16 = Limit(("bfloat16",), "complex numbers")  # torch has no such dtype
# What makes the gradients depend on the number of ranks. With a mean loss, each of n ranks under DDP meets a gradient
# that is n times as large as in one process. The samples of a rank share a norm, and no bound makes up for it.
FIXED_BOUND = "a bound that ignores the number of ranks"
FIXED_NORM = f"a norm over several samples, or {FIXED_BOUND}"


@dataclass(frozen=True)
class Recipe:
    """One entry of the catalog.

    Args:
        name: the unique label of the recipe on its page.
        function: the function that a reader calls.
        exports: the names that the copied source must define. The first one is the name of ``function``.
        samples: yields the calls that the tests verify, with the typical call first. None for a tool that is not a
            differentiable function.
        reference: the nearest function of PyTorch, or a composition of such functions. It takes the same arguments as
            ``function``.
        gradient: "exact", "surrogate" or "approximate". With "surrogate", the backward returns another gradient on
            purpose, which is the one that autograd computes for ``reference``. With "approximate", the backward
            estimates the gradient.
        tolerance: the largest relative error of an approximate gradient in float64.
        promises: the capabilities that must stay "yes". A test fails if one of them is lost.
        cost: the alternatives whose bytes and times are compared with the recipe, or None.
        limits: calls for which the recipe lacks capabilities that its typical sample has.
        unlike_one_process: what makes the gradients under DDP differ from those of one process, in words that follow
            "with". Empty if nothing does. A test runs every recipe in two ranks.
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
    unlike_one_process: str = ""

    @cached_property
    def calls(self) -> tuple[Sample, ...]:
        """The samples. They are the same in every process, and do not read or change the global random state."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return tuple(self.samples()) if self.samples else ()

    def limit(self, capability: str) -> str:
        """Return the calls that lack a capability of the typical sample, in words. Empty if there are none."""
        return " and ".join(limit.where for limit in self.limits if capability in limit.capabilities)

    @property
    def module(self) -> str:
        """Dotted name of the module that defines the recipe."""
        return self.function.__module__

    @property
    def page(self) -> str:
        """The page of the recipe, which has the same name as its module."""
        return self.module.rpartition(".")[2]

    @property
    def names(self) -> tuple[str, ...]:
        """Dotted names of the exports, with the modules that define them."""
        module = import_module(self.module)
        return tuple(f"{getattr(module, export).__module__}.{export}" for export in self.exports)

    @property
    def audit_options(self) -> dict[str, Any]:
        """The options for an audit of the recipe, in addition to the arguments of a call."""
        options: dict[str, dict[str, Any]] = {
            "exact": {"reference": self.reference},
            "surrogate": {"surrogate": self.reference},
            "approximate": {"gradient": "approximate", "tolerance": self.tolerance},
        }
        return options[self.gradient]

    @property
    def source(self) -> str:
        """A file that runs without this package. The copy button copies it."""
        return f"{NOTICE.format(name=self.name)}\n{standalone(self.module, self.exports)}"
