"""In-place changes, views and inference mode."""

import numpy as np
import torch
from docs.errors.programs import fixes, raises
from torch import nn
from torch.nn import functional as F


@raises(
    "A result that backward needs was changed in place",
    cause="The operation that the message names saved its own output (as ``relu``, ``exp``, ``tanh``, ``sigmoid``, "
    "``softmax`` and ``sqrt`` do), and an in-place operation gave it a new version. For an operation or a Function "
    "that saved its input, the message names the last recorded operation that wrote to that input: often the in-place "
    "operation itself. ``AsStrided`` is a view: most often the weight of an ``nn.Linear`` after ``optimizer.step()``.",
    fix="""Write out of place: ``y = y + 1`` instead of ``y += 1``, and no ``inplace=True`` in the next layer. You can
    also change an input before the operation uses it. Run backward before ``optimizer.step()``. To find the line, run
    the step under ``torch.autograd.set_detect_anomaly(True)``: PyTorch then also prints the line of the forward that
    computed with the tensor. Below that line, print ``y._version`` of the tensor after each line. The line after which
    the number has grown is the write.""",
    see=("guide/graph", "cookbook/04_memory/in_place", "check:later_writes"),
)
def result_changed():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    y += 1
    y.sum().backward()


@fixes(result_changed)
def result_kept():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    y = y + 1
    y.sum().backward()


@raises(
    "An input or a parameter that backward needs was changed in place",
    cause="""The forward saved a tensor with this shape, and your code changed the tensor before backward. A change
    under ``no_grad`` counts, too. The message names no operation because the tensor is a leaf: data in a buffer that is
    used again, or a parameter after ``optimizer.step()``.""",
    fix="Run backward before the change, or give the operation a copy: ``buffer.clone()``.",
    see=("guide/graph", "guide/training", "check:later_writes"),
)
def input_changed():
    weight = torch.randn(3, requires_grad=True)
    buffer = torch.empty(3)
    loss = 0.0
    for step in range(2):
        buffer.fill_(step)
        loss = loss + (weight * buffer).sum()
    loss.backward()


@fixes(input_changed)
def input_copied():
    weight = torch.randn(3, requires_grad=True)
    buffer = torch.empty(3)
    loss = 0.0
    for step in range(2):
        buffer.fill_(step)
        loss = loss + (weight * buffer.clone()).sum()
    loss.backward()


@raises(
    "optimizer.step() changed a weight between forward and backward",
    cause="``optimizer.step()`` writes the new weights into the old ones. The graph of the second loss was made with "
    "the old weights and needs them for its gradient. The tensor in the message is a weight: the shape is one of your "
    "parameters, and an ``nn.Linear`` is named by its transpose (``AsStridedBackward0``, ``TBackward``). In a GAN, it "
    "is a weight of the discriminator, through which the generator's loss goes. Old releases of torch (before 1.5) "
    "did not notice, and computed a wrong gradient.",
    fix="Run all ``backward()`` calls of graphs that use the old weights before the first ``step()``; or compute the "
    "second loss again after the step. For a GAN: ``detach()`` the fake sample for the discriminator's loss, and run "
    "the discriminator again for the generator's. Changing ``inplace=True`` of an activation, or a ``clone()`` of its "
    "result, does not help.",
    see=("guide/training",),
)
def stepped_before_backward():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(5, 3)
    first, second = model(x).mean(), model(x).square().mean()
    first.backward()
    optimizer.step()
    second.backward()


@fixes(stepped_before_backward)
def backward_before_step():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(5, 3)
    first, second = model(x).mean(), model(x).square().mean()
    first.backward()
    second.backward()
    optimizer.step()


@raises(
    "Anomaly mode points at the operation whose saved tensor was changed in place",
    cause="""The cause is the same as without anomaly mode. The warning above the message shows the traceback of the
    operation that saved the tensor. The change came later, and the traceback does not show its line.""",
    fix="Look for the code that changes this tensor after the line that the warning shows.",
    see=("guide/debugging", "guide/nonfinite"),
)
def result_changed_anomaly():
    x = torch.randn(3, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        y = x.exp()
        y += 1
        y.sum().backward()


@fixes(result_changed_anomaly)
def result_kept_anomaly():
    x = torch.randn(3, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        y = x.exp()
        y = y + 1
        y.sum().backward()


@raises(
    "A leaf that requires grad was changed in place",
    cause="""The gradient of a leaf belongs to its value. A change in place would overwrite this value, so PyTorch
    refuses it.""",
    fix="""To update the leaf, write under ``torch.no_grad()``. To compute with it, work out of place or on
    ``x.clone()``.""",
    see=("guide/graph", "guide/grad_modes"),
)
def leaf_changed():
    weight = torch.randn(3, requires_grad=True)
    weight.square().sum().backward()
    weight -= 0.1 * weight.grad


@fixes(leaf_changed)
def leaf_updated():
    weight = torch.randn(3, requires_grad=True)
    weight.square().sum().backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad


@raises(
    "A view of a leaf that requires grad was changed in place",
    cause="Indexing, ``view``, ``.T`` and slices return views. A write to a view changes the leaf itself.",
    fix="For an initialization or an update, write under ``torch.no_grad()``. For a computation, write to "
    "``x.clone()``.",
    see=("guide/graph", "guide/grad_modes"),
)
def leaf_view_changed():
    embedding = torch.randn(5, 3, requires_grad=True)
    embedding[0] = 0.0


@fixes(leaf_view_changed)
def leaf_view_initialized():
    embedding = torch.randn(5, 3, requires_grad=True)
    with torch.no_grad():
        embedding[0] = 0.0


@raises(
    "One of several views from unbind, chunk or split was changed in place",
    cause="The views come from one call with several outputs, for which autograd cannot rewrite the history. "
    "Iterating over a tensor calls ``unbind``. A Function that returns several views of its input gives the same "
    "message.",
    fix="Work out of place, or take each view by itself: ``y[i]``, ``y.narrow(...)``.",
    see=("guide/graph",),
)
def several_views_changed():
    x = torch.randn(2, 3, requires_grad=True)
    y = 2 * x
    for row in y:
        row += 1


@fixes(several_views_changed)
def single_view_changed():
    x = torch.randn(2, 3, requires_grad=True)
    y = 2 * x
    for i in range(len(y)):
        y[i] += 1
    y.sum().backward()


@raises(
    "A tensor was changed in place after unbind, chunk or split gave views of it",
    cause="The views come from one call with several outputs, for which autograd cannot replay the view on the new "
    "value. The message comes when a view is used, not at the change.",
    fix="Change the tensor before it is split, or out of place.",
    see=("guide/graph",),
)
def split_then_changed():
    x = torch.randn(4, requires_grad=True)
    y = 2 * x
    first, _ = y.chunk(2)
    y += 1
    first.sum().backward()


@fixes(split_then_changed)
def changed_then_split():
    x = torch.randn(4, requires_grad=True)
    y = 2 * x
    y += 1
    first, _ = y.chunk(2)
    first.sum().backward()


@raises(
    "A view made under no_grad was changed in place outside",
    cause="""Under ``no_grad``, autograd did not record the view. Outside, it would have to record the change of this
    view. PyTorch refuses because it does not know which of the two you want.""",
    fix="Make the view and the change in the same mode.",
    see=("guide/grad_modes",),
)
def no_grad_view_changed():
    x = torch.randn(2, 3, requires_grad=True)
    y = 2 * x
    with torch.no_grad():
        row = y[0]
    row += 1


@fixes(no_grad_view_changed)
def recorded_view_changed():
    x = torch.randn(2, 3, requires_grad=True)
    y = 2 * x
    row = y[0]
    row += 1
    y.sum().backward()


@raises(
    "A tensor was changed in place after a view of it was made under no_grad",
    cause="""Autograd did not record the view, so PyTorch does not know whether the view should follow the change.
    PyTorch raises when it needs the ``grad_fn`` of the view, and not at the change.""",
    fix="Make the view outside ``no_grad``, after the change, or ``detach`` it.",
    see=("guide/grad_modes",),
)
def no_grad_base_changed():
    x = torch.randn(2, 3, requires_grad=True)
    y = 2 * x
    with torch.no_grad():
        row = y[0]
    y += 1
    row.sum().backward()


@fixes(no_grad_base_changed)
def recorded_base_changed():
    x = torch.randn(2, 3, requires_grad=True)
    y = 2 * x
    y += 1
    row = y[0]
    row.sum().backward()


@raises(
    "A view made in inference mode was changed in place outside",
    cause="""In inference mode, autograd did not record this view of a normal tensor. Outside, it would have to record
    the change of the view.""",
    fix="Make the view and the change in the same mode.",
    see=("guide/grad_modes",),
)
def inference_view_changed():
    table = torch.zeros(2, 3)
    bias = torch.randn(3, requires_grad=True)
    with torch.inference_mode():
        row = table[0]
    row += bias


@fixes(inference_view_changed)
def normal_view_changed():
    table = torch.zeros(2, 3)
    bias = torch.randn(3, requires_grad=True)
    row = table[0]
    row += bias
    table.sum().backward()


@raises(
    "A tensor was changed in place after a view of it was made in inference mode",
    cause="Autograd did not record the view, so PyTorch does not know whether the view should follow the change.",
    fix="Make the view outside ``inference_mode``, after the change.",
    see=("guide/grad_modes",),
)
def inference_base_changed():
    table = torch.zeros(2, 3)
    bias = torch.randn(3, requires_grad=True)
    with torch.inference_mode():
        row = table[0]
    table += bias
    row.sum().backward()


@fixes(inference_base_changed)
def normal_base_changed():
    table = torch.zeros(2, 3)
    bias = torch.randn(3, requires_grad=True)
    table += bias
    row = table[0]
    row.sum().backward()


@raises(
    "A tensor made in inference mode was used in a computation that is recorded",
    cause="""An inference tensor has no version counter, so autograd cannot save it for backward, not even as a constant
    factor.""",
    fix="Make the tensor under ``torch.no_grad()`` instead, or use ``features.clone()`` outside of inference mode.",
    see=("guide/grad_modes",),
)
def inference_tensor_saved():
    backbone, head = nn.Linear(3, 3), nn.Linear(3, 1)
    x = torch.randn(4, 3)
    with torch.inference_mode():
        features = backbone(x)
    head(features)


@fixes(inference_tensor_saved)
def no_grad_tensor_saved():
    backbone, head = nn.Linear(3, 3), nn.Linear(3, 1)
    x = torch.randn(4, 3)
    with torch.no_grad():
        features = backbone(x)
    head(features).sum().backward()


@raises(
    "A tensor made in inference mode was changed in place outside",
    cause="""You can change an inference tensor in inference mode only. Here the tensor is a ``.grad``: one backward ran
    in inference mode, and the next backward adds to this ``.grad``. Another usual case is a buffer of a model that was
    made or replaced in inference mode. A buffer that was only changed in place there stays a normal tensor.""",
    fix="Run backward outside of inference mode. Make state under ``torch.no_grad()``, or ``clone`` it outside.",
    see=("guide/grad_modes", "guide/training"),
)
def inference_grad_changed():
    weight = torch.randn(3, requires_grad=True)
    loss = weight.square().sum()
    with torch.inference_mode():
        loss.backward()
    loss = weight.square().sum()
    loss.backward()


@fixes(inference_grad_changed)
def normal_grad_changed():
    weight = torch.randn(3, requires_grad=True)
    loss = weight.square().sum()
    loss.backward()
    loss = weight.square().sum()
    loss.backward()


@raises(
    "requires_grad was set on a tensor made in inference mode",
    cause="""A tensor that was made in inference mode stays an inference tensor after the block, and cannot become part
    of a graph.""",
    fix="Clone the tensor outside of inference mode: ``noise.clone().requires_grad_()``.",
    see=("guide/grad_modes",),
)
def inference_requires_grad():
    with torch.inference_mode():
        noise = torch.randn(3)
    noise.requires_grad_()


@fixes(inference_requires_grad)
def clone_requires_grad():
    with torch.inference_mode():
        noise = torch.randn(3)
    noise.clone().requires_grad_().sum().backward()


@raises(
    "The version of a tensor made in inference mode was read",
    cause="Inference tensors do not count their in-place changes.",
    fix="Call ``tensor.is_inference()`` first, or clone the tensor outside of inference mode.",
    see=("guide/grad_modes",),
)
def inference_version():
    with torch.inference_mode():
        cache = torch.zeros(3)
    cache._version  # noqa: B018


@fixes(inference_version)
def clone_version():
    with torch.inference_mode():
        cache = torch.zeros(3)
    cache.clone()._version  # noqa: B018


@raises(
    "detach_ was called on a view",
    cause="A view shares its history with its base, so PyTorch cannot detach the view alone.",
    fix="""Use ``detach()``, which gives a new tensor. If an object keeps the tensor, store the new one there:
    ``self.hidden = self.hidden.detach()``. Or detach the base before you index it: ``hidden.detach_()`` instead of
    ``hidden[0].detach_()``.""",
    see=("guide/graph",),
)
def view_detached_in_place():
    x = torch.randn(4, 3, requires_grad=True)
    row = (2 * x)[0]
    row.detach_()


@fixes(view_detached_in_place)
def view_detached():
    x = torch.randn(4, 3, requires_grad=True)
    row = (2 * x)[0]
    row = row.detach()


@raises(
    "An operation with out= got a tensor that requires grad",
    cause="``out=`` writes into a given tensor, which autograd does not record.",
    fix="Leave ``out`` out, or run under ``torch.no_grad()``.",
    see=("guide/grad_modes", "guide/graph"),
)
def out_given():
    weight = torch.randn(3, requires_grad=True)
    result = torch.empty(3)
    torch.mul(weight, 2, out=result)


@fixes(out_given)
def out_left_out():
    weight = torch.randn(3, requires_grad=True)
    result = torch.mul(weight, 2)
    result.sum().backward()


@raises(
    "A tensor that requires grad was resized",
    cause="``resize_`` changes the tensor in place in a way that has no gradient. It is refused under "
    "``torch.no_grad()``, too.",
    fix="Use ``reshape``, ``nn.functional.pad`` or slices, or resize before ``requires_grad_()``.",
    see=("guide/graph",),
)
def parameter_resized():
    weight = torch.randn(3, requires_grad=True)
    weight.resize_(6)


@fixes(parameter_resized)
def parameter_padded():
    weight = torch.randn(3, requires_grad=True)
    nn.functional.pad(weight, (0, 3)).sum().backward()


@raises(
    "Integers were assigned to .data of a tensor that requires grad",
    cause="An assignment to ``.data`` also changes the dtype, and integers cannot require grad.",
    fix="Convert first, or copy into the tensor under ``torch.no_grad()``: ``weight.copy_(rounded)``.",
    see=("guide/grad_modes",),
)
def data_of_integers():
    weight = torch.randn(3, requires_grad=True)
    weight.data = weight.detach().round().long()


@fixes(data_of_integers)
def data_of_floats():
    weight = torch.randn(3, requires_grad=True)
    with torch.no_grad():
        weight.copy_(weight.round())


@raises(
    "The data of a parameter was replaced by data of another shape",
    cause="``weight.data = ...`` changes the shape, but the graph keeps the old one: as long as something holds the "
    "node that accumulates the gradient of this parameter, backward expects the old shape. A view of the parameter, a "
    "loss that is kept, DDP, FSDP and nn.DataParallel hold it.",
    fix="Assign a new parameter, ``layer.weight = nn.Parameter(layer.weight.detach()[:, :2])``, then make the "
    "optimizer, and the wrapper if there is one, again.",
    see=("guide/graph",),
)
def data_of_other_shape():
    layer = nn.Linear(4, 2)
    before = layer.weight.view(-1)
    layer.weight.data = layer.weight.data[:, :2]
    layer(torch.randn(3, 2)).sum().backward()
    print(before.norm())


@fixes(data_of_other_shape)
def parameter_of_other_shape():
    layer = nn.Linear(4, 2)
    before = layer.weight.view(-1)
    layer.weight = nn.Parameter(layer.weight.detach()[:, :2])
    layer(torch.randn(3, 2)).sum().backward()
    print(before.norm())


@raises(
    "Data of another device or layout was assigned to .data of a tensor",
    cause="Assigning ``.data`` exchanges the memory of a tensor and keeps everything else, also what the graph knows "
    "of it. The new tensor is of another kind: on another sort of device, sparse, quantized, or of a subclass.",
    fix="Replace the parameter instead of its data: ``module.weight = nn.Parameter(new)``, and make the optimizer "
    "after that. To move a model, call ``model.to(device)`` before the optimizer is made; for a device where that "
    "fails (XLA, meta), set ``torch.__future__.set_overwrite_module_params_on_conversion(True)``.",
    see=("guide/training",),
)
def data_of_other_kind():
    layer = nn.Linear(3, 1)
    layer.weight.data = torch.randn(1, 3, device="meta")


@fixes(data_of_other_kind)
def parameter_of_other_kind():
    layer = nn.Linear(3, 1)
    layer.weight = nn.Parameter(torch.randn(1, 3, device="meta"))


@raises(
    "An in-place leaky ReLU has a negative slope",
    cause="The in-place version saves its result and takes from the sign of the result on which side the input was. "
    "With a negative slope, the result is positive on both sides, so the input cannot be told. ``rrelu_``, ``elu_`` "
    "and ``celu_`` raise this too.",
    fix="Use the version that is not in place: ``nn.LeakyReLU(slope)``, ``F.leaky_relu(x, slope)``. Or use a slope "
    "that is not negative; a learned one can be kept so by ``slope.abs()``.",
    see=("cookbook/04_memory/in_place",),
)
def slope_negative_in_place():
    x = torch.randn(4, requires_grad=True)
    y = F.leaky_relu(x * 1, negative_slope=-0.1, inplace=True)
    y.sum().backward()


@fixes(slope_negative_in_place)
def slope_negative():
    x = torch.randn(4, requires_grad=True)
    y = F.leaky_relu(x * 1, negative_slope=-0.1)
    y.sum().backward()


@raises(
    "An index or a mask that backward needs was changed in place",
    cause="The message names a tensor of integers or booleans: the index of an embedding or of ``gather``, labels, a "
    "mask, positions. Backward reads it a second time, and it was written in between. Under DistributedDataParallel it "
    "can be a buffer, which DDP overwrites before each forward.",
    fix="Make a new tensor instead of changing this one: ``ids = ids + 1``, ``mask = mask & other``, or give the "
    "operation a copy, ``ids.clone()``. Under DDP with two forwards before one backward, pass "
    "``broadcast_buffers=False``.",
    see=("guide/graph", "check:later_writes"),
)
def index_changed():
    table = torch.randn(5, 3, requires_grad=True)
    position = torch.tensor([0, 1])
    loss = 0.0
    for _ in range(2):
        loss = loss + F.embedding(position, table).sum()
        position += 1
    loss.backward()


@fixes(index_changed)
def index_made_anew():
    table = torch.randn(5, 3, requires_grad=True)
    position = torch.tensor([0, 1])
    loss = 0.0
    for _ in range(2):
        loss = loss + F.embedding(position, table).sum()
        position = position + 1
    loss.backward()


@raises(
    "An embedding with max_norm changed its weight before backward",
    cause="""With ``max_norm``, each call of the embedding first shortens the rows that it looks up, in place. A graph
    that used ``embedding.weight`` before this call has saved the old values.""",
    fix="Use a copy for the other computation: ``embedding.weight.clone() @ x``, or look up before you use the weight. "
    "Without ``max_norm``, divide by the norm of the result yourself.",
    see=("cookbook/04_memory/in_place",),
)
def embedding_renormalized():
    embedding = nn.Embedding(4, 3, max_norm=1.0)
    x = torch.randn(3, requires_grad=True)
    scores = embedding.weight @ x
    found = embedding(torch.tensor([0, 2]))
    (scores.sum() + found.sum()).backward()


@fixes(embedding_renormalized)
def embedding_cloned():
    embedding = nn.Embedding(4, 3, max_norm=1.0)
    x = torch.randn(3, requires_grad=True)
    scores = embedding.weight.clone() @ x
    found = embedding(torch.tensor([0, 2]))
    (scores.sum() + found.sum()).backward()


@raises(
    "A module was moved or converted between forward and backward, and its tensors were swapped",
    cause="With ``torch.__future__.set_swap_module_params_on_conversion(True)``, ``model.to()``, ``.half()`` and "
    "``.cpu()`` exchange the parameters for new ones in place. The graph of the forward still leads to the old ones.",
    fix="Convert or move the module before the forward, or after ``backward()``. An offloading library must move a "
    "layer only after its backward.",
    see=("guide/training",),
)
def swapped_before_backward():
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = nn.Linear(2, 1)
        loss = model(torch.randn(4, 2)).sum()
        model.double()
        loss.backward()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@fixes(swapped_before_backward)
def swapped_after_backward():
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = nn.Linear(2, 1)
        loss = model(torch.randn(4, 2)).sum()
        loss.backward()
        model.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@raises(
    "A tensor that shares its memory with NumPy was resized",
    cause="A tensor made from a NumPy array, from a buffer or from shared memory does not own its memory, so it cannot "
    "get more of it.",
    fix="Copy it first: ``torch.from_numpy(array).clone()``. In a dataset, return copies of one size, because the "
    "workers of a DataLoader collate them in shared memory: other sizes, or views of a larger tensor, are padded or "
    "cloned first.",
    see=("guide/training",),
)
def array_resized():
    x = torch.from_numpy(np.zeros(3))
    x.resize_(100)


@fixes(array_resized)
def copy_resized():
    x = torch.from_numpy(np.zeros(3)).clone()
    x.resize_(100)
