r"""
Sparse matrices and segments: gradients at the stored places only
=================================================================

You will multiply by a sparse matrix and train its values, look up embeddings, and reduce rows by segment: sum, mean,
maximum and softmax. A segment is the group of all rows with the same index. None of these functions makes a dense
matrix. For example, take a matrix of 4,000 rows with ten values each. Forward and backward of the recipe need less than
4 MB. If you make a sparse tensor from the trained values and call :func:`torch.sparse.mm`, forward and backward need
65 MB. For float16 and bfloat16, the recipes compute the sums in float32.
"""

# %%
# When to use it
# --------------
#
# Use these recipes when you train the stored values of a sparse matrix, or when a network computes these values.
# Examples are graph layers, sparse weights, interpolation and finite elements. The recipes also serve for attention
# over the edges of a graph, and for embeddings in bfloat16. In other cases, something else is better:
#
# * The matrix is a constant: ``A @ X`` with a CSR tensor (torch's format of compressed rows) is faster, and its
#   gradient for ``X`` is right.
# * The CSR tensor itself is the parameter, in float32, and you need only first derivatives: call
#   :func:`torch.sparse.mm`. It also computes the gradient at the stored places only (torch 2.13).
# * A large part of the entries is stored: use a dense matrix and a mask (:doc:`/cookbook/01_first_steps/matmul`).
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{Y}` is the gradient of the loss with respect to :math:`Y`. In the formulas of the
# recipes, a star marks the complex conjugate.
#
# Two operations are the basis of this page, and each operation is the gradient of the other. One *looks up* rows by an
# index, and the other *adds* rows by an index. A sparse matrix :math:`A` stores its values :math:`a_e` at row
# :math:`r_e` and column :math:`c_e`. Its product with a dense matrix :math:`X` uses both operations:
#
# .. math::
#
#    Y_i = \sum_{e:\, r_e = i} a_e X_{c_e}, \qquad
#    \bar{a}_e = \bar{Y}_{r_e} \cdot X_{c_e}, \qquad
#    \bar{X}_j = \sum_{e:\, c_e = j} a_e \bar{Y}_{r_e} .
#
# The gradient :math:`\bar{a}` consists of the entries of :math:`\bar{Y} X^\top` at the stored places, called a
# *sampled* product. The gradient :math:`\bar{X}` is the product with :math:`A^\top`, which is the same function with
# rows and columns exchanged. The gradient of the sampled product is again a sparse product. So the product and the
# sampled product call each other in backward, and have derivatives of every order. Both process the stored places in
# chunks that fit into the cache.
#
# The recipe
# ----------
#
# .. recipe:: sparse_mm
#
# .. recipe:: sampled_product
#
# .. recipe:: take_rows
#
# .. recipe:: segment_sum
#
# .. recipe:: segment_mean
#
# .. recipe:: segment_max
#
# .. recipe:: segment_softmax

# sphinx_gallery_tags = ["memory", "speed", "second order", "compile"]
# sphinx_gallery_thumbnail_number = 1

import warnings

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

from autograd_cookbook import audit
from autograd_cookbook.auditing import held_bytes, peak_bytes
from autograd_cookbook.recipes.sparse import (
    sampled_product,
    segment_max,
    segment_mean,
    segment_softmax,
    sparse_mm,
    take_rows,
)

warnings.filterwarnings("ignore", "Sparse (CSR|invariant)|Dynamo does not know")  # in beta, not checked, not compiled
print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# The left figure shows the peak memory of forward and backward, for a square matrix that is multiplied by a dense
# matrix with 16 columns. The square matrix has ten values in each row, and these values are trained. With torch's two
# formats, you make a sparse tensor from these values, and then backward makes a dense matrix:
#
# * With COO (the format that stores the row and the column of each value), the backward of :func:`torch.sparse.mm`
#   computes the dense :math:`\bar{Y} X^\top`, and then discards nearly all of it.
# * With CSR, you call ``torch.sparse_csr_tensor`` to make the tensor from the values. The backward of
#   ``torch.sparse_csr_tensor`` makes a dense matrix.
#
# The right figure shows the gradient of one row of an embedding table in bfloat16, if this row is looked up many times.
# On a CPU, :func:`torch.nn.functional.embedding` adds in bfloat16, where 256 + 1 is 256.


def problem(size, width=16, each=10):
    torch.manual_seed(0)
    column = torch.randint(size, (size, 1)) + torch.arange(each) * (size // each)
    row = torch.arange(size).repeat_interleave(each)
    indices = torch.stack([row, (column % size).sort(1).values.flatten()])
    return indices, torch.randn(len(row), requires_grad=True), torch.randn(size, width, requires_grad=True)


def as_coo(indices, values, input):
    size = len(input)
    return torch.sparse.mm(torch.sparse_coo_tensor(indices, values, (size, size), is_coalesced=True), input)


def as_csr(indices, values, input):
    size = len(input)
    starts = torch.searchsorted(indices[0], torch.arange(size + 1))
    return torch.sparse.mm(torch.sparse_csr_tensor(starts, indices[1], values, (size, size)), input)


def composed(indices, values, input):
    row, column = indices
    return torch.zeros_like(input).index_add(0, row, values[:, None] * input[column])


def recipe(indices, values, input):
    return sparse_mm(indices, values, input, len(input))


def peak(function, indices, values, input):
    return peak_bytes(lambda: torch.autograd.grad(function(indices, values, input).sum(), (values, input)))


sizes = [500, 1000, 2000, 4000, 8000]
products = {"torch, COO": as_coo, "torch, CSR": as_csr, "index_add": composed, "recipe": recipe}
peaks = {
    name: [peak(function, *problem(n)) / 1e6 for n in (sizes[:-1] if "torch" in name else sizes)]
    for name, function in products.items()
}

occurrences = [2**n for n in range(13)]
counted = {"exact": [float(n) for n in occurrences]}
for name, look_up in {"F.embedding": lambda w, i: F.embedding(i, w), "take_rows": take_rows}.items():
    counted[name] = []
    for n in occurrences:
        table = torch.zeros(2, 8, dtype=torch.bfloat16, requires_grad=True)
        look_up(table, torch.zeros(n, dtype=torch.int64)).sum().backward()
        counted[name].append(table.grad[0, 0].item())

figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.5), layout="constrained")
for (name, values), style in zip(peaks.items(), ("C1-s", "C3--v", "C2-o", "C0-^"), strict=True):
    left.loglog(sizes[: len(values)], values, style, label=name)
left.loglog(sizes, [n * n * 4 / 1e6 for n in sizes], ":", color="0.5", label="the dense matrix")
left.set(xlabel="rows, ten values in each", ylabel="MB at the peak", title="A @ X: torch makes a dense matrix")
left.set_xticks(sizes, [f"{n:,}" for n in sizes], fontsize=8)
left.minorticks_off()
left.legend(fontsize=8)
right.loglog(occurrences, counted["exact"], ":", color="0.5", label="exact")
right.loglog(occurrences, counted["F.embedding"], "C1-s", label="F.embedding")
right.loglog(occurrences, counted["take_rows"], "C0--^", label="take_rows")
right.set(xlabel="occurrences of the row", ylabel="its gradient", title="Lookup in bfloat16: torch stops at 256")
right.legend(fontsize=8)
figure.suptitle("Two gradients of sums over an index")
plt.show()

print("MB at the peak, 4,000 rows:", {name: round(values[3], 2) for name, values in peaks.items()})
print("gradient of a row that occurs 4096 times:", {name: values[-1] for name, values in counted.items()})
assert peaks["recipe"][3] < 4 < 64.9 < min(peaks["torch, COO"][3], peaks["torch, CSR"][3])
assert peaks["recipe"][3] < peaks["index_add"][3] / 2
assert counted["take_rows"] == counted["exact"]
assert counted["F.embedding"][-1] == 256

# %%
# The next cell tries the second derivative, the transforms of :mod:`torch.func`, the compiler and bfloat16 with each
# version, and prints which of them work:

indices, values, input = problem(100)


def second(function):
    (first,) = torch.autograd.grad(function(indices, values, input).square().sum(), values, create_graph=True)
    torch.autograd.grad(first.square().sum(), input)


attempts = {
    "second order": second,
    "torch.func": lambda f: torch.func.grad(lambda v: f(indices, v, input).sum())(values),
    "compiled": lambda f: torch.compile(f, backend="aot_eager", fullgraph=True)(indices, values, input),
    "bfloat16": lambda f: f(indices, values.bfloat16(), input.bfloat16()).sum().backward(),
}
works = {}
for name, function in products.items():
    works[name] = []
    for attempt, run in attempts.items():
        try:
            run(function)
            works[name].append(attempt)
        except (RuntimeError, NotImplementedError):
            pass
    print(f"{name:10} {', '.join(works[name]) or 'none of them'}")
assert works["recipe"] == list(attempts)

# %%
# What torch does, by layout
# --------------------------
#
# The next cell prints the layout of the gradient of a matrix with 1,000 rows of ten values, for each layout of the
# matrix. It also prints the peak memory, as a multiple of the dense matrix. ``A @ X`` and ``torch.sparse.mm(A, X)`` are
# the same product. But only ``torch.sparse.mm`` with CSR computes a sparse gradient without first making a dense
# matrix:

indices, values, input = problem(1000)
coo = torch.sparse_coo_tensor(indices, values.detach(), (1000, 1000)).coalesce()
layouts = {"COO": coo, "CSR": coo.to_sparse_csr(), "CSC": coo.to_sparse_csc(), "BSR": coo.to_sparse_bsr((2, 2))}


def gradient_of(matrix, product):
    return torch.autograd.grad(product(matrix, input).sum(), matrix)[0]


for name, matrix in layouts.items():
    matrix.requires_grad_()
    for called, product in {"A @ X": torch.matmul, "torch.sparse.mm": torch.sparse.mm}.items():
        try:
            gradient = gradient_of(matrix, product)
            most = peak_bytes(gradient_of, matrix, product) / 1000**2 / 4
            print(f"{name} {called:15} gradient {gradient.layout}, peak {most:.1f} times the dense matrix")
            assert (most >= 1) != ((name, called) == ("CSR", "torch.sparse.mm"))
        except (RuntimeError, NotImplementedError) as error:
            print(f"{name} {called:15} {str(error).splitlines()[0][:100]}")

# %%
# This holds if the CSR tensor itself is the parameter. If you make the CSR tensor from values that require grad,
# backward does make a dense matrix, to compute the gradient of the values:


def of_values(product):
    starts = torch.arange(0, len(values) + 1, 10)
    built = torch.sparse_csr_tensor(starts, indices[1], values, (1000, 1000))
    return torch.autograd.grad(product(built, input).sum(), values)


built = peak_bytes(of_values, torch.sparse.mm) / 1000**2 / 4
print(f"CSR made from the values, torch.sparse.mm: peak {built:.1f} times the dense matrix")
assert built >= 1

# %%
# The recipe takes indices and values, so it works with any layout. A CSR tensor does not store the row of each value,
# so you must compute the rows. The differences of its ``crow_indices`` say how many values each row has. Repeat the
# number of each row as often as the row has values:

csr = layouts["CSR"].detach()
row = torch.repeat_interleave(csr.crow_indices().diff())
ours = sparse_mm(torch.stack([row, csr.col_indices()]), csr.values(), input, rows=1000)
torch.testing.assert_close(ours, coo.to_dense() @ input)

# %%
# The next cell adds 4,000 values of 1 in one row, in bfloat16. The recipe rounds once, at the end:

places = torch.stack([torch.zeros(4000, dtype=torch.int64), torch.arange(4000)])
ones = torch.ones(4000, dtype=torch.bfloat16)
column = torch.ones(4000, 1, dtype=torch.bfloat16)
stalled = torch.sparse.mm(torch.sparse_coo_tensor(places, ones, (1, 4000)), column)
print("torch.sparse.mm", stalled.item(), " sparse_mm", sparse_mm(places, ones, column, rows=1).item())
assert sparse_mm(places, ones, column, rows=1).item() == 4000

# %%
# Attention over the edges of a graph
# -----------------------------------
#
# Three recipes together make masked attention without the matrix of all pairs. They compute scores at the edges, a
# softmax over the edges of each node, and a weighted sum of the neighbors. The cell prints the bytes that are held
# until backward, for 2,000 nodes and 20,000 edges:


def attention(query, key, value):
    scores = sampled_product(edges, query, key)
    return sparse_mm(edges, segment_softmax(scores, edges[0], len(query)), value, len(query))


def dense_attention(query, key, value):
    scores = (query @ key.T).masked_fill(~is_edge, -torch.inf)
    return scores.softmax(1) @ value


edges = problem(2000)[0].unique(dim=1)
is_edge = torch.zeros(2000, 2000, dtype=torch.bool)
is_edge[tuple(edges)] = True
tensors = [torch.randn(2000, 16, requires_grad=True) for _ in range(3)]
gradients = {}
for function in (dense_attention, attention):
    gradients[function] = torch.autograd.grad(function(*tensors).square().sum(), tensors)
    print(f"{function.__name__:16} {held_bytes(function, *tensors) / 1e6:5.2f} MB held")
for a, b in zip(*gradients.values(), strict=True):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
assert held_bytes(attention, *tensors) < held_bytes(dense_attention, *tensors) / 50

# %%
# Empty segments and ties
# -----------------------
#
# The sum, the mean and the maximum of an empty segment are 0. If several rows share the maximum, they share its
# gradient evenly. In torch, :meth:`~torch.Tensor.scatter_reduce` with ``include_self=False`` also computes a maximum by
# index. Its forward ignores the initial values of the output. But its backward counts an initial value that is equal to
# the maximum as one more row that shares the gradient. **If the initial values are zeros and the maximum is 0, a part
# of the gradient is lost.** This is common after a ReLU. For example, if only one row has the maximum 0, this row gets
# half of the gradient, and the other half is lost:

x = torch.tensor([0.0, -1.0, 2.0, 2.0], requires_grad=True)
segment = torch.tensor([0, 0, 2, 2])
torchs = torch.zeros(3).scatter_reduce(0, segment, x, "amax", include_self=False)
ours = segment_max(x, segment, 3)
print("maxima", ours.tolist())
for name, maxima in {"scatter_reduce": torchs, "segment_max": ours}.items():
    print(f"{name:15} gradient {torch.autograd.grad(maxima.sum(), x)[0].tolist()}")
assert torch.equal(ours, torchs)
zeros = torch.zeros(2, requires_grad=True)  # two rows have the maximum: a third is lost
shared = torch.zeros(1).scatter_reduce(0, segment[:2], zeros, "amax", include_self=False)
assert torch.allclose(torch.autograd.grad(shared, zeros)[0], torch.full((2,), 1 / 3))
assert torch.autograd.grad(segment_max(x, segment, 3).sum(), x)[0].tolist() == [1, 0, 0.5, 0.5]

# %%
# Sparse gradients of an embedding
# --------------------------------
#
# With ``sparse=True``, the gradient of a table contains only the rows that were looked up. If a row was looked up
# several times, the gradient has several entries for this row, which are not summed yet. The next cell shows which
# optimizers accept such a gradient. It also shows which layout results if autograd adds a dense gradient to it:

index = torch.tensor([3, 7, 3])
table = nn.Embedding(100_000, 16, sparse=True)
table(index).sum().backward()
gradient = table.weight.grad
print(f"{gradient.layout}, {gradient._nnz()} rows, coalesced: {gradient.is_coalesced()}")
for optimizer in (torch.optim.SGD, torch.optim.Adagrad, torch.optim.SparseAdam, torch.optim.Adam, torch.optim.AdamW):
    try:
        optimizer(table.parameters(), lr=0.1).step()
        print(f"{optimizer.__name__:10} takes it")
    except RuntimeError as error:
        print(f"{optimizer.__name__:10} {error}")
table.weight.square().mean().backward()  # a penalty on the table
print("next to a dense gradient:", table.weight.grad.layout)
assert table.weight.grad.layout == torch.strided

# %%
# Gradients through ``sparse_coo_tensor``
# ---------------------------------------
#
# If your code needs torch's sparse tensor, build it *in forward* from the values that you train. The backward of
# ``sparse_coo_tensor`` gets the gradient of the sparse tensor, and reads it at the indices: each value gets the entry
# at its index. The operation that uses the sparse tensor decides whether this gradient is sparse or dense. torch reads
# both correctly. If an index occurs twice, forward adds the two values. So both values get the same gradient, the whole
# entry at this index:

places = torch.tensor([[0, 0, 1], [1, 1, 2]])  # (0, 1) twice
trained = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
factor = torch.randn(3, 4)
consumers = {
    "torch.sparse.mm(A, X)": lambda A: torch.sparse.mm(A, factor).square().sum(),
    "A @ X": lambda A: (A @ factor).square().sum(),
    "torch.sparse.sum(A, 1)": lambda A: torch.sparse.sum(A, 1).to_dense().square().sum(),
    "A.to_dense()": lambda A: A.to_dense().square().sum(),
    "A.coalesce().values()": lambda A: A.coalesce().values().square().sum(),
}
composed = torch.zeros(2, 3).index_put(tuple(places), trained, accumulate=True)
dense = {
    **dict.fromkeys(("torch.sparse.mm(A, X)", "A @ X"), (composed @ factor).square().sum()),
    "torch.sparse.sum(A, 1)": composed.sum(1).square().sum(),
    **dict.fromkeys(("A.to_dense()", "A.coalesce().values()"), composed.square().sum()),
}
for name, consumer in consumers.items():
    layouts = []
    A = torch.sparse_coo_tensor(places, trained, (2, 3))
    A.register_hook(lambda grad, layouts=layouts: layouts.append(grad.layout))
    (gradient,) = torch.autograd.grad(consumer(A), trained)
    (expected,) = torch.autograd.grad(dense[name], trained, retain_graph=True)
    print(f"{name:24} gradient of A: {layouts[0]!s:17} of the values: {[round(g, 2) for g in gradient.tolist()]}")
    assert torch.allclose(gradient, expected, rtol=1e-4)
    assert gradient[0] == gradient[1]

# %%
# If you make the sparse tensor only once, outside of forward, from ``values.detach()``, the values get no gradient.
#
# A dense gradient of ``A`` can be too large: for 100,000 × 100,000 entries, it takes 40 GB. Whether the gradient is
# dense depends on the operation:
#
# * The gradient of ``torch.sparse.sum`` is sparse in torch 2.13 (`in earlier versions it was dense
#   <https://github.com/pytorch/pytorch/issues/49683>`_).
# * The gradient of ``A.sum()`` is one number, which torch expands to the shape of ``A`` without memory. But if another
#   operation also uses ``A``, autograd adds the two gradients, and the sum is a dense matrix in memory.
# * The gradient of ``torch.sparse.mm`` with COO fills a dense matrix, too.
#
# So compute from the values and the indices instead. The sum of all entries is ``values.sum()``, the sums of the rows
# are an ``index_add``, and the product is ``sparse_mm``.
#
# If your own ``Function`` must return a sparse tensor, its backward gets a ``grad_output`` that is sparse or dense.
# Read it at the indices with ``sparse_mask``, as in the next cell. This method accepts both kinds, and makes no dense
# matrix. Do not call ``to_dense()`` on ``grad_output``, because this makes the dense matrix.


class ToSparse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, indices, size):
        ctx.save_for_backward(indices)
        return torch.sparse_coo_tensor(indices, values, size)

    @staticmethod
    def backward(ctx, grad_output):
        (indices,) = ctx.saved_tensors
        ones = torch.ones(indices.shape[1], dtype=grad_output.dtype, device=grad_output.device)
        mask = torch.sparse_coo_tensor(indices, ones, grad_output.shape)
        return grad_output.sparse_mask(mask)._values(), None, None  # in the order of the indices


def two_sums(A):
    return A.sum() + torch.sparse.sum(A)


def product(A):
    return torch.sparse.mm(A, input).sum()


def row_sums(values):
    return values.new_zeros(2000).index_add(0, indices[0], values).square().sum()


indices, values, input = problem(2000)
ways = {
    "torch.sparse.sum": lambda v: torch.sparse.sum(torch.sparse_coo_tensor(indices, v, (2000, 2000))),
    "A.sum()": lambda v: torch.sparse_coo_tensor(indices, v, (2000, 2000)).sum(),
    "A.sum() + torch.sparse.sum(A)": lambda v: two_sums(torch.sparse_coo_tensor(indices, v, (2000, 2000))),
    "torch.sparse.mm": lambda v: product(torch.sparse_coo_tensor(indices, v, (2000, 2000))),
    "torch.sparse.sum, ToSparse": lambda v: torch.sparse.sum(ToSparse.apply(v, indices, (2000, 2000))),
    "values.sum()": lambda v: v.sum(),
    "row sums by index_add": row_sums,
    "sparse_mm": lambda v: sparse_mm(indices, v, input, 2000).sum(),
}
for name, way in ways.items():
    most = peak_bytes(lambda way=way: torch.autograd.grad(way(values), values)) / (4 * 2000**2)
    print(f"{name:30} peak {most:.2f} times the dense matrix")
    assert (most >= 1) == (name in ("A.sum() + torch.sparse.sum(A)", "torch.sparse.mm"))
    assert not 0.3 < most < 1

for name, consumer in consumers.items():
    (gradient,) = torch.autograd.grad(consumer(ToSparse.apply(trained, places, (2, 3))), trained)
    (expected,) = torch.autograd.grad(dense[name], trained, retain_graph=True)
    assert torch.allclose(gradient, expected, rtol=1e-4), name

# %%
# The audit
# ---------
#
# The function ``audit`` (:doc:`/guide/audit`) checks ``sparse_mm`` on a small problem:

values = torch.randn(4, dtype=torch.float64, requires_grad=True)
input = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
report = audit(sparse_mm, (torch.tensor([[0, 1, 1, 3], [2, 0, 2, 2]]), values, input, 4))
print(report.headline)
assert report.ok, report

# %%
# The wrong version
# -----------------
#
# A softmax subtracts the maximum, so that no exponential overflows. With segments, you may be tempted to subtract the
# maximum of *all* rows, because this takes one line and no index. But if all values of a segment are far below that
# maximum, all exponentials of this segment are 0, and its softmax is 0 divided by 0:


def with_one_maximum(input, index, size):
    powers = (input - input.max()).exp()
    return powers / torch.zeros(size).index_add(0, index, powers)[index]


scores = torch.tensor([0.0, 1.0, -200.0, -201.0], requires_grad=True)
segment = torch.tensor([0, 0, 1, 1])
for function in (with_one_maximum, segment_softmax):
    p = function(scores, segment, 2)
    (gradient,) = torch.autograd.grad(p[0] + p[2], scores)
    shown = [[round(v, 4) for v in t.tolist()] for t in (p, gradient)]
    print(f"{function.__name__:16} {shown[0]}, gradient {shown[1]}")
    assert p.isfinite().all() == (function is segment_softmax)

# %%
# What it costs
# -------------
#
# .. costs::
#
# The composition of torch's operations is called ``index_add`` in the figure. In eager mode, it keeps the looked-up
# rows of ``X``, one row for each stored value. At the peak, it needs twice the memory of these rows. The recipe keeps
# only its arguments. It looks up the rows in chunks, and adds each chunk while it is in the cache of the processor.
# **If you compile and stay in float32, write the composition.** The compiled code looks up, multiplies and adds in one
# loop, so it never stores the rows, and it is faster than the recipe. The compiled recipe is still better for sums in
# half precision, and it also checks that the indices are in range.
#
# The mean of large numbers can overflow if you add first and then divide. ``segment_mean`` divides before it adds, so
# this mean stays finite:

large = torch.full((4,), 3e38)
segment = torch.zeros(4, dtype=torch.int64)
print("sum, then division:", (torch.zeros(1).index_add(0, segment, large) / 4).item())
print("segment_mean:      ", segment_mean(large, segment, 1).item())
assert segment_mean(large, segment, 1).item() == large[0].item()

# %%
# Neighbors
# ---------
#
# * :doc:`/cookbook/06_beyond_autograd/scipy_functions`: solve a sparse system, with the same sampled gradient.
# * :doc:`/cookbook/01_first_steps/reductions`: sum, mean and maximum over dimensions.
# * :doc:`/cookbook/01_first_steps/matmul`: a dense layer with masked weights.
# * :doc:`/cookbook/06_beyond_autograd/flash_attention`: dense attention without its matrix.
# * In torch's documentation: :func:`torch.sparse.mm`, :meth:`torch.Tensor.index_add_`,
#   :func:`torch.nn.functional.embedding`.
