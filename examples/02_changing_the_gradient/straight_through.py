r"""
Straight-through estimators: round, sign, binarize
==================================================

You will train through a step function, whose derivative is zero wherever it exists, down to a network with weights of
one bit.
"""

# %%
# When to use it
# --------------
#
# Use them when forward has to round, threshold or pick a sign, and something before it has to learn. The gradient is
# then made up: following it often lowers the loss, but nothing guarantees it. If a smooth function that you round
# after training is good enough, use that.
#
# The composition ``x + (x.round() - x).detach()`` needs no ``Function`` and does the same for finite numbers. The
# recipes are shorter to read, take a fraction of the time, and keep their values where the composition loses them:
# see the wrong version.
#
# The gradient
# ------------
#
# Forward is a step function :math:`q`, backward that of a stand-in :math:`s` without steps:
#
# .. math::
#
#    y = q(x), \qquad \bar{x} = \bar{y}\,s'(x), \qquad
#    s(x) = x \;\text{(round, sign)} \quad\text{or}\quad s(x) = \min(\max(x, -1), 1) \;\text{(binarize)} .
#
# With the clamp, an input beyond ±1 gets no gradient. Moving it further out would not change the output, but the input
# would need more steps to come back.
#
# At 0, ``sign_ste`` is 0 as :func:`torch.sign` is. ``binarize`` has two values and no third: 0 counts as positive.
#
# The recipe
# ----------
#
# .. recipe:: round_ste
#
# .. recipe:: sign_ste
#
# .. recipe:: binarize

# sphinx_gallery_tags = ["gradient", "speed"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.autograd import Function, gradcheck
from torch.nn import functional as F

from autograd_cookbook.auditing import audit
from autograd_cookbook.recipes.straight_through import binarize, round_ste, sign_ste

print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# Handwritten digits, and a network whose weights are all 1 or -1, and the activations of its hidden layer, too. The
# optimizer moves real numbers behind the weights; forward sees their signs.

images, digits = load_digits(return_X_y=True)
order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
images, digits = torch.tensor(images).float()[order] / 8 - 1, torch.tensor(digits)[order]
training, testing = slice(0, 1300), slice(1300, None)


def train(step_function, epochs=20, width=128):
    """Accuracy on the test set after each epoch, and the numbers behind the weights of the first layer."""
    torch.manual_seed(0)
    first, second = (nn.Parameter(2 * torch.rand(*shape) - 1) for shape in ((width, 64), (10, width)))
    norm = nn.BatchNorm1d(width)
    optimizer = torch.optim.Adam([first, second, *norm.parameters()], lr=0.01, fused=True)

    def network(images):
        hidden = step_function(norm(F.linear(images, step_function(first))))
        return F.linear(hidden, step_function(second)) / width**0.5

    accuracy = []
    for _ in range(epochs):
        norm.train()
        for batch in torch.randperm(1300).split(100):
            optimizer.zero_grad()
            F.cross_entropy(network(images[training][batch]), digits[training][batch]).backward()
            optimizer.step()
        norm.eval()
        with torch.no_grad():
            accuracy.append((network(images[testing]).argmax(1) == digits[testing]).float().mean().item())
    return accuracy, first


functions = {"binarize": binarize, "sign_ste": sign_ste, "torch.sign": torch.sign, "no steps": lambda x: x}
curves, weights = {}, {}
for name, function in functions.items():
    curves[name], weights[name] = train(function)

x = torch.linspace(-2.2, 2.2, 400)
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.3), layout="constrained", width_ratios=(2, 3))
figure.suptitle("Weights of one bit learn to read digits if the gradient goes straight through the step")
left.plot(x, binarize(x), label="forward")
left.plot(x, x.clamp(-1, 1), "--", label="what backward sees")
left.set(xlabel="x", ylabel="binarize(x)")
left.legend(fontsize=8, loc="lower right")
for (name, curve), style in zip(curves.items(), ("-", "--", "-.", ":"), strict=True):
    right.plot(range(1, 21), curve, style, label=f"{name}: {curve[-1]:.0%}")
right.set(xlabel="epoch", ylabel="accuracy on the test set", ylim=(0, 1.02), xticks=[1, 5, 10, 15, 20])
right.legend(fontsize=8, loc="center right")
plt.show()

assert min(curves["binarize"][-1], curves["sign_ste"][-1]) > 0.93
assert max(curves["torch.sign"]) < 0.2

# %%
# Here one bit is worth almost as much as 32. The clamp of ``binarize`` makes no difference to speak of on this task. It
# does what it says to the numbers behind the weights, which stop soon after they have left the window, and otherwise
# do not:

for name in ("binarize", "sign_ste"):
    print(f"{name:8} {curves[name][-1]:.1%}, largest number behind a weight {weights[name].abs().max():.2f}")
assert weights["binarize"].abs().max() < 1.3 < weights["sign_ste"].abs().max()

# %%
# How to test one
# ---------------
#
# :func:`torch.autograd.gradcheck` compares with the true derivative, which is 0. So gradcheck must reject a
# straight-through estimator, and it accepts plain rounding, which cannot learn:

x = torch.tensor([-1.7, -0.6, 0.3, 1.4], dtype=torch.float64, requires_grad=True)
try:
    gradcheck(round_ste, (x,))
except RuntimeError as error:
    print("round_ste:", str(error).splitlines()[0])
print("torch.round:", gradcheck(torch.round, (x,)))

# %%
# So declare the function whose gradient it has, and compare with that. The audit then tells the identity from the
# clamp:

for name, stand_in in (("x", lambda x: x * 1), ("clamp(x)", lambda x: x.clamp(-1, 1))):
    verdicts = {f.__name__: audit(f, (x,), surrogate=stand_in, skip=["compile"]).ok for f in (sign_ste, binarize)}
    print(f"as the gradient of {name:8}: {verdicts}")
    assert verdicts == {"sign_ste": name == "x", "binarize": name != "x"}

# %%
# The wrong version
# -----------------
#
# A window that is taken from the *output* is always open, since a sign is never beyond 1. The network trains all the
# same, and you have ``sign_ste``:


class MaskOfOutput(Function):
    @staticmethod
    def forward(input):
        return input.sign()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (output,) = ctx.saved_tensors
        return grad_output * (output.abs() <= 1)


for function in (MaskOfOutput.apply, binarize):
    (gradient,) = torch.autograd.grad(function(x).sum(), x)
    print(f"{x.tolist()} -> {gradient.tolist()}")
    assert gradient.tolist() == ([1, 1, 1, 1] if function != binarize else [0, 1, 1, 0])

# %%
# The dtype is lost by two Python numbers as choices, and every layer after it computes in float32:

half = torch.tensor([0.3, -2.0], dtype=torch.float16)
print("where(x >= 0, 1.0, -1.0):", torch.where(half >= 0, 1.0, -1.0).dtype, " binarize:", binarize(half).dtype)
assert torch.where(half >= 0, 1.0, -1.0).dtype is torch.float32

# %%
# And the composition? It is said to return fractions in low precision. A 16-bit format has 65,536 numbers, so this can
# be tried on all of them. For rounding it holds in one order of the terms and not in the other. For the sign it
# holds in neither: ``-1 - x`` forgets the 1 where :math:`x` is large.

for dtype in (torch.float16, torch.bfloat16):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    every = every[every.isfinite()]
    for function, ours in ((torch.round, round_ste), (torch.sign, sign_ste)):
        step = function(every)
        orders = {"x + (q - x)": every + (step - every), "q + x - x": step + every - every, "ours": ours(every)}
        wrong = {name: (value != step).sum().item() for name, value in orders.items()}
        print(f"{dtype!s:14} {function.__name__:5} of {len(every):,} numbers wrong: {wrong}")
        assert wrong["ours"] == 0
        assert (wrong["x + (q - x)"] == 0) == (function is torch.round)
        assert wrong["q + x - x"] > 0
large = torch.tensor(300.0, dtype=torch.bfloat16)
print("sign of 300 in bfloat16, composed:", (large + (large.sign() - large)).item())
infinity = torch.tensor(torch.inf)
assert (infinity + (infinity.round() - infinity)).isnan()
assert round_ste(infinity) == torch.inf

# %%
# What it costs
# -------------
#
# .. costs::
#
# ``binarize`` keeps its input, which is not counted because it is an argument; the other two keep nothing. The
# compositions write three or four tensors to make one, and :func:`torch.compile` does not bring them to the time of a
# single operation.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/02_changing_the_gradient/fake_quantization`: the same with a scale, a range, and a scale that
#   learns.
# * :doc:`/cookbook/02_changing_the_gradient/surrogate_gradients`: a smooth stand-in for a threshold.
# * :doc:`/cookbook/02_changing_the_gradient/reversal`: the value is right, and the gradient is turned around.
# * :doc:`/guide/compiled_rules`: compiled inside of :mod:`torch.func`, this backward is dropped without a warning; one
#   line keeps it.
# * :doc:`/guide/questions_choices`: VQ-VAE, clamps that let the gradient pass, learned masks.
# * In torch's documentation: :class:`torch.autograd.Function`, :func:`torch.where`.
