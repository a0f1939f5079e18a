"""Solutions of equations, physics and finance."""

import math

import torch
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import FULL, between, leaf, only, only_real

# --- broken ---


@broken("special_points", inputs=lambda: (between(1.0, 1.5), between(0.5, 2.0), between(0.8, 1.0)))
class LennardJones(Function):
    """Divides by the size in backward: the gradient at size zero is NaN in place of zero."""

    @staticmethod
    def forward(distance, depth, size):
        if distance.ndim or depth.ndim or size.ndim:
            raise ValueError("takes three numbers, as tensors of no dimension")
        sixth = (size / distance) ** 6
        return 4 * depth * (sixth * sixth - sixth)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        distance, depth, size = ctx.saved_tensors
        sixth = (size / distance) ** 6
        shape = 4 * (sixth * sixth - sixth)
        by_log_size = 4 * depth * (12 * sixth * sixth - 6 * sixth)
        return -g * by_log_size / distance, g * shape, g * by_log_size / size


@broken("first_order", inputs=lambda: (leaf(2, 7), 0.4))
class UpwindStepAdjointSameDirection(Function):
    """One upwind advection step on a ring; its adjoint must shift the other way but shifts as the forward does."""

    @staticmethod
    def forward(u, courant):
        return u - courant * (u - torch.roll(u, 1, -1))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.courant = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g - ctx.courant * (g - torch.roll(g, 1, -1)), None


@broken("first_order", inputs=lambda: (leaf(3), torch.rand(3, 3, dtype=torch.float64).mul(0.3).requires_grad_()))
class FixedPointJacobianNotTransposed(Function):
    """Deep equilibrium layer z = tanh(w z + x): the adjoint system is solved with I - J instead of its transpose."""

    @staticmethod
    def forward(x, w):
        z = torch.zeros_like(x)
        for _ in range(200):
            z = torch.tanh(w @ z + x)
        return z

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        w, z = ctx.saved_tensors
        slope = 1 - z * z
        system = torch.eye(len(z), dtype=z.dtype) - slope[:, None] * w
        v = slope * torch.linalg.solve(system, g)
        return v, torch.outer(v, z)


@broken("second_order", inputs=lambda: (leaf(4, 3),))
class PairEnergyDetachedForce(Function):
    """Gets the force by autograd.grad without create_graph: training on forces sees a zero second derivative."""

    @staticmethod
    def forward(ctx, r):
        ctx.save_for_backward(r)
        return PairEnergyDetachedForce.energy(r)

    @staticmethod
    def energy(r):
        i, j = torch.triu_indices(len(r), len(r), 1)
        return torch.exp(-(r[i] - r[j]).square().sum(-1)).sum()

    @staticmethod
    def backward(ctx, g):
        (r,) = ctx.saved_tensors
        with torch.enable_grad():
            r = r.detach().requires_grad_()
            (force,) = torch.autograd.grad(PairEnergyDetachedForce.energy(r), r)
        return g * force


@broken(
    "second_order",
    "special_points",
    inputs=lambda: (between(0.8, 1.3, 5), between(0.8, 1.3, 5), between(0.2, 0.5, 5)),
)
class BlackScholesCall(Function):
    """Delta and vega are computed in forward and saved as constants, so gamma and volga come out as zero."""

    @staticmethod
    def forward(ctx, spot, strike, sigma):
        d1 = (spot / strike).log() / sigma + sigma / 2
        d2 = d1 - sigma
        normal = torch.distributions.Normal(0.0, 1.0, validate_args=False)
        delta, weight = normal.cdf(d1), normal.cdf(d2)
        vega = spot * torch.exp(-d1 * d1 / 2) / math.sqrt(2 * math.pi)
        ctx.save_for_backward(delta, weight, vega)
        return spot * delta - strike * weight

    @staticmethod
    def backward(ctx, g):
        delta, weight, vega = ctx.saved_tensors
        return g * delta, -g * weight, g * vega


@broken("first_order", "float16", inputs=lambda: (between(0.0, 1.0, 4, 5),))
class SinkhornCost(Function):
    """Returns <P, C> but differentiates as if P did not move with C, which is true of the entropic objective only."""

    EPSILON = 0.5

    @staticmethod
    def forward(ctx, cost):
        n, m = cost.shape
        kernel = torch.exp(-cost / SinkhornCost.EPSILON)
        u = cost.new_full((n,), 1.0 / n)
        v = cost.new_full((m,), 1.0 / m)
        for _ in range(300):
            u = 1.0 / n / (kernel @ v)
            v = 1.0 / m / (kernel.t() @ u)
        plan = u[:, None] * kernel * v
        ctx.save_for_backward(plan)
        return (plan * cost).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (plan,) = ctx.saved_tensors
        return g * plan


@broken("sizes", "later_writes", inputs=lambda: (between(-0.5, 0.5, 3), between(-0.3, 0.3, 3, 3)))
class EquilibriumLayer(Function):
    """Keeps its output as an attribute of ctx: output, node and ctx wait for the garbage collector."""

    @staticmethod
    def forward(ctx, x, w):
        z = torch.zeros_like(x)
        for _ in range(120):
            z = torch.tanh(w @ z + x)
        ctx.save_for_backward(w)
        ctx.z = z
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (w,) = ctx.saved_tensors
        slope = 1 - ctx.z * ctx.z
        system = torch.eye(w.shape[0], dtype=w.dtype, device=w.device) - slope[:, None] * w
        adjoint = torch.linalg.solve(system.t(), g) * slope
        return adjoint, torch.outer(adjoint, ctx.z)


@broken("first_order", "later_writes", inputs=lambda: (between(-1.5, 1.5, 5), between(0.3, 1.5, 2)))
def damped_oscillator_residual(t, constants):
    """The Function inside closes over the constants instead of taking them, so they silently get no gradient."""

    class Displacement(Function):
        @staticmethod
        def forward(t):
            return torch.exp(-constants[0] * t) * torch.cos(constants[1] * t)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx, g):
            (t,) = ctx.saved_tensors
            decay, frequency = constants[0], constants[1]
            wave = decay * torch.cos(frequency * t) + frequency * torch.sin(frequency * t)
            return -g * torch.exp(-decay * t) * wave

    return Displacement.apply(t)


@broken("forward_mode", "float16", inputs=lambda: (between(0.5, 1.5, 4), between(0.5, 1.5, 4), between(0.6, 1.5, 4)))
class ArrheniusRate(Function):
    """The rate A exp(-E / T) falls with E and rises with T; the jvp gives both tangents the minus sign."""

    @staticmethod
    def forward(prefactor, energy, temperature):
        return prefactor * torch.exp(-energy / temperature)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        prefactor, energy, temperature = ctx.saved_tensors
        boltzmann = torch.exp(-energy / temperature)
        rate = prefactor * boltzmann
        return g * boltzmann, -g * rate / temperature, g * rate * energy / temperature**2

    @staticmethod
    def jvp(ctx, t_prefactor, t_energy, t_temperature):
        prefactor, energy, temperature = ctx.saved_tensors
        boltzmann = torch.exp(-energy / temperature)
        exponent = t_energy / temperature + t_temperature * energy / temperature**2
        return t_prefactor * boltzmann - prefactor * boltzmann * exponent


# --- right ---


@right(inputs=lambda: (leaf(3), (0.2 * leaf(3, 3, grad=False)).requires_grad_()))
class FixedPoint(Function):
    """Iterates to convergence, raises where there is none, and differentiates the equation instead of the loop."""

    @staticmethod
    def forward(x, w):
        only_real(x, w)
        z = torch.zeros_like(x)
        for _ in range(1000):
            previous, z = z, torch.tanh(w @ z + x)
            if (z - previous).abs().max() <= 4 * torch.finfo(x.dtype).eps:
                return z
        raise RuntimeError("the iteration did not converge: make w smaller")

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, w = inputs
        ctx.save_for_backward(w, output)

    @staticmethod
    def backward(ctx, g):
        w, z = ctx.saved_tensors
        slope = 1 - z * z
        system = torch.eye(z.numel(), dtype=z.dtype, device=z.device) - slope[:, None] * w
        pulled = slope * torch.linalg.solve(system.mT, g)
        return pulled, torch.outer(pulled, z)


@right(inputs=lambda: ((2 * leaf(2, 3, grad=False)).requires_grad_(),))
class RootByNewton(Function):
    """Solves y**3 + y = x by Newton's method and saves only the output, from which the gradient follows."""

    @staticmethod
    def forward(x):
        only_real(x)
        y = x.clone()
        for _ in range(200):
            step = (y**3 + y - x) / (3 * y * y + 1)
            y = y - step
            if (step.abs() <= 2 * torch.finfo(x.dtype).eps * y.abs()).all():
                break
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g / (3 * y * y + 1)


@right(inputs=lambda: (leaf(6), between(0.1, 0.7, 6)))
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
    return (0.5 * w / torch.linalg.matrix_norm(w, 2)).requires_grad_(), leaf(3, 4)


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


@right(inputs=lambda: (leaf(5),))
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
    return (root @ root.T + torch.eye(4, dtype=torch.float64)).requires_grad_(), leaf(4), leaf(2, 4), leaf(2)


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


@right(inputs=lambda: (leaf(5), between(0.1, 0.9, 5)))
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


@right(inputs=lambda: (between(-0.3, 4.0, 6),))
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


@right(inputs=lambda: (between(0.06, 0.25, 4), between(0.95, 1.04, 4), between(0.97, 1.04, 4), 0.5))
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


@right(
    inputs=lambda: (2 * leaf(4, 3).detach().requires_grad_(), torch.tensor([[0, 0, 0, 1, 1, 2], [1, 2, 3, 2, 3, 3]])),
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


@right(inputs=lambda: (leaf(4, 2), leaf(2, 3), leaf(3)))
def heat_residual(points, inner, outer):
    """Takes a Laplacian by torch.func inside, so the gradient of the loss is a third derivative of the network."""

    def network(p):
        return ((p.unsqueeze(-1) * inner).sum(0).tanh() * outer).sum()

    laplacian = torch.func.vmap(lambda p: torch.func.hessian(network)(p).diagonal().sum())
    return laplacian(points).square().sum()
