"""From exceptions and wrong numbers to their causes: with the real messages of torch, and with one mistake each."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import Function, forward_ad
from torch.utils.checkpoint import checkpoint

from autograd_cookbook import errors
from autograd_cookbook.auditing import audit
from autograd_cookbook.auditing.diagnose import (
    ALONE,
    CHANGED,
    difference,
    explain,
    factor,
    first_line,
    in_some,
    known,
    pattern,
    raised_by_audit,
)
from autograd_cookbook.auditing.subject import Run, Subject, weights_of
from tests.support import since


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()


# --- whose exception it is ---


def test_an_exception_is_the_audits_own_if_one_of_its_frames_raised_it() -> None:
    def look(x: Tensor) -> Tensor:  # with the name of the audit's own handler
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as mine:
        Subject(look, (leaf(2),)).run()
    assert not raised_by_audit(mine.value)
    with pytest.raises(TypeError, match="iterable") as ours:
        weights_of(1)
    assert raised_by_audit(ours.value)


# --- messages of torch ---


def function(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """The apply of a Function made of two functions that take ctx."""
    return type("Made", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}).apply


def same(ctx: Any, x: Tensor, *others: Any) -> Tensor:
    return x.clone()


def returning(make: Callable[[Tensor], Any], *others: Any) -> None:
    """Runs a backward that returns what ``make`` makes of grad_output."""
    function(same, lambda ctx, g: make(g))(leaf(2, 3), *others).sum().backward()


def identity(ctx: Any, grad_output: Tensor) -> Tensor:
    return grad_output


def legacy() -> None:
    class Legacy(Function):
        def forward(self, x):
            return x

        def backward(self, grad_output):
            return grad_output

    with warnings.catch_warnings(action="ignore"):
        Legacy()(leaf(2))


def modified() -> None:
    x = leaf(2).exp()
    y = x.exp()
    y.mul_(2)
    y.sum().backward()


def written() -> None:
    def forward(ctx, x):
        ctx.save_for_backward(p := x.softmax(-1))
        return p.clone()

    def backward(ctx, g):
        return ctx.saved_tensors[0].mul_(g)

    y = function(forward, backward)(leaf(2)).sum()
    for _ in range(2):
        y.backward(retain_graph=True)


def saves(value: Any) -> None:
    def forward(ctx, x):
        ctx.save_for_backward(x, value)
        return x.clone()

    function(forward, identity)(leaf(2))


def undefined() -> None:
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x.clone(), x.clone()

    function(forward, lambda ctx, a, b: a * 2 + b)(leaf(2))[0].sum().backward()


def second_time() -> None:
    y = leaf(2).exp().sum()
    y.backward()
    y.backward()


def unpacked_twice() -> None:
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    def backward(ctx, g):
        return g * ctx.saved_tensors[0].exp() * (ctx.saved_tensors[0] * 0 + 1)

    checkpoint(function(forward, backward), leaf(2), use_reentrant=False).sum().backward()


def view_of_one() -> None:
    function(lambda ctx, x: x.view(-1), identity)(leaf(2).clone()).add_(1)


class Modern(Function):
    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    backward = staticmethod(identity)


def forward_mode(apply: Callable[..., Tensor]) -> None:
    with forward_ad.dual_level():
        apply(forward_ad.make_dual(leaf(2), torch.ones(2, dtype=torch.float64)))


def viewed() -> None:
    def backward(ctx, g):
        return g.view(-1).reshape(2, 3)

    y = function(lambda ctx, x: x.clone(), backward)(leaf(2, 3))
    (y.mT * torch.ones(3, 2)).sum().backward()


def adds_into_integers() -> None:
    torch.zeros(2, dtype=torch.int64).add_(torch.ones(2))


def unassigned() -> None:
    def backward(ctx, g):
        if ctx.needs_input_grad[0]:
            grad_y = g
        return None, grad_y

    function(lambda ctx, x, y: x + y, backward)(leaf(2).detach(), leaf(2)).sum().backward()


# What provokes a message, with the entry of the error index that explains it, or words of the audit's own explanation.
PROVOKED: list[tuple[str, str, Callable[[], Any]]] = [
    (
        "a view of a conjugate",
        "is a conjugate that has not been written out yet",
        lambda: torch.view_as_real(torch.ones(2, dtype=torch.complex64).conj()),
    ),
    ("too few gradients", "gradient_missing", lambda: returning(lambda g: g, leaf(2, 3))),
    ("too many gradients", "Often an argument was removed", lambda: returning(lambda g: (g, g))),
    ("transposed", "gradient_of_other_shape", lambda: returning(lambda g: g.mT)),
    ("complex", "gradient_complex", lambda: returning(lambda g: g + 0j)),
    ("another device", "gradient_on_other_device", lambda: returning(lambda g: g.to("meta"))),
    ("a number", "gradient_is_number", lambda: returning(lambda g: 1.0)),
    ("for a number", "gradient_for_number", lambda: returning(lambda g: (g, g), 2.0)),
    ("methods that are not static", "instance_called", legacy),
    ("a leaf written to", "leaf_changed", lambda: leaf(2).mul_(2)),
    ("an output written to", "result_changed", modified),
    ("a number saved", "number_saved", lambda: saves(3)),
    ("a view of a transpose", "grad_output_viewed", viewed),
    ("a product of two dtypes", "Tensors of two dtypes", lambda: leaf(2, 2) @ leaf(2, 2).float()),
    ("batches of two dtypes", "Tensors of two dtypes", lambda: torch.bmm(leaf(1, 2, 2), leaf(1, 2, 2).float())),
    ("vectors of two dtypes", "Tensors of two dtypes", lambda: torch.dot(leaf(2), leaf(2).float())),
    ("an undefined gradient", "None arrived", undefined),
    ("a method of None", "None arrived", lambda: None.sum()),
    ("a sum with None", "None arrived", lambda: leaf(2) + None),
    ("None for a tensor", "None arrived", lambda: torch.exp(None)),
    ("no graph", "nothing_requires_grad", lambda: leaf(2).detach().sum().backward()),
    ("two backwards", "backward_again", second_time),
    ("two looks at saved tensors", "saved_tensors_read_twice", unpacked_twice),
    ("a saved tensor written to", "input_changed", written),
    ("a write to a view", "view_changed", view_of_one),
    ("forward with ctx", "no_setup_context", lambda: torch.func.vjp(function(same, identity), leaf(2))),
    ("no rule for vmap", "no_vmap_rule", lambda: torch.func.vmap(Modern.apply)(leaf(2))),
    ("no jvp", "no_jvp", lambda: forward_mode(Modern.apply)),
    ("bits of numbers", "no_kernel_for_dtype", lambda: leaf(2) & leaf(2)),
    (
        *("eigenvalues of halves", "no_kernel_for_dtype"),
        lambda: torch.linalg.eigh(torch.eye(2, dtype=torch.float16)),
    ),
    ("numbers into integers", "result_into_integers", adds_into_integers),
    ("NumPy", "numpy_on_parameter", lambda: leaf(2).numpy()),
    ("a variable without a value", "under a condition alone", unassigned),
    ("no graph of any output", "passed to apply", lambda: Run([], [], [torch.zeros(2)], None).gradients()),
]  # fmt: skip


def raised(provoke: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (any)
        provoke()
    return caught.value


@pytest.mark.parametrize(("by", "provoke"), [pytest.param(by, p, id=name) for name, by, p in PROVOKED])
def test_messages_of_torch_are_explained(by: str, provoke: Callable[[], Any]) -> None:
    if by == "view_changed" and not since("2.13"):
        pytest.skip("up to torch 2.12 the message names no Function, and is that of hooks of modules, too")
    error = raised(provoke)
    index = {entry.name: (entry.cause, entry.remedy) for entry in errors.entries() if entry.name == by}
    cases = [case for entry in errors.entries() for case in entry.cases]
    index |= {case.cause: (case.cause, case.remedy) for case in cases if by in case.cause}
    own = {cause: (cause, fix) for _, cause, fix in CHANGED if by in cause}
    (expected,) = (index | own).values()
    assert explain(error) == tuple(text.replace("``", "") for text in expected), first_line(error)


def test_all_that_the_audit_says_on_its_own_has_been_provoked() -> None:
    by = [by for _, by, _ in PROVOKED]
    assert [cause for _, cause, _ in CHANGED if not any(words in cause for words in by)] == []
    assert set(ALONE.values()) <= set(by)


@pytest.mark.parametrize("message", ["", "the scale must not be None", "shapes differ", "expected a scale"])
def test_exceptions_of_the_code_itself_are_not_explained_away(message: str) -> None:
    assert known(ValueError(message)) is None
    cause, fix = explain(ValueError(message))
    assert cause == f"The code, or an operation in it, raises ValueError{': ' if message else ''}{message}."
    assert "debugger" in fix


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError("\n\n  one\ntwo"), "ValueError: one"),
        (KeyError("key"), "KeyError: 'key'"),
        (RuntimeError(), "RuntimeError"),
        (SystemExit(3), "SystemExit: 3"),
        (ValueError("x" * 400), "ValueError: " + "x" * 227 + "…"),
    ],
)
def test_an_exception_in_one_line(error: BaseException, line: str) -> None:
    assert first_line(error) == line
    assert len(first_line(error)) <= 240


# --- patterns in wrong numbers ---


def subject_of(*args: Tensor, fn: Callable[..., Tensor] = lambda *args: sum(a.sum() for a in args)) -> Subject:
    return Subject(fn, args)


X = leaf(3, 4)
E = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
Y = X.detach().exp()
(WEIGHTS,) = weights_of([Y])
SQUARE = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def recognized(actual: Tensor) -> str:
    return pattern(subject_of(X), 0, actual, E, [Y]) or in_some(subject_of(X), 0, actual, E)


def one_row(g: Tensor, row: int) -> Tensor:
    g = g.clone()
    g[row] += 1
    return g


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(lambda g: -g, "the sign is wrong", id="sign"),
        pytest.param(lambda g: 2 * g, "it is 2 times the right one", id="2"),
        pytest.param(lambda g: -g / 2, "it is 1/2 times the negative of the right one", id="-1/2"),
        pytest.param(lambda g: g * torch.pi, "it is π times", id="π"),
        pytest.param(lambda g: 12 * g, "12 times too large; 12 is the number of elements of input 0", id="sum"),
        pytest.param(lambda g: g / 12, "12 times too small; 12 is the number of elements", id="mean twice"),
        pytest.param(lambda g: 3 * g, "it is 3 times too large; 3 is the size of dim 0 of input 0", id="batch"),
        pytest.param(lambda g: g / 4, "4 times too small; 4 is the size of dim 1 of input 0", id="mean of rows"),
        pytest.param(lambda g: 1.001 * g, "1.001 times the right one: a constant factor", id="any factor"),
        pytest.param(torch.zeros_like, "zero everywhere", id="zero"),
        pytest.param(lambda g: g * torch.nan, "not finite", id="NaN"),
        pytest.param(lambda g: g * Y, "the right one times output 0 once too often", id="output"),
        pytest.param(lambda g: g / Y, "output 0 is missing as a factor", id="without output"),
        pytest.param(lambda g: g * X.detach(), "the right one times input 0 once too often", id="input"),
        pytest.param(lambda g: g / X.detach(), "input 0 is missing as a factor", id="without input"),
        pytest.param(lambda g: g / WEIGHTS, "grad_output 0 is missing as a factor", id="without grad_output"),
        pytest.param(lambda g: g * Y**2, "times the square of output 0", id="squared"),
        pytest.param(lambda g: g + 0.5 * Y, "it differs from the right one by 0.5 times output 0", id="a term"),
        pytest.param(lambda g: g.flip(-1), "the right one in reverse order", id="reversed"),
        pytest.param(lambda g: g.mean().expand(3, 4), "every entry is the mean of the right ones", id="mean"),
        pytest.param(lambda g: one_row(g, 2), "4 of 12 entries are wrong; all of them where dim 0 is 2", id="a row"),
        pytest.param(lambda g: one_row(g.mT, 1).mT, "3 of 12 entries are wrong; all of them where dim 1", id="column"),
        pytest.param(lambda g: g + 0.25, "by 0.25 everywhere: a sum over the whole", id="constant"),
    ],
)  # fmt: skip
def test_a_mistake_is_recognized_from_its_numbers(change: Callable[[Tensor], Tensor], words: str) -> None:
    assert words in recognized(change(E))


def test_a_transpose_is_recognized() -> None:
    assert pattern(subject_of(leaf(3, 3)), 0, SQUARE.mT, SQUARE, []) == "it is the transpose of the right one"


def test_a_conjugate_is_recognized() -> None:
    z = leaf(3, dtype=torch.complex128)
    gradient = z.detach() * (1 + 2j)
    assert "complex conjugate" in pattern(subject_of(z), 0, gradient.conj(), gradient, [])


def test_another_input_is_recognized_where_it_broadcasts() -> None:
    x, w = leaf(3, 4), leaf(4) + 2
    subject = subject_of(x, w.detach().requires_grad_())
    assert pattern(subject, 0, E * w.detach(), E, []) == "it is the right one times input 1 once too often"
    assert pattern(subject, 0, E / w.detach(), E, []) == "input 1 is missing as a factor"


def test_nothing_is_made_up() -> None:
    other = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    assert recognized(other) == ""
    assert recognized(E + 0.1 * other) == ""


@given(st.floats(-20, 20).filter(lambda f: abs(f) > 0.01 and abs(f - 1) > 1e-3))
def test_any_constant_factor_is_recognized_as_one(ratio: float) -> None:
    said = recognized(ratio * E)
    assert "factor" in said or "sign" in said or "times too" in said


@pytest.mark.parametrize("ratio", [-1.0, -2.0, -3.0, -12.0, -1 / 4, -1 / 12, -1.7])
def test_a_factor_with_the_wrong_sign_says_so(ratio: float) -> None:
    said = factor(ratio, subject_of(X), 0)
    assert "negative" in said or "sign" in said or "-1.7" in said


def made(slope: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """The mean of the squares of the rows, with another derivative."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x**2).mean(-1)

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return slope(g[:, None] * 2 * x / x.shape[-1])

    return function(forward, backward)


@pytest.mark.parametrize(
    ("slope", "words"),
    [
        pytest.param(lambda g: 4 * g, "a division by it is missing, as in a mean", id="mean"),
        pytest.param(lambda g: -g, "the sign is wrong", id="sign"),
        pytest.param(lambda g: g / 2, "it is 1/2 times the right one", id="factor"),
        pytest.param(lambda g: one_row(g, 0), "where dim 0 is 0", id="row"),
        pytest.param(lambda g: 0 * g, "zero everywhere", id="zero"),
        pytest.param(lambda g: g.sin() + 3 * g.mT.reshape(g.shape), "no simple pattern was recognized", id="nonsense"),
    ],
)
def test_the_audit_says_what_it_recognizes(slope: Callable[[Tensor], Tensor], words: str) -> None:
    (found,) = audit(made(slope), (leaf(3, 4),), only=["first_order"]).of("error")
    assert words in found.cause
    assert re.search(r"the gradient of input 0 at \[\d, \d\] is \S+, but the values change by \S+", found.summary)


# --- differences ---


@pytest.mark.parametrize(
    ("actual", "expected", "said"),
    [
        ([1.0, 2.0], [1.0, 2.0], None),
        ([1.0, 2.0 + 1e-12], [1.0, 2.0], None),
        ([1.0, 3.0], [1.0, 2.0], "3 instead of 2 at [1] (1 of 2 differ)"),
        ([[0.0, 0.0], [5.0, 9.0]], [[0.0, 1.0], [5.0, 4.0]], "9 instead of 4 at [1, 1] (2 of 4 differ)"),
        ([float("nan"), 9.0], [1.0, 2.0], "nan instead of 1 at [0] (2 of 2 differ)"),
        ([float("nan")], [float("nan")], None),
        ([float("inf")], [float("inf")], None),
        ([float("inf")], [1.0], "inf instead of 1 at [0] (1 of 1 differ)"),
        ([1.0], [float("inf")], "1 instead of inf at [0] (1 of 1 differ)"),
        ([1.0], [1.0, 1.0], "shape [1] instead of [2]"),
        ([], [], None),
        (2.0, 3.0, "2 instead of 3 at [] (1 of 1 differ)"),
        ([1.0000001], [1.0], "1.0000001000000001 instead of 1 at [0] (1 of 1 differ)"),
    ],
)
def test_where_two_tensors_differ(actual: Any, expected: Any, said: str | None) -> None:
    a, e = (torch.tensor(v, dtype=torch.float64) for v in (actual, expected))
    assert difference(a, e, 1e-9) == said


def test_where_complex_tensors_differ() -> None:
    a = torch.tensor([1 + 1j, 2 + 5j])
    assert difference(a, torch.tensor([1 + 1j, 2 + 2j]), 1e-6) == "5 instead of 2 at [1] (1 of 4 differ)"


def test_differences_are_relative_to_the_largest_entry() -> None:
    e = torch.tensor([1e6, 1e-6], dtype=torch.float64)
    assert difference(e + 1e-4, e, 1e-9) is None
    assert difference(e + 1e-2, e, 1e-9) is not None
    assert difference(e + 1e-2, e, 1e-9, scale=1e9) is None
