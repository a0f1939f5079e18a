"""Kernels in Triton: compiled for a GPU that is not here, run on the interpreter, and absent without harm."""

import os
import subprocess
import sys

import pytest
import torch

from autograd_cookbook.recipes import _triton, _triton_attention, triton_kernel
from tests.support import HANG

pytestmark = pytest.mark.skipif(_triton.triton is None, reason="Triton is not installed")
compiles = pytest.mark.skipif(_triton.INTERPRETED, reason="the interpreter's kernels cannot be compiled")
slow = pytest.mark.slow("src/autograd_cookbook/recipes")
TYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64"}


def machine_code(kernel, types, capability, **constants):
    """What Triton's compiler makes of a kernel for a GPU of this generation: it needs none."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names}
    compiled = _triton.triton.compile(ASTSource(kernel, signature, constants), GPUTarget("cuda", capability, 32))
    return compiled.asm["cubin"], compiled.metadata.shared


@compiles
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_kernels_of_softmax_compile(dtype) -> None:
    pointer = f"*{TYPES[dtype]}"
    types = dict.fromkeys(("input", "output", "grad_output", "grad_input"), pointer)
    for kernel in (triton_kernel.softmax_kernel, triton_kernel.gradient_kernel):
        code, _ = machine_code(kernel, types, 90, DOUBLE=dtype is torch.float64, BLOCK=256)
        assert code


@compiles
@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        (torch.float16, 16),
        (torch.float32, 16),
        pytest.param(torch.float64, 128, marks=slow),
    ],
    ids=str,
)
def test_the_kernels_of_attention_compile_and_fit_into_the_memory_of_small_gpus(dtype, width) -> None:
    sample = torch.empty(1, 1, width, dtype=dtype)
    size, *widths = _triton_attention.constants(sample, sample)
    exact = TYPES[torch.promote_types(dtype, torch.float32)]
    for kernel in (_triton_attention.attention_kernel, _triton_attention.query_kernel, _triton_attention.key_kernel):
        types = dict.fromkeys(kernel.arg_names[:8], f"*{TYPES[dtype]}") | {
            "scale": "fp32",
            **dict.fromkeys(("queries", "keys", "width", "features"), "i32"),
            **dict.fromkeys(("statistics", "delta"), f"*{exact}"),
        }
        code, shared = machine_code(kernel, types, 80, CAUSAL=True, SIZE=size, WIDTH=widths[0], FEATURES=widths[1])
        assert code
        assert shared <= 99 * 1024, f"{kernel.__name__} needs {shared} bytes of shared memory"


def run(code: str, **environment: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | environment
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=HANG)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SOFTMAX = """
import torch
from autograd_cookbook.recipes._triton import backend
from autograd_cookbook.recipes.triton_kernel import triton_softmax
x = torch.tensor([0.0, 1.0], requires_grad=True)
y = triton_softmax(x)
y[0].backward()
print(backend("cpu"), backend("cuda"), [round(v, 5) for v in (y.tolist() + x.grad.tolist())], sep="; ")
"""
NUMBERS = "[0.26894, 0.73106, 0.19661, -0.19661]"


@pytest.mark.parametrize(
    ("before", "environment", "backends"),
    [
        pytest.param("import sys; sys.modules['triton'] = None", {}, "Python; Python", id="without Triton"),
        pytest.param("", {}, "Python; Triton", id="with Triton"),
        pytest.param(
            "", {"TRITON_INTERPRET": "1"}, "Triton's interpreter; Triton's interpreter", id="on the interpreter"
        ),
        pytest.param(
            "import os, triton; os.environ['TRITON_INTERPRET'] = '1'",
            {},
            "Python; Triton",
            id="interpreter asked for too late",
        ),
    ],
)
def test_what_runs_on_a_cpu_and_what_would_on_a_gpu(before, environment, backends) -> None:
    assert run(before + SOFTMAX, **environment) == f"{backends}; {NUMBERS}"


# What would be registered without the opaque operator: triton_op runs the code that launches kernels on tensors
# without data, which the interpreter cannot read.
LOOKED_INTO = """
import torch
from autograd_cookbook.recipes._triton import INTERPRETED, constexpr, jit, launch, tl
assert INTERPRETED
@jit
def double(x, y, n, BLOCK: constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(y + lanes, 2 * tl.load(x + lanes, mask=lanes < n), mask=lanes < n)
def run(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    launch(double, 1, x, y, len(x), 4)
    return y
operator = torch.library.triton_op("tests::double", run, mutates_args=())
print(operator(torch.ones(3)).tolist())
try:
    torch.compile(lambda x: operator(x), fullgraph=True, backend="aot_eager")(torch.ones(3))
except Exception as error:
    print(str(error).splitlines()[0])
"""


def test_on_the_interpreter_an_operator_that_torch_compile_looks_into_does_not_compile(tmp_path) -> None:
    path = tmp_path / "looked_into.py"  # a kernel needs a file to read its source from
    path.write_text(LOOKED_INTO)
    eager, message = run(f"import runpy; runpy.run_path({str(path)!r})", TRITON_INTERPRET="1").splitlines()
    assert eager == "[2.0, 2.0, 2.0]"
    assert "fake" in message.lower(), message


OPCHECK = """
import torch
from autograd_cookbook.recipes._triton_attention import triton_attention_backward, triton_attention_forward
from autograd_cookbook.recipes.triton_kernel import triton_softmax_backward, triton_softmax_forward
x = torch.randn(2, 5, 3)
statistics = torch.zeros(2, 5, 2)
for op, args in [
    (triton_softmax_forward, (x,)),
    (triton_softmax_backward, (x, x)),
    (triton_attention_forward, (x, x, x, True, 0.5)),
    (triton_attention_backward, (x, x, x, x, x, statistics, True, 0.5, True)),
    (triton_attention_backward, (x, x, x, x, x, statistics, True, 0.5, False)),
]:
    print(*set(torch.library.opcheck(op, args).values()))
"""


def test_opcheck() -> None:
    assert run(OPCHECK, TRITON_INTERPRET="1").split() == ["SUCCESS"] * 5
