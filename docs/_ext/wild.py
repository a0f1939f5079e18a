"""Tables of what the harvest found in public libraries, from what ``nox -s wild`` stored and a person judged."""

import textwrap
from collections import Counter
from collections.abc import Iterator

from wild.libraries import JUDGMENTS, Library, key_of, libraries


def overview() -> str:
    """A row for each library."""
    rows = []
    for library in libraries():
        found, counts = library.found, _counts(library)
        links = [f"[{library.name}](#wild-{library.name})" if library.judged else library.name, library.version]
        numbers = [found["functions"], found["reached"], found["audited"], *(counts[j] for j in JUDGMENTS)]
        rows.append([*links, *numbers, f"{found['seconds']:.0f} s"])
    total = ["**all**", "", *(sum(row[i] for row in rows) for i in range(2, 8))]
    head = ["library", "version", "in the sources", "reached", "audited", *JUDGMENTS, "time"]
    return _table(head, [*rows, [*total, f"{sum(library.found['seconds'] for library in libraries()):.0f} s"]])


def by_check() -> str:
    """How many findings of each check there are, by judgment."""
    counts = Counter((each["check"], each["judgment"]) for library in libraries() for each in library.judged.values())
    checks = sorted({check for check, _ in counts}, key=lambda c: (-counts[c, "true"], c))
    rows = [
        [f"{{ref}}`{check} <check-{check.replace('_', '-')}>`", *(counts[check, j] for j in JUDGMENTS)]
        for check in checks
    ]
    return _table(["check", *JUDGMENTS], rows)


def surrogates() -> str:
    """Which libraries have functions that look like surrogates."""
    counts = [(library.name, len(library.found["surrogates"])) for library in libraries()]
    return "Recognized: " + ", ".join(f"{n} in {name}" for name, n in counts if n) + "."


def sections() -> str:
    """Every library with findings, with each finding and the program that shows it."""
    return "\n".join(line for library in libraries() if library.judged for line in _section(library))


def _section(library: Library) -> Iterator[str]:
    yield f"(wild-{library.name})=\n## {library.name} {library.version}\n"
    program = (library.folder / "use.py").read_text(encoding="utf-8")
    purpose = program.splitlines()[0].strip('"')
    yield f"The program uses it for {purpose[0].lower()}{purpose[1:]}\n"
    yield f"````{{dropdown}} The program that uses the library\n```python\n{program}```\n````\n"
    order = {judgment: rank for rank, judgment in enumerate(JUDGMENTS)}
    judged = [(library.judged[key_of(finding)], finding) for finding in library.found["findings"]]
    for said, finding in sorted(judged, key=lambda pair: order[pair[0]["judgment"]]):
        name = finding["function"].removeprefix(f"{library.package}.")
        what = f"`{finding['check']}` ({finding['severity']}): {_text(finding['summary'].rstrip('.'))}."
        yield f"- **{said['judgment']}**, `{name}`, {what}"
        yield f"  {said['why']}"
        if finding["program"] and said["judgment"] == "true":
            yield textwrap.indent(f"\n````{{dropdown}} The program\n```python\n{finding['program']}```\n````\n", "  ")
        elif said["judgment"] == "true":
            yield "  An argument cannot be written as code. To see this finding, run the program above under `harvest`."
    yield ""


def _counts(library: Library) -> Counter[str]:
    return Counter(each["judgment"] for each in library.judged.values())


def _text(summary: str) -> str:
    """As Markdown shows it letter by letter."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|$" else c for c in summary)


def _table(head: list[str], rows: list[list[object]]) -> str:
    lines = [head, ["---", *("--:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
