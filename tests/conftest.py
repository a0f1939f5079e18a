"""Options of the test run."""

import hypothesis
import pytest

# The first example of a property pays for torch's start-up, so a deadline would fail by chance; the same examples
# in every run, so that a red test is red again.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-verified",
        action="store_true",
        help="measure the capabilities of every recipe and store them as the badges' data",
    )
