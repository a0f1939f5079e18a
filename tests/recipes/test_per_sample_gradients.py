"""Per-sample gradients against a loop, clipping, noise, and a vmap rule by hand."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_map

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.double_backward import lambert_w
from autograd_cookbook.recipes.forward_mode import smooth_maximum
from autograd_cookbook.recipes.hessian import log_cosh
from autograd_cookbook.recipes.per_sample_gradients import (
    clipped_mean_gradient,
    isotonic_regression,
    per_sample_gradients,
)
from autograd_cookbook.recipes.reductions import logsumexp
from autograd_cookbook.recipes.template import Linear, tanh


def point(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Custom(nn.Module):
    """A network of custom functions."""

    def __init__(self, inner) -> None:
        super().__init__()
        self.first, self.second, self.inner = Linear(6, 5), Linear(5, 4), inner

    def forward(self, x: Tensor) -> Tensor:
        return logsumexp(self.second(self.inner(self.first(x))), -1)


MODELS = {
    "built-ins": lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)),
    "tanh": lambda: Custom(tanh),
    "log_cosh": lambda: Custom(log_cosh),
    "lambert_w": lambda: Custom(lambda x: lambert_w(x.square())),
    "smooth_maximum": lambda: Custom(lambda x: smooth_maximum(x, x.new_zeros(()), 0.5)),
    "isotonic_regression": lambda: Custom(isotonic_regression),
}


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize("name", MODELS)
def test_per_sample_gradients_are_those_of_a_loop(name, chunk_size) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().double()
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    batch = point(7, 6), point(7, seed=1)

    def loss(parameters, x, target):
        return (functional_call(model, parameters, x) - target).square().sum()

    found = per_sample_gradients(loss, parameters, batch, chunk_size)
    for i in range(7):
        leaves = {name: p.clone().requires_grad_() for name, p in parameters.items()}
        alone = torch.autograd.grad(loss(leaves, batch[0][i], batch[1][i]), list(leaves.values()))
        for single, mapped in zip(alone, found.values(), strict=True):
            torch.testing.assert_close(mapped[i], single, rtol=1e-12, atol=1e-12)


def test_parameters_keep_their_structure() -> None:
    parameters = {"a": point(3), "b": [point(2, 2), (point(),)]}

    def loss(p, x):
        return (p["a"] * x).sum() + (p["b"][0] * x[0]).sum() ** 2 + p["b"][1][0] * x[1]

    found = per_sample_gradients(loss, parameters, (point(4, 3),))
    assert tree_map(lambda g: tuple(g.shape), found) == {"a": (4, 3), "b": [(4, 2, 2), ((4,),)]}
    average = clipped_mean_gradient(loss, parameters, (point(4, 3),), 1e6)
    tree_map(lambda mean, each: torch.testing.assert_close(mean, each.mean(0)), average, found)


def linear_loss(weight: Tensor, x: Tensor) -> Tensor:
    """Its gradient is x."""
    return (weight * x).sum()


def test_each_sample_is_clipped_by_its_own_norm() -> None:
    x = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-6.0, 8.0]], dtype=torch.float64)
    found = clipped_mean_gradient(linear_loss, point(2), (x,), max_norm=2.0)
    expected = (x * torch.tensor([[2 / 5], [1.0], [1.0], [2 / 10]])).mean(0)
    torch.testing.assert_close(found, expected)


def test_the_norm_is_that_of_all_parameters_together() -> None:
    def loss(parameters, x):
        return parameters["a"] * x[0] + (parameters["b"] * x[1:]).sum()

    parameters = {"a": point(), "b": point(2)}
    found = clipped_mean_gradient(loss, parameters, (torch.tensor([[2.0, 1.0, 2.0]], dtype=torch.float64),), 1.5)
    torch.testing.assert_close(found["a"], torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close(found["b"], torch.tensor([0.5, 1.0], dtype=torch.float64))


@pytest.mark.parametrize("chunk_size", [1, 3, 10, 100])
def test_chunks_change_nothing_but_memory(chunk_size) -> None:
    batch = (point(10, 4),)
    whole = clipped_mean_gradient(linear_loss, point(4), batch, 1.0)
    torch.testing.assert_close(clipped_mean_gradient(linear_loss, point(4), batch, 1.0, chunk_size=chunk_size), whole)


def test_chunks_bound_the_memory() -> None:
    weight, batch = torch.zeros(1000), (torch.ones(64, 1000),)

    def loss(weight, x):
        return (weight * x).square().sum()

    one = 4 * 1000
    assert peak_bytes(lambda: clipped_mean_gradient(loss, weight, batch, 1.0)) > 64 * one
    assert peak_bytes(lambda: clipped_mean_gradient(loss, weight, batch, 1.0, chunk_size=4)) < 32 * one


def test_no_sample_moves_the_mean_further_than_its_share() -> None:
    x = point(8, 5)
    mean = clipped_mean_gradient(linear_loss, point(5), (x,), 0.5)
    for factor in (-1.0, -1e6, 0.0):
        changed = x.clone()
        changed[3] *= factor
        moved = clipped_mean_gradient(linear_loss, point(5), (changed,), 0.5) - mean
        assert 0 < moved.norm() <= 2 * 0.5 / 8 + 1e-12


def test_noise_has_the_standard_deviation_that_it_says() -> None:
    weight, batch = torch.zeros(20_000, dtype=torch.float64), (torch.zeros(5, 1, dtype=torch.float64),)
    generator = torch.Generator().manual_seed(0)
    found = clipped_mean_gradient(linear_loss, weight, batch, 3.0, 2.0, generator)
    assert found.std().item() == pytest.approx(2.0 * 3.0 / 5, rel=0.02)
    assert abs(found.mean().item()) < 4 * 1.2 / math.sqrt(20_000)


def test_noise_is_drawn_from_the_generator_alone() -> None:
    weight, batch = point(4), (point(3, 4),)
    before = torch.get_rng_state()

    def draw(seed):
        return clipped_mean_gradient(linear_loss, weight, batch, 1.0, 1.0, torch.Generator().manual_seed(seed))

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert torch.equal(torch.get_rng_state(), before)
    clipped_mean_gradient(linear_loss, weight, batch, 1.0)
    assert torch.equal(torch.get_rng_state(), before), "without noise it draws numbers"


def test_two_parameters_get_different_noise() -> None:
    parameters = {"a": point(3), "b": point(3)}
    zero = (torch.zeros(2, dtype=torch.float64),)
    found = clipped_mean_gradient(lambda p, x: (p["a"] * x + p["b"] * x).sum(), parameters, zero, 1.0, 1.0)
    assert not torch.equal(found["a"], found["b"])


def test_a_vanishing_gradient_can_be_differentiated() -> None:
    weight = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    found = clipped_mean_gradient(lambda w, x: (w * x).square().sum(), weight, (point(4, 3),), 1.0)
    (second,) = torch.autograd.grad(found.sum(), weight)
    torch.testing.assert_close(second, 2 * point(4, 3).square().mean(0))


def test_dropout_differs_from_sample_to_sample() -> None:
    torch.manual_seed(0)
    ones = torch.ones(50, 20)
    found = per_sample_gradients(lambda w, x: nn.functional.dropout(w * x).sum(), torch.ones(20), (ones,))
    assert len({tuple(row.tolist()) for row in found}) == 50


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"max_norm": 0.0}, ValueError, r"max_norm > 0, got 0\.0"),
        ({"max_norm": math.inf}, ValueError, "finite max_norm"),
        ({"max_norm": math.nan}, ValueError, "finite max_norm"),
        ({"noise_multiplier": -1.0}, ValueError, r"noise_multiplier >= 0, got -1\.0"),
        ({"batch": ()}, ValueError, r"sizes \[\]"),
        ({"batch": (torch.ones(2, 3), torch.ones(3))}, ValueError, r"sizes \[2, 3\]"),
        ({"batch": (torch.ones(()),)}, ValueError, r"sizes \[None\]"),
        ({"batch": (torch.ones(0, 3),)}, ValueError, "empty batch"),
        ({"parameters": torch.ones(3, dtype=torch.complex64)}, TypeError, "real parameters"),
        ({"function": lambda w, x: w * x}, RuntimeError, "scalar"),
    ],
)
def test_bad_input_is_named(change, error, message) -> None:
    arguments = {"function": linear_loss, "parameters": torch.ones(3), "batch": (torch.ones(2, 3),), "max_norm": 1.0}
    with pytest.raises(error, match=message):
        clipped_mean_gradient(**(arguments | change))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
        ([3.0, 2.0, 1.0], [2.0, 2.0, 2.0]),
        ([1.0, 3.0, 2.0, 4.0], [1.0, 2.5, 2.5, 4.0]),
        ([4.0, 1.0, 1.0, 5.0, 3.0], [2.0, 2.0, 2.0, 4.0, 4.0]),
        ([1.0, 5.0, 2.0, 0.0], [1.0, 7 / 3, 7 / 3, 7 / 3]),
        ([2.0, 2.0], [2.0, 2.0]),
        ([], []),
    ],
)
def test_isotonic_regression_by_hand(values, expected) -> None:
    found = isotonic_regression(torch.tensor(values, dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_isotonic_regression_is_a_projection() -> None:
    x = point(50, 9)
    y = isotonic_regression(x)
    assert (y.diff(dim=-1) >= 0).all()
    torch.testing.assert_close(isotonic_regression(y), y)
    torch.testing.assert_close(((x - y) * y).sum(-1), torch.zeros(50, dtype=torch.float64))  # at a right angle
    later = (x - y).flip(-1).cumsum(-1)  # and no direction of the cone comes closer
    assert (later < 1e-12).all()


def test_the_gradient_is_averaged_over_blocks_of_uneven_size() -> None:
    x = torch.tensor([4.0, 1.0, 1.0, 5.0, 3.0, 9.0], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([1.0, 2.0, 6.0, 1.0, 4.0, 7.0], dtype=torch.float64)
    (found,) = torch.autograd.grad(isotonic_regression(x), x, weight)
    assert found.tolist() == [3.0, 3.0, 3.0, 2.5, 2.5, 7.0]


@pytest.mark.parametrize("in_dim", [0, 1, 2, -1, -2, -3])
def test_the_rule_moves_the_hidden_dimension(in_dim) -> None:
    x = point(2, 3, 4)
    weight = point(*x.select(in_dim, 0).shape, seed=1)
    functions = isotonic_regression, grad(lambda x: (isotonic_regression(x) * weight).sum())
    for function in functions:
        looped = torch.stack([function(part) for part in x.unbind(in_dim)])
        torch.testing.assert_close(vmap(function, in_dims=in_dim)(x), looped, rtol=1e-14, atol=0)


def test_mapped_twice() -> None:
    x = point(2, 3, 4)
    looped = torch.stack([torch.stack([isotonic_regression(r) for r in m.unbind(1)]) for m in x])
    torch.testing.assert_close(vmap(vmap(isotonic_regression, in_dims=1))(x), looped)


def test_isotonic_regression_keeps_a_byte_an_element() -> None:
    x = torch.rand(10, 20, requires_grad=True)
    assert saved_bytes(isotonic_regression, x) == 200


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_long_blocks_in_half_precision(dtype) -> None:
    x = torch.linspace(1, 0, 1000).to(dtype).requires_grad_()
    weight = torch.full((1000,), 128, dtype=dtype)  # the sum is beyond float16
    (found,) = torch.autograd.grad(isotonic_regression(x), x, weight)
    assert (found == 128).all()


def test_isotonic_regression_refuses_what_it_cannot_do() -> None:
    for dtype in (torch.int64, torch.complex64):
        with pytest.raises(TypeError, match=f"real floating input, got {dtype}"):
            isotonic_regression(torch.ones(3, dtype=dtype))
    with pytest.raises(RuntimeError, match="at least one dimension"):
        isotonic_regression(torch.ones(()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("max_norm", [1e-3, 1.0])
def test_clipping_at_every_size_of_a_gradient(dtype, max_norm) -> None:
    """Squares overflow, or vanish; the share of a sample does neither."""
    info = torch.finfo(dtype)
    for size in torch.logspace(math.log2(info.smallest_normal), math.log2(info.max) - 3, 40, 2, dtype=torch.float64):
        x = (size * torch.tensor([[3.0, 4.0, 0.0]], dtype=torch.float64)).to(dtype)
        wide = x.double() / size
        wanted = wide[0] * min(float(size), max_norm / wide.norm())
        found = clipped_mean_gradient(lambda w, x: w @ x, torch.zeros(3, dtype=dtype), (x,), max_norm=max_norm)
        torch.testing.assert_close(found.double(), wanted, rtol=8 * info.eps, atol=8 * info.smallest_normal * info.eps)


def test_isotonic_regression_of_a_tensor_with_the_negative_bit() -> None:
    x = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    assert torch.equal(isotonic_regression(torch._neg_view(x)), isotonic_regression(-x))
