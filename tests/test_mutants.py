"""How mutants are named, and what is said of those that survive."""

import ast
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants import Mutant, all_mutants, mutants_of, named, pages_of
from tests.mutation import judged

FILES = sorted(path.stem for path in Path(__file__).parent.glob("recipes/test_*.py") if "SURVIVORS" in path.read_text())


def mutants(*statements: str) -> dict[str, str]:
    """The statement that each mutant changes, as it is changed, by the first name of the mutant."""
    code = ast.parse("\n    ".join(["def f(x, y):", *statements])).body[0]
    plain = ast.unparse(code).splitlines()
    found = {}
    for mutant in mutants_of("page", "f", code):
        (found[str(mutant)],) = set(mutant.source.splitlines()) - set(plain)
    return {name.removeprefix("f: "): statement.strip() for name, statement in found.items()}


def test_one_change_is_named_by_itself() -> None:
    assert mutants("return x * y") == {
        "x * y -> x": "return x",
        "x * y -> y": "return y",
        "x * y -> x / y": "return x / y",
    }


def test_a_change_in_two_places_is_named_with_what_is_around_it() -> None:
    assert mutants("x = f(x, 2)", "return g(2, h(2))") == {
        "f(x, {2 -> 3})": "x = f(x, 3)",
        "g({2 -> 3}, h(2))": "return g(3, h(2))",
        "h({2 -> 3})": "return g(2, h(3))",
    }


def test_equal_statements_are_numbered() -> None:
    assert list(mutants("x = f(x, 2)", "x = f(x, 2)")) == [
        "x = f(x, {2 -> 3}), number 1",
        "x = f(x, {2 -> 3}), number 2",
    ]


def test_an_edit_elsewhere_leaves_a_name_with_its_surroundings_as_it_was() -> None:
    def means(name: str, *statements: str) -> list[str]:
        code = ast.parse("\n    ".join(["def f(x):", *statements])).body[0]
        return [mutant.source for mutant in mutants_of("page", "f", code) if mutant.is_called(name)]

    (before,) = means("f: f(x, {2 -> 3})", "x = f(x, 2)")
    (after,) = means("f: f(x, {2 -> 3})", "x = g(2, x)", "x = f(x, 2)", "return x * 2")
    assert "x = f(x, 3)" in before
    assert "x = f(x, 3)" in after
    assert not means("f: 2 -> 3", "x = g(2, x)", "x = f(x, 2)")


def test_annotations_defaults_and_messages_stay_as_they_are() -> None:
    assert not mutants('"""Two is 2."""', "raise ValueError(f'{x + 1}')")
    code = ast.parse("def f(x: A[1], y=1) -> A[1]:\n    return zip(x, y, strict=True)").body[0]
    assert not list(mutants_of("page", "f", code))


def test_no_two_mutants_have_one_name() -> None:
    names = Counter((mutant.module, str(mutant)) for mutant in all_mutants())
    assert max(names.values()) == 1, names.most_common(3)


@pytest.mark.parametrize("file", FILES)
def test_each_survivor_is_the_name_of_one_mutant(file: str) -> None:
    """Without ``nox -s mutation``, which tries it, too."""
    for entry in import_module(f"tests.recipes.{file}").SURVIVORS:
        assert len(named(entry, file.removeprefix("test_"))) == 1, f"it names no mutant, or several: {entry}"


def test_a_helper_has_the_tests_of_the_pages_that_import_it() -> None:
    assert pages_of("elementwise") == {"elementwise"}
    assert pages_of("_explicit") == {"explicit", "implicit", "maml", "neural_ode"}
    assert pages_of("_triton") >= {"triton_kernel", "flash_attention"}


@pytest.fixture
def pair() -> tuple[Mutant, Mutant]:
    first, second, *_ = [mutant for mutant in all_mutants() if mutant.module == "elementwise"]
    return first, second


def file_that_says(**survivors: str) -> set[ModuleType]:
    file = ModuleType("tests.recipes.test_elementwise")
    file.SURVIVORS = survivors
    return {file}


def test_a_survivor_needs_a_reason(pair: tuple[Mutant, Mutant]) -> None:
    first, second = pair
    assert not list(judged([first, second], [first], file_that_says(**{str(first): "it computes the same"})))
    assert list(judged([first, second], [first], set())) == [f"no reason given for elementwise, {first}"]


def test_a_reason_needs_a_survivor(pair: tuple[Mutant, Mutant]) -> None:
    first, second = pair
    (said,) = judged([first, second], [], file_that_says(**{str(first): "it computes the same"}))
    assert said.endswith(f"did not survive: {first}")
    (said,) = judged([second], [], file_that_says(**{"F.backward: 1 -> 2": "it is no more"}))
    assert said.endswith("the name of 0 mutants: F.backward: 1 -> 2")
    assert not list(judged([second], [], file_that_says(**{str(first): "not tried this time"})))
