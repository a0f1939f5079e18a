"""Broken functions by somebody who did not know the checks: formulas, contract, layouts, side effects."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.audit.corpus import broken


def leaf(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def positive(*shape):
    return (torch.rand(shape, dtype=torch.float64) + 0.5).requires_grad_()


# --- formula ---


@broken("first_order", inputs=lambda: (leaf(4, 3),))
class TanhGeluCubicSlope(Function):
    """Differentiates the cubic term of the tanh GELU without its factor 3."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return 0.5 * x * (1 + torch.tanh(inner))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        factor = math.sqrt(2 / math.pi)
        t = torch.tanh(factor * (x + 0.044715 * x**3))
        slope = factor * (1 + 0.044715 * x**2)
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope)


@broken("first_order", "unneeded_gradients", inputs=lambda: (leaf(5, 3), leaf(3, 3), leaf(5, 3)))
class BilinearTransposedWeight(Function):
    """Returns the transpose of the weight's gradient, which a square weight accepts."""

    @staticmethod
    def forward(left, weight, right):
        return torch.einsum("bi,ij,bj->b", left, weight, right)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        left, weight, right = ctx.saved_tensors
        scaled = g.unsqueeze(1)
        grad_left = scaled * (right @ weight.t())
        grad_weight = (scaled * right).t() @ left
        grad_right = scaled * (left @ weight)
        return grad_left, grad_weight, grad_right


@broken("first_order", "empty", inputs=lambda: (leaf(4, 3, 2), leaf(2, 3, 2)))
class GroupedScoresFirstHead(Function):
    """Keys are shared by two query heads each, but their gradient takes the first head of a group, not the sum."""

    @staticmethod
    def forward(query, key):
        groups = query.shape[0] // key.shape[0]
        return query @ key.repeat_interleave(groups, 0).transpose(1, 2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        query, key = ctx.saved_tensors
        groups = query.shape[0] // key.shape[0]
        grad_query = g @ key.repeat_interleave(groups, 0)
        grad_key = g.transpose(1, 2) @ query
        return grad_query, grad_key.unflatten(0, (key.shape[0], groups))[:, 0]


@broken("first_order", inputs=lambda: (leaf(4, 5), positive(4)))
class WeightNormWithoutProjection(Function):
    """Treats the norm of each row as a constant, so the gradient keeps its component along the row."""

    @staticmethod
    def forward(ctx, direction, gain):
        norm = direction.norm(dim=1, keepdim=True)
        ctx.save_for_backward(direction, gain)
        return gain.unsqueeze(1) * direction / norm

    @staticmethod
    def backward(ctx, g):
        direction, gain = ctx.saved_tensors
        norm = direction.norm(dim=1, keepdim=True)
        grad_gain = (g * direction / norm).sum(1)
        grad_direction = g * gain.unsqueeze(1) / norm
        return grad_direction, grad_gain


@broken("first_order", "second_order", inputs=lambda: (leaf(2, 3, 4), 1))
class SoftmaxLastDimInBackward(Function):
    """Normalizes over the given dimension but sums over the last one in the backward."""

    @staticmethod
    def forward(x, dim):
        return torch.softmax(x, dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return p * (g - (g * p).sum(-1, keepdim=True)), None


@broken(
    "first_order",
    "empty",
    inputs=lambda: (leaf(5, 4), torch.tensor([0, 2, 3, 1, 2]), torch.tensor([0.5, 2.0, 1.5, 0.7]).double()),
)
class WeightedCrossEntropyOverBatch(Function):
    """The mean divides by the sum of the class weights in the forward and by the batch size in the backward."""

    @staticmethod
    def forward(logits, target, weight):
        picked = weight[target]
        loss = -torch.log_softmax(logits, 1).gather(1, target.unsqueeze(1)).squeeze(1)
        return (picked * loss).sum() / picked.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, target, weight = ctx.saved_tensors
        picked = weight[target].unsqueeze(1)
        delta = torch.softmax(logits, 1) - F.one_hot(target, logits.shape[1])
        return g * picked * delta / logits.shape[0], None, None


@broken("first_order", inputs=lambda: (leaf(6), torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0]).double(), 2.0))
class FocalLossOneTerm(Function):
    """Drops the derivative of the modulating factor, one of the two terms of the product rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logit, target, gamma):
        sign = 2 * target - 1
        p = torch.sigmoid(sign * logit)
        return -((1 - p) ** gamma) * F.logsigmoid(sign * logit)

    @staticmethod
    def setup_context(ctx, inputs, output):
        logit, target, gamma = inputs
        ctx.gamma = gamma
        ctx.save_for_backward(logit, target)

    @staticmethod
    def backward(ctx, g):
        logit, target = ctx.saved_tensors
        sign = 2 * target - 1
        p = torch.sigmoid(sign * logit)
        return -g * sign * (1 - p) ** (ctx.gamma + 1), None, None


@broken("first_order", inputs=lambda: (leaf(6, 3),))
class MomentsBiasedVariance(Function):
    """The variance is the unbiased one; its gradient divides by n, while the gradient of the mean is right."""

    @staticmethod
    def forward(x):
        return x.mean(0), x.var(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g_mean, g_var):
        (x,) = ctx.saved_tensors
        n = x.shape[0]
        return g_mean.expand_as(x) / n + 2 * g_var * (x - x.mean(0)) / n


@broken("first_order", inputs=lambda: (leaf(5, 3),))
class SeluMistypedScale(Function):
    """The scale of the backward has one wrong digit, an error of 0.1 percent."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.selu(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        scale, alpha = 1.0517009873554805, 1.6732632423543772
        return g * scale * torch.where(x > 0, torch.ones_like(x), alpha * torch.exp(x.clamp(max=0)))


@broken("special_points", inputs=lambda: (leaf(4, 4),))
class HardSwishOpenAbove(Function):
    """Has no branch for inputs above 3, where the slope is 1."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * (x + 3).clamp(0, 6) / 6

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.where(x > -3, (2 * x + 3) / 6, torch.zeros_like(x))


@broken("first_order", "empty", inputs=lambda: (leaf(3, 4), leaf(5, 4), leaf(5, 2), leaf(3, 5)))
class AttentionScaledBias(Function):
    """The optional bias is added after the scaling, but its gradient is scaled like that of the scores."""

    @staticmethod
    def forward(query, key, value, bias=None):
        scores = query @ key.t() / math.sqrt(query.shape[1])
        if bias is not None:
            scores = scores + bias
        return torch.softmax(scores, 1) @ value

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        query, key, value, bias = ctx.saved_tensors
        scale = 1 / math.sqrt(query.shape[1])
        scores = query @ key.t() * scale
        if bias is not None:
            scores = scores + bias
        p = torch.softmax(scores, 1)
        grad_p = g @ value.t()
        grad_scores = p * (grad_p - (grad_p * p).sum(1, keepdim=True)) * scale
        grad_bias = grad_scores if bias is not None else None
        return grad_scores @ key, grad_scores.t() @ query, p.t() @ g, grad_bias


@broken("first_order", inputs=lambda: (leaf(2, 9), 3, 2))
class MaxPoolWindowOffset(Function):
    """Places the winner of each window with the window's width, not with the stride of the windows."""

    @staticmethod
    def forward(x, width, stride):
        return x.unfold(1, width, stride).amax(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.width, ctx.stride = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        winner = x.unfold(1, ctx.width, ctx.stride).argmax(2)
        start = torch.arange(g.shape[1]) * ctx.width
        index = (start + winner).clamp(max=x.shape[1] - 1)
        return torch.zeros_like(x).scatter_add(1, index, g), None, None


# --- contract ---


@broken("first_order", "unneeded_gradients", inputs=lambda: (leaf(5, 2), positive(2), leaf(2)))
class DecayScanLastState(Function):
    """Ignores the gradient of the second output, the final state (as in huggingface/transformers#23774)."""

    @staticmethod
    def scan(x, decay):
        states = [torch.zeros_like(decay)]
        for row in x:
            states.append(decay * states[-1] + row)
        return states

    @staticmethod
    def forward(x, decay, bonus):
        states = DecayScanLastState.scan(x, decay)
        return torch.stack(states[:-1]) + bonus * x, states[-1]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g, g_state):
        x, decay, bonus = ctx.saved_tensors
        states = DecayScanLastState.scan(x, decay)
        carried = torch.zeros_like(decay)
        grad_decay = torch.zeros_like(decay)
        rows = []
        for t in reversed(range(x.shape[0])):
            rows.append(bonus * g[t] + carried)
            grad_decay = grad_decay + carried * states[t]
            carried = g[t] + decay * carried
        return torch.stack(rows[::-1]), grad_decay, (g * x).sum(0)


@broken("subsets", inputs=lambda: (leaf(4, 3), leaf(2, 3), leaf(2)))
class LinearBiasFollowsWeight(Function):
    """Reads the entry of the weight in needs_input_grad for the bias, so a frozen weight stops the bias, too."""

    @staticmethod
    def forward(x, weight, bias):
        return x @ weight.t() + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = g @ weight
        if ctx.needs_input_grad[1]:
            grad_weight = g.t() @ x
            grad_bias = g.sum(0)
        return grad_x, grad_weight, grad_bias


@broken("unused_outputs", "unneeded_gradients", inputs=lambda: (leaf(6), leaf(3)))
class PositionEncodingBothOrNothing(Function):
    """With undefined gradients switched on, it drops the whole gradient if only one of its outputs was used."""

    @staticmethod
    def forward(position, frequency):
        phase = torch.outer(position, frequency)
        return torch.sin(phase), torch.cos(phase)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g_sin, g_cos):
        if g_sin is None or g_cos is None:
            return None, None
        position, frequency = ctx.saved_tensors
        phase = torch.outer(position, frequency)
        g_phase = g_sin * torch.cos(phase) - g_cos * torch.sin(phase)
        return g_phase @ frequency, position @ g_phase


@broken("independent_calls", "later_writes", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class GateKeptOnClass(Function):
    """Keeps its inputs on the class, so a second call before the backward replaces them (pytorch/pytorch#16947)."""

    kept = None

    @staticmethod
    def forward(ctx, x, gate):
        GateKeptOnClass.kept = (x, gate)
        return x * torch.sigmoid(gate)

    @staticmethod
    def backward(ctx, g):
        x, gate = GateKeptOnClass.kept
        s = torch.sigmoid(gate)
        return g * s, g * x * s * (1 - s)


@broken("first_order", "second_order", inputs=lambda: (leaf(3), [leaf(4), leaf(4), leaf(4)]))
class MixtureOfList(Function):
    """Takes its tensors in a list, which autograd does not look into, so only the weights get a gradient."""

    @staticmethod
    def forward(ctx, weights, tensors):
        stacked = torch.stack(tensors)
        ctx.save_for_backward(stacked)
        return weights @ stacked

    @staticmethod
    def backward(ctx, g):
        (stacked,) = ctx.saved_tensors
        return stacked @ g, None


@broken("first_order", inputs=lambda: (leaf(4, 3), 0.2))
class CharbonnierDefaultEpsilon(Function):
    """Takes epsilon as an argument, but the backward uses the default value of it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, eps=1e-3):
        return torch.sqrt(x * x + eps * eps)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x / torch.sqrt(x * x + 1e-3 * 1e-3), None


@broken("later_writes", "tensors_on_ctx", inputs=lambda: (leaf(4, 3), leaf(3)))
class ColumnPowerOnContext(Function):
    """Keeps its inputs as attributes of ctx, so a change in place before the backward is used without an error."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.x = x
        ctx.weight = weight
        return x * x * weight

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.x * ctx.weight, (g * ctx.x * ctx.x).sum(0)


@broken("second_order", inputs=lambda: (leaf(4, 3), leaf()))
class LayerScaleAsNumber(Function):
    """Reads the learnable scale with .item() in the backward, which loses one term of the second derivative."""

    @staticmethod
    def forward(x, scale):
        return x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        return g * scale.item(), (g * x).sum()


@broken("first_order", inputs=lambda: (leaf(3, 4, 2), leaf(4)))
class PReLUFixedSlope(Function):
    """Returns None for the slope, as for a constant, although callers pass a learnable one per channel."""

    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope.view(-1, 1) * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, slope = ctx.saved_tensors
        return torch.where(x > 0, g, slope.view(-1, 1) * g), None


@broken("input_layouts", "inputs_unchanged", inputs=lambda: (leaf(4, 3), 0.5))
class RescaleInPlaceUnmarked(Function):
    """Changes its input in place and returns it without mark_dirty (pytorch/pytorch#30454)."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        x.mul_(factor)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


@broken("first_order", "empty", inputs=lambda: (leaf(4, 5), torch.tensor([0, 4, 2, 1])))
class TokenLossFirstGradient(Function):
    """Scales all rows with the gradient of the first one, as if the loss was a mean (linkedin/Liger-Kernel#1298)."""

    @staticmethod
    def forward(logits, target):
        return torch.logsumexp(logits, 1) - logits.gather(1, target.unsqueeze(1)).squeeze(1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        delta = torch.softmax(logits, 1) - F.one_hot(target, logits.shape[1])
        return delta * g[0], None


# --- layout ---


def _strided_index(shape, strides):
    index = torch.zeros(shape, dtype=torch.long)
    for dim, stride in enumerate(strides):
        steps = torch.arange(shape[dim]) * stride
        index = index + steps.view(-1, *[1] * (len(shape) - dim - 1))
    return index


def _read(tensor, index, offset=None):
    """Read a tensor's storage as a kernel with a bare pointer does; beyond the end there are zeros."""
    offset = tensor.storage_offset() if offset is None else offset
    size = tensor.untyped_storage().nbytes() // tensor.element_size() - offset
    memory = F.pad(tensor.detach().as_strided((size,), (1,), offset), (0, 1))
    return memory[index.clamp(max=size)]


@broken("input_layouts", "grad_output_layouts", inputs=lambda: (leaf(4, 3),))
class SiluStridesOfInput(Function):
    """Reads grad_output with the strides of the input, as a kernel behind torch.cat did (pytorch/pytorch#194719)."""

    @staticmethod
    def forward(x):
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return _read(g, _strided_index(x.shape, x.stride())) * s * (1 + x * (1 - s))


@broken("grad_output_layouts", inputs=lambda: (leaf(5, 4),))
class RowLogSumExpUnitStride(Function):
    """Reads one gradient per row with stride 1, wrong for the expanded gradient of a sum (k2-fsa/k2#1101)."""

    @staticmethod
    def forward(ctx, x):
        out = torch.logsumexp(x, 1)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, out = ctx.saved_tensors
        rows = _read(g, torch.arange(x.shape[0]))
        return rows.unsqueeze(1) * torch.exp(x - out.unsqueeze(1))


@broken(
    "input_layouts", "special_points", inputs=lambda: (torch.randn(6, 3, dtype=torch.float64)[2:].requires_grad_(),)
)
class SignedSquareFromStorageStart(Function):
    """Reads the saved input from the start of its storage and so ignores the offset of a slice."""

    @staticmethod
    def forward(x):
        return x * x.abs()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * _read(x, _strided_index(x.shape, x.stride()), offset=0).abs()


def _channels_last(*shape):
    x = torch.randn(shape, dtype=torch.float64)
    return x.to(memory_format=torch.channels_last).requires_grad_()


@broken("input_layouts", "grad_output_layouts", inputs=lambda: (_channels_last(2, 3, 2, 2), leaf(3)))
class ChannelScaleLayoutOfGradient(Function):
    """Decides the memory format by grad_output and reads the input with the same one (pytorch/pytorch#64100)."""

    @staticmethod
    def forward(x, scale):
        return x * scale.view(-1, 1, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        same_order = _read(x, _strided_index(g.shape, g.stride()))
        return g * scale.view(-1, 1, 1), (g * same_order).sum((0, 2, 3))


@broken("unwritten_memory", "repeatable", inputs=lambda: (leaf(9, 2), [4, 2, 3], 3))
class PackSegmentsUnwrittenTail(Function):
    """Rows that the packing cuts off keep what was in the memory of the new gradient (pytorch/FBGEMM#5754)."""

    @staticmethod
    def forward(ctx, x, lengths, width):
        ctx.lengths = lengths
        ctx.rows = x.shape[0]
        packed = x.new_zeros(len(lengths), width, x.shape[1])
        for row, part in zip(packed, x.split(lengths), strict=True):
            kept = min(len(part), width)
            row[:kept] = part[:kept]
        return packed

    @staticmethod
    def backward(ctx, g):
        grad_x = g.new_empty(ctx.rows, g.shape[2])
        start = 0
        for row, length in enumerate(ctx.lengths):
            kept = min(length, g.shape[1])
            grad_x[start : start + kept] = g[row, :kept]
            start += length
        return grad_x, None, None


@broken("first_order", inputs=lambda: (leaf(7, 3), leaf(3), leaf(3)))
class AffineFloorOfBlocks(Function):
    """Rounds the number of row blocks down, so the last rows miss in the weight's gradient (BobMcDear/attorch#18)."""

    @staticmethod
    def forward(x, weight, bias):
        return x * weight + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        block = 4 if x.shape[0] >= 4 else 1
        rows = x.shape[0] // block * block
        partial = (g * x)[:rows].unflatten(0, (-1, block)).sum(1)
        return g * weight, partial.sum(0), g.sum(0)


@broken("sizes", inputs=lambda: (leaf(3, 6),))
class LogSoftmaxFirstTile(Function):
    """The sum over a row stops after one tile of 128 columns."""

    @staticmethod
    def forward(x):
        return torch.log_softmax(x, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (log_p,) = ctx.saved_tensors
        total = g[:, :128].sum(1, keepdim=True)
        return g - torch.exp(log_p) * total


@broken("first_order", inputs=lambda: (leaf(1, 3, 5),))
class BatchNormSqueezedBatch(Function):
    """Squeezes all dimensions of size 1, so a batch of one loses its first dimension and averages over channels."""

    @staticmethod
    def forward(x):
        variance, mean = torch.var_mean(x, (0, 2), correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-5)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        variance, mean = torch.var_mean(x, (0, 2), correction=0, keepdim=True)
        rstd = torch.rsqrt(variance + 1e-5)
        y, grad = ((x - mean) * rstd).squeeze(), g.squeeze()
        grad = grad - grad.mean((0, -1), keepdim=True) - y * (grad * y).mean((0, -1), keepdim=True)
        return grad.view(x.shape) * rstd


@broken("empty", "unneeded_gradients", inputs=lambda: (leaf(5, 3), leaf(3)))
class ResidualMeanEmptyBatch(Function):
    """The forward guards the division by the batch size, the backward does not: NaN weights after an empty batch."""

    @staticmethod
    def forward(x, weight):
        return (x @ weight).square().sum() / max(x.shape[0], 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        residual = x @ weight
        factor = 2 * g / x.shape[0]
        return factor * torch.outer(residual, weight), factor * (x.t() @ residual)


@broken("grad_output_layouts", "empty", inputs=lambda: (leaf(2, 3, 4), leaf(5, 4)))
class LinearViewsGradient(Function):
    """Flattens grad_output with view, which raises for most gradients that are not contiguous (NVIDIA/apex#1601)."""

    @staticmethod
    def forward(x, weight):
        return x @ weight.t()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        rows = g.view(-1, weight.shape[0])
        return (rows @ weight).view(x.shape), rows.t() @ x.reshape(-1, weight.shape[1])


@broken("first_order", "second_order", inputs=lambda: (leaf(8), leaf(3)))
class SlidingDotOverwrites(Function):
    """Adds the windows' gradients through an index that repeats positions, so that overlaps overwrite each other."""

    @staticmethod
    def forward(x, weight):
        return x.unfold(0, weight.shape[0], 1) @ weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        width = weight.shape[0]
        index = torch.arange(g.shape[0]).unsqueeze(1) + torch.arange(width)
        grad_x = torch.zeros_like(x)
        grad_x[index] += torch.outer(g, weight)
        return grad_x, x.unfold(0, width, 1).t() @ g


@broken("first_order", "grad_output_layouts", inputs=lambda: (leaf(4, 3), leaf(2, 3)))
class LinearOwnOutputOrder(Function):
    """Returns a transposed result and expects grad_output to have the same strides."""

    @staticmethod
    def forward(x, weight):
        return (weight @ x.t()).t()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.strides = output.stride()
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        g = _read(g, _strided_index(g.shape, ctx.strides))
        return g @ weight, g.t() @ x


# --- side effects ---


@broken("grad_output_layouts", "grad_output_unchanged", inputs=lambda: (leaf(4, 3), 0.1))
class LeakyReluScalesGradient(Function):
    """Multiplies grad_output in place, which the caller or another branch may still read (pytorch/pytorch#81417)."""

    @staticmethod
    def forward(x, slope):
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.save_for_backward(x > 0)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (active,) = ctx.saved_tensors
        g.mul_(active + ctx.slope * ~active)
        return g, None


@broken("backward_twice", "same_tensor_twice", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class SwigluGradientOverInputs(Function):
    """Writes the gradients over the saved inputs to spare memory (linkedin/Liger-Kernel#254)."""

    @staticmethod
    def forward(gate, up):
        return F.silu(gate) * up

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        gate, up = ctx.saved_tensors
        s = torch.sigmoid(gate)
        grad_up = g * gate * s
        grad_gate = g * up * s * (1 + gate * (1 - s))
        gate.data.copy_(grad_gate)
        up.data.copy_(grad_up)
        return gate.detach(), up.detach()


@broken("inputs_unchanged", "checkpoint", inputs=lambda: (leaf(3, 5),))
class SortedRowsNumpy(Function):
    """Sorts the NumPy array that shares the memory of the input, so the input itself is sorted."""

    @staticmethod
    def forward(ctx, x):
        rows = x.detach().numpy()
        ctx.save_for_backward(torch.from_numpy(rows.argsort(axis=1)))
        rows.sort(axis=1)
        return torch.from_numpy(rows.copy())

    @staticmethod
    def backward(ctx, g):
        (order,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(1, order, g)


class _ScaleByTable(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, table):
        return x * table

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        (table,) = ctx.saved_tensors
        return g * table, None


@broken("global_settings", inputs=lambda: (leaf(4, 3),))
def position_scale_grad_mode(x):
    """Switches gradients off for a constant and then on, whatever the mode of the caller was."""
    torch.set_grad_enabled(False)
    table = torch.cos(torch.arange(x.shape[1], dtype=x.dtype) / x.shape[1])
    torch.set_grad_enabled(True)
    return _ScaleByTable.apply(x, table)


@broken("global_settings", inputs=lambda: (leaf(5, 3),))
class ErfActivationDefaultDtype(Function):
    """Sets the default dtype to build its constant in double precision and leaves it set."""

    @staticmethod
    def forward(ctx, x):
        torch.set_default_dtype(torch.float64)
        slope = torch.tensor(2 / math.sqrt(math.pi)).to(x.dtype)
        ctx.save_for_backward(x, slope)
        return torch.erf(x)

    @staticmethod
    def backward(ctx, g):
        x, slope = ctx.saved_tensors
        return g * slope * torch.exp(-x * x)


_ROW_NORMS = {}


@broken("linear_in_grad_output", "input_layouts", inputs=lambda: (leaf(4, 3),))
class UnitRowsCachedNorm(Function):
    """Keeps norms in a module-level cache by address and shape, stale as soon as the memory has other values."""

    @staticmethod
    def forward(ctx, x):
        key = (x.data_ptr(), tuple(x.shape))
        if key not in _ROW_NORMS:
            _ROW_NORMS[key] = x.detach().norm(dim=1, keepdim=True)
        norm = _ROW_NORMS[key]
        unit = x / norm
        ctx.save_for_backward(unit, norm)
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        unit, norm = ctx.saved_tensors
        return (g - unit * (g * unit).sum(1, keepdim=True)) / norm


_WARM_UP = {"calls": 0}


@broken("repeatable", inputs=lambda: (leaf(4, 3), 0.9))
class WarmUpCountsCalls(Function):
    """Counts its calls in the module, so a repeated forward of the same input has another result."""

    @staticmethod
    def forward(ctx, x, decay):
        _WARM_UP["calls"] += 1
        ctx.factor = 1 - decay ** _WARM_UP["calls"]
        ctx.save_for_backward(x)
        return ctx.factor * torch.sin(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.factor * torch.cos(x), None


class _Log(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.log(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g / x


def _without_nan(g):
    return None if g is None else torch.nan_to_num(g)


@broken("inputs_unchanged", inputs=lambda: (positive(4, 3),))
def log_hook_stays(x):
    """Every call leaves one more hook on the caller's tensor, which also hides the NaN of other functions."""
    if x.requires_grad:
        x.register_hook(_without_nan)
    return _Log.apply(x)


@broken("global_random_state", "compile", inputs=lambda: (leaf(4, 6),))
class SignFlipsSeedNumpy(Function):
    """Seeds NumPy's global generator to get the same signs every time and so restarts the caller's random numbers."""

    @staticmethod
    def signs(x):
        np.random.seed(17)  # noqa: NPY002
        return torch.from_numpy(np.random.choice([-1.0, 1.0], x.shape[1])).to(x.dtype)  # noqa: NPY002

    @staticmethod
    def forward(x):
        return (x * SignFlipsSeedNumpy.signs(x)).unflatten(1, (-1, 2)).sum(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(SignFlipsSeedNumpy.signs(inputs[0]))

    @staticmethod
    def backward(ctx, g):
        (signs,) = ctx.saved_tensors
        return g.repeat_interleave(2, 1) * signs


@broken("backward_twice", "empty", inputs=lambda: (leaf(4, 5), torch.tensor([1, 0, 4, 2])))
class CrossEntropySubtractsAgain(Function):
    """Subtracts one at the targets in the saved probabilities' own memory, a second backward subtracts it again."""

    @staticmethod
    def forward(ctx, logits, target):
        p = torch.softmax(logits, 1)
        ctx.save_for_backward(p, target)
        return -p.gather(1, target.unsqueeze(1)).log().mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        p, target = ctx.saved_tensors
        delta = p.numpy()
        delta[np.arange(len(delta)), target.numpy()] -= 1
        return g * torch.from_numpy(delta) / len(delta), None


@broken("first_order", "unused_saved", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class ProductOneScratchBuffer(Function):
    """Computes both gradients into the same scratch buffer, so the first one is overwritten by the second."""

    @staticmethod
    def forward(a, b):
        return a * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        scratch = torch.empty_like(a)
        grad_a = torch.mul(g, b, out=scratch)
        grad_b = torch.mul(g, a, out=scratch)
        return grad_a, grad_b


_WORKSPACE = {}


@broken("independent_calls", inputs=lambda: (leaf(4, 3),))
class CoshGlobalWorkspace(Function):
    """Returns a module-level buffer as the gradient, which the next backward of the same shape overwrites."""

    @staticmethod
    def forward(x):
        return torch.cosh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        key = (x.shape, x.dtype, x.device)
        if key not in _WORKSPACE:
            _WORKSPACE[key] = torch.empty_like(x)
        return torch.mul(g, torch.sinh(x), out=_WORKSPACE[key])
