"""Element-wise recipes are within a few units in the last place of the truth, at every half-precision number."""

import math
from typing import NamedTuple

import mpmath
import pytest
import torch
from docs._ext import accuracy
from docs._ext.accuracy import CASES, DTYPES, Case, Exact, errors, exact, truth, ulps

GOAL = 4.0
# In float32 and float64: of these, the slope is a sum of two products, and torch.special.erfcx alone is 6 units off.
WITHIN = {"gelu": 8.0, "mish": 6.0, "parametric_swish": 6.0}


# Of a result that is too small to count, by how much it may be worse than torch's, or than the goal.
ROUNDING = 1.01
WORSE = {"mish": 2.0}  # the slope in float32, where it is smaller than 10⁻³⁶


class Above(NamedTuple):
    """The largest error in each of DTYPES, to within a factor of two, or None within the goal; why it is so, and
    whether that may be worse than torch's."""

    figures: tuple[float | None, float | None, float | None, float | None]
    why: str
    worse: bool = False


FROM_THE_OUTPUT = "made of the rounded output, as the slope of torch's own function is, which has no digits near to 1"
UNDERFLOW = "in float32, torch.sigmoid is 0 below -89, and bfloat16 has numbers of that size"
ABOVE: dict[tuple[str, str], Above] = {
    ("sigmoid", "value"): Above((None, 24, None, None), UNDERFLOW),
    ("sigmoid", "slope"): Above((2042, 256, 1.7e7, 9e15), FROM_THE_OUTPUT),
    ("tanh", "slope"): Above((2045, 256, 1.7e7, 9e15), FROM_THE_OUTPUT),
    ("scaled_tanh(1.716, 0.6667)", "slope"): Above((2048, 256, 1.7e7, 9e15), FROM_THE_OUTPUT),
    ("smooth_maximum", "value"): Above((None, None, 418, None), "near to its zero two terms cancel, as in torch's"),
    ("smooth_maximum", "slope"): Above((6.6, 68, 59, 124), "an exponential of the rounded difference, as in torch's"),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [pytest.param(c, id=c.label) for c in CASES])
def test_within_units_in_the_last_place(case: Case, dtype: torch.dtype) -> None:
    """Within the goal, which in float32 and float64 is one for normal results; and nowhere worse than the built-in,
    or the goal, by more than one unit. Near to the zero of a slope, where no digits are left, that is asked of the
    largest error."""
    true = truth(case, dtype)
    ours = errors(case, case.function, true)
    theirs = errors(case, case.built_in, true) if case.built_in else (None, None)
    for what, error, other, counts in zip(("value", "slope"), ours, theirs, true.counted, strict=True):
        known = ABOVE.get((case.label, what))
        if known and (figure := known.figures[DTYPES.index(dtype)]):
            largest = error[counts].max()
            assert largest > GOAL
            assert figure / 2 <= largest <= 2 * figure, f"{what} is {largest:.3g} ulp off; {known.why}"
            assert other is None or known.worse or error.max() <= other.max()
            continue
        goal = GOAL if dtype.itemsize == 2 else WITHIN.get(case.recipe, GOAL)
        beyond = (error > goal) & counts
        at = [x[beyond] for x in true.at]
        assert not beyond.any(), f"{what} is {error[beyond].max():.3g} ulp off, first at {[x[0].item() for x in at]}"
        if other is None:
            continue
        worse = WORSE.get(case.recipe, ROUNDING)
        near = torch.zeros_like(counts)
        if what == "slope" and case.zero is not None:
            near = (true.at[0] - case.zero).abs() <= 0.5
        assert (error <= other.clamp(min=goal) + worse)[~near].all()
        assert error.max() <= max(goal, other.max())


def test_what_is_above_the_goal_is_measured() -> None:
    assert {label for label, _ in ABOVE} <= {case.label for case in CASES}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_units_in_the_last_place(dtype: torch.dtype) -> None:
    """An overflow is right where the truth overflows, to that side, and nothing else is then."""
    info = torch.finfo(dtype)
    least = info.smallest_normal * info.eps
    rows = [
        (1.0, 1.0, 0.0),
        (1 + info.eps, 1.0, 1.0),
        (1 + info.eps, mpmath.fadd(1, info.eps / 2, exact=True), 0.5),
        (least, 0.0, 1.0),
        (info.max, mpmath.mpf(info.max), 0.0),
        (math.inf, 4 * mpmath.mpf(info.max), 0.0),
        (-math.inf, -math.inf, 0.0),
        (-math.inf, 4 * mpmath.mpf(info.max), math.inf),
        (math.inf, -math.inf, math.inf),
        (math.inf, mpmath.mpf(info.max), math.inf),
        (math.inf, 0.0, math.inf),
        (math.nan, math.inf, math.inf),
        (math.nan, 1.0, math.inf),
        (info.max, math.inf, math.inf),
    ]
    found, expected, error = (list(column) for column in zip(*rows, strict=True))
    at = torch.tensor(range(len(rows)), dtype=dtype)

    def formula(m: object, x: torch.Tensor | mpmath.mpf) -> object:
        return torch.tensor(list(map(float, expected)), dtype=torch.float64) if m is torch else expected[int(x)]

    assert ulps(torch.tensor(found, dtype=dtype), exact(formula, (at,))).tolist() == error
    assert ulps(at.new_tensor([info.max]), exact(lambda m, x: 0 * x + 2 * info.max, (at[:1],))).item() > 1e2


def test_the_truth_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(formula: accuracy.Formula, at: tuple[torch.Tensor, ...]) -> Exact:
        asked.append(formula)
        return exact(formula, at)

    monkeypatch.setattr(accuracy, "exact", counted)
    case = next(c for c in CASES if c.recipe == "xlogy" and c.by)
    true = truth(case, torch.float32)
    for function in (case.function, torch.xlogy):
        errors(case, function, true)
    assert asked == [case.value, case.slope]


def test_a_case_of_two_tensors_has_pairs_and_the_slope_by_the_named_one() -> None:
    by_input, by_other = (c for c in CASES if c.recipe == "xlogy")
    true = truth(by_other, torch.float64)
    x, z = true.at
    assert (z >= 0).all()
    assert ((x == 0) & (z == 0)).any()
    assert len({(a, b) for a, b in zip(x.tolist(), z.tolist(), strict=True) if a and b}) > 500
    _, slope = accuracy.run(by_other, by_other.function, (torch.tensor([6.0]), torch.tensor([2.0])))
    assert slope.item() == 3
    _, slope = accuracy.run(by_input, by_input.function, (torch.tensor([6.0]), torch.tensor([1.0])))
    assert slope.item() == 0
