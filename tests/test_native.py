"""The native operators: built, loaded, right in every layout and dtype, and absent without harm."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook import native
from autograd_cookbook.audit import saved_bytes
from autograd_cookbook.catalog import BY_NAME
from autograd_cookbook.native import normalization
from autograd_cookbook.native.library import Library
from tests.support import expect_close, gradients

OPS = torch.ops.autograd_cookbook
INF = float("inf")
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "examples" / "06_beyond_autograd" / "row_reduction.py"
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "native.json").read_text())


@dataclass(frozen=True)
class Operator:
    """A native function, its parameter for an input, and what a bad call is told."""

    name: str
    library: Library
    parameter: Callable[[Tensor], Tensor]
    numbers: tuple[float, ...] = ()  # the arguments that are no tensors

    @property
    def function(self) -> Callable[..., Tensor]:
        return BY_NAME[self.name].function

    @property
    def reference(self) -> Callable[..., Tensor]:
        return BY_NAME[self.name].reference


SWISH = Operator("swish", native.SWISH, lambda x: torch.tensor(0.7, dtype=torch.float64))
RMS_NORM = Operator(
    "fused_rms_norm",
    native.RMS_NORM,
    lambda x: torch.linspace(0.5, 1.5, x.shape[-1], dtype=torch.float64),
    (1e-6,),
)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
NO_GPU = "no GPU here: the kernels are compiled by nox -s gpu, and not run"

each_operator = pytest.mark.parametrize("operator", [SWISH, RMS_NORM], ids=lambda o: o.name)
each_device = pytest.mark.parametrize("device", DEVICES, indirect=True)


@pytest.fixture(scope="module")
def built() -> list[Path]:
    return native.build()


@pytest.fixture
def device(request: pytest.FixtureRequest, built: list[Path]) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip(NO_GPU)
    assert native.backend(request.param) == {"cpu": "C++", "cuda": "CUDA"}[request.param]
    return request.param


def sample(operator, shape=(7, 5), dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return tuple(t.to(device, dtype).requires_grad_() for t in (x, operator.parameter(x)))


def exactly(operator, args):
    """What the reference says in float64."""
    return gradients(operator.reference, tuple(a.detach().double().requires_grad_() for a in args))


@each_device
@pytest.mark.parametrize("count", [0, 1, 31, 33, 257, 32_768, 32_769, 100_003])
def test_swish_of_any_number_of_elements(device, count) -> None:
    args = sample(SWISH, (count,), device=device)
    expect_close(gradients(native.swish, args), exactly(SWISH, args), 1e-12)


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
    expect_close(gradients(native.fused_rms_norm, args), exactly(RMS_NORM, args), 1e-12)


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
def test_large_half_precision_inputs_of_swish_do_not_overflow(device) -> None:
    x = torch.tensor([-60000.0, -300.0, 300.0, 60000.0], dtype=torch.float16, device=device, requires_grad=True)
    beta = torch.tensor(1.0, dtype=torch.float16, device=device, requires_grad=True)
    native.swish(x, beta).sum().backward()
    assert x.grad.tolist() == [0, 0, 1, 1]
    assert beta.grad.item() == 0


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
        monkeypatch.setattr(native.RMS_NORM, "kernels", {})
    # All that is large is negative.
    x = torch.tensor([[-1.0, -0.5, -0.25, -1.0], [1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    x = (x * torch.tensor([[size], [1.0]], dtype=torch.float64)).to(device, dtype).requires_grad_()
    weight = torch.tensor([1.0, 2.0, 1.0, 2.0], dtype=dtype, device=device, requires_grad=True)
    y, grad_input, grad_weight = gradients(lambda *args: native.fused_rms_norm(*args, 0.0), (x, weight))
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
    found = gradients(native.fused_rms_norm, (x, weight))
    expect_close([t.double() for t in found], exactly(RMS_NORM, (x, weight)), 1e-6)
    assert found[0][0].tolist() == [0, 0]
    assert native.fused_rms_norm(x, weight, 0.0)[0].isnan().all()


@each_device
@pytest.mark.parametrize("python", [False, True], ids=["kernel", "python"])
@pytest.mark.parametrize("odd", [INF, -INF, float("nan")])
def test_what_is_not_finite_is_as_in_the_built_in(device, odd, python, monkeypatch) -> None:
    if python:
        monkeypatch.setattr(native.RMS_NORM, "kernels", {})
    x = torch.tensor([[1.0, odd, 2.0], [1.0, 2.0, 3.0]], device=device)
    weight = torch.ones(3, device=device)
    torch.testing.assert_close(native.fused_rms_norm(x, weight), RMS_NORM.reference(x, weight), equal_nan=True)


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


def test_the_bare_operator_has_no_gradient_and_zero_for_torch_func(built) -> None:
    """What the page of pitfalls says about kernels in C++ on torch 2.13; the functions above are there for that."""
    x, beta = sample(SWISH)
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        OPS.swish_forward(x, beta).sum().backward()
    assert x.grad is None
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        gradient = torch.func.grad(lambda x: OPS.swish_forward(x, beta.detach()).sum())(x.detach())
    assert not gradient.any()


@each_operator
def test_only_the_arguments_are_kept(built, operator) -> None:
    assert saved_bytes(operator.function, *sample(operator)) == 0


def test_rms_norm_of_a_batch_is_more_rows_for_the_kernel(built, monkeypatch) -> None:
    x, weight = (t.detach() for t in sample(RMS_NORM, (4, 5, 3)))
    expected = RMS_NORM.reference(x, weight)
    monkeypatch.setattr(normalization, "composed", None)
    expect_close([torch.func.vmap(native.fused_rms_norm, (1, None), 1)(x, weight)], [expected], 1e-14)


def test_rms_norm_of_a_batch_with_a_weight_each(built) -> None:
    x, _ = (t.detach() for t in sample(RMS_NORM, (4, 5, 3)))
    weights = torch.linspace(0.5, 2, 12, dtype=torch.float64).view(3, 4)
    each = torch.stack([RMS_NORM.reference(x[i], weights[:, i]) for i in range(4)])
    expect_close([torch.func.vmap(native.fused_rms_norm, (0, 1))(x, weights)], [each], 1e-14)


@each_operator
def test_per_sample_gradients_are_those_of_a_loop(built, operator) -> None:
    x, parameter = (t.detach() for t in sample(operator))
    loss = torch.func.grad(lambda x, p: operator.function(x, p).sin().sum(), argnums=1)
    each = torch.stack([loss(row, parameter) for row in x])
    expect_close([torch.func.vmap(loss, (0, None))(x, parameter)], [each], 1e-12)


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
def test_bad_input_of_swish_is_named(input, beta, error, message) -> None:
    with pytest.raises(error, match=message):
        native.swish(input, beta)


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
        native.fused_rms_norm(*args)


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


def run(code: str, **environment: str) -> str:
    env = os.environ | {"PYTHONWARNINGS": "error"} | environment
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_a_build_it_runs_in_python_with_the_same_numbers(built, tmp_path) -> None:
    code = """if True:
        import torch
        from autograd_cookbook import native
        x, weight = torch.linspace(-3, 3, 14, dtype=torch.float64).view(2, 7).unbind()
        for function, parameter in ((native.swish, weight[0]), (native.fused_rms_norm, weight)):
            args = [t.clone().requires_grad_() for t in (x, parameter)]
            grads = torch.autograd.grad(function(*args).sin().sum(), args)
            print([round(g, 10) for grad in grads for g in grad.reshape(-1).tolist()])
        print(native.backend())
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
        from autograd_cookbook import native
        try:
            native.build()
        except FileNotFoundError as error:
            print(error)
    """
    assert "'no-such-compiler'" in run(code, XDG_CACHE_HOME=str(tmp_path), CXX="no-such-compiler")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_command_says_what_it_built_and_what_it_lacks(built, tmp_path) -> None:
    command = [sys.executable, "-m", "autograd_cookbook.native"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"built {' '.join(map(str, built))}\n"
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "CXX": "no-such-compiler"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("no compiler 'no-such-compiler' on the PATH")


def test_a_broken_file_is_named_and_the_package_works(built, tmp_path) -> None:
    """As one is that another machine has left in a home that both mount."""
    broken = tmp_path / "autograd_cookbook" / native.SWISH.path.name
    broken.parent.mkdir()
    broken.write_bytes(b"no library")
    code = """if True:
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            from autograd_cookbook import native
        print(native.backend(), *(w.message for w in caught))
    """
    said = run(code, XDG_CACHE_HOME=str(tmp_path))
    assert said.startswith("Python cannot load ")
    assert broken.name in said


def test_two_copies_of_a_recipe_share_the_operators(built, tmp_path) -> None:
    """The second registration of an operator would end the process."""
    copied = tmp_path / "copied.py"
    copied.write_text(BY_NAME["fused_rms_norm"].source)
    code = """if True:
        import torch
        import copied
        from autograd_cookbook import native
        x, w = torch.tensor([3.0, 4.0]), torch.ones(2)
        print(copied.RMS_NORM.backend(), native.backend())
        assert torch.equal(copied.fused_rms_norm(x, w), native.fused_rms_norm(x, w))
    """
    path = os.pathsep.join([str(tmp_path), str(Path(native.__file__).parents[2])])
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


@pytest.mark.gpu
def test_the_operators_themselves_refuse_a_parameter_on_another_device(built) -> None:
    if not torch.cuda.is_available():
        pytest.skip(NO_GPU)
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
    if not torch.cuda.is_available():
        pytest.skip(NO_GPU)
    assert [library.kernels for library in native.LIBRARIES] == 2 * [{"cpu": "C++", "cuda": "CUDA"}]
