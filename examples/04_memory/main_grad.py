r"""
Main gradients: accumulate in float32 while the weights are bfloat16
====================================================================

You will add the gradients of many micro-batches, the parts into which a large batch is split, to a float32 buffer
``main_grad`` instead of to a bfloat16 ``.grad``. You will also see how much a bfloat16 sum loses: three quarters of the
result after 1024 micro-batches with equal gradients.
"""

# %%
# When to use it
# --------------
#
# Use main gradients when the weights are in bfloat16 or float16 and you sum gradients over many micro-batches, pipeline
# stages or uses of one weight. In bfloat16, :math:`256 + 1` is 256, so a sum stops growing when it is 256 times as
# large as the next summand. Weights in float32 under autocast don't need the recipe, because their ``.grad`` is
# float32.
#
# * ``MainGrad`` is a hook for the parameters of any layer. When a bfloat16 gradient is complete, the hook adds it to
#   the buffer and sets ``.grad`` to None. So during backward, only one parameter at a time has a bfloat16 gradient. If
#   one backward uses a weight many times, ``MainGrad`` does not help, because autograd adds the gradients of all uses
#   in bfloat16 before it calls the hook.
# * ``linear_main_grad`` is a linear layer. Its backward computes the gradient of the weight in float32 and adds it to
#   the buffer, so this gradient is never rounded to bfloat16.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# For the linear layer :math:`y = x W^\top` and the micro-batches :math:`k = 1, 2, \dots`, backward computes
#
# .. math:: \bar{x}_k = \bar{y}_k W, \qquad B \leftarrow B + \bar{y}_k^\top x_k .
#
# The buffer :math:`B` holds the gradient of the weight. Backward returns None as the gradient of the weight, so
# autograd leaves ``.grad`` as it is.
#
# The recipe
# ----------
#
# .. recipe:: MainGrad
#
# .. recipe:: linear_main_grad

# sphinx_gallery_tags = ["memory", "stability", "hooks"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch import nn

from autograd_cookbook.recipes.main_grad import MainGrad, linear_main_grad

print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# The cell sums gradients of a bfloat16 linear layer over micro-batches. The gradients have a common direction, and
# random noise is added to it. The figure shows the error of the sum, relative to the sum in float64.

torch.manual_seed(0)
steps = 512
inputs = (1 + 0.5 * torch.randn(steps, 8, 64)).bfloat16()
weight = torch.randn(32, 64).bfloat16()
points = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]


def grad_itself(inputs):
    parameter = nn.Parameter(weight.clone())
    for x in inputs:
        nn.functional.linear(x, parameter).sum().backward()
        yield parameter.grad


def with_hook(inputs):
    parameter = nn.Parameter(weight.clone())
    with MainGrad([parameter]) as sums:
        for x in inputs:
            nn.functional.linear(x, parameter).sum().backward()
            yield sums.main_grad[parameter]


def in_backward(inputs):
    parameter, buffer = nn.Parameter(weight.clone()), torch.zeros(32, 64)
    for x in inputs:
        linear_main_grad(x, parameter, buffer).sum().backward()
        yield buffer


exact = inputs.double().sum(1).cumsum(0)[:, None, :].expand(-1, 32, -1)
errors = {
    method.__name__: [
        float((found.double() - exact[k]).norm() / exact[k].norm()) for k, found in enumerate(method(inputs))
    ]
    for method in (grad_itself, with_hook, in_backward)
}

figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
labels = {"grad_itself": ".grad in bfloat16", "with_hook": "MainGrad", "in_backward": "linear_main_grad"}
for (name, values), style in zip(errors.items(), ("C1-s", "C0--o", "C0-^"), strict=True):
    axes.loglog(points, [values[k - 1] for k in points], style)
    axes.annotate(labels[name], (1.1 * steps, values[-1]), va="center")
axes.set(xlabel="micro-batches", ylabel="relative error of the summed gradient", xlim=(0.9, 6000))
axes.set_title("The error of a bfloat16 sum grows with the number of micro-batches")
plt.show()

for name, values in errors.items():
    print(f"{labels[name]:20} error after 512: {values[-1]:.2g}")
assert errors["grad_itself"][-1] > 0.01
assert errors["with_hook"][-1] < 2e-3
assert errors["in_backward"][-1] < 1e-6

# %%
# If all gradients are 1, the sum in bfloat16 stops at 256:

parameter = nn.Parameter(torch.ones(1, 1, dtype=torch.bfloat16))
for _ in range(1024):
    nn.functional.linear(torch.ones(1, 1, dtype=torch.bfloat16), parameter).sum().backward()
print("sum of 1024 ones:", parameter.grad.item())
assert parameter.grad.item() == 256

# %%
# If one backward uses the weight 1024 times, the sum of ``MainGrad`` stops there, too, but that of ``linear_main_grad``
# does not:

parameter.grad = None
one, buffer = torch.ones(1, 1, dtype=torch.bfloat16), torch.zeros(1, 1)
with MainGrad([parameter]) as sums:
    torch.stack([nn.functional.linear(one, parameter).float() for _ in range(1024)]).sum().backward()
    print("1024 uses, MainGrad:        ", sums.main_grad[parameter].item())
    assert sums.main_grad[parameter].item() == 256
torch.stack([linear_main_grad(one, parameter, buffer).float() for _ in range(1024)]).sum().backward()
print("1024 uses, linear_main_grad:", buffer.item())
assert buffer.item() == 1024

# %%
# A step of the optimizer
# -----------------------
#
# The optimizer keeps its own float32 copy of the weights and reads the buffers. After each step, the model gets the new
# weights, rounded to bfloat16:

model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).bfloat16()
main_weights = [parameter.detach().float().requires_grad_() for parameter in model.parameters()]
optimizer = torch.optim.SGD(main_weights, lr=0.05)
data = torch.randn(16, 4, 8).bfloat16()
losses = []
with MainGrad(model.parameters()) as sums:
    for _ in range(30):
        total = 0.0
        for batch in data:
            loss = (model(batch) - batch[:, :1]).square().mean() / len(data)
            loss.backward()
            total += loss.item()
        for main, buffer in zip(main_weights, sums.main_grad.values(), strict=True):
            main.grad = buffer
        optimizer.step()
        sums.zero()
        with torch.no_grad():
            for parameter, main in zip(model.parameters(), main_weights, strict=True):
                parameter.copy_(main)
        losses.append(total)
print(f"loss {losses[0]:.3f}, after 30 steps {losses[-1]:.3f}")
assert losses[-1] < 0.5 * losses[0]

# %%
# The wrong version
# -----------------
#
# With main gradients, ``.grad`` is None. So a clip by norm, an optimizer of the bfloat16 weights, a check for
# infinities, and other code that reads ``.grad`` silently skip the parameter. Clip the buffers instead.

parameter, buffer = nn.Parameter(weight.clone()), torch.zeros(32, 64)
linear_main_grad(inputs[0], parameter, buffer).sum().backward()
print("norm seen by clip_grad_norm_:", nn.utils.clip_grad_norm_([parameter], 1.0).item())
print("norm of the buffer:          ", round(buffer.norm().item(), 1))
assert parameter.grad is None
assert buffer.norm() > 100

# %%
# There are three more traps. **Each backward adds to the buffer**, even if you ask for the gradient of the input alone.
# The reason is that ``ctx.needs_input_grad`` says which inputs require grad, not which gradients you asked for:

buffer.zero_()
x = inputs[0].clone().requires_grad_()
torch.autograd.grad(linear_main_grad(x, parameter, buffer).sum(), x)
assert buffer.any()
print("added for the input's gradient:", bool(buffer.any()))

# %%
# **Hooks of the weight still run** in torch 2.13, although the gradient of the weight is None. A hook that reads
# ``.grad`` must expect None. Distributed training averages ``.grad`` and does not see your buffer. Average the buffers
# yourself after the last micro-batch.

seen = []
handle = parameter.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
linear_main_grad(inputs[0], parameter, buffer).sum().backward()
handle.remove()
print("the hook of the weight saw:", seen)
assert seen == [None]

# %%
# **A second derivative** can't go through a buffer. ``linear_main_grad`` raises an error:

x = torch.randn(2, 64, requires_grad=True)
layer = torch.randn(32, 64, requires_grad=True)
(first,) = torch.autograd.grad(linear_main_grad(x, layer, torch.zeros(32, 64)).square().sum(), x, create_graph=True)
try:
    first.sum().backward()
except RuntimeError as error:
    print(str(error).splitlines()[0])
else:
    raise AssertionError("the second derivative did not raise")

# %%
# What it costs
# -------------
#
# The buffers take 4 bytes per weight, which is twice as much as a bfloat16 ``.grad``. ``linear_main_grad`` also makes
# float32 copies of its input and its gradient for the product. Some GPU kernels multiply bfloat16 operands and add to a
# float32 result, so they need no copies. We have not measured such a kernel.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/02_changing_the_gradient/hooks`: other hooks on gradients, and a step inside of backward.
# * :doc:`/cookbook/07_compile/mixed_precision`: float32 inside of a function under autocast.
# * :doc:`/guide/training`: how to accumulate over micro-batches, and how to scale a mean loss for it.
