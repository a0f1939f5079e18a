"""Quantization: torch's numbers at ties and ends, the gradient of the step term by term, and what is refused."""

import math

import pytest
import torch

from autograd_cookbook.auditing import held_bytes, saved_bytes
from autograd_cookbook.recipes.fake_quantization import fake_quantize, initial_step, learned_step_size

INF, NAN = float("inf"), float("nan")
RANGES = [(0, -128, 127), (0, 0, 15), (3, 0, 7), (7, 0, 7), (-8, -8, 7), (200, 0, 255)]
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
# Ties of each scale, numbers at and beyond both ends, and infinities.
POINTS = torch.cat([torch.arange(-600, 600) * 0.05, torch.tensor([1e20, -1e20, INF, -INF, 0.0, -0.0])])


def value_and_gradient(function, x, *options):
    x = x.clone().requires_grad_()
    y = function(x, *options)
    upstream = torch.linspace(-2, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
    return y.detach(), *torch.autograd.grad(y, x, upstream)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("zero_point", "low", "high"), RANGES)
@pytest.mark.parametrize("scale", [0.1, 0.25, 0.3, 0.7])
def test_fake_quantize_is_torchs_in_every_bit(dtype, zero_point, low, high, scale) -> None:
    options = POINTS.to(dtype), scale, zero_point, low, high
    ours = value_and_gradient(fake_quantize, *options)
    theirs = value_and_gradient(torch.fake_quantize_per_tensor_affine, *options)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype is dtype
        assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_fake_quantize_is_torchs_channel_by_channel(dtype, dim) -> None:
    x = (torch.arange(-600, 600) * 0.05).reshape(3, 40, 10).movedim(0, dim).to(dtype)
    scales, zero_points = torch.tensor([0.1, 0.3, 0.7]), torch.tensor([0, 3, 7], dtype=torch.int32)
    theirs = value_and_gradient(torch.fake_quantize_per_channel_affine, x, scales, zero_points, dim % 3, 0, 7)
    for scale, zero_point in ((scales, zero_points), ([0.1, 0.3, 0.7], [0, 3, 7])):
        ours = value_and_gradient(fake_quantize, x, scale, zero_point, 0, 7, dim)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_one_zero_point_serves_all_channels() -> None:
    x, scales = torch.linspace(-2, 2, 12).reshape(3, 4), [0.1, 0.2, 0.3]
    for zero_point in (2, torch.tensor(2)):
        assert torch.equal(fake_quantize(x, scales, zero_point, 0, 7, 0), fake_quantize(x, scales, [2, 2, 2], 0, 7, 0))


def test_the_mask_knows_the_zero_point() -> None:
    x = torch.tensor([-5.0, -4.6, -4.4, -0.1, 0.0, 3.0, 3.4, 3.6], requires_grad=True)
    fake_quantize(x, 1.0, 4, 0, 7).sum().backward()
    assert x.grad.tolist() == [0, 0, 1, 1, 1, 1, 1, 0]


def test_float64_keeps_its_digits_where_torch_has_those_of_float32() -> None:
    x = torch.tensor([0.31], dtype=torch.float64)
    assert fake_quantize(x, 0.1).item() == pytest.approx(0.3, rel=1e-15)
    assert abs(torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127).item() - 0.3) > 1e-9


def test_nan_stays_nan_where_torch_makes_a_number_of_it() -> None:
    x = torch.tensor([NAN, 1.0], requires_grad=True)
    y = fake_quantize(x, 0.5, 0, -8, 7)
    y.sum().backward()
    assert y.isnan().tolist() == [True, False]
    assert x.grad.tolist() == [0, 1]
    assert torch.fake_quantize_per_tensor_affine(x, 0.5, 0, -8, 7)[0].item() == -4


def test_an_infinite_gradient_from_above_does_not_leak_out_of_range() -> None:
    x = torch.tensor([100.0, 0.1], requires_grad=True)
    fake_quantize(x, 0.5, 0, -8, 7).backward(torch.tensor([INF, 1.0]))
    assert x.grad.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ((0.0,), ValueError, "expected a finite scale > 0, got 0"),
        ((-0.1,), ValueError, "got -0.1"),
        ((INF,), ValueError, "got inf"),
        ((NAN,), ValueError, "got nan"),
        (([0.1, 0.0, 0.1], 0, 0, 7, 1), ValueError, r"got \[0.1, 0.0, 0.1\]"),
        ((0.1, 0, 5, 4), ValueError, "expected quant_min <= quant_max, got 5 and 4"),
        ((0.1, 8, 0, 7), ValueError, r"expected zero_point in \[0, 7\], got 8"),
        ((0.1, -1, 0, 7), ValueError, "got -1"),
        (([0.1] * 3, [0, 0, 9], 0, 7, 1), ValueError, r"got \[0, 0, 9\]"),
        ((0.1, torch.tensor(0.5)), TypeError, r"integer dtype, got torch\.float32"),
        (([0.1] * 3,), RuntimeError, r"expected scale to be one number where dim is None, got \(3,\)"),
        (([0.1] * 3, 0, 0, 7, 0), RuntimeError, r"scale of shape \(2,\) for dim 0 .* got \(3,\)"),
        (([0.1] * 3, [0, 1], 0, 7, 1), RuntimeError, r"zero_point of shape \(3,\)"),
        (([0.1] * 3, 0, 0, 7, 2), IndexError, r"\[-2, 1\], got 2"),
        (([0.1] * 3, 0, 0, 7, -3), IndexError, "got -3"),
        ((torch.tensor(0.1, requires_grad=True),), RuntimeError, "no gradient for scale"),
    ],
)
def test_bad_input_of_fake_quantize_is_named(options, error, message) -> None:
    with pytest.raises(error, match=message):
        fake_quantize(torch.ones(2, 3), *options)


def test_integers_are_refused() -> None:
    with pytest.raises(TypeError, match=r"floating dtype, got torch\.int64"):
        fake_quantize(torch.ones(2, dtype=torch.int64), 0.1)
    with pytest.raises(TypeError, match=r"input of a floating dtype, got torch\.complex64"):
        learned_step_size(torch.ones(2, dtype=torch.complex64), torch.tensor(0.1), -2, 1)
    with pytest.raises(TypeError, match=r"step of a floating dtype, got torch\.int64"):
        learned_step_size(torch.ones(2), torch.tensor(1), -2, 1)


def step_gradient(ratios, low, high, upstream=None, step=0.5, **options):
    """Gradients of input and step for given x / s."""
    x = (torch.tensor(ratios, dtype=torch.float64) * step).requires_grad_()
    s = torch.tensor(step, dtype=torch.float64, requires_grad=True)
    y = learned_step_size(x, s, low, high, **options)
    y.backward(torch.ones_like(y) if upstream is None else torch.tensor(upstream, dtype=torch.float64))
    return y.detach() / step, x.grad, s.grad.item()


@pytest.mark.parametrize(
    ("ratio", "level", "passes", "slope"),
    [
        (0.3, 0, 1, -0.3),
        (0.6, 1, 1, 0.4),
        (-1.4, -1, 1, 0.4),
        (1.5, 2, 1, 0.5),  # a tie, to the even level
        (2.5, 2, 1, -0.5),
        (2.9, 3, 1, 0.1),
        (3.0, 3, 0, 3),  # the ends count as beyond, as in equations 3 and 5
        (3.3, 3, 0, 3),
        (1000.0, 3, 0, 3),
        (-4.0, -4, 0, -4),
        (-4.2, -4, 0, -4),
        (INF, 3, 0, 3),
        (-INF, -4, 0, -4),
    ],
)
def test_the_gradients_of_learned_step_size_are_those_of_the_paper(ratio, level, passes, slope) -> None:
    value, grad_input, grad_step = step_gradient([ratio], -4, 3, upstream=[2.0], grad_scale=1.0)
    assert value.item() == level
    assert grad_input.item() == 2 * passes
    assert grad_step == pytest.approx(2 * slope, rel=1e-12)


def test_the_gradient_scale_counts_the_elements_of_a_step() -> None:
    ratios = [0.3, 0.6, 2.9, 5.0, -1.4, 0.0]
    *_, plain = step_gradient(ratios, -4, 3, grad_scale=1.0)
    *_, scaled = step_gradient(ratios, -4, 3)
    assert plain == pytest.approx(-0.3 + 0.4 + 0.1 + 3 + 0.4 + 0, rel=1e-12)
    assert scaled == pytest.approx(plain / math.sqrt(6 * 3), rel=1e-12)


@pytest.mark.parametrize("dim", [0, 1, -2])
def test_each_channel_has_the_gradient_that_it_has_alone(dim) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, dtype=torch.float64).movedim(0, dim).contiguous()
    steps = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64, requires_grad=True)
    y = learned_step_size(x, steps, -2, 1, dim)
    y.square().sum().backward()
    for k in range(3):
        step = steps.detach()[k].clone().requires_grad_()
        alone = learned_step_size(x.select(dim, k), step, -2, 1)
        alone.square().sum().backward()
        assert torch.equal(alone, y.select(dim, k))
        assert steps.grad[k].item() == pytest.approx(step.grad.item(), rel=1e-12)


def test_half_precision_sums_the_gradient_of_the_step_without_overflow() -> None:
    """Each of 10,000 elements adds 127: 1.3 million before it is scaled, and float16 ends at 65,504."""
    x, step = torch.full((10_000,), 300.0, dtype=torch.float16), torch.tensor(1.0, dtype=torch.float16).requires_grad_()
    learned_step_size(x, step, -128, 127).sum().backward()
    assert step.grad.dtype is torch.float16
    assert step.grad.item() == pytest.approx(127 * 10_000 / math.sqrt(10_000 * 127), rel=1e-3)


def test_a_step_in_float32_serves_an_input_in_bfloat16() -> None:
    x, step = torch.randn(8, dtype=torch.bfloat16, requires_grad=True), torch.tensor([0.5], requires_grad=True)
    y = learned_step_size(x, step, -2, 1)
    y.sum().backward()
    assert (y.dtype, x.grad.dtype, step.grad.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    assert step.grad.shape == (1,)


def test_descent_on_the_step_finds_the_step_of_least_squared_error() -> None:
    torch.manual_seed(0)
    x = torch.randn(4000)
    step = initial_step(x, 1).requires_grad_()
    optimizer = torch.optim.SGD([step], lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        (learned_step_size(x, step, -2, 1) - x).square().sum().backward()
        optimizer.step()
    candidates = torch.linspace(0.3, 2, 341)
    errors = torch.stack([(learned_step_size(x, s, -2, 1) - x).square().mean() for s in candidates])
    found = (learned_step_size(x, step, -2, 1) - x).square().mean()
    assert found < 1.01 * errors.min()
    assert abs(step.item() - candidates[errors.argmin()].item()) < 0.05


def test_the_private_built_in_agrees_except_between_the_last_level_and_half_a_step_beyond() -> None:
    """Torch masks by the rounded level: there its gradient passes, and the step gets the rounding error."""
    ratios = torch.tensor([-7.0, -4.3, -2.6, 0.3, 1.7, 2.8, 3.2, 9.0])
    results = []
    for private in (False, True):
        x, step = (ratios * 0.5).requires_grad_(), torch.tensor([0.5], requires_grad=True)
        if private:
            y = torch._fake_quantize_learnable_per_tensor_affine(x, step, torch.zeros(1), -4, 3, 1.0)
        else:
            y = learned_step_size(x, step, -4, 3, grad_scale=1.0)
        y.sum().backward()
        results.append((y.detach(), x.grad))
    (ours, our_gradient), (theirs, their_gradient) = results
    assert torch.equal(ours, theirs)
    assert (our_gradient != their_gradient).tolist() == [False, True, False, False, False, False, True, False]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ((torch.tensor(0.5), -2, 0), ValueError, "expected quant_min <= 0 < quant_max, got -2 and 0"),
        ((torch.tensor(0.5), 1, 3), ValueError, "got 1 and 3"),
        ((torch.ones(3), -2, 1), RuntimeError, r"expected step to be one number where dim is None, got \(3,\)"),
        ((torch.ones(2), -2, 1, 1), RuntimeError, r"step of shape \(3,\) for dim 1 .* got \(2,\)"),
        ((torch.tensor(0.5), -2, 1, 0), RuntimeError, r"step of shape \(2,\) .* got \(\)"),
        ((torch.ones(3), -2, 1, 5), IndexError, r"\[-2, 1\], got 5"),
    ],
)
def test_bad_input_of_learned_step_size_is_named(options, error, message) -> None:
    with pytest.raises(error, match=message):
        learned_step_size(torch.ones(2, 3), *options)


def test_initial_step() -> None:
    x = torch.tensor([[-1.0, 3.0, 0.0], [2.0, 2.0, 8.0]], requires_grad=True)
    assert initial_step(x, 4).item() == pytest.approx(2 * 16 / 6 / 2)
    assert initial_step(x, 1, 0).tolist() == pytest.approx([8 / 3, 8])
    assert initial_step(x, 1, -1).tolist() == pytest.approx([3, 5, 8])
    cube = torch.arange(24.0).reshape(2, 3, 4)
    for dim, others in ((0, (1, 2)), (1, (0, 2)), (-1, (0, 1))):
        assert torch.allclose(initial_step(cube, 4, dim), cube.mean(others))
    assert not initial_step(x, 4).requires_grad


def test_nothing_is_kept_beyond_the_arguments() -> None:
    x = torch.randn(1000, requires_grad=True)
    assert saved_bytes(lambda x: fake_quantize(x, 0.1), x) <= 12  # the two numbers, as tensors
    assert saved_bytes(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), x) == 1000
    step = torch.tensor([0.1], requires_grad=True)
    assert saved_bytes(lambda x, s: learned_step_size(x, s, -2, 1), x, step) <= 4
    output = 4000
    assert held_bytes(lambda x: fake_quantize(x, 0.1), x) <= output + 12
