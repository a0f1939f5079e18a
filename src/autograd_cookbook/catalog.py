"""Every recipe once: how to call it, what to compare it with, and what it promises.

The tests, the badges, the capability matrix, the benchmarks and the copy button all read this list. To add a
recipe, add its function to a module, one :class:`Recipe` here, and one script to ``examples/``.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook import (
    approximate,
    broadcasting,
    checkpointing,
    compilation,
    convolution,
    elementwise,
    hessian,
    hooks,
    linear,
    native,
    reductions,
)
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
        samples: yields the calls that the tests verify, the typical one first; none for a tool that is no
            differentiable function.
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
    reference: Callable[..., Any] | None = None
    gradient: Literal["exact", "surrogate", "approximate"] = "exact"
    tolerance: float | None = None
    promises: tuple[str, ...] = ("first_order", "second_order", "vmap", "compile")

    @cached_property
    def calls(self) -> tuple[Sample, ...]:
        """The samples. They are the same in every process, and the global random state is neither read nor moved."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return tuple(self.samples())

    @property
    def module(self) -> str:
        """Dotted name of the module that holds the recipe."""
        return self.function.__module__

    @property
    def audit_options(self) -> dict[str, Any]:
        """What an audit has to be told about it, beside the arguments of a call."""
        return {
            "exact": {"reference": self.reference},
            "surrogate": {"surrogate": self.reference},
            "approximate": {"gradient": "approximate", "tolerance": self.tolerance},
        }[self.gradient]

    @property
    def source(self) -> str:
        """A file that runs without this package, which is what the copy button yields."""
        return standalone(self.module, self.exports)


def verified() -> dict[str, Any]:
    """The audit of every recipe's typical sample as last run, and the torch version that it was run on."""
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


def _sum_to_shape() -> Iterator[Sample]:
    yield Sample("leading and size 1", (randn(4, 2, 3), (2, 1)))
    yield Sample("to a scalar", (randn(2, 3), ()))
    yield Sample("nothing to do", (randn(2, 3), (2, 3)))
    yield Sample("empty", (randn(0, 3), (3,)))
    yield Sample("to ones", (randn(2, 3), (1, 1)))


def _bias_add() -> Iterator[Sample]:
    yield Sample("image", (randn(2, 3, 4, 4), randn(3)))
    yield Sample("last dim", (randn(2, 3), randn(3), -1))
    yield Sample("first dim", (randn(2, 3), randn(2), 0))
    yield Sample("vector", (randn(3), randn(3), 0))
    yield Sample("empty batch", (randn(0, 3, 2), randn(3)))
    yield Sample("no channels", (randn(2, 0), randn(0)))


def _multiply() -> Iterator[Sample]:
    yield Sample("same shape", (randn(2, 3), randn(2, 3)))
    yield Sample("row", (randn(2, 3), randn(3)))
    yield Sample("column and row", (randn(4, 1), randn(3)))
    yield Sample("both sides", (randn(2, 1, 3), randn(4, 1)))
    yield Sample("scalar", (randn(2, 3), randn()))
    yield Sample("two scalars", (randn(), randn()))
    yield Sample("empty", (randn(0, 3), randn(3)))
    yield Sample("one frozen", (randn(2, 3), randn(3).detach()))


def _reduction() -> Iterator[Sample]:
    yield Sample("all", (randn(2, 3, 4),))
    yield Sample("int", (randn(2, 3), 1))
    yield Sample("negative", (randn(2, 3, 4), -2))
    yield Sample("tuple", (randn(2, 3, 4), (0, -1)))
    yield Sample("None", (randn(2, 3), None, True))
    yield Sample("keepdim", (randn(2, 3), 0, True))
    yield Sample("tuple keepdim", (randn(2, 3, 4), (2, 0), True))
    yield Sample("scalar", (randn(),))
    yield Sample("scalar with dim", (randn(), -1))
    yield Sample("empty batch", (randn(0, 3), 1))


def _reduction_of_nothing() -> Iterator[Sample]:
    yield from _reduction()
    yield Sample("empty dim", (randn(0, 3), 0))


def _torch_logsumexp(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return torch.logsumexp(input, tuple(range(input.dim())) if dim is None else dim, keepdim)


def _conv1d() -> Iterator[Sample]:
    yield Sample("all options", (randn(2, 4, 9), randn(6, 2, 3), randn(6), 2, 1, 2, 2))
    yield Sample("plain", (randn(2, 3, 5), randn(2, 3, 3)))
    yield Sample("rows left over", (randn(1, 1, 8), randn(1, 1, 2), None, 3))
    yield Sample("same", (randn(1, 2, 5), randn(2, 2, 3), None, 1, "same", 2))
    yield Sample("no batch", (randn(3, 5), randn(2, 3, 3), randn(2)))
    yield Sample("empty batch", (randn(0, 3, 5), randn(2, 3, 3), randn(2)))


def _conv2d() -> Iterator[Sample]:
    yield Sample("all options", (randn(2, 2, 6, 5), randn(4, 1, 3, 2), randn(4), (2, 1), (1, 2), (1, 2), 2))
    yield Sample("plain", (randn(2, 2, 4, 4), randn(3, 2, 3, 3), randn(3)))
    yield Sample("rows left over", (randn(1, 1, 6, 7), randn(1, 1, 2, 3), None, (4, 3)))
    yield Sample("dilation", (randn(1, 1, 6, 6), randn(2, 1, 2, 2), None, 1, 0, (3, 2)))
    yield Sample("depthwise", (randn(1, 3, 4, 4), randn(3, 1, 3, 3), None, 1, 1, 1, 3))
    yield Sample("same", (randn(1, 1, 4, 5), randn(1, 1, 3, 5), None, 1, "same"))
    yield Sample("one by one", (randn(2, 3, 3, 3), randn(4, 3, 1, 1)))
    yield Sample("no batch", (randn(2, 4, 4), randn(3, 2, 2, 2), randn(3)))
    yield Sample("empty batch", (randn(0, 2, 4, 4), randn(3, 2, 2, 2)))


def _clip_gradient() -> Iterator[Sample]:
    # A bound that no gradient of the tests reaches: then, and only then, clipping is exact.
    yield Sample("matrix", (randn(4, 3), 1e6))
    yield Sample("scalar", (randn(), 1e6))
    yield Sample("empty", (randn(0, 3), 1e6))


def _add_gradient_noise() -> Iterator[Sample]:
    yield Sample("no noise", (randn(4, 3), 0.0))
    yield Sample("empty", (randn(0, 3), 0.5))


def _saved_as() -> Iterator[Sample]:
    # Stored in the dtype that they have, tensors are not rounded.
    yield Sample("chain", (torch.float64, lambda x: x.exp().sin() * x.tanh(), randn(4, 3)))
    yield Sample("two inputs", (torch.float64, lambda x, w: (x @ w).sigmoid().square(), randn(4, 3), randn(3, 2)))
    yield Sample("empty", (torch.float64, lambda x: x.exp().sin(), randn(0, 3)))


def _checkpoint() -> Iterator[Sample]:
    yield Sample("chain", (lambda x: x.exp().sin() * x.tanh(), randn(4, 3)))
    yield Sample("two inputs", (lambda x, w: (x @ w).sigmoid().square(), randn(4, 3), randn(3, 2)))
    yield Sample("input used twice", (lambda x, y: x.exp() * y.sin() * x, *[randn(3)] * 2))
    yield Sample("several outputs", (lambda x: (x.exp(), x.sin().square()), randn(3)))
    yield Sample("empty", (lambda x: x.exp().sin(), randn(0, 3)))


def _checkpoint_sequence() -> Iterator[Sample]:
    yield Sample("five", ([torch.sin, torch.exp, torch.tanh, torch.square, torch.cos], randn(4, 3)))
    yield Sample("one segment", ([torch.sin, torch.exp], randn(3), 1))
    yield Sample("all segments", ([torch.sin, torch.exp, torch.tanh], randn(3), 3))
    yield Sample("one function", ([torch.sin], randn()))


def _in_sequence(functions: Any, input: Tensor, segments: int | None = None) -> Tensor:
    for function in functions:
        input = function(input)
    return input


def _nothing() -> Iterator[Sample]:
    """For tools that are no differentiable functions."""
    yield from ()


def _bowl(x: Tensor) -> Tensor:
    """A scalar function whose Hessian is neither constant nor diagonal."""
    return (x.sin() * x.sum()).square().sum()


def _hvp() -> Iterator[Sample]:
    for mode in ("reverse", "forward_over_reverse"):
        yield Sample(f"vector, {mode}", (_bowl, randn(3), randn(3), mode))
        yield Sample(f"matrix, {mode}", (_bowl, randn(2, 3), randn(2, 3), mode))
        yield Sample(f"scalar, {mode}", (_bowl, randn(), randn(), mode))
    yield Sample("custom function inside", (lambda x: hessian.log_cosh(x).sum(), randn(3), randn(3)))


def _hessian() -> Iterator[Sample]:
    for mode in ("reverse", "forward_over_reverse"):
        yield Sample(f"vector, {mode}", (_bowl, randn(3), mode))
        yield Sample(f"matrix, {mode}", (_bowl, randn(2, 2), mode))
        yield Sample(f"scalar, {mode}", (_bowl, randn(), mode))


def _jacobian() -> Iterator[Sample]:
    for mode in ("reverse", "forward_over_reverse"):
        yield Sample(f"vector, {mode}", (lambda x: torch.outer(x.sin(), x), randn(3), mode))
        yield Sample(f"matrix, {mode}", (lambda x: (x.tanh() @ x.tanh().mT).sum(0), randn(2, 3), mode))
        yield Sample(f"scalar output, {mode}", (_bowl, randn(2), mode))


def _finite_difference() -> Iterator[Sample]:
    yield Sample("matrix to vector", (lambda x: (x.sin() * x.exp()).sum(1), randn(3, 2)))
    yield Sample("scalar", (torch.sin, randn()))
    yield Sample("to a scalar", (_bowl, randn(4)))
    yield Sample("empty", (torch.exp, randn(0, 3)))


def _simultaneous_perturbation() -> Iterator[Sample]:
    # With one element there is one direction and its opposite: the estimate has no variance and can be checked.
    yield Sample("one element", (torch.sin, randn(1), 3, None, torch.Generator().manual_seed(0)))
    yield Sample("scalar", (torch.exp, randn(), 1, None, torch.Generator().manual_seed(0)))
    yield Sample("vector output", (lambda x: torch.cat([x, x.exp()]), randn(1), 2, None, torch.Generator()))
    yield Sample("empty", (torch.exp, randn(0, 3), 1, None, torch.Generator()))


def _swish() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), randn()))
    yield Sample("scalar", (randn(), randn()))
    yield Sample("odd size", (randn(3, 5, 7), randn()))
    yield Sample("empty", (randn(0, 3), randn()))
    yield Sample("frozen beta", (randn(5), randn().detach()))


def _huber() -> Iterator[Sample]:
    yield from _unary()
    yield Sample("narrow", (randn(4, 3), 0.3))


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
    Recipe(
        name="sum_to_shape",
        page="01_first_steps/broadcasting",
        function=broadcasting.sum_to_shape,
        exports=("sum_to_shape",),
        samples=_sum_to_shape,
        reference=torch.Tensor.sum_to_size,
    ),
    Recipe(
        name="bias_add",
        page="01_first_steps/broadcasting",
        function=broadcasting.bias_add,
        exports=("bias_add",),
        samples=_bias_add,
        reference=lambda input, bias, dim=1: (input.movedim(dim, -1) + bias).movedim(-1, dim),
    ),
    Recipe(
        name="multiply",
        page="01_first_steps/broadcasting",
        function=broadcasting.multiply,
        exports=("multiply",),
        samples=_multiply,
        reference=torch.mul,
    ),
    Recipe(
        name="sum",
        page="01_first_steps/reductions",
        function=reductions.sum,
        exports=("sum",),
        samples=_reduction_of_nothing,
        reference=torch.sum,
    ),
    Recipe(
        name="mean",
        page="01_first_steps/reductions",
        function=reductions.mean,
        exports=("mean",),
        samples=_reduction,
        reference=torch.mean,
    ),
    Recipe(
        name="amax",
        page="01_first_steps/reductions",
        function=reductions.amax,
        exports=("amax",),
        samples=_reduction,
        reference=lambda input, dim=None, keepdim=False: input.amax(() if dim is None else dim, keepdim),
    ),
    Recipe(
        name="logsumexp",
        page="01_first_steps/reductions",
        function=reductions.logsumexp,
        exports=("logsumexp",),
        samples=_reduction_of_nothing,
        reference=_torch_logsumexp,
    ),
    Recipe(
        name="conv2d",
        page="01_first_steps/convolution",
        function=convolution.conv2d,
        exports=("conv2d",),
        samples=_conv2d,
        reference=F.conv2d,
    ),
    Recipe(
        name="conv1d",
        page="01_first_steps/convolution",
        function=convolution.conv1d,
        exports=("conv1d",),
        samples=_conv1d,
        reference=F.conv1d,
    ),
    Recipe(
        name="clip_gradient",
        page="02_changing_the_gradient/hooks",
        function=hooks.clip_gradient,
        exports=("clip_gradient",),
        samples=_clip_gradient,
        reference=lambda input, max_norm: input.view_as(input),
    ),
    Recipe(
        name="add_gradient_noise",
        page="02_changing_the_gradient/hooks",
        function=hooks.add_gradient_noise,
        exports=("add_gradient_noise",),
        samples=_add_gradient_noise,
        reference=lambda input, std: input.view_as(input),
    ),
    Recipe(
        name="GradientLog",
        page="02_changing_the_gradient/hooks",
        function=hooks.GradientLog,
        exports=("GradientLog",),
        samples=_nothing,
        promises=(),
    ),
    Recipe(
        name="step_in_backward",
        page="02_changing_the_gradient/hooks",
        function=hooks.step_in_backward,
        exports=("step_in_backward",),
        samples=_nothing,
        promises=(),
    ),
    Recipe(
        name="saved_as",
        page="02_changing_the_gradient/hooks",
        function=hooks.saved_as,
        exports=("saved_as",),
        samples=_saved_as,
        reference=lambda dtype, function, *args: function(*args),
        # torch.func and torch.compile refuse hooks on saved tensors.
        promises=("first_order", "second_order", "checkpoint"),
    ),
    Recipe(
        name="checkpoint",
        page="04_memory/checkpointing",
        function=checkpointing.checkpoint,
        exports=("checkpoint",),
        samples=_checkpoint,
        reference=lambda function, *args: function(*args),
        promises=("first_order", "second_order", "checkpoint"),
    ),
    Recipe(
        name="checkpoint_sequence",
        page="04_memory/checkpointing",
        function=checkpointing.checkpoint_sequence,
        exports=("checkpoint_sequence",),
        samples=_checkpoint_sequence,
        reference=_in_sequence,
        promises=("first_order", "second_order", "checkpoint"),
    ),
    Recipe(
        name="log_cosh",
        page="05_higher_order/hessian",
        function=hessian.log_cosh,
        exports=("log_cosh",),
        samples=_unary,
        reference=lambda input: torch.logaddexp(input, -input) - math.log(2),
    ),
    Recipe(
        name="hvp",
        page="05_higher_order/hessian",
        function=hessian.hvp,
        exports=("hvp",),
        samples=_hvp,
        reference=lambda f, x, v, mode="": torch.autograd.functional.hvp(f, x, v, create_graph=True)[1],
    ),
    Recipe(
        name="hessian",
        page="05_higher_order/hessian",
        function=hessian.hessian,
        exports=("hessian",),
        samples=_hessian,
        reference=lambda f, x, mode: torch.func.hessian(f)(x),
    ),
    Recipe(
        name="jacobian",
        page="05_higher_order/hessian",
        function=hessian.jacobian,
        exports=("jacobian",),
        samples=_jacobian,
        reference=lambda f, x, mode: torch.func.jacrev(f)(x),
    ),
    Recipe(
        name="finite_difference",
        page="06_beyond_autograd/approximate_gradients",
        function=approximate.finite_difference,
        exports=("finite_difference",),
        samples=_finite_difference,
        reference=lambda black_box, input: black_box(input),
        gradient="approximate",
        tolerance=1e-8,
        # once_differentiable, and a loop over the elements that no transform can look into.
        promises=("first_order",),
    ),
    Recipe(
        name="simultaneous_perturbation",
        page="06_beyond_autograd/approximate_gradients",
        function=approximate.simultaneous_perturbation,
        exports=("simultaneous_perturbation",),
        samples=_simultaneous_perturbation,
        reference=lambda black_box, input, *options: black_box(input),
        gradient="approximate",
        tolerance=1e-8,
        promises=("first_order",),
    ),
    Recipe(
        name="swish",
        page="06_beyond_autograd/cuda_extension",
        function=native.swish,
        exports=("swish", "build", "compile_cuda", "backend"),
        samples=_swish,
        reference=lambda input, beta: input * torch.sigmoid(beta * input),
    ),
    Recipe(
        name="huber",
        page="07_compile/torch_compile",
        function=compilation.huber,
        exports=("huber", "graph_breaks"),
        samples=_huber,
        reference=lambda input, delta=1.0: F.huber_loss(input, torch.zeros_like(input), reduction="none", delta=delta),
    ),
)

BY_NAME: dict[str, Recipe] = {recipe.name: recipe for recipe in RECIPES}
