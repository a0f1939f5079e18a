"""What pyproject.toml says of functions: read, or refused with the place and what was expected."""

import pytest

from autograd_cookbook.harvest.options import OptionsError, options_of, resolved


def test_the_table_is_read(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "pyproject.toml").write_text("""
        [tool.autograd_cookbook.functions."package.Round"]
        surrogate = "tests.harvest.functions:identity"
        skip = ["compile"]
        accept = { float16 = "never used in half precision" }
    """)
    options = options_of(tmp_path)
    assert options.of("package.Round").audit == {
        "skip": ["compile"],
        "surrogate": "tests.harvest.functions:identity",
    }
    assert options.of("package.Round").accept == {"float16": "never used in half precision"}
    assert options.of("package.Other").audit == {}
    assert options.sources == (str(tmp_path / "src"),)


def test_a_pattern_is_for_all_functions_that_it_matches_and_their_own_tables_override_it(tmp_path):
    (tmp_path / "pyproject.toml").write_text("""
        [tool.autograd_cookbook.functions."package.poses.*"]
        gradient = "custom"
        accept = { float16 = "never" }
        [tool.autograd_cookbook.functions."package.poses.Exact"]
        gradient = "exact"
        accept = { empty = "no" }
    """)
    options = options_of(tmp_path)
    assert options.of("package.poses.Log").audit == {"gradient": "custom"}
    assert options.of("package.poses.Exact").audit == {"gradient": "exact"}
    assert options.of("package.poses.Exact").accept == {"float16": "never", "empty": "no"}
    assert options.of("package.other.Log").audit == {}


def test_without_a_file_nothing_is_said(tmp_path):
    assert options_of(tmp_path).functions == {}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('surogate = "a:b"', "unknown key 'surogate'; did you mean surrogate?"),
        ('surrogate = "a.b"', 'surrogate: expected "package.module:name"'),
        ('gradient = "fuzzy"', "gradient: expected one of exact"),
        ('tolerance = "small"', "tolerance: expected a number"),
        ('skip = "compile"', "skip: expected a list of checks"),
        ('skip = ["compyle"]', "skip: unknown check 'compyle'; did you mean compile"),
        ('accept = { flaot16 = "why" }', "accept: unknown check 'flaot16'; did you mean float16"),
        ('accept = { float16 = " " }', "accept.float16: expected a reason"),
        ("= 1", "pyproject.toml"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, entry, message):
    (tmp_path / "pyproject.toml").write_text(f'[tool.autograd_cookbook.functions."package.F"]\n{entry}\n')
    with pytest.raises(OptionsError) as caught:
        options_of(tmp_path)
    assert message in str(caught.value)


def test_unknown_keys_of_the_table_and_folders_that_are_not_there(tmp_path):
    for text, message in (("functons = 1", "did you mean functions"), ('sources = ["lib"]', "no folder 'lib'")):
        (tmp_path / "pyproject.toml").write_text(f"[tool.autograd_cookbook]\n{text}\n")
        with pytest.raises(OptionsError, match=message):
            options_of(tmp_path)


@pytest.mark.parametrize("reference", ["no_such_module:f", "math:no_such_name", "math:pi"])
def test_a_reference_to_nothing_is_an_error_that_names_it(reference):
    with pytest.raises(OptionsError, match=reference.partition(":")[0]):
        resolved(reference)
