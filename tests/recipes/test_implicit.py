"""Implicit differentiation: against closed forms, and where a solver has nothing to offer."""

import contextlib
import math

import numpy
import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes._explicit import explicit, vjp
from autograd_cookbook.recipes.implicit import bisect, fixed_point, linear_solve, root


def leaf(*shape: int, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    return (scale * torch.randn(shape, dtype=dtype, generator=generator)).requires_grad_()


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def affine(z, x, w):
    return z @ w + x


@pytest.mark.parametrize("history", [0, 1, 2, 5])
def test_fixed_point_of_an_affine_map_is_a_linear_solve(history) -> None:
    """Whose matrix is not symmetric: without the transpose in the adjoint, this fails."""
    x, w = leaf(4, 3), leaf(3, 3, scale=0.2)
    ours = fixed_point(affine, zeros(4, 3), x, w, history=history)
    theirs = torch.linalg.solve(torch.eye(3) - w, x, left=False)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    weights = leaf(4, 3).detach() ** 2
    for a, b in zip(
        torch.autograd.grad(ours, (x, w), weights), torch.autograd.grad(theirs, (x, w), weights), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_fixed_point_has_derivatives_of_third_order() -> None:
    a = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    derivative = fixed_point(lambda z, a: a * (1 + z**2), zeros(), a)
    closed = (1 - (1 - 4 * a**2).sqrt()) / (2 * a)
    for _ in range(4):
        torch.testing.assert_close(derivative, closed, rtol=1e-11, atol=0)
        (derivative,) = torch.autograd.grad(derivative, a, create_graph=True)
        (closed,) = torch.autograd.grad(closed, a, create_graph=True)


def test_fixed_point_of_complex_numbers() -> None:
    x, w = leaf(1, dtype=torch.complex128), leaf(1, dtype=torch.complex128, scale=0.2)
    start = torch.zeros(1, dtype=torch.complex128)

    def function(x, w):
        return fixed_point(lambda z, x, w: w * z.conj() + z**2 / 20 + x, start, x / 4, w)

    assert gradcheck(function, (x, w))
    assert gradgradcheck(function, (x, w))


def test_memory_is_flat_in_the_number_of_iterations() -> None:
    x, start = torch.ones(100, dtype=torch.float64, requires_grad=True), zeros(100)
    calls = []

    def solve(tolerance):
        calls.append(0)

        def step(z, x):
            calls[-1] += 1
            return 0.99 * z + x

        return fixed_point(step, start, x, tolerance=tolerance, max_iterations=2000, history=0)

    loose, tight = 0.1, 5e-4
    kept = [saved_bytes(lambda x, _, t=t: solve(t), x, start) for t in (loose, tight)]
    peaks = [peak_bytes(lambda t=t: solve(t).sum().backward()) for t in (loose, tight)]
    assert calls[0] < 12
    assert calls[1] > 280
    assert kept == [start.untyped_storage().nbytes()] * 2
    assert peaks[0] == peaks[1]


def test_gradient_is_as_accurate_as_the_tolerance() -> None:
    x, w = leaf(4, 3), leaf(3, 3, scale=0.2)
    exact = torch.autograd.grad(fixed_point(affine, zeros(4, 3), x, w).sum(), w)[0]
    for tolerance in (1e-3, 1e-6, 1e-9):
        z = fixed_point(affine, zeros(4, 3), x, w, tolerance=tolerance, history=0)
        error = (torch.autograd.grad(z.sum(), w)[0] - exact).norm() / exact.norm()
        assert tolerance / 1e4 < error < 10 * tolerance


def test_history_finds_what_plain_iteration_cannot() -> None:
    """The map stretches by a factor of 2 in one direction: no contraction, and a fixed point nevertheless."""
    w = torch.diag(torch.tensor([-2.0, 0.5, 0.3], dtype=torch.float64)).requires_grad_()
    x = leaf(3)
    expected = x / (1 - w.diagonal())
    torch.testing.assert_close(fixed_point(affine, zeros(3), x, w), expected, rtol=1e-10, atol=1e-12)
    with pytest.raises(RuntimeError, match="no fixed point within 200 iterations"):
        fixed_point(affine, zeros(3), x, w, history=0)


def test_history_saves_iterations() -> None:
    counts = []
    for history in (0, 5):
        calls = []
        x, w = leaf(3).detach(), torch.diag(torch.tensor([0.95, -0.5, 0.3], dtype=torch.float64))
        fixed_point(lambda z, x, w, c=calls: (c.append(1), affine(z, x, w))[1], zeros(3), x, w, max_iterations=999,
                    history=history)  # fmt: skip
        counts.append(len(calls))
    assert counts[1] < 20 < 500 < counts[0]


def test_backward_does_not_evaluate_the_function_again_in_each_iteration() -> None:
    calls = []
    x = leaf(3)
    z = fixed_point(lambda z, x: (calls.append(1), 0.5 * z.cos() + x)[1], zeros(3), x, history=0)
    forward = len(calls)
    z.sum().backward()
    assert forward > 10
    assert len(calls) == forward + 2


@pytest.mark.parametrize(
    ("function", "history"),
    [
        pytest.param(lambda z, x: 2 * z + x, 0, id="grows"),
        pytest.param(lambda z, x: z * z + x + 1, 0, id="overflows"),
        pytest.param(lambda z, x: z + 1 + 0 * x, 5, id="has none"),
        pytest.param(lambda z, x: z * math.nan + x, 5, id="NaN"),
    ],
)
def test_no_fixed_point_is_no_number(function, history) -> None:
    with pytest.raises(RuntimeError, match="no fixed point within 200 iterations"):
        fixed_point(function, zeros(2), torch.ones(2, dtype=torch.float64), history=history)


def test_parameters_of_a_module_are_made_arguments() -> None:
    net = nn.Linear(3, 3, dtype=torch.float64)
    nn.init.orthogonal_(net.weight, gain=0.5)
    x = leaf(5, 3)
    with pytest.raises(RuntimeError, match="explicit"):
        fixed_point(lambda z, x: (net(z) + x).tanh(), zeros(5, 3), x)
    function, parameters = explicit(net)
    z = fixed_point(lambda z, x, *p: (function(z, *p) + x).tanh(), zeros(5, 3), x, *parameters)
    z.sum().backward()
    y = zeros(5, 3)
    for _ in range(60):
        y = (net(y) + x).tanh()
    expected = torch.autograd.grad(y.sum(), [x, *net.parameters()])
    for tensor, e in zip((x, *net.parameters()), expected, strict=True):
        torch.testing.assert_close(tensor.grad, e, rtol=1e-11, atol=1e-12)


def test_explicit_without_parameters() -> None:
    function, parameters = explicit(nn.Tanh())
    assert parameters == ()
    assert torch.equal(function(torch.ones(2)), torch.ones(2).tanh())


def test_under_checkpoint_and_its_hooks() -> None:
    p = leaf(3, 2)
    system = lambda z, p: torch.stack([z.square().sum(-1) - p[..., 0] ** 2 - 2, z[..., 0] * p[..., 1] - z[..., 1]], -1)  # noqa: E731
    start = torch.ones(3, 2, dtype=torch.float64)
    plain = torch.autograd.grad(root(system, start, p).sum(), p, create_graph=True)[0]
    checked = checkpoint(lambda p: root(system, start, p), p, use_reentrant=False)
    (checked,) = torch.autograd.grad(checked.sum(), p, create_graph=True)
    torch.testing.assert_close(checked, plain)
    torch.testing.assert_close(*(torch.autograd.grad(g.square().sum(), p)[0] for g in (checked, plain)))


def test_vjp_of_an_input_that_is_ignored_is_zero() -> None:
    x, y = leaf(3), leaf(2)
    with_hooks = torch.autograd.graph.saved_tensors_hooks(torch.detach, torch.detach)
    for context in (contextlib.nullcontext(), with_hooks):
        with context:
            _, pull_back = vjp(lambda x, y: x.sin(), x, y)
            assert torch.equal(pull_back(torch.ones_like(x))[1], torch.zeros_like(y))


@pytest.mark.parametrize("hooks", [False, True])
def test_vjp_with_hooks_on_saved_tensors_and_without(hooks) -> None:
    x, y = leaf(3), leaf(3).detach()
    packed = []

    def compute():
        output, pull_back = vjp(lambda x, y: x.sin() * y, x, y, wanted=(True, False))
        return output, *pull_back(2 * torch.ones_like(output))

    def pack(tensor):
        packed.append(tensor)
        return tensor.detach()

    if hooks:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            with torch.no_grad():
                compute()
                assert not packed, "what is gone in a moment was packed"
            output, grad, none = compute()
    else:
        output, grad, none = compute()
    assert none is None
    assert bool(packed) == hooks
    torch.testing.assert_close(output, x.sin() * y)
    torch.testing.assert_close(grad, 2 * x.cos() * y)
    torch.testing.assert_close(torch.autograd.grad(grad.sum(), x)[0], -2 * x.sin() * y)


def test_vmap_of_a_pull_back_that_is_called_later() -> None:
    """Which torch stops with an internal error, unless saved tensors are unwrapped."""
    x = leaf(5, 3).detach()
    start = zeros(3)

    def gradient(x):
        _, pull_back = torch.func.vjp(lambda x: fixed_point(lambda z, x: z.cos() * x.sin() / 2, start, x), x)
        return pull_back(torch.ones(3, dtype=torch.float64))[0]

    expected = torch.stack([gradient(row) for row in x])
    torch.testing.assert_close(torch.func.vmap(gradient)(x), expected, rtol=1e-12, atol=1e-13)


def test_vmap_over_where_the_solver_starts() -> None:
    """A cubic has three roots: which one is found depends on it."""
    starts = torch.tensor([[-2.0], [0.1], [2.0]], dtype=torch.float64)
    a = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    z = torch.func.vmap(lambda start, a: root(lambda z, a: z**3 - a * z, start, a), (0, None))(starts, a)
    torch.testing.assert_close(z.flatten(), torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(torch.autograd.grad(z[2].sum(), a)[0], torch.tensor([0.5], dtype=torch.float64))


def test_root_solves_systems_that_are_not_symmetric() -> None:
    a, b = leaf(2, 3, 3), leaf(2, 3)
    a = (a + 3 * torch.eye(3)).detach().requires_grad_()
    ours = root(lambda z, a, b: (a @ z.unsqueeze(-1)).squeeze(-1) - b, zeros(2, 3), a, b)
    theirs = torch.linalg.solve(a, b)
    weights = leaf(2, 3).detach() ** 2
    for x, y in zip(
        (ours, *torch.autograd.grad(ours, (a, b), weights)),
        (theirs, *torch.autograd.grad(theirs, (a, b), weights)),
        strict=True,
    ):
        torch.testing.assert_close(x, y, rtol=1e-11, atol=1e-12)


def test_root_keeps_its_digits_and_says_when_there_are_none() -> None:
    a = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    z = root(lambda z, a: z**2 - a, torch.ones(1, dtype=torch.float64), a)
    assert z.item() == pytest.approx(math.sqrt(2), rel=1e-15)
    assert torch.autograd.grad(z, a)[0].item() == pytest.approx(1 / (2 * math.sqrt(2)), rel=1e-14)
    with pytest.raises(RuntimeError, match="no root within 50 iterations"):
        root(lambda z, a: z**2 + a, torch.ones(1, dtype=torch.float64), a)
    with pytest.raises(RuntimeError, match="no root within 1 iterations"):
        root(lambda z, a: z**2 - a, torch.ones(1, dtype=torch.float64), a, max_iterations=1)
    with pytest.raises(torch.linalg.LinAlgError):
        root(lambda z, a: z**2 - a, zeros(1), a)
    with pytest.raises(RuntimeError, match="nan"):
        root(lambda z, a: z.exp() - a, torch.full((1,), -20.0, dtype=torch.float64), a)
    assert saved_bytes(lambda a, z: root(lambda z, a: z**2 - a, z, a), a, torch.ones(1, dtype=torch.float64)) == 8


def test_bisect_is_as_accurate_as_the_distance_of_its_bounds() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        a = torch.linspace(-2, 2, 9, dtype=dtype, requires_grad=True)
        low, high = torch.full((9,), -3.0, dtype=dtype), torch.full((9,), 5.0, dtype=dtype)
        z = bisect(lambda z, a: z - a, low, high, a)
        assert (z - a).abs().max() <= 8 * torch.finfo(dtype).eps
        (grad,) = torch.autograd.grad(z.sum(), a)
        torch.testing.assert_close(grad, torch.ones_like(a))


def test_bisect_of_a_falling_function_and_one_that_is_zero_at_a_bound() -> None:
    low, high = zeros(3), torch.full((3,), 4.0, dtype=torch.float64)
    a = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64, requires_grad=True)
    for sign in (1, -1):
        z = bisect(lambda z, a, s=sign: s * (z * 3 - a * 3), low, high, a)
        torch.testing.assert_close(z, a.detach().clone(), atol=1e-15, rtol=1e-15)
        torch.testing.assert_close(torch.autograd.grad(z.sum(), a)[0], torch.ones_like(a))
    assert bisect(lambda z, a: z - a, low, high, a)[1] == 1, "met exactly by the second midpoint, and left again"


def test_bisect_without_a_change_of_sign_is_nan() -> None:
    a = torch.tensor([-1.0, 4.0, 9.0, math.nan], dtype=torch.float64, requires_grad=True)
    z = bisect(lambda z, a: z**2 - a, zeros(4), torch.full((4,), 2.5, dtype=torch.float64), a)
    assert z.isnan().tolist() == [True, False, True, True]
    assert z[1].item() == pytest.approx(2)
    assert torch.autograd.grad(z[1], a)[0][1].item() == pytest.approx(0.25)
    hole = bisect(lambda z, a: torch.where((z - a).abs() < 0.1, math.nan, z - a), zeros(1), zeros(1) + 2, a[1:2] / 8)
    assert hole.isnan().all(), "it has no sign around the zero"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_bisect_finds_the_last_digit_whatever_the_bounds(dtype) -> None:
    top = torch.finfo(dtype).max
    for high in (4.0, 1e4, top, math.inf):
        for low in (0.0, -1.0, -top):
            bounds = torch.tensor(low, dtype=dtype), torch.tensor(high, dtype=dtype)
            for target in (1e-3, 1.2599, 3.99):
                wanted = torch.tensor(target, dtype=dtype)
                assert bisect(lambda z, a: z - a, *bounds, wanted) == wanted
    for target in (1e-4, 7e4 if dtype.itemsize > 2 else 7e1):
        cube = torch.tensor(target, dtype=dtype)
        z = bisect(lambda z, a: z**3 - a, torch.zeros_like(cube), torch.full_like(cube, 1e4), cube)
        assert z.double() == pytest.approx(float(cube) ** (1 / 3), rel=2 * torch.finfo(dtype).eps)


def test_each_problem_of_a_batch_converges_by_its_own_size() -> None:
    sizes = torch.tensor([1e-30, 1e-3, 1.0, 1e6, 1e30], dtype=torch.float64)
    weight = torch.tensor([[0.3, 0.2], [-0.1, 0.4]], dtype=torch.float64)
    x = (sizes.unsqueeze(-1) * torch.tensor([1.0, -2.0])).requires_grad_()
    exact = torch.linalg.solve(torch.eye(2) - weight.T, x.detach().unsqueeze(-1)).squeeze(-1)
    adjoint = torch.linalg.solve(torch.eye(2, dtype=torch.float64) - weight, torch.ones(2, dtype=torch.float64))
    weights = 1 / sizes.unsqueeze(-1).expand(5, 2)
    for history in (0, 5):
        mapped = torch.func.vmap(lambda x, h=history: fixed_point(affine, zeros(2), x, weight, history=h))
        for z in (mapped(x), fixed_point(affine, zeros(5, 2), x, weight, history=history, batch_dims=1)):
            torch.testing.assert_close(z, exact, rtol=1e-13, atol=0)
            (grad,) = torch.autograd.grad(z, x, weights)
            torch.testing.assert_close(grad, weights * adjoint, rtol=1e-13, atol=0)
    # And where the start is far larger than what is found.
    far = fixed_point(affine, zeros(5, 2) + 1e6, x, weight, history=0, batch_dims=1, max_iterations=500)
    torch.testing.assert_close(far, exact, rtol=1e-13, atol=0)
    a = sizes.unsqueeze(-1)
    cubes = root(lambda z, a: z**3 - a, a ** (1 / 3) * 1.5, a)
    torch.testing.assert_close(cubes, a ** (1 / 3), rtol=1e-14, atol=0)


def test_a_mapped_batch_is_a_batch_of_batches() -> None:
    sizes = torch.tensor([[1e-30, 1e6], [1.0, 1e-3], [1e30, 1.0]], dtype=torch.float64)
    weight = torch.tensor([[0.3, 0.2], [-0.1, 0.4]], dtype=torch.float64)
    x = (sizes.unsqueeze(-1) * torch.tensor([1.0, -2.0])).requires_grad_()
    exact = torch.linalg.solve(torch.eye(2) - weight.T, x.detach().unsqueeze(-1)).squeeze(-1)
    counts = []

    def counted(z, x, weight):
        counts[-1] += 1
        return affine(z, x, weight)

    # From a start that is far larger than some of what is found, and in steps that one problem has to itself.
    for history, start, iterations in ((0, 1e6, 500), (5, 0.0, 100)):
        options = {"history": history, "max_iterations": iterations}
        counts.append(0)
        z = torch.func.vmap(
            lambda x, start=start, options=options: fixed_point(
                counted, zeros(2, 2) + start, x, weight, batch_dims=1, **options
            )
        )(x)
        torch.testing.assert_close(z, exact, rtol=1e-13, atol=0)
        counts.append(0)
        fixed_point(counted, zeros(3, 2, 2) + start, x, weight, batch_dims=2, **options)
        assert counts[-1] == counts[-2], "the two elements of a problem are one problem under vmap, too"


def test_a_fixed_point_at_zero() -> None:
    z = fixed_point(lambda z: z / 2, torch.ones(2, dtype=torch.float64), history=0)
    assert z.abs().max() < 1e-15


@pytest.mark.parametrize("mapped", [False, True], ids=["", "vmap"])
@pytest.mark.parametrize("compiled", [False, True], ids=["", "compile"])
def test_small_steps_far_from_the_end_are_not_taken_for_it(mapped, compiled) -> None:
    def solve(x, strict=False):
        return fixed_point(
            lambda z, x: 0.9999 * z + x, zeros(1), x, tolerance=1e-3, max_iterations=9999, history=0, strict=strict
        )

    x = torch.ones(3, 1, dtype=torch.float64) if mapped else torch.ones(1, dtype=torch.float64)
    function = torch.func.vmap(solve) if mapped else solve
    function = torch.compile(function, backend="eager") if compiled else function
    with pytest.warns(UserWarning, match=r"contracts by a factor of 0\.9999 only"):
        function(x)
    with pytest.raises(RuntimeError, match=r"contracts by a factor of 0\.9999 only"):
        solve(torch.ones(1, dtype=torch.float64), strict=True)


def test_bisect_gives_each_shape_its_gradient() -> None:
    a, b = leaf(4, 1), leaf(3)
    low = -torch.full((4, 3), 3.0, dtype=torch.float64)
    high = torch.full((4, 3), 3.5, dtype=torch.float64)
    z = bisect(lambda z, a, b: z**3 + z - 4 * (a * b).sin(), low, high, a, b)
    slope = 4 * (a * b).cos() / (3 * z**2 + 1)
    grads = torch.autograd.grad(z, (a, b), torch.ones_like(z), retain_graph=True)
    torch.testing.assert_close(grads[0], (slope * b).sum(1, keepdim=True).detach())
    torch.testing.assert_close(grads[1], (slope * a).sum(0).detach())
    kept = saved_bytes(lambda a, b: bisect(lambda z, a, b: z - (a * b).sin(), low, high, a, b), a, b)
    assert kept == 4 * 3 * 8


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param((3, 3), (3,), id="vector"),
        pytest.param((2, 3, 3), (2, 3), id="vectors"),
        pytest.param((3, 3), (2, 3, 4), id="matrix broadcast"),
        pytest.param((5, 2, 3, 3), (2, 3, 1), id="right-hand side broadcast"),
        pytest.param((2, 3, 3), (3,), id="one vector for all"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_linear_solve_agrees_with_torch(a, b, dtype) -> None:
    a, b = leaf(*a, dtype=dtype), leaf(*b, dtype=dtype)
    a = (a + 3 * torch.eye(3)).detach().requires_grad_()
    ours, theirs = linear_solve(a, b), torch.linalg.solve(a, b)
    torch.testing.assert_close(ours, theirs)
    weights = torch.randn(ours.shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    for x, y in zip(
        torch.autograd.grad(ours, (a, b), weights), torch.autograd.grad(theirs, (a, b), weights), strict=True
    ):
        torch.testing.assert_close(x, y)
    assert gradgradcheck(linear_solve, (a, b))


def test_linear_solve_by_a_solver_that_autograd_cannot_see() -> None:
    seen = []

    def solver(matrix, rhs):
        seen.append(matrix.shape)
        return torch.from_numpy(numpy.linalg.solve(matrix.detach().numpy(), rhs.detach().numpy()))

    a, b = (leaf(3, 3) + 3 * torch.eye(3)).detach().requires_grad_(), leaf(3)
    assert gradcheck(lambda a, b: linear_solve(a, b, solver), (a, b))
    assert gradgradcheck(lambda a, b: linear_solve(a, b, solver), (a, b))
    assert seen[0] == (3, 3)
    assert saved_bytes(linear_solve, a, b) == 3 * 8, "the solution, and no factors"


def test_bad_input_is_named() -> None:
    x = leaf(2)
    with pytest.raises(ValueError, match=r"\(3,\) of torch.float64, got \(2,\)"):
        fixed_point(lambda z, x: x, zeros(3), x)
    with pytest.raises(ValueError, match=r"got .* of torch\.float32"):
        fixed_point(lambda z, x: (z + x).float(), zeros(2), x)
    with pytest.raises(TypeError, match="int64"):
        fixed_point(lambda z: z, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="tolerance > 0, got 0"):
        fixed_point(lambda z, x: x, zeros(2), x, tolerance=0)
    with pytest.raises(ValueError, match="got 0 and 5"):
        fixed_point(lambda z, x: x, zeros(2), x, max_iterations=0)
    with pytest.raises(ValueError, match="got 200 and -1"):
        fixed_point(lambda z, x: x, zeros(2), x, history=-1)
    with pytest.raises(ValueError, match="max_iterations >= 1, got 0"):
        root(lambda z, x: z - x, zeros(2), x, max_iterations=0)
    with pytest.raises(ValueError, match="got -1"):
        root(lambda z, x: z - x, zeros(2), x, tolerance=-1)
    with pytest.raises(ValueError, match="scalar"):
        root(lambda z: z, zeros())
    with pytest.raises(TypeError, match="complex128"):
        root(lambda z: z, torch.zeros(2, dtype=torch.complex128))
    with pytest.raises(TypeError, match="complex128"):
        bisect(lambda z: z, *[torch.zeros(2, dtype=torch.complex128)] * 2)
    with pytest.raises(ValueError, match=r"\(2,\) of torch.float64 and \(3,\)"):
        bisect(lambda z: z, zeros(2), zeros(3))
    for solve in (lambda f: root(f, zeros(2)), lambda f: bisect(f, zeros(2), zeros(2))):
        with pytest.raises(RuntimeError, match="requires grad"):
            solve(lambda z: z - x)


@pytest.mark.parametrize("wrong", [math.inf, math.nan])
def test_an_infinite_gradient_of_a_fixed_point_goes_on_and_stays_in_its_problem(wrong) -> None:
    """A GradScaler looks for such gradients after backward, and skips the step. Backward must not raise."""
    x = torch.tensor([1.0, 0.5], requires_grad=True)

    def solved(x: torch.Tensor, batch_dims: int) -> torch.Tensor:
        return fixed_point(lambda z, x: z.cos() * x, torch.zeros_like(x), x, batch_dims=batch_dims)

    right = torch.autograd.grad(solved(x, 1).sum(), x)[0]
    first = torch.tensor([wrong, 1.0])
    for found in (
        torch.autograd.grad(solved(x, 1), x, first)[0],
        torch.autograd.grad(torch.func.vmap(lambda x: solved(x, 0))(x), x, first)[0],
    ):
        assert found[0].isnan()
        torch.testing.assert_close(found[1], right[1])
    assert torch.autograd.grad(solved(x, 0), x, first)[0].isnan().all()


def test_a_fixed_point_under_autocast() -> None:
    """torch has no pinv in bfloat16, to which autocast converts the products of Anderson's method."""
    x, w = leaf(4, 3, dtype=torch.float32), leaf(3, 3, dtype=torch.float32, scale=0.2)
    with torch.autocast("cpu", torch.bfloat16):
        found = fixed_point(lambda z, x, w: (z @ w).float() + x, torch.zeros(4, 3), x, w, tolerance=1e-2)
    expected = torch.linalg.solve(torch.eye(3) - w, x, left=False)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05)
    for ours, theirs in zip(
        torch.autograd.grad(found.sum(), (x, w)), torch.autograd.grad(expected.sum(), (x, w)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05)


def test_a_start_far_from_the_root_does_not_make_the_root_zero() -> None:
    x = torch.tensor([4.0], requires_grad=True)
    z = root(lambda z, x: z**2 - x, torch.tensor([1e9]), x)
    z.backward()
    assert z.item() == pytest.approx(2, rel=1e-6)
    assert x.grad.item() == pytest.approx(0.25, rel=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda z: z.exp() - 1 + z, id="small steps that halve"),
        pytest.param(lambda z: (z + 1) ** 2 - 1, id="steps of any size"),
        pytest.param(lambda z: (z + 0.3) ** 3 - 0.3**3 + z, id="zero is no solution in float32"),
    ],
)
@pytest.mark.parametrize("start", [0.1, 0.3, 0.5])
def test_a_root_of_zero_is_found_among_rounding_errors(function, start) -> None:
    assert root(function, torch.tensor([start])).abs().max() < 1e-6
