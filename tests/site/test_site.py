#!/usr/bin/env python3
"""Builds the documentation site and opens its pages in headless Chromium.

usage: test_site.py KVFATE [--site FOLDER] [--shots FOLDER]

Checks that all links and anchors of the site resolve, that no page has an error in its console, asks another host for a file or has text wider
than the window, that the search finds words, and that axe-core reports no violation.  Windows have 390 x 844 and 1440 x 900 pixels.  axe-core
examines each page in one window and colour scheme, in turn; with KVFATE_TESTS=long in both windows, light and dark.

--site tests a site that was built before.  --shots writes screenshots.  KVFATE_SITE_PYTHON names a Python with the packages of
docs/site/requirements.txt.  Skips without these packages, Chromium, or a model for the live report."""
import argparse
import functools
import glob
import html.parser
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, name) for name in ("tests", "tests/report", "python")]
import browser  # noqa: E402
from check import check, finish  # noqa: E402
from kvfate import models_get  # noqa: E402

PYTHON = os.environ.get("KVFATE_SITE_PYTHON") or sys.executable
PACKAGES = "import myst_parser, PIL, pydata_sphinx_theme, sphinx"
AXE = "import axe_playwright_python, os; print(os.path.join(os.path.dirname(axe_playwright_python.__file__), 'axe.min.js'))"
WINDOWS = {"phone": (390, 844), "desktop": (1440, 900)}
SCHEMES = ("light", "dark")
SECTIONS = ["Get started", "How-to", "Reference", "Studies", "Gallery"]
WORDS = ("hazard", "safetensors", "distillation")
LONG = os.environ.get("KVFATE_TESTS") == "long"
LIVE = "live/report.html"
VIEWER = "live/viewer.html"
DRAWN = "performance.getEntriesByName('kvfate-map').length > 0"  # in the live report


class Links(html.parser.HTMLParser):
    """The links, the files and the anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.files, self.anchors, self.count = [], [], set(), 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        self.anchors.update(a[key] for key in ("id", "name") if a.get(key))
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        elif tag == "link" and a.get("href"):
            self.files.append(a["href"])
        elif a.get("src"):
            self.files.append(a["src"])


def check_links(site, pages):
    """Checks the goals of all links of all pages, and that no page loads a file of another host."""
    read = {p: Links(open(os.path.join(site, p), encoding="utf-8").read()) for p in pages}
    count = 0
    for page, found in read.items():
        for target in found.links + found.files:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                check(f"{page}: {target} is a link, not a file to load", target in found.links or parts.scheme == "data")
                continue
            count += 1
            goal = os.path.normpath(os.path.join(os.path.dirname(page), urllib.parse.unquote(parts.path))) if parts.path else page
            if not os.path.isfile(os.path.join(site, goal)):
                check(f"{page}: the link {target} leads to a file", False)
            elif parts.fragment and goal in read:
                check(f"{page}: the link {target} leads to an anchor", urllib.parse.unquote(parts.fragment) in read[goal].anchors)
    check("the site has hundreds of links", count > 500, count)
    styles = "".join(open(p, encoding="utf-8").read() for p in glob.glob(os.path.join(site, "_static/**/*.css"), recursive=True))
    check("styles load no file of another host", not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", styles))
    return read


def check_sections(site, read):
    """Checks the entries at the top of the front page, and that the front page links to the live report."""
    text = open(os.path.join(site, "index.html"), encoding="utf-8").read()
    named = [re.sub(r"\s+", " ", t).strip() for t in re.findall(r'class="nav-link nav-internal"[^>]*>([^<]*)<', text)]
    check("the sections are at the top", named[:len(SECTIONS)] == SECTIONS, named)
    check("the front page links to the live report, and to the page that opens traces", {LIVE, VIEWER} <= set(read["index.html"].links))
    thumbnails = [f for f in read["gallery.html"].files if "_images/" in f]
    headings = len(re.findall(r"^##+ [^\n]*\n(?:(?!##)[^\n]*\n)*?!\[", open(os.path.join(ROOT, "docs/reference/gallery.md"), encoding="utf-8").read(), re.M))
    check("the gallery has a thumbnail for each heading with a picture", len(thumbnails) == headings > 20, len(thumbnails), headings)


def quiet(b, name, origin):
    check(f"{name}: no error", not b.errors and not [c for c in b.console if c[0] in ("error", "warning", "assert")], b.errors, b.console)
    check(f"{name}: asks no other host", all(u.startswith((origin, "data:", "blob:")) for u in b.requests), b.requests)


def violations(b, axe):
    """Returns the rules of axe-core that the page violates, with the first element of each."""
    b.run(f"(() => {{ {axe}; return 1; }})()")
    return b.run("(await axe.run(document, {preload: false, resultTypes: ['violations']})).violations"
                 ".map(v => v.id + ': ' + v.nodes[0].html.slice(0, 200))", limit=300)


def check_pages(b, site, pages, axe, shots):
    """Opens each page in both windows."""
    for k, page in enumerate(pages):
        for w, (name, size) in enumerate(WINDOWS.items()):
            for s, scheme in enumerate(SCHEMES if LONG else (SCHEMES[(k // 2) % 2],)):
                where = f"{page} ({name}, {scheme})"
                b.size(*size, touch=name == "phone")
                b.scheme(scheme)
                b.open(os.path.join(site, page))
                arrive(b, page)
                b.until("[...document.images].every(i => i.complete)")
                if page == LIVE:
                    b.until(DRAWN)
                wide = b.run("Math.max(...[...document.querySelectorAll('html, .bd-article-container')].map(e => e.scrollWidth - e.clientWidth))")
                check(f"{where}: fits the window", wide <= 0, wide)
                check(f"{where}: has a heading and pictures that load",
                      b.run("document.querySelectorAll('h1').length > 0 && [...document.images].every(i => i.naturalWidth > 0)"))
                if axe and (LONG or (k + w) % 2 == 0):
                    found = violations(b, axe)
                    check(f"{where}: no violation of axe-core", not found, found)
                quiet(b, where, "file://")
                if shots:
                    b.screenshot(os.path.join(shots, f"{page.replace('/', '_')}-{name}-{scheme}.png"))


def pages_with(word):
    """Returns the pages of docs/ that contain a word in their text, as they are named in the site."""
    found = set()
    for path in glob.glob("docs/*/**/*.md", root_dir=ROOT, recursive=True):
        text = open(os.path.join(ROOT, path), encoding="utf-8").read()
        if not path.startswith("docs/site/") and re.search(rf"(?<![\w-])(?<!\.){word}(?![\w-])", re.sub(r"\]\([^)]*\)", "]", text)):
            found.add(re.sub(r"README$", "index", path.removeprefix("docs/").removesuffix(".md")) + ".html")
    return found


def arrive(b, page):
    """Waits until a page that the browser is about to open is complete.  An evaluation during the change of pages fails and is repeated."""
    for _ in range(20):
        try:
            return b.until(f"location.pathname.endsWith({json.dumps(page)}) && document.readyState === 'complete'")
        except browser.Failed as e:
            if "navigated" not in str(e) and "context" not in str(e):
                raise
    raise browser.Failed(f"the page {page} never opened")


def results(b):
    """Returns the pages that a search found, after it ended."""
    b.until("/finished|did not match/.test(document.querySelector('#search-results')?.textContent)")
    links = b.run("[...document.querySelectorAll('#search-results li a')].map(a => a.href)")
    return {urllib.parse.urlsplit(u).path for u in links}


def check_search(b, origin):
    """Searches as a reader does: opens the search on the front page, types a word, presses Enter."""
    for word in (*WORDS, "zxqvwk"):
        for name, size in WINDOWS.items():
            where = f"search for {word} ({name}, {origin.split(':')[0]})"
            b.size(*size, touch=name == "phone")
            b.console, b.errors, b.requests = [], [], []
            b.call("Page.navigate", url=origin + "/index.html")
            arrive(b, "index.html")
            b.run("[...document.querySelectorAll('.search-button, .search-button__button')].find(e => e.checkVisibility()).click()")
            b.until("document.activeElement?.matches('input[type=search]')")
            b.call("Input.insertText", text=word)
            b.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
            arrive(b, "search.html")
            prefix = urllib.parse.urlsplit(origin).path
            found = {path.removeprefix(prefix + "/") for path in results(b)}
            expected = pages_with(word)
            check(f"{where}: finds the pages", expected <= found and bool(expected) == bool(found), sorted(expected - found), sorted(found))
            quiet(b, where, origin)


def serve(site):
    """Serves the site on this machine.  Returns the server."""
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def lacking(args):
    """Returns the sentence about the first thing that this machine lacks for the test, or an empty text."""
    if not browser.find():
        return "Chromium is not installed"
    if not args.site and subprocess.run([PYTHON, "-c", PACKAGES], capture_output=True).returncode:
        return f"{PYTHON} lacks the packages of docs/site/requirements.txt; KVFATE_SITE_PYTHON can name another Python"
    models = [os.path.join(models_get.cache(), name) for name in ("SmolLM2-135M-Instruct.Q4_1.gguf", "stories260K.gguf")]
    if not args.site and not any(map(os.path.exists, models)):
        return "no model for the live report is in the cache folder"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvfate")
    parser.add_argument("--site")
    parser.add_argument("--shots")
    args = parser.parse_args()
    missing = lacking(args)
    if missing:
        finish(missing)
    axe = subprocess.run([PYTHON, "-c", AXE], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="kvfate-site-") as work:
        site = os.path.abspath(args.site or os.path.join(work, "site"))
        if not args.site:
            done = subprocess.run([PYTHON, os.path.join(ROOT, "docs/site/build.py"), site, "--kvfate", args.kvfate], capture_output=True, text=True)
            if not check("build.py builds the site", done.returncode == 0 and not done.stderr, done.stdout, done.stderr):
                finish()
        pages = sorted(os.path.relpath(p, site) for p in glob.glob(os.path.join(site, "**/*.html"), recursive=True) if "/_static/" not in p)
        read = check_links(site, pages)
        check_sections(site, read)
        b = browser.Browser(browser.find())
        server = serve(site)
        try:
            check_pages(b, site, pages, axe and open(axe, encoding="utf-8").read(), args.shots)
            check_search(b, "file://" + site)
            check_search(b, "http://127.0.0.1:%d" % server.server_port)
        finally:
            b.close()
            server.shutdown()
    finish("" if axe else f"{PYTHON} lacks axe-playwright-python, so axe-core examined no page")


if __name__ == "__main__":
    main()
