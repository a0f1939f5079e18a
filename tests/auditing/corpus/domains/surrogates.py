"""Gradients that are another function's on purpose: quantizers, spikes, reversal, estimates."""

import numpy as np
import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import REAL, between, closed_clamp, leaf, only, only_real

# --- broken ---


@broken("in_place_consumer", inputs=lambda: (leaf(4, 3), 0.5), surrogate=lambda x, strength: -strength * x)
class ReversalReturnsInput(Function):
    """Gradient reversal that returns its input as it is, so that an in-place activation after it raises."""

    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x

    @staticmethod
    def backward(ctx, g):
        return -ctx.strength * g, None


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


@broken("first_order", inputs=lambda: (between(-0.8, 0.8, 3),), gradient="approximate", tolerance=0.15)
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


@broken("first_order", inputs=lambda: (between(-1.4, 0.9, 5, 4),), surrogate=lambda x: x.clamp(-1.0, 0.5))
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


@broken("grad_output_unchanged", inputs=lambda: (leaf(4, 3), 0.7), gradient="custom")
class ClipsGradientInPlace(Function):
    """Clips the gradient that it was handed, so that other consumers get the clipped one."""

    @staticmethod
    def forward(x, limit):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.limit = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g.clamp_(-ctx.limit, ctx.limit), None


# --- right ---


@right(inputs=lambda: (leaf(4, 3), 0.7), gradient="custom")
class ClippedGradient(Function):
    """The identity with a clipped gradient, which is the derivative of nothing and not linear in grad_output."""

    @staticmethod
    def forward(x, limit):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.limit = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-ctx.limit, ctx.limit), None


@right(inputs=lambda: ((3 * leaf(4, 2, grad=False)).requires_grad_(),), surrogate=lambda x: x.clone())
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
    inputs=lambda: (leaf(3, 4), 2.0),
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


@right(inputs=lambda: (leaf(3, 2), 0.7), surrogate=lambda x, strength: -strength * x)
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


@right(inputs=lambda: (leaf(4),), gradient="approximate", tolerance=0.1)
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


def _clamp_to_grid(x, step, low, high):
    return closed_clamp(x, low * step, high * step)


@right(inputs=lambda: (leaf(4, 5), 0.25, -4, 3), surrogate=_clamp_to_grid)
class GridRounding(Function):
    """Rounds to a grid of a given step and declares the derivative of the clamp, so the true derivative is zero."""

    @staticmethod
    def forward(x, step, low, high):
        return torch.round(x / step).clamp(low, high) * step

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, step, low, high = inputs
        ctx.save_for_backward(x)
        ctx.bounds = (low * step, high * step)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        low, high = ctx.bounds
        return torch.where((x >= low) & (x <= high), g, torch.zeros_like(g)), None, None, None


@right(inputs=lambda: (leaf(6), 2.0), surrogate=lambda v, slope: v / (1 + slope * v.abs()))
class SpikeFastSigmoid(Function):
    """Emits a step of the membrane potential and differentiates a fast sigmoid instead, twice if asked."""

    generate_vmap_rule = True

    @staticmethod
    def forward(v, slope):
        return (v > 0).to(v.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        v, ctx.slope = inputs
        ctx.save_for_backward(v)

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g / (1 + ctx.slope * v.abs()).square(), None


def _learned_step(x, step, low, high):
    scaled = closed_clamp(x / step, low, high)
    return step * (scaled + (scaled.round() - scaled).detach())


@right(inputs=lambda: (leaf(3, 4), between(0.2, 0.4), -2, 1), surrogate=_learned_step)
class LearnedStepQuantizer(Function):
    """A quantizer whose 0-dim step size is learned; both gradients belong to the straight-through form."""

    @staticmethod
    def forward(ctx, x, step, low, high):
        if step.dim():
            raise ValueError("expected a 0-dim step")
        ctx.save_for_backward(x, step)
        ctx.low, ctx.high = low, high
        return (x / step).round().clamp(low, high) * step

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, step = ctx.saved_tensors
        scaled = x / step
        inside = (scaled >= ctx.low) & (scaled <= ctx.high)
        grad_x = grad_step = None
        if ctx.needs_input_grad[0]:
            grad_x = g.masked_fill(~inside, 0.0)
        if ctx.needs_input_grad[1]:
            level = scaled.clamp(ctx.low, ctx.high)
            slope = level.round() - torch.where(inside, scaled, torch.zeros_like(scaled))
            grad_step = (g * slope).sum_to_size(step.shape)
        return grad_x, grad_step, None, None


def _nearest(x, codebook):
    return torch.cdist(x.detach(), codebook.detach()).argmin(dim=1)


def _vector_quantize(x, codebook):
    index = _nearest(x, codebook)
    return x - x.detach() + codebook[index], index


@right(inputs=lambda: (leaf(5, 3), leaf(4, 3)), surrogate=_vector_quantize)
class NearestCode(Function):
    """Vector quantization: the identity for the encoder, a scatter for the codebook, and an integer output."""

    @staticmethod
    def forward(x, codebook):
        index = _nearest(x, codebook)
        return codebook[index], index

    @staticmethod
    def setup_context(ctx, inputs, output):
        index = output[1]
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index)
        ctx.codebook_shape = inputs[1].shape

    @staticmethod
    def backward(ctx, g, _):
        (index,) = ctx.saved_tensors
        grad_codebook = None
        if ctx.needs_input_grad[1]:
            grad_codebook = g.new_zeros(ctx.codebook_shape).index_add(0, index, g)
        return (g if ctx.needs_input_grad[0] else None), grad_codebook


@right(inputs=lambda: (leaf(4, 6),), surrogate=lambda logits: logits.softmax(-1))
class HardChoice(Function):
    """Returns the one-hot arg max of each row, differentiates the softmax, and saves only the logits."""

    @staticmethod
    def forward(logits):
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        p = ctx.saved_tensors[0].softmax(-1)
        return p * (g - (g * p).sum(-1, keepdim=True))


@right(inputs=lambda: (leaf(3, 4),), surrogate=lambda x: 1.0 * x)
class StochasticRounding(Function):
    """Rounds up or down at random, so that two calls differ; it declares the identity and saves nothing."""

    @staticmethod
    def forward(x):
        return torch.floor(x + torch.rand(x.shape, dtype=x.dtype, device=x.device))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g


@right(inputs=lambda: (leaf(2, 5), 0.3), surrogate=lambda x, strength: -strength * x)
class GradientReversal(Function):
    """Returns a view of its input unchanged and a negative gradient, as domain-adversarial training wants."""

    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.strength * g, None


@right(
    inputs=lambda: (0.5, leaf(3), leaf(2, 2), leaf()),
    surrogate=lambda factor, *tensors: tuple(factor * t for t in tensors),
)
class ScaleGradientOfMany(Function):
    """Passes any number of tensors through and scales their gradients, with a float before the tensors."""

    @staticmethod
    def forward(ctx, factor, *tensors):
        ctx.factor = factor
        return tuple(t.clone() for t in tensors)

    @staticmethod
    def backward(ctx, *gs):
        return (
            None,
            *(ctx.factor * g if needed else None for g, needed in zip(gs, ctx.needs_input_grad[1:], strict=True)),
        )


@right(
    inputs=lambda: (2 * leaf(4, 3).detach().requires_grad_(), 0.25, 4),
    surrogate=lambda x, step, bits: closed_clamp(x, -step * 2 ** (bits - 1), step * (2 ** (bits - 1) - 1)),
)
class FakeQuantize(Function):
    """Straight-through: rounds in the forward and passes the gradient inside the range, as declared."""

    @staticmethod
    def _range(step, bits):
        return -step * 2 ** (bits - 1), step * (2 ** (bits - 1) - 1)

    @staticmethod
    def forward(x, step, bits):
        only(REAL, x)
        return (x.clamp(*FakeQuantize._range(step, bits)) / step).round() * step

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.step, ctx.bits = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        low, high = FakeQuantize._range(ctx.step, ctx.bits)
        return torch.where((x >= low) & (x <= high), g, 0), None, None


@right(inputs=lambda: (leaf(3, 4), 0.5), surrogate=lambda v, threshold: F.softsign(v - threshold))
class SurrogateSpike(Function):
    """A step in the forward and the slope of the soft sign in the backward, as declared."""

    @staticmethod
    def forward(v, threshold):
        only(REAL, v)
        return (v > threshold).to(v.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        v, ctx.threshold = inputs
        ctx.save_for_backward(v)

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g / (1 + (v - ctx.threshold).abs()).square(), None
