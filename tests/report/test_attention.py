#!/usr/bin/env python3
"""Check the panel of attention maps of `kvfate report` in headless Chromium: pixels of the map, rows and columns of
tokens in the lists and in the shade of the text.  Expected values come from the table of kvfate attention.

usage: test_attention.py KVFATE MAKE_REPORT_TRACE GEN_TINY [SHOT.png]

Skips (77) without Chromium.
"""
import math
import subprocess
import sys

from page import in_browser
from test_report import quiet, ready, settle, table

LIST = "[...document.querySelectorAll('#panel-attention .attends > div')].map(d => [...d.querySelectorAll('li')].map(e => e.textContent))"
SHADES = "[...document.querySelectorAll('#text .w')].map(e => [Number(e.dataset.i), Number((e.className.match(/\\bk(\\d+)/) || [0, -1])[1])])"


def recorded(s):
    model, ids, trace = s.path("m.gguf"), s.path("ids"), s.path("raw.kvf")
    subprocess.run([sys.executable, sys.argv[3], "--heads", "4", "--kv-heads", "2", "--seed", "2", "-o", model], check=True)
    with open(ids, "w") as f:
        f.write(" ".join(str(3 + 37 * i % 251) for i in range(40)))
    done = s.run("run", "-m", model, "--ids", ids, "-n", "20", "--ignore-eos", "--method", "h2o:chunk=8", "-B", "16", "--probes", "paper,raw:0.1,1.2", "-q", "-o", trace)
    s.check("run", done.returncode == 0, done.stderr)
    return trace


def place(v, T):
    floor = max(-8, math.floor(-math.log10(10 * T)))
    return min(1, max(0, 1 - math.log10(v) / floor)) if v > 0 else 0


def hover(b, i, t, T):
    x, y, w, h = b.run("(() => { const c = document.querySelector('canvas.attention'); c.scrollIntoView({block: 'center'}); const r = c.getBoundingClientRect(); return [r.left, r.top, r.width, r.height] })()")
    settle(b)
    b.mouse("mouseMoved", x + (i + 0.5) / T * w, y + (t + 0.5) / T * h)
    settle(b)


def choose(b, label, value):
    b.run(f"(() => {{ const s = document.querySelector(\"#panel-attention select[aria-label='{label}']\"); s.value = '{value}'; s.dispatchEvent(new Event('change')); }})()")
    settle(b)


def most(pairs):
    return [f"{i} " for i, v in sorted(pairs, key=lambda p: -p[1])[:6]]


def look(s, b):
    trace = recorded(s)
    page = s.report("raw.html", trace)
    weight, cached = {}, {}
    t = table(s, "attention", trace)
    for head, query, token, v, c in zip(t["head"], t["query"], t["token"], t["attention"], t["cached"]):
        weight[head, query, token], cached[head, query, token] = v, c
    T = max(t["query"]) + 1
    ready(b, page)
    b.until("document.querySelector('canvas.attention') !== null")
    quiet(s, b, "page")
    for head in ("L0H1", "L1H2"):
        choose(b, "Head", head)
        b.until(f"document.querySelector('canvas.attention').getAttribute('aria-label').includes('{head}')")
        # red of the middle of a cell, and its opacity: two greys are the hatching
        pixels = b.run(f"(() => {{ const c = document.querySelector('canvas.attention'), x = c.getContext('2d'), s = c.width / {T}, d = x.getImageData(0, 0, c.width, c.height).data; "
                       f"return Array.from({{length: {T * T}}}, (_, k) => {{ const at = 4 * (Math.floor((Math.floor(k / {T}) + .5) * s) * c.width + Math.floor((k % {T} + .5) * s)); return [d[at], d[at + 3]] }}) }})()")
        shades, wrong = [], []
        for k, (red, opacity) in enumerate(pixels):
            query, token = divmod(k, T)
            v = weight.get((head, query, token))
            if v is None:
                wrong += [(query, token, opacity)] if opacity else []
            elif cached[head, query, token] == 0:
                wrong += [(query, token, red)] if red not in (0x9e, 0xf8) or opacity != 255 else []
            else:
                shades.append((round(255 * place(v, T)), red))
        s.check(f"{head}: hatched and later cells", not wrong and len(shades) < len(t["query"]) / 2, wrong[:5])
        shades.sort()
        s.check(f"{head}: larger weights are darker", all(a[1] >= b[1] for a, b in zip(shades, shades[1:])) and shades[0][1] > 200 > 40 > shades[-1][1], shades[:3], shades[-3:])
        for i in (5, 20, T - 1):
            hover(b, i, T - 1, T)
            row = [(k, weight[head, i, k]) for k in range(i + 1) if weight[head, i, k] > 0]
            column = [(k, weight[head, k, i]) for k in range(i, T) if weight[head, k, i] > 0]
            got = b.run(LIST)
            s.check(f"{head}: lists of token {i}", len(got) == 2 and all(len(a) == len(w) and all(w in x for x, w in zip(a, w)) for a, w in zip(got, (most(row), most(column)))),
                    got, most(row), most(column))
        for shade, expected in (("row", lambda i, k: weight.get((head, i, k), 0)), ("column", lambda i, k: weight.get((head, k, i), 0))):
            choose(b, "Shade the text by", shade)
            hover(b, 20, T - 1, T)
            shades = dict(b.run(SHADES))
            want = {k: round(10 * place(v, T)) if (v := expected(20, k)) > 0 else -1 for k in shades}
            s.check(f"{head}: text by {shade}", len(shades) > 20 and all(abs(shades[k] - want[k]) <= 1 for k in shades), shades, want)
        choose(b, "Shade the text by", "off")
    if len(sys.argv) > 4:
        hover(b, 20, T - 1, T)
        b.screenshot(sys.argv[4])
    quiet(s, b, "after pointing")
    done = s.run("run", "-m", s.path("m.gguf"), "-p", "ab", "-n", "4", "--probes", "lean", "-q", "-o", s.path("plain.kvf"))
    ready(b, s.report("plain.html", s.path("plain.kvf")))
    s.check("no blocks", done.returncode == 0 and "raw:1.0" in b.run("document.querySelector('#panel-attention .body').textContent"))


if __name__ == "__main__":
    sys.exit(in_browser(look))
