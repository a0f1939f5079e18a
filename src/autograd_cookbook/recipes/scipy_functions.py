"""Functions of SciPy with gradients that call SciPy again."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context


def on_host(tensor: Tensor) -> Tensor:
    """Return the numbers in CPU memory. They are copied only from a GPU or from a lazy conjugate."""
    return tensor.detach().cpu().resolve_conj().resolve_neg()


def as_numpy(tensor: Tensor) -> Any:
    """Return the numbers as a NumPy array, copied only if necessary."""
    return on_host(tensor).numpy()


class DCTFunction(Function):
    """Keeps nothing. The transform is linear, so jvp applies it again. It is orthogonal, so backward is its inverse."""

    @staticmethod
    @torch.compiler.disable  # otherwise the compiler traces SciPy's Python code for seconds, without success
    def forward(input: Tensor, type: int, dim: int) -> Tensor:
        from scipy import fft

        # NumPy has no bfloat16, and SciPy has no transform of half precision.
        exact = input.to(torch.promote_types(input.dtype, torch.float32))
        # SciPy adds first and scales afterwards. So divide rows with large numbers by a power of two before the sum.
        largest = exact.abs().amax(dim, keepdim=True)
        room = 4 * exact.size(dim)
        unit = torch.where(largest > torch.finfo(exact.dtype).max / room, 2.0 ** math.ceil(math.log2(room)), 1.0)
        found = fft.dct(as_numpy(exact / unit), type, axis=dim, norm="ortho", orthogonalize=True)
        return (torch.from_numpy(found).to(exact) * unit).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, int, int], output: Tensor) -> None:
        _, ctx.type, ctx.dim = inputs

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        inverse = {1: 1, 2: 3, 3: 2, 4: 4}[ctx.type]
        return DCTFunction.apply(grad_output, inverse, ctx.dim), None, None

    @staticmethod
    def jvp(ctx: Context, tangent: Tensor, *_: None) -> Tensor:
        return DCTFunction.apply(tangent, ctx.type, ctx.dim)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None, None], input: Tensor, type: int, dim: int) -> tuple[Tensor, int]:
        return DCTFunction.apply(input.movedim(in_dims[0], 0), type, dim), 0  # dim is negative, so it stays valid


def dct(input: Tensor, type: int = 2, dim: int = -1) -> Tensor:
    r"""Discrete cosine transform in its orthogonal form, computed by ``scipy.fft``.

    .. math::
        y = C x, \qquad \bar{x} = C^\top \bar{y} = C^{-1} \bar{y}, \qquad \dot{y} = C \dot{x}, \qquad
        C^{(2)}_{kn} = \sqrt{\frac{2 - [k = 0]}{N}} \cos \frac{\pi k (2 n + 1)}{2 N}

    where :math:`C^{(2)}` is the matrix of type 2.

    Args:
        input: any shape, floating or complex, on any device. For float16 and bfloat16, the function computes in
            float32.
        type: 1, 2, 3 or 4. Type 3 is the inverse of type 2. Types 1 and 4 are their own inverses.
        dim: the dim to transform. It needs at least two elements for type 1, and one for the other types.

    Returns:
        A tensor like ``input``, on its device.

    Raises:
        IndexError: if there is no such dim.
        RuntimeError: if ``dim`` is too short.
        TypeError: if ``input`` is neither floating nor complex.
        ValueError: if ``type`` is not 1, 2, 3 or 4.

    Source: N. Ahmed, T. Natarajan, K. R. Rao, Discrete cosine transform, IEEE Transactions on Computers C-23 (1974).

    >>> x = torch.ones(4, requires_grad=True)
    >>> dct(x)[0].backward()
    >>> x.grad
    tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    if not (input.is_floating_point() or input.is_complex()):
        raise TypeError(f"expected a floating or complex input, got {input.dtype}")
    if type not in (1, 2, 3, 4):
        raise ValueError(f"expected type 1, 2, 3 or 4, got {type!r}")
    length = input.size(dim)
    least = 2 if type == 1 else 1
    if length < least:
        raise RuntimeError(f"expected a dim of length {least} or more for type {type}, got {length}")
    return DCTFunction.apply(input, type, dim if dim < 0 else dim - input.dim())


class Factors:
    """LU factors of the matrices of one call. Forward and derivatives of any order use the same factors.

    The factors are only a cache. For a matrix with other values, they are computed again.
    """

    def __init__(self) -> None:
        self.values: Tensor | None = None
        self.made: list[Any] = []

    def solve(self, indices: Tensor, values: Tensor, rhs: Tensor, adjoint: bool) -> Tensor:
        """Solve for right-hand sides ``(..., n, k)``, with cached factors of the matrices or of their adjoints."""
        batch = rhs.reshape(-1, *rhs.shape[-2:])
        original = (values.conj() if adjoint else values).detach().cpu().reshape(len(batch), values.shape[-1])
        if self.values is None or not torch.equal(original, self.values):
            places = indices.flip(0) if adjoint else indices
            self.made = [factorize(places, each, rhs.shape[-2]) for each in original]
            self.values = original.clone()
        solutions = torch.empty(rhs.shape, dtype=rhs.dtype)
        for solution, lu, b in zip(solutions.view(batch.shape), self.made, batch, strict=True):
            solution.copy_(torch.from_numpy(lu.solve(as_numpy(b), "H" if adjoint else "N")) if lu else torch.nan)
        return solutions.to(rhs.device)


def factorize(indices: Tensor, values: Tensor, size: int) -> Any:
    """Return SciPy's LU factors of one matrix. None if a value is not finite, because then no solution is finite."""
    from scipy import sparse
    from scipy.sparse import linalg

    if not values.isfinite().all():
        return None
    matrix = sparse.csc_array((as_numpy(values), tuple(as_numpy(indices))), shape=(size, size))
    try:
        return linalg.splu(matrix)
    except RuntimeError as error:
        message = f"no LU factors of the sparse {size} × {size} matrix: {error}"
        raise torch.linalg.LinAlgError(message) from None  # type: ignore[attr-defined]  # torch does not export it


class SparseSolveFunction(Function):
    """Keeps the pattern, the values, the solution and the factors. Derivatives solve with the same factors."""

    @staticmethod
    @torch.compiler.disable
    def forward(indices: Tensor, values: Tensor, rhs: Tensor, factors: Factors, adjoint: bool) -> Tensor:
        size = rhs.shape[-2]
        if indices.numel() and not (indices.min() >= 0 and indices.max() < size):
            raise IndexError(f"expected indices from 0 to {size - 1}, got {indices.min()} to {indices.max()}")
        return factors.solve(indices, values, rhs, adjoint) if rhs.numel() else rhs.clone()

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        indices, values, _, ctx.factors, ctx.adjoint = inputs
        ctx.save_for_backward(indices, values, output)
        ctx.save_for_forward(indices, values, output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        indices, values, solution = ctx.saved_tensors
        grad_rhs = SparseSolveFunction.apply(indices.flip(0), values.conj(), grad_output, ctx.factors, not ctx.adjoint)
        grad_values = None
        if ctx.needs_input_grad[1]:
            rows, columns = indices
            pairs = grad_rhs.index_select(-2, rows) * solution.index_select(-2, columns).conj()
            grad_values = -pairs.sum(-1)
        return None, grad_values, grad_rhs, None, None

    @staticmethod
    def jvp(ctx: Context, _: None, of_values: Tensor, of_rhs: Tensor, *__: None) -> Tensor:
        indices, values, solution = ctx.saved_tensors
        rows, columns = indices
        terms = of_values.unsqueeze(-1) * solution.index_select(-2, columns)
        change = of_rhs.index_add(-2, rows, terms, alpha=-1)
        return SparseSolveFunction.apply(indices, values, change, ctx.factors, ctx.adjoint)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        indices: Tensor,
        values: Tensor,
        rhs: Tensor,
        factors: Factors,
        adjoint: bool,
    ) -> tuple[Tensor, int]:
        of_indices, of_values, of_rhs, *_ = in_dims
        if of_indices is not None:
            raise ValueError("vmap over indices: matrices of a batch must share one pattern, whose values may differ")
        if of_values is None:  # one matrix: the right-hand sides of the batch become columns of one solve
            assert of_rhs is not None  # vmap maps at least one argument
            columns = rhs.movedim(of_rhs, -1)
            solution = SparseSolveFunction.apply(indices, values, columns.flatten(-2), factors, adjoint)
            return solution.unflatten(-1, columns.shape[-2:]), columns.dim() - 1
        batch = rhs.expand(info.batch_size, *rhs.shape) if of_rhs is None else rhs.movedim(of_rhs, 0)
        return SparseSolveFunction.apply(indices, values.movedim(of_values, 0), batch, factors, adjoint), 0


def sparse_solve(indices: Tensor, values: Tensor, rhs: Tensor) -> Tensor:
    r"""Solve a sparse system by SciPy's SuperLU. One factorization serves the solution and all its derivatives.

    .. math::
        A x = b, \qquad
        A^{\mathsf{H}} u = \bar{x}, \quad
        \bar{b} = u, \quad
        \bar{a}_{ij} = -u_i x_j^*, \qquad
        \dot{x} = A^{-1} (\dot{b} - \dot{A} x)

    Only the stored values have a gradient. The factors are computed on the CPU, and take more memory than the values.
    Tensors on a GPU are copied to the CPU, and the solution is copied back. If a value is not finite, the solution is
    NaN.

    Args:
        indices: ``(2, nnz)``, int64, row and column of each value. Values at the same place are summed.
        values: ``(nnz,)``, float32, float64, complex64 or complex128.
        rhs: ``(n,)`` or ``(n, k)``, same dtype and device. Its length n is the size of the matrix.

    Returns:
        The solution, a tensor like ``rhs``.

    Raises:
        IndexError: if an index is negative, or not below n.
        torch.linalg.LinAlgError: if the matrix is exactly singular.
        RuntimeError: if shapes, dtypes or devices do not fit.
        TypeError: if ``values`` has another dtype.
        ValueError: if ``vmap`` maps over the indices.

    Source: X. S. Li, An overview of SuperLU, ACM Transactions on Mathematical Software 31 (2005), for the solver.

    >>> indices = torch.tensor([[0, 1, 1], [0, 0, 1]])
    >>> values = torch.tensor([2.0, 1.0, 4.0], requires_grad=True)
    >>> x = sparse_solve(indices, values, torch.tensor([2.0, 5.0]))
    >>> x.sum().backward()
    >>> x.detach(), values.grad
    (tensor([1., 1.]), tensor([-0.3750, -0.2500, -0.2500]))
    """
    if values.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        raise TypeError(f"expected values of float32, float64, complex64 or complex128, got {values.dtype}")
    if rhs.dtype != values.dtype:
        raise RuntimeError(f"expected rhs of dtype {values.dtype}, got {rhs.dtype}")
    if indices.dtype is not torch.int64:
        raise RuntimeError(f"expected indices of dtype torch.int64, got {indices.dtype}")
    if values.dim() != 1 or indices.shape != (2, len(values)):
        raise RuntimeError(
            f"expected indices of shape (2, nnz) and values of shape (nnz,), "
            f"got {tuple(indices.shape)} and {tuple(values.shape)}"
        )
    if rhs.dim() not in (1, 2):
        raise RuntimeError(f"expected rhs of shape (n,) or (n, k), got {tuple(rhs.shape)}")
    if not values.device == rhs.device == indices.device:
        raise RuntimeError(
            f"expected all tensors on one device, got {indices.device}, {values.device} and {rhs.device}"
        )
    if rhs.dim() == 1:
        return SparseSolveFunction.apply(indices, values, rhs.unsqueeze(-1), Factors(), False).squeeze(-1)
    return SparseSolveFunction.apply(indices, values, rhs, Factors(), False)
