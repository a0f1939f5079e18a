"""Pictures of graphs show the graph that is there, and nothing in them covers anything else."""

import itertools

import networkx as nx
import pytest
import torch
from docs._ext import graph_picture
from docs._ext.graph_picture import COLUMN_GAP, accumulator, columns_of, draw, kind, rows_of, spread, walk
from matplotlib import pyplot as plt
from torch import Tensor, nn
from torch.autograd import Function

pytestmark = pytest.mark.site  # it needs what the site is built with


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


@pytest.fixture
def x() -> Tensor:
    return torch.ones(3, requires_grad=True)


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output * ctx.saved_tensors[0]


def block() -> tuple[nn.Module, Tensor]:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return layer, layer(torch.randn(2, 5, 8)).sum()


# --- The graph ---


def test_every_leaf_of_a_module_is_reached_once() -> None:
    layer, output = block()
    leaves = [node.variable for node in walk(output) if kind(node) == "leaf"]
    assert {id(leaf) for leaf in leaves} == {id(parameter) for parameter in layer.parameters()}
    assert len(leaves) == len(list(layer.parameters()))


def test_edges_are_those_of_next_functions() -> None:
    _, output = block()
    graph = walk(output)
    for node in graph:
        children = [child for child, _ in node.next_functions if child is not None]
        assert sorted(map(id, graph.successors(node))) == sorted({id(child) for child in children})
        assert graph.out_degree(node) == len(children)


def test_a_tensor_used_twice_has_two_edges(x: Tensor) -> None:
    assert walk(x * x).number_of_edges() == 2


def test_constants_are_no_nodes(x: Tensor) -> None:
    assert walk(x * torch.ones(3)).number_of_nodes() == 2


def test_several_outputs_share_what_they_have_in_common(x: Tensor) -> None:
    hidden = x.sin()
    assert walk(hidden.exp(), hidden.cos()).number_of_nodes() == 4


def test_kinds(x: Tensor) -> None:
    graph = walk(Square.apply(x).sum())
    assert [kind(node) for node in nx.topological_sort(graph)] == ["operation", "custom", "leaf"]


def test_the_node_of_a_leaf_is_the_one_that_graphs_end_in(x: Tensor) -> None:
    ((end, _),) = x.sin().grad_fn.next_functions
    assert accumulator(x) is end


def test_a_tensor_without_graph_is_refused() -> None:
    with pytest.raises(ValueError, match="does not require a gradient"):
        walk(torch.ones(3))


# --- Where things stand ---


def test_an_edge_goes_from_row_to_row(x: Tensor) -> None:
    hidden = x.sin()
    output = hidden.exp().cos() + hidden
    graph = walk(output)
    rows, routes = rows_of(graph)
    row = {node: i for i, nodes in enumerate(rows) for node in nodes}
    assert set(routes) == set(graph.edges())
    for route in routes.values():
        assert [row[node] for node in route] == list(range(row[route[0]], row[route[-1]] + 1))


def test_an_edge_passes_no_row_by_a_node() -> None:
    _, output = block()
    graph = walk(output)
    rows, routes = rows_of(graph)
    assert not any(node in graph for route in routes.values() for node in route[1:-1])
    assert len({node for row in rows for node in row}) == sum(map(len, rows))


def test_nothing_in_a_row_touches() -> None:
    _, output = block()
    rows, routes = rows_of(walk(output))
    rows, x = columns_of(rows, routes.values(), lambda node: 40)
    for row in rows:
        places = [x[node] for node in row]
        assert all(b - a >= 40 + COLUMN_GAP - 1e-6 for a, b in itertools.pairwise(places))


def test_spread_leaves_what_has_room_and_parts_the_rest_evenly() -> None:
    assert spread([0, 100], [10, 10]) == [0, 100]
    assert spread([5, 5], [10, 10]) == pytest.approx([5 - (10 + COLUMN_GAP) / 2, 5 + (10 + COLUMN_GAP) / 2])


# --- What is drawn ---


def written(figure: plt.Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_names_shapes_and_notes_are_written(x: Tensor) -> None:
    loss = x.square().sum()
    figure = draw(loss, names={"x": x, "loss": loss}, notes={loss.grad_fn: ["has arrived: 1"]})
    assert written(figure) == ["loss", "SumBackward0", "has arrived: 1", "PowBackward0", "x  3", "AccumulateGrad"]


def test_each_edge_is_an_arrow(x: Tensor) -> None:
    output = (x * x).exp() + x
    arrows = [p for p in draw(output).axes[0].patches if isinstance(p, graph_picture.FancyArrowPatch)]
    assert len(arrows) == walk(output).number_of_edges()


def test_text_fits_into_its_box(x: Tensor) -> None:
    loss = Square.apply(x).exp().sum()
    figure = draw(loss, names={"a rather long name for a leaf": x})
    figure.canvas.draw()
    boxes = [p.get_window_extent() for p in figure.axes[0].patches if isinstance(p, graph_picture.FancyBboxPatch)]
    for text in figure.axes[0].texts:
        inner = text.get_window_extent()
        assert any(box.x0 <= inner.x0 and inner.x1 <= box.x1 for box in boxes), text.get_text()


def test_a_large_graph_is_scaled_into_given_axes() -> None:
    output = torch.ones(3, requires_grad=True)
    for _ in range(12):
        output = output.sin() * output
    figure, axes = plt.subplots(figsize=(4, 4))
    assert draw(output, axes=axes) is figure
    figure.canvas.draw()
    frame = axes.get_window_extent()
    for patch in axes.patches:
        box = patch.get_window_extent()
        assert frame.x0 - 1 <= box.x0
        assert box.x1 <= frame.x1 + 1
        assert frame.y0 - 1 <= box.y0
        assert box.y1 <= frame.y1 + 1
