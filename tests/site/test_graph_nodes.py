"""What is said of the nodes of a picture: formulas compute what the node computes, places are those of the boxes."""

import io
import re
from collections.abc import Callable

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from docs._ext.graph_nodes import names_of, places, saved_by, written
from docs._ext.graph_picture import FACE, draw, kind, walk
from docs._ext.node_formulas import TABLE
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from playwright.sync_api import Browser, Page, expect
from torch import Tensor

from .conftest import opened

pytestmark = pytest.mark.site

PAGES = ["guide/graph", "guide/backward", "guide/higher_order", "guide/nonfinite"]


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


def leaf(*shape: int) -> Tensor:
    return (torch.rand(*shape, dtype=torch.float64) + 0.5).requires_grad_()


OPERATIONS: dict[str, Callable[[], Tensor]] = {
    "AddBackward0": lambda: torch.add(leaf(3), leaf(3), alpha=2),
    "AddmmBackward0": lambda: torch.addmm(leaf(2, 4), leaf(2, 3), leaf(3, 4), beta=3, alpha=2),
    "CosBackward0": lambda: leaf(3).cos(),
    "ExpBackward0": lambda: leaf(3).exp(),
    "MeanBackward0": lambda: leaf(2, 3).mean(),
    "MmBackward0": lambda: leaf(2, 3) @ leaf(3, 4),
    "MulBackward0": lambda: leaf(3) * leaf(3),
    "PowBackward0": lambda: leaf(3) ** 3,
    "ReluBackward0": lambda: (leaf(8) - 1).relu(),
    "SinBackward0": lambda: leaf(3).sin(),
    "SqrtBackward0": lambda: leaf(3).sqrt(),
    "SubBackward0": lambda: torch.sub(leaf(3), leaf(3), alpha=2),
    "SumBackward0": lambda: leaf(2, 3).sum(),
    "TBackward0": lambda: leaf(2, 3).t(),
    "WhereBackward0": lambda: torch.where(torch.tensor([True, False, True]), leaf(3), leaf(3)),
}


def test_each_formula_is_evaluated() -> None:
    assert set(OPERATIONS) == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_a_formula_computes_what_the_node_sends(name: str) -> None:
    torch.manual_seed(0)
    output = OPERATIONS[name]()
    node = output.grad_fn
    assert node.name() == name
    grad = torch.rand_like(output)
    values = {key: getattr(node, f"_saved_{key}") for key in names_of(node)}
    sent = node(grad)
    sent = sent if isinstance(sent, tuple) else (sent,)
    assert len(sent) == len(TABLE[name].sends)
    for formula, real in zip(TABLE[name].sends, sent, strict=True):
        torch.testing.assert_close(eval(formula, {"torch": torch, "grad": grad, **values}), real)


def test_the_formula_of_a_leaf_adds() -> None:
    x = leaf(3)
    for factor in (2, 3):
        (factor * x).sum().backward()
    assert x.grad.tolist() == [5, 5, 5]


def test_the_bytes_are_those_of_the_saved_tensors() -> None:
    x, w = torch.ones(8, 3), torch.ones(3, 4, requires_grad=True)
    output = (x @ w).exp().relu()
    said = written(draw(output, names={"w": w}), {"x": x})
    assert "self: 8 × 3, 96 bytes, in memory anyway as x" in said
    assert "result: 8 × 4, 128 bytes" in said
    assert "the leaf itself has 48 bytes" in said
    relu = next(node for node in walk(output) if node.name() == "ReluBackward0")
    assert saved_by(relu)["result"].untyped_storage().data_ptr() == output.untyped_storage().data_ptr()


def test_memory_that_two_nodes_keep_is_said_to_be_shared() -> None:
    output = leaf(3).relu().square()
    assert "24 bytes, shared with ReluBackward0" in written(draw(output))
    x = leaf(3).relu()
    assert re.search("self: 3, 24 bytes, the same memory as other", written(draw(x * x)))


@pytest.mark.parametrize("columns", [1, 2])
def test_a_place_is_that_of_its_box_in_the_picture_as_it_is_saved(columns: int) -> None:
    if columns == 1:
        figure = draw((leaf(3) * leaf(3)).exp().sum())
    else:
        figure, axes = plt.subplots(1, 2, figsize=(5, 3), layout="constrained")
        for axis in axes:
            draw(leaf(3).exp().sum(), axes=axis, title="a title")
    file = io.BytesIO()
    figure.savefig(file, bbox_inches="tight", dpi=2 * figure.dpi)
    file.seek(0)
    picture = plt.imread(file)
    rows, across = picture.shape[:2]
    for (node, _, _), (left, top, width, height) in zip(figure.graph_nodes, places(figure), strict=True):
        middle = top + height / 2

        def color(x: float, y: float) -> tuple[float, ...]:
            return tuple(picture[round(y / 100 * rows), round(x / 100 * across)][:3])

        inset, outset = 0.04 * width, 4 / across * 100
        for x in (left + inset, left + width - inset):
            assert color(x, middle) == pytest.approx(to_rgb(FACE[kind(node)]), abs=0.02)
        for x in (left - outset, left + width + outset):
            assert color(x, middle) == pytest.approx((1, 1, 1), abs=0.02)


# --- In a browser ---


@pytest.mark.parametrize("path", PAGES)
def test_each_node_on_a_page_has_a_formula(path: str, page: Page, base: str) -> None:
    page.goto(f"{base}{path}.html")
    nodes = page.locator(".graph-frame .graph-node")
    said = nodes.evaluate_all("nodes => nodes.map(node => [node.ariaLabel, node.dataset.said])")
    assert said
    assert not [label for label, text in said if "<dt>Formula</dt>" not in text]


@pytest.mark.parametrize("width", [390, 1440])
def test_the_panel_follows_the_keyboard_and_the_pointer_and_covers_nothing(
    width: int, browser: Browser, base: str
) -> None:
    with opened(browser, viewport={"width": width, "height": 900}) as page:
        page.goto(f"{base}guide/graph.html")
        frame, panel = page.locator(".graph-frame").first, page.locator(".graph-said").first
        nodes = frame.locator(".graph-node")
        expect(panel).to_contain_text("Point at a node")
        nodes.nth(0).focus()
        expect(panel).to_contain_text("MeanBackward0: mean of all elements")
        page.keyboard.press("Tab")
        expect(nodes.nth(1)).to_be_focused()
        expect(panel).to_contain_text("PowBackward0")
        nodes.nth(2).hover()
        expect(panel).to_contain_text("grad * (result > 0)")
        nodes.nth(3).click()
        expect(panel).to_contain_text("AddBackward0")
        picture, below = frame.locator("img").bounding_box(), panel.bounding_box()
        assert below["y"] >= picture["y"] + picture["height"]
        for node in nodes.all():
            box = node.bounding_box()
            assert picture["x"] <= box["x"]
            assert box["x"] + box["width"] <= picture["x"] + picture["width"]
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_it(scheme: str, browser: Browser, base: str) -> None:
    with opened(browser, color_scheme=scheme) as page:
        page.goto(f"{base}guide/backward.html")
        page.locator(".graph-node").nth(1).focus()
        found = Axe().run(page, context={"include": [[".graph-frame"], [".graph-nodes"]]})
        assert not found.response["violations"]


def test_without_scripts_the_picture_is_shown_alone(browser: Browser, base: str) -> None:
    with opened(browser, java_script_enabled=False) as page:
        page.goto(f"{base}guide/graph.html")
        expect(page.locator(".cell_output img").first).to_be_visible()
        expect(page.locator(".graph-nodes").first).to_be_hidden()
