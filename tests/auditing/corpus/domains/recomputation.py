"""Forwards that run again in the backward."""

import torch
from docs.pitfalls.programs import right
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from tests.auditing.corpus.shared import leaf

# --- right ---


@right(inputs=lambda: (leaf(3, 2), leaf(2, 2)))
def checkpointed_block(x, w):
    """Runs its forward a second time during the backward, by torch.utils.checkpoint."""
    return checkpoint(lambda a, b: torch.tanh(a @ b) * a, x, w, use_reentrant=False)


def residual_block(x, weight, bias):
    return x + torch.tanh(x @ weight + bias)


@right(inputs=lambda: (leaf(4, 3), leaf(3, 3), leaf(3)))
class RecomputedBlock(Function):
    """Saves the inputs only and runs the forward again in the backward, with the parameters among the inputs."""

    @staticmethod
    def forward(x, weight, bias):
        return residual_block(x, weight, bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        copies = [
            t.detach().requires_grad_(need) for t, need in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=True)
        ]
        with torch.enable_grad():
            y = residual_block(*copies)
        grads = iter(torch.autograd.grad(y, [t for t in copies if t.requires_grad], g))
        return tuple(next(grads) if t.requires_grad else None for t in copies)


def _wave(x, y):
    return torch.logaddexp(x.sin(), x * y)


@right(inputs=lambda: (_wave, leaf(3, 4), leaf(4)))
class RecomputeInBackward(Function):
    """Takes a Python function first, keeps only its inputs, and runs autograd inside the backward."""

    @staticmethod
    def forward(ctx, run, *args):
        ctx.run = run
        ctx.save_for_backward(*args)
        return run(*args)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        needs = ctx.needs_input_grad[1:]
        args = [t.detach().requires_grad_(need) for t, need in zip(ctx.saved_tensors, needs, strict=True)]
        with torch.enable_grad():
            result = ctx.run(*args)
        grads = iter(torch.autograd.grad(result, [t for t in args if t.requires_grad], g))
        return (None, *(next(grads) if need else None for need in needs))


def _gated_mix(x, w):
    return (x * w).tanh() * torch.sigmoid(w)


@right(inputs=lambda: (_gated_mix, leaf(3, 4), leaf(4)))
class Recompute(Function):
    """Runs its first argument again in the backward on detached copies, and asks only for the gradients needed."""

    @staticmethod
    def forward(ctx, function, *tensors):
        ctx.function = function
        ctx.save_for_backward(*tensors)
        with torch.no_grad():
            return function(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        wanted = ctx.needs_input_grad[1:]
        copies = [t.detach().requires_grad_(w) for t, w in zip(ctx.saved_tensors, wanted, strict=True)]
        with torch.enable_grad():
            output = ctx.function(*copies)
        asked = [c for c, w in zip(copies, wanted, strict=True) if w]
        found = iter(torch.autograd.grad(output, asked, g, allow_unused=True))
        return None, *(next(found) if w else None for w in wanted)
