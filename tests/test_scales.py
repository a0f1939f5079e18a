"""At sizes far from those of the samples, a recipe is as right as what it replaces, in the same dtype.

The truth is what it replaces in float64, which neither overflows nor vanishes there.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as tree

from autograd_cookbook.catalog import RECIPES, Recipe

# Powers of two, so that scaling a sample is exact.
SCALES = {
    torch.float32: [2.0**n for n in (-110, -64, -20, 20, 40, 64, 100)],
    torch.bfloat16: [2.0**n for n in (-100, -10, 10, 100)],
    torch.float16: [2.0**n for n in (-12, -8, 4, 8, 12)],
}
MANY = 100  # roundings; what is less wrong than that is not looked at
WORSE = 8  # times as wrong as what it replaces

# Where what it replaces is no measure.
NO_MEASURE = {
    "root": "at other scales the equations of the samples have several solutions, or none",
    "bisect": "at other scales the zero is out of Newton's reach, which stands for what is replaced",
    "reversible_sequence": "the page says how much of a small state is lost under a large one",
    "rotation_exp": "of a million turns, float64 keeps few digits, by this formula and by the matrix exponential",
    "hessian": "in float16, derivatives of a polynomial overflow sooner in one order than in another",
}
# What raises, which is no wrong number.
RAISES = {
    "fixed_point": "RuntimeError: no fixed point",  # the functions of the samples are contractions near 1 alone
    "sparse_solve": "TypeError: expected values of float32",
}
CHECKED = [r for r in RECIPES if r.calls and r.reference and r.gradient == "exact" and r.name not in NO_MEASURE]


@pytest.mark.parametrize("recipe", [pytest.param(recipe, id=recipe.name) for recipe in CHECKED])
def test_as_right_as_what_it_replaces(recipe: Recipe) -> None:
    found = [
        f"{sample.name}, {dtype}, times {scale:.3g}, {what}: {wrong}"
        for sample in recipe.calls
        if not any(isinstance(leaf, Tensor) and leaf.is_complex() for leaf in sample.args)  # has no half precision
        for dtype, scales in SCALES.items()
        for scale in scales
        for what, wrong in wrongs(recipe, sample, dtype, scale)
    ]
    assert not found, "\n".join(found[:10])


def test_what_is_not_checked_is_there() -> None:
    assert set(NO_MEASURE | RAISES) <= {recipe.name for recipe in RECIPES}


def wrongs(recipe: Recipe, sample: Any, dtype: torch.dtype, scale: float) -> Iterator[tuple[str, str]]:
    assert recipe.reference is not None
    given = tree.tree_map(lambda leaf: leaf.detach().mul(scale).to(dtype) if is_real(leaf) else leaf, list(sample.args))
    wanted = [is_real(leaf) and leaf.requires_grad for leaf in tree.tree_leaves(list(sample.args))]
    try:
        theirs = computed(recipe.reference, given, wanted, dtype)
        truth = computed(recipe.reference, given, wanted, torch.float64)
    except (RuntimeError, NotImplementedError):  # what is replaced does not take the dtype, or finds no solution
        return
    try:
        ours = computed(recipe.function, given, wanted, dtype)
    except (RuntimeError, TypeError) as error:
        if not f"{type(error).__name__}: {error}".startswith(RAISES.get(recipe.name, "not expected")):
            yield "the call", f"{type(error).__name__}: {error}"
        return
    info = torch.finfo(dtype)
    for (what, mine), other, exact in zip(ours.items(), theirs.values(), truth.values(), strict=True):
        fits = (exact.abs() < info.max / 2) & other.isfinite()
        if not fits.any():
            continue
        if lost := int((fits & ~mine.isfinite()).sum()):
            yield what, f"{lost} of {fits.numel()} numbers are not finite"
            continue
        size = float(exact[fits].abs().max())
        off, built_in = (float((x - exact)[fits].abs().max()) for x in (mine, other))
        if size > info.smallest_normal / info.eps and off > max(MANY * info.eps * size, WORSE * built_in):
            yield what, f"{off / size:.2g} of its size off, where what it replaces is {built_in / size:.2g} off"


def is_real(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


def computed(function: Callable[..., Any], given: Any, wanted: Sequence[bool], dtype: torch.dtype) -> dict[str, Tensor]:
    """Outputs and gradients, as float64; of complex ones, both parts."""
    leaves, structure = tree.tree_flatten(given)
    leaves = [leaf.to(dtype) if is_real(leaf) else leaf for leaf in leaves]
    inputs = [leaf.requires_grad_() for leaf, want in zip(leaves, wanted, strict=True) if want]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        returned = function(*tree.tree_unflatten(leaves, structure))
    outputs = [output for output in tree.tree_leaves(returned) if is_real(output)]
    differentiable = [output for output in outputs if output.requires_grad]
    weights = [torch.linspace(0.75, 1.25, max(output.numel(), 1))[: output.numel()] for output in differentiable]
    grads = torch.autograd.grad(
        differentiable,
        inputs,
        [weight.to(dtype).reshape(output.shape) for weight, output in zip(weights, differentiable, strict=True)],
        materialize_grads=True,
    )
    found = {f"output {i}": output for i, output in enumerate(outputs)}
    found |= {f"gradient {i}": grad for i, grad in enumerate(grads)}
    real = {name: torch.view_as_real(t) if t.is_complex() else t for name, t in found.items()}
    return {name: tensor.detach().double() for name, tensor in real.items()}
