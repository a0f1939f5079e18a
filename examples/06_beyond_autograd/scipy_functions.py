r"""
SciPy with a gradient
=====================

You will call SciPy from a ``Function`` so that gradients of every order, forward mode and ``vmap`` work. The example
finds the conductivity of a metal plate from a few temperatures.
"""

# %%
# When to use it
# --------------
#
# Use SciPy when it has the algorithm and torch does not, for example for sparse factorizations, special functions and
# filters. If torch has the function, use torch: :mod:`torch.fft`, :mod:`torch.linalg` and :mod:`torch.special` have
# gradients and run on a GPU. Each call below copies to the CPU, and ``torch.compile`` leaves it out of its graph. For a
# call inside of a compiled graph, write an operator, see :doc:`/cookbook/06_beyond_autograd/custom_operator`.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`. A star marks the
# complex conjugate.
#
# Autograd does not record NumPy, so backward must be a formula. If possible, let backward call the *same* ``Function``
# again, with other arguments. Then there is a second derivative, too, and ``once_differentiable`` is not needed. The
# simplest case is a linear map. Forward mode, which computes a derivative (the tangent) along with each value, applies
# the same map to the tangent. Backward applies the adjoint of the map (the transpose, conjugated if complex), which is
# also linear. The cosine transform here is orthogonal, so its adjoint is its inverse:
#
# .. math::
#
#    y = C x, \qquad \dot{y} = C \dot{x}, \qquad \bar{x} = C^\top \bar{y} = C^{-1} \bar{y} .
#
# The solution of a linear system is not linear in the matrix. Its gradient is again the solution of a system, with the
# adjoint matrix:
#
# .. math::
#
#    A x = b, \qquad A^{\mathsf{H}} u = \bar{x}, \quad \bar{b} = u, \quad \bar{a}_{ij} = -u_i x_j^* .
#
# For a sparse matrix, backward computes :math:`\bar{a}` only at the stored places, and never the full matrix. The LU
# factors of :math:`A` also solve systems with :math:`A^{\mathsf{H}}`, so one factorization is enough for all
# derivatives.
#
# The recipe
# ----------
#
# .. recipe:: dct
#
# .. recipe:: sparse_solve
#
# Copy three parts of these recipes into your own code:
#
# * ``as_numpy`` detaches the tensor and copies it from the GPU. It also calls ``resolve_conj``, because ``x.conj()``
#   only marks a tensor as conjugated, and NumPy needs the numbers. After SciPy's call, ``.to(...)`` moves the result
#   back to the device of the input, and to its dtype if SciPy changed it.
# * A rule for ``vmap`` passes the whole batch to SciPy, because PyTorch cannot batch a NumPy call by itself. For one
#   matrix with many right-hand sides, this rule calls the solver *once*.
# * ``torch.compiler.disable`` keeps the compiler from tracing the Python code inside of SciPy.

# sphinx_gallery_tags = ["black box", "second order", "forward mode"]
# sphinx_gallery_thumbnail_number = 1

import time

import matplotlib.pyplot as plt
import torch
from scipy import fft
from scipy.sparse import csc_array, linalg
from torch.autograd import Function, gradcheck, gradgradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.scipy_functions import dct, sparse_solve

print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# A plate is cold along its rim, and heated at twelve places, one after the other. Sensors measure temperatures, with
# noise. The task is to find where the plate conducts badly. The heat equation on 32 × 32 cells is a sparse system. The
# entries of its matrix are differentiable functions of the conductivity, and ``sparse_solve`` computes the gradients of
# these entries.

side = 32
cell = torch.arange(side * side).reshape(side, side)
one = torch.cat([cell[:, :-1].flatten(), cell[:-1].flatten()])
other = torch.cat([cell[:, 1:].flatten(), cell[1:].flatten()])
on_rim = torch.ones(side, side, dtype=torch.bool)
on_rim[1:-1, 1:-1] = False
rim = cell[on_rim]
# Values at the same place are summed, so each pair of neighbors adds its four entries, in any order.
indices = torch.stack([torch.cat([one, other, one, other, rim]), torch.cat([one, other, other, one, rim])])


def temperatures(conductivity, heat):
    """Steady state; one column for each column of ``heat``."""
    flat = conductivity.flatten()
    between = 2 / (1 / flat[one] + 1 / flat[other])
    values = torch.cat([between, between, -between, -between, 2 * flat[rim]])
    return sparse_solve(indices, values, heat)


y, x = torch.meshgrid(*[torch.linspace(-1, 1, side)] * 2, indexing="ij")
truth = torch.ones(side, side)
truth[(x + 0.3) ** 2 + (y - 0.25) ** 2 < 0.1] = 0.2
truth[((x - 0.45).abs() < 0.22) & ((y + 0.3).abs() < 0.4)] = 0.4

torch.manual_seed(0)
heat = torch.zeros(side * side, 12)
heat[cell[5::7, 5::10].flatten(), torch.arange(12)] = 1.0
sensors = cell[2::4, 2::4].flatten()
exact = temperatures(truth, heat)
measured = exact[sensors] + 0.001 * torch.randn(len(sensors), 12)

unknown = torch.zeros(side, side, requires_grad=True)  # the logarithm of the conductivity
steps = 120
optimizer = torch.optim.Adam([unknown], lr=0.15)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
factorized, splu = [], linalg.splu


def counted(matrix):
    factorized.append(matrix.nnz)
    return splu(matrix)


linalg.splu = counted
for _ in range(steps):
    optimizer.zero_grad()
    misfit = (temperatures(unknown.exp(), heat)[sensors] - measured).square().sum()
    slopes = unknown.diff(dim=0, append=unknown[-1:]).square() + unknown.diff(dim=1, append=unknown[:, -1:]).square()
    (misfit + 1e-4 * (slopes + 1e-3).sqrt().sum()).backward()  # total variation: few edges, and sharp ones
    optimizer.step()
    schedule.step()
linalg.splu = splu
print(f"{len(factorized)} factorizations in {steps} steps, each of a matrix with {factorized[0]} entries")
assert len(factorized) == steps

found = unknown.detach().exp()
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(8.4, 3), layout="constrained")
figure.suptitle("A plate's conductivity, found from temperatures at the dots by a gradient through SciPy")
field = left.imshow(exact.sum(1).reshape(side, side), cmap="inferno", extent=(-1, 1, -1, 1), origin="lower")
left.scatter(x.flatten()[sensors], y.flatten()[sensors], s=4, color="white")
left.set_title("temperature, all heaters on")
figure.colorbar(field, ax=left, shrink=0.7)
for axis, image, title in ((middle, truth, "conductivity"), (right, found, "found")):
    shown = axis.imshow(image, cmap="viridis", vmin=0, vmax=1.2, extent=(-1, 1, -1, 1), origin="lower")
    axis.set_title(title)
figure.colorbar(shown, ax=right, shrink=0.7)
for axis in (left, middle, right):
    axis.set(xticks=[], yticks=[])
plt.show()
error = float((found - truth).abs().mean())
print(f"mean error of the conductivity: {error:.3f}, of a plate of ones {float((1 - truth).abs().mean()):.3f}")
assert error < 0.06

# %%
# The next cell checks the gradients for values and right-hand sides, in reverse and forward mode, real and complex:

size = 6
places = torch.cat([torch.arange(size).expand(2, size), torch.randint(0, size, (2, 10))], dim=1)
for dtype in (torch.float64, torch.complex128):
    values = torch.randn(16, dtype=dtype)
    values[:size] += 4
    values.requires_grad_()
    rhs = torch.randn(size, 2, dtype=dtype, requires_grad=True)

    def solve(values, rhs):
        return sparse_solve(places, values, rhs)

    first = gradcheck(solve, (values, rhs), check_forward_ad=True)
    second = gradgradcheck(solve, (values, rhs), check_fwd_over_rev=True)
    print(f"sparse_solve in {dtype}: gradcheck {first}, gradgradcheck {second}")
signal = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
for kind in (1, 2, 3, 4):
    assert gradcheck(lambda x, kind=kind: dct(x, kind), signal, check_forward_ad=True)
print("dct, types 1 to 4: gradcheck True")

# %%
# The wrong version
# -----------------
#
# This backward forgets to transpose. For a *symmetric* matrix, such as a Laplacian, a covariance or an undirected
# graph, ``gradcheck`` passes. For a matrix that is not symmetric, ``gradcheck`` finds the mistake. In the example, a
# wind from the left carries heat to the right, so the entries above and below the diagonal differ:


class NeverTransposes(Function):
    @staticmethod
    def forward(indices, values, rhs):
        return sparse_solve(indices, values, rhs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx, grad_output):
        indices, values, _, solution = ctx.saved_tensors
        u = sparse_solve(indices, values, grad_output)
        return None, -u[indices[0]] * solution[indices[1]], u


def symmetric(numbers):
    """A tridiagonal matrix with as much above the diagonal as below."""
    return torch.cat([4 + numbers, numbers[1:], numbers[1:]])


n = torch.arange(5)
tridiagonal = torch.stack([torch.cat([n, n[:-1], n[1:]]), torch.cat([n, n[1:], n[:-1]])])
numbers = torch.randn(5, dtype=torch.float64)
rhs = torch.randn(5, dtype=torch.float64, requires_grad=True)
for name, values in {"symmetric": symmetric(numbers), "wind from the left": symmetric(numbers)}.items():
    if name != "symmetric":
        values[5:9] += 1
    values.requires_grad_()
    try:
        verdict = gradcheck(lambda values, rhs: NeverTransposes.apply(tridiagonal, values, rhs), (values, rhs))
    except RuntimeError as error:
        verdict = str(error).splitlines()[0]
    print(f"{name:18} gradcheck: {verdict}")
    assert (verdict is True) == (name == "symmetric")

# %%
# The cosine transform has a similar trap, because SciPy's default is not the orthogonal form. The inverse is then not
# the adjoint: a backward with ``idct`` first divides each entry of ``grad_output`` by one of the factors below, and
# then applies the adjoint. So the gradient is too small:

cosines = torch.from_numpy(fft.dct(torch.eye(8, dtype=torch.float64).numpy(), axis=0))
factors = (cosines.mT / torch.linalg.inv(cosines)).mean(0)
print("adjoint over inverse, N = 8:", [round(float(f), 6) for f in factors])
assert torch.allclose(factors, torch.tensor([4.0] + 7 * [2.0], dtype=torch.float64) * 8)

# %%
# What it costs
# -------------
#
# The next cell compares each recipe with an alternative. For the cosine transform, the alternative is a transform made
# of :func:`torch.fft.fft`, which needs no SciPy. For sparse systems, the alternative is :func:`torch.linalg.solve` on
# the dense matrix. The cell prints the time of the alternative for forward and backward, as a multiple of the recipe's
# time:


def from_fourier(x):
    size = x.shape[-1]
    spectrum = torch.fft.fft(torch.cat([x[..., ::2], x[..., 1::2].flip(-1)], dim=-1))
    k = torch.arange(size)
    scale = torch.where(k == 0, 1.0, 2**0.5) / size**0.5
    return (spectrum * torch.exp(-0.5j * torch.pi * k / size)).real * scale


def dense(indices, values, rhs):
    return torch.linalg.solve(values.new_zeros(len(rhs), len(rhs)).index_put(tuple(indices), values, True), rhs)


def milliseconds(function, *args):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        function(*args).sum().backward()
        times.append(1000 * (time.perf_counter() - start))
    return min(times)


data = torch.randn(400, 400, requires_grad=True)
assert torch.allclose(from_fourier(data), dct(data), atol=1e-5)
print(f"dct of torch.fft: {milliseconds(from_fourier, data) / milliseconds(dct, data):.1f} times the time of SciPy's")
print(f"it keeps {saved_bytes(from_fourier, data) / data.nbytes:.1f} times the size of its input, SciPy's nothing")

for side in (8, 16, 28):
    n = torch.arange(side * side)
    pairs = [(n, n)] + [(a, b) for k in (1, side) for a, b in ((n[k:], n[:-k]), (n[:-k], n[k:]))]
    grid = torch.stack([torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs])])
    values = torch.where(grid[0] == grid[1], 4.5, -1.0).requires_grad_()
    rhs = torch.randn(side * side, 1)
    sparse, full = (milliseconds(function, grid, values, rhs) for function in (sparse_solve, dense))
    factors = splu(csc_array((values.detach().numpy(), tuple(grid.numpy()))))
    print(
        f"{side * side:4} unknowns: {values.numel():5} values, {factors.nnz:6} in the factors, "
        f"{side**4:7} in the dense matrix, which takes {full / sparse:5.1f} times the time"
    )

# %%
# The recipe also keeps the LU factors from forward to backward. SciPy holds them in its own memory, so ``saved_bytes``
# does not count them. For small systems, the dense solve is faster.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/06_beyond_autograd/custom_operator`: how to make an operator that the compiler accepts.
# * :doc:`/cookbook/05_higher_order/implicit`: the adjoint of any equation, and of dense systems.
# * :doc:`/cookbook/05_higher_order/per_sample_gradients`: what a ``vmap`` rule must do.
# * :doc:`/cookbook/06_beyond_autograd/approximate_gradients`: when there is no formula.
# * :doc:`/guide/questions_systems`: a simulator that has its own gradient, in NumPy, Fortran, Warp, Taichi or JAX.
# * In torch's documentation: :class:`torch.autograd.Function`, :func:`torch.linalg.solve`.
