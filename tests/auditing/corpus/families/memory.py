"""Functions that keep too much, too long, or compute in vain."""

import torch
from docs.pitfalls.programs import broken, leaf, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import FULL, only, same_shapes

# --- tensors_on_ctx ---


@broken("tensors_on_ctx", inputs=lambda: (leaf(4, 6),))
class LayerNormCachesInADict(Function):
    """Keeps what it has computed in a dict on ctx, which is no better than an attribute."""

    @staticmethod
    def forward(ctx, x):
        centered = x - x.mean(-1, keepdim=True)
        rstd = (centered.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        ctx.cache = {"normalized": centered * rstd, "rstd": rstd}
        return centered * rstd

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        y, rstd = ctx.cache["normalized"], ctx.cache["rstd"]
        along = (grad_output * y).mean(-1, keepdim=True)
        return rstd * (grad_output - grad_output.mean(-1, keepdim=True) - y * along)


# --- freed_at_once ---


_FEATURES = {}


@broken("freed_at_once", inputs=lambda: (leaf(4, 3),))
def swish_shown_to_the_dashboard(x):
    """Puts its output, graph and all, into a global dict, where it stays until the next call."""
    y = x * x.sigmoid()
    _FEATURES["swish"] = y
    return y


_LOSSES = []


@broken("freed_at_once", inputs=lambda: (leaf(8),))
class LogCoshKeepsItsHistory(Function):
    """Appends what each call has computed to a global list, which grows as long as the training runs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(error):
        losses = error.abs() + (-2 * error.abs()).exp().log1p()
        _LOSSES.append(losses)
        return losses.mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (error,) = ctx.saved_tensors
        return grad_output * error.tanh() / error.numel()


# --- saved_copies ---


@broken("saved_copies", inputs=lambda: (leaf(2, 4, 3), leaf(3, 5)))
class ProjectionSavesTheTranspose(Function):
    """Saves the weight transposed and contiguous, which is a second weight; a transposed view costs nothing."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight.mT.contiguous())
        return x @ weight

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, transposed = ctx.saved_tensors
        grad_x = grad_output @ transposed if ctx.needs_input_grad[0] else None
        grad_weight = (x.mT @ grad_output).sum(0) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight


# --- unneeded_gradients ---


@broken("unneeded_gradients", inputs=lambda: (leaf(12, 3), leaf(3)))
class RecurrenceComputesAll(Function):
    """Walks through all steps for the gradient of the decay, even if the decay is frozen."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, decay):
        keep, states = decay.sigmoid(), [x[0]]
        for step in x[1:]:
            states.append(keep * states[-1] + step)
        return torch.stack(states)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, grad_output):
        decay, states = ctx.saved_tensors
        keep = decay.sigmoid()
        grads, grad_keep = [grad_output[-1]], torch.zeros_like(keep)
        for t in range(len(states) - 2, -1, -1):
            grad_keep = grad_keep + grads[-1] * states[t]
            grads.append(grad_output[t] + keep * grads[-1])
        return torch.stack(grads[::-1]), grad_keep * keep * (1 - keep)


def _ratio(x, y):
    return (x - y).square().sum(-1, keepdim=True) / _size(x) / _size(y)


def _size(x):
    return 1 + x.square().sum(-1, keepdim=True)


def _toward(x, y):
    """The slope of the distance with respect to its first point."""
    ratio = _ratio(x, y)
    outer = 1 / (1 + ratio) + 1 / (1 + ratio.square()) + 1 - ratio.tanh().square()
    return outer * (2 * (x - y) / (_size(x) * _size(y)) - 2 * ratio * x / _size(x))


@right(inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class DistanceOnTheSphere(Function):
    """Computes both slopes, also if one point is frozen: a formula of cheap operations, and no walk through steps."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        only(FULL, x, y)
        same_shapes(x, y)
        ratio = _ratio(x, y).squeeze(-1)
        return ratio.log1p() + ratio.atan() + ratio.tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        grad_output = grad_output.unsqueeze(-1)
        return grad_output * _toward(x, y), grad_output * _toward(y, x)


class _TimesAScale(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, scale):
        return x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0], None


@right(inputs=lambda: (leaf(4, 3), leaf(3).detach()))
def refuses_a_scale_that_requires_grad(x, scale):
    """As torch's own cross-entropy refuses a weight that does."""
    if scale.requires_grad:
        raise RuntimeError("there is no gradient for scale")
    return _TimesAScale.apply(x, scale)


@right(inputs=lambda: (leaf(3, 4), -50.0, 50.0))
class SineOfAClamp(Function):
    """What it saves equals its input on most samples, but is the clamped one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, low, high):
        return (0.05 * x.clamp(low, high)).sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, low, high = inputs
        ctx.save_for_backward(x.clamp(low, high), (x >= low) & (x <= high))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        clamped, inside = ctx.saved_tensors
        return grad_output * inside * 0.05 * (0.05 * clamped).cos(), None, None


@right(inputs=lambda: (leaf(3, 4), leaf(3, 4)))
class ProductWithExp(Function):
    """Saves the exponential for a first derivative, and its argument for a second one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, inputs[1].exp().detach())

    @staticmethod
    def backward(ctx, grad_output):
        x, y, power = ctx.saved_tensors
        if torch.is_grad_enabled():
            power = y.exp()
        return grad_output * power, grad_output * x * power


# --- a backward that computes forward again ---


@right(inputs=lambda: (leaf(3, 4),))
class SquashedTwiceAgain(Function):
    """Computes forward again in backward, where torch saves copies for as long as that takes."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh().tanh()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = x.tanh().tanh()
        return torch.autograd.grad(y, x, grad_output)[0]


# --- growth without a backward ---


_inputs = []


@broken("freed_at_once", "independent_calls", inputs=lambda: (leaf(3, 4),))
class CubeWithAStackOfInputs(Function):
    """Puts its input on a stack that backward takes it from: an evaluation, which has no backward, fills the memory."""

    @staticmethod
    def forward(ctx, x):
        _inputs.append(x.detach().clone())
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return 3 * _inputs.pop() ** 2 * grad_output
