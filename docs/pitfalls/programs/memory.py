"""Functions that keep too much, too long, or compute in vain."""

import torch
from docs.pitfalls.programs import broken, fixes, leaf
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# --- tensors_on_ctx ---


@broken("tensors_on_ctx", "later_writes", inputs=lambda: (leaf(2, 4, 4), 5.0))
class SoftCapOnCtx(Function):
    """The function keeps the attention scores as an attribute of ctx. There, they have no version check, and hooks do
    not see them.
    """

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


@fixes(SoftCapOnCtx)
class SoftCapSaved(Function):
    """The function saves the scores. The cap is a number and may stay on ctx."""

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


# --- freed_at_once ---


@broken("freed_at_once", "tensors_on_ctx", inputs=lambda: (leaf(2, 4, 4),), source="pytorch/pytorch#25340")
class SoftmaxRefersToItsOutput(Function):
    """The output refers to ctx, and ctx to the output. So both stay in memory until the garbage collector runs."""

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


@fixes(SoftmaxRefersToItsOutput)
class SoftmaxSavesItsOutput(Function):
    """The function uses save_for_backward, which keeps an output without a cycle."""

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


# --- unused_saved ---


@broken("unused_saved", inputs=lambda: (leaf(2, 5, 3),))
class MeanPoolSavesForTheShape(Function):
    """The function keeps the whole sequence in memory until backward, although backward uses only its shape."""

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


@fixes(MeanPoolSavesForTheShape)
class MeanPoolKeepsTheShape(Function):
    """The function keeps the shape as an attribute of ctx."""

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


@broken("saved_copies", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class GegluSavesClones(Function):
    """To be safe from later writes, the function saves clones, so both inputs are in memory twice. But PyTorch notices
    later writes to saved inputs anyway.
    """

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


@fixes(GegluSavesClones)
class GegluSavesInputs(Function):
    """The function saves the inputs themselves, which are in memory anyway."""

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


# --- unneeded_gradients ---


@broken("unneeded_gradients", inputs=lambda: (leaf(4, 3), leaf(3, 2), leaf(2, 5)))
class AdapterComputesAll(Function):
    """The backward of this low-rank adapter computes all three gradients, also for an input that needs none."""

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


@fixes(AdapterComputesAll)
class AdapterComputesWhatIsNeeded(Function):
    """Backward asks ctx.needs_input_grad before each product."""

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
