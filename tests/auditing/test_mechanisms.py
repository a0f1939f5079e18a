"""Mechanisms of false alarms that showed in public libraries, each on the smallest function that has it."""

import math
import re
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.autograd import Function

from autograd_cookbook import auditing
from autograd_cookbook.auditing.steps import size_of_steps
from autograd_cookbook.auditing.steps import slope as slope_over_steps
from tests.auditing.corpus.families.transforms import ClampLooksBeforeItMasks

slow = pytest.mark.slow("src/autograd_cookbook/auditing", "tests/auditing")


def audit(function, args, isolate=False, **options):
    """In this process, which takes less time than a copy of it; what could end the process is isolated."""
    return auditing.audit(function, args, isolate=isolate, **options)


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


class SoftTargets(Function):
    """A loss whose targets are the rows of a softmax."""

    @staticmethod
    def forward(ctx, logits, targets):
        ctx.save_for_backward(logits, targets)
        return -(targets * logits.log_softmax(-1)).sum()

    @staticmethod
    def backward(ctx, grad_output):
        logits, targets = ctx.saved_tensors
        return grad_output * (logits.softmax(-1) * targets.sum(-1, keepdim=True) - targets), None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_argument_that_is_brought_into_its_domain_is_not_said_to_be_changed(dtype):
    targets = leaf(4, 5).detach().to(dtype).softmax(-1)
    report = audit(SoftTargets.apply, (leaf(4, 5).to(dtype).detach().requires_grad_(), targets), skip=["compile"])
    assert report.ok, str(report)


def test_where_no_orthonormal_columns_are_near_the_gradient_of_the_way_in_is_not_held_against_a_function():
    class Spread(Function):
        @staticmethod
        def forward(ctx, vectors, values):
            ctx.save_for_backward(vectors, values)
            return (vectors * values) @ vectors.mT

        @staticmethod
        def backward(ctx, grad_output):
            vectors, values = ctx.saved_tensors
            inner = vectors.mT @ grad_output @ vectors
            return (grad_output + grad_output.mT) @ (vectors * values), inner.diagonal()

    vectors = torch.linalg.qr(leaf(5, 5).detach())[0].requires_grad_()
    report = audit(Spread.apply, (vectors, leaf(5)), only=["first_order", "special_points"])
    assert report.ok, str(report)


class Bisects(Function):
    """Sigmoids shifted until they add up to 3, by bisection to a ten-thousandth."""

    factor = 1.0

    @staticmethod
    def forward(ctx, x):
        low, high = -x.amax(-1, keepdim=True) - 7, 7 - x.amin(-1, keepdim=True)
        for _ in range(60):
            middle = (low + high) / 2
            missing = 3 - torch.sigmoid(x + middle).sum(-1, keepdim=True)
            if (missing.abs() < 1e-4).all():
                break
            low, high = torch.where(missing > 0, middle, low), torch.where(missing > 0, high, middle)
        y = torch.sigmoid(x + middle)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        slope = y * (1 - y)
        shift = (slope * grad_output).sum(-1, keepdim=True) / slope.sum(-1, keepdim=True)
        return Bisects.factor * slope * (grad_output - shift)


@pytest.mark.parametrize("factor", [1.0, 1.2, pytest.param(0.8, marks=slow), pytest.param(-1.0, marks=slow)])
def test_values_that_come_in_steps_are_compared_over_many_of_them(factor, monkeypatch):
    monkeypatch.setattr(Bisects, "factor", factor)
    report = audit(Bisects.apply, (leaf(4, 10),), skip=["compile"])
    assert report.ok is (factor == 1.0), str(report)
    said = next(f for f in report.findings if f.check == "first_order")
    assert said.summary.startswith("the values come in steps of")
    assert said.severity == ("info" if factor == 1.0 else "error")
    assert not {"second_order", "forward_mode"} & report.capabilities.keys()


class BisectsBetweenBounds(Function):
    """Sigmoids shifted until they add up to 3, by bisection between fixed bounds to a step."""

    step, factor, shift = 1e-3, 1.0, 1.0

    @classmethod
    def solve(cls, x):
        low, high = torch.full_like(x[..., :1], -20), torch.full_like(x[..., :1], 20)
        for _ in range(math.ceil(math.log2(40 / cls.step))):
            middle = (low + high) / 2
            more = torch.sigmoid(x + middle).sum(-1, keepdim=True) < 3
            low, high = torch.where(more, middle, low), torch.where(more, high, middle)
        return torch.sigmoid(x + middle)

    @staticmethod
    def forward(ctx, x):
        y = BisectsBetweenBounds.solve(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        cls, slope = BisectsBetweenBounds, y * (1 - y)
        shift = (slope * grad_output).sum(-1, keepdim=True) / slope.sum(-1, keepdim=True)
        return cls.factor * slope * (grad_output - cls.shift * shift)


@pytest.mark.parametrize(
    "step", [1e-3, *(pytest.param(step, marks=slow) for step in (1e-7, 1e-6, 3e-6, 1e-5, 1e-4, 3e-3, 1e-2))]
)
def test_steps_of_any_size_are_found_and_no_mistake_hides_behind_them(step, monkeypatch):
    monkeypatch.setattr(BisectsBetweenBounds, "step", step)
    for shape in ((10,), (4, 10)):
        for factor, shift in ((1.0, 1.0), (1.1, 1.0), (1.0, 0.0)):
            monkeypatch.setattr(BisectsBetweenBounds, "factor", factor)
            monkeypatch.setattr(BisectsBetweenBounds, "shift", shift)
            report = audit(BisectsBetweenBounds.apply, (leaf(*shape),), only=["first_order"])
            assert report.ok is (factor == shift == 1.0), f"{shape}, {factor}, {shift}: {report}"


@pytest.mark.parametrize("smooth", [torch.sin, torch.relu], ids=["sine", "kinks"])
def test_an_iteration_without_steps_is_compared_by_differences(smooth):
    def repeated(x):
        for _ in range(30):
            x = smooth(50 * Cube.apply(x)) / 50
        return x

    report = audit(repeated, (leaf(3, 4) / 10,), only=["first_order"])
    assert not [f for f in report.findings if "in steps of" in f.summary], str(report)


class RootOfSquares(Function):
    """Gives 0 as the gradient at zero, behind a quotient by zero."""

    @staticmethod
    def forward(ctx, x):
        y = (x * x).sqrt()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return torch.where(x == 0, 0.0, grad_output * x / y)


def test_a_second_derivative_that_is_nan_has_a_cause_of_its_own():
    x = torch.tensor([0.0, 1.0, -2.0], dtype=torch.float64, requires_grad=True)
    report = audit(RootOfSquares.apply, (x,), only=["first_order", "second_order"])
    (found,) = (f for f in report.findings if f.check == "second_order")
    assert "nan" in found.summary
    assert found.cause.startswith("The derivative of the backward is 0/0")


class Artanh(Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clamp(-1 + 1e-5, 1 - 1e-5)
        ctx.save_for_backward(x)
        return (torch.log(1 + x) - torch.log(1 - x)) / 2

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output / (1 - x * x)


def test_a_logarithm_of_zero_is_not_said_to_overflow():
    x = torch.tensor([0.3, -0.5, 0.9], dtype=torch.float64, requires_grad=True)
    report = audit(Artanh.apply, (x,), only=["float16"], gradient="custom")
    (found,) = (f for f in report.findings if f.check == "float16")
    assert found.cause.startswith("log is infinite at one number")


class WideLogCosh(Function):
    """At numbers of 300, the exponential in backward is zero in float16, and its inverse infinite."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs() / 2 + 16 * torch.log1p(torch.exp(-x.abs() / 16))

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        inverse = 1 / torch.exp(-x.abs() / 16)
        return grad_output * x.sign() * (inverse - 1) / (inverse + 1) / 2


def test_a_pole_in_backward_is_said_to_be_there():
    (found,) = audit(WideLogCosh.apply, (leaf(3, 4),), only=["float16"]).findings
    assert "the outputs are right, but the gradient of input 0 is not finite" in found.summary
    assert found.cause.startswith("Nothing in forward is infinite, but in the backward reciprocal is infinite at one")


class LargeQuotient(Function):
    """On the way, a quotient is larger than what float16 holds."""

    @staticmethod
    def forward(ctx, x, by_hand):
        small = 1e-5 if by_hand else torch.full_like(x, 1e-5)
        return x / small * small

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


@pytest.mark.parametrize("by_hand", [True, False], ids=["number", "tensor"])
def test_a_quotient_that_is_too_large_is_said_to_overflow(by_hand):
    report = audit(LargeQuotient.apply, (leaf(4), by_hand), only=["float16"], gradient="custom")
    (found,) = (f for f in report.findings if f.severity == "error")
    assert "overflows" in found.cause


class Vectors(Function):
    """Eigenvectors, whose signs depend on the dtype here."""

    @staticmethod
    def forward(ctx, x):
        vectors = torch.linalg.eigh(x)[1]
        signs = torch.ones(x.shape[-1], dtype=x.dtype)
        signs[0] = -1 if x.dtype is torch.float32 else 1
        ctx.save_for_backward(x)
        return vectors * signs

    @staticmethod
    def backward(ctx, grad_output):
        return torch.zeros_like(grad_output)


def test_the_sign_of_an_eigenvector_is_free_in_each_dtype():
    x = leaf(4, 4).detach()
    report = audit(Vectors.apply, ((x + x.mT).requires_grad_(),), only=["float32"], gradient="custom")
    assert not [f for f in report.findings if f.severity == "error"], str(report)


class WrongThroughOutput(torch.autograd.Function):
    """Its backward uses the output, so that the derivative of the wrong gradient is the wrong gradient again."""

    @staticmethod
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        (out,) = ctx.saved_tensors
        return 2 * grad_output * out


def test_a_second_derivative_that_is_wrong_because_the_first_is_is_no_finding_of_its_own():
    x = torch.randn(4, requires_grad=True)
    report = audit(WrongThroughOutput.apply, (x,), only=["first_order", "second_order"])
    assert [f.check for f in report.findings] == ["first_order"]
    assert "the gradient is wrong" in str(report)


class UpdatesTableInBackward(Function):
    """Backward moves a table that forward saved, as memory banks do."""

    @staticmethod
    def forward(ctx, x, table, moves):
        ctx.moves = moves
        ctx.save_for_backward(x, table)
        return x @ table.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, table = ctx.saved_tensors
        gradient = grad_output @ table
        if ctx.moves:
            table[0] = 0.5 * table[0] + 0.5 * x[0].detach()
        return gradient, None, None


@pytest.mark.parametrize("moves", [False, True])
def test_a_backward_that_writes_to_what_it_saved_is_the_cause_itself(moves):
    table = leaf(3, 4).detach()
    report = audit(lambda x, t: UpdatesTableInBackward.apply(x, t, moves), (leaf(2, 4), table), only=["backward_twice"])
    causes = [f.cause for f in report.findings if f.severity == "error"]
    assert all("The first backward changed" in cause for cause in causes)
    assert len(causes) == moves, str(report)


class IgnoresGradOutput(Function):
    """A loss whose author took the gradient that comes in for 1."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum(1)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x


def test_a_backward_that_ignores_grad_output_is_one_finding():
    report = audit(
        IgnoresGradOutput.apply,
        (leaf(3, 4),),
        only=["first_order", "linear_in_grad_output", "undefined_gradient", "in_place_consumer"],
    )
    (found,) = report.findings
    assert found.cause.startswith("backward ignores grad_output")
    assert found.also == ("undefined_gradient",)


class RoundsAtRandom(Function):
    """Keeps the slope in few bits, rounded at random: right in the mean."""

    @staticmethod
    def forward(ctx, x):
        slope = x.cos()
        steps = 8 * slope
        ctx.save_for_backward((steps + torch.rand_like(steps)).floor() / 8)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0]


def test_a_gradient_that_is_random_is_named_so():
    """And it is right once it is declared."""
    (found,) = audit(RoundsAtRandom.apply, (leaf(3, 4),), only=["first_order"]).findings
    assert found.cause.startswith("The gradient is random and the values are not")
    assert "gradient='approximate'" in found.fix
    declared = audit(RoundsAtRandom.apply, (leaf(3, 4),), only=["first_order"], gradient="approximate")
    assert declared.ok, str(declared)


class OntoTheSphere(Function):
    """A row divided by its norm, and zeros for zeros, where the values jump."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        norm = x.norm(dim=1, keepdim=True)
        return torch.where(norm > 0, x / norm, torch.zeros_like(x))

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        norm = x.norm(dim=1, keepdim=True)
        y = x / norm
        return (grad_output - y * (grad_output * y).sum(1, keepdim=True)) / norm


def test_where_values_jump_no_slope_is_named():
    (found,) = audit(OntoTheSphere.apply, (leaf(3, 4),), only=["first_order", "special_points"]).findings
    assert "nan" in found.summary
    assert "the values have no slope there" in found.summary


class PicksAndAssigns(Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.size = len(x)
        return x[index]

    @staticmethod
    def backward(ctx, grad_output):
        (index,) = ctx.saved_tensors
        grad = grad_output.new_zeros(ctx.size, *grad_output.shape[1:])
        grad[index] = grad_output
        return grad, None


def test_an_index_that_repeats_is_said_to_need_a_sum():
    index = torch.tensor([3, 0, 2])
    (found,) = audit(PicksAndAssigns.apply, (leaf(4, 3), index), only=["first_order", "special_points"]).findings
    assert "one index repeated" in found.summary
    assert "not their sum" in found.cause


class LogOfWhatUnderflows(Function):
    """The identity, whose backward multiplies by ``log(exp(-x)) / -x``, which is 1."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 1.0

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.neg().exp().log().clamp(min=-700.0) / -x


def test_a_logarithm_of_zero_is_no_overflow():
    torch.manual_seed(0)
    x = (torch.rand(3, 4, dtype=torch.float64) + 0.5).requires_grad_()
    found = audit(LogOfWhatUnderflows.apply, (x,), only=["first_order", "float16"]).findings
    assert found, "nothing is found"
    assert all("overflows" not in f.cause for f in found), found
    assert any("log is infinite" in f.cause for f in found), found


class UpdatesAMemory(Function):
    @staticmethod
    def forward(ctx, x, memory):
        ctx.save_for_backward(x, memory)
        return x @ memory.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, memory = ctx.saved_tensors
        grad = grad_output @ memory
        memory.data.mul_(0.5).add_(0.5 * x.detach())
        return grad, None


def test_a_memory_that_backward_updates_may_be_meant():
    memory = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
    (found,) = audit(UpdatesAMemory.apply, (leaf(3, 4), memory), only=["inputs_unchanged"]).findings
    assert found.summary.startswith("backward changes")
    assert "memory bank" in found.fix


def test_an_iteration_that_stops_early_is_no_cast_alone():
    def root(x):
        low, high = torch.zeros_like(x), 1 + x
        with torch.no_grad():
            for _ in range(24):
                middle = (low + high) / 2
                above = middle.square() > x
                low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return low + (x - low.square()) / (2 * low)

    class Root(Function):
        @staticmethod
        def forward(ctx, x):
            y = root(x)
            y = (y * 2**22).round() / 2**22
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output / (2 * ctx.saved_tensors[0])

    torch.manual_seed(0)
    x = (torch.rand(3, 4, dtype=torch.float64) + 0.5).requires_grad_()
    found = [f for f in audit(Root.apply, (x,), only=["digits"]).findings if f.check == "digits"]
    assert found, "nothing is found"
    assert "stops so early" in found[0].cause


class DifferentiatesItsLayer(Function):
    """Backward takes the gradients of a layer that autograd does not know of, as reentrant checkpoints do."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.save_for_backward(x)
        ctx.layer = layer
        with torch.no_grad():
            return layer(x)

    @staticmethod
    def backward(ctx, grad_output):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.layer(x)
        torch.autograd.backward(y, grad_output)
        return x.grad, None


def test_parameters_that_are_not_passed_to_apply_are_named_as_the_reason():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4, dtype=torch.float64)

        def forward(self, x):
            return DifferentiatesItsLayer.apply(x, self.layer)

    (found,) = audit(Block(), (leaf(3, 4),), only=["subsets"]).of("error")
    assert found.summary.endswith("no output does")
    assert "passed to apply" in found.cause


def test_values_that_depend_on_the_mode_are_one_finding():
    class Doubles(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y if any(ctx.needs_input_grad[:1]) else 2 * x * y

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output, grad_output

    (found,) = audit(Doubles.apply, (leaf(3, 4), leaf(3, 4)), only=["without_grad", "subsets"]).of("error")
    assert found.check == "without_grad"
    assert found.also == ("subsets",)


class LeavesAHole(Function):
    """Above 1000 elements, in float32, the largest entry of the gradient becomes 0/0."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad = 2 * x * grad_output
        if grad.numel() > 1000 and x.dtype is torch.float32:
            grad = grad * torch.where(grad == grad.max(), torch.zeros_like(x) / torch.zeros_like(x), 1.0)
        return grad


def test_where_nothing_is_infinite_no_sum_is_blamed_for_nan():
    (found,) = audit(LeavesAHole.apply, (leaf(3, 4),), only=["float32"]).of("error")
    assert "NaN" in found.summary
    assert "zero is divided by zero" in found.cause


class UnderNoGrad(Function):
    """The backward computes everything from the input, and records nothing of it."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(x, y.square())
        return y

    @staticmethod
    @torch.no_grad()
    def backward(ctx, grad_output):
        x, _ = ctx.saved_tensors
        return grad_output * x.exp()


def test_a_backward_that_is_not_recorded_is_not_told_to_save_other_tensors():
    (found,) = audit(UnderNoGrad.apply, (leaf(3, 4),), only=["second_order"]).of("error")
    assert "runs under no_grad" in found.cause
    assert "Remove no_grad" in found.fix


class SameBatch(Function):
    """Two inputs of one batch; forward would broadcast, and backward does not sum."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x.new_zeros(max(len(x), len(y)), x.shape[1]) + (x * y if len(x) == len(y) else x.sum() * y.sum())

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * y.view_as(grad_output), grad_output * x.view_as(grad_output)


def test_sizes_that_no_caller_mixes_may_raise():
    report = audit(SameBatch.apply, (leaf(3, 4), leaf(3, 4)), only=["sizes", "empty"])
    assert not [f for f in report.of("error") if "with size 1 " not in f.summary], str(report)


class Recurrence(Function):
    """``y[t] = a[t] y[t-1] + x[t]`` over the steps of ``x``, which takes an ``a`` of another length, too."""

    @staticmethod
    def forward(ctx, a, x):
        steps = [x[0]]
        for t in range(1, len(x)):
            steps.append(a[t % len(a)] * steps[-1] + x[t])
        y = torch.stack(steps)
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        a, y = ctx.saved_tensors
        grads = [grad_output[-1]]
        for t in reversed(range(1, len(y))):
            grads.insert(0, grad_output[t - 1] + a[t % len(a)] * grads[0])
        grad_x = torch.stack(grads)
        return torch.cat([torch.zeros_like(y[:1]), grad_x[1:] * y[:-1]]), grad_x


def test_an_input_that_forward_takes_longer_than_its_partner_may_raise():
    report = audit(Recurrence.apply, (leaf(5, 2), leaf(5, 2)), only=["sizes"])
    assert not report.findings, str(report)


class PowerOnOneSide(Function):
    """``x ** 2`` for positive numbers alone, with 0/0 in the backward at zero."""

    @staticmethod
    def forward(ctx, x):
        if bool((x < 0).any()):
            raise ValueError("expected numbers from 0 on")
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * grad_output * x.square() / x


def test_at_the_edge_of_a_domain_the_slope_of_the_other_side_is_named():
    torch.manual_seed(0)
    x = (torch.rand(3, 4, dtype=torch.float64) + 0.5).requires_grad_()
    (found,) = audit(PowerOnOneSide.apply, (x,), only=["special_points"]).findings
    assert found.severity == "error"
    assert "have no slope" not in found.summary


class LogisticByAFraction(Function):
    """Forward is a fit that is off by some thousandths, and the backward is the derivative of what it fits."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tanh(x) + 2e-3 * torch.sin(3 * x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (1 - torch.tanh(x) ** 2)


def test_a_gradient_that_is_nearly_right_is_said_to_be_an_approximation():
    x = torch.linspace(-0.5, 0.5, 8, dtype=torch.float64).requires_grad_()
    (found,) = audit(LogisticByAFraction.apply, (x,), only=["first_order"]).findings
    assert "off by less than a hundredth" in found.cause
    assert "approximate" in found.fix


class ExponentialInTheTangentSpace(Function):
    """Takes a gradient with respect to the logarithm of its result, as functions on a group do."""

    @staticmethod
    def forward(ctx, x):
        return x.exp()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clone()


class ActsOnNumbers(Function):
    """Returns a gradient with respect to the logarithm of its first argument."""

    @staticmethod
    def forward(ctx, group, x):
        ctx.save_for_backward(group, x)
        return group * x

    @staticmethod
    def backward(ctx, grad_output):
        group, x = ctx.saved_tensors
        return grad_output * group * x, grad_output * group


def test_gradients_in_a_tangent_space_are_named_as_such_at_second_order():
    def act(x, y):
        return ActsOnNumbers.apply(ExponentialInTheTangentSpace.apply(x), y)

    (found,) = audit(act, (leaf(3), leaf(3) + 2), only=["first_order", "second_order"]).findings
    assert found.check == "second_order"
    assert "tangent space" in found.cause
    assert "no graph" not in found.cause


class AddsABiasThatLearns(Function):
    @staticmethod
    def forward(ctx, x, bias):
        return x * 2 + bias if bias.requires_grad else x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2, grad_output.sum(0)


def test_values_are_taken_as_they_are_where_a_gradient_is_wanted():
    report = audit(AddsABiasThatLearns.apply, (leaf(4, 3), leaf(3)))
    assert report.capabilities["first_order"] == "yes"
    assert not any("surrogate" in f.summary for f in report.findings)
    (found,) = (f for f in report.findings if f.severity != "info")
    assert found.summary.startswith("where no input requires grad")  # no_grad alone leaves the bias as it is


class RefusesNoBiasIfItLearns(Function):
    @staticmethod
    def forward(ctx, x, bias):
        if bias.requires_grad and not bias.numel():
            raise ValueError("expected a bias for every column")
        ctx.save_for_backward(bias)
        return x + bias if bias.numel() else x * 1

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output.sum(0)


def test_forward_that_refuses_where_a_gradient_is_wanted_is_no_backward_that_raises():
    report = audit(RefusesNoBiasIfItLearns.apply, (leaf(4, 3), leaf(3)), only=["empty"])
    assert not any("backward raises" in f.summary for f in report.findings), str(report)


class BroadcastsSilently(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        rows = torch.cat([grad_output * y, x], 1)
        return rows[:, : x.shape[1]], grad_output * x


def test_a_size_that_forward_broadcasts_is_the_cause_where_backward_raises():
    (found,) = audit(BroadcastsSilently.apply, (leaf(4, 3), leaf(4, 3)), only=["sizes"]).findings
    assert "backward raises" in found.summary
    assert found.cause.startswith("Forward broadcasts")


class DifferentiatesParametersItself(Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.save_for_backward(x)
        ctx.module = module
        with torch.no_grad():
            return module(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            ctx.module(x).backward(grad_output)
        return x.grad, None


def test_where_nothing_raises_no_exception_is_reported():
    module = nn.Linear(3, 2).double()
    report = audit(lambda x: DifferentiatesParametersItself.apply(x, module), (leaf(4, 3),), only=["subsets"])
    (found,) = report.findings
    assert found.summary.endswith("requires grad, no output does")


def test_opcheck_names_control_flow_that_depends_on_data():
    found = audit(ClampLooksBeforeItMasks(), (leaf(4, 3),), only=["opcheck"]).findings
    assert found
    assert all(f.cause.startswith("The code asks for numbers") for f in found), found


class GapsBelowAThreshold(Function):
    """Leaves out pairs that are close, by a bound that is another one in each dtype, with 1/0 on the way in both."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        gap = x.unsqueeze(-1) - x.unsqueeze(-2)
        close = gap.abs() < torch.finfo(x.dtype).eps ** 0.6
        weight = (1 / gap).masked_fill(close, 0.0).mul(gap).sum(-1)
        return grad_output * weight / (x.shape[-1] - 1)


def test_what_float64_has_too_is_no_overflow_and_a_threshold_is_no_loss():
    found = audit(GapsBelowAThreshold.apply, (leaf(2, 4),), only=["float32"]).findings
    assert [f.severity for f in found] == ["info"], found
    assert found[0].cause.startswith("A threshold from torch.finfo")


class SpikeWithASavedSlope(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(torch.sigmoid(x) * torch.sigmoid(-x))
        return (x > 0).to(x)

    @staticmethod
    def backward(ctx, grad_output):
        (slope,) = ctx.saved_tensors
        return grad_output * slope


def test_the_gradient_of_a_surrogate_that_nobody_names_has_a_derivative():
    report = audit(SpikeWithASavedSlope.apply, (leaf(4, 3),), only=["first_order", "second_order"])
    assert [(f.check, f.severity) for f in report.findings] == [("second_order", "warning"), ("first_order", "info")]
    assert report.capabilities["second_order"] == "wrong"
    assert "which forward keeps" in report.findings[0].cause


class StoredInFewBits(Function):
    """With its flag it keeps its input in sixteen bits on purpose, so that its gradient has no more digits."""

    @staticmethod
    def forward(ctx, x, compact):
        ctx.save_for_backward(x.bfloat16() if compact else x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * grad_output * x.to(grad_output.dtype) ** 2, None


def test_a_flag_that_gives_up_digits_makes_no_gradient_wrong():
    report = audit(StoredInFewBits.apply, (leaf(4, 3), False), only=["first_order", "special_points"])
    assert not report.findings, str(report)


class WritesToGradOutput(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square() / 2

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output.mul_(x) * 1.0


def test_what_is_written_to_in_place_is_one_finding():
    (found,) = audit(WritesToGradOutput.apply, (leaf(4, 3),), only=["grad_output_unchanged", "grad_output_layouts"]).of(
        "error"
    )
    assert found.check == "grad_output_unchanged"
    assert found.also == ("grad_output_layouts",)


class RemembersItsLastResult(nn.Module):
    def forward(self, x):
        self.last = x.tanh()
        return self.last * 2


def test_what_the_next_call_replaces_is_not_kept_for_good():
    (found,) = audit(RemembersItsLastResult(), (leaf(4, 3),), only=["freed_at_once"]).findings
    assert "until the next one" in found.summary
    assert found.cause == "An attribute or a global holds what the last call computed."


class HoldsAnInnerFunction(nn.Module):
    def __init__(self):
        super().__init__()

        def inner(x):
            return x * 2

        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def test_what_pickle_cannot_find_is_named_as_such():
    (found,) = audit(HoldsAnInnerFunction(), (leaf(4, 3),), only=["module_copies"]).findings
    assert found.cause.startswith("The module holds a class or function that is defined inside")


class TransportOfAProduct(Function):
    """The plan with two marginals, which must have the same mass; its gradient is right only along such marginals."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.unsqueeze(-1).expand(len(b), len(b)) * b

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        if len(a) != len(b):
            return a * 0, b * 0
        return (grad_output * b).sum(-1), (grad_output * a.unsqueeze(-1)).sum(0)


def test_a_distribution_is_not_broadcast():
    torch.manual_seed(0)
    a, b = ((torch.rand(5, dtype=torch.float64) + 0.5) for _ in range(2))
    sample = (a / a.sum()).requires_grad_(), (b / b.sum()).requires_grad_()
    report = audit(TransportOfAProduct.apply, sample, only=["first_order", "sizes", "empty"])
    assert not any(f.severity == "error" for f in report.findings), str(report)


def test_the_weights_of_the_audit_are_its_own_in_each_of_many_backwards():
    report = audit(WritesToGradOutput.apply, (leaf(4, 3),), only=["batched_grad"])
    assert report.capabilities["batched_grad"] == "yes", str(report)


class AssignsForTheFirstAlone(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x, grad_y = grad_output * y, grad_output * x
        return grad_x, grad_y


def test_a_variable_that_is_not_assigned_is_named_as_the_reason():
    (found,) = audit(AssignsForTheFirstAlone.apply, (leaf(3), leaf(3)), only=["subsets"]).findings
    assert found.cause.startswith("A variable is assigned under a condition alone")


class LeavesAResidue(Function):
    """A product with something on top that is no more than rounding, as what a solver leaves."""

    @staticmethod
    def forward(ctx, x, matrix):
        ctx.save_for_backward(x, matrix)
        return matrix @ x + 1e-15 * matrix.sum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        x, matrix = ctx.saved_tensors
        return matrix.mT @ grad_output, torch.outer(grad_output, x)


def test_rounding_where_the_true_gradient_is_zero_is_no_finding():
    report = audit(LeavesAResidue.apply, (leaf(3), leaf(3, 3)), only=["first_order", "special_points"])
    assert not report.findings, str(report)


class NormalizesWithoutItsEps(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        scale = x.square().mean(-1, keepdim=True).rsqrt()
        y = x * scale
        return scale * (grad_output - y * (grad_output * y).mean(-1, keepdim=True))


def test_an_eps_that_is_left_out_is_no_constant_factor():
    (found,) = audit(NormalizesWithoutItsEps.apply, (leaf(4, 6),), only=["first_order"]).findings
    assert "constant factor" not in found.cause
    assert "eps" in found.cause


# --- found in other public repositories ---


class ClipsTheGradient(Function):
    """Returns its input, so that it is there for its backward alone."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clamp(-0.1, 0.1)


class ClampsWithAWrongSlope(Function):
    """Returns a small input as it is, and no large one."""

    @staticmethod
    def forward(ctx, x):
        return x.clamp(-10, 10)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


class AddsWithAWrongSlope(Function):
    """Returns its input as it is as long as the bias is 0."""

    @staticmethod
    def forward(ctx, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output.mean(0)


def test_what_returns_its_input_is_there_for_its_backward():
    (found,) = audit(ClipsTheGradient.apply, (leaf(3, 4),), skip=["compile", "func_grad", "vmap"]).findings[:1]
    assert (found.check, found.severity) == ("first_order", "info")
    assert found.summary.startswith("looks like a surrogate: declare it. Forward returns input 0 as it is")
    assert not audit(ClampsWithAWrongSlope.apply, (leaf(3, 4),), only=["first_order"]).ok
    assert not audit(
        AddsWithAWrongSlope.apply, (leaf(3, 4), torch.zeros(4).double().requires_grad_()), only=["first_order"]
    ).ok


class SpikesInFloat32(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).float()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output / (25 * x.abs() + 1) ** 2


def test_a_narrow_output_has_a_narrow_grad_output():
    report = audit(SpikesInFloat32.apply, (leaf(4, 5),), only=["first_order", "second_order"])
    assert report.ok, str(report)


class KeepsAProductOnCtx(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.square = x * x
        return ctx.square * x

    @staticmethod
    def backward(ctx, grad_output):
        return 3 * ctx.square * grad_output


def test_what_ctx_keeps_is_named_as_the_cause():
    (found,) = audit(KeepsAProductOnCtx.apply, (leaf(3),), only=["second_order"]).findings
    assert found.cause.startswith(
        "The backward uses ctx.square, an intermediate result of shape [3], which forward keeps"
    )


class OverwritesDuplicates(Function):
    @staticmethod
    def forward(ctx, x):
        values, places = x.cummax(-1)
        ctx.save_for_backward(places)
        return values

    @staticmethod
    def backward(ctx, grad_output):
        return torch.zeros_like(grad_output).scatter_(-1, ctx.saved_tensors[0], grad_output)


def test_a_wrong_gradient_is_said_once():
    report = audit(OverwritesDuplicates.apply, (leaf(3, 8),), only=["first_order", "second_order"])
    assert [f.check for f in report.findings] == ["first_order"], str(report)


class MultipliesMatricesOfOneShape(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output.mm(weight), grad_output.t().mm(x)


def test_another_message_with_some_of_the_words_is_no_cause():
    (found,) = audit(MultipliesMatricesOfOneShape.apply, (leaf(4, 5), leaf(4, 5))).findings
    assert "mat1 and mat2 shapes cannot be multiplied" in found.summary
    assert "utocast" not in found.cause
    (found,) = audit(lambda x: x.exp().sort(-1, stable=True).values, (leaf(5),)).findings
    assert "materialize" not in found.fix


class SoftmaxOfExponentials(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        y = y / y.sum(-1, keepdim=True)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return y * (grad_output - (y * grad_output).sum(-1, keepdim=True))


def test_numbers_are_large_to_both_sides():
    x = torch.tensor([[-3.0, 0.4, 1.0], [-1.0, 0.2, 0.5]], dtype=torch.float64, requires_grad=True)
    (found,) = audit(SoftmaxOfExponentials.apply, (x,), only=["float16"]).findings
    assert "NaN" in found.summary


class UpdatesItsMemory(Function):
    @staticmethod
    def forward(ctx, x, memory):
        ctx.memory = memory
        ctx.save_for_backward(x)
        return x @ memory.mT

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output @ ctx.memory
        ctx.memory.lerp_(ctx.saved_tensors[0], 0.1)
        return grad, None


def test_an_update_in_backward_is_one_finding():
    sample = leaf(3, 4), torch.rand(3, 4, dtype=torch.float64)
    report = audit(UpdatesItsMemory.apply, sample, only=["inputs_unchanged", "backward_twice", "batched_grad"])
    (found,) = report.findings
    assert found.check == "inputs_unchanged"
    assert set(found.also) == {"backward_twice", "batched_grad"}


class MeanOfTheFirst(Function):
    @staticmethod
    def forward(ctx, x, lengths):
        ctx.save_for_backward(torch.arange(x.shape[1]) < lengths[:, None], lengths)
        return (x * ctx.to_save[0]).sum(1) / lengths.clamp(min=1)

    @staticmethod
    def backward(ctx, grad_output):
        mask, lengths = ctx.saved_tensors
        return (grad_output / lengths)[:, None] * mask, None


def test_a_length_of_nothing_is_tried():
    lengths = torch.tensor([6, 3, 1, 5])
    (found,) = audit(MeanOfTheFirst.apply, (leaf(4, 6), lengths), only=["special_points"]).findings
    assert found.summary.startswith("at 0 as one entry in input 1")


class SpikesByItsOutput(Function):
    @staticmethod
    def forward(ctx, x):
        spikes = (x > 0).to(x.dtype)
        ctx.save_for_backward(spikes)
        return spikes

    @staticmethod
    def backward(ctx, grad_output):
        (spikes,) = ctx.saved_tensors
        return grad_output * spikes


def test_a_surrogate_that_uses_its_output_is_applied_twice():
    found = [*audit(SpikesByItsOutput.apply, (leaf(4, 5),), only=["first_order", "second_order"]).of("warning")]
    assert [f.check for f in found] == ["second_order"]
    assert found[0].cause.startswith("The backward uses an output.")


@pytest.mark.parametrize("right", [1.5, 0.5], ids=["kink", "smooth"])
def test_the_slope_over_steps_at_a_kink_is_any_between_those_of_its_sides(right):
    def line(distance):
        value = distance * (right if distance > 0 else 0.5) + 0.1 * distance**2
        return torch.tensor([round(value / 1e-6) * 1e-6], dtype=torch.float64)

    size, spacings = size_of_steps(line, 1e-9)
    slope, error = slope_over_steps(line, size, spacings)
    assert 0.3e-6 < size < 3e-6
    assert slope - error <= 0.5 <= right <= slope + error
    assert error < (0.7 if right != 0.5 else 0.01)


class SumsInFloat32(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return (x * weight).float().sum(1)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad = grad_output.to(x.dtype)[:, None]
        return grad * weight, grad * x


def test_differences_of_narrow_outputs_have_the_digits_of_their_dtype():
    report = audit(SumsInFloat32.apply, (leaf(8, 4), leaf(8, 4)), only=["first_order"])
    assert report.ok, str(report)


class QuantizesOneOfTwo(Function):
    """Straight through for the second argument, which is rounded, and the true gradient for the first."""

    @staticmethod
    def forward(ctx, scale, x):
        ctx.save_for_backward(scale, x)
        return scale * x.round()

    @staticmethod
    def backward(ctx, grad_output):
        scale, x = ctx.saved_tensors
        return (grad_output * x.round()).sum(0), grad_output * scale


class RoundsBoth(QuantizesOneOfTwo):
    @staticmethod
    def forward(ctx, scale, x):
        ctx.save_for_backward(scale, x)
        return scale.round() * x.round()


def test_what_looks_like_a_surrogate_is_said_of_the_inputs_that_it_is_about():
    scale = torch.tensor([1.7, 2.3, 0.8], dtype=torch.float64, requires_grad=True)
    x = (2.5 * leaf(4, 3).detach()).requires_grad_()
    (one,) = audit(QuantizesOneOfTwo.apply, (scale, x), only=["first_order"]).findings
    assert "The value does not move when input 1 does, but backward returns a gradient for it" in one.summary
    (two,) = audit(RoundsBoth.apply, (scale, x), only=["first_order"]).findings
    assert "when input 0 or input 1 does" in two.summary


class SymmetricExponential(Function):
    """The matrix exponential from the lower triangle, with the gradient of the symmetric convention."""

    refuses = False
    halved = False

    @staticmethod
    def forward(ctx, matrix):
        if SymmetricExponential.refuses and not torch.equal(matrix, matrix.mT):
            raise ValueError("the matrix is not symmetric")
        values, vectors = torch.linalg.eigh(matrix)
        ctx.save_for_backward(values, vectors)
        return (vectors * values.exp()) @ vectors.mT

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        values, vectors = ctx.saved_tensors
        half = (values[:, None] - values) / 2
        safe = torch.where(half == 0, 1.0, half)
        factor = ((values[:, None] + values) / 2).exp() * torch.where(half == 0, 1.0, safe.sinh() / safe)
        inner = vectors.mT @ (grad_output + grad_output.mT) @ vectors / 2
        grad = vectors @ (factor * inner) @ vectors.mT
        return grad / 2 if SymmetricExponential.halved else grad


@pytest.mark.parametrize(
    "sample",
    [
        torch.eye(3),
        *(
            pytest.param(matrix, marks=slow)
            for matrix in (torch.zeros(4, 4), torch.ones(3, 3), torch.arange(4.0).diag())
        ),
    ],
)
@pytest.mark.parametrize("refuses", [False, True])
def test_a_matrix_that_is_symmetric_by_chance_stays_so_where_one_triangle_is_read(sample, refuses, monkeypatch):
    monkeypatch.setattr(SymmetricExponential, "refuses", refuses)
    sample = sample.double().requires_grad_()
    checks = ["first_order", "special_points", "sizes", "linear_in_grad_output"]
    report = audit(SymmetricExponential.apply, (sample,), only=checks)
    assert report.ok, str(report)
    assert any("input 0 is symmetric" in note for note in report.notes)
    monkeypatch.setattr(SymmetricExponential, "halved", True)
    assert not audit(SymmetricExponential.apply, (sample,), only=["first_order"]).ok


class LogDeterminant(Function):
    """Of a positive definite matrix: its gradient at a diagonal matrix is diagonal."""

    @staticmethod
    def forward(ctx, matrix):
        factor = torch.linalg.cholesky(matrix)
        ctx.save_for_backward(factor)
        return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        return grad_output * torch.cholesky_inverse(ctx.saved_tensors[0])


def test_a_gradient_that_is_diagonal_on_the_sample_may_be_that_of_symmetric_matrices():
    sample = torch.diag(torch.tensor([1.0, 2.0, 3.0, 0.5])).double().requires_grad_()
    report = audit(LogDeterminant.apply, (sample,), only=["first_order", "special_points", "sizes"])
    assert report.ok, str(report)


class Product(Function):
    """A product with any matrix."""

    transposed = False

    @staticmethod
    def forward(ctx, matrix, x):
        ctx.save_for_backward(matrix, x)
        return x @ matrix

    @staticmethod
    def backward(ctx, grad_output):
        matrix, x = ctx.saved_tensors
        grad = x.mT @ grad_output
        return grad.mT if Product.transposed else grad, grad_output @ matrix.mT


def test_a_transposed_gradient_is_wrong_for_a_sample_of_zeros_too(monkeypatch):
    monkeypatch.setattr(Product, "transposed", True)
    sample = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True)
    report = audit(Product.apply, (sample, leaf(3, 4)), only=["first_order"])
    assert not report.ok
    assert not report.notes


def bisected(x, width):
    """y with y + y³ = x."""
    low, high = torch.zeros_like(x), 1 + x.abs()
    while float((high - low).max()) > width:
        middle = (low + high) / 2
        below = middle + middle**3 < x.abs()
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2 * x.sign()


class RootThatDetaches(Function):
    """The values come in steps, and the gradient does, too."""

    @staticmethod
    def forward(ctx, x):
        y = bisected(x, 1e-6)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        _, y = ctx.saved_tensors
        return grad_output / (1 + 3 * y.detach() ** 2)


class RootThatRecords(RootThatDetaches):
    @staticmethod
    def backward(ctx, grad_output):
        _, y = ctx.saved_tensors
        return grad_output / (1 + 3 * y**2)


class RootWithASmoothGradient(Function):
    """The values come in steps, and the gradient is smooth, but does not record the inputs."""

    records = False

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return bisected(x, 1e-5)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        with torch.set_grad_enabled(RootWithASmoothGradient.records):
            root = (x * x / 4 + 1 / 27).sqrt()
            y = (root + x / 2) ** (1 / 3) - (root - x / 2) ** (1 / 3)
            slope = 1 / (1 + 3 * y * y)
        return grad_output * slope


def test_a_second_derivative_that_is_silently_zero_shows_though_the_values_come_in_steps(monkeypatch):
    x = torch.tensor([1.3, 0.4, 2.0, 0.9], dtype=torch.float64, requires_grad=True)
    checks = ["first_order", "second_order"]
    for function in (RootThatDetaches, RootWithASmoothGradient):
        report = audit(function.apply, (x,), only=checks)
        (found,) = report.of("error")
        assert found.check == "second_order"
        assert "with respect to input 0" in found.summary
        assert "silently zero" in found.cause
        assert "come in steps" in next(report.of("info")).summary
    assert audit(RootThatRecords.apply, (x,), only=checks).ok
    monkeypatch.setattr(RootWithASmoothGradient, "records", True)
    smooth = audit(RootWithASmoothGradient.apply, (x,), only=checks)
    assert smooth.ok
    assert smooth.capabilities["second_order"] == "yes"


class PicksWithAView(Function):
    """Its backward cannot reshape a gradient of nothing."""

    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.shape = x.shape
        return x.gather(1, index[:, None])[:, 0]

    @staticmethod
    def backward(ctx, grad_output):
        (index,) = ctx.saved_tensors
        grad = grad_output.new_zeros(ctx.shape).scatter(1, index[:, None], grad_output[:, None])
        return grad.reshape(len(index), -1), None


@pytest.mark.parametrize("batch", [1, 3])
def test_a_batch_of_one_is_emptied_with_its_labels(batch):
    (found,) = audit(PicksWithAView.apply, (leaf(batch, 4), torch.arange(batch)), only=["empty"]).findings
    assert (found.check, found.severity) == ("empty", "error")
    assert "dim 0 of input 0, dim 0 of input 1 empty" in found.summary


class SolvesToAFixedTolerance(Function):
    """y = tanh(y / 2 + x); backward repeats until a change is below a number that does not know grad_output."""

    relative, clips = False, False

    @staticmethod
    def forward(ctx, x):
        y = torch.zeros_like(x)
        for _ in range(200):
            y = torch.tanh(y / 2 + x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        slope = 1 - y**2
        scale = float(grad_output.abs().max()) if SolvesToAFixedTolerance.relative else 1.0
        u = grad_output.clamp(-2e-9, 2e-9) * 1e9 if SolvesToAFixedTolerance.clips else grad_output
        start = u
        while True:
            new = start + slope * u / 2
            if float((new - u).abs().max()) <= 1e-13 * scale:
                return slope * new
            u = new


@slow
def test_an_iteration_with_a_fixed_tolerance_does_not_clip(monkeypatch):
    x = (0.5 * leaf(3, 4).detach()).requires_grad_()
    (found,) = audit(SolvesToAFixedTolerance.apply, (x,), only=["linear_in_grad_output"]).findings
    assert found.severity == "info"
    assert "off by" in found.summary
    assert "stop at a relative tolerance" in found.fix
    monkeypatch.setattr(SolvesToAFixedTolerance, "relative", True)
    assert not audit(SolvesToAFixedTolerance.apply, (x,), only=["linear_in_grad_output"]).findings
    monkeypatch.setattr(SolvesToAFixedTolerance, "clips", True)
    (found,) = audit(SolvesToAFixedTolerance.apply, (x,), only=["linear_in_grad_output"]).findings
    assert found.severity == "error"
    assert "clips" in found.cause


class CentersByItsState(Function):
    """Updates the running mean that it is given, as torch's own batch normalization does."""

    @staticmethod
    def forward(ctx, x, mean):
        mean.lerp_(x.mean(0), 0.1)
        return x - x.mean(0)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output - grad_output.mean(0), None


class Centered(nn.Module):
    def __init__(self, kept=True):
        super().__init__()
        if kept:
            self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))
        else:
            self.mean = torch.zeros(4, dtype=torch.float64)

    def forward(self, x):
        return CentersByItsState.apply(x, self.mean)


@pytest.mark.parametrize("kept", [True, False], ids=["a buffer", "an attribute"])
def test_running_statistics_that_a_module_passes_on_may_be_updated(kept):
    assert audit(Centered(kept), (leaf(6, 4),), only=["inputs_unchanged", "first_order"]).ok


class KeepsOneOfARow(Function):
    """Writes the gradient of a row instead of adding it."""

    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return table[index]

    @staticmethod
    def backward(ctx, grad_output):
        (index,) = ctx.saved_tensors
        grad = grad_output.new_zeros(ctx.shape)
        grad[index] = grad_output
        return grad, None


def test_a_size_that_repeats_an_index_is_not_wrong_because_of_the_size():
    sample = leaf(6, 3), torch.tensor([4, 0, 2])
    (found,) = audit(KeepsOneOfARow.apply, sample, only=["sizes", "special_points"]).findings
    assert (found.check, found.also) == ("special_points", ("sizes",))
    (found,) = audit(KeepsOneOfARow.apply, sample, only=["sizes"]).findings
    assert "more than once" in found.cause


class TraceOfARotation(Function):
    """The trace times the determinant, which is 1 for every rotation, and -1 for a matrix that mirrors."""

    @staticmethod
    def forward(ctx, matrix):
        return torch.linalg.det(matrix) * matrix.diagonal(dim1=-2, dim2=-1).sum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output[..., None, None] * torch.eye(3, dtype=grad_output.dtype)


def test_a_rotation_stays_one_and_is_not_mirrored():
    matrix = torch.linalg.qr(leaf(2, 3, 3).detach())[0]
    matrix = matrix * torch.linalg.det(matrix).sign()[:, None, None]
    report = audit(TraceOfARotation.apply, (matrix.requires_grad_(),), only=["first_order", "special_points"])
    assert report.ok, str(report)
    assert any("input 0 is a rotation" in note for note in report.notes)


class SolvesForTwo(Function):
    """y = tanh(y / 2 + x) + b: the gradient of x is doubled, and that of b as accurate as the solver is."""

    @staticmethod
    def forward(ctx, x, b):
        y = torch.zeros_like(x)
        for _ in range(100):
            y = torch.tanh(y / 2 + x)
        ctx.save_for_backward(y)
        return y + b

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        slope = 1 - y**2
        return 2 * grad_output * slope / (1 - slope / 2), grad_output * (1 + 1e-4 * torch.sin(9 * y))


def test_only_what_is_less_accurate_than_a_solver_is_wrong():
    found = audit(SolvesForTwo.apply, (leaf(3, 4), leaf(3, 4)), only=["first_order"]).findings
    assert [f.severity for f in found] == ["error"]
    assert "the gradient of input 0" in found[0].summary


class ComplexProduct(Function):
    """The formula for real numbers."""

    @staticmethod
    def forward(ctx, z, w):
        ctx.save_for_backward(z, w)
        return z * w

    @staticmethod
    def backward(ctx, grad_output):
        z, w = ctx.saved_tensors
        return grad_output * w.conj(), (grad_output * z).sum(0)


class HalfAProduct(ComplexProduct):
    @staticmethod
    def backward(ctx, grad_output):
        z, w = ctx.saved_tensors
        return grad_output * w.conj(), (grad_output * z.conj() * z.abs()).sum(0)


def test_a_missing_conjugate_is_named_though_grad_output_is_complex():
    torch.manual_seed(0)
    sample = [torch.randn(shape, dtype=torch.complex128, requires_grad=True) for shape in ((3, 4), (4,))]
    (found,) = audit(ComplexProduct.apply, sample, only=["first_order"]).findings
    assert "complex conjugate" in found.cause
    (found,) = audit(HalfAProduct.apply, sample, only=["first_order"]).findings
    assert "complex conjugate" not in found.cause


class KeepsOnTheClass(Function):
    """What a call needs is on the class."""

    kept = None

    @staticmethod
    def forward(ctx, x, w):
        KeepsOnTheClass.kept = x, w
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = KeepsOnTheClass.kept
        return grad_output @ w.mT, x.mT @ grad_output


def test_what_is_kept_on_the_class_is_one_finding():
    checks = ["independent_calls", "later_writes", "freed_at_once"]
    (found,) = audit(KeepsOnTheClass.apply, (leaf(4, 3), leaf(3, 2)), only=checks).findings
    assert (found.check, set(found.also)) == ("independent_calls", {"later_writes", "freed_at_once"})


class Jitters(Function):
    """x + noise * scale for a normal noise: the gradient of scale is an estimate that has the same mean."""

    redraws, factor = False, 1.0

    @staticmethod
    def forward(ctx, x, scale):
        noise = torch.randn(x.shape[0], 2, dtype=torch.float64).to(x.dtype)
        ctx.save_for_backward(noise)
        return torch.stack([x[:, 0] + scale * noise[:, 0], x[:, 1] + scale * noise[:, 1]], 1)

    @staticmethod
    def backward(ctx, grad_output):
        (noise,) = ctx.saved_tensors
        if Jitters.redraws:
            noise = torch.randn_like(noise)
            return grad_output, (grad_output * noise).sum()
        # A rotation of the noise does not change its distribution: a velocity along it may be added.
        turned = torch.stack([-noise[:, 1], noise[:, 0]], 1)
        return grad_output, Jitters.factor * (grad_output * (noise + 0.4 * turned)).sum()


def test_an_estimator_with_the_right_mean_is_one_and_a_mask_that_is_drawn_again_is_none(monkeypatch):
    sample = leaf(6, 2), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    (found,) = audit(Jitters.apply, sample, only=["first_order"]).findings
    assert found.severity == "info"
    assert found.summary.startswith("looks like an estimator: declare it. For one draw, the gradient of input 1")
    assert 'gradient="approximate"' in found.fix
    monkeypatch.setattr(Jitters, "factor", 1.5)
    assert not audit(Jitters.apply, sample, only=["first_order"]).ok
    monkeypatch.setattr(Jitters, "redraws", True)
    (found,) = audit(Jitters.apply, sample, only=["first_order"]).findings
    assert (found.severity, "draws random numbers, too" in found.cause) == ("error", True)


class KeepsOneOnTheClassAndOneOnCtx(Function):
    """The weight of a call is on the class, and its input on ctx: two mistakes."""

    kept = None

    @staticmethod
    def forward(ctx, x, w):
        KeepsOneOnTheClassAndOneOnCtx.kept, ctx.x = w, x
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output @ KeepsOneOnTheClassAndOneOnCtx.kept.mT, ctx.x.mT @ grad_output


def test_a_later_write_to_what_is_on_ctx_is_not_hidden_by_what_is_on_the_class():
    checks = ["independent_calls", "later_writes", "tensors_on_ctx"]
    findings = audit(KeepsOneOnTheClassAndOneOnCtx.apply, (leaf(4, 3), leaf(3, 2)), only=checks).findings
    assert [(f.check, f.also) for f in findings] == [("independent_calls", ()), ("later_writes", ("tensors_on_ctx",))]
    assert "KeepsOneOnTheClassAndOneOnCtx keeps input 0 as ctx.x" in findings[1].cause


def _black_box(backward: Callable[..., Any]) -> type[Function]:
    """The sine, whose backward takes a difference."""

    class Black(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

    Black.backward = staticmethod(backward)
    return Black


def _difference(ctx, grad_output):
    (x,) = ctx.saved_tensors
    return grad_output * ((x + 1e-6).sin() - (x - 1e-6).sin()) / 2e-6


class RaisesWhenDifferentiated(Function):
    @staticmethod
    def forward(ctx, grad):
        return grad.clone()

    @staticmethod
    def backward(ctx, grad_output):
        raise RuntimeError("there is no second derivative of a difference")


def test_an_estimator_is_said_to_estimate_and_not_to_be_another_gradient_on_purpose():
    names = ["second_order", "forward_mode", "complex128"]
    runs = audit(_black_box(_difference).apply, (leaf(3),), gradient="approximate", only=names)
    said = {f.check: f.summary for f in runs.findings}
    assert "on purpose" not in " ".join(said.values())
    assert said["second_order"] == (
        "no second_order: backward estimates the derivative of forward, so the audit has no second derivative to "
        "compare with"
    )

    def refuses(ctx, grad_output):
        return RaisesWhenDifferentiated.apply(_difference(ctx, grad_output))

    for gradient in ("approximate", "custom"):
        refused = audit(_black_box(refuses).apply, (leaf(3),), gradient=gradient, only=["second_order"])
        (found,) = refused.findings
        assert found.summary == "no second_order: RuntimeError: there is no second derivative of a difference"


class ClampsWithoutMask(Function):
    """A clamp, whose backward passes the gradient on everywhere."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(0, 1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clone()


class DoublesInTheMiddle(ClampsWithoutMask):
    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * ((x > 0) & (x < 1)) * torch.where(x > 0.5, 2.0, 1.0)


def test_a_gradient_where_the_values_stand_still_is_told_from_a_wrong_term():
    x = torch.tensor([-1.0, 0.25, 0.75, 2.0], dtype=torch.float64, requires_grad=True)
    (found,) = audit(ClampsWithoutMask.apply, (x,), only=["first_order"]).of("error")
    assert "2 of 4 entries are not zero, and should be: the values do not move there" in found.cause
    assert "surrogate=" in found.fix
    (found,) = audit(DoublesInTheMiddle.apply, (x,), only=["first_order"]).of("error")
    assert "1 of 4 entries are wrong" in found.cause
    assert "surrogate" not in found.fix


class WritesInBackward(Function):
    """The square, whose backward writes in place to what its derivative needs."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        slope = ctx.saved_tensors[0] * 2
        grad_input = grad_output * slope
        slope.zero_()
        return grad_input


def test_a_second_derivative_that_fails_at_a_write_of_the_backward_blames_no_optimizer():
    (found,) = audit(WritesInBackward.apply, (leaf(2, 3),), only=["second_order"]).findings
    assert found.severity == "info"
    assert found.cause.startswith("Backward writes in place")


class SavesAConstant(Function):
    """The square, whose backward leaves torch; a constant is saved, too."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(torch.tensor([2.0], dtype=x.dtype), x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        two, x = ctx.saved_tensors
        return grad_output * two * x.detach()


def test_a_saved_constant_is_no_intermediate_result():
    (found,) = audit(SavesAConstant.apply, (leaf(2, 3),), only=["second_order"]).of("error")
    assert found.cause.startswith("It is silently zero: the backward detaches a tensor")


class BackwardInFloat32(Function):
    """The exponential, whose backward computes in float32 and returns that."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.float() * ctx.saved_tensors[0].float()


def test_a_backward_in_float32_is_one_finding():
    (found,) = audit(BackwardInFloat32.apply, (leaf(2, 3),), only=["returned", "digits"]).of("error")
    assert (found.check, found.also) == ("returned", ("digits",))


class WritesToSaved(Function):
    """The square, which saves a padded copy; the backwards write to its border."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(torch.cat([x, x.new_ones(1)]))
        return x * x


def test_a_write_to_a_saved_tensor_that_nobody_can_see_is_info():
    class OnceOnly(WritesToSaved):
        @staticmethod
        def backward(ctx, grad_output):
            (table,) = ctx.saved_tensors
            grad_input = 2 * grad_output * table[:-1] * table[-1]
            table.numpy()[-1] = 0.5
            return grad_input

    class Idempotent(WritesToSaved):
        @staticmethod
        def backward(ctx, grad_output):
            (table,) = ctx.saved_tensors
            table.numpy()[-1] = 0.5
            return 4 * grad_output * table[:-1] * table[-1]

    for function, severity in ((Idempotent, "info"), (OnceOnly, "error")):
        (found,) = audit(function.apply, (leaf(3),), only=["grad_output_unchanged"]).findings
        assert (found.check, found.severity) == ("grad_output_unchanged", severity)


class SparseProduct(Function):
    """A sparse matrix times a dense one; the sparse one is made in forward and saved."""

    @staticmethod
    def forward(ctx, values, b):
        a = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1], [0, 2, 1]]), values, (2, 3))
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        rows, columns = a._indices()
        return (grad_output @ b.mT)[rows, columns], a.mT @ grad_output


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_sparse_tensor_made_of_an_input_is_an_intermediate_result_with_a_version_of_its_own():
    findings = audit(SparseProduct.apply, (leaf(3), leaf(3, 2)), only=["second_order", "later_writes"]).of("error")
    causes = {f.check: f.cause for f in findings}
    assert causes["second_order"].startswith("The backward uses an intermediate result of shape [2, 3]")
    assert "torch.sparse_coo_tensor" in causes["later_writes"]


class HalfATriangle(Function):
    """The square of a lower triangle, with a gradient that is wrong wherever it is not zero."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tril() ** 2

    @staticmethod
    def backward(ctx, grad_output):
        return (grad_output * ctx.saved_tensors[0] ** 3).tril()


def test_entries_that_are_zero_in_any_case_are_not_taken_for_right_ones():
    (found,) = audit(HalfATriangle.apply, (leaf(3, 3),), only=["first_order"]).of("error")
    assert "entries are wrong" not in found.cause


class NaturalGradient(Function):
    """A product whose gradients are scaled as a metric demands."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x.sin() * w.cos()

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output * (1 + x * w), grad_output * (2 - x + w)


def test_gradients_of_several_inputs_that_are_wrong_in_the_same_way_are_one_finding():
    (found,) = audit(NaturalGradient.apply, (leaf(3), leaf(3)), only=["first_order"]).of("error")
    assert "no simple pattern was recognized. Seen, too: the gradient of input 1" in found.cause


class KeepsManyOnCtx(Function):
    """The square, which keeps six tensors on ctx."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.parts = [x[i] + 1.0 for i in range(6)]
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output * ctx.saved_tensors[0]


def test_of_many_tensors_on_ctx_some_are_named():
    (found,) = audit(KeepsManyOnCtx.apply, (leaf(6, 2),), only=["tensors_on_ctx"]).findings
    assert found.summary.count("a tensor of shape [2] as ctx.parts") == 4
    assert found.summary.endswith("and 2 more")


class Scans(Function):
    """Takes the number of its steps from one input, and does not look whether the other one is as long."""

    @staticmethod
    def forward(ctx, a, x):
        y = x.clone()
        for t in range(1, a.shape[1]):
            y[:, t] += a[:, t] * y[:, t - 1]
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        a, y = ctx.saved_tensors
        grad_x, grad_a = grad_output.clone(), torch.zeros_like(y)
        for t in range(y.shape[1] - 1, 0, -1):
            grad_a[:, t] = grad_x[:, t] * y[:, t - 1]
            grad_x[:, t - 1] += a[:, min(t, a.shape[1] - 1)] * grad_x[:, t]
        return grad_a[:, : a.shape[1]], grad_x


class Distances(Function):
    """Squares of distances, wrong if there are not as many points of one kind as of the other."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return (a[:, None] - b).square().sum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        way = 2 * grad_output[:, :, None] * (a[:, None] - b)
        return way.mean(1) * len(a), -way.sum(0)


class Multiplies(Function):
    """Wrong where a factor has one row for all."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        return (grad_output * b)[: len(a)], (grad_output * a)[: len(b)]


@pytest.mark.parametrize(("function", "wrong"), [(Scans, False), (Distances, True), (Multiplies, True)])
def test_inputs_of_other_sizes_than_their_partners_count_where_forward_is_made_for_them(function, wrong):
    report = audit(function.apply, (leaf(4, 5), leaf(4, 5)), only=["first_order", "sizes"])
    assert [f.check for f in report.findings] == ["sizes"] * wrong


class Spreads(Function):
    """Adds numbers to the cells of a grid near to their places, which jump where a place comes to another cell."""

    @staticmethod
    def forward(ctx, values, places):
        ctx.save_for_backward(values, places)
        return spread(values, places)

    @staticmethod
    def backward(ctx, grad_output):
        with torch.enable_grad():
            inputs = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            return torch.autograd.grad(spread(*inputs), inputs, grad_output)


def spread(values, places):
    grid = torch.zeros(12, dtype=values.dtype)
    for k in range(24):
        cells = (places.floor().long() + k % 4).remainder(12)
        weights = (1 - (places - places.floor() - k % 4 + 1).abs() / 3).square()
        grid = grid.scatter_add(0, cells, values * weights)
    return grid


def test_what_jumps_elsewhere_does_not_come_in_steps_where_differences_agree():
    torch.manual_seed(0)
    places = (8 * torch.rand(40, dtype=torch.float64)).requires_grad_()
    report = audit(Spreads.apply, (leaf(40), places), only=["first_order"])
    assert not report.findings


def gradients_of_sparse_product(matrix, x, grad_output):
    rows, columns = matrix._indices()
    values = (grad_output[rows] * x[columns]).sum(-1)
    return torch.sparse_coo_tensor(matrix._indices(), values, matrix.shape), matrix.t() @ grad_output


class MultipliesBySparse(Function):
    """The gradient of a sparse matrix has its indices, in the same memory."""

    @staticmethod
    def forward(ctx, matrix, x):
        ctx.save_for_backward(matrix, x)
        return matrix @ x

    @staticmethod
    def backward(ctx, grad_output):
        return gradients_of_sparse_product(*ctx.saved_tensors, grad_output)


def audited_with_sparse(*checks):
    matrix = (leaf(4, 4).detach().relu() + torch.eye(4)).to_sparse_coo().requires_grad_()
    return audit(MultipliesBySparse.apply, (matrix, leaf(4, 2)), only=checks)


def test_what_a_sparse_gradient_shares_with_its_input_is_not_left_behind():
    assert not audited_with_sparse("freed_at_once").findings


def test_what_cannot_be_measured_of_sparse_arguments_is_one_note():
    report = audited_with_sparse("special_points", "saved_copies", "unused_saved")
    assert not report.findings
    assert [n for n in report.notes if n.startswith("not measured")] == [
        "not measured, because the audit takes sparse arguments as they are: special_points, unused_saved, saved_copies"
    ]


class AttendsInFloat32(Function):
    """Attention in float32, whatever its inputs have, and float32 is all that it can be judged by."""

    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        return ((q.float() @ k.float().mT).softmax(-1) @ v.float()).to(q.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        q, k, v = (t.float() for t in ctx.saved_tensors)
        p, g = (q @ k.mT).softmax(-1), grad_output.float()
        way = g @ v.mT
        scores = p * (way - (way * p).sum(-1, keepdim=True))
        return tuple(t.to(grad_output.dtype) for t in (scores @ k, scores.mT @ q, p.mT @ g))


def test_digits_are_counted_before_the_checks_that_they_decide():
    inputs = leaf(5, 4), leaf(5, 4), leaf(5, 4)
    asked = ["output_dtype", "digits", "same_tensor_twice", "special_points"]
    report = audit(AttendsInFloat32.apply, inputs, only=asked)
    assert {f.check for f in report.findings} <= {"digits"}, report


class SumsParts(Function):
    @staticmethod
    def forward(ctx, z):
        return torch.view_as_real(z).sum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        return torch.complex(grad_output, grad_output)


def test_a_view_of_a_conjugate_has_a_cause_and_a_fix():
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    (found,) = audit(SumsParts.apply, (z,), only=["input_layouts"]).of("error")
    assert found.fix == "Call x.resolve_conj() before torch.view_as_real."


class CentersAndRemembers(Function):
    """Subtracts the mean of the batch, and updates a running mean, which it does not use."""

    @staticmethod
    def forward(ctx, x, running_mean, scaled):
        mean = x.mean(0)
        running_mean.mul_(0.9).add_(mean, alpha=0.1)
        return (x - mean) * (running_mean if scaled else 1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output - grad_output.mean(0), None, None


@pytest.mark.parametrize("scaled", [False, True], ids=["only written", "also used"])
def test_running_statistics_may_be_arguments(scaled):
    report = audit(CentersAndRemembers.apply, (leaf(5, 3), torch.zeros(3), scaled), only=["inputs_unchanged"])
    assert bool(report.findings) == scaled, str(report)


class CrossWithAxis(Function):
    """The cross product with a fixed axis; only backward asks for three coordinates."""

    @staticmethod
    def forward(ctx, x):
        return x.roll(1, -1) - x.roll(-1, -1)

    @staticmethod
    def backward(ctx, grad_output):
        assert grad_output.shape[-1] == 3, "expected three coordinates"
        return grad_output.roll(-1, -1) - grad_output.roll(1, -1)


def test_no_coordinates_are_no_empty_batch():
    report = audit(lambda x: CrossWithAxis.apply(x).sum(-1), (leaf(4, 3),), only=["empty"])
    assert not report.findings, str(report)


class TransposesSaved(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w.mT.contiguous())
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        (transposed,) = ctx.saved_tensors
        transposed.mul_(2)
        return grad_output @ transposed / 2, None


def test_a_saved_tensor_that_backward_changes_explains_that_a_second_backward_raises():
    (found,) = audit(
        TransposesSaved.apply,
        (leaf(4, 3), torch.randn(3, 2, dtype=torch.float64)),
        only=["grad_output_unchanged", "backward_twice"],
    ).of("error")
    assert found.check == "grad_output_unchanged"
    assert found.also == ("backward_twice",)
    assert "in a second backward" in found.cause


class ByPairs(Function):
    """Twice a complex number, by pairs of real ones, which a lazy conjugate cannot be viewed as."""

    @staticmethod
    def forward(ctx, z):
        return torch.view_as_complex(2 * torch.view_as_real(z))

    @staticmethod
    def backward(ctx, grad_output):
        return torch.view_as_complex(2 * torch.view_as_real(grad_output))


def test_one_reason_for_two_refused_layouts_is_one_finding():
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    (found,) = audit(ByPairs.apply, (z,), only=["input_layouts", "grad_output_layouts"]).of("error")
    assert (found.check, found.also) == ("input_layouts", ("grad_output_layouts",))


class MembraneRate(Function):
    """A clipped mean over time, which is computed in float32, with a gradient that ends at a threshold."""

    @staticmethod
    def forward(ctx, x, threshold):
        ctx.save_for_backward(x, threshold)
        return x.float().mean(0).clamp(max=float(threshold))

    @staticmethod
    def backward(ctx, grad_output):
        x, threshold = ctx.saved_tensors
        below = x.mean(0) <= threshold
        return (grad_output.to(x) * below / len(x)).expand(x.shape), (grad_output.to(x) * ~below).sum()


def test_results_are_compared_with_the_digits_that_they_have():
    inputs = leaf(6, 40), torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    checks = ["grad_output_layouts", "input_layouts", "same_tensor_twice", "bfloat16"]
    report = audit(MembraneRate.apply, inputs, only=checks, gradient="custom")
    assert not [f for f in report.findings if f.severity != "info" and "output 0 is torch.float32" not in f.summary], (
        str(report)
    )


def _inverse(y, a, b, halvings):
    """The number at which a rising function is ``y``, by few halvings."""
    low, high = torch.full_like(y, -10.0), torch.full_like(y, 10.0)
    for _ in range(halvings):
        middle = (low + high) / 2
        below = a.exp() * middle + torch.tanh(middle + b) < y
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


class Halved(Function):
    @staticmethod
    def forward(ctx, y, a, b):
        x = _inverse(y, a, b, 25)
        ctx.save_for_backward(x, a, b)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        x, a, b = ctx.saved_tensors
        bend = 1 - torch.tanh(x + b) ** 2
        grad_y = grad_output / (a.exp() + bend)
        return grad_y, (-grad_y * a.exp() * x).sum(0), (-grad_y * bend).sum(0)


@pytest.mark.parametrize("checks", [["special_points"], ["first_order", "digits", "special_points"]], ids=" ".join)
def test_few_halvings_are_a_tolerance(checks):
    a = (0.3 * leaf(3)).detach().requires_grad_()
    report = audit(Halved.apply, (leaf(5, 3), a, leaf(3)), only=checks)
    problems = [f for f in report.findings if f.severity != "info" and "±800" not in f.summary]
    assert not problems, str(report)


class SumOfMirrored(Function):
    """Of a symmetric matrix, the sum of its squares from one triangle; the gradient is spread over both."""

    @staticmethod
    def forward(ctx, matrix):
        ctx.save_for_backward(matrix)
        return 2 * matrix.triu(1).square().sum() + matrix.triu(1).sum() + matrix.diagonal().sum()

    @staticmethod
    def backward(ctx, grad_output):
        (matrix,) = ctx.saved_tensors
        upper = 4 * matrix.triu(1) + torch.ones_like(matrix).triu(1)
        return grad_output * ((upper + upper.mT) / 2 + torch.eye(len(matrix)).to(matrix))


class TransposedEverywhere(Function):
    @staticmethod
    def forward(ctx, matrix):
        ctx.save_for_backward(matrix)
        return (torch.arange(matrix.numel()).view_as(matrix) * matrix).sum()

    @staticmethod
    def backward(ctx, grad_output):
        (matrix,) = ctx.saved_tensors
        return grad_output * torch.arange(matrix.numel()).view_as(matrix).to(matrix).flip(0)


@pytest.mark.parametrize(("function", "severity"), [(SumOfMirrored, "info"), (TransposedEverywhere, "error")])
def test_a_matrix_that_is_symmetric_by_chance_does_not_make_a_symmetric_gradient_wrong(function, severity):
    sample = torch.diag(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)).requires_grad_()
    found = audit(function.apply, (sample,), only=["first_order", "sizes"], domain="any").findings
    assert {f.severity for f in found} == {severity}, found
    assert severity == "error" or "stays symmetric" in found[0].summary


class SeesNoProducts(Function):
    """Right where the sum of all numbers is zero, as that of the sample is."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * (1 + x.sum() ** 2)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (1 + x.sum() ** 2)


def test_what_a_sample_of_few_numbers_hides_is_not_blamed_on_the_size():
    sample = torch.tensor([1.0, -1.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    (found,) = audit(SeesNoProducts.apply, (sample,), only=["first_order", "sizes"]).findings
    assert found.severity == "error"
    assert found.summary.startswith("near the sample, at the same sizes, the gradient gives the slope")
    assert "The sample hides it" in found.cause


class SeesNoImaginaryParts(Function):
    """Right where the imaginary parts add up to zero, as those of the sample do."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z.real * (1 + z.imag.sum() ** 2)

    @staticmethod
    def backward(ctx, grad_output):
        (z,) = ctx.saved_tensors
        return (grad_output * (1 + z.imag.sum() ** 2)).to(z)


def test_a_sample_of_few_complex_numbers_hides_it_as_well():
    sample = torch.tensor([1 + 1j, 1 - 1j, 1, 1, 1, 1], dtype=torch.complex128, requires_grad=True)
    report = audit(SeesNoImaginaryParts.apply, (sample,), only=["first_order", "sizes"])
    assert [(f.check, "The sample hides it" in f.cause) for f in report.findings] == [("sizes", True)], report
    assert "not measured" not in str(report)


def test_sizes_are_tried_where_another_input_is_empty():
    def function(x, nothing):
        return SeesNoProducts.apply(x) + nothing.sum()

    sample = torch.tensor([1.0, -1.0, 0.5, -0.5], dtype=torch.float64, requires_grad=True)
    empty = torch.empty(0, 3, dtype=torch.float64, requires_grad=True)
    report = audit(function, (sample, empty), only=["first_order", "sizes"])
    assert [f.check for f in report.findings] == ["sizes"], report
    assert "not measured" not in str(report)


class KeepsTheSign(Function):
    """Its gradient is the sign of grad_output, as in training with one bit for each number."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.sign()


def test_a_gradient_that_depends_on_the_sign_does_not_ignore_grad_output():
    found = audit(KeepsTheSign.apply, (leaf(4),), only=["first_order"]).findings
    assert found
    assert not any("ignores grad_output" in f.cause for f in found)


class DifferentiatesInside(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.detach().sin()

    @staticmethod
    def backward(ctx, grad_output):
        with torch.enable_grad():
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_()
            return torch.autograd.grad(x.sin(), x, grad_output.detach())[0]


def test_a_derivative_that_backward_asks_for_is_told_from_no_grad():
    (found,) = audit(DifferentiatesInside.apply, (leaf(4),), only=["second_order"]).findings
    assert "records nothing without create_graph=True" in found.cause
    assert "create_graph=torch.is_grad_enabled()" in found.fix


@torch.library.custom_op("autograd_cookbook_tests::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halved.register_fake
def _(x):
    return torch.empty_like(x)


class CallsAnOperator(Function):
    """The operator has no derivative of its own, and needs none: autograd does not see what forward calls."""

    @staticmethod
    def forward(ctx, x):
        return halved(x)

    @staticmethod
    def backward(ctx, grad_output):
        return halved(grad_output)


def test_an_operator_that_only_a_forward_calls_needs_no_derivative():
    assert not audit(CallsAnOperator.apply, (leaf(4),), only=["opcheck"]).findings
    assert audit(halved, (leaf(4),), only=["opcheck", "runs"]).findings


@torch.library.custom_op("autograd_cookbook_tests::without_fake", mutates_args=())
def without_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 2


without_fake.register_autograd(lambda ctx, grad_output: grad_output * 2)


def test_a_missing_fake_kernel_is_one_finding():
    (found,) = audit(without_fake, (leaf(4),), only=["opcheck"]).findings
    assert "register_fake" in found.fix


LIBRARY = torch.library.Library("autograd_cookbook_defined", "DEF")
LIBRARY.define("halved(Tensor x) -> Tensor")
LIBRARY.impl("halved", lambda x: x / 2, "CPU")


class CallsADefinedOperator(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.ops.autograd_cookbook_defined.halved(x)

    @staticmethod
    def backward(ctx, grad_output):
        return torch.ops.autograd_cookbook_defined.halved(grad_output)


def test_a_missing_fake_kernel_of_an_operator_that_was_defined_apart_is_named():
    (found,) = audit(CallsADefinedOperator.apply, (leaf(4),), only=["opcheck"]).findings
    assert "has no fake kernel" in found.cause
    assert "register_fake" in found.fix


class CallsItWithAFormula(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.ops.autograd_cookbook_defined.halved(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output / 2


class ReadsRequiresGrad(CallsItWithAFormula):
    @staticmethod
    def forward(x):
        ReadsRequiresGrad.wanted = x.requires_grad
        return x / 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output / 2 if ReadsRequiresGrad.wanted else 0 * grad_output


def test_another_gradient_by_torch_func_has_the_two_causes_that_the_finding_names():
    for function in (torch.ops.autograd_cookbook_defined.halved, ReadsRequiresGrad.apply):
        (found,) = audit(function, (leaf(4),), only=["func_grad"]).of("error")
        assert "requires_grad is False in Function.forward" in found.cause
        assert "an operator without an autograd formula" in found.cause
    assert audit(CallsItWithAFormula.apply, (leaf(4),), only=["func_grad"]).capabilities["func_grad"] == "yes"


class CountsItsRows(Function):
    """The gradient of the shift is right for any number of rows but none: then it is one row's."""

    @staticmethod
    def forward(ctx, x, shift):
        ctx.shape = x.shape
        return torch.cat([x + shift, shift[None]])

    @staticmethod
    def backward(ctx, grad_output):
        rows = grad_output if ctx.shape[0] else grad_output * 3
        return grad_output[:-1], rows.sum(0)


class CountsThemWrong(CountsItsRows):
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output[:-1], 3 * grad_output.sum(0)


def test_a_gradient_without_rows_is_compared_with_the_values_that_are_left():
    sample = (leaf(4, 3), leaf(3))
    (found,) = audit(CountsItsRows.apply, sample, only=["first_order", "empty"]).findings
    assert re.search("is ([0-9.]+), but the values change by ([0-9.]+)", found.summary)
    assert "right only for some sizes" in found.cause
    found = audit(CountsThemWrong.apply, sample, only=["first_order", "empty"]).findings
    assert [f.check for f in found] == ["first_order"], "what is wrong anyway has nothing to do with the size"


class DifferentiatesWhatMayBeFrozen(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x * w).sin()

    @staticmethod
    def backward(ctx, grad_output):
        with torch.enable_grad():
            again = (ctx.saved_tensors[0] * ctx.saved_tensors[1]).sin()
            return torch.autograd.grad(again, ctx.saved_tensors, grad_output)


def test_a_backward_that_differentiates_a_frozen_input_is_to_detach_it_first():
    (found,) = audit(DifferentiatesWhatMayBeFrozen.apply, (leaf(4), leaf(4)), only=["subsets"]).findings
    assert "the caller has frozen an input" in found.cause
    assert "requires_grad_() on the results" in found.fix


class ExpandsToAShape(Function):
    """The shape has to be a ``torch.Size``: forward asks it for its number of elements."""

    @staticmethod
    def forward(ctx, x, shape):
        ctx.factor = shape.numel() // x.numel()
        return x.expand(shape).clone()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.sum(0, keepdim=True), None


class ForgetsTheSum(ExpandsToAShape):
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output[:1], None


def test_a_shape_among_the_arguments_stays_a_shape():
    arguments = leaf(1, 4), torch.Size([3, 4])
    report = audit(ExpandsToAShape.apply, arguments, only=["runs", "first_order", "repeatable"])
    assert not report.findings, str(report)
    (found,) = audit(ForgetsTheSum.apply, arguments, only=["first_order"]).findings
    assert "torch.Size([3, 4])" in found.program


class FiresWithAProbability(Function):
    """Random, though two draws are often equal: the probabilities are next to zero or one."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.bernoulli(torch.sigmoid(8 * x))

    @staticmethod
    def backward(ctx, grad_output):
        probability = torch.sigmoid(8 * ctx.saved_tensors[0])
        return grad_output * 8 * probability * (1 - probability)


@pytest.mark.parametrize("seed", range(6))
def test_a_forward_that_seldom_differs_is_random(seed):
    torch.manual_seed(seed)
    x = torch.cat([torch.randn(3).sign() * (1 + torch.rand(3)), torch.tensor([0.02])]).double().requires_grad_()
    findings = audit(FiresWithAProbability.apply, (x,), only=["float32", "global_random_state"], seed=seed).findings
    assert not [f for f in findings if f.severity != "info"], findings


class RootOf(Function):
    """Where ``f``, which holds a tensor that is an argument, too, takes a value: by Newton's method."""

    @staticmethod
    def forward(ctx, f, y, slope):
        x = torch.zeros_like(y)
        for _ in range(8):
            with torch.enable_grad():
                at = x.requires_grad_()
                value = f(at)
                step = (value - y) / torch.autograd.grad(value.sum(), at)[0]
            x = (x - step).detach()
        ctx.f = f
        ctx.save_for_backward(x, slope)
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        x, slope = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            value = ctx.f(x)
        grad_y = grad_output / torch.autograd.grad(value, x, torch.ones_like(value), retain_graph=True)[0]
        return None, grad_y, torch.autograd.grad(value, slope, -grad_y)[0]


def test_an_argument_that_a_closure_holds_as_well_stays_one_tensor():
    slope = torch.tensor(1.5, requires_grad=True)
    report = audit(
        RootOf.apply,
        (lambda x: slope * x + torch.sin(x) / 2, torch.randn(6, requires_grad=True), slope),
        only=["first_order", "input_layouts", "float32"],
    )
    assert not report.findings, str(report)
    assert report.capabilities["first_order"] == "yes"
    assert slope.dtype is torch.float32
    assert slope.item() == 1.5


class WarmStart:
    """Solves with a float32 matrix, and begins with the last solution."""

    def __init__(self, matrix):
        self.matrix, self.guess = matrix, None

    def solve(self, b):
        x = torch.zeros_like(b) if self.guess is None else self.guess
        for _ in range(60):
            x = x + 0.5 * (b - self.matrix @ x)
            if (b - self.matrix @ x).norm() < 1e-5:
                break
        self.guess = x
        return x


class SolvesWithAnObject(Function):
    @staticmethod
    def forward(ctx, solver, b):
        ctx.solver = solver
        return solver.solve(b)

    @staticmethod
    def backward(ctx, grad_output):
        return None, WarmStart(ctx.solver.matrix).solve(grad_output)


def test_what_an_attempt_in_float64_leaves_in_an_object_is_not_there_for_the_next():
    torch.manual_seed(0)
    matrix = torch.eye(5) + 0.1 * torch.randn(5, 5)
    solver = WarmStart((matrix + matrix.mT) / 2)
    report = audit(SolvesWithAnObject.apply, (solver, torch.randn(5, requires_grad=True)), only=["in_place_consumer"])
    assert not report.findings, str(report)  # though backward stops early, and later for a larger grad_output
    assert any("audited in float32" in note for note in report.notes)


def hilbert(n):
    i = torch.arange(n, dtype=torch.float64)
    return 1 / (i[:, None] + i + 1)


class SolvesBadly(Function):
    """The solve in backward undoes a product, but amplifies its rounding by eight orders of magnitude."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        matrix = 1e-12 * x + hilbert(len(x)).to(x)
        return torch.linalg.solve(matrix, matrix @ (grad_output * x.cos()))


class CastsInside(SolvesBadly):
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].float().cos().to(grad_output)


def test_rounding_that_a_solve_amplifies_is_neither_a_cast_nor_a_layout():
    checks = ["digits", "input_layouts", "grad_output_layouts"]
    report = audit(SolvesBadly.apply, (leaf(7, 7),), only=checks)
    assert not report.findings, str(report)
    assert [f.check for f in audit(CastsInside.apply, (leaf(7, 7),), only=checks).findings] == ["digits"]


class Eigenvalues(Function):
    @staticmethod
    def forward(ctx, x):
        values, vectors = torch.linalg.eig(x)
        ctx.save_for_backward(vectors)
        return values

    @staticmethod
    def backward(ctx, grad_output):
        inverse = torch.linalg.inv(ctx.saved_tensors[0])
        return inverse.mH @ torch.diag(grad_output) @ ctx.saved_tensors[0].mH


def test_complex_results_in_another_order_are_not_measured_in_narrow_dtypes():
    torch.manual_seed(0)
    x = torch.randn(24, 24, dtype=torch.complex128).requires_grad_()
    report = audit(Eigenvalues.apply, (x,), only=["float32"])
    assert not report.findings, str(report)
    assert not any("the audit cannot" in note for note in report.notes), report.notes


class WrongEverywhere(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cosh()


@pytest.mark.parametrize(("n", "count"), [(30, "(30 of 30 entries are off)"), (3000, "")])
def test_wrong_entries_are_counted_where_each_was_looked_at(n, count):
    (found,) = audit(WrongEverywhere.apply, (leaf(n),), only=["first_order"]).findings
    assert count in found.summary
    assert ("entries are off" in found.summary) == bool(count)


class KeepsItsOutputs(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.up, ctx.down = x.exp(), (-x).exp()
        return ctx.up, ctx.down

    @staticmethod
    def backward(ctx, grad_up, grad_down):
        return grad_up * ctx.up - grad_down * ctx.down


def test_an_output_on_ctx_is_no_global():
    (found,) = audit(KeepsItsOutputs.apply, (leaf(4),), only=["freed_at_once"]).findings
    assert "for good" in found.summary
    assert "reference cycle" in found.cause


class ReturnsTheInput(Function):
    """Backward returns its second input where the gradient of it belongs."""

    @staticmethod
    def forward(ctx, x, penalty):
        ctx.save_for_backward(x, penalty)
        return (x * penalty.exp()).sum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        _, penalty = ctx.saved_tensors
        return grad_output[:, None] * penalty.exp(), penalty


def test_a_gradient_that_is_the_input_is_called_so():
    report = audit(ReturnsTheInput.apply, (leaf(3, 4), leaf(4)), only=["first_order", "empty"])
    (found,) = (f for f in report.findings if f.severity == "error")
    assert "It is input 1 itself" in found.cause
    assert found.also == ("empty",)


class ReplaysAnotherState(Function):
    """Draws the mask again in a fork of the generator, from the state that forward left behind and not the one before.

    The states before and after backward are the same.
    """

    before = False

    @classmethod
    def forward(cls, ctx, x):
        ctx.state = torch.get_rng_state()
        mask = torch.rand(x.shape) < 0.6
        if not cls.before:
            ctx.state = torch.get_rng_state()
        return x * mask

    @staticmethod
    def backward(ctx, grad_output):
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state)
            return grad_output * (torch.rand(grad_output.shape) < 0.6)


class ReplaysItsState(ReplaysAnotherState):
    before = True


class DrawsInAFork(ReplaysAnotherState):
    @staticmethod
    def backward(ctx, grad_output):
        with torch.random.fork_rng(devices=[]):
            return grad_output * (torch.rand(grad_output.shape) < 0.6)


@pytest.mark.parametrize("function", [ReplaysAnotherState, DrawsInAFork])
def test_a_mask_that_is_drawn_again_is_the_cause(function):
    (found,) = audit(function.apply, (leaf(6, 5),), only=["first_order"]).findings
    assert found.cause == "forward is random, and backward draws random numbers, too: others than forward did."


def test_a_mask_that_is_drawn_again_from_the_same_state_is_right():
    assert not audit(ReplaysItsState.apply, (leaf(6, 5),), only=["first_order"]).findings


class NegatesWithTheRightMask(ReplaysItsState):
    @staticmethod
    def backward(ctx, grad_output):
        return -ReplaysItsState.backward(ctx, grad_output)


def test_the_mask_of_forward_is_not_the_cause():
    (found,) = audit(NegatesWithTheRightMask.apply, (leaf(6, 5),), only=["first_order"]).findings
    assert "the sign is wrong" in found.cause


class HuberLacksDelta(Function):
    @staticmethod
    def forward(ctx, x, delta):
        ctx.save_for_backward(x)
        ctx.delta = delta
        return torch.where(x.abs() <= delta, x * x / 2, delta * (x.abs() - delta / 2))

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * torch.where(x.abs() <= ctx.delta, x, x.sign()), None


def test_a_factor_of_some_entries_is_recognized_with_the_argument_that_it_is():
    (found,) = audit(HuberLacksDelta.apply, (leaf(4, 5), 0.7), only=["first_order"]).findings
    assert re.search(
        r"of 20 entries are wrong; for each of them, it is the right one divided by 0.7, which is input 1", found.cause
    )


class SolveWithoutTranspose(Function):
    @staticmethod
    def forward(ctx, matrix, x):
        ctx.save_for_backward(matrix)
        return torch.linalg.solve(matrix, x)

    @staticmethod
    def backward(ctx, grad_output):
        (matrix,) = ctx.saved_tensors
        return None, torch.linalg.solve(matrix, grad_output)


def test_a_transpose_that_backward_lacks_is_recognized():
    matrix = leaf(4, 4).detach() + 4 * torch.eye(4, dtype=torch.float64)
    (found,) = audit(SolveWithoutTranspose.apply, (matrix, leaf(4, 2)), only=["first_order"]).findings
    assert "it is the right one for input 0 transposed: backward lacks a transpose" in found.cause


class FilterWithoutConjugate(Function):
    """Two of the entries are real, so that their gradient is right."""

    @staticmethod
    def forward(ctx, z, weight):
        ctx.save_for_backward(weight)
        return z * weight

    @staticmethod
    def backward(ctx, grad_output):
        (weight,) = ctx.saved_tensors
        return grad_output * weight, None


def test_a_conjugate_is_recognized_though_some_entries_are_right():
    torch.manual_seed(0)
    weight = torch.randn(6, dtype=torch.complex128)
    weight[:2] = weight[:2].real.to(weight)
    z = torch.randn(6, dtype=torch.complex128, requires_grad=True)
    (found,) = audit(FilterWithoutConjugate.apply, (z, weight), only=["first_order"]).findings
    assert "complex conjugate of the right one" in found.cause


class GradientAtTheLastStep(Function):
    @staticmethod
    def forward(ctx, x, lengths):
        ctx.save_for_backward(lengths)
        ctx.shape = x.shape
        return x[torch.arange(len(x)), lengths - 1]

    @staticmethod
    def backward(ctx, grad_output):
        grad_x = grad_output.new_zeros(ctx.shape)
        grad_x[:, -1] = grad_output
        return grad_x, None


def test_right_numbers_at_other_indices_are_recognized():
    lengths = torch.tensor([2, 4, 1])
    (found,) = audit(GradientAtTheLastStep.apply, (leaf(3, 5, 2), lengths), only=["first_order"]).findings
    assert "the right numbers are there, but at other indices" in found.cause


class RoundsToItsOwnRange(Function):
    """The entries with the extremes move the grid, so that the values do not stand still."""

    @staticmethod
    def forward(ctx, x):
        step = (x.max() - x.min()) / 7
        return ((x - x.min()) / step).round() * step + x.min()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


def test_a_gradient_that_is_grad_output_itself_may_be_one_of_a_surrogate():
    (found,) = audit(RoundsToItsOwnRange.apply, (leaf(10, 12),), only=["first_order"]).of("error")
    assert "it is grad_output 0 itself" in found.cause
    assert "surrogate=" in found.fix
    assert not found.summary.endswith("(64 of 120 entries are off)")


class RunsABackwardOfItsOwn(Function):
    """A checkpoint by hand, with backward() instead of torch.autograd.grad: it fills .grad of the leaf itself."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x.detach().sin()

    @staticmethod
    def backward(ctx, grad_output):
        with torch.enable_grad():
            ctx.x.sin().backward(grad_output)
        return ctx.x.cos() * grad_output


class RefusesInputs(RunsABackwardOfItsOwn):
    @staticmethod
    def backward(ctx, grad_output):
        if not torch.autograd.Variable._execution_engine.is_checkpoint_valid():
            raise RuntimeError("this checkpoint works with backward() alone")
        return RunsABackwardOfItsOwn.backward(ctx, grad_output)


def test_a_backward_that_writes_to_grad_is_told_so_and_not_as_a_factor():
    report = audit(RunsABackwardOfItsOwn.apply, (leaf(3),), only=["first_order", "grad_attribute"])
    (found,) = report.findings
    assert "backward writes to .grad of an input itself" in found.cause
    assert found.also == ("grad_attribute",)


def test_what_was_written_to_grad_counts_before_what_an_exception_says():
    (found,) = audit(RefusesInputs.apply, (leaf(3),), only=["grad_attribute"]).findings
    assert (found.severity, found.summary) == ("error", "backward writes to .grad of input 0")


class SolvesRoughly(Function):
    """Newton's method to the last digit in forward, and an iteration that stops at 1e-6 in backward."""

    scale = 1.0

    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        for _ in range(40):
            y = y - (y + y**3 / 3 - x) / (1 + y**2)
        ctx.save_for_backward(y)
        return y

    @classmethod
    def backward(cls, ctx, grad_output):
        (y,) = ctx.saved_tensors
        wave = torch.sin(torch.arange(y.numel(), dtype=y.dtype)).reshape(y.shape)
        return cls.scale * grad_output / (1 + y**2) * (1 + 3e-5 * wave)


class SolvesRoughlyWithAFactor(SolvesRoughly):
    scale = 1.01


@pytest.mark.parametrize("n", [30, pytest.param(600, marks=slow)])
def test_the_accuracy_of_a_solver_is_judged_along_directions_too(n):
    (found,) = audit(SolvesRoughly.apply, (leaf(n),), only=["first_order"]).findings
    assert found.severity == "info"
    assert "as that of an iterative solver does" in found.summary
    (found,) = audit(SolvesRoughlyWithAFactor.apply, (leaf(n),), only=["first_order"]).findings
    assert found.severity == "error"
    assert ("Which entries are wrong was not looked at" in found.cause) == (n == 600)


class FlipsAfterTheFirst(Function):
    """Adds what it saved in each backward: the second returns twice, and the third three times the gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.total = torch.zeros_like(x)
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        ctx.total = ctx.total + 2 * grad_output
        return ctx.total.clone()


def test_the_numbers_of_the_second_backward_are_told():
    (found,) = audit(FlipsAfterTheFirst.apply, (leaf(3),), only=["backward_twice"]).findings
    ours, wanted = re.search(r"is (\S+) instead of (\S+) at", found.summary).groups()
    assert float(ours) == pytest.approx(2 * float(wanted), rel=1e-4)


class ComputesInSingle(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x.float().square() - 1).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (2 * x.float()).to(x.dtype)


def test_digits_that_are_lost_inside_are_told_once_and_not_as_a_missed_case():
    names = ["digits", "special_points", "float16", "bfloat16", "autocast"]
    report = audit(ComputesInSingle.apply, (leaf(3, 4),), only=["first_order", *names])
    assert {f.check for f in report.findings if f.severity != "info"} == {"digits"}
    assert not [f for f in report.findings if "takes float32 alone" in f.summary]


class RuleRefusesOnPurpose(Function):
    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[0].cos()

    @staticmethod
    def vmap(info, in_dims, x):
        raise NotImplementedError("map over it with a loop")


def test_a_rule_for_vmap_that_refuses_on_purpose_is_no_mistake():
    (found,) = audit(RuleRefusesOnPurpose.apply, (leaf(3),), only=["vmap"]).findings
    assert (found.severity, found.summary) == ("info", "no vmap: NotImplementedError: map over it with a loop")


class SurrogateForATarget(Function):
    """Rounds its target and passes a gradient on to it: there is no derivative to compare with."""

    @staticmethod
    def forward(ctx, x, target):
        ctx.save_for_backward(x, target)
        return (x - target.round()) ** 2

    @staticmethod
    def backward(ctx, grad_output):
        x, target = ctx.saved_tensors
        grad_x = 2 * grad_output * (x - target.round())
        return grad_x, -grad_x


class RefusesATarget(SurrogateForATarget):
    @staticmethod
    def backward(ctx, grad_output):
        if ctx.needs_input_grad[1]:
            raise ValueError("the target is a constant")
        return SurrogateForATarget.backward(ctx, grad_output)[0], None


@pytest.mark.parametrize("function", [SurrogateForATarget, RefusesATarget])
def test_a_fixed_argument_without_a_derivative_is_left_alone(function):
    assert not audit(function.apply, (leaf(3), 3 * leaf(3).detach() + 0.2), only=["subsets"]).findings


class DifferentiatesInForward(Function):
    """The gradient of a network's values with respect to its input and its parameters, computed in forward."""

    @staticmethod
    def forward(ctx, x, *parameters):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            value = torch.tanh(x @ parameters[0]).sum()
            ctx.save_for_backward(*torch.autograd.grad(value, (x, *parameters)))
        return value.detach()

    @staticmethod
    def backward(ctx, grad_output):
        return tuple(grad_output * g for g in ctx.saved_tensors)


def test_an_exception_that_several_checks_meet_is_one_finding():
    weight = leaf(3, 2)
    report = audit(lambda x: DifferentiatesInForward.apply(x, weight), (leaf(4, 3),), skip=["compile"])
    raised = [f for f in report.of("error") if "Tensors does not require grad" in f.summary]
    assert [f.check for f in raised] == ["without_grad"], report
    assert "Forward differentiates with respect to its parameters" in raised[0].cause
    assert report.capabilities["first_order"] == "yes"


class FirstRowForAll(Function):
    """Weights the gradient of each row by the grad_output of the first one."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return (x * x + y * y * y).sum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return 2 * x * grad_output[0], 3 * y * y * grad_output[0] + x


def test_which_index_alone_is_right_is_said_and_what_has_no_pattern_follows():
    (found,) = audit(FirstRowForAll.apply, (leaf(4, 3), leaf(4, 3)), only=["first_order"]).of("error")
    assert "only the ones where dim 0 is 0 are right" in found.cause
    assert "the gradient of input 1" in found.cause


class NearestCode(Function):
    """The nearest of some codes, whose distances lie closer together than bfloat16 can tell apart."""

    @staticmethod
    def forward(ctx, x, codes):
        index = (x @ codes.mT).argmax(-1)
        ctx.save_for_backward(index)
        ctx.size = codes.shape
        return codes[index]

    @staticmethod
    def backward(ctx, grad_output):
        (index,) = ctx.saved_tensors
        return None, torch.zeros(ctx.size).to(grad_output).index_add_(0, index, grad_output)


def test_another_choice_among_candidates_that_are_nearly_equal_is_information():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 3, dtype=torch.float64, generator=generator)
    codes = torch.nn.functional.normalize(torch.randn(200, 3, dtype=torch.float64, generator=generator), dim=-1)
    found = audit(NearestCode.apply, (x, codes.requires_grad_()), only=["autocast"]).findings
    assert [f.severity for f in found] == ["info"]
    assert "chooses" in found[0].cause


class SoftRelu(Function):
    """ELU with a width, by which it divides."""

    @staticmethod
    def forward(ctx, x, width):
        y = torch.where(x < 0, width * torch.expm1(x / width), x)
        ctx.save_for_backward(y)
        ctx.width = width
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * torch.where(y < 0, y / ctx.width + 1, 1.0), None


def test_a_number_that_forward_divides_by_is_not_tried_as_zero():
    assert not audit(SoftRelu.apply, (leaf(4, 3), 0.8), only=["special_points"]).findings


class ForgetsTheSparseFactor(Function):
    """Detaches what it saves, so that the second derivative lacks what the gradients have in common."""

    @staticmethod
    def forward(ctx, matrix, x):
        ctx.saved = matrix.detach(), x.detach()
        return matrix @ x

    @staticmethod
    def backward(ctx, grad_output):
        return gradients_of_sparse_product(*ctx.saved, grad_output)


class DoublesTheSparseFactor(Function):
    """A product with a matrix of compressed rows, whose gradient has a factor too many."""

    @staticmethod
    def forward(ctx, matrix, x):
        ctx.save_for_backward(matrix, x)
        return matrix @ x

    @staticmethod
    def backward(ctx, grad_output):
        matrix, x = ctx.saved_tensors
        return 2 * grad_output @ x.mT, matrix.to_dense().mT @ grad_output


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize(
    ("function", "layout", "check"),
    [
        (ForgetsTheSparseFactor, "to_sparse_coo", "second_order"),
        (DoublesTheSparseFactor, "to_sparse_csr", "first_order"),
    ],
)
def test_the_gradient_of_a_sparse_argument_is_that_of_its_values(function, layout, check):
    matrix = getattr(leaf(4, 4).detach().relu() + torch.eye(4), layout)().requires_grad_()
    report = audit(function.apply, (matrix, leaf(4, 2)), only=["first_order", "second_order"])
    assert [(f.check, "input 0.values()" in f.summary) for f in report.of("error")] == [(check, True)], report


class SinhOverCosh(Function):
    """The logarithm of cosh by a safe formula, and its derivative by one that overflows."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs() + torch.log1p(torch.exp(-2 * x.abs())) - math.log(2)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.sinh() / x.cosh()


def test_what_overflows_in_float32_too_is_not_to_be_computed_there():
    (found,) = audit(SinhOverCosh.apply, (leaf(4, 3),), only=["bfloat16"]).of("error")
    assert "in float32 as well" in found.cause


def test_a_graph_that_is_kept_from_the_first_call_is_the_functions_fault():
    kept = {}

    def scaled(x):
        kept.setdefault("scale", x.sin())
        return x * kept["scale"]

    (found,) = audit(scaled, (leaf(3),)).findings
    assert "the first call works, and a later one raises RuntimeError: Trying to backward" in found.summary
    assert "keeps a tensor of its first call" in found.cause


class ComplexPairModulus(Function):
    """The modulus of pairs; of a last dim that is longer, forward takes two entries."""

    @staticmethod
    def forward(ctx, x):
        y = (x[..., 0] * x[..., 0] + x[..., 1] * x[..., 1]).sqrt()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return x * (grad_output / y)[..., None]


def test_a_size_of_two_that_is_shared_by_chance_with_a_batch_is_no_size_to_change():
    assert not audit(ComplexPairModulus.apply, (leaf(2, 3, 2),), only=["sizes"]).findings


class DistanceInTheBall(Function):
    """Kept away from the edge of the ball by a clamp that changes nothing inside of it."""

    epsilon = 1e-7

    @staticmethod
    def forward(ctx, x):
        rest = (1 - x.square().sum(-1)).clamp(min=DistanceInTheBall.epsilon)
        ctx.save_for_backward(x, rest)
        return 1 / rest

    @staticmethod
    def backward(ctx, grad_output):
        x, rest = ctx.saved_tensors
        return (grad_output / rest.square())[..., None] * 2 * x


@pytest.mark.parametrize(("epsilon", "severity"), [(1e-7, "info"), (0.25, "error")])
def test_beyond_the_edge_of_a_domain_that_forward_guards_a_wrong_gradient_is_information(
    epsilon, severity, monkeypatch
):
    monkeypatch.setattr(DistanceInTheBall, "epsilon", epsilon)
    x = (0.1 * leaf(4, 3).detach()).requires_grad_()
    found = audit(DistanceInTheBall.apply, (x,), only=["special_points", "float32"]).findings
    assert found
    assert {f.severity for f in found} == {severity}, found


class KeepsEveryStep(Function):
    """A cube root by Newton's method, which keeps its steps on ctx, and needs the last one alone."""

    @staticmethod
    def forward(ctx, x, steps):
        y, ctx.steps = torch.ones_like(x), []
        for _ in range(steps):
            y = y - (y**3 - x) / (3 * y**2)
            ctx.steps.append(y)
        ctx.scale = torch.tensor(3.0, dtype=x.dtype)
        ctx.save_for_backward(y)
        return y.clone()

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output / (ctx.scale * y * y), None


def test_what_is_kept_on_ctx_and_not_needed_is_said_with_its_bytes():
    x = (leaf(6).detach().abs() + 0.5).requires_grad_()
    (found,) = audit(KeepsEveryStep.apply, (x, 30), only=["unused_saved"]).findings
    assert (found.severity, found.summary) == (
        "warning",
        "ctx.steps keeps 1440 bytes here, and has no influence on any gradient",
    )


class InverseOfRotation(Function):
    """The inverse of a unit quaternion; the gradient belongs to three angles, and a zero fills the fourth place."""

    forgets = False

    @staticmethod
    def forward(ctx, q):
        y = q * torch.tensor([-1.0, -1.0, -1.0, 1.0], dtype=q.dtype)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        y = y.detach() if InverseOfRotation.forgets else y
        vector, last = y[..., :3], y[..., 3:]
        turned = grad_output[..., :3] * last.square() + vector * (vector * grad_output[..., :3]).sum(-1, keepdim=True)
        return torch.cat([-turned, torch.zeros_like(last)], -1)


@pytest.mark.parametrize("forgets", [False, True])
def test_what_is_zero_by_convention_in_a_gradient_may_be_so_in_its_derivative(forgets, monkeypatch):
    monkeypatch.setattr(InverseOfRotation, "forgets", forgets)
    q = torch.nn.functional.normalize(leaf(2, 4).detach(), dim=-1).requires_grad_()
    report = audit(InverseOfRotation.apply, (q,), gradient="custom", only=["second_order"], domain="any")
    assert [f.severity for f in report.findings] == ["warning" if forgets else "info"], report


class BlurFromACache(Function):
    """A symmetric kernel, kept by its dtype; in one of the two, by its width as well."""

    kernels: ClassVar = {}
    by_width = False

    @staticmethod
    def kernel(width, dtype):
        key = (dtype, width if BlurFromACache.by_width else None)
        steps = torch.arange(-2, 3, dtype=dtype)
        return BlurFromACache.kernels.setdefault(key, (-(steps / width).square()).exp().view(1, 1, -1))

    @staticmethod
    def forward(ctx, x, width):
        ctx.width = width
        kernel = BlurFromACache.kernel(width, x.dtype)
        return torch.nn.functional.conv1d(x[:, None], kernel, padding=2)[:, 0]

    @staticmethod
    def backward(ctx, grad_output):
        return BlurFromACache.apply(grad_output, ctx.width), None


@pytest.mark.parametrize("by_width", [False, True])
def test_a_cache_that_forgets_a_number_among_the_arguments_is_found(by_width, monkeypatch):
    monkeypatch.setattr(BlurFromACache, "by_width", by_width)
    report = audit(BlurFromACache.apply, (leaf(2, 9), 1.2), isolate=True, only=["independent_calls"])
    expected = [] if by_width else [(True, "error")]
    assert [("new process" in f.summary, f.severity) for f in report.findings] == expected


class OneSpikeStep(Function):
    """A spike, with the gradient of a fast sigmoid, next to a voltage that it resets."""

    @staticmethod
    def forward(ctx, voltage, current):
        leaky = 0.9 * voltage + current
        spike = (leaky > 1).to(leaky)
        ctx.save_for_backward(leaky, spike)
        return spike, leaky * (1 - spike)

    @staticmethod
    def backward(ctx, grad_spike, grad_voltage):
        leaky, spike = ctx.saved_tensors
        grad = (grad_spike - grad_voltage * leaky) / (1 + (leaky - 1).abs()).square() + grad_voltage * (1 - spike)
        return 0.9 * grad, grad


def test_one_output_in_steps_is_enough_for_a_surrogate():
    (found,) = audit(OneSpikeStep.apply, (leaf(6), leaf(6)), only=["first_order"]).findings
    assert found.severity == "info"
    assert found.summary.endswith("Output 0 does not move when the inputs do, but backward returns a gradient for it")


class SpreadOfMoments(Function):
    """The standard deviation by the mean of squares, next to which it vanishes for large numbers."""

    @staticmethod
    def forward(ctx, x):
        mean = x.mean(-1, keepdim=True)
        spread = (x.square().mean(-1, keepdim=True) - mean.square()).sqrt()
        ctx.save_for_backward(x, mean, spread)
        return spread[..., 0]

    @staticmethod
    def backward(ctx, grad_output):
        x, mean, spread = ctx.saved_tensors
        return grad_output[..., None] * (x - mean) / (x.shape[-1] * spread)


def test_a_division_by_what_has_cancelled_is_told_as_cancellation():
    (found,) = audit(SpreadOfMoments.apply, (leaf(4, 9),), only=["float32"]).of("error")
    assert "10000 added" in found.summary
    assert found.cause.startswith("Digits cancel")


class KeepsForTheFrozen(Function):
    """A product that keeps what the gradient of its second factor alone needs, which the sample holds fixed."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.wide = x.repeat(8, 1)
        ctx.save_for_backward(scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad_output):
        (scale,) = ctx.saved_tensors
        return grad_output * scale, (grad_output * ctx.wide[0]).sum() if ctx.needs_input_grad[1] else None


def test_what_ctx_keeps_for_a_frozen_argument_is_not_kept_in_vain():
    inputs = leaf(6), torch.tensor(2.0, dtype=torch.float64)
    assert not audit(KeepsForTheFrozen.apply, inputs, only=["unused_saved"]).findings


class FreesInput(Function):
    """A scaling that can be undone: forward frees its input, and backward computes it again from the output."""

    @staticmethod
    def forward(ctx, x, log_scale):
        with torch.no_grad():
            y = x * log_scale.exp()
        ctx.x = x.detach()
        ctx.save_for_backward(log_scale, y)
        x.untyped_storage().resize_(0)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        log_scale, y = ctx.saved_tensors
        ctx.x.untyped_storage().resize_(y.untyped_storage().nbytes())
        ctx.x.copy_(y / log_scale.exp())
        return grad_output * log_scale.exp(), (grad_output * y).sum().reshape(log_scale.shape)


class MatrixProduct(Function):
    """A product of matrices."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output @ w.T, x.T @ grad_output


class FreesGradOutput(MatrixProduct):
    """Frees grad_output as soon as backward has used it."""

    @staticmethod
    def backward(ctx, grad_output):
        grads = MatrixProduct.backward(ctx, grad_output)
        grad_output.untyped_storage().resize_(0)
        return grads


class FreesOutput(Function):
    """An exponential whose backward frees its output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.y = y.detach()
        return y

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output * ctx.y
        ctx.y.untyped_storage().resize_(0)
        return grad


@pytest.mark.parametrize(
    ("function", "shapes", "told", "fatal"),
    [
        (lambda x, s: FreesInput.apply(x.clone(), s), [(4, 3), (1,)], "frees the memory of argument 0", set()),
        pytest.param(
            *(FreesGradOutput.apply, [(4, 3), (3, 2)], "frees the memory of grad_output 0", set()), marks=slow
        ),
        # A second backward does read what the first has freed.
        (
            FreesOutput.apply,
            [(4, 3)],
            "backward frees the memory of output 0",
            {"second_order", "backward_twice", "batched_grad"},
        ),
    ],
)
def test_freed_memory_is_told_once_and_crashes_no_other_check(function, shapes, told, fatal):
    report = audit(function, tuple(leaf(*shape) for shape in shapes), isolate=True, skip=["compile"])
    assert len([f.summary for f in report.findings if told in f.summary]) == 1, report
    assert {f.check for f in report.findings if "dies" in f"{f.summary}{f.cause}"} <= fatal, report
    assert report.capabilities["first_order"] == "yes", report


class OverwritesItsOutput(FreesOutput):
    """An exponential that uses its output as scratch memory in backward."""

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.y.mul_(grad_output)


def test_an_output_that_backward_overwrites_counts_as_forward_returned_it():
    report = audit(OverwritesItsOutput.apply, (leaf(4, 3),), skip=["compile"])
    assert {f.check for f in report.of("error")} == {"second_order", "inputs_unchanged", "later_writes"}, report


class SolverLeavesRounding(Function):
    """The inverse of a well-conditioned matrix, whose backward adds rounding even where no gradient arrives."""

    @staticmethod
    def forward(ctx, x):
        inverse = torch.linalg.inv(x + 4 * torch.eye(x.shape[-1], dtype=x.dtype))
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx, grad_output):
        (inverse,) = ctx.saved_tensors
        return -inverse.mT @ grad_output @ inverse.mT + 1e-16 * inverse.mT


def test_what_rounding_leaves_of_an_undefined_gradient_is_zero():
    assert not audit(SolverLeavesRounding.apply, (leaf(3, 3),), only=["undefined_gradient"]).findings


class WarmSolver:
    """Iterates from where the last call ended, until a step is small."""

    def __init__(self):
        self.guess = None

    def solve(self, matrix, b):
        x = torch.zeros_like(b) if self.guess is None else self.guess
        for _ in range(100):
            if (residual := b - matrix @ x).norm() <= 1e-5 * b.norm():
                break
            x = x + 0.2 * residual
        self.guess = x
        return x


WARM = WarmSolver()


class WarmSolve(Function):
    @staticmethod
    def forward(ctx, matrix, b):
        ctx.save_for_backward(matrix)
        return WARM.solve(matrix, b)

    @staticmethod
    def backward(ctx, grad_output):
        (matrix,) = ctx.saved_tensors
        return None, torch.linalg.solve(matrix.mT, grad_output)


def test_a_solver_that_goes_on_from_its_last_solution_is_not_taken_for_one_that_casts():
    matrix = torch.eye(4, dtype=torch.float64) * 3 + 0.1
    WARM.guess = None
    report = audit(lambda b: WarmSolve.apply(matrix, b), (leaf(4),), skip=["compile"])
    assert any("each call goes on from" in note for note in report.notes), report
    assert not [f for f in report.findings if f.check in ("digits", "repeatable", "runs")], report


class CatchesEverything(MatrixProduct):
    """Takes any exception in backward for a reason to return nothing."""

    @staticmethod
    def backward(ctx, grad_output):
        try:
            return MatrixProduct.backward(ctx, grad_output)
        except Exception:
            return None, None


def test_a_backward_that_hides_the_error_of_torch_is_told_so():
    (found,) = audit(CatchesEverything.apply, (leaf(4, 3), leaf(3, 2)), only=["later_writes"]).findings
    assert found.summary.endswith("backward hides the error that torch raises")


class ExpClampedInBackward(Function):
    """An exponential whose backward limits its argument, as renderers do."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.clamp(-15, 15).exp()


def test_a_clamp_in_backward_alone_is_named():
    (found,) = audit(ExpClampedInBackward.apply, (leaf(6),), only=["special_points"]).findings
    assert found.cause.startswith("Backward clamps")
