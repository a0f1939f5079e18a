"""Run a function in several processes on this machine, and gather tensors from data-parallel ranks with a gradient."""

import inspect
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from autograd_cookbook.recipes._collectives import even_sizes, gathered, sizes_of_ranks
from autograd_cookbook.recipes._context import Context

# The program that starts the ranks. On Linux, it first imports the modules that the ranks need, and then forks.
LAUNCHER = """\
import ast
import contextlib
import datetime
import importlib
import multiprocessing
import os
import pickle
import sys
import traceback
from pathlib import Path

import torch.distributed as dist


def imported_by(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def report(folder, rank, outcome):
    partial = Path(folder, f"partial{rank}")
    partial.write_bytes(pickle.dumps(outcome))
    partial.replace(Path(folder, f"outcome{rank}"))  # whole, or not there


def run(rank, folder, name, world_size, timeout):
    try:
        store = dist.FileStore(str(Path(folder, "store")), world_size)
        wait = datetime.timedelta(seconds=timeout)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=wait)
        path = Path(folder, "function.py")
        defined = {"__name__": "function"}
        exec(compile(path.read_text(), path, "exec"), defined)
        args = pickle.loads(Path(folder, "arguments").read_bytes())
        report(folder, rank, (True, defined[name](*args)))
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:
        report(folder, rank, (False, traceback.format_exc()))


if __name__ == "__main__":
    folder, name, world_size, timeout = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    if context.get_start_method() == "fork":
        modules = [*imported_by(Path(folder, "function.py").read_text())]
        if {"torch.nn.parallel", "torch.distributed.fsdp"} & {*modules}:
            modules.append("torch._dynamo")  # or each rank imports it at first use, which takes longer than all else
        for module in modules:
            with contextlib.suppress(Exception):  # the rank that runs the line says what is wrong with it
                importlib.import_module(module)
    each = (folder, name, world_size, timeout)
    ranks = [context.Process(target=run, args=(rank, *each)) for rank in range(world_size)]
    for process in ranks:
        process.start()
    for rank, process in enumerate(ranks):
        process.join()
        if not Path(folder, f"outcome{rank}").exists():
            report(folder, rank, (False, f"ended with exit status {process.exitcode} and returned nothing"))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # to take torch apart would take half a second
"""


def run_ranks(
    function: Callable[..., Any], world_size: int, *args: Any, timeout: float = 120.0, limit: float = 600.0
) -> list[Any]:
    r"""Call a function in processes that are the ranks of a gloo group, and return the result of each.

    You can use it in a script, a notebook or a test. It sends the function to the processes as text. So the function
    must import what it uses, and must not use variables from outside. ``torch.distributed`` is initialized before the
    call. The processes communicate over the loopback interface, and each process has one thread.

    Args:
        function: a function defined with ``def``, called as ``function(*args)`` in each process.
        world_size: the number of processes.
        args: the arguments of the function, the same for all processes. They must be picklable.
        timeout: the number of seconds that a rank waits for another rank in a collective operation before it raises.
        limit: the number of seconds after which all processes are ended.

    Returns:
        The results of the function, in the order of the ranks.

    Raises:
        RuntimeError: if the function raised in a rank, or a rank died. The message has the error of each failed rank.
        TimeoutError: if ``limit`` is reached.
        TypeError: if the function can't be sent as text.
        ValueError: if ``world_size`` is less than 1.

    >>> def sum_of_ranks():
    ...     import torch
    ...     import torch.distributed as dist
    ...
    ...     number = torch.tensor(dist.get_rank() + 1.0)
    ...     dist.all_reduce(number)
    ...     return number.item()
    >>> run_ranks(sum_of_ranks, 2)
    [3.0, 3.0]
    """
    if not inspect.isfunction(function) or function.__name__ == "<lambda>" or function.__closure__:
        raise TypeError(f"expected a function with a def that uses no variable of the one around it, got {function}")
    if world_size < 1:
        raise ValueError(f"expected world_size > 0, got {world_size}")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "launcher.py").write_text(LAUNCHER)
        Path(folder, "function.py").write_text(textwrap.dedent(inspect.getsource(function)))
        Path(folder, "arguments").write_bytes(pickle.dumps(args))
        settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        # Without this setting, gloo uses the address of the host name, and other machines could reach this address.
        loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
        settings |= {"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {}
        process = subprocess.Popen(
            [
                sys.executable,
                str(Path(folder, "launcher.py")),
                folder,
                function.__name__,
                str(world_size),
                str(timeout),
            ],
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except BaseException as error:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)  # the launcher and all ranks
            process.kill()
            output, _ = process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError(f"{world_size} ranks have not ended within {limit} s\n{output}") from None
            raise
        outcomes = [Path(folder, f"outcome{rank}") for rank in range(world_size)]
        if not all(path.exists() for path in outcomes):
            raise RuntimeError(f"the ranks could not be started\n{output}")
        results = [pickle.loads(path.read_bytes()) for path in outcomes]
    if failed := [f"rank {rank}: {said}" for rank, (fine, said) in enumerate(results) if not fine]:
        raise RuntimeError("\n".join([f"{len(failed)} of {world_size} ranks failed", *failed, output]))
    return [value for _, value in results]


class AllGather(Function):
    """Joins the parts of all ranks. Each rank uses the result in its own way, so backward adds up the gradients."""

    @staticmethod
    def forward(input: Tensor, dim: int, sizes: tuple[int, ...], group: "dist.ProcessGroup | None") -> Tensor:
        return gathered(input, dim, sizes, group)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, *ctx.how = inputs

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return ReduceScatter.apply(grad_output, *ctx.how), None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, None, None, None], input: Tensor, dim: int, *how: Any
    ) -> tuple[Tensor, int]:
        return AllGather.apply(input.movedim(in_dims[0], 0), dim + 1, *how), 0


class ReduceScatter(Function):
    """Gives each rank its part of the sum over all ranks. Keeps no tensor."""

    @staticmethod
    def forward(input: Tensor, dim: int, sizes: tuple[int, ...], group: "dist.ProcessGroup | None") -> Tensor:
        parts = [part.contiguous() for part in input.split(sizes, dim)]
        output = torch.empty_like(parts[dist.get_rank(group)])
        dist.reduce_scatter(output, parts, group=group)
        return output

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, *ctx.how = inputs

    @staticmethod
    def backward(ctx: Context, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return AllGather.apply(grad_output, *ctx.how), None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, None, None, None], input: Tensor, dim: int, *how: Any
    ) -> tuple[Tensor, int]:
        return ReduceScatter.apply(input.movedim(in_dims[0], 0), dim + 1, *how), 0


def all_gather(
    input: Tensor, dim: int = 0, group: "dist.ProcessGroup | None" = None, sizes: Sequence[int] | None = None
) -> Tensor:
    r"""Join the parts of all ranks, for a computation that differs from rank to rank.

    .. math:: y_r = [x_0, x_1, \dots], \qquad \bar{x}_r = \textstyle\sum_s \text{part } r \text{ of } \bar{y}_s

    Backward sends the gradient of each part to the rank that has this part, and adds up the gradients there. So
    backward is a :func:`reduce_scatter`. The function does the same as :func:`.gather_from_ranks` followed by
    :func:`.copy_to_ranks`, but in one step.

    Args:
        input: at least one dimension. The tensors of the ranks may differ only in the length of ``dim``.
        dim: the dimension along which the function joins the parts.
        group: the group of ranks; None for all ranks.
        sizes: the length of ``dim`` on each rank. If None, the ranks exchange their lengths first. This exchange waits
            for the GPU, and does not work inside of :func:`torch.func.vmap` and similar transforms.

    Returns:
        A tensor like ``input``. Its length in ``dim`` is the length of all parts together.

    Raises:
        IndexError: if there is no such dimension.
        RuntimeError: if the tensors of two ranks do not fit.
        ValueError: if there is no process group, or ``sizes`` are not those of the ranks.

    >>> from autograd_cookbook.recipes.data_parallel import run_ranks
    >>> def gradient():
    ...     import torch
    ...     import torch.distributed as dist
    ...     from autograd_cookbook.recipes.data_parallel import all_gather
    ...
    ...     x = torch.ones(2, requires_grad=True)
    ...     (all_gather(x) * 10 ** dist.get_rank()).sum().backward()
    ...     return x.grad
    >>> run_ranks(gradient, 2)
    [tensor([11., 11.]), tensor([11., 11.])]
    """
    sizes = sizes_of_ranks(input, dim, group, sizes)
    return AllGather.apply(input, dim % input.dim(), sizes, group)


def reduce_scatter(input: Tensor, dim: int = 0, group: "dist.ProcessGroup | None" = None) -> Tensor:
    r"""Return this rank's part of the sum over all ranks. This function is the backward of :func:`all_gather`.

    .. math:: y_r = \textstyle\sum_s \text{part } r \text{ of } x_s, \qquad \bar{x}_r = [\bar{y}_0, \bar{y}_1, \dots]

    Args:
        input: at least one dimension, the same shape on all ranks.
        dim: the dimension to split, as :func:`torch.tensor_split` does. If necessary, the first parts are one longer.
        group: the group of ranks; None for all ranks.

    Returns:
        A tensor like ``input``, shorter in ``dim``.

    Raises:
        IndexError: if there is no such dimension.
        ValueError: if there is no process group.
    """
    sizes = even_sizes(input.size(dim), group)
    return ReduceScatter.apply(input, dim % input.dim(), sizes, group)
