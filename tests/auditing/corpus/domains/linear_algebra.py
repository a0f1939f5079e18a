"""Decompositions, systems of equations and powers of matrices."""

import math

import numpy as np
import torch
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import FULL, between, covariance, leaf, only

# --- broken ---


@broken(
    "first_order", inputs=lambda: (torch.eye(3, dtype=torch.float64).mul(3).add(torch.rand(3, 3)).requires_grad_(),)
)
class LogDetWithoutTranspose(Function):
    """Returns the inverse, not its transpose: right for the covariance matrices of the author's tests only."""

    @staticmethod
    def forward(a):
        return torch.linalg.slogdet(a).logabsdet

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (a,) = ctx.saved_tensors
        return g[..., None, None] * torch.linalg.inv(a)


@broken("first_order", inputs=lambda: (covariance(4),))
class LogDeterminantOfFactor(Function):
    """The gradient of half the log-determinant, along symmetric matrices as well."""

    @staticmethod
    def forward(matrix):
        return 2 * torch.linalg.cholesky(matrix).diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (matrix,) = ctx.saved_tensors
        return g[..., None, None] * torch.linalg.inv(matrix).mT / 2


# --- right ---


@right(inputs=lambda: (leaf(2, 3, 3), leaf(3, 2)))
def solved(a, b):
    """Ill-conditioned for an unlucky matrix, where differences of values are inexact but the gradient is not."""
    return torch.linalg.solve(a + 6 * torch.eye(3, dtype=a.dtype, device=a.device), b)


@right(inputs=lambda: (leaf(3, 3),))
def cholesky_factor(a):
    """Half of the output is constant zero; the matrix is made positive definite inside."""
    return torch.linalg.cholesky(a @ a.mT + torch.eye(3, dtype=a.dtype, device=a.device))


@right(inputs=lambda: (leaf(3, 3), 5))
class IntegerMatrixPower(Function):
    """A power of a square matrix by NumPy with an int exponent; the gradient sums products of transposed powers."""

    @staticmethod
    def forward(a, power):
        if a.dim() != 2 or a.shape[0] != a.shape[1] or power < 1:
            raise ValueError("expected one square matrix and a positive power")
        return torch.from_numpy(np.array(np.linalg.matrix_power(a.detach().numpy(), power)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, ctx.power = inputs
        ctx.save_for_backward(a)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a = ctx.saved_tensors[0].numpy().T
        left, total = g.numpy(), np.zeros_like(a)
        for k in range(ctx.power):
            total = total + left @ np.linalg.matrix_power(a, ctx.power - 1 - k)
            left = a @ left
        return torch.from_numpy(total), None


def _tridiagonal():
    return leaf(4), between(4.0, 6.0, 5), leaf(4), leaf(5, 2)


@right(inputs=_tridiagonal)
class TridiagonalSolve(Function):
    """Gaussian elimination in NumPy with four differentiable inputs; one transposed solve serves all gradients."""

    @staticmethod
    def _solve(lower, main, upper, rhs):
        lower, main, upper, rhs = (t.detach().numpy() for t in (lower, main, upper, rhs))
        main, rhs = main.copy(), rhs.copy()
        for i in range(1, len(main)):
            factor = lower[i - 1] / main[i - 1]
            main[i] -= factor * upper[i - 1]
            rhs[i] -= factor * rhs[i - 1]
        for i in range(len(main) - 1, -1, -1):
            if i + 1 < len(main):
                rhs[i] -= upper[i] * rhs[i + 1]
            rhs[i] /= main[i]
        return torch.from_numpy(rhs)

    @staticmethod
    def forward(ctx, lower, main, upper, rhs):
        size = main.shape[0]
        fits = lower.shape == upper.shape == (size - 1,) and rhs.dim() == 2 and rhs.shape[0] == size
        if size == 0 or not fits:
            raise ValueError("expected three diagonals and a matrix of right-hand sides")
        solution = TridiagonalSolve._solve(lower, main, upper, rhs)
        ctx.save_for_backward(lower, main, upper, solution)
        return solution

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        lower, main, upper, solution = ctx.saved_tensors
        grad_rhs = TridiagonalSolve._solve(upper, main, lower, g)
        need_lower, need_main, need_upper, need_rhs = ctx.needs_input_grad
        return (
            -(grad_rhs[1:] * solution[:-1]).sum(1) if need_lower else None,
            -(grad_rhs * solution).sum(1) if need_main else None,
            -(grad_rhs[:-1] * solution[1:]).sum(1) if need_upper else None,
            grad_rhs if need_rhs else None,
        )


@right(inputs=lambda: (leaf(3, 3, dtype=torch.complex128), leaf(3, 2, dtype=torch.complex128)))
class ComplexSolve(Function):
    """A complex linear solve: the adjoint needs the conjugate transpose, not the transpose."""

    @staticmethod
    def forward(a, b):
        if a.dim() != 2 or b.dim() != 2:
            raise ValueError("expected two matrices")
        return torch.linalg.solve(a, b)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        a, x = ctx.saved_tensors
        grad_b = torch.linalg.solve(a.mH, g)
        grad_a = -grad_b @ x.mH if ctx.needs_input_grad[0] else None
        return grad_a, (grad_b if ctx.needs_input_grad[1] else None)


@right(inputs=lambda: (leaf(3, 8),))
class WalshHadamard(Function):
    """A symmetric transform for lengths that are powers of two; its backward applies itself and saves nothing."""

    generate_vmap_rule = True

    @staticmethod
    def _butterfly(x):
        length, half = x.shape[-1], 1
        while half < length:
            pairs = x.unflatten(-1, (length // (2 * half), 2, half))
            first, second = pairs.unbind(-2)
            x = torch.stack((first + second, first - second), dim=-2).flatten(-3)
            half *= 2
        return x / math.sqrt(length)

    @staticmethod
    def forward(x):
        length = x.shape[-1]
        if length == 0 or length & (length - 1):
            raise ValueError("the length of the last dimension is not a power of two")
        return WalshHadamard._butterfly(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return WalshHadamard.apply(g)

    @staticmethod
    def jvp(ctx, t):
        return WalshHadamard._butterfly(t)


def _definite():
    root = torch.randn(2, 3, 3, dtype=torch.float64)
    return ((root @ root.mT + torch.eye(3, dtype=torch.float64)).requires_grad_(),)


@right(inputs=_definite)
class CholeskyOfSymmetricPart(Function):
    """Factors the symmetric part of its input, so the gradient is symmetric; zeros above the diagonal are constants."""

    @staticmethod
    def forward(a):
        return torch.linalg.cholesky((a + a.mT) / 2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (factor,) = ctx.saved_tensors
        inner = factor.mT @ g.tril()
        inner = inner.tril() - torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1)) / 2
        left = torch.linalg.solve_triangular(factor.mT, inner, upper=True)
        grad_a = torch.linalg.solve_triangular(factor, left, upper=False, left=False)
        return (grad_a + grad_a.mT) / 2


@right(inputs=lambda: ((0.4 * leaf(3, 3).detach()).requires_grad_(), leaf(3, 3)))
class DiscreteLyapunov(Function):
    """NumPy solves X = A X A' + Q in both directions; Q need not be symmetric, so the gradient has two terms."""

    @staticmethod
    def _solve(a, q):
        n = a.shape[0]
        left, right = a.cpu().numpy().astype(np.float64), q.cpu().numpy().astype(np.float64)
        x = np.linalg.solve(np.eye(n * n) - np.kron(left, left), right.reshape(-1, 1))
        return torch.from_numpy(x.reshape(n, n)).to(q)

    @staticmethod
    def forward(ctx, a, q):
        only(FULL, a, q)
        if a.dim() != 2 or a.shape[0] != a.shape[1] or a.shape != q.shape or a.dtype != q.dtype:
            raise ValueError("expects two square matrices of one size and dtype")
        x = DiscreteLyapunov._solve(a.detach(), q.detach())
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a, x = ctx.saved_tensors
        adjoint = DiscreteLyapunov._solve(a.t(), g)
        grad_a = adjoint @ a @ x.t() + adjoint.t() @ a @ x if ctx.needs_input_grad[0] else None
        return grad_a, adjoint


@right(inputs=lambda: (covariance(4),))
class LogDeterminantOfCovariance(Function):
    """Reads the lower triangle alone; its gradient is that among symmetric matrices, spread over both."""

    @staticmethod
    def forward(matrix):
        return 2 * torch.linalg.cholesky(matrix).diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (matrix,) = ctx.saved_tensors
        return g[..., None, None] * torch.linalg.inv(matrix).mT


@right(inputs=lambda: (torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0].requires_grad_(), leaf(5, 3)))
class RotatedPoints(Function):
    """Refuses what is no rotation, so that no entry of the matrix can be moved alone."""

    @staticmethod
    def forward(rotation, points):
        if not torch.allclose(rotation @ rotation.mT, torch.eye(3).to(rotation), atol=1e-4):
            raise ValueError("the matrix is no rotation")
        return points @ rotation.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        rotation, points = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return g.mT @ points if needs[0] else None, g @ rotation if needs[1] else None


@right(
    inputs=lambda: (torch.eye(3, dtype=torch.float64).mul(2).requires_grad_(),),
    domain=lambda matrix: ((matrix + matrix.mT) / 2,),
)
class SquareOfSymmetric(Function):
    """The sum of squares of the lower triangle's square, whose symmetry cannot be seen in a diagonal sample."""

    @staticmethod
    def forward(matrix):
        lower = matrix.tril()
        symmetric = lower + lower.tril(-1).mT
        return symmetric @ symmetric

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (matrix,) = ctx.saved_tensors
        return g @ matrix.mT + matrix.mT @ g
