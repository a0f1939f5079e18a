"""``python -m autograd_cookbook explain < traceback.txt``."""

import argparse
import sys
import textwrap

from autograd_cookbook.command import UsageError
from autograd_cookbook.errors import Entry, explain

DESCRIPTION = "Explain an error message of PyTorch around custom gradients: the last one in a text."
EPILOG = """\
examples:
  python train.py 2>&1 | python -m autograd_cookbook explain
  python -m autograd_cookbook explain traceback.txt

exit status: 0 if the message is known, 1 if not, 2 if the command cannot be understood.
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what arguments there are."""
    parser.add_argument("file", nargs="?", metavar="FILE", help="a text with the message; default: the standard input")


def run(options: argparse.Namespace) -> int:
    """Print the explanation; return the exit status."""
    try:
        if options.file is None:
            if sys.stdin.isatty():
                print("Paste the message, then press Ctrl-D.", file=sys.stderr)
            text = sys.stdin.buffer.read().decode(errors="replace")
        else:
            with open(options.file, encoding="utf-8", errors="replace") as file:
                text = file.read()
        found = explain(text)
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    if found.known:
        print(told(found.entries[0]))
        return 0
    print("No such message is in the index. The nearest are:")
    for entry in found.entries:
        print(f"- {entry.title}: {entry.url}")
    return 1


def told(entry: Entry) -> str:
    """An entry in lines of 100 characters."""
    first, *more = entry.message.strip().splitlines()
    quoted = [f"{entry.kind}: {first}", *(["…"] if more else [])]
    said = {"cause": entry.cause, "fix": entry.fix}
    paragraphs = [textwrap.fill(f"{label}: {text.replace('``', '`')}", 100) for label, text in said.items()]
    return "\n".join([entry.title, *(f"  {line}" for line in quoted), *paragraphs, f"see: {entry.url}"])
