"""The native operators: built, loaded, right in every layout and dtype, and absent without harm."""

import os
import subprocess
import sys

import pytest
import torch
from torch.utils import cpp_extension

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes import cuda_extension
from autograd_cookbook.recipes._native import cuda_runtime
from autograd_cookbook.recipes._native.cli import LIBRARIES
from tests.recipes.native_operators import OPS, SWISH, each_device, each_operator, exactly, run, sample
from tests.support import expect_close, gradients


@each_device
@each_operator
@pytest.mark.parametrize("shape", [(40, 25), (3, 1031), (2, 2048)], ids=str)
@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)],
    ids=str,
)
def test_each_dtype_is_as_good_as_it_can_be(device, operator, shape, dtype, rtol) -> None:
    args = sample(operator, shape, dtype, device)
    found = gradients(operator.function, args)
    assert {t.dtype for t in found} == {dtype}
    expect_close([t.double() for t in found], exactly(operator, args), rtol)


@each_device
@each_operator
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(lambda t: t.mT, id="transposed"),
        pytest.param(lambda t: t[::2, 1:], id="strided with an odd offset"),
        pytest.param(lambda t: t[:1].expand(4, -1), id="expanded"),
        pytest.param(lambda t: t.flatten()[1:], id="misaligned"),
        pytest.param(lambda t: t.flatten()[3:35].view(2, 16), id="misaligned rows of a width that vectors divide"),
    ],
)
def test_each_layout_of_input_and_gradient(device, operator, layout, dtype) -> None:
    rtol = {torch.float64: 1e-12, torch.float16: 4e-3}[dtype]
    x, _ = sample(operator, (8, 6), dtype, device)
    parameter = operator.parameter(layout(x)).to(device, dtype).requires_grad_()
    upstream = sample(operator, (8, 6), dtype, device)[0].detach().sin()
    wide = tuple(t.detach().double().requires_grad_() for t in (x, parameter, upstream))
    y = operator.function(layout(x), parameter)
    expected = operator.reference(layout(wide[0]), wide[1])
    ours = (y.detach(), *torch.autograd.grad(y, (x, parameter), layout(upstream)))
    theirs = (expected.detach(), *torch.autograd.grad(expected, wide[:2], layout(wide[2].detach())))
    expect_close([t.double() for t in ours], theirs, rtol)


@each_device
@each_operator
def test_a_parameter_with_strides(device, operator) -> None:
    x, parameter = sample(operator, device=device)
    strided = torch.stack([parameter.detach(), parameter.detach() + 9], -1)[..., 0].requires_grad_()
    assert strided.dim() == 0 or not strided.is_contiguous()
    expect_close(gradients(operator.function, (x, strided)), gradients(operator.function, (x, parameter)), 1e-15)


@each_device
@each_operator
def test_an_expanded_gradient_of_a_sum(device, operator) -> None:
    args = sample(operator, (8, 6), device=device)
    ours = torch.autograd.grad(operator.function(*args).sum(), args)
    expect_close(ours, torch.autograd.grad(operator.reference(*args).sum(), args), 1e-12)


@each_operator
def test_a_negated_view_that_is_not_in_memory(built, operator) -> None:
    """The imaginary part of a conjugate: torch keeps a bit for the sign, and the numbers as they were."""
    z = torch.complex(*(sample(operator, (4, 6))[0].detach() for _ in range(2)))
    negated = z.conj().imag
    assert negated.is_neg()
    parameter = operator.parameter(negated)
    expect_close([operator.function(negated, parameter)], [operator.function(-z.imag, parameter)], 1e-15)


@each_device
@each_operator
@pytest.mark.parametrize("shape", [(100_003, 3), (70, 1500), (3, 100_003)], ids=str)
def test_the_same_bits_in_every_run(device, operator, shape) -> None:
    args = sample(operator, shape, torch.float32, device)
    first, second = (gradients(operator.function, args) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@each_operator
def test_the_same_bits_on_any_number_of_threads(built, operator) -> None:
    args = sample(operator, (3000, 101), torch.float32)
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            found.append(gradients(operator.function, args))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@each_operator
@pytest.mark.parametrize("shape", [(7, 5), (0, 5), (5,)], ids=str)
def test_opcheck(built, operator, shape) -> None:
    x, parameter = (t.detach() for t in sample(operator, shape))
    name = operator.library.name
    for op, args in [
        (getattr(OPS, f"{name}_forward"), (x, parameter, *operator.numbers)),
        (getattr(OPS, f"{name}_backward"), (x, x, parameter, *operator.numbers)),
    ]:
        assert set(torch.library.opcheck(op.default, args).values()) == {"SUCCESS"}


@each_operator
def test_only_the_arguments_are_kept(built, operator) -> None:
    assert saved_bytes(operator.function, *sample(operator)) == 0


@each_operator
def test_per_sample_gradients_are_those_of_a_loop(built, operator) -> None:
    x, parameter = (t.detach() for t in sample(operator))
    loss = torch.func.grad(lambda x, p: operator.function(x, p).sin().sum(), argnums=1)
    each = torch.stack([loss(row, parameter) for row in x])
    expect_close([torch.func.vmap(loss, (0, None))(x, parameter)], [each], 1e-12)


@each_device
def test_the_operators_themselves_refuse_what_would_crash_them(device) -> None:
    x, beta = (t.detach() for t in sample(SWISH, device=device))
    w = torch.ones(5, dtype=x.dtype, device=device)
    for call, message in [
        (lambda: OPS.swish_forward(x, x), "0-dim"),
        (lambda: OPS.swish_forward(x, beta.float()), "dtype"),
        (lambda: OPS.swish_forward(x.long(), beta.long()), "swish_forward"),
        (lambda: OPS.swish_backward(x[:1], x, beta), "shape"),
        (lambda: OPS.swish_backward(x.mT, x, beta), "shape"),
        (lambda: OPS.swish_backward(x.float(), x, beta), "dtype"),
        (lambda: OPS.rms_norm_forward(x, w[:4], 0.0), "width"),
        (lambda: OPS.rms_norm_forward(x, w[None], 0.0), "width"),
        (lambda: OPS.rms_norm_forward(x, beta, 0.0), "width"),
        (lambda: OPS.rms_norm_forward(beta, w, 0.0), "dimension"),
        (lambda: OPS.rms_norm_forward(x, w.float(), 0.0), "dtype"),
        (lambda: OPS.rms_norm_forward(x.long(), w.long(), 0.0), "rms_norm_forward"),
        (lambda: OPS.rms_norm_backward(x[:6], x, w, 0.0), "shape"),
        (lambda: OPS.rms_norm_backward(x[0], x, w, 0.0), "shape"),
        (lambda: OPS.rms_norm_backward(x.half(), x, w, 0.0), "dtype"),
        (lambda: OPS.rms_norm_backward(x, x, w[:0], 0.0), "width"),
        (lambda: OPS.rms_norm_backward(x[:, :0], x[:, :0], w, 0.0), "width"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            call()


def test_without_a_build_it_runs_in_python_with_the_same_numbers(built, tmp_path) -> None:
    code = """if True:
        import torch
        from autograd_cookbook.recipes.cuda_extension import SWISH, swish
        from autograd_cookbook.recipes.row_reduction import RMS_NORM, fused_rms_norm
        x, weight = torch.linspace(-3, 3, 14, dtype=torch.float64).view(2, 7).unbind()
        for function, parameter in ((swish, weight[0]), (fused_rms_norm, weight)):
            args = [t.clone().requires_grad_() for t in (x, parameter)]
            grads = torch.autograd.grad(function(*args).sin().sum(), args)
            print([round(g, 10) for grad in grads for g in grad.reshape(-1).tolist()])
        print(*{library.backend() for library in (SWISH, RMS_NORM)})
    """
    kernel, python = run(code), run(code, XDG_CACHE_HOME=str(tmp_path))
    assert kernel == python.replace("Python", "C++")
    assert python.endswith("Python")


@each_operator
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_python_is_as_good_as_the_kernels(operator, dtype, monkeypatch) -> None:
    monkeypatch.setattr(operator.library, "kernels", {})
    args = sample(operator, (40, 25), dtype)
    found = gradients(operator.function, args)
    assert {t.dtype for t in found} == {dtype}
    rtol = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    expect_close([t.double() for t in found], exactly(operator, args), rtol)


def test_a_missing_compiler_is_named_and_leaves_nothing_behind(tmp_path) -> None:
    code = """if True:
        from autograd_cookbook.recipes.cuda_extension import SWISH
        try:
            SWISH.build()
        except FileNotFoundError as error:
            print(error)
    """
    assert "'no-such-compiler'" in run(code, XDG_CACHE_HOME=str(tmp_path), CXX="no-such-compiler")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_command_says_what_it_built_and_what_it_lacks(built, tmp_path) -> None:
    command = [sys.executable, "-m", "autograd_cookbook", "build"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"built {' '.join(map(str, built))}\n"
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "CXX": "no-such-compiler"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    # With CUDA, torch may log a line before, on a machine without a GPU.
    assert "\nno compiler 'no-such-compiler' on the PATH" in f"\n{done.stderr}"


def test_a_broken_file_is_named_and_the_package_works(built, tmp_path) -> None:
    """As one is that another machine has left in a home that both mount."""
    broken = tmp_path / "autograd_cookbook" / cuda_extension.SWISH.path.name
    broken.parent.mkdir()
    broken.write_bytes(b"no library")
    code = """if True:
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            from autograd_cookbook.recipes.cuda_extension import SWISH
        print(SWISH.backend(), *(w.message for w in caught))
    """
    said = run(code, XDG_CACHE_HOME=str(tmp_path))
    assert said.startswith("Python cannot load ")
    assert broken.name in said


def test_where_the_cuda_kernels_cannot_be_built_those_in_cpp_are(tmp_path) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\nexit 1\n")
    nvcc.chmod(0o755)
    code = """if True:
        import torch, warnings
        torch.version.cuda = "13.0"
        from autograd_cookbook.recipes.cuda_extension import SWISH
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            SWISH.build()
        print(SWISH.backend(), SWISH.backend("cuda"), *(w.message for w in caught))
    """
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    said = run(code, XDG_CACHE_HOME=str(tmp_path), PATH=path, NVCC="nvcc")
    assert said.startswith("C++ Python swish is built in C++ alone, because nvcc failed")


def test_the_cuda_runtime_is_taken_from_the_packages_of_torch(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "torch" / "__init__.py"))
    assert cuda_runtime() == "-lcudart"
    carried = tmp_path / "nvidia" / "cu13" / "lib" / "libcudart.so.13"
    carried.parent.mkdir(parents=True)
    carried.touch()
    assert cuda_runtime() == str(carried)


@pytest.mark.gpu
def test_the_operators_themselves_refuse_a_parameter_on_another_device(built) -> None:
    x, w = torch.ones(2, 5, device="cuda"), torch.ones(5)
    for call in (
        lambda: OPS.swish_forward(x, w[0]),
        lambda: OPS.swish_backward(x, x, w[0]),
        lambda: OPS.swish_backward(x.cpu(), x, w[0].cuda()),
        lambda: OPS.rms_norm_forward(x, w, 0.0),
        lambda: OPS.rms_norm_backward(x, x, w, 0.0),
        lambda: OPS.rms_norm_backward(x.cpu(), x, w.cuda(), 0.0),
    ):
        with pytest.raises(RuntimeError, match="on the device of input"):
            call()


@pytest.mark.gpu
def test_one_binary_has_both_kernels(built) -> None:
    assert [library.kernels for library in LIBRARIES] == 2 * [{"cpu": "C++", "cuda": "CUDA"}]


KERNELS_OF_TWO_KINDS = """\
#include <ATen/ATen.h>
#include <torch/library.h>

at::Tensor by_operators(const at::Tensor& x) { return x * x * x; }

at::Tensor by_pointer(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double value = x.const_data_ptr<double>()[i];
    y.data_ptr<double>()[i] = value * value * value;
  }
  return y;
}

TORCH_LIBRARY(cookbook_test_cubes, library) {
  library.def("by_operators(Tensor x) -> Tensor");
  library.def("by_pointer(Tensor x) -> Tensor");
  library.impl("by_operators", c10::kCPU, by_operators);
  library.impl("by_pointer", c10::kCPU, by_pointer);
}
"""


@pytest.mark.slow("docs/pitfalls", "tests/recipes/test_native.py")
@pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered")
def test_a_kernel_without_an_autograd_kernel_is_recorded_if_it_calls_operators(tmp_path) -> None:
    """As the pitfall of such operators says of kernels in C++."""
    source, target = tmp_path / "cubes.cpp", tmp_path / "cubes.so"
    source.write_text(KERNELS_OF_TWO_KINDS)
    includes = [f"-I{path}" for path in cpp_extension.include_paths()]
    compiler = os.environ.get("CXX", "c++")
    libraries = [f"-L{path}" for path in cpp_extension.library_paths()] + ["-ltorch_cpu", "-lc10"]
    command = [compiler, "-std=c++20", "-shared", "-fPIC", *includes, str(source), *libraries, "-o", str(target)]
    subprocess.run(command, check=True)
    torch.ops.load_library(target)
    x = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    cubes = torch.ops.cookbook_test_cubes
    for operator, slope in ((cubes.by_operators, 12), (cubes.by_pointer, None)):
        (gradient,) = torch.autograd.grad(operator(x).sum(), x, allow_unused=True)
        assert (gradient if gradient is None else gradient.item()) == slope
        assert torch.func.grad(lambda x, operator=operator: operator(x).sum())(x.detach()) == 0
