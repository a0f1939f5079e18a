r"""
Matrix products: vectors, batches, broadcast batches, masks
===========================================================

You will write the gradient of a matrix product for every pair of shapes that torch multiplies. You will also write a
layer in which a mask keeps most weights at 0, and see a network that learns although one of its gradients is wrong.
"""

# %%
# When to use it
# --------------
#
# Do not call the recipe ``matmul``, because :func:`torch.matmul` computes the same product at the same cost. Copy the
# recipe's backward into a ``Function`` of your own that multiplies matrices, for example a low-rank layer, a layer with
# quantized weights, or attention.
#
# Use ``masked_linear`` for a layer in which most connections are missing, because you pruned them or never had them.
# The recipe sets the weights of these connections to 0 with a mask. It saves memory, because it does not keep the
# masked weight for backward, but computes it again. It saves no time, because it still multiplies by the zeros.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{Y}` is the gradient of the loss with respect to :math:`Y`. In the formulas of the
# recipes, a star marks the complex conjugate.
#
# For :math:`Y = AB`, the gradient of each factor is :math:`\bar{Y}` times the conjugate transpose of the other factor.
# The other factor stays on its side of the product:
#
# .. math:: \bar{A} = \bar{Y} B^{\mathsf H}, \qquad \bar{B} = A^{\mathsf H} \bar{Y} .
#
# A vector is a matrix with one row or one column. If a factor is broadcast over a batch, forward uses it once for each
# batch element, so its gradient is the sum over the batch:
#
# .. math:: \bar{B} = \sum_b A_b^{\mathsf H} \bar{Y}_b = \begin{pmatrix} A_1 \\ \vdots \\ A_n \end{pmatrix}^{\mathsf H}
#           \begin{pmatrix} \bar{Y}_1 \\ \vdots \\ \bar{Y}_n \end{pmatrix} .
#
# On the right side, the matrices of the batch stand on top of each other in two tall matrices. One product, of the
# transposed first matrix and the second, gives the whole sum, so the separate terms need no memory. In
# ``masked_linear``, the factor :math:`B` is the element-wise product :math:`M \odot W` of a mask :math:`M` and a weight
# :math:`W`. By the chain rule, the gradient is masked as well: :math:`\bar{W} = M \odot \bar{B}`.
#
# The recipe
# ----------
#
# .. recipe:: matmul
#
# .. recipe:: masked_linear

# sphinx_gallery_tags = ["first steps", "shapes", "needs_input_grad", "memory"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch.autograd import Function, gradcheck
from torch.nn import functional as F

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.matmul import masked_linear, matmul

# %%
# See it work
# -----------
#
# The next cell multiplies a batch by one shared weight. If backward first computes a product for each batch element, as
# ``torch.bmm`` with ``expand`` does, it holds a weight gradient for *every* element at the same time. In the figure,
# the peak memory of this version grows with the batch size:

weight = torch.randn(128, 128, requires_grad=True)


def sums_afterwards(input, weight):
    return torch.bmm(input, weight.expand(len(input), -1, -1))


def peak(product, size):
    """Return the peak memory of forward and backward, divided by the size of the weight."""
    batch = torch.randn(size, 8, 128)
    count = peak_bytes(lambda: torch.autograd.grad(product(batch, weight).sum(), weight))
    return count / weight.untyped_storage().nbytes()


sizes = [1, 4, 16, 64]
curves = {
    "multiply, then sum": [peak(sums_afterwards, size) for size in sizes],
    "torch.matmul": [peak(torch.matmul, size) for size in sizes],
    "the recipe": [peak(matmul, size) for size in sizes],
}
figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, values), style in zip(curves.items(), ("-o", "--s", ":^"), strict=True):
    axis.loglog(sizes, values, style, label=name, markersize=8 if name == "torch.matmul" else 5)
axis.set(xlabel="batch size, matrices of 8×128", ylabel="peak, in sizes of the weight", xticks=sizes, xticklabels=sizes)
axis.minorticks_off()
axis.set_title("A batch that shares one weight: sum while you multiply, not afterwards")
axis.legend()
plt.show()

print({name: [round(value, 1) for value in values] for name, values in curves.items()})
assert all(a <= b for a, b in zip(curves["the recipe"], curves["torch.matmul"], strict=True))
assert curves["multiply, then sum"][-1] > 10 * curves["the recipe"][-1]

# %%
# The next cell checks the recipe for eight combinations of dimensions. It compares the gradients with finite
# differences and with those of torch:

torch.manual_seed(0)
for left, right in [
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((3,), (4, 3, 2)),
    ((2, 3), (3,)),
    ((4, 2, 3), (3, 2)),
    ((2, 3), (4, 3, 2)),
    ((4, 1, 2, 3), (5, 3, 2)),
    ((2, 0), (0, 3)),
]:
    pair = [torch.randn(shape, dtype=torch.complex128, requires_grad=True) for shape in (left, right)]
    assert gradcheck(matmul, pair)
    out, expected = matmul(*pair), torch.matmul(*pair)
    for ours, theirs in zip(*(torch.autograd.grad(y, pair, expected.detach()) for y in (out, expected)), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12)
    print(f"{left!s:13} @ {right!s:10} -> {tuple(out.shape)}")

# %%
# With ``masked_linear``, training does not bring back a weight that the mask removes. In the next example, a layer has
# one unit for each of the 64 pixels of a digit, and each unit sees only the 3×3 pixels around its own pixel. If you set
# all other weights to zero only *once* and then use a plain layer, the first training step makes most of these weights
# nonzero again:

digits = load_digits()
images, labels = torch.tensor(digits.data[:500], dtype=torch.float32) / 16, torch.tensor(digits.target[:500])
place = torch.cartesian_prod(torch.arange(8), torch.arange(8))
near = (place[:, None] - place).abs().amax(-1) <= 1
start = torch.randn(64, 64) / 3


def step(layer):
    """Return the weight after one step of gradient descent. The layer must reproduce the image."""
    local = (start * near).requires_grad_()
    (gradient,) = torch.autograd.grad(F.mse_loss(layer(images, local), images), local)
    return local - gradient


for name, layer in (("zeroed once", F.linear), ("masked_linear", lambda x, w: masked_linear(x, w, near))):
    revived = int((step(layer)[~near] != 0).sum())
    print(f"{name:14} {revived:>5} of {int((~near).sum())} absent connections are there after one step")
    assert (revived == 0) == (name == "masked_linear")

# %%
# One tensor used twice
# ---------------------
#
# :math:`Y = X X` needs no new rule. The differential is :math:`dY = dX\, X + X\, dX`, so each use of :math:`X` gives
# one term of the gradient: :math:`\bar{X} = \bar{Y} X^{\mathsf H} + X^{\mathsf H} \bar{Y}`. If you pass one tensor for
# both arguments, backward returns two gradients, and the autograd engine, which runs backward, adds them:

square = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
incoming = torch.randn(3, 3, dtype=torch.float64)
(twice,) = torch.autograd.grad(matmul(square, square), square, incoming)
by_hand = (incoming @ square.mT + square.mT @ incoming).detach()
print("X @ X: the sum of both terms:", torch.allclose(twice, by_hand))
assert torch.allclose(twice, by_hand)
assert gradcheck(lambda X: matmul(X, X), square)

# %%
# The wrong version
# -----------------
#
# Two mistakes are common. The first mistake is a missing sum over the batch. If a gradient is larger than its input,
# but the input can be broadcast to the shape of this gradient, the engine silently sums the gradient to the shape of
# the input. The result is right, but it needs as much memory as "multiply, then sum" in the first figure.
#
# The second mistake is a missing transpose. PyTorch raises an error if the matrix is not square, because the shapes do
# not fit. For a square matrix, there is no error:


class NoTranspose(Function):
    @staticmethod
    def forward(input, weight):
        return input @ weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight = ctx.saved_tensors
        return grad_output @ weight, input.mT @ grad_output  # weight.mT, and a sum over the batch


print("torch", torch.__version__)
square = torch.randn(3, 3, dtype=torch.float64)
symmetric = square + square.mT
for name, weight in (("3×2", square[:, :2]), ("3×3", square), ("3×3, symmetric", symmetric)):
    batch = torch.randn(4, 5, 3, dtype=torch.float64, requires_grad=True)
    weight = weight.clone().requires_grad_()
    try:
        ours = torch.autograd.grad(NoTranspose.apply(batch, weight).square().sum(), (batch, weight))
    except RuntimeError as error:
        print(f"{name:15} raises: {error}")
        continue
    right = torch.autograd.grad((batch @ weight).square().sum(), (batch, weight))
    verdicts = ["right" if torch.allclose(a, b) else "wrong" for a, b in zip(ours, right, strict=True)]
    checked = gradcheck(NoTranspose.apply, (batch, weight), raise_exception=False)
    print(f"{name:15} no error: input {verdicts[0]}, weight {verdicts[1]}; gradcheck {checked}")
    assert verdicts == ["right" if checked else "wrong", "right"]

# %%
# gradcheck finds the missing transpose if the matrix is not symmetric. Covariance matrices and the identity are
# symmetric, so do not test with them. You cannot find this mistake from the loss. The next cell trains a masked layer
# followed by three square layers on handwritten digits. It trains this network three times. In the first training, the
# gradient is right. In the second, the gradient of the square layers lacks the transpose. In the third, for comparison,
# the square layers send no gradient to the layers below them at all:


class NoGradient(NoTranspose):
    @staticmethod
    def backward(ctx, grad_output):
        return None, ctx.saved_tensors[0].mT @ grad_output


def train(product):
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(64, n, generator=generator) / 8 for n in (64, 64, 64, 10)]
    weights = [w.requires_grad_() for w in (start.clone(), *weights)]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    losses = []
    for _ in range(120):
        hidden = masked_linear(images, weights[0], near).tanh()
        for weight in weights[1:4]:
            hidden = product(hidden, weight).tanh()
        loss = F.cross_entropy(matmul(hidden, weights[4]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


losses = {
    "right": train(matmul),
    "transpose missing": train(NoTranspose.apply),
    "no gradient to the layers below": train(NoGradient.apply),
}
figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, values), style in zip(losses.items(), ("-", "--", ":"), strict=True):
    axis.semilogy(values, style, label=name)
axis.set(xlabel="step", ylabel="cross-entropy")
axis.set_title("A falling loss proves nothing: three layers with a missing transpose learn")
axis.legend()
plt.show()
print({name: [round(values[i], 3) for i in (0, 60, 119)] for name, values in losses.items()})
assert losses["transpose missing"][-1] < 0.2 * losses["transpose missing"][0]
assert losses["right"][-1] < 0.5 * losses["transpose missing"][-1]

# %%
# The layers adapt to the gradient without the transpose. This effect is known: networks also learn if their backward
# uses fixed random weights instead of the transpose (Lillicrap and others, Nature Communications 2016). The loss falls
# more slowly, so you may suspect a bad learning rate instead of a wrong gradient.
#
# What it costs
# -------------
#
# .. costs::
#
# ``matmul`` keeps its two factors, which the caller keeps anyway. A masked layer written with torch's operations keeps
# one tensor more than ``masked_linear``: the product ``w * m``, which is as large as the weight. It keeps this product
# even if you compile the layer:

x, weight = (torch.randn(n, 1000, requires_grad=True) for n in (16, 1000))
mask = torch.rand(1000, 1000) < 0.1
for name, function in {
    "masked_linear": masked_linear,
    "F.linear(x, w * m)": lambda x, w, m: F.linear(x, w * m),
}.items():
    print(
        f"{name:18} {saved_bytes(function, x, weight, mask) / weight.numel():.0f} bytes a weight beyond the arguments"
    )
compiled = torch.compile(masked_linear, fullgraph=True, backend="aot_eager")
assert saved_bytes(masked_linear, x, weight, mask) == saved_bytes(compiled, x, weight, mask) == 0

# %%
# ``masked_linear`` keeps only its arguments, also when you compile it (see :doc:`/guide/compiled_bytes`). The mask is
# an argument and takes one byte per weight.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/broadcasting`: ``sum_to_shape``, and when the engine sums silently.
# * :doc:`/cookbook/01_first_steps/template`: the linear layer without a mask, with every part explained.
# * :doc:`/cookbook/04_memory/masks`: a mask of one bit per element.
# * In torch's documentation: :func:`torch.autograd.gradcheck`, :func:`torch.nn.functional.linear`.
