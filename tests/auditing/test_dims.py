"""Mistakes that show only if the input has one dim more than the sample, or a size of one besides."""

import pytest
import torch
from torch.autograd import Function

from autograd_cookbook.auditing import audit


def leaf(*shape):
    torch.manual_seed(0)
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


class SoftmaxOfRows(Function):
    """Forward counts the dim from the front, and backward from the end."""

    @staticmethod
    def forward(ctx, x):
        y = x.softmax(1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return y * (grad_output - (grad_output * y).sum(-1, keepdim=True))


class MeanOfSquares(Function):
    """Divides by two sizes."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().mean()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * grad_output * x / (x.shape[0] * x.shape[1])


class NormsSqueezed(Function):
    """Drops every dim of size one, which matters if the batch has one row and there are several of them."""

    @staticmethod
    def forward(ctx, x):
        norm = x.norm(dim=-1, keepdim=True)
        ctx.save_for_backward(x, norm.squeeze())
        return norm.squeeze(-1)

    @staticmethod
    def backward(ctx, grad_output):
        x, norm = ctx.saved_tensors
        return (grad_output / norm).unsqueeze(-1) * x


class WeightedRows(Function):
    """Averages the gradient of the weight over the first dim, and multiplies by the rows of a matrix."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return (x * weight).sum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_output = grad_output.unsqueeze(-1)
        rows = x.numel() // x.shape[-1]
        return (grad_output * weight).expand_as(x), (grad_output * x).mean(0) * rows


@pytest.mark.parametrize(
    ("function", "shapes"),
    [(SoftmaxOfRows, [(4, 3)]), (MeanOfSquares, [(4, 3)]), (NormsSqueezed, [(4, 3)]), (WeightedRows, [(4, 3), (3,)])],
)
def test_a_gradient_that_is_wrong_for_one_dim_more_is_found(function, shapes):
    report = audit(function.apply, tuple(leaf(*s) for s in shapes), only=["sizes"], isolate=False)
    (found,) = report.findings
    assert found.severity == "error"
    assert "with a new first dim of size 2 in input 0" in found.summary
    assert "one dim more" in found.cause


class LinearOfRows(Function):
    """For matrices alone, as the exception tells that ``t`` raises in backward."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output @ weight.t(), x.t() @ grad_output


class SquaresInOrder(Function):
    """Right for any number of dims; of a matrix of one column it has another formula."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().cumsum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output.flip(-1).cumsum(-1).flip(-1)


class ScoresOfClasses(Function):
    """A matrix of logits and a label for each row; a stack of them would have the classes elsewhere."""

    @staticmethod
    def forward(ctx, logits, labels):
        ctx.save_for_backward(logits, labels)
        return torch.nn.functional.cross_entropy(logits, labels)

    @staticmethod
    def backward(ctx, grad_output):
        logits, labels = ctx.saved_tensors
        one_hot = torch.nn.functional.one_hot(labels, logits.shape[1])
        return grad_output * (logits.softmax(1) - one_hot) / len(labels), None


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (LinearOfRows, lambda: (leaf(4, 3), leaf(3, 2))),
        (SquaresInOrder, lambda: (leaf(4, 3),)),
        (SquaresInOrder, lambda: (leaf(3),)),
        (ScoresOfClasses, lambda: (leaf(4, 3), torch.tensor([0, 2, 1, 1]))),
        (ScoresOfClasses, lambda: (leaf(3, 3), torch.tensor([0, 2, 1]))),
        (torch.linalg.matrix_exp, lambda: (leaf(3, 3),)),
    ],
    ids=["linear", "rows", "one row", "classes", "as many classes as rows", "matrices"],
)
def test_dims_that_are_refused_or_right_are_no_finding(function, args):
    apply = getattr(function, "apply", function)
    assert not audit(apply, args(), only=["sizes"], isolate=False).findings


class ScaledFlat(Function):
    """Views the gradient as one row, which works for a contiguous one and for one of one dim."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output.view(-1).reshape(grad_output.shape)


class LinearByView(Function):
    """Merges the dims of the batch by a view, of which a sample with one row for each has only one."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        rows = grad_output.view(-1, weight.shape[1])
        return grad_output @ weight.t(), x.reshape(-1, weight.shape[0]).t() @ rows


class ExpandedAlongRows(Function):
    """Writes into the gradient, of which a copy is made only if it is not contiguous in the last dim."""

    @staticmethod
    def forward(ctx, x):
        return x.cumsum(-1)

    @staticmethod
    def backward(ctx, grad_output):
        if grad_output.stride()[-1:] != (1,):
            grad_output = grad_output.contiguous()
        rows = grad_output.flip(-1).cumsum(-1).flip(-1)
        return rows + 0 * grad_output.view(-1).reshape(rows.shape)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [(ScaledFlat, [(5,)]), (LinearByView, [(4, 3), (3, 2)]), (ExpandedAlongRows, [(5,)])],
)
def test_a_view_of_the_gradient_is_found_where_the_sample_has_too_few_dims_for_it(function, shapes):
    report = audit(function.apply, tuple(leaf(*s) for s in shapes), only=["grad_output_layouts"], isolate=False)
    (found,) = report.findings
    assert "with a new first dim in input 0, if grad_output is" in found.summary
    assert "it raises RuntimeError: view size is not compatible" in found.summary


class AboutTheFirst(Function):
    """Applies a function of the caller, whose derivative it knows for one dim."""

    @staticmethod
    def forward(ctx, function, x):
        return function(x)

    @staticmethod
    def backward(ctx, grad_output):
        first = torch.zeros_like(grad_output)
        first[0] = grad_output.sum()
        return None, grad_output - first


def test_what_a_function_of_the_caller_makes_of_one_dim_more_is_its_own_matter():
    assert not audit(AboutTheFirst.apply, (lambda x: x - x[:1], leaf(4)), only=["sizes"], isolate=False).findings
