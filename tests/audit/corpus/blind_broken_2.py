"""Broken functions by somebody who did not know the checks: higher order, transforms, precision, memory, modules."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.audit.corpus import broken


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def positive(*shape):
    return (torch.rand(*shape, dtype=torch.float64) + 0.5).requires_grad_()


# --- second order ---


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


@broken("second_order", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class HuberNoGradWeights(Function):
    """Computes the pseudo-Huber loss's weights under no_grad inside backward, so that a Hessian lacks their slope."""

    generate_vmap_rule = True

    @staticmethod
    def forward(prediction, target):
        return (torch.sqrt(1 + (prediction - target) ** 2) - 1).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        prediction, target = ctx.saved_tensors
        with torch.no_grad():
            difference = prediction - target
            weight = difference / torch.sqrt(1 + difference * difference)
        grad = g.unsqueeze(-1) * weight
        return grad, -grad


@broken("second_order", "empty", inputs=lambda: (leaf(4, 5), torch.tensor([0, 3, 1, 4])))
class CrossEntropySavedSoftmax(Function):
    """Saves the softmax, an intermediate, which a double backward takes for a constant (pytorch/pytorch#58509)."""

    @staticmethod
    def forward(ctx, logits, target):
        log_p = F.log_softmax(logits, dim=-1)
        ctx.save_for_backward(log_p.exp(), target)
        return -log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    def backward(ctx, g):
        p, target = ctx.saved_tensors
        one_hot = F.one_hot(target, p.shape[-1]).to(p.dtype)
        return g.unsqueeze(-1) * (p - one_hot), None


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


@broken("second_order", "batched_grad", inputs=lambda: (leaf(4, 3), torch.tensor([2, 0, 2, 1, 3])))
class GatherRowsDataGrad(Function):
    """Scatters grad_output.data, so that the gradient is cut off from grad_output and a double backward from it."""

    @staticmethod
    def forward(x, index):
        return x.index_select(0, index)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, index = inputs
        ctx.rows = x.shape[0]
        ctx.save_for_backward(index)

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        grad = g.new_zeros((ctx.rows, *g.shape[1:]))
        return grad.index_add(0, index, g.data), None


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


# --- forward mode ---


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


@broken("forward_mode", inputs=lambda: (leaf(5), leaf(5)))
class PolarSwappedTangents(Function):
    """Its jvp returns the two outputs' tangents in the wrong order."""

    generate_vmap_rule = True

    @staticmethod
    def forward(radius, angle):
        return radius * torch.cos(angle), radius * torch.sin(angle)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, gx, gy):
        radius, angle = ctx.saved_tensors
        c, s = torch.cos(angle), torch.sin(angle)
        return gx * c + gy * s, radius * (gy * c - gx * s)

    @staticmethod
    def jvp(ctx, radius_t, angle_t):
        radius, angle = ctx.saved_tensors
        c, s = torch.cos(angle), torch.sin(angle)
        x_t = radius_t * c - radius * s * angle_t
        y_t = radius_t * s + radius * c * angle_t
        return y_t, x_t


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


@broken("forward_mode", inputs=lambda: (leaf(4, 3), leaf(3, 3)))
class LinearTransposedTangent(Function):
    """Its jvp multiplies by the weight as backward does, without the transpose; a square weight hides it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x @ weight.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_x = g @ weight if ctx.needs_input_grad[0] else None
        grad_weight = g.mT @ x if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight

    @staticmethod
    def jvp(ctx, x_t, weight_t):
        x, weight = ctx.saved_tensors
        return x_t @ weight + x @ weight_t.mT


# --- transforms ---


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


@broken("vmap", inputs=lambda: (leaf(4, 3), leaf(3)))
class DistanceVmapAllBatched(Function):
    """Its vmap rule takes every argument to be batched, so that a shared center (in_dims None) fails."""

    @staticmethod
    def forward(x, center):
        return ((x - center) ** 2).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, center = ctx.saved_tensors
        grad = 2 * g.unsqueeze(-1) * (x - center)
        return grad, -grad.sum_to_size(center.shape)

    @staticmethod
    def vmap(info, in_dims, x, center):
        x = x.movedim(in_dims[0], 0)
        center = center.movedim(in_dims[1], 0)
        center = center.reshape(center.shape[0], *[1] * (x.dim() - center.dim()), *center.shape[1:])
        return DistanceVmapAllBatched.apply(x, center), 0


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


@broken("special_points", inputs=lambda: (leaf(4, 3), positive(3)))
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


@broken("empty", "sizes", inputs=lambda: (leaf(4, 5), 3))
class FirstColumnsView(Function):
    """Pads by the columns that it was asked for, which is wrong where the input has fewer; it returns a view, too."""

    @staticmethod
    def forward(x, count):
        return x[..., :count]

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.count = inputs
        ctx.size = x.shape[-1]

    @staticmethod
    def backward(ctx, g):
        return F.pad(g, (0, ctx.size - ctx.count)), None


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


class _RmsNorm(Function):
    @staticmethod
    def forward(x, eps):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.eps = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + ctx.eps)
        return r * (g - x * r * r * (g * x).mean(-1, keepdim=True)), None


@broken("compile", inputs=lambda: (leaf(4, 6),))
def rms_norm_compiled_fallback(x):
    """Takes another route under torch.compile, where the epsilon was moved outside the square root."""
    if torch.compiler.is_compiling():
        return x / ((x * x).mean(-1, keepdim=True).sqrt() + 1e-3)
    return _RmsNorm.apply(x, 1e-3)


# --- precision ---


@broken("float16", inputs=lambda: (leaf(3, 8),))
class RmsNormBackwardInHalf(Function):
    """Its backward squares in the input's type, where float16 overflows from 256 on (pytorch/pytorch#133085)."""

    @staticmethod
    def forward(x):
        z = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        return (z * torch.rsqrt((z * z).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
        y = x * r
        return r * (g - y * (g * y).mean(-1, keepdim=True))


@broken("empty", "bfloat16", inputs=lambda: (leaf(300, 2), leaf(2)))
class BiasSummedInHalf(Function):
    """Adds the rows of the bias gradient one by one in the bias's own type, so that bfloat16 stops counting at 256."""

    @staticmethod
    def forward(x, bias):
        return x + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        grad_bias = None
        if ctx.needs_input_grad[1]:
            grad_bias = torch.zeros_like(g[0])
            for row in g:
                grad_bias = grad_bias + row
        return g, grad_bias


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


@broken("returned", inputs=lambda: (leaf(3, 7), 2, 4))
class SliceBufferWithoutDtype(Function):
    """Makes its gradient buffer without a dtype, so that float64 gradients pass through float32."""

    @staticmethod
    def forward(x, start, length):
        return x.narrow(-1, start, length).clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.start, ctx.length = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, g):
        grad = torch.zeros(ctx.shape, device=g.device)
        grad[..., ctx.start : ctx.start + ctx.length] = g
        return grad, None, None


# --- special points ---


@broken("special_points", inputs=lambda: (leaf(4, 3),))
class RowLengthAtZero(Function):
    """Divides by the norm, which is 0 / 0 for a row of zeros (pytorch/pytorch#2421)."""

    @staticmethod
    def forward(x):
        return torch.linalg.vector_norm(x, dim=-1, keepdim=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        x, norm = ctx.saved_tensors
        return g * (x / norm)


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


@broken("special_points", inputs=lambda: (positive(5), positive(5)))
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


@broken("special_points", inputs=lambda: (leaf(3, 5),))
class MaxAllTies(Function):
    """Gives the whole gradient to every tied maximum, so that a row's gradient sums to more than grad_output."""

    @staticmethod
    def forward(x):
        return x.amax(-1, keepdim=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x == x.amax(-1, keepdim=True)).to(g.dtype)


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


# --- memory ---


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


@broken("unused_saved", inputs=lambda: (leaf(6, 4), leaf(3, 4), leaf(3)))
class LinearSavesUnused(Function):
    """Saves the output and the bias as well, which backward never uses."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias):
        return x @ weight.mT + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, g):
        x, weight, _, _ = ctx.saved_tensors
        grad_x = g @ weight if ctx.needs_input_grad[0] else None
        grad_weight = g.mT @ x if ctx.needs_input_grad[1] else None
        grad_bias = g.sum(0) if ctx.needs_input_grad[2] else None
        return grad_x, grad_weight, grad_bias


@broken("unneeded_gradients", inputs=lambda: (leaf(2, 3, 5, 5), leaf(4, 3, 3, 3)))
class ConvAlwaysBothGradients(Function):
    """Computes both gradients even where the weight is frozen or the input is data (NVIDIA/apex#1517)."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, padding=1)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_x = torch.nn.grad.conv2d_input(x.shape, weight, g, padding=1)
        grad_weight = torch.nn.grad.conv2d_weight(x, weight.shape, g, padding=1)
        return grad_x, grad_weight


@broken("saved_copies", inputs=lambda: (leaf(4, 6), leaf(6, 5)))
class MatmulSavesCopies(Function):
    """Saves contiguous transposed copies of both inputs, which doubles what is kept for backward."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a.mT.contiguous(), b.mT.contiguous())
        return a @ b

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a_t, b_t = ctx.saved_tensors
        grad_a = g @ b_t if ctx.needs_input_grad[0] else None
        grad_b = a_t @ g if ctx.needs_input_grad[1] else None
        return grad_a, grad_b


# --- randomness ---


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


# --- modules ---


def _weights(*shape, seed):
    values = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return nn.Parameter(values)


class _ScaleColumns(Function):
    @staticmethod
    def forward(x, scale):
        return x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        grad_scale = (g * x).sum_to_size(scale.shape) if ctx.needs_input_grad[1] else None
        return g * scale, grad_scale


@broken("freed_at_once", "module_tensors", inputs=lambda: (leaf(4, 3),))
class WeightNormKeepsWeight(nn.Module):
    """Keeps the computed weight, no leaf, as an attribute, so that deepcopy raises (pytorch/pytorch#28594)."""

    def __init__(self):
        super().__init__()
        self.direction = _weights(3, 3, seed=1)
        self.length = _weights(3, seed=2)
        self.weight = self.normalized()

    def normalized(self):
        unit = self.direction / torch.linalg.vector_norm(self.direction, dim=0)
        return _ScaleColumns.apply(unit, self.length)

    def forward(self, x):
        self.weight = self.normalized()
        return x @ self.weight


@broken("module_copies", inputs=lambda: (leaf(4, 3),))
class GateClosesOverSelf(nn.Module):
    """Stores a closure over self, so that a deep copy computes with the original's weights and pickle fails."""

    def __init__(self):
        super().__init__()
        self.scale = _weights(3, seed=3)
        self.gate = lambda x: torch.sigmoid(_ScaleColumns.apply(x, self.scale))

    def forward(self, x):
        return x * self.gate(x)


class _Recompute(Function):
    @staticmethod
    def forward(ctx, run, x):
        ctx.run = run
        ctx.save_for_backward(x)
        return run(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.run(x)
        return None, torch.autograd.grad(y, x, g)[0]


@broken("first_order", "unused_saved", inputs=lambda: (leaf(4, 3),))
class CheckpointForgetsParameters(nn.Module):
    """Its hand-written checkpoint differentiates the recomputed block by its input only, not by its parameters."""

    def __init__(self):
        super().__init__()
        self.first = _weights(5, 3, seed=4)
        self.second = _weights(2, 5, seed=5)

    def block(self, x):
        return F.linear(torch.tanh(F.linear(x, self.first)), self.second)

    def forward(self, x):
        return _Recompute.apply(self.block, x)


@broken("unused_saved", "float32", inputs=lambda: (leaf(4, 3),))
class PlainTensorScale(nn.Module):
    """Keeps its constant scale as a plain tensor, no buffer, which .to() and state_dict() pass over."""

    def __init__(self):
        super().__init__()
        self.shift = _weights(3, seed=6)
        self.scale = torch.tensor([0.5, 1.5, 2.5], dtype=torch.float64)

    def forward(self, x):
        return _ScaleColumns.apply(x, self.scale) + self.shift


# --- custom op ---


@torch.library.custom_op("heldout_b::swish", mutates_args=())
def _swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


@_swish.register_fake
def _(x):
    return torch.empty_like(x)


def _swish_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _swish_backward(ctx, g):
    (x,) = ctx.saved_tensors
    s = torch.sigmoid(x)
    y = x * s
    return g * (s + y * (1 - y))


_swish.register_autograd(_swish_backward, setup_context=_swish_setup)


@broken("first_order", inputs=lambda: (leaf(4, 3),))
def swish_output_for_sigmoid(x):
    """The registered backward takes the output where the sigmoid belongs: s + y * (1 - y) for s + y * (1 - s)."""
    return _swish(x)


@torch.library.custom_op("heldout_b::window_sums", mutates_args=())
def _window_sums(x: torch.Tensor, width: int, stride: int) -> torch.Tensor:
    return x.unfold(-1, width, stride).sum(-1)


@_window_sums.register_fake
def _(x, width, stride):
    return x.new_empty((*x.shape[:-1], x.shape[-1] // stride))


def _window_sums_setup(ctx, inputs, output):
    x, ctx.width, ctx.stride = inputs
    ctx.size = x.shape[-1]


def _window_sums_backward(ctx, g):
    starts = torch.arange(0, ctx.size - ctx.width + 1, ctx.stride, device=g.device)
    index = starts.unsqueeze(-1) + torch.arange(ctx.width, device=g.device)
    spread = g.unsqueeze(-1).expand(*g.shape, ctx.width).flatten(-2)
    grad = g.new_zeros((*g.shape[:-1], ctx.size))
    return grad.index_add(-1, index.flatten(), spread), None, None


_window_sums.register_autograd(_window_sums_backward, setup_context=_window_sums_setup)


@broken("opcheck", inputs=lambda: (leaf(2, 10), 3, 2))
def window_sums_fake_length(x, width, stride):
    """Its register_fake forgets the window's width in the output length, so that torch.compile plans a wrong shape."""
    return _window_sums(x, width, stride)


@torch.library.custom_op("heldout_b::log_sum_exp", mutates_args=())
def _log_sum_exp(x: torch.Tensor) -> torch.Tensor:
    top = x.amax(-1, keepdim=True)
    return torch.exp(x.sub_(top)).sum(-1).log() + top.squeeze(-1)


@_log_sum_exp.register_fake
def _(x):
    return x.new_empty(x.shape[:-1])


def _log_sum_exp_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _log_sum_exp_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g.unsqueeze(-1) * torch.softmax(x, dim=-1)


_log_sum_exp.register_autograd(_log_sum_exp_backward, setup_context=_log_sum_exp_setup)


@broken("input_layouts", "inputs_unchanged", inputs=lambda: (leaf(3, 4),))
def log_sum_exp_shifts_input(x):
    """Subtracts the maximum from its input in place without naming it in mutates_args."""
    return _log_sum_exp(x)


@torch.library.custom_op("heldout_b::reverse_sums", mutates_args=())
def _reverse_sums(x: torch.Tensor) -> torch.Tensor:
    return x.flip(-1).cumsum(-1).flip(-1)


@_reverse_sums.register_fake
def _(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _reverse_sums_setup(ctx, inputs, output):
    pass


def _reverse_sums_backward(ctx, g):
    return g.cumsum(-1)


_reverse_sums.register_autograd(_reverse_sums_backward, setup_context=_reverse_sums_setup)


@_reverse_sums.register_vmap
def _(info, in_dims, x):
    return _reverse_sums(x), in_dims[0]


@broken("vmap", inputs=lambda: (leaf(4, 3),))
def reverse_sums_vmap_last_dim(x):
    """Its register_vmap does not move the batch dimension, so that a batch that comes last is summed over."""
    return _reverse_sums(x)


# --- by the same author as right ones; by the rules of the audit they are broken ---


def uniform(low, high):
    return (low + (high - low) * torch.rand((), dtype=torch.float64)).requires_grad_()


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


@broken("special_points", inputs=lambda: (uniform(1.0, 1.5), uniform(0.5, 2.0), uniform(0.8, 1.0)))
class LennardJones(Function):
    """Divides by the size in backward: the gradient at size zero is NaN in place of zero."""

    @staticmethod
    def forward(distance, depth, size):
        if distance.ndim or depth.ndim or size.ndim:
            raise ValueError("takes three numbers, as tensors of no dimension")
        sixth = (size / distance) ** 6
        return 4 * depth * (sixth * sixth - sixth)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        distance, depth, size = ctx.saved_tensors
        sixth = (size / distance) ** 6
        shape = 4 * (sixth * sixth - sixth)
        by_log_size = 4 * depth * (12 * sixth * sixth - 6 * sixth)
        return -g * by_log_size / distance, g * shape, g * by_log_size / size
