"""Gradients that are changed on purpose."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook import clipping, hooks, quantization, reversal, straight_through, surrogate
from autograd_cookbook.catalog.recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog.samples import complex_randn, million, randn, unary


def _factor() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), 0.5))
    yield Sample("scalar", (randn(), 2.0))
    yield Sample("nothing left", (randn(3), 0.0))
    yield Sample("an int", (randn(2, 3), 1))
    yield Sample("empty", (randn(0, 3), 0.5))
    yield Sample("complex", (complex_randn(3), 0.5))


def _scaled(input: Tensor, scale: float) -> Tensor:
    """The input exactly, since the difference is zero, and the gradient of ``scale * input``."""
    return input.detach() + scale * (input - input.detach())


def _hooked(input: Tensor, hook: Callable[[Tensor], Tensor]) -> Tensor:
    output = input.view_as(input)
    output.register_hook(hook)
    return output


def _stop_gradient() -> Iterator[Sample]:
    yield Sample("matrix", (randn(4, 3), torch.rand(4, 3) < 0.5))
    yield Sample("rows", (randn(4, 3), torch.tensor([[True], [False], [True], [False]])))
    yield Sample("scalar", (randn(), torch.tensor(False)))
    yield Sample("all", (randn(3), torch.tensor(True)))
    yield Sample("empty", (randn(0, 3), torch.ones(3, dtype=torch.bool)))
    yield Sample("complex", (complex_randn(2), torch.tensor([True, False])))


def _clip_gradient_norm() -> Iterator[Sample]:
    yield from _clip_gradient_and_complex()
    yield Sample("rows", (randn(4, 3), 1e6, -1))
    yield Sample("two dims", (randn(2, 3, 4), 1e6, (0, 2)))


def _clipped_linear() -> Iterator[Sample]:
    yield Sample("batch", (randn(4, 3), randn(5, 3), randn(5), 1e6))
    yield Sample("no bias", (randn(4, 3), randn(5, 3), None, 1e6))
    yield Sample("two batch dims", (randn(2, 3, 4), randn(5, 4), randn(5), 1e6))
    yield Sample("vector", (randn(3), randn(5, 3), randn(5), 1e6))
    yield Sample("empty batch", (randn(0, 3), randn(5, 3), randn(5), 1e6))
    yield Sample("no features", (randn(2, 0), randn(5, 0), randn(5), 1e6))
    yield Sample("complex", (complex_randn(2, 3), complex_randn(2, 3), complex_randn(2), 1e6))


def _limited(grad: Tensor, max_norm: float, dim: Any = None) -> Tensor:
    return grad * (max_norm / torch.linalg.vector_norm(grad, dim=dim, keepdim=True)).clamp(max=1)


def _one_weight_each(input: Tensor, weight: Tensor, bias: Tensor | None, max_norm: float) -> Tensor:
    """A copy of the parameters for each example, whose gradient is limited by a hook."""
    examples = input.reshape(input.shape[:-1].numel(), input.shape[-1])
    if bias is not None:
        examples = torch.cat([examples, examples.new_ones(len(examples), 1)], 1)
        weight = torch.cat([weight, bias.unsqueeze(1)], 1)
    copies = weight.expand(len(examples), *weight.shape)
    if copies.requires_grad:
        copies.register_hook(lambda grad: _limited(grad, max_norm, (1, 2)))
    return (copies @ examples.unsqueeze(-1)).reshape(*input.shape[:-1], len(weight))


def _clip_gradient() -> Iterator[Sample]:
    # A bound that no gradient of the tests reaches: then, and only then, clipping is exact.
    yield Sample("matrix", (randn(4, 3), 1e6))
    yield Sample("scalar", (randn(), 1e6))
    yield Sample("empty", (randn(0, 3), 1e6))


def _clip_gradient_and_complex() -> Iterator[Sample]:
    yield from _clip_gradient()
    yield Sample("complex", (complex_randn(3), 1e6))


def _steps() -> Iterator[Sample]:
    yield from unary()
    halves = torch.tensor([-1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.5], dtype=torch.float64)
    yield Sample("at the steps", (halves.requires_grad_(),))


def _binarize() -> Iterator[Sample]:
    # Far from 0 no gradient passes, so that none of the samples lies there as a whole.
    yield from (sample for sample in _steps() if sample.name != "large")


def _as_if(stand_in: Tensor, value: Tensor) -> Tensor:
    """The value, with the gradient of what stands in for it."""
    return stand_in + (value - stand_in).detach()


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
        name="reverse_gradient",
        page="02_changing_the_gradient/reversal",
        topics=("B1",),
        function=reversal.reverse_gradient,
        exports=("reverse_gradient",),
        samples=_factor,
        reference=lambda input, strength: _scaled(input, -strength),
        gradient="surrogate",
        cost=Cost(
            lambda: (*million(), 0.5),
            saved=0,
            minimum=0,
            composition=lambda x, strength: (1 + strength) * x.detach() - strength * x,
            built_in=lambda x, strength: _hooked(x, lambda grad: grad * -strength),
        ),
    ),
    Recipe(
        name="scale_gradient",
        page="02_changing_the_gradient/reversal",
        topics=("B1",),
        function=reversal.scale_gradient,
        exports=("scale_gradient",),
        samples=_factor,
        reference=_scaled,
        gradient="surrogate",
        cost=Cost(
            lambda: (*million(), 0.5),
            saved=0,
            minimum=0,
            composition=lambda x, scale: (1 - scale) * x.detach() + scale * x,
            built_in=lambda x, scale: _hooked(x, lambda grad: grad * scale),
        ),
    ),
    Recipe(
        name="stop_gradient",
        page="02_changing_the_gradient/reversal",
        topics=("B1",),
        function=reversal.stop_gradient,
        exports=("stop_gradient",),
        samples=_stop_gradient,
        reference=lambda input, mask: torch.where(mask, input.detach(), input),
        gradient="surrogate",
        cost=Cost(
            lambda: (*million(), torch.rand(1000, 1000) < 0.5),
            saved=0,
            minimum=0,
            composition=lambda x, mask: torch.where(mask, x.detach(), x),
            built_in=lambda x, mask: _hooked(x, lambda grad: grad.masked_fill(mask, 0)),
        ),
    ),
    Recipe(
        name="clip_gradient_value",
        page="02_changing_the_gradient/clipping",
        topics=("B2",),
        function=clipping.clip_gradient_value,
        exports=("clip_gradient_value",),
        samples=_clip_gradient,
        reference=lambda input, clip_value: input.view_as(input),
        cost=Cost(
            lambda: (*million(), 0.5),
            saved=0,
            minimum=0,
            built_in=lambda x, clip_value: _hooked(x, lambda grad: grad.clamp(-clip_value, clip_value)),
        ),
    ),
    Recipe(
        name="clip_gradient_norm",
        page="02_changing_the_gradient/clipping",
        topics=("B2",),
        function=clipping.clip_gradient_norm,
        exports=("clip_gradient_norm",),
        samples=_clip_gradient_norm,
        reference=lambda input, max_norm, dim=None: input.view_as(input),
        cost=Cost(
            lambda: (*million(), 0.5, 1),
            saved=0,
            minimum=0,
            built_in=lambda x, max_norm, dim: _hooked(x, lambda grad: _limited(grad, max_norm, dim)),
            wins=("range",),
        ),
    ),
    Recipe(
        name="clipped_linear",
        page="02_changing_the_gradient/clipping",
        topics=("A5", "B2", "E4"),
        function=clipping.clipped_linear,
        exports=("clipped_linear",),
        samples=_clipped_linear,
        reference=_one_weight_each,
        cost=Cost(
            lambda: (torch.randn(4096, 256).requires_grad_(), torch.randn(32, 256).requires_grad_(), None, 0.5),
            saved=0,
            minimum=0,
            composition=_one_weight_each,
            wins=("time",),
        ),
    ),
    Recipe(
        name="round_ste",
        page="02_changing_the_gradient/straight_through",
        topics=("B3",),
        function=straight_through.round_ste,
        exports=("round_ste",),
        samples=_steps,
        reference=lambda input: _as_if(input, input.round()),
        gradient="surrogate",
        cost=Cost(million, saved=0, minimum=0, composition=lambda x: _as_if(x, x.round()), wins=("time", "range")),
    ),
    Recipe(
        name="sign_ste",
        page="02_changing_the_gradient/straight_through",
        topics=("B3",),
        function=straight_through.sign_ste,
        exports=("sign_ste",),
        samples=_steps,
        reference=lambda input: _as_if(input, input.sign()),
        gradient="surrogate",
        cost=Cost(million, saved=0, minimum=0, composition=lambda x: _as_if(x, x.sign()), wins=("time", "range")),
    ),
    Recipe(
        name="binarize",
        page="02_changing_the_gradient/straight_through",
        topics=("B3",),
        function=straight_through.binarize,
        exports=("binarize",),
        samples=_binarize,
        reference=lambda input: _as_if(input.clamp(-1, 1), torch.where(input >= 0, 1, -torch.ones_like(input))),
        gradient="surrogate",
        cost=Cost(
            million,
            saved=0,
            minimum=0,
            composition=lambda x: _as_if(x.clamp(-1, 1), torch.where(x >= 0, 1, -torch.ones_like(x))),
            wins=("peak",),
        ),
    ),
    Recipe(
        name="clip_gradient",
        page="02_changing_the_gradient/hooks",
        topics=("B2", "B6"),
        function=hooks.clip_gradient,
        exports=("clip_gradient",),
        samples=_clip_gradient_and_complex,
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
