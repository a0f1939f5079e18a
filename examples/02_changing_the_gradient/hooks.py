r"""
Hooks: clip, disturb, log and use a gradient on its way
=======================================================

You will change and watch gradients in the middle of backward, update parameters while it still runs, and store
what it needs in half the room.
"""

# %%
# When to use it
# --------------
#
# When forward is right and only the gradient should be treated: limited, measured, consumed early. A hook needs no
# ``Function`` and works on any tensor. If you want to replace a derivative by another formula, write a
# ``Function``; if you only clip what the optimizer sees, :func:`torch.nn.utils.clip_grad_norm_` is enough. And to
# *look* at one gradient, ``retain_grad`` will do.
#
# The gradient
# ------------
#
# A tensor hook is a function of the gradient of one tensor, run when that gradient is complete:
#
# .. math:: \bar{x} \leftarrow h(\bar{x}), \qquad \text{for example } h(g) = g \min(1, c / \lVert g \rVert) .
#
# What comes later in backward, that is, everything *before* this tensor in the network, sees :math:`h(\bar{x})`.
#
# The recipe
# ----------
#
# .. recipe:: clip_gradient
#
# .. recipe:: add_gradient_noise
#
# .. recipe:: GradientLog
#
# .. recipe:: step_in_backward
#
# .. recipe:: saved_as

# sphinx_gallery_tags = ["gradient", "hooks", "memory"]
# sphinx_gallery_thumbnail_number = 1

import warnings

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from autograd_cookbook.auditing import peak_bytes
from autograd_cookbook.recipes.hooks import GradientLog, clip_gradient, saved_as, step_in_backward

# %%
# See it work
# -----------
#
# A recurrent state whose weights expand a little: over 60 steps its gradient explodes. The log shows the norm at
# each step, backward running from right to left. One ``clip_gradient`` per step keeps it flat.

torch.manual_seed(0)
steps, width = 60, 32
weight = 1.35 * torch.linalg.qr(torch.randn(width, width)).Q
inputs = 0.1 * torch.randn(steps, width)


def norms_by_step(max_norm):
    state = torch.zeros(width, requires_grad=True)
    with GradientLog() as log:
        for step in range(steps):
            if max_norm is not None:
                state = clip_gradient(state, max_norm)
            state = log.watch(f"{step:02}", state @ weight + inputs[step])
        state.square().mean().sqrt().backward()
    return [log.norms[name][0] for name in sorted(log.norms)]


figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
axis.semilogy(norms_by_step(None), label="no hook")
axis.semilogy(norms_by_step(1.0), "--", label="clip_gradient(state, 1.0) at each step")
axis.set(xlabel="time step", ylabel="norm of the gradient of the state")
axis.set_title("The gradient of a recurrent state explodes backward in time; clipped on its way it does not")
axis.legend()
plt.show()

assert max(norms_by_step(1.0)) <= 1.4
assert max(norms_by_step(None)) > 1e3

# %%
# A parameter can be updated the moment its gradient is complete, and the gradient freed. At the peak one gradient
# is alive instead of all of them:


def backward_peak(inside):
    layers = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(12)])
    if inside:
        step_in_backward(layers.parameters(), lambda ps: torch.optim.SGD(ps, lr=0.01))
    loss = layers(torch.randn(4, 256)).square().mean()
    return peak_bytes(loss.backward)


after, inside = backward_peak(False), backward_peak(True)
print(f"peak of backward: {after:,} bytes, with steps inside {inside:,}: {after / inside:.1f} times less")
assert inside < after / 4

# %%
# Hooks on *saved tensors* change what is stored between forward and backward. In bfloat16 the value stays exact,
# and the gradient gets an error that you should measure on your own network:


def network(x):
    for _ in range(10):
        x = torch.tanh(x)
    return x


x = torch.randn(50_000, requires_grad=True)
exact = torch.autograd.grad(network(x).sum(), x)[0]
rounded = torch.autograd.grad(saved_as(torch.bfloat16, network, x).sum(), x)[0]
peaks = [
    peak_bytes(lambda: network(x).sum().backward()),
    peak_bytes(lambda: saved_as(torch.bfloat16, network, x).sum().backward()),
]
error = float((rounded - exact).norm() / exact.norm())
print(f"torch {torch.__version__}: peak {peaks[1] / peaks[0]:.2f} of the plain one, relative error {error:.1e}")
assert 0 < error < 0.02

# %%
# Where a hook can sit
# --------------------
#
# On a tensor, on a node of the graph, on a module, on a leaf after accumulation. One backward through
# ``hidden = x * 3`` with all of them, the gradient next to each:

x = torch.ones(1, requires_grad=True)
hidden = x * 3
seen = []


def see(name, factor=None):
    def hook(grad):
        seen.append(f"{name} {grad.item():g}")
        return None if factor is None else grad * factor

    return hook


hidden.retain_grad()  # asked for first, filled last
hidden.register_hook(see("tensor", 2))
hidden.register_hook(see("tensor, second", 5))
hidden.grad_fn.register_prehook(lambda grads: see("node, before")(grads[0]))
hidden.grad_fn.register_hook(lambda grads, grad_outputs: see("node, after")(grads[0]))
x.register_hook(see("leaf", 10))
x.register_post_accumulate_grad_hook(lambda leaf: see("post-accumulate")(leaf.grad))
hidden.sum().backward()
print("; ".join(seen))
print("hidden.grad, from retain_grad:", hidden.grad.item())
assert [entry.split()[-1] for entry in seen] == ["1", "2", "10", "30", "30", "300"]
assert hidden.grad.item() == 10

# %%
# Each gets what the one before returned, and ``retain_grad`` what they all have left, wherever it was called. A node
# hook sees all gradients of one operation at once, before and after. The leaf has no ``grad_fn``, but hooks of its own.
#
# A *module* hook sees the module from outside: gradients of what goes in and of what comes out, and no parameters.
# It knows positional arguments and tensors or tuples of them. What it does not know it leaves out, with a warning or
# with none:


class Product(nn.Module):
    def forward(self, x, y):
        return x * y


class Named(nn.Module):
    def forward(self, x, y):
        return {"product": x * y}


def counted(module, *args, **kwargs):
    """How many gradients of inputs a hook on the module sees, and what torch says."""
    counts = []
    module.register_full_backward_hook(lambda module, grads, grad_outputs: counts.append(len(grads)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        output = module(*args, **kwargs)
        (output["product"] if isinstance(output, dict) else output).sum().backward()
    return (counts or "never called"), [str(w.message)[:58] + " ..." for w in caught]


x, y = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
print("two arguments:       ", *counted(Product(), x, y))
print("one as a keyword:    ", *counted(Product(), x, y=y))
print("a dict is returned:  ", *counted(Named(), x, y))
assert counted(Product(), x, y=y) == ([1], [])
assert counted(Named(), x, y)[0] == "never called"

# %%
# If the hook returns another gradient, it changes what goes on to earlier layers, and not the gradients of the module's
# own parameters:

layer = nn.Linear(2, 2)
layer.register_full_backward_hook(lambda module, grads, grad_outputs: (torch.zeros_like(grads[0]),))
x = torch.ones(1, 2, requires_grad=True)
layer(x).sum().backward()
print("input:", x.grad.tolist(), " weight:", layer.weight.grad.tolist())
assert not x.grad.any()
assert layer.weight.grad.all()

# %%
# Functional calls have no hook
# -----------------------------
#
# A module's hook runs when the module is *called*. ``F.relu(x)``, ``x.relu()`` and ``layer.forward(x)`` call no
# module, so a rule for all activations (guided backpropagation, relevance propagation) misses them. Give the rule to
# a ``Function``, and let a ``TorchFunctionMode`` call it instead of the named functions, wherever the model calls
# them:


class Ruled(Function):
    """Any function of one tensor, with a rule from ``grad_output`` to ``grad_input``."""

    @staticmethod
    def forward(ctx, input, function, rule):
        output = function(input)
        ctx.rule = rule
        ctx.save_for_backward(input, output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.rule(grad_output, *ctx.saved_tensors), None, None


class UseRule(TorchFunctionMode):
    """Inside of ``with``, calls of these functions have the rule in backward."""

    def __init__(self, functions, forward, rule):
        super().__init__()
        self.functions, self.forward, self.rule = functions, forward, rule

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in self.functions:
            return Ruled.apply(args[0], self.forward, self.rule)
        return function(*args, **(kwargs or {}))


def guided(grad_output, input, output):
    return grad_output.clamp(min=0) * (output > 0)


class WithFunctionalRelu(nn.Module):
    def forward(self, x):
        return F.relu(x) - 2 * x.relu() + nn.ReLU()(x)


x = torch.tensor([-1.0, 2.0], requires_grad=True)
plain = torch.autograd.grad(WithFunctionalRelu()(x).sum(), x)[0]
with UseRule({F.relu, torch.relu, torch.Tensor.relu}, torch.relu, guided):
    score = WithFunctionalRelu()(x).sum()
ruled = torch.autograd.grad(score, x)[0]
print("plain:", plain.tolist(), " with the rule, which drops the negative summand:", ruled.tolist())
assert plain.tolist() == [0, 0]
assert ruled.tolist() == [0, 2]

calls = []
linear = nn.Linear(2, 2)
linear.register_full_backward_hook(lambda module, grads, grad_outputs: calls.append(grads))
point = torch.ones(1, 2, requires_grad=True)
linear.forward(point).sum().backward()
F.linear(point, linear.weight).sum().backward()
print("hook of the module, after linear.forward(x) and F.linear(x, linear.weight):", len(calls), "calls")
assert not calls

# %%
# The rule replaces the derivative, so it is the derivative of nothing: tell the audit with ``gradient="custom"``.
#
# The wrong version
# -----------------
#
# A hook must not write into the gradient that it gets. The same memory may be on its way to other consumers. Here
# the gradients of both summands are one tensor, and scaling one of them in place scales the other:

a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
left, right = a * 1, b * 1
right.register_hook(lambda grad: grad.mul_(10))
(left + right).backward(torch.ones(3))
print("in place:   a.grad", a.grad.tolist(), " b.grad", b.grad.tolist(), "(a should have ones)")
assert a.grad.tolist() == [10.0] * 3

a.grad = b.grad = None
left, right = a * 1, b * 1
right.register_hook(lambda grad: grad * 10)
(left + right).backward(torch.ones(3))
print("returned:   a.grad", a.grad.tolist(), " b.grad", b.grad.tolist())
assert a.grad.tolist() == [1.0] * 3

# %%
# And hooks add up. One registered in a training loop on a parameter, and never removed, runs once more with each
# pass:

parameter = torch.ones(1, requires_grad=True)
seen = []
for _ in range(4):
    parameter.register_hook(lambda grad: grad * 0.5)
    parameter.grad = None
    parameter.sum().backward()
    seen.append(parameter.grad.item())
print("gradient of 1, halved once per pass by mistake:", seen)
assert seen == [0.5, 0.25, 0.125, 0.0625]

# %%
# So keep the handle, and remove the hook. ``GradientLog`` does that at the end of ``with``:

handle = parameter.register_hook(lambda grad: grad * 0)
handle.remove()
parameter.grad = None
parameter.sum().backward()
print("after a fifth hook came and went:", parameter.grad.item())
assert parameter.grad.item() == 0.0625

# %%
# A full backward hook wraps the module in a view, and torch refuses to write into it. A network with activations in
# place stops to run as soon as you look at it. ``GradientLog.watch_modules`` puts hooks on the outputs instead:

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))
handle = model[0].register_full_backward_hook(lambda module, grads, grad_outputs: None)
try:
    model(torch.ones(2, 4))
except RuntimeError as error:
    print(str(error).partition(". ")[0])
handle.remove()

with GradientLog() as log:
    log.watch_modules(model)
    model(torch.ones(2, 4)).sum().backward()
print({name: [round(norm, 3) for norm in norms] for name, norms in log.norms.items()})
assert set(log.norms) == {"0", "1", "2"}

# %%
# What it costs
# -------------
#
# A hook is one Python call per backward, and no memory beyond what it returns. Clipping by norm goes over the
# gradient three times more, since its norm must not overflow. ``retain_grad`` keeps a gradient alive that would be
# freed at once:

chain = torch.randn(100_000, requires_grad=True)


def backward_of_chain(retain):
    hidden = [chain.sin()]
    for _ in range(4):
        hidden.append(hidden[-1].sin())
    for tensor in hidden if retain else ():
        tensor.retain_grad()
    hidden[-1].sum().backward()


peaks = [peak_bytes(backward_of_chain, retain) / 400_000 for retain in (False, True)]
print(f"peak of a chain of five: {peaks[0]:.0f} tensors, with retain_grad on each {peaks[1]:.0f}")
assert peaks[1] >= peaks[0] + 3

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/02_changing_the_gradient/clipping`: where to clip, and what it changes.
# * :doc:`/cookbook/04_memory/saved_tensor_hooks`: more to do with saved tensors.
# * :doc:`/cookbook/04_memory/checkpointing`: saved-tensor hooks that store nothing at all.
# * :doc:`/cookbook/01_first_steps/template`: when the formula itself should change.
# * :doc:`/guide/questions_parameters`: freeze rows, weigh losses, Grad-CAM, train one network through another.
# * In torch's documentation: :meth:`torch.Tensor.register_hook`,
#   :meth:`torch.Tensor.register_post_accumulate_grad_hook`, :class:`torch.autograd.graph.saved_tensors_hooks`.
