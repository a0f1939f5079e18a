"""Gradients through the steps of an optimizer inside of a function."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes._explicit import expect_explicit, vjp


class SGDStepFunction(Function):
    """Keeps its arguments. Backward computes the gradient of the loss again, and differentiates it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(loss: Callable[..., Tensor], count: int, lr: float | Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        return _step(loss, count, lr, *tensors)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.loss, ctx.count, lr, *tensors = inputs
        ctx.lr = None if isinstance(lr, Tensor) else lr
        ctx.save_for_backward(lr if ctx.lr is None else None, *tensors)

    @staticmethod
    def backward(ctx: Context, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        lr, *tensors = ctx.saved_tensors

        def weighted(lr: float | Tensor, *tensors: Tensor) -> Tensor:
            stepped = _step(ctx.loss, ctx.count, lr, *tensors)
            parts = ((p * g.conj()).real.sum() for p, g in zip(stepped, grad_outputs, strict=True))
            return functools.reduce(torch.add, parts)

        total, pull_back = vjp(weighted, ctx.lr if lr is None else lr, *tensors, wanted=ctx.needs_input_grad[2:])
        return None, None, *pull_back(torch.ones_like(total))


def _step(loss: Callable[..., Tensor], count: int, lr: float | Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(p - lr * g for p, g in zip(tensors, _gradients(loss, count, *tensors), strict=False))


def _gradients(loss: Callable[..., Tensor], count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    parameters, given = tensors[:count], tensors[count:]
    value, pull_back = vjp(lambda *p: loss(*p, *given), *parameters)
    return pull_back(torch.ones_like(value))


def _unflattened(loss: Callable[..., Tensor], form: TreeSpec, count: int, *tensors: Tensor) -> Tensor:
    return loss(tree_unflatten(list(tensors[:count]), form), *tensors[count:])


def inner_sgd(
    loss: Callable[..., Tensor],
    parameters: Any,
    steps: int,
    lr: float | Tensor,
    *given: Tensor,
    first_order: bool = False,
) -> Any:
    r"""Take steps of gradient descent. The result has gradients with respect to everything that it depends on.

    .. math::
        \theta_{k+1} = \theta_k - \eta\, \nabla L(\theta_k, x), \qquad
        \bar{\theta}_k = \left(I - \eta\, \nabla^2 L\right) \bar{\theta}_{k+1}, \quad
        \bar{x} \mathrel{-}= \eta\, \left(\frac{\partial \nabla L}{\partial x}\right)^{\!\top} \bar{\theta}_{k+1}, \quad
        \bar{\eta} \mathrel{-}= \bar{\theta}_{k+1}^\top \nabla L

    Each step saves its parameters, but no activations of the loss and of its gradient. Backward computes these
    activations again, one step at a time.

    Args:
        loss: called as ``loss(parameters, *given)``; returns a scalar. It must not depend on other tensors that require
            grad, and must do the same in every call.
        parameters: the starting point: a tensor, or a tuple, list or dict of tensors, such as
            ``dict(net.named_parameters())``.
        steps: the number of steps. With 0, the parameters are returned unchanged.
        lr: the learning rate :math:`\eta`, a number or a tensor. A tensor gets a gradient.
        given: all other tensors that the loss depends on: data, targets, the strength of a penalty. They get gradients,
            too.
        first_order: whether to treat the gradient of the loss as a constant. Then no second derivative is computed, and
            the result has another gradient, which is only an approximation.

    Returns:
        The parameters after the steps, in the same structure as ``parameters``.

    Raises:
        ValueError: if the loss is not a real scalar, or ``steps`` is negative.
        RuntimeError: if ``loss`` uses a tensor that requires grad and is not one of its arguments.

    Source: C. Finn, P. Abbeel, S. Levine, Model-agnostic meta-learning for fast adaptation of deep networks,
    arXiv:1703.03400.

    >>> start = torch.tensor(3.0, requires_grad=True)
    >>> end = inner_sgd(lambda w: w**2 / 2, start, 5, 0.1)
    >>> end.backward()
    >>> end, start.grad  # 3 · 0.9⁵ and 0.9⁵
    (tensor(1.7715, grad_fn=<SGDStepFunctionBackward>), tensor(0.5905))
    """
    if steps < 0:
        raise ValueError(f"expected steps >= 0, got {steps}")
    flat, form = tree_flatten(parameters)

    count = len(flat)
    flat_loss = functools.partial(_unflattened, loss, form, count)
    value = expect_explicit(flat_loss, *flat, *given)
    if value.dim() != 0 or not value.is_floating_point():
        raise ValueError(f"expected a real scalar loss, got shape {tuple(value.shape)} of {value.dtype}")
    for _ in range(steps):
        if first_order:
            with torch.no_grad():
                gradients = _gradients(flat_loss, count, *flat, *given)
            flat = [p - lr * g for p, g in zip(flat, gradients, strict=True)]
        else:
            flat = list(SGDStepFunction.apply(flat_loss, count, lr, *flat, *given))
    return tree_unflatten(flat, form)
