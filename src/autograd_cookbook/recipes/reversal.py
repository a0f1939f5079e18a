"""Functions that return their input unchanged, and stop, scale or reverse its gradient."""

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context


class ScaleGradientFunction(Function):
    """Keeps a number and no tensor. The output shares the memory of the input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, scale: float) -> Tensor:
        return input.view_as(input)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        return grad_output * ctx.scale, None


def scale_gradient(input: Tensor, scale: float) -> Tensor:
    r"""Return a tensor unchanged, and multiply its gradient by a number.

    .. math:: y = x, \qquad \bar{x} = s\,\bar{y}

    Args:
        input: any shape, floating or complex.
        scale: the factor :math:`s`, a Python number, which gets no gradient.

    Returns:
        A view of ``input``. PyTorch raises an error if you write to this view in place.

    Raises:
        TypeError: if ``scale`` is not a real number, for example a tensor.

    >>> x = torch.ones(2, requires_grad=True)
    >>> scale_gradient(x, 0.1).sum().backward()
    >>> x.grad
    tensor([0.1000, 0.1000])
    """
    return ScaleGradientFunction.apply(input, real_number("scale", scale))


def reverse_gradient(input: Tensor, strength: float = 1.0) -> Tensor:
    r"""Return a tensor unchanged, and reverse the sign of its gradient.

    .. math:: y = x, \qquad \bar{x} = -\lambda\,\bar{y}

    With gradient descent, the layers after the reversal decrease the loss, and the layers before it increase the loss.
    A second derivative by ``input`` passes the reversal twice, so its factor is :math:`\lambda^2`.

    Args:
        input: any shape, floating or complex.
        strength: the factor :math:`\lambda`, a Python number of at least 0, which gets no gradient.

    Returns:
        A view of ``input``. PyTorch raises an error if you write to this view in place.

    Raises:
        TypeError: if ``strength`` is not a real number, for example a tensor.
        ValueError: if ``strength`` is negative or NaN.

    Source: Y. Ganin et al., Domain-adversarial training of neural networks, JMLR 17 (2016), arXiv:1505.07818.

    >>> x = torch.ones(2, requires_grad=True)
    >>> reverse_gradient(x, 0.5).sum().backward()
    >>> x.grad
    tensor([-0.5000, -0.5000])
    """
    if not real_number("strength", strength) >= 0:
        raise ValueError(f"expected strength >= 0, got {strength}")
    return ScaleGradientFunction.apply(input, -strength)


def real_number(name: str, value: float) -> float:
    """Return the value if it is a number. Backward could multiply by a tensor, but ctx must not store one as attribute.

    Raises:
        TypeError: if the value is not an int or float.
    """
    if not isinstance(value, int | float):
        raise TypeError(f"expected {name} to be an int or float, got {type(value).__name__}")
    return value


class StopGradientFunction(Function):
    """Keeps the mask. The output shares the memory of the input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, mask: Tensor) -> Tensor:
        return input.view_as(input)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        # Fill with 0 instead of multiplying by 0, because an infinite gradient times 0 would be NaN.
        return grad_output.masked_fill(mask, 0), None


def stop_gradient(input: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Return a tensor unchanged, and set its gradient to 0 where a mask is True.

    .. math:: y = x, \qquad \bar{x}_i = \bar{y}_i\,[\neg m_i]

    Args:
        input: any shape, floating or complex.
        mask: bool, with a shape that broadcasts to the shape of ``input``. True stops the gradient of an element. None
            stops the whole gradient, as ``input.detach()`` does.

    Returns:
        A view of ``input``. PyTorch raises an error if you write to this view in place.

    Raises:
        TypeError: if ``mask`` is not bool.
        RuntimeError: if ``mask`` does not broadcast to the shape of ``input``.

    >>> x = torch.ones(3, requires_grad=True)
    >>> stop_gradient(x, torch.tensor([True, False, False])).sum().backward()
    >>> x.grad
    tensor([0., 1., 1.])
    """
    if mask is None:
        return input.detach()
    if mask.dtype is not torch.bool:
        raise TypeError(f"expected mask of dtype torch.bool, got {mask.dtype}")
    if torch.broadcast_shapes(input.shape, mask.shape) != input.shape:
        raise RuntimeError(f"expected mask to broadcast to {tuple(input.shape)}, got {tuple(mask.shape)}")
    return StopGradientFunction.apply(input, mask)
