"""torch.compile and torch.export."""

import functools
import time
import warnings

import torch
from docs.errors.programs import fixes, raises
from torch import Tensor, nn
from torch.autograd import Function
from torch.library import custom_op
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode


@raises(
    "A Function with a jvp was compiled",
    cause="The compiler does not trace a Function that defines ``jvp``, even where only its backward is needed.",
    fix="Take the ``jvp`` out of the Function that is compiled: put it into a subclass that only forward mode uses.",
    see=("cookbook/07_compile/torch_compile", "cookbook/05_higher_order/forward_mode", "check:compile"),
)
def compiled_jvp():
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

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * tangent

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Cube.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_jvp)
def compiled_without_jvp():
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

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Cube.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A Function with a method vjp was compiled",
    cause="``vjp`` is another name for ``backward`` in a Function. The compiler traces only ``backward``.",
    fix="Call the method ``backward``.",
    see=("cookbook/07_compile/torch_compile", "check:compile"),
)
def compiled_vjp():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def vjp(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Double.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_vjp)
def compiled_backward():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Double.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A compiled Function gets the same tensor twice",
    cause="The compiler does not trace a Function that gets the same tensor for two of its inputs.",
    fix="For one of the two, pass a new tensor object with the same data: ``x.view_as(x)``. Its gradient flows back to "
    "``x``.",
    see=("cookbook/07_compile/torch_compile", "check:same_tensor_twice"),
)
def compiled_duplicate():
    class Multiply(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors
            return grad_output * y, grad_output * x

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Multiply.apply(x, x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_duplicate)
def compiled_distinct():
    class Multiply(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors
            return grad_output * y, grad_output * x

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Multiply.apply(x, x.view_as(x)).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "An if on the value of a tensor was compiled",
    cause="""The compiler records the graph once for all values. Which branch runs depends on the values, and the
    compiler does not know them. In ordinary compiled code it can split the graph at the ``if``, but not inside of a
    custom Function, a checkpoint or with ``fullgraph=True``. The text names the operation that made the condition.""",
    fix="Compute both and choose with ``torch.where``; or make the code an operator with ``torch.library.custom_op``, "
    "and give the operator a backward with ``register_autograd``.",
    see=("cookbook/07_compile/graph_breaks", "check:compile"),
)
def compiled_branch():
    class ClippedSum(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x if x.sum() > 0 else x * 0

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return torch.where(x.sum() > 0, grad_output, 0)

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return ClippedSum.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_branch)
def compiled_where():
    class ClippedSum(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.where(x.sum() > 0, x, 0)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return torch.where(x.sum() > 0, grad_output, 0)

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return ClippedSum.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A Function that prints was compiled",
    cause="""``print`` cannot be part of a graph, so the graph would break there, and ``fullgraph=True`` forbids graph
    breaks. ``print`` outside of a Function gives the same text.""",
    fix="""Remove the ``print``. To watch gradients, put a hook on the input or the output, outside of the compiled
    code, or run without ``torch.compile``. A hook on a tensor inside of the compiled code is compiled, too, so it may
    not print either.""",
    see=("cookbook/07_compile/graph_breaks", "check:compile"),
)
def compiled_print():
    class Noisy(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            print("gradient", grad_output)
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Noisy.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_print)
def compiled_silent():
    class Noisy(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Noisy.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A Function that turns a tensor into a number was compiled",
    cause="""The graph holds no values, and ``item()`` asks for a value that is known only when the graph runs. The
    compiler represents this value by a symbol, and loses the symbol at the boundary of the Function. ``float(x)``,
    ``int(x)`` and ``tolist()`` of integers do the same.""",
    fix="Keep the value as a tensor.",
    see=("cookbook/07_compile/graph_breaks", "check:compile"),
)
def compiled_item():
    class Normalize(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.scale = x.abs().max().item()
            return x / ctx.scale

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output / ctx.scale  # the scale is taken as a constant

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Normalize.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_item)
def compiled_scale():
    class Normalize(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.scale = x.abs().max()
            return x / ctx.scale

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output / ctx.scale  # the scale is taken as a constant

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Normalize.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A Function that turns a tensor into a list was compiled",
    cause="``tolist()`` of floating-point values takes them out of the graph.",
    fix="Compute with tensors; or make the code an operator with ``torch.library.custom_op``, and give the operator "
    "a backward with ``register_autograd``.",
    see=("cookbook/07_compile/graph_breaks", "cookbook/06_beyond_autograd/custom_operator"),
)
def compiled_list_item():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return torch.tensor([2 * value for value in x.tolist()])

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Double.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_list_item)
def compiled_no_list():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Double.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A Function that calls Python's math on a tensor was compiled",
    cause="""``math.erf`` needs a Python number, so the compiler would have to know the value of the tensor. An ``if``
    on ``x.item()`` gives nearly the same text.""",
    fix="Use PyTorch's function: ``torch.erf``.",
    see=("cookbook/07_compile/graph_breaks", "check:compile"),
)
def compiled_math():
    import math

    class Scale(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.scale = math.erf(x.max())
            return x * ctx.scale

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.scale  # the scale is taken as a constant

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Scale.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_math)
def compiled_torch_erf():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.scale = torch.erf(x.max())
            return x * ctx.scale

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.scale  # the scale is taken as a constant

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Scale.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A Function that calls a function written in C was compiled",
    cause="""The compiler traces Python code. ``time.perf_counter`` is written in C and is no operator, so the compiler
    cannot trace it. The same goes for extensions made with pybind11.""",
    fix="Call it outside of the compiled code; or wrap it as an operator with ``torch.library.custom_op``, and give "
    "the operator a backward with ``register_autograd``.",
    see=("cookbook/07_compile/graph_breaks", "cookbook/06_beyond_autograd/custom_operator"),
)
def compiled_clock():
    class Timed(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.start = time.perf_counter()
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Timed.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_clock)
def compiled_no_clock():
    class Timed(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Timed.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A Function that warns was compiled",
    cause="``warnings.warn`` ends in a function written in C, which the compiler does not follow.",
    fix="Warn before the compiled code is called, from a function around it.",
    see=("cookbook/07_compile/graph_breaks", "check:compile"),
)
def compiled_warning():
    class Careful(Function):
        @staticmethod
        def forward(ctx, x):
            warnings.warn("approximate", stacklevel=2)
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Careful.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_warning)
def compiled_no_warning():
    class Careful(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Careful.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A Function whose backward appends to a list was compiled",
    cause="""The compiler records the backward of a Function as a graph of its own. A change of a Python list outside of
    backward cannot be part of this graph.""",
    fix="""Collect the gradients with a hook outside of the compiled code. Put the hook on the output of the Function,
    whose gradient ``backward`` gets.""",
    see=("cookbook/07_compile/graph_breaks", "check:compile"),
)
def compiled_side_effect():
    norms = []

    class Watched(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            norms.append(grad_output.norm())
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Watched.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_side_effect)
def compiled_no_side_effect():
    class Watched(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def watched(x):
        return Watched.apply(x)

    norms = []
    y = watched(torch.randn(3, requires_grad=True))
    y.register_hook(lambda grad: norms.append(grad.norm()))
    y.sum().backward()


@raises(
    "A Function that computes with an attribute of its class was compiled",
    cause="""The compiler does not know the type of an attribute of the Function's own class, so it cannot compute with
    the attribute. Here the class counts the calls. A constant on the class, as in ``Scale.factor * x``, gives the same
    message.""",
    fix="Count in the code that calls ``apply``. Pass a constant as an argument.",
    see=("cookbook/07_compile/graph_breaks", "check:global_settings"),
)
def compiled_class_counter():
    class Counted(Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            Counted.calls += 1
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Counted.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_class_counter)
def compiled_uncounted():
    calls = 0

    class Counted(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Counted.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))
    calls += 1


@raises(
    "A Function that updates a tensor on its class was compiled",
    cause="""The compiler does not know the type of an attribute of the Function's own class, so it does not know the
    methods of the attribute either.""",
    fix="Pass the tensor as an argument, and return the new value, marked with ``ctx.mark_non_differentiable``.",
    see=("cookbook/07_compile/graph_breaks", "check:global_settings"),
)
def compiled_class_buffer():
    class Averaged(Function):
        mean = torch.zeros(3)

        @staticmethod
        def forward(ctx, x):
            Averaged.mean.add_(x.detach())
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Averaged.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_class_buffer)
def compiled_no_buffer():
    class Averaged(Function):
        @staticmethod
        def forward(ctx, x, mean):
            new_mean = mean + x
            ctx.mark_non_differentiable(new_mean)
            return 2 * x, new_mean

        @staticmethod
        def backward(ctx, grad_output, _):
            return 2 * grad_output, None

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x, mean):
        y, new_mean = Averaged.apply(x, mean)
        return y.sum(), new_mean

    loss(torch.randn(3, requires_grad=True), torch.zeros(3))


@raises(
    "A Function with a keyword-only argument was compiled",
    cause="""``apply`` passes arguments by position, and this ``forward`` has an argument after a ``*``, which has no
    position. Without the compiler, the same call raises a ``TypeError``.""",
    fix="Make it an ordinary argument. ``backward`` then returns ``None`` for it.",
    see=("cookbook/07_compile/torch_compile", "check:compile"),
)
def compiled_keyword_only():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, *, factor):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.factor

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Scale.apply(x, factor=2.0).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_keyword_only)
def compiled_keyword():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.factor, None

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Scale.apply(x, factor=2.0).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A Function that changes its input and returns something else was compiled",
    cause="""A Function must return each tensor that it passes to ``mark_dirty``, in eager mode, too. The compiler even
    requires the same Python object: ``return x.add_(1)`` works in eager mode, but gives this text when compiled.""",
    fix="Return the changed tensor by its name: ``x.add_(1)``, then ``return x``.",
    see=("cookbook/07_compile/torch_compile", "cookbook/04_memory/in_place"),
)
def compiled_dirty_lost():
    class AddOne(Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x * 1

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return AddOne.apply(x.clone()).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_dirty_lost)
def compiled_dirty_returned():
    class AddOne(Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return AddOne.apply(x.clone()).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "An in-place Function was compiled for inputs that need no gradient",
    cause="""If no input needs a gradient, the compiler traces ``forward`` as an ordinary function. It passes a
    substitute for ``ctx``, which has no ``mark_dirty``.""",
    fix="Call ``apply`` only if a gradient is needed, and otherwise call the in-place operation itself.",
    see=("cookbook/07_compile/torch_compile", "cookbook/04_memory/in_place"),
)
def compiled_dirty_without_grad():
    class AddOne(Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def shifted(x):
        return AddOne.apply(x.clone())

    shifted(torch.randn(3))


@fixes(compiled_dirty_without_grad)
def compiled_dirty_with_grad():
    class AddOne(Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def shifted(x):
        y = x.clone()
        return AddOne.apply(y) if y.requires_grad else y.add_(1)

    shifted(torch.randn(3))


@raises(
    "A Function that raises was compiled",
    cause="""``forward`` raised an exception while the compiler recorded the graph. Here the argument is wrong, and
    eager mode would raise the same exception. You find this exception at the end of the text, or in its context.""",
    fix="Run once without ``torch.compile`` to see the exception alone, and fix its cause.",
    see=("cookbook/07_compile/graph_breaks", "check:compile"),
)
def compiled_error():
    class RowSum(Function):
        @staticmethod
        def forward(ctx, x):
            if x.dim() != 2:
                raise ValueError(f"expected a matrix, got {x.dim()} dimensions")
            return x.sum(1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output[:, None].expand(-1, 3)

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return RowSum.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_error)
def compiled_matrix():
    class RowSum(Function):
        @staticmethod
        def forward(ctx, x):
            if x.dim() != 2:
                raise ValueError(f"expected a matrix, got {x.dim()} dimensions")
            return x.sum(1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output[:, None].expand(-1, 3)

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return RowSum.apply(x).sum()

    loss(torch.randn(2, 3, requires_grad=True))


@raises(
    "A Function with class methods was compiled",
    cause="""``forward`` and ``backward`` must be static methods. A class method works in eager mode, but the compiler
    passes the class to it a second time.""",
    fix="Use ``@staticmethod``, without ``cls``.",
    see=("cookbook/07_compile/torch_compile", "check:compile"),
)
def compiled_classmethod():
    class Double(Function):
        @classmethod
        def forward(cls, ctx, x):
            return 2 * x

        @classmethod
        def backward(cls, ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Double.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_classmethod)
def compiled_staticmethod():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Double.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "Compiled autograd met a TorchScript function",
    cause="""Compiled autograd asks each node of the graph how to trace it. The node that TorchScript makes for a
    scripted function does not answer.""",
    fix="""Call the plain Python function, because ``torch.compile`` replaces scripting. Otherwise leave compiled
    autograd off for this backward.""",
    see=("cookbook/07_compile/torch_compile",),
)
def compiled_autograd_scripted():
    @torch.jit.script
    def square(x):
        return (x * x).tanh()

    for _ in range(3):  # TorchScript differentiates on its own once it knows the types
        loss = square(torch.randn(3, requires_grad=True)).sum()
        loss.backward(retain_graph=True)
    torch._dynamo.config.compiled_autograd = True
    torch.compile(lambda: loss.backward(), backend="eager")()


@fixes(compiled_autograd_scripted)
def compiled_autograd_unscripted():
    def square(x):
        return (x * x).tanh()

    loss = square(torch.randn(3, requires_grad=True)).sum()
    torch._dynamo.config.compiled_autograd = True
    torch.compile(lambda: loss.backward(), backend="eager")()


@raises(
    "The compiler could not divide a graph between forward and backward",
    cause="AOTAutograd, the part of ``torch.compile`` that traces backward, assigns each node of the graph to forward "
    "or to backward. Here ``backward`` writes into a tensor that ``forward`` also returned, so an output of the "
    "forward would need a node of the backward. An unused output that depends on a gradient, an operator with an "
    "ordered effect (it prints, counts, or must run in order), and outputs that are DTensors lead to the same.",
    fix="Do not write in place in ``backward``: compute a new tensor, ``total + grad_output``. Return only the outputs "
    "that the loss uses. If neither applies, remove Functions and custom operators one by one until the code "
    "compiles, and put ``torch.compiler.disable`` on the last one that you removed.",
    see=("cookbook/07_compile/torch_compile", "check:compile"),
)
def effect_in_backward():
    class Add(Function):
        @staticmethod
        def forward(ctx, x, total):
            ctx.save_for_backward(total)
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            (total,) = ctx.saved_tensors
            total.add_(grad_output)
            return 2 * grad_output, None

    @torch.compile(backend="aot_eager")
    def step(x):
        total = x.clone()
        return Add.apply(x, total).clone(), total

    step(torch.randn(3, requires_grad=True))


@fixes(effect_in_backward)
def no_effect_in_backward():
    class Add(Function):
        @staticmethod
        def forward(ctx, x, total):
            ctx.save_for_backward(total)
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            (total,) = ctx.saved_tensors
            total = total + grad_output
            return 2 * grad_output, None

    @torch.compile(backend="aot_eager")
    def step(x):
        total = x.clone()
        return Add.apply(x, total).clone(), total

    step(torch.randn(3, requires_grad=True))


@raises(
    "torch.autograd.grad was called in compiled code",
    cause="""The compiler does not trace ``torch.autograd.grad``, neither in a compiled function nor in the ``backward``
    of a Function, unless you set the flag that the text names.""",
    fix="Use ``torch.func.grad``, which ``torch.compile`` traces. For ``torch.export``, trace the model with "
    "``make_fx`` first, and export the result.",
    see=("cookbook/07_compile/graph_breaks", "guide/higher_order"),
)
def compiled_autograd_grad():
    @torch.compile(backend="eager", fullgraph=True)
    def slope(x):
        (gradient,) = torch.autograd.grad(x.sin().sum(), x)
        return gradient

    slope(torch.randn(3, requires_grad=True))


@fixes(compiled_autograd_grad)
def compiled_func_grad():
    @torch.compile(backend="eager", fullgraph=True)
    def slope(x):
        return torch.func.grad(lambda x: x.sin().sum())(x)

    slope(torch.randn(3, requires_grad=True))


@raises(
    "backward was called in compiled code",
    cause="The compiler does not trace ``Tensor.backward`` unless you set the flag that the text names.",
    fix="""Compile the forward and the loss, and call ``backward`` on the compiled loss outside. PyTorch then compiles
    the backward, too.""",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_backward_call():
    @torch.compile(backend="eager", fullgraph=True)
    def step(x):
        loss = x.sin().sum()
        loss.backward()
        return loss

    step(torch.randn(3, requires_grad=True))


@fixes(compiled_backward_call)
def compiled_loss():
    @torch.compile(backend="eager", fullgraph=True)
    def step(x):
        return x.sin().sum()

    step(torch.randn(3, requires_grad=True)).backward()


@raises(
    "requires_grad_ was called on an input in compiled code",
    cause="""The compiler makes a graph for inputs that require a gradient, or for inputs that do not. The code inside
    of the graph cannot change this.""",
    fix="Call ``requires_grad_`` before you call the compiled function.",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_requires_grad():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return x.requires_grad_().sin().sum()

    loss(torch.randn(3))


@fixes(compiled_requires_grad)
def compiled_required_before():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return x.sin().sum()

    loss(torch.randn(3).requires_grad_())


@raises(
    "A new leaf was returned from compiled code",
    cause="""A tensor made inside got ``requires_grad_()`` and is returned. Compiling would drop that mark, so the
    compiler refuses. The text is the same for a result that is computed from such a tensor.""",
    fix="""Return the tensor, and call ``requires_grad_()`` on it outside. If a result is computed from it, make the
    tensor outside, and pass it in.""",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_leaf_returned():
    @torch.compile(backend="eager", fullgraph=True)
    def start(x):
        return (0.1 * x).requires_grad_()

    start(torch.randn(3))


@fixes(compiled_leaf_returned)
def compiled_leaf_outside():
    @torch.compile(backend="eager", fullgraph=True)
    def start(x):
        return 0.1 * x

    start(torch.randn(3)).requires_grad_()


@raises(
    "grad_fn was read in compiled code",
    cause="The autograd graph does not exist yet while the compiler traces.",
    fix="Read ``grad_fn`` outside of the compiled code, or read ``requires_grad`` instead.",
    see=("cookbook/07_compile/graph_breaks", "guide/graph"),
)
def compiled_grad_fn():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        y = x.sin()
        return y.sum() if y.grad_fn is not None else y

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_grad_fn)
def compiled_asks_requires_grad():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        y = x.sin()
        return y.sum() if y.requires_grad else y

    loss(torch.randn(3, requires_grad=True))


@raises(
    "retain_grad was called in compiled code",
    cause="The backward of a compiled graph is one function, and its intermediate tensors have no ``.grad``.",
    fix="Return this gradient too, computed with ``torch.func``, or leave out ``fullgraph=True``.",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_retain_grad():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss(x):
        hidden = x.sin()
        hidden.retain_grad()
        return hidden.square().sum(), hidden

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_retain_grad)
def compiled_hidden_gradient():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss(x):
        hidden_grad, value = torch.func.grad_and_value(lambda hidden: hidden.square().sum())(x.sin())
        return value, hidden_grad

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A module with a backward hook was compiled",
    cause="Backward hooks of modules are traced only together with compiled autograd.",
    fix="""Remove the hook before compiling, or allow graph breaks by leaving out ``fullgraph=True``. A hook that only
    reads ``grad_output`` can be put on the output tensor inside of ``forward``. A change made there also changes the
    gradients of the parameters.""",
    see=("cookbook/07_compile/graph_breaks", "cookbook/02_changing_the_gradient/hooks"),
)
def compiled_module_hook():
    layer = nn.Linear(3, 2)
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    compiled(torch.randn(4, 3))


@fixes(compiled_module_hook)
def compiled_module():
    layer = nn.Linear(3, 2)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    compiled(torch.randn(4, 3))


@raises(
    "The handle of a hook was returned from compiled code",
    cause="""After the graph has run, the compiler makes the returned objects again. It cannot make the handle of a hook
    if the tensor of the hook was made inside of the compiled code. The text names the kind of the returned object.""",
    fix="Return tensors only, or register the hook outside of the compiled code.",
    see=("cookbook/07_compile/graph_breaks", "cookbook/02_changing_the_gradient/hooks"),
)
def compiled_hook_handle():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss(x):
        return x.sin().register_hook(lambda grad: 2 * grad)

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_hook_handle)
def compiled_hook():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss(x):
        y = x.sin()
        y.register_hook(lambda grad: 2 * grad)
        return y.sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "Saved-tensor hooks were entered in compiled code",
    cause="""PyTorch tells the compiler not to trace some functions. Among these are the context managers
    ``saved_tensors_hooks``, ``save_on_cpu`` and ``detect_anomaly``. The text names the function that your code
    called.""",
    fix="Enter the context manager outside, around the call of the compiled function.",
    see=("cookbook/07_compile/graph_breaks", "cookbook/04_memory/saved_tensor_hooks", "check:saved_tensor_hooks"),
)
def compiled_save_on_cpu():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        with torch.autograd.graph.save_on_cpu():
            return x.sin().sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_save_on_cpu)
def compiled_inside_save_on_cpu():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return x.sin().sum()

    with torch.autograd.graph.save_on_cpu():
        loss(torch.randn(3, requires_grad=True)).backward()


@raises(
    "A pointer was passed to an operation in compiled code",
    cause="""While compiling, tensors have no memory, so a call with ``x.data_ptr()`` cannot be recorded. The text is
    the same for other arguments that a graph cannot hold, such as a ``torch.Generator``.""",
    fix="Wrap the kernel that takes the pointer as an operator with ``torch.library.custom_op``. If its input requires "
    "a gradient, also give the operator a backward with ``register_autograd``.",
    see=("cookbook/07_compile/graph_breaks", "cookbook/06_beyond_autograd/custom_operator"),
)
def compiled_data_ptr():
    @torch.compile(backend="eager", fullgraph=True)
    def doubled(x):
        return torch.add(x, x.data_ptr())

    doubled(torch.randn(3))


@fixes(compiled_data_ptr)
def compiled_operator():
    @custom_op("cookbook::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        assert x.data_ptr()
        return 2 * x

    double.register_fake(torch.empty_like)

    @torch.compile(backend="eager", fullgraph=True)
    def doubled(x):
        return double(x)

    doubled(torch.randn(3))


@raises(
    "A function that must not be compiled was called in compiled code",
    cause="""``torch.compiler.disable`` keeps a function out of graphs. The graph breaks there, and ``fullgraph=True``
    forbids it.""",
    fix="""Leave out ``fullgraph=True``, so that the graph breaks at this function. Or remove
    ``torch.compiler.disable``, and make the function an operator if the compiler cannot trace it.""",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_disabled():
    @torch.compiler.disable
    def logged(x):
        return 2 * x

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return logged(x).sum()

    loss(torch.randn(3))


@fixes(compiled_disabled)
def compiled_with_break():
    @torch.compiler.disable
    def logged(x):
        return 2 * x

    @torch.compile(backend="eager")
    def loss(x):
        return logged(x).sum()

    loss(torch.randn(3))


@raises(
    "A custom operator without a fake kernel was compiled",
    cause="""To learn the shape and dtype of a result, the compiler runs each operator on fake tensors, which have no
    values. For this it needs a fake kernel, and this operator has none. The text around the exception is the same if a
    fake kernel raises, or if an operation gets tensors of wrong shapes. Then another exception stands in the middle of
    the text.""",
    fix="Register a fake kernel: ``cube.register_fake(torch.empty_like)``.",
    see=("cookbook/06_beyond_autograd/custom_operator", "check:opcheck"),
)
def compiled_no_fake():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return cube(x).sum()

    loss(torch.randn(3))


@fixes(compiled_no_fake)
def compiled_with_fake():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_fake(torch.empty_like)

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return cube(x).sum()

    loss(torch.randn(3))


@raises(
    "A compiled Function returned a gradient of the wrong shape",
    cause="""The compiler runs the backward of a Function to record it. The text contains the same exception as in eager
    mode, after the name of the backend. It calls every Function ``ApplyTemplate``.""",
    fix="Return for each input a gradient with the shape of the input. Here, remove the sum in backward.",
    see=("cookbook/07_compile/torch_compile", "check:first_order"),
)
def compiled_gradient_shape():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output.sum().view(1, 1)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss(x):
        return Double.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_gradient_shape)
def compiled_gradient_right():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss(x):
        return Double.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A second derivative was taken through compiled code",
    cause="The backward that ``torch.compile`` makes is compiled code without a backward of its own.",
    fix="""Compute second derivatives in eager mode. Or compute the first derivative inside of the compiled function,
    with ``torch.func.grad``. Your own Function then silently loses its backward, unless you call the Function in a
    function with the decorator ``torch.compiler.allow_in_graph``.""",
    see=("cookbook/07_compile/torch_compile", "guide/compiled_rules", "guide/higher_order", "check:second_order"),
)
def compiled_double_backward():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def energy(x):
        return x.sin().sum()

    x = torch.randn(3, requires_grad=True)
    (force,) = torch.autograd.grad(energy(x), x, create_graph=True)
    force.square().sum().backward()


@fixes(compiled_double_backward)
def compiled_force():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def force(x):
        return torch.func.grad(lambda x: x.sin().sum())(x)

    x = torch.randn(3, requires_grad=True)
    force(x).square().sum().backward()


@raises(
    "A function was compiled too often",
    cause="""The compiler makes a new version if something has changed that the old version depends on, here the value
    of a Python number. It makes up to ``torch._dynamo.config.recompile_limit`` versions, 8 by default. With
    ``fullgraph=True``, the next change raises this error. Without ``fullgraph=True``, further calls run in eager mode.
    The log names what changed.""",
    fix="""Pass the changing number as a tensor, or leave out ``dynamic=False``, so that the second value of a number
    makes it a symbol. Keep the other things that the log names constant.""",
    see=("cookbook/07_compile/recompiling",),
)
def recompile_limit():
    @torch.compile(backend="eager", fullgraph=True, dynamic=False)
    def scaled(x, step):
        return x * step

    for step in range(20):
        scaled(torch.ones(3), step)


@fixes(recompile_limit)
def recompile_never():
    @torch.compile(backend="eager", fullgraph=True, dynamic=False)
    def scaled(x, step):
        return x * step

    for step in range(20):
        scaled(torch.ones(3), torch.tensor(step))


@raises(
    "torch.compile was given an unknown backend",
    cause="The name is not among the registered backends.",
    fix='Use one that ``torch._dynamo.list_backends(None)`` names, such as ``"aot_eager"`` for debugging.',
    see=("cookbook/07_compile/torch_compile", "check:compile"),
)
def unknown_backend():
    torch.compile(torch.sin, backend="eager_aot")


@fixes(unknown_backend)
def known_backend():
    torch.compile(torch.sin, backend="aot_eager")


@raises(
    "torch.compile was given an unknown mode",
    cause="The text lists the modes.",
    fix="Pass one of them.",
    see=("cookbook/07_compile/torch_compile", "check:compile"),
)
def unknown_mode():
    torch.compile(torch.sin, mode="fast")


@fixes(unknown_mode)
def known_mode():
    torch.compile(torch.sin, mode="max-autotune")


@raises(
    "torch.compile was given a mode and options",
    cause="A mode is a set of options, so only one of the two is accepted.",
    fix="Pass the options that the mode stands for: ``torch._inductor.list_mode_options()`` lists them.",
    see=("cookbook/07_compile/torch_compile", "check:compile"),
)
def mode_and_options():
    torch.compile(torch.sin, mode="max-autotune", options={"max_autotune": True})


@fixes(mode_and_options)
def options_only():
    torch.compile(torch.sin, options=torch._inductor.list_mode_options("max-autotune"))


@raises(
    "Anomaly mode was entered in compiled code",
    cause="Anomaly mode checks the values of each gradient when backward runs. The compiler traces without values, so "
    "it does not trace the context.",
    fix="Look for nan without the compiler: run the function itself under ``torch.autograd.set_detect_anomaly(True)``, "
    'or set ``torch.compiler.set_stance("force_eager")`` for the run.',
    see=("guide/debugging", "guide/nonfinite"),
)
def compiled_anomaly():
    @torch.compile(backend="eager", fullgraph=True)
    def loss_of(x):
        with torch.autograd.detect_anomaly():
            return x.sin().sum()

    loss_of(torch.randn(3, requires_grad=True)).backward()


@fixes(compiled_anomaly)
def eager_anomaly():
    @torch.compile(backend="eager", fullgraph=True)
    def loss_of(x):
        return x.sin().sum()

    torch.compiler.set_stance("force_eager")
    with torch.autograd.set_detect_anomaly(True):
        loss_of(torch.randn(3, requires_grad=True)).backward()


@raises(
    "An operation in compiled code fails, and would fail without the compiler as well",
    cause="The compiler runs each operation on fake tensors first, and reports whatever it raises. The error itself "
    "stands behind ``got``: shapes that do not fit, a leaf that is changed in place, tensors on two devices.",
    fix='Run the function without ``torch.compile``, ``torch.compiler.set_stance("force_eager")``, and fix the error '
    "that it then raises; look that one up here. Only if it runs, the compiler is at fault.",
    see=("cookbook/07_compile/torch_compile", "guide/debugging"),
)
def compiled_call_fails():
    @torch.compile(backend="eager")
    def shifted(x):
        return x.add_(1).sum()

    shifted(torch.randn(3, requires_grad=True)).backward()


@fixes(compiled_call_fails)
def compiled_call_works():
    @torch.compile(backend="eager")
    def shifted(x):
        return (x + 1).sum()

    shifted(torch.randn(3, requires_grad=True)).backward()


@raises(
    "A compiled checkpoint changes something outside of itself",
    cause="The checkpointed function appends to a list, sets an attribute or counts. Checkpointing runs it twice, and "
    "the compiler does not know whether the change should happen twice.",
    fix="Return the value from the checkpointed function, and store it outside: ``y, hidden = checkpoint(block, x, "
    "use_reentrant=False)``. If the change may be left out in the second run, set "
    "``torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint = True``.",
    see=("cookbook/04_memory/checkpointing", "cookbook/07_compile/graph_breaks"),
)
def compiled_checkpoint_side_effect():
    hidden = []

    def block(x):
        hidden.append(x)
        return x.sin()

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return checkpoint(block, x, use_reentrant=False).sum()

    loss(torch.randn(3, requires_grad=True)).backward()


@fixes(compiled_checkpoint_side_effect)
def compiled_checkpoint_returns():
    def block(x):
        return x.sin(), x

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        y, _ = checkpoint(block, x, use_reentrant=False)
        return y.sum()

    loss(torch.randn(3, requires_grad=True)).backward()


@raises(
    "A method of an object that the compiler does not know was called in compiled code",
    cause="The compiler traces methods of tensors and of classes written in Python that it can look into. Here it met "
    "an object whose methods it does not know: a subclass with ``__torch_dispatch__`` made by ``as_subclass``, or an "
    "object of an extension in C++.",
    fix="""Call the method outside of the compiled function. For a tensor subclass, write a wrapper with
    ``__tensor_flatten__`` and ``__tensor_unflatten__``, which the compiler can take apart. For an extension, wrap the
    call as an operator with ``torch.library.custom_op``, and give the operator a backward with ``register_autograd``.
    Without ``fullgraph=True``, the method only breaks the graph.""",
    see=("cookbook/07_compile/graph_breaks", "cookbook/06_beyond_autograd/custom_operator"),
)
def compiled_subclass_method():
    class Logged(Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return x.sin().sum()

    loss(torch.randn(3).as_subclass(Logged))


@fixes(compiled_subclass_method)
def compiled_plain_method():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return x.sin().sum()

    loss(torch.randn(3))


@raises(
    "Compiled code got a gradient of another tensor subclass than it was compiled for",
    cause="The compiler guesses of what kind the gradients of the outputs will be: the kind of the outputs. Here a "
    "gradient arrived as a subclass (a DTensor, a nested or quantized tensor) and the output was a plain tensor, or "
    "the other way round.",
    fix="Convert the output at the border of the compiled function, so that output and gradient are of one kind: "
    "``y.full_tensor()`` or ``y.to_local()`` for a DTensor. In a subclass of your own, define "
    "``__coerce_same_metadata_as_tangent__``.",
    see=("cookbook/07_compile/torch_compile",),
)
def compiled_gradient_of_other_class():
    @torch.compile(backend="aot_eager")
    def doubled(x):
        return 2 * x

    y = doubled(torch.randn(3, requires_grad=True))
    y.backward(TwoTensor(torch.ones(3), torch.ones(3)))


@fixes(compiled_gradient_of_other_class)
def compiled_gradient_of_same_class():
    @torch.compile(backend="aot_eager")
    def doubled(x):
        return 2 * x

    y = doubled(torch.randn(3, requires_grad=True))
    y.backward(torch.ones(3))


@raises(
    "Compiled code changes one of two views of a tensor subclass",
    cause="Two inputs are views of one tensor, and the function writes into one of them. The compiler can follow that "
    "for plain tensors, but not for subclasses such as DTensor.",
    fix="Write out of place: ``x = x * 2`` instead of ``x.mul_(2)``. Or pass a copy of one of the two: "
    "``step(x.clone(), y)``.",
    see=("cookbook/04_memory/in_place",),
)
def compiled_aliases_of_subclass():
    @torch.compile(backend="aot_eager")
    def step(x, y):
        x.mul_(2)
        return x + y

    both = TwoTensor(torch.randn(4), torch.randn(4))
    step(both[:2], both[1:3])


@fixes(compiled_aliases_of_subclass)
def compiled_out_of_place():
    @torch.compile(backend="aot_eager")
    def step(x, y):
        return x * 2 + y

    both = TwoTensor(torch.randn(4), torch.randn(4))
    step(both[:2], both[1:3])


@raises(
    "A compiled function sets requires_grad of a tensor",
    cause="The flag decides which operations are recorded, and the compiler has decided that before it runs the "
    "function. So it refuses to trace an assignment.",
    fix="Set ``requires_grad`` outside of the compiled function. Inside, ``x.detach()`` gives a tensor without "
    "gradient, and without ``fullgraph=True`` the assignment is a graph break.",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_flag_assigned():
    @torch.compile(backend="eager", fullgraph=True)
    def penalty(x):
        x.requires_grad = True
        return x.square().sum()

    penalty(torch.randn(3))


@fixes(compiled_flag_assigned)
def compiled_after_flag():
    @torch.compile(backend="eager", fullgraph=True)
    def penalty(x):
        return x.square().sum()

    penalty(torch.randn(3, requires_grad=True))


@raises(
    "A compiled function installs a callback of the engine",
    cause="``queue_callback`` acts on the backward that runs at this moment, and while the compiler traces no "
    "backward runs.",
    fix="Call the function that installs it outside of compiled code (``@torch.compiler.disable``), or trace the "
    "backward as well: ``torch._dynamo.config.compiled_autograd = True``. In DDP and FSDP, update torch.",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_queue_callback():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        torch.autograd.Variable._execution_engine.queue_callback(lambda: None)
        return x.square().sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_queue_callback)
def compiled_without_callback():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return x.square().sum()

    x = torch.randn(3, requires_grad=True)
    queue = torch.autograd.Variable._execution_engine.queue_callback
    x.register_hook(lambda _: queue(lambda: None))
    loss(x).backward()


@raises(
    "A compiled function resizes or transposes its input in place",
    cause="Operations such as ``unsqueeze_``, ``t_`` and ``transpose_`` change the shape of a tensor that belongs to "
    "the caller, and the compiler traces them for tensors that it made itself only.",
    fix="Use the version that returns a new view: ``x = x.unsqueeze(0)``, ``x = x.t()``.",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_shape_in_place():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return x.unsqueeze_(0).square().sum()

    loss(torch.randn(3))


@fixes(compiled_shape_in_place)
def compiled_shape_of_view():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return x.unsqueeze(0).square().sum()

    loss(torch.randn(3))


@raises(
    "A parameter was made inside of compiled code, of something that is no tensor",
    cause="``nn.Parameter`` takes a tensor. The compiler traces it for one, and refuses a list, a number or an array.",
    fix="Make parameters in ``__init__`` of a module, outside of the compiled function: they need a place to be kept "
    "anyway.",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_parameter_of_list():
    @torch.compile(backend="eager", fullgraph=True)
    def f(x):
        return x * nn.Parameter([1.0, 2.0, 3.0])

    f(torch.randn(3))


@fixes(compiled_parameter_of_list)
def compiled_with_parameter():
    scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    @torch.compile(backend="eager", fullgraph=True)
    def f(x):
        return x * scale

    f(torch.randn(3))


@raises(
    "A compiled function changes a tensor and a detached alias of it",
    cause="Two arguments share their memory, and one of them was made by ``detach()``: autograd does not know that "
    "they belong together. The compiler would have to change both in a way that autograd sees, and cannot.",
    fix="Pass the tensor only, and call ``detach()`` inside; or pass a copy: ``x.detach().clone()``.",
    see=("cookbook/07_compile/torch_compile", "cookbook/04_memory/in_place"),
)
def compiled_alias_changed():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def f(x, same):
        x.mul_(2)
        same.mul_(3)
        return x.sum()

    x = torch.randn(3, requires_grad=True) * 1
    f(x, x.detach())


@fixes(compiled_alias_changed)
def compiled_copy_changed():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def f(x, copy):
        x.mul_(2)
        copy.mul_(3)
        return x.sum()

    x = torch.randn(3, requires_grad=True) * 1
    f(x, x.detach().clone())


@raises(
    "Compiled code makes a tensor with requires_grad=True",
    cause="A tensor that is made inside with ``requires_grad=True`` is a new leaf. The compiler takes the leaves of "
    "the gradient from the arguments and refuses to make one.",
    fix="Make the tensor outside of the compiled function, and pass it in. If it needs no gradient, leave out "
    "``requires_grad=True``. Without ``fullgraph=True`` this line runs in eager mode.",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_leaf_made():
    @torch.compile(backend="eager", fullgraph=True)
    def shifted(x):
        offset = torch.zeros(3, requires_grad=True)
        return (x + offset).square().sum()

    shifted(torch.randn(3))


@fixes(compiled_leaf_made)
def compiled_leaf_passed():
    @torch.compile(backend="eager", fullgraph=True)
    def shifted(x, offset):
        return (x + offset).square().sum()

    shifted(torch.randn(3), torch.zeros(3, requires_grad=True))


@raises(
    "A compiled Function marks its only output as non-differentiable",
    cause="In this release, the compiler expects a tuple of outputs as soon as the forward calls "
    "``mark_non_differentiable``, and fails with an assertion if there is one tensor.",
    fix="A Function without a differentiable output needs no backward: compute it under ``torch.no_grad()`` or on "
    "``x.detach()``, without the Function. With a differentiable output, return both as a tuple.",
    see=("cookbook/07_compile/torch_compile",),
)
def compiled_without_gradient():
    class Positive(Function):
        @staticmethod
        def forward(ctx, x):
            mask = x > 0
            ctx.mark_non_differentiable(mask)
            return mask

        @staticmethod
        def backward(ctx, grad_output):
            return None

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return (x * Positive.apply(x)).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_without_gradient)
def compiled_detached():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return (x * (x.detach() > 0)).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "The code under fullgraph=True asks for a graph break",
    cause="``torch._dynamo.graph_break()`` in your code, or in a library, ends the graph there on purpose. "
    "``fullgraph=True`` forbids that.",
    fix="Remove the call, or compile without ``fullgraph=True``.",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_break_on_purpose():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        y = x.square()
        torch._dynamo.graph_break()
        return y.sum()

    loss(torch.randn(3))


@fixes(compiled_break_on_purpose)
def compiled_break_allowed():
    @torch.compile(backend="eager")
    def loss(x):
        y = x.square()
        torch._dynamo.graph_break()
        return y.sum()

    loss(torch.randn(3))


@raises(
    "Compiled code assigns .data",
    cause="""``x.data = …`` gives a tensor other contents, and autograd does not see this. The compiler traces such an
    assignment only for a tensor from outside the compiled function, and only with the same dtype.""",
    fix="Compute a new tensor instead. To write into a parameter, use ``with torch.no_grad(): p.copy_(value)``, or do "
    "it outside of the compiled function.",
    see=("cookbook/07_compile/graph_breaks", "cookbook/04_memory/detaching"),
)
def compiled_data_assigned():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        y = x * 2
        y.data = torch.ones(3)
        return y.sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_data_assigned)
def compiled_value_copied():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        y = x * 2
        with torch.no_grad():
            y = y.copy_(torch.ones(3))
        return y.sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "Compiled code resizes a tensor in place",
    cause="``resize_`` changes the shape and the memory of a tensor that already exists, which the graph does not "
    "express.",
    fix="Make a tensor of the new size: ``x.new_empty(n)``, ``torch.nn.functional.pad`` or a slice.",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_resize():
    @torch.compile(backend="eager", fullgraph=True)
    def padded(x):
        return x.clone().resize_(5)

    padded(torch.randn(3))


@fixes(compiled_resize)
def compiled_pad():
    @torch.compile(backend="eager", fullgraph=True)
    def padded(x):
        return torch.nn.functional.pad(x, (0, 2))

    padded(torch.randn(3))


@raises(
    "Compiled code keeps the handle of a hook in a global variable",
    cause="``register_hook`` returns a handle that removes the hook again. The compiler cannot create this object for "
    "a global variable after the graph has run.",
    fix="Register the hook outside of the compiled function, or do not keep the handle.",
    see=("cookbook/02_changing_the_gradient/hooks", "cookbook/07_compile/graph_breaks"),
)
def compiled_handle_kept():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        global handle
        handle = x.register_hook(lambda grad: grad / 2)
        return x.square().sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_handle_kept)
def handle_kept_outside():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return x.square().sum()

    x = torch.randn(3, requires_grad=True)
    handle = x.register_hook(lambda grad: grad / 2)
    loss(x)
    handle.remove()


@raises(
    "The forward or backward of a compiled Function is no plain function",
    cause="""The compiler reads the source of ``forward`` and ``backward``. A ``functools.partial``, an object with
    ``__call__`` or a built-in has no Python source.""",
    fix="Write both with ``def`` under ``@staticmethod``, and let these call the other object.",
    see=("cookbook/07_compile/torch_compile",),
)
def compiled_partial_forward():
    class Scale(Function):
        forward = functools.partial(lambda ctx, x, factor: x * factor, factor=2)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 2

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Scale.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(compiled_partial_forward)
def compiled_plain_forward():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 2

    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return Scale.apply(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A compiled function was given a sparse tensor",
    cause="The compiler does not support sparse tensors as inputs in this release.",
    fix="Build the sparse tensor and multiply with it outside of the compiled part, or pass indices and values and use "
    "``index_add`` or ``torch.segment_reduce``. Without ``fullgraph=True``, that part runs in eager mode.",
    see=("cookbook/04_memory/sparse", "cookbook/07_compile/graph_breaks"),
)
def compiled_sparse_input():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(matrix, x):
        return (matrix @ x).sum()

    loss(torch.eye(3).to_sparse(), torch.randn(3, 2))


@fixes(compiled_sparse_input)
def compiled_dense_input():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(matrix, x):
        return (matrix @ x).sum()

    loss(torch.eye(3), torch.randn(3, 2))


@raises(
    "A module was compiled while global module hooks were registered",
    cause="A global hook runs for each module. ``torch.compile(model)`` wraps the model in another module, so such a "
    "hook runs once more, for the wrapper.",
    fix="Register the hook on the modules that you mean, ``module.register_forward_hook(hook)``, or return early from "
    "it for a ``torch._dynamo.OptimizedModule``. If the second run does not matter, the warning is harmless.",
    see=("cookbook/02_changing_the_gradient/hooks",),
    warning=True,
)
def compiled_under_global_hook():
    nn.modules.module.register_module_forward_hook(lambda module, inputs, output: None)
    model = torch.compile(nn.Linear(3, 1), backend="eager")
    model(torch.randn(4, 3))


@fixes(compiled_under_global_hook)
def compiled_under_own_hook():
    model = nn.Linear(3, 1)
    model.register_forward_hook(lambda module, inputs, output: None)
    model = torch.compile(model, backend="eager")
    model(torch.randn(4, 3))


@raises(
    "The memory budget of the compiler is no fraction",
    cause="``activation_memory_budget`` is the part of the activations that may stay in memory: 0 recomputes as much "
    "as possible, 1 is the default.",
    fix="Set a number from 0 to 1, such as ``torch._functorch.config.activation_memory_budget = 0.5``.",
    see=("cookbook/07_compile/selective_checkpointing",),
)
def compiled_budget_in_bytes():
    @torch.compile(backend="aot_eager_decomp_partition")
    def loss(x):
        return x.sin().sin().sum()

    with torch._functorch.config.patch(activation_memory_budget=2e9):
        loss(torch.randn(3, requires_grad=True))


@fixes(compiled_budget_in_bytes)
def compiled_budget_as_fraction():
    @torch.compile(backend="aot_eager_decomp_partition")
    def loss(x):
        return x.sin().sin().sum()

    with torch._functorch.config.patch(activation_memory_budget=0.5):
        loss(torch.randn(3, requires_grad=True))


@raises(
    "A parameter in compiled code has a gradient of another dtype",
    cause="The gradient of this tensor has another dtype than the tensor, which ``grad_dtype`` allows, and which FSDP "
    "with mixed precision and float32 main gradients do. The compiler cannot represent such a tensor in this release.",
    fix="Set the gradients to ``None`` before the compiled forward: ``optimizer.zero_grad(set_to_none=True)``. Or keep "
    "the float32 gradient in an attribute of its own, such as ``p.main_grad``.",
    see=("cookbook/04_memory/main_grad",),
)
def compiled_gradient_of_other_dtype():
    weight = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    weight.grad_dtype = torch.float32
    weight.grad = torch.zeros(3)

    @torch.compile(backend="eager", fullgraph=True)
    def loss():
        return (weight * 2).sum()

    loss()


@fixes(compiled_gradient_of_other_dtype)
def compiled_gradient_absent():
    weight = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    weight.grad_dtype = torch.float32
    weight.grad = None

    @torch.compile(backend="eager", fullgraph=True)
    def loss():
        return (weight * 2).sum()

    loss()


@raises(
    "Compiled code writes into a view that as_strided made",
    cause="The compiler turns in-place operations into new tensors, and then must put the values back into the base of "
    "the view. For ``as_strided`` between other views it does not know where they belong.",
    fix="Replace ``as_strided`` by ``unfold``, ``diagonal``, slices or ``view``, or write out of place. Without "
    "``fullgraph=True``, ``torch._dynamo.graph_break()`` in front of the write keeps it in eager mode.",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_strided_write():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def doubled(x):
        x.view(3)[:2].as_strided((2,), (1,)).mul_(2)
        return x

    doubled(torch.randn(3))


@fixes(compiled_strided_write)
def compiled_slice_write():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def doubled(x):
        x.view(3)[:2].mul_(2)
        return x

    doubled(torch.randn(3))


@raises(
    "A function compiled with fullgraph=True was not compiled at all",
    cause="The compiler skips a call under a mode that watches operations, such as ``FlopCounterMode`` or your own "
    "``TorchDispatchMode``, and functions that ``torch.compiler.disable`` excludes. The call then ran in eager mode, "
    "and ``fullgraph=True`` promises one graph. The message lists each skipped frame with its reason.",
    fix="Take the mode off the compiled call: count FLOPs with the function before ``torch.compile``. Or compile "
    "without ``fullgraph=True``, which allows eager mode.",
    see=("cookbook/07_compile/graph_breaks",),
)
def compiled_under_counter():
    @torch.compile(backend="eager", fullgraph=True)
    def loss(x):
        return x.square().sum()

    with FlopCounterMode(display=False):
        loss(torch.randn(3))


@fixes(compiled_under_counter)
def counted_before_compiling():
    def loss(x):
        return x.square().sum()

    with FlopCounterMode(display=False):
        loss(torch.randn(3))
    torch.compile(loss, backend="eager", fullgraph=True)(torch.randn(3))


@raises(
    "Compiled autograd.grad goes through a graph that was made outside",
    cause="With ``trace_autograd_ops``, the compiler records the forward and its ``torch.autograd.grad`` together. "
    "Here the graph goes on into operations that ran before the compiled function, which it has not recorded.",
    fix="Compute this part inside the compiled function too, or pass ``y.detach().requires_grad_()`` and differentiate "
    "with respect to that.",
    see=("cookbook/07_compile/torch_compile",),
)
def compiled_grad_of_outside():
    torch._dynamo.config.trace_autograd_ops = True
    x = torch.randn(3, requires_grad=True)
    y = x * 2

    @torch.compile(backend="eager", fullgraph=True)
    def gradient(y):
        return torch.autograd.grad(y.square().sum(), x)

    gradient(y)


@fixes(compiled_grad_of_outside)
def compiled_grad_of_inside():
    torch._dynamo.config.trace_autograd_ops = True
    x = torch.randn(3, requires_grad=True)

    @torch.compile(backend="eager", fullgraph=True)
    def gradient(x):
        y = x * 2
        return torch.autograd.grad(y.square().sum(), x)

    gradient(x)


@raises(
    "Compiled autograd.grad uses up a graph that is needed again",
    cause="``torch.autograd.grad`` frees the graph that it goes through. The compiled function then differentiates the "
    "same result again, or returns it with its graph.",
    fix="Ask for all gradients in one call, ``torch.autograd.grad(y, [a, b])``, and return ``y.detach()``. To keep the "
    "graph, pass ``create_graph=True``.",
    see=("cookbook/07_compile/torch_compile",),
)
def compiled_grad_twice():
    torch._dynamo.config.trace_autograd_ops = True

    @torch.compile(backend="eager", fullgraph=True)
    def gradients(a, b):
        y = (a * b).square().sum()
        return torch.autograd.grad(y, a), torch.autograd.grad(y, b)

    gradients(torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True))


@fixes(compiled_grad_twice)
def compiled_grad_once():
    torch._dynamo.config.trace_autograd_ops = True

    @torch.compile(backend="eager", fullgraph=True)
    def gradients(a, b):
        y = (a * b).square().sum()
        return torch.autograd.grad(y, [a, b])

    gradients(torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True))
