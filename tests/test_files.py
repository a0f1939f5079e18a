"""A file that a page shows is the file that the page's code has."""

from pathlib import Path

from docs._ext import executed, files

TEXT = 'name = "π"\n'


def test_the_text_is_shown_under_its_name_and_written_by_a_hidden_cell(tmp_path: Path) -> None:
    page = f"Before.\n\n```{{file}} src/one.py\n{TEXT}```\n\n```{{file}} src/one.py\n:append:\n{TEXT}```\n\nAfter.\n"
    source = files.expanded(page)
    assert source.startswith(f"Before.\n\n```{{code-block}} python\n:caption: src/one.py\n\n{TEXT}```\n")
    assert source.endswith("\n```\n\nAfter.\n")
    cells = source.split(":tags: [remove-cell]\n")[1:]
    for cell in cells:
        exec(cell.partition("```")[0], {"root": tmp_path})
    assert (tmp_path / "src" / "one.py").read_text(encoding="utf-8") == f"{TEXT}\n{TEXT}"


def test_its_lines_count_as_code_that_is_run() -> None:
    assert executed.of_markdown(f"```{{file}} one.py\n{TEXT}```\n") == executed.Lines(run=1)
    assert executed.of_markdown(f"```{{file}} one.py\n:append:\n{TEXT}```\n") == executed.Lines(run=1)
