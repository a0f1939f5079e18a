"""torch.library and custom operators."""

import copy

import torch
from docs.errors.programs import fixes, raises
from torch import Tensor, nn
from torch.func import functionalize
from torch.library import Library, custom_op, get_kernel, opcheck, wrap_triton
from torch.utils._python_dispatch import TorchDispatchMode


@raises(
    "A parameter of a custom operator has no type",
    cause="""``custom_op`` reads the schema of the operator from the annotations of the function, so each parameter
    needs one.""",
    fix="Annotate it: ``x: Tensor``, or pass ``schema=``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def no_annotation():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x) -> Tensor:
        return x**3


@fixes(no_annotation)
def annotation():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3


@raises(
    "A custom operator does not say what it returns",
    cause="""The return type is part of the schema: ``Tensor``, ``list[Tensor]``, a number, a tuple of these, or
    ``None`` for an operator that only writes to its arguments.""",
    fix="Annotate it: ``-> Tensor``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def no_return_annotation():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor):
        return x**3


@fixes(no_return_annotation)
def return_annotation():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3


@raises(
    "A parameter of a custom operator has a type that schemas do not know",
    cause="""A schema has tensors, numbers, strings, dtypes and devices, optional ones of these, and lists of tensors or
    numbers; the text lists them. A ``dict`` is not among them, nor a ``tuple``, a bare ``list``, or a list of
    strings.""",
    fix="Pass what the operator needs as separate arguments, or as a list with its element type: ``list[int]``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def unsupported_parameter():
    @custom_op("cookbook::scale", mutates_args=())
    def scale(x: Tensor, options: dict) -> Tensor:
        return x * options["factor"]


@fixes(unsupported_parameter)
def supported_parameter():
    @custom_op("cookbook::scale", mutates_args=())
    def scale(x: Tensor, factor: float) -> Tensor:
        return x * factor


@raises(
    "A custom operator returns a type that schemas do not know",
    cause="""An operator returns tensors, lists of tensors, numbers, or a tuple of these. A ``dict`` has no place in a
    schema.""",
    fix="Return a tuple, and build the dictionary in a Python function around the operator.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def unsupported_return():
    @custom_op("cookbook::moments", mutates_args=())
    def moments(x: Tensor) -> dict[str, Tensor]:
        return {"mean": x.mean(), "var": x.var()}


@fixes(unsupported_return)
def supported_return():
    @custom_op("cookbook::moments", mutates_args=())
    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.mean(), x.var()


@raises(
    "A custom operator takes any number of arguments",
    cause="""A schema has a fixed list of named arguments: no ``*args``, no ``**kwargs``, and none that are positional
    only.""",
    fix="Take a list: ``tensors: list[Tensor]``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def variable_arguments():
    @custom_op("cookbook::total", mutates_args=())
    def total(*tensors: Tensor) -> Tensor:
        return torch.stack(tensors).sum(0)


@fixes(variable_arguments)
def list_argument():
    @custom_op("cookbook::total", mutates_args=())
    def total(tensors: list[Tensor]) -> Tensor:
        return torch.stack(tensors).sum(0)


@raises(
    "An argument of a custom operator has a list for its default",
    cause="Defaults in a schema are numbers, strings, booleans, dtypes, devices, or ``None``.",
    fix="Make the default ``None``, and put the list in its place inside.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def unsupported_default():
    @custom_op("cookbook::average", mutates_args=())
    def average(x: Tensor, dims: list[int] = [0]) -> Tensor:  # noqa: B006
        return x.mean(dims)


@fixes(unsupported_default)
def none_default():
    @custom_op("cookbook::average", mutates_args=())
    def average(x: Tensor, dims: list[int] | None = None) -> Tensor:
        return x.mean([0] if dims is None else dims)


@raises(
    "mutates_args names an argument that the operator does not have",
    cause="``mutates_args`` holds names of parameters. No parameter is called ``out``.",
    fix="Use the name from the signature.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def mutates_unknown_name():
    @custom_op("cookbook::cube_", mutates_args=("out",))
    def cube_(x: Tensor) -> None:
        x.copy_(x**3)


@fixes(mutates_unknown_name)
def mutates_known_name():
    @custom_op("cookbook::cube_", mutates_args=("x",))
    def cube_(x: Tensor) -> None:
        x.copy_(x**3)


@raises(
    "mutates_args is a string",
    cause='It is a sequence of names, and ``"x"`` is one string. The only string allowed is ``"unknown"``.',
    fix='Write a tuple: ``("x",)``.',
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def mutates_string():
    @custom_op("cookbook::cube_", mutates_args="x")
    def cube_(x: Tensor) -> None:
        x.copy_(x**3)


@fixes(mutates_string)
def mutates_tuple():
    @custom_op("cookbook::cube_", mutates_args=("x",))
    def cube_(x: Tensor) -> None:
        x.copy_(x**3)


@raises(
    "mutates_args names an argument that is no tensor",
    cause="Only tensors, and lists of them, can be changed by an operator.",
    fix="Name the tensors that are written to, and only these.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def mutates_number():
    @custom_op("cookbook::scale_", mutates_args=("x", "factor"))
    def scale_(x: Tensor, factor: float) -> None:
        x.mul_(factor)


@fixes(mutates_number)
def mutates_tensor():
    @custom_op("cookbook::scale_", mutates_args=("x",))
    def scale_(x: Tensor, factor: float) -> None:
        x.mul_(factor)


@raises(
    "The schema of a custom operator mutates another argument than mutates_args",
    cause="""With ``schema=`` the marks ``(a!)`` say what is written to, and ``mutates_args`` says so again. The two
    differ.""",
    fix="Name the marked arguments in ``mutates_args``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def schema_disagrees():
    @custom_op("cookbook::scale_", mutates_args=(), schema="(Tensor(a!) x, float factor) -> ()")
    def scale_(x, factor):
        x.mul_(factor)


@fixes(schema_disagrees)
def schema_agrees():
    @custom_op("cookbook::scale_", mutates_args=("x",), schema="(Tensor(a!) x, float factor) -> ()")
    def scale_(x, factor):
        x.mul_(factor)


@raises(
    "The name of an operator has no namespace",
    cause="""An operator is called ``namespace::name``. The namespace is yours, usually the name of the package.
    ``custom_op`` says of such a name only that there are not enough values to unpack.""",
    fix='Put the namespace in front: ``"cookbook::cube"``.',
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def bad_name():
    torch.library.define("cube", "(Tensor x) -> Tensor")


@fixes(bad_name)
def full_name():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")


@raises(
    "An operator without tensors has a kernel for one device only",
    cause="""PyTorch chooses the kernel by the devices of the tensors. An operator that makes a tensor from numbers has
    none to look at.""",
    fix="Add a parameter ``device: torch.device``, or leave ``device_types`` out.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def no_device_argument():
    @custom_op("cookbook::ramp", mutates_args=(), device_types="cpu")
    def ramp(size: int) -> Tensor:
        return torch.arange(size)


@fixes(no_device_argument)
def device_argument():
    @custom_op("cookbook::ramp", mutates_args=(), device_types="cpu")
    def ramp(size: int, device: torch.device) -> Tensor:
        return torch.arange(size, device=device)


@raises(
    "backward met a custom operator without a formula for it",
    cause="""An operator is opaque to autograd. Unless ``register_autograd`` gave it a backward, differentiating
    through it fails; calling it does not.""",
    fix="""Register the backward with ``register_autograd``. Where no gradient is to flow, call the operator on detached
    tensors.""",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def backward_without_formula():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    x = torch.randn(3, requires_grad=True)
    cube(x).sum().backward()


@fixes(backward_without_formula)
def backward_with_formula():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad_output

    cube.register_autograd(backward, setup_context=setup_context)
    x = torch.randn(3, requires_grad=True)
    cube(x).sum().backward()


@raises(
    "setup_context of a custom operator has parameters of other names",
    cause="""``register_autograd`` calls ``setup_context`` by keyword, so its parameters must be called ``ctx``,
    ``inputs`` and ``output``. If the operator has arguments behind a ``*``, there is a fourth:
    ``keyword_only_inputs``. For the ``setup_context`` of a Function any names do.""",
    fix="Use these names.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def setup_context_names():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    def setup_context(context, inputs, output):
        context.save_for_backward(*inputs)

    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad_output

    cube.register_autograd(backward, setup_context=setup_context)
    cube(torch.randn(3, requires_grad=True))


@fixes(setup_context_names)
def setup_context_by_name():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad_output

    cube.register_autograd(backward, setup_context=setup_context)
    cube(torch.randn(3, requires_grad=True))


@raises(
    "setup_context was passed to register_autograd by position",
    cause="``register_autograd`` of an operator takes the backward by position and everything else by keyword.",
    fix="Write ``setup_context=setup_context``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def setup_context_by_position():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad_output

    cube.register_autograd(backward, setup_context)


@fixes(setup_context_by_position)
def setup_context_by_keyword():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad_output

    cube.register_autograd(backward, setup_context=setup_context)


@raises(
    "The backward of an operator that takes a list of tensors returned loose gradients",
    cause="""The gradients come in the structure of the inputs: for an argument that is a list, a list of gradients.
    The counts in the text include an internal argument.""",
    fix="Return a list in the place of the list.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def list_gradients_flat():
    @custom_op("cookbook::add_all", mutates_args=())
    def add_all(tensors: list[Tensor]) -> Tensor:
        return torch.stack(tensors).sum(0)

    add_all.register_autograd(lambda ctx, grad_output: (grad_output, grad_output))
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    add_all([x, y]).sum().backward()


@fixes(list_gradients_flat)
def list_gradients_nested():
    @custom_op("cookbook::add_all", mutates_args=())
    def add_all(tensors: list[Tensor]) -> Tensor:
        return torch.stack(tensors).sum(0)

    add_all.register_autograd(lambda ctx, grad_output: [grad_output, grad_output])
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    add_all([x, y]).sum().backward()


@raises(
    "A backward was registered for an operator that changes its argument",
    cause="""Autograd formulas are for functional operators: those that return new tensors and write to none of their
    arguments.""",
    fix="""Register it for an operator that returns a new tensor, and keep the in-place one for tensors without
    gradients. On a tensor with gradients an operator that returns nothing goes unnoticed, and the gradients can be
    silently wrong.""",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def autograd_of_mutating():
    @custom_op("cookbook::double_", mutates_args=("x",))
    def double_(x: Tensor) -> None:
        x.mul_(2)

    double_.register_autograd(lambda ctx, grad_output: 2 * grad_output)


@fixes(autograd_of_mutating)
def autograd_of_functional():
    @custom_op("cookbook::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        return 2 * x

    double.register_autograd(lambda ctx, grad_output: 2 * grad_output)


@raises(
    "A custom operator has a tensor by keyword only",
    cause="""Autograd formulas are not supported for a tensor behind the ``*`` of the signature, so ``custom_op``
    refuses it at once. Only the outputs of an operator with ``torch.Tag.out`` stand there.""",
    fix="Make the tensor an ordinary argument. Numbers and flags may stay behind the ``*``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def keyword_only_tensor():
    @custom_op("cookbook::scale", mutates_args=())
    def scale(x: Tensor, *, factor: Tensor) -> Tensor:
        return x * factor


@fixes(keyword_only_tensor)
def positional_tensor():
    @custom_op("cookbook::scale", mutates_args=())
    def scale(x: Tensor, factor: Tensor) -> Tensor:
        return x * factor


@raises(
    "A backward was registered by name for an operator with a tensor by keyword only",
    cause="""As for operators made by ``custom_op``: a tensor behind the ``*`` of the schema has no place in an
    autograd formula. ``register_vmap`` says the same with its own name.""",
    fix="Make the tensor an ordinary argument of the schema.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def keyword_only_tensor_of_library():
    torch.library.define("cookbook::scale", "(Tensor x, *, Tensor factor) -> Tensor")
    torch.library.register_autograd("cookbook::scale", lambda ctx, grad_output: (grad_output, None))


@fixes(keyword_only_tensor_of_library)
def positional_tensor_of_library():
    torch.library.define("cookbook::scale", "(Tensor x, Tensor factor) -> Tensor")
    torch.library.register_autograd("cookbook::scale", lambda ctx, grad_output: (grad_output, None))


@raises(
    "A custom operator returned its argument",
    cause="""An operator returns new memory, even if it writes to its arguments. What it returns must be neither an
    argument, nor a view of one, nor two outputs that share memory: the compiler relies on that.""",
    fix="""Return a copy: ``x.clone()``. An operator that returns the argument it writes to needs the tag
    ``torch.Tag.inplace``.""",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def output_is_input():
    @custom_op("cookbook::flatten", mutates_args=())
    def flatten(x: Tensor) -> Tensor:
        return x.view(-1)

    flatten(torch.randn(2, 3))


@fixes(output_is_input)
def output_is_new():
    @custom_op("cookbook::flatten", mutates_args=())
    def flatten(x: Tensor) -> Tensor:
        return x.view(-1).clone()

    flatten(torch.randn(2, 3))


@raises(
    "opcheck found that a custom operator changes an argument",
    cause="""``mutates_args=()`` says that no argument is written to, and the kernel writes to one. Nothing checks this
    in an ordinary call; compiled code may be wrong.""",
    fix="""Work on a copy. Name the argument in ``mutates_args`` if the change is meant; such an operator cannot have a
    backward.""",
    see=("cookbook/06_beyond_autograd/custom_operator", "check:opcheck", "check:inputs_unchanged"),
)
def undeclared_mutation():
    @custom_op("cookbook::normalize", mutates_args=())
    def normalize(x: Tensor) -> Tensor:
        x -= x.mean()
        return x / x.std()

    opcheck(normalize, (torch.randn(3),), test_utils="test_schema")


@fixes(undeclared_mutation)
def no_mutation():
    @custom_op("cookbook::normalize", mutates_args=())
    def normalize(x: Tensor) -> Tensor:
        x = x - x.mean()
        return x / x.std()

    opcheck(normalize, (torch.randn(3),), test_utils="test_schema")


@raises(
    "opcheck found that a custom operator has no fake kernel",
    cause="""``torch.compile``, ``torch.export`` and meta tensors need a function that gives the shape, dtype, strides
    and device of the result without computing it. None was registered.""",
    fix="Register one with ``register_fake``.",
    see=("cookbook/06_beyond_autograd/custom_operator", "check:opcheck"),
)
def opcheck_without_fake():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    opcheck(cube, (torch.randn(3),))


@fixes(opcheck_without_fake)
def opcheck_with_fake():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_fake(torch.empty_like)
    opcheck(cube, (torch.randn(3),))


@raises(
    "opcheck found that the fake kernel gives another shape than the operator",
    cause="""``opcheck`` runs the operator on real and on fake tensors and compares shape, dtype, strides and device.
    The text ends with what differs.""",
    fix="Make the fake kernel describe exactly what the operator returns.",
    see=("cookbook/06_beyond_autograd/custom_operator", "check:opcheck"),
)
def fake_of_other_shape():
    @custom_op("cookbook::row_sums", mutates_args=())
    def row_sums(x: Tensor) -> Tensor:
        return x.sum(1)

    row_sums.register_fake(lambda x: x.new_empty(x.shape[1]))
    opcheck(row_sums, (torch.randn(2, 3),))


@fixes(fake_of_other_shape)
def fake_of_same_shape():
    @custom_op("cookbook::row_sums", mutates_args=())
    def row_sums(x: Tensor) -> Tensor:
        return x.sum(1)

    row_sums.register_fake(lambda x: x.new_empty(x.shape[0]))
    opcheck(row_sums, (torch.randn(2, 3),))


@raises(
    "opcheck found an operator without a backward",
    cause="""The operator was made with ``define`` and ``impl``, and no backward was registered. Its output still
    claims to require a gradient. The text is the same if the kernel of a device calls a Function: eager mode finds
    its backward, and compiled code loses it.""",
    fix="Register the plain computation for the device, and the backward with ``torch.library.register_autograd``.",
    see=("cookbook/06_beyond_autograd/custom_operator", "check:opcheck"),
)
def no_autograd_key():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cpu", lambda x: x**3)
    torch.library.register_fake("cookbook::cube", torch.empty_like)
    opcheck(torch.ops.cookbook.cube.default, (torch.randn(3, requires_grad=True),))


@fixes(no_autograd_key)
def autograd_key():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cpu", lambda x: x**3)
    torch.library.register_fake("cookbook::cube", torch.empty_like)

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad_output

    torch.library.register_autograd("cookbook::cube", backward, setup_context=setup_context)
    opcheck(torch.ops.cookbook.cube.default, (torch.randn(3, requires_grad=True),))


@raises(
    "opcheck was given a Python function",
    cause="It tests operators: what ``custom_op`` returns, or an overload such as ``torch.ops.cookbook.cube.default``.",
    fix="Pass the operator that the function calls.",
    see=("cookbook/06_beyond_autograd/custom_operator", "check:opcheck"),
)
def opcheck_of_function():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_fake(torch.empty_like)
    opcheck(lambda x: cube(x), (torch.randn(3),))


@fixes(opcheck_of_function)
def opcheck_of_operator():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_fake(torch.empty_like)
    opcheck(cube, (torch.randn(3),))


@raises(
    "opcheck was asked for a test that it does not have",
    cause="""The text lists the tests. Gradients are not among them: ``opcheck`` tests the registration, not the
    numbers.""",
    fix="Name tests from the list, and check gradients with ``torch.autograd.gradcheck``.",
    see=("cookbook/06_beyond_autograd/custom_operator", "check:opcheck"),
)
def opcheck_unknown_test():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_fake(torch.empty_like)
    opcheck(cube, (torch.randn(3),), test_utils="test_gradient")


@fixes(opcheck_unknown_test)
def opcheck_known_test():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_fake(torch.empty_like)
    opcheck(cube, (torch.randn(3),), test_utils="test_schema")


@raises(
    "opcheck was given one of two tolerances",
    cause="The two belong together, as in ``torch.testing.assert_close``.",
    fix="Pass both ``rtol`` and ``atol``.",
    see=("cookbook/06_beyond_autograd/custom_operator", "check:opcheck"),
)
def opcheck_one_tolerance():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_fake(torch.empty_like)
    opcheck(cube, (torch.randn(3),), rtol=1e-4)


@fixes(opcheck_one_tolerance)
def opcheck_tolerances():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_fake(torch.empty_like)
    opcheck(cube, (torch.randn(3),), rtol=1e-4, atol=1e-6)


@raises(
    "A custom operator has no kernel for the device of its arguments",
    cause="The operator has kernels for the devices that ``device_types`` and ``register_kernel`` name, or that an "
    "extension was     built for. An argument is on another device. The text names that backend, and lists all "
    "kernels that exist.",
    fix="Register a kernel for this device with ``register_kernel``, or move the tensors. If the operator is an "
    "extension's, build it for this device: with CUDA sources, and on a machine whose CUDA toolkit fits torch. "
    "Gradients are not involved.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def no_kernel_for_backend():
    @custom_op("cookbook::cube", mutates_args=(), device_types="cuda")
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube(torch.randn(3))


@fixes(no_kernel_for_backend)
def kernel_for_backend():
    @custom_op("cookbook::cube", mutates_args=(), device_types="cuda")
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_kernel("cpu", lambda x: x * x * x)
    cube(torch.randn(3))


@raises(
    "A custom operator without a fake kernel met a meta tensor",
    cause="""A tensor on ``meta`` has a shape and no data, so the kernel cannot run on it. PyTorch asks for the fake
    kernel instead.""",
    fix="Register it with ``register_fake``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def meta_without_fake():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube(torch.empty(3, device="meta"))


@fixes(meta_without_fake)
def meta_with_fake():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_fake(torch.empty_like)
    cube(torch.empty(3, device="meta"))


@raises(
    "An operator of torch.library.define met a meta tensor without a fake kernel",
    cause="It has a kernel for the CPU only. ``torch.compile`` and ``torch.export`` come to the same end.",
    fix="Register one with ``torch.library.register_fake``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def defined_meta_without_fake():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cpu", lambda x: x**3)
    torch.ops.cookbook.cube(torch.empty(3, device="meta"))


@fixes(defined_meta_without_fake)
def defined_meta_with_fake():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cpu", lambda x: x**3)
    torch.library.register_fake("cookbook::cube", torch.empty_like)
    torch.ops.cookbook.cube(torch.empty(3, device="meta"))


@raises(
    "An operator whose output size depends on the data met a meta tensor",
    cause="""Its fake kernel asks for a size that is not known in advance, with ``new_dynamic_size()``. Fake tensors
    can have such a size; meta tensors cannot.""",
    fix="Trace with fake tensors: ``torch.compile``, ``torch.export``, or ``FakeTensorMode``.",
    see=("cookbook/06_beyond_autograd/custom_operator", "cookbook/07_compile/export"),
)
def dynamic_shape_on_meta():
    @custom_op("cookbook::positions", mutates_args=())
    def positions(x: Tensor) -> Tensor:
        return x.nonzero()

    @positions.register_fake
    def _(x):
        size = torch.library.get_ctx().new_dynamic_size()
        return x.new_empty(size, x.dim(), dtype=torch.int64)

    positions(torch.empty(3, device="meta"))


@fixes(dynamic_shape_on_meta)
def dynamic_shape_on_fake():
    @custom_op("cookbook::positions", mutates_args=())
    def positions(x: Tensor) -> Tensor:
        return x.nonzero()

    @positions.register_fake
    def _(x):
        size = torch.library.get_ctx().new_dynamic_size()
        return x.new_empty(size, x.dim(), dtype=torch.int64)

    torch.compile(positions, backend="eager", fullgraph=True)(torch.randn(3))


@raises(
    "backward went through an operator that has no backward at all",
    warning=True,
    cause="""The operator was made with ``define`` and ``impl`` and has no autograd kernel. In eager mode autograd
    records the PyTorch operations inside of the kernel, if it has any. Through a kernel without them, as in NumPy, and
    in compiled code no gradient flows: the inputs get ``None``, and this is only a warning. An operator made with
    ``custom_op`` raises instead.""",
    fix="Register the backward with ``torch.library.register_autograd``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def autograd_fallback():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cpu", lambda x: x**3)
    x = torch.randn(3, requires_grad=True)
    torch.ops.cookbook.cube(x).sum().backward()


@fixes(autograd_fallback)
def autograd_registered():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cpu", lambda x: x**3)

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad_output

    torch.library.register_autograd("cookbook::cube", backward, setup_context=setup_context)
    x = torch.randn(3, requires_grad=True)
    torch.ops.cookbook.cube(x).sum().backward()


@raises(
    "An operator was defined twice",
    cause="""A name has one schema. A module that defines operators was executed a second time, as with
    ``importlib.reload`` or a notebook cell, or two packages share the name. ``custom_op`` replaces its operator
    instead.""",
    fix="Define it once, in a module that is imported and not reloaded; or use ``custom_op``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def defined_twice():
    for _ in range(2):  # as when a cell is run again
        torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")


@fixes(defined_twice)
def defined_by_custom_op():
    for _ in range(2):  # as when a cell is run again

        @custom_op("cookbook::cube", mutates_args=())
        def cube(x: Tensor) -> Tensor:
            return x**3


@raises(
    "A schema was written without parentheses",
    cause="""A schema is the arguments in parentheses, an arrow between spaces, and the returns; the name is passed
    separately.""",
    fix='Write ``"(Tensor x) -> Tensor"``.',
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def schema_without_parentheses():
    torch.library.define("cookbook::cube", "Tensor x -> Tensor")


@fixes(schema_without_parentheses)
def schema_with_parentheses():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")


@raises(
    "A schema has a type that does not exist",
    cause="""Schemas have types of their own: ``Tensor``, ``SymInt``, ``int``, ``float``, ``bool``, ``str``,
    ``Scalar``, with ``[]`` for lists and ``?`` for optional ones. In the
    message, ``<--- HERE`` stands next to the word that is no type.""",
    fix="Use such a type: ``int[] dims`` for a Python ``list[int]``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def schema_unknown_type():
    torch.library.define("cookbook::average", "(Tensor x, list dims) -> Tensor")


@fixes(schema_unknown_type)
def schema_known_type():
    torch.library.define("cookbook::average", "(Tensor x, int[] dims) -> Tensor")


@raises(
    "An operator was called that was never defined",
    cause="""Nothing of this name was registered in the namespace in this process: the module or library that does so
    was not imported, or the name or the namespace is misspelled.""",
    fix="Import the module, or load the library with ``torch.ops.load_library``, before the call.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def undefined_operator():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cpu", lambda x: x**3)
    torch.ops.cookbook.qube(torch.randn(3))


@fixes(undefined_operator)
def defined_operator():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cpu", lambda x: x**3)
    torch.ops.cookbook.cube(torch.randn(3))


@raises(
    "An overload was named that the operator does not have",
    cause="An operator whose schema has no overload name has one overload, ``default``.",
    fix="Write ``.default``, or call the operator without an overload.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def undefined_overload():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cpu", lambda x: x**3)
    torch.ops.cookbook.cube.Tensor(torch.randn(3))


@fixes(undefined_overload)
def default_overload():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cpu", lambda x: x**3)
    torch.ops.cookbook.cube.default(torch.randn(3))


@raises(
    "An operator was called with an argument of the wrong type",
    cause="Arguments are checked against the schema: here a NumPy array for a ``Tensor``.",
    fix="Convert it: ``torch.from_numpy(x)``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def argument_type():
    import numpy as np

    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube(np.ones(3))


@fixes(argument_type)
def argument_tensor():
    import numpy as np

    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube(torch.from_numpy(np.ones(3)))


@raises(
    "An operator was called with an argument missing",
    cause="The schema has no default for it.",
    fix="Pass it, or give the parameter a default.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def argument_missing():
    @custom_op("cookbook::scale", mutates_args=())
    def scale(x: Tensor, factor: float) -> Tensor:
        return x * factor

    scale(torch.ones(3))


@fixes(argument_missing)
def argument_default():
    @custom_op("cookbook::scale", mutates_args=())
    def scale(x: Tensor, factor: float = 2.0) -> Tensor:
        return x * factor

    scale(torch.ones(3))


@raises(
    "An operator was called with an argument too many",
    cause="The schema has one argument, the call two.",
    fix="Call it as the schema says; the text shows the declaration.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def argument_surplus():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube(torch.ones(3), 3)


@fixes(argument_surplus)
def argument_count():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube(torch.ones(3))


@raises(
    "A custom operator returned one tensor where two are declared",
    cause="""The declared return is ``tuple[Tensor, Tensor]``, and the function returned one tensor, or a tuple of one.
    PyTorch does not check for too many tensors: the call returns all of them, or the process crashes.""",
    fix="Return as many tensors as are declared.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def returns_too_few():
    @custom_op("cookbook::extremes", mutates_args=())
    def extremes(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.min()

    extremes(torch.randn(3))


@fixes(returns_too_few)
def returns_both():
    @custom_op("cookbook::extremes", mutates_args=())
    def extremes(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.min(), x.max()

    extremes(torch.randn(3))


@raises(
    "A custom operator returned a number where a tensor is declared",
    cause="The schema promises a ``Tensor``, and the kernel returned a Python number.",
    fix="Return a tensor, ``x.sum()``, or declare ``-> float``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def returns_number():
    @custom_op("cookbook::total", mutates_args=())
    def total(x: Tensor) -> Tensor:
        return x.sum().item()

    total(torch.ones(3))


@fixes(returns_number)
def returns_tensor():
    @custom_op("cookbook::total", mutates_args=())
    def total(x: Tensor) -> Tensor:
        return x.sum()

    total(torch.ones(3))


@raises(
    "A kernel returned something where nothing is declared",
    cause="The schema ends in ``-> ()``. The lambda returns what ``mul_`` returns.",
    fix="Write a function that returns nothing, or declare that the argument is returned: ``-> Tensor(a!)``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def returns_something():
    torch.library.define("cookbook::double_", "(Tensor(a!) x) -> ()")
    torch.library.impl("cookbook::double_", "cpu", lambda x: x.mul_(2))
    torch.ops.cookbook.double_(torch.ones(3))


@fixes(returns_something)
def returns_nothing():
    torch.library.define("cookbook::double_", "(Tensor(a!) x) -> ()")

    @torch.library.impl("cookbook::double_", "cpu")
    def double_(x):
        x.mul_(2)

    torch.ops.cookbook.double_(torch.ones(3))


@raises(
    "A fake kernel was registered for an operator that does not exist",
    cause="The operator must be defined first. Here its name is misspelled.",
    fix="Define the operator first, and pass exactly its name to ``register_fake``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def fake_of_unknown():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.register_fake("cookbook::qube", torch.empty_like)


@fixes(fake_of_unknown)
def fake_of_known():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.register_fake("cookbook::cube", torch.empty_like)


@raises(
    "A fake kernel was registered for a composite operator",
    cause="""A ``CompositeImplicitAutograd`` kernel calls other operators. PyTorch uses their fake kernels and their
    backward, so this operator needs neither of its own.""",
    fix="Leave the fake kernel out.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def fake_of_composite():
    library = Library("cookbook", "DEF")
    library.define("cube(Tensor x) -> Tensor")
    library.impl("cube", lambda x: x**3, "CompositeImplicitAutograd")
    torch.library.register_fake("cookbook::cube", torch.empty_like, lib=library)


@fixes(fake_of_composite)
def composite_alone():
    library = Library("cookbook", "DEF")
    library.define("cube(Tensor x) -> Tensor")
    library.impl("cube", lambda x: x**3, "CompositeImplicitAutograd")
    torch.ops.cookbook.cube(torch.empty(3, device="meta"))


@raises(
    "A namespace was opened for definition twice",
    cause='Another ``Library`` for this namespace with the kind ``"DEF"`` is alive, and PyTorch allows only one.',
    fix='Pass ``"FRAGMENT"`` instead of ``"DEF"``. Any number of libraries can share a namespace in this way.',
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def namespace_taken():
    libraries = [Library("cookbook", "DEF") for _ in range(2)]
    print(libraries)


@fixes(namespace_taken)
def namespace_shared():
    libraries = [Library("cookbook", "FRAGMENT") for _ in range(2)]
    print(libraries)


@raises(
    "A library was opened in a reserved namespace",
    cause="``prim`` belongs to PyTorch.",
    fix="Use a namespace of your own.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def namespace_reserved():
    Library("prim", "DEF").define("cube(Tensor x) -> Tensor")


@fixes(namespace_reserved)
def namespace_own():
    Library("cookbook", "DEF").define("cube(Tensor x) -> Tensor")


@raises(
    "A library was opened with an unknown kind",
    cause="""The kind is ``"DEF"`` to own a namespace, ``"FRAGMENT"`` to add to one, or ``"IMPL"`` to add kernels to
    operators of others.""",
    fix="Pass one of the three.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def library_kind():
    Library("cookbook", "DEFINE").define("cube(Tensor x) -> Tensor")


@fixes(library_kind)
def library_known_kind():
    Library("cookbook", "DEF").define("cube(Tensor x) -> Tensor")


@raises(
    "An operator of another namespace was defined in a library",
    cause="A library defines operators in its own namespace, so a schema must not name another one.",
    fix="Leave the namespace out of the schema.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def define_in_other_namespace():
    library = Library("cookbook", "DEF")
    library.define("recipes::cube(Tensor x) -> Tensor")


@fixes(define_in_other_namespace)
def define_in_own_namespace():
    library = Library("cookbook", "DEF")
    library.define("cube(Tensor x) -> Tensor")


@raises(
    "A kernel for an operator of another namespace was registered in a library",
    cause="This library is for the namespace ``cookbook``, so you cannot add a kernel to ``aten::cosh`` with it.",
    fix="""Define your own operator. Do not use ``Library("aten", "IMPL")`` instead: it replaces PyTorch's kernel in
    the whole process, but not its backward.""",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def implement_in_other_namespace():
    library = Library("cookbook", "FRAGMENT")
    library.impl("aten::cosh", lambda x: (x.exp() + (-x).exp()) / 2, "Meta")


@fixes(implement_in_other_namespace)
def implement_in_own_namespace():
    library = Library("cookbook", "FRAGMENT")
    library.define("cosh(Tensor x) -> Tensor")
    library.impl("cosh", lambda x: (x.exp() + (-x).exp()) / 2, "Meta")


@raises(
    "A kernel was registered for an unknown dispatch key",
    cause="""The method ``impl`` of a ``Library`` takes a dispatch key, such as ``"CPU"``, ``"CUDA"`` or
    ``"CompositeExplicitAutograd"``. ``"GPU"`` is not a dispatch key.""",
    fix='Pass ``"CUDA"``. The function ``torch.library.impl`` takes the name of the device instead: ``"cuda"``.',
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def unknown_dispatch_key():
    library = Library("cookbook", "DEF")
    library.define("cube(Tensor x) -> Tensor")
    library.impl("cube", lambda x: x**3, "GPU")


@fixes(unknown_dispatch_key)
def known_dispatch_key():
    library = Library("cookbook", "DEF")
    library.define("cube(Tensor x) -> Tensor")
    library.impl("cube", lambda x: x**3, "CUDA")


@raises(
    "What was registered as a kernel cannot be called",
    cause="The second argument is the function, and the third is the dispatch key. Here the two are exchanged.",
    fix="Pass the name, then the function, then the key.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def kernel_not_callable():
    library = Library("cookbook", "DEF")
    library.define("cube(Tensor x) -> Tensor")
    library.impl("cube", "CPU", lambda x: x**3)


@fixes(kernel_not_callable)
def kernel_callable():
    library = Library("cookbook", "DEF")
    library.define("cube(Tensor x) -> Tensor")
    library.impl("cube", lambda x: x**3, "CPU")


@raises(
    "A kernel was registered for an unknown device",
    cause="""``torch.library.impl`` and ``register_kernel`` take types of devices: ``"cpu"``, ``"cuda"`` and those that
    the message lists. ``"gpu"`` is not in this list.""",
    fix='Pass ``"cuda"``, or another type from the list.',
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def kernel_for_unknown_device():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "gpu", lambda x: x**3)


@fixes(kernel_for_unknown_device)
def kernel_for_known_device():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cuda", lambda x: x**3)


@raises(
    "get_kernel found no kernel for a dispatch key",
    cause="``get_kernel`` looks up one kernel, and the operator has none for CUDA.",
    fix='Ask for a key that has a kernel, for example ``"CPU"``.',
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def kernel_absent():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cpu", lambda x: x**3)
    get_kernel("cookbook::cube", "CUDA")


@fixes(kernel_absent)
def kernel_present():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")
    torch.library.impl("cookbook::cube", "cpu", lambda x: x**3)
    get_kernel("cookbook::cube", "CPU")


@raises(
    "An autocast rule was registered for a device without autocast",
    cause="Autocast exists for ``cpu``, ``cuda`` and a few accelerators.",
    fix="Register the rule for the device that computes.",
    see=("cookbook/06_beyond_autograd/custom_operator", "cookbook/07_compile/mixed_precision"),
)
def autocast_of_meta():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_autocast("meta", torch.bfloat16)


@fixes(autocast_of_meta)
def autocast_of_cpu():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_autocast("cpu", torch.bfloat16)


@raises(
    "wrap_triton was given a Python function",
    cause="""``wrap_triton`` accepts only Triton kernels. The function has no ``@triton.jit``, so it is a plain Python
    function.""",
    fix="""Call a plain Python function directly, without ``wrap_triton``. If it is to be a kernel, decorate it with
    ``triton.jit``, and launch it as ``wrap_triton(kernel)[grid](...)`` inside a ``triton_op``.""",
    see=("cookbook/06_beyond_autograd/triton_kernel",),
)
def wrap_python_kernel():
    def cube_kernel(x):
        return x**3

    x = torch.randn(3)
    wrap_triton(cube_kernel)(x)


@fixes(wrap_python_kernel)
def python_kernel_called():
    def cube_kernel(x):
        return x**3

    x = torch.randn(3)
    cube_kernel(x)


@raises(
    "A library with operators was not found",
    cause="""The path is wrong, a library that it depends on is missing, or it was built for another version of PyTorch.
    The first error in the traceback names the reason.""",
    fix="Compile the library, and pass its full path. The example loads the library only if the file exists.",
    see=("cookbook/06_beyond_autograd/cuda_extension",),
)
def library_missing():
    torch.ops.load_library("/usr/local/lib/libcookbook.so")


@fixes(library_missing)
def library_asked():
    import pathlib

    if pathlib.Path("/usr/local/lib/libcookbook.so").exists():
        torch.ops.load_library("/usr/local/lib/libcookbook.so")


@raises(
    "An operator tagged as in-place does not mutate its first argument",
    cause="""``torch.Tag.inplace`` promises that exactly the first argument is written to, and returned.
    ``mutates_args`` is empty.""",
    fix="Name the argument in ``mutates_args`` and return it.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def inplace_tag():
    @custom_op("cookbook::double_", mutates_args=(), tags=(torch.Tag.inplace,))
    def double_(x: Tensor) -> Tensor:
        return x.mul_(2)


@fixes(inplace_tag)
def inplace_tag_right():
    @custom_op("cookbook::double_", mutates_args=("x",), tags=(torch.Tag.inplace,))
    def double_(x: Tensor) -> Tensor:
        return x.mul_(2)


@raises(
    "An operator tagged as an out= variant has no such argument",
    cause="``torch.Tag.out`` promises keyword-only tensors that are written to and returned. This operator has none.",
    fix="Take ``*, out: Tensor``, name it in ``mutates_args``, and return it.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def out_tag():
    @custom_op("cookbook::double", mutates_args=(), tags=(torch.Tag.out,))
    def double(x: Tensor) -> Tensor:
        return 2 * x


@fixes(out_tag)
def out_tag_right():
    @custom_op("cookbook::double", mutates_args=("out",), tags=(torch.Tag.out,))
    def double(x: Tensor, *, out: Tensor) -> Tensor:
        return torch.mul(x, 2, out=out)


@raises(
    "No tensor subclass among the arguments supports an operator",
    cause="``__torch_dispatch__`` of a tensor subclass returned ``NotImplemented`` for this operator. Under "
    "``torch.compile`` and ``torch.export``, this subclass is ``FakeTensor``, and the operator has no fake kernel.",
    fix='Under ``torch.compile`` or ``export``, register a fake kernel: ``@torch.library.register_fake("lib::op")``. '
    "In your own subclass, call an operator that you do not handle instead of returning ``NotImplemented``, or add a "
    "rule for this operator and your subclass with ``torch.library.register_torch_dispatch``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def dispatch_refused():
    class Tagged(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
            return NotImplemented

    @torch.library.custom_op("cookbook::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    cube(torch.randn(3).as_subclass(Tagged))


@fixes(dispatch_refused)
def dispatch_default():
    class Tagged(torch.Tensor):
        pass

    @torch.library.custom_op("cookbook::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    cube(torch.randn(3).as_subclass(Tagged))


@raises(
    "An operation has no backward for nested tensors",
    cause="For nested tensors of the default (strided) layout, some operations have a forward but no backward, for "
    "example ``tanh`` and, in older releases, the fast attention.",
    fix="Make the nested tensor with ``layout=torch.jagged``, or train with a padded tensor and a mask: "
    "``x.to_padded_tensor(0.0)``. If your forward is attention on the strided layout, run it under "
    "``with torch.nn.attention.sdpa_kernel(SDPBackend.MATH):``, because this kernel has a backward.",
    see=("guide/graph",),
)
def no_backward_for_nested():
    parts = [torch.randn(2, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)]
    x = torch.nested.as_nested_tensor(parts)
    x.tanh().unbind()[0].sum().backward()


@fixes(no_backward_for_nested)
def backward_for_jagged():
    parts = [torch.randn(2, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)]
    x = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
    x.tanh().unbind()[0].sum().backward()


@raises(
    "The gradient of a dense tensor that a nested tensor broadcast cannot be summed",
    cause="The dense operand is the same for all rows of a part, so its gradient is a sum over the ragged dimension. "
    "Jagged nested tensors do not sum over that dimension together with the others. Older releases raise that a "
    "gradient has an invalid shape.",
    fix="Repeat the dense tensor for each row instead of broadcasting it: ``x.values() * "
    "weight.repeat_interleave(lengths, 0)``, with ``lengths = x.offsets().diff()``; "
    "``torch.nested.nested_tensor_from_jagged(values, x.offsets())`` makes a nested tensor of the product.",
    see=("guide/graph",),
)
def nested_broadcast():
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged)
    weight = torch.randn(2, 1, 1, requires_grad=True)
    y = x * weight
    y.backward(torch.ones_like(y))


@fixes(nested_broadcast)
def nested_repeated():
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged)
    weight = torch.randn(2, 1, requires_grad=True)
    y = x.values() * weight.repeat_interleave(x.offsets().diff(), 0)
    y.backward(torch.ones_like(y))


@raises(
    "An operator of a library that returns a view of its input was compiled",
    cause="The schema says with ``Tensor(a)`` that the output shares the memory of the input. ``torch.compile``, "
    "``torch.export`` and ``functionalize`` rewrite a program without views and in-place writes; they can do that for "
    "the operators of PyTorch, not for a view that an operator of a library returns.",
    fix="Return new memory, and say so: ``(Tensor x) -> Tensor`` with ``x.reshape(-1).clone()``. If the operator only "
    "makes a view, call the view itself in Python, outside of the operator.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def view_returned_by_operator():
    library = Library("cookbook", "FRAGMENT")
    library.define("flat(Tensor(a) x) -> Tensor(a)")
    library.impl("flat", lambda x: x.view(-1), "CPU")
    library.impl("flat", lambda x: x.view(-1), "Meta")

    functionalize(torch.ops.cookbook.flat)(torch.ones(2, 3))


@fixes(view_returned_by_operator)
def copy_returned_by_operator():
    library = Library("cookbook", "FRAGMENT")
    library.define("flat(Tensor x) -> Tensor")
    library.impl("flat", lambda x: x.reshape(-1).clone(), "CPU")
    library.impl("flat", lambda x: x.reshape(-1).clone(), "Meta")

    functionalize(torch.ops.cookbook.flat)(torch.ones(2, 3))


@raises(
    "The name of an operator is no string",
    cause='``torch.library.define`` takes the qualified name first, ``"mylib::scale"``, and then the schema.',
    fix='Write ``torch.library.define("mylib::scale", "(Tensor x) -> Tensor")``. To define one from a function, use '
    "``torch.library.custom_op`` as a decorator.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def function_defined():
    def cube(x: Tensor) -> Tensor:
        return x**3

    torch.library.define(cube, "(Tensor x) -> Tensor")


@fixes(function_defined)
def name_defined():
    torch.library.define("cookbook::cube", "(Tensor x) -> Tensor")


@raises(
    "A subclass of Tensor cannot become a parameter",
    cause="``nn.Parameter(t)`` calls ``t.detach()`` and expects the same class. The ``__torch_dispatch__`` of your "
    "class returns a plain tensor for ``aten.detach``.",
    fix="Handle ``aten.detach.default`` in ``__torch_dispatch__``: wrap the detached inner tensor in your class again.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def subclass_as_parameter():
    class Logged(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            args = [a.inner if isinstance(a, cls) else a for a in args]
            return func(*args, **(kwargs or {}))

    nn.Parameter(Logged(torch.randn(3)))


@fixes(subclass_as_parameter)
def subclass_detached():
    class Logged(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            args = [a.inner if isinstance(a, cls) else a for a in args]
            result = func(*args, **(kwargs or {}))
            return cls(result) if func is torch.ops.aten.detach.default else result

    nn.Parameter(Logged(torch.randn(3)))


@raises(
    "A subclass of Tensor cannot be copied",
    cause="``copy.deepcopy`` of a tensor subclass calls ``clone()`` and expects the same class. The "
    "``__torch_dispatch__`` of your class returns a plain tensor for ``aten.clone``.",
    fix="Handle ``aten.clone.default`` in ``__torch_dispatch__``: wrap the cloned inner tensor in your class again. Or "
    "give the class a ``__deepcopy__``.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def subclass_copied():
    class Logged(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            args = [a.inner if isinstance(a, cls) else a for a in args]
            return func(*args, **(kwargs or {}))

    copy.deepcopy(Logged(torch.randn(3)))


@fixes(subclass_copied)
def subclass_cloned():
    class Logged(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            args = [a.inner if isinstance(a, cls) else a for a in args]
            result = func(*args, **(kwargs or {}))
            return cls(result) if func is torch.ops.aten.clone.default else result

    copy.deepcopy(Logged(torch.randn(3)))


@raises(
    "The name of a custom operator has no namespace",
    cause='The name of an operator has two parts, ``"namespace::name"``. This one has no ``::``, so PyTorch cannot '
    "take it apart.",
    fix='Write ``@custom_op("mylib::cube", mutates_args=())``.',
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def operator_without_namespace():
    @custom_op("cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3


@fixes(operator_without_namespace)
def operator_with_namespace():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3


@raises(
    "An implementation of a view returned its input",
    cause="Autograd marks the result of a view operation such as ``aten.view`` or ``aten.detach``. The "
    "``__torch_dispatch__`` or decomposition here returned the very tensor that came in, which cannot be its own view.",
    fix="Return a new tensor: ``x.detach()``, or ``torch.ops.aten.alias(x)``. Call the operator that you were given, "
    "``func(*args, **kwargs)``, instead of skipping it.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def view_is_input():
    class Skipped(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.view.default:
                return args[0]
            return func(*args, **(kwargs or {}))

    x = torch.randn(3, requires_grad=True)
    with Skipped():
        x.view(3).sum().backward()


@fixes(view_is_input)
def view_is_alias():
    class Skipped(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.view.default:
                return torch.ops.aten.alias.default(args[0])
            return func(*args, **(kwargs or {}))

    x = torch.randn(3, requires_grad=True)
    with Skipped():
        x.view(3).sum().backward()


@raises(
    "An implementation of a view returned a tensor that was returned before",
    cause="Autograd writes into the result of a view operation what it is a view of. The ``__torch_dispatch__`` here "
    "kept a result and returned it again, so that this is already written.",
    fix="Return a new tensor in each call: ``kept.detach()`` of a stored one, or a new wrapper around the inner "
    "tensor.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def view_returned_twice():
    class Cached(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.kept = {}

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.view.default:
                return self.kept.setdefault(func, func(*args))
            return func(*args, **(kwargs or {}))

    x = torch.randn(3, requires_grad=True)
    with Cached():
        (x.view(3) + x.view(3)).sum().backward()


@fixes(view_returned_twice)
def view_returned_anew():
    class Cached(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.kept = {}

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.view.default:
                return self.kept.setdefault(func, func(*args)).detach()
            return func(*args, **(kwargs or {}))

    x = torch.randn(3, requires_grad=True)
    with Cached():
        (x.view(3) + x.view(3)).sum().backward()


@raises(
    "An extension in CUDA is built on a machine without the CUDA toolkit",
    cause="``CUDAExtension`` and ``load`` with a ``.cu`` file need ``nvcc`` and the headers of the CUDA toolkit. The "
    "wheel of torch has only the libraries that run programs, and not the toolkit. No gradient is involved yet.",
    fix="Install the CUDA toolkit of the major release that ``torch.version.cuda`` names, and set ``CUDA_HOME`` to its "
    "folder, for example ``/usr/local/cuda``. Without a GPU, build the C++ part alone with ``CppExtension``.",
)
def cuda_home_missing():
    from torch.utils import cpp_extension

    cpp_extension.CUDA_HOME = None  # as on a machine without nvcc
    cpp_extension.CUDAExtension("scale", ["scale.cpp", "scale.cu"])


@fixes(cuda_home_missing)
def extension_in_cpp():
    from torch.utils import cpp_extension

    cpp_extension.CppExtension("scale", ["scale.cpp"])


@raises(
    "An extension is compiled while the program runs, and ninja is missing",
    cause="``load`` and ``load_inline`` run the compilers with the build tool ``ninja``, which is not installed or not "
    "on the ``PATH``. No gradient is involved yet.",
    fix="Install it, ``pip install ninja``, and check that ``ninja --version`` runs in the shell that starts Python. A "
    "``setup.py`` builds without it, slowly: ``BuildExtension.with_options(use_ninja=False)``. There is no other "
    "build tool for ``load``.",
)
def ninja_missing():
    import os

    from torch.utils import cpp_extension

    os.environ["PATH"] = ""  # as on a machine without ninja
    cpp_extension.verify_ninja_availability()
