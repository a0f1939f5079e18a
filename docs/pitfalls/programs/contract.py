"""Functions that do not keep what torch asks of a backward."""

import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, fixes, leaf
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# --- returned ---


@broken("returned", inputs=lambda: (leaf(4, 3), leaf(3), leaf(3)))
class ScaleShiftLeavesTheSum(Function):
    """Forward broadcasts scale and shift over the batch, but backward returns their gradients in the shape of the
    batch.
    """

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


@fixes(ScaleShiftLeavesTheSum)
class ScaleShiftSums(Function):
    """Backward sums each gradient to the shape of its input."""

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


# --- subsets ---


@broken("subsets", inputs=lambda: (leaf(4, 3), leaf(2, 3)))
class LinearSavesTheWrongOne(Function):
    """The function saves the weight if the weight needs a gradient. But the gradient of the input needs the weight."""

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


@fixes(LinearSavesTheWrongOne)
class LinearSavesTheRightOne(Function):
    """The function saves each factor if the other factor needs a gradient."""

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


# --- unused_outputs ---


@broken("unused_outputs", inputs=lambda: (leaf(4, 3), leaf(3)))
class ActNormNeedsBothGradients(Function):
    """The function asks for None instead of zeros, but backward computes with both gradients. A loss may use only one
    output.
    """

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


@fixes(ActNormNeedsBothGradients)
class ActNormNeedsNoGradient(Function):
    """Backward leaves out the terms of an output that the loss does not use."""

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


# --- undefined_gradient ---


@broken("undefined_gradient", inputs=lambda: (leaf(4, 3),))
class SoftsignWithoutMaterializing(Function):
    """To save memory, the function asks for None instead of zeros, but backward then multiplies by this None."""

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


@fixes(SoftsignWithoutMaterializing)
class SoftsignReturnsNone(Function):
    """Backward returns None if there is no grad_output."""

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


# --- backward_twice ---


@broken("backward_twice", inputs=lambda: (leaf(4, 5), torch.tensor([1, 0, 4, 2])), source="unslothai/unsloth#5002")
class CrossEntropyReusesItsBuffer(Function):
    """Backward writes the gradient into the saved probabilities, so a second backward no longer finds the
    probabilities.
    """

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


@fixes(CrossEntropyReusesItsBuffer)
class CrossEntropyKeepsItsBuffer(Function):
    """Backward computes the gradient in new memory."""

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


# --- independent_calls ---


@broken("independent_calls", inputs=lambda: (leaf(4, 5),))
class SoftmaxOnTheClass(Function):
    """The function keeps its output on the class. The next call overwrites this output before the backward of the first
    call has run.
    """

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


@fixes(SoftmaxOnTheClass)
class SoftmaxOnItsContext(Function):
    """The function saves the output on the ctx of the call."""

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


# --- same_tensor_twice ---


@broken("same_tensor_twice", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class SimilarityToItself(Function):
    """Backward treats x against x as a special case, and puts the factor of two into both gradients."""

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


@fixes(SimilarityToItself)
class SimilarityOfTwo(Function):
    """Backward returns each argument its own part, and the engine adds the parts."""

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


@broken("grad_attribute", inputs=lambda: (leaf(4, 3), leaf(2, 3)))
class LinearAddsToGradItself(Function):
    """Backward adds the gradient of the weight to weight.grad and returns None, so autograd.grad gets nothing."""

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


@fixes(LinearAddsToGradItself)
class LinearReturnsGrad(Function):
    """Backward returns the gradient of the weight, and the engine passes it to the caller."""

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
