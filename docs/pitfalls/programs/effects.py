"""Functions that do something on the side."""

import torch
from docs.pitfalls.programs import broken, fixes, leaf
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# --- inputs_unchanged ---


@broken("inputs_unchanged", inputs=lambda: (leaf(2, 4, 4),))
class CausalSoftmaxMasksItsInput(Function):
    """Forward writes minus infinity into the caller's scores, so all other code that reads the scores gets wrong
    numbers.
    """

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


@fixes(CausalSoftmaxMasksItsInput)
class CausalSoftmaxMasksACopy(Function):
    """Forward calls masked_fill without the underscore, which makes a new tensor."""

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


# --- grad_output_unchanged ---


@broken("grad_output_unchanged", inputs=lambda: (leaf(4, 3),))
class Relu6ClearsGradOutput(Function):
    """Backward sets entries of grad_output to zero, although the engine may pass the same tensor to another branch."""

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


@fixes(Relu6ClearsGradOutput)
class Relu6ClearsACopy(Function):
    """Backward calls masked_fill without the underscore, which does not change grad_output."""

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


# --- global_random_state ---


@broken("global_random_state", inputs=lambda: (leaf(4, 3), 0.5, 7))
class DropoutSeedsTheProgram(Function):
    """To draw the same mask again in backward, the function seeds the generator that the whole program uses."""

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


@fixes(DropoutSeedsTheProgram)
class DropoutSeedsItsGenerator(Function):
    """The function draws from its own generator."""

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


# --- global_settings ---


@broken("global_settings", inputs=lambda: (leaf(5, 4), 10_000.0))
class RotarySetsTheDefaultDtype(Function):
    """To compute the angles in float64, the function makes float64 the default for all later tensors."""

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


@fixes(RotarySetsTheDefaultDtype)
class RotaryNamesItsDtype(Function):
    """The function passes dtype=torch.float64 where it makes the angles."""

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


@broken("later_writes", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class GluSavesData(Function):
    """The function saves x.data, which shares the memory of the input but not its version. So PyTorch notices no later
    write.
    """

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


@fixes(GluSavesData)
class GluSavesInputs(Function):
    """The function saves the inputs themselves. If a later write changes them, backward now raises."""

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


# --- in_place_consumer ---


@broken("in_place_consumer", inputs=lambda: (leaf(4, 3),))
class CopyToModelParallelRegion(Function):
    """Forward returns the input itself, so the caller cannot add a residual to it in place."""

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


@fixes(CopyToModelParallelRegion)
class CopyThatMayBeWrittenTo(Function):
    """Forward returns a copy, which costs memory. If no caller writes in place, input.view_as(input) costs nothing."""

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
