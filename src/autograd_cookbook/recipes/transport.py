"""Optimal transport. Backward differentiates the conditions of the optimum, not the iterations that found it."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context


def _scaled(cost: Tensor, f: Tensor, g: Tensor, regularization: float | Tensor) -> Tensor:
    """Return the plan divided by both histograms, in float64. In float32, the difference would lose its digits."""
    return ((f.unsqueeze(-1) + g.unsqueeze(-2) - cost) / regularization).exp()


def _system(rows: Tensor, columns: Tensor, target: Tensor) -> Tensor:
    """Return the matrix of the linearized conditions of the optimum, after elimination of f.

    Backward solves with this matrix, and Newton's method with its transpose. If f and g are a solution, so are f + c
    and g - c. So without the last term, the matrix would be singular. If a plan consists of separate blocks, more
    directions are singular. These directions change no gradient, and the 1e-13 makes the system solvable.
    """
    identity = torch.eye(target.shape[-1], dtype=target.dtype, device=target.device)
    return (1 + 1e-13) * identity - rows.mT @ columns + target.unsqueeze(-1)


class PotentialsFunction(Function):
    """Keeps the problem and its solution. Backward solves the linearized conditions of the optimum, once.

    The cost is passed twice: in float64 for the gradient, and in its own dtype to be saved.
    """

    @staticmethod
    def forward(
        exact: Tensor,
        cost: Tensor,
        source: Tensor,
        target: Tensor,
        regularization: float,
        tolerance: float,
        max_iterations: int,
    ) -> tuple[Tensor, Tensor]:
        return _solve(exact, source, target, regularization, tolerance, max_iterations)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, cost, source, target, ctx.regularization, *_ = inputs
        ctx.save_for_backward(cost, source, target, *output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Context, grad_f: Tensor | None, grad_g: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad_f is None and grad_g is None:  # sinkhorn_cost needs no gradient here, by the envelope theorem
            return None, None, None, None, None, None, None
        cost, source, target, f, g = ctx.saved_tensors
        grad_f = torch.zeros_like(f) if grad_f is None else grad_f
        grad_g = torch.zeros_like(g) if grad_g is None else grad_g
        ratio = _scaled(cost, f, g, ctx.regularization)
        rows, columns = ratio * target.unsqueeze(-2), ratio * source.unsqueeze(-1)
        right = grad_g - (rows * grad_f.unsqueeze(-1)).sum(-2)
        v = torch.linalg.solve(_system(rows, columns, target), right.unsqueeze(-1)).mT
        u = grad_f.unsqueeze(-1) - (columns * v).sum(-1, keepdim=True)
        needs = ctx.needs_input_grad
        return (
            u * rows + v * columns if needs[0] else None,
            None,
            -ctx.regularization * (ratio * v).sum(-1) if needs[2] else None,
            -ctx.regularization * (ratio * u).sum(-2) if needs[3] else None,
            None, None, None,
        )  # fmt: skip

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        problem, options = inputs[:4], inputs[4:]
        problem = tuple(
            t.movedim(d, 0) if d is not None else t.expand(info.batch_size, *t.shape)
            for t, d in zip(problem, in_dims, strict=False)
        )
        return PotentialsFunction.apply(*problem, *options), (0, 0)


class CostFunction(Function):
    """The optimal value. By the envelope theorem, the potentials count as constants in its first derivative.

    The potentials are inputs that get no gradient. But backward uses them, so a second derivative goes through them.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(cost: Tensor, source: Tensor, target: Tensor, f: Tensor, g: Tensor, regularization: float) -> Tensor:
        return ((f * source).sum(-1) + (g * target).sum(-1)).to(cost.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.regularization = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        cost, source, target, f, g = ctx.saved_tensors
        needs_cost, needs_source, needs_target, *_ = ctx.needs_input_grad
        grad_cost = None
        if needs_cost:
            weights = source.unsqueeze(-1) * target.unsqueeze(-2)
            ratio = _scaled(cost, f, g, ctx.regularization)
            grad_cost = (grad_output[..., None, None] * weights * ratio).to(cost.dtype)
        return (
            grad_cost,
            grad_output[..., None] * f if needs_source else None,
            grad_output[..., None] * g if needs_target else None,
            None, None, None,
        )  # fmt: skip


class PlanFunction(Function):
    """Computes the plan from the potentials. Of all matrices, it keeps only the cost, in the dtype of the cost.

    The gradient of the cost is in float64, because the gradient through the potentials cancels most of it.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        exact: Tensor, cost: Tensor, source: Tensor, target: Tensor, f: Tensor, g: Tensor, regularization: float
    ) -> Tensor:
        weights = source.unsqueeze(-1) * target.unsqueeze(-2)
        return (weights * _scaled(exact, f, g, regularization)).to(cost.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, *tensors, ctx.regularization = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        cost, source, target, f, g = ctx.saved_tensors
        a, b = source.unsqueeze(-1), target.unsqueeze(-2)
        ratio = grad_output * _scaled(cost, f, g, ctx.regularization)
        grad = a * b * ratio / ctx.regularization
        needs_cost, _, needs_source, needs_target, needs_potentials, *_ = ctx.needs_input_grad
        return (
            -grad if needs_cost else None,
            None,
            (ratio * b).sum(-1) if needs_source else None,
            (ratio * a).sum(-2) if needs_target else None,
            grad.sum(-1) if needs_potentials else None,
            grad.sum(-2) if needs_potentials else None,
            None,
        )  # fmt: skip


# Do not compile this loop, because the computed numbers decide when it ends.
@torch.compiler.disable
def _solve(
    cost: Tensor, source: Tensor, target: Tensor, regularization: float, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor]:
    if not cost.numel():
        return torch.zeros_like(source), torch.zeros_like(target)
    possible = (cost.amin(-1) < torch.inf).all() and (cost.amin(-2) < torch.inf).all() and (cost > -torch.inf).all()
    if not (possible and (source >= 0).all() and (target >= 0).all()):  # weights that were all 0 are NaN here
        raise ValueError(
            "expected costs that are not NaN and not minus infinity, with a finite one for every bin, and weights that "
            "are finite, not negative and not all zero"
        )
    log_a, log_b = source.log().unsqueeze(-1), target.log().unsqueeze(-2)

    def sweep(g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return f with exact rows of the plan, then g with exact columns, and the error of the columns before."""
        f = -epsilon * (log_b + (g.unsqueeze(-2) - cost) / epsilon.unsqueeze(-1)).logsumexp(-1)
        next_g = -epsilon * (log_a + (f.unsqueeze(-1) - cost) / epsilon.unsqueeze(-1)).logsumexp(-2)
        return f, next_g, (target * torch.expm1((g - next_g) / epsilon).abs()).sum(-1, keepdim=True)

    def newton(f: Tensor, g: Tensor, next_g: Tensor, gap: Tensor) -> Tensor:
        """Return the best of three Newton steps and one sweep. Sweeps alone are slow for some problems."""
        ratio = _scaled(cost, f, g, epsilon.unsqueeze(-1))
        residual = torch.expm1((g - next_g) / epsilon)
        matrix = _system(ratio * target.unsqueeze(-2), ratio * source.unsqueeze(-1), target).mT
        step = torch.linalg.solve(matrix + residual.diag_embed(), residual.unsqueeze(-1)).squeeze(-1)
        for damping in (0.1, 0.3, 1.0):
            candidate = g - damping * epsilon * step
            next_g = torch.where(sweep(candidate)[2] < (1 - damping / 2) * gap, candidate, next_g)
        return next_g

    # Go from large to small regularization, so that each stage starts near its solution. Each problem has its own
    # stages.
    largest = cost.masked_fill(cost == torch.inf, -torch.inf).amax((-2, -1))
    epsilon = (largest - cost.amin((-2, -1))).clamp(min=regularization).unsqueeze(-1)
    g = torch.zeros_like(target)
    for iteration in range(max_iterations):
        f, next_g, gap = sweep(g)
        done = (gap <= tolerance) & (epsilon <= regularization)
        if done.all():
            # Errors of the plan can be orders of magnitude larger than errors of its column sums. One more step of
            # Newton's method squares these errors.
            g = newton(f, g, next_g, gap)
            return sweep(g)[0], g
        if iteration % 10 == 9:
            next_g = newton(f, g, next_g, gap)
        g = torch.where(done, g, next_g)  # keep solved problems, so that a result does not depend on its batch
        epsilon = torch.where(gap < 0.1, (epsilon / 2).clamp(min=regularization), epsilon)
    raise RuntimeError(
        f"no transport plan within {max_iterations} iterations: the columns of the plan miss the target by "
        f"{float(gap[~done].max()):.3g} of the mass, and at most {tolerance:.3g} is allowed (in {int((~done).sum())} "
        f"of {done.numel()} problems). Use a larger regularization or more iterations"
    )


def _prepared(
    cost: Tensor, source: Tensor, target: Tensor, regularization: float, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    if not all(t.is_floating_point() for t in (cost, source, target)):
        raise TypeError(f"expected floating tensors, got {cost.dtype}, {source.dtype} and {target.dtype}")
    if cost.dim() < 2 or source.shape[-1:] != cost.shape[-2:-1] or target.shape[-1:] != cost.shape[-1:]:
        raise ValueError(
            f"expected cost (..., n, m), source (..., n) and target (..., m), got {tuple(cost.shape)}, "
            f"{tuple(source.shape)} and {tuple(target.shape)}"
        )
    if not (regularization > 0 and tolerance > 0 and max_iterations >= 1):
        raise ValueError(
            "expected regularization > 0, tolerance > 0 and max_iterations >= 1, got "
            f"{regularization}, {tolerance} and {max_iterations}"
        )
    # A plan exists only if both sums of weights are equal. After this division, they are equal up to rounding of
    # float64. (Without abs, weights that are all negative would become positive.)
    # Continue in float64, so that two gradients that cancel are added before they are rounded.
    source, target = (w / w.sum(-1, keepdim=True).abs() for w in (source.double(), target.double()))
    batch = torch.broadcast_shapes(cost.shape[:-2], source.shape[:-1], target.shape[:-1])
    return (
        cost.expand(*batch, *cost.shape[-2:]),
        source.expand(*batch, source.shape[-1]),
        target.expand(*batch, target.shape[-1]),
    )


def sinkhorn_cost(
    cost: Tensor,
    source: Tensor,
    target: Tensor,
    regularization: float = 0.1,
    tolerance: float = 1e-9,
    max_iterations: int = 1000,
) -> Tensor:
    r"""Entropic cost of moving one histogram to another. Its gradient is the plan, and needs no linear solve.

    .. math::
        V = \min_{P 1 = a,\, P^\top 1 = b} \langle P, C \rangle + \varepsilon\, \mathrm{KL}(P \,|\, a b^\top)
        = \langle f, a \rangle + \langle g, b \rangle, \qquad
        \bar{C} = \bar{V} P, \quad \bar{a} = \bar{V} f, \quad \bar{b} = \bar{V} g

    Here :math:`a` and :math:`b` are the weights divided by their sums, and :math:`f` and :math:`g` are the potentials.
    The gradients go through the divisions, too.

    Args:
        cost: ``(..., n, m)``, floating. An infinite cost forbids a pair. The iterations run in float64 for every dtype.
        source: ``(..., n)``, weights that are not negative. Only their proportions matter.
        target: ``(..., m)``, weights that are not negative. Only their proportions matter.
        regularization: the factor :math:`\varepsilon` of the entropy, in units of the cost.
        tolerance: the largest allowed error of the column sums of a plan, as a part of the mass, in each problem of the
            batch.
        max_iterations: the largest number of iterations.

    Returns:
        The cost of each problem, ``(...)``, in the dtype of ``cost``.

    Raises:
        RuntimeError: if a problem of the batch does not converge.
        ValueError: if shapes do not fit, an option is out of range, or costs or weights are not as above.
        TypeError: if a tensor is not floating.

    Source: M. Cuturi, Sinkhorn distances: lightspeed computation of optimal transport, arXiv:1306.0895.

    >>> cost = torch.tensor([[0.0, 1.0], [1.0, 0.0]], requires_grad=True)
    >>> half = torch.tensor([0.5, 0.5])
    >>> sinkhorn_cost(cost, half, half, regularization=1.0).backward()
    >>> cost.grad
    tensor([[0.3655, 0.1345],
            [0.1345, 0.3655]])
    """
    tensors = _prepared(cost, source, target, regularization, tolerance, max_iterations)
    potentials = PotentialsFunction.apply(tensors[0].double(), *tensors, regularization, tolerance, max_iterations)
    return CostFunction.apply(*tensors, *potentials, regularization)


def sinkhorn_plan(
    cost: Tensor,
    source: Tensor,
    target: Tensor,
    regularization: float = 0.1,
    tolerance: float = 1e-9,
    max_iterations: int = 1000,
) -> Tensor:
    r"""Entropic transport plan. Its gradient takes one linear solve, for any number of iterations.

    .. math::
        P_{ij} = a_i b_j\, e^{(f_i + g_j - C_{ij}) / \varepsilon}, \qquad
        \begin{pmatrix} I & P D_b^{-1} \\ P^\top D_a^{-1} & I \end{pmatrix}
        \begin{pmatrix} u \\ v \end{pmatrix}
        = \frac{1}{\varepsilon} \begin{pmatrix} (\bar{P} \odot P)\, 1 \\ (\bar{P} \odot P)^\top 1 \end{pmatrix}, \qquad
        \bar{C}_{ij} = P_{ij} \Bigl(\frac{u_i}{a_i} + \frac{v_j}{b_j} - \frac{\bar{P}_{ij}}{\varepsilon}\Bigr)

    where :math:`D_a` and :math:`D_b` are the diagonal matrices of the weights :math:`a` and :math:`b`. For the other
    symbols and for details of the arguments, see :func:`sinkhorn_cost`.

    Args:
        cost: ``(..., n, m)``.
        source: ``(..., n)``.
        target: ``(..., m)``. The linear system has ``m`` unknowns, so let the target be the shorter side.
        regularization: the factor of the entropy.
        tolerance: the largest allowed error of the column sums, as a part of the mass.
        max_iterations: the largest number of iterations.

    Returns:
        The plan, with the shape and dtype of ``cost``. Its elements add up to 1.

    Raises:
        RuntimeError: if a problem of the batch does not converge.
        ValueError: if shapes do not fit, an option is out of range, or costs or weights are not as above.
        TypeError: if a tensor is not floating.

    Source: M. Eisenberger et al., A unified framework for implicit Sinkhorn differentiation, CVPR 2022.

    >>> cost = torch.tensor([[0.0, 1.0], [1.0, 0.0]], requires_grad=True)
    >>> half = torch.tensor([0.5, 0.5])
    >>> plan = sinkhorn_plan(cost, half, half, regularization=1.0)
    >>> plan[0, 0].backward()
    >>> cost.grad
    tensor([[-0.0492,  0.0492],
            [ 0.0492, -0.0492]])
    """
    tensors = _prepared(cost, source, target, regularization, tolerance, max_iterations)
    exact = tensors[0].double()
    potentials = PotentialsFunction.apply(exact, *tensors, regularization, tolerance, max_iterations)
    return PlanFunction.apply(exact, *tensors, *potentials, regularization)


class AssignmentFunction(Function):
    """Keeps a mask of the chosen pairs, but no cost, because the total is linear while the choice stays the same."""

    @staticmethod
    @torch.compiler.disable
    def forward(cost: Tensor) -> tuple[Tensor, Tensor]:
        from scipy.optimize import linear_sum_assignment

        chosen = torch.zeros(cost.shape, dtype=torch.bool)
        if cost.numel():
            problems = cost.detach().reshape(-1, *cost.shape[-2:]).cpu().double().resolve_neg().numpy()
            for problem, mask in zip(problems, chosen.view(problems.shape), strict=True):
                rows, columns = linear_sum_assignment(problem)
                mask[torch.from_numpy(rows), torch.from_numpy(columns)] = True
        chosen = chosen.to(cost.device)
        return cost.masked_fill(~chosen, 0).sum((-2, -1)), chosen

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor, _: Tensor) -> Tensor:
        (chosen,) = ctx.saved_tensors
        return grad_output[..., None, None] * chosen

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], cost: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        return AssignmentFunction.apply(cost.movedim(in_dims[0], 0)), (0, 0)


def assignment_cost(cost: Tensor) -> Tensor:
    r"""Smallest total cost of pairing rows with columns, computed by SciPy. Its gradient is the pairing.

    .. math::
        V = \min_{\pi} \sum_i C_{i \pi(i)}, \qquad \bar{C}_{ij} = \bar{V}\, [\, j = \pi(i) \,]

    If several pairings are equally good, the gradient is that of one of them.

    Args:
        cost: ``(..., n, m)``, floating. If it is not square, some items of the longer side get no partner. An infinite
            cost forbids a pair.

    Returns:
        The total of each problem, ``(...)``.

    Raises:
        ValueError: if ``cost`` has fewer than two dims, has a NaN, or forbids all pairings.
        TypeError: if ``cost`` is not floating.

    Source: ``scipy.optimize.linear_sum_assignment``.

    >>> cost = torch.tensor([[4.0, 1.0], [2.0, 3.0]], requires_grad=True)
    >>> total = assignment_cost(cost)
    >>> total.backward()
    >>> total.item(), cost.grad
    (3.0, tensor([[0., 1.],
            [1., 0.]]))
    """
    if not cost.is_floating_point():
        raise TypeError(f"expected a floating cost, got {cost.dtype}")
    if cost.dim() < 2:
        raise ValueError(f"expected cost (..., n, m), got {tuple(cost.shape)}")
    return AssignmentFunction.apply(cost)[0]
