"""Configure Sphinx. CONTRIBUTING.md contains the command that builds the site."""

import sys
from pathlib import Path

import convexmarket

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "convexmarket"
author = "The convexmarket developers"
release = version = convexmarket.__version__
project_copyright = author

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "offline_math",
    "generated_pages",
]
templates_path = ["_templates"]
exclude_patterns = ["_ext", "_templates", "tutorials", "**/GALLERY_HEADER.rst"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
suppress_warnings = ["config.cache", "myst.header"]

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

autosummary_generate = True
autodoc_typehints = "none"  # types are in the docstrings
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # members are in the template

sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "auto_tutorials",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "show_signature": False,
    "min_reported_time": 1_000,
    "download_all_examples": False,
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("matplotlib",),
    "abort_on_example_error": True,
    "capture_repr": ("_repr_html_", "__repr__"),
    "ignore_repr_types": r"matplotlib\.",
}

smartquotes_action = "qe"  # keep two hyphens, because options begin with them

html_theme = "pydata_sphinx_theme"
html_title = "convexmarket"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
# Pages without subpages:
html_sidebars = {page: [] for page in ("index", "start", "reference/generated/gallery")}
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
