"""torch.func, vmap and forward mode."""

import torch
import torch.nn.functional as F
from docs.errors.programs import fixes, raises
from functorch import make_functional
from torch import nn
from torch.autograd import Function
from torch.autograd import forward_ad as fwAD
from torch.func import (
    functional_call,
    functionalize,
    grad,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils.checkpoint import checkpoint


@raises(
    "A Function without setup_context was used under torch.func",
    cause="""``grad``, ``vjp``, ``jvp``, ``jacrev``, ``jacfwd``, ``hessian`` and ``vmap`` call ``forward`` and the
    filling of ``ctx`` at different levels, so the two must be separate. This Function has the older form, a
    ``forward`` that takes ``ctx``. ``torch.utils.checkpoint`` with ``use_reentrant=True`` is one, too, and so is the
    gradient of an operator of ``torch.library.custom_op``.""",
    fix="""Take ``ctx`` out of ``forward``, and fill it in ``setup_context(ctx, inputs, output)``. ``vmap``, ``jacfwd``
    and ``hessian`` need a rule as well: ``generate_vmap_rule = True``, or a ``vmap`` staticmethod. ``jacfwd`` and
    ``hessian`` also need a ``jvp`` staticmethod. To differentiate an operator, call it in such a Function. Leave out
    the checkpoint: ``use_reentrant=False`` is refused as well.""",
    see=(
        "cookbook/01_first_steps/template",
        "guide/ctx",
        "cookbook/06_beyond_autograd/custom_operator",
        "check:func_grad",
    ),
)
def no_setup_context():
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad_output

    x = torch.tensor(2.0)
    grad(Cube.apply)(x)


@fixes(no_setup_context)
def with_setup_context():
    class Cube(Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad_output

    x = torch.tensor(2.0)
    grad(Cube.apply)(x)


@raises(
    "vmap met a Function that has no rule for it",
    cause="""``vmap`` cannot look into a Function. You must tell it what the Function does to a batch, or that its
    methods consist of operations that ``vmap`` can batch. ``jacfwd`` and ``hessian`` use ``vmap``, too.""",
    fix="""Set ``generate_vmap_rule = True`` if ``forward``, ``setup_context``, ``backward`` and ``jvp`` use only
    PyTorch operations that ``vmap`` supports; otherwise write a ``vmap`` staticmethod.""",
    see=("cookbook/05_higher_order/per_sample_gradients", "check:vmap"),
)
def no_vmap_rule():
    class Cube(Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad_output

    vmap(Cube.apply)(torch.randn(5))


@fixes(no_vmap_rule)
def generated_vmap_rule():
    class Cube(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad_output

    vmap(grad(Cube.apply))(torch.randn(5))


@raises(
    "A Function has both a vmap method and generate_vmap_rule",
    cause="""``generate_vmap_rule = True`` derives the rule from the other methods, and ``vmap`` is a rule written by
    hand. PyTorch does not choose between the two.""",
    fix="Keep one of the two.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def two_vmap_rules():
    class Cube(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return Cube.apply(x), in_dims[0]

    vmap(Cube.apply)(torch.randn(5))


@fixes(two_vmap_rules)
def one_vmap_rule():
    class Cube(Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return Cube.apply(x), in_dims[0]

    vmap(Cube.apply)(torch.randn(5))


@raises(
    "The vmap method of a Function returned only the result",
    cause="""A ``vmap`` staticmethod returns two things: the output, and the batch dimension of each tensor in the
    output. Here the second is missing.""",
    fix="Return ``output, out_dims``; ``out_dims`` is an integer, or ``None`` for a tensor without a batch.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def vmap_rule_without_dims():
    class Cube(Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return Cube.apply(x)

    vmap(Cube.apply)(torch.randn(5))


@fixes(vmap_rule_without_dims)
def vmap_rule_with_dims():
    class Cube(Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return Cube.apply(x), in_dims[0]

    vmap(Cube.apply)(torch.randn(5))


@raises(
    "The vmap method of a Function returned dimensions of another structure than its outputs",
    cause="""``out_dims`` has one entry for each output, in the same nesting. ``forward`` returns two tensors, but
    ``out_dims`` names three.""",
    fix="Return one dimension for each tensor that the Function returns: ``(0, 0)``.",
    see=("cookbook/05_higher_order/per_sample_gradients", "cookbook/01_first_steps/several_outputs"),
)
def vmap_rule_dims_mismatch():
    class SinCos(Function):
        @staticmethod
        def forward(x):
            return x.sin(), x.cos()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return SinCos.apply(x.movedim(in_dims[0], 0)), (0, 0, 0)

    vmap(SinCos.apply)(torch.randn(5))


@fixes(vmap_rule_dims_mismatch)
def vmap_rule_dims_match():
    class SinCos(Function):
        @staticmethod
        def forward(x):
            return x.sin(), x.cos()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return SinCos.apply(x.movedim(in_dims[0], 0)), (0, 0)

    vmap(SinCos.apply)(torch.randn(5))


@raises(
    "A random operation ran under vmap without a decision about randomness",
    cause="""``vmap`` does not know whether all samples of the batch should share one random draw or get one each. Its
    default ``randomness="error"`` refuses both. Dropout is such an operation. ``jacfwd`` and ``hessian`` use
    ``vmap``, too.""",
    fix="""Pass ``randomness="different"``, or ``"same"`` for one draw for all. In ``jacfwd`` only ``"same"`` is
    right, because ``"different"`` gives each direction its own draw. ``hessian`` does not take the argument: write
    ``jacfwd(jacrev(f), randomness="same")``.""",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def random_under_vmap():
    def noisy(x):
        return x + 0.1 * torch.randn_like(x)

    vmap(noisy)(torch.zeros(5, 3))


@fixes(random_under_vmap)
def randomness_decided():
    def noisy(x):
        return x + 0.1 * torch.randn_like(x)

    vmap(noisy, randomness="different")(torch.zeros(5, 3))


@raises(
    "vmap was given an unknown kind of randomness",
    cause='``randomness`` is ``"error"``, ``"different"`` or ``"same"``.',
    fix="Pass one of the three.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def unknown_randomness():
    vmap(torch.rand_like, randomness="random")(torch.zeros(5, 3))


@fixes(unknown_randomness)
def known_randomness():
    vmap(torch.rand_like, randomness="different")(torch.zeros(5, 3))


@raises(
    "An if on a tensor ran under vmap",
    cause="""``if`` needs one truth value, but under ``vmap`` the tensor stands for a whole batch, whose samples may
    differ. ``while``, ``bool(...)``, ``and`` and ``assert`` on tensors raise the same message.""",
    fix="""Compute both branches and choose with ``torch.where``. Both branches need a finite derivative for every
    sample: if the branch that was not chosen has an infinite derivative, the gradient is NaN.""",
    see=("cookbook/05_higher_order/per_sample_gradients", "guide/nonfinite", "check:vmap"),
)
def branch_under_vmap():
    def relu(x):
        if x > 0:
            return x
        return torch.zeros_like(x)

    vmap(relu)(torch.randn(5))


@fixes(branch_under_vmap)
def where_under_vmap():
    def relu(x):
        return torch.where(x > 0, x, torch.zeros_like(x))

    vmap(relu)(torch.randn(5))


@raises(
    "A tensor was made a Python number under vmap",
    cause="""``item()`` gives one number, but under ``vmap`` the tensor holds one for each sample. ``float(x)``,
    ``int(x)`` and ``range(x)`` do the same.""",
    fix="""Keep the value as a tensor without dimensions. If the gradient should treat the value as a constant, as it
    treats a number, use ``x.norm().detach()``. Arguments that must be numbers raise this message, too: write ``x +
    scale * y`` instead of ``torch.add(x, y, alpha=scale)``.""",
    see=("cookbook/05_higher_order/per_sample_gradients", "check:vmap"),
)
def item_under_vmap():
    def normalize(x):
        return x / x.norm().item()

    vmap(normalize)(torch.randn(5, 3))


@fixes(item_under_vmap)
def tensor_under_vmap():
    def normalize(x):
        return x / x.norm()

    vmap(normalize)(torch.randn(5, 3))


@raises(
    "A tensor was indexed with a mask under vmap",
    cause="""All samples of a batch have the same shape, but indexing with a mask would give each sample a different
    shape. Assignment, ``x[mask] = 0``, raises the same message.""",
    fix="""Keep the shape and mask the values: ``torch.where(mask, x, 0)``. The mean of the selected values is then
    the sum divided by ``mask.sum()``.""",
    see=("cookbook/04_memory/masks", "check:vmap"),
)
def mask_indexing_under_vmap():
    def positive_sum(x):
        return x[x > 0].sum()

    vmap(positive_sum)(torch.randn(5, 3))


@fixes(mask_indexing_under_vmap)
def masked_values_under_vmap():
    def positive_sum(x):
        return torch.where(x > 0, x, 0).sum()

    vmap(positive_sum)(torch.randn(5, 3))


@raises(
    "backward was called inside of vmap or another transform",
    cause="""``backward`` adds to ``.grad`` of leaves, outside of the function. A transform cannot follow gradients
    there.""",
    fix="Use ``torch.func.grad`` inside of ``vmap``: ``vmap(grad(loss))``.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def backward_under_vmap():
    weight = torch.randn(3, requires_grad=True)

    def gradient(x):
        (x * weight).sum().backward()
        return weight.grad

    vmap(gradient)(torch.randn(5, 3))


@fixes(backward_under_vmap)
def grad_under_vmap():
    weight = torch.randn(3, requires_grad=True)

    def loss(weight, x):
        return (x * weight).sum()

    vmap(grad(loss), in_dims=(None, 0))(weight, torch.randn(5, 3))


@raises(
    "allclose was called under vmap",
    cause="``torch.allclose`` returns one Python bool, but a batch needs one answer for each sample.",
    fix="Use ``torch.isclose(...).all()``, which returns a tensor.",
    see=("check:vmap",),
)
def allclose_under_vmap():
    def same(x, y):
        return torch.where(torch.tensor(torch.allclose(x, y)), x, y)

    vmap(same)(torch.randn(5, 3), torch.randn(5, 3))


@fixes(allclose_under_vmap)
def isclose_under_vmap():
    def same(x, y):
        return torch.where(torch.isclose(x, y).all(), x, y)

    vmap(same)(torch.randn(5, 3), torch.randn(5, 3))


@raises(
    "one_hot under vmap does not know the number of classes",
    cause="""Without ``num_classes``, ``one_hot`` reads the largest index to choose the size of its output, so the
    shape depends on the data.""",
    fix="Pass ``num_classes``.",
    see=("check:vmap",),
)
def one_hot_under_vmap():
    vmap(F.one_hot)(torch.tensor([0, 2, 1]))


@fixes(one_hot_under_vmap)
def one_hot_with_classes():
    vmap(lambda label: F.one_hot(label, num_classes=3))(torch.tensor([0, 2, 1]))


@raises(
    "Batch norm updated its running statistics under vmap",
    cause="""In training mode batch norm writes to ``running_mean`` and ``running_var``. These have no batch dimension,
    while the input has one.""",
    fix="""Use ``nn.GroupNorm``, call ``model.eval()``, or set ``track_running_stats=False``;
    ``torch.func.replace_all_batch_norm_modules_`` does the last for a whole model.""",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def batch_norm_under_vmap():
    layer = nn.BatchNorm1d(3)
    vmap(layer)(torch.randn(5, 4, 3))


@fixes(batch_norm_under_vmap)
def batch_norm_without_statistics():
    layer = nn.BatchNorm1d(3)
    torch.func.replace_all_batch_norm_modules_(layer)
    vmap(layer)(torch.randn(5, 4, 3))


@raises(
    "vmap was given tensors of different batch sizes",
    cause="""All inputs are mapped together, so the mapped dimension must have the same size in each. Here one has 5
    samples and the other 4.""",
    fix="Pass batches of one size, or ``None`` in ``in_dims`` for an input that all samples share.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def batch_sizes_differ():
    vmap(torch.dot)(torch.randn(5, 3), torch.randn(4, 3))


@fixes(batch_sizes_differ)
def batch_sizes_agree():
    vmap(torch.dot)(torch.randn(5, 3), torch.randn(5, 3))


@raises(
    "in_dims of vmap has another structure than the arguments",
    cause="""``in_dims`` has one entry for each positional argument. The function gets three arguments, but
    ``in_dims`` names two.""",
    fix="Add the missing entry. Use ``None`` for an argument without a batch.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def in_dims_structure():
    weight, bias, x = torch.randn(2, 3), torch.randn(2), torch.randn(5, 3)
    vmap(F.linear, in_dims=(0, None))(x, weight, bias)


@fixes(in_dims_structure)
def in_dims_complete():
    weight, bias, x = torch.randn(2, 3), torch.randn(2), torch.randn(5, 3)
    vmap(F.linear, in_dims=(0, None, None))(x, weight, bias)


@raises(
    "vmap was to map over a number",
    cause="Without ``in_dims``, ``vmap`` maps over every argument, and a Python number has no dimensions.",
    fix="Give that argument ``None``: ``in_dims=(0, None)``.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def vmap_over_number():
    def power(x, exponent):
        return x**exponent

    vmap(power)(torch.randn(5, 3), 2)


@fixes(vmap_over_number)
def vmap_beside_number():
    def power(x, exponent):
        return x**exponent

    vmap(power, in_dims=(0, None))(torch.randn(5, 3), 2)


@raises(
    "vmap was to map over a dimension that does not exist",
    cause="""Each entry of ``in_dims`` must be a dimension of its tensor. Here ``in_dims`` asks for dimension 1 of a
    bias that has only one dimension.""",
    fix="Name an existing dimension, or ``None`` for a tensor that all samples share.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def in_dim_out_of_range():
    x, bias = torch.randn(3, 5), torch.randn(3)
    vmap(torch.add, in_dims=1)(x, bias)


@fixes(in_dim_out_of_range)
def in_dim_none():
    x, bias = torch.randn(3, 5), torch.randn(3)
    vmap(torch.add, in_dims=(1, None))(x, bias)


@raises(
    "vmap got keyword arguments only",
    cause="""``vmap`` maps only positional arguments, and needs at least one. It does not map keyword arguments: each
    sample gets the whole tensor.""",
    fix="Pass every batched tensor by position.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def vmap_without_positional():
    vmap(torch.sin)(input=torch.randn(5))


@fixes(vmap_without_positional)
def vmap_with_positional():
    vmap(torch.sin)(torch.randn(5))


@raises(
    "A mapped function returned something that is not a tensor",
    cause="""``vmap`` adds the batch dimension to what the function returns. A number, a string or a list of Python
    floats cannot have one, and neither can ``None``, which a function without ``return`` gives.""",
    fix="""Return only tensors. Compute what is the same for all samples outside, or give it ``None`` in ``out_dims``:
    ``out_dims=(0, None)``.""",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def mapped_returns_number():
    def norm(x):
        return x.norm(), x.numel()

    vmap(norm)(torch.randn(5, 3))


@fixes(mapped_returns_number)
def mapped_returns_tensor():
    def norm(x):
        return x.norm()

    vmap(norm)(torch.randn(5, 3))


@raises(
    "An output of vmap that depends on the sample was declared to have no batch",
    cause="""``out_dims=None`` says that an output is the same for all samples. This one was computed from batched
    inputs.""",
    fix="Name the dimension, ``out_dims=0``, or reduce over the batch after ``vmap``.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def out_dim_none():
    vmap(torch.sin, out_dims=None)(torch.randn(5))


@fixes(out_dim_none)
def out_dim_zero():
    vmap(torch.sin, out_dims=0)(torch.randn(5))


@raises(
    "out_dims of vmap has another structure than the outputs",
    cause="""A tuple of ``out_dims`` has one entry for each output. The function returns one tensor, but ``out_dims``
    names two dimensions.""",
    fix="Give one entry for each output.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def out_dims_structure():
    vmap(torch.sin, out_dims=(0, 0))(torch.randn(5))


@fixes(out_dims_structure)
def out_dims_single():
    vmap(torch.sin, out_dims=0)(torch.randn(5))


@raises(
    "vmap was given a chunk size of zero",
    cause="``chunk_size`` is the number of samples that are computed at once: at least one, or ``None`` for all.",
    fix="Pass a positive integer or ``None``.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def vmap_chunk_size():
    vmap(torch.sin, chunk_size=0)(torch.randn(5))


@fixes(vmap_chunk_size)
def vmap_chunk_size_two():
    vmap(torch.sin, chunk_size=2)(torch.randn(5))


@raises(
    "A tensor escaped from a vmap that had ended",
    cause="""The function stored a batched tensor outside: in a list, an attribute or a cache. The ``vmap`` to which
    its batch belongs has ended, so PyTorch no longer knows what its dimensions mean.""",
    fix="Return what you need afterwards: ``vmap`` then gives it its batch dimension.",
    see=("check:vmap", "check:tensors_on_ctx"),
)
def tensor_escaped():
    activations = []

    def layer(x):
        activations.append(x.tanh())
        return activations[-1] * 2

    vmap(layer)(torch.randn(5, 3))
    activations[0].sum()


@fixes(tensor_escaped)
def tensor_returned():
    def layer(x):
        activation = x.tanh()
        return activation * 2, activation

    _, activation = vmap(layer)(torch.randn(5, 3))
    activation.sum()


@raises(
    "torch.func.grad was taken of a function that returns a tensor with dimensions",
    cause="""A gradient is the derivative of one number, so the function must return a tensor without dimensions. This
    function returns a vector. A tensor of shape ``(1,)`` is refused as well.""",
    fix="""Reduce to a scalar (``squeeze()`` for one element). For all derivatives use ``jacrev``, for a combination
    of them ``vjp``.""",
    see=("guide/backward",),
)
def grad_of_vector():
    grad(torch.sin)(torch.randn(3))


@fixes(grad_of_vector)
def jacobian_of_vector():
    jacrev(torch.sin)(torch.randn(3))


@raises(
    "torch.func.grad was taken of a function that returns a tuple",
    cause="""The function must return the tensor to differentiate, and may return other outputs only with
    ``has_aux=True``. A function that returns a number, as from ``loss.item()``, or ``None`` because a ``return`` is
    missing, raises the same message.""",
    fix="Return only the loss, as a tensor, or ``(loss, rest)`` together with ``has_aux=True``.",
    see=("guide/backward",),
)
def grad_of_tuple():
    def loss(x):
        return x.square().sum(), x.norm()

    grad(loss)(torch.randn(3))


@fixes(grad_of_tuple)
def grad_with_aux():
    def loss(x):
        return x.square().sum(), x.norm()

    grad(loss, has_aux=True)(torch.randn(3))


@raises(
    "has_aux=True was passed for a function that returns one thing",
    cause="""With ``has_aux=True`` the function must return the pair ``(output, aux)``. Here it returns only the loss.
    Three outputs, or a list, are not a pair either.""",
    fix="Leave ``has_aux`` out, or return the pair: ``loss, (a, b)``.",
    see=("guide/backward",),
)
def aux_missing():
    def loss(x):
        return x.square().sum()

    grad(loss, has_aux=True)(torch.randn(3))


@fixes(aux_missing)
def aux_left_out():
    def loss(x):
        return x.square().sum()

    grad(loss)(torch.randn(3))


@raises(
    "argnums names an argument that does not exist",
    cause="""``argnums`` counts positional arguments from 0. The function is called with two arguments, and 2 would be
    the third.""",
    fix="Count from 0, and pass the arguments to differentiate by position.",
    see=("guide/backward",),
)
def argnums_out_of_range():
    def loss(weight, x):
        return (weight * x).sum()

    grad(loss, argnums=2)(torch.randn(3), torch.randn(3))


@fixes(argnums_out_of_range)
def argnums_in_range():
    def loss(weight, x):
        return (weight * x).sum()

    grad(loss, argnums=1)(torch.randn(3), torch.randn(3))


@raises(
    "argnums is a list",
    cause="``argnums`` is one integer, or a tuple of them.",
    fix="Write a tuple: ``argnums=(0, 1)``.",
    see=("guide/backward",),
)
def argnums_list():
    def loss(weight, x):
        return (weight * x).sum()

    grad(loss, argnums=[0, 1])(torch.randn(3), torch.randn(3))


@fixes(argnums_list)
def argnums_tuple():
    def loss(weight, x):
        return (weight * x).sum()

    grad(loss, argnums=(0, 1))(torch.randn(3), torch.randn(3))


@raises(
    "torch.func.grad was taken with respect to a number",
    cause="""The transforms differentiate with respect to tensors, or nested containers of them. ``2.0`` is a Python
    float.""",
    fix="Pass ``torch.tensor(2.0)``.",
    see=("guide/backward",),
)
def grad_of_float():
    grad(lambda x: x**2)(2.0)


@fixes(grad_of_float)
def grad_of_scalar_tensor():
    grad(lambda x: x**2)(torch.tensor(2.0))


@raises(
    "A transform of torch.func got a tensor of integers as an argument to differentiate",
    cause="""``vjp`` differentiates with respect to all of its arguments, and ``grad`` and ``jacrev`` with respect to
    those that ``argnums`` names. Batch norm counts its batches in a buffer of integers, ``num_batches_tracked``, which
    has no gradient.""",
    fix="""Pass only the floating-point tensors as arguments, and let the function close over the others. For integer
    inputs, such as token ids, name the other arguments: ``torch.func.grad(f, argnums=0)``.""",
    see=("guide/func",),
)
def integer_argument_of_transform():
    def loss(params, buffers, x):
        return torch.func.functional_call(norm, (params, buffers), (x,)).sum()

    norm = nn.BatchNorm1d(3).eval()
    params, buffers = dict(norm.named_parameters()), dict(norm.named_buffers())
    torch.func.vjp(loss, params, buffers, torch.randn(4, 3))


@fixes(integer_argument_of_transform)
def integers_closed_over():
    def loss(params, buffers, x):
        return torch.func.functional_call(norm, (params, buffers), (x,)).sum()

    norm = nn.BatchNorm1d(3).eval()
    params, buffers = dict(norm.named_parameters()), dict(norm.named_buffers())
    x = torch.randn(4, 3)
    torch.func.vjp(lambda params: loss(params, buffers, x), params)


@raises(
    "A function under torch.func changed a tensor from outside",
    cause="""Under ``grad``, ``vjp`` or ``jvp``, the function must not change a tensor from outside in place, not even
    by adding a number. Here it changes a running total. Batch norm in training mode counts its batches in the same
    way.""",
    fix="""Return the new value, with ``has_aux=True``, and update outside. For batch norm, call
    ``torch.func.replace_all_batch_norm_modules_`` or ``model.eval()``.""",
    see=("check:func_grad",),
)
def captured_tensor_mutated():
    total = torch.zeros(3)

    def loss(x):
        total.add_(x)
        return x.square().sum()

    grad(loss)(torch.randn(3))


@fixes(captured_tensor_mutated)
def captured_tensor_returned():
    total = torch.zeros(3)

    def loss(x):
        return x.square().sum(), x

    _, x = grad(loss, has_aux=True)(torch.randn(3))
    total.add_(x)


@raises(
    "requires_grad_ was called inside of a function under torch.func",
    cause="""``torch.func`` itself decides what is differentiated. ``requires_grad_()`` belongs to the other
    interface, and so does ``torch.autograd.functional``, which calls it.""",
    fix="Nest the transforms: ``grad`` inside of ``grad``, ``vmap`` or ``jacrev``.",
    see=("guide/higher_order",),
)
def requires_grad_inside():
    def energy_gradient(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(x.square().sum(), x)[0]

    vmap(energy_gradient)(torch.randn(5, 3))


@fixes(requires_grad_inside)
def grad_inside():
    def energy_gradient(x):
        return grad(lambda x: x.square().sum())(x)

    vmap(energy_gradient)(torch.randn(5, 3))


@raises(
    "The memory of a tensor was read under torch.func",
    cause="""Inside a transform a tensor is a wrapper without its own memory. ``numpy()``, ``data_ptr()`` and kernels
    that read from the pointer need this memory.""",
    fix="""Put the foreign code into the ``forward`` of a Function with ``setup_context``: ``grad``, ``vjp`` and
    ``jacrev`` call it with plain tensors. For ``vmap``, also write a ``vmap`` staticmethod. With
    ``generate_vmap_rule``, ``forward`` would get a wrapper again.""",
    see=("cookbook/06_beyond_autograd/scipy_functions", "cookbook/06_beyond_autograd/custom_operator"),
)
def numpy_inside():
    import numpy as np

    def loss(x):
        return torch.from_numpy(np.sin(x.detach().numpy())).sum()

    grad(loss)(torch.randn(3))


@fixes(numpy_inside)
def numpy_in_function():
    import numpy as np

    class Sin(Function):
        @staticmethod
        def forward(x):
            return torch.from_numpy(np.sin(x.numpy()))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * x.cos()

    grad(lambda x: Sin.apply(x).sum())(torch.randn(3))


@raises(
    "Forward mode over a gradient wrote into a tangent that is zero",
    cause="""Forward mode represents a tangent of zeros by a tensor without memory, which no operation may change in
    place. The backward of some losses, here ``mse_loss``, accumulates in place, so ``jvp(grad(f))``,
    ``jacfwd(grad(f))`` and ``hessian`` raise.""",
    fix="Write the loss with basic operations, ``(y - x @ weight).square().mean()``, or use reverse mode twice: "
    "``vjp(grad(f), weight)``, ``jacrev(grad(f))``.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def zero_tangent_changed():
    x, y = torch.randn(4, 3), torch.randn(4)
    weight, vector = torch.randn(3), torch.randn(3)

    def loss(weight):
        return F.mse_loss(x @ weight, y)

    jvp(grad(loss), (weight,), (vector,))


@fixes(zero_tangent_changed)
def zero_tangent_kept():
    x, y = torch.randn(4, 3), torch.randn(4)
    weight, vector = torch.randn(3), torch.randn(3)

    def loss(weight):
        return (x @ weight - y).square().mean()

    jvp(grad(loss), (weight,), (vector,))


@raises(
    "A tangent has a tangent of its own",
    cause="The tangent of ``make_dual`` is a dual number itself, but a level of forward mode holds one tangent for "
    "each tensor. Batch norm raises the same where its running statistics have tangents.",
    fix="Take the number out of the tangent first: ``fwAD.unpack_dual(tangent).primal``. For a second derivative, nest "
    "``torch.func.jvp``, which makes a level for each.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def tangent_with_tangent():
    x, v = torch.randn(3), torch.randn(3)
    with fwAD.dual_level():
        tangent = fwAD.make_dual(v, torch.ones(3))
        fwAD.make_dual(x, tangent)


@fixes(tangent_with_tangent)
def tangent_without_tangent():
    x, v = torch.randn(3), torch.randn(3)
    with fwAD.dual_level():
        tangent = fwAD.make_dual(v, torch.ones(3))
        fwAD.make_dual(x, fwAD.unpack_dual(tangent).primal)


@raises(
    "x.data was assigned inside of a function under torch.func",
    cause="""``x.data = ...`` replaces the data of the tensor, and the wrapper that ``torch.func`` made around the
    tensor does not notice it.""",
    fix="""Compute a new tensor instead. ``.data`` hides the change from the gradient; to hide it without ``.data``,
    add the change detached: ``x + (x.clamp(-1, 1) - x).detach()``. ``x.clamp(-1, 1)`` alone has the gradient of
    ``clamp``, which is zero outside of the bounds.""",
    see=("cookbook/02_changing_the_gradient/straight_through", "check:func_grad"),
)
def data_assigned_inside():
    def loss(x):
        x.data = x.data.clamp(-1, 1)
        return x.square().sum()

    grad(loss)(torch.randn(3))


@fixes(data_assigned_inside)
def clamped_inside():
    def loss(x):
        x = x + (x.clamp(-1, 1) - x).detach()
        return x.square().sum()

    grad(loss)(torch.randn(3))


@raises(
    "vjp was given cotangents of another structure than the outputs",
    cause="""``vjp`` needs one cotangent for each output, in the same nesting. The function returns a tuple of two
    tensors.""",
    fix="Pass ``(cotangent, cotangent)``, a tuple like the outputs.",
    see=("guide/backward",),
)
def vjp_structure():
    def sin_cos(x):
        return x.sin(), x.cos()

    _, pullback = vjp(sin_cos, torch.randn(3))
    pullback(torch.ones(3))


@fixes(vjp_structure)
def vjp_same_structure():
    def sin_cos(x):
        return x.sin(), x.cos()

    _, pullback = vjp(sin_cos, torch.randn(3))
    pullback((torch.ones(3), torch.ones(3)))


@raises(
    "vjp was taken of a function that returns integers",
    cause="Only floating-point and complex tensors have derivatives, but ``topk`` also returns indices.",
    fix="Return the indices as an auxiliary output: ``has_aux=True``.",
    see=("guide/backward",),
)
def vjp_of_integers():
    def largest(x):
        return tuple(x.topk(2))

    vjp(largest, torch.randn(5))


@fixes(vjp_of_integers)
def vjp_with_aux():
    def largest(x):
        return tuple(x.topk(2))

    vjp(largest, torch.randn(5), has_aux=True)


@raises(
    "jvp was given its input as a tensor instead of a tuple",
    cause="""``jvp(function, primals, tangents)`` calls ``function(*primals)``, so both must be tuples, also for a
    single argument.""",
    fix="Write ``jvp(f, (x,), (tangent,))``.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def jvp_primals_not_tuple():
    x, tangent = torch.randn(3), torch.randn(3)
    jvp(torch.sin, x, tangent)


@fixes(jvp_primals_not_tuple)
def jvp_primals_tuple():
    x, tangent = torch.randn(3), torch.randn(3)
    jvp(torch.sin, (x,), (tangent,))


@raises(
    "jvp was given fewer tangents than inputs",
    cause="Each input needs its tangent, in the same nesting. Here there are two inputs but one tangent.",
    fix="Pass zeros for an input that does not change, or bind it: ``lambda x: f(x, y)``.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def jvp_structure():
    x, y, tangent = torch.randn(3, 3).unbind()
    jvp(torch.mul, (x, y), (tangent,))


@fixes(jvp_structure)
def jvp_same_structure():
    x, y, tangent = torch.randn(3, 3).unbind()
    jvp(torch.mul, (x, y), (tangent, torch.zeros_like(y)))


@raises(
    "A tangent has another shape than its tensor",
    cause="""A tangent is a direction in the space of the tensor, so it has the tensor's shape and is not broadcast.
    The ``jvp`` of a Function that returns a tangent of another shape than the output raises the same message.""",
    fix="Pass ``tangent.expand_as(x)`` if that is meant.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def tangent_shape():
    jvp(torch.sin, (torch.randn(5, 3),), (torch.ones(3),))


@fixes(tangent_shape)
def tangent_same_shape():
    jvp(torch.sin, (torch.randn(5, 3),), (torch.ones(3).expand(5, 3),))


@raises(
    "Under jvp a function returned something that is not a tensor",
    cause="``jvp`` and ``jacfwd`` pair each output with its tangent, and a number has no tangent.",
    fix="Return only tensors. Compute what does not depend on the input outside.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def jvp_returns_number():
    def norm(x):
        return x.norm(), x.numel()

    jvp(norm, (torch.randn(3),), (torch.ones(3),))


@fixes(jvp_returns_number)
def jvp_returns_tensor():
    def norm(x):
        return x.norm()

    jvp(norm, (torch.randn(3),), (torch.ones(3),))


@raises(
    "vjp or jacrev was taken of a function that also returns a number",
    cause="``vjp`` and ``jacrev`` differentiate every output of the function, and a Python number has no derivative.",
    fix="Return tensors only.",
    see=("cookbook/05_higher_order/hessian",),
)
def jacrev_of_number():
    def tally(x):
        return x.square().sum(), x.numel()

    jacrev(tally)(torch.randn(3))


@fixes(jacrev_of_number)
def jacrev_of_tensor():
    def tally(x):
        return x.square().sum()

    jacrev(tally)(torch.randn(3))


@raises(
    "jacrev was given a chunk size of zero",
    cause="""``chunk_size`` is the number of rows of the Jacobian that are computed at once. It must be positive, or
    ``None`` for all rows.""",
    fix="Pass a positive integer or ``None``.",
    see=("cookbook/05_higher_order/hessian",),
)
def jacrev_chunk_size():
    jacrev(torch.sin, chunk_size=0)(torch.randn(3))


@fixes(jacrev_chunk_size)
def jacrev_chunk_size_one():
    jacrev(torch.sin, chunk_size=1)(torch.randn(3))


@raises(
    "jvp found nothing saved, because the tensors were saved for backward only",
    cause="``ctx.save_for_backward`` keeps tensors for ``backward``. In forward mode (``jvp``, ``jacfwd``, and "
    "``hessian``, which is forward over reverse) ``jvp`` runs instead, and its ``ctx.saved_tensors`` has only what "
    "``ctx.save_for_forward`` was given. Here it is empty.",
    fix="Call both in ``setup_context``: ``ctx.save_for_backward(x)`` and ``ctx.save_for_forward(x)``.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def saved_for_backward_only():
    class Square(Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return 2 * x * tangent

    x = torch.randn(3)
    jvp(Square.apply, (x,), (torch.ones(3),))


@fixes(saved_for_backward_only)
def saved_for_forward():
    class Square(Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return 2 * x * tangent

    x = torch.randn(3)
    jvp(Square.apply, (x,), (torch.ones(3),))


@raises(
    "A Function without a jvp met forward mode",
    cause="""``backward`` computes vector-Jacobian products, but forward mode needs Jacobian-vector products. ``jvp``,
    ``jacfwd``, ``linearize`` and ``torch.autograd.forward_ad`` use forward mode, and so does ``hessian``, which is
    ``jacfwd(jacrev(f))``.""",
    fix="""Write a ``jvp`` staticmethod, or stay in reverse mode: ``jacrev`` instead of ``jacfwd``,
    ``jacrev(jacrev(f))`` instead of ``hessian``.""",
    see=("cookbook/05_higher_order/forward_mode", "guide/directions", "check:forward_mode"),
)
def no_jvp():
    class Cube(Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad_output

    jvp(Cube.apply, (torch.randn(5),), (torch.ones(5),))


@fixes(no_jvp)
def with_jvp():
    class Cube(Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad_output

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * tangent

    jvp(Cube.apply, (torch.randn(5),), (torch.ones(5),))


@raises(
    "The jvp of a Function returned too many tangents",
    cause="""``jvp`` returns one tangent for each *output* of ``forward``, while ``backward`` returns one gradient for
    each input. Here it returns one for each input. Too few tangents raise the same message.""",
    fix="Add up the contributions of the inputs: return one tangent for the one output.",
    see=("cookbook/05_higher_order/forward_mode", "guide/directions"),
)
def jvp_too_many():
    class Multiply(Function):
        @staticmethod
        def forward(x, y):
            return x * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx, tangent_x, tangent_y):
            x, y = ctx.saved_tensors
            return tangent_x * y, x * tangent_y

    x, y, tangent_x, tangent_y = torch.randn(4, 3).unbind()
    with fwAD.dual_level():
        Multiply.apply(fwAD.make_dual(x, tangent_x), fwAD.make_dual(y, tangent_y))


@fixes(jvp_too_many)
def jvp_one():
    class Multiply(Function):
        @staticmethod
        def forward(x, y):
            return x * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx, tangent_x, tangent_y):
            x, y = ctx.saved_tensors
            return tangent_x * y + x * tangent_y

    x, y, tangent_x, tangent_y = torch.randn(4, 3).unbind()
    with fwAD.dual_level():
        Multiply.apply(fwAD.make_dual(x, tangent_x), fwAD.make_dual(y, tangent_y))


@raises(
    "The jvp of a Function that returns a view returned a new tensor",
    cause="""The output of ``forward`` is a view of its input, or the input itself. Then the tangent of the output
    must be a view of the tangent of the input, because a later in-place change must reach both.""",
    fix="""Make the same view of the tangent, ``tangent.view(-1)``, or let ``forward`` return a copy. Where ``forward``
    returns the input, return ``tangent.view_as(tangent)``.""",
    see=("cookbook/05_higher_order/forward_mode",),
)
def jvp_not_a_view():
    class Flatten(Function):
        @staticmethod
        def forward(x):
            return x.view(-1)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def jvp(ctx, tangent):
            return tangent.view(-1).clone()

    with fwAD.dual_level():
        Flatten.apply(fwAD.make_dual(torch.randn(2, 3), torch.ones(2, 3)))


@fixes(jvp_not_a_view)
def jvp_a_view():
    class Flatten(Function):
        @staticmethod
        def forward(x):
            return x.view(-1)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def jvp(ctx, tangent):
            return tangent.view(-1)

    with fwAD.dual_level():
        Flatten.apply(fwAD.make_dual(torch.randn(2, 3), torch.ones(2, 3)))


@raises(
    "The jvp of an in-place Function returned a new tensor",
    cause="""``forward`` changes its input and marks it dirty. Its ``jvp`` must also change the tangent in place, and
    return that same tensor.""",
    fix="Use in-place operations on the tangent: ``tangent.mul_(2)``.",
    see=("cookbook/05_higher_order/forward_mode", "cookbook/04_memory/in_place"),
)
def jvp_out_of_place():
    class DoubleInPlace(Function):
        @staticmethod
        def forward(x):
            return x.mul_(2)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_dirty(inputs[0])

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * 2

    with fwAD.dual_level():
        DoubleInPlace.apply(fwAD.make_dual(torch.randn(3), torch.ones(3)))


@fixes(jvp_out_of_place)
def jvp_in_place():
    class DoubleInPlace(Function):
        @staticmethod
        def forward(x):
            return x.mul_(2)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_dirty(inputs[0])

        @staticmethod
        def jvp(ctx, tangent):
            return tangent.mul_(2)

    with fwAD.dual_level():
        DoubleInPlace.apply(fwAD.make_dual(torch.randn(3), torch.ones(3)))


@raises(
    "A dual tensor was made outside of a level",
    cause="A tangent exists only inside the level of ``forward_ad`` in which it was set. No level is open here.",
    fix="Work inside of ``with torch.autograd.forward_ad.dual_level():``.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def dual_without_level():
    x = fwAD.make_dual(torch.randn(3), torch.ones(3))
    fwAD.unpack_dual(x.sin())


@fixes(dual_without_level)
def dual_with_level():
    with fwAD.dual_level():
        x = fwAD.make_dual(torch.randn(3), torch.ones(3))
        fwAD.unpack_dual(x.sin())


@raises(
    "A dual tensor was made of integers",
    cause="Only floating-point and complex tensors have derivatives, but ``torch.arange(3)`` is ``int64``.",
    fix="Convert first: ``torch.arange(3.0)``.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def dual_of_integers():
    with fwAD.dual_level():
        fwAD.make_dual(torch.arange(3), torch.ones(3))


@fixes(dual_of_integers)
def dual_of_floats():
    with fwAD.dual_level():
        fwAD.make_dual(torch.arange(3.0), torch.ones(3))


@raises(
    "A dual tensor was given a tangent of integers",
    cause="A tangent is floating-point or complex, like its tensor. Here it holds integers, a one-hot direction.",
    fix="Convert it: ``direction.to(x.dtype)``.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def tangent_of_integers():
    direction = F.one_hot(torch.tensor(1), 3)
    with fwAD.dual_level():
        fwAD.make_dual(torch.randn(3), direction)


@fixes(tangent_of_integers)
def tangent_of_floats():
    direction = F.one_hot(torch.tensor(1), 3)
    with fwAD.dual_level():
        fwAD.make_dual(torch.randn(3), direction.float())


@raises(
    "A second level of forward mode was opened inside the first",
    cause="""``torch.autograd.forward_ad`` has only one level. ``torch.func`` supports forward mode inside of forward
    mode.""",
    fix="Nest ``torch.func.jvp`` or ``jacfwd``.",
    see=("cookbook/05_higher_order/forward_mode", "guide/higher_order"),
)
def nested_levels():
    with fwAD.dual_level():
        x = fwAD.make_dual(torch.randn(3), torch.ones(3))
        with fwAD.dual_level():
            fwAD.make_dual(x.sin(), torch.ones(3))


@fixes(nested_levels)
def nested_jvp():
    def first(x):
        return jvp(torch.sin, (x,), (torch.ones(3),))[1]

    jvp(first, (torch.randn(3),), (torch.ones(3),))


@raises(
    "A tensor that already has a tangent was given another",
    cause="""A tensor has one tangent in a level. This one already has a tangent, because it is the result of an
    operation on a dual tensor.""",
    fix="Start again from the value: ``fwAD.unpack_dual(y).primal``.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def dual_of_dual():
    with fwAD.dual_level():
        y = fwAD.make_dual(torch.randn(3), torch.ones(3)).sin()
        fwAD.make_dual(y, torch.ones(3))


@fixes(dual_of_dual)
def dual_of_primal():
    with fwAD.dual_level():
        y = fwAD.make_dual(torch.randn(3), torch.ones(3)).sin()
        fwAD.make_dual(fwAD.unpack_dual(y).primal, torch.ones(3))


@raises(
    "Forward mode met an operation with out=",
    cause="An operation that writes into ``out=`` has no derivative, in forward mode as in reverse mode.",
    fix="Use the result that the operation returns.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def forward_mode_out():
    buffer = torch.empty(3)
    with fwAD.dual_level():
        x = fwAD.make_dual(torch.randn(3), torch.ones(3))
        torch.sin(x, out=buffer)


@fixes(forward_mode_out)
def forward_mode_result():
    with fwAD.dual_level():
        x = fwAD.make_dual(torch.randn(3), torch.ones(3))
        torch.sin(x)


@raises(
    "Forward mode met an operation of PyTorch that has no formula for it",
    cause="""Some operations have a backward but no forward derivative. The message names the operation, as here the
    loss of connectionist temporal classification.""",
    fix="""Use reverse mode: ``jacrev`` instead of ``jacfwd``, and ``jacrev(jacrev(f))`` instead of ``hessian`` if the
    backward of the operation has a derivative. Or update torch, because newer releases have more formulas, or wrap
    the operation in a Function with a ``jvp``.""",
    see=("cookbook/05_higher_order/forward_mode", "guide/directions"),
)
def no_forward_formula():
    def loss(scores):
        lengths = torch.tensor([6])
        return F.ctc_loss(scores.log_softmax(-1), torch.tensor([[1, 2]]), lengths, torch.tensor([2]))

    jacfwd(loss)(torch.randn(6, 1, 3))


@fixes(no_forward_formula)
def reverse_formula():
    def loss(scores):
        lengths = torch.tensor([6])
        return F.ctc_loss(scores.log_softmax(-1), torch.tensor([[1, 2]]), lengths, torch.tensor([2]))

    jacrev(loss)(torch.randn(6, 1, 3))


@raises(
    "functional_call got a parameter in two dictionaries",
    cause="With several dictionaries, such as parameters and buffers, a name may be in only one of them.",
    fix="Leave the name out of one, or merge them yourself: ``{**old, **new}``.",
    see=("cookbook/05_higher_order/maml",),
)
def parameter_twice():
    model = nn.Linear(3, 2)
    parameters = dict(model.named_parameters())
    updated = {"weight": torch.zeros(2, 3)}
    functional_call(model, (parameters, updated), torch.randn(4, 3))


@fixes(parameter_twice)
def parameter_once():
    model = nn.Linear(3, 2)
    parameters = dict(model.named_parameters())
    updated = {"weight": torch.zeros(2, 3)}
    functional_call(model, {**parameters, **updated}, torch.randn(4, 3))


@raises(
    "functional_call got the parameters as a list of tensors",
    cause="""``functional_call`` takes parameters by name: a dictionary, or a tuple of dictionaries.
    ``model.parameters()`` has no names.""",
    fix="Pass ``dict(model.named_parameters())``.",
    see=("cookbook/05_higher_order/maml",),
)
def parameters_without_names():
    model = nn.Linear(3, 2)
    functional_call(model, list(model.parameters()), torch.randn(4, 3))


@fixes(parameters_without_names)
def parameters_with_names():
    model = nn.Linear(3, 2)
    functional_call(model, dict(model.named_parameters()), torch.randn(4, 3))


@raises(
    "functional_call got only some parameters with strict=True",
    cause="With ``strict=True`` every parameter and buffer of the module must be given, and nothing else.",
    fix="Pass all, or leave ``strict`` at ``False``: the module's own tensors then fill the gaps.",
    see=("cookbook/05_higher_order/maml",),
)
def parameter_missing():
    model = nn.Linear(3, 2)
    functional_call(model, {"weight": torch.zeros(2, 3)}, torch.randn(4, 3), strict=True)


@fixes(parameter_missing)
def parameter_filled_in():
    model = nn.Linear(3, 2)
    functional_call(model, {"weight": torch.zeros(2, 3)}, torch.randn(4, 3))


@raises(
    "stack_module_state got models in different modes",
    cause="The stacked models run as one model, which is either in training or in evaluation mode.",
    fix="Call ``train()`` or ``eval()`` on all of them first.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def ensemble_modes():
    models = [nn.Linear(3, 2), nn.Linear(3, 2).eval()]
    stack_module_state(models)


@fixes(ensemble_modes)
def ensemble_one_mode():
    models = [nn.Linear(3, 2).eval(), nn.Linear(3, 2).eval()]
    stack_module_state(models)


@raises(
    "stack_module_state got models of different classes",
    cause="One model runs with the stacked parameters of all models, so all must be of the same class.",
    fix="Stack only models of one architecture.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def ensemble_classes():
    models = [nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 2))]
    stack_module_state(models)


@fixes(ensemble_classes)
def ensemble_one_class():
    models = [nn.Linear(3, 2), nn.Linear(3, 2)]
    stack_module_state(models)


@raises(
    "stack_module_state got models of which some are frozen",
    cause="""The stacked parameter is one tensor, which either requires a gradient or does not. In one model this
    parameter was frozen.""",
    fix="Freeze the same parameters in all models.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def ensemble_frozen():
    models = [nn.Linear(3, 2), nn.Linear(3, 2).requires_grad_(False)]
    stack_module_state(models)


@fixes(ensemble_frozen)
def ensemble_none_frozen():
    models = [nn.Linear(3, 2), nn.Linear(3, 2)]
    stack_module_state(models)


@raises(
    "functionalize was asked to remove something unknown",
    cause='``remove`` is ``"mutations"``, or ``"mutations_and_views"``.',
    fix="Pass one of the two.",
    see=("cookbook/07_compile/export",),
)
def functionalize_views():
    functionalize(lambda x: x.view(-1).mul_(2), remove="views")(torch.randn(2, 3))


@fixes(functionalize_views)
def functionalize_mutations_and_views():
    functionalize(lambda x: x.view(-1).mul_(2), remove="mutations_and_views")(torch.randn(2, 3))


@raises(
    "The function of linearize was given a tangent of another shape",
    cause="""``linearize`` records the derivative for inputs of one shape and dtype. The tangents must have the same
    shape and dtype, and are not broadcast.""",
    fix="Pass tangents like the inputs; for many directions, map with ``vmap`` over the recorded function.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def linearize_shape():
    _, derivative = linearize(torch.sin, torch.randn(3))
    derivative(torch.eye(3))


@fixes(linearize_shape)
def linearize_mapped():
    _, derivative = linearize(torch.sin, torch.randn(3))
    vmap(derivative)(torch.eye(3))


@raises(
    "One random draw for all samples was asked of an operation with batched parameters",
    cause="""``randomness="same"`` draws once for the whole batch. ``bernoulli``, ``normal``, ``poisson`` and
    ``multinomial`` of a batched tensor have different parameters for each sample, so one draw cannot serve all
    samples.""",
    fix='Use ``randomness="different"``, or draw from parameters without a batch and transform: for example '
    "``torch.rand(3)     < p``.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def same_randomness_in_batch():
    probabilities = torch.rand(5, 3)
    vmap(torch.bernoulli, randomness="same")(probabilities)


@fixes(same_randomness_in_batch)
def same_randomness_compared():
    probabilities = torch.rand(5, 3)
    vmap(lambda p: (torch.rand(3) < p).to(p.dtype), randomness="same")(probabilities)


@raises(
    "A tensor without a batch was changed in place by a batched one",
    cause="""The function created ``out`` itself, from no batched tensor, so ``out`` has no batch dimension and cannot
    take the values of all samples. A tensor from outside has none either. Assignment to a part, ``copy_``, ``mul_``
    and other in-place operations raise this; some name themselves in the text, such as ``index_put_``.""",
    fix="""Make the tensor from a batched one, ``x.new_zeros(3)`` or ``torch.zeros_like(x)``, or work out of place,
    with ``torch.stack`` or ``torch.where``.""",
    see=("check:vmap",),
)
def set_item_of_unbatched():
    def shift(x):
        out = torch.zeros(3)
        out[1:] = x[:-1]
        return out

    vmap(shift)(torch.randn(5, 3))


@fixes(set_item_of_unbatched)
def set_item_of_batched():
    def shift(x):
        out = torch.zeros_like(x)
        out[1:] = x[:-1]
        return out

    vmap(shift)(torch.randn(5, 3))


@raises(
    "A batched tensor was added in place to one without a batch",
    cause="""Outside of ``vmap`` both tensors have three elements. Under ``vmap``, ``x`` stands for a batch of five
    and ``total`` for one tensor, and ``add_`` cannot make ``total`` larger. Any in-place operation that would
    broadcast its target raises the same message.""",
    fix="Make the target from a batched tensor, ``torch.zeros_like(x)``, or add out of place.",
    see=("check:vmap",),
)
def added_to_unbatched():
    def running_total(x):
        total = torch.zeros(3)
        for value in (x, 2 * x):
            total += value
        return total

    vmap(running_total)(torch.randn(5, 3))


@fixes(added_to_unbatched)
def added_to_batched():
    def running_total(x):
        total = torch.zeros_like(x)
        for value in (x, 2 * x):
            total += value
        return total

    vmap(running_total)(torch.randn(5, 3))


@raises(
    "nonzero or unique was called under vmap",
    cause="""All samples of a batch have the same shape, but these operations would give each sample an output of a
    different length. The text names the operation.""",
    fix="""Keep the shape: use ``torch.where`` with three arguments for masks, and ``argmax``, ``argsort`` or ``topk``
    for positions. ``argmax`` of a mask is 0 also if nothing is true.""",
    see=("check:vmap",),
)
def nonzero_under_vmap():
    def first_positive(x):
        return (x > 0).nonzero()[0]

    vmap(first_positive)(torch.rand(5, 3))


@fixes(nonzero_under_vmap)
def argmax_under_vmap():
    def first_positive(x):
        return (x > 0).int().argmax()

    vmap(first_positive)(torch.rand(5, 3))


@raises(
    "masked_select was called with a batched mask",
    cause="Each sample would select a different number of elements, but all samples of a batch have the same shape.",
    fix="Keep the shape and mask the values: ``torch.where(mask, x, 0)``.",
    see=("check:vmap",),
)
def masked_select_under_vmap():
    def positive_sum(x):
        return torch.masked_select(x, x > 0).sum()

    vmap(positive_sum)(torch.randn(5, 3))


@fixes(masked_select_under_vmap)
def where_for_masked_select():
    def positive_sum(x):
        return torch.where(x > 0, x, 0).sum()

    vmap(positive_sum)(torch.randn(5, 3))


@raises(
    "x.data was read under vmap",
    cause="``.data`` would return the tensor without the batch dimension that ``vmap`` keeps for it.",
    fix="Use ``x.detach()``.",
    see=("check:vmap",),
)
def data_under_vmap():
    def normalize(x):
        return x / x.data.norm()

    vmap(normalize)(torch.randn(5, 3))


@fixes(data_under_vmap)
def detach_under_vmap():
    def normalize(x):
        return x / x.detach().norm()

    vmap(normalize)(torch.randn(5, 3))


@raises(
    "A copy in channels_last was made under vmap",
    cause="""A sample under ``vmap`` has one dimension less than the tensor in memory, so a memory format of four
    dimensions does not say how to lay it out.""",
    fix="Change the memory format outside of ``vmap``.",
    see=("check:vmap",),
)
def channels_last_clone_under_vmap():
    images = torch.randn(5, 2, 3, 4, 4)
    vmap(lambda batch: batch.clone(memory_format=torch.channels_last))(images)


@fixes(channels_last_clone_under_vmap)
def plain_clone_under_vmap():
    images = torch.randn(5, 2, 3, 4, 4)
    copies = vmap(lambda batch: batch.clone())(images)
    copies.flatten(0, 1).contiguous(memory_format=torch.channels_last)


@raises(
    "The channels_last format was asked for under vmap",
    cause="""``is_contiguous(memory_format=torch.channels_last)`` has no answer for a sample of a batch.
    ``contiguous(memory_format=...)`` calls it first.""",
    fix="Change the memory format outside of ``vmap``.",
    see=("check:vmap",),
)
def channels_last_asked_under_vmap():
    images = torch.randn(5, 2, 3, 4, 4)
    vmap(lambda batch: batch.contiguous(memory_format=torch.channels_last))(images)


@fixes(channels_last_asked_under_vmap)
def contiguous_under_vmap():
    images = torch.randn(5, 2, 3, 4, 4)
    contiguous = vmap(lambda batch: batch.contiguous())(images)
    contiguous.flatten(0, 1).contiguous(memory_format=torch.channels_last)


@raises(
    "The storage of a tensor was asked for under vmap",
    cause="""``copy.deepcopy``, ``torch.save`` and ``x.untyped_storage()`` read the storage of a tensor. Under ``vmap``
    the tensor is a wrapper around the batch, and the wrapper has no storage.""",
    fix="Copy with ``x.clone()`` instead of ``copy.deepcopy(x)``. Save the tensor, or read its storage, outside of "
    "``vmap``.",
    see=("check:vmap",),
)
def deepcopy_under_vmap():
    import copy

    vmap(lambda x: copy.deepcopy(x).mul_(2))(torch.randn(5, 3))


@fixes(deepcopy_under_vmap)
def clone_under_vmap():
    vmap(lambda x: x.clone().mul_(2))(torch.randn(5, 3))


@raises(
    "in_dims of vmap is neither an integer nor a tuple",
    cause="""``in_dims`` is one integer for all arguments, or a tuple with an entry for each. A list is not accepted
    either.""",
    fix="Write a tuple: ``in_dims=(0, None)``.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def in_dims_none():
    def power(x, exponent):
        return x**exponent

    vmap(power, in_dims=[0, None])(torch.randn(5, 3), 2)


@fixes(in_dims_none)
def in_dims_tuple():
    def power(x, exponent):
        return x**exponent

    vmap(power, in_dims=(0, None))(torch.randn(5, 3), 2)


@raises(
    "vmap got only inputs without a batch",
    cause="With every entry of ``in_dims`` at ``None`` there is nothing to map over, and no batch size.",
    fix="Name the batch dimension of at least one tensor.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def nothing_mapped():
    vmap(torch.sin, in_dims=(None,))(torch.randn(5))


@fixes(nothing_mapped)
def something_mapped():
    vmap(torch.sin, in_dims=(0,))(torch.randn(5))


@raises(
    "The auxiliary output of a function under torch.func is a number",
    cause="""With ``has_aux=True`` PyTorch does not differentiate the second output, but it unwraps it, and it can
    unwrap only tensors or containers of tensors.""",
    fix="Return tensors: ``torch.tensor(x.numel())``, or ``loss.detach()`` instead of ``loss.item()``.",
    see=("guide/backward",),
)
def aux_number():
    def loss(x):
        return x.square().sum(), x.numel()

    grad(loss, has_aux=True)(torch.randn(3))


@fixes(aux_number)
def aux_tensor():
    def loss(x):
        return x.square().sum(), torch.tensor(x.numel())

    grad(loss, has_aux=True)(torch.randn(3))


@raises(
    "argnums names an argument twice",
    cause="Each entry of ``argnums`` gives one gradient, and an argument has one.",
    fix="Name each argument once.",
    see=("guide/backward",),
)
def argnums_twice():
    def loss(weight, x):
        return (weight * x).sum()

    grad(loss, argnums=(0, 0))(torch.randn(3), torch.randn(3))


@fixes(argnums_twice)
def argnums_once():
    def loss(weight, x):
        return (weight * x).sum()

    grad(loss, argnums=(0, 1))(torch.randn(3), torch.randn(3))


@raises(
    "A function under vjp, jacrev or jvp returned nothing",
    cause="""There is no output to differentiate: usually a ``return`` is missing. The text begins with ``vjp`` or
    ``jvp``, whichever was running.""",
    fix="Return the output.",
    see=("guide/backward",),
)
def vjp_returns_none():
    def loss(x):
        x.square().sum()

    jacrev(loss)(torch.randn(3))


@fixes(vjp_returns_none)
def vjp_returns_tensor():
    def loss(x):
        return x.square().sum()

    jacrev(loss)(torch.randn(3))


@raises(
    "The jvp of a Function returned a number",
    cause="""A tangent is a tensor like the output, or ``None`` for an output without a derivative, such as integers.
    Here the derivative is constant, and was returned as a Python float.""",
    fix="Multiply the incoming tangent by it. For an output that does not change, return a tensor of zeros.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def jvp_number():
    class Triple(Function):
        @staticmethod
        def forward(x):
            return 3 * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def jvp(ctx, tangent):
            return 3.0

    jvp(Triple.apply, (torch.randn(3),), (torch.ones(3),))


@fixes(jvp_number)
def jvp_of_tangent():
    class Triple(Function):
        @staticmethod
        def forward(x):
            return 3 * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def jvp(ctx, tangent):
            return 3.0 * tangent

    jvp(Triple.apply, (torch.randn(3),), (torch.ones(3),))


@raises(
    "The jvp of a Function returned a tangent for an output that has none",
    cause="""The second output was marked with ``mark_non_differentiable``, or holds integers, so it has no tangent,
    not even zeros.""",
    fix="Return ``None`` in its place.",
    see=("cookbook/05_higher_order/forward_mode", "cookbook/01_first_steps/several_outputs"),
)
def jvp_of_indices():
    class Sort(Function):
        @staticmethod
        def forward(x):
            return x.sort()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_forward(output[1])

        @staticmethod
        def jvp(ctx, tangent):
            (order,) = ctx.saved_tensors
            return tangent.gather(0, order), torch.zeros(3)

    jvp(lambda x: Sort.apply(x)[0], (torch.randn(3),), (torch.ones(3),))


@fixes(jvp_of_indices)
def jvp_none_for_indices():
    class Sort(Function):
        @staticmethod
        def forward(x):
            return x.sort()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_forward(output[1])

        @staticmethod
        def jvp(ctx, tangent):
            (order,) = ctx.saved_tensors
            return tangent.gather(0, order), None

    jvp(lambda x: Sort.apply(x)[0], (torch.randn(3),), (torch.ones(3),))


@raises(
    "The function of linearize was given a tangent of another dtype",
    cause="""``linearize`` records the derivative for inputs of one shape and dtype. Here the input is ``float32`` and
    the tangent ``float64``.""",
    fix="Convert the tangent: ``tangent.to(x.dtype)``.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def linearize_dtype():
    x, tangent = torch.randn(3), torch.ones(3, dtype=torch.float64)
    _, derivative = linearize(torch.sin, x)
    derivative(tangent)


@fixes(linearize_dtype)
def linearize_same_dtype():
    x, tangent = torch.randn(3), torch.ones(3, dtype=torch.float64)
    _, derivative = linearize(torch.sin, x)
    derivative(tangent.to(x.dtype))


@raises(
    "The function of linearize was given fewer tangents than inputs",
    cause="The recorded derivative takes one tangent for each input of the function, in the same nesting.",
    fix="Pass zeros for an input that does not change.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def linearize_structure():
    x, y, tangent = torch.randn(3, 3).unbind()
    _, derivative = linearize(torch.mul, x, y)
    derivative(tangent)


@fixes(linearize_structure)
def linearize_same_structure():
    x, y, tangent = torch.randn(3, 3).unbind()
    _, derivative = linearize(torch.mul, x, y)
    derivative(tangent, torch.zeros_like(y))


@raises(
    "functional_call got different values for tied parameters",
    cause="""Two names of the module stand for one parameter, but you passed two different tensors for them, so
    PyTorch cannot tell which one to use. Copies count as different, even with equal values; ``model.state_dict()``
    has both names.""",
    fix="""Pass only one of the names; the other follows. With ``tie_weights=False``, PyTorch treats them as two
    parameters.""",
    see=("cookbook/05_higher_order/maml",),
)
def tied_parameters():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    weights = {"0.weight": torch.zeros(3, 3), "1.weight": torch.ones(3, 3)}
    functional_call(model, weights, torch.randn(4, 3))


@fixes(tied_parameters)
def tied_parameter_once():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    weights = {"0.weight": torch.zeros(3, 3)}
    functional_call(model, weights, torch.randn(4, 3))


@raises(
    "functional_call got a tensor for the parameters",
    cause="Its second argument is a dictionary from names to tensors, or a tuple of such dictionaries.",
    fix='Pass ``{"weight": weight}``.',
    see=("cookbook/05_higher_order/maml",),
)
def parameters_as_tensor():
    model = nn.Linear(3, 2, bias=False)
    functional_call(model, torch.zeros(2, 3), torch.randn(4, 3))


@fixes(parameters_as_tensor)
def parameters_as_dict():
    model = nn.Linear(3, 2, bias=False)
    functional_call(model, {"weight": torch.zeros(2, 3)}, torch.randn(4, 3))


@raises(
    "functional_call got a name that the module does not have",
    cause="""With ``strict=True`` each name must be one of the module. Without it a misspelled parameter is ignored, and
    the module's own tensor is used.""",
    fix="Take the names from ``model.named_parameters()``.",
    see=("cookbook/05_higher_order/maml",),
)
def parameter_misspelled():
    model = nn.Linear(3, 2, bias=False)
    mine = {**dict(model.named_parameters()), "wieght": torch.zeros(2, 3)}
    functional_call(model, mine, torch.randn(4, 3), strict=True)


@fixes(parameter_misspelled)
def parameter_spelled():
    model = nn.Linear(3, 2, bias=False)
    mine = {**dict(model.named_parameters()), "weight": torch.zeros(2, 3)}
    functional_call(model, mine, torch.randn(4, 3), strict=True)


@raises(
    "stack_module_state got no models",
    cause="The list is empty: often a generator that was used up before.",
    fix="Pass a list of at least one model.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def ensemble_empty():
    models = (nn.Linear(3, 2) for _ in range(5))
    print(sum(p.numel() for model in models for p in model.parameters()))
    stack_module_state(list(models))


@fixes(ensemble_empty)
def ensemble_of_five():
    models = [nn.Linear(3, 2) for _ in range(5)]
    print(sum(p.numel() for model in models for p in model.parameters()))
    stack_module_state(models)


@raises(
    "retain_grad was called inside of a function under torch.func",
    cause="""``retain_grad`` keeps ``.grad`` of an intermediate tensor during ``backward``. ``torch.func`` returns
    gradients and does not store them.""",
    fix="""Differentiate with respect to the intermediate tensor: split the function there, and use ``vjp`` or ``grad``
    on the second part.""",
    see=("guide/backward",),
)
def retain_grad_inside():
    def loss(x):
        hidden = x.tanh()
        hidden.retain_grad()
        return hidden.square().sum()

    grad(loss)(torch.randn(3))


@fixes(retain_grad_inside)
def second_part_differentiated():
    def loss(hidden):
        return hidden.square().sum()

    grad(loss)(torch.randn(3).tanh())


@raises(
    "vmap warned that it runs an operation sample by sample",
    warning=True,
    cause="""The operation that the text names has no rule for batches, so ``vmap`` calls it once for each sample: the
    result is right, but slower.""",
    fix="""Use an operation that has a rule, often the out-of-place one: ``scatter`` instead of ``scatter_``. For your
    own operator, register a rule with ``torch.library.register_vmap``.""",
    see=("cookbook/05_higher_order/per_sample_gradients", "cookbook/06_beyond_autograd/custom_operator"),
)
def vmap_falls_back():
    def permute(x, order):
        return torch.zeros_like(x).scatter_(0, order, x)

    vmap(permute, in_dims=(0, None))(torch.randn(5, 3), torch.tensor([2, 0, 1]))


@fixes(vmap_falls_back)
def vmap_in_one_call():
    def permute(x, order):
        return torch.zeros_like(x).scatter(0, order, x)

    vmap(permute, in_dims=(0, None))(torch.randn(5, 3), torch.tensor([2, 0, 1]))


@raises(
    "The mask_mod or score_mod of flex_attention branches on a position",
    cause="``create_block_mask`` and ``flex_attention`` run these functions under ``vmap``: their arguments are "
    "tensors without a value that Python could read. ``if``, ``and``, ``int(...)``, ``range(...)`` and slices with "
    "them fail.",
    fix="Write tensor operations only: ``&`` and ``|`` for ``and`` and ``or``, ``torch.where`` for ``if``, and "
    "indexing such as ``offsets[b]`` without ``.item()``.",
    see=("guide/directions",),
)
def mask_mod_branches():
    def causal(batch, head, query, key):
        return query >= key and query < key + 64

    create_block_mask(causal, 1, 1, 128, 128, device="cpu")


@fixes(mask_mod_branches)
def mask_mod_compares():
    def causal(batch, head, query, key):
        return (query >= key) & (query < key + 64)

    create_block_mask(causal, 1, 1, 128, 128, device="cpu")


@raises(
    "torch.while_loop ran under vmap",
    cause="``while_loop`` is an operation that takes functions, and ``vmap`` has no rule for it.",
    fix="""Use a loop with a fixed number of iterations, and leave finished samples unchanged with
    ``torch.where(running, new, old)``. A Python ``for`` under ``vmap`` works.""",
    see=("guide/directions",),
)
def while_loop_under_vmap():
    def doubled(x):
        return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1]

    torch.vmap(doubled)(torch.randn(4))


@fixes(while_loop_under_vmap)
def for_loop_under_vmap():
    def doubled(x):
        for _ in range(3):
            x = x * 2
        return x

    torch.vmap(doubled)(torch.randn(4))


@raises(
    "A custom operator with register_autograd was used under torch.func",
    cause="""``register_autograd`` makes a Function inside PyTorch, and that Function has no ``setup_context`` that
    ``torch.func`` could use. Your own ``setup_context`` does not help here.""",
    fix="Use ``torch.autograd.grad`` instead of ``torch.func.grad``, or call the operator from a "
    "``torch.autograd.Function`` of your own, with ``setup_context`` and a differentiable backward.",
    see=("cookbook/06_beyond_autograd/custom_operator", "check:func_grad"),
)
def operator_under_func():
    @torch.library.custom_op("cookbook::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad_output

    cube.register_autograd(backward, setup_context=setup_context)
    torch.func.grad(lambda x: cube(x).sum())(torch.randn(3))


@fixes(operator_under_func)
def function_under_func():
    class Cube(Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad_output

    torch.func.grad(lambda x: Cube.apply(x).sum())(torch.randn(3))


@raises(
    "Forward mode met a fused attention",
    cause="``scaled_dot_product_attention`` takes a fused kernel by default, and these have no formula for forward "
    "mode, which ``jvp``, ``jacfwd`` and ``hessian`` use.",
    fix="Choose the kernel that is made of ordinary operations: ``with sdpa_kernel(SDPBackend.MATH):`` around the "
    "forward, from ``torch.nn.attention``. Or use reverse mode: ``vjp``, ``jacrev``.",
    see=("cookbook/05_higher_order/forward_mode", "guide/directions"),
)
def attention_in_forward_mode():
    query = torch.randn(1, 2, 4, 8)
    key, value = torch.randn(2, 1, 2, 4, 8)

    def attend(query):
        return nn.functional.scaled_dot_product_attention(query, key, value)

    torch.func.jvp(attend, (query,), (torch.ones_like(query),))


@fixes(attention_in_forward_mode)
def attention_of_operations():
    query = torch.randn(1, 2, 4, 8)
    key, value = torch.randn(2, 1, 2, 4, 8)

    def attend(query):
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            return nn.functional.scaled_dot_product_attention(query, key, value)

    torch.func.jvp(attend, (query,), (torch.ones_like(query),))


@raises(
    "A recurrent layer ran under vmap",
    cause="``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` are one operation with weights in a list, and ``vmap`` has no rule "
    "for it.",
    fix="Give the layer the batch instead of mapping over it, with ``batch_first=True`` if the batch comes first. "
    "Where each sample needs its own gradient or weights, write the cell with ``nn.Linear`` and loop over time; "
    "``vmap`` has no rule for ``nn.LSTMCell`` either.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def recurrent_under_vmap():
    layer = nn.LSTM(3, 2)
    vmap(lambda sequence: layer(sequence)[0])(torch.randn(5, 7, 3))


@fixes(recurrent_under_vmap)
def recurrent_with_batch():
    layer = nn.LSTM(3, 2, batch_first=True)
    layer(torch.randn(5, 7, 3))


@raises(
    "A normalization or convolution under vmap got a sample without its batch dimension",
    cause="Inside ``vmap``, a tensor has one dimension less: the batch is hidden. Batch norm, and layers that insist "
    "on a batch, then see too few dimensions.",
    fix="Add a batch of one inside: ``layer(x[None])[0]``. Batch norm in training mode would compute the statistics of "
    "this one sample; call it in ``eval()``, use ``nn.GroupNorm``, or apply it outside of ``vmap``.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def sample_without_batch():
    norm = nn.BatchNorm2d(3).eval()
    vmap(norm)(torch.randn(5, 3, 4, 4))


@fixes(sample_without_batch)
def sample_with_batch():
    norm = nn.BatchNorm2d(3).eval()
    vmap(lambda x: norm(x[None])[0])(torch.randn(5, 3, 4, 4))


@raises(
    "A reentrant checkpoint ran inside of torch.func",
    cause="``checkpoint(..., use_reentrant=True)`` is an ``autograd.Function`` without ``setup_context``, so the "
    "transforms of ``torch.func`` cannot run it. You did not write that Function.",
    fix="Turn checkpointing off inside of the transform. ``use_reentrant=False`` does not work there either in torch "
    "2.13: it needs saved-tensor hooks. To save memory, pass ``chunk_size`` to ``vmap`` or ``jacrev``.",
    see=("cookbook/04_memory/checkpointing", "cookbook/05_higher_order/per_sample_gradients"),
)
def checkpoint_under_func():
    layer = nn.Linear(3, 3)

    def loss(x):
        return checkpoint(layer, x, use_reentrant=True).sum()

    vmap(grad(loss))(torch.randn(4, 3))


@fixes(checkpoint_under_func)
def chunks_under_func():
    layer = nn.Linear(3, 3)

    def loss(x):
        return layer(x).sum()

    vmap(grad(loss), chunk_size=2)(torch.randn(4, 3))


@raises(
    "functional_call got the arguments of the module one by one",
    cause="``functional_call(module, parameters, args, kwargs)`` takes the positional arguments as one tuple. The "
    "second tensor arrived where it expects a dictionary of keyword arguments.",
    fix="Put them in a tuple: ``functional_call(module, parameters, (x, y))``.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def functional_call_without_tuple():
    module = nn.Bilinear(3, 3, 1)
    parameters = dict(module.named_parameters())
    functional_call(module, parameters, torch.randn(4, 3), torch.randn(4, 3))


@fixes(functional_call_without_tuple)
def functional_call_with_tuple():
    module = nn.Bilinear(3, 3, 1)
    parameters = dict(module.named_parameters())
    functional_call(module, parameters, (torch.randn(4, 3), torch.randn(4, 3)))


@raises(
    "torch.autograd.functional.hessian was given a function with several outputs",
    cause="A Hessian is the matrix of second derivatives of one number. This function returns a vector.",
    fix="Reduce the output to a number: ``hessian(lambda x: f(x).sum(), x)``. For the second derivatives of each "
    "output of a vector, use ``torch.func.jacfwd(torch.func.jacrev(f))(x)``.",
    see=("cookbook/05_higher_order/hessian",),
)
def hessian_of_vector():
    torch.autograd.functional.hessian(lambda x: x**3, torch.randn(3))


@fixes(hessian_of_vector)
def hessian_of_number():
    torch.autograd.functional.hessian(lambda x: (x**3).sum(), torch.randn(3))


@raises(
    "torch.autograd.functional.hessian was given a function that returns a tuple",
    cause="A Hessian is the matrix of second derivatives of one number, and this function returns several tensors.",
    fix="Return the loss alone: ``hessian(lambda x: f(x)[0], x)``.",
    see=("cookbook/05_higher_order/hessian",),
)
def hessian_of_tuple():
    torch.autograd.functional.hessian(lambda x: ((x**3).sum(), x.norm()), torch.randn(3))


@fixes(hessian_of_tuple)
def hessian_of_first():
    torch.autograd.functional.hessian(lambda x: (x**3).sum(), torch.randn(3))


@raises(
    "vjp of torch.autograd.functional was given no vector for an output with several elements",
    cause="""The product is the vector times the Jacobian, so the vector has the shape of the output. You may leave it
    out only if the output is one number. ``hvp`` and ``jvp`` raise the same message about the input.""",
    fix="Pass it: ``vjp(f, x, torch.ones_like(f(x)))`` for the sum of the rows. For ``jvp`` and ``hvp``, ``v`` has the "
    "shape of the input.",
    see=("guide/directions",),
)
def vjp_without_vector():
    torch.autograd.functional.vjp(torch.sin, torch.randn(3))


@fixes(vjp_without_vector)
def vjp_with_vector():
    torch.autograd.functional.vjp(torch.sin, torch.randn(3), torch.ones(3))


@raises(
    "The vector of a vjp, jvp or hvp of torch.autograd.functional has the wrong shape",
    cause="``vjp`` takes a vector with the shape of the output, ``jvp``, ``hvp`` and ``vhp`` one with the shape of the "
    "input.",
    fix="Give ``v`` the shape that the message names: ``torch.randn_like(x)`` for an input.",
    see=("guide/directions",),
)
def vector_of_other_size():
    torch.autograd.functional.hvp(lambda x: (x**3).sum(), torch.randn(3), torch.randn(4))


@fixes(vector_of_other_size)
def vector_of_same_size():
    torch.autograd.functional.hvp(lambda x: (x**3).sum(), torch.randn(3), torch.randn(3))


@raises(
    "torch.autograd.functional was given its inputs in a list",
    cause="``jacobian``, ``hessian``, ``vjp`` and the others take a tensor, or a tuple of tensors for a function of "
    "several arguments. A list, a dictionary or a number is refused; an output of the function, too.",
    fix="Pass a tuple: ``jacobian(f, (x, y))``. For dictionaries of parameters, use ``torch.func.jacrev``, which takes "
    "them as they are.",
    see=("guide/directions",),
)
def functional_inputs_in_list():
    torch.autograd.functional.jacobian(torch.sin, [torch.randn(3)])


@fixes(functional_inputs_in_list)
def functional_inputs_in_tuple():
    torch.autograd.functional.jacobian(torch.sin, (torch.randn(3),))


@raises(
    "The function does not depend on an input, and strict=True asks that it does",
    cause="""With ``strict=True``, ``jacobian`` and the others raise if the output has no path to the input, instead
    of returning zeros. Here the function does not use the input, or ``detach()``, ``.item()`` or NumPy cut the
    graph.""",
    fix="Find where the graph is cut. If the input really has no influence, drop it from the inputs, or leave "
    "``strict`` at its default and take zeros.",
    see=("guide/graph",),
)
def jacobian_of_independent():
    def scaled(x, factor):
        return 2 * x

    torch.autograd.functional.jacobian(scaled, (torch.randn(3), torch.randn(3)), strict=True)


@fixes(jacobian_of_independent)
def jacobian_of_dependent():
    def scaled(x, factor):
        return factor * x

    torch.autograd.functional.jacobian(scaled, (torch.randn(3), torch.randn(3)), strict=True)


@raises(
    "Forward mode was asked of torch.autograd.functional without vectorize",
    cause='``strategy="forward-mode"`` computes all columns of the Jacobian in one pass under ``vmap``, and is there '
    "only with ``vectorize=True``.",
    fix="Pass ``vectorize=True`` as well, or use ``torch.func.jacfwd(f)(x)``, its successor.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def forward_without_vectorize():
    torch.autograd.functional.jacobian(torch.sin, torch.randn(3), strategy="forward-mode")


@fixes(forward_without_vectorize)
def forward_with_vectorize():
    torch.autograd.functional.jacobian(torch.sin, torch.randn(3), strategy="forward-mode", vectorize=True)


@raises(
    "A shared tensor is filled with random numbers in place, different for each sample",
    cause="The tensor has no batch dimension inside of vmap: it was made there, or captured from outside. So an "
    "operation that writes random numbers into it (``bernoulli_``, ``normal_``, ``dropout_``) cannot give each sample "
    "its own.",
    fix="Use an operation that returns a new tensor: ``torch.rand_like``, ``torch.bernoulli``, ``nn.Dropout()`` "
    "without ``inplace=True``. Or ask for the same numbers in all samples: ``randomness='same'``.",
    see=("cookbook/05_higher_order/per_sample_gradients",),
)
def vmap_random_in_place():
    def noisy(x):
        return x + torch.zeros(5).normal_()

    vmap(noisy, randomness="different")(torch.randn(3, 5))


@fixes(vmap_random_in_place)
def vmap_random_out_of_place():
    def noisy(x):
        return x + torch.randn_like(x)

    vmap(noisy, randomness="different")(torch.randn(3, 5))


@raises(
    "jacobian was asked for forward mode and for a differentiable result",
    cause="``torch.autograd.functional.jacobian`` in forward mode records no graph of its result.",
    fix="Use ``torch.func.jacfwd``, whose result is differentiable: ``torch.func.jacfwd(f)(x)``. Or leave out "
    "``strategy='forward-mode'``.",
    see=("cookbook/05_higher_order/forward_mode", "cookbook/05_higher_order/hessian"),
)
def jacobian_forward_with_graph():
    x = torch.randn(3, requires_grad=True)
    jacobian = torch.autograd.functional.jacobian(
        torch.sin, x, create_graph=True, strategy="forward-mode", vectorize=True
    )
    jacobian.sum().backward()


@fixes(jacobian_forward_with_graph)
def jacobian_by_func():
    x = torch.randn(3, requires_grad=True)
    torch.func.jacfwd(torch.sin)(x).sum().backward()


@raises(
    "strict and vectorize were both given to jacobian or hessian",
    cause="""``strict=True`` checks row by row whether each output depends on each input. ``vectorize=True`` computes
    all rows in one backward, which cannot check that.""",
    fix="Leave one of them out. ``strict=True`` is for finding a cut graph, ``vectorize=True`` for speed.",
    see=("cookbook/05_higher_order/hessian",),
)
def jacobian_strict_vectorized():
    x = torch.randn(3)
    torch.autograd.functional.jacobian(torch.sin, x, strict=True, vectorize=True)


@fixes(jacobian_strict_vectorized)
def jacobian_vectorized():
    x = torch.randn(3)
    torch.autograd.functional.jacobian(torch.sin, x, vectorize=True)


@raises(
    "A compressed sparse tensor met an operation that reads strides, mostly under torch.func",
    cause="""The transforms wrap each tensor and ask it for its strides, but the layouts CSR, CSC and BSR have none.
    Old releases also asked for strides in the backward of complex sparse tensors.""",
    fix="Use the COO layout, ``matrix.to_sparse_coo()``, or a dense matrix inside of the transform. Or take the "
    "gradient with ``torch.autograd.grad``, which handles CSR.",
    see=("guide/func",),
)
def csr_under_transform():
    matrix = torch.eye(3).to_sparse_csr()
    grad(lambda x: (matrix @ x).sum())(torch.randn(3))


@fixes(csr_under_transform)
def coo_under_transform():
    matrix = torch.eye(3).to_sparse_coo()
    grad(lambda x: (matrix @ x).sum())(torch.randn(3))


@raises(
    "A transform was asked for a Jacobian of complex numbers",
    cause="A complex function has two derivatives, with respect to a number and to its conjugate, and one matrix "
    "cannot show both. ``jacrev`` and ``hessian`` therefore take real inputs and outputs only, and so does ``jacfwd``.",
    fix="Split each complex tensor into its parts: write the function of ``torch.view_as_real(z)``, call "
    "``torch.view_as_complex`` inside, and return ``torch.view_as_real`` of the result. For a real loss, ``backward`` "
    "or ``torch.func.grad`` is enough.",
    see=("cookbook/05_higher_order/complex_numbers", "cookbook/05_higher_order/hessian"),
)
def jacobian_of_complex():
    z = torch.randn(3, dtype=torch.complex64)
    jacrev(torch.exp)(z)


@fixes(jacobian_of_complex)
def jacobian_of_parts():
    z = torch.randn(3, dtype=torch.complex64)
    jacrev(lambda parts: torch.view_as_real(torch.view_as_complex(parts).exp()))(torch.view_as_real(z))


@raises(
    "argnums is empty",
    cause="``argnums`` says which arguments to differentiate with respect to. An empty tuple asks for no gradient.",
    fix="Give the positions that you need, such as ``argnums=0`` or ``argnums=(0, 2)``. If the tuple is computed, "
    "check why it is empty.",
    see=("guide/func",),
)
def argnums_empty():
    grad(lambda x: x.square().sum(), argnums=())(torch.randn(3))


@fixes(argnums_empty)
def argnums_given():
    grad(lambda x: x.square().sum(), argnums=(0,))(torch.randn(3))


@raises(
    "out_dims of vmap is not an integer",
    cause="``out_dims`` says where the batch dimension goes in each output: an integer or ``None``, or a tuple of "
    "these in the structure of the outputs.",
    fix="Give integers: ``out_dims=0``, or ``out_dims=(0, None)`` for two outputs of which the second has no batch "
    "dimension.",
    see=("guide/func",),
)
def out_dims_is_string():
    vmap(torch.sin, out_dims="batch")(torch.randn(2, 3))


@fixes(out_dims_is_string)
def out_dims_is_integer():
    vmap(torch.sin, out_dims=0)(torch.randn(2, 3))


@raises(
    "A random operation has no rule for vmap",
    cause="vmap must know whether each sample gets numbers of its own. For this random operation, no rule exists.",
    fix="Draw the random numbers outside of vmap and pass them in with a batch dimension, or write the operation with "
    '``torch.rand_like`` and ``randomness="different"``.',
    see=("guide/func",),
)
def rrelu_under_vmap():
    vmap(lambda x: F.rrelu(x, training=True), randomness="different")(torch.randn(2, 3))


@fixes(rrelu_under_vmap)
def rrelu_written_under_vmap():
    def rrelu(x):
        slope = 1 / 8 + torch.rand_like(x) * (1 / 3 - 1 / 8)
        return torch.where(x < 0, x * slope, x)

    vmap(rrelu, randomness="different")(torch.randn(2, 3))


@raises(
    "A scripted module or a DataParallel was called functionally",
    cause="""``functional_call`` replaces the parameters of the module by your tensors while it runs. TorchScript has
    its own copy of the parameters, and DataParallel makes replicas, so neither would use your tensors.""",
    fix="Call the plain module: do not script it, and take ``model.module`` out of DataParallel.",
    see=("guide/func",),
)
def scripted_module_called():
    model = torch.jit.script(nn.Linear(3, 1))
    functional_call(model, dict(model.named_parameters()), torch.randn(4, 3))


@fixes(scripted_module_called)
def plain_module_called():
    model = nn.Linear(3, 1)
    functional_call(model, dict(model.named_parameters()), torch.randn(4, 3))


@raises(
    "functorch.make_functional was given a module with buffers",
    cause="The functions of the old ``functorch`` package separate parameters and buffers, and ``make_functional`` "
    "returns the parameters only. A batch norm has buffers.",
    fix="Use ``torch.func``: ``functional_call(model, (params, buffers), x)`` with ``dict(model.named_parameters())`` "
    "and ``dict(model.named_buffers())``. It also supports tied weights, which ``make_functional`` refuses.",
    see=("guide/func",),
)
def functional_with_buffers():
    make_functional(nn.BatchNorm1d(3))


@fixes(functional_with_buffers)
def functional_call_with_buffers():
    model = nn.BatchNorm1d(3)
    params, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    functional_call(model, (params, buffers), torch.randn(4, 3))


@raises(
    "make_dual was given a number",
    cause="A dual tensor is a tensor with a tangent. A Python number has no dtype or device to check the tangent "
    "against.",
    fix="Pass tensors: ``fwAD.make_dual(torch.tensor(2.0), torch.tensor(1.0))``.",
    see=("cookbook/05_higher_order/forward_mode",),
)
def dual_of_number():
    with fwAD.dual_level():
        fwAD.make_dual(2.0, torch.tensor(1.0))


@fixes(dual_of_number)
def dual_of_scalar():
    with fwAD.dual_level():
        fwAD.make_dual(torch.tensor(2.0), torch.tensor(1.0))


@raises(
    "A Function was called under torch.func.functionalize",
    cause="``functionalize`` rewrites in-place operations. It has no rule for an ``autograd.Function`` in this "
    "release.",
    fix="Apply ``functionalize`` to the part without the Function, or drop it: ``torch.compile`` and ``torch.export`` "
    "functionalize by themselves and support Functions.",
    see=("guide/func",),
)
def function_functionalized():
    class Double(Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 2

    functionalize(Double.apply)(torch.randn(3))


@fixes(function_functionalized)
def operation_functionalized():
    functionalize(lambda x: x.clone().mul_(2))(torch.randn(3))


@raises(
    "The vector of a functional product has another structure than the inputs or outputs",
    cause="``torch.autograd.functional.vjp`` takes one tensor for each output, ``jvp``, ``vhp`` and ``hvp`` one for "
    "each input. If the function takes or returns a tuple, ``v`` is a tuple of the same length.",
    fix="Give ``v`` the structure of the inputs (or, for ``vjp``, of the outputs): "
    "``tuple(torch.ones_like(x) for x in inputs)``.",
    see=("guide/higher_order",),
)
def vectors_too_many():
    x, y = torch.randn(3), torch.randn(3)
    ones = torch.ones(3)
    torch.autograd.functional.jvp(torch.mul, (x, y), (ones, ones, ones))


@fixes(vectors_too_many)
def vector_for_each_input():
    x, y = torch.randn(3), torch.randn(3)
    ones = torch.ones(3)
    torch.autograd.functional.jvp(torch.mul, (x, y), (ones, ones))


@raises(
    "An unknown way to compute a Jacobian was chosen",
    cause='``strategy``, and ``outer_jacobian_strategy`` of ``hessian``, is ``"reverse-mode"`` or ``"forward-mode"``.',
    fix='Write ``strategy="forward-mode"`` together with ``vectorize=True``, or leave both out.',
    see=("guide/higher_order",),
)
def strategy_unknown():
    torch.autograd.functional.jacobian(torch.sin, torch.randn(3), strategy="forward", vectorize=True)


@fixes(strategy_unknown)
def strategy_known():
    torch.autograd.functional.jacobian(torch.sin, torch.randn(3), strategy="forward-mode", vectorize=True)
