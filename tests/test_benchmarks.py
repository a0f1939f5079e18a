"""The stored results are whole, and about recipes that exist."""

import json
from pathlib import Path

import pytest

from autograd_cookbook.catalog import BY_NAME

RESULTS = sorted((Path(__file__).parents[1] / "benchmarks" / "results").glob("*.json"))


def test_there_are_results() -> None:
    assert [path.stem for path in RESULTS] == ["memory", "speed"]


@pytest.mark.parametrize("path", RESULTS, ids=[path.stem for path in RESULTS])
def test_a_result_says_what_it_was_measured_on(path: Path) -> None:
    record = json.loads(path.read_text())
    for key in ("date", "device", "threads", "torch", "python", "elements"):
        assert record[key], f"{path.name} does not say its {key}"
    unknown = set(record["rows"]) - set(BY_NAME)
    assert not unknown, f"{path.name} has {unknown}, which the catalog has not: run nox -s bench"
    for name, row in record["rows"].items():
        assert {"ours", "reference"} <= set(row), f"{path.name}: {name} has no column to compare with"
