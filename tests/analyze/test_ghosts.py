#!/usr/bin/env python3
"""Check kvfate missed against numpy on synthetic columns, and its errors."""
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, refused  # noqa: E402
from maker import ALIVE, SNAPSHOT, Column, make, table

write_kvf = os.path.abspath(sys.argv[2])
L, H, G, T, PROMPT = 2, 2, 6, 41, 12
rng = np.random.default_rng(7)
evict = np.where(rng.random((L, H, T)) < 0.5, rng.integers(PROMPT, T + 1, (L, H, T)), ALIVE)
evict[1, 1] = ALIVE  # a head that reads selected pages
gone = np.repeat(evict < ALIVE, G // H, axis=1)  # query head g reads KV head g / 3
unread = np.zeros((L, G, T), bool)
unread[1, 3:] = rng.random((3, T)) < 0.4
hits = np.where(gone | unread, rng.integers(0, 5, (L, G, T)), 0)
first = np.where(hits > 0, rng.integers(PROMPT, T, (L, G, T)), ALIVE)
mass = np.where((hits > 0) | unread, rng.random((L, G, T)).astype(np.float32), 0).astype(float)
kept = rng.random((L, G, T)).astype(np.float32).astype(float)
kept[:, :, :PROMPT] = 1
kept[0, 2, 30] = np.nan


def columns(n=None):
    return [Column("evict_step", "u32", "kv", evict, flags=SNAPSHOT),
            Column("shadow.ghost_hits", "u32", "query", hits, flags=SNAPSHOT, n=n),
            Column("shadow.first_hit", "u32", "query", first, flags=SNAPSHOT),
            Column("shadow.ghost_mass", "f32", "query", mass, flags=SNAPSHOT),
            Column("shadow.kept_mass", "f32", "query", kept, "step")]


def expected(heads, tokens, least):
    """Return rows, entries needed, entries hit, mass."""
    rows, missed, hit, total = [], 0, 0, 0.0
    for l, g in heads:
        for i in tokens:
            e = evict[l, g // (G // H), i]
            total += mass[l, g, i]
            hit += hits[l, g, i] > 0
            if e == ALIVE and mass[l, g, i] == 0:
                continue
            missed += 1
            if hits[l, g, i] >= least:
                rows.append((f"L{l}H{g}", l, g, i, -1 if e == ALIVE else int(e),
                             -1 if first[l, g, i] == ALIVE else int(first[l, g, i]), int(hits[l, g, i]), mass[l, g, i]))
    return rows, missed, hit, total


with tempfile.TemporaryDirectory(prefix="kvfate-ghosts-") as folder:
    def path(name):
        return os.path.join(folder, name)

    meta = {"method": {"name": "made-up", "budget": 8}, "run": {"prompt_tokens": PROMPT}}
    x = make(write_kvf, path("x.kvf"), columns(), (L, H, G, T), meta)
    everyone = [(l, g) for l in range(L) for g in range(G)]
    names = ["head", "layer", "index", "token", "evict_step", "first_hit", "hits", "mass"]
    for more, heads, tokens, least in (([], everyone, range(T), 0), (["--hits", "3"], everyone, range(T), 3),
                                       (["--tokens", "5:30"], everyone, range(5, 30), 0), (["--hits", "99"], everyone, range(T), 99),
                                       (["--head", "L1H2-4", "--hits", "1"], [(1, 2), (1, 3), (1, 4)], range(T), 1)):
        data, said = table(kvfate, "missed", x, *more)
        rows, missed, hit, total = expected(heads, tokens, least)
        check(f"{more}: columns", list(data) == names, list(data))
        check(f"{more}: rows", list(zip(*(data[n] for n in names))) == rows)
        check(f"{more}: counts", (float(said["entries_missed"]), float(said["entries_hit"])) == (missed, hit), said)
        check(f"{more}: mass", abs(float(said["mass"]) - total) < 1e-9)
        of_heads = np.array([kept[l, g] for l, g in heads])
        for key, part in (("missed_mass", of_heads), ("missed_mass_after_prompt", of_heads[:, PROMPT:])):
            check(f"{more}: {key}", abs(float(said[key]) - np.nanmean(1 - part)) < 1e-12, said[key])

    entries, _ = table(kvfate, "eviction", x)
    shape = (L, H, G // H, T)
    at = np.where(first == ALIVE, T + 1, first).reshape(shape).min(2)
    check("eviction: hits of an entry", np.array_equal(entries["hits"], hits.reshape(shape).sum(2).ravel()), entries["hits"][:9])
    check("eviction: the first hit", np.array_equal(entries["first_hit"], np.where(at > T, -1, at).ravel()), entries["first_hit"][:9])
    part, _ = table(kvfate, "eviction", x, "--head", "L1K0", "--tokens", "5:30")
    check("eviction: hits of a part", list(part["hits"]) == list(hits.reshape(shape).sum(2)[1, 0, 5:30]), part["hits"])
    bare = make(write_kvf, path("bare.kvf"), columns()[:1], (L, H, G, T), meta)
    check("eviction: no hits without a shadow", "hits" not in table(kvfate, "eviction", bare)[0])

    _, missed, hit, _ = expected(everyone, range(T), 0)
    said = subprocess.run([kvfate, "missed", x], capture_output=True, text=True)
    check("summary", f"{missed} head-token pairs" in said.stdout and f"{100 * hit / missed:.1f} %" in said.stdout, said)
    for ext in ("tsv", "csv", "npz", "json"):
        r = subprocess.run([kvfate, "missed", x, "-o", path("r." + ext)], capture_output=True, text=True)
        check(ext, r.returncode == 0 and os.path.getsize(path("r." + ext)) > 100, r.stderr)

    # no needed entries; no header; an empty run
    evict[:], hits[:], first[:], mass[:], kept[:] = ALIVE, 0, ALIVE, 0, 1
    full = make(write_kvf, path("full.kvf"), columns(), (L, H, G, T))
    data, meta = table(kvfate, "missed", full)
    check("nothing missed", data["head"] == [] and float(meta["missed_mass"]) == 0 and "missed_mass_after_prompt" not in meta)
    said = subprocess.run([kvfate, "missed", full], capture_output=True, text=True)
    check("nothing missed: summary", said.returncode == 0 and "no query missed" in said.stdout, said)
    empty = [Column(c.name, c.dtype, c.space, c.values[:, :, :0], c.axis, c.flags) for c in columns()]
    check("empty", table(kvfate, "missed", make(write_kvf, path("e.kvf"), empty, (L, H, G, 0)))[0]["head"] == [])

    # errors
    for missing in range(5):
        rest = [c for k, c in enumerate(columns()) if k != missing]
        y = make(write_kvf, path("y.kvf"), rest, (L, H, G, T))
        word = columns()[missing].name
        refused(f"no {word}", 1, ["missed", y], word, "--shadow entries" if missing else "--probes evict")
    short = make(write_kvf, path("short.kvf"), columns(n=20), (L, H, G, T))
    refused("values are missing", 1, ["missed", short], "fewer than the")
    for more, word in ((["--hits", "-1"], "--hits"), (["--hits", "x"], "--hits"), (["--hits", ""], "--hits"), (["--head", "L0K0"], "query"),
                       (["-o", path("x.jpg")], ".tsv")):
        refused(" ".join(more), 2, ["missed", x, *more], word)

finish()
