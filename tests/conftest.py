"""Options of the test run."""

import hypothesis

# The first example of a property pays for torch's start-up, so a deadline would fail by chance; the same examples
# in every run, so that a red test is red again.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.load_profile("suite")
