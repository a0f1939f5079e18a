r"""
Hooks: clip, disturb, log and use a gradient on its way
=======================================================

You will change and log gradients in the middle of backward, and update parameters while backward still runs. You will
also store the saved tensors in half of the memory.
"""

# %%
# When to use it
# --------------
#
# A hook is a function of yours that PyTorch calls during backward, for example with the gradient of a tensor. Use a
# hook if you only want to change, measure or use a gradient, and forward needs no change. A hook needs no ``Function``
# and works on any tensor that requires grad. In these cases, use something else:
#
# * To replace a derivative by another formula, write a ``Function``.
# * To clip the gradients for the optimizer, call :func:`torch.nn.utils.clip_grad_norm_` after backward.
# * To *look* at one gradient, call ``retain_grad`` on its tensor.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{x}` is the gradient of the loss with respect to :math:`x`.
#
# A tensor hook is a function :math:`h` of the gradient of one tensor. The engine, which runs backward, calls the hook
# when this gradient is complete. It then replaces the gradient by the result:
#
# .. math:: \bar{x} \leftarrow h(\bar{x}), \qquad \text{for example } h(g) = g \min(1, c / \lVert g \rVert) .
#
# All layers *before* this tensor in the network then get gradients that are computed from :math:`h(\bar{x})`.
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
# The next cell runs a recurrent network of 60 steps. In backward, each step makes the gradient of the state 1.35 times
# as long, so the gradient explodes. ``GradientLog`` records the norm of this gradient at each step. In the figure,
# backward runs from right to left. With one ``clip_gradient`` per step, the norm does not grow.

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
axis.set_title("The gradient of a recurrent state explodes backward in time, unless you clip it on its way")
axis.legend()
plt.show()

assert max(norms_by_step(1.0)) <= 1.4
assert max(norms_by_step(None)) > 1e3

# %%
# ``step_in_backward`` updates a parameter as soon as its gradient is complete, and then frees the gradient. So at the
# peak, one gradient is in memory instead of all gradients:


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
# Hooks on *saved tensors* change the form in which PyTorch stores tensors between forward and backward. Here,
# ``saved_as`` stores them in bfloat16. The output stays exact, but the gradient gets an error, which you should measure
# for your own network:


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
# You can put a hook on a tensor, on a node of the graph, or on a module. On a leaf, you can also put a hook that runs
# after the gradient has been added to ``.grad``. The next cell registers all of these hooks except the module's. It
# prints the gradient that each hook gets in one backward through ``hidden = x * 3``:

x = torch.ones(1, requires_grad=True)
hidden = x * 3
seen = []


def see(name, factor=None):
    def hook(grad):
        seen.append(f"{name} {grad.item():g}")
        return None if factor is None else grad * factor

    return hook


hidden.retain_grad()  # called first, but gets the final gradient
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
# Each hook gets the result of the hook before. ``retain_grad`` stores the gradient after all tensor hooks, even if you
# call it first. The prehook of a node gets the gradients of the operation's outputs, and the hook of a node gets the
# gradients of its inputs. A leaf has no ``grad_fn``, so register hooks on the leaf itself.
#
# A *module* hook gets the gradients of the module's inputs and outputs, but not of its parameters. PyTorch finds inputs
# that are positional arguments, and outputs that are tensors or tuples of tensors. All other inputs and outputs are
# missing in the hook, in some cases with a warning and in others silently:


class Product(nn.Module):
    def forward(self, x, y):
        return x * y


class Named(nn.Module):
    def forward(self, x, y):
        return {"product": x * y}


def counted(module, *args, **kwargs):
    """Return how many gradients of inputs a hook on the module gets, and the warnings."""
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
# If the module hook returns another gradient, the earlier layers get this gradient. The gradients of the module's own
# parameters do not change:

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
# PyTorch runs a module's hook only if you *call* the module. ``F.relu(x)``, ``x.relu()`` and ``layer.forward(x)`` call
# no module. So a module hook misses the activations in such calls. This is a problem for guided backpropagation and
# relevance propagation. To explain a prediction, these two methods replace the backward of the activations by another
# rule. Write this rule in a ``Function`` instead, and let a :class:`!TorchFunctionMode` call it instead of the
# activations. This mode is a context manager: while you are in its ``with`` block, PyTorch passes each call of a torch
# function to the method ``__torch_function__`` of the mode, which can call another function instead. Here the mode
# calls ``Ruled`` for each function that you list, and calls every other function as it is:


class Ruled(Function):
    """Any function of one tensor, with ``rule`` as its backward."""

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
    """Inside ``with``, calls of these functions use the rule in backward."""

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
# The rule is not the derivative of any function. If you check such a ``Function`` with the audit, pass
# ``gradient="custom"``.
#
# The wrong version
# -----------------
#
# A hook must not write to its gradient in place, because other tensors may use the same memory for their gradients.
# Here both summands of an addition get the same gradient tensor, so a hook that scales the gradient of one summand in
# place also scales the gradient of the other:

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
# If you register a hook in the training loop and never remove it, the parameter has one more hook after each pass, and
# PyTorch runs all of them:

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
# So keep the handle that ``register_hook`` returns, and call its ``remove``. ``GradientLog`` removes its hooks at the
# end of ``with``:

handle = parameter.register_hook(lambda grad: grad * 0)
handle.remove()
parameter.grad = None
parameter.sum().backward()
print("after a fifth hook came and went:", parameter.grad.item())
assert parameter.grad.item() == 0.0625

# %%
# With ``register_full_backward_hook``, the module returns a view of its output. PyTorch raises an error if the next
# layer writes to this view in place, so a network with in-place activations no longer runs.
# ``GradientLog.watch_modules`` avoids this problem, because it puts hooks on the output tensors:

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
# A hook costs one Python call per backward, and memory only for the tensor that it returns. ``clip_gradient`` takes
# longer than a plain norm, because it divides by the largest element first, so that no square overflows.
# ``retain_grad`` keeps a gradient in memory that PyTorch would otherwise free immediately:

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
# * :doc:`/cookbook/02_changing_the_gradient/clipping`: where to clip, and how the place changes the result.
# * :doc:`/cookbook/04_memory/saved_tensor_hooks`: other ways to store saved tensors.
# * :doc:`/cookbook/04_memory/checkpointing`: how to compute tensors again instead of storing them.
# * :doc:`/cookbook/01_first_steps/template`: how to write a ``Function`` with your own formula.
# * :doc:`/guide/questions_parameters`: freeze rows, Grad-CAM, hooks that never run, and
#   :doc:`/guide/questions_losses`: weigh losses, train one network through another.
# * In torch's documentation: :meth:`torch.Tensor.register_hook`,
#   :meth:`torch.Tensor.register_post_accumulate_grad_hook`, :class:`torch.autograd.graph.saved_tensors_hooks`.
