"""Where a recipe takes long, its page says so first."""

from types import SimpleNamespace

import pytest
from docs._ext import costs, results, trades
from docs._ext.pages import PLACES
from docutils import nodes, utils

from autograd_cookbook.catalog import RECIPES

pytestmark = pytest.mark.site


@pytest.mark.parametrize("lists", [0, 1])
def test_costs_follow_what_the_recipes_are_for_with_its_list(lists: int) -> None:
    document = utils.new_document("page")
    slow = next(r for r in RECIPES if r.cost and trades.trade(r, results.measured(r, "cost")["contenders"]))
    document.settings.env = SimpleNamespace(docname=f"cookbook/{PLACES[slow.page]}/{slow.page}")
    body = [nodes.paragraph("", "uses"), *[nodes.bullet_list()] * lists, nodes.paragraph("", "more")]
    section = nodes.section("", nodes.title("", trades.FIRST), *body)
    document += section
    costs.TradeTransform(document).apply()
    assert section[2 + lists].astext().startswith(slow.name)
    assert section[-1].astext() == "more"
