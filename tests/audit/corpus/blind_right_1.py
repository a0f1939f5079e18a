"""Right functions that look suspicious, by somebody who did not know the checks."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from tests.audit.corpus import right


def normal(*shape, grad=True, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=grad)


def between(low, high, *shape):
    return (low + (high - low) * torch.rand(shape, dtype=torch.float64)).requires_grad_()


def only_real(*tensors):
    if any(t.is_complex() for t in tensors):
        raise TypeError("takes real tensors only")


def same_shapes(a, b):
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {tuple(a.shape)} and {tuple(b.shape)}")


def to_numpy(t):
    return t.detach().to("cpu", torch.float64).numpy(force=True)


@right(inputs=lambda: (normal(3, 5),))
def sorted_with_positions(x):
    """Returns a named tuple with an integer output, and has kinks where two entries tie."""
    return torch.sort(x, dim=-1)


@right(inputs=lambda: (normal(3, 5), 2))
def largest_few(x, k):
    """Most entries have a zero gradient, and the positions are integers."""
    values, positions = torch.topk(x, k, dim=1)
    return values, positions


@right(inputs=lambda: (normal(6),))
def sum_of_the_rest(x):
    """Reads the cumulative sum through negative order, so outputs and gradients are not laid out as the input."""
    return torch.cumsum(x.flip(0), dim=0).flip(0)


@right(inputs=lambda: (normal(2, 3, 4), normal(4), normal(4)))
def affine_layer_norm(x, weight, bias):
    """The gradient of x sums to almost zero along the normalized axis, far below its own terms."""
    return F.layer_norm(x, (4,), weight, bias)


@right(inputs=lambda: (normal(3, 4), between(0.5, 2.0)))
def tempered_softmax(x, temperature):
    """A zero-dimensional tensor takes part, and a constant grad_output gives an all-zero gradient."""
    return torch.softmax(x / temperature, dim=-1)


@right(inputs=lambda: (normal(4, 3),))
def row_norms(x):
    """Not differentiable at a zero row, where PyTorch returns a subgradient of zero."""
    return torch.linalg.vector_norm(x, dim=1)


@right(inputs=lambda: (normal(4, 5),))
def variance_and_mean(x):
    """Two outputs, one of which is invariant to shifts; undefined for a single row."""
    return torch.var_mean(x, dim=0, correction=1)


@right(inputs=lambda: (normal(4, 3),))
def column_products(x):
    """The gradient is the product of the other entries, which no division gives at a zero."""
    return torch.prod(x, dim=0)


@right(inputs=lambda: (normal(3, 4),))
def log_total(x):
    """The output shifts with the input, so large inputs leave the gradient unchanged."""
    return torch.logsumexp(x, dim=(0, 1))


@right(inputs=lambda: (normal(3, 5), torch.randint(0, 5, (3, 4))))
def gathered(x, index):
    """Takes integer positions that may repeat, so that gradients accumulate and some entries get none."""
    return torch.gather(x, 1, index)


@right(inputs=lambda: (normal(4, 3), torch.tensor([2, 0, 2, 2, 1])))
def rows_by_number(x, index):
    """One row is read three times and one never."""
    return torch.index_select(x, 0, index)


@right(inputs=lambda: (torch.randint(0, 6, (2, 3)), normal(6, 2)))
def looked_up(tokens, table):
    """The first argument is integer; most rows of the table have a zero gradient."""
    return F.embedding(tokens, table)


@right(inputs=lambda: (normal(1, 2, 5, 4), normal(3, 2, 3, 2), normal(3)))
def strided_conv2d(image, kernel, bias):
    """With stride 3 the window leaves some pixels out, and their gradient is zero."""
    return F.conv2d(image, kernel, bias, stride=3, padding=(0, 1))


@right(inputs=lambda: (normal(2, 1, 3, 2), normal(4, 2, 2)))
def broadcast_matmul(a, b):
    """Both batch shapes broadcast, so both gradients are sums."""
    return a @ b


@right(inputs=lambda: (normal(2, 3), normal(3, 4, 2), normal(2, 4)))
def bilinear_form(a, w, b):
    """Three inputs in one contraction; the output is linear in each and in none together."""
    return torch.einsum("ni,ijk,nj->nk", a, w, b)


@right(inputs=lambda: (normal(3, 2), normal(4, 2)))
def pairwise_distances(a, b):
    """Not differentiable where two points coincide; has no second derivative in PyTorch and raises there."""
    return torch.cdist(a, b)


@right(inputs=lambda: (normal(4, 3), normal(4, 3)))
def kinks_of_four_kinds(x, y):
    """Piecewise linear with kinks at zero, at one half, and where the inputs cross; flat regions have no gradient."""
    return torch.where(x > y, F.relu(x) - 2 * y.abs(), x.clamp(-0.5, 0.5) + y)


@right(inputs=lambda: (normal(3, 4),))
def maximum_with_its_copy(x):
    """Every maximum ties with a copy of itself; each of them gets half the gradient, and the halves add up."""
    return torch.cat([x, x], dim=1).amax(dim=1)


@right(inputs=lambda: (normal(2, 3, 3), normal(3, 2)))
def solved(a, b):
    """Ill-conditioned for an unlucky matrix, where differences of values are inexact but the gradient is not."""
    return torch.linalg.solve(a + 6 * torch.eye(3, dtype=a.dtype, device=a.device), b)


@right(inputs=lambda: (normal(3, 3),))
def cholesky_factor(a):
    """Half of the output is constant zero; the matrix is made positive definite inside."""
    return torch.linalg.cholesky(a @ a.mT + torch.eye(3, dtype=a.dtype, device=a.device))


@right(inputs=lambda: (normal(2, 6),))
def real_spectrum(x):
    """Real input and complex output, of which two imaginary parts are always zero."""
    return torch.fft.rfft(x)


@right(inputs=lambda: (normal(4, dtype=torch.complex128),))
def complex_modulus(z):
    """Complex input and real output, not holomorphic, with a kink at zero."""
    return z.abs()


@right(inputs=lambda: (normal(2, 4, 3), normal(2, 4, 3), normal(2, 4, 2)))
def causal_attention(q, k, v):
    """Scores are filled with minus infinity inside, though no output or gradient is infinite."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(future, -math.inf), dim=-1) @ v


@right(inputs=lambda: (normal(3, 2), normal(2, 2)))
def checkpointed_block(x, w):
    """Runs its forward a second time during the backward, by torch.utils.checkpoint."""
    return checkpoint(lambda a, b: torch.tanh(a @ b) * a, x, w, use_reentrant=False)


@right(inputs=lambda: ([normal(3), normal(2, 2), normal()],))
def norm_of_a_list(tensors):
    """The only argument is a list of tensors of different shapes."""
    return torch.sqrt(1 + sum(t.square().sum() for t in tensors))


@right(inputs=lambda: (normal(2, 3), normal(1, 3), normal(3, 3)))
def stacked_means(*tensors):
    """Takes any number of tensors and passes them on as a list."""
    return torch.cat(list(tensors)).exp().mean(dim=0)


@right(inputs=lambda: (normal(3, 4),))
class NumpySinc(Function):
    """NumPy in both directions; once differentiable, so a second derivative is refused, by PyTorch, and not wrong."""

    @staticmethod
    def forward(x):
        only_real(x)
        return torch.as_tensor(np.sinc(to_numpy(x))).to(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        t = np.pi * to_numpy(x)
        small = np.abs(t) < 1e-2
        safe = np.where(small, 1.0, t)
        series = -t / 3 + t**3 / 30 - t**5 / 840
        slope = np.pi * np.where(small, series, (safe * np.cos(safe) - np.sin(safe)) / safe**2)
        return g * torch.as_tensor(slope).to(g)


@right(inputs=lambda: ((3 * normal(4, 2, grad=False)).requires_grad_(),), surrogate=lambda x: x.clone())
class RoundedStraightThrough(Function):
    """The forward is flat almost everywhere; the backward is the identity's on purpose."""

    @staticmethod
    def forward(x):
        return torch.round(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g


@right(
    inputs=lambda: (normal(3, 4), 2.0),
    surrogate=lambda v, slope: torch.atan(slope * torch.pi * v) / torch.pi + 0.5,
)
class SpikeOverThreshold(Function):
    """A spiking neuron's step with an arc tangent's derivative, as spiking network libraries train it."""

    @staticmethod
    def forward(v, slope):
        return (v >= 0).to(v.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        v, ctx.slope = inputs
        ctx.save_for_backward(v)

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g * ctx.slope / (1 + (torch.pi * ctx.slope * v).square()), None


@right(inputs=lambda: (normal(3, 2), 0.7), surrogate=lambda x, strength: -strength * x)
class ReversedGradient(Function):
    """Returns a view of its input and a gradient of the opposite sign on purpose."""

    @staticmethod
    def forward(x, strength):
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.strength = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return -ctx.strength * g, None


@right(inputs=lambda: (normal(4, 3),))
class ExpInPlace(Function):
    """Overwrites its input and says so with mark_dirty; a leaf that requires grad has to be copied first."""

    @staticmethod
    def forward(x):
        return x.exp_()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(*inputs)
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y.conj()


@right(inputs=lambda: (normal(3, 4),))
class DescendingWithRanks(Function):
    """The second output holds integers and is marked as not differentiable; its gradient is ignored."""

    @staticmethod
    def forward(x):
        values, positions = torch.sort(x, dim=-1, descending=True, stable=True)
        return values, positions

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, positions = output
        ctx.mark_non_differentiable(positions)
        ctx.save_for_backward(positions)

    @staticmethod
    def backward(ctx, g, _):
        (positions,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(-1, positions, g)


@right(inputs=lambda: (normal(5),))
class SineAndCosine(Function):
    """Asks for unmaterialized gradients, so each grad_output may be None, and handles every combination."""

    @staticmethod
    def forward(x):
        return torch.sin(x), torch.cos(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g_sine, g_cosine):
        (x,) = ctx.saved_tensors
        grad = None
        if g_sine is not None:
            grad = g_sine * torch.cos(x).conj()
        if g_cosine is not None:
            part = -g_cosine * torch.sin(x).conj()
            grad = part if grad is None else grad + part
        return grad


@right(inputs=lambda: (normal(2, 3, 4), normal(2, 4), None))
class LinearWithOptionalBias(Function):
    """The bias is None here, and its gradient then is None as well."""

    @staticmethod
    def forward(x, weight, bias):
        if x.ndim < 2 or weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
            raise ValueError("needs x of at least two dimensions, a matrix, and a bias as long as its rows are many")
        y = x @ weight.mT
        return y if bias is None else y + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad
        rows = g.flatten(0, -2)
        grad_x = g @ weight.conj() if need_x else None
        grad_weight = rows.mT @ x.flatten(0, -2).conj() if need_weight else None
        grad_bias = rows.sum(0) if need_bias else None
        return grad_x, grad_weight, grad_bias


@right(inputs=lambda: (normal(3, 4), normal(3, 4), 4, "mean", True))
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


@right(inputs=lambda: (normal(3, 2, dtype=torch.complex128), normal(3, 2, dtype=torch.complex128)))
class ComplexProduct(Function):
    """The gradients hold conjugates, which a verifier of the plain derivative would call wrong."""

    @staticmethod
    def forward(z, w):
        same_shapes(z, w)
        if z.dtype != w.dtype:
            raise TypeError(f"dtypes differ: {z.dtype} and {w.dtype}")
        return z * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        z, w = ctx.saved_tensors
        return g * w.conj(), g * z.conj()


@right(inputs=lambda: (normal(4, dtype=torch.complex128), normal(4)))
class PhaseRotation(Function):
    """One input is complex and the other real, whose gradient is the real part only."""

    @staticmethod
    def forward(z, angle):
        if not z.is_complex() or angle.is_complex() or z.shape != angle.shape:
            raise ValueError("needs a complex tensor and real angles of its shape")
        return z * torch.polar(torch.ones_like(angle), angle)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, angle = inputs
        ctx.save_for_backward(angle, output)

    @staticmethod
    def backward(ctx, g):
        angle, y = ctx.saved_tensors
        grad_z = g * torch.polar(torch.ones_like(angle), -angle)
        return grad_z, (g * (1j * y).conj()).real


@right(inputs=lambda: (normal(4, 5), 0.4))
class DropoutWithSavedMask(Function):
    """Two calls differ, as they draw anew from the global generator; each backward uses its own call's mask."""

    @staticmethod
    def forward(ctx, x, p):
        if not 0 <= p < 1:
            raise ValueError(f"p is at least 0 and below 1, not {p}")
        mask = (torch.rand_like(x) >= p).to(x.dtype) / (1 - p)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask, None


def keep_mask(like, p, seed):
    generator = torch.Generator(like.device).manual_seed(seed)
    return (torch.rand(like.shape, generator=generator, device=like.device) >= p).to(like.dtype) / (1 - p)


@right(inputs=lambda: (normal(4, 5), 0.4))
class DropoutWithReplayedSeed(Function):
    """Keeps no mask and draws it again in the backward, from a seed that the forward drew."""

    @staticmethod
    def forward(ctx, x, p):
        if not 0 <= p < 1:
            raise ValueError(f"p is at least 0 and below 1, not {p}")
        ctx.p, ctx.seed = p, int(torch.randint(2**31, ()))
        return x * keep_mask(x, ctx.p, ctx.seed)

    @staticmethod
    def backward(ctx, g):
        return g * keep_mask(g, ctx.p, ctx.seed), None


@right(inputs=lambda: (normal(4, 3), 0.3))
class SoftThreshold(Function):
    """Zero with a zero gradient on an interval, and a kink at either end of it."""

    @staticmethod
    def forward(x, width):
        return x - x.clamp(-width, width)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.width = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() > ctx.width, g, torch.zeros_like(g)), None


@right(inputs=lambda: (normal(3, 4), normal(3, 4), 0.5))
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


@right(inputs=lambda: (between(-0.8, 0.8, 5),))
class ArcCosine(Function):
    """Raises outside of its domain, which shifted or scaled inputs leave at once."""

    @staticmethod
    def forward(x):
        only_real(x)
        if (x.abs() > 1).any():
            raise ValueError("acos needs values between -1 and 1")
        return torch.acos(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -g * torch.rsqrt((1 - x) * (1 + x))


@right(inputs=lambda: (between(0.3, 3.0, 2, 3),))
class LogOfItsRoot(Function):
    """Gives NaN for a negative number and minus infinity at zero, in value and in gradient."""

    @staticmethod
    def forward(x):
        only_real(x)
        return torch.log(torch.sqrt(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x < 0, torch.nan, 0.5 * g / x)


@right(inputs=lambda: (normal(3, 4, grad=False), normal(4, 2)))
class ProductOnDemand(Function):
    """The first input does not require grad, so its gradient is not computed and is None."""

    @staticmethod
    def forward(a, b):
        if a.ndim != 2 or b.ndim != 2:
            raise ValueError("takes two matrices")
        return a @ b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g @ b.mH if ctx.needs_input_grad[0] else None, a.mH @ g if ctx.needs_input_grad[1] else None


@right(inputs=lambda: (normal(3, 4), normal(4), 1e-6))
class RootMeanSquareNorm(Function):
    """Has generate_vmap_rule, and a scalar option that is not batched."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, eps):
        only_real(x, weight)
        if weight.shape != x.shape[-1:]:
            raise ValueError("weight is as long as the last axis of x")
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, ctx.eps = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + ctx.eps)
        gw = g * weight
        grad_x = scale * gw - x * scale**3 * (gw * x).mean(-1, keepdim=True)
        return grad_x, (g * x * scale).sum_to_size(weight.shape), None


@right(inputs=lambda: (normal(3, 4), 1))
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


@right(inputs=lambda: (normal(3, 4),))
class GatedLinear(torch.nn.Module):
    """A module whose parameters and buffer take part beside the input."""

    def __init__(self):
        super().__init__()
        self.value = torch.nn.Linear(4, 2, dtype=torch.float64)
        self.gate = torch.nn.Linear(4, 2, bias=False, dtype=torch.float64)
        self.register_buffer("shift", torch.full((2,), 0.25, dtype=torch.float64))

    def forward(self, x):
        return SoftThreshold.apply(self.value(x), 0.1) * torch.sigmoid(self.gate(x) + self.shift)


@right(inputs=lambda: (normal(6, 4),))
class NormalizedBlock(torch.nn.Module):
    """Batch norm in train mode: every call changes the running buffers, and rows depend on one another."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3, dtype=torch.float64)
        self.norm = torch.nn.BatchNorm1d(3, dtype=torch.float64)

    def forward(self, x):
        return torch.tanh(self.norm(self.linear(x)))


@torch.library.custom_op("corpus::log_cosh", mutates_args=())
def log_cosh(x: torch.Tensor, scale: float) -> torch.Tensor:
    only_real(x)
    t = np.abs(scale * to_numpy(x))
    values = np.array(t + np.log1p(np.exp(-2 * t)) - math.log(2.0), order="C")
    return torch.from_numpy(values).to(x)


@log_cosh.register_fake
def log_cosh_shape(x, scale):
    return x.new_empty(x.shape)


def log_cosh_saves(ctx, inputs, output):
    x, ctx.scale = inputs
    ctx.save_for_backward(x)


def log_cosh_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g * ctx.scale * torch.tanh(ctx.scale * x), None


log_cosh.register_autograd(log_cosh_backward, setup_context=log_cosh_saves)


@log_cosh.register_vmap
def log_cosh_vmap(info, in_dims, x, scale):
    return log_cosh(x, scale), in_dims[0]


@right(inputs=lambda: (normal(3, 4), 1.5))
def log_cosh_by_operator(x, scale):
    """A custom operator over NumPy with a fake, an autograd and a vmap registration; its gradient is in PyTorch."""
    return log_cosh(x, scale)


@right(inputs=lambda: (normal(3), (0.2 * normal(3, 3, grad=False)).requires_grad_()))
class FixedPoint(Function):
    """Iterates to convergence, raises where there is none, and differentiates the equation instead of the loop."""

    @staticmethod
    def forward(x, w):
        only_real(x, w)
        z = torch.zeros_like(x)
        for _ in range(1000):
            previous, z = z, torch.tanh(w @ z + x)
            if (z - previous).abs().max() <= 4 * torch.finfo(x.dtype).eps:
                return z
        raise RuntimeError("the iteration did not converge: make w smaller")

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, w = inputs
        ctx.save_for_backward(w, output)

    @staticmethod
    def backward(ctx, g):
        w, z = ctx.saved_tensors
        slope = 1 - z * z
        system = torch.eye(z.numel(), dtype=z.dtype, device=z.device) - slope[:, None] * w
        pulled = slope * torch.linalg.solve(system.mT, g)
        return pulled, torch.outer(pulled, z)


@right(inputs=lambda: ((2 * normal(2, 3, grad=False)).requires_grad_(),))
class RootByNewton(Function):
    """Solves y**3 + y = x by Newton's method and saves only the output, from which the gradient follows."""

    @staticmethod
    def forward(x):
        only_real(x)
        y = x.clone()
        for _ in range(200):
            step = (y**3 + y - x) / (3 * y * y + 1)
            y = y - step
            if (step.abs() <= 2 * torch.finfo(x.dtype).eps * y.abs()).all():
                break
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g / (3 * y * y + 1)


def residual_block(x, weight, bias):
    return x + torch.tanh(x @ weight + bias)


@right(inputs=lambda: (normal(4, 3), normal(3, 3), normal(3)))
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


@right(inputs=lambda: (normal(4, 3),), gradient="approximate", tolerance=0.1)
class SiluWithCompressedInput(Function):
    """Keeps its input as bfloat16 for the backward, so the gradient is off by some parts in a thousand."""

    @staticmethod
    def forward(ctx, x):
        only_real(x)
        ctx.save_for_backward(x.to(torch.bfloat16))
        return x * torch.sigmoid(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (kept,) = ctx.saved_tensors
        x = kept.to(g.dtype)
        gate = torch.sigmoid(x)
        return g * (gate + x * gate * (1 - gate))


@right(inputs=lambda: (normal(4),), gradient="approximate", tolerance=0.1)
class BlackBoxBySmoothing(Function):
    """Estimates its gradient from twenty thousand random directions, drawn anew in every backward."""

    @staticmethod
    def simulate(rows):
        return torch.stack([torch.sin(rows).sum(-1), (rows.roll(1, -1) * rows).mean(-1)], dim=-1)

    @staticmethod
    def forward(x):
        only_real(x)
        return BlackBoxBySmoothing.simulate(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        width = 1e-2
        directions = torch.randn(20000, *x.shape, dtype=x.dtype, device=x.device)
        simulate = BlackBoxBySmoothing.simulate
        change = (simulate(x + width * directions) - simulate(x - width * directions)) / (2 * width)
        return ((change @ g).unsqueeze(-1) * directions).mean(0)


@right(inputs=lambda: (normal(3, 4), torch.Generator().manual_seed(11)))
class NoiseFromGenerator(Function):
    """Advances the generator it is given, so a second call with the same arguments returns something else."""

    @staticmethod
    def forward(ctx, x, generator):
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=generator.device).to(x.device)
        ctx.save_for_backward(noise)
        return x * (1 + 0.1 * noise)

    @staticmethod
    def backward(ctx, g):
        (noise,) = ctx.saved_tensors
        return g * (1 + 0.1 * noise).conj(), None


@right(inputs=lambda: (normal(4, 3, dtype=torch.float32),))
class SoftplusInSinglePrecision(Function):
    """Computes in float32 only and refuses every other dtype, so no float64 differences can be taken."""

    @staticmethod
    def forward(x):
        if x.dtype != torch.float32:
            raise TypeError(f"the kernel is compiled for float32 only, not {x.dtype}: convert with x.float()")
        values = np.logaddexp(np.float32(0), x.numpy(force=True))
        return torch.as_tensor(values, device=x.device)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.sigmoid(x)


@right(inputs=lambda: (normal(3, 4), normal(3, 4)))
class OpenedByStep(Function):
    """The gate's gradient is None, which is right: the output does not vary with it except for jumps."""

    @staticmethod
    def forward(gate, x):
        same_shapes(gate, x)
        return torch.where(gate > 0, x, torch.zeros_like(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        gate, _ = inputs
        ctx.save_for_backward(gate)

    @staticmethod
    def backward(ctx, g):
        (gate,) = ctx.saved_tensors
        return None, torch.where(gate > 0, g, torch.zeros_like(g))


def decaying_scan(t, decay, backwards):
    """Runs over the memory of a contiguous copy, row by row."""
    rows = np.array(to_numpy(t), order="C").reshape(-1, t.shape[-1])
    if backwards:
        rows = rows[:, ::-1]
    out = np.empty_like(rows, order="C")
    state = np.zeros(len(rows))
    for step in range(rows.shape[1]):
        state = decay * state + (1 - decay) * rows[:, step]
        out[:, step] = state
    if backwards:
        out = out[:, ::-1].copy()
    return torch.from_numpy(out.reshape(t.shape)).to(t)


@right(inputs=lambda: (normal(2, 5), 0.8))
class NumpyMovingAverage(Function):
    """Reads bare memory in order, after a copy that is contiguous, in either direction."""

    @staticmethod
    def forward(x, decay):
        only_real(x)
        if not x.ndim:
            raise ValueError("needs an axis to run along")
        return decaying_scan(x, decay, backwards=False)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.decay = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return decaying_scan(g, ctx.decay, backwards=True), None


@right(inputs=lambda: (normal(4, 5),))
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


@right(inputs=lambda: (normal(4, 3), normal(5, 3), normal(5)))
class LinearWithoutCustomFwd(Function):
    """Lacks custom_fwd, so that its backward raises under autocast: a capability that it lacks, not a wrong number."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_x = g.matmul(weight) if ctx.needs_input_grad[0] else None
        grad_weight = g.mT.matmul(x) if ctx.needs_input_grad[1] else None
        grad_bias = g.sum(0) if ctx.needs_input_grad[2] else None
        return grad_x, grad_weight, grad_bias
