"""Code that autograd cannot see."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook import approximate, attention, native, triton_attention, triton_softmax
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.samples import bowl, million, randn


def _finite_difference() -> Iterator[Sample]:
    yield Sample("matrix to vector", (lambda x: (x.sin() * x.exp()).sum(1), randn(3, 2)))
    yield Sample("scalar", (torch.sin, randn()))
    yield Sample("to a scalar", (bowl, randn(4)))
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


def _rows() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3),))
    yield Sample("scalar", (randn(),))
    yield Sample("other dimension", (randn(3, 5, 2), 1))
    yield Sample("empty", (randn(0, 3),))
    yield Sample("odd width", (randn(2, 7),))


def _attention() -> Iterator[Sample]:
    yield Sample("matrices", (randn(4, 3), randn(5, 3), randn(5, 2)))
    yield Sample("causal", (randn(2, 4, 3), randn(2, 4, 3), randn(2, 4, 3), True))
    yield Sample("broadcast, scaled", (randn(2, 1, 3, 2), randn(2, 4, 2), randn(4, 1), False, 0.3))
    yield Sample("frozen key", (randn(3, 2), randn(3, 2).detach(), randn(3, 2)))
    yield Sample("no queries", (randn(0, 2), randn(3, 2), randn(3, 2)))


def _attention_in_tiles() -> Iterator[Sample]:
    yield from _attention()
    yield Sample("tiles of two", (randn(5, 3), randn(5, 3), randn(5, 3), True, None, 2))


def _composed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool = False,
    scale: float | None = None,
    block: int | None = None,
) -> Tensor:
    # Torch's own kernel for the CPU has no second derivative, so that an audit could not compare one.
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~allowed, -torch.inf)
    return torch.softmax(scores, -1) @ value


def _sequences() -> tuple[Tensor, ...]:
    shape = (1, 1, 1024, 64)
    return tuple(torch.randn(shape).requires_grad_() for _ in range(3))


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="finite_difference",
        page="06_beyond_autograd/approximate_gradients",
        topics=("F2",),
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
        topics=("F2",),
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
        topics=("A11", "F3", "F4"),
        function=native.swish,
        exports=("swish", "build", "compile_cuda", "backend"),
        samples=_swish,
        reference=lambda input, beta: input * torch.sigmoid(beta * input),
        cost=Cost(
            lambda: (*million(), torch.ones(()).requires_grad_()),
            saved=0,
            minimum=0,
            composition=lambda x, beta: x * torch.sigmoid(beta * x),
        ),
    ),
    Recipe(
        name="triton_softmax",
        page="06_beyond_autograd/triton_kernel",
        topics=("F5",),
        function=triton_softmax.triton_softmax,
        exports=("triton_softmax", "backend"),
        samples=_rows,
        reference=lambda input, dim=-1: torch.softmax(input, dim),
    ),
    Recipe(
        name="attention",
        page="06_beyond_autograd/flash_attention",
        topics=("F7",),
        function=attention.attention,
        exports=("attention",),
        samples=_attention_in_tiles,
        reference=_composed_attention,
        cost=Cost(
            _sequences,
            # The output, which the caller has anyway, and one number a query: for 1024 keys, 64 + 1 numbers.
            saved=4 * 65 / 1024,
            minimum=0,
            composition=_composed_attention,
            built_in=F.scaled_dot_product_attention,
            unit="score",
            units=1024 * 1024,
            wins=("second order",),
        ),
    ),
    Recipe(
        name="triton_attention",
        page="06_beyond_autograd/flash_attention",
        topics=("F5", "F7"),
        function=triton_attention.triton_attention,
        exports=("triton_attention", "backend"),
        samples=_attention,
        reference=_composed_attention,
    ),
)
