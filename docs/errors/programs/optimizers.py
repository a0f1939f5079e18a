"""Optimizers, schedulers and clipping."""

import torch
from docs.errors.programs import fixes, raises
from torch import nn


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
    "An optimizer was given no parameters",
    cause="""The model has no parameters, or they are in a place where it does not look: layers in a plain list or
    dict are not registered. Or an iterator of parameters was already used up, or a filter by ``requires_grad`` left
    nothing.""",
    fix="""Put layers into ``nn.ModuleList`` or ``nn.ModuleDict`` and single tensors into ``nn.Parameter``, and call
    ``model.parameters()`` again for each optimizer.""",
    see=("guide/training",),
)
def optimizer_of_nothing():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(3, 3), nn.Linear(3, 1)]

    torch.optim.SGD(Net().parameters())


@fixes(optimizer_of_nothing)
def optimizer_of_layers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 1)])

    torch.optim.SGD(Net().parameters())


@raises(
    "An optimizer was given a single tensor",
    cause="An optimizer takes an iterable of tensors, or of dicts with a list of them under ``params``.",
    fix="Put the tensor into a list: ``torch.optim.SGD([weight])``.",
    see=("guide/training",),
)
def optimizer_of_tensor():
    weight = torch.randn(3, requires_grad=True)
    torch.optim.SGD(weight)


@fixes(optimizer_of_tensor)
def optimizer_of_list():
    weight = torch.randn(3, requires_grad=True)
    torch.optim.SGD([weight])


@raises(
    "A parameter is in two groups of an optimizer",
    cause="""The optimizer would update this parameter twice in each step. Tied weights, such as an embedding that is
    also the output layer, are one parameter with two names.""",
    fix="Leave the parameters of the special group out of the other group: compare them by ``id``.",
    see=("guide/training",),
)
def parameter_in_two_groups():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    torch.optim.SGD([{"params": model.parameters()}, {"params": model[1].parameters(), "lr": 0.1}])


@fixes(parameter_in_two_groups)
def parameter_in_one_group():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 0.1}])


@raises(
    "LBFGS was stepped without a closure",
    cause="""``LBFGS`` evaluates the loss several times in one step, so it needs a function that computes the loss and
    its gradients.""",
    fix="Put ``zero_grad``, the loss and ``backward`` into a function that returns the loss, and pass it: "
    "``optimizer.step(closure)``.",
    see=("guide/training",),
)
def closure_missing():
    weight = torch.randn(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight])
    weight.square().sum().backward()
    optimizer.step()


@fixes(closure_missing)
def closure_given():
    weight = torch.randn(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight])

    def closure():
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)


@raises(
    "An optimizer got sparse gradients that it does not support",
    cause="``nn.Embedding(..., sparse=True)`` gives gradients that hold the looked-up rows only. ``SparseAdam``, "
    "``Adagrad`` and ``SGD`` take them; ``Adam``, ``AdamW`` and ``RMSprop`` do not.",
    fix="""Give the embeddings a separate optimizer: ``torch.optim.SparseAdam(embedding.parameters())``, or drop
    ``sparse=True``.""",
    see=("guide/training",),
)
def sparse_for_adam():
    embedding = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.Adam(embedding.parameters())
    embedding(torch.tensor([1, 4])).sum().backward()
    optimizer.step()


@fixes(sparse_for_adam)
def sparse_for_sparse_adam():
    embedding = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(embedding.parameters())
    embedding(torch.tensor([1, 4])).sum().backward()
    optimizer.step()


@raises(
    "SparseAdam got a dense gradient",
    cause="""``SparseAdam`` accepts only sparse gradients, such as those of ``nn.Embedding(..., sparse=True)``. Here
    another layer has a dense gradient, or the embedding's weight is also used elsewhere (tied weights), which makes
    its gradient dense.""",
    fix="Give the other layers a separate optimizer, such as ``torch.optim.Adam``. If a layer shares the weight of the "
    "embedding, leave out ``sparse=True``, and train the weight with Adam.",
    see=("guide/training",),
)
def dense_for_sparse_adam():
    model = nn.Sequential(nn.Embedding(10, 3, sparse=True), nn.Linear(3, 1))
    optimizer = torch.optim.SparseAdam(model.parameters())
    model(torch.tensor([1, 4])).sum().backward()
    optimizer.step()


@fixes(dense_for_sparse_adam)
def dense_for_adam():
    model = nn.Sequential(nn.Embedding(10, 3, sparse=True), nn.Linear(3, 1))
    optimizers = torch.optim.SparseAdam(model[0].parameters()), torch.optim.Adam(model[1].parameters())
    model(torch.tensor([1, 4])).sum().backward()
    for optimizer in optimizers:
        optimizer.step()


@raises(
    "SparseAdam was given a parameter that is sparse itself",
    cause="""``SparseAdam`` takes dense parameters whose gradients are sparse, such as the weight of
    ``nn.Embedding(..., sparse=True)``. Here the parameter itself is a sparse tensor.""",
    fix="Keep the values as a dense parameter, and build the sparse tensor from them in ``forward``: "
    "``torch.sparse_coo_tensor(indices, self.values, size)``. Adam and AdamW then train the values.",
    see=("guide/training",),
)
def sparse_parameter():
    indices = torch.tensor([[0, 2], [1, 0]])
    weight = torch.sparse_coo_tensor(indices, torch.randn(2), (3, 3)).requires_grad_()
    torch.optim.SparseAdam([weight])


@fixes(sparse_parameter)
def sparse_from_values():
    indices = torch.tensor([[0, 2], [1, 0]])
    values = nn.Parameter(torch.randn(2))
    optimizer = torch.optim.Adam([values])
    weight = torch.sparse_coo_tensor(indices, values, (3, 3))
    (weight @ torch.randn(3, 1)).sum().backward()
    optimizer.step()


@raises(
    "A sparse gradient met weight decay",
    cause="""Weight decay adds the whole dense weight to the gradient, so the gradient of ``nn.Embedding(...,
    sparse=True)`` cannot stay sparse.""",
    fix="Set ``weight_decay=0`` for the embeddings, in a separate parameter group, or drop ``sparse=True``.",
    see=("guide/training",),
)
def sparse_with_decay():
    embedding = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SGD(embedding.parameters(), weight_decay=0.01)
    embedding(torch.tensor([1, 4])).sum().backward()
    optimizer.step()


@fixes(sparse_with_decay)
def sparse_without_decay():
    embedding = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SGD(embedding.parameters(), weight_decay=0)
    embedding(torch.tensor([1, 4])).sum().backward()
    optimizer.step()


@raises(
    "A sparse gradient was clipped",
    cause="""``nn.Embedding(..., sparse=True)`` gives sparse gradients, and the clipping functions have no kernel for
    sparse tensors.""",
    fix="Clip the dense parameters only, and the values of the sparse ones by hand: "
    "``p.grad = p.grad.coalesce()``, then ``p.grad.values().clamp_(-1, 1)``. Otherwise drop ``sparse=True``.",
    see=("cookbook/02_changing_the_gradient/clipping",),
)
def sparse_clipped():
    embedding = nn.Embedding(10, 3, sparse=True)
    embedding(torch.tensor([1, 4])).sum().backward()
    nn.utils.clip_grad_value_(embedding.parameters(), 1.0)


@fixes(sparse_clipped)
def sparse_values_clipped():
    embedding = nn.Embedding(10, 3, sparse=True)
    embedding(torch.tensor([1, 4])).sum().backward()
    embedding.weight.grad = embedding.weight.grad.coalesce()
    embedding.weight.grad.values().clamp_(-1, 1)


@raises(
    "The norm of the gradients is nan or infinite",
    cause="""At least one gradient is not finite, and ``error_if_nonfinite=True`` raises in this case. Scaling by the
    norm would make all gradients nan or zero.""",
    fix="Skip the step in this case, and look for the operation under ``torch.autograd.set_detect_anomaly(True)``. "
    "With a GradScaler, unscale first and leave the skipping to ``scaler.step``, without ``error_if_nonfinite``.",
    see=("guide/nonfinite", "cookbook/02_changing_the_gradient/clipping"),
)
def norm_not_finite():
    weight = torch.zeros(3, requires_grad=True)
    weight.sqrt().sum().backward()
    nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)


@fixes(norm_not_finite)
def norm_finite():
    weight = torch.zeros(3, requires_grad=True)
    (weight + 1e-6).sqrt().sum().backward()
    nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)


@raises(
    "LBFGS was given several parameter groups",
    cause="""LBFGS treats all parameters as one vector with one step size, so it does not accept groups with different
    options.""",
    fix="Pass one list of parameters: ``LBFGS(model.parameters(), lr=0.1)``. For several step sizes, use another "
    "optimizer, or scale the parameters in the model.",
    see=("guide/training",),
)
def lbfgs_with_groups():
    model = nn.Linear(3, 1)
    torch.optim.LBFGS([{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 1.0}])


@fixes(lbfgs_with_groups)
def lbfgs_with_list():
    model = nn.Linear(3, 1)
    torch.optim.LBFGS(model.parameters(), lr=0.1)


@raises(
    "The closure of LBFGS returned nothing",
    cause="LBFGS calls the closure for the value of the loss, several times in a step. This one returns ``None``: the "
    "``return`` is missing, or it returns ``loss.backward()``, which is ``None``.",
    fix="End the closure with ``return loss``, after ``optimizer.zero_grad()`` and ``loss.backward()``.",
    see=("guide/training",),
)
def closure_returns_none():
    model, x = nn.Linear(3, 1), torch.randn(4, 3)
    optimizer = torch.optim.LBFGS(model.parameters())

    def closure():
        optimizer.zero_grad()
        return model(x).square().mean().backward()

    optimizer.step(closure)


@fixes(closure_returns_none)
def closure_returns_loss():
    model, x = nn.Linear(3, 1), torch.randn(4, 3)
    optimizer = torch.optim.LBFGS(model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)


@raises(
    "A parameter is twice in one group of an optimizer",
    cause="The list has the same tensor twice: tied weights, or a layer that is listed by two modules. An optimizer "
    "would update it twice in each step.",
    fix="Make the list unique: ``list(dict.fromkeys(parameters))``. ``model.parameters()`` does so by itself.",
    see=("guide/training",),
    warning=True,
)
def parameter_twice_in_group():
    encoder, decoder = nn.Linear(3, 3), nn.Linear(3, 3)
    decoder.weight = encoder.weight
    torch.optim.SGD([{"params": [*encoder.parameters(), *decoder.parameters()]}], lr=0.1)


@fixes(parameter_twice_in_group)
def parameter_once_in_group():
    encoder, decoder = nn.Linear(3, 3), nn.Linear(3, 3)
    decoder.weight = encoder.weight
    torch.optim.SGD(list(dict.fromkeys([*encoder.parameters(), *decoder.parameters()])), lr=0.1)


@raises(
    "The state of an optimizer was loaded into one with other parameters",
    cause="""The state lists parameters by position, in groups. This optimizer has groups of other sizes: layers were
    added, frozen or left out since the state was saved, or the parameters are grouped differently.""",
    fix="Build the optimizer from the same parameters in the same order as when it was saved, load the state, and then "
    "add what is new with ``optimizer.add_param_group``. If the model has changed, start with a fresh optimizer and "
    "load only the weights.",
    see=("guide/training",),
)
def optimizer_state_of_other_size():
    model = nn.Linear(3, 1)
    state = torch.optim.Adam(model.parameters()).state_dict()
    model.bias.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
    optimizer.load_state_dict(state)


@fixes(optimizer_state_of_other_size)
def optimizer_state_of_same_size():
    model = nn.Linear(3, 1)
    state = torch.optim.Adam(model.parameters()).state_dict()
    model.bias.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.load_state_dict(state)


@raises(
    "The state of an optimizer has the shapes of another model",
    cause="Adam and SGD with momentum keep averages that have the shape of each parameter. The state was saved for a "
    "model with other sizes, or a parameter was replaced by one of another size after the first step. "
    "``load_state_dict`` does not compare the shapes, so that the first ``step()`` fails.",
    fix="Start with a fresh optimizer, and load only the weights that still fit. To keep the averages of the other "
    "layers, delete the state of the changed parameter: ``optimizer.state.pop(parameter)``.",
    see=("guide/training",),
)
def optimizer_state_of_other_shape():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    wider = nn.Linear(5, 1)
    resumed = torch.optim.Adam(wider.parameters())
    resumed.load_state_dict(optimizer.state_dict())
    wider(torch.randn(4, 5)).sum().backward()
    resumed.step()


@fixes(optimizer_state_of_other_shape)
def optimizer_state_of_same_shape():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    wider = nn.Linear(5, 1)
    resumed = torch.optim.Adam(wider.parameters())
    resumed.load_state_dict(optimizer.state_dict())
    resumed.state.pop(wider.weight)
    wider(torch.randn(4, 5)).sum().backward()
    resumed.step()


@raises(
    "The state of an optimizer was loaded into one with another number of groups",
    cause="""The saved optimizer had one group of parameters and this one has two, or the other way round: for example
    with and without separate weight decay.""",
    fix="""Create the groups as they were when the state was saved. If you do not want that, start with a fresh
    optimizer and load only the weights of the model.""",
    see=("guide/training",),
)
def optimizer_state_of_other_groups():
    model = nn.Linear(3, 1)
    state = torch.optim.Adam(model.parameters()).state_dict()
    groups = [{"params": [model.weight]}, {"params": [model.bias], "weight_decay": 0.0}]
    torch.optim.Adam(groups).load_state_dict(state)


@fixes(optimizer_state_of_other_groups)
def optimizer_state_of_same_groups():
    model = nn.Linear(3, 1)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "weight_decay": 0.0}]
    state = torch.optim.Adam(groups).state_dict()
    torch.optim.Adam(groups).load_state_dict(state)


@raises(
    "A generator of parameters was used up before gradients were clipped",
    cause="""``model.parameters()`` is a generator, so your code can run through it only once. The optimizer has used
    it up. Clipping therefore gets nothing and clips nothing, in every step.""",
    fix="Keep a list, ``parameters = list(model.parameters())``, or call ``model.parameters()`` again where you clip.",
    see=("cookbook/02_changing_the_gradient/clipping",),
    warning=True,
)
def parameters_used_up():
    model = nn.Linear(3, 1)
    parameters = model.parameters()
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    model(torch.randn(4, 3)).sum().backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()


@fixes(parameters_used_up)
def parameters_in_list():
    model = nn.Linear(3, 1)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    model(torch.randn(4, 3)).sum().backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()


@raises(
    "The dtype of a parameter was changed after the optimizer had stepped",
    cause="""Adam and other optimizers keep averages of the gradients, in the dtype that the parameter had at the
    first step. ``model.half()``, ``model.to(torch.bfloat16)`` or ``model.float()`` changed the parameters afterwards,
    but not the averages.""",
    fix="Convert the model before you make the optimizer. To train in half precision, keep the parameters in "
    "``float32`` and use ``torch.autocast``. After a conversion, load the state again: "
    "``optimizer.load_state_dict(optimizer.state_dict())`` casts it to the dtype of the parameters.",
    see=("cookbook/07_compile/mixed_precision",),
)
def dtype_changed_after_step():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    model.to(torch.bfloat16)
    model(torch.randn(4, 3, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()


@fixes(dtype_changed_after_step)
def dtype_changed_before_step():
    model = nn.Linear(3, 1)
    model.to(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    model(torch.randn(4, 3, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()


@raises(
    "An optimizer was given a method instead of what it returns",
    cause="""``model.parameters`` without parentheses is the method itself, but the optimizer needs the parameters
    that the method returns.""",
    fix="Call it: ``torch.optim.Adam(model.parameters())``.",
    see=("guide/training",),
)
def optimizer_of_method():
    model = nn.Linear(3, 1)
    torch.optim.Adam(model.parameters)


@fixes(optimizer_of_method)
def optimizer_of_parameters():
    model = nn.Linear(3, 1)
    torch.optim.Adam(model.parameters())


@raises(
    "Gradient clipping was given a module instead of its parameters",
    cause="``clip_grad_norm_`` and ``clip_grad_value_`` take tensors. A module is not a list of tensors.",
    fix="Pass the parameters: ``clip_grad_norm_(model.parameters(), 1.0)``.",
    see=("cookbook/02_changing_the_gradient/clipping",),
)
def clipped_module():
    model = nn.Linear(3, 1)
    model(torch.randn(4, 3)).sum().backward()
    nn.utils.clip_grad_norm_(model, 1.0)


@fixes(clipped_module)
def clipped_parameters():
    model = nn.Linear(3, 1)
    model(torch.randn(4, 3)).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@raises(
    "A scheduler was resumed for an optimizer that has no initial learning rate",
    cause="""``last_epoch`` tells the scheduler that the training is resumed, so it looks for ``initial_lr``, which
    the first run stored in the optimizer. This optimizer is new, or its state was not loaded.""",
    fix='Load the optimizer\'s state first, ``optimizer.load_state_dict(checkpoint["optimizer"])``. Or make the '
    'scheduler without ``last_epoch``, and load its own state: ``scheduler.load_state_dict(checkpoint["scheduler"])``.',
    see=("guide/training",),
)
def scheduler_resumed():
    optimizer = torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, last_epoch=3)


@fixes(scheduler_resumed)
def scheduler_loaded():
    optimizer = torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    scheduler.load_state_dict({**scheduler.state_dict(), "last_epoch": 3})


@raises(
    "Gradient clipping was given the optimizer's parameter groups",
    cause="``clip_grad_norm_`` reads ``.grad`` of each element that it gets. ``optimizer.param_groups`` is a list of "
    "dictionaries with options, and the tensors are under their key ``'params'``.",
    fix="Pass tensors: ``clip_grad_norm_(model.parameters(), 1.0)``, or "
    "``[p for group in optimizer.param_groups for p in group['params']]``.",
    see=("guide/training",),
)
def clipped_groups():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 3)).square().mean().backward()
    nn.utils.clip_grad_norm_(optimizer.param_groups, 1.0)


@fixes(clipped_groups)
def clipped_parameters_of_groups():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 3)).square().mean().backward()
    nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)


@raises(
    "The norms of no gradients were stacked",
    cause="A total norm is computed from a list of the norms of all gradients, and this list is empty: no parameter "
    "has a gradient. ``backward`` was not called, ``zero_grad`` ran after it, all parameters are frozen, the loss "
    "does not depend on them, or the generator ``model.parameters()`` had been used up before.",
    fix="Print ``[name for name, p in model.named_parameters() if p.grad is not None]`` in front of this line. If it "
    "is empty, clip between ``backward()`` and ``step()``, and look for ``detach()``, ``.data`` and ``no_grad`` "
    "between the parameters and the loss. ``torch.nn.utils.clip_grad_norm_`` of torch 1.7 and newer returns 0 for no "
    "gradients.",
    see=("guide/training", "guide/graph"),
)
def norm_of_nothing():
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).square().mean()
    norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    total = torch.stack(norms).norm()
    loss.backward()
    print(total)


@fixes(norm_of_nothing)
def norm_after_backward():
    model = nn.Linear(3, 1)
    loss = model(torch.randn(4, 3)).square().mean()
    loss.backward()
    norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    total = torch.stack(norms).norm()
    print(total)


@raises(
    "OneCycleLR was stepped more often than it was told",
    cause="""``OneCycleLR`` computes its whole curve from ``total_steps`` (or ``epochs * steps_per_epoch``) and has no
    learning rate after its end. Usual reasons: ``steps_per_epoch`` rounds the last batch away, the training was
    resumed for more epochs, or the scheduler is stepped in each batch although it was built for epochs.""",
    fix="Give the number of calls of ``scheduler.step()``: ``total_steps=epochs * len(loader)``, divided by the "
    "number of accumulated batches if you step once for several. Build a new scheduler when you train longer.",
    see=("guide/training",),
)
def scheduler_used_up():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    for _ in range(12):
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
        scheduler.step()


@fixes(scheduler_used_up)
def scheduler_long_enough():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=12)
    for _ in range(12):
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
        scheduler.step()


@raises(
    "ReduceLROnPlateau was stepped without the value that it watches",
    cause="""``ReduceLROnPlateau`` lowers the rate when a loss stops falling, so its ``step`` takes that loss. The
    ``step`` of other schedulers takes no argument.""",
    fix="Call ``scheduler.step(validation_loss)`` once for each epoch. In Lightning, return ``{'scheduler': scheduler, "
    "'monitor': 'val_loss'}`` from ``configure_optimizers``.",
    see=("guide/training",),
)
def plateau_without_loss():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
    scheduler.step()


@fixes(plateau_without_loss)
def plateau_with_loss():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    loss = model(torch.randn(4, 3)).square().mean()
    loss.backward()
    optimizer.step()
    scheduler.step(loss.item())


@raises(
    "A scheduler was given something that is not an optimizer",
    cause="Schedulers change the rates in ``optimizer.param_groups`` and take a ``torch.optim.Optimizer`` as their "
    "first argument. This one got a model, the parameters, or a wrapper that does not inherit from ``Optimizer``.",
    fix="""Build the scheduler with the optimizer: ``StepLR(optimizer, step_size=10)``. If a library wraps your
    optimizer, pass the inner one (``wrapped.optimizer``), or use the library's own scheduler.""",
    see=("guide/training",),
)
def scheduler_of_model():
    model = nn.Linear(3, 1)
    torch.optim.lr_scheduler.StepLR(model, step_size=10)


@fixes(scheduler_of_model)
def scheduler_of_optimizer():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)


@raises(
    "The learning rate is a tensor, and the optimizer updates all parameters in one call",
    cause="The implementation of Adam and AdamW that updates all parameters together reads the rate as a number, "
    "except with ``capturable=True``, where the rate stays on the GPU.",
    fix="Pass a number: ``lr=float(rate)``. If the rate should be a tensor (for ``torch.compile`` or CUDA graphs), "
    "pass ``capturable=True`` on a GPU, or ``foreach=False``.",
    see=("guide/training",),
)
def rate_is_tensor():
    model = nn.Linear(3, 1)
    torch.optim.Adam(model.parameters(), lr=torch.tensor(1e-3), foreach=True)


@fixes(rate_is_tensor)
def rate_is_number():
    model = nn.Linear(3, 1)
    torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)


@raises(
    "A fused optimizer was given parameters that its kernel does not support",
    cause="""``fused=True`` updates all parameters in one kernel. This kernel needs floating-point parameters on a
    device that supports it. One parameter here is on another device (``meta``, or still on the CPU in older
    releases), is complex, or holds integers.""",
    fix="""Move the model to its device before you build the optimizer, or leave ``fused`` out. The end of the message
    names the dtype and the device of this parameter.""",
    see=("guide/training",),
)
def fused_on_meta():
    with torch.device("meta"):
        model = nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    model(torch.randn(4, 3, device="meta")).square().mean().backward()
    optimizer.step()


@fixes(fused_on_meta)
def fused_after_moving():
    with torch.device("meta"):
        model = nn.Linear(3, 1)
    model = model.to_empty(device="cpu")
    model.reset_parameters()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()


@raises(
    "The optimizer was given a set of parameters",
    cause="""An optimizer saves its state by the position of each parameter. The order of a set changes from run to
    run, so a saved state would be loaded into the wrong parameters.""",
    fix="""Pass a list: ``list(model.parameters())``. To remove duplicates and keep the order, use
    ``dict.fromkeys(parameters)``.""",
    see=("guide/training",),
)
def parameters_in_set():
    encoder, decoder = nn.Linear(3, 3), nn.Linear(3, 3)
    torch.optim.SGD([{"params": {*encoder.parameters(), *decoder.parameters()}}], lr=0.1)


@fixes(parameters_in_set)
def parameters_listed():
    encoder, decoder = nn.Linear(3, 3), nn.Linear(3, 3)
    torch.optim.SGD([{"params": [*encoder.parameters(), *decoder.parameters()]}], lr=0.1)


@raises(
    "scheduler.step was given the number of the epoch",
    cause="Schedulers count their calls themselves. Setting the epoch by hand uses another formula, which some "
    "schedulers lack, and is deprecated.",
    fix="Call ``scheduler.step()`` without an argument. To resume, save ``scheduler.state_dict()`` and load it. The "
    "warning is harmless if the numbers grow by one in each call.",
    see=("guide/training",),
    warning=True,
)
def epoch_given():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    for epoch in range(3):
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
        scheduler.step(epoch)


@fixes(epoch_given)
def epoch_counted():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    for _ in range(3):
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
        scheduler.step()


@raises(
    "optimizer.step was replaced after the scheduler was built",
    cause="A scheduler counts the calls of ``optimizer.step`` through a wrapper that it puts around it. Something has "
    "replaced ``step`` since: DeepSpeed, apex, Accelerate, a profiler, or a second patch. The scheduler then cannot "
    "tell whether ``step`` runs first.",
    fix="Build the scheduler after everything that wraps or patches the optimizer, and observe steps with "
    "``optimizer.register_step_post_hook``. If the rates are as you expect them, the "
    "warning is harmless.",
    see=("guide/training",),
    warning=True,
)
def step_replaced():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    optimizer.step = lambda: None
    optimizer.step()
    scheduler.step()


@fixes(step_replaced)
def step_hooked():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    optimizer.register_step_post_hook(lambda *_: print("stepped"))
    optimizer.step()
    scheduler.step()


@raises(
    "The former name of clip_grad_norm_ was called",
    cause="``clip_grad_norm`` was renamed to ``clip_grad_norm_``, because it changes the gradients in place.",
    fix="Call ``torch.nn.utils.clip_grad_norm_``. Both do the same, so the warning is harmless.",
    see=("guide/training",),
    warning=True,
)
def clipped_by_former_name():
    model = nn.Linear(3, 1)
    model(torch.randn(4, 3)).square().mean().backward()
    nn.utils.clip_grad_norm(model.parameters(), 1.0)


@fixes(clipped_by_former_name)
def clipped_by_new_name():
    model = nn.Linear(3, 1)
    model(torch.randn(4, 3)).square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@raises(
    "SGD was asked for Nesterov momentum without a momentum",
    cause="Nesterov's method corrects the momentum step, so it needs a momentum larger than 0 and no dampening.",
    fix="Pass a momentum: ``SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)``.",
    see=("guide/training",),
)
def nesterov_without_momentum():
    torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1, nesterov=True)


@fixes(nesterov_without_momentum)
def nesterov_with_momentum():
    torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1, momentum=0.9, nesterov=True)


@raises(
    "An optimizer got a learning rate that is negative or no number",
    cause="""The rate must be a number that is not negative. Usually it came from a search over exponents, from a
    schedule that went below zero, or as a string from a configuration file.""",
    fix="Print the rate where it is made: ``lr=float(config['lr'])``. To go uphill, pass ``maximize=True`` to the "
    "optimizer.",
    see=("guide/training",),
)
def rate_negative():
    torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=-0.1)


@fixes(rate_negative)
def rate_for_ascent():
    torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1, maximize=True)


@raises(
    "The rate of a scheduler was read with get_lr",
    cause="``get_lr`` computes the next rates from the current ones, so its result is right only inside ``step``.",
    fix="Call ``scheduler.get_last_lr()``, or read ``optimizer.param_groups[0]['lr']``.",
    see=("guide/training",),
    warning=True,
)
def rate_read_by_get_lr():
    optimizer = torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    print(scheduler.get_lr())


@fixes(rate_read_by_get_lr)
def rate_read_by_last_lr():
    optimizer = torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    print(scheduler.get_last_lr())


@raises(
    "An optimizer with capturable=True has parameters or step counts on the CPU",
    cause="""``capturable=True`` makes the step part of a CUDA graph, so parameters and step counts must be on the
    GPU. The option is stored in the parameter groups, so ``load_state_dict`` copies it from a checkpoint.""",
    fix="Set ``capturable=False`` in each group: ``for g in optimizer.param_groups: g['capturable'] = False``. If the "
    "step is captured, move the model to the GPU before you make the optimizer, and the step counts as well: "
    "``for s in optimizer.state.values(): s['step'] = s['step'].cuda()``.",
    see=("guide/training",),
)
def capturable_on_cpu():
    weight = nn.Parameter(torch.randn(3))
    optimizer = torch.optim.Adam([weight], capturable=True)
    weight.sum().backward()
    optimizer.step()


@fixes(capturable_on_cpu)
def not_capturable_on_cpu():
    weight = nn.Parameter(torch.randn(3))
    optimizer = torch.optim.Adam([weight])
    weight.sum().backward()
    optimizer.step()


@raises(
    "A differentiable optimizer was asked for a fused or foreach step",
    cause="``differentiable=True`` records the step, so that it can be differentiated. The fused and the foreach "
    "variants of a step have no derivative.",
    fix="Leave out ``fused=True`` and ``foreach=True``; with ``differentiable=True`` the optimizer then takes the "
    "plain loop. If you do not differentiate through the step, leave out ``differentiable=True``.",
    see=("guide/training", "cookbook/05_higher_order/double_backward"),
)
def differentiable_fused():
    weight = nn.Parameter(torch.randn(3))
    torch.optim.Adam([weight], fused=True, differentiable=True)


@fixes(differentiable_fused)
def differentiable_alone():
    weight = nn.Parameter(torch.randn(3))
    torch.optim.Adam([weight], differentiable=True)


@raises(
    "Muon was given a parameter that is not a matrix",
    cause="Muon orthogonalizes the update of a matrix. A bias, the weight of a norm or of a convolution has another "
    "number of dimensions.",
    fix="Give Muon the matrices of the hidden layers only, and all other parameters to a second optimizer, such as "
    "``AdamW``: filter with ``p.ndim == 2``.",
    see=("guide/training",),
)
def muon_of_vector():
    model = nn.Linear(3, 3)
    torch.optim.Muon(model.parameters(), lr=1e-3)


@fixes(muon_of_vector)
def muon_of_matrices():
    model = nn.Linear(3, 3)
    torch.optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=1e-3)
    torch.optim.AdamW([p for p in model.parameters() if p.ndim != 2], lr=1e-3)


@raises(
    "An optimizer has no update for complex parameters",
    cause="Adafactor, Muon and SparseAdam were written for real parameters. Their update has no meaning for a complex "
    "gradient.",
    fix="Keep the parameter as two real ones, ``nn.Parameter(torch.view_as_real(w))``, and call "
    "``torch.view_as_complex`` in ``forward``. Or use ``Adam`` or ``SGD``, which take complex parameters.",
    see=("cookbook/05_higher_order/complex_numbers",),
)
def adafactor_of_complex():
    weight = nn.Parameter(torch.randn(3, 3, dtype=torch.complex64))
    optimizer = torch.optim.Adafactor([weight])
    weight.abs().square().sum().backward()
    optimizer.step()


@fixes(adafactor_of_complex)
def adafactor_of_real_pairs():
    weight = nn.Parameter(torch.randn(3, 3, 2))
    optimizer = torch.optim.Adafactor([weight])
    torch.view_as_complex(weight).abs().square().sum().backward()
    optimizer.step()


@raises(
    "The options of an optimizer are tensors only in part, or have several elements",
    cause="``lr`` and ``betas`` may be tensors, for example to change them without recompiling, or to differentiate "
    "them. Each must have one element, and the two betas must be of one kind.",
    fix="Give both betas as floats, ``betas=(0.9, 0.999)``, or both as tensors of one element. A learning rate for "
    "each parameter goes into parameter groups, not into one tensor.",
    see=("guide/training",),
)
def betas_of_two_kinds():
    model = nn.Linear(3, 1)
    torch.optim.Adam(model.parameters(), betas=(torch.tensor(0.9), 0.999))


@fixes(betas_of_two_kinds)
def betas_of_one_kind():
    model = nn.Linear(3, 1)
    torch.optim.Adam(model.parameters(), betas=(0.9, 0.999))


@raises(
    "An option of an optimizer is outside of its range",
    cause="The optimizer checks its options when it is made. A negative momentum, a decay of 1 or more, or a tuple in "
    "the wrong order would make the training diverge.",
    fix="""Compare the option that the message names with the documentation. Usually two options were swapped, a
    configuration gave a string or a percentage, or a schedule returned a negative number.""",
    see=("guide/training",),
)
def momentum_negative():
    model = nn.Linear(3, 1)
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=-0.9)


@fixes(momentum_negative)
def momentum_positive():
    model = nn.Linear(3, 1)
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@raises(
    "An optimizer was told to be fused and foreach at once",
    cause="``fused=True`` updates all parameters in one kernel, ``foreach=True`` in one kernel for each operation. "
    "They are two implementations of the same step.",
    fix="Pass one of them, or none: by default, PyTorch chooses.",
    see=("guide/training",),
)
def fused_and_foreach():
    model = nn.Linear(3, 1)
    torch.optim.Adam(model.parameters(), fused=True, foreach=True)


@fixes(fused_and_foreach)
def only_foreach():
    model = nn.Linear(3, 1)
    torch.optim.Adam(model.parameters(), foreach=True)


@raises(
    "add_param_group was given parameters instead of a group",
    cause="A group is a dictionary with the parameters under ``params``, and options that differ from the defaults.",
    fix='Write ``optimizer.add_param_group({"params": module.parameters(), "lr": 1e-4})``.',
    see=("guide/training",),
)
def group_is_list():
    model, head = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.add_param_group(list(head.parameters()))


@fixes(group_is_list)
def group_is_dictionary():
    model, head = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.add_param_group({"params": head.parameters()})


@raises(
    "Only some parameters of an optimizer have names",
    cause="An optimizer takes ``model.named_parameters()`` or ``model.parameters()``, and then either all parameters "
    "have a name or none, in all groups.",
    fix="Give all groups in the same form: ``named_parameters()`` in each, or ``parameters()`` in each.",
    see=("guide/training",),
)
def names_in_one_group():
    model, head = nn.Linear(3, 3), nn.Linear(3, 1)
    torch.optim.SGD([{"params": model.named_parameters()}, {"params": head.parameters()}], lr=0.1)


@fixes(names_in_one_group)
def names_in_all_groups():
    model, head = nn.Linear(3, 3), nn.Linear(3, 1)
    torch.optim.SGD([{"params": model.named_parameters()}, {"params": head.named_parameters()}], lr=0.1)


@raises(
    "LBFGS was given an unknown line search",
    cause='``torch.optim.LBFGS`` has ``line_search_fn="strong_wolfe"``, or a fixed step without a line search.',
    fix='Pass ``line_search_fn="strong_wolfe"``, or ``None`` with a small ``lr``.',
    see=("guide/training",),
)
def line_search_unknown():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="armijo")

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 3)).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)


@fixes(line_search_unknown)
def line_search_known():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 3)).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)


@raises(
    "OneCycleLR was not told how long the training is",
    cause="The cycle ends with the training, so the scheduler needs the number of its steps.",
    fix="Pass ``total_steps``, or both ``epochs`` and ``steps_per_epoch=len(loader)``. With accumulation, count the "
    "calls of ``optimizer.step()``.",
    see=("guide/training",),
)
def one_cycle_without_length():
    optimizer = torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1)
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, epochs=3)


@fixes(one_cycle_without_length)
def one_cycle_with_length():
    optimizer = torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1)
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, epochs=3, steps_per_epoch=10)


@raises(
    "A scheduler has another number of values than the optimizer has groups",
    cause="""A list needs one function or one number for each parameter group. The optimizer has another number of
    groups, for example one, or one more after ``add_param_group``.""",
    fix="Give one value for each of ``optimizer.param_groups``, or a single one for all of them.",
    see=("guide/training",),
)
def lambdas_too_many():
    optimizer = torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda epoch: 1.0, lambda epoch: 0.5])


@fixes(lambdas_too_many)
def lambda_for_all():
    optimizer = torch.optim.SGD(nn.Linear(3, 1).parameters(), lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5)


@raises(
    "The step count of a differentiable optimizer requires grad",
    cause="With ``differentiable=True`` you may differentiate through the update, but not with respect to the number "
    "of steps.",
    fix='Call ``state["step"].requires_grad_(False)``, or load the state with detached tensors. Learning rate and '
    "gradients may require grad.",
    see=("cookbook/05_higher_order/maml",),
)
def step_requires_grad():
    weight = torch.ones(3, requires_grad=True).clone()
    optimizer = torch.optim.Adam([weight], differentiable=True)
    weight.grad = torch.ones(3)
    optimizer.step()
    for state in optimizer.state.values():
        for value in state.values():
            value.requires_grad_()
    optimizer.step()


@fixes(step_requires_grad)
def step_does_not_require_grad():
    weight = torch.ones(3, requires_grad=True).clone()
    optimizer = torch.optim.Adam([weight], differentiable=True)
    weight.grad = torch.ones(3, requires_grad=True)
    optimizer.step()
    optimizer.step()
