#!/usr/bin/env python3
"""Cases that only longer runs and unusual inputs reach: prompts over several commits of the
recorder, overlapping and nested spans, and gates with similar names."""
import json
import os
import re
import shutil
import subprocess
import sys

from harness import Suite

s = Suite()
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
IDS = [3 + i * 7 % 250 for i in range(3000)]  # tokens of one byte each


def content(path):
    with open(path, "rb") as f:
        return f.read()


def header(trace):
    return json.loads(s.accepted("info", ["trace", "info", "--json", trace]).stdout)["header"]


def commits():
    """A method that evicts every 300 tokens: the recorder sees each of its boundaries, for any
    chunk size of the prompt."""
    ids, model = s.file("long.ids", " ".join(map(str, IDS)).encode()), s.path("long.gguf")
    subprocess.run([sys.executable, os.path.join(DATA, "golden", "tools", "gen_tiny.py"), "--layers", "1", "--heads", "2", "--kv-heads", "1",
                    "--head-dim", "16", "--dim", "32", "--ffn", "32", "--context", "4096", "-o", model], check=True)
    traces = []
    for chunk in (1, 7, 256, 2048):
        out = s.path(f"long{chunk}.kvf")
        s.accepted(f"chunk {chunk}", ["run", "--overwrite", "-m", model, "--ids", ids, "-n", "2", "--ignore-eos", "--method", "snapkv:chunk=300", "-B", "100",
                                      "--chunk", str(chunk), "-q", "-o", out])
        traces.append(content(out))
    s.check("chunks change no byte of a long recording", len(set(traces)) == 1, [len(x) for x in traces])


def long_steps():
    """A query over long heads is computed in rounds for the heads that share keys. The bits equal
    those of a chunk for any number of threads."""
    ids, model = s.file("steps.ids", " ".join(map(str, IDS[:560])).encode()), s.path("steps.gguf")
    subprocess.run([sys.executable, os.path.join(DATA, "golden", "tools", "gen_tiny.py"), "--layers", "2", "--heads", "6", "--kv-heads", "2",
                    "--head-dim", "48", "--dim", "32", "--ffn", "32", "--context", "1024", "-o", model], check=True)
    for method in ("full", "local", "cake"):
        traces = []
        for chunk, threads in ((256, 2), (1, 1), (1, 3)):
            out = s.path(f"steps{chunk}-{threads}.kvf")
            s.accepted(f"{method}, chunk {chunk}", ["run", "--overwrite", "-m", model, "--ids", ids, "-n", "3", "--ignore-eos", "--method", method, *([] if method == "full" else ["-B", "550"]),
                                                    "--chunk", str(chunk), "-t", str(threads), "-q", "--probes", "paper", "-o", out])
            traces.append(content(out))
        s.check(f"steps over long heads, {method}", len(set(traces)) == 1, [len(x) for x in traces])


def spans():
    ids = s.file("short.ids", " ".join(map(str, IDS[:60])).encode())
    places = {"a": [(5, 20), (8, 12), (18, 30), (40, 45)], "b": [(0, 50), (10, 20), (20, 30)], "c": [(3, 4), (4, 5), (6, 7)]}
    file = s.file("spans.json", json.dumps({"spans": [{"name": n, "start": a, "end": b, "useful": n != "b"} for n in places for a, b in places[n]]}).encode())
    out = s.path("spans.kvf")
    s.accepted("spans", ["run", "--overwrite", "-m", s.model(), "--ids", ids, "-n", "1", "-q", "--probes", "evict", "--spans", file, "-o", out])

    def union(name):
        inside = [any(a <= t < b for a, b in places[name]) for t in range(61)]
        edges = [t for t in range(61) if inside[t] != (t > 0 and inside[t - 1])]
        return [list(x) for x in zip(edges[::2], edges[1::2])]
    found = {x["name"]: x["tokens"] for x in find(header(out), "spans")}
    for name in places:
        s.check(f"spans {name}", found.get(name) == union(name), found, union(name))


def find(tree, key):
    if isinstance(tree, dict):
        return tree[key] if key in tree else next((x for x in (find(v, key) for v in tree.values()) if x), None)
    return None


def gates_by_name():
    """Shipped gates are found by the complete method name at the end of their name."""
    trace, folder = s.path("model.kvf"), s.path("gates")
    run = ["run", "--overwrite", "-m", s.model(), "--raw", "-p", "abc", "-n", "1", "-q", "--probes", "evict"]
    s.accepted("model", [*run, "-o", trace])
    model_hash = re.search(r"# model_hash: (\w+)", s.accepted("table", ["size", "--as", "sparsity", trace, "-o", "-"]).stdout.decode())[1]
    made = s.path("made")
    subprocess.run([sys.executable, os.path.join(DATA, "make_gates.py"), "--layout", "rg", "--layers", "2", "--heads", "4", "--kv-heads", "2", "--head-dim",
                    "16", "--d-model", "64", "--hidden", "4", "--model-hash", model_hash, "-o", made], check=True)
    environment = {**os.environ, "KVFATE_GATES": folder}
    for name, fits in (("m-trim", False), ("m-trimk", False), ("m-trimkvs", False), ("mtrimkv", False), ("trimkv", False), ("m-", False), ("m-trimkv", True)):
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        shutil.copy(made, os.path.join(folder, name + ".safetensors"))
        r = s.run([*run, "--method", "trimkv", "-B", "8", "-o", trace], env=environment)
        s.check(f"{name}.safetensors {'fits' if fits else 'does not fit'} trimkv", (r.returncode == 0) == fits, r.returncode, r.stderr[-300:])


commits()
long_steps()
spans()
gates_by_name()
s.finish()
