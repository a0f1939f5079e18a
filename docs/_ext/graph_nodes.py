"""What each node of a picture of a graph is, for readers who point at it or reach it with Tab.

A page calls ``show`` in a cell that readers do not see, after the cell with the picture. The values come from the live
graph. ``graph_nodes.js`` lays a button over each node of the picture. Without scripts, and on paper, readers see the
picture alone.
"""

import html
import re
from collections.abc import Iterator, Mapping

import matplotlib.pyplot as plt
from docs._ext.graph_picture import kind, shape_of
from docs._ext.node_formulas import TABLE
from IPython.display import HTML
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sphinx.application import Sphinx
from torch import Tensor
from torch.autograd.graph import Node

Place = tuple[float, float, float, float]
START = "Point at a node, or move to it with Tab, to see what it does, what arrives there and what it keeps."


def saved_by(node: Node) -> dict[str, Tensor]:
    """The tensors that a node saves, by their names in its formula."""
    if kind(node) == "custom":
        found = {f"saved_tensors[{i}]": value for i, value in enumerate(node.saved_tensors)}
    else:
        found = {name: getattr(node, f"_saved_{name}") for name in names_of(node)}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def names_of(node: Node) -> list[str]:
    return [name.removeprefix("_saved_") for name in dir(node) if name.startswith("_saved_")]


def memory(tensor: Tensor) -> int:
    """Equal for tensors that share their memory."""
    return tensor.untyped_storage().data_ptr()


def places(figure: Figure) -> list[Place]:
    """Left, top, width and height of each node in the picture as a notebook crops it, in percent."""
    canvas = FigureCanvasAgg(figure)  # pyplot takes its own away when it closes the figure
    canvas.draw()
    crop = figure.get_tightbbox(canvas.get_renderer()).padded(plt.rcParams["savefig.pad_inches"])
    found = []
    for _, _, patch in figure.graph_nodes:
        box = patch.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        across, down = 100 / crop.width, 100 / crop.height
        found.append(((box.x0 - crop.x0) * across, (crop.y1 - box.y1) * down, box.width * across, box.height * down))
    return found


def gradient_at(node: Node) -> str:
    """The shapes and dtypes of what arrives, one for each output of the operation."""
    return ", ".join(f"{shape_of(one)}, {str(one.dtype).removeprefix('torch.')}" for one in node._input_metadata)


def counted(number: int) -> str:
    return f"{number:,} byte{'s' * (number != 1)}"


def kept(node: Node, held: Mapping[int, str], users: Mapping[int, list[Node]]) -> Iterator[str]:
    """A line for each tensor that a node saves."""
    seen: dict[int, str] = {}
    for name, tensor in saved_by(node).items():
        line = f"{name}: {shape_of(tensor)}, {counted(tensor.nbytes)}"
        shared = [other for other in users[memory(tensor)] if other is not node]
        if memory(tensor) in seen:
            line += f", the same memory as {seen[memory(tensor)]}"
        elif memory(tensor) in held:
            line += f", in memory anyway as {held[memory(tensor)]}"
        elif shared:
            line += f", shared with {', '.join(other.name() for other in shared)}"
        seen.setdefault(memory(tensor), name)
        yield line


def rows(node: Node, held: Mapping[int, str], users: Mapping[int, list[Node]]) -> Iterator[tuple[str, list[str], bool]]:
    """What is said of a node: a term, its lines, and whether these are code."""
    yield "Gradient in", [gradient_at(node)], False
    if kind(node) == "leaf":
        yield "Keeps", ["nothing; the leaf itself has " + counted(node.variable.nbytes)], False
        yield "Formula", ["leaf.grad += grad"], True
        return
    yield "Keeps", list(kept(node, held, users)) or ["no tensor"], False
    if node.name() in TABLE:
        sends = TABLE[node.name()].sends
        wanted = [child is not None for child, _ in node.next_functions]
        lines = [f"input {i}: {sent}" for i, sent in enumerate(sends) if wanted[i]] if len(sends) > 1 else list(sends)
        yield "Formula", lines + numbers(node, " ".join(lines)), True


def numbers(node: Node, formula: str) -> list[str]:
    """What a formula uses that is no tensor, such as an exponent."""
    values = {name: getattr(node, f"_saved_{name}") for name in names_of(node) if re.search(rf"\b{name}\b", formula)}
    return [f"{name} = {value}" for name, value in values.items() if not isinstance(value, Tensor)]


def does(node: Node) -> str:
    if kind(node) == "leaf":
        return "adds the gradient to the leaf's grad"
    return TABLE[node.name()].does if node.name() in TABLE else ""


def panel(node: Node, name: str | None, held: Mapping[int, str], users: Mapping[int, list[Node]]) -> str:
    title = html.escape(node.name().rpartition("::")[2])
    said = does(node)
    text = f"<p><strong>{title}</strong>{f': {html.escape(said)}' if said else ''}"
    text += f" (<code>{html.escape(name)}</code>)</p><dl>" if name else "</p><dl>"
    for term, lines, code in rows(node, held, users):
        escaped = [html.escape(line) for line in lines]
        text += f"<dt>{term}</dt>"
        text += "".join(f"<dd><code>{line}</code></dd>" if code else f"<dd>{line}</dd>" for line in escaped)
    return text + "</dl>"


def written(figure: Figure, names: Mapping[str, Tensor] | None = None) -> str:
    """The buttons and the panel of a picture, as they stand in a page.

    Args:
        figure: A figure that ``graph_picture.draw`` has drawn on.
        names: More tensors that the code holds, such as inputs without a gradient.
    """
    nodes = list(dict.fromkeys(node for node, _, _ in figure.graph_nodes))
    called = {node: name for node, name, _ in figure.graph_nodes}
    held = {memory(node.variable): called[node] or "a leaf" for node in nodes if kind(node) == "leaf"}
    held |= {memory(tensor): name for name, tensor in (names or {}).items()}
    users: dict[int, list[Node]] = {}
    for node in nodes:
        for tensor in saved_by(node).values():
            users.setdefault(memory(tensor), []).append(node)
    buttons = ""
    for (node, name, _), (left, top, width, height) in zip(figure.graph_nodes, places(figure), strict=True):
        label = f"{name}, {node.name()}" if name else node.name()
        buttons += (
            f'<button type="button" class="graph-node" aria-label="{html.escape(label)}" '
            f'style="left:{left:.2f}%;top:{top:.2f}%;width:{width:.2f}%;height:{height:.2f}%" '
            f'data-said="{html.escape(panel(node, name, held, users))}"></button>'
        )
    return f'<div class="graph-nodes" hidden>{buttons}<div class="graph-said" aria-live="polite">{START}</div></div>'


def show(figure: Figure, names: Mapping[str, Tensor] | None = None) -> HTML:
    return HTML(written(figure, names))


def add_script(app: Sphinx, pagename: str, template: str, context: dict[str, object], doctree: object) -> None:
    """Only pages with such a picture load the script."""
    if 'class="graph-nodes"' in str(context.get("body", "")):
        app.add_js_file("graph_nodes.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
