"""saved_bytes counts what autograd really keeps."""

import pytest
import torch

from autograd_cookbook.audit import saved_bytes


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(lambda x: x.sum(), 0, id="a sum keeps nothing"),
        pytest.param(lambda x: x * x, 0, id="the argument itself does not count"),
        pytest.param(torch.sigmoid, 400, id="the output does"),
        pytest.param(lambda x: x * torch.sigmoid(x), 400, id="a tensor saved twice counts once"),
        pytest.param(lambda x: torch.sigmoid(x)[:10].square(), 400, id="a view counts as its whole storage"),
    ],
)
def test_bytes(function, expected: int) -> None:
    assert saved_bytes(function, torch.ones(100, requires_grad=True)) == expected
