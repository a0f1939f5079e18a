"""Options of the test run."""

import hypothesis
import pytest
import torch

# The first example of a property pays for torch's start-up, so a deadline would fail by chance; the same examples
# in every run, so that a red test is red again.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.load_profile("suite")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no GPU here: what needs one is compiled by nox -s gpu, and not run")
