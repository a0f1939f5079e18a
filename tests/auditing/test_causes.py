"""The cause that a finding names is the one that an experiment confirms, each on the smallest function that has it."""

import itertools
import subprocess
import sys
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.autograd import Function

from autograd_cookbook.auditing import audit
from autograd_cookbook.auditing.checks.execution import BUILT_IN, prepare
from autograd_cookbook.auditing.checks.gradients import in_brief
from autograd_cookbook.auditing.subject import Subject
from tests.harvest.functions import Calls, Double


def leaf(*shape):
    torch.manual_seed(0)
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


# --- a second derivative that is off ---


class CubeOfWhatIsKept(Function):
    """x³ · w, whose backward for x takes x² from forward; another product is kept, which does not depend on x."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w * w, x * x, w)
        return x**3 * w

    @staticmethod
    def backward(ctx, grad_output):
        of_w, of_x, w = ctx.saved_tensors
        return 3 * grad_output * of_x * (of_w / w), None


class ReadsData(Function):
    """x³, of which backward reads .data; what forward keeps has no part in it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, torch.ones(5, dtype=x.dtype) * x.numel())
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        x, _ = ctx.saved_tensors
        return 3 * grad_output * x * x.data


class KeepsANumber(Function):
    """x times its largest absolute value, which is kept as a Python number."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.largest = x.abs().max().item()
        return x * ctx.largest

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        top = (x.abs() == ctx.largest) * x.sign()
        return grad_output * ctx.largest + top * (grad_output * x).sum()


class ReturnsAPart(Function):
    """Rows of powers, of which one is returned, and all are kept."""

    @staticmethod
    def forward(ctx, x):
        ctx.powers = torch.stack([x, x**2, x**3])
        return ctx.powers[2]

    @staticmethod
    def backward(ctx, grad_output):
        return 3 * grad_output * ctx.powers[1]


class KeepsAView(Function):
    """The product of two columns, which are kept as views of the argument."""

    @staticmethod
    def forward(ctx, x):
        a, b = x.unbind(1)
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        return torch.stack([grad_output * b, grad_output * a], 1)


class KeepsAConstantOutput(Function):
    """x³, whose second output, x², is marked as not differentiable."""

    @staticmethod
    def forward(ctx, x):
        square = x * x
        ctx.save_for_backward(square)
        ctx.mark_non_differentiable(square)
        return x**3, square

    @staticmethod
    def backward(ctx, grad_output, _):
        return 3 * grad_output * ctx.saved_tensors[0]


class DifferentiatesInForward(Function):
    """The sum of x³ · w, whose gradients forward computes by torch.func, which allows no hooks on saved tensors."""

    @staticmethod
    def forward(ctx, x, w):
        gradient, value = torch.func.grad_and_value(lambda x: (x**3 * w.detach()).sum())(x.detach())
        ctx.save_for_backward(gradient, x, w)
        return value

    @staticmethod
    def backward(ctx, grad_output):
        gradient, x, w = ctx.saved_tensors
        return grad_output * gradient, grad_output * x**3 + 0 * w


class RefusesTheOthers(Function):
    """A covariance whose backward serves one argument, and whose forward refuses gradients for the other."""

    @staticmethod
    def forward(ctx, x, scale):
        if ctx.needs_input_grad[0]:
            raise RuntimeError("no gradient with respect to x")
        ctx.save_for_backward(2 * x * scale)
        return x * scale**2

    @staticmethod
    def backward(ctx, grad_output):
        return None, grad_output * ctx.saved_tensors[0]


@pytest.mark.parametrize(
    ("function", "arguments", "cause"),
    [
        (CubeOfWhatIsKept, lambda: (leaf(3), leaf(3)), "The backward uses an intermediate result of shape [3]"),
        (ReadsData, lambda: (leaf(3),), "it detaches a part, reads .data"),
        (KeepsANumber, lambda: (leaf(4),), "The backward uses ctx.largest, a number"),
        (ReturnsAPart, lambda: (leaf(4),), "The backward uses ctx.powers, an intermediate result of shape [3, 4]"),
        (KeepsAView, lambda: (leaf(3, 2),), "The backward uses an intermediate result of shape [3]"),
        (KeepsAConstantOutput, lambda: (leaf(3),), "The backward uses an intermediate result of shape [3]"),
        (DifferentiatesInForward, lambda: (leaf(3), leaf(3)), "it uses a result that forward keeps, detaches a part"),
        (
            RefusesTheOthers,
            lambda: (leaf(3).detach(), leaf(3)),
            "The backward uses an intermediate result of shape [3]",
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) and issubclass(value, Function) else "",
)
def test_what_makes_a_second_derivative_wrong_is_named(function, arguments, cause):
    (found,) = audit(function.apply, arguments(), only=["second_order"], isolate=False).findings
    assert cause in found.cause


class LogarithmInPlace(Function):
    """log(x + y), which takes the logarithm in place after it has saved the sum."""

    @staticmethod
    def forward(ctx, x, y):
        total = x + y
        ctx.save_for_backward(total)
        return total.log_()

    @staticmethod
    def backward(ctx, grad_output):
        (total,) = ctx.saved_tensors
        return grad_output / total, grad_output / total


class LargestAndAll(Function):
    """The largest entries, and the squares of all, of which backward knows the first alone."""

    @staticmethod
    def forward(ctx, x):
        values, ctx.indices = x.topk(2)
        ctx.size = len(x)
        return values, x * x

    @staticmethod
    def backward(ctx, of_values, of_squares):
        return of_values.new_zeros(ctx.size).index_add(0, ctx.indices, of_values)


def test_an_output_from_which_no_gradient_comes_back_is_named():
    (found,) = audit(LargestAndAll.apply, (leaf(5),), only=["first_order"], isolate=False).findings
    assert found.cause.startswith("backward leaves out the gradient of output 1"), found.cause


def test_what_forward_writes_after_it_has_saved_it_is_named():
    found = audit(LogarithmInPlace.apply, (leaf(3).abs(), leaf(3).abs()), only=["first_order"], isolate=False).findings
    assert found[0].cause.startswith("forward changes a tensor in place after save_for_backward"), found[0].cause


class Projection(Function):
    """A normalized row times a matrix, in plain torch."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return nn.functional.layer_norm(x, x.shape[-1:]) @ weight

    @staticmethod
    @torch.enable_grad()
    def backward(ctx, grad_output):
        leaves = [t.detach().requires_grad_() for t in ctx.saved_tensors]
        out = nn.functional.layer_norm(leaves[0], leaves[0].shape[-1:]) @ leaves[1]
        return torch.autograd.grad(out, leaves, grad_output)


class Distances(Function):
    """Squared distances of points, by the formula that cancels for points that are far from the origin."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        gap = 2 * grad_output[:, :, None] * (x[:, None] - y)
        return gap.sum(1), -gap.sum(0)


@pytest.mark.parametrize(("function", "right"), [(Projection, True), (Distances, False)])
def test_a_large_number_is_added_to_what_can_have_one(function, right):
    sides = (leaf(4, 4), leaf(4, 4) * 1.3)
    found = audit(function.apply, sides, only=["float32"], isolate=False).findings
    assert any("10000 added" in f.summary for f in found) != right, [f.summary for f in found]


class LeftDirections(Function):
    """The left singular vectors of x as eigenvectors of x·xᵀ; no gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.linalg.eigh(x @ x.mT)[1] * 1.0

    @staticmethod
    def backward(ctx, grad_output):
        return torch.zeros_like(ctx.saved_tensors[0])


def test_rounding_is_judged_where_it_happens():
    """Where all rows are equal, most of the vectors are arbitrary, and no sign of a wrong stride."""
    report = audit(LeftDirections.apply, (leaf(5, 7),), only=["input_layouts"], gradient="custom", isolate=False)
    assert not report.findings, report.findings[0].summary


class ScalesWhatItGets(Function):
    """The square, whose backward doubles grad_output in place."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.data.mul_(2) * ctx.saved_tensors[0].data


def test_a_grad_output_that_is_written_to_is_a_new_one_for_each_difference():
    (found,) = audit(ScalesWhatItGets.apply, (leaf(3),), only=["second_order"], isolate=False).findings
    assert 0.5 < float(found.summary.rpartition(" ")[2]) < 4.5, found.summary  # twice two weights, from 0.5 to 1.5


# --- what is added to a gradient of zero ---


class PrivateLinear(Function):
    """Adds noise to the gradient of the weight, also where no example is in the batch."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output @ weight.mT, x.mT @ grad_output + 0.1 * torch.randn_like(weight)


def test_noise_that_is_declared_is_no_mistake_of_zeros():
    arguments = (leaf(4, 3), leaf(3, 2))
    found = audit(
        PrivateLinear.apply, arguments, gradient="custom", only=["undefined_gradient", "empty"], isolate=False
    )
    assert [(f.check, f.severity) for f in found.findings] == [("undefined_gradient", "info")]
    assert "noise that it adds" in found.findings[0].cause


class SolvesFromOnes(Function):
    """The inverse of 1 + w by repetition, whose backward starts from ones and stops too early for zeros."""

    @staticmethod
    def repeat(w, b, start):
        for _ in range(30):
            start = b - w * start
        return start

    @staticmethod
    def forward(ctx, w, b):
        y = SolvesFromOnes.repeat(w, b, torch.zeros_like(b))
        ctx.save_for_backward(w, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        w, y = ctx.saved_tensors
        u = SolvesFromOnes.repeat(w, grad_output, torch.ones_like(y))
        return -u * y, u


def test_what_an_iteration_leaves_of_zeros_is_called_so():
    arguments = (torch.tensor([0.8], dtype=torch.float64, requires_grad=True), leaf(1))
    (found,) = audit(SolvesFromOnes.apply, arguments, only=["undefined_gradient"], isolate=False).findings
    assert found.cause.startswith("Backward repeats an operation, from a start that is not zero")


# --- parameters of an argument ---


class SolvesWithAModule(Function):
    """Takes any number of arguments, one of them a module, and differentiates with respect to its parameters."""

    @staticmethod
    def forward(ctx, *args):
        x, module, _ = args
        ctx.module = module
        ctx.save_for_backward(x)
        with torch.no_grad():
            return module(x)

    @staticmethod
    def backward(ctx, grad_output):
        parameters = list(ctx.module.parameters())
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            of_x, *of_parameters = torch.autograd.grad(ctx.module(x), [x, *parameters], grad_output)
        return of_x, None, torch.cat([g.reshape(-1) for g in of_parameters])


def test_a_frozen_parameter_of_a_module_cannot_be_left_out_by_the_caller():
    torch.manual_seed(0)

    def solve(x, module):
        return SolvesWithAModule.apply(x, module, torch.cat([p.reshape(-1) for p in module.parameters()]))

    report = audit(solve, (leaf(2, 3), nn.Linear(3, 3).double()), only=["subsets"], isolate=False)
    assert [(f.check, f.severity) for f in report.findings] == [("subsets", "error")]


# --- infinities ---


class SumOfExponentials(Function):
    """Backward takes the logarithm of zero, which is meant, and an exponential, which half precision does not hold."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.logsumexp(0)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        exponentials = torch.cat([torch.zeros_like(x[:1]).log(), x]).exp()
        return grad_output * exponentials[1:] / exponentials.sum()


def test_a_logarithm_of_zero_that_is_meant_does_not_hide_what_overflows():
    (found,) = audit(SumOfExponentials.apply, (leaf(6),), only=["float16"], isolate=False).findings
    assert found.cause.startswith("An intermediate result overflows")


class CancelsFourthPowers(Function):
    """tanh, to whose gradient a difference is added that is zero, but for what rounding leaves of large powers."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (1 - x.tanh().square() + (x.square().square() - x * x * x * x))


def test_a_gradient_that_is_finite_and_far_from_right_is_told():
    (found,) = audit(CancelsFourthPowers.apply, (leaf(6),), only=["bfloat16"], isolate=False).findings
    assert "with the sample and numbers up to 20, the gradient of input 0 is off by" in found.summary


# --- sizes that are none ---


class SumOfTheSmallest(Function):
    """The sum of the k smallest numbers, whose gradient is right only where these are all of them."""

    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        return x.sort(-1).values[..., :k].sum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output[..., None].expand_as(x), None


@pytest.mark.parametrize(("k", "right"), [(4, True), (3, False)])
def test_a_number_that_is_a_size_follows_it(k, right):
    report = audit(SumOfTheSmallest.apply, (leaf(3, 4), k), only=["first_order", "sizes"], isolate=False)
    assert report.ok is right, str(report)


class Filters(Function):
    """A convolution of each channel with its own taps, which are constant and three by three."""

    @staticmethod
    def forward(ctx, x, taps):
        ctx.save_for_backward(taps)
        return nn.functional.conv2d(x, taps, padding=1, groups=x.shape[1])

    @staticmethod
    def backward(ctx, grad_output):
        (taps,) = ctx.saved_tensors
        return nn.functional.conv2d(grad_output, taps.flip(2, 3), padding=1, groups=grad_output.shape[1]), None


def test_constant_taps_keep_their_size():
    arguments = (leaf(2, 3, 6, 6), leaf(3, 1, 3, 3).detach())
    report = audit(Filters.apply, arguments, only=["first_order", "sizes"], isolate=False)
    assert report.ok, str(report)


class RowSums(Function):
    """The sums of rows of different lengths, which are stored one after the other."""

    @staticmethod
    def forward(ctx, values, offsets):
        ctx.save_for_backward(offsets)
        return torch.stack([values[a:b].sum() for a, b in itertools.pairwise(offsets)])

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.repeat_interleave(ctx.saved_tensors[0].diff()), None


def test_what_offsets_divide_keeps_its_size():
    arguments = (leaf(7), torch.tensor([0, 2, 2, 7]))
    report = audit(RowSums.apply, arguments, only=["first_order", "sizes", "empty"], isolate=False)
    assert report.ok, str(report)


class RowsAsOneColumn(Function):
    """Doubles, and takes it for granted in backward that all rows are one after the other."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output.view(-1, grad_output.shape[-1]).view(grad_output.shape)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_batch_of_one_hides_no_layout(batch):
    arguments = (leaf(batch, 1, 4),)
    (found,) = audit(RowsAsOneColumn.apply, arguments, only=["grad_output_layouts"], isolate=False).findings
    assert found.severity == "error"


class SingularVectors(Function):
    """The outer product of the first singular vectors, whose gradient divides by what is zero for zeros."""

    @staticmethod
    def forward(ctx, x):
        u, s, vh = torch.linalg.svd(x, full_matrices=False)
        ctx.save_for_backward(u, s, vh)
        return torch.outer(u[:, 0], vh[0])

    @staticmethod
    def backward(ctx, grad_output):
        u, s, vh = ctx.saved_tensors
        du, dvh = torch.zeros_like(u), torch.zeros_like(vh)
        du[:, 0], dvh[0] = grad_output @ vh[0], u[:, 0] @ grad_output
        f = 1 / (s**2 - s[:, None] ** 2).fill_diagonal_(torch.inf)
        left, right = u.mT @ du, vh @ dvh.mT
        inner = f * (left - left.mT) * s + s[:, None] * f * (right - right.mT)
        return (u @ inner + (du - u @ left) / s) @ vh


def test_zeros_have_no_singular_vectors():
    report = audit(SingularVectors.apply, (leaf(4, 3),), only=["first_order", "special_points"], isolate=False)
    assert report.ok, str(report)


# --- what is not the function's ---


def test_the_operators_of_torch_are_known_as_such():
    """In a fresh process, where no library has registered its own."""
    code = (
        "import torch, torch.distributed.tensor, torch.distributed.fsdp, torch.nn.attention.flex_attention\n"
        "print(*{name.split('::')[0] for name in torch._C._dispatch_get_all_op_names()})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) <= BUILT_IN


class DividesByItsSize(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.size = x.numel()
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * (1.0 / ctx.size) * ctx.size


def test_an_exception_of_python_is_told_with_its_line_and_not_as_that_of_a_library():
    (found,) = audit(DividesByItsSize.apply, (leaf(4),), only=["empty"], isolate=False).findings
    raised = "The code, or an operation in it, raises ZeroDivisionError: float division by zero. This happens in "
    line = "``return grad_output * (1.0 / ctx.size) * ctx.size`` (test_causes.py, line "
    assert found.cause.startswith(f"{raised}{line}"), found.cause


# --- what the sample does not show ---


class SoftmaxAlong(Function):
    """A softmax whose rule for vmap passes on the dim as it is."""

    @staticmethod
    def forward(x, dim=-1):
        return x.softmax(dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        product = grad_output * y
        return product - y * product.sum(ctx.dim, keepdim=True), None

    @staticmethod
    def vmap(info, in_dims, x, dim):
        return SoftmaxAlong.apply(x.movedim(in_dims[0], 0), dim), 0


def softmax_along(x, dim=-1):
    return SoftmaxAlong.apply(x, dim)


@pytest.mark.parametrize("arguments", [(), (-1,)], ids=["a default", "given"])
def test_a_rule_for_vmap_is_tried_with_other_dims(arguments):
    (found,) = audit(softmax_along, (leaf(3, 4), *arguments), only=["vmap"], isolate=False).findings
    assert "with dim=" in found.summary or "instead of -1 in input 1" in found.summary
    assert found.cause.startswith("The rule for vmap ignores this argument, or passes it on")


@torch.library.custom_op("tests_causes::energy", mutates_args=())
def energy(x: torch.Tensor, keepdim: bool = False) -> torch.Tensor:
    return x.square().sum(-1, keepdim=keepdim)


@energy.register_fake
def _(x, keepdim=False):
    return x.new_empty(x.shape[:-1])


energy.register_autograd(
    lambda ctx, grad: (2 * grad.reshape(*ctx.saved_tensors[0].shape[:-1], 1) * ctx.saved_tensors[0], None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


def energy_of_rows(x, keepdim=False):
    return energy(x, keepdim)


def test_an_operator_is_checked_with_flags_that_are_left_to_their_defaults():
    found = audit(energy_of_rows, (leaf(4, 3),), only=["opcheck"], isolate=False).findings
    assert any("test_faketensor fails, with keepdim=True instead of False" in f.summary for f in found), found


class Solves(Function):
    @staticmethod
    def forward(ctx, a, b):
        x = torch.linalg.solve(a, b)
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        a, x = ctx.saved_tensors
        of_b = torch.linalg.solve(a.mT, grad_output)
        return -of_b @ x.mT, of_b


class KnowsItsLastMatrix(Solves):
    """Takes the inverse of the last call if the matrix is the same object."""

    last: ClassVar = [None, None]

    @staticmethod
    def forward(ctx, a, b):
        if KnowsItsLastMatrix.last[0] is not a:
            KnowsItsLastMatrix.last[:] = a, torch.linalg.inv(a.detach())
        x = KnowsItsLastMatrix.last[1] @ b
        ctx.save_for_backward(a, x)
        return x


def test_the_very_same_tensors_with_other_contents_are_tried():
    arguments = (torch.randn(3, 3, dtype=torch.float64).add(4 * torch.eye(3)).requires_grad_(), leaf(3, 2))
    (found,) = audit(KnowsItsLastMatrix.apply, arguments, only=["repeatable"], isolate=False).findings
    assert found.summary.startswith("after a call with other values in the same memory")


class SumsSortedEdges(Function):
    """Adds weighted rows to where they belong, and returns the gradient of the weights in the order of the targets."""

    @staticmethod
    def forward(ctx, target, weight, x):
        order = target.argsort(stable=True)
        ctx.save_for_backward(target[order], order, weight, x)
        return torch.zeros_like(x).index_add(0, target[order], weight[order, None] * x[order])

    @staticmethod
    def backward(ctx, grad_output):
        target, order, weight, x = ctx.saved_tensors
        rows = grad_output[target]
        of_x = torch.zeros_like(x).index_copy(0, order, weight[order, None] * rows)
        return None, (rows * x[order]).sum(-1), of_x


def test_indices_are_tried_out_of_order():
    arguments = (torch.tensor([0, 0, 1, 3]), leaf(4), leaf(4, 2))
    report = audit(SumsSortedEdges.apply, arguments, only=["first_order", "special_points", "sizes"], isolate=False)
    assert [f.check for f in report.findings] == ["special_points"], str(report)
    assert "The sample has its indices in order" in report.findings[0].cause


def test_what_a_solver_loses_in_an_ill_conditioned_matrix_is_no_mistake():
    def polynomial(nodes, values):
        return Solves.apply(torch.stack([nodes**k for k in range(len(nodes))], 1), values[:, None])

    arguments = (torch.linspace(0, 1, 9, dtype=torch.float64).requires_grad_(), leaf(9))
    report = audit(polynomial, arguments, only=["first_order", "float32"], isolate=False)
    assert report.ok, str(report)


# --- what only other numbers show ---


class KernelOfOneSet(Function):
    """x @ y.T; where both hold the same numbers, backward takes them for one set, and y has no gradient of its own."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y.T

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        if x.shape == y.shape and torch.equal(x, y):
            return (grad_output + grad_output.T) @ x, torch.zeros_like(y)
        return grad_output @ y, grad_output.T @ x


def test_two_arguments_are_tried_with_the_same_numbers():
    (found,) = audit(KernelOfOneSet.apply, (leaf(4, 2), leaf(5, 2) + 1), only=["special_points"]).findings
    assert found.summary.startswith("at the same numbers in input 0 and input 1")


class Returns(Function):
    """Sums of what follows in an episode, whose ends are marked; backward takes each mark one step too late."""

    @staticmethod
    def forward(ctx, reward, ends):
        ctx.ends, total, sums = ends, torch.zeros_like(reward[0]), []
        for r, end in zip(reward.flip(0), ends.flip(0), strict=True):
            total = r + torch.where(end, 0, total)
            sums.append(total)
        return torch.stack(sums[::-1])

    @staticmethod
    def backward(ctx, grad_output):
        total, sums = torch.zeros_like(grad_output[0]), []
        for g, end in zip(grad_output, ctx.ends, strict=True):
            total = g + torch.where(end, 0, total)
            sums.append(total)
        return torch.stack(sums), None


def test_a_mask_of_nothing_is_tried_with_true_and_false():
    arguments = (leaf(6, 3), torch.zeros(6, 3, dtype=torch.bool))
    (found,) = audit(Returns.apply, arguments, only=["special_points"]).findings
    assert found.summary.startswith("at True and False at random in input 1")


class Leaky(Function):
    """max(x, slope · x), whose backward knows no slope but zero."""

    @staticmethod
    def forward(ctx, x, slope=0.0):
        ctx.save_for_backward(x)
        return torch.maximum(x, slope * x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x > 0), None


def test_a_number_that_is_left_at_zero_is_tried_at_another():
    (found,) = audit(lambda x, slope=0.0: Leaky.apply(x, slope), (leaf(4),), only=["special_points"]).findings
    assert found.summary.startswith("at slope=0.5 instead of 0.0")


class KeepsItsFirstTable(Function):
    """A cosine transform, whose table is made in the dtype of the first call with this size."""

    tables: ClassVar = {}

    @staticmethod
    def forward(ctx, x):
        n = x.shape[-1]
        if n not in KeepsItsFirstTable.tables:
            k = torch.arange(n, dtype=x.dtype)
            KeepsItsFirstTable.tables[n] = torch.cos(torch.pi / n * k[:, None] * (k + 0.5))
        ctx.table = KeepsItsFirstTable.tables[n].to(x.dtype)
        return x @ ctx.table

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output @ ctx.table.T


@pytest.mark.skipif(sys.platform != "linux", reason="a first call needs a process that is forked")
def test_the_first_call_is_tried_in_another_dtype():
    (found,) = audit(KeepsItsFirstTable.apply, (leaf(3, 8),), only=["independent_calls"]).findings
    assert found.summary.startswith("after a first call in bfloat16")


def test_a_slow_gradient_is_not_taken_for_right_because_of_one_direction():
    drawn = torch.Generator().manual_seed(3)
    first, second = (torch.randn(4, generator=drawn, dtype=torch.float64) for _ in range(2))
    off = first - (first @ second) / (second @ second) * second  # no slope in the second direction of along_directions

    class Off(Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * (1 + off)

    subject = Subject(Off.apply, (leaf(4),))
    assert prepare(subject) is None
    assert [found.check for found in in_brief(subject)]


# --- what only looks wrong ---


def test_a_third_derivative_is_judged_at_the_scale_of_the_sample():
    """Distances between atoms in meters: a step of a thousandth is longer than the molecule."""
    positions = (
        1e-10 * torch.tensor([[0.0, 0, 0], [0.96, 0, 0], [0.3, 0.4, 2.7]], dtype=torch.float64)
    ).requires_grad_()

    class Inverse(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 1 / x

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return -grad_output / x**2

    def energy(x):
        return 1e-28 * Inverse.apply((x[:, None] - x[None]).square().sum(-1)[[0, 0, 1], [1, 2, 2]].sqrt())

    report = audit(energy, (positions,), only=["first_order", "second_order"])
    assert report.ok, str(report)


class LogOfOneMinusExp(Function):
    """log(1 - exp(x)) for x < 0, right in all digits."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.log(-torch.expm1(x))

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.exp() / torch.expm1(x)


def test_a_gradient_that_the_dtype_cannot_hold_may_be_infinite():
    x = torch.tensor([-1e-7, -0.5, -2.0], dtype=torch.float64, requires_grad=True)
    report = audit(LogOfOneMinusExp.apply, (x,), only=["first_order", "float16"])
    assert not [f for f in report.findings if "the gradient" in f.summary], str(report)


class SlopeOfSwish(Function):
    """The backward of a swish; its own backward lacks a term."""

    @staticmethod
    def forward(ctx, x, grad_output):
        ctx.save_for_backward(x, grad_output)
        s = torch.sigmoid(x)
        return grad_output * (s + x * s * (1 - s))

    @staticmethod
    def backward(ctx, again):
        x, grad_output = ctx.saved_tensors
        s = torch.sigmoid(x)
        return again * grad_output * s * (1 - s), again * (s + x * s * (1 - s))


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_output):
        return SlopeOfSwish.apply(*ctx.saved_tensors, grad_output)


def test_the_function_within_the_backward_is_named():
    (found,) = audit(Swish.apply, (leaf(3, 4),), only=["first_order", "second_order"]).findings
    assert "calls SlopeOfSwish" in found.cause


class AddsNoise(Function):
    """Returns its input; its backward adds noise, of which the sample wants none."""

    @staticmethod
    def forward(ctx, x, size):
        ctx.size = size
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output + ctx.size * torch.randn_like(grad_output), None


def test_a_zero_that_forward_does_not_use_stays_zero():
    report = audit(AddsNoise.apply, (leaf(3, 4), 0.0), only=["first_order", "special_points"])
    assert report.ok, str(report)


# --- what only other arguments show ---


class Frames(Function):
    """Overlapping windows of a signal, whose backward keeps one of the gradients where they overlap."""

    @staticmethod
    def forward(ctx, x, hop):
        starts = torch.arange(0, len(x) - 3, hop)
        ctx.places = starts[:, None] + torch.arange(4)
        ctx.n = len(x)
        return x[ctx.places]

    @staticmethod
    def backward(ctx, grad_output):
        result = grad_output.new_zeros(ctx.n)
        result[ctx.places] += grad_output
        return result, None


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        pytest.param(lambda x, hop=None: Frames.apply(x, hop or 4), (), "at hop=1 instead of None", id="None"),
        pytest.param(lambda x, hop: Frames.apply(x, hop), (4,), "at 3 instead of 4 in input 1", id="a count"),
    ],
)
def test_guesses_stand_for_none_and_neighbors_for_counts(function, arguments, said):
    (found,) = audit(function, (leaf(13), *arguments), only=["first_order", "special_points"]).findings
    assert found.summary.startswith(said)


class Padded(Function):
    """Neighbors added up, with a border of zeros or a mirrored one; backward knows the zeros."""

    @staticmethod
    def forward(ctx, x, mode):
        border = {"constant": x.new_zeros(1), "reflect": x[1:2]}[mode]
        return torch.cat([border, x[:-1]]) + x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output + torch.cat([grad_output[1:], grad_output.new_zeros(1)]), None


def test_other_words_are_tried():
    (found,) = audit(Padded.apply, (leaf(5), "constant"), only=["first_order", "special_points"]).findings
    assert found.summary.startswith("at 'reflect' instead of 'constant' in input 1")


class SumOfMasked(Function):
    @staticmethod
    def forward(ctx, x, mask):
        if mask is not None:
            x.detach().masked_fill_(~mask, 0)
        ctx.mask, ctx.shape = mask, x.shape
        return x.sum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output[..., None].expand(ctx.shape)
        return grad.clone() if ctx.mask is None else grad * ctx.mask, None


def test_a_mask_is_tried_where_the_sample_has_none():
    arguments = (leaf(3, 4),)
    report = audit(lambda x, mask=None: SumOfMasked.apply(x, mask), arguments, only=["inputs_unchanged"])
    assert [f.summary for f in report.findings] == [
        "with mask=<a random mask> instead of None, the function changes input 0"
    ]


class LastOfEach(Function):
    """The entry of each row at its length; backward takes all rows for full."""

    @staticmethod
    def forward(ctx, x, lengths):
        ctx.shape = x.shape
        return x.gather(1, lengths[:, None] - 1)

    @staticmethod
    def backward(ctx, grad_output):
        grad = grad_output.new_zeros(ctx.shape)
        grad[:, -1:] = grad_output
        return grad, None


def test_lengths_are_tried_that_are_not_full():
    arguments = (leaf(3, 4), torch.full((3,), 4))
    (found,) = audit(LastOfEach.apply, arguments, only=["first_order", "special_points"]).findings
    assert found.summary.startswith("at 3 as one entry in input 1")


class Tempered(Function):
    """x² / t, whose jvp forgets t."""

    @staticmethod
    def forward(x, t):
        return x**2 / t

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.t = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output / ctx.t, None

    @staticmethod
    def jvp(ctx, tangent, _):
        (x,) = ctx.saved_tensors
        return 2 * x * tangent


def test_a_jvp_is_tried_with_other_numbers():
    (found,) = audit(Tempered.apply, (leaf(4), 1.0), only=["forward_mode"]).findings
    assert found.summary.startswith("with 0.75 instead of 1.0 in input 1, forward mode gives the slope")


class StepsAside(Function):
    """x³, whose backward saves a product where grad_output is 1."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x**2 if bool((grad_output == 1).all()) else 3 * x**2 * grad_output


def test_a_shortcut_for_a_grad_output_of_ones_is_seen_in_the_second_derivative():
    (found,) = audit(StepsAside.apply, (leaf(3),), only=["first_order", "second_order"]).findings
    assert found.summary.startswith("for a grad_output of ones, the derivative by grad_output 0 is 0")


class SolvesTheSymmetric(Function):
    """A⁻¹ b, whose backward solves with A where it needs the transpose."""

    @staticmethod
    def forward(ctx, a, b):
        x = torch.linalg.solve(a, b)
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        a, x = ctx.saved_tensors
        of_b = torch.linalg.solve(a, grad_output)
        return -of_b @ x.mT, of_b


def test_a_matrix_that_is_symmetric_by_chance_is_tried_without_symmetry():
    a = leaf(3, 3).detach()
    arguments = ((a + a.T + 6 * torch.eye(3)).requires_grad_(), leaf(3, 2))
    (found,) = audit(SolvesTheSymmetric.apply, arguments, only=["first_order", "special_points"]).findings
    assert (found.severity, found.summary.startswith("at a matrix that is not symmetric in input 0")) == (
        "warning",
        True,
    )
    solves = audit(Solves.apply, arguments, only=["first_order", "special_points"])
    assert solves.ok, str(solves)


class SharedKeys(Function):
    """Products of queries with keys, of which several queries share one; backward adds them up in the wrong order."""

    @staticmethod
    def forward(ctx, q, k):
        ctx.save_for_backward(q, k)
        return q * k.repeat_interleave(len(q) // len(k), 0)

    @staticmethod
    def backward(ctx, grad_output):
        q, k = ctx.saved_tensors
        times = len(q) // len(k)
        return grad_output * k.repeat_interleave(times, 0), (grad_output * q).reshape(times, *k.shape).sum(0)


def test_all_inputs_are_tried_twice_as_large():
    def checked(q, k):
        if len(q) % len(k):
            raise ValueError("each key is for as many queries")
        return SharedKeys.apply(q, k)

    (found,) = audit(checked, (leaf(3, 2), leaf(1, 2)), only=["first_order", "sizes"]).findings
    assert found.summary.startswith("with dim 0 of all inputs twice as large")


class KeepsItsFirstFilter(Function):
    """x times a filter that the first call makes."""

    kept: ClassVar = {}

    @staticmethod
    def forward(ctx, x):
        taps = KeepsItsFirstFilter.kept.setdefault(len(x), torch.arange(1, len(x) + 1).double())
        ctx.save_for_backward(taps)
        return x * taps

    @staticmethod
    def backward(ctx, grad_output):
        (taps,) = ctx.saved_tensors
        return grad_output * taps


@pytest.mark.skipif(sys.platform != "linux", reason="a first call needs a process that is forked")
def test_the_first_call_is_tried_in_inference_mode():
    (found,) = audit(KeepsItsFirstFilter.apply, (leaf(7),), only=["independent_calls"]).findings
    assert found.summary.startswith("after a first call in inference mode")


class Composites(Function):
    """Colors behind one another, where backward divides what lies behind a sample by what comes through it."""

    @staticmethod
    def forward(ctx, alpha, color):
        through = torch.cat([alpha.new_ones(1), (1 - alpha).cumprod(0)[:-1]])
        ctx.save_for_backward(alpha, color, through)
        return (through * alpha * color).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        alpha, color, through = ctx.saved_tensors
        parts = through * alpha * color
        behind = parts.sum() - parts.cumsum(0)
        return grad_output * (through * color - behind / (1 - alpha).clamp(min=1e-10)), grad_output * through * alpha


def test_an_opacity_of_one_is_tried():
    arguments = (leaf(5).detach().sigmoid().requires_grad_(), leaf(5))

    def checked(alpha, color):
        if not bool(((alpha >= 0) & (alpha <= 1)).all()):
            raise ValueError("an opacity is from 0 to 1")
        return Composites.apply(alpha, color)

    (found,) = audit(checked, arguments, only=["first_order", "special_points"]).findings
    assert "one of one" in found.summary


class DragPower(Function):
    """|v|³ of rows, whose backward differentiates a root of what may be zero."""

    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return v.square().sum(-1) ** 1.5

    @staticmethod
    def backward(ctx, grad_output):
        (v,) = ctx.saved_tensors
        return 3 * grad_output[..., None] * v.square().sum(-1, keepdim=True).sqrt() * v


def test_second_derivatives_are_tried_at_zeros():
    (found,) = audit(DragPower.apply, (leaf(4, 3),), only=["first_order", "second_order"]).findings
    assert found.summary.startswith("at all zeros, the second derivative with respect to input 0 is nan")


class TurnsBy(Function):
    """v rotated by a quaternion that forward normalizes; backward forgets that it did."""

    @staticmethod
    def forward(ctx, q, v):
        ctx.save_for_backward(q, v)
        return TurnsBy.turned(q, v)

    @staticmethod
    def turned(q, v):
        q = q / q.norm()
        return v + 2 * torch.linalg.cross(q[1:], torch.linalg.cross(q[1:], v) + q[0] * v)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        q, v = ctx.saved_tensors
        with torch.enable_grad():
            unit, v = (t.detach().requires_grad_() for t in (q / q.norm(), v))
            return torch.autograd.grad(TurnsBy.turned(unit, v), (unit, v), grad_output)


def test_a_function_that_normalizes_is_tried_with_what_is_longer():
    q = leaf(4).detach()
    arguments = ((q / q.norm()).requires_grad_(), leaf(3))
    report = audit(TurnsBy.apply, arguments, only=["first_order", "special_points"])
    assert [f.summary[:35] for f in report.findings] == ["at twice the length in input 0, the"], str(report)


class Gate(nn.Module):
    def forward(self, x):
        return GatesByMode.apply(x, self)


class GatesByMode(Function):
    """A soft gate in training and a hard one in evaluation; backward asks for the mode again."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.save_for_backward(x)
        ctx.module = module
        return x * torch.sigmoid(x) if module.training else x * (x > 0)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_output * (s + x * s * (1 - s) if ctx.module.training else x > 0), None


def test_the_mode_of_a_module_is_changed_before_backward():
    (found,) = audit(Gate(), (leaf(5),), only=["independent_calls"]).findings
    assert found.summary.startswith("with eval() or train() called between forward and backward")


class SquaredDifference(Function):
    """The gradient of the target is that of the prediction, negated in place."""

    @staticmethod
    def forward(ctx, prediction, target):
        ctx.save_for_backward(prediction, target)
        return (prediction - target).square()

    @staticmethod
    def backward(ctx, grad_output):
        prediction, target = ctx.saved_tensors
        grad = 2 * grad_output * (prediction - target)
        return grad, grad.neg_() if ctx.needs_input_grad[1] else None


def test_other_gradients_stay_where_a_target_requires_grad():
    report = audit(SquaredDifference.apply, (leaf(5), torch.ones(5, dtype=torch.float64)), only=["subsets"])
    (found,) = report.findings
    assert found.summary.startswith(
        "if input 1 requires grad, too, which the sample holds fixed, the gradient of input 0"
    )


@torch.library.custom_op("causes::power", mutates_args=())
def power(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32)).square()


@power.register_fake
def _(x):
    return torch.empty_like(x)


power.register_autograd(
    lambda ctx, grad: (2 * ctx.saved_tensors[0] * grad).to(ctx.saved_tensors[0].dtype),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def test_what_a_fake_kernel_promises_is_tried_in_other_dtypes():
    (found,) = audit(power, (leaf(3),), only=["opcheck"], isolate=False).findings
    assert "test_faketensor fails in bfloat16" in found.summary


class LogitsAgainstTheirMean(Function):
    """Products with the rows of a matrix, less their mean; the gradient cancels to noise if all rows are equal."""

    @staticmethod
    def forward(ctx, x, rows):
        ctx.save_for_backward(x, rows)
        products = x @ rows.T
        return products - products.mean(-1, keepdim=True)

    @staticmethod
    def backward(ctx, grad_output):
        x, rows = ctx.saved_tensors
        grad = grad_output - grad_output.mean(-1, keepdim=True)
        return grad @ rows, grad.T @ x


def test_noise_in_what_cancels_is_not_compared():
    report = audit(LogitsAgainstTheirMean.apply, (leaf(4, 6), leaf(5, 6)), only=["first_order", "input_layouts"])
    assert report.ok, str(report)


class AddsABias(Function):
    """x plus a bias, whose gradient is summed over the samples and spread again, also where each has its own."""

    @staticmethod
    def forward(ctx, x, bias):
        ctx.shape = bias.shape
        return x + bias

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output.sum(0).expand(ctx.shape)


class AddsABiasOfAnyShape(AddsABias):
    """The same, summed over the dims in which the bias was expanded."""

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output.sum_to_size(ctx.shape)


@pytest.mark.parametrize(("function", "right"), [(AddsABias, False), (AddsABiasOfAnyShape, True)])
def test_an_argument_that_is_expanded_is_tried_with_an_entry_for_each_result(function, right):
    found = audit(function.apply, (leaf(4, 5, 3), leaf(5, 3)), only=["first_order", "sizes"], isolate=False).findings
    assert any("an entry for each result in input 1" in f.summary for f in found) != right, [f.summary for f in found]


class SquareInPlace(Function):
    """The square, on demand in place: what is saved is then the result, which backward takes for the argument."""

    @staticmethod
    def forward(ctx, x, inplace):
        ctx.save_for_backward(x)
        if inplace:
            ctx.mark_dirty(x)
            return x.mul_(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output * ctx.saved_tensors[0], None


def test_a_flag_that_lets_forward_write_to_an_input_is_tried():
    def square(x, inplace=False):
        return SquareInPlace.apply(x, inplace)

    found = audit(square, (leaf(3),), only=["first_order", "special_points"], isolate=False).findings
    assert [f.summary.partition(",")[0] for f in found] == ["at inplace=True instead of False"]


WINDOWS: dict[int, torch.Tensor] = {}


class Window(Function):
    """x times a window of some width, which is kept by the length of x alone."""

    @staticmethod
    def forward(ctx, x, width):
        n = len(x)
        if n not in WINDOWS:
            WINDOWS[n] = torch.exp(-torch.arange(n, dtype=torch.float64) / width)
        return x * WINDOWS[n].to(x.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * WINDOWS[len(grad_output)].to(grad_output.dtype), None


def test_a_cache_that_forgets_a_number_is_found_where_the_sample_leaves_the_number_to_its_default():
    def windowed(x, width=2.0):
        return Window.apply(x, width)

    found = audit(windowed, (leaf(5),), only=["independent_calls"]).findings
    assert [f.summary.partition(",")[0] for f in found] == ["with another number among the arguments"]


class BelowOne(Function):
    """arctanh, which refuses numbers beyond its domain, with a rule for vmap."""

    @staticmethod
    def forward(x):
        if not torch.is_inference(x) and bool((x.abs() >= 1).any()):
            raise ValueError("expected numbers between -1 and 1")
        return torch.atanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output / (1 - ctx.saved_tensors[0] ** 2)

    @staticmethod
    def vmap(info, in_dims, x):
        return BelowOne.apply(x), in_dims[0]


def test_a_batch_for_vmap_is_made_of_numbers_in_the_domain():
    near_one = torch.tensor([0.1, -0.5, 0.95], dtype=torch.float64, requires_grad=True)
    report = audit(BelowOne.apply, (near_one,), only=["vmap"], isolate=False)
    assert report.capabilities["vmap"] == "yes", report


class StrictlyInside(Function):
    """arctanh for float64; what rounds to one in float32 is refused."""

    @staticmethod
    def forward(ctx, x):
        if bool((x.abs() >= 1).any()):
            raise ValueError("expected numbers between -1 and 1")
        ctx.save_for_backward(x)
        return torch.atanh(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output / ((1 - x) * (1 + x))


def test_what_a_function_refuses_by_itself_is_not_measured():
    near_one = torch.tensor([0.1, -0.5, 1 - 1e-9], dtype=torch.float64, requires_grad=True)
    report = audit(StrictlyInside.apply, (near_one,), only=["digits"], isolate=False)
    assert not report.findings, report.findings[0].summary
    assert any("refuses what is tried: digits" in note for note in report.notes), report.notes


class PowerOfTheSize(Function):
    """x·|x|^p, whose slope at zero is zero; differences show it only more and more closely."""

    @staticmethod
    def forward(ctx, x, p):
        ctx.save_for_backward(x)
        ctx.p = p
        return x * x.abs() ** p

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * (1 + ctx.p) * ctx.saved_tensors[0].abs() ** ctx.p, None


@pytest.mark.parametrize("p", [0.5, 1.0])
def test_a_slope_that_differences_approach_is_right(p):
    report = audit(lambda x: PowerOfTheSize.apply(x, p), (leaf(3),), only=["first_order", "special_points"])
    assert not report.findings, report.findings[0].summary


class ProjectsItsTangent(Function):
    """x divided by its norm, whose jvp takes the radial part out of the tangent in place."""

    @staticmethod
    def forward(x):
        return x / x.norm()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)
        ctx.save_for_forward(*inputs, output)

    @staticmethod
    def backward(ctx, grad_output):
        x, unit = ctx.saved_tensors
        return (grad_output - unit * (unit * grad_output).sum()) / x.norm()

    @staticmethod
    def jvp(ctx, tangent):
        x, unit = ctx.saved_tensors
        return tangent.sub_(unit * (unit * tangent).sum()) / x.norm()


def test_a_jvp_that_writes_to_its_tangent_is_found():
    found = audit(ProjectsItsTangent.apply, (leaf(3),), only=["first_order", "forward_mode"], isolate=False).findings
    assert [f.summary for f in found] == ["jvp changes the tangent of input 0 that it receives"]


class BlockSolve(Function):
    """The solution of a symmetric system given in blocks (n, n, k, k), by a Cholesky decomposition."""

    @staticmethod
    def forward(ctx, blocks, b):
        n, k = b.shape
        factor = torch.linalg.cholesky(blocks.transpose(1, 2).reshape(n * k, n * k))
        x = torch.cholesky_solve(b.reshape(-1, 1), factor)
        ctx.save_for_backward(factor, x)
        return x.reshape(n, k)

    @staticmethod
    def backward(ctx, grad_output):
        factor, x = ctx.saved_tensors
        n, k = grad_output.shape
        dual = torch.cholesky_solve(grad_output.reshape(-1, 1), factor)
        return -(x @ dual.mT).reshape(n, k, n, k).transpose(1, 2), dual.reshape(n, k)


def test_a_matrix_of_blocks_that_is_symmetric_stays_so():
    jacobian = leaf(9, 6).detach()
    blocks = (jacobian.mT @ jacobian).reshape(2, 3, 2, 3).transpose(1, 2).contiguous().requires_grad_()
    found = audit(BlockSolve.apply, (blocks, leaf(2, 3)), only=["first_order", "sizes"], isolate=False).findings
    assert [f.severity for f in found] == ["info"], [f.summary for f in found]
    assert "right only if the matrix stays symmetric" in found[0].summary


class MomentsOfRows(Function):
    """x·A·x for rows that hold a symmetric matrix A of two rows as four numbers; backward takes A for symmetric."""

    @staticmethod
    def forward(ctx, rows):
        matrix = rows.unflatten(1, (2, 2))  # and no other length
        ctx.save_for_backward(matrix)
        return (matrix @ matrix).sum((1, 2))

    @staticmethod
    def backward(ctx, grad_output):
        (matrix,) = ctx.saved_tensors
        ones = torch.ones_like(matrix)
        return (grad_output[:, None, None] * (ones @ matrix + matrix @ ones)).reshape(-1, 4)


def test_rows_with_an_order_of_their_own_are_repeated_and_not_mixed():
    x = leaf(2, 2, 2).detach()
    rows = (x + x.mT).reshape(2, 4).requires_grad_()
    assert not audit(MomentsOfRows.apply, (rows,), only=["first_order", "sizes"], isolate=False).findings


def test_where_no_argument_has_any_size_no_large_number_is_added():
    """The matrix is symmetric, so the audit keeps it so, and adds nothing to it."""

    class Trace(Function):
        @staticmethod
        def forward(ctx, matrix):
            ctx.save_for_backward(matrix)
            return matrix.square().diagonal().sum()

        @staticmethod
        def backward(ctx, grad_output):
            (matrix,) = ctx.saved_tensors
            return 2 * grad_output * matrix.diagonal().diag()

    matrix = leaf(3, 3).detach()
    report = audit(Trace.apply, ((matrix + matrix.mT).requires_grad_(),), only=["float32"], isolate=False)
    assert not any("the audit cannot" in note for note in report.notes), report.notes


# --- what the audit does itself ---


def test_under_a_checkpoint_a_size_is_still_a_size():
    """``new`` takes a size for a shape, and another tuple for numbers."""

    class Repeats(Function):
        @staticmethod
        def forward(ctx, x, size):
            ctx.size = x.shape
            return x.new(size).zero_() + x

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.sum_to_size(ctx.size), None

    report = audit(Repeats.apply, (leaf(3), torch.Size((5, 3))), only=["checkpoint"], isolate=False)
    assert report.capabilities["checkpoint"] == "yes", report


class Unstackable(torch.Tensor):
    """A class of tensors, as for quantized numbers, that nobody taught to be stacked."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.stack:
            return args[0](*types)  # a list is not called
        return super().__torch_function__(function, types, args, kwargs or {})


class Doubles(Double):
    generate_vmap_rule = True


def test_outputs_that_cannot_be_stacked_are_no_mistake_of_a_rule_for_vmap():
    def wrapped(x):
        return Doubles.apply(x).as_subclass(Unstackable)

    assert audit(wrapped, (leaf(3),), only=["vmap"], isolate=False).ok


class CallsWithOption(Calls):
    """Leaves an option unused."""

    @staticmethod
    def forward(ctx, module, option, x, *parameters):
        return Calls.forward(ctx, module, x, *parameters)

    @staticmethod
    def backward(ctx, grad_output):
        return None, *Calls.backward(ctx, grad_output)


def test_a_backward_finds_the_parameters_of_its_module_as_its_forward_left_them():
    """Trying an option calls the function without gradients, which freezes the parameters."""
    module = nn.Linear(3, 3).double()
    arguments = (module, None, leaf(2, 3), *module.parameters())
    report = audit(CallsWithOption.apply, arguments, only=["inputs_unchanged"], isolate=False)
    assert report.ok, report
