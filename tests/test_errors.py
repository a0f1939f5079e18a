"""The error index: each message is one that torch says, and is found as a reader pastes it."""

import random
import re
import string
import subprocess
import sys
from functools import cache

import pytest

from autograd_cookbook.command import main
from autograd_cookbook.errors import Entry, entries, explain, words
from tests import errors
from tests.errors import GROUPS, Program
from tests.errors.__main__ import changes, entry_of, names_in

# Each program runs once, for all tests of one process.
pytestmark = pytest.mark.xdist_group("errors")
PROGRAMS = errors.load()
each_program = pytest.mark.parametrize("program", [pytest.param(p, id=name) for name, p in PROGRAMS.items()])


@cache
def index() -> dict[str, Entry]:
    return {entry.name: entry for entry in entries()}


@cache
def traceback_of(name: str) -> str:
    program = PROGRAMS[name]
    raised = errors.run(program.source, program.warning)
    return raised.traceback if raised else ""


# --- what torch says ---


@each_program
def test_torch_says_what_the_index_says(program: Program) -> None:
    now = entry_of(program)
    stored = {program.name: vars(index()[program.name])} if program.name in index() else {}
    found = list(changes(stored, {program.name: now and vars(now)}))
    assert not found, "\n".join([*found, "python -m tests.errors --update writes it down"])


@each_program
def test_the_mended_program_ends_well(program: Program) -> None:
    """Where a message has no mended program, the fix says why."""
    if program.mended:
        left = errors.run(program.mended_source, program.warning)
        assert left is None, f"the mended version of {program.name} raises:\n{left.traceback}"
    else:
        assert "no " in program.fix.lower(), f"{program.name} has no mended program, and its fix does not say why"


@each_program
def test_it_reads_well(program: Program) -> None:
    assert not program.title.endswith("."), program.title
    assert len(program.title) <= 90, program.title
    for text in (program.cause, program.fix):
        assert text.endswith("."), text
        assert text.count("``") % 2 == 0, text
    lines = program.source.splitlines()
    assert len(lines) <= 40, f"{program.name} has {len(lines)} lines: what raises it can be said in fewer"


def test_the_index_is_that_of_the_programs() -> None:
    assert list(index()) == list(PROGRAMS)
    assert len(PROGRAMS) >= 60
    titles = [program.title for program in PROGRAMS.values()]
    assert len(set(titles)) == len(titles), "two entries have the same title"
    assert {program.group for program in PROGRAMS.values()} == set(GROUPS)


def test_no_two_messages_are_the_same() -> None:
    seen: dict[str, str] = {}
    for entry in index().values():
        other = seen.setdefault(entry.words, entry.name)
        assert other == entry.name, f"{entry.name} and {other} say the same: {entry.words}"


# --- finding ---


def another(text: str, names: set[str], chance: random.Random) -> str:
    """The same text as somebody else has it: other names, numbers, types and devices."""
    for name in sorted(names, key=len, reverse=True):
        letters = "".join(chance.choices(string.ascii_lowercase, k=chance.randint(3, 9)))
        text = re.sub(re.escape(name), letters.capitalize() if name[0].isupper() else letters, text)
    text = re.sub(r"\b(cpu|cuda)\b", lambda _: chance.choice(["cpu", "cuda:1", "mps"]), text)
    text = re.sub(r"\bfloat(32|64)\b", lambda _: chance.choice(["float16", "bfloat16", "float64"]), text)
    text = re.sub(r"\b(Float|Double)(?=Tensor|\b)", lambda _: chance.choice(["Half", "Float", "Double"]), text)
    return re.sub(r"(?<![\w.])\d+(\.\d+)?", lambda _: str(chance.randint(0, 300)), text)


def varied(seed: int) -> list[tuple[str, str]]:
    chance = random.Random(seed)
    return [(name, another(traceback_of(name), names_in(PROGRAMS[name].source), chance)) for name in PROGRAMS]


@pytest.mark.parametrize("seed", range(3))
def test_a_traceback_with_other_names_and_numbers_finds_its_entry_first(seed: int) -> None:
    found = {name: explain(text) for name, text in varied(seed)}
    missed = {
        name: [(entry.name, round(share, 2)) for entry, share in zip(f.entries, f.shares, strict=True)]
        for name, f in found.items()
        if f.entries[0].name != name or not f.known
    }
    share = 1 - len(missed) / len(found)
    print(f"{share:.1%} of {len(found)} tracebacks find their entry as the first")
    assert share >= 0.95, missed


@pytest.mark.parametrize(
    "text",
    [
        "ModuleNotFoundError: No module named 'numpy'",
        "KeyError: 'weight'",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 10 GiB",
        "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: 'fc.weight'.",
        "ValueError: Expected input batch_size (32) to match target batch_size (64).",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "IndexError: list index out of range",
        "ImportError: cannot import name 'soft_unicode' from 'markupsafe'",
        "hello",
    ],
)
def test_what_is_not_in_the_index_is_said_to_be_unknown(text: str) -> None:
    found = explain(text)
    assert not found.known, f"taken for {found.entries[0]}"
    assert len(found.entries) == 3, "the nearest entries are still shown"


def test_the_last_exception_counts() -> None:
    first, second = list(PROGRAMS)[:2]
    text = f"{traceback_of(first)}\nDuring handling of the above exception, another occurred:\n\n{traceback_of(second)}"
    assert explain(text).entries[0].name == second


def test_a_message_alone_is_enough() -> None:
    for entry in index().values():
        if words(entry.message):
            assert explain(entry.message).entries[0] == entry


@pytest.mark.parametrize(("text", "count"), [("", 3), ("  \n ", 3), ("123: 45", 3), ("an error", 0)])
def test_bad_input_is_refused(text: str, count: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        explain(text, count)


# --- the command ---


def test_the_command_reads_a_traceback_and_needs_no_torch() -> None:
    name = next(iter(PROGRAMS))
    code = (
        "import sys; from autograd_cookbook.command import main; status = main(['explain']); "
        "assert 'torch' not in sys.modules; sys.exit(status)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], input=traceback_of(name), text=True, capture_output=True, encoding="utf-8"
    )
    assert run.returncode == 0, run.stderr
    entry = index()[name]
    assert run.stdout.startswith(entry.title)
    assert f"see: {entry.url}" in run.stdout


def test_an_unknown_message_has_status_1_and_the_nearest_entries(tmp_path, capsys) -> None:
    (tmp_path / "log.txt").write_text("KeyError: 'weight'")
    assert main(["explain", str(tmp_path / "log.txt")]) == 1
    out = capsys.readouterr().out
    assert "No such message" in out
    assert out.count("errors/") == 3


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["explain", "no-such-file.txt"], "no-such-file.txt"),
        (["explain", "--verbose"], "unknown argument '--verbose'"),
        (["expain"], "'expain'"),
    ],
)
def test_what_cannot_be_understood_has_status_2(argv: list[str], said: str, capsys) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err


def test_an_empty_file_is_no_message(tmp_path, capsys) -> None:
    (tmp_path / "empty.txt").touch()
    assert main(["explain", str(tmp_path / "empty.txt")]) == 2
    assert "expected an error message" in capsys.readouterr().err
