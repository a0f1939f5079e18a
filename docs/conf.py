"""Sphinx configuration. What needs more than a setting lives in ``_ext``."""

import sys
from pathlib import Path

import autograd_cookbook

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "Autograd Cookbook"
author = "The Autograd Cookbook authors"
copyright = "2026, " + author
version = release = autograd_cookbook.__version__
html_baseurl = "https://autograd-cookbook.github.io/autograd-cookbook/"
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
    "sphinx_codeautolink",
    "sphinx_sitemap",
    "sphinxcontrib.katex",
    "sphinxext.opengraph",
    "notfound.extension",
    "freshness",
    "recipe",
]

nitpicky = True
exclude_patterns = ["cookbook/**/*.ipynb", "cookbook/**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]

# --- The cookbook --------------------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "cookbook",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "gallery.CatalogOrder",
    # Two workers: scripts then run outside of the Sphinx process, whose threads they could otherwise inherit.
    "parallel": 2,
    "reset_modules": ("gallery.reset",),
    "reset_modules_order": "both",
    "doc_module": ("autograd_cookbook",),
    "backreferences_dir": "reference/generated/backreferences",
    "image_srcset": ["2x"],
    "thumbnail_size": (480, 320),
    "min_reported_time": 1,
    "show_memory": False,
    "junit": str(HERE.parent / "build" / "gallery-junit.xml"),
    "first_notebook_cell": "%pip install autograd-cookbook matplotlib",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
}

# --- Reference -----------------------------------------------------------------------------------------------------

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# Inventories of the few names that we link to are kept here, so that the build needs no network.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3/", "inventories/python.inv"),
    "torch": ("https://docs.pytorch.org/docs/stable/", "inventories/torch.inv"),
}

# --- Executed pages and math ---------------------------------------------------------------------------------------

nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]

katex_prerender = True

# --- HTML ----------------------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["cookbook.css"]
html_theme_options = {
    "github_url": repository,
    "use_edit_page_button": True,
    "show_prev_next": True,
    "navigation_with_keys": False,
}
html_context = {
    "github_user": "autograd-cookbook",
    "github_repo": "autograd-cookbook",
    "github_version": "main",
    "doc_path": "docs",
}
ogp_site_url = html_baseurl
sitemap_url_scheme = "{link}"
