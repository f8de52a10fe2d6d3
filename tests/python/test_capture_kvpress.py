#!/usr/bin/env python3
"""usage: test_capture_kvpress.py KVFATE LIBKVFTRACE SOURCE_ROOT FOLDER_OF_TINY_MODELS
                               [--default-model]

Tests kvfate.adapters.kvpress. The entries that presses keep in each head are compared with the
program's run of the same method after the same prompt. Also tests a press that evicts during
generation. Skips if torch, transformers, gguf or kvpress are not installed; KVFATE_TORCH_PYTHON
names a Python that has them. --default-model: with SmolLM2 from the cache folder instead of a tiny
model."""
import os
import subprocess
import sys
import tempfile

from capture_checks import KVFATE, ROOT, begin, fitting, refused

begin("presses of kvpress under capture", "gguf", "torch", "transformers", "kvpress")
import kvpress  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from check import check, finish  # noqa: E402
import kvfate  # noqa: E402
import make_family_golden as golden  # noqa: E402
from kvfate.adapters.kvpress import follow  # noqa: E402

fitting("kvpress")
TINY = os.path.abspath(sys.argv[4])
WINDOW = "window=64,recent=64,pool=5,pool_kind=avg"
# The library protects the newest entry (tova). It counts entries that are always kept, the window
# or the sinks, as part of the minimum that AdaKV guarantees to a head.
CASES = [("observed", lambda: kvpress.ObservedAttentionPress(.5), lambda n: "h2o:divide=queries,recent=0"),
         ("snapkv", lambda: kvpress.SnapKVPress(.5), lambda n: "snapkv:" + WINDOW), ("keydiff", lambda: kvpress.KeyDiffPress(.5), lambda n: "keydiff"),
         ("tova", lambda: kvpress.TOVAPress(.5), lambda n: "tova:recent=1"),
         ("expected", lambda: kvpress.ExpectedAttentionPress(.5), lambda n: "expected-attention:epsilon=0,allocation=uniform"),
         ("expected, as registered", lambda: kvpress.AdaKVPress(kvpress.ExpectedAttentionPress(.5, epsilon=1e-2)), lambda n: "expected-attention:floor=%.17g" % floor(n, 4)),
         ("adakv", lambda: kvpress.AdaKVPress(kvpress.SnapKVPress(.5)), lambda n: "adakv:floor=%.17g,%s" % (floor(n, 64), WINDOW)),
         ("knorm", lambda: kvpress.KnormPress(.5), lambda n: "knorm"), ("streaming", lambda: kvpress.StreamingLLMPress(.5), lambda n: "window")]
EAGER = "observed",
NEAR = 1e-4


def model_and_text():
    if "--default-model" not in sys.argv:
        path = os.path.join(TINY, "tiny0.gguf")
        model = golden.load(golden.File(path), "Llama", "").float()
        model.set_attn_implementation("sdpa")
        return model, ["-m", path], np.random.default_rng(3).integers(3, 300, 240).tolist()
    folder, file = os.path.expanduser("~/.cache/kvfate"), "SmolLM2-135M-Instruct.Q4_1.gguf"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    with open(os.path.join(ROOT, "docs/guide/own-method.md")) as f:
        return model, [], transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)(f.read())["input_ids"][:400]


def floor(n, kept):
    """Returns the minimum for n kept entries of a head, of which `kept` are kept for any scores."""
    return max(0, int(.2 * n) - kept) / (n - kept)


def followed(model, ids, press, more, path):
    with kvfate.capture(model, None, out=path, existing="overwrite") as c, follow(c, press):
        model.generate(torch.tensor(ids)[None], max_new_tokens=more, min_new_tokens=more, do_sample=False, eos_token_id=None)
    return kvfate.open(path)


def prompt(model, where, ids):
    """Compares the kept sets after the prompt."""
    T, layers = len(ids), model.config.num_hidden_layers
    for name, press, method in CASES:
        model.set_attn_implementation("eager" if name in EAGER else "sdpa")
        theirs = followed(model, ids, press(), 4, "theirs.kvf")
        subprocess.run([KVFATE, "run", *where, "--ids", "ids", "-n", "0", "--method", method(T // 2), "-B", str(T // 2), "--exact", "--probes", "evict", "-o", "own.kvf",
                        "--overwrite", "-q"], check=True, stdout=subprocess.DEVNULL)
        own, heads, odd, kept = kvfate.open("own.kvf"), 0, 0, 0
        for layer in range(layers):
            a, b = theirs.evict_step[layer][:, :T] > T, own.evict_step[layer] > T
            heads, odd, kept = heads + len(a), odd + int((a != b).any(1).sum()), kept + int(a.sum())
            for h, i in np.argwhere(b & ~a):
                score, margin = (theirs["evict_" + what][layer][h, i] for what in ("score", "margin"))
                check("%s: layer %d, head %d, token %d" % (name, layer, h, i), margin <= NEAR * abs(score), score, margin)
            check(name + ": as many", a.sum() == b.sum() and (theirs.evict_step[layer][:, :T][~a] == T).all(), a.sum(), b.sum())
            seen = theirs["mass.max"][layer]
            check(name + ": weights", bool((seen >= 0).all()) and float(seen.max()) <= 1.00001)
        check(name + ": verify", subprocess.run([KVFATE, "trace", "verify", "--full", "theirs.kvf"], capture_output=True).returncode == 0)
        print("%s: %d heads keep %d of %d entries each on average; %d heads differ" % (name, heads, kept // heads, T, odd))


def settings(model, ids):
    """The header of a trace and its tables name the numbers of a press."""
    for press, options in ((kvpress.SnapKVPress(.25), {"compression_ratio": .25, "window_size": 64, "kernel_size": 5}),
                           (kvpress.AdaKVPress(kvpress.SnapKVPress(.75, window_size=16)), {"alpha_safeguard": .2, "press": "SnapKVPress", "press.compression_ratio": .75, "press.window_size": 16}),
                           (kvpress.DecodingPress(kvpress.KnormPress(), compression_interval=4, target_size=60), {"compression_interval": 4, "target_size": 60, "base_press": "KnormPress"})):
        method = followed(model, ids[:80], press, 2, "settings.kvf").meta["method"]
        told = dict(x.split("=") for x in method["options"].split(","))
        name = type(press).__name__
        check(name + ": settings", {k: told.get(k) for k in options} == {k: str(v) for k, v in options.items()}, told)
        check(name + ": ratio", method.get("compression_ratio") == {"SnapKVPress": .25, "AdaKVPress": .75}.get(name), method)
        table = subprocess.run([KVFATE, "size", "settings.kvf", "-o", "-"], capture_output=True, text=True, check=True).stdout
        check(name + ": protocol of a table", "# protocol: " + method["options"].replace(",", ", ") in table.splitlines(), table[:900])


def decoding(model, ids):
    """Every 4 tokens the cache is cut to the 60 entries with the shortest keys. Keys of the first
    layer have equal lengths for repeated tokens, so that either may be evicted."""
    model = model.double()

    def press():
        return kvpress.DecodingPress(kvpress.KnormPress(), compression_interval=4, target_size=60)
    t = followed(model, ids[:80], press(), 20, "decoding.kvf")
    with kvfate.capture(model, None, out="keys.kvf", probes="keys", existing="overwrite") as c, follow(c, press()):
        model.generate(torch.tensor(ids[:80])[None], max_new_tokens=20, min_new_tokens=20, do_sample=False, eos_token_id=None)
    norms = kvfate.open("keys.kvf")["key_norm"]
    for layer in range(model.config.num_hidden_layers):
        for head in range(model.config.num_key_value_heads):
            norm, step = norms[layer, head], t.evict_step[layer, head]
            for cut in range(84, t.steps + 1, 4):
                held = np.flatnonzero((np.arange(t.steps) < cut) & (step >= cut))
                gone = held[step[held] == cut]
                stays = held[step[held] > cut]
                check("decoding", len(stays) == 60 and norm[stays].max() <= norm[gone].min() * (1 + 1e-6), layer, head, cut)
            check("nothing leaves between", ((step % 4 == 0) | (step == 2**32 - 1)).all() and (step >= 84).all(), layer, head)


def batches(model, ids):
    """Each sequence of a batch has the columns that it has in a separate run; texts of different
    lengths are rejected."""
    two, names = torch.tensor([ids[:120], ids[120:240]]), ("evict_step", "evict_score", "mass.sum", "kept.top64")

    def columns(t, name):  # the window's scores are the maximum over the complete batch
        return [t[name][layer][:, :56 if name == "evict_score" else None] for layer in range(model.config.num_hidden_layers)]

    for press in (lambda: kvpress.SnapKVPress(.5), lambda: kvpress.AdaKVPress(kvpress.SnapKVPress(.5)),
                  lambda: kvpress.DecodingPress(kvpress.KnormPress(), compression_interval=4, target_size=60)):
        name = type(press()).__name__

        def run(rows, path, **more):
            with kvfate.capture(model, None, out=path, probes="full", existing="overwrite") as c, follow(c, press()):
                model.generate(rows, max_new_tokens=12, min_new_tokens=12, do_sample=False, eos_token_id=None, **more)
            return [kvfate.open(p) for p in c.paths]
        for k, b in enumerate(run(two, "batch.kvf")):
            a = run(two[k:k + 1], "alone.kvf")[0]
            same = [np.allclose(x, y, rtol=1e-4, atol=1e-4, equal_nan=True) for n in names for x, y in zip(columns(a, n), columns(b, n))]
            check("%s: a batch" % name, a["tokens.id"][:].tolist() == b["tokens.id"][:].tolist() and all(same), k, same)
    mask = torch.ones_like(two)
    mask[1, :20] = 0
    refused("padding", ["padding", "equally long"], lambda: run(two, "odd.kvf", attention_mask=mask))


def places():
    """Kept rows are found again, for any number of rows, and a changed one is not."""
    from kvfate.adapters import places_of as _places
    for n in range(30, 200):
        given = torch.randn(3, n, 64)
        at = torch.stack([torch.randperm(n)[:n // 2] for _ in range(3)])
        kept = given.gather(1, at[..., None].expand(-1, -1, 64))
        check("places of %d rows" % n, torch.equal(_places(given, kept), at))
        check("a row that changed", _places(given, kept + torch.eye(64)[0]) is None)


def changed(model, ids):
    refused("keys that change", ["KeyRerotationPress", "changes keys", "kvfate.Writer"],
            lambda: followed(model, ids, kvpress.KeyRerotationPress(kvpress.KnormPress(.5)), 2, "changed.kvf"))


with tempfile.TemporaryDirectory() as FOLDER:
    os.chdir(FOLDER)
    subject, place, tokens = model_and_text()
    with open("ids", "w") as out:
        out.write(" ".join(map(str, tokens)))
    prompt(subject, place, tokens)
    places()
    changed(subject, tokens)
    settings(subject, tokens)
    batches(subject, tokens)
    decoding(subject, tokens)
finish()
