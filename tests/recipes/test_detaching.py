"""A loss whose target is a constant."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from autograd_cookbook.auditing import held_bytes, saved_bytes
from autograd_cookbook.recipes.detaching import DistillationLossFunction, distillation_loss

INF = float("inf")


def test_by_hand() -> None:
    """p = (1/4, 3/4) and q = (1/2, 1/2) at temperature 2."""
    teacher = torch.tensor([0.0, 2 * math.log(3)], dtype=torch.float64)
    student = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    loss = distillation_loss(student, teacher, 2.0)
    assert loss.item() == pytest.approx(4 * (0.25 * math.log(0.5) + 0.75 * math.log(1.5)))
    first = torch.autograd.grad(loss, student, create_graph=True)[0]
    assert first.tolist() == pytest.approx([2 * 0.25, -2 * 0.25])
    # The Hessian is diag(q) - q qᵀ, whatever the temperature.
    second = torch.autograd.grad(first[0], student)[0]
    assert second.tolist() == pytest.approx([0.25, -0.25])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_reductions(reduction) -> None:
    student, teacher = torch.randn(2, 3, 5, dtype=torch.float64), torch.randn(2, 3, 5, dtype=torch.float64)
    rows = F.kl_div(F.log_softmax(student, -1), F.softmax(teacher, -1), reduction="none").sum(-1)
    expected = {"mean": rows.mean(), "sum": rows.sum(), "none": rows}[reduction]
    torch.testing.assert_close(distillation_loss(student, teacher, reduction=reduction), expected)


def test_a_student_that_agrees_has_neither_loss_nor_gradient() -> None:
    student = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    loss = distillation_loss(student, student.detach() + 5, 0.7)
    (gradient,) = torch.autograd.grad(loss, student)
    assert loss.item() == pytest.approx(0, abs=1e-12)
    assert gradient.abs().max() < 1e-12


def test_the_teacher_has_no_gradient() -> None:
    student, teacher = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    loss = distillation_loss(student, teacher)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        torch.autograd.grad(loss, teacher, retain_graph=True)
    loss.backward()
    assert teacher.grad is None
    assert not distillation_loss(student.detach(), teacher).requires_grad
    assert torch.func.grad(distillation_loss, argnums=1)(student.detach(), teacher.detach()).tolist() == [[0] * 3] * 2


def test_the_graph_of_the_teacher_is_let_go() -> None:
    teacher = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(5)))
    x, student = torch.randn(100, 8), torch.randn(100, 8, requires_grad=True)
    # Alive: the loss, the teacher's logits, and the number that a mean divides by.
    kept = held_bytes(lambda: distillation_loss(student, teacher(x)))
    assert 100 * 8 * 4 <= kept <= 100 * 8 * 4 + 16
    # None from backward, as the function alone returns, keeps all five layers.
    assert held_bytes(lambda: DistillationLossFunction.apply(student, teacher(x), 1.0).mean()) > 5 * 100 * 8 * 4


def test_nothing_is_kept_beyond_the_logits() -> None:
    student, teacher = torch.randn(50, 20, requires_grad=True), torch.randn(50, 20)
    assert saved_bytes(distillation_loss, student, teacher, 2.0) == 0
    assert held_bytes(distillation_loss, student, teacher, 2.0, "none") == 50 * 4


def test_a_write_to_the_teachers_logits_is_noticed() -> None:
    student, teacher = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
    loss = distillation_loss(student, teacher)
    teacher.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(
    ("student", "teacher", "loss", "gradient"),
    [
        ([0.0, 0.0, -INF], [0.0, 0.0, -INF], 0.0, [0.0, 0.0, 0.0]),
        ([0.0, 0.0], [-INF, 0.0], math.log(2), [0.5, -0.5]),
        ([0.0, -INF], [0.0, 0.0], INF, [0.5, -0.5]),
        ([1000.0, 0.0], [0.0, 1000.0], 1000.0, [1.0, -1.0]),
    ],
)
def test_classes_that_are_ruled_out(student, teacher, loss, gradient) -> None:
    logits = torch.tensor(student, requires_grad=True)
    value = distillation_loss(logits, torch.tensor(teacher))
    value.backward()
    assert value.item() == pytest.approx(loss)
    assert logits.grad.tolist() == pytest.approx(gradient)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, 3), torch.ones(3)), RuntimeError, r"teacher of shape \(2, 3\), got \(3,\)"),
        ((torch.ones(3), torch.ones(3, dtype=torch.int64)), TypeError, r"floating logits, got torch\.int64"),
        ((torch.ones(3, dtype=torch.complex64), torch.ones(3)), TypeError, r"got torch\.complex64"),
        ((torch.ones(3), torch.ones(3), 0.0), ValueError, r"temperature > 0, got 0\.0"),
        ((torch.ones(3), torch.ones(3), float("nan")), ValueError, "temperature > 0, got nan"),
        ((torch.ones(3), torch.ones(3), 1.0, "batchmean"), ValueError, "mean, sum or none, got 'batchmean'"),
    ],
)
def test_bad_input(args, error, message) -> None:
    with pytest.raises(error, match=message):
        distillation_loss(*args)


@pytest.mark.parametrize("temperature", [1.0, 10.0, 100.0])
def test_the_loss_of_nearly_equal_distributions_has_its_digits_and_that_of_torch_does_not(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(20, 1000, generator=generator)
    student = (teacher + 1e-3 * torch.randn(20, 1000, generator=generator)).requires_grad_()

    def results(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = student.detach().to(dtype).requires_grad_()
        loss = distillation_loss(leaf, teacher.to(dtype), temperature, "none")
        return loss.detach().double(), torch.autograd.grad(loss.sum(), leaf)[0].double()

    (loss, grad), (true_loss, true_grad) = results(torch.float32), results(torch.float64)
    torch.testing.assert_close(loss, true_loss, rtol=1e-5, atol=0)
    assert (grad - true_grad).norm() < 5e-4 * temperature * true_grad.norm()
    log_p, log_q = (torch.log_softmax(logits / temperature, -1) for logits in (teacher, student.detach()))
    theirs = temperature**2 * F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)
    assert (theirs - true_loss).abs().max() < 2e-6 * temperature**2
    assert (theirs - true_loss).abs().max() > 0.05 * true_loss.max()
    if temperature > 1:
        assert (theirs < 0).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("difference", [2.0**-6, 2.0**-3, 1.0])
def test_the_loss_in_half_precision_is_rounded_once(dtype: torch.dtype, difference: float) -> None:
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(20, 50, generator=generator).to(dtype)
    student = (teacher + difference * torch.randn(20, 50, generator=generator)).to(dtype)
    for temperature in (1.0, 20.0, 1000.0):
        loss = distillation_loss(student, teacher, temperature, "none")
        expected = distillation_loss(student.double(), teacher.double(), temperature, "none")
        torch.testing.assert_close(loss.double(), expected, rtol=torch.finfo(dtype).eps, atol=6e-8)
