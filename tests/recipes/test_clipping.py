"""Clipping where it clips: bounds met, directions kept, what is not finite, and derivatives of clipped gradients."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from torch.nn import functional as F

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.clipping import clip_gradient_norm, clip_gradient_value, clipped_linear
from autograd_cookbook.recipes.hooks import clip_gradient
from tests.support import normal

SURVIVORS = {
    "ClipGradientValueFunction.backward: ctx.clip_value > torch.finfo(grad_output.dtype).max -> ctx.clip_value >= "
    "torch.finfo(grad_output.dtype).max": ("a bound that is the largest number clips nothing, either way"),
    "ClippedLinearFunction.backward: {1 -> -1} / larger": "hypot squares it",
    "ClippedLinearFunction.backward: scale_input.clamp(min={1 -> 2})": "a scale cancels: any lower limit does",
    "norm_parts: 1 -> 2": "a scale cancels; this one stands where the largest element is 0 or infinite",
    "nonzero: 1 -> 2": "a norm of 0 is within the bound, and its quotient not taken",
    **dict.fromkeys(
        [
            "shrunk: norm * scale <= max_norm -> norm * scale < max_norm",
            "ClippedLinearFunction.backward: norm * norm_input * (scale * scale_input) <= ctx.max_norm"
            " -> norm * norm_input * (scale * scale_input) < ctx.max_norm",
        ],
        "at the bound itself the factor is 1",
    ),
    "shares: max_norm / second -> max_norm": "subnormal quotients, which a CPU keeps, have digits enough for the tests",
    "shares: 256.0 -> 257.0": "any number will do that is not small",
    "shares: 2.0 -> -2.0": "a sign that both shares have, and their product has not",
}

INF, NAN = float("inf"), float("nan")


def through(function, grad_output, *options) -> torch.Tensor:
    """What comes out of backward if ``grad_output`` goes in."""
    x = torch.zeros_like(grad_output, requires_grad=True)
    return torch.autograd.grad(function(x, *options), x, grad_output)[0]


def test_values_are_clipped_to_both_bounds() -> None:
    grad = through(clip_gradient_value, torch.tensor([-9.0, -2.0, -0.5, 0.0, 1.5, 2.0, INF, -INF]), 2.0)
    assert grad.tolist() == [-2.0, -2.0, -0.5, 0.0, 1.5, 2.0, 2.0, -2.0]


def test_values_are_clipped_as_torch_clips_them_after_backward() -> None:
    given = torch.tensor([INF, NAN, -7.0, 0.1])
    parameter = nn.Parameter(torch.zeros(4))
    parameter.grad = given.clone()
    nn.utils.clip_grad_value_([parameter], 0.5)
    torch.testing.assert_close(through(clip_gradient_value, given, 0.5), parameter.grad, equal_nan=True)


@pytest.mark.parametrize("bound", [1e6, INF])
def test_a_bound_that_the_dtype_lacks_clips_nothing(bound) -> None:
    grad = torch.tensor([INF, 6e4, -1.0], dtype=torch.float16)
    assert torch.equal(through(clip_gradient_value, grad, bound), grad)


def test_values_of_complex_numbers_have_no_order() -> None:
    with pytest.raises(TypeError, match=r"got torch\.complex64"):
        clip_gradient_value(torch.zeros(1, dtype=torch.complex64), 1.0)


@pytest.mark.parametrize("function", [clip_gradient, clip_gradient_norm])
def test_a_large_gradient_keeps_its_direction(function) -> None:
    grad = torch.tensor([[3.0, 4.0], [0.0, -12.0]], dtype=torch.float64)
    torch.testing.assert_close(through(function, grad, 6.5), grad / 2)


@pytest.mark.parametrize("function", [clip_gradient, clip_gradient_norm])
def test_a_gradient_within_the_bound_is_the_same_to_the_bit(function) -> None:
    grad = torch.tensor([0.1, 0.7, -1 / 3])
    assert torch.equal(through(function, grad, 0.79), grad)
    assert torch.equal(through(function, torch.tensor([3.0, 4.0]), 5.0), torch.tensor([3.0, 4.0]))


@pytest.mark.parametrize(
    ("dim", "norms"),
    [(0, [[1, 1, 1]]), (1, [[1], [0.5]]), (-1, [[1], [0.5]]), ((0, 1), [[1]]), (None, [[1]]), ((), [[1]])],
)
def test_each_group_has_its_own_norm(dim, norms) -> None:
    grad = torch.tensor([[30.0, -40.0, 8.0], [0.3, 0.4, 0.0]], dtype=torch.float64)
    clipped = through(clip_gradient_norm, grad, 1.0, dim)
    dims = (0, 1) if dim in (None, ()) else dim
    expected = torch.tensor(norms, dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.vector_norm(clipped, dim=dims, keepdim=True), expected)
    torch.testing.assert_close(clipped, grad * (expected / torch.linalg.vector_norm(grad, dim=dims, keepdim=True)))


@pytest.mark.parametrize("function", [clip_gradient, clip_gradient_norm])
@pytest.mark.parametrize(
    ("dtype", "size", "count", "rtol"),
    [
        (torch.float16, 1e4, 100, 1e-3),
        (torch.bfloat16, 1e25, 4, 1e-2),
        (torch.float32, 1e25, 4, 1e-6),
        (torch.float32, 3e38, 400, 1e-4),
        (torch.float64, 1e200, 4, 1e-15),
        (torch.complex64, 1e25, 4, 1e-6),
    ],
)
def test_a_norm_that_overflows_is_clipped_and_not_zero(function, dtype, size, count, rtol) -> None:
    """As it is if max_norm / norm is 0, which is what torch's own clipping multiplies with."""
    grad = torch.full((count,), size, dtype=dtype)
    assert torch.linalg.vector_norm(grad).isinf()
    clipped = through(function, grad, 2.0)
    assert clipped.dtype is dtype
    torch.testing.assert_close(clipped, torch.full_like(grad, 2 / math.sqrt(count)), rtol=rtol, atol=0)


@pytest.mark.parametrize("size", [1e-30, 1e-45])
def test_a_norm_that_underflows_clips_nothing(size) -> None:
    grad = torch.full((4,), size)
    assert torch.equal(through(clip_gradient_norm, grad, 1.0), grad)


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_what_is_not_finite_is_as_in_torch_and_leaves_other_groups_alone(bad) -> None:
    """Loud: whoever looks for an overflow, as a GradScaler does, must find it."""
    clipped = through(clip_gradient_norm, torch.tensor([[bad, 1.0], [30.0, 40.0]]), 5.0, 1)
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([bad, 1.0])
    nn.utils.clip_grad_norm_([parameter], 5.0)
    assert clipped[0, 0].isnan()
    torch.testing.assert_close(clipped[0], parameter.grad, equal_nan=True)
    assert clipped[1].tolist() == [3.0, 4.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex128])
def test_zeros_stay_zeros(dtype) -> None:
    zeros = torch.zeros(2, 3, dtype=dtype)
    assert torch.equal(through(clip_gradient_norm, zeros, 1.0, 1), zeros)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_nothing_has_a_norm_of_zero(dtype) -> None:
    nothing = torch.zeros(0, 3, dtype=dtype)
    assert torch.equal(through(clip_gradient_norm, nothing, 1.0, 0), nothing)


@pytest.mark.parametrize("size", [2.0, 0.2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("dim", [None, 0])
def test_the_derivative_of_a_clipped_gradient(size, dtype, dim) -> None:
    """Second order: the gradient that arrives may depend on parameters itself."""
    torch.manual_seed(0)
    grad = (size * torch.randn(3, 2, dtype=dtype)).requires_grad_()

    def clipped(grad):
        x = torch.zeros_like(grad).requires_grad_()
        return torch.autograd.grad(clip_gradient_norm(x, 1.0, dim), x, grad, create_graph=True)[0]

    assert gradcheck(clipped, (grad,), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_derivative_where_one_element_is_all_of_it(dtype) -> None:
    grad = torch.tensor([0.0, 3.0, 0.0], dtype=dtype, requires_grad=True)
    x = torch.zeros(3, dtype=dtype, requires_grad=True)
    (clipped,) = torch.autograd.grad(clip_gradient_norm(x, 1.0), x, grad, create_graph=True)
    (second,) = torch.autograd.grad(clipped.abs().sum() + clipped.real.sum(), grad)
    expected = torch.tensor([1 / 3, 0.0, 1 / 3], dtype=dtype)
    torch.testing.assert_close(second, expected, rtol=0, atol=1e-12)


def test_the_derivative_at_a_gradient_of_zero() -> None:
    grad = torch.zeros(3, requires_grad=True)
    x = torch.zeros(3, requires_grad=True)
    (clipped,) = torch.autograd.grad(clip_gradient_norm(x, 1.0), x, grad, create_graph=True)
    assert torch.autograd.grad(clipped.sum(), grad)[0].tolist() == [1.0, 1.0, 1.0]


def test_under_vmap_each_example_has_its_own_norm() -> None:
    scales = torch.tensor([[0.5], [10.0]])
    grads = torch.func.vmap(torch.func.grad(lambda x, s: (clip_gradient_norm(x, 1.0) * s).sum()))(
        torch.zeros(2, 4), scales.expand(2, 4)
    )
    torch.testing.assert_close(grads, torch.full((2, 4), 0.5))


@pytest.mark.parametrize("function", [clip_gradient_value, clip_gradient_norm])
def test_nothing_is_copied_and_nothing_kept(function) -> None:
    x = torch.ones(1000, requires_grad=True)
    assert function(x, 1.0).data_ptr() == x.data_ptr()
    assert saved_bytes(function, x, 1.0) == 0


@pytest.mark.parametrize("bound", [0, -1.0, NAN])
def test_a_bound_is_positive(bound) -> None:
    x, w = torch.ones(2, 3), torch.ones(4, 3)
    with pytest.raises(ValueError, match=f"clip_value > 0, got {bound}"):
        clip_gradient_value(x, bound)
    with pytest.raises(ValueError, match=f"max_norm > 0, got {bound}"):
        clip_gradient_norm(x, bound)
    with pytest.raises(ValueError, match=f"max_norm > 0, got {bound}"):
        clipped_linear(x, w, None, bound)


def test_a_dimension_is_one_that_there_is() -> None:
    with pytest.raises(IndexError, match="got 2"):
        clip_gradient_norm(torch.ones(2, 3), 1.0, 2)
    with pytest.raises(RuntimeError, match="dim 1 appears multiple"):
        clip_gradient_norm(torch.ones(2, 3), 1.0, (1, -1))


def layer(bias: bool, dtype: torch.dtype = torch.float64, shape: tuple[int, ...] = (6,)) -> list[torch.Tensor | None]:
    torch.manual_seed(1)
    x = torch.randn(*shape, 3, dtype=dtype) * torch.rand(*shape, 1).to(dtype) * 3
    w, b = torch.randn(2, 3, dtype=dtype), torch.randn(2, dtype=dtype)
    return [t.requires_grad_() if t is not None else None for t in (x, w, b if bias else None)]


def example_by_example(x, w, b, bound):
    """Gradients of the parameters: one backward for each example, clipped, and summed."""
    parameters = [p for p in (w, b) if p is not None]
    total, clipped = [torch.zeros_like(p) for p in parameters], 0
    for row in x.reshape(-1, 3):
        grads = torch.autograd.grad(F.linear(row, w, b).abs().square().sum(), parameters)
        norm = torch.cat([g.reshape(-1) for g in grads]).norm()
        clipped += bool(norm > bound)
        total = [t + g * min(1.0, bound / norm.item()) for t, g in zip(total, grads, strict=True)]
    return total, clipped


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(6,), (2, 3), ()])
def test_each_example_is_clipped_by_its_own_norm(bias, dtype, shape) -> None:
    x, w, b = layer(bias, dtype, shape)
    bound = 4.0 if shape else 0.5
    expected, clipped = example_by_example(x, w, b, bound)
    assert 0 < clipped < 6, "the test would say nothing"
    grads = torch.autograd.grad(
        clipped_linear(x, w, b, bound).abs().square().sum(), [p for p in (w, b) if p is not None]
    )
    torch.testing.assert_close(list(grads), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_gradient_of_the_input_is_not_clipped(dtype) -> None:
    x, w, b = layer(True, dtype)
    grads = [torch.autograd.grad(1e3 * y.real.sum(), x)[0] for y in (clipped_linear(x, w, b, 0.1), F.linear(x, w, b))]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("frozen", [1, 2])
def test_a_frozen_parameter_changes_nothing_for_the_other(frozen) -> None:
    x, w, b = layer(True)
    other = (w, b)[2 - frozen]
    both = torch.autograd.grad(clipped_linear(x, w, b, 1.0).square().sum(), other)[0]
    (w, b)[frozen - 1].requires_grad_(False)
    assert torch.equal(torch.autograd.grad(clipped_linear(x, w, b, 1.0).square().sum(), other)[0], both)


@pytest.mark.parametrize("bias", [True, False])
def test_clipped_linear_can_be_differentiated_twice(bias) -> None:
    x, w, b = layer(bias)
    parameters = [p for p in (w, b) if p is not None]

    # The clipped gradient is no derivative of anything, so it is taken as a function and its own derivative checked.
    def of_inputs(x):
        loss = clipped_linear(x, w, b, 4.0).square().sum()
        return torch.autograd.grad(loss, parameters, create_graph=True)

    assert gradcheck(of_inputs, (x,), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "size", "rtol"), [(torch.float16, 3e4, 5e-3), (torch.float32, 1e30, 1e-6), (torch.float64, 1e200, 1e-12)]
)
def test_examples_of_any_size_are_clipped_to_the_bound(dtype, size, rtol) -> None:
    x = torch.tensor([[size, size], [0.0, 0.1]], dtype=dtype)
    w = torch.zeros(1, 2, dtype=dtype, requires_grad=True)
    clipped_linear(x, w, None, 1.0).backward(torch.tensor([[size], [1.0]], dtype=dtype))
    expected = torch.tensor([[0.5**0.5, 0.5**0.5 + 0.1]], dtype=dtype)
    torch.testing.assert_close(w.grad, expected, rtol=rtol, atol=0)


def test_the_bias_counts_where_the_input_is_next_to_nothing() -> None:
    x = torch.full((1, 2), 1e-45)
    w, b = torch.zeros(1, 2, requires_grad=True), torch.zeros(1, requires_grad=True)
    clipped_linear(x, w, b, 3.0).backward(torch.tensor([[12.0]]))
    assert b.grad.item() == 3
    assert w.grad.isfinite().all()


def test_an_example_that_is_not_finite_is_not_hidden() -> None:
    w = torch.zeros(1, 2, requires_grad=True)
    clipped_linear(torch.tensor([[INF, 0.0], [1.0, 1.0]]), w, None, 1.0).backward(torch.ones(2, 1))
    assert w.grad[0, 0].isnan()


def test_no_gradient_of_an_example_is_formed() -> None:
    x, w, b = torch.randn(500, 40), torch.randn(40, 40, requires_grad=True), torch.randn(40, requires_grad=True)
    peak = peak_bytes(lambda: clipped_linear(x, w, b, 1.0).sum().backward())
    assert peak < 4 * x.untyped_storage().nbytes()
    assert 500 * w.untyped_storage().nbytes() > 10 * peak
    assert saved_bytes(clipped_linear, x, w, b, 1.0) == 0


@pytest.mark.parametrize("bias", [torch.zeros(3), torch.zeros(1), torch.zeros(2, 1)])
def test_a_bias_has_one_number_an_output(bias) -> None:
    with pytest.raises(RuntimeError, match=r"expected bias of shape \(2,\), got"):
        clipped_linear(torch.ones(4, 3), torch.ones(2, 3), bias, 1.0)


def test_a_bias_has_the_dtype_of_the_weight() -> None:
    with pytest.raises(RuntimeError, match=r"dtype torch\.float32, got torch\.float64"):
        clipped_linear(torch.ones(4, 3), torch.ones(2, 3), torch.zeros(2, dtype=torch.float64), 1.0)


def test_shapes_that_do_not_fit_are_refused_by_torch() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        clipped_linear(torch.ones(4, 3), torch.ones(2, 5), None, 1.0)


def test_a_bound_far_below_or_above_factors_of_far_sizes() -> None:
    """Where what is scaled and the result are numbers of float32: on the way nothing overflows or vanishes."""
    torch.manual_seed(0)
    examples, grads = torch.randn(3, 4), torch.randn(3, 2)
    sizes = (1e-30, 1e-20, 1e-10, 1.0, 1e10, 1e20, 1e30)
    tried = 0
    for of_input, of_grad, bound in itertools.product(sizes, sizes, (1e-20, 1e-10, 0.5, 1.5, 1e10, 1e20, 1e30)):
        x, g = of_input * examples, of_grad * grads
        norm = (g.double().norm(dim=1) * x.double().norm(dim=1)).unsqueeze(1)
        scaled = g.double() * (bound / norm).clamp(max=1)
        expected = scaled.mT @ x.double()
        if not all(1e-36 < t.abs().max() < 1e38 for t in (scaled, expected)):
            continue
        weight = torch.zeros(2, 4, requires_grad=True)
        clipped_linear(x, weight, None, bound).backward(g)
        error = (weight.grad.double() - expected).abs().max() / expected.abs().max()
        assert error < 1e-5, (of_input, of_grad, bound)
        tried += 1
    assert tried > 150


# Sizes of examples and of gradients, and bounds.
CLIPPED = {
    torch.float16: ([1e-4, 1e-2, 1, 1e2, 3e3], [1e-2, 1, 1e3]),
    torch.bfloat16: ([1e-36, 1e-20, 1, 1e20, 1e36], [1e-30, 1, 1e30]),
    torch.float32: ([1e-36, 1e-20, 1, 1e20, 1e36, 1e38], [1e-30, 1, 1e30]),
    torch.float64: ([1e-150, 1, 1e150], [1e-100, 1, 1e100]),
}


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("dtype", CLIPPED, ids=str)
def test_clipped_parameters_at_any_three_sizes(dtype: torch.dtype, bias: bool) -> None:
    """A gradient that is brought down may be less than the dtype has, and its product with a large example not."""
    sizes, bounds = CLIPPED[dtype]
    info, checked = torch.finfo(dtype), 0
    for size, of_grad, max_norm in itertools.product(sizes, sizes, bounds):
        x, grad = (normal(6, 8) * size).to(dtype), (normal(6, 4, seed=1) * of_grad).to(dtype)
        parameters = [torch.zeros(4, 8, dtype=dtype, requires_grad=True)]
        parameters += [torch.zeros(4, dtype=dtype, requires_grad=True)] if bias else []
        output = clipped_linear(x, parameters[0], parameters[1] if bias else None, max_norm)
        found = torch.autograd.grad(output, parameters, grad)
        examples = torch.cat([x.double(), torch.ones(6, int(bias))], 1)
        factors = max_norm / grad.double().norm(dim=1) / examples.norm(dim=1)
        exact = (grad.double() * factors.clamp(max=1).unsqueeze(1)).T @ examples
        for mine, true in zip(found, exact.split([8, 1][: 1 + bias], 1), strict=True):
            largest = float(true.abs().max())
            if info.smallest_normal < largest < info.max / 2:
                checked += 1
                off = float((mine.double().reshape(true.shape) - true).abs().max()) / largest
                assert off < 32 * info.eps, (size, of_grad, max_norm, off)
    assert checked > len(sizes)


@pytest.mark.parametrize("bound", [1e-44, 1e-38, 1e-30, 1e-12])
@pytest.mark.parametrize("size", [1e-38, 1e-20, 1.0, 1e20, 1e38])
def test_a_tiny_bound_is_met_by_gradients_of_any_size(size: float, bound: float) -> None:
    """The factor alone may be less than any number of float32."""
    grad = size * torch.tensor([0.6, 0.3, -0.8])
    exact = grad.double() * min(bound / float(grad.double().norm()), 1.0)
    clipped = through(clip_gradient_norm, grad, bound)
    spacing = torch.finfo(torch.float32).smallest_normal * torch.finfo(torch.float32).eps
    torch.testing.assert_close(clipped.double(), exact, rtol=1e-5, atol=2 * spacing)


@pytest.mark.parametrize("zero", ["example", "gradient"])
def test_an_example_without_a_gradient_has_a_second_derivative(zero: str) -> None:
    x, grad = normal(3, 4), normal(3, 2, seed=1)
    (x if zero == "example" else grad)[0] = 0
    weight = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)

    def clipped(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(clipped_linear(x, weight, None, 0.5), weight, grad, create_graph=True)[0]

    leaves = x.requires_grad_(), grad.requires_grad_()
    for found in torch.autograd.grad(clipped(*leaves).square().sum(), leaves):
        assert found.isfinite().all()
