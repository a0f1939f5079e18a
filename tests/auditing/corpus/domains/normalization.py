"""Norms, and what they normalize."""

import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import REAL, between, leaf, only, only_real, wide

# --- broken ---


@broken("first_order", inputs=lambda: (leaf(4, 5), between(0.5, 1.5, 4)))
class WeightNormWithoutProjection(Function):
    """Treats the norm of each row as a constant, so the gradient keeps its component along the row."""

    @staticmethod
    def forward(ctx, direction, gain):
        norm = direction.norm(dim=1, keepdim=True)
        ctx.save_for_backward(direction, gain)
        return gain.unsqueeze(1) * direction / norm

    @staticmethod
    def backward(ctx, g):
        direction, gain = ctx.saved_tensors
        norm = direction.norm(dim=1, keepdim=True)
        grad_gain = (g * direction / norm).sum(1)
        grad_direction = g * gain.unsqueeze(1) / norm
        return grad_direction, grad_gain


@broken("first_order", inputs=lambda: (leaf(1, 3, 5),))
class BatchNormSqueezedBatch(Function):
    """Squeezes all dimensions of size 1, so a batch of one loses its first dimension and averages over channels."""

    @staticmethod
    def forward(x):
        variance, mean = torch.var_mean(x, (0, 2), correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-5)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        variance, mean = torch.var_mean(x, (0, 2), correction=0, keepdim=True)
        rstd = torch.rsqrt(variance + 1e-5)
        y, grad = ((x - mean) * rstd).squeeze(), g.squeeze()
        grad = grad - grad.mean((0, -1), keepdim=True) - y * (grad * y).mean((0, -1), keepdim=True)
        return grad.view(x.shape) * rstd


_ROW_NORMS = {}


def rows_not_seen_before():
    # Another test of this process may have left its norm at the address that these rows get.
    _ROW_NORMS.clear()
    return (leaf(4, 3),)


@broken("repeatable", inputs=rows_not_seen_before)
class UnitRowsCachedNorm(Function):
    """Keeps norms in a module-level cache by address and shape, stale as soon as the memory has other values."""

    @staticmethod
    def forward(ctx, x):
        key = (x.data_ptr(), tuple(x.shape))
        if key not in _ROW_NORMS:
            _ROW_NORMS[key] = x.detach().norm(dim=1, keepdim=True)
        norm = _ROW_NORMS[key]
        unit = x / norm
        ctx.save_for_backward(unit, norm)
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        unit, norm = ctx.saved_tensors
        return (g - unit * (g * unit).sum(1, keepdim=True)) / norm


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


@broken("first_order", "second_order", inputs=lambda: (between(-1.5, 1.5, 3, 5), between(-1.5, 1.5, 5)))
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


@broken("float16", "special_points", inputs=lambda: (between(-1.5, 1.5, 3, 6),))
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


# --- right ---


@right(inputs=lambda: (leaf(2, 3, 4), leaf(4), leaf(4)))
def affine_layer_norm(x, weight, bias):
    """The gradient of x sums to almost zero along the normalized axis, far below its own terms."""
    return F.layer_norm(x, (4,), weight, bias)


@right(inputs=lambda: (leaf(4, 3),))
def row_norms(x):
    """Not differentiable at a zero row, where PyTorch returns a subgradient of zero."""
    return torch.linalg.vector_norm(x, dim=1)


@right(inputs=lambda: ([leaf(3), leaf(2, 2), leaf()],))
def norm_of_a_list(tensors):
    """The only argument is a list of tensors of different shapes."""
    return torch.sqrt(1 + sum(t.square().sum() for t in tensors))


@right(inputs=lambda: (leaf(3, 4), leaf(4), 1e-6))
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


@right(inputs=lambda: (leaf(4, 6), None, leaf(6), 1e-5))
class LayerNormOptionalAffine(Function):
    """Layer normalization whose weight is None here while its bias is not."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        if any(t is not None and t.shape != x.shape[-1:] for t in (weight, bias)):
            raise ValueError("expected vectors of the size of the last dimension")
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        centered = wide - wide.mean(-1, keepdim=True)
        rstd = (centered.square().mean(-1, keepdim=True) + eps).rsqrt()
        normalized = centered * rstd
        ctx.save_for_backward(normalized, rstd, weight)
        ctx.bias_dtype = None if bias is None else bias.dtype
        result = normalized if weight is None else normalized * weight
        return (result if bias is None else result + bias).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        normalized, rstd, weight = ctx.saved_tensors
        x_dtype, g = g.dtype, g.to(normalized.dtype)
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            h = g if weight is None else g * weight
            inner = h - h.mean(-1, keepdim=True) - normalized * (h * normalized).mean(-1, keepdim=True)
            grad_x = (rstd * inner).to(x_dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = (g * normalized).sum_to_size(weight.shape).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = g.sum_to_size(g.shape[-1:]).to(ctx.bias_dtype)
        return grad_x, grad_weight, grad_bias, None


@right(inputs=lambda: (leaf(4, 3), 1.0))
class ProjectOnBall(Function):
    """Scales long rows back to the sphere, leaves short rows alone, and stays finite for a row of zeros."""

    @staticmethod
    def forward(ctx, x, radius):
        ctx.save_for_backward(x)
        ctx.radius = radius
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return torch.where(norm > radius, x * (radius / norm.clamp_min(radius)), x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        outside = torch.linalg.vector_norm(x, dim=-1, keepdim=True) > ctx.radius
        safe = torch.where(outside, x, torch.ones_like(x))
        norm = torch.linalg.vector_norm(safe, dim=-1, keepdim=True)
        unit = safe / norm
        tangent = (g - unit * (unit * g).sum(-1, keepdim=True)) * (ctx.radius / norm)
        return torch.where(outside, tangent, g), None


@right(inputs=lambda: (leaf(4, 3, 5), None, 1e-6))
class RmsNorm(Function):
    """The weight is optional (None here) and the eps makes the zero row smooth."""

    @staticmethod
    def forward(x, weight, eps):
        only(REAL, x)
        only(REAL, weight)
        z = wide(x)
        y = z * (z.square().mean(-1, keepdim=True) + eps).rsqrt()
        return (y if weight is None else y * weight).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, ctx.eps = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        z, g = wide(x), wide(g)
        rate = (z.square().mean(-1, keepdim=True) + ctx.eps).rsqrt()
        grad_weight = None
        if weight is not None and ctx.needs_input_grad[1]:
            grad_weight = (g * z * rate).flatten(0, -2).sum(0).to(weight.dtype)
        grad_x = None
        if ctx.needs_input_grad[0]:
            inner = g if weight is None else g * weight
            grad_x = (rate * (inner - z * rate.square() * (inner * z).mean(-1, keepdim=True))).to(x.dtype)
        return grad_x, grad_weight, None
