"""Checkpoints that keep the results of chosen operators, and raise if none of these operators runs."""

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts


def checked_at_exit(mode: TorchDispatchMode, check: Callable[[], None]) -> TorchDispatchMode:
    """Change a mode so that it calls ``check`` when it ends without an error, and return it."""

    class Checked(type(mode)):  # type: ignore[misc]  # mypy wants a base that it knows
        def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
            super().__exit__(kind, error, traceback)
            if kind is None:
                check()

    # Do not put a context manager around the mode, because the compiler needs torch's own mode and sets attributes on
    # it.
    mode.__class__ = Checked
    return mode


def overloads(operator: OpOverload | OpOverloadPacket | str) -> frozenset[OpOverload]:
    """Return the overloads of an operator. When the operator runs, torch calls the policy with one of them.

    >>> sorted(map(str, overloads("aten::mm")))
    ['aten.mm.default', 'aten.mm.dtype', 'aten.mm.dtype_out', 'aten.mm.out']
    """
    if isinstance(operator, str):
        namespace, _, name = operator.partition("::")
        packet = getattr(getattr(torch.ops, namespace), name, None) if name else None
        if packet is None:
            raise ValueError(f"expected the name of an operator, such as 'aten::mm', got {operator!r}")
        operator = packet
    if isinstance(operator, OpOverload):
        return frozenset([operator])
    if isinstance(operator, OpOverloadPacket):
        return frozenset(getattr(operator, name) for name in operator.overloads())
    raise TypeError(f"expected an operator of torch.ops or its name, got {type(operator).__name__}")


def save_only(*operators: OpOverload | OpOverloadPacket | str) -> Callable[[], tuple[TorchDispatchMode, ...]]:
    r"""Make a checkpoint keep the results of these operators. Backward computes all other results again.

    Pass the result as ``context_fn`` to :func:`torch.utils.checkpoint.checkpoint`, with ``use_reentrant=False``. Call
    ``save_only`` outside of a function that is compiled, and use the result inside. Such a checkpoint allows only
    one backward.

    Args:
        operators: operators of ``torch.ops``, with all overloads or a single one, or their names, such as "aten::mm".
            For a composite function, name the operators that it runs: :func:`torch.nn.functional.linear` runs
            ``aten::addmm`` or ``aten::mm``.

    Returns:
        A function without arguments, for any number of checkpoints.

    Raises:
        ValueError: if there is no operator of that name, or none is given.
        TypeError: if an argument is not an operator. A ``Function`` is not an operator.
        RuntimeError: in the checkpointed forward, if none of the operators ran. torch itself does not report this.

    >>> from torch.utils.checkpoint import checkpoint
    >>> w = torch.ones(2, 2, requires_grad=True)
    >>> y = checkpoint(lambda w: (w @ w).sin(), w, use_reentrant=False, context_fn=save_only("aten::mm"))
    >>> checkpoint(lambda w: w.sin(), w, use_reentrant=False, context_fn=save_only("aten::mm"))
    Traceback (most recent call last):
    RuntimeError: nothing to keep: the function ran aten.sin.default, and none of aten::mm
    """
    if not operators:
        raise ValueError("expected at least one operator")
    wanted = frozenset().union(*map(overloads, operators))

    def context_fn() -> tuple[TorchDispatchMode, ...]:
        ran: dict[OpOverload, None] = {}

        def policy(context: Any, operator: OpOverload, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            ran[operator] = None
            return CheckpointPolicy.MUST_SAVE if operator in wanted else CheckpointPolicy.PREFER_RECOMPUTE

        def check() -> None:
            if not wanted & ran.keys():
                found, missing = ", ".join(map(str, ran)) or "no operator", ", ".join(map(str, operators))
                raise RuntimeError(f"nothing to keep: the function ran {found}, and none of {missing}")

        forward, recompute = create_selective_checkpoint_contexts(policy)
        return checked_at_exit(forward, check), recompute

    return context_fn
