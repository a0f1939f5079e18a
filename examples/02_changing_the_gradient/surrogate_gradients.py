r"""
Surrogate gradients: train neurons that spike
=============================================

You will train neurons to spike at given times, although a spike has no useful derivative. You will also test a gradient
that is deliberately not the true derivative.
"""

# %%
# When to use it
# --------------
#
# Use a surrogate gradient if forward must apply a hard threshold and the layers before it must learn. Examples are
# networks of spiking neurons, gates that are open or closed, and binary codes. If forward may be smooth, use a sigmoid
# instead. To round numbers, start with the simpler :doc:`straight-through estimator
# </cookbook/02_changing_the_gradient/straight_through>`, whose gradient is constant.
#
# The larger the slope :math:`\beta` of the surrogate (how fast it falls away from the threshold), the closer to the
# threshold an input must be to get a large gradient. Move the slider to change the slope:
#
# .. slider:: surrogate
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# The threshold :math:`[x > 0]` is 1 where :math:`x > 0`, and 0 elsewhere. Its derivative is 0 except at one point.
# Backward uses another function :math:`h` instead, which has the form of a bump at the threshold. The recipe offers
# three forms with height 1 and slope :math:`\beta`, of which the first is called fast sigmoid and the last triangle:
#
# .. math::
#
#    \bar{x} = \bar{y}\,h(\beta |x|), \qquad
#    h(d) = \frac{1}{(1 + d)^2}, \quad \frac{1}{1 + d^2}, \quad \max(0, 1 - d) .
#
# The recipe
# ----------
#
# .. recipe:: spike

# sphinx_gallery_tags = ["gradient", "memory"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.autograd import Function, gradcheck

from autograd_cookbook.auditing import audit, saved_bytes
from autograd_cookbook.recipes.surrogate_gradients import spike

# %%
# See it work
# -----------
#
# A leaky integrate-and-fire neuron adds its inputs to a potential and loses a tenth of this potential in each step. If
# the potential is above 1, the neuron spikes and subtracts 1 from it. In the example, 40 noisy inputs are connected to
# 30 such neurons, and these are connected to one output neuron. Training must make the output neuron spike at five
# given times. In the figure, the left panels show the output neuron before and after training with the triangle of
# slope 1. The right panels show three surrogates and their losses:

steps, times = 50, [8, 16, 28, 34, 44]
torch.manual_seed(0)
inputs = (torch.rand(steps, 40) < 0.04).float()
wanted = torch.zeros(steps, 1).index_fill(0, torch.tensor(times), 1.0)
# To compare two spike trains, replace each spike by a trace that decays, and compare the traces.
lags = torch.arange(steps)[:, None] - torch.arange(steps)
traces = torch.where(lags >= 0, 0.8 ** lags.clamp(min=0), 0.0)


def neurons(currents, fire, detach_reset=False):
    potential, potentials, spikes = torch.zeros(currents.shape[1]), [], []
    for current in currents:
        potential = 0.9 * potential + current
        fired = fire(potential - 1)
        potentials.append(potential)
        spikes.append(fired)
        potential = potential - (fired.detach() if detach_reset else fired)
    return torch.stack(potentials), torch.stack(spikes)


def run(weights, fire, detach_reset=False):
    _, hidden = neurons(inputs @ weights[0], fire, detach_reset)
    potential, spikes = neurons(hidden @ weights[1], fire, detach_reset)
    return potential, spikes, (traces @ (spikes - wanted)).square().mean()


def start():
    torch.manual_seed(3)
    return [nn.Parameter(0.3 * torch.randn(40, 30)), nn.Parameter(0.3 * torch.randn(30, 1))]


def train(fire, detach_reset=False):
    """Return the losses of 60 steps, and the weights with the smallest loss."""
    weights, losses, best = start(), [], None
    optimizer = torch.optim.Adam(weights, lr=0.03)
    for _ in range(60):
        optimizer.zero_grad()
        loss = run(weights, fire, detach_reset)[2]
        losses.append(loss.item())
        if losses[-1] == min(losses):
            best = [w.detach().clone() for w in weights]
        loss.backward()
        optimizer.step()
    return losses, best


surrogates = {
    "fast sigmoid, slope 2": lambda x: spike(x, 2.0),
    "triangle, slope 1": lambda x: spike(x, 1.0, "triangle"),
    "triangle, slope 3": lambda x: spike(x, 3.0, "triangle"),
}
runs = {name: train(fire) for name, fire in surrogates.items()}

figure = plt.figure(figsize=(7, 4.2), layout="constrained")
figure.suptitle("A neuron learns when to spike, from a gradient that its threshold does not have")
axes = figure.subplot_mosaic([["before", "bumps"], ["after", "losses"]], width_ratios=[1.4, 1])
for name, weights in (("before", start()), ("after", runs["triangle, slope 1"][1])):
    with torch.no_grad():
        potential, spikes, _ = run(weights, spike)
    axis = axes[name]
    axis.plot(potential)
    axis.axhline(1, color="0.6", linewidth=1, linestyle=":")
    axis.plot(times, [1.75] * 5, "v", color="C1", markersize=6, label="wanted")
    axis.vlines(spikes[:, 0].nonzero(), 1.2, 1.6, color="C0", linewidth=2.5, label="spikes")
    axis.set(ylabel=f"potential {name}", ylim=(-2.1, 2))
axes["after"].set(xlabel="time")
axes["after"].legend(fontsize=8, loc="lower left", ncols=2)
x = torch.linspace(-1.5, 1.5, 301, requires_grad=True)
for (name, fire), style in zip(surrogates.items(), ("-", "--", ":"), strict=True):
    axes["bumps"].plot(x.detach(), torch.autograd.grad(fire(x).sum(), x)[0], style)
    axes["losses"].plot(runs[name][0], style, label=name)
axes["bumps"].set(xlabel="potential − threshold", ylabel="declared derivative")
axes["losses"].set(xlabel="step of training", ylabel="distance", ylim=(0, 0.65))
axes["losses"].legend(fontsize=8, loc="upper right")
plt.show()

for name, (losses, _) in runs.items():
    print(f"{name:22} distance {losses[0]:.3f} at first, {min(losses):.3f} at best")
assert min(runs["fast sigmoid, slope 2"][0]) < 0.3 * runs["fast sigmoid, slope 2"][0][0]
assert min(runs["triangle, slope 1"][0]) < 0.3 * runs["triangle, slope 1"][0][0]
assert min(runs["triangle, slope 3"][0]) == runs["triangle, slope 3"][0][0]

# %%
# In this example, the width of the bump matters more than its form. A triangle of slope 3 is 0 for distances of 1/3 and
# more from the threshold. A neuron whose potential never comes so close to the threshold gets no gradient and does not
# learn. The fast sigmoid is positive at every distance.
#
# The reset: with a gradient or detached
# --------------------------------------
#
# A spike has two effects: it is the output, and it resets the potential. You can subtract ``fired`` or
# ``fired.detach()`` from the potential. Both give the same numbers in forward. In backward they differ, because only
# ``fired`` passes a gradient through the reset. A reset that you compute without the surrogate, for example as
# ``(potential > 1).float()``, acts like ``fired.detach()``. With the decay :math:`\lambda`, the potential :math:`v` and
# the surrogate :math:`h`, the derivative from one step to the next is
#
# .. math::
#
#    \frac{\partial v_{t+1}}{\partial v_t} = \lambda\,(1 - h) \;\text{ with the gradient,} \qquad
#    \frac{\partial v_{t+1}}{\partial v_t} = \lambda \;\text{ with the detached reset.}
#
# Near the threshold, :math:`h` is about 1. So with the gradient, this derivative is about 0, and the gradient that goes
# through the potential to earlier steps vanishes. If the surrogate is higher than 1, the derivative is negative near
# the threshold, which can harm training. The next cell prints the derivative of the second potential with respect to
# the first current, which is just above the threshold. Then the cell trains with both resets:


def through_the_reset(height, detach_reset):
    currents = torch.tensor([[1.01], [0.5]], requires_grad=True)

    def higher(x):  # the same value, height times the gradient
        fired = spike(x, 2.0)
        return height * fired - (height - 1) * fired.detach()

    potentials, _ = neurons(currents, higher, detach_reset)
    return torch.autograd.grad(potentials[1].sum(), currents)[0][0].item()


for height in (1, 3):
    print(f"height {height}: {through_the_reset(height, False):.2f}, detached {through_the_reset(height, True):.2f}")
assert through_the_reset(1, False) < 0.05
assert through_the_reset(3, False) < -1
assert abs(through_the_reset(3, True) - 0.9) < 1e-6

bests = {}
for name in ("fast sigmoid, slope 2", "triangle, slope 1"):
    losses, _ = train(surrogates[name], detach_reset=True)
    bests[name] = min(runs[name][0]), min(losses)
    print(f"{name:22} best distance {bests[name][0]:.3f}, with the detached reset {bests[name][1]:.3f}")
    assert losses[0] == runs[name][0][0]  # the same forward
    assert bests[name][0] < bests[name][1]

# %%
# In this small example with a surrogate of height 1, training is better when the reset has its gradient. On other
# tasks the detached reset can be better, so compare both. If the surrogate is higher than 1, or if the sequences are
# long, start with the detached reset. `Zenke and Vogels <https://doi.org/10.1162/neco_a_01367>`_ found that the height
# of the surrogate matters much more than its form.
#
# How to test it
# --------------
#
# ``gradcheck`` compares the gradient with finite differences of the values, so it must reject a surrogate gradient:

potentials = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
try:
    gradcheck(spike, (potentials,))
except RuntimeError as error:
    print("torch", torch.__version__, "gradcheck:", str(error).splitlines()[0])
else:
    raise AssertionError

# %%
# To test the gradient, write a function that has the same values and the *intended* gradient, computed by autograd.
# For this purpose, take a function :math:`g` whose derivative is the surrogate. Add :math:`g(x) - g(x)` to the
# threshold, and detach the second :math:`g(x)`. This adds 0 to the value and :math:`g'(x)` to the gradient. The
# function ``audit`` of ``autograd_cookbook`` compares values and gradients of your ``Function`` with those of the
# function that you pass as ``surrogate``:


def declared(x, slope=2.0):
    smooth = x / (1 + slope * x.abs())
    return (x > 0).to(x.dtype) + (smooth - smooth.detach())


class Careless(Function):
    """This backward forgets the square."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output / (1 + 2.0 * x.abs())


quick = {"surrogate": declared, "only": ["first_order", "second_order", "special_points"]}
report = audit(Careless.apply, (potentials,), **quick)
print("careless:", report.findings[0].summary)
assert not report.ok
assert audit(spike, (potentials,), **quick).ok

# %%
# The wrong version
# -----------------
#
# The first wrong version uses no ``Function``. The result of a comparison does not require grad, so no gradient reaches
# the layers before it. Here PyTorch raises an error, because no other part of the loss requires grad. If another part
# does, there is no error, and these layers silently do not learn:

weights = start()
try:
    run(weights, lambda x: (x > 0).float())[2].backward()
except RuntimeError as error:
    print(str(error).partition(".")[0])
(run(weights, lambda x: (x > 0).float())[2] + weights[1].square().sum()).backward()
print("with a penalty on the last weights: gradient of the first weights", weights[0].grad)
assert weights[0].grad is None

# %%
# The second wrong version trains with a sigmoid in forward, and replaces it by the threshold after training. The
# gradient is exact, but it belongs to another network. With a sigmoid, the neurons output fractions of a spike, and
# training relies on these fractions. The threshold turns each fraction into 0 or 1, so the result is worse:


def soft(x):
    return torch.sigmoid(10 * x)


losses, weights = train(soft)
with torch.no_grad():
    hardened = run(weights, spike)[2].item()
print(f"soft neurons: distance {min(losses):.3f}; with a threshold in their place {hardened:.3f}")
print(f"trained with spikes in forward: {min(runs['triangle, slope 1'][0]):.3f}")
assert hardened > 2 * min(losses)

# %%
# What it costs
# -------------
#
# .. costs::
#
# The recipe keeps only its input, which is an argument. If you compile, you need no ``Function``: the compiled function
# ``declared`` from the test above keeps no more bytes than the recipe and is faster. In eager mode, ``declared`` also
# keeps its denominator:

potentials = torch.randn(100_000, requires_grad=True)
kept = {name: saved_bytes(f, potentials) // 100_000 for name, f in {"spike": spike, "composed": declared}.items()}
print(f"bytes an element beyond the input, not compiled: {kept}")
assert kept["spike"] == 0

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/02_changing_the_gradient/straight_through`: surrogate gradients that are constant 1.
# * :doc:`/cookbook/02_changing_the_gradient/fake_quantization`: rounding to many levels, with a learned distance.
# * :doc:`/cookbook/06_beyond_autograd/approximate_gradients`: how to estimate a gradient that autograd cannot compute.
# * :doc:`/guide/compiled_rules`: how to keep this backward when you compile code that calls :mod:`torch.func`.
# * In torch's documentation: :class:`torch.autograd.Function`, :func:`torch.autograd.gradcheck`.
