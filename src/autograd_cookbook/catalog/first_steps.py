"""The patterns that everything else is made of."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook import (
    activations,
    arguments,
    broadcasting,
    convolution,
    elementwise,
    linear,
    losses,
    matmul,
    outputs,
    reductions,
)
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.samples import complex_randn, million, randn, unary


def _weights(*shape: int) -> Tensor:
    """Parameters to measure with."""
    return torch.randn(shape).requires_grad_()


def _linear() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(5, 3), randn(5)))
    yield Sample("no bias", (randn(4, 3), randn(5, 3), None))
    yield Sample("vector", (randn(3), randn(5, 3), randn(5)))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(5, 4), randn(5)))
    yield Sample("empty batch", (randn(0, 3), randn(5, 3), randn(5)))
    yield Sample("no features", (randn(2, 0), randn(5, 0), randn(5)))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(2, 3), complex_randn(2)))


def _unary_and_complex() -> Iterator[Sample]:
    yield from unary()
    yield Sample("complex", (complex_randn(3),))


def _power() -> Iterator[Sample]:
    yield Sample("cube", (randn(4, 3), 3))
    yield Sample("zeroth power, also of 0", (torch.tensor([0.0, -1.5, 2.0], dtype=torch.float64).requires_grad_(), 0))
    yield Sample("first power of 0", (torch.zeros(2, dtype=torch.float64).requires_grad_(), 1))
    yield Sample("reciprocal", (randn(3), -1))
    yield Sample("complex", (complex_randn(3), 2))
    yield Sample("scalar", (randn(), 2))
    yield Sample("empty", (randn(0, 3), 3))


def _quadratic() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), 2.0, -3.0, 0.5))
    yield Sample("line", (randn(3), 0.0, 2.0, 1.0))
    yield Sample("complex", (complex_randn(3), 1.5, 1.0, 0.0))
    yield Sample("scalar", (randn(), 1.0, 0.0, 0.0))
    yield Sample("empty", (randn(0, 3), 1.0, 1.0, 1.0))


def _clamp() -> Iterator[Sample]:
    yield Sample("both ends", (randn(4, 3), -0.5, 0.5))
    yield Sample("lower end", (randn(4, 3), 0.1))
    yield Sample("upper end", (randn(4, 3), None, 0.1))
    yield Sample("ends exchanged", (randn(4), 0.5, -0.5))
    yield Sample("scalar", (randn(), -9.0, 9.0))
    yield Sample("empty", (randn(0, 3), -0.5, 0.5))


def _elu() -> Iterator[Sample]:
    yield from unary()
    yield Sample("alpha", (randn(4, 3), 0.3))
    yield Sample("no tail", (randn(4, 3), 0.0))


def _scaled() -> Iterator[Sample]:
    """Calls with a scale, by shape."""
    yield Sample("vector", (randn(4, 3), randn(3)))
    yield Sample("one number", (randn(2, 3), randn()))
    yield Sample("two scalars", (randn(), randn()))
    yield Sample("frozen scale", (randn(4, 3), randn(3).detach()))
    yield Sample("frozen input", (randn(4, 3).detach(), randn(3)))
    yield Sample("empty", (randn(0, 3), randn(3)))


def _scaled_sigmoid() -> Iterator[Sample]:
    yield from _scaled()
    yield Sample("both sides", (randn(2, 1, 3), randn(4, 1)))


def _parametric_swish() -> Iterator[Sample]:
    yield from _scaled()
    yield Sample("image", (randn(2, 3, 2, 2), randn(3, 1, 1)))


def _smooth_l1() -> Iterator[Sample]:
    yield Sample("mean", (randn(4, 3), randn(4, 3)))
    yield Sample("sum", (randn(4, 3), randn(4, 3), 0.3, "sum"))
    yield Sample("none, constant target", (randn(4, 3), randn(4, 3).detach(), 2.0, "none"))
    yield Sample("absolute value", (randn(4), randn(4), 0.0, "sum"))
    yield Sample("scalar", (randn(), randn(), 1.0, "none"))
    yield Sample("empty", (randn(0, 3), randn(0, 3), 1.0, "sum"))


def _torch_smooth_l1(input: Tensor, target: Tensor, beta: float = 1.0, reduction: str = "mean") -> Tensor:
    return F.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def _matmul() -> Iterator[Sample]:
    yield Sample("one weight", (randn(2, 3, 4), randn(4, 5)))
    yield Sample("batches that broadcast", (randn(2, 1, 3, 2), randn(4, 2, 3)))
    yield Sample("one matrix on the left", (randn(2, 3), randn(4, 3, 2)))
    yield Sample("two vectors", (randn(3), randn(3)))
    yield Sample("vector and batch", (randn(3), randn(2, 3, 4)))
    yield Sample("batch and vector", (randn(2, 3, 4), randn(4)))
    yield Sample("nothing to sum over", (randn(2, 0), randn(0, 3)))
    yield Sample("empty batch", (randn(0, 2, 3), randn(3, 2)))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(2, 3, 2)))


def _masked_linear() -> Iterator[Sample]:
    mask = torch.rand(5, 3) < 0.5
    yield Sample("batch", (randn(4, 3), randn(5, 3), mask, randn(5)))
    yield Sample("no bias", (randn(4, 3), randn(5, 3), mask, None))
    yield Sample("vector", (randn(3), randn(5, 3), mask))
    yield Sample("two batch dims", (randn(2, 2, 3), randn(5, 3), mask, randn(5)))
    yield Sample("all there", (randn(4, 3), randn(5, 3), torch.ones(5, 3, dtype=torch.bool)))
    yield Sample("empty batch", (randn(0, 3), randn(5, 3), mask, randn(5)))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(5, 3), mask, complex_randn(5)))


def _linear_of_a_product(input: Tensor, weight: Tensor, mask: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.linear(input, weight * mask, bias)


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
    yield Sample("complex", (complex_randn(2, 3), complex_randn(3)))
    yield Sample("real and complex", (randn(2, 3), complex_randn(3)))


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


def _complex_reduction() -> Iterator[Sample]:
    yield from _reduction()
    yield Sample("complex", (complex_randn(2, 3), 1))


def _reduction_of_nothing() -> Iterator[Sample]:
    yield from _complex_reduction()
    yield Sample("empty dim", (randn(0, 3), 0))


def _var() -> Iterator[Sample]:
    yield Sample("int", (randn(2, 3), 1))
    yield Sample("all", (randn(2, 3, 4),))
    yield Sample("tuple keepdim", (randn(2, 3, 4), (2, 0), True))
    yield Sample("of a population", (randn(2, 3), -1, False, 0))
    yield Sample("scalar", (randn(), None, True, 0))
    yield Sample("complex", (complex_randn(2, 3), 1))


def _norm() -> Iterator[Sample]:
    yield Sample("Euclidean", (randn(2, 3),))
    yield Sample("of each row", (randn(2, 3), 2, -1, True))
    yield Sample("sum of sizes", (randn(2, 3, 4), 1, (0, -1)))
    yield Sample("largest", (randn(2, 3), float("inf"), 0))
    yield Sample("below 2", (randn(2, 3), 1.5, 1))
    yield Sample("above 2", (randn(2, 3), 3, None, True))
    yield Sample("scalar", (randn(),))
    yield Sample("nothing", (randn(0, 3), 2, 0))
    yield Sample("complex", (complex_randn(2, 3), 3, 1))


def _torch_logsumexp(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return torch.logsumexp(input, tuple(range(input.dim())) if dim is None else dim, keepdim)


def _conv1d() -> Iterator[Sample]:
    yield Sample("all options", (randn(2, 4, 9), randn(6, 2, 3), randn(6), 2, 1, 2, 2))
    yield Sample("plain", (randn(2, 3, 5), randn(2, 3, 3)))
    yield Sample("rows left over", (randn(1, 1, 8), randn(1, 1, 2), None, 3))
    yield Sample("same", (randn(1, 2, 5), randn(2, 2, 3), None, 1, "same", 2))
    yield Sample("no batch", (randn(3, 5), randn(2, 3, 3), randn(2)))
    yield Sample("empty batch", (randn(0, 3, 5), randn(2, 3, 3), randn(2)))
    yield Sample("complex", (complex_randn(2, 2, 5), complex_randn(2, 1, 2), complex_randn(2), 2, 1, 1, 2))


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
    yield Sample("complex", (complex_randn(2, 2, 3, 3), complex_randn(2, 1, 2, 2), complex_randn(2), 1, 0, 1, 2))


def _max_with_index() -> Iterator[Sample]:
    yield Sample("last", (randn(4, 3),))
    yield Sample("first", (randn(4, 3), 0))
    yield Sample("keepdim", (randn(2, 3, 4), -2, True))
    yield Sample("scalar", (randn(),))
    yield Sample("scalar with dim", (randn(), 0, True))
    yield Sample("empty batch", (randn(0, 3), 1))


def _two_rectifiers(input: Tensor) -> tuple[Tensor, Tensor]:
    return input.relu(), (-input).relu()


def _gathered(input: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
    index = input.argmax(dim, keepdim=True)
    return input.gather(dim, index).squeeze(dim), index.squeeze(dim)


def _scaled_tanh() -> Iterator[Sample]:
    yield Sample("as given", (randn(4, 3),))
    yield Sample("two numbers", (randn(4, 3), -0.5, 3))
    yield Sample("scalar", (randn(), 2.0))
    yield Sample("empty", (randn(0, 3),))
    yield Sample("large", ((randn(5).detach() * 100).requires_grad_(),))
    yield Sample("complex", (complex_randn(3), 0.5))


def _affine() -> Iterator[Sample]:
    yield Sample("weight and bias", (randn(4, 3), randn(3), randn(3)))
    yield Sample("weight alone", (randn(2, 4, 3), randn(4, 3)))
    yield Sample("bias alone", (randn(4, 3), None, randn(3)))
    yield Sample("neither", (randn(4, 3), None, None))
    yield Sample("bias of another shape", (randn(2, 4, 3), randn(3), randn(4, 3)))
    yield Sample("scalars", (randn(), randn(), randn()))
    yield Sample("empty batch", (randn(0, 3), randn(3), randn(3)))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(3), complex_randn(3)))


def _affine_in_torch(input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    output = input.clone() if weight is None else input * weight
    return output if bias is None else output + bias


def _pinball_loss() -> Iterator[Sample]:
    yield Sample("mean", (randn(4, 3), randn(4, 3), 0.9))
    yield Sample("sum", (randn(4, 3), randn(4, 3).detach(), 0.1, "sum"))
    yield Sample("none", (randn(4), randn(4).detach(), 0.3, "none"))
    yield Sample("weight", (randn(4, 3), randn(4, 3), 0.3, "mean", randn(4, 3)))
    yield Sample("weight, no reduction", (randn(4, 3), randn(4, 3), 0.7, "none", torch.rand(4, 3, dtype=torch.float64)))
    yield Sample("scalar", (randn(), randn(), 0.25))
    yield Sample("empty", (randn(0, 3), randn(0, 3), 0.5, "sum"))


def _reduced(loss: Tensor, reduction: str, weight: Tensor | None) -> Tensor:
    loss = loss if weight is None else loss * weight
    return loss if reduction == "none" else getattr(loss, reduction)()


def _larger_of_two(
    input: Tensor, target: Tensor, quantile: float = 0.5, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    error = target - input
    return _reduced(torch.maximum(quantile * error, (quantile - 1) * error), reduction, weight)


def _tilted_absolute(
    input: Tensor, target: Tensor, quantile: float = 0.5, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    error = target - input
    return _reduced((error.abs() + (2 * quantile - 1) * error) / 2, reduction, weight)


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="linear",
        page="01_first_steps/template",
        topics=("A2", "A5"),
        function=linear.linear,
        exports=("linear", "Linear"),
        samples=_linear,
        reference=F.linear,
        cost=Cost(
            lambda: (*million(), _weights(100, 1000), _weights(100)), 0, 0, lambda x, w, b: x @ w.mT + b, F.linear
        ),
    ),
    Recipe(
        name="relu",
        page="01_first_steps/template",
        topics=("A4",),
        function=elementwise.relu,
        exports=("relu",),
        samples=unary,
        reference=torch.relu,
        cost=Cost(million, saved=4, minimum=0.125, composition=lambda x: x * (x > 0), built_in=torch.relu),
    ),
    Recipe(
        name="sigmoid",
        page="01_first_steps/template",
        topics=("A4",),
        function=elementwise.sigmoid,
        exports=("sigmoid",),
        samples=_unary_and_complex,
        reference=torch.sigmoid,
        cost=Cost(million, saved=4, minimum=4, composition=lambda x: 1 / (1 + (-x).exp()), built_in=torch.sigmoid),
    ),
    Recipe(
        name="tanh",
        page="01_first_steps/template",
        topics=("A4",),
        function=elementwise.tanh,
        exports=("tanh",),
        samples=_unary_and_complex,
        reference=torch.tanh,
        cost=Cost(million, saved=4, minimum=4, composition=lambda x: 2 / (1 + (-2 * x).exp()) - 1, built_in=torch.tanh),
    ),
    Recipe(
        name="square",
        page="01_first_steps/elementwise",
        topics=("A4",),
        function=elementwise.square,
        exports=("square",),
        samples=_unary_and_complex,
        reference=torch.square,
        cost=Cost(million, saved=0, minimum=0, composition=lambda x: x * x, built_in=torch.square),
    ),
    Recipe(
        name="power",
        page="01_first_steps/elementwise",
        topics=("A4",),
        function=elementwise.power,
        exports=("power",),
        samples=_power,
        reference=torch.pow,
        cost=Cost(lambda: (*million(), 3), 0, 0, lambda x, n: x * x * x, torch.pow),
    ),
    Recipe(
        name="quadratic",
        page="01_first_steps/elementwise",
        topics=("A4",),
        function=elementwise.quadratic,
        exports=("quadratic",),
        samples=_quadratic,
        reference=lambda input, a, b, c: a * input**2 + b * input + c,
        cost=Cost(lambda: (*million(), 2.0, 3.0, 4.0), 0, 0, lambda x, a, b, c: a * x**2 + b * x + c),
    ),
    Recipe(
        name="clamp",
        page="01_first_steps/elementwise",
        topics=("A4",),
        function=elementwise.clamp,
        exports=("clamp",),
        samples=_clamp,
        reference=torch.clamp,
        cost=Cost(
            lambda: (*million(), -1.0, 1.0),
            saved=1,
            minimum=0.125,
            composition=lambda x, a, b: torch.where(x < a, a, torch.where(x > b, b, x)),
            built_in=torch.clamp,
        ),
    ),
    Recipe(
        name="gelu",
        page="01_first_steps/elementwise",
        topics=("A4",),
        function=activations.gelu,
        exports=("gelu",),
        samples=unary,
        reference=F.gelu,
        cost=Cost(million, 0, 0, lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2, F.gelu, wins=("range",)),
    ),
    Recipe(
        name="mish",
        page="01_first_steps/elementwise",
        topics=("A4",),
        function=activations.mish,
        exports=("mish",),
        samples=unary,
        reference=F.mish,
        cost=Cost(million, 0, 0, lambda x: x * F.softplus(x).tanh(), F.mish, wins=("range",)),
    ),
    Recipe(
        name="elu",
        page="01_first_steps/elementwise",
        topics=("A4",),
        function=activations.elu,
        exports=("elu",),
        samples=_elu,
        reference=F.elu,
        cost=Cost(
            million, saved=4, minimum=4, composition=lambda x: torch.where(x > 0, x, x.exp() - 1), built_in=F.elu
        ),
    ),
    Recipe(
        name="selu",
        page="01_first_steps/elementwise",
        topics=("A4",),
        function=activations.selu,
        exports=("selu",),
        samples=unary,
        reference=F.selu,
        cost=Cost(million, saved=4, minimum=4, built_in=F.selu),
    ),
    Recipe(
        name="matmul",
        page="01_first_steps/matmul",
        topics=("A5",),
        function=matmul.matmul,
        exports=("matmul",),
        samples=_matmul,
        reference=torch.matmul,
        cost=Cost(
            lambda: (torch.randn(64, 128, 128).requires_grad_(), _weights(128, 128)),
            saved=0,
            minimum=0,
            composition=lambda a, b: torch.bmm(a, b.expand(len(a), -1, -1)),
            built_in=torch.matmul,
        ),
    ),
    Recipe(
        name="masked_linear",
        page="01_first_steps/matmul",
        topics=("A5",),
        function=matmul.masked_linear,
        exports=("masked_linear",),
        samples=_masked_linear,
        reference=_linear_of_a_product,
        cost=Cost(
            lambda: (_weights(64, 1000), _weights(1000, 1000), torch.rand(1000, 1000) < 0.1, _weights(1000)),
            saved=0,
            minimum=0,
            composition=_linear_of_a_product,
            unit="weight",
            units=1_000_000,
            wins=("bytes",),
        ),
    ),
    Recipe(
        name="sum_to_shape",
        page="01_first_steps/broadcasting",
        topics=("A6",),
        function=broadcasting.sum_to_shape,
        exports=("sum_to_shape",),
        samples=_sum_to_shape,
        reference=torch.Tensor.sum_to_size,
    ),
    Recipe(
        name="bias_add",
        page="01_first_steps/broadcasting",
        topics=("A6",),
        function=broadcasting.bias_add,
        exports=("bias_add",),
        samples=_bias_add,
        reference=lambda input, bias, dim=1: (input.movedim(dim, -1) + bias).movedim(-1, dim),
        cost=Cost(lambda: (*million(), _weights(1000)), 0, 0, built_in=torch.add),
    ),
    Recipe(
        name="multiply",
        page="01_first_steps/broadcasting",
        topics=("A6",),
        function=broadcasting.multiply,
        exports=("multiply",),
        samples=_multiply,
        reference=torch.mul,
        cost=Cost(lambda: (*million(), _weights(1000)), 0, 0, built_in=torch.mul),
    ),
    Recipe(
        name="scaled_sigmoid",
        page="01_first_steps/broadcasting",
        topics=("A6",),
        function=broadcasting.scaled_sigmoid,
        exports=("scaled_sigmoid",),
        samples=_scaled_sigmoid,
        reference=lambda input, scale: torch.sigmoid(scale * input),
        cost=Cost(
            lambda: (*million(), _weights(1000)), 0, 0, composition=lambda x, s: torch.sigmoid(s * x), wins=("bytes",)
        ),
    ),
    Recipe(
        name="sum",
        page="01_first_steps/reductions",
        topics=("A7",),
        function=reductions.sum,
        exports=("sum",),
        samples=_reduction_of_nothing,
        reference=torch.sum,
        cost=Cost(lambda: (*million(), 1), 0, 0, built_in=torch.sum),
    ),
    Recipe(
        name="mean",
        page="01_first_steps/reductions",
        topics=("A7",),
        function=reductions.mean,
        exports=("mean",),
        samples=_complex_reduction,
        reference=torch.mean,
        cost=Cost(lambda: (*million(), 1), 0, 0, lambda x, dim: x.sum(dim) / x.shape[dim], torch.mean),
    ),
    Recipe(
        name="amax",
        page="01_first_steps/reductions",
        topics=("A7",),
        function=reductions.amax,
        exports=("amax",),
        samples=_reduction,
        reference=lambda input, dim=None, keepdim=False: input.amax(() if dim is None else dim, keepdim),
        cost=Cost(lambda: (*million(), 1), saved=0.004, minimum=0.004, built_in=torch.amax),
    ),
    Recipe(
        name="amin",
        page="01_first_steps/reductions",
        topics=("A7",),
        function=reductions.amin,
        exports=("amin",),
        samples=_reduction,
        reference=lambda input, dim=None, keepdim=False: input.amin(() if dim is None else dim, keepdim),
        cost=Cost(lambda: (*million(), 1), saved=0.004, minimum=0.004, built_in=torch.amin),
    ),
    Recipe(
        name="var",
        page="01_first_steps/reductions",
        topics=("A7",),
        function=reductions.var,
        exports=("var",),
        samples=_var,
        reference=lambda input, dim=None, keepdim=False, correction=1: torch.var(
            input, dim, correction=correction, keepdim=keepdim
        ),
        cost=Cost(
            lambda: (*million(), 1),
            saved=0,
            minimum=0,
            composition=lambda x, dim: (x - x.mean(dim, keepdim=True)).square().sum(dim) / (x.shape[dim] - 1),
            built_in=torch.var,
        ),
    ),
    Recipe(
        name="norm",
        page="01_first_steps/reductions",
        topics=("A7", "C2"),
        function=reductions.norm,
        exports=("norm",),
        samples=_norm,
        reference=torch.linalg.vector_norm,
        cost=Cost(
            lambda: (*million(), 2, 1),
            saved=0.004,
            minimum=0.004,
            composition=lambda x, ord, dim: x.square().sum(dim).sqrt(),
            built_in=torch.linalg.vector_norm,
            wins=("range", "second order"),
        ),
    ),
    Recipe(
        name="logsumexp",
        page="01_first_steps/reductions",
        topics=("A7", "C1"),
        function=reductions.logsumexp,
        exports=("logsumexp",),
        samples=_reduction_of_nothing,
        reference=_torch_logsumexp,
        cost=Cost(
            lambda: (*million(), 1),
            saved=0.004,
            minimum=0.004,
            composition=lambda x, dim: x.exp().sum(dim).log(),
            built_in=torch.logsumexp,
            wins=("range",),
        ),
    ),
    Recipe(
        name="conv2d",
        page="01_first_steps/convolution",
        topics=("A8",),
        function=convolution.conv2d,
        exports=("conv2d",),
        samples=_conv2d,
        reference=F.conv2d,
        cost=Cost(
            lambda: (torch.randn(16, 16, 64, 64).requires_grad_(), _weights(16, 16, 3, 3)), 0, 0, built_in=F.conv2d
        ),
    ),
    Recipe(
        name="conv1d",
        page="01_first_steps/convolution",
        topics=("A8",),
        function=convolution.conv1d,
        exports=("conv1d",),
        samples=_conv1d,
        reference=F.conv1d,
        cost=Cost(lambda: (_weights(16, 16, 4096), _weights(16, 16, 3)), 0, 0, built_in=F.conv1d),
    ),
    Recipe(
        name="parametric_swish",
        page="01_first_steps/module",
        topics=("A11",),
        function=activations.parametric_swish,
        exports=("parametric_swish", "Swish"),
        samples=_parametric_swish,
        reference=lambda input, beta: input * torch.sigmoid(beta * input),
        cost=Cost(lambda: (*million(), _weights(1000)), 0, 0, composition=lambda x, b: x * torch.sigmoid(b * x)),
    ),
    Recipe(
        name="smooth_l1",
        page="01_first_steps/module",
        topics=("A4", "A11"),
        function=losses.smooth_l1,
        exports=("smooth_l1", "SmoothL1Loss"),
        samples=_smooth_l1,
        reference=lambda input, target, beta=1.0, reduction="mean": F.smooth_l1_loss(
            input, target, reduction=reduction, beta=beta
        ),
        cost=Cost(
            lambda: (*million(), *million()),
            saved=0,
            minimum=0,
            composition=lambda x, t: torch.where((x - t).abs() < 1, (x - t) ** 2 / 2, (x - t).abs() - 0.5).mean(),
            built_in=F.smooth_l1_loss,
        ),
    ),
    Recipe(
        name="split_sign",
        page="01_first_steps/several_outputs",
        topics=("A9",),
        function=outputs.split_sign,
        exports=("split_sign",),
        samples=unary,
        reference=_two_rectifiers,
        cost=Cost(million, saved=0, minimum=0, composition=_two_rectifiers, wins=("bytes",)),
    ),
    Recipe(
        name="max_with_index",
        page="01_first_steps/several_outputs",
        topics=("A9",),
        function=outputs.max_with_index,
        exports=("max_with_index",),
        samples=_max_with_index,
        reference=lambda input, dim=-1, keepdim=False: tuple(torch.max(input, dim, keepdim)),
        cost=Cost(million, saved=0.008, minimum=0.00125, composition=_gathered, built_in=lambda x: torch.max(x, -1)),
    ),
    Recipe(
        name="scaled_tanh",
        page="01_first_steps/arguments",
        topics=("A10",),
        function=arguments.scaled_tanh,
        exports=("scaled_tanh",),
        samples=_scaled_tanh,
        reference=lambda input, scale=1.7159, slope=2 / 3: scale * torch.tanh(slope * input),
        cost=Cost(million, saved=4, minimum=4, composition=lambda x: 1.7159 * torch.tanh(2 / 3 * x)),
    ),
    Recipe(
        name="affine",
        page="01_first_steps/arguments",
        topics=("A10",),
        function=arguments.affine,
        exports=("affine",),
        samples=_affine,
        reference=_affine_in_torch,
        cost=Cost(
            lambda: (*million(), _weights(1000), _weights(1000)), saved=0, minimum=0, composition=_affine_in_torch
        ),
    ),
    Recipe(
        name="pinball_loss",
        page="01_first_steps/arguments",
        topics=("A10",),
        function=arguments.pinball_loss,
        exports=("pinball_loss",),
        samples=_pinball_loss,
        reference=_tilted_absolute,
        cost=Cost(
            lambda: (*million(), torch.randn(1000, 1000), 0.9),
            saved=0,
            minimum=0,
            composition=_larger_of_two,
            wins=("bytes", "time"),
        ),
    ),
)
