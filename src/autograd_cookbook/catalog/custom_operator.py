"""The recipes of the page ``custom_operator``."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import COMPLEX_HALF, Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import complex_randn, million, randn
from autograd_cookbook.recipes import custom_operator


def _recursive_filter() -> Iterator[Sample]:
    coefficients = torch.tensor([-0.5, 0.3], dtype=torch.float64)
    yield Sample("two signals", (randn(2, 6), coefficients.clone().requires_grad_()))
    yield Sample("vector", (randn(7), coefficients[:1].clone().requires_grad_()))
    yield Sample("shorter than its memory", (randn(2, 3), (randn(5).detach() / 4).requires_grad_()))
    yield Sample("no step", (randn(2, 0), coefficients.clone().requires_grad_()))
    yield Sample("no signal", (randn(0, 4), coefficients.clone().requires_grad_()))
    yield Sample("frozen coefficients", (randn(3, 4), coefficients))
    yield Sample("fixed signal", (randn(2, 4).detach(), coefficients.clone().requires_grad_()))
    yield Sample("complex", (complex_randn(2, 4), complex_randn(2)))


def _step_by_step(input: Tensor, coefficients: Tensor) -> Tensor:
    """The recursion as in its formula. Like SciPy, it multiplies earlier inputs by zero, which matters for infinity."""
    steps: list[Tensor] = []
    for t, value in enumerate(input.unbind(-1)):
        past = zip(coefficients, reversed(steps), strict=False)
        zeros = 0 * coefficients.sum() + 0 * input[..., max(t - len(coefficients), 0) : t].sum(-1)
        steps.append(value - sum((a * y for a, y in past), zeros))
    return torch.stack(steps, -1) if steps else input + 0 * coefficients.sum()


def _triangular(input: Tensor, coefficients: Tensor) -> Tensor:
    """The recursion as a linear system with a triangular matrix, which torch can solve."""
    size = input.shape[-1]
    matrix = torch.eye(size, dtype=input.dtype, device=input.device)
    for k, a in enumerate(coefficients, 1):
        matrix = matrix + a * torch.diag_embed(input.new_ones(size - k), -k)
    return torch.linalg.solve_triangular(matrix.mT, input, upper=True, left=False)


RECURSIVE_FILTER = Recipe(
    name="recursive_filter",
    function=custom_operator.recursive_filter,
    exports=("recursive_filter",),
    samples=_recursive_filter,
    reference=_step_by_step,
    promises=("first_order", "second_order", "func_grad", "vmap", "compile"),
    cost=Cost(
        lambda: (*million(), torch.tensor([-1.6, 0.8]).requires_grad_()),
        saved=4,
        minimum=4,
        composition=_triangular,
        wins=("bytes", "time"),
    ),
    limits=(COMPLEX_HALF,),
)
