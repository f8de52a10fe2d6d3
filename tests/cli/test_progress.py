#!/usr/bin/env python3
"""What takes longer than a moment tells on a terminal how far it is and how long it will still take, and nothing of it elsewhere."""
import os
import pty
import re
import subprocess

from harness import Gguf, Suite

s = Suite()
LINE = re.compile(rb"\r(\S+) +\[[#.]{24}\] (\d+)/(\d+)  \d+ ([a-zA-Z]+)/s")


def on_terminal(*argv):
    """What a terminal shows of the standard error, and the status."""
    ours, theirs = pty.openpty()
    p = subprocess.Popen([s.exe, *argv], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not more:
            break
        shown += more
    os.close(ours)
    return shown, p.wait()


def told(what, label, unit, *argv):
    """The line rises up to the whole, once or more; it tells the time left, and is gone at the end."""
    shown, status = on_terminal(*argv)
    lines = [(m[1], int(m[2]), int(m[3]), m[4]) for m in LINE.finditer(shown)]
    s.check(f"{what}: ends well", status == 0, status, shown[-400:])
    s.check(f"{what}: is told", len(lines) > 2 and {(a, d) for a, _, _, d in lines} == {(label, unit)}, shown[:400])
    s.check(f"{what}: within the whole", all(0 <= done <= of for _, done, of, _ in lines) and len({done for _, done, _, _ in lines}) > 2, lines)
    s.check(f"{what}: time left", b"  ETA 0:" in shown, shown[:400])
    s.check(f"{what}: the line is gone", shown.endswith(b"\r\x1b[K"), shown[-80:])
    r = s.run(list(argv))
    s.check(f"{what}: silent elsewhere", r.returncode == 0 and b"\r" not in r.stderr + r.stdout, r.stderr)


# Of many heads, so that there is something to wait for on a quick machine, too.
WIDE = Gguf(layers=16, heads=8, kv_heads=8).set("llama.context_length", 8192).write(s.path("wide.gguf"))
ids = s.file("ids.txt", b" ".join(b"%d" % (i * 7 % 90 + 3) for i in range(4500)))
short = s.file("short.txt", b" ".join(b"%d" % (i * 7 % 90 + 3) for i in range(2400)))
trace = s.path("a.kvf")
s.accepted("a trace", ["run", "-m", WIDE, "--ids", short, "-n", "0", "--method", "h2o", "-B", "64", "--probes", "paper", "-q", "-o", trace])
told("a prompt", b"prefill", b"tok", "logits", "-m", WIDE, "--ids", ids, "-o", s.path("l.npy"), "-t", "1")
told("an analysis of heads", b"decay", b"parts", "decay", *[trace] * 8, "-t", "1")
told("one that is not of the frame", b"heads", b"parts", "heads", *[trace] * 8, "-t", "1")
told("a page", b"report", b"tables", "report", trace, trace, "-o", s.path("r.html"))
s.finish()
