r"""
Linear scan: a recurrence without a loop, in both directions
============================================================

You will compute all states of :math:`h_t = a_t h_{t-1} + b_t`, as in a state-space model, and their gradients, in
:math:`2 \log_2 T` steps instead of :math:`T`. In eager mode, backward needs only the decays ``a``, which are an
argument, and the states ``h``. So autograd keeps only the states in addition to the arguments: 4 bytes for each in
float32.
"""

# %%
# When to use it
# --------------
#
# Use a scan for a layer that carries a state along a sequence, if the state changes linearly and no channel depends on
# another. Examples are state-space models, gated linear recurrences, exponential averages and discounted returns. If
# the state goes through a nonlinear function, as in an LSTM, steps can't be combined. In this case, checkpoint the loop
# (:doc:`/cookbook/04_memory/checkpointing`). If the decay :math:`a` is the same for all steps, the recurrence is also a
# convolution with the powers of :math:`a`, but the scan needs fewer operations.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{h}` is the gradient of the loss with respect to :math:`h`. In the formulas of the
# recipes, a star marks the complex conjugate.
#
# Two steps of the recurrence can be written as one step of the same form. The new decay is the product of both decays:
#
# .. math:: h_{t+1} = (a_{t+1} a_t)\, h_{t-1} + (a_{t+1} b_t + b_{t+1}) .
#
# A scan uses this formula to combine pairs of steps. The combined steps form a recurrence of half the length, whose
# solution is every second state. One more step then computes each state in between. The scan solves the shorter
# recurrence in the same way, so it has about :math:`\log_2 T` levels. For backward, write
# :math:`\bar{h}_t` for the gradient that arrives from the output. The next state adds a second term:
#
# .. math:: \bar{b}_t = \bar{h}_t + a_{t+1} \bar{b}_{t+1}, \qquad \bar{a}_t = \bar{b}_t h_{t-1} .
#
# This is the same recurrence, run backward in time, with the decays shifted by one step. So backward calls the function
# itself, and derivatives of every order are scans.
#
# The recipe
# ----------
#
# .. recipe:: linear_scan

# sphinx_gallery_tags = ["memory", "speed", "second order", "compile"]
# sphinx_gallery_thumbnail_number = 1

import time

import matplotlib.pyplot as plt
import torch

from autograd_cookbook import audit
from autograd_cookbook.auditing import held_bytes
from autograd_cookbook.recipes.linear_scan import linear_scan, scan

print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# The figure compares three versions for sequences of different lengths, with 64 channels in float32. It shows the time
# of forward and backward, and the bytes held until backward. "scan, autograd" is the same scan without a custom
# backward, so autograd keeps the products of every level.


def loop(decay, input):
    states = [input[0]]
    for t in range(1, len(input)):
        states.append(decay[t] * states[-1] + input[t])
    return torch.stack(states)


def problem(length, channels=64):
    torch.manual_seed(0)
    return torch.rand(length, channels).requires_grad_(), torch.randn(length, channels).requires_grad_()


def seconds(function, *tensors):
    start = time.perf_counter()
    torch.autograd.grad(function(*tensors).sum(), tensors)
    return time.perf_counter() - start


lengths = [64, 256, 1024, 4096, 16384]
functions = {"loop": loop, "scan, autograd": scan, "recipe": linear_scan}
times, held = {}, {}
for name, function in functions.items():
    chosen = lengths[:4] if function is loop else lengths
    times[name] = [min(seconds(function, *problem(n)) for _ in range(3)) * 1e3 for n in chosen]
    held[name] = [held_bytes(function, *problem(n)) / (64 * n) for n in chosen]

figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.3), layout="constrained")
for name, style in zip(functions, ("C1-s", "C2--o", "C0-^"), strict=True):
    left.loglog(lengths[: len(times[name])], times[name], style, label=name)
    right.semilogx(lengths[: len(held[name])], held[name], style, label=name)
left.set(xlabel="steps", ylabel="milliseconds", title="forward and backward")
right.set(xlabel="steps", ylabel="bytes a state", ylim=0, title="held until backward")
left.legend()
figure.suptitle("A linear recurrence: the scan is faster than a loop, and the recipe keeps one number a state")
plt.show()

print(f"4,096 steps: {times['loop'][3] / times['recipe'][3]:.0f} times as fast as the loop")
print("bytes held a state:", {name: round(values[3], 2) for name, values in held.items()})
assert held["recipe"] == [4.0] * len(lengths)
assert held["scan, autograd"][3] > 2.5 * held["recipe"][3]
tensors = problem(256)
expected = torch.autograd.grad(loop(*tensors).square().sum(), tensors)
for ours, theirs in zip(torch.autograd.grad(linear_scan(*tensors).square().sum(), tensors), expected, strict=True):
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)

# %%
# Long sequences, decays near 0 and 1
# -----------------------------------
#
# Products of many decays below 1 go to 0, which is correct, because steps from long ago no longer matter. The recipe
# never divides by these products. The next cell compares 4,096 steps in float32 with the same steps in float64, and
# prints the largest error in units of float32's ``eps``. It also prints the gradient that the first input gets through
# all steps. The scan rounds the products of decays once more at each level, so it is less accurate than the loop at the
# decay 0.999. The scan also adds in pairs, so it is more accurate at the decay 1 and at 1 - 2\ :sup:`-20`, where
# thousands of inputs add up:

for decay in (1e-30, 0.5, 0.999, 1 - 2**-20, 1.0):
    input = torch.randn(4096, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    decays = torch.full((4096, 8), decay)
    exact = loop(decays.double(), input.double()).detach()
    off = {
        name: float((f(decays, input).detach() - exact).abs().max() / exact.abs().max())
        / torch.finfo(torch.float32).eps
        for name, f in (("loop", loop), ("recipe", linear_scan))
    }
    (gradient,) = torch.autograd.grad(linear_scan(decays, input)[-1].sum(), input)
    print(f"decay {decay:<10.7g} { ({k: round(v, 1) for k, v in off.items()}) }, gradient {gradient[0, 0]:.3g}")
    assert gradient.isfinite().all()

# %%
# The audit
# ---------
#
# The audit runs its checks on a small problem:

sample = tuple(torch.randn(7, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
report = audit(linear_scan, sample)
print(report.headline)
assert report.ok, report

# %%
# The wrong version
# -----------------
#
# The closed form :math:`h_t = P_t \sum_{s \le t} b_s / P_s` with :math:`P_t = a_1 \cdots a_t` takes two lines, with
# ``cumprod`` and ``cumsum``. The closed form divides by products that go to 0, so with a decay of 0.7 it returns NaN
# after a few hundred steps:


def by_cumprod(decay, input):
    product = torch.cat([torch.ones_like(decay[:1]), decay[1:]]).cumprod(0)
    return product * (input / product).cumsum(0)


for length in (10, 100, 1000):
    decays, input = torch.full((length, 1), 0.7), torch.ones(length, 1)
    found = [f(decays, input)[-1].item() for f in (by_cumprod, linear_scan)]
    print(f"{length:5} steps: by cumprod {found[0]:.6f}, recipe {found[1]:.6f}")
assert not by_cumprod(decays, input)[-1].isfinite()
assert abs(linear_scan(decays, input)[-1].item() - 1 / 0.3) < 1e-5

# %%
# What it costs
# -------------
#
# .. costs::
#
# The composition in the table is ``scan``, differentiated by autograd. The table does not contain the loop. The recipe
# was measured in eager mode. **If you compile, copy** ``scan`` **alone, without the backward.** The compiler then
# derives the same backward, keeps as few bytes, and fuses the levels. The compiled recipe would keep twice as many
# bytes as in eager mode. Compiling ``scan`` takes longer, because the compiler unrolls all levels.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/checkpointing`: a loop whose steps can't be combined.
# * :doc:`/cookbook/05_higher_order/neural_ode`: the same idea in continuous time, where an adjoint equation runs
#   backward.
# * :doc:`/cookbook/04_memory/reversible`: states computed back from the last one.
# * In torch's documentation: :func:`torch.cumsum`, :func:`torch.cumprod`.
