r"""
Arguments: numbers, flags, None, and tensors that may be missing
================================================================

You will pass numbers, strings, None and tensors to a custom function, and return one value in backward for each of
them. You will also see which mistakes PyTorch reports, and one mistake that it does not report.
"""

# %%
# When to use it
# --------------
#
# Read this page if your function has options, for example a slope, a dimension, a mode, or a weight that some callers
# do not pass. The three recipes take floats, a string, and tensors that may be None.
#
# Copy ``pinball_loss`` if you need a quantile loss, because torch has none. The other two recipes only show how to
# handle arguments. In your code, write these two functions with torch operations instead. If you compile your versions,
# they keep no more bytes for backward than the recipes.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`. In the formulas of the
# recipes, a star marks the complex conjugate.
#
# If an argument is a Python number, it is a constant, so it has no gradient, and backward returns None for it. But the
# formulas for the gradients of the tensor arguments contain the number. The first formula below is ``scaled_tanh`` with
# the numbers :math:`a` and :math:`b`. The second is ``pinball_loss`` with the target :math:`t`, the error :math:`e = t
# - x` and the quantile :math:`q`:
#
# .. math::
#
#    y = a \tanh(b x): \quad \bar{x} = \bar{y}\, a b \bigl(1 - \tfrac{y^2}{a^2}\bigr), \qquad
#    y = \max(q e, (q - 1) e): \quad \bar{x} = -\bar{y}\, \frac{\operatorname{sgn}(e) + 2q - 1}{2} .
#
# The second function finds quantiles. Sum it over many targets, and find the :math:`x` with the smallest sum. This
# :math:`x` is the quantile: the fraction :math:`q` of the targets is smaller than :math:`x`. The reason is that each
# target below :math:`x` adds :math:`1 - q` to the slope of the sum, and each target above adds :math:`-q`. At the
# quantile, these terms cancel.
#
# The recipe
# ----------
#
# .. recipe:: scaled_tanh
#
# .. recipe:: affine
#
# .. recipe:: pinball_loss

# sphinx_gallery_tags = ["first steps", "ctx", "needs_input_grad", "gradient"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.autograd import Function, gradcheck
from torch.nn import functional as F

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.arguments import affine, pinball_loss, scaled_tanh

# %%
# See it work
# -----------
#
# The float ``quantile`` decides what a network learns. In the next cell, three outputs of one network learn three
# quantiles. From the body mass index of 442 patients, they predict how diabetes progresses in a year. The left figure
# shows the gradient for each quantile, and the right figure shows the three learned curves:

data = load_diabetes(scaled=False)
index_of_mass = torch.tensor(data.data[:, 2:3], dtype=torch.float32)
progression = torch.tensor(data.target, dtype=torch.float32) / 100
quantiles = (0.1, 0.5, 0.9)

torch.manual_seed(0)
first, last = nn.Linear(1, 16), nn.Linear(16, 3)


def network(mass):
    return last(scaled_tanh(first((mass - 26) / 4)))


optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=0.02)
for _ in range(400):
    predicted = network(index_of_mass)
    loss = sum(pinball_loss(predicted[:, i], progression, q) for i, q in enumerate(quantiles))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.4), layout="constrained", width_ratios=(2, 3))
figure.suptitle("One float, three gradients: the 10, 50 and 90 % quantiles of 442 patients")
errors = torch.linspace(-1, 1, 201, dtype=torch.float64)
masses = torch.linspace(18, 42, 100)[:, None]
right.scatter(index_of_mass, 100 * progression, s=6, color="0.7")
for i, (q, style) in enumerate(zip(quantiles, (":", "-", "--"), strict=True)):
    guess = torch.zeros_like(errors, requires_grad=True)
    pinball_loss(guess, errors, q, "sum").backward()
    left.plot(errors, guess.grad, style, color=f"C{i}", label=f"q = {q}")
    right.plot(masses, 100 * network(masses).detach()[:, i], style, color=f"C{i}", linewidth=2)
left.set(xlabel="target − prediction", ylabel="gradient of the prediction")
left.legend(fontsize=8)
right.set(xlabel="body mass index", ylabel="progression after a year")
plt.show()

assert not any(hasattr(F, name) for name in ("pinball_loss", "quantile_loss"))
for i, q in enumerate(quantiles):
    below = float((progression < network(index_of_mass)[:, i]).float().mean())
    print(f"q = {q}: {below:.1%} of the patients are below the curve")
    assert abs(below - q) < 0.03

# %%
# The recipe ``affine`` is the last step of a layer norm: it multiplies by ``weight`` and adds ``bias``. A layer norm
# can lack its ``weight``, its ``bias``, or both. For a missing one, ``affine`` saves None, and ``ctx.saved_tensors``
# contains None at this place:

torch.manual_seed(0)
x, w, b = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3), (3,), (3,)))
for weight, bias in ((w, b), (w, None), (None, b), (None, None)):
    normal = F.layer_norm(x, (3,))
    assert torch.allclose(affine(normal, weight, bias), F.layer_norm(x, (3,), weight, bias), rtol=1e-12)
    assert gradcheck(affine, (x, weight, bias))
print("affine agrees with layer_norm, with weight, bias, both, neither")

# %%
# The wrong version
# -----------------
#
# The function ``Returns`` has the tensor argument ``input`` and two others, ``exponent`` and ``mode``. The next cell
# tries which values its backward may return:


class Returns(Function):
    """Backward returns the right gradient, followed by the values in ``rest``."""

    rest = ()

    @staticmethod
    def forward(input, exponent=2, mode="plain"):
        return input**exponent

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.exponent = inputs[1] if len(inputs) > 1 else 2  # before torch 2.13, inputs have no defaults

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * ctx.exponent * input ** (ctx.exponent - 1), *Returns.rest


print("torch", torch.__version__)
one = torch.tensor(1.0, requires_grad=True)
for Returns.rest in ((None, None), (), (None,), (None, None, None, None), (0.0, None), (one, None), (None, None, one)):
    returned = ", ".join(["gradient", *("a tensor" if r is one else str(r) for r in Returns.rest)])
    try:
        (gradient,) = torch.autograd.grad(Returns.apply(one, 3, "plain"), one)
        print(f"{returned:34} accepted, {gradient:.0f}")
    except RuntimeError as error:
        print(f"{returned:34} {str(error).removeprefix('function ReturnsBackward ')}")

# %%
# Backward must return one value per argument, and this value must be None for an argument that is not a tensor.
# Additional Nones at the end are allowed. In all other lines of the output, PyTorch raises an error. For example, the
# backward of one line returns the number 0.0 for ``exponent``, where None is required. The next cell tries how a caller
# may *pass* the arguments:

Returns.rest = (None, None)
for name, call in {
    "apply(x, 3)": lambda: Returns.apply(one, 3),
    "apply(x)": lambda: Returns.apply(one),
    "apply(x, mode='plain')": lambda: Returns.apply(one, mode="plain"),
    "apply(x, power=3)": lambda: Returns.apply(one, power=3),
}.items():
    try:
        print(f"{name:23} gradient {torch.autograd.grad(call(), one)[0]:.0f}")
    except TypeError as error:
        print(f"{name:23} raises: {error}")


class KeywordOnly(Returns):
    @staticmethod
    def forward(input, *, exponent=2):
        return input**exponent


try:
    KeywordOnly.apply(one)
    assert torch.__version__ < (2, 13), "keyword-only arguments work now: this page is out of date"
except TypeError as error:
    print(f"{'forward(input, *, e=2)':23} raises: {error}")

# %%
# Since torch 2.13, ``apply`` accepts arguments by name, and fills in the default values of ``forward``. In earlier
# releases, ``apply`` accepts no names, and ``setup_context`` gets no default values. In torch 2.13, a keyword-only
# argument (after ``*`` in ``forward``) does not work, even if the caller does not pass it. If your function must accept
# names, default values and keyword-only arguments in every release, write a Python function around ``apply``. This
# function checks the values and calls ``apply`` without names, as the recipes of this page do.
#
# A tensor *inside* an argument, for example in a list, gets no gradient, because autograd looks for tensors among the
# arguments but does not search lists or tuples. If backward returns None for the list, PyTorch does not report this
# mistake. It raises an error if backward returns a value for the list:


class ScaledSum(Function):
    """scale times the sum of a list of tensors."""

    @staticmethod
    def forward(scale, tensors):
        return scale * torch.stack(tensors).sum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], *inputs[1])

    @staticmethod
    def backward(ctx, grad_output):
        scale, *tensors = ctx.saved_tensors
        return (grad_output * torch.stack(tensors).sum(0)).sum(), [grad_output * scale] * len(tensors)


class NoneForTheList(ScaledSum):
    @staticmethod
    def backward(ctx, grad_output):
        return ScaledSum.backward(ctx, grad_output)[0], None


class WithAStar(ScaledSum):
    @staticmethod
    def forward(scale, *tensors):
        return ScaledSum.forward(scale, tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        grad_scale, grad_tensors = ScaledSum.backward(ctx, grad_output)
        return grad_scale, *grad_tensors


scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
frozen = scale.detach()
print("tensors in a list: requires_grad", ScaledSum.apply(frozen, [w, b]).requires_grad)
print("tensors in a tuple: requires_grad", ScaledSum.apply(frozen, (w, b)).requires_grad)
for function, tensors in ((ScaledSum, ([w, b],)), (NoneForTheList, ([w, b],)), (WithAStar, (w, b))):
    try:
        found = torch.autograd.grad(function.apply(scale, *tensors).sum(), (scale, w, b), allow_unused=True)
        shown = ["None" if g is None else "there" for g in found]
        print(f"{function.__name__:14} gradients of scale, w, b: {', '.join(shown)}")
    except RuntimeError as error:
        print(f"{function.__name__:14} {error}")
assert not ScaledSum.apply(frozen, [w, b]).requires_grad
assert gradcheck(WithAStar.apply, (scale, w, b))

# %%
# There are two cases. If only the tensors in the list require grad, the result does not require grad, and the engine
# never calls backward. If another argument also requires grad, the engine does call backward. But backward must return
# None for the list, so autograd silently treats the tensors in the list as constants. To fix both cases, pass each
# tensor as a separate argument with a star, as in ``WithAStar``, and return one gradient for each of them.
#
# What it costs
# -------------
#
# .. costs::
#
# ``pinball_loss`` keeps only its arguments. A composition of torch operations also keeps the two products :math:`q e`
# and :math:`(q - 1) e`:

guess, truth = torch.randn(2, 100_000)
guess.requires_grad_()
for name, function in {
    "pinball_loss": lambda x, t: pinball_loss(x, t, 0.9),
    "max(q e, (q - 1) e)": lambda x, t: torch.maximum(0.9 * (t - x), -0.1 * (t - x)).mean(),
}.items():
    print(f"{name:20} {saved_bytes(function, guess, truth) / guess.numel():.0f} bytes an element")
assert saved_bytes(pinball_loss, guess, truth) == 0

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/template`: the parts of a ``Function``, one by one.
# * :doc:`/cookbook/01_first_steps/several_outputs`: how to accept None as a gradient.
# * :doc:`/cookbook/01_first_steps/module`: how to learn a number as a parameter.
# * In torch's documentation: :class:`torch.autograd.Function`, :func:`torch.nn.functional.layer_norm`.
