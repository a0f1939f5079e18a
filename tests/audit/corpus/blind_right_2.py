"""Right functions that a hasty verifier may complain about, by somebody who did not know the checks."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.audit.corpus import right


def real(*shape, grad=True):
    return torch.randn(shape, dtype=torch.float64).requires_grad_(grad)


def positive(*shape, low=0.5, high=2.0, grad=True):
    return torch.empty(shape, dtype=torch.float64).uniform_(low, high).requires_grad_(grad)


def cplx(*shape, grad=True):
    return torch.randn(shape, dtype=torch.complex128).requires_grad_(grad)


# Surrogates


def _clamp_to_grid(x, step, low, high):
    return x.clamp(low * step, high * step)


@right(inputs=lambda: (real(4, 5), 0.25, -4, 3), surrogate=_clamp_to_grid)
class GridRounding(Function):
    """Rounds to a grid of a given step and declares the derivative of the clamp, so the true derivative is zero."""

    @staticmethod
    def forward(x, step, low, high):
        return torch.round(x / step).clamp(low, high) * step

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, step, low, high = inputs
        ctx.save_for_backward(x)
        ctx.bounds = (low * step, high * step)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        low, high = ctx.bounds
        return torch.where((x >= low) & (x <= high), g, torch.zeros_like(g)), None, None, None


@right(inputs=lambda: (real(6), 2.0), surrogate=lambda v, slope: v / (1 + slope * v.abs()))
class SpikeFastSigmoid(Function):
    """Emits a step of the membrane potential and differentiates a fast sigmoid instead, twice if asked."""

    generate_vmap_rule = True

    @staticmethod
    def forward(v, slope):
        return (v > 0).to(v.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        v, ctx.slope = inputs
        ctx.save_for_backward(v)

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g / (1 + ctx.slope * v.abs()).square(), None


def _learned_step(x, step, low, high):
    scaled = (x / step).clamp(low, high)
    return step * (scaled + (scaled.round() - scaled).detach())


@right(inputs=lambda: (real(3, 4), positive(low=0.2, high=0.4), -2, 1), surrogate=_learned_step)
class LearnedStepQuantizer(Function):
    """A quantizer whose 0-dim step size is learned; both gradients belong to the straight-through form."""

    @staticmethod
    def forward(ctx, x, step, low, high):
        if step.dim():
            raise ValueError("expected a 0-dim step")
        ctx.save_for_backward(x, step)
        ctx.low, ctx.high = low, high
        return (x / step).round().clamp(low, high) * step

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, step = ctx.saved_tensors
        scaled = x / step
        inside = (scaled >= ctx.low) & (scaled <= ctx.high)
        grad_x = grad_step = None
        if ctx.needs_input_grad[0]:
            grad_x = g.masked_fill(~inside, 0.0)
        if ctx.needs_input_grad[1]:
            level = scaled.clamp(ctx.low, ctx.high)
            slope = level.round() - torch.where(inside, scaled, torch.zeros_like(scaled))
            grad_step = (g * slope).sum_to_size(step.shape)
        return grad_x, grad_step, None, None


def _nearest(x, codebook):
    return torch.cdist(x.detach(), codebook.detach()).argmin(dim=1)


def _vector_quantize(x, codebook):
    index = _nearest(x, codebook)
    return x - x.detach() + codebook[index], index


@right(inputs=lambda: (real(5, 3), real(4, 3)), surrogate=_vector_quantize)
class NearestCode(Function):
    """Vector quantization: the identity for the encoder, a scatter for the codebook, and an integer output."""

    @staticmethod
    def forward(x, codebook):
        index = _nearest(x, codebook)
        return codebook[index], index

    @staticmethod
    def setup_context(ctx, inputs, output):
        index = output[1]
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index)
        ctx.codebook_shape = inputs[1].shape

    @staticmethod
    def backward(ctx, g, _):
        (index,) = ctx.saved_tensors
        grad_codebook = None
        if ctx.needs_input_grad[1]:
            grad_codebook = g.new_zeros(ctx.codebook_shape).index_add(0, index, g)
        return (g if ctx.needs_input_grad[0] else None), grad_codebook


@right(inputs=lambda: (real(4, 6),), surrogate=lambda logits: logits.softmax(-1))
class HardChoice(Function):
    """Returns the one-hot arg max of each row, differentiates the softmax, and saves only the logits."""

    @staticmethod
    def forward(logits):
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        p = ctx.saved_tensors[0].softmax(-1)
        return p * (g - (g * p).sum(-1, keepdim=True))


@right(inputs=lambda: (real(3, 4),), surrogate=lambda x: 1.0 * x)
class StochasticRounding(Function):
    """Rounds up or down at random, so that two calls differ; it declares the identity and saves nothing."""

    @staticmethod
    def forward(x):
        return torch.floor(x + torch.rand(x.shape, dtype=x.dtype, device=x.device))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g


@right(inputs=lambda: (real(2, 5), 0.3), surrogate=lambda x, strength: -strength * x)
class GradientReversal(Function):
    """Returns a view of its input unchanged and a negative gradient, as domain-adversarial training wants."""

    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.strength * g, None


@right(
    inputs=lambda: (0.5, real(3), real(2, 2), real()),
    surrogate=lambda factor, *tensors: tuple(factor * t for t in tensors),
)
class ScaleGradientOfMany(Function):
    """Passes any number of tensors through and scales their gradients, with a float before the tensors."""

    @staticmethod
    def forward(ctx, factor, *tensors):
        ctx.factor = factor
        return tuple(t.clone() for t in tensors)

    @staticmethod
    def backward(ctx, *gs):
        return (
            None,
            *(ctx.factor * g if needed else None for g, needed in zip(gs, ctx.needs_input_grad[1:], strict=True)),
        )


# NumPy


_erf = np.vectorize(math.erf, otypes=[np.float64])


@right(inputs=lambda: (real(7),))
class ErfByPythonLoop(Function):
    """Calls a Python loop in the forward and says with once_differentiable that it has no second derivative."""

    @staticmethod
    def forward(x):
        return torch.from_numpy(_erf(x.detach().numpy())).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (2 / math.sqrt(math.pi)) * torch.exp(-x * x)


@right(inputs=lambda: (real(2, 9), 0.8))
class ExponentialAverage(Function):
    """A recursive filter in NumPy; its adjoint is the same filter run backward in time, and nothing is saved."""

    @staticmethod
    def _run(x, decay):
        values = x.detach().numpy()
        result, state = np.empty_like(values, order="C"), 0.0
        for t in range(values.shape[-1]):
            state = decay * state + (1 - decay) * values[..., t]
            result[..., t] = state
        return torch.from_numpy(result)

    @staticmethod
    def forward(x, decay):
        return ExponentialAverage._run(x, decay)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.decay = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return ExponentialAverage._run(g.flip(-1), ctx.decay).flip(-1), None


@right(inputs=lambda: (real(3, 3), 5))
class IntegerMatrixPower(Function):
    """A power of a square matrix by NumPy with an int exponent; the gradient sums products of transposed powers."""

    @staticmethod
    def forward(a, power):
        if a.dim() != 2 or a.shape[0] != a.shape[1] or power < 1:
            raise ValueError("expected one square matrix and a positive power")
        return torch.from_numpy(np.array(np.linalg.matrix_power(a.detach().numpy(), power)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, ctx.power = inputs
        ctx.save_for_backward(a)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a = ctx.saved_tensors[0].numpy().T
        left, total = g.numpy(), np.zeros_like(a)
        for k in range(ctx.power):
            total = total + left @ np.linalg.matrix_power(a, ctx.power - 1 - k)
            left = a @ left
        return torch.from_numpy(total), None


def _tridiagonal():
    return real(4), positive(5, low=4.0, high=6.0), real(4), real(5, 2)


@right(inputs=_tridiagonal)
class TridiagonalSolve(Function):
    """Gaussian elimination in NumPy with four differentiable inputs; one transposed solve serves all gradients."""

    @staticmethod
    def _solve(lower, main, upper, rhs):
        lower, main, upper, rhs = (t.detach().numpy() for t in (lower, main, upper, rhs))
        main, rhs = main.copy(), rhs.copy()
        for i in range(1, len(main)):
            factor = lower[i - 1] / main[i - 1]
            main[i] -= factor * upper[i - 1]
            rhs[i] -= factor * rhs[i - 1]
        for i in range(len(main) - 1, -1, -1):
            if i + 1 < len(main):
                rhs[i] -= upper[i] * rhs[i + 1]
            rhs[i] /= main[i]
        return torch.from_numpy(rhs)

    @staticmethod
    def forward(ctx, lower, main, upper, rhs):
        size = main.shape[0]
        fits = lower.shape == upper.shape == (size - 1,) and rhs.dim() == 2 and rhs.shape[0] == size
        if size == 0 or not fits:
            raise ValueError("expected three diagonals and a matrix of right-hand sides")
        solution = TridiagonalSolve._solve(lower, main, upper, rhs)
        ctx.save_for_backward(lower, main, upper, solution)
        return solution

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        lower, main, upper, solution = ctx.saved_tensors
        grad_rhs = TridiagonalSolve._solve(upper, main, lower, g)
        need_lower, need_main, need_upper, need_rhs = ctx.needs_input_grad
        return (
            -(grad_rhs[1:] * solution[:-1]).sum(1) if need_lower else None,
            -(grad_rhs * solution).sum(1) if need_main else None,
            -(grad_rhs[:-1] * solution[1:]).sum(1) if need_upper else None,
            grad_rhs if need_rhs else None,
        )


def _sparse_problem():
    rows = torch.tensor([0, 0, 1, 3, 3, 3])
    cols = torch.tensor([1, 4, 0, 2, 4, 2])
    return rows, cols, real(6), real(5), 4


@right(inputs=_sparse_problem)
class SparseMatVec(Function):
    """A sparse product by NumPy's add.at with integer coordinates, one of them repeated and one row empty."""

    @staticmethod
    def forward(rows, cols, values, x, size):
        if x.dim() != 1 or not rows.shape == cols.shape == values.shape or bool((cols < 0).any() or (rows < 0).any()):
            raise ValueError("expected a vector, and coordinates that are not negative for each value")
        values, x = values.detach().numpy(), x.detach().numpy()
        result = np.zeros(size, dtype=x.dtype)
        np.add.at(result, rows.numpy(), values * x[cols.numpy()])
        return torch.from_numpy(result)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:4])

    @staticmethod
    def backward(ctx, g):
        rows, cols, values, x = ctx.saved_tensors
        grad_values = grad_x = None
        if ctx.needs_input_grad[2]:
            grad_values = g[rows] * x[cols]
        if ctx.needs_input_grad[3]:
            grad_x = torch.zeros_like(x).index_add(0, cols, g[rows] * values)
        return None, None, grad_values, grad_x, None


@right(inputs=lambda: (real(3, 8), (0.25, 0.5, 0.25)))
class SymmetricBlur(Function):
    """A blur with a symmetric kernel and zero padding is its own adjoint, so the backward repeats the forward."""

    @staticmethod
    def _blur(x, kernel):
        rows = x.detach().numpy().reshape(-1, x.shape[-1])
        result = np.empty(rows.shape, dtype=rows.dtype)
        for i, row in enumerate(rows):
            result[i] = np.convolve(row, kernel, mode="same")
        return torch.from_numpy(result).reshape(x.shape)

    @staticmethod
    def forward(x, kernel):
        if len(kernel) % 2 == 0 or tuple(kernel) != tuple(kernel[::-1]) or x.shape[-1] < len(kernel):
            raise ValueError("expected a symmetric kernel of odd length, no longer than the rows")
        return SymmetricBlur._blur(x, kernel)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.kernel = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return SymmetricBlur._blur(g, ctx.kernel), None


def _hmm():
    return real(6, 3), real(3, 3)


@right(inputs=_hmm)
class ChainLogPartition(Function):
    """The log partition of a linear chain by a NumPy recursion; the gradients are its marginals (0-dim output)."""

    @staticmethod
    def _messages(unary, pair):
        alpha, beta = np.zeros_like(unary), np.zeros_like(unary)
        alpha[0] = unary[0]
        for t in range(1, len(unary)):
            alpha[t] = unary[t] + np.logaddexp.reduce(alpha[t - 1][:, None] + pair, axis=0)
        for t in range(len(unary) - 2, -1, -1):
            beta[t] = np.logaddexp.reduce(pair + unary[t + 1] + beta[t + 1], axis=1)
        return alpha, beta, np.logaddexp.reduce(alpha[-1])

    @staticmethod
    def forward(unary, pair):
        if unary.dim() != 2 or len(unary) == 0 or pair.shape != (unary.shape[1], unary.shape[1]):
            raise ValueError("expected a chain that is not empty and a square matrix of transitions")
        total = ChainLogPartition._messages(unary.detach().double().numpy(), pair.detach().double().numpy())[2]
        return torch.tensor(total, dtype=unary.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        unary, pair = (t.double().numpy() for t in ctx.saved_tensors)
        alpha, beta, total = ChainLogPartition._messages(unary, pair)
        grad_unary = grad_pair = None
        if ctx.needs_input_grad[0]:
            grad_unary = g * torch.from_numpy(np.exp(alpha + beta - total)).to(g.dtype)
        if ctx.needs_input_grad[1]:
            joint = alpha[:-1, :, None] + pair + (unary[1:] + beta[1:])[:, None, :] - total
            grad_pair = g * torch.from_numpy(np.exp(joint).sum(0)).to(g.dtype)
        return grad_unary, grad_pair


# Implicit differentiation


@right(inputs=lambda: (real(6), positive(6, low=0.1, high=0.7)))
class KeplerAnomaly(Function):
    """Newton's method in the forward, the implicit function theorem in the backward, twice through its output."""

    @staticmethod
    def forward(mean, eccentricity):
        if mean.shape != eccentricity.shape or not bool(((eccentricity >= 0) & (eccentricity < 0.9)).all()):
            raise ValueError("expected one eccentricity in [0, 0.9) for each anomaly")
        anomaly = mean + eccentricity * mean.sin()
        for _ in range(30):
            residual = anomaly - eccentricity * anomaly.sin() - mean
            anomaly = anomaly - residual / (1 - eccentricity * anomaly.cos())
        return anomaly

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, g):
        eccentricity, anomaly = ctx.saved_tensors
        grad_mean = g / (1 - eccentricity * anomaly.cos())
        return grad_mean, grad_mean * anomaly.sin()


def _equilibrium():
    w = torch.randn(4, 4, dtype=torch.float64)
    return (0.5 * w / torch.linalg.matrix_norm(w, 2)).requires_grad_(), real(3, 4)


@right(inputs=_equilibrium)
class TanhEquilibrium(Function):
    """A fixed point found by iteration; its gradient solves a linear system and ignores the path of the iteration."""

    @staticmethod
    def forward(ctx, w, x):
        if x.dim() != 2 or w.shape != (x.shape[1], x.shape[1]):
            raise ValueError("expected a square matrix and rows of its size")
        z = torch.zeros_like(x)
        for _ in range(80):
            z = torch.tanh(z @ w.T + x)
        ctx.save_for_backward(w, z)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        w, z = ctx.saved_tensors
        slope = 1 - z * z
        system = torch.eye(w.shape[0], dtype=w.dtype, device=w.device) - slope[:, :, None] * w
        u = torch.linalg.solve(system.mT, g.to(w.dtype)[:, :, None])[:, :, 0] * slope
        return (u.T @ z if ctx.needs_input_grad[0] else None), (u if ctx.needs_input_grad[1] else None)


@right(inputs=lambda: (real(5),))
class CubicRoot(Function):
    """The real root of y**3 + y = x by a closed form, differentiated through the equation that its output meets."""

    @staticmethod
    def forward(x):
        half = math.sqrt(3) / 2
        return 2 / math.sqrt(3) * torch.sinh(torch.asinh(3 * half * x) / 3)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g / (1 + 3 * y * y)

    @staticmethod
    def jvp(ctx, t):
        (y,) = ctx.saved_tensors
        return t / (1 + 3 * y * y)


def _equality_qp():
    root = torch.randn(4, 4, dtype=torch.float64)
    return (root @ root.T + torch.eye(4, dtype=torch.float64)).requires_grad_(), real(4), real(2, 4), real(2)


@right(inputs=_equality_qp)
class EqualityConstrainedQP(Function):
    """The minimizer of a quadratic under linear constraints; one saved KKT system serves four gradients."""

    @staticmethod
    def forward(ctx, q, c, a, b):
        n, m = a.shape[1], a.shape[0]
        kkt = q.new_zeros(n + m, n + m)
        kkt[:n, :n] = (q + q.T) / 2
        kkt[:n, n:] = a.T
        kkt[n:, :n] = a
        solution = torch.linalg.solve(kkt, torch.cat([-c, b]))
        ctx.save_for_backward(kkt, solution)
        ctx.n = n
        return solution[:n].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        kkt, solution = ctx.saved_tensors
        n = ctx.n
        adjoint = torch.linalg.solve(kkt, torch.cat([g, g.new_zeros(len(solution) - n)]))
        dx, dy = adjoint[:n], adjoint[n:]
        x, y = solution[:n], solution[n:]
        need_q, need_c, need_a, need_b = ctx.needs_input_grad
        grad_q = -(torch.outer(dx, x) + torch.outer(x, dx)) / 2 if need_q else None
        grad_a = -(torch.outer(dy, x) + torch.outer(y, dx)) if need_a else None
        return grad_q, (-dx if need_c else None), grad_a, (dy if need_b else None)


# In-place


class _LeakyInPlace(Function):
    @staticmethod
    def forward(x, slope):
        if slope <= 0:
            raise ValueError("the sign of the output tells the sign of the input for a positive slope only")
        return x.mul_(torch.where(x > 0, 1.0, slope).to(x.dtype))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.mark_dirty(x)
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * torch.where(y > 0, 1.0, ctx.slope).to(g.dtype), None


@right(inputs=lambda: (real(3, 4), 0.1))
def leaky_in_place(x, slope):
    """Overwrites an intermediate, declares that with mark_dirty, and reads the sign from the output."""
    return _LeakyInPlace.apply(x * 1.5, slope)


@right(inputs=lambda: (real(4, grad=False), real(4), 0.5))
class ScaledAddInto(Function):
    """Adds into a buffer that mark_dirty declares; the buffer is an input without gradient, and changes on purpose."""

    @staticmethod
    def forward(ctx, buffer, x, scale):
        if buffer.shape != x.shape:
            raise ValueError("the buffer and the addend have different shapes")
        ctx.scale = scale
        ctx.mark_dirty(buffer)
        return buffer.add_(x, alpha=scale)

    @staticmethod
    def backward(ctx, g):
        return g, (ctx.scale * g if ctx.needs_input_grad[1] else None), None


# Several outputs, integer and bool outputs


@right(inputs=lambda: (real(3, 5), True))
class SortedWithRank(Function):
    """Sorts each row and also returns two integer outputs, which have no gradient."""

    @staticmethod
    def forward(x, descending):
        values, order = x.sort(dim=-1, descending=descending)
        return values, order, order.argsort(dim=-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, order, rank = output
        ctx.mark_non_differentiable(order, rank)
        ctx.save_for_backward(rank)

    @staticmethod
    def backward(ctx, g, _order, _rank):
        (rank,) = ctx.saved_tensors
        return g.gather(-1, rank), None


@right(inputs=lambda: (real(4, 6), torch.rand(4, 6) > 0.4))
class SelectedSquares(Function):
    """The size of the output depends on a bool input, so no fixed shape describes it."""

    @staticmethod
    def forward(ctx, x, mask):
        if mask.shape != x.shape:
            raise ValueError("expected a mask of the shape of x")
        chosen = x[mask]
        ctx.save_for_backward(x, mask)
        return chosen * chosen, mask.sum()

    @staticmethod
    def backward(ctx, g, _):
        x, mask = ctx.saved_tensors
        return torch.zeros_like(x).masked_scatter(mask, g) * 2 * x, None


@right(inputs=lambda: (real(6), real(6)))
class PolarCoordinates(Function):
    """Receives None for an unused output, since it turns materialized gradients off, and handles the origin."""

    @staticmethod
    def forward(x, y):
        return torch.hypot(x, y), torch.atan2(y, x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g_radius, g_angle):
        x, y = ctx.saved_tensors
        radius = torch.hypot(torch.where((x == 0) & (y == 0), torch.ones_like(x), x), y)
        cos, sin = x / radius, y / radius
        grad_x = grad_y = None
        if g_radius is not None:
            grad_x, grad_y = g_radius * cos, g_radius * sin
        if g_angle is not None:
            turn = g_angle / radius
            grad_x = -turn * sin if grad_x is None else grad_x - turn * sin
            grad_y = turn * cos if grad_y is None else grad_y + turn * cos
        if grad_x is not None:
            grad_x, grad_y = grad_x.sum_to_size(x.shape), grad_y.sum_to_size(y.shape)
        return grad_x, grad_y


@right(inputs=lambda: (real(5),))
class MantissaAndExponent(Function):
    """The mantissa jumps at powers of two, and the exponent is an int32 output without gradient."""

    @staticmethod
    def forward(x):
        return torch.frexp(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        exponent = output[1]
        ctx.mark_non_differentiable(exponent)
        ctx.save_for_backward(exponent)

    @staticmethod
    def backward(ctx, g, _):
        return g * torch.exp2(-ctx.saved_tensors[0].to(g.dtype))


@right(inputs=lambda: (real(2, 9), 3))
class MaxPoolWithSource(Function):
    """Max pooling that cuts the rest of each row off and returns the place of each maximum."""

    @staticmethod
    def forward(ctx, x, window):
        count = x.shape[-1] // window
        values, source = x[..., : count * window].unflatten(-1, (count, window)).max(-1)
        source = source + window * torch.arange(count, device=x.device)
        ctx.save_for_backward(source)
        ctx.mark_non_differentiable(source)
        ctx.length = x.shape[-1]
        return values, source

    @staticmethod
    def backward(ctx, g, _):
        (source,) = ctx.saved_tensors
        return g.new_zeros(*g.shape[:-1], ctx.length).scatter(-1, source, g), None


# Optional inputs


@right(inputs=lambda: (real(4, 6), None, real(6), 1e-5))
class LayerNormOptionalAffine(Function):
    """Layer normalization whose weight is None here while its bias is not."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        if any(t is not None and t.shape != x.shape[-1:] for t in (weight, bias)):
            raise ValueError("expected vectors of the size of the last dimension")
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        centered = wide - wide.mean(-1, keepdim=True)
        rstd = (centered.square().mean(-1, keepdim=True) + eps).rsqrt()
        normalized = centered * rstd
        ctx.save_for_backward(normalized, rstd, weight)
        ctx.bias_dtype = None if bias is None else bias.dtype
        result = normalized if weight is None else normalized * weight
        return (result if bias is None else result + bias).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        normalized, rstd, weight = ctx.saved_tensors
        x_dtype, g = g.dtype, g.to(normalized.dtype)
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            h = g if weight is None else g * weight
            inner = h - h.mean(-1, keepdim=True) - normalized * (h * normalized).mean(-1, keepdim=True)
            grad_x = (rstd * inner).to(x_dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = (g * normalized).sum_to_size(weight.shape).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = g.sum_to_size(g.shape[-1:]).to(ctx.bias_dtype)
        return grad_x, grad_weight, grad_bias, None


def _attention_inputs():
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    return real(2, 5, 3), real(2, 5, 3), real(2, 5, 4), mask


@right(inputs=_attention_inputs)
class RecomputedAttention(Function):
    """Keeps the log of the normalizer instead of the weights and computes the weights again in the backward."""

    @staticmethod
    def _scores(q, k, mask):
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        return scores if mask is None else scores.masked_fill(~mask, -math.inf)

    @staticmethod
    def forward(ctx, q, k, v, mask=None):
        if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
            raise ValueError("expected the same batch dimensions")
        with torch.autocast(q.device.type, enabled=False):
            scores = RecomputedAttention._scores(q, k, mask)
            normalizer = scores.logsumexp(-1, keepdim=True)
            result = (scores - normalizer).exp() @ v
        ctx.save_for_backward(q, k, v, mask, normalizer, result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        q, k, v, mask, normalizer, result = ctx.saved_tensors
        need_q, need_k, need_v = ctx.needs_input_grad[:3]
        weights = (RecomputedAttention._scores(q, k, mask) - normalizer).exp()
        grad_q = grad_k = None
        if need_q or need_k:
            inner = weights * (g @ v.mT - (g * result).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
            grad_q = inner @ k if need_q else None
            grad_k = inner.mT @ q if need_k else None
        return grad_q, grad_k, (weights.mT @ g if need_v else None), None


@right(inputs=lambda: (real(3, 4), real(2, 4), None))
class LinearBiasOrNot(Function):
    """A linear layer called without its bias, which asks for each product only when it is needed."""

    @staticmethod
    def forward(x, weight, bias):
        if x.dim() != 2:
            raise ValueError("expected a matrix of rows")
        with torch.autocast(x.device.type, enabled=False):
            return x @ weight.T if bias is None else x @ weight.T + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        grad_x = g @ weight if ctx.needs_input_grad[0] else None
        grad_weight = g.T @ x if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, (g.sum(0) if ctx.needs_input_grad[2] else None)


# Complex


@right(inputs=lambda: (cplx(4), real(4)))
class PhaseTurn(Function):
    """Rotates a complex tensor by a real angle, so one gradient is complex and the other one real."""

    @staticmethod
    def forward(z, angle):
        if z.shape != angle.shape or not z.is_complex() or angle.is_complex():
            raise ValueError("expected one real angle for each complex number")
        return z * torch.polar(torch.ones_like(angle), angle)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, g):
        angle, result = ctx.saved_tensors
        grad_z = g * torch.polar(torch.ones_like(angle), -angle)
        return grad_z, (g * result.conj()).imag


@right(inputs=lambda: (cplx(3, 4),))
class TotalPower(Function):
    """A real 0-dim output of a complex input; by the convention of PyTorch its gradient is 2z, not 2 conj z."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return (z.real.square() + z.imag.square()).sum()

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        return 2 * g * z


@right(inputs=lambda: (real(2, 8),))
class AnalyticSignal(Function):
    """A real input and a complex output by FFT; the adjoint keeps only the real part, and nothing is saved."""

    @staticmethod
    def _one_sided(length, like):
        gain = torch.zeros(length, dtype=like.real.dtype, device=like.device)
        gain[1 : (length + 1) // 2] = 2
        gain[0] = 1
        if length % 2 == 0:
            gain[length // 2] = 1
        return gain

    @staticmethod
    def forward(x):
        if x.is_complex():
            raise TypeError("expected a real signal")
        gain = AnalyticSignal._one_sided(x.shape[-1], x)
        return torch.fft.ifft(torch.fft.fft(x) * gain)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        gain = AnalyticSignal._one_sided(g.shape[-1], g)
        return torch.fft.ifft(torch.fft.fft(g) * gain).real


@right(inputs=lambda: (cplx(3, 3), cplx(3, 2)))
class ComplexSolve(Function):
    """A complex linear solve: the adjoint needs the conjugate transpose, not the transpose."""

    @staticmethod
    def forward(a, b):
        if a.dim() != 2 or b.dim() != 2:
            raise ValueError("expected two matrices")
        return torch.linalg.solve(a, b)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        a, x = ctx.saved_tensors
        grad_b = torch.linalg.solve(a.mH, g)
        grad_a = -grad_b @ x.mH if ctx.needs_input_grad[0] else None
        return grad_a, (grad_b if ctx.needs_input_grad[1] else None)


# Kinks and jumps


@right(inputs=lambda: (real(3, 6),))
class SparseMaxRows(Function):
    """Projects each row on the simplex: piecewise linear, many exact zeros, and a backward that reads the support."""

    @staticmethod
    def forward(x):
        x = x - x.amax(-1, keepdim=True)
        ordered = x.sort(dim=-1, descending=True).values
        place = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
        excess = ordered.cumsum(-1) - 1
        size = (place * ordered > excess).sum(-1, keepdim=True)
        return (x - excess.gather(-1, size - 1) / size).clamp_min(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        support = (ctx.saved_tensors[0] > 0).to(g.dtype)
        mean = (g * support).sum(-1, keepdim=True) / support.sum(-1, keepdim=True)
        return support * (g - mean)


@right(inputs=lambda: (real(8), 0.4))
class SoftThresholding(Function):
    """The proximal step of the l1 norm: zero output and zero gradient on a whole interval are right."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, level):
        return x - x.clamp(-level, level)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.level = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() > ctx.level).to(g.dtype), None

    @staticmethod
    def jvp(ctx, t, _):
        (x,) = ctx.saved_tensors
        return t * (x.abs() > ctx.level).to(t.dtype)


@right(inputs=lambda: (real(4, 3), 1.0))
class ProjectOnBall(Function):
    """Scales long rows back to the sphere, leaves short rows alone, and stays finite for a row of zeros."""

    @staticmethod
    def forward(ctx, x, radius):
        ctx.save_for_backward(x)
        ctx.radius = radius
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return torch.where(norm > radius, x * (radius / norm.clamp_min(radius)), x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        outside = torch.linalg.vector_norm(x, dim=-1, keepdim=True) > ctx.radius
        safe = torch.where(outside, x, torch.ones_like(x))
        norm = torch.linalg.vector_norm(safe, dim=-1, keepdim=True)
        unit = safe / norm
        tangent = (g - unit * (unit * g).sum(-1, keepdim=True)) * (ctx.radius / norm)
        return torch.where(outside, tangent, g), None


@right(inputs=lambda: (real(9), 0.3))
class InterpolatedQuantile(Function):
    """A quantile of all elements: at most two of them get a gradient, and the output is 0-dim."""

    @staticmethod
    def forward(ctx, x, level):
        if x.dim() != 1 or x.numel() == 0 or not 0 <= level <= 1:
            raise ValueError("expected a vector that is not empty and a level in [0, 1]")
        values, order = x.sort()
        place = level * (x.numel() - 1)
        low, high = math.floor(place), math.ceil(place)
        ctx.share, ctx.size = place - low, x.numel()
        ctx.save_for_backward(order[[low, high]])
        return values[low] + (values[high] - values[low]) * ctx.share

    @staticmethod
    def backward(ctx, g):
        (ends,) = ctx.saved_tensors
        parts = torch.stack([g * (1 - ctx.share), g * ctx.share])
        return g.new_zeros(ctx.size).index_add(0, ends, parts), None


# Restricted domains and sizes


@right(inputs=lambda: ((-positive(6)).detach().requires_grad_(),))
class LogOneMinusExp(Function):
    """Defined for negative numbers only; it refuses the rest, so a probe at zero or above proves nothing."""

    @staticmethod
    def forward(x):
        if bool((x >= 0).any()):
            raise ValueError("log(1 - exp(x)) needs x < 0")
        return torch.where(x > -math.log(2), torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.exp() / x.expm1())

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * (x.exp() / x.expm1())

    @staticmethod
    def vmap(info, in_dims, x):
        return LogOneMinusExp.apply(x), in_dims[0]


@right(inputs=lambda: (real(3, 8),))
class WalshHadamard(Function):
    """A symmetric transform for lengths that are powers of two; its backward applies itself and saves nothing."""

    generate_vmap_rule = True

    @staticmethod
    def _butterfly(x):
        length, half = x.shape[-1], 1
        while half < length:
            pairs = x.unflatten(-1, (length // (2 * half), 2, half))
            first, second = pairs.unbind(-2)
            x = torch.stack((first + second, first - second), dim=-2).flatten(-3)
            half *= 2
        return x / math.sqrt(length)

    @staticmethod
    def forward(x):
        length = x.shape[-1]
        if length == 0 or length & (length - 1):
            raise ValueError("the length of the last dimension is not a power of two")
        return WalshHadamard._butterfly(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return WalshHadamard.apply(g)

    @staticmethod
    def jvp(ctx, t):
        return WalshHadamard._butterfly(t)


@right(inputs=lambda: (real(), real(), 1.0, 10.0))
class Rosenbrock(Function):
    """Takes and returns 0-dim tensors, between two Python floats that are no tensors."""

    @staticmethod
    def forward(x, y, a, b):
        if x.dim() or y.dim():
            raise ValueError("expected two 0-dim tensors")
        return (a - x) ** 2 + b * (y - x * x) ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y, ctx.a, ctx.b = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        valley = y - x * x
        return g * (-2 * (ctx.a - x) - 4 * ctx.b * x * valley), g * (2 * ctx.b * valley), None, None


@right(inputs=lambda: (real(2, 4, 3), -1))
class DiagonalAsView(Function):
    """Returns a view of its input and saves a shape only; the gradient is written through a view of new zeros."""

    @staticmethod
    def forward(x, offset):
        return x.diagonal(offset, -2, -1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.offset = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, g):
        grad_x = g.new_zeros(ctx.shape)
        grad_x.diagonal(ctx.offset, -2, -1).copy_(g)
        return grad_x, None


# Randomness


@right(inputs=lambda: (real(4, 5), 0.3, torch.Generator().manual_seed(11)))
class DropoutFromGenerator(Function):
    """Draws its mask from a Generator argument, which every call advances, so that two calls differ."""

    @staticmethod
    def forward(ctx, x, rate, generator):
        noise = torch.rand(x.shape, dtype=x.dtype, device=x.device, generator=generator)
        kept = noise >= rate
        ctx.save_for_backward(kept)
        ctx.gain = 1 / (1 - rate)
        return x.masked_fill(~kept, 0.0) * ctx.gain

    @staticmethod
    def backward(ctx, g):
        (kept,) = ctx.saved_tensors
        return g.masked_fill(~kept, 0.0) * ctx.gain, None, None


@right(inputs=lambda: (real(6, 4), 0.6))
class DropoutByMemoryOrder(Function):
    """Draws from the global RNG into a tensor with the strides of x, so a transposed x gets another mask, as in F."""

    @staticmethod
    def forward(x, keep):
        kept = torch.empty_like(x, dtype=torch.bool).bernoulli_(keep)
        return torch.where(kept, x / keep, 0.0), kept

    @staticmethod
    def setup_context(ctx, inputs, output):
        kept = output[1]
        ctx.mark_non_differentiable(kept)
        ctx.save_for_backward(kept)
        ctx.keep = inputs[1]

    @staticmethod
    def backward(ctx, g, _):
        (kept,) = ctx.saved_tensors
        return torch.where(kept, g / ctx.keep, 0.0), None


@right(inputs=lambda: (real(5, 3), 0.2))
class ReplayedMultiplicativeNoise(Function):
    """Saves the state of the RNG in place of the noise and draws the same noise again, inside fork_rng."""

    @staticmethod
    def forward(ctx, x, strength):
        if x.device.type != "cpu":
            raise ValueError("expected a tensor on the CPU")
        ctx.save_for_backward(torch.get_rng_state())
        ctx.strength = strength
        return x * (1 + strength * torch.randn(x.shape, dtype=x.dtype))

    @staticmethod
    def backward(ctx, g):
        (state,) = ctx.saved_tensors
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            noise = torch.randn(g.shape, dtype=g.dtype)
        return g * (1 + ctx.strength * noise), None


# Modules


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


@right(inputs=lambda: (real(6, 3),))
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


# Custom operators


@torch.library.custom_op("corpus::smooth_unit_rows", mutates_args=())
def _smooth_unit_rows(x: torch.Tensor, eps: float) -> torch.Tensor:
    if x.dim() == 0:
        raise ValueError("expected at least one dimension")
    return (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps)).contiguous()


@_smooth_unit_rows.register_fake
def _(x, eps):
    return x.new_empty(x.shape)


def _unit_rows_setup(ctx, inputs, output):
    x, ctx.eps = inputs
    ctx.save_for_backward(x)


def _unit_rows_backward(ctx, g):
    (x,) = ctx.saved_tensors
    scale = torch.rsqrt(x.square().sum(-1, keepdim=True) + ctx.eps)
    unit = x * scale
    return scale * (g - unit * (g * unit).sum(-1, keepdim=True)), None


_smooth_unit_rows.register_autograd(_unit_rows_backward, setup_context=_unit_rows_setup)


@_smooth_unit_rows.register_vmap
def _(info, in_dims, x, eps):
    if x.dim() < 2:
        raise ValueError("expected at least one dimension in each sample")
    return _smooth_unit_rows(x.movedim(in_dims[0], 0), eps), 0


@right(inputs=lambda: (real(4, 3), 0.1))
def smooth_unit_rows(x, eps):
    """An operator with fake kernel, gradient and vmap rule registered; a row of zeros has a finite gradient."""
    return _smooth_unit_rows(x, eps)


@torch.library.custom_op("corpus::segment_total", mutates_args=())
def _segment_total(values: torch.Tensor, segment: torch.Tensor, count: int) -> torch.Tensor:
    if segment.dim() != 1 or segment.shape[0] != values.shape[0]:
        raise ValueError("expected one segment for each row of values")
    return values.new_zeros((count, *values.shape[1:])).index_add(0, segment, values)


@_segment_total.register_fake
def _(values, segment, count):
    return values.new_empty((count, *values.shape[1:]))


def _segment_total_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[1])


def _segment_total_backward(ctx, g):
    (segment,) = ctx.saved_tensors
    return g.index_select(0, segment), None, None


_segment_total.register_autograd(_segment_total_backward, setup_context=_segment_total_setup)


@_segment_total.register_vmap
def _(info, in_dims, values, segment, count):
    if in_dims[1] is None:
        return _segment_total(values.movedim(in_dims[0], 1), segment, count), 1
    segment = segment.movedim(in_dims[1], 0)
    if bool(((segment < 0) | (segment >= count)).any()):
        raise IndexError("a segment is out of range")
    size = info.batch_size
    values = values.expand(size, *values.shape) if in_dims[0] is None else values.movedim(in_dims[0], 0)
    shift = count * torch.arange(size, device=segment.device)[:, None]
    total = _segment_total(values.flatten(0, 1), (segment + shift).flatten(), size * count)
    return total.unflatten(0, (size, count)), 0


@right(inputs=lambda: (real(5, 2), torch.tensor([0, 3, 0, 1, 3]), 4))
def segment_total(values, segment, count):
    """An operator with an integer tensor and a size among its inputs; segment 2 is empty here."""
    return _segment_total(values, segment, count)


@torch.library.custom_op("corpus::blend", mutates_args=())
def _blend(tensors: list[torch.Tensor], weights: list[float]) -> torch.Tensor:
    if not tensors or len(tensors) != len(weights) or any(t.shape != tensors[0].shape for t in tensors):
        raise ValueError("expected tensors of one shape and one weight for each")
    total = torch.zeros(tensors[0].shape, dtype=tensors[0].dtype, device=tensors[0].device)
    for tensor, weight in zip(tensors, weights, strict=True):
        total.add_(tensor, alpha=weight)
    return total


@_blend.register_fake
def _(tensors, weights):
    return tensors[0].new_empty(tensors[0].shape)


def _blend_setup(ctx, inputs, output):
    ctx.weights = inputs[1]


def _blend_backward(ctx, g):
    return [
        weight * g if needed else None for weight, needed in zip(ctx.weights, ctx.needs_input_grad[0], strict=True)
    ], None


_blend.register_autograd(_blend_backward, setup_context=_blend_setup)


@right(inputs=lambda: (real(3), real(3), real(3)))
def blend_of_three(*tensors):
    """An operator of a list of tensors and a list of floats, whose backward returns a list."""
    return _blend(list(tensors), [0.5, 0.3, 0.2])


# Lists, reductions, indexing, linear algebra


@right(inputs=lambda: (real(2, 3), real(2, 3), real(2, 3)))
class AllReduceOfShards(Function):
    """Gives each simulated rank a copy of the sum; all inputs get one gradient tensor, as the operands of + do."""

    @staticmethod
    def forward(ctx, *shards):
        if not shards or any(s.shape != shards[0].shape for s in shards):
            raise ValueError("expected shards of one shape")
        total = torch.stack(shards).sum(0)
        return tuple(total.clone() for _ in shards)

    @staticmethod
    def backward(ctx, *gs):
        total = torch.stack(gs).sum(0)
        return tuple(total if needed else None for needed in ctx.needs_input_grad)


@right(inputs=lambda: (real(3, 4, 2), 1))
class ProductOverDim(Function):
    """A product along a dimension whose gradient never divides, so that zeros among the factors are fine."""

    @staticmethod
    def forward(ctx, x, dim):
        ctx.save_for_backward(x)
        ctx.dim = dim
        return x.prod(dim)

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].movedim(ctx.dim, -1)
        one = torch.ones_like(x[..., :1])
        before = torch.cat([one, x[..., :-1].cumprod(-1)], dim=-1)
        after = torch.cat([one, x[..., 1:].flip(-1).cumprod(-1)], dim=-1).flip(-1)
        return (g.unsqueeze(-1) * before * after).movedim(-1, ctx.dim), None


@right(inputs=lambda: (real(2, 3, 4), (0, -1), False))
class LogSumExpOverDims(Function):
    """Reduces over a tuple of dimensions, one of them negative, and uses its own output in the backward."""

    @staticmethod
    def forward(x, dims, keepdim):
        return torch.logsumexp(x, dims, keepdim=keepdim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dims, ctx.keepdim = inputs
        ctx.dims = sorted(d % x.dim() for d in dims)
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):
        x, total = ctx.saved_tensors
        if not ctx.keepdim:
            for d in ctx.dims:
                g, total = g.unsqueeze(d), total.unsqueeze(d)
        return g * torch.exp(x - total.masked_fill(total == -math.inf, 0.0)), None, None


def _bags():
    return real(6, 3), torch.tensor([[1, 4, 0, 0], [2, 2, 5, 0], [0, 0, 0, 0]]), 0


@right(inputs=_bags)
class MeanOfBags(Function):
    """Averages rows that integers choose, without the padding; one bag has padding only and row 3 is never used."""

    @staticmethod
    def forward(ctx, weight, index, padding):
        unused = index == padding
        share = 1 / (~unused).sum(1, keepdim=True).clamp_min(1).to(weight.dtype)
        ctx.save_for_backward(index, unused, share)
        ctx.shape = weight.shape
        return F.embedding(index, weight).masked_fill(unused[..., None], 0.0).sum(1) * share

    @staticmethod
    def backward(ctx, g):
        index, unused, share = ctx.saved_tensors
        rows = (g * share)[:, None].expand(*index.shape, g.shape[-1]).masked_fill(unused[..., None], 0.0)
        return g.new_zeros(ctx.shape).index_add(0, index.flatten(), rows.flatten(0, 1)), None, None


def _definite():
    root = torch.randn(2, 3, 3, dtype=torch.float64)
    return ((root @ root.mT + torch.eye(3, dtype=torch.float64)).requires_grad_(),)


@right(inputs=_definite)
class CholeskyOfSymmetricPart(Function):
    """Factors the symmetric part of its input, so the gradient is symmetric; zeros above the diagonal are constants."""

    @staticmethod
    def forward(a):
        return torch.linalg.cholesky((a + a.mT) / 2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (factor,) = ctx.saved_tensors
        inner = factor.mT @ g.tril()
        inner = inner.tril() - torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1)) / 2
        left = torch.linalg.solve_triangular(factor.mT, inner, upper=True)
        grad_a = torch.linalg.solve_triangular(factor, left, upper=False, left=False)
        return (grad_a + grad_a.mT) / 2


# Recomputation and built-in compositions


def _wave(x, y):
    return torch.logaddexp(x.sin(), x * y)


@right(inputs=lambda: (_wave, real(3, 4), real(4)))
class RecomputeInBackward(Function):
    """Takes a Python function first, keeps only its inputs, and runs autograd inside the backward."""

    @staticmethod
    def forward(ctx, run, *args):
        ctx.run = run
        ctx.save_for_backward(*args)
        return run(*args)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        needs = ctx.needs_input_grad[1:]
        args = [t.detach().requires_grad_(need) for t, need in zip(ctx.saved_tensors, needs, strict=True)]
        with torch.enable_grad():
            result = ctx.run(*args)
        grads = iter(torch.autograd.grad(result, [t for t in args if t.requires_grad], g))
        return (None, *(next(grads) if need else None for need in needs))


@right(inputs=lambda: (real(7, 2, 4), torch.tensor([[1, 3, 3], [2, 1, 0]]), (7, 6), (3, 2)))
def ctc_of_scores(scores, targets, lengths, target_lengths):
    """The built-in CTC loss after log_softmax: integer targets, tuples, a step that one sample ignores, no hessian."""
    return F.ctc_loss(scores.log_softmax(-1), targets, lengths, target_lengths, reduction="none")
