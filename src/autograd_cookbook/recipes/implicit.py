"""Solutions of equations. Backward differentiates the equation, not the steps of the solver."""

import math
import warnings
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
    """Keeps the solution and the parameters, but none of the iterations.

    ``bind(*parameters)`` returns a map, and ``solve`` finds the root or the fixed point of this map. ``adjoint``
    computes a vector. The product of this vector and the Jacobian of the map is the gradient of the parameters. Roots
    and fixed points have different adjoints.
    """

    @staticmethod
    def forward(
        bind: Bind, solve: Callable[..., Tensor], adjoint: Callable[..., Tensor], batch_dims: int, *tensors: Tensor
    ) -> Tensor:
        start, *parameters = tensors
        return solve(bind(*parameters), start, batch_dims)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.bind, _, ctx.adjoint, ctx.batch_dims, _, *parameters = inputs
        ctx.save_for_backward(output, *parameters)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        solution, *parameters = ctx.saved_tensors
        adjoint = ctx.adjoint(ctx.bind, ctx.batch_dims, grad_output, solution, *parameters)
        _, pull_back = vjp(lambda *p: ctx.bind(*p)(solution), *parameters, wanted=ctx.needs_input_grad[5:])
        return None, None, None, None, None, *pull_back(adjoint)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        # A solver makes decisions based on numbers, which is impossible under vmap. So the solver gets the equations of
        # the whole batch, and one more leading dim that counts problems.
        bind, solve, adjoint, batch_dims, *tensors = args
        dims = in_dims[4:]
        start, *parameters = (t if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims, strict=True))
        if dims[0] is None:
            start = start.expand(info.batch_size, *start.shape)
        together = torch.func.vmap(lambda z, *p: bind(*p)(z), (0, *(None if d is None else 0 for d in dims[1:])))
        return ImplicitFunction.apply(_bound(together), solve, adjoint, batch_dims + 1, start, *parameters), 0


def _bound(function: Callable[..., Tensor]) -> Bind:
    return lambda *parameters: lambda z: function(z, *parameters)


def _sizes(tensor: Tensor, batch_dims: int) -> Tensor:
    """Return the largest absolute value in each problem. The leading dims count problems."""
    sizes = tensor.abs().flatten(batch_dims) if tensor.dim() > batch_dims else tensor.abs().unsqueeze(-1)
    return sizes.amax(-1) if sizes.shape[-1] else sizes.sum(-1)


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
    batch_dims: int = 0,
    strict: bool = False,
) -> Tensor:
    r"""Find a state that a function maps to itself. The gradient takes no memory for the iterations.

    .. math::
        z^* = f(z^*, \theta), \qquad
        u = \bar{z} + \left(\frac{\partial f}{\partial z}\right)^{\!\top} u, \quad
        \bar{\theta} = \left(\frac{\partial f}{\partial \theta}\right)^{\!\top} u
        \qquad \text{at } z^*

    The adjoint :math:`u` is a fixed point, too, and backward finds it in the same way. So gradients of any order are
    right, and each order takes the memory of one evaluation of the function. If :math:`\bar{z}` has an infinity or a
    NaN, the gradient of this problem is NaN.

    Args:
        function: called as ``function(state, *parameters)``; returns a new state. It must not depend on other tensors
            that require grad, and must do the same in every call.
        initial: the state at which the iteration starts; any shape, floating or complex. It gets no gradient.
        parameters: all tensors that need a gradient, such as inputs and weights.
        tolerance: the iteration stops when the largest change of an element is at most this number times the largest
            element of the state, in forward and in backward. None means 32 times the precision of the dtype.
        max_iterations: the largest number of evaluations, in forward and in backward.
        history: the number of steps that Anderson acceleration combines. 0 switches the acceleration off.
        batch_dims: the number of leading dims of the state that count separate problems, which ``function`` must not
            mix. Then each problem has its own scale and history, as under :func:`torch.func.vmap`.
        strict: whether to raise instead of warning if the iteration stops far from the fixed point. All steps are small
            if the function contracts only a little. From the ratio of the last steps, the recipe estimates the distance
            that is left. It warns or raises if this distance is more than 128 times the tolerance.

    Returns:
        The fixed point, a tensor like ``initial``.

    Raises:
        RuntimeError: if the iteration does not converge, in forward or in backward; if ``function`` uses a tensor that
            requires grad and is not one of its arguments; if ``strict`` is True and the iteration stops too early.
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
    if not 0 <= batch_dims <= initial.dim():
        raise ValueError(f"expected batch_dims between 0 and {initial.dim()}, got {batch_dims}")

    def solve(step: Map, start: Tensor, batch_dims: int) -> Tensor:
        return _iterate(step, start, batch_dims, tolerance, max_iterations, history, strict)

    def adjoint(bind: Bind, batch_dims: int, grad_output: Tensor, solution: Tensor, *parameters: Tensor) -> Tensor:
        def bind_adjoint(grad_output: Tensor, solution: Tensor, *parameters: Tensor) -> Map:
            # Linearize once, so that each iteration is one backward and no forward.
            _, pull_back = vjp(bind(*parameters), solution)
            return lambda u: grad_output + pull_back(u)[0]

        # A loss that overflowed, as under a GradScaler, has an infinite gradient. It has no adjoint, but must not stop
        # backward. So solve the other problems of the batch, and return NaN for this problem.
        finite = _sizes(grad_output, batch_dims).isfinite()
        finite = finite.reshape(finite.shape + (1,) * (grad_output.dim() - batch_dims))
        grad_output = grad_output.where(finite, 0)
        tensors = grad_output, grad_output, solution, *parameters
        return ImplicitFunction.apply(bind_adjoint, solve, adjoint, batch_dims, *tensors).where(finite, math.nan)

    return ImplicitFunction.apply(_bound(function), solve, adjoint, batch_dims, initial.detach(), *parameters)


# Do not compile this loop, because the computed numbers decide when it ends. The compiler would refuse it, or compile
# it again for each iteration.
@torch.compiler.disable
def _iterate(
    step: Map, start: Tensor, batch_dims: int, tolerance: float, max_iterations: int, history: int, strict: bool
) -> Tensor:
    state = start
    last: tuple[Tensor, Tensor] | None = None
    steps: list[tuple[Tensor, Tensor]] = []
    errors: list[Tensor] = []
    for _ in range(max_iterations):
        image = step(state)
        change = image - state
        error, size = _sizes(change, batch_dims), _sizes(image, batch_dims)
        if not error.isfinite().all():
            break
        errors = [*errors, error][-WINDOW:]
        # One step alone does not show whether the end is near, unless the step is no larger than rounding errors.
        enough = len(errors) > 1 or (error <= ROUNDING * torch.finfo(size.dtype).eps * size).all()
        if enough and (error <= tolerance * size).all():
            _judge(errors, size, tolerance, strict)
            return image
        if last is not None and history:
            steps = [*steps, (image - last[0], change - last[1])][-history:]
        last = image, change
        state = _accelerated(image, change, steps, batch_dims)
    # If the fixed point is 0, the error never gets small relative to the state. So compare with the size of the start.
    is_zero = torch.maximum(error, size) <= tolerance * _sizes(start, batch_dims)
    failed = ~((error <= tolerance * size) | is_zero) | ~error.isfinite()
    if not failed.any():
        return image
    raise RuntimeError(
        f"no fixed point within {max_iterations} iterations: the last one changed the state by "
        f"{_worst(error, failed):.3g}, which is more than {tolerance:.3g} of its size{_count(failed)}. "
        "Is the function a contraction?"
    )


ROUNDING = 4  # a step of at most this many times the precision of the dtype is a rounding error
WINDOW = 4  # the number of steps for the ratio; a ratio of fewer steps can be an accident
SLOW = 128  # if each step is 0.992 times the step before, the remaining distance is about this many times the step


def _judge(errors: list[Tensor], size: Tensor, tolerance: float, strict: bool) -> None:
    """Warn or raise if the steps are small, but the fixed point is not near."""
    if len(errors) < 2 or not errors[-1].numel():
        return
    ratio = (errors[-1].double() / errors[0].double()) ** (1 / (len(errors) - 1))
    left = errors[-1] * ratio / (1 - ratio).clamp(min=torch.finfo(ratio.dtype).eps)
    # Steps of the size of rounding errors have no meaningful ratio.
    rounding = errors[-1] <= ROUNDING * torch.finfo(size.dtype).eps * size
    slow = (left > SLOW * tolerance * size) & ~rounding
    if slow.any():
        message = (
            f"the iteration contracts by a factor of {_worst(ratio, slow):.6g} only: the last step changed the state "
            f"by {_worst(errors[-1], slow):.3g}, but the fixed point may be as far away as {_worst(left, slow):.3g}"
            f"{_count(slow)}. Use a smaller tolerance, more history, or root"
        )
        if strict:
            raise RuntimeError(message)
        warnings.warn(message, stacklevel=2)


def _worst(numbers: Tensor, where: Tensor) -> float:
    chosen = numbers[where] if where.any() else numbers
    return float(chosen.max())


def _count(failed: Tensor) -> str:
    return f" (in {int(failed.sum())} of {failed.numel()} problems)" if failed.numel() > 1 else ""


def _accelerated(image: Tensor, change: Tensor, steps: list[tuple[Tensor, Tensor]], batch_dims: int) -> Tensor:
    """Return Anderson's next state: combine the last steps so that the change would be 0 if the map were linear.

    Each problem has its own combination. All changes of a problem are divided by its largest change, so that no product
    underflows.
    """
    if not steps:
        return image
    # torch has no pinv in half precision.
    wide = image.dtype if image.dtype.itemsize >= 4 else torch.float32
    changes = [
        c.reshape((*c.shape[:batch_dims], -1 if c.numel() else 0)).to(wide) for c in (*(c for _, c in steps), change)
    ]
    unit = torch.stack([_sizes(c, batch_dims) for c in changes]).amax(0).unsqueeze(-1)
    *basis, target = (c / unit.masked_fill(unit == 0, 1) for c in changes)
    dot = torch.linalg.vecdot
    with torch.autocast(image.device.type, enabled=False):
        gram = torch.stack([torch.stack([dot(a, b) for b in basis], -1) for a in basis], -2)
        right = torch.stack([dot(a, target) for a in basis], -1)
        weights = (torch.linalg.pinv(gram, hermitian=True) @ right.unsqueeze(-1)).squeeze(-1).to(image.dtype)
    for (moved, _), weight in zip(steps, weights.unbind(-1), strict=True):
        image = image - weight.reshape(weight.shape + (1,) * (image.dim() - batch_dims)) * moved
    return image


def root(
    function: Callable[..., Tensor],
    initial: Tensor,
    *parameters: Tensor,
    tolerance: float | None = None,
    max_iterations: int = 50,
) -> Tensor:
    r"""Solve systems of equations by Newton's method. The implicit function theorem gives the gradient.

    .. math::
        g(z^*, \theta) = 0, \qquad
        \left(\frac{\partial g}{\partial z}\right)^{\!\top} u = -\bar{z}, \quad
        \bar{\theta} = \left(\frac{\partial g}{\partial \theta}\right)^{\!\top} u
        \qquad \text{at } z^*

    Args:
        function: called as ``function(z, *parameters)``; returns as many values as there are unknowns. Newton's method
            finds where all values are 0. ``function`` must not depend on other tensors that require grad.
        initial: the values at which Newton's method starts, ``(..., unknowns)``. All dims before the last one are a
            batch of systems, which ``function`` must not mix. ``initial`` gets no gradient.
        parameters: all tensors that need a gradient.
        tolerance: the largest allowed last step, relative to the largest unknown of each system. None means the square
            root of the dtype's precision. Newton's method doubles the number of correct digits in each step, so the
            solution is then accurate to nearly all digits.
        max_iterations: the largest number of steps.

    Returns:
        The solutions, a tensor like ``initial``.

    Raises:
        RuntimeError: if Newton's method does not converge, or a Jacobian is singular (as ``LinAlgError``); if
            ``function`` uses a tensor that requires grad and is not one of its arguments.
        ValueError: if ``function`` returns another shape or dtype than ``initial``, ``initial`` is a scalar, or an
            option is out of range.
        TypeError: if ``initial`` is not real and floating. Write an equation with complex numbers as two equations, one
            for the real part and one for the imaginary part.

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

    def solve(equations: Map, start: Tensor, _batch_dims: int) -> Tensor:
        return _newton(equations, start, tolerance, max_iterations)

    return ImplicitFunction.apply(_bound(function), solve, _dense_adjoint, 0, initial.detach(), *parameters)


# Do not compile this loop, because the computed numbers decide when it ends.
@torch.compiler.disable
def _newton(equations: Map, start: Tensor, tolerance: float, max_iterations: int) -> Tensor:
    state, batch_dims = start, start.dim() - 1
    before = torch.full((), math.inf, device=start.device)
    is_zero = torch.zeros((), dtype=torch.bool, device=start.device)
    for _ in range(max_iterations):
        values, jacobian = _linearized(equations, state)
        change = torch.linalg.solve(jacobian, values.unsqueeze(-1)).squeeze(-1)
        state = state - change
        # Compare the step of each system with the size of its state. If both are tiny compared with the start, the root
        # is 0 if 0 solves the equations, or if the steps no longer shrink, because they are rounding errors. Otherwise,
        # the start was only far from the root.
        error, size = _sizes(change, batch_dims), _sizes(state, batch_dims)
        tiny = torch.maximum(error, size) <= tolerance**2 * _sizes(start, batch_dims)
        if tiny.any():
            solved = tiny & (_sizes(equations(torch.zeros_like(state)), batch_dims) == 0)
            state = state.masked_fill(solved.unsqueeze(-1), 0)
            is_zero = is_zero | solved | (tiny & (error >= before))
        before = error
        failed = ~((error <= tolerance * size) | is_zero)
        if not error.isfinite().all():
            break
        if not failed.any():
            return state
    raise RuntimeError(
        f"no root within {max_iterations} iterations: the last one changed the state by {_worst(error, failed):.3g}, "
        f"which is more than {tolerance:.3g} of its size{_count(failed)}. Start closer to the solution"
    )


def _linearized(equations: Map, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return values ``(..., n)`` and Jacobians ``(..., n, n)`` of a batch of separate systems."""
    values, pull_back = vjp(equations, state)
    units = torch.eye(state.shape[-1], dtype=state.dtype, device=state.device)
    rows = torch.func.vmap(lambda unit: pull_back(unit.expand(state.shape))[0])(units)
    return values, rows.movedim(0, -2)


def _dense_adjoint(bind: Bind, _batch_dims: int, grad_output: Tensor, solution: Tensor, *parameters: Tensor) -> Tensor:
    _, jacobian = _linearized(bind(*parameters), solution)
    return -torch.linalg.solve(jacobian.mT, grad_output.unsqueeze(-1)).squeeze(-1)


def bisect(function: Callable[..., Tensor], low: Tensor, high: Tensor, *parameters: Tensor) -> Tensor:
    r"""Find the zero of a function between two bounds, for each element. The equation gives the gradient.

    .. math::
        g(z^*, \theta) = 0, \qquad
        \bar{\theta} = -\frac{\bar{z}}{\partial g / \partial z} \, \frac{\partial g}{\partial \theta}
        \qquad \text{at } z^*

    Every step halves the number of floating point numbers between the bounds, until none is left. So the function finds
    the zero to its last digit for any bounds, in 16, 32 or 64 steps, as many as the dtype has bits. Usual bisection
    takes the mean of the bounds. It needs one more step for each power of two between the bounds and the zero.

    Args:
        function: called as ``function(z, *parameters)``. It acts on each element of ``z`` separately, and does not
            depend on other tensors that require grad.
        low: lower bounds, real, of the shape of the result.
        high: upper bounds, like ``low``. The bounds get no gradient.
        parameters: all tensors that need a gradient, of any shapes.

    Returns:
        The zeros, a tensor like ``low``. It is NaN where ``function`` has the same sign at both bounds, or is NaN.

    Raises:
        RuntimeError: if ``function`` uses a tensor that requires grad and is not one of its arguments.
        ValueError: if ``low``, ``high`` and the values of ``function`` differ in shape or dtype.
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
    # Stack in the last dim, because vmap never puts its batch there.
    bounds = torch.stack([low, high], -1).detach()
    return ImplicitFunction.apply(_bound(function), _halve, _elementwise_adjoint, 0, bounds, *parameters)


def _halve(equation: Map, bounds: Tensor, _batch_dims: int) -> Tensor:
    low, high = bounds.amin(-1), bounds.amax(-1)
    at_low, at_high = equation(low), equation(high)
    rises = (at_low <= 0) & (at_high >= 0)
    falls = (at_low >= 0) & (at_high <= 0)
    low, high = _rank(low), _rank(high)
    side = 2 * rises.to(bounds.dtype) - 1
    bits = 8 * bounds.dtype.itemsize
    for _ in range(bits):
        middle = (low ^ high).bitwise_right_shift_(1).add_(low & high)  # their mean, without a sum that could overflow
        value = side * equation(_ranked(middle, bounds.dtype))
        # All bits are set where the value is negative. On a CPU, this takes a fraction of the time of torch.where.
        below = value.view(low.dtype).bitwise_right_shift_(bits - 1)
        low = (low ^ middle).bitwise_and_(below).bitwise_xor_(low)  # the middle where it is below the zero
        high = (high ^ middle).bitwise_and_(below).bitwise_xor_(middle)  # the middle where it is not
    low, high = _ranked(low, bounds.dtype), _ranked(high, bounds.dtype)
    at_low, at_high = equation(low), equation(high)
    # Return NaN instead of raising, because an error that depends on numbers is impossible under vmap and the compiler.
    failed = ~(rises | falls) | at_low.isnan() | at_high.isnan()
    return torch.where(at_low.abs() <= at_high.abs(), low, high).masked_fill(failed, math.nan)


def _rank(numbers: Tensor) -> Tensor:
    """Return the rank of each number among all numbers of its dtype.

    The rank is the integer with the same bits, but with the order of the negative numbers reversed.
    """
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[numbers.dtype.itemsize]
    bits = numbers.view(integers)
    return _turned(bits)


def _ranked(rank: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the number of this rank."""
    return _turned(rank).view(dtype)


def _turned(bits: Tensor) -> Tensor:
    """Flip all bits except the first one if the first bit is set. The shift to the right copies this bit to all."""
    return (bits >> (8 * bits.dtype.itemsize - 1)).bitwise_and_(torch.iinfo(bits.dtype).max).bitwise_xor_(bits)


def _elementwise_adjoint(
    bind: Bind, _batch_dims: int, grad_output: Tensor, solution: Tensor, *parameters: Tensor
) -> Tensor:
    values, pull_back = vjp(bind(*parameters), solution)
    return -grad_output / pull_back(torch.ones_like(values))[0]


class LinearSolveFunction(Function):
    """Keeps matrix and solution. Backward factors the matrix again."""

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
        # Backward calls the same Function, so autograd never has to differentiate the solver.
        adjoint = LinearSolveFunction.apply(matrix.mH, grad_output, ctx.solver)
        if ctx.needs_input_grad[0]:
            grad_matrix = (-adjoint @ solution.mH).sum_to_size(matrix.shape)
        if ctx.needs_input_grad[1]:
            grad_rhs = adjoint.sum_to_size(ctx.shape)
        return grad_matrix, grad_rhs, None


def linear_solve(matrix: Tensor, rhs: Tensor, solver: Solver = torch.linalg.solve) -> Tensor:
    r"""Solve linear systems with any solver. Backward calls the solver once more.

    .. math:: A x = b, \qquad \bar{b} = A^{-\mathsf{H}}\,\bar{x}, \quad \bar{A} = -\bar{b}\,x^{\mathsf{H}}

    Args:
        matrix: ``(..., n, n)``, floating or complex, invertible.
        rhs: the right-hand side: ``(..., n, k)``, or a vector ``(n,)``, or vectors ``(..., n)`` with the batch dims of
            ``matrix``. Batch dims broadcast.
        solver: called with a matrix ``(..., n, n)`` and a right-hand side ``(..., n, k)``. Backward calls it with the
            conjugate transpose of the matrix. It can use code outside of PyTorch, such as SciPy or an iterative solver.

    Returns:
        The solutions, with the shape that :func:`torch.linalg.solve` returns.

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
    # Distinguish vectors from matrices in the same way as torch.linalg.solve.
    if rhs.dim() == 1 or (rhs.dim() == matrix.dim() - 1 and rhs.shape == matrix.shape[:-1]):
        return LinearSolveFunction.apply(matrix, rhs.unsqueeze(-1), solver).squeeze(-1)
    return LinearSolveFunction.apply(matrix, rhs, solver)
