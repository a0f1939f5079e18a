r"""
A layer split over several machines
===================================

You will split linear layers and a cross-entropy over ranks with four small operators, and get the gradients of a
single process.
"""

# %%
# When to use it
# --------------
#
# When one layer, its activations or its logits do not fit on one device, and the devices are close: every layer talks.
# Torch has this for modules, ``torch.distributed.tensor.parallel``, and a test holds that its gradients are those of
# this page. Write it yourself for a kernel or a loss of your own, or to understand why a gradient is off by a factor.
#
# The gradient
# ------------
#
# A tensor is *replicated* if every rank has the same one, and then so is its gradient. Otherwise it *varies* from rank
# to rank: it is a part, or a summand. Every operator leads from one kind to the other, and its backward leads back:
#
# .. list-table::
#    :header-rows: 1
#
#    * -
#      - forward
#      - backward
#    * - ``copy_to_ranks``
#      - replicated to varying: nothing to do
#      - varying to replicated: **sum**
#    * - ``reduce_from_ranks``
#      - varying to replicated: **sum**
#      - replicated to varying: nothing to do
#    * - ``scatter_to_ranks``
#      - replicated to varying: take a part
#      - varying to replicated: **join** the parts
#    * - ``gather_from_ranks``
#      - varying to replicated: **join** the parts
#      - replicated to varying: take a part
#
# Only the bold ones send anything. The backward of each is the other one of its pair, so derivatives of any order are
# right. The sum in backward is the multivariate chain rule: :math:`x` is used once on each rank.
#
# A gather can be followed by the same computation everywhere, or by a different one on each rank. In the second case
# every rank has a gradient of its own for every part, and backward must add them up: a reduce-scatter. That one is
# :doc:`all_gather </cookbook/08_distributed/data_parallel>`. It is ``copy_to_ranks`` after ``gather_from_ranks``.
#
# The recipe
# ----------
#
# .. recipe:: copy_to_ranks
#
# .. recipe:: gather_from_ranks
#
# Two layers need one sum in forward, and one in backward: the first is split by its outputs, the second by its inputs.
#
# .. recipe:: column_parallel_linear
#
# With the vocabulary split, no rank ever has all logits of a token. The ranks exchange three numbers a token.
#
# .. recipe:: vocab_parallel_cross_entropy

# sphinx_gallery_tags = ["distributed", "gradient", "memory"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from autograd_cookbook.recipes.data_parallel import run_ranks

# %%
# See it work
# -----------
#
# Which tensor is where. Green is replicated. Blue belongs to rank 0 and orange to rank 1: two parts of a tensor side by
# side, or, hatched, two summands of its whole size. A heavy arrow sends. Backward reads from right to left:

GREEN, COLORS = "#009E73", ("#56B4E9", "#E69F00")
figure, axis = plt.subplots(figsize=(7.4, 3.3), layout="constrained")
axis.set_title("Two layers on two ranks, forward and backward: sum and copy change places")


def draw(x, y, kind, label):
    """A tensor: replicated, in two parts, or as two summands."""
    if kind == "replicated":
        axis.add_patch(Rectangle((x, y), 1, 1, facecolor=GREEN, edgecolor="black"))
    for i, color in enumerate(COLORS if kind != "replicated" else ()):
        place, size = ((x + i / 2, y), (0.5, 1)) if kind == "parts" else ((x + i / 4, y + (1 - i) / 4), (0.75, 0.75))
        axis.add_patch(Rectangle(place, *size, fc=color, ec="black", hatch="////" if kind == "summands" else None))
    axis.text(x + 0.5, y - 0.12, label, ha="center", va="top", fontsize=9)


def arrow(start, end, y, label):
    width, weight = (2.5, "bold") if label == "sum" else (1, "normal")
    axis.annotate("", (end, y), (start, y), arrowprops={"arrowstyle": "-|>", "linewidth": width, "color": "black"})
    axis.text((start + end) / 2, y + 0.12, label, ha="center", fontsize=8, weight=weight)


kinds = ("replicated", "replicated", "parts", "summands", "replicated")
forward = ("$X$", "$X$", "$H_r=φ(XW_{1r}^T)$", "$H_rW_{2r}^T$", "$Y$"), ("copy", "$W_1, φ$", "$W_2$", "sum")
backward = (r"$\bar Y$", r"$\bar Y$", r"$\bar H_r$", r"$\bar X_r$", r"$\bar X$"), ("copy", "$W_2$", "$W_1, φ'$", "sum")
for i, kind in enumerate(kinds):
    draw(2 * i, 2.2, kind, forward[0][i])
    draw(8 - 2 * i, 0, kind, backward[0][i])
for i in range(4):
    arrow(2 * i + 1.05, 2 * i + 1.95, 2.7, forward[1][i])
    arrow(7.95 - 2 * i, 7.05 - 2 * i, 0.5, backward[1][i])
axis.set(xlim=(-0.2, 9.2), ylim=(-0.5, 3.4), aspect="equal")
axis.set_axis_off()
plt.show()

# %%
# For real: two layers and a cross-entropy on one, two and four ranks, in float64. Loss and gradients are compared with
# those of torch's functions in one process. ``saved_bytes`` counts what a rank keeps for backward.


def language_model(tokens, features, hidden, classes):
    import torch
    import torch.distributed as dist
    from torch.nn import functional as F

    from autograd_cookbook.auditing import saved_bytes
    from autograd_cookbook.recipes.tensor_parallel import (
        column_parallel_linear,
        row_parallel_linear,
        vocab_parallel_cross_entropy,
    )

    torch.manual_seed(0)
    x = torch.randn(tokens, features).double()
    labels = torch.randint(classes, (tokens,))
    shapes = (hidden, features), (features, hidden), (classes, features)
    weights = [torch.randn(shape).double() / shape[1] ** 0.5 for shape in shapes]

    def one_process(x, w1, w2, w3):
        return F.cross_entropy(F.linear(F.linear(F.gelu(F.linear(x, w1)), w2), w3), labels)

    def split(x, w1, w2, w3):
        h = F.gelu(column_parallel_linear(x, w1, group=group))
        y = row_parallel_linear(h, w2, group=group)
        logits = column_parallel_linear(y, w3, group=group)
        return vocab_parallel_cross_entropy(logits, labels, group=group)

    def part(tensors, size):
        """All of the input; of the weights some outputs, some inputs, and some outputs again."""
        x, *whole = tensors
        return [x, *(w.chunk(size, dim)[dist.get_rank()] for w, dim in zip(whole, (0, 1, 0), strict=True))]

    leaves = [t.requires_grad_() for t in (x, *weights)]
    expected = torch.autograd.grad(one_process(*leaves), leaves)
    found = {}
    for size in (1, 2, 4):
        group = dist.new_group(list(range(size)))  # all ranks must make it, those outside, too
        if dist.get_rank() >= size:
            continue

        own = [t.detach().clone().requires_grad_() for t in part(leaves, size)]
        grads = torch.autograd.grad(split(*own), own)
        error = max(float((g - e).abs().max()) for g, e in zip(grads, part(expected, size), strict=True))
        kept, parameters = saved_bytes(split, *own), sum(w.numel() * w.element_size() for w in own[1:])
        found[size] = {"error": error, "weights": parameters, "kept": kept}
    return found


found = run_ranks(language_model, 4, 256, 64, 256, 1000)[0]
for size, numbers in found.items():
    print(f"{size} rank(s): gradients differ from those of one process by {numbers['error']:.0e} at most")
    assert numbers["error"] < 1e-10

# %%
# The wrong version
# -----------------
#
# Leave out ``copy_to_ranks``. Forward is right to the last bit. In backward each rank gets its own summand of
# :math:`\bar X` for the whole, and whatever comes *before* the split layers learns from that. Here it is one more
# layer, of which both ranks have all weights, trained on two ranks with and without the copy:


def training():
    import torch
    import torch.distributed as dist
    from torch.nn import functional as F

    from autograd_cookbook.recipes.tensor_parallel import column_parallel_linear, gather_from_ranks, row_parallel_linear

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(64, 4).double()
    y = torch.stack([x[:, 0] * x[:, 1], x[:, 2].sin()], 1)
    curves = {}
    for name, split in {"one process": None, "with copy": column_parallel_linear, "without": F.linear}.items():
        torch.manual_seed(1)
        w0, w1, w2 = (torch.randn(shape).double() / shape[1] ** 0.5 for shape in ((16, 4), (64, 16), (2, 64)))
        if split:
            w1, w2 = w1.chunk(size)[rank].clone(), w2.chunk(size, 1)[rank].clone()
        weights = [w.requires_grad_() for w in (w0, w1, w2)]
        losses, apart = [], []
        for _ in range(150):
            hidden = F.linear(x, w0).tanh()
            if split:
                output = row_parallel_linear(split(hidden, w1).tanh(), w2)
            else:
                output = F.linear(F.linear(hidden, w1).tanh(), w2)
            loss = (output - y).square().mean()
            grads = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for weight, grad in zip(weights, grads, strict=True):
                    weight -= 0.1 * grad
            of_rank_0 = w0.detach().clone()
            dist.broadcast(of_rank_0, 0)
            losses.append(loss.item())
            apart.append(float((of_rank_0 - w0).abs().max()))
        curves[name] = losses, apart
        with torch.no_grad():  # a checkpoint: the replicated weights from rank 0, the parts from both
            w1, w2 = (gather_from_ranks(w1, 0), gather_from_ranks(w2, 1)) if split else (w1, w2)
            saved = F.linear(F.linear(F.linear(x, of_rank_0).tanh(), w1).tanh(), w2)
            curves[name] += (float((saved - y).square().mean()),)
    return curves


curves = run_ranks(training, 2)[1]
figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3), layout="constrained")
figure.suptitle("Without the copy the loss falls as well, and the replicas part")
for (name, (losses, apart, _)), style, width in zip(curves.items(), ("-", "--", "-."), (4, 2, 2), strict=True):
    left.plot(losses, style, label=name, linewidth=width, alpha=0.4 if width > 2 else 1)
    right.plot(apart, style, linewidth=width, alpha=0.4 if width > 2 else 1)
left.set(xlabel="step", ylabel="loss")
left.legend(fontsize=8)
right.set(xlabel="step", ylabel="first weight, rank 0 to rank 1")
plt.show()

for name, (losses, apart, reloaded) in curves.items():
    print(f"{name:11} last loss {losses[-1]:.3f}, copies differ by {apart[-1]:.2f}, loss after saving {reloaded:.3f}")
assert curves["with copy"][1][-1] == 0 < curves["without"][1][-1]
assert abs(curves["with copy"][0][-1] - curves["one process"][0][-1]) < 1e-10

# %%
# Which all-reduce: who has the loss, and who averages
# ----------------------------------------------------
#
# ``torch.distributed.all_reduce`` has no backward at all. For a sum over ranks inside of a *loss*, two backwards are
# in use: the identity (``reduce_from_ranks``), and another sum (``torch.distributed.nn.functional.all_reduce``, or
# ``copy_to_ranks(reduce_from_ranks(x))``). Which one is right depends on two questions. Do all ranks compute the
# *same* loss from the sum, or has each rank a loss of its own, whose total is meant? And are the gradients of
# parameters *averaged* afterward, as DDP does? The ratio of each result to the gradient of one process:


def four_cases():
    import torch
    import torch.distributed as dist

    from autograd_cookbook.recipes.tensor_parallel import copy_to_ranks, reduce_from_ranks

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x, targets = torch.randn(size, 3).double(), torch.randn(size).double()
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)

    def summary(reduce):
        return reduce((x[rank] @ weight).square())

    whole = (x @ weight).square().sum()
    meant = {
        "the same loss on all ranks": (whole.sin(), lambda s: s.sin()),
        "a loss on each rank, their mean": ((whole * targets).sin().mean(), lambda s: (s * targets[rank]).sin()),
    }
    backwards = {"identity": reduce_from_ranks, "sum": lambda y: copy_to_ranks(reduce_from_ranks(y))}
    found = {}
    for loss, (one_process, of_rank) in meant.items():
        (expected,) = torch.autograd.grad(one_process, weight, retain_graph=True)
        for name, reduce in backwards.items():
            (grad,) = torch.autograd.grad(of_rank(summary(reduce)), weight)
            for how, factor in {"added": 1, "averaged": 1 / size}.items():
                total = grad.clone()
                dist.all_reduce(total)
                ratios = total * factor / expected
                same = bool((ratios - ratios[0]).abs().max() < 1e-9)
                found[loss, name, how] = round(ratios[0].item(), 6) if same else "another direction"
    return found


ratios = run_ranks(four_cases, 2)[0]
for (loss, name, how), ratio in ratios.items():
    print(f"{loss:32} backward: {name:9} gradients {how:9} ratio to the right one: {ratio}")
assert ratios["the same loss on all ranks", "identity", "added"] == 1
assert ratios["the same loss on all ranks", "sum", "averaged"] == 1
assert ratios["the same loss on all ranks", "identity", "averaged"] == 0.5
assert ratios["a loss on each rank, their mean", "sum", "averaged"] == 1
assert ratios["a loss on each rank, their mean", "identity", "averaged"] == "another direction"

# %%
# So under DDP, take the backward that sums; it is right for both losses. With the identity, the same loss on all
# ranks trains with a gradient that is too small by the number of ranks, and nothing raises. Inside of a
# tensor-parallel layer, where each rank computes the same loss and nothing averages, take the identity. And in a
# ``Function`` of your own, reduce a clone, because ``all_reduce`` writes into its argument.
#
# Which gather: a contrastive loss under DDP
# ------------------------------------------
#
# A gather has the same two backwards. A contrastive loss gathers the embeddings of all ranks. Three gathers are in
# use: :func:`.all_gather`, whose backward sums over ranks, as that of ``torch.distributed.nn.functional.all_gather``;
# ``gather_from_ranks``, whose backward takes the own part of one rank's gradient; and
# ``torch.distributed.all_gather``, which has no backward, with the own part put back into the list. Here they run
# inside of :class:`~torch.nn.parallel.DistributedDataParallel`, which averages over two ranks. Each rank computes
# either the whole loss, or the rows of its own samples:


def contrastive():
    import torch
    import torch.distributed as dist
    from torch.distributed.nn.functional import all_gather as torch_all_gather
    from torch.nn import functional as F
    from torch.nn.parallel import DistributedDataParallel

    from autograd_cookbook.recipes.data_parallel import all_gather
    from autograd_cookbook.recipes.tensor_parallel import gather_from_ranks

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x, other = torch.randn(4 * size, 5).double(), torch.randn(4 * size, 3).double()
    network = torch.nn.Linear(5, 3).double()
    labels = torch.arange(4 * size)
    own = labels.chunk(size)[rank]

    def put_back(z):
        parts = [torch.empty_like(z) for _ in range(size)]
        dist.all_gather(parts, z.detach())
        parts[rank] = z
        return torch.cat(parts)

    gathers = {
        "all_gather": lambda z: all_gather(z, 0),
        "dist.nn all_gather": lambda z: torch.cat(torch_all_gather(z)),
        "gather_from_ranks": lambda z: gather_from_ranks(z, 0),
        "own part put back": put_back,
    }
    losses = {  # z: all embeddings; both directions of the comparison, so that each sample is in each term
        "whole": lambda z: F.cross_entropy(z @ other.mT, labels) + F.cross_entropy(other @ z.mT, labels),
        "own rows": lambda z: F.cross_entropy((z @ other.mT)[own], own) + F.cross_entropy((other @ z.mT)[own], own),
    }
    expected = torch.autograd.grad(losses["whole"](network(x)), network.weight)[0]
    replica, found = DistributedDataParallel(network), {}
    for loss, of in losses.items():
        for name, gather in gathers.items():
            network.zero_grad()
            of(gather(replica(x[own]))).backward()
            ratios = network.weight.grad / expected
            same = bool((ratios - ratios[0, 0]).abs().max() < 1e-9)
            found[loss, name] = round(ratios[0, 0].item(), 6) if same else "another direction"
    return found


gathers = run_ranks(contrastive, 2)[0]
for (loss, name), ratio in gathers.items():
    print(f"loss: {loss:9} {name:19} ratio to the right gradient: {ratio}")
for loss in ("whole", "own rows"):
    assert gathers[loss, "all_gather"] == gathers[loss, "dist.nn all_gather"] == 1
for name in ("gather_from_ranks", "own part put back"):
    assert gathers["whole", name] == 0.5
    assert gathers["own rows", name] == "another direction"

# %%
# So a gather with a gradient is right under DDP for *both* losses. With the whole loss on each rank, its backward
# counts everything once per rank, and DDP's mean divides by the same number. The own part put back is then too small
# by the number of ranks; multiply the loss by it, or use ``all_gather``. With the rows of its own samples on each rank,
# the gathered parts need a gradient, and putting one back trains in another direction. ``gather_from_ranks`` belongs to
# ranks that compute the same and do *not* average.
#
# Back to the wrong version
# -------------------------
#
# No number in the log looks wrong. Two ranks that no longer have the same weights compute something that one process
# cannot, and a checkpoint with the replicated weights of rank 0 is another model. So compare replicas now and then, or
# the gradients with those of one process once.
#
# Every rank must run the same collectives in the same order, in backward, too. A rank that leaves one out, because its
# batch is empty or its loss is skipped, keeps the others waiting until the timeout of the group.
#
# What it costs
# -------------
#
# Measured in the run above, for each rank: its weights, and what it keeps for backward. All of the weights are split,
# and of the activations all but the output of the second layer and two numbers a token.

sizes = list(found)
figure, axis = plt.subplots(figsize=(5.2, 3), layout="constrained")
for key, label, marker in (("weights", "weights", "o"), ("kept", "kept for backward", "s")):
    kilobytes = [found[size][key] / 1000 for size in sizes]
    axis.plot(sizes, kilobytes, marker=marker, label=label)
    axis.plot(sizes, [kilobytes[0] / size for size in sizes], ":", color="black")
axis.set(xlabel="ranks", ylabel="kB on each rank", ylim=(0, None), title="What a rank holds (dotted: one share of it)")
axis.set_xticks(sizes)
axis.legend(fontsize=8)
plt.show()
for size, numbers in found.items():
    print(f"{size} rank(s): {numbers['weights'] / 1000:.0f} kB of weights, {numbers['kept'] / 1000:.0f} kB kept")
assert all(numbers["weights"] * size == found[1]["weights"] for size, numbers in found.items())

# %%
# In exchange two layers send a summand of their output in forward, and one of the gradient of their input in backward.
# The cross-entropy sends three numbers a token in forward, and nothing in backward.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/08_distributed/data_parallel`: when the batch is split; ``all_gather``, and how the ranks start.
# * :doc:`/cookbook/04_memory/linear_cross_entropy`: a large vocabulary on one device.
# * :doc:`/cookbook/05_higher_order/double_backward`: why a backward is best made of functions with a backward.
# * In torch's documentation: :func:`torch.distributed.all_reduce`, :func:`torch.nn.functional.cross_entropy`.
