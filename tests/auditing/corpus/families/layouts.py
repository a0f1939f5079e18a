"""Functions that depend on memory or size."""

import torch
from docs.pitfalls.programs import broken, leaf, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import FULL, only

# --- input_layouts ---


@broken("input_layouts", inputs=lambda: (leaf(4, 3),))
class ReluKeepsTheStrides(Function):
    """Gives the result the strides of the input; in an expanded one many elements are one place in memory."""

    @staticmethod
    def forward(x):
        result = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
        return result.copy_(x.clamp(min=0))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * (y > 0)


@broken("input_layouts", inputs=lambda: (leaf(4, 3), 0.5))
class DropoutByView(Function):
    """Draws one number for each element in a row, and views the input as that row, which needs contiguous memory."""

    @staticmethod
    def forward(x, p):
        flat = x.view(-1)
        mask = (torch.rand(len(flat)) >= p).to(x) / (1 - p)
        return (flat * mask).view(x.shape), mask

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        (mask,) = ctx.saved_tensors
        return grad_output * mask.view(grad_output.shape), None


@broken("input_layouts", inputs=lambda: (leaf(4, 3), 0.5))
class DropoutInMemoryOrder(Function):
    """Masks the elements in the order in which they lie in memory, and their gradients in the order of the rows."""

    @staticmethod
    def forward(x, p):
        mask = (torch.rand(x.numel()) >= p).to(x) / (1 - p)
        if x.stride(0) < x.stride(1):
            return (x.mT * mask.view(x.mT.shape)).mT.contiguous(), mask
        return x * mask.view(x.shape), mask

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        (mask,) = ctx.saved_tensors
        return grad_output * mask.view(grad_output.shape), None


# --- grad_output_layouts ---


@broken("grad_output_layouts", inputs=lambda: (leaf(4, 3),))
class CumulativeSumHasAShortcut(Function):
    """Takes every stride of zero for a constant gradient, as behind sum(); one of them says less than that."""

    @staticmethod
    def forward(x):
        return x.cumsum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        if 0 in grad_output.stride():
            remaining = torch.arange(grad_output.shape[-1], 0, -1)
            return (remaining * grad_output.reshape(-1)[:1]).expand(grad_output.shape)
        return grad_output.flip(-1).cumsum(-1).flip(-1)


# --- given_layout ---


@right(inputs=lambda: (leaf(9).detach().unfold(0, 4, 1).requires_grad_(),))
class OverlappingWindowsCentered(Function):
    """Its sample is a view in which windows share their memory; it reads it, and writes to memory of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(windows):
        return windows - windows.mean(-1, keepdim=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output - grad_output.mean(-1, keepdim=True)


# --- empty ---


@broken("empty", inputs=lambda: (leaf(4, 3), leaf(3)))
class BiasTakesAMeanOfNothing(Function):
    """Writes the sum over the batch as the mean times the size, which is NaN times zero for an empty batch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, bias):
        return x + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output.mean(0) * len(grad_output)


# --- sizes ---


@broken("sizes", inputs=lambda: (leaf(4, 3), leaf(4, 1)))
class WeightedPoolSqueezesTheBatch(Function):
    """Squeezes all dims of size one: with a single sample the batch goes, too, and the product has no matrix."""

    @staticmethod
    def forward(x, weights):
        return weights.mT @ x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weights = ctx.saved_tensors
        grad_x = torch.outer(weights.squeeze(), grad_output.squeeze()) if ctx.needs_input_grad[0] else None
        return grad_x, (x @ grad_output.mT) if ctx.needs_input_grad[1] else None


def clipped_and_scaled(x):
    """What the gradient of SignScalesForTheSample is that of."""
    return x.clamp(-1, 1) / x.numel() ** 0.5


@broken("sizes", inputs=lambda: (leaf(4, 3),), surrogate=clipped_and_scaled)
class SignScalesForTheSample(Function):
    """Scales the surrogate gradient by the number of elements, written down as 12 because the sample had so many."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.where(x < 0, -1.0, 1.0).to(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() <= 1) / 12**0.5


# --- constants, and functions among the arguments ---


@right(inputs=lambda: (leaf(1, 2, 9), torch.randn(1, 2, dtype=torch.float64)))
class FilteredByPairsOfTaps(Function):
    """Its two taps are a constant that the caller makes: there are never one, three, or two sets of them."""

    @staticmethod
    def forward(ctx, x, taps):
        ctx.save_for_backward(taps)
        first, second = taps[0].reshape(2, -1).unbind() if taps.numel() != 2 else taps[0].unbind()
        return first.sum() * x[..., 1:] + second.sum() * x[..., :-1]

    @staticmethod
    def backward(ctx, grad_output):
        (taps,) = ctx.saved_tensors
        first, second = taps[0, :2].unbind()
        zero = grad_output.new_zeros((*grad_output.shape[:-1], 1))
        return torch.cat((zero, first * grad_output), -1) + torch.cat((second * grad_output, zero), -1), None


def _about_the_first(x):
    return x - x[:1]


@right(inputs=lambda: (_about_the_first, leaf(4)))
class AppliedToWhatThereIs(Function):
    """Applies a function of the caller, which in backward asks for one number at least."""

    @staticmethod
    def forward(ctx, function, x):
        ctx.save_for_backward(x)
        ctx.function = function
        return function(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        first = torch.zeros_like(x)
        first[0] = grad_output.sum()
        return None, grad_output - first


# --- what forward refuses, and what belongs together ---


@right(inputs=lambda: (leaf(4, 6),))
class PairsByView(Function):
    """Forward calls view, which refuses an input that lies otherwise in memory, and says what to do."""

    @staticmethod
    def forward(x):
        only(FULL, x)
        return x.view(-1, 2).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.unsqueeze(-1).expand(-1, 2).reshape(ctx.shape)


@right(inputs=lambda: (leaf(3, 6), torch.randperm(6)))
class ReorderedIntoFreshMemory(Function):
    """Its index is an order of all columns, so that the backward writes every one of them once."""

    @staticmethod
    def forward(x, order):
        return x[:, order]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad_output):
        (order,) = ctx.saved_tensors
        grad_x = torch.empty_like(grad_output)
        grad_x[:, order] = grad_output
        return grad_x, None


# --- square matrices ---


def _contraction(n):
    matrix = leaf(n, n).detach()
    return (0.6 * matrix / torch.linalg.matrix_norm(matrix, 2)).requires_grad_()


@right(inputs=lambda: (_contraction(4), leaf(3, 4)))
class FixedPointOfASquareMatrix(Function):
    """A matrix of one row is no square one, and is taken only because it broadcasts."""

    @staticmethod
    def forward(ctx, weight, x):
        z = torch.zeros_like(x)
        for _ in range(80):
            z = torch.tanh(z @ weight.mT + x)
        ctx.save_for_backward(weight, z)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        weight, z = ctx.saved_tensors
        slope = 1 - z * z
        jacobian = slope[:, :, None] * weight
        system = torch.eye(len(weight), dtype=weight.dtype) - jacobian
        grad_x = torch.linalg.solve(system.mT, grad_output[:, :, None])[:, :, 0] * slope
        return grad_x.mT @ z if ctx.needs_input_grad[0] else None, grad_x


@broken("sizes", inputs=lambda: (leaf(4, 4), leaf(3, 4)))
class SquareWeightDropsABatchOfOne(Function):
    """The sizes of the matrix stay equal, and a batch of one loses its dim all the same."""

    @staticmethod
    def forward(ctx, weight, x):
        ctx.save_for_backward(weight, x)
        return x @ weight

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        weight, x = ctx.saved_tensors
        rows = x.squeeze()
        grad_weight = rows.mT @ grad_output if rows.dim() == 2 else rows.expand(4, 4) * grad_output
        return grad_weight, grad_output @ weight.mT
