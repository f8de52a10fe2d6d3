#!/usr/bin/env python3
"""Check the file that `kvfate report` writes, without a browser: its size, form and policy, its bytes, its embedded
numbers against the tables that kvfate prints, and its errors.

usage: test_file.py KVFATE MAKE_REPORT_TRACE
"""
import base64
import hashlib
import html.parser
import json
import os
import random
import re
import sys
from pathlib import Path

from page import HOSTILE, Case, Page

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Form(html.parser.HTMLParser):
    """Checks that each element ends at its place, and records everything that would be loaded or run."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.wrong, self.scripts, self.styles, self.loads, self.policy = [], [], [], [], [], ""

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.loads += [(tag, k, v) for k, v in attrs if k in ("src", "data", "action", "srcset") or (k == "href" and not v.startswith("#"))]
        self.wrong += [f"{tag} {k}" for k in a if k.startswith("on") or k == "style"]
        if a.get("http-equiv") == "Content-Security-Policy":
            self.policy = a["content"]
        if tag == "script":
            self.scripts.append([a.get("type"), ""])
        if tag == "style":
            self.styles.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data
        elif self.open and self.open[-1] == "style":
            self.styles[-1] += data


def digest(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def check_form(s, name, path):
    with open(path, encoding="utf-8", newline="") as f:
        text = f.read()
    form = Form()
    form.feed(text)
    form.close()
    code = [t for kind, t in form.scripts if kind is None]
    s.check(f"{name}: elements end where they should", not form.wrong and not form.open, form.wrong, form.open)
    s.check(f"{name}: one script and one style", len(code) == 1 and len(form.styles) == 1, len(code), len(form.styles))
    s.check(f"{name}: loads nothing", not form.loads, form.loads)
    parts = dict(p.strip().split(" ", 1) for p in form.policy.split(";"))
    s.check(f"{name}: policy", parts.get("default-src") == "'none'" and parts.get("script-src") == digest(code[0])
            and parts.get("style-src") == digest(form.styles[0]) and "unsafe" not in form.policy, form.policy)
    s.check(f"{name}: no address but the name of SVG", set(re.findall(r"https?://[^\"'\s]*", code[0])) == {"http://www.w3.org/2000/svg"})
    s.check(f"{name}: no code from text", not re.search(r"innerHTML|outerHTML|\beval\b|insertAdjacent|document\.write|new Function", code[0]))


def equal(a, b):
    return a == b or (b is None and a != a) or (isinstance(a, float) and a != a and b is None)


def check_tables(s, name, path, trace, picked=None):
    """Compare every embedded column with the JSON of its command."""
    page = Page(path)
    for t in page.manifest["tables"]:
        if "absent" in t or (picked and t["key"] not in picked):
            continue
        argv = t["command"].split()[1:]
        done = s.run(argv[0], trace, *argv[2:], "--json")
        want = json.loads(done.stdout)
        s.check(f"{name} {t['key']}: metadata", [v for _, v in t["meta"]] == list(want["meta"].values()), t["meta"], want["meta"])
        for c in want["columns"]:
            got, data = page.column(t, c["name"]), want["data"][c["name"]]
            if got is None:
                s.check(f"{name} {t['key']}.{c['name']} may be left out", c["name"] in ("beta", "mean_retention", "score", "margin", "last_use_age"))
                continue
            bad = next((r for r in range(len(data)) if not equal(got[r], data[r])), None)
            s.check(f"{name} {t['key']}.{c['name']} equals the table", len(got) == len(data) and bad is None,
                    len(got), len(data), bad is not None and (bad, got[bad], data[bad]))


def large(s):
    T = 8192
    trace = s.trace("large.kvf", T, 30, 3, 9, "egu")
    done = s.run("report", trace, "-o", s.path("large.html"))
    size = os.path.getsize(s.path("large.html"))
    s.check("8k tokens: under 10 MB", done.returncode == 0 and size < 10_000_000, size, done.stderr)
    said = done.stderr.decode()
    page = Page(s.path("large.html"))
    dropped = [f"{t['key']}.{c['name']}" for t in page.manifest["tables"] for c in t.get("columns", []) if c.get("dropped")]
    s.check("8k tokens: what is left out is said", all(d in said for d in dropped) and bool(dropped) == ("left out" in said), said, dropped)
    s.check("8k tokens: the maps of evictions and gates are there", not {"eviction.evict_step", "retention.log_beta"} & set(dropped), dropped)
    print(f"{T} tokens of 30 layers: {size / 1e6:.2f} MB, left out: {', '.join(dropped) or 'nothing'}")
    check_form(s, "8k tokens", s.path("large.html"))
    check_tables(s, "8k tokens", s.path("large.html"), trace, {"tokens", "survival", "sparsity-beta"})
    t = page.table("eviction")
    got, r = page.column(t, "evict_step"), random.Random(2)
    rows = s.run("eviction", trace, "--head", "L17K2", "-o", "-").stdout.decode().splitlines()
    rows = [line.split("\t") for line in rows if line.startswith("L17K2")]
    at = (17 * 3 + 2) * T
    s.check("8k tokens: steps of a head in chunks", len(rows) == T and all(int(rows[i][5]) == got[at + i] for i in r.sample(range(T), 500)))


def small(s):
    a = s.trace("a.kvf", 200, 3, 2, 4, "egu", texts=HOSTILE)
    page = s.report("a.html", a)
    check_form(s, "hostile texts", page)
    check_tables(s, "hostile texts", page, a)
    first = Path(page).read_bytes()
    s.check("equal traces give equal bytes", Path(s.report("again.html", a)).read_bytes() == first)
    s.check("nothing else is written", sorted(n for n in os.listdir(s.work.name) if n.startswith("a.h")) == ["a.html"])
    s.check("no part of a text is markup", b"<script>window" not in first and first.count(b"</script>") == first.count(b"<script") and b"<img" not in first)
    b = s.trace("b.kvf", 150, 3, 2, 4, "x", seed=2)
    both = s.report("both.html", a, b)
    check_form(s, "two traces", both)
    names = Page(both).manifest["traces"]
    s.check("names without folders", names == ["a.kvf", "b.kvf"] and s.work.name.encode() not in open(both, "rb").read(), names)
    absent = {t["key"]: t["absent"] for t in Page(both).manifest["tables"] if t["trace"] == 1 and "absent" in t}
    s.check("what is missing is said", "retention" in absent and "survival" in absent["last-use"] and "--probes" in absent["last-use"], absent)
    for T, kinds in ((0, "egu"), (1, "egu"), (5, "x"), (3, "")):
        t = s.trace("edge.kvf", T, 2, 1, 2, kinds)
        page = s.report("edge.html", t)
        check_form(s, f"T = {T}, {kinds}", page)
        check_tables(s, f"T = {T}, {kinds}", page, t)
    head = Page(s.report("head.html", a, "--head", "L1K1")).manifest["tables"]
    heads = {t["key"]: next(c for c in t["columns"] if c["name"] == "head") for t in head if t["key"] in ("eviction", "last-use")}
    s.check("--head: the KV head and those that read it", "L1K1" in json.dumps(heads["eviction"]) and heads["last-use"]["strings"] == ["L1H2", "L1H3"], heads)


def refused(s):
    a = s.path("a.kvf")
    Path(s.path("junk.kvf")).write_bytes(b"junk" * 100)
    for name, argv, code, words in (
            ("no -o", [a], 2, "-o"), ("another extension", [a, "-o", s.path("x.pdf")], 2, ".html"), ("no trace", ["-o", s.path("x.html")], 2, "missing"),
            ("not a trace", [s.path("junk.kvf"), "-o", s.path("x.html")], 1, "junk.kvf"), ("no such file", [s.path("none.kvf"), "-o", s.path("x.html")], 1, "none.kvf"),
            ("no such folder", [a, "-o", s.path("no/x.html")], 1, "x.html"), ("query heads", [a, "--head", "L1H2", "-o", s.path("x.html")], 2, "KV heads"),
            ("no such head", [a, "--head", "L7K0", "-o", s.path("x.html")], 2, "L7K0"), ("a size of nothing", [a, "--max-size", "0", "-o", s.path("x.html")], 2, "max-size"),
            ("too many", [a] * 9 + ["-o", s.path("x.html")], 2, "too many")):
        done = s.run("report", *argv)
        said = done.stderr.decode()
        s.check(f"refused: {name}", done.returncode == code and words in said and said.count("\n") == 1 and not os.path.exists(s.path("x.html")),
                done.returncode, said)
    done = s.run("report", a, "--max-size", "0.1", "-o", s.path("tiny.html"))
    s.check("too large for the limit: written and said", done.returncode == 0 and b"left out" in done.stderr and os.path.exists(s.path("tiny.html")), done.stderr)


def main():
    s = Case(*sys.argv[1:3])
    small(s)
    refused(s)
    large(s)
    return s.finish()


if __name__ == "__main__":
    sys.exit(main())
