"""The whole catalog under the strictest settings; minutes, not seconds. Run by ``nox -s gradcheck``."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook.catalog import RECIPES, Recipe
from tests.support import (
    at,
    copies,
    expect_close,
    gradients,
    is_differentiable,
    leaves,
    places,
)

pytestmark = pytest.mark.slow("src/autograd_cookbook/recipes", "src/autograd_cookbook/catalog")

TIGHT = {"atol": 1e-6, "rtol": 1e-5, "nondet_tol": 1e-13}  # the last bit of an exponential may differ between runs
# Not defined at all numbers: their samples are shrunk toward zero, which leaves none of their domains.
WITH_DOMAIN = {"xlogy", "safe_sqrt", "lambert_w", "logdet", "bisect"}
EXACT = [recipe for recipe in RECIPES if recipe.gradient == "exact"]


def each(recipes: list[Recipe]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("recipe", [pytest.param(r, id=r.name) for r in recipes])


def moved(recipe: Recipe, seed: int) -> Callable[[Tensor], Tensor]:
    """A change of values, the same in every run: each sample is tried at other points than its own."""
    generator = torch.Generator().manual_seed(seed)
    factor = 0.7 + 0.3 * torch.rand((), generator=generator, dtype=torch.float64).item()

    def change(tensor: Tensor) -> Tensor:
        if recipe.name in WITH_DOMAIN:
            return factor * tensor
        return tensor + torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.dtype)

    return change


@each(EXACT)
@pytest.mark.parametrize("seed", range(3))
def test_first_and_second_order_at_other_points(recipe: Recipe, seed: int) -> None:
    for sample in recipe.calls:
        args = copies(sample.args, moved(recipe, seed))
        function, inputs = at(places(args), recipe.function, args), leaves(args)
        assert gradcheck(function, inputs, **TIGHT), sample.name
        if "second_order" in recipe.promises:
            assert gradgradcheck(function, inputs, gen_non_contig_grad_outputs=True, **TIGHT), sample.name


@each([recipe for recipe in RECIPES if recipe.calls and "compile" in recipe.promises])
@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex")  # they run as they are
def test_inductor_compiles_it_whole(recipe: Recipe) -> None:
    torch._dynamo.reset()
    args = recipe.calls[0].args
    compiled = torch.compile(recipe.function, fullgraph=True)
    torch.manual_seed(0)
    expected = gradients(recipe.function, copies(args))
    torch.manual_seed(0)
    expect_close(gradients(compiled, copies(args)), expected, 1e-9)


@each(list(RECIPES))
def test_nothing_of_the_caller_is_changed(recipe: Recipe) -> None:
    """Inputs keep their values, also behind autograd's back, and the global RNG its state."""
    for sample in recipe.calls:
        args = copies(sample.args)
        before = copies(args)
        state = torch.random.get_rng_state()
        gradients(recipe.function, args)
        for value, kept in zip(args, before, strict=True):
            if is_differentiable(value):
                assert torch.equal(value, kept), f"{recipe.name}, {sample.name}: an input was changed"
        assert torch.equal(state, torch.random.get_rng_state()), f"{recipe.name}, {sample.name}: the RNG moved"
