"""Pictures of autograd's graphs, drawn from the tensors that hang on them.

A graph is walked as backward walks it: from an output's ``grad_fn`` along ``next_functions``, down to the leaves. ::

    loss = (x @ w).square().mean()
    draw(loss, names={"x": x, "w": w, "loss": loss})

Arrows point the way that gradients travel. Nodes of the same distance from the outputs stand in a row; where an arrow
passes a row, it gets a place of its own there.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node

POINTS_PER_INCH = 72
ROW_GAP, COLUMN_GAP, PADDING = 26, 16, 7  # in points, as all lengths below
PARALLEL = 12  # between two arrows from one node to the same other one
SWEEPS = 12


# --- The graph ---


def walk(*outputs: Tensor) -> nx.MultiDiGraph:
    """The nodes that backward from ``outputs`` would reach, with an edge for each entry of ``next_functions``.

    A node that uses a result twice has two edges to it. Inputs that need no gradient have no node.
    """
    graph = nx.MultiDiGraph()
    pending = [output.grad_fn or accumulator(output) for output in outputs]
    graph.add_nodes_from(pending)
    while pending:
        node = pending.pop()
        for child, _ in node.next_functions:
            if child is not None:
                if child not in graph:
                    pending.append(child)
                graph.add_edge(node, child)
    return graph


def accumulator(leaf: Tensor) -> Node:
    """The node that writes into the ``grad`` of a leaf: a view has it as the next one."""
    if not leaf.requires_grad:
        raise ValueError("the tensor has no graph: it does not require a gradient")
    (node, _), *_ = leaf.view_as(leaf).grad_fn.next_functions
    return node


def kind(node: Node) -> str:
    """Whose node it is: a ``leaf``'s, that of a ``custom`` function, or that of an ``operation`` of torch."""
    if hasattr(node, "variable"):
        return "leaf"
    return "custom" if isinstance(node, BackwardCFunction) else "operation"


# --- What is written on a node ---


@dataclass(frozen=True)
class Line:
    text: str
    font: FontProperties
    color: str

    @property
    def width(self) -> float:
        # From the control points: the exact extent of all curves would take longer than all of the rest.
        return float(np.ptp(TextPath((0, 0), self.text, prop=self.font).vertices[:, 0]))

    @property
    def height(self) -> float:
        return 1.35 * self.font.get_size_in_points()


def lines_of(node: Node, name: str | None, notes: Iterable[str], size: float) -> list[Line]:
    def line(text: str, *, bold: bool = False, scale: float = 1, color: str = "#1a1a1a") -> Line:
        return Line(text, FontProperties(size=size * scale, weight="bold" if bold else "normal"), color)

    lines = []
    if kind(node) == "leaf":
        lines.append(line(f"{name or 'leaf'}  {shape_of(node.variable)}", bold=True))
        lines.append(line(node.name().rpartition("::")[2], scale=0.85, color="#555555"))
    else:
        lines += [line(name, bold=True)] if name else []
        lines.append(line(node.name()))
    return lines + [line(note, scale=0.9, color="#8a3d00") for note in notes]


def shape_of(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape)) or "scalar"


# --- Where it stands ---


def rows_of(graph: nx.MultiDiGraph) -> tuple[list[list[Any]], dict[tuple[Node, Node], list[Any]]]:
    """Nodes by their longest distance from an output, and the way of each edge from row to row.

    Where an edge passes a row, it has a stand-in there, a tuple.
    """
    rows = [list(generation) for generation in nx.topological_generations(graph)]
    row = {node: i for i, nodes in enumerate(rows) for node in nodes}
    routes = {}
    for tail, head in dict.fromkeys(graph.edges()):
        passed = [(tail, head, i) for i in range(row[tail] + 1, row[head])]
        for stand_in in passed:
            rows[stand_in[2]].append(stand_in)
        routes[tail, head] = [tail, *passed, head]
    return rows, routes


def columns_of(
    rows: Sequence[Sequence[Any]], routes: Iterable[Sequence[Any]], width: Callable[[Any], float]
) -> tuple[list[list[Any]], dict[Any, float]]:
    """The order in each row, and where each node is centered: near its neighbors, without touching any in its row."""
    rows, x = [list(row) for row in rows], {}
    graph = nx.DiGraph(step for route in routes for step in itertools.pairwise(route))
    graph.add_nodes_from(node for row in rows for node in row)
    for row in rows:
        x |= dict(zip(row, spread([0.0] * len(row), [width(node) for node in row]), strict=True))
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for i in range(len(rows))[:: 1 if down else -1]:
            near = graph.predecessors if down else graph.successors
            wanted = {node: fmean([x[other] for other in near(node)] or [x[node]]) for node in rows[i]}
            rows[i].sort(key=wanted.__getitem__)
            places = spread([wanted[node] for node in rows[i]], [width(node) for node in rows[i]])
            x |= dict(zip(rows[i], places, strict=True))
    return rows, x


def spread(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Centers as near as possible to the wanted ones, in least squares, in this order and without overlap."""
    gaps = [0.0, *((a + b) / 2 + COLUMN_GAP for a, b in itertools.pairwise(widths))]
    offsets = list(itertools.accumulate(gaps))
    # Without the offsets the order alone matters: neighbors in the wrong order are pooled at their mean.
    pools: list[tuple[float, int]] = []
    for place, offset in zip(wanted, offsets, strict=True):
        mean, count = place - offset, 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean, count = (mean * count + other * others) / (count + others), count + others
        pools.append((mean, count))
    pooled = [mean for mean, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(pooled, offsets, strict=True)]


# --- The picture ---

FACE = {"operation": "#e6f0f8", "leaf": "#fdeadb", "custom": "#dff3ec"}
EDGE = {"operation": "#0072b2", "leaf": "#d55e00", "custom": "#009e73"}


def draw(
    *outputs: Tensor,
    names: Mapping[str, Tensor] | None = None,
    notes: Mapping[Node, Iterable[str]] | None = None,
    title: str | None = None,
    axes: Axes | None = None,
    size: float = 10,
) -> Figure:
    """Draw the graph behind ``outputs``, from the outputs on top to the leaves.

    Args:
        outputs: Tensors with a graph.
        names: What tensors are called in the picture, leaves and others; ``dict(model.named_parameters())`` is one.
        notes: More lines for a node, such as what it saves or what has arrived there.
        title: Written above.
        axes: Where to draw, scaled down if there is little room; a figure that fits, by default.
        size: Of the letters, in points.
    """
    graph = walk(*outputs)
    called = {tensor.grad_fn or accumulator(tensor): name for name, tensor in (names or {}).items()}
    texts = {node: lines_of(node, called.get(node), (notes or {}).get(node, ()), size) for node in graph}
    width = {node: max(line.width for line in lines) + 2 * PADDING for node, lines in texts.items()}
    height = {node: sum(line.height for line in lines) + 2 * PADDING * 0.6 for node, lines in texts.items()}

    rows, routes = rows_of(graph)
    rows, x = columns_of(rows, routes.values(), lambda node: width.get(node, 0))
    y, below = {}, 0.0
    tallest = [max((height.get(node, 0) for node in row), default=0) for row in rows]
    for row, row_height in zip(rows, tallest, strict=True):
        y |= dict.fromkeys(row, below - row_height / 2)
        below -= row_height + ROW_GAP
    left = min(place - width.get(node, 0) / 2 for node, place in x.items()) - PADDING
    right = max(place + width.get(node, 0) / 2 for node, place in x.items()) + PADDING
    bottom, top = below + ROW_GAP - PADDING, PADDING

    if axes is None:
        inches = ((right - left) / POINTS_PER_INCH, (top - bottom) / POINTS_PER_INCH + (0.3 if title else 0))
        figure = plt.figure(figsize=inches)
        axes = figure.add_axes((0, 0, 1, (top - bottom) / POINTS_PER_INCH / inches[1]))
        scale = 1.0
    else:
        figure = axes.figure
        figure.canvas.draw()  # a layout engine decides about sizes only now
        box = axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        room_x, room_y = (length * POINTS_PER_INCH for length in (box.width, box.height))
        scale = min(1.0, room_x / (right - left), room_y / (top - bottom))
        middle, spare_x, spare_y = (left + right) / 2, room_x / scale / 2, room_y / scale
        left, right, bottom = middle - spare_x, middle + spare_x, top - spare_y
    axes.set(xlim=(left, right), ylim=(bottom, top))
    axes.set_axis_off()
    if title:
        axes.set_title(title)

    for (tail, head), route in routes.items():
        passed = [(x[node], y[node]) for node in route[1:-1]]
        count = graph.number_of_edges(tail, head)
        for i in range(count):
            shift = PARALLEL * (i - (count - 1) / 2)
            start, end = (x[tail], y[tail] - height[tail] / 2), (x[head], y[head] + height[head] / 2)
            path = curve([(px + shift, py) for px, py in (start, *passed, end)])
            arrow = FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=11 * scale, color="#666666", zorder=1)
            axes.add_patch(arrow)
    drawn = vars(figure).setdefault("graph_nodes", [])  # for what says more about each node: see graph_nodes.py
    for node in graph:
        corner = x[node] - width[node] / 2, y[node] - height[node] / 2
        # Kinds differ in form as well as in color.
        radius = min(width[node], height[node]) / 2 if kind(node) == "leaf" else 2
        style = f"round,pad=0,rounding_size={radius}"
        line = 2 if kind(node) == "custom" else 1.2
        box = FancyBboxPatch(
            corner,
            width[node],
            height[node],
            boxstyle=style,
            facecolor=FACE[kind(node)],
            edgecolor=EDGE[kind(node)],
            linewidth=line,
        )
        axes.add_patch(box)
        drawn.append((node, called.get(node), box))
        level = y[node] + sum(line.height for line in texts[node]) / 2
        for line in texts[node]:
            font = line.font.copy()
            font.set_size(font.get_size_in_points() * scale)
            place = (x[node], level - line.height / 2)
            axes.text(*place, line.text, fontproperties=font, color=line.color, ha="center", va="center")
            level -= line.height
    return figure


def curve(points: Sequence[tuple[float, float]]) -> Path:
    """A smooth line through the points that leaves each of them straight down."""
    vertices, codes = [points[0]], [Path.MOVETO]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        middle = (y0 + y1) / 2
        vertices += [(x0, middle), (x1, middle), (x1, y1)]
        codes += [Path.CURVE4] * 3
    return Path(vertices, codes)
