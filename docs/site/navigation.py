"""Reads docs/site/navigation.toml: the sections of the site and their pages."""
import glob
import os
import re
import tomllib
from typing import NamedTuple

FILE = "docs/site/navigation.toml"
SITE = "docs/site/"  # pages of this folder are parts of the site, not documentation


class Section(NamedTuple):
    """A part of the site with an entry at the top of every page.

    title: the text of the entry.  page: the page of the section, without suffix.  groups: pairs of a title (can be missing) and paths from
    the root of the repository."""
    title: str
    page: str
    groups: list


def order(path):
    """Returns a key that sorts README.md before all pages of its folder."""
    return os.path.dirname(path), os.path.basename(path) != "README.md", path


def pages_of(root, name):
    """Returns the paths that match an entry of the file, from the root of the repository."""
    path = os.path.normpath(os.path.join("docs", name))
    return sorted(glob.glob(path, root_dir=root), key=order) if "*" in path else [path]


def sections(root):
    """Returns the sections, in the order of the file."""
    with open(os.path.join(root, FILE), "rb") as f:
        listed = tomllib.load(f)["section"]
    return [Section(s["title"], s["page"], [(g.get("title"), [p for name in g["pages"] for p in pages_of(root, name)]) for g in s["groups"]])
            for s in listed]


def problems(root):
    """Returns reports, as "path:line: problem", on pages of docs/ that the file does not list or lists twice, and on listed pages that do not exist."""
    named = [page for s in sections(root) for _, pages in s.groups for page in pages]
    written = {p for p in glob.glob("docs/**/*.md", root_dir=root, recursive=True) if not p.startswith(SITE)}
    lines = open(os.path.join(root, FILE), encoding="utf-8").read().split("\n")

    def line(page):
        name = re.escape(os.path.relpath(page, "docs"))
        return next((k for k, text in enumerate(lines, 1) if re.search(f'"{name}"', text)), 1)
    reports = [f"{page}:1: the page is not in {FILE}: add it to a group" for page in sorted(written - set(named))]
    reports += [f"{FILE}:{line(page)}: there is no page {page}" for page in sorted(set(named)) if not os.path.exists(os.path.join(root, page))]
    return reports + [f"{FILE}:{line(page)}: {page} is named twice" for page in sorted(set(named)) if named.count(page) > 1]
