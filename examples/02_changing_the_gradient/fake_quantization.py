r"""
Fake quantization and learned step size
=======================================

You will train weights of two and three bits: forward rounds the weights, and backward passes the gradient as if there
were no rounding. You will also train the distance between two levels together with the weights.
"""

# %%
# When to use it
# --------------
#
# Use this page if your network must run with integers of four bits or fewer. With eight bits, you rarely need to train
# with rounding. Round the trained weights instead.
#
# The page has two recipes:
#
# * ``fake_quantize`` rounds with a fixed step. The step is the distance between two neighboring levels, and PyTorch
#   calls it ``scale``. :func:`torch.fake_quantize_per_tensor_affine` has the same gradient, so use torch's function in
#   most cases. Use the recipe to change the gradient, or to work in float64. For backward, torch's function keeps a
#   mask of one byte per element, and the recipe keeps its input. So the recipe saves memory only if the input stays in
#   memory anyway, as a weight does: see "What it costs".
# * ``learned_step_size`` also learns the step. PyTorch has only a private function for it, which may change in any
#   release.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# Rounding has derivative 0 almost everywhere. So backward treats the rounding as the identity, and uses only the
# derivative of the clamp to the range of the levels. If the level of an element is in the range, its gradient passes
# unchanged. If the level is outside, its gradient is 0. Below, :math:`s` is the step, :math:`z` is the zero point (the
# level that stands for 0), and :math:`q = \operatorname{round}(x / s) + z` is the level of :math:`x`. The square
# brackets are 1 if the condition holds, and 0 if not:
#
# .. math::
#
#    y = s\,(\operatorname{clamp}(q, q_{\min}, q_{\max}) - z), \qquad
#    \bar{x} = \bar{y}\,[q_{\min} \le q \le q_{\max}] .
#
# The method LSQ (learned step size quantization) also gives the step :math:`s` a gradient. LSQ uses the zero point 0.
# Differentiate :math:`y = s \operatorname{round}(x / s)` by the product rule, with derivative 1 for the rounding:
#
# * Inside the range, the result is :math:`\partial y / \partial s = \operatorname{round}(x / s) - x / s`. This is the
#   rounding error, measured in steps.
# * Above the range, :math:`y = s\,q_{\max}`, so the derivative is :math:`q_{\max}`.
# * Below the range, :math:`y = s\,q_{\min}`, so the derivative is :math:`q_{\min}`.
#
# All :math:`N` elements share one step, so the gradient of the step is a sum of :math:`N` terms. With many elements,
# this sum is large, so LSQ multiplies it by :math:`1 / \sqrt{N q_{\max}}`.
#
# The recipe
# ----------
#
# .. recipe:: fake_quantize
#
# .. recipe:: learned_step_size

# sphinx_gallery_tags = ["gradient", "memory"]
# sphinx_gallery_thumbnail_number = 1

import itertools
import warnings

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver
from torch.ao.quantization._learnable_fake_quantize import _LearnableFakeQuantize
from torch.nn import functional as F

from autograd_cookbook.auditing import audit, held_bytes
from autograd_cookbook.recipes.fake_quantization import fake_quantize, initial_step, learned_step_size

# %%
# See it work
# -----------
#
# The next cells train a network of three layers for handwritten digits in float32. Then they round its weights, either
# without further training, or with 50 more optimizer steps in which forward rounds the weights.

digits = load_digits()
images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
train, test = order[:1200], order[1200:]


def logits(weights, x, quantize):
    for k, weight in enumerate(weights):
        x = (x.relu() if k else x) @ quantize(weight, k).mT
    return x


def fit(weights, quantize, others=(), optimizer=torch.optim.Adam, lr=5e-3, steps=50):
    optimizer, losses = optimizer([*weights, *others], lr=lr), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(logits(weights, images[train], quantize), labels[train])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def accuracy(weights, quantize):
    with torch.no_grad():
        return (logits(weights, images[test], quantize).argmax(1) == labels[test]).float().mean().item()


def copied(weights):
    return [nn.Parameter(w.detach().clone()) for w in weights]


def full(weight, k):
    return weight


torch.manual_seed(0)
sizes = [64, 32, 32, 10]
trained = [nn.Parameter(torch.randn(o, i) * (2 / i) ** 0.5) for i, o in itertools.pairwise(sizes)]
fit(trained, full, lr=2e-2, steps=60)
in_float = accuracy(trained, full)

# %%
# Rounding after training chooses the quantization step of each row of weights so that the squared error is smallest.
# During training, the quantization step is either learned, or fixed so that the last level stands for the largest
# weight. The left figure compares the accuracies. The right figure shows the loss with 2 bits. For one of its curves,
# autograd differentiates the rounding. The gradient is then 0, so the loss does not change.


def largest_scale(weight, low, high):
    return weight.detach().abs().amax(1) / high


def best_scale(weight, low, high):
    candidates = [largest_scale(weight, low, high) * f for f in torch.linspace(0.2, 1, 33)]
    errors = [(fake_quantize(weight, s, 0, low, high, 0) - weight).square().sum(1) for s in candidates]
    return torch.stack(candidates).gather(0, torch.stack(errors).argmin(0, keepdim=True))[0]


def with_scales(scale, bits, train):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    scales, weights = [scale(w, low, high) for w in trained], copied(trained)

    def quantize(weight, k):
        return fake_quantize(weight, scales[k], 0, low, high, 0)

    losses = fit(weights, quantize) if train else []
    return accuracy(weights, quantize), losses


def with_steps(bits):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    steps, weights = [nn.Parameter(initial_step(w, high, 0)) for w in trained], copied(trained)

    def quantize(weight, k):
        return learned_step_size(weight, steps[k], low, high, 0)

    losses = fit(weights, quantize, steps)
    return accuracy(weights, quantize), losses


def plain(weight, k):  # round and clamp with the gradients of autograd
    scale = best_scale(weight, -2, 1)[:, None]
    return (weight / scale).round().clamp(-2, 1) * scale


bits = [2, 3, 4, 8]
results = {
    "rounded afterwards": [with_scales(best_scale, b, False) for b in bits],
    "trained, step fixed": [with_scales(largest_scale, b, True) for b in bits],
    "trained, step learned": [with_steps(b) for b in bits],
}
histories = {"no straight-through": fit(copied(trained), plain)}
histories |= {name: runs[0][1] for name, runs in results.items() if runs[0][1]}
accuracies = {name: [a for a, _ in runs] for name, runs in results.items()}

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.4), layout="constrained", width_ratios=[1.15, 1])
figure.suptitle("With two bits a weight, rounding breaks the network; training with rounding repairs it")
left.axhline(in_float, color="0.6", linewidth=1, label="float32")
for (name, values), style in zip(accuracies.items(), (":o", "--s", "-^"), strict=True):
    left.plot(bits, values, style, markersize=5, label=name)
left.set(xlabel="bits per weight", ylabel="accuracy on unseen digits", xticks=bits, ylim=(None, 1))
left.legend(fontsize=8)
for (name, losses), style in zip(histories.items(), ("-.", "--", "-"), strict=True):
    right.semilogy(losses, style, label=name)
right.set(xlabel="step of training, 2 bits", ylabel="loss")
right.legend(fontsize=8)
plt.show()

print(f"float32: {in_float:.1%}")
for name, values in accuracies.items():
    print(f"{name:22}", "  ".join(f"{b} bits {v:.1%}" for b, v in zip(bits, values, strict=True)))
flat = histories["no straight-through"]
print(f"no straight-through: loss {flat[0]:.3f} at the first step, {flat[-1]:.3f} at the last: the gradient is 0")
assert flat[0] == flat[-1]
assert accuracies["trained, step learned"][0] > accuracies["rounded afterwards"][0] + 0.1
assert abs(accuracies["rounded afterwards"][-1] - in_float) < 0.01

# %%
# The fixed step in the figure, for which the largest weight is rounded to the last level, is not the best step. The
# next cell searches for the step with the smallest squared error, fixes it, and trains the weights. It shows whether a
# learned step is better than the best fixed step:

searched, _ = with_scales(best_scale, 2, True)
print(f"2 bits, trained, step searched and fixed: {searched:.1%}")
assert abs(searched - accuracies["trained, step learned"][0]) < 0.03

# %%
# The accuracy is about the same. So in this example, learning the step only replaces the search.
#
# In float32, the recipe returns the values and gradients of torch's function bit for bit, also halfway between two
# levels. In float64, torch's function rounds the step to float32. In both dtypes, torch's function turns NaN into the
# lowest level on a CPU, which hides that the network has diverged. The recipe returns NaN.

x = (torch.arange(-200, 200) * 0.05).requires_grad_()
for scale, zero_point in ((0.1, 0), (0.3, 3), (0.7, -8)):
    ours, theirs = (f(x, scale, zero_point, -8, 7) for f in (fake_quantize, torch.fake_quantize_per_tensor_affine))
    assert torch.equal(ours, theirs)
    assert torch.equal(*(torch.autograd.grad(y.sum(), x)[0] for y in (ours, theirs)))
print("torch", torch.__version__)
assert torch.fake_quantize_per_tensor_affine(torch.tensor(float("nan")), 0.1, 0, -8, 7) == -8 * torch.tensor(0.1)
for value in (0.31, float("nan")):
    x = torch.tensor(value, dtype=torch.float64)
    pair = [f(x, 0.1, 0, -8, 7).item() for f in (fake_quantize, torch.fake_quantize_per_tensor_affine)]
    print(f"float64 {value:4}: ours {pair[0]}, torch {pair[1]}")

# %%
# Who sets the scale: an observer or the gradient
# -----------------------------------------------
#
# In QAT (quantization-aware training), the scale and the zero point come from one of three places:
#
# * **An observer** computes both in forward from the smallest and the largest value that it has seen. Scale and zero
#   point are buffers, so no optimizer changes them. By default, ``torch.ao.quantization`` uses such an observer. To
#   freeze them after some epochs, call ``disable_observer()``.
# * **A calibration** before training sets both once, as for quantization without training.
# * **A gradient**: the scale is a parameter, as in LSQ.
#
# The next cell takes one optimizer step in each mode of ``_LearnableFakeQuantize``, a private module of PyTorch. The
# modes are:
#
# * Before you call one of the two methods below, the scale has a gradient, but the observer replaces the scale in each
#   forward. So the optimizer has no effect on the scale.
# * After ``enable_param_learning()``, the observer stops, and the optimizer trains the scale. Call it after some
#   forwards with the observer.
# * After ``enable_static_estimate()``, the observer sets the scale again, and the scale gets no gradient.

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    observed = FakeQuantize(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255)
    learned = _LearnableFakeQuantize(MovingAverageMinMaxObserver, quant_min=0, quant_max=255)
signal = torch.linspace(-2, 3, 500)
observed(signal)
assert not list(observed.parameters())
assert not observed.scale.requires_grad
optimizer = torch.optim.SGD(learned.parameters(), lr=0.1)
for mode in ("new", "enable_param_learning", "enable_static_estimate"):
    if mode != "new":
        getattr(learned, mode)()
    optimizer.zero_grad()
    error = (learned(signal.clone().requires_grad_()) - signal).square().mean()
    of_the_observer = torch.isclose(learned.scale, observed.scale).item()
    error.backward()
    has_gradient = learned.scale.grad is not None
    optimizer.step()
    print(f"{mode:23} gradient: {has_gradient!s:5}  scale of the observer: {of_the_observer}")
    assert (of_the_observer, has_gradient) == {"new": (True, True), "enable_static_estimate": (True, False)}.get(
        mode, (False, True)
    )

# %%
# If a learned scale does not change, look for one of these causes:
#
# * The module is still in the mode of the observer.
# * You made the optimizer before the scale was a parameter.
# * The scale is a buffer, or your code overwrites its ``.data``.
# * The quantization is off (``fake_quant_enabled``).
#
# If you write your own module, make the scale a parameter in ``__init__``. Set its value from the first batch, with
# ``copy_`` under ``no_grad``:


class LearnedQuantizer(nn.Module):
    def __init__(self, low, high):
        super().__init__()
        self.low, self.high = low, high
        self.step = nn.Parameter(torch.ones(()))
        self.register_buffer("started", torch.tensor(False))

    def forward(self, input):
        if not self.started:
            with torch.no_grad():
                self.step.copy_(initial_step(input, self.high))
                self.started.fill_(True)
        return learned_step_size(input, self.step, self.low, self.high)


quantizer = LearnedQuantizer(-8, 7)
optimizer = torch.optim.Adam(quantizer.parameters(), lr=0.01)
errors = []
for _ in range(100):
    optimizer.zero_grad()
    error = (quantizer(signal) - signal).square().mean()
    error.backward()
    optimizer.step()
    errors.append(error.item())
print(f"error with the first step {errors[0]:.4f}, with the learned step {errors[-1]:.4f}")
assert errors[-1] < 0.9 * errors[0]

# %%
# The wrong version
# -----------------
#
# The mask is the bracket in the formula: it says which levels are in the range. The next cell checks whether
# :math:`\operatorname{round}(x / s)` is in the range, and forgets to add the zero point :math:`z` first. This is right
# only for a zero point of 0. Signed weights often have levels from 0 to 15 and the zero point 8. Unless a negative
# weight is rounded to 0, its :math:`\operatorname{round}(x / s)` is negative, and so below the first level. The wrong
# mask is then 0, and the weight gets no gradient:


class EarlyMask(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, scale, zero_point, low, high):
        level = (input / scale).round()
        ctx.save_for_backward((level >= low) & (level <= high))
        return ((level + zero_point).clamp(low, high) - zero_point) * scale

    @staticmethod
    def backward(ctx, grad_output):
        (mask,) = ctx.saved_tensors
        return grad_output * mask, None, None, None, None


x = torch.linspace(-1.2, 1.2, 9, dtype=torch.float64, requires_grad=True)
print("input ", [f"{v:4.1f}" for v in x.tolist()])
for name, function in {"early": EarlyMask.apply, "recipe": fake_quantize}.items():
    (gradient,) = torch.autograd.grad(function(x, 0.125, 8, 0, 15).sum(), x)
    print(f"{name:6}", [f"{v:4.0f}" for v in gradient.tolist()])
    assert bool(gradient[x < 0].any()) == (name == "recipe")

# %%
# ``gradcheck`` cannot find this mistake, because it rejects both the wrong and the right version. The function
# ``audit`` of ``autograd_cookbook`` finds it if you pass, as ``surrogate``, a function that has the intended gradient:

declared = torch.fake_quantize_per_tensor_affine
report = audit(EarlyMask.apply, (x, 0.125, 8, 0, 15), surrogate=declared, only=["first_order"])
print(report.findings[0].summary)
assert not report.ok

# %%
# The second mistake is to forget the factor :math:`1 / \sqrt{N q_{\max}}`. The next cell trains with and without it.
# For each layer, it also prints how fast the quantization step :math:`s` changes compared with the weights :math:`W`,
# as the ratio :math:`(|\bar{s}| / s) \, / \, (\|\bar{W}\| / \|W\|)`. If this ratio is about 1, step and weights change
# equally fast.
#
# Without the factor, SGD changes the quantization steps too much at once, and some become negative. The network does
# not recover, although the learning rate works for the right version. With Adam, the missing factor does no harm in
# this cell, because Adam divides each gradient by its own size.

for name, optimizer, lr in (("SGD", torch.optim.SGD, 0.3), ("Adam", torch.optim.Adam, 5e-3)):
    for factor in (None, 1.0):
        weights, steps = copied(trained), [nn.Parameter(initial_step(w, 1)) for w in trained]

        def two_bits(weight, k):
            return learned_step_size(weight, steps[k], -2, 1, None, factor)  # noqa: B023

        F.cross_entropy(logits(weights, images[train], two_bits), labels[train]).backward()
        with torch.no_grad():
            ratios = [s.grad / s * w.norm() / w.grad.norm() for s, w in zip(steps, weights, strict=True)]
        fit(weights, two_bits, steps, optimizer, lr)
        print(
            f"{name:4} {'forgotten' if factor else 'LSQ':9} relative gradients",
            *(f"{r.abs().item():5.2f}" for r in ratios),
            f" smallest step {min(steps).item():6.2f}  accuracy {accuracy(weights, two_bits):.1%}",
        )
        assert (accuracy(weights, two_bits) < 0.5) == (name == "SGD" and factor == 1.0)

# %%
# What it costs
# -------------
#
# .. costs::
#
# The two recipes keep only their arguments. Their output would not be enough: if the output is at the last level, the
# input may have been inside or outside of the range, and backward needs to know which.
#
# If you compile, write the learned step as a composition of torch operations. A compiled composition also keeps only
# its arguments, and it is faster than the recipe.
#
# A weight is in memory anyway, so keeping it costs nothing. For an activation, the cost depends on the layer before:
#
# * A relu keeps its output, which is the input of the recipe, so the recipe adds nothing.
# * A linear layer does not keep its output. So after a linear layer, the recipe needs more memory than torch's
#   function: it keeps its input of 4 bytes per element, and torch's function keeps only its mask of 1 byte.
#
# The next cell counts these bytes together with the 4 bytes of the result:

activations, weight = torch.randn(1000, 100, requires_grad=True), torch.randn(100, 100, requires_grad=True)
for name, layer in {"relu": torch.relu, "linear": lambda x: x @ weight}.items():
    held = [
        held_bytes(lambda x: quantize(layer(x), 0.1, 0, -8, 7), activations) / activations.numel()  # noqa: B023
        for quantize in (fake_quantize, torch.fake_quantize_per_tensor_affine)
    ]
    print(f"after {name:6} bytes an element, with the result: ours {held[0]:.0f}, torch's {held[1]:.0f}")
    assert [round(h, 3) for h in held] == ([8, 9] if name == "relu" else [8, 5])

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/02_changing_the_gradient/straight_through`: straight-through gradients for round and sign.
# * :doc:`/cookbook/02_changing_the_gradient/surrogate_gradients`: a surrogate gradient that is not constant, and how to
#   test it.
# * :doc:`/cookbook/04_memory/masks`: how to keep a mask of one bit instead of the input.
# * :doc:`/guide/compiled_rules`: how to keep this backward when you compile code that calls :mod:`torch.func`.
# * In torch's documentation: :func:`torch.fake_quantize_per_tensor_affine`,
#   :func:`torch.fake_quantize_per_channel_affine`.
