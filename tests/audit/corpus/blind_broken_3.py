"""Broken functions by somebody who did not know the checks: one of nearly every kind."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.audit.corpus import broken


def leaf(*shape):
    """A random float64 leaf."""
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def positive(*shape):
    """A random float64 leaf in (0.5, 2.5)."""
    return (torch.rand(*shape, dtype=torch.float64) * 2 + 0.5).requires_grad_()


@broken("first_order", inputs=lambda: (leaf(4, 3),))
class GeluTanhTypedConstant(Function):
    """The backward has sqrt(2 / pi) typed as 0.797, the forward computes it: the slope is off by about 0.1 %."""

    @staticmethod
    def forward(x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        t = torch.tanh(0.797 * (x + 0.044715 * x**3))
        inner = 0.797 * (1 + 3 * 0.044715 * x * x)
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)


@broken("first_order", inputs=lambda: (leaf(3, 5), leaf(5)))
class RmsNormBackwardWithoutEps(Function):
    """The backward recomputes the inverse root mean square and forgets the epsilon that the forward adds."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3) * weight

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        r = torch.rsqrt(x.square().mean(-1, keepdim=True))
        n = x * r
        gn = g * weight
        return r * (gn - n * (gn * n).mean(-1, keepdim=True)), (g * n).sum(0)


@broken(
    "first_order", inputs=lambda: (torch.eye(3, dtype=torch.float64).mul(3).add(torch.rand(3, 3)).requires_grad_(),)
)
class LogDetWithoutTranspose(Function):
    """Returns the inverse, not its transpose: right for the covariance matrices of the author's tests only."""

    @staticmethod
    def forward(a):
        return torch.linalg.slogdet(a).logabsdet

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (a,) = ctx.saved_tensors
        return g[..., None, None] * torch.linalg.inv(a)


@broken("first_order", inputs=lambda: (leaf(2, 8), torch.randn(5, dtype=torch.complex128)))
class SpectralFilterNotConjugated(Function):
    """Filters in the frequency domain; the adjoint multiplies by the response itself and not by its conjugate."""

    @staticmethod
    def forward(x, response):
        return torch.fft.irfft(torch.fft.rfft(x) * response, n=x.shape[-1])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        (response,) = ctx.saved_tensors
        return torch.fft.irfft(torch.fft.rfft(g) * response, n=g.shape[-1]), None


@broken("first_order", inputs=lambda: (leaf(4, 3), torch.tensor([0, 2, 2, 3, 1])))
class EmbeddingRowsAssigned(Function):
    """Adds the rows' gradients with `grad[index] += g`, which keeps one of them where an index occurs twice."""

    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = table.shape[0]
        return table[index]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        grad = g.new_zeros(ctx.rows, *g.shape[1:])
        grad[index] += g
        return grad, None


@broken("first_order", inputs=lambda: (leaf(2, 7), 0.4))
class UpwindStepAdjointSameDirection(Function):
    """One upwind advection step on a ring; its adjoint must shift the other way but shifts as the forward does."""

    @staticmethod
    def forward(u, courant):
        return u - courant * (u - torch.roll(u, 1, -1))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.courant = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g - ctx.courant * (g - torch.roll(g, 1, -1)), None


@broken("first_order", inputs=lambda: (leaf(3), torch.rand(3, 3, dtype=torch.float64).mul(0.3).requires_grad_()))
class FixedPointJacobianNotTransposed(Function):
    """Deep equilibrium layer z = tanh(w z + x): the adjoint system is solved with I - J instead of its transpose."""

    @staticmethod
    def forward(x, w):
        z = torch.zeros_like(x)
        for _ in range(200):
            z = torch.tanh(w @ z + x)
        return z

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        w, z = ctx.saved_tensors
        slope = 1 - z * z
        system = torch.eye(len(z), dtype=z.dtype) - slope[:, None] * w
        v = slope * torch.linalg.solve(system, g)
        return v, torch.outer(v, z)


@broken("first_order", "unneeded_gradients", inputs=lambda: (leaf(2, 4, 3), leaf(2, 4, 3), leaf(2, 4, 3)))
class CausalAttentionKeyScaleLost(Function):
    """Attention whose backward applies the 1 / sqrt(d) scale to the gradient of the queries but not of the keys."""

    @staticmethod
    def forward(ctx, q, k, v):
        scale = q.shape[-1] ** -0.5
        scores = q @ k.mT * scale
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        p = scores.masked_fill(mask, -math.inf).softmax(-1)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return p @ v

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        q, k, v, p = ctx.saved_tensors
        gp = g @ v.mT
        gs = p * (gp - (gp * p).sum(-1, keepdim=True))
        return gs @ k * ctx.scale, gs.mT @ q, p.mT @ g


@broken("second_order", inputs=lambda: (leaf(5),))
class SoftplusWithStashedSigmoid(Function):
    """Computes the slope in the forward and saves it as a constant, so the second derivative is silently lost."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(torch.sigmoid(x))
        return F.softplus(x)

    @staticmethod
    def backward(ctx, g):
        (slope,) = ctx.saved_tensors
        return g * slope


@broken("second_order", inputs=lambda: (leaf(3, 2),))
class BumpInNumpyWithoutOnce(Function):
    """Computes its slope in NumPy and lacks once_differentiable, so a gradient penalty ignores the curvature."""

    @staticmethod
    def forward(x):
        return torch.from_numpy(np.exp(-np.square(x.detach().numpy())))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        a = x.detach().numpy()
        return g * torch.from_numpy(-2 * a * np.exp(-np.square(a)))


class _SwishBackward(Function):
    @staticmethod
    def forward(ctx, x, g):
        ctx.save_for_backward(x, g)
        s = torch.sigmoid(x)
        return g * s * (1 + x * (1 - s))

    @staticmethod
    def backward(ctx, gg):
        x, g = ctx.saved_tensors
        s = torch.sigmoid(x)
        second = s * (1 - s) * (1 + x * (1 - 2 * s))
        return gg * g * second, gg * s * (1 + x * (1 - s))


@broken("second_order", inputs=lambda: (leaf(4),))
class SwishWithBackwardFunction(Function):
    """The backward is a Function of its own whose second derivative has 1 where 2 is right (a lost term)."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return _SwishBackward.apply(x, g)


@broken("second_order", inputs=lambda: (leaf(4, 3),))
class PairEnergyDetachedForce(Function):
    """Gets the force by autograd.grad without create_graph: training on forces sees a zero second derivative."""

    @staticmethod
    def forward(ctx, r):
        ctx.save_for_backward(r)
        return PairEnergyDetachedForce.energy(r)

    @staticmethod
    def energy(r):
        i, j = torch.triu_indices(len(r), len(r), 1)
        return torch.exp(-(r[i] - r[j]).square().sum(-1)).sum()

    @staticmethod
    def backward(ctx, g):
        (r,) = ctx.saved_tensors
        with torch.enable_grad():
            r = r.detach().requires_grad_()
            (force,) = torch.autograd.grad(PairEnergyDetachedForce.energy(r), r)
        return g * force


@broken("forward_mode", inputs=lambda: (leaf(3, 4),))
class UnitVectorJvpWithoutProjection(Function):
    """The vjp projects out the radial part, the jvp divides the tangent by the norm and stops there."""

    @staticmethod
    def forward(x):
        return x / x.norm(dim=-1, keepdim=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        x, u = ctx.saved_tensors
        return (g - u * (g * u).sum(-1, keepdim=True)) / x.norm(dim=-1, keepdim=True)

    @staticmethod
    def jvp(ctx, t):
        x, _ = ctx.saved_tensors
        return t / x.norm(dim=-1, keepdim=True)


@broken("forward_mode", inputs=lambda: (leaf(5),))
class SineJvpScalesTangent(Function):
    """The jvp multiplies the caller's tangent in place, so the tangent is spoiled for every other use."""

    @staticmethod
    def forward(x):
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.cos(x)

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t.mul_(torch.cos(x))


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


@broken("vmap", inputs=lambda: (leaf(3, 3), leaf(3, 3)))
class SquaredDistanceVmapInDims(Function):
    """The vmap rule takes the batch of both inputs from the first one's in_dim: wrong for in_dims=(0, 1)."""

    @staticmethod
    def forward(x, y):
        return (x - y).square()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        d = 2 * g * (x - y)
        return d, -d

    @staticmethod
    def vmap(info, in_dims, x, y):
        if in_dims[0] is None or in_dims[1] is None:
            x = x if in_dims[0] is None else x.movedim(in_dims[0], 0)
            y = y if in_dims[1] is None else y.movedim(in_dims[1], 0)
            return SquaredDistanceVmapInDims.apply(x, y), 0
        return SquaredDistanceVmapInDims.apply(x, y), in_dims[0]


@torch.library.custom_op("corpus::sum_normalize", mutates_args=())
def _sum_normalize(x: torch.Tensor) -> torch.Tensor:
    return x / x.abs().sum()


@_sum_normalize.register_fake
def _(x):
    return torch.empty_like(x)


def _sum_normalize_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _sum_normalize_backward(ctx, g):
    (x,) = ctx.saved_tensors
    total = x.abs().sum()
    return g / total - (g * x).sum() * x.sign() / total**2


_sum_normalize.register_autograd(_sum_normalize_backward, setup_context=_sum_normalize_setup)


@_sum_normalize.register_vmap
def _(info, in_dims, x):
    return _sum_normalize(x), in_dims[0]


@broken("float16", "vmap", inputs=lambda: (leaf(4),))
def absolute_sum_normalize(x):
    """register_vmap calls the operator on the whole batch, so each sample is divided by the sum of all samples."""
    return _sum_normalize(x)


@torch.library.custom_op("corpus::heads_first", mutates_args=())
def _heads_first(x: torch.Tensor, heads: int) -> torch.Tensor:
    n, width = x.shape
    return (x * 0.5).view(n, heads, width // heads).transpose(0, 1)


@_heads_first.register_fake
def _(x, heads):
    n, width = x.shape
    return x.new_empty(heads, n, width // heads)


def _heads_first_setup(ctx, inputs, output):
    ctx.shape = inputs[0].shape


def _heads_first_backward(ctx, g):
    return g.transpose(0, 1).reshape(ctx.shape) * 0.5, None


_heads_first.register_autograd(_heads_first_backward, setup_context=_heads_first_setup)


@broken("opcheck", inputs=lambda: (leaf(3, 4), 2))
def heads_first(x, heads):
    """The fake kernel promises a contiguous result, the kernel returns a transposed one (pytorch/pytorch#177115)."""
    return _heads_first(x, heads)


@torch.library.custom_op("corpus::pair_mean", mutates_args=())
def _pair_mean(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool1d(x[None], 2, ceil_mode=True)[0]


@_pair_mean.register_fake
def _(x):
    return x.new_empty(x.shape[0], x.shape[1] // 2)


def _pair_mean_setup(ctx, inputs, output):
    ctx.size = inputs[0].shape[1]


def _pair_mean_backward(ctx, g):
    spread = g.repeat_interleave(2, 1)[:, : ctx.size] / 2
    if ctx.size % 2:
        spread = torch.cat([spread[:, :-1], g[:, -1:]], 1)
    return spread


_pair_mean.register_autograd(_pair_mean_backward, setup_context=_pair_mean_setup)


@broken("opcheck", inputs=lambda: (leaf(2, 5),))
def pair_mean(x):
    """The kernel rounds an odd length up, the fake kernel rounds it down: shapes differ under torch.compile."""
    return _pair_mean(x)


@torch.library.custom_op("corpus::center_rows", mutates_args=())
def _center_rows(x: torch.Tensor) -> torch.Tensor:
    x.sub_(x.mean(-1, keepdim=True))
    return x * 2.0


@_center_rows.register_fake
def _(x):
    return torch.empty_like(x)


def _center_rows_backward(ctx, g):
    return 2 * (g - g.mean(-1, keepdim=True))


_center_rows.register_autograd(_center_rows_backward)


@broken("input_layouts", "inputs_unchanged", inputs=lambda: (leaf(3, 4),))
def center_rows(x):
    """The operator writes to its argument though it is registered with mutates_args=()."""
    return _center_rows(x)


@broken("subsets", inputs=lambda: (leaf(4, 3), leaf(2, 3), leaf(2)))
class LinearFrozenWeightLosesBias(Function):
    """The bias gradient sits under the weight's needs_input_grad, so tuning only the biases gets None for them."""

    @staticmethod
    def forward(x, weight, bias):
        return x @ weight.T + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        gx = gw = gb = None
        if ctx.needs_input_grad[0]:
            gx = g @ weight
        if ctx.needs_input_grad[1]:
            gw = g.T @ x
            gb = g.sum(0)
        return gx, gw, gb


@broken("unneeded_gradients", inputs=lambda: (leaf(2, 3, 4), leaf(2, 4, 5)))
class BatchedProductAlwaysBoth(Function):
    """Computes both matrix products of the backward though one of the inputs is often a constant."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.bmm(a, b)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return torch.bmm(g, b.mT), torch.bmm(a.mT, g)


@broken("returned", "digits", inputs=lambda: (leaf(3, 4), positive(4)))
class GaussianWindowSinglePrecision(Function):
    """The backward casts to float32 for a kernel and returns that: float64 users get seven digits."""

    @staticmethod
    def forward(x, width):
        return torch.exp(-0.5 * (x / width).square())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, width, y = (t.float() for t in ctx.saved_tensors)
        common = g.float() * y * x / width**2
        return -common, (common * x / width).sum(0)


@broken("returned", inputs=lambda: (leaf(2, 3, 4), leaf(4)))
class BiasTanhSumLeftToEngine(Function):
    """Returns the bias gradient in the shape of the output; the engine sums it, which the author never noticed."""

    @staticmethod
    def forward(x, bias):
        return torch.tanh(x + bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        gx = g * (1 - y * y)
        return gx, gx


@broken("unused_outputs", "undefined_gradient", inputs=lambda: (positive(5), positive(5)))
class PolarNeedsBothGradients(Function):
    """Turns off materialized gradients and multiplies with None when only the radius enters the loss."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return torch.hypot(x, y), torch.atan2(y, x)

    @staticmethod
    def backward(ctx, g_radius, g_angle):
        x, y = ctx.saved_tensors
        r = torch.hypot(x, y)
        gx = g_radius * x / r - g_angle * y / r**2
        gy = g_radius * y / r + g_angle * x / r**2
        return gx, gy


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


@broken("first_order", "second_order", inputs=lambda: (leaf(3, 4),))
class NormalizeWithScaleIgnored(Function):
    """Returns the scale too, as a tensor that requires grad, and ignores the gradient that comes back for it."""

    @staticmethod
    def forward(x):
        scale = x.square().mean(-1, keepdim=True).sqrt()
        return x / scale, scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx, g, g_scale):
        n, scale = ctx.saved_tensors
        return (g - n * (g * n).mean(-1, keepdim=True)) / scale


@broken("input_layouts", "inputs_unchanged", inputs=lambda: (leaf(3, 4).clone(), 2.5))
class InplaceColumnScaleUnmarked(Function):
    """Writes into a view of its input and returns the input without mark_dirty: the input keeps its old history."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        x[..., 0].mul_(factor)
        return x

    @staticmethod
    def backward(ctx, g):
        first = g[..., :1] * ctx.factor
        return torch.cat([first, g[..., 1:]], -1), None


class _InplaceSoftplus(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.copy_(F.softplus(x))
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.sigmoid(x)


@broken("first_order", "second_order", inputs=lambda: (leaf(4, 2),))
def inplace_softplus(x):
    """The in-place softplus keeps its result in the place of the input, its backward still takes it for the input."""
    return _InplaceSoftplus.apply(x.clone())


@broken("input_layouts", "unused_saved", inputs=lambda: (leaf(3, 4),))
class RowMaximumScatterIntoCopy(Function):
    """Writes into zeros_like(x).reshape(-1), a copy when x is transposed: the gradient is silently all zeros."""

    @staticmethod
    def forward(ctx, x):
        values, index = x.max(-1)
        ctx.save_for_backward(x, index)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, index = ctx.saved_tensors
        grad = torch.zeros_like(x)
        flat = torch.arange(index.numel()) * x.shape[-1] + index.reshape(-1)
        grad.reshape(-1)[flat] = g.reshape(-1)
        return grad


@broken("grad_output_layouts", "empty", inputs=lambda: (leaf(2, 3, 4), leaf(5, 4)))
class TokenLinearViewsGradient(Function):
    """Calls .view on grad_output, which raises after a transpose of the output (NVIDIA/apex#1601)."""

    @staticmethod
    def forward(x, weight):
        return x @ weight.T

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = g @ weight
        if ctx.needs_input_grad[1]:
            gw = g.view(-1, g.shape[-1]).T @ x.reshape(-1, x.shape[-1])
        return gx, gw


@broken("input_layouts", inputs=lambda: (leaf(4, 3),))
class LeakyReluMaskInMemoryOrder(Function):
    """Saves the mask in the order of the input's memory and applies it in logical order: wrong for transposed input."""

    @staticmethod
    def forward(ctx, x):
        mask = x > 0
        dense = mask.as_strided((mask.numel(),), (1,))
        ctx.save_for_backward(dense)
        return torch.where(mask, x, 0.1 * x)

    @staticmethod
    def backward(ctx, g):
        (dense,) = ctx.saved_tensors
        flat = g.reshape(-1)
        return torch.where(dense, flat, 0.1 * flat).reshape(g.shape)


@broken("empty", inputs=lambda: (leaf(3, 2, 4),))
class SampleNormalizeReshapeMinusOne(Function):
    """The backward reshapes to (batch, -1), which is ambiguous for an empty batch that the forward accepts."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        flat = x.flatten(1)
        return (flat / (1 + flat.square().sum(1, keepdim=True)).sqrt()).view(x.shape)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        flat = x.reshape(x.shape[0], -1)
        gf = g.reshape(x.shape[0], -1)
        r = (1 + flat.square().sum(1, keepdim=True)).rsqrt()
        return (r * gf - r**3 * flat * (gf * flat).sum(1, keepdim=True)).reshape(x.shape)


@broken("empty", "sizes", inputs=lambda: (leaf(2, 3, 7), leaf(4, 3, 3)))
class StridedConvolutionRemainderLost(Function):
    """The input gradient of a stride-2 convolution lacks output_padding: it is one too short for even lengths."""

    @staticmethod
    def forward(x, weight):
        return F.conv1d(x, weight, stride=2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = F.conv_transpose1d(g, weight, stride=2)
        if ctx.needs_input_grad[1]:
            gw = torch.nn.grad.conv1d_weight(x, weight.shape, g, stride=2)
        return gx, gw


@broken("repeatable", inputs=lambda: (leaf(3, 6), 2))
class TopValuesUninitializedGradient(Function):
    """Scatters into empty_like, so entries outside the top k hold whatever the allocator left there."""

    @staticmethod
    def forward(ctx, x, k):
        values, index = torch.topk(x, k)
        ctx.save_for_backward(x, index)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, index = ctx.saved_tensors
        grad = torch.empty_like(x)
        return grad.scatter_(-1, index, g), None


@broken("float16", "bfloat16", inputs=lambda: (leaf(5),))
class LogCoshRatioOverflows(Function):
    """The forward is stable, the backward is (e^x - e^-x) / (e^x + e^-x): NaN from 89 in float32, 710 in float64."""

    @staticmethod
    def forward(x):
        a = x.abs()
        return a + torch.log1p(torch.exp(-2 * a)) - math.log(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        up, down = torch.exp(x), torch.exp(-x)
        return g * (up - down) / (up + down)


@broken("float16", inputs=lambda: (leaf(3, 8),))
class RootMeanSquareBackwardInHalf(Function):
    """The forward squares in float32, the backward in the input's dtype, where 300 squared overflows float16."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        n = x * r
        return r * (g - n * (g * n).mean(-1, keepdim=True))


@broken("special_points", inputs=lambda: (leaf(6),))
class SphericalBesselAtZero(Function):
    """sin(x) / x: the forward uses sinc, the backward divides by x squared and is NaN at zero, where 0 is right."""

    @staticmethod
    def forward(x):
        return torch.sinc(x / math.pi)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x * torch.cos(x) - torch.sin(x)) / x.square()


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


@broken("first_order", "float32", inputs=lambda: (leaf(4, 5), 0.3, 17))
class SeededDropoutOtherDtype(Function):
    """The backward draws the mask again from the seed, but in the default dtype: another mask unless x is float32."""

    @staticmethod
    def forward(x, p, seed):
        generator = torch.Generator().manual_seed(seed)
        keep = torch.rand(x.shape, generator=generator, dtype=x.dtype) >= p
        return x * keep / (1 - p)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.p, ctx.seed = inputs

    @staticmethod
    def backward(ctx, g):
        generator = torch.Generator().manual_seed(ctx.seed)
        keep = torch.rand(g.shape, generator=generator) >= ctx.p
        return g * keep / (1 - ctx.p), None, None


@broken(
    "grad_output_layouts",
    "grad_output_unchanged",
    inputs=lambda: (leaf(3, 2), 0.5),
    surrogate=lambda x, strength: -strength * x,
)
class ReversalNegatesGradInPlace(Function):
    """Gradient reversal with grad_output.neg_(): other consumers of that gradient are reversed too."""

    @staticmethod
    def forward(x, strength):
        return x * 1.0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.strength = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g.neg_().mul_(ctx.strength), None


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


@broken("global_random_state", inputs=lambda: (leaf(3, 6), 4))
class RandomSketchSeedsGlobally(Function):
    """Seeds the global generator to make its sketch reproducible: everything drawn afterwards repeats."""

    @staticmethod
    def forward(ctx, x, width):
        torch.manual_seed(1234)
        sketch = torch.randn(x.shape[-1], width).to(x.dtype) / math.sqrt(width)
        ctx.save_for_backward(sketch)
        return x @ sketch

    @staticmethod
    def backward(ctx, g):
        (sketch,) = ctx.saved_tensors
        return g @ sketch.T, None


@broken("global_settings", inputs=lambda: (leaf(3, 4), leaf(4, 2)))
class PreciseProductLeavesAutocastOff(Function):
    """Switches CPU autocast off for one precise product and never on again: the rest of the region runs in float32."""

    @staticmethod
    def forward(x, w):
        torch.set_autocast_enabled("cpu", False)
        return x @ w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = g @ w.T if ctx.needs_input_grad[0] else None
        gw = x.T @ g if ctx.needs_input_grad[1] else None
        return gx, gw


@broken("independent_calls", inputs=lambda: (leaf(6),))
class SoftThresholdMaskOnClass(Function):
    """Keeps the mask on the class: a second call before the backward replaces the first one's mask."""

    mask = None

    @staticmethod
    def forward(x):
        SoftThresholdMaskOnClass.mask = x.abs() > 0.5
        return F.softshrink(x, 0.5)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * SoftThresholdMaskOnClass.mask


_ROTATIONS = {}


def _rotation(length, width, dtype):
    if (length, width) not in _ROTATIONS:
        step = 100.0 ** (-torch.arange(width, dtype=dtype) / width)
        angle = torch.arange(length, dtype=dtype)[:, None] * step
        _ROTATIONS[length, width] = angle.cos(), angle.sin()
    return _ROTATIONS[length, width]


@broken("float32", "float16", inputs=lambda: (leaf(2, 5, 6),))
class RotaryTableIgnoresDtype(Function):
    """Caches the rotation by size only: the first caller's dtype decides result dtype and accuracy for all others."""

    @staticmethod
    def rotate(x, sign):
        cos, sin = _rotation(x.shape[-2], x.shape[-1] // 2, x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - sign * b * sin, sign * a * sin + b * cos], -1)

    @staticmethod
    def forward(x):
        return RotaryTableIgnoresDtype.rotate(x, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return RotaryTableIgnoresDtype.rotate(g, -1)


@broken("later_writes", "in_place_consumer", inputs=lambda: (leaf(4, 3),))
class ExponentialOutputOnContext(Function):
    """Keeps its output as an attribute of ctx: a cycle that waits for the garbage collector (pytorch/pytorch#25340)."""

    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.y = y
        return y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.y


@broken("later_writes", "tensors_on_ctx", inputs=lambda: (leaf(4), leaf(4)))
class ProductInputsOnContext(Function):
    """Keeps its inputs as attributes of ctx: an in-place change before the backward is used without an error."""

    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.y = inputs

    @staticmethod
    def backward(ctx, g):
        return g * ctx.y, g * ctx.x


@broken("saved_tensor_hooks", inputs=lambda: (leaf(3, 4),))
class ScaleTableByPointer(Function):
    """Looks up a factor by the address of a saved tensor, which differs once saved-tensor hooks offload it."""

    @staticmethod
    def forward(ctx, x):
        peak = float(x.abs().max()) if x.numel() else 0.0
        exponent = 2.0 ** math.ceil(math.log2(peak)) if peak > 0 else 1.0
        ctx.save_for_backward(x)
        ctx.exponents = {x.data_ptr(): exponent}
        return x.square() / 2

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        exponent = ctx.exponents[x.data_ptr()]
        return g * ((x / exponent) * exponent)


@broken("compile", inputs=lambda: (leaf(3, 4),))
def gelu_fast_when_compiled(x):
    """Takes the tanh approximation under torch.compile and the exact function in eager mode."""
    return F.gelu(x, approximate="tanh" if torch.compiler.is_compiling() else "none")


@broken("module_copies", "vmap", inputs=lambda: (leaf(4, 3),))
class BatchCenterTracksGraph(nn.Module):
    """Updates its running mean without detach: the buffer keeps every past graph alive and cannot be deep-copied."""

    def __init__(self):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(3, dtype=torch.float64))

    def forward(self, x):
        mean = x.mean(0)
        self.running_mean = 0.9 * self.running_mean + 0.1 * mean
        return x - mean


@broken("module_tensors", inputs=lambda: (leaf(4, 3),))
class LearnedGainPlainTensor(nn.Module):
    """Holds its calibrated gain as a plain attribute: state_dict loses it and .to(dtype) does not convert it."""

    def __init__(self):
        super().__init__()
        self.gain = torch.rand(3, dtype=torch.float64) + 0.5
        self.shift = nn.Parameter(torch.zeros(3, dtype=torch.float64))

    def forward(self, x):
        return torch.tanh(x * self.gain + self.shift)


@broken(
    "first_order",
    inputs=lambda: (torch.randn(3, 5, dtype=torch.float64).mul(1.5).requires_grad_(),),
    surrogate=lambda x: x.clamp(-1, 1),
)
class FakeQuantizeMaskFromOutput(Function):
    """Straight-through rounding whose clipping mask is taken from the clipped output, so nothing is ever clipped."""

    @staticmethod
    def forward(x):
        return torch.round(x.clamp(-1, 1) * 8) / 8

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (y.abs() <= 1)


@broken("first_order", inputs=lambda: (leaf(4),), gradient="approximate", tolerance=0.1)
class EvolutionStrategyPairsNotHalved(Function):
    """Antithetic evolution strategy: the difference of each pair is not divided by two, so the estimate is doubled."""

    sigma = 0.05

    @staticmethod
    def black_box(x):
        return torch.from_numpy(np.asarray(np.sin(x.detach().numpy()).sum(-1)))

    @staticmethod
    def forward(x):
        return EvolutionStrategyPairsNotHalved.black_box(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        cls = EvolutionStrategyPairsNotHalved
        noise = torch.randn(20000, x.shape[-1], dtype=x.dtype)
        pairs = cls.black_box(x + cls.sigma * noise) - cls.black_box(x - cls.sigma * noise)
        return g * (pairs[:, None] * noise).mean(0) / cls.sigma


@broken("repeatable", inputs=lambda: (leaf(4, 5),))
class DropoutSeededByCallCounter(Function):
    """Seeds its mask by a call counter: the second forward that checkpointing runs draws another mask."""

    calls = 0

    @staticmethod
    def forward(ctx, x):
        cls = DropoutSeededByCallCounter
        cls.calls += 1
        generator = torch.Generator().manual_seed(cls.calls)
        keep = (torch.rand(x.shape, generator=generator) >= 0.5).to(x.dtype) * 2
        ctx.save_for_backward(keep)
        return x * keep

    @staticmethod
    def backward(ctx, g):
        (keep,) = ctx.saved_tensors
        return g * keep
