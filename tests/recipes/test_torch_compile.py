"""A loss that compiles whole, and what compiled code does to a Function."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks

from autograd_cookbook.auditing import audit, saved_bytes
from autograd_cookbook.recipes.torch_compile import huber
from tests.support import since

# What is compiled here is called with tensors that are no leaves, and the compiler looks whether they have a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


@pytest.fixture(autouse=True)
def _nothing_compiled_before():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


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


class _Square(Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output


def _compiled(function, **options):
    return torch.compile(function, backend="aot_eager", **{"fullgraph": True, **options})


def _slope(function) -> list[float]:
    """The gradient at two points of a tensor that the compiled part did not make."""
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    y = function(1 * x)
    return torch.autograd.grad(y[0] if isinstance(y, tuple) else y, x, torch.tensor([1.0, 3.0]))[0].tolist()


RIGHT = [2.0, -12.0]


class _InPlace(Function):
    @staticmethod
    def forward(x):
        x.mul_(7)
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return 7 * grad_output


def test_compiled_mark_dirty_has_the_gradient_of_the_identity() -> None:
    """Wrong, and silent, since torch 2.13; if this fails, the page on graph breaks and leaky_relu_ can be fixed."""
    assert _slope(_InPlace.apply) == [7, 21]
    assert _slope(_compiled(lambda x: _InPlace.apply(x))) == ([1, 3] if since("2.13") else [7, 21])
    assert _slope(_compiled(lambda x: _InPlace.apply(x.clone()))) == [7, 21]


def test_the_audit_finds_a_gradient_that_is_wrong_when_compiled() -> None:
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    report = audit(lambda x: _InPlace.apply(x), (x,), only=["compile"])
    assert [finding.severity for finding in report.findings] == (["error"] if since("2.13") else []), report


class _NoneOrZero(Function):
    @staticmethod
    def forward(x):
        return 2 * x, 3 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad_output, grad_other):
        return grad_output if grad_other is None else -grad_output


def test_compiled_code_sends_zeros_for_undefined_gradients() -> None:
    """In spite of set_materialize_grads(False)."""
    assert _slope(_NoneOrZero.apply) == [1, 3]
    assert _slope(_compiled(lambda x: _NoneOrZero.apply(x))) == [-1, -3]


class _Opposite(_Square):
    @staticmethod
    def backward(ctx, grad_output):
        return -2 * ctx.saved_tensors[0] * grad_output


class _Holds(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def test_classes_that_share_their_forward_share_compiled_code_if_held_as_apply() -> None:
    """Nothing guards the backward: up to torch 2.13 the second is given the gradient of the first."""
    if not since("2.12"):
        with pytest.raises(torch._dynamo.exc.UserError, match="setup_context"):
            _slope(_compiled(_Holds(_Square.apply)))
        return
    own = [-g for g in RIGHT]
    assert _slope(_compiled(_Holds(_Square.apply))) == RIGHT
    assert _slope(_compiled(_Holds(_Opposite.apply))) == (own if since("2.14") else RIGHT)
    torch._dynamo.reset()
    assert _slope(_compiled(_Holds(_Opposite.apply))) == own


def test_held_as_a_class_each_has_its_own_code() -> None:
    class HoldsClass(_Holds):
        def forward(self, x):
            return self.function.apply(x)

    assert _slope(_compiled(HoldsClass(_Square))) == RIGHT
    assert _slope(_compiled(HoldsClass(_Opposite))) == [-g for g in RIGHT]


SEEN: list[int] = []


class _AppendsToGlobal(_Square):
    @staticmethod
    def forward(x):
        SEEN.append(1)
        return x * x


def test_what_a_compiled_forward_does_to_a_global_list_is_done_in_every_call() -> None:
    SEEN.clear()
    function = _compiled(lambda x: _AppendsToGlobal.apply(x))
    for _ in range(3):
        function(torch.ones(2, requires_grad=True))
    assert len(SEEN) == 3


def test_what_it_does_to_the_list_of_an_enclosing_function_is_lost() -> None:
    """Without a word, in torch 2.13."""
    seen = []

    class Appends(_Square):
        @staticmethod
        def forward(x):
            seen.append(1)
            return x * x

    assert _slope(_compiled(lambda x: Appends.apply(x))) == RIGHT
    assert not seen
    assert _slope(Appends.apply) == RIGHT
    assert seen


def test_hooks_around_a_compiled_call_are_called() -> None:
    packed = []
    function = _compiled(lambda x: _Square.apply(x))
    with saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t):
        assert _slope(function) == RIGHT
    assert packed


def test_a_compiled_function_has_no_second_derivative() -> None:
    x = torch.ones(2, requires_grad=True)
    (slope,) = torch.autograd.grad(_compiled(lambda x: _Square.apply(x))(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.grad(slope.sum(), x)


def test_a_second_derivative_inside_of_the_compiled_part_is_right_up_to_torch_2_14() -> None:
    """In torch 2.15 it is 0, and silent, with eager and aot_eager; without a Function it is right there, too."""

    def second(x):
        return torch.func.grad(lambda x: torch.func.grad(lambda x: _Square.apply(x).sum())(x).sum())(x)

    assert _compiled(second)(torch.ones(2)).tolist() == ([0, 0] if since("2.15") else [2, 2])
