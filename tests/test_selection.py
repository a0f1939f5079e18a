"""Which tests run, and in which worker."""

import subprocess
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CHOICE = Path(__file__).with_name("conftest.py").read_text()
SLOW = """
import pytest

@pytest.mark.slow("src", "tests/support.py")
def test_of_sources(): pass

@pytest.mark.slow("docs")
def test_of_pages(): pass

@pytest.mark.slow
def test_of_all(): pass

def test_that_is_fast(): pass
"""


@pytest.fixture
def repository(pytester: pytest.Pytester) -> pytest.Pytester:
    """Slow tests and this project's choice among them, in a repository with one commit."""
    pytester.makeini("[pytest]\nmarkers = slow(*paths)")
    pytester.makeconftest(CHOICE)
    pytester.makepyfile(test_slow=SLOW)
    for folder in ("src", "docs", "tests"):
        pytester.mkdir(folder).joinpath("support.py").write_text("")
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", *command], check=True)
    return pytester


@pytest.mark.parametrize(
    ("changed", "run"),
    [
        (None, {"test_of_all"}),
        ("src/support.py", {"test_of_all", "test_of_sources"}),
        ("tests/support.py", {"test_of_all", "test_of_sources"}),
        ("docs/support.py", {"test_of_all", "test_of_pages"}),
        ("test_slow.py", {"test_of_all"}),
    ],
)
def test_slow_tests_run_if_what_they_name_has_changed(
    repository: pytest.Pytester, changed: str | None, run: set[str]
) -> None:
    if changed:
        with repository.path.joinpath(changed).open("a") as file:
            file.write("\n")
    passed, *others = repository.inline_run("-m", "slow", "--changed-since", "HEAD").listoutcomes()
    assert {report.nodeid.partition("::")[2] for report in passed} == run
    assert others == [[], []]


def test_a_revision_that_git_does_not_know_is_named(repository: pytest.Pytester) -> None:
    done = repository.runpytest_inprocess("--changed-since", "no-such")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines("ERROR: --changed-since no-such: fatal: *no-such*")


def test_tests_of_a_group_run_in_one_worker(pytester: pytest.Pytester) -> None:
    """Else what they share is made in each worker: so it was with pytest 9.2 and pytest-xdist 3.8, unseen."""
    pytester.makepyfile(
        """
        import os
        import pytest

        groups = [pytest.param(number, marks=pytest.mark.xdist_group(f"of {number % 3}")) for number in range(12)]

        @pytest.mark.parametrize("number", groups)
        def test_of_a_group(number):
            with open(f"group-{number % 3}", "a") as file:
                print(os.environ["PYTEST_XDIST_WORKER"], file=file)
        """
    )
    pytester.runpytest_subprocess("-n", "2", "--dist", "loadgroup").assert_outcomes(passed=12)
    for number in range(3):
        workers = pytester.path.joinpath(f"group-{number}").read_text().split()
        assert len(workers) == 4
        assert len(set(workers)) == 1, f"the tests of group {number} ran in {sorted(set(workers))}"
