"""A module is more than a function: it is copied, stored, moved and trained."""

import copy
import io
import pickle
import re
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from autograd_cookbook.auditing.checks import check, finding
from autograd_cookbook.auditing.diagnose import difference, first_line
from autograd_cookbook.auditing.report import Finding
from autograd_cookbook.auditing.subject import Refused, Subject, is_differentiable


def _output(subject: Subject, module: nn.Module, factor: float | None = None) -> list[Tensor]:
    """What a module computes; with all its parameters times ``factor``, which is undone."""
    kept = [p.detach().clone() for p in module.parameters()]
    subject.rewind()
    try:
        with torch.no_grad():
            if factor is not None:
                for p in module.parameters():
                    p.mul_(factor)
            raw = module(*subject.arguments(subject.copies()))
    finally:
        with torch.no_grad():
            for p, k in zip(module.parameters(), kept, strict=True):
                p.copy_(k)
    return [o.detach().clone() for o in tree_leaves(raw) if is_differentiable(o)]


def _restored(module: nn.Module, how: str) -> nn.Module:
    if how == "copy.deepcopy":
        return copy.deepcopy(module)
    if how == "pickle":
        return pickle.loads(pickle.dumps(module))
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    fresh = copy.deepcopy(module)
    with torch.no_grad():
        for tensor in fresh.state_dict().values():
            tensor.zero_()  # what it holds must come from the file
    fresh.load_state_dict(torch.load(buffer))
    return fresh


INNER = (
    "The module holds a class or function that is defined inside of another function, and pickle finds by name only "
    "what is at module level.",
    "Define it at module level.",
)
UNCOPIED = (
    "The module holds something that cannot be copied: a tensor that is not a leaf, a generator, a file or a lock.",
    "Register tensors as parameters or buffers, and detach what is only remembered.",
)


@check(capability="module_copies")
def module_copies(subject: Subject) -> Iterator[Finding]:
    """A copy of a module computes the same as the original, by deepcopy, by pickle, and from its state dict.

    ``AveragedModel`` deep-copies a model, ``torch.save(model)`` and ``multiprocessing`` with spawn pickle it, and
    checkpoints store its state dict.
    """
    module = subject.function
    if not isinstance(module, nn.Module):
        raise Refused("not a module")
    subject.run()  # with the parameters of the sample, and with whatever a call leaves behind
    for how in ("copy.deepcopy", "pickle", "state_dict"):
        try:
            pairs = []
            for factor in (None, 1.25):
                subject.rewind()
                restored = _restored(module, how)  # each time anew: it has state of its own
                pairs.append((_output(subject, restored, factor), _output(subject, module, factor)))
        except (Exception, SystemExit) as error:
            if how == "pickle" and "<locals>" in type(module).__qualname__:
                continue  # the class is defined inside of a function: its place, not its fault
            yield finding(
                "error" if how == "copy.deepcopy" else "warning",
                f"{how} raises {first_line(error)}",
                *(INNER if re.search(r"local object|lambda", str(error)) else UNCOPIED),
            )
            return
        for (ours, theirs), when in zip(pairs, ("", " and a step of training"), strict=True):
            for i, (a, e) in enumerate(zip(ours, theirs, strict=True)):
                if what := difference(a, e, 1e-12):
                    yield finding(
                        "error",
                        f"after {how}{when}, output {i} of the copy is {what}",
                        "The module keeps a tensor that is neither a parameter nor a buffer, so the copy lacks it. Or "
                        "a lambda, a closure or a bound method in the copy still uses a tensor of the original.",
                        "Register every tensor as a parameter or a buffer, and read it from self in a method.",
                    )
                    return


@check()
def module_tensors(subject: Subject) -> Iterator[Finding]:
    """Register every tensor of a module as a parameter or a buffer.

    A tensor in a plain attribute does not follow ``module.to(device)`` or ``.double()``, and is not in the state dict.
    ``module.parameters()`` does not have it, so your optimizer does not update it.
    """
    if not isinstance(subject.function, nn.Module):
        return
    for name, module in subject.function.named_modules():
        if type(module).__module__.partition(".")[0] == "torch":
            continue
        for attribute, value in vars(module).items():
            plain = value if isinstance(value, list | tuple) else [value]
            if attribute.startswith("_") and attribute in nn.Module().__dict__:
                continue
            if any(isinstance(v, Tensor) and not isinstance(v, nn.Parameter) and is_differentiable(v) for v in plain):
                yield finding(
                    "warning",
                    f"tensor {'.'.join(filter(None, (name, attribute)))} is a plain attribute of the module",
                    "Your code assigns it without register_buffer, or computes it from a parameter in __init__.",
                    "Use self.register_buffer, with persistent=False if the state dict need not have it. Compute in "
                    "forward what depends on a parameter.",
                )
                return
            if any(isinstance(v, nn.Parameter) for v in plain):
                yield finding(
                    "warning",
                    f"parameters in {'.'.join(filter(None, (name, attribute)))} are hidden in a list",
                    "PyTorch does not register parameters in a plain list, so neither the optimizer nor the state dict "
                    "has them.",
                    "Use nn.ParameterList.",
                )
                return
