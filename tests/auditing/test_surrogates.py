"""What looks like the gradient of another function on purpose, and what is merely wrong."""

import pytest
import torch
from torch.autograd import Function

from autograd_cookbook.auditing import audit
from autograd_cookbook.auditing.checks.execution import prepare
from autograd_cookbook.auditing.subject import Subject
from autograd_cookbook.auditing.surrogates import is_still, looks_like_surrogate
from tests.support import since


class Round(Function):
    """Straight through."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class ClippedRound(Function):
    """Straight through between -1 and 1, and zero outside."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() <= 1)


class LinearInFloat8(Function):
    """The largest entry sets the scale, so every value moves with it."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        scales = [(t.abs().amax() / 448).float().to(t) for t in (x, w)]
        low = [(t / s).to(torch.float8_e4m3fn) for t, s in zip((x, w), scales, strict=True)]
        return (low[0].float() @ low[1].float()).to(x.dtype) * (scales[0] * scales[1])

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output @ w.mT, x.mT @ grad_output


def test_a_product_of_numbers_of_eight_bits_looks_like_a_surrogate():
    sample = [torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    only = ["first_order", "digits", "input_layouts", "grad_output_layouts"]
    (found,) = audit(LinearInFloat8.apply, sample, only=only).findings
    assert found.severity == "info"
    assert "rounds to eight bits" in found.summary
    declared = audit(LinearInFloat8.apply, sample, surrogate=torch.matmul, only=["first_order", "sizes"])
    assert not declared.findings


class ReluEverywhere(Function):
    """Wrong: lets the gradient through where the value is cut."""

    @staticmethod
    def forward(ctx, x):
        return x.relu()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


def prepared(function, *numbers):
    subject = Subject(function, (torch.tensor(numbers, dtype=torch.float64, requires_grad=True),))
    assert prepare(subject) is None
    return subject


@pytest.mark.parametrize("numbers", [(0.3, -1.2), (0.5, 1.5), (0.0, 2.0)])
def test_rounding_looks_like_a_surrogate_at_its_steps_too(numbers):
    assert looks_like_surrogate(prepared(Round.apply, *numbers))


def test_a_wrong_gradient_does_not_while_anything_moves():
    assert not looks_like_surrogate(prepared(ReluEverywhere.apply, 0.3, -1.2))
    subject = prepared(ReluEverywhere.apply, 0.3, -1.2)
    assert not is_still(subject, 0, subject.copies())


def test_it_is_info_on_a_sample_where_its_gradient_is_zero():
    sample = torch.tensor([1.7, -2.3, 3.1], dtype=torch.float64, requires_grad=True)
    report = audit(ClippedRound.apply, (sample,), only=["first_order", "special_points", "sizes"])
    assert report.ok, str(report)
    assert [(f.check, f.severity) for f in report.findings] == [("special_points", "info")]
    assert report.findings[0].summary.startswith("looks like a surrogate")


def test_a_wrong_gradient_is_an_error():
    sample = torch.tensor([1.7, -2.3, 3.1], dtype=torch.float64, requires_grad=True)
    assert not audit(ReluEverywhere.apply, (sample,), only=["first_order"]).ok


class SignOf(Function):
    """One bit, with the gradient of a clamp to [-1, 1] but for what a class attribute says of the bounds."""

    bound: float

    @classmethod
    def with_slope(cls, bound):
        return type(cls.__name__, (cls,), {"bound": bound})

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @classmethod
    def backward(cls, ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * torch.where(x.abs() == 1, ctx._forward_cls.bound, (x.abs() < 1).to(x))


@pytest.mark.parametrize(("bound", "right"), [(0.0, True), (0.5, True), (1.0, True), (-0.5, False), (2.0, False)])
@pytest.mark.parametrize("sample", [[-1.7, -0.6, 0.3, 1.4], [-1.7, -1.0, 0.3, 1.0]])
def test_at_a_kink_of_the_surrogate_any_slope_between_will_do(bound, right, sample):
    x = torch.tensor(sample, dtype=torch.float64, requires_grad=True)
    function = SignOf.with_slope(bound).apply
    report = audit(function, (x,), surrogate=lambda x: x.clamp(-1, 1), only=["first_order", "special_points"])
    assert report.ok == right, report


class ModernRound(Function):
    """Straight through, in the style that torch.func takes."""

    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


@torch.compiler.allow_in_graph
def rounded(x):
    return ModernRound.apply(x)


@pytest.mark.parametrize("function", [ModernRound.apply, rounded], ids=["as it is", "allowed in the graph"])
def test_a_declared_rule_that_compiled_transforms_drop_is_named_with_what_keeps_it(function):
    sample = torch.tensor([0.3, -1.2], dtype=torch.float64, requires_grad=True)
    transformed = torch.compile(torch.func.grad(lambda x: function(x).sum()), backend="eager")
    dropped = not transformed(sample.detach()).any()
    assert dropped == (function is not rounded and not since("2.15"))  # newer ones trace the backward, too
    report = audit(function, (sample,), gradient="surrogate", surrogate=lambda x: x, only=["compile"])
    assert report.capabilities["compile"] == "yes"
    assert [f.severity for f in report.findings] == ["info"] * dropped, report
    for found in report.findings:
        assert found.summary.startswith("torch.compile around torch.func.vjp or grad replaces the backward")
        assert "allow_in_graph" in found.fix


class Share(Function):
    """The share of each number in their sum: of one number always 1, with a gradient that is zero up to rounding."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x / x.sum(-1, keepdim=True)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        total = x.sum(-1, keepdim=True)
        return grad_output / total - (grad_output * (x / total) / total).sum(-1, keepdim=True) * (1 + 2**-52)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_gradient_that_is_rounding_is_no_surrogate_and_not_nonlinear(scale):
    numbers = scale * torch.tensor([[0.3], [0.7], [1.1]], dtype=torch.float64)
    report = audit(
        Share.apply, (numbers.requires_grad_(),), only=("first_order", "linear_in_grad_output", "special_points")
    )
    assert torch.autograd.grad(Share.apply(numbers).sum(), numbers)[0].any()
    assert not report.findings, report
