"""What compiles whole, and how it is found out."""

import ast
import functools
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks

from autograd_cookbook.audit import audit, saved_bytes
from autograd_cookbook.compilation import compilations, graph_breaks, huber

# What is compiled here is called with tensors that are no leaves, and the compiler looks whether they have a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

CLINIC = Path(__file__).parents[1] / "examples" / "07_compile" / "graph_breaks.py"


@pytest.fixture(autouse=True)
def _nothing_compiled_before():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


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
    from torch._dynamo.testing import CompileCounter  # here, since every collection of the tests would wait for it

    counter = CompileCounter()
    compiled = torch.compile(huber, fullgraph=True, backend=counter)
    for size in (3, 4, 5, 6):
        compiled(torch.ones(size, requires_grad=True))
    assert counter.frame_count == 2  # once for 3, once for any size


def test_an_assertion_inside_of_the_compiler_is_a_break_as_well() -> None:
    class CallsAnother(_Square):
        @staticmethod
        def backward(ctx, grad_output):
            return _Square.backward(ctx, grad_output)

    (found,) = graph_breaks(lambda x: CallsAnother.apply(x), torch.ones(3, requires_grad=True))
    assert "FakeBackwardCFunction" in found


def test_an_error_of_the_function_is_no_break() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        graph_breaks(torch.add, torch.ones(2), torch.ones(3))


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


@functools.cache
def _clinic() -> dict[str, object]:
    """What the page calls refused: its own functions by their labels, without the rest of the page."""
    sys.modules["clinic"] = clinic = ModuleType("clinic")  # where the compiler looks for globals
    clinic.ways = {}
    kept = []
    for node in ast.parse(CLINIC.read_text()).body:
        names = {ast.unparse(target) for target in getattr(node, "targets", ())}
        wanted = isinstance(node, ast.ClassDef) or bool(names & {"calls", "square"})
        # Without the figures: the tests are installed without what draws them.
        wanted |= isinstance(node, ast.Import | ast.ImportFrom) and "matplotlib" not in ast.unparse(node)
        wanted |= isinstance(node, ast.FunctionDef) and node.name == "hooks_inside"
        calls_table = isinstance(node, ast.Expr) and ast.unparse(node).startswith("table(")
        if wanted and not (isinstance(node, ast.ClassDef) and node.name == "Operator"):
            kept.append(node)
        if calls_table and "'if on data'" in ast.unparse(node):
            kept.append(node)
    clinic.table = clinic.ways.update
    exec(compile(ast.Module(kept, []), str(CLINIC), "exec"), vars(clinic))
    return clinic.ways


REFUSED = (
    *("if on data", ".item()", "print", "list.append in backward", "foreign code", "jvp on the class"),
    *("attribute of the class, by its name", "torch.autograd.grad in backward", "calls the backward of another class"),
    *("one tensor as two arguments", "saved-tensor hooks inside"),
)


def test_the_page_on_graph_breaks_shows_these() -> None:
    assert tuple(_clinic()) == REFUSED


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "calls the backward of another class"])
def test_what_is_refused_whole_runs_in_eager_mode_and_is_right(name: str) -> None:
    way = _clinic()[name]

    def function(x):
        return way.apply(x) if isinstance(way, type) else way(x)

    assert _slope(_compiled(function, fullgraph=False)) == RIGHT


def test_a_backward_that_calls_the_backward_of_another_class_fails_even_with_breaks_allowed() -> None:
    way = _clinic()["calls the backward of another class"]
    assert _slope(way.apply) == RIGHT
    with pytest.raises(AssertionError, match="FakeBackwardCFunction"):
        _slope(_compiled(lambda x: way.apply(x), fullgraph=False))


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
    """Wrong, and silent, in torch 2.13; if this fails, the page on graph breaks and leaky_relu_ can be mended."""
    assert _slope(_InPlace.apply) == [7, 21]
    assert _slope(_compiled(lambda x: _InPlace.apply(x))) == [1, 3]
    assert _slope(_compiled(lambda x: _InPlace.apply(x.clone()))) == [7, 21]


def test_the_audit_finds_a_gradient_that_is_wrong_when_compiled() -> None:
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    report = audit(lambda x: _InPlace.apply(x), (x,), only=["compile"])
    assert [finding.severity for finding in report.findings] == ["error"], report


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
    """Nothing guards the backward: the second is given the gradient of the first."""
    assert _slope(_compiled(_Holds(_Square.apply))) == RIGHT
    assert _slope(_compiled(_Holds(_Opposite.apply))) == RIGHT  # wrong
    torch._dynamo.reset()
    assert _slope(_compiled(_Holds(_Opposite.apply))) == [-g for g in RIGHT]


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


def test_a_second_derivative_inside_of_the_compiled_part_is_right() -> None:
    def second(x):
        return torch.func.grad(lambda x: torch.func.grad(lambda x: _Square.apply(x).sum())(x).sum())(x)

    assert _compiled(second)(torch.ones(2)).tolist() == [2, 2]


def test_compilations_are_counted_call_by_call() -> None:
    def function(x):
        return _Square.apply(x)

    def calls(*sizes):  # fresh ones: the compiler writes on a tensor what it knows of its sizes
        return [(torch.ones(n, requires_grad=True),) for n in sizes]

    assert compilations(function, calls(3, 4, 5, 1)) == [1, 2, 2, 3]  # 1 is a version of its own
    assert compilations(function, calls(3, 4, 5), dynamic=True) == [1, 1, 1]
    assert compilations(function, calls(3, 4, 5), dynamic=False) == [1, 2, 3]
    assert compilations(function, []) == []


@pytest.mark.parametrize("context", [torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_modes_are_versions_of_their_own(context) -> None:
    from torch._dynamo.testing import CompileCounter  # here, since every collection of the tests would wait for it

    counter = CompileCounter()
    compiled = torch.compile(lambda x: _Square.apply(x), fullgraph=True, backend=counter)
    x = torch.ones(3, requires_grad=True)
    compiled(x)
    with context():
        compiled(x)
    compiled(x)
    assert counter.frame_count == 2


@pytest.mark.parametrize("other", [torch.ones(3), torch.ones(3, dtype=torch.float64, requires_grad=True)])
def test_dtypes_and_tensors_without_grad_are_versions_of_their_own(other) -> None:
    x = torch.ones(3, requires_grad=True)
    assert compilations(lambda x: _Square.apply(x), [(x,), (other,), (x,)]) == [1, 2, 2]


def test_too_many_versions_are_refused() -> None:
    limit = torch._dynamo.config.recompile_limit
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        compilations(torch.exp, [(torch.ones(n + 2),) for n in range(limit + 1)], dynamic=False)
