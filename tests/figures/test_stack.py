"""Check several traces in one table: its rows are those of each trace, and figures draw it; unknown figure options are
errors.  usage: test_stack.py KVFATE WRITE_KVF
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import expect, finish  # noqa: E402
from made import make_trace  # noqa: E402


def run(*args):
    return subprocess.run([KVFATE, *args], capture_output=True)


def rows(*args):
    r = run(*args, "-o", "-")
    expect(r.returncode == 0, f"{args}: {r.stderr.decode()}")
    lines = [x for x in r.stdout.decode().split("\n") if x and not x.startswith("# ")]
    return [x.split("\t") for x in lines]


def stacked(folder, paths):
    both, one = rows("where", *paths), [rows("where", p) for p in paths]
    expect(both[0] == ["trace"] + one[0][0] + ["method", "budget", "T"], f"columns {both[0]}")
    want = []
    for p, t in zip(paths, one):
        name = os.path.basename(p)[:-4]
        meta = dict(x[2:].split(": ", 1) for x in run("where", p, "-o", "-").stdout.decode().split("\n")
                    if x.startswith("# ") and ": " in x)
        want += [[name] + x + [meta["method"], str(int(float(meta.get("budget", 0)))), meta["T"]] for x in t[1:]]
    expect(both[1:] == want, "rows differ from those of each trace")
    r = run("where", *paths, "-o", os.path.join(folder, "x.svg"))
    expect(r.returncode == 0 and os.path.getsize(os.path.join(folder, "x.svg")) > 1000, f"figure: {r.stderr}")
    for p in paths:
        alone = run("where", p).stdout
        expect(os.path.basename(p)[:-4].encode() + b":\n" in r.stdout and alone in r.stdout, f"summary of {p}")


def refused(folder, paths):
    out = os.path.join(folder, "no.png")
    for args in (["where", *([paths[0]] * 257)],
                 ["survival", paths[0], "-o", out, "--style", "by=weight"],
                 ["survival", paths[0], "-o", out, "--style", "criterion=top65"],
                 ["survival", paths[0], "-o", out, "--style", "y=log", "--vmin", "-1"],
                 ["survival", paths[0], "-o", out, "--size", "40x25", "--style", "by=head"],
                 ["where", paths[0], "-o", out, "--style", "by=class"],
                 ["where", paths[0], "-o", out, "--style", "by"],
                 ["size", paths[0], "-o", out, "--figure", "occupancy-curves", "--style", "steps=1"]):
        r = run(*args)
        expect(r.returncode == 2 and len(r.stderr.decode().strip().split("\n")) == 1, f"{args}: {r.returncode} {r.stderr}")
        expect(not os.path.exists(out), f"{args} leaves a file")


def unused(folder, paths):
    """Check that --style is also checked if no figure is written: after the numbers, which can take long."""
    table = os.path.join(folder, "t.tsv")
    for args in (["survival", paths[0]], ["survival", paths[0], "--json"], ["survival", paths[0], "-o", "-"],
                 ["survival", paths[0], "-o", table], ["corpus", "survival", paths[0]], ["corpus", "survival", paths[0], "-o", table],
                 ["survival", *paths, "-o", table], ["draw", table, "-o", os.path.join(folder, "u.json")]):
        for style, code in (("y=log", 0), ("y=cube", 2), ("by", 2), ("criterion=top65", 2)):
            r = run(*args, "--style", style)
            expect(r.returncode == code and (b"--style" in r.stderr) == (code == 2), f"{args} {style}: {r.returncode} {r.stderr}")
            expect(r.stdout if args[-1] in ("-", "--json") else True, f"{args}: numbers")
    for args in (["tokens", "--as", "words", *paths],):
        r = run(*args, "--style", "y=log")
        expect(r.returncode == 2 and b"no figure of table" in r.stderr, f"{args}: {r.returncode} {r.stderr}")


def drawn(folder, path):
    """Check sizes from the smallest to a poster: drawn, or rejected with a size that works and is not smaller than
    requested.
    """
    out, rejected = os.path.join(folder, "y.pdf"), 0
    for size in ("60x50", "88x60", "180x200", "1000x40"):
        for figure, args in (("survival", []), ("survival", ["--style", "by=head", "--head", "L0H*"]),
                             ("where", ["--style", "by=head"]), ("size", ["--figure", "occupancy-curves"])):
            r = run(figure, path, "-o", out, "--size", size, *args)
            least = re.search(rb"--size: figure \S+ needs at least (\d+) x (\d+) mm here\n$", r.stderr)
            what = f"{figure} {args} at {size}: {r.returncode} {r.stderr}"
            said = re.sub(rb"note: no installed font [^\n]*\n", b"", r.stderr)  # the name of the model has other characters
            if not expect(r.returncode == 2 if least else r.returncode == 0 and not said, what) or not least:
                continue
            rejected += 1
            sides = [int(v) for v in least.groups()]
            expect(all(n >= int(v) for n, v in zip(sides, size.split("x"))), what)
            r = run(figure, path, "-o", out, "--size", "x".join(map(str, sides)), *args)
            expect(r.returncode == 0, f"{figure} {args} at the least size {sides}: {r.stderr}")
    expect(0 < rejected < 8, f"{rejected} of 16 sizes are rejected")


def written(out, *args):
    """Return the texts of a figure."""
    r = run(*args, "-o", out)
    expect(r.returncode == 0, f"{args}: {r.stderr}")
    return " ".join(re.findall(r"<tspan[^>]*>([^<]*)", open(out, encoding="utf-8").read())) if r.returncode == 0 else ""


def unlike(folder, usual, small):
    """Check that nothing is said of several traces that is true of the first one only, and that a range of tokens is named."""
    out, evictions = os.path.join(folder, "n.svg"), ("--by", "tokens", "--value", "evict_step")
    for want, not_this, args in (("several models; made-up, budget 1,000; 25 to 40 tokens \u00d7 8 to 12 heads", "prompt tokens", ["survival", usual, small]),
                                 ("several models; made-up, budget 1,000; 20 of 25 to 40 tokens \u00d7 8 to 12 heads", "prompt tokens", ["survival", usual, small, "--tokens", "0:20"]),
                                 ("; 20 of 40 tokens \u00d7 12 heads", "; 40 tokens", ["survival", usual, "--tokens", "0:20"]),
                                 ("entries of 4 to 6 heads", "of 6 heads", ["where", usual, small]),
                                 ("25 to 40 tokens", "; 40 tokens", ["corpus", "survival", usual, small]),
                                 ("several models; made-up, budget 1,000; the first 20 tokens", "of 40", ["tokens", usual, small, "--tokens", "0:20"]),
                                 ("small, made-up, budget 1000", "of 40", ["tokens", small, usual, "--tokens", "0:20"]),
                                 ("run 2: small, made-up", "...", ["compare", usual, small, *evictions])):
        said = written(out, *args)
        expect(want in said and (not_this not in said.replace(want, "")), f"{args}: {want!r} in {said!r}")
    said = run("survival", usual, "--tokens", "0:20").stdout
    expect(said.startswith(b"survival over 20 of 40 tokens;"), said)
    said = run("where", usual, "--tokens", "0:20").stdout
    expect(said.split(b"\n")[0].endswith(b"of a text of 40 tokens; only tokens 0:20"), said)
    said = run("size", usual, "--tokens", "0:20").stdout
    expect(said.startswith(b"only tokens 0:20; largest head: "), said)
    for args, want in ((["tokens", usual, small], "differ: "), (["compare", usual, small, *evictions], "differ: "), (["compare", usual, usual, *evictions], "model: a")):
        lines = run(*args, "-o", "-").stdout.decode().split("\n")
        expect(any(x.startswith("# " + want) for x in lines), f"{args}: {want}")
        expect(not any(x.startswith("# model:") for x in lines) or usual == args[2], f"{args}: the model of the first trace")


def main():
    global KVFATE
    KVFATE, write_kvf = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, n + ".kvf") for n in ("first", "second")]
        for p in paths:
            make_trace(write_kvf, "usual", p)
        stacked(folder, paths)
        refused(folder, paths)
        unused(folder, paths)
        drawn(folder, paths[0])
        unlike(folder, paths[0], make_trace(write_kvf, "small", os.path.join(folder, "small.kvf")))
    finish()


if __name__ == "__main__":
    sys.exit(main())
