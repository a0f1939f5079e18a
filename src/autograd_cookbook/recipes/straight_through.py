"""Straight-through estimators: step functions whose backward uses the derivative of a function without steps."""

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context


class StraightThroughFunction(Function):
    """Keeps nothing, because backward returns the gradient unchanged."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        return grad_output


class RoundFunction(StraightThroughFunction):
    """Rounds its input. Keeps nothing."""

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.round()


def round_ste(input: Tensor) -> Tensor:
    r"""Round to whole numbers, with the gradient of the identity.

    .. math:: y = \operatorname{round}(x), \qquad \bar{x} = \bar{y}

    Args:
        input: any shape, floating dtype. Halves are rounded to the even neighbor, as in :func:`torch.round`.

    Returns:
        A tensor of whole numbers, with the shape and dtype of ``input``.

    Raises:
        RuntimeError: if ``input`` is complex, as in :func:`torch.round`.

    Source: Y. Bengio et al., Estimating or propagating gradients through stochastic neurons for conditional
    computation, arXiv:1308.3432.

    >>> x = torch.tensor([0.4, 0.6, 2.5], requires_grad=True)
    >>> y = round_ste(x)
    >>> (y * y).sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([0.0, 1.0, 2.0], [0.0, 2.0, 4.0])
    """
    return RoundFunction.apply(input)


class SignFunction(StraightThroughFunction):
    """Returns the sign of its input. Keeps nothing."""

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.sign()


def sign_ste(input: Tensor) -> Tensor:
    r"""Return the sign, with the gradient of the identity. At 0 the sign is 0, as in :func:`torch.sign`.

    .. math:: y = \operatorname{sign}(x) \in \{-1, 0, 1\}, \qquad \bar{x} = \bar{y}

    Args:
        input: any shape, floating dtype.

    Returns:
        A tensor like ``input``.

    Raises:
        RuntimeError: if ``input`` is complex, as in :func:`torch.sign`.

    Source: Y. Bengio et al., arXiv:1308.3432.

    >>> x = torch.tensor([-0.3, 0.0, 5.0], requires_grad=True)
    >>> y = sign_ste(x)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([-1.0, 0.0, 1.0], [1.0, 1.0, 1.0])
    """
    return SignFunction.apply(input)


class BinarizeFunction(Function):
    """Keeps the input, because the output does not show how far the input is from 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        # The inner where() returns the input for NaN, so NaN stays NaN. Its result also has the dtype of the input. If
        # both values were Python numbers, where() would return int64.
        return torch.where(input >= 0, 1, torch.where(input < 0, -1, input))

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (input,) = ctx.saved_tensors
        # This kernel returns 0 at its bounds and beyond, but not at NaN. So the bound is the next number after 1,
        # and NaN is replaced. On a CPU, torch.where would take several times as long.
        bound = 1 + torch.finfo(input.dtype).eps
        return torch.ops.aten.hardtanh_backward(grad_output, input.nan_to_num(torch.inf), -bound, bound)


def binarize(input: Tensor) -> Tensor:
    r"""Return 1 for inputs that are 0 or positive, and -1 for negative inputs, with the gradient of a clamp.

    .. math:: y = \begin{cases} 1 & x \ge 0 \\ -1 & x < 0 \end{cases}, \qquad \bar{x} = \bar{y}\,[|x| \le 1]

    An input outside of :math:`[-1, 1]` gets gradient 0, so its gradient does not move it, neither away from 0 nor back.
    If the optimizer updates such inputs, clamp them to :math:`[-1, 1]` after each step. For one-bit values, use this
    function and not :func:`sign_ste`, because the output of :func:`sign_ste` can be 0.

    Args:
        input: any shape, floating dtype.

    Returns:
        A tensor like ``input``, with the values 1 and -1. NaN stays NaN.

    Raises:
        TypeError: if ``input`` is complex.

    Source: I. Hubara et al., Binarized neural networks, arXiv:1602.02830, equation 4.

    >>> x = torch.tensor([-3.0, -0.5, 0.0, 1.0], requires_grad=True)
    >>> y = binarize(x)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([-1.0, -1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0])
    """
    if input.is_complex():
        raise TypeError(f"expected a real input, got {input.dtype}: complex numbers have no sign")
    return BinarizeFunction.apply(input)
