r"""
Hooks on saved tensors: on disk, or in one byte
===============================================

You will store the saved tensors of any part of a network on disk, or in one byte per element. The network itself does
not change.
"""

# %%
# When to use it
# --------------
#
# Use these hooks when activations do not fit into memory, and computing them again is too slow or impossible, for
# example because a simulation calls an outside program. Try checkpointing first, because it needs no disk and adds no
# error. To move activations from a GPU to main memory, torch has :class:`torch.autograd.graph.save_on_cpu`.
#
# The gradient
# ------------
#
# Autograd does not read a saved tensor :math:`s` between forward and backward. So a pair of hooks can replace it:
# *pack* stores :math:`p(s)`, and *unpack* returns :math:`u(p(s))` to backward. With the disk, :math:`u(p(s)) = s`. With
# one byte per element, each element is rounded to one of 255 levels. In each row, :math:`a` is the distance between
# neighboring levels:
#
# .. math::
#
#    u(p(s)) = a \operatorname{round}(s / a), \quad a = \tfrac{1}{127} \max_{\text{row}} |s|, \qquad
#    |u(p(s)) - s| \le a / 2 .
#
# The output of the network is exact in both cases. With one byte, backward computes the gradient from activations that
# are off by at most :math:`a / 2`. These errors are nearly independent, so they average out in sums over many elements.
#
# The recipe
# ----------
#
# .. recipe:: offloaded
#
# .. recipe:: compressed

# sphinx_gallery_tags = ["memory", "hooks", "approximate", "second order"]
# sphinx_gallery_thumbnail_number = 1

import tempfile
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from autograd_cookbook.auditing import held_bytes
from autograd_cookbook.recipes.hooks import saved_as
from autograd_cookbook.recipes.saved_tensor_hooks import compressed, offloaded

# %%
# See it work
# -----------
#
# The cell runs a network of eight linear layers on pictures of digits. It prints how many bytes the network holds
# between forward and backward, and the relative error of the gradient of all parameters:

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
torch.manual_seed(0)
network = nn.Sequential(
    nn.Linear(64, 128), *[layer for _ in range(7) for layer in (nn.GELU(), nn.Linear(128, 128))], nn.Linear(128, 10)
)


def gradient(call):
    loss = F.cross_entropy(call(network, images), labels)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(network.parameters()))])


def plain(network, images):
    return network(images)


ways = {
    "as it is": plain,
    "bfloat16": partial(saved_as, torch.bfloat16),
    "float16": partial(saved_as, torch.float16),
    "one byte": compressed,
    "disk": offloaded,
}
exact = gradient(plain)
points = {}
for name, call in ways.items():
    error = float((gradient(call) - exact).norm() / exact.norm())
    points[name] = held_bytes(call, network, images) / 1e6, error
    print(f"{name:9} holds {points[name][0]:6.2f} MB, error of the gradient {error:.1e}")

figure, axis = plt.subplots(figsize=(7, 3.3), layout="constrained")
for (name, (megabytes, error)), marker in zip(points.items(), "osD^v", strict=True):
    axis.plot(megabytes, max(error, 1e-9), marker, markersize=9)
    axis.annotate(name, (megabytes, max(error, 1e-9)), xytext=(9, -4), textcoords="offset points")
axis.set(yscale="log", xlabel="MB held between forward and backward", ylim=(2e-10, 0.2), xlim=(-0.5, None))
axis.set_ylabel("relative error of the gradient\n(exact: at the bottom)")
axis.set_title("Saved tensors of fewer bytes make the gradient less accurate; a disk does not")
plt.show()

assert points["disk"][1] < 1e-6
assert points["disk"][0] < points["one byte"][0] < 0.3 * points["as it is"][0]
assert points["float16"][1] < points["bfloat16"][1] < 0.05
assert points["one byte"][1] < 0.05

# %%
# No file is left on the disk. The file has no name, even while it is in use:

with tempfile.TemporaryDirectory() as folder:
    loss = offloaded(network, images, directory=folder).square().mean()
    print("files while the graph is alive:", list(Path(folder).iterdir()))
    loss.backward()
    assert not list(Path(folder).iterdir())

# %%
# The wrong version
# -----------------
#
# This version uses the same distance between levels for the whole tensor. A single large activation then rounds all
# other elements to zero:


def squeeze(tensor):
    step = tensor.abs().max() / 127
    return (tensor / step).round().to(torch.int8), step


def one_step_for_all(function, x):
    with saved_tensors_hooks(squeeze, lambda packed: packed[0] * packed[1]):
        return function(x)


x = torch.randn(64, 32)
x[0, 0] = 1000.0
x.requires_grad_()
for name, call in {"one step for all": one_step_for_all, "one for each row": compressed}.items():
    (rounded,) = torch.autograd.grad(call(lambda x: (x + 0).square().sum(), x), x)
    rows_lost = float((rounded[1:] == 0).float().mean())
    print(f"{name}: {rows_lost:.0%} of the gradients of the other rows are 0")
    assert (rows_lost > 0.9) == (name == "one step for all")

# %%
# Every pair of hooks has another problem, even hooks that change nothing: with hooks, torch no longer detects that a
# saved tensor was overwritten in place. The recipes check this themselves:


def hooks_that_do_nothing(function, x):
    with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        return function(x)


print("torch", torch.__version__)
for name, call in {"no hooks": lambda f, x: f(x), "hooks": hooks_that_do_nothing, "recipe": compressed}.items():
    x = torch.ones(16, requires_grad=True)
    y = x.clone()
    output = call(torch.square, y)
    with torch.no_grad():
        y.mul_(10)
    try:
        output.sum().backward()
        print(f"{name}: the gradient of x² at 1 is {x.grad[0].item():g}")
        assert name == "hooks"
    except RuntimeError as error:
        print(f"{name}: RuntimeError: {str(error).split(':')[0][:70]}")
        assert name != "hooks"

# %%
# What it costs
# -------------
#
# .. costs::
#
# The time of ``offloaded`` was measured with files in the disk cache, so expect more time if your disk must be read.
# ``compressed`` reads each saved tensor two more times in forward and one more time in backward. The hooks do not store
# parameters and arguments a second time. They also leave saved tensors that need no gradient, such as masks, unchanged.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/checkpointing`: hooks on saved tensors that store nothing and compute again.
# * :doc:`/cookbook/02_changing_the_gradient/hooks`: the other hooks, and saved tensors in bfloat16.
# * :doc:`/cookbook/04_memory/masks`: functions that save less in the first place.
# * In torch's documentation: :class:`torch.autograd.graph.saved_tensors_hooks`.
