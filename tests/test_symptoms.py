"""Mistakes that raise nothing: readers find them by clues, and what the index says of them is so."""

import itertools
import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset, DistributedSampler, WeightedRandomSampler

from autograd_cookbook.errors import explain, matcher
from autograd_cookbook.errors.cli import told


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "The children of my loader grow from 3 GB to 9 GB each, with num_workers=0 it stays flat",
            "told_workers_memory",
        ),
        ("I load the Adam state, the lr is right; after LambdaLR is created it is reset", "told_scheduler_resets"),
        (
            "Adam moves embedding rows that are not in the batch; their gradient is zero, SGD does not",
            "told_momentum_moves",
        ),
        (
            "class Add(Function): forward adds b in place and returns a; b.grad is None, no error",
            "told_function_in_place",
        ),
        ("In the generator step I call D(fake.detach()), the generator stays at noise", "told_generator_detached"),
        (
            "self.a = t; register_buffer('b', self.a). After loading a checkpoint self.a changed too",
            "told_buffer_alias",
        ),
        (
            "w * mask: zeros of the mask have a gradient that is not zero, so pruned weights come back",
            "told_mask_gradient",
        ),
        ("The vocabulary is built from the test set in a new session, accuracy is at chance", "told_vocabulary"),
        ("DDP test set of 1003 clips gives 1004 predictions, some are duplicated", "told_padded_evaluation"),
        (
            "persistent_workers=True: I change dataset.epoch, and __getitem__ always sees the old one",
            "told_worker_copy",
        ),
        ("40 seconds pass between two epochs, the GPU is idle, 16 workers open many files", "told_workers_restart"),
        ("nn.Embedding(9, 4, padding_idx=0), after copying GloVe the padding row is not zero", "told_padding_row"),
        ("ImageFolder with folders named 1 to 12: label 2 shows images of folder 11, wrong order", "told_folder_order"),
        ("Every 8th batch takes 4 s with 8 workers, the others are instant, a regular pattern", "told_loader_bursts"),
        ("The logits are huge, softmax is exactly one-hot, the gradient is zero", "told_saturated"),
    ],
)
def test_a_mistake_that_raises_nothing_is_found_in_other_words(text: str, name: str) -> None:
    found = explain(text)
    assert (found.known, found.entries[0].name) == ("maybe", name)


def test_a_symptom_that_most_words_of_a_text_do_not_fit_is_no_answer() -> None:
    """The signs of one are there, and the text is about something else."""
    text = (
        "TensorBoard draws several overlaid lines for one run, and the curve runs back and forth. The folder of the "
        "writer has event files of an older experiment, the gradients are None in its histogram tab, and deleting the "
        "directory brings a clean plot with one line again."
    )
    found = explain(text)
    assert found.known == "no"
    assert [entry.name for entry in found.entries][:1] == ["told_gradient_none"]
    lines = list(told(found))
    assert lines[0].startswith("No entry of the index is a sure answer")
    assert any(line.startswith("  Only if: ") for line in lines)


def test_clues_are_written_as_they_are_read() -> None:
    groups = matcher().rules["clues"]
    clues = [clue for stored in matcher().entries for clue in stored.get("clues", ())]
    assert len(clues) > 50
    for row in (*clues, *(f"0:{words}" for words in groups.values())):
        assert re.fullmatch(r"\d:[+!]?[^;:]+(?:;[+!]?[^;:]+)*", row), row
        for words in re.split(r"[;|]", row[2:]):
            plain = words.lstrip("+!")
            known = plain[1:] in groups if plain[:1] == "@" else re.fullmatch(r" ?[a-z0-9]+(?: [a-z0-9]+)* ?", plain)
            assert known, (row, plain)


def test_what_entries_say_of_optimizers_and_schedules_is_so() -> None:
    weight = nn.Parameter(torch.ones(2))
    made = {
        "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch),
        "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=9),
        "LinearLR": lr_scheduler.LinearLR,
        "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 1e-4, 1e-2),
        "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5),
    }
    for name, make in made.items():
        optimizer = torch.optim.SGD([weight], lr=1e-3, momentum=0.9)
        state = optimizer.state_dict()
        state["param_groups"][0] |= {"lr": 3e-5, "initial_lr": 1e-3}
        optimizer.load_state_dict(state)
        make(optimizer)
        assert not math.isclose(optimizer.param_groups[0]["lr"], 3e-5), name
    # Rows that are not in the batch.
    for kind, sparse, moves in ((torch.optim.Adam, False, True), (torch.optim.SparseAdam, True, False)):
        emb = nn.Embedding(3, 2, sparse=sparse)
        optimizer = kind(emb.parameters(), lr=0.1)
        emb(torch.tensor([1])).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        before = emb.weight.detach().clone()
        emb(torch.tensor([2])).sum().backward()
        optimizer.step()
        assert bool((emb.weight[1] != before[1]).any()) == moves


def test_what_entries_say_of_shared_memory_is_so() -> None:
    layer = nn.Module()
    layer.start = torch.ones(3)
    layer.register_buffer("pos", layer.start)
    layer.load_state_dict({"pos": torch.zeros(3)}, assign=True)
    assert layer.start.all()
    layer.register_buffer("pos", layer.start)
    layer.load_state_dict({"pos": torch.zeros(3)})
    assert not layer.start.any()
    assert sum(p.numel() for p in nn.ModuleList([nn.Linear(2, 2)] * 5).parameters()) == 6
    emb = nn.Embedding(4, 3, padding_idx=0)
    emb.weight.data.copy_(torch.ones(4, 3))
    assert emb.weight[0].all()
    assert nn.Embedding.from_pretrained(torch.ones(3, 2), padding_idx=0).weight[0].all()
    emb = nn.Embedding(4, 3, max_norm=0.1).eval()
    before = emb.weight.detach().clone()
    with torch.no_grad():
        emb(torch.tensor([1]))
    assert ((emb.weight != before).any(1)).tolist() == [False, True, False, False]
    rows = torch.zeros(1, 3).expand(4, 3)
    rows[0] = 1
    assert rows.all()
    x = torch.ones(3, 3)
    x[torch.tensor([0, 1])][:, torch.tensor([0])] = 0
    assert x.all()
    counts = torch.zeros(3)
    counts[torch.tensor([1, 1])] += 1
    assert counts.tolist() == [0, 1, 0]
    assert counts.index_add_(0, torch.tensor([1, 1]), torch.ones(2)).tolist() == [0, 3, 0]
    assert (torch.tensor([10], dtype=torch.uint8) - torch.tensor([50], dtype=torch.uint8)).item() == 216
    assert (torch.tensor([200], dtype=torch.uint8) + 100).item() == 44
    labels = torch.zeros_like(torch.tensor([1, 2]))
    labels[0] = 0.7
    assert labels.tolist() == [0, 0]


def test_what_entries_say_of_gradients_that_are_cut_is_so() -> None:
    class Add(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            if mark:
                ctx.mark_dirty(a)
            a.add_(b)
            return a

        @staticmethod
        def backward(ctx, grad):
            return grad, grad

    for mark in (False, True):
        a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        y = a * 2
        Add.apply(y, b)
        (y * 1).sum().backward()
        assert (b.grad is None) == (not mark)
        leaf = torch.ones(2, requires_grad=True)
        if mark:
            with pytest.raises(RuntimeError, match="leaf"):
                Add.apply(leaf, b)
        else:
            Add.apply(leaf, b)
            assert leaf.tolist() == [2, 2]
    mask = torch.tensor([0.0, 1.0], requires_grad=True)
    weight = torch.tensor([3.0, 5.0], requires_grad=True)
    (weight * mask).sum().backward()
    assert mask.grad.tolist() == [3, 5]
    assert weight.grad.tolist() == [0, 1]
    logits = torch.tensor([4000.0, -4000.0], requires_grad=True)
    (logits.softmax(0) * torch.tensor([1.0, 2.0])).sum().backward()
    assert not logits.grad.any()
    (grad,) = torch.autograd.grad(F.cross_entropy(logits[None], torch.tensor([1])), logits)
    assert grad.tolist() == [1, -1]
    assert torch.sigmoid(torch.tensor(17.0)) == 1
    assert torch.sigmoid(torch.tensor(-80.0)) > 0
    assert torch.sigmoid(torch.tensor(-110.0)) == 0
    low = torch.tensor([-0.02], requires_grad=True)
    low.clamp(0, 1).sum().backward()
    assert low.grad.item() == 0
    mean = torch.zeros(1, requires_grad=True)
    normal = torch.distributions.Normal(mean, 1.0)
    assert not normal.sample().requires_grad
    assert normal.rsample().requires_grad


def test_what_entries_say_of_loaders_is_so() -> None:
    class Drawn(Dataset):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.rand(1)

    batches = itertools.cycle(DataLoader(Drawn()))
    first, again = ([next(batches).item() for _ in range(2)] for _ in range(2))
    assert first == again
    assert {next(iter(DataLoader(range(5)))).item() for _ in range(3)} == {0}
    assert set(WeightedRandomSampler([0.1, 0.9], 100)) == {0, 1}
    for ranks, count in ((4, 1004), (8, 1008)):
        samplers = [DistributedSampler(range(1003), ranks, rank, shuffle=False) for rank in range(ranks)]
        assert sum(map(len, samplers)) == count
    assert sorted(map(str, range(13)))[:5] == ["0", "1", "10", "11", "12"]
    mixed = F.interpolate(torch.tensor([[[[0.0, 19.0]]]]), (1, 6), mode="bilinear")
    assert {round(value) for value in mixed.flatten().tolist()} == {0, 6, 13, 19}
