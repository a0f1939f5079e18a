"""Running backward."""

import copy
import pickle
from collections import OrderedDict

import torch
from docs.errors.programs import fixes, raises
from torch import nn
from torch.autograd import Function
from torch.autograd.graph import get_gradient_edge
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
    cause="``is_grads_batched=True`` runs ``backward`` once for the whole batch, under vmap. A condition on a "
    "gradient, such as ``if grad_output.any():``, has a value for each entry of the batch, so Python cannot choose one "
    "branch.",
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


@raises(
    "An operation would mix the samples of a nested tensor, or read along its ragged dimension",
    cause="A jagged tensor stores the rows of all samples in one tensor, ``x.values()``, and where each sample begins, "
    "``x.offsets()``. An operation that uses the batch dimension or the ragged dimension as an ordinary one (a slice, "
    "``unsqueeze``, ``cat``, ``view``, a loss over it) has no meaning for it, or no rule in this release.",
    fix="Compute on ``x.values()`` where the operation treats each row alone, on ``x.unbind()`` where it needs whole "
    "samples, or on ``torch.nested.to_padded_tensor(x, 0.0)`` with a mask. "
    "``torch.nested.nested_tensor_from_jagged(values, offsets=x.offsets())`` makes the nested tensor again.",
    see=("guide/graph",),
)
def nested_ragged_dimension():
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    x[:1].values().sum().backward()


@fixes(nested_ragged_dimension)
def nested_samples():
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    torch.cat(x.unbind()[:1]).sum().backward()


@raises(
    "An operation has no rule for jagged nested tensors",
    cause="The message is only the name of the operator. Jagged tensors implement operators one by one, and this "
    "release lacks this one, for example a loss such as ``mse_loss``.",
    fix="Call it on the values of both tensors, ``F.mse_loss(x.values(), y.values())``, if it treats each row alone. "
    "Otherwise pad first, ``torch.nested.to_padded_tensor(x, 0.0)``, and mask the padding in the loss.",
    see=("guide/graph",),
)
def nested_operator_missing():
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    F.mse_loss(x, torch.zeros_like(x)).backward()


@fixes(nested_operator_missing)
def nested_values_compared():
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    F.mse_loss(x.values(), torch.zeros_like(x).values()).backward()


@raises(
    "A strided nested tensor was asked for its sizes",
    cause="Without ``layout=torch.jagged``, a nested tensor has the older, strided layout. Its samples may differ in "
    "every dimension, so it has no ``shape``. Operations that read the shape fail, such as many losses and ``mean``.",
    fix="Make it with ``layout=torch.jagged``, whose ragged size is a symbol, or compute on ``x.unbind()`` or on "
    "``torch.nested.to_padded_tensor(x, 0.0)``.",
    see=("guide/graph",),
)
def nested_without_sizes():
    x = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], requires_grad=True)
    torch.mean(x, dim=-1)


@fixes(nested_without_sizes)
def nested_with_sizes():
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    torch.mean(x, dim=-1).values().sum().backward()


@raises(
    "nn.MultiheadAttention got a nested tensor in training",
    cause="The module accepts a nested tensor only on its fast path, which runs in eval mode without gradients. "
    "``nn.TransformerEncoderLayer`` calls the same code.",
    fix="Train with padded tensors and ``key_padding_mask`` (``src_key_padding_mask``). With nested tensors, compute "
    "``q``, ``k`` and ``v`` with ``nn.Linear`` and call ``F.scaled_dot_product_attention`` on the layout "
    "``torch.jagged``.",
    see=("guide/graph",),
)
def nested_in_attention_module():
    x = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)])
    layer = nn.TransformerEncoderLayer(4, 1, 4, batch_first=True)
    layer(x)


@fixes(nested_in_attention_module)
def padded_in_attention_module():
    parts = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)])
    padding = torch.tensor([[False, False, True], [False, False, False]])
    layer = nn.TransformerEncoderLayer(4, 1, 4, batch_first=True)
    layer(torch.nested.to_padded_tensor(parts, 0.0), src_key_padding_mask=padding).sum().backward()
