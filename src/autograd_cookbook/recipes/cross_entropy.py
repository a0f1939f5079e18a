"""Softmax and cross-entropy of logits, which stay finite if entries or whole rows are masked."""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from autograd_cookbook.recipes._context import Context


class SoftmaxFunction(Function):
    """Keeps the output, from which backward computes the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, dim: int) -> Tensor:
        if input.numel() == 0:
            return torch.softmax(input, dim)  # an empty row has no maximum
        # inf - inf is NaN, so replace inf by the largest finite number, and set rows that contain only -inf to 0.
        output = torch.softmax(input.clamp(max=torch.finfo(input.dtype).max), dim)
        return output.masked_fill_(input.amax(dim, keepdim=True) == -torch.inf, 0)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, int], output: Tensor) -> None:
        ctx.dim = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        # Rounded weights do not add up to 1. Where one of them is nearly 1, the mean has to cancel its gradient to the
        # last digit, so divide by their sum, and compute in float32 or wider.
        wide = torch.promote_types(output.dtype, torch.float32)
        y, g = output.to(wide), grad_output.to(wide)
        total = y.sum(ctx.dim, keepdim=True)
        mean = (y * g).sum(ctx.dim, keepdim=True) / total.masked_fill(total == 0, 1)
        return (y * (g - mean)).to(output.dtype), None


def softmax(input: Tensor, dim: int = -1) -> Tensor:
    r"""Softmax that is 0 instead of NaN for a row in which every entry is masked.

    .. math:: y_i = \frac{e^{x_i}}{\sum_j e^{x_j}}, \qquad
        \bar{x}_i = y_i \Big(\bar{y}_i - \sum_j y_j \bar{y}_j\Big)

    A row that contains only :math:`-\infty` gives 0, with gradient 0. If a row contains :math:`+\infty`, these entries
    share the sum of 1 evenly. In both cases, :func:`torch.softmax` returns NaN.

    Args:
        input: any shape, floating dtype. For float16 and bfloat16, backward computes in float32.
        dim: an int, which may be negative.

    Raises:
        IndexError: if the dimension is out of range.
        TypeError: if the input is not floating.

    >>> softmax(torch.tensor([[0.0, 1000.0], [-torch.inf, -torch.inf]]))
    tensor([[0., 1.],
            [0., 0.]])
    """
    if not input.is_floating_point():
        raise TypeError(f"expected a floating input, got {input.dtype}")
    return SoftmaxFunction.apply(input, dim)


class CrossEntropyFunction(Function):
    """Keeps only its arguments. Backward computes the softmax again, in one pass.

    If forward saved the softmax, it would take as many bytes as the logits, and a second derivative would treat it as a
    constant.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, label_smoothing: float
    ) -> Tensor:
        dtype = accumulation_dtype(input.dtype)
        weight = None if weight is None else weight.to(dtype)
        loss = F.cross_entropy(
            input.to(dtype),
            target,
            weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
        return loss.to(input.dtype)

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[Tensor, Tensor, Tensor | None, int, str, float], output: Tensor
    ) -> None:
        input, target, weight, ctx.ignore_index, ctx.reduction, ctx.label_smoothing = inputs
        ctx.save_for_backward(input, target, weight)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        input, target, weight = ctx.saved_tensors
        if input.numel() == 0:  # there are no rows; or no classes, and then all rows are ignored
            return torch.zeros_like(input), None, None, None, None, None
        dtype = accumulation_dtype(input.dtype)
        dim = min(input.dim() - 1, 1)
        classes = input.shape[dim]
        ignored = target == ctx.ignore_index
        index = target.masked_fill(ignored, 0).long()
        weight = torch.ones(classes, dtype=dtype, device=input.device) if weight is None else weight.to(dtype)
        of_target = weight[index].masked_fill(ignored, 0)

        of_row = grad_output.to(dtype)
        if ctx.reduction == "mean":
            total = of_target.sum()
            of_row = of_row / total.masked_fill(total == 0, 1)
        of_row = of_row.expand(target.shape).masked_fill(ignored, 0)
        at_target = (1 - ctx.label_smoothing) * of_target * of_row
        at_each = ctx.label_smoothing / classes * of_row

        # An ignored row can contain only -inf, for example padding. Its softmax would be NaN, and 0 * NaN is NaN. So
        # set its logits to 0 first.
        softmax = torch.softmax(torch.where(ignored.unsqueeze(dim), 0.0, input), dim, dtype=dtype)
        grad_input = softmax * (at_target + at_each * weight.sum()).unsqueeze(dim)
        del softmax  # as large as the logits, and no longer needed
        if ctx.label_smoothing > 0:
            by_class = weight.reshape([classes if d == dim else 1 for d in range(input.dim())])
            grad_input = grad_input - by_class * at_each.unsqueeze(dim)
        # In place, because no other code holds this tensor.
        grad_input.scatter_add_(dim, index.unsqueeze(dim), -at_target.unsqueeze(dim))
        return grad_input.to(input.dtype), None, None, None, None, None


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype for sums. In bfloat16, a mean would have only two correct digits."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Cross-entropy of logits that keeps only its arguments for backward.

    For a row with target :math:`t`, the weights :math:`w` of the :math:`C` classes and the smoothing
    :math:`\varepsilon`, the loss is

    .. math::
        \ell = \sum_c q_c \Big(\log \sum_j e^{x_j} - x_c\Big), \qquad
        q_c = (1 - \varepsilon)\, w_t\, [c = t] + \frac{\varepsilon}{C}\, w_c, \qquad
        \bar{x}_c = \bar{\ell}\, \Big(\operatorname{softmax}(x)_c \sum_j q_j - q_c\Big) .

    Rows with target ``ignore_index`` have loss and gradient 0 for any logits. In
    :func:`torch.nn.functional.cross_entropy`, the gradient of such a row is NaN if all of its logits are
    :math:`-\infty`. In both functions, you can mask single classes with :math:`-\infty`, except the target
    class, and not with label smoothing.

    Args:
        input: ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``, floating dtype. The function sums in float32 or wider.
        target: the index of the class of each row, int64, with the shape of the input without ``C``.
        weight: ``(C)``, the weight of each class, or None for weights of 1. It gets no gradient.
        ignore_index: the target of rows that are ignored.
        reduction: "none", "sum" or "mean". The mean divides by the sum of the weights of the targets that are not
            ignored, and is NaN if all are ignored.
        label_smoothing: the part of the target distribution that is spread evenly over all classes, from 0 to 1.

    Raises:
        IndexError: if a target is not a class.
        RuntimeError: if the shapes do not fit, the smoothing is not between 0 and 1, or the weight requires grad.
        TypeError: if the input is not floating, or the target is floating.
        ValueError: if the reduction is unknown, or the batch sizes differ.

    >>> logits = torch.tensor([[0.0, 200.0, -torch.inf]], requires_grad=True)
    >>> loss = cross_entropy(logits, torch.tensor([0]))
    >>> loss.backward()
    >>> loss.item(), logits.grad.tolist()
    (200.0, [[-1.0, 1.0, 0.0]])
    """
    if not input.is_floating_point():
        raise TypeError(f"expected floating logits, got {input.dtype}")
    if target.is_floating_point():
        raise TypeError(f"expected classes as target, got probabilities of {target.dtype}")
    if weight is not None and weight.requires_grad:
        raise RuntimeError("expected a weight that does not require grad: it would get none")
    return CrossEntropyFunction.apply(input, target, weight, ignore_index, reduction, label_smoothing)
