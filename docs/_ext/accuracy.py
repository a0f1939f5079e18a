"""How far element-wise recipes are from the truth, in units in the last place of their dtype.

In half precision on every finite number there is; in float32 and float64 on numbers of all sizes and both signs; and
functions of two tensors on all pairs of fewer such numbers.
Each formula is written once, for two libraries that name their functions alike: torch, whose float64 is the reference
of everything shorter, and mpmath, which is that of float64.

    python -m docs._ext.accuracy          # the table; with names of recipes, those
"""

import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

import mpmath
import torch
from scipy.special import lambertw
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.catalog import BY_NAME
from autograd_cookbook.recipes.cuda_extension import SWISH
from autograd_cookbook.recipes.elementwise import SELU_ALPHA, SELU_SCALE

DTYPES = torch.float16, torch.bfloat16, torch.float32, torch.float64
DIGITS = 60  # of mpmath; forms below that cancel lose a part of them
Formula = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One function of one number, or of two.

    Args:
        recipe: its name in the catalog.
        value: of the library and the number, or both numbers; accurate in float64 with at least the digits of float32.
        slope: its derivative, as well.
        built_in: what torch has for it, called with the same arguments.
        second: a tensor argument after the number: a constant, or the range of numbers to pair with those of the first.
            A formula gets the latter only.
        rest: arguments that are no tensors.
        by: the name of the argument that the slope is a derivative by; None for the first.
        domain: which numbers the function is for.
        zero: where the slope crosses 0, if that is at no representable number: its digits end there.
        part: which of several outputs.
        mapped: whether the recipe takes one second number for all elements, so that pairs are mapped over.
    """

    recipe: str
    value: Formula
    slope: Formula
    built_in: Callable[..., Tensor] | None = None
    second: float | tuple[float, float] | None = None
    rest: tuple[Any, ...] = ()
    by: str | None = None
    domain: tuple[float, float] = (-math.inf, math.inf)
    zero: float | None = None
    part: int | None = None
    mapped: bool = False

    @property
    def function(self) -> Callable[..., Tensor]:
        """What the reader calls."""
        function = BY_NAME[self.recipe].function
        if self.part is not None:
            return lambda *args: function(*args)[self.part]
        return torch.func.vmap(function) if self.mapped else function

    @property
    def label(self) -> str:
        second = (self.second,) if isinstance(self.second, float) else ()
        arguments = ", ".join(format(a, ".4g") if isinstance(a, float) else str(a) for a in (*second, *self.rest))
        part = "" if self.part is None else f"[{self.part}]"
        return self.recipe + (f"({arguments})" if arguments else "") + part + (f" of {self.by}" if self.by else "")

    @property
    def position(self) -> int:
        """Of the argument that the slope is a derivative by."""
        parameters = inspect.signature(BY_NAME[self.recipe].function).parameters
        return list(parameters).index(self.by) if self.by else 0


def positive(x: Any) -> Any:
    """The part above 0, of a tensor or of a number of mpmath."""
    return x / 2 + abs(x) / 2


def logistic(m: Any, x: Any) -> Any:
    # Both tails are ratios of what does not overflow.
    return m.exp(x - positive(x)) / (1 + m.exp(-abs(x)))


def bounded(m: Any, x: Any) -> Any:
    """Where the tails of all dtypes have ended, so that no square is too large for mpmath."""
    return x.clamp(-1e4, 1e4) if m is torch else min(max(x, -(10**4)), 10**4)


def normal(m: Any, x: Any) -> Any:
    x = bounded(m, x)
    return m.erfc(-x / m.sqrt(0 * x + 2)) / 2


def density(m: Any, x: Any) -> Any:
    x = bounded(m, x)
    return m.exp(-x * x / 2) / m.sqrt(0 * x + 2) / m.sqrt(0 * x + m.pi)


def gate(m: Any, x: Any) -> Any:
    e = m.exp(-abs(x))
    above, below = (1 + 2 * e) / (1 + 2 * e + 2 * e * e), (e * e + 2 * e) / (e * e + 2 * e + 2)
    return (x > 0) * above + (x <= 0) * below


def gate_slope(m: Any, x: Any) -> Any:
    e = m.exp(-abs(x))
    above, below = 4 * e * e * (1 + e) / (1 + 2 * e + 2 * e * e) ** 2, 4 * e * (1 + e) / (e * e + 2 * e + 2) ** 2
    return (x > 0) * above + (x <= 0) * below


def log_cosh(m: Any, x: Any) -> Any:
    # cosh x = 1 + (e^x - 1)^2 e^-x / 2 near 0, and e^x (1 + e^-2x) / 2 elsewhere: no difference that cancels.
    size = abs(x)
    low = size.clamp(max=2) if m is torch else min(size, 2)
    near = m.log1p(m.expm1(low) ** 2 * m.exp(-low) / 2)
    return (size < 2) * near + (size >= 2) * (size + m.log1p(m.exp(-2 * size)) - m.log(0 * x + 2))


def sign(x: Any) -> Any:
    return (x > 0) * 1 - (x < 0) * 1


def tanh_slope(m: Any, x: Any) -> Any:
    e = m.exp(-2 * abs(x))
    return 4 * e / (1 + e) ** 2


def elu(alpha: float, scale: float = 1.0) -> tuple[Formula, Formula]:
    def value(m: Any, x: Any) -> Any:
        return scale * (positive(x) + alpha * m.expm1(x - positive(x)))

    def slope(m: Any, x: Any) -> Any:
        return (x > 0) * scale + (x <= 0) * scale * (alpha * m.exp(x - positive(x)))

    return value, slope


def swish(m: Any, x: Any) -> Any:
    return x * logistic(m, x)


def swish_slope(m: Any, x: Any) -> Any:
    return logistic(m, x) + x * logistic(m, x) * logistic(m, -x)


def lambert_w(m: Any, x: Any) -> Any:
    return torch.from_numpy(lambertw(x.numpy(), tol=1e-10).real) if m is torch else m.lambertw(x).real


def lambert_w_slope(m: Any, x: Any) -> Any:
    w = lambert_w(m, x)
    return m.exp(-w) / (1 + w)


def either(condition: Any, yes: Any, no: Any) -> Any:
    """One of two, also where the other is not finite."""
    return torch.where(condition, yes, no) if isinstance(condition, Tensor) else yes if condition else no


def smooth_maximum(m: Any, x: Any, z: Any) -> Any:
    return either(x > z, x, z) + m.log1p(m.exp(-abs(x - z)))


def hinge(x: Any) -> Any:
    """Half a square up to 1, and from there on a line."""
    return (abs(x) < 1) * (x * x / 2) + (abs(x) >= 1) * (abs(x) - 0.5)


def limited(x: Any) -> Any:
    return (abs(x) <= 1) * x + (abs(x) > 1) * sign(x)


def logarithm(m: Any, x: Any) -> Any:
    return either(x == 0, 0 * x - math.inf, m.log(x + (x == 0)))


def quotient(x: Any, z: Any) -> Any:
    """0 where the denominator is."""
    return (z != 0) * (x / (z + (z == 0)))


def nothing_if_both(x: Any, z: Any, else_: Any) -> Any:
    return either((x == 0) & (z == 0) if isinstance(x, Tensor) else x == z == 0, 0 * x, else_)


def xlogy(m: Any, x: Any, z: Any) -> Any:
    return either(x == 0, 0 * x, x * logarithm(m, z))


def infinite(x: Any) -> Any:
    return either(x == 0, 0 * x, (1 - 2 * (x < 0)) * (0 * x + math.inf))


def pinball_slope(quantile: float) -> Formula:
    return lambda m, x, z: (z < x) * (1 - quantile) - (z > x) * quantile + (z == x) * (0.5 - quantile)


EVERY = (-math.inf, math.inf)
CASES = (
    Case("square", lambda m, x: x * x, lambda m, x: 2 * x, torch.square),
    Case("abs_squared", lambda m, x: x * x, lambda m, x: 2 * x, torch.square),
    Case("split_sign", lambda m, x: positive(x), lambda m, x: (x > 0) * 1, F.relu, part=0),
    Case("split_sign", lambda m, x: positive(-x), lambda m, x: (x < 0) * -1, lambda x: F.relu(-x), part=1),
    Case("power", lambda m, x: x * x * x, lambda m, x: 3 * x * x, torch.pow, rest=(3,)),
    Case("clamp", lambda m, x: limited(x), lambda m, x: (abs(x) <= 1) * 1, torch.clamp, rest=(-1.0, 1.0)),
    Case("relu", lambda m, x: positive(x), lambda m, x: (x > 0) * 1, F.relu),
    Case("gelu", lambda m, x: x * normal(m, x), lambda m, x: normal(m, x) + x * density(m, x), F.gelu, zero=-0.7518),
    Case("mish", lambda m, x: x * gate(m, x), lambda m, x: gate(m, x) + x * gate_slope(m, x), F.mish, zero=-1.1924),
    Case("elu", *elu(1.0), F.elu, rest=(1.0,)),
    Case("elu", *elu(0.3), F.elu, rest=(0.3,)),
    Case("selu", *elu(SELU_ALPHA, SELU_SCALE), F.selu),
    Case("softplus", lambda m, x: positive(x) + m.log1p(m.exp(-abs(x))), logistic, F.softplus),
    Case("softplus", lambda m, x: positive(x) + m.log1p(m.exp(-2 * abs(x))) / 2,
         lambda m, x: logistic(m, 2 * x), F.softplus, rest=(2.0,)),
    Case("log_cosh", log_cosh, lambda m, x: m.tanh(x)),
    Case("symlog", lambda m, x: sign(x) * m.log1p(abs(x)), lambda m, x: 1 / (1 + abs(x))),
    Case("sigmoid", logistic, lambda m, x: logistic(m, x) * logistic(m, -x), torch.sigmoid),
    Case("tanh", lambda m, x: m.tanh(x), tanh_slope, torch.tanh),
    Case("safe_sqrt", lambda m, x: m.sqrt(x), lambda m, x: 1 / (2 * m.sqrt(x)), torch.sqrt, domain=(1e-320, math.inf)),
    Case("parametric_swish", swish, swish_slope, lambda x, b: F.silu(x), second=1.0, zero=-1.2785),
    Case("parametric_swish", swish, lambda m, x: x * logistic(m, x) * (x * logistic(m, -x)), second=1.0, by="beta"),
    Case("swish", swish, swish_slope, lambda x, b: F.silu(x), second=1.0, zero=-1.2785),
    Case("swish", swish, lambda m, x: x * logistic(m, x) * (x * logistic(m, -x)), second=1.0, by="beta", mapped=True),
    Case("scaled_sigmoid", logistic, lambda m, x: logistic(m, x) * logistic(m, -x), second=1.0),
    Case("scaled_tanh", lambda m, x: 1.7159 * m.tanh(2 / 3 * x),
         lambda m, x: 1.7159 * (2 / 3 * tanh_slope(m, 2 / 3 * x)), rest=(1.7159, 2 / 3)),
    Case("lambert_w", lambert_w, lambert_w_slope, domain=(math.nextafter(-1 / math.e, 0), math.inf)),
    Case("huber", lambda m, x: hinge(x), lambda m, x: limited(x),
         lambda x, delta: F.huber_loss(x, torch.zeros_like(x), reduction="none", delta=delta), rest=(1.0,)),
    Case("quadratic", lambda m, x: (2 * x + 3) * x + 4, lambda m, x: 4 * x + 3, rest=(2.0, 3.0, 4.0)),
    Case("leaky_relu_", lambda m, x: positive(x) - 0.01 * positive(-x), lambda m, x: (x > 0) * 1 + (x <= 0) * 0.01,
         F.leaky_relu, rest=(0.01,)),
    Case("packed_relu", lambda m, x: positive(x), lambda m, x: (x > 0) * 1, F.relu),
    Case("smooth_l1", lambda m, x, z: hinge(x - z), lambda m, x, z: limited(x - z),
         lambda x, z, beta, reduction: F.smooth_l1_loss(x, z, beta=beta, reduction=reduction), second=EVERY,
         rest=(1.0, "none")),
    Case("pinball_loss", lambda m, x, z: 0.3 * positive(z - x) + (1 - 0.3) * positive(x - z), pinball_slope(0.3),
         second=EVERY, rest=(0.3, "none")),
    Case("smooth_maximum", smooth_maximum, lambda m, x, z: logistic(m, x - z), torch.logaddexp, second=EVERY),
    Case("bias_add", lambda m, x, z: x + z, lambda m, x, z: 0 * x + 1, lambda x, z, dim: x + z, second=EVERY,
         rest=(0,)),
    Case("multiply", lambda m, x, z: x * z, lambda m, x, z: z, torch.mul, second=EVERY),
    Case("xlogy", xlogy, lambda m, x, z: nothing_if_both(x, z, logarithm(m, z)), torch.xlogy, second=(0.0, math.inf)),
    Case("xlogy", xlogy, lambda m, x, z: either(z == 0, infinite(x), quotient(x, z)), torch.xlogy,
         second=(0.0, math.inf), by="other"),
    Case("safe_divide", lambda m, x, z: quotient(x, z), lambda m, x, z: quotient(0 * x + 1, z),
         BY_NAME["safe_divide"].reference, second=EVERY),
    Case("safe_divide", lambda m, x, z: quotient(x, z), lambda m, x, z: -quotient(quotient(x, z), z),
         BY_NAME["safe_divide"].reference, second=EVERY, by="other"),
)  # fmt: skip


def numbers(dtype: torch.dtype) -> Tensor:
    """Every finite number of a half dtype; of the others, numbers of all sizes and both signs, and the special ones."""
    if dtype.itemsize == 2:
        every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
        return every[every.isfinite()]
    return spread(dtype, 4000 if dtype == torch.float32 else 400)


def spread(dtype: torch.dtype, count: int) -> Tensor:
    """So many numbers of all sizes, as many where functions bend, and the special ones; of both signs."""
    info = torch.finfo(dtype)
    lowest, highest = math.log2(info.smallest_normal), math.log2(info.max)
    sizes = 2 ** torch.linspace(lowest, highest - 1, count, dtype=torch.float64)
    near = torch.linspace(0, 120, count, dtype=torch.float64)
    special = torch.tensor([0.0, 1.0, info.eps, 1 - info.eps / 2, 1 + info.eps, info.smallest_normal * info.eps,
                            info.smallest_normal, info.max], dtype=torch.float64)  # fmt: skip
    sizes = torch.cat([sizes, near, special]).to(dtype)
    return torch.cat([sizes, -sizes])


def inside(case: Case, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The numbers of the dtype that the function is for, or pairs of them."""

    def within(every: Tensor, low: float, high: float) -> Tensor:
        # Where nothing is negative, -0 is not either.
        return every[(every.double() >= low) & (every.double() <= high) & ~(every.signbit() & (low >= 0))]

    if not isinstance(case.second, tuple):
        return (within(numbers(dtype), *case.domain),)
    some = spread(dtype, 8 if dtype == torch.float64 else 40)
    return torch.cartesian_prod(within(some, *case.domain), within(some, *case.second)).unbind(-1)


class Exact(NamedTuple):
    """More digits than the dtype has, as the sum of two parts in units in the last place, which are powers of 2."""

    exponent: Tensor
    high: Tensor
    low: Tensor


class Truth(NamedTuple):
    """Where, what value and slope are there, and which of them count."""

    at: tuple[Tensor, ...]
    exact: tuple[Exact, Exact]
    counted: tuple[Tensor, Tensor]


def scaled(number: Tensor, exponent: Tensor) -> Tensor:
    """Times a power of 2, in two steps: the power itself may overflow."""
    half = exponent.div(2, rounding_mode="floor")
    return number * 2.0**half * 2.0 ** (exponent - half)


def units(dtype: torch.dtype) -> tuple[int, int, int]:
    """Digits after the first, and the exponents of the smallest normal number and of the largest one."""
    info = torch.finfo(dtype)
    return -round(math.log2(info.eps)), round(math.log2(info.smallest_normal)), math.frexp(info.max)[1] - 1


def exact(formula: Formula, at: tuple[Tensor, ...]) -> Exact:
    """The formula at these numbers, in float64, or in many digits where that is their dtype."""
    dtype = at[0].dtype
    digits, lowest, highest = units(dtype)
    if dtype != torch.float64:
        wide = tuple(x.double() for x in at)
        truth = formula(torch, *wide) + 0 * wide[0]
        _, exponent = torch.frexp(truth.clamp(-1e308, 1e308))
        exponent = (exponent.double() - 1).clamp(lowest, highest).masked_fill(truth == 0, lowest) - digits
        return Exact(exponent, scaled(truth, -exponent), torch.zeros_like(truth))
    rows = []
    with mpmath.workdps(DIGITS):
        for point in zip(*(x.tolist() for x in at), strict=True):
            truth = mpmath.mpf(formula(mpmath, *map(mpmath.mpf, point)))
            size = lowest if not truth else mpmath.mag(truth) - 1 if mpmath.isfinite(truth) else highest
            exponent = min(max(size, lowest), highest) - digits
            truth = mpmath.ldexp(truth, -exponent)
            high = float(truth)
            rows.append((exponent, high, float(truth - high) if math.isfinite(high) else 0.0))
    return Exact(*torch.tensor(rows, dtype=torch.float64).unbind(-1))


def ulps(found: Tensor, truth: Exact) -> Tensor:
    """How many units in the last place each number is off. Infinity is right where the truth overflows to that side."""
    largest = scaled(torch.full_like(truth.high, torch.finfo(found.dtype).max), -truth.exponent)
    overflows = found.isinf() & (found.sign() == truth.high.sign()) & (truth.high.abs() > largest)
    error = (scaled(found.double(), -truth.exponent) - truth.high - truth.low).abs()
    return error.masked_fill(overflows, 0).masked_fill(error.isnan() & ~overflows, math.inf)


def counted(case: Case, what: str, at: tuple[Tensor, ...], truth: Exact) -> Tensor:
    """All numbers of half precision, which is computed in a wider dtype; where there is none, not the numbers near to
    the zero of a slope, and not those whose image is smaller than any factor of it may be."""
    everywhere = torch.ones_like(at[0], dtype=torch.bool)
    if at[0].dtype.itemsize == 2:
        return everywhere
    if what == "slope" and case.zero is not None:
        everywhere &= (at[0] - case.zero).abs() > 0.5
    size, info = scaled(truth.high, truth.exponent).abs(), torch.finfo(at[0].dtype)
    return everywhere & ((size > info.smallest_normal / info.eps) | (size == 0))


def truth(case: Case, dtype: torch.dtype) -> Truth:
    """All that does not depend on who computes it: it takes longer than the functions that are measured."""
    at = inside(case, dtype)
    value, slope = exact(case.value, at), exact(case.slope, at)
    return Truth(at, (value, slope), (counted(case, "value", at, value), counted(case, "slope", at, slope)))


def run(case: Case, function: Callable[..., Tensor], at: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Value and slope of a function at these numbers."""
    inputs = [x.clone().requires_grad_() for x in at]
    if isinstance(case.second, float):
        # One for all, unless its own slope is wanted, which would be a sum.
        constant = torch.full_like(at[0], case.second) if case.by else at[0].new_tensor(case.second)
        inputs.append(constant.requires_grad_())
    # What somebody has compiled before on this machine must not change the figures.
    with patch.dict(SWISH.kernels, clear=True):
        value = function(*(x.clone() for x in inputs), *case.rest)
        (slope,) = torch.autograd.grad(value.sum(), inputs[case.position], allow_unused=True)
    return value.detach(), torch.full_like(at[0], math.nan) if slope is None else slope


def errors(case: Case, function: Callable[..., Tensor], truth: Truth) -> tuple[Tensor, Tensor]:
    """How many units in the last place value and slope are off."""
    value, slope = run(case, function, truth.at)
    return ulps(value, truth.exact[0]), ulps(slope, truth.exact[1])


def table(names: list[str]) -> None:
    """Print the largest errors, where they are, and those of the built-in."""
    for case in CASES:
        if names and case.recipe not in names:
            continue
        for dtype in DTYPES:
            true = truth(case, dtype)
            ours = errors(case, case.function, true)
            theirs = errors(case, case.built_in, true) if case.built_in else (None, None)
            row = [f"{case.label:28} {str(dtype)[6:]:9}"]
            for what, our, their in zip(("value", "slope"), ours, theirs, strict=True):
                where = ", ".join(f"{x[our.argmax()]:.4g}" for x in true.at)
                row.append(f"{what} {our.max():9.3g} at {where:<11}")
                row.append(f"(torch {their.max():8.3g})" if their is not None else 16 * " ")
            print(*row)


if __name__ == "__main__":
    table(sys.argv[1:])
