"""The settings of Sphinx for the site.  build.py runs Sphinx on a folder of pages that it prepared."""
import os
import re

project = "kvfate"
html_title = "kvfate " + os.environ["KVFATE_SITE_VERSION"]
language = "en"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["conf.py"]

# The pages are GitHub's Markdown.  Marks that only MyST knows are plain text in them.
myst_heading_anchors = 6
myst_enable_extensions = ["strikethrough"]
myst_disable_syntax = ["myst_line_comment", "myst_block_break", "myst_target", "myst_role"]
suppress_warnings = ["myst.header", "myst.strikethrough", "toc.not_included"]  # the lint checks the navigation
smartquotes = False
highlight_language = "none"

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_extra_path = ["_extra"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_context = {"default_mode": "auto"}
html_sidebars = {"index": [], "gallery": []}
html_theme_options = {
    "logo": {"text": "kvfate"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "show_nav_level": 1,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
}


def language_of_commands(_, tree):
    """Colours indented blocks that begin with a command as shell text."""
    from docutils import nodes
    for block in tree.findall(nodes.literal_block):
        first = block.astext().split(None, 1)[0] if block.astext().strip() else ""
        if block.get("language", "none") in ("none", "default") and first.startswith(("kvfate", "pip", "./", "meson", "git", "PATH=")):
            block["language"] = "bash"


def without_empty_headers(app, name, template, context, tree):
    """Makes a plain cell of each empty header cell, because a screen reader would announce a header without a name."""
    if "body" in context:
        context["body"] = re.sub(r'<th class="head[^"]*"><p></p></th>', '<td class="head"></td>', context["body"])


def setup(app):
    app.connect("html-page-context", without_empty_headers)
    app.connect("doctree-read", language_of_commands)
