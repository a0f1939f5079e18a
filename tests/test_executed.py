"""Code on the pages is run when they are built: how much of it, counted from their sources."""

from pathlib import Path

import pytest
from docs._ext import executed
from docs._ext.executed import Lines

ROOT = Path(__file__).parents[1]

PAGE = """\
---
file_format: mystnb
---
# Title

```{code-cell} python
:tags: [hide-output]

a = 1

b = 2
```

```{code-cell} python
---
mystnb:
  image:
    alt: text
---
c = 3
```

```{code-cell} python
:tags: [remove-cell]
assert a
```

```python
never = "run"
```

:::{note}
```console
$ python
```
:::

````{tip}
```{code-block} python
:caption: a
nor = "this"
```
````

```{toctree}
guide/a
guide/b
```

    indented
"""

SCRIPT = '''\
"""
Title
=====

Words.
"""

# %%
# Text, as in::
#
#     x = 1
#     y = 2
#
# and
#
# .. code-block:: python
#    :caption: c
#
#    z = 3
#
# .. math::
#
#    a

# sphinx_gallery_tags = ["memory"]

import torch

# a comment in the code
print(torch)
'''


def test_markdown_is_counted() -> None:
    assert executed.of_markdown(PAGE) == Lines(run=3, shown=4)


def test_scripts_are_counted() -> None:
    assert executed.of_script(SCRIPT) == Lines(run=3, shown=3)


@pytest.mark.parametrize("directive", ["checks gradients", "recipe relu", "errors writing"])
def test_what_directives_run_is_counted(directive: str) -> None:
    name, argument = directive.split()
    lines = executed.of_markdown(f"```{{{name}}} {argument}\n```\n")
    assert lines == executed.of_rst(f".. {name}:: {argument}\n")
    assert lines.run > 10
    assert lines.shown == 0


PAGES = executed.pages()


@pytest.mark.parametrize(
    "path",
    [p for kind in ("guide", "pitfalls", "errors") for p in PAGES[kind]],
    ids=lambda p: f"{p.parent.name}/{p.stem}",
)
def test_a_page_shows_no_code_that_is_not_run(path: Path) -> None:
    assert executed.count(path).shown == 0


@pytest.mark.parametrize(
    "path", [p for paths in PAGES.values() for p in paths if "subprocess.run(" in p.read_text()], ids=str
)
def test_a_page_looks_at_how_its_commands_ended(path: Path) -> None:
    """Or a command that fails leaves an empty output behind, and the build passes."""
    code = path.read_text()
    assert "check=True" in code or ".returncode" in code


def test_the_share_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    table = executed.table()
    with capsys.disabled():
        print(f"\n{table}")
    for kind in ("Guide", "Pitfalls"):
        (row,) = [line for line in table.splitlines() if line.startswith(f"| {kind} ")]
        assert row.endswith("| 100.0% |")


def test_the_colophon_shows_it() -> None:
    assert f"\n{executed.MARKER}\n" in (ROOT / "docs" / "colophon.md").read_text()
