"""Scaffolds for what people add: ``nox -s add -- recipe NAME``, or ``check``, ``error``, ``pitfall``.

The templates next to this script run as they are. Each part that is still to be written has the mark ``WRITE(NAME):``
and says what; tests/test_repository.py fails once for each mark.
"""

import argparse
import difflib
import keyword
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEMPLATES = Path(__file__).parent
MARK = "WRITE("
NOX = "python -m nox -s"

RECIPES = Path("src/autograd_cookbook/recipes")
CATALOG = Path("src/autograd_cookbook/catalog")
CHECKS = Path("src/autograd_cookbook/auditing/checks")
ERRORS = Path("docs/errors/programs")
PITFALLS = Path("docs/pitfalls")


class AddError(Exception):
    """Why nothing was written."""


class Scaffold:
    """The new text of each file. Nothing is written before all of it is known."""

    def __init__(self, kind: str, name: str, **words: str) -> None:
        self.kind, self.name = kind, name
        spaced = re.sub("[-_]", " ", name)
        self.words = {
            "newname": name,
            "NEWNAME": name.upper(),
            "NewName": spaced.title().replace(" ", ""),
            "Newname": spaced.capitalize(),
            "=======": "=" * len(name),
            **words,
        }
        self.texts: dict[Path, str] = {}

    def filled(self, template: str) -> str:
        """A template with the name in place of the placeholders."""
        text = (TEMPLATES / self.kind / template).read_text()
        return re.sub("|".join(map(re.escape, self.words)), lambda match: self.words[match[0]], text)

    def create(self, path: Path, template: str) -> None:
        """Plan a new file."""
        if (ROOT / path).exists():
            raise AddError(f"{path} exists")
        self.texts[path] = self.filled(template)

    def extend(self, path: Path, template: str, before: str = "") -> None:
        """Plan a longer file: with the template before a line, or at its end."""
        text = (ROOT / path).read_text()
        head, separator, tail = text.partition(f"\n{before}\n") if before else (text, "", "")
        if before and not separator:
            raise AddError(f"{path} has no line {before!r}")
        self.texts[path] = head + self.filled(template) + separator + tail

    def write(self) -> None:
        """Write all files, or none."""
        before = {path: (ROOT / path).read_text() if (ROOT / path).exists() else None for path in self.texts}
        try:
            for path, text in self.texts.items():
                (ROOT / path).write_text(text)
        except BaseException:
            for path, text in before.items():
                (ROOT / path).unlink(missing_ok=True) if text is None else (ROOT / path).write_text(text)
            raise


# --- names ---


def valid(name: str) -> str:
    """The name, if it can be that of a Python function and fits into the lines of the templates."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", name) or keyword.iskeyword(name):
        raise AddError(f"{name!r} cannot be its name: use up to 32 lower-case letters, digits and underscores")
    return name


def unused(what: str, name: str, taken: set[str]) -> None:
    """Refuse a name that is taken, and mention those that are like it."""
    if name in taken:
        raise AddError(f"there is a {what} named {name!r} already")
    if near := difflib.get_close_matches(name, taken, n=3, cutoff=0.85):
        print(f"Similar names exist: {', '.join(near)}.")


def one_of(what: str, name: str, known: list[str]) -> str:
    """A name from a list; the number of a section may be left out."""
    for each in known:
        if name in (each, re.sub(r"^\d+_", "", each)):
            return each
    raise AddError(f"there is no {what} {name!r}, only {', '.join(known)}")


def modules(folder: Path) -> list[str]:
    """The modules of a folder, without its helpers."""
    return sorted(path.stem for path in (ROOT / folder).glob("[!_]*.py"))


def names_in(folder: Path, files: str, pattern: str) -> set[str]:
    """What the pattern finds in the files of a folder."""
    texts = (path.read_text() for path in (ROOT / folder).glob(files))
    return {name for text in texts for name in re.findall(pattern, text, re.MULTILINE)}


# --- the four kinds ---


def recipe(name: str, section: str) -> Scaffold:
    """Add a page of the cookbook, with one recipe of the same name."""
    section = one_of("section", section, places(recipe))
    unused("page", valid(name), {path.stem for path in (ROOT / "examples").glob("*/*.py")} | set(modules(RECIPES)))
    unused("recipe", name, names_in(CATALOG, "*.py", r'^    name="(\w+)",$'))
    header = Path("examples", section, "GALLERY_HEADER.rst")
    text = (ROOT / header).read_text()
    order = re.search(r"^\.\. In this order: .*$", text, re.MULTILINE)[0]
    new = Scaffold("recipe", name, **{"section/neighbor": f"{section}/{order.split()[-1]}"})
    new.create(RECIPES / f"{name}.py", "recipes.py")
    new.create(Path(f"tests/recipes/test_{name}.py"), "tests.py")
    new.create(CATALOG / f"{name}.py", "catalog.py")
    new.create(Path("examples", section, f"{name}.py"), "examples.py")
    new.texts[header] = text.replace(order, f"{order} {name}")
    return new


def check(name: str, family: str) -> Scaffold:
    """Add a check of the audit, with the broken and the fixed program that the site shows for it."""
    family = one_of("family", family, places(check))
    unused("check", valid(name), names_in(CHECKS, "*.py", r"^def (\w+)\(subject: Subject\)"))
    new = Scaffold("check", name)
    new.extend(CHECKS / f"{family}.py", "check.py")
    new.extend(PITFALLS / "programs" / f"{family}.py", "programs.py")
    return new


def error(name: str, group: str) -> Scaffold:
    """Add a message of PyTorch to the error index, with the program that provokes it and the fixed one."""
    group = one_of("group", group, places(error))
    taken = names_in(ERRORS, "*.py", r"^def (\w+)\(")
    for each in (valid(name), f"{name}_fixed"):
        unused("program", each, taken)
    new = Scaffold("error", name)
    new.extend(ERRORS / f"{group}.py", "program.py")
    return new


def pitfall(name: str, group: str) -> Scaffold:
    """Add a section to one of the pages on what goes wrong, as readers meet it."""
    group = one_of("group", group, places(pitfall))
    name = valid(name.replace("-", "_")).replace("_", "-")
    unused("pitfall", name, names_in(PITFALLS, "*.md", r"^\(pitfall-([a-z0-9-]+)\)=$"))
    new = Scaffold("pitfall", name)
    new.extend(PITFALLS / f"{group}.md", "section.md", before="## Sources")
    return new


KINDS = {recipe: "section", check: "family", error: "group", pitfall: "group"}


def places(kind: Callable[[str, str], Scaffold]) -> list[str]:
    """Where one of a kind can be added."""
    if kind is recipe:
        return sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir())
    if kind is pitfall:
        return sorted(path.stem for path in (ROOT / PITFALLS).glob("*.md") if "disagreements" in path.read_text())
    return modules(CHECKS if kind is check else ERRORS)


def parsed() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="nox -s add --", description="Start one of these from a scaffold that runs.")
    kinds = parser.add_subparsers(required=True, metavar="|".join(kind.__name__ for kind in KINDS))
    for kind, place in KINDS.items():
        one = kinds.add_parser(kind.__name__, help=kind.__doc__, description=kind.__doc__)
        one.add_argument("name")
        known = ", ".join(places(kind))
        if kind is recipe:
            one.add_argument("--section", dest="place", default="01_first_steps", help=f"one of {known}")
        else:
            one.add_argument(f"--{place}", dest="place", required=True, help=f"one of {known}")
        one.set_defaults(kind=kind)
    return parser.parse_args()


def main() -> int:
    """Write the scaffold, and say what to do with it."""
    given = parsed()
    try:
        new = given.kind(given.name, given.place)
        new.write()
    except AddError as refused:
        print(f"nox -s add: {refused}. Nothing was written.", file=sys.stderr)
        return 1
    print(f"These files run. Write the parts marked {MARK}{new.name}), file by file:")
    for number, path in enumerate([path for path, text in new.texts.items() if MARK in text], 1):
        print(f"  {number}. {path}")
    print(f"What is left, a red test for each part: {NOX} tests -- -k {new.name}")
    if given.kind is not pitfall:
        # A new check changes what every audit says.
        stale = "" if given.kind is check else f" -- {new.name}"
        print(f"When the code is written, renew what is stored: {NOX} refresh{stale}")
    print(f"Then look at the page: {NOX} docs -- --page {new.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
