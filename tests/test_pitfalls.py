"""Every check and every pitfall is explained on the site: with a broken function, a fixed one, and a verdict."""

import re
from pathlib import Path

import pytest
from docs._ext.verdicts import GROUPS, Pitfall, pitfalls_of
from docs.pitfalls import programs

from autograd_cookbook.auditing.checks import FAMILIES, all_checks

PAGES = Path(__file__).parents[1] / "docs" / "pitfalls"

programs.load()

PITFALLS = [pitfall for group in GROUPS for pitfall in pitfalls_of(PAGES / f"{group}.md")]
# What a reader is to find, each by the name of its section's label.
MISTAKES = [
    "in-place-in-forward",
    "in-place-on-grad-output",
    "modifying-saved-tensors",
    "tensor-on-ctx",
    "tensor-on-ctx-freed-late",
    "data",
    "operator-that-writes",
    "wrong-number-of-gradients",
    "gradient-for-a-non-tensor",
    "gradient-too-small-for-its-input",
    "gradient-too-large-for-its-input",
    "broadcasting-not-summed",
    "missing-grad-output-factor",
    "missing-1-n-of-a-mean",
    "needs-input-grad-ignored",
    "saved-intermediate-and-double-backward",
    "non-contiguous-grad-output",
    "dtype-changed-by-float",
    "buffer-without-dtype-or-device",
    "rng-not-replayed",
    "parameters-forgotten-in-checkpointing",
    "calling-the-class",
    "legacy-non-static-forward",
    "backward-on-a-non-scalar",
    "backward-twice",
    "tuple-or-list-inputs",
    "keyword-only-arguments",
    "saved-tensors-read-twice-under-checkpoint",
    "reference-cycles",
    "data-dependent-control-flow-under-compile",
    "operator-without-an-autograd-kernel",
    "identity-that-returns-its-input",
    "two-functions-debugged-at-once",
]
# Why gradcheck fails, where it is none of the above.
FAILURES = [
    "missing-transpose",
    "wrong-saved-tensor",
    "missing-gradient",
    "gradcheck-in-float32",
    "gradcheck-at-a-kink",
    "gradcheck-of-a-random-function",
]


@pytest.mark.parametrize("name", all_checks())
def test_a_check_is_shown_with_one_broken_and_one_fixed_function(name: str) -> None:
    broken, fixed = programs.shown_for(name)
    assert {thing.__module__ for thing in (broken.thing, fixed.thing)} == {
        f"{programs.__name__}.{all_checks()[name].family}"
    }


def test_every_function_of_the_programs_is_shown() -> None:
    shown = {specimen.name for name in all_checks() for specimen in programs.shown_for(name)}
    assert {
        name for name, s in (programs.BROKEN | programs.RIGHT).items() if programs.__name__ in s.thing.__module__
    } == shown


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_a_page(family: str) -> None:
    assert f"\n```{{checks}} {family}\n```\n" in (PAGES / f"{family}.md").read_text()


def test_the_index_lists_the_families_in_the_order_of_the_audit() -> None:
    toctree = (PAGES / "index.md").read_text().partition("```{toctree}")[2].partition("```")[0]
    assert tuple(line for line in toctree.split() if not line.startswith(":")) == GROUPS + FAMILIES
    assert {path.stem for path in PAGES.glob("*.md")} == {"index", *GROUPS, *FAMILIES}


def test_the_groups_come_before_the_families() -> None:
    index = (PAGES / "index.md").read_text()
    assert 0 < index.find("```{pitfall-index}") < index.find("```{check-index}")


def test_every_mistake_has_its_section() -> None:
    names = [pitfall.name for pitfall in PITFALLS]
    assert {*MISTAKES, *FAILURES} <= {*names}
    assert len({*names}) == len(names)


def test_titles_differ() -> None:
    titles = [pitfall.title.lower() for pitfall in PITFALLS]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("group", GROUPS)
def test_a_page_ends_with_its_sources(group: str) -> None:
    text = (PAGES / f"{group}.md").read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[-1] == "Sources"
    assert f'assert not list(disagreements("{group}.md"))' in text, "the page does not compare links and verdicts"


@pytest.mark.parametrize("pitfall", PITFALLS, ids=lambda p: p.name)
def test_a_pitfall_has_symptom_broken_why_fixed_and_verdict(pitfall: Pitfall) -> None:
    cells = re.findall(r"^```\{code-cell\} python\n(.*?)^```$", pitfall.text, re.DOTALL | re.MULTILINE)
    assert len(cells) >= 3, "a section has the broken program, the fixed one, what else is to be seen, the verdict"
    broken, fixed, *_, verdict = cells
    assert all("print(" in cell for cell in (broken, fixed)), "both programs print what comes out"
    assert re.search(r"^verdict\(.+\)$", verdict, re.MULTILINE)
    symptom, _, rest = pitfall.text.partition("```{code-cell}")
    assert symptom.strip(), "what a reader sees comes first"
    assert "**Why.** " in rest.partition("```{code-cell}")[0]


@pytest.mark.parametrize("pitfall", PITFALLS, ids=lambda p: p.name)
def test_a_pitfall_links_the_checks_that_find_it_or_says_that_there_is_none(pitfall: Pitfall) -> None:
    assert bool(pitfall.checks) != ("No check applies" in pitfall.text)
    assert set(pitfall.checks) <= set(all_checks())
