"""Activations far from 0, at infinity, and with bad arguments."""

import pytest
import torch
from torch.nn import functional as F

from autograd_cookbook.activations import Swish, elu, gelu, mish, parametric_swish, selu

INF = float("inf")
PAIRS = {
    "gelu": (gelu, F.gelu),
    "mish": (mish, F.mish),
    "elu": (elu, F.elu),
    "elu, alpha": (lambda x: elu(x, 0.3), lambda x: F.elu(x, 0.3)),
    "selu": (selu, F.selu),
}
each = pytest.mark.parametrize(("ours", "theirs"), PAIRS.values(), ids=PAIRS)


@each
def test_values_and_slopes_agree_with_torch_everywhere(ours, theirs) -> None:
    grads = []
    for function in (ours, theirs):
        x = torch.linspace(-60, 60, 1001, dtype=torch.float64).requires_grad_()
        y = function(x)
        grads.append(torch.stack([y.detach(), *torch.autograd.grad(y.sum(), x)]))
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("function", [gelu, mish])
def test_limits_at_infinity(function, dtype) -> None:
    x = torch.tensor([-INF, INF, -1e4, 1e4], dtype=dtype, requires_grad=True)
    y = function(x)
    y.sum().backward()
    assert y.tolist() == [0, INF, 0, x[3].item()]
    assert x.grad.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("theirs", [F.gelu, F.mish])
def test_torch_gives_nan_there(theirs) -> None:
    """Why the recipes say that they win range; when torch has mended it, they say so no longer."""
    x = torch.tensor([-INF, INF], requires_grad=True)
    theirs(x).sum().backward()
    assert x.grad.isnan().all()


@pytest.mark.parametrize("function", [elu, selu])
def test_the_kink_has_the_slope_of_its_left_side_as_in_torch(function) -> None:
    for theirs in (function, getattr(F, function.__name__)):
        x = torch.zeros((), dtype=torch.float64, requires_grad=True)
        theirs(x).backward()
        assert x.grad.item() == pytest.approx(1.0 if function is elu else 1.7580993408473766, rel=1e-15)


def test_elu_has_no_gradient_where_the_input_is_nan() -> None:
    x = torch.tensor([float("nan")], requires_grad=True)
    elu(x).backward()
    assert x.grad.isnan().all()


def test_elu_names_a_negative_alpha() -> None:
    with pytest.raises(ValueError, match=r"alpha >= 0, got -0\.5"):
        elu(torch.ones(2), -0.5)


def test_selu_keeps_mean_and_variance() -> None:
    """What its two constants are for."""
    x = torch.randn(400_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = selu(x)
    assert abs(y.mean().item()) < 0.01
    assert y.var().item() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("beta", "message"),
    [
        (torch.ones(3, dtype=torch.float64), "beta of dtype torch.float32, got torch.float64"),
        (torch.ones(2), r"shape|size"),
        (torch.ones(5, 4, 3), r"beta of shape \(5, 4, 3\) to shape \(4, 3\)"),
    ],
)
def test_parametric_swish_names_a_beta_that_does_not_fit(beta, message) -> None:
    with pytest.raises(RuntimeError, match=message):
        parametric_swish(torch.ones(4, 3), beta)


def test_with_beta_one_it_is_silu() -> None:
    x = torch.linspace(-30, 30, 101, dtype=torch.float64, requires_grad=True)
    ours, theirs = parametric_swish(x, torch.ones((), dtype=torch.float64)), F.silu(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=0)
    grads = [torch.autograd.grad(y.sum(), x)[0] for y in (ours, theirs)]
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-15)


def test_the_module_learns_its_steepness() -> None:
    module = Swish(3, dtype=torch.float64)
    module(torch.ones(2, 3, dtype=torch.float64)).sum().backward()
    slope = torch.sigmoid(torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(module.beta.grad, 2 * slope * (1 - slope))
    assert list(module.state_dict()) == ["beta"]
    assert Swish().beta.shape == ()
