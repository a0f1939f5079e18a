"""Convolution: what is special beyond the catalog's own tests."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.convolution import conv1d, conv2d

small = st.integers(1, 3)


@given(
    kernel=st.tuples(small, small),
    stride=st.tuples(small, small),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(small, small),
    groups=st.integers(1, 2),
    extra=st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_gradients_agree_with_torch_for_any_geometry(kernel, stride, padding, dilation, groups, extra) -> None:
    size = [max(d * (k - 1) + 1 - 2 * p, 1) + e for k, p, d, e in zip(kernel, padding, dilation, extra, strict=True)]
    inputs = [
        torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for shape in ((2, 2 * groups, *size), (groups * 3, 2, *kernel), (groups * 3,))
    ]
    options = (stride, padding, dilation, groups)
    output, expected = conv2d(*inputs, *options), F.conv2d(*inputs, *options)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(output)
    grads = torch.autograd.grad(output, inputs, weights), torch.autograd.grad(expected, inputs, weights)
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_of_an_empty_batch_each_gradient_is_zero_and_none_is_missing() -> None:
    x, w, b = (torch.ones(shape, requires_grad=True) for shape in ((0, 2, 4, 4), (3, 2, 2, 2), (3,)))
    conv2d(x, w, b).sum().backward()
    assert torch.equal(b.grad, torch.zeros(3))
    assert torch.equal(w.grad, torch.zeros(3, 2, 2, 2))
    assert x.grad.shape == x.shape
    frozen = torch.autograd.grad(conv2d(x, w, b.detach()).sum(), w)[0]
    assert torch.equal(frozen, torch.zeros(3, 2, 2, 2))


def test_same_padding_of_an_even_kernel_puts_the_odd_zero_where_torch_does() -> None:
    x, w = torch.randn(1, 1, 5, 6, dtype=torch.float64), torch.randn(1, 1, 2, 4, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it makes a copy
        torch.testing.assert_close(conv2d(x, w, padding="same"), F.conv2d(x, w, padding="same"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"input": torch.ones(3, 5)}, RuntimeError, r"3 or 4 dimensions, got \(3, 5\)"),
        ({"input": torch.ones(1, 4, 5, 5)}, RuntimeError, "to have 3 channels, but got 4"),
        ({"weight": torch.ones(2, 3, 6, 6)}, RuntimeError, "Kernel size can't be greater"),
        ({"weight": torch.ones(2, 3, 2, 2).double()}, RuntimeError, "(?i)double"),
        ({"bias": torch.ones(3)}, RuntimeError, "2"),
        ({"stride": 0}, RuntimeError, "non-positive stride"),
        ({"stride": (1, 1, 1)}, RuntimeError, r"stride to be an int or 2 of them, got \(1, 1, 1\)"),
        ({"padding": -1}, RuntimeError, "negative padding"),
        ({"padding": "sane"}, ValueError, "'sane'"),
        ({"padding": "same", "stride": 2}, ValueError, "stride 1, got 2"),
        ({"groups": 2}, RuntimeError, "groups"),
    ],
)
def test_bad_input_is_named(arguments, error, message) -> None:
    good = {"input": torch.ones(1, 3, 5, 5), "weight": torch.ones(2, 3, 2, 2)}
    with pytest.raises(error, match=message):
        conv2d(**(good | arguments))


def test_only_the_arguments_are_kept() -> None:
    """An im2col would keep the kernel size times the input."""
    x, w = torch.ones(2, 3, 8, 8, requires_grad=True), torch.ones(4, 3, 3, 3, requires_grad=True)
    assert saved_bytes(conv2d, x, w) == 0


def test_a_frozen_weight_costs_no_gradient() -> None:
    x, w = torch.ones(1, 1, 5, requires_grad=True), torch.ones(1, 1, 2)
    conv1d(x, w).sum().backward()
    assert w.grad is None
    assert x.grad.tolist() == [[[1, 2, 2, 2, 1]]]


def test_gradients_of_an_empty_batch_can_be_differentiated() -> None:
    x = torch.randn(0, 3, 8, 8, requires_grad=True)
    w = torch.randn(4, 3, 3, 3, requires_grad=True)
    grads = torch.autograd.grad(conv2d(x, w).sum(), (x, w), create_graph=True)
    seconds = torch.autograd.grad([g.sum() for g in grads], (x, w))
    for input, grad, second in zip((x, w), grads, seconds, strict=True):
        assert grad.shape == second.shape == input.shape
        assert not grad.any()
        assert not second.any()
