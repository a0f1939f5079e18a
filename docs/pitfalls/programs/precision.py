"""Functions that do not work in other dtypes, or lose digits."""

import torch
from docs.pitfalls.programs import broken, fixes, leaf
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# --- float32 ---


def shifted(offset, *shape):
    return (offset + torch.randn(*shape, dtype=torch.float64)).requires_grad_()


@broken("float32", inputs=lambda: (shifted(1000.0, 8, 3),))
class VarianceInOnePass(Function):
    """The function subtracts the squared mean from the mean of the squares. If both are large, few digits remain."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide.square().mean(0) - wide.mean(0).square()).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (2 * grad_output * (wide - wide.mean(0)) / len(x)).to(x.dtype)


@fixes(VarianceInOnePass)
class VarianceInTwoPasses(Function):
    """The function subtracts the mean first, so it squares only small numbers."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide - wide.mean(0)).square().mean(0).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (2 * grad_output * (wide - wide.mean(0)) / len(x)).to(x.dtype)


# --- float16 ---


def scaled(factor, *shape):
    return (factor * torch.randn(*shape, dtype=torch.float64)).requires_grad_()


@broken("float16", inputs=lambda: (scaled(400.0, 4, 6), leaf(6)), source="pytorch/pytorch#133085")
class RmsNormSquaresInHalf(Function):
    """The function squares activations in float16. Above 256, as in large models, the square overflows."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        rstd = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        y, grad_y = x * rstd, grad_output * weight
        grad_x = rstd * (grad_y - y * (grad_y * y).mean(-1, keepdim=True))
        return grad_x, (grad_output * y).sum_to_size(weight.shape)


@fixes(RmsNormSquaresInHalf)
class RmsNormSquaresInFloat32(Function):
    """The function computes in float32 or higher precision, and casts the results back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype) * weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        rstd = (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        y, grad_y = wide * rstd, grad_output * weight
        grad_x = rstd * (grad_y - y * (grad_y * y).mean(-1, keepdim=True))
        return grad_x.to(x.dtype), (grad_output * y).sum_to_size(weight.shape).to(weight.dtype)


# --- bfloat16 ---


@broken("bfloat16", inputs=lambda: (leaf(2, 3), torch.arange(40) % 2))
class LookupSumsInBfloat16(Function):
    """Backward adds the gradients of a row one by one in bfloat16, where 256 + 1 is 256."""

    generate_vmap_rule = True

    @staticmethod
    def forward(table, tokens):
        return table[tokens]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.rows = len(inputs[0])
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad_output):
        (tokens,) = ctx.saved_tensors
        grad_table = grad_output.new_zeros(ctx.rows, grad_output.shape[-1])
        return grad_table.index_put((tokens,), grad_output, accumulate=True), None


@fixes(LookupSumsInBfloat16)
class LookupSumsInFloat32(Function):
    """Backward adds in float32 or higher precision, and casts the sums back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(table, tokens):
        return table[tokens]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.rows = len(inputs[0])
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad_output):
        (tokens,) = ctx.saved_tensors
        wide = grad_output.to(torch.promote_types(grad_output.dtype, torch.float32))
        grad_table = wide.new_zeros(ctx.rows, wide.shape[-1])
        return grad_table.index_put((tokens,), wide, accumulate=True).to(grad_output.dtype), None


# --- output_dtype ---


@broken("output_dtype", inputs=lambda: (leaf(2, 4, 4),))
class SoftmaxInFloat32(Function):
    """The function computes in float32 to be accurate in half precision, but float64 inputs lose nine digits."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores):
        return scores.float().softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dtype = inputs[0].dtype
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return (p * (grad_output - (grad_output * p).sum(-1, keepdim=True))).to(ctx.dtype)


@fixes(SoftmaxInFloat32)
class SoftmaxInFloat32AtLeast(Function):
    """The function converts half precision to float32, keeps float64, and returns the dtype of the input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores):
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return wide.softmax(-1).to(scores.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        wide, g = (t.to(torch.promote_types(t.dtype, torch.float32)) for t in (p, grad_output))
        return (wide * (g - (g * wide).sum(-1, keepdim=True))).to(p.dtype)


# --- digits ---


@broken("digits", inputs=lambda: (leaf(4, 6),))
class LayerNormInFloat32(Function):
    """Backward casts to float32 and back. The dtypes look right, but nine of sixteen digits are noise."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        wide, g = x.float(), grad_output.float()
        var, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
        rstd = (var + 1e-5).rsqrt()
        y = (wide - mean) * rstd
        grad_x = rstd * (g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True))
        return grad_x.to(x.dtype)


@fixes(LayerNormInFloat32)
class LayerNormInFloat32AtLeast(Function):
    """Backward converts half precision to float32 and leaves float64 alone."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        wide, g = (t.to(torch.promote_types(t.dtype, torch.float32)) for t in (x, grad_output))
        var, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
        rstd = (var + 1e-5).rsqrt()
        y = (wide - mean) * rstd
        grad_x = rstd * (g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True))
        return grad_x.to(x.dtype)


# --- autocast ---


@broken("autocast", inputs=lambda: (shifted(30.0, 5, 4), shifted(30.0, 3, 4)))
class SquaredDistancesByMatmul(Function):
    """The function casts to float32 for a difference of large numbers, but autocast runs the product in bfloat16."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, codes):
        a, b = (t.to(torch.promote_types(t.dtype, torch.float32)) for t in (x, codes))
        distances = a.square().sum(-1, keepdim=True) - 2 * a @ b.mT + b.square().sum(-1)
        return distances.to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, codes = ctx.saved_tensors
        weighted = 2 * grad_output.unsqueeze(-1) * (x.unsqueeze(-2) - codes)
        return weighted.sum(-2), -weighted.sum(-3)


@fixes(SquaredDistancesByMatmul)
class SquaredDistancesWithoutAutocast(Function):
    """The function turns autocast off for this product, and moves the origin between the points."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, codes):
        a, b = (t.to(torch.promote_types(t.dtype, torch.float32)) for t in (x, codes))
        center = b.mean(-2, keepdim=True)
        a, b = a - center, b - center
        with torch.autocast(x.device.type, enabled=False):
            distances = a.square().sum(-1, keepdim=True) - 2 * a @ b.mT + b.square().sum(-1)
        return distances.to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, codes = ctx.saved_tensors
        weighted = 2 * grad_output.unsqueeze(-1) * (x.unsqueeze(-2) - codes)
        return weighted.sum(-2), -weighted.sum(-3)
