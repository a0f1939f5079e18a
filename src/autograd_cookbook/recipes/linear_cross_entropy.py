"""Cross-entropy after a linear layer, computed for a chunk of classes at a time, without a tensor of all logits."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._once import last_derivative
from autograd_cookbook.recipes._opaque import opaque
from autograd_cookbook.recipes.template import rows

# The number of logits in a chunk: 4 MB in float32. Larger chunks are hardly faster.
CHUNK = 2**20


# The least number of classes in a chunk. With fewer classes, adding up the gradient of the input would take long.
LEAST = 1024


def parts(tokens: int, classes: int, chunk_size: int | None) -> Iterator[slice]:
    """Yield slices of consecutive classes. Without a chunk size, the number of tokens determines their length."""
    step = chunk_size or max(LEAST, CHUNK // max(tokens, 1))
    for start in range(0, max(classes, 1), step):
        yield slice(start, min(start + step, classes))


def logits_of(input: Tensor, weight: Tensor, bias: Tensor | None, part: slice) -> Tensor:
    """Return the logits of some of the classes, in float32 or wider."""
    logits = (input @ weight[part].mT).to(torch.promote_types(input.dtype, torch.float32))
    return logits if bias is None else logits + bias[part]


def place(target: Tensor, part: slice) -> tuple[Tensor, Tensor]:
    """Return whether each target is among these classes, and its column. Other targets get any valid column."""
    inside = (target >= part.start) & (target < part.stop)
    return inside, (target - part.start).clamp(0, part.stop - part.start - 1)[:, None]


def losses(
    input: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, ignore_index: int, chunk_size: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for each token, the loss, the largest logit, and the log-sum-exp minus the largest logit."""
    ignored = target == ignore_index
    classes = target.masked_fill(ignored, 0)
    try:
        weight[:, :1].index_select(0, classes)
    except IndexError:
        raise IndexError(
            f"expected targets from 0 to {len(weight) - 1} or {ignore_index}, got {classes.min()} to {classes.max()}"
        ) from None
    exact = torch.promote_types(input.dtype, torch.float32)
    largest = input.new_full(target.shape, -torch.inf, dtype=exact)
    total, chosen = torch.zeros_like(largest), torch.zeros_like(largest)
    for part in parts(len(target), len(weight), chunk_size):
        logits = logits_of(input, weight, bias, part)
        inside, column = place(target, part)
        chosen = torch.where(inside, logits.gather(1, column).squeeze(1), chosen)
        before, largest = largest, torch.maximum(largest, logits.amax(1) if len(weight) else largest)
        shift = largest.masked_fill(largest == -torch.inf, 0)
        total = total * (before - shift).exp() + logits.sub_(shift[:, None]).exp_().sum(1)
        del logits  # free it before the next chunk is computed
    excess = total.log()
    return (excess + (largest - chosen)).masked_fill(ignored, 0), largest, excess


def losses_like(
    input: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, ignore_index: int, chunk_size: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return tensors like the results of :func:`losses`, but without values."""
    exact = torch.promote_types(input.dtype, torch.float32)
    losses, largest, excess = (input.new_empty(target.shape, dtype=exact) for _ in range(3))
    return losses, largest, excess


swept_losses = opaque("linear_cross_entropy", losses, losses_like)


def gradients(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    largest: Tensor,
    excess: Tensor,
    grad_loss: Tensor,
    chunk_size: int | None,
    needed: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of input, weight and bias. A gradient that is not needed has no elements."""
    # Do not multiply the probabilities by the weights of the tokens, because small products would underflow in float16.
    # Multiply the input and its gradient instead.
    scale = grad_loss[:, None]
    scaled = (input * scale).to(input.dtype)
    # A product over an empty dimension gives zeros. Under vmap, it gives zeros for each element of the batch.
    nothing = scaled[:0] + excess[:0][:, None].to(input.dtype)
    grad_input = (input[:, :0] @ nothing).to(excess.dtype) if needed[0] else None
    grad_weight = weight[:, :0] @ nothing if needed[1] else None
    grad_bias: list[Tensor] = []
    for part in parts(len(target), len(weight), chunk_size):
        logits = logits_of(input, weight, bias, part)
        logits.sub_(largest[:, None]).sub_(excess[:, None]).exp_()  # probabilities, in the same memory
        inside, column = place(target, part)
        grad_logits = logits.scatter_add(1, column, -inside.to(logits.dtype)[:, None])
        del logits
        grad_bias += [grad_loss @ grad_logits] if needed[2] else []
        grad_logits = grad_logits.to(input.dtype)
        if grad_input is not None:
            grad_input += grad_logits @ weight[part]
        if grad_weight is not None:
            grad_weight[part] = grad_logits.mT @ scaled
        del grad_logits
    return (
        input.new_empty(0) if grad_input is None else (grad_input * scale).to(input.dtype),
        input.new_empty(0) if grad_weight is None else grad_weight,
        torch.cat(grad_bias).to(weight.dtype) if needed[2] else input.new_empty(0),
    )


def gradients_like(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    largest: Tensor,
    excess: Tensor,
    grad_loss: Tensor,
    chunk_size: int | None,
    needed: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return tensors like the results of :func:`gradients`, but without values."""
    shapes = input.shape, weight.shape, weight.shape[:1]
    of_input, of_weight, of_bias = (
        weight.new_empty(shape if wanted else 0) for shape, wanted in zip(shapes, needed, strict=True)
    )
    return of_input, of_weight, of_bias


swept_gradients = opaque("linear_cross_entropy_gradients", gradients, gradients_like)


class LinearCrossEntropyFunction(Function):
    """Keeps its arguments and two numbers per token. From these, backward computes every probability.

    The sum of the two numbers, the log-sum-exp, is not enough. If it is 100, its rounding error is up to 4e-6, and each
    probability would have this relative error.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        input: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, ignore_index: int, chunk_size: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        return swept_losses(input, weight, bias, target, ignore_index, chunk_size)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.ignore_index, ctx.chunk_size = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*tensors, *output[1:])

    @staticmethod
    def backward(ctx: Context, grad_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        input, weight, bias, target, largest, excess = ctx.saved_tensors
        scale = grad_loss.masked_fill(target == ctx.ignore_index, 0)
        # Autograd treats the two numbers as constants, so the derivative of a formula here would be wrong. So use a
        # Function with its own backward.
        grads = LinearCrossEntropyGradient.apply(
            input, weight, bias, target, largest, excess, scale, ctx.chunk_size, ctx.needs_input_grad
        )
        return *grads, None, None, None


class LinearCrossEntropyGradient(Function):
    """The first derivatives of the loss. It computes each chunk of logits again, and keeps its arguments."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        largest: Tensor,
        excess: Tensor,
        grad_loss: Tensor,
        chunk_size: int | None,
        needed: tuple[bool, ...],
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        grads = swept_gradients(input, weight, bias, target, largest, excess, grad_loss, chunk_size, needed[:3])
        of_input, of_weight, of_bias = (g if wanted else None for g, wanted in zip(grads, needed, strict=False))
        return of_input, of_weight, of_bias

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor | None, ...]) -> None:
        *tensors, ctx.chunk_size, _ = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)

    @staticmethod
    @last_derivative
    def backward(ctx: Context, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        input, weight, bias, target, largest, excess, grad_loss = ctx.saved_tensors
        of_input, of_weight, of_bias = tangents
        needed = ctx.needs_input_grad
        sliced = list(parts(len(target), len(weight), ctx.chunk_size))

        def chunk(part: slice) -> tuple[Tensor, Tensor]:
            """Return the probabilities, and the change of the logits along the tangents."""
            probability = torch.exp(logits_of(input, weight, bias, part) - largest[:, None] - excess[:, None])
            change = torch.zeros_like(probability)
            if of_input is not None:
                change = change + of_input @ weight[part].mT
            if of_weight is not None:
                change = change + input @ of_weight[part].mT
            return probability, change if of_bias is None else change + of_bias[part]

        mean, chosen = torch.zeros_like(excess), torch.zeros_like(excess)
        for part in sliced:
            probability, change = chunk(part)
            mean = mean + (probability * change).sum(1)
            inside, column = place(target, part)
            chosen = torch.where(inside, change.gather(1, column).squeeze(1), chosen)

        scale = grad_loss[:, None]
        scaled = (input * scale).to(input.dtype)
        scaled_of_input = None if of_input is None else (of_input * scale).to(input.dtype)
        grad_input = torch.zeros_like(input, dtype=excess.dtype)
        grad_weight: list[Tensor] = []
        grad_bias: list[Tensor] = []
        for part in sliced:
            probability, change = chunk(part)
            second = probability * (change - mean[:, None])
            inside, column = place(target, part)
            first = probability.scatter_add(1, column, -inside.to(probability.dtype)[:, None]).to(input.dtype)
            grad_bias += [grad_loss @ second] if needed[2] else []
            second = second.to(input.dtype)
            if needed[0]:
                grad_input = grad_input + second @ weight[part]
                if of_weight is not None:
                    grad_input = grad_input + first @ of_weight[part]
            if needed[1]:
                of_part = second.mT @ scaled
                grad_weight.append(of_part if scaled_of_input is None else of_part + first.mT @ scaled_of_input)
        return (
            (grad_input * scale).to(input.dtype) if needed[0] else None,
            torch.cat(grad_weight) if needed[1] else None,
            torch.cat(grad_bias).to(weight.dtype) if needed[2] else None,
            None,
            None,
            None,
            mean - chosen,
            None,
            None,
        )


def linear_cross_entropy(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean",
    chunk_size: int | None = None,
) -> Tensor:
    r"""Cross-entropy of ``linear(input, weight, bias)``. The logits are computed in chunks and not saved.

    .. math::
        z = X W^\top + b, \quad
        \ell_n = \log \sum_v e^{z_{nv}} - z_{n t_n}, \qquad
        \bar{Z}_{nv} = \bar{\ell}_n \left( e^{z_{nv} - \operatorname{lse}_n} - [v = t_n] \right), \quad
        \bar{X} = \bar{Z} W, \;
        \bar{W} = \bar{Z}^\top X, \;
        \bar{b}_v = \textstyle\sum_n \bar{Z}_{nv}

    where :math:`\operatorname{lse}_n` is the log-sum-exp of the logits of token :math:`n`. For backward, the function
    saves two numbers per token in addition to its arguments. Backward and the second derivative compute each chunk of
    logits again. A third derivative raises an error.

    Args:
        input: ``(..., features)``, real floating dtype. For float16 and bfloat16, matmuls use this dtype, and
            exponentials, losses and sums over chunks use float32.
        weight: ``(classes, features)``, same dtype.
        target: ``(...)``, int64, with classes or ``ignore_index``.
        bias: ``(classes,)`` or None.
        ignore_index: the target of tokens that are ignored.
        reduction: "sum", "none" or "mean". The mean is over the tokens that are not ignored. It is NaN if all tokens
            are ignored.
        chunk_size: the number of classes in a chunk. None means at least 1024 classes, and otherwise as many as make 4
            MB of float32 logits.

    Returns:
        A scalar, or the shape of ``target`` for "none". The dtype is that of ``input``, or float32 under autocast.

    Raises:
        IndexError: if a target is not a class. On a GPU, this is a device-side assertion instead.
        RuntimeError: if shapes or dtypes do not fit.
        TypeError: if ``input`` is not of a real floating dtype.
        ValueError: if ``reduction`` is unknown, ``chunk_size`` is below 1, or the shape of ``target`` does not fit.

    Source: E. Wijmans et al., Cut your losses in large-vocabulary language models, arXiv:2411.09009, for the idea to
    compute the logits again. The chunks and the second derivative are our own.

    >>> x = torch.zeros(2, 3, requires_grad=True)
    >>> w = torch.eye(4, 3)
    >>> linear_cross_entropy(x, w, torch.tensor([0, 3])).backward()
    >>> x.grad
    tensor([[-0.3750,  0.1250,  0.1250],
            [ 0.1250,  0.1250,  0.1250]])
    """
    if not input.is_floating_point():
        raise TypeError(f"expected input of a real floating dtype, got {input.dtype}")
    if target.dtype is not torch.int64:
        raise RuntimeError(f"expected target of dtype torch.int64, got {target.dtype}")
    if target.shape != input.shape[:-1]:
        raise ValueError(f"expected target of shape {tuple(input.shape[:-1])}, got {tuple(target.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise RuntimeError(f"expected bias of shape {tuple(weight.shape[:1])}, got {tuple(bias.shape)}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"expected reduction 'mean', 'sum' or 'none', got {reduction!r}")
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"expected chunk_size > 0, got {chunk_size}")
    device, result = input.device.type, input.dtype
    if torch.is_autocast_enabled(device) and result is not torch.float64:
        # Convert here, because backward runs without autocast and must compute the same logits again.
        low, result = torch.get_autocast_dtype(device), torch.float32
        input, weight = input.to(low), weight.to(low)
        bias = bias if bias is None else bias.to(low)
    losses, *_ = LinearCrossEntropyFunction.apply(
        rows(input), weight, bias, target.reshape(-1), ignore_index, chunk_size
    )
    if reduction == "none":
        return losses.reshape(target.shape).to(result)
    total = losses.sum()
    return (total if reduction == "sum" else total / (target != ignore_index).sum()).to(result)
