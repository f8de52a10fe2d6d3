#!/usr/bin/env python3
"""Make the pictures of the page in the documentation: report.png, and report-tour.webp, which shows a reader at work.

usage: tour.py PAGE.html WORDS OUT_FOLDER

WORDS: words to find in the text, for example the hidden number.  It needs Chromium.
"""
import base64
import json
import os
import struct
import sys

import browser

SIZE, RATIO = (1280, 800), 1.5
CAPTION = """(() => { let c = document.getElementById('caption'); if (!c) { c = document.createElement('div'); c.id = 'caption'; document.body.append(c);
    Object.assign(c.style, {position: 'fixed', left: '0', right: '0', bottom: '0', padding: '10px 0', textAlign: 'center', font: '600 20px system-ui, sans-serif',
    background: '#1b1d20', color: '#ffffff', zIndex: 99}); } c.textContent = %s; })()"""


def settle(b):
    b.run("new Promise((done) => setTimeout(done, 700))")


def middle(b, selector):
    return b.run(f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2] }})()")


def find(b, words):
    b.key("/")
    b.call("Input.insertText", text=words)
    b.key("Enter")


def hover(b, selector):
    b.mouse("mouseMoved", *middle(b, selector))


def click(b, selector):
    b.click(*middle(b, selector))


def show_text(b):
    b.run("document.activeElement.blur()")
    b.key("d")


def steps(words):
    """Return (caption, action, hundredths of a second) of each step."""
    return [("Four cache methods, one prompt: what was evicted, and what it cost", lambda b: None, 300),
            (f"Find the hidden number: / {words} Enter", lambda b: find(b, words), 250),
            ("What became of it: every layer and head, kept, evicted, missed later", lambda b: None, 300),
            ("Point at a head: when it left, and why", lambda b: hover(b, ".fate-of .fates rect.gone:nth-of-type(62)"), 250),
            ("Click: its map, every query down, every token across", lambda b: click(b, ".fate-of .fates rect.gone:nth-of-type(62)"), 250),
            ("d: beside another method, with the difference", show_text, 300),
            ("Save: the exact command, the figure, the table", lambda b: click(b, "details[data-view=Map] summary"), 300)]


def chunk(name, data):
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def picture(data):
    """Return the chunks of a single-picture WebP that a frame may have."""
    out, at = b"", 12
    while at + 8 <= len(data):
        size = struct.unpack("<I", data[at + 4:at + 8])[0]
        if data[at:at + 4] in (b"VP8 ", b"VP8L", b"ALPH"):
            out += chunk(data[at:at + 4], data[at + 8:at + 8 + size])
        at += 8 + size + size % 2
    return out


def animation(frames):
    """Return an animated WebP of pictures of one size: [(WebP of one picture, hundredths of a second)]."""
    def size(w, h):
        return (w - 1).to_bytes(3, "little") + (h - 1).to_bytes(3, "little")

    w, h = (int(n * RATIO) for n in SIZE)
    body = chunk(b"VP8X", bytes([2, 0, 0, 0]) + size(w, h)) + chunk(b"ANIM", b"\xff" * 4 + b"\0\0")
    for data, hundredths in frames:
        body += chunk(b"ANMF", b"\0" * 6 + size(w, h) + (10 * hundredths).to_bytes(3, "little") + b"\2" + picture(data))
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def load(b, page):
    b.open("about:blank")
    b.call("Page.navigate", url="file://" + os.path.abspath(page))
    b.until("performance.getEntriesByName('kvfate-grid').length > 0 && performance.getEntriesByName('kvfate-panels').length > 0")


def still(b, page, words, path):
    """Show the page down to the fate of the token under the first method, in letters that a column of text can show."""
    width = 1040
    b.size(width, 560, 1.06)
    load(b, page)
    find(b, words)
    settle(b)
    b.run("document.activeElement.blur()")
    b.run("window.scrollTo(0, 0)")
    end = b.run("document.querySelector('.fate-of').getBoundingClientRect().bottom")
    clip = {"x": 0, "y": 0, "width": width, "height": end + 4, "scale": 1}
    data = b.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
    with open(path, "wb") as f:
        f.write(base64.b64decode(data))


def tour(b, page, words):
    b.size(*SIZE, RATIO)
    load(b, page)
    frames = []
    for caption, act, hundredths in steps(words):
        act(b)
        b.run(CAPTION % json.dumps(caption))
        settle(b)
        data = b.call("Page.captureScreenshot", format="webp", quality=80)["data"]
        frames.append((base64.b64decode(data), hundredths))
    return animation(frames)


def main():
    page, words, out = sys.argv[1:4]
    b = browser.Browser(browser.find())
    try:
        b.scheme("light")
        still(b, page, words, os.path.join(out, "report.png"))
        with open(os.path.join(out, "report-tour.webp"), "wb") as f:
            f.write(tour(b, page, words))
    finally:
        b.close()


if __name__ == "__main__":
    main()
