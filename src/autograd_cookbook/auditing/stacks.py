"""The sample with one dim more in front: code that counts its dims from the front errs there."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from autograd_cookbook.auditing.subject import Subject


def groups(subject: Subject) -> Iterator[list[int]]:
    """Which arguments to stack: those with the batch of the sample, or all of them."""
    shown = [s for s, slot in enumerate(subject.slots) if not slot.hidden and subject.base[s].dim()]
    leaves = [s for s in shown if subject.slots[s].leaf]
    if not leaves:
        return
    largest = max(leaves, key=lambda s: subject.base[s].dim())
    shape = subject.base[largest].shape
    batch = [s for s in shown if subject.base[s].shape[0] == shape[0]]
    # A weight has the size of the batch by chance, if the batch is as large as a row.
    alike = [s for s in batch if subject.base[s].dim() == len(shape)]
    seen: list[list[int]] = []
    for group in (batch, alike, shown):
        left_out = any(s not in group for s in subject.recognized)  # a grid, say, that belongs to what is stacked
        if group not in seen and not left_out:
            seen.append(group)
            yield group


def stacked(subject: Subject, values: Sequence[Tensor], group: Sequence[int], size: int) -> list[Tensor]:
    """Several of each tensor of a group, in which no number that can be differentiated occurs twice."""
    generator = torch.Generator().manual_seed(2)
    result = [v.clone() for v in values]
    for s in group:
        result[s] = values[s].expand(size, *values[s].shape).clone()
        if subject.slots[s].leaf:
            wiggle = torch.rand(result[s].shape, generator=generator, dtype=torch.float64).to(result[s])
            result[s] *= 1 + 0.1 * wiggle
    return result


def slices(values: Sequence[Tensor], group: Sequence[int]) -> Iterator[list[Tensor]]:
    """What was stacked, one by one."""
    for k in range(len(values[group[0]])):
        yield [v[k].clone() if s in group else v.clone() for s, v in enumerate(values)]


def unused_size(subject: Subject) -> int:
    """A number that is no size of the sample, and broadcasts with none."""
    taken = {n for b in subject.base for n in b.shape}
    return next(n for n in range(2, 99) if n not in taken)


def is_deeper(subject: Subject, outputs: Sequence[Tensor]) -> bool:
    """Whether what forward returns for a stack has one dim more than on the sample, or is one number in both cases."""
    usual = subject.expected[0]
    pairs = [(usual[i], outputs[i]) for i in subject.active] if max(subject.active) < len(outputs) else []
    return bool(pairs) and all(now.dim() - before.dim() == bool(before.dim()) for before, now in pairs)


def is_batch(subject: Subject, values: Sequence[Tensor], group: Sequence[int], outputs: Sequence[Tensor]) -> bool:
    """Whether what forward returns for a stack is what it returns for each of the stacked ones, or the mean or sum."""
    try:
        apart = [subject.outputs(each) for each in slices(values, group)]
    except (Exception, SystemExit):
        return False
    for i in subject.active:
        ours, theirs = outputs[i], torch.stack([each[i] for each in apart])
        wanted = [theirs] if ours.dim() else [theirs.sum(), theirs.mean()]
        if not any(w.shape == ours.shape and torch.allclose(ours, w) for w in wanted):
            return False
    return True
