r"""
Straight-through estimators: round, sign, binarize
==================================================

You will train through step functions, whose derivative is zero everywhere except at the steps. As an example, you will
train a network with weights of one bit.
"""

# %%
# When to use it
# --------------
#
# Use a straight-through estimator if forward must round, apply a threshold or take a sign, and layers before this step
# must learn. The true gradient of this step is zero, and the estimator replaces it by the gradient of a function
# without steps. If you follow the new gradient, the loss often decreases, but not always. If you can train with a
# smooth function and round after training, do that.
#
# You can also write ``x + (x.round() - x).detach()``, which needs no ``Function`` and gives the same value for every
# finite number. The recipes are easier to read. They also return the right value for infinity, and for the sign of
# large numbers, as the section "The wrong version" shows. The section "What it costs" compares the times.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# Forward computes a step function :math:`q`. Backward uses the derivative of another function :math:`s`, which has no
# steps:
#
# .. math::
#
#    y = q(x), \qquad \bar{x} = \bar{y}\,s'(x), \qquad
#    s(x) = x \;\text{(round, sign)} \quad\text{or}\quad s(x) = \min(\max(x, -1), 1) \;\text{(binarize)} .
#
# In ``binarize``, an input outside of [-1, 1] gets gradient 0, so this gradient can never bring it back into the range.
# If the input is a parameter, clamp it to [-1, 1] after each step of the optimizer.
#
# At 0, ``sign_ste`` returns 0, as :func:`torch.sign` does. ``binarize`` returns only 1 and -1, and it returns 1 at 0.
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
# The next cell trains a network on handwritten digits. In forward, all weights and all activations of the hidden layer
# are 1 or -1. The optimizer updates real numbers, called latent weights here, and forward uses only the signs of these
# numbers.

images, digits = load_digits(return_X_y=True)
order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
images, digits = torch.tensor(images).float()[order] / 8 - 1, torch.tensor(digits)[order]
training, testing = slice(0, 1300), slice(1300, None)


def train(step_function, epochs=20, width=128):
    """Return the accuracy on the test set after each epoch, and the latent weights of the first layer."""
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
            if step_function is binarize:  # outside of [-1, 1], its gradient is 0
                with torch.no_grad():
                    first.clamp_(-1, 1)
                    second.clamp_(-1, 1)
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
left.plot(x, binarize(x))
left.plot(x, x.clamp(-1, 1), "--")
left.set(xlabel="x", ylabel="binarize(x)")
left.text(-0.1, 0.85, "forward", ha="right", color="C0")
left.text(0.2, -0.3, "what backward\nsees", color="C1")
for (name, curve), style in zip(curves.items(), ("-", "--", "-.", ":"), strict=True):
    right.plot(range(1, 21), curve, style, label=f"{name}: {curve[-1]:.0%}")
right.set(xlabel="epoch", ylabel="accuracy on the test set", ylim=(0, 1.02), xticks=[1, 5, 10, 15, 20])
right.legend(fontsize=8, loc="center right")
plt.show()

assert min(curves["binarize"][-1], curves["sign_ste"][-1]) > 0.93
assert max(curves["torch.sign"]) < 0.2

# %%
# On this task, one bit is almost as accurate as 32 bits, with ``binarize`` and with ``sign_ste``. The latent weights
# differ: with ``binarize``, the clamp after each step keeps them in [-1, 1], and with ``sign_ste`` they continue to
# grow:

for name in ("binarize", "sign_ste"):
    print(f"{name:8} {curves[name][-1]:.1%}, largest absolute value of a latent weight {weights[name].abs().max():.2f}")
assert weights["binarize"].abs().max() <= 1 < 1.3 < weights["sign_ste"].abs().max()

# %%
# Without the clamp, a latent weight outside of [-1, 1] has gradient 0, so plain SGD does not move it. In the next cell,
# the loss is smallest for the weight -1, but a latent weight of 1.2 changes its sign only if you clamp it after each
# step:

for clamped in (False, True):
    latent = nn.Parameter(torch.tensor(1.2))
    optimizer = torch.optim.SGD([latent], lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        (binarize(latent) + 1).square().backward()
        optimizer.step()
        if clamped:
            with torch.no_grad():
                latent.clamp_(-1, 1)
    print(f"clamp after each step: {clamped}, latent weight {latent.item():.1f}, weight {binarize(latent).item():.0f}")
    assert (binarize(latent) == -1) == clamped

# %%
# How to test a straight-through estimator
# ----------------------------------------
#
# :func:`torch.autograd.gradcheck` compares the gradient with the true derivative, which is 0. So gradcheck rejects a
# straight-through estimator. It accepts :func:`torch.round`, although the layers before this function learn nothing:

x = torch.tensor([-1.7, -0.6, 0.3, 1.4], dtype=torch.float64, requires_grad=True)
try:
    gradcheck(round_ste, (x,))
except RuntimeError as error:
    print("round_ste:", str(error).splitlines()[0])
print("torch.round:", gradcheck(torch.round, (x,)))

# %%
# So test with the audit instead, and pass the function :math:`s` as ``surrogate``. The audit then compares the gradient
# of the recipe with the gradient of :math:`s`. It distinguishes the identity from the clamp:

for name, stand_in in (("x", lambda x: x * 1), ("clamp(x)", lambda x: x.clamp(-1, 1))):
    verdicts = {f.__name__: audit(f, (x,), surrogate=stand_in, skip=["compile"]).ok for f in (sign_ste, binarize)}
    print(f"as the gradient of {name:8}: {verdicts}")
    assert verdicts == {"sign_ste": name == "x", "binarize": name != "x"}

# %%
# The wrong version
# -----------------
#
# This version saves the *output* and tests whether its absolute value is at most 1. The absolute value of a sign is at
# most 1, so the test is always true, and every input gets a gradient. The network still trains, but with the gradient
# of ``sign_ste``:


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
# Another mistake is to call ``torch.where`` with two Python numbers as values. The result then has torch's default
# dtype, which is float32, and not the dtype of the input. So element-wise operations after it compute in float32, and a
# linear layer with float16 weights raises an error:

half = torch.tensor([0.3, -2.0], dtype=torch.float16)
print("where(x >= 0, 1.0, -1.0):", torch.where(half >= 0, 1.0, -1.0).dtype, " binarize:", binarize(half).dtype)
assert torch.where(half >= 0, 1.0, -1.0).dtype is torch.float32
try:
    F.linear(torch.where(half >= 0, 1.0, -1.0), torch.ones(2, 2, dtype=torch.float16))
    raise AssertionError("float16 weights accept a float32 input: say so above")
except RuntimeError as error:
    print("linear:", error)

# %%
# The composition ``x + (q - x)``, with the rounded number or the sign as ``q``, can be wrong in low precision. The next
# cell tries all finite numbers of two 16-bit formats. For rounding, ``x + (q - x)`` is right, and ``q + x - x`` is
# wrong for some numbers. For the sign, both orders are wrong for some numbers, because ``1 - x`` is rounded if ``x`` is
# large. At infinity, the composition is NaN:

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
larger = torch.tensor(2.0**25)
assert larger + (larger.sign() - larger) != 1
infinity = torch.tensor(torch.inf)
assert (infinity + (infinity.round() - infinity)).isnan()
assert round_ste(infinity) == torch.inf

# %%
# What it costs
# -------------
#
# .. costs::
#
# ``binarize`` keeps its input. The table does not count this input because it is an argument. ``round_ste`` and
# ``sign_ste`` keep nothing. A composition of torch operations writes three or four tensors to compute one result. In
# the table, the composition takes longer than ``round_ste`` and ``sign_ste``, and about as long as ``binarize``.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/02_changing_the_gradient/fake_quantization`: rounding with a scale and a range, and a learned scale.
# * :doc:`/cookbook/02_changing_the_gradient/surrogate_gradients`: the gradient of a smooth function for a threshold.
# * :doc:`/cookbook/02_changing_the_gradient/reversal`: how to return the input unchanged and reverse its gradient.
# * :doc:`/guide/compiled_rules`: how to keep this backward when you compile code that calls :mod:`torch.func`.
# * :doc:`/guide/questions_choices`: VQ-VAE, clamps that pass the gradient, and learned masks.
# * In torch's documentation: :class:`torch.autograd.Function`, :func:`torch.where`.
