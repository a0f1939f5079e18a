"""Every Python snippet of every Markdown file runs, in the order of the file, in one namespace."""

from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
FILES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/[!c]*/**/*.md")]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_snippets_run(path: Path) -> None:
    namespace: dict[str, object] = {}
    for token in MarkdownIt().parse(path.read_text()):
        if token.type == "fence" and token.info.strip() in ("python", "py"):
            # Padded, so that a traceback names the line of the file.
            code = "\n" * (token.map[0] + 1) + token.content
            exec(compile(code, path, "exec"), namespace)


def test_the_readme_has_snippets() -> None:
    tokens = MarkdownIt().parse((ROOT / "README.md").read_text())
    assert sum(token.type == "fence" and token.info == "python" for token in tokens) == 3
