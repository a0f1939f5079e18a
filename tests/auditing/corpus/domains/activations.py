"""Activations."""

import math
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import REAL, between, leaf, only, only_real, same_shapes, wide

# --- broken ---


@broken("first_order", inputs=lambda: (leaf(4, 3),))
class TanhGeluCubicSlope(Function):
    """Differentiates the cubic term of the tanh GELU without its factor 3."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return 0.5 * x * (1 + torch.tanh(inner))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        factor = math.sqrt(2 / math.pi)
        t = torch.tanh(factor * (x + 0.044715 * x**3))
        slope = factor * (1 + 0.044715 * x**2)
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope)


@broken("first_order", inputs=lambda: (leaf(5, 3),))
class SeluMistypedScale(Function):
    """The scale of the backward has one wrong digit, an error of 0.1 percent."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.selu(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        scale, alpha = 1.0517009873554805, 1.6732632423543772
        return g * scale * torch.where(x > 0, torch.ones_like(x), alpha * torch.exp(x.clamp(max=0)))


@broken("special_points", inputs=lambda: (leaf(4, 4),))
class HardSwishOpenAbove(Function):
    """Has no branch for inputs above 3, where the slope is 1."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * (x + 3).clamp(0, 6) / 6

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.where(x > -3, (2 * x + 3) / 6, torch.zeros_like(x))


@broken("independent_calls", "later_writes", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class GateKeptOnClass(Function):
    """Keeps its inputs on the class, so a second call before the backward replaces them (pytorch/pytorch#16947)."""

    kept = None

    @staticmethod
    def forward(ctx, x, gate):
        GateKeptOnClass.kept = (x, gate)
        return x * torch.sigmoid(gate)

    @staticmethod
    def backward(ctx, g):
        x, gate = GateKeptOnClass.kept
        s = torch.sigmoid(gate)
        return g * s, g * x * s * (1 - s)


@broken("first_order", inputs=lambda: (leaf(3, 4, 2), leaf(4)))
class PReLUFixedSlope(Function):
    """Returns None for the slope, as for a constant, although callers pass a learnable one per channel."""

    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope.view(-1, 1) * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, slope = ctx.saved_tensors
        return torch.where(x > 0, g, slope.view(-1, 1) * g), None


@broken("grad_output_layouts", "grad_output_unchanged", inputs=lambda: (leaf(4, 3), 0.1))
class LeakyReluScalesGradient(Function):
    """Multiplies grad_output in place, which the caller or another branch may still read (pytorch/pytorch#81417)."""

    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.save_for_backward(x > 0)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (active,) = ctx.saved_tensors
        g.mul_(active + ctx.slope * ~active)
        return g, None


@broken("backward_twice", "same_tensor_twice", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class SwigluGradientOverInputs(Function):
    """Writes the gradients over the saved inputs to spare memory (linkedin/Liger-Kernel#254)."""

    @staticmethod
    def forward(gate, up):
        return F.silu(gate) * up

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        gate, up = ctx.saved_tensors
        s = torch.sigmoid(gate)
        grad_up = g * gate * s
        grad_gate = g * up * s * (1 + gate * (1 - s))
        gate.data.copy_(grad_gate)
        up.data.copy_(grad_up)
        return gate.detach(), up.detach()


@broken("global_settings", inputs=lambda: (leaf(5, 3),))
class ErfActivationDefaultDtype(Function):
    """Sets the default dtype to build its constant in double precision and leaves it set."""

    @staticmethod
    def forward(ctx, x):
        torch.set_default_dtype(torch.float64)
        slope = torch.tensor(2 / math.sqrt(math.pi)).to(x.dtype)
        ctx.save_for_backward(x, slope)
        return torch.erf(x)

    @staticmethod
    def backward(ctx, g):
        x, slope = ctx.saved_tensors
        return g * slope * torch.exp(-x * x)


@broken("second_order", inputs=lambda: (leaf(5, 3),))
class SoftplusDetachedSlope(Function):
    """Detaches the saved input before it computes the slope, so that the second derivative is lost."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.logaddexp(x, torch.zeros_like(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.sigmoid(x.detach())


class _Bell(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, width):
        return torch.exp(-((x / width) ** 2))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, width = ctx.saved_tensors
        z = x / width
        slope = 2 * g * z * torch.exp(-z * z) / width
        return -slope, (slope * z).sum_to_size(width.shape)


@broken("special_points", inputs=lambda: (leaf(4, 3), between(0.5, 1.5, 3)))
def bell_shortcut_without_grad(x, width):
    """Takes a no_grad shortcut where requires_grad is False, which it is inside vmap, so that gradients vanish."""
    if not (x.requires_grad or width.requires_grad):
        with torch.no_grad():
            return torch.exp(-((x / width) ** 2))
    return _Bell.apply(x, width)


@broken("checkpoint", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class GatedSavedTensorsTwice(Function):
    """Reads ctx.saved_tensors twice, which non-reentrant checkpointing refuses (state-spaces/mamba#909)."""

    @staticmethod
    def forward(x, gate):
        return x * torch.sigmoid(gate)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        s = torch.sigmoid(ctx.saved_tensors[1])
        grad_gate = None
        if ctx.needs_input_grad[1]:
            grad_gate = g * ctx.saved_tensors[0] * s * (1 - s)
        return g * s, grad_gate


@broken("tensors_on_ctx", inputs=lambda: (leaf(5, 4), 0.1))
class LeakyReluMaskOnContext(Function):
    """Keeps its mask as an attribute of ctx, past the saved-tensor hooks of offloading (asappresearch/sru#171)."""

    @staticmethod
    def forward(ctx, x, slope):
        ctx.mask = x > 0
        ctx.slope = slope
        return torch.where(ctx.mask, x, slope * x)

    @staticmethod
    def backward(ctx, g):
        return torch.where(ctx.mask, g, ctx.slope * g), None


@broken("digits", inputs=lambda: (leaf(4, 4),))
class GeluBackwardInFloat32(Function):
    """Casts to float32 in backward whatever the input's type, so that float64 gradients carry seven digits."""

    @staticmethod
    def forward(x):
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        z = x.float()
        cdf = 0.5 * (1 + torch.erf(z / math.sqrt(2)))
        density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return (g.float() * (cdf + z * density)).to(x.dtype)


_ACTIVATIONS = []


@broken("freed_at_once", inputs=lambda: (leaf(6, 4),))
class TanhKeepsActivations(Function):
    """Appends every output to a module-level list for statistics and never empties it."""

    @staticmethod
    def forward(x):
        y = torch.tanh(x)
        _ACTIVATIONS.append(y)
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


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


@broken("compile", inputs=lambda: (leaf(3, 4),))
def gelu_fast_when_compiled(x):
    """Takes the tanh approximation under torch.compile and the exact function in eager mode."""
    return F.gelu(x, approximate="tanh" if torch.compiler.is_compiling() else "none")


@broken("compile", inputs=lambda: (between(-1.5, 1.5, 4, 3),))
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


# --- right ---


@right(inputs=lambda: (leaf(4, 3), 0.3))
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


@right(inputs=lambda: (leaf(4, 3),), gradient="approximate", tolerance=0.1)
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


@right(inputs=lambda: (leaf(4, 3, dtype=torch.float32),))
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


@right(inputs=lambda: (leaf(3, 4), leaf(3, 4)))
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


class _LeakyInPlace(Function):
    @staticmethod
    def forward(x, slope):
        if slope <= 0:
            raise ValueError("the sign of the output tells the sign of the input for a positive slope only")
        return x.mul_(torch.where(x > 0, 1.0, slope).to(x.dtype))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.mark_dirty(x)
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * torch.where(y > 0, 1.0, ctx.slope).to(g.dtype), None


@right(inputs=lambda: (leaf(3, 4), 0.1))
def leaky_in_place(x, slope):
    """Overwrites an intermediate, declares that with mark_dirty, and reads the sign from the output."""
    return _LeakyInPlace.apply(x * 1.5, slope)


@right(inputs=lambda: (leaf(8), 0.4))
class SoftThresholding(Function):
    """The proximal step of the l1 norm: zero output and zero gradient on a whole interval are right."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, level):
        return x - x.clamp(-level, level)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.level = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() > ctx.level).to(g.dtype), None

    @staticmethod
    def jvp(ctx, t, _):
        (x,) = ctx.saved_tensors
        return t * (x.abs() > ctx.level).to(t.dtype)


@right(inputs=lambda: (leaf(3, 4),))
class ExactGelu(Function):
    """Uses erfc for the tail and computes half precision in float32, so the result differs in the last bit."""

    @staticmethod
    def forward(x):
        only(REAL, x)
        z = wide(x)
        return (z * torch.erfc(-z * math.sqrt(0.5)) / 2).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        z = wide(x)
        slope = torch.erfc(-z * math.sqrt(0.5)) / 2 + z * (-z * z / 2).exp() / math.sqrt(2 * math.pi)
        return (g * slope).to(x.dtype)


class _LeakyOverwrites(Function):
    @staticmethod
    def forward(ctx, x, slope):
        only(REAL, x)
        F.leaky_relu_(x, slope)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        ctx.slope = slope
        return x

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return torch.where(y > 0, g, g * ctx.slope), None


@right(inputs=lambda: (leaf(3, 4),))
def leaky_on_a_copy(x):
    """Overwrites a copy in place with mark_dirty and saves the output, whose sign tells the branch."""
    return _LeakyOverwrites.apply(x.clone(), 0.1)


@right(inputs=lambda: (leaf(4), SimpleNamespace(scale=torch.tensor(2.0, dtype=torch.float64))))
def activation_with_settings(x, settings):
    """Takes a namespace, and returns one."""
    return SimpleNamespace(values=torch.tanh(settings.scale * x), settings=settings)
