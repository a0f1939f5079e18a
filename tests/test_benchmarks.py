"""What is stored of recipes is of the recipes as they are. Bytes are exact and tested here; times are only read."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from docs._ext import digests, results, trades
from docs._ext.results import LABELS

from autograd_cookbook.auditing import capability_names, kept_bytes
from autograd_cookbook.auditing.checks import all_checks
from autograd_cookbook.catalog import BY_NAME, RECIPES, Recipe, _source
from tests.support import HANG

ROOT = Path(__file__).parents[1]
COSTLY = [recipe for recipe in RECIPES if recipe.cost]
each_cost = pytest.mark.parametrize("recipe", [pytest.param(r, id=r.name) for r in COSTLY])
# A column wins if it is better than all others by more than rounding or the noise of a machine.
CLEARLY = {"bytes": ("saved", 0.99), "peak": ("peak", 0.99), "time": ("time", 0.9)}


def test_nothing_that_is_stored_is_stale() -> None:
    stale = {recipe.name: kinds for recipe in RECIPES if (kinds := results.stale(recipe))}
    assert not stale, f"run nox -s refresh, or nox -s refresh -- {' '.join(stale)}: {stale}"
    assert not results.gone(), f"run nox -s refresh: there are no such recipes on these pages: {results.gone()}"


def test_what_is_stored_says_where_it_was_measured() -> None:
    for kind in ("cost", "checking"):
        for name, row in results.rows(kind).items():
            assert all(row["on"][key] for key in ("date", "device", "threads", "torch", "python")), f"{kind} of {name}"
            assert row["on"]["torch"] == digests.torch(), f"run nox -s refresh -- {name}"


def test_the_times_of_checking_are_there() -> None:
    for name, row in results.rows("checking").items():
        assert set(row["seconds"]) == {"gradcheck", "fast mode", "gradgradcheck", "audit"}, name
        assert all(seconds > 0 for seconds in row["seconds"].values()), name
        assert "audit" not in row.get("faults", {}), f"the audit found fault with {name}"


def test_the_site_has_a_label_for_every_capability() -> None:
    """Without one, it would not be shown; recipes are functions, so that what modules can do is not."""
    known = set(capability_names()) - {"module_copies"}
    assert not known - set(LABELS), f"give these a label in docs/_ext/results.py: {sorted(known - set(LABELS))}"
    assert not set(LABELS) - known, f"no check of the audit tells about {sorted(set(LABELS) - known)}"


# --- costs ---


@pytest.mark.slow("src/autograd_cookbook/recipes", "src/autograd_cookbook/catalog", "src/autograd_cookbook/auditing")
@each_cost
def test_it_keeps_the_bytes_that_it_says(recipe: Recipe) -> None:
    torch.manual_seed(0)
    args = recipe.cost.inputs()
    count = recipe.cost.count(args)
    assert count >= 1_000_000, f"{recipe.name} is measured on {count} {recipe.cost.unit}s: too few to mean much"
    kept = kept_bytes(recipe.function, *args) / count
    assert kept == pytest.approx(recipe.cost.saved, abs=5e-4), (
        f"{recipe.name} keeps {kept:.4f} bytes per {recipe.cost.unit}, the catalog says {recipe.cost.saved}"
    )
    assert recipe.cost.saved >= recipe.cost.minimum, f"{recipe.name} keeps less than is possible"


@each_cost
def test_the_stored_costs_are_its_own(recipe: Recipe) -> None:
    contenders = results.measured(recipe, "cost")["contenders"]
    expected = {"composition": recipe.cost.composition, "built-in": recipe.cost.built_in, "ours": recipe.function}
    compiled = {"composition, compiled", "ours, compiled"}  # where torch compiles them
    assert set(contenders) - compiled == {name for name, function in expected.items() if function}
    assert contenders["ours"]["saved"] == pytest.approx(recipe.cost.saved, abs=5e-4)


@each_cost
def test_what_it_says_to_win_it_wins(recipe: Recipe) -> None:
    contenders = results.measured(recipe, "cost")["contenders"]
    others = [row for name, row in contenders.items() if not name.startswith("ours")]
    for column, (key, factor) in CLEARLY.items():
        ahead = bool(others) and all(contenders["ours"][key] < factor * row[key] for row in others)
        claimed = column in recipe.cost.wins
        # Bytes are exact. A time that is ahead by chance must not make anybody claim it.
        assert ahead == claimed or (column == "time" and not claimed), (
            f"{recipe.name}: ours {contenders['ours'][key]}, others {[row[key] for row in others]} in {column}, "
            f"and the catalog says that it {'wins' if claimed else 'does not win'}"
        )


# --- files ---


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    return tmp_path


def test_what_was_stored_is_read_again(folder: Path) -> None:
    """Of recipes that lack nothing, something alike, and something of their own; one was timed elsewhere."""
    summary = "no vmap: it raises RuntimeError"
    wrong = "complex inputs are accepted, and the gradient is wrong"
    can = dict.fromkeys(LABELS, "yes")
    checks = list(all_checks())
    whole = {"capabilities": can, "saved_bytes": 0, "checks": checks, "findings": [], "notes": []}
    rows = {
        "square": whole,
        "power": whole | {"capabilities": can | {"vmap": "no"}, "findings": [["vmap", summary]], "saved_bytes": None},
        "clamp": whole
        | {
            "capabilities": can | {"vmap": "no", "complex128": "wrong"},
            "findings": [["vmap", summary], ["complex128", wrong]],
            "checks": checks[:-1],
            "notes": ["a note"],
        },
    }
    for name, row in rows.items():
        results.store(BY_NAME[name], "verified", row)
    here, elsewhere = results.place(), results.place() | {"date": "2000-01-01"}
    for name, on in (("square", here), ("power", here), ("clamp", elsewhere)):
        results.store(BY_NAME[name], "checking", {"on": on, "inputs": 12})
        found = results.measured(BY_NAME[name], "checking")
        assert found == {"on": on, "digest": digests.checking(BY_NAME[name]), "inputs": 12}
    for name, row in rows.items():
        assert results.measured(BY_NAME[name], "verified") == {"digest": digests.verified(BY_NAME[name])} | row
    text = (folder / "elementwise.json").read_text()
    assert (text.count(summary), text.count('"python"'), text.count('"yes"')) == (1, 2, 0)
    assert results.stale(BY_NAME["square"]) == ("cost",)
    with pytest.raises(LookupError, match=re.escape("run nox -s refresh -- elu")):
        results.measured(BY_NAME["elu"], "verified")


def test_what_is_gone_is_forgotten(folder: Path) -> None:
    on = results.place()
    results.write(folder / "masks.json", {"cost": {"square": {"on": on}, "packed_relu": {"on": on}}})
    results.write(folder / "no_page.json", {"checking": {"relu": {"on": on}}})
    assert results.gone() == {"masks": ["square"], "no_page": ["relu"]}
    for page in results.gone():
        results.forget_gone(page)
    assert not results.gone()
    assert [path.name for path in folder.iterdir()] == ["masks.json"]


def test_what_has_changed_is_told() -> None:
    """But for a number that has moved by a tenth, and for what was there before."""
    row = {
        "on": 1,
        "digest": "a",
        "capabilities": {"vmap": "yes", "empty": "yes"},
        "saved_bytes": 96,
        "checks": ["runs"],
    }
    now = row | {"on": 2, "digest": "b", "saved_bytes": 100, "seconds": {"audit": 1.0}}
    assert list(results.changes(row, row | {"saved_bytes": 100})) == []
    now |= {"capabilities": {"vmap": "no", "empty": "yes"}, "findings": [["vmap", "no vmap: it raises"]], "checks": []}
    assert set(results.changes(row, now)) == {
        "capabilities vmap: yes → no",
        "findings vmap: – → no vmap: it raises",
        "checks runs: yes → –",
        "seconds audit: – → 1.0",
    }
    assert list(results.changes({"time": 1.0}, {"time": 1.2})) == ["time: 1.0 → 1.2"]


def test_a_name_that_nothing_has_is_refused() -> None:
    command = [sys.executable, "-m", "benchmarks.refresh", "logsumexq"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 1
    assert "'logsumexq'; did you mean logsumexp" in done.stderr


# --- digests ---


BEFORE = '''
"""A module."""
from typing import Any
from torch import Tensor

def backward(ctx: Any, grad_output):
    """The gradient."""
    (x,) = ctx.saved_tensors  # saved
    if x is not None:
        grad_output = 2 * x * grad_output
    return grad_output
'''
SAME = """
from torch import Tensor


def backward(ctx, grad_output: Tensor) -> Tensor:
    (x,) = (
        ctx.saved_tensors
    )
    if x is not None: grad_output = 2*x*grad_output
    return grad_output
"""


def test_a_digest_changes_with_code_and_not_with_the_way_it_is_written() -> None:
    assert digests.tree(BEFORE) == digests.tree(SAME)
    for old, new in (
        ("2 *", "3 *"),
        ("    return", "        return"),
        ("is not", "is"),
        ("2 * x", "x * 2"),
        ("Tensor", "nn"),
    ):
        assert digests.tree(BEFORE) != digests.tree(BEFORE.replace(old, new)), new


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str], None]]:
    """Has a file read with a piece of text replaced."""
    read_text = Path.read_text

    def replace(file: str, old: str, new: str) -> None:
        def changed(self: Path, *args: str, **kwargs: str) -> str:
            text = read_text(self, *args, **kwargs)
            if self.as_posix().endswith(file):
                assert old in text
                return text.replace(old, new)
            return text

        monkeypatch.setattr(Path, "read_text", changed)
        forget()

    yield replace
    monkeypatch.undo()
    forget()


def forget() -> None:
    for cached in (digests.audit, digests.torch, digests.files, digests._alone, digests._top_level, _source._read):
        cached.cache_clear()


AUDIT, COST, CHECKING = digests.BY_KIND
CATALOG, SAMPLES = "catalog/elementwise.py", "catalog/_samples.py"


@pytest.mark.parametrize(
    ("file", "old", "new", "of_square", "of_gelu"),
    [
        pytest.param("recipes/elementwise.py", ".mul_(2)", ".mul_(3)", {AUDIT, COST, CHECKING}, set(), id="backward"),
        pytest.param(SAMPLES, "(complex_randn(3),)", "(complex_randn(4),)", {AUDIT, CHECKING}, set(), id="samples"),
        pytest.param(CATALOG, "built_in=torch.square", "built_in=torch.exp", {COST}, set(), id="contender"),
        pytest.param(SAMPLES, "randn(1000", "randn(2000", {COST}, {COST}, id="what they share"),
        pytest.param("checks/contract.py", "yield", "return; yield", {AUDIT}, {AUDIT}, id="a check"),
        pytest.param("auditing/report.py", "✗", "x", set(), set(), id="how reports are printed"),
        pytest.param("benchmarks/costs.py", "3.0", "4.0", {COST}, {COST}, id="measurement"),
        pytest.param(
            "constraints.txt", "torch==", "torch==1", {AUDIT, COST, CHECKING}, {AUDIT, COST, CHECKING}, id="torch"
        ),
    ],
)
def test_what_depends_on_a_change_becomes_stale(
    file: str, old: str, new: str, of_square: set[str], of_gelu: set[str], change: Callable[[str, str, str], None]
) -> None:
    def now() -> dict[str, dict[str, str]]:
        return {name: {k: of(BY_NAME[name]) for k, of in digests.BY_KIND.items()} for name in ("square", "gelu")}

    before = now()
    change(file, old, new)
    stale = {name: {kind for kind in found if found[kind] != before[name][kind]} for name, found in now().items()}
    assert stale == {"square": of_square, "gelu": of_gelu}


def test_a_recipe_that_takes_long_is_named_with_what_it_gains() -> None:
    recipe = BY_NAME["norm"]  # it wins "range" and "second order"
    ours, theirs = {"saved": 0.0, "peak": 8.0, "time": 1.0}, {"saved": 4.0, "peak": 8.0, "time": 0.5}
    said = trades.trade(recipe, {"ours": ours, "composition": theirs})
    assert said == (
        " takes 2 times as long as a composition of PyTorch operations. "
        "In return, the recipe keeps 0 bytes per element instead of 4, "
        "is right for some inputs for which the composition returns NaN, infinity or an inaccurate number "
        "and has a second derivative."
    )
    assert trades.trade(recipe, {"ours": ours, "composition": theirs | {"time": 0.7}}) is None
    assert trades.trade(recipe, {"ours": ours}) is None
    nothing = trades.trade(BY_NAME["square"], {"ours": ours, "composition": ours | {"time": 0.5}})
    assert nothing == " takes 2 times as long as a composition of PyTorch operations and has no advantage over it."


def test_a_recipe_that_keeps_more_compiled_is_named() -> None:
    rows = {"ours": {"saved": 0.25}, "ours, compiled": {"saved": 4.5}, "composition": {"saved": 8}}
    said = " keeps 4.5 bytes per element when you compile it, instead of 0.25 in eager mode."
    for kept, end in (
        (0.3, "compile a composition if memory decides"),
        (4.5, "the recipe saves memory in eager mode only"),
        (8, "the recipe still saves memory"),
    ):
        theirs = f" A composition of PyTorch operations keeps {kept} when compiled, so {end}."
        assert trades.compiled(BY_NAME["norm"], rows | {"composition, compiled": {"saved": kept}}) == said + theirs
    alike = rows | {"composition": {"saved": 0.25}, "composition, compiled": {"saved": 4.5}}
    assert trades.compiled(BY_NAME["norm"], alike).endswith(", so the recipe saves no memory in either mode.")
    assert trades.compiled(BY_NAME["norm"], rows) == said
    assert trades.compiled(BY_NAME["norm"], rows | {"ours, compiled": {"saved": 0.25}}) is None
    assert trades.compiled(BY_NAME["norm"], {"ours": {"saved": 0.25}}) is None


def test_the_verdict_on_a_recipe_compares_it_with_what_torch_has() -> None:
    ours, built_in = {"saved": 0.125, "peak": 13.0, "time": 1.0}, {"saved": 4.0, "peak": 13.1, "time": 0.25}
    said = trades.verdict(BY_NAME["norm"], {"composition": ours, "built-in": built_in, "ours": ours})
    assert said == (
        "Compared with torch.linalg.vector_norm, the recipe keeps 0.125 instead of 4 bytes per element "
        "for backward and takes 4 times as long."
    )
    said = trades.verdict(BY_NAME["norm"], {"composition": ours | {"time": 0.95}, "ours": ours})
    assert said == (
        "Compared with a composition of PyTorch operations, the recipe keeps the same number of bytes for "
        "backward (0.125 per element) and takes about as long."
    )
    said = trades.verdict(BY_NAME["norm"], {"built-in": built_in | {"peak": 26.0}, "ours": ours})
    assert "4 bytes per element for backward, peaks at 13 instead of 26 bytes and takes" in said
    unnamed = next(r for r in BY_NAME.values() if r.cost and getattr(r.cost.built_in, "__name__", "") == "<lambda>")
    assert trades.verdict(unnamed, {"built-in": ours, "ours": ours}).startswith("Compared with PyTorch's own solution,")
    alone = trades.verdict(BY_NAME["norm"], {"ours": ours})
    assert alone == "The recipe keeps 0.125 bytes per element for backward and peaks at 13."


def test_the_built_in_is_named_where_a_measurement_is_for_it() -> None:
    ours, faster = {"saved": 4.0, "peak": 12.0, "time": 1.0}, {"saved": 4.0, "peak": 12.0, "time": 0.5}
    said = trades.instead(BY_NAME["square"], {"ours": ours, "built-in": faster})  # it wins "peak" alone
    assert said == ": in our measurement, torch's function is as good or better in memory and time."
    said = trades.instead(BY_NAME["square"], {"ours": ours | {"saved": 0.0}, "built-in": faster})
    assert said == " unless you need fewer bytes for backward. Torch's function takes 0.5 times as long."
    assert trades.instead(BY_NAME["square"], {"ours": ours, "built-in": faster | {"time": 2.0}}) is None
    said = trades.instead(BY_NAME["norm"], {"ours": ours, "built-in": faster})  # it wins "range" and "second order"
    assert said == (
        " unless you need the right result for inputs for which torch returns NaN, infinity or an inaccurate number "
        "and a second derivative. Torch's function takes 0.5 times as long."
    )


@pytest.mark.parametrize("page", sorted({recipe.page for recipe in COSTLY}))
def test_every_page_has_the_section_that_names_them(page) -> None:
    (script,) = (ROOT / "examples").glob(f"*/{page}.py")
    assert f"\n# {trades.FIRST}\n" in script.read_text()
