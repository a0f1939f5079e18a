"""The small inventories of other projects' documentation name things that exist."""

import builtins
from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "inventories"


def entries(name: str) -> list[str]:
    return [line.split()[0] for line in (FOLDER / name).read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("inventory", ["torch.inv", "python.inv"])
def test_entries_are_sorted_and_stand_once(inventory: str) -> None:
    names = [line for line in (FOLDER / inventory).read_text().splitlines() if not line.startswith("#")]
    assert names == sorted(set(names))


@pytest.mark.parametrize("name", sorted({*entries("torch.inv"), *entries("python.inv")}))
def test_entry_names_an_object(name: str) -> None:
    if hasattr(builtins, name) or name == "None":
        return
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return
    raise AssertionError(f"no module for {name}")
