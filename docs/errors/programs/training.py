"""The training loop and optimizers."""

import copy
import io
import weakref
from multiprocessing.reduction import ForkingPickler

import numpy as np
import torch
from docs.errors.programs import fixes, raises
from torch import nn
from torch.autograd import Variable
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.optim.optimizer import required


@raises(
    "The loss is None",
    cause="The function that computes the loss returns nothing, because it has no ``return`` on this path. A model of "
    "transformers leaves ``output.loss`` at ``None`` if it is not given ``labels``.",
    fix="Return the loss, or pass the labels: ``model(**batch, labels=labels)``.",
    see=("guide/training",),
)
def loss_is_none():
    def loss_of(prediction, target):
        (prediction - target).square().mean()

    prediction = nn.Linear(3, 1)(torch.randn(4, 3))
    loss = loss_of(prediction, torch.randn(4, 1))
    loss.backward()


@fixes(loss_is_none)
def loss_is_returned():
    def loss_of(prediction, target):
        return (prediction - target).square().mean()

    prediction = nn.Linear(3, 1)(torch.randn(4, 3))
    loss = loss_of(prediction, torch.randn(4, 1))
    loss.backward()


@raises(
    "A loss module was made and not called",
    cause="``nn.CrossEntropyLoss()`` makes a module. The loss is what the module returns when it is called with the "
    "prediction and the target.",
    fix="Call it: ``criterion = nn.CrossEntropyLoss()``, then ``loss = criterion(prediction, target)``.",
    see=("guide/training",),
)
def loss_is_module():
    loss = nn.CrossEntropyLoss()
    loss.backward()


@fixes(loss_is_module)
def loss_module_called():
    prediction, target = nn.Linear(3, 2)(torch.randn(4, 3)), torch.tensor([0, 1, 1, 0])
    criterion = nn.CrossEntropyLoss()
    criterion(prediction, target).backward()


@raises(
    "The tensors were given to a loss module when it was made",
    cause="""``nn.CrossEntropyLoss(prediction, target)`` takes the tensors for its options ``weight`` and
    ``size_average``, and asks whether the second one is true. An ``if`` on a tensor of several elements raises the
    same message.""",
    fix="Make the module first and call it with the tensors: ``nn.CrossEntropyLoss()(prediction, target)``, or use "
    "``F.cross_entropy(prediction, target)``. In an ``if``, write ``.any()`` or ``.all()``.",
    see=("guide/training",),
)
def loss_module_given_tensors():
    prediction, target = nn.Linear(3, 2)(torch.randn(4, 3)), torch.tensor([0, 1, 1, 0])
    nn.CrossEntropyLoss(prediction, target)


@fixes(loss_module_given_tensors)
def loss_function_given_tensors():
    prediction, target = nn.Linear(3, 2)(torch.randn(4, 3)), torch.tensor([0, 1, 1, 0])
    F.cross_entropy(prediction, target)


@raises(
    "The loss is computed from indices or comparisons, which have no gradient",
    cause="""``argmax``, ``>`` and the conversion to integers cut the graph, because their results are constant almost
    everywhere. A loss that is computed from the predicted class, such as the accuracy, has nothing to differentiate.
    ``round`` and ``sign`` keep the graph, but their gradient is zero, so PyTorch raises no error.""",
    fix="""Compute the loss from the logits: ``F.cross_entropy(logits, target)``, and use the accuracy for the log
    only. For coordinates, use a soft-argmax: ``(softmax(logits) * positions).sum(-1)``. To train through a hard choice,
    use a straight-through estimator or ``F.gumbel_softmax(..., hard=True)``.""",
    see=("cookbook/02_changing_the_gradient/straight_through", "guide/graph"),
)
def loss_of_argmax():
    logits = nn.Linear(3, 2)(torch.randn(4, 3))
    target = torch.tensor([0, 1, 1, 0])
    loss = (logits.argmax(1) - target).float().square().mean()
    loss.backward()


@fixes(loss_of_argmax)
def loss_of_logits():
    logits = nn.Linear(3, 2)(torch.randn(4, 3))
    target = torch.tensor([0, 1, 1, 0])
    loss = F.cross_entropy(logits, target)
    loss.backward()


@raises(
    "A list of tensors was given to torch.tensor",
    cause="""``torch.tensor`` copies numbers into a new leaf. It cannot take tensors of several elements. From tensors
    of one element it would keep the value, but not the graph.""",
    fix="Use ``torch.stack(tensors)`` or ``torch.cat(tensors)``, which keep the graph.",
    see=("guide/graph",),
)
def tensor_of_tensors():
    model = nn.Linear(3, 2)
    outputs = [model(torch.randn(3)) for _ in range(4)]
    torch.tensor(outputs).square().mean()


@fixes(tensor_of_tensors)
def tensors_stacked():
    model = nn.Linear(3, 2)
    outputs = [model(torch.randn(3)) for _ in range(4)]
    torch.stack(outputs).square().mean()


@raises(
    "NumPy was used in a forward or a loss that is differentiated",
    cause="""``np.sum``, ``np.log``, ``np.mean`` and similar functions convert tensors to arrays, and autograd cannot
    record what NumPy does. ``detach()`` would silence the message, but cut the gradient of everything before.""",
    fix="""Use the function of torch: ``torch.log(x)``, ``torch.stack(list).sum(0)``, or Python's ``sum(list)``.
    Detach only for plots and logs.""",
    see=("guide/graph", "cookbook/06_beyond_autograd/scipy_functions"),
)
def numpy_in_loss():
    model = nn.Linear(3, 1)
    losses = [model(torch.randn(3)).square() for _ in range(4)]
    np.sum(losses, axis=0)


@fixes(numpy_in_loss)
def torch_in_loss():
    model = nn.Linear(3, 1)
    losses = [model(torch.randn(3)).square() for _ in range(4)]
    torch.stack(losses).sum().backward()


@raises(
    "A computed tensor was assigned to a parameter of a module",
    cause="""A module refuses to replace a registered parameter by a tensor with a graph, because the optimizer would
    continue to update the old parameter.""",
    fix="To set values, copy them: ``with torch.no_grad(): layer.weight.copy_(new)``. To differentiate through the new "
    'weights (MAML, hypernetworks), call ``torch.func.functional_call(layer, {"weight": new}, x)``.',
    see=("cookbook/05_higher_order/maml", "guide/training"),
)
def parameter_replaced():
    layer = nn.Linear(3, 1)
    layer.weight = layer.weight - 0.1 * torch.randn(1, 3)
    layer(torch.randn(4, 3)).sum().backward()


@fixes(parameter_replaced)
def parameter_given_to_call():
    layer = nn.Linear(3, 1)
    weight = layer.weight - 0.1 * torch.randn(1, 3)
    torch.func.functional_call(layer, {"weight": weight}, torch.randn(4, 3)).sum().backward()


@raises(
    "retain_variables was given to backward",
    cause="The argument has been called ``retain_graph`` since torch 0.2, and the old name is gone.",
    fix="Write ``backward(retain_graph=True)``. First ask whether you need it: one backward of the summed losses is "
    "often enough.",
    see=("guide/backward",),
)
def retain_variables_given():
    loss = torch.randn(3, requires_grad=True).exp().sum()
    loss.backward(retain_variables=True)


@fixes(retain_variables_given)
def retain_graph_given():
    loss = torch.randn(3, requires_grad=True).exp().sum()
    loss.backward(retain_graph=True)


@raises(
    "A Variable was made volatile",
    cause="Since torch 0.4, ``volatile`` has no effect: this forward is recorded, and keeps its memory. A ``Variable`` "
    "is a tensor.",
    fix="Run the forward under ``with torch.no_grad():``, and drop ``Variable``.",
    see=("guide/grad_modes",),
    warning=True,
)
def variable_volatile():
    x = Variable(torch.randn(4, 3), volatile=True)
    nn.Linear(3, 1)(x)


@fixes(variable_volatile)
def forward_not_recorded():
    x = torch.randn(4, 3)
    with torch.no_grad():
        nn.Linear(3, 1)(x)


@raises(
    "A Variable was made of an array or a number",
    cause="``Variable`` accepts only a tensor. Since torch 0.4 it does nothing but return this tensor.",
    fix="Make a tensor: ``torch.from_numpy(array).float()`` or ``torch.tensor(value, requires_grad=True)``.",
    see=("guide/graph",),
)
def variable_of_array():
    data = np.ones((4, 3))
    x = Variable(data, requires_grad=True)
    nn.Linear(3, 1)(x).sum().backward()


@fixes(variable_of_array)
def tensor_of_array():
    data = np.ones((4, 3))
    x = torch.from_numpy(data).float().requires_grad_()
    nn.Linear(3, 1)(x).sum().backward()


@raises(
    "A module that keeps a computed tensor on itself was deep-copied",
    cause="""``forward`` stored a result on the module (``self.features = ...``), or weight normalization did, so
    ``deepcopy`` meets a tensor with a graph. Averaging of weights (EMA), schedulers and exporters call ``deepcopy``
    on the model.""",
    fix="Store ``self.features = features.detach()``. Or return the features instead of storing them, or delete the "
    "attribute before the copy. Instead of ``torch.nn.utils.weight_norm`` use "
    "``torch.nn.utils.parametrizations.weight_norm``, which can be copied.",
    see=("guide/graph",),
)
def module_with_output_copied():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            self.features = self.layer(x)
            return self.features

    encoder = Encoder()
    encoder(torch.randn(4, 3))
    copy.deepcopy(encoder)


@fixes(module_with_output_copied)
def module_without_graph_copied():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            features = self.layer(x)
            self.features = features.detach()
            return features

    encoder = Encoder()
    encoder(torch.randn(4, 3))
    copy.deepcopy(encoder)


@raises(
    "Integers were made a parameter",
    cause="""``nn.Parameter`` requires grad by default, and integers cannot require grad. Quantized weights (int8,
    int4) are integers.""",
    fix="""Write ``nn.Parameter(weight, requires_grad=False)``, or register a buffer: ``self.register_buffer("weight",
    weight)``. If a library of quantized models does this, update accelerate and transformers together: matching
    versions pass ``requires_grad=False`` on.""",
    see=("guide/graph",),
)
def integer_parameter():
    weight = torch.randint(-8, 8, (3, 3), dtype=torch.int8)
    nn.Parameter(weight)


@fixes(integer_parameter)
def integer_parameter_frozen():
    weight = torch.randint(-8, 8, (3, 3), dtype=torch.int8)
    nn.Parameter(weight, requires_grad=False)


@raises(
    "A worker process tried to send a tensor with a graph",
    cause="""A graph cannot leave its process. A Dataset, a queue or a pool returned a computed tensor that requires
    grad from a worker of a DataLoader or of ``multiprocessing``.""",
    fix="""Return ``x.detach()`` from the worker, and compute what is differentiated in the process that trains. If a
    Dataset runs a model, run the model under ``torch.no_grad()``.""",
    see=("guide/graph",),
)
def graph_to_other_process():
    embedding = nn.Embedding(4, 3)
    item = embedding(torch.tensor([1]))
    ForkingPickler.dumps(item)  # what a queue or a DataLoader's worker does


@fixes(graph_to_other_process)
def values_to_other_process():
    embedding = nn.Embedding(4, 3)
    item = embedding(torch.tensor([1]))
    ForkingPickler.dumps(item.detach())


@raises(
    "A module on the meta device was moved to a real one",
    cause="""Parameters on ``meta`` have a shape but no values, so there is nothing to copy. Some weights were never
    loaded: a key is missing in the checkpoint, or a library created the model on ``meta`` and left a part there.""",
    fix="Load the weights with ``model.load_state_dict(weights, assign=True)`` and look at the missing keys. "
    "``model.to_empty(device=...)`` gives memory without values: use it only before loading or initializing.",
    see=("guide/graph",),
)
def meta_module_moved():
    with torch.device("meta"):
        model = nn.Linear(3, 1)
    model.to("cpu")


@fixes(meta_module_moved)
def meta_module_loaded():
    weights = nn.Linear(3, 1).state_dict()
    with torch.device("meta"):
        model = nn.Linear(3, 1)
    model.load_state_dict(weights, assign=True)
    model.to("cpu")


@raises(
    "An operation has no kernel for quantized tensors",
    cause="""After ``convert``, the activations are quantized tensors: integers with a scale. Few operations accept
    them, and no gradient goes through them. The message names the operation: ``aten::add`` for a residual connection,
    ``aten::mul``, ``aten::cat`` and so on.""",
    fix="""Use the operation for quantized tensors: ``torch.ao.nn.quantized.FloatFunctional().add(x, y)`` as a module
    of the model, before ``prepare``. Or convert around the operation, ``x.dequantize()``. If you want to train, train
    with fake quantization, and call ``convert`` after the training.""",
    see=("cookbook/02_changing_the_gradient/fake_quantization",),
)
def no_kernel_for_quantized():
    x = torch.quantize_per_tensor(torch.rand(3), 0.1, 0, torch.quint8)
    print(x + x)


@fixes(no_kernel_for_quantized)
def added_as_quantized():
    x = torch.quantize_per_tensor(torch.rand(3), 0.1, 0, torch.quint8)
    print(torch.ops.quantized.add(x, x, 0.2, 0))


@raises(
    "An operation has no kernel for sparse or nested tensors",
    cause="""Few operations support these kinds of tensors, and fewer backwards do: the derivative of a supported
    operation may need one that is not supported. The message names the operation and lists the kinds that it
    supports.""",
    fix="Convert before the operation: ``x.to_dense()``. A nested tensor has ``.to_padded_tensor(0.0)``. Both pass the "
    "gradient on. Or use an operation made for them: ``torch.sparse.mm``, ``torch.sparse.softmax``.",
    see=("guide/decision",),
)
def no_kernel_for_sparse():
    adjacency = torch.eye(3).to_sparse().requires_grad_()
    adjacency.sin().sum().backward()


@fixes(no_kernel_for_sparse)
def kernel_for_dense():
    adjacency = torch.eye(3).to_sparse().requires_grad_()
    adjacency.to_dense().sin().sum().backward()


@raises(
    "A computed tensor was registered as a parameter",
    cause="""A parameter is a leaf that the optimizer changes. This tensor is the result of an operation on another
    parameter, so two places would decide its value.""",
    fix="Register what is learned, and compute the rest in ``forward``: ``weight = self.v * self.scale``. For a value "
    "that only starts from another one, take a copy without a graph: ``nn.Parameter(w.detach().clone())``. "
    "``torch.nn.utils.parametrize`` keeps a computed weight under its usual name.",
    see=("cookbook/01_first_steps/module",),
)
def result_registered():
    layer = nn.Linear(3, 1)
    layer.register_parameter("scaled", (layer.weight * 2).as_subclass(nn.Parameter))


@fixes(result_registered)
def copy_registered():
    layer = nn.Linear(3, 1)
    layer.register_parameter("scaled", nn.Parameter((layer.weight * 2).detach().clone()))


@raises(
    "A module got a parameter or a layer before super().__init__() ran",
    cause="``nn.Module.__init__`` makes the dictionaries that hold parameters, layers and hooks. Here an attribute was "
    "assigned first, or ``super().__init__()`` is missing.",
    fix="Call ``super().__init__()`` in the first line of ``__init__``.",
    see=("cookbook/01_first_steps/module",),
)
def module_not_initialized():
    class Scale(nn.Module):
        def __init__(self):
            self.factor = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.factor * x

    Scale()


@fixes(module_not_initialized)
def module_initialized():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.factor * x

    Scale()


@raises(
    "The classes of a cross entropy are not integers",
    cause="""``cross_entropy`` and ``nll_loss`` take the class of each sample as an integer (``int64``). With a target
    in the shape of the prediction, ``cross_entropy`` takes a probability for each class. This target has one value
    for each sample in another dtype: floats from a data frame or NumPy, or ``int32``.""",
    fix="Convert the classes: ``target.long()``. If the target is a probability for each class, its shape must be that "
    "of the prediction. If it is a number to predict, the loss is ``F.mse_loss``.",
    see=("cookbook/03_stability/cross_entropy",),
)
def classes_not_integers():
    logits = nn.Linear(3, 4)(torch.randn(5, 3))
    target = torch.tensor([0.0, 1.0, 2.0, 3.0, 0.0])
    F.cross_entropy(logits, target).backward()


@fixes(classes_not_integers)
def classes_integers():
    logits = nn.Linear(3, 4)(torch.randn(5, 3))
    target = torch.tensor([0.0, 1.0, 2.0, 3.0, 0.0])
    F.cross_entropy(logits, target.long()).backward()


@raises(
    "An embedding was given indices that are not integers",
    cause="""An embedding looks rows up, so its inputs are positions, as ``int64`` or ``int32``. Here it got floats:
    the indices passed through a tensor of floats or NumPy, or the code tried to look up a continuous value.""",
    fix="Convert the indices: ``embedding(tokens.long())``. A continuous input has no gradient through a look-up; use "
    "``nn.Linear``, or multiply the weight by soft assignments: ``weights @ embedding.weight``.",
    see=("guide/graph",),
)
def indices_not_integers():
    embedding = nn.Embedding(5, 3)
    embedding(torch.tensor([1.0, 4.0])).sum().backward()


@fixes(indices_not_integers)
def indices_integers():
    embedding = nn.Embedding(5, 3)
    embedding(torch.tensor([1.0, 4.0]).long()).sum().backward()


@raises(
    "A number in a tensor was read with an index",
    cause="""``loss.data[0]`` and ``loss[0]`` are from torch 0.3 and before, when a loss was a vector with one
    element. Now a loss is a tensor without dimensions, so there is nothing to index.""",
    fix="Read the number with ``loss.item()``, and call ``loss.backward()`` on the loss itself.",
    see=("guide/training",),
)
def number_indexed():
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).square().mean()
    loss.backward()
    print(loss.data[0])


@fixes(number_indexed)
def number_read():
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).square().mean()
    loss.backward()
    print(loss.item())


@raises(
    "A parameter was made of a list or an array",
    cause="``nn.Parameter`` wraps a tensor. It was given a list, a number or a NumPy array.",
    fix="Make a tensor first, of floats: ``nn.Parameter(torch.tensor([1.0, 2.0]))``, or "
    "``nn.Parameter(torch.from_numpy(a).float())``.",
    see=("cookbook/01_first_steps/module",),
)
def parameter_of_array():
    nn.Parameter(np.ones(3))


@fixes(parameter_of_array)
def parameter_of_tensor():
    nn.Parameter(torch.from_numpy(np.ones(3)).float())


@raises(
    "Prediction and target of a loss have shapes that broadcast",
    cause="""The prediction has the shape ``(n, 1)`` and the target ``(n,)``. The loss subtracts each target from each
    prediction, so the gradient pulls all predictions to the mean of the targets. Nothing fails, but the model does
    not learn.""",
    fix="Give both one shape: ``prediction.squeeze(-1)``, or ``target[:, None]``. Assert it: "
    "``prediction.shape == target.shape``.",
    see=("cookbook/01_first_steps/broadcasting",),
    warning=True,
)
def target_broadcast():
    model = nn.Linear(3, 1)
    x, target = torch.randn(4, 3), torch.randn(4)
    F.mse_loss(model(x), target).backward()


@fixes(target_broadcast)
def target_of_same_shape():
    model = nn.Linear(3, 1)
    x, target = torch.randn(4, 3), torch.randn(4)
    F.mse_loss(model(x).squeeze(-1), target).backward()


@raises(
    "Batch norm in training mode got one value for each channel",
    cause="""In training, batch norm normalizes with the mean and variance of the batch, and one value has no
    variance. Usually the last batch of an epoch has one sample, or a map was pooled to one pixel in a batch of
    one.""",
    fix="Drop the incomplete batch, ``DataLoader(..., drop_last=True)``, or use a batch of at least two. For "
    "inference, call ``model.eval()``. To train with one sample, use ``nn.GroupNorm`` or ``nn.LayerNorm``.",
    see=("guide/training",),
)
def batch_norm_of_one():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model(torch.randn(1, 3)).sum().backward()


@fixes(batch_norm_of_one)
def batch_norm_of_two():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model(torch.randn(2, 3)).sum().backward()


@raises(
    "A tensor with several elements was turned into a number",
    cause="""``.item()``, ``float(x)`` and ``int(x)`` read one number. Here the loss still has one value for each
    sample, because of ``reduction="none"``, or the tensor is a batch of metrics.""",
    fix="Reduce it first: ``loss.mean().item()``. For all values, use ``x.tolist()``.",
    see=("guide/training",),
)
def several_to_number():
    model = nn.Linear(3, 1)
    losses = F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 1), reduction="none")
    print(losses.item())


@fixes(several_to_number)
def mean_to_number():
    model = nn.Linear(3, 1)
    losses = F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 1), reduction="none")
    print(losses.mean().item())


@raises(
    "A parameter was assigned to a name that is taken, such as that of a parametrized weight",
    cause="The module has an attribute of this name that is no parameter. After ``register_parametrization``, "
    "``weight`` is a property, computed from ``parametrizations.weight.original`` at each access; ``weight_norm`` and "
    "``spectral_norm`` of ``torch.nn.utils.parametrizations`` do the same. Otherwise it is a method or a plain "
    "attribute.",
    fix="Give the parameter another name. For a parametrized weight, assign a tensor, which the parametrization "
    "inverts if it has a ``right_inverse``: ``layer.weight = new``, without ``nn.Parameter``; or write into "
    "``layer.parametrizations.weight.original``. ``remove_parametrizations`` makes it a parameter again.",
    see=("cookbook/01_first_steps/module",),
)
def parametrized_weight_assigned():
    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

        def right_inverse(self, x):
            return x.triu()

    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    layer.weight = nn.Parameter(torch.eye(3))


@fixes(parametrized_weight_assigned)
def parametrized_weight_inverted():
    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

        def right_inverse(self, x):
            return x.triu()

    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    layer.weight = torch.eye(3)


@raises(
    "A module with a parametrized weight was pickled as a whole",
    cause="""``register_parametrization`` (used by ``weight_norm``, ``spectral_norm`` and ``orthogonal`` of
    ``torch.nn.utils.parametrizations``) gives the module a new class at run time, and pickle cannot find this class
    again.""",
    fix="Save the parameters: ``torch.save(model.state_dict(), path)``, and apply the same parametrization before "
    "``load_state_dict``. Or make it permanent first: "
    "``nn.utils.parametrize.remove_parametrizations(layer, 'weight')``.",
    see=("guide/training",),
)
def parametrized_pickled():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 1))
    ForkingPickler.dumps(layer)


@fixes(parametrized_pickled)
def parametrized_state_pickled():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 1))
    ForkingPickler.dumps({name: value.detach() for name, value in layer.state_dict().items()})


@raises(
    "A parametrization returns another shape or dtype than the weight has",
    cause="""A parametrization replaces the weight by a function of it. The module continues to use the result as its
    weight, so PyTorch requires the same shape and dtype.""",
    fix="Return a tensor of the weight's shape. If the change is intended (a low-rank or packed weight), pass "
    "``unsafe=True`` to ``register_parametrization``.",
    see=("guide/training",),
)
def parametrization_reshapes():
    class Half(nn.Module):
        def forward(self, weight):
            return weight[: weight.shape[0] // 2]

    layer = nn.Linear(3, 4)
    nn.utils.parametrize.register_parametrization(layer, "weight", Half())


@fixes(parametrization_reshapes)
def parametrization_masks():
    class Half(nn.Module):
        def forward(self, weight):
            keep = torch.arange(len(weight)) < len(weight) // 2
            return weight * keep[:, None]

    layer = nn.Linear(3, 4)
    nn.utils.parametrize.register_parametrization(layer, "weight", Half())


@raises(
    "Class labels have one dimension too many for the loss",
    cause="``cross_entropy`` and ``nll_loss`` take scores of shape (batch, classes) and one class number for each "
    "row. This target has the shape (batch, 1), or it holds one-hot rows of integers.",
    fix="Remove the dimension: ``loss(scores, target.squeeze(1))``; for one-hot labels, ``target.argmax(1)`` or "
    "``target.float()``. With one output and labels 0 and 1, use ``binary_cross_entropy_with_logits``.",
    see=("guide/training",),
)
def labels_in_column():
    scores = torch.randn(4, 3, requires_grad=True)
    labels = torch.tensor([[0], [2], [1], [0]])
    loss = F.cross_entropy(scores, labels)
    loss.backward()


@fixes(labels_in_column)
def labels_in_row():
    scores = torch.randn(4, 3, requires_grad=True)
    labels = torch.tensor([[0], [2], [1], [0]])
    loss = F.cross_entropy(scores, labels.squeeze(1))
    loss.backward()


@raises(
    "Labels of a segmentation have a channel dimension",
    cause="``cross_entropy`` on scores of shape (batch, classes, height, width) takes class numbers of shape (batch, "
    "height, width). This target has four dimensions: (batch, 1, height, width), or a color image or one-hot "
    "channels.",
    fix="Remove the channel: ``target.squeeze(1).long()``; for one-hot channels, ``target.argmax(1)``. A mask that was "
    "loaded as a color image has to be turned into class numbers first.",
    see=("guide/training",),
)
def mask_with_channel():
    scores = torch.randn(2, 3, 4, 4, requires_grad=True)
    mask = torch.zeros(2, 1, 4, 4, dtype=torch.long)
    loss = F.cross_entropy(scores, mask)
    loss.backward()


@fixes(mask_with_channel)
def mask_without_channel():
    scores = torch.randn(2, 3, 4, 4, requires_grad=True)
    mask = torch.zeros(2, 1, 4, 4, dtype=torch.long)
    loss = F.cross_entropy(scores, mask.squeeze(1))
    loss.backward()


@raises(
    "The target has the shape of the scores, but holds integers",
    cause="""If the target has the shape of the scores, ``cross_entropy`` takes it for probabilities of the classes,
    which are floating point. This target holds integers: one-hot rows, or class numbers whose shape happens to be
    that of the scores.""",
    fix="For one-hot rows, pass ``target.float()`` or ``target.argmax(1)``. For class numbers, give the scores a "
    "dimension of classes at position 1: ``scores.transpose(1, 2)`` for scores of shape (batch, length, classes).",
    see=("guide/training",),
)
def probabilities_of_integers():
    scores = torch.randn(4, 3, requires_grad=True)
    target = F.one_hot(torch.tensor([0, 2, 1, 0]), 3)
    loss = F.cross_entropy(scores, target)
    loss.backward()


@fixes(probabilities_of_integers)
def probabilities_of_floats():
    scores = torch.randn(4, 3, requires_grad=True)
    target = F.one_hot(torch.tensor([0, 2, 1, 0]), 3)
    loss = F.cross_entropy(scores, target.float())
    loss.backward()


@raises(
    "A class label is larger than the number of classes, or negative",
    cause="``cross_entropy`` and ``nll_loss`` count classes from 0, so with C scores the labels are 0 to C - 1. "
    "Labels that count from 1, a label 255 or -1 for unlabeled pixels, or a last layer with too few outputs raise "
    "this. On a GPU, the same mistake is a device-side assert.",
    fix="Print ``target.min()``, ``target.max()`` and ``scores.shape[1]``. Subtract 1 from labels that count from 1, "
    "pass ``ignore_index=255`` for labels that do not count, or give the last layer ``target.max() + 1`` outputs.",
    see=("guide/training",),
)
def label_out_of_bounds():
    scores = torch.randn(4, 3, requires_grad=True)
    labels = torch.tensor([1, 2, 3, 1])
    loss = F.cross_entropy(scores, labels)
    loss.backward()


@fixes(label_out_of_bounds)
def label_within_bounds():
    scores = torch.randn(4, 3, requires_grad=True)
    labels = torch.tensor([1, 2, 3, 1])
    loss = F.cross_entropy(scores, labels - 1)
    loss.backward()


@raises(
    "Dropout between layers was asked of a recurrent network with one layer",
    cause="""The ``dropout`` of ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` acts on the output of each layer but the last.
    With ``num_layers=1`` there is only a last layer, so nothing is dropped.""",
    fix="""Use ``num_layers=2``, or apply ``nn.Dropout`` to the output yourself. ``dropout=0`` silences the warning
    and does not change the training.""",
    see=("guide/training",),
    warning=True,
)
def dropout_of_one_layer():
    nn.LSTM(3, 4, num_layers=1, dropout=0.5)


@fixes(dropout_of_one_layer)
def dropout_of_two_layers():
    nn.LSTM(3, 4, num_layers=2, dropout=0.5)


@raises(
    "A loss was given size_average or reduce",
    cause="""Both arguments were replaced by ``reduction``: ``'mean'``, ``'sum'`` or ``'none'``. They still work, so
    the loss does not change.""",
    fix="""Write what the warning proposes, ``reduction='sum'`` for ``size_average=False`` and ``reduction='none'``
    for ``reduce=False``. If a library causes the warning, it is harmless.""",
    see=("guide/training",),
    warning=True,
)
def size_average_given():
    loss = nn.MSELoss(size_average=False)
    loss(torch.randn(3, requires_grad=True), torch.zeros(3)).backward()


@fixes(size_average_given)
def reduction_given():
    loss = nn.MSELoss(reduction="sum")
    loss(torch.randn(3, requires_grad=True), torch.zeros(3)).backward()


@raises(
    "The mean of a Kullback-Leibler divergence was taken over all elements",
    cause="With ``reduction='mean'``, ``kl_div`` divides by the number of elements instead of the number of samples. "
    "The loss and its gradient are then too small by the number of classes.",
    fix="Pass ``reduction='batchmean'`` to ``F.kl_div`` or ``nn.KLDivLoss``. Its first argument has to be a logarithm "
    "(``log_softmax``).",
    see=("guide/training",),
    warning=True,
)
def divergence_over_elements():
    scores = torch.randn(4, 3, requires_grad=True)
    target = torch.softmax(torch.randn(4, 3), 1)
    F.kl_div(torch.log_softmax(scores, 1), target, reduction="mean").backward()


@fixes(divergence_over_elements)
def divergence_over_batch():
    scores = torch.randn(4, 3, requires_grad=True)
    target = torch.softmax(torch.randn(4, 3), 1)
    F.kl_div(torch.log_softmax(scores, 1), target, reduction="batchmean").backward()


@raises(
    "softmax was not told over which dimension it goes",
    cause="""Without ``dim``, PyTorch guesses: dimension 0 for tensors with one or three dimensions, otherwise 1. For
    scores of shape (batch, length, classes) it normalizes over the batch, and the model trains on something else.""",
    fix="""Pass the dimension of the classes: ``F.softmax(scores, dim=-1)``, ``nn.Softmax(dim=-1)``. Before
    ``cross_entropy``, leave softmax out.""",
    see=("guide/training",),
    warning=True,
)
def softmax_over_unknown():
    scores = torch.randn(4, 3, requires_grad=True)
    F.softmax(scores).square().sum().backward()


@fixes(softmax_over_unknown)
def softmax_over_classes():
    scores = torch.randn(4, 3, requires_grad=True)
    F.softmax(scores, dim=-1).square().sum().backward()


@raises(
    "weight_norm was applied to a layer that has it already",
    cause="""``weight_norm`` splits a weight into its direction and its length. The second call finds a weight that is
    already split.""",
    fix="Apply it once for each layer. To apply it again, call ``torch.nn.utils.remove_weight_norm(layer)`` first.",
    see=("guide/training",),
)
def weight_norm_twice():
    layer = nn.utils.weight_norm(nn.Linear(3, 1))
    nn.utils.weight_norm(layer)


@fixes(weight_norm_twice)
def weight_norm_once():
    layer = nn.utils.weight_norm(nn.Linear(3, 1))
    nn.utils.remove_weight_norm(layer)
    nn.utils.weight_norm(layer)


@raises(
    "A module has no forward",
    cause="""``nn.Module`` calls the method ``forward``, but the class has none: its name is misspelled, it is
    indented into another method (usually ``__init__``), or a subclass does not define it.""",
    fix="Define ``def forward(self, x):`` with the indentation of ``__init__``. A ``ModuleList`` or ``ModuleDict`` "
    "has no ``forward`` either: call its elements.",
    see=("cookbook/01_first_steps/module",),
)
def forward_indented():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)

            def forward(self, x):
                return self.layer(x)

    Net()(torch.randn(4, 3)).sum().backward()


@fixes(forward_indented)
def forward_defined():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x):
            return self.layer(x)

    Net()(torch.randn(4, 3)).sum().backward()


@raises(
    "A single number was unpacked or looped over",
    cause="""A tensor without dimensions, such as a loss, has no elements. The line expects several values: a function
    returns one loss and the line unpacks two names, or a list of losses became one tensor.""",
    fix="""Use the tensor directly: ``loss = criterion(...)``. To log it, use ``loss.item()``; to collect losses,
    ``losses.append(loss)``.""",
    see=("guide/training",),
)
def loss_unpacked():
    model = nn.Linear(3, 1)
    loss, accuracy = model(torch.randn(4, 3)).square().mean()
    loss.backward()
    print(accuracy)


@fixes(loss_unpacked)
def loss_taken():
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).square().mean()
    loss.backward()


@raises(
    "len() was called on a single number",
    cause="A tensor without dimensions, such as a loss or a class label, has no length.",
    fix="For the number of elements, use ``x.numel()``. If several values were expected here, look for a reduction "
    "too many (``.mean()``, ``.sum()``, ``reduction='mean'``) or a ``squeeze()`` that removed the batch dimension.",
    see=("guide/training",),
)
def loss_measured():
    model = nn.Linear(3, 1)
    losses = F.mse_loss(model(torch.randn(4, 3)), torch.zeros(4, 1))
    loss = losses.sum() / len(losses)
    loss.backward()


@fixes(loss_measured)
def losses_measured():
    model = nn.Linear(3, 1)
    losses = F.mse_loss(model(torch.randn(4, 3)), torch.zeros(4, 1), reduction="none")
    loss = losses.sum() / len(losses)
    loss.backward()


@raises(
    "The parameters of a lazy module were used before its first forward",
    cause="``LazyLinear``, ``LazyConv2d`` and the like learn the shape of their weights from the first input. Before "
    "that, they cannot be initialized, counted, copied or optimized.",
    fix="Run one forward with an example first: ``model(example)``. Then initialize the weights and build the "
    "optimizer.",
    see=("guide/training",),
)
def lazy_initialized():
    layer = nn.LazyLinear(1)
    nn.init.xavier_uniform_(layer.weight)


@fixes(lazy_initialized)
def lazy_after_forward():
    layer = nn.LazyLinear(1)
    layer(torch.randn(4, 3))
    nn.init.xavier_uniform_(layer.weight)


@raises(
    "The state of the random numbers was loaded to another device than the CPU",
    cause="""``torch.set_rng_state`` takes the state as a tensor of bytes on the CPU, and so does the one of
    ``torch.cuda``. ``torch.load`` with ``map_location`` moved the state together with the weights. The program uses
    ``meta`` as the device that is not the CPU, because it has to run without a GPU.""",
    fix="""Move the state back before you set it: ``torch.set_rng_state(saved['rng'].cpu())``. Or load with
    ``map_location='cpu'``: ``load_state_dict`` moves weights to the device of the model by itself.""",
    see=("guide/training",),
)
def random_state_elsewhere():
    file = io.BytesIO()
    torch.save({"rng": torch.get_rng_state()}, file)
    file.seek(0)

    saved = torch.load(file, map_location="meta")
    torch.set_rng_state(saved["rng"])


@fixes(random_state_elsewhere)
def random_state_on_the_cpu():
    file = io.BytesIO()
    torch.save({"rng": torch.get_rng_state()}, file)
    file.seek(0)

    saved = torch.load(file, map_location="cpu")
    torch.set_rng_state(saved["rng"])


@raises(
    "A tensor was copied with torch.tensor",
    cause="""``torch.tensor(x)`` copies data, so it detaches: the copy is a new leaf without the history of ``x``, and
    no gradient flows from it to ``x``. PyTorch warns because this is easy to overlook.""",
    fix="For a copy without history, write ``x.detach().clone()``. To keep the gradient, leave ``torch.tensor`` out "
    "and use ``x``, or ``torch.stack(list_of_tensors)`` instead of ``torch.tensor(list_of_tensors)``. If nothing is "
    "to be differentiated here, the warning is harmless.",
    see=("guide/graph", "cookbook/04_memory/detaching"),
    warning=True,
)
def copied_by_tensor():
    x = torch.randn(3, requires_grad=True)
    y = torch.tensor(x)
    assert not y.requires_grad


@fixes(copied_by_tensor)
def copied_by_clone():
    x = torch.randn(3, requires_grad=True)
    y = x.clone()
    y.sum().backward()
    assert x.grad is not None


@raises(
    "The mean of integers was taken",
    cause="""A mean is usually not an integer, so ``mean`` refuses integers and bools: comparisons, ``argmax``, labels
    and counts. Integers have no gradient either.""",
    fix="""Convert first: ``x.float().mean()``. For an accuracy, ``(prediction == target).float().mean()`` is right.
    As a loss, such a number does not train anything, because its inputs have no gradient.""",
    see=("guide/graph",),
)
def mean_of_integers():
    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    (logits.argmax(1) == target).mean()


@fixes(mean_of_integers)
def mean_of_floats():
    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    (logits.argmax(1) == target).float().mean()


@raises(
    "Numbers were stacked, not tensors",
    cause="""``torch.stack`` and ``torch.cat`` join tensors, but this list holds Python numbers. Usually ``.item()``
    or ``float()`` made them from tensors; such numbers have no graph.""",
    fix="Collect the tensors: ``losses.append(loss)`` instead of ``losses.append(loss.item())``. Then ``torch.stack`` "
    "keeps the gradient. For statistics alone, ``torch.tensor(losses)`` makes a tensor of numbers.",
    see=("guide/graph",),
)
def numbers_stacked():
    model = nn.Linear(3, 1)
    losses = [model(torch.randn(4, 3)).square().mean().item() for _ in range(2)]
    torch.stack(losses).sum().backward()


@fixes(numbers_stacked)
def losses_stacked():
    model = nn.Linear(3, 1)
    losses = [model(torch.randn(4, 3)).square().mean() for _ in range(2)]
    torch.stack(losses).sum().backward()


@raises(
    "A module was converted to integers",
    cause="""``module.to(dtype)`` converts parameters. Integer parameters cannot have gradients, so it accepts only
    floating-point and complex dtypes.""",
    fix="Choose a floating-point dtype, such as ``torch.bfloat16``. To store weights as integers, quantize them, for "
    "example with torchao. To train for that, use fake quantization.",
    see=("cookbook/02_changing_the_gradient/fake_quantization",),
)
def module_to_integers():
    model = nn.Linear(3, 1)
    model.to(torch.int8)


@fixes(module_to_integers)
def module_to_bfloat16():
    model = nn.Linear(3, 1)
    model.to(torch.bfloat16)


@raises(
    "A module became complex",
    cause="Many modules and losses do not support complex numbers, so PyTorch warns. It has converted the parameters.",
    fix="If your layers support complex numbers, the warning is harmless. Otherwise convert the input to two real "
    "channels, ``torch.view_as_real(x)``. The loss must be real: ``.abs().square().mean()``.",
    see=("cookbook/05_higher_order/complex_numbers",),
    warning=True,
)
def module_to_complex():
    model = nn.Linear(3, 1)
    model.to(torch.complex64)


@fixes(module_to_complex)
def module_of_real_channels():
    model = nn.Linear(6, 1)
    x = torch.randn(4, 3, dtype=torch.complex64)
    model(torch.view_as_real(x).flatten(1)).square().mean().backward()


@raises(
    "A weight was loaded into a module on the meta device",
    cause="A parameter on the meta device has no memory to copy into, so ``load_state_dict`` changes nothing: the "
    "module stays empty, and training it fails or starts from undefined numbers.",
    fix="Pass ``assign=True`` to ``load_state_dict``: it puts the loaded tensors in as the parameters. Or call "
    '``module.to_empty(device="cpu")`` first. Make the optimizer afterwards.',
    see=("guide/training",),
    warning=True,
)
def loaded_into_meta():
    state = nn.Linear(3, 1).state_dict()
    model = nn.Linear(3, 1, device="meta")
    model.load_state_dict(state)


@fixes(loaded_into_meta)
def loaded_by_assignment():
    state = nn.Linear(3, 1).state_dict()
    model = nn.Linear(3, 1, device="meta")
    model.load_state_dict(state, assign=True)
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "A layer on the meta device was called with a real input",
    cause="""A parameter on the meta device has a shape but no numbers. The layer was made under
    ``torch.device("meta")``, or by a library with ``low_cpu_mem_usage`` or ``device_map``, and its weights were never
    loaded or were offloaded.""",
    fix="Load the weights with ``load_state_dict(state, assign=True)``, or allocate them with "
    '``module.to_empty(device="cpu")`` and initialize them. '
    "``[n for n, p in model.named_parameters() if p.is_meta]`` lists the parameters that are left.",
    see=("guide/training",),
)
def meta_module_called():
    model = nn.Linear(3, 1, device="meta")
    model(torch.randn(4, 3)).sum().backward()


@fixes(meta_module_called)
def materialized_module_called():
    model = nn.Linear(3, 1, device="meta").to_empty(device="cpu")
    model.reset_parameters()
    model(torch.randn(4, 3)).sum().backward()


@raises(
    "A parametrization returned something that is not a tensor",
    cause="""``parametrize`` uses the result of the parametrization's ``forward`` as the weight, so the result must be
    a tensor. Usually a ``return`` is missing, or ``.item()`` made a number.""",
    fix="Return the new weight as a tensor from ``forward``, of the shape and dtype of the old one.",
    see=("guide/training",),
)
def parametrization_returns_nothing():
    class Positive(nn.Module):
        def forward(self, weight):
            weight.exp()

    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", Positive())


@fixes(parametrization_returns_nothing)
def parametrization_returns_weight():
    class Positive(nn.Module):
        def forward(self, weight):
            return weight.exp()

    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", Positive())


@raises(
    "A parametrization was registered for a name that the module does not have",
    cause="""The name must be that of a parameter or a buffer of this same module, such as ``weight``. A name with a
    dot, or of a parameter in a child module, does not count. After ``weight_norm`` or pruning, the parameter has
    another name.""",
    fix="Print ``[n for n, _ in module.named_parameters(recurse=False)]`` and take one of these. For a child, register "
    'it there: ``register_parametrization(model.encoder, "weight", …)``.',
    see=("guide/training",),
)
def parametrization_of_unknown_name():
    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weights", nn.Softplus())


@fixes(parametrization_of_unknown_name)
def parametrization_of_own_name():
    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", nn.Softplus())


@raises(
    "A parametrized weight was assigned, and its parametrization has no inverse",
    cause="""``layer.weight`` is computed from another parameter. To assign to ``layer.weight``, PyTorch must compute
    that parameter, and calls ``right_inverse`` of the parametrization for it. Yours has no ``right_inverse``.""",
    fix="Add ``def right_inverse(self, weight)`` that returns what ``forward`` turns into ``weight``. Or write into "
    "the original: ``layer.parametrizations.weight.original``, under ``torch.no_grad()``.",
    see=("guide/training",),
)
def parametrization_without_inverse():
    class Positive(nn.Module):
        def forward(self, weight):
            return weight.exp()

    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", Positive())
    layer.weight = torch.ones(3, 3)


@fixes(parametrization_without_inverse)
def parametrization_with_inverse():
    class Positive(nn.Module):
        def forward(self, weight):
            return weight.exp()

        def right_inverse(self, weight):
            return weight.log()

    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", Positive())
    layer.weight = torch.ones(3, 3)


@raises(
    "right_inverse of a parametrization did not return a tensor of the same dtype",
    cause="""``right_inverse`` computes the parameter from which ``forward`` computes the weight.
    ``register_parametrization`` calls it once with the current weight, and the result becomes the parameter.""",
    fix="Return a tensor (or a tuple of tensors, if ``forward`` takes several) of the dtype and on the device of the "
    "weight that it got.",
    see=("guide/training",),
)
def inverse_of_other_dtype():
    class Positive(nn.Module):
        def forward(self, weight):
            return weight.exp()

        def right_inverse(self, weight):
            return weight.abs().double().log()

    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", Positive())


@fixes(inverse_of_other_dtype)
def inverse_of_same_dtype():
    class Positive(nn.Module):
        def forward(self, weight):
            return weight.exp()

        def right_inverse(self, weight):
            return weight.abs().double().log().to(weight.dtype)

    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", Positive())


@raises(
    "The norm, parametrization or pruning to remove is not there",
    cause="""There are two families: ``torch.nn.utils.weight_norm`` and ``spectral_norm``, which use hooks, and those
    of ``torch.nn.utils.parametrizations``. Each can be removed only by its own function. Or your code already removed
    it, or it is on another layer or under another name.""",
    fix="""Remove ``parametrizations.weight_norm`` with ``parametrize.remove_parametrizations(layer, "weight")``, and
    the older ``weight_norm`` with ``remove_weight_norm(layer)``. Check first: ``parametrize.is_parametrized(layer,
    "weight")``.""",
    see=("guide/training",),
)
def norm_of_other_family_removed():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    nn.utils.remove_weight_norm(layer)


@fixes(norm_of_other_family_removed)
def norm_of_same_family_removed():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    nn.utils.parametrize.remove_parametrizations(layer, "weight")


@raises(
    "weight_norm of torch.nn.utils is deprecated",
    cause="The newer function of the same name computes the same weight as a parametrization instead of in a hook. Its "
    "parameters have other names in ``state_dict``.",
    fix="The warning is harmless: the gradients are right. When you change the code, call "
    "``torch.nn.utils.parametrizations.weight_norm``, and remove it with ``parametrize.remove_parametrizations``.",
    see=("guide/training",),
    warning=True,
)
def older_weight_norm():
    nn.utils.weight_norm(nn.Linear(3, 3))


@fixes(older_weight_norm)
def newer_weight_norm():
    nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))


@raises(
    "A lazy layer was normalized before its first forward",
    cause="""A lazy layer has no weight until its first forward shows the size of the input, so there is no weight to
    normalize.""",
    fix="Run one forward first, with an input of the right size: ``with torch.no_grad(): layer(x)``. Or use the layer "
    "that is not lazy, such as ``nn.Linear(3, 1)``.",
    see=("guide/training",),
)
def lazy_layer_normalized():
    layer = nn.LazyLinear(1)
    nn.utils.spectral_norm(layer)


@fixes(lazy_layer_normalized)
def initialized_layer_normalized():
    layer = nn.LazyLinear(1)
    with torch.no_grad():
        layer(torch.randn(4, 3))
    nn.utils.spectral_norm(layer)


@raises(
    "An orthogonal parametrization was put on a vector",
    cause="``orthogonal`` makes the columns or rows of a matrix orthonormal. A bias has one dimension.",
    fix="Apply it to ``weight`` only: skip what has fewer than two dimensions in your loop, ``if p.ndim >= 2``.",
    see=("cookbook/05_higher_order/rotations",),
)
def orthogonal_of_vector():
    nn.utils.parametrizations.orthogonal(nn.Linear(3, 3), "bias")


@fixes(orthogonal_of_vector)
def orthogonal_of_matrix():
    nn.utils.parametrizations.orthogonal(nn.Linear(3, 3), "weight")


@raises(
    "An orthogonal weight was assigned without trivialization",
    cause="""With ``use_trivialization=False`` the weight is the matrix exponential or the Cayley map of a
    skew-symmetric matrix. PyTorch cannot invert these maps, so you cannot assign the weight.""",
    fix="Leave ``use_trivialization=True``, the default: it keeps the assigned matrix as a base. Or use "
    '``orthogonal_map="householder"``.',
    see=("cookbook/05_higher_order/rotations",),
)
def orthogonal_weight_assigned():
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3), use_trivialization=False)
    layer.weight = torch.eye(3)


@fixes(orthogonal_weight_assigned)
def trivialized_weight_assigned():
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
    layer.weight = torch.eye(3)


@raises(
    "The amount to prune is neither a fraction nor a number of weights",
    cause="A float between 0 and 1 is the fraction of the weights that are pruned, an integer their number. A float "
    "above 1 is neither.",
    fix="For 30 %, pass ``amount=0.3``; for 30 weights, ``amount=30``.",
    see=("guide/training",),
)
def percentage_pruned():
    prune.l1_unstructured(nn.Linear(3, 3), "weight", amount=30.0)


@fixes(percentage_pruned)
def fraction_pruned():
    prune.l1_unstructured(nn.Linear(3, 3), "weight", amount=0.3)


@raises(
    "A module's weight could not be swapped",
    cause="""With ``torch.__future__.set_swap_module_params_on_conversion``, and for some subclasses of Tensor,
    ``module.to()`` swaps the contents of two tensors. PyTorch refuses this while something keeps a weak reference to
    the parameter, as caches and trackers do.""",
    fix="Convert the module first, before the code that keeps references to its parameters sees them. Or clear that "
    "cache.",
    see=("guide/training",),
)
def referenced_weight_swapped():
    torch.__future__.set_swap_module_params_on_conversion(True)
    model = nn.Linear(3, 1)
    tracked = [weakref.ref(p) for p in model.parameters()]
    model.double()
    assert all(reference() is not None for reference in tracked)


@fixes(referenced_weight_swapped)
def weight_swapped_first():
    torch.__future__.set_swap_module_params_on_conversion(True)
    model = nn.Linear(3, 1)
    model.double()
    tracked = [weakref.ref(p) for p in model.parameters()]
    assert all(reference() is not None for reference in tracked)


@raises(
    "vector_to_parameters was not given a tensor",
    cause="""``vector_to_parameters`` cuts one vector into the shapes of the parameters. ``parameters_to_vector``
    makes such a vector; a list, a generator or an array is not one.""",
    fix="Pass one tensor: ``torch.cat([p.reshape(-1) for p in parameters])``, or ``torch.as_tensor(array)``.",
    see=("cookbook/05_higher_order/hessian",),
)
def step_is_list():
    model = nn.Linear(3, 1)
    step = [torch.zeros_like(p) for p in model.parameters()]
    nn.utils.vector_to_parameters(step, model.parameters())


@fixes(step_is_list)
def step_is_tensor():
    model = nn.Linear(3, 1)
    step = [torch.zeros_like(p) for p in model.parameters()]
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(step), model.parameters())


@raises(
    "An embedding bag has no gradient with this option",
    cause="""The backward of an embedding bag exists for some combinations only. Weights for each sample work with the
    sum, but not with the mean or the maximum. The maximum does not work with sparse gradients or with gradients
    scaled by frequency.""",
    fix='Use ``mode="sum"`` and divide by the sum of the weights for a mean. Without ``sparse=True`` and '
    "``scale_grad_by_freq=True``, all three modes have gradients.",
    see=("cookbook/04_memory/sparse",),
)
def weighted_mean_of_bag():
    bag = nn.EmbeddingBag(5, 3, mode="mean")
    index, weight = torch.tensor([[0, 1]]), torch.tensor([[0.5, 2.0]])
    bag(index, per_sample_weights=weight).sum().backward()


@fixes(weighted_mean_of_bag)
def weighted_sum_of_bag():
    bag = nn.EmbeddingBag(5, 3, mode="sum")
    index, weight = torch.tensor([[0, 1]]), torch.tensor([[0.5, 2.0]])
    mean = bag(index, per_sample_weights=weight) / weight.sum(1, keepdim=True)
    mean.sum().backward()


@raises(
    "A sparse embedding cannot scale its gradient by frequency",
    cause="``scale_grad_by_freq`` divides the gradient of a row by how often it occurs in the batch. The sparse "
    "gradient has one row for each occurrence, and its kernel does not count them.",
    fix="Drop one of ``sparse=True`` and ``scale_grad_by_freq=True``.",
    see=("cookbook/04_memory/sparse",),
)
def sparse_scaled_by_frequency():
    embedding = nn.Embedding(5, 3, sparse=True, scale_grad_by_freq=True)
    embedding(torch.tensor([0, 0, 1])).sum().backward()


@fixes(sparse_scaled_by_frequency)
def dense_scaled_by_frequency():
    embedding = nn.Embedding(5, 3, scale_grad_by_freq=True)
    embedding(torch.tensor([0, 0, 1])).sum().backward()


@raises(
    "A Python number was used as a tensor",
    cause="""This loss or metric is a Python number already, because of ``.item()``, ``float()`` or a library. A
    number has no ``detach``, ``item``, ``cpu`` or ``requires_grad``, and no graph.""",
    fix="Drop the second call: ``loss.item()`` is detached. If the value may be either, write ``float(value)``, which "
    "takes both. If you want a gradient, keep the tensor and call ``.item()`` for the log only.",
    see=("guide/graph",),
)
def number_detached():
    loss = nn.Linear(3, 1)(torch.randn(4, 3)).square().mean()
    total = loss.item()
    print(total.detach())


@fixes(number_detached)
def loss_detached():
    loss = nn.Linear(3, 1)(torch.randn(4, 3)).square().mean()
    total = loss.detach()
    print(total.item())


@raises(
    "An optimizer of your own got no learning rate",
    cause="A default that is ``required`` in the optimizer's ``__init__`` must be given, by an argument or in each "
    "group of parameters. In older releases, SGD and other optimizers of PyTorch required ``lr`` in this way.",
    fix="Pass the learning rate: ``MyOptimizer(params, lr=0.1)``, or set it in each group.",
    see=("guide/training",),
)
def learning_rate_missing():
    class Plain(torch.optim.Optimizer):
        def __init__(self, params, lr=required):
            super().__init__(params, {"lr": lr})

    Plain([torch.ones(3, requires_grad=True)])


@fixes(learning_rate_missing)
def learning_rate_given():
    class Plain(torch.optim.Optimizer):
        def __init__(self, params, lr=required):
            super().__init__(params, {"lr": lr})

    Plain([torch.ones(3, requires_grad=True)], lr=0.1)


@raises(
    "Gradients were clipped by their largest element, and one of them is empty",
    cause="The largest element of an empty tensor does not exist. A parameter without elements, such as an embedding "
    "with no rows or an empty shard of a parameter, has an empty gradient.",
    fix="Clip only the parameters that have elements: ``[p for p in parameters if p.numel()]``.",
    see=("guide/training",),
)
def empty_clipped():
    weights = [torch.ones(3, requires_grad=True), torch.ones(0, requires_grad=True)]
    sum(weight.sum() for weight in weights).backward()
    nn.utils.clip_grad_norm_(weights, 1.0, norm_type=float("inf"))


@fixes(empty_clipped)
def elements_clipped():
    weights = [torch.ones(3, requires_grad=True), torch.ones(0, requires_grad=True)]
    sum(weight.sum() for weight in weights).backward()
    nn.utils.clip_grad_norm_([weight for weight in weights if weight.numel()], 1.0, norm_type=float("inf"))


@raises(
    "The lengths for pack_padded_sequence are not integers on the CPU",
    cause="``pack_padded_sequence`` cuts the batch by the lengths on the CPU. It takes a list, or a tensor of int64 "
    "with one dimension on the CPU. The usual cause is that the lengths were moved to the GPU together with the batch.",
    fix="Pass ``lengths.cpu()``. The sequences stay on the GPU.",
    see=("guide/training",),
)
def lengths_not_on_cpu():
    x = torch.randn(2, 3, 4, requires_grad=True)
    nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2], device="meta"), batch_first=True)


@fixes(lengths_not_on_cpu)
def lengths_on_cpu():
    x = torch.randn(2, 3, 4, requires_grad=True)
    lengths = torch.tensor([3, 2])
    nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True).data.sum().backward()


@raises(
    "An embedding was given an index that is too large or negative",
    cause="The index is outside of 0 to ``num_embeddings - 1``: the vocabulary of the tokenizer is larger than the "
    "embedding, a token was added, padding is -1, or a sequence is longer than the table of positions. On a GPU, the "
    "same mistake is reported later, as a device-side assertion.",
    fix="Print ``tokens.min()``, ``tokens.max()`` and ``embedding.num_embeddings`` in front of the failing line. Make "
    "the table large enough (``model.resize_token_embeddings(len(tokenizer))``), cut the sequence, or choose a padding "
    "index of the table.",
    see=("guide/training",),
)
def index_too_large():
    embedding = nn.Embedding(5, 3)
    embedding(torch.tensor([1, 5])).sum().backward()


@fixes(index_too_large)
def index_in_table():
    embedding = nn.Embedding(6, 3)
    embedding(torch.tensor([1, 5])).sum().backward()
