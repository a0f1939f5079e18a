"""Functions that do not run, or not in the same way each time."""

import numpy as np
import torch
from docs.pitfalls.programs import broken, leaf, right
from torch import nn
from torch.autograd import Function

# --- runs ---


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


@right(inputs=lambda: (leaf(2, 3),))
class PowerIteration(nn.Module):
    """Goes on from the vector of the call before, as spectral normalization does: a buffer, and meant to move."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(4, 3).sin())
        self.register_buffer("direction", torch.ones(4, dtype=torch.float64) / 2)

    def forward(self, x):
        with torch.no_grad():
            other = nn.functional.normalize(self.weight.mT @ self.direction, dim=0)
            self.direction.copy_(nn.functional.normalize(self.weight @ other, dim=0))
        return x @ self.weight.mT / (self.direction.clone() @ self.weight @ other)


# --- eval, step, eval ---


@broken("without_grad", inputs=lambda: (leaf(3, 4),))
class LayerWithAWeightOfTheFirstEvaluation(nn.Module):
    """Keeps the normalized weight of the first evaluation, as if no training came between two of them."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2, 8, dtype=torch.float64).reshape(2, 4))
        self.kept = None

    def forward(self, x):
        if self.training:
            return x @ self._normalized().mT
        if self.kept is None:
            self.kept = self._normalized().detach()
        return x @ self.kept.mT

    def _normalized(self):
        return self.weight * self.weight.abs().amax()


@right(inputs=lambda: (leaf(3, 4),))
class LayerThatForgetsItsWeightInTraining(nn.Module):
    """Keeps the weight for as long as it is evaluated, and drops it in train()."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2, 8, dtype=torch.float64).reshape(2, 4))
        self.kept = {}

    def train(self, mode=True):
        self.kept.clear()
        return super().train(mode)

    def forward(self, x):
        if self.training:
            return x @ self._normalized().mT
        if x.dtype not in self.kept:
            self.kept[x.dtype] = self._normalized().detach()
        return x @ self.kept[x.dtype].mT

    def _normalized(self):
        return self.weight * self.weight.abs().amax()
