"""Functions by authors who did not know the checks, broken and right, by what they compute."""
