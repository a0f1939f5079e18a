"""Saved tensors, hooks and checkpoints."""

import io

import torch
from docs.errors.programs import fixes, raises
from torch import nn
from torch.autograd import Function
from torch.autograd.graph import (
    allow_mutation_on_saved_tensors,
    save_on_cpu,
    saved_tensors_hooks,
)
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)


@raises(
    "A pack hook changed the tensor that it was given",
    cause="""The hook receives the very tensor that the graph uses, and PyTorch compares the tensor's version before
    and after the hook. Here ``clamp_`` would change the values that the forward still computes with.""",
    fix="Work out of place in the hook: return a new tensor, for example ``tensor.clamp(-65504, 65504)``.",
    see=("cookbook/04_memory/saved_tensor_hooks",),
)
def pack_in_place():
    def pack(tensor):
        return tensor.clamp_(-65504, 65504).half()  # the largest number of float16

    def unpack(packed):
        return packed.float()

    x = torch.randn(8, requires_grad=True)
    with saved_tensors_hooks(pack, unpack):
        (x * 2).pow(2).sum().backward()


@fixes(pack_in_place)
def pack_out_of_place():
    def pack(tensor):
        return tensor.clamp(-65504, 65504).half()  # the largest number of float16

    def unpack(packed):
        return packed.float()

    x = torch.randn(8, requires_grad=True)
    with saved_tensors_hooks(pack, unpack):
        (x * 2).pow(2).sum().backward()


@raises(
    "An unpack hook returned something that is not a tensor",
    cause="""``pack`` may return anything, but ``unpack`` must return a tensor, because the backward formula gets its
    result. Here ``unpack`` returns the tuple of the device and the tensor.""",
    fix="Rebuild the tensor in ``unpack`` and return only that.",
    see=("cookbook/04_memory/saved_tensor_hooks",),
)
def unpack_returns_tuple():
    def pack(tensor):
        return tensor.device, tensor.bfloat16()

    def unpack(packed):
        return packed

    x = torch.randn(8, requires_grad=True)
    with saved_tensors_hooks(pack, unpack):
        loss = x.exp().sum()
    loss.backward()


@fixes(unpack_returns_tuple)
def unpack_returns_tensor():
    def pack(tensor):
        return tensor.device, tensor.bfloat16()

    def unpack(packed):
        device, tensor = packed
        return tensor.to(device, torch.float32)

    x = torch.randn(8, requires_grad=True)
    with saved_tensors_hooks(pack, unpack):
        loss = x.exp().sum()
    loss.backward()


@raises(
    "A saved tensor that has hooks got a second pair",
    cause="""A saved tensor takes one pair of hooks. This one has a pair already, from ``register_hooks`` or from a
    context manager.""",
    fix="Combine the two pairs into one pair of functions, and register that pair.",
    see=("cookbook/04_memory/saved_tensor_hooks",),
)
def saved_tensor_hooked_twice():
    x = torch.randn(4, requires_grad=True)
    y = x.exp()
    saved = y.grad_fn._raw_saved_result
    saved.register_hooks(lambda t: t.half(), lambda t: t.float())
    saved.register_hooks(lambda t: t.cpu(), lambda t: t)


@fixes(saved_tensor_hooked_twice)
def saved_tensor_hooked_once():
    x = torch.randn(4, requires_grad=True)
    y = x.exp()
    saved = y.grad_fn._raw_saved_result
    saved.register_hooks(lambda t: t.half().cpu(), lambda t: t.float())
    y.sum().backward()


@raises(
    "Hooks were set on a saved tensor that backward had freed",
    cause="""``backward`` frees the saved tensors of every node that it ran, unless ``retain_graph=True``. There is
    nothing left to pack.""",
    fix="Set the hooks between the forward and the backward, or keep the graph with ``retain_graph=True``.",
    see=("cookbook/04_memory/saved_tensor_hooks", "guide/graph"),
)
def saved_tensor_hooked_after_backward():
    x = torch.randn(4, requires_grad=True)
    y = x.exp()
    y.sum().backward()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t.half(), lambda t: t.float())


@fixes(saved_tensor_hooked_after_backward)
def saved_tensor_hooked_before_backward():
    x = torch.randn(4, requires_grad=True)
    y = x.exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t.half(), lambda t: t.float())
    y.sum().backward()


@raises(
    "Hooks were set on a saved tensor that is None",
    cause="""The node has a place for this tensor, but the place is empty: ``ctx.save_for_backward`` was given
    ``None``, or the operation did not need that tensor.""",
    fix="Skip the saved tensors whose ``data`` or unpacked value is ``None``, and set hooks on the others.",
    see=("cookbook/04_memory/saved_tensor_hooks",),
)
def hooks_on_saved_none():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, scale, bias):
            ctx.save_for_backward(scale, bias)
            return x * scale if bias is None else x * scale + bias

        @staticmethod
        def backward(ctx, grad_output):
            scale, _ = ctx.saved_tensors
            return grad_output * scale, None, None

    y = Scale.apply(torch.randn(4, requires_grad=True), torch.ones(4), None)
    for saved in y.grad_fn._raw_saved_tensors:
        saved.register_hooks(lambda t: t.half(), lambda t: t.float())


@fixes(hooks_on_saved_none)
def hooks_on_saved_tensors():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, scale, bias):
            ctx.save_for_backward(scale, bias)
            return x * scale if bias is None else x * scale + bias

        @staticmethod
        def backward(ctx, grad_output):
            scale, _ = ctx.saved_tensors
            return grad_output * scale, None, None

    y = Scale.apply(torch.randn(4, requires_grad=True), torch.ones(4), None)
    for saved, tensor in zip(y.grad_fn._raw_saved_tensors, y.grad_fn.saved_tensors, strict=True):
        if tensor is not None:
            saved.register_hooks(lambda t: t.half(), lambda t: t.float())
    y.sum().backward()


@raises(
    "Saved-tensor hooks were active around torch.func",
    cause="""``torch.func.grad``, ``vjp``, ``jacrev`` and ``hessian`` switch saved-tensor hooks off while they run.
    They raise if hooks are already active, or if the function enters some. ``save_on_cpu`` and ``checkpoint`` with
    ``use_reentrant=False`` use such hooks.""",
    fix="Use ``torch.autograd.grad`` inside the context of the hooks, or call ``torch.func`` outside of it.",
    see=("cookbook/04_memory/saved_tensor_hooks", "check:func_grad"),
)
def hooks_around_func_grad():
    def loss(x):
        return x.exp().sum()

    x = torch.randn(4)
    with save_on_cpu():
        torch.func.grad(loss)(x)


@fixes(hooks_around_func_grad)
def hooks_around_autograd_grad():
    def loss(x):
        return x.exp().sum()

    x = torch.randn(4, requires_grad=True)
    with save_on_cpu():
        torch.autograd.grad(loss(x), x)


@raises(
    "A saved tensor was detached in place before backward",
    cause="""``detach_`` removes the tensor itself from its graph, and ``sin`` had saved that same tensor. The saved
    tensor has lost its ``grad_fn``, so backward cannot continue from it.""",
    fix="Detach out of place, ``y.detach()``, so that the tensor in the graph does not change.",
    see=("guide/graph",),
)
def saved_tensor_detached_in_place():
    x = torch.randn(4, requires_grad=True)
    y = x * 2
    loss = y.sin().sum()
    y.detach_()
    loss.backward()


@fixes(saved_tensor_detached_in_place)
def saved_tensor_detached():
    x = torch.randn(4, requires_grad=True)
    y = x * 2
    loss = y.sin().sum()
    y = y.detach()
    loss.backward()


@raises(
    "allow_mutation_on_saved_tensors was entered twice",
    cause="""The context is one switch for the whole process, and it is already on: here the calling function entered
    it.""",
    fix="Enter the context once, at the outermost place.",
    see=("cookbook/04_memory/in_place",),
)
def mutation_context_nested():
    def activation(x):
        with allow_mutation_on_saved_tensors():
            y = x.sin()
            x.mul_(2)
            return y

    x = torch.randn(4, requires_grad=True)
    with allow_mutation_on_saved_tensors():
        activation(x.clone()).sum().backward()


@fixes(mutation_context_nested)
def mutation_context_once():
    def activation(x):
        y = x.sin()
        x.mul_(2)
        return y

    x = torch.randn(4, requires_grad=True)
    with allow_mutation_on_saved_tensors():
        activation(x.clone()).sum().backward()


@raises(
    "backward ran after the context that allows mutation had ended",
    cause="""``allow_mutation_on_saved_tensors`` keeps the saved tensors, and copies of those that were changed, until
    the context ends. A later backward finds neither, even if nothing was changed.""",
    fix="Run ``backward`` inside the same context as the forward.",
    see=("cookbook/04_memory/in_place",),
)
def mutation_context_left():
    x = torch.randn(4, requires_grad=True)
    with allow_mutation_on_saved_tensors():
        y = x.clone()
        loss = y.sin().sum()
        y.mul_(2)
    loss.backward()


@fixes(mutation_context_left)
def mutation_context_kept():
    x = torch.randn(4, requires_grad=True)
    with allow_mutation_on_saved_tensors():
        y = x.clone()
        loss = y.sin().sum()
        y.mul_(2)
        loss.backward()


@raises(
    "A tensor with a hook was pickled",
    warning=True,
    cause="""Pickle does not store the hooks of a tensor. The tensor that ``torch.load`` returns, here or in another
    process, has no hooks.""",
    fix="""Save ``tensor.detach()``; after loading, call ``requires_grad_()`` and register the hook again. Or decorate
    the hook with ``torch.utils.hooks.unserializable_hook``, which says that the hook may be lost.""",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def hooked_tensor_saved():
    def clamp(grad):
        return grad.clamp(-1, 1)

    weight = torch.randn(4, requires_grad=True)
    weight.register_hook(clamp)
    torch.save(weight, io.BytesIO())


@fixes(hooked_tensor_saved)
def hooked_tensor_saved_detached():
    def clamp(grad):
        return grad.clamp(-1, 1)

    weight = torch.randn(4, requires_grad=True)
    weight.register_hook(clamp)
    torch.save(weight.detach(), io.BytesIO())


@raises(
    "The output of a module with a backward hook was changed in place",
    cause="""A full backward hook, or pre-hook, passes inputs and outputs of the module through a Function that
    returns views. Changing such a view in place would bypass the hook. ``nn.ReLU(inplace=True)`` after the module does
    that, and so does one that has the hook itself.""",
    fix="Change out of place what goes into the hooked module and what comes out of it: ``nn.ReLU()`` instead of "
    "``nn.ReLU(inplace=True)``, ``out = out + x`` instead of ``out += x``.",
    see=("cookbook/02_changing_the_gradient/hooks", "cookbook/04_memory/in_place"),
)
def hooked_module_then_in_place():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    model[0].register_full_backward_hook(lambda module, grad_input, grad_output: None)
    model(torch.randn(2, 3)).sum().backward()


@fixes(hooked_module_then_in_place)
def hooked_module_then_out_of_place():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    model[0].register_full_backward_hook(lambda module, grad_input, grad_output: None)
    model(torch.randn(2, 3)).sum().backward()


@raises(
    "A forward pre-hook with keyword arguments returned only one value",
    cause="With ``with_kwargs=True`` a pre-hook returns ``None`` or the pair ``(args, kwargs)``, which replaces both.",
    fix="Return the pair ``(args, kwargs)``.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def pre_hook_returns_args():
    def double(module, args, kwargs):
        return (args[0] * 2,)

    layer = nn.Linear(3, 2)
    layer.register_forward_pre_hook(double, with_kwargs=True)
    layer(torch.ones(1, 3))


@fixes(pre_hook_returns_args)
def pre_hook_returns_pair():
    def double(module, args, kwargs):
        return (args[0] * 2,), kwargs

    layer = nn.Linear(3, 2)
    layer.register_forward_pre_hook(double, with_kwargs=True)
    layer(torch.ones(1, 3))


@raises(
    "checkpoint was called without use_reentrant",
    warning=True,
    cause="""The reentrant and the non-reentrant implementation support different things, and the default is still the
    older, reentrant one. The text announces an exception for 2.9, but 2.13 still only warns.""",
    fix="Pass ``use_reentrant=False``.",
    see=("cookbook/04_memory/checkpointing",),
)
def checkpoint_unspecified():
    layer = nn.Linear(3, 3)
    x = torch.randn(4, 3, requires_grad=True)
    checkpoint(layer, x).sum().backward()


@fixes(checkpoint_unspecified)
def checkpoint_specified():
    layer = nn.Linear(3, 3)
    x = torch.randn(4, 3, requires_grad=True)
    checkpoint(layer, x, use_reentrant=False).sum().backward()


@raises(
    "checkpoint_sequential was called without use_reentrant",
    warning=True,
    cause="""``checkpoint_sequential`` takes the same switch as ``checkpoint``, and its default is the older,
    reentrant implementation.""",
    fix="Pass ``use_reentrant=False``.",
    see=("cookbook/04_memory/checkpointing",),
)
def checkpoint_sequential_unspecified():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    x = torch.randn(4, 3, requires_grad=True)
    checkpoint_sequential(model, 2, x).sum().backward()


@fixes(checkpoint_sequential_unspecified)
def checkpoint_sequential_specified():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    x = torch.randn(4, 3, requires_grad=True)
    checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()


@raises(
    "No input of a reentrant checkpoint needs a gradient",
    warning=True,
    cause="""The reentrant implementation is a Function of the inputs. If no input requires a gradient, its output
    does not require one either, and the parameters inside get no gradient. This is typical for the first layers,
    which see the data. A tensor inside a list or a dict does not count as an input.""",
    fix="Use ``use_reentrant=False``, which does not depend on the inputs.",
    see=("cookbook/04_memory/checkpointing", "check:checkpoint"),
)
def reentrant_without_input_grad():
    layer = nn.Linear(3, 3)
    data = torch.randn(4, 3)
    checkpoint(layer, data, use_reentrant=True)


@fixes(reentrant_without_input_grad)
def nonreentrant_without_input_grad():
    layer = nn.Linear(3, 3)
    data = torch.randn(4, 3)
    checkpoint(layer, data, use_reentrant=False).sum().backward()


@raises(
    "A reentrant checkpoint was given keyword arguments of the function",
    cause="""With ``use_reentrant=True``, ``checkpoint`` passes only positional arguments to the function. It takes
    ``scale`` for an option of its own, and it has no such option.""",
    fix="Use ``use_reentrant=False``, which passes keyword arguments on. Otherwise pass them by position, or bind "
    "them: ``functools.partial(function, scale=2.0)``.",
    see=("cookbook/04_memory/checkpointing",),
)
def reentrant_keyword():
    def scaled(x, scale):
        return scale * x.exp()

    x = torch.randn(3, requires_grad=True)
    checkpoint(scaled, x, scale=2.0, use_reentrant=True).sum().backward()


@fixes(reentrant_keyword)
def nonreentrant_keyword():
    def scaled(x, scale):
        return scale * x.exp()

    x = torch.randn(3, requires_grad=True)
    checkpoint(scaled, x, scale=2.0, use_reentrant=False).sum().backward()


@raises(
    "torch.autograd.grad ran through a reentrant checkpoint",
    cause="""The reentrant implementation calls ``torch.autograd.backward`` inside its own backward, which fills
    ``.grad`` of every leaf. ``torch.autograd.grad`` and ``backward(inputs=...)`` promise not to fill other ``.grad``,
    so PyTorch refuses.""",
    fix="Use ``use_reentrant=False``.",
    see=("cookbook/04_memory/checkpointing",),
)
def reentrant_autograd_grad():
    layer = nn.Linear(3, 3)
    x = torch.randn(4, 3, requires_grad=True)
    loss = checkpoint(layer, x, use_reentrant=True).sum()
    torch.autograd.grad(loss, x)


@fixes(reentrant_autograd_grad)
def nonreentrant_autograd_grad():
    layer = nn.Linear(3, 3)
    x = torch.randn(4, 3, requires_grad=True)
    loss = checkpoint(layer, x, use_reentrant=False).sum()
    torch.autograd.grad(loss, x)


@raises(
    "A reentrant checkpoint holds a function whose result needs no gradient",
    cause="""The reentrant implementation marks its output as requiring a gradient because an input does. In the
    recomputation, no output has a graph: the function detaches its result, or it runs under ``no_grad``.""",
    fix="Call such a function without a checkpoint, or use ``use_reentrant=False``.",
    see=("cookbook/04_memory/checkpointing",),
)
def reentrant_detached_output():
    def target(x):
        return torch.sigmoid(x).detach()

    x = torch.randn(4, requires_grad=True)
    y = checkpoint(target, x, use_reentrant=True)
    (x * y).sum().backward()


@fixes(reentrant_detached_output)
def nonreentrant_detached_output():
    def target(x):
        return torch.sigmoid(x).detach()

    x = torch.randn(4, requires_grad=True)
    y = checkpoint(target, x, use_reentrant=False)
    (x * y).sum().backward()


@raises(
    "A reentrant checkpoint was given keyword arguments",
    cause="""Only the non-reentrant implementation passes keyword arguments to the function. The reentrant one knows
    only ``preserve_rng_state``.""",
    fix="Pass them by position, or use ``use_reentrant=False``.",
    see=("cookbook/04_memory/checkpointing",),
)
def reentrant_keywords():
    def scale(x, factor):
        return x.sin() * factor

    x = torch.randn(4, requires_grad=True)
    checkpoint(scale, x, factor=2.0, use_reentrant=True)


@fixes(reentrant_keywords)
def nonreentrant_keywords():
    def scale(x, factor):
        return x.sin() * factor

    x = torch.randn(4, requires_grad=True)
    checkpoint(scale, x, factor=2.0, use_reentrant=False).sum().backward()


@raises(
    "A reentrant checkpoint was asked to debug",
    cause="""Only the non-reentrant implementation takes ``debug`` and ``context_fn``, and so only it supports
    selective checkpointing.""",
    fix="Use ``use_reentrant=False``.",
    see=("cookbook/04_memory/checkpointing",),
)
def reentrant_debug():
    x = torch.randn(4, requires_grad=True)
    checkpoint(torch.sin, x, use_reentrant=True, debug=True)


@fixes(reentrant_debug)
def nonreentrant_debug():
    x = torch.randn(4, requires_grad=True)
    checkpoint(torch.sin, x, use_reentrant=False, debug=True).sum().backward()


@raises(
    "The recomputation saved fewer tensors than the forward",
    cause="""A checkpoint runs the function again in backward and matches the tensors saved then with those of the
    first run, one by one. The function took another path the second time, because it depends on state outside of it,
    such as a counter, a cache, or the clock.""",
    fix="Decide outside of the checkpoint, and pass the decision as an argument.",
    see=("cookbook/04_memory/checkpointing", "check:checkpoint"),
)
def recomputation_saves_fewer():
    class Block(nn.Module):
        warm = False

        def forward(self, x):
            if self.warm:
                return x.sin()
            self.warm = True
            return x.sin().exp()

    x = torch.randn(4, requires_grad=True)
    checkpoint(Block(), x, use_reentrant=False).sum().backward()


@fixes(recomputation_saves_fewer)
def recomputation_saves_the_same():
    class Block(nn.Module):
        warm = False

        def forward(self, x, warm):
            return x.sin() if warm else x.sin().exp()

    block = Block()
    x = torch.randn(4, requires_grad=True)
    y = checkpoint(block, x, block.warm, use_reentrant=False)
    block.warm = True
    y.sum().backward()


@raises(
    "The recomputation saved more tensors than the forward",
    cause="""A checkpoint matches the tensors that the recomputation saves with those of the first run. Here the
    recomputation continues after the last expected tensor. PyTorch notices this only without early stop: with early
    stop, the recomputation ends at the last expected tensor.""",
    fix="Let the function do the same in both runs: pass what decides as an argument.",
    see=("cookbook/04_memory/checkpointing", "check:checkpoint"),
)
def recomputation_saves_more():
    calls = []

    def block(x):
        calls.append(x)
        y = x.sin()
        return y.exp() if len(calls) > 1 else y

    x = torch.randn(4, requires_grad=True)
    with set_checkpoint_early_stop(False):
        y = checkpoint(block, x, use_reentrant=False)
    y.sum().backward()


@fixes(recomputation_saves_more)
def recomputation_by_argument():
    calls = []

    def block(x, later):
        calls.append(x)
        y = x.sin()
        return y.exp() if later else y

    x = torch.randn(4, requires_grad=True)
    with set_checkpoint_early_stop(False):
        y = checkpoint(block, x, len(calls) > 0, use_reentrant=False)
    y.sum().backward()


@raises(
    "The recomputation saved tensors of another shape or dtype",
    cause="""PyTorch compares the shape, dtype and device of the tensors that the first run and the recomputation
    saved, and they differ. Something that the function reads changed in between: here the dtype in which it
    computes.""",
    fix="Pass what the function depends on as an argument, and do not change it before backward has run.",
    see=("cookbook/04_memory/checkpointing", "check:checkpoint"),
)
def recomputation_in_other_dtype():
    class Block(nn.Module):
        dtype = torch.bfloat16

        def forward(self, x):
            return x.to(self.dtype).exp().float()

    block = Block()
    x = torch.randn(4, requires_grad=True)
    y = checkpoint(block, x, use_reentrant=False)
    block.dtype = torch.float32
    y.sum().backward()


@fixes(recomputation_in_other_dtype)
def recomputation_in_same_dtype():
    class Block(nn.Module):
        dtype = torch.bfloat16

        def forward(self, x, dtype):
            return x.to(dtype).exp().float()

    block = Block()
    x = torch.randn(4, requires_grad=True)
    y = checkpoint(block, x, block.dtype, use_reentrant=False)
    block.dtype = torch.float32
    y.sum().backward()


@raises(
    "The recomputation has another shape: a cache, a router or a mode changed",
    cause="The checkpointed function ran a second time in backward, and a tensor had another shape than in the first "
    "run. Something it depends on changed in between: a key-value cache that got the same tokens again, a router of a "
    "mixture of experts that decided otherwise, dropout or a switch of train and eval. A shape of ``[0]`` is a "
    "parameter that ZeRO-3 or FSDP has released again.",
    fix="Save the choice of a router instead of computing it again. With ZeRO-3, use DeepSpeed's own checkpointing, or "
    "``use_reentrant=True``.",
    see=("guide/training",),
)
def recomputation_in_other_shape():
    cache = []

    def attend(x):
        cache.append(x)
        return torch.cat(cache).sin()

    x = torch.randn(2, 3, requires_grad=True)
    checkpoint(attend, x, use_reentrant=False).sum().backward()


@fixes(recomputation_in_other_shape)
def recomputation_without_cache():
    def attend(x):
        return x.sin()

    x = torch.randn(2, 3, requires_grad=True)
    checkpoint(attend, x, use_reentrant=False).sum().backward()


@raises(
    "checkpoint was given debug=True and a context_fn",
    cause="""``debug=True`` records the operations with its own contexts, so ``context_fn`` cannot set others.
    ``set_checkpoint_debug_enabled(True)`` does the same for every checkpoint.""",
    fix="Remove ``context_fn`` while you debug, then put it back.",
    see=("cookbook/07_compile/selective_checkpointing",),
)
def debug_with_context_fn():
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    x = torch.randn(4, 4, requires_grad=True)
    checkpoint(lambda x: (x @ x).sin(), x, use_reentrant=False, context_fn=contexts, debug=True)


@fixes(debug_with_context_fn)
def context_fn_alone():
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    x = torch.randn(4, 4, requires_grad=True)
    checkpoint(lambda x: (x @ x).sin(), x, use_reentrant=False, context_fn=contexts).sum().backward()


@raises(
    "checkpoint was given an unknown determinism_check",
    cause="""``determinism_check`` is ``"default"``, which compares shapes, dtypes and devices of the saved tensors,
    or ``"none"``.""",
    fix="Pass one of the two. Neither compares values: compare values in a test.",
    see=("cookbook/04_memory/checkpointing",),
)
def unknown_determinism_check():
    x = torch.randn(4, requires_grad=True)
    checkpoint(torch.sin, x, use_reentrant=False, determinism_check="values")


@fixes(unknown_determinism_check)
def known_determinism_check():
    x = torch.randn(4, requires_grad=True)
    checkpoint(torch.sin, x, use_reentrant=False, determinism_check="default").sum().backward()


@raises(
    "backward read ctx.saved_tensors twice inside a checkpoint",
    cause="""Each read of ``ctx.saved_tensors`` unpacks the saved tensors. Inside a checkpoint, each recomputed tensor
    is handed out once and then freed.""",
    fix="Read ``ctx.saved_tensors`` once, into local names.",
    see=("guide/ctx", "cookbook/04_memory/checkpointing", "check:checkpoint"),
)
def saved_tensors_read_twice():
    class Multiply(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            grad_x = grad_output * ctx.saved_tensors[1]
            grad_y = grad_output * ctx.saved_tensors[0]
            return grad_x, grad_y

    x = torch.randn(4, requires_grad=True)
    checkpoint(Multiply.apply, x, x, use_reentrant=False).sum().backward()


@fixes(saved_tensors_read_twice)
def saved_tensors_read_once():
    class Multiply(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors
            return grad_output * y, grad_output * x

    x = torch.randn(4, requires_grad=True)
    checkpoint(Multiply.apply, x, x, use_reentrant=False).sum().backward()


@raises(
    "A result that selective checkpointing keeps was changed in place",
    cause="""Selective checkpointing keeps the outputs of the chosen operations and returns them while recomputing.
    Here ``relu_`` overwrote the product that was kept, so it would come back with the wrong values.""",
    fix="""Write the operation out of place. ``allow_cache_entry_mutation=True`` only silences the check, and is right
    only if the change does no harm.""",
    see=("cookbook/07_compile/selective_checkpointing", "cookbook/04_memory/in_place"),
)
def kept_result_mutated():
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    def block(x, weight):
        return (x @ weight).relu_().sin()

    x, weight = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    checkpoint(block, x, weight, use_reentrant=False, context_fn=contexts).sum().backward()


@fixes(kept_result_mutated)
def kept_result_unchanged():
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    def block(x, weight):
        return (x @ weight).relu().sin()

    x, weight = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    checkpoint(block, x, weight, use_reentrant=False, context_fn=contexts).sum().backward()


@raises(
    "The recomputation ran an operation that selective checkpointing had not seen",
    cause="""PyTorch asks the policy about every operation of the forward, and the recomputation must run the same
    operations. This function runs another operation the second time.""",
    fix="Let the function do the same in both runs: pass what decides as an argument.",
    see=("cookbook/07_compile/selective_checkpointing", "check:checkpoint"),
)
def selective_other_operation():
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    calls = []

    def block(x):
        calls.append(x)
        y = x @ x
        return y.sin().exp() if len(calls) == 1 else y.cos().exp()

    x = torch.randn(4, 4, requires_grad=True)
    checkpoint(block, x, use_reentrant=False, context_fn=contexts).sum().backward()


@fixes(selective_other_operation)
def selective_same_operation():
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    def block(x):
        return (x @ x).sin().exp()

    x = torch.randn(4, 4, requires_grad=True)
    checkpoint(block, x, use_reentrant=False, context_fn=contexts).sum().backward()


@raises(
    "The recomputation ran an operation more often than the forward",
    cause="""Selective checkpointing counts the calls of each operation in the forward. The recomputation called one
    operation once more, because the function looped more often.""",
    fix="Let the function do the same in both runs: pass the number of steps as an argument.",
    see=("cookbook/07_compile/selective_checkpointing", "check:checkpoint"),
)
def selective_more_operations():
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    steps = [1]

    def block(x):
        for _ in range(steps[0]):
            x = x * 0.5
        return (x @ x).sin()

    x = torch.randn(4, 4, requires_grad=True)
    y = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    steps[0] = 2
    y.sum().backward()


@fixes(selective_more_operations)
def selective_equal_operations():
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    steps = [1]

    def block(x, steps):
        for _ in range(steps):
            x = x * 0.5
        return (x @ x).sin()

    x = torch.randn(4, 4, requires_grad=True)
    y = checkpoint(block, x, steps[0], use_reentrant=False, context_fn=contexts)
    steps[0] = 2
    y.sum().backward()


@raises(
    "backward ran twice through a selective checkpoint",
    cause="""A kept result is handed to the recomputation once and then dropped, to free its memory.
    ``retain_graph=True`` does not keep it. If a checkpoint has two outputs, calling ``backward`` for each of them has
    the same effect.""",
    fix="Add the losses and call ``backward`` once, or use a checkpoint without a policy there.",
    see=("cookbook/07_compile/selective_checkpointing",),
)
def selective_backward_twice():
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    x = torch.randn(4, 4, requires_grad=True)
    y = checkpoint(lambda x: (x @ x).sin(), x, use_reentrant=False, context_fn=contexts)
    y.sum().backward(retain_graph=True)
    y.square().sum().backward()


@fixes(selective_backward_twice)
def selective_backward_once():
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    x = torch.randn(4, 4, requires_grad=True)
    y = checkpoint(lambda x: (x @ x).sin(), x, use_reentrant=False, context_fn=contexts)
    (y.sum() + y.square().sum()).backward()


@raises(
    "The list for selective checkpointing names operators without their overloads",
    cause="""The policy sees operators as the dispatcher does: an overload such as ``torch.ops.aten.mm.default``.
    ``torch.ops.aten.mm`` stands for all overloads at once, and ``torch.mm`` is a Python function, so neither
    works.""",
    fix="List overloads: ``torch.ops.aten.mm.default``, and ``addmm`` for ``nn.Linear``.",
    see=("cookbook/07_compile/selective_checkpointing",),
)
def selective_list_of_functions():
    create_selective_checkpoint_contexts([torch.ops.aten.mm, torch.ops.aten.addmm])


@fixes(selective_list_of_functions)
def selective_list_of_operators():
    create_selective_checkpoint_contexts([torch.ops.aten.mm.default, torch.ops.aten.addmm.default])


@raises(
    "The policy for selective checkpointing is neither a function nor a list",
    cause="""PyTorch calls the policy for each operation, or looks the operation up in a list. A set or a single
    ``CheckpointPolicy`` is neither.""",
    fix="Pass a list of operators, or a function that returns a ``CheckpointPolicy``.",
    see=("cookbook/07_compile/selective_checkpointing",),
)
def selective_policy_itself():
    create_selective_checkpoint_contexts(CheckpointPolicy.MUST_SAVE)


@fixes(selective_policy_itself)
def selective_policy_function():
    create_selective_checkpoint_contexts(lambda ctx, op, *args, **kwargs: CheckpointPolicy.MUST_SAVE)


@raises(
    "The context of a checkpoint swallowed an exception of the function",
    cause="""The forward context that ``context_fn`` returned hid the exception that the checkpointed function raised,
    as ``contextlib.suppress`` does. The checkpoint then has no value to return.""",
    fix="Let the context pass exceptions on, and handle them around the call of ``checkpoint``.",
    see=("cookbook/04_memory/checkpointing",),
)
def context_swallows():
    import contextlib

    def contexts():
        return contextlib.suppress(ValueError), contextlib.nullcontext()

    def block(x):
        if x.isnan().any():
            raise ValueError("not a number")
        return x.sin()

    x = torch.full((4,), torch.nan, requires_grad=True)
    checkpoint(block, x, use_reentrant=False, context_fn=contexts)


@fixes(context_swallows)
def context_passes():
    import contextlib

    def block(x):
        if x.isnan().any():
            raise ValueError("not a number")
        return x.sin()

    x = torch.full((4,), torch.nan, requires_grad=True)
    with contextlib.suppress(ValueError):
        checkpoint(block, x, use_reentrant=False)


@raises(
    "A module with a full backward hook returned a dict",
    warning=True,
    cause="""The hook can be attached only if the module returns a tensor or a tuple of tensors. With anything else it
    never runs.""",
    fix="Return a tuple, or put a hook on the output tensors.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def hooked_module_returns_dict():
    class Encoder(nn.Linear):
        def forward(self, x):
            return {"hidden": super().forward(x)}

    encoder = Encoder(3, 2)
    encoder.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    encoder(torch.randn(4, 3, requires_grad=True))["hidden"].sum().backward()


@fixes(hooked_module_returns_dict)
def hooked_module_returns_tuple():
    class Encoder(nn.Linear):
        def forward(self, x):
            return (super().forward(x),)

    encoder = Encoder(3, 2)
    encoder.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    encoder(torch.randn(4, 3, requires_grad=True))[0].sum().backward()


@raises(
    "An activation memory budget was set in eager mode",
    cause="The budget tells the compiler's partitioner how much to recompute. Eager execution has no partitioner.",
    fix="""Set the budget inside a function that ``torch.compile`` compiles, around everything that it computes. In
    eager mode, use ``checkpoint``.""",
    see=("cookbook/07_compile/selective_checkpointing",),
)
def budget_in_eager_mode():
    def loss(x):
        with torch.autograd.graph.region_activation_memory_budget(0.5):
            return x.sin().exp().sum()

    loss(torch.randn(4, requires_grad=True)).backward()


@fixes(budget_in_eager_mode)
def budget_in_compiled_code():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss(x):
        with torch.autograd.graph.region_activation_memory_budget(0.5):
            return x.sin().exp().sum()

    loss(torch.randn(4, requires_grad=True)).backward()


@raises(
    "A Function with setup_context saves an input that it returns",
    cause="""``forward`` returns its input as it is, and ``setup_context`` saves it. PyTorch does not support that for
    a Function with ``setup_context``.""",
    fix="Return a view, ``x.view_as(x)``, and save the input as before.",
    see=("guide/ctx", "cookbook/02_changing_the_gradient/straight_through"),
)
def returned_input_saved():
    class PositiveGradient(Function):
        @staticmethod
        def forward(x):
            return x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * (x > 0)

    PositiveGradient.apply(torch.randn(3, requires_grad=True))


@fixes(returned_input_saved)
def returned_view_of_input():
    class PositiveGradient(Function):
        @staticmethod
        def forward(x):
            return x.view_as(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * (x > 0)

    PositiveGradient.apply(torch.randn(3, requires_grad=True)).sum().backward()


@raises(
    "The mode of a model was changed between a checkpoint and backward",
    cause="""The function ran in training mode, and runs again in backward after ``model.eval()``. Dropout then does
    nothing and saves nothing. An evaluation between forward and backward has this effect, and so does a router or a
    fused layer that decides differently the second time.""",
    fix="Run backward before ``model.eval()``. For a mixture of experts, keep the router out of the checkpoint, or "
    "store what it chose; for a fused layer (flash attention, SwiGLU), take the plain one or leave it out of the "
    "checkpoint.",
    see=("cookbook/04_memory/checkpointing", "check:checkpoint"),
)
def recomputed_in_other_mode():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 1))
    loss = checkpoint(model, torch.randn(4, 3), use_reentrant=False).sum()
    model.eval()
    loss.backward()


@fixes(recomputed_in_other_mode)
def recomputed_in_same_mode():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 1))
    loss = checkpoint(model, torch.randn(4, 3), use_reentrant=False).sum()
    loss.backward()
    model.eval()


@raises(
    "A reentrant checkpoint ran in evaluation, where nothing requires grad",
    cause="Under ``torch.no_grad()`` no gradient is wanted, so the warning is harmless there; checkpointing only costs "
    "time. In training it is not harmless: the parameters inside get no gradient.",
    fix="Call the function itself in evaluation: ``checkpoint(block, x) if torch.is_grad_enabled() else block(x)``. "
    "``use_reentrant=False`` does not warn.",
    see=("cookbook/04_memory/checkpointing",),
    warning=True,
)
def checkpoint_in_evaluation():
    block = nn.Linear(3, 3).eval()
    with torch.no_grad():
        checkpoint(block, torch.randn(4, 3), use_reentrant=True)


@fixes(checkpoint_in_evaluation)
def block_in_evaluation():
    block = nn.Linear(3, 3).eval()
    with torch.no_grad():
        block(torch.randn(4, 3))


@raises(
    "A checkpoint of a library was given its inputs in another form than a tuple",
    cause="``detach_variable`` cuts the inputs of a reentrant checkpoint from the graph, and it takes a tuple. "
    "Checkpoints of libraries call it with what they saved, here a single tensor or a list.",
    fix="Pass a tuple: ``detach_variable((x,))``. In new code, use ``torch.utils.checkpoint.checkpoint(..., "
    "use_reentrant=False)``, which needs no such Function.",
    see=("cookbook/04_memory/checkpointing",),
)
def detached_list():
    x = torch.randn(3, requires_grad=True)
    torch.utils.checkpoint.detach_variable([x])


@fixes(detached_list)
def detached_tuple():
    x = torch.randn(3, requires_grad=True)
    torch.utils.checkpoint.detach_variable((x,))


@raises(
    "An attribute of a tensor is gone within a checkpoint",
    cause="The recomputation of a reentrant checkpoint gets detached copies of the inputs: new tensors with the same "
    "memory, without the attributes that your code has set on the old ones. Tensors from ``ctx.saved_tensors`` may be "
    "new ones as well.",
    fix="Pass what the attribute holds as an argument of its own: ``checkpoint(f, x, x.scale, use_reentrant=False)``. "
    "In a Function, store it on ``ctx``.",
    see=("cookbook/04_memory/checkpointing",),
)
def attribute_lost_in_checkpoint():
    x = torch.randn(3, requires_grad=True)
    x.scale = 2.0
    y = checkpoint(lambda t: t * t.scale, x, use_reentrant=True)
    y.sum().backward()


@fixes(attribute_lost_in_checkpoint)
def attribute_passed_to_checkpoint():
    x = torch.randn(3, requires_grad=True)
    x.scale = 2.0
    y = checkpoint(lambda t, scale: t * scale, x, x.scale, use_reentrant=True)
    y.sum().backward()


@raises(
    "A backward pre-hook returned another number of gradients than there are outputs",
    cause="The hook of ``register_full_backward_pre_hook`` gets a tuple with the gradient of each output of the "
    "module, and may return another such tuple. This hook returned a tensor, whose rows PyTorch counts as gradients, "
    "or a tuple of another length.",
    fix="Return ``(new_grad,)``, a tuple as long as ``grad_output``, or ``None`` to leave the gradients as they are.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def pre_hook_of_other_number():
    layer = nn.Linear(3, 3)
    layer.register_full_backward_pre_hook(lambda module, grad_output: grad_output[0] / 2)
    layer(torch.randn(4, 3)).sum().backward()


@fixes(pre_hook_of_other_number)
def pre_hook_of_same_number():
    layer = nn.Linear(3, 3)
    layer.register_full_backward_pre_hook(lambda module, grad_output: tuple(g / 2 for g in grad_output))
    layer(torch.randn(4, 3)).sum().backward()
