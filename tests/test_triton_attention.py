"""triton_attention: the numbers of attention, in torch's operations, on the interpreter, and on a GPU."""

import pytest
import torch
from torch.nn import functional as F

from autograd_cookbook import kernels
from autograd_cookbook.attention import attention
from autograd_cookbook.audit import saved_bytes
from autograd_cookbook.triton_attention import LARGEST_WIDTH, triton_attention
from tests.support import assert_passes_on_the_interpreter, expect_close, gradients

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no GPU here: the kernels are compiled and interpreted, and not run on one")
        assert kernels.backend("cuda") == "Triton"
    return request.param


each_device = pytest.mark.parametrize("device", DEVICES, indirect=True)


def problem(*shapes, dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    randoms = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return tuple(r.to(device, dtype).requires_grad_() for r in randoms)


@pytest.mark.skipif(kernels.triton is None, reason="Triton is not installed")
def test_all_of_this_on_the_interpreter() -> None:
    assert_passes_on_the_interpreter(__file__)


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
def test_any_number_of_queries_and_keys(device, queries, keys, width, features, causal) -> None:
    args = problem((queries, width), (keys, width), (keys, features), device=device)
    expected = gradients(lambda *t: F.scaled_dot_product_attention(*t, is_causal=causal), args)
    expect_close(gradients(lambda *t: triton_attention(*t, causal=causal), args), expected, 1e-12)


@each_device
def test_rows_too_wide_for_a_kernel(device) -> None:
    args = problem(*[(3, LARGEST_WIDTH + 1)] * 3, device=device)
    expect_close(gradients(triton_attention, args), gradients(F.scaled_dot_product_attention, args), 1e-11)


@each_device
def test_leading_dimensions_broadcast_and_layout_does_not_matter(device) -> None:
    q, k, v = problem((2, 1, 4, 3), (1, 2, 4, 5), (5, 2), device=device)
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
def test_each_dtype_is_as_good_as_it_can_be(device, dtype, rtol) -> None:
    args = problem(*[(65, 5)] * 3, dtype=dtype, device=device)
    found = gradients(triton_attention, args)
    assert {t.dtype for t in found} == {dtype}
    exact = gradients(F.scaled_dot_product_attention, tuple(a.detach().double().requires_grad_() for a in args))
    expect_close([t.double() for t in found], exact, rtol)


@each_device
def test_scale_and_large_scores(device) -> None:
    args = problem(*[(4, 4)] * 3, device=device)
    for scale in (0.0, -2.0, 9.0):
        expected = gradients(lambda *t, scale=scale: F.scaled_dot_product_attention(*t, scale=scale), args)
        expect_close(gradients(lambda *t, scale=scale: triton_attention(*t, scale=scale), args), expected, 1e-10)


@each_device
def test_the_second_derivative_is_that_of_attention(device) -> None:
    def second(function):
        args = problem(*[(5, 3)] * 3, device=device)
        first = torch.autograd.grad(function(*args, causal=True).sin().sum(), args, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), args)

    expect_close(second(triton_attention), second(attention), 1e-11)


@each_device
@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)])
def test_any_subset_of_the_arguments_may_be_frozen(device, wanted) -> None:
    args = problem(*[(3, 2)] * 3, device=device)
    for i, argument in enumerate(args):
        argument.requires_grad_(i in wanted)
    expect_close(gradients(triton_attention, args), gradients(F.scaled_dot_product_attention, args), 1e-12)


@each_device
def test_vmap_and_compile(device) -> None:
    q, k, v = (t.detach() for t in problem(*[(3, 4, 2)] * 3, device=device))
    mapped = torch.func.vmap(triton_attention, in_dims=(0, None, 0))(q, k[0], v)
    expect_close([mapped], [F.scaled_dot_product_attention(q, k[:1].expand(3, -1, -1), v)], 1e-12)
    whole = torch.compile(triton_attention, fullgraph=True, backend="aot_eager")
    args = tuple(t.requires_grad_() for t in (q, k, v))
    expect_close(gradients(whole, args), gradients(triton_attention, args), 1e-14)


@each_device
def test_it_keeps_its_output_and_a_number_a_query(device) -> None:
    args = problem((40, 2), (50, 2), (50, 3), dtype=torch.float32, device=device)
    assert saved_bytes(triton_attention, *args) == 40 * 3 * 4 + 40 * 4


def test_bad_input_is_named_as_by_attention() -> None:
    q, k, v = problem(*[(3, 2)] * 3)
    with pytest.raises(RuntimeError, match="same width, got 2 and 1"):
        triton_attention(q, k[:, :1], v)
