"""Running backward."""

import copy
import pickle
from collections import OrderedDict

import torch
from docs.errors.programs import fixes, raises
from torch import nn
from torch.autograd import Function
from torch.autograd.graph import get_gradient_edge, register_multi_grad_hook
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@raises(
    "Nothing in the graph of the loss requires grad",
    cause="""Autograd did not record the tensor that backward starts from. Possible reasons: no input requires grad, or
    the tensor was computed under ``no_grad`` or ``inference_mode``, from detached tensors, through integers, or inside
    the forward of a Function. A Function that got its tensors in a list, or marked its output as not differentiable,
    has the same effect. Or the tensor is a gradient that was computed without ``create_graph=True``.""",
    fix="""Print ``torch.is_grad_enabled()`` before the forward. Then print ``requires_grad`` along the way from the
    parameters to the loss, and look at the first ``False``. For a gradient of a gradient, compute the first gradient
    with ``create_graph=True``.""",
    see=("guide/graph", "guide/grad_modes"),
)
def nothing_requires_grad():
    model = nn.Linear(3, 1)
    x = torch.randn(4, 3)
    with torch.no_grad():
        prediction = model(x)
    loss = prediction.square().mean()
    loss.backward()


@fixes(nothing_requires_grad)
def model_requires_grad():
    model = nn.Linear(3, 1)
    x = torch.randn(4, 3)
    prediction = model(x)
    loss = prediction.square().mean()
    loss.backward()


@raises(
    "A checkpoint with reentrant recomputation has frozen inputs",
    cause="""``checkpoint(..., use_reentrant=True)`` returns a result that requires grad only if one of its inputs
    requires grad. Parameters inside of the checkpoint do not count. With a frozen base model (LoRA, adapters, a
    frozen embedding) no input requires grad. So the graph ends at the checkpoint, although you train parameters
    inside of it.""",
    fix="""Pass ``use_reentrant=False`` to ``checkpoint``; in ``transformers``,
    ``gradient_checkpointing_kwargs={'use_reentrant': False}``, or call ``model.enable_input_require_grads()``. Do not
    call ``loss.requires_grad_()``: the message disappears, but nothing is trained.""",
    see=("guide/training",),
)
def frozen_under_checkpoint():
    base, adapter = nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 3)
    x = torch.randn(4, 3)
    hidden = base(x)
    y = checkpoint(lambda h: h + adapter(h), hidden, use_reentrant=True)
    y.square().mean().backward()


@fixes(frozen_under_checkpoint)
def frozen_under_other_checkpoint():
    base, adapter = nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 3)
    x = torch.randn(4, 3)
    hidden = base(x)
    y = checkpoint(lambda h: h + adapter(h), hidden, use_reentrant=False)
    y.square().mean().backward()


@raises(
    "backward was called on a tensor with several elements",
    cause="""Backward computes the product of a vector with the Jacobian. The default vector is 1, and exists only for
    an output with a single element.""",
    fix="Reduce the loss to one number (``.sum()``, ``.mean()``), or give the vector: ``y.backward(gradient=v)``.",
    see=("guide/backward",),
)
def loss_not_scalar():
    model = nn.Linear(3, 1)
    x, target = torch.randn(4, 3), torch.randn(4, 1)
    loss = (model(x) - target).square()
    loss.backward()


@fixes(loss_not_scalar)
def loss_scalar():
    model = nn.Linear(3, 1)
    x, target = torch.randn(4, 3), torch.randn(4, 1)
    loss = (model(x) - target).square()
    loss.mean().backward()


@raises(
    "backward was called on a complex number",
    cause="A complex loss has no direction of steepest descent, so PyTorch does not assume a gradient for it.",
    fix="Make the loss real: ``.abs()``, ``.real``, or ``.abs().square()``.",
    see=("cookbook/05_higher_order/complex_numbers",),
)
def loss_complex():
    signal = torch.randn(8, requires_grad=True)
    spectrum = torch.fft.fft(signal)
    loss = spectrum.square().sum()
    loss.backward()


@fixes(loss_complex)
def loss_real():
    signal = torch.randn(8, requires_grad=True)
    spectrum = torch.fft.fft(signal)
    loss = spectrum.abs().square().sum()
    loss.backward()


@raises(
    "The gradient given to backward has another shape than the output",
    cause="The vector has one element for each element of the output. It is not broadcast. The function that "
    "``torch.func.vjp`` returns says the same of its cotangents.",
    fix="Give a tensor of the shape of the output, such as ``torch.ones_like(y)``.",
    see=("guide/backward",),
)
def vector_of_other_shape():
    x = torch.randn(4, 3, requires_grad=True)
    y = x.exp()
    weights = torch.tensor([1.0, 0.5, 0.25])
    y.backward(weights)


@fixes(vector_of_other_shape)
def vector_of_same_shape():
    x = torch.randn(4, 3, requires_grad=True)
    y = x.exp()
    weights = torch.tensor([1.0, 0.5, 0.25])
    y.backward(weights.expand_as(y))


@raises(
    "A complex output was given a real gradient, or the other way round",
    cause="""The output and the gradient that you give must both be complex, or both be real. The engine converts the
    precision only.""",
    fix="Give a gradient of the output's dtype: ``torch.ones_like(y)``.",
    see=("cookbook/05_higher_order/complex_numbers",),
)
def vector_real():
    x = torch.randn(4, requires_grad=True)
    y = torch.fft.fft(x)
    y.backward(torch.ones(4))


@fixes(vector_real)
def vector_complex():
    x = torch.randn(4, requires_grad=True)
    y = torch.fft.fft(x)
    y.backward(torch.ones_like(y))


@raises(
    "The gradient given to backward is not a tensor",
    cause="``backward`` and ``torch.autograd.grad`` take tensors, or ``None`` for the 1 of a single element, not "
    "numbers, arrays or nested lists.",
    fix="Make it a tensor of the shape of the output.",
    see=("guide/backward",),
)
def vector_is_list():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    y.backward([1.0, 0.5, 0.25])


@fixes(vector_is_list)
def vector_is_tensor():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    y.backward(torch.tensor([1.0, 0.5, 0.25]))


@raises(
    "Fewer gradients than outputs",
    cause="""``torch.autograd.backward`` and ``torch.autograd.grad`` take one gradient for each output, or no gradients
    at all. If you give too many gradients, PyTorch silently ignores the last ones.""",
    fix="Give one gradient for each output, and ``None`` for an output with one element.",
    see=("guide/backward",),
)
def vectors_too_few():
    x = torch.randn(3, requires_grad=True)
    loss, penalty = x.exp().sum(), x.square().sum()
    torch.autograd.backward([loss, penalty], [torch.tensor(1.0)])


@fixes(vectors_too_few)
def vectors_for_all():
    x = torch.randn(3, requires_grad=True)
    loss, penalty = x.exp().sum(), x.square().sum()
    torch.autograd.backward([loss, penalty], [torch.tensor(1.0), torch.tensor(0.1)])


@raises(
    "The gradient given to backward is on another device",
    cause="""The engine does not move the gradient that you give to the device of the output, unless the gradient has no
    dimensions. Here the other device is ``meta``, which every machine has.""",
    fix="Make the gradient on the device of the output: ``torch.ones_like(y)``.",
    see=("guide/backward",),
)
def vector_on_other_device():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    y.backward(torch.ones(3, device="meta"))


@fixes(vector_on_other_device)
def vector_on_same_device():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    y.backward(torch.ones_like(y))


@raises(
    "backward ran twice through the same graph",
    cause="""The first backward frees the saved tensors. Your code runs through the same graph again if two losses share
    a part of the graph, if a state goes from step to step without ``detach``, or if a tensor was computed once before
    the loop. Reading the saved tensors of a node after backward gives the same message.""",
    fix="""Compute the shared part again, add the losses and run backward once, or ``detach`` the state. You can also
    pass ``retain_graph=True`` to all backwards but the last one, which keeps the tensors in memory.""",
    see=("guide/backward", "guide/training", "check:backward_twice"),
)
def backward_again():
    model = nn.Linear(3, 3)
    hidden = model(torch.randn(4, 3)).tanh()
    loss, penalty = hidden.mean(), hidden.square().mean()
    loss.backward()
    penalty.backward()


@fixes(backward_again)
def backward_of_sum():
    model = nn.Linear(3, 3)
    hidden = model(torch.randn(4, 3)).tanh()
    loss, penalty = hidden.mean(), hidden.square().mean()
    (loss + penalty).backward()


@raises(
    "A state kept from one iteration to the next still has its graph",
    cause="""The hidden state of a recurrent network, a memory or a running average was computed in the last iteration,
    and this iteration uses it. So backward continues into the graph of the last iteration, whose saved tensors are
    already freed.""",
    fix="""Detach the state at the start of the next iteration: ``state = state.detach()``. For an LSTM, detach both
    tensors of the state. Do not use ``retain_graph=True`` here, because the graph, its time and its memory would grow
    with every iteration.""",
    see=("guide/training",),
)
def state_kept():
    cell = nn.RNNCell(3, 4)
    state = torch.zeros(2, 4)
    for _ in range(2):
        state = cell(torch.randn(2, 3), state)
        state.square().mean().backward()


@fixes(state_kept)
def state_detached():
    cell = nn.RNNCell(3, 4)
    state = torch.zeros(2, 4)
    for _ in range(2):
        state = cell(torch.randn(2, 3), state.detach())
        state.square().mean().backward()


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
    "torch.autograd.grad was asked for an input that the output does not depend on",
    cause="""No path leads from the output to the tensor at this index, which counts from 0. Perhaps the computation
    used a copy or a view of this tensor, or did not use it. Perhaps the tensor was changed in place after its use, or
    detached on the way. A Function that returned ``None`` for it has the same effect.""",
    fix="""Check which tensor your computation uses. If the input may be unused, ``allow_unused=True`` returns ``None``
    for it, and ``materialize_grads=True`` returns zeros.""",
    see=("guide/backward",),
)
def input_not_used():
    weight = torch.randn(3, requires_grad=True)
    bias = torch.zeros((), requires_grad=True)
    x = torch.randn(4, 3)
    loss = (x @ weight).square().mean()
    torch.autograd.grad(loss, [weight, bias])


@fixes(input_not_used)
def input_used():
    weight = torch.randn(3, requires_grad=True)
    bias = torch.zeros((), requires_grad=True)
    x = torch.randn(4, 3)
    loss = (x @ weight + bias).square().mean()
    torch.autograd.grad(loss, [weight, bias])


@raises(
    "torch.autograd.grad was asked for an input that does not require grad",
    cause="One of the inputs has ``requires_grad=False``: it was never set, or the tensor is a detached copy.",
    fix="Call ``x.requires_grad_()`` before the computation, not after it.",
    see=("guide/backward", "guide/graph"),
)
def input_without_grad():
    weight = torch.randn(3, requires_grad=True)
    x = torch.randn(3)
    loss = (weight * x).sum().square()
    torch.autograd.grad(loss, x)


@fixes(input_without_grad)
def input_with_grad():
    weight = torch.randn(3, requires_grad=True)
    x = torch.randn(3).requires_grad_()
    loss = (weight * x).sum().square()
    torch.autograd.grad(loss, x)


@raises(
    "torch.autograd.grad was given no inputs",
    cause="""The list of inputs is empty. Often no parameter passed a filter such as ``requires_grad``, or the code had
    already iterated over a generator of parameters.""",
    fix="Keep the parameters in a list, and check that the list is not empty.",
    see=("guide/backward",),
)
def inputs_empty_grad():
    model = nn.Linear(3, 1).requires_grad_(False)
    x = torch.randn(4, 3, requires_grad=True)
    loss = model(x).sum()
    trainable = [p for p in model.parameters() if p.requires_grad]
    torch.autograd.grad(loss, trainable)


@fixes(inputs_empty_grad)
def inputs_given_grad():
    model = nn.Linear(3, 1)
    x = torch.randn(4, 3, requires_grad=True)
    loss = model(x).sum()
    trainable = [p for p in model.parameters() if p.requires_grad]
    torch.autograd.grad(loss, trainable)


@raises(
    "backward was given an empty list of inputs",
    cause="""``inputs`` names the tensors whose ``.grad`` backward fills. PyTorch refuses an empty list, because it
    could mean all tensors or none.""",
    fix="Leave ``inputs`` out for all leaves, or give at least one tensor.",
    see=("guide/backward",),
)
def inputs_empty_backward():
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).sum()
    frozen = {"weight", "bias"}
    trainable = [p for name, p in model.named_parameters() if name not in frozen]
    loss.backward(inputs=trainable)


@fixes(inputs_empty_backward)
def inputs_given_backward():
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).sum()
    frozen = {"weight"}
    trainable = [p for name, p in model.named_parameters() if name not in frozen]
    loss.backward(inputs=trainable)


@raises(
    "The inputs of backward are names, not tensors",
    cause="``inputs`` of ``backward`` and ``torch.autograd.grad`` takes tensors or gradient edges. Iterating over a "
    "``ParameterDict`` gives its keys.",
    fix="Give the tensors: ``inputs=list(parameters.values())``.",
    see=("guide/backward",),
)
def inputs_are_names():
    parameters = nn.ParameterDict({"scale": nn.Parameter(torch.ones(3))})
    loss = parameters["scale"].square().sum()
    loss.backward(inputs=parameters)


@fixes(inputs_are_names)
def inputs_are_tensors():
    parameters = nn.ParameterDict({"scale": nn.Parameter(torch.ones(3))})
    loss = parameters["scale"].square().sum()
    loss.backward(inputs=list(parameters.values()))


@raises(
    "The inputs of backward are in a mapping that is not a dict",
    cause="``inputs`` may be a ``dict`` whose values are tensors. Other mappings are refused, ``OrderedDict`` among "
    "them.",
    fix="Give ``dict(inputs)``, or a list of the values.",
    see=("guide/backward",),
)
def inputs_ordered_backward():
    weights = OrderedDict(scale=torch.ones(3, requires_grad=True))
    loss = weights["scale"].square().sum()
    loss.backward(inputs=weights)


@fixes(inputs_ordered_backward)
def inputs_dict_backward():
    weights = {"scale": torch.ones(3, requires_grad=True)}
    loss = weights["scale"].square().sum()
    loss.backward(inputs=weights)


@raises(
    "The inputs of torch.autograd.grad are in a mapping that is not a dict",
    cause="``inputs`` may be a ``dict`` whose values are tensors. Other mappings are refused, ``OrderedDict`` among "
    "them, and so a ``state_dict``.",
    fix="Give ``dict(inputs)``, or a list of the values. The tensors of a ``state_dict`` are detached: give "
    "``dict(model.named_parameters())`` in its place.",
    see=("guide/backward", "cookbook/05_higher_order/maml"),
)
def inputs_ordered_grad():
    weights = OrderedDict(scale=torch.ones(3, requires_grad=True))
    loss = weights["scale"].square().sum()
    torch.autograd.grad(loss, weights)


@fixes(inputs_ordered_grad)
def inputs_dict_grad():
    weights = {"scale": torch.ones(3, requires_grad=True)}
    loss = weights["scale"].square().sum()
    torch.autograd.grad(loss, weights)


@raises(
    "materialize_grads and allow_unused=False contradict each other",
    cause="``materialize_grads=True`` gives zeros for inputs that are not used, which ``allow_unused=False`` forbids.",
    fix="Leave ``allow_unused`` out.",
    see=("guide/backward",),
)
def materialize_unused_forbidden():
    x = torch.randn(3, requires_grad=True)
    loss = x.square().sum()
    torch.autograd.grad(loss, x, allow_unused=False, materialize_grads=True)


@fixes(materialize_unused_forbidden)
def materialize_unused_allowed():
    x = torch.randn(3, requires_grad=True)
    loss = x.square().sum()
    torch.autograd.grad(loss, x, materialize_grads=True)


@raises(
    "One of the outputs to run backward from is not a tensor",
    cause="A list of losses holds a number or ``None``, such as a loss of the initial value 0.0 or one that was "
    "switched off.",
    fix="Keep only tensors in the list.",
    see=("guide/backward",),
)
def output_is_number():
    x = torch.randn(3, requires_grad=True)
    losses = [x.square().sum(), 0.0]
    torch.autograd.backward(losses)


@fixes(output_is_number)
def outputs_are_tensors():
    x = torch.randn(3, requires_grad=True)
    losses = [x.square().sum(), 0.0]
    torch.autograd.backward([loss for loss in losses if torch.is_tensor(loss)])


@raises(
    "A loss that is a Python number has no backward",
    cause="``.item()``, ``float(loss)`` and sums that were started with a number and never met a tensor give a "
    "``float``. So does a Function whose ``forward`` returns ``.item()``.",
    fix="Keep the loss a tensor until backward has run; call ``.item()`` for the log only.",
    see=("guide/graph", "guide/training"),
)
def loss_is_float():
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).square().mean().item()
    loss.backward()


@fixes(loss_is_float)
def loss_is_tensor():
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).square().mean()
    loss.backward()


@raises(
    "The name of a method is misspelled",
    cause="The method that runs backward is called ``backward``, and the one that updates is ``step``. Python looks a "
    "name up only when the line runs, so the forward works.",
    fix="Write ``loss.backward()``, without an ``s`` at its end.",
    see=("guide/training",),
)
def backwards_called():
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).square().mean()
    loss.backwards()


@fixes(backwards_called)
def backward_spelled():
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).square().mean()
    loss.backward()


@raises(
    "A tuple, a list or a dictionary has no backward",
    cause="The call returns several things, of which the loss is one: a pair of loss and prediction, a dictionary of "
    "losses, or the output object of a library. Often a newer version of the library returns more than the older one "
    "did.",
    fix="Take the loss out: ``loss, prediction = model(x)``, ``output.loss`` or ``sum(losses.values())``. "
    "Wrapping it in ``torch.tensor`` would cut it off from the parameters.",
)
def loss_is_tuple():
    layer = nn.Linear(3, 1)

    def model(x):
        prediction = layer(x)
        return prediction.square().mean(), prediction

    loss = model(torch.randn(4, 3))
    loss.backward()


@fixes(loss_is_tuple)
def loss_taken_out():
    layer = nn.Linear(3, 1)

    def model(x):
        prediction = layer(x)
        return prediction.square().mean(), prediction

    loss, _ = model(torch.randn(4, 3))
    loss.backward()


@raises(
    "A batch of gradients does not fit the output",
    cause="With ``is_grads_batched=True`` the first dimension of each gradient counts the vectors, and the others "
    "have to be those of the output.",
    fix="Give a tensor of shape ``(vectors, *output.shape)``, such as ``torch.eye(n)`` for an output of shape "
    "``(n,)``.",
    see=("guide/backward", "cookbook/05_higher_order/hessian", "check:batched_grad"),
)
def batch_of_other_shape():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    torch.autograd.grad(y, x, torch.eye(4), is_grads_batched=True)


@fixes(batch_of_other_shape)
def batch_of_right_shape():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)


@raises(
    "A batch of gradients met a condition on their values",
    cause="``is_grads_batched=True`` runs ``backward`` once under vmap. There ``if``, ``bool()``, ``.any()`` in a "
    "condition and the like have no single value to decide by.",
    fix="Write the condition with ``torch.where``, or take the gradients one by one.",
    see=("guide/directions", "check:batched_grad"),
)
def batch_met_condition():
    class Gate(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output if grad_output.norm() < 1 else grad_output / grad_output.norm()

    x = torch.randn(3, requires_grad=True)
    torch.autograd.grad(Gate.apply(x), x, torch.eye(3), is_grads_batched=True)


@fixes(batch_met_condition)
def batch_met_where():
    class Gate(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output / grad_output.norm().clamp(min=1)

    x = torch.randn(3, requires_grad=True)
    torch.autograd.grad(Gate.apply(x), x, torch.eye(3), is_grads_batched=True)


@raises(
    "A batch of gradients met NumPy",
    cause="``is_grads_batched=True`` runs ``backward`` once under vmap, where a tensor stands for a whole batch and "
    "cannot become an array: ``.numpy()`` first calls ``detach``, which has no rule there.",
    fix="Write ``backward`` in operations of torch, or take the gradients one by one.",
    see=("cookbook/06_beyond_autograd/scipy_functions", "check:batched_grad"),
)
def batch_met_numpy():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return torch.from_numpy(2 * grad_output.numpy())

    x = torch.randn(3, requires_grad=True)
    torch.autograd.grad(Double.apply(x), x, torch.eye(3), is_grads_batched=True)


@fixes(batch_met_numpy)
def batch_met_torch():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    x = torch.randn(3, requires_grad=True)
    torch.autograd.grad(Double.apply(x), x, torch.eye(3), is_grads_batched=True)


@raises(
    "A batch of gradients does not fit the gradient edge",
    cause="With ``is_grads_batched=True`` the first dimension of the gradient counts the vectors, and the others have "
    "to be those of the edge's tensor. For an edge PyTorch 2.13 says that batches are not supported, but only where "
    "the shapes differ: a batch that fits works.",
    fix="Give a tensor of shape ``(vectors, *shape)``.",
    see=("guide/graph", "guide/backward"),
)
def batch_not_for_edge():
    x = torch.randn(3, requires_grad=True)
    edge = get_gradient_edge(x.exp())
    torch.autograd.grad(edge, x, torch.eye(4), is_grads_batched=True)


@fixes(batch_not_for_edge)
def batch_for_edge():
    x = torch.randn(3, requires_grad=True)
    edge = get_gradient_edge(x.exp())
    torch.autograd.grad(edge, x, torch.eye(3), is_grads_batched=True)


@raises(
    "materialize_grads met a gradient edge that was not used",
    cause="""The zeros need the shape of the input, and an edge of the graph has no shape. PyTorch raises only if the
    edge is not used.""",
    fix="Use ``allow_unused=True`` and replace ``None`` yourself, or pass the tensor instead of its edge.",
    see=("guide/graph", "guide/backward"),
)
def edge_materialized():
    x = torch.randn(3, requires_grad=True)
    edge = get_gradient_edge(x.exp())
    loss = x.square().sum()
    torch.autograd.grad(loss, edge, materialize_grads=True)


@fixes(edge_materialized)
def edge_unused():
    x = torch.randn(3, requires_grad=True)
    edge = get_gradient_edge(x.exp())
    loss = x.square().sum()
    torch.autograd.grad(loss, edge, allow_unused=True)


@raises(
    "The gradient edge of a tensor that does not require grad was asked for",
    cause="The tensor is not in a graph, so it has no node and no edge.",
    fix="Ask for the edge before ``detach``, outside of ``no_grad``, or set ``requires_grad`` first.",
    see=("guide/graph",),
)
def edge_of_constant():
    x = torch.randn(3, requires_grad=True)
    with torch.no_grad():
        hidden = x.exp()
    get_gradient_edge(hidden)


@fixes(edge_of_constant)
def edge_of_result():
    x = torch.randn(3, requires_grad=True)
    hidden = x.exp()
    get_gradient_edge(hidden)


@raises(
    "A gradient of another shape was assigned to .grad",
    cause="``.grad`` has the shape of its tensor. It is neither broadcast nor reshaped.",
    fix="Assign a tensor of the same shape. Where all rows have the same gradient, as here, that is "
    "``grad.expand_as(weight).clone()``.",
    see=("guide/backward",),
)
def grad_of_other_shape():
    weight = torch.randn(4, 3, requires_grad=True)
    weight.grad = torch.ones(3)


@fixes(grad_of_other_shape)
def grad_of_same_shape():
    weight = torch.randn(4, 3, requires_grad=True)
    weight.grad = torch.ones(3).expand_as(weight).clone()


@raises(
    "A gradient of another dtype was assigned to .grad",
    cause="``.grad`` has the dtype of its tensor, unless ``grad_dtype`` of the tensor says otherwise.",
    fix="Convert it: ``grad.to(weight.dtype)``. For gradients kept in another precision, set ``weight.grad_dtype`` "
    "first.",
    see=("guide/backward", "cookbook/07_compile/mixed_precision"),
)
def grad_of_other_dtype():
    weight = torch.randn(3, dtype=torch.bfloat16, requires_grad=True)
    weight.grad = torch.ones(3)


@fixes(grad_of_other_dtype)
def grad_dtype_set():
    weight = torch.randn(3, dtype=torch.bfloat16, requires_grad=True)
    weight.grad_dtype = torch.float32
    weight.grad = torch.ones(3)


@raises(
    "A gradient on another device was assigned to .grad",
    cause="``.grad`` is on the device of its tensor. Here the other one is ``meta``, which every machine has.",
    fix="Move it: ``grad.to(weight.device)``.",
    see=("guide/backward",),
)
def grad_on_other_device():
    weight = torch.randn(3, requires_grad=True)
    weight.grad = torch.ones(3, device="meta")


@fixes(grad_on_other_device)
def grad_on_same_device():
    weight = torch.randn(3, requires_grad=True)
    weight.grad = torch.ones(3, device=weight.device)


@raises(
    "A tensor was assigned to its own .grad",
    cause="PyTorch refuses this assignment, because the tensor would contain a reference to itself.",
    fix="Assign a copy: ``weight.grad = weight.detach().clone()``.",
    see=("guide/backward",),
)
def grad_is_itself():
    weight = torch.randn(3, requires_grad=True)
    weight.grad = weight


@fixes(grad_is_itself)
def grad_is_copy():
    weight = torch.randn(3, requires_grad=True)
    weight.grad = weight.detach().clone()


@raises(
    "A number was assigned to .grad",
    cause="``.grad`` is a tensor or ``None``.",
    fix="Clear it by ``weight.grad = None``, or in place by ``weight.grad.zero_()``.",
    see=("guide/backward", "guide/training"),
)
def grad_is_number():
    weight = torch.randn(3, requires_grad=True)
    weight.square().sum().backward()
    weight.grad = 0


@fixes(grad_is_number)
def grad_is_none():
    weight = torch.randn(3, requires_grad=True)
    weight.square().sum().backward()
    weight.grad = None


@raises(
    "grad_dtype was changed while .grad has another dtype",
    cause="``grad_dtype`` is the dtype of ``.grad``, and the gradient that is there has another.",
    fix="Set ``weight.grad = None`` first.",
    see=("guide/backward",),
)
def grad_dtype_too_late():
    weight = torch.randn(3, requires_grad=True)
    weight.square().sum().backward()
    weight.grad_dtype = torch.bfloat16


@fixes(grad_dtype_too_late)
def grad_dtype_in_time():
    weight = torch.randn(3, requires_grad=True)
    weight.grad_dtype = torch.bfloat16
    weight.square().sum().backward()


@raises(
    "grad_dtype was set on a tensor that is not a leaf",
    cause="Only leaves accumulate gradients, so that only they have a dtype for them.",
    fix="Set it on the leaf that the result comes from.",
    see=("guide/backward",),
)
def grad_dtype_of_result():
    weight = torch.randn(3, requires_grad=True)
    half = weight.bfloat16()
    half.grad_dtype = torch.float32


@fixes(grad_dtype_of_result)
def grad_dtype_of_leaf():
    weight = torch.randn(3, requires_grad=True)
    weight.grad_dtype = torch.float32
    half = weight.bfloat16()
    half.square().sum().backward()


@raises(
    "grad_dtype was set to a string",
    cause="``grad_dtype`` is a ``torch.dtype``, or ``None`` for any dtype.",
    fix="Set ``torch.float32``, not its name.",
    see=("guide/backward",),
)
def grad_dtype_is_string():
    weight = torch.randn(3, dtype=torch.bfloat16, requires_grad=True)
    weight.grad_dtype = "float32"


@fixes(grad_dtype_is_string)
def grad_dtype_is_dtype():
    weight = torch.randn(3, dtype=torch.bfloat16, requires_grad=True)
    weight.grad_dtype = torch.float32


@raises(
    ".grad of a tensor that is not a leaf was read",
    cause="""Backward fills ``.grad`` only for leaves. The result of an operation is not a leaf. If ``.to(device)`` has
    to copy a parameter, its result is not a leaf either.""",
    fix="Call ``hidden.retain_grad()`` before backward, or ask ``torch.autograd.grad`` for the gradient.",
    see=("guide/graph", "guide/backward"),
    warning=True,
)
def grad_of_result():
    x = torch.randn(3, requires_grad=True)
    hidden = x.exp()
    hidden.sum().backward()
    print(hidden.grad)


@fixes(grad_of_result)
def grad_retained():
    x = torch.randn(3, requires_grad=True)
    hidden = x.exp()
    hidden.retain_grad()
    hidden.sum().backward()
    print(hidden.grad)


@raises(
    "retain_grad was called on a tensor that does not require grad",
    cause="The tensor is not in a graph, so that no gradient arrives at it. ``backward(inputs=[x])`` with an ``x`` "
    "that does not require grad gives the same message.",
    fix="Set ``requires_grad`` on a leaf before it is used, or find what detached the tensor.",
    see=("guide/graph",),
)
def retain_grad_of_constant():
    weight = torch.randn(3, requires_grad=True)
    hidden = weight.detach().exp()
    hidden.retain_grad()


@fixes(retain_grad_of_constant)
def retain_grad_of_result():
    weight = torch.randn(3, requires_grad=True)
    hidden = weight.exp()
    hidden.retain_grad()
    hidden.sum().backward()


@raises(
    "A hook was registered on a tensor that does not require grad",
    cause="This tensor gets no gradient, so PyTorch would never call the hook.",
    fix="Register the hook on a tensor of the graph, before ``detach`` and outside of ``no_grad``.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def hook_on_constant():
    x = torch.randn(3)
    x.register_hook(lambda grad: grad.clamp(-1, 1))


@fixes(hook_on_constant)
def hook_on_leaf():
    x = torch.randn(3, requires_grad=True)
    x.register_hook(lambda grad: grad.clamp(-1, 1))
    x.exp().sum().backward()


@raises(
    "A hook returned something that is not a tensor",
    cause="""A hook on a tensor returns the new gradient, or ``None`` to keep the old one. ``.item()``, numbers and
    tuples are not allowed.""",
    fix="Return a tensor of the same shape, or nothing.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def hook_returned_number():
    x = torch.randn(3, requires_grad=True)
    x.register_hook(lambda grad: grad.norm().item())
    x.exp().sum().backward()


@fixes(hook_returned_number)
def hook_returned_gradient():
    x = torch.randn(3, requires_grad=True)
    x.register_hook(lambda grad: grad / grad.norm())
    x.exp().sum().backward()


@raises(
    "A hook changed the shape of the gradient",
    cause="""The tensor that a hook on a tensor or on a node returns replaces the gradient. PyTorch does not broadcast
    it.""",
    fix="Return a gradient of the same shape. If the hook only reads the gradient, return nothing.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def hook_returned_norm():
    def log_norm(grad):
        return grad.norm()

    x = torch.randn(3, requires_grad=True)
    x.register_hook(log_norm)
    x.exp().sum().backward()


@fixes(hook_returned_norm)
def hook_returned_nothing():
    def log_norm(grad):
        print(grad.norm())

    x = torch.randn(3, requires_grad=True)
    x.register_hook(log_norm)
    x.exp().sum().backward()


@raises(
    "A hook changed the dtype of the gradient",
    cause="""A hook must return a gradient with the dtype and the device of the gradient that it got. The engine does
    not convert it.""",
    fix="Convert back: ``.to(grad.dtype)``.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def hook_returned_double():
    def accurate(grad):
        return grad.double() / grad.double().norm()

    x = torch.randn(3, requires_grad=True)
    x.register_hook(accurate)
    x.exp().sum().backward()


@fixes(hook_returned_double)
def hook_returned_float():
    def accurate(grad):
        return (grad.double() / grad.double().norm()).to(grad.dtype)

    x = torch.randn(3, requires_grad=True)
    x.register_hook(accurate)
    x.exp().sum().backward()


@raises(
    "A post-accumulate-grad hook was registered on a tensor that is not a leaf",
    cause="This hook runs after backward has added to ``.grad``, and only leaves get a ``.grad``.",
    fix="Use ``register_hook`` for the gradient of a result.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def post_hook_on_result():
    weight = torch.randn(3, requires_grad=True)
    hidden = weight.exp()
    hidden.register_post_accumulate_grad_hook(lambda tensor: None)


@fixes(post_hook_on_result)
def post_hook_on_leaf():
    weight = torch.randn(3, requires_grad=True)
    weight.register_post_accumulate_grad_hook(lambda tensor: None)
    weight.exp().sum().backward()


@raises(
    "A post-accumulate-grad hook returned something",
    cause="PyTorch passes the leaf to this hook, and has no use for a returned value.",
    fix="Change ``parameter.grad`` inside the hook, and return nothing.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def post_hook_returned():
    weight = torch.randn(3, requires_grad=True)
    weight.register_post_accumulate_grad_hook(lambda parameter: parameter.grad.clamp_(-1, 1))
    weight.exp().sum().backward()


@fixes(post_hook_returned)
def post_hook_returned_nothing():
    def clip(parameter):
        parameter.grad.clamp_(-1, 1)

    weight = torch.randn(3, requires_grad=True)
    weight.register_post_accumulate_grad_hook(clip)
    weight.exp().sum().backward()


@raises(
    "A hook on a node returned a tensor instead of a tuple",
    cause="A hook on a ``grad_fn`` gets tuples of gradients, and returns a tuple of them, even of one, or ``None``. "
    "That holds for ``register_hook`` and ``register_prehook``.",
    fix="Return a tuple: ``(grad,)``.",
    see=("cookbook/02_changing_the_gradient/hooks", "guide/graph"),
)
def node_hook_returned_tensor():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    y.grad_fn.register_prehook(lambda grad_outputs: 2 * grad_outputs[0])
    y.sum().backward()


@fixes(node_hook_returned_tensor)
def node_hook_returned_tuple():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    y.grad_fn.register_prehook(lambda grad_outputs: (2 * grad_outputs[0],))
    y.sum().backward()


@raises(
    "A hook on a node returned too few gradients, or too many",
    cause="""The hook must return as many gradients as it got: one for each input of the node with ``register_hook``,
    and one for each output with ``register_prehook``.""",
    fix="Return a tuple of the same length, with ``None`` where there was ``None``.",
    see=("cookbook/02_changing_the_gradient/hooks", "guide/graph"),
)
def node_hook_returned_one():
    a = torch.randn(3, requires_grad=True)
    b = torch.randn(3, requires_grad=True)
    product = a * b
    product.grad_fn.register_hook(lambda grad_inputs, grad_outputs: (2 * grad_inputs[0],))
    product.sum().backward()


@fixes(node_hook_returned_one)
def node_hook_returned_both():
    a = torch.randn(3, requires_grad=True)
    b = torch.randn(3, requires_grad=True)
    product = a * b
    product.grad_fn.register_hook(lambda grad_inputs, grad_outputs: (2 * grad_inputs[0], grad_inputs[1]))
    product.sum().backward()


@raises(
    "A hook on a node made a gradient out of None",
    cause="""``None`` means that a gradient is not needed, or was not computed. A hook may replace a gradient by
    ``None``, but not ``None`` by a gradient.""",
    fix="Return ``None`` where there was ``None``.",
    see=("cookbook/02_changing_the_gradient/hooks", "guide/graph"),
)
def node_hook_filled_none():
    weight = torch.randn(3, requires_grad=True)
    x = torch.randn(3)
    product = weight * x
    product.grad_fn.register_hook(lambda grad_inputs, grad_outputs: (grad_inputs[0], grad_outputs[0]))
    product.sum().backward()


@fixes(node_hook_filled_none)
def node_hook_left_none():
    weight = torch.randn(3, requires_grad=True)
    x = torch.randn(3)
    product = weight * x
    product.grad_fn.register_hook(lambda grad_inputs, grad_outputs: (2 * grad_inputs[0], None))
    product.sum().backward()


@raises(
    "A hook on several gradients met torch.autograd.grad with a leaf",
    cause="``register_multi_grad_hook`` asks the engine which of its tensors will get a gradient. In "
    "``torch.autograd.grad`` it cannot tell for leaves.",
    fix="Use ``backward(inputs=...)``, choose ``mode='any'``, or hook results instead of leaves.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def multi_hook_in_grad():
    weight = torch.randn(3, requires_grad=True)
    bias = torch.zeros(3, requires_grad=True)
    register_multi_grad_hook([weight, bias], lambda grads: print(grads))
    loss = (weight + bias).square().sum()
    torch.autograd.grad(loss, [weight, bias])


@fixes(multi_hook_in_grad)
def multi_hook_in_backward():
    weight = torch.randn(3, requires_grad=True)
    bias = torch.zeros(3, requires_grad=True)
    register_multi_grad_hook([weight, bias], lambda grads: print(grads))
    loss = (weight + bias).square().sum()
    loss.backward(inputs=[weight, bias])


@raises(
    "A hook on several gradients was given a tensor that does not require grad",
    cause="In the mode ``all`` every tensor needs a node to wait for, and a constant has none. The mode ``any`` "
    "passes over it.",
    fix="Leave tensors out that do not require grad.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def multi_hook_on_constant():
    layer = nn.Linear(3, 3)
    layer.bias.requires_grad_(False)
    register_multi_grad_hook(list(layer.parameters()), lambda grads: print(grads))


@fixes(multi_hook_on_constant)
def multi_hook_on_trainable():
    layer = nn.Linear(3, 3)
    layer.bias.requires_grad_(False)
    register_multi_grad_hook([p for p in layer.parameters() if p.requires_grad], lambda grads: print(grads))


@raises(
    "A hook on several gradients was given an unknown mode",
    cause="There are two modes: ``all`` calls the hook once all gradients are there, ``any`` with the first of them.",
    fix="Choose ``mode='all'`` or ``mode='any'``.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def multi_hook_mode():
    layer = nn.Linear(3, 3)
    register_multi_grad_hook(list(layer.parameters()), lambda grad: print(grad), mode="first")


@fixes(multi_hook_mode)
def multi_hook_mode_any():
    layer = nn.Linear(3, 3)
    register_multi_grad_hook(list(layer.parameters()), lambda grad: print(grad), mode="any")


@raises(
    "A backward hook of a module returned too few gradients, too many, or a lone tensor",
    cause="""A full backward hook returns a tuple with one gradient for each positional argument of the module, and
    ``None`` for an argument that is not a tensor. If the hook returns a tensor without a tuple, PyTorch counts the rows
    of the tensor.""",
    fix="Return a tuple of the length of ``grad_input``: ``(grad,)``.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def module_hook_returned_tensor():
    layer = nn.Linear(3, 1)
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: grad_input[0].clamp(-1, 1))
    x = torch.randn(4, 3, requires_grad=True)
    layer(x).sum().backward()


@fixes(module_hook_returned_tensor)
def module_hook_returned_tuple():
    layer = nn.Linear(3, 1)
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0].clamp(-1, 1),))
    x = torch.randn(4, 3, requires_grad=True)
    layer(x).sum().backward()


@raises(
    "A full backward hook of a module whose input does not require grad",
    cause="""The hook runs, but PyTorch does not compute the gradient of the input, so ``grad_input`` contains ``None``.
    This is the usual case for the first layer of a network. The hook does not see arguments that you pass by keyword,
    so ``layer(input=x)`` gives the same warning, whether or not ``x`` requires grad.""",
    fix="""Ignore the warning for a first layer if the hook reads only ``grad_output``. Otherwise let the input require
    grad, and pass it by position.""",
    see=("cookbook/02_changing_the_gradient/hooks",),
    warning=True,
)
def module_hook_without_input():
    layer = nn.Linear(3, 1)
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    x = torch.randn(4, 3)
    layer(x).sum().backward()


@fixes(module_hook_without_input)
def module_hook_with_input():
    layer = nn.Linear(3, 1)
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    x = torch.randn(4, 3, requires_grad=True)
    layer(x).sum().backward()


@raises(
    "A module has a full and an old backward hook",
    cause="The two kinds need different ways to watch the module, and exclude each other.",
    fix="Use ``register_full_backward_hook`` for both.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def module_hooks_mixed():
    layer = nn.Linear(3, 1)
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    layer.register_backward_hook(lambda module, grad_input, grad_output: None)


@fixes(module_hooks_mixed)
def module_hooks_full():
    layer = nn.Linear(3, 1)
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)


@raises(
    "An old backward hook on a module of several operations",
    cause="A hook of ``register_backward_hook`` sees only the last operation of the module, so that its "
    "``grad_input`` is that operation's, not the module's.",
    fix="Use ``register_full_backward_hook``.",
    see=("cookbook/02_changing_the_gradient/hooks",),
    warning=True,
)
def module_hook_old():
    class Affine(nn.Module):
        def forward(self, x):
            return 2 * x + 1

    layer = Affine()
    layer.register_backward_hook(lambda module, grad_input, grad_output: None)
    layer(torch.randn(3, requires_grad=True))


@fixes(module_hook_old)
def module_hook_full():
    class Affine(nn.Module):
        def forward(self, x):
            return 2 * x + 1

    layer = Affine()
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    layer(torch.randn(3, requires_grad=True))


@raises(
    "Anomaly mode found nan in a gradient",
    cause="""The node in the message computed a gradient with nan, for the input at this position. Often the code masks
    the value after the operation, and in backward zero times infinity gives nan. Here it is the derivative of the
    square root at zero. For a custom Function, the node has the name of its class and ``Backward``.""",
    fix="""Do not run the operation at this point: choose a safe argument with ``torch.where`` before the operation, not
    after it.""",
    see=("guide/nonfinite", "cookbook/03_stability/safe_functions", "check:special_points"),
)
def nan_found():
    x = torch.zeros(3, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        y = torch.where(x > 0, x.sqrt(), 0.0)
        y.sum().backward()


@fixes(nan_found)
def nan_avoided():
    x = torch.zeros(3, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        safe = torch.where(x > 0, x, 1.0)
        y = torch.where(x > 0, safe.sqrt(), 0.0)
        y.sum().backward()


@raises(
    "Anomaly mode was switched on by detect_anomaly",
    cause="""``detect_anomaly`` warns each time that it is slow, because it keeps the traceback of every operation and
    looks for nan in every gradient. ``set_detect_anomaly`` does the same silently.""",
    fix="Ignore the warning while you debug. Then remove ``detect_anomaly``.",
    see=("guide/debugging", "guide/nonfinite"),
    warning=True,
)
def anomaly_announced():
    x = torch.randn(3, requires_grad=True)
    with torch.autograd.detect_anomaly():
        x.exp().sum().backward()


@fixes(anomaly_announced)
def anomaly_not_announced():
    x = torch.randn(3, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        x.exp().sum().backward()


@raises(
    "backward was called with create_graph=True",
    cause="""After this call, ``.grad`` has a graph that leads back to its own parameter. This cycle stays in memory
    even if you delete all other references, and Python's garbage collector does not free it. To free it, set ``.grad``
    to ``None``.""",
    fix="Use ``torch.autograd.grad(..., create_graph=True)``, which writes to no ``.grad``.",
    see=("guide/higher_order", "check:freed_at_once"),
    warning=True,
)
def graph_in_grad():
    weight = torch.randn(3, requires_grad=True)
    loss = weight.exp().sum()
    loss.backward(create_graph=True)


@fixes(graph_in_grad)
def graph_from_grad():
    weight = torch.randn(3, requires_grad=True)
    loss = weight.exp().sum()
    (grad,) = torch.autograd.grad(loss, weight, create_graph=True)
    grad.square().sum().backward()


@raises(
    "only_inputs was given to torch.autograd.grad",
    cause="The argument no longer has an effect: PyTorch always computes the gradients of the inputs only.",
    fix="Leave it out. To fill ``.grad`` of all leaves, use ``backward``.",
    see=("guide/backward",),
    warning=True,
)
def only_inputs_given():
    x = torch.randn(3, requires_grad=True)
    loss = x.exp().sum()
    torch.autograd.grad(loss, x, only_inputs=False)


@fixes(only_inputs_given)
def only_inputs_left_out():
    x = torch.randn(3, requires_grad=True)
    loss = x.exp().sum()
    torch.autograd.grad(loss, x)


@raises(
    "A tensor that requires grad was turned into a Python number",
    cause="""``float(x)`` and functions of ``math`` return numbers that have no connection to the graph. ``.item()`` and
    ``int(x)`` do the same silently.""",
    fix="Use the function of torch, or write ``x.detach()`` to say that no gradient is wanted.",
    see=("guide/graph",),
    warning=True,
)
def number_from_tensor():
    temperature = torch.tensor(2.0, requires_grad=True)
    logits = torch.randn(3)
    (logits / float(temperature)).sum()


@fixes(number_from_tensor)
def tensor_kept():
    temperature = torch.tensor(2.0, requires_grad=True)
    logits = torch.randn(3)
    (logits / temperature).sum().backward()


@raises(
    "A saved value was read from a node that has none of this name",
    cause="The attributes ``_saved_*`` of a ``grad_fn`` are what the operation keeps for its backward, and each node "
    "has other ones. ``exp`` keeps its result, not its input. Releases before 1.9 have none of these attributes.",
    fix="Print ``dir(y.grad_fn)`` to see which there are: here ``_saved_result``. With an old release, update torch. "
    "The names are no stable interface, so use them to look, not in a program.",
    see=("guide/graph",),
)
def node_without_saved_value():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    print(y.grad_fn._saved_self)


@fixes(node_without_saved_value)
def node_with_saved_value():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    print(y.grad_fn._saved_result)


@raises(
    "requires_grad of a result was switched off",
    cause="""Whether a result requires grad follows from the tensors that it was computed from. You can set the flag
    only for leaves.""",
    fix="Use ``hidden.detach()`` instead.",
    see=("guide/graph", "guide/grad_modes"),
)
def result_frozen():
    layer = nn.Linear(3, 3)
    hidden = layer(torch.randn(4, 3))
    hidden.requires_grad_(False)


@fixes(result_frozen)
def result_detached():
    layer = nn.Linear(3, 3)
    hidden = layer(torch.randn(4, 3))
    hidden = hidden.detach()


@raises(
    "requires_grad of a result was assigned True",
    cause="""A result that requires grad already has the flag ``True``, and PyTorch does not allow you to assign it.
    ``requires_grad_()`` with ``True`` is allowed.""",
    fix="Delete the line. To read the gradient of the result, call ``hidden.retain_grad()``.",
    see=("guide/graph",),
)
def result_flag_assigned():
    layer = nn.Linear(3, 3)
    hidden = layer(torch.randn(4, 3))
    hidden.requires_grad = True


@fixes(result_flag_assigned)
def result_grad_retained():
    layer = nn.Linear(3, 3)
    hidden = layer(torch.randn(4, 3))
    hidden.retain_grad()
    hidden.sum().backward()


@raises(
    "A tensor of integers was to require grad from its creation",
    cause="Only floating point and complex tensors have gradients, and ``nn.Parameter`` and ``requires_grad=True`` "
    "ask for one. ``torch.tensor`` of Python integers makes integers. The attribute ``x.requires_grad = True`` says "
    "the same with a small first letter.",
    fix="Write ``1.0`` instead of ``1``, give a ``dtype``, or use ``nn.Parameter(x, requires_grad=False)``.",
    see=("guide/graph",),
)
def integers_require_grad():
    codebook = torch.tensor([[1, 0], [0, 1]])
    nn.Parameter(codebook)


@fixes(integers_require_grad)
def floats_require_grad():
    codebook = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    nn.Parameter(codebook)


@raises(
    "requires_grad_ was called on a tensor of integers",
    cause="Only floating point and complex tensors have gradients, although the message does not mention complex ones. "
    "``torch.func.grad`` says the same of an argument of integers.",
    fix="Convert it first: ``x.float().requires_grad_()``.",
    see=("guide/graph",),
)
def integers_require_grad_later():
    pixels = torch.randint(256, (3,))
    pixels.requires_grad_()


@fixes(integers_require_grad_later)
def floats_require_grad_later():
    pixels = torch.randint(256, (3,))
    pixels.float().requires_grad_()


@raises(
    "requires_grad was assigned something that is not a bool",
    cause="The attribute is ``True`` or ``False``, not a number or a tensor.",
    fix="Convert it: ``bool(...)``.",
    see=("guide/graph",),
)
def flag_is_number():
    weight = torch.randn(3)
    weight.requires_grad = 1


@fixes(flag_is_number)
def flag_is_bool():
    weight = torch.randn(3)
    weight.requires_grad = True


@raises(
    "A result of an operation was deep-copied",
    cause="""To copy a tensor with a history, PyTorch would have to copy the graph. Often a module keeps such a result
    as an attribute, and your code copies the module.""",
    fix="Store ``hidden.detach()`` on the module, or copy ``hidden.detach()``. Instead of the old "
    "``nn.utils.weight_norm``, which keeps such a result, use ``nn.utils.parametrizations.weight_norm``.",
    see=("guide/graph", "check:module_copies"),
)
def result_copied():
    layer = nn.Linear(3, 3)
    layer.last = layer(torch.randn(4, 3))
    copy.deepcopy(layer)


@fixes(result_copied)
def detached_copied():
    layer = nn.Linear(3, 3)
    layer.last = layer(torch.randn(4, 3)).detach()
    copy.deepcopy(layer)


@raises(
    "detach_ was called on a view",
    cause="A view shares its history with its base, so PyTorch cannot detach the view alone.",
    fix="Use ``detach()``, which gives a new tensor.",
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
    "An optimizer was given a result of an operation",
    cause="An optimizer changes leaves. A parameter that went through ``.to(device)``, a product or a view is a "
    "result.",
    fix="Do the operation first, then ``requires_grad_()`` or ``nn.Parameter``.",
    see=("guide/graph", "guide/training"),
)
def result_optimized():
    weight = 0.01 * torch.randn(3, requires_grad=True)
    torch.optim.SGD([weight], lr=0.1)


@fixes(result_optimized)
def leaf_optimized():
    weight = (0.01 * torch.randn(3)).requires_grad_()
    torch.optim.SGD([weight], lr=0.1)


@raises(
    "The operation has no derivative with respect to this input",
    cause="PyTorch knows the derivative with respect to other inputs only, or to none: what stands after the colon is "
    "the input. The message comes in backward. The second derivative of an operation is missing in the same way under "
    "the name of its backward, as for ``_embedding_bag_backward``.",
    fix="Detach that input, if its gradient is not needed, or write the gradient as a Function.",
    see=("guide/decision", "cookbook/06_beyond_autograd/scipy_functions"),
)
def derivative_of_input_missing():
    shape = torch.tensor([1.0, 2.0], requires_grad=True)
    x = torch.tensor([0.5, 1.5], requires_grad=True)
    torch.special.gammainc(shape, x).sum().backward()


@fixes(derivative_of_input_missing)
def derivative_of_input_not_needed():
    shape = torch.tensor([1.0, 2.0], requires_grad=True)
    x = torch.tensor([0.5, 1.5], requires_grad=True)
    torch.special.gammainc(shape.detach(), x).sum().backward()


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
    "The operation has no derivative at all",
    cause="PyTorch has none for this operator. The message comes in backward, also in a second one: ``ctc_loss`` and "
    "``scaled_dot_product_attention`` by its fast kernel for the CPU have first derivatives only, and are named with "
    "``_backward`` at the end.",
    fix="Use a differentiable stand-in, or a Function with a gradient of your choice.",
    see=("cookbook/02_changing_the_gradient/surrogate_gradients", "cookbook/02_changing_the_gradient/straight_through"),
)
def derivative_missing():
    voltage = torch.randn(3, requires_grad=True)
    spikes = torch.heaviside(voltage, torch.tensor(0.0))
    spikes.sum().backward()


@fixes(derivative_missing)
def derivative_chosen():
    class Spike(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.heaviside(x, torch.tensor(0.0))

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output / (1 + x.abs()).square()

    voltage = torch.randn(3, requires_grad=True)
    spikes = Spike.apply(voltage)
    spikes.sum().backward()


@raises(
    "A sparse tensor was marked as coalesced by hand",
    cause="""``_coalesced_`` sets a mark in place and has no derivative. It is an internal function, which libraries
    call because their indices are sorted already. The values of the sparse tensor require grad, so its backward would
    have to go through the mark.""",
    fix="""Give the mark when you make the tensor: ``torch.sparse_coo_tensor(indices, values, size,
    is_coalesced=True)``. If a library calls it (``torch_geometric.utils.to_torch_coo_tensor``), update the library, or
    pass weights that do not require grad.""",
    see=("cookbook/01_first_steps/template",),
)
def coalesced_by_hand():
    indices, values = torch.tensor([[0, 1], [1, 0]]), torch.rand(2, requires_grad=True)
    adjacency = torch.sparse_coo_tensor(indices, values, (2, 2))
    adjacency._coalesced_(True)
    torch.sparse.mm(adjacency, torch.rand(2, 3)).sum().backward()


@fixes(coalesced_by_hand)
def made_coalesced():
    indices, values = torch.tensor([[0, 1], [1, 0]]), torch.rand(2, requires_grad=True)
    adjacency = torch.sparse_coo_tensor(indices, values, (2, 2), is_coalesced=True)
    torch.sparse.mm(adjacency, torch.rand(2, 3)).sum().backward()


@raises(
    "True or False was raised to a power that requires grad",
    cause="""The derivative of ``base ** x`` with respect to ``x`` uses the logarithm of the base. PyTorch saved the
    base as a number, and cannot read a ``bool`` back as one. The file in the message is ``c10/core/Scalar.cpp``.""",
    fix="Make the base a number: ``float(mask) ** x`` or ``1.0 ** x``.",
    see=("guide/debugging",),
)
def power_of_bool():
    exponent = torch.ones(3, requires_grad=True)
    loss = (True**exponent).sum()
    loss.backward()


@fixes(power_of_bool)
def power_of_number():
    exponent = torch.ones(3, requires_grad=True)
    loss = (float(True) ** exponent).sum()
    loss.backward()


@raises(
    "The fast attention has no second derivative",
    cause="``scaled_dot_product_attention`` takes a fused kernel (flash, memory-efficient, cuDNN), whose backward has "
    "no derivative. A gradient penalty, MAML, a Hessian or any ``create_graph=True`` needs one.",
    fix="Choose the kernel that is made of differentiable operations, around the forward: ``with "
    "torch.nn.attention.sdpa_kernel(SDPBackend.MATH):``. With older releases, switch the others off one by one "
    "(``enable_flash=False, enable_mem_efficient=False``).",
    see=("guide/higher_order",),
)
def attention_twice():
    query = torch.randn(1, 2, 4, 8, requires_grad=True)
    y = nn.functional.scaled_dot_product_attention(query, query, query)
    (gradient,) = torch.autograd.grad(y.sum(), query, create_graph=True)
    gradient.square().sum().backward()


@fixes(attention_twice)
def attention_of_differentiable_operations():
    query = torch.randn(1, 2, 4, 8, requires_grad=True)
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        y = nn.functional.scaled_dot_product_attention(query, query, query)
    (gradient,) = torch.autograd.grad(y.sum(), query, create_graph=True)
    gradient.square().sum().backward()


@raises(
    "grad_variables was given to backward",
    cause="It is the name that ``grad_tensors`` had when tensors were wrapped in variables.",
    fix="Write ``grad_tensors``.",
    see=("guide/backward", "guide/api"),
    warning=True,
)
def grad_variables_given():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    torch.autograd.backward(y, grad_variables=torch.ones(3))


@fixes(grad_variables_given)
def grad_tensors_given():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    torch.autograd.backward(y, grad_tensors=torch.ones(3))


@raises(
    "grad_tensors and grad_variables were both given to backward",
    cause="They are two names of one argument.",
    fix="Give ``grad_tensors`` only.",
    see=("guide/backward", "guide/api"),
)
def both_names_given():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    torch.autograd.backward(y, grad_tensors=torch.ones(3), grad_variables=torch.ones(3))


@fixes(both_names_given)
def one_name_given():
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    torch.autograd.backward(y, grad_tensors=torch.ones(3))


@raises(
    "An option of an operation requires grad, and the operation has no derivative for it",
    cause="The operation treats this argument as a constant: the class weights of a loss, a target, the running "
    "statistics of batch norm. Here it requires grad, mostly because it was computed from parameters or made an "
    "``nn.Parameter``.",
    fix="Detach the argument, if it should stay constant: ``weight=weight.detach()``. If it should be learned, write "
    "the formula with operations that have a gradient: ``(weight[target] * loss_per_sample).mean()`` with "
    '``reduction="none"``.',
    see=("guide/graph",),
)
def constant_requires_grad():
    logits = torch.randn(3, 4, requires_grad=True)
    weight = torch.rand(4, requires_grad=True)
    F.cross_entropy(logits, torch.tensor([0, 1, 2]), weight=weight).backward()


@fixes(constant_requires_grad)
def constant_weighted_by_hand():
    logits = torch.randn(3, 4, requires_grad=True)
    weight = torch.rand(4, requires_grad=True)
    target = torch.tensor([0, 1, 2])
    losses = F.cross_entropy(logits, target, reduction="none")
    (weight[target] * losses).mean().backward()


@raises(
    "A node of the graph was pickled",
    cause="``grad_fn`` and hooks live in the engine of this process and cannot be written to a file or sent to another "
    "process. Something that you save or send holds one: an object that keeps ``loss.grad_fn``, a partial of it, or a "
    "module that stores a node.",
    fix="Save values instead of the graph: ``loss.item()``, ``x.detach()``. Delete the attribute that holds the node "
    "before you save or start workers, or name it in ``__getstate__``.",
    see=("guide/graph",),
)
def node_pickled():
    x = torch.randn(3, requires_grad=True)
    loss = x.square().sum()
    pickle.dumps({"loss": loss.item(), "node": loss.grad_fn})


@fixes(node_pickled)
def value_pickled():
    x = torch.randn(3, requires_grad=True)
    loss = x.square().sum()
    pickle.dumps({"loss": loss.item(), "node": loss.grad_fn.name()})


@raises(
    "A tensor that requires grad was handed to another library by DLPack",
    cause="DLPack shares the memory of a tensor with NumPy, JAX or CuPy, which do not know its graph. PyTorch refuses, "
    "because the gradient would stop there silently.",
    fix="Detach it, if the other library only reads it: ``jax.dlpack.from_dlpack(x.detach())``. If its result should "
    "have a gradient, call the library in the ``forward`` of a Function and give the gradient in ``backward``.",
    see=("cookbook/06_beyond_autograd/scipy_functions",),
)
def exported_by_dlpack():
    x = torch.randn(3, requires_grad=True)
    torch.from_dlpack(x.__dlpack__())


@fixes(exported_by_dlpack)
def detached_for_dlpack():
    x = torch.randn(3, requires_grad=True)
    torch.from_dlpack(x.detach().__dlpack__())


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
    "Python asked whether a tensor with several elements is true",
    cause="``if``, ``while``, ``and``, ``or``, ``not``, Python's ``max`` and ``min``, ``x in list`` and a comparison "
    "such as ``a < b < c`` need one True or False, and the tensor has one for each element.",
    fix="Reduce the condition, ``if (x > 0).all():``, or choose for each element: ``torch.where(x > 0, a, b)``, "
    "``torch.maximum(a, b)``, ``(a < b) & (b < c)``. Their gradients flow to the elements that were chosen.",
    see=("guide/graph",),
)
def truth_of_tensor():
    x = torch.randn(3, requires_grad=True)
    hinge = max(x, torch.zeros(3))
    hinge.sum().backward()


@fixes(truth_of_tensor)
def maximum_of_tensors():
    x = torch.randn(3, requires_grad=True)
    hinge = torch.maximum(x, torch.zeros(3))
    hinge.sum().backward()


@raises(
    "An old backward hook on a module that returns a dictionary or nested tuples",
    cause="``register_backward_hook`` sits on one node of the graph, and this module returns several tensors in a "
    "structure. The hook sees the gradient of one of them, or is not called.",
    fix="Use ``register_full_backward_hook``, and let the module return a tensor or a flat tuple of tensors: full "
    "hooks skip dictionaries and nested tuples. To see one gradient, hook the tensor: "
    "``y.register_hook(print)``.",
    see=("cookbook/02_changing_the_gradient/hooks",),
    warning=True,
)
def module_hook_old_structure():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x):
            return {"logits": self.layer(x)}

    model = Net()
    model.register_backward_hook(lambda module, grad_input, grad_output: print(grad_output))
    model(torch.randn(4, 3))["logits"].sum().backward()


@fixes(module_hook_old_structure)
def module_hook_on_tensor():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x):
            return {"logits": self.layer(x)}

    logits = Net()(torch.randn(4, 3))["logits"]
    logits.register_hook(print)
    logits.sum().backward()


@raises(
    "An old backward hook on a module that returns several tensors",
    cause="``register_backward_hook`` sits on one node of the graph, and the outputs of this module come from several. "
    "The hook sees some of the gradients only.",
    fix="Use ``register_full_backward_hook``: it gets the gradients of all outputs and all inputs.",
    see=("cookbook/02_changing_the_gradient/hooks",),
    warning=True,
)
def module_hook_old_outputs():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x):
            y = self.layer(x)
            return y, y.sin()

    model = Net()
    model.register_backward_hook(lambda module, grad_input, grad_output: print(grad_output))
    y, z = model(torch.randn(4, 3))
    (y + z).sum().backward()


@fixes(module_hook_old_outputs)
def module_hook_full_outputs():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x):
            y = self.layer(x)
            return y, y.sin()

    model = Net()
    model.register_full_backward_hook(lambda module, grad_input, grad_output: print(grad_output))
    y, z = model(torch.randn(4, 3, requires_grad=True))
    (y + z).sum().backward()


@raises(
    "torch.no_grad was used without parentheses",
    cause="``torch.no_grad``, ``torch.enable_grad`` and ``torch.inference_mode`` are classes. ``with`` needs an object "
    "of the class.",
    fix="Write ``with torch.no_grad():``. As a decorator, both ``@torch.no_grad()`` and ``@torch.no_grad`` work.",
    see=("guide/grad_modes",),
)
def no_grad_not_called():
    x = torch.randn(3, requires_grad=True)
    with torch.no_grad:
        x.square().sum()


@fixes(no_grad_not_called)
def no_grad_called():
    x = torch.randn(3, requires_grad=True)
    with torch.no_grad():
        x.square().sum()


@raises(
    "x.grad was called like a function",
    cause="``x.grad`` is a tensor, the gradient that ``backward()`` has accumulated, and not a method.",
    fix="Drop the parentheses: ``x.grad``. To compute a gradient, call ``torch.autograd.grad(loss, x)``.",
    see=("guide/backward",),
)
def grad_called():
    x = torch.randn(3, requires_grad=True)
    x.square().sum().backward()
    print(x.grad())


@fixes(grad_called)
def grad_read():
    x = torch.randn(3, requires_grad=True)
    x.square().sum().backward()
    print(x.grad)


@raises(
    "requires_grad was given to a method that does not take it",
    cause="``to``, ``clone``, ``float`` and ``view`` give results of an operation, and take no ``requires_grad``. "
    "Functions that make tensors (``torch.zeros``, ``torch.tensor``) do.",
    fix="Set it afterwards: ``x = x.to(device).requires_grad_()``. If ``x`` required grad already, its copy is no "
    "leaf: write ``x.detach().to(device).requires_grad_()``, and read the gradient of this new tensor.",
    see=("guide/graph",),
)
def requires_grad_for_to():
    x = torch.randn(3).to("cpu", requires_grad=True)
    x.sum().backward()


@fixes(requires_grad_for_to)
def requires_grad_after_to():
    x = torch.randn(3).to("cpu").requires_grad_()
    x.sum().backward()


@raises(
    "Gradients were still switched off from an earlier part of the program",
    cause="``torch.set_grad_enabled(False)`` holds until it is called again. A validation, a first fit or another cell "
    "of the notebook switched gradients off, and an exception or a missing line left them off. In generators and "
    "in threads, a ``no_grad`` block can leak in the same way.",
    fix="Write ``with torch.no_grad():`` around the part that needs no gradients, because a ``with`` block also ends "
    "after an exception. In a notebook that is in this state, call ``torch.set_grad_enabled(True)`` or restart "
    "the kernel.",
    see=("guide/grad_modes",),
)
def grad_mode_left_off():
    model = nn.Linear(3, 1)

    def validate(x):
        torch.set_grad_enabled(False)
        return model(x)

    validate(torch.randn(4, 3))
    loss = model(torch.randn(4, 3)).mean()
    loss.backward()


@fixes(grad_mode_left_off)
def grad_mode_in_block():
    model = nn.Linear(3, 1)

    def validate(x):
        with torch.no_grad():
            return model(x)

    validate(torch.randn(4, 3))
    loss = model(torch.randn(4, 3)).mean()
    loss.backward()


@raises(
    "One of several outputs that backward starts from does not require grad",
    cause="``torch.autograd.backward`` got several tensors, and the one at this index (from 0) has no graph. Reentrant "
    "checkpointing does the same with all outputs of a block: a mask, a cache, an index or a tensor under "
    "``no_grad`` among them has no gradient.",
    fix="Start from the tensors that require grad: ``[t for t in outputs if t.requires_grad]``. From a checkpointed "
    "block, return only what depends on its inputs, or pass ``use_reentrant=False`` to ``checkpoint``.",
    see=("guide/graph", "cookbook/04_memory/checkpointing"),
)
def later_output_without_grad():
    weight = torch.randn(3, requires_grad=True)
    outputs = [weight.sum(), torch.ones(())]
    torch.autograd.backward(outputs)


@fixes(later_output_without_grad)
def outputs_with_grad():
    weight = torch.randn(3, requires_grad=True)
    outputs = [weight.sum(), torch.ones(())]
    torch.autograd.backward([output for output in outputs if output.requires_grad])


@raises(
    "The graph was followed from a tensor that has no grad_fn",
    cause="``grad_fn`` is ``None`` for leaves (parameters, inputs, data), for detached tensors, and for everything "
    "computed under ``no_grad``. Also the end of each branch of ``next_functions`` can be ``None``.",
    fix="Start from the loss, and test each node: ``if node is not None``. If the loss itself has no ``grad_fn``, "
    "nothing in it requires grad: look for ``detach()``, ``.data``, ``.item()`` and ``no_grad`` in the forward.",
    see=("guide/graph",),
)
def graph_of_leaf():
    weight = torch.randn(3, requires_grad=True)
    loss = (weight * 2).sum()
    print(loss.grad_fn.next_functions)
    print(weight.grad_fn.next_functions)


@fixes(graph_of_leaf)
def graph_of_result():
    weight = torch.randn(3, requires_grad=True)
    loss = (weight * 2).sum()
    for node, _ in loss.grad_fn.next_functions:
        if node is not None:
            print(node.next_functions)


@raises(
    "A deprecated module hook returned a tuple of another length",
    cause="``register_backward_hook`` puts the hook on the last operation of the module instead of the module. "
    "``grad_input`` then has an entry for each input of that operation (for ``nn.Linear`` the bias, the input and the "
    "transposed weight, and without a bias only two), and a returned tuple must have as many.",
    fix="Register it with ``register_full_backward_hook``: its ``grad_input`` has one gradient for each input of the "
    "module, and the hook returns as many. Do not pad the tuple, because the order of its entries changes with "
    "``bias=False``.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def module_hook_old_returned_one():
    def clip(module, grad_input, grad_output):
        return (grad_input[0].clamp(-1, 1),)

    layer = nn.Linear(3, 2)
    layer.register_backward_hook(clip)
    layer(torch.randn(4, 3, requires_grad=True)).sum().backward()


@fixes(module_hook_old_returned_one)
def module_hook_full_returned_one():
    def clip(module, grad_input, grad_output):
        return (grad_input[0].clamp(-1, 1),)

    layer = nn.Linear(3, 2)
    layer.register_full_backward_hook(clip)
    layer(torch.randn(4, 3, requires_grad=True)).sum().backward()


@raises(
    "A module hook returned gradients although no input of the module requires grad",
    cause="The input of the module is data, so there is no gradient of it and nothing that the hook could replace. The "
    "first layer of a network is the usual case.",
    fix="Return ``None`` from the hook in that case: ``if all(g is None for g in grad_input): return``. To change the "
    "gradient of the layer's weight, use ``layer.weight.register_hook``.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def module_hook_of_data():
    def clip(module, grad_input, grad_output):
        return (grad_output[0].clamp(-1, 1),)

    layer = nn.Linear(3, 2)
    layer.register_full_backward_hook(clip)
    data = torch.randn(4, 3)
    layer(data).sum().backward()


@fixes(module_hook_of_data)
def weight_hook():
    layer = nn.Linear(3, 2)
    layer.weight.register_hook(lambda grad: grad.clamp(-1, 1))
    data = torch.randn(4, 3)
    layer(data).sum().backward()


@raises(
    "A final callback of the engine was installed outside of backward",
    cause="``queue_callback`` runs a function once the current backward has ended, and no backward runs here. Most "
    "often a hook that is meant for backward was called by hand, or by another thread.",
    fix="Call it within a hook: ``tensor.register_hook``, ``register_post_accumulate_grad_hook`` or a module's "
    "backward hook. To act after backward, put the code behind ``loss.backward()``.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def callback_outside_backward():
    weight = torch.randn(3, requires_grad=True)
    torch.autograd.Variable._execution_engine.queue_callback(lambda: print(weight.grad))
    weight.sum().backward()


@fixes(callback_outside_backward)
def callback_within_backward():
    weight = torch.randn(3, requires_grad=True)
    queue = torch.autograd.Variable._execution_engine.queue_callback
    weight.register_hook(lambda _: queue(lambda: print(weight.grad)))
    weight.sum().backward()


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
    "An index is a tensor of floats",
    cause="An index chooses elements, so it is a tensor of integers or booleans, and it has no gradient. The result of "
    "a network, of ``round``, ``floor`` or a division is of floats.",
    fix="If the index need not be trained, convert it: ``x[index.long()]``. If it is to be trained, make the choice "
    "smooth: interpolate between the neighbors, ``(1 - w) * x[i] + w * x[i + 1]``, use ``grid_sample``, or weights "
    "from ``softmax``.",
    see=("guide/graph",),
)
def index_of_floats():
    x = torch.randn(5, requires_grad=True)
    index = 4 * torch.rand(3)
    x[index].sum().backward()


@fixes(index_of_floats)
def index_interpolated():
    x = torch.randn(5, requires_grad=True)
    index = 4 * torch.rand(3)
    i = index.long().clamp(max=3)
    w = index - i
    ((1 - w) * x[i] + w * x[i + 1]).sum().backward()


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
    "Two nested tensors of other lengths, or made apart, were combined",
    cause="Each jagged tensor has its own ragged dimension, shown as ``j1`` and ``j2``. PyTorch takes two of them for "
    "equal only if they share the very same offsets, not if these have the same values.",
    fix="Make the second from the first: ``torch.nested.nested_tensor_from_jagged(values, offsets=x.offsets())``, or "
    "with ``torch.zeros_like(x)``.",
    see=("guide/graph",),
)
def nested_made_apart():
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    y = torch.nested.nested_tensor(rows, layout=torch.jagged)
    (x + y).values().sum().backward()


@fixes(nested_made_apart)
def nested_made_together():
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    y = torch.nested.nested_tensor_from_jagged(torch.cat(rows), offsets=x.offsets())
    (x + y).values().sum().backward()


@raises(
    "A nested tensor was reduced over its batch",
    cause="The samples of a nested tensor have different lengths, so there is no sum, softmax or norm over the batch "
    "dimension alone.",
    fix="Reduce over everything with ``x.values().sum()``, or pad first: "
    "``torch.nested.to_padded_tensor(x, 0.0).sum(dim=0)``.",
    see=("guide/graph",),
)
def nested_summed_over_batch():
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    x.sum(dim=0).sum().backward()


@fixes(nested_summed_over_batch)
def padded_summed_over_batch():
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    torch.nested.to_padded_tensor(x, 0.0).sum(dim=0).sum().backward()


@raises(
    "The sum over the rows of a nested tensor has no backward",
    cause="In this release, the forward of ``x.sum(dim=1)`` exists for jagged tensors and its backward does not. The "
    "message names only the missing operator.",
    fix="Pad first, ``torch.nested.to_padded_tensor(x, 0.0).sum(dim=1)``, or sum with the lengths: "
    '``torch.segment_reduce(x.values(), "sum", offsets=x.offsets())``.',
    see=("guide/graph",),
)
def nested_summed_over_rows():
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    x.sum(dim=1).sum().backward()


@fixes(nested_summed_over_rows)
def segments_summed():
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    torch.segment_reduce(x.values(), "sum", offsets=x.offsets()).sum().backward()
    assert x.grad is not None
