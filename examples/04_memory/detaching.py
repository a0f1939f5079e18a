r"""
Constants: targets that have no gradient
========================================

You will write a loss with a constant target, free the graph of the network behind the target, and see why ``.data``
cannot replace ``.detach()``.
"""

# %%
# When to use it
# --------------
#
# Use this page if the target of your loss comes from a network, for example a teacher, a slow copy of the student, or
# the value of the next state. Integer labels need no detach.
#
# Run the target network inside ``torch.no_grad()``, which saves the most memory. A loss cannot do this for you. If you
# forget ``torch.no_grad()``, a loss that detaches its target, such as the recipe, still helps. This loss does not train
# the teacher, and does not keep the teacher's graph in memory.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{s}` is the gradient of the loss with respect to :math:`s`.
#
# In distillation, a student learns the probabilities :math:`p` of a teacher. The loss is a Kullback-Leibler divergence
# between :math:`p` and the student's probabilities :math:`q`. Both probabilities are computed from the teacher's logits
# :math:`t` and the student's logits :math:`s` with the temperature :math:`T`. Because :math:`p =
# \operatorname{softmax}(t / T)` is constant, only :math:`s` has a gradient, which needs only the logits:
#
# .. math::
#
#    \ell = T^2 \sum_k p_k \log \frac{p_k}{q_k}, \quad q = \operatorname{softmax}(s / T), \qquad
#    \bar{s} = \bar{\ell}\;T\,(q - p) .
#
# The recipe
# ----------
#
# .. recipe:: distillation_loss

# sphinx_gallery_tags = ["memory", "stability", "second order", "compile"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from autograd_cookbook.auditing import held_bytes, peak_bytes
from autograd_cookbook.recipes.detaching import DistillationLossFunction, distillation_loss

# %%
# See it work
# -----------
#
# The left figure shows the peak of one training step for teachers of different depth. In the right figure, an untrained
# student learns handwritten digits from a teacher, and one optimizer updates the parameters of student and teacher.


def composed(student, teacher, temperature):
    """A composition of torch operations, which also gives the teacher a gradient."""
    log_q, p = F.log_softmax(student / temperature, -1), F.softmax(teacher / temperature, -1)
    return F.kl_div(log_q, p, reduction="batchmean") * temperature**2


def network(depth, width, classes=10):
    layers = [nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)]
    return nn.Sequential(*layers, nn.Linear(width, classes))


torch.manual_seed(0)
batch = torch.randn(1000, 64)
learner = network(8, 64)


def attached(teacher):
    composed(learner(batch), teacher(batch), 2.0).backward()


def detached_in_the_loss(teacher):
    distillation_loss(learner(batch), teacher(batch), 2.0).backward()


def detached_first(teacher):
    target = teacher(batch).detach()
    distillation_loss(learner(batch), target, 2.0).backward()


def without_graph(teacher):
    with torch.no_grad():
        target = teacher(batch)
    distillation_loss(learner(batch), target, 2.0).backward()


depths = [1, 4, 8, 16, 24]
steps = {
    "attached": attached,
    "detached in the loss": detached_in_the_loss,
    "detached first": detached_first,
    "no_grad": without_graph,
}
peaks = {}
for name, step in steps.items():
    peaks[name] = []
    for depth in depths:
        teacher = network(depth, 64)
        step(teacher)  # so that the gradients exist before
        peaks[name].append(peak_bytes(step, teacher) / 1e6)

digits = load_digits()
images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)


def accuracy(net):
    with torch.no_grad():
        return float((net(images).argmax(1) == labels).float().mean())


def distill(loss):
    torch.manual_seed(0)
    teacher, student = network(1, 64), network(1, 64)
    optimizer = torch.optim.Adam(teacher.parameters(), 0.01)
    for _ in range(40):
        optimizer.zero_grad()
        F.cross_entropy(teacher(images), labels).backward()
        optimizer.step()
    optimizer = torch.optim.Adam([*teacher.parameters(), *student.parameters()], 0.01)
    history = [(accuracy(teacher), accuracy(student))]
    for _ in range(30):
        optimizer.zero_grad()
        loss(student(images), teacher(images), 4.0).backward()
        optimizer.step()
        history.append((accuracy(teacher), accuracy(student)))
    return [list(column) for column in zip(*history, strict=True)]


learned = {"attached": distill(composed), "recipe": distill(distillation_loss)}

figure, axes = plt.subplots(1, 2, figsize=(7, 3.4), layout="constrained")
figure.suptitle("A target that is not detached keeps the teacher in memory, and trains it")
for (name, values), style in zip(peaks.items(), ("-o", "--s", "-.D", ":^"), strict=True):
    axes[0].plot(depths, values, style, label=name)
axes[0].set(xlabel="layers of the teacher", ylabel="peak of a step [MB]", xticks=depths)
axes[0].legend(fontsize=8)
for (name, (teacher, student)), style in zip(learned.items(), ("-", "--"), strict=True):
    axes[1].plot(teacher, f"C3{style}", label=f"teacher, {name}")
    axes[1].plot(student, f"C0{style}", label=f"student, {name}")
axes[1].set(xlabel="step", ylabel="accuracy")
axes[1].legend(fontsize=7)
plt.show()

for name, values in peaks.items():
    print(f"{name:21} {values[-1]:5.1f} MB at {depths[-1]} layers")
for name, (teacher, student) in learned.items():
    print(f"{name:21} accuracy of the teacher {teacher[-1]:.2f}, of the student {student[-1]:.2f}")
assert peaks["no_grad"][0] == peaks["no_grad"][-1]
assert peaks["detached first"][-1] < 0.8 * peaks["attached"][-1]
assert 0.9 * peaks["attached"][-1] < peaks["detached in the loss"][-1] < peaks["attached"][-1]
assert learned["recipe"][0][-1] == learned["recipe"][0][0]
assert learned["attached"][0][-1] < 0.2

# %%
# Without a detach, training changes the teacher to match the untrained student, and both networks end with a low
# accuracy. Detaching inside the loss hardly reduces the peak, because the graphs of teacher and student are both in
# memory when the loss is called. To reduce the peak, run the teacher first and detach its output: PyTorch frees the
# teacher's graph as soon as no variable refers to the attached output.
#
# It is not enough to return None for the target in backward. ``apply`` connects the loss with the teacher's graph, so
# the tensors that the teacher saved stay in memory until backward. If you keep the loss without a backward, for example
# in a list, they stay in memory as long as the loss:

teacher = network(24, 64)
logits = learner(batch).detach().requires_grad_()


def kept(loss):
    return held_bytes(lambda: loss(logits, teacher(batch), 2.0))


print(f"None from backward   {kept(DistillationLossFunction.apply):>10,} bytes")
print(f"recipe               {kept(distillation_loss):>10,} bytes")
assert kept(distillation_loss) < 100_000 < kept(DistillationLossFunction.apply)


def after_backward():
    losses = DistillationLossFunction.apply(logits, teacher(batch), 2.0)
    losses.sum().backward()
    return losses


assert held_bytes(after_backward) < 100_000

# %%
# The wrong version
# -----------------
#
# ``.data`` seems to do the same as ``.detach()``, and its result uses the same memory. But ``.data`` does not share the
# version counter, with which autograd detects that a saved tensor was changed. In the next cell, a sigmoid saves its
# output, and the caller then scales this output in place:

x = torch.zeros(3, requires_grad=True)
for name, cut in (("data", lambda t: t.data), ("detach", torch.Tensor.detach)):
    y = torch.sigmoid(x)
    cut(y).mul_(4)
    print(f"torch {torch.__version__}, .{name}: version {y._version}, ", end="")
    try:
        (gradient,) = torch.autograd.grad(y.sum(), x)
        print("gradient", gradient.tolist())
    except RuntimeError as error:
        print(str(error).partition(": [")[0])

# %%
# The derivative of the sigmoid at 0 is 0.25. With ``.data``, the gradient is silently -2, because backward computes
# :math:`y (1 - y)` at :math:`y = 2`. With ``.detach()``, PyTorch raises an error.

assert gradient.tolist() == [-2, -2, -2]
assert torch.autograd.grad(torch.sigmoid(x).sum(), x)[0].tolist() == [0.25] * 3

# %%
# Classes that both networks mask
# -------------------------------
#
# If teacher and student mask the same class, the composition computes :math:`0 \cdot (-\infty)`, so its loss is NaN. In
# the recipe, this class adds 0 to the loss:

inf = float("inf")
target = torch.tensor([[0.0, 1.0, -inf]])
for name, loss in (("composed", composed), ("recipe", distillation_loss)):
    masked = torch.tensor([[1.0, 0.0, -inf]], requires_grad=True)
    value = loss(masked, target, 1.0)
    value.backward()
    assert value.isfinite() == (name == "recipe")
    print(f"{name:9} loss {value.item():.4f}, gradient {[round(g, 4) for g in masked.grad[0].tolist()]}")
assert masked.grad.isfinite().all()

# %%
# What it costs
# -------------
#
# .. costs::
#
# In eager mode, the recipe keeps only the logits. If you compile, write the composition and detach the target. The
# compiled composition keeps only a few numbers per row, and is faster than the recipe.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/in_place`: how to write to a tensor in place so that autograd detects it.
# * :doc:`/cookbook/04_memory/selective_saving`: other functions that keep only their arguments.
# * :doc:`/cookbook/01_first_steps/arguments`: arguments that have no gradient.
# * :doc:`/cookbook/03_stability/cross_entropy`: a loss whose target is a class index.
# * In torch's documentation: :class:`torch.autograd.Function`.
