"""Change, log and use gradients during backward, without a ``Function``."""

from collections.abc import Callable, Iterable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.hooks import RemovableHandle

from autograd_cookbook.recipes.clipping import limited
from autograd_cookbook.recipes.elementwise import wide
from autograd_cookbook.recipes.reductions import norm


def clip_gradient(input: Tensor, max_norm: float) -> Tensor:
    r"""Return a tensor unchanged, and limit the norm of its gradient to ``max_norm``.

    .. math:: y = x, \qquad \bar{x} = \bar{y}\,\min\left(1, \frac{c}{\lVert \bar{y} \rVert_2}\right)

    Unlike :func:`torch.nn.utils.clip_grad_norm_`, this function clips in the middle of backward. So the layers before
    this tensor get only the clipped gradient.

    Args:
        input: any shape, floating or complex. Only the gradient through the returned tensor is clipped.
        max_norm: the bound :math:`c`, positive.

    Returns:
        A view of ``input``.

    Raises:
        ValueError: if ``max_norm`` is not positive.

    >>> x = torch.zeros(2, requires_grad=True)
    >>> (100 * clip_gradient(x, 1.0)).sum().backward()
    >>> x.grad
    tensor([0.7071, 0.7071])
    """
    if not max_norm > 0:
        raise ValueError(f"expected max_norm > 0, got {max_norm}")

    return _with_hook(input, lambda grad: limited(grad, max_norm, tuple(range(grad.dim()))))


def add_gradient_noise(input: Tensor, std: float, generator: torch.Generator | None = None) -> Tensor:
    r"""Return a tensor unchanged, and add Gaussian noise to its gradient.

    .. math:: y = x, \qquad \bar{x} = \bar{y} + \sigma\,\varepsilon, \quad \varepsilon \sim \mathcal{N}(0, 1)

    Args:
        input: any shape, floating dtype.
        std: the standard deviation :math:`\sigma`, at least 0.
        generator: the generator of the noise; torch's global generator if None.

    Returns:
        A view of ``input``.

    Raises:
        ValueError: if ``std`` is negative.

    Source: A. Neelakantan et al., Adding gradient noise improves learning for very deep networks,
    arXiv:1511.06807.

    >>> x = torch.zeros(10_000, requires_grad=True)
    >>> add_gradient_noise(x, 0.1, torch.Generator().manual_seed(0)).sum().backward()
    >>> print(f"{x.grad.mean():.2f} {x.grad.std():.2f}")
    1.00 0.10
    """
    if not std >= 0:
        raise ValueError(f"expected std >= 0, got {std}")

    def disturb(grad: Tensor) -> Tensor:
        if std == 0:
            return grad
        noise = torch.randn(grad.shape, generator=generator, dtype=grad.dtype, device=grad.device)
        return grad + std * noise

    return _with_hook(input, disturb)


def _with_hook(input: Tensor, hook: Callable[[Tensor], Tensor]) -> Tensor:
    # The hook is on a view, so it does not change gradients from other uses of the input.
    output = input.view_as(input)
    if output.requires_grad:
        # PyTorch can pass None for a gradient of zeros.
        output.register_hook(lambda grad: None if grad is None else hook(grad))
    return output


class GradientLog:
    """Norms of the gradients of chosen tensors, recorded while backward runs.

    Use the log in a ``with`` statement. It removes its hooks at the end, and you can read ``norms`` afterwards.

    >>> x = torch.ones(4, requires_grad=True)
    >>> with GradientLog() as log:
    ...     y = log.watch("y", x * 3)
    ...     y.sum().backward()
    >>> log.norms
    {'y': [2.0]}
    """

    def __init__(self) -> None:
        self.norms: dict[str, list[float]] = {}
        self._handles: list[RemovableHandle] = []

    def watch(self, name: str, tensor: Tensor) -> Tensor:
        """Record the norm of the gradient of ``tensor`` whenever it is computed.

        Args:
            name: the key in ``norms`` for the list of norms, one for each backward.
            tensor: a leaf or an intermediate tensor that requires grad.

        Returns:
            ``tensor`` itself.

        Raises:
            ValueError: if ``tensor`` does not require grad, because it then gets no gradient.
        """
        if not tensor.requires_grad:
            raise ValueError(f"expected a tensor that requires grad for {name!r}, got one that does not")
        norms = self.norms.setdefault(name, [])

        # The hook refers only to the list, so it does not keep the log or the tensor in memory.
        def record(grad: Tensor | None) -> None:
            # Use the recipe ``norm``, because its squares do not overflow or underflow.
            norms.append(0.0 if grad is None else float(norm(wide(grad.detach()))))

        self._handles.append(tensor.register_hook(record))
        return tensor

    def watch_modules(self, model: nn.Module) -> None:
        """Record the norm of the gradient of each submodule's output, under the submodule's name.

        The hooks are on the output tensors. With ``register_full_backward_hook``, a module returns a view, and the next
        layer could not write to this view in place.

        Args:
            model: the network. An output of a submodule is skipped if it is not a tensor that requires grad.

        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(inplace=True))
        >>> with GradientLog() as log:
        ...     log.watch_modules(model)
        ...     model(torch.ones(1, 2)).sum().backward()
        >>> sorted(log.norms)
        ['0', '1']
        """

        def watcher(name: str) -> Callable[..., None]:
            def watch(module: nn.Module, args: Any, output: Any) -> None:
                if isinstance(output, Tensor) and output.requires_grad:
                    self.watch(name, output)

            return watch

        self._handles += [m.register_forward_hook(watcher(name)) for name, m in model.named_modules() if name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def step_in_backward(
    parameters: Iterable[Tensor], optimizer: Callable[[list[Tensor]], torch.optim.Optimizer]
) -> list[RemovableHandle]:
    """Update each parameter as soon as its gradient is complete, and free the gradient.

    The gradients of all parameters are then never in memory together. So you cannot clip by the global norm or
    accumulate gradients over several backwards.

    Args:
        parameters: leaves that require grad. Other tensors are skipped.
        optimizer: a function that returns an optimizer for a list of one parameter.

    Returns:
        Handles. Call ``remove()`` on each handle to stop the updates.

    >>> w = torch.ones(2, requires_grad=True)
    >>> handles = step_in_backward([w], lambda ps: torch.optim.SGD(ps, lr=0.1))
    >>> w.sum().backward()
    >>> w.tolist(), w.grad
    ([0.8999999761581421, 0.8999999761581421], None)
    """

    def updater(parameter: Tensor) -> Callable[[Tensor], None]:
        single = optimizer([parameter])

        def update(_: Tensor) -> None:
            single.step()
            single.zero_grad(set_to_none=True)

        return update

    return [p.register_post_accumulate_grad_hook(updater(p)) for p in parameters if p.requires_grad]


def saved_as(dtype: torch.dtype, function: Callable[..., Any], *args: Any) -> Any:
    r"""Call a function, and store the tensors that it saves for backward in another dtype.

    The output is exact, but the gradient is computed from rounded tensors:

    .. math:: y = f(x), \qquad \bar{x} = \bar{y}^\top\, \partial f \text{ from } \mathrm{round}(s)

    for each saved tensor :math:`s`. A saved number beyond the range of the dtype becomes infinite, for example 70000 in
    float16, and so does the gradient. bfloat16 has the range of float32.

    Args:
        dtype: a floating dtype, for example ``torch.bfloat16``. Only tensors of a wider floating dtype are converted.
        function: called as ``function(*args)``.
        args: the arguments of ``function``. Tensor arguments and leaves such as parameters are saved unchanged, because
            they stay in memory anyway.

    Returns:
        The result of ``function``.

    Raises:
        ValueError: if ``dtype`` is not a floating one.
        RuntimeError: in backward, if a tensor that backward needs was changed in place after forward.

    >>> x = torch.tensor([0.1], requires_grad=True)
    >>> saved_as(torch.bfloat16, lambda x: (x + 0.0).square(), x).backward()
    >>> x.grad
    tensor([0.2002])
    """
    if not dtype.is_floating_point:
        raise ValueError(f"expected a floating dtype, got {dtype}")

    def pack(tensor: Tensor) -> Any:
        wider = tensor.is_floating_point() and tensor.element_size() > dtype.itemsize
        return (tensor.dtype, tensor.to(dtype)) if wider else tensor

    return with_saved(pack, lambda packed: packed[1].to(packed[0]), function, args)


# Do not compile this function: code compiled by torch 2.13 ignores the hooks. The gradient would be right, but the
# tensors would be saved unchanged.
@torch.compiler.disable
def with_saved(
    pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor], function: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    """Call a function, and store ``pack(tensor)`` instead of each saved tensor. ``unpack`` restores the tensor.

    If ``pack`` returns the tensor itself, the tensor is saved unchanged. Arguments and leaves such as parameters are
    not packed, because they stay in memory anyway.

    Raises:
        RuntimeError: in backward, if a tensor that was saved unchanged was changed in place after forward.
    """
    # Compare storages, because autograd passes an argument to the hook as another Python object.
    alive = {a.untyped_storage().data_ptr() for a in args if isinstance(a, Tensor)}

    def keep(tensor: Tensor) -> tuple[Any, int | None]:
        # Detach: otherwise a node that saves its own output would be in a reference cycle and never be freed.
        kept = tensor.detach()
        if not tensor.is_leaf and tensor.untyped_storage().data_ptr() not in alive:
            packed = pack(kept)
            if packed is not kept:
                return packed, None
        return kept, kept._version

    def give(saved: tuple[Any, int | None]) -> Tensor:
        kept, version = saved
        if version is None:
            return unpack(kept)
        if kept._version != version:  # with hooks, autograd does not check this
            raise RuntimeError(
                f"a tensor of shape {tuple(kept.shape)} that the backward needs was modified by an in-place operation"
            )
        return kept

    with saved_tensors_hooks(keep, give):
        return function(*args)
