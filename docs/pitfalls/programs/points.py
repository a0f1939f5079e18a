"""Functions that are wrong at special points."""

import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, fixes, leaf
from torch.autograd import Function

# --- special_points ---


@broken("special_points", inputs=lambda: (leaf(4, 3),), source="pytorch/pytorch#2421")
class RowNormAtZero(Function):
    """Backward divides a row by its norm. For a row of zeros, 0 / 0 is NaN, which spreads to every weight."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return (x * x).sum(-1).sqrt()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, grad_output):
        x, norm = ctx.saved_tensors
        return x * (grad_output / norm).unsqueeze(-1)


@fixes(RowNormAtZero)
class RowNormSafeAtZero(Function):
    """Backward divides by one if the norm is zero, so the gradient is zero there."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.linalg.vector_norm(x, dim=-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, grad_output):
        x, norm = ctx.saved_tensors
        return x * (grad_output / torch.where(norm > 0, norm, 1)).unsqueeze(-1)


# --- reference_points ---


@broken("reference_points", inputs=lambda: (leaf(4, 3),), reference=F.softplus, source="apache/tvm#1768")
class SoftplusOverflows(Function):
    """The exponential is infinite for inputs above 710, although the right result there, x itself, is finite."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.exp().log1p()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.sigmoid()


@fixes(SoftplusOverflows)
class SoftplusTakesTheMaximum(Function):
    """The function takes exponentials only of negative numbers: log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clamp(min=0) + (-x.abs()).exp().log1p()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.sigmoid()
