r"""
Discrete choices: argmax, Gumbel-softmax, top-k, ranks
======================================================

You will pass a gradient through a hard choice, and see how far it is from the true gradient of the expected loss.
"""

# %%
# When to use it
# --------------
#
# Use these recipes when forward has to choose: one of several, the k largest, or an order. An ``argmax`` has no
# gradient, and a mask made of indices cuts the graph. If a soft choice is good enough, use :func:`torch.softmax` and
# choose after training, because its gradient is exact.
#
# If the choice is *random* and you minimize the expected loss, REINFORCE with a baseline is unbiased, and needs no
# gradient of the loss. A straight-through estimator needs one backward, which gives everything before the choice a
# gradient. That gradient is biased, so averaging over more samples does not make it right. To pick one of several
# branches, add the noise first, and multiply each branch by its entry::
#
#     choice = one_hot_ste(logits + gumbel_like(logits))
#     output = sum(c * branch(x) for c, branch in zip(choice, branches))
#
# Without noise the estimate is worse: in "See it work", where a figure and a table compare the estimators, its bias is
# larger than the gradient itself.
#
# The gradient
# ------------
#
# Forward is hard, backward that of something soft:
#
# .. math::
#
#    y = \operatorname{onehot}(\operatorname{argmax} x), \qquad
#    \bar{x} = \frac{1}{T}\, p \odot \big(\bar{y} - \langle p, \bar{y} \rangle\big), \quad
#    p = \operatorname{softmax}(x/T) .
#
# If you add Gumbel noise to :math:`x` first, :math:`y` is a sample of :math:`\operatorname{softmax}(x)`, and this is
# the straight-through Gumbel-softmax.
#
# For masks and ranks, the soft choice is the nearest point of a polytope whose corners are the hard ones: vectors
# between 0 and 1 with sum k, or the permutahedron, which contains all orders of the numbers from 1 to n. Both
# projections come apart into blocks. In a block :math:`B` the sum is fixed, so the gradient loses its mean:
#
# .. math::
#
#    y = \operatorname*{argmin}_{y \in P} \lVert y - x/\epsilon \rVert^2, \qquad
#    \bar{x}_i = \frac{1}{\epsilon} \Big(\bar{y}_i - \frac{1}{|B|} \sum_{j \in B} \bar{y}_j\Big) .
#
# An entry that is 0 or 1 in the soft mask, and one whose rank is a whole number far from its neighbors, has gradient 0.
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
# Three random choices among four give 64 outcomes, so the gradient of the expected loss can be computed exactly, by
# enumeration. Here are 16,384 single-sample estimates of it by each method:

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
    """The loss times the gradient of the log-probability; the baseline is the mean loss of the other samples."""
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
    """Relative error of a mean over so many samples, as the root of the mean square."""
    means = estimates.unflatten(0, (-1, count)).mean(1)
    return ((means - exact).square().sum((-2, -1)).mean().sqrt() / exact.norm()).item()


def noise(estimates):
    return (estimates.var(0).sum().sqrt() / exact.norm()).item()


def typical(estimates):
    """Those at temperature 0.5, where there is one."""
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
(argmax,) = families["straight-through argmax, no noise"]
assert error_of_means(argmax, len(argmax)) > 1, "the bias without noise is no longer larger than the gradient"
assert means["REINFORCE with a baseline"] < 0.15 < 0.3 < min(m for n, m in means.items() if "REINFORCE" not in n)

# %%
# What to notice: a low temperature has less bias and more noise, and no temperature has little of both. Without noise
# the straight-through argmax always picks the same outcome, and its gradient has little to do with the
# expectation. REINFORCE is unbiased, so what the table lists as its bias is the noise that is left in the mean. With a
# baseline its samples are about as noisy as the others on this problem of three choices, so its mean is the most
# accurate.
#
# The bias decides where training ends. One choice :math:`b` of 0 or 1 has the loss :math:`(b - 0.45)^2`. The best is
# always 0, but the straight-through gradient vanishes near probability 0.45:


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
# In each of 100 problems, four of 30 random vectors were added up. Find the four from their sum. The mask in forward is
# hard. A score gets a gradient only if it is close to the k-th largest; the strength says how close:

torch.manual_seed(0)
vectors = torch.randn(100, 30, 20) / 20**0.5
chosen = torch.zeros(100, 30).scatter(1, torch.rand(100, 30).topk(4).indices, 1)
sums = torch.einsum("pn,pnd->pd", chosen, vectors)


def share_found(mask):
    """The share of problems in which 200 steps found the right four."""
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
# With a small strength, the scores soon lie too far apart for any of them to get a gradient. Every gradient is then
# exactly 0, and training stops silently. Choose the strength as large as the spread of the scores, or go straight
# through.
#
# The same holds for ranks. One entry moves past four others:

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
# How to test one
# ---------------
#
# ``gradcheck`` has to fail for the two that are hard in forward. The audit says that theirs look like surrogates, and
# compares them once it is told which gradient they declare. The soft ones have exact gradients:

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
# A mask of indices has no gradient to pass, and PyTorch says nothing as long as something else in the loss has one:

mask = torch.zeros_like(scores).scatter(1, scores.topk(2).indices, 1.0)
print("scatter(topk.indices) requires grad:", mask.requires_grad, " top_k_mask:", top_k_mask(scores, 2).requires_grad)
assert not mask.requires_grad

# %%
# The usual one-liner ``x + (mask - x).detach()`` loses the mask where scores are large, because ``1 - 300`` isn't
# representable in bfloat16. Here one 1 becomes 0, and the other 2:

large = torch.tensor([300.0, 290.0, 3.0, -5.0], dtype=torch.bfloat16)
mask = top_k_mask(large, 2)
print("composed:", (large + (mask - large)).tolist(), " recipe:", mask.tolist())
assert mask.tolist() == [1, 1, 0, 0]
assert (large + (mask - large)).tolist() != mask.tolist()

# %%
# And samples in low precision are no samples of the softmax. In bfloat16, sums of logits and noise are often equal, and
# ``argmax`` takes the first of them. Sixteen equal logits should be taken 6.25 % of the time each. ``gumbel_like`` is
# float32 at least, and so is the sum:

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
# ``one_hot_ste`` keeps nothing but its input. ``top_k_mask`` with a soft gradient and ``soft_top_k`` keep one byte per
# entry, and ``soft_rank`` four. ``soft_rank`` has no table, because PyTorch has nothing to compare it with. It pools
# row by row in NumPy, so it suits hundreds of entries, not millions.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/02_changing_the_gradient/straight_through`: steps of single numbers: rounding, signs, one bit.
# * :doc:`/cookbook/03_stability/sparsemax`: a soft choice of one with exact zeros and an exact gradient.
# * :doc:`/cookbook/05_higher_order/per_sample_gradients`: the isotonic regression that ranks are made of.
# * :doc:`/cookbook/06_beyond_autograd/approximate_gradients`: gradients of what can only be evaluated.
# * :doc:`/guide/questions_choices`: VQ-VAE codebooks, masks, thresholds, samples and alignments, in short questions.
# * In torch's documentation: :func:`torch.topk`, :func:`torch.nn.functional.gumbel_softmax`.
