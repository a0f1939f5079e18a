"""attention and triton_attention: what torch's scaled_dot_product_attention says, in memory linear in the length."""

import json
from pathlib import Path

import pytest
import torch
from docs._ext.results import measured
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from autograd_cookbook.auditing import held_bytes, peak_bytes, saved_bytes
from autograd_cookbook.catalog import BY_NAME
from autograd_cookbook.recipes._attention import BLOCK
from autograd_cookbook.recipes._triton import backend, triton
from autograd_cookbook.recipes._triton_attention import LARGEST_WIDTH
from autograd_cookbook.recipes.flash_attention import attention, triton_attention
from tests.support import assert_passes_on_the_interpreter, expect_close, gradients

SURVIVORS = {
    "scores_of: columns.stop > rows.start -> columns.stop >= rows.start": (
        "a tile in which nothing is to be hidden may be masked, too"
    ),
    "TritonAttentionFunction.backward: 3 -> 4": "only the first three of them are looked at",
}

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks" / "results" / "attention.json"


def composed(query, key, value, causal=False, scale=None):
    """With all scores at once, and two derivatives by autograd."""
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return torch.softmax(scores, -1) @ value


def problem(*shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes]


def square(length, width=4, batch=(), dtype=torch.float64):
    return problem(*[(*batch, length, width)] * 3, dtype=dtype)


def derivatives(output, tensors, order=2):
    """The output, gradients of an uneven sum of it, and the gradients of an uneven sum of those."""
    weights = torch.cos(torch.arange(output.numel(), dtype=torch.float64)).reshape(output.shape).to(output.dtype)
    first = torch.autograd.grad(output, tensors, weights.requires_grad_(order > 1), create_graph=order > 1)
    found = [output.detach(), *(g.detach() for g in first)]
    if order == 1:
        return found
    uneven = sum((g * torch.sin(1.0 + torch.arange(g.numel())).reshape(g.shape)).sum() for g in first)
    return found + list(torch.autograd.grad(uneven, (*tensors, weights), allow_unused=True, materialize_grads=True))


SHAPES = [
    pytest.param((6, 4), (6, 4), (6, 4), id="no batch"),
    pytest.param((5, 4), (9, 4), (9, 3), id="more keys than queries"),
    pytest.param((9, 4), (5, 4), (5, 7), id="more queries than keys"),
    pytest.param((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4), id="batch and heads"),
    pytest.param((2, 3, 5, 4), (1, 3, 6, 4), (3, 6, 2), id="batch that broadcasts"),
    pytest.param((1, 1), (1, 1), (1, 1), id="one of each"),
    pytest.param((0, 4), (3, 4), (3, 2), id="no queries"),
    pytest.param((3, 4), (0, 4), (0, 2), id="no keys"),
    pytest.param((0, 3, 4), (0, 3, 4), (0, 3, 4), id="no batch at all"),
]


@pytest.mark.parametrize("shapes", [p.values for p in SHAPES], ids=[p.id for p in SHAPES])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("block", [1, 2, 3, 100, None])
def test_values_and_both_derivatives_are_those_of_the_composition(shapes, causal, block) -> None:
    tensors = problem(*shapes)
    ours = derivatives(attention(*tensors, causal=causal, block=block), tensors)
    expect_close(ours, derivatives(composed(*tensors, causal=causal), tensors), 1e-11)


@pytest.mark.parametrize("shapes", [p.values for p in SHAPES], ids=[p.id for p in SHAPES])
@pytest.mark.parametrize("causal", [False, True])
def test_value_and_gradients_are_those_of_torch(shapes, causal) -> None:
    tensors = problem(*shapes)
    ours = derivatives(attention(*tensors, causal=causal, block=2), tensors, 1)
    theirs = derivatives(F.scaled_dot_product_attention(*tensors, is_causal=causal), tensors, 1)
    for a, e in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("scale", [0.0, 1.0, -2.5])
def test_scale(scale) -> None:
    tensors = square(7)
    ours = derivatives(attention(*tensors, scale=scale, block=3), tensors)
    expect_close(ours, derivatives(composed(*tensors, scale=scale), tensors), 1e-11)


def test_queries_and_keys_without_width_are_averaged() -> None:
    """As torch's own does since 2.13: before, it gave zeros."""
    tensors = problem((3, 0), (2, 0), (2, 4))
    ours = derivatives(attention(*tensors), tensors, 1)
    expect_close(ours, derivatives(composed(*tensors, scale=1.0), tensors, 1), 1e-12)


def test_causal_order_counts_from_the_first_key_as_in_torch() -> None:
    def allowed(queries, keys):
        return attention(torch.zeros(queries, 1), torch.zeros(keys, 1), torch.eye(keys), causal=True, block=2) > 0

    assert torch.equal(allowed(2, 4), torch.ones(2, 4, dtype=torch.bool).tril())
    assert torch.equal(allowed(4, 2), torch.ones(4, 2, dtype=torch.bool).tril())


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_any_subset_of_the_arguments_may_be_frozen(wanted) -> None:
    tensors = square(7)
    for i, tensor in enumerate(tensors):
        tensor.requires_grad_(i in wanted)
    chosen = [tensors[i] for i in wanted]
    ours = derivatives(attention(*tensors, causal=True, block=3), chosen)
    expect_close(ours, derivatives(composed(*tensors, causal=True), chosen), 1e-11)


class Products(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.bmm.default
        return func(*args, **(kwargs or {}))


def test_frozen_arguments_cost_no_matmul() -> None:
    tensors = square(6)

    def matmuls(*wanted):
        for i, tensor in enumerate(tensors):
            tensor.requires_grad_(i in wanted)
        with Products() as products:
            torch.autograd.grad(attention(*tensors).sum(), [tensors[i] for i in wanted])
        return products.count

    # Two forward and the scores again; then one for the value, or one for the slope and one for each of the others.
    assert [matmuls(2), matmuls(0), matmuls(1), matmuls(0, 1, 2)] == [4, 5, 5, 7]


def test_a_third_derivative_raises() -> None:
    tensors = square(4)
    (first,) = torch.autograd.grad(attention(*tensors).square().sum(), tensors[0], create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), tensors[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        torch.autograd.grad(second.sum(), tensors[0], retain_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        second.sum().backward()


def test_torchs_own_kernel_has_no_second_derivative() -> None:
    """The page says so; where it gets one, the page has to change."""
    q, k, v = square(4, batch=(1, 1))
    (first,) = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="flash_attention_for_cpu_backward is not implemented"):
        first.sum().backward()


def test_scores_too_large_for_an_exponential() -> None:
    q, k, v = square(6)
    tensors = [(200 * q).detach().requires_grad_(), k, v]
    ours = derivatives(attention(*tensors, block=2), tensors, 1)
    assert all(t.isfinite().all() for t in ours)
    expect_close(ours, derivatives(F.scaled_dot_product_attention(*tensors), tensors, 1), 1e-10)


def test_each_row_may_have_its_maximum_in_any_tile() -> None:
    q = torch.eye(6, dtype=torch.float64).requires_grad_()
    k = (9 * torch.eye(6, dtype=torch.float64).flip(0)).requires_grad_()
    v = square(6)[0]
    ours = derivatives(attention(q, k, v, scale=1.0, block=2), (q, k, v))
    expect_close(ours, derivatives(composed(q, k, v, scale=1.0), (q, k, v)), 1e-11)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype) -> None:
    """Everything between arguments and results is float32: no more error than the rounding of the results."""
    low = square(300, 16, dtype=dtype)
    exact = [t.detach().double().requires_grad_() for t in low]
    expected = derivatives(F.scaled_dot_product_attention(*exact), exact, 1)
    found = derivatives(attention(*low, block=64), low, 1)
    assert all(t.dtype is dtype for t in found)
    errors = [float((f.double() - e).norm() / e.norm()) for f, e in zip(found, expected, strict=True)]
    eps = torch.finfo(dtype).eps
    assert errors[0] < eps / 2
    # The gradient of the output and the output are rounded before backward sees them.
    assert max(errors[1:]) < 2 * eps, errors


def test_under_autocast_it_runs_in_the_lower_dtype_as_torch_does() -> None:
    tensors = square(8, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, expected = attention(*tensors), F.scaled_dot_product_attention(*tensors)
    assert output.dtype is expected.dtype is torch.bfloat16
    torch.testing.assert_close(output, expected, rtol=2e-2, atol=2e-2)
    assert torch.autograd.grad(output.sum(), tensors[0])[0].dtype is torch.float32


@pytest.mark.parametrize("in_dims", [(0, 0, 0), (0, None, 0), (1, 0, None), (None, None, 0)])
def test_vmap_over_any_of_the_three(in_dims) -> None:
    shapes = [(2, 5, 4) if d is None else (3, 2, 5, 4) if d == 0 else (2, 3, 5, 4) for d in in_dims]
    tensors = [t.detach() for t in problem(*shapes)]

    def both(function):
        def loss(*args):
            return function(*args, True).square().sum()

        mapped = torch.func.vmap(torch.func.grad_and_value(loss, argnums=(0, 1, 2)), in_dims)(*tensors)
        return [*mapped[0], mapped[1]]

    expect_close(both(lambda *a: attention(*a, block=2)), both(composed), 1e-11)


@pytest.mark.parametrize(
    ("shapes", "options", "error", "message"),
    [
        (((4,), (3, 4), (3, 4)), {}, RuntimeError, r"at least 2 dimensions, got shapes \(4,\), \(3, 4\), \(3, 4\)"),
        (((3, 4), (3, 5), (3, 4)), {}, RuntimeError, "same width, got 4 and 5"),
        (((3, 4), (3, 4), (2, 4)), {}, RuntimeError, "as many values as keys, got 2 and 3"),
        (((2, 3, 4), (5, 3, 4), (3, 4)), {}, RuntimeError, r"broadcast, got \(2,\), \(5,\), \(\)"),
        (((3, 4),) * 3, {"block": 0}, ValueError, "block > 0, got 0"),
    ],
)
def test_bad_shapes_and_options_are_named(shapes, options, error, message) -> None:
    with pytest.raises(error, match=message):
        attention(*problem(*shapes), **options)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t: t.float(), RuntimeError, r"same dtype, got torch\.float64, torch\.float32"),
        (lambda t: t.to("meta"), RuntimeError, "same device, got cpu, meta"),
    ],
)
def test_a_key_of_another_dtype_or_device_is_named(change, error, message) -> None:
    q, k, v = square(3)
    with pytest.raises(error, match=message):
        attention(q, change(k), v)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_only_real_floating_dtypes(dtype) -> None:
    with pytest.raises(TypeError, match=f"got {dtype}"):
        attention(*[torch.ones(2, 2).to(dtype)] * 3)


def test_a_compiled_graph_is_as_long_for_many_tiles_as_for_few() -> None:
    nodes = []

    def count(graph, _):
        nodes.append(sum(len(m.graph.nodes) for m in graph.modules() if isinstance(m, torch.fx.GraphModule)))
        return graph.forward

    for length in (4, 8):
        torch.compile(lambda *t: attention(*t, block=2), fullgraph=True, backend=count)(*square(length))
        torch._dynamo.reset()
    assert nodes[1] == nodes[0], nodes


def test_it_keeps_its_arguments_its_output_and_two_numbers_a_query() -> None:
    q, k, v = problem((100, 8), (300, 8), (300, 16), dtype=torch.float32)
    assert saved_bytes(attention, q, k, v) == 100 * 16 * 4 + 100 * 8
    assert held_bytes(attention, q, k, v) == 100 * 16 * 4 + 100 * 8
    assert saved_bytes(composed, q, k, v) >= 100 * 300 * 4


def extra(function, tensors):
    """Bytes at the peak of forward and backward, beyond the gradients."""
    returned = sum(t.untyped_storage().nbytes() for t in tensors)
    return peak_bytes(lambda: torch.autograd.grad(function(*tensors).sum(), tensors)) - returned


@pytest.mark.parametrize("causal", [False, True])
def test_peak_memory_grows_linearly(causal) -> None:
    def ours(length):
        return extra(lambda *t: attention(*t, causal=causal, block=32), square(length, 8, dtype=torch.float32))

    first, second, third = ours(64), ours(128), ours(256)
    assert third - second == 2 * (second - first), (first, second, third)
    # Output and its gradient and the statistics: of float32, 8 numbers and 2 a query.
    assert second - first <= 64 * 4 * (2 * 8 + 2) + 512
    assert third < extra(composed, square(256, 8, dtype=torch.float32)) / 8


def test_the_second_derivative_needs_no_more_than_tiles_either() -> None:
    def peak(function, length):
        tensors = square(length, 8, dtype=torch.float32)

        def run():
            first = torch.autograd.grad(function(*tensors).square().sum(), tensors, create_graph=True)
            torch.autograd.grad(sum(g.square().sum() for g in first), tensors)

        return peak_bytes(run)

    def ours(*tensors):
        return attention(*tensors, block=64)

    assert peak(ours, 256) < 2.1 * peak(ours, 128)
    assert peak(ours, 256) < peak(composed, 256) / 6


def test_a_large_batch_gets_smaller_tiles() -> None:
    tensors = square(BLOCK, 1, batch=(16,), dtype=torch.float32)
    assert extra(attention, tensors) < 5 * 2**20 * 4


@pytest.fixture(scope="module")
def results():
    return json.loads(STORED.read_text())


def test_the_figures_hold_in_the_stored_results(results) -> None:
    """One head of width 64 in float32, on one core."""
    assert (results["heads"], results["width"]) == (1, 64)
    longest = results["lengths"]["16384"]
    assert longest["ours"]["peak"] <= longest["composed"]["peak"] / 50
    assert all(row["difference"] < 1e-5 for rows in results["lengths"].values() for row in rows.values())


def test_the_compiler_finds_torchs_kernel_for_the_composition() -> None:
    """The page says so, because of the bytes."""
    rows = measured(BY_NAME["attention"], "cost")["contenders"]
    compiled, built_in = rows["composition, compiled"], rows["built-in"]
    assert (compiled["saved"], compiled["peak"]) == (built_in["saved"], built_in["peak"])


def test_the_page_says_what_was_measured(results) -> None:
    text = (ROOT / "examples" / "06_beyond_autograd" / "flash_attention.py").read_text()
    lines = [
        f'#    "{int(length):,}", "{name}", "{row["peak"] / 1e6:,.1f}", '
        f'"{row["seconds"] / rows["composed"]["seconds"]:.2f}"\n'
        for length, rows in results["lengths"].items()
        for name, row in rows.items()
        if int(length) in (1024, 4096, 16384)
    ]
    assert "".join(lines) in text, "the table should be:\n" + "".join(lines)
    assert results["on"]["device"] in text


# --- By kernels: in torch's operations, on the interpreter, and on a GPU ---

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda":
        assert backend("cuda") == "Triton"
    return request.param


each_device = pytest.mark.parametrize("device", DEVICES, indirect=True)


def triton_problem(*shapes, dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    randoms = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return tuple(r.to(device, dtype).requires_grad_() for r in randoms)


@pytest.mark.slow("src/autograd_cookbook/recipes")
@pytest.mark.skipif(triton is None, reason="Triton is not installed")
def test_triton_all_of_this_on_the_interpreter() -> None:
    assert_passes_on_the_interpreter(__file__, "triton")


# In float64 a block has 16 rows.
@each_device
@pytest.mark.parametrize(
    ("queries", "keys", "width", "features", "causal"),
    [
        (1, 1, 1, 1, False),
        (5, 7, 4, 6, True),
        (17, 33, 5, 3, True),
        (33, 17, 16, 17, False),
        (33, 17, 3, 2, True),
        (0, 3, 2, 2, False),
        (3, 0, 2, 2, True),
    ],
)
def test_triton_any_number_of_queries_and_keys(device, queries, keys, width, features, causal) -> None:
    args = triton_problem((queries, width), (keys, width), (keys, features), device=device)
    expected = gradients(lambda *t: F.scaled_dot_product_attention(*t, is_causal=causal), args)
    expect_close(gradients(lambda *t: triton_attention(*t, causal=causal), args), expected, 1e-12)


@each_device
def test_triton_rows_too_wide_for_a_kernel(device) -> None:
    args = triton_problem(*[(3, LARGEST_WIDTH + 1)] * 3, device=device)
    expect_close(gradients(triton_attention, args), gradients(F.scaled_dot_product_attention, args), 1e-11)


@each_device
def test_triton_leading_dimensions_broadcast_and_layout_does_not_matter(device) -> None:
    q, k, v = triton_problem((2, 1, 4, 3), (1, 2, 4, 5), (5, 2), device=device)
    args = (q, k, v)

    def turned(function):
        return lambda q, k, v: function(q.mT, k.mT, v)

    expected = gradients(turned(F.scaled_dot_product_attention), args)
    expect_close(gradients(turned(triton_attention), args, change=lambda g: g.mT.contiguous().mT), expected, 1e-12)


@each_device
@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [(torch.float32, 2e-6), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)],
    ids=str,
)
def test_triton_each_dtype_is_as_good_as_it_can_be(device, dtype, rtol) -> None:
    args = triton_problem(*[(65, 5)] * 3, dtype=dtype, device=device)
    found = gradients(triton_attention, args)
    assert {t.dtype for t in found} == {dtype}
    exact = gradients(F.scaled_dot_product_attention, tuple(a.detach().double().requires_grad_() for a in args))
    expect_close([t.double() for t in found], exact, rtol)


@each_device
def test_triton_scale_and_large_scores(device) -> None:
    args = triton_problem(*[(4, 4)] * 3, device=device)
    for scale in (0.0, -2.0, 9.0):
        expected = gradients(lambda *t, scale=scale: F.scaled_dot_product_attention(*t, scale=scale), args)
        expect_close(gradients(lambda *t, scale=scale: triton_attention(*t, scale=scale), args), expected, 1e-10)


@each_device
def test_triton_the_second_derivative_is_that_of_attention(device) -> None:
    def second(function):
        args = triton_problem(*[(5, 3)] * 3, device=device)
        first = torch.autograd.grad(function(*args, causal=True).sin().sum(), args, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), args)

    expect_close(second(triton_attention), second(attention), 1e-11)


@each_device
@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)])
def test_triton_any_subset_of_the_arguments_may_be_frozen(device, wanted) -> None:
    args = triton_problem(*[(3, 2)] * 3, device=device)
    for i, argument in enumerate(args):
        argument.requires_grad_(i in wanted)
    expect_close(gradients(triton_attention, args), gradients(F.scaled_dot_product_attention, args), 1e-12)


@each_device
def test_triton_vmap_and_compile(device) -> None:
    q, k, v = (t.detach() for t in triton_problem(*[(3, 4, 2)] * 3, device=device))
    mapped = torch.func.vmap(triton_attention, in_dims=(0, None, 0))(q, k[0], v)
    expect_close([mapped], [F.scaled_dot_product_attention(q, k[:1].expand(3, -1, -1), v)], 1e-12)
    whole = torch.compile(triton_attention, fullgraph=True, backend="aot_eager")
    args = tuple(t.requires_grad_() for t in (q, k, v))
    expect_close(gradients(whole, args), gradients(triton_attention, args), 1e-14)


@each_device
def test_triton_it_keeps_its_output_and_two_numbers_a_query(device) -> None:
    args = triton_problem((40, 2), (50, 2), (50, 3), dtype=torch.float32, device=device)
    assert saved_bytes(triton_attention, *args) == 40 * 3 * 4 + 40 * 8


def test_triton_bad_input_is_named_as_by_attention() -> None:
    q, k, v = triton_problem(*[(3, 2)] * 3)
    with pytest.raises(RuntimeError, match="same width, got 2 and 1"):
        triton_attention(q, k[:, :1], v)


def test_half_precision_with_values_far_from_zero() -> None:
    """The docstring says how many digits the rounded output costs, and that torch's function loses as many."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 4, n, 64) for n in (10, 600, 600))
    tensors = [t.bfloat16() for t in (query, key, value + 10)]
    first = torch.randn(2, 4, 10, 64)

    def grads(function, dtype) -> list[torch.Tensor]:
        leaves = [t.to(dtype).requires_grad_() for t in tensors]
        found = torch.autograd.grad(function(*leaves), leaves[:2], first.bfloat16().to(dtype))
        return [grad.double() for grad in found]

    exact = grads(F.scaled_dot_product_attention, torch.float64)
    ours, theirs = (
        [float((x - e).norm() / e.norm()) for x, e in zip(grads(f, torch.bfloat16), exact, strict=True)]
        for f in (attention, F.scaled_dot_product_attention)
    )
    assert 0.01 < ours[0] < 0.05
    assert all(a < 1.25 * b for a, b in zip(ours, theirs, strict=True))
