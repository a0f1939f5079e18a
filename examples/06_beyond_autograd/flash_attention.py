r"""
FlashAttention in miniature
===========================

You will compute attention, its gradient and its second derivative in memory that grows with the length of the sequence.
The matrix of scores alone would grow with the square of the length.
"""

# %%
# When to use it
# --------------
#
# Use this recipe to learn the algorithm, to change it (another mask, another function of the scores), or when you need
# a second derivative. For plain attention, call :func:`torch.nn.functional.scaled_dot_product_attention`. This function
# has kernels of the same kind for GPUs and for the CPU. In the measurement below, it is faster than the recipe, but
# these kernels have no second derivative. With ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)``, torch's function
# has one, but makes the matrix of scores. For other masks on a GPU, see :func:`!torch.nn.attention.flex_attention`. For
# short sequences, you need none of this.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{o}` is the gradient of the loss with respect to :math:`o`.
#
# Forward processes the keys :math:`j` one block at a time. A softmax needs the maximum :math:`m` and the sum
# :math:`\ell` of the whole row, which are known only at the end. So forward keeps a running maximum, and rescales its
# sums when a block has a larger score :math:`s_j`. The new values are written with a prime, and :math:`a` is the sum of
# the values :math:`v_j` with their weights:
#
# .. math::
#
#    m' = \max(m, \max_j s_j), \qquad
#    \ell' = e^{m - m'} \ell + \sum_j e^{s_j - m'}, \qquad
#    a' = e^{m - m'} a + \sum_j e^{s_j - m'} v_j, \qquad
#    o = a / \ell .
#
# The recipe keeps two numbers per row, :math:`m` and :math:`\log \ell`. From them, backward can compute each
# probability separately, :math:`p_{ij} = e^{s_{ij} - m_i - \log \ell_i}`. A tile is a block of queries together with a
# block of keys, and backward can process the tiles in any order. Most kernels keep only the sum of the two numbers. But
# at scores of 1000, float32 rounds this sum by up to 3e-5, so every probability of the row gets a relative error of
# this size. The backward of a softmax also needs a sum over a whole row, which follows from the output :math:`o`:
#
# .. math::
#
#    \bar{s}_{ij} = p_{ij} \Big( \bar{o}_i \cdot v_j - \sum_k p_{ik}\, \bar{o}_i \cdot v_k \Big)
#    = p_{ij} \big( \bar{o}_i \cdot v_j - \delta_i \big), \qquad \delta_i = \bar{o}_i \cdot o_i .
#
# The second derivative works in the same way. For a change :math:`\dot{s}` of the scores, the probabilities change by
# :math:`p (\dot{s} - \sum p \dot{s})`. All of these are sums over tiles.
#
# The recipe
# ----------
#
# .. recipe:: attention
#
# ``triton_attention`` is the same algorithm as kernels in Triton. Forward runs one program for each block of queries.
# Backward runs one program for each block of queries and one for each block of keys, so every number is written only
# once. The recipe runs these kernels on a GPU or in Triton's interpreter. Everywhere else, it runs torch's operations
# as above. For the parts around the kernels, see :doc:`/cookbook/06_beyond_autograd/triton_kernel`.
#
# .. recipe:: triton_attention

# sphinx_gallery_tags = ["memory", "kernel", "second order"]
# sphinx_gallery_thumbnail_number = 1

import matplotlib.pyplot as plt
import torch
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from autograd_cookbook.auditing import held_bytes, peak_bytes
from autograd_cookbook.recipes._attention import attend
from autograd_cookbook.recipes.flash_attention import attention

# %%
# See it work
# -----------
#
# The left figure is for forward and backward of one head. It shows the exact number of bytes at the peak, without the
# gradients, which every version must return. The right figure shows which tiles a causal mask makes unnecessary:


def composed(query, key, value, causal=False):
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return torch.softmax(scores, -1) @ value


def problem(length, width=32, dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.randn(1, 1, length, width, dtype=dtype, requires_grad=True) for _ in range(3)]


def extra(function, *tensors):
    """Bytes at the peak of forward and backward, beyond the gradients."""
    gradients = sum(t.untyped_storage().nbytes() for t in tensors)
    return peak_bytes(lambda: torch.autograd.grad(function(*tensors).sum(), tensors)) - gradients


lengths = [256, 512, 1024, 2048]
ways = {
    "composed": composed,
    "recipe": lambda *t: attention(*t, block=256),
    "torch": F.scaled_dot_product_attention,
}
curves = {name: [extra(function, *problem(n)) / 1e6 for n in lengths] for name, function in ways.items()}

figure, (axis, picture) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", width_ratios=[3, 2])
figure.suptitle("Peak memory of attention and its gradient by length, and a tile's share of causal scores")
for (name, values), style in zip(curves.items(), ("-o", "-.^", "--s"), strict=True):
    axis.loglog(lengths, values, style, label=name)
axis.loglog(lengths, [4 * n * n / 1e6 for n in lengths], ":", color="0.6", label="the scores alone")
axis.set(xlabel="length", ylabel="MB at the peak, beyond gradients")
axis.set_xticks(lengths, [f"{n:,}" for n in lengths])
axis.minorticks_off()
axis.legend()
query, key, value = (t[0, 0, :64].detach() for t in problem(64))
weights = torch.softmax((query @ key.mT / 4).masked_fill(torch.ones(64, 64, dtype=torch.bool).triu(1), -torch.inf), -1)
picture.imshow(weights.sqrt(), cmap="Blues")
for start in range(0, 64, 16):
    for column in range(0, 64, 16):
        skipped = column > start
        box = plt.Rectangle((column - 0.5, start - 0.5), 16, 16, fill=skipped, hatch="//" if skipped else None)
        box.set(edgecolor="0.6", facecolor="none")
        picture.add_patch(box)
picture.set(xlabel="key", ylabel="query", title="hatched: never computed", xticks=[], yticks=[])
plt.show()

print("torch", torch.__version__, "MB at length 2,048:", {name: round(v[-1], 2) for name, v in curves.items()})
growth = {name: values[-1] / values[-2] for name, values in curves.items()}
print("growth from 1,024 to 2,048:", {name: round(g, 2) for name, g in growth.items()})
assert growth["composed"] > 3.9
assert growth["recipe"] < 2

# %%
# The next cell checks the recipe with tiles that do not fit evenly: against torch, by finite differences, and by the
# second derivatives of all versions:

q, k, v = problem(37, 5, torch.float64)
ours = attention(q, k, v, causal=True, block=8)
theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
for a, b in zip(torch.autograd.grad(ours.sum(), (q, k, v)), torch.autograd.grad(theirs.sum(), (q, k, v)), strict=True):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)

small = problem(5, 2, torch.float64)
print("gradcheck     ", gradcheck(lambda *t: attention(*t, causal=True, block=2), small))
print("gradgradcheck ", gradgradcheck(lambda *t: attention(*t, causal=True, block=2), small))

curvature = {}
for name, function in ways.items():
    try:
        (gradient,) = torch.autograd.grad(function(q, k, v).square().sum(), q, create_graph=True)
        curvature[name] = torch.autograd.grad(gradient.square().sum(), (q, k, v))
        print(f"{name:9} second derivative of norm {float(curvature[name][0].norm()):.6f}")
    except RuntimeError as error:
        print(f"{name:9} {error}")
for a, b in zip(curvature["recipe"], curvature["composed"], strict=True):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
assert "torch" not in curvature

with sdpa_kernel(SDPBackend.MATH):
    output = F.scaled_dot_product_attention(q, k, v)
(gradient,) = torch.autograd.grad(output.square().sum(), q, create_graph=True)
of_torch = torch.autograd.grad(gradient.square().sum(), (q, k, v))
print(f"torch, MATH second derivative of norm {float(of_torch[0].norm()):.6f}")
for a, b in zip(of_torch, curvature["composed"], strict=True):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)

# %%
# The wrong version
# -----------------
#
# The next cell has two mistakes that raise no error. In forward, the old sum is not rescaled when the maximum changes.
# In backward, :math:`\delta` is missing:


def unscaled(query, key, value, block):
    largest = torch.full_like(query[..., :1], -torch.inf)
    total, weighted = torch.zeros_like(largest), torch.zeros_like(query)
    for keys, values in zip(key.split(block, -2), value.split(block, -2), strict=True):
        scores = query @ keys.mT * query.shape[-1] ** -0.5
        largest = torch.maximum(largest, scores.amax(-1, keepdim=True))
        weights = torch.exp(scores - largest)
        total, weighted = total + weights.sum(-1, keepdim=True), weighted + weights @ values
    return weighted / total


class WithoutDelta(Function):
    @staticmethod
    def forward(query, key, value):
        return attend(query, key, value, False, query.shape[-1] ** -0.5, 8)[0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        query, key, value = ctx.saved_tensors
        scale = query.shape[-1] ** -0.5
        probability = torch.softmax(query @ key.mT * scale, -1)
        grad_scores = probability * (grad_output @ value.mT)  # here delta is missing
        return grad_scores @ key * scale, grad_scores.mT @ query * scale, probability.mT @ grad_output


expected = composed(q, k, v)
for block in (37, 8):
    error = (unscaled(q, k, v, block) - expected).norm() / expected.norm()
    print(f"unscaled, {block:2} keys a block: relative error {float(error.detach()):.0e}")

flat = [t.flatten(0, 1).detach().requires_grad_() for t in (q, k, v)]
for found, right, name in zip(
    torch.autograd.grad(WithoutDelta.apply(*flat).square().sum(), flat),
    torch.autograd.grad(composed(*flat).square().sum(), flat),
    ("query", "key", "value"),
    strict=True,
):
    print(f"without delta, gradient of {name:5}: relative error {float((found - right).norm() / right.norm()):.0e}")

# %%
# The first mistake has no effect as long as one block holds all keys, which is the case in a small test. So test with a
# block size that gives several blocks. The second mistake leaves the gradient of the value right. ``gradcheck`` detects
# it, but in training the loss may still fall.
#
# What it costs
# -------------
#
# .. costs::
#
# The compiled composition keeps as few bytes as torch's kernel, because the compiler recognizes attention and calls
# this kernel.
#
# The next table has other lengths, for one head of width 64 in float32, on one core of an AMD EPYC. Bytes are exact.
# The time is processor time, the shortest of three runs, as a multiple of the composition's time:
#
# .. csv-table::
#    :header: "length", "", "MB at the peak, beyond gradients", "time"
#
#    "1,024", "composed", "12.3", "1.00"
#    "1,024", "torch", "1.3", "0.69"
#    "1,024", "ours", "3.7", "1.31"
#    "4,096", "composed", "200.3", "1.00"
#    "4,096", "torch", "2.1", "0.44"
#    "4,096", "ours", "4.5", "0.74"
#    "16,384", "composed", "3,217.0", "1.00"
#    "16,384", "torch", "5.3", "0.37"
#    "16,384", "ours", "7.7", "0.51"
#
# The composition keeps the probabilities until backward, where it computes their gradient, a matrix of the same size.
# The recipe keeps its output and two numbers per query, which is one number more than torch keeps:

tensors = problem(2_048)
for name, function in ways.items():
    print(f"{name:9} {held_bytes(function, *tensors):>12,} bytes held between forward and backward")
queries = tensors[0].shape[:-1].numel()
assert held_bytes(attention, *tensors) == held_bytes(F.scaled_dot_product_attention, *tensors) + 4 * queries

# %%
# This site is built without a GPU, so it shows no GPU times. ``benchmarks/attention.py`` measures the Triton kernels on
# a GPU. :func:`torch.compile` treats the loops over tiles as one operator. So the graph does not grow with the number
# of tiles, and the compiled recipe keeps the same bytes as in eager mode (:doc:`/guide/compiled_bytes`):

compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
print(f"compiled  {held_bytes(compiled, *tensors):>12,} bytes held between forward and backward")
assert held_bytes(compiled, *tensors) == held_bytes(attention, *tensors)

# %%
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/06_beyond_autograd/triton_kernel`: a kernel that is short enough to read.
# * :doc:`/cookbook/04_memory/linear_cross_entropy`: the same idea for a loss over many classes.
# * :doc:`/cookbook/04_memory/checkpointing`: recompute any function in backward.
# * :doc:`/cookbook/01_first_steps/reductions`: the log-sum-exp by itself.
# * In torch's documentation: :func:`torch.nn.functional.scaled_dot_product_attention`.
