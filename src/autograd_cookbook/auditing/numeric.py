"""Derivatives from values alone: differences that know how accurate they are, and what a kink is."""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from autograd_cookbook.auditing.subject import real

RTOL = 1e-5  # sees a factor of 0.9999
BUDGET = 0.5  # seconds for the derivatives at one point
COORDINATES = 400  # with more of them, random directions take their place
DIRECTIONS = 12
CLOSELY = 64  # wrong entries that are looked at closely


@dataclass(frozen=True)
class Mismatch:
    """A derivative that is not what the values say. ``slot`` and ``index`` tell where, if it could be told."""

    slot: int
    index: int
    actual: float
    expected: float
    count: int | None  # how many entries of the slot are wrong; None if not every entry was looked at
    size: int

    @property
    def ratio(self) -> float:
        return self.actual / self.expected if self.expected else math.inf


def rounding(outputs: Sequence[Tensor], value: Tensor) -> float:
    """A gradient of this size is rounding: if the input changes by all that it is, no digit of the outputs changes."""
    outputs = [o for o in outputs if o.is_floating_point() or o.is_complex()]
    sizes = [float(t.detach().abs().nan_to_num(0, 0).max()) if t.numel() else 0.0 for t in (*outputs, value)]
    eps = max((torch.finfo(o.dtype).eps for o in outputs), default=0.0)
    return 64 * eps * max(sizes[:-1], default=0.0) / sizes[-1] if sizes[-1] else 0.0


def largest_of(tensors: Iterable[Tensor]) -> float:
    """The largest absolute value in some tensors; 0 where there is none."""
    return max((float(t.abs().max()) for t in tensors if t.numel()), default=0.0)


def along(gradient: Tensor, direction: Tensor) -> float:
    """The slope that a gradient claims; an infinite entry counts only where the direction goes."""
    moves = direction != 0
    return float(gradient[moves] @ direction[moves])


class Derivative:
    """Numeric derivatives of ``value`` with respect to some tensors of a list.

    Args:
        value: maps a list of tensors to a real float64 vector.
        point: the tensors; ``value`` receives copies.
        slots: which of them vary.
        dtype: real dtype that ``value`` computes in, which sets the steps.
        lenient: let any slope pass that occurs close by, and not only where ties make slopes jump.
        budget: seconds; where looking at every coordinate takes longer, a few random directions must do.
    """

    def __init__(
        self,
        value: Callable[[list[Tensor]], Tensor],
        point: Sequence[Tensor],
        slots: Sequence[int],
        dtype: torch.dtype = torch.float64,
        *,
        budget: float = BUDGET,
        lenient: bool = False,
    ) -> None:
        self.function, self.point, self.slots = value, [p.clone() for p in point], list(slots)
        self.eps, self.budget, self.lenient = torch.finfo(dtype).eps, budget, lenient
        self.sizes = [self.point[s].numel() * (2 if self.point[s].is_complex() else 1) for s in slots]
        self.n = sum(self.sizes)
        self.cost = math.inf
        for _ in range(2):  # the first call may have had to wait for something
            start = time.process_time()
            self.center = self.at(torch.zeros(self.n, dtype=torch.float64))
            self.cost = min(self.cost, time.process_time() - start)
        position = real([self.point[s] for s in self.slots])
        self.unit = torch.where(position.isfinite(), position.abs().clamp(min=1), torch.ones_like(position))
        self.rounding = self.eps * (self.center.abs() + 1e-300) + self._cancelled()

    def _cancelled(self) -> Tensor:
        """How far off a value may be that is a difference of numbers of the size of the inputs; 0 where it is none.

        log(exp(40) + 1) - 40 is a whole multiple of the spacing of the numbers near 40, and mostly none of them; a tail
        such as exp(-40) is not, and has all its digits.
        """
        numbers = [t.detach().abs() for t in self.point if t.numel() and (t.is_floating_point() or t.is_complex())]
        largest = max((float(t.nan_to_num(0, 0, 0).amax()) for t in numbers), default=0.0)
        if not largest:
            return torch.zeros_like(self.center)
        spacing = self.eps * 2.0 ** math.floor(math.log2(largest))
        return torch.where(self.center.remainder(spacing) == 0, spacing, 0.0).to(self.center)

    def at(self, step: Tensor) -> Tensor:
        """The value a step away from the point; NaN where the function refuses to go."""
        moved = [p.clone() for p in self.point]
        for s, part in zip(self.slots, step.split(self.sizes), strict=True):
            target = torch.view_as_real(moved[s]) if moved[s].is_complex() else moved[s]
            target += part.reshape(target.shape).to(target)
        try:
            return self.function(moved)
        except (Exception, SystemExit):
            if not hasattr(self, "center"):
                raise
            return torch.full_like(self.center, torch.nan)

    def slope(self, direction: Tensor, h: float) -> tuple[Tensor, Tensor, Tensor]:
        """Fourth-order central difference along a direction, with an estimate of its error, and the noise in it."""
        one = (self.at(direction * h) - self.at(direction * -h)) / (2 * h)
        half = (self.at(direction * (h / 2)) - self.at(direction * (-h / 2))) / h
        noise = 8 * self.rounding / h
        best = (4 * half - one) / 3
        return best, (best - half).abs(), noise

    def settles(self, direction: Tensor, weights: Tensor) -> bool:
        """Whether the slope along a direction does not grow as the way gets shorter."""
        slopes = []
        for h in (self.eps**0.4, self.eps**0.2):
            left, right = (self.center - self.at(direction * -h)) / h, (self.at(direction * h) - self.center) / h
            # Where the function is not defined on one side, the other one tells.
            left, right = left.where(left.isfinite(), right), right.where(right.isfinite(), left)
            slopes.append(float(weights @ (left + right)) / 2)
        near, far = map(abs, slopes)  # at a jump or an infinite slope, the shorter way has the larger quotient
        return near <= 3 * far + 1e-6 * float(weights.abs() @ self.center.abs())

    def has_kink(self, direction: Tensor, weights: Tensor) -> bool:
        """Whether the slopes of the two sides of a direction are finite and differ."""
        h = self.eps**0.4
        left, right = (float(weights @ (self.at(way * direction) - self.center)) / way for way in (-h, h))
        return math.isfinite(right - left) and abs(right - left) > 0.1 * (abs(left) + abs(right))

    def jumps(self, direction: Tensor, weights: Tensor) -> bool:
        """Whether the values change about as much on a short way along a direction as on a long one."""
        ways = self.eps**0.4, -(self.eps**0.4), self.eps**0.2, -(self.eps**0.2)
        moves = [float(weights.abs() @ (self.at(h * direction) - self.center).abs().nan_to_num(0)) for h in ways]
        return max(moves[:2]) > 0.3 * max(moves[2:])

    def steps(self) -> list[float]:
        """Step sizes, the most accurate one first."""
        return [self.eps**power for power in (0.22, 0.35, 0.15, 0.45)]

    @property
    def complete(self) -> bool:
        """Whether every coordinate can be looked at within the budget."""
        return self.n <= COORDINATES and 4 * self.n * self.cost < self.budget

    def directions(self) -> list[Tensor]:
        """All coordinates, or so many random directions as the budget allows; long where numbers are large."""
        if self.complete:
            return list(torch.diag(self.unit))
        generator = torch.Generator().manual_seed(0)
        count = max(3, min(DIRECTIONS, int(self.budget / (4 * self.cost + 1e-9))))
        return [torch.randn(self.n, generator=generator, dtype=torch.float64) * self.unit for _ in range(count)]

    def compare(
        self, gradient: Tensor, weights: Tensor, rtol: float | None = None, floor: float = 0.0
    ) -> Mismatch | None:
        """Compare a gradient of ``weights · value`` with differences.

        Args:
            gradient: over all slots, one real vector.
            weights: over all outputs, one real vector.
            rtol: relative error that is let pass.
            floor: absolute error of the gradient that is let pass.

        Returns:
            The entry that is furthest off; None if all agree as far as differences can tell.
        """
        rtol = max(RTOL, 50 * self.eps**0.75) if rtol is None else rtol
        if self.n == 0:
            return None
        directions = self.directions()
        numeric = [float(weights @ self.slope(d, self.steps()[0])[0]) for d in directions]
        largest = max((abs(v) for v in numeric if math.isfinite(v)), default=0.0)
        confirmed: dict[int, float] = {}
        closely: list[int] = []  # which of them were looked at closely
        start = time.process_time()
        for k, (direction, value) in enumerate(zip(directions, numeric, strict=True)):
            claimed = along(gradient, direction)
            scale = max(largest, 1e2 / rtol * floor * float(direction.norm()))
            if abs(claimed - value) <= rtol * abs(value) + 1e-2 * rtol * scale:
                continue
            # To look closer takes a hundred values: where one entry is wrong, others are not looked at for long.
            late = len(confirmed) >= CLOSELY or (bool(confirmed) and time.process_time() - start > self.budget)
            expected = value if late else self.judge(claimed, direction, weights, rtol, scale)
            if expected is not None:
                confirmed[k] = expected
                closely += [] if late else [k]
                if not self.complete:
                    break
        if not confirmed:
            return None
        if self.complete:
            return self._mismatch(gradient, confirmed, closely)
        return self._locate(gradient, directions[next(iter(confirmed))], weights, rtol, scale)

    def judge(self, claimed: float, direction: Tensor, weights: Tensor, rtol: float, scale: float) -> float | None:
        """Look closer at a suspicious slope: None if it may be right, otherwise what it should have been.

        Smooth outputs must agree with their best difference; at a kink anything between the slopes of the two
        sides will do; where slopes grow without bound, or nothing finite is near, only NaN is wrong.
        """
        far, near = self.eps**0.3, self.eps**0.5
        sides = {}
        for h in (far, near):
            noise = 8 * self.rounding / h
            sides[h] = (
                (self.center - self.at(direction * -h)) / h,
                (self.at(direction * h) - self.center) / h,
                noise,
            )
        left, right, noise = sides[near]
        left_far, right_far, noise_far = sides[far]
        used = weights != 0
        if not (left.isfinite() | right.isfinite())[used].all():
            return None  # outside of the domain on both sides
        left, right = torch.where(left.isfinite(), left, right), torch.where(right.isfinite(), right, left)
        left_far, right_far = (
            torch.where(left_far.isfinite(), left_far, right_far),
            torch.where(right_far.isfinite(), right_far, left_far),
        )
        left_far, right_far = (
            torch.where(left_far.isfinite(), left_far, left),
            right_far.where(right_far.isfinite(), right),
        )
        grows = torch.maximum(left.abs(), right.abs()) > 3 * (torch.maximum(left_far.abs(), right_far.abs()) + noise)
        if (grows & used).any():
            return float(weights @ (left + right)) / 2 if math.isnan(claimed) else None
        jump, jump_far = (right - left).abs(), (right_far - left_far).abs()
        kinked = jump > 0.1 * jump_far + 4 * noise + 4 * noise_far
        best, error = torch.full_like(self.center, math.nan), torch.full_like(self.center, math.inf)
        for h in self.steps():
            slope, err, rounding = self.slope(direction, h)
            total = err + rounding
            value = float(weights @ slope)
            # A longer step may look more accurate where it steps over everything, as next to a saturated exponential.
            if abs(claimed - value) <= rtol * abs(value) and float(weights.abs() @ total) <= rtol * abs(value):
                return None
            better = (total < error) | ~best.isfinite()
            best, error = torch.where(better, slope, best), torch.where(better, total, error)
        one_sided = ~best.isfinite()
        low = torch.where(kinked | one_sided, torch.minimum(left, right) - noise, best - error)
        high = torch.where(kinked | one_sided, torch.maximum(left, right) + noise, best + error)
        margin = torch.where(one_sided, 1e-4 * (left.abs() + jump_far), torch.zeros_like(low))
        low, high = low - margin, high + margin
        bottom = float((torch.where(weights > 0, low, high) * weights)[used].sum())
        top = float((torch.where(weights > 0, high, low) * weights)[used].sum())
        middle = (bottom + top) / 2
        values = self.center.abs() + far * torch.maximum(left_far.abs(), right_far.abs())
        tiny = 1e-12 * min(1.0, float((weights.abs() * values)[used].sum()))
        slack = rtol * max(abs(bottom), abs(top)) + rtol * 1e-2 * scale + tiny
        if bottom - slack <= claimed <= top + slack:
            return None
        if math.isfinite(claimed) and (
            self.approaches(claimed, direction, weights) or self.occurs_nearby(claimed, direction, weights, slack)
        ):
            return None
        return middle

    def approaches(self, claimed: float, direction: Tensor, weights: Tensor) -> bool:
        """Whether differences come closer and closer to a slope, as those of x|x| at zero do, whose error is no h²."""
        distances = []
        for h in (self.eps**power for power in (0.2, 0.3, 0.4, 0.5)):
            slope = (self.at(direction * h) - self.at(direction * -h)) / (2 * h)
            distances.append(abs(float(weights @ slope) - claimed))
        return all(near <= far / 2 for far, near in itertools.pairwise(distances))

    def _around(self, direction: Tensor, radius: float, points: int) -> Iterator[Tensor]:
        """Slopes along a direction at random points close by."""
        generator = torch.Generator().manual_seed(5)
        h = self.eps**0.45
        for _ in range(points):
            aside = radius * torch.randn(self.n, generator=generator, dtype=torch.float64) * self.unit
            slope = (self.at(aside + direction * h) - self.at(aside - direction * h)) / (2 * h)
            if slope.isfinite().all():
                yield slope

    def occurs_nearby(self, claimed: float, direction: Tensor, weights: Tensor, slack: float) -> bool:
        """Whether a slope is one between those at points close by: where sorted numbers tie, each order is right."""
        radius = self.eps**0.32
        noise = 8 * self.rounding / self.eps**0.45
        if not self.lenient:
            far, close = (list(self._around(direction, r, 12)) for r in (radius, radius / 8))
            if min(len(far), len(close)) < 2:
                return False
            spread, closer = (torch.stack(s).amax(0) - torch.stack(s).amin(0) for s in (far, close))
            # The slopes of a smooth function vary less, the closer the points are; at ties they do not.
            if not ((closer > 0.4 * spread) & (closer > 4 * noise) & (weights != 0)).any():
                return False
        low = high = None
        for slope in self._around(direction, radius, 60):
            low = slope - noise if low is None else torch.minimum(low, slope - noise)
            high = slope + noise if high is None else torch.maximum(high, slope + noise)
            bottom = float((torch.where(weights > 0, low, high) * weights).sum())
            top = float((torch.where(weights > 0, high, low) * weights).sum())
            if bottom - slack <= claimed <= top + slack:
                return True
        return False

    def _mismatch(self, gradient: Tensor, confirmed: dict[int, float], closely: list[int]) -> Mismatch:
        def distance(k: int) -> float:
            difference = abs(float(gradient[k]) - confirmed[k] / float(self.unit[k]))
            return difference if math.isfinite(difference) else math.inf

        worst = max(closely, key=distance)
        slot, index = self._place(worst)
        in_slot = [k for k in confirmed if self._place(k)[0] == slot]
        size = self.sizes[self.slots.index(slot)]
        return Mismatch(
            slot, index, float(gradient[worst]), confirmed[worst] / float(self.unit[worst]), len(in_slot), size
        )

    def _place(self, k: int) -> tuple[int, int]:
        for s, size in zip(self.slots, self.sizes, strict=True):
            if k < size:
                return s, k
            k -= size
        raise IndexError(k)

    def _locate(self, gradient: Tensor, direction: Tensor, weights: Tensor, rtol: float, scale: float) -> Mismatch:
        """Halve a direction that is wrong until one coordinate is left."""
        keep = torch.arange(self.n)
        while len(keep) > 1:
            for part in (keep[: len(keep) // 2], keep[len(keep) // 2 :]):
                partial = torch.zeros_like(direction)
                partial[part] = direction[part]
                if self.judge(along(gradient, partial), partial, weights, rtol, scale) is not None:
                    keep = part
                    break
            else:
                break
        coordinate = torch.zeros_like(direction)
        coordinate[keep[0]] = 1.0
        expected = self.judge(float(gradient[keep[0]]), coordinate, weights, rtol, scale)
        slot, index = self._place(int(keep[0]))
        size = self.sizes[self.slots.index(slot)]
        if expected is None:  # only the sum over many coordinates shows it
            expected = float(weights @ self.slope(coordinate, self.steps()[0])[0])
        return Mismatch(slot, index, float(gradient[keep[0]]), expected, None, size)

    def gradient(self, weights: Tensor) -> Tensor:
        """The whole numeric gradient of ``weights · value``."""
        slopes = [float(weights @ self.slope(d, self.steps()[0])[0]) for d in torch.diag(self.unit)]
        return torch.tensor(slopes, dtype=torch.float64) / self.unit
