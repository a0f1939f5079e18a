"""What compiles whole, and how it is found out."""

import pytest
import torch
from torch.autograd import Function

from autograd_cookbook.audit import saved_bytes
from autograd_cookbook.compilation import graph_breaks, huber


def _branches(x):
    if x.sum() > 0:
        return x * 2
    return x


def test_a_whole_graph_has_no_breaks() -> None:
    assert graph_breaks(huber, torch.ones(3, requires_grad=True)) == ()


def test_a_break_is_reported_with_its_line() -> None:
    (found,) = graph_breaks(_branches, torch.ones(3))
    assert "if x.sum() > 0" in found


class _BranchesInBackward(Function):
    @staticmethod
    def forward(input):
        return input * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2 if grad_output.sum() > 0 else grad_output


def test_a_frame_that_is_given_up_as_a_whole_is_no_whole_graph() -> None:
    """torch._dynamo.explain reports no break here."""

    def function(x):
        return _BranchesInBackward.apply(x)

    (found,) = graph_breaks(function, torch.ones(3, requires_grad=True))
    assert "branching" in found


@pytest.mark.parametrize("delta", [0.0, -1.0, float("nan")])
def test_delta_must_be_positive(delta) -> None:
    with pytest.raises(ValueError, match=f"delta > 0, got {delta}"):
        huber(torch.ones(2), delta)


def test_huber_keeps_nothing_but_its_input() -> None:
    assert saved_bytes(huber, torch.ones(10, requires_grad=True)) == 0


def test_the_slope_at_infinity_is_delta() -> None:
    x = torch.tensor([-float("inf"), float("inf")], requires_grad=True)
    huber(x, 2.0).sum().backward()
    assert x.grad.tolist() == [-2.0, 2.0]


def test_dynamic_shapes_do_not_recompile_a_third_time() -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(huber, fullgraph=True, backend=counter)
    for size in (3, 4, 5, 6):
        compiled(torch.ones(size, requires_grad=True))
    torch._dynamo.reset()
    assert counter.frame_count == 2  # once for 3, once for any size
