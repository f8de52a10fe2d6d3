#!/usr/bin/env python3
"""usage: test_lacking.py KVFATE WRITE_KVF

Check traces without some columns.  Results that do not depend on them are unchanged.  Dependent results are blank or
omitted, and one line on standard error names them all and the probes that record them.  If an analysis needs a
missing column, one error names all missing ones.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from check import check, finish, kvfate, refused  # noqa: E402
from maker import AGE, ALIVE, SNAPSHOT, Column, make  # noqa: E402

write_kvf = os.path.abspath(sys.argv[2])
L, H, G, T, P = 2, 2, 4, 60, 30
CRITERIA = ("top64", "top128", "top256", "top512", "mass.90", "mass.95", "mass.99")
EVICT = "(kvfate run --probes evict, or kvfate trace import)"
STEP = "(kvfate run --probes evict, or kvfate trace import of evict_step or kept)"
LEAN = "(kvfate run --probes lean, or kvfate trace import)"
ROLE = "(kvfate run --probes lean, or kvfate trace import of tokens.role or --prompt)"
SURVIVAL = "(kvfate run --probes survival, or kvfate trace import of attention)"


def columns(rng):
    evict = np.arange(T) + rng.integers(1, 2 * T, (L, H, T))
    evict[evict > T] = ALIVE
    gone = evict < ALIVE
    some = np.where(gone, rng.random((L, H, T)), np.nan)
    yield Column("tokens.id", "i32", "run", rng.integers(0, 99, T))
    yield Column("tokens.role", "u8", "run", np.arange(T) >= P)
    yield Column("evict_step", "u32", "kv", evict, flags=SNAPSHOT)
    yield Column("evict_reason", "u8", "kv", np.where(gone, rng.integers(1, 4, (L, H, T)), 0), flags=SNAPSHOT)
    yield Column("evict_score", "f32", "kv", some, flags=SNAPSHOT)
    yield Column("evict_margin", "f32", "kv", some, flags=SNAPSHOT)
    yield Column("evict_tie", "u8", "kv", gone & (rng.random((L, H, T)) < 0.3), flags=SNAPSHOT)
    for c in CRITERIA:
        yield Column("last_selected." + c, "u16", "query", np.minimum(rng.integers(0, T, (L, G, T)), T - 1 - np.arange(T)), flags=SNAPSHOT | AGE)


def table(argv):
    r = subprocess.run([kvfate, *argv, "--json"], capture_output=True, text=True)
    check(f"{argv[0]} succeeds", r.returncode == 0, argv, r.returncode, r.stderr)
    t = json.loads(r.stdout)
    return t["data"], t["meta"], r.stderr


def compare(name, whole, path, argv, missing, blank, left_out=(), keep=None):
    """Compare the table of a trace without some columns with that of the complete one.  blank: {column: value}; keep:
    remaining rows.
    """
    (want, about, said), (got, told, line) = table([*argv, whole]), table([*argv, path])
    check(f"{name}: nothing is said of the whole one", not said and "missing" not in about, said)
    check(f"{name}: one line", line == f"kvfate {' '.join(argv[:3]) if '--as' in argv else argv[0]}: the trace lacks {missing}; the values that need it are blank or left out\n", line)
    check(f"{name}: metadata", told == {**{k: v for k, v in about.items() if k not in left_out}, "missing": missing}, told, about)
    rows = [k for k in range(len(next(iter(want.values())))) if keep is None or keep(want, k)]
    check(f"{name}: columns", list(got) == list(want), list(got))
    for c, values in want.items():
        expected = [blank[c]] * len(rows) if c in blank else [values[k] for k in rows]
        check(f"{name}: {c}", got[c] == expected, got[c][:5], expected[:5])
        check(f"{name}: {c} was not blank", c not in blank or any(v != blank[c] for v in values))


with tempfile.TemporaryDirectory(prefix="kvfate-lacking-") as folder:
    def kvf(name, *without, run=()):
        return make(write_kvf, os.path.join(folder, name), [c for c in columns(np.random.default_rng(4)) if c.name not in without], (L, H, G, T),
                    {"run": {"prompt_tokens": P, **dict(run)}, "method": {"name": "mine"}}, [f"t{i} " for i in range(T)])

    x = kvf("x.kvf")
    rest = ("evict_reason", "evict_score", "evict_margin", "evict_tie")
    reasons = ["evicted_" + r for r in ("budget", "window", "refused", "architecture", "plan")]
    compare("eviction", x, kvf("step.kvf", *rest), ["eviction"], f"{', '.join(rest)} {EVICT}",
            {"reason": "", "score": None, "margin": None, "tie": None}, reasons)
    compare("eviction without scores", x, kvf("score.kvf", "evict_score"), ["eviction"], f"evict_score {EVICT}", {"score": None})
    compare("eviction of tokens", x, kvf("score.kvf", "evict_score", "evict_tie"), ["eviction", "--tokens", "7:33", "--head", "L1K0"],
            f"evict_score, evict_tie {EVICT}", {"score": None, "tie": None})
    compare("tokens", x, kvf("role.kvf", "tokens.role"), ["tokens"], f"tokens.role {ROLE}", {"role": ""})
    compare("tokens by head", x, kvf("id.kvf", "tokens.role", "tokens.id"), ["tokens", "--by-head"], f"tokens.id {LEAN}, tokens.role {ROLE}",
            {"id": -1, "role": ""})
    both = ["tokens", x, kvf("one.kvf", "tokens.id"), kvf("other.kvf", "tokens.role")]
    check("several traces", table(both)[1]["missing"] == f"tokens.id {LEAN}, tokens.role {ROLE}")
    role = kvf("role.kvf", "tokens.role")
    compare("occupancy", x, role, ["size"], f"tokens.role {ROLE}", {}, keep=lambda t, k: t["class"][k] == "all")
    compare("occupancy by role", x, role, ["size", "--by", "role", "--every", "7"], f"tokens.role {ROLE}", {}, keep=lambda t, k: t["class"][k] == "all")
    two = kvf("two.kvf", *("last_selected." + c for c in CRITERIA if c not in ("top64", "mass.90")))
    others = ", ".join("last_selected." + c for c in CRITERIA if c not in ("top64", "mass.90")) + " " + SURVIVAL
    for argv in (["survival", "--horizons", "1,4,16"], ["survival", "--as", "hazard"]):
        compare(argv[0], x, two, argv, others, {}, keep=lambda t, k: t["criterion"][k] in ("top64", "mass.90"))

    r = subprocess.run([kvfate, "eviction", kvf("step.kvf", *rest)], capture_output=True, text=True)
    check("the summary says nothing of reasons and ties", "reasons" not in r.stdout and "tie rule" not in r.stdout and "\n\n" not in r.stdout, r.stdout)
    for argv in (["eviction"], ["tokens"], ["size"], ["survival", "--criterion", "top64"]):
        path = os.path.join(folder, "f.svg")
        bare = kvf("bare.kvf", *rest, "tokens.role", "tokens.id", *("last_selected." + c for c in CRITERIA[1:]))
        r = subprocess.run([kvfate, *argv, bare, "-o", path], capture_output=True, text=True)
        check(f"{argv[0]} is drawn", r.returncode == 0 and os.path.getsize(path) > 1000 and r.stderr.count("\n") == (argv[0] != "survival"), r)

    refused("a criterion by its name", 1, ["survival", two, "--criterion", "top128"], "last_selected.top128", "--probes survival")
    none = kvf("none.kvf", "evict_step", "tokens.role", *("last_selected." + c for c in CRITERIA))
    refused("none of the criteria", 1, ["survival", none], "last_selected.top64")
    refused("one column", 1, ["eviction", none], f"no column evict_step {STEP}")
    refused("all that is needed", 1, ["size", "--as", "kv-size", none], f"no column evict_step {STEP}")
    refused("columns of several probes", 1, ["heads", none], "no columns mass.sum, mass.max (kvfate run --probes mass, or kvfate trace import of attention), last_selected.mass.90 "
            f"{SURVIVAL}, entropy (kvfate run --probes steps, or kvfate trace import of attention)")
    captured = kvf("captured.kvf", "evict_step", "under.seen", run={"captured": {"attention": "sdpa"}})
    refused("of a capture, its own way", 1, ["attention", "--as", "sparsity", captured], 'kvfate.capture with probes="window", or kvfate trace import of attention')
    refused("of a capture, what it has no way for", 1, ["retention", "--as", "calibration", captured], "log_beta (kvfate run --method trimkv --gates FILE, or kvfate trace import of log_beta",
            'kvfate.capture with probes="calibration"')
    refused("a way out", 1, ["compare", x, x], "no columns mass.sum", "--by tokens --value evict_step")
    refused("one of several", 1, ["retention", "--as", "variance", x], "log_beta", "write_gate", "importance", "one of them is enough")

    # Lives in the cache, from only evict_step: an entry is alive at age n if query i + n still saw it.
    alone = kvf("alone.kvf", *rest, "tokens.role", "tokens.id", *("last_selected." + c for c in CRITERIA))
    evict = np.minimum(next(c.values for c in columns(np.random.default_rng(4)) if c.name == "evict_step").astype(float), T)
    got, told, line = table(["survival", "--horizons", "0,1,4,16", "--space", "kv-union", alone])
    check("survival without selections says so", "last_selected.top64" in told["missing"] and line.count("\n") == 1 and set(got["criterion"]) == {"held"}, line)
    for k, head in enumerate(got["head"]):
        if head != "all":
            n, (layer, h) = got["horizon"][k], map(int, head[1:].split("K"))
            risk = [i for i in range(T) if i + n < T]
            alive = sum(evict[layer, h, i] > i + n for i in risk)
            check(f"held: {head} at {n}", (got["at_risk"][k], got["alive"][k]) == (len(risk), alive), got["at_risk"][k], got["alive"][k], len(risk), alive)
    ages, told, line = table(["retention", alone])
    want = [int(evict[layer, h, i] - 1 - i) for layer in range(L) for h in range(H) for i in range(T)]
    check("retention without selections", told["criterion"] == "held" and ages["last_use_age"] == want and "log_beta" in line, told, ages["last_use_age"][:9], want[:9])
    for argv in (["survival", x, "--criterion", "held", "--space", "kv-union"], ["survival", "--as", "hazard", x, "--criterion", "held"], ["survival", "--as", "decay", x, "--criterion", "held"]):
        check(f"{argv[0]} of a whole trace", set(table(argv)[0]["criterion"]) == {"held"})
finish()
