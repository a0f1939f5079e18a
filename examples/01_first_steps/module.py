r"""
In a module: an activation that learns, a loss that forgives
============================================================

You will put a custom function with a parameter of its own into a network, train it, and watch the parameter move.
"""

# %%
# When to use it
# --------------
#
# When your function has something to learn: a steepness, a threshold, a scale. The ``Function`` stays free of state;
# an :class:`torch.nn.Module` around it owns the parameter, so that optimizers, ``state_dict`` and ``.to`` find it. A
# function without parameters needs no module. And a composition of torch's operations would do here as well: the
# recipes save an activation each against it, and the compiler saves the same.
#
# The gradient
# ------------
#
# A parameter that is shared by many elements gets the sum of what each of them says. For one steepness per channel,
# with :math:`g = \sigma(\beta x)`:
#
# .. math::
#
#    y_{nc} = x_{nc}\, g_{nc}, \qquad
#    \bar{x} = \bar{y}\,(g + \beta x\, g (1 - g)), \qquad
#    \bar{\beta}_c = \sum_n \bar{y}_{nc}\, x_{nc}^2\, g_{nc} (1 - g_{nc}) .
#
# The loss has a gradient that stops growing at :math:`\beta`: one outlier pulls no harder than any other point.
#
# The recipe
# ----------
#
# .. recipe:: parametric_swish
#
# .. recipe:: smooth_l1

# sphinx_gallery_tags = ["first steps", "needs_input_grad", "shapes", "second order"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

from autograd_cookbook.recipes.module import SmoothL1Loss, Swish, parametric_swish

# %%
# See it work
# -----------
#
# A curve with a kink, seen through noise and a few gross errors. The same small network is fitted twice, with the
# squared error and with the recipe's loss; each of its sixteen units has a steepness of its own.

generator = torch.Generator().manual_seed(0)
x = torch.linspace(-2, 2, 120).unsqueeze(1)
truth = x.abs() - 0.4 * x
y = truth + 0.08 * torch.randn(x.shape, generator=generator)
y[5::17] += 3.0  # outliers, all on one side


def fit(loss_function):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 16), Swish(16), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
    steepness = []
    for _ in range(500):
        optimizer.zero_grad()
        loss_function(network(x), y).backward()
        optimizer.step()
        steepness.append(network[1].beta.detach().clone())
    return network(x).detach(), torch.stack(steepness)


squared, _ = fit(nn.MSELoss())
robust, steepness = fit(SmoothL1Loss(beta=0.1))
errors = [float((fitted - truth).square().mean().sqrt()) for fitted in (squared, robust)]

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.3), layout="constrained")
figure.suptitle("A network with a learned activation: the smooth L1 loss passes the outliers by")
left.plot(x, y, ".", color="0.7", markersize=4)
left.plot(x, truth, color="0.3", linewidth=1, label="truth")
left.plot(x, squared, "--", label=f"squared error, off by {errors[0]:.2f}")
left.plot(x, robust, label=f"smooth L1, off by {errors[1]:.2f}")
left.set(xlabel="x", ylim=(-0.5, 5.8))
left.legend(fontsize=8)
right.plot(steepness, linewidth=1)
right.set(xlabel="step", ylabel="steepness β of each unit")
plt.show()

assert errors[1] < errors[0] / 3
assert float((steepness[-1] - 1).abs().max()) > 0.5

# %%
# The steepness of a unit is part of the network's state, and moves with it to another dtype or device:

network = nn.Sequential(nn.Linear(1, 16), Swish(16), nn.Linear(16, 1))
print(list(network.state_dict()))
print(network.double()[1].beta.dtype)

# %%
# The wrong version
# -----------------
#
# The steepness as a plain tensor. It requires grad, backward fills its gradient, and nothing ever uses it: the module
# does not know that it has a parameter. PyTorch does not complain.


class PlainSwish(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.beta = torch.ones(channels, requires_grad=True)

    def forward(self, input):
        return parametric_swish(input, self.beta)


for activation in (PlainSwish(16), Swish(16)):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 16), activation, nn.Linear(16, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
    for _ in range(20):
        optimizer.zero_grad()
        F.mse_loss(network(x), truth).backward()
        optimizer.step()
    moved = float((activation.beta - 1).abs().max().detach())
    count = len(list(network.parameters()))
    print(f"{type(activation).__name__:10} {count} parameters; its steepness has moved by {moved:.3f}")
    assert (moved > 0) == isinstance(activation, Swish)

# %%
# What it costs
# -------------
#
# .. costs::
#
# Both recipes keep their inputs and compute the rest again. Ask for no gradient, and none is computed: with a frozen
# steepness the sum over the batch is skipped, with a constant target the loss hands back one tensor and not two.
#
# In the gradient of the steepness, :math:`x^2\,g (1 - g)`, the obvious square overflows: in float16 from 256 on,
# where the gradient is NaN. The recipe multiplies :math:`x g` by :math:`x (1 - g)`, of which one is small. And
# :math:`1 - g` has no digits where the gate is close to 1, so the recipe takes :math:`\sigma(-\beta x)`:

steep = torch.ones((), dtype=torch.float16, requires_grad=True)
parametric_swish(torch.tensor([-1000.0, 1.0, 1000.0], dtype=torch.float16), steep).sum().backward()
print(f"gradient of the steepness in float16: {steep.grad:.4f}")
assert abs(steep.grad - 0.1966) < 1e-3

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/broadcasting`: where the sum over the batch comes from.
# * :doc:`/cookbook/06_beyond_autograd/cuda_extension`: the same activation as a kernel in C++ and CUDA.
# * :doc:`/cookbook/02_changing_the_gradient/fake_quantization`: a step size that is learned.
# * In torch's documentation: :class:`torch.nn.Parameter`, :func:`torch.nn.functional.smooth_l1_loss`.
