"""Round numbers to a few levels in forward, and return a gradient for training in backward."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.broadcasting import sum_to_shape


def wide_dtype(input: Tensor) -> torch.dtype:
    """Return the dtype for computing levels: float32 or wider, because half precision has too few digits.

    Raises:
        TypeError: if the input is not floating.
    """
    if not input.is_floating_point():
        raise TypeError(f"expected input of a floating dtype, got {input.dtype}")
    return torch.promote_types(input.dtype, torch.float32)


def as_sequence(numbers: float | Sequence[float]) -> Sequence[float]:
    """Return the numbers as a sequence."""
    return (numbers,) if isinstance(numbers, int | float) else numbers


def per_channel(vector: Tensor, input: Tensor, dim: int | None, name: str) -> Tensor:
    """Reshape one number, or a vector with one number per channel, so that it broadcasts with ``input``.

    Raises:
        IndexError: if ``input`` has no dimension ``dim``.
        RuntimeError: if the vector has another size.
    """
    if dim is None:
        if vector.numel() != 1:
            raise RuntimeError(f"expected {name} to be one number where dim is None, got {tuple(vector.shape)}")
        return vector.reshape(())
    if not -input.dim() <= dim < input.dim():
        raise IndexError(f"expected a dim in [{-input.dim()}, {input.dim() - 1}], got {dim}")
    if vector.shape != input.shape[dim : dim + 1 or None]:
        raise RuntimeError(
            f"expected {name} of shape ({input.shape[dim]},) for dim {dim} of an input of shape "
            f"{tuple(input.shape)}, got {tuple(vector.shape)}"
        )
    return vector.reshape([-1 if i == dim % input.dim() else 1 for i in range(input.dim())])


def nearest_level(input: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Return the level of each element, before the levels are limited to the range."""
    # Multiply by the reciprocal, as torch does. A quotient could be rounded to another level near a tie. The reciprocal
    # of a subnormal scale overflows. So multiply both numbers by a large power of two, which changes no other result.
    larger = torch.where(scale < 1, 2.0**64, 1.0).to(scale.dtype)
    return (input.to(scale.dtype) * larger).mul_((scale * larger).reciprocal()).round_() + zero_point


def passed(grad: Tensor, position: Tensor, low: float, high: float) -> Tensor:
    """Return the gradient where a position is between two bounds, and 0 elsewhere, also where the position is NaN.

    This is the backward of torch's hardtanh. On a CPU, ``torch.where`` with a mixed condition takes several times as
    long.
    """
    position = position.nan_to_num(math.inf)  # hardtanh would pass the gradient at NaN
    return torch.ops.aten.hardtanh_backward(grad.to(position.dtype), position, low, high).to(grad.dtype)


class FakeQuantizeFunction(Function):
    """Keeps its arguments and no mask. Backward computes from the input whether it is in range."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int) -> Tensor:
        level = nearest_level(input, scale, zero_point).clamp(quant_min, quant_max)
        return level.sub_(zero_point).mul_(scale).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, Tensor, int, int], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:3])
        ctx.quant_min, ctx.quant_max = inputs[3:]

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None, None, None]:
        level = nearest_level(*ctx.saved_tensors)
        return passed(grad_output, level, ctx.quant_min - 0.5, ctx.quant_max + 0.5), None, None, None, None


def fake_quantize(
    input: Tensor,
    scale: float | Sequence[float] | Tensor,
    zero_point: int | Sequence[int] | Tensor = 0,
    quant_min: int = -128,
    quant_max: int = 127,
    dim: int | None = None,
) -> Tensor:
    r"""Round to the values that an integer of few bits can represent. The gradient passes inside the range of values.

    .. math::
        q = \operatorname{round}(x / s) + z, \qquad
        y = s\,\bigl(\operatorname{clamp}(q, q_{\min}, q_{\max}) - z\bigr), \qquad
        \bar{x} = \bar{y}\,[q_{\min} \le q \le q_{\max}]

    Args:
        input: any shape, floating dtype.
        scale: the step :math:`s > 0` between two values. With ``dim``, a list or a vector with one step per channel.
            The step gets no gradient here. To learn it, use :func:`learned_step_size`.
        zero_point: the level :math:`z` that represents the number 0, an integer. With ``dim``, one level per channel,
            or one for all channels.
        quant_min: the lowest level.
        quant_max: the highest level.
        dim: the dimension of the channels of ``input``; None for a single scale and zero point.

    Returns:
        A tensor like ``input``. Ties are rounded to the even level, and NaN stays NaN.

    Raises:
        TypeError: if ``input`` is not floating, or ``zero_point`` not of an integer dtype.
        ValueError: if a number is out of range. Values in a tensor are not checked, because a check would wait for
            the GPU.
        IndexError: if ``input`` has no dimension ``dim``.
        RuntimeError: if a vector does not have the size of ``dim``, or ``scale`` requires grad.

    Source: B. Jacob et al., Quantization and training of neural networks for efficient integer-arithmetic-only
    inference, CVPR 2018.

    >>> x = torch.tensor([-1.0, 0.3, 9.0], requires_grad=True)
    >>> y = fake_quantize(x, 0.5, zero_point=1, quant_min=0, quant_max=3)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([-0.5, 0.5, 1.0], [0.0, 1.0, 0.0])
    """
    wide = wide_dtype(input)
    if quant_min > quant_max:
        raise ValueError(f"expected quant_min <= quant_max, got {quant_min} and {quant_max}")
    if isinstance(scale, Tensor) and scale.requires_grad:
        raise RuntimeError("fake_quantize has no gradient for scale: expected one that does not require grad")
    if not isinstance(scale, Tensor) and not all(0 < s < math.inf for s in as_sequence(scale)):
        raise ValueError(f"expected a finite scale > 0, got {scale}")
    if not isinstance(zero_point, Tensor) and not all(quant_min <= z <= quant_max for z in as_sequence(zero_point)):
        raise ValueError(f"expected zero_point in [{quant_min}, {quant_max}], got {zero_point}")
    scale = torch.as_tensor(scale, dtype=wide, device=input.device)
    zero_point = torch.as_tensor(zero_point, device=input.device)
    if zero_point.is_floating_point():
        raise TypeError(f"expected zero_point of an integer dtype, got {zero_point.dtype}")
    zero_point = per_channel(zero_point, input, dim if zero_point.dim() else None, "zero_point")
    return FakeQuantizeFunction.apply(input, per_channel(scale, input, dim, "scale"), zero_point, quant_min, quant_max)


class LearnedStepSizeFunction(Function):
    """Keeps its arguments. Backward computes levels and rounding errors from them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, step: Tensor, quant_min: int, quant_max: int, grad_scale: float) -> Tensor:
        return (input.to(step.dtype) / step).clamp(quant_min, quant_max).round_().mul_(step).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, int, int, float], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.quant_min, ctx.quant_max, ctx.grad_scale = inputs[2:]

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        input, step = ctx.saved_tensors
        grad_input = grad_step = None
        ratio = input.to(step.dtype) / step
        if ctx.needs_input_grad[1]:
            level = ratio.clamp(ctx.quant_min, ctx.quant_max).round()
            slope = level - passed(ratio, ratio, ctx.quant_min, ctx.quant_max)
            grad_step = sum_to_shape(grad_output.to(step.dtype) * slope, step.shape) * ctx.grad_scale
            del level, slope
        if ctx.needs_input_grad[0]:
            grad_input = passed(grad_output, ratio, ctx.quant_min, ctx.quant_max)
        return grad_input, grad_step, None, None, None


def learned_step_size(
    input: Tensor,
    step: Tensor,
    quant_min: int,
    quant_max: int,
    dim: int | None = None,
    grad_scale: float | None = None,
) -> Tensor:
    r"""Round to multiples of a learned step (LSQ).

    .. math::
        y = s \operatorname{round}(\operatorname{clamp}(x / s, q_{\min}, q_{\max})), \qquad
        \bar{x} = \bar{y}\,[q_{\min} < x / s < q_{\max}], \qquad
        \bar{s} = g \sum_i \bar{y}_i \begin{cases}
            \operatorname{round}(x_i / s) - x_i / s & q_{\min} < x_i / s < q_{\max} \\
            q_{\min} \text{ or } q_{\max} & \text{beyond} \end{cases}

    Args:
        input: any shape, floating dtype.
        step: the step :math:`s > 0`, one number. With ``dim``, a vector with one step per channel. For a starting
            value, see :func:`initial_step`.
        quant_min: the lowest level, 0 or negative: :math:`-2^{b-1}` for signed numbers of :math:`b` bits.
        quant_max: the highest level: :math:`2^{b-1} - 1`, or :math:`2^b - 1` for numbers without sign.
        dim: the dimension of the channels of ``input``; None for a single step.
        grad_scale: the factor :math:`g`. None means :math:`1 / \sqrt{N q_{\max}}`, where :math:`N` is the number of
            elements per step. With this factor, the updates of the step are about as large as other updates, relative
            to the parameter. For activations, the paper uses the number of features of one example for :math:`N`.

    Returns:
        A tensor like ``input``. Ties are rounded to the even level, and NaN stays NaN.

    Raises:
        TypeError: if ``input`` or ``step`` is not floating.
        ValueError: unless ``quant_min <= 0 < quant_max``.
        IndexError: if ``input`` has no dimension ``dim``.
        RuntimeError: if ``step`` does not have the size of ``dim``.

    Source: S. K. Esser et al., Learned step size quantization, ICLR 2020, equations 1 to 5.

    >>> x = torch.tensor([0.2, 0.9, 5.0])
    >>> s = torch.tensor(0.5, requires_grad=True)
    >>> y = learned_step_size(x, s, -4, 3, grad_scale=1.0)
    >>> y.sum().backward()
    >>> y.tolist(), s.grad  # 0 - 0.4 + 2 - 1.8 + 3
    ([0.0, 1.0, 1.5], tensor(2.8000))
    """
    wide = wide_dtype(input)
    if not step.is_floating_point():
        raise TypeError(f"expected step of a floating dtype, got {step.dtype}")
    if not quant_min <= 0 < quant_max:
        raise ValueError(f"expected quant_min <= 0 < quant_max, got {quant_min} and {quant_max}")
    if grad_scale is None:
        grad_scale = (max(input.numel() // max(step.numel(), 1), 1) * quant_max) ** -0.5
    # Change shape and dtype outside of the Function, where autograd computes the gradients of both changes.
    step = per_channel(step, input, dim, "step").to(torch.promote_types(step.dtype, wide))
    return LearnedStepSizeFunction.apply(input, step, quant_min, quant_max, grad_scale)


def initial_step(input: Tensor, quant_max: int, dim: int | None = None) -> Tensor:
    r"""Return a starting value for the step: :math:`2 \operatorname{mean} |x| / \sqrt{q_{\max}}`.

    Args:
        input: weights, or activations of a first batch.
        quant_max: the highest level.
        dim: the dimension of the channels; None for a single step.

    Source: S. K. Esser et al., Learned step size quantization, ICLR 2020, section 2.1.

    >>> initial_step(torch.tensor([[-1.0, 3.0], [2.0, 2.0]]), 4)
    tensor(2.)
    """
    sizes = input.detach().abs()
    mean = sizes.mean() if dim is None else sizes.movedim(dim, 0).flatten(1).mean(1)
    return 2 * mean / math.sqrt(quant_max)
