"""Every Python snippet of the README and its neighbors runs; the other folders of docs have cells alone."""

from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
FILES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_snippets_run(path: Path) -> None:
    namespace: dict[str, object] = {}
    for token in MarkdownIt().parse(path.read_text()):
        if token.type == "fence" and token.info.strip() in ("python", "py"):
            # Padded, so that a traceback names the line of the file.
            code = "\n" * (token.map[0] + 1) + token.content
            exec(compile(code, path, "exec"), namespace)
