"""Broadcasting: what is special beyond the catalog's own tests."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.broadcasting import bias_add, multiply, scaled_sigmoid, sum_to_shape


@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=3, min_side=0))
def test_multiply_agrees_with_torch_on_any_two_shapes(shapes) -> None:
    pair = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes.input_shapes]
    weights = torch.randn(shapes.result_shape, dtype=torch.float64)
    ours = torch.autograd.grad(multiply(*pair), pair, weights)
    theirs = torch.autograd.grad(torch.mul(*pair), pair, weights)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


@given(mutually_broadcastable_shapes(num_shapes=1, base_shape=(2, 1, 3), max_dims=3, max_side=3), st.data())
def test_sum_to_shape_is_the_transpose_of_expand(shapes, data) -> None:
    """<expand(a), b> = <a, sum_to_shape(b)>, for any a and b."""
    (shape,) = shapes.input_shapes
    a = torch.randn(shape, dtype=torch.float64)
    b = torch.randn(torch.broadcast_shapes(shape, (2, 1, 3)), dtype=torch.float64)
    torch.testing.assert_close((a.expand_as(b) * b).sum(), (a * sum_to_shape(b, shape)).sum())


@pytest.mark.parametrize(("shape", "target"), [((2, 3), (2,)), ((3,), (2, 3)), ((2, 3), (3, 3)), ((1,), (2,))])
def test_sum_to_shape_names_shapes_that_do_not_fit(shape, target) -> None:
    with pytest.raises(RuntimeError, match=rf"shape \({shape[0]}.*to shape \({target[0]}"):
        sum_to_shape(torch.ones(shape), target)
    with pytest.raises(RuntimeError):
        torch.ones(shape).sum_to_size(target)


@pytest.mark.parametrize(
    ("dtypes"),
    [(torch.float32, torch.float64), (torch.float64, torch.complex128), (torch.bfloat16, torch.float32)],
    ids=str,
)
def test_multiply_promotes_and_returns_gradients_of_each_dtype(dtypes) -> None:
    pair = [torch.ones(2, dtype=dtype, requires_grad=True) for dtype in dtypes]
    product = multiply(*pair)
    assert product.dtype is torch.mul(*pair).dtype
    weights = torch.full_like(product, 0.5)
    for g, e, x in zip(
        torch.autograd.grad(product, pair, weights),
        torch.autograd.grad(torch.mul(*pair), pair, weights),
        pair,
        strict=True,
    ):
        assert g.dtype is x.dtype
        assert torch.equal(g, e)


def test_multiply_by_integers_gives_them_no_gradient() -> None:
    x = torch.ones(3, requires_grad=True)
    multiply(x, torch.tensor([1, 2, 3])).sum().backward()
    assert x.grad.tolist() == [1, 2, 3]


def test_multiply_refuses_what_torch_refuses() -> None:
    with pytest.raises(RuntimeError, match="size of tensor a"):
        multiply(torch.ones(2), torch.ones(3))


@pytest.mark.parametrize(
    ("bias", "dim", "error", "message"),
    [
        (torch.ones(4), 1, RuntimeError, r"\(3,\) for dim 1.*got \(4,\)"),
        (torch.ones(3, 1), 1, RuntimeError, r"got \(3, 1\)"),
        (torch.ones(3), 2, IndexError, "got 2"),
        (torch.ones(3), -3, IndexError, "got -3"),
        (torch.ones(3, dtype=torch.float64), 1, RuntimeError, "float64"),
    ],
)
def test_bias_add_names_what_does_not_fit(bias, dim, error, message) -> None:
    with pytest.raises(error, match=message):
        bias_add(torch.ones(2, 3), bias, dim)


def test_nothing_is_saved_beyond_the_arguments() -> None:
    image, bias = torch.ones(2, 3, 4, requires_grad=True), torch.ones(3, requires_grad=True)
    assert saved_bytes(bias_add, image, bias) == 0
    assert saved_bytes(multiply, image, torch.ones(4, requires_grad=True)) == 0


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float64), (torch.float64, torch.float32)], ids=str)
def test_scaled_sigmoid_promotes_as_a_product_does(dtypes) -> None:
    x, scale = (torch.randn(3, dtype=dtype, requires_grad=True) for dtype in dtypes)
    y = scaled_sigmoid(x, scale)
    y.sum().backward()
    assert y.dtype is torch.float64
    assert (x.grad.dtype, scale.grad.dtype) == dtypes


@pytest.mark.parametrize("place", [0, 1])
def test_scaled_sigmoid_names_a_complex_argument(place) -> None:
    args = [torch.ones(2), torch.ones(2)]
    args[place] = args[place].to(torch.complex64)
    with pytest.raises(TypeError, match=r"expected real tensors, got .*complex64"):
        scaled_sigmoid(*args)
    # Why: torch's own function is NaN there.
    assert torch.sigmoid(torch.tensor(-90 + 1j)).isnan()


def test_scaled_sigmoid_in_half_precision_has_the_digits_of_its_arguments() -> None:
    x = torch.tensor([-3.3, -5.1, -7.7], dtype=torch.bfloat16, requires_grad=True)
    scale = torch.tensor(1.3, dtype=torch.bfloat16, requires_grad=True)
    for tensors in ((x, scale), (x.detach().double().requires_grad_(), scale.detach().double().requires_grad_())):
        y = scaled_sigmoid(*tensors)
        results = [y, *torch.autograd.grad(y.sum(), tensors)]
        if tensors[0] is x:
            rounded = results
    for ours, exact in zip(rounded, results, strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=2**-8, atol=0)
