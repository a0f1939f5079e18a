"""Functions that fail under what torch builds upon functions."""

import torch
from docs.pitfalls.programs import broken, fixes, leaf
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# --- checkpoint ---


@broken("checkpoint", inputs=lambda: (leaf(4, 3), leaf(3)), source="stanford-futuredata/stk#7")
class SnakeReadsSavedTensorsTwice(Function):
    """Backward reads ctx.saved_tensors once for each tensor. A checkpoint returns each saved tensor only once."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, alpha):
        return x + (alpha * x).sin().square() / alpha

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x = ctx.saved_tensors[0]
        alpha = ctx.saved_tensors[1]
        wave = (2 * alpha * x).sin()
        grad_alpha = grad_output * (x * wave / alpha - ((alpha * x).sin() / alpha).square())
        return grad_output * (1 + wave), grad_alpha.sum_to_size(alpha.shape)


@fixes(SnakeReadsSavedTensorsTwice)
class SnakeReadsSavedTensorsOnce(Function):
    """Backward reads both tensors at once."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, alpha):
        return x + (alpha * x).sin().square() / alpha

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, alpha = ctx.saved_tensors
        wave = (2 * alpha * x).sin()
        grad_alpha = grad_output * (x * wave / alpha - ((alpha * x).sin() / alpha).square())
        return grad_output * (1 + wave), grad_alpha.sum_to_size(alpha.shape)


# --- saved_tensor_hooks ---


@broken("saved_tensor_hooks", inputs=lambda: (leaf(2, 6),))
class SmoothnessReachesItsNeighbor(Function):
    """The function saves a slice, and backward reads one element after its end. If the slice is saved as a copy, for
    example on the CPU, this element is missing.
    """

    @staticmethod
    def forward(ctx, flow):
        left = flow.contiguous()[:, :-1]
        ctx.shape = flow.shape
        ctx.save_for_backward(left)
        return (flow[:, 1:] - left).square().add(1e-6).sqrt()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (left,) = ctx.saved_tensors
        right = left.as_strided(left.shape, left.stride(), left.storage_offset() + 1)
        step = right - left
        grad_step = grad_output * step / step.square().add(1e-6).sqrt()
        grad_flow = grad_output.new_zeros(ctx.shape)
        grad_flow[:, 1:] += grad_step
        grad_flow[:, :-1] -= grad_step
        return grad_flow


@fixes(SmoothnessReachesItsNeighbor)
class SmoothnessSavesAll(Function):
    """The function saves the whole tensor, and takes both slices from the saved tensor."""

    @staticmethod
    def forward(ctx, flow):
        ctx.save_for_backward(flow)
        return (flow[:, 1:] - flow[:, :-1]).square().add(1e-6).sqrt()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (flow,) = ctx.saved_tensors
        step = flow[:, 1:] - flow[:, :-1]
        grad_step = grad_output * step / step.square().add(1e-6).sqrt()
        grad_flow = torch.zeros_like(flow)
        grad_flow[:, 1:] += grad_step
        grad_flow[:, :-1] -= grad_step
        return grad_flow


# --- func_grad ---


@broken("func_grad", inputs=lambda: (leaf(4, 5),))
class RowMaximumSkipsTheSearch(Function):
    """Forward looks for the places of the maxima only if the input requires grad. Inside of torch.func, requires_grad
    is false although the caller differentiates.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        wanted = x.requires_grad
        places = x.argmax(-1) if wanted else torch.zeros(x.shape[:-1], dtype=torch.long, device=x.device)
        return x.amax(-1), places

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.columns = inputs[0].shape[-1]

    @staticmethod
    def backward(ctx, grad_output, _):
        (places,) = ctx.saved_tensors
        return nn.functional.one_hot(places, ctx.columns) * grad_output.unsqueeze(-1)


@fixes(RowMaximumSkipsTheSearch)
class RowMaximumAlwaysSearches(Function):
    """Forward does the same for every caller."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.amax(-1), x.argmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.columns = inputs[0].shape[-1]

    @staticmethod
    def backward(ctx, grad_output, _):
        (places,) = ctx.saved_tensors
        return nn.functional.one_hot(places, ctx.columns) * grad_output.unsqueeze(-1)


# --- vmap ---


@broken("vmap", inputs=lambda: (leaf(4, 3),))
class SoftmaxWithACarelessRule(Function):
    """The vmap rule leaves the new dimension in its place. If this is the last dimension, the softmax runs along it."""

    @staticmethod
    def forward(scores):
        return scores.softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return p * (grad_output - (grad_output * p).sum(-1, keepdim=True))

    @staticmethod
    def vmap(info, in_dims, scores):
        return SoftmaxWithACarelessRule.apply(scores), in_dims[0]


@fixes(SoftmaxWithACarelessRule)
class SoftmaxWithACarefulRule(Function):
    """The vmap rule moves the new dimension to the front, and returns this position."""

    @staticmethod
    def forward(scores):
        return scores.softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return p * (grad_output - (grad_output * p).sum(-1, keepdim=True))

    @staticmethod
    def vmap(info, in_dims, scores):
        return SoftmaxWithACarefulRule.apply(scores.movedim(in_dims[0], 0)), 0


# --- batched_grad ---


@broken("batched_grad", inputs=lambda: (leaf(2, 3, 3),), require=("batched_grad",))
class LogDetSkipsTheInverse(Function):
    """Backward skips the inverse if grad_output is zero. Under vmap, grad_output is a batch, so the answer can differ
    from entry to entry.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix):
        return torch.linalg.slogdet(matrix).logabsdet

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        if not grad_output.any():
            return None
        (matrix,) = ctx.saved_tensors
        return grad_output[..., None, None] * torch.linalg.inv(matrix).mH


@fixes(LogDetSkipsTheInverse)
class LogDetAlwaysInverts(Function):
    """Backward computes the same for all values of grad_output."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix):
        return torch.linalg.slogdet(matrix).logabsdet

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (matrix,) = ctx.saved_tensors
        return grad_output[..., None, None] * torch.linalg.inv(matrix).mH


# --- complex128 ---


@broken("complex128", inputs=lambda: (leaf(4, 3), leaf(3, 2)), require=("complex128",))
class LinearWithoutConjugates(Function):
    """The function uses the formulas for real numbers. It accepts complex inputs, for which these formulas lack the
    conjugates.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x @ weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_output @ weight.mT if ctx.needs_input_grad[0] else None
        return grad_x, x.mT @ grad_output if ctx.needs_input_grad[1] else None


@fixes(LinearWithoutConjugates)
class LinearWithConjugates(Function):
    """The function uses mH instead of mT. This also conjugates, and changes nothing for real numbers."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x @ weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_output @ weight.mH if ctx.needs_input_grad[0] else None
        return grad_x, x.mH @ grad_output if ctx.needs_input_grad[1] else None


# --- opcheck ---


@broken("opcheck", inputs=lambda: (leaf(2, 5, 3),))
class PoolWithAWrongFake(nn.Module):
    """The fake kernel returns a tensor like the input. The real kernel returns one token for each pair."""

    @torch.library.custom_op("corpus::pool_wrong_fake", mutates_args=())
    def pool(x: Tensor) -> Tensor:
        return nn.functional.avg_pool1d(x.mT, 2).mT.contiguous()

    @pool.register_fake
    def _(x):
        return torch.empty_like(x)

    def backward(ctx, grad_output):
        grad_x = grad_output.repeat_interleave(2, 1) / 2
        return nn.functional.pad(grad_x, (0, 0, 0, ctx.tokens - grad_x.shape[1]))

    def setup_context(ctx, inputs, output):
        ctx.tokens = inputs[0].shape[1]

    pool.register_autograd(backward, setup_context=setup_context)

    def forward(self, x):
        return self.pool(x)


@fixes(PoolWithAWrongFake)
class PoolWithARightFake(nn.Module):
    """The fake kernel returns an empty tensor with the shape of the real result."""

    @torch.library.custom_op("corpus::pool_right_fake", mutates_args=())
    def pool(x: Tensor) -> Tensor:
        return nn.functional.avg_pool1d(x.mT, 2).mT.contiguous()

    @pool.register_fake
    def _(x):
        return x.new_empty(x.shape[0], x.shape[1] // 2, x.shape[2])

    def backward(ctx, grad_output):
        grad_x = grad_output.repeat_interleave(2, 1) / 2
        return nn.functional.pad(grad_x, (0, 0, 0, ctx.tokens - grad_x.shape[1]))

    def setup_context(ctx, inputs, output):
        ctx.tokens = inputs[0].shape[1]

    pool.register_autograd(backward, setup_context=setup_context)

    def forward(self, x):
        return self.pool(x)


# --- compile ---


@broken("compile", inputs=lambda: (leaf(4, 3),))
class GeluApproximatesWhenCompiled(Function):
    """The compiled function uses a faster formula. This is another function, so compiling changes the model."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        approximate = "tanh" if torch.compiler.is_compiling() else "none"
        return nn.functional.gelu(x, approximate=approximate)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        cdf = (1 + (x / 2**0.5).erf()) / 2
        return grad_output * (cdf + x * (-(x**2) / 2).exp() / (2 * torch.pi) ** 0.5)


@fixes(GeluApproximatesWhenCompiled)
class GeluIsTheSameCompiled(Function):
    """The function uses one formula, compiled or not."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return nn.functional.gelu(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        cdf = (1 + (x / 2**0.5).erf()) / 2
        return grad_output * (cdf + x * (-(x**2) / 2).exp() / (2 * torch.pi) ** 0.5)
