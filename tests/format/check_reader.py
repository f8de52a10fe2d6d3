#!/usr/bin/env python3
"""Compares docs/reference/format.md with the library: the reader in Python, the listing, and
kvfate's output.

usage: check_reader.py KVFATE WRITE_DUMP SOURCE_ROOT
       check_reader.py --list WRITE_DUMP SOURCE_ROOT      replaces tests/format/listing.txt
"""
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from digest import digest, hexadecimal, mix, records, run_id  # noqa: E402
from listing import listing  # noqa: E402
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from check import words_of  # noqa: E402
import kvfate as package  # noqa: E402

PROMPT = "A trace is a record: who was kept, who was evicted, when, and why. It is made of columns, and of nothing else."


def equal(what, got, want):
    if got != want:
        raise SystemExit("%s: got %r, expected %r" % (what, got, want))


def same(what, got, want):
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or not np.array_equal(got, want, equal_nan=got.dtype.kind == "f"):
        raise SystemExit("%s: differs: %r, expected %r" % (what, got, want))


def refused(what, data, path):
    Path(path).write_bytes(data)
    try:
        package.open(path).verify()
    except package.TraceError:
        return
    raise SystemExit("%s: not noticed" % what)


def listing_of(root):
    """Returns the path of the listing that section 15 cites."""
    return Path(os.path.join(root, "tests/format/listing.txt"))


def check_excerpt(root, listed):
    """Every line of the excerpt in section 15 occurs in the listing."""
    page = Path(os.path.join(root, "docs/reference/format.md")).read_text()
    for line in page[page.index("    # file header\n"):].splitlines():
        if line and line not in listed:
            raise SystemExit("section 15 of format.md: this line is not in listing.txt: %s" % line)


def list_anew(write_dump, root):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "listing.kvf")
        subprocess.run([write_dump, path], check=True)
        listing_of(root).write_text(listing(path))


def check_listing(kvfate, write_dump, root, path):
    """Section 15: its bytes are a trace with these values, and the library writes the same
    bytes."""
    listed = {}
    text = listing_of(root).read_text()
    check_excerpt(root, text.splitlines())
    for line in text.splitlines():
        m = re.match(r"    ([0-9a-f]{8})  ((?:[0-9a-f]{2} ?)+?)(?:  |$)", line)
        if m:
            listed[int(m.group(1), 16)] = bytes.fromhex(m.group(2))
    data = b"".join(listed[k] for k in sorted(listed))
    at = 0
    for k in sorted(listed):
        equal("offset in the listing", k, at)
        at += len(listed[k])
    Path(path).write_bytes(data)
    t = package.open(path)
    t.verify()
    equal("steps", (t.steps, t.epoch, t.closed, t.meta), (3, 1, True, {"run": {}}))
    equal("texts", (t.texts, t.tokens), ([b"Hi", b"", b"!"], ["Hi", "", "!"]))
    equal("note", t.notes, {"result": {}})
    same("tokens.id", t["tokens.id"], [17, 17, 17])
    same("last_selected.top64", t["last_selected.top64"][0], [[2, 0xFFFF, 0], [1, 1, 0]])
    equal("seen", [v.tolist() for v in t.seen[0, 0]], [[[0, 0], [2, 2]], [], [[2, 2]]])
    (b,) = t.blobs
    equal("blob", (b.name, b.layer, b.head, b.t0, b.data.tolist()), ("k", 0, 0, 1, [[1, -2], [0.5, 0]]))
    equal("run id", t.id, hexadecimal(run_id(b'{"run":{}}', [17, 17])))
    if text != listing(path):
        raise SystemExit("listing.txt differs from the output of listing.py: run check_reader.py --list")
    subprocess.run([kvfate, "trace", "verify", "--full", path], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([write_dump, path], check=True)
    equal("bytes of the library and of listing.txt", Path(path).read_bytes() == data, True)
    equal("digest", t.digest, digest(t))
    for i in range(len(data)):  # the reader of the document detects a change of every byte except padding
        if listed_padding(data, i):
            continue
        if i >= 128 and i % 7:  # a sample is enough here
            continue
        damaged = bytearray(data)
        damaged[i] ^= 0x10
        t = None
        Path(path).write_bytes(damaged)
        try:
            t = package.open(path)
            t.verify()
        except package.TraceError:
            continue
        if t.closed:
            raise SystemExit("byte %d changed, and not noticed" % i)


def listed_padding(data, i):
    at = 64
    while at + 88 <= len(data) and struct.unpack_from("<I", data, at)[0] == 0x52465AC5:
        stored = struct.unpack_from("<Q", data, at + 16)[0]
        end = at + 88 + (stored + 7) // 8 * 8
        if at + 88 + stored <= i < end:
            return True
        at = end
    return False


# ---- the trace of tests/format/tiny.c, with values that depend on their places

def check_frozen(kvfate, root, version):
    """Files of every kind that a version wrote, with stored hashes: both readers must always be
    able to read them."""
    golden = os.path.join(root, "tests/format/golden")
    with open(os.path.join(golden, "SHA256")) as f:
        hashes = dict(reversed(line.split()) for line in f)
    with zipfile.ZipFile(os.path.join(golden, "format-%s.zip" % version)) as z, tempfile.TemporaryDirectory() as folder:
        z.extractall(folder)
        equal("files of " + version, sorted(z.namelist()), sorted(n.split("/")[1] for n in hashes if n.startswith("format-%s/" % version)))
        kinds = set()
        for name in sorted(z.namelist()):
            path = os.path.join(folder, name)
            equal(name + ": hash", hashlib.sha256(z.read(name)).hexdigest(), hashes["format-%s/%s" % (version, name)])
            t = package.open(path)
            kinds |= {r["type"] for r in records(t)}
            equal(name + ": format", t.format, version)
            shown = json.loads(subprocess.run([kvfate, "trace", "info", "--json", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
            equal(name, (t.steps, t.closed, t.meta), (shown["steps"], shown["clean"], shown["header"]))
            equal(name + ": columns", list(t.columns), [c["name"] for c in shown["columns"]])
            if not name.endswith(".tail"):
                t.verify()
            for c in t.columns.values() if t.closed and not name.endswith(".tail") else []:
                c[:] if c.space == "run" else [c[layer] for layer in range(c.layers)]
            told = t.blobs
            equal(name + ": format of info", shown["format"], version)
            if version != "0.1":
                equal(name + ": run id", shown["run"], t.id)
                equal(name + ": stored digest", shown.get("digest"), digest(t) if t.closed else None)
            equal(name + ": blobs", [(b["name"], b["shape"], b["bytes"]) for b in shown["blobs"]],
                  [(b.name, list(b.shape), b.data.nbytes) for b in told])
            if t.closed:
                held = {c.name: sum(len(v) for l in range(c.layers) for h in c[l] for v in h) for c in t.schema if c.intervals}
                equal(name + ": intervals", held, {c["name"]: c["intervals"] for c in shown["columns"] if "intervals" in c})
            code = subprocess.run([kvfate, "trace", "verify", "--full", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
            invented = name.startswith(("closed", "unfinished"))  # arbitrary numbers: verify reports that ids cannot be negative
            equal(name + ": exit of verify", code, 1 if invented else 0 if t.closed else 3)
            if t.closed:
                told = subprocess.run([kvfate, "trace", "checksum", path], check=True, stdout=subprocess.PIPE).stdout.split()[0].decode()
                equal(name + ": digest", told, digest(t))
        equal("types of records", kinds, set(range(1, 8)) | ({9, 10} if version != "0.1" else set()))


def check_corpus(root):
    with zipfile.ZipFile(os.path.join(root, "tests/fuzz/corpus/trace.zip")) as z, tempfile.TemporaryDirectory() as folder:
        t = package.open(z.extract("closed.kvf", folder))
    equal("tiny", (t.steps, t.epoch, t.heads), (11, 2, [(1, 2), (2, 2)]))
    codecs = set()
    for r in records(t):
        codecs |= {r["codec"]} if r["type"] == 4 else set()
    equal("codecs used", codecs, {0, 1, 2})
    for name, c in t.columns.items():
        for layer in range(c.layers):
            got = c[:][None] if c.space == "run" else c[layer]
            epoch = t.epoch if c.snapshot else 0
            for h in range(got.shape[0]):
                for i in range(t.steps):
                    v = mix((c.number << 48) + (layer << 40) + (h << 32) + (epoch << 24) + i)
                    v = {6: 0x0123456789ABCDEF + epoch, 3: v & 3}.get(c.number, v)
                    equal("%s %d %d %d" % (name, layer, h, i), got[h, i].tobytes(),
                          struct.pack("<Q", v)[:c.dtype.itemsize])


# ---- a run of a random tiny model, compared with kvfate's own tables

def table(kvfate, path, name, *options):
    out = path + "." + name + ".npz"
    subprocess.run([kvfate, *words_of(name, kvfate), path, *options, "-o", out], check=True, stderr=subprocess.DEVNULL)
    with np.load(out) as z:
        return {k: z[k] for k in z.files}


def by_head(t, name):
    return np.asarray(t[name]).reshape(-1, t.steps)


def check_run(kvfate, root, folder):
    model, path = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "run.kvf")
    subprocess.run([sys.executable, os.path.join(root, "tests/data/golden/tools/gen_tiny.py"), "--kv-heads", "2",
                    "-o", model], check=True)
    subprocess.run([kvfate, "run", "--overwrite", "-m", model, "--raw", "-p", PROMPT, "-n", "40", "--ignore-eos", "--method", "h2o",
                    "--budget", "24", "-t", "1", "-q", "-o", path], check=True, stdout=subprocess.DEVNULL)
    t = package.open(path)
    info = json.loads(subprocess.run([kvfate, "trace", "info", "--json", path], check=True, stdout=subprocess.PIPE).stdout)
    equal("steps", (t.steps, t.epoch, t.closed), (info["steps"], info["epoch"], True))
    equal("digest", t.digest, digest(t))
    equal("columns", list(t.columns), [c["name"] for c in info["columns"]])
    equal("header", t.meta, info["header"])
    prompt = b"".join(t.texts[i] for i in range(t.meta["run"]["prompt_tokens"]))
    equal("text of the prompt", prompt.decode(), PROMPT)
    header = Path(path).read_bytes()[64 + 88:][:records(t)[0]["stored_len"]]
    equal("run id", t.id, hexadecimal(run_id(header, t["tokens.id"][:t.meta["run"]["prompt_tokens"]])))

    e = table(kvfate, path, "eviction")
    step = by_head(t, "evict_step").astype(np.int64)
    step[step == 0xFFFFFFFF] = -1
    if not (step >= 0).any():
        raise SystemExit("nothing was evicted: the comparison would show nothing")
    same("evict_step", step.ravel(), e["evict_step"])
    same("score", by_head(t, "evict_score").astype(np.float64).ravel(), e["score"])
    same("margin", by_head(t, "evict_margin").astype(np.float64).ravel(), e["margin"])
    same("tie", by_head(t, "evict_tie").ravel(), e["tie"])

    s = table(kvfate, path, "survival")
    first = {c: by_head(t, "last_selected." + c).astype(np.int64) for c in set(s["criterion"])}
    for a in first.values():
        a[a == 0xFFFF] = -1
    heads = len(next(iter(first.values()))) // len(t.heads)
    for k in range(len(s["horizon"])):  # at risk: a query at i + n exists
        n, age = s["horizon"][k], first[s["criterion"][k]]
        if s["head"][k] != "all":
            age = age[[s["layer"][k] * heads + s["index"][k]]]
        equal("at risk", int(s["at_risk"][k]), (t.steps - int(n)) * len(age))
        equal("alive", int(s["alive"][k]), int((age[:, :t.steps - n] >= n).sum()))
    same("token ids", t["tokens.id"], table(kvfate, path, "tokens")["id"])
    check_cuts(kvfate, path)
    return len(records(t))


def check_cuts(kvfate, path):
    """Cut at any length, both readers report the same, which equals the report of `kvfate
    verify`."""
    data = Path(path).read_bytes()
    places = [r["offset"] for r in records(package.open(path))[2:]]
    for cut in [places[0], places[1] + 40, places[-3] + 100, places[-1], len(data) - 64, len(data) - 1]:
        Path(path + ".cut").write_bytes(data[:cut])
        t = package.open(path + ".cut")
        info = json.loads(subprocess.run([kvfate, "trace", "info", "--json", path + ".cut"], check=False, stderr=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE).stdout)
        equal("cut at %d" % cut, (t.steps, t.epoch, t.closed), (info["steps"], info["epoch"], info["clean"]))
        told = subprocess.run([kvfate, "trace", "verify", path + ".cut"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        equal("exit of verify", told.returncode, 3)
        n, torn = len(records(t)), t._file.torn
        want = "unfinished: %d complete records" % n
        want += " up to byte %d, then %d bytes of an incomplete one" % (cut - torn, torn) if torn else ", no incomplete one"
        if want not in told.stderr.decode():
            raise SystemExit("verify says %r, not %r" % (told.stderr, want))
    middle = bytearray(data)
    middle[places[3] + 20] ^= 1
    refused("a damaged record header", middle, path + ".cut")
    equal("exit of verify", subprocess.run([kvfate, "trace", "verify", path + ".cut"], stdout=subprocess.DEVNULL,
                                           stderr=subprocess.DEVNULL).returncode, 1)


def main():
    kvfate, write_dump, root = sys.argv[1:4]
    if kvfate == "--list":
        return list_anew(write_dump, root)
    with tempfile.TemporaryDirectory() as folder:
        check_listing(kvfate, write_dump, root, os.path.join(folder, "listing.kvf"))
        check_corpus(root)
        check_frozen(kvfate, root, "0.1")
        check_frozen(kvfate, root, "1.0")
        n = check_run(kvfate, root, folder)
    print("listing, corpus and a run of %d records agree" % n)


if __name__ == "__main__":
    main()
