r"""
Hessians: differentiate the gradient
====================================

You will write a function whose gradient can be differentiated again, and compute Hessian-vector products and whole
Hessians of any model.
"""

# %%
# When to use it
# --------------
#
# Use second derivatives when you need curvature, for example for Newton steps, sharpness, influence functions or
# physics-informed losses. In most cases, a product :math:`Hv` of the Hessian and a vector is enough. The whole Hessian
# of :math:`n` variables costs as much as :math:`n` products.
#
# For whole Hessians, ``torch.func.hessian`` gives the same numbers as the recipe. For products, torch has two
# functions. In the run below, ``torch.autograd.functional.vhp`` needs the least time and memory, and the peak of
# ``torch.autograd.functional.hvp`` is one and a half times that of the recipe. Neither of the two works under ``vmap``
# (torch 2.13), but the recipes do. The recipes also let you choose between reverse and forward mode, report wrong
# shapes, and show how to write such functions.
#
# The gradient
# ------------
#
# .. math::
#
#    H v = \nabla_x \left( \nabla f(x)^\top v \right)
#    = \left.\frac{d}{dt}\right|_{t=0} \nabla f(x + t v) .
#
# The first form runs backward twice, and the second form runs forward mode through backward. In both cases, PyTorch
# also differentiates the ``backward`` of a custom function. So ``backward`` must consist of differentiable operations
# on tensors that autograd knows: inputs and outputs.
#
# The recipe
# ----------
#
# .. recipe:: hvp
#
# .. recipe:: hessian
#
# .. recipe:: jacobian
#
# .. recipe:: log_cosh

# sphinx_gallery_tags = ["second order", "forward mode"]
# sphinx_gallery_thumbnail_number = 1

import time

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable

from autograd_cookbook.auditing import peak_bytes
from autograd_cookbook.recipes.hessian import hessian, hvp, log_cosh

# %%
# See it work
# -----------
#
# A small network learns a sine with a log-cosh loss. The left figure shows the eigenvalues of the Hessian of the loss.
# Before training, the loss curves up in some directions and down in others. After training, it curves up steeply in a
# few directions, and little in all others. The right figure compares the time of a whole Hessian with the time of one
# product, for functions of different sizes.

torch.manual_seed(0)
data = torch.linspace(-3, 3, 40, dtype=torch.float64)[:, None]
target = data.sin()
net = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1)).double()
shapes = [(name, p.shape, p.numel()) for name, p in net.named_parameters()]


def loss(vector):
    pieces = vector.split([count for _, _, count in shapes])
    parameters = {name: piece.view(shape) for (name, shape, _), piece in zip(shapes, pieces, strict=True)}
    return log_cosh(torch.func.functional_call(net, parameters, data) - target).mean()


start = nn.utils.parameters_to_vector(net.parameters()).detach()
vector = start.clone().requires_grad_()
optimizer = torch.optim.LBFGS([vector], max_iter=200, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    value = loss(vector)
    value.backward()
    return value


optimizer.step(closure)
end = vector.detach()

figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
figure.suptitle("Curvature of a loss: eigenvalues of its Hessian, and the cost of having them")
for point, label, style in ((start, "before training", "o"), (end, "after", "s")):
    eigenvalues = torch.linalg.eigvalsh(hessian(loss, point)).flip(0)
    lowest = eigenvalues[-1].item()
    assert lowest < -0.1 if point is start else lowest > -1e-3
    left.plot(eigenvalues, style, markersize=4, fillstyle="none", label=f"{label}, loss {loss(point):.1g}")
left.set_yscale("symlog", linthresh=1e-6)
left.axhline(0, color="0.7", linewidth=0.8)
left.set(xlabel="index", ylabel="eigenvalue", yticks=[-1e-2, -1e-5, 0, 1e-5, 1e-2])
left.legend(fontsize=8)


def milliseconds(function, *args):
    function(*args)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        function(*args)
        times.append(1000 * (time.perf_counter() - begin))
    return min(times)


def coupled(x):
    return log_cosh(x * x.roll(1)).sum()


sizes = [64, 128, 256, 512, 1024, 2048]
points = [torch.randn(n) for n in sizes]
right.loglog(sizes, [milliseconds(hessian, coupled, p) for p in points], "-o", label="whole Hessian")
right.loglog(sizes, [milliseconds(hvp, coupled, p, torch.ones_like(p)) for p in points], "--s", label="one product Hv")
right.set(xlabel="number of variables", ylabel="milliseconds")
right.legend(fontsize=8)
plt.show()

direction = torch.randn_like(end)
assert torch.allclose(hvp(loss, end, direction), hessian(loss, end) @ direction, rtol=1e-9)

# %%
# A product has :math:`n` numbers, and the Hessian has :math:`n^2`. For this network:

print(f"{end.numel()} parameters; a product holds {end.numel()} numbers, the Hessian {end.numel() ** 2}")

# %%
# The wrong version
# -----------------
#
# This ``Function`` saves an intermediate, ``tanh(x)``, because backward will need it. The first derivative is right.
# But the saved tensor was made inside of ``forward``, where autograd does not record, so autograd treats it as a
# constant in the second derivative:


class SavesIntermediate(Function):
    @staticmethod
    def forward(input):
        return input.cosh().log(), input.tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad_output, _):
        return grad_output * ctx.saved_tensors[0]


def wrong(input):
    return SavesIntermediate.apply(input)[0]


x = torch.randn(3, dtype=torch.float64, requires_grad=True)
print("torch", torch.__version__)
print("gradcheck of the wrong one:", gradcheck(wrong, (x,)))
print("its Hessian:      ", hessian(lambda x: wrong(x).sum(), x.detach()).diagonal().tolist())
print("the right Hessian:", hessian(lambda x: log_cosh(x).sum(), x.detach()).diagonal().tolist())
try:
    gradgradcheck(wrong, (x,))
except RuntimeError as error:
    print("gradgradcheck:", str(error).splitlines()[0])
assert gradgradcheck(log_cosh, (x,))

# %%
# ``once_differentiable`` should turn this mistake into an error, but not every second derivative raises. If you combine
# the first derivative with a term that depends on ``x``, autograd treats the first derivative as a constant. A part of
# the second derivative is then silently missing:


class Once(Function):
    @staticmethod
    def forward(input):
        return input**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return 3 * ctx.saved_tensors[0] ** 2 * grad_output


x = torch.tensor(2.0, requires_grad=True)
(first,) = torch.autograd.grad(Once.apply(x), x, create_graph=True)
print("gradient requires grad:", first.requires_grad)
(partial,) = torch.autograd.grad(first * x, x)
print(f"derivative of f'(x) x: {partial.item():g}, should be f''(x) x + f'(x) = {(6 * x * x + 3 * x**2).item():g}")
assert partial.item() == 12

(first,) = torch.autograd.grad(Once.apply(x) * x, x, create_graph=True)
try:
    first.backward()
except RuntimeError as error:
    print("and where its gradient depends on x:", error)

# %%
# Forward over reverse
# --------------------
#
# Is forward over reverse faster? This depends on the function, so measure. Forward over reverse needs forward mode in
# every operation of backward. Most of torch's own operations have forward mode, and a custom function needs a ``jvp``.
# Without a ``jvp``, PyTorch raises an error:

x = torch.randn(500)
reverse, forward = (
    milliseconds(lambda m=m: hessian(lambda x: (x * x.roll(1)).sin().sum(), x, m))
    for m in ("reverse", "forward_over_reverse")
)
print(f"500 variables: forward over reverse takes {forward / reverse:.2f} times the time of reverse over reverse")
try:
    hvp(lambda x: log_cosh(x).sum(), x, x, "forward_over_reverse")
except RuntimeError as error:
    print(str(error).strip().splitlines()[0])

# %%
# What it costs
# -------------
#
# .. costs::
#
# The time of one product is a small multiple of the time of one gradient, here for 200,000 variables:

x, v = torch.randn(200_000), torch.randn(200_000)
gradient = torch.func.grad(coupled)
print(f"Hv takes {milliseconds(hvp, coupled, x, v) / milliseconds(gradient, x):.1f} times the time of the gradient")

# %%
# The next cell compares the two modes of the recipe with torch's two functions. Their time depends on the size, but
# their peak, in units of the input, does not:

products = {
    "hvp": hvp,
    "hvp, forward over reverse": lambda f, x, v: hvp(f, x, v, "forward_over_reverse"),
    "torch.autograd.functional.hvp": lambda f, x, v: torch.autograd.functional.hvp(f, x, v)[1],
    "torch.autograd.functional.vhp": lambda f, x, v: torch.autograd.functional.vhp(f, x, v)[1],
}


def of_torch(x):
    return (x * x.roll(1)).tanh().sum()


peaks = {}
for name, product in products.items():
    assert torch.allclose(product(of_torch, x, v), hvp(of_torch, x, v), rtol=1e-4, atol=1e-6)
    peaks[name] = peak_bytes(lambda product=product: product(of_torch, x, v)) / x.untyped_storage().nbytes()
    times = [milliseconds(product, of_torch, *(t[:n] for t in (x, v))) for n in (1000, 200_000)]
    print(f"{name:30} 1,000 numbers: {times[0]:.2f} ms, 200,000: {times[1]:.2f} ms, peak {peaks[name]:.0f} tensors")
assert peaks["torch.autograd.functional.hvp"] > 1.4 * peaks["hvp"]

rows = torch.randn(4, 3)
for name in products:
    try:
        torch.func.vmap(lambda row, name=name: products[name](of_torch, row, row))(rows)
        print(f"vmap of {name}: works")
        assert name.startswith("hvp")
    except RuntimeError as error:
        print(f"vmap of {name}: {str(error).strip()[:70]} ...")
        assert name.startswith("torch")

# %%
# The obvious formula for ``log_cosh``, :math:`|x| + \log(1 + e^{-2|x|}) - \log 2`, subtracts two nearly equal numbers
# when :math:`x` is near 0. So its result has no correct digits there, and can be negative. The recipe uses
# :math:`\log(1 + 2 \sinh^2(x / 2))` instead:

small = torch.tensor(1e-4)
obvious = small + torch.log1p(torch.exp(-2 * small)) - torch.log(torch.tensor(2.0))
print(f"log cosh 1e-4: recipe {log_cosh(small):.4e}, obvious formula {obvious:.4e}, right is 5.0000e-09")
assert abs(log_cosh(small) / 5e-9 - 1) < 1e-6 < abs(obvious / 5e-9 - 1)

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/reductions`: the same mistake with a saved softmax.
# * :doc:`/cookbook/04_memory/checkpointing`: second derivatives of tensors that were not kept.
# * :doc:`/cookbook/06_beyond_autograd/approximate_gradients`: when even the first derivative is unknown.
# * In torch's documentation: :func:`torch.func.hessian`, :func:`torch.autograd.gradgradcheck`.
