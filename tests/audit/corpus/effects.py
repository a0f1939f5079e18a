"""Functions that do something on the side: one for each finding of the family."""

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.audit.corpus import broken, right


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


# --- inputs_unchanged ---


@broken("inputs_unchanged", inputs=lambda: (leaf(2, 4, 4),), shown=True)
class CausalSoftmaxMasksItsInput(Function):
    """Writes minus infinity into the caller's scores, which are spoiled for everybody else who reads them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores):
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return scores.masked_fill_(future, -torch.inf).softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return p * (grad_output - (grad_output * p).sum(-1, keepdim=True))


@right(inputs=lambda: (leaf(2, 4, 4),), mends="CausalSoftmaxMasksItsInput")
class CausalSoftmaxMasksACopy(Function):
    """masked_fill without the underscore makes a new tensor."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores):
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return scores.masked_fill(future, -torch.inf).softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return p * (grad_output - (grad_output * p).sum(-1, keepdim=True))


@broken("inputs_unchanged", inputs=lambda: (leaf(4, 5),))
def log_softmax_stabilized_in_place(logits):
    """Subtracts the maximum from the caller's logits themselves; value and gradient are right all the same."""
    logits.data.sub_(logits.data.amax(-1, keepdim=True))
    return logits - logits.exp().sum(-1, keepdim=True).log()


@broken("inputs_unchanged", "grad_output_unchanged", inputs=lambda: (leaf(4, 3), leaf(4, 3)),
        source="linkedin/Liger-Kernel#254")  # fmt: skip
class SwigluBackwardOverwritesItsInputs(Function):
    """To save memory, backward writes the gradients over the inputs, which others may have saved, too."""

    @staticmethod
    def forward(gate, up):
        return gate * gate.sigmoid() * up

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        gate, up = ctx.saved_tensors
        s = gate.sigmoid()
        grad_up = grad_output * gate * s
        grad_gate = grad_output * up * s * (1 + gate * (1 - s))
        return gate.copy_(grad_gate), up.copy_(grad_up)


@broken("inputs_unchanged", "grad_output_unchanged", inputs=lambda: (leaf(4, 5),))
class SoftmaxBackwardOverwritesItsOutput(Function):
    """Backward takes the saved output for scratch memory, and the caller still holds that output."""

    @staticmethod
    def forward(x):
        return x.softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return p.mul_(grad_output - (grad_output * p).sum(-1, keepdim=True))


# --- grad_output_unchanged ---


@broken("grad_output_unchanged", inputs=lambda: (leaf(4, 3),), shown=True)
class Relu6ClearsGradOutput(Function):
    """Sets entries of grad_output to zero, though the engine may hand the same tensor to another branch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clamp(0, 6)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output.masked_fill_((x <= 0) | (x >= 6), 0.0)


@right(inputs=lambda: (leaf(4, 3),), mends="Relu6ClearsGradOutput")
class Relu6ClearsACopy(Function):
    """masked_fill without the underscore leaves grad_output as it is."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clamp(0, 6)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output.masked_fill((x <= 0) | (x >= 6), 0.0)


@broken("grad_output_unchanged", "backward_twice", inputs=lambda: (leaf(4, 3),))
class MishSquaresItsTanh(Function):
    """Squares the saved tanh in place, so that the next backward finds the square where it expects the tanh."""

    @staticmethod
    def forward(ctx, x):
        t = torch.nn.functional.softplus(x).tanh()
        ctx.save_for_backward(x, t)
        return x * t

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, t = ctx.saved_tensors
        direct = grad_output * t
        return direct + grad_output * x * x.sigmoid() * t.square_().neg_().add_(1)


# --- global_random_state ---


@broken("global_random_state", inputs=lambda: (leaf(4, 3), 0.5, 7), shown=True)
class DropoutSeedsTheProgram(Function):
    """Draws the same mask again in backward, and for that seeds the generator that the whole program draws from."""

    @staticmethod
    def forward(x, p, seed):
        torch.manual_seed(seed)
        return x * (torch.rand(x.shape, device=x.device) >= p) / (1 - p)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.p, ctx.seed = inputs

    @staticmethod
    def backward(ctx, grad_output):
        torch.manual_seed(ctx.seed)
        mask = torch.rand(grad_output.shape, device=grad_output.device) >= ctx.p
        return grad_output * mask / (1 - ctx.p), None, None


@right(inputs=lambda: (leaf(4, 3), 0.5, 7), mends="DropoutSeedsTheProgram")
class DropoutSeedsItsGenerator(Function):
    """Draws from a generator of its own."""

    @staticmethod
    def forward(x, p, seed):
        generator = torch.Generator(x.device).manual_seed(seed)
        return x * (torch.rand(x.shape, device=x.device, generator=generator) >= p) / (1 - p)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.p, ctx.seed = inputs

    @staticmethod
    def backward(ctx, grad_output):
        generator = torch.Generator(grad_output.device).manual_seed(ctx.seed)
        mask = torch.rand(grad_output.shape, device=grad_output.device, generator=generator) >= ctx.p
        return grad_output * mask / (1 - ctx.p), None, None


@broken("global_random_state", inputs=lambda: (leaf(2, 1, 5, 5),))
def edges_by_a_new_layer(images):
    """Makes a layer on each call, whose random weight is overwritten at once: the draw of it is not."""
    layer = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    layer.weight.data = torch.tensor([[[[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]]]).to(images)
    return layer(images)


@broken("global_random_state", inputs=lambda: (leaf(4, 3), 0.0))
class TanhWithGradientNoise(Function):
    """Draws the noise for the gradient even if its scale is zero, which changes all later random numbers."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, scale):
        return x.tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * (1 - y * y) + ctx.scale * torch.randn_like(grad_output), None


# --- global_settings ---


@broken("global_settings", inputs=lambda: (leaf(5, 4), 10_000.0), shown=True)
class RotarySetsTheDefaultDtype(Function):
    """Computes the angles in float64 by making that the default, for every tensor that the program creates later."""

    generate_vmap_rule = True

    @staticmethod
    def rotate(x, base, sign):
        torch.set_default_dtype(torch.float64)
        half = x.shape[-1] // 2
        angle = torch.arange(x.shape[-2]).unsqueeze(-1) * base ** (-torch.arange(half) / half)
        cos, sin = angle.cos().to(x), sign * angle.sin().to(x)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    @staticmethod
    def forward(x, base):
        return RotarySetsTheDefaultDtype.rotate(x, base, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.base = inputs[1]

    @staticmethod
    def backward(ctx, grad_output):
        return RotarySetsTheDefaultDtype.rotate(grad_output, ctx.base, -1), None


@right(inputs=lambda: (leaf(5, 4), 10_000.0), mends="RotarySetsTheDefaultDtype")
class RotaryNamesItsDtype(Function):
    """Says dtype=torch.float64 where the angles are made."""

    generate_vmap_rule = True

    @staticmethod
    def rotate(x, base, sign):
        half = x.shape[-1] // 2
        wide = {"dtype": torch.float64, "device": x.device}
        angle = torch.arange(x.shape[-2], **wide).unsqueeze(-1) * base ** (-torch.arange(half, **wide) / half)
        cos, sin = angle.cos().to(x), sign * angle.sin().to(x)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    @staticmethod
    def forward(x, base):
        return RotaryNamesItsDtype.rotate(x, base, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.base = inputs[1]

    @staticmethod
    def backward(ctx, grad_output):
        return RotaryNamesItsDtype.rotate(grad_output, ctx.base, -1), None


# --- later_writes ---


@broken("later_writes", inputs=lambda: (leaf(4, 3), leaf(4, 3)), shown=True)
class GluSavesData(Function):
    """Saves x.data, which shares the memory of the input but not its version: later writes go unnoticed."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value, gate):
        return value * gate.sigmoid()

    @staticmethod
    def setup_context(ctx, inputs, output):
        value, gate = inputs
        ctx.save_for_backward(value.data, gate.data)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        value, gate = ctx.saved_tensors
        s = gate.sigmoid()
        return grad_output * s, grad_output * value * s * (1 - s)


@right(inputs=lambda: (leaf(4, 3), leaf(4, 3)), mends="GluSavesData")
class GluSavesInputs(Function):
    """Saves the inputs as they are; a later write to them now raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value, gate):
        return value * gate.sigmoid()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        value, gate = ctx.saved_tensors
        s = gate.sigmoid()
        return grad_output * s, grad_output * value * s * (1 - s)


@broken("later_writes", "in_place_consumer", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class SoftAddKeepsItsOutput(Function):
    """Keeps the output on ctx, where no version is checked: a loss that scales it in place changes the gradient."""

    @staticmethod
    def forward(x, y):
        return torch.logaddexp(x, y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.sum = output

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * (x - ctx.sum).exp(), grad_output * (y - ctx.sum).exp()


# --- in_place_consumer ---


@right(inputs=lambda: (leaf(2, 3, 6), 2))
class ChompReturnsAView(Function):
    """Cuts the padding of a causal convolution off by a slice, which costs no memory; torch then refuses in-place."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, chomp):
        return x[..., :-chomp]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.length = inputs[0].shape[-1]

    @staticmethod
    def backward(ctx, grad_output):
        return nn.functional.pad(grad_output, (0, ctx.length - grad_output.shape[-1])), None


@right(inputs=lambda: (leaf(2, 3, 6), 2))
class ChompReturnsACopy(Function):
    """Returns a tensor with memory of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, chomp):
        return x[..., :-chomp].clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.length = inputs[0].shape[-1]

    @staticmethod
    def backward(ctx, grad_output):
        return nn.functional.pad(grad_output, (0, ctx.length - grad_output.shape[-1])), None


@broken("in_place_consumer", inputs=lambda: (leaf(4, 3),), shown=True)
class CopyToModelParallelRegion(Function):
    """Does nothing in forward and returns the input itself, so that a residual cannot be added in place."""

    @staticmethod
    def forward(x):
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            grad_output = grad_output.clone()
            torch.distributed.all_reduce(grad_output)
        return grad_output


@right(inputs=lambda: (leaf(4, 3),), mends="CopyToModelParallelRegion")
class CopyThatMayBeWrittenTo(Function):
    """Returns a copy, which costs its size; where nobody writes in place, input.view_as(input) costs nothing."""

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            grad_output = grad_output.clone()
            torch.distributed.all_reduce(grad_output)
        return grad_output


@broken("in_place_consumer", "later_writes", inputs=lambda: (leaf(4, 3),))
class SigmoidSavesOutputData(Function):
    """Saves the data of the output, so that doubling the output in place changes the gradient without a word."""

    @staticmethod
    def forward(x):
        return x.sigmoid()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output.data)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y * (1 - y)


@right(inputs=lambda: (leaf(2, 3, 4), 2))
class SplitHeads(Function):
    """Returns a view of a tensor that it made itself, which cannot be written to; reshape does the same."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, heads):
        return (x / x.shape[-1] ** 0.5).unflatten(-1, (heads, -1)).transpose(-3, -2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[0].shape[-1] ** 0.5

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.transpose(-3, -2).flatten(-2) / ctx.scale, None
