#!/usr/bin/env python3
"""Tables in a database: every cell, unit and line of provenance compared with the same table as
JSON, several tables in one database, and all errors."""
import json
import os
import resource
import sqlite3
import sys

import numpy as np

from harness import Suite

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "analyze"))
from maker import Column, make  # noqa: E402

s = Suite()
L, H, G, T = 2, 2, 4, 6
rng = np.random.default_rng(2)
steps = rng.integers(2, 9, (L, H, T))
x = make(s.write_kvf, s.path("x.kvf"), [Column("tokens.id", "i32", "run", np.arange(T)), Column("evict_step", "u32", "kv", np.minimum(steps, T)),
                                        Column("nll", "f32", "run", rng.standard_normal(T))], (L, H, G, T),
         {"method": {"name": "it's \"h2o\""}}, texts=["a", "'); DROP TABLE eviction; --", "c\"d", "é", "", "\\t"])
db = s.path("study.sqlite")


def compare(name, argv, table):
    """Compares the table of a command in the database with its JSON."""
    r = s.run([*argv, "--json"])
    want = json.loads(r.stdout)
    base = sqlite3.connect(db)
    rows = base.execute(f'SELECT * FROM "{table}" ORDER BY rowid').fetchall()
    types = {row[1]: row[2] for row in base.execute(f'PRAGMA table_info("{table}")')}
    kinds = {"int": "INTEGER", "real": "REAL", "str": "TEXT"}
    s.check(f"{name}: columns", types == {c["name"]: kinds.get(c["type"], c["type"]) for c in want["columns"]}, types, want["columns"])
    s.check(f"{name}: cells", rows == list(zip(*(want["data"][c["name"]] for c in want["columns"]))), rows[:3])
    units = dict(base.execute("SELECT column_name, unit FROM kvfate_columns WHERE table_name = ?", [table]).fetchall())
    s.check(f"{name}: units", units == {c["name"]: c["unit"] for c in want["columns"]}, units)
    meta = dict(base.execute("SELECT key, value FROM kvfate_meta WHERE table_name = ?", [table]).fetchall())
    s.check(f"{name}: provenance", set(meta) == set(want["meta"]) and all(str(v) == meta[k] or float(meta[k]) == v for k, v in want["meta"].items()), meta)
    s.check(f"{name}: the database is whole", base.execute("PRAGMA integrity_check").fetchone() == ("ok",))
    base.close()


evicted, counted, tokens = ["eviction", x], ["trace", "ls", x], ["tokens", x]
s.accepted("a table", [*evicted, "-o", db])
compare("a table", evicted, "eviction")
first = list(sqlite3.connect(db).iterdump())
size = os.path.getsize(db)
s.accepted("the same again", [*evicted, "-o", db])
s.check("the same content", list(sqlite3.connect(db).iterdump()) == first and os.path.getsize(db) == size)
s.accepted("another beside it", [*counted, "-o", db])
s.accepted("one under a name", [*tokens, "-o", f"{db}/my \"odd\" 'name'"])
s.accepted("a part in place of the whole", [*evicted, "--tokens", "0:2", "-o", db])
compare("another", counted, "traces")
compare("replaced", [*evicted, "--tokens", "0:2"], "eviction")
base = sqlite3.connect(db)
names = {n for n, in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
s.check("all tables", names == {"eviction", "traces", "my \"odd\" 'name'", "kvfate_meta", "kvfate_columns"}, names)
texts = {t for row in base.execute("SELECT * FROM \"my \"\"odd\"\" 'name'\"") for t in row if isinstance(t, str)}
s.check("texts are texts", "'); DROP TABLE eviction; --" in texts, texts)
joined = base.execute("SELECT count(*) FROM eviction e JOIN kvfate_meta m ON m.table_name = 'eviction'").fetchone()
s.check("they can be joined", joined[0] > 0, joined)
base.close()

whole = open(db, "rb").read()
s.refused("a name of SQLite's own", [*counted, "-o", db + "/sqlite_x"], 2, "no name for a table")
s.refused("a name of ours", [*counted, "-o", db + "/kvfate_meta"], 2, "no name for a table")
s.refused("an empty name", [*counted, "-o", db + "/"], 2, "no name for a table")
other = s.file("text.sqlite", b"this is a text of some length")
s.refused("a file of another kind", [*counted, "-o", other], 1, "no SQLite database")
s.check("which stays", open(other, "rb").read() == b"this is a text of some length")
broken = s.file("broken.sqlite", whole[:100] + bytes(len(whole) - 100))
s.refused("a damaged database", [*counted, "-o", broken], 1, "cannot be put into this database")
s.check("which stays, too", open(broken, "rb").read() == whole[:100] + bytes(len(whole) - 100))
s.refused("a folder that is none", [*counted, "-o", s.path("none/x.sqlite")], 1, "none")


def small():
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) - 4096, len(whole) - 4096))


s.refused("a full disk", [*counted, "-o", db], 1, "study.sqlite", preexec_fn=small)
s.check("the database is as it was", open(db, "rb").read() == whole)
s.check("nothing lies about", sorted(n for n in os.listdir(s.work.name) if n.endswith(".part") or "journal" in n) == [])
s.finish()
