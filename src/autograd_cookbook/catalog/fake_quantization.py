"""The recipes of the page ``fake_quantization``."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from autograd_cookbook.catalog._recipe import Cost, Recipe, Sample
from autograd_cookbook.catalog._samples import million, randn
from autograd_cookbook.recipes import fake_quantization


def _fake_quantize() -> Iterator[Sample]:
    # torch's own function computes with the scale in float32, so use powers of two, which are exact there.
    yield Sample("zero point", (randn(4, 3), 0.25, 3, 0, 7))
    yield Sample("one a column", (randn(4, 3), [0.25, 0.5, 0.125], torch.tensor([0, 3, 7]), 0, 7, -1))
    yield Sample("one a middle row", (randn(2, 3, 2), [0.25, 0.5, 0.125], 0, -2, 1, 1))
    yield Sample(
        "scalar, the last in range", (torch.full((), 0.5, dtype=torch.float64).requires_grad_(), 0.5, 0, -1, 1)
    )
    yield Sample("empty", (randn(0, 3), 0.5))


def _torch_fake_quantize(
    input: Tensor,
    scale: Any,
    zero_point: Any = 0,
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


FAKE_QUANTIZE = Recipe(
    name="fake_quantize",
    function=fake_quantization.fake_quantize,
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
)


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
    # Do not use clamp, because its gradient passes at both ends. The gradient of the paper does not.
    limited = torch.where(ratio <= quant_min, quant_min, torch.where(ratio >= quant_max, quant_max, ratio))
    return (limited.round().detach() + limited - limited.detach()) * scaled


def _torch_learned_step_size(input: Tensor, step: Tensor, quant_min: int, quant_max: int) -> Tensor:
    grad_factor = (input.numel() * quant_max) ** -0.5
    return torch._fake_quantize_learnable_per_tensor_affine(
        input, step, torch.zeros(1), quant_min, quant_max, grad_factor
    )


LEARNED_STEP_SIZE = Recipe(
    name="learned_step_size",
    function=fake_quantization.learned_step_size,
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
)
