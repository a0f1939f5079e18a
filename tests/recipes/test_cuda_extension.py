"""The activation with kernels in C++ and CUDA: what is its own beside what all native operators share."""

import math

import pytest
import torch

from autograd_cookbook.recipes.cuda_extension import swish
from tests.recipes.native_operators import OPS, SWISH, each_device, exactly, sample
from tests.support import expect_close, gradients


@each_device
@pytest.mark.parametrize("count", [0, 1, 31, 33, 257, 32_768, 32_769, 100_003])
def test_swish_of_any_number_of_elements(device, count) -> None:
    args = sample(SWISH, (count,), device=device)
    expect_close(gradients(swish, args), exactly(SWISH, args), 1e-12)


@each_device
def test_large_half_precision_inputs_of_swish_do_not_overflow(device) -> None:
    x = torch.tensor([-60000.0, -300.0, 300.0, 60000.0], dtype=torch.float16, device=device, requires_grad=True)
    beta = torch.tensor(1.0, dtype=torch.float16, device=device, requires_grad=True)
    swish(x, beta).sum().backward()
    assert x.grad.tolist() == [0, 0, 1, 1]
    assert beta.grad.item() == 0


@each_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_swish_is_no_zero_where_the_dtype_has_smaller_numbers(device, dtype) -> None:
    """exp(90) overflows in float32, and the sigmoid of -90 does not underflow."""
    x, beta = (torch.tensor(value, dtype=dtype, device=device) for value in (-90.0, 1.0))
    assert swish(x, beta).item() == pytest.approx(-90 * math.exp(-90), rel=1e-2)


def test_the_bare_operator_has_no_gradient_and_zero_for_torch_func(built) -> None:
    """What the page of pitfalls says about kernels in C++ on torch 2.13; the functions above are there for that."""
    x, beta = sample(SWISH)
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        OPS.swish_forward(x, beta).sum().backward()
    assert x.grad is None
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        gradient = torch.func.grad(lambda x: OPS.swish_forward(x, beta.detach()).sum())(x.detach())
    assert not gradient.any()


@pytest.mark.parametrize(
    ("input", "beta", "error", "message"),
    [
        pytest.param(torch.ones(2), torch.ones(2), RuntimeError, r"got shape \(2,\)", id="beta is no scalar"),
        pytest.param(torch.ones(2), torch.tensor(1.0).double(), TypeError, "float32, got torch.float64", id="dtypes"),
        pytest.param(torch.ones(2), 1.0, TypeError, "got float", id="beta is a number"),
        pytest.param([1.0], torch.tensor(1.0), TypeError, "got list", id="input is a list"),
        pytest.param(torch.ones(2).long(), torch.tensor(1), TypeError, r"got torch\.int64", id="integers"),
        pytest.param(torch.ones(2), torch.tensor(1.0, device="meta"), RuntimeError, "on cpu, got meta", id="device"),
    ],
)
def test_bad_input_of_swish_is_named(input, beta, error, message) -> None:
    with pytest.raises(error, match=message):
        swish(input, beta)
