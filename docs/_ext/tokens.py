"""Code with fewer elements: a token that looks like the text around it needs no element of its own.

Most names and all punctuation of a program have one color. Where all that a block shows is tokens, the block itself
gets that color, and the tokens that have it are unwrapped, and so are the dots between names. A block that has text of
another color keeps its elements.
"""

import re
from dataclasses import dataclass

PLAIN = "n"  # a name: what the color of the text is
OPERATOR = "o"  # a dot between names is one, too, and nobody sees its color
MARK = "plain-tokens"
BLOCK = re.compile(r'(<div class="highlight">\s*<pre)(>)(.*?)(</pre>)', re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
TAG = re.compile(r"(<[^>]+>)")
RULE = re.compile(r"(?m)^(.*?\.highlight )\.([a-z]\w{0,3}) (\{.*?\})")
IN_SCRIPT = re.compile(r"""["'`,(]\s*\.([a-z]\w{0,3})(?=["'`,)\s])""")


@dataclass(frozen=True)
class Looks:
    """Which tokens have the color of a name, and which have any color."""

    plain: frozenset[str]
    colored: frozenset[str]


def looks(pygments: str, others: str, scripts: str) -> Looks:
    """Of the classes of tokens: `pygments` is their stylesheet, and what the rest of the site names is never plain."""
    found: dict[str, dict[str, str]] = {}
    for theme, name, look in RULE.findall(pygments):
        found.setdefault(name, {})[theme] = look
    elsewhere = set(IN_SCRIPT.findall(scripts)) | classes(others)
    alike = {name for name, look in found.items() if look == found.get(PLAIN)} - elsewhere
    colored = {name for name, look in found.items() if all("{ color:" in each for each in look.values())}
    return Looks(frozenset(alike if PLAIN in alike else ()), frozenset(colored))


def classes(css: str) -> set[str]:
    """What may be a class of a token, wherever it stands in a stylesheet."""
    selectors = re.split(r"[,{}]", COMMENT.sub("", css))
    # Signatures of functions have such classes too, outside of blocks of code.
    return {name for each in selectors if ".sig" not in each for name in re.findall(r"\.([a-z]\w{0,3})(?![\w-])", each)}


def rule(pygments: str) -> str:
    """The color of marked blocks, which is that of names."""
    return "\n".join(f"{theme}pre.{MARK} {look}" for theme, name, look in RULE.findall(pygments) if name == PLAIN)


def unwrapped(html: str, known: Looks) -> str:
    """The page with plain tokens as bare text."""

    def block(match: re.Match[str]) -> str:
        code = bare(match[3], known)
        if code is None:
            return match[0]
        # A browser skips the first new line of a block, so that one which is meant is written twice.
        first = "\n" if code.startswith("\n") else ""
        return f'{match[1]} class="{MARK}">{first}{code}{match[4]}'

    return BLOCK.sub(block, html) if known.plain else html


def bare(code: str, known: Looks) -> str | None:
    """The code without those elements, or None where it has text of another color."""
    kept: list[str] = []
    around: list[str] = []  # what is open: the class of a token, "a" for a link, "" for what is dropped
    pieces = TAG.split(code)
    for i, piece in enumerate(pieces):
        if piece.startswith("</"):
            if around.pop():
                kept.append(piece)
        elif piece.startswith("<"):
            span = re.fullmatch(r'<span(?: class="([^"]*)")?>', piece)
            name = (span[1] or "") if span else "a"
            if not (piece.startswith("<a ") if span is None else name in known.colored | {"", "hll"}):
                return None
            # What is in a link has another color around it.
            joins = name == OPERATOR and pieces[i + 1] == "."
            if (name in known.plain or joins) and not set(around) - {"", "hll"}:
                name = ""
            around.append(name)
            if name:
                kept.append(piece)
        else:
            if piece.strip() and all(name == "hll" for name in around):
                return None
            kept.append(piece)
    return "".join(kept)
