"""linear_scan: every length, decays near 0 and 1, and what is kept; the catalog's tests compare with a loop."""

import pytest
import torch

from autograd_cookbook.auditing import saved_bytes
from autograd_cookbook.recipes.linear_scan import linear_scan


def loop(decay, input):
    states = []
    for a, b in zip(decay, input, strict=True):
        states.append(a * states[-1] + b if states else b + 0 * a)
    return torch.stack(states)


def problem(length, dtype=torch.float64):
    generator = torch.Generator().manual_seed(length)
    return [torch.randn(length, 2, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for _ in "ab"]


@pytest.mark.parametrize("length", [*range(2, 18), 31, 32, 33, 100])
def test_states_and_both_derivatives_are_those_of_the_loop(length) -> None:
    tensors = problem(length)
    found = []
    for function in (linear_scan, loop):
        states = function(*tensors)
        weights = torch.linspace(1, 2, states.numel(), dtype=torch.float64).reshape(states.shape)
        first = torch.autograd.grad(states, tensors, weights, create_graph=True)
        second = torch.autograd.grad(sum(g.sin().sum() for g in first), tensors)
        found.append([states, *first, *second])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("decay", [0.0, 1e-30, 0.5, 0.999, 1 - 2**-20, 1.0])
def test_long_scans_are_as_accurate_as_a_loop(decay) -> None:
    """16,384 steps in float32 against float64: as exact as a loop, and finite."""
    generator = torch.Generator().manual_seed(0)
    input = torch.randn(2**14, 1, generator=generator)
    decays = torch.full_like(input, decay)
    exact = loop(decays.double(), input.double())
    ours, theirs = (float((f(decays, input) - exact).abs().max()) for f in (linear_scan, loop))
    assert ours <= 8 * theirs + 4 * torch.finfo(torch.float32).eps * float(exact.abs().max())


def test_the_first_decay_has_no_effect() -> None:
    a, b = problem(5)
    changed = a.detach().clone()
    changed[0] = float("inf")
    torch.testing.assert_close(linear_scan(changed, b), linear_scan(a, b))
    assert torch.autograd.grad(linear_scan(a, b).sum(), a)[0][0].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype) -> None:
    a, b = torch.ones(3000, dtype=dtype), torch.ones(3000, dtype=dtype)
    assert linear_scan(a, b).tolist() == torch.arange(1.0, 3001).to(dtype).tolist()


def test_it_keeps_its_output() -> None:
    a, b = torch.rand(1000, 8).requires_grad_(), torch.randn(1000, 8).requires_grad_()
    assert saved_bytes(linear_scan, a, b) == b.numel() * 4
    (grad_input,) = torch.autograd.grad(linear_scan(a.detach(), b).sum(), b)
    torch.testing.assert_close(grad_input, torch.autograd.grad(linear_scan(a, b).sum(), b)[0])


def test_the_result_is_a_tensor_of_its_own() -> None:
    for length in (0, 1, 2):
        a, b = (t.detach() for t in problem(length))
        linear_scan(a, b).add_(1)
        assert torch.equal(b, problem(length)[1])


def test_bad_input() -> None:
    x = torch.ones(3, 2)
    with pytest.raises(TypeError, match=r"got torch\.int64"):
        linear_scan(x.long(), x.long())
    with pytest.raises(RuntimeError, match=r"decay of dtype torch\.float32, got torch\.float64"):
        linear_scan(x.double(), x)
    with pytest.raises(ValueError, match=r"decay of shape \(3, 2\), got \(3,\)"):
        linear_scan(x[:, 0], x)
    with pytest.raises(IndexError):
        linear_scan(x, x, 2)
