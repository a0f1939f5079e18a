r"""
Graph breaks: each cause, its message, its fix
==============================================

You will see one function written in about thirty ways: which of them the compiler accepts whole, which it refuses, and
which silently get another gradient.
"""

# %%
# When to use it
# --------------
#
# Read this page when ``fullgraph=True`` raises an error, or when a compiled model is not faster. You can search the
# page for your message. Read it also when your code compiles, because the last part is about code that compiles and is
# wrong. Without a custom function, the page :doc:`/cookbook/07_compile/torch_compile` is enough.
#
# The gradient
# ------------
#
# A bar marks a gradient: :math:`\bar{y}` is the gradient of the loss with respect to :math:`y`.
#
# Most versions compute this function. The page compares each version with itself in eager mode, so every difference
# comes from the compiler:
#
# .. math:: y = x^2, \qquad \bar{x} = 2 x\,\bar{y} .
#
# The recipe
# ----------
#
# .. recipe:: graph_breaks

# sphinx_gallery_tags = ["speed", "ctx"]
# sphinx_gallery_thumbnail_number = 1

import logging

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks

from autograd_cookbook.recipes.graph_breaks import graph_breaks

print("torch", torch.__version__)
torch._logging.set_logs(dynamo=logging.ERROR)  # what would be logged is printed below

# %%
# See it work
# -----------
#
# The first cell has the function, and the test of each version. The test compiles the version with ``fullgraph=True``,
# calls it with a tensor that was made outside of the compiled part, and compares the gradient with eager mode.


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


def slope(function):
    x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    y = function(1 * x)
    first = y[0] if isinstance(y, tuple) else y
    return torch.autograd.grad(first, x, torch.tensor([1.0, 2.0, 3.0]))[0]


def examine(function):
    """Return whether the function compiles whole and right, and the message if not."""
    torch._dynamo.reset()
    try:
        found = slope(torch.compile(function, fullgraph=True, backend="aot_eager"))
    except Exception as error:
        return "refused", str(error).strip().splitlines()[0]
    return ("whole", "") if torch.equal(found, slope(function)) else ("wrong", f"gradient {found.tolist()}")


verdicts = {}


def table(ways):
    for name, way in ways.items():
        function = way if not isinstance(way, type) else (lambda x, way=way: way.apply(x))
        verdict, message = verdicts[name] = examine(function)
        print(f"{name:38} {verdict:8} {message[:90]}")


# %%
# First come versions that compile *without* a break. Many of them did break graphs in older releases.


class OlderForm(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output


class OnlyOnce(Square):
    backward = staticmethod(once_differentiable(Square.backward))


class AsksWhatIsNeeded(Square):
    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output if ctx.needs_input_grad[0] else None


class LambdaOnCtx(Square):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor, ctx.times = {"two": 2}, lambda t: ctx.factor["two"] * t
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.times(ctx.saved_tensors[0]) * grad_output


class TensorOnCtx(Square):
    @staticmethod
    def setup_context(ctx, inputs, output):
        (ctx.x,) = inputs

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.x * grad_output


class NumberBeside(Square):
    @staticmethod
    def forward(x):
        return x * x, "and a string"

    @staticmethod
    def backward(ctx, grad_output, _):
        return 2 * ctx.saved_tensors[0] * grad_output


class IndexBeside(NumberBeside):
    @staticmethod
    def forward(x):
        return x * x, x.argmax()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs)


class NumPy(Square):
    @staticmethod
    def forward(x):
        return torch.from_numpy(np.square(x.numpy()))


class SavesForForward(Square):
    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)


calls = []


class AppendsInForward(Square):
    @staticmethod
    def forward(x):
        calls.append(x.shape)
        return x * x


table(
    {
        "forward(ctx, ...)": OlderForm,
        "once_differentiable": OnlyOnce,
        "if on needs_input_grad": AsksWhatIsNeeded,
        "dict and lambda on ctx": LambdaOnCtx,
        "tensor on ctx": TensorOnCtx,
        "string as second output": NumberBeside,
        "index as second output": IndexBeside,
        "NumPy functions": NumPy,
        "save_for_forward, generate_vmap_rule": SavesForForward,
        "append to a global list in forward": AppendsInForward,
    }
)

# %%
# What is refused
# ---------------
#
# The compiler refuses three kinds of code: Python that needs the value of a tensor, code for which it has no rule, and
# side effects in a backward. Without ``fullgraph=True`` the compiler breaks the graph at the function, which then runs
# in eager mode and is right. One version fails even then: a backward that calls the backward of another class.


class IfOnData(Square):
    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output if grad_output.any() else torch.zeros_like(grad_output)


class Item(Square):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[0].abs().max().item()
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * (ctx.saved_tensors[0] / ctx.scale) * grad_output * ctx.scale


class Prints(Square):
    @staticmethod
    def backward(ctx, grad_output):
        print("backward of shape", grad_output.shape)
        return 2 * ctx.saved_tensors[0] * grad_output


class AppendsInBackward(Square):
    @staticmethod
    def backward(ctx, grad_output):
        calls.append(grad_output.shape)
        return 2 * ctx.saved_tensors[0] * grad_output


class Foreign(Square):
    @staticmethod
    def forward(x):
        return torch.from_numpy(square(x.numpy()).astype(np.float32))


square = np.frompyfunc(lambda number: number * number, 1, 1)  # stands for SciPy, or a kernel


class HasJvp(SavesForForward):
    generate_vmap_rule = False

    @staticmethod
    def jvp(ctx, tangent):
        return 2 * ctx.saved_tensors[0] * tangent


class ReadsItsClass(Square):
    factor = 2

    @staticmethod
    def backward(ctx, grad_output):
        return ReadsItsClass.factor * ctx.saved_tensors[0] * grad_output


class AsksAutograd(Square):
    @staticmethod
    def backward(ctx, grad_output):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = x * x
        return torch.autograd.grad(y, x, grad_output)[0]


class CallsItsParent(Square):
    @staticmethod
    def backward(ctx, grad_output):
        return Square.backward(ctx, grad_output)


class Product(Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return y * grad_output, x * grad_output


def hooks_inside(x):
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        return Square.apply(x)


table(
    {
        "if on data": IfOnData,
        ".item()": Item,
        "print": Prints,
        "list.append in backward": AppendsInBackward,
        "foreign code": Foreign,
        "jvp on the class": HasJvp,
        "attribute of the class, by its name": ReadsItsClass,
        "torch.autograd.grad in backward": AsksAutograd,
        "calls the backward of another class": CallsItsParent,
        "one tensor as two arguments": lambda x: Product.apply(x, x),
        "saved-tensor hooks inside": hooks_inside,
    }
)
print("\ngraph_breaks:", *graph_breaks(lambda x: IfOnData.apply(x), torch.ones(3, requires_grad=True)))

# %%
# Each of these fixes compiles whole:
#
# * Decide with ``torch.where`` instead of ``if``.
# * Save a tensor instead of its value from ``.item()``.
# * Look at gradients from outside, with a hook on the result.
# * Wrap foreign code in an operator.
# * Keep a constant in a global variable or on ``ctx`` instead of on the class.
# * Put code that two backwards share into a plain function.
# * Put the ``jvp`` into a separate class.


class Where(Square):
    @staticmethod
    def backward(ctx, grad_output):
        return torch.where(grad_output != 0, 2 * ctx.saved_tensors[0] * grad_output, 0)


class TensorForItem(Square):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, inputs[0].abs().max())

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        return 2 * (x / scale) * grad_output * scale


@torch.library.custom_op("clinic::square", mutates_args=())
def operator(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(square(x.numpy()).astype(np.float32))


operator.register_fake(torch.empty_like)


class Operator(Square):
    @staticmethod
    def forward(x):
        return operator(x)


FACTOR = 2


def shared(x, grad_output):
    return FACTOR * x * grad_output


class PlainFunction(Square):
    @staticmethod
    def backward(ctx, grad_output):
        return shared(*ctx.saved_tensors, grad_output)


def with_a_hook(function):
    """Replace print and list.append by a hook outside of the compiled part."""

    def inner(x):
        result = function(x)
        result.register_hook(lambda grad: calls.append(grad.shape))
        return result

    return inner


table(
    {
        "fix: torch.where": Where,
        "fix: a tensor in the place of .item()": TensorForItem,
        "fix: foreign code as an operator": Operator,
        "fix: module constant, plain function": PlainFunction,
        "fix: two names for one tensor": lambda x: Product.apply(x, x.view_as(x)),
    }
)
torch._dynamo.reset()
whole = torch.compile(Square.apply, fullgraph=True, backend="aot_eager")
assert torch.equal(slope(with_a_hook(whole)), slope(Square.apply))
with saved_tensors_hooks(lambda t: t.bfloat16(), lambda t: t.float()):
    assert torch.equal(slope(whole), slope(Square.apply))
print("fix: hooks around the compiled call      whole")

# %%
# The wrong version
# -----------------
#
# Three versions compile whole and return another gradient. ``fullgraph=True`` does not help, so compare with eager
# mode, as ``audit`` does.
#
# The first one writes to its input, and declares this with ``mark_dirty``. If the input was made outside of the
# compiled part, the result gets the gradient of the identity.


class InPlace(Function):
    @staticmethod
    def forward(x):
        x.mul_(7)
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return 7 * grad_output


# %%
# The second one is a backward that treats None ("not used") differently from zero. Compiled code sends zeros, in spite
# of ``set_materialize_grads(False)``:


class NoneMeansSomething(NumberBeside):
    @staticmethod
    def forward(x):
        return x * x, x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output, grad_other):
        unused = grad_other is None
        return 2 * ctx.saved_tensors[0] * grad_output * (1 if unused else -1)


class NoneMeansZero(NoneMeansSomething):
    @staticmethod
    def backward(ctx, grad_output, grad_other):
        grad = 2 * ctx.saved_tensors[0] * grad_output
        return grad if grad_other is None else grad + grad_other


table(
    {
        "mark_dirty": InPlace,
        "fix: mark_dirty on a copy": lambda x: InPlace.apply(x.clone()),
        "None is not zero": NoneMeansSomething,
        "fix: None is zero": NoneMeansZero,
    }
)

# %%
# The third version consists of two classes that share ``forward`` and ``setup_context`` and differ in backward, as
# surrogate gradients do. If your module holds ``.apply``, the second class gets the code that was compiled for the
# first. If your module holds the class itself, each class gets its own code.


class Opposite(Square):
    @staticmethod
    def backward(ctx, grad_output):
        return -2 * ctx.saved_tensors[0] * grad_output


class HoldsApply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function.apply

    def forward(self, x):
        return self.function(x)


class HoldsClass(HoldsApply):
    def __init__(self, function):
        super().__init__(function)
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


for name, module in (("siblings, held as .apply", HoldsApply), ("fix: siblings, held as classes", HoldsClass)):
    torch._dynamo.reset()
    found = [slope(torch.compile(module(f), fullgraph=True, backend="aot_eager")) for f in (Square, Opposite)]
    right = torch.equal(found[1], slope(Opposite.apply))
    verdicts[name] = ("whole" if right else "wrong", "")
    print(f"{name:38} {verdicts[name][0]:8} {found[0].tolist()} and {found[1].tolist()}")

# %%
# Side effects get lost as well. A forward that appends to a global list does so in every call, also when it is
# compiled. But if the list belongs to an enclosing function, the compiled code never appends to it:


def counted():
    seen = []

    class Counts(Square):
        @staticmethod
        def forward(x):
            seen.append(x.shape)
            return x * x

    return Counts, seen


counts_calls, seen = counted()
torch._dynamo.reset()
for name, function in (
    ("eager", counts_calls.apply),
    ("compiled", torch.compile(lambda x: counts_calls.apply(x), fullgraph=True, backend="aot_eager")),
):
    seen.clear()
    for _ in range(3):
        slope(function)
    print(f"{name:8} counted {len(seen)} of 3 calls")
assert not seen

# %%
# The figure shows all versions at a glance:

heads = {"whole": ("C0", "o", "whole, and right"), "refused": ("C1", "s", "refused"), "wrong": ("C3", "X", "wrong")}
shown = {verdict: [] for verdict in heads}
for name, (verdict, _) in verdicts.items():
    if not name.startswith("fix"):
        shown[verdict].append(name)
figure, axes = plt.subplots(1, 3, figsize=(7.6, 3.2), layout="constrained")
figure.suptitle("One function, compiled with fullgraph=True: what is taken, refused, and silently wrong")
for axis, (verdict, (color, marker, head)) in zip(axes, heads.items(), strict=True):
    axis.text(0, -1.2, head, color=color, weight="bold")
    for row, name in enumerate(shown[verdict]):
        axis.scatter(0.02, row, color=color, marker=marker, s=50)
        axis.text(0.1, row, name, va="center", fontsize=8)
    axis.set(xlim=(-0.02, 1.25), ylim=(10.6, -1.8))
    axis.axis("off")
plt.show()

for name, (verdict, _) in verdicts.items():
    if name.startswith("fix"):
        assert verdict == "whole", name
print("without the fixes:", {verdict: len(names) for verdict, names in shown.items()})
version = torch.__version__
wrong = {
    "one tensor as two arguments": version < (2, 13),
    "mark_dirty": version >= (2, 13),
    "None is not zero": True,
    "siblings, held as .apply": version < (2, 14),
}
assert shown["wrong"] == [name for name, is_wrong in wrong.items() if is_wrong]
assert ("calls the backward of another class" in shown["refused"]) == (version < (2, 15))
assert len(shown["refused"]) == 10 + (version >= (2, 13)) - (version >= (2, 15))

# %%
# Releases differ. In torch 2.12.1, one tensor as two arguments is silently wrong, and ``mark_dirty`` is right. Since
# 2.14, the compiler tells the two classes of the third case apart. Since 2.15, a backward can call the backward of
# another class. (Run on 2.12.1, 2.13.0, 2.14.1 and 2.15.0.)

# %%
# What it costs
# -------------
#
# A break prevents fusion across it, and entering and leaving compiled code takes time. How much this costs depends on
# the code around it. If you need a break, mark the function with :func:`torch.compiler.disable`, as ``leaky_relu_``
# does. The remainder of the model stays compiled.
#
# Neighbors
# ---------
#
# * :doc:`/cookbook/07_compile/torch_compile`: how much faster compiled code is.
# * :doc:`/cookbook/07_compile/recompiling`: the graph is whole, and is compiled again and again.
# * :doc:`/cookbook/07_compile/mixed_precision`: a fourth silent case, a compiled backward under autocast.
# * :doc:`/cookbook/04_memory/in_place`: functions with ``mark_dirty``.
# * :doc:`/cookbook/02_changing_the_gradient/surrogate_gradients`: one forward, several backwards.
# * :doc:`/guide/compiled_rules`: how to keep your backward when you compile code that calls :mod:`torch.func`.
# * In torch's documentation: :func:`torch.compile`, :func:`torch.compiler.disable`,
#   :func:`torch.library.custom_op`.
