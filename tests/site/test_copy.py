"""What the copy button puts on the clipboard runs in an empty file, with torch alone, and passes gradcheck."""

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from autograd_cookbook.catalog import RECIPES, Recipe

pytestmark = pytest.mark.site

ROOT = str(Path(__file__).parents[2])
HARNESS = """

# --- added by the test: the copied file above must not need this package, whose samples are only loaded now ---
assert [name for name in sys.modules if name.startswith("autograd_cookbook")] == ["autograd_cookbook"]
del sys.modules["autograd_cookbook"]
from torch.autograd import gradcheck, gradgradcheck
sys.path.insert(0, {root!r})
from tests.support import at, copies, leaves, places
from autograd_cookbook.catalog import BY_NAME
recipe = BY_NAME[{name!r}]
checked = 0
for sample in recipe.calls:
    args = copies(sample.args)
    function = at(places(args), {function}, args)
    assert gradcheck(function, leaves(args), atol=1e-6, rtol=1e-5), sample.name
    if "second_order" in recipe.promises:
        assert gradgradcheck(function, leaves(args), atol=1e-6, rtol=1e-5), sample.name
    checked += 1
print("checked", checked)
"""


@pytest.mark.parametrize("recipe", [pytest.param(r, id=r.name) for r in RECIPES])
def test_copied_recipe(recipe: Recipe, browser: Browser, base: str, tmp_path: Path) -> None:
    with browser.new_context(permissions=["clipboard-read", "clipboard-write"]) as context:
        page = context.new_page()
        page.goto(f"{base}cookbook/{recipe.page}.html")
        page.locator(f"#recipe-{recipe.name} button.copybtn").click()
        page.wait_for_function("navigator.clipboard.readText().then((text) => text.length > 100)")
        copied = page.evaluate("navigator.clipboard.readText()")
    # Older browsers and systems may change the ends of lines, nothing else may.
    assert copied.replace("\r\n", "\n").strip() == recipe.source.strip()

    file = tmp_path / "copied.py"
    blocked = "import sys; sys.modules['autograd_cookbook'] = None\n"
    harness = HARNESS.format(name=recipe.name, function=recipe.exports[0], root=ROOT)
    file.write_text(blocked + copied + harness)
    done = subprocess.run([sys.executable, file.name], cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, f"{recipe.name}, copied from its page, fails:\n{done.stderr}"
    assert done.stdout.endswith(f"checked {len(recipe.calls)}\n")
