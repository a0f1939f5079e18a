"""What custom functions keep from forward to backward, exchanged for something else before backward reads it."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from autograd_cookbook.auditing.observe import Record, observing
from autograd_cookbook.auditing.subject import Subject, is_differentiable, own_nodes_of, weights_of

Place = int | tuple[int, str]  # the number of a saved tensor, or the number of a node and the name of an attribute


class Kept:
    """The tensors that custom functions save, by the order in which autograd packs them away, and attributes of ctx.

    Some of them are changed before backward reads them, or an attribute of ctx is removed.
    """

    def __init__(self, subject: Subject, change: dict[Place, Callable[[Any], Any]], removed: str = "") -> None:
        self.things: dict[Place, Any] = {}
        self.contents: dict[Place, Any] = {}  # as they were before backward, which can write to them
        self.record = Record()
        self.subject, self.change, self.removed = subject, change, removed

    def run(
        self, values: list[Tensor] | None = None, requires: list[bool] | None = None, graph: bool = False
    ) -> list[Tensor | None]:
        """The gradients; with a graph, also those of the weighted gradients."""
        number = itertools.count()
        with observing(self.subject.classes, saved=False) as record:
            self.record = record

            def pack(tensor: Tensor) -> tuple[int | None, Tensor]:
                return None if record.inside else next(number), tensor  # a backward that computes forward again

            def unpack(packed: tuple[int | None, Tensor]) -> Tensor:
                k, tensor = packed
                if k is None or not record.inside:
                    return tensor
                self._note(k, tensor)
                change = self.change.get(k)
                return tensor if change is None else change(tensor)

            with saved_tensors_hooks(pack, unpack):
                run = self.subject.run(values, requires)
                for k, node in enumerate(own_nodes_of(run.outputs, self.subject.classes)):
                    attributes = vars(node)
                    attributes.pop(self.removed, None)
                    for name, value in attributes.items():
                        self._note((k, name), value)
                        if (k, name) in self.change:
                            attributes[name] = self.change[k, name](value)
                grads = run.gradients(create_graph=graph)
                if graph:  # what takes part in the second derivative alone is not saved in vain
                    grads += _derivatives(grads, run.leaves)
                return [None if g is None else g.clone() for g in grads]

    def exchanged(self, place: Place) -> "Kept":
        """What forward keeps elsewhere, with one thing from here in its place."""
        return Kept(self.subject, {place: lambda _: self.contents[place]})

    def _note(self, place: Place, thing: Any) -> None:
        self.things.setdefault(place, thing)
        self.contents.setdefault(place, thing.detach().clone() if is_differentiable(thing) else thing)


def _derivatives(grads: list[Tensor | None], leaves: list[Tensor | None]) -> list[Tensor | None]:
    """The gradients of weighted gradients."""
    firsts = [g for g in grads if g is not None and g.requires_grad]
    wanted = [t for t in leaves if t is not None]
    return list(torch.autograd.grad(firsts, wanted, weights_of(firsts), allow_unused=True)) if firsts else []
