"""A loss whose forward and backward ``torch.compile`` compiles without a graph break."""

from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.elementwise import wide


class HuberFunction(Function):
    """Keeps the input. The slope is the clamped input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, delta: float) -> Tensor:
        # In float32 or wider, because float16 has no number near to a delta of 1e-8, and none near to 1e5.
        size = wide(input).abs()
        # Halve before multiplying: in float32, x * x overflows from 1.8e19 on, but x * (x / 2) only from 2.6e19 on.
        # One formula covers both branches, because a Python "if" that depends on data would cause a graph break.
        near = size.clamp(max=delta)
        return (near * size.sub_(near, alpha=0.5)).to(input.dtype)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float], output: Tensor) -> None:
        input, ctx.delta = inputs
        ctx.save_for_backward(input)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        (input,) = ctx.saved_tensors
        return (grad_output * wide(input).clamp(-ctx.delta, ctx.delta)).to(input.dtype), None


def huber(input: Tensor, delta: float = 1.0) -> Tensor:
    r"""Huber's function of a residual: quadratic near 0, linear far from 0.

    .. math::
        y = \begin{cases} x^2 / 2 & |x| \le \delta \\ \delta\,(|x| - \delta / 2) & \text{else} \end{cases}, \qquad
        \bar{x} = \bar{y}\,\min(\max(x, -\delta), \delta)

    Args:
        input: residuals, any shape, floating dtype.
        delta: the residual :math:`\delta > 0` at which the quadratic part ends.

    Returns:
        A tensor like ``input``, the loss of each element.

    Raises:
        ValueError: if ``delta`` is not positive, as in :func:`torch.nn.functional.huber_loss`.

    Source: P. J. Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35 (1964).

    >>> import torch
    >>> x = torch.tensor([-3.0, 0.5], requires_grad=True)
    >>> huber(x).sum().backward()
    >>> x.grad
    tensor([-1.0000,  0.5000])
    """
    if not delta > 0:
        raise ValueError(f"expected delta > 0, got {delta}")
    return HuberFunction.apply(input, delta)
