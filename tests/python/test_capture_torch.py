#!/usr/bin/env python3
"""usage: test_capture_torch.py KVFATE LIBKVFTRACE SOURCE_ROOT FOLDER_OF_TINY_MODELS [--default-model]

Tests kvfate.capture around transformers models. The same weights in the program and under capture,
in float32, give equal tokens and equal columns. If a set differs, attention in float64 must show
that the difference of two weights, or of the mass at the cut, is within rounding. Also tests
batches with padding, chunks of a given text, a kill, and each rejection. Skips if torch,
transformers or gguf are not installed; KVFATE_TORCH_PYTHON names a Python that has them.
--default-model: also SmolLM2 from the cache folder (minutes)."""
import inspect
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from capture_checks import KVFATE, ROOT, begin, refused

begin("capture of transformers models", "gguf", "torch", "transformers")
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from check import check, finish, words_of  # noqa: E402
import kvfate  # noqa: E402
import make_family_golden as golden  # noqa: E402
from kvfate.capture_names import TESTED  # noqa: E402
from kvfate.capture_rows import MASS, TOP  # noqa: E402

if int(transformers.__version__.split(".")[0]) < 5:
    print("SKIP: the small models are made for transformers 5, and %s is installed" % transformers.__version__)
    sys.exit(77)
TINY = os.path.abspath(sys.argv[4])
MODELS = [("tiny0", "Llama", "sdpa"), ("family1", "Mistral", "eager"), ("family3", "Phi3", "sdpa"), ("family5", "Gemma2", "eager"),
          ("family6", "Gemma3", "sdpa"), ("family7", "Olmo2", "eager"), ("family8", "Granite", "sdpa"), ("family9", "SmolLM3", "sdpa"),
          ("family10", "Qwen2", "eager"), ("family11", "Qwen3", "sdpa"), ("family12", "Olmo3", "eager")]
TABLES = ["survival", "attention-sparsity", "overlap", "dilution", "received"]
WATCH = "3,50@L0H1,L1H*"
LOOSE = {"Phi3 sdpa": 5e-4}  # its factors magnify rounding: the program's float32 likelihoods are off by 1.3e-4
NEAR = 1e-4  # of weights, relative: the effect of float32 rounding over some layers


def load(name, kind, how):
    model = golden.load(golden.File(os.path.join(TINY, name + ".gguf")), kind, "").float()
    model.set_attn_implementation(how)
    return model


def engine(path, model, ids, n, *more):
    """Runs the program with these tokens, and n more."""
    Path("ids").write_text(" ".join(map(str, ids)))
    subprocess.run([KVFATE, "run", *(["-m", model] if model else []), "--ids", "ids", "-n", str(n), "--ignore-eos", "--method", "full", "--probes", "full",
                    "--exact", "-o", path, "--overwrite", "-q", *more], check=True, stdout=subprocess.DEVNULL)
    return kvfate.open(path)


def generate(model, ids, n, path, **options):
    with kvfate.capture(model, None, out=path, existing="overwrite", **options):
        model.generate(torch.tensor(ids)[None], max_new_tokens=n, min_new_tokens=n, do_sample=False, eos_token_id=None)
    return kvfate.open(path)


def excused(dense, criterion, layer, head, i, ages, size):
    """Returns True if a different cell of last_selected is excused: the weights of the query of the
    larger age are too close."""
    t = i + max(int(a) for a in ages if a != size)
    w = dense(layer, head, t)
    order = np.sort(w)[::-1]
    if criterion in TOP:
        m = min(TOP[criterion], len(w))
        near_mass = False
    else:
        sums = np.cumsum(order)
        m = int((sums < MASS[criterion] * sums[-1]).sum()) + 1
        near_mass = any(0 <= k < len(w) and abs(sums[k] - MASS[criterion] * sums[-1]) < 1e-5 for k in (m - 2, m - 1))
    return near_mass or any(k < len(w) and abs(w[i] - order[k]) <= NEAR * order[k] for k in (m - 1, m))


def compare(what, a, b, n_layers, dense):
    """Compares every column of the program's trace a and of the captured trace b."""
    check(what + ": tokens", np.array_equal(a["tokens.id"][:], b["tokens.id"][:]) and np.array_equal(a["tokens.role"][:], b["tokens.role"][:]))
    check(what + ": columns", set(a.columns) == set(b.columns), set(a.columns) ^ set(b.columns))
    cells = off = sets_off = 0
    worst = {}
    for name, column in a.columns.items():
        for layer in range(1 if column.space == "run" else n_layers):
            x, y = ((c[name][:][None] if column.space == "run" else c[name][layer]) for c in (a, b))
            if x.dtype != y.dtype or x.shape != y.shape:
                check("%s: %s" % (what, name), False, x.dtype, y.dtype)
                continue
            if name.startswith("last_selected") and "contrib" not in name:
                for h, i in np.argwhere(x != y):
                    sets_off += 1
                    check("%s: %s" % (what, name), excused(dense, name.split(".", 1)[1], layer, h, i, (x[h, i], y[h, i]), 65535), layer, h, i, x[h, i], y[h, i])
                continue
            if x.dtype.kind == "f" and not re.match("useful|dilution", name):
                bad = ~(np.abs(x - y) <= 1e-5 * np.maximum(1, np.abs(x))) & ~(np.isnan(x) & np.isnan(y)) & (x != y)
                error = np.where(x == y, 0, np.abs(x - y) / np.maximum(1, np.abs(x)))
                worst[name] = max(worst.get(name, 0), float(np.nanmax(error)) if not np.isnan(error).all() else 0)
                check("%s: %s" % (what, name), worst[name] < 1e-4, worst[name])
            else:  # counts, and shares of sets, which follow from the sets
                bad = (np.abs(x - y) > 1e-5) & (x != y) if x.dtype.kind == "f" else x != y
            cells, off = cells + x.size, off + int(bad.sum())
    check(what + ": counts and numbers", off <= max(3, cells * LOOSE.get(what, 1e-4)), off, cells)
    print("%s: %d tokens; %d of %d numbers and counts differ by more than 1e-5; %d cells of sets, each at a near tie; most: %s %.1e" % (
        what, a.steps, off, cells, sets_off, *max(worst.items(), key=lambda x: x[1])))


def tables(what, a, b, names=TABLES):
    """Compares the program's tables of both traces: equal text, and numbers within 1e-4."""
    for name in names:
        said = [subprocess.run([KVFATE, *words_of(name, KVFATE), path], capture_output=True, text=True) for path in (a, b)]
        rows = [[re.split(r"[,\t ]+", line) for line in r.stdout.splitlines() if not line.startswith("#")] for r in said]
        same = rows[0] and len(rows[0]) == len(rows[1]) and all(len(p) == len(q) and all(alike(u, v) for u, v in zip(p, q)) for p, q in zip(*rows))
        check("%s: table %s" % (what, name), same and said[0].returncode == said[1].returncode, said[0].stderr, said[1].stderr)


def alike(u, v):
    try:
        return u == v or abs(float(u) - float(v)) <= 1e-4 * max(1, abs(float(u)))
    except ValueError:
        return False


def families(n=230, more=15):
    rng = np.random.default_rng(3)
    for name, kind, how in MODELS:
        ids = rng.integers(3, 300, n)
        if kind == "Olmo3" and "layer_type" not in inspect.signature(transformers.models.olmo3.modeling_olmo3.Olmo3RotaryEmbedding.forward).parameters:
            print("Olmo3 is left out: transformers %s turns its layers with a window by the angles of the others" % transformers.__version__)
            continue
        a = engine("engine.kvf", os.path.join(TINY, name + ".gguf"), ids, more, "--watch", WATCH)
        model = load(name, kind, how)
        b = generate(model, ids, more, "capture.kvf", probes="full", watch=WATCH)
        twin = load(name, kind, "eager").double()
        with torch.no_grad():
            attention = twin(torch.tensor(a["tokens.id"][:].astype(int))[None], output_attentions=True).attentions
        compare("%s %s" % (kind, how), a, b, len(attention), lambda layer, head, t: attention[layer][0, head, t, :t + 1].numpy())
        tables("%s %s" % (kind, how), "engine.kvf", "capture.kvf")
        r = subprocess.run([KVFATE, "trace", "verify", "--full", "capture.kvf"], capture_output=True, text=True)
        check(kind + ": verify", r.returncode == 0, r.stderr)


def chunks_and_batches():
    """A text in chunks, and the sequences of a padded batch, have the columns of the text in a
    separate run."""
    rng = np.random.default_rng(4)
    for name, kind in (("tiny0", "Llama"), ("family1", "Mistral")):
        model = load(name, kind, "sdpa")
        texts = [rng.integers(3, 300, n) for n in (140, 90)]
        pad = torch.full((2, 140), 2)
        for row, text in zip(pad, texts):
            row[140 - len(text):] = torch.tensor(text)
        mask = torch.tensor([[0] * (140 - len(t)) + [1] * len(t) for t in texts])
        with kvfate.capture(model, None, out="batch.kvf", probes="full", existing="overwrite") as c:
            model.generate(pad, attention_mask=mask, max_new_tokens=12, min_new_tokens=12, do_sample=False)
        check("paths", c.paths == ["batch-0.kvf", "batch-1.kvf"])
        for k, text in enumerate(texts):
            b, alone = kvfate.open("batch-%d.kvf" % k), generate(model, text, 12, "alone.kvf", probes="full")
            check("%s: tokens of a batch" % kind, np.array_equal(alone["tokens.id"][:], b["tokens.id"][:]), k)
            near_equal("%s: sequence %d" % (kind, k), alone, b)
        with kvfate.capture(model, None, out="chunks.kvf", probes="full", existing="overwrite") as c:
            c.read(alone["tokens.id"][:].astype(int), prompt=90, chunk=13)
        near_equal("%s: chunks" % kind, alone, kvfate.open("chunks.kvf"))


def missed(shadow, model, where, ids, only=None):
    """A cache evicts chosen entries, different ones in each head, at two times. The program repeats
    the captured evictions as a plan and keeps copies of evicted entries with shadow. Compares
    columns and tables of both, including lost attention and dilution. only: the compared columns;
    in a large model, others differ by more than the rounding of one operation."""
    rng, T = np.random.default_rng(6), len(ids)
    header = engine("engine.kvf", where[-1] if where else None, ids[:9], 0).meta
    with kvfate.capture(model, None, out="capture.kvf", probes="full,shadow" if shadow else "full", existing="overwrite",
                        meta={k: header[k] for k in ("model", "tokenizer") if k in header}) as c:
        c.follows = True
        cache = c.read(ids[:T - 40])
        for t in range(T - 40, T):
            if t in (T - 40, T - 19):
                for module, layer in c.modules.items():
                    held = cache.layers[layer]
                    keep = torch.tensor(np.sort(np.stack([rng.permutation(held.keys.shape[2] - 1)[:60] for _ in range(held.keys.shape[1])])))
                    c.kept(module, keep)
                    held.keys, held.values = (x.gather(2, keep[None, ..., None].expand(-1, -1, -1, x.shape[3])) for x in (held.keys, held.values))
            place = torch.tensor([[t]])  # a cache with evictions does not count its tokens
            cache = model(torch.tensor([[ids[t]]]), past_key_values=cache, position_ids=place, **({"cache_position": place[0]})).past_key_values
    for words in (["trace", "plan", "capture.kvf", "-o", "plan.kvf"], ["run", *where, "--plan", "plan.kvf", "--exact", "--probes",
                  "full", *(["--shadow", "entries"] if shadow else []), "-o", "engine.kvf", "-q"]):
        subprocess.run([KVFATE, *words, "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    a, b = kvfate.open("engine.kvf"), kvfate.open("capture.kvf")
    for name in b.columns:
        if name in only if only else name not in ("evict_reason", "evict_rank", "evict_tie", "tokens.role"):
            for layer in range(1 if b[name].space == "run" else len(b.heads)):
                x, y = ((c[name][:] if b[name].space == "run" else c[name][layer]) for c in (a, b))
                near = np.allclose(x, y, rtol=1e-5, atol=2e-5, equal_nan=True) if x.dtype.kind == "f" else (x != y).mean() <= 1e-3
                check("missed: " + name, x.dtype == y.dtype and x.shape == y.shape and near, layer, x.dtype, y.dtype)
    dilutes = {name for name in a.columns if re.match(r"(kept|rho_.)\.(?!plan)", name)}
    check("missed: dilution", dilutes == {name for name in b.columns if re.match("kept|rho", name)} and len(dilutes) == (30 if shadow else 10), dilutes)
    check("missed: evictions", np.array_equal(a.evict_step[1], b.evict_step[1]) and int((b.evict_step[0] == T - 19).sum()) > 20)
    tables("missed", "engine.kvf", "capture.kvf", ["survival", "attention-sparsity", "occupancy", "intermittency", "dilution"] + ["regret"] * shadow)
    if not shadow:
        return
    check("missed: something", float(b["shadow.ghost_mass"][1].max()) > 0.1 and int(b["shadow.ghost_hits"][0].max()) > 0)


def positions():
    """A cache in the style of G-KV's published code: every 16 steps, during and after attention,
    each head keeps 40 entries of its choice and the last 8, and pos_ids_cache has their
    positions."""
    from kvfate.adapters.positions import follow
    model, ids, left = load("tiny0", "Llama", "sdpa"), torch.arange(3, 103)[None], {}
    rng = np.random.default_rng(8)
    cache = transformers.DynamicCache()
    cache.pos_ids_cache = {layer: torch.zeros(1, 2, 0, dtype=torch.long) for layer in range(2)}

    def attended(module, args, kwargs, out):
        layer, t = cache.layers[module.layer_idx], kwargs["position_ids"][0]
        known = torch.cat([cache.pos_ids_cache[module.layer_idx], t.expand(1, 2, -1)], 2)
        if (int(t[-1]) + 1 - 100) % 16 == 0:
            n = known.shape[2]
            keep = torch.tensor(np.stack([[*np.sort(rng.permutation(n - 8)[:40]), *range(n - 8, n)] for _ in range(2)]))[None]
            for head in range(2):
                gone = set(known[0, head].tolist()) - set(known[0, head, keep[0, head]].tolist())
                left.update({(module.layer_idx, head, i): int(t[-1]) + 1 for i in gone})
            known = known.gather(2, keep)
            layer.keys, layer.values = (x.gather(2, keep[..., None].expand(-1, -1, -1, x.shape[3])) for x in (layer.keys, layer.values))
        cache.pos_ids_cache[module.layer_idx] = known
    hooks = [layer.self_attn.register_forward_hook(attended, with_kwargs=True) for layer in model.model.layers]
    with kvfate.capture(model, None, out="positions.kvf", existing="overwrite") as c, follow(c):
        for t in range(100, 140):
            place = torch.arange(100)[None] if t == 100 else torch.tensor([[t - 1]])
            out = model(ids if t == 100 else ids[:, -1:], past_key_values=cache, position_ids=place)
            ids = torch.cat([ids, out.logits[:, -1:].argmax(-1)], 1)
    for hook in hooks:
        hook.remove()
    t = kvfate.open("positions.kvf")
    for layer in range(2):
        for head in range(2):
            want = [left.get((layer, head, i), 2**32 - 1) for i in range(t.steps)]
            check("positions: evictions", t.evict_step[layer, head].tolist() == want)
        check("positions: rows", np.allclose(t["mass.sum"][layer].astype(float).sum(1), t.steps, atol=1e-3))
    check("positions: some left", len(left) > 100, len(left))

    two_rows(model, follow)

    def under(read):
        with kvfate.capture(model, None, out="odd.kvf", existing="overwrite") as c, follow(c, *read):
            c.read(ids[:, :20])
    refused("no positions", ["DynamicCache", "pos_ids_cache", "record_pos_ids"], lambda: under([]))
    refused("odd positions", ["layer 0", "[3, 20]", "2 KV heads"], lambda: under([lambda cache, layer: torch.zeros(3, 20)]))


def two_rows(model, follow):
    """A cache that keeps different positions of each sequence of a batch: each has the columns that
    it has in a separate run."""
    ids = torch.tensor(np.random.default_rng(9).integers(3, 300, (2, 60)))

    def run(rows, path):
        rng, cache = [np.random.default_rng(int(row[0])) for row in rows], transformers.DynamicCache()
        known = {layer: torch.zeros(len(rows), 2, 0, dtype=torch.long) for layer in range(2)}

        def after(module, args, kwargs, out):
            for layer in known:
                known[layer] = torch.cat([known[layer], kwargs["position_ids"][:, None].expand(-1, 2, -1)], 2)
                if int(known[layer].max()) == 53:
                    keep = torch.tensor(np.stack([[np.sort(one.permutation(54)[:30]) for _ in range(2)] for one in rng]))
                    held, known[layer] = cache.layers[layer], known[layer].gather(2, keep)
                    held.keys, held.values = (x.gather(2, keep[..., None].expand(-1, -1, -1, x.shape[3])) for x in (held.keys, held.values))
        hook = model.model.register_forward_hook(after, with_kwargs=True)
        with torch.no_grad(), kvfate.capture(model, None, out=path, probes="full", existing="overwrite") as c, follow(c, lambda cache, layer: known[layer]):
            for a, b in [(0, 50), *((t, t + 1) for t in range(50, 60))]:
                model(rows[:, a:b], past_key_values=cache, position_ids=torch.arange(a, b).expand(len(rows), -1))
        hook.remove()
        return [kvfate.open(p) for p in c.paths]
    for k, b in enumerate(run(ids, "batch.kvf")):
        near_equal("positions of a batch", run(ids[k:k + 1], "alone.kvf")[0], b)
        check("positions of a batch: something left", int((b.evict_step[1] == 54).sum()) == 2 * 24, b.evict_step[1])


def near_equal(what, a, b):
    off = cells = 0
    for name, column in a.columns.items():
        for layer in range(1 if column.space == "run" else a.meta["model"]["layers"]):
            x, y = ((c[name][:] if column.space == "run" else c[name][layer]) for c in (a, b))
            if not check(what + ": shape of " + name, x.shape == y.shape, x.shape, y.shape):
                return
            bad = (x != y) & ~((x != x) & (y != y)) & ~(np.abs(x.astype(float) - y.astype(float)) <= 1e-5 * np.maximum(1, np.abs(x.astype(float))))
            off, cells = off + int(bad.sum()), cells + bad.size
    check(what, off <= max(3, 3e-4 * cells), off, cells)


def killed():
    program = "import sys, os, signal, torch\nsys.path[:0] = %r\nimport kvfate\nfrom transformers import LlamaConfig, LlamaForCausalLM\n" \
        "torch.manual_seed(1)\nm = LlamaForCausalLM(LlamaConfig(vocab_size=99, hidden_size=32, intermediate_size=32, num_hidden_layers=2, " \
        "num_attention_heads=4, num_key_value_heads=2))\nc = kvfate.capture(m, None, out='killed.kvf', every=0).__enter__()\n" \
        "c.read(torch.arange(60), chunk=20)\nos.kill(os.getpid(), signal.SIGKILL)" % [os.path.join(ROOT, "python")]
    r = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    check("killed", r.returncode == -signal.SIGKILL, r.stderr)
    t = kvfate.open("killed.kvf")
    check("what a kill leaves", t.steps == 60 and not t.closed and t["tokens.id"][:].tolist() == list(range(60)))


def under(call, model):
    with kvfate.capture(model, None, out="refused.kvf", existing="overwrite") as c:
        call(c)


def odd_things():
    """Caches, masks, models and shapes that cannot be captured."""
    model, ids = load("tiny0", "Llama", "eager"), torch.arange(3, 23)[None]

    def within(call, m=model):
        under(call, m)

    for kind, words in (("QuantizedLayer", ["quantised"]), ("LinearAttentionLayer", ["state", "attention layers"]), ("DynamicIndexedLayer", ["chosen", "kvfate.Writer"]),
                        ("StaticSlidingWindowLayer", ["fixed length", "DynamicCache"])):
        cache = type("SomeCache", (), {"layers": [type(kind, (), {})()], "get_seq_length": lambda self: 0})()
        refused("a cache of " + kind, ["SomeCache", kind, *words], lambda c=cache: within(lambda _: model.model(ids, past_key_values=c)))
    refused("a mask of one's own", ["LlamaAttention", "neither causal", "kvfate.Writer"],
            lambda: within(lambda c: model(ids, attention_mask=torch.tril(torch.ones(20, 20, dtype=torch.bool), 2)[None, None])))
    encoded = transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=9, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
    refused("an encoder", ["T5ForConditionalGeneration", "encoder", "kvfate.Writer"], lambda: kvfate.capture(encoded))

    wrong = load("tiny0", "Llama", "sdpa")
    wrong.config.num_key_value_heads = 4
    refused("a wrong shape", ["LlamaAttention", "4 and 4 heads", "kvfate.Writer"], lambda: within(lambda c: c.read(ids), wrong))

    def cut_unseen(c):  # a window that is not passed to the library's function
        odd_window = transformers.DynamicCache()
        c.read(ids)
        model(ids[:, :1], past_key_values=odd_window)
    refused("another cache", ["holds 0", "20"], lambda: within(cut_unseen))

    def late():
        c = kvfate.capture(model, None, out="closed.kvf", existing="overwrite")
        with c:
            c.read(ids)
        c.sequences[0].recording.commit()
        c.sequences[0].recording.feed([1], [0])
        c.sequences[0].recording.commit()
    refused("a closed trace", ["closed.kvf", "closed"], late)


def arguments():
    """Arguments that no real model would get."""
    model, ids = load("tiny0", "Llama", "eager"), torch.arange(3, 23)[None]

    def within_watch(watch):
        with kvfate.capture(model, None, out="odd.kvf", existing="overwrite", watch=watch) as c:
            c.read(ids)

    for name, value in (("tokenizer", "gpt2"), ("watch", 5), ("every", float("nan")), ("most", 0), ("meta", [1]), ("probes", 3)):
        refused("an argument", [name + "=", "it is" if name != "probes" else "they are"], lambda: kvfate.capture(model, **{"out": "odd.kvf", name: value}))
    refused("a span", ["9-5", "ends before"], lambda: within_watch("9-5@L0H0"))
    refused("two texts", ["[2, 2]", "one text"], lambda: under(lambda c: c.read([[3, 4], [5, 6]]), model))
    refused("no tokens", ["[0]", "one token at least"], lambda: under(lambda c: c.read([]), model))
    refused("reading outside", ["outside of the with"], lambda: kvfate.capture(model, out="odd.kvf").read([3]))
    refused("tuples for a cache", ["past_key_values is a tuple", "give a DynamicCache"], lambda: under(lambda c: model(ids, past_key_values=()), model))
    refused("a compiled model", ["OptimizedModule", "before torch.compile"], lambda: kvfate.capture(torch.compile(model)))
    infinite = load("tiny0", "Llama", "sdpa")
    torch.nn.init.constant_(infinite.model.layers[1].self_attn.q_proj.weight, float("nan"))
    refused("weights that are no numbers", ["token 0 is not a number", "float32"], lambda: under(lambda c: c.read(ids), infinite))


def refusals():
    model, ids = load("tiny0", "Llama", "eager"), torch.arange(3, 23)[None]

    def within(call, m=model):
        under(call, m)

    def twice():
        c = kvfate.capture(model, None, out="twice.kvf", existing="overwrite")
        for _ in range(2):
            with c:
                c.read(ids)

    class Odd(torch.nn.Module):
        """A user-defined attention."""

        def __init__(self, inner):
            super().__init__()
            self.layer_idx, self.num_key_value_groups, self.head_dim, self.width = inner.layer_idx, inner.num_key_value_groups, inner.head_dim, inner.o_proj.out_features

        def forward(self, hidden_states, **kwargs):
            return hidden_states * 0, None

    odd = load("tiny0", "Llama", "eager")
    odd.model.layers[1].self_attn = Odd(odd.model.layers[1].self_attn)
    refused("an attention of one's own", ["Odd", "AttentionInterface", "kvfate.Writer"], lambda: within(lambda c: c.read(ids), odd))
    refused("beams", ["LlamaModel", "batch of", "beams"], lambda: within(lambda c: (model(ids), model(ids.repeat(2, 1)))))
    refused("beams of generate", ["the cache of LlamaForCausalLM", "beams", "num_beams=1"], lambda: within(lambda c: model.generate(ids, num_beams=2, max_new_tokens=4, eos_token_id=None)))
    refused("nothing", ["refused.kvf", "LlamaForCausalLM", "not run"], lambda: within(lambda c: None))
    for what, words, call in (("a text", ["no tokenizer"], lambda c: c.read("a text")), ("no whole numbers", ["float32"], lambda c: c.read([1.5, 2])),
                              ("a long prompt", ["3 numbers", "prompt=9"], lambda c: c.read([4, 5, 6], prompt=9)), ("no chunk", ["chunk=0"], lambda c: c.read([4, 5], chunk=0))):
        refused("reading " + what, ["read was given", *words], lambda: within(call))
    refused("two runs", ["cache holds 0 tokens and 20", "a capture of its own"], lambda: within(lambda c: (model(ids), model(ids))))
    refused("twice", ["twice.kvf", "closed", "kvfate.capture"], twice)
    refused("embeddings", ["LlamaModel", "embeddings", "input_ids"], lambda: within(lambda c: model(inputs_embeds=torch.zeros(1, 3, 64))))
    refused("a fixed cache", ["StaticCache", "fixed length", "DynamicCache"],
            lambda: within(lambda c: model.generate(ids, max_new_tokens=3, cache_implementation="static", eos_token_id=None)))
    refused("padding behind", ["padding", "padding_side"], lambda: within(lambda c: model(ids, attention_mask=(ids < 20).long())))
    refused("a model without layers", ["Linear", "no model of transformers", "kvfate.Writer"], lambda: kvfate.capture(load("tiny0", "Llama", "eager").lm_head))

    def shortened(c):
        cache = c.read(ids)
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[:, :, 1:], layer.values[:, :, 1:]
        model(ids[:, :1], past_key_values=cache)
    refused("a cache that lost entries", ["holds 19", "20"], lambda: within(shortened))
    check("the library is as it was", not transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS._local_mapping)


def again():
    """A notebook cell that failed once runs again, and one that left a trace reports how."""
    model, ids = load("tiny0", "Llama", "sdpa"), torch.arange(3, 23)[None]

    class Fails(transformers.LogitsProcessor):
        left = 5

        def __call__(self, tokens, scores):
            self.left -= 1
            if not self.left:
                raise ZeroDivisionError
            return scores

    def cell(c, odd):
        with c:
            model.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=None, logits_processor=transformers.LogitsProcessorList([Fails()] if odd else []))

    def failed(**options):
        c = kvfate.capture(model, None, **options)
        try:
            cell(c, True)
        except ZeroDivisionError:
            return c
        check("the cell fails", False)

    generate(model, range(3, 23), 8, "want.kvf")
    check("nothing is left of a failure", failed(out="again.kvf") and not any(n.startswith("again.kvf") for n in os.listdir(".")), os.listdir("."))
    cell(failed(out="again.kvf"), False)
    near_equal("the same capture again", kvfate.open("want.kvf"), kvfate.open("again.kvf"))
    failed(out="left.kvf", every=0)
    check("what was counted is left", kvfate.open("left.kvf").steps > 0 and os.path.exists("left.kvf.unfinished"))
    try:
        cell(kvfate.capture(model, None, out="left.kvf"), False)
    except kvfate.Error as e:
        check("the way out", 'existing="overwrite"' in str(e) and "--" not in str(e) and "resume" not in str(e), e)
    else:
        check("the way out", False, "nothing was raised")
    cell(kvfate.capture(model, None, out="left.kvf", existing="overwrite"), False)
    near_equal("another capture in its place", kvfate.open("want.kvf"), kvfate.open("left.kvf"))
    refused("going on", ["existing='resume'", '"overwrite"'], lambda: kvfate.capture(model, out="left.kvf", existing="resume"))


def names_of_caches():
    """The cache is found by each name that the installed release accepts. A decoder that accepts
    none of them is rejected before it runs."""
    ids = torch.arange(3, 23)[None]
    model = load("tiny0", "Llama", "sdpa")
    with kvfate.capture(model, None, out="whole.kvf", existing="overwrite") as c:
        c.read(ids)
    takes = inspect.signature(model.model.forward).parameters
    for name in [n for n in ("cache", "past_key_values") if n == "past_key_values" or n in takes]:  # the old name is always accepted
        with kvfate.capture(model, None, out="name.kvf", existing="overwrite"):
            cache = transformers.DynamicCache(config=model.config)
            for a in (0, 8, 16):
                model(ids[:, a:a + 8], **{name: cache})
        near_equal("a cache given as " + name, kvfate.open("whole.kvf"), kvfate.open("name.kvf"))
    with kvfate.capture(model, None, out="name.kvf", existing="overwrite"):
        model.model(ids, None, torch.arange(20)[None], transformers.DynamicCache(config=model.config))
    near_equal("arguments without names", kvfate.open("whole.kvf"), kvfate.open("name.kvf"))

    class Nameless(type(model.model)):
        def forward(self, input_ids, memory=None):
            return super().forward(input_ids)
    model.model.__class__ = Nameless
    refused("a decoder without a cache", ["Nameless", transformers.__version__, TESTED], lambda: kvfate.capture(model, out="no.kvf"))


def beside_others():
    """Captures that open and close alternately or at the same time in threads, and other models
    that run meanwhile, do not disturb each other."""
    ids = torch.arange(3, 43)[None]
    for how in ("sdpa", "eager"):
        first, second = (load("tiny0", "Llama", how) for _ in range(2))
        a, b = (kvfate.capture(m, None, out=n, existing="overwrite") for m, n in ((first, "a.kvf"), (second, "b.kvf")))
        a.__enter__()
        b.__enter__()
        first(ids)
        a.__exit__(None, None, None)
        second(ids)
        b.__exit__(None, None, None)
        near_equal("in turns, " + how, kvfate.open("a.kvf"), kvfate.open("b.kvf"))

    def one(k, failed):
        try:
            with kvfate.capture(load("tiny0", "Llama", "sdpa"), None, out="thread-%d.kvf" % k, existing="overwrite") as c:
                for t in range(8):
                    cache = c.model(ids[:, 5 * t:5 * t + 5], past_key_values=cache if t else None).past_key_values
        except Exception as e:
            failed.append(e)
    failed = []
    threads = [threading.Thread(target=one, args=(k, failed)) for k in range(3)]
    for step in ("start", "join"):
        for thread in threads:
            getattr(thread, step)()
    check("on threads", not failed, failed)
    for k in range(3):
        near_equal("on threads", kvfate.open("a.kvf"), kvfate.open("thread-%d.kvf" % k))
    with kvfate.capture(first, None, out="beams.kvf", existing="overwrite"):
        second.generate(ids, num_beams=2, max_new_tokens=3, eos_token_id=None)
        first(ids)
    near_equal("beams of another model", kvfate.open("a.kvf"), kvfate.open("beams.kvf"))
    check("the library is as it was", not transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS._local_mapping and "reorder_cache" in transformers.Cache.reorder_cache.__qualname__
          and transformers.Cache.reorder_cache.__module__ == "transformers.cache_utils")


def exact_angles(model):
    """Sets RoPE angles in float64, as in the program. transformers rounds them to float32, also in
    a float64 model, with an error of up to 1.5e-5 at position 400."""
    inner, theta = model.model.rotary_emb, model.config.rope_parameters["rope_theta"]
    frequency = theta**(-torch.arange(0, model.config.head_dim, 2, dtype=torch.float64) / model.config.head_dim)

    def forward(x, position_ids, **_):
        angle = (position_ids[..., None].double() * frequency).repeat(1, 1, 2)
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    inner.forward = forward


def default_model():
    """SmolLM2 in transformers from the GGUF file: 480 tokens of text and 20 more, both in
    float32."""
    folder = os.path.expanduser("~/.cache/kvfate")
    file = "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not os.path.exists(os.path.join(folder, file)):
        print("SKIP: the default model is not in", folder)
        return
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    exact_angles(model)
    ids = tokenizer(Path(os.path.join(ROOT, "docs/guide/own-method.md")).read_text())["input_ids"][:480]
    with kvfate.capture(model, tokenizer, out="text.kvf", probes="evict") as c:
        c.read("Why is the sky blue?")
    check("a text is read", b"".join(kvfate.open("text.kvf").texts) == b"Why is the sky blue?", kvfate.open("text.kvf").texts)
    a = engine("engine.kvf", None, ids, 20, "--watch", WATCH)
    with kvfate.capture(model, tokenizer, out="capture.kvf", probes="full", watch=WATCH, existing="overwrite"):
        model.generate(torch.tensor(ids)[None], max_new_tokens=20, min_new_tokens=20, do_sample=False, eos_token_id=None)
    b = kvfate.open("capture.kvf")
    missed(True, model, [], a["tokens.id"][:300].astype(int), ("evict_step", "shadow.kept_mass", "shadow.oracle_mass", "shadow.ghost_hits"))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attention = model.double()(torch.tensor(a["tokens.id"][:].astype(int))[None], output_attentions=True).attentions
    check("texts", a.texts == b.texts, [(x, y) for x, y in zip(a.texts, b.texts) if x != y][:3])
    compare("SmolLM2", a, b, len(attention), lambda layer, head, t: attention[layer][0, head, t, :t + 1].numpy())
    tables("SmolLM2", "engine.kvf", "capture.kvf")


with tempfile.TemporaryDirectory() as FOLDER:
    os.chdir(FOLDER)
    arguments()
    refusals()
    odd_things()
    again()
    names_of_caches()
    beside_others()
    killed()
    chunks_and_batches()
    for shadow in (True, False):
        missed(shadow, load("tiny0", "Llama", "sdpa"), ["-m", os.path.join(TINY, "tiny0.gguf")], np.random.default_rng(6).integers(3, 300, 190))
    positions()
    if "--default-model" in sys.argv:
        default_model()
    else:
        families()
finish()
