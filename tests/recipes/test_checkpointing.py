"""Checkpointing: everything that a plain call does, it does too, with less memory."""

import gc
import math
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from autograd_cookbook.auditing import peak_bytes, saved_bytes
from autograd_cookbook.recipes.checkpointing import checkpoint, checkpoint_sequence


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3), nn.Sigmoid()).double()


def batch() -> torch.Tensor:
    return torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def test_parameters_that_only_the_closure_reaches_get_their_gradients() -> None:
    plain, checked, x = network(), network(), batch()
    plain(x).sum().backward()
    checkpoint(lambda x: checked(x), batch()).sum().backward()
    for ours, theirs in zip(checked.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def test_input_without_grad_does_not_cut_off_the_parameters() -> None:
    net = network()
    checkpoint(net, batch().detach()).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_random_numbers_are_replayed_and_the_global_state_is_left_alone() -> None:
    x = torch.ones(1000, requires_grad=True)
    torch.manual_seed(0)
    y = checkpoint(lambda x: F.dropout(x.sin(), 0.5).exp(), x)
    state = torch.random.get_rng_state()
    torch.rand(3)
    after = torch.random.get_rng_state()
    y.sum().backward()
    assert torch.equal(torch.random.get_rng_state(), after), "backward moved the random state"
    torch.manual_seed(0)
    F.dropout(x.sin(), 0.5)
    assert torch.equal(torch.random.get_rng_state(), state), "forward drew other numbers than a plain call"
    kept = y.detach() != 1  # a dropped element is exp(0)
    assert torch.equal(x.grad != 0, kept), "the gradient belongs to another mask than the value"


def test_autocast_is_restored() -> None:
    w = torch.randn(4, 4, requires_grad=True)
    dtypes = []

    def function(x):
        y = x @ w
        dtypes.append(y.dtype)
        return y.float().square()

    x = torch.randn(2, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = checkpoint(function, x)
    y.sum().backward()  # outside of autocast
    assert dtypes == [torch.bfloat16, torch.bfloat16]


def test_backward_twice_and_second_derivatives() -> None:
    x = batch()
    net = network()
    plain = net(x).square().sum()
    checked = checkpoint(lambda x: net(x).square(), x).sum()
    for create_graph in (False, True):
        ours = torch.autograd.grad(checked, x, retain_graph=True, create_graph=create_graph)[0]
        theirs = torch.autograd.grad(plain, x, retain_graph=True, create_graph=create_graph)[0]
        assert torch.equal(ours, theirs)
    parameters = list(net.parameters())
    for a, b in zip(
        torch.autograd.grad(ours.square().sum(), parameters),
        torch.autograd.grad(theirs.square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def test_nested() -> None:
    x = batch()
    y = checkpoint(lambda x: checkpoint(lambda x: x.sin().exp(), x).tanh() * x, x)
    (ours,) = torch.autograd.grad(y.sum(), x)
    (theirs,) = torch.autograd.grad((x.sin().exp().tanh() * x).sum(), x)
    assert torch.equal(ours, theirs)


def test_the_function_is_called_once_more_and_no_oftener() -> None:
    calls = []
    checkpoint(lambda x: (calls.append(1), x.sin().exp().tanh())[1], batch()).sum().backward()
    assert len(calls) == 2


def test_without_grad_it_is_a_plain_call() -> None:
    with torch.no_grad():
        assert not checkpoint(torch.sin, batch()).requires_grad


def test_arguments_of_any_type() -> None:
    x = batch()
    y = checkpoint(lambda scale, x, flag, none: {"y": (x * scale).exp()}, 2.0, x, True, None)
    y["y"].sum().backward()
    assert torch.equal(x.grad, 2 * (2 * x.detach()).exp())


@pytest.mark.parametrize(
    ("second", "message"),
    [
        pytest.param(lambda x: x.sin()[:2].exp().tanh(), "expected", id="shape"),
        pytest.param(lambda x: x.sin(), "fewer", id="fewer"),
        pytest.param(lambda x: x.sin().exp().tanh().sigmoid().exp(), "more", id="more"),
        pytest.param(lambda x: x.float().sin().exp().tanh(), r"float32, expected .* of torch\.float64", id="dtype"),
    ],
)
def test_a_function_that_does_not_repeat_itself_is_named(second, message) -> None:
    functions = iter([lambda x: x.sin().exp().tanh(), second])
    y = checkpoint(lambda x: next(functions)(x), batch())
    with pytest.raises(RuntimeError, match=message):
        y.sum().backward()


def test_an_argument_modified_in_between_is_named() -> None:
    x = batch()
    h = x * 1
    y = checkpoint(lambda scale, h: h.sin().exp(), 2, h)
    h.data.add_(0)  # no version: cannot be seen
    h.detach().add_(1)
    with pytest.raises(RuntimeError, match=r"argument 1 .* modified in place"):
        y.sum().backward()


def test_a_parameter_modified_in_between_is_named() -> None:
    weight = torch.ones(3, 2, requires_grad=True)
    y = checkpoint(lambda x: (x.sin() @ weight.T).exp(), torch.ones(4, 2, requires_grad=True))
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match=r"parameter of shape \(2, 3\) was modified in place"):
        y.sum().backward()


def test_a_backward_of_its_own_is_refused() -> None:
    def function(x):
        y = x.sin().exp()
        y.sum().backward(retain_graph=True)
        return y

    with pytest.raises(RuntimeError, match="must not call backward on its own intermediates"):
        checkpoint(function, batch()).sum().backward()


def test_nothing_but_arguments_is_kept() -> None:
    x = torch.ones(10_000, requires_grad=True)  # large beside the random state, 5,056 bytes

    def chain(x):
        return x.sin().exp().tanh().sigmoid().square()

    assert saved_bytes(chain, x) == 3 * 40_000  # the outputs of exp, tanh and sigmoid
    # Forward alone: two neighbors of the chain at a time, and the random state.
    assert peak_bytes(lambda x: checkpoint(chain, x), x) < 2.2 * 40_000
    assert peak_bytes(chain, x) >= 4 * 40_000  # and the result


def test_no_leak() -> None:
    x = torch.ones(10, requires_grad=True)
    h = x * 2
    y = checkpoint(lambda h: h.sin().exp(), h)
    alive = weakref.ref(h)
    gc.disable()
    try:
        y.sum().backward()
        del h, y
        assert alive() is None, "the arguments outlive the graph: a reference cycle"
    finally:
        gc.enable()


@pytest.mark.parametrize("count", [4, 9, 16, 50, 64, 128, 256])
def test_peak_of_a_sequence_grows_as_the_root_of_its_length(count) -> None:
    x = torch.randn(10_000, requires_grad=True)

    def run(x):
        checkpoint_sequence([torch.sin] * count, x).sum().backward()

    activations = peak_bytes(run, x) / x.untyped_storage().nbytes()
    assert activations <= 2.2 * math.sqrt(count)


@pytest.mark.parametrize("segments", [0, 4, -1])
def test_bad_segments_are_named(segments) -> None:
    with pytest.raises(ValueError, match=f"between 1 and 3, got {segments}"):
        checkpoint_sequence([torch.sin] * 3, batch(), segments)
