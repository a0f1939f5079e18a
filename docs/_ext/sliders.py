"""``slider``: a picture with a slider under it. The build computes each position, with the code that the page is about.

The script only changes which position is shown, and knows no formula. Without it, and on paper, the page shows one
position and no slider.
"""

import html
import json
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from autograd_cookbook.recipes.checkpointing import checkpoint_sequence
from autograd_cookbook.recipes.surrogate_gradients import spike

WIDTH, HEIGHT = 560, 210
LEFT, RIGHT, TOP, BOTTOM = 12, 548, 36, 182
Point = tuple[float, float]


@dataclass(frozen=True)
class Position:
    """A position of a slider: what is drawn over the picture, and what is said."""

    said: str
    line: Sequence[Point] = ()
    dots: Sequence[Point] = ()


@dataclass(frozen=True)
class Slider:
    """A slider: its name, its picture, and its positions. All points are in the unit square."""

    label: str
    alt: str
    x: str
    y: str
    positions: Sequence[Position]
    first: int
    still: Sequence[tuple[str, Sequence[Point]]] = ()  # lines that stay, each with its name


def surrogate() -> Slider:
    """The gradient of a spike for growing slopes."""
    x = torch.linspace(-4, 4, 161, requires_grad=True)
    positions = []
    for slope in (1, 2, 3, 5, 10, 20, 40):
        (gradient,) = torch.autograd.grad(spike(x, slope).sum(), x)
        reached = (gradient > 0.1).float().mean().item() * 8
        said = f"Slope {slope:g}: the gradient is larger than 0.1 up to {reached / 2:.2g} from the threshold."
        line = [((a + 4) / 8, b) for a, b in zip(x.tolist(), gradient.tolist(), strict=True)]
        positions.append(Position(said, line))
    step = (("spike", [(0, 0), (0.5, 0), (0.5, 1), (1, 1)]),)
    alt = (
        "A step from 0 to 1, and over it the gradient that spike uses: a peak of height 1 that a larger slope narrows."
    )
    return Slider("Slope", alt, "input, from -4 to 4", "from 0 to 1", positions, 1, step)


def checkpoints(depth: int = 64) -> Slider:
    """The activations of a sequence of layers that are in memory at once, and the layers that run."""
    found = []
    for segments in (1, 2, 4, 6, 8, 11, 16, 32, 64):
        layer = Layer()
        checkpoint_sequence([layer] * depth, torch.zeros(3, requires_grad=True), segments).sum().backward()
        found.append((segments, layer.most, layer.calls))
    dots = [(math.log2(segments) / math.log2(depth), peak / depth) for segments, peak, _ in found]
    positions = [
        Position(
            f"{segments} segment{'s' * (segments > 1)}: at most {peak} activations are in memory at once, and the "
            f"{depth} layers are called {calls} times.",
            dots=[dot],
        )
        for (segments, peak, calls), dot in zip(found, dots, strict=True)
    ]
    alt = (
        "Activations at the peak against the number of segments: the curve falls to its least near 8, then rises again."
    )
    return Slider(
        "Segments",
        alt,
        f"segments, from 1 to {depth}",
        f"activations, from 0 to {depth}",
        positions,
        4,
        (("peak", dots),),
    )


class Layer:
    """A layer that counts its calls, and its results that are in memory at once."""

    def __init__(self) -> None:
        self.calls = self.alive = self.most = 0

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.alive += 1
        self.most = max(self.most, self.alive)
        result = value.sin()
        weakref.finalize(result.untyped_storage(), self.free)
        return result

    def free(self) -> None:
        self.alive -= 1


def step() -> Slider:
    """The error of a central difference for growing steps."""
    x = torch.linspace(0.1, 3, 200, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(x.exp().sum(), x)
    powers = range(-13, 1)
    errors: dict[torch.dtype, list[float]] = {}
    for dtype in (torch.float32, torch.float64):
        p = x.detach().to(dtype)
        differences = [((p + 10.0**n).exp() - (p - 10.0**n).exp()) / (2 * 10.0**n) for n in powers]
        errors[dtype] = [((d.double() - slope) / slope).abs().median().item() for d in differences]

    def place(power: int, error: float) -> Point:
        return (power + 13) / 13, (math.log10(min(error, 1)) + 13) / 13

    lines = {d: [place(n, e) for n, e in zip(powers, errors[d], strict=True)] for d in errors}
    positions = [
        Position(
            f"Step {10.0**n:g}: the relative error is {errors[torch.float64][i]:.0e} in float64, and "
            f"{errors[torch.float32][i]:.0e} in float32.",
            dots=[line[i] for line in lines.values()],
        )
        for i, n in enumerate(powers)
    ]
    alt = "Error of a central difference of exp against the step, both logarithmic, for two dtypes: each curve is a V."
    still = [(str(dtype).removeprefix("torch."), line) for dtype, line in lines.items()]
    return Slider("Step", alt, "step, from 1e-13 to 1", "error, from 1e-13 to 1", positions, 7, still)


SLIDERS: dict[str, Callable[[], Slider]] = {"surrogate": surrogate, "checkpoints": checkpoints, "step": step}


def path(points: Sequence[Point]) -> str:
    return "M" + " ".join(f"{x:.4g} {y:.4g}" for x, y in map(on_screen, points)) if points else ""


def on_screen(point: Point) -> Point:
    x, y = point
    return LEFT + x * (RIGHT - LEFT), BOTTOM - y * (BOTTOM - TOP)


def drawn(slider: Slider) -> Iterator[str]:
    """The picture, without its dots."""
    yield f'<path class="slider-axes" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"/>'
    for number, (name, points) in enumerate(slider.still):
        x, y = on_screen(points[len(points) // 4])
        yield f'<path class="slider-still slider-{number}" d="{path(points)}"/>'
        yield f'<text class="slider-{number}" x="{x + 6:.4g}" y="{y - 6:.4g}">{html.escape(name)}</text>'
    yield f'<text x="{RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{html.escape(slider.x)}</text>'
    yield f'<text x="{LEFT}" y="14">{html.escape(slider.y)}</text>'


def written(name: str) -> str:
    """The slider as it stands in a page."""
    slider = SLIDERS[name]()
    frames = [
        {
            "said": one.said,
            "line": path(one.line),
            "dots": "".join(f"M{x:.4g} {y:.4g}h0" for x, y in map(on_screen, one.dots)),
        }
        for one in slider.positions
    ]
    shown = frames[slider.first]
    return (
        f'<figure class="slider" data-frames="{html.escape(json.dumps(frames, ensure_ascii=False))}">'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(slider.alt)}">'
        f"{''.join(drawn(slider))}"
        f'<path class="slider-line" d="{shown["line"]}"/><path class="slider-dots" d="{shown["dots"]}"/></svg>'
        f'<label hidden>{slider.label} <input type="range" min="0" max="{len(frames) - 1}" value="{slider.first}" '
        f'aria-valuetext="{html.escape(shown["said"])}"></label>'
        f"<figcaption>{html.escape(shown['said'])}</figcaption></figure>"
    )


class SliderDirective(SphinxDirective):
    """``.. slider:: surrogate``: what happens to a number as a reader moves another."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        (name,) = self.arguments
        if name not in SLIDERS:
            raise self.error(f"no slider {name!r}; there are {', '.join(SLIDERS)}")
        return [nodes.raw("", written(name), format="html")]


def add_script(app: Sphinx, pagename: str, template: str, context: dict[str, object], doctree: object) -> None:
    """Only pages with a slider load the script."""
    if '<figure class="slider"' in str(context.get("body", "")):
        app.add_js_file("sliders.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("slider", SliderDirective)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
