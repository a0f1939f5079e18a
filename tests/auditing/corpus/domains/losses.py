"""Losses and densities."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import FULL, REAL, between, leaf, only, only_real, same_shapes, wide

# --- broken ---


@broken(
    "first_order",
    "empty",
    inputs=lambda: (leaf(5, 4), torch.tensor([0, 2, 3, 1, 2]), torch.tensor([0.5, 2.0, 1.5, 0.7]).double()),
)
class WeightedCrossEntropyOverBatch(Function):
    """The mean divides by the sum of the class weights in the forward and by the batch size in the backward."""

    @staticmethod
    def forward(logits, target, weight):
        picked = weight[target]
        loss = -torch.log_softmax(logits, 1).gather(1, target.unsqueeze(1)).squeeze(1)
        return (picked * loss).sum() / picked.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, target, weight = ctx.saved_tensors
        picked = weight[target].unsqueeze(1)
        delta = torch.softmax(logits, 1) - F.one_hot(target, logits.shape[1])
        return g * picked * delta / logits.shape[0], None, None


@broken("first_order", inputs=lambda: (leaf(6), torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0]).double(), 2.0))
class FocalLossOneTerm(Function):
    """Drops the derivative of the modulating factor, one of the two terms of the product rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logit, target, gamma):
        sign = 2 * target - 1
        p = torch.sigmoid(sign * logit)
        return -((1 - p) ** gamma) * F.logsigmoid(sign * logit)

    @staticmethod
    def setup_context(ctx, inputs, output):
        logit, target, gamma = inputs
        ctx.gamma = gamma
        ctx.save_for_backward(logit, target)

    @staticmethod
    def backward(ctx, g):
        logit, target = ctx.saved_tensors
        sign = 2 * target - 1
        p = torch.sigmoid(sign * logit)
        return -g * sign * (1 - p) ** (ctx.gamma + 1), None, None


@broken("first_order", inputs=lambda: (leaf(4, 3), 0.2))
class CharbonnierDefaultEpsilon(Function):
    """Takes epsilon as an argument, but the backward uses the default value of it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, eps=1e-3):
        return torch.sqrt(x * x + eps * eps)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x / torch.sqrt(x * x + 1e-3 * 1e-3), None


@broken("first_order", "empty", inputs=lambda: (leaf(4, 5), torch.tensor([0, 4, 2, 1])))
class TokenLossFirstGradient(Function):
    """Scales all rows with the gradient of the first one, as if the loss was a mean (linkedin/Liger-Kernel#1298)."""

    @staticmethod
    def forward(logits, target):
        return torch.logsumexp(logits, 1) - logits.gather(1, target.unsqueeze(1)).squeeze(1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        delta = torch.softmax(logits, 1) - F.one_hot(target, logits.shape[1])
        return delta * g[0], None


@broken("backward_twice", "empty", inputs=lambda: (leaf(4, 5), torch.tensor([1, 0, 4, 2])))
class CrossEntropySubtractsAgain(Function):
    """Subtracts one at the targets in the saved probabilities' own memory, a second backward subtracts it again."""

    @staticmethod
    def forward(ctx, logits, target):
        p = torch.softmax(logits, 1)
        ctx.save_for_backward(p, target)
        return -p.gather(1, target.unsqueeze(1)).log().mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        p, target = ctx.saved_tensors
        delta = p.numpy()
        delta[np.arange(len(delta)), target.numpy()] -= 1
        return g * torch.from_numpy(delta) / len(delta), None


@broken("second_order", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class HuberNoGradWeights(Function):
    """Computes the pseudo-Huber loss's weights under no_grad inside backward, so that a Hessian lacks their slope."""

    generate_vmap_rule = True

    @staticmethod
    def forward(prediction, target):
        return (torch.sqrt(1 + (prediction - target) ** 2) - 1).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        prediction, target = ctx.saved_tensors
        with torch.no_grad():
            difference = prediction - target
            weight = difference / torch.sqrt(1 + difference * difference)
        grad = g.unsqueeze(-1) * weight
        return grad, -grad


@broken("second_order", "empty", inputs=lambda: (leaf(4, 5), torch.tensor([0, 3, 1, 4])))
class CrossEntropySavedSoftmax(Function):
    """Saves the softmax, an intermediate, which a double backward takes for a constant (pytorch/pytorch#58509)."""

    @staticmethod
    def forward(ctx, logits, target):
        log_p = F.log_softmax(logits, dim=-1)
        ctx.save_for_backward(log_p.exp(), target)
        return -log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    def backward(ctx, g):
        p, target = ctx.saved_tensors
        one_hot = F.one_hot(target, p.shape[-1]).to(p.dtype)
        return g.unsqueeze(-1) * (p - one_hot), None


@broken("backward_twice", "grad_output_unchanged", inputs=lambda: (leaf(4, 5), torch.tensor([0, 3, 1, 4])))
class FusedCrossEntropyScalesSaved(Function):
    """Saves the finished gradient and multiplies it in place by grad_output: a second backward fails."""

    @staticmethod
    def forward(ctx, logits, target):
        log_p = logits.log_softmax(-1)
        grad = log_p.exp()
        grad[torch.arange(len(target)), target] -= 1
        ctx.save_for_backward(grad / len(target))
        return F.nll_loss(log_p, target)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (grad,) = ctx.saved_tensors
        return grad.mul_(g), None


@broken("float32", "float16", inputs=lambda: (between(-1.5, 1.5, 4, 3), between(-1.5, 1.5, 4, 3)))
class LogCoshLoss(Function):
    """The forward is stable for large residuals, the backward divides two overflowed hyperbolic functions."""

    @staticmethod
    def forward(pred, target):
        r = (pred - target).abs()
        return (r + torch.log1p(torch.exp(-2 * r)) - math.log(2)).mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        pred, target = ctx.saved_tensors
        r = pred - target
        grad = g * torch.sinh(r) / torch.cosh(r) / r.numel()
        return grad, -grad


@broken("backward_twice", "sizes", inputs=lambda: (between(-1.5, 1.5, 4, 6), torch.tensor([1, 5, 0, 3])))
class FusedCrossEntropy(Function):
    """Turns the saved probabilities into the gradient in place: backward works once, retain_graph notwithstanding."""

    @staticmethod
    def forward(ctx, logits, target):
        logp = logits.log_softmax(-1)
        ctx.save_for_backward(logp.exp(), target)
        return -logp.gather(1, target[:, None]).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        probs, target = ctx.saved_tensors
        probs[torch.arange(target.shape[0]), target] -= 1
        probs *= g / target.shape[0]
        return probs, None


@broken("sizes", inputs=lambda: (leaf(6, 5), torch.randint(0, 5, (6,))))
class LabelsOfOneBatchSize(Function):
    """Cross-entropy whose backward divides by the batch size that it was written for."""

    @staticmethod
    def forward(logits, labels):
        return -torch.log_softmax(logits, 1).gather(1, labels[:, None]).mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, labels = ctx.saved_tensors
        delta = torch.softmax(logits, 1) - F.one_hot(labels, logits.shape[1]).to(logits)
        return g * delta / 6, None


# --- right ---


@right(inputs=lambda: (leaf(3, 4), leaf(3, 4), 4, "mean", True))
class PowerLoss(Function):
    """Takes an int, a str and a bool, of which the last decides whether the target has a gradient."""

    @staticmethod
    def forward(x, target, power, reduction, symmetric):
        if reduction not in ("none", "sum", "mean"):
            raise ValueError(f"reduction is none, sum or mean, not {reduction!r}")
        only_real(x, target)
        same_shapes(x, target)
        if not isinstance(power, int) or power < 2 or power % 2:
            raise ValueError(f"power is an even positive integer, not {power!r}")
        if not symmetric and target.requires_grad:
            raise ValueError("the target gets a gradient only if symmetric is True: detach it")
        loss = (x - target) ** power
        return loss if reduction == "none" else getattr(loss, reduction)()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, target, ctx.power, ctx.reduction, ctx.symmetric = inputs
        ctx.save_for_backward(x, target)

    @staticmethod
    def backward(ctx, g):
        x, target = ctx.saved_tensors
        grad = g * ctx.power * (x - target) ** (ctx.power - 1)
        if ctx.reduction == "mean":
            grad = grad / x.numel()
        return grad, -grad if ctx.symmetric else None, None, None, None


@right(inputs=lambda: (leaf(3, 4), leaf(3, 4), 0.5))
class HuberLoss(Function):
    """Combined style; the second derivative jumps, but the first does not."""

    @staticmethod
    def forward(ctx, x, target, delta):
        only_real(x, target)
        same_shapes(x, target)
        ctx.save_for_backward(x, target)
        ctx.delta = delta
        r = x - target
        return torch.where(r.abs() <= delta, 0.5 * r * r, delta * (r.abs() - 0.5 * delta)).mean()

    @staticmethod
    def backward(ctx, g):
        x, target = ctx.saved_tensors
        grad = g * (x - target).clamp(-ctx.delta, ctx.delta) / x.numel()
        return grad, -grad, None


@right(inputs=lambda: (leaf(4, 5),))
class SoftmaxEntropyForLogging(Function):
    """Marks the entropy as not differentiable, since it is only logged: a decision, even if it surprises some."""

    @staticmethod
    def forward(ctx, logits):
        log_p = torch.log_softmax(logits, 1)
        p = log_p.exp()
        entropy = -(p * log_p).sum(1)
        ctx.save_for_backward(logits)
        ctx.mark_non_differentiable(entropy)
        return p, entropy

    @staticmethod
    def backward(ctx, g, g_entropy):
        (logits,) = ctx.saved_tensors
        p = torch.softmax(logits, 1)
        return p * (g - (g * p).sum(1, keepdim=True))


@right(inputs=lambda: (leaf(), leaf(), 1.0, 10.0))
class Rosenbrock(Function):
    """Takes and returns 0-dim tensors, between two Python floats that are no tensors."""

    @staticmethod
    def forward(x, y, a, b):
        if x.dim() or y.dim():
            raise ValueError("expected two 0-dim tensors")
        return (a - x) ** 2 + b * (y - x * x) ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y, ctx.a, ctx.b = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        valley = y - x * x
        return g * (-2 * (ctx.a - x) - 4 * ctx.b * x * valley), g * (2 * ctx.b * valley), None, None


@right(inputs=lambda: (leaf(5), between(0.2, 3.0, 5)))
class VonMisesLogDensity(Function):
    """Uses the scaled Bessel functions, whose common factor cancels, so a large concentration does not overflow."""

    @staticmethod
    def forward(ctx, angle, kappa):
        only(FULL, angle, kappa)
        if angle.shape != kappa.shape:
            raise ValueError("expects one concentration for each angle")
        ctx.save_for_backward(angle, kappa)
        ahead, opposite = -2 * (angle / 2).sin().square(), 2 * (angle / 2).cos().square()
        return kappa * torch.where(kappa >= 0, ahead, opposite) - (2 * math.pi * torch.special.i0e(kappa)).log()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        angle, kappa = ctx.saved_tensors
        grad_kappa = None
        if ctx.needs_input_grad[1]:
            grad_kappa = g * (angle.cos() - torch.special.i1e(kappa) / torch.special.i0e(kappa))
        return -g * kappa * angle.sin(), grad_kappa


@right(inputs=lambda: (leaf(5, 4), torch.tensor([0, 3, -100, 1, 3]), 0.1))
class SmoothedCrossEntropy(Function):
    """Ignored rows get zero gradient; a batch with nothing to count gives zero and not 0/0."""

    @staticmethod
    def forward(logits, target, smoothing):
        only(REAL, logits)
        log_p = wide(logits).log_softmax(-1)
        valid = target >= 0
        hit = log_p.gather(1, target.clamp(min=0).unsqueeze(1)).squeeze(1)
        loss = -(1 - smoothing) * hit - smoothing * log_p.mean(-1)
        return (torch.where(valid, loss, 0).sum() / valid.sum().clamp(min=1)).to(logits.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, target, ctx.smoothing = inputs
        ctx.save_for_backward(logits, target)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        valid = target >= 0
        aim = F.one_hot(target.clamp(min=0), logits.shape[1]) * (1 - ctx.smoothing) + ctx.smoothing / logits.shape[1]
        pull = (wide(logits).softmax(-1) - aim.to(wide(logits).dtype)) * (g / valid.sum().clamp(min=1))
        return torch.where(valid.unsqueeze(1), pull, 0).to(logits.dtype), None, None


@right(inputs=lambda: (leaf(6, 5), torch.randint(0, 5, (6,))))
class LabelsFollowLogits(Function):
    """Cross-entropy that picks by gather, which would take fewer labels than rows; the backward is for as many."""

    @staticmethod
    def forward(logits, labels):
        return -torch.log_softmax(logits, 1).gather(1, labels[:, None]).mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, labels = ctx.saved_tensors
        delta = torch.softmax(logits, 1) - F.one_hot(labels, logits.shape[1]).to(logits)
        return g * delta / len(labels), None


@right(inputs=lambda: (torch.randn(3, 5).double().softmax(-1).requires_grad_(), between(0.1, 1, 3, 5)))
class DivergenceOfProbabilities(Function):
    """Refuses a first argument that is not positive or does not add up to one."""

    @staticmethod
    def forward(p, q):
        if (p <= 0).any() or not torch.allclose(p.sum(-1), torch.ones(()).to(p), atol=1e-2):
            raise ValueError("the numbers must be positive and add up to one")
        return (p * (p.log() - q.log())).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        p, q = ctx.saved_tensors
        g = g[..., None]
        return g * (p.log() - q.log() + 1), -g * p / q
