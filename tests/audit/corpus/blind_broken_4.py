"""Broken functions by somebody who did not know the checks: from domains that nobody thinks of first."""

import math

import numpy as np
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.audit.corpus import broken


def rand(*shape, low=-1.5, high=1.5, grad=True):
    return (torch.rand(shape, dtype=torch.float64) * (high - low) + low).requires_grad_(grad)


@broken("first_order", inputs=lambda: (rand(5, 3, low=-0.9, high=0.9),))
class MuLawCompanding(Function):
    """The derivative divides by log(mu) where the forward divides by log(1 + mu): 0.07 % too large at mu = 255."""

    MU = 255.0

    @staticmethod
    def forward(x):
        return x.sign() * torch.log1p(MuLawCompanding.MU * x.abs()) / math.log1p(MuLawCompanding.MU)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        mu = MuLawCompanding.MU
        return g * mu / ((1 + mu * x.abs()) * math.log(mu))


@broken("first_order", inputs=lambda: (rand(4, 4), rand(4, 3)))
class RotateByQuaternion(Function):
    """The forward normalizes the quaternion, the backward forgets to take the radial part out of its gradient."""

    @staticmethod
    def forward(q, v):
        q = q / q.norm(dim=-1, keepdim=True)
        w, u = q[:, :1], q[:, 1:]
        t = 2 * torch.linalg.cross(u, v)
        return v + w * t + torch.linalg.cross(u, t)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        q, v = ctx.saved_tensors
        norm = q.norm(dim=-1, keepdim=True)
        w, u = (q / norm)[:, :1], (q / norm)[:, 1:]
        cross = torch.linalg.cross
        t = 2 * cross(u, v)
        grad_t = w * g + cross(g, u)
        grad_w = (g * t).sum(-1, keepdim=True)
        grad_u = cross(t, g) + 2 * cross(v, grad_t)
        grad_v = g + 2 * cross(grad_t, u)
        return torch.cat([grad_w, grad_u], dim=-1) / norm, grad_v


@broken(
    "second_order",
    "special_points",
    inputs=lambda: (rand(5, low=0.8, high=1.3), rand(5, low=0.8, high=1.3), rand(5, low=0.2, high=0.5)),
)
class BlackScholesCall(Function):
    """Delta and vega are computed in forward and saved as constants, so gamma and volga come out as zero."""

    @staticmethod
    def forward(ctx, spot, strike, sigma):
        d1 = (spot / strike).log() / sigma + sigma / 2
        d2 = d1 - sigma
        normal = torch.distributions.Normal(0.0, 1.0, validate_args=False)
        delta, weight = normal.cdf(d1), normal.cdf(d2)
        vega = spot * torch.exp(-d1 * d1 / 2) / math.sqrt(2 * math.pi)
        ctx.save_for_backward(delta, weight, vega)
        return spot * delta - strike * weight

    @staticmethod
    def backward(ctx, g):
        delta, weight, vega = ctx.saved_tensors
        return g * delta, -g * weight, g * vega


@broken("grad_output_unchanged", inputs=lambda: (rand(3, 6), rand(low=0.2, high=0.8)))
class OnePoleFilter(Function):
    """The adjoint recursion of y[t] = x[t] + a y[t - 1] runs in place on grad_output, which belongs to the engine."""

    @staticmethod
    def forward(x, a):
        rows = [x[:, 0]]
        for t in range(1, x.shape[1]):
            rows.append(x[:, t] + a * rows[-1])
        return torch.stack(rows, dim=1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a, y = ctx.saved_tensors
        adjoint = g.contiguous()
        for t in range(g.shape[1] - 2, -1, -1):
            adjoint[:, t] += a * adjoint[:, t + 1]
        return adjoint, (adjoint[:, 1:] * y[:, :-1]).sum()


def rand_complex(*shape):
    return torch.complex(rand(*shape, grad=False), rand(*shape, grad=False)).requires_grad_()


@broken("first_order", "second_order", inputs=lambda: (rand_complex(3, 4), rand_complex(4)))
class EqualizeSubcarriers(Function):
    """The gradient of the response is conjugated as it must be, that of the received symbols is not."""

    @staticmethod
    def forward(received, response):
        return received / response

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, g):
        response, symbols = ctx.saved_tensors
        grad_response = -(g * (symbols / response).conj()).sum(0)
        return g / response, grad_response


@broken("first_order", "float16", inputs=lambda: (rand(4, 5, low=0.0, high=1.0),))
class SinkhornCost(Function):
    """Returns <P, C> but differentiates as if P did not move with C, which is true of the entropic objective only."""

    EPSILON = 0.5

    @staticmethod
    def forward(ctx, cost):
        n, m = cost.shape
        kernel = torch.exp(-cost / SinkhornCost.EPSILON)
        u = cost.new_full((n,), 1.0 / n)
        v = cost.new_full((m,), 1.0 / m)
        for _ in range(300):
            u = 1.0 / n / (kernel @ v)
            v = 1.0 / m / (kernel.t() @ u)
        plan = u[:, None] * kernel * v
        ctx.save_for_backward(plan)
        return (plan * cost).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (plan,) = ctx.saved_tensors
        return g * plan


@broken(
    "first_order",
    "second_order",
    inputs=lambda: (rand(8, 2), torch.tensor([[3, 1], [0, 5], [7, 2], [3, 1], [6, 6], [2, 4]])),
)
class HashGridLookup(Function):
    """Writes the gradient of hashed grid features by assignment, so of two cells in one slot only one counts."""

    @staticmethod
    def forward(table, cells):
        return table[(cells[:, 0] ^ (cells[:, 1] * 2654435761)) % table.shape[0]]

    @staticmethod
    def setup_context(ctx, inputs, output):
        table, cells = inputs
        ctx.rows = table.shape[0]
        ctx.save_for_backward(cells)

    @staticmethod
    def backward(ctx, g):
        (cells,) = ctx.saved_tensors
        slot = (cells[:, 0] ^ (cells[:, 1] * 2654435761)) % ctx.rows
        grad = g.new_zeros(ctx.rows, g.shape[1])
        grad[slot] = g
        return grad, None


@broken("subsets", "sizes", inputs=lambda: (rand(3, 4), rand(3, 2), rand(2, 4), rand(2, 2)))
class ElmanCell(Function):
    """Guards the gradient of the hidden state with the flag of the input, so it is lost when the input is data."""

    @staticmethod
    def forward(x, h, w, u):
        return torch.tanh(x @ w.t() + h @ u.t())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        x, h, w, u, y = ctx.saved_tensors
        pre = g * (1 - y * y)
        grad_x = grad_h = grad_w = grad_u = None
        if ctx.needs_input_grad[0]:
            grad_x = pre @ w
            grad_h = pre @ u
        if ctx.needs_input_grad[2]:
            grad_w = pre.t() @ x
        if ctx.needs_input_grad[3]:
            grad_u = pre.t() @ h
        return grad_x, grad_h, grad_w, grad_u


@broken("float32", inputs=lambda: (rand(6, low=0.2, high=3.0),))
class Log1mExp(Function):
    """The forward is careful with expm1, the backward divides by 1 - exp(-x), which loses float32 digits at small x."""

    @staticmethod
    def forward(x):
        return torch.log(-torch.expm1(-x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        decay = torch.exp(-x)
        return g * decay / (1 - decay)


@broken("float32", "float16", inputs=lambda: (rand(4, 3), rand(4, 3)))
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


@broken("special_points", inputs=lambda: (rand(7),))
class SphericalBesselZero(Function):
    """sin(x) / x is guarded at zero in forward; its derivative, which is zero there, is left to 0 / 0."""

    @staticmethod
    def forward(x):
        safe = torch.where(x == 0, torch.ones_like(x), x)
        return torch.where(x == 0, torch.ones_like(x), safe.sin() / safe)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (x.cos() - y) / x


@broken("unused_outputs", "undefined_gradient", inputs=lambda: (rand(4, low=0.3), rand(4, low=0.3)))
class CartesianToPolar(Function):
    """Asks for undefined gradients as None and then multiplies them: a loss on the radius alone raises TypeError."""

    @staticmethod
    def forward(re, im):
        return torch.hypot(re, im), torch.atan2(im, re)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, output[0])

    @staticmethod
    def backward(ctx, g_radius, g_angle):
        re, im, radius = ctx.saved_tensors
        along, across = g_radius / radius, g_angle / (radius * radius)
        return along * re - across * im, along * im + across * re


@broken("first_order", "second_order", inputs=lambda: (rand(3, 5), rand(5)))
class RMSNormWithScale(Function):
    """Also returns the root mean square, a differentiable output, whose gradient the backward drops."""

    @staticmethod
    def forward(x, weight):
        rms = (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
        return x / rms * weight, rms

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx, g, _):
        x, weight, rms = ctx.saved_tensors
        y = x / rms
        gw = g * weight
        return (gw - y * (gw * y).mean(-1, keepdim=True)) / rms, (g * y).sum(0)


@broken("input_layouts", "inputs_unchanged", inputs=lambda: (rand(5, low=-9.0, high=9.0).clone(),))
class WrapPhaseInPlace(Function):
    """Wraps the phase in place and returns the same tensor without mark_dirty."""

    @staticmethod
    def forward(ctx, phase):
        return phase.add_(math.pi).remainder_(2 * math.pi).sub_(math.pi)

    @staticmethod
    def backward(ctx, g):
        return g


@broken("grad_output_layouts", inputs=lambda: (rand(2, 3, 3, 2),))
class UpsampleNearestTwice(Function):
    """Merges batch and channel of grad_output with view, which raises when the next layer works channels-last."""

    @staticmethod
    def forward(x):
        return x.repeat_interleave(2, dim=-1).repeat_interleave(2, dim=-2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, g):
        b, c, h, w = ctx.shape
        return g.view(b * c, h, 2, w, 2).sum((2, 4)).reshape(ctx.shape)


@broken("input_layouts", inputs=lambda: (rand(11),))
class FrameSignal(Function):
    """Cuts overlapping frames with as_strided and unit strides, so every second sample of a stereo file is wrong."""

    SIZE, HOP = 4, 2

    @staticmethod
    def forward(signal):
        size, hop = FrameSignal.SIZE, FrameSignal.HOP
        return signal.as_strided(((signal.shape[0] - size) // hop + 1, size), (hop, 1)).clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.length = inputs[0].shape[0]

    @staticmethod
    def backward(ctx, g):
        size, hop = FrameSignal.SIZE, FrameSignal.HOP
        index = torch.arange(g.shape[0])[:, None] * hop + torch.arange(size)
        return g.new_zeros(ctx.length).index_add(0, index.flatten(), g.reshape(-1))


@broken("empty", "unneeded_gradients", inputs=lambda: (rand(3, 2, 4), rand(5, 8)))
class FlattenAndProject(Function):
    """The forward flattens to an explicit size, the backward to -1, which an empty batch cannot resolve."""

    @staticmethod
    def forward(x, w):
        return x.reshape(x.shape[0], w.shape[1]) @ w.t()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return (g @ w).reshape(x.shape), g.t() @ x.reshape(x.shape[0], -1)


@broken("sizes", "unneeded_gradients", inputs=lambda: (rand(4, 3), rand(3, 5), rand(4, 5)))
class BilinearScore(Function):
    """Squeezes all sizes of one out of a gradient, so a batch of one comes back with a dimension too few."""

    @staticmethod
    def forward(a, m, b):
        return ((a @ m) * b).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, m, b = ctx.saved_tensors
        gb = g.unsqueeze(-1) * b
        grad_a = torch.bmm(m.expand(g.shape[0], -1, -1), gb.unsqueeze(-1)).squeeze()
        return grad_a, a.t() @ gb, g.unsqueeze(-1) * (a @ m)


@broken("unwritten_memory", "repeatable", "first_order", inputs=lambda: (rand(3, 5, 2), torch.tensor([5, 2, 3])))
class MeanOverTokens(Function):
    """Fills the gradient of the valid tokens into an empty tensor; what the padding gets is whatever was there."""

    @staticmethod
    def forward(hidden, lengths):
        return torch.stack([row[:n].sum(0) / max(n, 1) for row, n in zip(hidden, lengths.tolist(), strict=True)])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape
        ctx.lengths = inputs[1].tolist()

    @staticmethod
    def backward(ctx, g):
        grad = torch.empty(ctx.shape, dtype=g.dtype, device=g.device)
        for i, n in enumerate(ctx.lengths):
            grad[i, :n] = g[i] / max(n, 1)
        return grad, None


@broken("backward_twice", "sizes", inputs=lambda: (rand(4, 6), torch.tensor([1, 5, 0, 3])))
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


_SPECTRA = {}


@broken("grad_output_layouts", "empty", inputs=lambda: (rand(3, 16), rand(5)))
class CachedSpectrumFilter(Function):
    """Caches the spectrum of the taps by address and shape, so taps changed in place keep filtering as before."""

    @staticmethod
    def forward(x, taps):
        size = x.shape[-1] + taps.shape[0] - 1
        key = (taps.data_ptr(), taps.shape[0], taps.stride(), taps.dtype, size)
        if key not in _SPECTRA:
            _SPECTRA[key] = torch.fft.rfft(taps.detach(), size)
        return torch.fft.irfft(torch.fft.rfft(x, size) * _SPECTRA[key], size)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, taps = ctx.saved_tensors
        size = g.shape[-1]
        spectrum = torch.fft.rfft(g, size)
        grad_x = torch.fft.irfft(spectrum * torch.fft.rfft(taps, size).conj(), size)[..., : x.shape[-1]]
        grad_taps = torch.fft.irfft(spectrum * torch.fft.rfft(x, size).conj(), size)[..., : taps.shape[0]].sum(0)
        return grad_x, grad_taps


@broken("global_random_state", inputs=lambda: (rand(4, 6),))
class RandomSignProjection(Function):
    """Seeds the global generator to get the same projection each time; everything random after it repeats itself."""

    @staticmethod
    def matrix(x, size):
        torch.manual_seed(1234)
        return torch.randn(size, 3, dtype=torch.float64).sign().to(x) / math.sqrt(3)

    @staticmethod
    def forward(x):
        return x @ RandomSignProjection.matrix(x, x.shape[-1])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.size = inputs[0].shape[-1]

    @staticmethod
    def backward(ctx, g):
        return g @ RandomSignProjection.matrix(g, ctx.size).t()


@broken("sizes", "later_writes", inputs=lambda: (rand(3, low=-0.5, high=0.5), rand(3, 3, low=-0.3, high=0.3)))
class EquilibriumLayer(Function):
    """Keeps its output as an attribute of ctx: output, node and ctx wait for the garbage collector."""

    @staticmethod
    def forward(ctx, x, w):
        z = torch.zeros_like(x)
        for _ in range(120):
            z = torch.tanh(w @ z + x)
        ctx.save_for_backward(w)
        ctx.z = z
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (w,) = ctx.saved_tensors
        slope = 1 - ctx.z * ctx.z
        system = torch.eye(w.shape[0], dtype=w.dtype, device=w.device) - slope[:, None] * w
        adjoint = torch.linalg.solve(system.t(), g) * slope
        return adjoint, torch.outer(adjoint, ctx.z)


_WORKSPACE = {}


@broken("independent_calls", "unneeded_gradients", inputs=lambda: (rand(4, 2), rand(3, 2)))
class SquaredDistances(Function):
    """Writes the result into a buffer kept per shape and returns it: the next call overwrites the previous result."""

    @staticmethod
    def forward(a, b):
        key = (a.shape[0], b.shape[0], a.dtype)
        if key not in _WORKSPACE:
            _WORKSPACE[key] = a.new_empty(key[:2])
        return torch.sum((a[:, None] - b).square(), -1, out=_WORKSPACE[key]).detach()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grad_a = 2 * (g.sum(1, keepdim=True) * a - g @ b)
        grad_b = 2 * (g.sum(0)[:, None] * b - g.t() @ a)
        return grad_a, grad_b


@broken("unneeded_gradients", inputs=lambda: (rand(6, 5), rand(4, 5), rand(2, 5), rand(4, 2)))
class LowRankAdaptedLinear(Function):
    """Computes the full gradient of the frozen base weight, the one thing that adapters are there to avoid."""

    @staticmethod
    def forward(x, w, down, up):
        return x @ w.t() + (x @ down.t()) @ up.t()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w, down, up = ctx.saved_tensors
        inner = g @ up
        grad_x = g @ w + inner @ down if ctx.needs_input_grad[0] else None
        grad_w = g.t() @ x
        grad_down = inner.t() @ x if ctx.needs_input_grad[2] else None
        grad_up = g.t() @ (x @ down.t()) if ctx.needs_input_grad[3] else None
        return grad_x, grad_w, grad_down, grad_up


@broken("unused_saved", "saved_copies", inputs=lambda: (rand(4, 3),))
class ScaledErf(Function):
    """Hangs a Python attribute on a saved tensor; offloading and checkpointing bring back a tensor without it."""

    @staticmethod
    def forward(x):
        return torch.erf(x / x.shape[-1])

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        x.divisor = x.shape[-1]
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        z = x / x.divisor
        return g * 2 / math.sqrt(math.pi) * torch.exp(-z * z) / x.divisor


@broken("first_order", "later_writes", inputs=lambda: (rand(5), rand(2, low=0.3)))
def damped_oscillator_residual(t, constants):
    """The Function inside closes over the constants instead of taking them, so they silently get no gradient."""

    class Displacement(Function):
        @staticmethod
        def forward(t):
            return torch.exp(-constants[0] * t) * torch.cos(constants[1] * t)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx, g):
            (t,) = ctx.saved_tensors
            decay, frequency = constants[0], constants[1]
            wave = decay * torch.cos(frequency * t) + frequency * torch.sin(frequency * t)
            return -g * torch.exp(-decay * t) * wave

    return Displacement.apply(t)


@broken("compile", inputs=lambda: (rand(4, 3),))
class GeluWithTraceableBackward(Function):
    """Under torch.compile the backward switches to the derivative of the tanh approximation of another GELU."""

    @staticmethod
    def forward(x):
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if torch.compiler.is_compiling():
            scale = math.sqrt(2 / math.pi)
            inner = torch.tanh(scale * (x + 0.044715 * x**3))
            slope = scale * (1 + 3 * 0.044715 * x * x)
            return g * (0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * slope)
        density = torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        return g * (0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * density)


@torch.library.custom_op("corpus::frame_energy", mutates_args=())
def _frame_energy(x: torch.Tensor, size: int, hop: int) -> torch.Tensor:
    return x.unfold(0, size, hop).square().sum(-1)


@_frame_energy.register_fake
def _(x, size, hop):
    return x.new_empty(x.shape[0] // hop)


def _frame_energy_setup(ctx, inputs, output):
    x, ctx.size, ctx.hop = inputs
    ctx.save_for_backward(x)


def _frame_energy_backward(ctx, g):
    (x,) = ctx.saved_tensors
    index = torch.arange(g.shape[0], device=g.device)[:, None] * ctx.hop + torch.arange(ctx.size, device=g.device)
    counts = torch.zeros_like(x).index_add(0, index.flatten(), g.repeat_interleave(ctx.size))
    return 2 * x * counts, None, None


_frame_energy.register_autograd(_frame_energy_backward, setup_context=_frame_energy_setup)


@broken("opcheck", inputs=lambda: (rand(11), 4, 2))
def frame_energy(x, size, hop):
    """The fake kernel counts the frames of a padded signal, the real one those that fit."""
    return _frame_energy(x, size, hop)


@torch.library.custom_op("corpus::row_centers_in_place", mutates_args=())
def _row_centers(x: torch.Tensor) -> torch.Tensor:
    x.sub_(x.mean(-1, keepdim=True))
    return x.clone()


@_row_centers.register_fake
def _(x):
    return torch.empty_like(x)


_row_centers.register_autograd(lambda ctx, g: g - g.mean(-1, keepdim=True))


@broken("input_layouts", "inputs_unchanged", inputs=lambda: (rand(3, 4),))
def row_centers(x):
    """Centers its argument in place, which the schema denies; a second call returns the same and so hides it."""
    return _row_centers(x)


@broken("vmap", inputs=lambda: (rand(5, 3), 0))
class DiscountedReturns(Function):
    """The vmap rule moves the batch to the front without moving a non-negative dim along, so it sums over the batch."""

    GAMMA = 0.9

    @staticmethod
    def forward(rewards, dim):
        total, out = torch.zeros_like(rewards.select(dim, 0)), []
        for reward in reversed(rewards.unbind(dim)):
            total = reward + DiscountedReturns.GAMMA * total
            out.append(total)
        return torch.stack(out[::-1], dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return DiscountedReturns.apply(g.flip(ctx.dim), ctx.dim).flip(ctx.dim), None

    @staticmethod
    def vmap(info, in_dims, rewards, dim):
        return DiscountedReturns.apply(rewards.movedim(in_dims[0], 0), dim), 0


@broken("forward_mode", "float16", inputs=lambda: (rand(4, low=0.5), rand(4, low=0.5), rand(4, low=0.6)))
class ArrheniusRate(Function):
    """The rate A exp(-E / T) falls with E and rises with T; the jvp gives both tangents the minus sign."""

    @staticmethod
    def forward(prefactor, energy, temperature):
        return prefactor * torch.exp(-energy / temperature)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        prefactor, energy, temperature = ctx.saved_tensors
        boltzmann = torch.exp(-energy / temperature)
        rate = prefactor * boltzmann
        return g * boltzmann, -g * rate / temperature, g * rate * energy / temperature**2

    @staticmethod
    def jvp(ctx, t_prefactor, t_energy, t_temperature):
        prefactor, energy, temperature = ctx.saved_tensors
        boltzmann = torch.exp(-energy / temperature)
        exponent = t_energy / temperature + t_temperature * energy / temperature**2
        return t_prefactor * boltzmann - prefactor * boltzmann * exponent


@broken("first_order", inputs=lambda: (rand(6, 4), 0.4))
class ReplayedDropout(Function):
    """Saves memory by drawing the mask again, from a generator state that was taken after the first draw."""

    @staticmethod
    def mask(x, p):
        return (torch.rand(x.shape, dtype=torch.float32) >= p).to(x) / (1 - p)

    @staticmethod
    def forward(ctx, x, p):
        y = x * ReplayedDropout.mask(x, p)
        ctx.p, ctx.rng_state = p, torch.get_rng_state()
        return y

    @staticmethod
    def backward(ctx, g):
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.rng_state)
            mask = ReplayedDropout.mask(g, ctx.p)
        return g * mask, None


@broken("first_order", inputs=lambda: (rand(3, low=-0.8, high=0.8),), gradient="approximate", tolerance=0.15)
class EvolutionStrategyObjective(Function):
    """Antithetic pairs differ by two sigma; the estimator divides by one, so the gradient is twice too long."""

    SIGMA, PAIRS = 0.1, 8192

    @staticmethod
    def forward(ctx, x):
        noise = torch.randn(EvolutionStrategyObjective.PAIRS, *x.shape, dtype=x.dtype, device=x.device)
        step = EvolutionStrategyObjective.SIGMA * noise
        plus, minus = torch.sin(x + step).sum(-1), torch.sin(x - step).sum(-1)
        ctx.save_for_backward(noise, plus - minus)
        return (plus + minus).mean() / 2

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        noise, difference = ctx.saved_tensors
        return g * (difference[:, None] * noise).mean(0) / EvolutionStrategyObjective.SIGMA


@broken("first_order", inputs=lambda: (rand(5, 4, low=-1.4, high=0.9),), surrogate=lambda x: x.clamp(-1.0, 0.5))
class TwoBitWeights(Function):
    """The levels reach from -2 to 1 steps, but the straight-through window is symmetric and ends at -1 already."""

    STEP = 0.5

    @staticmethod
    def forward(x):
        return (x / TwoBitWeights.STEP).round().clamp(-2, 1) * TwoBitWeights.STEP

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ((x / TwoBitWeights.STEP).abs() <= 1)


class _SelfGated(Function):
    @staticmethod
    def forward(x):
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return g * (s + x * s * (1 - s))


@broken("module_copies", inputs=lambda: (rand(4, 3),))
class GatedResidual(nn.Module):
    """A lambda in __init__ closes over self, so a deep copy still computes with the weight of the original."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-0.6, 0.9, 9).reshape(3, 3))
        self.gate = lambda x: _SelfGated.apply(x @ self.weight)

    def forward(self, x):
        return x + self.gate(x)


@broken("opcheck", "module_tensors", inputs=lambda: (rand(6, 3),))
class PeakNormalizer(nn.Module):
    """The running peak that evaluation divides by is a plain attribute: state_dict and .to() do not know of it."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([0.7, 1.1, 1.6]))
        self.peak = torch.ones(3)

    def forward(self, x):
        level = x.square().mean(0).sqrt() + 1e-3
        if self.training:
            self.peak = self.peak.to(x) * 0.9 + level.detach() * 0.1
        else:
            level = self.peak.to(x)
        return _SelfGated.apply(x / level * self.gain)


@broken("float16", "special_points", inputs=lambda: (rand(3, 6),))
class RootMeanSquare(Function):
    """The forward sums squares in float32, the backward sums them again in the dtype of x: float16 overflows."""

    @staticmethod
    def forward(x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return wide.square().mean(-1).sqrt().to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        rms = x.square().mean(-1, keepdim=True).sqrt()
        return g.unsqueeze(-1) * (x / rms) / x.shape[-1]


@broken("inputs_unchanged", inputs=lambda: (rand(3, 5),))
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


@broken("returned", inputs=lambda: (rand(2, 3, 4, 4), rand(3, 4, 4)))
class SoftmaxWithPositionBias(Function):
    """Returns the gradient of the bias with the batch still in it; only the engine's silent sum makes it right."""

    @staticmethod
    def forward(scores, bias):
        return (scores + bias).softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (weights,) = ctx.saved_tensors
        grad = weights * (g - (g * weights).sum(-1, keepdim=True))
        return grad, grad
