"""What the audit finds in functions whose verdict is known, next to torch's own checks: stored rows, tables of them.

``python -m tests.auditing.measure`` makes the rows.
"""

import statistics
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from docs._ext import results

FINDINGS = results.RESULTS / "findings.json"


@dataclass(frozen=True)
class Row:
    """What each tool makes of one function.

    Args:
        digest: of its source, to see what has changed since.
        seconds: of gradcheck and gradgradcheck, and of the audit; None if they included the compiler.
        family: of the check that has to find the mistake; "" for a right function.
        gradcheck: whether it alarms, with torch's defaults, on the sample.
        gradgradcheck: the same, run only where gradcheck is content.
        opcheck: the same, for the operators of torch.library that it calls; None if there is none.
        wrong: how the verdict of the audit differs from the known one; "" if it does not.
        excuse: why gradcheck or gradgradcheck alarms though the function is right: "declared" to have another gradient,
            a second derivative is "refused", or what is special about it, in a sentence.
        on: when and where this was measured, with which versions and by which audit.
    """

    digest: str
    seconds: tuple[float, float | None]
    family: str = ""
    gradcheck: bool = False
    gradgradcheck: bool = False
    opcheck: bool | None = None
    wrong: str = ""
    excuse: str = ""
    on: dict[str, Any] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        """Whether there is something to find."""
        return bool(self.family)


# --- The file ---


def stored() -> dict[str, Row]:
    """The rows, as measured last, by the names of the functions."""
    rows = results.rows_in(results.read(FINDINGS), "functions")
    return {name: Row(**row | {"seconds": tuple(row["seconds"])}) for name, row in rows.items()}


def store(rows: Mapping[str, Row]) -> None:
    """Write them, without what is as usual."""
    usual = {f.name: f.default for f in fields(Row)}
    thin = {name: {k: v for k, v in asdict(row).items() if v != usual[k]} for name, row in rows.items()}
    results.write(FINDINGS, {"functions": thin})


def first_sight() -> list[dict[str, Any]]:
    """The sets of functions by authors who did not know the checks, with what the audit then made of them."""
    return tomllib.loads((results.RESULTS / "first_sight.toml").read_text(encoding="utf-8"))["sets"]


# --- Tables ---


def by_family(rows: Mapping[str, Row]) -> list[dict[str, Any]]:
    """For each family, and for all of them: how many broken functions there are, and how many each tool finds.

    gradgradcheck counts with gradcheck, which runs before it; opcheck comes with the number that call an operator.
    """
    broken = [row for row in rows.values() if row.broken]
    sizes = Counter(row.family for row in broken)
    table = [_counts(family, [row for row in broken if row.family == family]) for family, _ in sizes.most_common()]
    return [*table, _counts("all", broken)]


def by_set(rows: Mapping[str, Row]) -> list[dict[str, Any]]:
    """For each set by authors who did not know the checks: of how many functions each tool says what is so."""
    return [
        _counts(s["name"], [rows[name] for name in s["functions"]], lambda row: row.broken)
        | {"first sight": s["judged_right"]}
        for s in first_sight()
    ]


def false_alarms(rows: Mapping[str, Row]) -> dict[str, Any]:
    """The counts of the right functions, for which each alarm is false."""
    return _counts("right", [row for row in rows.values() if not row.broken])


def _counts(name: str, rows: Iterable[Row], counted: Callable[[Row], bool] = lambda row: True) -> dict[str, Any]:
    """For how many rows each tool alarms, or does not, as ``counted`` wants it."""
    rows = list(rows)
    alarms: dict[str, Callable[[Row], bool]] = {
        "gradcheck": lambda row: row.gradcheck,
        "gradgradcheck": lambda row: row.gradcheck or row.gradgradcheck,
        "opcheck": lambda row: bool(row.opcheck),
        "audit": lambda row: row.broken != bool(row.wrong),
    }
    return {
        "name": name,
        "functions": len(rows),
        "operators": sum(row.opcheck is not None for row in rows),
        **{tool: sum(alarm(row) == counted(row) for row in rows) for tool, alarm in alarms.items()},
    }


def seconds(rows: Mapping[str, Row]) -> dict[str, float]:
    """Medians: of the audit's seconds, of those of gradcheck and gradgradcheck, and of the ratio of the two."""
    timed = [row.seconds for row in rows.values() if row.seconds[1] is not None]
    return {
        "torch": statistics.median(torch for torch, _ in timed),
        "audit": statistics.median(audit for _, audit in timed),
        "ratio": statistics.median(audit / torch for torch, audit in timed if torch),
    }
