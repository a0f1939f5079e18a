"""Less memory between forward and backward."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook import (
    checkpointing,
    constants,
    in_place,
    linear_cross_entropy,
    masks,
    offloading,
    reversible,
    selective,
)
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.samples import complex_randn, million, randn, unary


def _weights(*shape: int) -> Tensor:
    """Parameters to measure with."""
    return torch.randn(shape).requires_grad_()


def _gelu_linear() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(5, 3), randn(5)))
    yield Sample("tanh, no bias", (randn(4, 3), randn(5, 3), None, "tanh"))
    yield Sample("vector", (randn(3), randn(5, 3), randn(5)))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(5, 4), randn(5)))
    yield Sample("empty batch", (randn(0, 3), randn(5, 3), randn(5)))
    yield Sample("no features", (randn(2, 0), randn(5, 0), randn(5)))


def _composed_gelu_linear(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (0.5 * input * (1 + torch.erf(input / 2**0.5))) @ weight.mT + bias


def _swiglu_linear() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(4, 3), randn(5, 3)))
    yield Sample("vector", (randn(3), randn(3), randn(5, 3)))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(2, 3, 4), randn(5, 4)))
    yield Sample("empty batch", (randn(0, 3), randn(0, 3), randn(5, 3)))
    yield Sample("frozen weight", (randn(4, 3), randn(4, 3), randn(5, 3).detach()))


def _rms_norm() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(3)))
    yield Sample("vector", (randn(3), randn(3)))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(4), 0.1))
    yield Sample("row of zeros", (torch.zeros(1, 3, dtype=torch.float64).requires_grad_(), randn(3), 0.5))
    yield Sample("empty batch", (randn(0, 3), randn(3)))
    yield Sample("one feature", (randn(2, 1), randn(1), 0.5))


def _composed_rms_norm(input: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    return input * torch.rsqrt(input.square().mean(-1, keepdim=True) + eps) * weight


def _linear_relu() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(5, 3), randn(5)))
    yield Sample("no bias", (randn(4, 3), randn(5, 3), None))
    yield Sample("vector", (randn(3), randn(5, 3), randn(5)))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(5, 4), randn(5)))
    yield Sample("empty batch", (randn(0, 3), randn(5, 3), randn(5)))


def _seeded_dropout() -> Iterator[Sample]:
    yield Sample("seed given", (randn(4, 3), 0.5, True, 7))
    yield Sample("nothing drops", (randn(4, 3), 0.0, True, 7))
    yield Sample("everything drops", (randn(4, 3), 1.0, True, 7))
    yield Sample("few drop", (randn(2, 3, 2), 0.2, True, 1))
    yield Sample("scalar", (randn(), 0.5, True, 0))
    yield Sample("empty", (randn(0, 3), 0.5, True, 7))
    yield Sample("complex", (complex_randn(4), 0.5, True, 7))


def _dropout(input: Tensor, p: float, training: bool, seed: int) -> Tensor:
    keeps = torch.rand(input.shape, generator=torch.Generator().manual_seed(seed)) >= p
    return input * keeps / (1 - p) if p < 1 else 0 * input


def _on_a_copy(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that works in place as one that can be called on leaves, again and again."""

    @functools.wraps(function)
    def call(input: Tensor, *args: Any) -> Tensor:
        return function(input.clone(), *args)

    return call


def _leaky_relu_() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), 0.2))
    yield Sample("default slope", (randn(2, 3, 2),))
    yield Sample("steeper below", (randn(5), 3.0))
    yield Sample("scalar", (randn(), 0.5))
    yield Sample("empty", (randn(0, 3), 0.5))


def _distillation_loss() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(4, 3).detach(), 2.0))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(2, 3, 4).detach(), 0.5, "sum"))
    yield Sample("loss per row", (randn(4, 3), randn(4, 3).detach(), 3.0, "none"))
    yield Sample("vector", (randn(5), randn(5).detach()))
    yield Sample("empty batch", (randn(0, 3), randn(0, 3).detach(), 2.0, "none"))


def _kl_div(student: Tensor, teacher: Tensor, temperature: float = 1.0, reduction: str = "mean") -> Tensor:
    log_q = F.log_softmax(student / temperature, -1)
    losses = F.kl_div(log_q, F.softmax(teacher / temperature, -1), reduction="none").sum(-1) * temperature**2
    return losses if reduction == "none" else getattr(losses, reduction)()


def _composed_distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    p, q = (torch.softmax(logits / temperature, -1) for logits in (teacher, student))
    return (p * (p.log() - q.log())).sum(-1).mean() * temperature**2


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


def _saved_elsewhere() -> Iterator[Sample]:
    yield Sample("chain", (lambda x: x.exp().sin() * x.tanh(), randn(2, 16)))
    yield Sample("two inputs", (lambda x, w: (x @ w).sigmoid().square(), randn(4, 3), randn(3, 8)))
    yield Sample("several outputs", (lambda x: (x.exp(), x.sin().square()), randn(8)))
    yield Sample("scalar", (lambda x: x.exp().sin(), randn()))
    yield Sample("empty", (lambda x: x.exp().sin(), randn(0, 8)))


def _reversible_sequence() -> Iterator[Sample]:
    pairs = [(torch.sin, torch.tanh), (lambda x: x.square() / 2, torch.cos), (torch.exp, torch.sin)]
    yield Sample("three blocks", (pairs, randn(4, 3), randn(4, 3)))
    yield Sample("one block", (pairs[:1], randn(3), randn(3)))
    yield Sample("no block", ([], randn(3), randn(3)))
    yield Sample("frozen half", (pairs, randn(3), randn(3).detach()))
    yield Sample("scalars", (pairs, randn(), randn()))
    yield Sample("empty", (pairs, randn(0, 3), randn(0, 3)))


def _coupled(functions: Any, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    for first, second in functions:
        x1 = x1 + first(x2)
        x2 = x2 + second(x1)
    return x1, x2


def _linear_cross_entropy() -> Iterator[Sample]:
    target = torch.tensor([0, 6, -100, 3, 6])
    yield Sample("bias, chunks", (randn(5, 3), randn(7, 3), target, randn(7), -100, "mean", 3))
    yield Sample("one chunk", (randn(5, 3), randn(7, 3), target))
    yield Sample("frozen weight", (randn(5, 3), randn(7, 3).detach(), target.abs() % 7, randn(7), 6, "sum", 2))
    yield Sample("each token", (randn(2, 2, 3), randn(4, 3), torch.tensor([[0, 3], [3, 1]]), None, 3, "none", 1))
    yield Sample("sure of it", ((randn(3, 2).detach() * 100).requires_grad_(), randn(4, 2), torch.tensor([3, 0, 1])))
    yield Sample("no tokens", (randn(0, 3), randn(7, 3), target[:0], randn(7), -100, "sum"))


def _cross_entropy_of_linear(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    chunk_size: int | None = None,
) -> Tensor:
    logits = F.linear(input, weight, bias).movedim(-1, min(1, input.dim() - 1))
    return F.cross_entropy(logits, target, ignore_index=ignore_index, reduction=reduction)


def _vocabulary() -> tuple[Tensor, ...]:
    return torch.randn(1024, 256).requires_grad_(), torch.randn(16384, 256).requires_grad_(), torch.arange(1024)


def _one_after_the_other(blocks: Any, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    for f, g in blocks:
        left = left + f(right)
        right = right + g(left)
    return left, right


def _layers(input: Tensor) -> Tensor:
    """Ten layers, each of which saves what it returns."""
    weight = torch.eye(input.shape[1])
    for _ in range(10):
        input = (input @ weight).tanh()
    return input


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="gelu_linear",
        page="04_memory/selective_saving",
        topics=("D1",),
        function=selective.gelu_linear,
        exports=("gelu_linear",),
        samples=_gelu_linear,
        reference=lambda x, weight, bias=None, approximate="none": F.linear(
            F.gelu(x, approximate=approximate), weight, bias
        ),
        cost=Cost(
            lambda: (*million(), _weights(1000, 1000), _weights(1000)),
            saved=0,
            minimum=0,
            composition=_composed_gelu_linear,
            built_in=lambda x, weight, bias: F.linear(F.gelu(x), weight, bias),
            wins=("bytes",),
        ),
    ),
    Recipe(
        name="swiglu_linear",
        page="04_memory/selective_saving",
        topics=("D1",),
        function=selective.swiglu_linear,
        exports=("swiglu_linear",),
        samples=_swiglu_linear,
        reference=lambda gate, up, weight: F.linear(F.silu(gate) * up, weight),
        cost=Cost(
            lambda: (*million(), *million(), _weights(1000, 1000)),
            saved=0,
            minimum=0,
            composition=lambda gate, up, weight: (gate * torch.sigmoid(gate) * up) @ weight.mT,
            built_in=lambda gate, up, weight: F.linear(F.silu(gate) * up, weight),
            wins=("bytes",),
        ),
    ),
    Recipe(
        name="rms_norm",
        page="04_memory/selective_saving",
        topics=("D1",),
        function=selective.rms_norm,
        exports=("rms_norm",),
        samples=_rms_norm,
        reference=lambda x, weight, eps=1e-6: F.rms_norm(x, weight.shape, weight, eps),
        cost=Cost(
            lambda: (*million(), _weights(1000)),
            saved=0,
            minimum=0,
            composition=_composed_rms_norm,
            built_in=lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-6),
            wins=("bytes",),
        ),
    ),
    Recipe(
        name="packed_relu",
        page="04_memory/masks",
        topics=("D2",),
        function=masks.packed_relu,
        exports=("packed_relu",),
        samples=unary,
        reference=torch.relu,
        cost=Cost(
            million, 0.125, minimum=0.125, composition=lambda x: x * (x > 0), built_in=torch.relu, wins=("bytes",)
        ),
    ),
    Recipe(
        name="linear_relu",
        page="04_memory/masks",
        topics=("D2",),
        function=masks.linear_relu,
        exports=("linear_relu",),
        samples=_linear_relu,
        reference=lambda x, weight, bias=None: torch.relu(F.linear(x, weight, bias)),
        cost=Cost(
            lambda: (*million(), _weights(1000, 1000), _weights(1000)),
            saved=0.125,
            minimum=0.125,
            composition=lambda x, weight, bias: (x @ weight.mT + bias).clamp(min=0),
            built_in=lambda x, weight, bias: torch.relu(F.linear(x, weight, bias)),
            wins=("bytes",),
        ),
    ),
    Recipe(
        name="seeded_dropout",
        page="04_memory/masks",
        topics=("D2",),
        function=masks.seeded_dropout,
        exports=("seeded_dropout",),
        samples=_seeded_dropout,
        reference=_dropout,
        promises=("first_order", "second_order", "vmap", "checkpoint"),
        cost=Cost(
            lambda: (_weights(4000, 1000), 0.5),
            saved=0,
            minimum=0,
            composition=lambda x, p: x * (torch.rand_like(x) >= p) / (1 - p),
            built_in=F.dropout,
            wins=("bytes", "peak"),
        ),
    ),
    Recipe(
        name="leaky_relu_",
        page="04_memory/in_place",
        topics=("D8",),
        function=_on_a_copy(in_place.leaky_relu_),
        exports=("leaky_relu_",),
        samples=_leaky_relu_,
        reference=F.leaky_relu,
        promises=("first_order", "second_order", "vmap"),
    ),
    Recipe(
        name="distillation_loss",
        page="04_memory/detaching",
        topics=("D9",),
        function=constants.distillation_loss,
        exports=("distillation_loss",),
        samples=_distillation_loss,
        reference=_kl_div,
        cost=Cost(
            lambda: (*million(), torch.randn(1000, 1000), 2.0),
            saved=0,
            minimum=0,
            composition=_composed_distillation,
            built_in=_kl_div,
            wins=("bytes", "range"),
        ),
    ),
    Recipe(
        name="checkpoint",
        page="04_memory/checkpointing",
        topics=("D3",),
        function=checkpointing.checkpoint,
        exports=("checkpoint",),
        samples=_checkpoint,
        reference=lambda function, *args: function(*args),
        promises=("first_order", "second_order", "checkpoint"),
    ),
    Recipe(
        name="checkpoint_sequence",
        page="04_memory/checkpointing",
        topics=("D4",),
        function=checkpointing.checkpoint_sequence,
        exports=("checkpoint_sequence",),
        samples=_checkpoint_sequence,
        reference=_in_sequence,
        promises=("first_order", "second_order", "checkpoint"),
    ),
    Recipe(
        name="reversible_sequence",
        page="04_memory/reversible",
        topics=("D6",),
        function=reversible.reversible_sequence,
        exports=("reversible_sequence", "ReversibleSequence"),
        samples=_reversible_sequence,
        reference=_one_after_the_other,
        # torch.func and torch.compile refuse hooks on saved tensors.
        promises=("first_order", "second_order", "checkpoint"),
        cost=Cost(
            lambda: ([(_layers, _layers)] * 4, *(torch.randn(10_000, 100).requires_grad_() for _ in range(2))),
            saved=0.005,
            minimum=0,
            composition=_one_after_the_other,
            unit="element of a half",
            wins=("bytes", "peak"),
        ),
    ),
    Recipe(
        name="linear_cross_entropy",
        page="04_memory/linear_cross_entropy",
        topics=("D7",),
        function=linear_cross_entropy.linear_cross_entropy,
        exports=("linear_cross_entropy",),
        samples=_linear_cross_entropy,
        reference=_cross_entropy_of_linear,
        promises=("first_order", "second_order", "vmap", "func_grad", "compile", "checkpoint"),
        cost=Cost(
            inputs=_vocabulary,
            saved=0.0002,
            minimum=0,
            composition=_cross_entropy_of_linear,
            # New in torch 2.13.
            built_in=lambda input, weight, target: F.linear_cross_entropy(
                input, weight, target, options=torch.nn.LinearCrossEntropyOptions()
            ),
            unit="logit",
            units=1024 * 16384,
            wins=("bytes", "peak"),
        ),
    ),
    Recipe(
        name="offloaded",
        page="04_memory/saved_tensor_hooks",
        topics=("D5",),
        function=offloading.offloaded,
        exports=("offloaded",),
        samples=_saved_elsewhere,
        reference=lambda function, *args: function(*args),
        # torch.func and torch.compile refuse hooks on saved tensors.
        promises=("first_order", "second_order", "checkpoint"),
        cost=Cost(
            lambda: (_layers, torch.randn(10_000, 100).requires_grad_()),
            saved=0.04,
            minimum=0,
            composition=lambda function, x: function(x),
            unit="element of an activation",
            wins=("bytes", "peak"),
        ),
    ),
    Recipe(
        name="compressed",
        page="04_memory/saved_tensor_hooks",
        topics=("D5",),
        function=offloading.compressed,
        exports=("compressed",),
        samples=_saved_elsewhere,
        reference=lambda function, *args: function(*args),
        gradient="approximate",
        tolerance=0.02,
        promises=("first_order", "checkpoint"),
        cost=Cost(
            lambda: (_layers, torch.randn(10_000, 100).requires_grad_()),
            saved=10.44,
            minimum=0,
            composition=lambda function, x: function(x),
            unit="element of an activation",
            wins=("bytes", "peak"),
        ),
    ),
)
