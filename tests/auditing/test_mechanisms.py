"""Mechanisms of false alarms that showed in public libraries, each on the smallest function that has it."""

import pytest
import torch
from torch import nn
from torch.autograd import Function

from autograd_cookbook.auditing import audit


def leaf(*shape):
    torch.manual_seed(0)
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


class WritesToGradItself(Function):
    """Backward adds to ``.grad`` of what it was given, where that is a leaf, and returns a gradient, too."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        if ctx.weight.is_leaf:
            ctx.weight.grad = grad_output * x
        return grad_output * weight, grad_output * x


def test_what_is_no_leaf_is_compared_with_what_is_none():
    report = audit(
        WritesToGradItself.apply,
        (leaf(3, 4), leaf(3, 4)),
        only=["first_order", "input_layouts", "in_place_consumer", "later_writes"],
    )
    assert {f.check for f in report.findings if f.severity != "info"} == {"first_order"}  # which is doubled


class ClampsInPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward((x > -1) & (x < 1))
        return x.clamp_(-1, 1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0]


def test_torch_itself_refuses_to_write_to_expanded_tensors():
    report = audit(lambda x: ClampsInPlace.apply(x.t().t()), (leaf(3, 4),), only=["input_layouts"])
    assert not report.findings, str(report)


class NoisyBackward(Function):
    @staticmethod
    def forward(ctx, x):
        return (x > 0).to(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * torch.rand_like(grad_output)


def test_a_second_backward_draws_the_numbers_of_the_first():
    assert audit(NoisyBackward.apply, (leaf(3, 4),), gradient="custom", only=["backward_twice"]).ok


class FreesAttribute(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp()
        return ctx.y.clone()

    @staticmethod
    def backward(ctx, grad_output):
        y = ctx.y
        del ctx.y
        return grad_output * y


def test_what_frees_its_memory_in_backward_declines_a_second_one():
    (found,) = audit(FreesAttribute.apply, (leaf(3, 4),), only=["backward_twice"]).findings
    assert found.severity == "info"


class OptionsWithDtype(Function):
    """Makes a buffer in the dtype that it is told, as factory functions do."""

    @staticmethod
    def forward(ctx, x, dtype):
        return x + torch.ones(x.shape, dtype=dtype)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


@pytest.mark.parametrize("given", [torch.float32, torch.float64])
def test_a_dtype_among_the_arguments_follows_the_tensors(given):
    sample = leaf(3, 4).detach().to(given).requires_grad_()
    report = audit(OptionsWithDtype.apply, (sample, given), only=["float32", "float16", "bfloat16", "returned"])
    assert report.ok, str(report)


class InFloat32(Function):
    """Computes in float32 whatever it is given, and returns that."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return (x.float() * weight.float()).tanh()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = (t.float() for t in ctx.saved_tensors)
        grad = grad_output * (1 - (x * weight).tanh() ** 2)
        return grad * weight, grad * x


class LayerInFloat32(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4))

    def forward(self, x):
        return InFloat32.apply(x, self.weight.expand(x.shape))


@pytest.mark.parametrize("isolate", [False, True])
def test_what_computes_in_float32_is_judged_so_with_its_parameters(isolate):
    layer, sample = LayerInFloat32(), leaf(3, 4)
    report = audit(layer, (sample,), skip=["compile"], isolate=isolate)
    wrong = [f for f in report.findings if f.severity == "error"]
    assert [f.check for f in wrong] == ["output_dtype"], str(report)
    assert {"digits", "returned"} & set(wrong[0].also)
    assert layer.weight.dtype is torch.float32


class PopsFromAnObject(Function):
    """Takes an entry out of what it is given, which makes a second call raise."""

    @staticmethod
    def forward(ctx, x, box):
        ctx.factor = box.entries.pop()
        return ctx.factor * x

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.factor * grad_output, None


class Box:
    def __init__(self):
        self.entries = [2.0]


def test_an_object_among_the_arguments_is_as_it_was_in_each_call():
    box = Box()
    report = audit(PopsFromAnObject.apply, (leaf(3), box), only=["first_order", "repeatable", "checkpoint"])
    assert not [f for f in report.findings if f.check != "checkpoint"], str(report)
    assert any("each call goes on from" in note for note in report.notes)
    assert box.entries == [2.0]


def test_autocast_is_not_blamed_for_float32_at_the_border_of_a_domain():
    def inside(x):
        norm = x.norm(dim=-1, keepdim=True)
        return (x * (norm.clamp(max=0.4) / norm),)

    (sample,) = inside(3 * leaf(8, 3).detach())  # on the border, where rounding decides what the domain lets through
    report = audit(lambda x: Cube.apply(x), (sample.requires_grad_(),), domain=inside, only=["autocast"])
    assert report.ok, str(report)


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad_output
