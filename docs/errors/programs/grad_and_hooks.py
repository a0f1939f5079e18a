"""Hooks, .grad and requires_grad."""

import torch
from docs.errors.programs import fixes, raises
from torch import nn
from torch.autograd.graph import register_multi_grad_hook


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
def grad_removed():
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
    "The gradient of a parameter is None, because the loss does not use the parameter",
    cause="``backward`` fills ``.grad`` of the leaves that the loss depends on. This parameter is frozen, its layer "
    "was not called, its output was ignored or detached, or ``backward`` has not run yet; since torch 2.0, "
    "``zero_grad`` sets gradients to ``None`` as well.",
    fix="Skip such parameters: ``if p.grad is not None:``, or use ``clip_grad_norm_``, which does. If the parameter "
    "should train, find where its path to the loss ends: print ``requires_grad`` and ``grad_fn`` along the way.",
    see=("guide/graph", "guide/training"),
)
def grad_is_none():
    model = nn.ModuleDict({"used": nn.Linear(3, 1), "unused": nn.Linear(3, 1)})
    model["used"](torch.randn(4, 3)).sum().backward()
    for parameter in model.parameters():
        parameter.grad.data.clamp_(-1, 1)


@fixes(grad_is_none)
def grad_is_skipped():
    model = nn.ModuleDict({"used": nn.Linear(3, 1), "unused": nn.Linear(3, 1)})
    model["used"](torch.randn(4, 3)).sum().backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.clamp_(-1, 1)


@raises(
    "The gradient of an input is None, because the tensor is not a leaf",
    cause="``backward`` fills ``.grad`` of leaves only. ``x.to(device)``, ``x.cuda()``, ``x.double()``, "
    "``x.view(...)`` and arithmetic return a computed tensor, so the gradient is in the tensor they were called on.",
    fix="Set ``requires_grad_()`` last: ``x = x.to(device).detach().requires_grad_()``, right before the forward. To "
    "keep the gradient of a computed tensor, call ``x.retain_grad()`` before ``backward``.",
    see=("guide/graph",),
)
def grad_of_converted():
    image = torch.randn(1, 3, requires_grad=True)
    image = image.to(torch.float64)
    nn.Linear(3, 1, dtype=torch.float64)(image).sum().backward()
    image.grad.zero_()


@fixes(grad_of_converted)
def grad_of_leaf():
    image = torch.randn(1, 3)
    image = image.to(torch.float64).requires_grad_()
    nn.Linear(3, 1, dtype=torch.float64)(image).sum().backward()
    image.grad.zero_()


@raises(
    "A weight was replaced by its update, so its gradient is None in the next step",
    cause="""``w = w - lr * w.grad`` makes a new, computed tensor and calls it ``w``. The new tensor is not a leaf, so
    the next ``backward`` leaves its ``.grad`` at ``None``.""",
    fix="Change the weight in place, without recording: ``with torch.no_grad(): w -= lr * w.grad``, then "
    "``w.grad = None``. If the gradient is ``None`` in the first step already, ``backward`` did not reach the weight.",
    see=("guide/training", "guide/grad_modes"),
)
def weight_replaced():
    weight = torch.randn(3, requires_grad=True)
    for _ in range(2):
        weight.square().sum().backward()
        weight = weight - 0.1 * weight.grad


@fixes(weight_replaced)
def weight_updated():
    weight = torch.randn(3, requires_grad=True)
    for _ in range(2):
        weight.square().sum().backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None


@raises(
    "requires_grad was called like a function",
    cause="""``requires_grad`` is an attribute with the value ``True`` or ``False``. The method that sets it has an
    underscore: ``requires_grad_``.""",
    fix="Write ``x.requires_grad_(True)``, or ``x.requires_grad = True``.",
    see=("guide/graph",),
)
def requires_grad_called():
    x = torch.randn(3)
    x.requires_grad(True)


@fixes(requires_grad_called)
def requires_grad_set():
    x = torch.randn(3)
    x.requires_grad_(True)
