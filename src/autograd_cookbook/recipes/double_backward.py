"""Gradients that can be differentiated again: computed from outputs, or from intermediates returned as outputs."""

import math

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context

# The number of steps is fixed, so that vmap and the compiler can follow the loop. Each step triples the correct digits,
# and the starting value has at least one correct digit on the whole range of float64.
STEPS = 4
# 1/e as the sum of two numbers, because a single number has too few digits.
INVERSE_E = {torch.float32: (0.3678794503211975, -9.149756098e-9), torch.float64: (1 / math.e, -1.2428753672788363e-17)}


def above_branch(x: Tensor) -> Tensor:
    """Return ``2 (e x + 1)``, computed so that no digits cancel near the branch point -1/e."""
    high, low = INVERSE_E[x.dtype]
    return (x + high).add_(low).mul_(2 * math.e)


def refined(x: Tensor, w: Tensor) -> Tensor:
    """Return ``u = 1 + w`` after a step of Newton's method for ``(u - 1) exp(u) + 1 = e x + 1``, if w is below -1/2.

    Both sides of this equation are about ``u² / 2``. The left side is the sum of the positive terms
    ``(k - 1) uᵏ / k!`` from k = 2 on, so no digits cancel.
    """
    u = (1 + w).clamp(max=0.5)
    total = torch.zeros_like(u)
    for k in range(16, 1, -1):
        total = total.mul_(u).add_((k - 1) / math.factorial(k))
    residual = total.mul_(u.square()).sub_(above_branch(x).clamp(min=0), alpha=0.5)
    return u - residual / (u * torch.exp(u)).clamp(min=torch.finfo(u.dtype).tiny)


class LambertWFunction(Function):
    """Keeps input and output. Autograd can differentiate a gradient computed from these, but not from a saved slope."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        x = input if input.dtype == torch.float64 else input.float()
        # The starting value is a series in the square root of the distance near the branch point -1/e, and a
        # logarithm elsewhere.
        distance = above_branch(x)
        root = distance.clamp(min=0).sqrt()
        near = -1 + root - root**2 / 3 + 11 / 72 * root**3
        size = torch.log1p(x.clamp(min=0, max=torch.finfo(x.dtype).max))
        w = torch.where(x < 0.2, near, size * (1 - torch.log1p(size) / (2 + size)))
        for _ in range(STEPS):
            # A step of Halley's method for w - x exp(-w) = 0. This equation does not overflow, but w exp(w) = x can.
            slope = 1 + w
            residual = w - x * torch.exp(-w)
            step = residual / (slope - residual * (1 + slope) / (2 * slope))
            # Very close to the branch point, the slope is only rounding error, but the series is exact.
            w = torch.where(root < torch.finfo(x.dtype).eps ** 0.2, w, w - step)
        w = torch.where(w < -0.5, refined(x, w) - 1, w)
        w = torch.where(x == torch.inf, x, w)
        return torch.where(distance < -8 * torch.finfo(x.dtype).eps, torch.nan, w).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        return LambertWBackward.apply(grad_output, *ctx.saved_tensors)


class LambertWBackward(Function):
    """The gradient as a function with its own gradient. Otherwise autograd would save every step of the formula."""

    generate_vmap_rule = True

    @staticmethod
    def forward(grad_output: Tensor, input: Tensor, w: Tensor) -> Tensor:
        # Use w / x instead of exp(-w), which would magnify the rounding error of a large w. At 0, both are 1.
        x, w = (t if t.dtype == torch.float64 else t.float() for t in (input, w))
        u = torch.where(w < -0.5, refined(x, w), 1 + w)
        zero = (x == 0).to(x.dtype)
        return (grad_output * ((w.clamp(max=1e4) + zero) / u / (x + zero))).to(grad_output.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        # The input only adds correct digits to w. So only w gets a gradient, and this gradient continues to the input.
        grad_output, input, w = ctx.saved_tensors
        grad_grad_output = grad_w = None
        if ctx.needs_input_grad[0]:
            grad_grad_output = LambertWBackward.apply(grad, input, w)  # element-wise and linear in grad_output
        if ctx.needs_input_grad[2]:
            # 1 + w has lost digits near the branch point. They are a constant here: its slope by w is 1.
            x, y = (t.detach() if t.dtype == torch.float64 else t.detach().float() for t in (input, w))
            u = 1 + w + torch.where(y < -0.5, refined(x, y) - (1 + y), 0)
            grad_w = (-LambertWBackward.apply(grad * grad_output, input, w) * (1 + u) / u).to(w.dtype)
        return grad_grad_output, None, grad_w


def lambert_w(input: Tensor) -> Tensor:
    r"""Solve :math:`y e^y = x`. Equations with an unknown inside and outside of an exponential have this form.

    .. math::
        y\,e^y = x, \qquad
        \bar{x} = \bar{y}\,\frac{e^{-y}}{1 + y}, \qquad
        y'' = -\frac{e^{-2y}\,(2 + y)}{(1 + y)^3}

    The solution is the principal branch, :math:`y \ge -1`. At :math:`x = -1/e`, where this branch begins, its slope is
    infinite.

    Args:
        input: any shape, real floating dtype. For half precision, the function computes in float32.

    Returns:
        A tensor like ``input``, NaN for numbers below :math:`-1/e`.

    Raises:
        TypeError: if the input is complex or an integer.

    Source: R. M. Corless et al., On the Lambert W function, Advances in Computational Mathematics 5 (1996), with
    the starting value of R. Iacono and J. P. Boyd, the same journal 43 (2017).

    >>> x = torch.tensor(1.0, requires_grad=True)
    >>> y = lambert_w(x)
    >>> y
    tensor(0.5671, grad_fn=<LambertWFunctionBackward>)
    >>> torch.autograd.grad(y, x)
    (tensor(0.3619),)
    """
    if not input.is_floating_point():
        raise TypeError(f"expected a real floating input, got {input.dtype}")
    return LambertWFunction.apply(input)


class LogDetFunction(Function):
    """Also returns the inverse and keeps it. Autograd can differentiate an intermediate that is an output."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> tuple[Tensor, Tensor]:
        factor = torch.linalg.cholesky((input + input.mH) / 2)
        return 2 * factor.diagonal(dim1=-2, dim2=-1).real.log().sum(-1), torch.cholesky_inverse(factor)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Context, grad_logdet: Tensor | None, grad_inverse: Tensor | None) -> Tensor | None:
        (inverse,) = ctx.saved_tensors
        grad_input = None
        if grad_logdet is not None:
            grad_input = grad_logdet[..., None, None] * inverse
        if grad_inverse is not None:  # only in a second backward, which goes through the saved inverse
            product = inverse @ ((grad_inverse + grad_inverse.mH) / 2) @ inverse
            grad_input = -product if grad_input is None else grad_input - product
        return grad_input


def logdet(input: Tensor) -> Tensor:
    r"""Logarithm of the determinant of a positive definite matrix, as in the likelihood of a Gaussian.

    .. math::
        y = \log \det A, \qquad
        \bar{A} = \bar{y}\,A^{-1}, \qquad
        Z = A^{-1}: \quad \bar{A} = -Z \bar{Z} Z

    The last formula is the gradient through the inverse :math:`Z`, for second derivatives. Forward computes the inverse
    together with the value. If you need no gradient, ``torch.linalg.cholesky`` alone is cheaper.

    Args:
        input: ``(..., n, n)``, single or double precision, real or complex. The function uses
            only the Hermitian part :math:`(A + A^H) / 2`, which must be positive definite.

    Returns:
        A real tensor of shape ``(...)``.

    Raises:
        RuntimeError: if the matrices are not square or not positive definite, as in ``torch.linalg.cholesky``.

    >>> a = torch.tensor([[3.0, 1.0], [1.0, 1.0]], requires_grad=True)
    >>> logdet(a).backward()
    >>> a.grad
    tensor([[ 0.5000, -0.5000],
            [-0.5000,  1.5000]])
    """
    logdet, _ = LogDetFunction.apply(input)
    return logdet
