"""An operator in C++ and CUDA, differentiable twice, that works without a compiler, too."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils import cpp_extension

SOURCES = {name: (Path(__file__).parent / name).read_text() for name in ("swish_math.h", "swish.cpp", "swish.cu")}

# Only what torch 2.11 has is used, so what is compiled today runs on that version and on later ones.
FLAGS = ["-O3", "-std=c++20", "-DTORCH_TARGET_VERSION=0x020b000000000000"]
# Nobody reads errno after exp, and without it the loops may use the C library's vector version.
CXX_FLAGS = ["-fPIC", "-Wall", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"]
CUDA_FLAGS = [
    *("-gencode", "arch=compute_80,code=sm_80"),
    *("-gencode", "arch=compute_90,code=[sm_90,compute_90]"),
    *("--expt-relaxed-constexpr", "-Xcompiler", "-fPIC", "-DUSE_CUDA"),
]


# Which devices have a compiled kernel, and what it is written in; filled by load().
KERNELS: dict[str, str] = {}


def with_cuda() -> bool:
    """Whether kernels for CUDA can be linked: torch has CUDA, and its compiler is here."""
    return torch.version.cuda is not None and shutil.which("nvcc") is not None


def library_path() -> Path:
    """Where the compiled operators are kept: by content, so that changed sources are built anew."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autograd_cookbook"
    content = repr((SOURCES, FLAGS, CXX_FLAGS, CUDA_FLAGS, with_cuda(), os.uname().machine))
    return cache / f"swish-{hashlib.sha256(content.encode()).hexdigest()[:16]}.so"


def compiler(name: str, variable: str) -> str:
    """The command that an environment variable names, or the usual one.

    Raises:
        FileNotFoundError: if there is no such command.
    """
    command = os.environ.get(variable, name)
    if shutil.which(command) is None:
        raise FileNotFoundError(f"no compiler {command!r} on the PATH; install one, or name yours in {variable}")
    return command


def compile_into(folder: Path, command: list[str], source: str) -> Path:
    """Compile one source to an object file, in a folder that gets all sources."""
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    target = folder / f"{source}.o"
    includes = [f"-I{path}" for path in cpp_extension.include_paths()]
    subprocess.run([*command, *FLAGS, *includes, "-c", str(folder / source), "-o", str(target)], check=True)
    return target


def compile_cuda() -> str:
    """Compile the CUDA source and throw the result away: the headers of any torch suffice, no GPU is needed.

    Raises:
        FileNotFoundError: if there is no nvcc.
    """
    with tempfile.TemporaryDirectory() as folder:
        compile_into(Path(folder), [compiler("nvcc", "NVCC"), *CUDA_FLAGS], "swish.cu")
    return "swish.cu"


def build() -> Path:
    """Compile the operators and load them, the CUDA ones where :func:`with_cuda` holds.

    Returns:
        The file, in the user's cache; a second call finds it there.

    Raises:
        FileNotFoundError: if there is no C++ compiler.
        subprocess.CalledProcessError: if it fails; what it says goes to standard error.
    """
    path = library_path()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            cxx = compiler("c++", "CXX")
            objects = [compile_into(Path(folder), [cxx, *CXX_FLAGS], "swish.cpp")]
            link = [f"-L{directory}" for directory in cpp_extension.library_paths()] + ["-ltorch_cpu", "-ltorch"]
            if with_cuda():
                objects.append(compile_into(Path(folder), [compiler("nvcc", "NVCC"), *CUDA_FLAGS], "swish.cu"))
                link += [f"-L{directory}" for directory in cpp_extension.library_paths("cuda")]
                link += ["-ltorch_cuda", "-lcudart"]
            whole = Path(folder) / path.name
            subprocess.run([cxx, "-shared", *map(str, objects), *link, "-o", str(whole)], check=True)
            # At once: another process sees the whole file or none.
            os.replace(whole, path)
    load()
    return path


def load() -> None:
    """Register the compiled operators, if they have been built and are not registered yet."""
    if KERNELS or not library_path().exists():
        return
    torch.ops.load_library(library_path())
    KERNELS["cpu"] = "C++"
    if torch._C._dispatch_has_kernel_for_dispatch_key("autograd_cookbook::swish_forward", "CUDA"):
        KERNELS["cuda"] = "CUDA"

    # What torch.compile needs to know: shapes and dtypes, without data.
    @torch.library.register_fake("autograd_cookbook::swish_forward")
    def _(input: Tensor, beta: Tensor) -> Tensor:
        return torch.empty_like(input, memory_format=torch.contiguous_format)

    @torch.library.register_fake("autograd_cookbook::swish_backward")
    def _(grad_output: Tensor, input: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        return torch.empty_like(input, memory_format=torch.contiguous_format), torch.empty_like(beta)


def backend(device: torch.device | str = "cpu") -> str:
    """Which code runs for a tensor on a device: "C++", "CUDA", or "Python" if that is not built."""
    return KERNELS.get(torch.device(device).type, "Python")


def composed(input: Tensor, beta: Tensor) -> Tensor:
    """The value, from torch's operations."""
    return input * torch.sigmoid(beta * input)


def composed_gradients(grad_output: Tensor, input: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Both gradients, from torch's operations: what runs without a build, and what is differentiated again."""
    s = torch.sigmoid(beta * input)
    bend = s * (1 - s)
    # input * input would overflow in half precision.
    return grad_output * (s + beta * input * bend), (grad_output * (input * (input * bend))).sum()


class SwishFunction(Function):
    """Keeps both inputs; its gradient is a function with a gradient of its own."""

    @staticmethod
    def forward(input: Tensor, beta: Tensor) -> Tensor:
        if backend(input.device) == "Python":
            return composed(input, beta)
        return torch.ops.autograd_cookbook.swish_forward(input, beta)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return SwishGradientFunction.apply(grad_output, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], input: Tensor, beta: Tensor) -> tuple[Tensor, int]:
        # A kernel sees one tensor and one beta; torch's operations can be mapped as they are.
        return torch.func.vmap(composed, in_dims)(input, beta), 0


class SwishGradientFunction(Function):
    """Keeps its inputs; the second derivative is rare, and left to torch's operations."""

    @staticmethod
    def forward(grad_output: Tensor, input: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        if backend(input.device) == "Python":
            return composed_gradients(grad_output, input, beta)
        return torch.ops.autograd_cookbook.swish_backward(grad_output, input, beta)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        _, pull_back = torch.func.vjp(composed_gradients, *ctx.saved_tensors)
        return pull_back(grad_outputs)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        return torch.func.vmap(composed_gradients, in_dims)(*inputs), (0, 0)


def swish(input: Tensor, beta: Tensor) -> Tensor:
    r"""Gated activation with a learnable gate.

    .. math::
        y = x\,\sigma(\beta x), \qquad
        \bar{x} = \bar{y}\,(s + \beta x\, s (1 - s)), \quad
        \bar{\beta} = \sum \bar{y}\, x^2 s (1 - s), \quad s = \sigma(\beta x)

    Runs in C++ or CUDA once :func:`build` has been called, in this process or before, and in torch's operations
    otherwise: :func:`backend` says which.

    Args:
        input: any shape and layout; float16, bfloat16, float32 or float64.
        beta: 0-dim, of the same dtype and device.

    Returns:
        A tensor like ``input``, contiguous if a kernel has made it.

    Raises:
        TypeError: if ``input`` is no floating tensor, or ``beta`` no tensor of the same dtype.
        RuntimeError: if ``beta`` has dimensions, or is on another device.

    Source: P. Ramachandran et al., Searching for activation functions, arXiv:1710.05941.

    >>> x = torch.tensor([-1.0, 2.0])
    >>> beta = torch.tensor(1.0, requires_grad=True)
    >>> swish(x, beta).sum().backward()
    >>> print(f"{beta.grad:.4f}")
    0.6166
    """
    if not isinstance(input, Tensor) or not input.is_floating_point():
        raise TypeError(f"expected a floating input, got {getattr(input, 'dtype', type(input).__name__)}")
    if not isinstance(beta, Tensor) or beta.dtype != input.dtype:
        raise TypeError(f"expected beta of dtype {input.dtype}, got {getattr(beta, 'dtype', type(beta).__name__)}")
    if beta.dim() != 0:
        raise RuntimeError(f"expected beta without dimensions, got shape {tuple(beta.shape)}")
    if beta.device != input.device:
        raise RuntimeError(f"expected beta on {input.device}, got {beta.device}")
    return SwishFunction.apply(input, beta)


load()
