"""How far element-wise recipes are from the truth, in units in the last place of their dtype.

In half precision on every finite number there is; in float32 and float64 on numbers of all sizes and both signs.
Each formula is written once, for two libraries that name their functions alike: torch, whose float64 is the reference
of everything shorter, and mpmath, which is that of float64.

    python -m docs._ext.accuracy          # the table; with names of recipes, those
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import torch
from torch import Tensor
from torch.nn import functional as F

from autograd_cookbook.catalog import BY_NAME
from autograd_cookbook.recipes.elementwise import SELU_ALPHA, SELU_SCALE

DTYPES = torch.float16, torch.bfloat16, torch.float32, torch.float64
DIGITS = 60  # of mpmath; forms below that cancel lose a part of them
Formula = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Case:
    """One function of one number.

    Args:
        recipe: its name in the catalog.
        value: of the library and the number; accurate in float64 with at least the digits of float32.
        slope: its derivative, as well.
        built_in: what torch has for it.
        second: a tensor argument after the number, whose own gradient is the subject if ``wrt`` is 1.
        rest: arguments that are no tensors.
        wrt: the argument that the slope is a derivative by.
        domain: which numbers the function is for.
        zero: where the slope crosses 0, if that is at no representable number: its digits end there.
    """

    recipe: str
    value: Formula
    slope: Formula
    built_in: Callable[..., Tensor] | None = None
    second: float | None = None
    rest: tuple[Any, ...] = ()
    wrt: int = 0
    domain: tuple[float, float] = (-math.inf, math.inf)
    zero: float | None = None

    @property
    def function(self) -> Callable[..., Tensor]:
        """What the reader calls."""
        return BY_NAME[self.recipe].function

    @property
    def label(self) -> str:
        arguments = [str(a) for a in (self.second, *self.rest) if a is not None]
        return self.recipe + (f"({', '.join(arguments)})" if arguments else "") + (" of beta" if self.wrt else "")


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


CASES = (
    Case("square", lambda m, x: x * x, lambda m, x: 2 * x, torch.square),
    Case("power", lambda m, x: x * x * x, lambda m, x: 3 * x * x, torch.pow, rest=(3,)),
    Case("clamp", lambda m, x: (abs(x) <= 1) * x + (abs(x) > 1) * sign(x), lambda m, x: (abs(x) <= 1) * 1, torch.clamp,
         rest=(-1.0, 1.0)),
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
    Case("parametric_swish", lambda m, x: x * logistic(m, x),
         lambda m, x: logistic(m, x) + x * logistic(m, x) * logistic(m, -x), lambda x, b: F.silu(x), second=1.0,
         zero=-1.2785),
    Case("parametric_swish", lambda m, x: x * logistic(m, x),
         lambda m, x: x * logistic(m, x) * (x * logistic(m, -x)), second=1.0, wrt=1),
    Case("scaled_sigmoid", logistic, lambda m, x: logistic(m, x) * logistic(m, -x), second=1.0),
)  # fmt: skip


def numbers(dtype: torch.dtype) -> Tensor:
    """Every finite number of a half dtype; of the others, numbers of all sizes and both signs, and the special ones."""
    if dtype.itemsize == 2:
        every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
        return every[every.isfinite()]
    info = torch.finfo(dtype)
    count = 4000 if dtype == torch.float32 else 400
    lowest, highest = math.log2(info.smallest_normal), math.log2(info.max)
    sizes = 2 ** torch.linspace(lowest, highest - 1, count, dtype=torch.float64)
    near = torch.linspace(0, 120, count, dtype=torch.float64)
    special = torch.tensor([0.0, 1.0, info.eps, 1 - info.eps / 2, 1 + info.eps, info.smallest_normal, info.max],
                           dtype=torch.float64)  # fmt: skip
    # The sizes of most interest are those where functions bend.
    sizes = torch.cat([sizes, near, special]).to(dtype)
    return torch.cat([sizes, -sizes])


def exact(formula: Formula, at: Tensor) -> Tensor | list[Any]:
    """The formula at these numbers, with more digits than their dtype has."""
    if at.dtype != torch.float64:
        return formula(torch, at.double()) + 0 * at.double()
    with mpmath.workdps(DIGITS):
        return [mpmath.mpf(formula(mpmath, mpmath.mpf(x))) for x in at.tolist()]


def ulps(found: Tensor, truth: Tensor | list[Any]) -> Tensor:
    """How many units in the last place each number is off; what the dtype cannot represent counts as 0, NaN never."""
    info = torch.finfo(found.dtype)
    digits, lowest = -round(math.log2(info.eps)), math.log2(info.smallest_normal)

    if isinstance(truth, Tensor):
        _, exponent = torch.frexp(truth)
        unit = torch.ldexp(torch.ones_like(truth), (exponent - 1).clamp(min=round(lowest)) - digits)
        error = (found.double() - truth).abs() / unit
        beyond = truth.abs() > info.max
    else:
        with mpmath.workdps(DIGITS):
            units = [mpmath.ldexp(1, max(mpmath.mag(t) - 1 if t else -(10**6), round(lowest)) - digits) for t in truth]
            pairs = zip(found.tolist(), truth, units, strict=True)
            error = torch.tensor([float(abs(mpmath.mpf(f) - t) / u) if math.isfinite(f) else math.inf
                                  for f, t, u in pairs], dtype=torch.float64)  # fmt: skip
            beyond = torch.tensor([abs(t) > info.max for t in truth])
    error = error.masked_fill(error.isnan(), math.inf)
    return torch.where(beyond & ~found.isnan(), 0, error)


def run(case: Case, function: Callable[..., Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    """Value and slope of a function at these numbers."""
    input = at.clone().requires_grad_()
    second = () if case.second is None else (torch.full_like(at, case.second).requires_grad_(),)
    value = function(input.clone(), *second, *case.rest)
    (slope,) = torch.autograd.grad(value.sum(), (input, *second)[case.wrt], allow_unused=True)
    return value.detach(), torch.full_like(at, math.nan) if slope is None else slope


def inside(case: Case, dtype: torch.dtype) -> Tensor:
    """The numbers of the dtype that the function is for."""
    every = numbers(dtype)
    low, high = case.domain
    return every[(every.double() >= low) & (every.double() <= high)]


def errors(case: Case, function: Callable[..., Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Where, and how many units in the last place value and slope are off there."""
    at = inside(case, dtype)
    value, slope = run(case, function, at)
    return at, ulps(value, exact(case.value, at)), ulps(slope, exact(case.slope, at))


def counted(case: Case, what: str, at: Tensor) -> Tensor:
    """All numbers of half precision, which is computed in a wider dtype; where there is none, not the numbers near to
    the zero of a slope, and not those whose image is smaller than any factor of it may be."""
    everywhere = torch.ones_like(at, dtype=torch.bool)
    if at.dtype.itemsize == 2:
        return everywhere
    if what == "slope" and case.zero is not None:
        everywhere &= (at - case.zero).abs() > 0.5
    truth = exact(case.slope if what == "slope" else case.value, at)
    size = truth.abs() if isinstance(truth, Tensor) else torch.tensor([float(abs(t)) for t in truth], dtype=at.dtype)
    return everywhere & ((size > torch.finfo(at.dtype).smallest_normal / torch.finfo(at.dtype).eps) | (size == 0))


def table(names: list[str]) -> None:
    """Print the largest errors, where they are, and those of the built-in."""
    for case in CASES:
        if names and case.recipe not in names:
            continue
        for dtype in DTYPES:
            at, *ours = errors(case, case.function, dtype)
            theirs = errors(case, case.built_in, dtype)[1:] if case.built_in else (None, None)
            row = [f"{case.label:28} {str(dtype)[6:]:9}"]
            for what, our, their in zip(("value", "slope"), ours, theirs, strict=True):
                row.append(f"{what} {our.max():9.3g} at {at[our.argmax()]:<11.4g}")
                row.append(f"(torch {their.max():8.3g})" if their is not None else 16 * " ")
            print(*row)


if __name__ == "__main__":
    table(sys.argv[1:])
