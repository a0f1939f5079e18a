"""Checks that run in every rank of a group, all ranks at the same time.

None may leave out a collective that the others take part in. The result of a single process, which it is compared with,
is computed by every rank for itself, from the same random numbers. The ranks are started once for all checks of a file.
"""

import os
import traceback
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
import torch._dynamo  # torch.func would import it in each of the ranks
import torch.distributed as dist
from torch import Tensor

from autograd_cookbook.recipes.data_parallel import run_ranks
from tests.support import HANG

EXACT = 1e-10


class Checks:
    """The checks of one test file, each registered by this as a decorator.

    Args:
        module: the dotted name of the file, which every rank imports.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self.functions: dict[str, Callable[[], None]] = {}
        self.known: dict[int, list[dict[str, str | None]] | Exception] = {}

    def __call__(self, function: Callable[[], None]) -> Callable[[], None]:
        self.functions[function.__name__] = function
        return function

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def run(self) -> dict[str, str | None]:
        """What became of each check in this rank: None, or why it failed. After a failure the ranks are out of step."""
        if "MUTANT" in os.environ:
            from tests.mutants import install_from_environment

            install_from_environment()
        results: dict[str, str | None] = {}
        warnings.simplefilter("error")
        for name, function in self.functions.items():
            torch.manual_seed(0)
            try:
                function()
                dist.barrier()
                results[name] = None
            except BaseException:
                return results | {name: traceback.format_exc()}
        return results

    def assert_passed(self, name: str, world_size: int) -> None:
        """Fail unless a check has passed in every rank; the ranks are started when somebody first asks."""
        if world_size not in self.known:
            try:
                found = run_ranks(in_a_rank, world_size, self.module, "check.run", timeout=HANG, limit=HANG)
            except (RuntimeError, TimeoutError) as error:  # once, and not again for each check
                found = error
            self.known[world_size] = found
        outcome = self.known[world_size]
        if isinstance(outcome, Exception):
            raise outcome
        for rank, results in enumerate(outcome):
            if name not in results:
                pytest.fail(f"rank {rank} did not come to {name}: another check failed before it")
            assert results[name] is None, f"rank {rank} of {world_size}: {results[name]}"


def in_a_rank(module: str, function: str) -> object:
    """Sent to the ranks as text: call a function of a test file there."""
    import importlib
    import operator

    import tests.recipes.in_ranks  # noqa: F401  once for all ranks, before they are forked

    return operator.attrgetter(function)(importlib.import_module(module))()


def randn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def mine(tensor: Tensor, dim: int = 0) -> Tensor:
    """This rank's part, a leaf if the whole is one."""
    part = tensor.detach().tensor_split(dist.get_world_size(), dim)[dist.get_rank()].clone()
    return part.requires_grad_(tensor.requires_grad)


def close(actual: Tensor, expected: Tensor, tolerance: float = EXACT) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def total(tensor: Tensor) -> Tensor:
    """The sum over the ranks, of a value without gradient."""
    result = tensor.detach().clone()
    dist.all_reduce(result)
    return result


def expect_vmap_to_be_a_loop(function: Callable[..., Tensor], *dims: int) -> None:
    """An operator and its gradient, mapped over a batch, give what they give for each sample."""
    size = dist.get_world_size()
    batch = randn(4, size + 1, 2 * size)

    def through(x: Tensor) -> Tensor:
        # The ranks cannot tell each other their sizes inside of a transform.
        known = {"sizes": [x.size(*dims)] * size} if "gather" in function.__name__ else {}
        return function(x.sin(), *dims, **known)

    def slope(x: Tensor) -> Tensor:
        return torch.func.vjp(through, x)[1](torch.ones_like(through(x)))[0]

    for mapped in (through, slope):
        for in_dim in (0, 2):
            expected = torch.stack([mapped(x) for x in batch.unbind(in_dim)])
            close(torch.func.vmap(mapped, in_dim)(batch), expected)
