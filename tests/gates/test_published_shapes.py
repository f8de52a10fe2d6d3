#!/usr/bin/python3
"""Gates with the names and shapes of the published ones load for models of the shapes for which
they were trained, and for no others.

usage: test_published_shapes.py GATES_FIT ROOT

Models are GGUF files with all tensors of the published shapes, with holes as matrices
(tests/data/gen_large.py). Gates are safetensors files with the published names, shapes and types,
and with the metadata that `kvfate gates convert` writes, or the metadata in
docs/reference/gates.md. Two are torch.save files that are converted. Their numbers are zeros, also
holes, except for the biases of the readout, which determine the output of every layer for inputs of
zeros.
"""
import functools
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import zlib

fit, root = map(os.path.abspath, sys.argv[1:3])
for folder in ("tests", "tests/data", "tests/gates", "python"):
    sys.path.append(os.path.join(root, folder))
import gen_large  # noqa: E402
from check import check, finish  # noqa: E402
from test_convert import storage, tensor, text  # noqa: E402
from kvfate import gates as gate_files  # noqa: E402

SIZE = {"F32": 4, "BF16": 2}
TORCH = {"F32": "torch\nFloatStorage", "BF16": "torch\nBFloat16Storage"}


# ---- gate files: {name: (shape, list of numbers or None for zeros)}

def count(shape):
    return math.prod(shape)


def packed(values, dtype):
    """Numbers that are exact in bf16."""
    b = struct.pack(f"<{len(values)}f", *values)
    return b if dtype == "F32" else b"".join(b[i + 2:i + 4] for i in range(0, len(b), 4))


def content(t, dtype):
    """Returns (length, bytes or None for a hole)."""
    shape, values = t
    return count(shape) * SIZE[dtype], None if values is None else packed(values, dtype)


@functools.lru_cache(None)
def crc_of_zeros(n):
    return zlib.crc32(bytes(n))


def write_torch(path, tensors, dtype):
    """Writes a dict of tensors like torch.save: an archive of uncompressed entries, one per
    storage."""
    members = b""
    entries = []
    for key, (name, t) in enumerate(tensors.items()):
        shape = t[0]
        strides = [count(shape[k + 1:]) for k in range(len(shape))]
        members += text(name) + tensor(shape, strides, of=storage(str(key), count(shape), TORCH[dtype]))
        entries.append((f"a/data/{key}", *content(t, dtype)))
    pickled = b"\x80\x02}(" + members + b"u."
    directory = b""
    with open(path, "wb") as f:
        for name, n, data in [("a/data.pkl", len(pickled), pickled), *entries]:
            crc = crc_of_zeros(n) if data is None else zlib.crc32(data)
            fields = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 33, crc, n, n, len(name), 0)
            directory += b"PK\1\2" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, f.tell()) + name.encode()
            f.write(b"PK\3\4" + fields + name.encode())
            f.seek(n, os.SEEK_CUR) if data is None else f.write(data)
        at = f.tell()
        f.write(directory + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, len(entries) + 1, len(entries) + 1, len(directory), at, 0))


def write_safetensors(path, tensors, dtype, metadata):
    header, at = {"__metadata__": metadata}, 0
    for name, t in tensors.items():
        n, _ = content(t, dtype)
        header[name] = {"dtype": dtype, "shape": list(t[0]), "data_offsets": [at, at + n]}
        at += n
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(words)) + words)
        for t in tensors.values():
            n, data = content(t, dtype)
            f.seek(n, os.SEEK_CUR) if data is None else f.write(data)
        f.truncate()


# ---- the published layouts, written from the tables of docs/reference/gates.md

def bias(layer, heads):
    """A number for each head, exact in bf16."""
    return [layer - 18 + h % 4 / 4 for h in range(heads)]


def sizes(shape):
    return {k: shape[k] for k in ("layers", "heads", "kv_heads", "head_dim", "dim")}


def layers(s, prefix, parts):
    return {f"{prefix}{i}.self_attn.{name}": t for i in range(s["layers"]) for name, t in parts(i).items()}


def trimkv(s, hidden=512, prefix="model.layers."):
    d, H = s["dim"], s["kv_heads"]
    return layers(s, prefix, lambda i: {
        "retention_gate.linear1.weight": ([hidden, d], None), "retention_gate.linear1.bias": ([hidden], None),
        "retention_gate.linear2.weight": ([H, hidden], None), "retention_gate.bias": ([H], bias(i, H))})


def dbtrimkv(s, hidden=512, prefix="model.layers."):
    d, H = s["dim"], s["kv_heads"]
    return layers(s, prefix, lambda i: {
        "retention_gate.linear1.weight": ([hidden, d], None), "retention_gate.linear1.bias": ([hidden], None),
        "retention_gate.linear2.weight": ([hidden, hidden], None), "retention_gate.linear2.bias": ([hidden], None),
        "retention_gate.linear3.weight": ([H, hidden], None), "retention_gate.bias": ([H], bias(0, H))})


def wgkv(s, hidden):
    D, H = s["head_dim"], s["kv_heads"]
    return layers(s, "model.layers.", lambda i: {
        "g_predictors.pre_key_norm.weight": ([D], None), "g_predictors.post_key_norm.weight": ([D], None),
        "g_predictors.conv1.weight": ([H * hidden, 2 * D, 1], None), "g_predictors.conv1.bias": ([H * hidden], None),
        "g_predictors.conv2.weight": ([H, hidden, 1], None), "g_predictors.conv2.bias": ([H], bias(i, H))})


def locret(s, hidden=1024):
    q, kv = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
    return layers(s, "model.layers.", lambda i: {"fc1.weight": ([hidden, q + 2 * kv], None), "fc2.weight": ([s["kv_heads"], hidden], None)})


def duo(s):
    return {"duo.alpha": ([s["layers"], s["kv_heads"]], [h / 64 for i in range(s["layers"]) for h in range(s["kv_heads"])])}


def seer(s, dim=128):
    D, H, group = s["head_dim"], s["kv_heads"], s["heads"] // s["kv_heads"]
    return layers(s, "model.layers.", lambda i: {
        "block_gate.k_proj.weight": ([H, dim, 3 * D], None), "block_gate.q_proj.weight": ([H, dim, group * D], None),
        "block_gate.k_norm.weight": ([dim], None), "block_gate.q_norm.weight": ([dim], None)})


def log_sigmoid(z):
    return min(z, 0) - math.log1p(math.exp(-abs(z)))


EXPECTED = {"rg": lambda s, i, h: log_sigmoid(bias(i, s["kv_heads"])[h]), "rg10": lambda s, i, h: log_sigmoid(bias(0, s["kv_heads"])[h]),
            "wgkv": lambda s, i, h: 1 / (1 + math.exp(-bias(i, s["kv_heads"])[h])), "locret": lambda s, i, h: 0.0, "duo": lambda s, i, h: h / 64}
VL = "model.language_model.layers."

PYTORCH = {"format": "pt"}  # of a converted file
CONVERTED = ("TrimKV-Qwen3-4B", "WG-KV qwen3-4b")  # through a torch.save file

# Gates, their model, their tensors, type and metadata, the expected output, and a model for which
# they must be rejected.
CASES = [
    ("TrimKV-Qwen3-1.7B", "qwen3-1.7b", trimkv, "BF16", PYTORCH, "retention rg 512", "qwen3-4b"),
    ("TrimKV-Qwen3-4B", "qwen3-4b", trimkv, "BF16", PYTORCH, "retention rg 512", "qwen3-8b"),
    ("TrimKV-Qwen3-8B", "qwen3-8b", trimkv, "BF16", PYTORCH, "retention rg 512", "llama-3.1-8b"),
    ("TrimKV-Qwen3-14B", "qwen3-14b", trimkv, "BF16", PYTORCH, "retention rg 512", "qwen3-8b"),
    ("TrimKV-DeepSeek-R1-Distill-Llama-8B", "llama-3.1-8b", trimkv, "BF16", PYTORCH, "retention rg 512", "qwen3-8b"),
    ("TrimKV-Phi-3-mini-128k", "phi-3-mini-128k", trimkv, "BF16", PYTORCH, "retention rg 512", "llama-3.1-8b"),
    ("TrimKV-Phi-3-mini-128k, wide", "phi-3-mini-128k", lambda s: trimkv(s, 1024), "BF16", PYTORCH, "retention rg 1024", "qwen3-4b"),
    ("DBTrimKV-Qwen3-4B", "qwen3-4b", dbtrimkv, "BF16", PYTORCH, "retention rg10 512", "qwen3-1.7b"),
    ("DBTrimKV-Qwen3-VL-4B", "qwen3-4b", lambda s: dbtrimkv(s, prefix=VL), "BF16", PYTORCH, "retention rg10 512", "phi-3-mini-128k"),
    ("DBTrimKV-Qwen3-VL-8B", "qwen3-8b", lambda s: dbtrimkv(s, prefix=VL), "BF16", PYTORCH, "retention rg10 512", "qwen3-4b"),
    ("WG-KV llama-3.1-8b", "llama-3.1-8b", lambda s: wgkv(s, 512), "F32", PYTORCH, "write wgkv 512", "qwen3-8b"),
    ("WG-KV qwen3-4b", "qwen3-4b", lambda s: wgkv(s, 192), "F32", PYTORCH, "write wgkv 192", "llama-3.1-8b"),
    ("Locret-llama-3.1-8B", "llama-3.1-8b", locret, "BF16", PYTORCH, "importance locret 1024", "phi-3-mini-128k"),
    ("Locret-phi-3-mini-128K", "phi-3-mini-128k", locret, "BF16", PYTORCH, "importance locret 1024", "llama-3.1-8b"),
    ("DuoAttention Llama-3.1-8B", "llama-3.1-8b", duo, "F32", {"kvfate.kind": "heads", "kvfate.layout": "duo"}, "heads duo 0", "qwen3-8b"),
    ("SeerAttention-R Qwen3-4B", "qwen3-4b", seer, "BF16", {"kvfate.kind": "blocks", "kvfate.layout": "seer", "kvfate.key_order": "halves", "kvfate.block": "64"},
     "blocks seer 128", "phi-3-mini-128k"),
]

# Every layout, every shape, both ways of storage; the others in the long tests.
QUICK = [CASES[k] for k in (0, 1, 3, 7, 9, 11, 13, 14, 15)]
assert all({part(c) for c in QUICK} == {part(c) for c in CASES} for part in (lambda c: c[1], lambda c: c[3], lambda c: c[5].split()[1]))


def call(model, gates):
    return subprocess.run([fit, model, gates], capture_output=True, text=True, timeout=300)


def refused(name, model, gates, *words):
    r = call(model, gates)
    check(name, r.returncode == 1 and not r.stdout and r.stderr.count("\n") == 1 and any(w in r.stderr for w in words), r.returncode, r.stderr)


def numbers(name, s, layout, lines):
    """Compares every layer and head with the values of the biases, to a few steps of f32."""
    want = [[EXPECTED[layout](s, i, h) for h in range(s["kv_heads"])] for i in range(s["layers"])] if layout in EXPECTED else []
    have = [[float(x) for x in line.split()] for line in lines]
    near = [len(a) == len(b) and all(abs(x - y) <= 1e-6 * abs(y) for x, y in zip(a, b)) for a, b in zip(have, want)]
    check(name + ": numbers", len(have) == len(want) and all(near), have[:1], want[:1])


def write(path, tensors, dtype, metadata, convert=False):
    if convert:
        write_torch(path + ".pth", tensors, dtype)
        gate_files.convert(path + ".pth", path)
        os.remove(path + ".pth")
    else:
        write_safetensors(path, tensors, dtype, metadata)


def one(work, case, models, lacking):
    """lacking: also tests the gates without the last tensor."""
    name, shape, make, dtype, metadata, facts, other = case
    s = sizes(gen_large.SHAPES[shape])
    path = os.path.join(work, "gates")
    tensors = make(s)
    write(path, tensors, dtype, metadata, name in CONVERTED)
    if shape == "qwen3-1.7b":  # as wide as its keys and values: the config.json published with the gates decides
        refused(name + " alone", models[shape], path, "config.json")
        with open(os.path.join(work, "config.json"), "w") as f:
            json.dump({"model_type": "qwen3", "retention_gate": "rg"}, f)
        metadata = gate_files.metadata_of(tensors, path)
        write(path, tensors, dtype, metadata)
    r = call(models[shape], path)
    first, *lines = r.stdout.splitlines() or [""]
    if check(name, r.returncode == 0 and first == facts, first, r.stderr):
        numbers(name, s, facts.split()[1], lines)
    refused(name + " for " + other, models[other], path, "expected", "missing", "is not of the layout")
    if lacking and len(tensors) > 1:
        last = list(tensors)[-1]
        write(path, {k: v for k, v in tensors.items() if k != last}, dtype, metadata)
        refused(name + " without " + last, models[shape], path, "missing")
    if shape == "qwen3-1.7b":
        os.remove(os.path.join(work, "config.json"))
    os.remove(path)


def main():
    with tempfile.TemporaryDirectory(prefix="kvf-shapes-") as work:
        models = {}
        for shape in gen_large.SHAPES:
            models[shape] = os.path.join(work, shape + ".gguf")
            gen_large.make(shape, models[shape])
            st = os.stat(models[shape])
            check(shape + " is hollow", st.st_blocks * 512 < st.st_size / 100 or st.st_size < 1 << 27, st.st_blocks, st.st_size)
        long, seen = os.environ.get("KVFATE_TESTS") == "long", set()
        for case in CASES if long else QUICK:
            layout = case[5].split()[1]
            one(work, case, models, lacking=long or layout not in seen)
            seen.add(layout)
    finish()


if __name__ == "__main__":
    main()
