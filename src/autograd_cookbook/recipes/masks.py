"""Masks that take one bit per element, or no memory at all."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from autograd_cookbook.recipes._context import Context
from autograd_cookbook.recipes.template import rows


def pack_bits(mask: Tensor) -> Tensor:
    """Pack a bool mask: eight elements in each byte.

    Args:
        mask: bool, any shape, n elements.

    Returns:
        uint8, ``(ceil(n / 8),)``. With m bytes, bit k of byte j is element k·m + j. With this order, the
        function can shift and join eight contiguous slices without a copy.

    Raises:
        TypeError: if the mask is not bool.

    >>> pack_bits(torch.tensor([True, False, True]))
    tensor([5], dtype=torch.uint8)
    """
    if mask.dtype is not torch.bool:
        raise TypeError(f"expected a bool mask, got {mask.dtype}")
    flat = mask.reshape(mask.numel())
    slices = F.pad(flat, (0, -flat.numel() % 8)).reshape(8, -1 if flat.numel() else 0)
    packed = slices[0].to(torch.uint8)
    for k in range(1, 8):
        # Viewing the whole mask as bytes would be shorter, but torch 2.11 can neither vmap nor compile such a view.
        packed = packed | slices[k].to(torch.uint8) << k
    return packed


def unpack_bits(packed: Tensor, shape: torch.Size) -> Tensor:
    """Return the bool mask of this shape that :func:`pack_bits` packed.

    >>> unpack_bits(torch.tensor([5], dtype=torch.uint8), torch.Size([3]))
    tensor([ True, False,  True])
    """
    places = torch.arange(8, dtype=torch.uint8, device=packed.device)[:, None]
    flat = (packed >> places & 1).to(torch.bool).reshape(8 * packed.numel())
    return flat[: shape.numel()].reshape(shape)


def where_set(packed: Tensor, grad_output: Tensor) -> Tensor:
    """Return the gradient where the bit of an element is set, and 0 elsewhere, even for an infinite gradient."""
    # The backward of torch.relu uses this operation. torch.where and masked_fill take several times as long for random
    # masks.
    return torch.ops.aten.threshold_backward(grad_output, unpack_bits(packed, grad_output.shape), 0)


class PackedReLUFunction(Function):
    """Keeps one bit per element. The bit says whether the gradient passes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor) -> Tensor:
        return input.clamp(min=0)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: Tensor) -> None:
        # Do not test output > 0, because the gradient must pass where the output is NaN, as in torch.
        ctx.save_for_backward(pack_bits(~(output <= 0)))

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> Tensor:
        (packed,) = ctx.saved_tensors
        return where_set(packed, grad_output)


def packed_relu(input: Tensor) -> Tensor:
    r"""Rectified linear unit that saves one bit per element for backward. ``torch.relu`` saves the output.

    .. math:: y = \max(x, 0), \qquad \bar{x} = \bar{y}\,[x > 0]

    Use this function if no other function saves the output. For example, a trained linear layer saves its input. Before
    such a layer, :func:`torch.nn.functional.relu` needs no additional memory, but this function needs a bit per
    element. You can change the output in place.

    Args:
        input: any shape, real dtype.

    Returns:
        A tensor like ``input``.

    >>> x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    >>> packed_relu(x).sum().backward()
    >>> x.grad
    tensor([0., 0., 1.])
    """
    return PackedReLUFunction.apply(input)


class LinearReLUFunction(Function):
    """Keeps input, weight and one bit per element of the output."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # In place, so that the results of both layers are never in memory at the same time.
        return F.linear(input, weight, bias).clamp_min_(0)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        input, weight, _ = inputs
        ctx.save_for_backward(input, weight, pack_bits(~(output <= 0)))

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight, packed = ctx.saved_tensors
        grad = where_set(packed, grad_output)
        grad_input = grad_weight = grad_bias = None
        # Under autocast, the gradient has another dtype than the arguments.
        if ctx.needs_input_grad[0]:
            grad_input = grad @ weight.to(grad.dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = rows(grad).mT @ rows(input.to(grad.dtype))
        if ctx.needs_input_grad[2]:
            grad_bias = rows(grad).sum(0)
        return grad_input, grad_weight, grad_bias


def linear_relu(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    r"""A linear layer followed by a rectifier. It saves its input, its weight, and one bit per element of the output.

    .. math::
        Y = \max(X W^\top + b, 0), \qquad
        \bar{Z} = \bar{Y} \odot [Y > 0], \quad
        \bar{X} = \bar{Z}\,W, \quad
        \bar{W} = \bar{Z}^\top X, \quad
        \bar{b} = \textstyle\sum_n \bar{Z}_n

    Args:
        input: ``(..., in_features)``, real floating dtype.
        weight: ``(out_features, in_features)``, same dtype and device.
        bias: ``(out_features,)`` or None.

    Returns:
        ``(..., out_features)``.

    Raises:
        RuntimeError: if the shapes, dtypes or devices do not fit, as in :func:`torch.nn.functional.linear`.

    >>> w = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    >>> linear_relu(torch.tensor([[3.0]]), w).sum().backward()
    >>> w.grad
    tensor([[3.],
            [0.]])
    """
    return LinearReLUFunction.apply(input, weight, bias)


BLOCK = 1 << 18  # the number of random numbers in memory at a time


class SeededDropoutFunction(Function):
    """Keeps the seed of the mask and draws the mask again in backward."""

    @staticmethod
    def forward(input: Tensor, p: float, seed: Tensor) -> Tensor:
        output = input.clone(memory_format=torch.contiguous_format)
        generator = torch.Generator(input.device)
        # In a plain call, there is one seed, in a tensor without dims. Under vmap, there is one seed for each index of
        # the leading dims.
        samples = output.view(seed.numel(), output.shape[seed.dim() :].numel())
        for sample, number in zip(samples, seed.flatten().tolist(), strict=True):
            generator.manual_seed(number)
            for block in sample.split(BLOCK):
                # Divide last, because an element that is dropped must be 0, not NaN, even if its quotient overflows.
                block.mul_(torch.rand(block.shape, generator=generator, device=block.device).ge_(p)).div_(1 - p)
        return output

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, float, Tensor], output: Tensor) -> None:
        _, ctx.p, seed = inputs
        ctx.save_for_backward(seed)

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor, None, None]:
        # Draw the mask of forward again. Call apply, so that vmap uses the rule below.
        return SeededDropoutFunction.apply(grad_output, ctx.p, *ctx.saved_tensors), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], input: Tensor, p: float, seed: Tensor) -> tuple[Tensor, int]:
        """Samples with their own seeds get their own masks. If all samples share one seed, all get the same mask."""

        def batch(tensor: Tensor, dim: int | None) -> Tensor:
            return tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)

        return SeededDropoutFunction.apply(batch(input, in_dims[0]), p, batch(seed, in_dims[2])), 0


def seeded_dropout(input: Tensor, p: float = 0.5, training: bool = True, seed: int | None = None) -> Tensor:
    r"""Dropout that saves only eight bytes for backward, for any size of the input.

    .. math::
        y_i = \frac{m_i(s)}{1 - p}\,x_i, \qquad \bar{x}_i = \frac{m_i(s)}{1 - p}\,\bar{y}_i, \qquad
        m_i(s) \in \{0, 1\} \text{ drawn from seed } s

    A call takes one number from the global generator, so :func:`torch.manual_seed` makes the call repeatable. The mask
    comes from a separate generator, so it differs from the mask of :func:`torch.nn.functional.dropout`. A GPU draws
    another mask than a CPU.

    Args:
        input: any shape, floating or complex.
        p: the probability that an element is dropped.
        training: whether to drop elements.
        seed: the seed of the mask. None draws a seed from the global generator.

    Returns:
        A tensor like ``input``. If ``training`` is False or ``p`` is 0, ``input`` itself.

    Raises:
        ValueError: if ``p`` is not between 0 and 1.
        TypeError: if ``input`` is neither floating nor complex.

    Source:
        Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014.

    >>> x = torch.ones(1000, requires_grad=True)
    >>> y = seeded_dropout(x, 0.9, seed=0)
    >>> y.sum().backward()
    >>> torch.equal(x.grad, y)
    True
    """
    if not 0 <= p <= 1:
        raise ValueError(f"expected a probability between 0 and 1, got {p}")
    if not (input.is_floating_point() or input.is_complex()):
        raise TypeError(f"expected a floating or complex input, got {input.dtype}")
    if not training or p in (0, 1):  # as in torch, draw no random number
        return input if p < 1 or not training else input * 0
    # Keep the seed on the CPU, even if another default device is set, because reading it must not wait for a GPU.
    number = torch.randint(2**63 - 1, (), device="cpu") if seed is None else torch.tensor(seed, device="cpu")
    return SeededDropoutFunction.apply(input, p, number)
