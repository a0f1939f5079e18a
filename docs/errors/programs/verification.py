"""gradcheck and gradgradcheck."""

import random

import torch
from docs.errors.programs import fixes, raises
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable
from torch.autograd.gradcheck import get_analytical_jacobian, get_numerical_jacobian


@raises(
    "gradcheck was given no input that requires grad",
    cause="``gradcheck`` compares derivatives with respect to the inputs that require grad, and none does. It "
    "checks only the elements of the tuple, and does not search lists or dicts for tensors.",
    fix="Make the inputs with ``requires_grad=True``, and pass each tensor as an argument of its own.",
    see=("guide/gradcheck",),
)
def no_input_requires_grad():
    x = torch.randn(3, dtype=torch.float64)
    gradcheck(torch.sin, (x,))


@fixes(no_input_requires_grad)
def input_requires_grad():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(torch.sin, (x,))


@raises(
    "gradcheck was given an input in single precision",
    cause="With the default ``eps`` of 1e-6, a finite difference in float32 loses most of its digits. So right "
    "gradients fail. The number is the position among the inputs.",
    fix="Make the inputs with ``dtype=torch.float64``. If a function works only in float32, pass a far "
    "larger ``eps`` and looser tolerances.",
    see=("guide/gradcheck", "check:first_order"),
    warning=True,
)
def input_float32():
    x = torch.randn(3, requires_grad=True)
    gradcheck(torch.sin, (x,))


@fixes(input_float32)
def input_float64():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(torch.sin, (x,))


@raises(
    "gradcheck was given an expanded input",
    cause="``gradcheck`` changes one element at a time, in place, and here several share one number. Only a stride of "
    "0 is seen: other overlaps pass this test, and end in a Jacobian mismatch.",
    fix="Give a copy with memory of its own: ``x.expand(3).clone()`` before ``requires_grad_()``.",
    see=("guide/gradcheck", "check:input_layouts"),
)
def input_expanded():
    x = torch.randn(1, dtype=torch.float64).expand(3).requires_grad_()
    gradcheck(torch.sin, (x,))


@fixes(input_expanded)
def input_cloned():
    x = torch.randn(1, dtype=torch.float64).expand(3).clone().requires_grad_()
    gradcheck(torch.sin, (x,))


@raises(
    "gradcheck was given a function with a sparse output",
    cause="The output is a sparse tensor, of which ``gradcheck`` makes no Jacobian.",
    fix="Check the function followed by ``to_dense()``.",
    see=("guide/gradcheck",),
)
def output_sparse():
    def scaled(x):
        return (2 * x).to_sparse()

    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    gradcheck(scaled, (x,))


@fixes(output_sparse)
def output_dense():
    def scaled(x):
        return (2 * x).to_sparse().to_dense()

    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    gradcheck(scaled, (x,))


@raises(
    "gradcheck was given a function with an output for oneDNN",
    cause="The output is in the opaque layout of oneDNN, of which ``gradcheck`` makes no Jacobian.",
    fix="Check the function followed by ``to_dense()``. oneDNN has no float64, so choose tolerances for float32.",
    see=("guide/gradcheck",),
)
def output_mkldnn():
    def converted(x):
        return x.to_mkldnn()

    x = torch.randn(2, 3, requires_grad=True)
    gradcheck(converted, (x,))


@fixes(output_mkldnn)
def output_from_mkldnn():
    def converted(x):
        return x.to_mkldnn().to_dense()

    x = torch.randn(2, 3, requires_grad=True)
    gradcheck(converted, (x,), eps=1e-2, atol=1e-2)


@raises(
    "The output does not require grad, but depends on the input",
    cause="No output requires grad, so gradcheck expects a derivative of zero. But the finite difference is not "
    "zero. Something cuts the graph: ``detach``, ``.data``, ``no_grad``, NumPy, or ``ctx.mark_non_differentiable``. In "
    "``gradgradcheck`` it is the backward that cuts it.",
    fix="Find the first tensor with ``requires_grad=False`` in the function, or in its backward.",
    see=("guide/gradcheck", "guide/gradgradcheck", "guide/graph"),
)
def output_detached():
    def normalized(x):
        return x.detach() / x.detach().norm()

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(normalized, (x,))


@fixes(output_detached)
def output_attached():
    def normalized(x):
        return x / x.norm()

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(normalized, (x,))


@raises(
    "The gradient is not the derivative of forward",
    cause="``numerical`` is a finite difference of ``forward``; ``analytical`` is what backward gives. Rows belong to "
    "elements of the input, columns to those of the output. The same message comes from float32, points where the "
    "function is not smooth, randomness in ``forward``, and inputs that share memory; in ``gradgradcheck`` a matrix "
    "of zeros says that backward cuts the graph, as ``@once_differentiable`` does.",
    fix="Look at ``analytical / numerical``: a constant, a sign, zeros or a transposition names the mistake.",
    see=("guide/debugging", "guide/gradcheck", "guide/gradgradcheck", "check:first_order"),
)
def jacobian_wrong():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return x * grad_output

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Square.apply, (x,))


@fixes(jacobian_wrong)
def jacobian_right():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Square.apply, (x,))


@raises(
    "The gradient of a complex function is wrong",
    cause="For a complex output ``gradcheck`` compares the Jacobians of its imaginary and of its real part, in this "
    "order. Most often the conjugate is missing: a right backward multiplies by the conjugate of the derivative.",
    fix="For a holomorphic function return ``derivative.conj() * grad_output``.",
    see=("cookbook/05_higher_order/complex_numbers", "check:complex128"),
)
def jacobian_complex_wrong():
    class Square(Function):
        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z * z

        @staticmethod
        def backward(ctx, grad_output):
            (z,) = ctx.saved_tensors
            return 2 * z * grad_output

    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    gradcheck(Square.apply, (z,))


@fixes(jacobian_complex_wrong)
def jacobian_complex_right():
    class Square(Function):
        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z * z

        @staticmethod
        def backward(ctx, grad_output):
            (z,) = ctx.saved_tensors
            return 2 * z.conj() * grad_output

    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    gradcheck(Square.apply, (z,))


@raises(
    "jvp is not the derivative of forward",
    cause="``analytical`` is what ``jvp`` gives, row by row, and ``numerical`` a finite difference of ``forward``. "
    "This check runs only with ``check_forward_ad=True``, after the check of backward.",
    fix="Correct ``jvp``: the derivative times the tangent.",
    see=("guide/directions", "cookbook/05_higher_order/forward_mode", "check:forward_mode"),
)
def jvp_wrong():
    class Exp(Function):
        @staticmethod
        def forward(x):
            return x.exp()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(output)

        @staticmethod
        def jvp(ctx, tangent):
            (output,) = ctx.saved_tensors
            return 2 * output * tangent

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Exp.apply, (x,), check_forward_ad=True, check_backward_ad=False)


@fixes(jvp_wrong)
def jvp_right():
    class Exp(Function):
        @staticmethod
        def forward(x):
            return x.exp()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(output)

        @staticmethod
        def jvp(ctx, tangent):
            (output,) = ctx.saved_tensors
            return output * tangent

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Exp.apply, (x,), check_forward_ad=True, check_backward_ad=False)


@raises(
    "jvp is wrong for complex inputs",
    cause="With complex inputs ``gradcheck`` moves the imaginary and the real part one after the other, in this "
    "order. A ``jvp`` does not conjugate, unlike backward.",
    fix="For a holomorphic function return ``derivative * tangent``.",
    see=("cookbook/05_higher_order/complex_numbers", "cookbook/05_higher_order/forward_mode"),
)
def jvp_complex_wrong():
    class Square(Function):
        @staticmethod
        def forward(z):
            return z * z

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx, tangent):
            (z,) = ctx.saved_tensors
            return 2 * z.conj() * tangent

    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    gradcheck(Square.apply, (z,), check_forward_ad=True, check_backward_ad=False)


@fixes(jvp_complex_wrong)
def jvp_complex_right():
    class Square(Function):
        @staticmethod
        def forward(z):
            return z * z

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx, tangent):
            (z,) = ctx.saved_tensors
            return 2 * z * tangent

    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    gradcheck(Square.apply, (z,), check_forward_ad=True, check_backward_ad=False)


@raises(
    "The gradient is wrong in fast mode",
    cause="``fast_mode=True`` compares one number: the Jacobian between two random vectors. After a failure the whole "
    "Jacobians follow in the message, with their largest difference.",
    fix="Read the Jacobians at the end, as without fast mode.",
    see=("guide/gradcheck", "guide/cost_of_checking", "guide/debugging"),
)
def fast_wrong():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return x * grad_output

    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Square.apply, (x,), fast_mode=True)


@fixes(fast_wrong)
def fast_right():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Square.apply, (x,), fast_mode=True)


@raises(
    "Fast gradcheck fails where slow gradcheck passes",
    cause="Slow mode compares each element of the Jacobian, and each is within the tolerances. Fast mode compares one "
    "weighted sum of all elements. In this sum, elements of both signs cancel, but small errors of one sign add up. So "
    "fast mode sees a small systematic error that slow mode accepts, as here. It can also fail because of rounding.",
    fix="Run slow mode with ``rtol=1e-5``. If slow mode passes, use ``fast_mode=False``. If it fails, run it "
    "again with ``eps=1e-4``: if it fails again, the gradient is wrong; if it passes, the difference was rounding.",
    see=("guide/gradcheck", "guide/cost_of_checking", "check:digits"),
)
def fast_wrong_slow_right():
    class L1Norm(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.abs().sum()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * x / (x * x + 1e-3).sqrt()

    x = torch.tensor([1.0, -10.0] * 100, dtype=torch.float64, requires_grad=True)
    gradcheck(L1Norm.apply, (x,), fast_mode=True)


@fixes(fast_wrong_slow_right)
def fast_right_slow_right():
    class L1Norm(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.abs().sum()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return grad_output * x.sign()

    x = torch.tensor([1.0, -10.0] * 100, dtype=torch.float64, requires_grad=True)
    gradcheck(L1Norm.apply, (x,), fast_mode=True)


@raises(
    "backward gives another gradient the second time",
    cause="``gradcheck`` runs backward twice and expects equal bits. They differ if backward draws random numbers, "
    "changes a state, reads memory that it has not written, or sums in an order that varies, as atomic additions on a "
    "GPU do. The message also mentions the Jacobians, but ``gradcheck`` compares them only after this check.",
    fix="Draw random numbers in ``forward`` and save them. If only the order of sums varies, pass a small tolerance, "
    "for example ``nondet_tol=1e-10``.",
    see=("guide/gradcheck", "check:repeatable", "check:unwritten_memory"),
)
def backward_random():
    class Dither(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output + 1e-7 * torch.randn_like(grad_output)

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Dither.apply, (x,))


@fixes(backward_random)
def backward_fixed():
    class Dither(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(1e-7 * torch.randn_like(x))
            return x.clone()

        @staticmethod
        def backward(ctx, grad_output):
            (noise,) = ctx.saved_tensors
            return grad_output * (1 + noise)

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Dither.apply, (x,))


@raises(
    "backward does not multiply by grad_output",
    cause="``gradcheck`` passed a ``grad_output`` of zeros, and backward did not return zeros. The Jacobian is right "
    "all the same, because ``gradcheck`` computes it with a ``grad_output`` of 1 here. A backward that divides by the "
    "norm of ``grad_output`` returns ``nan`` and gives the same message.",
    fix="Multiply the derivative by ``grad_output``. Clamp a norm before you divide by it.",
    see=("guide/backward", "check:linear_in_grad_output"),
)
def grad_output_ignored():
    class SquaredNorm(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x * x).sum()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(SquaredNorm.apply, (x,))


@fixes(grad_output_ignored)
def grad_output_multiplied():
    class SquaredNorm(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x * x).sum()

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(SquaredNorm.apply, (x,))


@raises(
    "backward fails when no gradient arrives",
    cause="After ``set_materialize_grads(False)``, backward gets ``None`` for an output without a gradient. Here "
    "backward passes this ``None`` to ``torch.autograd.grad``, which then raises a ``RuntimeError``. ``gradcheck`` "
    "catches only a ``RuntimeError``: an exception of another type reaches you unchanged.",
    fix="Return ``None`` for ``None``, or leave ``set_materialize_grads`` at its default.",
    see=("guide/ctx", "check:undefined_gradient"),
)
def undefined_fails():
    class Recomputed(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        @once_differentiable
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                y = x.exp()
            return torch.autograd.grad(y, x, grad_output)

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Recomputed.apply, (x,))


@fixes(undefined_fails)
def undefined_returned():
    class Recomputed(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        @once_differentiable
        def backward(ctx, grad_output):
            if grad_output is None:
                return None
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                y = x.exp()
            return torch.autograd.grad(y, x, grad_output)

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Recomputed.apply, (x,))


@raises(
    "backward returns a gradient although no gradient arrives",
    cause="After ``set_materialize_grads(False)``, backward gets ``None`` for an output without a gradient. This "
    "``None`` means a gradient of zeros, so backward must return ``None`` or zeros.",
    fix="Return ``None`` for ``None``.",
    see=("guide/ctx", "check:undefined_gradient"),
)
def undefined_taken_for_one():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.shape = x.shape
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            if grad_output is None:
                grad_output = torch.ones(ctx.shape, dtype=torch.float64)
            return 2 * grad_output

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Double.apply, (x,))


@fixes(undefined_taken_for_one)
def undefined_taken_for_none():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x

        @staticmethod
        def backward(ctx, grad_output):
            return None if grad_output is None else 2 * grad_output

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Double.apply, (x,))


@raises(
    "gradcheck warns before it fails at gradients that are undefined",
    cause="``gradcheck`` prints this warning before it reports that backward fails on ``None``, or returns a gradient "
    "for ``None``. Backward gets ``None`` only after ``set_materialize_grads(False)``. The warning names the option "
    "that switches the check off.",
    fix="Handle ``None`` in backward. ``check_undefined_grad=False`` only hides the failure.",
    see=("guide/ctx", "guide/gradcheck", "check:undefined_gradient"),
    warning=True,
)
def undefined_announced():
    class Sum(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return x.sum()

        @staticmethod
        def backward(ctx, grad_sum):
            (x,) = ctx.saved_tensors
            return torch.ones_like(x) if grad_sum is None else grad_sum.expand_as(x)

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Sum.apply, (x,))


@fixes(undefined_announced)
def undefined_handled():
    class Sum(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return x.sum()

        @staticmethod
        def backward(ctx, grad_sum):
            (x,) = ctx.saved_tensors
            return None if grad_sum is None else grad_sum.expand_as(x)

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Sum.apply, (x,))


@raises(
    "jvp does not treat a missing tangent like zeros",
    cause="After ``set_materialize_grads(False)``, ``jvp`` gets ``None`` for an input without a tangent. This ``None`` "
    "means a tangent of zeros, so ``jvp`` must return the same as for zeros. PyTorch 2.13 prints the message as a "
    "tuple, because it does not join the parts.",
    fix="In ``jvp``, skip only the terms whose tangent is ``None``.",
    see=("guide/ctx", "cookbook/05_higher_order/forward_mode", "check:forward_mode"),
)
def tangent_absent():
    class Multiply(Function):
        @staticmethod
        def forward(a, b):
            return a * b

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.set_materialize_grads(False)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx, ta, tb):
            a, b = ctx.saved_tensors
            return tb if ta is None else ta * b if tb is None else ta * b + a * tb

    a, b = torch.rand(2, 3, dtype=torch.float64)
    inputs = a.clone().requires_grad_(), b.clone().requires_grad_()
    gradcheck(Multiply.apply, inputs, check_forward_ad=True, check_backward_ad=False)


@fixes(tangent_absent)
def tangent_zero():
    class Multiply(Function):
        @staticmethod
        def forward(a, b):
            return a * b

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.set_materialize_grads(False)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx, ta, tb):
            a, b = ctx.saved_tensors
            return a * tb if ta is None else ta * b if tb is None else ta * b + a * tb

    a, b = torch.rand(2, 3, dtype=torch.float64)
    inputs = a.clone().requires_grad_(), b.clone().requires_grad_()
    gradcheck(Multiply.apply, inputs, check_forward_ad=True, check_backward_ad=False)


@raises(
    "The tangent of a real output is complex",
    cause="With ``check_grad_dtypes=True``, output and tangent have to be both real or both complex. Precisions are "
    "not compared.",
    fix="Return the real part from ``jvp``. Where the output is complex and the tangent real, make the tangent "
    "complex.",
    see=("cookbook/05_higher_order/complex_numbers", "cookbook/05_higher_order/forward_mode"),
)
def tangent_complex():
    class LowPass(Function):
        @staticmethod
        def forward(x):
            return torch.fft.ifft(torch.fft.fft(x) * x.new_tensor([1, 1, 0, 1])).real.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def jvp(ctx, tangent):
            return torch.fft.ifft(torch.fft.fft(tangent) * tangent.new_tensor([1, 1, 0, 1]))

    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    gradcheck(LowPass.apply, (x,), check_forward_ad=True, check_backward_ad=False, check_grad_dtypes=True)


@fixes(tangent_complex)
def tangent_real():
    class LowPass(Function):
        @staticmethod
        def forward(x):
            return torch.fft.ifft(torch.fft.fft(x) * x.new_tensor([1, 1, 0, 1])).real.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def jvp(ctx, tangent):
            return torch.fft.ifft(torch.fft.fft(tangent) * tangent.new_tensor([1, 1, 0, 1])).real.clone()

    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    gradcheck(LowPass.apply, (x,), check_forward_ad=True, check_backward_ad=False, check_grad_dtypes=True)


@raises(
    "The gradient of a dense input is sparse",
    cause="The engine accepts a sparse gradient for a dense input, as ``nn.Embedding(sparse=True)`` gives it. "
    "``gradcheck`` does not, not even with ``masked=True``.",
    fix="Check the function with ``to_dense()`` in backward, and return the sparse gradient in production if it is "
    "meant.",
    see=("guide/gradcheck", "check:returned"),
)
def gradient_sparse():
    class Rows(Function):
        @staticmethod
        def forward(ctx, table):
            ctx.shape = table.shape
            return table[:2].clone()

        @staticmethod
        def backward(ctx, grad_output):
            return torch.sparse_coo_tensor([[0, 1]], grad_output, ctx.shape)

    table = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    gradcheck(Rows.apply, (table,))


@fixes(gradient_sparse)
def gradient_dense():
    class Rows(Function):
        @staticmethod
        def forward(ctx, table):
            ctx.shape = table.shape
            return table[:2].clone()

        @staticmethod
        def backward(ctx, grad_output):
            return torch.sparse_coo_tensor([[0, 1]], grad_output, ctx.shape).to_dense()

    table = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    gradcheck(Rows.apply, (table,))


@raises(
    "The gradient of a sparse input has another number of sparse dimensions",
    cause="The gradient of a sparse input must have as many sparse dimensions as the input, and as many dense ones. "
    "``x.sparse_dim()`` is the number of sparse dimensions.",
    fix="Convert the gradient with ``grad.to_sparse(x.sparse_dim())``. Also pass ``check_undefined_grad=False``, "
    "because this check cannot read a sparse gradient.",
    see=("guide/gradcheck",),
)
def gradient_sparse_dim():
    class Dense(Function):
        @staticmethod
        def forward(ctx, x):
            return x.to_dense()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.to_sparse(1)

    x = torch.eye(3, dtype=torch.float64).to_sparse().requires_grad_()
    gradcheck(Dense.apply, (x,))


@fixes(gradient_sparse_dim)
def gradient_same_sparse_dim():
    class Dense(Function):
        @staticmethod
        def forward(ctx, x):
            return x.to_dense()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.to_sparse(2)

    x = torch.eye(3, dtype=torch.float64).to_sparse().requires_grad_()
    gradcheck(Dense.apply, (x,), check_undefined_grad=False)


@raises(
    "backward does not run under vmap",
    cause="``check_batched_grad=True`` runs backward on a batch of gradients at once. The message says after ``got:`` "
    "which operation failed: a condition on values, ``.item()``, NumPy, random numbers, or a write into a tensor that "
    "has no batch.",
    fix="Replace this operation, for example a condition by ``torch.where``. If no code takes batched gradients of the "
    "function, leave the option out.",
    see=("guide/gradcheck", "check:batched_grad", "check:vmap"),
)
def batch_fails():
    class ClippedIdentity(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad_output):
            if grad_output.norm() > 10:
                grad_output = 10 * grad_output / grad_output.norm()
            return grad_output

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(ClippedIdentity.apply, (x,), check_batched_grad=True)


@fixes(batch_fails)
def batch_runs():
    class ClippedIdentity(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * (10 / grad_output.norm()).clamp(max=1)

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(ClippedIdentity.apply, (x,), check_batched_grad=True)


@raises(
    "backward gives other gradients in a batch than one by one",
    cause="Under vmap, backward runs once for the whole batch, so all gradients of the batch share the same Python "
    "numbers. Here backward draws one random number instead of one for each gradient. A counter in backward causes the "
    "same error.",
    fix="Let backward depend only on tensors. Draw random numbers in ``forward`` and save them.",
    see=("guide/gradcheck", "check:batched_grad", "check:repeatable"),
)
def batch_differs():
    random.seed(0)

    class Jitter(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * (1 + random.uniform(-5e-4, 5e-4))

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Jitter.apply, (x,), nondet_tol=1e-2, check_batched_grad=True)


@fixes(batch_differs)
def batch_agrees():
    random.seed(0)

    class Jitter(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.factor = 1 + random.uniform(-5e-4, 5e-4)
            return x.clone()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.factor

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(Jitter.apply, (x,), nondet_tol=1e-2, check_batched_grad=True)


@raises(
    "jvp does not run under vmap",
    cause="``check_batched_forward_grad=True`` runs ``jvp`` on a batch of tangents at once. The message says after "
    "``got:`` which operation failed.",
    fix="Replace this operation in ``jvp``, or leave the option out.",
    see=("guide/gradcheck", "cookbook/05_higher_order/forward_mode", "check:vmap"),
)
def batch_of_tangents_fails():
    class Scale(Function):
        @staticmethod
        def forward(x):
            return 2 * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def jvp(ctx, tangent):
            return 2 * tangent if tangent.any() else tangent

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    options = {"check_forward_ad": True, "check_backward_ad": False}
    gradcheck(Scale.apply, (x,), **options, check_batched_forward_grad=True)


@fixes(batch_of_tangents_fails)
def batch_of_tangents_runs():
    class Scale(Function):
        @staticmethod
        def forward(x):
            return 2 * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def jvp(ctx, tangent):
            return 2 * tangent

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    options = {"check_forward_ad": True, "check_backward_ad": False}
    gradcheck(Scale.apply, (x,), **options, check_batched_forward_grad=True)


@raises(
    "jvp gives other tangents in a batch than one by one",
    cause="Under vmap, ``jvp`` runs once for the whole batch, so all tangents of the batch share the same Python "
    "numbers, here a random number.",
    fix="Let ``jvp`` depend only on tensors.",
    see=("guide/gradcheck", "cookbook/05_higher_order/forward_mode"),
)
def batch_of_tangents_differs():
    random.seed(0)

    class Jitter(Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * (1 + random.uniform(-5e-4, 5e-4))

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    options = {"check_forward_ad": True, "check_backward_ad": False, "check_undefined_grad": False}
    gradcheck(Jitter.apply, (x,), **options, check_batched_forward_grad=True)


@fixes(batch_of_tangents_differs)
def batch_of_tangents_agrees():
    class Jitter(Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def jvp(ctx, tangent):
            return tangent.clone()

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    options = {"check_forward_ad": True, "check_backward_ad": False, "check_undefined_grad": False}
    gradcheck(Jitter.apply, (x,), **options, check_batched_forward_grad=True)


@raises(
    "gradcheck was told to check neither direction",
    cause="``check_backward_ad=False`` without ``check_forward_ad=True`` leaves nothing to check.",
    fix="Add ``check_forward_ad=True``.",
    see=("guide/gradcheck", "guide/directions"),
)
def neither_direction():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(torch.sin, (x,), check_backward_ad=False)


@fixes(neither_direction)
def forward_direction():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(torch.sin, (x,), check_forward_ad=True, check_backward_ad=False)


@raises(
    "check_batched_grad without backward mode",
    cause="``check_batched_grad=True`` checks backward on a batch of gradients, but ``check_backward_ad=False`` leaves "
    "backward out.",
    fix="Use ``check_batched_forward_grad`` for forward mode.",
    see=("guide/gradcheck",),
)
def batched_without_backward():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(torch.sin, (x,), check_forward_ad=True, check_backward_ad=False, check_batched_grad=True)


@fixes(batched_without_backward)
def batched_forward():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(torch.sin, (x,), check_forward_ad=True, check_backward_ad=False, check_batched_forward_grad=True)


@raises(
    "check_batched_forward_grad without forward mode",
    cause="The option needs ``check_forward_ad=True``, which is not the default.",
    fix="Add ``check_forward_ad=True``.",
    see=("guide/gradcheck",),
)
def batched_without_forward():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(torch.sin, (x,), check_batched_forward_grad=True)


@fixes(batched_without_forward)
def batched_with_forward():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(torch.sin, (x,), check_forward_ad=True, check_batched_forward_grad=True)


@raises(
    "gradgradcheck was told to check neither order of modes",
    cause="``check_rev_over_rev=False`` without ``check_fwd_over_rev=True`` leaves nothing to check.",
    fix="Add ``check_fwd_over_rev=True``, and with it ``check_undefined_grad=False``.",
    see=("guide/gradgradcheck",),
)
def neither_order():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradgradcheck(torch.sin, (x,), check_rev_over_rev=False)


@fixes(neither_order)
def forward_over_reverse():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradgradcheck(torch.sin, (x,), check_rev_over_rev=False, check_fwd_over_rev=True, check_undefined_grad=False)


@raises(
    "gradgradcheck of forward over reverse alone checks no undefined gradients",
    cause="``check_undefined_grad`` is on by default and needs ``check_rev_over_rev``.",
    fix="Add ``check_undefined_grad=False``.",
    see=("guide/gradgradcheck",),
)
def undefined_without_reverse():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradgradcheck(torch.sin, (x,), check_fwd_over_rev=True, check_rev_over_rev=False)


@fixes(undefined_without_reverse)
def undefined_switched_off():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradgradcheck(torch.sin, (x,), check_fwd_over_rev=True, check_rev_over_rev=False, check_undefined_grad=False)


@raises(
    "gradgradcheck of forward over reverse alone checks no batches",
    cause="``check_batched_grad`` needs ``check_rev_over_rev``.",
    fix="Leave ``check_batched_grad`` out, or check both orders.",
    see=("guide/gradgradcheck",),
)
def batched_without_reverse():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    options = {"check_fwd_over_rev": True, "check_rev_over_rev": False, "check_undefined_grad": False}
    gradgradcheck(torch.sin, (x,), **options, check_batched_grad=True)


@fixes(batched_without_reverse)
def batched_with_reverse():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradgradcheck(torch.sin, (x,), check_fwd_over_rev=True, check_batched_grad=True)


@raises(
    "The shape of the output depends on the values of the input",
    cause="A small step changed the number of outputs, so that there is no difference to take. Boolean masks, "
    "``unique``, ``nonzero`` and loops until convergence that stack their steps do it.",
    fix="Choose inputs away from the threshold, or replace the selection: ``torch.where`` for a mask.",
    see=("guide/gradcheck",),
)
def output_shape_varies():
    def above_one(x):
        return x[x >= 1]

    x = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    gradcheck(above_one, (x,))


@fixes(output_shape_varies)
def output_shape_fixed():
    def above_one(x):
        return x[x >= 1]

    x = torch.tensor([0.5, 1.5, 2.0], dtype=torch.float64, requires_grad=True)
    gradcheck(above_one, (x,))


@raises(
    "The dtype of the output depends on the values of the input",
    cause="A small step made the function return another dtype, as a branch that converts to float32 or returns a "
    "constant does.",
    fix="Return the dtype of the input from every branch.",
    see=("guide/gradcheck", "check:output_dtype"),
)
def output_dtype_varies():
    def hinge(x):
        return x if x.sum() > 1 else torch.zeros(3) * x.float()

    x = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64, requires_grad=True)
    gradcheck(hinge, (x,))


@fixes(output_dtype_varies)
def output_dtype_fixed():
    def hinge(x):
        return x if x.sum() > 1 else 0 * x

    x = torch.tensor([0.5, 0.75, 0.25], dtype=torch.float64, requires_grad=True)
    gradcheck(hinge, (x,))


@raises(
    "One of the outputs is not a tensor",
    cause="``gradcheck`` asks every output of the function whether it requires grad. A number, ``None`` or a dict "
    "cannot answer.",
    fix="Check a function that returns only the tensors: ``lambda x: f(x)[0]``.",
    see=("guide/gradcheck",),
)
def output_not_tensor():
    def mean_and_count(x):
        return x.mean(), float(x.numel())

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(mean_and_count, (x,))


@fixes(output_not_tensor)
def output_is_tensor():
    def mean_and_count(x):
        return x.mean(), float(x.numel())

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    gradcheck(lambda x: mean_and_count(x)[0], (x,))


@raises(
    "Forward mode was checked with an input for oneDNN",
    cause="``gradcheck`` makes no tangents in the opaque layout of oneDNN.",
    fix="Check backward only, or a function of dense tensors without oneDNN. Converting inside of the function does "
    "not help: ``to_mkldnn`` has no forward mode.",
    see=("guide/gradcheck",),
)
def forward_mkldnn():
    x = torch.randn(2, 3).to_mkldnn().requires_grad_()
    tolerances = {"eps": 1e-2, "atol": 1e-1}
    gradcheck(lambda x: x.to_dense(), (x,), check_forward_ad=True, **tolerances)


@fixes(forward_mkldnn)
def backward_mkldnn():
    x = torch.randn(2, 3).to_mkldnn().requires_grad_()
    tolerances = {"eps": 1e-2, "atol": 1e-1}
    gradcheck(lambda x: x.to_dense(), (x,), **tolerances)


@raises(
    "get_numerical_jacobian was called",
    cause="It is a part of the inside of ``gradcheck`` that is to disappear.",
    fix="Use ``torch.func.jacrev`` or ``jacfwd`` for a Jacobian, and write central differences by hand for a "
    "numerical one. The first two put outputs before inputs, which is the transpose of what this function gives.",
    see=("guide/gradcheck", "guide/debugging"),
    warning=True,
)
def numerical_jacobian():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    get_numerical_jacobian(lambda inputs: inputs[0].sin(), (x,), eps=1e-6)


@fixes(numerical_jacobian)
def differences_by_hand():
    x = torch.randn(3, dtype=torch.float64)
    steps = 1e-6 * torch.eye(3, dtype=torch.float64)
    torch.stack([((x + step).sin() - (x - step).sin()) / 2e-6 for step in steps])


@raises(
    "get_analytical_jacobian was called",
    cause="It is a part of the inside of ``gradcheck`` that is to disappear.",
    fix="Use ``torch.autograd.functional.jacobian``, or ``torch.func.jacrev``. Both put outputs before inputs, which "
    "is the transpose of what this function gives.",
    see=("guide/gradcheck", "guide/debugging"),
    warning=True,
)
def analytical_jacobian():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    get_analytical_jacobian((x,), x.sin())


@fixes(analytical_jacobian)
def functional_jacobian():
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    torch.autograd.functional.jacobian(torch.sin, x)
