"""Processes that are started, heard and ended; and custom functions under DDP and FSDP2, in every rank of a group."""

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # torch.func would import it in each of the ranks
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from autograd_cookbook.recipes import data_parallel
from autograd_cookbook.recipes.data_parallel import all_gather, reduce_scatter, run_ranks
from autograd_cookbook.recipes.linear_cross_entropy import linear_cross_entropy
from autograd_cookbook.recipes.masks import linear_relu, packed_relu
from autograd_cookbook.recipes.template import Linear, linear
from tests.recipes.in_ranks import EXACT, Checks, close, expect_vmap_to_be_a_loop, mine, randn
from tests.support import HANG

# All in one worker of pytest, which starts the ranks once.
pytestmark = pytest.mark.xdist_group("ranks")

check = Checks(__name__)


def about_itself(word: str) -> tuple:
    import os

    import torch
    import torch.distributed as dist

    number = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(number)
    facts = dist.get_backend(), torch.get_num_threads(), os.environ.get("GLOO_SOCKET_IFNAME")
    return dist.get_rank(), dist.get_world_size(), word, number, *facts


def test_results_come_in_the_order_of_the_ranks() -> None:
    results = run_ranks(about_itself, 3, "hello")
    assert [r[:3] for r in results] == [(rank, 3, "hello") for rank in range(3)]
    for *_, number, backend, threads, interface in results:
        assert number.item() == 3.0, "the ranks have not heard each other"
        assert (backend, threads) == ("gloo", 1)
        assert interface in ("lo", "lo0"), f"the ranks talk over {interface!r}, which the outside may reach"


def waits_for_one_that(fate: str, folder: str) -> None:
    """Rank 1 meets its fate between two collectives; the others say that they raised, and how long that took.

    If its fate is to be late, it waits in a folder for the news that one of them has raised.
    """
    import os
    import pathlib
    import signal
    import time

    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(3))
    if dist.get_rank() == 1:
        if fate == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == "raises":
            raise ValueError("a bad day")
        while not any(pathlib.Path(folder).iterdir()):
            time.sleep(0.05)
    start = time.monotonic()
    try:
        dist.all_reduce(torch.ones(3))
    except RuntimeError as error:
        pathlib.Path(folder, str(dist.get_rank())).touch()
        raise RuntimeError(f"waited {time.monotonic() - start:.2f} s: {error}") from None


def failures(fate: str, folder: Path, timeout: float) -> dict[int, str]:
    """What is said of each rank of three."""
    with pytest.raises(RuntimeError, match="3 of 3 ranks failed") as caught:
        run_ranks(waits_for_one_that, 3, fate, str(folder), timeout=timeout, limit=HANG)
    _, *said = re.split(r"^rank (?=\d: )", str(caught.value), flags=re.MULTILINE)
    return {int(text[0]): text for text in said}


@pytest.mark.parametrize(
    ("fate", "said"),
    [("is killed", "exit status -9 and returned nothing"), ("raises", "ValueError: a bad day")],
)
def test_when_a_rank_dies_the_others_raise_at_once(fate: str, said: str, tmp_path: Path) -> None:
    """Long before the timeout of the group: the connection to the dead process is closed."""
    reports = failures(fate, tmp_path, timeout=HANG)
    assert said in reports[1]
    for rank in (0, 2):
        (waited,) = re.findall(r"^RuntimeError: waited ([\d.]+) s: .*[Cc]onnection", reports[rank], flags=re.MULTILINE)
        assert float(waited) < HANG / 2, f"rank {rank} waited {waited} s"


def test_when_a_rank_is_late_the_others_raise_after_the_timeout(tmp_path: Path) -> None:
    reports = failures("is late", tmp_path, timeout=5)
    waited = re.findall(
        r"^RuntimeError: waited ([\d.]+) s: .*Timed out waiting 5000ms", "".join(reports.values()), re.M
    )
    assert waited, f"no rank has timed out: {reports}"
    assert all(float(seconds) > 4.5 for seconds in waited), f"the ranks waited {waited} s"


# In place of the one with torch, which takes seconds to start.
HANGS = """
import os, subprocess, sys, time
rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("PATH", "w").write(f"{os.getpid()} {rank.pid}")
time.sleep(600)
"""


def nothing() -> None: ...


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_at_the_limit_all_processes_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_parallel, "LAUNCHER", HANGS.replace("PATH", str(tmp_path / "pids")))
    with pytest.raises(TimeoutError, match=r"2 ranks have not ended within 4\.5 s"):
        run_ranks(nothing, 2, limit=4.5)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    deadline = time.monotonic() + HANG  # whoever inherits a killed process has to notice
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, pids)), f"of {pids} some are alive"


def test_what_keeps_the_ranks_from_starting_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_parallel, "LAUNCHER", "raise SystemExit('no torch on this machine')")
    with pytest.raises(RuntimeError, match="could not be started\nno torch on this machine"):
        run_ranks(nothing, 2)


def test_functions_that_cannot_be_sent_are_refused() -> None:
    captured = 3

    def closes() -> int:
        return captured

    for function in (closes, lambda: None, len, about_itself.__get__(1)):
        with pytest.raises(TypeError, match="expected a function with a def that uses no variable of the one around"):
            run_ranks(function, 2)
    with pytest.raises(ValueError, match="world_size > 0, got 0"):
        run_ranks(nothing, 0)


# --- Custom functions under DDP and FSDP2 --------------------------------------------------------------------------


class PackedReLU(nn.Module):
    def forward(self, input: Tensor) -> Tensor:
        return packed_relu(input)


class LinearReLU(Linear):
    def forward(self, input: Tensor) -> Tensor:
        return linear_relu(input, self.weight, self.bias)


class Model(nn.Module):
    """Custom functions with and without parameters, and a loss inside of forward that reads the last weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(Linear(5, 7), PackedReLU(), LinearReLU(7, 6)).double()
        self.head = nn.Linear(6, 9, bias=False).double()

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return linear_cross_entropy(self.body(input), self.head.weight, target)


def batch() -> tuple[Tensor, Tensor]:
    return randn(4 * dist.get_world_size(), 5), torch.randint(9, (4 * dist.get_world_size(),))


def reference(data: tuple[Tensor, Tensor]) -> list[Tensor]:
    model = Model()
    model(*data).backward()
    return [p.grad for p in model.parameters()]


def fsdp(model: nn.Module, *parts: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (*parts, model):
        fully_shard(part, mesh=mesh)
    return model


@check
def vmap_is_a_loop() -> None:
    expect_vmap_to_be_a_loop(all_gather, -1)
    expect_vmap_to_be_a_loop(reduce_scatter, 0)


@check
def ddp_gives_the_gradients_of_one_process() -> None:
    data = batch()
    model = DistributedDataParallel(Model())
    model(*map(mine, data)).backward()
    for found, expected in zip(model.parameters(), reference(data), strict=True):
        close(found.grad, expected)


@check
def fsdp_gives_the_gradients_of_one_process() -> None:
    data = batch()
    model = Model()
    fsdp(model, *[layer for layer in model.body if list(layer.parameters())])
    model(*map(mine, data)).backward()
    for found, expected in zip(model.parameters(), reference(data), strict=True):
        close(found.grad.full_tensor(), expected)


@check
def ddp_averages() -> None:
    """A loss that is a sum over samples gets a gradient that is too small by the number of ranks."""
    x = randn(4 * dist.get_world_size(), 5)
    torch.manual_seed(1)
    model = DistributedDataParallel(Linear(5, 2).double())
    model(mine(x)).sum().backward()
    weight, bias = (p.detach().clone().requires_grad_() for p in model.parameters())
    linear(x, weight, bias).sum().backward()
    close(model.module.weight.grad * dist.get_world_size(), weight.grad)


def contrastive(queries: Tensor, keys: Tensor, first: int) -> Tensor:
    """Each query must find its own key among all of them."""
    return F.cross_entropy(queries @ keys.mT, torch.arange(len(queries)) + first)


@check
def contrastive_loss_under_ddp() -> None:
    """With all_gather the gradient is that of the whole batch; with torch's own, which has none, it is not."""
    x, rank = randn(3 * dist.get_world_size(), 5), dist.get_rank()

    def encoder() -> nn.Module:
        torch.manual_seed(2)
        return Linear(5, 4).double()

    one = encoder()
    contrastive(one(x), one(x), 0).backward()

    def without_gradient(part: Tensor) -> Tensor:
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, part.detach())
        parts[rank] = part
        return torch.cat(parts)

    for gather, right in ((all_gather, True), (without_gradient, False)):
        model = DistributedDataParallel(encoder())
        part = model(mine(x))
        contrastive(part, gather(part), rank * len(part)).backward()
        assert torch.allclose(model.module.weight.grad, one.weight.grad, rtol=EXACT, atol=EXACT) is right


class WeightOnCtx(Function):
    """Against the rules: the weight is an attribute."""

    forward = staticmethod(lambda input, weight: input @ weight.mT)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.weight = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output @ ctx.weight, grad_output.mT @ ctx.saved_tensors[0]


class CopyOnCtx(WeightOnCtx):
    """Against the rules, and at a price: a copy of the weight."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.weight = inputs[1].detach().clone()


class Applies(nn.Module):
    def __init__(self, function: type[Function]) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(randn(4, 4))

    def forward(self, input: Tensor) -> Tensor:
        output = self.function.apply(input, self.weight)
        self.kept = output.grad_fn.weight
        return output


@check
def fsdp_frees_a_weight_on_ctx_but_not_a_copy() -> None:
    """FSDP2 empties the storage of the full weight and fills the same one again before backward.

    So an attribute works, as save_for_backward does, and only a copy outlives the forward.
    """
    for function, bytes_left in ((WeightOnCtx, 0), (CopyOnCtx, 4 * 4 * 8)):
        torch.manual_seed(3)
        layers = [Applies(function) for _ in range(2)]
        plain = nn.Sequential(*[nn.Linear(4, 4, bias=False).double() for _ in layers])
        for layer, twin in zip(layers, plain, strict=True):
            twin.weight.data.copy_(layer.weight.detach())
        model = fsdp(nn.Sequential(*layers), *layers)
        x = randn(2 * dist.get_world_size(), 4)
        output = model(mine(x)).square().mean()
        for layer in layers:
            left = layer.kept.untyped_storage().nbytes()
            assert left == bytes_left, f"{function.__name__} holds {left} bytes between forward and backward"
        output.backward()
        plain(x).square().mean().backward()
        for layer, twin in zip(layers, plain, strict=True):
            close(layer.weight.grad.full_tensor(), twin.weight.grad)


@check
def fsdp_weight_outside_of_its_module_is_a_shard() -> None:
    head = fsdp(nn.Linear(5, 9, bias=False).double())
    with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
        linear_cross_entropy(randn(4, 5), head.weight, torch.zeros(4, dtype=torch.int64))


@check
def fsdp_has_no_second_derivative() -> None:
    """Torch frees the weights after the first backward. DDP keeps them."""
    for wrapped, works in (
        (DistributedDataParallel(Linear(5, 2).double()), True),
        (fsdp(nn.Sequential(Linear(5, 2).double())), False),
    ):
        x = randn(4, 5).requires_grad_()
        (grad,) = torch.autograd.grad(wrapped(x).sin().sum(), x, create_graph=True)
        if works:
            grad.square().sum().backward()
            assert x.grad.abs().sum() > 0
        else:
            with pytest.raises(RuntimeError, match="out of bounds for storage of size 0"):
                grad.square().sum().backward()


class HiddenBias(Linear):
    """The bias comes in through the side door: the function closes over it and does not take it as an input."""

    def forward(self, input: Tensor) -> Tensor:
        bias = self.bias.detach()

        class Closes(WeightOnCtx):
            forward = staticmethod(lambda input, weight: input @ weight.mT + bias)

        return Closes.apply(input, self.weight)


@check
def ddp_notices_a_parameter_that_is_no_input() -> None:
    model = DistributedDataParallel(nn.Sequential(HiddenBias(5, 3), Linear(3, 2)).double())
    x = randn(4, 5)
    model(x).sum().backward()
    with pytest.raises(RuntimeError, match="Expected to have finished reduction in the prior iteration"):
        model(x)
    model = DistributedDataParallel(nn.Sequential(HiddenBias(5, 3), Linear(3, 2)).double(), find_unused_parameters=True)
    for _ in range(2):  # and this option makes it silent
        model(x).sum().backward()
    assert model.module[0].bias.grad is None or not model.module[0].bias.grad.any()


class ForgetsBias(Function):
    forward = staticmethod(lambda input, weight, bias: input @ weight.mT + bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, None]:
        input, weight = ctx.saved_tensors
        return grad_output @ weight, grad_output.mT @ input, None


@check
def ddp_makes_a_forgotten_gradient_zero() -> None:
    class Layer(Linear):
        def forward(self, input: Tensor) -> Tensor:
            return ForgetsBias.apply(input, self.weight, self.bias)

    alone, model = Layer(5, 3), DistributedDataParallel(Layer(5, 3))
    alone(torch.ones(2, 5)).sum().backward()
    assert alone.bias.grad is None
    for _ in range(2):
        model(torch.ones(2, 5)).sum().backward()
    assert torch.equal(model.module.bias.grad, torch.zeros(3))


# --- The tests that pytest sees -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(check))
@pytest.mark.parametrize("world_size", [2, 4])
def test_in_every_rank(name: str, world_size: int) -> None:
    check.assert_passed(name, world_size)
