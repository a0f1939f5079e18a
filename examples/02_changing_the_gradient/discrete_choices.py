r"""
Discrete choices: argmax, Gumbel-softmax, top-k, ranks
======================================================

You will pass a gradient through a hard choice, and measure how far this gradient is from the true gradient of the
expected loss.
"""

# %%
# When to use it
# --------------
#
# Use these recipes if forward must choose one of several entries, choose the k largest entries, or rank all entries.
# Without a recipe, ``argmax`` has no gradient, and a mask that is made from indices does not require grad. If a soft
# choice is good enough, use :func:`torch.softmax` instead and choose after training, because the gradient of a softmax
# is exact.
#
# If the choice is *random* and you minimize the expected loss, you have two options:
#
# * REINFORCE multiplies the loss of a sample by the gradient of the sample's log-probability. This estimate is unbiased
#   and needs no gradient of the loss. To reduce its noise, subtract a baseline from the loss, for example the mean loss
#   of the other samples.
# * A straight-through estimator passes a gradient through the choice to all layers before it. This gradient is biased,
#   so an average over more samples is still wrong.
#
# To pick one of several branches with a straight-through estimator, first add Gumbel noise to the logits, which makes
# the argmax a random sample from their softmax. Then multiply each branch by its entry of the choice. ``unbind`` splits
# the choice into one entry per branch, for a single row of logits and for a batch::
#
#     choice = one_hot_ste(logits + gumbel_like(logits))
#     output = sum(c.unsqueeze(-1) * branch(x) for c, branch in zip(choice.unbind(-1), branches, strict=True))
#
# Do not leave out the noise: in "See it work", the bias without noise is larger than the gradient itself.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# Forward makes a hard choice, and backward uses the gradient of a softmax with temperature :math:`T`:
#
# .. math::
#
#    y = \operatorname{onehot}(\operatorname{argmax} x), \qquad
#    \bar{x} = \frac{1}{T}\, p \odot \big(\bar{y} - \langle p, \bar{y} \rangle\big), \quad
#    p = \operatorname{softmax}(x/T) .
#
# If you add Gumbel noise to :math:`x` first, :math:`y` is a random sample from :math:`\operatorname{softmax}(x)`. This
# method is called straight-through Gumbel-softmax.
#
# For masks and ranks, the hard choices are the corners of a polytope :math:`P`, a convex set with flat sides. The soft
# choice :math:`y` is the point of :math:`P` nearest to :math:`x / \epsilon`. The strength :math:`\epsilon` controls the
# smoothing. For masks, :math:`P` contains all vectors whose entries lie between 0 and 1 and have the sum k. For ranks,
# :math:`P` is the permutahedron, whose corners are all orders of the numbers from 1 to n.
#
# Backward needs the *block* of each entry :math:`i`, a set :math:`B` of entries that contains :math:`i`. In a mask, all
# entries strictly between 0 and 1 form one block. In ranks, entries with close scores form a block. If the scores of a
# block change, the sum of :math:`y` over the block stays the same. So backward subtracts the mean of :math:`\bar{y}`
# over the block. :math:`|B|` is the number of its entries:
#
# .. math::
#
#    y = \operatorname*{argmin}_{y \in P} \lVert y - x/\epsilon \rVert^2, \qquad
#    \bar{x}_i = \frac{1}{\epsilon} \Big(\bar{y}_i - \frac{1}{|B|} \sum_{j \in B} \bar{y}_j\Big) .
#
# An entry that is exactly 0 or 1 in the soft mask has gradient 0. An entry that is far from all other entries has a
# whole number as its rank, and also gradient 0.
#
# The recipe
# ----------
#
# .. recipe:: one_hot_ste
#
# .. recipe:: top_k_mask
#
# .. recipe:: soft_top_k
#
# .. recipe:: soft_rank

# sphinx_gallery_tags = ["gradient", "memory"]
# sphinx_gallery_thumbnail_number = 1

import itertools

import matplotlib.pyplot as plt
import torch
from torch.nn import functional as F

from autograd_cookbook.auditing import audit
from autograd_cookbook.recipes.discrete_choices import gumbel_like, one_hot_ste, soft_rank, soft_top_k, top_k_mask

print("torch", torch.__version__)

# %%
# See it work
# -----------
#
# Three random choices among four entries have 64 outcomes, so the exact gradient of the expected loss can be computed.
# The next cell compares it with 16,384 estimates of each method, each from one random sample. The left figure shows how
# bias and noise depend on the temperature. The right figure shows how the error decreases if you average over more
# samples:

torch.manual_seed(0)
logits = torch.randn(3, 4, dtype=torch.float64)
mixing = torch.randn(12, 12, dtype=torch.float64) / 2
outcomes = F.one_hot(torch.tensor(list(itertools.product(range(4), repeat=3))), 4).double()
many = logits.expand(16_384, 3, 4)


def loss(choice):
    return (choice.flatten(-2) @ mixing).tanh().square().sum(-1)


def expected_loss(logits):
    probability = (outcomes * logits.log_softmax(-1)).sum((-2, -1)).exp()
    return probability @ loss(outcomes)


exact = torch.func.grad(expected_loss)(logits)


def pathwise(choose):
    """Differentiate the loss of each sample, through the choice."""
    leaf = many.clone().requires_grad_()
    return torch.autograd.grad(loss(choose(leaf)).sum(), leaf)[0]


def reinforce(with_baseline):
    """The loss times the gradient of the log-probability. The baseline is the mean loss of the other samples."""
    choice = one_hot_ste(many + gumbel_like(many))
    value = loss(choice)
    if with_baseline:
        value = (value - value.mean()) * len(value) / (len(value) - 1)
    return value[:, None, None] * (choice - many.softmax(-1))


temperatures = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
families = {
    "Gumbel-softmax, straight-through": [
        pathwise(lambda x, t=t: one_hot_ste(x + gumbel_like(x), temperature=t)) for t in temperatures
    ],
    "Gumbel-softmax, soft": [pathwise(lambda x, t=t: ((x + gumbel_like(x)) / t).softmax(-1)) for t in temperatures],
    "straight-through argmax, no noise": [pathwise(one_hot_ste)],
    "REINFORCE": [reinforce(False)],
    "REINFORCE with a baseline": [reinforce(True)],
}


def error_of_means(estimates, count):
    """Return the relative error (root mean square) of a mean over ``count`` samples."""
    means = estimates.unflatten(0, (-1, count)).mean(1)
    return ((means - exact).square().sum((-2, -1)).mean().sqrt() / exact.norm()).item()


def noise(estimates):
    return (estimates.var(0).sum().sqrt() / exact.norm()).item()


def typical(estimates):
    """Return the estimates at temperature 0.5, if the method has a temperature."""
    return estimates[temperatures.index(0.5) if len(estimates) > 1 else 0]


counts = [4**power for power in range(7)]
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 4.1), layout="constrained")
figure.suptitle("Averaging removes the noise of an estimate, but not its bias")
for (name, estimates), style in zip(families.items(), ("o-", "s--", "D:", "v-.", "^-"), strict=True):
    label = name + (", T = 0.5" if len(estimates) > 1 else "")
    errors = [error_of_means(typical(estimates), count) for count in counts]
    (line,) = right.loglog(counts, errors, style, markersize=4, label=label)
    if len(estimates) > 1:
        look = {"color": line.get_color(), "markersize": 4}
        left.plot(temperatures, [error_of_means(e, len(e)) for e in estimates], style, **look)
        left.plot(temperatures, [noise(e) for e in estimates], style, **look, alpha=0.45)
left.set(xscale="log", yscale="log", xlabel="temperature", ylabel="relative to the true gradient", ylim=(0.08, 30))
left.text(1.1, 6.0, "noise of one sample", fontsize=8)
left.text(0.75, 0.42, "bias", fontsize=8)
right.set(xlabel="samples averaged", ylabel="relative error of the mean")
figure.legend(*right.get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=2)
plt.show()

print("                                       bias   noise of a sample   error of a mean over 4,096")
means = {}
for name, estimates in families.items():
    each = typical(estimates)
    means[name] = error_of_means(each, 4096)
    print(f"{name:36} {error_of_means(each, len(each)):6.2f} {noise(each):14.1f} {means[name]:20.2f}")
removed = 1 - (noise(families["REINFORCE with a baseline"][0]) / noise(families["REINFORCE"][0])) ** 2
print(f"The baseline removes {removed:.0%} of the variance.")
assert removed > 0.9
for name in ("Gumbel-softmax, straight-through", "Gumbel-softmax, soft"):  # ordered by temperature
    biases, noises = [error_of_means(e, len(e)) for e in families[name]], [noise(e) for e in families[name]]
    assert noises == sorted(noises, reverse=True)
    assert biases[0] == min(biases) < 0.8 * biases[-1]
(argmax,) = families["straight-through argmax, no noise"]
assert error_of_means(argmax, len(argmax)) > 1, "the bias without noise is no longer larger than the gradient"
assert means["REINFORCE with a baseline"] < 0.15 < 0.3 < min(m for n, m in means.items() if "REINFORCE" not in n)

# %%
# The results show three things:
#
# * A low temperature gives less bias but more noise. No temperature in the figure gives both little bias and little
#   noise.
# * The straight-through argmax without noise always picks the same outcome. Its gradient is far from the gradient of
#   the expected loss.
# * REINFORCE is unbiased. Its "bias" in the table is the remaining noise of the mean. On this problem of three choices,
#   its samples with a baseline are about as noisy as the Gumbel-softmax estimates at temperature 0.5. Because REINFORCE
#   is also unbiased, its mean is the most accurate.
#
# A bias changes the result of training. In the next example, a random choice :math:`b` of 0 or 1 has the loss
# :math:`(b - 0.45)^2`. The best choice is always 0. But the straight-through gradient is 0 on average where the
# probability of :math:`b = 1` is near 0.45, so training stops there:


def end_of_training(estimator, steps=500, batch=64):
    """The probability of 1, averaged over the last 100 steps."""
    torch.manual_seed(0)
    logits = torch.zeros(2, requires_grad=True)
    history = []
    for _ in range(steps):
        history.append(logits.softmax(0)[1].item())
        several = logits.expand(batch, 2)
        noisy = several + gumbel_like(several)
        choice = one_hot_ste(noisy if estimator == "straight-through" else noisy.detach(), temperature=0.5)
        objective = (choice[:, 1] - 0.45).square()
        if estimator == "REINFORCE":
            advantage = (objective - objective.mean()) * batch / (batch - 1)
            objective = advantage * (choice * several.log_softmax(1)).sum(1)
        (gradient,) = torch.autograd.grad(objective.mean(), logits)
        logits = (logits - gradient).detach().requires_grad_()
    return sum(history[-100:]) / 100


ends = {name: end_of_training(name) for name in ("straight-through", "REINFORCE")}
print("probability of the worse choice after training:", {name: round(end, 3) for name, end in ends.items()})
assert ends["straight-through"] > 0.3
assert ends["REINFORCE"] < 0.05

# %%
# Choose k of many
# ----------------
#
# In each of 100 problems, the task is to find which four of 30 random vectors have a given sum. Gradient descent learns
# a score for each vector, and forward uses a hard mask of the four largest scores. With a soft gradient, only scores
# close to the k-th largest score get a gradient. The strength sets how close they must be:

torch.manual_seed(0)
vectors = torch.randn(100, 30, 20) / 20**0.5
chosen = torch.zeros(100, 30).scatter(1, torch.rand(100, 30).topk(4).indices, 1)
sums = torch.einsum("pn,pnd->pd", chosen, vectors)


def share_found(mask):
    """Return the fraction of problems in which 200 steps find the right four vectors."""
    scores = (0.1 * torch.randn(100, 30, generator=torch.Generator().manual_seed(1))).requires_grad_()
    optimizer = torch.optim.Adam([scores], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        (torch.einsum("pn,pnd->pd", mask(scores), vectors) - sums).square().sum().backward()
        optimizer.step()
    return (top_k_mask(scores.detach(), 4) == chosen).all(1).double().mean().item()


found = {"straight through": share_found(lambda scores: top_k_mask(scores, 4))}
for strength in (0.1, 1.0, 3.0):
    found[f"hard mask, soft gradient of strength {strength}"] = share_found(
        lambda scores, strength=strength: top_k_mask(scores, 4, strength=strength)
    )
found["soft mask of strength 3.0, top 4 at the end"] = share_found(lambda scores: soft_top_k(scores, 4, strength=3.0))
for name, share in found.items():
    print(f"{name:44} {share:4.0%} found")
assert found["straight through"] > 0.9
assert found["hard mask, soft gradient of strength 0.1"] < 0.1
assert found["hard mask, soft gradient of strength 3.0"] > 0.9

# %%
# With a small strength, the distances between the scores soon exceed the strength. Then every gradient is exactly 0,
# and training stops silently. Choose a strength as large as the spread of the scores, or use the straight-through
# gradient (``strength=None``).
#
# Ranks behave in the same way. In the figure, one entry moves past four other entries:

x = torch.linspace(-2.5, 2.5, 401, dtype=torch.float64)
row = torch.cat([x[:, None], torch.tensor([-1.5, -0.5, 0.5, 1.5], dtype=torch.float64).expand(401, 4)], 1)
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
figure.suptitle("The strength is the width over which one choice turns into the next")
for strength, style in ((0.01, "-"), (1.0, "--"), (4.0, "-.")):
    left.plot(x, soft_top_k(row, 2, strength=strength)[:, 0], style, label=f"strength {strength:g}")
    right.plot(x, soft_rank(row, strength)[:, 0], style)
left.set(xlabel="entry that moves", ylabel="its place in the mask of two")
right.set(xlabel="entry that moves", ylabel="its rank", yticks=range(1, 6))
left.legend(fontsize=8)
plt.show()
assert soft_rank(row, 0.01)[[0, -1], 0].tolist() == [1, 5]

# %%
# How to test a choice
# --------------------
#
# ``gradcheck`` rejects ``one_hot_ste`` and ``top_k_mask``, because their forward is a hard choice. ``audit``
# (:doc:`/guide/audit`) reports that their gradients look like surrogate gradients, which differ on purpose from the
# derivative of forward. Pass a function with the intended gradient as ``surrogate``, and ``audit`` compares with it.
# ``soft_top_k`` and ``soft_rank`` have exact gradients:

scores = torch.tensor([[0.3, 1.0, -0.4, 0.6], [2.0, -1.0, 0.1, 0.7]], dtype=torch.float64, requires_grad=True)
quick = {"only": ["first_order", "second_order", "special_points"]}


def declared(x, dim=-1, temperature=1.0):
    soft = (x / temperature).softmax(dim)
    return soft + (F.one_hot(x.argmax(dim), x.shape[dim]) - soft).detach()


for name, report in {
    "one_hot_ste, undeclared": audit(one_hot_ste, (scores,), **quick),
    "one_hot_ste, declared": audit(one_hot_ste, (scores,), surrogate=declared, **quick),
    "soft_top_k": audit(soft_top_k, (scores, 2), **quick),
    "soft_rank": audit(soft_rank, (scores, 0.5), **quick),
}.items():
    doubts = [finding.summary for finding in report.findings if finding.check == "first_order"]
    print(f"{name:24} {'; '.join(doubts) or 'ok'}")
    assert report.ok
    assert bool(doubts) == ("undeclared" in name)

# %%
# The wrong version
# -----------------
#
# A mask that is made from indices does not require grad. PyTorch raises no error if another part of the loss requires
# grad:

mask = torch.zeros_like(scores).scatter(1, scores.topk(2).indices, 1.0)
print("scatter(topk.indices) requires grad:", mask.requires_grad, " top_k_mask:", top_k_mask(scores, 2).requires_grad)
assert not mask.requires_grad

# %%
# The usual expression ``x + (mask - x).detach()`` gives wrong masks for large scores, because ``1 - 300`` is rounded in
# bfloat16. In the next cell, one entry of 1 becomes 0, and the other becomes 2:

large = torch.tensor([300.0, 290.0, 3.0, -5.0], dtype=torch.bfloat16)
mask = top_k_mask(large, 2)
print("composed:", (large + (mask - large)).tolist(), " recipe:", mask.tolist())
assert mask.tolist() == [1, 1, 0, 0]
assert (large + (mask - large)).tolist() != mask.tolist()

# %%
# Random samples in low precision do not follow the softmax. In bfloat16, several sums of logit and noise are often
# equal after rounding, and ``argmax`` always takes the first of them. Each half of sixteen equal logits should get 50 %
# of the samples. ``gumbel_like`` returns at least float32, so the sums are rarely equal:

torch.manual_seed(0)
equal = torch.full((50_000, 16), 50.0, dtype=torch.bfloat16)
samplers = {
    "F.gumbel_softmax": lambda: F.gumbel_softmax(equal, hard=True),
    "one_hot_ste": lambda: one_hot_ste(equal + gumbel_like(equal)),
}
for name, sample in samplers.items():
    share = sample().float().mean(0)
    print(f"{name:17} the first half of the entries {share[:8].sum():.1%}, the last half {share[8:].sum():.1%}")
    assert (abs(share[:8].sum() - 0.5) > 0.015) == (name == "F.gumbel_softmax")

# %%
# What it costs
# -------------
#
# .. costs::
#
# ``one_hot_ste`` keeps only its input. ``top_k_mask`` with a soft gradient and ``soft_top_k`` keep one byte per entry,
# and ``soft_rank`` keeps four bytes. ``soft_rank`` has no table, because PyTorch has no function to compare it with. It
# processes each row in NumPy, so use it for hundreds of entries, not for millions.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/02_changing_the_gradient/straight_through`: gradients for rounding, signs and weights of one bit.
# * :doc:`/cookbook/03_stability/sparsemax`: a soft choice of one entry, with exact zeros and an exact gradient.
# * :doc:`/cookbook/05_higher_order/per_sample_gradients`: the isotonic regression that ``soft_rank`` uses.
# * :doc:`/cookbook/06_beyond_autograd/approximate_gradients`: gradients of functions that you can only evaluate.
# * :doc:`/guide/questions_choices`: VQ-VAE codebooks, masks, thresholds, samples and alignments, in short questions.
# * In torch's documentation: :func:`torch.topk`, :func:`torch.nn.functional.gumbel_softmax`.
