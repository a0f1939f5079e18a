"""A loss with a constant target. The target gets no gradient, and its graph does not stay in memory."""

import math

import torch
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.elementwise import wide


def close_divergence(student: Tensor, teacher: Tensor, p: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the divergence of rows in which the differences of the logits are nearly equal, and a mask of these rows.

    The divergence is the logarithm of the mean of exp(d), where d is the difference minus its mean. Both means have the
    weights p. In the series of exp(d) - 1 - d, no large numbers cancel.
    """
    d = (wide(student) - wide(teacher)).div_(temperature)
    d.sub_((p * d).sum(-1, keepdim=True))
    limit = (360 * torch.finfo(d.dtype).eps) ** 0.25  # below, the terms that are left out are rounding errors
    size = torch.maximum(d.amax(-1), -d.amin(-1)) if d.shape[-1] else d.sum(-1)
    series = (d / 120).add_(1 / 24).mul_(d).add_(1 / 6).mul_(d).add_(1 / 2).mul_(d).mul_(d).mul_(p)
    return series.sum(-1).log1p(), size < limit


class DistillationLossFunction(Function):
    """Keeps the logits of student and teacher. Backward computes the two softmaxes again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        # Use float32 or wider, because a difference of nearly equal logarithms has few correct digits, and the
        # temperature amplifies the error.
        log_p = torch.log_softmax(wide(teacher) / temperature, -1)
        log_q = torch.log_softmax(wide(student) / temperature, -1)
        p = log_p.exp()
        # A class with p = 0 adds 0 to the loss, but 0 times infinity is NaN. A NaN in the logits fills the row, so one
        # class shows it. A mask of p == 0 would take longer.
        far = (log_p - log_q).mul_(p).nan_to_num_(0, math.inf, -math.inf).sum(-1)
        valid = (p[..., :1] + log_q[..., :1].exp()).sum(-1) * 0
        del log_p, log_q  # they take as much memory as the tensors that the next line needs
        near, is_near = close_divergence(student, teacher, p, temperature)
        losses = temperature**2 * torch.where(is_near, near, far + valid)
        return losses.to(torch.promote_types(student.dtype, teacher.dtype))

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        student, teacher, ctx.temperature = inputs
        ctx.save_for_backward(student, teacher)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        student, teacher = ctx.saved_tensors
        p, q = (torch.softmax(wide(logits) / ctx.temperature, -1) for logits in (teacher, student))
        grad = (ctx.temperature * wide(grad_output)).unsqueeze(-1)
        return (grad * (q - p)).to(student.dtype), None, None


def distillation_loss(student: Tensor, teacher: Tensor, temperature: float = 1.0, reduction: str = "mean") -> Tensor:
    r"""Kullback-Leibler divergence between the distributions of a teacher and a student. The teacher is a constant.

    .. math::
        \ell = T^2 \sum_k p_k \log \frac{p_k}{q_k}, \quad
        p = \operatorname{softmax}(t / T), \quad q = \operatorname{softmax}(s / T), \qquad
        \bar{s} = \bar{\ell}\;T\,(q - p)

    The terms of the sum cancel if the distributions are nearly equal. In float32, the error of
    :func:`!torch.nn.functional.kl_div` is then about :math:`10^{-6}\,T^2`, and the loss can be negative. If the logits
    of all classes differ by nearly the same number, up to about :math:`0.08\,T` in float32, this function adds up a
    series without differences instead, so its loss has nearly all digits.

    Args:
        student: logits ``(..., classes)``, real floating dtype.
        teacher: logits of the same shape. They are detached, so the loss does not keep the teacher's graph in memory.
        temperature: :math:`T > 0`, which softens both distributions.
        reduction: ``"mean"`` over all rows, ``"sum"``, or ``"none"`` for a loss per row.

    Returns:
        A scalar, or ``(...)`` for ``"none"``.

    Raises:
        TypeError: if the logits are not real and floating.
        RuntimeError: if their shapes differ.
        ValueError: if ``temperature`` is not positive, or ``reduction`` is unknown.

    Source:
        Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network", 2015.

    >>> student = torch.zeros(2, requires_grad=True)
    >>> distillation_loss(student, torch.tensor([0.0, 100.0])).backward()
    >>> student.grad
    tensor([ 0.5000, -0.5000])
    """
    for logits in (student, teacher):
        if not logits.is_floating_point():
            raise TypeError(f"expected real floating logits, got {logits.dtype}")
    if student.shape != teacher.shape:
        raise RuntimeError(f"expected teacher of shape {tuple(student.shape)}, got {tuple(teacher.shape)}")
    if not temperature > 0:
        raise ValueError(f"expected temperature > 0, got {temperature}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"expected reduction to be mean, sum or none, got {reduction!r}")
    # Detach here. Returning None in backward would not be enough, because the teacher's graph would stay in memory.
    losses = DistillationLossFunction.apply(student, teacher.detach(), temperature)
    return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.mean()
