"""Functions that do not keep what torch asks of a backward."""

import threading

import numpy as np
import torch
from docs.pitfalls.programs import broken, leaf, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

# --- returned ---


@broken("returned", inputs=lambda: (leaf(4, 6), 1, 4))
class CropIntoFloat32(Function):
    """The buffer for the gradient is made without dtype=, so that a float64 gradient loses half of its digits."""

    @staticmethod
    def forward(x, start, stop):
        return x[:, start:stop].clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.start, ctx.stop = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, grad_output):
        grad_x = torch.zeros(ctx.shape)
        grad_x[:, ctx.start : ctx.stop] = grad_output
        return grad_x, None, None


@broken("returned", inputs=lambda: (torch.randn(3, 8, requires_grad=True),))
class HannWindowFromNumpy(Function):
    """Made for float32, but the window in the backward comes from NumPy in float64, and the gradient with it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        if x.dtype is not torch.float32:
            raise TypeError(f"expected float32, got {x.dtype}")
        return x * torch.hann_window(x.shape[-1], periodic=False)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * torch.from_numpy(np.hanning(grad_output.shape[-1]))


# --- subsets ---


@broken("subsets", inputs=lambda: (leaf(4, 3), leaf(2, 3), leaf(2)))
class BiasGoesWithTheWeight(Function):
    """The gradient of the bias is computed only if the weight is trained: with a frozen weight there is none."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias):
        return x @ weight.mT + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output @ weight
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.mT @ x
            grad_bias = grad_output.sum(0)
        return grad_x, grad_weight, grad_bias


@broken("subsets", inputs=lambda: (leaf(4, 3), leaf(4, 3).detach(), leaf(4, 3).detach()))
class TargetAndWeightExchanged(Function):
    """Returns the gradients of target and weight in each other's place; the sample trains neither."""

    @staticmethod
    def forward(ctx, input, target, weight):
        ctx.save_for_backward(input, target, weight)
        return (weight * (input - target) ** 2).mean()

    @staticmethod
    def backward(ctx, grad_output):
        input, target, weight = ctx.saved_tensors
        error = grad_output * (input - target) / input.numel()
        return 2 * error * weight, error * (input - target), -2 * error * weight


@right(inputs=lambda: (leaf(4, 3), leaf(4, 3).detach(), torch.ones(4, 3, dtype=torch.float64)))
class ErrorWithMaskOfFloats(Function):
    """The gradient of the target is right, and there is none for a mask, which the values depend on, too."""

    @staticmethod
    def forward(ctx, input, target, mask):
        ctx.save_for_backward(input, target, mask)
        return (mask * (input - target) ** 2).mean()

    @staticmethod
    def backward(ctx, grad_output):
        input, target, mask = ctx.saved_tensors
        grad_input = 2 * grad_output * mask * (input - target) / input.numel()
        return grad_input, -grad_input if ctx.needs_input_grad[1] else None, None


# --- unused_outputs ---


@broken("unused_outputs", inputs=lambda: (leaf(4, 3),))
class PolarGivesUpTooEarly(Function):
    """Returns no gradient if either output is unused, and so loses that of the one that is used."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        norm = (x * x).sum(-1, keepdim=True).add(1e-6).sqrt()
        return x / norm, norm

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx, grad_direction, grad_norm):
        if grad_direction is None or grad_norm is None:
            return None
        direction, norm = ctx.saved_tensors
        along = (grad_direction * direction).sum(-1, keepdim=True)
        return (grad_direction - along * direction) / norm + grad_norm * direction


# --- undefined_gradient ---


@broken("undefined_gradient", "first_order", inputs=lambda: (leaf(4, 3), leaf()))
class AttachesBalanceLoss(Function):
    """Feeds a gradient of one to an auxiliary loss, even if nothing at all flows back into the output."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, auxiliary_loss):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[1].shape

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output.new_ones(ctx.shape)


# --- backward_twice ---


@broken("backward_twice", inputs=lambda: (leaf(4, 3), 0.5), source="dmlc/dgl#1046")
class HardshrinkFreesItsMask(Function):
    """Clears what it kept on ctx after the first backward, as if there could be no second one."""

    @staticmethod
    def forward(x, threshold):
        return torch.where(x.abs() > threshold, x, 0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.kept = [(output != 0).flatten().tolist()]

    @staticmethod
    def backward(ctx, grad_output):
        mask = torch.tensor(ctx.kept.pop()).view(grad_output.shape)
        return grad_output * mask, None


@broken("backward_twice", inputs=lambda: (leaf(4, 3), 6))
class MeanDividesOnEachBackward(Function):
    """Divides the factor on ctx in the backward, and divides it again when the backward runs once more."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, count):
        return x.sum(-1) / count

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.count = inputs
        ctx.shape, ctx.factor = x.shape, 1.0

    @staticmethod
    def backward(ctx, grad_output):
        ctx.factor /= ctx.count
        return (ctx.factor * grad_output).unsqueeze(-1).expand(ctx.shape), None


# --- independent_calls ---


@broken("independent_calls", inputs=lambda: (leaf(4, 3),))
class EluReusesItsWorkspace(Function):
    """Writes every gradient into one buffer for each shape: the gradient of one call changes with the next call."""

    workspaces = {}  # noqa: RUF012

    @staticmethod
    def forward(x):
        return torch.where(x > 0, x, x.clamp(max=0).expm1())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        key = (y.shape, y.dtype)
        workspace = EluReusesItsWorkspace.workspaces.setdefault(key, torch.empty_like(y))
        return torch.mul(grad_output, y.clamp(max=0) + 1, out=workspace)


# --- grad_attribute ---


@broken("grad_attribute", inputs=lambda: (leaf(4, 3),))
class SquaredReluFillsGrad(Function):
    """Puts zeros into .grad of the input if there is none, for optimizers that cannot take None."""

    @staticmethod
    def forward(x):
        return x.clamp(min=0) ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        if x.is_leaf and x.grad is None:
            x.grad = torch.zeros_like(x)
        return 2 * grad_output * x.clamp(min=0)


class _Snake(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x + x.sin() ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (1 + (2 * x).sin())


@right(inputs=lambda: (leaf(4, 3),))
def snake_checkpointed_by_reentry(x):
    """Reentrant checkpointing refuses torch.autograd.grad by itself: no mistake of the function."""
    return checkpoint(_Snake.apply, x, use_reentrant=True)


@right(inputs=lambda: (leaf(3), leaf(3)))
class TwoThatHaveNothingToDoWithEachOther(Function):
    """If only the second input requires grad, the first output does not, and the second stays the second."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x.sin(), y.cos()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_x, grad_y):
        x, y = ctx.saved_tensors
        return grad_x * x.cos(), -grad_y * y.sin()


# --- parameters that are handed in to be differentiated ---


class _Recomputed(Function):
    """Runs a function without a graph, and again in backward for the gradients of what it is handed."""

    @staticmethod
    def forward(ctx, function, x, *parameters):
        ctx.function = function
        ctx.save_for_backward(x, *parameters)
        return function(x, *parameters)


@right(inputs=lambda: (_affine, leaf(3, 2), leaf(2), leaf(2)))
class RecomputedForItsParameters(_Recomputed):
    """Differentiates with respect to all parameters that it is handed: its caller hands in those that require grad."""

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, *parameters = (t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors)
        with torch.enable_grad():
            y = ctx.function(x.requires_grad_(), *parameters)
        return None, *torch.autograd.grad(y, (x, *parameters), grad_output)


def _affine(x, scale, shift):
    return (x * scale + shift).tanh()


@broken("subsets", inputs=lambda: (leaf(3, 2), leaf(2)))
class ScaleWithoutFrozenWeight(Function):
    """Differentiates with respect to a weight that may be frozen, and that each caller has to hand in."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return (x * scale).tanh()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, scale = (t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors)
        with torch.enable_grad():
            y = (x * scale).tanh()
        return torch.autograd.grad(y, (x, scale), grad_output)


# --- memory that is freed by the first backward ---


@right(inputs=lambda: (leaf(3, 4),))
class SoftsignFreesItsInput(Function):
    """Lets go of what it kept in the first backward, and says so in a second one."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.used = False
        return x / (1 + x.abs())

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        if ctx.used:
            raise RuntimeError("SoftsignFreesItsInput goes backward once: call forward again")
        ctx.used = True
        (x,) = ctx.saved_tensors
        return grad_output / (1 + x.abs()) ** 2


# --- backward in another thread ---

_local = threading.local()


@broken("independent_calls", inputs=lambda: (leaf(3, 4),))
class SquareKeepsItsInputForTheThread(Function):
    """Keeps a stack of inputs for each thread; on a device, torch runs backward in another one, which has none."""

    @staticmethod
    def forward(ctx, x):
        if not hasattr(_local, "inputs"):
            _local.inputs = {}
        ctx.key = len(_local.inputs)
        _local.inputs[ctx.key] = x.detach().clone()
        return x.square()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return 2 * _local.inputs[ctx.key] * grad_output
