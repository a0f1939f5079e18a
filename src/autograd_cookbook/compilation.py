"""Functions that ``torch.compile`` takes whole, and a way to see where it does not."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class HuberFunction(Function):
    """Keeps the input; its clamped value is the gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(input: Tensor, delta: float) -> Tensor:
        size = input.abs()
        # Both branches are computed and none is chosen by Python: an "if" on data would break the graph.
        return torch.where(size <= delta, input * input / 2, delta * (size - delta / 2))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        input, ctx.delta = inputs
        ctx.save_for_backward(input)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (input,) = ctx.saved_tensors
        return grad_output * input.clamp(-ctx.delta, ctx.delta), None


def huber(input: Tensor, delta: float = 1.0) -> Tensor:
    r"""Huber's function of a residual: quadratic near 0, linear far away.

    .. math::
        y = \begin{cases} x^2 / 2 & |x| \le \delta \\ \delta\,(|x| - \delta / 2) & \text{else} \end{cases}, \qquad
        \bar{x} = \bar{y}\,\min(\max(x, -\delta), \delta)

    Args:
        input: residuals, any shape, floating dtype.
        delta: where the quadratic ends; positive.

    Returns:
        A tensor like ``input``, the loss of each element.

    Raises:
        ValueError: if ``delta`` is not positive, as in :func:`torch.nn.functional.huber_loss`.

    Source: P. J. Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35 (1964).

    >>> x = torch.tensor([-3.0, 0.5], requires_grad=True)
    >>> huber(x).sum().backward()
    >>> x.grad
    tensor([-1.0000,  0.5000])
    """
    if not delta > 0:
        raise ValueError(f"expected delta > 0, got {delta}")
    return HuberFunction.apply(input, delta)


def graph_breaks(function: Callable[..., Any], *args: Any) -> tuple[str, ...]:
    """Say why ``torch.compile`` cannot take a function as one graph.

    Args:
        function: called as ``function(*args)``, a few times.
        args: inputs of typical shapes; what breaks may depend on them.

    Returns:
        One line for each break, with the line of code where it happens; empty if there is none.

    >>> graph_breaks(huber, torch.ones(3))
    ()
    """
    function(*args)  # What it raises by itself is no fault of the compiler.
    torch._dynamo.reset()
    try:
        reasons = torch._dynamo.explain(function)(*args).break_reasons
        if not reasons:
            # explain() lists the breaks of a frame, but is silent about a frame that was given up as a whole.
            torch.compile(function, fullgraph=True, backend="eager")(*args)
    except Exception as error:  # mostly Unsupported, but some code meets an assertion inside of the compiler
        return (_headline(str(error)),)
    finally:
        torch._dynamo.reset()
    return tuple(f"{_headline(reason.reason)}: {reason.user_stack[-1].line}" for reason in reasons)


def _headline(message: str) -> str:
    return message.strip().splitlines()[0]


def compilations(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], **options: Any) -> list[int]:
    """Count how often ``torch.compile`` has compiled a function, call by call.

    Args:
        function: what is compiled; with ``fullgraph=True``, so that each compilation is one graph.
        calls: the arguments of each call, which are made in order. Take fresh tensors: torch writes on a tensor what
            it has learned of its sizes, and a later compilation reads it.
        options: for :func:`torch.compile`, such as ``dynamic=True``.

    Returns:
        The compilations up to and with each call. A number that does not grow means that old code was used.

    Raises:
        torch._dynamo.exc.TorchDynamoException: if a graph breaks, or too many versions were compiled.

    >>> compilations(torch.exp, [(torch.ones(n),) for n in (3, 4, 5, 6)])
    [1, 2, 2, 2]
    """
    from torch._dynamo.testing import CompileCounterWithBackend  # takes its time, and nobody else needs it

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(function, fullgraph=True, backend=counter, **options)
    counts = []
    try:
        for args in calls:
            compiled(*args)
            counts.append(counter.frame_count)
    finally:
        torch._dynamo.reset()
    return counts
