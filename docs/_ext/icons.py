"""A drawing for each page of the cookbook, made of a few shapes: what the page is about, told apart at a glance.

The drawings stand in the pages as SVG, so they take the colors of the theme and fetch nothing. Each color has one
meaning, here and on all pages: ink is forward, warm is the gradient, blue is what is kept, and faint is the rest.
"""

import math
from collections.abc import Callable, Iterable

WIDTH, HEIGHT = 96, 64
MIDDLE = HEIGHT // 2
LEFT, RIGHT, TOP, BOTTOM = 14, 82, 10, 54  # of a drawing that fills its place
INK, GRADIENT, KEPT, FAINT = "ink", "gradient", "kept", "faint"
Point = tuple[float, float]


def path(data: str, role: str = INK, *more: str) -> str:
    return f'<path class="{" ".join([role, *more])}" d="{data}"/>'


def line(*points: Point, role: str = INK, dashed: bool = False) -> str:
    """A line through points."""
    return path("M" + " ".join(f"{x:.4g} {y:.4g}" for x, y in points), role, *(["dashed"] if dashed else []))


def arrow(*points: Point, role: str = INK, dashed: bool = False) -> str:
    """A line through points with a head at the last."""
    (x, y), (end_x, end_y) = points[-2:]
    angle = math.atan2(end_y - y, end_x - x)
    left, right = ((end_x - 7 * math.cos(angle + turn), end_y - 7 * math.sin(angle + turn)) for turn in (0.5, -0.5))
    return line(*points, role=role, dashed=dashed) + line(left, (end_x, end_y), right, role=role)


def curve(function: Callable[[float], float], role: str = INK, dashed: bool = False, points: int = 24) -> str:
    """The graph of a function from [-1, 1] to [-1, 1]."""
    at = [2 * i / points - 1 for i in range(points + 1)]
    return line(*(place(x, function(x)) for x in at), role=role, dashed=dashed)


def place(x: float, y: float) -> Point:
    """Where a point of [-1, 1]² is."""
    return (LEFT + (x + 1) / 2 * (RIGHT - LEFT), BOTTOM - (y + 1) / 2 * (BOTTOM - TOP))


def circle(x: float, y: float, radius: float, role: str = INK, full: bool = False) -> str:
    return f'<circle class="{role}{" full" * full}" cx="{x:.4g}" cy="{y:.4g}" r="{radius}"/>'


def box(
    x: float, y: float, width: float, height: float, role: str = INK, full: bool = False, dashed: bool = False
) -> str:
    extra = " full" * full + " dashed" * dashed
    return f'<rect class="{role}{extra}" x="{x:.4g}" y="{y:.4g}" width="{width}" height="{height}" rx="2"/>'


def word(text: str, x: float = WIDTH / 2, y: float = MIDDLE, size: int = 24, role: str = INK) -> str:
    return f'<text class="{role}" x="{x:.4g}" y="{y:.4g}" font-size="{size}">{text}</text>'


def cells(x: float, y: float, size: float, rows: Iterable[str], roles: str = FAINT) -> str:
    """A table of squares: ``#`` is kept, ``g`` has a gradient, ``i`` is ink, ``.`` is empty, and a space is nothing."""
    roles_of = {"#": KEPT, "g": GRADIENT, "i": INK, ".": roles}
    squares: dict[str, str] = {}
    for r, row in enumerate(rows):
        for c, mark in enumerate(row):
            if mark != " ":
                corner = f"M{x + c * size:.4g} {y + r * size:.4g}"
                squares[mark] = squares.get(mark, "") + f"{corner}h{size - 1.5:.4g}v{size - 1.5:.4g}h-{size - 1.5:.4g}z"
    return "".join(path(data, roles_of[mark], "full" if mark != "." else "thin") for mark, data in squares.items())


def chain(kept: str, y: float = MIDDLE, radius: float = 4) -> str:
    """Nodes in a row with a line through them: ``#`` is kept, ``.`` is computed again."""
    step = (RIGHT - LEFT) / (len(kept) - 1)
    nodes = (circle(LEFT + i * step, y, radius, KEPT if mark == "#" else INK, True) for i, mark in enumerate(kept))
    empty = (circle(LEFT + i * step, y, radius - 2, "ground", True) for i, mark in enumerate(kept) if mark != "#")
    return line((LEFT, y), (RIGHT, y), role=FAINT) + "".join(nodes) + "".join(empty)


def loop(x: float, y: float, radius: float, role: str = INK) -> str:
    """Three quarters of a circle that end in a head."""
    turn = [math.radians(a) for a in range(-40, 261, 12)]
    return arrow(*((x + radius * math.cos(a), y + radius * math.sin(a)) for a in turn), role=role)


def cobweb(function: Callable[[float], float], x: float, steps: int) -> list[Point]:
    """The steps of an iteration, between the graph of a function and the diagonal."""
    points = [place(x, x)]
    for _ in range(steps):
        points += [place(x, function(x)), place(function(x), function(x))]
        x = function(x)
    return points


def bell(x: float) -> float:
    return 1.7 * math.exp(-9 * x * x) - 0.9


def settling(x: float) -> float:
    return 0.62 - 0.33 * (x - 1) ** 2


def stairs(x: float) -> float:
    return round(2.499 * x) / 2.5


AXES = line((LEFT, BOTTOM), (RIGHT, BOTTOM), role=FAINT) + line((LEFT, TOP), (LEFT, BOTTOM), role=FAINT)
CROSS = line((LEFT, MIDDLE), (RIGHT, MIDDLE), role=FAINT) + line((48, TOP - 2), (48, BOTTOM + 2), role=FAINT)

DRAWINGS: dict[str, str] = {
    # --- First steps
    "template": box(34, 18, 28, 28)
    + word("f", size=20)
    + arrow((8, 25), (32, 25))
    + arrow((64, 25), (88, 25))
    + arrow((88, 39), (64, 39), role=GRADIENT)
    + arrow((32, 39), (8, 39), role=GRADIENT),
    "elementwise": cells(20, 8, 12.5, "####")
    + cells(64, 8, 12.5, "iiii")
    + "".join(arrow((36, 13.5 + 12.5 * i), (59, 13.5 + 12.5 * i)) for i in range(4)),
    "matmul": cells(10, 14, 12, ["...", "###", "..."]) + word("×", 53, 32, 18) + cells(62, 14, 12, [".#", ".#", ".#"]),
    "broadcasting": cells(18, 8, 12, ["#####"])
    + cells(18, 24, 12, [".....", ".....", "....."])
    + "".join(arrow((23.3 + 12 * i, 58), (23.3 + 12 * i, 20), role=GRADIENT) for i in (0, 2, 4)),
    "reductions": word("Σ", 30, 33, 46) + arrow((50, 32), (66, 32)) + cells(70, 26, 13, "#"),
    "convolution": cells(15, 8, 11, [".###..", ".###..", ".###..", "......"]) + box(24.5, 6.5, 34, 34),
    "module": CROSS
    + line(place(0, 0), place(0.9, 1))
    + line(place(-1, -0.45), place(0, 0), role=GRADIENT)
    + "".join(line(place(-1, y), place(0, 0), role=GRADIENT, dashed=True) for y in (-0.1, -0.9)),
    "several_outputs": box(32, 18, 26, 28)
    + arrow((8, 32), (30, 32))
    + arrow((60, 24), (88, 10))
    + arrow((60, 32), (88, 32))
    + line((60, 40), (86, 53), role=FAINT, dashed=True)
    + line((82, 47), (91, 57), role=GRADIENT)
    + line((91, 47), (82, 57), role=GRADIENT),
    "arguments": word("f(x, 2, ∅)", size=14),
    # --- Changing the gradient
    "reversal": path("M12 18 H62")
    + path("M66 18 h2 a13 13 0 0 1 0 26 h-4", GRADIENT)
    + arrow((64, 44), (12, 44), role=GRADIENT)
    + word("−1", 38, 31, 15, GRADIENT),
    "clipping": line((LEFT, 20), (RIGHT, 20), role=FAINT, dashed=True)
    + line((LEFT, 44), (RIGHT, 44), role=FAINT, dashed=True)
    + curve(lambda x: max(-0.55, min(0.55, 1.1 * math.sin(7 * x))), GRADIENT, points=48),
    "straight_through": curve(stairs, points=60) + curve(lambda x: x, GRADIENT, dashed=True, points=1),
    "hooks": arrow((86, 18), (10, 18), role=GRADIENT) + circle(48, 18, 5) + path("M48 23 V44 a10 10 0 0 1 -20 0 v-4"),
    "fake_quantization": "".join(line((LEFT, y), (RIGHT, y), role=FAINT) for y in (12, 25, 38, 51))
    + "".join(circle(LEFT + 6 + 14 * i, y, 4, KEPT, True) for i, y in enumerate((51, 38, 25, 12, 25))),
    "surrogate_gradients": line((LEFT, BOTTOM), (48, BOTTOM), (48, TOP), (RIGHT, TOP)) + curve(bell, GRADIENT),
    "discrete_choices": "".join(box(14 + 14 * i, 54 - h, 10, h, FAINT) for i, h in enumerate((16, 24, 0, 20, 10)) if h)
    + box(42, 12, 10, 42, KEPT, full=True)
    + line((10, 56), (86, 56)),
    # --- Stability
    "safe_functions": word("NaN", size=28) + line((16, 50), (80, 14), role=GRADIENT),
    "cross_entropy": AXES
    + curve(lambda x: min(1, -0.42 * math.log((x + 1) / 2 + 0.012) - 0.95), points=30)
    + word("−log p", 58, 20, 13),
    "sparsemax": line((48, 8), (80, 56), (16, 56), (48, 8))
    + arrow((48, 38), (31, 34), role=GRADIENT)
    + circle(28, 38, 4, KEPT, True),
    "eigenvalues": curve(lambda x: math.sqrt(0.9 * x * x + 0.07))
    + curve(lambda x: -math.sqrt(0.9 * x * x + 0.07))
    + line((48, 30), (48, 34), role=GRADIENT),
    # --- Memory
    "selective_saving": box(14, 8, 68, 13, KEPT, full=True)
    + box(14, 26, 68, 13, FAINT, dashed=True)
    + box(14, 44, 68, 13, FAINT, dashed=True),
    "masks": word("1011", 48, 22, 24, KEPT) + word("0110", 48, 45, 24, KEPT),
    "in_place": box(26, 10, 44, 44)
    + word("x", 38, 31, 24, FAINT)
    + word("y", 57, 31, 24)
    + line((30, 42), (46, 22), role=GRADIENT),
    "detaching": circle(20, 32, 7, KEPT, True)
    + line((27, 32), (40, 32))
    + line((40, 44), (46, 20), role=GRADIENT)
    + line((49, 44), (55, 20), role=GRADIENT)
    + line((56, 32), (69, 32), role=FAINT, dashed=True)
    + circle(76, 32, 7, FAINT),
    "checkpointing": chain("#...#...#", 42)
    + path("M16 34 Q31 8 46 34", GRADIENT)
    + path("M50 34 Q65 8 80 34", GRADIENT),
    "reversible": "".join(circle(x, y, 4, INK, True) for x in (16, 80) for y in (18, 46))
    + arrow((22, 18), (73, 18))
    + arrow((74, 46), (23, 46))
    + line((22, 22), (74, 42), role=FAINT)
    + line((22, 42), (74, 22), role=FAINT),
    "linear_cross_entropy": cells(5, 17, 9.7, ["..##....", "..##....", "..##...."]) + word("…", 88, 30, 14),
    "saved_tensor_hooks": path("M34 18 a14 5 0 0 1 28 0 v28 a14 5 0 0 1 -28 0 z", KEPT, "full")
    + path("M34 18 a14 5 0 0 0 28 0", "ground")
    + arrow((12, 32), (29, 32))
    + arrow((67, 32), (86, 32), role=GRADIENT),
    "sparse": path("M18 8 H12 V56 H18 M78 8 H84 V56 H78")
    + "".join(circle(x, y, 3.5, KEPT, True) for x, y in ((24, 16), (50, 16), (36, 28), (72, 28), (24, 40), (62, 48))),
    "main_grad": "".join(
        box(12, 8 + 18 * i, 12, 12) + arrow((26, 14 + 18 * i), (42, 24 + 8 * i), role=GRADIENT) for i in range(3)
    )
    + box(46, 12, 40, 40, KEPT, full=True)
    + word("Σ", 66, 33, 26, "ground"),
    "linear_scan": "".join(circle(14 + 22.6 * i, 54, 3.5, INK, True) for i in range(4))
    + line((14, 54), (36.6, 38), (36.6, 54))
    + line((59.2, 54), (81.8, 38), (81.8, 54))
    + line((36.6, 38), (81.8, 14), (81.8, 38))
    + circle(81.8, 14, 4, KEPT, True),
    # --- Higher order
    "double_backward": word("f″", size=44, role=GRADIENT),
    "hessian": "".join(
        f'<ellipse class="{INK}" cx="48" cy="32" rx="{r}" ry="{r * 0.5}" transform="rotate(-24 48 32)"/>'
        for r in (12, 24, 36)
    )
    + circle(48, 32, 3, GRADIENT, True),
    "maml": loop(48, 32, 24) + loop(48, 32, 11, GRADIENT),
    "implicit": curve(lambda x: x, FAINT, points=1)
    + curve(settling)
    + line(*cobweb(settling, -1, 5), role=GRADIENT)
    + circle(*cobweb(settling, -1, 20)[-1], 4, KEPT, True),
    "transport": "".join(circle(18, y, 4, INK, True) + circle(78, y, 4, KEPT, True) for y in (12, 32, 52))
    + line((23, 12), (73, 32))
    + line((23, 32), (73, 52))
    + line((23, 52), (73, 12))
    + line((23, 12), (73, 12), role=FAINT),
    "rotations": arrow((40, 40), (40, 8), role=FAINT)
    + arrow((40, 40), (82, 48), role=FAINT)
    + arrow((40, 40), (14, 54), role=FAINT)
    + path("M58 44 A24 24 0 0 0 44 22")
    + arrow((50, 25), (43, 21)),
    "neural_ode": line(
        *(
            (48 + (28 - 2.3 * a) * math.cos(a) * 1.2, 32 + (28 - 2.3 * a) * math.sin(a))
            for a in (i * 0.3 for i in range(36))
        )
    )
    + circle(81.6, 32, 3.5, KEPT, True)
    + circle(48 + 4 * math.cos(10.5), 32 + 4 * math.sin(10.5), 3.5, KEPT, True),
    "forward_mode": AXES
    + curve(lambda x: 0.8 * math.sin(2.2 * x - 0.6))
    + arrow(place(-0.15, -0.64), place(0.7, 0.25), role=GRADIENT)
    + circle(*place(-0.15, -0.64), 4, KEPT, True),
    "per_sample_gradients": "".join(
        circle(18 + 20 * i, 44, 3.5, INK, True) + arrow((18 + 20 * i, 40), (18 + 20 * i + dx, 40 - dy), role=GRADIENT)
        for i, (dx, dy) in enumerate(((-6, 16), (8, 26), (0, 12), (6, 30)))
    ),
    "complex_numbers": CROSS
    + arrow((48, 32), (74, 14))
    + arrow((48, 32), (74, 50), role=GRADIENT)
    + line((74, 18), (74, 46), role=FAINT, dashed=True),
    # --- Beyond autograd
    "approximate_gradients": box(32, 6, 32, 32, INK, full=True)
    + word("?", 48, 23, 26, "ground")
    + arrow((8, 22), (29, 22))
    + arrow((67, 22), (88, 22))
    + arrow((88, 52), (8, 52), role=GRADIENT, dashed=True),
    "scipy_functions": "".join(
        f'<rect class="{GRADIENT} full" x="{15 + 11 * c}" y="{9 + 11.5 * r}" width="11" height="11.5" '
        f'fill-opacity="{math.exp(-0.12 * ((c - 1) ** 2 + (r - 1) ** 2)):.2g}"/>'
        for c in range(6)
        for r in range(4)
    )
    + box(15, 9, 66, 46),
    "custom_operator": word("my::op", size=22),
    "cuda_extension": box(28, 14, 40, 36)
    + word("C++", 48, 33, 15)
    + path(
        "".join(f"M{34 + 9.3 * i:.4g} 14V6M{34 + 9.3 * i:.4g} 50v8" for i in range(4))
        + "".join(f"M28 {22 + 10 * i}h-8M68 {22 + 10 * i}h8" for i in range(3))
    ),
    "row_reduction": cells(14, 8, 11, [".....", ".....", "....."])
    + cells(75, 8, 11, "###")
    + cells(14, 46, 11, ["ggggg"])
    + line((70, 8), (70, 41), role=INK)
    + line((14, 42.5), (67, 42.5), role=INK),
    "triton_kernel": path(
        "M48 58 V8 M26 14 V24 a22 14 0 0 0 44 0 V14 M22 18 L26 10 L30 18 M44 14 L48 6 L52 14 M66 18 L70 10 L74 18"
    ),
    "flash_attention": cells(21, 5, 9.2, ["......"] * 6)
    + path("M54 6 L32 36 H46 L40 58 L64 26 H50 z", GRADIENT, "full"),
    # --- Compile
    "torch_compile": box(4, 12, 88, 40, KEPT) + chain("...", radius=6),
    "graph_breaks": box(10, 16, 28, 32)
    + box(58, 16, 28, 32)
    + line((48, 6), (44, 20), (52, 30), (44, 42), (50, 58), role=GRADIENT),
    "recompiling": arrow(
        *((48 + 22 * math.cos(a), 32 + 22 * math.sin(a)) for a in (math.radians(v) for v in range(190, 341, 15)))
    )
    + arrow(*((48 + 22 * math.cos(a), 32 + 22 * math.sin(a)) for a in (math.radians(v) for v in range(10, 161, 15))))
    + word("n×", 48, 33, 17),
    "mixed_precision": box(12, 8, 72, 48, INK, dashed=True)
    + word("16", 25, 32, 14)
    + box(38, 18, 38, 28, KEPT, full=True)
    + word("32", 57, 33, 18, "ground"),
    "export": path("M44 14 H20 V54 H68 V38") + arrow((40, 38), (80, 10)),
    "selective_checkpointing": box(8, 24, 12, 16, FAINT, dashed=True)
    + box(26, 24, 12, 16, FAINT, dashed=True)
    + box(44, 14, 24, 36, KEPT, full=True)
    + box(74, 24, 12, 16, FAINT, dashed=True),
    # --- Distributed
    "data_parallel": "".join(
        box(40 + 28 * dx, 24 + 18 * dy, 16, 16, KEPT if dx else INK, full=True)
        for dx, dy in ((0, -1), (1, 0), (0, 1), (-1, 0))
    )
    + arrow((60, 12), (74, 20), role=GRADIENT)
    + arrow((76, 44), (62, 53), role=GRADIENT)
    + arrow((36, 53), (22, 44), role=GRADIENT)
    + arrow((20, 20), (35, 12), role=GRADIENT),
    "tensor_parallel": cells(10, 12, 10.5, ["###", "###", "###", "###"])
    + line((48, 6), (48, 58), role=FAINT, dashed=True)
    + cells(55, 12, 10.5, ["iii", "iii", "iii", "iii"]),
}


def icon(page: str) -> str:
    """The drawing of a page, or its first letter until there is one.

    Screen readers pass it by: the title of the page is next to it.
    """
    drawn = DRAWINGS.get(page) or word(page[0].upper(), size=40)
    return f'<svg class="page-icon" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{drawn}</svg>'
