"""Gradients that are changed on purpose."""

from collections.abc import Iterator

import torch
from torch import Tensor

from autograd_cookbook import hooks, quantization, surrogate
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.samples import million, randn


def _clip_gradient() -> Iterator[Sample]:
    # A bound that no gradient of the tests reaches: then, and only then, clipping is exact.
    yield Sample("matrix", (randn(4, 3), 1e6))
    yield Sample("scalar", (randn(), 1e6))
    yield Sample("empty", (randn(0, 3), 1e6))


def _add_gradient_noise() -> Iterator[Sample]:
    yield Sample("no noise", (randn(4, 3), 0.0))
    yield Sample("empty", (randn(0, 3), 0.5))


def _saved_as() -> Iterator[Sample]:
    # Stored in the dtype that they have, tensors are not rounded.
    yield Sample("chain", (torch.float64, lambda x: x.exp().sin() * x.tanh(), randn(4, 3)))
    yield Sample("two inputs", (torch.float64, lambda x, w: (x @ w).sigmoid().square(), randn(4, 3), randn(3, 2)))
    yield Sample("empty", (torch.float64, lambda x: x.exp().sin(), randn(0, 3)))


def _fake_quantize() -> Iterator[Sample]:
    # torch's own computes with the scale in float32: powers of two are exact there.
    yield Sample("zero point", (randn(4, 3), 0.25, 3, 0, 7))
    yield Sample("one a column", (randn(4, 3), [0.25, 0.5, 0.125], torch.tensor([0, 3, 7]), 0, 7, -1))
    yield Sample("one a middle row", (randn(2, 3, 2), [0.25, 0.5, 0.125], 0, -2, 1, 1))
    yield Sample(
        "scalar, the last in range", (torch.full((), 0.5, dtype=torch.float64).requires_grad_(), 0.5, 0, -1, 1)
    )
    yield Sample("empty", (randn(0, 3), 0.5))


def _torch_fake_quantize(
    input: Tensor,
    scale: float | list[float],
    zero_point: int | Tensor = 0,
    quant_min: int = -128,
    quant_max: int = 127,
    dim: int | None = None,
) -> Tensor:
    if dim is None:
        return torch.fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max)
    scales = torch.tensor(scale)
    zero_points = torch.as_tensor(zero_point, dtype=torch.int32).expand(scales.shape).contiguous()
    return torch.fake_quantize_per_channel_affine(input, scales, zero_points, dim % input.dim(), quant_min, quant_max)


def _composed_fake_quantize(input: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int) -> Tensor:
    exact = input / scale
    level = exact + (exact.round() - exact).detach() + zero_point
    return (level.clamp(quant_min, quant_max) - zero_point) * scale


def _learned_step_size() -> Iterator[Sample]:
    steps = torch.tensor([0.3, 0.5, 0.7], dtype=torch.float64)
    yield Sample("three bits", (randn(4, 3), steps[0].clone().requires_grad_(), -4, 3))
    yield Sample("one a column, no sign", (randn(4, 3), steps.clone().requires_grad_(), 0, 3, -1))
    yield Sample("one a row, a factor", (randn(3, 2, 2), steps.clone().requires_grad_(), -2, 1, 0, 0.1))
    yield Sample("frozen step", (randn(4, 3), steps[1].clone(), -2, 1))
    yield Sample("scalar", (randn(), steps[2:].clone().requires_grad_(), -2, 1))
    yield Sample("empty", (randn(0, 3), steps.clone().requires_grad_(), -2, 1, 1))


def _composed_learned_step_size(
    input: Tensor, step: Tensor, quant_min: int, quant_max: int, dim: int | None = None, grad_scale: float | None = None
) -> Tensor:
    if grad_scale is None:
        grad_scale = (max(input.numel() // step.numel(), 1) * quant_max) ** -0.5
    scaled = step.detach() + grad_scale * (step - step.detach())
    scaled = scaled.reshape(()) if dim is None else scaled.reshape([-1] + [1] * (input.dim() - 1 - dim % input.dim()))
    ratio = input / scaled
    # Not clamp: its gradient passes at the two ends, and that of the paper does not.
    limited = torch.where(ratio <= quant_min, quant_min, torch.where(ratio >= quant_max, quant_max, ratio))
    return (limited.round().detach() + limited - limited.detach()) * scaled


def _torch_learned_step_size(input: Tensor, step: Tensor, quant_min: int, quant_max: int) -> Tensor:
    grad_factor = (input.numel() * quant_max) ** -0.5
    return torch._fake_quantize_learnable_per_tensor_affine(
        input, step, torch.zeros(1), quant_min, quant_max, grad_factor
    )


def _spike() -> Iterator[Sample]:
    yield Sample("fast sigmoid", (randn(4, 3),))
    yield Sample("arctan", (randn(4, 3), 3.0, "arctan"))
    yield Sample("triangle", (randn(4, 3), 0.5, "triangle"))
    yield Sample("steep", (randn(4, 3), 100.0))
    yield Sample("scalar", (randn(), 1.0))
    yield Sample("empty", (randn(0, 3),))


def _composed_spike(input: Tensor, slope: float = 2.0, shape: str = "fast_sigmoid") -> Tensor:
    if shape == "fast_sigmoid":
        smooth = input / (1 + slope * input.abs())
    elif shape == "arctan":
        smooth = (slope * input).atan() / slope
    else:
        near = input.clamp(-1 / slope, 1 / slope)
        smooth = near - slope * near * near.abs() / 2
    return (input > 0).to(input.dtype) + (smooth - smooth.detach())


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="clip_gradient",
        page="02_changing_the_gradient/hooks",
        topics=("B2", "B6"),
        function=hooks.clip_gradient,
        exports=("clip_gradient",),
        samples=_clip_gradient,
        reference=lambda input, max_norm: input.view_as(input),
    ),
    Recipe(
        name="add_gradient_noise",
        page="02_changing_the_gradient/hooks",
        topics=("B6",),
        function=hooks.add_gradient_noise,
        exports=("add_gradient_noise",),
        samples=_add_gradient_noise,
        reference=lambda input, std: input.view_as(input),
    ),
    Recipe(
        name="GradientLog",
        page="02_changing_the_gradient/hooks",
        topics=("B6",),
        function=hooks.GradientLog,
        exports=("GradientLog",),
        promises=(),
    ),
    Recipe(
        name="step_in_backward",
        page="02_changing_the_gradient/hooks",
        topics=("B6",),
        function=hooks.step_in_backward,
        exports=("step_in_backward",),
        promises=(),
    ),
    Recipe(
        name="saved_as",
        page="02_changing_the_gradient/hooks",
        topics=("B6", "D5"),
        function=hooks.saved_as,
        exports=("saved_as",),
        samples=_saved_as,
        reference=lambda dtype, function, *args: function(*args),
        # torch.func and torch.compile refuse hooks on saved tensors.
        promises=("first_order", "second_order", "checkpoint"),
    ),
    Recipe(
        name="fake_quantize",
        page="02_changing_the_gradient/fake_quantization",
        topics=("B4",),
        function=quantization.fake_quantize,
        exports=("fake_quantize",),
        samples=_fake_quantize,
        reference=_torch_fake_quantize,
        gradient="surrogate",
        cost=Cost(
            lambda: (*million(), 0.1, 3, 0, 15),
            saved=0,
            minimum=0,
            composition=_composed_fake_quantize,
            built_in=torch.fake_quantize_per_tensor_affine,
            wins=("bytes",),
        ),
    ),
    Recipe(
        name="learned_step_size",
        page="02_changing_the_gradient/fake_quantization",
        topics=("B4",),
        function=quantization.learned_step_size,
        exports=("learned_step_size", "initial_step"),
        samples=_learned_step_size,
        reference=_composed_learned_step_size,
        gradient="surrogate",
        cost=Cost(
            lambda: (*million(), torch.full((1,), 0.1).requires_grad_(), -8, 7),
            saved=0,
            minimum=0,
            composition=_composed_learned_step_size,
            built_in=_torch_learned_step_size,
        ),
    ),
    Recipe(
        name="spike",
        page="02_changing_the_gradient/surrogate_gradients",
        topics=("B5",),
        function=surrogate.spike,
        exports=("spike",),
        samples=_spike,
        reference=_composed_spike,
        gradient="surrogate",
        cost=Cost(million, saved=0, minimum=0, composition=_composed_spike),
    ),
)
