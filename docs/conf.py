"""Sphinx configuration. What needs more than a setting lives in ``_ext``."""

import os
from pathlib import Path

from docs._ext import digests, published, results, versions
from docs._ext.trades import listed

import autograd_cookbook
from autograd_cookbook._site import folder
from autograd_cookbook.auditing.checks import all_checks
from autograd_cookbook.catalog import RECIPES

HERE = Path(__file__).parent

project = "Autograd Cookbook"
author = "The Autograd Cookbook authors"
copyright = "2026, " + author
version = release = autograd_cookbook.__version__
html_baseurl = autograd_cookbook.SITE  # canonical links start with it; empty if the site is not published
repository = "https://github.com/autograd-cookbook/autograd-cookbook"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.katex",
    "sphinxext.opengraph",
    "notfound.extension",
    "docs._ext.backlinks",
    "docs._ext.costs",
    "docs._ext.error_index",
    "docs._ext.executed",
    "docs._ext.files",
    "docs._ext.formulas",
    "docs._ext.freshness",
    "docs._ext.gallery",
    "docs._ext.gallery_index",
    "docs._ext.glance",
    "docs._ext.glossary_links",
    "docs._ext.graph_nodes",
    "docs._ext.kernels",
    "docs._ext.landing",
    "docs._ext.listings",
    "docs._ext.pitfalls",
    "docs._ext.published",
    "docs._ext.recipe",
    "docs._ext.schedule",
    "docs._ext.search",
    "docs._ext.sliders",
    "docs._ext.terms",
    "docs._ext.weight",
]

nitpicky = True
nitpick_ignore = [
    # Signatures name these by where they are defined, the documentation of torch by where they are imported from.
    ("py:class", "numpy.ndarray"),
    ("py:class", "autograd_cookbook.errors.paste.Frame"),
    ("py:class", "autograd_cookbook.recipes._context.Context"),
    ("py:class", "collections.abc.Collection"),
    ("py:class", "collections.abc.Mapping"),
    ("py:class", "torch._C.Generator"),
    ("py:class", "torch._ops.OpOverload"),
    ("py:class", "torch._ops.OpOverloadPacket"),
    ("py:class", "torch.distributed.distributed_c10d.ProcessGroup"),
    ("py:class", "torch.export.exported_program.ExportedProgram"),
    ("py:class", "torch.nn.modules.module.Module"),
    ("py:class", "torch.optim.optimizer.Optimizer"),
    ("py:class", "torch.utils._python_dispatch.TorchDispatchMode"),
    ("py:class", "torch.utils.hooks.RemovableHandle"),
    # Arguments of the command line's own functions.
    ("py:class", "argparse.ArgumentParser"),
    ("py:class", "argparse.Namespace"),
    # Not in the documentation of torch.
    ("py:exc", "torch._dynamo.exc.TorchDynamoException"),
    ("py:exc", "torch.linalg.LinAlgError"),
]
exclude_patterns = ["cookbook/**/*.ipynb", "cookbook/**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]

# --- The cookbook --------------------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "cookbook",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "docs._ext.gallery.PageOrder",
    # Two workers: scripts then run outside of the Sphinx process, whose threads they could otherwise inherit.
    "parallel": 2,
    "reset_modules": ("docs._ext.gallery.reset",),
    "reset_modules_order": "both",
    "image_srcset": ["2x"],
    "thumbnail_size": (480, 320),
    "min_reported_time": 1,
    "show_memory": False,
    "write_computation_times": False,
    "first_notebook_cell": "%pip install autograd-cookbook matplotlib scikit-learn",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
}

# --- Reference -----------------------------------------------------------------------------------------------------

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# Inventories of the few names that we link to are kept here, so that the build needs no network.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3/", "inventories/python.inv"),
    "torch": ("https://docs.pytorch.org/docs/stable/", "inventories/torch.inv"),
}

# --- Executed pages and math ---------------------------------------------------------------------------------------

os.environ["KINETO_LOG_LEVEL"] = "99"  # or pages show what the profiler, which counts bytes, says of itself

# Whenever a page is read it is run: its cache does not know what the package's code was. See freshness.py.
nb_execution_mode = "force"
nb_kernel_rgx_aliases = {"python3": "copied"}  # see kernels.py
nb_execution_show_tb = True
nb_execution_timeout = 3600  # seconds for a cell: stops only what hangs, on a busy machine too
nb_merge_streams = True  # or what a cell prints is cut where its process paused
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "substitution"]
# Numbers in prose: {{ recipes }} and the like.
myst_substitutions = {
    "recipes": len(RECIPES),
    "verified": len(results.rows("verified")),
    "checks": len(all_checks()),
    "torch": digests.torch(),
    "also": listed([release for release in versions.releases() if release != digests.torch()]),
}

# What is printed is to be read; a button on it looks like that of the code above.
# A recipe has buttons with words.
copybutton_selector = (
    "div.highlight pre:not(.recipe pre, .cell_output pre, .sphx-glr-script-out pre, .error-message pre, .pytb pre)"
)

katex_prerender = True  # see formulas.py
katex_css_path = "katex/katex.min.css"  # vendored: the package would take it from a CDN


# --- HTML ----------------------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["cookbook.css", "brand.css"]
html_js_files = [("cookbook.js", {"defer": "defer"}), ("quick.js", {"defer": "defer"})]
html_favicon = "_static/logo.svg"
html_copy_source = False
ALONE = "index", "install", "capabilities", "costs", "colophon", "coverage", "search"  # pages of no section
html_sidebars = {page: [] for page in ALONE}
html_theme_options = {
    "logo": {"image_light": "_static/logo.svg", "image_dark": "_static/logo.svg", "text": project},
    # A picture of our own: the theme's icon would bring a font of 110 kB with it.
    "icon_links": [{"name": "GitHub", "url": repository, "icon": "_static/github.svg", "type": "local"}],
    "use_edit_page_button": True,
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "navbar_center": ["main-nav"],
    "switcher": {"json_url": published.LIST, "version_match": release},
    "check_switcher": False,  # the list is written when the pages are
    "show_version_warning_banner": True,
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    "footer_start": ["copyright"],
    "footer_end": ["releases"],
    "secondary_sidebar_items": ["page-toc", "sg_download_links", "edit-this-page"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {
    "default_mode": "auto",
    "torch": digests.torch(),
    "releases": versions.releases(),
    # Pages of the gallery and of the reference are generated: to edit them is to edit a script or a module.
    "edit_page_url_template": repository + "/edit/main/{{ edit_path(file_name) }}",
    "edit_page_provider_name": "GitHub",
}

ogp_site_url = html_baseurl
ogp_description_length = 160
ogp_image = html_baseurl + "_static/screenshot.png"
ogp_image_alt = "A recipe with its source, a copy button, and badges that say what it can do"
ogp_social_cards = {"enable": False}  # one picture for all pages, and no fonts to fetch
notfound_urls_prefix = published.path_of(folder(release))


def setup(app):
    # Pages may be read side by side, which runs them. One process writes them: its KaTeX server has one connection.
    app.connect("builder-inited", lambda app: setattr(app.builder, "allow_parallel", False))
