"""The native operators, built, on each device."""

from pathlib import Path

import pytest

from autograd_cookbook.recipes._native.cli import LIBRARIES


@pytest.fixture(scope="module")
def built() -> list[Path]:
    return [library.build() for library in LIBRARIES]


@pytest.fixture
def device(request: pytest.FixtureRequest, built: list[Path]) -> str:
    assert {library.backend(request.param) for library in LIBRARIES} == {{"cpu": "C++", "cuda": "CUDA"}[request.param]}
    return request.param
