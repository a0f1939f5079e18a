"""Gradients that are stopped, scaled and reversed: exact factors, what shares memory, and what is refused."""

import pytest
import torch
from torch import nn

from autograd_cookbook.auditing import held_bytes, peak_bytes, saved_bytes
from autograd_cookbook.recipes.reversal import reverse_gradient, scale_gradient, stop_gradient

INF = float("inf")
EVEN = torch.tensor([True, False, True])


def three() -> torch.Tensor:
    return torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("function", "argument", "factors"),
    [
        (reverse_gradient, 1.0, [-1.0, -1.0, -1.0]),
        (reverse_gradient, 0.25, [-0.25, -0.25, -0.25]),
        (reverse_gradient, 0, [0.0, 0.0, 0.0]),
        (scale_gradient, 0.25, [0.25, 0.25, 0.25]),
        (scale_gradient, -3, [-3.0, -3.0, -3.0]),
        (stop_gradient, EVEN, [0.0, 1.0, 0.0]),
        (stop_gradient, ~EVEN, [1.0, 0.0, 1.0]),
    ],
)
def test_the_value_is_the_input_and_the_gradient_has_its_factor(function, argument, factors) -> None:
    x = three()
    y = function(x, argument)
    assert torch.equal(y, x)
    (y * torch.tensor([5.0, 7.0, 11.0], dtype=torch.float64)).sum().backward()
    assert x.grad.tolist() == [5 * factors[0], 7 * factors[1], 11 * factors[2]]


def test_reversal_is_full_by_default() -> None:
    x = three()
    (2 * reverse_gradient(x)).sum().backward()
    assert x.grad.tolist() == [-2.0] * 3


@pytest.mark.parametrize(("strength", "second"), [(1.0, 1.0), (0.5, 0.25)])
def test_a_second_derivative_is_multiplied_by_the_square(strength, second) -> None:
    """So that a reversal of strength 1 turns the gradient around and leaves the Hessian as it is."""
    x = three()
    (first,) = torch.autograd.grad(reverse_gradient(x, strength).sin().sum(), x, create_graph=True)
    torch.testing.assert_close(first, -strength * x.cos())
    torch.testing.assert_close(torch.autograd.grad(first.sum(), x)[0], second * -x.sin())


def test_a_second_derivative_through_a_curve_passes_the_reversal_once_as_well() -> None:
    x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(reverse_gradient(x.square()).sin(), x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    twice, once = -x.square().sin() * (2 * x).square(), -x.square().cos() * 2
    torch.testing.assert_close(second, (twice + once).detach())


@pytest.mark.parametrize("function", [reverse_gradient, scale_gradient, stop_gradient])
def test_nothing_is_copied_and_nothing_kept(function) -> None:
    x = torch.ones(10_000, requires_grad=True)
    argument = torch.zeros(10_000, dtype=torch.bool) if function is stop_gradient else 0.5
    assert function(x, argument).data_ptr() == x.data_ptr()
    assert saved_bytes(function, x, argument) == 0
    assert peak_bytes(function, x, argument) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64])
def test_dtypes_are_kept_and_values_exact(dtype) -> None:
    x = torch.tensor([0.1, 1e4], dtype=dtype, requires_grad=True)
    for function, argument in ((reverse_gradient, 0.5), (scale_gradient, 3), (stop_gradient, EVEN[:2])):
        y = function(x, argument)
        assert torch.equal(y, x)
        assert torch.autograd.grad(y.abs().sum(), x)[0].dtype is dtype


def test_infinite_values_and_gradients_pass() -> None:
    x = torch.tensor([INF, -INF, 1.0], requires_grad=True)
    y = reverse_gradient(x)
    y.backward(torch.tensor([1.0, INF, -INF]))
    assert y.tolist() == [INF, -INF, 1.0]
    assert x.grad.tolist() == [-1.0, -INF, INF]


def test_a_stopped_gradient_is_zero_even_if_it_is_not_finite() -> None:
    x = three()
    stop_gradient(x, EVEN).backward(torch.tensor([INF, 1.0, float("nan")], dtype=torch.float64))
    assert x.grad.tolist() == [0.0, 1.0, 0.0]


def test_without_a_mask_stopping_is_detaching() -> None:
    x = three()
    y = stop_gradient(x)
    assert not y.requires_grad
    assert y.data_ptr() == x.data_ptr()


def test_detaching_lets_go_of_what_came_before() -> None:
    """A mask of True everywhere has the same gradient, and keeps the graph."""
    x = torch.randn(10_000, requires_grad=True)
    mask = torch.ones(1, dtype=torch.bool)
    nbytes = x.untyped_storage().nbytes()
    assert held_bytes(lambda: stop_gradient(x.exp().exp())) == nbytes
    assert held_bytes(lambda: stop_gradient(x.exp().exp(), mask)) == 2 * nbytes


def test_a_mask_broadcasts() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    stop_gradient(x, torch.tensor([[True], [False]])).sum().backward()
    assert x.grad.tolist() == [[0.0] * 3, [1.0] * 3]


@pytest.mark.parametrize("mask", [torch.ones(3), torch.ones(3, dtype=torch.int64)])
def test_a_mask_is_bool(mask) -> None:
    with pytest.raises(TypeError, match=f"got {mask.dtype}"):
        stop_gradient(three(), mask)


@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (2,), (0,)])
def test_a_mask_does_not_enlarge_the_input(shape) -> None:
    with pytest.raises(RuntimeError):
        stop_gradient(three(), torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("strength", [-1.0, -1e-9, float("nan")])
def test_a_negative_strength_would_not_reverse(strength) -> None:
    with pytest.raises(ValueError, match=f"strength >= 0, got {strength}"):
        reverse_gradient(three(), strength)


@pytest.mark.parametrize(("function", "name"), [(reverse_gradient, "strength"), (scale_gradient, "scale")])
@pytest.mark.parametrize("value", [torch.tensor(1.0), None, "1"])
def test_a_factor_is_a_number(function, name, value) -> None:
    with pytest.raises(TypeError, match=f"expected {name} to be an int or float, got {type(value).__name__}"):
        function(three(), value)


def test_an_input_without_grad_stays_without() -> None:
    x = torch.ones(2)
    for y in (reverse_gradient(x), scale_gradient(x, 2.0), stop_gradient(x, EVEN[:2])):
        assert torch.equal(y, x)
        assert not y.requires_grad


def test_writing_into_the_output_is_refused_and_not_wrong() -> None:
    hidden = three() * 2
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        nn.functional.relu(reverse_gradient(hidden), inplace=True)


def test_a_schedule_compiles_twice_and_no_more() -> None:
    """Once for the first number as a constant, and once for any other."""
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    reversed_ = torch.compile(lambda x, strength: 2 * reverse_gradient(x, strength), fullgraph=True, backend=count)
    for strength in (0.0, 0.1, 0.7, 1.0):
        x = three()
        reversed_(x, strength).sum().backward()
        assert x.grad.tolist() == [-2 * strength] * 3
    assert len(graphs) == 2
