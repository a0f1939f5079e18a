"""Gradient descent as a function: its derivatives against differences, and everything that may be passed."""

import math

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.maml import inner_sgd

SURVIVORS = {
    "SGDStepFunction.backward: (p * g.conj()).real -> p * g.conj()": (
        "from a complex number with cotangent 1 comes the gradient of its real part"
    ),
}


def tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()


def loss(p, x, y):
    return ((x @ p["w"] + p["b"]).tanh() - y).square().mean()


def plain(loss, start, steps, lr, *given):
    for _ in range(steps):
        slopes = torch.autograd.grad(loss(start, *given), list(start.values()), create_graph=True)
        start = {name: p - lr * g for (name, p), g in zip(start.items(), slopes, strict=True)}
    return start


def everything():
    return {"w": tensor(3, 2), "b": tensor(2, seed=1)}, tensor(5, 3, seed=2), tensor(5, 2, seed=3), tensor(seed=4).abs()


def test_meta_gradient_equals_differences() -> None:
    """Start, rate and data at once, along random directions, to eight digits."""
    start, x, y, lr = everything()
    lr = lr.detach().requires_grad_()
    leaves = [*start.values(), x, y, lr]

    def meta(w, b, x, y, lr):
        end = inner_sgd(loss, {"w": w, "b": b}, 3, lr, x, y)
        return (end["w"].sin() * torch.linspace(1, 2, 6).reshape(3, 2)).sum() + end["b"].square().sum()

    grads = torch.autograd.grad(meta(*leaves), leaves)
    for seed in range(3):
        direction = [tensor(*t.shape, seed=10 + seed).detach() for t in leaves]

        def moved(h, direction=direction):
            with torch.no_grad():
                return meta(*(t + h * d for t, d in zip(leaves, direction, strict=True))).item()

        h = 2e-4
        numeric = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
        claimed = sum(float((g * d).sum()) for g, d in zip(grads, direction, strict=True))
        assert claimed == pytest.approx(numeric, rel=1e-8)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_inner_sgd_agrees_with_the_plain_loop(steps) -> None:
    start, x, y, lr = everything()
    ends = [adapt(loss, start, steps, lr, x, y) for adapt in (inner_sgd, plain)]
    assert list(ends[0]) == ["w", "b"]
    leaves = [*start.values(), x, y]
    first = []
    for end in ends:
        value = end["w"].square().sum() + end["b"].sum()
        first.append(torch.autograd.grad(value, leaves, create_graph=True, allow_unused=True, materialize_grads=True))
    for a, b in zip(*first, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
    if steps:
        second = [torch.autograd.grad(sum(g.square().sum() for g in f), leaves) for f in first]
        for a, b in zip(*second, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_a_quadratic_bowl_in_closed_form() -> None:
    """θₙ = (1 - ηc)ⁿ θ₀, and so are all derivatives known."""
    start, lr, curvature = tensor(2), torch.tensor(0.1, dtype=torch.float64, requires_grad=True), tensor(2, seed=5)
    end = inner_sgd(lambda w, c: (c * w**2).sum() / 2, start, 6, lr, curvature)
    shrink = 1 - lr * curvature
    torch.testing.assert_close(end, shrink**6 * start)
    ours = torch.autograd.grad(end.sum(), (start, lr, curvature))
    for a, b in zip(
        ours,
        (shrink**6, (-6 * curvature * shrink**5 * start).sum(), -6 * lr * shrink**5 * start),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_first_order_leaves_the_hessian_out() -> None:
    start, x, y, _ = everything()
    lr = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    end = inner_sgd(loss, start, 3, lr, x, y, first_order=True)
    full = inner_sgd(loss, start, 3, lr, x, y)
    weights = tensor(3, 2, seed=6).detach()
    for name in start:
        torch.testing.assert_close(end[name], full[name])
    got = torch.autograd.grad((end["w"] * weights).sum(), [start["w"], x, lr], allow_unused=True)
    assert torch.equal(got[0], weights), "the identity"
    assert got[1] is None
    moved = sum((full["w"].detach() - start["w"].detach()).flatten() * weights.flatten()) / 0.3
    torch.testing.assert_close(got[2], moved.detach())
    right = torch.autograd.grad((full["w"] * weights).sum(), start["w"])[0]
    assert (right - weights).norm() > 0.01 * right.norm()


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param(lambda a, b: (a, b), id="tuple"),
        pytest.param(lambda a, b: [a, b], id="list"),
        pytest.param(lambda a, b: {"x": a, "y": {"z": b}}, id="nested"),
    ],
)
def test_parameters_come_back_in_their_form(parameters) -> None:
    a, b = tensor(2), tensor(3)
    given = parameters(a, b)
    end = inner_sgd(lambda p: sum(t.square().sum() for t in torch.utils._pytree.tree_leaves(p)) / 2, given, 2, 0.5)
    assert type(end) is type(given)
    flat, form = torch.utils._pytree.tree_flatten(end)
    assert form == torch.utils._pytree.tree_flatten(given)[1]
    for found, was in zip(flat, (a, b), strict=True):
        torch.testing.assert_close(found, was / 4)


def test_a_network_and_its_parameters() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, y = tensor(5, 3).detach(), tensor(5, 2, seed=1).detach()

    def objective(p, x, y):
        return nn.functional.mse_loss(torch.func.functional_call(net, p, x), y)

    start = dict(net.named_parameters())
    ends = [adapt(objective, start, 2, 0.1, x, y) for adapt in (inner_sgd, plain)]
    pairs = [torch.autograd.grad(objective(end, x, y), list(net.parameters())) for end in ends]
    for a, b in zip(*pairs, strict=True):
        torch.testing.assert_close(a, b)


def test_a_parameter_that_the_loss_ignores_stays_where_it_is() -> None:
    a, b = tensor(2), tensor(2, seed=1)
    end = inner_sgd(lambda p: p[0].square().sum(), (a, b), 3, 0.1)
    assert torch.equal(end[1], b)
    assert torch.equal(torch.autograd.grad(end[1].sum(), b)[0], torch.ones(2, dtype=torch.float64))


def test_tasks_are_mapped_by_vmap() -> None:
    start, x, y, lr = everything()
    xs, ys = torch.stack([x, 2 * x]).detach(), torch.stack([y, -y]).detach()

    def after(x, y):
        return loss(inner_sgd(loss, start, 2, lr, x, y), x, y)

    together = torch.func.vmap(after)(xs, ys)
    alone = torch.stack([after(*task) for task in zip(xs, ys, strict=True)])
    torch.testing.assert_close(together, alone)
    for a, b in zip(*(torch.autograd.grad(t.sum(), list(start.values())) for t in (together, alone)), strict=True):
        torch.testing.assert_close(a, b)


def test_under_checkpoint() -> None:
    start, x, y, lr = everything()

    def after(w, b):
        return loss(inner_sgd(loss, {"w": w, "b": b}, 2, lr, x, y), x, y)

    plain_value = after(start["w"], start["b"])
    checked = checkpoint(after, start["w"], start["b"], use_reentrant=False)
    for a, b in zip(*(torch.autograd.grad(v, list(start.values())) for v in (checked, plain_value)), strict=True):
        torch.testing.assert_close(a, b)


def test_each_step_keeps_its_parameters_and_nothing_else() -> None:
    w = torch.randn(10, 10, requires_grad=True)
    x = torch.randn(500, 10)
    objective = lambda w, x: (x @ w).sin().square().mean()  # noqa: E731
    size = w.untyped_storage().nbytes()
    for steps in (1, 2, 9):
        assert saved_bytes(lambda w, x, n=steps: inner_sgd(objective, w, n, 0.1, x), w, x) == (steps - 1) * size

    def run(steps):
        torch.autograd.grad(inner_sgd(objective, w, steps, 0.1, x).sum(), w)

    few, many = peak_bytes(run, 2), peak_bytes(run, 22)
    assert many - few == 20 * size


def test_bad_input_is_named() -> None:
    w = tensor(3)
    with pytest.raises(ValueError, match="steps >= 0, got -1"):
        inner_sgd(lambda w: w.sum(), w, -1, 0.1)
    with pytest.raises(ValueError, match=r"real scalar loss, got shape \(3,\)"):
        inner_sgd(lambda w: w, w, 1, 0.1)
    with pytest.raises(ValueError, match=r"got shape \(\) of torch\.complex128"):
        inner_sgd(lambda w: w.sum() * 1j, w, 1, 0.1)
    hidden = tensor()
    with pytest.raises(RuntimeError, match="requires grad"):
        inner_sgd(lambda w: (w * hidden).sum(), w, 1, 0.1)


def test_complex_parameters_of_a_real_loss() -> None:
    w = torch.tensor([0.3 + 0.4j, -1.0 + 0.2j], dtype=torch.complex128, requires_grad=True)
    a = torch.tensor([1.0 - 2.0j, 0.5j], dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda w, a: inner_sgd(lambda w, a: (w * a + w**2).abs().square().sum(), w, 2, 0.05, a), (w, a)
    )
    assert math.isfinite(inner_sgd(lambda w: w.abs().square().sum(), w, 1, 0.5).abs().sum().item())
