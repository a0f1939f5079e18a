"""Masks of one bit, and of none."""

import math

import pytest
import torch
from torch.nn import functional as F

from autograd_cookbook.auditing import audit, held_bytes, saved_bytes
from autograd_cookbook.recipes.masks import BLOCK, linear_relu, pack_bits, packed_relu, seeded_dropout, unpack_bits

INF = float("inf")


# --- bits ---


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 16, 17, 1000])
def test_packing_is_exact_for_every_size(n) -> None:
    mask = torch.rand(n) > 0.5
    packed = pack_bits(mask)
    assert packed.dtype is torch.uint8
    assert packed.shape == (math.ceil(n / 8),)
    assert torch.equal(unpack_bits(packed, mask.shape), mask)


def test_where_each_bit_goes() -> None:
    """With m = 2 bytes, bit k of byte j is element 2 k + j."""
    for element in range(16):
        mask = torch.zeros(16, dtype=torch.bool)
        mask[element] = True
        expected = [0, 0]
        expected[element % 2] = 1 << element // 2
        assert pack_bits(mask).tolist() == expected


@pytest.mark.parametrize("shape", [(), (3, 5), (2, 0, 4), (2, 3, 4, 5)])
def test_shapes_come_back(shape) -> None:
    mask = torch.rand(shape) > 0.5
    assert torch.equal(unpack_bits(pack_bits(mask), mask.shape), mask)


def test_a_transposed_mask_is_packed_by_its_indices() -> None:
    mask = torch.rand(6, 5) > 0.5
    assert torch.equal(pack_bits(mask.mT), pack_bits(mask.mT.contiguous()))
    assert torch.equal(unpack_bits(pack_bits(mask.mT), mask.mT.shape), mask.mT)


def test_only_bools_are_packed() -> None:
    with pytest.raises(TypeError, match=r"expected a bool mask, got torch\.float32"):
        pack_bits(torch.ones(3))


# --- rectifiers ---


@pytest.mark.parametrize("n", [1, 8, 9, 1001])
def test_one_bit_an_element_is_kept(n) -> None:
    x = torch.randn(n, requires_grad=True)
    assert saved_bytes(packed_relu, x) == math.ceil(n / 8)
    assert held_bytes(packed_relu, x) == math.ceil(n / 8) + 4 * n
    assert saved_bytes(torch.relu, x) == 4 * n
    weight = torch.randn(3, n, requires_grad=True)
    batch = torch.randn(7, n, requires_grad=True)
    assert saved_bytes(linear_relu, batch, weight) == math.ceil(7 * 3 / 8)


def test_packing_adds_bytes_where_the_output_is_kept() -> None:
    x, weight = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    after_torch = saved_bytes(lambda x, w: F.linear(torch.relu(x), w), x, weight)
    assert saved_bytes(lambda x, w: F.linear(packed_relu(x), w), x, weight) == after_torch + 8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_packed_relu_agrees_with_torch_in_every_bit(dtype) -> None:
    values = [-INF, -1.0, -0.0, 0.0, 1e-7, 2.0, INF, float("nan")]
    gradient = torch.tensor([1.0, INF, INF, -INF, 1.0, float("nan"), 3.0, 2.0], dtype=dtype)
    results = []
    for function in (packed_relu, torch.relu):
        x = torch.tensor(values, dtype=dtype, requires_grad=True)
        y = function(x)
        results.append((y.detach(), *torch.autograd.grad(y, x, gradient)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_the_output_of_packed_relu_may_be_written_to() -> None:
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    packed_relu(x).mul_(-3).sum().backward()
    assert x.grad.tolist() == [0.0, -3.0]


def test_linear_relu_by_hand() -> None:
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    w = torch.tensor([[3.0, 1.0], [-1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.0, 0.5], dtype=torch.float64, requires_grad=True)
    y = linear_relu(x, w, b)
    assert y.tolist() == [[6.0, 0.0]]
    gradients = torch.autograd.grad(y, (x, w, b), torch.tensor([[2.0, 5.0]], dtype=torch.float64))
    assert [g.tolist() for g in gradients] == [[[6.0, 2.0]], [[2.0, 4.0], [0.0, 0.0]], [2.0, 0.0]]


def test_linear_relu_computes_only_what_is_asked_for() -> None:
    args = [torch.randn(4, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True), torch.randn(2)]
    args[2].requires_grad_()
    expected = torch.autograd.grad(linear_relu(*args).square().sum(), args)
    for k, arg in enumerate(args):
        alone = [a if i == k else a.detach() for i, a in enumerate(args)]
        (found,) = torch.autograd.grad(linear_relu(*alone).square().sum(), arg)
        torch.testing.assert_close(found, expected[k])


def test_linear_relu_under_autocast() -> None:
    args = [torch.randn(40, 30).requires_grad_(), torch.randn(20, 30).requires_grad_()]
    with torch.autocast("cpu", torch.bfloat16):
        y = linear_relu(*args)
    assert y.dtype is torch.bfloat16
    found = torch.autograd.grad(y.float().sum(), args)
    expected = torch.autograd.grad(linear_relu(*args).sum(), args)
    for f, e in zip(found, expected, strict=True):
        assert f.dtype is torch.float32
        assert float((f - e).norm() / e.norm()) < 0.1


def test_weights_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        linear_relu(torch.randn(2, 3), torch.randn(4, 5))


# --- dropout ---


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_that_drops_and_the_scale(p) -> None:
    n = 200_000
    y = seeded_dropout(torch.ones(n, dtype=torch.float64), p)
    kept = y != 0
    # Five standard deviations of a binomial share.
    assert abs(float(kept.double().mean()) - (1 - p)) < 5 * math.sqrt(p * (1 - p) / n)
    assert y[kept].unique().tolist() == pytest.approx([1 / (1 - p)])
    # Neighbors drop independently.
    assert abs(float((kept[1:] & kept[:-1]).double().mean()) - (1 - p) ** 2) < 5 * 0.5 / math.sqrt(n)


def test_the_gradient_drops_where_the_value_did() -> None:
    x = torch.randn(1000, dtype=torch.float64, requires_grad=True)
    y = seeded_dropout(x, 0.25)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, (y != 0).double() / 0.75)


def test_eight_bytes_whatever_the_size() -> None:
    for n in (10, 1000, 2 * BLOCK + 3):
        x = torch.randn(n, requires_grad=True)
        assert saved_bytes(seeded_dropout, x) == 8
        assert held_bytes(seeded_dropout, x) == 8 + 4 * n
    assert saved_bytes(F.dropout, x) == 4 * n


def test_a_mask_does_not_depend_on_the_block_that_it_is_drawn_in() -> None:
    n = 2 * BLOCK + 3
    y = seeded_dropout(torch.ones(n), 0.5, seed=3)
    drawn = torch.rand(n, generator=torch.Generator().manual_seed(3))
    assert torch.equal(y != 0, drawn >= 0.5)


def test_one_number_is_taken_from_the_global_generator() -> None:
    x = torch.ones(100)
    torch.manual_seed(1)
    first, second = seeded_dropout(x), seeded_dropout(x)
    then = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(seeded_dropout(x), first)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    for _ in range(2):
        torch.randint(2**63 - 1, ())
    assert torch.equal(torch.rand(3), then)


@pytest.mark.parametrize(
    ("p", "training", "seed"), [(0.5, True, 5), (0.0, True, None), (1.0, True, None), (0.5, False, None)]
)
def test_nothing_is_drawn_where_nothing_is_random(p, training, seed) -> None:
    x = torch.randn(4, 3, requires_grad=True)
    before = torch.get_rng_state()
    y = seeded_dropout(x, p, training, seed)
    y.sum().backward()
    assert torch.equal(torch.get_rng_state(), before)
    if seed is None:
        torch.testing.assert_close(y, F.dropout(x, p, training))
        assert torch.equal(x.grad, torch.full_like(x, 0.0 if p == 1 else 1.0))
        assert (y is x) == (p < 1)


def test_another_seed_is_another_mask() -> None:
    x = torch.ones(1000)
    assert torch.equal(seeded_dropout(x, seed=1), seeded_dropout(x, seed=1))
    assert not torch.equal(seeded_dropout(x, seed=1), seeded_dropout(x, seed=2))


def test_vmap_draws_as_it_is_told() -> None:
    x = torch.ones(3, 1000)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        torch.func.vmap(seeded_dropout)(x)
    same = torch.func.vmap(seeded_dropout, randomness="same")(x)
    assert torch.equal(same[0], same[1])
    different = torch.func.vmap(seeded_dropout, randomness="different")(x)
    assert abs(float((different[0] == different[1]).float().mean()) - 0.5) < 0.1
    assert not torch.equal(different[1], different[2])


def test_per_sample_gradients_have_the_masks_of_their_samples() -> None:
    x, w = torch.randn(5, 40, dtype=torch.float64), torch.ones(40, dtype=torch.float64)

    def forward(w, x):
        return seeded_dropout(w * x, 0.5)

    torch.manual_seed(2)
    values = torch.func.vmap(forward, (None, 0), randomness="different")(w, x)
    torch.manual_seed(2)
    gradients = torch.func.vmap(
        torch.func.grad(lambda w, x: forward(w, x).square().sum()), (None, 0), randomness="different"
    )(w, x)
    torch.testing.assert_close(gradients, 2 * values * (values != 0) * x / 0.5)


def test_nested_vmap_and_the_last_dim() -> None:
    x = torch.ones(4, 2, 3)
    with_seed = torch.func.vmap(torch.func.vmap(lambda x: seeded_dropout(x, seed=1)), in_dims=2, out_dims=2)(x)
    single = seeded_dropout(torch.ones(2), seed=1)
    assert torch.equal(with_seed, single[None, :, None].expand(4, 2, 3))


def test_the_jacobian_is_diagonal() -> None:
    x = torch.ones(20, dtype=torch.float64)
    jacobian = torch.func.jacrev(lambda x: seeded_dropout(x, 0.5, seed=3))(x)
    assert torch.equal(jacobian, torch.diag(seeded_dropout(x, 0.5, seed=3)))


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan")])
def test_p_is_a_probability(p) -> None:
    with pytest.raises(ValueError, match=f"between 0 and 1, got {p}"):
        seeded_dropout(torch.ones(3), p)


def test_integers_are_refused() -> None:
    with pytest.raises(TypeError, match=r"got torch\.int64"):
        seeded_dropout(torch.ones(3, dtype=torch.int64))


def test_complex_numbers_drop_whole() -> None:
    x = torch.randn(50, dtype=torch.complex128, requires_grad=True)
    audit(seeded_dropout, (x, 0.2, True, 1), skip=["compile"]).raise_for_findings()
    y = seeded_dropout(x, 0.2, seed=1)
    torch.testing.assert_close(y, torch.where(seeded_dropout(torch.ones(50), 0.2, seed=1) != 0, x / 0.8, 0))


def test_the_audit_of_a_call_without_a_seed() -> None:
    audit(seeded_dropout, (torch.randn(4, 3, dtype=torch.float64, requires_grad=True),)).raise_for_findings()


@pytest.mark.parametrize("size", [33, 1000])
def test_it_runs_where_the_compiler_writes_vector_code(size) -> None:
    """In torch 2.13 a view of bytes as bools does not: C++ refuses what the compiler writes for it."""
    x = torch.linspace(-1, 1, size, requires_grad=True)
    compiled = torch.compile(packed_relu, fullgraph=True)
    ours, theirs = (torch.autograd.grad(f(x).square().sum(), x)[0] for f in (compiled, torch.relu))
    assert torch.equal(ours, theirs)
