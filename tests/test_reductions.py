"""Reductions: what is special beyond the catalog's own tests."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from autograd_cookbook import reductions
from autograd_cookbook.audit import saved_bytes

INF = float("inf")
NAMES = ["sum", "mean", "amax", "logsumexp"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("dim", "error", "message"),
    [
        (3, IndexError, r"\[-3, 2\], but got 3"),
        (-4, IndexError, "but got -4"),
        ((0, 0), RuntimeError, "dim 0 appears multiple"),
        ((1, -2), RuntimeError, "dim 1 appears multiple"),
    ],
)
def test_a_bad_dim_raises_what_torch_raises(name, dim, error, message) -> None:
    x = torch.randn(2, 3, 4)
    with pytest.raises(error, match=message):
        getattr(reductions, name)(x, dim)
    with pytest.raises(error):
        getattr(torch, name)(x, dim)


def test_the_maximum_of_nothing_raises() -> None:
    with pytest.raises(IndexError, match="non-zero size"):
        reductions.amax(torch.ones(0, 3), 0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_integers(dtype) -> None:
    x = torch.ones(2, 3, dtype=dtype)
    assert reductions.sum(x, 0).dtype is torch.int64
    assert reductions.sum(x, 0).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="floating point"):
        reductions.mean(x, 0)


def test_the_mean_of_nothing_is_nan() -> None:
    x = torch.ones(0, 3, requires_grad=True)
    y = reductions.mean(x, 0)
    assert y.isnan().all()
    y.sum().backward()
    assert x.grad.shape == (0, 3)


@pytest.mark.parametrize("values", [[2.0, 2.0, 1.0], [INF, INF, 0.0], [-INF, -INF, -INF], [float("nan"), 1.0, 2.0]])
def test_ties_share_as_in_torch(values) -> None:
    grads = []
    for function in (reductions.amax, torch.amax):
        x = torch.tensor(values, requires_grad=True)
        function(x, 0).backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads, equal_nan=True)


@pytest.mark.parametrize(
    ("values", "gradient"),
    [
        ([-INF, -INF], [0.0, 0.0]),
        ([-INF, 0.0], [0.0, 1.0]),
        ([INF, 0.0], [1.0, 0.0]),
        ([INF, INF, -INF], [0.5, 0.5, 0.0]),
        ([1000.0, 1000.0], [0.5, 0.5]),
        ([-1000.0, -1000.0], [0.5, 0.5]),
    ],
)
def test_logsumexp_has_finite_gradients_at_infinity(values, gradient) -> None:
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    y = reductions.logsumexp(x, 0)
    assert y.item() == torch.logsumexp(x, 0).item()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    assert first.tolist() == pytest.approx(gradient, rel=1e-12)
    (second,) = torch.autograd.grad(first[0], x)
    assert second.isfinite().all(), "the second derivative is not finite"


def test_logsumexp_keeps_one_number_a_row() -> None:
    x = torch.ones(50, 20, requires_grad=True)
    assert saved_bytes(lambda x: reductions.logsumexp(x, 1), x) == 50 * 4
    assert saved_bytes(lambda x: x.exp().sum(1).log(), x) > 50 * 20 * 4


def test_a_masked_row_beside_others_passes_gradgradcheck() -> None:
    mask = torch.tensor([[0.0, 0.0, 0.0], [-INF, -INF, -INF], [0.0, -INF, 0.0]], dtype=torch.float64)
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)

    def unmasked_rows(x):
        return reductions.logsumexp(x + mask, 1)[[0, 2]]

    assert gradcheck(unmasked_rows, (x,))
    assert gradgradcheck(unmasked_rows, (x,))
