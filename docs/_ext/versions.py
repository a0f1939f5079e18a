"""What differs on other releases of torch than the pinned one, as ``nox -s versions`` stored it.

``benchmarks/results/versions.json`` has a row for each release: how many tests passed, were skipped, and which failed;
and only what is not as on the pinned release: capabilities by recipe, messages that neither the error index nor its
other wordings have, and what the audit and torch's own checks make otherwise of a function of the corpus.
"""

from functools import cache
from typing import Any

import torch
from docs._ext import digests, results
from docs._ext.results import RESULTS, Row
from packaging.version import Version

STORED = RESULTS / "versions.json"


def running() -> str:
    """The release of torch that is installed."""
    return torch.__version__.partition("+")[0]


@cache
def stored() -> dict[str, Row]:
    """The rows of all releases that were run, the oldest first."""
    rows = results.read(STORED)
    return {release: rows[release] for release in sorted(rows, key=Version)}


def differences(kind: str, name: str, release: str | None = None) -> Any:
    """What a release, by default the installed one, has otherwise than the pinned one: None if it is alike."""
    return stored().get(release or running(), {}).get(kind, {}).get(name)


def verified(name: str, row: Row, release: str | None = None) -> Row:
    """The row of a recipe in what is verified, as it is on another release."""
    other = differences("recipes", name, release) or {}
    return row | other | {"capabilities": row["capabilities"] | other.get("capabilities", {})}


def releases() -> list[str]:
    """The releases on which the recipes were audited, with the pinned one, the oldest first."""
    audited = {release for release, row in stored().items() if "recipes" in row}
    return sorted({*audited, digests.torch()}, key=Version)


def verdicts(name: str, row: Row) -> dict[str, dict[str, list[str]]]:
    """By capability, what a recipe is on which releases, given its row on the pinned one."""
    found: dict[str, dict[str, list[str]]] = {capability: {} for capability in results.LABELS}
    for release in releases():
        can = verified(name, row, release)["capabilities"]
        for capability in found:
            found[capability].setdefault(can[capability], []).append(release)
    return found
