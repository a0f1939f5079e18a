"""Functions that keep too much, too long, or compute in vain: one for each finding of the family."""

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.audit.corpus import broken, right


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


# --- tensors_on_ctx ---


@broken("tensors_on_ctx", "later_writes", inputs=lambda: (leaf(2, 4, 4), 5.0), shown=True)
class SoftCapOnCtx(Function):
    """Keeps the attention scores as an attribute of ctx, where neither version checks nor hooks see them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores, cap):
        return cap * (scores / cap).tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scores, ctx.cap = inputs

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * (1 - (ctx.scores / ctx.cap).tanh() ** 2), None


@right(inputs=lambda: (leaf(2, 4, 4), 5.0), mends="SoftCapOnCtx")
class SoftCapSaved(Function):
    """Saves the scores; the cap is a number and may stay on ctx."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores, cap):
        return cap * (scores / cap).tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        scores, ctx.cap = inputs
        ctx.save_for_backward(scores)

    @staticmethod
    def backward(ctx, grad_output):
        (scores,) = ctx.saved_tensors
        return grad_output * (1 - (scores / ctx.cap).tanh() ** 2), None


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


@broken("freed_at_once", "tensors_on_ctx", inputs=lambda: (leaf(2, 4, 4),), shown=True, source="pytorch/pytorch#25340")
class SoftmaxRefersToItsOutput(Function):
    """The output refers to ctx, and ctx to the output: neither is freed before the garbage collector comes by."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores):
        return scores.softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.p = output

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.p * (grad_output - (grad_output * ctx.p).sum(-1, keepdim=True))


@right(inputs=lambda: (leaf(2, 4, 4),), mends="SoftmaxRefersToItsOutput", source="pytorch/pytorch#25340")
class SoftmaxSavesItsOutput(Function):
    """save_for_backward keeps an output without a cycle."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores):
        return scores.softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return p * (grad_output - (grad_output * p).sum(-1, keepdim=True))


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


# --- unused_saved ---


@broken("unused_saved", inputs=lambda: (leaf(2, 5, 3),), shown=True)
class MeanPoolSavesForTheShape(Function):
    """Keeps the whole sequence in memory until backward, which asks it for nothing but its shape."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tokens):
        return tokens.mean(-2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (tokens,) = ctx.saved_tensors
        return (grad_output / tokens.shape[-2]).unsqueeze(-2).expand(tokens.shape)


@right(inputs=lambda: (leaf(2, 5, 3),), mends="MeanPoolSavesForTheShape")
class MeanPoolKeepsTheShape(Function):
    """Keeps the shape as an attribute of ctx."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tokens):
        return tokens.mean(-2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, grad_output):
        return (grad_output / ctx.shape[-2]).unsqueeze(-2).expand(ctx.shape)


# --- saved_copies ---


@broken("saved_copies", inputs=lambda: (leaf(4, 3), leaf(4, 3)), shown=True)
class GegluSavesClones(Function):
    """Saves clones to be safe from later writes, and so holds both inputs twice; torch notices writes anyway."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gate, up):
        return torch.nn.functional.gelu(gate) * up

    @staticmethod
    def setup_context(ctx, inputs, output):
        gate, up = inputs
        ctx.save_for_backward(gate.clone(), up.clone())

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        gate, up = ctx.saved_tensors
        cdf = (1 + (gate / 2**0.5).erf()) / 2
        pdf = (-(gate**2) / 2).exp() / (2 * torch.pi) ** 0.5
        return grad_output * up * (cdf + gate * pdf), grad_output * gate * cdf


@right(inputs=lambda: (leaf(4, 3), leaf(4, 3)), mends="GegluSavesClones")
class GegluSavesInputs(Function):
    """Saves the inputs themselves, which are in memory anyway."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gate, up):
        return torch.nn.functional.gelu(gate) * up

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        gate, up = ctx.saved_tensors
        cdf = (1 + (gate / 2**0.5).erf()) / 2
        pdf = (-(gate**2) / 2).exp() / (2 * torch.pi) ** 0.5
        return grad_output * up * (cdf + gate * pdf), grad_output * gate * cdf


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


@broken("unneeded_gradients", inputs=lambda: (leaf(4, 3), leaf(3, 2), leaf(2, 5)), shown=True)
class AdapterComputesAll(Function):
    """A low-rank adapter whose backward computes all three gradients, even that of an input that needs none."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, down, up):
        return x @ down @ up

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, down, up = ctx.saved_tensors
        grad_hidden = grad_output @ up.mT
        return grad_hidden @ down.mT, x.mT @ grad_hidden, (x @ down).mT @ grad_output


@right(inputs=lambda: (leaf(4, 3), leaf(3, 2), leaf(2, 5)), mends="AdapterComputesAll")
class AdapterComputesWhatIsNeeded(Function):
    """Asks ctx.needs_input_grad before each product."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, down, up):
        return x @ down @ up

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, down, up = ctx.saved_tensors
        need_x, need_down, need_up = ctx.needs_input_grad
        grad_hidden = grad_output @ up.mT if need_x or need_down else None
        grad_x = grad_hidden @ down.mT if need_x else None
        grad_down = x.mT @ grad_hidden if need_down else None
        return grad_x, grad_down, (x @ down).mT @ grad_output if need_up else None


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
