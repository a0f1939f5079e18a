r"""
Stop, scale and reverse a gradient
==================================

You will reverse a gradient in the middle of a network. With this reversal, you will adapt a classifier to a second data
set that has no labels.
"""

# %%
# When to use it
# --------------
#
# * Reverse a gradient if two parts of one network have opposite goals. For example, a head learns to predict something,
#   and the layers below learn features from which the head cannot predict it.
# * Scale a gradient if one branch should have less influence on the shared layers than another branch.
# * Stop a gradient for single elements if a part of a tensor should be constant.
#
# To stop the *whole* gradient, you do not need a recipe: call ``.detach()``, or ``requires_grad_(False)`` for a
# parameter.
#
# A hook can replace the recipe and needs no memory either: write ``y = x.view_as(x)``, then ``y.register_hook(lambda g:
# -g)``. The recipe has two advantages: its name appears in the graph, and it raises an error for an invalid factor.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# Forward returns its input, :math:`y = x`. Backward changes the gradient, with a factor :math:`s`, a strength
# :math:`\lambda` or a mask :math:`m`:
#
# .. math::
#
#    \bar{x} = s\,\bar{y} \;\text{(scale)}, \qquad
#    \bar{x} = -\lambda\,\bar{y} \;\text{(reverse)}, \qquad
#    \bar{x}_i = \bar{y}_i\,[\neg m_i] \;\text{(stop)} .
#
# In a typical use, the inputs come from two data sets, called domains. A head :math:`\phi` predicts the domain from
# features :math:`f_\theta(x)`, with the loss :math:`L_d(\phi(f_\theta(x)))`. Training the head makes this loss small.
# Training the features makes it large, so that the head cannot find the domain in them: :math:`\max_\theta \min_\phi
# L_d`. With a reversal between :math:`f` and :math:`\phi`, one step of gradient descent decreases the loss for the head
# and increases it for the features. You need no second optimizer and no alternating steps.
#
# The recipe
# ----------
#
# .. recipe:: reverse_gradient
#
# .. recipe:: scale_gradient
#
# .. recipe:: stop_gradient

# sphinx_gallery_tags = ["gradient", "second order", "compile"]
# sphinx_gallery_thumbnail_number = 1

import math
from itertools import pairwise

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.nn import functional as F

from autograd_cookbook.auditing import held_bytes
from autograd_cookbook.recipes.reversal import reverse_gradient, stop_gradient

print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# The source domain is a data set of two moons with labels. The target domain has the same moons, rotated by 35 degrees,
# and its labels are used only to compute the accuracy. The network has layers that compute features, and two heads. One
# head predicts the label, and is trained on the source. The other head predicts the domain, and is trained on both
# domains through the reversal. The strength :math:`\lambda` of the reversal grows from 0 to 1, as in the paper that the
# recipe names.


def moons(angle, seed):
    points, labels = make_moons(200, noise=0.08, random_state=seed)
    turn = math.radians(angle)
    rotation = torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    return (torch.tensor(points).float() - torch.tensor([0.5, 0.25])) @ rotation.T, torch.tensor(labels).float()


def head(in_features, *widths):
    sizes = [in_features, *widths, 1]
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1], nn.Flatten(0))


def train(strength, seed=0, steps=300, negate=False):
    """Return the feature layers, the label head, and the last domain loss."""
    torch.manual_seed(seed)
    features = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
    label_head, domain_head = head(16), head(16, 16)
    both = torch.cat([source, target])
    domains = torch.cat([torch.zeros(len(source)), torch.ones(len(target))])
    parameters = [*features.parameters(), *label_head.parameters(), *domain_head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.02, fused=True)
    for step in range(steps):
        now = strength * (2 / (1 + math.exp(-10 * step / steps)) - 1)
        hidden = features(both)
        label_loss = F.binary_cross_entropy_with_logits(label_head(hidden[: len(source)]), source_labels)
        if negate:
            domain_loss = F.binary_cross_entropy_with_logits(domain_head(hidden), domains)
            loss = label_loss - now * domain_loss
        else:
            domain_loss = F.binary_cross_entropy_with_logits(domain_head(reverse_gradient(hidden, now)), domains)
            loss = label_loss + domain_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return features, label_head, domain_loss.item()


def accuracy(features, label_head, points, labels):
    with torch.no_grad():
        return ((label_head(features(points)) > 0) == labels.bool()).float().mean().item()


source, source_labels = moons(0, seed=0)
target, target_labels = moons(35, seed=1)
side = torch.linspace(-2.1, 2.1, 120)
grid = torch.stack(torch.meshgrid(side, side, indexing="xy"), dim=-1)
runs = {strength: [train(strength, seed) for seed in range(3)] for strength in (0.0, 1.0)}

figure, axes = plt.subplots(1, 2, figsize=(7, 3.6), layout="constrained", sharey=True)
figure.suptitle("Reversing one gradient moves the decision boundary onto data without labels")
for axis, strength in zip(axes, runs, strict=True):
    features, label_head, _ = runs[strength][0]
    score = accuracy(features, label_head, target, target_labels)
    with torch.no_grad():
        surface = label_head(features(grid.reshape(-1, 2))).sigmoid().reshape(120, 120)
    axis.contourf(side, side, surface, levels=[0, 0.5, 1], colors=["#cfe3f2", "#f9dcc8"])
    axis.contour(side, side, surface, levels=[0.5], colors="black")
    for label, (marker, color) in enumerate((("o", "C0"), ("^", "C1"))):
        axis.scatter(*source[source_labels == label].T, s=7, color="0.6", marker=marker)
        axis.scatter(*target[target_labels == label].T, s=12, color=color, marker=marker)
    axis.set(title=f"λ = {strength:g}: {score:.0%} of the target right", xlabel="first input", aspect="equal")
axes[0].set(ylabel="second input")
plt.show()

# %%
# In the figure, gray points are the labeled source, colored points are the target, and the black line is the decision
# boundary. The next cell prints the accuracy for three seeds, without reversal (λ = 0) and with reversal (λ = 1):

for strength, networks in runs.items():
    on_source = [accuracy(*network[:2], source, source_labels) for network in networks]
    on_target = [accuracy(*network[:2], target, target_labels) for network in networks]
    print(f"λ = {strength:g}: source {[f'{a:.0%}' for a in on_source]}, target {[f'{a:.0%}' for a in on_target]}")
    assert min(on_source) > 0.99
    assert max(on_target) < 0.8 if strength == 0 else min(on_target) > 0.9

# %%
# The method needs domains with the same proportions of the classes. If one class is more frequent in the target, the
# label helps to guess the domain. So features that hide the domain must also hide a part of the label. With four times
# as many points of one class in the target, the accuracy is lower:

everything = target, target_labels
rare = torch.cat([(target_labels == 0).nonzero().flatten(), (target_labels == 1).nonzero().flatten()[:25]])
target, target_labels = target[rare], target_labels[rare]
shifted = [accuracy(*train(1.0, seed)[:2], target, target_labels) for seed in range(3)]
print(f"λ = 1, classes 4 to 1 in the target: {[f'{a:.0%}' for a in shifted]}")
assert sum(shifted) < sum(on_target)
target, target_labels = everything

# %%
# The wrong version
# -----------------
#
# It looks simpler to leave out the reversal, and to subtract the domain loss from the label loss. But then training
# also increases the loss of the domain *head*. The head learns to be wrong with high confidence, its gradient does not
# help the features, and the total loss has no minimum:

*wrong, domain_loss = train(1.0, negate=True)
*_, reversed_loss = runs[1.0][0]
print(f"domain loss: {domain_loss:,.0f} subtracted, {reversed_loss:.2f} reversed; guessing has {math.log(2):.2f}")
print(f"target: {accuracy(*wrong, target, target_labels):.0%} right with it, {on_target[0]:.0%} reversed")
assert domain_loss > 20
assert abs(reversed_loss - math.log(2)) < 0.1

# %%
# Without a ``Function``, ``(1 + λ) * x.detach() - λ * x`` has the reversed gradient, too. But rounding changes its
# value, and for an infinite input it is NaN:

half = torch.linspace(0.1, 3, 1000, dtype=torch.bfloat16)
composed = (1 + 0.3) * half.detach() - 0.3 * half
changed = (composed != half).float().mean()
print(f"composed: {changed:.0%} of bfloat16 values have changed; reversed: {(reverse_gradient(half) != half).sum()}")
assert changed > 0.1
assert (2 * torch.tensor(torch.inf) - torch.tensor(torch.inf)).isnan()

# %%
# Second derivatives, in-place writes and a changing strength
# -----------------------------------------------------------
#
# A *second* derivative with respect to the reversed tensor passes the reversal twice, so its factor is
# :math:`(-\lambda)^2`. For λ = 1, this Hessian has its usual sign although the gradient is reversed. If a nonlinear
# function :math:`g` computes the reversed tensor, the Hessian with respect to its input also has the term with the
# second derivative of :math:`g`, which passes the reversal once. The last line of the cell shows this for :math:`g(x) =
# x^2`:

x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
for strength in (1.0, 0.5):
    (first,) = torch.autograd.grad(reverse_gradient(x, strength).sin(), x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    print(f"λ = {strength}: first derivative {first / x.cos():+.2f} cos x, second {second / -x.sin():+.2f} (-sin x)")
    assert torch.isclose(second, strength**2 * -x.sin())
(first,) = torch.autograd.grad(reverse_gradient(x.square()), x, create_graph=True)
(second,) = torch.autograd.grad(first, x)
print(f"λ = 1, after x²: first derivative {first / (2 * x):+.2f} (2 x), second {second / 2:+.2f} (2)")
assert second == -2

# %%
# The recipe returns ``input.view_as(input)``, a view that needs no copy. PyTorch raises an error if you write to this
# view in place, because the gradient would be wrong. Under ``torch.no_grad()``, there is no error, and the write
# changes the input. So do not put ``ReLU(inplace=True)`` directly after a reversal:

hidden = torch.ones(3, requires_grad=True) * 2
try:
    F.relu(reverse_gradient(hidden), inplace=True)
except RuntimeError as error:
    print(str(error).partition(".")[0])
with torch.no_grad():
    features = torch.tensor([-1.0, 1.0])
    F.relu(reverse_gradient(features), inplace=True)
assert features.tolist() == [0, 1]

# %%
# If the strength is a Python float that changes in every step, :func:`torch.compile` compiles twice: once for the
# first number, and once for all others.

graphs = []


def count(graph, example_inputs):
    graphs.append(graph)
    return graph.forward


compiled = torch.compile(lambda x, strength: 2 * reverse_gradient(x, strength), fullgraph=True, backend=count)
for step in range(10):
    compiled(torch.ones(3, requires_grad=True), step / 10).sum().backward()
print(f"{len(graphs)} graphs for 10 strengths")
assert len(graphs) == 2

# %%
# What it costs
# -------------
#
# .. costs::
#
# Like a hook, the recipes need no additional memory. A composition of torch operations writes a new tensor.
#
# But ``stop_gradient`` needs more memory than ``.detach()``. ``.detach()`` cuts the graph, but ``stop_gradient`` sends
# zeros through the graph of its input, so PyTorch keeps this graph until backward. The zeros also have an effect on
# training: an optimizer with momentum changes a parameter with gradient 0, but skips a parameter with gradient None:

x = torch.randn(10_000, requires_grad=True)
everywhere = torch.ones(1, dtype=torch.bool)
for name, function in (("detach", torch.Tensor.detach), ("zeros", lambda t: stop_gradient(t, everywhere))):
    held = held_bytes(lambda function=function: function(x.exp().exp().exp()))
    print(f"{name:6} holds {held:,} bytes until backward")
    assert held == 40_000 * (1 if name == "detach" else 3)

for name, stopped in (("None", None), ("zeros", torch.zeros(1))):
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    for grad in (torch.ones(1), stopped, stopped, stopped):
        parameter.grad = grad
        optimizer.step()
    print(f"Adam, one step with a gradient and three with {name:5}: from 1 to {parameter.item():.3f}")
    assert (abs(parameter.item() - 0.9) < 1e-6) == (stopped is None)

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/02_changing_the_gradient/hooks`: how to change a gradient without a ``Function``.
# * :doc:`/cookbook/02_changing_the_gradient/clipping`: how to limit a gradient with a bound.
# * :doc:`/cookbook/04_memory/detaching`: how to find tensors that a graph keeps without need.
# * :doc:`/guide/compiled_rules`: how to keep this backward when you compile code that calls :mod:`torch.func`.
# * In torch's documentation: :meth:`torch.Tensor.register_hook`, :class:`torch.autograd.Function`.
