"""Accumulate gradients in a wider dtype than the weights have, in a buffer next to each weight."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils.hooks import RemovableHandle

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._once import last_derivative


class LinearMainGradFunction(Function):
    """Keeps input and weight. Backward adds the gradient of the weight to a buffer, and returns None instead of it."""

    @staticmethod
    def forward(input: Tensor, weight: Tensor, main_grad: Tensor) -> Tensor:
        return nn.functional.linear(input, weight)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        input, weight, main_grad = inputs
        ctx.save_for_backward(input, weight)
        ctx.main_grad = main_grad  # not a saved tensor, because other backward passes write to the buffer

    @staticmethod
    @last_derivative
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, None, None]:
        input, weight = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            count, dtype = grad_output.shape[:-1].numel(), ctx.main_grad.dtype
            rows = grad_output.reshape(count, weight.shape[0]).to(dtype)
            ctx.main_grad.addmm_(rows.T, input.reshape(count, weight.shape[1]).to(dtype))
        # Under autocast, the gradient has another dtype than the weight.
        return grad_output @ weight.to(grad_output.dtype) if ctx.needs_input_grad[0] else None, None, None


def linear_main_grad(input: Tensor, weight: Tensor, main_grad: Tensor) -> Tensor:
    r"""A linear layer whose backward adds the gradient of the weight to a buffer, in the dtype of the buffer.

    .. math::
        y = x W^\top, \qquad \bar{x} = \bar{y} W, \qquad B \leftarrow B + \bar{y}^\top x

    Backward computes the product in the dtype of the buffer, so the product is not rounded to the dtype of the weight.
    ``weight.grad`` does not change, so the optimizer must read the buffer. If the weight is used twice, both uses add
    to the buffer. Each backward pass adds to the buffer, even ``torch.autograd.grad`` with respect to the input only.
    Second derivatives, ``vmap`` and forward mode raise.

    Args:
        input: floating, shape ``(*, in_features)``.
        weight: same dtype, shape ``(out_features, in_features)``. It must require grad, or backward adds nothing.
        main_grad: the buffer :math:`B`, floating, with the shape and device of ``weight``. It must not require grad.

    Returns:
        Shape ``(*, out_features)``, dtype of ``input``.

    Raises:
        TypeError: if ``main_grad`` is not floating.
        ValueError: if ``main_grad`` has another shape than ``weight``, or requires grad.

    Source: M. Shoeybi et al., Megatron-LM, 2019, which uses the name ``main_grad`` for such a buffer.

    >>> weight = torch.ones(1, 2, dtype=torch.bfloat16, requires_grad=True)
    >>> buffer = torch.zeros(1, 2)
    >>> for _ in range(1000):
    ...     linear_main_grad(torch.ones(1, 2, dtype=torch.bfloat16), weight, buffer).sum().backward()
    >>> buffer.tolist(), weight.grad
    ([[1000.0, 1000.0]], None)
    """
    if not main_grad.is_floating_point():
        raise TypeError(f"expected main_grad of a floating dtype, got {main_grad.dtype}")
    if main_grad.shape != weight.shape:
        raise ValueError(f"expected main_grad of shape {tuple(weight.shape)}, got {tuple(main_grad.shape)}")
    if main_grad.requires_grad:
        raise ValueError("main_grad requires grad; make it with torch.zeros_like(weight, requires_grad=False)")
    return LinearMainGradFunction.apply(input, weight, main_grad)


class MainGrad:
    """Adds each new gradient of a parameter to a buffer of a wider dtype, with a hook. It works for any layer.

    During a backward, a gradient in the parameter's own dtype exists for one parameter at a time. The hook adds this
    gradient to ``main_grad[parameter]`` and sets ``parameter.grad`` to None. Use the object as a context manager, or
    call :meth:`remove` at the end.

    Args:
        parameters: leaves that require grad.
        dtype: the dtype of the buffers.

    Raises:
        ValueError: if a parameter is given twice, or does not require grad.

    >>> layer = nn.Linear(2, 1, dtype=torch.bfloat16)
    >>> with MainGrad(layer.parameters()) as sums:
    ...     for _ in range(1000):
    ...         layer(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
    >>> sums.main_grad[layer.weight].tolist(), layer.weight.grad
    ([[1000.0, 1000.0]], None)
    """

    def __init__(self, parameters: Iterable[Tensor], dtype: torch.dtype = torch.float32) -> None:
        self.main_grad: dict[Tensor, Tensor] = {}
        for parameter in parameters:
            if parameter in self.main_grad:
                raise ValueError(f"a parameter of shape {tuple(parameter.shape)} is given twice")
            if not (parameter.is_leaf and parameter.requires_grad):
                raise ValueError(f"expected leaves that require grad, got a tensor of shape {tuple(parameter.shape)}")
            self.main_grad[parameter] = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
        self._handles: list[RemovableHandle] = [
            parameter.register_post_accumulate_grad_hook(self._move) for parameter in self.main_grad
        ]

    def _move(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            self.main_grad[parameter].add_(parameter.grad.detach())
            parameter.grad = None

    def zero(self) -> None:
        """Set all buffers to zero, as ``zero_grad`` does with gradients."""
        for buffer in self.main_grad.values():
            buffer.zero_()

    def remove(self) -> None:
        """Remove the hooks. The buffers stay."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> "MainGrad":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
