"""WRITE(newname): what these tests hold; the catalog's compare gradients, layouts, dtypes."""

import pytest
import torch

from autograd_cookbook.recipes.newname import newname


# WRITE(newname): values and gradients that you know on paper, at the edge cases
@pytest.mark.parametrize(("value", "output", "gradient"), [(3.0, 9.0, 6.0), (0.0, 0.0, 0.0)])
def test_value_and_gradient(value: float, output: float, gradient: float) -> None:
    x = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    y = newname(x)
    y.backward()
    assert (y.item(), x.grad.item()) == (output, gradient)


# WRITE(newname): what is refused, with the value that the error names
def test_integers_are_refused() -> None:
    with pytest.raises(TypeError, match=r"got torch\.int64"):
        newname(torch.tensor([1, 2]))
