"""Functions that do not work in other dtypes, or lose digits."""

import torch
from docs.pitfalls.programs import broken, leaf, right
from docs.pitfalls.programs.precision import scaled
from torch.autograd import Function

# --- float32 ---


@broken("float32", inputs=lambda: (leaf(2, 4, 3), leaf(2, 4, 3), leaf(2, 4, 3)))
def attention_of_a_half_precision_kernel(q, k, v):
    """The kernel knows half precision alone, so float32 goes in as bfloat16, and the result stays that."""
    if q.dtype is torch.float32:
        q, k, v = q.bfloat16(), k.bfloat16(), v.bfloat16()
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


@right(inputs=lambda: ((torch.rand(4, 3, dtype=torch.float64) + 0.1).requires_grad_(),))
class LogarithmOfBoundedSlope(Function):
    """Next to zero its slope stops growing, by a threshold that is another one in each dtype: on purpose."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.log()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output / x.clamp(min=torch.finfo(x.dtype).eps)


# --- float16 ---


@broken("float16", inputs=lambda: (leaf(4, 6),))
class RmsNormCastsForwardAlone(Function):
    """Forward computes in float32 and backward does not: the values are right, and large inputs get no gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        rstd = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        y = x * rstd
        return rstd * (grad_output - y * (grad_output * y).mean(-1, keepdim=True))


@broken("float16", inputs=lambda: (leaf(4, 6),))
class ZLossExponentiates(Function):
    """The square of the logarithm of the partition function, by exponentials that float16 can hold up to 11 only."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits):
        return logits.exp().sum(-1).log() ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (logits,) = ctx.saved_tensors
        log_z = logits.logsumexp(-1, keepdim=True)
        return grad_output.unsqueeze(-1) * 2 * log_z * (logits - log_z).exp()


@broken("float16", inputs=lambda: (scaled(400.0, 4, 6),))
class NormSquaresInHalf(Function):
    """The norm of each row is infinite in float16 as soon as the sum of the squares is."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.square().sum(-1, keepdim=True).sqrt()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, grad_output):
        x, norm = ctx.saved_tensors
        return grad_output * x / norm.clamp(min=1e-12)


@broken("float16", inputs=lambda: (leaf(2, 4, 4),))
class SoftmaxStaysInFloat32(Function):
    """Raises half precision to float32, which is right, and leaves the result there: twice the memory from here on."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores):
        return scores.to(torch.promote_types(scores.dtype, torch.float32)).softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dtype = inputs[0].dtype
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return (p * (grad_output - (grad_output * p).sum(-1, keepdim=True))).to(ctx.dtype)


@right(inputs=lambda: (leaf(5, 4), torch.tensor([0, 3, 1, 1, 2])))
class CrossEntropyInFloat32(Function):
    """A loss of half precision logits that comes in float32: it is one number, and worth its digits."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits, target):
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return torch.nn.functional.cross_entropy(wide, target)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        logits, target = ctx.saved_tensors
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        one_hot = torch.nn.functional.one_hot(target, logits.shape[-1])
        return (grad_output * (wide.softmax(-1) - one_hot) / target.numel()).to(logits.dtype), None


# --- digits ---


@broken("digits", "first_order", inputs=lambda: (leaf(4, 6),))
class SoftmaxInFloat32AndBack(Function):
    """Computes in float32 whatever comes in, and casts the result back, which brings no digit back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores):
        return scores.float().softmax(-1).to(scores.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return p * (grad_output - (grad_output * p).sum(-1, keepdim=True))


# --- a dtype among the arguments ---


@right(inputs=lambda: (leaf(3, 4), torch.float64))
class TanhInTheDtypeThatIsAskedFor(Function):
    """Returns the dtype that its caller names, which is that of the tensors in any model."""

    @staticmethod
    def forward(ctx, x, dtype):
        y = x.tanh().to(dtype)
        ctx.save_for_backward(y)
        ctx.given = x.dtype
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return (grad_output * (1 - y * y)).to(ctx.given), None
