r"""
Matrix products: vectors, batches, broadcast batches, masks
===========================================================

You will write the gradient of a matrix product for every pair of shapes that torch multiplies, keep a sparse layer
sparse, and watch a network learn although one of its gradients is wrong.
"""

# %%
# When to use it
# --------------
#
# ``matmul``: never as it stands, :func:`torch.matmul` is as good in every respect. Its backward is what you need in
# a ``Function`` of your own that multiplies matrices somewhere: low-rank layers, quantized weights, attention.
#
# ``masked_linear``: for a layer in which most weights do not exist, pruned or never there, and whose masked weight
# you do not want to keep for backward. It multiplies zeros: it saves memory and no arithmetic.
#
# The gradient
# ------------
#
# For :math:`Y = AB` each factor is multiplied by the other one's conjugate transpose, from the side on which that
# stood:
#
# .. math:: \bar{A} = \bar{Y} B^{\mathsf H}, \qquad \bar{B} = A^{\mathsf H} \bar{Y} .
#
# A vector is a matrix with one row or one column. A factor that was broadcast over a batch has been used once for
# each element of it, and its gradients add up:
#
# .. math:: \bar{B} = \sum_b A_b^{\mathsf H} \bar{Y}_b = \begin{pmatrix} A_1 \\ \vdots \\ A_n \end{pmatrix}^{\mathsf H}
#           \begin{pmatrix} \bar{Y}_1 \\ \vdots \\ \bar{Y}_n \end{pmatrix} .
#
# The right side is one product of two tall matrices: it adds while it multiplies. With a mask, :math:`B` is
# :math:`M \odot W`, and the chain rule masks the gradient once more: :math:`\bar{W} = M \odot \bar{B}`.
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
# One weight for a whole batch. If backward forms the product of each batch element before it sums, it holds a
# weight gradient for *every* element at the same time. This is what the textbook formula does, and what an explicit
# ``expand`` makes of the built-in:

weight = torch.randn(128, 128, requires_grad=True)


def sums_afterwards(input, weight):
    return torch.bmm(input, weight.expand(len(input), -1, -1))


def peak(product, size):
    """Bytes of forward and backward at the worst moment, in sizes of the weight."""
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
# Every combination of dimensions, against finite differences and against torch:

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
# A masked weight stays what it is. Here 64 units look at the 64 pixels of a digit, each at the 3×3 pixels around its
# own place. To zero the weights *once*, and to use a plain layer afterwards, is not the same:

digits = load_digits()
images, labels = torch.tensor(digits.data[:500], dtype=torch.float32) / 16, torch.tensor(digits.target[:500])
place = torch.cartesian_prod(torch.arange(8), torch.arange(8))
near = (place[:, None] - place).abs().amax(-1) <= 1
start = torch.randn(64, 64) / 3


def step(layer):
    """The weight after one step of gradient descent, to make hidden units reproduce the image."""
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
# For :math:`Y = X X` there is no new rule. The differential is :math:`dY = dX\, X + X\, dX`, and each use gives a term:
# :math:`\bar{X} = \bar{Y} X^{\mathsf H} + X^{\mathsf H} \bar{Y}`. A ``Function`` of two arguments may get the same
# tensor for both. It returns one gradient for each, and the engine adds them:

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
# Two classics. The first is the forgotten sum, and the engine forgives it: a gradient whose shape *expands* from the
# input's is summed silently. The number is right, the bytes are those of the upper curve above. The
# second is a missing transpose. Shapes catch it, until the matrix is square:


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
# gradcheck sees it, if the matrix is neither symmetric, as covariances are, nor the identity, as test data likes to
# be. What does not see it is the loss. Three square layers on top of the local one, trained on handwritten digits:


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
# The layers learn to live with it, as they do with random feedback weights (Lillicrap and others, Nature Communications
# 2016). You would take it for a poor learning rate.
#
# What it costs
# -------------
#
# .. costs::
#
# ``matmul`` keeps its factors, which the caller has anyway. ``weight * mask`` keeps the product, as large as the
# weight, and keeps it when it is compiled too:

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
# The recipe keeps nothing when it is compiled, either (:doc:`/guide/compiled_bytes` says how). The mask is an argument:
# one byte, and not one bit, a weight.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/01_first_steps/broadcasting`: ``sum_to_shape``, and how the engine sums behind your back.
# * :doc:`/cookbook/01_first_steps/template`: the linear layer without a mask, in all its parts.
# * :doc:`/cookbook/04_memory/masks`: a mask of one bit.
# * In torch's documentation: :func:`torch.autograd.gradcheck`, :func:`torch.nn.functional.linear`.
