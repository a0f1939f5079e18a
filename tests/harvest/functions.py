"""Custom functions that the tests of the harvest call."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.autograd import Function


class Double(Function):
    """Right."""

    @staticmethod
    def forward(x, flag=None):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output, None


apply_taken_at_import = Double.apply


class Wrong(Double):
    """Wrong by a factor."""

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class Round(Double):
    """A straight-through estimator."""

    @staticmethod
    def forward(x, flag=None):
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clone(), None


class Dies(Double):
    """Ends all processes of its audit, which are a group, unless that is the group of the test."""

    home = os.environ.setdefault("GROUP_OF_THE_TESTS", str(os.getpgrp()))  # a new process of the audit inherits it

    @staticmethod
    def forward(x, flag=None):
        if str(os.getpgrp()) != Dies.home:
            os.killpg(0, signal.SIGKILL)
        return 2 * x


class Clock(Double):
    """Another value at each call."""

    @staticmethod
    def forward(x, flag=None):
        return x * (1 + time.perf_counter_ns() % 1000)


class Slow(Double):
    """Right, and takes its time after some calls."""

    calls = 0

    @staticmethod
    def forward(x, flag=None):
        Slow.calls += 1
        time.sleep(60 if Slow.calls > 12 else 0)
        return 2 * x


class InPlace(Function):
    """Writes to its input."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, grad_output):
        return 3 * grad_output


class Flagged(Function):
    """Takes a flag, in one method with its context."""

    @staticmethod
    def forward(ctx, x, flag=None):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output, None


class WithModule(Function):
    """Takes a module, its weight and a view of that."""

    @staticmethod
    def forward(ctx, x, module, weight, view):
        return x @ module.weight

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None, None, None


class Reruns(Function):
    """Takes a method of a module and its parameters, and needs these to be the same: as invertible blocks do."""

    @staticmethod
    def forward(ctx, run, x, *parameters):
        ctx.run, ctx.parameters = run, parameters
        ctx.save_for_backward(x)
        return run(x)

    @staticmethod
    def backward(ctx, grad_output):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            grads = torch.autograd.grad(ctx.run(x), (x, *ctx.parameters), grad_output)
        return None, *grads


class Calls(Function):
    """Calls a function, with the tensors that it uses as further arguments, so that they get a gradient."""

    @staticmethod
    def forward(ctx, function, x, *parameters):
        ctx.function = function
        ctx.save_for_backward(x, *parameters)
        return function(x)

    @staticmethod
    def backward(ctx, grad_output):
        x, *parameters = ctx.saved_tensors
        with torch.enable_grad():
            output = ctx.function(x)
        return None, *torch.autograd.grad(output, (x, *parameters), grad_output)


@torch.library.custom_op("harvest::scale", mutates_args=())
def scale(x: Tensor, *, factor: float = 2.0) -> Tensor:
    return x * factor


scale.register_autograd(
    lambda ctx, grad_output: grad_output * ctx.factor,
    setup_context=lambda ctx, inputs, keyword_only_inputs, output: setattr(
        ctx, "factor", keyword_only_inputs["factor"]
    ),
)


def define_join() -> None:
    """Define an operator that takes a list."""

    @torch.library.custom_op("harvest::join", mutates_args=())
    def join(tensors: list[Tensor]) -> Tensor:
        return torch.cat(tensors)

    join.register_autograd(
        lambda ctx, grad_output: list(grad_output.split(ctx.sizes)),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "sizes", [len(t) for t in inputs[0]]),
    )


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def identity(x, flag=None):
    return x.clone()


def module():
    return nn.Linear(3, 3)


class NeedsThread(Function):
    """Halves its gradient. Its forward needs a thread that the first call starts, which a forked process lacks."""

    pool: ClassVar[list[ThreadPoolExecutor]] = []

    @staticmethod
    def forward(ctx, x):
        if not NeedsThread.pool:
            NeedsThread.pool.append(ThreadPoolExecutor(1))
        return NeedsThread.pool[0].submit(x.detach().mul, 2).result()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output
