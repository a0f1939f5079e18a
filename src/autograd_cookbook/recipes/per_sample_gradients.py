"""Per-sample gradients: a hand-written vmap rule for code that vmap cannot trace, and clipping for private training."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils._pytree import tree_leaves, tree_map

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.elementwise import wide
from autograd_cookbook.recipes.reductions import power_of_two

# A tensor, or a tuple, list or dictionary of tensors.
Parameters = Any


Loss = Callable[..., Tensor]


def pool_violators(row: Any) -> tuple[Any, Any]:
    """Return the closest non-decreasing sequence, and where its constant blocks start."""
    import numpy as np  # the other recipes of this page need no NumPy

    means: list[float] = []
    counts: list[int] = []
    for value in row.tolist():
        mean, count = value, 1
        while means and means[-1] > mean:
            mean = (means[-1] * counts[-1] + mean * count) / (counts[-1] + count)
            count += counts.pop()
            means.pop()
        means.append(mean)
        counts.append(count)
    starts = np.zeros(len(row), dtype=bool)
    starts[np.cumsum([0, *counts])[: len(counts)]] = True
    return np.repeat(np.array(means, dtype=np.float64), counts), starts


class IsotonicFunction(Function):
    """Runs in NumPy. Keeps one byte per element, which says whether a block starts. vmap passes the whole batch."""

    @staticmethod
    def forward(input: Tensor) -> tuple[Tensor, Tensor]:
        import numpy as np

        rows = input.detach().double().cpu().resolve_neg().numpy().reshape(-1, max(input.shape[-1], 1))
        pooled = [pool_violators(row) for row in rows]
        values = np.array([values for values, _ in pooled], dtype=np.float64).reshape(input.shape)
        starts = np.array([starts for _, starts in pooled], dtype=bool).reshape(input.shape)
        return torch.from_numpy(values).to(input), torch.from_numpy(starts).to(input.device)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor, _: Tensor) -> Tensor:
        (starts,) = ctx.saved_tensors
        block = starts.cumsum(-1) - 1
        # The sum over a block can overflow in float16 although the mean does not.
        wide = grad_output if grad_output.dtype == torch.float64 else grad_output.float()
        total = torch.zeros_like(wide).scatter_add(-1, block, wide)
        count = torch.zeros_like(block).scatter_add(-1, block, torch.ones_like(block))
        return (total.gather(-1, block) / count.gather(-1, block)).to(grad_output.dtype)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], input: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        # The new dimension goes to the front, because forward accepts any number of leading dimensions.
        return IsotonicFunction.apply(input.movedim(in_dims[0], 0)), (0, 0)


def isotonic_regression(input: Tensor) -> Tensor:
    r"""Find the closest non-decreasing sequence, along the last dimension.

    .. math::
        y = \arg\min_{y_1 \le \dots \le y_n} \tfrac12 \lVert y - x \rVert^2, \qquad
        \bar{x}_i = \frac{1}{|B_i|} \sum_{j \in B_i} \bar{y}_j

    where :math:`B_i` is the block of equal values that contains :math:`i`. Calibration and differentiable ranking use
    isotonic regression. The function runs in NumPy on the CPU, in float64.

    Args:
        input: ``(..., n)``, real floating dtype, finite.

    Returns:
        A tensor like ``input``.

    Raises:
        TypeError: if the input is not real and floating.
        RuntimeError: if the input has no dimension.

    Source: R. E. Barlow et al., Statistical Inference under Order Restrictions (1972), the pool-adjacent-violators
    algorithm; its gradient in M. Blondel et al., Fast differentiable sorting and ranking, arXiv:2002.08871 (2020).

    >>> x = torch.tensor([1.0, 3.0, 2.0, 4.0], requires_grad=True)
    >>> y = isotonic_regression(x)
    >>> y.tolist()
    [1.0, 2.5, 2.5, 4.0]
    >>> torch.autograd.grad(y[1], x)
    (tensor([0.0000, 0.5000, 0.5000, 0.0000]),)
    """
    if not input.is_floating_point():
        raise TypeError(f"expected a real floating input, got {input.dtype}")
    if input.dim() == 0:
        raise RuntimeError("expected an input with at least one dimension, got a scalar")
    output, _ = IsotonicFunction.apply(input)
    return output


def per_sample_gradients(
    function: Loss, parameters: Parameters, batch: tuple[Tensor, ...], chunk_size: int | None = None
) -> Parameters:
    r"""Compute the gradient of the loss of each sample, in one pass over the batch.

    .. math:: g_i = \nabla_\theta\, \ell(\theta, x_i), \qquad i = 1, \dots, B

    Args:
        function: maps the parameters and one sample of each tensor in ``batch`` to a scalar. Custom functions inside
            need ``generate_vmap_rule`` or their own ``vmap``. Random numbers differ from sample to sample.
        parameters: a tensor, or a tuple, list or dictionary of tensors, such as ``dict(model.named_parameters())``.
        batch: tensors with the samples along dim 0.
        chunk_size: the number of samples to compute at a time; None for all. Smaller chunks take less memory and more
            time.

    Returns:
        The gradients, in the same structure as ``parameters``. Each tensor has one more dimension of size :math:`B` in
        front.

    Raises:
        ValueError: if ``batch`` has no tensor, or the first dimensions differ.
        RuntimeError: if ``function`` does not return a scalar.

    >>> x, target = torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 0.0])
    >>> w = torch.tensor([3.0])
    >>> per_sample_gradients(lambda w, x, target: (w @ x - target) ** 2, w, (x, target))
    tensor([[ 4.],
            [24.]])
    """
    samples_in(batch)
    gradient = torch.func.grad(function)
    in_dims = (None, *[0] * len(batch))
    return torch.func.vmap(gradient, in_dims, randomness="different", chunk_size=chunk_size)(parameters, *batch)


def samples_in(batch: tuple[Tensor, ...]) -> int:
    """Return the number of samples in a batch.

    Raises:
        ValueError: if the batch has no tensor, or the tensors have different numbers of samples.
    """
    sizes = [tensor.shape[:1].numel() if tensor.dim() else None for tensor in batch]
    if not sizes or sizes[0] is None or len(set(sizes)) > 1:
        raise ValueError(f"expected tensors with the same number of samples along dim 0, got sizes {sizes}")
    return sizes[0]


def clipped_mean_gradient(
    function: Loss,
    parameters: Parameters,
    batch: tuple[Tensor, ...],
    max_norm: float,
    noise_multiplier: float = 0.0,
    generator: torch.Generator | None = None,
    chunk_size: int | None = None,
) -> Parameters:
    r"""Average the clipped gradients of the samples of a batch, and add noise, as in a step of DP-SGD.

    .. math::
        \tilde{g} = \frac{1}{B} \left( \sum_{i=1}^{B} g_i \min\!\left(1, \frac{C}{\lVert g_i \rVert}\right)
        + \mathcal{N}(0, \sigma^2 C^2 I) \right)

    The norm of a sample's gradient is over all parameters together. The function does not compute how much privacy a
    training has spent. Use a privacy accountant for that.

    Args:
        function: as for :func:`per_sample_gradients`.
        parameters: as for :func:`per_sample_gradients`.
        batch: as for :func:`per_sample_gradients`; at least one sample.
        max_norm: the bound :math:`C` on a sample's gradient.
        noise_multiplier: the standard deviation :math:`\sigma` of the noise, in units of ``max_norm``.
        generator: the generator of the noise, on the device of the parameters. None means torch's global generator.
        chunk_size: the number of samples to compute at a time; None for all. Only the gradients of one chunk are in
            memory.

    Returns:
        The average, in the same structure as ``parameters``.

    Raises:
        ValueError: if ``max_norm`` is not positive and finite, ``noise_multiplier`` is negative, or the batch is empty.
        TypeError: if a parameter is complex.

    Source: M. Abadi et al., Deep learning with differential privacy, arXiv:1607.00133 (2016), algorithm 1.

    >>> x = torch.tensor([[0.5], [100.0]])
    >>> clipped_mean_gradient(lambda w, x: w @ x, torch.zeros(1), (x,), max_norm=1.0)
    tensor([0.7500])
    """
    if not 0 < max_norm < float("inf"):
        raise ValueError(f"expected a finite max_norm > 0, got {max_norm}")
    if not noise_multiplier >= 0:
        raise ValueError(f"expected noise_multiplier >= 0, got {noise_multiplier}")
    count = samples_in(batch)
    if count == 0:
        raise ValueError("expected at least one sample, got an empty batch")
    if any(parameter.is_complex() for parameter in tree_leaves(parameters)):
        raise TypeError("expected real parameters, got complex ones")
    total: Parameters = None
    # Clip chunk by chunk, so that only the gradients of one chunk are in memory.
    for part in zip(*(tensor.split(chunk_size or count) for tensor in batch), strict=True):
        clipped = clipped_sum(per_sample_gradients(function, parameters, part), max_norm)
        total = clipped if total is None else tree_map(torch.add, total, clipped)

    def with_noise(summed: Tensor) -> Tensor:
        if noise_multiplier:
            noise = torch.empty_like(summed).normal_(generator=generator)
            summed = summed + noise_multiplier * max_norm * noise
        return summed / count

    return tree_map(with_noise, total)


def clipped_sum(gradients: Parameters, max_norm: float) -> Parameters:
    """Sum per-sample gradients, each scaled down to a norm of at most ``max_norm``."""
    rows = [gradient.flatten(1) if gradient.dim() > 1 else gradient.unsqueeze(1) for gradient in tree_leaves(gradients)]
    # Squares of large numbers overflow, and squares of small numbers become 0. So divide by a power of two, which is
    # exact.
    largest = torch.stack([wide(row.detach()).abs().amax(1) for row in rows if row.shape[1]]).amax(0)
    unit = power_of_two(largest)
    scaled = tree_map(lambda gradient: wide(gradient) / unit.reshape(-1, *(1,) * (gradient.dim() - 1)), gradients)
    squares = torch.stack([gradient.square().reshape(len(unit), -1).sum(1) for gradient in tree_leaves(scaled)]).sum(0)
    fits = squares.detach().sqrt() * unit <= max_norm
    # The square root has an infinite slope at 0. So replace small norms by 1 before the root. Derivatives stay finite.
    factors = torch.where(fits, unit, max_norm / torch.where(fits, 1, squares).sqrt())
    sums = tree_map(lambda gradient: torch.tensordot(factors, gradient, 1), scaled)
    return tree_map(lambda summed, gradient: summed.to(gradient.dtype), sums, gradients)
