r"""
Newname
=======

WRITE(newname): a title that says what the reader gets; here a sentence on what this page
does for them.
"""

# %%
# When to use it
# --------------
#
# WRITE(newname): when to use it, when not, and what is better then.
#
# The gradient
# ------------
#
# WRITE(newname): the derivation in a few lines.
#
# .. math::
#
#    y = x^2, \qquad \bar{x} = 2 x \bar{y} .
#
# The recipe
# ----------
#
# .. recipe:: newname

# sphinx_gallery_tags = ["gradient"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch.autograd import Function

from autograd_cookbook import audit
from autograd_cookbook.recipes.newname import newname

# %%
# See it work
# -----------
#
# WRITE(newname): a run worth looking at. Say before it what it will show, after it what to
# notice.

x = torch.linspace(-2, 2, 101, requires_grad=True)
y = newname(x)
(gradient,) = torch.autograd.grad(y.sum(), x)

figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
figure.suptitle("WRITE(newname): the message of the figure")
axis.plot(x.detach(), y.detach(), label="value")
axis.plot(x.detach(), gradient, "--", label="gradient")
axis.set(xlabel="input")
axis.legend()
plt.show()
assert torch.equal(gradient, 2 * x)

# %%
# The audit of a call, as you would audit a function of your own:

sample = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True),)
report = audit(newname, sample)
print(report.headline)
assert report.ok, report

# %%
# The wrong version
# -----------------
#
# WRITE(newname): the mistake that is easily made here, and what comes of it. This one forgets
# the factor 2:


class Forgets(Function):
    @staticmethod
    def forward(input):
        return input * input

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return input * grad_output


wrong = audit(Forgets.apply, sample, only=["first_order"])
print(wrong.findings[0].summary)
assert not wrong.ok

# %%
# What it costs
# -------------
#
# WRITE(newname): with ``cost=Cost(...)`` in the catalog, ``.. costs::`` here on a line of its
# own makes the table. Say what to conclude from it, or why there is nothing to compare.
#
# Neighbors
# ---------
#
# WRITE(newname): pages that are near, and what each adds.
#
# * :doc:`/cookbook/section/neighbor`.
