"""One stylesheet made of several, without the rules that no page can need.

A rule is dropped when each of its selectors names a class, an id or an element that is in no page and no script. What
stands in brackets, such as an attribute or the arguments of ``:not()``, is never a reason to drop anything.
"""

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tinycss2
from tinycss2.ast import AtRule, Declaration, Node, ParseError, QualifiedRule

NESTING = {"media", "supports", "layer", "container"}  # what they hold are rules like those outside
# Extensions write class = "name", too.
CLASSES = re.compile(r"""\sclass\s*=\s*(["'])(.*?)\1""", re.DOTALL)
IDS = re.compile(r"""\sid\s*=\s*(["'])(.*?)\1""")
ELEMENTS = re.compile(r"<([a-zA-Z][\w-]*)")
WORDS = re.compile(r"[\w-]+")
# At the top of a stylesheet, where comments may stand too.
IMPORT = re.compile(r"""(?:\s|/\*.*?\*/|@charset[^;]*;)*@import\s+(?:url\()?(["'])([^"']+)\1\)?\s*;""", re.DOTALL)
VARIABLES = re.compile(r"--[\w-]+")
USES = re.compile(r"var\(\s*(--[\w-]+)")
# A value: quotes and brackets may hold anything.
TEXT = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\([^()"']*\)|[^;{}"'])*"""
DECLARED = re.compile(rf"(?<=[{{;])(--[\w-]+):{TEXT}(?:;|(?=\}}))")
EMPTY = re.compile(r"(?<=[}\n])[^{}@;]*\{\}")
# A script puts names together, as in `bs-${name}-auto`: what begins so may be one of them.
BEGINNING = re.compile(r"[a-z][\w-]*[a-z\d]-")


@dataclass
class Used:
    """The names that pages and scripts have."""

    classes: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    elements: set[str] = field(default_factory=set)
    beginnings: set[str] = field(default_factory=set)

    def add_page(self, html: str) -> None:
        self.classes.update(name for _, names in CLASSES.findall(html) for name in names.split())
        self.ids.update(name for _, name in IDS.findall(html))
        self.elements.update(name.lower() for name in ELEMENTS.findall(html))

    def add_script(self, script: str) -> None:
        """Any word of a script may be a class that it adds, or an element that it makes."""
        words = set(WORDS.findall(script))
        for names in (self.classes, self.ids, self.elements):
            names |= words
        self.beginnings.update(word for word in words if BEGINNING.fullmatch(word))

    def has(self, name: str, names: set[str]) -> bool:
        return name in names or any(name.startswith(beginning) for beginning in self.beginnings)


def names_of(selector: list[Node]) -> Iterator[tuple[str, str]]:
    """The classes, ids and elements that a selector asks for, outside of brackets."""
    before = ""
    for node in selector:
        if node.type == "hash":
            yield "id", node.value
        elif node.type == "ident" and before == ".":
            yield "class", node.value
        elif node.type == "ident" and before not in (":", "|"):
            yield "element", node.lower_value
        before = node.value if node.type == "literal" else ""


def needed(selector: list[Node], used: Used) -> bool:
    known = {"class": used.classes, "id": used.ids, "element": used.elements}
    return all(used.has(name, known[kind]) for kind, name in names_of(selector))


def parts(prelude: list[Node]) -> list[list[Node]]:
    """The selectors of a list, which commas part."""
    found: list[list[Node]] = [[]]
    for node in prelude:
        if node.type == "literal" and node.value == ",":
            found.append([])
        else:
            found[-1].append(node)
    return found


def tight(nodes: Iterable[Node]) -> str:
    """As text, with one space where there are several and no comments.

    A comment that stood between two words leaves a space, so that they stay two.
    """
    return re.sub(r"\s+", " ", "".join(spaced(node) for node in nodes)).strip() if nodes else ""


def spaced(node: Node) -> str:
    if node.type in ("comment", "whitespace"):
        return " "
    return str(node.serialize())


def rules(css: str | list[Node], name: str) -> list[Node]:
    """The rules of a stylesheet, or of what stands between the braces of one.

    Raises:
        ValueError: for what a browser would silently skip.
    """
    found = tinycss2.parse_rule_list(css, skip_comments=True, skip_whitespace=True)
    for rule in found:
        if isinstance(rule, ParseError):
            raise ValueError(f"{name}, line {rule.source_line}: {rule.message}")
    return list(found)


def body(content: list[Node]) -> str:
    """What stands between the braces of a rule, without the comments."""
    found = tinycss2.parse_blocks_contents(content, skip_comments=True, skip_whitespace=True)
    if any(not isinstance(node, Declaration) for node in found):
        return "".join(node.serialize() for node in content if node.type != "comment").strip()  # rules within rules
    return ";".join(
        f"{node.name}:{tight(node.value)}{'!important' if node.important else ''}" if node.value else f"{node.name}: "
        for node in found
    )


def purged(css: str | list[Node], used: Used, name: str) -> str:
    """The rules of a stylesheet that a page can need, in their order."""
    kept = []
    for rule in rules(css, name):
        if isinstance(rule, QualifiedRule):
            selectors = [part for part in parts(rule.prelude) if needed(part, used)]
            if selectors and (inner := body(rule.content)):
                kept.append(",".join(tight(part) for part in selectors) + "{" + inner + "}")
        elif isinstance(rule, AtRule):
            if rule.lower_at_keyword == "charset":
                continue  # all are read as UTF-8
            if rule.lower_at_keyword == "import":
                raise ValueError(f"{name}: an @import that is not at the top, or has conditions")
            head = f"@{rule.at_keyword} {tight(rule.prelude)}".rstrip()
            if rule.content is None:
                kept.append(f"{head};")
            elif rule.lower_at_keyword in NESTING:
                if inner := purged(rule.content, used, name):
                    kept.append(head + "{" + inner + "}")
            else:  # fonts, animations, properties
                kept.append(head + "{" + re.sub(r"\s+", " ", tight(without_comments(rule.content))) + "}")
    return "\n".join(kept)


def without_unused_variables(css: str, others: Iterable[str]) -> str:
    """What `purged` has left, without the variables that no rule uses, and no page or script names.

    A variable may be used by another alone, so this is done again until all that are left are used.
    """
    named = {name for text in others for name in VARIABLES.findall(text)}
    while True:
        used = named | set(USES.findall(css))
        kept = DECLARED.sub(lambda match: match[0] if match[1] in used else "", css)  # noqa: B023
        if kept == css:
            return EMPTY.sub("", css)
        css = kept


def without_comments(nodes: list[Node]) -> list[Node]:
    return [node for node in nodes if node.type != "comment"]


def read(file: Path, top: Path) -> str:
    """A stylesheet with what it imports, its addresses relative to `top`.

    Raises:
        FileNotFoundError: if it does not exist, or if what it imports does not.
    """
    css = file.read_text(encoding="utf-8")
    imported = ""
    while match := IMPORT.match(css):
        imported += read(Path(os.path.normpath(file.parent / match[2])), top)
        css = css[match.end() :]
    folder = file.parent.relative_to(top).as_posix()
    return imported + moved(css, folder) + "\n"


def moved(css: str, folder: str) -> str:
    """With addresses of files that were relative to a folder below that of the new stylesheet."""

    def address(match: re.Match[str]) -> str:
        quote, target = match[1], match[2]
        if re.match(r"[a-z]+:|/|#", target):
            return match[0]
        return f"url({quote}{posixpath.normpath(posixpath.join(folder, target))}{quote})"

    return re.sub(r"""url\(\s*(["']?)(.*?)\1\s*\)""", address, css)
