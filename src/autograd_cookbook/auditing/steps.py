"""Derivatives of values that come in steps, as those of a solver that stops early do."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

SPACINGS = tuple(1e-4 * 4.0**k for k in range(6))  # of points on a way, from one that is short to 0.1
WALK = 12  # points to each side
ENOUGH = 0.005  # of a slope: longer ways, which bend more, are not needed then
LOOK = 3  # points to each side for a first look
LOOKS = len(SPACINGS) * (2 * LOOK + 1)  # so many values does it take

Line = Callable[[float], Tensor]  # the value at a distance along a direction


def size_of_steps(line: Line, least: float, spacings: Sequence[float] = SPACINGS) -> tuple[float, list[float]]:
    """How far a value jumps, and the distances over which it jumps often; (0, []) if it does not.

    Fourth differences of a smooth function are 256 times smaller at a quarter of the spacing, and those of a kink four
    times; those of steps stay as large.
    """
    looks = [_jitter(_walk(line, spacing, LOOK)) for spacing in spacings]
    pairs = zip(looks, looks[1:], spacings[1:], strict=False)
    for spacing in [s for fine, coarse, s in pairs if fine > least and coarse < 10 * fine]:
        values = _walk(line, spacing, WALK)
        if (jitter := _jitter(values)) > least and (jump := _jump(line, values, spacing)) > 0.1 * jitter:
            return jump, [s for s in spacings if s >= spacing]
    return 0.0, []


def jumps_often(line: Line, least: float) -> bool:
    """Whether a value jumps three times or more on a way of 0.6, over steps that are long enough to be told apart."""
    changes = _walk(line, 7.5e-3, 40).diff()
    off = (changes - changes.median()).abs()
    threshold = max(10 * float(off.median()) + least, 0.1 * float(off.max()))
    return int((off > threshold).sum()) >= 3


def slope(line: Line, size: float, spacings: Sequence[float]) -> tuple[float, float]:
    """The slope over ways that are long compared with the steps, and how far off it may be: (0, inf) if few are met.

    At a kink, as at the border of a domain, every slope between those of the two sides is within that.
    """
    estimates = []
    for spacing in spacings:
        values, places = _walk(line, spacing, WALK), torch.arange(-WALK, WALK + 1, dtype=torch.float64) * spacing
        if not _jitter(values) > 0.1 * size:
            continue
        (cubic, _), (best, deviation) = (_fitted(values, places, degree) for degree in (3, 5))
        sides = slice(0, WALK + 1), slice(WALK, None)
        (left, off_left), (right, off_right) = (_fitted(values[side], places[side], 3) for side in sides)
        kink = abs(right - left) > 4 * (off_left + off_right)
        error = 4 * max(off_left, off_right) if kink else 4 * deviation + abs(best - cubic)
        best, half = ((left + right) / 2, abs(right - left) / 2) if kink else (best, 0.0)
        estimates.append((error + half, best))
        if error < ENOUGH * (abs(best) + half):
            return best, error + half
    error, best = min(estimates, default=(math.inf, 0.0))
    return best, error


def _walk(line: Line, spacing: float, points: int) -> Tensor:
    return torch.cat([line(k * spacing) for k in range(-points, points + 1)])


def _jitter(values: Tensor) -> float:
    """How far values are from a smooth curve, most of them."""
    return float(values.diff(n=4).abs().median())


def _jump(line: Line, values: Tensor, spacing: float) -> float:
    """What is left of the largest change between two points, if the way between them gets shorter and shorter."""
    k = int((values.diff() - values.diff().median()).abs().argmax())
    left, right = (k - WALK) * spacing, (k + 1 - WALK) * spacing
    low, high = values[k], values[k + 1]
    for _ in range(20):
        middle = (left + right) / 2
        value = line(middle)[0]
        if (value - low).abs() > (high - value).abs():
            right, high = middle, value
        else:
            left, low = middle, value
    return float((high - low).abs())


def _fitted(values: Tensor, places: Tensor, degree: int) -> tuple[float, float]:
    """The slope at 0 of the polynomial that is nearest to the values, and its standard deviation."""
    way = float(places.abs().max())
    powers = (places / way)[:, None] ** torch.arange(degree + 1)
    inverse = torch.linalg.pinv(powers)
    coefficients = inverse @ values
    variance = (values - powers @ coefficients).square().sum() / (len(values) - degree - 1)
    return float(coefficients[1]) / way, float(inverse[1].norm() * variance.sqrt()) / way
