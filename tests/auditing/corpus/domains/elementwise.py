"""Functions of each element that are no activation: powers, logarithms, products."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import FULL, between, leaf, only, only_real, to_numpy

# --- broken ---


@broken("later_writes", "tensors_on_ctx", inputs=lambda: (leaf(4, 3), leaf(3)))
class ColumnPowerOnContext(Function):
    """Keeps its inputs as attributes of ctx, so a change in place before the backward is used without an error."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.x = x
        ctx.weight = weight
        return x * x * weight

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.x * ctx.weight, (g * ctx.x * ctx.x).sum(0)


@broken("second_order", inputs=lambda: (leaf(4, 3), leaf()))
class LayerScaleAsNumber(Function):
    """Reads the learnable scale with .item() in the backward, which loses one term of the second derivative."""

    @staticmethod
    def forward(x, scale):
        return x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        return g * scale.item(), (g * x).sum()


@broken("input_layouts", "inputs_unchanged", inputs=lambda: (leaf(4, 3), 0.5))
class RescaleInPlaceUnmarked(Function):
    """Changes its input in place and returns it without mark_dirty (pytorch/pytorch#30454)."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        x.mul_(factor)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


class _ScaleByTable(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, table):
        return x * table

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        (table,) = ctx.saved_tensors
        return g * table, None


@broken("global_settings", inputs=lambda: (leaf(4, 3),))
def position_scale_grad_mode(x):
    """Switches gradients off for a constant and then on, whatever the mode of the caller was."""
    torch.set_grad_enabled(False)
    table = torch.cos(torch.arange(x.shape[1], dtype=x.dtype) / x.shape[1])
    torch.set_grad_enabled(True)
    return _ScaleByTable.apply(x, table)


_WARM_UP = {"calls": 0}


@broken("repeatable", inputs=lambda: (leaf(4, 3), 0.9))
class WarmUpCountsCalls(Function):
    """Counts its calls in the module, so a repeated forward of the same input has another result."""

    @staticmethod
    def forward(ctx, x, decay):
        _WARM_UP["calls"] += 1
        ctx.factor = 1 - decay ** _WARM_UP["calls"]
        ctx.save_for_backward(x)
        return ctx.factor * torch.sin(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.factor * torch.cos(x), None


class _Log(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.log(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g / x


def _without_nan(g):
    return None if g is None else torch.nan_to_num(g)


@broken("inputs_unchanged", inputs=lambda: (between(0.5, 1.5, 4, 3),))
def log_hook_stays(x):
    """Every call leaves one more hook on the caller's tensor, which also hides the NaN of other functions."""
    if x.requires_grad:
        x.register_hook(_without_nan)
    return _Log.apply(x)


@broken("first_order", "unused_saved", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class ProductOneScratchBuffer(Function):
    """Computes both gradients into the same scratch buffer, so the first one is overwritten by the second."""

    @staticmethod
    def forward(a, b):
        return a * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        scratch = torch.empty_like(a)
        grad_a = torch.mul(g, b, out=scratch)
        grad_b = torch.mul(g, a, out=scratch)
        return grad_a, grad_b


_WORKSPACE = {}


@broken("independent_calls", inputs=lambda: (leaf(4, 3),))
class CoshGlobalWorkspace(Function):
    """Returns a module-level buffer as the gradient, which the next backward of the same shape overwrites."""

    @staticmethod
    def forward(x):
        return torch.cosh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        key = (x.shape, x.dtype, x.device)
        if key not in _WORKSPACE:
            _WORKSPACE[key] = torch.empty_like(x)
        return torch.mul(g, torch.sinh(x), out=_WORKSPACE[key])


@broken("second_order", inputs=lambda: (leaf(6),))
class ArctanNumpySlope(Function):
    """Computes the slope in NumPy without once_differentiable, so that a double backward is wrong and silent."""

    @staticmethod
    def forward(x):
        return torch.as_tensor(np.arctan(x.detach().cpu().numpy()), dtype=x.dtype, device=x.device)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        values = x.detach().cpu().numpy()
        return g * torch.as_tensor(1 / (1 + values * values), dtype=x.dtype, device=x.device)


class _LogCoshSlope(Function):
    @staticmethod
    def forward(g, x):
        return g * torch.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gg):
        g, x = ctx.saved_tensors
        t = torch.tanh(x)
        return gg, gg * g * (1 - t * t)


@broken("second_order", inputs=lambda: (leaf(3, 4),))
class LogCoshSlopeFunction(Function):
    """Its backward is a Function of its own, whose gradient to grad_output forgets the slope."""

    @staticmethod
    def forward(x):
        return torch.logaddexp(x, -x) - math.log(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return _LogCoshSlope.apply(g, x)


@broken("forward_mode", inputs=lambda: (leaf(3, 4), leaf(3, 4)))
class RatioOneTangent(Function):
    """Its jvp leaves out the second input's tangent; backward is right for both."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a, b):
        return a / (1 + b * b)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        d = 1 + b * b
        return g / d, -2 * g * a * b / (d * d)

    @staticmethod
    def jvp(ctx, a_t, b_t):
        _, b = ctx.saved_tensors
        return a_t / (1 + b * b)


@broken("special_points", inputs=lambda: (between(0.5, 1.5, 5), between(0.5, 1.5, 5)))
class PowerLogOfZero(Function):
    """Multiplies by the base's logarithm, so that a zero base gives 0 * -inf (pytorch/pytorch#27134)."""

    @staticmethod
    def forward(base, exponent):
        return base**exponent

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        base, exponent, output = ctx.saved_tensors
        return g * exponent * base ** (exponent - 1), g * output * torch.log(base)


@broken("float16", "bfloat16", inputs=lambda: (leaf(4, 2), leaf(4, 2)))
class LogAddExpOverflow(Function):
    """Divides bare exponentials in backward, which is inf / inf for large inputs; forward is stable."""

    @staticmethod
    def forward(a, b):
        return torch.logaddexp(a, b)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        ea, eb = a.exp(), b.exp()
        return g * ea / (ea + eb), g * eb / (ea + eb)


@broken("later_writes", "in_place_consumer", inputs=lambda: (leaf(6, 4),))
class ExpOutputOnContext(Function):
    """Keeps its output on ctx, a reference cycle that holds memory until gc runs (pytorch/pytorch#25340)."""

    @staticmethod
    def forward(ctx, x):
        ctx.y = torch.exp(x)
        return ctx.y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.y


@broken("special_points", inputs=lambda: (leaf(4), leaf(4)))
class HypotenuseWithTangent(Function):
    """Divides by the length in backward and in jvp, which is NaN where both inputs are zero."""

    @staticmethod
    def forward(x, y):
        return torch.hypot(x, y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)
        ctx.save_for_forward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        x, y, r = ctx.saved_tensors
        return g * x / r, g * y / r

    @staticmethod
    def jvp(ctx, tangent_x, tangent_y):
        x, y, r = ctx.saved_tensors
        return (tangent_x * x + tangent_y * y) / r


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


@broken("returned", "digits", inputs=lambda: (leaf(3, 4), between(0.5, 2.5, 4)))
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


@broken("float32", inputs=lambda: (between(0.2, 3.0, 6),))
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


@broken("special_points", inputs=lambda: (between(-1.5, 1.5, 7),))
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


@broken("unused_saved", "saved_copies", inputs=lambda: (between(-1.5, 1.5, 4, 3),))
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


@broken("linear_in_grad_output", inputs=lambda: (leaf(5),))
class SineSwallowsNaN(Function):
    """Replaces NaN in what it is handed, so that a diverged loss has a healthy gradient."""

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.nan_to_num(g) * x.cos()


@broken("independent_calls", inputs=lambda: (leaf(4), 2.0))
class FrequencyOnTheClass(Function):
    """Keeps a number on the class, where a call with another number overwrites it."""

    @staticmethod
    def forward(ctx, x, frequency):
        FrequencyOnTheClass.frequency = frequency
        ctx.save_for_backward(x)
        return torch.sin(frequency * x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * FrequencyOnTheClass.frequency * torch.cos(FrequencyOnTheClass.frequency * x), None


# --- right ---


@right(inputs=lambda: (leaf(4, 3), leaf(4, 3)))
def kinks_of_four_kinds(x, y):
    """Piecewise linear with kinks at zero, at one half, and where the inputs cross; flat regions have no gradient."""
    return torch.where(x > y, F.relu(x) - 2 * y.abs(), x.clamp(-0.5, 0.5) + y)


@right(inputs=lambda: (leaf(3, 4),))
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


@right(inputs=lambda: (leaf(4, 3),))
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


@right(inputs=lambda: (leaf(5),))
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


@right(inputs=lambda: (leaf(3, 4, grad=False), leaf(4, 2)))
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


_erf = np.vectorize(math.erf, otypes=[np.float64])


@right(inputs=lambda: (leaf(7),))
class ErfByPythonLoop(Function):
    """Calls a Python loop in the forward and says with once_differentiable that it has no second derivative."""

    @staticmethod
    def forward(x):
        return torch.from_numpy(_erf(x.detach().numpy())).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (2 / math.sqrt(math.pi)) * torch.exp(-x * x)


@right(inputs=lambda: (leaf(4, grad=False), leaf(4), 0.5))
class ScaledAddInto(Function):
    """Adds into a buffer that mark_dirty declares; the buffer is an input without gradient, and changes on purpose."""

    @staticmethod
    def forward(ctx, buffer, x, scale):
        if buffer.shape != x.shape:
            raise ValueError("the buffer and the addend have different shapes")
        ctx.scale = scale
        ctx.mark_dirty(buffer)
        return buffer.add_(x, alpha=scale)

    @staticmethod
    def backward(ctx, g):
        return g, (ctx.scale * g if ctx.needs_input_grad[1] else None), None


@right(inputs=lambda: (leaf(5),))
class MantissaAndExponent(Function):
    """The mantissa jumps at powers of two, and the exponent is an int32 output without gradient."""

    @staticmethod
    def forward(x):
        return torch.frexp(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        exponent = output[1]
        ctx.mark_non_differentiable(exponent)
        ctx.save_for_backward(exponent)

    @staticmethod
    def backward(ctx, g, _):
        return g * torch.exp2(-ctx.saved_tensors[0].to(g.dtype))


@right(inputs=lambda: ((-between(0.5, 2.0, 6)).detach().requires_grad_(),))
class LogOneMinusExp(Function):
    """Defined for negative numbers only; it refuses the rest, so a probe at zero or above proves nothing."""

    @staticmethod
    def forward(x):
        if bool((x >= 0).any()):
            raise ValueError("log(1 - exp(x)) needs x < 0")
        return torch.where(x > -math.log(2), torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.exp() / x.expm1())

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * (x.exp() / x.expm1())

    @staticmethod
    def vmap(info, in_dims, x):
        return LogOneMinusExp.apply(x), in_dims[0]


@right(inputs=lambda: ((-between(0.05, 4.0, 6).detach()).requires_grad_(),))
class LogOfOneMinusExp(Function):
    """Defined for x <= 0 only, with a pole at zero, where the infinite slope is the true one."""

    @staticmethod
    def forward(x):
        only(FULL, x)
        if bool((x > 0).any()):
            raise ValueError("expects x <= 0")
        return torch.where(x > -math.log(2), (-x.expm1()).log(), (-x.exp()).log1p())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.exp() / x.expm1()


@right(inputs=lambda: (leaf(5),))
class SineGuardsItself(Function):
    """Replaces NaN in its own factor alone."""

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.nan_to_num(x.cos())


@right(inputs=lambda: (leaf(4), 2.0))
class FrequencyOnCtx(Function):
    """Keeps a number on ctx, one for each call."""

    @staticmethod
    def forward(ctx, x, frequency):
        ctx.frequency = frequency
        ctx.save_for_backward(x)
        return torch.sin(frequency * x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.frequency * torch.cos(ctx.frequency * x), None


@right(inputs=lambda: (leaf(4, 5),))
class SineOfContiguous(Function):
    """Refuses other layouts with an error that says so."""

    @staticmethod
    def forward(x):
        if not x.is_contiguous():
            raise ValueError("x must be contiguous")
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos()
