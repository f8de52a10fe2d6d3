"""Runs random valid and invalid methods on tiny models and checks properties that hold for every
method.

usage: random_methods.py KVFATE MODELS [--cases N] [--seconds S] [--seed K] [--only CASE] [--verbose]
                         [--emulated KVFATE_EMULATED]

A case is a model, a prompt, a budget, a method with options, overrides and gates, types of the
cache and of matrix multiplications, probes and shadows. The run ends with 0, or with 2 and one
sentence. Its trace passes `verify` and does not depend on threads and chunks. Queries see no more
entries than the method allows, sinks and recent entries stay, and evict_step is after the append.
With --emulated all cases are exact, and the trace is compared with that of the emulated device
instead of other threads and chunks. A case depends only on (seed, its number): --only repeats one
case.
"""
import argparse
import ast
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data")
sys.dont_write_bytecode = True
sys.path.insert(0, DATA)
import make_gates  # noqa: E402
SHAPE = {"layers": 2, "heads": 4, "kv-heads": 2, "head-dim": 16, "dim": 64}
MHA = "--layers 2 --heads 3 --kv-heads 3 --head-dim 16 --dim 32 --ffn 32 --vocab 259 --seed 3 --type f32"
WINDOWED = "--layers 2 --heads 4 --kv-heads 2 --head-dim 16 --dim 64 --ffn 64 --vocab 259 --seed 20 --window 17"
POSITIONS = 240  # of given numbers: prompts of 1 to 200 tokens, answers of up to 40
KINDS = {"retention": ["rg", "rg2", "rg3", "rg10", "linear", "rgkv", "values"], "write": ["wgkv", "values"], "importance": ["locret", "values"],
         "heads": ["duo"], "blocks": ["seer"]}
NEEDS = {"trimkv": "retention", "dbtrimkv": "retention", "wgkv": "write", "wgkv-snapkv": "write", "wgkv-quest": "write",
         "locret": "importance", "duo": "heads", "seer": "blocks"}
PART_NEEDS = {"score=retention": "retention", "score=write-gate": "write", "score=importance": "importance", "read=seer": "blocks"}
SCORES = ("position received window-attention variance-attention below-even keydiff key-norm global-attention redundancy random retention "
          "write-gate importance expected-attention remaining-mass next-attention").split()
ALLOCATIONS = "uniform pyramid adaptive adaptive-pyramid cake global".split()
READS = "all quest seer seer-oracle rocket quest seer-oracle rocket".split()

SCORED = ["sinks", "recent", "protect", "every", "order", "slack", "chunk", "positions", "tie"]
WINDOW = ["window", "pool", "pool-kind", "group", "across", "support"]
OWN = {  # options that count only for the unchanged method
    "h2o": ["group"], "snapkv": WINDOW, "tova": WINDOW, "scissorhands": ["window"], "pyramidkv": WINDOW + ["beta"],
    "adakv": WINDOW + ["floor"], "ada-pyramidkv": WINDOW + ["beta", "floor"], "cake": ["window", "pool", "pool-kind", "gamma"],
    "rkv": WINDOW + ["history", "fold", "lambda"], "morphkv": WINDOW, "gkv": WINDOW + ["history", "fold", "lambda"], "snapkv-global": WINDOW + ["history", "fold"],
    "expected-attention": ["horizon", "epsilon"], "trimkv": ["offset", "lookahead"], "dbtrimkv": ["offset", "lookahead", "floor"],
    "wgkv": ["local", "tau", "compare"], "wgkv-snapkv": WINDOW + ["local", "tau", "compare", "fraction", "floor"],
    "wgkv-quest": ["local", "tau", "compare", "page", "dense", "group"], "quest": ["page", "dense", "group"],
    "rocketkv": WINDOW + ["page", "dense", "reads", "channels"],
    "seer": ["page", "dense"], "seer-oracle": ["page", "dense"], "duo": ["sinks", "recent", "protect", "sparsity"],
    "local": ["sinks", "recent", "protect"], "random": ["seed"]}
UNSCORED = {"full", "wgkv-quest", "quest", "seer", "seer-oracle", "duo", "local", "plan"}


def value(r, key, T):
    """Returns a value in range; small values are more likely."""
    near = r.choice([0, 1, 2, 3, 5, T // 8, T // 4, T // 2, T, 2 * T])
    some = {"order": ["before", "after"], "positions": ["original", "cache"], "tie": ["newer", "older"],
            "pool-kind": ["max", "avg"], "group": ["mean", "max", "sum", "none", "max-logits"], "across": ["mean", "max"],
            "support": ["all", "candidates"], "compare": ["ge", "gt"], "pool": [1, 3, 5, 7, 31, 1023],
            "offset": [0, 1, 2, 3], "lookahead": [1, 2, 7, 65536], "horizon": [1, 2, 60], "dense": [0, 0, 1, 2, 3, 4096],
            "page": [1, 2, 3, 8, 16, 31, 64, 4096], "channels": [0, 0, 1, 5, 16, 17], "window": [1, 2, 3, 8, 33, 300], "seed": [0, 1, 2**53],
            "history": [0, 0.5, 1], "fold": ["max", "average", "sum"], "lambda": [0, 0.1, 0.5, 1], "gamma": [0, 1, 200, 1e9], "floor": [0, 0.2, 0.5, 1],
            "beta": [1, 1.5, 20, 1e9], "tau": [0, 0.1, 0.5, 1], "fraction": [0, 0.1, 0.5, 1], "epsilon": [0, 0.01, 1e9],
            "sparsity": [0, 0.3, 0.5, 1], "chunk": [0, 1, 7, 32, 100, 300], "slack": [0, 0, 1, 3, 2 * T]}
    if key in some:
        return r.choice(some[key])
    if key == "protect":
        return r.choice(["prompt", "sinks:3", f"sinks:{max(near, 1)}", "sinks:2+sinks:5", "none"] + ["system"] * (r.random() < 0.1))
    return max(near, 1) if key in ("every", "local", "reads") else near


WRONG = ["pool=4", "every=0", "window=-1", "budget=0", "budget=x", "tau=2", "tau=nan", "group=", "=3", "sinks", "nothing=1", "lambda=1e",
         "page=0", "page=4097", "score=none", "read=none", "variant=old", "seed=-1", "recent=99999999999", ",", "sinks=1,,every=2"]


def method(r, presets, T):
    """Returns a method as text."""
    name = r.choice(presets)
    own = (SCORED if name not in UNSCORED else []) + OWN.get(name, [])
    options = [f"{k}={value(r, k, T)}" for k in r.sample(own, min(len(own), r.choice([0, 0, 1, 1, 2, 4])))]
    if r.random() < 0.12:
        options.append("score=" + r.choice(SCORES))
    if r.random() < 0.12:
        options.append("allocation=" + r.choice(ALLOCATIONS))
    if r.random() < 0.15:
        options.append("read=" + r.choice(READS))
        options += [f"{k}={value(r, k, T)}" for k in r.sample(["reads", "page", "dense"], r.choice([0, 0, 1, 2])) if name not in UNSCORED]
    if r.random() < 0.15:
        options.insert(0, "variant=" + r.choice(["paper", "code"]))
    if r.random() < 0.06:
        options.append(r.choice(WRONG))
    if r.random() < 0.06:
        key = r.choice(sorted({k for keys in OWN.values() for k in keys}))
        options.append(f"{key}={value(r, key, T)}")
    return name + (":" + ",".join(options) if options else "")


def heads(r, m, per_query):
    """Returns a set of heads of the model, sometimes an invalid one."""
    L, H, kind = m["layers"], m["heads" if per_query else "kv-heads"], "H" if per_query else "K"
    some = [f"L*{kind}*", f"L{r.randrange(L)}{kind}{r.randrange(H)}", f"L0{kind}*", f"L{L - 1}{kind}*", f"{r.randrange(L)}.{r.randrange(H)}",
            f"L0{kind}*,L{L - 1}{kind}0", f"L0-{L}{kind}0", f"L*{kind}{H - 1}"]
    wrong = ["L9K9", "L0", "x", "L1-0K0", "L0K0-", ""]
    return r.choice(wrong) if r.random() < 0.04 else r.choice(some)


def numbers(r):
    """Returns the types of numbers in a run."""
    if r.random() < 0.15:
        return ["--exact"]
    argv = ["--kv-type", r.choice(["f16", "f32", "q8_0", "i16", "i16"])] if r.random() < 0.6 else []
    return argv + (["--activations", r.choice(["16", "8", "8"])] if r.random() < 0.5 else [])


def need(text):
    for part, kind in PART_NEEDS.items():
        if part in text:
            return kind
    return NEEDS.get(text.partition(":")[0])


class Case:
    def __init__(self, campaign, number):
        r = self.r = random.Random(f"{campaign.seed}/{number}")
        self.campaign, self.number = campaign, number
        self.model = r.choice(campaign.models)
        self.P = r.choice([1, 2, 3, r.randint(1, 20), r.randint(10, 80), r.randint(1, 200)])
        self.n = r.choice([0, 1, 2, r.randint(3, 12), r.randint(0, 40)])
        T = self.T = self.P + max(self.n - 1, 0)  # the last sampled token is not fed back
        text = method(r, campaign.presets, T)
        self.argv = ["--method", text]
        if text != "full" and not text.startswith("duo") and r.random() < 0.97:
            self.argv += ["-B", str(r.choice([1, 2, 3, r.randint(1, 2 * T), r.randint(1, max(T // 2, 1)), T, T - 1 or 1]))]
        rows = [text]
        for _ in range(r.choice([0, 0, 0, 1, 1, 2])):
            rows.append(method(r, campaign.presets, T))
            if r.random() < 0.3:
                budget = f"budget={r.randint(1, 2 * T)}"
                rows[-1] += ("," if ":" in rows[-1] else ":") + budget
            self.argv += ["--override", heads(r, self.model["shape"], "group=none" in text) + "=" + rows[-1]]
        kinds = [k for k in map(need, rows) if k]
        if kinds and r.random() < 0.97:
            self.argv += ["--gates", r.choice(self.model["gates"][r.choice(kinds)])]
        elif not kinds and r.random() < 0.02:
            self.argv += ["--gates", r.choice(self.model["gates"]["retention"])]
        self.argv += ["--exact"] if campaign.emulated else numbers(r)
        self.argv += ["--probes", r.choice(["lean", "paper", "paper", "full"])]
        if r.random() < 0.15:
            self.argv += ["--shadow", r.choice(["entries", "model", "entries,model"])]
        self.ids = [r.randrange(3, 259) for _ in range(self.P)]

    def run(self, threads, chunk, name, device="cpu"):
        ids, out = self.campaign.path("ids"), self.campaign.path(name)
        Path(ids).write_text(" ".join(map(str, self.ids)))
        if os.path.exists(out):
            os.unlink(out)
        exe = self.campaign.exe if device == "cpu" else self.campaign.emulated
        self.command = [exe, "run", "--device", device, "--overwrite", "-m", self.model["path"], "--ids", ids, "-n", str(self.n), "--ignore-eos", "-q",
                        "-t", str(threads), "--chunk", str(chunk), *self.argv, "-o", out]
        return out, self.campaign.call(self.command)

    def play(self):
        """Returns the problem found, or None; counts accepted runs."""
        threads, chunk = self.r.choice([2, 2, 3, 4]), self.r.choice([1, 2, 7, 33, 64, 8192])
        out, p = self.run(1, 256, "a.kvf")
        err = p.stderr.decode("utf-8", "replace")
        if p.returncode == 2:
            err = "".join(line for line in err.splitlines(True) if not line.startswith("note: "))
            ok = err.startswith("kvfate run: ") and err.count("\n") == 1 and 20 < len(err) < 700 and not p.stdout
            return None if ok and not os.path.exists(out) else f"refused with {err!r}"
        if p.returncode != 0:
            return f"exit {p.returncode}: {err[-6000:]}"
        if any(line and not line.startswith("note: ") for line in err.split("\n")):
            return f"accepted, but stderr says {err[-6000:]}"
        self.campaign.accepted += 1
        if self.campaign.call([self.campaign.exe, "trace", "verify", out]).returncode != 0:
            return "verify refuses the trace"
        wrong = self.judge(out)
        if wrong:
            return wrong
        if self.campaign.emulated:
            return self.compare_device(out, chunk)
        other, q = self.run(threads, chunk, "b.kvf")
        if q.returncode != 0:
            return f"{threads} threads, chunk {chunk}: exit {q.returncode}: {q.stderr.decode('utf-8', 'replace')[-6000:]}"
        if read(out) != read(other):
            return f"{threads} threads and chunk {chunk} give another trace"
        return None

    def compare_device(self, out, chunk):
        other, q = self.run(2, max(chunk, 7), "b.kvf", "cuda")
        said = q.stderr.decode("utf-8", "replace")
        if q.returncode != 0 or "emulation" in said:
            return f"on a device, chunk {max(chunk, 7)}: exit {q.returncode}: {said[-2000:]}"
        return None if read(out) == read(other) else f"a device, chunk {max(chunk, 7)}, gives another trace"

    # ---- contents of the trace

    def judge(self, path):
        info = json.loads(self.campaign.call([self.campaign.exe, "trace", "info", "--json", path]).stdout)
        table = self.campaign.path("e.npz")
        if self.campaign.call([self.campaign.exe, "eviction", path, "-o", table]).returncode != 0:
            return "eviction fails"
        e = npz(table, ["layer", "index", "token", "evict_step", "reason"])
        gone = {}  # head: [(evict_step or None, reason)] by token
        for layer, head, _, step, reason in zip(*e.values()):
            gone.setdefault((layer, head), []).append((None if step < 0 else step, reason))
        steps = info["steps"]
        if steps > self.T or any(len(v) != steps for v in gone.values()):
            return f"{steps} steps, expected at most {self.T}"
        rows = [info["header"]["method"]] + info["header"].get("overrides", [])
        for i, row in enumerate(rows):
            mine = [h for h in gone if self.decider(rows, h) == i]
            wrong = self.judge_row(row, {h: gone[h] for h in mine}, steps)
            if wrong:
                return f"row {i} ({row['name']}): {wrong}"
        return None

    def decider(self, rows, head):
        return max([0] + [i for i in range(1, len(rows)) if in_set(head, rows[i]["heads"])])

    def judge_row(self, row, gone, T):
        p, fixed = row, {"streaming": ("window",), "duo": ("window",), "write-gate": ("refused",)}.get(row["admission"], ())
        scored = p["score"] != "none"
        limited = scored and p["budget"] > 0
        for head, entries in gone.items():
            for i, (step, reason) in enumerate(entries):
                if step is None:
                    continue
                if not i < step <= T:
                    return f"{head}: entry {i} leaves at step {step} of {T}"
                window = self.model["window"]
                if i < self.guarded(p.get("protect", "none")) and reason != "architecture":
                    return f"{head}: entry {i} of protect={p['protect']} leaves at {step}, reason {reason}"
                if window and (step > i + window or reason == "architecture" and step == i + window):
                    if step > i + window:
                        return f"{head}: entry {i} leaves at {step}, and no query sees it after {window}"
                    continue  # evicted by the model's sliding window, for any method
                if reason in fixed:
                    life = p["local"] if reason == "refused" else p["recent"]
                    if step != i + life or (reason == "window" and i < p["sinks"]):
                        return f"{head}: entry {i} leaves at {step}, reason {reason}, window {life}"
                elif not limited:
                    return f"{head}: entry {i} leaves, reason {reason}, in a row without a limit"
                elif i < p["sinks"] or step - i < max(p["recent"], 1):
                    return f"{head}: protected entry {i} leaves at {step}"
                elif p["budget"] >= T and not shares(p):
                    return f"{head}: entry {i} leaves at {step}, but the budget holds all"
        if not limited:
            if row["admission"] == "streaming" and any(max(n, default=0) > p["budget"] for n in map(self.seen, gone.values())):
                return "a query sees more than the budget"
            return None
        return self.judge_budget(p, gone, T)

    def guarded(self, text):
        """Returns how many first tokens `protect` names; prompts of ids have no system message."""
        return max([0] + [self.P if term == "prompt" else int(term[6:]) for term in text.split("+") if term != "none"])

    @staticmethod
    def seen(entries):
        """Returns the entries that each query sees."""
        change = [0] * (len(entries) + 1)
        for i, (step, _) in enumerate(entries):
            change[i] += 1
            if step is not None:
                change[step] -= 1
        n, out = 0, []
        for c in change[:-1]:
            n += c
            out.append(n)
        return out

    def judge_budget(self, p, gone, T):
        more = p["slack"] + (p["order"] == "after")
        sums = [self.seen(entries) for entries in gone.values()]
        first = self.P
        if p["chunk"]:
            first, more = p["chunk"], more
        for t in range(first, self.P if p.get("cut", "always") != "always" else T):
            most = p["budget"] + more + (p["chunk"] if t < self.P else 0)
            if not shares(p) and any(s[t] > most for s in sums):
                return f"query {t} sees {max(s[t] for s in sums)} entries of a head, over {most}"
            if sum(s[t] for s in sums) > most * len(sums):
                return f"query {t} sees {sum(s[t] for s in sums)} entries in all, over {most} of {len(sums)} heads"
        return None


def shares(p):
    return p["allocation"] != "uniform"


def in_set(head, text):
    """Returns True if "L0-1K*,1.0" includes the head."""
    def within(x, span):
        lo, _, hi = span.partition("-")
        return span == "*" or int(lo) <= x <= int(hi or lo)
    for item in text.split(","):
        if item.startswith("L"):
            layer, _, index = item[1:].replace("H", "K").partition("K")
        else:
            layer, _, index = item.partition(".")
        if item and within(head[0], layer) and within(head[1], index):
            return True
    return False


def read(path):
    return Path(path).read_bytes()


def npz(path, names):
    """Columns of int64 or text, without NumPy."""
    out = {}
    with zipfile.ZipFile(path) as z:
        for name in names:
            data = z.read(name + ".npy")
            start = 10 + int.from_bytes(data[8:10], "little")
            kind = ast.literal_eval(data[10:start].decode())["descr"]
            if kind == "<i8":
                out[name] = memoryview(data[start:]).cast("q").tolist()
            else:
                wide = 4 * int(kind[2:])
                out[name] = [data[at:at + wide].decode("utf-32-le").rstrip("\0") for at in range(start, len(data), wide)]
    return out


class Campaign:
    def __init__(self, o, folder):
        self.exe, self.folder, self.seed, self.accepted = os.path.abspath(o.kvfate), folder, o.seed, 0
        self.emulated = o.emulated and os.path.abspath(o.emulated)
        listed = self.call([self.exe, "methods"]).stdout.decode().split("\n")[1:]
        self.presets = [line.split()[0] for line in listed if line]
        self.models = [self.prepare(m, i) for i, m in enumerate(self.tiny(os.path.abspath(o.models)))]

    def path(self, name):
        return os.path.join(self.folder, name)

    def call(self, argv):
        env = dict(os.environ)  # every report of a sanitizer ends the program
        env.setdefault("ASAN_OPTIONS", "detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1")
        env.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
        env.setdefault("TSAN_OPTIONS", "halt_on_error=1:exitcode=66")
        if self.emulated:  # CPU kernels with the device's order of sums
            env["KVFATE_CPU_MASK"] = "0"
        return subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=600, env=env)

    def golden(self, family):
        return json.loads(Path(os.path.join(DATA, "golden", family + "_golden.json")).read_text())["cases"][::2]

    def tiny(self, folder):
        """Returns (file, options of its generator): grouped, packed weights, one KV head, as many
        KV heads as query heads, a sliding window, norms of queries and keys."""
        cases, qwen = self.golden("tiny"), self.golden("qwen")
        made = [(self.path(name), args) for name, args in (("mha.gguf", MHA), ("windowed.gguf", WINDOWED))]
        for path, args in made:
            subprocess.run([sys.executable, os.path.join(DATA, "golden", "tools", "gen_tiny.py"), *args.split(), "-o", path], check=True)
        return [(os.path.join(folder, f"tiny{i}.gguf"), cases[i]["args"]) for i in (0, 3, 6, 7)] + \
            [*made, (os.path.join(folder, "qwen0.gguf"), qwen[0]["args"])]

    def prepare(self, model, index):
        path, args = model
        words = args.split()
        shape = dict(SHAPE, **{k[2:]: int(v) for k, v in zip(words, words[1:]) if k[2:] in SHAPE})
        gates = {}
        for kind, layouts in KINDS.items():
            gates[kind] = [self.gates(shape, index, kind, layout) for layout in layouts]
        window = dict(zip(words, words[1:])).get("--window")
        return {"path": path, "shape": shape, "gates": gates, "window": window and int(window)}

    def gates(self, m, index, kind, layout):
        out = self.path(f"{index}.{kind}.{layout}.safetensors")
        more = ["--kind", kind, "--tokens", str(POSITIONS)] if layout == "values" else []
        data = make_gates.build(make_gates.options([
            "--layout", layout, "--layers", str(m["layers"]), "--heads", str(m["heads"]), "--kv-heads", str(m["kv-heads"]),
            "--head-dim", str(m["head-dim"]), "--d-model", str(m["dim"]), "--hidden", "6", "--seed", "5", *more, "-o", out]))
        Path(out).write_bytes(data)
        return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kvfate")
    parser.add_argument("models", help="folder of the tiny models")
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--emulated", help="the program on an emulated device")
    o = parser.parse_args()
    end, done, failed = time.monotonic() + o.seconds, 0, 0
    with tempfile.TemporaryDirectory(prefix="kvfate-random-") as folder:
        campaign = Campaign(o, folder)
        for number in range(o.cases * (6 if os.environ.get("KVFATE_TESTS") == "long" else 1)) if o.only is None else [o.only]:
            if time.monotonic() > end or failed >= 20:
                break
            case = Case(campaign, number)
            try:
                wrong = case.play()
            except subprocess.TimeoutExpired:
                wrong = "no end after 600 s"
            done += 1
            if wrong or o.verbose:
                print(f"case {number}: {' '.join(case.command[1:])}\n    {wrong or 'ok'}", flush=True)
            failed += wrong is not None
        accepted = campaign.accepted
    print(f"{done} cases with seed {o.seed}, {accepted} of them runs, {failed} failed")
    if o.only is None and o.cases >= 100 and o.seconds > 1e8 and accepted * 4 < done:
        sys.exit("too few cases are runs: the test has lost its bite")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
