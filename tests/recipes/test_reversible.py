"""Reversible sequences: all gradients of a plain one, in the memory of one block."""

import pytest
import torch
from torch import nn

from autograd_cookbook.auditing import held_bytes, peak_bytes
from autograd_cookbook.recipes.reversible import ReversibleSequence, reversible_sequence


def plain(blocks, left, right):
    for f, g in blocks:
        left = left + f(right)
        right = right + g(left)
    return left, right


def modules(depth: int, width: int = 6, dropout: float = 0.0, dtype: torch.dtype = torch.float64) -> list:
    torch.manual_seed(0)

    def one() -> nn.Sequential:
        return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(dropout)).to(dtype)

    return [(one(), one()) for _ in range(depth)]


def halves(rows: int = 5, width: int = 6, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(rows, width, generator=generator, dtype=dtype).requires_grad_() for _ in range(2)]


def parameters(blocks) -> list[torch.Tensor]:
    return [p for pair in blocks for module in pair for p in module.parameters()]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_of_inputs_and_parameters_are_those_of_a_plain_sequence(dropout) -> None:
    blocks, results = modules(10, dropout=dropout), []
    for sequence in (reversible_sequence, plain):
        torch.manual_seed(2)
        left, right = halves()
        outputs = sequence(blocks, left, right)
        loss = outputs[0].sin().sum() + outputs[1].square().sum()
        results.append(torch.autograd.grad(loss, [left, right, *parameters(blocks)]))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


def test_random_numbers_of_the_caller_are_left_alone() -> None:
    outputs = reversible_sequence(modules(3, dropout=0.5), *halves())
    state = torch.random.get_rng_state()
    (outputs[0].sum() + outputs[1].sum()).backward()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_autocast_is_restored() -> None:
    seen = []

    def f(x):
        y = x @ torch.eye(6)
        seen.append(y.dtype)
        return y.float()

    left, right = halves(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = reversible_sequence([(f, f)], left, right)
    outputs[1].sum().backward()
    assert seen == [torch.bfloat16] * 4


def test_each_function_runs_twice() -> None:
    """Once in forward, and once in backward: what undoes a block is what its gradient needs."""
    calls = []

    def f(x):
        calls.append(1)
        return x.sin()

    outputs = reversible_sequence([(f, f)] * 5, *halves())
    outputs[1].sum().backward()
    assert len(calls) == 20


def test_backward_twice_and_second_derivatives() -> None:
    blocks, results = modules(3), []
    for sequence in (reversible_sequence, plain):
        left, right = halves()
        loss = sequence(blocks, left, right)[1].square().sum()
        first = torch.autograd.grad(loss, left, retain_graph=True)[0]
        again = torch.autograd.grad(loss, left, create_graph=True)[0]
        torch.testing.assert_close(first, again, rtol=1e-12, atol=1e-14)
        results.append([first, *torch.autograd.grad(again.sin().sum(), [left, right, *parameters(blocks)[:-1]])])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("frozen", ["left", "right", "both"])
def test_inputs_without_grad(frozen) -> None:
    blocks, results = modules(4), []
    for sequence in (reversible_sequence, plain):
        left, right = halves()
        left.requires_grad_(frozen == "right")
        right.requires_grad_(frozen == "left")
        sequence(blocks, left, right)[1].sum().backward()
        results.append([p.grad.clone() for p in parameters(blocks)])
        for p in parameters(blocks):
            p.grad = None
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


def peak(depth: int) -> int:
    """Bytes at the peak of forward and backward. All blocks share their parameters, so that these do not count."""
    torch.manual_seed(0)
    f, g = (nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(2))
    left, right = (torch.randn(2000, 64, requires_grad=True) for _ in range(2))

    def run() -> None:
        outputs = reversible_sequence([(f, g)] * depth, left, right)
        loss = outputs[0].sum() + outputs[1].sum()
        del outputs
        loss.backward()

    return peak_bytes(run)


def test_memory_does_not_grow_with_depth() -> None:
    peaks = {depth: peak(depth) for depth in (1, 2, 4, 16, 64)}
    assert max(peaks.values()) <= 1.1 * peaks[1], peaks
    assert peaks[64] <= 1.001 * peaks[2], peaks


def test_nothing_but_the_output_is_held() -> None:
    left, right = (torch.randn(100_000, requires_grad=True) for _ in range(2))
    held = held_bytes(lambda *halves: reversible_sequence([(torch.sin, torch.cos)] * 20, *halves), left, right)
    assert held < 2 * 400_000 + 10_000  # the two halves, and one state of the random generator


def test_without_grad_nothing_is_kept() -> None:
    with torch.no_grad():
        left, right = reversible_sequence(modules(2), *halves())
    assert not left.requires_grad
    assert not right.requires_grad


def test_the_module_has_all_parameters_and_does_the_same() -> None:
    blocks = modules(3)
    net = ReversibleSequence(blocks)
    assert len(list(net.parameters())) == len(parameters(blocks)) == 12
    assert all(torch.equal(a, b) for a, b in zip(net(*halves()), plain(blocks, *halves()), strict=True))


def test_a_written_output_is_noticed() -> None:
    left, right = reversible_sequence(modules(2), *halves())
    loss = left.sum() + right.sum()
    left.detach().add_(1)
    with pytest.raises(RuntimeError, match="output of a reversible sequence was modified in place"):
        loss.backward()


def test_a_written_parameter_is_noticed() -> None:
    blocks = modules(2)
    loss = reversible_sequence(blocks, *halves())[1].sum()
    with torch.no_grad():
        parameters(blocks)[0].add_(1)
    with pytest.raises(RuntimeError, match=r"parameter of shape \(6, 6\) was modified in place"):
        loss.backward()


@pytest.mark.parametrize(
    "transform",
    [
        lambda loss, left: torch.func.grad(loss)(left.detach()),
        lambda loss, left: torch.compile(loss, fullgraph=True, backend="eager")(left),
    ],
    ids=["torch.func", "torch.compile"],
)
def test_transforms_are_refused(transform) -> None:
    blocks, (left, right) = modules(2), halves()
    with pytest.raises(RuntimeError):
        transform(lambda left: sum(half.sum() for half in reversible_sequence(blocks, left, right)), left)


def test_statistics_are_updated_by_both_runs() -> None:
    norm, f = nn.BatchNorm1d(6).double(), modules(1)[0][0]
    outputs = reversible_sequence([(nn.Sequential(norm, f), f)], *halves())
    assert norm.num_batches_tracked == 1
    (outputs[0].sum() + outputs[1].sum()).backward()
    assert norm.num_batches_tracked == 2


def test_after_a_failure_it_says_so() -> None:
    broken = False

    def f(x):
        if broken:
            raise ZeroDivisionError
        return x.sin()

    loss = reversible_sequence([(f, f)] * 2, *halves())[1].sum()
    broken = True
    with pytest.raises(ZeroDivisionError):
        loss.backward(retain_graph=True)
    broken = False
    with pytest.raises(RuntimeError, match=r"an earlier backward .* has failed"):
        loss.backward()


@pytest.mark.parametrize("change", ["more", "fewer", "another"])
def test_a_function_that_does_something_else_the_second_time_is_noticed(change) -> None:
    calls = []

    def f(x):
        calls.append(1)
        if len(calls) == 1:
            return x.sin()
        if change == "more":
            return x.sin().sin()
        return 0 * x if change == "fewer" else x.double().sin().float()

    loss = reversible_sequence([(f, torch.cos)], *halves(dtype=torch.float32))[1].sum()
    with pytest.raises(RuntimeError, match=f"saved ({change})"):
        loss.backward()


@pytest.mark.parametrize(("pair", "half"), [((torch.sum, torch.sin), 0), ((torch.sin, torch.sum), 1)])
def test_a_function_of_another_shape_is_named(pair, half) -> None:
    with pytest.raises(RuntimeError, match=rf"function {half} of block 1 to return shape \(5, 6\), got \(\)"):
        reversible_sequence([(torch.sin, torch.sin), pair], *halves())
