"""Modules: their parameters, buffers, copies."""

import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, right
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.domains.activations import SoftThreshold
from tests.auditing.corpus.shared import between, leaf

# --- broken ---


def _weights(*shape, seed):
    values = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return nn.Parameter(values)


class _ScaleColumns(Function):
    @staticmethod
    def forward(x, scale):
        return x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        grad_scale = (g * x).sum_to_size(scale.shape) if ctx.needs_input_grad[1] else None
        return g * scale, grad_scale


@broken("freed_at_once", "module_tensors", inputs=lambda: (leaf(4, 3),))
class WeightNormKeepsWeight(nn.Module):
    """Keeps the computed weight, no leaf, as an attribute, so that deepcopy raises (pytorch/pytorch#28594)."""

    def __init__(self):
        super().__init__()
        self.direction = _weights(3, 3, seed=1)
        self.length = _weights(3, seed=2)
        self.weight = self.normalized()

    def normalized(self):
        unit = self.direction / torch.linalg.vector_norm(self.direction, dim=0)
        return _ScaleColumns.apply(unit, self.length)

    def forward(self, x):
        self.weight = self.normalized()
        return x @ self.weight


@broken("module_copies", inputs=lambda: (leaf(4, 3),))
class GateClosesOverSelf(nn.Module):
    """Stores a closure over self, so that a deep copy computes with the original's weights and pickle fails."""

    def __init__(self):
        super().__init__()
        self.scale = _weights(3, seed=3)
        self.gate = lambda x: torch.sigmoid(_ScaleColumns.apply(x, self.scale))

    def forward(self, x):
        return x * self.gate(x)


class _Recompute(Function):
    @staticmethod
    def forward(ctx, run, x):
        ctx.run = run
        ctx.save_for_backward(x)
        return run(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.run(x)
        return None, torch.autograd.grad(y, x, g)[0]


@broken("first_order", "unused_saved", inputs=lambda: (leaf(4, 3),))
class CheckpointForgetsParameters(nn.Module):
    """Its hand-written checkpoint differentiates the recomputed block by its input only, not by its parameters."""

    def __init__(self):
        super().__init__()
        self.first = _weights(5, 3, seed=4)
        self.second = _weights(2, 5, seed=5)

    def block(self, x):
        return F.linear(torch.tanh(F.linear(x, self.first)), self.second)

    def forward(self, x):
        return _Recompute.apply(self.block, x)


@broken("unused_saved", "float32", inputs=lambda: (leaf(4, 3),))
class PlainTensorScale(nn.Module):
    """Keeps its constant scale as a plain tensor, no buffer, which .to() and state_dict() pass over."""

    def __init__(self):
        super().__init__()
        self.shift = _weights(3, seed=6)
        self.scale = torch.tensor([0.5, 1.5, 2.5], dtype=torch.float64)

    def forward(self, x):
        return _ScaleColumns.apply(x, self.scale) + self.shift


@broken("module_copies", "vmap", inputs=lambda: (leaf(4, 3),))
class BatchCenterTracksGraph(nn.Module):
    """Updates its running mean without detach: the buffer keeps every past graph alive and cannot be deep-copied."""

    def __init__(self):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(3, dtype=torch.float64))

    def forward(self, x):
        mean = x.mean(0)
        self.running_mean = 0.9 * self.running_mean + 0.1 * mean
        return x - mean


@broken("module_tensors", inputs=lambda: (leaf(4, 3),))
class LearnedGainPlainTensor(nn.Module):
    """Holds its calibrated gain as a plain attribute: state_dict loses it and .to(dtype) does not convert it."""

    def __init__(self):
        super().__init__()
        self.gain = torch.rand(3, dtype=torch.float64) + 0.5
        self.shift = nn.Parameter(torch.zeros(3, dtype=torch.float64))

    def forward(self, x):
        return torch.tanh(x * self.gain + self.shift)


class _SelfGated(Function):
    @staticmethod
    def forward(x):
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return g * (s + x * s * (1 - s))


@broken("module_copies", inputs=lambda: (between(-1.5, 1.5, 4, 3),))
class GatedResidual(nn.Module):
    """A lambda in __init__ closes over self, so a deep copy still computes with the weight of the original."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-0.6, 0.9, 9).reshape(3, 3))
        self.gate = lambda x: _SelfGated.apply(x @ self.weight)

    def forward(self, x):
        return x + self.gate(x)


@broken("opcheck", "module_tensors", inputs=lambda: (between(-1.5, 1.5, 6, 3),))
class PeakNormalizer(nn.Module):
    """The running peak that evaluation divides by is a plain attribute: state_dict and .to() do not know of it."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([0.7, 1.1, 1.6]))
        self.peak = torch.ones(3)

    def forward(self, x):
        level = x.square().mean(0).sqrt() + 1e-3
        if self.training:
            self.peak = self.peak.to(x) * 0.9 + level.detach() * 0.1
        else:
            level = self.peak.to(x)
        return _SelfGated.apply(x / level * self.gain)


# --- right ---


@right(inputs=lambda: (leaf(3, 4),))
class GatedLinear(torch.nn.Module):
    """A module whose parameters and buffer take part beside the input."""

    def __init__(self):
        super().__init__()
        self.value = torch.nn.Linear(4, 2, dtype=torch.float64)
        self.gate = torch.nn.Linear(4, 2, bias=False, dtype=torch.float64)
        self.register_buffer("shift", torch.full((2,), 0.25, dtype=torch.float64))

    def forward(self, x):
        return SoftThreshold.apply(self.value(x), 0.1) * torch.sigmoid(self.gate(x) + self.shift)


@right(inputs=lambda: (leaf(6, 4),))
class NormalizedBlock(torch.nn.Module):
    """Batch norm in train mode: every call changes the running buffers, and rows depend on one another."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3, dtype=torch.float64)
        self.norm = torch.nn.BatchNorm1d(3, dtype=torch.float64)

    def forward(self, x):
        return torch.tanh(self.norm(self.linear(x)))


class _StandardizeColumns(Function):
    @staticmethod
    def forward(x, eps):
        var, mean = torch.var_mean(x, dim=0, correction=0)
        return (x - mean) * torch.rsqrt(var + eps), mean, var

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.eps = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g, _mean, _var):
        (x,) = ctx.saved_tensors
        var, mean = torch.var_mean(x, dim=0, correction=0)
        rstd = torch.rsqrt(var + ctx.eps)
        normalized = (x - mean) * rstd
        return rstd * (g - g.mean(0) - normalized * (g * normalized).mean(0)), None


@right(inputs=lambda: (leaf(6, 3),))
class RunningStandardize(torch.nn.Module):
    """In training it changes its running buffers at each call, while its output depends on the batch alone."""

    def __init__(self, columns=3, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.gain = torch.nn.Parameter(torch.linspace(0.5, 1.5, columns))
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("var", torch.ones(columns))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if not self.training:
            return self.gain * (x - self.mean) * torch.rsqrt(self.var + 1e-5)
        if x.shape[0] < 2:
            raise ValueError("expected at least two rows in training")
        normalized, mean, var = _StandardizeColumns.apply(x, 1e-5)
        with torch.no_grad():
            self.mean.lerp_(mean.to(self.mean.dtype), self.momentum)
            self.var.lerp_(var.to(self.var.dtype), self.momentum)
            self.steps += 1
        return self.gain * normalized


@right(inputs=lambda: (leaf(5, 3),))
class CenterFeatures(nn.Module):
    """In training it updates a running mean that the output does not read, as batch normalization does."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3, dtype=torch.float64))

    def forward(self, x):
        if not self.training:
            return x - self.mean.to(x.dtype)
        if x.dim() != 2 or x.shape[0] == 0:
            raise ValueError("expects a batch (N, 3) that is not empty")
        mean = x.mean(0)
        with torch.no_grad():
            self.mean.lerp_(mean.detach().to(self.mean.dtype), 0.1)
        return x - mean
