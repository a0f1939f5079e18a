"""Approximate gradients of a black box, computed only from its values."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._once import last_derivative

BlackBox = Callable[[Tensor], Tensor]


# The rounding error is about ε/h, and the error from the curvature about h². Both are about equal if h is the cube root
# of ε, which is 6e-6 in float64.
STEP = torch.finfo(torch.float64).eps ** (1 / 3)


def evaluate(black_box: BlackBox, input: Tensor, shape: torch.Size | None = None) -> Tensor:
    """Call a black box in float64 and without autograd, and check its output.

    Raises:
        TypeError: if the black box does not return a floating tensor.
        RuntimeError: if the output does not have the given shape, or a value is not finite.
    """
    with torch.no_grad():
        output = black_box(input.double().clone())
    if not isinstance(output, Tensor) or not output.is_floating_point():
        kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
        raise TypeError(f"expected the black box to return a floating tensor, got {kind}")
    if shape is not None and output.shape != shape:
        raise RuntimeError(f"the black box returned shape {tuple(output.shape)}, and before {tuple(shape)}")
    if not output.isfinite().all():
        raise RuntimeError(f"the black box returned {output[~output.isfinite()][0].item()}, which has no gradient")
    return output.to(input.device, torch.float64)


class FiniteDifferenceFunction(Function):
    """Keeps its input. Backward evaluates the black box twice for each element."""

    @staticmethod
    def forward(black_box: BlackBox, input: Tensor, step: float) -> Tensor:
        return evaluate(black_box, input).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[BlackBox, Tensor, float], output: Tensor) -> None:
        ctx.black_box, input, ctx.step = inputs
        ctx.save_for_backward(input)

    @staticmethod
    @last_derivative
    def backward(ctx: Context, grad_output: Tensor) -> tuple[None, Tensor, None]:
        (input,) = ctx.saved_tensors
        # Make a contiguous copy, so that flat is a view of this copy for any layout of the input.
        point = input.to(torch.float64, memory_format=torch.contiguous_format, copy=True)
        flat, grad_input = point.view(-1), torch.zeros_like(point)
        for i, center in enumerate(flat.tolist()):
            step = ctx.step * max(abs(center), 1)  # a large number has no neighbors at the distance of a small step
            flat[i] = center + step
            above, high = evaluate(ctx.black_box, point, grad_output.shape), flat[i].clone()
            flat[i] = center - step
            below, low = evaluate(ctx.black_box, point, grad_output.shape), flat[i].clone()
            flat[i] = center
            # Divide by the distance of the two rounded points, not by the step itself.
            grad_input.view(-1)[i] = ((above - below) * grad_output).sum() / (high - low)
        return None, grad_input.to(input.dtype), None


def finite_difference(black_box: BlackBox, input: Tensor, step: float | None = None) -> Tensor:
    r"""Call a black box. Backward computes its gradient by central differences, one input element at a time.

    .. math:: y = f(x), \qquad \bar{x}_i = \bar{y}^\top\, \frac{f(x + h e_i) - f(x - h e_i)}{2h} + O(h^2)

    Args:
        black_box: maps a tensor to a floating tensor, smooth near ``input``. It gets a float64 copy and runs
            without autograd, so it can use NumPy, SciPy or a simulator.
        input: any shape, real floating dtype.
        step: the step :math:`h` of elements between -1 and 1. A larger element has the step :math:`h\,|x_i|`. None
            means 6e-6, which fits a black box that computes in float64. For a black box that computes in float32, use
            5e-3. If the black box changes within a distance of 6e-6, pass a smaller step, because the recipe cannot
            know this distance.

    Returns:
        The value of the black box, with the dtype and device of ``input``. You can differentiate it once.

    Raises:
        TypeError: if the black box does not return a floating tensor.
        RuntimeError: if the shape of its output changes from call to call, or a value is not finite.
        ValueError: if ``step`` is not positive.

    >>> import numpy as np
    >>> x = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    >>> finite_difference(lambda x: torch.from_numpy(np.sin(x.numpy())), x).sum().backward()
    >>> x.grad
    tensor([1.0000, 0.5403], dtype=torch.float64)
    """
    return FiniteDifferenceFunction.apply(black_box, input, positive(step))


class SimultaneousPerturbationFunction(Function):
    """Keeps its input and a random seed. Backward draws the random directions from this seed."""

    @staticmethod
    def forward(black_box: BlackBox, input: Tensor, samples: int, step: float, seed: int) -> Tensor:
        return evaluate(black_box, input).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.black_box, input, ctx.samples, ctx.step, ctx.seed = inputs
        ctx.save_for_backward(input)

    @staticmethod
    @last_derivative
    def backward(ctx: Context, grad_output: Tensor) -> tuple[None, Tensor, None, None, None]:
        (input,) = ctx.saved_tensors
        # Draw on the CPU, so that the directions are the same on every device.
        generator = torch.Generator().manual_seed(ctx.seed)
        point = input.double()
        grad_input = torch.zeros_like(point)
        for _ in range(ctx.samples):
            signs = torch.randint(0, 2, input.shape, generator=generator).to(point) * 2 - 1
            shift = ctx.step * signs
            above = evaluate(ctx.black_box, point + shift, grad_output.shape)
            below = evaluate(ctx.black_box, point - shift, grad_output.shape)
            # Divide by the distance of the two rounded points, as in FiniteDifferenceFunction.
            grad_input += ((above - below) * grad_output).sum() / ((point + shift) - (point - shift))
        return None, (grad_input / ctx.samples).to(input.dtype), None, None, None


def simultaneous_perturbation(
    black_box: BlackBox,
    input: Tensor,
    samples: int = 1,
    step: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Call a black box. Backward estimates its gradient from two evaluations per random direction, for any input size.

    .. math::
        y = f(x), \qquad
        \bar{x} \approx \frac{1}{K} \sum_{k=1}^{K}
        \bar{y}^\top\, \frac{f(x + h \delta_k) - f(x - h \delta_k)}{2h}\; \delta_k,
        \qquad \delta_k \in \{-1, 1\}^n

    The estimate is unbiased up to :math:`O(h^2)`. For one output, its expected squared error is :math:`(n - 1) / K`
    times the squared norm of the gradient. With few samples, use the estimate only as a direction for descent.

    Args:
        black_box: as for :func:`finite_difference`.
        input: any shape, :math:`n` elements.
        samples: the number :math:`K` of random directions.
        step: the step :math:`h`, the same for all elements; the default is that of :func:`finite_difference`. If an
            element is above about 1e9, pass a larger step: 6e-6 is less than the rounding error of such an element.
        generator: a CPU generator. None means torch's global generator. Each call draws one number from the generator
            and uses it as a seed, so two backward passes through the same call use the same directions.

    Returns:
        The value of the black box, with the dtype and device of ``input``. You can differentiate it once.

    Raises:
        TypeError: if the black box does not return a floating tensor.
        RuntimeError: if the shape of its output changes from call to call, or a value is not finite.
        ValueError: if ``step`` or ``samples`` is not positive.

    Source: J. C. Spall, Multivariate stochastic approximation using a simultaneous perturbation gradient
    approximation, IEEE Transactions on Automatic Control 37 (1992).

    >>> x = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    >>> simultaneous_perturbation(lambda x: x**2, x).backward()
    >>> x.grad
    tensor([6.], dtype=torch.float64)
    """
    if samples < 1:
        raise ValueError(f"expected samples >= 1, got {samples}")
    seed = int(torch.randint(2**62, (), generator=generator))
    return SimultaneousPerturbationFunction.apply(black_box, input, samples, positive(step), seed)


def positive(step: float | None) -> float:
    """Return the step, or the default step if ``step`` is None."""
    if step is None:
        return STEP
    if not step > 0:
        raise ValueError(f"expected step > 0, got {step}")
    return step
