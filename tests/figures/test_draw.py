"""Check kvfate draw: figures of saved tables equal those of the analysis, and differences those of the rows; previews
on a terminal.  usage: test_draw.py KVFATE WRITE_KVF
"""
import csv
import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import numpy as np

from made import make_trace
from readers import Svg

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, words_of  # noqa: E402

KVFATE, WRITE_KVF = (os.path.abspath(a) for a in sys.argv[1:3])
ANSI = re.compile(r"\x1b\[([\d;]*)m")


def run(*args, **env):
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES", "TERM")}
    return subprocess.run([KVFATE, *args], capture_output=True, text=True, env={**clean, **env})


def refused(what, *args, words=(), code=2):
    r = run(*args)
    check(what, r.returncode == code and not r.stdout and r.stderr.count("\n") == 1 and all(w in r.stderr for w in words), r)


def read(path):
    return Path(path).read_bytes()


def write(path, text):
    Path(path).write_text(text, encoding="utf-8")
    return path


# ---- tables

def redrawn(at):
    for figure in ("eviction", "sparsity", "occupancy", "tokens"):
        run(figure, at("x.kvf"), "-o", at("a.svg"))
        for ext in ("tsv", "csv", "json"):
            run(figure, at("x.kvf"), "-o", at("t." + ext))
            r = run("draw", at("t." + ext), "-o", at("b.svg"))
            check(f"{figure} of .{ext}", r.returncode == 0 and read(at("a.svg")) == read(at("b.svg")), r.stderr)
    run("survival", at("s.kvf"), "-o", at("s.tsv"))
    for more in ([], ["--figure", "map"], ["--figure", "map", "--cmap", "magma", "--size", "100x60"]):
        run("survival", at("s.kvf"), *more, "-o", at("a.pdf"))
        r = run("draw", at("s.tsv"), *more, "-o", at("b.pdf"))
        check(f"survival {more}", r.returncode == 0 and read(at("a.pdf")) == read(at("b.pdf")), r.stderr)
    r = run("draw", at("t.json"), "-o", at("again.tsv"))
    check("a table becomes another", r.returncode == 0 and read(at("again.tsv")) == read(at("t.tsv")))


HEADS = [(f"L{layer}K{k}", layer, k) for layer in range(3) for k in range(2)]


def effect(path, kl, extra=""):
    rows = "".join(f"{h}\t{layer}\t{k}\t{v}\t{extra}\n" for (h, layer, k), v in zip(HEADS, kl))
    return write(path, f"# table: effect\n# model: m\n# method: {os.path.basename(path)}\nhead\tlayer\tindex\tkl\tdnll\n{rows}")


def difference(at):
    a, b = [0.5, 0.25, 1, 2, 0, 3], [0.25, 0.5, 1, 1.5, 1, 1]
    effect(at("a.tsv"), a, "1")
    text = effect(at("b.tsv"), b, "9")
    lines = open(text).read().splitlines()
    write(text, "\n".join(lines[:4] + lines[:3:-1]) + "\n")  # another order
    r = run("draw", at("a.tsv"), "--minus", at("b.tsv"), "-o", at("d.tsv"))
    rows = [line.split("\t") for line in open(at("d.tsv")) if line[0] != "#"]
    want = [[*map(str, h), *(f"{v:g}" for v in (x, y, x - y))] for h, x, y in zip(HEADS, a, b)]
    check("row by row", [[c.strip() for c in row] for row in rows[1:]] == want, rows, r.stderr)
    r = run("draw", at("a.tsv"), "--minus", at("b.tsv"), "--value", "dnll", "-o", "-")
    check("another column", {line.split("\t")[-1] for line in r.stdout.splitlines() if line[:1] == "L"} == {"-8"}, r.stdout)
    run("draw", at("a.tsv"), "--minus", at("b.tsv"), "-o", at("d.svg"))
    found = re.findall(r"fill-rule:nonzero;fill:rgb\(([\d.]+)%,([\d.]+)%,([\d.]+)%\)", open(at("d.svg")).read())[:6]
    # bluered from -2 to 2: entry 255 (d + 2) / 4, linear between entries; entry 255 and the white middle are known
    px = np.array(found, float) * 2.55
    check("largest is the end of the map", np.abs(px[5] - [105, 6, 19]).max() < 0.6, px[5])
    check("zero is the middle", np.abs(px[2] - 255).max() < 0.6, px[2])
    check("opposite differences are as dark", abs(px[0] @ [.21, .72, .07] - px[1] @ [.21, .72, .07]) < 4 and px[0][0] > px[0][2]
          and px[1][2] > px[1][0], px[:2])
    effect(at("few.tsv"), b[:4])
    r = run("draw", at("a.tsv"), "--minus", at("few.tsv"), "-o", at("d.svg"))
    check("rows without partners are counted", r.returncode == 0 and "2 rows have no partner" in r.stderr, r.stderr)
    refused("a map without a sign", "draw", at("a.tsv"), "--minus", at("b.tsv"), "--cmap", "viridis", "-o", at("d.svg"), words=["viridis", "sign"])
    refused("another table", "draw", at("a.tsv"), "--minus", at("s.tsv"), "-o", at("d.svg"), words=["effect", "survival"])
    refused("no such column", "draw", at("a.tsv"), "--minus", at("b.tsv"), "--value", "nll", "-o", at("d.svg"), words=["nll"])
    refused("several rows of a head", "draw", at("s.tsv"), "--minus", at("s.tsv"), "-o", at("d.svg"), words=["several rows", "criterion"])
    r = run("draw", at("s.tsv"), "--minus", at("s.tsv"), "--style", "criterion=top64,horizon=4", "-o", "-")
    d = [line.split("\t")[-1] for line in r.stdout.splitlines() if line[:1] == "L"]
    check("chosen rows", r.returncode == 0 and len(d) > 1 and set(d) <= {"0", "nan"}, r.stderr, r.stdout)
    refused("a horizon that the table lacks", "draw", at("s.tsv"), "--minus", at("s.tsv"), "--style", "criterion=top64,horizon=4.4", "-o", at("d.svg"),
            words=["horizon=4.4", "nearest is 4"])
    undefined = re.sub(r"\n(L\S+)\t(\d+)\t(\d+)\t\S+", r"\n\1\t\2\t\3\tnan", open(at("a.tsv")).read())
    refused("a column without numbers has no nearest", "draw", write(at("u.tsv"), undefined), "--minus", at("b.tsv"), "--style", "kl=1", "-o", at("d.svg"),
            words=["no row", "as chosen"])
    refused("no rows of classes", "draw", at("s.tsv"), "--style", "by=class", "-o", at("d.svg"), words=["by=class", "--by class"])
    refused("tokens have no difference", "draw", at("tokens.tsv"), "--minus", at("tokens.tsv"), "-o", at("d.svg"), words=["tokens"])


def keys():
    r = run("list", "figures", "survival")
    check("keys of a figure", r.returncode == 0 and r.stdout.startswith("survival of survival: ") and
          "\n  by=auto|criterion|class|head|trace|gap: unit of a line" in r.stdout and "\n  mark=N: an age" in r.stdout and "(default: none)" in r.stdout, r.stdout, r.stderr)
    r = run("list", "figures", "tokens-flow")
    check("all have a page", r.returncode == 0 and "tokens-flow of tokens" in r.stdout, r.stdout)
    maps = ("agreement", "attention-sparsity", "density", "dilution", "ghosts", "heads", "intermittency", "persistence", "survival")
    for old, new in (("eviction-mask", "eviction with --style form=mask"), ("predict-units", "the figure predict"), ("words-cloud", "the figure words"),
                     *((f"{table}-map", f"the figure map of the table {table}") for table in maps),
                     *((table, f"the figure map of the table {table}") for table in ("kv-size", "sparsity"))):
        refused(f"the former name {old}", "list", "figures", old, words=[f"the figure '{old}' is now", new])
    refused("no such figure", "list", "figures", "survivel", words=["no figure 'survivel'", "did you mean 'survival'"])
    refused("one as JSON", "list", "figures", "survival", "--json", words=["--json is of all figures"])


def bad_input(at):
    good = at("a.tsv")
    for panel, same in ((at("s.tsv") + "@map", ["--figure", "map"]), (at("s.tsv") + "@survival:y=log", ["--style", "y=log"])):
        run("draw", panel, "-o", at("a.svg"))
        r = run("draw", at("s.tsv"), *same, "-o", at("b.svg"))
        check("TABLE@FIGURE:KEY=VALUE alone, as of panels", r.returncode == 0 and read(at("a.svg")) == read(at("b.svg")), r.stderr)
    for layout in ([], ["--layout", "a"]):
        refused("TABLE@ of a former figure", "draw", at("s.tsv") + "@survival-map:criterion=top64", *layout, "-o", at("x.svg"),
                words=["the figure 'survival-map' is now the figure map of the table survival"])
        refused("TABLE@ of no figure", "draw", at("s.tsv") + "@survivor:y=log", *layout, "-o", at("x.svg"), words=["no figure 'survivor'", "kvfate list figures"])
    refused("no figure of this table", "draw", at("s.tsv"), "--figure", "survivel", "-o", at("x.svg"),
            words=["did you mean 'survival'", "it has map, survival"])
    refused("a former figure of this table", "draw", at("s.tsv"), "--figure", "survival-map", "-o", at("x.svg"),
            words=["--figure: the figure 'survival-map' is now the figure map of the table survival"])
    refused("a column that is nearly one", "draw", at("s.tsv"), "--figure", "map", "--style", "value=fractoin", "-o", at("x.svg"),
            words=["table survival has no column 'fractoin' (did you mean 'fraction'?)"])
    refused("a key of other tables", "draw", at("s.tsv"), "--figure", "map", "--style", "at=end", "-o", at("x.svg"),
            words=["options are value, panel, minus, criterion, horizon, class"])
    refused("a figure named twice", "draw", at("s.tsv") + "@survival", "--figure", "survival", "-o", at("x.svg"), words=["--figure"])
    refused("a style named twice", "draw", at("s.tsv") + "@survival:y=log", "--style", "y=log", "-o", at("x.svg"), words=["--style"])
    shutil.copyfile(at("s.tsv"), at("s@home.tsv"))
    check("a file with such a name", run("draw", at("s@home.tsv"), "-o", at("a.svg")).returncode == 0)
    refused("no output", "draw", good, words=["-o"])
    refused("over itself", "draw", good, "-o", good, words=["overwrite"])
    refused("unknown figure", "draw", good, "--figure", "eviction", "-o", at("x.svg"), words=["eviction"])
    refused("--value alone", "draw", good, "--value", "kl", "-o", at("x.svg"), words=["--minus"])
    refused("missing", "draw", at("none.tsv"), "-o", at("x.svg"), words=["none.tsv"], code=1)
    shutil.copyfile(at("x.kvf"), at("trace.svg"))
    shutil.copyfile(at("x.kvf"), at("trace.html"))
    refused("a figure over its trace", "eviction", at("trace.svg"), "-o", at("trace.svg"), words=["overwrite"])
    refused("a report over its trace", "report", at("trace.html"), "-o", at("trace.html"), words=["overwrite"])
    refused("a trace", "draw", at("x.kvf"), "-o", at("x.svg"), words=[".tsv"])
    refused("a table without a figure", "draw", write(at("n.tsv"), "# table: nothing\na\n1\n"), "-o", at("x.svg"), words=["nothing"])
    refused("a column is missing", "draw", write(at("n.tsv"), "# table: effect\nhead\tlayer\n"), "-o", at("x.svg"), words=["index"])
    refused("a far layer", "draw", write(at("n.tsv"), "# table: effect\nhead\tlayer\tindex\tkl\nL0K0\t9000000000\t0\t1\n"), "-o", at("x.svg"), words=["row 1"])
    text = "".join(line for line in open(at("ev.tsv")) if not line.startswith("# checksum: "))
    meta, rows = text.split("\nhead", 1)
    head, *rows = ("head" + rows).splitlines()
    for what, some in (("shuffled", rows[1:] + rows[:1]), ("cut", rows[:-1]), ("backwards", rows[::-1])):
        refused(what, "draw", write(at("n.tsv"), "\n".join([meta, head, *some, ""])), "-o", at("x.svg"), words=["head"])
    for cells in ("1\t2\tx\ty", "nan\tnan\tnan\tnan", "\t\t\t", "L0K0\t0\t0\tinf", "L0K0\t-5\t-7\t1e300", "x\t1e18\tnan\t-1"):
        r = run("draw", write(at("n.tsv"), f"# table: effect\nhead\tlayer\tindex\tkl\n{cells}\n"), "-o", at("x.png"), "--dpi", "40")
        check(f"odd cells {cells!r}", r.returncode in (0, 2), r)
    r = run("draw", write(at("n.tsv"), "# table: effect\nhead\tlayer\tindex\tkl\n"), "-o", at("x.svg"))
    check("no rows", r.returncode == 0 and "no data" in Svg(at("x.svg")).texts(), r)


# ---- previews

def screen(text):
    """Return [(character, ink, paper)] of each line."""
    out = []
    for line in text.splitlines():
        ink = paper = None
        cells, at = [], 0
        for m in [*ANSI.finditer(line), None]:
            cells += [(c, ink, paper) for c in line[at:m.start() if m else None]]
            if m:
                at, code = m.end(), [int(x) for x in m[1].split(";")]
                ink, paper = (None, None) if code == [0] else (tuple(code[2:]), paper) if code[0] == 38 else (ink, tuple(code[2:]))
        out.append(cells)
    return out


def one_glyph_each(at):
    """Check that each state of a key has its own glyph without colours."""
    with open(at("fates.tsv"), "w") as f:
        f.write("# table: fates\n# needed: 0.01\ntrace\tstep\ttoken\ttext\tjoined\theld\tneeded\n")
        f.writelines(f"{m}\t{t}\t0\t word\t word\t{1 - t / 3}\t{t / 6}\n" for m in ("h2o", "window") for t in range(4))
    said = run("draw", at("fates.tsv"), "--preview", COLUMNS="120", NO_COLOR="1").stdout
    glyphs = [re.search(r"(\S)\1? " + word, said) for word in ("cached: ", "evicted, mean", r"evicted\s")]
    check("fates: cached, needed and evicted", all(glyphs) and len({g[1] for g in glyphs}) == 3, said)
    with open(at("tokens.tsv"), "w") as f:
        f.write("# table: tokens\ntrace\thead\ttoken\ttext\tjoined\tkept\tmean_residency\tmean_beta\tmean_retention\tnll\tsaliency\tlast_use_age\tstate\n")
        f.writelines(f"1\tL0K0\t{i}\t {w}\t {w}\t{k}\t1\tnan\tnan\tnan\tnan\t1\t{s}\n" for i, (w, k, s) in enumerate((("alpha", 1, "kept"), ("beta", 0, "evicted"), ("gamma", 1, "recent"))))
    said = run("draw", at("tokens.tsv"), "--style", "by=state", "--preview", COLUMNS="120", NO_COLOR="1").stdout
    line, dot = "\u0332", "\u0323"
    for what, texts in (("the key", ("kept", "evicted", "protected")), ("the text", ("alpha", "beta", "gamma"))):
        marked = [mark.join(text) + mark for text, mark in zip(texts, (line, "", dot))]
        check(f"tokens: states differ in {what}", all(m in said for m in marked), said)


def previews(at):
    table = list(csv.DictReader(io.StringIO("\n".join(x for x in run("size", "--as", "sparsity", at("x.kvf"), "-o", "-").stdout.splitlines() if x[0] != "#")),
                                delimiter="\t"))
    ends = [min(float(t["sparsity"]) for t in table if int(t["layer"]) >= 0), max(float(t["sparsity"]) for t in table if int(t["layer"]) >= 0)]
    r = run("size", "--as", "sparsity", at("x.kvf"), "--preview", "--vmin", repr(ends[0]), "--vmax", repr(ends[1]), COLUMNS="60")
    lines = screen(r.stdout)
    check("as wide as told", r.returncode == 0 and max(map(len, lines)) <= 60 and max(map(len, lines)) > 50, max(map(len, lines)))
    check("labels are text", "layer" in r.stdout and "0.5" in ANSI.sub("", r.stdout))
    # the map is 3 layers across and 2 heads down: the middle of each cell, as in the SVG
    run("size", "--as", "sparsity", at("x.kvf"), "-o", at("m.svg"), "--size", "84x42")
    blocks = [[c for c in line if c[0] == "\u2580"] for line in lines]
    full = [i for i, b in enumerate(blocks) if len(b) > 25]
    values = {(int(t["layer"]), int(t["index"])): float(t["sparsity"]) for t in table}
    shown = {}
    for k in range(2):
        line = blocks[full[0] + (len(full) * (2 * k + 1)) // 4]
        n = len(line) - 2  # the bar has two
        for layer in range(3):
            shown[layer, k] = line[n * (2 * layer + 1) // 6][1]
    order = sorted(values, key=values.get)
    light = [shown[key][1] for key in order]  # green increases along viridis
    check("cells have the colours of their values", light == sorted(light) and shown[order[0]] == (68, 1, 84)
          and shown[order[-1]] == (253, 231, 37), shown, values)
    r = run("size", "--as", "sparsity", at("x.kvf"), "--preview", "--vmin", repr(ends[0]), "--vmax", repr(ends[1]), COLUMNS="60", NO_COLOR="1")
    check("NO_COLOR", r.returncode == 0 and "\x1b" not in r.stdout and {"\u2588", "\u00b7"} <= set(r.stdout), r.stdout)
    one_glyph_each(at)
    check("a dumb terminal", "\x1b" not in run("size", "--as", "sparsity", at("x.kvf"), "--preview", TERM="dumb").stdout)
    wide = [max(len(x) for x in screen(run("eviction", at("x.kvf"), "--preview", COLUMNS=str(n)).stdout)) for n in (40, 80, 200)]
    check("three widths", wide[0] <= 40 < wide[1] <= 80 < wide[2] <= 200, wide)
    r = run("eviction", at("x.kvf"), "--preview", "-o", at("p.svg"), "--title", "evil \x1b[31m title")
    check("a file beside it", r.returncode == 0 and "\u2580" in r.stdout and "\x1b[31m" not in r.stdout and Svg(at("p.svg")).texts())
    for argv in (["size", "--as", "sparsity", at("x.kvf")], ["draw", at("ev.tsv")]):
        r = run(*argv, "--preview", "-o", "-")
        check(f"a picture takes the place of the table: {argv[0]}", r.returncode == 0 and "\u2580" in r.stdout and "# table" not in r.stdout, r.stdout[:200])
    check("piped, - is TSV", run("eviction", at("x.kvf"), "-o", "-").stdout.startswith("# table: eviction"))
    for figure, trace in (("survival", "s.kvf"), ("tokens", "x.kvf"), ("occupancy", "x.kvf"), ("retention", "s.kvf")):
        r = run(*words_of(figure), at(trace), "--preview")
        check(f"{figure} is drawn", r.returncode == 0 and len(r.stdout) > 500 and not r.stderr, r.stderr)
    refused("no figure", "draw", write(at("n.tsv"), "# table: nothing\na\n1\n"), "--preview", words=["no figure"])


def terminal(at):
    """Check -o - on a terminal of 64 columns and 20 lines."""
    try:
        main, other = pty.openpty()
    except OSError as e:  # a minimal chroot has none
        print(f"skipped: no terminal device ({e}); pictures on a terminal are not tried")
        return
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 64, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES", "TERM")}
    p = subprocess.Popen([KVFATE, "eviction", at("x.kvf"), "--head", "L0K0", "-o", "-"], stdout=other, env=env)
    os.close(other)
    got = b""
    try:
        while part := os.read(main, 65536):
            got += part
    except OSError:  # the process closed its end
        pass
    p.wait()
    os.close(main)
    lines = screen(got.decode().replace("\r\n", "\n"))
    check("a picture fits the terminal", p.returncode == 0 and 10 < len(lines) < 20 and 40 < max(map(len, lines)) <= 64,
          len(lines), max(map(len, lines), default=0))
    check("it stands alone", b"# table" not in got, got[:200])
    check("it has colours", b"\x1b[38;2;" in got and "\u2580" in got.decode())


def boxes(at):
    """Check that a missing glyph (no character is at U+0378) is reported, and drawn as a box."""
    for ext in ("png", "svg", "pdf"):
        for title, told in (("a \u0378", 1), ("a b", 0)):
            r = run("draw", at("ev.tsv"), "--title", title, "-o", at(f"boxes.{ext}"))
            check(f"{ext}: boxes are told of", r.returncode == 0 and r.stderr.count("drawn as boxes") == told == r.stderr.count("\n"), r)
    r = run("draw", at("tokens.tsv"), at("ev.tsv"), "--layout", "a/b", "--title", "\u0378", "-o", at("boxes.svg"))
    check("once for a page", r.returncode == 0 and r.stderr.count("drawn as boxes") == 1, r)


with tempfile.TemporaryDirectory(prefix="kvfate-draw-") as folder:
    def at(name):
        return os.path.join(folder, name)

    keys()
    make_trace(WRITE_KVF, "usual", at("x.kvf"))
    make_trace(WRITE_KVF, "usual", at("s.kvf"))
    run("eviction", at("x.kvf"), "-o", at("ev.tsv"))
    run("tokens", at("x.kvf"), "-o", at("tokens.tsv"))
    for part in (redrawn, difference, bad_input, previews, terminal, boxes):
        part(at)
finish()
