"""Functions in half precision, and what autocast is to them."""

import pytest
import torch
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.nn import functional as F

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.mixed_precision import cast_inputs, cosine_similarity

HALVES = [torch.float16, torch.bfloat16]


def _nearly_parallel(dtype, angle=0.02):
    torch.manual_seed(0)
    x = torch.randn(64, 128)
    return [t.to(dtype).requires_grad_() for t in (x, x + angle * torch.randn(64, 128))]


@pytest.mark.parametrize("dtype", HALVES)
def test_values_and_gradients_are_those_of_float64_rounded_once(dtype) -> None:
    args = _nearly_parallel(dtype)
    wide = [a.detach().double().requires_grad_() for a in args]
    results = [cosine_similarity(*args), cosine_similarity(*wide)]
    grads = [torch.autograd.grad(r.sum(), a) for r, a in zip(results, (args, wide), strict=True)]
    for low, exact in zip((results[0], *grads[0]), (results[1], *grads[1]), strict=True):
        assert low.dtype == dtype
        # Half a step of the dtype, and a float32 computation that is not exact. Small gradients are subnormal
        # in float16, with steps of 6e-8.
        step = torch.finfo(dtype).eps / 2 * 1.01
        assert torch.all((low.double() - exact).abs() <= step * exact.abs() + (4e-8 if dtype is HALVES[0] else 1e-9))


def test_the_built_in_loses_the_gradient_of_nearly_parallel_vectors() -> None:
    """Which is what the recipe is for; if this fails, its page says too much."""
    x, y = _nearly_parallel(torch.bfloat16)
    wide = [a.detach().double().requires_grad_() for a in (x, y)]
    (exact,) = torch.autograd.grad(F.cosine_similarity(*wide).sum(), wide[0])
    errors = {
        f: (torch.autograd.grad(f(x, y, -1).sum(), x)[0].double() - exact).norm() / exact.norm()
        for f in (cosine_similarity, F.cosine_similarity)
    }
    assert errors[cosine_similarity] < 0.003
    assert errors[F.cosine_similarity] > 0.1


def test_float16_does_not_overflow() -> None:
    x = torch.full((4,), 60_000.0, dtype=torch.float16, requires_grad=True)
    c = cosine_similarity(x, x.detach())
    assert c == 1
    assert torch.autograd.grad(c, x)[0].isfinite().all()


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32, torch.float64])
def test_nothing_is_kept_but_the_arguments(dtype) -> None:
    assert saved_bytes(cosine_similarity, *_nearly_parallel(dtype)) == 0


def test_each_gradient_has_the_dtype_of_its_argument() -> None:
    x, y = torch.randn(3, dtype=torch.bfloat16, requires_grad=True), torch.randn(3, requires_grad=True)
    c = cosine_similarity(x, y)
    assert c.dtype == torch.float32
    assert [g.dtype for g in torch.autograd.grad(c, (x, y))] == [torch.bfloat16, torch.float32]


def test_vectors_shorter_than_eps() -> None:
    """The gradient that torch has for them does not pass gradcheck."""
    torch.manual_seed(0)
    x, y = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for eps in (1.5, 10.0):  # some of them, all of them
        shorter = x.norm(dim=1) < eps
        assert shorter.any()
        assert gradcheck(cosine_similarity, (x, y, -1, eps), rtol=1e-5)
        assert gradgradcheck(cosine_similarity, (x, y, -1, eps), rtol=1e-5)
        torch.testing.assert_close(cosine_similarity(x, y, -1, eps), F.cosine_similarity(x, y, -1, eps))
    assert not gradcheck(F.cosine_similarity, (x, y, -1, 10.0), raise_exception=False)


def test_a_vector_of_zeros_has_a_finite_gradient() -> None:
    x, y = torch.zeros(2, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    expected = torch.autograd.grad(F.cosine_similarity(x, y, -1).sum(), (x, y))
    c = cosine_similarity(x, y)
    assert c.tolist() == [0, 0]
    for ours, theirs in zip(torch.autograd.grad(c.sum(), (x, y)), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_scalars_point_up_or_down() -> None:
    x, y = torch.tensor(0.3, requires_grad=True), torch.tensor(-0.7, requires_grad=True)
    c = cosine_similarity(x, y)
    assert (c.shape, c.item()) == ((), -1)
    assert [g.item() for g in torch.autograd.grad(c, (x, y))] == [0, 0]


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_dtypes_that_are_not_real_and_floating_are_refused_as_by_torch(dtype) -> None:
    x = torch.ones(3, dtype=dtype)
    for function in (cosine_similarity, F.cosine_similarity):
        with pytest.raises(RuntimeError, match="expected common dtype to be floating point, yet common dtype is"):
            function(x, x, -1)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        cosine_similarity(torch.ones(2, 3), torch.ones(2, 4))


# --- autocast ---


class _Product(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return x @ w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output @ w.mT, x.mT @ grad_output


def _product(x, w):
    return cast_inputs(_Product.apply, x, w)


def _arguments():
    torch.manual_seed(0)
    return torch.randn(8, 32, requires_grad=True), torch.randn(32, 4, requires_grad=True)


def _under_autocast(function):
    x, w = _arguments()
    with torch.autocast("cpu", torch.bfloat16):
        y = function(x, w)
    return y, *torch.autograd.grad(y.sum(), (x, w))


def _expect_equal(actual, expected) -> None:
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype
        assert torch.equal(a, e)


def test_a_matrix_product_in_backward_meets_two_dtypes() -> None:
    """The reason for all of this: autocast is on in forward, and off in backward."""
    with pytest.raises(RuntimeError, match="same dtype"):
        _under_autocast(_Product.apply)


def test_cast_inputs_is_what_autocast_does_to_a_product() -> None:
    _expect_equal(_under_autocast(_product), _under_autocast(torch.matmul))


def test_cast_inputs_compiles_whole() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(_product, fullgraph=True, backend="aot_eager")
    _expect_equal(_under_autocast(compiled), _under_autocast(_product))
    torch._dynamo.reset()


def test_cast_inputs_under_torch_func() -> None:
    x, w = (a.detach() for a in _arguments())
    _, expected, _ = _under_autocast(_product)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(torch.func.grad(lambda x: _product(x, w).sum())(x), expected)


def test_without_autocast_nothing_is_cast() -> None:
    x, w = _arguments()
    assert torch.equal(_product(x, w), x @ w)


def test_what_is_not_narrow_stays_as_it_is() -> None:
    given = (torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.int64), None, 2.5)
    with torch.autocast("cpu", torch.bfloat16):
        found = cast_inputs(lambda *args: args, *given)
    assert all(a is b for a, b in zip(found, given, strict=True))


def test_autocast_is_off_inside() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert not cast_inputs(lambda x: torch.is_autocast_enabled("cpu"), torch.ones(1))
        assert torch.is_autocast_enabled("cpu")


class _Cube(Function):
    forward = staticmethod(lambda x: x**3)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return 3 * ctx.saved_tensors[0] ** 2 * grad_output


class _CubeOfCast(Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.bfloat16)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    backward = staticmethod(custom_bwd(_Cube.backward, device_type="cpu"))


@pytest.mark.parametrize(
    ("function", "expected"),
    [(lambda x: cast_inputs(_Cube.apply, x), 20.25), (_CubeOfCast.apply, 6.75)],
    ids=["cast_inputs", "custom_fwd"],
)
def test_the_second_derivative_passes_through_the_cast_of_cast_inputs_alone(function, expected) -> None:
    """Of (wx)^3 by x and w it is 9 w^2 x^2; custom_fwd saves a copy that no graph leads to."""
    x, w = torch.ones((), requires_grad=True), torch.tensor(1.5, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = function(w * x)
    (slope,) = torch.autograd.grad(y, x, create_graph=True)
    assert torch.autograd.grad(slope, w)[0].item() == expected


# --- What torch's decorators do, which the page relies on ---


class _DecoratedContext(_Product):
    setup_context = staticmethod(custom_fwd(_Product.setup_context, device_type="cpu"))
    backward = staticmethod(custom_bwd(_Product.backward, device_type="cpu"))


class _DecoratedForward(_Product):
    forward = staticmethod(custom_fwd(_Product.forward, device_type="cpu"))
    backward = staticmethod(custom_bwd(_Product.backward, device_type="cpu"))


def test_decorators_belong_on_setup_context_and_backward() -> None:
    _expect_equal(_under_autocast(_DecoratedContext.apply), _under_autocast(torch.matmul))


def test_a_decorated_forward_without_ctx_marks_the_tensor_of_the_caller() -> None:
    with pytest.raises(AttributeError, match="_fwd_used_autocast"):
        _under_autocast(_DecoratedForward.apply)
    x, w = _arguments()
    _DecoratedForward.apply(x, w)
    assert set(vars(x)) == {"_dtype", "_fwd_used_autocast"}


@pytest.mark.parametrize("decorator", [custom_fwd, custom_bwd])
def test_the_decorators_need_a_device_type(decorator) -> None:
    with pytest.raises(TypeError, match="device_type"):
        decorator(lambda ctx: None)


class _Unguarded(_Product):
    @staticmethod
    def forward(x, w):
        with torch.autocast("cpu", enabled=False):
            return x @ w


class _Guarded(_Unguarded):
    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            return grad_output @ w.mT, x.mT @ grad_output


@pytest.mark.parametrize(("function", "exact_compiled"), [(_Unguarded, False), (_Guarded, True)])
def test_a_compiled_backward_has_the_autocast_of_its_forward(function, exact_compiled) -> None:
    """In eager mode it has that of whoever calls backward."""
    torch._dynamo.reset()
    x, w = _arguments()
    expected = torch.autograd.grad((x @ w).sum(), (x, w))
    compiled = torch.compile(lambda x, w: function.apply(x, w), fullgraph=True, backend="aot_eager")
    assert all(map(torch.equal, _under_autocast(function.apply)[1:], expected))
    assert all(map(torch.equal, _under_autocast(compiled)[1:], expected)) == exact_compiled
    torch._dynamo.reset()


def test_a_scaler_on_the_cpu_keeps_small_gradients_of_a_custom_function() -> None:
    class Mean(Function):
        forward = staticmethod(lambda x: x.float().mean())

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.shape = inputs[0].shape

        @staticmethod
        def backward(ctx, grad_output):
            return (grad_output / ctx.shape.numel()).half().expand(ctx.shape)

    x = torch.ones(2**26, dtype=torch.float16).requires_grad_()  # 2^-26 is less than half of what float16 has
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    assert not torch.autograd.grad(Mean.apply(x), x)[0].any()
    assert (torch.autograd.grad(scaler.scale(Mean.apply(x)), x)[0][:3] == 2.0**-10).all()
