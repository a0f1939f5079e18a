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
# ``Function``; if you only clip what the optimizer sees, :func:`torch.nn.utils.clip_grad_norm_` is enough.
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

import matplotlib.pyplot as plt
import torch
from torch import nn

from autograd_cookbook.audit import peak_bytes
from autograd_cookbook.hooks import GradientLog, clip_gradient, saved_as, step_in_backward

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
# is alive in place of all of them:


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
# Which hook sees what
# --------------------
#
# There are five places to hang a hook. For :math:`y = 2x,\ z = y^2` at :math:`x = 3`, with :math:`\bar{z} = 1`:

x = torch.tensor(3.0, requires_grad=True)
y = 2 * x
z = y.square()
seen = []
y.register_hook(lambda grad: seen.append(("tensor", grad.item())))
y.retain_grad()
z.grad_fn.register_prehook(lambda grads: seen.append(("before the node of z", grads[0].item())))
z.grad_fn.register_hook(lambda inputs, outputs: seen.append(("after the node of z", inputs[0].item())))
x.register_post_accumulate_grad_hook(lambda leaf: seen.append(("accumulated", leaf.grad.item())))
z.backward()
for place, value in seen:
    print(f"{place:21} {value:g}")
print(f"{'y.retain_grad()':21} {y.grad.item():g}")
assert [value for _, value in seen] == [1, 12, 12, 24]
assert y.grad.item() == 12

# %%
# A hook on a *node* gets all gradients that go in or come out at once; returning a tuple replaces them. A hook on a
# tensor gets one, and is what you want nearly always. ``retain_grad`` keeps what the hooks of its tensor have left,
# even of those that were registered after it:

y = 2 * x
y.retain_grad()
y.register_hook(lambda grad: 10 * grad)
y.square().backward()
print("retained after a hook that multiplies by 10:", y.grad.item())
assert y.grad.item() == 120

# %%
# The fifth is the hook of a module. It works by wrapping inputs and outputs in a ``Function`` of its own, and that
# shows: what the module returns may not be changed in place any more.

layer = nn.Linear(2, 2)
norms = []
handle = layer.register_full_backward_hook(lambda module, ins, outs: norms.append(float(outs[0].norm())))
data = torch.ones(1, 2, requires_grad=True)
layer(data).sum().backward()
print("norm of the gradient of its output:", norms)
try:
    layer(data).relu_()
except RuntimeError as error:
    print(str(error).split(".")[0])
handle.remove()
layer(data).relu_()  # without the hook it may

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
# What it costs
# -------------
#
# A hook is one Python call per backward, and no memory. Clipping by norm reads the gradient once more. Hooks on
# one tensor run in the order of their registration, and each gets what the one before returned:

x = torch.ones(1, requires_grad=True)
order = []
x.register_hook(lambda grad: (order.append(f"first sees {grad.item():g}"), grad + 1)[1])
x.register_hook(lambda grad: (order.append(f"second sees {grad.item():g}"), grad * 10)[1])
x.register_post_accumulate_grad_hook(lambda p: order.append(f"post-accumulate sees {p.grad.item():g}"))
x.sum().backward()
print("; ".join(order))
assert x.grad.item() == 20

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/checkpointing`: saved-tensor hooks that store nothing at all.
# * :doc:`/cookbook/01_first_steps/template`: when the formula itself should change.
# * In torch's documentation: :meth:`torch.Tensor.register_hook`,
#   :meth:`torch.Tensor.register_post_accumulate_grad_hook`, :class:`torch.autograd.graph.saved_tensors_hooks`.
