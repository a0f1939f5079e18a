"""Export a module, and raise if the exported program has lost a gradient."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves, tree_map


def gradients_of(module: nn.Module, args: tuple[Any, ...]) -> dict[str, Tensor]:
    """Return the gradients of a weighted sum of the outputs, by name of parameter or input. A missing gradient is 0."""

    def leaf(value: Any) -> Any:
        differentiable = isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
        return value.detach().clone().requires_grad_() if differentiable else value

    args = tree_map(leaf, args)
    wanted = {f"input {i}": a for i, a in enumerate(tree_leaves(args)) if isinstance(a, Tensor) and a.requires_grad}
    parameters = {name: leaf(p) for name, p in module.named_parameters() if p.requires_grad}
    wanted |= parameters
    # Copy the buffers, because each call changes running statistics. A module that contains an operator cannot be
    # copied as a whole.
    buffers = {name: b.clone() for name, b in module.named_buffers()}
    with torch.random.fork_rng(), torch.enable_grad():  # so that module and program draw the same dropout
        result = torch.func.functional_call(module, parameters | buffers, args)
    outputs = [o for o in tree_leaves(result) if isinstance(o, Tensor) and o.requires_grad]
    if not outputs:
        return {name: torch.zeros_like(value) for name, value in wanted.items()}
    weights = [torch.linspace(0.5, 1.5, o.numel(), device=o.device).reshape(o.shape).to(o.dtype) for o in outputs]
    found = torch.autograd.grad(outputs, list(wanted.values()), weights, allow_unused=True, materialize_grads=True)
    return dict(zip(wanted, found, strict=True))


def export_with_gradients(
    module: nn.Module, args: tuple[Any, ...], rtol: float = 1e-4, **options: Any
) -> ExportedProgram:
    r"""Export a module, and check that the program has the gradients of the module.

    An export records the operators that run in forward. It does not record the backward of a ``Function``: the program
    differentiates the operators in its forward instead. If a backward is registered with an operator, the program uses
    it.

    Args:
        module: exported in its current mode, training or evaluation. The comparison changes neither module nor program.
        args: the arguments of one typical call. Use random values, not zeros.
        rtol: the largest error of a gradient, relative to its largest number.
        options: options of :func:`torch.export.export`, such as ``dynamic_shapes``.

    Returns:
        The exported program.

    Raises:
        RuntimeError: if a parameter or an input has another gradient in the program. The message has its name.

    >>> program = export_with_gradients(nn.Linear(2, 1), (torch.randn(3, 2),))
    >>> [name for name, _ in program.named_parameters()]
    ['weight', 'bias']
    """
    program = torch.export.export(module, args, **options)
    expected, found = gradients_of(module, args), gradients_of(program.module(), args)

    def agree(name: str, grad: Tensor) -> bool:
        largest = float(grad.abs().max()) if grad.numel() else 0.0
        return name in found and torch.allclose(found[name], grad, rtol=0, atol=rtol * largest, equal_nan=True)

    if lost := [name for name, grad in expected.items() if not agree(name, grad)]:
        raise RuntimeError(f"the exported program has other gradients than the module, for {', '.join(lost)}")
    return program
