r"""
A layer split over several machines
===================================

You will split linear layers and a cross-entropy over ranks (processes) with four small operators, and get the same
gradients as in a single process.
"""

# %%
# When to use it
# --------------
#
# Split a layer when the layer, its activations or its logits do not fit on one device, and the connection between the
# devices is fast, because every layer communicates. For modules, torch has ``torch.distributed.tensor.parallel``. A
# test of this project checks that its gradients equal those of this page. Write the operators yourself for your own
# kernel or loss, or to understand why a gradient is wrong by a factor.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{X}` is the gradient of the loss with respect to :math:`X`.
#
# A tensor is *replicated* if every rank has the same tensor and the same gradient of it. Otherwise the tensor or its
# gradient *varies* from rank to rank: it is a part of a whole, or one term of a sum. Every operator converts one kind
# into the other, and its backward converts back:
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
# Only the bold operations send data. The operators form two pairs, and each operator is the backward of the other
# operator in its pair, so derivatives of any order are right. The sum in the backward of ``copy_to_ranks`` is the
# multivariate chain rule: the tensor is used once on each rank.
#
# After a gather, the ranks continue either with the same computation, or with different ones. If the computations
# differ, every rank has its own gradient for every part. Backward must then add up these gradients and give each rank
# the sum for its part, which is called a reduce-scatter. For this case use :doc:`all_gather
# </cookbook/08_distributed/data_parallel>`, which is ``gather_from_ranks`` followed by ``copy_to_ranks``.
#
# The recipe
# ----------
#
# .. recipe:: copy_to_ranks
#
# .. recipe:: gather_from_ranks
#
# Two linear layers need one sum in forward and one in backward, if you split the first by its outputs and the second by
# its inputs.
#
# .. recipe:: column_parallel_linear
#
# If the vocabulary is split, no rank has all logits of a token. The ranks exchange three numbers per token.
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
# The figure shows which rank has which tensor. Green tensors are the same on every rank. Blue belongs to rank 0 and
# orange to rank 1: either two parts of a tensor side by side or, hatched, two terms of a sum, each of full size. A
# heavy arrow sends data. The upper row is forward. The lower row is backward, which runs from right to left:

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
# The next cell runs two layers and a cross-entropy on one, two and four ranks, in float64. It compares the gradients
# with those of torch's functions in one process. ``saved_bytes`` counts the bytes that a rank keeps for backward.


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
        """Return the whole input, and this rank's part of each weight: outputs, inputs, outputs."""
        x, *whole = tensors
        return [x, *(w.chunk(size, dim)[dist.get_rank()] for w, dim in zip(whole, (0, 1, 0), strict=True))]

    leaves = [t.requires_grad_() for t in (x, *weights)]
    expected = torch.autograd.grad(one_process(*leaves), leaves)
    found = {}
    for size in (1, 2, 4):
        group = dist.new_group(list(range(size)))  # all ranks must call this, even those outside of the group
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
# This version lacks ``copy_to_ranks``. Forward is right to the last bit. But in backward, each rank uses its own term
# of the sum :math:`\bar X` as if it were the whole sum. So every layer *before* the split layers learns from a wrong
# gradient. In this example, both ranks have the weights of one such layer. The cell trains on two ranks with and
# without the copy:


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
figure.suptitle("Without the copy the loss also falls, but the replicas diverge")
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
# An all-reduce adds the tensors of all ranks, and every rank gets the sum. ``torch.distributed.all_reduce`` has no
# backward. For a sum over ranks inside of a *loss*, two backwards are common. One is the identity
# (``reduce_from_ranks``). The other is another sum (``torch.distributed.nn.functional.all_reduce``, which torch 2.13
# calls deprecated, or ``copy_to_ranks(reduce_from_ranks(x))``). Two questions decide which one is right. Do all ranks
# compute the *same* loss from the sum, or does each rank compute its own loss? And are the gradients of parameters
# *averaged* afterward, as DDP does, or added? The cell prints the ratio of each result to the gradient of one process:


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
# The result is:
#
# * Under DDP, use the backward that sums. It is right for both losses. With the identity and the same loss on all
#   ranks, the gradient is silently too small by the number of ranks.
# * Inside of a tensor-parallel layer, each rank computes the same loss and no gradients are averaged. Use the identity.
# * In your own ``Function``, reduce a clone, because ``all_reduce`` writes into its argument.
#
# Which gather: a contrastive loss under DDP
# ------------------------------------------
#
# A gather has the same two backwards. A contrastive loss gathers the embeddings of all ranks, and three gathers are
# common:
#
# * :func:`.all_gather` has a backward that sums over ranks, like ``torch.distributed.nn.functional.all_gather``.
# * ``gather_from_ranks`` has a backward in which each rank takes its own part of its own gradient.
# * ``torch.distributed.all_gather`` has no backward, so its users replace the rank's own part in the list by the
#   original tensor, through which the gradient goes.
#
# The next cell runs these gathers inside of :class:`~torch.nn.parallel.DistributedDataParallel`, which averages over
# two ranks. Each rank computes either the whole loss, or only the rows of its own samples:


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
# The result is:
#
# * ``all_gather`` is right under DDP for *both* losses. With the whole loss on each rank, its backward counts every
#   term once per rank, and DDP's mean divides by the same number.
# * Putting the rank's own part back is wrong. With the whole loss on each rank, the gradient is too small by the number
#   of ranks. Multiply the loss by this number, or use ``all_gather``. If each rank uses the rows of its own samples,
#   the parts of the other ranks also need a gradient and get none, so training goes in another direction.
# * ``gather_from_ranks`` is for ranks that compute the same loss and do *not* average.
#
# Sequence parallel: why backward gathers the input again
# -------------------------------------------------------
#
# With sequence parallelism, the input :math:`X` of a column-parallel linear layer is split along the sequence, and
# forward gathers it: :math:`Y_r = X W_r^\top`. Backward needs two gradients:
#
# * :math:`\bar{X} = \sum_r \bar{Y}_r W_r`: a *reduce-scatter* adds the terms of all ranks, and each rank keeps its part
#   of the sequence. This gradient needs no :math:`X`.
# * :math:`\bar{W}_r = \bar{Y}_r^\top X`: this gradient needs the *whole* :math:`X`.
#
# So an ``all_gather`` of the input in backward is necessary if forward saved only the rank's part. You can also let
# forward save the gathered input. Backward then needs only the reduce-scatter, but each rank keeps the activations of
# the whole sequence, so sequence parallelism saves no memory there. On a GPU, the second gather can overlap with the
# product that computes :math:`\bar{X}`. The cell compares both:


def sequence_parallel():
    import torch
    import torch.distributed as dist
    from torch.autograd import Function
    from torch.nn import functional as F

    from autograd_cookbook.auditing import saved_bytes
    from autograd_cookbook.recipes.data_parallel import all_gather, reduce_scatter

    gathers = []

    def gather(x):
        gathers.append(x)
        return all_gather(x)

    class GatherTwice(Function):
        @staticmethod
        def forward(x, weight):
            return F.linear(gather(x), weight)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)  # this rank's part of the sequence

        @staticmethod
        def backward(ctx, grad_output):
            x, weight = ctx.saved_tensors
            grad_x = reduce_scatter(grad_output @ weight)
            return grad_x, grad_output.mT @ gather(x)

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    whole, weight = torch.randn(64, 8).double().requires_grad_(), torch.randn(6, 8).double().requires_grad_()
    expected = torch.autograd.grad(F.linear(whole, weight).sin().sum(), (whole, weight))
    expected = [e.chunk(size)[rank] for e in expected]
    own = [t.detach().chunk(size)[rank].clone().requires_grad_() for t in (whole, weight)]
    found = {}
    for name, layer in {
        "saves its part, gathers twice": GatherTwice.apply,
        "saves the gathered input": lambda x, w: F.linear(gather(x), w),
    }.items():
        gathers.clear()
        with torch.profiler.profile() as profile:
            grads = torch.autograd.grad(layer(*own).sin().sum(), own)
        scattered = sum(event.key == "c10d::reduce_scatter_" for event in profile.events())
        right = all(torch.allclose(g, e) for g, e in zip(grads, expected, strict=True))
        found[name] = right, len(gathers), scattered, saved_bytes(layer, *own)
    return found


sequence = run_ranks(sequence_parallel, 2)[0]
for name, (right, gathered, scattered, kept) in sequence.items():
    print(f"{name:30} right: {right}, gathers: {gathered}, reduce-scatters: {scattered}, keeps {kept} bytes more")
for name, gathers_of in {"saves its part, gathers twice": 2, "saves the gathered input": 1}.items():
    assert sequence[name][:3] == (True, gathers_of, 1)
assert [numbers[3] for numbers in sequence.values()] == [0, 64 * 8 * 8]  # the whole sequence, in float64

# %%
# Both layers have the right gradient. If the memory does not matter, use ``F.linear(all_gather(x), weight)``.
#
# How to notice the mistake
# -------------------------
#
# Without the copy, no number in the log looks wrong. But two ranks whose replicated weights differ compute a function
# that the model in one process cannot compute, and a checkpoint with the replicated weights of rank 0 is another model.
# So compare the replicas from time to time, or compare the gradients with those of one process once.
#
# Every rank must run the same collectives (operations that all ranks take part in) in the same order, also in backward.
# If a rank leaves one out, because its batch is empty or its loss is skipped, the other ranks wait until the timeout of
# the group.
#
# What it costs
# -------------
#
# The figure shows what each rank holds in the run above: its weights, and what it keeps for backward. All weights are
# split. The activations are split, too. The exceptions are the output of the second layer and two numbers per token,
# which every rank keeps whole.

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
# In exchange, the ranks communicate. For two layers, forward sends one tensor of the size of the output, and backward
# one of the size of the input. The cross-entropy sends three numbers per token in forward, and nothing in backward.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/08_distributed/data_parallel`: split the batch instead, ``all_gather``, and how the ranks start.
# * :doc:`/cookbook/04_memory/linear_cross_entropy`: a large vocabulary on one device.
# * :doc:`/cookbook/05_higher_order/double_backward`: why a backward should consist of functions with a backward.
# * In torch's documentation: :func:`torch.distributed.all_reduce`, :func:`torch.nn.functional.cross_entropy`.
