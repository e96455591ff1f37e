"""Configuration of the site: `make docs` builds it into `site/`, and nothing in it is fetched from the net."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import make_reference

project = "secondguess"
author = "The secondguess developers"
copyright = author
release = version = installed("secondguess")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "docstrings",
]
exclude_patterns = ["claims", "examples", "**.txt"]
make_reference.write()

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["ref.python"]  # names that two rooms have

napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False

smartquotes = False  # messages and code are searched for as they are printed

html_theme = "furo"
html_title = "secondguess"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # it would fetch every page that is found, which a browser refuses from file://
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
copybutton_prompt_text = "$ "

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "nested_sections": False,
    "capture_repr": ("_repr_html_", "__repr__"),
    "abort_on_example_error": True,
    "min_reported_time": 0,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
}


def _link_gallery(app: Any, name: str, source: list[str]) -> None:
    """Pages link to the files of examples, as a reader on GitHub needs them; here the gallery has a page for each."""
    text = re.sub(r"\]\(((?:\.\./)*)examples/(\w+/\w+)\.py\)", r"](\1gallery/\2.rst)", source[0])
    source[0] = re.sub(r"\]\(((?:\.\./)*)examples\)", r"](\1gallery/index.rst)", text)


THUMBNAIL = re.compile(r"(_thumb\.png\n +:alt:)(\n.*?sphx-glr-thumbnail-title\">)([^<]+)", re.DOTALL)


def _describe_thumbnails(app: Any, name: str, source: list[str]) -> None:
    """sphinx-gallery leaves the descriptions of its thumbnails empty."""
    source[0] = THUMBNAIL.sub(r"\1 A picture of the example: \3\2\3", source[0])


def setup(app: Any) -> None:
    """What a configuration cannot say."""
    app.connect("source-read", _link_gallery)
    app.connect("source-read", _describe_thumbnails)
