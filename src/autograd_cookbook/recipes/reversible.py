"""Layers whose inputs can be computed from their outputs. So nothing between the layers is saved for backward."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from autograd_cookbook.recipes.checkpointing import Place, Promises, Surroundings

Map = Callable[[Tensor], Tensor]


class Call:
    """One call in a reversible sequence. It does not keep its input. When it is repeated, it gets the input again."""

    def __init__(self, function: Map, source: Tensor) -> None:
        self.function, self.needs_grad = function, source.requires_grad
        self.surroundings, self.promises = Surroundings(source), Promises(source)

    def again(self, value: Tensor, keep: bool) -> Tensor:
        """Repeat the call. If ``keep`` is True, keep the tensors that backward needs."""
        with self.surroundings.restored(), self.promises.kept() if keep else torch.no_grad():
            # Autograd saves the same tensors as in forward only if the same tensors require grad.
            return self.function(value.detach().requires_grad_(self.needs_grad)).detach()


class Tape:
    """The calls of a sequence, and the input of one block. The inputs of all other blocks follow from this input."""

    def __init__(self) -> None:
        self.calls: list[tuple[Call, Call]] = []
        # ``values`` is the input of block number ``at``. Until backward begins, it is the output of the last block.
        self.at = 0
        self.values: tuple[Tensor, Tensor] | tuple[()] = ()
        self.versions: list[int] = []

    def finish(self, left: Tensor, right: Tensor) -> None:
        """Keep the output, detached from its graph."""
        self.at, self.values = len(self.calls), (left.detach(), right.detach())
        self.versions = [left._version, right._version]

    def go_back(self, to: int) -> None:
        """Undo blocks down to number ``to``, and compute the tensors that this block has to save."""
        if not self.values:
            raise RuntimeError("an earlier backward through this reversible sequence has failed: run forward again")
        if self.at == len(self.calls) and [tensor._version for tensor in self.values] != self.versions:
            raise RuntimeError("the output of a reversible sequence was modified in place before backward")
        # Keep no other reference to the halves, so that Python frees each half as soon as it has been undone.
        at, (left, right) = self.at, self.values
        self.values = ()
        if at <= to:  # a second backward begins at the end again
            for first, second in self.calls[at:]:
                left = left + first.again(right, keep=False)
                right = right + second.again(left, keep=False)
            at = len(self.calls)
            self.versions = [left._version, right._version]
        while at > to:
            at -= 1
            first, second = self.calls[at]
            # The calls that undo the block also compute the tensors for its gradient, so each function runs once.
            right = right - second.again(left, keep=at == to)
            left = left - first.again(right, keep=at == to)
        self.at, self.values = at, (left, right)

    def hooks(self, block: int, call: Call) -> saved_tensors_hooks:
        """Return the hooks for one call of a block. They are active in forward."""

        def unpack(place: Place) -> Tensor:
            if place not in call.promises.found:
                self.go_back(block)
            return call.promises.take(place)

        return saved_tensors_hooks(call.promises.pack, unpack)


def reversible_sequence(blocks: Sequence[tuple[Map, Map]], left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    r"""Apply pairs of functions to two halves in turn. Backward computes each input from the output.

    .. math::
        l' = l + f(r), \quad r' = r + g(l') \qquad \Longleftrightarrow \qquad
        r = r' - g(l'), \quad l = l' - f(r)

    The gradients :math:`\bar{l}, \bar{r}` of the inputs follow from the gradients :math:`\bar{l}', \bar{r}'` of the
    outputs:

    .. math::
        \bar{l} = \bar{l}' + \bar{r}'^\top\, \partial g(l'), \qquad
        \bar{r} = \bar{r}' + \bar{l}^\top\, \partial f(r)

    Memory does not grow with the number of blocks: backward needs the output and one block at a time. Everything that
    the functions use gets its gradient, including parameters in their closures. Random numbers and autocast are the
    same in the second run. The recovered inputs have rounding errors, which grow with the depth.

    Args:
        blocks: pairs :math:`(f, g)`. Each function maps a tensor to one of the same shape, and returns the same result
            for the same argument and random state. It must not keep statistics, as batch normalization does.
        left: any shape, floating dtype.
        right: the shape that the functions return, often the shape of ``left``.

    Returns:
        Both halves after the last block.

    Raises:
        RuntimeError: if a function does not return the shape of its half; in backward, if an output or a parameter
            was modified in place, or a function saves other tensors than before.

    Source: A. N. Gomez et al., The reversible residual network, arXiv:1707.04585.

    >>> l, r = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    >>> left, right = reversible_sequence([(torch.sin, torch.sin)] * 3, l, r)
    >>> right.sum().backward()
    >>> l.grad, r.grad
    (tensor([8., 8.]), tensor([13., 13.]))
    """
    keeps = torch.is_grad_enabled()
    tape, state = Tape(), torch.random.get_rng_state()
    for number, (f, g) in enumerate(blocks):
        halves, calls = [right, left], []
        for half, function in enumerate((f, g)):
            source, target = halves[half], halves[1 - half]
            call = Call(function, source)
            if torch.equal(call.surroundings.cpu_state, state):
                call.surroundings.cpu_state = state  # share one copy if no random numbers were drawn
            state = call.surroundings.cpu_state
            calls.append(call)
            if keeps:
                with tape.hooks(number, call):
                    change = function(source)
            else:
                change = function(source)
            if change.shape != target.shape:
                raise RuntimeError(
                    f"expected function {half} of block {number} to return shape {tuple(target.shape)}, "
                    f"got {tuple(change.shape)}"
                )
            halves[1 - half] = target + change
        right, left = halves
        tape.calls.append((calls[0], calls[1]))
    if keeps:
        tape.finish(left, right)
    return left, right


class ReversibleSequence(nn.Module):
    """A :func:`reversible_sequence` of modules.

    Args:
        blocks: pairs of modules.

    >>> net = ReversibleSequence([(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(8)])
    >>> [half.shape for half in net(torch.ones(2, 4), torch.ones(2, 4))]
    [torch.Size([2, 4]), torch.Size([2, 4])]
    """

    def __init__(self, blocks: Sequence[tuple[nn.Module, nn.Module]]) -> None:
        super().__init__()
        self.first = nn.ModuleList(f for f, _ in blocks)
        self.second = nn.ModuleList(g for _, g in blocks)

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        return reversible_sequence(list(zip(self.first, self.second, strict=True)), left, right)
