"""Shared by the tests of the report: traces, pages, and an independent reader of the embedded columns."""
import base64
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import browser  # noqa: E402
import check  # noqa: E402

FORMATS = {"u1": "B", "u2": "H", "u4": "I", "i1": "b", "i2": "h", "i4": "i", "f4": "f", "f8": "d"}
NAN = float("nan")
# Texts that try to escape, to run, or to break the lines.
HOSTILE = [
    b"</script><script>window.__pwned=1</script>", b"<script>window.__pwned=2</script>", b"<img src=x onerror=window.__pwned=3>", b"<!--", b"-->",
    b"<![CDATA[", b"]]>", b"\"", b"'", b"`${window.__pwned=4}`", b"&lt;&amp;&#60;script&#62;", "\u2028\u2029".encode(), b"a\0b", b"\xff\xfe\x80", b"\xe4\xbd", b"\xa0",
    b"\xed\xa0\x80", "\u202eevil\u202c".encode(), "\u2066x\u2069\u200b\ufeff".encode(), b"javascript:window.__pwned=5", b"x" * 10000, "\u4f60\U0001f600".encode() * 400,
    b"\r\n", b"\t", b"\\", b"\\n", b"\\u003c", b"", b" ", b"</title></style></textarea>", b"{{data}}", b"${x}", b"__proto__", b"constructor", b"<svg onload=window.__pwned=6>",
    b"\x1b[31m", b"%s%n", "\u0301\u0301".encode(), b"=1+2", b"</SCRIPT >", b"<\x00script>"]


class Case:
    def __init__(self, kvfate, maker):
        self.kvfate, self.maker = os.path.abspath(kvfate), os.path.abspath(maker)
        self.work = tempfile.TemporaryDirectory(prefix="kvfate-report-")

    def path(self, name):
        return os.path.join(self.work.name, name)

    def check(self, name, ok, *details):
        check.check(name, ok, *("\n    " + str(d)[:1000] for d in details))

    def trace(self, name, T, L, H, G, kinds, seed=1, texts=None):
        more = []
        if texts is not None:
            with open(self.path(name + ".texts"), "wb") as f:
                f.write(b"".join(struct.pack("<I", len(t)) + t for t in texts))
            more = [self.path(name + ".texts")]
        subprocess.run([self.maker, self.path(name), *map(str, (T, L, H, G, seed)), kinds, *more], check=True)
        return self.path(name)

    def run(self, *argv):
        return subprocess.run([self.kvfate, *argv], capture_output=True, stdin=subprocess.DEVNULL, timeout=170)

    def report(self, out, *argv):
        done = self.run("report", *argv, "-o", self.path(out))
        empty = b"has no steps" in done.stderr
        self.check(f"report {out}", done.returncode == (3 if empty else 0), done.returncode, done.stderr)
        return self.path(out)

    def finish(self):
        self.work.cleanup()
        check.finish()


def in_browser(tasks):
    """Let tasks(case, browser) inspect pages; return the exit status of a test: 77 without Chromium."""
    path = browser.find()
    if not path:
        print("no Chromium here: the page is not tried in a browser")
        return 77
    s = Case(*sys.argv[1:3])
    b = browser.Browser(path)
    try:
        b.size(1400, 900)
        b.scheme("light")
        tasks(s, b)
    finally:
        b.close()
    return s.finish()


class Page:
    """The tables of a page, read from its bytes."""

    def __init__(self, path):
        with open(path, encoding="utf-8", newline="") as f:
            self.html = f.read()
        self.manifest = json.loads(re.search(r'<script type="application/json" id="manifest">(.*?)</script>', self.html, re.S).group(1))
        self.data = dict(re.findall(r'<script type="application/octet-stream;base64" id="(.*?)">(.*?)</script>', self.html, re.S))

    def table(self, key, trace=0):
        return next((t for t in self.manifest["tables"] if t["key"] == key and t["trace"] == trace), None)

    def chunks(self, spec):
        text, width = self.data[spec["id"]], int(spec["dtype"][1])
        ends = spec["at"][1:] + [len(text)]
        for a, b in zip(spec["at"], ends):
            planes = zlib.decompress(base64.b64decode(text[a:b], validate=True))
            n = len(planes) // width
            joined = bytes(planes[k * n + i] for i in range(n) for k in range(width))
            yield list(struct.unpack(f"<{n}{FORMATS[spec['dtype']]}", joined))

    def column(self, table, name):
        """Return all values, or None if they are not in the page."""
        spec = next(c for c in table["columns"] if c["name"] == name)
        n, block = table["rows"], table["block"]
        if spec.get("dropped") or "derived" in spec:
            return None
        if "constant" in spec:
            return [NAN if spec["constant"] is None else spec["constant"]] * n
        if "affine" in spec:
            return [spec["affine"][0] + spec["affine"][1] * (r % block) for r in range(n)]
        if "strings" in spec:
            return [spec["strings"][r // block if spec["by"] == "block" else r] for r in range(n)]
        if "quotient" in spec or "age" in spec:
            a, b = (self.column(table, x) for x in spec.get("quotient") or spec["age"])
            return [x / y if y else NAN for x, y in zip(a, b)] if "quotient" in spec else [x - y if x >= 0 else -1 for x, y in zip(a, b)]
        if n == 0:
            return []
        values = [v for chunk in self.chunks(spec) for v in chunk]
        values = [values[r // block if spec["by"] == "block" else r % block if spec["by"] == "cycle" else r] for r in range(n)]
        return [spec["dict"][v] for v in values] if "dict" in spec else values
