#!/usr/bin/env python3
"""saliency: compared with finite differences of a float64 model; its identities; its trace; bad
input."""
import json
import os
import sys
from pathlib import Path

import numpy as np

from harness import Suite

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", d) for d in ("data", "figures", "format", "oracle")]
import make_gates  # noqa: E402
import digest  # noqa: E402,F401 finds the package
import kvfate  # noqa: E402
import tiny_llama  # noqa: E402
from test_formats import png  # noqa: E402

s = Suite()
T, EPS = 14, 1e-4
IDS = np.random.default_rng(3).integers(3, 290, T).tolist()
IDS_FILE = s.file("ids.txt", " ".join(map(str, IDS)).encode())
TINY = ["--layers", "2", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--d-model", "64"]


# ---- by definition: ln w_i is added to the logit of entry i of a head for every query t >= i + W

class Shifted(tiny_llama.Session):
    """shift[layer][head][entry] for entries older than the window, own[layer][head] for the query's
    own entry."""

    def __init__(self, model, tokens, window, shift, own=None):
        super().__init__(model, tokens)
        self.window, self.shift, self.own = window, shift, own

    def logits(self, layer, g, head):
        seen = np.array(self.alive[layer][head])
        z = super().logits(layer, g, head) + np.where(self.t - seen >= self.window, self.shift[layer, head, seen], 0)
        return z if self.own is None else z + (seen == self.t) * self.own[layer, head]


def log_p(model, ids, *how):
    run = Shifted(model, len(ids), *how)
    z = np.array([run.feed(i) for i in ids])[:-1]
    z -= z.max(1, keepdims=True)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def loss(kind, model, ids, full, start, *how):
    q = log_p(model, ids, *how)
    if kind == "nll":
        return -q[np.arange(start, len(ids) - 1), ids[start + 1:]].sum()
    return (np.exp(full) * (full - q))[start:].sum()


def differences(kind, model, ids, window, shift, start=0):
    """Returns -d loss / d ln w of every entry, and the loss."""
    full = log_p(model, ids, window, np.zeros_like(shift))
    out = np.zeros_like(shift)
    for at in np.ndindex(shift.shape):
        if at[2] < len(ids) - window:
            ends = []
            for step in (EPS, -EPS):
                moved = shift.copy()
                moved[at] += step
                ends.append(loss(kind, model, ids, full, start, window, moved))
            out[at] = (ends[1] - ends[0]) / (2 * EPS)
    return out, loss(kind, model, ids, full, start, window, shift)


# ---- the program's output

def read(path):
    lines = Path(path).read_text().splitlines()
    meta = dict(x[2:].split(": ", 1) for x in lines if x.startswith("# ") and ": " in x)
    rows = [x.split("\t") for x in lines if not x.startswith("#")]
    return {name: [r[c] for r in rows[1:]] for c, name in enumerate(rows[0])}, meta


def saliency(*argv, model=0, name="out.tsv"):
    r = s.accepted("saliency " + " ".join(argv), ["ablate", "--as", "saliency", "--overwrite", "-m", s.model(model), *argv, "-o", s.path(name)])
    return (*read(s.path(name)), r.stdout.decode())


def cube(values, model):
    return np.array(values, float).reshape(model.layers, model.kv_heads, -1)


def near(what, found, wanted):
    bound = 1e-4 * np.abs(wanted).max()  # f32 against f64: 3e-6 was observed
    worst = np.abs(found - wanted).max() if found.shape == wanted.shape else np.inf
    s.check(what, worst <= bound and np.abs(wanted).max() > 1e-5, f"off by {worst:.3g}, allowed {bound:.3g}", found, wanted)


def against_differences(what, kind, argv, ids, window, shift, model=0, oracle=None, start=0):
    oracle = oracle or tiny_llama.Llama(s.model(model))
    table, meta, _ = saliency("--loss", kind, "--window", str(window), *argv, model=model)
    wanted, total = differences(kind, oracle, ids, window, shift, start)
    near(what, cube(table["saliency"], oracle), wanted)
    s.check(what + ": the loss", abs(float(meta["loss_nats"]) - total) <= 1e-4 * max(1, abs(total)), meta["loss_nats"], total)
    return table, oracle


def open_points():
    zero = None
    for i, window in ((0, 1), (0, 3), (4, 1)):
        oracle = tiny_llama.Llama(s.model(i))
        zero = np.zeros((oracle.layers, oracle.kv_heads, T))
        argv = ["--ids", IDS_FILE]
        table, _ = against_differences(f"nll, model {i}, W = {window}", "nll", argv, IDS, window, zero, i, oracle)
        v = cube(table["saliency"], oracle)
        s.check("what no predicting query sees from behind the window is 0", not v[:, :, T - 1 - window:].any() and v[:, :, : T - 1 - window].all(), v)
        check_columns(table, v, window)


def check_columns(table, v, window):
    L, H, n = v.shape
    s.check("names", table["head"] == [f"L{l}K{h}" for l in range(L) for h in range(H) for _ in range(n)])
    s.check("layer, index, token", [table[c] for c in ("layer", "index", "token")]
            == [[str(x) for x in c] for c in zip(*np.ndindex(v.shape))])
    s.check("birth is the token's place", table["birth"] == table["token"])
    tokens = table["text"][:n]
    s.check("each head has the texts of all tokens", table["text"] == tokens * (L * H) and len(set(tokens)) > n // 2, tokens)
    order = [sorted(range(n), key=lambda i: (-abs(h[i]), -i)) for h in v.reshape(-1, n)]
    rank = [str(o.index(i) + 1) for o in order for i in range(n)]
    s.check("ranks by size", table["abs_rank"] == rank, table["abs_rank"], rank)
    queries = np.maximum(n - 1 - window - np.arange(n), 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(queries > 0, v / queries, np.nan)
    found = np.array([float(x) for x in table["per_query"]]).reshape(v.shape)
    s.check("per query", np.allclose(found, each, rtol=1e-12, atol=0, equal_nan=True))


def weakened_points():
    oracle = tiny_llama.Llama(s.model(0))
    half = np.full((oracle.layers, oracle.kv_heads, T), np.log(.5))
    for kind in ("nll", "kl"):
        against_differences(f"{kind} at weight 0.5", kind, ["--ids", IDS_FILE, "--weight", "0.5"], IDS, 2, half)


def later_queries():
    """Predictions from a query on, which `effect` scores if it is the first after the prompt."""
    oracle = tiny_llama.Llama(s.model(0))
    half = np.full((oracle.layers, oracle.kv_heads, T), np.log(.5))
    for start in (1, 9, T - 2):
        for kind, weight, shift in (("nll", "1", 0 * half), ("kl", "0.5", half)):
            argv = ["--ids", IDS_FILE, "--weight", weight, "--from", str(start)]
            table, _ = against_differences(f"{kind} from query {start}", kind, argv, IDS, 2, shift, start=start, oracle=oracle)
        reach = np.maximum(T - 1 - np.maximum(np.arange(T) + 2, start), 0)
        v = cube(table["saliency"], oracle)
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(reach > 0, v / reach, np.nan)
        s.check("per query, of those that count", np.allclose(np.array(table["per_query"], float).reshape(v.shape), each, rtol=1e-12, equal_nan=True))
    trace = s.path("answer.kvf")
    s.accepted("an answer", ["run", "--overwrite", "-m", s.model(0), "--ids", IDS_FILE, "-n", "6", "--ignore-eos", "-q", "-o", trace])
    named, meta, _ = saliency("--of", trace, "--from", "prompt")
    number, _, _ = saliency("--of", trace, "--from", str(T))
    s.check("the prompt's length by its name", named == number and meta["from"] == str(T) and meta["predictions"] == str(5 - 1), meta)
    for bad, words in (("x", "'x'"), ("-1", "--from"), (str(T - 1), "predicts no token"), ("prompt", "predicts no token")):
        s.refused(f"--from {bad}", ["ablate", "--as", "saliency", "-m", s.model(0), "--ids", IDS_FILE, f"--from={bad}"], 2, words)


def recorded_gates():
    path = s.path("gates.safetensors")
    s.file("gates.safetensors", make_gates.build(make_gates.options(["--layout", "wgkv", *TINY, "-o", path])))
    trace = s.path("wgkv.kvf")
    s.accepted("a run with write gates", ["run", "--overwrite", "-m", s.model(0), "--raw", "-p", "he ran in and out", "-n", "6", "-q",
                                          "--method", "wgkv", "--budget", "8", "--gates", path, "-o", trace])
    t = kvfate.open(trace)
    g = np.asarray(t.write_gate, float)
    ids = t["tokens.id"][:].tolist()
    s.check("gates differ", g.std() > 1e-3, g)
    against_differences("kl at the gates of a run", "kl", ["--of", trace, "--weight", "recorded"], ids, 2,
                        np.log(np.maximum(g, 1e-3)))


# ---- identities

def one_head_together():
    """A softmax does not change if all its logits are shifted: shifting all older entries of a head
    by c equals shifting the query's own entry by -c. So the sum over a head's entries at W = 1 is d
    loss / d (own logit)."""
    oracle = tiny_llama.Llama(s.model(0))
    zero = np.zeros((oracle.layers, oracle.kv_heads, T))
    table, meta, _ = saliency("--ids", IDS_FILE)
    heads, _, _ = saliency("--ids", IDS_FILE, "--by-head", name="heads.tsv")
    v = cube(table["saliency"], oracle)
    wanted = np.zeros(v.shape[:2])
    for at in np.ndindex(wanted.shape):
        own = np.zeros_like(wanted)
        own[at] = EPS
        wanted[at] = (loss("nll", oracle, IDS, None, 0, 1, zero, own) - loss("nll", oracle, IDS, None, 0, 1, zero, -own)) / (2 * EPS)
    near("sums of heads are those of their own entries", v.sum(2), wanted)
    near("the column sum", np.array(heads["sum"], float).reshape(wanted.shape), wanted)
    s.check("abs_sum, positive, top_token", np.allclose(np.array(heads["abs_sum"], float), np.abs(v).sum(2).ravel())
            and np.allclose(np.array(heads["positive"], float), (np.maximum(v, 0).sum(2) / np.abs(v).sum(2)).ravel())
            and [int(x) for x in heads["top_token"]] == np.abs(v).argmax(2).ravel().tolist(), heads)
    last, _, _ = saliency("--ids", IDS_FILE, "--window", str(T - 2))
    s.check("only the first entry is old enough, for the last query", cube(last["saliency"], oracle).any(axis=(0, 1)).tolist() == [True] + [False] * (T - 1), last["saliency"])


# ---- compared with the numbers recorded in a run

def ranks(x):
    x = np.asarray(x)
    return np.array([(x < v).sum() + ((x == v).sum() + 1) / 2 for v in x])


def spearman(x, y):
    return np.corrcoef(ranks(x), ranks(y))[0, 1] if np.ptp(x) > 0 and np.ptp(y) > 0 else np.nan


def beside_a_run():
    path, trace = s.path("rg.safetensors"), s.path("trim.kvf")
    s.file("rg.safetensors", make_gates.build(make_gates.options(["--layout", "rg", *TINY, "-o", path])))
    s.accepted("a run with retention gates", ["run", "--overwrite", "-m", s.model(0), "--raw", "-p", "the thing in there and other ones",
                                              "-n", "20", "--ignore-eos", "-q", "--method", "trimkv", "--budget", "8", "--gates", path,
                                              "-o", trace])
    t = kvfate.open(trace)
    oracle = tiny_llama.Llama(s.model(0))
    table, meta, text = saliency("--of", trace)
    heads, _, _ = saliency("--of", trace, "--by-head", name="heads.tsv")
    v = cube(table["saliency"], oracle)
    n = v.shape[2]
    evict = np.asarray(t.evict_step, float)
    alive = evict == 0xFFFFFFFF
    beta = np.asarray(t.log_beta, float)
    s.check("evict_step, -1 = alive", np.array_equal(cube(table["evict_step"], oracle), np.where(alive, -1, evict)) and alive.any() and not alive.all())
    s.check("log_beta", np.allclose(cube(table["log_beta"], oracle), beta, rtol=1e-6))
    for name, other in (("evict_step", np.where(alive, np.inf, evict)), ("log_beta", beta)):
        for pre, side in (("rho_", v), ("abs_rho_", np.abs(v))):
            with np.errstate(invalid="ignore"):
                wanted = np.array([[spearman(side[l, h, : n - 2], ranks(other[l, h, : n - 2])) for h in range(v.shape[1])] for l in range(v.shape[0])])
            got = {c: np.array(heads[pre + name + c], float).reshape(wanted.shape) for c in ("", "_low", "_high")}
            s.check(pre + name, np.allclose(got[""], wanted, atol=1e-9), got[""], wanted)
            s.check(pre + name + ": its interval", (got["_low"] <= wanted).all() and (wanted <= got["_high"]).all(), got)
            s.check(pre + name + ": the mean over heads", abs(float(meta[pre + name]) - wanted.mean()) < 1e-6, meta)
            ends = [float(meta[pre + name + c]) for c in ("_low", "_high")]  # with two layers, a quarter of the samples contains only one of them
            s.check(pre + name + ": its interval by layers", np.allclose(ends, [wanted.mean(1).min(), wanted.mean(1).max()], atol=1e-6), ends, wanted)
    s.check("the summary says both", "with evict_step" in text and "with log_beta" in text, text)


def gates_file(name, seed=1, *more):
    path = s.path(name)
    o = make_gates.options(["--layout", "rg", *TINY, "--seed", str(seed), *more, "-o", path])
    s.file(name, make_gates.build(o))
    return path


def wanted_rhos(v, beta, last):
    """Returns, per head and for all entries together, the correlation of saliency and of its
    magnitude."""
    for pre, side in (("rho_", v), ("abs_rho_", np.abs(v))):
        each = np.array([[spearman(side[l, h, :last], beta[l, h, :last]) for h in range(v.shape[1])] for l in range(v.shape[0])])
        yield pre, each, spearman(side[:, :, :last].ravel(), beta[:, :, :last].ravel())


def beside_gates():
    """log beta of gates without a run: computed from the hidden states of a float64 model's f32
    copy, which a run records."""
    path = gates_file("other.safetensors", 9)
    other = s.path("full.kvf")
    s.accepted("a run without evictions", ["run", "--overwrite", "-m", s.model(0), "--ids", IDS_FILE, "-n", "1", "-q", "--exact", "--method", "trimkv",
                                             "--budget", "64", "--gates", path, "-o", other])
    t = kvfate.open(other)
    beta = np.asarray(t.log_beta, float)[:, :, :T]
    s.check("log beta varies", beta.std() > 1e-3, beta)
    table, meta, text = saliency("--ids", IDS_FILE, "--gates", path)
    heads, _, _ = saliency("--ids", IDS_FILE, "--gates", path, "--by-head", name="heads.tsv")
    oracle = tiny_llama.Llama(s.model(0))
    v = cube(table["saliency"], oracle)
    s.check("the column log_beta", np.allclose(cube(table["log_beta"], oracle), beta, rtol=1e-6, atol=0), table["log_beta"], beta)
    s.check("the metadata name the gates", len(meta["gates"]) == 32 and "heads" not in meta, meta)
    for pre, each, pooled in wanted_rhos(v, beta, T - 2):
        got = np.array(heads[pre + "log_beta"], float).reshape(each.shape)
        s.check(pre + "log_beta of gates", np.allclose(got, each, atol=1e-9), got, each)
        s.check(pre + "log_beta: mean", abs(float(meta[pre + "log_beta"]) - each.mean()) < 1e-6, meta, each.mean())
        s.check(pre + "log_beta: all entries as one", abs(float(meta[pre + "log_beta_pooled"]) - pooled) < 1e-6, meta, pooled)
        s.check(pre + ": these are different numbers", abs(pooled - each.mean()) > 1e-4, pooled, each)
    s.check("the summary says it", "with log_beta" in text and "as one" in text and "evict_step" not in text, text)
    # Given gates replace those of the run; its evictions stay.
    table, _, _ = saliency("--of", s.path("trim.kvf"), "--gates", path)
    t = kvfate.open(s.path("trim.kvf"))
    own = np.asarray(t.log_beta, float)
    s.check("given gates replace recorded ones", "evict_step" in table and not np.allclose(cube(table["log_beta"], oracle), own))


def shipped_gates():
    """--method uses the file for its name and model."""
    model_hash = saliency("--ids", IDS_FILE)[1]["model_hash"]
    folder = s.path("shipped")
    os.mkdir(folder)
    argv = ["ablate", "--as", "saliency", "-m", s.model(0), "--ids", IDS_FILE]
    env = {**os.environ, "KVFATE_GATES": folder}
    for i, name in enumerate(("trimkv", "dbtrimkv")):
        path = gates_file(f"shipped/tiny-{name}.safetensors", 20 + i, "--model-hash", model_hash)
        s.accepted(name, [*argv, "--method", name, "-o", s.path("a.tsv")], env=env)
        s.accepted(name + " by file", [*argv, "--gates", path, "-o", s.path("b.tsv")], env=env)
        s.check(f"--method {name} takes its own gates", open(s.path("a.tsv")).read() == open(s.path("b.tsv")).read())
    s.accepted("the other one", [*argv, "--gates", "tiny-trimkv", "-o", s.path("c.tsv")], env=env)
    s.check("which differ", read(s.path("c.tsv"))[1]["gates"] != read(s.path("b.tsv"))[1]["gates"])
    s.refused("a method without gates", [*argv, "--method", "h2o"], 2, "h2o", "retention")
    s.refused("write gates", [*argv, "--method", "wgkv"], 2, "wgkv", "retention")
    s.refused("none shipped for a model", ["ablate", "--as", "saliency", "-m", s.model(1), *argv[5:], "--method", "trimkv"], 2, "shipped", env=env)
    s.refused("gates of another kind", [*argv, "--gates", s.path("gates.safetensors")], 2, "write gates")
    s.refused("no such gates", [*argv, "--gates", s.path("none.safetensors")], 1, "none.safetensors")
    few = s.path("few.safetensors")
    s.file("few.safetensors", make_gates.build(make_gates.options(
        ["--layout", "values", "--kind", "retention", "--tokens", "5", *TINY, "-o", few])))
    s.refused("numbers of too few positions", [*argv, "--gates", few], 2, "5 positions")


def chosen_heads():
    """--head removes rows and changes none of the others; means are over the remaining heads."""
    path, last = s.path("other.safetensors"), T - 2
    base = ["--ids", IDS_FILE, "--gates", path]
    whole, _, _ = saliency(*base)
    by_head, _, _ = saliency(*base, "--by-head")
    oracle = tiny_llama.Llama(s.model(0))
    v, beta = cube(whole["saliency"], oracle), cube(whole["log_beta"], oracle)
    for text, want in (("L1K0", [2]), ("L0K1,1.0", [1, 2]), ("L*K1", [1, 3]), ("L*K*", [0, 1, 2, 3])):
        for table, rows, more in ((whole, T, []), (by_head, 1, ["--by-head"])):
            some, meta, _ = saliency(*base, *more, "--head", text, name="some.tsv")
            keep = [k * rows + i for k in want for i in range(rows)]
            s.check(f"--head {text} {more}", some == {c: [x[i] for i in keep] for c, x in table.items()}, some)
        s.check("says so", meta["heads"] == text, meta)
        for pre, each, _ in wanted_rhos(v, beta, last):
            s.check(f"{pre} over {text}", abs(float(meta[pre + "log_beta"]) - each.ravel()[want].mean()) < 1e-6, meta, each)
        side = {"rho_": v, "abs_rho_": np.abs(v)}
        for pre, x in side.items():
            pooled = spearman(x.reshape(-1, T)[want, :last].ravel(), beta.reshape(-1, T)[want, :last].ravel())
            s.check(f"{pre} pooled over {text}", abs(float(meta[pre + "log_beta_pooled"]) - pooled) < 1e-6, meta, pooled)
    argv = ["ablate", "--as", "saliency", "-m", s.model(0), "--ids", IDS_FILE]
    s.accepted("as a figure", [*argv, "--head", "L1K0", "-o", s.path("one.png")])
    pixels = png(Path(s.path("one.png")).read_bytes(), "table saliency")[3]
    s.check("nothing of a low figure is cut off", (pixels[[0, -1]] == 255).all() and (pixels[:, -3:] == 255).all())
    s.accepted("evictions of some heads", ["ablate", "--as", "saliency", "-m", s.model(0), "--of", s.path("trim.kvf"), "--head", "L1K0", "-o", s.path("e.tsv")])
    t = kvfate.open(s.path("trim.kvf"))
    s.check("are theirs", [int(x) % 2**32 for x in read(s.path("e.tsv"))[0]["evict_step"]] == t.evict_step[1, 0].tolist())
    for bad in ("", "L9K0", "L0H1", "x"):
        s.refused(f"heads {bad!r}", [*argv, "--head", bad], 2, "--head")
    s.refused("a trace of some heads", [*argv, "--head", "L0K0", "-o", s.path("h.kvf")], 2, "--head")


# ---- forms of the result

def one_list():
    """The options of the prompt are equal in every command with a prompt."""
    want = {"--model", "--prompt", "--file", "--chat", "--ids", "--raw"}

    def lines(command):
        text = s.accepted(command + " -h", [*s.words_of(command), "-h"]).stdout.decode()
        return [x for x in text.splitlines() if any(w in x.split() or w + "," in x.split() for w in want) and x.lstrip().startswith("-")]

    s.check("all six", len(lines("run")) == 6, lines("run"))
    for command in ("generate", "logits", "effect", "saliency"):
        s.check(f"{command}: those of run", lines(command)[:6] == lines("run"), lines(command))



def forms():
    argv = ["ablate", "--as", "saliency", "-m", s.model(0), "--ids", IDS_FILE]
    answers = {}
    for threads in "1", "2", "7":
        for name in "x.tsv", "x.kvf", "x.png":
            s.accepted(f"-t {threads} {name}", [*argv, "-t", threads, "-o", s.path(name), *(["--overwrite"] if name == "x.kvf" else [])])
            answers.setdefault(name, set()).add(Path(s.path(name)).read_bytes())
    s.check("equal bytes for any number of threads", all(len(a) == 1 for a in answers.values()), {k: len(a) for k, a in answers.items()})
    table, _ = read(s.path("x.tsv"))
    t = kvfate.open(s.path("x.kvf"))
    v = np.asarray(t.saliency)
    s.check("the trace holds the same numbers", np.array_equal(v.ravel(), np.array(table["saliency"], float).astype("f4")), v)
    s.check("and the tokens", t["tokens.id"][:].tolist() == IDS, t.meta)
    s.check("and says what they are", t.meta["saliency"]["loss"] == "nll" and t.meta["saliency"]["window"] == 1, t.meta)
    s.accepted("verify", ["trace", "verify", "--full", s.path("x.kvf")])
    r = s.accepted("info", ["trace", "info", s.path("x.kvf")])
    s.check("info names the column", b"saliency" in r.stdout and b"KV head x token" in r.stdout, r.stdout)
    s.accepted("its tokens again", ["ablate", "--as", "saliency", "-m", s.model(0), "--of", s.path("x.kvf"), "-o", s.path("y.tsv")])
    s.check("saliency of its own trace", read(s.path("y.tsv"))[0]["saliency"] == table["saliency"])
    r = s.accepted("--json", [*argv, "--json"])
    data = json.loads(r.stdout)
    s.check("json", data["name"] == "saliency" and [f"{x}" for x in data["data"]["token"]] == table["token"])
    r = s.accepted("a summary", argv)
    s.check("of heads and entries", b"L0K0" in r.stdout and b"13 predictions" in r.stdout, r.stdout)


def refusals():
    here = ["ablate", "--as", "saliency", "-m", s.model(0)]
    ids = [*here, "--ids", IDS_FILE]
    trace = s.path("x.kvf")
    s.refused("kl where nothing is weakened", [*ids, "--loss", "kl"], 2, "--weight", "derivatives are 0")
    s.refused("kl at weight 1", [*ids, "--loss", "kl", "--weight", "1"], 2, "--weight")
    s.refused("another loss", [*ids, "--loss", "ntp"], 2, "nll or kl")
    for bad in ("0", "-1", "1.5", "nan", "x", ""):
        s.refused(f"weight {bad!r}", [*ids, "--weight", bad], 2, "--weight")
    s.refused("recorded of what", [*ids, "--weight", "recorded"], 2, "--of")
    s.refused("no gates recorded", [*here, "--of", trace, "--weight", "recorded"], 1, "write_gate")
    s.refused("a window that holds the whole text", [*ids, "-w", str(T - 1)], 2, "--window 13", "at most 12")
    s.refused("window 0", [*ids, "--window", "0"], 2, "window")
    s.refused("a trace and a prompt", [*here, "--of", trace, "-p", "red"], 2, "--of")
    s.refused("nothing to look at", here, 2, "-p")
    s.refused("one token", [*here, "--ids", s.file("one.txt", b"7")], 1, "at least 2")
    s.refused("another model", ["ablate", "--as", "saliency", "-m", s.model(1), "--of", trace], 1, "another model")
    s.refused("no trace", [*here, "--of", IDS_FILE], 1)
    s.refused("onto its input", [*here, "--of", trace, "-o", trace], 2, "overwrite")
    s.refused("onto the ids", [*here, "--ids", s.file("i.tsv", b"5 6 7"), "-o", s.path("i.tsv")], 2, "overwrite")
    s.refused("unknown form", [*ids, "-o", s.path("x.txt")], 2, ".kvf")
    s.refused("heads as a figure", [*ids, "--by-head", "-o", s.path("h.png")], 2, "--by-head")
    s.refused("heads as a trace", [*ids, "--by-head", "-o", s.path("h.kvf")], 2, "--by-head")
    s.refused("no such folder", [*ids, "-o", s.path("none/x.kvf")], 1, "none/x.kvf")


open_points()
weakened_points()
later_queries()
recorded_gates()
one_head_together()
beside_a_run()
beside_gates()
shipped_gates()
chosen_heads()
one_list()
forms()
refusals()
s.finish()
