"""Rotations, distances, coordinates and pictures."""

import math

import torch
from docs.pitfalls.programs import broken, right
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.auditing.corpus.shared import FULL, REAL, between, leaf, only

# --- broken ---


@broken("forward_mode", inputs=lambda: (leaf(5), leaf(5)))
class PolarSwappedTangents(Function):
    """Its jvp returns the two outputs' tangents in the wrong order."""

    generate_vmap_rule = True

    @staticmethod
    def forward(radius, angle):
        return radius * torch.cos(angle), radius * torch.sin(angle)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, gx, gy):
        radius, angle = ctx.saved_tensors
        c, s = torch.cos(angle), torch.sin(angle)
        return gx * c + gy * s, radius * (gy * c - gx * s)

    @staticmethod
    def jvp(ctx, radius_t, angle_t):
        radius, angle = ctx.saved_tensors
        c, s = torch.cos(angle), torch.sin(angle)
        x_t = radius_t * c - radius * s * angle_t
        y_t = radius_t * s + radius * c * angle_t
        return y_t, x_t


@broken("vmap", inputs=lambda: (leaf(4, 3), leaf(3)))
class DistanceVmapAllBatched(Function):
    """Its vmap rule takes every argument to be batched, so that a shared center (in_dims None) fails."""

    @staticmethod
    def forward(x, center):
        return ((x - center) ** 2).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, center = ctx.saved_tensors
        grad = 2 * g.unsqueeze(-1) * (x - center)
        return grad, -grad.sum_to_size(center.shape)

    @staticmethod
    def vmap(info, in_dims, x, center):
        x = x.movedim(in_dims[0], 0)
        center = center.movedim(in_dims[1], 0)
        center = center.reshape(center.shape[0], *[1] * (x.dim() - center.dim()), *center.shape[1:])
        return DistanceVmapAllBatched.apply(x, center), 0


@broken("vmap", inputs=lambda: (leaf(3, 3), leaf(3, 3)))
class SquaredDistanceVmapInDims(Function):
    """The vmap rule takes the batch of both inputs from the first one's in_dim: wrong for in_dims=(0, 1)."""

    @staticmethod
    def forward(x, y):
        return (x - y).square()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        d = 2 * g * (x - y)
        return d, -d

    @staticmethod
    def vmap(info, in_dims, x, y):
        if in_dims[0] is None or in_dims[1] is None:
            x = x if in_dims[0] is None else x.movedim(in_dims[0], 0)
            y = y if in_dims[1] is None else y.movedim(in_dims[1], 0)
            return SquaredDistanceVmapInDims.apply(x, y), 0
        return SquaredDistanceVmapInDims.apply(x, y), in_dims[0]


@broken("unused_outputs", "undefined_gradient", inputs=lambda: (between(0.5, 2.5, 5), between(0.5, 2.5, 5)))
class PolarNeedsBothGradients(Function):
    """Turns off materialized gradients and multiplies with None when only the radius enters the loss."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return torch.hypot(x, y), torch.atan2(y, x)

    @staticmethod
    def backward(ctx, g_radius, g_angle):
        x, y = ctx.saved_tensors
        r = torch.hypot(x, y)
        gx = g_radius * x / r - g_angle * y / r**2
        gy = g_radius * y / r + g_angle * x / r**2
        return gx, gy


@broken("first_order", inputs=lambda: (between(-1.5, 1.5, 4, 4), between(-1.5, 1.5, 4, 3)))
class RotateByQuaternion(Function):
    """The forward normalizes the quaternion, the backward forgets to take the radial part out of its gradient."""

    @staticmethod
    def forward(q, v):
        q = q / q.norm(dim=-1, keepdim=True)
        w, u = q[:, :1], q[:, 1:]
        t = 2 * torch.linalg.cross(u, v)
        return v + w * t + torch.linalg.cross(u, t)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        q, v = ctx.saved_tensors
        norm = q.norm(dim=-1, keepdim=True)
        w, u = (q / norm)[:, :1], (q / norm)[:, 1:]
        cross = torch.linalg.cross
        t = 2 * cross(u, v)
        grad_t = w * g + cross(g, u)
        grad_w = (g * t).sum(-1, keepdim=True)
        grad_u = cross(t, g) + 2 * cross(v, grad_t)
        grad_v = g + 2 * cross(grad_t, u)
        return torch.cat([grad_w, grad_u], dim=-1) / norm, grad_v


@broken("unused_outputs", "undefined_gradient", inputs=lambda: (between(0.3, 1.5, 4), between(0.3, 1.5, 4)))
class CartesianToPolar(Function):
    """Asks for undefined gradients as None and then multiplies them: a loss on the radius alone raises TypeError."""

    @staticmethod
    def forward(re, im):
        return torch.hypot(re, im), torch.atan2(im, re)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, output[0])

    @staticmethod
    def backward(ctx, g_radius, g_angle):
        re, im, radius = ctx.saved_tensors
        along, across = g_radius / radius, g_angle / (radius * radius)
        return along * re - across * im, along * im + across * re


_WORKSPACE = {}


@broken("independent_calls", "unneeded_gradients", inputs=lambda: (between(-1.5, 1.5, 4, 2), between(-1.5, 1.5, 3, 2)))
class SquaredDistances(Function):
    """Writes the result into a buffer kept per shape and returns it: the next call overwrites the previous result."""

    @staticmethod
    def forward(a, b):
        key = (a.shape[0], b.shape[0], a.dtype)
        if key not in _WORKSPACE:
            _WORKSPACE[key] = a.new_empty(key[:2])
        return torch.sum((a[:, None] - b).square(), -1, out=_WORKSPACE[key]).detach()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        grad_a = 2 * (g.sum(1, keepdim=True) * a - g @ b)
        grad_b = 2 * (g.sum(0)[:, None] * b - g.t() @ a)
        return grad_a, grad_b


# --- right ---


@right(inputs=lambda: (leaf(3, 2), leaf(4, 2)))
def pairwise_distances(a, b):
    """Not differentiable where two points coincide; has no second derivative in PyTorch and raises there."""
    return torch.cdist(a, b)


@right(inputs=lambda: (leaf(6), leaf(6)))
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


@right(inputs=lambda: (leaf(3, 4), leaf(3, 3)))
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


@right(inputs=lambda: (leaf(4, 3),))
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


@right(inputs=lambda: (leaf(4, 3, 2), between(0.1, 0.9, 4, 3)))
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


@right(inputs=lambda: (leaf(7), between(0.2, 3.8, 5)))
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


@right(inputs=lambda: (leaf(5, 3), torch.tensor(1.7, dtype=torch.float64, requires_grad=True)))
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


@right(inputs=lambda: (leaf(5, 3),))
class HeightOverPlane(Function):
    """Reads three coordinates by name, and would not notice a fourth; its gradient has three."""

    @staticmethod
    def forward(points):
        return points[:, 0] * points[:, 1] + points[:, 2] ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y, z = ctx.saved_tensors[0].unbind(1)[:3]
        return g[:, None] * torch.stack([y, x, 2 * z], 1)
