"""Options of the test run."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-verified",
        action="store_true",
        help="measure the capabilities of every recipe and store them as the badges' data",
    )
