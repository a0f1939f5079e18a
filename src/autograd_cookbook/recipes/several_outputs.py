"""Functions with several outputs. An output can have no derivative, and the loss can leave any output unused."""

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.reductions import as_dims, kept


class SplitSignFunction(Function):
    """Keeps its input. The sign of an element says which output has the element."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> tuple[Tensor, Tensor]:
        return input.clamp(min=0), (-input).clamp(min=0)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs)
        # The gradient of an unused output is then None instead of a tensor of zeros.
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Context, grad_positive: Tensor | None, grad_negative: Tensor | None) -> Tensor | None:
        (input,) = ctx.saved_tensors
        # Use the backward kernel of relu, because a product with a mask would give NaN for an infinite gradient times
        # 0.
        grad_input = None
        if grad_positive is not None:
            grad_input = torch.ops.aten.threshold_backward(grad_positive, input, 0)
        if grad_negative is not None:
            from_negative = -torch.ops.aten.threshold_backward(grad_negative, -input, 0)
            grad_input = from_negative if grad_input is None else grad_input + from_negative
        return grad_input


def split_sign(input: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return ``relu(x)`` and ``relu(-x)``, with gradient 0 at 0.

    .. math::
        y^+ = \max(x, 0), \quad y^- = \max(-x, 0), \qquad
        \bar{x} = \bar{y}^+\,[x > 0] - \bar{y}^-\,[x < 0]

    The concatenation of both outputs is the activation CReLU. It keeps all information, because
    :math:`x = y^+ - y^-`.

    Args:
        input: any shape, real dtype.

    Returns:
        The two parts, each a tensor like ``input``.

    Raises:
        NotImplementedError: if ``input`` is complex.

    Source: W. Shang, K. Sohn, D. Almeida, H. Lee, Understanding and Improving Convolutional Neural Networks via
    Concatenated Rectified Linear Units, ICML 2016.

    >>> x = torch.tensor([-2.0, 0.0, 3.0], requires_grad=True)
    >>> positive, negative = split_sign(x)
    >>> (positive + 10 * negative).sum().backward()
    >>> x.grad
    tensor([-10.,   0.,   1.])
    """
    return SplitSignFunction.apply(input)


class MaxWithIndexFunction(Function):
    """Keeps the index, which is also an output. It does not keep the input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
        values, index = torch.max(input, dim, keepdim)
        return values, index

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, int, bool], output: tuple[Tensor, Tensor]) -> None:
        input, ctx.dim, _ = inputs
        _, index = output
        ctx.shape = input.shape
        ctx.mark_non_differentiable(index)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(index)

    @staticmethod
    def backward(ctx: Context, grad_values: Tensor | None, _: None) -> tuple[Tensor | None, None, None]:
        if grad_values is None:
            return None, None, None
        (index,) = ctx.saved_tensors
        shape = kept(ctx.shape, as_dims(ctx.dim, len(ctx.shape)))
        zeros = grad_values.new_zeros(()).expand(ctx.shape)  # expanded, so it takes no memory; scatter makes a copy
        return zeros.scatter(ctx.dim, index.reshape(shape), grad_values.reshape(shape)), None, None


def max_with_index(input: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    r"""Maximum over one dimension, and the index of the maximum.

    .. math:: y = x_k, \quad k = \operatorname{arg\,max}_i x_i, \qquad \bar{x}_i = \bar{y}\,[i = k]

    If several elements are equal maxima, one of them gets the whole gradient, as in :func:`torch.max`. To share the
    gradient among them, see :func:`autograd_cookbook.recipes.reductions.amax`.

    Args:
        input: any shape, real dtype.
        dim: the dimension to reduce, negative or not.
        keepdim: whether the reduced dimension stays, with size 1.

    Returns:
        The maxima, and their indices along ``dim`` as int64, which have no gradient.

    Raises:
        IndexError: if ``dim`` is out of range or has size 0.

    >>> x = torch.tensor([[1.0, 5.0, 2.0], [4.0, 3.0, 0.0]], requires_grad=True)
    >>> values, index = max_with_index(x)
    >>> index
    tensor([1, 0])
    >>> values.sum().backward()
    >>> x.grad
    tensor([[0., 1., 0.],
            [1., 0., 0.]])
    """
    return MaxWithIndexFunction.apply(input, dim, keepdim)
