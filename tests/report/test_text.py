#!/usr/bin/env python3
"""Check the text of `kvfate report` in headless Chromium: joining letters, right-to-left lines, characters of several
tokens, marks and direction controls.  Places are those of the browser's own boxes, widths those of the same text in
one piece.

usage: test_text.py KVFATE MAKE_REPORT_TRACE [--shots FOLDER]

Skips (77) without Chromium.
"""
import os
import sys

from page import in_browser
from test_report import quiet, ready, settle

PEOPLE = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
LINES = {
    "arabic": ["\u0645\u0631", "\u062d\u0628\u0627", " \u0628\u0627\u0644", "\u0639\u0627\u0644\u0645"],
    "hebrew": ["\u05e9\u05dc", "\u05d5\u05dd", " \u05e2\u05d5\u05dc\u05dd"],
    "rtl-mixed": ["\u05e9\u05dc\u05d5\u05dd", " KV", " cache", " 12", " \u05e2\u05d5\u05dc\u05dd"],
    "ltr-mixed": ["say ", "\u05e9\u05dc\u05d5\u05dd", " \u05e2\u05d5\u05dc\u05dd", " then", " 12"],
    "devanagari": ["\u0928\u092e", "\u0938\u094d", "\u0924\u0947", " \u0915", "\u093f\u0924\u093e\u092c"],
    "cjk": ["\u4f60", "\u597d", "\u3002"],
    "latin": ["of", "fi", "ce"],
    "split-han": ["x", b"\xe4\xbd", b"\xa0", "y"],
    "split-arabic": [b"\xd9", b"\x85", b"\xd8", b"\xb1", "\u062d\u0628\u0627"],
    "people": ["a", "\U0001f468", "\u200d", "\U0001f469", b"\xe2\x80", b"\x8d", "\U0001f467", "b"],
    "one-people": ["a", PEOPLE, "b"],
    "flag": ["\U0001f1e9", "\U0001f1ea"],
    "skin": ["\U0001f44b", "\U0001f3fd", " x"],
    "accent": ["caf", "e", "\u0301", " x"],
    "persian": ["\u0645\u06cc", "\u200c", "\u062e\u0648\u0627\u0647\u0645"],
    "bad-first": [b"\xd7", " ", "\u05e9\u05dc\u05d5\u05dd", b"\xff\xfe", " 34"],
    "overrides": ["a\u202e", "bc", "\u2067", "de", "\u200f", "\u2069 f", " ", "\u200d", "\ufe0f", "\U000e0041"],
    "empty": ["", "\t", "z"],
}


def flat():
    """Return all tokens, and the start of each line."""
    texts, at = [], {}
    for name, words in LINES.items():
        at[name] = len(texts)
        texts += [w if isinstance(w, bytes) else w.encode() for w in words] + [b"\n"]
    return texts, at


def boxes(b, first, n):
    """Return the left and right end of the element of each token."""
    return b.run(f"Array.from({{length: {n}}}, (_, k) => {{ const r = document.querySelector(`[data-i='${{{first} + k}}']`)?.getBoundingClientRect(); "
                 "return r ? [r.left, r.right] : null; })")


def js(text):
    return "'" + "".join(f"\\u{{{ord(c):x}}}" for c in text) + "'"


def whole_width(b, first, text):
    """Return the width of a text in one piece, in a line like that of token `first`."""
    return b.run(f"""(() => {{ const line = document.querySelector("[data-i='{first}']").parentNode.cloneNode(false), span = document.createElement('span');
        span.className = 'w'; span.textContent = {js(text)}; line.append(span); document.querySelector('.piece').append(line);
        const w = span.getBoundingClientRect().width; line.remove(); return w; }})()""")


def direction(b, i):
    return b.run(f"getComputedStyle(document.querySelector(\"[data-i='{i}']\").closest('.line')).direction")


def order(s, b, at):
    """Check that first tokens are to the right of later ones in right-to-left lines."""
    for name, want in (("arabic", "rtl"), ("hebrew", "rtl"), ("rtl-mixed", "rtl"), ("ltr-mixed", "ltr"), ("cjk", "ltr"), ("devanagari", "ltr"), ("bad-first", "rtl"),
                       ("split-arabic", "rtl"), ("overrides", "ltr"), ("persian", "rtl")):
        s.check(f"{name}: direction of the line", direction(b, at[name]) == want, direction(b, at[name]))
    panel = b.run("(() => { const p = document.querySelector('.piece').getBoundingClientRect(); return [p.left, p.right] })()")
    for name in ("arabic", "hebrew"):
        box = boxes(b, at[name], len(LINES[name]))
        s.check(f"{name}: begins at the right", abs(box[0][1] - panel[1]) < 1.5, box, panel)
        s.check(f"{name}: goes on to the left", all(abs(q[1] - p[0]) < 0.1 for p, q in zip(box, box[1:])), box)
    word, kv, cache, number, last = (places(b, at["rtl-mixed"] + k, w.strip())[0] for k, w in enumerate(LINES["rtl-mixed"]))
    s.check("Latin words in a line from right to left keep their own order", last < kv < cache < number < word, word, kv, cache, number, last)
    say, first, second, then, number = boxes(b, at["ltr-mixed"], 5)
    s.check("Hebrew words in a line from left to right run leftwards", say[0] < second[0] < first[0] < then[0] < number[0] and abs(second[1] - first[0]) < 0.1,
            say, first, second, then, number)
    s.check("a line from left to right begins at the left", abs(say[0] - panel[0]) < 1.5, say, panel)


def shapes(s, b, at):
    """Check that tokens are together as wide as their text in one piece, which separate tokens would not be."""
    for name, text in (("arabic", "".join(LINES["arabic"])), ("devanagari", "".join(LINES["devanagari"])), ("persian", "".join(LINES["persian"])),
                       ("split-arabic", "\u0645\u0631\u062d\u0628\u0627"), ("hebrew", "".join(LINES["hebrew"])), ("skin", "".join(LINES["skin"])), ("accent", "cafe\u0301 x"),
                       ("people", "a" + PEOPLE + "b"), ("one-people", "a" + PEOPLE + "b"), ("flag", "".join(LINES["flag"]))):
        box = [x for x in boxes(b, at[name], len(LINES[name])) if x]
        got, want = max(x[1] for x in box) - min(x[0] for x in box), whole_width(b, at[name], text)
        s.check(f"{name}: as wide as in one piece", abs(got - want) < 1, got, want)
    joined = whole_width(b, at["split-arabic"], "\u0645\u0631\u062d\u0628\u0627")
    split = sum(whole_width(b, at["split-arabic"], w) for w in "\u0645\u0631\u062d\u0628\u0627")
    s.check("these letters have other widths alone", abs(split - joined) > 3, split, joined)
    of, fi, ce = boxes(b, at["latin"], 3)
    s.check("no ligature takes a letter from its token", all(y - x > 4 for x, y in (of, fi, ce)), of, fi, ce)


def shared(s, b, at):
    """Check a character of several tokens: one element, whose width they divide."""
    first = at["split-han"] + 1
    s.check("bytes of a character are in one element", b.run(f"document.querySelector(\"[data-i='{first}']\").dataset.n") == "2"
            and not b.run(f"document.querySelector(\"[data-i='{first + 1}']\")"))
    for name, i, shares in (("split-han", first, (0.25, 0.75)), ("split-arabic", at["split-arabic"], (0.75, 0.25))):
        box = b.run(f"(() => {{ const r = document.querySelector(\"[data-i='{i}']\").getBoundingClientRect(); return [r.left, r.top, r.width, r.height] }})()")
        for k, share in enumerate(shares):
            b.mouse("mouseMoved", box[0] + share * box[2], box[1] + box[3] / 2)
            note = b.run("document.getElementById('text-note').textContent")
            s.check(f"{name}: token {k} of the character is under its part", note.startswith(f"token {i + k} "), note)
            bar = b.run("(() => { const d = document.querySelector('.down'), f = document.querySelector('.frame').getBoundingClientRect(); return [d.offsetLeft, f.width] })()")
            s.check(f"{name}: and lights its own column", abs(bar[0] - (i + k) / len(flat()[0]) * bar[1]) <= 1.5, bar)
    note = b.run("document.getElementById('text-note').textContent")
    s.check("its bytes are said, and the character", "\\x85" in note and "\u0645" in note, note)
    b.click(box[0] + 0.25 * box[2], box[1] + box[3] / 2)
    column = b.run("document.querySelector('.pinned').offsetLeft")
    s.check("a click pins the one that was meant", abs(column - (at["split-arabic"] + 1) / len(flat()[0]) * bar[1]) <= 1.5, column)
    b.key("Escape")
    for name in ("people", "flag", "skin", "accent"):
        n = b.run(f"[...document.querySelectorAll('.many')].filter(w => {at[name]} <= w.dataset.i && w.dataset.i < {at[name] + len(LINES[name])}).map(w => w.dataset.n)")
        s.check(f"{name}: tokens of one character share an element", n == {"people": ["6"], "flag": ["2"], "skin": ["2"], "accent": ["2"]}[name], n)


def places(b, i, text):
    """Return the left ends of the characters of a text within the element of a token."""
    return b.run(f"""(() => {{ const walk = document.createTreeWalker(document.querySelector("[data-i='{i}']"), NodeFilter.SHOW_TEXT);
        for (let n = walk.nextNode(); n; n = walk.nextNode()) {{ const at = n.data.indexOf({js(text)}); if (at < 0) continue;
          return Array.from({{length: {len(text)}}}, (_, k) => {{ const r = document.createRange(); r.setStart(n, at + k); r.setEnd(n, at + k + 1); return r.getBoundingClientRect().left; }}); }}
        return []; }})()""")


def marks(s, b, at):
    """Check that marks read from left to right everywhere; the page has no direction controls."""
    for i, mark in ((at["bad-first"], "\\xD7"), (at["bad-first"] + 3, "\\xFF\\xFE")):
        x = places(b, i, mark)
        s.check(f"{mark} reads from left to right", len(x) == len(mark) and x == sorted(x), x)
    box = boxes(b, at["bad-first"], 5)
    s.check("marks take their place in the line", box[0][0] > box[2][0] > box[3][0] > box[4][0], box)
    words = b.run("Object.fromEntries([...document.querySelectorAll('.w')].map(w => [w.dataset.i, w.textContent]))")
    i = at["overrides"]
    for k, mark in ((0, "U+202E"), (2, "U+2067"), (4, "U+200F"), (5, "U+2069"), (7, "U+200D"), (8, "U+FE0F"), (9, "U+E0041")):
        s.check(f"{mark} is shown", mark in words.get(str(i + k), ""), words.get(str(i + k)))
    left = [places(b, i + k, w)[0] for k, w in enumerate(("a", "bc", "\u27e8", "de", "\u27e8", "f"))]
    s.check("controls of direction turn nothing", left == sorted(left), left)
    s.check("no control of direction is in the page", not b.run("/[\\u202a-\\u202e\\u200e\\u200f]/.test(document.body.innerText)"))
    s.check("tokens without text are shown", words[str(at["empty"])] == "\u2205" and words[str(at["empty"] + 1)] == "\u2192", words[str(at["empty"])])
    every = b.run("[...document.querySelectorAll('.w')].filter(w => w.getBoundingClientRect().width < 1).map(w => [w.dataset.i, w.textContent])")
    s.check("every element can be pointed at", not every, every)
    n = b.run("[...document.querySelectorAll('.w')].reduce((a, w) => a + Number(w.dataset.n || 1), 0)")
    s.check("every token is in one element", n == len(flat()[0]), n)


def notes(s, b, at):
    """Check that the tooltip of a token keeps its order although the token runs from right to left."""
    i = at["rtl-mixed"]
    x = b.run(f"(() => {{ const r = document.querySelector(\"[data-i='{i}']\").getBoundingClientRect(); return [r.left + 3, r.top + 5] }})()")
    b.mouse("mouseMoved", *x)
    left = b.run("""(() => { const n = document.getElementById('text-note').firstChild, at = (w) => { const r = document.createRange(), k = n.data.indexOf(w);
        r.setStart(n, k); r.setEnd(n, k + w.length); return r.getBoundingClientRect().left; }; return [at('token'), at('\\u05e9\\u05dc\\u05d5\\u05dd'), at('id ')] })()""")
    s.check("number, token and what follows stand from left to right", left == sorted(left), left)


def names(s, b):
    """Check that file names with direction controls do not affect the page."""
    traces = [s.trace("\u202eevil.kvf", 6, 2, 1, 2, "egu"), s.trace("\u05e9\u05dc.kvf", 6, 2, 1, 2, "eu")]
    for more in (["--max-size", "0.1"], []):
        ready(b, s.report("names.html", *traces, *more))
        if not more:
            b.key("d")
            b.until("document.querySelectorAll('.pane').length === 3")
            settle(b)
        title = b.run("document.getElementById('title').textContent")
        s.check("a name is marked", title.replace("\u2066", "").replace("\u2069", "") == "\u2068\u27e8U+202E\u27e9evil.kvf", ascii(title))
        raw = b.run("[...document.body.querySelectorAll('*')].filter(e => e.tagName !== 'SCRIPT' && [...e.childNodes].some(n => n.nodeType === 3 "
                    "&& /[\u202a-\u202e]/.test(n.data))).map(e => e.outerHTML.slice(0, 200))")
        s.check("no name is left as it is", not raw, ascii(raw))
    title = b.run("document.querySelector('.pane[data-role=other] .pane-title').textContent")
    s.check("maps side by side say their method", "made-up, budget 64" in title, ascii(title))


def long_line(s, b):
    """Check that a paragraph over several pieces keeps its direction, and is cut between words."""
    words = ["\u05e9\u05dc\u05d5\u05dd"] + [f" {w}" for w in ("KV", "cache", "12", "of") for _ in range(300)] + ["s"] * 5
    trace = s.trace("long.kvf", len(words), 2, 1, 2, "e", texts=[w.encode() for w in words])
    ready(b, s.report("long.html", trace))
    b.run("document.querySelectorAll('.piece').forEach(p => p.scrollIntoView())")
    b.run("document.getElementById('text').scrollTop = 1e6")
    b.until("document.querySelectorAll('.text .line').length >= 3")
    lines = b.run("[...document.querySelectorAll('.text .line')].map(l => [l.dir, l.textContent.slice(0, 2)])")
    s.check("the direction of a paragraph stays", {d for d, _ in lines} == {"rtl"} and len(lines) >= 3, lines)
    s.check("pieces begin with words", all(t.startswith(" ") for _, t in lines[1:]), lines)


def look(s, b):
    texts, at = flat()
    trace = s.trace("scripts.kvf", len(texts), 3, 2, 4, "egu", texts=texts)
    ready(b, s.report("scripts.html", trace))
    if len(sys.argv) > 4:
        b.screenshot(os.path.join(sys.argv[4], "scripts.png"))
    settle(b)
    for step in (order, shapes, shared, marks, notes):
        step(s, b, at)
    quiet(s, b, "scripts")
    names(s, b)
    long_line(s, b)


if __name__ == "__main__":
    sys.exit(in_browser(look))
