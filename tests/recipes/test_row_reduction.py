"""The normalization with kernels in C++ and CUDA: what is its own beside what all native operators share."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from autograd_cookbook.catalog import BY_NAME
from autograd_cookbook.recipes import row_reduction
from autograd_cookbook.recipes.row_reduction import fused_rms_norm
from tests.recipes.native_operators import (
    INF,
    RMS_NORM,
    each_device,
    exactly,
    run,
    sample,
)
from tests.support import expect_close, gradients

SURVIVORS = {
    "normalized: wide.detach() -> wide": "the scale cancels, and with it its derivative",
}

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "examples" / "06_beyond_autograd" / "row_reduction.py"
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "native.json").read_text())


@each_device
@pytest.mark.parametrize(
    "shape",
    [
        *((rows, width) for rows in (0, 1, 5, 300) for width in (0, 1, 2, 31, 33, 1024, 1028)),
        *((3000, 7), (67, 4096), (2, 100_003), (1_000, 3, 5), (9,), (2, 0, 4)),
    ],
    ids=str,
)
def test_rms_norm_of_any_number_of_rows_and_columns(device, shape) -> None:
    args = sample(RMS_NORM, shape, device=device)
    expect_close(gradients(fused_rms_norm, args), exactly(RMS_NORM, args), 1e-12)


@pytest.mark.parametrize("python", [False, True], ids=["kernel", "python"])
@each_device
@pytest.mark.parametrize(
    ("dtype", "size", "rtol"),
    [
        (torch.float16, 6e4, 2e-3),
        (torch.float16, 1e-4, 2e-3),
        (torch.bfloat16, 1e30, 2e-2),
        (torch.float32, 1e30, 1e-6),
        (torch.float32, 1e38, 1e-6),
        (torch.float64, 1e150, 1e-12),
    ],
    ids=str,
)
def test_rows_whose_squares_overflow_or_vanish_are_normalized_all_the_same(
    device, dtype, size, rtol, python, monkeypatch
) -> None:
    if python:
        monkeypatch.setattr(row_reduction.RMS_NORM, "kernels", {})
    # All that is large is negative.
    x = torch.tensor([[-1.0, -0.5, -0.25, -1.0], [1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    x = (x * torch.tensor([[size], [1.0]], dtype=torch.float64)).to(device, dtype).requires_grad_()
    weight = torch.tensor([1.0, 2.0, 1.0, 2.0], dtype=dtype, device=device, requires_grad=True)
    y, grad_input, grad_weight = gradients(lambda *args: fused_rms_norm(*args, 0.0), (x, weight))
    # The answer, by numbers of a reasonable size: normalizing undoes the factor, and the gradient has its inverse.
    factor = torch.tensor([[size], [1.0]], dtype=torch.float64, device=device)
    small = ((x.detach().double() / factor).requires_grad_(), weight.detach().double().requires_grad_())
    expected = gradients(lambda *args: RMS_NORM.reference(*args, 0.0), small)
    expect_close([y.double(), grad_weight.double()], [expected[0], expected[2]], rtol)
    # In float16, a gradient of 1e-5 has few digits left.
    expect_close([grad_input.double() * factor], [expected[1]], 0.05 if dtype == torch.float16 else 2 * rtol)


def test_the_built_in_returns_zeros_where_squares_overflow() -> None:
    """What the page says about torch 2.13; when this fails, the page has to say something else."""
    x = torch.tensor([1e30, 2e30, 2e30])
    assert F.rms_norm(x, (3,), torch.ones(3), 1e-6).tolist() == [0, 0, 0]


@each_device
def test_a_row_of_zeros_stays_zero_and_has_a_finite_gradient(device) -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], device=device, requires_grad=True)
    weight = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    found = gradients(fused_rms_norm, (x, weight))
    expect_close([t.double() for t in found], exactly(RMS_NORM, (x, weight)), 1e-6)
    assert found[0][0].tolist() == [0, 0]
    assert fused_rms_norm(x, weight, 0.0)[0].isnan().all()


@each_device
@pytest.mark.parametrize("python", [False, True], ids=["kernel", "python"])
@pytest.mark.parametrize("odd", [INF, -INF, float("nan")])
def test_what_is_not_finite_is_as_in_the_built_in(device, odd, python, monkeypatch) -> None:
    if python:
        monkeypatch.setattr(row_reduction.RMS_NORM, "kernels", {})
    x = torch.tensor([[1.0, odd, 2.0], [1.0, 2.0, 3.0]], device=device)
    weight = torch.ones(3, device=device)
    torch.testing.assert_close(fused_rms_norm(x, weight), RMS_NORM.reference(x, weight), equal_nan=True)


def test_rms_norm_of_a_batch_is_more_rows_for_the_kernel(built, monkeypatch) -> None:
    x, weight = (t.detach() for t in sample(RMS_NORM, (4, 5, 3)))
    expected = RMS_NORM.reference(x, weight)
    monkeypatch.setattr(row_reduction, "composed", None)
    expect_close([torch.func.vmap(fused_rms_norm, (1, None), 1)(x, weight)], [expected], 1e-14)


def test_rms_norm_of_a_batch_with_a_weight_each(built) -> None:
    x, _ = (t.detach() for t in sample(RMS_NORM, (4, 5, 3)))
    weights = torch.linspace(0.5, 2, 12, dtype=torch.float64).view(3, 4)
    each = torch.stack([RMS_NORM.reference(x[i], weights[:, i]) for i in range(4)])
    expect_close([torch.func.vmap(fused_rms_norm, (0, 1))(x, weights)], [each], 1e-14)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        pytest.param((torch.ones(2, 3), torch.ones(2)), RuntimeError, r"got \(2, 3\) and \(2,\)", id="width"),
        pytest.param((torch.ones(2, 3), torch.ones(1, 3)), RuntimeError, r"and \(1, 3\)", id="weight has rows"),
        pytest.param((torch.ones(()), torch.ones(())), RuntimeError, r"got \(\) and \(\)", id="no rows at all"),
        pytest.param((torch.ones(3), torch.ones(3).half()), TypeError, "float32, got torch.float16", id="dtypes"),
        pytest.param((torch.ones(3), None), TypeError, "got NoneType", id="no weight"),
        pytest.param(([1.0], torch.ones(1)), TypeError, "got list", id="input is a list"),
        pytest.param((torch.ones(3).int(), torch.ones(3).int()), TypeError, r"got torch\.int32", id="integers"),
        pytest.param((torch.ones(3), torch.ones(3, device="meta")), RuntimeError, "on cpu, got meta", id="device"),
        pytest.param((torch.ones(3), torch.ones(3), "1"), TypeError, "number as eps, got str", id="eps"),
    ],
)
def test_bad_input_of_rms_norm_is_named(args, error, message) -> None:
    with pytest.raises(error, match=message):
        fused_rms_norm(*args)


def test_two_copies_of_a_recipe_share_the_operators(built, tmp_path) -> None:
    """The second registration of an operator would end the process."""
    copied = tmp_path / "copied.py"
    copied.write_text(BY_NAME["fused_rms_norm"].source)
    code = """if True:
        import torch
        import copied
        from autograd_cookbook.recipes.row_reduction import RMS_NORM, fused_rms_norm
        x, w = torch.tensor([3.0, 4.0]), torch.ones(2)
        print(copied.RMS_NORM.backend(), RMS_NORM.backend())
        assert torch.equal(copied.fused_rms_norm(x, w), fused_rms_norm(x, w))
    """
    path = os.pathsep.join([str(tmp_path), *sys.path])
    assert run(code, PYTHONPATH=path) == "C++ C++"


@pytest.mark.parametrize("recipe", ["rms_norm", "swish"])
@pytest.mark.parametrize("memory", ["memory kept", "memory fresh"])
def test_the_stored_times_hold_what_the_kernels_are_for(recipe, memory) -> None:
    rows = RESULTS["cpu"][memory][recipe]
    assert rows["composition, compiled"]["time"] >= 1, "the compiler's kernel is faster than ours"
    assert all(row["difference"] < 2e-6 for row in rows.values())


def test_the_page_says_what_was_measured() -> None:
    text = PAGE.read_text()
    lines = [
        f'#    "{recipe}, {memory}", ' + ", ".join(f'"{row["time"]:.2f}"' for row in rows[recipe].values()) + "\n"
        for recipe in ("rms_norm", "swish")
        for memory, rows in ((key, value) for key, value in RESULTS["cpu"].items() if key.startswith("memory"))
    ]
    assert "".join(lines) in text, "the table should be:\n" + "".join(lines)
    assert RESULTS["cpu"]["on"]["device"] in text
    assert ("no GPU to run them on" in text) == (RESULTS["cuda"] is None)


@pytest.mark.parametrize("eps", [0.0, 1e-38])
def test_second_derivatives_of_small_rows(eps) -> None:
    """The square of 1e-25 is 0 in float32, and the cube of the factor overflows."""

    def second(scale: float, eps: float, dtype: torch.dtype) -> torch.Tensor:
        x = (scale * torch.tensor([[1.0, -2.0, 3.0, 0.5]])).to(dtype).requires_grad_()
        w = torch.tensor([1.0, 2.0, -1.0, 0.5], dtype=dtype)
        (grad,) = torch.autograd.grad(fused_rms_norm(x, w, eps)[0, 0], x, create_graph=True)
        return torch.autograd.grad(grad[0, 1] * scale, x)[0] * scale

    found = second(1e-18, eps, torch.float32)
    torch.testing.assert_close(found.double(), second(1e-18, eps, torch.float64), rtol=1e-5, atol=0)
