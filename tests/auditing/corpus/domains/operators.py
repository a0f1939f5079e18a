"""Operators of torch.library."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from docs.pitfalls.programs import broken, right

from tests.auditing.corpus.shared import FULL, between, leaf, only, only_real, to_numpy

# --- broken ---


@torch.library.custom_op("corpus::swish", mutates_args=())
def _swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


@_swish.register_fake
def _(x):
    return torch.empty_like(x)


def _swish_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _swish_backward(ctx, g):
    (x,) = ctx.saved_tensors
    s = torch.sigmoid(x)
    y = x * s
    return g * (s + y * (1 - y))


_swish.register_autograd(_swish_backward, setup_context=_swish_setup)


@broken("first_order", inputs=lambda: (leaf(4, 3),))
def swish_output_for_sigmoid(x):
    """The registered backward takes the output where the sigmoid belongs: s + y * (1 - y) for s + y * (1 - s)."""
    return _swish(x)


@torch.library.custom_op("corpus::window_sums", mutates_args=())
def _window_sums(x: torch.Tensor, width: int, stride: int) -> torch.Tensor:
    return x.unfold(-1, width, stride).sum(-1)


@_window_sums.register_fake
def _(x, width, stride):
    return x.new_empty((*x.shape[:-1], x.shape[-1] // stride))


def _window_sums_setup(ctx, inputs, output):
    x, ctx.width, ctx.stride = inputs
    ctx.size = x.shape[-1]


def _window_sums_backward(ctx, g):
    starts = torch.arange(0, ctx.size - ctx.width + 1, ctx.stride, device=g.device)
    index = starts.unsqueeze(-1) + torch.arange(ctx.width, device=g.device)
    spread = g.unsqueeze(-1).expand(*g.shape, ctx.width).flatten(-2)
    grad = g.new_zeros((*g.shape[:-1], ctx.size))
    return grad.index_add(-1, index.flatten(), spread), None, None


_window_sums.register_autograd(_window_sums_backward, setup_context=_window_sums_setup)


@broken("opcheck", inputs=lambda: (leaf(2, 10), 3, 2))
def window_sums_fake_length(x, width, stride):
    """Its register_fake forgets the window's width in the output length, so that torch.compile plans a wrong shape."""
    return _window_sums(x, width, stride)


@torch.library.custom_op("corpus::log_sum_exp", mutates_args=())
def _log_sum_exp(x: torch.Tensor) -> torch.Tensor:
    top = x.amax(-1, keepdim=True)
    return torch.exp(x.sub_(top)).sum(-1).log() + top.squeeze(-1)


@_log_sum_exp.register_fake
def _(x):
    return x.new_empty(x.shape[:-1])


def _log_sum_exp_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _log_sum_exp_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g.unsqueeze(-1) * torch.softmax(x, dim=-1)


_log_sum_exp.register_autograd(_log_sum_exp_backward, setup_context=_log_sum_exp_setup)


@broken("input_layouts", "inputs_unchanged", inputs=lambda: (leaf(3, 4),))
def log_sum_exp_shifts_input(x):
    """Subtracts the maximum from its input in place without naming it in mutates_args."""
    return _log_sum_exp(x)


@torch.library.custom_op("corpus::reverse_sums", mutates_args=())
def _reverse_sums(x: torch.Tensor) -> torch.Tensor:
    return x.flip(-1).cumsum(-1).flip(-1)


@_reverse_sums.register_fake
def _(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _reverse_sums_setup(ctx, inputs, output):
    pass


def _reverse_sums_backward(ctx, g):
    return g.cumsum(-1)


_reverse_sums.register_autograd(_reverse_sums_backward, setup_context=_reverse_sums_setup)


@_reverse_sums.register_vmap
def _(info, in_dims, x):
    return _reverse_sums(x), in_dims[0]


@broken("vmap", inputs=lambda: (leaf(4, 3),))
def reverse_sums_vmap_last_dim(x):
    """Its register_vmap does not move the batch dimension, so that a batch that comes last is summed over."""
    return _reverse_sums(x)


@torch.library.custom_op("corpus::sum_normalize", mutates_args=())
def _sum_normalize(x: torch.Tensor) -> torch.Tensor:
    return x / x.abs().sum()


@_sum_normalize.register_fake
def _(x):
    return torch.empty_like(x)


def _sum_normalize_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _sum_normalize_backward(ctx, g):
    (x,) = ctx.saved_tensors
    total = x.abs().sum()
    return g / total - (g * x).sum() * x.sign() / total**2


_sum_normalize.register_autograd(_sum_normalize_backward, setup_context=_sum_normalize_setup)


@_sum_normalize.register_vmap
def _(info, in_dims, x):
    return _sum_normalize(x), in_dims[0]


@broken("float16", "vmap", inputs=lambda: (leaf(4),))
def absolute_sum_normalize(x):
    """register_vmap calls the operator on the whole batch, so each sample is divided by the sum of all samples."""
    return _sum_normalize(x)


@torch.library.custom_op("corpus::heads_first", mutates_args=())
def _heads_first(x: torch.Tensor, heads: int) -> torch.Tensor:
    n, width = x.shape
    return (x * 0.5).view(n, heads, width // heads).transpose(0, 1)


@_heads_first.register_fake
def _(x, heads):
    n, width = x.shape
    return x.new_empty(heads, n, width // heads)


def _heads_first_setup(ctx, inputs, output):
    ctx.shape = inputs[0].shape


def _heads_first_backward(ctx, g):
    return g.transpose(0, 1).reshape(ctx.shape) * 0.5, None


_heads_first.register_autograd(_heads_first_backward, setup_context=_heads_first_setup)


@broken("opcheck", inputs=lambda: (leaf(3, 4), 2))
def heads_first(x, heads):
    """The fake kernel promises a contiguous result, the kernel returns a transposed one (pytorch/pytorch#177115)."""
    return _heads_first(x, heads)


@torch.library.custom_op("corpus::pair_mean", mutates_args=())
def _pair_mean(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool1d(x[None], 2, ceil_mode=True)[0]


@_pair_mean.register_fake
def _(x):
    return x.new_empty(x.shape[0], x.shape[1] // 2)


def _pair_mean_setup(ctx, inputs, output):
    ctx.size = inputs[0].shape[1]


def _pair_mean_backward(ctx, g):
    spread = g.repeat_interleave(2, 1)[:, : ctx.size] / 2
    if ctx.size % 2:
        spread = torch.cat([spread[:, :-1], g[:, -1:]], 1)
    return spread


_pair_mean.register_autograd(_pair_mean_backward, setup_context=_pair_mean_setup)


@broken("opcheck", inputs=lambda: (leaf(2, 5),))
def pair_mean(x):
    """The kernel rounds an odd length up, the fake kernel rounds it down: shapes differ under torch.compile."""
    return _pair_mean(x)


@torch.library.custom_op("corpus::center_rows", mutates_args=())
def _center_rows(x: torch.Tensor) -> torch.Tensor:
    x.sub_(x.mean(-1, keepdim=True))
    return x * 2.0


@_center_rows.register_fake
def _(x):
    return torch.empty_like(x)


def _center_rows_backward(ctx, g):
    return 2 * (g - g.mean(-1, keepdim=True))


_center_rows.register_autograd(_center_rows_backward)


@broken("input_layouts", "inputs_unchanged", inputs=lambda: (leaf(3, 4),))
def center_rows(x):
    """The operator writes to its argument though it is registered with mutates_args=()."""
    return _center_rows(x)


@torch.library.custom_op("corpus::frame_energy", mutates_args=())
def _frame_energy(x: torch.Tensor, size: int, hop: int) -> torch.Tensor:
    return x.unfold(0, size, hop).square().sum(-1)


@_frame_energy.register_fake
def _(x, size, hop):
    return x.new_empty(x.shape[0] // hop)


def _frame_energy_setup(ctx, inputs, output):
    x, ctx.size, ctx.hop = inputs
    ctx.save_for_backward(x)


def _frame_energy_backward(ctx, g):
    (x,) = ctx.saved_tensors
    index = torch.arange(g.shape[0], device=g.device)[:, None] * ctx.hop + torch.arange(ctx.size, device=g.device)
    counts = torch.zeros_like(x).index_add(0, index.flatten(), g.repeat_interleave(ctx.size))
    return 2 * x * counts, None, None


_frame_energy.register_autograd(_frame_energy_backward, setup_context=_frame_energy_setup)


@broken("opcheck", inputs=lambda: (between(-1.5, 1.5, 11), 4, 2))
def frame_energy(x, size, hop):
    """The fake kernel counts the frames of a padded signal, the real one those that fit."""
    return _frame_energy(x, size, hop)


@torch.library.custom_op("corpus::row_centers_in_place", mutates_args=())
def _row_centers(x: torch.Tensor) -> torch.Tensor:
    x.sub_(x.mean(-1, keepdim=True))
    return x.clone()


@_row_centers.register_fake
def _(x):
    return torch.empty_like(x)


_row_centers.register_autograd(lambda ctx, g: g - g.mean(-1, keepdim=True))


@broken("input_layouts", "inputs_unchanged", inputs=lambda: (between(-1.5, 1.5, 3, 4),))
def row_centers(x):
    """Centers its argument in place, which the schema denies; a second call returns the same and so hides it."""
    return _row_centers(x)


# --- right ---


@torch.library.custom_op("corpus::log_cosh", mutates_args=())
def log_cosh(x: torch.Tensor, scale: float) -> torch.Tensor:
    only_real(x)
    t = np.abs(scale * to_numpy(x))
    values = np.array(t + np.log1p(np.exp(-2 * t)) - math.log(2.0), order="C")
    return torch.from_numpy(values).to(x)


@log_cosh.register_fake
def log_cosh_shape(x, scale):
    return x.new_empty(x.shape)


def log_cosh_saves(ctx, inputs, output):
    x, ctx.scale = inputs
    ctx.save_for_backward(x)


def log_cosh_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g * ctx.scale * torch.tanh(ctx.scale * x), None


log_cosh.register_autograd(log_cosh_backward, setup_context=log_cosh_saves)


@log_cosh.register_vmap
def log_cosh_vmap(info, in_dims, x, scale):
    return log_cosh(x, scale), in_dims[0]


@right(inputs=lambda: (leaf(3, 4), 1.5))
def log_cosh_by_operator(x, scale):
    """A custom operator over NumPy with a fake, an autograd and a vmap registration; its gradient is in PyTorch."""
    return log_cosh(x, scale)


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


@right(inputs=lambda: (leaf(4, 3), 0.1))
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


@right(inputs=lambda: (leaf(5, 2), torch.tensor([0, 3, 0, 1, 3]), 4))
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


@right(inputs=lambda: (leaf(3), leaf(3), leaf(3)))
def blend_of_three(*tensors):
    """An operator of a list of tensors and a list of floats, whose backward returns a list."""
    return _blend(list(tensors), [0.5, 0.3, 0.2])


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


@right(inputs=lambda: (leaf(3, 4), 0.7))
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


@right(inputs=lambda: (leaf(3, 4),))
def rank_rows(x):
    """NumPy inside a custom_op, with an integer output that has no gradient and every rule registered."""
    return _rank_rows(x)
