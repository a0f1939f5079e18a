"""Functions that do something on the side."""

import torch
from docs.pitfalls.programs import broken, leaf, right
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import same_shapes

# --- inputs_unchanged ---


@broken("inputs_unchanged", inputs=lambda: (leaf(4, 5),))
def log_softmax_stabilized_in_place(logits):
    """Subtracts the maximum from the caller's logits themselves; value and gradient are right all the same."""
    logits.data.sub_(logits.data.amax(-1, keepdim=True))
    return logits - logits.exp().sum(-1, keepdim=True).log()


@broken(
    "inputs_unchanged",
    "grad_output_unchanged",
    inputs=lambda: (leaf(4, 3), leaf(4, 3)),
    source="linkedin/Liger-Kernel#254",
)
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


# --- later_writes ---


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


# --- lists, dicts and objects among the arguments ---


@broken("inputs_unchanged", inputs=lambda: (leaf(3, 4), {"slope": 0.1, "shift": 1.0}))
def leaky_takes_its_options(x, options):
    """Pops the slope out of the caller's dict, so that the second layer with these options has none."""
    return torch.nn.functional.leaky_relu(x - options["shift"], options.pop("slope"))


@right(inputs=lambda: (leaf(3, 4), {"slope": 0.1, "shift": 1.0}))
def leaky_copies_its_options(x, options):
    """Pops the slope out of a dict of its own."""
    options = dict(options)
    return torch.nn.functional.leaky_relu(x - options["shift"], options.pop("slope"))


@broken("inputs_unchanged", inputs=lambda: (leaf(3, 4), [1.0, 0.5]))
class ScaleByAListThatGrows(Function):
    """Appends the last scale to the caller's list, and multiplies with one more in each call."""

    @staticmethod
    def forward(ctx, x, scales):
        ctx.factor = sum(scales)
        scales.append(scales[-1])
        return ctx.factor * x

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.factor * grad_output, None


class _Schedule:
    def __init__(self):
        self.steps = []


@right(inputs=lambda: (leaf(3, 4), _Schedule()))
class TemperedBySchedule(Function):
    """Counts its calls in an object that it is given, and cools down with them: state, as that of a buffer is."""

    @staticmethod
    def forward(ctx, x, schedule):
        schedule.steps.append(1)
        ctx.factor = 0.9 ** len(schedule.steps)
        return ctx.factor * x

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.factor * grad_output, None


@right(inputs=lambda: (leaf(3, 4), leaf(3, 4)))
class GradientOfTheFirstForTheSecond(Function):
    """Ties two tensors together: it returns the second and hands its gradient to the first. No layer comes next."""

    @staticmethod
    def forward(ctx, kept, x):
        same_shapes(kept, x)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return torch.zeros_like(grad_output), grad_output
