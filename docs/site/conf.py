"""Sphinx: pages, code and results stand beside each other as in the checkout, so that links between files are links of
the site."""

from docs.site.docstrings import as_restructured_text

project = "Demur"
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
include_patterns = ["docs/*.md", "reference/*.md", "*.md", "service/*.md", "tests/*.md"]
suppress_warnings = ["misc.highlighting_failure"]  # drawings in Mermaid stay text
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
autodoc_typehints = "signature"
add_module_names = False
smartquotes = False  # `--option` must stay what one types
autodoc_member_order = "bysource"
html_theme = "furo"
html_title = "Demur"
html_copy_source = False
html_static_path: list[str] = []


def setup(app):  # type: ignore[no-untyped-def]
    """Docstrings are plain text."""
    app.connect("autodoc-process-docstring", as_restructured_text)
