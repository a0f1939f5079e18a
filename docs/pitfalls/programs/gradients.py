"""Functions with wrong derivatives."""

import math

import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, fixes, leaf
from torch.autograd import Function

# --- first_order ---


@broken("first_order", inputs=lambda: (leaf(4, 3), torch.randn(4, 3, dtype=torch.float64)))
class CharbonnierForgetsTheMean(Function):
    """The loss is a mean, but the backward does not divide by the number of elements."""

    generate_vmap_rule = True

    @staticmethod
    def forward(prediction, target):
        difference = prediction - target
        return (difference * difference + 1e-2).sqrt().mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        prediction, target = ctx.saved_tensors
        difference = prediction - target
        grad = grad_output * difference / (difference * difference + 1e-2).sqrt()
        return grad, -grad


@fixes(CharbonnierForgetsTheMean)
class Charbonnier(Function):
    """Backward divides by the number of elements, as the mean does."""

    generate_vmap_rule = True

    @staticmethod
    def forward(prediction, target):
        difference = prediction - target
        return (difference * difference + 1e-2).sqrt().mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        prediction, target = ctx.saved_tensors
        difference = prediction - target
        grad = grad_output * difference / (difference * difference + 1e-2).sqrt() / difference.numel()
        return grad, -grad


# --- linear_in_grad_output ---


@broken("linear_in_grad_output", inputs=lambda: (leaf(4, 3),))
class MishClampsGradients(Function):
    """Backward clamps grad_output, which is right only if no gradient is larger than 10."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * F.softplus(x).tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        t = F.softplus(x).tanh()
        return grad_output.clamp(-10, 10) * (t + x * (1 - t * t) * x.sigmoid())


@fixes(MishClampsGradients)
class MishLeavesGradients(Function):
    """Backward multiplies by grad_output, and leaves clipping to the optimizer."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * F.softplus(x).tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        t = F.softplus(x).tanh()
        return grad_output * (t + x * (1 - t * t) * x.sigmoid())


# --- second_order ---


@broken("second_order", inputs=lambda: (leaf(4, 3),), source="pytorch/pytorch#58509")
class SiluSavesItsSigmoid(Function):
    """The function saves sigmoid(x), which has no graph back to x. The gradient is right, but its derivative lacks a
    term.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x.sigmoid()

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x, x.sigmoid())

    @staticmethod
    def backward(ctx, grad_output):
        x, s = ctx.saved_tensors
        return grad_output * s * (1 + x * (1 - s))


@fixes(SiluSavesItsSigmoid)
class SiluSavesItsInput(Function):
    """The function saves only the input. Backward computes the sigmoid again, where it has a graph."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x.sigmoid()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return grad_output * s * (1 + x * (1 - s))


# --- forward_mode ---


def _gelu_slope(u):
    return (1 + torch.erf(u / math.sqrt(2))) / 2 + u * torch.exp(-u * u / 2) / math.sqrt(2 * math.pi)


@broken("forward_mode", inputs=lambda: (leaf(4, 3), leaf(3)))
class BiasGeluDropsATangent(Function):
    """The jvp uses only the tangent of x, so it returns zero for the tangent of the bias."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, bias):
        return F.gelu(x + bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, bias = ctx.saved_tensors
        grad = grad_output * _gelu_slope(x + bias)
        return grad, grad.sum_to_size(bias.shape)

    @staticmethod
    def jvp(ctx, x_tangent, bias_tangent):
        x, bias = ctx.saved_tensors
        return x_tangent * _gelu_slope(x + bias)


@fixes(BiasGeluDropsATangent)
class BiasGeluAddsTangents(Function):
    """The jvp adds the tangents of both inputs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, bias):
        return F.gelu(x + bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, bias = ctx.saved_tensors
        grad = grad_output * _gelu_slope(x + bias)
        return grad, grad.sum_to_size(bias.shape)

    @staticmethod
    def jvp(ctx, x_tangent, bias_tangent):
        x, bias = ctx.saved_tensors
        return (x_tangent + bias_tangent) * _gelu_slope(x + bias)


# --- reference ---


@broken("reference", inputs=lambda: (leaf(4, 3),), reference=F.gelu)
class GeluByTanh(Function):
    """The function computes the approximation by tanh, and the right derivative of this approximation. But the exact
    GELU was intended.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        t = torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
        return grad_output * 0.5 * (1 + t + x * (1 - t * t) * inner)


@fixes(GeluByTanh)
class GeluByErf(Function):
    """The function computes the exact GELU."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * (1 + torch.erf(x / math.sqrt(2))) / 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        density = torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        return grad_output * ((1 + torch.erf(x / math.sqrt(2))) / 2 + x * density)
