"""The last cell of a pitfall tells what gradcheck and the audit really say, and its page is held to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from docs._ext import verdicts
from docs._ext.verdicts import disagreements, pitfalls_of, verdict
from torch.autograd import Function, gradgradcheck


@pytest.fixture(autouse=True)
def nothing_given() -> Iterator[None]:
    verdicts.GIVEN.clear()
    yield
    verdicts.GIVEN.clear()


class Square(Function):
    @staticmethod
    def forward(x):
        return x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output


class SquareOfACopy(Square):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0].clone())


class Without2(Square):
    @staticmethod
    def backward(ctx, grad_output):
        return ctx.saved_tensors[0] * grad_output


class Raises(Square):
    @staticmethod
    def backward(ctx, grad_output):
        raise KeyError("of its own")


ONLY = {"skip": (), "only": ["runs", "saved_copies"]}


def sample() -> torch.Tensor:
    return torch.tensor([0.5, -1.5], dtype=torch.float64, requires_grad=True)


def test_a_verdict_has_four_lines() -> None:
    given = verdict(SquareOfACopy.apply, Square.apply, (sample(),), **ONLY)
    assert str(given).splitlines() == [
        "gradcheck, broken: passes",
        "gradcheck, fixed:  passes",
        "audit, broken:     saved_copies",
        "audit, fixed:      ok",
    ]
    assert given.alarms == {"broken": ("saved_copies",), "fixed": ()}


@pytest.mark.parametrize(
    ("broken", "said"),
    [(Without2, "fails: Jacobian mismatch for output 0 with respect to input 0,"), (Raises, "raises KeyError: ")],
)
def test_it_says_how_gradcheck_went(broken: type[Function], said: str) -> None:
    given = verdict(broken.apply, Square.apply, (sample(),), **ONLY)
    assert f"broken: {said}" in given.lines[0]
    assert given.lines[1].endswith("passes")


def test_second_derivatives_can_be_asked_for() -> None:
    given = verdict(Square.apply, Square.apply, (sample(),), check=gradgradcheck, **ONLY)
    assert given.lines[0].startswith("gradgradcheck, broken:")


def test_the_inputs_stay_what_they_were() -> None:
    class Overwrites(Square):
        @staticmethod
        def forward(x):
            return x.zero_().clone()

    x = sample()
    verdict(Overwrites.apply, Square.apply, (x,), **ONLY)
    assert torch.equal(x, sample())
    assert x._version == 0


def test_what_the_audit_refuses_is_said() -> None:
    given = verdict(Square, Square.apply, (sample(),), **ONLY)
    assert given.lines[2].partition(":")[2].strip().startswith("refuses: ")
    assert given.alarms["broken"] == ()


PAGE = """\
(pitfall-a-b)=
## First title

Found by {ref}`check-saved-copies`, and by {ref}`check-saved-copies` again.

(pitfall-c)=
## Second title

No check applies.

## Sources

{ref}`check-runs`
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path / "page.md"


def test_sections_are_read_from_the_page(page: Path) -> None:
    first, second = pitfalls_of(page)
    assert (first.name, first.title, first.label, first.checks) == (
        *("a-b", "First title", "pitfall-a-b"),
        ["saved_copies"],
    )
    assert (second.name, second.title, second.checks) == ("c", "Second title", [])


def test_links_are_held_to_the_alarms(page: Path) -> None:
    verdict(SquareOfACopy.apply, Square.apply, (sample(),), **ONLY)
    assert list(disagreements(page)) == ["2 sections and 1 verdicts"]
    verdict(Square.apply, Square.apply, (sample(),), **ONLY)
    assert not list(disagreements(page))
    verdicts.GIVEN.reverse()
    assert [line.partition(":")[0] for line in disagreements(page)] == ["a-b", "c"]


def test_a_fixed_function_with_findings_is_none(page: Path) -> None:
    verdict(SquareOfACopy.apply, SquareOfACopy.apply, (sample(),), **ONLY)
    verdict(Square.apply, Square.apply, (sample(),), **ONLY)
    assert any("not right" in line for line in disagreements(page))
