"""Solutions of equations: differentiate the equation, and not the solver."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._explicit import expect_explicit, vjp

Map = Callable[[Tensor], Tensor]


Bind = Callable[..., Map]


Solver = Callable[[Tensor, Tensor], Tensor]


class ImplicitFunction(Function):
    """Keeps solution and parameters, and nothing of the iterations that led there.

    ``bind(*parameters)`` is the map whose root or fixed point ``solve`` finds. What makes it a recipe for both is
    the ``adjoint``: the vector that, pulled back through the map once more, gives the gradient of the parameters.
    """

    @staticmethod
    def forward(bind: Bind, solve: Callable[..., Tensor], adjoint: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        start, *parameters = tensors
        return solve(bind(*parameters), start)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.bind, _, ctx.adjoint, _, *parameters = inputs
        ctx.save_for_backward(output, *parameters)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        solution, *parameters = ctx.saved_tensors
        adjoint = ctx.adjoint(ctx.bind, grad_output, solution, *parameters)
        _, pull_back = vjp(lambda *p: ctx.bind(*p)(solution), *parameters, wanted=ctx.needs_input_grad[4:])
        return None, None, None, None, *pull_back(adjoint)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        # A solver looks at numbers, which it cannot under vmap: so it gets the equations of the whole batch as one.
        bind, solve, adjoint, *tensors = args
        dims = in_dims[3:]
        start, *parameters = (t if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims, strict=True))
        if dims[0] is None:
            start = start.expand(info.batch_size, *start.shape)
        together = torch.func.vmap(lambda z, *p: bind(*p)(z), (0, *(None if d is None else 0 for d in dims[1:])))
        return ImplicitFunction.apply(_bound(together), solve, adjoint, start, *parameters), 0


def _bound(function: Callable[..., Tensor]) -> Bind:
    return lambda *parameters: lambda z: function(z, *parameters)


def _size(tensor: Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def _tolerance(given: float | None, default: float) -> float:
    if given is not None and not given > 0:
        raise ValueError(f"expected tolerance > 0, got {given}")
    return default if given is None else given


def _expect_state(function: Callable[..., Tensor], initial: Tensor, parameters: tuple[Tensor, ...]) -> None:
    if not (initial.is_floating_point() or initial.is_complex()):
        raise TypeError(f"expected a floating or complex initial state, got {initial.dtype}")
    found = expect_explicit(function, initial, *parameters)
    if (found.shape, found.dtype) != (initial.shape, initial.dtype):
        raise ValueError(
            f"expected the function to return a state like the initial one, {tuple(initial.shape)} of {initial.dtype}, "
            f"got {tuple(found.shape)} of {found.dtype}"
        )


def fixed_point(
    function: Callable[..., Tensor],
    initial: Tensor,
    *parameters: Tensor,
    tolerance: float | None = None,
    max_iterations: int = 200,
    history: int = 5,
) -> Tensor:
    r"""Find the state that a function maps to itself; its gradient takes no memory for the iterations.

    .. math::
        z^* = f(z^*, \theta), \qquad
        u = \bar{z} + \left(\frac{\partial f}{\partial z}\right)^{\!\top} u, \quad
        \bar{\theta} = \left(\frac{\partial f}{\partial \theta}\right)^{\!\top} u
        \qquad \text{at } z^*

    The adjoint :math:`u` is a fixed point, too, and found in the same way: so gradients of any order are right, each
    in the memory of one evaluation of the function.

    Args:
        function: called as ``function(state, *parameters)``; returns a new state. It must depend on nothing else that
            requires grad, and do the same in every call.
        initial: where the iteration starts, any shape, floating or complex; it gets no gradient.
        parameters: all that gets a gradient: inputs, weights.
        tolerance: how far the last step may still change the largest element, relative to the largest element of
            the state; 32 times the precision of the dtype if None. Forward and backward both stop there.
        max_iterations: how many evaluations are tried, in forward and in backward.
        history: how many steps Anderson acceleration combines; 0 iterates the function as it is.

    Returns:
        The state, like ``initial``.

    Raises:
        RuntimeError: if the iteration does not converge, in forward or in backward; if ``function`` uses a tensor
            that requires grad and is not passed.
        ValueError: if ``function`` returns another shape or dtype than ``initial``, or an option is out of range.
        TypeError: if ``initial`` is neither floating nor complex.

    Source: S. Bai, J. Z. Kolter, V. Koltun, Deep equilibrium models, arXiv:1909.01377; D. G. Anderson, Iterative
    procedures for nonlinear integral equations, Journal of the ACM 12 (1965).

    >>> x = torch.tensor(1.0, requires_grad=True)
    >>> z = fixed_point(lambda z, x: z.cos() * x, torch.tensor(0.0), x)
    >>> z.backward()
    >>> z, x.grad  # z / (x + x² sin z)
    (tensor(0.7391, grad_fn=<ImplicitFunctionBackward>), tensor(0.4416))
    """
    _expect_state(function, initial, parameters)
    tolerance = _tolerance(tolerance, 32 * torch.finfo(initial.dtype).eps)
    if max_iterations < 1 or history < 0:
        raise ValueError(f"expected max_iterations >= 1 and history >= 0, got {max_iterations} and {history}")

    def solve(step: Map, start: Tensor) -> Tensor:
        return _iterate(step, start, tolerance, max_iterations, history)

    def adjoint(bind: Bind, grad_output: Tensor, solution: Tensor, *parameters: Tensor) -> Tensor:
        def bind_adjoint(grad_output: Tensor, solution: Tensor, *parameters: Tensor) -> Map:
            # Linearized once: each iteration then is one backward, and no forward.
            _, pull_back = vjp(bind(*parameters), solution)
            return lambda u: grad_output + pull_back(u)[0]

        return ImplicitFunction.apply(bind_adjoint, solve, adjoint, grad_output, grad_output, solution, *parameters)

    return ImplicitFunction.apply(_bound(function), solve, adjoint, initial.detach(), *parameters)


# A loop that looks at its numbers is compiled anew for each iteration, or refused: the compiler calls it as it is.
@torch.compiler.disable
def _iterate(step: Map, start: Tensor, tolerance: float, max_iterations: int, history: int) -> Tensor:
    state = start
    last: tuple[Tensor, Tensor] | None = None
    steps: list[tuple[Tensor, Tensor]] = []
    for _ in range(max_iterations):
        image = step(state)
        change = image - state
        error, allowed = _size(change), tolerance * max(_size(start), _size(image))
        if not math.isfinite(error):
            break
        if error <= allowed:
            return image
        if last is not None and history:
            steps = [*steps, (image - last[0], change - last[1])][-history:]
        last = image, change
        state = _accelerated(image, change, steps)
    raise RuntimeError(
        f"no fixed point within {max_iterations} iterations: the last one changed the state by {error:.3g}, "
        f"which is more than {tolerance:.3g} of its size. Is the function a contraction?"
    )


def _accelerated(image: Tensor, change: Tensor, steps: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Anderson's next state: with the combination of the last steps that would undo the change, were the map linear."""
    if not steps:
        return image

    def dot(a: Tensor, b: Tensor) -> Tensor:
        # There is no pinv in half precision.
        return torch.linalg.vecdot(a.flatten().to(wide), b.flatten().to(wide))

    wide = image.dtype if image.dtype.itemsize >= 4 else torch.float32
    changes = [c for _, c in steps]
    gram = torch.stack([torch.stack([dot(a, b) for b in changes]) for a in changes])
    weights = torch.linalg.pinv(gram, hermitian=True) @ torch.stack([dot(a, change) for a in changes])
    for (moved, _), weight in zip(steps, weights.to(image.dtype), strict=True):
        image = image - weight * moved
    return image


def root(
    function: Callable[..., Tensor],
    initial: Tensor,
    *parameters: Tensor,
    tolerance: float | None = None,
    max_iterations: int = 50,
) -> Tensor:
    r"""Solve systems of equations by Newton's method; differentiate the solution by the implicit function theorem.

    .. math::
        g(z^*, \theta) = 0, \qquad
        \left(\frac{\partial g}{\partial z}\right)^{\!\top} u = -\bar{z}, \quad
        \bar{\theta} = \left(\frac{\partial g}{\partial \theta}\right)^{\!\top} u
        \qquad \text{at } z^*

    Args:
        function: called as ``function(z, *parameters)``; returns as many equations as unknowns, which are to be 0. It
            must depend on nothing else that requires grad.
        initial: where Newton's method starts, ``(..., unknowns)``. All but the last dim are a batch of systems, and
            ``function`` must not mix them. It gets no gradient.
        parameters: all that gets a gradient.
        tolerance: how large the last step may be, relative to the largest unknown; the square root of the dtype's
            precision if None, and the solution has then about twice the digits.
        max_iterations: how many steps are tried.

    Returns:
        The solutions, like ``initial``.

    Raises:
        RuntimeError: if Newton's method does not converge, or a Jacobian is singular (as ``LinAlgError``); if
            ``function`` uses a tensor that requires grad and is not passed.
        ValueError: if ``function`` returns another shape or dtype than ``initial``, ``initial`` is a scalar, or an
            option is out of range.
        TypeError: if ``initial`` is not floating. An equation in complex numbers is one in pairs of real ones.

    >>> x = torch.tensor([2.0], requires_grad=True)
    >>> z = root(lambda z, x: z**3 - x, torch.ones(1), x)
    >>> z.backward()
    >>> z, x.grad
    (tensor([1.2599], grad_fn=<ImplicitFunctionBackward>), tensor([0.2100]))
    """
    if initial.is_complex():
        raise TypeError(f"expected a real initial state, got {initial.dtype}")
    if initial.dim() == 0:
        raise ValueError("expected an initial state of shape (..., unknowns), got a scalar")
    _expect_state(function, initial, parameters)
    tolerance = _tolerance(tolerance, torch.finfo(initial.dtype).eps ** 0.5)
    if max_iterations < 1:
        raise ValueError(f"expected max_iterations >= 1, got {max_iterations}")

    def solve(equations: Map, start: Tensor) -> Tensor:
        return _newton(equations, start, tolerance, max_iterations)

    return ImplicitFunction.apply(_bound(function), solve, _dense_adjoint, initial.detach(), *parameters)


# A loop that looks at its numbers, as the one above.
@torch.compiler.disable
def _newton(equations: Map, start: Tensor, tolerance: float, max_iterations: int) -> Tensor:
    state = start
    for _ in range(max_iterations):
        values, jacobian = _linearized(equations, state)
        change = torch.linalg.solve(jacobian, values.unsqueeze(-1)).squeeze(-1)
        state = state - change
        error, allowed = _size(change), tolerance * max(_size(start), _size(state))
        if not math.isfinite(error):
            break
        if error <= allowed:
            return state
    raise RuntimeError(
        f"no root within {max_iterations} iterations: the last one changed the state by {error:.3g}, which is more "
        f"than {tolerance:.3g} of its size. Start closer to the solution"
    )


def _linearized(equations: Map, state: Tensor) -> tuple[Tensor, Tensor]:
    """Values ``(..., n)`` and Jacobians ``(..., n, n)`` of a batch of systems that do not mix."""
    values, pull_back = vjp(equations, state)
    units = torch.eye(state.shape[-1], dtype=state.dtype, device=state.device)
    rows = torch.func.vmap(lambda unit: pull_back(unit.expand(state.shape))[0])(units)
    return values, rows.movedim(0, -2)


def _dense_adjoint(bind: Bind, grad_output: Tensor, solution: Tensor, *parameters: Tensor) -> Tensor:
    _, jacobian = _linearized(bind(*parameters), solution)
    return -torch.linalg.solve(jacobian.mT, grad_output.unsqueeze(-1)).squeeze(-1)


def bisect(function: Callable[..., Tensor], low: Tensor, high: Tensor, *parameters: Tensor) -> Tensor:
    r"""Find the zero of a function between two bounds, for each element; differentiate it by the equation.

    .. math::
        g(z^*, \theta) = 0, \qquad
        \bar{\theta} = -\frac{\bar{z}}{\partial g / \partial z} \, \frac{\partial g}{\partial \theta}
        \qquad \text{at } z^*

    Every step halves the bounds, until they are as close as the dtype can tell at their initial distance. So it
    converges whatever the function, and always in the same number of steps.

    Args:
        function: called as ``function(z, *parameters)``; acts on each element of ``z`` for itself, and depends on
            nothing else that requires grad.
        low: lower bounds, real, of the shape of the result.
        high: upper bounds, like ``low``. The bounds get no gradient.
        parameters: all that gets a gradient; of any shapes.

    Returns:
        The zeros, like ``low``; NaN where ``function`` has the same sign at both bounds, or is NaN.

    Raises:
        RuntimeError: if ``function`` uses a tensor that requires grad and is not passed.
        ValueError: if ``low``, ``high`` and what ``function`` returns differ in shape or dtype.
        TypeError: if the bounds are not real and floating.

    >>> x = torch.tensor([2.0, 8.0], requires_grad=True)
    >>> z = bisect(lambda z, x: z**3 - x, torch.zeros(2), torch.full((2,), 3.0), x)
    >>> z.sum().backward()
    >>> z, x.grad
    (tensor([1.2599, 2.0000], grad_fn=<ImplicitFunctionBackward>), tensor([0.2100, 0.0833]))
    """
    if (low.shape, low.dtype) != (high.shape, high.dtype):
        raise ValueError(
            f"expected bounds that are alike, got {tuple(low.shape)} of {low.dtype} and {tuple(high.shape)} of "
            f"{high.dtype}"
        )
    if low.is_complex():
        raise TypeError(f"expected real bounds, got {low.dtype}")
    _expect_state(function, low, parameters)
    # In the last dim, where vmap never puts its batch.
    bounds = torch.stack([low, high], -1).detach()
    return ImplicitFunction.apply(_bound(function), _halve, _elementwise_adjoint, bounds, *parameters)


def _halve(equation: Map, bounds: Tensor) -> Tensor:
    low, high = bounds.unbind(-1)
    at_low, at_high = equation(low), equation(high)
    rises = (at_low <= 0) & (at_high >= 0)
    falls = (at_low >= 0) & (at_high <= 0)
    for _ in range(1 + math.ceil(-math.log2(torch.finfo(low.dtype).eps))):
        middle = (low + high) / 2
        value = equation(middle)
        # Where it is 0, both bounds go there.
        low = torch.where(torch.where(rises, value <= 0, value >= 0), middle, low)
        high = torch.where(torch.where(rises, value >= 0, value <= 0), middle, high)
    middle = (low + high) / 2
    # NaN in place of an error: to raise, one would have to look at the numbers, which stops vmap and the compiler.
    return middle.masked_fill(~(rises | falls) | equation(middle).isnan(), math.nan)


def _elementwise_adjoint(bind: Bind, grad_output: Tensor, solution: Tensor, *parameters: Tensor) -> Tensor:
    values, pull_back = vjp(bind(*parameters), solution)
    return -grad_output / pull_back(torch.ones_like(values))[0]


class LinearSolveFunction(Function):
    """Keeps matrix and solution; backward factors the matrix again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, rhs: Tensor, solver: Solver) -> Tensor:
        return solver(matrix, rhs)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, Solver], output: Tensor) -> None:
        matrix, rhs, ctx.solver = inputs
        ctx.shape = rhs.shape
        ctx.save_for_backward(matrix, output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        matrix, solution = ctx.saved_tensors
        grad_matrix = grad_rhs = None
        # Itself once more: so the solver may be one that autograd cannot look into.
        adjoint = LinearSolveFunction.apply(matrix.mH, grad_output, ctx.solver)
        if ctx.needs_input_grad[0]:
            grad_matrix = (-adjoint @ solution.mH).sum_to_size(matrix.shape)
        if ctx.needs_input_grad[1]:
            grad_rhs = adjoint.sum_to_size(ctx.shape)
        return grad_matrix, grad_rhs, None


def linear_solve(matrix: Tensor, rhs: Tensor, solver: Solver = torch.linalg.solve) -> Tensor:
    r"""Solve linear systems with any solver; its gradient needs another call of the solver, and nothing of its inside.

    .. math:: A x = b, \qquad \bar{b} = A^{-\mathsf{H}}\,\bar{x}, \quad \bar{A} = -\bar{b}\,x^{\mathsf{H}}

    Args:
        matrix: ``(..., n, n)``, floating or complex, invertible.
        rhs: ``(..., n, k)``, or vectors ``(n,)`` or, with the batch dims of ``matrix``, ``(..., n)``. Batch dims
            broadcast.
        solver: called with a matrix ``(..., n, n)`` and a right-hand side ``(..., n, k)``, in backward with the
            conjugate transpose of the matrix. It may leave torch: SciPy, a sparse or an iterative solver.

    Returns:
        The solutions, shaped as :func:`torch.linalg.solve` returns them.

    Raises:
        RuntimeError: if the shapes or dtypes do not fit, or a matrix is singular (as ``LinAlgError``).

    Source: M. B. Giles, Collected matrix derivative results for forward and reverse mode algorithmic
    differentiation (2008).

    >>> a = torch.tensor([[2.0, 1.0], [0.0, 1.0]], requires_grad=True)
    >>> x = linear_solve(a, torch.tensor([3.0, 1.0]))
    >>> x.sum().backward()
    >>> x, a.grad
    (tensor([1., 1.], grad_fn=<SqueezeBackward1>), tensor([[-0.5000, -0.5000],
            [-0.5000, -0.5000]]))
    """
    # As torch.linalg.solve tells vectors from matrices.
    if rhs.dim() == 1 or (rhs.dim() == matrix.dim() - 1 and rhs.shape == matrix.shape[:-1]):
        return LinearSolveFunction.apply(matrix, rhs.unsqueeze(-1), solver).squeeze(-1)
    return LinearSolveFunction.apply(matrix, rhs, solver)
