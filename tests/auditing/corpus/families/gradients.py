"""Functions with wrong derivatives."""

import math

import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, leaf, right
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import FULL, closed_clamp, only

# --- first_order ---


@broken("first_order", inputs=lambda: (leaf(4, 5),))
class NormalizesWithoutProjection(Function):
    """The mean square in the denominator depends on every element of the row, which the backward leaves out."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt()


@broken("first_order", inputs=lambda: (leaf(4, 5), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)))
class ConstantTemperature(Function):
    """The temperature is a tensor that may be learned, and gets None in place of a gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits, temperature):
        return (logits / temperature).log_softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        logits, temperature = ctx.saved_tensors
        p = (logits / temperature).softmax(-1)
        return (grad_output - p * grad_output.sum(-1, keepdim=True)) / temperature, None


class _ModuleLinear(Function):
    @staticmethod
    def forward(x, module):
        return x @ module.weight.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.module = inputs[1]

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output @ ctx.module.weight, None


@broken("first_order", inputs=lambda: (leaf(4, 3),))
class PassesTheModule(nn.Module):
    """The function is given the module, not its weight, so that autograd does not know that the weight was used."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 3, dtype=torch.float64))

    def forward(self, x):
        return _ModuleLinear.apply(x, self)


@broken("first_order", inputs=lambda: (leaf(2), [leaf(4, 3), leaf(4, 3)]))
class MixesExpertsInAList(Function):
    """The outputs of the experts come in a list, and apply looks for tensors among its arguments alone."""

    @staticmethod
    def forward(gates, experts):
        return sum(gate * expert for gate, expert in zip(gates, experts, strict=True))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[1])

    @staticmethod
    def backward(ctx, grad_output):
        return torch.stack([(grad_output * expert).sum() for expert in ctx.saved_tensors]), None


def fast_sigmoid(x):
    """The function whose derivative takes the place of that of a step: 1 / (1 + 5 |x|)^2."""
    return x / (1 + 5 * x.abs())


@broken("first_order", inputs=lambda: (leaf(4, 3),), surrogate=fast_sigmoid)
class SpikeOfAnotherSlope(Function):
    """Declares a surrogate with a slope of 5, and computes the derivative of one with a slope of 1."""

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
        return grad_output / (1 + x.abs()) ** 2


@right(inputs=lambda: (leaf(4, 3),), surrogate=fast_sigmoid)
class SpikeOfTheDeclaredSlope(Function):
    """Its gradient is not the derivative of its values, on purpose, and is the one that it declares."""

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
        return grad_output / (1 + 5 * x.abs()) ** 2


@broken("first_order", inputs=lambda: (leaf(6, 3), leaf(2, 3)), gradient="approximate")
class SketchedLinearWithoutScale(Function):
    """Keeps 4 random mixtures of the samples for the gradient of the weight, and does not divide by 4."""

    @staticmethod
    def forward(ctx, x, weight):
        mixture = torch.randn(4, len(x), dtype=x.dtype)
        ctx.save_for_backward(mixture, mixture @ x, weight)
        return x @ weight.mT

    @staticmethod
    def backward(ctx, grad_output):
        mixture, sketch, weight = ctx.saved_tensors
        grad_x = grad_output @ weight if ctx.needs_input_grad[0] else None
        return grad_x, (mixture @ grad_output).mT @ sketch if ctx.needs_input_grad[1] else None


@right(inputs=lambda: (leaf(6, 3), leaf(2, 3)), gradient="approximate")
class SketchedLinear(Function):
    """Its gradient for the weight is random, and right on average; it refuses a second derivative."""

    @staticmethod
    def forward(ctx, x, weight):
        mixture = torch.randn(4, len(x), dtype=x.dtype)
        ctx.save_for_backward(mixture, mixture @ x, weight)
        return x @ weight.mT

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        mixture, sketch, weight = ctx.saved_tensors
        grad_x = grad_output @ weight if ctx.needs_input_grad[0] else None
        return grad_x, (mixture @ grad_output).mT @ sketch / 4 if ctx.needs_input_grad[1] else None


# --- linear_in_grad_output ---


@broken("linear_in_grad_output", inputs=lambda: (leaf(4, 3), leaf(2, 3)))
class LinearRescalesGradients(Function):
    """Divides grad_output by its largest entry for the matrix product, which is 0 / 0 for a gradient of zeros."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return x @ weight.mT

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        largest = grad_output.abs().max()
        scaled = grad_output / largest
        return (
            scaled @ weight * largest if ctx.needs_input_grad[0] else None,
            scaled.mT @ x * largest if ctx.needs_input_grad[1] else None,
        )


# --- second_order ---


@broken("second_order", inputs=lambda: (leaf(4, 3),))
class SpikeSavesItsSlope(Function):
    """Nobody declares the surrogate; its slope is computed in forward, so that the slope of that is zero."""

    @staticmethod
    def forward(x):
        return (x > 0).to(x), torch.sigmoid(4 * x).mul(4 * torch.sigmoid(-4 * x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        (slope,) = ctx.saved_tensors
        return grad_output * slope


@broken("second_order", inputs=lambda: (leaf(4, 3),))
class LogCoshBackwardInNumpy(Function):
    """The backward leaves torch without saying so by once_differentiable: the second derivative is zero."""

    @staticmethod
    def forward(x):
        return x.abs() + F.softplus(-2 * x.abs()) - math.log(2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(grad_output.detach().numpy() * x.detach().tanh().numpy())


# --- forward_mode ---


@broken("forward_mode", inputs=lambda: (leaf(4, 3), leaf(4, 3)))
class GateTakesTangentsForGranted(Function):
    """Without materialized gradients, a tangent that nobody gave is None, which the jvp handles for one input only."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, gate):
        return x * gate.sigmoid()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        if grad_output is None:
            return None, None
        x, gate = ctx.saved_tensors
        s = gate.sigmoid()
        return grad_output * s, grad_output * x * s * (1 - s)

    @staticmethod
    def jvp(ctx, x_tangent, gate_tangent):
        x, gate = ctx.saved_tensors
        s = gate.sigmoid()
        tangent = x_tangent * s
        return tangent if gate_tangent is None else tangent + gate_tangent * x * s * (1 - s)


@torch.library.custom_op("corpus::isru", mutates_args=())
def _isru(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + x * x).rsqrt()


@_isru.register_fake
def _(x):
    return torch.empty_like(x)


_isru.register_autograd(
    lambda ctx, grad: grad * (1 + ctx.saved_tensors[0] ** 2) ** -1.5,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@right(inputs=lambda: (leaf(4, 3),))
def isru_without_forward_mode(x):
    """An operator of torch.library has no rule for forward mode: a capability that is not there, and no mistake."""
    return _isru(x)


# --- reference ---


@broken(
    "reference",
    inputs=lambda: (torch.rand(4, 3, dtype=torch.float64).mul(1.6).clamp(max=1).requires_grad_(),),
    reference=lambda x: closed_clamp(x, 0, 1),
)
class ClampOfOpenInterval(Function):
    """At the bounds themselves, where clipped images lie, the gradient is 0; that of torch.clamp is 1 up to 2.13."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clamp(0, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * ((x > 0) & (x < 1))


class _ScaledTanh(Function):
    """Right but for a second derivative by the weight, which it detaches."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight):
        return (x * weight).tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        slope = grad_output * (1 - (x * weight.detach()).tanh().square())
        return slope * weight, slope * x


@broken("second_order", inputs=lambda: (leaf(3, 4),))
class TanhDetachesItsParameter(nn.Module):
    """The weight is a parameter, and no argument: its second derivative is wrong all the same."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 4, dtype=torch.float64))

    def forward(self, x):
        return _ScaledTanh.apply(x, self.weight)


@broken("linear_in_grad_output", inputs=lambda: (leaf(3, 4),))
class TanhSkipsSmallGradients(Function):
    """Saves itself the work if no entry of grad_output is above a millionth, as at the end of a training."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output.where(grad_output.abs() > 1e-6, 0) * (1 - y * y)


# --- gradients that are as exact as a solver ---


def _flow(x, rate, steps):
    """An equation of motion by the midpoint rule, forward in time or back."""
    h = 1.0 / steps
    for _ in range(abs(steps)):
        x = x + h * _velocity(x + h / 2 * _velocity(x, rate), rate)
    return x


def _velocity(x, rate):
    return -rate * x.sin()


def _adjoint(y, rate, grad_output, for_rate):
    """The adjoint equation, which is solved as the first one is: its error is that of the steps."""
    a, total, h = grad_output, torch.zeros_like(rate) if for_rate else None, 1 / 100
    for _ in range(100):
        middle, a_middle = y - h / 2 * _velocity(y, rate), a - h / 2 * a * rate * y.cos()
        if for_rate:
            total = total - h * (a_middle * middle.sin()).sum()
        y, a = y - h * _velocity(middle, rate), a - h * a_middle * rate * middle.cos()
    return a, total


class _Flow(Function):
    @staticmethod
    def forward(ctx, x, rate):
        only(FULL, x, rate)  # a hundred small steps add up to nothing in half precision
        y = _flow(x, rate, 100)
        ctx.save_for_backward(y, rate)
        return y


@right(inputs=lambda: (leaf(4), leaf()))
class FlowByTheAdjointEquation(_Flow):
    """Its gradient is that of the equation, not of the steps: both agree to the accuracy of the solver."""

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return _adjoint(*ctx.saved_tensors, grad_output, ctx.needs_input_grad[1])


@broken("first_order", inputs=lambda: (leaf(4), leaf()))
class FlowScaledAlmostRight(_Flow):
    """A factor that is off everywhere by a thousandth is a mistake, also where a solver is at work."""

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return tuple(1.001 * g for g in _adjoint(*ctx.saved_tensors, grad_output, True))


@broken("first_order", inputs=lambda: (leaf(4), leaf()))
class FlowForgetsTheEnd(_Flow):
    """Integrates the gradient of the rate over all steps but the last one, which is more than a solver errs."""

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        y, rate = ctx.saved_tensors
        x, total = _adjoint(y, rate, grad_output, True)
        return x, total + (grad_output * y.sin()).sum() / 100


# --- surrogates that are zero on the sample ---


@right(inputs=lambda: (torch.tensor([1.7, -2.3, 3.1], dtype=torch.float64, requires_grad=True),))
class RoundClipped(Function):
    """Straight through between -1 and 1; the sample lies outside, where its gradient is zero as that of the values."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() <= 1)


# --- grad_output in parts, and third derivatives ---


@broken("linear_in_grad_output", inputs=lambda: (leaf(3, 4), leaf(4, 2)))
class ProductSkipsSparseGradients(Function):
    """To save work where nothing flows back, it skips a gradient that has any zero, and not one that has zeros only."""

    @staticmethod
    def forward(x, weight):
        return x @ weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        if not grad_output.all():
            return torch.zeros_like(x), torch.zeros_like(weight)
        return grad_output @ weight.mT, x.mT @ grad_output


@right(inputs=lambda: (leaf(3, 4), leaf(4, 2)))
class ProductSkipsZeroGradients(Function):
    """Skips the product where nothing at all flows back."""

    @staticmethod
    def forward(x, weight):
        return x @ weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        if not grad_output.any():
            return torch.zeros_like(x), torch.zeros_like(weight)
        grads = [None, None]
        if ctx.needs_input_grad[0]:
            grads[0] = grad_output @ weight.mT
        if ctx.needs_input_grad[1]:
            grads[1] = x.mT @ grad_output
        return tuple(grads)


class _SineBackward(Function):
    @staticmethod
    def forward(ctx, x, grad_output):
        ctx.save_for_backward(x, grad_output, x.sin())
        return grad_output * x.cos()

    @staticmethod
    def backward(ctx, grad):
        x, grad_output, sine = ctx.saved_tensors
        return -grad * grad_output * sine, grad * x.cos()


@broken("second_order", inputs=lambda: (leaf(4),))
class SineWithASineThatIsSaved(Function):
    """Its second backward uses a sine that was saved: two derivatives are right, and the third is zero."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        return _SineBackward.apply(*ctx.saved_tensors, grad_output)


class _CosineBackward(Function):
    @staticmethod
    def forward(ctx, x, grad_output):
        ctx.save_for_backward(x, grad_output)
        return -grad_output * x.sin()

    @staticmethod
    def backward(ctx, grad):
        x, grad_output = ctx.saved_tensors
        return -grad * grad_output * x.cos(), -grad * x.sin()


@right(inputs=lambda: (leaf(4),))
class CosineWithTwoBackwards(Function):
    """Two functions deep, and differentiable as often as you like."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.cos()

    @staticmethod
    def backward(ctx, grad_output):
        return _CosineBackward.apply(*ctx.saved_tensors, grad_output)


# --- gradients that are no derivative, on purpose ---


def _product(a, b):
    """Quaternions with the real part last."""
    u, v = a[..., :3], b[..., :3]
    vector = a[..., 3:] * v + b[..., 3:] * u + torch.linalg.cross(u, v)
    return torch.cat([vector, a[..., 3:] * b[..., 3:] - (u * v).sum(-1, keepdim=True)], -1)


def _rotated(quaternion, points):
    inverse = torch.cat([-quaternion[..., :3], quaternion[..., 3:]], -1)
    return _product(_product(quaternion, F.pad(points, (0, 1))), inverse)[..., :3]


@right(inputs=lambda: (F.normalize(leaf(3, 4).detach(), dim=-1).requires_grad_(), leaf(3, 3)))
class RotatesPoints(Function):
    """The gradient of the quaternion is that of a small rotation, as in libraries for Lie groups."""

    @staticmethod
    def forward(ctx, quaternion, points):
        ctx.save_for_backward(quaternion, points)
        return _rotated(quaternion, points)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        quaternion, points = ctx.saved_tensors
        inverse = torch.cat([-quaternion[..., :3], quaternion[..., 3:]], -1)
        needed, others = ctx.needs_input_grad
        turned = F.pad(torch.linalg.cross(_rotated(quaternion, points), grad_output), (0, 1)) if needed else None
        return turned, _rotated(inverse, grad_output) if others else None


@right(inputs=lambda: (leaf(6, 2), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)))
class JittersInThePlane(Function):
    """The noise is the same from all sides, so the gradient of its size may have a part around the center."""

    @staticmethod
    def forward(ctx, x, size):
        noise = torch.randn_like(x)
        ctx.save_for_backward(noise)
        return x + size * noise

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (noise,) = ctx.saved_tensors
        around = torch.stack([-noise[:, 1], noise[:, 0]], 1)
        return grad_output, (grad_output * (noise + 0.4 * around)).sum()


@right(inputs=lambda: (leaf(3, 4),))
class FixedPointToFifteenPlaces(Function):
    """Backward stops at a fixed number of places, of which a tiny grad_output has fewer left."""

    @staticmethod
    def forward(ctx, x):
        y = torch.zeros_like(x)
        for _ in range(80):
            y = torch.tanh(y / 3 + x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        slope, u = 1 - y**2, grad_output
        for _ in range(80):
            new = grad_output + slope * u / 3
            done = bool(((new - u).abs() <= 1e-13).all())
            u = new
            if done:
                break
        return slope * u


# --- values that come in steps ---


class _Spread(Function):
    """Sigmoids that add up to 2, by bisection of their shift between fixed bounds."""

    @staticmethod
    def forward(ctx, x, halvings):
        low, high = torch.full_like(x[..., :1], -16), torch.full_like(x[..., :1], 16)
        for _ in range(halvings):
            middle = (low + high) / 2
            more = torch.sigmoid(x + middle).sum(-1, keepdim=True) < 2
            low, high = torch.where(more, middle, low), torch.where(more, high, middle)
        y = torch.sigmoid(x + (low + high) / 2)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        slope = y * (1 - y)
        total = slope.sum(-1, keepdim=True)
        shift = (slope * grad_output).sum(-1, keepdim=True) / torch.where(total == 0, 1, total)
        return slope * (grad_output - shift), None


@right(inputs=lambda: (leaf(4, 6),))
def spread_by_bisection(x):
    """Stops early, so that its values come in steps; the gradient is that of the equation, which they follow."""
    return _Spread.apply(x, 16)


@right(inputs=lambda: (leaf(6),))
def spread_by_few_halvings(x):
    """Its values come in steps so large that they hardly tell of any slope."""
    return _Spread.apply(x, 10)


class _SpreadWithoutItsShift(_Spread):
    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return y * (1 - y) * grad_output, None


@broken("first_order", inputs=lambda: (leaf(4, 6),))
def spread_without_its_shift(x):
    """Stops the bisection early, so that its values come in steps; and the backward leaves the shift out."""
    return _SpreadWithoutItsShift.apply(x, 16)


# --- estimators whose values stand still for one draw ---


@right(inputs=lambda: (leaf(3, 4),))
class RoundsAtRandom(Function):
    """Rounds up or down at random: the mean over many draws is the input, and backward returns its gradient."""

    @staticmethod
    def forward(ctx, x):
        return torch.floor(x + torch.rand_like(x))

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clone()


# --- second derivatives of gradients that are declared ---


@broken("second_order", inputs=lambda: (leaf(4),), gradient="custom")
class ClippedWithoutItsGraph(Function):
    """A clipped gradient that depends on the input, through a tensor that forward saved without a graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.slope = 3 * x**2
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.slope.clamp(max=5)


@right(inputs=lambda: (leaf(4),), gradient="custom")
class ClippedWithItsGraph(Function):
    """A clipped gradient, whose derivative is zero only where it is clipped."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (3 * x**2).clamp(max=5)
