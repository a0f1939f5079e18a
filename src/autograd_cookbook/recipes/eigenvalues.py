"""Eigenvalues, singular values and functions of matrices, with finite gradients if several values are equal."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._once import last_derivative


class NaNGradientFunction(Function):
    """Returns its input unchanged, but with a gradient of NaN where a flag is set. Keeps the flag.

    The backward of another function passes its saved tensors through this function. That does not change the first
    derivative, but a second derivative that would be wrong becomes NaN.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, flag: Tensor) -> Tensor:
        return input.clone()

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        (flag,) = ctx.saved_tensors
        return grad_output.masked_fill(flag, torch.nan), None


def reciprocal(tensor: Tensor, limit: Tensor) -> Tensor:
    """Return 1/x, and 0 where the absolute value of x is at most the limit."""
    return 1 / tensor.masked_fill(tensor.abs() <= limit, torch.inf)


def hermitian(input: Tensor) -> Tensor:
    """Return the Hermitian part. Divide before the sum, because the sum could overflow."""
    return input / 2 + input.mH / 2


def unit(values: Tensor) -> Tensor:
    """Return the largest absolute value, or 1 if it is 0. After a division by it, squares do not overflow."""
    if values.shape[-1] == 0:
        return torch.ones_like(values.sum(-1, keepdim=True))
    largest = values.detach().abs().amax(-1, keepdim=True)
    return largest.masked_fill(largest == 0, 1)


def noise(values: Tensor, gap: float | None) -> Tensor:
    """Return the distance up to which eigenvalues or singular values count as equal."""
    if gap is None:
        gap = 10 * values.shape[-1] * torch.finfo(values.dtype).eps
    return gap * torch.linalg.vector_norm(values, dim=-1)[..., None, None]


def phase(vectors: Tensor) -> Tensor:
    """Return the sign (or the complex phase) of the entry with the largest absolute value in each column."""
    return vectors.gather(-2, vectors.abs().argmax(-2, keepdim=True)).sgn()


class EighFunction(Function):
    """Keeps eigenvalues and eigenvectors, which are its outputs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, gap: float | None) -> tuple[Tensor, Tensor]:
        return tuple(torch.linalg.eigh(hermitian(input)))

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float | None], output: tuple[Tensor, Tensor]) -> None:
        ctx.gap = inputs[1]
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Context, grad_values: Tensor, grad_vectors: Tensor) -> tuple[Tensor, None]:
        values, vectors = ctx.saved_tensors
        size = unit(values)
        values = values / size
        limit = noise(values, ctx.gap)
        difference = values.unsqueeze(-2) - values.unsqueeze(-1)
        pairs = (difference.abs() <= limit).sum((-2, -1), keepdim=True) > values.shape[-1]
        values = NaNGradientFunction.apply(values, pairs[..., 0])
        vectors = NaNGradientFunction.apply(vectors, pairs)

        turn = vectors.mH @ grad_vectors
        difference = values.unsqueeze(-2) - values.unsqueeze(-1)
        inner = (turn - turn.mH) / 2 * reciprocal(difference, limit) / size[..., None]
        inner = inner + torch.diag_embed(grad_values)
        return vectors @ inner @ vectors.mH, None


def eigh(input: Tensor, gap: float | None = None) -> tuple[Tensor, Tensor]:
    r"""Eigenvalues and eigenvectors of a Hermitian matrix, with a finite gradient if eigenvalues are equal.

    .. math::
        A = V \Lambda V^H, \qquad
        \bar{A} = V \Big(\bar{\Lambda} + F \circ \tfrac{1}{2} \big(V^H \bar{V} - \bar{V}^H V\big)\Big) V^H, \qquad
        F_{ij} = \begin{cases} 1 / (\lambda_j - \lambda_i) & |\lambda_j - \lambda_i| > g \\ 0 & \text{else} \end{cases}

    The gradient is exact if all eigenvalues are further apart than :math:`g`. Eigenvalues that are closer to each other
    form a cluster. With clusters, the gradient is still exact if the loss uses only two properties of each cluster:

    - the projector :math:`\sum_{i} v_i v_i^H` onto the space of its eigenvectors,
    - symmetric functions of its eigenvalues, such as :math:`\sum_i f(\lambda_i)`.

    A loss of the matrix :math:`V f(\Lambda) V^H` uses more, so a part of its gradient is missing. For this matrix, use
    :func:`matrix_function` instead. A single vector of a cluster has no derivative. Its gradient here is finite but has
    no meaning. A second derivative is exact if there are no clusters, and NaN otherwise.

    Args:
        input: ``(..., n, n)``, float32, float64 or complex. The function decomposes its Hermitian part.
        gap: :math:`g` divided by the Frobenius norm of the matrix. None means :math:`10\, n\, \epsilon` of the dtype,
            which is the distance that rounding errors can cause between equal eigenvalues.

    Returns:
        Eigenvalues ``(..., n)`` in ascending order, and eigenvectors ``(..., n, n)`` as columns. In each
        eigenvector, the entry with the largest absolute value is real and positive.

    Raises:
        RuntimeError: if the matrices are not square, or have another dtype.
        ValueError: if the gap is negative.

    Source: Magnus, On differentiating eigenvalues and eigenvectors, 1985.

    >>> A = torch.eye(2).requires_grad_()
    >>> values, vectors = eigh(A)
    >>> (vectors @ vectors.mT + values.exp().sum()).sum().backward()
    >>> A.grad[0]
    tensor([10.8731,  0.0000])
    """
    if gap is not None and gap < 0:
        raise ValueError(f"expected gap >= 0, got {gap}")
    values, vectors = EighFunction.apply(input, gap)
    if vectors.numel():
        vectors = vectors * phase(vectors).conj()
    return values, vectors


class SvdFunction(Function):
    """Keeps its outputs: the singular values and both sets of vectors."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, gap: float | None) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(torch.linalg.svd(input, full_matrices=False))

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float | None], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.gap = inputs[1]
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Context, grad_u: Tensor, grad_s: Tensor, grad_vh: Tensor) -> tuple[Tensor, None]:
        u, s, vh = ctx.saved_tensors
        size = unit(s)
        s, size = s / size, size[..., None]
        limit = noise(s, ctx.gap)
        close = (s.unsqueeze(-2) - s.unsqueeze(-1)).abs() <= limit
        zero = s.unsqueeze(-1) <= limit
        flag = (close.sum((-2, -1), keepdim=True) > s.shape[-1]) | zero.any(-2, keepdim=True)
        s = NaNGradientFunction.apply(s, flag[..., 0])
        u, vh = NaNGradientFunction.apply(u, flag), NaNGradientFunction.apply(vh, flag)

        left, right = u.mH @ grad_u, vh @ grad_vh.mH
        left, right = left - left.mH, right - right.mH
        # Split the quotient (left s_j + s_i right) / (s_j² - s_i²) into two parts. Only the first part is 0/0 for equal
        # singular values. Its numerator is 0 for a loss that does not change when the columns of both U and V for these
        # values are multiplied by the same rotation.
        difference, total = s.unsqueeze(-2) - s.unsqueeze(-1), s.unsqueeze(-2) + s.unsqueeze(-1)
        inner = (left + right) / 2 * reciprocal(difference, limit) + (left - right) / 2 * reciprocal(total, limit)
        grad_input = u @ (inner / size + torch.diag_embed(grad_s)) @ vh
        inverse = reciprocal(s, limit[..., 0])
        if u.shape[-2] != s.shape[-1]:
            grad_input = grad_input + (grad_u - u @ (u.mH @ grad_u)) * inverse.unsqueeze(-2) / size @ vh
        if vh.shape[-1] != s.shape[-1]:
            grad_input = grad_input + u * inverse.unsqueeze(-2) / size @ (grad_vh - (grad_vh @ vh.mH) @ vh)
        return grad_input, None


def svd(input: Tensor, gap: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
    r"""Reduced singular value decomposition, with a finite gradient if singular values are equal or 0.

    .. math::
        A = U S V^H, \qquad
        \bar{A} = U \Big(\bar{S} + \tfrac{1}{2} F^- \circ (P + Q) + \tfrac{1}{2} F^+ \circ (P - Q)\Big) V^H
        + (1 - U U^H)\, \bar{U} S^{-1} V^H + U S^{-1} \bar{V}^H (1 - V V^H), \\
        P = U^H \bar{U} - \bar{U}^H U, \qquad Q = V^H \bar{V} - \bar{V}^H V, \qquad
        F^\pm_{ij} = 1 / (s_j \pm s_i)

    where a reciprocal :math:`1 / x` with :math:`|x| \le g` is replaced by 0. The gradient is exact if all singular
    values are further than :math:`g` apart from each other and from 0. Otherwise, the gradient is exact for some
    losses:

    - If some singular values are equal, the loss must not change when their columns of both :math:`U` and :math:`V` are
      multiplied by the same rotation, or when their order changes. Examples are losses of the polar factor
      :math:`U V^H` and of :math:`\sum_i f(s_i)`. For :math:`U f(S) V^H`, a part of the gradient is missing, so write
      :math:`A\, h(A^H A)` with :func:`matrix_function` instead.
    - If some singular values are 0, the loss must not depend on their vectors.

    A second derivative is exact if all singular values are positive and different, and NaN otherwise.

    Args:
        input: ``(..., m, n)``, float32, float64 or complex.
        gap: :math:`g` divided by the Frobenius norm of the matrix. None means :math:`10 \min(m, n)\, \epsilon` of the
            dtype.

    Returns:
        ``U (..., m, k)``, singular values ``(..., k)`` in descending order, and ``Vh (..., k, n)``, with
        ``k = min(m, n)``. In each column of ``U``, the entry with the largest absolute value is real and positive.

    Raises:
        RuntimeError: if the input is not a matrix, or has another dtype.
        ValueError: if the gap is negative.

    Source: Wan, Zhang, Automatic differentiation for complex valued SVD, 2019.

    >>> A = torch.eye(2).requires_grad_()
    >>> u, s, vh = svd(A)
    >>> (u @ vh)[0, 1].backward()
    >>> A.grad
    tensor([[ 0.0000,  0.5000],
            [-0.5000,  0.0000]])
    """
    if gap is not None and gap < 0:
        raise ValueError(f"expected gap >= 0, got {gap}")
    u, s, vh = SvdFunction.apply(input, gap)
    if s.numel():
        turn = phase(u)
        u, vh = u * turn.conj(), vh * turn.mT
    return u, s, vh


class MatrixFunction(Function):
    """Keeps eigenvalues and eigenvectors. Backward treats them as constants, so there is no second derivative.

    The input is saved only to connect the gradient with it. Otherwise, not every second derivative would raise.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        input: Tensor, function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(hermitian(input))
        with torch.autocast(input.device.type, enabled=False):  # half precision would round the product
            return (vectors * function(values).unsqueeze(-2)) @ vectors.mH, values, vectors

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Any, Any], output: tuple[Tensor, Tensor, Tensor]) -> None:
        input, ctx.function, ctx.derivative = inputs
        _, values, vectors = output
        ctx.mark_non_differentiable(values, vectors)
        ctx.save_for_backward(values, vectors, input)

    @staticmethod
    @last_derivative
    def backward(ctx: Context, grad_output: Tensor, _values: Tensor, _vectors: Tensor) -> tuple[Tensor, None, None]:
        values, vectors, _ = ctx.saved_tensors
        inner = vectors.mH @ hermitian(grad_output) @ vectors
        inner = inner * divided_differences(values, ctx.function, ctx.derivative)
        return vectors @ inner @ vectors.mH, None, None


def divided_differences(
    values: Tensor, function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return ``(f(b) - f(a)) / (b - a)`` for all pairs. This quotient is the mean of the derivative between a and b.

    For close a and b, the quotient is inaccurate. There, Simpson's rule gives an accurate mean from the derivative at
    three points. For distant a and b, Simpson's rule can be wrong. So this code takes Simpson's result where it differs
    from the quotient by no more than the rounding error of the quotient, and the quotient elsewhere.
    """
    a, b = values.unsqueeze(-2), values.unsqueeze(-1)
    distance = b - a
    value, slope = function(values), derivative(values)
    simpson = (slope.unsqueeze(-2) + 4 * derivative(a + distance / 2) + slope.unsqueeze(-1)) / 6
    quotient = (value.unsqueeze(-1) - value.unsqueeze(-2)) / distance.masked_fill(distance == 0, torch.inf)
    # A bound of the rounding error of f(a), which comes from the rounding of the value and of the argument a.
    rounding = torch.finfo(values.dtype).eps * (value.abs() + (values * slope).abs())
    noise = (rounding[..., None] + rounding[..., None, :]) / distance.abs()
    agree = (simpson - quotient).abs() <= noise
    return torch.where(agree | (distance == 0), simpson, quotient)


def matrix_function(
    input: Tensor, function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> Tensor:
    r"""A function of a Hermitian matrix, such as a logarithm. The gradient is also right for equal eigenvalues.

    .. math::
        Y = V f(\Lambda) V^H, \qquad \bar{A} = V \Big(F \circ V^H \bar{Y} V\Big) V^H, \qquad
        F_{ij} = \begin{cases} \frac{f(\lambda_j) - f(\lambda_i)}{\lambda_j - \lambda_i} & \lambda_i \ne \lambda_j \\
        f'(\lambda_i) & \text{else} \end{cases}

    You can differentiate the result once. A second derivative raises.

    Args:
        input: ``(..., n, n)``, float32, float64 or complex. Only its Hermitian part is used.
        function: an element-wise real function of a tensor, smooth between the eigenvalues.
        derivative: the derivative of the function. The recipe does not check it, and a wrong derivative gives a wrong
            gradient.

    Returns:
        ``(..., n, n)``, Hermitian.

    Raises:
        RuntimeError: if the matrices are not square, or have another dtype.

    Source: Daleckii and Krein, 1965; Higham, Functions of Matrices, 2008, theorem 3.11.

    >>> A = torch.eye(2).requires_grad_()
    >>> matrix_function(A, torch.exp, torch.exp)[0, 1].backward()
    >>> A.grad
    tensor([[0.0000, 1.3591],
            [1.3591, 0.0000]])
    """
    return MatrixFunction.apply(input, function, derivative)[0]
