#!/usr/bin/env python3
"""tune: the same bytes after any interruption, files that other programs read, the learned weights,
and rejections."""
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from harness import Gguf, Suite

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import kvfate  # noqa: E402

s = Suite()
os.environ["KVFATE_CACHE"] = s.path("cache")
os.environ["KVFATE_GATES"] = s.path("shipped")
os.mkdir(s.path("shipped"))
rng = random.Random(12)
MODEL = Gguf(layers=2, heads=4, kv_heads=2).set("llama.context_length", 2048).write(s.path("model.gguf"))
WORDS = "the thing in there and other one is of an it he she ran red bit top hat".split()
TEXT = s.file("text.txt", "".join(f" = Title {i} = \n {' '.join(rng.choice(WORDS) for _ in range(150))} . \n" for i in range(40)).encode())
ONE = s.file("one.txt", (" = Title = \n " + " ".join(rng.choice(WORDS) for _ in range(150)) + " . \n").encode())
TYPES = {"f32": 0, "f16": 1, "q4_1": 3, "q8_0": 8, "q4_k": 12}


def argv(name, *more, model=MODEL, data=TEXT, method="window", budget=16, steps=4, length=48, check=0):
    return ["tune", "-m", model, "--data", data, "--method", method, *([] if method == "full" else ["-B", str(budget)]), "--steps", str(steps), "--length", str(length),
            "--check-every", str(check), "-t", "1", "-o", s.path(name), *map(str, more)]


def read(name):
    return Path(s.path(name)).read_bytes()


def tune(name, *more, **how):
    s.accepted(f"tune {name} {' '.join(map(str, more))}", argv(name, *more, **how))
    return read(name)


def record(name):
    return [json.loads(line) for line in read(name + ".log.jsonl").splitlines()]


# ---- files, read by code of this test

class File:
    """A GGUF file: metadata, and tensors as (type, dims, bytes)."""
    SIZES = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8]

    def __init__(self, data):
        self.data, self.at = data, 24
        version, n_tensors, n_pairs = struct.unpack_from("<IQQ", data, 4)
        assert data[:4] == b"GGUF" and version in (2, 3)
        self.meta = {self.text(): self.value(self.number("<I")) for _ in range(n_pairs)}
        infos = [(self.text(), [self.number("<Q") for _ in range(self.number("<I"))], self.number("<I"), self.number("<Q")) for _ in range(n_tensors)]
        start = -(-self.at // 32) * 32
        self.tensors = {}
        for name, dims, kind, at in infos:
            n = int(np.prod(dims))
            size = {0: 4 * n, 1: 2 * n, 3: n // 32 * 20, 8: n // 32 * 34, 12: n // 256 * 144}[kind]
            self.tensors[name] = (kind, dims, data[start + at:start + at + size])

    def number(self, form):
        x = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return x

    def text(self):
        n = self.number("<Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            element, n = self.number("<I"), self.number("<Q")
            return [self.value(element) for _ in range(n)]
        self.at += self.SIZES[kind]
        return kind, self.data[self.at - self.SIZES[kind]:self.at]

    def floats(self, name):
        kind, dims, data = self.tensors[name]
        x = np.frombuffer(data, {0: "<f4", 1: "<f2"}[kind]).astype(np.float64)
        return x.reshape(dims[::-1])


def running(x):
    """Returns sequential sums over the last axis in f32."""
    return np.cumsum(x, axis=-1, dtype=np.float32)[..., -1]


def fitted(x):
    """Returns scales and offsets [n] of spans [n, 32] of Q4_K. They minimise the weighted error
    over the roundings by 15 / range and (14 + k / 10) / range, k = 0 to 20, each from the best
    start so far."""
    f, w = np.float32, np.sqrt(running(x * x) / np.float32(32))[:, None] + np.abs(x)
    least, most = np.minimum(x.min(1), 0), x.max(1)
    flat = most == least

    def levels(share, start):
        inverse = f(share) / np.where(flat, f(1), most - start)
        return inverse, np.clip(np.rint(inverse[:, None] * (x - start[:, None])), 0, 15).astype(f)

    def error(level, scale, start):
        off = scale[:, None] * level + start[:, None] - x
        return running(w * (off * off))
    inverse, l = levels(15, least)
    scale, start = f(1) / inverse, least
    best = error(l, scale, start)
    for k in range(21):
        _, l = levels(f(-1) + f(.1) * f(k) + f(15), start)
        sw, swx, sl, sl2, sxl = running(w), running(w * x), running(w * l), running(w * l * l), running(w * l * x)
        det = sw * sl2 - sl * sl
        good = det > 0
        det = np.where(good, det, f(1))
        a, b = (sw * sxl - swx * sl) / det, (sl2 * swx - sl * sxl) / det
        a, b = np.where(b > 0, sxl / np.where(sl2 > 0, sl2, 1), a), np.minimum(b, f(0))
        now = error(l, a, b)
        better = good & (now < best)
        scale, start, best = np.where(better, a, scale), np.where(better, b, start), np.where(better, now, best)
    return np.where(flat, f(0), scale), -np.where(flat, least, start)


def quantised_k(x):
    n = len(x)
    scale, offset = (v.reshape(n, 8) for v in fitted(x.reshape(-1, 32)))

    def six_bits(v):
        most = np.maximum(v.max(1), np.float32(0))
        by = np.where(most > 0, np.float32(63) / np.where(most > 0, most, 1), 0).astype(np.float32)
        return (most / np.float32(63)).astype("<f2"), np.clip(np.rint(by[:, None] * v), 0, 63).astype(np.uint8)
    (d, s), (e, m) = six_bits(scale), six_bits(offset)
    real, start = (u.astype(np.float32)[:, None] * v.astype(np.float32) for u, v in ((d, s), (e, m)))
    by = np.where(real == 0, np.float32(1), real)
    q = np.where(real[..., None] == 0, 0, np.clip(np.rint((x + start[..., None]) / by[..., None]), 0, 15)).astype(np.uint8)
    pairs = np.concatenate([s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6, s[:, 4:] & 15 | (m[:, 4:] & 15) << 4], 1)
    nibbles = (q[:, ::2] | q[:, 1::2] << 4).reshape(n, 128)
    return np.concatenate([d[:, None].view(np.uint8), e[:, None].view(np.uint8), pairs, nibbles], 1).tobytes()


def quantised(x, kind):
    """Quantises rows of f32 by the formulas of ggml's reference quantisers."""
    x = x.astype(np.float32)
    if kind == 1:
        return x.astype("<f2").tobytes()
    if kind == 12:
        return quantised_k(x.reshape(-1, 8, 32))
    b = x.reshape(-1, 32)
    if kind == 8:
        d = np.abs(b).max(1) / np.float32(127)
        by = np.where(d > 0, 1 / np.where(d > 0, d, 1), 0).astype(np.float32)
        scaled = b * by[:, None]
        q = np.copysign(np.floor(np.abs(scaled) + np.float32(.5)), scaled).astype(np.int8)
        return b"".join(d[i].astype("<f2").tobytes() + q[i].tobytes() for i in range(len(b)))
    least = b.min(1)
    d = (b.max(1) - least) / np.float32(15)
    by = np.where(d > 0, 1 / np.where(d > 0, d, 1), 0).astype(np.float32)
    q = np.minimum(15, ((b - least[:, None]) * by[:, None] + np.float32(.5)).astype(np.int64)).astype(np.uint8)
    return b"".join(d[i].astype("<f2").tobytes() + least[i].astype("<f2").tobytes() + (q[i, :16] | q[i, 16:] << 4).tobytes() for i in range(len(b)))


def logits(model, *more):
    ids = s.file("ids.txt", b"5 17 40 41 100 7 33 12 250")
    s.accepted(f"logits of {model}", ["generate", "--logits", "-m", model, "--ids", ids, "--exact", "-t", "1", "-o", s.path("logits.npy"), *more])
    return np.load(s.path("logits.npy"))


def models():
    """RoPE on pairs and on halves, norms of heads, biases, a separate output matrix."""
    return [MODEL, *(os.path.join(sys.argv[2], x) for x in ("tiny1.gguf", "qwen0.gguf", "qwen1.gguf"))]


def families():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "golden", "family_golden.json"), encoding="utf-8") as f:
        return {os.path.join(sys.argv[2], f"family{i}.gguf"): case["args"] for i, case in enumerate(json.load(f)["cases"])}


def same_model():
    """With a learning rate close to 0, the new file is the old model, for every layout."""
    for i, model in enumerate([*models(), *families()]):
        old = File(Path(model).read_bytes())
        new = File(tune(f"same{i}.gguf", "--lr", "1e-12", "--type", "f32", model=model, steps=1))
        drop = {b"general.file_type", b"general.alignment"}
        s.check(f"{i}: metadata", {k: v for k, v in old.meta.items() if k not in drop} == {k: v for k, v in new.meta.items() if k != b"kvfate.tuning"})
        s.check(f"{i}: tensors", sorted(old.tensors) == sorted(new.tensors))
        kinds = {old.tensors[n][0] for n in old.tensors}
        for name in old.tensors if kinds <= {0, 1} else ():
            off = np.abs(old.floats(name) - new.floats(name)).max()
            s.check(f"{i}: {name}", old.tensors[name][1] == new.tensors[name][1] and off <= 1e-9, off)
        a, b = logits(model), logits(s.path(f"same{i}.gguf"))
        s.check(f"{i}: logits", len(a) == len(b) > 20 and np.abs(a - b).max() <= 1e-5 * np.abs(a).max(), np.abs(a - b).max())


def stored_types():
    wide = s.path("wide.gguf")
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "golden", "tools", "gen_tiny.py")
    subprocess.run([sys.executable, tool, "--dim", "256", "--ffn", "96", "--layers", "1", "-o", wide], check=True)
    for word in ("f16", "q8_0", "q4_1", "q4_k"):
        model = wide if word == "q4_k" else MODEL
        whole = File(tune("t-f32.gguf", "--type", "f32", "--fresh", model=model, steps=1))
        f = File(tune(f"t-{word}.gguf", "--type", word, "--fresh", model=model, steps=1))
        kinds = set()
        for name, (kind, dims, data) in f.tensors.items():
            want = 0 if len(dims) < 2 else TYPES[word] if dims[0] % 256 == 0 or word != "q4_k" and dims[0] % 32 == 0 else 3 if word == "q4_k" else 1
            x = whole.floats(name)
            kinds.add(kind)
            s.check(f"{word}: {name}", kind == want and data == (x.astype("<f4").tobytes() if want == 0 else quantised(x, want)), kind, want)
        s.check(f"{word} is there", TYPES[word] in kinds, kinds)
        s.accepted(f"{word} runs", ["generate", "-m", s.path(f"t-{word}.gguf"), "-p", "the red hat", "-n", "4"])
    told = json.loads(s.run(argv("t-q4_k.gguf", "--type", "q4_k", "--fresh", "--json", model=wide, steps=1)).stdout)
    s.check("--json: what matrices of Q4_K are off", 0.03 < told["stored_error"] < 0.12, told)


def adapter(data):
    n = struct.unpack_from("<Q", data)[0]
    head = json.loads(data[8:8 + n])
    notes = head.pop("__metadata__")
    return notes, {k: np.frombuffer(data[8 + n:][slice(*v["data_offsets"])], "<f4").reshape(v["shape"]).astype(np.float64) for k, v in head.items()}


NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def adapters():
    """The complete model minus the base is alpha / rank B A of the adapter, with rows in Hugging
    Face's order."""
    more = ("--rank", "3", "--alpha", "5", "--targets", "q,k,v,o,gate,up,down", "--lr", "1e-2")
    for i, (model, heads, kv_heads, halves) in enumerate(((MODEL, 4, 2, False), (models()[2], 4, 2, True))):
        old = File(Path(model).read_bytes())
        arch = old.meta[b"general.architecture"].decode()
        heads, kv_heads = (struct.unpack("<I", old.meta[f"{arch}.attention.{k}".encode()][1][:4])[0] for k in ("head_count", "head_count_kv"))
        new = File(tune(f"low{i}.gguf", *more, "--type", "f32", model=model, steps=5))
        notes, pairs = adapter(tune(f"low{i}.safetensors", *more, model=model, steps=5))
        s.check(f"{i}: notes", notes["r"] == "3" and float(notes["lora_alpha"]) == 5 and "method" in json.loads(notes["training"]), notes)
        a, b, base = logits(s.path(f"low{i}.gguf")), logits(model, "--lora", s.path(f"low{i}.safetensors")), logits(model)
        s.check(f"{i}: --lora is the merged model", np.abs(a - b).max() <= 1e-5 * np.abs(a).max() and np.abs(a - base).max() > 1e-2,
                np.abs(a - b).max(), np.abs(a - base).max())
        layers = sum(".lora_A." in k for k in pairs) // 7
        s.check(f"{i}: seven pairs a layer", len(pairs) == 14 * layers and layers > 0, list(pairs)[:3])
        if not {old.tensors[n][0] for n in old.tensors} <= {0, 1}:
            continue
        for name in (k for k in pairs if ".lora_A." in k):
            layer, module = re.fullmatch(r"base_model\.model\.model\.layers\.(\d+)\.(.*)\.lora_A\.weight", name).groups()
            change = 5 / 3 * pairs[name.replace("lora_A", "lora_B")] @ pairs[name]
            n = {"attn_q": heads, "attn_k": kv_heads}.get(NAMES[module])
            if n and not halves:  # the file has pairs of neighbouring channels
                change = change.reshape(n, 2, -1, change.shape[1]).swapaxes(1, 2).reshape(change.shape)
            tensor = f"blk.{layer}.{NAMES[module]}.weight".encode()
            off = np.abs(new.floats(tensor) - old.floats(tensor) - change).max()
            s.check(f"{i}: {tensor}", off <= 1e-6 and np.abs(change).max() > 1e-5, off, np.abs(change).max())
        same = [k for k in old.tensors if not any(f".{x}.weight".encode() in k for x in NAMES.values())]
        s.check(f"{i}: the rest stays", all(np.array_equal(old.floats(k), new.floats(k)) for k in same))


def stored(tensors, notes):
    """A safetensors file of f32 or f16."""
    head, data = {"__metadata__": notes} if notes else {}, b""
    for name, x in tensors.items():
        head[name] = {"dtype": {"float32": "F32", "float16": "F16"}[str(x.dtype)], "shape": list(x.shape), "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def foreign_adapters():
    """The output of PEFT: a folder with a configuration, f16, other prefixes; and rejections."""
    r = np.random.default_rng(3)
    old = File(Path(MODEL).read_bytes())
    q = old.tensors[b"blk.1.attn_q.weight"][1]
    names = [f"base_model.model.model.layers.1.self_attn.q_proj.lora_{x}.weight" for x in "AB"]
    pair = {names[0]: r.normal(size=(4, q[0])).astype(np.float16), names[1]: r.normal(size=(q[1], 4)).astype(np.float16)}
    os.mkdir(s.path("peft"))
    s.file("peft/adapter_model.safetensors", stored(pair, {"format": "pt"}))

    def run(*more):
        return ["generate", "--logits", "-m", MODEL, "-p", "the red hat", "--raw", "--exact", "-o", s.path("x.npy"), *more]

    def refused(what, tensors, notes, *words):
        path = s.file("bad.safetensors", stored(tensors, notes))
        s.refused(what, run("--lora", path), 1, "bad.safetensors", *words)

    s.refused("nobody says alpha", run("--lora", s.path("peft")), 1, "lora_alpha")
    for root in (False, True):
        s.file("peft/adapter_config.json", json.dumps({"r": 4, "lora_alpha": 8, "use_rslora": root}).encode())
        have = logits(MODEL, "--lora", s.path("peft"))
        share = 8 / (2 if root else 4)
        notes = {"lora_alpha": str(4 * share)}
        plain = s.file("plain.safetensors", stored({k.removeprefix("base_model.model."): x.astype(np.float32) for k, x in pair.items()}, notes))
        want = logits(MODEL, "--lora", plain)
        s.check(f"use_rslora {root}: alpha of the configuration", np.abs(have - want).max() <= 1e-5 * np.abs(want).max())
    s.file("peft/adapter_config.json", b'{"lora_alpha": 8, "use_dora": true}')
    s.refused("weights of another kind", run("--lora", s.path("peft")), 1, "use_dora")
    s.file("peft/adapter_config.json", b'{"lora_alpha": ')
    s.refused("a damaged configuration", run("--lora", s.path("peft")), 1, "adapter_config.json")
    notes = {"lora_alpha": "8"}
    a, b = pair.values()
    refused("no partner", {names[0]: a}, notes, "lora_B")
    refused("ranks that differ", {names[0]: a, names[1]: b[:, :3].copy()}, notes, "another model")
    refused("a wider model", {names[0]: np.ones((4, q[0] + 2), np.float16), names[1]: b}, notes, "another model")
    refused("no such layer", {n.replace("layers.1", "layers.7"): x for n, x in pair.items()}, notes, "does not have")
    refused("an endless number", {n.replace("layers.1", "layers.99999999999999999999"): x for n, x in pair.items()}, notes, "does not have")
    refused("a module that is no projection", {n.replace("q_proj", "rotary"): x for n, x in pair.items()}, notes, "does not have")
    refused("a norm", {"model.norm.weight": np.ones(4, np.float32)}, notes, "no low-rank change")
    refused("one matrix twice", {**pair, **{n.removeprefix("base_model."): x for n, x in pair.items()}}, notes, "twice")
    refused("not finite", {names[0]: a * np.float16(np.inf), names[1]: b}, notes, "cannot represent")
    refused("nothing", {}, notes, "bad.safetensors")
    s.refused("no file", run("--lora", s.path("none.safetensors")), 1, "none.safetensors")
    s.refused("short", run("--lora", s.file("short.safetensors", b"abc")), 1, "3 bytes")
    trace = s.path("lora.kvf")
    s.accepted("a run", ["run", "-m", MODEL, "-p", "the red hat", "-n", "3", "--lora", s.path("plain.safetensors"), "-o", trace])
    s.accepted("a run", ["run", "-m", MODEL, "-p", "the red hat", "-n", "3", "-o", s.path("base.kvf")])
    hashes = [json.loads(s.run(["trace", "info", x, "--json"]).stdout) for x in (trace, s.path("base.kvf"))]
    s.check("traces tell the models apart", len({json.dumps(h).split('"hash": "')[1][:32] for h in hashes}) == 2, hashes[0])


# ---- the same bytes

def any_threads():
    for method, more in (("window", ()), ("h2o", ("--rank", "2")), ("gkv", ("--accumulate", "3")), ("snapkv", ("--packing", "documents"))):
        one = tune("one.gguf", *more, method=method)
        for what in (("-t", "2"), ("-t", "3"), ("--recompute",)):
            again = tune("other.gguf", "--fresh", *more, *what, method=method)
            s.check(f"{method}: {' '.join(what)}", again == one and read("other.gguf.log.jsonl") == read("one.gguf.log.jsonl"))
        os.remove(s.path("one.gguf.state"))


def in_two_calls():
    """--until writes the state so far, and the command without it ends like a single call."""
    whole = tune("once.gguf", steps=5)
    half = tune("twice.gguf", "--until", "2", steps=5)
    s.check("--until: so many steps", [x["step"] for x in record("twice.gguf")] == [1, 2] and half != whole)
    s.check("the rest", tune("twice.gguf", steps=5) == whole and read("twice.gguf.log.jsonl") == read("once.gguf.log.jsonl"))


def any_stop():
    how = dict(steps=160, check=40)
    more = ("--save-every", "7", "--check-docs", "2", "--budgets", "8,16")
    start = time.monotonic()
    whole = tune("whole.gguf", *more, **how)
    took = time.monotonic() - start
    log = record("whole.gguf")
    s.check("checks, the first before any step", [x["check"] for x in log if "check" in x] == [0, 40, 80, 120, 160], log[0])
    s.check("two documents have no interval", all(x["low_8"] is None and x["high_8"] is None for x in log if "check" in x))
    for number in (signal.SIGINT, signal.SIGKILL):
        name, stops = f"{number.name}.gguf", 0
        for _ in range(40):
            p = subprocess.Popen([s.exe, *argv(name, *more, **how)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(rng.uniform(0.02, took / 2))
            p.send_signal(number)
            _, err = p.communicate(timeout=60)
            if p.returncode == 0:
                break
            s.check(f"{number.name}: its status", p.returncode in (-number, 128 + number), p.returncode, err)
            stops += 1
        s.check(f"{number.name}: was stopped, and ended", stops > 0 and p.returncode == 0, stops)
        s.check(f"the same after {stops} of {number.name}", read(name) == whole and read(name + ".log.jsonl") == read("whole.gguf.log.jsonl"))


# ---- learning

def learns():
    for more, rate in (((), "3e-3"), (("--rank", "8", "--targets", "q,k,v,o,gate,up,down"), "3e-2")):
        for method in ("window", "h2o"):
            tune("learn.gguf", "--fresh", "--lr", rate, *more, data=ONE, method=method, budget=12, steps=60, length=96)
            log = [x["fwkl"] for x in record("learn.gguf")]
            s.check(f"{method} {' '.join(more)}: the divergence falls", log[-1] < 0.5 * log[0], log[0], log[-1])
    tune("full.gguf", "--fresh", data=ONE, method="full", steps=2)
    log = record("full.gguf")
    s.check("without evictions there is nothing to learn", all(x["evicted"] == 0 and abs(x["fwkl"]) < 1e-6 and x["norm"] < 1e-3 for x in log), log)
    tune("control.gguf", "--control", "--check-docs", "2", "--budgets", "8", "--lr", "1e-3", steps=8, check=8)
    log = record("control.gguf")
    steps, checks = ([x for x in log if what in x] for what in ("step", "check"))
    s.check("the control evicts nothing, learns from the next tokens, and is checked under the method",
            all(x["evicted"] == 0 and x["ntp"] > 0 and "fwkl" not in x for x in steps) and [x["check"] for x in checks] == [0, 8] and checks[0]["kl_8"] > 0
            and checks[1]["kl_8"] != checks[0]["kl_8"], log[:2])
    s.check("the mean is of the documents", all(np.isclose(np.mean(x["documents_8"]), x["kl_8"], rtol=1e-12) for x in checks))
    told = json.loads(s.run(argv("told.gguf", "--json", "--check-docs", "2", "--budgets", "8", steps=3, check=3)).stdout)
    checks = [x for x in record("told.gguf") if "check" in x]
    s.check("--json: the first and the last check", told["kl"]["8"] == [checks[0]["kl_8"], checks[-1]["kl_8"]] and told["steps"] == 3, told)


def recorded():
    """A plan's tokens and evictions: the first step equals that of the method that made it, on the
    same text."""
    ids = s.file("ids.txt", " ".join(str(rng.randrange(3, 300)) for _ in range(48)).encode())
    for method in ("window", "h2o", "knorm"):
        s.accepted("run", ["run", "-m", MODEL, "--exact", "--ids", ids, "-n", "1", "--method", f"{method}:budget=16,chunk=1", "--probes", "evict,nll", "--overwrite", "-o", s.path("r.kvf")])
        s.accepted("plan", ["trace", "plan", s.path("r.kvf"), "--overwrite", "-o", s.path("p.kvf")])
        argv_plan = ["tune", "-m", MODEL, "--plan", s.path("p.kvf"), "--steps", "20", "--lr", "3e-3", "--length", "64", "-t", "1", "--fresh", "-o", s.path("rec.gguf")]
        s.accepted(f"{method}: from a plan", argv_plan)
        log = [x for x in record("rec.gguf") if "step" in x]
        s.check(f"{method}: it learns", log[-1]["fwkl"] < 0.7 * log[0]["fwkl"] and log[0]["evicted"] > 100 and log[0]["tokens"] == 48, log[0], log[-1])
        s.accepted("its likelihood", [*argv_plan, "--kl", "0", "--ntp", "1", "--lr", "1e-12", "--steps", "1"])
        with kvfate.open(s.path("r.kvf")) as trace:
            want = float(np.mean(np.asarray(trace.nll)[1:48], dtype=np.float64))
        have = record("rec.gguf")[0]["ntp"]
        s.check(f"{method}: tokens have the likelihood of the run", abs(have - want) <= 1e-5 * want, have, want)
    s.accepted("with data to check on", [*argv_plan, "--data", TEXT, "--method", "window", "-B", "8", "--check-docs", "2", "--budgets", "8", "--check-every", "10"])
    s.check("checks", [x["check"] for x in record("rec.gguf") if "check" in x] == [0, 10, 20])
    s.refused("a plan and no evictions", [*argv_plan, "--control"], 2, "--plan", "--control")
    s.refused("a longer plan", ["tune", "-m", MODEL, "--plan", s.path("p.kvf"), "--length", "32", "-o", s.path("x.gguf")], 2, "48 tokens", "--length")
    s.refused("a trace that is no plan", ["tune", "-m", MODEL, "--plan", s.path("r.kvf"), "-o", s.path("x.gguf")], 1, "plan")
    s.accepted("plan", ["trace", "plan", s.path("r.kvf"), "--no-evictions", "--overwrite", "-o", s.path("p.kvf")])
    s.refused("a plan of tokens alone", ["tune", "-m", MODEL, "--plan", s.path("p.kvf"), "-o", s.path("x.gguf")], 2, "no evictions")


# ---- answers with a reward

def questions(name, lines):
    return s.file(name, "".join(json.dumps(x) + "\n" for x in lines).encode())


def reward(name, *more, steps=4, method="window", check=2, model=MODEL):
    """Returns a record of steps and checks on questions that the tiny model answers with any
    text."""
    few = questions("few.jsonl", [{"question": f"the red {a} {b} in there and other one is", "answer": "of an it", "value": "t"} for a in "abc" for b in "de"])
    s.accepted(f"reward {name} {' '.join(map(str, more))}",
               ["tune", "-m", model, "--reward", few, "--data", few, "--method", method, "-B", "8", "--steps", str(steps), "--length", "96", "--accumulate", "2",
                "--samples", "4", "--most", "12", "--check-every", str(check), "--check-docs", "3", "--budgets", "8,12", "-t", "1", "-o", s.path(name), *map(str, more)])
    return read(name), read(name + ".log.jsonl")


def rewarded():
    """A model that knows two answers learns the right one, with the same result after any
    interruption."""
    two = questions("two.jsonl", [{"question": "the red hat", "answer": x} for x in ("top", "bit")] * 20)
    right = questions("right.jsonl", [{"question": "the red hat", "answer": "bit"}])
    tune("two.gguf", "--control", "--share", "1", "--lr", "1e-2", "--type", "f32", data=two, steps=80, length=32, method="full")
    for how in ((), ("--control",), ("--rank", "4", "--lr", "1e-2"), ("--updates", "3")):
        s.accepted("reward", ["tune", "-m", s.path("two.gguf"), "--reward", right, "--data", right, "--raw", "--method", "window", "-B", "12", "--steps", "20", "--lr", "1e-3",
                              "--length", "64", "--accumulate", "2", "--check-every", "20", "--budgets", "8", "-t", "1", "--fresh", "-o", s.path("learnt.gguf"), *how])
        log = record("learnt.gguf")
        first, last = ([x for x in log if "step" in x][i]["reward"] for i in (0, -1))
        s.check(f"{how}: the right answer becomes more frequent", first < 0.85 and last > 0.95, first, last)
        s.check(f"{how}: and its distribution sharper", log[-2]["entropy"] < log[1]["entropy"], log[1], log[-2])
        s.check(f"{how}: checks at budgets and with the full cache", [x["check"] for x in log if "check" in x] == [0, 20] and log[-1]["pass_full"] > log[0]["pass_full"]
                and {"pass_8", "kl_8", "entropy_8", "low_8", "high_8", "kl_full"} < set(log[-1]) and log[0]["kl_full"] < 1e-4 < log[-1]["kl_full"], log[-1])
    s.check("the control evicts nothing", all(x["evicted"] == 0 for x in record("learnt.gguf") if "step" in x) or "--control" not in how)
    one = reward("one.gguf")
    for what in (("-t", "3"), ("--recompute",)):
        s.check(f"reward: {' '.join(what)}", reward("other.gguf", "--fresh", *what) == one)
    s.check("reward: another seed", reward("other.gguf", "--fresh", "-s", "1")[1] != one[1])
    started = [json.loads(x) for x in one[1].splitlines()]
    s.check("a step is told", all({"reward", "entropy", "answer", "cut", "loss", "evicted"} < set(x) for x in started if "step" in x) and started[1]["evicted"] > 0, started[1])
    start = time.monotonic()
    whole = reward("whole.gguf", "--fresh", "--save-every", "1", "--updates", "2", steps=10)
    took = time.monotonic() - start
    argv_whole = ["tune", "-m", MODEL, "--reward", s.path("few.jsonl"), "--data", s.path("few.jsonl"), "--method", "window", "-B", "8", "--steps", "10", "--length", "96",
                  "--accumulate", "2", "--samples", "4", "--most", "12", "--check-every", "2", "--check-docs", "3", "--budgets", "8,12", "-t", "1", "--save-every", "1", "--updates", "2"]
    for number in (signal.SIGINT, signal.SIGKILL):
        name, stops = f"{number.name}-r.gguf", 0
        for _ in range(40):
            p = subprocess.Popen([s.exe, *argv_whole, "-o", s.path(name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(rng.uniform(0.02, took / 4) * (1 + stops / 4))
            p.send_signal(number)
            p.communicate(timeout=60)
            if p.returncode == 0:
                break
            stops += 1
        s.check(f"reward: the same after {stops} of {number.name}", p.returncode == 0 and stops > 0 and (read(name), read(name + ".log.jsonl")) == whole, p.returncode)
    s.accepted("curves of rewards", ["train", "curves", s.path("one.gguf.log.jsonl"), "-o", s.path("curves.tsv")])
    with open(s.path("curves.tsv")) as f:
        head = [line for line in f if not line.startswith("#")][0].split("\t")
    s.check("their columns", {"reward", "entropy", "pass_8", "pass_full", "kl_full", "entropy_12"} <= {x.split(" ")[0].strip() for x in head}, head)
    argv_r = ["tune", "-m", MODEL, "--method", "window", "-B", "8", "--length", "40", "-t", "1", "-o", s.path("x.gguf"), "--reward"]
    s.refused("no question", [*argv_r, s.file("empty.jsonl", b"\n")], 1, "no question")
    s.refused("no answer", [*argv_r, s.file("bad.jsonl", b'{"question": "a"}\n')], 1, "bad.jsonl, line 1", "answer")
    s.refused("no JSON", [*argv_r, s.file("bad.jsonl", b'{"question": "a", "answer": "b"}\nx\n')], 1, "bad.jsonl, line 2")
    s.refused("too long", [*argv_r, questions("long.jsonl", [{"question": "the red hat " * 20, "answer": "b"}])], 2, "long.jsonl, line 1", "--length")
    s.refused("two sources", [*argv_r, s.path("few.jsonl"), "--plan", "p.kvf"], 2, "--plan", "--reward")
    os.link(s.path("right.jsonl"), s.path("right"))
    s.refused("over the questions", [*argv_r[:-2], s.path("right"), "--reward", s.path("right.jsonl")], 2, "overwrite")


def refusals():
    s.refused("no data", ["tune", "-o", s.path("x.gguf")], 2, "--data")
    s.refused("no output", ["tune", "--data", TEXT], 2, "-o")
    s.refused("an adapter of all weights", argv("x.safetensors"), 2, "--rank")
    s.refused("no loss to minimise", argv("x.gguf", "--kl", "0"), 2, "--kl", "--ntp")
    s.refused("no such target", argv("x.gguf", "--rank", "2", "--targets", "q,w"), 2, "q,w")
    s.refused("budgets", argv("x.gguf", "--budgets", "8,,9"), 2, "--budgets")
    s.refused("a method that reads pages", argv("x.gguf", method="quest"), 2, "quest", "evicts none")
    s.refused("entries for each query head", argv("x.gguf", method="h2o:group=none"), 2, "group=none")
    s.refused("over the context", argv("x.gguf", length=4096), 2, "4096", "2048")
    s.refused("the model would be overwritten", argv("model.gguf"), 2, "overwrite")
    os.link(s.path("text.txt"), s.path("text"))
    s.refused("the text would be overwritten", argv("text"), 2, "overwrite")
    s.refused("no folder", argv("no/x.gguf"), 1, "no/x.gguf")
    fused = next(m for m, args in families().items() if "phi3" in args)
    s.refused("an adapter of fused matrices", argv("x.safetensors", "--rank", "2", model=fused), 2, "phi3", "-o MODEL.gguf")
    s.accepted("but a model of them", argv("fused.gguf", "--rank", "2", model=fused, steps=1))
    tune("state.gguf")
    s.refused("another setting", argv("state.gguf", "--lr", "1e-3"), 2, "lr")
    s.check("nothing is left", not [x for x in os.listdir(s.work.name) if x.startswith("x.")])


same_model()
stored_types()
adapters()
foreign_adapters()
any_threads()
in_two_calls()
any_stop()
learns()
recorded()
rewarded()
refusals()
s.finish()
