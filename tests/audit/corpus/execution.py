"""Functions that do not run, or not in the same way each time: one for each finding of the family."""

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd import Function

from tests.audit.corpus import broken, right


def leaf(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


# --- runs ---


@broken("runs", inputs=lambda: (leaf(4, 3), 0.1), shown=True)
class LeakyReluForgetsItsSlope(Function):
    """Backward returns one gradient, but forward has two arguments: the slope needs a None of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, grad_output, ctx.slope * grad_output)


@right(inputs=lambda: (leaf(4, 3), 0.1), mends="LeakyReluForgetsItsSlope")
class LeakyReluWithItsSlope(Function):
    """Returns None for the slope, which is no tensor."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, grad_output, ctx.slope * grad_output), None


@broken("runs", inputs=lambda: (leaf(4, 3), 0.5))
class TemperatureInSaveForBackward(Function):
    """Forward raises: the temperature is a number, and save_for_backward takes tensors alone."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, temperature):
        return torch.softmax(x / temperature, -1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output, inputs[1])

    @staticmethod
    def backward(ctx, grad_output):
        y, temperature = ctx.saved_tensors
        return y * (grad_output - (grad_output * y).sum(-1, keepdim=True)) / temperature, None


@broken("runs", inputs=lambda: (leaf(4, 5),))
def log_cumsum_exp_by_numpy(x):
    """The result is made by NumPy, so that autograd knows of no way back from it to the input."""
    return torch.from_numpy(np.logaddexp.accumulate(x.detach().numpy(), axis=-1))


@broken("runs", inputs=lambda: (leaf(3, 8), torch.rand(5, dtype=torch.float64)))
class SpectralFilterStaysComplex(Function):
    """The gradient of a real signal is left complex: its imaginary part is zero, but the engine refuses it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, response):
        return torch.fft.irfft(torch.fft.rfft(x) * response, n=x.shape[-1])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad_output):
        (response,) = ctx.saved_tensors
        mirrored = torch.cat([response, response[1:-1].flip(0)])
        return torch.fft.ifft(torch.fft.fft(grad_output) * mirrored), None


@broken(
    "runs", inputs=lambda: (torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64).requires_grad_(),)
)
class EntropyOfZeroProbability(Function):
    """A probability of zero, as a one-hot target has it, gives zero times minus infinity, which is NaN."""

    generate_vmap_rule = True

    @staticmethod
    def forward(p):
        return -(p * p.log()).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return -(p.log() + 1) * grad_output.unsqueeze(-1)


@broken("runs", inputs=lambda: ((1000 + torch.rand(3, 4, dtype=torch.float64)).requires_grad_(),))
class LogSumExpOverflows(Function):
    """The exponential of logits near 1000 is infinite, because their maximum is not subtracted first."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.exp().sum(-1).log()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output.unsqueeze(-1) * torch.softmax(x, -1)


# --- repeatable ---


@broken("repeatable", inputs=lambda: (leaf(6, 3), 0.5), shown=True)
class DropPathOfItsOwnGenerator(Function):
    """Which samples are dropped is drawn from a new NumPy generator on each call, which no seed reaches."""

    @staticmethod
    def forward(x, keep):
        mask = torch.from_numpy(np.random.default_rng().random((len(x), 1)) < keep).to(x) / keep
        return x * mask, mask

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        (mask,) = ctx.saved_tensors
        return grad_output * mask, None


@right(inputs=lambda: (leaf(6, 3), 0.5), mends="DropPathOfItsOwnGenerator")
class DropPathOfTheGlobalGenerator(Function):
    """Draws from torch's global generator, which torch.manual_seed sets."""

    @staticmethod
    def forward(x, keep):
        mask = (torch.rand(len(x), 1, device=x.device) < keep).to(x) / keep
        return x * mask, mask

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        (mask,) = ctx.saved_tensors
        return grad_output * mask, None


@broken("repeatable", inputs=lambda: (leaf(4, 3),))
class TanhScalesByRunningGradient(Function):
    """Backward divides by a running mean of the gradients that came before: two equal calls get two answers."""

    running = 1.0

    @staticmethod
    def forward(x):
        return x.tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        cls = TanhScalesByRunningGradient
        cls.running = 0.9 * cls.running + 0.1 * float(grad_output.abs().mean())
        return grad_output * (1 - y * y) / cls.running


# --- without_grad ---


@broken("without_grad", inputs=lambda: (leaf(4, 5), torch.tensor([1, 0, 4, 2])), shown=True)
class SmoothsLabelsInTraining(Function):
    """Takes requires_grad for a sign of training, so that the same loss has another value under no_grad."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits, target):
        smoothing = 0.1 if logits.requires_grad else 0.0
        goal = F.one_hot(target, logits.shape[-1]).to(logits) * (1 - smoothing) + smoothing / logits.shape[-1]
        return -(goal * logits.log_softmax(-1)).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        logits, target = ctx.saved_tensors
        goal = F.one_hot(target, logits.shape[-1]).to(logits) * 0.9 + 0.1 / logits.shape[-1]
        return grad_output.unsqueeze(-1) * (logits.softmax(-1) - goal), None


@right(inputs=lambda: (leaf(4, 5), torch.tensor([1, 0, 4, 2]), 0.1), mends="SmoothsLabelsInTraining")
class SmoothsLabelsAsTold(Function):
    """The caller says how much to smooth, and evaluates with zero."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits, target, smoothing):
        goal = F.one_hot(target, logits.shape[-1]).to(logits) * (1 - smoothing) + smoothing / logits.shape[-1]
        return -(goal * logits.log_softmax(-1)).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, target, ctx.smoothing = inputs
        ctx.save_for_backward(logits, target)

    @staticmethod
    def backward(ctx, grad_output):
        logits, target = ctx.saved_tensors
        goal = F.one_hot(target, logits.shape[-1]).to(logits) * (1 - ctx.smoothing) + ctx.smoothing / logits.shape[-1]
        return grad_output.unsqueeze(-1) * (logits.softmax(-1) - goal), None, None


class _Squareplus(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return (x + (x * x + 4).sqrt()) / 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (1 + x / (x * x + 4).sqrt()) / 2


@broken("without_grad", inputs=lambda: (leaf(4, 3),))
def squareplus_with_a_hook(x):
    """Hangs a hook on the output, which raises under no_grad because there is nothing to hang it on."""
    y = _Squareplus.apply(x)
    y.register_hook(torch.nan_to_num)
    return y
