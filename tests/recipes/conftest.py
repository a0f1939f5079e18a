"""The native operators, built, on each device."""

from pathlib import Path

import pytest
import torch

from autograd_cookbook.recipes._native.cli import LIBRARIES
from tests.recipes.native_operators import NO_GPU


@pytest.fixture(scope="module")
def built() -> list[Path]:
    return [library.build() for library in LIBRARIES]


@pytest.fixture
def device(request: pytest.FixtureRequest, built: list[Path]) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip(NO_GPU)
    assert {library.backend(request.param) for library in LIBRARIES} == {{"cpu": "C++", "cuda": "CUDA"}[request.param]}
    return request.param
