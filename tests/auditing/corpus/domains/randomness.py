"""Dropout, noise and random projections."""

import math

import numpy as np
import torch
from docs.pitfalls.programs import broken, right
from torch.autograd import Function

from tests.auditing.corpus.shared import REAL, between, leaf, only

# --- broken ---


@broken("global_random_state", "compile", inputs=lambda: (leaf(4, 6),))
class SignFlipsSeedNumpy(Function):
    """Seeds NumPy's global generator to get the same signs every time and so restarts the caller's random numbers."""

    @staticmethod
    def signs(x):
        np.random.seed(17)  # noqa: NPY002
        return torch.from_numpy(np.random.choice([-1.0, 1.0], x.shape[1])).to(x.dtype)  # noqa: NPY002

    @staticmethod
    def forward(x):
        return (x * SignFlipsSeedNumpy.signs(x)).unflatten(1, (-1, 2)).sum(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(SignFlipsSeedNumpy.signs(inputs[0]))

    @staticmethod
    def backward(ctx, g):
        (signs,) = ctx.saved_tensors
        return g.repeat_interleave(2, 1) * signs


@broken("first_order", "grad_output_layouts", inputs=lambda: (leaf(6, 5), 0.4))
class DropoutMaskRedrawn(Function):
    """Draws the dropout mask anew in backward instead of saving it (as compiled code in pytorch/pytorch#190717)."""

    @staticmethod
    def forward(ctx, x, p):
        ctx.p = p
        return x * (torch.rand_like(x) >= p) / (1 - p)

    @staticmethod
    def backward(ctx, g):
        return g * (torch.rand_like(g) >= ctx.p) / (1 - ctx.p), None


@broken("first_order", "grad_output_layouts", inputs=lambda: (leaf(5, 3), leaf(5, 3)))
class GaussianNoiseRedrawn(Function):
    """Reparameterized normal sample whose backward multiplies by fresh noise in the scale's gradient."""

    @staticmethod
    def forward(mean, log_scale):
        return mean + log_scale.exp() * torch.randn_like(mean)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        (log_scale,) = ctx.saved_tensors
        return g, g * log_scale.exp() * torch.randn_like(g)


@broken("global_random_state", inputs=lambda: (leaf(6, 5), 0.3))
class DropoutReseedsGlobally(Function):
    """Replays its mask in backward by reseeding the global generator, so that what is drawn afterwards repeats."""

    @staticmethod
    def forward(ctx, x, p):
        ctx.p = p
        ctx.seed = int(torch.randint(2**31, ()))
        draw = torch.rand(x.shape, generator=torch.Generator().manual_seed(ctx.seed))
        return x * (draw >= p).to(x) / (1 - p)

    @staticmethod
    def backward(ctx, g):
        torch.manual_seed(ctx.seed)
        return g * (torch.rand(g.shape) >= ctx.p).to(g) / (1 - ctx.p), None


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


@broken("global_random_state", inputs=lambda: (between(-1.5, 1.5, 4, 6),))
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


@broken("first_order", inputs=lambda: (between(-1.5, 1.5, 6, 4), 0.4))
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


# --- right ---


@right(inputs=lambda: (leaf(4, 5), 0.4))
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


@right(inputs=lambda: (leaf(4, 5), 0.4))
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


@right(inputs=lambda: (leaf(3, 4), torch.Generator().manual_seed(11)))
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


@right(inputs=lambda: (leaf(4, 5), 0.3, torch.Generator().manual_seed(11)))
class DropoutFromGenerator(Function):
    """Draws its mask from a Generator argument, which every call advances, so that two calls differ."""

    @staticmethod
    def forward(ctx, x, rate, generator):
        noise = torch.rand(x.shape, dtype=x.dtype, device=x.device, generator=generator)
        kept = noise >= rate
        ctx.save_for_backward(kept)
        ctx.gain = 1 / (1 - rate)
        return x.masked_fill(~kept, 0.0) * ctx.gain

    @staticmethod
    def backward(ctx, g):
        (kept,) = ctx.saved_tensors
        return g.masked_fill(~kept, 0.0) * ctx.gain, None, None


@right(inputs=lambda: (leaf(6, 4), 0.6))
class DropoutByMemoryOrder(Function):
    """Draws from the global RNG into a tensor with the strides of x, so a transposed x gets another mask, as in F."""

    @staticmethod
    def forward(x, keep):
        kept = torch.empty_like(x, dtype=torch.bool).bernoulli_(keep)
        return torch.where(kept, x / keep, 0.0), kept

    @staticmethod
    def setup_context(ctx, inputs, output):
        kept = output[1]
        ctx.mark_non_differentiable(kept)
        ctx.save_for_backward(kept)
        ctx.keep = inputs[1]

    @staticmethod
    def backward(ctx, g, _):
        (kept,) = ctx.saved_tensors
        return torch.where(kept, g / ctx.keep, 0.0), None


@right(inputs=lambda: (leaf(5, 3), 0.2))
class ReplayedMultiplicativeNoise(Function):
    """Saves the state of the RNG in place of the noise and draws the same noise again, inside fork_rng."""

    @staticmethod
    def forward(ctx, x, strength):
        if x.device.type != "cpu":
            raise ValueError("expected a tensor on the CPU")
        ctx.save_for_backward(torch.get_rng_state())
        ctx.strength = strength
        return x * (1 + strength * torch.randn(x.shape, dtype=x.dtype))

    @staticmethod
    def backward(ctx, g):
        (state,) = ctx.saved_tensors
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            noise = torch.randn(g.shape, dtype=g.dtype)
        return g * (1 + ctx.strength * noise), None


@right(inputs=lambda: (leaf(4, 5), 0.4, torch.Generator().manual_seed(3)))
class DropoutByGenerator(Function):
    """Draws from a generator argument, so two calls differ, but the backward replays the mask that it saved."""

    @staticmethod
    def forward(ctx, x, p, generator):
        only(REAL, x)
        keep = torch.rand(x.shape, generator=generator) >= p
        ctx.save_for_backward(keep.to(x.device))
        ctx.scale = 1 / (1 - p)
        return torch.where(keep.to(x.device), x * ctx.scale, 0)

    @staticmethod
    def backward(ctx, g):
        (keep,) = ctx.saved_tensors
        return torch.where(keep, g * ctx.scale, 0), None, None


@right(inputs=lambda: (leaf(6, 3), 0.3))
class DropPath(Function):
    """Drops whole samples with the global generator and returns the kept rows as a second, boolean output."""

    @staticmethod
    def forward(x, p):
        only(REAL, x)
        keep = torch.rand(x.shape[:1], device=x.device) >= p
        rows = keep.reshape(-1, *[1] * (x.dim() - 1))
        return torch.where(rows, x / (1 - p), 0), keep

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.p = inputs[1]
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        (keep,) = ctx.saved_tensors
        return torch.where(keep.reshape(-1, *[1] * (g.dim() - 1)), g / (1 - ctx.p), 0), None
