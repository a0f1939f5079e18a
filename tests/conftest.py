"""Options of the test run."""

import gc
import subprocess

import hypothesis
import pytest
import torch

# The first example of a property pays for torch's start-up, so a deadline would fail by chance; the same examples
# in every run, so that a red test is red again.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--changed-since",
        metavar="REVISION",
        help="of the slow tests, run those whose marker names a file or folder that differs from this revision of git",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (revision := config.getoption("--changed-since")) is None:
        return
    command = ["git", "diff", "--name-only", revision, "--"]
    diff = subprocess.run(command, cwd=config.rootpath, capture_output=True, text=True, check=False)
    if diff.returncode:
        raise pytest.UsageError(f"--changed-since {revision}: {diff.stderr.strip()}")
    changed = tuple(diff.stdout.split("\n")[:-1])

    def is_due(item: pytest.Item) -> bool:
        mark = item.get_closest_marker("slow")
        return mark is None or not mark.args or any(path.startswith(mark.args) for path in changed)

    config.hook.pytest_deselected(items=[item for item in items if not is_due(item)])
    items[:] = filter(is_due, items)


def spare_the_collector() -> None:
    """Take what lives for what stays: many tests, and each audit, have the collector look at all the rest."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    spare_the_collector()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is not None and nextitem.path != item.path:
        spare_the_collector()


def pytest_runtest_setup(item: pytest.Item) -> None:
    # What a test draws does not hang on those before it. torch.manual_seed would also note the stack, for each kind of
    # device that may still be put to use: milliseconds, and what it notes stays.
    torch.default_generator.manual_seed(0)
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no GPU here: what needs one is compiled by nox -s gpu, and not run")
