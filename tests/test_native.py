"""The native operator: built, loaded, right in every layout and dtype, and absent without harm."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autograd_cookbook import native
from autograd_cookbook.catalog import BY_NAME
from tests.support import copies, expect_close, gradients

REFERENCE = BY_NAME["swish"].reference
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module")
def built() -> Path:
    return native.build()


@pytest.fixture
def device(request: pytest.FixtureRequest, built: Path) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here: the kernels are compiled by nox -s gpu, and not run")
    assert native.backend(request.param) == {"cpu": "C++", "cuda": "CUDA"}[request.param]
    return request.param


each_device = pytest.mark.parametrize("device", DEVICES, indirect=True)


def sample(shape=(7, 5), dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return x.to(device, dtype).requires_grad_(), torch.tensor(0.7, dtype=dtype, device=device, requires_grad=True)


@each_device
@pytest.mark.parametrize("count", [0, 1, 31, 33, 257, 100_003])
def test_any_number_of_elements(device, count) -> None:
    args = sample((count,), device=device)
    expect_close(gradients(native.swish, args), gradients(REFERENCE, copies(args)), 1e-12)


@each_device
@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)],
    ids=str,
)
def test_each_dtype_is_as_good_as_it_can_be(device, dtype, rtol) -> None:
    args = sample((1000,), dtype, device)
    exact = gradients(REFERENCE, tuple(a.detach().double().requires_grad_() for a in args))
    found = gradients(native.swish, args)
    assert {t.dtype for t in found} == {dtype}
    expect_close([t.double() for t in found], exact, rtol)


@each_device
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(lambda t: t.mT, id="transposed"),
        pytest.param(lambda t: t[::2, 1:], id="strided with an odd offset"),
        pytest.param(lambda t: t[:1].expand(4, -1), id="expanded"),
        pytest.param(lambda t: t.flatten()[1:], id="misaligned"),
    ],
)
def test_each_layout_of_input_and_gradient(device, layout) -> None:
    x, beta = sample((8, 6), device=device)
    upstream, _ = sample((8, 6), device=device)
    results = []
    for function in (native.swish, REFERENCE):
        y = function(layout(x), beta)
        results.append((y.detach(), *torch.autograd.grad(y, (x, beta), layout(upstream.detach()))))
    expect_close(*results, 1e-12)


@each_device
def test_an_expanded_gradient_of_a_sum(device) -> None:
    x, beta = sample((8, 6), device=device)
    ours = torch.autograd.grad(native.swish(x, beta).sum(), (x, beta))
    expect_close(ours, torch.autograd.grad(REFERENCE(x, beta).sum(), (x, beta)), 1e-12)


@each_device
def test_large_half_precision_inputs_do_not_overflow(device) -> None:
    x = torch.tensor([-60000.0, -300.0, 300.0, 60000.0], dtype=torch.float16, device=device, requires_grad=True)
    beta = torch.tensor(1.0, dtype=torch.float16, device=device, requires_grad=True)
    native.swish(x, beta).sum().backward()
    assert x.grad.tolist() == [0, 0, 1, 1]
    assert beta.grad.item() == 0


@each_device
def test_the_same_bits_in_every_run(device) -> None:
    args = sample((100_003,), torch.float32, device)
    first, second = (gradients(native.swish, args) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_opcheck(built) -> None:
    x, beta = sample()
    for op, args in [
        (torch.ops.autograd_cookbook.swish_forward, (x.detach(), beta.detach())),
        (torch.ops.autograd_cookbook.swish_backward, (x.detach(), x.detach(), beta.detach())),
    ]:
        assert set(torch.library.opcheck(op.default, args).values()) == {"SUCCESS"}


@pytest.mark.parametrize(
    ("input", "beta", "error", "message"),
    [
        pytest.param(torch.ones(2), torch.ones(2), RuntimeError, r"got shape \(2,\)", id="beta is no scalar"),
        pytest.param(torch.ones(2), torch.tensor(1.0).double(), TypeError, "float32, got torch.float64", id="dtypes"),
        pytest.param(torch.ones(2), 1.0, TypeError, "got float", id="beta is a number"),
        pytest.param([1.0], torch.tensor(1.0), TypeError, "got list", id="input is a list"),
        pytest.param(torch.ones(2).long(), torch.tensor(1), TypeError, r"got torch\.int64", id="integers"),
        pytest.param(torch.ones(2), torch.tensor(1.0, device="meta"), RuntimeError, "on cpu, got meta", id="device"),
    ],
)
def test_bad_input_is_named(input, beta, error, message) -> None:
    with pytest.raises(error, match=message):
        native.swish(input, beta)


def test_the_operators_themselves_refuse_what_would_crash_them(built) -> None:
    x, beta = sample()
    x, beta = x.detach(), beta.detach()
    ops = torch.ops.autograd_cookbook
    for call, message in [
        (lambda: ops.swish_forward(x, x), "0-dim"),
        (lambda: ops.swish_forward(x, beta.float()), "dtype"),
        (lambda: ops.swish_forward(x.long(), beta.long()), "swish_forward"),
        (lambda: ops.swish_backward(x[:1], x, beta), "shape"),
        (lambda: ops.swish_backward(x.float(), x, beta), "dtype"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            call()


def run(code: str, **environment: str) -> str:
    env = os.environ | {"PYTHONWARNINGS": "error"} | environment
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_a_build_it_runs_in_python_with_the_same_numbers(built, tmp_path) -> None:
    code = """if True:
        import torch
        from autograd_cookbook import native
        x = torch.linspace(-3, 3, 7, dtype=torch.float64, requires_grad=True)
        beta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        native.swish(x, beta).sum().backward()
        print(native.backend(), round(beta.grad.item(), 10), round(x.grad[0].item(), 10))
    """
    kernel, python = run(code).split(), run(code, XDG_CACHE_HOME=str(tmp_path)).split()
    assert (kernel[0], python[0]) == ("C++", "Python")
    assert kernel[1:] == python[1:]


def test_a_missing_compiler_is_named_and_leaves_nothing_behind(tmp_path) -> None:
    code = """if True:
        from autograd_cookbook import native
        try:
            native.build()
        except FileNotFoundError as error:
            print(error)
    """
    assert "'no-such-compiler'" in run(code, XDG_CACHE_HOME=str(tmp_path), CXX="no-such-compiler")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.gpu
def test_one_binary_has_both_kernels(built) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU here: the kernels are compiled by nox -s gpu, and not run")
    assert native.KERNELS == {"cpu": "C++", "cuda": "CUDA"}
