"""Compile operators in C++ and CUDA once, for every version of torch, and load them if they have been built."""

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

# Use only functions that torch 2.11 has, so that the compiled operators run with torch 2.11 and later.
FLAGS = ["-O3", "-std=c++20", "-DTORCH_TARGET_VERSION=0x020b000000000000"]


# No code reads errno after exp. Without errno, the loops can use the C library's vector version of exp.
CXX_FLAGS = ["-fPIC", "-Wall", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"]


CUDA_FLAGS = [
    *("-gencode", "arch=compute_80,code=sm_80"),
    *("-gencode", "arch=compute_90,code=[sm_90,compute_90]"),
    *("--expt-relaxed-constexpr", "-Xcompiler", "-fPIC", "-DUSE_CUDA"),
]


def with_cuda() -> bool:
    """Whether kernels for CUDA can be linked: torch has CUDA, and this machine has the CUDA compiler."""
    return torch.version.cuda is not None and shutil.which("nvcc") is not None


def cuda_runtime() -> str:
    """Return the CUDA runtime for the linker: from torch's own packages, or otherwise the one that the linker finds."""
    carried = Path(torch.__file__).parents[1].glob("nvidia/*/lib/libcudart.so*")
    return next((str(path) for path in sorted(carried)), "-lcudart")


def command(name: str, variable: str) -> list[str]:
    """Return the compiler that an environment variable names, or the usual one.

    Raises:
        FileNotFoundError: if there is no such command.
    """
    compiler = os.environ.get(variable, name)
    if shutil.which(compiler) is None:
        raise FileNotFoundError(f"no compiler {compiler!r} on the PATH; install one, or name yours in {variable}")
    return [compiler]


class Library:
    """Operators in C++ and, if there is a CUDA compiler, in CUDA. They are loaded on creation if they have been built.

    Args:
        name: the name of the sources ``name.cpp`` and ``name.cu``, without the ending.
        sources: the text of each file.
        fakes: a fake kernel for each operator of the namespace ``autograd_cookbook``. :func:`torch.compile` needs this
            function: it takes the operator's arguments, and returns tensors of the right shape and dtype without data.
    """

    def __init__(self, name: str, sources: dict[str, str], fakes: dict[str, Callable[..., Any]]) -> None:
        self.name, self.sources, self.fakes = name, sources, fakes
        # The language of the compiled kernels, for each device that has them.
        self.kernels: dict[str, str] = {}
        if self.path.exists():
            try:
                self.load()
            except OSError as error:
                warnings.warn(f"cannot load {self.path}, so {name} runs in Python: {error}", stacklevel=2)

    @property
    def path(self) -> Path:
        """The file of the compiled operators. Its name depends on the sources, so changed ones are built again."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autograd_cookbook"
        flags = (FLAGS, CXX_FLAGS, self.extra_flags(), CUDA_FLAGS, with_cuda() and torch.version.cuda)
        content = repr((self.sources, flags, os.uname().machine))
        return cache / f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}.so"

    def backend(self, device: torch.device | str = "cpu") -> str:
        """Return the language of the code for a device: "C++", "CUDA", or "Python" if no kernel is built for it."""
        return self.kernels.get(torch.device(device).type, "Python")

    def extra_flags(self) -> list[str]:
        """Return the flags that the environment variable ``CXXFLAGS`` adds for the C++ compiler and the linker."""
        return shlex.split(os.environ.get("CXXFLAGS", ""))

    def build(self) -> Path:
        """Compile the operators and load them. CUDA kernels are included if :func:`with_cuda` is true.

        If the CUDA kernels cannot be compiled or linked, a warning says so, and only the C++ kernels are built.

        Returns:
            The path of the file, which is in the user's cache. A second call uses this file.

        Raises:
            FileNotFoundError: if there is no C++ compiler.
            subprocess.CalledProcessError: if the compiler fails. Its messages go to standard error.
        """
        if not self.path.exists():
            self.compile()
        if not self.kernels:
            try:
                self.load()
            except OSError:  # the file is broken, or was built for another machine
                self.compile()
                self.load()
        return self.path

    def load(self) -> None:
        """Register the compiled operators, unless another copy of this file has done so in this process.

        Raises:
            OSError: if the operators have not been built, or cannot be loaded.
        """
        if not all(hasattr(torch.ops.autograd_cookbook, name) for name in self.fakes):
            torch.ops.load_library(self.path)
            for name, fake in self.fakes.items():
                torch.library.register_fake(f"autograd_cookbook::{name}", fake)
        for device, language in (("cpu", "C++"), ("cuda", "CUDA")):
            names = [f"autograd_cookbook::{name}" for name in self.fakes]
            if all(torch._C._dispatch_has_kernel_for_dispatch_key(name, device.upper()) for name in names):
                self.kernels[device] = language

    def compile(self) -> None:
        """Compile and link into :attr:`path`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.path.parent) as name:
            folder = Path(name)
            cxx = [*command("c++", "CXX"), *CXX_FLAGS, *self.extra_flags()]
            whole, objects = folder / self.path.name, [self.compile_into(folder, cxx, f"{self.name}.cpp")]
            link = [f"-L{directory}" for directory in cpp_extension.library_paths()] + ["-ltorch_cpu", "-ltorch"]
            try:
                more = self.cuda_objects(folder) if with_cuda() else []
                subprocess.run([*cxx, "-shared", *objects, *more, *link, "-o", str(whole)], check=True)
            except subprocess.CalledProcessError as error:
                if not with_cuda():
                    raise
                warnings.warn(
                    f"{self.name} is built in C++ alone, because {error.cmd[0]} failed with what it printed above on "
                    f"the CUDA kernels. To try again, remove {self.path}",
                    stacklevel=3,
                )
                subprocess.run([*cxx, "-shared", *objects, *link, "-o", str(whole)], check=True)
            # Rename at the end, so that another process sees the whole file or none.
            os.replace(whole, self.path)

    def cuda_objects(self, folder: Path) -> list[str]:
        """Compile the CUDA source. Return the object file, and the flags for its libraries."""
        nvcc = [*command("nvcc", "NVCC"), *CUDA_FLAGS]
        compiled = self.compile_into(folder, nvcc, f"{self.name}.cu")
        paths = [f"-L{directory}" for directory in cpp_extension.library_paths("cuda")]
        return [compiled, *paths, "-ltorch_cuda", cuda_runtime()]

    def compile_cuda(self) -> str:
        """Compile the CUDA source and discard the result. This needs no GPU, and any torch has the headers.

        Raises:
            FileNotFoundError: if there is no nvcc.
        """
        with tempfile.TemporaryDirectory() as folder:
            self.compile_into(Path(folder), [*command("nvcc", "NVCC"), *CUDA_FLAGS], f"{self.name}.cu")
        return f"{self.name}.cu"

    def compile_into(self, folder: Path, compiler: list[str], source: str) -> str:
        """Compile one source to an object file, in a folder that gets all sources."""
        for name, text in self.sources.items():
            (folder / name).write_text(text)
        target = folder / f"{source}.o"
        includes = [f"-I{path}" for path in cpp_extension.include_paths()]
        subprocess.run([*compiler, *FLAGS, *includes, "-c", str(folder / source), "-o", str(target)], check=True)
        return str(target)
