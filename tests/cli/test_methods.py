#!/usr/bin/env python3
"""kvfate methods: its description of a method equals the settings of a run."""
import json
import os
import re

from harness import Suite

s = Suite()
PROMISED = ["name", "admission", "score", "allocation", "trigger", "selection", "summary", "source"]
MORE = ["gates", "code", "aliases", "needs", "scope", "cost", "protects", "state_formula", "state_bytes", "budget", "options"]
BUDGET = 40
TACIT = {"fold": "max", "stride": 0, "slots": "time", "divide": "none", "channels": 0, "protect": "none", "of": "prompt", "cut": "always"}  # not recorded in a trace


def ask(*args):
    r = s.accepted(" ".join(map(str, args)), ["methods", *map(str, args)])
    return r.stdout.decode()


def effective(method, budget):
    """Returns the numbers in the header of a trace."""
    out = s.path("x.kvf")
    limit = ["--budget", str(budget)] if budget else []
    s.accepted(method + ": run", ["run", "--overwrite", "-m", s.model(), "--raw", "-p", "abc", "-n", "2", "--method", method, *limit, "--probes", "evict",
                                  "-q", "-o", out])
    return json.loads(s.accepted(method + ": info", ["trace", "info", out, "--json"]).stdout)["header"]["method"]


rows = json.loads(ask("--json", "-B", BUDGET))
s.check("rows", len(rows) > 30 and len({r["name"] for r in rows}) == len(rows))
table = ask()
for r in rows:
    name = r["name"]
    s.check(name + ": members", list(r) == PROMISED + MORE, list(r))
    alone = ["-B", BUDGET] if name != "duo" else []
    s.check(name + ": the same alone", json.loads(ask(name, "--json", *alone)) == r)
    text = ask(name, *alone)
    for o in r["options"]:
        line = next(line.split() for line in text.splitlines() if line.startswith(f"  {o['key']} "))
        s.check(f"{name}: {o['key']} in the text", line[1] == str(o["value"]) or float(line[1]) == o["value"], line)
    s.check(name + ": the parts in the text", all(f" {r[k]}" in text for k in PROMISED[1:6] + ["source", "needs", "scope"]), text)
    line = next(line for line in table.splitlines() if line.startswith(name + " "))
    s.check(name + ": the parts in the table", line.split()[:6] == [r[k] for k in PROMISED[:6]] and line.endswith(r["summary"]), line)

# As they run; methods that need a file cannot run here.
for r in rows:
    if r["gates"] or "plan" in r["needs"] or "twin" in r["needs"]:
        continue
    ran = effective(r["name"], r["budget"])
    for o in r["options"]:
        s.check(f"{r['name']}: {o['key']} as it runs", ran.get(o["key"], TACIT.get(o["key"])) == o["value"], ran, o)
    s.check(r["name"] + ": parts as it runs", [ran[k] for k in ("name", "admission", "score", "allocation", "trigger", "read", "budget")]
            == [r[k] for k in PROMISED[:6]] + [r["budget"]], ran)

# Listed options are accepted within their range and not beyond; unlisted options are rejected.
keys = sorted({o["key"] for r in rows for o in r["options"]})
s.check("40 options in all", len(keys) == 40, keys)
for n, key in enumerate(keys):
    have = [r for r in rows if any(o["key"] == key for o in r["options"])]
    lack = [r for r in rows if r not in have]
    for r in (have[n % len(have)], have[-1]):
        o, limit = next(o for o in r["options"] if o["key"] == key), ["-B", "100000"] if r["budget"] else []
        wrong = ["other"] if "values" in o else ["1.5x", str(o["min"] - 1), str(o["max"] + 1)]
        for value in wrong + ["0.5"] * (o.get("type") == "integer"):
            s.refused(f"{r['name']}: {key}={value}", ["methods", f"{r['name']}:{key}={value}", *limit], 2, "not a value")
        at = json.loads(ask(f"{r['name']}:{key}={o.get('min', o['value'])}", "--json", *limit))
        s.check(f"{r['name']}: {key} at its least", o.get("min", o["value"]) in [x["value"] for x in at["options"] if x["key"] == key], at)
    for r in (lack[n % len(lack)], lack[-1], lack[0]):
        limit = ["-B", "100000"] if r["budget"] else []
        s.refused(f"{r['name']}: {key}", ["methods", f"{r['name']}:{key}={have[0]['options'][0]['value']}", *limit], 2, "no effect")

# variant=code has the values in `code`, and no effect if it is null.
for r in rows:
    limit = ["-B", BUDGET] if r["budget"] else []
    code = json.loads(ask(r["name"] + ":variant=code", "--json", *limit))
    given = json.loads(ask(r["name"] + (":" + r["code"] if r["code"] else ""), "--json", *limit))
    s.check(r["name"] + ": code", code == given and (r["code"] is None) == (code == r), code)

# Published numbers shrink with the budget (docs/reference/methods.md), and bytes follow from them:
# g = 3, D = 64.
by = {r["name"]: r for r in json.loads(ask("--json", "-B", 100))}
value = lambda name, key: next(o["value"] for o in by[name]["options"] if o["key"] == key)
for name, key, want in (("snapkv", "window", 25), ("snapkv", "recent", 25), ("pyramidkv", "window", 8), ("window", "recent", 96), ("h2o", "recent", 50),
                        ("scissorhands", "every", 50), ("rkv", "every", 25), ("morphkv", "window", 25), ("expected-attention", "every", 1), ("expected-attention", "epsilon", 0.01),
                        ("expected-attention", "floor", 0.2), ("local", "sinks", 25), ("wgkv-quest", "local", 25),
                        ("quest", "group", "none"), ("seer", "page", 64), ("duo", "sinks", 64), ("locret", "positions", "cache")):
    s.check(f"{name}: {key} at 100", value(name, key) == want, value(name, key))
rows_of = lambda w: 4 * 3 * (w + 1) + 8 + 4  # one row more than the window; their sum in double and the append step
for name, want in (("full", 0), ("h2o", 3 * 8), ("snapkv", rows_of(25)), ("pyramidkv", rows_of(8)), ("tova", rows_of(1)), ("knorm", 4),
                   ("keydiff", 4 * 64 + 4 + 1), ("rkv", rows_of(8) + 4 * 64 + 4), ("trimkv", 4 + 8), ("wgkv", 4), ("wgkv-snapkv", rows_of(25) + 4),
                   ("quest", 2 * 4 * 64 / 16), ("wgkv-quest", 4 + 2 * 4 * 64 / 16), ("next-topk", 3 * 12)):
    s.check(f"{name}: bytes", by[name]["state_bytes"] == want, by[name]["state_bytes"], want)
one = json.loads(ask("snapkv:group=none", "--json", "-B", 100))
s.check("group=none: a query head for itself", one["scope"] == "query head" and one["state_bytes"] == 4 * 26 + 12, one)
s.check("cost by what is reduced", [json.loads(ask("snapkv" + o, "--json"))["cost"] for o in ("", ":across=max", ":support=candidates")] == ["g n", "g w n", "g w n"])
s.check("no budget where none is needed", [by[n]["budget"] for n in ("full", "duo", "wgkv")] == [0, 0, 100] and json.loads(ask("wgkv", "--json"))["budget"] == 0)
s.check("256 without -B", [json.loads(ask(n, "--json"))["budget"] for n in ("h2o", "quest", "full")] == [256, 256, 0])

# docs/reference/methods.md: the lines of options and cost below each method.
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "reference", "methods.md")) as f:
    page = f.read()
COMMON = {"sinks", "recent", "protect", "every", "order", "slack", "stride", "chunk", "positions", "tie", "of", "cut"}
for r in by.values():
    name, own = r["name"], {o["key"]: o["value"] for o in r["options"]}
    formula = re.sub(r"g \(", "g*(", re.sub(r"(\d) ([gDd])", r"\1*\2", r["state_formula"]))
    bytes_ = eval(formula, {"g": 3, "D": 64, "d": 128, "w": own.get("window"), "p": own.get("page")})
    s.check(name + ": bytes of the formula", bytes_ == r["state_bytes"], formula, bytes_, r["state_bytes"])
    section = re.search(rf"^## [^\n]*(?<![\w-]){name}(?![\w-])[^\n]*\n(.*?)(?=^## )", page, re.M | re.S).group(1)
    said = re.search(r"^\* Options: (.*)$", section, re.M).group(1)
    both = {"beta"} if name == "adakv" else set()  # its section also describes ada-pyramidkv
    listed = set(re.findall(r"`(\w+)`", said.replace("ada-pyramidkv", ""))) - both
    s.check(name + ": options in the docs", listed | (COMMON if "common" in said else set()) == set(own), said, sorted(own))
    s.check(name + ": cost in the docs", re.search(r"^\* Cost: .", section, re.M))

# The table of options: key, meaning and values.
listed = {c[0].replace("-", "_"): c[1:] for c in ([x.strip() for x in line.strip("|").split("|")] for line in page.splitlines() if line.count("|") == 4)}
options = {o["key"]: o for r in (json.loads(ask("knorm:allocation=file", "--json", "-B", 64)), *rows) for o in r["options"]}
for key, o in options.items():
    values = ", ".join(o["values"]) if "values" in o else f"{o['min']:g}.." + (f"{o['max']:g}" if o["max"] < 1 << 20 else "")
    s.check(key + ": in the table of options", listed.get(key) == [o["help"], values], listed.get(key), o)
s.check("no other option in the table", set(listed) - set(options) <= {"option", "___"}, sorted(set(listed) - set(options)))

# The sources of the defaults: all defaults that are not neutral, with the program's values and a
# source each.
NEUTRAL = {"order": "before", "positions": "original", "tie": "newer", "pool_kind": "max", "group": "mean", "across": "mean", "support": "all", "fold": "max",
           "divide": "none", "slots": "time", "of": "prompt", "cut": "always", "compare": "ge", "protect": "none", "every": 1, "pool": 1, "lookahead": 1}
B = 100000
wanted = {}
for r in json.loads(ask("--json", "-B", B)):
    own = {o["key"]: o["value"] for o in r["options"]}
    names = own | {"B": B}
    listed = re.findall(rf"^\| {r['name']} \([^)]+\) \| ([^|]+) \|$", page, re.M)
    parts = [part.partition(": ") for cell in listed for part in cell.split("; ")]
    for line in [(*pair, source) for defaults, _, source in parts for pair in re.findall(r"`(\w+)` ([^,]+)", defaults)]:
        key, default, source = line
        is_word = isinstance(own.get(key), str)
        value = default if is_word else eval(default.replace("/", "//"), {}, names)
        s.check(f"{r['name']}: {key} is the default that has a source", own.get(key) == value and len(source) > 3, line, own.get(key))
        wanted[r["name"], key] = True
    for key, value in own.items():
        s.check(f"{r['name']}: {key} has a source", value == NEUTRAL.get(key, 0) or (r["name"], key) in wanted, value)

s.refused("no such row", ["methods", "nope"], 2, "no method 'nope'", "lists them")
s.refused("two rows", ["methods", "h2o", "tova"], 2, "too many operands")
s.refused("no such option", ["methods", "h2o:x=1"], 2, "unknown option 'x'")
s.refused("budget 0", ["methods", "-B", "0"], 2, "-B must be between 1")
s.refused("too small a budget", ["methods", "window:sinks=4", "-B", "4"], 2, "do not fit into --budget 4")
s.finish()
