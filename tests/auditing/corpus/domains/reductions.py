"""Sums, means, products and softmax along dimensions."""

import math

import numpy as np
import torch
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import REAL, between, leaf, only, wide

# --- broken ---


@broken("first_order", "second_order", inputs=lambda: (leaf(2, 3, 4), 1))
class SoftmaxLastDimInBackward(Function):
    """Normalizes over the given dimension but sums over the last one in the backward."""

    @staticmethod
    def forward(x, dim):
        return torch.softmax(x, dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return p * (g - (g * p).sum(-1, keepdim=True)), None


@broken("first_order", inputs=lambda: (leaf(6, 3),))
class MomentsBiasedVariance(Function):
    """The variance is the unbiased one; its gradient divides by n, while the gradient of the mean is right."""

    @staticmethod
    def forward(x):
        return x.mean(0), x.var(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g_mean, g_var):
        (x,) = ctx.saved_tensors
        n = x.shape[0]
        return g_mean.expand_as(x) / n + 2 * g_var * (x - x.mean(0)) / n


@broken("empty", "unneeded_gradients", inputs=lambda: (leaf(5, 3), leaf(3)))
class ResidualMeanEmptyBatch(Function):
    """The forward guards the division by the batch size, the backward does not: NaN weights after an empty batch."""

    @staticmethod
    def forward(x, weight):
        return (x @ weight).square().sum() / max(x.shape[0], 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        residual = x @ weight
        factor = 2 * g / x.shape[0]
        return factor * torch.outer(residual, weight), factor * (x.t() @ residual)


@broken("forward_mode", inputs=lambda: (leaf(3, 5),))
class SoftmaxDiagonalTangent(Function):
    """Its jvp keeps the Jacobian's diagonal only: p * (1 - p) * t instead of p * (t - sum(p * t))."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.softmax(x, dim=-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return p * (g - (p * g).sum(-1, keepdim=True))

    @staticmethod
    def jvp(ctx, t):
        (p,) = ctx.saved_tensors
        return p * (1 - p) * t


@broken("vmap", inputs=lambda: (leaf(4, 3),))
class CumulativeVmapFirstDim(Function):
    """Its vmap rule ignores in_dims and takes the batch to be dimension 0."""

    @staticmethod
    def forward(x):
        return x.cumsum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g.flip(-1).cumsum(-1).flip(-1)

    @staticmethod
    def vmap(info, in_dims, x):
        return CumulativeVmapFirstDim.apply(x), 0


@broken("float16", "bfloat16", inputs=lambda: (leaf(3, 6),))
class LogSoftmaxNotCastBack(Function):
    """Computes in float32 for half precision and forgets to cast its output back."""

    @staticmethod
    def forward(x):
        z = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        return z - torch.logsumexp(z, dim=-1, keepdim=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dtype = inputs[0].dtype
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (log_p,) = ctx.saved_tensors
        return (g - log_p.exp() * g.sum(-1, keepdim=True)).to(ctx.dtype)


@broken("special_points", inputs=lambda: (leaf(3, 4),))
class RowProductDivided(Function):
    """Divides the product by each factor, which is 0 / 0 where a factor is zero (pytorch/pytorch#773)."""

    @staticmethod
    def forward(x):
        return x.prod(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        x, product = ctx.saved_tensors
        return (g * product).unsqueeze(-1) / x


@broken("vmap", inputs=lambda: (leaf(3, 4), 0))
class CumulativeSumVmapDim(Function):
    """The vmap rule moves the batch to the front but does not shift the non-negative `dim` by one."""

    @staticmethod
    def forward(x, dim):
        return torch.cumsum(x, dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g.flip(ctx.dim).cumsum(ctx.dim).flip(ctx.dim), None

    @staticmethod
    def vmap(info, in_dims, x, dim):
        return CumulativeSumVmapDim.apply(x.movedim(in_dims[0], 0), dim), 0


@broken("unused_outputs", inputs=lambda: (leaf(3, 5),))
class MomentsEarlyReturn(Function):
    """Returns None as soon as the mean is unused, so a loss on the variance alone has no gradient at all."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.mean(-1), x.var(-1, unbiased=False)

    @staticmethod
    def backward(ctx, g_mean, g_var):
        (x,) = ctx.saved_tensors
        if g_mean is None:
            return None
        n = x.shape[-1]
        gx = (g_mean / n).unsqueeze(-1).expand_as(x)
        if g_var is not None:
            gx = gx + g_var.unsqueeze(-1) * 2 * (x - x.mean(-1, keepdim=True)) / n
        return gx


@broken("float16", "bfloat16", inputs=lambda: (leaf(3, 4),))
class RowProductDividedByFactor(Function):
    """The gradient of a product as product / factor: NaN where a factor is zero, though the gradient is finite."""

    @staticmethod
    def forward(x):
        return x.prod(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return (g * y).unsqueeze(-1) / x


@broken("inputs_unchanged", inputs=lambda: (between(-1.5, 1.5, 3, 5),))
class NumpyLogSoftmax(Function):
    """Subtracts the maximum from the NumPy view in place and so shifts the caller's logits, unseen by autograd."""

    @staticmethod
    def forward(logits):
        a = logits.detach().numpy()
        a -= a.max(axis=-1, keepdims=True)
        return torch.from_numpy(a - np.log(np.exp(a).sum(axis=-1, keepdims=True)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (logp,) = ctx.saved_tensors
        return g - logp.exp() * g.sum(-1, keepdim=True)


@broken("float32", inputs=lambda: (leaf(3, 16),))
class VarianceByMeanOfSquares(Function):
    """The mean of squares minus the square of the mean, which cancels where the mean is large."""

    @staticmethod
    def forward(x):
        return (x * x).mean(-1) - x.mean(-1) ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g[..., None] * 2 * (x - x.mean(-1, keepdim=True)) / x.shape[-1]


# --- right ---


@right(inputs=lambda: (leaf(6),))
def sum_of_the_rest(x):
    """Reads the cumulative sum through negative order, so outputs and gradients are not laid out as the input."""
    return torch.cumsum(x.flip(0), dim=0).flip(0)


@right(inputs=lambda: (leaf(3, 4), between(0.5, 2.0)))
def tempered_softmax(x, temperature):
    """A zero-dimensional tensor takes part, and a constant grad_output gives an all-zero gradient."""
    return torch.softmax(x / temperature, dim=-1)


@right(inputs=lambda: (leaf(4, 5),))
def variance_and_mean(x):
    """Two outputs, one of which is invariant to shifts; undefined for a single row."""
    return torch.var_mean(x, dim=0, correction=1)


@right(inputs=lambda: (leaf(4, 3),))
def column_products(x):
    """The gradient is the product of the other entries, which no division gives at a zero."""
    return torch.prod(x, dim=0)


@right(inputs=lambda: (leaf(3, 4),))
def log_total(x):
    """The output shifts with the input, so large inputs leave the gradient unchanged."""
    return torch.logsumexp(x, dim=(0, 1))


@right(inputs=lambda: (leaf(2, 3), leaf(1, 3), leaf(3, 3)))
def stacked_means(*tensors):
    """Takes any number of tensors and passes them on as a list."""
    return torch.cat(list(tensors)).exp().mean(dim=0)


@right(inputs=lambda: (leaf(3, 4), 1))
class RunningSumAlong(Function):
    """A hand-written vmap rule moves the batch to the front and shifts the axis by one."""

    @staticmethod
    def forward(x, dim):
        return torch.cumsum(x, dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g.flip(ctx.dim).cumsum(ctx.dim).flip(ctx.dim), None

    @staticmethod
    def vmap(info, in_dims, x, dim):
        if in_dims[0] is None:
            return RunningSumAlong.apply(x, dim), None
        x = x.movedim(in_dims[0], 0)
        if not 1 - x.ndim <= dim < x.ndim - 1:
            raise IndexError(f"no axis {dim}")
        return RunningSumAlong.apply(x, dim + 1 if dim >= 0 else dim), 0


@right(inputs=lambda: (leaf(2, 3), leaf(2, 3), leaf(2, 3)))
class AllReduceOfShards(Function):
    """Gives each simulated rank a copy of the sum; all inputs get one gradient tensor, as the operands of + do."""

    @staticmethod
    def forward(ctx, *shards):
        if not shards or any(s.shape != shards[0].shape for s in shards):
            raise ValueError("expected shards of one shape")
        total = torch.stack(shards).sum(0)
        return tuple(total.clone() for _ in shards)

    @staticmethod
    def backward(ctx, *gs):
        total = torch.stack(gs).sum(0)
        return tuple(total if needed else None for needed in ctx.needs_input_grad)


@right(inputs=lambda: (leaf(3, 4, 2), 1))
class ProductOverDim(Function):
    """A product along a dimension whose gradient never divides, so that zeros among the factors are fine."""

    @staticmethod
    def forward(ctx, x, dim):
        ctx.save_for_backward(x)
        ctx.dim = dim
        return x.prod(dim)

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].movedim(ctx.dim, -1)
        one = torch.ones_like(x[..., :1])
        before = torch.cat([one, x[..., :-1].cumprod(-1)], dim=-1)
        after = torch.cat([one, x[..., 1:].flip(-1).cumprod(-1)], dim=-1).flip(-1)
        return (g.unsqueeze(-1) * before * after).movedim(-1, ctx.dim), None


@right(inputs=lambda: (leaf(2, 3, 4), (0, -1), False))
class LogSumExpOverDims(Function):
    """Reduces over a tuple of dimensions, one of them negative, and uses its own output in the backward."""

    @staticmethod
    def forward(x, dims, keepdim):
        return torch.logsumexp(x, dims, keepdim=keepdim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dims, ctx.keepdim = inputs
        ctx.dims = sorted(d % x.dim() for d in dims)
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        x, total = ctx.saved_tensors
        if not ctx.keepdim:
            for d in ctx.dims:
                g, total = g.unsqueeze(d), total.unsqueeze(d)
        return g * torch.exp(x - total.masked_fill(total == -math.inf, 0.0)), None, None


@right(inputs=lambda: (leaf(3, 4), torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1]]).bool()))
class MaskedSoftmax(Function):
    """A row that is masked as a whole gives zeros and zero gradient, where the composite gives NaN."""

    @staticmethod
    def forward(scores, mask):
        only(REAL, scores)
        z = wide(scores).masked_fill(~mask, -torch.inf)
        return torch.where(mask.any(-1, keepdim=True), z.softmax(-1), 0).to(scores.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (saved,) = ctx.saved_tensors
        y, g_wide = wide(saved), wide(g)
        return (y * (g_wide - (g_wide * y).sum(-1, keepdim=True))).to(saved.dtype), None


@right(inputs=lambda: (leaf(3, 4, 2), (0, -1)))
class SumOver(Function):
    """Saves no tensor and returns an expanded gradient with zero strides, which the engine accepts."""

    @staticmethod
    def forward(x, dims):
        if not dims:
            raise ValueError("expects one dimension at least")
        return x.sum(dims)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dims = inputs
        ctx.shape = x.shape
        ctx.kept = [1 if d in {k % max(x.dim(), 1) for k in dims} else n for d, n in enumerate(x.shape)]

    @staticmethod
    def backward(ctx, g):
        return g.reshape(ctx.kept).expand(ctx.shape), None


@right(inputs=lambda: (leaf(3, 16),))
class VarianceByDeviations(Function):
    """Takes the mean off before it squares."""

    @staticmethod
    def forward(x):
        return (x - x.mean(-1, keepdim=True)).square().mean(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g[..., None] * 2 * (x - x.mean(-1, keepdim=True)) / x.shape[-1]
