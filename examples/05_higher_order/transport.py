r"""
Optimal transport: Sinkhorn by implicit differentiation, and matching
=====================================================================

You will train through an optimal transport problem: through its cost, through its plan, and through a one-to-one
matching. Backward solves one linear system instead of differentiating hundreds of Sinkhorn iterations.
"""

# %%
# When to use it
# --------------
#
# Use optimal transport when a loss compares two sets or two histograms, or when a layer assigns items to places.
# Examples are point clouds, soft sorting and permutations, keypoints, clusters, and detections with their targets. The
# *plan* is a matrix that says how much weight moves from each item to each place.
#
# * ``sinkhorn_cost`` returns the cost of the plan as a number, for a loss. Its gradient is the plan, and needs no
#   linear system.
# * ``sinkhorn_plan`` returns the plan as a matrix, to multiply with. Its gradient takes one linear system.
# * ``assignment_cost`` is the one-to-one matching without regularization, computed by SciPy.
#
# You can also unroll a fixed number of iterations. This is simpler, and the gradient is right for the plan after
# *these* iterations. Unroll if ten or twenty iterations are enough. For clouds of tens of thousands of points, the
# matrices do not fit into memory. Then use a library that never makes these matrices, such as GeomLoss or OTT.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{C}` is the gradient of the loss with respect to :math:`C`.
#
# The problem moves weights :math:`a` to weights :math:`b` at the cost :math:`C`. An entropy term with the factor
# :math:`\varepsilon`, the regularization, makes the plan :math:`P` smooth:
#
# .. math::
#
#    V = \min_{P 1 = a, \, P^\top 1 = b} \langle P, C \rangle + \varepsilon \, \mathrm{KL}(P \,|\, a b^\top), \qquad
#    P_{ij} = a_i b_j \, e^{(f_i + g_j - C_{ij}) / \varepsilon} .
#
# The Sinkhorn iterations find the potentials :math:`f` and :math:`g` for which the row sums and column sums of
# :math:`P` are right. At the minimum, a small change of the potentials does not change :math:`V`. So backward treats
# them as constants: :math:`\bar{C} = \bar{V} P`. The plan does change with the potentials. To find its gradient,
# differentiate the two conditions on the sums. With the gradients :math:`\bar{f}` and :math:`\bar{g}` of the
# potentials, and the diagonal matrices :math:`D_a` and :math:`D_b` of the weights, this gives
#
# .. math::
#
#    \begin{pmatrix} I & P D_b^{-1} \\ P^\top D_a^{-1} & I \end{pmatrix} \begin{pmatrix} u \\ v \end{pmatrix}
#    = \begin{pmatrix} \bar{f} \\ \bar{g} \end{pmatrix}, \qquad
#    \bar{f} = \tfrac{1}{\varepsilon} (\bar{P} \odot P) 1, \quad
#    \bar{g} = \tfrac{1}{\varepsilon} (\bar{P} \odot P)^\top 1, \qquad
#    \bar{C} = P \odot \bigl(D_a^{-1} u 1^\top + 1 v^\top D_b^{-1} - \tfrac{1}{\varepsilon} \bar{P} \bigr) .
#
# The system is singular in one direction, because :math:`f + c` and :math:`g - c` give the same plan. The recipe
# removes this direction, eliminates :math:`u`, and solves for :math:`v`.
#
# The recipe
# ----------
#
# .. recipe:: sinkhorn_cost
#
# .. recipe:: sinkhorn_plan
#
# .. recipe:: assignment_cost

# sphinx_gallery_tags = ["memory", "second order", "black box", "stability"]
# sphinx_gallery_thumbnail_number = 2

import matplotlib.pyplot as plt
import torch
from torch.autograd import gradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.transport import assignment_cost, sinkhorn_cost, sinkhorn_plan

print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# The example has thirty points on each side, and a regularization that is small compared with the costs, so that the
# plan is nearly a matching. If you unroll, autograd keeps every iteration, and the gradient belongs to a plan that has
# not converged. In addition to its arguments, the recipe keeps only vectors, and it makes Newton steps when the
# iterations get slow.


def unrolled_plan(cost, a, b, regularization, iterations):
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    for _ in range(iterations):
        f = -regularization * (b.log() + (g - cost) / regularization).logsumexp(-1)
        g = -regularization * (a.log()[:, None] + (f[:, None] - cost) / regularization).logsumexp(0)
    return a[:, None] * b * ((f[:, None] + g - cost) / regularization).exp()


torch.manual_seed(0)
x, y = torch.rand(30, 2, dtype=torch.float64), torch.rand(30, 2, dtype=torch.float64)
cost = torch.cdist(x, y).square().requires_grad_()
uniform = torch.full((30,), 1 / 30, dtype=torch.float64)
weights = torch.randn(30, 30, dtype=torch.float64)


def gradient(plan):
    return torch.autograd.grad((weights * plan).sum(), cost)[0]


exact = gradient(sinkhorn_plan(cost, uniform, uniform, 0.01))
counts = [10, 30, 100, 300, 1000]
kept, errors = [], []
for count in counts:
    kept.append(saved_bytes(lambda c, n=count: unrolled_plan(c, uniform, uniform, 0.01, n), cost) / 1024)
    error = gradient(unrolled_plan(cost, uniform, uniform, 0.01, count)) - exact
    errors.append(float(error.norm() / exact.norm()))
ours = saved_bytes(lambda c: sinkhorn_plan(c, uniform, uniform, 0.01), cost) / 1024

figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
figure.suptitle("One linear system replaces the way back through all iterations")
left.loglog(counts, kept, "--s", color="tab:orange")
left.loglog(counts, [ours] * len(counts), "-o", color="tab:blue")
left.text(30, kept[1] * 2, "unrolled", color="tab:orange", ha="right")
left.text(30, ours * 1.5, "sinkhorn_plan", color="tab:blue")
left.set(xlabel="iterations unrolled", ylabel="KiB kept for backward")
right.loglog(counts, errors, "--s", color="tab:orange")
right.set(xlabel="iterations unrolled", ylabel="relative error of its gradient")
plt.show()

print(f"kept: {kept[-1]:.0f} KiB after {counts[-1]} iterations unrolled, {ours:.0f} KiB by the recipe")
print("error of the unrolled gradient:", {n: f"{e:.0e}" for n, e in zip(counts, errors, strict=True)})
assert kept[-1] > 1000 * ours
assert errors[0] > 0.1
assert errors == sorted(errors, reverse=True)

# %%
# The second example is a loss. A cloud of points follows the gradient of its cost to a ring. With regularization, the
# cheapest cloud is smaller than the ring. The *Sinkhorn divergence* (Genevay, Peyré and Cuturi, 2018) corrects this: it
# subtracts half of the cost between each cloud and itself.

angle = torch.linspace(0, 2 * torch.pi, 61)[:-1]
ring = torch.stack([angle.cos(), angle.sin()], -1)
start = 0.2 * torch.randn(60, 2)
even = torch.ones(60)


def transport(x, y):
    return sinkhorn_cost(torch.cdist(x, y).square(), even, even, 0.3, tolerance=1e-6)


def divergence(x, y):
    return transport(x, y) - transport(x, x) / 2 - transport(y, y) / 2


found = {}
for name, loss in (("cost", transport), ("divergence", divergence)):
    points = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([points], lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        loss(points, ring).backward()
        optimizer.step()
    found[name] = points.detach()

figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.7), layout="constrained", sharex=True, sharey=True)
figure.suptitle("Points move to the ring if the loss is the divergence, and stay inside of it if it is the cost")
for ax, (name, points) in zip(axes, found.items(), strict=True):
    ax.plot(*torch.cat([ring, ring[:1]]).T, color="0.7", lw=4)
    ax.plot(*start.T, ".", color="0.6", ms=4)
    ax.plot(*points.T, "o", color="tab:blue", ms=4)
    ax.set(aspect="equal", title=f"trained on the {name}", xticks=[], yticks=[])
    print(f"mean radius, trained on the {name}: {points.norm(dim=-1).mean():.2f}")
plt.show()

assert found["cost"].norm(dim=-1).mean() < 0.95
assert abs(found["divergence"].norm(dim=-1).mean() - 1) < 0.03

# %%
# The third example is a layer. The plan between numbers and sorted places is a soft permutation, and its product with
# the numbers sorts them. The Jacobian shows how each output depends on each input:

numbers = torch.tensor([0.9, 0.1, 0.5, 0.3], dtype=torch.float64, requires_grad=True)
places = torch.linspace(0, 1, 4, dtype=torch.float64)
four = torch.ones(4, dtype=torch.float64)


def soft_sort(numbers, regularization=0.03):
    plan = sinkhorn_plan((numbers[:, None] - places).square(), four, four, regularization)
    return 4 * plan.mT @ numbers


with torch.no_grad():
    print("sorted:", [round(v, 3) for v in soft_sort(numbers).tolist()])
jacobian = torch.func.jacrev(soft_sort)(numbers)
print("jacobian:", [[round(v, 2) for v in row] for row in jacobian.tolist()])
assert gradcheck(soft_sort, (numbers,), eps=1e-7, atol=1e-5)

# %%
# The one-to-one matching without regularization has a piecewise linear cost, and its gradient is the pairing. The
# gradient is right wherever only one pairing is optimal:

pairs = torch.tensor([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]], dtype=torch.float64, requires_grad=True)
total = assignment_cost(pairs)
total.backward()
print(f"smallest total: {total.item()}, by the pairs {pairs.grad.nonzero().tolist()}")
assert total.item() == 5
assert gradcheck(assignment_cost, (pairs,))

# %%
# The wrong version
# -----------------
#
# This version finds the potentials without autograd, and then computes the plan from them with autograd. For the
# gradient of ``sinkhorn_cost`` this is right, by the envelope theorem. For the gradient of the plan it is wrong,
# because the potentials also change with the costs.


def detached_plan(cost, a, b, regularization):
    with torch.no_grad():
        plan = sinkhorn_plan(cost, a, b, regularization)
        potentials = regularization * (plan / (a[:, None] * b)).log() + cost
    return a[:, None] * b * ((potentials - cost) / regularization).exp()


small = cost.detach()[:4, :4].clone().requires_grad_()
quarter = four / 4
target = torch.eye(4, dtype=torch.float64) / 4
for name, plan in (("potentials detached", detached_plan), ("sinkhorn_plan", sinkhorn_plan)):
    try:
        answer = gradcheck(lambda c, plan=plan: plan(c, quarter, quarter, 0.1), (small,))
    except RuntimeError as error:
        answer = str(error).splitlines()[0]
    (grad,) = torch.autograd.grad((plan(small, quarter, quarter, 0.1) * target).sum(), small)
    print(f"{name}: row sums of the gradient {[round(v, 4) for v in grad.sum(-1).tolist()]}, gradcheck: {answer}")
    if plan is detached_plan:
        assert answer is not True
        assert grad.sum(-1).abs().min() > 1e-2
    else:
        assert answer is True
        assert grad.sum(-1).abs().max() < 1e-9

# %%
# The row sums show the mistake. Adding a number to a whole row of costs changes no plan, so each row of the right
# gradient sums to zero.
#
# What a small regularization asks for
# ------------------------------------
#
# Implementations often use the kernel :math:`e^{-C / \varepsilon}`. In float32 the kernel is 0 for costs of more than
# 104 times the regularization. The recipe computes with logarithms in float64, and starts with a large regularization.
# If the plan is nearly a matching, plain iterations are slow, but Newton's steps remain fast:

scores = torch.randn(6, 6, dtype=torch.float64)
ones = torch.ones(6, dtype=torch.float64)
slow = unrolled_plan(scores, ones / 6, ones / 6, 0.03, 2000)
fast = sinkhorn_plan(scores, ones, ones, 0.03, max_iterations=100)
missed = {name: float((6 * plan.sum(-1) - 1).abs().max()) for name, plan in (("plain", slow), ("recipe", fast))}
print("a row misses its weight by:", {name: f"{m:.0e}" for name, m in missed.items()})
print("the kernel of a cost of 4:", torch.exp(torch.tensor(-4 / 0.03)).item())
assert missed["plain"] > 1e-6
assert missed["recipe"] < 1e-9
assert torch.exp(torch.tensor(-4 / 0.03)) == 0

# %%
# If the recipe does not converge, it raises an error and returns no number:

try:
    sinkhorn_plan(1e5 * scores, ones, torch.rand(6, dtype=torch.float64), 1e-3)
except RuntimeError as error:
    print(error)
else:
    raise AssertionError("no error")

# %%
# What it costs
# -------------
#
# .. costs::
#
# The recipe keeps the potentials and the weights as float64 vectors, and the cost matrix. Forward also makes float64
# matrices of the size of the costs for a moment. Backward makes a square matrix with one row for each bin of the
# target, so let the target be the shorter side.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/05_higher_order/implicit`: the same idea for any equation.
# * :doc:`/cookbook/02_changing_the_gradient/discrete_choices`: choices, top-k and ranks without a transport problem.
# * :doc:`/cookbook/04_memory/checkpointing`: less memory for iterations that you do unroll.
# * Libraries: `POT <https://pythonot.github.io>`__, `GeomLoss <https://www.kernel-operations.io/geomloss/>`__ and
#   `OTT <https://ott-jax.readthedocs.io>`__ have many more problems and solvers of this kind.
