"""Writing and calling a Function."""

from collections import namedtuple

import torch
from docs.errors.programs import fixes, raises
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


@raises(
    "save_for_backward was given a number",
    cause="``ctx.save_for_backward`` accepts only tensors and ``None``.",
    fix="Numbers, shapes, flags and strings become attributes: ``ctx.exponent = exponent``. Tensors in a list are "
    "unpacked: ``ctx.save_for_backward(*tensors)``.",
    see=("guide/ctx", "cookbook/01_first_steps/arguments"),
)
def number_saved():
    class Power(Function):
        @staticmethod
        def forward(ctx, x, exponent):
            ctx.save_for_backward(x, exponent)
            return x**exponent

        @staticmethod
        def backward(ctx, grad_output):
            x, exponent = ctx.saved_tensors
            return exponent * x ** (exponent - 1) * grad_output, None

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    Power.apply(x, 3)


@fixes(number_saved)
def number_on_ctx():
    class Power(Function):
        @staticmethod
        def forward(ctx, x, exponent):
            ctx.save_for_backward(x)
            ctx.exponent = exponent
            return x**exponent

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return ctx.exponent * x ** (ctx.exponent - 1) * grad_output, None

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    Power.apply(x, 3).sum().backward()


@raises(
    "forward is missing, or its name is misspelled",
    cause="""``apply`` calls the ``forward`` of the class. Without a ``forward`` of your own, the class inherits the
    ``forward`` of ``Function``, which only raises.""",
    fix="Define a static method that is called exactly ``forward``.",
    see=("guide/ctx", "cookbook/01_first_steps/template"),
)
def forward_missing():
    class Swish(Function):
        @staticmethod
        def foward(ctx, x):
            ctx.save_for_backward(x)
            return x * x.sigmoid()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            s = x.sigmoid()
            return grad_output * s * (1 + x * (1 - s))

    x = torch.randn(3, requires_grad=True)
    Swish.apply(x).sum().backward()


@fixes(forward_missing)
def forward_spelled():
    class Swish(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x.sigmoid()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            s = x.sigmoid()
            return grad_output * s * (1 + x * (1 - s))

    x = torch.randn(3, requires_grad=True)
    Swish.apply(x).sum().backward()


@raises(
    "The Function has no backward",
    cause="The class defines neither ``backward`` nor ``vjp`` (or the name is misspelled). ``apply`` works; the "
    "message comes when the engine reaches the node.",
    fix="Define a static method ``backward(ctx, *grad_outputs)``. A result that needs no gradient is marked with "
    "``ctx.mark_non_differentiable`` instead.",
    see=("guide/backward", "cookbook/01_first_steps/template"),
)
def backward_missing():
    class Round(Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

    x = torch.randn(3, requires_grad=True)
    Round.apply(x).sum().backward()


@fixes(backward_missing)
def backward_defined():
    class Round(Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output  # straight through

    x = torch.randn(3, requires_grad=True)
    Round.apply(x).sum().backward()


@raises(
    "The Function has both backward and vjp",
    cause="``vjp`` is another name for ``backward``. With both defined, the engine does not know which to call.",
    fix="Keep one of them. ``backward`` is the usual name.",
    see=("guide/directions",),
)
def backward_and_vjp():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

        @staticmethod
        def vjp(ctx, grad_output):
            return 2 * grad_output

    x = torch.randn(3, requires_grad=True)
    Double.apply(x).sum().backward()


@fixes(backward_and_vjp)
def backward_alone():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    x = torch.randn(3, requires_grad=True)
    Double.apply(x).sum().backward()


@raises(
    "An instance of a Function was called",
    cause="A Function is not instantiated: its methods are static, and ``apply`` is a method of the class. Calling an "
    "instance always raises this, with static methods too. Code for torch before 1.5 keeps arguments in ``__init__`` "
    "and calls the instance.",
    fix="Call ``ScaledTanh.apply(x)`` on the class, and write ``forward(ctx, x)`` and ``backward(ctx, grad_output)`` "
    "as static methods. What ``__init__`` took goes to ``apply`` too, is stored on ``ctx``, and gets ``None`` as its "
    "gradient; replace ``self`` by ``ctx``. To make a layer of it, call ``apply`` in the ``forward`` of an "
    "``nn.Module``. If the class is a library's, install a release of the library for your torch.",
    see=("cookbook/01_first_steps/template", "cookbook/01_first_steps/module"),
)
def instance_called():
    class ScaledTanh(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.tanh()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad_output):
            (y,) = ctx.saved_tensors
            return grad_output * (1 - y * y)

    activation = ScaledTanh()
    activation(torch.randn(3, requires_grad=True))


@fixes(instance_called)
def instance_not_called():
    class ScaledTanh(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.tanh()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad_output):
            (y,) = ctx.saved_tensors
            return grad_output * (1 - y * y)

    activation = ScaledTanh.apply
    activation(torch.randn(3, requires_grad=True)).sum().backward()


@raises(
    "An instance of a Function was made",
    cause="""You use the class itself, because its methods are static. An instance has no use, and PyTorch warns that
    making an instance will be an error.""",
    fix="Use the class, or its ``apply``, and make no instance.",
    see=("cookbook/01_first_steps/template",),
    warning=True,
)
def instance_made():
    class Negate(Function):
        @staticmethod
        def forward(ctx, x):
            return -x

        @staticmethod
        def backward(ctx, grad_output):
            return -grad_output

    Negate().apply(torch.randn(3, requires_grad=True))


@fixes(instance_made)
def instance_not_made():
    class Negate(Function):
        @staticmethod
        def forward(ctx, x):
            return -x

        @staticmethod
        def backward(ctx, grad_output):
            return -grad_output

    negate = Negate.apply
    negate(torch.randn(3, requires_grad=True)).sum().backward()


@raises(
    "apply got fewer arguments than forward takes",
    cause="""``apply`` passes its arguments on to ``forward``, after ``ctx``. The call leaves out an argument that has
    no default.""",
    fix="Pass every argument of ``forward`` except ``ctx`` to ``apply``.",
    see=("guide/ctx", "cookbook/01_first_steps/arguments"),
)
def apply_argument_missing():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return factor * x

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output, None

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x)


@fixes(apply_argument_missing)
def argument_given():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return factor * x

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output, None

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x, 2.0).sum().backward()


@raises(
    "forward takes no ctx, and there is no setup_context",
    cause="""Without ``setup_context``, PyTorch calls ``forward`` with ``ctx`` before the arguments of ``apply``. This
    ``forward`` has no parameter for ``ctx``. If ``apply`` gets more arguments than ``forward`` takes, the message is
    the same.""",
    fix="Write ``forward(ctx, x)``, or keep ``forward(x)`` and define ``setup_context(ctx, inputs, output)``.",
    see=("guide/ctx", "cookbook/01_first_steps/template"),
)
def ctx_not_taken():
    class Square(Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, requires_grad=True)
    Square.apply(x)


@fixes(ctx_not_taken)
def ctx_in_setup_context():
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

    x = torch.randn(3, requires_grad=True)
    Square.apply(x).sum().backward()


@raises(
    "forward takes ctx although there is a setup_context",
    cause="""With ``setup_context``, PyTorch calls ``forward`` without ``ctx``. So the first argument of ``apply``
    becomes ``ctx``, and the last argument is missing. If ``apply`` gets too few arguments, the message is the same in
    this form.""",
    fix="Remove ``ctx`` from ``forward``, and move the code that uses ``ctx`` to ``setup_context``.",
    see=("guide/ctx", "cookbook/01_first_steps/template"),
)
def ctx_twice():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, requires_grad=True)
    Square.apply(x)


@fixes(ctx_twice)
def ctx_once():
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

    x = torch.randn(3, requires_grad=True)
    Square.apply(x).sum().backward()


@raises(
    "apply got more arguments than forward takes (with setup_context)",
    cause="""In the form with ``setup_context``, ``apply`` first binds its arguments to the parameters of ``forward``.
    The call has more arguments than ``forward`` has parameters.""",
    fix="""Pass only the arguments that ``forward`` takes, or add the parameter. Then ``backward`` returns one more
    value: the gradient of the parameter, or ``None`` if it is no tensor.""",
    see=("guide/ctx", "cookbook/01_first_steps/arguments"),
)
def argument_too_many():
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

    x = torch.randn(3, requires_grad=True)
    Square.apply(x, 2)


@fixes(argument_too_many)
def argument_single():
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

    x = torch.randn(3, requires_grad=True)
    Square.apply(x).sum().backward()


@raises(
    "A keyword-only or unknown argument was given to apply",
    cause="""``apply`` finds the position of a keyword by the names of the positional parameters of ``forward``. A
    keyword-only parameter has no position, and neither has a keyword that goes into ``**kwargs``. Without
    ``setup_context``, a decorator such as ``custom_fwd`` also hides the parameters.""",
    fix="""Make the parameter positional, before any ``*``. Under a decorator, pass it by position. ``backward`` returns
    one more value: the gradient of the parameter, or ``None`` if it is no tensor.""",
    see=("guide/ctx", "cookbook/01_first_steps/arguments"),
)
def keyword_only():
    class LeakyReLU(Function):
        @staticmethod
        def forward(ctx, x, *, slope):
            ctx.save_for_backward(x)
            ctx.slope = slope
            return torch.where(x > 0, x, slope * x)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return torch.where(x > 0, grad_output, ctx.slope * grad_output)

    x = torch.randn(3, requires_grad=True)
    LeakyReLU.apply(x, slope=0.1)


@fixes(keyword_only)
def keyword_ordinary():
    class LeakyReLU(Function):
        @staticmethod
        def forward(ctx, x, slope):
            ctx.save_for_backward(x)
            ctx.slope = slope
            return torch.where(x > 0, x, slope * x)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return torch.where(x > 0, grad_output, ctx.slope * grad_output), None

    x = torch.randn(3, requires_grad=True)
    LeakyReLU.apply(x, slope=0.1).sum().backward()


@raises(
    "A misspelled keyword was given to apply (with setup_context)",
    cause="In the form with ``setup_context``, ``apply`` binds its arguments to ``forward``'s signature, which has no "
    "such parameter.",
    fix="Use the name that ``forward`` gives the parameter.",
    see=("guide/ctx", "cookbook/01_first_steps/arguments"),
)
def keyword_misspelled():
    class Scale(Function):
        @staticmethod
        def forward(x, factor=1.0):
            return factor * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            _, ctx.factor = inputs

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output, None

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x, scale=2.0)


@fixes(keyword_misspelled)
def keyword_spelled():
    class Scale(Function):
        @staticmethod
        def forward(x, factor=1.0):
            return factor * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            _, ctx.factor = inputs

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output, None

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x, factor=2.0).sum().backward()


@raises(
    "An argument was given to apply by position and by name",
    cause="The positional arguments already fill the parameter that the keyword names.",
    fix="Give each argument once.",
    see=("guide/ctx", "cookbook/01_first_steps/arguments"),
)
def keyword_twice():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return factor * x

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output, None

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x, 2.0, factor=2.0)


@fixes(keyword_twice)
def keyword_once():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return factor * x

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output, None

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x, factor=2.0).sum().backward()


@raises(
    "apply got a keyword, and an argument before it is missing",
    cause="""If ``apply`` gets keywords, it puts all arguments into the order of the parameters of ``forward``. The call
    gives no value for a parameter before a keyword. In PyTorch 2.13, a ``forward`` without ``setup_context`` does not
    use its default for this parameter either. The position counts from 0, without ``ctx``.""",
    fix="Pass every argument that is before a keyword.",
    see=("guide/ctx", "cookbook/01_first_steps/arguments"),
)
def keyword_leaves_gap():
    class ScaleShift(Function):
        @staticmethod
        def forward(ctx, x, factor, shift):
            ctx.factor = factor
            return factor * x + shift

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output, None, None

    x = torch.randn(3, requires_grad=True)
    ScaleShift.apply(x, shift=1.0)


@fixes(keyword_leaves_gap)
def keyword_all():
    class ScaleShift(Function):
        @staticmethod
        def forward(ctx, x, factor, shift):
            ctx.factor = factor
            return factor * x + shift

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output, None, None

    x = torch.randn(3, requires_grad=True)
    ScaleShift.apply(x, factor=2.0, shift=1.0).sum().backward()


@raises(
    "setup_context does not take the output",
    cause="PyTorch calls ``setup_context(ctx, inputs, output)``, with all of ``forward``'s arguments in one tuple.",
    fix="Write exactly these three parameters, even if you do not use all of them.",
    see=("guide/ctx", "cookbook/01_first_steps/template"),
)
def setup_context_without_output():
    class Sine(Function):
        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * x.cos()

    x = torch.randn(3, requires_grad=True)
    Sine.apply(x)


@fixes(setup_context_without_output)
def setup_context_with_output():
    class Sine(Function):
        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * x.cos()

    x = torch.randn(3, requires_grad=True)
    Sine.apply(x).sum().backward()


@raises(
    "setup_context unpacks fewer inputs than there are",
    cause="``inputs`` is the tuple of all arguments of ``forward``: tensors or not, defaults included.",
    fix="Unpack all of them, with ``_`` for those that are not needed.",
    see=("guide/ctx", "cookbook/01_first_steps/arguments"),
)
def inputs_half_unpacked():
    class Power(Function):
        @staticmethod
        def forward(x, exponent=2):
            return x**exponent

        @staticmethod
        def setup_context(ctx, inputs, output):
            (x,) = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, requires_grad=True)
    Power.apply(x)


@fixes(inputs_half_unpacked)
def inputs_unpacked():
    class Power(Function):
        @staticmethod
        def forward(x, exponent=2):
            return x**exponent

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.exponent = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return ctx.exponent * x ** (ctx.exponent - 1) * grad_output, None

    x = torch.randn(3, requires_grad=True)
    Power.apply(x).sum().backward()


@raises(
    "Fewer saved tensors than backward unpacks",
    cause="""``ctx.saved_tensors`` has as many elements as the last call of ``ctx.save_for_backward`` got, here none. A
    second call of ``save_for_backward`` replaces the first. Inside ``forward`` and ``setup_context``, ``saved_tensors``
    is empty, because PyTorch stores the tensors later. In ``jvp``, it contains the tensors of ``save_for_forward``.""",
    fix="Save all tensors in one call, and unpack as many in ``backward``.",
    see=("guide/ctx",),
)
def nothing_saved():
    class Multiply(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * b

        @staticmethod
        def backward(ctx, grad_output):
            a, b = ctx.saved_tensors
            return grad_output * b, grad_output * a

    a = torch.randn(3, requires_grad=True)
    b = torch.randn(3, requires_grad=True)
    Multiply.apply(a, b).sum().backward()


@fixes(nothing_saved)
def both_saved():
    class Multiply(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, grad_output):
            a, b = ctx.saved_tensors
            return grad_output * b, grad_output * a

    a = torch.randn(3, requires_grad=True)
    b = torch.randn(3, requires_grad=True)
    Multiply.apply(a, b).sum().backward()


@raises(
    "backward uses self, but it is a static method",
    cause="``forward`` and ``backward`` of a Function are static methods: the first argument is ``ctx``, and there is "
    "no instance. Old code, which called the Function on an instance, used ``self`` there.",
    fix="Write ``ctx`` instead of ``self``, also in ``self.saved_tensors``, and put on ``ctx`` what ``forward`` knows: "
    "``ctx.factor = factor``. Pass numbers and flags as arguments of ``apply``: a Function has no ``__init__``.",
    see=("guide/ctx", "cookbook/01_first_steps/template"),
)
def self_in_backward():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return factor * x

        @staticmethod
        def backward(ctx, grad_output):
            return self.factor * grad_output, None  # noqa: F821

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x, 2.0).sum().backward()


@fixes(self_in_backward)
def ctx_in_backward():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return factor * x

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output, None

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x, 2.0).sum().backward()


@raises(
    "backward reads an attribute that forward did not put on ctx",
    cause="``ctx`` is an instance of a class that PyTorch makes of the Function, with ``Backward`` after its name. It "
    "has only the attributes that ``forward`` or ``setup_context`` set.",
    fix="Set it in ``forward`` or ``setup_context``: ``ctx.exponent = exponent``. Tensors go through "
    "``ctx.save_for_backward``.",
    see=("guide/ctx", "cookbook/01_first_steps/arguments"),
)
def attribute_not_set():
    class Power(Function):
        @staticmethod
        def forward(ctx, x, exponent):
            ctx.save_for_backward(x)
            return x**exponent

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return ctx.exponent * x ** (ctx.exponent - 1) * grad_output, None

    x = torch.randn(3, requires_grad=True)
    Power.apply(x, 3).sum().backward()


@fixes(attribute_not_set)
def attribute_set():
    class Power(Function):
        @staticmethod
        def forward(ctx, x, exponent):
            ctx.save_for_backward(x)
            ctx.exponent = exponent
            return x**exponent

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return ctx.exponent * x ** (ctx.exponent - 1) * grad_output, None

    x = torch.randn(3, requires_grad=True)
    Power.apply(x, 3).sum().backward()


@raises(
    "backward returns a gradient that it did not compute",
    cause="``backward`` computes a gradient only where ``ctx.needs_input_grad`` asks for it, and returns it in any "
    "case. Where the input needs none (a frozen weight, data), the name was never assigned.",
    fix="Begin with ``grad_x = grad_weight = None``, and compute each where it is needed.",
    see=("cookbook/01_first_steps/template", "guide/ctx"),
)
def gradient_left_unset():
    class Product(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, grad_output):
            x, weight = ctx.saved_tensors
            if ctx.needs_input_grad[0]:
                grad_x = grad_output @ weight.T
            if ctx.needs_input_grad[1]:
                grad_weight = x.T @ grad_output
            return grad_x, grad_weight

    weight = torch.randn(3, 2, requires_grad=True)
    Product.apply(torch.randn(4, 3), weight).sum().backward()


@fixes(gradient_left_unset)
def gradient_set_to_none():
    class Product(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, grad_output):
            x, weight = ctx.saved_tensors
            grad_x = grad_weight = None
            if ctx.needs_input_grad[0]:
                grad_x = grad_output @ weight.T
            if ctx.needs_input_grad[1]:
                grad_weight = x.T @ grad_output
            return grad_x, grad_weight

    weight = torch.randn(3, 2, requires_grad=True)
    Product.apply(torch.randn(4, 3), weight).sum().backward()


@raises(
    "ctx.saved_tensors was assigned",
    cause="""You can only read ``ctx.saved_tensors``. To fill it, call ``ctx.save_for_backward``. You cannot assign
    ``metadata``, ``next_functions`` and ``requires_grad`` of ``ctx`` either.""",
    fix="Call ``ctx.save_for_backward(x)``, and choose other names for your own attributes.",
    see=("guide/ctx",),
)
def saved_tensors_assigned():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.saved_tensors = (x,)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, requires_grad=True)
    Square.apply(x)


@fixes(saved_tensors_assigned)
def saved_by_call():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, requires_grad=True)
    Square.apply(x).sum().backward()


@raises(
    "The attribute to_save of ctx was overwritten",
    cause="""``ctx.save_for_backward`` keeps its arguments in ``ctx.to_save`` until ``forward`` ends. Your attribute
    with the same name replaced this tuple.""",
    fix="Give tensors to ``ctx.save_for_backward``, and choose another name for anything else. ``to_save``, "
    "``saved_for_forward``, ``dirty_tensors``, ``non_differentiable``, ``materialize_grads``, ``needs_input_grad``, "
    "``saved_tensors``, ``metadata``, ``name``, ``next_functions`` and ``requires_grad`` are PyTorch's.",
    see=("guide/ctx", "guide/api"),
)
def to_save_overwritten():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.to_save = x
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * ctx.to_save * grad_output

    x = torch.randn(3, requires_grad=True)
    Square.apply(x)


@fixes(to_save_overwritten)
def to_save_left_alone():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, requires_grad=True)
    Square.apply(x).sum().backward()


@raises(
    "The attribute non_differentiable of ctx was overwritten",
    cause="""``ctx.mark_non_differentiable`` keeps its arguments in ``ctx.non_differentiable``, which must be a tuple of
    outputs. Your attribute with the same name replaced this tuple.""",
    fix="Call ``ctx.mark_non_differentiable(output)``, and choose other names for your own attributes.",
    see=("guide/ctx", "guide/api"),
)
def non_differentiable_overwritten():
    class Quantize(Function):
        @staticmethod
        def forward(ctx, x):
            codes = x.round()
            ctx.non_differentiable = codes
            return codes

        @staticmethod
        def backward(ctx, grad_output):
            return None

    x = torch.randn(3, requires_grad=True)
    Quantize.apply(x)


@fixes(non_differentiable_overwritten)
def non_differentiable_marked():
    class Quantize(Function):
        @staticmethod
        def forward(ctx, x):
            codes = x.round()
            ctx.mark_non_differentiable(codes)
            return codes

        @staticmethod
        def backward(ctx, grad_output):
            return None

    x = torch.randn(3, requires_grad=True)
    Quantize.apply(x)


@raises(
    "The attribute dirty_tensors of ctx was overwritten",
    cause="""``ctx.mark_dirty`` keeps its arguments in ``ctx.dirty_tensors``, which must be a tuple of inputs. Your
    attribute with the same name replaced this tuple.""",
    fix="Call ``ctx.mark_dirty(x)``, and choose other names for your own attributes.",
    see=("guide/ctx", "guide/api"),
)
def dirty_tensors_overwritten():
    class DoubleInPlace(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.dirty_tensors = [x]
            return x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    x = torch.randn(3, requires_grad=True)
    DoubleInPlace.apply(x.clone())


@fixes(dirty_tensors_overwritten)
def dirty_tensors_marked():
    class DoubleInPlace(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    x = torch.randn(3, requires_grad=True)
    DoubleInPlace.apply(x.clone()).sum().backward()


@raises(
    "ctx.saved_variables was read",
    cause="""``saved_variables`` is the old name of ``ctx.saved_tensors``, from the time when PyTorch wrapped tensors in
    variables.""",
    fix="Read ``ctx.saved_tensors``.",
    see=("guide/ctx", "guide/api"),
    warning=True,
)
def saved_variables_read():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_variables
            return 2 * x * grad_output

    x = torch.randn(3, requires_grad=True)
    Square.apply(x).sum().backward()


@fixes(saved_variables_read)
def saved_tensors_read():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, requires_grad=True)
    Square.apply(x).sum().backward()


@raises(
    "ctx.mark_shared_storage was called",
    cause="The method no longer does anything: PyTorch detects that an output is a view of an input.",
    fix="Delete the call.",
    see=("guide/api",),
    warning=True,
)
def shared_storage_marked():
    class Flatten(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            y = x.view(-1)
            ctx.mark_shared_storage((x, y))
            return y

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.view(ctx.shape)

    x = torch.randn(2, 3, requires_grad=True)
    Flatten.apply(x)


@fixes(shared_storage_marked)
def shared_storage_not_marked():
    class Flatten(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.view(-1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.reshape(ctx.shape)

    x = torch.randn(2, 3, requires_grad=True)
    Flatten.apply(x).sum().backward()


@raises(
    "save_for_forward was given a number",
    cause="``ctx.save_for_forward`` accepts only tensors for ``jvp``, and ``None``.",
    fix="Numbers become attributes: ``ctx.factor = factor``.",
    see=("guide/ctx", "guide/directions", "cookbook/05_higher_order/forward_mode"),
)
def number_saved_for_forward():
    class Scale(Function):
        @staticmethod
        def forward(x, factor):
            return factor * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, factor = inputs
            ctx.save_for_forward(x, factor)

        @staticmethod
        def jvp(ctx, tangent, _):
            _, factor = ctx.saved_tensors
            return factor * tangent

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x, 2.0)


@fixes(number_saved_for_forward)
def number_for_jvp_on_ctx():
    class Scale(Function):
        @staticmethod
        def forward(x, factor):
            return factor * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            _, ctx.factor = inputs

        @staticmethod
        def jvp(ctx, tangent, _):
            return ctx.factor * tangent

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x, 2.0)


@raises(
    "A Function changed a leaf in place",
    cause="""``forward`` marks a leaf that requires grad as dirty. The gradient belongs to the old value of this leaf,
    which is overwritten. So autograd refuses, as it does for PyTorch's own in-place operations.""",
    fix="Pass the result of an operation to the Function (``x.clone()``), or do not work in place.",
    see=("guide/ctx", "cookbook/04_memory/in_place", "check:inputs_unchanged"),
)
def leaf_marked_dirty():
    class DoubleInPlace(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    x = torch.randn(3, requires_grad=True)
    DoubleInPlace.apply(x)


@fixes(leaf_marked_dirty)
def copy_marked_dirty():
    class DoubleInPlace(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    x = torch.randn(3, requires_grad=True)
    DoubleInPlace.apply(x.clone()).sum().backward()


@raises(
    "A tensor marked dirty is not among the outputs",
    cause="""A Function that changes an input in place must return this input, because autograd attaches the Function's
    node to its outputs.""",
    fix="Return the input together with the other results. Do not mark a tensor that the Function does not change.",
    see=("guide/ctx", "cookbook/04_memory/in_place"),
)
def dirty_not_returned():
    class AddOneInPlace(Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x.clone()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    x = torch.randn(3, requires_grad=True)
    AddOneInPlace.apply(2 * x)


@fixes(dirty_not_returned)
def dirty_returned():
    class AddOneInPlace(Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    x = torch.randn(3, requires_grad=True)
    AddOneInPlace.apply(2 * x).sum().backward()


@raises(
    "mark_dirty was given a list",
    cause="""``ctx.mark_dirty`` takes tensors as separate arguments, not a list. In PyTorch 2.13, the message ends too
    early and does not say which argument is wrong.""",
    fix="Unpack the list: ``ctx.mark_dirty(*tensors)``.",
    see=("guide/ctx", "cookbook/04_memory/in_place"),
)
def dirty_list():
    class DoubleInPlace(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty([x])
            return x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    x = torch.randn(3, requires_grad=True)
    DoubleInPlace.apply(x.clone())


@fixes(dirty_list)
def dirty_argument():
    class DoubleInPlace(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    x = torch.randn(3, requires_grad=True)
    DoubleInPlace.apply(x.clone()).sum().backward()


@raises(
    "A Function that changes a view in place returns two tensors",
    cause="After a change of a view, autograd rewrites the history of its base, and can do so only for a Function "
    "with a single output. A number among the outputs counts.",
    fix="Split the Function in two: one that changes the tensor, one that computes the rest. Or clone the view before; "
    "then the change stays in the clone, and the base keeps its values.",
    see=("guide/ctx", "cookbook/04_memory/in_place"),
)
def dirty_view_two_outputs():
    class ScaleAndSumInPlace(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x, x.sum()

        @staticmethod
        def backward(ctx, grad_x, grad_sum):
            return 2 * (grad_x + grad_sum)

    rows = torch.randn(2, 3, requires_grad=True).clone()
    ScaleAndSumInPlace.apply(rows[0])


@fixes(dirty_view_two_outputs)
def dirty_view_single_output():
    class ScaleInPlace(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad_x):
            return 2 * grad_x

    rows = torch.randn(2, 3, requires_grad=True).clone()
    total = ScaleInPlace.apply(rows[0]).sum()
    total.backward()


@raises(
    "mark_non_differentiable was given a number",
    cause="""``ctx.mark_non_differentiable`` is for outputs that are tensors. In PyTorch 2.13, the message ends too
    early and does not say the type of the argument.""",
    fix="Mark only tensors. A number among the outputs needs no mark, and ``backward`` still gets an argument for it.",
    see=("guide/ctx", "cookbook/01_first_steps/several_outputs"),
)
def number_marked():
    class SumAndCount(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            total, count = x.sum(), x.numel()
            ctx.mark_non_differentiable(count)
            return total, count

        @staticmethod
        def backward(ctx, grad_total, _):
            return grad_total.expand(ctx.shape)

    x = torch.randn(3, requires_grad=True)
    SumAndCount.apply(x)


@fixes(number_marked)
def number_not_marked():
    class SumAndCount(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.sum(), x.numel()

        @staticmethod
        def backward(ctx, grad_total, _):
            return grad_total.expand(ctx.shape)

    x = torch.randn(3, requires_grad=True)
    total, _ = SumAndCount.apply(x)
    total.backward()


@raises(
    "set_materialize_grads was given a number",
    cause="The method takes ``True`` or ``False`` and no other number, not even 0 or 1.",
    fix="``ctx.set_materialize_grads(False)``.",
    see=("guide/ctx",),
)
def materialize_number():
    class Split(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(0)
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, grad_a, grad_b):
            parts = [factor * grad for factor, grad in ((2, grad_a), (3, grad_b)) if grad is not None]
            return sum(parts) if parts else None

    x = torch.randn(3, requires_grad=True)
    Split.apply(x)


@fixes(materialize_number)
def materialize_bool():
    class Split(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, grad_a, grad_b):
            parts = [factor * grad for factor, grad in ((2, grad_a), (3, grad_b)) if grad is not None]
            return sum(parts) if parts else None

    x = torch.randn(3, requires_grad=True)
    a, _ = Split.apply(x)
    a.sum().backward()


@raises(
    "backward calculates with the None of an output that was not used",
    cause="""After ``ctx.set_materialize_grads(False)``, the gradient of an unused output is ``None`` instead of a
    tensor of zeros. The gradient of an output that is no tensor is always ``None``.""",
    fix="Check for ``None`` before you compute with the gradient, or leave ``set_materialize_grads`` at its default.",
    see=("guide/ctx", "cookbook/01_first_steps/several_outputs", "check:unused_outputs", "check:undefined_gradient"),
)
def none_multiplied():
    class MinMax(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return x.amin(), x.amax()

        @staticmethod
        def backward(ctx, grad_min, grad_max):
            (x,) = ctx.saved_tensors
            return (x == x.amin()) * grad_min + (x == x.amax()) * grad_max

    x = torch.randn(3, requires_grad=True)
    _, largest = MinMax.apply(x)
    largest.backward()


@fixes(none_multiplied)
def none_asked_for():
    class MinMax(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return x.amin(), x.amax()

        @staticmethod
        def backward(ctx, grad_min, grad_max):
            (x,) = ctx.saved_tensors
            grad = torch.zeros_like(x)
            if grad_min is not None:
                grad += (x == x.amin()) * grad_min
            if grad_max is not None:
                grad += (x == x.amax()) * grad_max
            return grad

    x = torch.randn(3, requires_grad=True)
    _, largest = MinMax.apply(x)
    largest.backward()


@raises(
    "The output of a Function is a view, and was changed in place",
    cause="""``forward`` returns a view of its input, or the input itself. A change in place would replace the history
    of this view, and the gradient would be wrong without the custom backward. Outputs of modules with a full backward
    hook (``BackwardHookFunction``) are also such views.""",
    fix="Return a copy from ``forward`` (``x.view(-1).clone()``), or change the result out of place.",
    see=("cookbook/04_memory/in_place", "check:in_place_consumer"),
)
def view_changed():
    class Reverse(Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad_output):
            return -grad_output

    x = torch.randn(3, requires_grad=True)
    y = Reverse.apply(x)
    y += 1


@fixes(view_changed)
def view_not_changed():
    class Reverse(Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad_output):
            return -grad_output

    x = torch.randn(3, requires_grad=True)
    y = Reverse.apply(x)
    y = y + 1
    y.sum().backward()


@raises(
    "The input of a Function was changed in place after it had returned a view of it",
    cause="""The output shares memory with the input, so a change of the input, or of another view of it, also changes
    the output. Autograd would have to compute the view of the new value again, and would lose the custom backward.
    PyTorch raises when you use the output, not at the change.""",
    fix="Return a copy from ``forward``, or change the input out of place.",
    see=("cookbook/04_memory/in_place", "check:in_place_consumer"),
)
def base_of_view_changed():
    class Reverse(Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad_output):
            return -grad_output

    x = torch.randn(3, requires_grad=True)
    hidden = 2 * x
    y = Reverse.apply(hidden)
    hidden += 1
    y.sum().backward()


@fixes(base_of_view_changed)
def base_of_view_not_changed():
    class Reverse(Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad_output):
            return -grad_output

    x = torch.randn(3, requires_grad=True)
    hidden = 2 * x
    y = Reverse.apply(hidden)
    hidden = hidden + 1
    y.sum().backward()


@raises(
    "backward returns too few gradients, or too many",
    cause="""``backward`` must return one value for each argument of ``forward`` except ``ctx``, in the same order, and
    ``None`` for an argument that is no tensor. A list of tensors counts as one value. More values at the end are
    allowed if they are ``None``, except in the formula of a custom operator that has a list of tensors among its
    arguments. For a custom operator, torch makes a Function whose name begins with ``GeneratedBackwardFor``. Then both
    counts in the message are one too high.""",
    fix="""Return a tuple with one element for each argument. If the message says "got 1", check that ``backward`` ends
    with a ``return`` statement: without it, Python returns ``None``, which counts as one value.""",
    see=("guide/ctx", "cookbook/01_first_steps/arguments", "check:returned"),
)
def gradient_missing():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return factor * x

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x, 2.0).sum().backward()


@fixes(gradient_missing)
def gradient_for_each():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return factor * x

        @staticmethod
        def backward(ctx, grad_output):
            return ctx.factor * grad_output, None

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x, 2.0).sum().backward()


@raises(
    "backward returns a gradient for an argument that is no tensor",
    cause="""An argument of ``forward`` that is a number, a string or a list of tensors has no gradient. The position in
    the message counts from 1. Often the gradients are in the wrong order, or the caller passed a learnable number by
    ``.item()``. For a custom operator, the message can also mean that its backward returns more gradients than the
    operator has arguments.""",
    fix="""Return the gradients in the order of the arguments, with ``None`` for an argument that is no tensor. Pass a
    number that you want to learn as a tensor.""",
    see=("guide/ctx", "cookbook/01_first_steps/arguments", "check:returned"),
)
def gradient_for_number():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x)
            ctx.factor = factor
            return factor * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return ctx.factor * grad_output, (x * grad_output).sum()

    x = torch.randn(3, requires_grad=True)
    Scale.apply(x, 2.0).sum().backward()


@fixes(gradient_for_number)
def gradient_for_tensor():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x, factor)
            return factor * x

        @staticmethod
        def backward(ctx, grad_output):
            x, factor = ctx.saved_tensors
            return factor * grad_output, (x * grad_output).sum()

    x = torch.randn(3, requires_grad=True)
    factor = torch.tensor(2.0, requires_grad=True)
    Scale.apply(x, factor).sum().backward()


@raises(
    "A gradient has the wrong shape",
    cause="""The gradient at this index, which counts from 0, does not have the shape of the input, and the engine
    cannot sum it to this shape. The engine silently sums a gradient that only has extra or expanded dimensions, as
    after broadcasting. Usual reasons are a missing transpose, and two gradients in the wrong order.""",
    fix="""Return a gradient of the shape of the input. Do not add a ``reshape`` at the end, because it would only hide
    a wrong formula.""",
    see=("cookbook/01_first_steps/matmul", "cookbook/01_first_steps/broadcasting", "check:returned"),
)
def gradient_of_other_shape():
    class MatMul(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        def backward(ctx, grad_output):
            a, b = ctx.saved_tensors
            return b @ grad_output.T, a.T @ grad_output

    a = torch.randn(2, 3, requires_grad=True)
    b = torch.randn(3, 4, requires_grad=True)
    MatMul.apply(a, b).sum().backward()


@fixes(gradient_of_other_shape)
def gradient_of_same_shape():
    class MatMul(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        def backward(ctx, grad_output):
            a, b = ctx.saved_tensors
            return grad_output @ b.T, a.T @ grad_output

    a = torch.randn(2, 3, requires_grad=True)
    b = torch.randn(3, 4, requires_grad=True)
    MatMul.apply(a, b).sum().backward()


@raises(
    "A gradient has the right number of elements in another shape",
    cause="``forward`` or ``backward`` works on a flattened input, mostly a matrix of all rows of a batch, and "
    "``backward`` returns the gradient of that matrix. The engine wants the shape that the input had.",
    fix="Return the gradient in the shape of the input: ``grad.view(ctx.shape)``, with ``ctx.shape = x.shape`` in "
    "``forward``. If the Function is a library's, pass it two-dimensional inputs and reshape around the call: "
    "``f(x.flatten(0, -2))``.",
    see=("cookbook/01_first_steps/matmul", "check:returned"),
)
def gradient_flattened():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad_output):
            rows = grad_output.reshape(-1, grad_output.shape[-1])
            return rows * ctx.factor, None

    x = torch.randn(2, 3, 4, requires_grad=True)
    Scale.apply(x, 2.0).sum().backward()


@fixes(gradient_flattened)
def gradient_in_shape_of_input():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad_output):
            rows = grad_output.reshape(-1, grad_output.shape[-1])
            return (rows * ctx.factor).view(grad_output.shape), None

    x = torch.randn(2, 3, 4, requires_grad=True)
    Scale.apply(x, 2.0).sum().backward()


@raises(
    "A gradient was summed over a dimension that the input has",
    cause="``backward`` returns a smaller gradient that could be expanded to the input: it summed or averaged once "
    "too often, or the output is one number for many elements and its gradient was passed on as it is.",
    fix="Expand the gradient to the input: ``grad_output.expand_as(x)`` for a sum, divided by the number of elements "
    "for a mean, with ``unsqueeze(dim)`` first where ``keepdim`` is missing.",
    see=("cookbook/01_first_steps/reductions", "cookbook/01_first_steps/broadcasting", "check:returned"),
)
def gradient_reduced():
    class Total(Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum(0, keepdim=True)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    x = torch.randn(3, 4, requires_grad=True)
    Total.apply(x).sum().backward()


@fixes(gradient_reduced)
def gradient_expanded():
    class Total(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.sum(0, keepdim=True)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.expand(ctx.shape)

    x = torch.randn(3, 4, requires_grad=True)
    Total.apply(x).sum().backward()


@raises(
    "A gradient is on another device than its input",
    cause="The engine brings the dtype of a gradient to that of the input, but it moves only a gradient without "
    "dimensions. Usually the other device comes from a tensor that ``backward`` makes without ``device=``; the program "
    "below takes ``meta``, which every machine has. In old releases, ``cpu:0`` and ``cpu`` are two devices.",
    fix="Make tensors on the device of what they belong to: ``torch.zeros_like(x)``, ``grad_output.new_zeros(...)``.",
    see=("guide/backward", "check:returned"),
)
def gradient_on_other_device():
    class Crop(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x[1:].clone()

        @staticmethod
        def backward(ctx, grad_output):
            return torch.zeros(ctx.shape, device="meta")

    x = torch.randn(3, requires_grad=True)
    Crop.apply(x).sum().backward()


@fixes(gradient_on_other_device)
def gradient_on_same_device():
    class Crop(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x[1:].clone()

        @staticmethod
        def backward(ctx, grad_output):
            grad = grad_output.new_zeros(ctx.shape)
            grad[1:] = grad_output
            return grad

    x = torch.randn(3, requires_grad=True)
    Crop.apply(x).sum().backward()


@raises(
    "A gradient has a compressed sparse layout, and its input another layout",
    cause="An input, sparse or not, takes a gradient in its own layout, a dense one, or one in COO, which "
    "``to_sparse()`` makes. CSR and the other compressed layouts fit only an input of the same layout: the engine does "
    "not convert them.",
    fix="Return the layout of the input, ``grad.to_sparse(layout=x.layout)``, or a dense gradient.",
    see=("guide/backward", "check:returned"),
)
def gradient_of_other_layout():
    class Densify(Function):
        @staticmethod
        def forward(ctx, x):
            return x.to_dense()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.to_sparse_csr()

    x = torch.eye(3).to_sparse().requires_grad_()
    Densify.apply(x).sum().backward()


@fixes(gradient_of_other_layout)
def gradient_of_same_layout():
    class Densify(Function):
        @staticmethod
        def forward(ctx, x):
            return x.to_dense()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.to_sparse(layout=torch.sparse_coo)

    x = torch.eye(3).to_sparse().requires_grad_()
    Densify.apply(x).sum().backward()


@raises(
    "backward returns a number",
    cause="""Each gradient must be a tensor or ``None``. PyTorch does not expand a Python number to the shape of the
    input. A list is refused, too.""",
    fix="Return a tensor of the shape of the input, such as ``torch.full_like(x, 2.0)``, multiplied by "
    "``grad_output``.",
    see=("guide/ctx", "check:returned"),
)
def gradient_is_number():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2.0

    x = torch.randn(3, requires_grad=True)
    Double.apply(x).sum().backward()


@fixes(gradient_is_number)
def gradient_is_tensor():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2.0 * grad_output

    x = torch.randn(3, requires_grad=True)
    Double.apply(x).sum().backward()


@raises(
    "A real input got a complex gradient",
    cause="""The gradient of a real tensor is real. The engine converts between real dtypes, but does not drop an
    imaginary part. If your backward computes with complex numbers, it must drop the imaginary part itself.""",
    fix="Return the real part: ``grad.real``.",
    see=("cookbook/05_higher_order/complex_numbers", "check:complex128"),
)
def gradient_complex():
    class Spectrum(Function):
        @staticmethod
        def forward(ctx, x):
            return torch.fft.fft(x)

        @staticmethod
        def backward(ctx, grad_output):
            return torch.fft.ifft(grad_output, norm="forward")

    x = torch.randn(4, requires_grad=True)
    Spectrum.apply(x).abs().sum().backward()


@fixes(gradient_complex)
def gradient_real():
    class Spectrum(Function):
        @staticmethod
        def forward(ctx, x):
            return torch.fft.fft(x)

        @staticmethod
        def backward(ctx, grad_output):
            return torch.fft.ifft(grad_output, norm="forward").real

    x = torch.randn(4, requires_grad=True)
    Spectrum.apply(x).abs().sum().backward()


@raises(
    "backward takes more arguments than forward has outputs",
    cause="``backward`` is called with ``ctx`` and one gradient for each output of ``forward``. This one takes two "
    "gradients, and ``forward`` returns one tensor; a tuple or a list inside of the result counts as one.",
    fix="Take one parameter for each output: ``backward(ctx, grad_output)``. What ``backward`` needs besides comes "
    "from ``ctx``: ``ctx.save_for_backward`` for tensors, attributes for numbers.",
    see=("cookbook/01_first_steps/template", "guide/ctx"),
)
def grad_outputs_missing():
    class Power(Function):
        @staticmethod
        def forward(ctx, x, exponent):
            ctx.save_for_backward(x)
            return x**exponent

        @staticmethod
        def backward(ctx, grad_output, exponent):
            (x,) = ctx.saved_tensors
            return grad_output * exponent * x ** (exponent - 1), None

    x = torch.randn(3, requires_grad=True)
    Power.apply(x, 3).sum().backward()


@fixes(grad_outputs_missing)
def grad_outputs_complete():
    class Power(Function):
        @staticmethod
        def forward(ctx, x, exponent):
            ctx.save_for_backward(x)
            ctx.exponent = exponent
            return x**exponent

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * ctx.exponent * x ** (ctx.exponent - 1), None

    x = torch.randn(3, requires_grad=True)
    Power.apply(x, 3).sum().backward()


@raises(
    "backward takes fewer arguments than forward has outputs",
    cause="""PyTorch calls ``backward`` with ``ctx`` and one gradient for each output. Outputs that are unused, no
    tensors, or marked as not differentiable count, too.""",
    fix="Take one parameter for each output: ``backward(ctx, grad_values, grad_indices)``.",
    see=("cookbook/01_first_steps/several_outputs", "check:unused_outputs"),
)
def grad_outputs_not_taken():
    class Sort(Function):
        @staticmethod
        def forward(ctx, x):
            values, indices = x.sort()
            ctx.mark_non_differentiable(indices)
            ctx.save_for_backward(indices)
            return values, indices

        @staticmethod
        def backward(ctx, grad_values):
            (indices,) = ctx.saved_tensors
            return torch.zeros_like(grad_values).scatter(0, indices, grad_values)

    x = torch.randn(3, requires_grad=True)
    values, _ = Sort.apply(x)
    values.sum().backward()


@fixes(grad_outputs_not_taken)
def grad_outputs_taken():
    class Sort(Function):
        @staticmethod
        def forward(ctx, x):
            values, indices = x.sort()
            ctx.mark_non_differentiable(indices)
            ctx.save_for_backward(indices)
            return values, indices

        @staticmethod
        def backward(ctx, grad_values, _):
            (indices,) = ctx.saved_tensors
            return torch.zeros_like(grad_values).scatter(0, indices, grad_values)

    x = torch.randn(3, requires_grad=True)
    values, _ = Sort.apply(x)
    values.sum().backward()


@raises(
    "A once_differentiable backward was differentiated",
    cause="``@once_differentiable`` runs ``backward`` without recording it, and makes a later ``backward()`` through "
    "its result raise. That is so only when the gradient that arrived required grad itself, and only for "
    "``backward()`` without ``inputs``. Elsewhere second derivatives can be silently wrong: ``torch.autograd.grad`` "
    "says that the input was not used, but where another path leads to the input, it leaves this one out. Nested "
    "``torch.func.grad`` and ``torch.autograd.functional.hessian`` take it for zero.",
    fix="Write ``backward`` in differentiable operations on saved inputs and outputs, and remove the decorator.",
    see=("guide/higher_order", "cookbook/05_higher_order/double_backward", "check:second_order"),
)
def differentiated_twice():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, requires_grad=True)
    (grad,) = torch.autograd.grad(Square.apply(x).exp().sum(), x, create_graph=True)
    grad.square().sum().backward()


@fixes(differentiated_twice)
def differentiable_twice():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, requires_grad=True)
    (grad,) = torch.autograd.grad(Square.apply(x).exp().sum(), x, create_graph=True)
    grad.square().sum().backward()


@raises(
    "NumPy was called on a tensor that requires grad",
    cause="An array has no history, so the gradient would be lost. It also comes from inside of ``backward`` under "
    "``create_graph=True``, where what is done with saved tensors and the incoming gradient is recorded.",
    fix="For a plot, a log or a metric, where no gradient is wanted: ``x.detach().cpu().numpy()``, or ``x.item()`` for "
    "one number. Where one is wanted, put the code into the ``forward`` of a Function, where nothing is recorded, and "
    "write its ``backward``. In a ``backward``, where no second derivative is wanted: ``@once_differentiable``.",
    see=("cookbook/06_beyond_autograd/scipy_functions", "guide/decision", "check:second_order"),
)
def numpy_on_parameter():
    weight = torch.nn.Parameter(torch.randn(8))
    cubes = torch.from_numpy(weight.numpy() ** 3)
    cubes.sum().backward()


@fixes(numpy_on_parameter)
def numpy_in_function():
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_numpy(x.numpy() ** 3)

        @staticmethod
        @once_differentiable
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * torch.from_numpy(3 * x.numpy() ** 2)

    weight = torch.nn.Parameter(torch.randn(8))
    Cube.apply(weight).sum().backward()


@raises(
    "An expanded tensor was changed in place",
    cause="``expand``, ``expand_as`` and ``broadcast_to`` return views that show one number at many places, so PyTorch "
    "refuses to write to them with ``+=``, ``mul_``, ``copy_`` or ``relu_``. ``fill_``, ``zero_``, ``x[0] = 5`` and "
    "``x[mask] = 5`` do write, and change every place that shows this number.",
    fix="Calculate out of place, ``x = x + y``, or give each place a number of its own first: "
    "``x.expand(4, 3).clone()``.",
    see=("guide/graph",),
)
def expanded_in_place():
    weight = torch.randn(3, requires_grad=True)
    rows = (2 * weight).expand(4, 3)
    rows += torch.randn(4, 3)


@fixes(expanded_in_place)
def expanded_out_of_place():
    weight = torch.randn(3, requires_grad=True)
    rows = (2 * weight).expand(4, 3)
    rows = rows + torch.randn(4, 3)
    rows.sum().backward()


@raises(
    "backward changes in place a gradient that is expanded",
    cause="""The backward of ``sum`` passes an expanded gradient, in which many elements share one number, so ``mul_``
    refuses to write to it. ``fill_``, ``zero_`` and ``grad_output[0] = 5`` do write to it. ``mul_`` also writes to a
    gradient that is not expanded. These silent writes are worse, because they change a gradient that other code may
    still use.""",
    fix="Calculate out of place: ``grad_output * 2``.",
    see=("check:grad_output_unchanged", "check:grad_output_layouts"),
)
def grad_output_changed():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.mul_(2)

    x = torch.randn(3, requires_grad=True)
    Double.apply(x).sum().backward()


@fixes(grad_output_changed)
def grad_output_not_changed():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    x = torch.randn(3, requires_grad=True)
    Double.apply(x).sum().backward()


@raises(
    "backward takes a view of a gradient that is not contiguous",
    cause="``grad_output`` has the shape of the output, but the strides of whatever produced it. After a "
    "transpose, an ``expand`` or a ``sum`` it is not contiguous.",
    fix="Use ``reshape``, or ``grad_output.contiguous()`` where the layout matters.",
    see=("check:grad_output_layouts",),
)
def grad_output_viewed():
    class Unflatten(Function):
        @staticmethod
        def forward(ctx, x):
            return x.reshape(2, 3).clone()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.view(6)

    x = torch.randn(6, requires_grad=True)
    y = Unflatten.apply(x)
    (y.T * torch.randn(3, 2)).sum().backward()


@fixes(grad_output_viewed)
def grad_output_reshaped():
    class Unflatten(Function):
        @staticmethod
        def forward(ctx, x):
            return x.reshape(2, 3).clone()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.reshape(6)

    x = torch.randn(6, requires_grad=True)
    y = Unflatten.apply(x)
    (y.T * torch.randn(3, 2)).sum().backward()


@raises(
    "boxed_grads_call is not a bool",
    cause="The class attribute ``boxed_grads_call`` makes ``backward`` receive its gradients in one list. It is "
    "``True`` or ``False``, and ``1`` is neither.",
    fix="Set ``boxed_grads_call = True``.",
    see=("guide/api",),
)
def boxed_number():
    class Double(Function):
        boxed_grads_call = 1

        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grads):
            return 2 * grads.pop()

    x = torch.randn(3, requires_grad=True)
    Double.apply(x)


@fixes(boxed_number)
def boxed_bool():
    class Double(Function):
        boxed_grads_call = True

        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grads):
            return 2 * grads.pop()

    x = torch.randn(3, requires_grad=True)
    Double.apply(x).sum().backward()


@raises(
    "clear_saved_tensors_on_access is not a bool",
    cause="The class attribute ``clear_saved_tensors_on_access`` is ``True`` or ``False``, and ``1`` is neither.",
    fix="Set ``clear_saved_tensors_on_access = True``.",
    see=("guide/api", "guide/ctx"),
)
def clearing_number():
    class Square(Function):
        clear_saved_tensors_on_access = 1

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, requires_grad=True)
    Square.apply(x)


@fixes(clearing_number)
def clearing_bool():
    class Square(Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, requires_grad=True)
    Square.apply(x).sum().backward()


@raises(
    "Saved tensors that clear themselves were read twice",
    cause="""With the class attribute ``clear_saved_tensors_on_access = True``, the first read of ``ctx.saved_tensors``
    returns the tensors and frees them. A second ``backward`` through the node reads them again, with or without
    ``retain_graph=True``.""",
    fix="Read ``ctx.saved_tensors`` once, into local names. Where the graph is needed twice, leave the attribute at "
    "``False``.",
    see=("guide/api", "guide/ctx"),
)
def cleared_read_twice():
    class Multiply(Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.saved_tensors[1], grad_output * ctx.saved_tensors[0]

    a = torch.randn(3, requires_grad=True)
    b = torch.randn(3, requires_grad=True)
    Multiply.apply(a, b).sum().backward()


@fixes(cleared_read_twice)
def cleared_read_once():
    class Multiply(Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, grad_output):
            a, b = ctx.saved_tensors
            return grad_output * b, grad_output * a

    a = torch.randn(3, requires_grad=True)
    b = torch.randn(3, requires_grad=True)
    Multiply.apply(a, b).sum().backward()


@raises(
    "forward of a Function returned a list",
    cause="""A Function returns a tensor or a tuple of tensors. PyTorch treats a list as one result that is no tensor,
    and returns it unchanged. So the tensors in the list have no graph, and PyTorch never calls ``backward``. Torch 1.6
    raised a ``TypeError`` instead.""",
    fix="Return a tuple: ``return tuple(outputs)``, or ``return a, b``. The same holds for a dict and for a list "
    "inside of the tuple: return the tensors one by one, and build the list around ``apply``.",
    see=("cookbook/01_first_steps/several_outputs", "guide/graph"),
)
def list_returned():
    class Halves(Function):
        @staticmethod
        def forward(ctx, x):
            return [part.clone() for part in x.chunk(2)]

        @staticmethod
        def backward(ctx, *grad_outputs):
            return torch.cat(grad_outputs)

    first, second = Halves.apply(torch.randn(4, requires_grad=True))
    (first * second).sum().backward()


@fixes(list_returned)
def tuple_returned():
    class Halves(Function):
        @staticmethod
        def forward(ctx, x):
            return tuple(part.clone() for part in x.chunk(2))

        @staticmethod
        def backward(ctx, *grad_outputs):
            return torch.cat(grad_outputs)

    first, second = Halves.apply(torch.randn(4, requires_grad=True))
    (first * second).sum().backward()


@raises(
    "forward of a Function returned a named tuple",
    cause="``apply`` returns an ordinary tuple for every tuple that ``forward`` returns, so the names are lost.",
    fix="Build the named tuple around the call: ``Parts(*Halves.apply(x))``.",
    see=("cookbook/01_first_steps/several_outputs",),
)
def named_tuple_returned():
    Parts = namedtuple("Parts", "first second")

    class Halves(Function):
        @staticmethod
        def forward(ctx, x):
            return Parts(*(part.clone() for part in x.chunk(2)))

        @staticmethod
        def backward(ctx, *grad_outputs):
            return torch.cat(grad_outputs)

    parts = Halves.apply(torch.randn(4, requires_grad=True))
    parts.first.sum().backward()


@fixes(named_tuple_returned)
def named_tuple_made_outside():
    Parts = namedtuple("Parts", "first second")

    class Halves(Function):
        @staticmethod
        def forward(ctx, x):
            return tuple(part.clone() for part in x.chunk(2))

        @staticmethod
        def backward(ctx, first, second):
            return torch.cat([first, second])

    parts = Parts(*Halves.apply(torch.randn(4, requires_grad=True)))
    (parts.first + parts.second).sum().backward()


@raises(
    "saved_tensors was multiplied as if it were one tensor: a comma is missing",
    cause="``ctx.saved_tensors`` is a tuple, also when one tensor was saved. ``x = ctx.saved_tensors`` makes ``x`` "
    "that tuple, and Python takes ``x * grad_output`` for a repetition of it.",
    fix="Write the comma: ``(x,) = ctx.saved_tensors``.",
    see=("guide/ctx", "cookbook/01_first_steps/template"),
)
def comma_missing():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            x = ctx.saved_tensors
            return 2 * x * grad_output

    Square.apply(torch.randn(3, requires_grad=True)).sum().backward()


@fixes(comma_missing)
def comma_written():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    Square.apply(torch.randn(3, requires_grad=True)).sum().backward()


@raises(
    "saved_tensors was used as if it were one tensor: a comma is missing",
    cause="``ctx.saved_tensors`` is a tuple, also when one tensor was saved. ``x = ctx.saved_tensors`` makes ``x`` "
    "that tuple, which has no methods of a tensor, and cannot be compared, negated or given to a function of torch.",
    fix="Write the comma: ``(x,) = ctx.saved_tensors``.",
    see=("guide/ctx", "cookbook/01_first_steps/template"),
)
def comma_missing_in_method():
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, grad_output):
            x = ctx.saved_tensors
            return grad_output * x.exp()

    Exp.apply(torch.randn(3, requires_grad=True)).sum().backward()


@fixes(comma_missing_in_method)
def comma_written_for_method():
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * x.exp()

    Exp.apply(torch.randn(3, requires_grad=True)).sum().backward()


@raises(
    "backward unpacks fewer saved tensors than were saved",
    cause="``ctx.saved_tensors`` has as many elements as ``save_for_backward`` was given.",
    fix="Unpack all of them in the same order, with ``_`` for those that are not needed; or save fewer, which also "
    "saves their memory.",
    see=("guide/ctx",),
)
def saved_more_than_unpacked():
    class Multiply(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, grad_output):
            (a,) = ctx.saved_tensors
            return None, grad_output * a

    Multiply.apply(torch.randn(3), torch.randn(3, requires_grad=True)).sum().backward()


@fixes(saved_more_than_unpacked)
def saved_as_many_as_unpacked():
    class Multiply(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a)
            return a * b

        @staticmethod
        def backward(ctx, grad_output):
            (a,) = ctx.saved_tensors
            return None, grad_output * a

    Multiply.apply(torch.randn(3), torch.randn(3, requires_grad=True)).sum().backward()


@raises(
    "forward saved its tensors under a condition that did not hold",
    cause="""``forward`` saves its tensors only if it believes that a gradient is needed. Inside ``forward``, and under
    a checkpoint, ``requires_grad`` and ``torch.is_grad_enabled()`` do not show whether a gradient is needed, because
    grad mode is always off there. Libraries with fused kernels had such conditions.""",
    fix="""Save in every case, or use ``ctx.needs_input_grad``. If the Function is a library's, install a version that
    fits your torch, or turn checkpointing off around it.""",
    see=("guide/ctx", "guide/grad_modes"),
)
def saved_under_condition():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            if torch.is_grad_enabled():
                ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    Square.apply(torch.randn(3, requires_grad=True)).sum().backward()


@fixes(saved_under_condition)
def saved_if_needed():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            if ctx.needs_input_grad[0]:
                ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    Square.apply(torch.randn(3, requires_grad=True)).sum().backward()


@raises(
    "backward wrote into a tensor that it had saved, and ran a second time",
    cause="An in-place operation in ``backward`` changed the saved tensor, and the second backward through the same "
    "graph finds it changed. A kernel of your own that writes there changes it unnoticed: the second gradient is "
    "wrong without an error.",
    fix="Write the result into a new tensor: ``result * grad_output`` instead of ``result.mul_(grad_output)``.",
    see=("guide/ctx", "cookbook/04_memory/in_place", "check:backward_twice"),
)
def saved_overwritten():
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            result = x.exp()
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx, grad_output):
            (result,) = ctx.saved_tensors
            return result.mul_(grad_output)

    loss = Exp.apply(torch.randn(3, requires_grad=True)).sum()
    loss.backward(retain_graph=True)
    loss.backward()


@fixes(saved_overwritten)
def saved_kept():
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            result = x.exp()
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx, grad_output):
            (result,) = ctx.saved_tensors
            return result * grad_output

    loss = Exp.apply(torch.randn(3, requires_grad=True)).sum()
    loss.backward(retain_graph=True)
    loss.backward()


@raises(
    "backward combines tensors whose shapes do not fit",
    cause="The formula in ``backward`` broadcasts in another way than the forward did. ``grad_output`` has the shape "
    "of the output; where the forward reduced or dropped a dimension, it must be put back.",
    fix="Print the shapes at the start of ``backward``, and give ``grad_output`` the missing dimension: "
    "``grad_output.unsqueeze(dim)`` for each one that the forward removed.",
    see=("cookbook/01_first_steps/reductions", "cookbook/01_first_steps/broadcasting"),
)
def backward_shapes_differ():
    class SquaredNorm(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square().sum(-1)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    SquaredNorm.apply(torch.randn(4, 3, requires_grad=True)).sum().backward()


@fixes(backward_shapes_differ)
def backward_shapes_fit():
    class SquaredNorm(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square().sum(-1)

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output.unsqueeze(-1)

    SquaredNorm.apply(torch.randn(4, 3, requires_grad=True)).sum().backward()


@raises(
    "A class with forward and backward inherits from nn.Module",
    cause="``nn.Module.apply`` calls a function on all submodules. The ``apply`` that runs a Function belongs to "
    "``torch.autograd.Function``.",
    fix="Inherit from ``torch.autograd.Function``: ``class Clip(Function)``. A module is only needed for parameters; "
    "its ``forward`` then calls ``Clip.apply(x)``.",
    see=("cookbook/01_first_steps/module", "cookbook/01_first_steps/template"),
)
def module_for_function():
    class Clip(nn.Module):
        @staticmethod
        def forward(ctx, x):
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    Clip.apply(torch.randn(3, requires_grad=True)).sum().backward()


@fixes(module_for_function)
def function_for_function():
    class Clip(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    Clip.apply(torch.randn(3, requires_grad=True)).sum().backward()


@raises(
    "A class with forward and backward inherits from nothing",
    cause="``apply`` comes from ``torch.autograd.Function``, and this class has no base.",
    fix="Inherit from it: ``class Clip(torch.autograd.Function)``.",
    see=("cookbook/01_first_steps/template",),
)
def base_missing():
    class Clip:
        @staticmethod
        def forward(ctx, x):
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    Clip.apply(torch.randn(3, requires_grad=True)).sum().backward()


@fixes(base_missing)
def base_given():
    class Clip(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    Clip.apply(torch.randn(3, requires_grad=True)).sum().backward()


@raises(
    "forward of a Function was called directly",
    cause="``forward`` is static and takes ``ctx`` first. ``apply`` makes the ``ctx``, calls ``forward`` and records "
    "the node; called directly, your first tensor is taken for ``ctx``.",
    fix="Call ``Clip.apply(x)``.",
    see=("cookbook/01_first_steps/template",),
)
def forward_called():
    class Clip(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    Clip.forward(torch.randn(3, requires_grad=True))


@fixes(forward_called)
def forward_applied():
    class Clip(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    Clip.apply(torch.randn(3, requires_grad=True))


@raises(
    "backward calls a method of a gradient, a saved tensor or an input that is None",
    cause="In ``backward``, some of what you handle can be ``None``: the gradient of an output that nothing used "
    "(after ``ctx.set_materialize_grads(False)``, and in Functions that handle the gradients themselves), an optional "
    "input that was not given, and ``x.grad`` of an input that got no gradient.",
    fix="Check it before you use it: ``if grad_state is not None``, and return ``None`` as the gradient of an input "
    "that was ``None``. In your own Function, leaving ``set_materialize_grads`` at its default turns missing gradients "
    "of outputs into zeros. In a Function of a library, use the output in the loss, or update the library.",
    see=("guide/ctx", "cookbook/01_first_steps/several_outputs", "check:unused_outputs"),
)
def none_has_no_method():
    class ScaleAndShift(Function):
        @staticmethod
        def forward(ctx, x, bias):
            ctx.save_for_backward(x, bias)
            return 2 * x if bias is None else 2 * x + bias

        @staticmethod
        def backward(ctx, grad_output):
            _, bias = ctx.saved_tensors
            return 2 * grad_output, grad_output.to(bias.dtype)

    x = torch.randn(3, requires_grad=True)
    ScaleAndShift.apply(x, None).sum().backward()


@fixes(none_has_no_method)
def none_checked():
    class ScaleAndShift(Function):
        @staticmethod
        def forward(ctx, x, bias):
            ctx.save_for_backward(x, bias)
            return 2 * x if bias is None else 2 * x + bias

        @staticmethod
        def backward(ctx, grad_output):
            _, bias = ctx.saved_tensors
            return 2 * grad_output, None if bias is None else grad_output.to(bias.dtype)

    x = torch.randn(3, requires_grad=True)
    ScaleAndShift.apply(x, None).sum().backward()


@raises(
    "backward computes in float64, because a NumPy array or a double tensor came in",
    cause="""``backward`` uses a ``float64`` tensor in the product. It was made from a NumPy array or with
    ``dtype=torch.float64``, or ``forward`` saved it in ``float64``. The other operand has the dtype of the input,
    ``float32``.""",
    fix="Make the tensor in the dtype of the gradient: ``torch.tensor([1.0, 2.0], dtype=grad_output.dtype, "
    "device=grad_output.device)``, or ``torch.from_numpy(a).to(grad_output)``.",
    see=("cookbook/01_first_steps/template", "check:output_dtype"),
)
def backward_in_double():
    class Weighted(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, grad_output):
            x, weight = ctx.saved_tensors
            grad_output = grad_output * torch.tensor([1.0, 2.0], dtype=torch.float64)
            return grad_output @ weight.T, x.T @ grad_output

    x, weight = torch.randn(4, 3, requires_grad=True), torch.randn(3, 2, requires_grad=True)
    Weighted.apply(x, weight).sum().backward()


@fixes(backward_in_double)
def backward_in_own_dtype():
    class Weighted(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, grad_output):
            x, weight = ctx.saved_tensors
            grad_output = grad_output * torch.tensor([1.0, 2.0], dtype=grad_output.dtype)
            return grad_output @ weight.T, x.T @ grad_output

    x, weight = torch.randn(4, 3, requires_grad=True), torch.randn(3, 2, requires_grad=True)
    Weighted.apply(x, weight).sum().backward()


@raises(
    "ctx.needs_input_grad was indexed beyond the arguments of forward",
    cause="""``ctx.needs_input_grad`` has one entry for each argument of ``forward`` except ``ctx``, in the same order,
    also for arguments that are no tensors. The index in your code counts ``ctx`` as well, or counts a removed argument,
    or the outputs.""",
    fix="Count from the first argument after ``ctx``: ``ctx.needs_input_grad[0]`` is that of ``x`` in "
    "``forward(ctx, x)``.",
    see=("guide/ctx", "cookbook/01_first_steps/arguments"),
)
def needs_input_grad_index():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output if ctx.needs_input_grad[1] else None

    Double.apply(torch.randn(3, requires_grad=True)).sum().backward()


@fixes(needs_input_grad_index)
def needs_input_grad_first():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output if ctx.needs_input_grad[0] else None

    Double.apply(torch.randn(3, requires_grad=True)).sum().backward()


@raises(
    "backward reshapes a gradient to a size that it does not have",
    cause="The gradient that arrives has the shape of the output of ``forward``, so its number of elements need not be "
    "that of the input. A ``view`` to a shape that was saved, or that the layer was built for, fails if the two "
    "differ.",
    fix="Print ``grad_output.shape`` at the start of ``backward``. Undo in ``backward`` what ``forward`` did, and "
    "take shapes from the tensors of this call (``ctx.shape = x.shape``). If the layer was built for one size, "
    "pass inputs of that size.",
    see=("cookbook/01_first_steps/reductions", "guide/backward"),
)
def backward_reshapes():
    class RowSums(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.sum(1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.view(ctx.shape)

    x = torch.randn(3, 4, requires_grad=True)
    RowSums.apply(x).sum().backward()


@fixes(backward_reshapes)
def backward_expands():
    class RowSums(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.sum(1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.unsqueeze(1).expand(ctx.shape)

    x = torch.randn(3, 4, requires_grad=True)
    RowSums.apply(x).sum().backward()


@raises(
    "save_for_backward was given a tuple, a list or a dict",
    cause="``save_for_backward`` takes each tensor as an argument of its own. A structure of tensors is none, and a "
    "Function that saves all its arguments (a checkpoint of a library) meets one when a layer is called with a tuple, "
    "such as rotary embeddings.",
    fix="Unpack it: ``ctx.save_for_backward(*tensors)``. If the Function is a library's, pass the tensors as "
    "arguments of their own, or use ``torch.utils.checkpoint.checkpoint(..., use_reentrant=False)``, which takes any "
    "argument.",
    see=("guide/ctx",),
)
def structure_saved():
    class Product(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward((x, y))
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors
            return grad_output * y, grad_output * x

    x = torch.randn(3, requires_grad=True)
    Product.apply(x, x).sum().backward()


@fixes(structure_saved)
def tensors_saved_each():
    class Product(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors
            return grad_output * y, grad_output * x

    x = torch.randn(3, requires_grad=True)
    Product.apply(x, x).sum().backward()


@raises(
    "setup_context of the base class was called",
    cause="``torch.autograd.Function`` has no ``setup_context`` of its own: its version only raises. It was called "
    "with ``super()``, or on a Function whose forward takes ``ctx``.",
    fix="Do not call it on the base class. Write your own, or take ``ctx`` as the first argument of ``forward`` and "
    "save there.",
    see=("guide/ctx", "cookbook/01_first_steps/template"),
)
def setup_context_of_base():
    class Double(Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            Function.setup_context(ctx, inputs, output)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 2

    Double.apply(torch.randn(3, requires_grad=True))


@fixes(setup_context_of_base)
def setup_context_of_own():
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

    Double.apply(torch.randn(3, requires_grad=True))
