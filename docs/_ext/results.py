"""What was measured, and is stored under ``benchmarks/results``: a file for each page of the cookbook, and some others.

A page's file has a row for each of its recipes in what is ``verified``, what it ``cost``s, and what ``checking`` it
costs; ``nox -s refresh`` writes it. Only what is not as usual is in it: a capability that is "yes" is not, and what the
audits of several recipes found alike stands there once. The functions here give and take whole rows.
"""

import datetime
import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from docs._ext import digests

from autograd_cookbook.auditing import audit
from autograd_cookbook.auditing.checks import all_checks
from autograd_cookbook.catalog import RECIPES, Recipe

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
Kind = Literal["verified", "cost", "checking"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Row = dict[str, Any]
WIDTH = 150  # of a line in a file
NOISE = 0.1  # a number that moves by less is as before: times are never alike
# What the site calls each capability, in groups.
GROUPS = {
    "derivatives": {"first_order": "first order", "second_order": "second order", "forward_mode": "forward mode"},
    "transforms": {
        "func_grad": "torch.func",
        "vmap": "vmap",
        "batched_grad": "batched grad",
        "compile": "torch.compile",
        "checkpoint": "checkpoint",
        "saved_tensor_hooks": "saved-tensor hooks",
    },
    "data": {
        "non_contiguous": "any layout",
        "empty": "empty input",
        "float32": "float32",
        "float16": "float16",
        "bfloat16": "bfloat16",
        "autocast": "autocast (AMP)",
        "complex128": "complex numbers",
    },
}
LABELS = {name: label for group in GROUPS.values() for name, label in group.items()}


class NotMeasuredError(LookupError):
    """A recipe, new or renamed, of which nothing is stored yet."""


def due(recipe: Recipe) -> tuple[Kind, ...]:
    """What is measured of a recipe: a tool cannot be audited, and some have nothing to be compared with."""
    return tuple(kind for kind in KINDS if (recipe.cost if kind == "cost" else recipe.calls))


def stale(recipe: Recipe) -> tuple[Kind, ...]:
    """What is due of a recipe, and was not measured of the code as it is."""
    pages = _rows_of(recipe.page)
    return tuple(
        kind for kind in due(recipe) if pages[kind].get(recipe.name, {}).get("digest") != digests.BY_KIND[kind](recipe)
    )


def measured(recipe: Recipe, kind: Kind) -> Row:
    """The row of a recipe, with the digest of what it depends on, and of what is timed the place, as "on".

    Raises:
        NotMeasuredError: if there is none.
    """
    row = _rows_of(recipe.page)[kind].get(recipe.name)
    if row is None:
        raise NotMeasuredError(f"{kind!r} of recipe {recipe.name!r} is not stored: run nox -s refresh -- {recipe.name}")
    return row


def rows(kind: Kind) -> dict[str, Row]:
    """The rows of all recipes that have one, by name and in the order of the catalog."""
    pages = {page: _rows_of(page)[kind] for page in dict.fromkeys(recipe.page for recipe in RECIPES)}
    return {r.name: pages[r.page][r.name] for r in RECIPES if r.name in pages[r.page]}


def verify(recipe: Recipe) -> Row:
    """What is kept of an audit of the typical sample, now.

    Raises:
        AuditError: if the audit finds an error or a warning, or the recipe cannot do what it promises.
    """
    torch.manual_seed(0)
    options = {"budget": None} | recipe.audit_options
    report = audit(recipe.function, recipe.calls[0].args, require=recipe.promises, **options)
    report.raise_for_findings()
    order = list(all_checks())
    return {
        "capabilities": report.capabilities,
        "saved_bytes": report.saved_bytes,
        "checks": list(report.checks),
        "findings": sorted(([f.check, f.summary] for f in report.findings), key=lambda found: order.index(found[0])),
        "notes": list(report.notes),
    }


def place() -> Row:
    """When and where something is measured, and with which versions."""
    return {
        "date": datetime.date.today().isoformat(),
        "device": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
    }


def processor() -> str:
    """The name of the processor, where the system tells."""
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def changes(before: Row, now: Row) -> Iterator[str]:
    """What is otherwise, a line each."""
    old, new = (_leaves({key: row[key] for key in row if key not in ("on", "digest")}) for row in (before, now))
    for name in old | new:
        a, b = old.get(name), new.get(name)
        numbers = isinstance(a, int | float) and isinstance(b, int | float)
        if a != b and not (numbers and abs(a - b) <= NOISE * abs(a)):
            yield f"{name}: {'–' if a is None else a} → {'–' if b is None else b}"


def _leaves(value: Any, name: str = "") -> dict[str, Any]:
    """Each number or text in a row, with the words that lead to it."""
    if isinstance(value, list):  # of names, or of pairs of a name and a text
        value = {
            item if isinstance(item, str) else item[0]: "yes" if isinstance(item, str) else item[1] for item in value
        }
    if not isinstance(value, dict):
        return {name: value}
    return {k: leaf for key, each in value.items() for k, leaf in _leaves(each, f"{name} {key}".strip()).items()}


# --- files ---


def file_of(page: str) -> Path:
    """Where the results of a page are."""
    return RESULTS / f"{page}.json"


def store(recipe: Recipe, kind: Kind, row: Row) -> None:
    """Put a row in the file of its page, with its digest; what an audit says is alike everywhere, and has no place."""
    tables = _rows_of(recipe.page)
    on = {} if kind == "verified" else {"on": place()}
    tables[kind][recipe.name] = on | {"digest": digests.BY_KIND[kind](recipe)} | row
    _save(recipe.page, tables)


def gone() -> dict[str, list[str]]:
    """What is stored of recipes that are not in the catalog, or not on that page: names by page."""
    found = {path.stem: read(path) for path in sorted(RESULTS.glob("*.json"))}
    names = {page: {name for kind in KINDS for name in stored.get(kind, ())} for page, stored in found.items()}
    there = {(recipe.page, recipe.name) for recipe in RECIPES}
    left = {page: sorted(name for name in names[page] if (page, name) not in there) for page in names}
    return {page: names for page, names in left.items() if names}


def forget_gone(page: str) -> None:
    """Write the file of a page without what is gone."""
    _save(page, _rows_of(page))


def _save(page: str, tables: dict[Kind, dict[str, Row]]) -> None:
    names = [recipe.name for recipe in RECIPES if recipe.page == page]
    tables = {kind: {name: rows[name] for name in names if name in rows} for kind, rows in tables.items()}
    alike: dict[str, dict[str, list[str]]] = {}
    for name, row in tables["verified"].items():
        for check, summary in row["findings"]:
            alike.setdefault(check, {}).setdefault(summary, []).append(name)
    tables["verified"] = {name: _thin(row) for name, row in tables["verified"].items()}
    write(file_of(page), tables, findings=alike)


def _rows_of(page: str) -> dict[Kind, dict[str, Row]]:
    stored = read(file_of(page))
    tables = {kind: rows_in(stored, kind) for kind in KINDS}
    for name, row in stored.get("verified", {}).items():
        alike = stored.get("findings", {})
        found = [
            [check, summary]
            for check in all_checks()
            for summary, names in alike.get(check, {}).items()
            if name in names
        ]
        tables["verified"][name] = _whole(row | {"findings": found})
    return tables


def _thin(row: Row) -> Row:
    """Without what is as usual, and without the findings, which say most of what a recipe cannot do."""
    usual = _usual(row["findings"])
    thin = {key: value for key, value in row.items() if key != "checks" and value != usual.get(key)}
    if "capabilities" in thin:
        can = usual["capabilities"]
        thin["capabilities"] = {name: v for name, v in row["capabilities"].items() if v != can.get(name)}
    if skipped := [name for name in usual["checks"] if name not in row["checks"]]:
        thin["skipped"] = skipped
    return thin


def _whole(row: Row) -> Row:
    """The row that was made thin, given its findings."""
    usual = _usual(row["findings"])
    skipped = row.pop("skipped", ())
    capabilities = usual["capabilities"] | row.get("capabilities", {})
    checks = [name for name in usual["checks"] if name not in skipped]
    # As in the file, from which a renewed row must not differ by its order.
    return dict.fromkeys(row) | usual | row | {"capabilities": capabilities, "checks": checks}


def _usual(findings: list[list[str]]) -> Row:
    """The audit of a recipe that can do all, but for what the findings say."""
    lacks = {check: "no" for check, summary in findings if summary.startswith(f"no {check}: ")}
    return {
        "capabilities": dict.fromkeys(LABELS, "yes") | lacks,
        "saved_bytes": 0,
        "checks": list(all_checks()),
        "findings": findings,
        "notes": [],
    }


def read(path: Path) -> dict[str, Any]:
    """A file of results, empty if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def rows_in(stored: dict[str, Any], table: str) -> dict[str, Row]:
    """The rows of a table by name, each with its place: most have that of the file."""
    return {name: {"on": stored.get("on")} | row for name, row in stored.get(table, {}).items()}


def write(path: Path, tables: Mapping[str, Mapping[str, Row]], **more: Any) -> None:
    """Write tables of rows to a file, which is whole or not there; the place of most rows stands there once."""
    if not any(tables.values()):
        path.unlink(missing_ok=True)
        return
    places = Counter(json.dumps(row["on"]) for rows in tables.values() for row in rows.values() if "on" in row)
    on = json.loads(max(places, key=places.__getitem__, default="null"))
    thin = {
        table: {name: {k: v for k, v in row.items() if (k, v) != ("on", on)} for name, row in found.items()}
        for table, found in tables.items()
    }
    stored = {key: value for key, value in ({"on": on} | more | thin).items() if value}
    partial = path.with_suffix(".partial")
    partial.write_text(text_of(stored) + "\n", encoding="utf-8")
    partial.replace(path)


def text_of(value: Any, indent: int = 0) -> str:
    """JSON in lines that can be compared: what fits in a line is in one."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict) or indent + len(line) < WIDTH:
        return line
    space = " " * (indent + 1)
    items = [
        f"{space}{json.dumps(key, ensure_ascii=False)}: {text_of(each, indent + 1)}" for key, each in value.items()
    ]
    return ",\n".join(["{\n" + items[0], *items[1:]]) + "\n" + space[1:] + "}"
