"""Several outputs: some without a gradient by nature, and any of them unused."""

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.reductions import as_dims, kept


class SplitSignFunction(Function):
    """Keeps its input, whose sign says which of the outputs an element went to."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> tuple[Tensor, Tensor]:
        return input.clamp(min=0), (-input).clamp(min=0)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs)
        # The gradient of an output that was not used arrives as None, and not as a tensor of zeros.
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Context, grad_positive: Tensor | None, grad_negative: Tensor | None) -> Tensor | None:
        (input,) = ctx.saved_tensors
        # The rectifier's own backward: it selects in one pass, as a product would not where a gradient is infinite.
        grad_input = None
        if grad_positive is not None:
            grad_input = torch.ops.aten.threshold_backward(grad_positive, input, 0)
        if grad_negative is not None:
            from_negative = -torch.ops.aten.threshold_backward(grad_negative, -input, 0)
            grad_input = from_negative if grad_input is None else grad_input + from_negative
        return grad_input


def split_sign(input: Tensor) -> tuple[Tensor, Tensor]:
    r"""Positive and negative part, both of them non-negative, with gradient 0 at 0.

    .. math::
        y^+ = \max(x, 0), \quad y^- = \max(-x, 0), \qquad
        \bar{x} = \bar{y}^+\,[x > 0] - \bar{y}^-\,[x < 0]

    Side by side they are the concatenated rectifier (CReLU), of which no input is lost: :math:`x = y^+ - y^-`.

    Args:
        input: any shape, real dtype.

    Returns:
        The two parts, like ``input``.

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
    """Keeps the index, which the caller has too, and not the input."""

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
        zeros = grad_values.new_zeros(()).expand(ctx.shape)  # one number: scatter makes the copy that is written to
        return zeros.scatter(ctx.dim, index.reshape(shape), grad_values.reshape(shape)), None, None


def max_with_index(input: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    r"""Maximum over one dimension, and where it is.

    .. math:: y = x_k, \quad k = \operatorname{arg\,max}_i x_i, \qquad \bar{x}_i = \bar{y}\,[i = k]

    Of several maxima one is chosen and has the whole gradient, as in :func:`torch.max`; for a gradient that is shared
    see :func:`autograd_cookbook.recipes.reductions.amax`.

    Args:
        input: any shape, real dtype.
        dim: the dimension to reduce, negative or not.
        keepdim: whether it stays, with size 1.

    Returns:
        The values, and their places along ``dim`` as int64, which have no gradient.

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
