"""A linear recurrence in a logarithmic number of steps. Its gradient is the same recurrence, backward in time."""

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._opaque import opaque
from autograd_cookbook.recipes.elementwise import wide


def scan(decay: Tensor, input: Tensor) -> Tensor:
    """Return all states along the first dim.

    A scan of half the length gives the states at odd times. One more step gives the states at even times.
    """
    length = len(input)
    if length < 2:
        return input.clone()
    pairs = length // 2
    early, late = (slice(start, 2 * pairs, 2) for start in (0, 1))
    odd = scan(decay[late] * decay[early], torch.addcmul(input[late], decay[late], input[early]))
    rest = torch.addcmul(input[2::2], decay[2::2], odd[: (length - 1) // 2])
    even = torch.cat([input[:1], rest])
    states = torch.stack([even[:pairs], odd], 1).reshape(2 * pairs, *input.shape[1:])
    return torch.cat([states, even[pairs:]])


def scanned(decay: Tensor, input: Tensor) -> Tensor:
    """Return the states, computed in float32 or wider."""
    return scan(wide(decay), wide(input)).to(input.dtype)


# Without the opaque operator, torch.compile would save the products of some levels for backward.
in_levels = opaque("linear_scan", scanned, lambda decay, input: input.new_empty(input.shape))


class LinearScanFunction(Function):
    """Keeps decay and output. Backward is a scan of the gradients, with the decays shifted by one step."""

    generate_vmap_rule = True

    @staticmethod
    def forward(decay: Tensor, input: Tensor) -> Tensor:
        return in_levels(decay, input)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor]:
        decay, output = ctx.saved_tensors
        # In the scan backward in time, the first decay has no effect, because there is no state before. So any number
        # is right.
        later = torch.cat([decay[:1], decay[1:].flip(0)]).conj()
        grad_input = LinearScanFunction.apply(later, grad_output.flip(0)).flip(0)
        if not ctx.needs_input_grad[0]:
            return None, grad_input
        before = torch.cat([torch.zeros_like(output[:1]), output[:-1]])
        return grad_input * before.conj(), grad_input


def linear_scan(decay: Tensor, input: Tensor, dim: int = 0) -> Tensor:
    r"""Compute all states of a linear recurrence in :math:`2 \log_2 T` steps instead of :math:`T` steps.

    .. math::
        h_t = a_t h_{t-1} + b_t, \quad h_{-1} = 0, \qquad
        \bar{b}_t = \bar{h}_t + a_{t+1}^*\, \bar{b}_{t+1}, \quad
        \bar{a}_t = \bar{b}_t\, h_{t-1}^*

    The scan combines pairs of steps, computes every other state with a scan of half the length, and each state in
    between with one more step. This is twice the work of the loop. Backward keeps only ``decay`` and the states, so
    derivatives of any order are scans, too. For float16 and bfloat16, the function computes in float32.

    Args:
        decay: :math:`a`, floating or complex. The first decay along ``dim`` has no effect. Decays can be larger than 1
            if their product over the whole length does not overflow.
        input: :math:`b`, same shape and dtype. For another initial state, add ``decay[0] * state`` to ``input[0]``.
        dim: the dim of time.

    Returns:
        The states :math:`h`, a tensor like ``input``.

    Raises:
        IndexError: if there is no such dim.
        RuntimeError: if dtypes differ.
        TypeError: if ``input`` is neither floating nor complex.
        ValueError: if shapes differ.

    Source: G. E. Blelloch, Prefix sums and their applications, 1990, for the combination of pairs.

    >>> a = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    >>> h = linear_scan(a, torch.tensor([8.0, 2.0, 1.0]))
    >>> h[2].backward()
    >>> h.tolist(), a.grad.tolist()
    ([8.0, 6.0, 4.0], [0.0, 4.0, 6.0])
    """
    if not (input.is_floating_point() or input.is_complex()):
        raise TypeError(f"expected a floating or complex input, got {input.dtype}")
    if decay.dtype != input.dtype:
        raise RuntimeError(f"expected decay of dtype {input.dtype}, got {decay.dtype}")
    if decay.shape != input.shape:
        raise ValueError(f"expected decay of shape {tuple(input.shape)}, got {tuple(decay.shape)}")
    return LinearScanFunction.apply(decay.movedim(dim, 0), input.movedim(dim, 0)).movedim(0, dim)
