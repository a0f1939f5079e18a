"""Functions that are wrong at special points."""

import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, leaf
from torch.autograd import Function

# --- special_points ---


@broken("special_points", inputs=lambda: ((0.1 * torch.randn(4, 3, dtype=torch.float64)).requires_grad_(),))
class HuberForgetsItsLinearPart(Function):
    """The backward has the gradient of the parabola alone, and the sample never left the parabola."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.where(x.abs() < 1, x * x / 2, x.abs() - 0.5)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x


@broken("special_points", inputs=lambda: (leaf(3, 3),))
class DeterminantByInverse(Function):
    """Uses the inverse for the gradient, which raises for a singular matrix, where the gradient is finite."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix):
        return torch.linalg.det(matrix)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, grad_output):
        matrix, det = ctx.saved_tensors
        return grad_output * det * torch.linalg.inv(matrix).mT


@broken("special_points", inputs=lambda: (leaf(4, 3),), surrogate=F.softsign)
class SpikeDividesByItsInput(Function):
    """Computes the slope of the surrogate x / (1 + |x|) as a quotient with x, which is 0 / 0 at the threshold."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return (x > 0).to(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        softsign = x / (1 + x.abs())
        return grad_output * (softsign / x) ** 2


# --- reference_points ---


@broken("reference_points", inputs=lambda: (leaf(4, 3),), reference=torch.sigmoid)
class SigmoidRefusesMaskedScores(Function):
    """Raises for infinite scores, though a score of minus infinity is how a place is masked."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        if x.isinf().any():
            raise ValueError("infinite scores")
        return x.sigmoid()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y * (1 - y)


@broken("reference_points", inputs=lambda: (leaf(4, 3),), reference=F.logsigmoid)
class LogSigmoidGradientAtInfinity(Function):
    """The values are right at infinity, but the gradient is a quotient of two exponentials that both overflow."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clamp(max=0) - (-x.abs()).exp().log1p()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (-x).exp() / (1 + (-x).exp())
