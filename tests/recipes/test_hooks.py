"""Hooks: what they do to the gradient when they do something, and what they leave behind."""

import gc
import weakref

import pytest
import torch
from torch import nn

from autograd_cookbook.auditing import peak_bytes
from autograd_cookbook.recipes.hooks import GradientLog, add_gradient_noise, clip_gradient, saved_as, step_in_backward


def test_a_large_gradient_is_scaled_to_the_bound() -> None:
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    (clip_gradient(x, 2.5) * torch.tensor([3.0, 4.0])).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([1.5, 2.0], dtype=torch.float64))


def test_other_uses_of_the_input_are_not_clipped() -> None:
    x = torch.zeros(1, requires_grad=True)
    (10 * clip_gradient(x, 1.0) + 10 * x).sum().backward()
    assert x.grad.item() == 11


def test_a_gradient_of_zero_stays_zero() -> None:
    x = torch.ones(3, requires_grad=True)
    (clip_gradient(x, 1.0) * 0).sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64])
def test_clipping_keeps_the_dtype(dtype) -> None:
    x = torch.zeros(4, dtype=dtype, requires_grad=True)
    (clip_gradient(x, 1.0) * 8).sum().abs().backward()
    assert x.grad.dtype is dtype


@pytest.mark.parametrize("bound", [0, -1.0, float("nan")])
def test_the_bound_must_be_positive(bound) -> None:
    with pytest.raises(ValueError, match=f"got {bound}"):
        clip_gradient(torch.ones(1), bound)


def test_noise_has_the_stated_size_and_comes_from_the_generator() -> None:
    state = torch.random.get_rng_state()
    grads = []
    for _ in range(2):
        x = torch.zeros(100_000, requires_grad=True)
        add_gradient_noise(x, 0.5, torch.Generator().manual_seed(3)).sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert abs(grads[0].mean().item() - 1) < 0.01
    assert abs(grads[0].std().item() - 0.5) < 0.01


def test_negative_noise_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got -0\.1"):
        add_gradient_noise(torch.ones(1), -0.1)


@pytest.mark.parametrize("function", [clip_gradient, add_gradient_noise])
def test_an_input_without_grad_is_passed_on(function) -> None:
    x = torch.ones(2)
    assert torch.equal(function(x, 1.0), x)


def test_the_log_records_each_backward_and_then_no_more() -> None:
    x = torch.ones(4, requires_grad=True)
    with GradientLog() as log:
        log.watch("x", x)
        for scale in (1.0, 2.0):
            (log.watch("y", x * 1) * scale).sum().backward()
    (x * 5).sum().backward()
    assert log.norms == {"x": [2.0, 4.0], "y": [2.0, 4.0]}


def test_the_log_removes_its_hooks_after_an_error_too() -> None:
    x = torch.ones(1, requires_grad=True)
    log = GradientLog()

    def fails() -> None:
        with log:
            log.watch("x", x)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    x.sum().backward()
    assert log.norms == {"x": []}


def test_the_log_keeps_no_tensor_alive() -> None:
    log = GradientLog()
    x = torch.ones(4, requires_grad=True)
    y = log.watch("y", x * 2)
    alive = weakref.ref(y)
    gc.disable()
    try:
        del y
        assert alive() is None
    finally:
        gc.enable()


def test_a_tensor_without_grad_cannot_be_watched() -> None:
    with pytest.raises(ValueError, match="'x'"):
        GradientLog().watch("x", torch.ones(1))


def test_modules_are_watched_by_name_and_in_place_activations_do_not_matter() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(inplace=True), nn.Sequential(nn.Linear(2, 1)))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))
        model[2][0].weight.copy_(torch.tensor([[5.0, 12.0]]))
    x = torch.ones(1, 2)
    with GradientLog() as log:
        log.watch_modules(model)
        (2 * model(x)).sum().backward()
        model(x).sum().backward()
    model(x).sum().backward()
    assert log.norms == {"0": [10.0, 5.0], "1": [26.0, 13.0], "2": [2.0, 1.0], "2.0": [2.0, 1.0]}


def test_modules_without_a_gradient_are_passed_over() -> None:
    class Both(nn.Module):
        def forward(self, x):
            return x, x

    model = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 1), Both())
    with GradientLog() as log:
        log.watch_modules(model)
        model(torch.ones(1, 2))[0].sum().backward()
    assert log.norms == {"1": [1.0]}


def test_steps_in_backward_equal_steps_after_it() -> None:
    def train(inside: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()

        def adam(parameters):
            return torch.optim.Adam(parameters, lr=0.1)

        if inside:
            step_in_backward(net.parameters(), adam)
        else:
            optimizer = adam(net.parameters())
        for step in range(5):
            net(torch.full((2, 3), float(step), dtype=torch.float64)).sum().backward()
            if not inside:
                optimizer.step()
                optimizer.zero_grad()
        return list(net.parameters())

    for a, b in zip(train(True), train(False), strict=True):
        assert torch.equal(a, b)
        assert a.grad is None


def test_steps_end_when_handles_are_removed() -> None:
    w = torch.ones(1, requires_grad=True)
    for handle in step_in_backward([w, torch.ones(1)], lambda ps: torch.optim.SGD(ps, lr=0.1)):
        handle.remove()
    w.sum().backward()
    assert w.grad.item() == 1
    assert w.item() == 1


def test_gradients_are_never_all_alive() -> None:
    def backward(inside: bool) -> int:
        weights = [torch.zeros(10_000, requires_grad=True) for _ in range(8)]
        if inside:
            step_in_backward(weights, lambda ps: torch.optim.SGD(ps, lr=0.1))
        h = torch.ones(10_000, requires_grad=True)
        for w in weights:
            h = h + w * 2
        return peak_bytes(h.sum().backward)

    assert backward(True) < backward(False) / 2


def test_saved_tensors_take_half_the_room() -> None:
    x = torch.randn(10_000, requires_grad=True)

    def chain(x):
        for _ in range(20):
            x = x.sigmoid()
        return x

    def backward(y):
        return y.sum().backward()

    plain = peak_bytes(lambda x: backward(chain(x)), x)
    halved = peak_bytes(lambda x: backward(saved_as(torch.bfloat16, chain, x)), x)
    assert halved < 0.65 * plain  # the rest is what backward needs at the moment


def test_the_gradient_is_rounded_and_the_value_is_not() -> None:
    x, w = torch.randn(50, 40, requires_grad=True), torch.randn(40, 40, requires_grad=True)

    def function(x, w):
        return (x @ w).sigmoid().square().sum()

    output = saved_as(torch.bfloat16, function, x, w)
    assert torch.equal(output, function(x, w))
    exact = torch.autograd.grad(function(x, w), (x, w))
    for ours, theirs in zip(torch.autograd.grad(output, (x, w)), exact, strict=True):
        error = (ours - theirs).norm() / theirs.norm()
        assert 0 < error < 2**-6, "bfloat16 keeps 8 bits, and two tensors are rounded"


def test_compiled_code_rounds_too() -> None:
    """torch 2.13 would trace a graph without the hooks: a gradient that is exact, and tensors kept whole."""
    x = torch.randn(50, requires_grad=True)

    def function(x):
        return saved_as(torch.bfloat16, lambda x: x.exp().square(), x)

    eager, compiled = (
        torch.autograd.grad(call(x).sum(), x)[0] for call in (function, torch.compile(function, backend="aot_eager"))
    )
    assert torch.equal(eager, compiled)
    assert not torch.equal(eager, torch.autograd.grad(x.exp().square().sum(), x)[0])


def test_leaves_and_arguments_are_kept_as_they_are() -> None:
    x, w = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
    (ours,) = torch.autograd.grad(saved_as(torch.bfloat16, lambda x: x * w, x).sum(), x)
    assert torch.equal(ours, w)


def test_integers_are_no_dtype_to_save_in() -> None:
    with pytest.raises(ValueError, match=r"got torch\.int8"):
        saved_as(torch.int8, torch.sin, torch.ones(1))


def test_a_hook_gets_none_for_an_undefined_gradient() -> None:
    """What gradcheck tries, and what a function with several outputs can do: all hooks here must survive it."""
    x = torch.ones(2, requires_grad=True)
    with GradientLog() as log:
        y = add_gradient_noise(clip_gradient(log.watch("x", x * 1), 1.0), 1.0)
        y.grad_fn(None)
    assert log.norms == {"x": []}


def test_saved_as_notices_a_later_write() -> None:
    """With hooks on saved tensors, autograd's own check of versions is off."""
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    y = x + 0
    output = saved_as(torch.bfloat16, torch.square, y)
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match=r"shape \(2,\) .* in-place"):
        output.sum().backward()


def test_a_saved_number_beyond_the_range_of_the_dtype_is_infinite() -> None:
    x = torch.tensor([70_000.0], requires_grad=True)
    for dtype, finite in ((torch.float16, False), (torch.bfloat16, True)):
        (grad,) = torch.autograd.grad(saved_as(dtype, lambda x: (x + 0).square(), x), x)
        assert bool(grad.isfinite()) is finite
