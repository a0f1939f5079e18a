"""Element-wise recipes are within a few units in the last place of the truth, at every half-precision number."""

import pytest
import torch
from docs._ext.accuracy import CASES, DTYPES, Case, counted, errors

from autograd_cookbook.catalog import BY_NAME, Recipe

GOAL = 4.0
# Their gradient comes from their rounded output, as that of torch's own functions does, and is as wrong as theirs.
FROM_THE_OUTPUT = "sigmoid", "tanh"
# In float32 and float64: of these, the slope is a sum of two products, and torch.special.erfcx alone is 6 units off.
WITHIN = {"gelu": 8.0, "mish": 6.0, "parametric_swish": 6.0}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("recipe", "case"), [pytest.param(BY_NAME[c.recipe], c, id=c.label) for c in CASES])
def test_within_units_in_the_last_place(recipe: Recipe, case: Case, dtype: torch.dtype) -> None:
    """Never worse than the built-in; and within the goal, which in float32 and float64 is one for normal results."""
    at, *ours = errors(case, case.function, dtype)
    theirs = errors(case, case.built_in, dtype)[1:] if case.built_in else (torch.zeros_like(at),) * 2
    for what, error, other in zip(("value", "slope"), ours, theirs, strict=True):
        if recipe.name in FROM_THE_OUTPUT:
            assert error.max() <= other.max()
            continue
        goal = GOAL if dtype.itemsize == 2 else WITHIN.get(recipe.name, GOAL)
        beyond = (error > goal) & counted(case, what, at)
        assert not beyond.any(), f"{what} is {error[beyond].max():.3g} ulp off, first at {at[beyond][0]:.9g}"
        assert error.max() <= max(goal, other.max()) or case.built_in is None
