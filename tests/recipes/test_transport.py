"""Optimal transport: against unrolling, finite differences, and what must hold for any plan."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.catalog import BY_NAME
from autograd_cookbook.recipes.transport import assignment_cost, sinkhorn_cost, sinkhorn_plan
from tests.support import assert_agrees_with_float64

# They compute the same.
SURVIVORS = {
    "PotentialsFunction.backward: 0 -> 1": "the cost comes twice, and both need a gradient or neither",
    **dict.fromkeys(
        [
            "_system: 1 + 1e-13 -> 1 - 1e-13",
            "_system: 1e-13 -> -1e-13",
        ],
        "on either side of 1 the system of a plan in blocks is no longer singular",
    ),
    **dict.fromkeys(
        [
            "_system: (1 + 1e-13) * identity - rows.mT @ columns + target.unsqueeze(-1)"
            " -> (1 + 1e-13) * identity - rows.mT @ columns",
            "_system: (1 + 1e-13) * identity - rows.mT @ columns + target.unsqueeze(-1)"
            " -> (1 + 1e-13) * identity - rows.mT @ columns - target.unsqueeze(-1)",
            "_system: target.unsqueeze(-{1 -> 2})",
        ],
        "any matrix of rank one, or the 1e-13 alone, fixes the constant in the potentials, which cancels",
    ),
}


def problem(*batch, n=4, m=3, dtype=torch.float64, scale=1.0):
    generator = torch.Generator().manual_seed(n + 10 * m)
    draw = lambda *s: torch.randn(*batch, *s, generator=generator, dtype=torch.float64)  # noqa: E731
    return [t.to(dtype).requires_grad_() for t in (scale * draw(n, m), draw(n).softmax(-1), draw(m).softmax(-1))]


def unrolled(cost, source, target, regularization, iterations):
    f, g = torch.zeros_like(source), torch.zeros_like(target)
    for _ in range(iterations):
        f = -regularization * (target.log().unsqueeze(-2) + (g.unsqueeze(-2) - cost) / regularization).logsumexp(-1)
        g = -regularization * (source.log().unsqueeze(-1) + (f.unsqueeze(-1) - cost) / regularization).logsumexp(-2)
    return (
        source.unsqueeze(-1)
        * target.unsqueeze(-2)
        * ((f.unsqueeze(-1) + g.unsqueeze(-2) - cost) / regularization).exp()
    )


def along_simplex(function, scale=1.0):
    return lambda c, x, y: function(c, x.softmax(-1), y.softmax(-1), 0.3 * scale, 1e-13)


@pytest.mark.parametrize("function", [sinkhorn_cost, sinkhorn_plan])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_first_and_second_derivatives_agree_with_finite_differences(function, scale) -> None:
    cost, x, y = problem(n=3, m=2, scale=scale)
    step = 1e-6 * scale
    assert gradcheck(along_simplex(function, scale), (cost, x, y), eps=step, atol=1e-5, rtol=1e-5)
    assert gradgradcheck(along_simplex(function, scale), (cost, x, y), eps=step, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("regularization", [1.0, 0.2])
def test_gradient_of_the_plan_is_that_of_unrolling_to_the_end(regularization) -> None:
    cost, source, target = problem()
    weights = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ours = sinkhorn_plan(cost, source, target, regularization, 1e-13)
    theirs = unrolled(cost, source, target, regularization, 800)
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-11)
    (a,) = torch.autograd.grad((ours * weights).sum(), cost)
    (b,) = torch.autograd.grad((theirs * weights).sum(), cost)
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_costs_far_beyond_the_range_of_exp_keep_the_marginals(dtype) -> None:
    """The exponent of the kernel is -50 000 here: exp(-cost / regularization) is 0 in any dtype."""
    cost, source, target = problem(3, dtype=dtype)
    cost = (cost.detach() + 1000).requires_grad_()
    plan = sinkhorn_plan(cost, source, target, 0.02, 1e-6, 20_000)
    torch.testing.assert_close(plan.sum(-1), source, rtol=0, atol=2e-6)
    torch.testing.assert_close(plan.sum(-2), target, rtol=0, atol=2e-6)
    (grad,) = torch.autograd.grad(sinkhorn_cost(cost, source, target, 0.02, 1e-6, 20_000).sum(), cost)
    torch.testing.assert_close(grad, plan.detach())


def test_columns_are_checked_where_the_first_rows_fit_by_accident() -> None:
    half, target = torch.full((2,), 0.5, dtype=torch.float64), torch.tensor([0.9, 0.1], dtype=torch.float64)
    cost = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    # Potentials of zero, where the iteration starts, now fit the rows and not the columns.
    cost = cost + 5 * (target * (-cost / 5).exp()).sum(-1, keepdim=True).log()
    torch.testing.assert_close(sinkhorn_plan(cost, half, target, 5.0).sum(-2), target)


def test_a_problem_does_not_depend_on_its_batch() -> None:
    tensors = problem(5)
    together = sinkhorn_plan(*tensors)
    for i in range(5):
        torch.testing.assert_close(together[i], sinkhorn_plan(*(t[i] for t in tensors)), rtol=0, atol=1e-15)
    torch.testing.assert_close(torch.func.vmap(sinkhorn_plan)(*tensors), together, rtol=0, atol=1e-15)


@pytest.mark.parametrize("function", [sinkhorn_cost, sinkhorn_plan])
def test_a_batch_has_any_number_of_dims(function) -> None:
    tensors = problem(2, 3)
    grads = torch.autograd.grad(function(*tensors).square().sum(), tensors)
    flat = [t.detach().flatten(0, 1).requires_grad_() for t in tensors]
    expected = torch.autograd.grad(function(*flat).square().sum(), flat)
    for grad, one in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad.flatten(0, 1), one)


def test_a_plan_in_blocks_is_differentiated() -> None:
    """Each block has a constant in its potentials of its own, so that the plain conditions are exactly singular."""
    cost = torch.tensor([[0.0, torch.inf], [torch.inf, 0.0]], dtype=torch.float64, requires_grad=True)
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    plan = sinkhorn_plan(cost, half, half)
    (grad,) = torch.autograd.grad(plan.square().sum(), cost)
    torch.testing.assert_close(plan, torch.eye(2, dtype=torch.float64) / 2)
    torch.testing.assert_close(grad, torch.zeros_like(grad))


def test_too_few_iterations_are_an_error_that_counts_the_problems() -> None:
    with pytest.raises(RuntimeError, match=r"no transport plan within 3 iterations.*in 2 of 2 problems"):
        sinkhorn_plan(*problem(2), 0.01, max_iterations=3)


def test_bytes_kept_do_not_grow_with_the_iterations() -> None:
    tensors = problem()
    ours = [saved_bytes(lambda *t, e=e: sinkhorn_plan(*t, e), *tensors) for e in (1.0, 0.1)]
    theirs = [saved_bytes(lambda *t, n=n: unrolled(*t, 0.1, n), *tensors) for n in (10, 100)]
    assert ours[0] == ours[1] < theirs[0]
    assert theirs[1] > 8 * theirs[0]


@pytest.mark.parametrize("function", [sinkhorn_cost, sinkhorn_plan])
def test_a_bin_without_mass_gets_finite_gradients(function) -> None:
    cost, _, target = problem()
    source = torch.tensor([0.5, 0.5, 0, 0], dtype=torch.float64, requires_grad=True)
    grads = torch.autograd.grad(function(cost, source, target).pow(2).sum(), (cost, source, target))
    assert all(g.isfinite().all() for g in grads)


@pytest.mark.parametrize("function", [sinkhorn_cost, sinkhorn_plan])
def test_empty_batch(function) -> None:
    tensors = problem(0)
    grads = torch.autograd.grad(function(*tensors).sum(), tensors)
    assert [g.shape for g in grads] == [t.shape for t in tensors]


def test_assignment_is_the_best_of_all_pairings() -> None:
    (cost, *_) = problem(5, n=4, m=4)
    totals = torch.stack([cost[:, range(4), list(p)].sum(-1) for p in itertools.permutations(range(4))])
    torch.testing.assert_close(assignment_cost(cost), totals.amin(0))
    assert gradcheck(assignment_cost, (cost,))
    assert gradgradcheck(assignment_cost, (cost,))
    torch.testing.assert_close(torch.func.vmap(assignment_cost)(cost), assignment_cost(cost))


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (3, 2), (2, 2, 4)])
def test_assignment_of_any_shape(shape) -> None:
    cost = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(assignment_cost(cost).sum(), cost)
    assert grad.sum() == cost.shape[:-2].numel() * min(cost.shape[-2:])


def test_one_bin_on_each_side_has_one_plan_and_no_gradient() -> None:
    """Here the conditions without the one on the means are exactly singular, not only up to rounding."""
    cost = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, dtype=torch.float64)
    plan = sinkhorn_plan(cost, one, one)
    (grad,) = torch.autograd.grad(plan.sum(), cost)
    assert (plan.item(), grad.item()) == (1, 0)


BAD = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("cost", "source"),
    [
        (BAD, [0.0, 0.0]),
        (BAD, [-1.0, -1.0]),
        (BAD, [2.0, -1.0]),
        (BAD, [1.0, torch.nan]),
        (BAD / 0, [1.0, 1.0]),
        (-BAD / 0, [1.0, 1.0]),
        (BAD.masked_fill(BAD[:1] == BAD, torch.inf), [1.0, 1.0]),
    ],
    ids=["no mass", "all negative", "one negative", "nan weight", "nan cost", "minus infinity", "no way out"],
)
def test_what_is_no_problem_of_transport_is_refused(cost, source) -> None:
    with pytest.raises(ValueError, match="expected costs that are not NaN"):
        sinkhorn_plan(cost, torch.tensor(source, dtype=torch.float64), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("function", [sinkhorn_cost, sinkhorn_plan])
def test_options_shapes_and_dtypes_are_checked(function) -> None:
    cost, source, target = problem()
    with pytest.raises(ValueError, match=r"got \(4, 3\), \(3,\) and \(4,\)"):
        function(cost, target, source)
    with pytest.raises(TypeError, match=r"got torch.float64, torch.float64 and torch.int64"):
        function(cost, source, target.long())
    for options in ((0.0,), (0.1, -1.0), (0.1, 1e-9, 0)):
        with pytest.raises(ValueError, match="expected regularization > 0"):
            function(cost, source, target, *options)


def test_a_forbidden_pair_gets_nothing_and_no_gradient() -> None:
    cost, source, target = problem()
    forbidden = torch.zeros(4, 3, dtype=torch.bool)
    forbidden[0, 1] = forbidden[2, 2] = True
    closed = cost.detach().masked_fill(forbidden, torch.inf).requires_grad_()
    plan = sinkhorn_plan(closed, source, target, tolerance=1e-12)
    torch.testing.assert_close(plan, sinkhorn_plan(closed.clamp(max=1e6), source, target, tolerance=1e-12))
    (grad,) = torch.autograd.grad(plan.square().sum(), closed)
    assert (plan[forbidden] == 0).all()
    assert (grad[forbidden] == 0).all()
    assert grad.isfinite().all()


def test_only_proportions_of_weights_count_and_gradients_know_it() -> None:
    """A gradient along the weights themselves would change nothing but their sum."""
    cost, source, target = problem()
    big = (5 * source.detach()).requires_grad_()
    value = sinkhorn_cost(cost, big, target)
    torch.testing.assert_close(value, sinkhorn_cost(cost, source, target))
    (grad,) = torch.autograd.grad(value, big)
    torch.testing.assert_close(grad @ big, torch.zeros((), dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize("regularization", [0.1, 0.03, 0.01])
def test_a_plan_close_to_a_matching_is_found_and_differentiated(regularization) -> None:
    """Plain iterations fail here: after 10 000 of them, the plan misses the weights by more than 1e-8 of the mass."""
    cost = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    ones = torch.ones(6, dtype=torch.float64)
    plan = sinkhorn_plan(cost, ones, ones, regularization)
    assert (plan.sum(-2) - 1 / 6).abs().max() < 1e-9
    direction = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (grad,) = torch.autograd.grad((plan * direction).sum(), cost)
    step = 3e-3 * regularization
    up, down = (sinkhorn_plan(cost + s * direction, ones, ones, regularization, 1e-13) for s in (step, -step))
    torch.testing.assert_close(
        (grad * direction).sum(), ((up - down) * direction).sum() / (2 * step), rtol=1e-4, atol=5e-6
    )


@pytest.mark.parametrize("regularization", [1.0, 0.1, 0.02, 0.001])
def test_plan_of_two_and_two_is_a_sigmoid(regularization) -> None:
    """Half of the mass, by how much the other pairing costs more; also where almost nothing is left to swap."""
    cost = torch.tensor([[0.3, 1.1], [0.9, 0.2]], dtype=torch.float64, requires_grad=True)
    pair = torch.ones(2, dtype=torch.float64)
    excess = (cost[0, 1] + cost[1, 0] - cost[0, 0] - cost[1, 1]) / (2 * regularization)
    stays, swaps = excess.sigmoid() / 2, (-excess).sigmoid() / 2
    plan = sinkhorn_plan(cost, pair, pair, regularization, 1e-13)
    torch.testing.assert_close(plan[0], torch.stack([stays, swaps]), rtol=1e-9, atol=1e-15)
    (expected,) = torch.autograd.grad(swaps, cost, retain_graph=True)
    (grad,) = torch.autograd.grad(plan[0, 1], cost)
    torch.testing.assert_close(grad, expected, rtol=1e-7, atol=1e-12)


def test_a_plan_in_separate_blocks_has_the_gradient_of_each_block() -> None:
    """Mass cannot go from one block to the other, so the linear system has one more direction without a right side."""
    block = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    direction = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    both = torch.full((6, 6), 1e4, dtype=torch.float64)
    both[:3, :3], both[3:, 3:] = block, 2 * block
    both.requires_grad_()
    small = block.clone().requires_grad_()
    weights = torch.zeros(6, 6, dtype=torch.float64)
    weights[:3, :3] = direction
    (whole,) = torch.autograd.grad((sinkhorn_plan(both, *torch.ones(2, 6).double()) * weights).sum(), both)
    (alone,) = torch.autograd.grad((sinkhorn_plan(small, *torch.ones(2, 3).double()) / 2 * direction).sum(), small)
    torch.testing.assert_close(whole[:3, :3], alone, rtol=1e-7, atol=1e-9)
    assert whole[:3, 3:].abs().max() < 1e-9


def test_assignment_checks_its_argument() -> None:
    with pytest.raises(TypeError, match=r"expected a floating cost, got torch.int64"):
        assignment_cost(torch.ones(2, 2).long())
    with pytest.raises(ValueError, match=r"expected cost \(..., n, m\), got \(3,\)"):
        assignment_cost(torch.ones(3))


def test_an_infinite_cost_forbids_a_pair() -> None:
    cost = torch.tensor([[torch.inf, 1.0], [2.0, 0.0]], requires_grad=True)
    total = assignment_cost(cost)
    assert (total.item(), torch.autograd.grad(total, cost)[0].tolist()) == (3, [[0, 1], [1, 0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["sinkhorn_plan", "sinkhorn_cost"])
def test_what_cancels_in_a_gradient_of_a_plan_is_not_rounded_before(name: str, dtype: torch.dtype) -> None:
    """Nearly all mass in one bin: most of what a change of its costs does to the plan, the potentials undo.

    And of costs that are alike, most of what a weight does to the cost, its sum undoes.
    """
    generator = torch.Generator().manual_seed(0)
    cost = torch.rand(4, 3, generator=generator, dtype=torch.float64)
    cost = (cost if name == "sinkhorn_plan" else 100 + cost).requires_grad_()
    source = torch.tensor([1.0, 1e-7, 2e-7, 1e-7], dtype=torch.float64, requires_grad=True)
    target = torch.rand(3, generator=generator, dtype=torch.float64).requires_grad_()
    reference = BY_NAME[name].reference
    assert reference is not None
    grads = torch.rand(4, 3, generator=generator).to(dtype) if name == "sinkhorn_plan" else 1.0
    assert_agrees_with_float64(
        BY_NAME[name].function, [cost, source, target, 1.0], dtype, reference, 8 * torch.finfo(dtype).eps, grads
    )


def test_an_assignment_of_a_tensor_with_the_negative_bit() -> None:
    cost = torch.tensor([[4.0, 1.0], [2.0, 3.0]], dtype=torch.float64)
    assert assignment_cost(torch._neg_view(cost)) == assignment_cost(-cost) == -7
