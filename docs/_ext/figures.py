"""The figures of the cookbook: what makes one unreadable fails the build."""

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from sphinx.errors import ExtensionError
from sphinx_gallery.scrapers import matplotlib_scraper

SLACK = 1.0  # pixels by which text may reach over the edge


def problems(figure: Figure) -> list[str]:
    """Say what a reader could not see: words that are cut off, an empty panel, a legend that covers a curve."""
    figure.canvas.draw()
    left, bottom, right, top = figure.bbox.extents
    found = []
    for text in words(figure):
        box = text.get_window_extent()
        if min(box.x0 - left, box.y0 - bottom, right - box.x1, top - box.y1) < -SLACK:
            found.append(f"{text.get_text()!r} is cut off at the edge")
    for axes in figure.axes:
        if not axes.has_data() and not axes.texts and axes.axison:
            found.append("a panel is empty")
        if (legend := axes.get_legend()) is None:
            continue
        box = legend.get_window_extent()
        found += [f"the legend covers {line.get_label()!r}" for line in axes.lines if covers(box, line)]
    return found


def words(figure: Figure) -> list[Text]:
    """Titles, names of axes, and what stands in the panels; no numbers at ticks, which matplotlib makes room for."""
    ticks = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for label in axis.get_ticklabels(which="both")
    }
    hidden = {label for axes in figure.axes if not axes.axison for label in (axes.xaxis.label, axes.yaxis.label)}
    return [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in ticks | hidden
    ]


def covers(box: Any, line: Line2D) -> bool:
    path = line.get_path().transformed(line.get_transform())
    drawn = line.get_linestyle() not in ("None", "", " ")
    return path.intersects_bbox(box, filled=False) if drawn else bool(sum(box.contains(*p) for p in path.vertices))


def scrape(block: tuple, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the open figures as Sphinx-Gallery does.

    Raises:
        ExtensionError: if one cannot be read.
    """
    for number in plt.get_fignums():
        if found := problems(plt.figure(number)):
            raise ExtensionError(f"{block_vars['src_file']}: a figure cannot be read: {'; '.join(found)}")
    return matplotlib_scraper(block, block_vars, gallery_conf)
