#!/usr/bin/env python3
"""Commands that take longer than a moment show progress and the remaining time on a terminal, and
only there."""
import fcntl
import os
import re
import struct
import subprocess
import termios

from harness import Gguf, Suite, check

s = Suite()
ends = check.open_terminal()
if not ends:
    check.finish(check.NO_TERMINAL)
for end in ends:
    os.close(end)
LINE = re.compile(rb"\r(\S[^\[\r]*?) +\[[#.]{24}\] ([\d.]+)/(\d+)  [\d.e+-]+ ([a-zA-Z]+)/s")


def on_terminal(*argv, columns=0):
    """Returns the standard error as shown on a terminal with this many columns, and the status."""
    ours, theirs = check.open_terminal()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 0, columns, 0, 0))
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


def shown(what, label, unit, *argv, least=3):
    """Checks that a command's output has a line with this label, in several states."""
    said, status = on_terminal(*argv)
    states = {m[2] for m in LINE.finditer(said) if (m[1], m[4]) == (label, unit)}
    s.check(f"{what}: is told", status == 0 and len(states) >= least, status, states, said[-300:])


def told(what, label, unit, *argv, elsewhere=False):
    """The line rises to the total, once or more; it shows the remaining time, and is removed at the
    end. elsewhere: a pipe gets no such output."""
    shown, status = on_terminal(*argv)
    lines = [(m[1], float(m[2]), int(m[3]), m[4]) for m in LINE.finditer(shown)]
    s.check(f"{what}: ends well", status == 0, status, shown[-400:])
    s.check(f"{what}: is told", len(lines) > 2 and {(a, d) for a, _, _, d in lines} == {(label, unit)}, shown[:400])
    s.check(f"{what}: within the whole", all(0 <= done <= of for _, done, of, _ in lines) and len({done for _, done, _, _ in lines}) > 2, lines)
    s.check(f"{what}: time left", b"  ETA 0:" in shown, shown[:400])
    s.check(f"{what}: the line is gone", shown.endswith(b"\r\x1b[K"), shown[-80:])
    if elsewhere:
        r = s.run(list(argv))
        s.check(f"{what}: silent elsewhere", r.returncode == 0 and b"\r" not in r.stderr + r.stdout, r.stderr)


# Many heads, so that a fast machine also needs some time.
WIDE = Gguf(layers=16, heads=8, kv_heads=8).set("llama.context_length", 8192).write(s.path("wide.gguf"))
ids = s.file("ids.txt", b" ".join(b"%d" % (i * 7 % 90 + 3) for i in range(2700)))
short = s.file("short.txt", b" ".join(b"%d" % (i * 7 % 90 + 3) for i in range(2400)))
trace = s.path("a.kvf")
s.accepted("a trace", ["run", "-m", WIDE, "--ids", short, "-n", "0", "--method", "h2o", "-B", "64", "--probes", "paper", "-q", "-o", trace])
told("a prompt", b"prefill", b"tok", "generate", "--logits", "-m", WIDE, "--ids", ids, "-o", s.path("l.npy"), "-t", "1", elsewhere=True)
told("an analysis of heads", b"survival --as decay", b"parts", "survival", "--as", "decay", *[trace] * 9, "--criterion", "mass.90,mass.95,mass.99", "-t", "1")
told("one that is not of the frame", b"heads", b"parts", "heads", *[trace] * 8, "-t", "1")
told("a page", b"report", b"tables", "report", trace, trace, "-o", s.path("r.html"), elsewhere=True)
shown("rows of a table", b"write", b"rows", "eviction", *[trace] * 2, "-t", "1", "-o", s.path("t.sqlite"))
shown("prompts with needles", b"tasks needle", b"prompts", "tasks", "needle", "--words", "50000", "-n", "40", "-o", s.path("hay"))
shown("an export", b"export", b"heads", "trace", "export", trace, "-o", s.path("t.jsonl"))
shown("a piece of a prompt, by its layers", b"prefill", b"tok", "generate", "-m", WIDE, "--ids", ids, "-n", "0", "-t", "1", "--chunk", "4096")
text = s.file("text.txt", b"".join(b"# %d\n\n" % i + b"the thing and the other thing of the day\n" * 40 for i in range(20)))
shown("a step of training, by its layers", b"train", b"steps", "train", "-m", WIDE, "--data", text, "--length", "768", "--steps", "1", "--check-every", "0",
      "--method", "trimkv:accumulate=4", "-t", "1", "-o", s.path("g.safetensors"))
said, status = on_terminal("generate", "-m", WIDE, "--ids", short, "-n", "0", "-t", "1", "-q")
s.check("-q: nothing is told", status == 0 and said == b"", said)
said, status = on_terminal("generate", "-m", WIDE, "--ids", short, "-n", "0", columns=40)
lines = [x for x in re.split(rb"[\r\n]|\x1b\[K", said) if b"tok/s" in x and b"prefill  " in x]
s.check("a narrow terminal", status == 0 and lines and all(len(x) < 40 for x in lines), lines)
s.check("no rate of no tokens", b"nan" not in said and b"decode 0 tokens; cache" in said, said[-200:])
s.finish()
