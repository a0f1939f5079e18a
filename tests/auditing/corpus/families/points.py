"""Functions that are wrong at special points."""

import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, leaf, right
from torch.autograd import Function

from tests.auditing.corpus.shared import between

# --- special_points ---


@broken("special_points", inputs=lambda: ((0.1 * torch.randn(4, 3, dtype=torch.float64)).requires_grad_(),))
class HuberForgetsItsLinearPart(Function):
    """The backward has the gradient of the parabola alone, and the sample never left the parabola."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.where(x.abs() < 1, x * x / 2, x.abs() - 0.5)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x


@broken("special_points", inputs=lambda: (leaf(3, 3),))
class DeterminantByInverse(Function):
    """Uses the inverse for the gradient, which raises for a singular matrix, where the gradient is finite."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix):
        return torch.linalg.det(matrix)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, grad_output):
        matrix, det = ctx.saved_tensors
        return grad_output * det * torch.linalg.inv(matrix).mT


@broken("special_points", inputs=lambda: (leaf(4, 3),), surrogate=F.softsign)
class SpikeDividesByItsInput(Function):
    """Computes the slope of the surrogate x / (1 + |x|) as a quotient with x, which is 0 / 0 at the threshold."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return (x > 0).to(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        softsign = x / (1 + x.abs())
        return grad_output * (softsign / x) ** 2


# --- reference_points ---


@broken("reference_points", inputs=lambda: (leaf(4, 3),), reference=torch.sigmoid)
class SigmoidRefusesMaskedScores(Function):
    """Raises for infinite scores, though a score of minus infinity is how a place is masked."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        if x.isinf().any():
            raise ValueError("infinite scores")
        return x.sigmoid()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y * (1 - y)


@broken("reference_points", inputs=lambda: (leaf(4, 3),), reference=F.logsigmoid)
class LogSigmoidGradientAtInfinity(Function):
    """The values are right at infinity, but the gradient is a quotient of two exponentials that both overflow."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clamp(max=0) - (-x.abs()).exp().log1p()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (-x).exp() / (1 + (-x).exp())


@broken("special_points", inputs=lambda: (leaf(3, 4), False))
class CumulativeSumForgetsReverse(Function):
    """Sums from the end if reverse is set, and the backward always takes it for a sum from the beginning."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, reverse):
        return x.flip(-1).cumsum(-1).flip(-1) if reverse else x.cumsum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.flip(-1).cumsum(-1).flip(-1), None


@broken("special_points", "sizes", inputs=lambda: (leaf(3, 4), leaf(3, 4), "mean"))
class SquaredErrorAlwaysMeans(Function):
    """Divides the gradient by the number of elements, whatever the reduction."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, target, reduction):
        error = (x - target).square()
        return error if reduction == "none" else getattr(error, reduction)()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, grad_output):
        x, target = ctx.saved_tensors
        grad = 2 * (x - target) * grad_output / x.numel()
        return grad, -grad, None


@right(inputs=lambda: (leaf(3, 4), 0.5))
class HuberOfAnyWidth(Function):
    """Its width is a number among the arguments, of which no negative one makes sense: nobody asks for one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, width):
        return torch.where(x.abs() <= width, x * x / 2, width * (x.abs() - width / 2))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.width = inputs[1]

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.clamp(-ctx.width, ctx.width), None


@broken("special_points", inputs=lambda: ((2 * torch.randn(3, 4, dtype=torch.float64)).requires_grad_(), 1.0))
class HuberOfUnitWidth(Function):
    """Its width is an argument that the sample sets to one, and the backward has a one in its place."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, width):
        return torch.where(x.abs() <= width, x * x / 2, width * (x.abs() - width / 2))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.clamp(-1.0, 1.0), None


@right(inputs=lambda: (leaf(3, 4), torch.tensor(2.3, dtype=torch.float64, requires_grad=True)))
class DividedByAnOrderThatIsNotOne(Function):
    """Divides by the order less one, which is made for other orders than one; there, forward returns zeros."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, order):
        factor = 1 / (order - 1)
        return torch.where(factor.isfinite(), x * factor.nan_to_num(), torch.zeros_like(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, order = ctx.saved_tensors
        factor = (1 / (order - 1)).nan_to_num(posinf=1.0)
        return grad_output * factor, -(grad_output * x).sum() * factor**2


@right(inputs=lambda: ((torch.rand(3, 4, dtype=torch.float64) + 0.2).requires_grad_(),))
class RootByItsQuotient(Function):
    """At zero its gradient is NaN, where the slope of the root is infinite: neither is of use."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sqrt()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.sqrt() / (2 * x)


@broken("special_points", inputs=lambda: (leaf(5, 4), torch.tensor([0, 3, 1, 2, 2]), -100))
class CrossEntropyLearnsFromIgnoredRows(Function):
    """Leaves out rows whose label is the one to be ignored, and the backward has a gradient for them, too."""

    @staticmethod
    def forward(x, labels, ignore_index):
        used = labels != ignore_index
        losses = -x.log_softmax(-1).gather(1, labels.clamp(min=0).unsqueeze(1)).squeeze(1)
        return (losses * used).sum() / used.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, labels, ignore_index = inputs
        ctx.save_for_backward(x, labels)
        ctx.used = int((labels != ignore_index).sum())

    @staticmethod
    def backward(ctx, grad_output):
        x, labels = ctx.saved_tensors
        chosen = F.one_hot(labels.clamp(min=0), x.shape[1])
        return grad_output * (x.softmax(-1) - chosen) / ctx.used, None, None


# --- kinks of several arguments at once ---


@right(
    inputs=lambda: (torch.tensor([-2.0, -0.3, 0.0, 0.2, 3.0], dtype=torch.float64).requires_grad_(), between(0.3, 1))
)
class ThresholdOfZero(Function):
    """At a threshold of zero, an entry of zero has a kink for both arguments together, and for neither alone."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, threshold):
        return x.sgn() * (x.abs() - threshold).clamp(min=0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, threshold = ctx.saved_tensors
        grad_x = torch.where(x.abs() > threshold, grad_output, 0)
        return grad_x, -(grad_x * x.sgn()).sum()


@broken("special_points", inputs=lambda: (leaf(5), between(0.3, 1)))
class ShrinkageDoublesZero(ThresholdOfZero):
    """An entry of exactly zero counts twice, which is no slope that occurs next to it."""

    @staticmethod
    def forward(x, threshold):
        return x / (1 + threshold**2)

    @staticmethod
    def backward(ctx, grad_output):
        x, threshold = ctx.saved_tensors
        scale = 1 + threshold**2
        grad_x = torch.where(x == 0, 2 * grad_output, grad_output) / scale
        return grad_x, -2 * threshold * (grad_output * x).sum() / scale**2


@right(inputs=lambda: (leaf(5), between(1, 2)))
class SaturationByQuotient(Function):
    """At a limit of zero, forward divides by zero and is finite by chance, with a kink: no gradient is right there."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, limit):
        return limit * torch.tanh(x / limit)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, limit = ctx.saved_tensors
        t = torch.tanh(x / limit)
        grad_limit = grad_output * (t - x / limit * (1 - t * t))
        return grad_output * (1 - t * t), grad_limit.sum_to_size(limit.shape)
