"""Functions whose result depends only on their arguments, so that a custom backward can compute all gradients."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks


def explicit(module: nn.Module) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    """Turn a module into a function of its inputs *and* its parameters.

    Args:
        module: its parameters become the last arguments of the function. Its buffers stay in the module.

    Returns:
        The function, which you call as ``function(*inputs, *parameters)``, and a tuple of the parameters.

    >>> function, parameters = explicit(nn.Linear(3, 2))
    >>> [tuple(p.shape) for p in parameters], function(torch.ones(5, 3), *parameters).shape
    ([(2, 3), (2,)], torch.Size([5, 2]))
    """
    named = dict(module.named_parameters())

    def function(*args: Any) -> Any:
        inputs, values = args[: len(args) - len(named)], args[len(args) - len(named) :]
        return torch.func.functional_call(module, dict(zip(named, values, strict=True)), inputs)

    return function, tuple(named.values())


def expect_explicit(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """Call a function on its arguments without their graphs, and return the result.

    Raises:
        RuntimeError: if the result requires grad. Then the function uses a tensor that is not one of its arguments, for
            example from a closure or a module.
    """
    output = function(*(a.detach() if isinstance(a, Tensor) else a for a in args))
    if output.requires_grad:
        raise RuntimeError(
            "the function uses a tensor that requires grad and is not among its arguments, and which would get no "
            "gradient: pass it as one of the parameters, or use explicit(module) for those of a module"
        )
    return output.detach()


@overload
def vjp(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]: ...
@overload
def vjp(
    function: Callable[..., Tensor], *inputs: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor | None, ...]]]: ...
def vjp(
    function: Callable[..., Tensor], *inputs: Tensor, wanted: Sequence[bool] | None = None
) -> tuple[Tensor, Callable[[Tensor], tuple[Any, ...]]]:
    """Like :func:`torch.func.vjp`, but for chosen inputs. It also works under saved-tensor hooks, as in a checkpoint.

    Args:
        function: takes tensors and returns one tensor.
        inputs: the arguments of the function. An input that gets a gradient is floating or complex.
        wanted: a bool for each input, True if the input gets a gradient. At least one is True. None means all inputs.

    Returns:
        The output, and a function. The function takes the gradient of the output and returns the gradients of the
        inputs, with None for an input that is not wanted. Output and gradients can be differentiated again.

    >>> output, pull_back = vjp(torch.mul, torch.tensor(2.0), torch.tensor(3.0), wanted=(True, False))
    >>> output, pull_back(torch.tensor(1.0))
    (tensor(6.), (tensor(3.), None))
    """
    places = [i for i in range(len(inputs)) if wanted is None or wanted[i]]

    def partial(*values: Tensor) -> Tensor:
        replaced = dict(zip(places, values, strict=True))
        return function(*(replaced.get(i, x) for i, x in enumerate(inputs)))

    output, pull_back = _vjp(partial, [inputs[i] for i in places])

    def pull_back_all(grad_output: Tensor) -> tuple[Tensor | None, ...]:
        grads = dict(zip(places, pull_back(grad_output), strict=True))
        return tuple(grads.get(i) for i in range(len(inputs)))

    return output, pull_back_all


def _vjp(function: Callable[..., Tensor], inputs: list[Tensor]) -> tuple[Tensor, Callable[..., tuple[Tensor, ...]]]:
    if not _hooks_are_active():
        # A tensor that was saved in an earlier torch.func.vjp still has the wrapper of that transform. Under vmap, such
        # a wrapper stops the next vjp with an internal error. An operation such as taking a view removes the wrapper.
        views = (x.view_as(x) for x in inputs)
        return torch.func.vjp(function, *views)  # type: ignore[return-value]  # torch's type allows for has_aux
    # Without create_graph, the graph exists only for a short time. So the tensors that it saves skip the caller's
    # hooks.
    hooks = contextlib.nullcontext() if torch.is_grad_enabled() else saved_tensors_hooks(torch.detach, torch.detach)
    with torch.enable_grad(), hooks:
        # The gradient is taken with respect to a view of each input. So backward stops at the view, and a second
        # derivative still reaches the input through the view.
        inputs = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in inputs]
        output = function(*inputs)

    def pull_back(grad_output: Tensor) -> tuple[Tensor, ...]:
        options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
        return torch.autograd.grad(output, inputs, grad_output, create_graph=torch.is_grad_enabled(), **options)

    return output, pull_back


def _hooks_are_active() -> bool:
    if torch.compiler.is_compiling():
        return False
    try:
        with disable_saved_tensors_hooks(""):
            return False
    except RuntimeError:
        return True
