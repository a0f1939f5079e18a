"""triton_softmax: what torch.softmax says, in torch's operations, on the interpreter, and on a GPU."""

import os

import pytest
import torch
from torch.autograd import gradgradcheck

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes._triton import backend, triton
from autograd_cookbook.recipes.triton_kernel import LARGEST_BLOCK, TritonSoftmaxGradient, triton_softmax
from tests.support import assert_passes_on_the_interpreter, copies, expect_close, gradients

INF, NAN = float("inf"), float("nan")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda":
        assert backend("cuda") == "Triton"
    return request.param


each_device = pytest.mark.parametrize("device", DEVICES, indirect=True)


def sample(*shape, dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype).requires_grad_()


@pytest.mark.skipif(triton is None, reason="Triton is not installed")
def test_all_of_this_on_the_interpreter() -> None:
    assert_passes_on_the_interpreter(__file__)


def test_the_environment_decides_what_runs_on_a_cpu() -> None:
    wanted = "Triton's interpreter" if os.environ.get("TRITON_INTERPRET") == "1" and triton else "Python"
    assert backend("cpu") == wanted


@each_device
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        *[((3, width), -1) for width in (1, 2, 5, 16, 17)],
        ((2, 3, 4), 1),
        ((2, 3, 4), 0),
        ((7,), 0),
        ((), -1),
        ((0, 3), -1),
        ((3, 0), -1),
        ((1, LARGEST_BLOCK), -1),
        ((2, LARGEST_BLOCK + 1), -1),
    ],
    ids=str,
)
def test_any_shape_and_dimension(device, shape, dim) -> None:
    x = sample(*shape, device=device)
    expected = gradients(lambda x: torch.softmax(x, dim), copies((x,)))
    expect_close(gradients(lambda x: triton_softmax(x, dim), (x,)), expected, 1e-12)


@each_device
@pytest.mark.parametrize(
    ("dtype", "rtol"),
    # The interpreter of Triton 3.7 cuts bfloat16 off where a GPU rounds: twice the error.
    [(torch.float32, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)],
    ids=str,
)
def test_each_dtype_is_as_good_as_it_can_be(device, dtype, rtol) -> None:
    x = sample(4, 33, dtype=dtype, device=device)
    found = gradients(triton_softmax, (x,))
    assert {t.dtype for t in found} == {dtype}
    exact = gradients(lambda x: torch.softmax(x, -1), (x.detach().double().requires_grad_(),))
    expect_close([t.double() for t in found], exact, rtol)


@each_device
@pytest.mark.parametrize(
    "row",
    [
        [1.0, -INF, 2.0],
        [-INF, -INF, 2.0],
        [-INF, -INF, -INF],
        [INF, 1.0, 2.0],
        [INF, INF, -INF],
        [NAN, 1.0, 2.0],
        [1e38, -1e38, 0.0],
    ],
    ids=str,
)
def test_masked_and_infinite_logits_give_what_torch_gives(device, row) -> None:
    x = torch.tensor([row, [0.0, 1.0, 2.0]], device=device, requires_grad=True)
    expect_close(gradients(triton_softmax, (x,)), gradients(lambda x: torch.softmax(x, -1), copies((x,))), 1e-6)


@each_device
def test_a_row_whose_first_block_is_masked(device) -> None:
    x = sample(1, LARGEST_BLOCK + 3, device=device).detach()
    x[:, :LARGEST_BLOCK] = -INF
    x.requires_grad_()
    expect_close(gradients(triton_softmax, (x,)), gradients(lambda x: torch.softmax(x, -1), copies((x,))), 1e-12)


@each_device
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(lambda t: t.mT, id="transposed"),
        pytest.param(lambda t: t[::2, 1:], id="strided with an offset"),
        pytest.param(lambda t: t[:1].expand(4, -1), id="expanded"),
    ],
)
def test_each_layout_of_input_and_gradient(device, layout) -> None:
    x, upstream = sample(8, 6, device=device), sample(8, 6, device=device).detach().sin()
    results = []
    for function in (triton_softmax, lambda x: torch.softmax(x, -1)):
        y = function(layout(x))
        results.append((y.detach(), *torch.autograd.grad(y, x, layout(upstream))))
    expect_close(*results, 1e-12)


@each_device
def test_second_and_third_derivative(device) -> None:
    x = sample(2, 3, device=device)
    assert gradgradcheck(triton_softmax, x, atol=1e-6, rtol=1e-5)

    def third(softmax):
        (first,) = torch.autograd.grad(softmax(x, -1).square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
        return torch.autograd.grad(second.square().sum(), x)

    expect_close(third(triton_softmax), third(torch.softmax), 1e-11)


@each_device
def test_the_gradient_is_its_own_transpose_where_the_output_is_a_constant(device) -> None:
    output = torch.softmax(sample(2, 3, device=device).detach(), -1)
    upstream, tangent = sample(2, 3, device=device), sample(2, 3, device=device).detach().cos()
    (found,) = torch.autograd.grad(TritonSoftmaxGradient.apply(upstream, output), upstream, tangent)
    expect_close([found], [TritonSoftmaxGradient.apply(tangent, output)], 1e-14)


@each_device
def test_jacobians_by_vmap(device) -> None:
    x = sample(2, 4, device=device).detach()
    jacobian = torch.func.vmap(torch.func.jacrev(triton_softmax))(x)
    expect_close([jacobian], [torch.func.vmap(torch.func.jacrev(lambda x: torch.softmax(x, -1)))(x)], 1e-12)
    scalars = torch.func.vmap(triton_softmax)(torch.arange(3.0, device=device))
    assert scalars.tolist() == [1, 1, 1], "the mapped dimension was taken for a row"
    across = torch.func.vmap(lambda x: triton_softmax(x, 0), in_dims=1, out_dims=1)(x)
    expect_close([across], [torch.softmax(x, 0)], 1e-12)


@each_device
def test_it_compiles_whole_and_keeps_its_output(device) -> None:
    x = sample(3, 5, device=device)
    whole = torch.compile(triton_softmax, fullgraph=True, backend="aot_eager")
    expect_close(gradients(whole, (x,)), gradients(triton_softmax, (x,)), 1e-14)
    assert saved_bytes(triton_softmax, x) == x.numel() * 8


@pytest.mark.parametrize(
    ("input", "dim", "error", "message"),
    [
        (torch.arange(3), 0, TypeError, r"got torch\.int64"),
        (torch.ones(3, dtype=torch.complex64), 0, TypeError, r"got torch\.complex64"),
        (torch.ones(3), 1, IndexError, "Dimension out of range"),
    ],
)
def test_bad_input_is_named(input, dim, error, message) -> None:
    with pytest.raises(error, match=message):
        triton_softmax(input, dim)
