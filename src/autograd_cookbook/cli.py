"""The command line: ``python -m autograd_cookbook COMMAND``."""

import argparse
import difflib
import io
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import NoReturn

PROGRAM = "python -m autograd_cookbook"
# Import the module of a command only when the command is called, so that commands without torch start fast.
COMMANDS = {
    "audit": ("autograd_cookbook.auditing.cli", "find what is wrong with a custom function, and how to fix it"),
    "build": ("autograd_cookbook.recipes._native.cli", "compile the kernels in C++ and CUDA"),
    "explain": ("autograd_cookbook.errors.cli", "explain an error message"),
    "functions": ("autograd_cookbook.harvest.sources", "list the custom functions in Python sources"),
    "harvest": ("autograd_cookbook.harvest.cli", "run a program, then audit every custom function that it called"),
}


class UsageError(Exception):
    """An error of the user. Its message says in one line what was given and what was expected."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # if the encoding has no ✓ and ✗
    try:
        try:
            status = _run(argv)
        except SystemExit as finished:  # --help and --list
            status = int(finished.code or 0)
        sys.stdout.flush()
    except UsageError as error:
        print(f"{PROGRAM}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python reports an error at exit
        return 141
    return status


def _run(argv: Sequence[str]) -> int:
    parser = _Parser(prog=PROGRAM, description="Custom gradients for PyTorch.")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    parsers = {
        name: commands.add_parser(name, help=purpose, formatter_class=argparse.RawDescriptionHelpFormatter)
        for name, (_, purpose) in COMMANDS.items()
    }
    chosen = next((word for word in argv if word in COMMANDS), None)
    if chosen:
        module = import_module(COMMANDS[chosen][0])
        parsers[chosen].description, parsers[chosen].epilog = module.DESCRIPTION, module.EPILOG
        module.describe(parsers[chosen])
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        known = [action.option_strings[-1] for action in parsers[options.command]._actions if action.option_strings]
        raise UsageError(f"unknown argument {unknown[0]!r}{instead(unknown[0].partition('=')[0], known)}")
    return module.run(options)


def instead(name: str, known: Iterable[str]) -> str:
    """Return the end of a message: the known names that are similar to a name, or some of the known names."""
    known = [each for each in known if not each.startswith("_")]
    if near := difflib.get_close_matches(name, known):
        return f"; did you mean {' or '.join(near)}?"
    return f"; there are {', '.join(known[:8])}{', …' if known[8:] else ''}" if known else ""
