"""Discrete choices: values on paper, extreme and equal entries, and what the gradients estimate."""

import itertools
import re
from pathlib import Path

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.discrete_choices import gumbel_like, one_hot_ste, soft_rank, soft_top_k, top_k_mask

SURVIVORS = {
    "OneHotFunction.backward: wide.amax(ctx.dim, keepdim=True).detach() -> wide.amax(ctx.dim, keepdim=True)": (
        "the softmax does not see the shift, so its gradient is 0 with and without a graph"
    ),
    "centered: 1 -> 2": "a sum that is whole leaves no single entry free",
    "centered: 1 -> -1": "in a row without free entries nothing reads the mean",
    "SoftRankFunction.backward: block.long() -> block": "this torch takes indices of 32 bits, too; not every one does",
}

INF, NAN = float("inf"), float("nan")
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
each_dtype = pytest.mark.parametrize("dtype", DTYPES)
SOFT = {
    "soft_top_k": lambda x, strength=1.0: soft_top_k(x, 2, -1, strength),
    "top_k_mask": lambda x, strength=1.0: top_k_mask(x, 2, -1, strength),
    "soft_rank": soft_rank,
    "one_hot_ste": lambda x, strength=1.0: one_hot_ste(x, -1, strength),
}
each_function = pytest.mark.parametrize("function", SOFT.values(), ids=SOFT)


def bisected(x, k, strength):
    """The projection without a sort: the threshold at which the sum is k."""
    z = x.double() / strength
    low, high = z.amin(-1, keepdim=True) - 1, z.amax(-1, keepdim=True)
    for _ in range(100):
        middle = (low + high) / 2
        above = (z - middle).clamp(0, 1).sum(-1, keepdim=True) > k
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return (z - high).clamp(0, 1)


@each_dtype
@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_soft_top_k_agrees_with_bisection_to_rounding(dtype, scale) -> None:
    torch.manual_seed(0)
    for n, k in ((2, 1), (9, 4), (500, 1), (500, 250), (500, 499)):
        x = (scale * torch.randn(3, n)).to(dtype)
        eps = torch.finfo(dtype).eps
        tolerance = {8: 100 * max(1.0, scale), 4: 8, 2: 1}[dtype.itemsize] * eps  # bisection is float64, too
        torch.testing.assert_close(soft_top_k(x, k).double(), bisected(x, k, 1.0), rtol=eps, atol=tolerance)


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e12])
def test_an_offset_changes_nothing(offset) -> None:
    """Whole numbers and quarters, so that the sum with the offset is exact."""
    x = torch.tensor([3.0, 1.5, 1.25, -1.0], dtype=torch.float64)
    assert soft_top_k(x + offset, 2, 0, 0.5).tolist() == [1.0, 0.75, 0.25, 0.0]
    assert soft_rank(x + offset, 0.5).tolist() == [4.0, 2.75, 2.25, 1.0]


@pytest.mark.parametrize(
    ("values", "k", "mask"),
    [
        ([-INF, 0.0, -INF], 1, [0.0, 1.0, 0.0]),
        ([INF, 0.0, 0.0], 1, [1.0, 0.0, 0.0]),
        ([INF, 0.0, 0.0], 2, [1.0, 0.5, 0.5]),
        ([INF, INF, -INF], 1, [0.5, 0.5, 0.0]),
        ([-INF, -INF, -INF, -INF], 1, [0.25, 0.25, 0.25, 0.25]),
        ([1e38, 1e38, -1e38], 2, [1.0, 1.0, 0.0]),
        ([1e38, -1e38, -1e38], 2, [1.0, 0.5, 0.5]),
        ([0.5, 0.5, 0.5], 0, [0.0, 0.0, 0.0]),
        ([0.5, INF, NAN], 3, [1.0, 1.0, 1.0]),
        ([2.0, 1.0, 0.0], 1, [1.0, 0.0, 0.0]),
        ([2.0, 1.0, 1.0], 2, [1.0, 0.5, 0.5]),
    ],
)
def test_soft_top_k_of_infinities_and_ties(values, k, mask) -> None:
    for dtype in (torch.float64, torch.float32):
        x = torch.tensor(values, dtype=dtype, requires_grad=True)
        y = soft_top_k(x, k)
        assert y.tolist() == pytest.approx(mask, abs=1e-6)
        (gradient,) = torch.autograd.grad(y[0], x)
        assert gradient.isfinite().all()
        assert (gradient[(y == 0) | (y == 1)] == 0).all()


def test_nan_stays_in_its_row() -> None:
    x = torch.tensor([[NAN, 0.0, 1.0], [0.0, 0.25, 0.0]])
    y = soft_top_k(x, 2)
    assert y[0].isnan().all()
    torch.testing.assert_close(y[1], torch.tensor([7 / 12, 10 / 12, 7 / 12]))


def test_soft_top_k_is_the_nearest_point() -> None:
    """Of the corners, the middles of any two and random mixtures."""
    torch.manual_seed(0)
    x = torch.randn(5, dtype=torch.float64)
    corners = torch.tensor(
        [[float(i in chosen) for i in range(5)] for chosen in itertools.combinations(range(5), 2)],
        dtype=torch.float64,
    )
    mixed = torch.distributions.Dirichlet(torch.full((len(corners),), 0.3, dtype=torch.float64)).sample((20_000,))
    nearest = (torch.cat([corners, mixed @ corners]) - x).square().sum(1).min()
    found = (soft_top_k(x, 2) - x).square().sum()
    assert found <= nearest < 1.3 * found


@each_dtype
def test_the_hard_mask_has_k_ones_whatever_is_equal(dtype) -> None:
    x = torch.zeros(3, 9, dtype=dtype)
    for strength in (None, 1.0):
        assert top_k_mask(x, 4, strength=strength).sum(-1).tolist() == [4, 4, 4]
        assert top_k_mask(x, 0, strength=strength).sum() == 0


def test_top_k_mask_passes_the_gradient_or_that_of_the_soft_mask() -> None:
    x = torch.tensor([[3.0, 1.5, 1.0, -1.0], [9.0, 6.0, 3.0, 0.0]], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)
    hard = [[1, 1, 0, 0], [1, 1, 0, 0]]
    for strength, rows in ((None, [[1, 2, 4, 8]] * 2), (1.0, [[0, -1, 1, 0], [0] * 4]), (0.5, [[0] * 4] * 2)):
        y = top_k_mask(x, 2, strength=strength)
        assert y.tolist() == hard
        (gradient,) = torch.autograd.grad((y * weights).sum(), x)
        assert gradient.tolist() == rows


def test_one_hot_has_the_gradient_of_the_softmax_at_its_temperature() -> None:
    x = torch.tensor([0.4, 1.0, -0.3], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    for temperature in (0.3, 1.0, 5.0):
        y = one_hot_ste(x, 0, temperature)
        assert y.tolist() == [0, 1, 0]
        (ours,) = torch.autograd.grad(y @ weights, x)
        (soft,) = torch.autograd.grad((x / temperature).softmax(0) @ weights, x)
        torch.testing.assert_close(ours, soft, rtol=1e-13, atol=0)


@each_dtype
def test_one_hot_neither_overflows_nor_loses_a_masked_entry(dtype) -> None:
    large = torch.finfo(dtype).max
    for row in ([large, -large, large / 2], [-INF, 0.0, 1.0], [large, 0.0, -INF]):
        x = torch.tensor(row, dtype=dtype, requires_grad=True)
        for temperature in (1e-3, 1.0):
            y = one_hot_ste(x, 0, temperature)
            assert y.tolist() == [float(i == x.argmax()) for i in range(3)]
            (gradient,) = torch.autograd.grad(y[1], x)
            assert gradient.isfinite().all()
            assert gradient[x == -INF].eq(0).all()


@each_dtype
def test_soft_ranks_are_the_ranks_of_what_is_far_apart(dtype) -> None:
    large = torch.finfo(dtype).max
    for row, ranks in (
        ([3.0, -7.0, 0.0], [3, 1, 2]),
        ([large, -large, 0.0, 2.0], [4, 1, 2, 3]),
        ([INF, -INF, 5.0], [3, 1, 2]),
        ([large, 0.0, 0.0, large], [3.5, 1.5, 1.5, 3.5]),
        ([INF, -INF, INF], [2.5, 1, 2.5]),
    ):
        x = torch.tensor(row, dtype=dtype)
        assert soft_rank(x, 1.0).tolist() == ranks
        assert soft_rank(x, 1e-6).tolist() == ranks


@pytest.mark.parametrize("strength", [1e-4, 0.3, 1.0, 30.0])
def test_soft_ranks_lie_in_the_permutahedron(strength) -> None:
    """Their sum is that of the ranks, and the m largest sum to no more than the m largest ranks."""
    torch.manual_seed(0)
    x = torch.randn(20, 30, dtype=torch.float64)
    descending = soft_rank(x, strength).sort(-1, descending=True).values.cumsum(-1)
    limit = torch.arange(30.0, 0, -1, dtype=torch.float64).cumsum(-1)
    assert (descending <= limit + 1e-9).all()
    torch.testing.assert_close(descending[:, -1], limit[-1].expand(20))
    assert torch.equal(soft_rank(x, 1e-9).argsort(-1), x.argsort(-1))


def test_soft_rank_with_great_strength_is_a_shift() -> None:
    x = torch.tensor([0.5, -0.25, 2.0], dtype=torch.float64)
    torch.testing.assert_close(soft_rank(x, 100.0), 2 + (x - x.mean()) / 100, rtol=1e-14, atol=0)


@each_function
def test_derivatives_beyond_the_catalog(function) -> None:
    """Blocks of several sizes in one batch."""
    rows = [[0.1, 0.25, 0.0, 0.7, 0.45], [0.0, 3.9, 0.4, -2.0, 0.1], [0.0, 5.0, 9.0, -4.0, 15.0]]
    x = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    if function in (SOFT["soft_top_k"], SOFT["soft_rank"]):
        assert gradcheck(function, (x,), rtol=1e-6, atol=1e-8)
    (first,) = torch.autograd.grad(function(x, 0.5).pow(2).sum() + function(x, 0.5)[0, 2], x)
    assert first.isfinite().all()
    assert gradgradcheck(lambda x: function(x, 3.0), (x,), rtol=1e-6, atol=1e-8) or function is SOFT["one_hot_ste"]


@pytest.mark.parametrize("function", [soft_rank, lambda x: soft_top_k(x, 200)], ids=["soft_rank", "soft_top_k"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_mean_over_many_halves_does_not_overflow(function, dtype) -> None:
    x = torch.zeros(400, dtype=dtype, requires_grad=True)
    function(x).backward(torch.full((400,), 60_000.0, dtype=dtype))
    assert x.grad.abs().max() == 0


def test_gumbel_noise_has_its_distribution() -> None:
    noise = gumbel_like(torch.zeros(200_000), torch.Generator().manual_seed(0))
    assert noise.isfinite().all()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.01)
    assert noise.std().item() == pytest.approx(1.2825, abs=0.01)
    again = gumbel_like(torch.zeros(200_000), torch.Generator().manual_seed(0))
    assert torch.equal(noise, again)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_hot_of_perturbed_logits_is_a_sample_of_the_softmax(dtype) -> None:
    logits = torch.tensor([5.0, 5.0, 4.0, 3.0], dtype=dtype)
    many = logits.expand(100_000, 4)
    noise = gumbel_like(many, torch.Generator().manual_seed(0))
    assert noise.dtype == torch.promote_types(dtype, torch.float32)
    found = one_hot_ste(many + noise).mean(0)
    torch.testing.assert_close(found.double(), logits.double().softmax(0), rtol=0, atol=0.006)


def test_what_is_kept() -> None:
    x = torch.randn(50, 20, requires_grad=True)
    kept = {name: saved_bytes(function, x) / x.numel() for name, function in SOFT.items()}
    assert kept == {"soft_top_k": 1, "top_k_mask": 1, "soft_rank": 4, "one_hot_ste": 0}
    assert saved_bytes(lambda x: top_k_mask(x, 2), x) == 0


@each_function
@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_other_dtypes_are_refused(function, dtype) -> None:
    with pytest.raises(TypeError, match=f"expected a real floating input, got {dtype}"):
        function(torch.ones(2, 3, dtype=dtype))


@each_function
@pytest.mark.parametrize("strength", [0.0, -2.0, INF, NAN])
def test_strengths_and_temperatures_are_positive(function, strength) -> None:
    with pytest.raises(ValueError, match=f"expected a finite (strength|temperature) > 0, got {strength}"):
        function(torch.ones(2, 3), strength)


@pytest.mark.parametrize("function", [soft_top_k, top_k_mask])
def test_more_than_there_are(function) -> None:
    for x, k, dim, size in ((torch.ones(2, 3), 4, -1, 3), (torch.ones(2, 3), -1, 0, 2), (torch.ones(()), 2, 0, 1)):
        with pytest.raises(RuntimeError, match=rf"expected 0 <= k <= {size}, the size of dim {dim}, got k = {k}"):
            function(x, k, dim)
    with pytest.raises(IndexError, match="out of range"):
        function(torch.ones(2, 3), 1, 2)
    assert function(torch.tensor(3.0), 1, 0) == 1
    assert function(torch.tensor(3.0), 0, 0) == 0


def test_shapes_that_have_nothing_to_choose() -> None:
    with pytest.raises(IndexError, match="non-zero size"):
        one_hot_ste(torch.ones(2, 0))
    with pytest.raises(RuntimeError, match="at least one dimension, got a scalar"):
        soft_rank(torch.tensor(1.0))


@pytest.mark.parametrize("batch", [(), (7,), (5,)], ids=str)
def test_the_branches_of_the_page_are_chosen_for_each_sample(batch: tuple[int, ...]) -> None:
    """Also in a batch of as many samples as there are branches, where a mistake in the dimension has a right length."""
    page = Path(__file__).parents[2] / "examples/02_changing_the_gradient/discrete_choices.py"
    (line,) = re.findall(r"^# {5}output = (sum\(.*branch\(x\).*\))$", page.read_text(), flags=re.MULTILINE)
    torch.manual_seed(0)
    x, logits = torch.randn(*batch, 3), torch.randn(*batch, 5, requires_grad=True)
    branches = [torch.nn.Linear(3, 2) for _ in range(5)]
    choice = one_hot_ste(logits)
    output = eval(line, {"x": x, "choice": choice, "branches": branches})
    every = torch.stack([branch(x) for branch in branches], -2)
    index = logits.argmax(-1)[..., None, None].expand(*batch, 1, 2)
    torch.testing.assert_close(output, every.gather(-2, index).squeeze(-2))
    output.sum().backward()
    assert logits.grad.count_nonzero() == logits.numel()
