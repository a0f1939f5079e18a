"""saved_bytes counts what autograd really keeps."""

import pytest
import torch

from autograd_cookbook.auditing import held_bytes, peak_bytes, saved_bytes
from autograd_cookbook.catalog import RECIPES, Recipe
from tests.support import differentiable


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(lambda x: x.sum(), 0, id="a sum keeps nothing"),
        pytest.param(lambda x: x * x, 0, id="the argument itself does not count"),
        pytest.param(torch.sigmoid, 400, id="the output does"),
        pytest.param(lambda x: x * torch.sigmoid(x), 400, id="a tensor saved twice counts once"),
        pytest.param(lambda x: torch.sigmoid(x)[:10].square(), 400, id="a view counts as its whole storage"),
    ],
)
def test_bytes(function, expected: int) -> None:
    assert saved_bytes(function, torch.ones(100, requires_grad=True)) == expected


class KeepsOnCtx(torch.autograd.Function):
    """What it keeps is not saved by autograd's rules, and alive all the same."""

    @staticmethod
    def forward(ctx, x):
        ctx.hidden = x * 2
        return x.sum()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.hidden


def test_held_bytes_sees_what_saved_bytes_does_not() -> None:
    x = torch.ones(100, requires_grad=True)
    assert saved_bytes(KeepsOnCtx.apply, x) == 0
    assert held_bytes(KeepsOnCtx.apply, x) == 400 + 4


# What these pages keep cannot be seen by saved_bytes, and they say what it is.
SEEN_OTHERWISE = (
    *("hooks", "checkpointing", "saved_tensor_hooks", "reversible"),  # kept by hooks of their own
    *("hessian", "per_sample_gradients"),  # by torch.func, which refuses any hooks
    "scipy_functions",  # the values that the LU factors were made of
)
WITHOUT_HOOKS = [r for r in RECIPES if r.calls and r.page not in SEEN_OTHERWISE]


@pytest.mark.parametrize("recipe", [pytest.param(r, id=r.name) for r in WITHOUT_HOOKS])
def test_recipes_hide_nothing(recipe: Recipe) -> None:
    """All that is alive after forward is the result, what was saved, and the random state of a checkpoint."""
    args = recipe.calls[0].args
    result = recipe.function(*args)
    own = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in differentiable(result)}
    for a in args:
        if isinstance(a, torch.Tensor):
            own.pop(a.untyped_storage().data_ptr(), None)
    assert held_bytes(recipe.function, *args) <= saved_bytes(recipe.function, *args) + sum(own.values())


def test_peak_is_deterministic() -> None:
    x = torch.randn(1000, requires_grad=True)
    peaks = {peak_bytes(lambda x: x.sin().exp().sum().backward(), x) for _ in range(3)}
    assert len(peaks) == 1
