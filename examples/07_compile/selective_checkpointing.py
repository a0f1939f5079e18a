r"""
Checkpoints that keep what is expensive
=======================================

You will drop all activations of a block except the results of one expensive operator, and count what is kept and what
runs twice. You will also see why this works for an operator but not for a ``Function``.
"""

# %%
# When to use it
# --------------
#
# Use a selective checkpoint when :func:`torch.utils.checkpoint.checkpoint` saves the memory that you need, but repeats
# an operation that takes long: a large matrix product, attention, a solver. If all operations are cheap, use a plain
# checkpoint. If you have enough memory, use no checkpoint.
#
# The gradient
# ------------
#
# The gradient does not change. A *policy* is a function that torch calls for each operator in the first forward. It
# decides whether to keep the operator's result or to compute it again. When torch repeats the forward for backward, it
# returns the kept results instead of running these operators.
#
# Torch calls the policy for the operators that run in the end, not for the functions that you call. So the policy sees
# ``aten::addmm`` and not ``linear``, and it sees your own operators by their names. A ``Function`` is not an operator,
# so the policy sees only the operators inside of it, and nothing of what NumPy does there.
#
# The recipe
# ----------
#
# If the operators that a policy should keep never run, torch raises no error. This recipe raises one, and lists the
# operators that ran.
#
# .. recipe:: save_only

# sphinx_gallery_tags = ["memory", "speed"]
# sphinx_gallery_thumbnail_number = 1

import logging

import matplotlib.pyplot as plt
import torch
from scipy import signal
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from autograd_cookbook.auditing import held_bytes
from autograd_cookbook.recipes.custom_operator import filter_gradients, recursive_filter, save_for_filter
from autograd_cookbook.recipes.selective_checkpointing import save_only

torch._logging.set_logs(dynamo=logging.ERROR)
print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# The example has four blocks of a network on 32 signals of 512 steps. The expensive part is SciPy's recursive filter,
# which the page :doc:`/cookbook/06_beyond_autograd/custom_operator` turns into an operator. The cell counts how often
# SciPy is called, and the bytes held between forward and backward:

calls, lfilter = [], signal.lfilter


def counted(*args, **options):
    calls.append(args[2].shape)
    return lfilter(*args, **options)


signal.lfilter = counted
torch.manual_seed(0)
mixes = [(torch.randn(32, 32) / 8).requires_grad_() for _ in range(4)]
coefficients = torch.tensor([-1.2, 0.6], requires_grad=True)
signals = torch.randn(32, 512)


def block(filter, mix, x):
    return x + torch.tanh(filter(torch.relu(mix @ x), coefficients)).square().sigmoid()


def network(filter=recursive_filter, **options):
    """A function of the signals, with a checkpoint around each block if there are options for one."""

    def forward(x):
        for mix in mixes:
            if options:
                x = checkpoint(block, filter, mix, x, use_reentrant=False, preserve_rng_state=False, **options)
            else:
                x = block(filter, mix, x)
        return x

    return forward


def gradients(function):
    return torch.autograd.grad(function(signals).sum(), [*mixes, coefficients])


keep_filter = save_only("autograd_cookbook::recursive_filter")
ways = {
    "no checkpoint": network(),
    "checkpoint": network(debug=False),
    "keep the product": network(context_fn=save_only("aten::mm")),
    "keep the filter": network(context_fn=keep_filter),
}
expected = gradients(ways["no checkpoint"])
one = signals.nbytes
held, runs = {}, {}
for name, function in ways.items():
    held[name] = held_bytes(function, signals) / one
    calls.clear()
    for found, wanted in zip(gradients(function), expected, strict=True):
        assert torch.equal(found, wanted)
    runs[name] = len(calls)
    print(f"{name:17} holds {held[name]:2.0f} times the size of the signals, and calls SciPy {runs[name]:2} times")
assert list(runs.values()) == [8, 12, 12, 8]
assert held["keep the filter"] == held["checkpoint"] + 4 < held["no checkpoint"]

figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.6), layout="constrained", sharey=True)
figure.suptitle("Keep one operator's results: fewer activations, and no second run of it")
for axis, numbers, label in ((left, held, "activations held"), (right, runs, "calls of the filter, both ways")):
    bars = axis.barh(list(numbers), list(numbers.values()), color=["0.7", "C5", "C5", "C0"])
    axis.bar_label(bars, fmt="%d", padding=3)
    axis.set(xlabel=label, xlim=(0, 1.12 * max(numbers.values())))
left.invert_yaxis()
plt.show()

# %%
# The gradients are the same bit for bit. Without a checkpoint there are eight calls: four in forward, and four in
# backward, which filters backward in time. With ``torch.compile``, the function and its
# checkpoints become one graph, which keeps what the policy says:

whole = torch.compile(ways["keep the filter"], fullgraph=True, backend="aot_eager")
gradients(whole)
calls.clear()
for found, wanted in zip(gradients(whole), expected, strict=True):
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)
print("compiled: SciPy is called", len(calls), "times")
assert len(calls) == 8

# %%
# There are two limits. Kept results can be used only once, so a second backward or a second derivative raises an error.
# And torch's checkpoints are hooks on saved tensors, which ``torch.func`` refuses:


def backward_twice():
    loss = ways["keep the filter"](signals).sum()
    torch.autograd.grad(loss, mixes, retain_graph=True)
    torch.autograd.grad(loss, mixes)


def second_derivative():
    (first,) = torch.autograd.grad(ways["keep the filter"](signals).sum(), coefficients, create_graph=True)
    torch.autograd.grad(first.sum(), coefficients)


def under_torch_func():
    torch.func.grad(lambda x: ways["keep the filter"](x).sum())(signals)


for attempt in (backward_twice, second_derivative, under_torch_func):
    try:
        attempt()
    except RuntimeError as error:
        print(f"{attempt.__name__}: {str(error)[:107]}")
    else:
        raise AssertionError("it works now")

# %%
# The wrong version
# -----------------
#
# This version has the same filter in a bare ``Function``. A policy that keeps *every* operator should repeat nothing.
# But torch calls the policy only for the operators around SciPy, so SciPy runs again:


class BareFunction(Function):
    @staticmethod
    def forward(input, coefficients):
        a = torch.cat([torch.ones(1), coefficients]).detach().numpy()
        return torch.from_numpy(signal.lfilter(a[:1], a, input.detach().numpy()))

    setup_context = staticmethod(save_for_filter)

    @staticmethod
    def backward(ctx, grad_output):
        return filter_gradients(BareFunction.apply, ctx, grad_output)


asked = {}


def keep_everything(context, operator, *args, **options):
    asked[str(operator)] = None
    return torch.utils.checkpoint.CheckpointPolicy.MUST_SAVE


def keeping_everything():
    return torch.utils.checkpoint.create_selective_checkpoint_contexts(keep_everything)


for name, filter in {"Function": BareFunction.apply, "operator": recursive_filter}.items():
    asked.clear()
    calls.clear()
    gradients(network(filter, context_fn=keeping_everything))
    print(f"{name}: SciPy is called {len(calls)} times; asked about {', '.join(asked)}")
    assert len(calls) == (12 if name == "Function" else 8)

# %%
# The second mistake is the name of an operator that never runs. ``linear`` is made of other operators, so a policy for
# ``linear`` keeps nothing. torch does not report this mistake, but the recipe does:


def layer(x):
    return torch.nn.functional.linear(x, signals[:8]).relu()


def silent():
    return torch.utils.checkpoint.create_selective_checkpoint_contexts([torch.ops.aten.linear.default])


x = torch.randn(4, 512, requires_grad=True)
print("torch:", checkpoint(layer, x, use_reentrant=False, context_fn=silent).shape)
try:
    checkpoint(layer, x, use_reentrant=False, context_fn=save_only("aten::linear"))
except RuntimeError as error:
    print("recipe:", error)
signal.lfilter = lfilter

# %%
# What it costs
# -------------
#
# A selective checkpoint costs the memory of the kept results. In eager code, it also calls Python once more for each
# operator in the block. The compiler asks the policy only once, when it makes the graph.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/checkpointing`: drop all activations, and what this requires.
# * :doc:`/cookbook/06_beyond_autograd/custom_operator`: give code a name that a policy can see.
# * :doc:`/cookbook/04_memory/saved_tensor_hooks`: keep tensors on disk, or in fewer bytes.
# * In torch's documentation: :func:`torch.utils.checkpoint.checkpoint`,
#   :func:`torch.utils.checkpoint.create_selective_checkpoint_contexts`.
