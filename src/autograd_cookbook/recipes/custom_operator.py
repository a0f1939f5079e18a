"""A recursive filter of SciPy as a custom operator that works with autograd, torch.func and the compiler."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.scipy_functions import on_host


def filtered(input: Tensor, coefficients: Tensor) -> Tensor:
    """Filter the rows of ``(*batch, ..., n)`` with SciPy, by coefficients ``(*batch, order)``."""
    from scipy import signal

    rows, filters = on_host(input), on_host(coefficients).reshape(-1, coefficients.shape[-1])
    output = torch.empty(rows.shape, dtype=rows.dtype)
    if output.numel():
        each = (len(filters), -1, rows.shape[-1])
        for target, row, a in zip(output.view(each), rows.reshape(each), F.pad(filters, (1, 0), value=1), strict=True):
            target.copy_(torch.from_numpy(signal.lfilter(a.numpy()[:1], a.numpy(), row.numpy(), axis=-1)))
    return output.to(input.device)


@torch.library.custom_op("autograd_cookbook::recursive_filter", mutates_args=())
def recursive_filter_op(input: Tensor, coefficients: Tensor) -> Tensor:
    """The operator. The compiler, an exported graph and a checkpoint policy refer to it by name.

    In a copy of this file, write the name of your library before the two colons: a second operator of the same full
    name would replace this one.
    """
    return filtered(input, coefficients)


def shape_of_filtered(input: Tensor, coefficients: Tensor) -> Tensor:
    """Return a tensor like the result, but without values. The compiler traces with it."""
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def filter_batch(
    info: Any, in_dims: tuple[int | None, int | None], input: Tensor, coefficients: Tensor
) -> tuple[Tensor, int]:
    """Filter a batch in one call. The signals share their coefficients, or each signal has its own."""
    of_input, of_coefficients = in_dims
    if of_coefficients is None:
        assert of_input is not None  # vmap maps at least one argument
        place = coefficients.dim() - 1  # after the batch dims that have their own coefficients
        return recursive_filter_op(input.movedim(of_input, place), coefficients), place
    batch = input.expand(info.batch_size, *input.shape) if of_input is None else input.movedim(of_input, 0)
    return recursive_filter_op(batch, coefficients.movedim(of_coefficients, 0)), 0


def save_for_filter(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    """Save the coefficients and the output. No gradient needs the input."""
    ctx.save_for_backward(inputs[1], output)


def filter_gradients(
    apply: Callable[[Tensor, Tensor], Tensor], ctx: Context, grad_output: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Return both gradients. ``apply`` is the filter, in a form that can be differentiated again."""
    coefficients, output = ctx.saved_tensors
    grad_input = apply(grad_output.flip(-1), coefficients.conj()).flip(-1)
    if not ctx.needs_input_grad[1]:
        return grad_input, None
    order = coefficients.shape[-1]
    past = F.pad(output, (order, 0)).unfold(-1, order, 1)[..., :-1, :].flip(-1)  # the outputs before each step
    products = -(grad_input.unsqueeze(-2) @ past.conj()).squeeze(-2)
    shared = tuple(range(coefficients.dim() - 1, products.dim() - 1))
    return grad_input, products.sum(shared) if shared else products


def operator_gradients(ctx: Context, grad_output: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the operator if it is called directly, as in an exported graph."""
    return filter_gradients(recursive_filter_op, ctx, grad_output)


recursive_filter_op.register_fake(shape_of_filtered)


recursive_filter_op.register_vmap(filter_batch)


recursive_filter_op.register_autograd(operator_gradients, setup_context=save_for_filter)


class RecursiveFilterFunction(Function):
    """Calls the operator. It has the same gradient, in the form that ``torch.func`` needs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, coefficients: Tensor) -> Tensor:
        return recursive_filter_op(input, coefficients)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        save_for_filter(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, Tensor | None]:
        return filter_gradients(RecursiveFilterFunction.apply, ctx, grad_output)


def recursive_filter(input: Tensor, coefficients: Tensor) -> Tensor:
    r"""Recursive filter (all-pole filter, autoregression): each output also depends on the outputs before it.

    .. math::
        y_t = x_t - \sum_{k=1}^{p} a_k\, y_{t-k}, \qquad
        \bar{x}_t = \bar{y}_t - \sum_{k=1}^{p} a_k^*\, \bar{x}_{t+k}, \qquad
        \bar{a}_k = -\sum_t \bar{x}_t\, y_{t-k}^*

    The gradient of the input is the same filter, run backward in time. SciPy computes both on the CPU.

    Args:
        input: ``(..., n)``, floating or complex. For float16 and bfloat16, the function computes in float32. Outputs
            before the first one count as 0. After an infinite output, all outputs are NaN.
        coefficients: ``(p,)`` with p of 1 or more, same dtype and device. With a pole on or outside of the unit circle,
            the output grows without bound.

    Returns:
        A contiguous tensor of the shape and dtype of ``input``.

    Raises:
        TypeError: if ``input`` is neither floating nor complex, or ``coefficients`` have another dtype.
        RuntimeError: if the shapes or devices do not fit.

    >>> x = torch.tensor([1.0, 0.0, 0.0])
    >>> a = torch.tensor([-0.5], requires_grad=True)
    >>> y = recursive_filter(x, a)
    >>> y.detach(), torch.autograd.grad(y[2], a)
    (tensor([1.0000, 0.5000, 0.2500]), (tensor([-1.]),))
    """
    if not (input.is_floating_point() or input.is_complex()):
        raise TypeError(f"expected a floating or complex input, got {input.dtype}")
    if coefficients.dtype != input.dtype:
        raise TypeError(f"expected coefficients of dtype {input.dtype}, got {coefficients.dtype}")
    if input.dim() == 0 or coefficients.dim() != 1 or len(coefficients) == 0:
        raise RuntimeError(
            f"expected input of shape (..., n) and coefficients of shape (p,), p > 0, "
            f"got {tuple(input.shape)} and {tuple(coefficients.shape)}"
        )
    if coefficients.device != input.device:
        raise RuntimeError(f"expected coefficients on {input.device}, got {coefficients.device}")
    if input.dtype in (torch.float16, torch.bfloat16):  # for other dtypes, the graph needs no conversion
        return RecursiveFilterFunction.apply(input.float(), coefficients.float()).to(input.dtype)
    return RecursiveFilterFunction.apply(input, coefficients)
