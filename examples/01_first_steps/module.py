r"""
In a module: an activation that learns, a loss that forgives
============================================================

You will put a custom function with a learned parameter into a network, train the network, and see the parameter change.
"""

# %%
# When to use it
# --------------
#
# Read this page if your function learns a parameter, for example a steepness or a scale. Keep the
# ``Function`` without state, and write a :class:`torch.nn.Module` that owns the parameter. Optimizers, ``state_dict``
# and ``.to`` then find the parameter. A function without parameters needs no module.
#
# The two recipes of this page, ``parametric_swish`` and ``smooth_l1``, are examples. In your program, use
# ``torch.nn.SmoothL1Loss``, which keeps no more bytes for backward than the recipe, and write the activation with torch
# operations. In eager mode, these operations keep one more tensor than ``parametric_swish``. If you compile, they keep
# no more.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# If many elements share a parameter, the gradient of the parameter is the sum over these elements. ``parametric_swish``
# has one steepness :math:`\beta_c` per channel :math:`c`. It multiplies the input by the gate :math:`g = \sigma(\beta
# x)`:
#
# .. math::
#
#    y_{nc} = x_{nc}\, g_{nc}, \qquad
#    \bar{x} = \bar{y}\,(g + \beta x\, g (1 - g)), \qquad
#    \bar{\beta}_c = \sum_n \bar{y}_{nc}\, x_{nc}^2\, g_{nc} (1 - g_{nc}) .
#
# In ``smooth_l1``, :math:`\beta` is not a steepness but a bound. If the error is below :math:`\beta`, the gradient
# grows with the error. If the error is larger, the gradient is constant. So an outlier has no larger gradient than a
# point with the error :math:`\beta`.
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
# The data are points on a curve with a kink, with noise and a few outliers. The next cell trains the same small network
# twice, with the squared error and with the recipe's loss. The left figure shows both fits. Each of the network's
# sixteen units has its own steepness, and the right figure shows how they change during training.

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
figure.suptitle("A network with a learned activation: with the smooth L1 loss, the fit ignores outliers")
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
# The steepness is part of the network's ``state_dict``, and it moves with the network to another dtype or device:

network = nn.Sequential(nn.Linear(1, 16), Swish(16), nn.Linear(16, 1))
print(list(network.state_dict()))
print(network.double()[1].beta.dtype)

# %%
# The wrong version
# -----------------
#
# In the wrong version, the steepness is a plain tensor that requires grad. Backward computes its gradient, but the
# module does not list the tensor among its parameters. So the optimizer never updates the steepness, and PyTorch raises
# no error.


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
# In eager mode, the two recipes keep only their inputs and compute all other tensors again in backward. Each recipe
# computes only the gradients that are needed. With a frozen steepness, ``parametric_swish`` skips the sum over the
# batch. With a constant target, ``smooth_l1`` returns one gradient instead of two.
#
# The gradient of the steepness contains :math:`x^2\,g (1 - g)`. In float16, :math:`x^2` overflows to infinity for
# :math:`|x| \ge 256`. The other factor may be 0, and infinity times 0 is NaN. Also, :math:`1 - g` is only rounding
# error where the gate is close to 1. So the recipe computes :math:`g (1 - g)` in float32 from :math:`e^{-|\beta x|}`,
# and multiplies by :math:`x` twice instead of by the square:

steep = torch.ones((), dtype=torch.float16, requires_grad=True)
parametric_swish(torch.tensor([-1000.0, 1.0, 1000.0], dtype=torch.float16), steep).sum().backward()
print(f"gradient of the steepness in float16: {steep.grad:.4f}")
assert abs(steep.grad - 0.1966) < 1e-3

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/broadcasting`: why backward sums over the batch.
# * :doc:`/cookbook/06_beyond_autograd/cuda_extension`: the same activation as a kernel in C++ and CUDA.
# * :doc:`/cookbook/02_changing_the_gradient/fake_quantization`: a learned step size.
# * In torch's documentation: :class:`torch.nn.Parameter`, :func:`torch.nn.functional.smooth_l1_loss`.
