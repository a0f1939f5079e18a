"""Saved tensors on disk and in a byte: nothing is lost, nothing is left, and nothing is kept twice."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from autograd_cookbook.auditing import held_bytes, peak_bytes
from autograd_cookbook.recipes.saved_tensor_hooks import Spool, compressed, offloaded
from tests.support import HANG

both = pytest.mark.parametrize("tool", [offloaded, compressed])
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.int64, torch.bool]


def open_files() -> int:
    """Files without a name that this process holds."""
    links = Path("/proc/self/fd").iterdir()
    return sum("(deleted)" in os.readlink(link) for link in links if link.exists() or link.is_symlink())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_spool_gives_back_what_it_got(dtype) -> None:
    spool, generator = Spool(None), torch.Generator().manual_seed(0)
    tensors = [(10 * torch.randn(shape, generator=generator)).to(dtype) for shape in [(3, 4), (), (5,), (2, 1, 3)]]
    tensors.append(tensors[0].mT)
    readers = [spool.write(tensor) for tensor in tensors]
    for tensor, read in zip(tensors, readers, strict=True):
        assert torch.equal(read(), tensor)
        assert read().dtype is dtype


def test_offloaded_gradients_are_exact_with_parameters_and_twice() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3), nn.Sigmoid()).double()
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    wanted = [x, *net.parameters()]
    results = []
    for call in (lambda: net(x), lambda: offloaded(net, x)):
        first = torch.autograd.grad(call().square().sum(), wanted, create_graph=True)
        second = torch.autograd.grad(first[0].square().sum(), wanted[:-1])
        results.append([*first, *second])
    # A tensor comes back contiguous, whatever it was, and a product of the same numbers may be summed otherwise.
    torch.testing.assert_close(*results, rtol=1e-13, atol=1e-15)


@pytest.mark.skipif(sys.platform != "linux", reason="files are counted in /proc")
def test_the_file_goes_with_the_graph() -> None:
    before = open_files()
    y = offloaded(lambda x: x.exp().sin(), torch.ones(1000, requires_grad=True))
    assert open_files() == before + 1
    y.sum().backward()
    del y
    gc.collect()
    assert open_files() == before


@pytest.mark.skipif(sys.platform != "linux", reason="files are counted in /proc")
def test_the_file_goes_with_an_exception() -> None:
    def failing(x):
        x.exp().sin()
        raise ZeroDivisionError

    before = open_files()
    with pytest.raises(ZeroDivisionError):
        offloaded(failing, torch.ones(1000, requires_grad=True))
    gc.collect()
    assert open_files() == before


def test_no_file_survives_a_process_that_is_killed(tmp_path) -> None:
    program = (
        "import os, signal, torch\n"
        "from autograd_cookbook.offloading import offloaded\n"
        f"y = offloaded(lambda x: x.exp().sin(), torch.ones(1000, requires_grad=True), directory={str(tmp_path)!r})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program], timeout=HANG, check=False)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        offloaded(torch.sin, torch.ones(2), directory=tmp_path / "nowhere")


def test_bytes_in_memory() -> None:
    x = torch.randn(100, 1000, requires_grad=True)

    def chain(x):
        for _ in range(10):
            x = x.sin()
        return x

    size = x.untyped_storage().nbytes()
    assert held_bytes(chain, x) == 10 * size  # nine inputs of later steps, and the result
    assert held_bytes(lambda x: offloaded(chain, x), x) == size
    # Nine tensors of a byte an element, each with a step for each of 100 rows.
    assert held_bytes(lambda x: compressed(chain, x), x) == size + 9 * (100_000 + 400)
    assert peak_bytes(lambda x: offloaded(chain, x).sum().backward(), x) < 6 * size


def test_an_element_is_off_by_half_a_step_at_most() -> None:
    """The gradient of exp is its saved output."""
    x = (3 * torch.randn(50, 64, generator=torch.Generator().manual_seed(0))).requires_grad_()
    y = compressed(torch.exp, x)
    y.sum().backward()
    step = y.detach().amax(1, keepdim=True) / 127
    off = (x.grad - y.detach()).abs() / step
    assert 0.4 < off.max() <= 0.5001


def test_rows_are_scaled_on_their_own() -> None:
    x = torch.stack([torch.full((16,), -20.0), torch.full((16,), 5.0)]).requires_grad_()
    compressed(torch.exp, x).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().exp(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "values", [torch.ones(4, 7), torch.full((2, 16), torch.inf), torch.ones(16, dtype=torch.complex64), torch.ones(())]
)
def test_what_one_byte_cannot_hold_is_kept_as_it_is(values) -> None:
    x = values.clone().requires_grad_()
    calls = (torch.exp, lambda x: compressed(torch.exp, x))
    grads = [torch.autograd.grad(call(x).abs().sum(), x)[0] for call in calls]
    torch.testing.assert_close(*grads, rtol=0, atol=0, equal_nan=True)


def test_zeros_stay_zeros() -> None:
    x = torch.zeros(2, 16, requires_grad=True)
    compressed(lambda x: (x + 0).square(), x).sum().backward()
    assert x.grad.eq(0).all()


@both
def test_parameters_and_arguments_are_not_stored_again(tool) -> None:
    x, w = torch.randn(20, 30, requires_grad=True), torch.randn(30, 10, requires_grad=True)
    assert held_bytes(lambda x: tool(lambda x: x @ w, x), x) == 20 * 10 * 4


@both
def test_a_later_write_to_an_argument_is_noticed(tool) -> None:
    x = torch.ones(16, requires_grad=True)
    y = x.clone()
    output = tool(torch.square, y)
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match=r"shape \(16,\).*modified by an in-place operation"):
        output.sum().backward()


@pytest.mark.parametrize("size", [1e-300, 1e-60, 1.0, 1e60, 1e300])
def test_compressed_numbers_of_any_size_in_float64(size) -> None:
    x = (size * torch.linspace(-1, 1, 16, dtype=torch.float64)).requires_grad_()
    (grad,) = torch.autograd.grad(compressed(lambda x: ((x * 1) * (x * 1)).sum(), x), x, torch.tensor(0.5).double())
    torch.testing.assert_close(grad / size, x.detach() / size, rtol=0, atol=1 / 254 + 1e-9)
