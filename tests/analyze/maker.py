"""Make traces of any kind from arrays, through the program write_kvf, and read tables from kvfate."""
import json
import os
import subprocess

import numpy as np

SNAPSHOT, AGE = 1, 2
ALIVE = 0xffffffff


class Column:
    """A column: values [layers][heads][T], or [T] of the run; only the first n of each head are written."""

    def __init__(self, name, dtype, space, values, axis="token", flags=0, n=None):
        self.name, self.dtype, self.space, self.axis, self.flags, self.n = name, dtype, space, axis, flags, n
        self.values = np.asarray(values, float)


def make(write_kvf, path, columns, shape, meta=None, texts=(), unclosed=False, again=False, any_names=False, blobs=(), note=None):
    L, H, G, T = shape
    lines = [f"meta {json.dumps(meta or {})}" if not isinstance(meta, str) else f"meta {meta}", f"shape {L} {H} {G} {T}"]
    for i, c in enumerate(columns):
        raw = f"{path}.{i}.f64"
        c.values.tofile(raw)
        n = T if c.n is None else c.n
        lines.append(f"column {c.name} {c.dtype} {c.space} {c.axis} {c.flags} {n} {raw}")
    lines += [f"hex {t.hex()}" if isinstance(t, bytes) else f"text {t}" for t in texts] + ["again"] * again + ["open"] * unclosed + ["names"] * any_names + [f"blob {b}" for b in blobs] + [f"note {k} {json.dumps(v)}" for k, v in (note or {}).items()]
    done = subprocess.run([write_kvf, path], input="\n".join(lines) + "\n", text=True, errors="surrogateescape",
                          capture_output=True)  # so that texts may have any bytes
    assert done.returncode == 0, done.stderr
    for i in range(len(columns)):
        os.remove(f"{path}.{i}.f64")
    return path


def table(kvfate, *argv, code=0):
    """Return the JSON table of a command: (columns as lists, metadata). For a trace that was not closed or has no steps
    the command must end with 3 and a message.
    """
    done = subprocess.run([kvfate, *map(str, argv), "--json"], capture_output=True, text=True)
    partial = any(words in done.stderr for words in (" has no steps", " was not closed"))
    code = 3 if partial and not code else code
    assert done.returncode == code, (argv, done.returncode, done.stderr)
    t = json.loads(done.stdout)
    return t["data"], t["meta"]
