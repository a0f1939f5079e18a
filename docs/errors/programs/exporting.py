"""Export, TorchScript, ONNX and control flow."""

import io

import torch
from docs.errors.programs import fixes, raises
from torch import Tensor, nn
from torch._higher_order_ops import associative_scan, scan
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import Function
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import custom_op
from torch.nn.attention.flex_attention import flex_attention


@raises(
    "A function was exported",
    cause="``torch.export.export`` takes a module, whose parameters and buffers become part of the program.",
    fix="Put the function into the ``forward`` of a module.",
    see=("cookbook/07_compile/export",),
)
def export_of_function():
    def model(x):
        return x.sin()

    torch.export.export(model, (torch.randn(3),))


@fixes(export_of_function)
def export_of_module():
    class Model(nn.Module):
        def forward(self, x):
            return x.sin()

    torch.export.export(Model(), (torch.randn(3),))


@raises(
    "The example arguments of an export are no tuple",
    cause="""``torch.export.export`` passes the elements of this tuple as positional arguments. A single argument also
    needs a tuple.""",
    fix="Write ``(x,)``.",
    see=("cookbook/07_compile/export",),
)
def export_arguments():
    x = torch.randn(4, 3)
    torch.export.export(nn.Linear(3, 2), x)


@fixes(export_arguments)
def export_argument_tuple():
    x = torch.randn(4, 3)
    torch.export.export(nn.Linear(3, 2), (x,))


@raises(
    "A module with an if on a tensor was exported",
    cause="""The exported graph has one path for all values. Which path the ``if`` takes depends on the values, which
    the export does not know.""",
    fix="""Choose with ``torch.where``, or with ``torch.cond``. ``torch.where`` computes both sides: if either has an
    infinite derivative, the gradient is NaN, even where the other is chosen.""",
    see=("cookbook/07_compile/export",),
)
def export_branch():
    class Model(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    torch.export.export(Model(), (torch.randn(3),))


@fixes(export_branch)
def export_where():
    class Model(nn.Module):
        def forward(self, x):
            return torch.where(x.sum() > 0, x, -x)

    torch.export.export(Model(), (torch.randn(3),))


@raises(
    "A module that goes through NumPy was exported",
    cause="Exporting runs the module on fake tensors, which hold no numbers for NumPy to see.",
    fix="Wrap the code as an operator with ``torch.library.custom_op``. If its input requires a gradient, also give "
    "the operator a backward with ``register_autograd``.",
    see=("cookbook/07_compile/export", "cookbook/06_beyond_autograd/custom_operator"),
)
def export_numpy():
    class Model(nn.Module):
        def forward(self, x):
            return torch.from_numpy(x.numpy() * 2)

    torch.export.export(Model(), (torch.randn(3),))


@fixes(export_numpy)
def export_operator():
    @custom_op("cookbook::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy() * 2)

    double.register_fake(torch.empty_like)

    class Model(nn.Module):
        def forward(self, x):
            return double(x)

    torch.export.export(Model(), (torch.randn(3),))


@raises(
    "A module that reads a pointer was exported",
    cause="Exporting runs the module on fake tensors, which have no memory.",
    fix="Wrap the kernel that takes the pointer as an operator with ``torch.library.custom_op``. If its input requires "
    "a gradient, also give the operator a backward with ``register_autograd``.",
    see=("cookbook/07_compile/export", "cookbook/06_beyond_autograd/custom_operator"),
)
def export_pointer():
    class Model(nn.Module):
        def forward(self, x):
            return 2 * x if x.data_ptr() else x

    torch.export.export(Model(), (torch.randn(3),))


@fixes(export_pointer)
def export_kernel():
    @custom_op("cookbook::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        return 2 * x if x.data_ptr() else x.clone()

    double.register_fake(torch.empty_like)

    class Model(nn.Module):
        def forward(self, x):
            return double(x)

    torch.export.export(Model(), (torch.randn(3),))


@raises(
    "A dimension that was to be dynamic was fixed by the code",
    cause="``Dim`` promises that the program works for every size, and ``view(3, 1)`` works for 3 only.",
    fix="Write the size as that of the tensor, or declare the dimension static.",
    see=("cookbook/07_compile/export",),
)
def export_specialized():
    class Model(nn.Module):
        def forward(self, x):
            return x.view(3, 1)

    batch = torch.export.Dim("batch")
    torch.export.export(Model(), (torch.randn(3),), dynamic_shapes=({0: batch},))


@fixes(export_specialized)
def export_dynamic():
    class Model(nn.Module):
        def forward(self, x):
            return x.view(-1, 1)

    batch = torch.export.Dim("batch")
    torch.export.export(Model(), (torch.randn(3),), dynamic_shapes=({0: batch},))


@raises(
    "dynamic_shapes has another structure than the arguments",
    cause="It has one entry for each argument of ``forward``: a tuple in its order, or a dictionary by name.",
    fix="Give one entry for each; ``None`` is that of an argument without dynamic dimensions.",
    see=("cookbook/07_compile/export",),
)
def export_shapes_structure():
    class Model(nn.Module):
        def forward(self, x):
            return 2 * x

    batch = torch.export.Dim("batch")
    torch.export.export(Model(), (torch.randn(3),), dynamic_shapes=({0: batch}, None))


@fixes(export_shapes_structure)
def export_shapes_match():
    class Model(nn.Module):
        def forward(self, x):
            return 2 * x

    batch = torch.export.Dim("batch")
    torch.export.export(Model(), (torch.randn(3),), dynamic_shapes=({0: batch},))


@raises(
    "An exported program was called with another shape",
    cause="Without ``dynamic_shapes`` the program is for the shapes of the example, and checks them.",
    fix="Export with ``dynamic_shapes``.",
    see=("cookbook/07_compile/export",),
)
def exported_other_shape():
    class Model(nn.Module):
        def forward(self, x):
            return 2 * x

    program = torch.export.export(Model(), (torch.randn(3),))
    program.module()(torch.randn(4))


@fixes(exported_other_shape)
def exported_any_shape():
    class Model(nn.Module):
        def forward(self, x):
            return 2 * x

    program = torch.export.export(Model(), (torch.randn(3),), dynamic_shapes=({0: torch.export.Dim("n")},))
    program.module()(torch.randn(4))


@raises(
    "A module that stores a tensor on itself was exported",
    warning=True,
    cause="""An exported program has parameters and buffers. A tensor assigned to an ordinary attribute is left behind,
    and the export only warns.""",
    fix="Register a buffer and write to that, or return the tensor.",
    see=("cookbook/07_compile/export",),
)
def export_attribute():
    class Model(nn.Module):
        def forward(self, x):
            self.last = x.sin()
            return self.last

    torch.export.export(Model(), (torch.randn(3),))


@fixes(export_attribute)
def export_returned():
    class Model(nn.Module):
        def forward(self, x):
            return x.sin()

    torch.export.export(Model(), (torch.randn(3),))


@raises(
    "A fake tensor met a real one",
    cause="""Code that runs on fake tensors found a tensor with data: one made before the mode was entered, or a
    constant kept in a module or a closure.""",
    fix="Make all tensors in the same mode, or convert: ``mode.from_tensor(x)``.",
    see=("cookbook/07_compile/export",),
)
def fake_mixed():
    from torch._subclasses.fake_tensor import FakeTensorMode

    weight = torch.randn(3)
    with FakeTensorMode():
        x = torch.randn(3)
        x * weight


@fixes(fake_mixed)
def fake_converted():
    from torch._subclasses.fake_tensor import FakeTensorMode

    weight = torch.randn(3)
    with FakeTensorMode() as mode:
        x = torch.randn(3)
        x * mode.from_tensor(weight)


@raises(
    "The value of a fake tensor was asked for",
    cause="""A fake tensor has a shape, a dtype and a device, and no numbers. ``item()``, ``bool(x)`` and ``int(x)``
    want one. The text names the operator behind them.""",
    fix="Compute with tensors, or do this outside of the mode.",
    see=("cookbook/07_compile/export",),
)
def fake_value():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.randn(3)
        x / x.norm().item()


@fixes(fake_value)
def fake_without_value():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.randn(3)
        x / x.norm()


@raises(
    "A shape that depends on the values of a fake tensor was asked for",
    cause="Without numbers, how many are not zero is not known. The text names the operator.",
    fix="""Give the mode a ``ShapeEnv``, which stands for such sizes by symbols, as ``torch.compile`` and
    ``torch.export`` do.""",
    see=("cookbook/07_compile/export",),
)
def fake_dynamic_shape():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        torch.randn(3).nonzero()


@fixes(fake_dynamic_shape)
def fake_symbolic_shape():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode(shape_env=ShapeEnv()):
        torch.randn(3).nonzero()


@raises(
    "A traced module with a custom Function was saved",
    cause="``torch.jit.trace`` keeps a call of your Python class in its graph, and a file can hold no Python.",
    fix="Let the forward use plain operations while tracing: ``if torch.jit.is_tracing(): return x.clamp(-1, 1)``, or "
    "make the Function a custom operator. For a new project, use ``torch.export``, which records what the Function "
    "computes.",
    see=("cookbook/07_compile/export",),
)
def traced_function_saved():
    class Clip(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    traced = torch.jit.trace(lambda x: Clip.apply(x), torch.randn(3))
    torch.jit.save(traced, io.BytesIO())


@fixes(traced_function_saved)
def traced_operations_saved():
    class Clip(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    def clip(x):
        return x.clamp(-1, 1) if torch.jit.is_tracing() else Clip.apply(x)

    traced = torch.jit.trace(clip, torch.randn(3))
    torch.jit.save(traced, io.BytesIO())


@raises(
    "A traced function uses a tensor from outside that requires grad",
    cause="``torch.jit.trace`` stores tensors that are neither inputs nor parameters of the traced module as "
    "constants, and constants cannot require grad.",
    fix="Pass the tensor as an input, or make it a parameter of the module that is traced. If it should not train, use "
    "``weight.detach()``. A gradient computed inside of forward is better traced by ``make_fx``.",
    see=("cookbook/07_compile/export",),
)
def traced_constant():
    weight = torch.randn(3, requires_grad=True)
    torch.jit.trace(lambda x: x * weight, torch.randn(3))


@fixes(traced_constant)
def traced_input():
    weight = torch.randn(3, requires_grad=True)
    torch.jit.trace(lambda x, weight: x * weight, (torch.randn(3), weight))


@raises(
    "Tensors of two fake modes met",
    cause="Each ``FakeTensorMode`` makes fake tensors of its own, and one operation takes those of one mode only. Two "
    "modes were opened, or an export or a compilation ran inside of a mode that was open.",
    fix="Make all tensors under one mode: ``mode = FakeTensorMode()``, and ``with mode:`` each time. Leave the mode "
    "before you call ``torch.compile`` or ``torch.export``, which open their own.",
    see=("cookbook/07_compile/export",),
)
def fake_modes_mixed():
    with FakeTensorMode():
        x = torch.randn(3)
    with FakeTensorMode():
        weight = torch.randn(3)
    x * weight


@fixes(fake_modes_mixed)
def fake_mode_shared():
    mode = FakeTensorMode()
    with mode:
        x = torch.randn(3)
    with mode:
        weight = torch.randn(3)
    x * weight


@raises(
    "torch.jit.script met torch.autograd.grad with tensors that are not in lists",
    cause="TorchScript has no overloads for a single tensor here: outputs and inputs are lists.",
    fix="Write ``torch.autograd.grad([y], [x])[0]``; its type is ``Optional[Tensor]``, so check it for ``None``. Or "
    "compile with ``torch.compile`` and ``torch.func.grad``; ``torch.jit`` is deprecated.",
    see=("cookbook/07_compile/torch_compile",),
)
def scripted_grad_of_tensor():
    @torch.jit.script
    def slope(x):
        return torch.autograd.grad(x.sin().sum(), x)


@fixes(scripted_grad_of_tensor)
def scripted_grad_of_list():
    @torch.jit.script
    def slope(x):
        return torch.autograd.grad([x.sin().sum()], [x])

    slope(torch.randn(3, requires_grad=True))


@raises(
    "A module with backward hooks was traced",
    cause="``torch.jit.trace`` records the forward only, and would lose the hooks of the module silently.",
    fix="Remove the hooks before you trace: keep the handle, ``handle = layer.register_full_backward_hook(...)``, and "
    "call ``handle.remove()``.",
    see=("cookbook/02_changing_the_gradient/hooks",),
)
def traced_with_hooks():
    layer = nn.Linear(3, 1)
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    torch.jit.trace(layer, torch.randn(4, 3))


@fixes(traced_with_hooks)
def traced_without_hooks():
    layer = nn.Linear(3, 1)
    handle = layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    handle.remove()
    torch.jit.trace(layer, torch.randn(4, 3))


@raises(
    "torch.fx traced an if on a tensor",
    cause="``torch.fx.symbolic_trace`` runs the function on placeholders without values, so an ``if``, a ``while``, a "
    "loop over a tensor or ``len(x)`` has nothing to decide by.",
    fix="Choose for each element with ``torch.where(condition, a, b)``. Where the branch depends on the configuration "
    "and not on the data, hide the module with a ``Tracer`` whose ``is_leaf_module`` returns True for it. "
    "``torch.export`` and ``torch.compile`` know more of Python.",
    see=("cookbook/07_compile/export", "cookbook/07_compile/graph_breaks"),
)
def fx_traced_branch():
    def leaky(x):
        if x.sum() > 0:
            return x
        return 0.1 * x

    torch.fx.symbolic_trace(leaky)


@fixes(fx_traced_branch)
def fx_traced_where():
    def leaky(x):
        return torch.where(x.sum() > 0, x, 0.1 * x)

    torch.fx.symbolic_trace(leaky)


@raises(
    "A module that computes a gradient was exported to ONNX",
    cause="The module calls ``torch.autograd.grad`` (forces from an energy, a Jacobian, guidance), so the trace holds "
    "operators of a backward, such as ``select_backward``. The older exporter, ``dynamo=False``, does not know them.",
    fix="Export with ``dynamo=True``. It goes through ``torch.export``, as the program below, and translates the "
    "gradient of most operators, but not of a convolution: there, export the part without the gradient, or write the "
    "formula of the gradient with ordinary operations. If the model has parameters, ``torch.export`` raises: trace it "
    "with ``make_fx`` first. Compare the file with the model in eager mode.",
    see=("cookbook/07_compile/export", "guide/inside"),
)
def onnx_of_gradient():
    class Force(nn.Module):
        def forward(self, x):
            energy = x[0].sin().sum()
            return torch.autograd.grad(energy, x)[0]

    example = torch.randn(3, requires_grad=True)
    torch.onnx.export(Force(), (example,), io.BytesIO(), dynamo=False)


@fixes(onnx_of_gradient)
def exported_gradient():
    class Force(nn.Module):
        def forward(self, x):
            energy = x[0].sin().sum()
            return torch.autograd.grad(energy, x)[0]

    example = torch.randn(3, requires_grad=True)
    torch.export.export(Force(), (example,))


@raises(
    "flex_attention was differentiated on the CPU",
    cause="On the CPU, ``flex_attention`` has a forward only, compiled or not.",
    fix="Train on a GPU. On the CPU, write the attention with ``torch.softmax`` and matrix products, or use "
    "``F.scaled_dot_product_attention`` with a mask; for inference, run ``flex_attention`` under ``torch.no_grad()``.",
    see=("cookbook/07_compile/torch_compile",),
)
def flex_attention_on_cpu():
    query = torch.randn(1, 2, 16, 16, requires_grad=True)
    flex_attention(query, query, query).sum().backward()


@fixes(flex_attention_on_cpu)
def dot_product_attention_on_cpu():
    query = torch.randn(1, 2, 16, 16, requires_grad=True)
    nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()


@raises(
    "A fake kernel asked for the value of a tensor",
    cause="A fake kernel tells the shape of the result without computing it, and its inputs have no values. This one "
    "calls ``.item()``, ``int()`` or ``.tolist()``, because the size of the result depends on the data.",
    fix="Declare a size that is not known: ``size = torch.library.get_ctx().new_dynamic_size()``, and return "
    "``x.new_empty(size)``. If the size is known from the arguments, compute it from shapes and numbers only.",
    see=("cookbook/06_beyond_autograd/custom_operator",),
)
def fake_kernel_reads_value():
    @custom_op("cookbook::head", mutates_args=())
    def head(x: Tensor) -> Tensor:
        return x[: int(x.sum())].clone()

    @head.register_fake
    def _(x):
        return x.new_empty(int(x.sum()))

    @torch.compile(backend="aot_eager", fullgraph=True)
    def total(x):
        return head(x).sum()

    total(torch.ones(3))


@fixes(fake_kernel_reads_value)
def fake_kernel_with_dynamic_size():
    @custom_op("cookbook::head", mutates_args=())
    def head(x: Tensor) -> Tensor:
        return x[: int(x.sum())].clone()

    @head.register_fake
    def _(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    @torch.compile(backend="aot_eager", fullgraph=True)
    def total(x):
        return head(x).sum()

    total(torch.ones(3))


@raises(
    "The backward of a compiled custom operator returns a gradient of the wrong shape",
    cause="While it compiles, the compiler knows the shape of the operator's result from the fake kernel alone. Either "
    "the fake kernel returns another shape than the operator, or the function given to ``register_autograd`` returns a "
    "gradient whose shape is not that of the input.",
    fix="Run ``torch.library.opcheck`` on the operator with a real input: it compares the fake kernel with the "
    "operator. If that passes, print the shape of the gradient in the backward, and sum it to the shape of the input.",
    see=("cookbook/06_beyond_autograd/custom_operator", "check:opcheck"),
)
def fake_shape_in_backward():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    @cube.register_fake
    def _(x):
        return x.new_empty(x.shape[0] + 1)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    cube.register_autograd(lambda ctx, grad: 3 * grad, setup_context=keep)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss(x):
        return cube(x).sum()

    loss(torch.randn(3, requires_grad=True))


@fixes(fake_shape_in_backward)
def fake_shape_of_input():
    @custom_op("cookbook::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x**3

    cube.register_fake(torch.empty_like)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    cube.register_autograd(lambda ctx, grad: 3 * ctx.saved_tensors[0] ** 2 * grad, setup_context=keep)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss(x):
        return cube(x).sum()

    loss(torch.randn(3, requires_grad=True))


@raises(
    "A branch of torch.cond returns another number of results",
    cause="``torch.cond`` records both branches and chooses at run time, so both must return results of the same "
    "number, shape and dtype.",
    fix="Return the same structure from both branches: fill up what one of them lacks with ``torch.zeros_like``.",
    see=("cookbook/07_compile/export",),
)
def cond_returns_other_number():
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: (x.sin(), x.cos()), lambda x: (x.sin(),), (x,))

    torch.compile(f, backend="eager", fullgraph=True)(torch.randn(3))


@fixes(cond_returns_other_number)
def cond_returns_same_number():
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: (x.sin(), x.cos()), lambda x: (x.sin(), -x), (x,))

    torch.compile(f, backend="eager", fullgraph=True)(torch.randn(3))


@raises(
    "An exported model has a tensor that requires grad and is no parameter",
    cause="A plain attribute is none of the model's parameters, so ``torch.export`` stores it as a constant without a "
    "gradient. An optimizer over ``model.parameters()`` would not train it either.",
    fix="Write ``self.w = nn.Parameter(...)`` in ``__init__``. For a constant, use ``register_buffer`` with a tensor "
    "that does not require grad.",
    see=("cookbook/07_compile/export",),
    warning=True,
)
def exported_attribute_requires_grad():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = torch.ones(3, requires_grad=True)

        def forward(self, x):
            return x * self.factor

    torch.export.export(Scale(), (torch.randn(3),)).module()


@fixes(exported_attribute_requires_grad)
def exported_parameter():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x * self.factor

    torch.export.export(Scale(), (torch.randn(3),)).module()


@raises(
    "A function under make_fx takes a decision on a value",
    cause="``make_fx`` records operations, and a recorded tensor has no value: an ``if``, ``.item()`` or ``float()`` "
    "of it needs one.",
    fix="Use ``torch.where`` or ``torch.cond`` instead of ``if``, and keep numbers as tensors. What depends on "
    "options, not on values, may stay an ``if`` of Python.",
    see=("cookbook/07_compile/graph_breaks",),
)
def traced_decision():
    def absolute(x):
        return x if x.sum() > 0 else -x

    make_fx(absolute)(torch.randn(3))


@fixes(traced_decision)
def traced_choice():
    def absolute(x):
        return torch.where(x.sum() > 0, x, -x)

    make_fx(absolute)(torch.randn(3))


@raises(
    "torch.cond got a predicate, branches or operands of another kind",
    cause="``torch.cond(pred, true_fn, false_fn, operands)`` takes a bool or a tensor with one element, two functions, "
    "and a tuple of tensors. A single tensor or a Python number as operands is refused.",
    fix="Reduce the predicate, ``x.sum() > 0``, and pass ``(x,)``. Numbers that both branches use go into their "
    "closures.",
    see=("cookbook/07_compile/graph_breaks",),
)
def cond_of_vector():
    x = torch.randn(3, requires_grad=True)
    torch.cond(x > 0, torch.sin, torch.cos, (x,))


@fixes(cond_of_vector)
def cond_of_one_element():
    x = torch.randn(3, requires_grad=True)
    torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


@raises(
    "The carry of scan changes its dtype or shape in a step",
    cause="``scan`` runs one compiled step for all elements, so the carry that a step returns must be like the one "
    "that it takes: the same shape, dtype, device and structure.",
    fix="Convert inside the step, ``(carry + x).to(carry.dtype)``, or start with a carry of the dtype and the shape "
    "that the step returns.",
    see=("cookbook/04_memory/linear_scan",),
)
def scan_carry_of_other_dtype():
    def step(carry, x):
        carry = (carry + x).double()
        return carry, carry * 1

    scan(step, torch.zeros(3), torch.ones(4, 3))


@fixes(scan_carry_of_other_dtype)
def scan_carry_of_same_dtype():
    def step(carry, x):
        carry = carry + x
        return carry, carry * 1

    scan(step, torch.zeros(3), torch.ones(4, 3))


@raises(
    "A pointwise associative_scan was run on the CPU",
    cause='``combine_mode="pointwise"``, the default, is one kernel for CUDA and XPU.',
    fix='Pass ``combine_mode="generic"`` on the CPU, or move the tensors to the GPU.',
    see=("cookbook/04_memory/linear_scan",),
)
def associative_scan_on_cpu():
    associative_scan(torch.add, torch.ones(4, 3), dim=0)


@fixes(associative_scan_on_cpu)
def generic_scan_on_cpu():
    associative_scan(torch.add, torch.ones(4, 3), dim=0, combine_mode="generic")


@raises(
    "A branch or a loop body returns one of its inputs, or the same tensor twice",
    cause="``torch.cond``, ``while_loop`` and ``scan`` record each branch and each step as a graph whose outputs are "
    "new tensors. Here an output is an input, a view of one, or the same tensor as another output.",
    fix="Return a copy: ``lambda x: x.clone()``. For ``scan``, return ``(carry, carry.clone())``.",
    see=("cookbook/07_compile/graph_breaks",),
)
def branch_returns_input():
    x = torch.randn(3)
    torch.cond(x.sum() > 0, lambda x: x, lambda x: -x, (x,))


@fixes(branch_returns_input)
def branch_returns_copy():
    x = torch.randn(3)
    torch.cond(x.sum() > 0, lambda x: x.clone(), lambda x: -x, (x,))


@raises(
    "A branch or a loop body changes one of its inputs in place",
    cause="The branches of ``torch.cond``, and the bodies of ``while_loop`` and ``scan``, become graphs that must not "
    "write into their inputs. A batch norm in training mode does so too, because it updates its running statistics.",
    fix="Compute out of place and return the new value: ``x + 1`` instead of ``x.add_(1)``. Carry a counter or a "
    "statistic as an operand, and write it back after the call.",
    see=("cookbook/07_compile/graph_breaks",),
)
def branch_in_place():
    x = torch.randn(3)
    torch.cond(x.sum() > 0, lambda x: x.add_(1) * 2, lambda x: -x, (x,))


@fixes(branch_in_place)
def branch_out_of_place():
    x = torch.randn(3)
    torch.cond(x.sum() > 0, lambda x: (x + 1) * 2, lambda x: -x, (x,))


@raises(
    "A branch of torch.cond changes something outside of it",
    cause="A branch becomes a graph, and the graph runs when the predicate says so. Appending to a list, counting in a "
    "variable or setting an attribute is no operation of the graph.",
    fix="Return the value from both branches, and append or assign it after ``torch.cond``.",
    see=("cookbook/07_compile/graph_breaks",),
)
def branch_with_side_effect():
    seen = []

    def positive(x):
        seen.append(1)
        return x.sin()

    x = torch.randn(3)
    torch.cond(x.sum() > 0, positive, lambda x: x.cos(), (x,))


@fixes(branch_with_side_effect)
def branch_without_side_effect():
    x = torch.randn(3)
    seen = [x.sum() > 0]
    torch.cond(seen[0], lambda x: x.sin(), lambda x: x.cos(), (x,))


@raises(
    "The step of scan returns one result instead of two",
    cause="A step of ``scan`` takes the carry and one element, and returns the next carry and the output of this "
    "element.",
    fix="Return both, also where they are equal: ``return carry, carry.clone()``.",
    see=("cookbook/04_memory/linear_scan",),
)
def scan_step_returns_carry():
    scan(lambda carry, x: carry + x, torch.zeros(3), torch.ones(4, 3))


@fixes(scan_step_returns_carry)
def scan_step_returns_pair():
    def step(carry, x):
        carry = carry + x
        return carry, carry.clone()

    scan(step, torch.zeros(3), torch.ones(4, 3))


@raises(
    "torch.fx traced a module that contains a compiled function",
    cause="``torch.fx.symbolic_trace`` calls the module with proxies instead of tensors. A function under "
    "``torch.compile`` is traced by another tracer, which cannot run inside of the first one.",
    fix="Trace the module before you compile it, and compile the traced module: "
    "``torch.compile(torch.fx.symbolic_trace(model))``.",
    see=("cookbook/07_compile/torch_compile",),
)
def fx_traced_compiled():
    import torch.fx

    class Wave(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wave = torch.compile(torch.sin, backend="eager")

        def forward(self, x):
            return self.wave(x)

    torch.fx.symbolic_trace(Wave())


@fixes(fx_traced_compiled)
def fx_traced_then_compiled():
    import torch.fx

    class Wave(torch.nn.Module):
        def forward(self, x):
            return torch.sin(x)

    torch.compile(torch.fx.symbolic_trace(Wave()), backend="eager")(torch.randn(3))
