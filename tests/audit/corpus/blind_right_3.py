"""Right functions by somebody who did not know the checks: from domains that nobody thinks of first."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.audit.corpus import right

FULL = (torch.float32, torch.float64)
REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def rand(*shape, grad=True):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def unit(*shape, low=0.1, high=0.9):
    return (low + (high - low) * torch.rand(*shape, dtype=torch.float64)).requires_grad_()


def only(kinds, *tensors):
    for tensor in tensors:
        if tensor is not None and tensor.dtype not in kinds:
            raise TypeError(f"dtype {tensor.dtype} is not supported")


@right(inputs=lambda: (rand(3, 4), rand(3, 3)))
class QuaternionRotate(Function):
    """Does not normalize the quaternion on purpose (scaled rotation), so the zero quaternion has a plain gradient."""

    @staticmethod
    def forward(q, v):
        only(REAL, q, v)
        if q.dim() != 2 or q.shape[1] != 4 or v.shape != (q.shape[0], 3):
            raise ValueError("expects quaternions (N, 4) and vectors (N, 3)")
        w, u = q[:, :1], q[:, 1:]
        turned = torch.linalg.cross(u, v, dim=-1)
        return (w * w - (u * u).sum(1, True)) * v + 2 * (u * v).sum(1, True) * u + 2 * w * turned

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        q, v = ctx.saved_tensors
        w, u = q[:, :1], q[:, 1:]
        ug = (u * g).sum(1, True)
        grad_q = grad_v = None
        if ctx.needs_input_grad[0]:
            vg, uv = (v * g).sum(1, True), (u * v).sum(1, True)
            cross = torch.linalg.cross(v, g, dim=-1)
            grad_w = 2 * w * vg + 2 * (u * cross).sum(1, True)
            grad_u = -2 * u * vg + 2 * (ug * v + uv * g) + 2 * w * cross
            grad_q = torch.cat([grad_w, grad_u], 1)
        if ctx.needs_input_grad[1]:
            scale = w * w - (u * u).sum(1, True)
            grad_v = scale * g + 2 * ug * u - 2 * w * torch.linalg.cross(u, g, dim=-1)
        return grad_q, grad_v


def _power_series(t, coefficients):
    total = torch.zeros_like(t)
    for c in reversed(coefficients):
        total = total * t + c
    return total


_SINC = [(-1) ** k / math.factorial(2 * k + 1) for k in range(11)]
_COSC = [(-1) ** k / math.factorial(2 * k + 2) for k in range(11)]


def _rodrigues_coefficients(t):
    near = t < 1
    small = torch.where(near, t, torch.zeros_like(t))
    big = torch.where(near, torch.ones_like(t), t)
    theta = big.sqrt()
    a = torch.where(near, _power_series(small, _SINC), theta.sin() / theta)
    b = torch.where(near, _power_series(small, _COSC), 2 * (theta / 2).sin() ** 2 / big)
    slope_a = [k * c for k, c in enumerate(_SINC)][1:]
    slope_b = [k * c for k, c in enumerate(_COSC)][1:]
    da = torch.where(near, _power_series(small, slope_a), (theta.cos() - a) / (2 * big))
    db = torch.where(near, _power_series(small, slope_b), (a - 2 * b) / (2 * big))
    return a, b, da, db


def _hat(r):
    x, y, z = r.unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).reshape(*r.shape[:-1], 3, 3)


@right(inputs=lambda: (rand(4, 3),))
class RotationFromAxisAngle(Function):
    """Divides by the angle, but switches to a series near zero, where the rotation vector is smooth."""

    @staticmethod
    def forward(ctx, r):
        only(FULL, r)
        if r.shape[-1:] != (3,):
            raise ValueError("expects rotation vectors (..., 3)")
        ctx.save_for_backward(r)
        t = (r * r).sum(-1)
        a, b, _, _ = _rodrigues_coefficients(t)
        eye = torch.eye(3, dtype=r.dtype, device=r.device)
        outer = r.unsqueeze(-1) * r.unsqueeze(-2)
        square = outer - t[..., None, None] * eye
        return eye + a[..., None, None] * _hat(r) + b[..., None, None] * square

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (r,) = ctx.saved_tensors
        t = (r * r).sum(-1)
        a, b, da, db = _rodrigues_coefficients(t)
        vee = torch.stack([g[..., 2, 1] - g[..., 1, 2], g[..., 0, 2] - g[..., 2, 0], g[..., 1, 0] - g[..., 0, 1]], -1)
        trace = g.diagonal(dim1=-2, dim2=-1).sum(-1)
        symmetric = ((g + g.mT) * r.unsqueeze(-2)).sum(-1)
        along_a = (vee * r).sum(-1)
        along_b = (symmetric * r).sum(-1) / 2 - t * trace
        slope = 2 * (da * along_a + db * along_b - b * trace)
        return a[..., None] * vee + b[..., None] * symmetric + slope[..., None] * r


@right(inputs=lambda: (rand(2, 9), (0.3, 0.2), (1.0, -0.5, 0.1)))
class RecursiveFilter(Function):
    """NumPy filter that runs backward in time for the gradient, with the coefficients as plain tuples."""

    @staticmethod
    def _filter(x, b, a):
        source = x.detach().cpu().numpy().astype(np.float64)
        y = np.zeros_like(source)
        for t in range(source.shape[-1]):
            for k, tap in enumerate(b[: t + 1]):
                y[..., t] += tap * source[..., t - k]
            for k, tap in enumerate(a[1 : t + 1], 1):
                y[..., t] -= tap * y[..., t - k]
        return torch.from_numpy(y).to(x)

    @staticmethod
    def forward(x, b, a):
        only(FULL, x)
        return RecursiveFilter._filter(x, b, a)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.b, ctx.a = inputs[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return RecursiveFilter._filter(g.flip(-1), ctx.b, ctx.a).flip(-1), None, None


@right(inputs=lambda: (rand(7), 255.0))
class MuLawCompress(Function):
    """Built from sign and abs, yet its first derivative is continuous at zero."""

    @staticmethod
    def forward(x, mu):
        only(REAL, x)
        return x.sign() * (mu * x.abs()).log1p() / math.log1p(mu)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.mu = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (ctx.mu / math.log1p(ctx.mu)) / (1 + ctx.mu * x.abs()), None


@right(inputs=lambda: (rand(4, 3, 2), unit(4, 3)))
class CompositeLayers(Function):
    """Transmittance is a product of (1 - alpha); the backward accumulates from behind, so alpha = 1 divides nothing."""

    @staticmethod
    def forward(color, alpha):
        only(REAL, color, alpha)
        if color.shape[:-1] != alpha.shape or alpha.dim() == 0 or alpha.shape[0] == 0:
            raise ValueError("expects colors (layers, ..., channels) and opacities (layers, ...), one layer at least")
        behind = torch.zeros_like(color[0])
        for c, a in zip(color.unbind(0)[::-1], alpha.unbind(0)[::-1], strict=True):
            behind = a.unsqueeze(-1) * c + (1 - a).unsqueeze(-1) * behind
        return behind

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        color, alpha = ctx.saved_tensors
        layers = alpha.shape[0]
        behind = [torch.zeros_like(color[0])]
        for i in range(layers - 1, 0, -1):
            a = alpha[i].unsqueeze(-1)
            behind.append(a * color[i] + (1 - a) * behind[-1])
        behind.reverse()
        light = [g]
        for i in range(layers - 1):
            light.append(light[-1] * (1 - alpha[i]).unsqueeze(-1))
        light = torch.stack(light)
        grad_color = light * alpha.unsqueeze(-1) if ctx.needs_input_grad[0] else None
        grad_alpha = (light * (color - torch.stack(behind))).sum(-1) if ctx.needs_input_grad[1] else None
        return grad_color, grad_alpha


@right(inputs=lambda: (rand(7), unit(5, low=0.2, high=3.8)))
class CubicBSpline(Function):
    """Uses floor inside, but the pieces join with two continuous derivatives and extend beyond the end knots."""

    @staticmethod
    def _locate(x, count):
        left = x.detach().nan_to_num().floor().clamp(0, count - 4)
        u = x - left
        return left.long().unsqueeze(-1) + torch.arange(4, device=x.device), u

    @staticmethod
    def _weights(u):
        v = 1 - u
        return torch.stack([v**3, 3 * u**3 - 6 * u**2 + 4, 3 * v**3 - 6 * v**2 + 4, u**3], -1) / 6

    @staticmethod
    def forward(control, x):
        only(FULL, control, x)
        if control.dim() != 1 or control.shape[0] < 4:
            raise ValueError("expects four control values at least")
        index, u = CubicBSpline._locate(x, control.shape[0])
        return (CubicBSpline._weights(u) * control[index]).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        control, x = ctx.saved_tensors
        index, u = CubicBSpline._locate(x, control.shape[0])
        grad_control = grad_x = None
        if ctx.needs_input_grad[0]:
            spread = (g.unsqueeze(-1) * CubicBSpline._weights(u)).reshape(-1)
            grad_control = torch.zeros_like(control).index_add(0, index.reshape(-1), spread)
        if ctx.needs_input_grad[1]:
            v = 1 - u
            slope = torch.stack([-(v**2), 3 * u**2 - 4 * u, 4 * v - 3 * v**2, u**2], -1) / 2
            grad_x = g * (slope * control[index]).sum(-1)
        return grad_control, grad_x


@right(inputs=lambda: (rand(3, 5),))
class OddEvenSort(Function):
    """Returns the permutation too, an integer output that carries no gradient."""

    @staticmethod
    def forward(x):
        only(REAL, x)
        n = x.shape[-1]
        values = list(x.unbind(-1))
        order = [torch.full_like(x[..., 0], i, dtype=torch.long) for i in range(n)]
        for phase in range(n):
            for i in range(phase % 2, n - 1, 2):
                a, b, p, q = values[i], values[i + 1], order[i], order[i + 1]
                swap = a > b
                values[i], values[i + 1] = torch.where(swap, b, a), torch.where(swap, a, b)
                order[i], order[i + 1] = torch.where(swap, q, p), torch.where(swap, p, q)
        return torch.stack(values, -1), torch.stack(order, -1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        (order,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(-1, order, g)


@right(inputs=lambda: (rand(6), rand(6)))
class SortedTransportCost(Function):
    """Saves two argsorts, which are locally constant, so the second derivative that treats them so is right."""

    @staticmethod
    def forward(x, y):
        only(FULL, x, y)
        if x.dim() != 1 or x.shape != y.shape or x.numel() == 0:
            raise ValueError("expects two samples of one size, not empty")
        return (x.sort().values - y.sort().values).square().mean()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.save_for_backward(x, y, x.argsort(), y.argsort())

    @staticmethod
    def backward(ctx, g):
        x, y, p, q = ctx.saved_tensors
        pull = g * 2 / x.numel() * (x[p] - y[q])
        grad_x = torch.zeros_like(pull).scatter(0, p, pull) if ctx.needs_input_grad[0] else None
        grad_y = torch.zeros_like(pull).scatter(0, q, -pull) if ctx.needs_input_grad[1] else None
        return grad_x, grad_y


@right(inputs=lambda: (rand(8),))
class IsotonicFit(Function):
    """NumPy pool-adjacent-violators: piecewise linear, the gradient averages over the pooled blocks."""

    @staticmethod
    def forward(ctx, y):
        only(FULL, y)
        if y.dim() != 1:
            raise ValueError("expects one sequence")
        sums, sizes = [], []
        for value in y.detach().cpu().numpy().astype(np.float64):
            sums.append(value)
            sizes.append(1)
            while len(sums) > 1 and sums[-2] / sizes[-2] > sums[-1] / sizes[-1]:
                sums[-2:] = [sums[-2] + sums[-1]]
                sizes[-2:] = [sizes[-2] + sizes[-1]]
        means = np.array([s / n for s, n in zip(sums, sizes, strict=True)], dtype=np.float64)
        ctx.sizes = sizes
        return torch.from_numpy(np.repeat(means, np.array(sizes, dtype=np.int64))).to(y)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        parts = [part.mean().expand(part.shape[0]) for part in g.split(ctx.sizes)] if ctx.sizes else [g]
        return torch.cat(parts)


@right(inputs=lambda: (rand(5), unit(5)))
class EccentricAnomaly(Function):
    """Implicit function solved by Newton steps; saves its own output, so the second derivative follows."""

    @staticmethod
    def forward(mean, eccentricity):
        only(FULL, mean, eccentricity)
        if mean.shape != eccentricity.shape:
            raise ValueError("expects one eccentricity for each mean anomaly")
        if not bool(((eccentricity >= 0) & (eccentricity < 1)).all()):
            raise ValueError("expects 0 <= eccentricity < 1")
        m, e = mean.double(), eccentricity.double()
        anomaly = m + 0.85 * e * m.sin().sign()
        for _ in range(60):
            anomaly = anomaly - (anomaly - e * anomaly.sin() - m) / (1 - e * anomaly.cos())
        return anomaly.to(mean.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, g):
        e, anomaly = ctx.saved_tensors
        shared = g / (1 - e * anomaly.cos())
        return shared, shared * anomaly.sin() if ctx.needs_input_grad[1] else None


@right(inputs=lambda: (unit(6, low=-0.3, high=4.0),))
class LambertW(Function):
    """The textbook slope W / (x (1 + W)) fails at zero; this one is written with exp(-W), saved as the output."""

    @staticmethod
    def forward(x):
        only(FULL, x)
        if bool((x < -math.exp(-1)).any()):
            raise ValueError("expects x >= -1/e")
        z = x.detach().double()
        w = torch.where(z < 0.5, (2 * (math.e * z + 1).clamp(min=0)).sqrt() - 1, z.clamp(min=0.5).log1p())
        for _ in range(60):
            residual = w - z * (-w).exp()
            above = (1 + w).clamp(min=1e-12)
            w = w - residual / (above - (w + 2) * residual / (2 * above))
        return w.to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (w,) = ctx.saved_tensors
        return g * (-w).exp() / (1 + w)


@right(inputs=lambda: (unit(4, low=0.06, high=0.25), unit(4, low=0.95, high=1.04), unit(4, low=0.97, high=1.04), 0.5))
class ImpliedVolatility(Function):
    """Bisection in the forward and inverse vega in the backward; prices outside the arbitrage bounds are refused."""

    @staticmethod
    def _greeks(vol, spot, strike, years):
        width = vol * math.sqrt(years)
        d1 = (spot / strike).log() / width + width / 2
        return d1, d1 - width

    @staticmethod
    def forward(price, spot, strike, years):
        only(FULL, price, spot, strike)
        if not price.shape == spot.shape == strike.shape:
            raise ValueError("expects prices, spots and strikes of one shape")
        p, s, k = price.double(), spot.double(), strike.double()
        if not bool(((p > (s - k).clamp(min=0)) & (p < s) & (k > 0)).all()):
            raise ValueError("a price violates the no-arbitrage bounds")
        low, high = torch.full_like(p, 1e-6), torch.full_like(p, 20.0)
        for _ in range(90):
            middle = (low + high) / 2
            d1, d2 = ImpliedVolatility._greeks(middle, s, k, years)
            above = s * torch.special.ndtr(d1) - k * torch.special.ndtr(d2) > p
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return ((low + high) / 2).to(price.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.years = inputs[3]
        ctx.save_for_backward(inputs[1], inputs[2], output)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        spot, strike, vol = ctx.saved_tensors
        d1, d2 = ImpliedVolatility._greeks(vol, spot, strike, ctx.years)
        vega = spot * (-d1 * d1 / 2).exp() * math.sqrt(ctx.years / (2 * math.pi))
        grad_spot = -g * torch.special.ndtr(d1) / vega if ctx.needs_input_grad[1] else None
        grad_strike = g * torch.special.ndtr(d2) / vega if ctx.needs_input_grad[2] else None
        return g / vega, grad_spot, grad_strike, None


@right(inputs=lambda: (rand(2, 4, 3), rand(3, 3)))
class ChainForwardScore(Function):
    """The backward runs the backward algorithm over the sequence and returns marginals, once differentiable."""

    @staticmethod
    def forward(ctx, emissions, transitions):
        only(FULL, emissions, transitions)
        if emissions.dim() != 3 or emissions.shape[1] == 0:
            raise ValueError("expects emissions (batch, steps, tags) with one step at least")
        alphas = [emissions[:, 0]]
        for t in range(1, emissions.shape[1]):
            alphas.append((alphas[-1].unsqueeze(2) + transitions).logsumexp(1) + emissions[:, t])
        total = alphas[-1].logsumexp(1)
        ctx.save_for_backward(emissions, transitions, torch.stack(alphas, 1), total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        emissions, transitions, alphas, total = ctx.saved_tensors
        steps = emissions.shape[1]
        beta = torch.zeros_like(emissions[:, 0])
        marginals, grad_transitions = [], torch.zeros_like(transitions)
        for t in range(steps - 1, -1, -1):
            if ctx.needs_input_grad[0]:
                marginals.append((alphas[:, t] + beta - total.unsqueeze(1)).exp() * g.unsqueeze(1))
            if t:
                step = transitions + (emissions[:, t] + beta).unsqueeze(1)
                if ctx.needs_input_grad[1]:
                    pair = (alphas[:, t - 1].unsqueeze(2) + step - total[:, None, None]).exp()
                    grad_transitions += (pair * g[:, None, None]).sum(0)
                beta = step.logsumexp(2)
        grad_emissions = torch.stack(marginals[::-1], 1) if ctx.needs_input_grad[0] else None
        return grad_emissions, grad_transitions if ctx.needs_input_grad[1] else None


@right(
    inputs=lambda: (2 * rand(4, 3).detach().requires_grad_(), torch.tensor([[0, 0, 0, 1, 1, 2], [1, 2, 3, 2, 3, 3]])),
)
class LennardJonesEnergy(Function):
    """Scalar energy with a true pole where two atoms coincide; the pair list is an integer tensor."""

    @staticmethod
    def forward(positions, pairs):
        only(FULL, positions)
        r2 = (positions[pairs[0]] - positions[pairs[1]]).square().sum(-1)
        s6 = r2.reciprocal() ** 3
        return (4 * s6 * (s6 - 1)).sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        positions, pairs = ctx.saved_tensors
        d = positions[pairs[0]] - positions[pairs[1]]
        inverse = d.square().sum(-1, keepdim=True).reciprocal()
        s6 = inverse**3
        force = g * -24 * s6 * (2 * s6 - 1) * inverse * d
        return torch.zeros_like(positions).index_add(0, pairs[0], force).index_add(0, pairs[1], -force), None


@right(inputs=lambda: (rand(2, 7),))
class HilbertPair(Function):
    """Real input and complex output: the gradient is the real part of the adjoint, and the length may be odd."""

    @staticmethod
    def _one_sided(n, like):
        gain = torch.zeros(n, dtype=like.dtype, device=like.device)
        gain[0] = 1
        gain[1 : (n + 1) // 2] = 2
        if n % 2 == 0:
            gain[n // 2] = 1
        return gain

    @staticmethod
    def forward(x):
        only(FULL, x)
        if x.dim() == 0 or x.shape[-1] == 0:
            raise ValueError("expects one sample at least")
        if x.numel() == 0:
            return torch.complex(x, torch.zeros_like(x))
        return torch.fft.ifft(torch.fft.fft(x) * HilbertPair._one_sided(x.shape[-1], x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        if g.numel() == 0:
            return g.real
        return torch.fft.ifft(torch.fft.fft(g) * HilbertPair._one_sided(g.shape[-1], g.real)).real


@right(inputs=lambda: ((1.5 * torch.randn(6, dtype=torch.complex128)).requires_grad_(),))
class ComplexLimiter(Function):
    """Not holomorphic: above the ceiling only the tangential part of the gradient passes, below it all of it."""

    @staticmethod
    def forward(z):
        only((torch.complex64, torch.complex128), z)
        return z / z.abs().clamp(min=1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        size = z.abs().clamp(min=1)
        unit_z = z / size
        radial = (unit_z.conj() * g).real
        return (g - (size > 1) * unit_z * radial) / size


@right(inputs=lambda: (rand(4, 5), 0.4, torch.Generator().manual_seed(3)))
class DropoutByGenerator(Function):
    """Draws from a generator argument, so two calls differ, but the backward replays the mask that it saved."""

    @staticmethod
    def forward(ctx, x, p, generator):
        only(REAL, x)
        keep = torch.rand(x.shape, generator=generator) >= p
        ctx.save_for_backward(keep.to(x.device))
        ctx.scale = 1 / (1 - p)
        return torch.where(keep.to(x.device), x * ctx.scale, 0)

    @staticmethod
    def backward(ctx, g):
        (keep,) = ctx.saved_tensors
        return torch.where(keep, g * ctx.scale, 0), None, None


@right(inputs=lambda: (rand(6, 3), 0.3))
class DropPath(Function):
    """Drops whole samples with the global generator and returns the kept rows as a second, boolean output."""

    @staticmethod
    def forward(x, p):
        only(REAL, x)
        keep = torch.rand(x.shape[:1], device=x.device) >= p
        rows = keep.reshape(-1, *[1] * (x.dim() - 1))
        return torch.where(rows, x / (1 - p), 0), keep

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.p = inputs[1]
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        (keep,) = ctx.saved_tensors
        return torch.where(keep.reshape(-1, *[1] * (g.dim() - 1)), g / (1 - ctx.p), 0), None


@right(inputs=lambda: (rand(3, 8), rand(3, 2)))
class LstmPointwise(Function):
    """Two outputs of which either may be unused; recomputes the gates so that the second derivative is right."""

    @staticmethod
    def forward(ctx, gates, cell):
        only(FULL, gates, cell)
        if gates.dim() != 2 or gates.shape != (cell.shape[0], 4 * cell.shape[1]):
            raise ValueError("expects gates (N, 4 H) and cells (N, H)")
        ctx.save_for_backward(gates, cell)
        i, f, o, c = gates.chunk(4, 1)
        new = f.sigmoid() * cell + i.sigmoid() * c.tanh()
        return o.sigmoid() * new.tanh(), new

    @staticmethod
    def backward(ctx, grad_hidden, grad_cell):
        gates, cell = ctx.saved_tensors
        i, f, o, c = gates.chunk(4, 1)
        i, f, o, c = i.sigmoid(), f.sigmoid(), o.sigmoid(), c.tanh()
        squashed = (f * cell + i * c).tanh()
        total = grad_cell + grad_hidden * o * (1 - squashed * squashed)
        parts = [
            total * c * i * (1 - i),
            total * cell * f * (1 - f),
            grad_hidden * squashed * o * (1 - o),
            total * i * (1 - c * c),
        ]
        return torch.cat(parts, 1), total * f


@right(inputs=lambda: (rand(7, 3), torch.tensor([0, 0, 1, -1, 3, 3, 3]), 4))
class PoolWordPieces(Function):
    """Mean of the pieces of each word; special tokens (word -1) get zero gradient and a word may have no piece."""

    @staticmethod
    def _counts(word, words, like):
        ones = torch.where(word >= 0, 1, 0).to(like)
        return torch.zeros(words, dtype=like.dtype, device=like.device).index_add(0, word.clamp(min=0), ones)

    @staticmethod
    def forward(pieces, word, words):
        only(FULL, pieces)
        kept = torch.where((word >= 0).unsqueeze(1), pieces, 0)
        total = pieces.new_zeros(words, pieces.shape[1]).index_add(0, word.clamp(min=0), kept)
        return total / PoolWordPieces._counts(word, words, pieces).clamp(min=1).unsqueeze(1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, word, ctx.words = inputs
        ctx.save_for_backward(word)

    @staticmethod
    def backward(ctx, g):
        (word,) = ctx.saved_tensors
        share = g / PoolWordPieces._counts(word, ctx.words, g).clamp(min=1).unsqueeze(1)
        return torch.where((word >= 0).unsqueeze(1), share[word.clamp(min=0)], 0), None, None


@right(inputs=lambda: (rand(2, 3), rand(2, 3, 4), 5))
class BeamStep(Function):
    """Top hypotheses with their parents and tokens, two integer outputs; only the chosen entries get gradient."""

    @staticmethod
    def forward(scores, log_probs, length):
        only(FULL, scores, log_probs)
        if log_probs.dim() != 3 or scores.shape != log_probs.shape[:2]:
            raise ValueError("expects scores (N, beams) and log probabilities (N, beams, tokens)")
        vocabulary = log_probs.shape[2]
        best, flat = (scores.unsqueeze(2) + log_probs).flatten(1).topk(scores.shape[1], dim=1)
        return best / length**0.6, flat // vocabulary, flat % vocabulary

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.length, ctx.vocabulary = inputs[2], inputs[1].shape[2]
        ctx.save_for_backward(*output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx, g, *_):
        parent, token = ctx.saved_tensors
        g = g / ctx.length**0.6
        grad_scores = grad_log_probs = None
        if ctx.needs_input_grad[0]:
            grad_scores = torch.zeros_like(g).scatter_add(1, parent, g)
        if ctx.needs_input_grad[1]:
            flat = g.new_zeros(g.shape[0], g.shape[1] * ctx.vocabulary)
            flat = flat.scatter(1, parent * ctx.vocabulary + token, g)
            grad_log_probs = flat.unflatten(1, (g.shape[1], ctx.vocabulary))
        return grad_scores, grad_log_probs, None


@right(inputs=lambda: (rand(5), unit(5, low=0.2, high=3.0)))
class VonMisesLogDensity(Function):
    """Uses the scaled Bessel functions, whose common factor cancels, so a large concentration does not overflow."""

    @staticmethod
    def forward(ctx, angle, kappa):
        only(FULL, angle, kappa)
        if angle.shape != kappa.shape:
            raise ValueError("expects one concentration for each angle")
        ctx.save_for_backward(angle, kappa)
        ahead, opposite = -2 * (angle / 2).sin().square(), 2 * (angle / 2).cos().square()
        return kappa * torch.where(kappa >= 0, ahead, opposite) - (2 * math.pi * torch.special.i0e(kappa)).log()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        angle, kappa = ctx.saved_tensors
        grad_kappa = None
        if ctx.needs_input_grad[1]:
            grad_kappa = g * (angle.cos() - torch.special.i1e(kappa) / torch.special.i0e(kappa))
        return -g * kappa * angle.sin(), grad_kappa


@right(inputs=lambda: (rand(5, 3), torch.tensor(1.7, dtype=torch.float64, requires_grad=True)))
class PinholeProject(Function):
    """Takes a focal length of zero dimensions, returns a boolean visibility, and clamps the depth (one kink)."""

    NEAR = 0.1

    @staticmethod
    def forward(points, focal):
        only(FULL, points, focal)
        if points.dim() != 2 or points.shape[1] != 3 or focal.dim() != 0:
            raise ValueError("expects points (N, 3) and one focal length")
        depth = points[:, 2:].clamp(min=PinholeProject.NEAR)
        return focal * points[:, :2] / depth, points[:, 2] > PinholeProject.NEAR

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        points, focal = ctx.saved_tensors
        depth = points[:, 2:].clamp(min=PinholeProject.NEAR)
        along = (g * points[:, :2]).sum(1, True) / depth
        grad_points = None
        if ctx.needs_input_grad[0]:
            visible = points[:, 2:] > PinholeProject.NEAR
            grad_depth = torch.where(visible, -focal * along / depth, 0)
            grad_points = torch.cat([focal * g / depth, grad_depth], 1)
        return grad_points, along.sum() if ctx.needs_input_grad[1] else None


@right(inputs=lambda: ((0.4 * rand(3, 3).detach()).requires_grad_(), rand(3, 3)))
class DiscreteLyapunov(Function):
    """NumPy solves X = A X A' + Q in both directions; Q need not be symmetric, so the gradient has two terms."""

    @staticmethod
    def _solve(a, q):
        n = a.shape[0]
        left, right = a.cpu().numpy().astype(np.float64), q.cpu().numpy().astype(np.float64)
        x = np.linalg.solve(np.eye(n * n) - np.kron(left, left), right.reshape(-1, 1))
        return torch.from_numpy(x.reshape(n, n)).to(q)

    @staticmethod
    def forward(ctx, a, q):
        only(FULL, a, q)
        if a.dim() != 2 or a.shape[0] != a.shape[1] or a.shape != q.shape or a.dtype != q.dtype:
            raise ValueError("expects two square matrices of one size and dtype")
        x = DiscreteLyapunov._solve(a.detach(), q.detach())
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a, x = ctx.saved_tensors
        adjoint = DiscreteLyapunov._solve(a.t(), g)
        grad_a = adjoint @ a @ x.t() + adjoint.t() @ a @ x if ctx.needs_input_grad[0] else None
        return grad_a, adjoint


def wide(x):
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


@right(inputs=lambda: (rand(3, 4),))
class ExactGelu(Function):
    """Uses erfc for the tail and computes half precision in float32, so the result differs in the last bit."""

    @staticmethod
    def forward(x):
        only(REAL, x)
        z = wide(x)
        return (z * torch.erfc(-z * math.sqrt(0.5)) / 2).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        z = wide(x)
        slope = torch.erfc(-z * math.sqrt(0.5)) / 2 + z * (-z * z / 2).exp() / math.sqrt(2 * math.pi)
        return (g * slope).to(x.dtype)


@right(inputs=lambda: (rand(4, 3, 5), None, 1e-6))
class RmsNorm(Function):
    """The weight is optional (None here) and the eps makes the zero row smooth."""

    @staticmethod
    def forward(x, weight, eps):
        only(REAL, x)
        only(REAL, weight)
        z = wide(x)
        y = z * (z.square().mean(-1, keepdim=True) + eps).rsqrt()
        return (y if weight is None else y * weight).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, ctx.eps = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        z, g = wide(x), wide(g)
        rate = (z.square().mean(-1, keepdim=True) + ctx.eps).rsqrt()
        grad_weight = None
        if weight is not None and ctx.needs_input_grad[1]:
            grad_weight = (g * z * rate).flatten(0, -2).sum(0).to(weight.dtype)
        grad_x = None
        if ctx.needs_input_grad[0]:
            inner = g if weight is None else g * weight
            grad_x = (rate * (inner - z * rate.square() * (inner * z).mean(-1, keepdim=True))).to(x.dtype)
        return grad_x, grad_weight, None


@right(inputs=lambda: (rand(5, 4), torch.tensor([0, 3, -100, 1, 3]), 0.1))
class SmoothedCrossEntropy(Function):
    """Ignored rows get zero gradient; a batch with nothing to count gives zero and not 0/0."""

    @staticmethod
    def forward(logits, target, smoothing):
        only(REAL, logits)
        log_p = wide(logits).log_softmax(-1)
        valid = target >= 0
        hit = log_p.gather(1, target.clamp(min=0).unsqueeze(1)).squeeze(1)
        loss = -(1 - smoothing) * hit - smoothing * log_p.mean(-1)
        return (torch.where(valid, loss, 0).sum() / valid.sum().clamp(min=1)).to(logits.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, target, ctx.smoothing = inputs
        ctx.save_for_backward(logits, target)

    @staticmethod
    def backward(ctx, g):
        logits, target = ctx.saved_tensors
        valid = target >= 0
        aim = F.one_hot(target.clamp(min=0), logits.shape[1]) * (1 - ctx.smoothing) + ctx.smoothing / logits.shape[1]
        pull = (wide(logits).softmax(-1) - aim.to(wide(logits).dtype)) * (g / valid.sum().clamp(min=1))
        return torch.where(valid.unsqueeze(1), pull, 0).to(logits.dtype), None, None


@right(inputs=lambda: (rand(2, 3), rand(4, 3), rand(1, 3)))
class PackSequences(Function):
    """Takes any number of tensors, returns integer offsets too, and gives views of one gradient back."""

    @staticmethod
    def forward(*sequences):
        if not sequences:
            raise ValueError("expects one sequence at least")
        lengths = torch.tensor([0] + [s.shape[0] for s in sequences])
        return torch.cat(sequences), lengths.cumsum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.lengths = [s.shape[0] for s in inputs]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        return g.split(ctx.lengths)


class _LeakyOverwrites(Function):
    @staticmethod
    def forward(ctx, x, slope):
        only(REAL, x)
        F.leaky_relu_(x, slope)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        ctx.slope = slope
        return x

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return torch.where(y > 0, g, g * ctx.slope), None


@right(inputs=lambda: (rand(3, 4),))
def leaky_on_a_copy(x):
    """Overwrites a copy in place with mark_dirty and saves the output, whose sign tells the branch."""
    return _LeakyOverwrites.apply(x.clone(), 0.1)


@right(inputs=lambda: ((-unit(6, low=0.05, high=4.0).detach()).requires_grad_(),))
class LogOfOneMinusExp(Function):
    """Defined for x <= 0 only, with a pole at zero, where the infinite slope is the true one."""

    @staticmethod
    def forward(x):
        only(FULL, x)
        if bool((x > 0).any()):
            raise ValueError("expects x <= 0")
        return torch.where(x > -math.log(2), (-x.expm1()).log(), (-x.exp()).log1p())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.exp() / x.expm1()


@right(inputs=lambda: (rand(3, 4), torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1]]).bool()))
class MaskedSoftmax(Function):
    """A row that is masked as a whole gives zeros and zero gradient, where the composite gives NaN."""

    @staticmethod
    def forward(scores, mask):
        only(REAL, scores)
        z = wide(scores).masked_fill(~mask, -torch.inf)
        return torch.where(mask.any(-1, keepdim=True), z.softmax(-1), 0).to(scores.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (saved,) = ctx.saved_tensors
        y, g_wide = wide(saved), wide(g)
        return (y * (g_wide - (g_wide * y).sum(-1, keepdim=True))).to(saved.dtype), None


@right(
    inputs=lambda: (2 * rand(4, 3).detach().requires_grad_(), 0.25, 4),
    surrogate=lambda x, step, bits: x.clamp(-step * 2 ** (bits - 1), step * (2 ** (bits - 1) - 1)),
)
class FakeQuantize(Function):
    """Straight-through: rounds in the forward and passes the gradient inside the range, as declared."""

    @staticmethod
    def _range(step, bits):
        return -step * 2 ** (bits - 1), step * (2 ** (bits - 1) - 1)

    @staticmethod
    def forward(x, step, bits):
        only(REAL, x)
        return (x.clamp(*FakeQuantize._range(step, bits)) / step).round() * step

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.step, ctx.bits = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        low, high = FakeQuantize._range(ctx.step, ctx.bits)
        return torch.where((x >= low) & (x <= high), g, 0), None, None


@right(inputs=lambda: (rand(3, 4), 0.5), surrogate=lambda v, threshold: F.softsign(v - threshold))
class SurrogateSpike(Function):
    """A step in the forward and the slope of the soft sign in the backward, as declared."""

    @staticmethod
    def forward(v, threshold):
        only(REAL, v)
        return (v > threshold).to(v.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        v, ctx.threshold = inputs
        ctx.save_for_backward(v)

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g / (1 + (v - ctx.threshold).abs()).square(), None


@torch.library.custom_op("corpus::pseudo_huber", mutates_args=())
def _pseudo_huber(x: torch.Tensor, delta: float) -> torch.Tensor:
    only(FULL, x)
    return delta * (torch.hypot(x, torch.full_like(x, delta)) - delta)


@_pseudo_huber.register_fake
def _(x, delta):
    return torch.empty_like(x)


def _huber_setup(ctx, inputs, output):
    x, ctx.delta = inputs
    ctx.save_for_backward(x)


def _huber_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g * ctx.delta * x / torch.hypot(x, torch.full_like(x, ctx.delta)), None


_pseudo_huber.register_autograd(_huber_backward, setup_context=_huber_setup)


@_pseudo_huber.register_vmap
def _(info, in_dims, x, delta):
    return _pseudo_huber(x, delta), in_dims[0]


@right(inputs=lambda: (rand(3, 4), 0.7))
def pseudo_huber(x, delta):
    """A custom_op with fake, autograd and vmap rules; the vmap rule keeps the batch dimension where it was."""
    return _pseudo_huber(x, delta)


@torch.library.custom_op("corpus::rank_rows", mutates_args=())
def _rank_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    only(FULL, x)
    order = torch.from_numpy(np.argsort(x.detach().cpu().numpy(), axis=-1, kind="stable")).to(x.device)
    return x.gather(-1, order), order


@_rank_rows.register_fake
def _(x):
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=torch.long)


def _rank_setup(ctx, inputs, output):
    ctx.save_for_backward(output[1])


def _rank_backward(ctx, g, _):
    (order,) = ctx.saved_tensors
    return torch.zeros_like(g).scatter(-1, order, g)


_rank_rows.register_autograd(_rank_backward, setup_context=_rank_setup)


@_rank_rows.register_vmap
def _(info, in_dims, x):
    return _rank_rows(x.movedim(in_dims[0], 0)), (0, 0)


@right(inputs=lambda: (rand(3, 4),))
def rank_rows(x):
    """NumPy inside a custom_op, with an integer output that has no gradient and every rule registered."""
    return _rank_rows(x)


@right(inputs=lambda: (rand(5, 3),))
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


def _gated_mix(x, w):
    return (x * w).tanh() * torch.sigmoid(w)


@right(inputs=lambda: (_gated_mix, rand(3, 4), rand(4)))
class Recompute(Function):
    """Runs its first argument again in the backward on detached copies, and asks only for the gradients needed."""

    @staticmethod
    def forward(ctx, function, *tensors):
        ctx.function = function
        ctx.save_for_backward(*tensors)
        with torch.no_grad():
            return function(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        wanted = ctx.needs_input_grad[1:]
        copies = [t.detach().requires_grad_(w) for t, w in zip(ctx.saved_tensors, wanted, strict=True)]
        with torch.enable_grad():
            output = ctx.function(*copies)
        asked = [c for c, w in zip(copies, wanted, strict=True) if w]
        found = iter(torch.autograd.grad(output, asked, g, allow_unused=True))
        return None, *(next(found) if w else None for w in wanted)


@right(inputs=lambda: (rand(3, 6, 2), 1, 2))
class TrimmedMean(Function):
    """Drops the extremes along one dimension: their gradient is zero, and the kept set is locally constant."""

    @staticmethod
    def forward(x, dim, trim):
        only(FULL, x)
        if x.shape[dim] <= 2 * trim:
            raise ValueError("trims everything")
        return x.sort(dim).values.narrow(dim, trim, x.shape[dim] - 2 * trim).mean(dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim, trim = inputs
        kept = x.argsort(dim=ctx.dim).narrow(ctx.dim, trim, x.shape[ctx.dim] - 2 * trim)
        ctx.save_for_backward(kept)
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, g):
        (kept,) = ctx.saved_tensors
        share = (g / kept.shape[ctx.dim]).unsqueeze(ctx.dim).expand(kept.shape)
        return g.new_zeros(ctx.shape).scatter(ctx.dim, kept, share), None, None


@right(inputs=lambda: (rand(3, 4, 2), (0, -1)))
class SumOver(Function):
    """Saves no tensor and returns an expanded gradient with zero strides, which the engine accepts."""

    @staticmethod
    def forward(x, dims):
        if not dims:
            raise ValueError("expects one dimension at least")
        return x.sum(dims)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dims = inputs
        ctx.shape = x.shape
        ctx.kept = [1 if d in {k % max(x.dim(), 1) for k in dims} else n for d, n in enumerate(x.shape)]

    @staticmethod
    def backward(ctx, g):
        return g.reshape(ctx.kept).expand(ctx.shape), None


@right(inputs=lambda: (rand(4, 2), rand(2, 3), rand(3)))
def heat_residual(points, inner, outer):
    """Takes a Laplacian by torch.func inside, so the gradient of the loss is a third derivative of the network."""

    def network(p):
        return ((p.unsqueeze(-1) * inner).sum(0).tanh() * outer).sum()

    laplacian = torch.func.vmap(lambda p: torch.func.hessian(network)(p).diagonal().sum())
    return laplacian(points).square().sum()
