"""A custom operator, a Function, and one around the other: what each can do, cell by cell of the table on the page."""

import pytest
import torch
from scipy import signal
from torch import Tensor, nn
from torch.autograd import Function, forward_ad, gradcheck, gradgradcheck
from torch.library import custom_op, opcheck

from autograd_cookbook.auditing import audit, saved_bytes
from autograd_cookbook.recipes.custom_operator import (
    filter_gradients,
    filtered,
    recursive_filter,
    recursive_filter_op,
    save_for_filter,
)

# Opcheck calls the compiler with tensors that are no leaves, and it looks whether they have a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


class BareFunction(Function):
    """What one would write without an operator."""

    forward = staticmethod(filtered)
    setup_context = staticmethod(save_for_filter)

    @staticmethod
    def backward(ctx, grad_output):
        return filter_gradients(BareFunction.apply, ctx, grad_output)

    @staticmethod
    def vmap(info, in_dims, input, coefficients):
        return BareFunction.apply(input.movedim(in_dims[0], 0), coefficients), 0


WRAPPERS = {"Function": BareFunction.apply, "custom_op": recursive_filter_op, "both": recursive_filter}
each_wrapper = pytest.mark.parametrize("wrapper", WRAPPERS)


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    x = torch.randn(3, 7, dtype=dtype, requires_grad=True)
    return x, torch.tensor([-0.5, 0.2], dtype=dtype, requires_grad=True)


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.a = function, nn.Parameter(example()[1].detach())

    def forward(self, x):
        return self.function(x * 2, self.a).sin()


# --- what all of them can do ---


@each_wrapper
def test_derivatives_of_first_and_second_order(wrapper) -> None:
    assert gradcheck(WRAPPERS[wrapper], example())
    assert gradgradcheck(WRAPPERS[wrapper], example())


@each_wrapper
def test_vmap_over_signals(wrapper) -> None:
    x, a = example()
    found = torch.func.vmap(WRAPPERS[wrapper], (1, None), 1)(x.mT.contiguous(), a)
    torch.testing.assert_close(found.mT, recursive_filter(x, a), rtol=0, atol=0)


# --- what only some of them can do, on torch 2.13 ---


@pytest.mark.parametrize(("wrapper", "works"), [("Function", True), ("custom_op", False), ("both", True)])
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev], ids=["grad", "jacrev"])
def test_torch_func_refuses_an_operator_with_a_registered_gradient(wrapper, works, transform) -> None:
    x, a = example()

    def loss(a):
        return WRAPPERS[wrapper](x.detach(), a).sum()

    if works:
        found = transform(loss)(a.detach())
        torch.testing.assert_close(found, torch.autograd.grad(loss(a), a)[0], rtol=1e-13, atol=0)
    else:
        with pytest.raises(RuntimeError, match="must override the setup_context"):
            transform(loss)(a.detach())


@pytest.mark.parametrize("wrapper", ["Function", "both"])
def test_forward_mode_is_missed_aloud_by_a_function(wrapper) -> None:
    x, a = example()
    with pytest.raises(NotImplementedError, match="implement the jvp"):
        torch.func.jvp(lambda a: WRAPPERS[wrapper](x.detach(), a), (a.detach(),), (torch.ones_like(a),))


def test_forward_mode_takes_an_operator_for_a_constant() -> None:
    """The zeros are wrong, and nothing says so; dual numbers lose their tangent."""
    x, a = example()
    point, direction = a.detach(), torch.ones_like(a)
    _, tangent = torch.func.jvp(lambda a: recursive_filter_op(x.detach(), a), (point,), (direction,))
    assert not tangent.any()
    (change,) = torch.autograd.grad(recursive_filter(x, a).sum(), a)
    assert change.sum().abs() > 1, "the derivative is not zero at all"
    with forward_ad.dual_level():
        dual = recursive_filter_op(x.detach(), forward_ad.make_dual(point, direction))
        assert forward_ad.unpack_dual(dual).tangent is None
    assert not hasattr(recursive_filter_op, "register_jvp")


@pytest.mark.parametrize(("wrapper", "works"), [("Function", False), ("custom_op", True), ("both", True)])
@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_foreign_code_compiles_whole_as_an_operator(wrapper, works) -> None:
    x, a = example()
    function = WRAPPERS[wrapper]

    def loss(a):
        return function(x.detach() * 1, a).sin().sum()

    torch._dynamo.reset()
    try:
        whole = torch.compile(loss, fullgraph=True, backend="aot_eager")
        if works:
            (found,) = torch.autograd.grad(whole(a), a)
            torch.testing.assert_close(found, torch.autograd.grad(loss(a), a)[0], rtol=1e-12, atol=0)
        else:
            with pytest.raises(torch._dynamo.exc.Unsupported):
                whole(a)
    finally:
        torch._dynamo.reset()


@pytest.mark.parametrize(("wrapper", "works"), [("Function", False), ("custom_op", True), ("both", True)])
def test_foreign_code_is_exported_as_an_operator_with_its_gradient(wrapper, works) -> None:
    x, _ = example()
    model = Model(WRAPPERS[wrapper])
    if not works:
        with pytest.raises(RuntimeError, match="numpy"):
            torch.export.export(model, (x.detach(),))
        return
    program = torch.export.export(model, (x.detach(),))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert targets == ["aten.mul.Tensor", "autograd_cookbook.recursive_filter.default", "aten.sin.default"]
    loaded = program.module()
    (found,) = torch.autograd.grad(loaded(x).sum(), list(loaded.parameters()))
    (expected,) = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)


# --- what opcheck is for, and what it is not ---


def test_opcheck_accepts_the_registration() -> None:
    assert set(opcheck(recursive_filter_op, example()).values()) == {"SUCCESS"}


@custom_op("cookbook_test::wrong_filter", mutates_args=())
def wrong_filter(input: Tensor, coefficients: Tensor) -> Tensor:
    return filtered(input, coefficients)


def wrong_gradients(ctx, grad_output):
    grad_input, grad_coefficients = filter_gradients(recursive_filter_op, ctx, grad_output)
    return 123 * grad_input, grad_coefficients


wrong_filter.register_fake(lambda input, coefficients: torch.empty_like(input))
wrong_filter.register_autograd(wrong_gradients, setup_context=save_for_filter)


def test_opcheck_does_not_look_at_numbers() -> None:
    """The gradient is wrong by a factor of 123; gradcheck and the audit see it."""
    assert set(opcheck(wrong_filter, example()).values()) == {"SUCCESS"}
    with pytest.raises(RuntimeError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradcheck(wrong_filter, example())
    report = audit(wrong_filter, example(), only=["first_order"])
    assert [(f.severity, f.check) for f in report.findings] == [("error", "first_order")]
    assert "input 0" in report.findings[0].summary


@custom_op("cookbook_test::returns_its_input", mutates_args=())
def returns_its_input(input: Tensor) -> Tensor:
    return input


@custom_op("cookbook_test::returns_a_view", mutates_args=())
def returns_a_view(input: Tensor) -> Tensor:
    return input[1:]


@pytest.mark.parametrize("operator", [returns_its_input, returns_a_view], ids=["itself", "view"])
def test_an_operator_must_not_return_the_memory_of_an_input(operator) -> None:
    with pytest.raises(RuntimeError, match="may not alias any inputs"):
        operator(torch.ones(3))


@custom_op("cookbook_test::writes", mutates_args=())
def writes(input: Tensor) -> Tensor:
    return input.mul_(2).clone()


def test_writing_undeclared_is_found_by_opcheck_alone() -> None:
    x = torch.ones(2)
    assert writes(x).tolist() == x.tolist() == [2.0, 2.0]
    with pytest.raises(Exception, match="not defined as mutable but was mutated"):
        opcheck(writes, (torch.ones(2),))


# --- the filter ---


def test_it_is_what_scipy_says() -> None:
    x, a = example()
    expected = signal.lfilter([1.0], [1.0, *a.tolist()], x.detach().numpy())
    assert recursive_filter(x, a).detach().numpy() == pytest.approx(expected, rel=1e-14)


def test_vmap_over_signals_with_coefficients_of_their_own() -> None:
    x, coefficients = torch.randn(4, 3, 6, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64) / 4

    def loss(x, a):
        return recursive_filter(x, a).square().sum()

    each = [torch.func.grad(loss, (0, 1))(*pair) for pair in zip(x, coefficients, strict=True)]
    for found, expected in zip(
        torch.func.vmap(torch.func.grad(loss, (0, 1)))(x, coefficients), zip(*each, strict=True), strict=True
    ):
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-12, atol=1e-13)
    over = torch.func.vmap
    expected = torch.stack([recursive_filter(x, a) for a in coefficients])
    signals_inside = over(over(recursive_filter, (0, None)), (None, 0))(x, coefficients)
    coefficients_inside = over(over(recursive_filter, (None, 0)), (0, None))(x, coefficients)
    torch.testing.assert_close(signals_inside, expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(coefficients_inside.transpose(0, 1), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("shape", [(6,), (3, 6), (2, 3, 6)])
def test_backward_itself_sums_over_the_signals_that_share_coefficients(shape) -> None:
    """Not the engine, which would do it without a word. A batch of coefficients keeps its own dimension."""
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    a = torch.tensor([-0.5, 0.2], dtype=torch.float64, requires_grad=True)
    y = recursive_filter(x, a)
    assert [g.shape for g in y.grad_fn.apply(torch.randn_like(y))] == [x.shape, a.shape]
    batch = torch.stack([a, a / 2, -a]).detach().requires_grad_()
    signals = x.expand(3, *shape)
    y = recursive_filter_op(signals, batch)
    weights = torch.randn_like(y)
    assert [g.shape for g in y.grad_fn.apply(weights)[:2]] == [signals.shape, batch.shape]
    (found,) = torch.autograd.grad(y, batch, weights)
    each = [torch.autograd.grad(recursive_filter(x, b), b, w)[0] for b, w in zip(batch.unbind(), weights, strict=True)]
    torch.testing.assert_close(found, torch.stack(each), rtol=1e-12, atol=1e-13)


def test_it_keeps_its_output_and_nothing_else() -> None:
    x, a = example(torch.float32)
    assert saved_bytes(recursive_filter, x, a) == x.nbytes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype) -> None:
    x, a = (t.detach().to(dtype) for t in example())
    assert torch.equal(recursive_filter(x, a), recursive_filter(x.float(), a.float()).to(dtype))


def test_more_coefficients_than_steps() -> None:
    """What lies before the beginning is 0, and so is its gradient."""
    x = torch.tensor([1.0, 2.0])
    a = torch.tensor([-0.5, 7.0, 7.0], requires_grad=True)
    y = recursive_filter(x, a)
    y.sum().backward()
    assert y.tolist() == [1.0, 2.5]
    assert a.grad.tolist() == [-1.0, 0.0, 0.0]


def test_frozen_coefficients_cost_nothing() -> None:
    x, a = example()
    assert audit(recursive_filter, (x, a.detach()), only=["first_order", "unneeded_gradients"]).ok


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.ones(3, dtype=torch.int64), torch.ones(1)), TypeError, "got torch.int64"),
        ((torch.ones(3), torch.ones(1, dtype=torch.float64)), TypeError, "of dtype torch.float32, got torch.float64"),
        ((torch.tensor(1.0), torch.ones(1)), RuntimeError, r"got \(\) and \(1,\)"),
        ((torch.ones(3), torch.ones(0)), RuntimeError, r"got \(3,\) and \(0,\)"),
        ((torch.ones(3), torch.ones(1, 1)), RuntimeError, r"got \(3,\) and \(1, 1\)"),
        ((torch.ones(3), torch.ones(1, device="meta")), RuntimeError, "coefficients on cpu, got meta"),
    ],
)
def test_bad_input(arguments, error, message) -> None:
    with pytest.raises(error, match=message):
        recursive_filter(*arguments)


@pytest.mark.gpu
def test_the_result_comes_back_to_the_device() -> None:
    x, a = example()
    expected = torch.autograd.grad(recursive_filter(x, a).sin().sum(), (x, a))
    onto = [t.detach().cuda().requires_grad_() for t in (x, a)]
    found = torch.autograd.grad(recursive_filter(*onto).sin().sum(), onto)
    for one, other in zip(found, expected, strict=True):
        assert one.device.type == "cuda"
        torch.testing.assert_close(one.cpu(), other, rtol=1e-11, atol=1e-12)
