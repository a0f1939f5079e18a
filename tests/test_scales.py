"""At sizes far from those of the samples, a recipe is as right as what it replaces, in the same dtype.

The truth is what it replaces in float64, which neither overflows nor vanishes there. Second derivatives are compared
too, where a recipe promises them. The last tests are of what the samples do not scale: numbers that are no tensors,
the length of a row, and float64.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as tree

from autograd_cookbook.catalog import BY_NAME, RECIPES, Recipe
from tests.support import is_real

slow = pytest.mark.slow("src/autograd_cookbook/recipes", "src/autograd_cookbook/catalog")
# Powers of two, so that scaling a sample is exact.
SCALES = {
    torch.float32: [2.0**n for n in (-110, -64, -20, 20, 40, 64, 100)],
    torch.bfloat16: [2.0**n for n in (-100, -10, 10, 100)],
    torch.float16: [2.0**n for n in (-12, -8, 4, 8, 12)],
}
MANY = 100  # roundings; what is less wrong than that is not looked at
WORSE = 8  # times as wrong as what it replaces

# Where what it replaces is no measure.
NO_MEASURE = {
    "root": "at other scales the equations of the samples have several solutions, or none",
    "bisect": "at other scales the zero is out of Newton's reach, which stands for what is replaced",
    "reversible_sequence": "the page says how much of a small state is lost under a large one",
    "rotation_exp": "of a million turns, float64 keeps few digits, by this formula and by the matrix exponential",
    "hessian": "in float16, derivatives of a polynomial overflow sooner in one order than in another",
}
# What is not compared at one scale.
BY_ORDER = {
    ("clipped_linear", 2.0**64, "output 0"): "whether a sum of products fits depends on its order, which torch chooses"
}
# Second derivatives that are not compared.
ONCE = {
    "recursive_filter": "with coefficients of any size, states on the way overflow, and the page says what follows",
    "linear_scan": "so do the products of decays over the whole length, as the docstring says",
    "cosine_similarity": "torch's own differentiates where a vector is shorter than eps",
    "rms_norm": "that of a row of one element is nothing but rounding",
    "entmax15": "it comes from the rounded output, which is all that is kept",
}
# What raises, which is no wrong number.
RAISES = {
    "fixed_point": "RuntimeError: no fixed point",  # the functions of the samples are contractions near 1 alone
    "sparse_solve": "TypeError: expected values of float32",
}
CHECKED = [r for r in RECIPES if r.calls and r.reference and r.gradient == "exact" and r.name not in NO_MEASURE]


@pytest.mark.parametrize("recipe", [pytest.param(recipe, id=recipe.name) for recipe in CHECKED])
@pytest.mark.parametrize(
    "samples", [pytest.param(slice(2), id="two"), pytest.param(slice(2, None), id="others", marks=slow)]
)
def test_as_right_as_what_it_replaces(recipe: Recipe, samples: slice) -> None:
    found = [
        f"{sample.name}, {dtype}, times {scale:.3g}, {what}: {wrong}"
        for sample in recipe.calls[samples]
        if not any(isinstance(leaf, Tensor) and leaf.is_complex() for leaf in sample.args)  # has no half precision
        for dtype, scales in SCALES.items()
        for scale in scales
        for what, wrong in wrongs(recipe, sample, dtype, scale)
        if (recipe.name, scale, what) not in BY_ORDER
    ]
    assert not found, "\n".join(found[:10])


def test_what_is_not_checked_is_there() -> None:
    assert {*NO_MEASURE, *RAISES, *ONCE, *(name for name, _, _ in BY_ORDER)} <= {recipe.name for recipe in RECIPES}


def wrongs(recipe: Recipe, sample: Any, dtype: torch.dtype, scale: float) -> Iterator[tuple[str, str]]:
    assert recipe.reference is not None
    given = tree.tree_map(lambda leaf: leaf.detach().mul(scale).to(dtype) if is_real(leaf) else leaf, list(sample.args))
    wanted = [is_real(leaf) and leaf.requires_grad for leaf in tree.tree_leaves(list(sample.args))]
    for twice in (True, False) if "second_order" in recipe.promises and recipe.name not in ONCE else (False,):
        try:
            theirs = computed(recipe.reference, given, wanted, dtype, twice)
            truth = computed(recipe.reference, given, wanted, torch.float64, twice)
            break
        except (RuntimeError, NotImplementedError):  # what is replaced does not take the dtype, or finds no solution
            continue
    else:
        return
    try:
        ours = computed(recipe.function, given, wanted, dtype, twice)
    except (RuntimeError, TypeError) as error:
        if not f"{type(error).__name__}: {error}".startswith(RAISES.get(recipe.name, "not expected")):
            yield "the call", f"{type(error).__name__}: {error}"
        return
    info = torch.finfo(dtype)
    for (what, mine), other, exact in zip(ours.items(), theirs.values(), truth.values(), strict=True):
        fits = (exact.abs() < info.max / 2) & other.isfinite()
        if not fits.any():
            continue
        if lost := int((fits & ~mine.isfinite()).sum()):
            yield what, f"{lost} of {fits.numel()} numbers are not finite"
            continue
        size = float(exact[fits].abs().max())
        off, built_in = (float((x - exact)[fits].abs().max()) for x in (mine, other))
        if size > info.smallest_normal / info.eps and off > max(MANY * info.eps * size, WORSE * built_in):
            yield what, f"{off / size:.2g} of its size off, where what it replaces is {built_in / size:.2g} off"


def computed(
    function: Callable[..., Any], given: Any, wanted: Sequence[bool], dtype: torch.dtype, twice: bool = False
) -> dict[str, Tensor]:
    """Outputs, gradients and second derivatives, as float64; of complex ones, both parts."""
    leaves, structure = tree.tree_flatten(given)
    leaves = [leaf.to(dtype) if is_real(leaf) else leaf for leaf in leaves]
    inputs = [leaf.requires_grad_() for leaf, want in zip(leaves, wanted, strict=True) if want]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        returned = function(*tree.tree_unflatten(leaves, structure))
    outputs = [output for output in tree.tree_leaves(returned) if is_real(output)]
    differentiable = [output for output in outputs if output.requires_grad]
    grads = torch.autograd.grad(
        differentiable, inputs, weights(differentiable, dtype), materialize_grads=True, create_graph=twice
    )
    found = {f"output {i}": output for i, output in enumerate(outputs)}
    found |= {f"gradient {i}": grad for i, grad in enumerate(grads)}
    if twice:  # zero where a gradient has none
        curved = [
            (grad, weight) for grad, weight in zip(grads, weights(grads, dtype), strict=True) if grad.requires_grad
        ]
        seconds = (
            torch.autograd.grad([g for g, _ in curved], inputs, [w for _, w in curved], materialize_grads=True)
            if curved
            else [torch.zeros_like(leaf) for leaf in inputs]
        )
        found |= {f"second derivative {i}": grad for i, grad in enumerate(seconds)}
    real = {name: torch.view_as_real(t) if t.is_complex() else t for name, t in found.items()}
    return {name: tensor.detach().double() for name, tensor in real.items()}


def weights(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """What tensors are weighted with, each with other numbers: of what adds up to a constant, the sum has no slope."""
    return [
        (torch.linspace(0.75, 1.25, max(tensor.numel(), 1))[: tensor.numel()] + i / 2).to(dtype).reshape(tensor.shape)
        for i, tensor in enumerate(tensors)
    ]


# Numbers that are no tensors, far from those of the samples: the recipe, what it replaces, the dtype, the input.
NUMBERS = {
    "scaled_tanh, small": (lambda x: call("scaled_tanh", x, 1e-30, 1.0), lambda x: 1e-30 * x.tanh(), "float32", 1.0),
    "scaled_tanh, large": (
        lambda x: call("scaled_tanh", x, 1e3, 1e-3),
        lambda x: 1e3 * (1e-3 * x).tanh(),
        "float16",
        1.0,
    ),
    "scaled_tanh, nearly straight": (
        lambda x: call("scaled_tanh", x, 1e5, 1e-5),
        lambda x: 1e5 * (1e-5 * x).tanh(),
        "float16",
        1.0,
    ),
    "huber, narrow": (
        lambda x: call("huber", x, 1e-7),
        lambda x: F.huber_loss(x, 0 * x, delta=1e-7, reduction="none"),
        "float16",
        3e4,
    ),
    "huber, wider than the dtype": (
        lambda x: call("huber", x, 1e5),
        lambda x: F.huber_loss(x, 0 * x, delta=1e5, reduction="none"),
        "float16",
        170.0,
    ),
    "smooth_l1, narrow": (
        lambda x: call("smooth_l1", x, torch.zeros_like(x), 1e-7),
        lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), beta=1e-7),
        "float16",
        1.0,
    ),
    "smooth_l1, narrower than the dtype": (
        lambda x: call("smooth_l1", x, torch.zeros_like(x), 1e-8),
        lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), beta=1e-8),
        "float16",
        1.0,
    ),
    "smooth_l1, wider than the dtype": (
        lambda x: call("smooth_l1", x, torch.zeros_like(x), 1e5, "sum"),
        lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), beta=1e5, reduction="sum"),
        "float16",
        1e4,
    ),
    "huber, wide": (
        lambda x: call("huber", x, 1000.0),
        lambda x: F.huber_loss(x, 0 * x, delta=1000.0, reduction="none"),
        "float16",
        170.0,
    ),
    "smooth_l1, wide": (
        lambda x: call("smooth_l1", x, torch.zeros_like(x), 1000.0),
        lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), beta=1000.0),
        "float16",
        170.0,
    ),
    "pinball_loss, far quantile": (
        lambda x: call("pinball_loss", x, torch.zeros_like(x), 0.001, "none"),
        lambda x: torch.maximum(-0.001 * x, 0.999 * x),
        "bfloat16",
        1.0,
    ),
    "distillation_loss, hot": (
        lambda x: call("distillation_loss", x, x.detach().flip(-1) / 2, 30.0),
        lambda x: 900 * F.kl_div((x / 30).log_softmax(-1), (x.detach().flip(-1) / 60).softmax(-1), reduction="sum"),
        "float16",
        8.0,
    ),
    "spike, steep": (
        lambda x: call("spike", x, 2.0, "arctan") + 0 * x,
        lambda x: (2 * x).atan() / 2 - ((2 * x).atan() / 2).detach() + (x > 0),
        "float16",
        200.0,
    ),
    "smooth_maximum, cold": (
        lambda x: call("smooth_maximum", x, torch.zeros_like(x), 1e-3),
        lambda x: 1e-3 * torch.logaddexp(1e3 * x, torch.zeros_like(x)),
        "float32",
        1e-2,
    ),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_far_from_those_of_the_samples(case: str) -> None:
    ours, theirs, name, size = NUMBERS[case]
    dtype = getattr(torch, name)
    x = (size * torch.linspace(-1.7, 2.0, 6, dtype=torch.float64)).to(dtype)
    truth = computed(theirs, [x], [True], torch.float64)
    for what, found in computed(ours, [x], [True], dtype).items():
        assert found.isfinite().all(), (what, found)
        error = (found - truth[what]).abs() / truth[what].abs().clamp(min=torch.finfo(dtype).smallest_normal)
        assert error.max() < 64 * torch.finfo(dtype).eps, (what, found, truth[what])


def call(name: str, *args: Any) -> Tensor:
    output: Tensor = BY_NAME[name].function(*args)
    return output


@pytest.mark.parametrize("name", ["sparsemax", "entmax15", "softmax"])
def test_a_long_row_in_float16_has_a_gradient(name: str) -> None:
    """A sum of its hundred thousand entries is more than float16 has; their mean is not."""
    x = torch.zeros(100_000, dtype=torch.float16)
    for what, found in computed(BY_NAME[name].function, [x], [True], torch.float16).items():
        assert found.isfinite().all(), what


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["sparsemax", "entmax15", "softmax", "triton_softmax"])
def test_gradients_that_hardly_differ_are_compared_with_an_unrounded_mean(name: str, dtype: torch.dtype) -> None:
    function, grad = BY_NAME[name].function, 1 + torch.finfo(dtype).eps * torch.tensor([0.0, 1.0, 1.0, 1.0])
    found, truth = (
        torch.autograd.grad(function(leaf := torch.zeros(4, dtype=t, requires_grad=True)), leaf, grad.to(t))[0].double()
        for t in (dtype, torch.float64)
    )
    torch.testing.assert_close(found, truth, rtol=4 * torch.finfo(dtype).eps, atol=0)


def of_one_segment(x: Tensor) -> Tensor:
    return call("segment_softmax", x, torch.zeros(len(x), dtype=torch.int64), 1)


@pytest.mark.parametrize("score", [-3.0, -5.0, -5.3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["softmax", "triton_softmax", "segment_softmax"])
def test_the_gradient_of_a_weight_near_1_does_not_come_from_a_rounded_sum(
    name: str, dtype: torch.dtype, score: float
) -> None:
    """The weight of 0.9933 is 0.9922 in bfloat16, of which 1 - 0.9933 would be 16 % off."""
    function = of_one_segment if name == "segment_softmax" else BY_NAME[name].function
    x = torch.tensor([0.0, score], dtype=dtype)
    first = torch.tensor([1.0, 0.0])
    found, truth = (
        torch.autograd.grad(f(leaf := x.to(t).requires_grad_()), leaf, first.to(t))[0].double()
        for f, t in ((function, dtype), (lambda x: x.softmax(-1), torch.float64))
    )
    torch.testing.assert_close(found, truth, rtol=4 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("values", [[1.0, 2.0, 4.0], [1.0, 1.0, 4.0]], ids=["apart", "close"])
def test_spectral_gradients_have_no_scale_in_float64(values: list[float], scale: float) -> None:
    """The squares of such values overflow or vanish, and so does what is divided by their differences."""
    basis = torch.linalg.qr(torch.tensor([[2.0, 1.0, 0.0], [-1.0, 3.0, 1.0], [0.5, 0.0, 1.0]], dtype=torch.float64))[0]
    matrix = basis @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ basis.mT

    def projector(a: Tensor) -> Tensor:
        vectors: Tensor = BY_NAME["eigh"].function(a)[1][:, 2:]
        return vectors @ vectors.mT

    def polar(a: Tensor) -> Tensor:
        u, _, vh = BY_NAME["svd"].function(a)
        return u @ vh

    def total(a: Tensor) -> Tensor:
        return BY_NAME["eigh"].function(a)[0].sum() + BY_NAME["svd"].function(a)[1].sum()

    for function, power in ((projector, 1), (polar, 1), (total, 0)):
        expected, found = (
            computed(lambda a, f=function: f(a) * torch.arange(1.0, 10).reshape(3, 3), [a], [True], torch.float64)
            for a in (matrix, matrix * scale)
        )
        gradient = found["gradient 0"] * scale if power else found["gradient 0"]
        torch.testing.assert_close(gradient, expected["gradient 0"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-120, 1e-20, 1.0])
def test_the_logarithm_of_a_small_rotation(scale: float) -> None:
    vector = scale * torch.tensor([0.3, -0.5, 0.7], dtype=torch.float64)
    found = call("rotation_log", call("rotation_exp", vector))
    torch.testing.assert_close(found, vector, rtol=1e-13, atol=0)


@pytest.mark.parametrize("max_norm", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e37])
@pytest.mark.parametrize("name", ["clip_gradient", "clip_gradient_norm"])
def test_a_bound_and_a_gradient_of_any_two_sizes(name: str, size: float, max_norm: float) -> None:
    """Their quotient may be less than any number of float32."""
    x, grad = torch.zeros(2, requires_grad=True), torch.tensor([3.0, 4.0]) * size
    (found,) = torch.autograd.grad(BY_NAME[name].function(x, max_norm), x, grad)
    factor = min(1.0, max_norm / float(grad.double().norm()))
    torch.testing.assert_close(found.double(), grad.double() * factor, rtol=1e-6, atol=0)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_a_log_of_gradients_of_any_size(size: float) -> None:
    x = torch.ones(100, requires_grad=True)
    with BY_NAME["GradientLog"].function() as log:
        (log.watch("x", 1 * x) * size).sum().backward()
    assert log.norms["x"] == [pytest.approx(10 * size, rel=1e-6)]


def test_weights_of_attention_do_not_come_from_a_rounded_sum() -> None:
    """A constant added to all scores of a query changes nothing, but the digits that their log-sum-exp has left."""
    torch.manual_seed(0)
    query, key, value = torch.randn(8, 3), torch.randn(16, 3), torch.randn(16, 4)
    args = torch.cat([query, torch.ones(8, 1)], 1), torch.cat([key, torch.full((16, 1), 1000.0)], 1), value

    def composed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return (query @ key.mT).softmax(-1) @ value

    def attention(*args: Tensor) -> Tensor:
        return call("attention", *args, False, 1.0)

    wanted = [True] * 3
    truth = computed(composed, list(args), wanted, torch.float64)
    ours, theirs = (computed(f, list(args), wanted, torch.float32) for f in (attention, composed))
    for what, exact in truth.items():
        off, built_in = (float((found[what] - exact).abs().max()) for found in (ours, theirs))
        assert off < WORSE * built_in, (what, off, built_in)


def test_a_start_from_which_the_first_step_is_small_is_not_taken_for_the_end() -> None:
    """One step has no ratio: near a start, a map that hardly contracts looks as if it had arrived."""
    x = torch.tensor([0.3, 0.4])
    with pytest.warns(UserWarning, match="contracts by a factor"):
        BY_NAME["fixed_point"].function(lambda z, x: (1 - 2e-6) * z + 2e-6 * x, torch.full_like(x, 0.2), x, history=0)


def test_what_drops_out_is_zero_however_large_it_was() -> None:
    x = torch.full((1000,), 60_000.0, dtype=torch.float16)
    for what, found in computed(lambda x: call("seeded_dropout", x, 0.5, True, 0), [x], [True], torch.float16).items():
        assert not found.isnan().any(), what


WHOLE = torch.tensor([[3.0, 4.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0], [1.0, -2.0, 5.0, 7.0]], dtype=torch.float64)
# What a factor of the input only scales: the value by the factor to this power, the gradient by one power less.
HOMOGENEOUS = {
    "norm": (lambda x: call("norm", x, 2, 1), 1),
    "norm of order 1.5": (lambda x: call("norm", x, 1.5, 1), 1),
    "norm of order 31": (lambda x: call("norm", x, 31, 1), 1),
    "norm of order 50": (lambda x: call("norm", x, 50, 1), 1),
    "rms_norm": (lambda x: call("rms_norm", x, torch.ones_like(x[0]), 0.0), 0),
    "cosine_similarity": (lambda x: call("cosine_similarity", x, x.detach().flip(-1), -1, 0.0), 0),
    "phasor": (lambda x: torch.view_as_real(call("phasor", torch.view_as_complex(x.unflatten(-1, (2, 2))))), 0),
    "fake_quantize": (lambda x: call("fake_quantize", x, 3 * x.detach()[1, :1]), 1),
}


@pytest.mark.parametrize("dtype", SCALES | {torch.float64: None}, ids=str)
@pytest.mark.parametrize("case", HOMOGENEOUS)
def test_subnormal_inputs_have_results_with_all_digits(case: str, dtype: torch.dtype) -> None:
    """The truth is that of the same numbers times a power of two. It holds for float64, too."""
    if case == "phasor" and dtype.itemsize == 2:
        return  # torch has no complex numbers of this kind
    function, degree = HOMOGENEOUS[case]
    info = torch.finfo(dtype)
    least = info.smallest_normal * info.eps
    # A gradient of 1 would make those of the inputs overflow if their size is one over the size of the input.
    upstream = 1.0 if degree else info.smallest_normal**0.5 / 32
    for factor in (least, 8 * least, 256 * least, info.smallest_normal):
        truth, grad_truth = (t.double() for t in pulled(function, WHOLE, 1.0))
        found, grad = (t.double() for t in pulled(function, (WHOLE * factor).to(dtype), upstream))
        torch.testing.assert_close(found / factor**degree, truth, rtol=8 * info.eps, atol=least / factor)
        ratio = upstream / factor ** (1 - degree)
        torch.testing.assert_close(grad / ratio, grad_truth, rtol=8 * info.eps, atol=8 * info.eps)


def pulled(function: Callable[[Tensor], Tensor], x: Tensor, size: float) -> tuple[Tensor, Tensor]:
    """The value, and the gradient for different gradients of the outputs."""
    output = function(leaf := x.clone().requires_grad_())
    upstream = torch.tensor([1.0, 1.25, 2.0, 1.5]).repeat(output.numel())[: output.numel()].reshape(output.shape)
    (grad,) = torch.autograd.grad(output, leaf, (size * upstream.double()).to(output.dtype))
    return output.detach(), grad


@pytest.mark.parametrize("name", ["clip_gradient", "clip_gradient_norm"])
@pytest.mark.parametrize("max_norm", [1e-3, 1.0, 1e3])
def test_a_norm_beyond_the_dtype(max_norm: float, name: str) -> None:
    """A bound divided by it is so small that float32 has few digits for it. The clipped gradient has all of them."""
    x, grad = torch.zeros(1_000_000, requires_grad=True), torch.full((1_000_000,), 1e36)
    (found,) = torch.autograd.grad(BY_NAME[name].function(x, max_norm), x, grad)
    torch.testing.assert_close(found.double(), torch.full_like(grad, max_norm / 1e3).double(), rtol=1e-6, atol=0)


def test_the_phasor_of_the_largest_numbers() -> None:
    """Their length is more than the dtype has."""
    largest = torch.finfo(torch.float32).max
    z = torch.tensor([complex(largest, largest), complex(0.8 * largest, -0.6 * largest)], requires_grad=True)
    found = call("phasor", z)
    (grad,) = torch.autograd.grad(found.imag.sum(), z, torch.tensor(1e30))
    torch.testing.assert_close(found, torch.tensor([0.5**0.5 * (1 + 1j), 0.8 - 0.6j]))
    size = 1e30 / largest
    expected = torch.tensor([(-1 + 1j) * size * 2**-1.5, (0.6 + 0.8j) * 0.8 * size])
    torch.testing.assert_close(torch.view_as_real(grad), torch.view_as_real(expected), rtol=1e-6, atol=0)


def sizes(low: float, high: float, count: int = 1000) -> Tensor:
    return torch.linspace(low, high, count, dtype=torch.float64)


def dct(x: Tensor) -> Tensor:
    n = torch.arange(len(x), dtype=x.dtype)
    factor = torch.where(n == 0, 1, 2).div(len(x)).sqrt()
    return factor * (torch.cos(torch.pi / 2 / len(x) * n[:, None] * (2 * n + 1)) @ x)


# What samples do not have: rows so long, or numbers so far apart, that a step on the way overflows, vanishes or cancels
# and the result does not. The recipe, what it replaces, the dtype and the numbers.
FAR = {
    "var of a long row": (lambda x: call("var", x), torch.var, "float32", sizes(-1e18, 2e18)),
    "pinball_loss of opposite numbers": (
        lambda x: call("pinball_loss", x, -x.detach(), 0.9, "none"),
        lambda x: torch.maximum(0.9 * (-x.detach() - x), 0.1 * (x + x.detach())),
        "float16",
        sizes(-3e4, 6e4, 7),
    ),
    "rms_norm": (
        lambda x: call("rms_norm", x, torch.ones_like(x)),
        lambda x: F.rms_norm(x, x.shape, None, 1e-6),
        "float32",
        sizes(-1e30, 2e30, 10),
    ),
    "rms_norm of double numbers": (
        lambda x: call("rms_norm", x * 1e200, torch.ones_like(x)),
        lambda x: F.rms_norm(x, x.shape, None, 0.0),
        "float64",
        sizes(-1, 2, 10),
    ),
    "rms_norm of small numbers, without eps": (
        lambda x: call("rms_norm", x, torch.ones_like(x), 0.0),
        lambda x: F.rms_norm(x, x.shape, None, 0.0),
        "float32",
        sizes(-1e-30, 2e-30, 10),
    ),
    "cosine_similarity": (
        lambda x: call("cosine_similarity", x, 1e-35 * x.detach().flip(0).sin(), -1, 0.0),
        lambda x: F.cosine_similarity(x, x.detach().flip(0).sin(), -1, 0.0),
        "float32",
        sizes(-1e25, 2e25, 10),
    ),
    "dct": (lambda x: call("dct", x), dct, "float32", sizes(-1e37, 3e37, 64)),
    "odeint of many steps": (
        lambda x: call("odeint", lambda t, z: -z, x, x.new_tensor([0.0, 1.0]), 1000)[1],
        lambda x: x * torch.exp(x.new_tensor(-1.0)),
        "bfloat16",
        sizes(-1, 2, 4),
    ),
    "odeint_adjoint of many steps": (
        lambda x: call("odeint_adjoint", lambda t, z: -z, x, x.new_tensor([0.0, 1.0]), 1000)[1],
        lambda x: x * torch.exp(x.new_tensor(-1.0)),
        "bfloat16",
        sizes(-1, 2, 4),
    ),
}


@pytest.mark.parametrize("case", FAR)
def test_a_step_on_the_way_is_not_lost_where_the_result_is_not(case: str) -> None:
    ours, theirs, name, numbers = FAR[case]
    dtype = getattr(torch, name)
    x = numbers.to(dtype)
    truth = computed(theirs, [x], [True], torch.float64)
    for what, found in computed(ours, [x], [True], dtype).items():
        size = truth[what].abs().max()
        assert (found - truth[what]).abs().max() < 8 * torch.finfo(dtype).eps * size, (what, found, truth[what])
