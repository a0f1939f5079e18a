r"""
Linear scan: a recurrence without a loop, in both directions
============================================================

You will compute all states of :math:`h_t = a_t h_{t-1} + b_t`, as in a state-space model, and their gradients with
:math:`2 \log_2 T` steps instead of :math:`T`. Only ``a`` and ``h`` are kept: 4 bytes a state in
eager mode, beyond the arguments.
"""

# %%
# When to use it
# --------------
#
# When a layer carries a state along a sequence, the state changes linearly, and each channel has a state of its own:
# state-space models, gated linear recurrences, exponential averages, discounted returns. If the state goes through a
# nonlinear function, as in an LSTM, steps can't be combined; checkpoint the loop
# (:doc:`/cookbook/04_memory/checkpointing`). If one decay holds for all steps, a convolution is faster.
#
# The gradient
# ------------
#
# Two steps are one step with other numbers, and this is what a scan combines:
#
# .. math:: h_{t+1} = (a_{t+1} a_t)\, h_{t-1} + (a_{t+1} b_t + b_{t+1}) .
#
# A scan of half the length gives every other state, and one more step gives the rest. The gradient of a state arrives
# from the output and from the next state:
#
# .. math:: \bar{b}_t = \bar{h}_t + a_{t+1} \bar{b}_{t+1}, \qquad \bar{a}_t = \bar{b}_t h_{t-1} .
#
# That is the same recurrence, backward in time, with the decays one step later. So backward calls the function itself,
# and derivatives of every order are scans.
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
# Time of forward and backward, and bytes held until backward, against the length of the sequence, for 64 channels in
# float32. The loop is what you write first. "scan, autograd" is the same scan without a backward of its own: autograd
# keeps the products of every level.


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
# Products of many decays vanish, and that is right: what is so far back does not matter. The recipe never divides by
# them. Here is the largest error of 4,096 steps in float32 against float64, in units of the precision, and the gradient
# that the first input gets through all steps. Products of a decay are rounded once more at each level, so that the scan
# can be less accurate than the loop, as with 0.999 here. At 1 and at 1 - 2\ :sup:`-20` it is more accurate, because its
# sums are pairwise:

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

sample = tuple(torch.randn(7, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
report = audit(linear_scan, sample)
print(report.headline)
assert report.ok, report

# %%
# The wrong version
# -----------------
#
# The closed form :math:`h_t = P_t \sum_{s \le t} b_s / P_s` with :math:`P_t = a_1 \cdots a_t` is two lines of
# ``cumprod`` and ``cumsum``, and as short in time. It divides by products that vanish, so it is NaN after a few hundred
# steps:


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
# The composition is the same scan, left to autograd; a loop is not in the table. The recipe's figures are those of
# eager mode. **If you compile, leave the backward out and copy** ``scan`` **alone**: the compiler then finds the same
# backward, keeps as few bytes, and fuses the levels, while the recipe keeps twice as many bytes compiled as it does in
# eager mode. The compiler takes longer for it, as it unrolls all levels.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/04_memory/checkpointing`: a loop whose steps can't be combined.
# * :doc:`/cookbook/05_higher_order/neural_ode`: the same idea in continuous time, the adjoint runs backward.
# * :doc:`/cookbook/04_memory/reversible`: states computed back from the last one.
# * In torch's documentation: :func:`torch.cumsum`, :func:`torch.cumprod`.
