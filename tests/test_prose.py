"""The words that we do not write are found, and nothing else is."""

import re
import tomllib
from pathlib import Path

import pytest
from docs import prose

# For each word of the list: a sentence that must be found, and one that must be left alone.
SENTENCES = {
    "fix": ("Mend the formula.", "We recommend the formula."),
    "instead of": ("It raises in place of returning.", "It works in place."),
    "next to, compared with, or in addition to": ("A plot beside the table.", "A plot is on the other side."),
    "rarely": ("You seldom need it.", "You need it."),
    "silently": ("It is zero without a word.", "It is zero without a warning."),
    "name who acts: PyTorch, the engine, your backward, the audit, you": (
        "Whoever copies it, as one would, is not told by anybody: nobody is.",
        "The first one has a graph; no one-liner works with anyone.",
    ),
    "remainder": ("A loop over tiles that leaves a rest.", "The rest of the page."),
    "not any, or a number": ("It saves not a byte.", "It is not a function."),
    "the sentence the other way round, with its subject first": (
        "What is freed are saved tensors.",
        "The audit says what is wrong.",
    ),
    "the American spelling": ("The behaviour is normalised.", "The behavior is normalized."),
    "composition": ("The naive version is slow.", "A naive reader."),
    "built-in": ("A stock function.", "A built-in function."),
    "audit": ("The audit tells alarms about it.", "The audit tells you."),
    "sample": ("A specimen input.", "A sample input."),
    "surrogate gradient": ("A fake gradient.", "A fake kernel."),
    "saved tensor": ("The stashed tensors.", "The saved tensors."),
    "second derivative": ("The gradient's gradient.", "The gradient's shape."),
    "graph break": ("A break of the graph.", "A graph break."),
    "eager mode": ("In uncompiled mode.", "In eager mode."),
    "rank": ("A distributed worker process.", "A worker process."),
}


def said(text: str, tmp_path: Path, name: str = "page.md") -> list[str]:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return list(prose.found(file))


def test_each_rule_has_sentences_here() -> None:
    assert {rule.say for rule in prose.rules()} == SENTENCES.keys()


@pytest.mark.parametrize("say", SENTENCES)
def test_a_rule_finds_its_word_and_says_what_to_write(say: str, tmp_path: Path) -> None:
    wrong, right = SENTENCES[say]
    assert any(line.endswith(f"write {say}") for line in said(wrong, tmp_path)), f"{wrong!r} is not found"
    (rule,) = (rule for rule in prose.rules() if rule.say == say)
    assert not rule.pattern.search(right), f"{right!r} is found"


def test_code_and_literals_of_a_page_are_left_alone(tmp_path: Path) -> None:
    page = "```{code-cell} python\nnobody = 1\n```\nCall `nobody`.\n\n```{note}\nNobody.\n```\n"
    assert [line.partition(": ")[0].rpartition(":")[2] for line in said(page, tmp_path)] == ["7"]


def test_of_a_module_its_strings_are_read_and_its_comments_are_not(tmp_path: Path) -> None:
    module = '"""Nobody reads this."""\n# nobody\nseldom = "in ``mend`` alone"\n'
    (line,) = said(module, tmp_path, "module.py")
    assert ":1: 'Nobody': write name who acts" in line


def test_the_texts_of_a_script_of_the_cookbook_are_read(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    (line,) = said('r"""A title."""\n\n# %%\n# You seldom need it.\n', tmp_path / "examples", "page.py")
    assert ":4: 'seldom': write rarely" in line


def test_every_term_has_a_meaning_in_a_sentence() -> None:
    for entry in tomllib.loads(prose.TERMS.read_text(encoding="utf-8"))["term"]:
        assert entry["meaning"].endswith("."), entry["say"]


def test_our_own_prose_has_none_of_these_words() -> None:
    assert prose.files(), "no file was read"
    found = [line for path in prose.files() for line in prose.found(path)]
    assert not found, "\n".join(found)


# --- What a reflow of lines can join ---

ROOT = Path(__file__).parents[1]
DIRECTIVE, DEFINITION = re.compile(r"# \.\. [a-z-]+::"), re.compile(r"\w.* : \*\*(Yes|No)\b")


def joined(path: Path) -> list[str]:
    """The lines of a page in which a row, a definition or a directive became a part of the text before it."""
    found, before, cells = [], "", 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        row = len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", line))) if line.startswith("|") else 0
        directive = path.suffix == ".py" and DIRECTIVE.match(line) and re.match(r"# [^ .]", before)
        if (row and cells and row != cells) or DEFINITION.match(line) or directive:
            found.append(f"{path.name}:{number}: {line[:80]}")
        before, cells = line, row
    return found


def test_joined_lines_are_found(tmp_path: Path) -> None:
    table, text = tmp_path / "page.md", tmp_path / "page.py"
    table.write_text(
        "| a | b |\n|---|---|\n| 1 | 2 | | 3 | `|` |\n\n| c |\n\nSlow : **No.** Compile it.\n\nFast\n: **Yes.**\n"
    )
    text.write_text("# A formula:\n# .. math::\n#\n# Another:\n#\n# .. math::\n# .. note::\n")
    assert [line.split(":")[1] for line in joined(table) + joined(text)] == ["3", "7", "2"]


def test_no_page_has_joined_lines() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    assert not [line for page in pages for line in joined(page)]
