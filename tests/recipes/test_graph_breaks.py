"""Where the compiler does not take a function whole, and why."""

import ast
import functools
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.autograd import Function

from autograd_cookbook.recipes.graph_breaks import graph_breaks
from autograd_cookbook.recipes.torch_compile import huber
from tests.support import since

# What is compiled here is called with tensors that are no leaves, and the compiler looks whether they have a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


CLINIC = Path(__file__).parents[2] / "examples" / "07_compile" / "graph_breaks.py"


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


# How the compiler fails at a backward of another class, up to torch 2.14.
NOT_INLINED = "FakeBackwardCFunction" if since("2.13") else "from user code"


def test_an_assertion_inside_of_the_compiler_is_a_break_as_well() -> None:
    class CallsAnother(_Square):
        @staticmethod
        def backward(ctx, grad_output):
            return _Square.backward(ctx, grad_output)

    found = graph_breaks(lambda x: CallsAnother.apply(x), torch.ones(3, requires_grad=True))
    assert len(found) == (0 if since("2.15") else 1)
    assert all(NOT_INLINED in each for each in found)


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

    # Up to torch 2.12 the compiler takes it, and adds up only one of the two gradients.
    halved = name == "one tensor as two arguments" and not since("2.13")
    assert _slope(_compiled(function, fullgraph=False)) == ([g / 2 for g in RIGHT] if halved else RIGHT)


def test_a_backward_that_calls_the_backward_of_another_class_fails_even_with_breaks_allowed() -> None:
    """Up to torch 2.14."""
    way = _clinic()["calls the backward of another class"]
    assert _slope(way.apply) == RIGHT
    compiled = _compiled(lambda x: way.apply(x), fullgraph=False)
    if since("2.15"):
        assert _slope(compiled) == RIGHT
    else:
        with pytest.raises(AssertionError, match=NOT_INLINED):
            _slope(compiled)
