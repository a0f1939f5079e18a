"""Functions that do not keep what torch asks of a backward: one for each finding of the family."""

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from tests.audit.corpus import broken, right


def leaf(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


# --- returned ---


@broken("returned", inputs=lambda: (leaf(4, 3), leaf(3), leaf(3)), shown=True)
class ScaleShiftLeavesTheSum(Function):
    """Scale and shift are broadcast over the batch, and their gradients come back with the shape of the batch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, scale, shift):
        return x * (1 + scale) + shift

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, _ = inputs
        ctx.save_for_backward(x, scale)

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        return grad_output * (1 + scale), grad_output * x, grad_output


@right(inputs=lambda: (leaf(4, 3), leaf(3), leaf(3)), mends="ScaleShiftLeavesTheSum")
class ScaleShiftSums(Function):
    """Sums each gradient to the shape of its input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, scale, shift):
        return x * (1 + scale) + shift

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale, shift = inputs
        ctx.shift_shape = shift.shape
        ctx.save_for_backward(x, scale)

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        grad_x = (grad_output * (1 + scale)).sum_to_size(x.shape)
        return grad_x, (grad_output * x).sum_to_size(scale.shape), grad_output.sum_to_size(ctx.shift_shape)


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


@broken("subsets", inputs=lambda: (leaf(4, 3), leaf(2, 3)), shown=True)
class LinearSavesTheWrongOne(Function):
    """Saves the weight if the weight is trained; but it is the gradient of the input that needs the weight."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x @ weight.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight = inputs
        ctx.save_for_backward(x if ctx.needs_input_grad[0] else None, weight if ctx.needs_input_grad[1] else None)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_output @ weight if ctx.needs_input_grad[0] else None
        grad_weight = grad_output.mT @ x if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight


@right(inputs=lambda: (leaf(4, 3), leaf(2, 3)), mends="LinearSavesTheWrongOne")
class LinearSavesTheRightOne(Function):
    """Saves each factor for the gradient of the other one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x @ weight.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight = inputs
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight if ctx.needs_input_grad[0] else None)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_output @ weight if ctx.needs_input_grad[0] else None
        grad_weight = grad_output.mT @ x if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight


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


# --- unused_outputs ---


@broken("unused_outputs", inputs=lambda: (leaf(4, 3), leaf(3)), shown=True)
class ActNormNeedsBothGradients(Function):
    """Asks for None in place of zeros, and then computes with both gradients, though a loss may use one output."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, log_scale):
        return x * log_scale.exp(), log_scale.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_y, grad_log_det):
        if grad_y is None and grad_log_det is None:
            return None, None
        x, log_scale = ctx.saved_tensors
        grad_x = grad_y * log_scale.exp()
        return grad_x, (grad_x * x).sum_to_size(log_scale.shape) + grad_log_det


@right(inputs=lambda: (leaf(4, 3), leaf(3)), mends="ActNormNeedsBothGradients")
class ActNormNeedsNoGradient(Function):
    """Leaves out the terms of an output that nobody used."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, log_scale):
        return x * log_scale.exp(), log_scale.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_y, grad_log_det):
        x, log_scale = ctx.saved_tensors
        grad_x = grad_log_scale = None
        if grad_y is not None:
            grad_x = grad_y * log_scale.exp()
            grad_log_scale = (grad_x * x).sum_to_size(log_scale.shape)
        if grad_log_det is not None:
            grad_log_det = grad_log_det.expand(log_scale.shape)
            grad_log_scale = grad_log_det if grad_log_scale is None else grad_log_scale + grad_log_det
        return grad_x, grad_log_scale


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


@broken("undefined_gradient", inputs=lambda: (leaf(4, 3),), shown=True)
class SoftsignWithoutMaterializing(Function):
    """Asks for None in place of zeros, to save memory, and multiplies by the None that it then gets."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x / (1 + x.abs())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (1 + x.abs()) ** -2


@right(inputs=lambda: (leaf(4, 3),), mends="SoftsignWithoutMaterializing")
class SoftsignReturnsNone(Function):
    """Returns None if there is no grad_output."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x / (1 + x.abs())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        if grad_output is None:
            return None
        (x,) = ctx.saved_tensors
        return grad_output * (1 + x.abs()) ** -2


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


@broken(
    "backward_twice",
    inputs=lambda: (leaf(4, 5), torch.tensor([1, 0, 4, 2])),
    shown=True,
    source="unslothai/unsloth#5002",
)
class CrossEntropyReusesItsBuffer(Function):
    """Writes the gradient into the saved probabilities, so that a second backward has none to start from."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits, target):
        return logits.logsumexp(-1) - logits[torch.arange(len(logits)), target]

    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, target = inputs
        ctx.save_for_backward(logits.softmax(-1), target)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        p, target = ctx.saved_tensors
        p -= F.one_hot(target, p.shape[-1])
        p *= grad_output.unsqueeze(-1)
        return p, None


@right(
    inputs=lambda: (leaf(4, 5), torch.tensor([1, 0, 4, 2])),
    mends="CrossEntropyReusesItsBuffer",
    source="unslothai/unsloth#5002",
)
class CrossEntropyKeepsItsBuffer(Function):
    """Computes the gradient in memory of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits, target):
        return logits.logsumexp(-1) - logits[torch.arange(len(logits)), target]

    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, target = inputs
        ctx.save_for_backward(logits.softmax(-1), target)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        p, target = ctx.saved_tensors
        return (p - F.one_hot(target, p.shape[-1])) * grad_output.unsqueeze(-1), None


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


@broken("independent_calls", inputs=lambda: (leaf(4, 5),), shown=True)
class SoftmaxOnTheClass(Function):
    """Keeps its output on the class, where the next call overwrites it before this one's backward has run."""

    output = None

    @staticmethod
    def forward(x):
        SoftmaxOnTheClass.output = x.softmax(-1)
        return SoftmaxOnTheClass.output.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        y = SoftmaxOnTheClass.output
        return y * (grad_output - (grad_output * y).sum(-1, keepdim=True))


@right(inputs=lambda: (leaf(4, 5),), mends="SoftmaxOnTheClass")
class SoftmaxOnItsContext(Function):
    """Saves the output on the ctx of the call."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return y * (grad_output - (grad_output * y).sum(-1, keepdim=True))


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


# --- same_tensor_twice ---


@broken("same_tensor_twice", inputs=lambda: (leaf(4, 3), leaf(4, 3)), shown=True)
class SimilarityToItself(Function):
    """Takes x against x for a symmetric case of its own, and gives the factor of two to both arguments."""

    @staticmethod
    def forward(query, key):
        return query @ key.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        query, key = inputs
        ctx.symmetric = query is key
        ctx.save_for_backward(query, key)

    @staticmethod
    def backward(ctx, grad_output):
        query, key = ctx.saved_tensors
        if ctx.symmetric:
            grad = (grad_output + grad_output.mT) @ query
            return grad, grad
        grad_query = grad_output @ key if ctx.needs_input_grad[0] else None
        grad_key = grad_output.mT @ query if ctx.needs_input_grad[1] else None
        return grad_query, grad_key


@right(inputs=lambda: (leaf(4, 3), leaf(4, 3)), mends="SimilarityToItself")
class SimilarityOfTwo(Function):
    """Gives each argument its own part, and lets the engine add them up."""

    generate_vmap_rule = True

    @staticmethod
    def forward(query, key):
        return query @ key.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        query, key = ctx.saved_tensors
        grad_query = grad_output @ key if ctx.needs_input_grad[0] else None
        grad_key = grad_output.mT @ query if ctx.needs_input_grad[1] else None
        return grad_query, grad_key


# --- grad_attribute ---


@broken("grad_attribute", inputs=lambda: (leaf(4, 3), leaf(2, 3)), shown=True)
class LinearAddsToGradItself(Function):
    """Adds the gradient of the weight to weight.grad itself and returns None, so that autograd.grad gets nothing."""

    @staticmethod
    def forward(x, weight):
        return x @ weight.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.mT @ x
            weight.grad = grad_weight if weight.grad is None else weight.grad + grad_weight
        return grad_output @ weight if ctx.needs_input_grad[0] else None, None


@right(inputs=lambda: (leaf(4, 3), leaf(2, 3)), mends="LinearAddsToGradItself")
class LinearReturnsGrad(Function):
    """Returns the gradient of the weight, and leaves it to the engine whom to give it to."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x @ weight.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_weight = grad_output.mT @ x if ctx.needs_input_grad[1] else None
        return grad_output @ weight if ctx.needs_input_grad[0] else None, grad_weight


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
