"""Functions that do not run, or not in the same way each time."""

import numpy as np
import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, fixes, leaf
from torch.autograd import Function

# --- runs ---


@broken("runs", inputs=lambda: (leaf(4, 3), 0.1))
class LeakyReluForgetsItsSlope(Function):
    """Backward returns one gradient, but forward has two arguments. It must return None for the slope."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, grad_output, ctx.slope * grad_output)


@fixes(LeakyReluForgetsItsSlope)
class LeakyReluWithItsSlope(Function):
    """Backward returns None for the slope, which is no tensor."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, grad_output, ctx.slope * grad_output), None


# --- repeatable ---


@broken("repeatable", inputs=lambda: (leaf(6, 3), 0.5))
class DropPathOfItsOwnGenerator(Function):
    """Each call chooses the dropped samples with a new NumPy generator, so torch.manual_seed has no effect."""

    @staticmethod
    def forward(x, keep):
        mask = torch.from_numpy(np.random.default_rng().random((len(x), 1)) < keep).to(x) / keep
        return x * mask, mask

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        (mask,) = ctx.saved_tensors
        return grad_output * mask, None


@fixes(DropPathOfItsOwnGenerator)
class DropPathOfTheGlobalGenerator(Function):
    """The function draws from torch's global generator, which torch.manual_seed sets."""

    @staticmethod
    def forward(x, keep):
        mask = (torch.rand(len(x), 1, device=x.device) < keep).to(x) / keep
        return x * mask, mask

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        (mask,) = ctx.saved_tensors
        return grad_output * mask, None


# --- without_grad ---


@broken("without_grad", inputs=lambda: (leaf(4, 5), torch.tensor([1, 0, 4, 2])))
class SmoothsLabelsInTraining(Function):
    """The function uses requires_grad as a sign of training, so the same loss has another value under no_grad."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits, target):
        smoothing = 0.1 if logits.requires_grad else 0.0
        goal = F.one_hot(target, logits.shape[-1]).to(logits) * (1 - smoothing) + smoothing / logits.shape[-1]
        return -(goal * logits.log_softmax(-1)).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        logits, target = ctx.saved_tensors
        goal = F.one_hot(target, logits.shape[-1]).to(logits) * 0.9 + 0.1 / logits.shape[-1]
        return grad_output.unsqueeze(-1) * (logits.softmax(-1) - goal), None


@fixes(SmoothsLabelsInTraining, inputs=lambda: (leaf(4, 5), torch.tensor([1, 0, 4, 2]), 0.1))
class SmoothsLabelsAsTold(Function):
    """The caller passes the amount of smoothing, and passes zero to evaluate."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits, target, smoothing):
        goal = F.one_hot(target, logits.shape[-1]).to(logits) * (1 - smoothing) + smoothing / logits.shape[-1]
        return -(goal * logits.log_softmax(-1)).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, target, ctx.smoothing = inputs
        ctx.save_for_backward(logits, target)

    @staticmethod
    def backward(ctx, grad_output):
        logits, target = ctx.saved_tensors
        goal = F.one_hot(target, logits.shape[-1]).to(logits) * (1 - ctx.smoothing) + ctx.smoothing / logits.shape[-1]
        return grad_output.unsqueeze(-1) * (logits.softmax(-1) - goal), None, None
