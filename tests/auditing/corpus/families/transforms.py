"""Functions that fail under what torch builds upon functions."""

import torch
from docs.pitfalls.programs import broken, leaf, right
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import between

# --- vmap ---


@broken("vmap", inputs=lambda: (leaf(4, 3), leaf(3, 2)))
class ProjectionBatchesBoth(Function):
    """The rule takes it for granted that input and weight are both batched; one weight for all raises."""

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

    @staticmethod
    def vmap(info, in_dims, x, weight):
        x, weight = x.movedim(in_dims[0], 0), weight.movedim(in_dims[1], 0)
        return ProjectionBatchesBoth.apply(x, weight), 0


@broken("vmap", inputs=lambda: (leaf(5), between(1, 2)))
class SaturationIgnoresInDims(Function):
    """The rule hands on batched tensors as they are: the batch of limits meets the entries of the input."""

    @staticmethod
    def forward(x, limit):
        return limit * torch.tanh(x / limit)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, limit = ctx.saved_tensors
        t = torch.tanh(x / limit)
        grad_limit = grad_output * (t - x / limit * (1 - t * t))
        return grad_output * (1 - t * t), grad_limit.sum_to_size(limit.shape)

    @staticmethod
    def vmap(info, in_dims, x, limit):
        return SaturationIgnoresInDims.apply(x, limit), 0


@broken("vmap", inputs=lambda: (leaf(4, 2),))
class TanhFindsTheBatchBySize(Function):
    """The rule takes the first dim that is as large as the batch for the batch."""

    @staticmethod
    def forward(x):
        return x.tanh().cumsum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output.flip(0).cumsum(0).flip(0) * (1 - x.tanh() ** 2)

    @staticmethod
    def vmap(info, in_dims, x):
        dim = x.shape.index(info.batch_size)
        return torch.stack([TanhFindsTheBatchBySize.apply(each) for each in x.unbind(dim)]), 0


@right(inputs=lambda: (leaf(4, 2),))
class TanhFindsTheBatchByInDims(TanhFindsTheBatchBySize):
    """The rule takes each element along the dim that in_dims names."""

    @staticmethod
    def vmap(info, in_dims, x):
        return torch.stack([TanhFindsTheBatchByInDims.apply(each) for each in x.unbind(in_dims[0])]), 0


# --- batched_grad ---


@broken("batched_grad", "backward_twice", inputs=lambda: (leaf(2, 5), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])))
class MaskedMeanDividesItsMask(Function):
    """Divides the weights in place, once for each backward: a Jacobian gets other rows at once than in turn."""

    @staticmethod
    def forward(ctx, x, mask):
        ctx.weights, ctx.counts = mask.to(x), mask.sum(-1, keepdim=True)
        return (x * ctx.weights / ctx.counts).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        ctx.weights /= ctx.counts
        return grad_output.unsqueeze(-1) * ctx.weights, None


# --- opcheck ---


@broken("opcheck", "inputs_unchanged", inputs=lambda: (leaf(2, 4, 4),))
class SoftmaxWithoutMutatesArgs(nn.Module):
    """The operator subtracts the maximum from its argument in place and declares that it mutates nothing."""

    @torch.library.custom_op("corpus::softmax_hidden_write", mutates_args=())
    def softmax(scores: Tensor) -> Tensor:
        weights = scores.sub_(scores.amax(-1, keepdim=True)).exp()
        return weights / weights.sum(-1, keepdim=True)

    @softmax.register_fake
    def _(scores):
        return torch.empty_like(scores)

    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return p * (grad_output - (grad_output * p).sum(-1, keepdim=True))

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    softmax.register_autograd(backward, setup_context=setup_context)

    def forward(self, scores):
        return self.softmax(scores)


class _Gelu(Function):
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


@broken("opcheck", inputs=lambda: (leaf(4, 3),))
class GeluWithItsGradientInTheKernel(nn.Module):
    """The kernel for the CPU calls an autograd function, which is below the level where gradients are made."""

    library = torch.library.Library("corpus", "FRAGMENT")
    library.define("gelu_in_kernel(Tensor x) -> Tensor")
    library.impl("gelu_in_kernel", _Gelu.apply, "CPU")
    library.impl("gelu_in_kernel", torch.empty_like, "Meta")

    def forward(self, x):
        return torch.ops.corpus.gelu_in_kernel(x)


@broken("opcheck", inputs=lambda: (leaf(4, 3),))
class ClampLooksBeforeItMasks(nn.Module):
    """The gradient asks whether anything was clamped at all, which a compiler, that has no numbers, cannot answer."""

    @torch.library.custom_op("corpus::clamp_looks", mutates_args=())
    def clamp(x: Tensor) -> Tensor:
        return x.clamp(-1, 1)

    @clamp.register_fake
    def _(x):
        return torch.empty_like(x)

    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        inside = x.abs() <= 1
        return grad_output if inside.all() else grad_output * inside

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    clamp.register_autograd(backward, setup_context=setup_context)

    def forward(self, x):
        return self.clamp(x)


# --- a batch of one ---


@broken("vmap", inputs=lambda: (leaf(3, 4),))
class RowNormsSqueezed(Function):
    """Its rule for vmap squeezes all dims of size one, and so loses a batch of one."""

    @staticmethod
    def forward(x):
        return x.square().sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * grad_output.unsqueeze(-1) * x

    @staticmethod
    def vmap(info, in_dims, x):
        return RowNormsSqueezed.apply(x.movedim(in_dims[0], 0)).squeeze(), 0
