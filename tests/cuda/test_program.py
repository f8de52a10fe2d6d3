#!/usr/bin/env python3
"""Compares the program on an emulated device with the program on the CPU. tests/gpu/failures.py
tests its messages about failing devices.

usage: test_program.py KVFATE_EMULATED FOLDER_OF_TINY_MODELS KVFATE"""
import json
import os
import re
import sys
from pathlib import Path

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import device_runs
from device_runs import TEXT, check, expect, losses, path, read, told, train_data
from harness import GOLDEN_TOOLS, Gguf

sys.path.append(GOLDEN_TOOLS)

EMULATED, MODELS, KVFATE = map(os.path.abspath, sys.argv[1:4])
MODEL = os.path.join(MODELS, "tiny4.gguf")
PROMPT = ["-m", MODEL, "--raw", "-p", TEXT * 4]


def run(exe, argv, device=""):
    return device_runs.run(exe, argv, {"KVF_EMULATED": device})


def both(name, argv, out=None):
    """Checks that both give the same answer, on standard output or in the file -o; returns that of
    the CPU."""
    answers = []
    for exe, device in ((KVFATE, "cpu"), (EMULATED, "cuda")):
        to = ["-o", path(f"{device}-{out}"), *(["--overwrite"] if out.endswith(".kvf") else [])] if out else []
        r = run(exe, [*argv, *to, "--device", device])
        expect(r.returncode == 0, name, device, r.returncode, r.said)
        answers.append(read(to[1]) if out and r.returncode == 0 else r.stdout)
    expect(answers[0] == answers[1] and answers[0], f"{name}: the device answers otherwise", *(a[:400] for a in answers))
    return answers[0]


def answers_are_equal():
    for method, budget in (("full", None), ("h2o", 24), ("snapkv", 24)):
        more = ["-B", budget] if budget else []
        both(f"run --method {method}", ["run", *PROMPT, "-n", 6, "--exact", "--method", method, "--probes", "paper", *more], f"{method}.kvf")
    with open(path("heads.json"), "w", encoding="utf-8") as f:
        json.dump({"unit": "fraction", "budgets": [[0.5, 1.5], [1.25, 0.75]]}, f)
    for method in ("h2o:allocation=file,recent=4", "snapkv:allocation=file,window=4"):
        both(f"run --method {method}", ["run", *PROMPT, "-n", 24, "--exact", "--ignore-eos", "--method", method, "--probes", "paper", "-B", 24, "--head-budgets", path("heads.json")],
             "heads.kvf")
    both("run, drawn", ["run", *PROMPT, "-n", 6, "--exact", "--temp", 2, "--top-p", 0.8, "--seed", 3, "--probes", "nll"], "drawn.kvf")
    both("generate", ["generate", *PROMPT, "-n", 6, "--exact", "--seed", 3, "--temp", 1])
    prompts = path("prompts.jsonl")
    Path(prompts).write_text("".join(json.dumps({"text": "Shells by the shore. " * (i + 1), "n": 3 + i}) + "\n" for i in range(5)), encoding="utf-8")
    for method in ("full", "h2o:every=1"):
        more = [] if method == "full" else ["-B", 24]
        both(f"generate --jsonl, {method}", ["generate", "-m", MODEL, "--jsonl", prompts, "--together", 3, "--exact", "--ignore-eos", "--method", method, *more])
    both("logits", ["generate", "--logits", *PROMPT, "--exact"], "x.npy")
    both("effect", ["ablate", *PROMPT, "--exact", "--recent", 8, "--score-tokens", 3, "--head", "L0K0", "-o", "-"])
    text = path("text.txt")
    Path(text).write_text("".join(f"= Title {i} =\n" + f"The {i} grey cats of the house sleep. " * 40 + "\n" for i in range(3)), encoding="utf-8")
    both("eval", ["eval", "-m", MODEL, "--data", text, "--docs", 2, "--prompt-tokens", 48, "--score-tokens", 3, "--methods", "full,h2o",
                  "--budgets", 16, "--exact", "--json"])


def sinks_and_biases():
    """One more logit in each softmax, and biases behind all products, in prefill, in steps and layer by layer (--shadow entries)."""
    prompt = ["-m", os.path.join(MODELS, "family17.gguf"), "--raw", "-p", TEXT * 2]
    both("logits with sinks", ["generate", "--logits", *prompt, "--exact"], "sinks.npy")
    for more in ([], ["--probes", "mass,steps"], ["--shadow", "entries"]):
        both(f"run with sinks {more}", ["run", *prompt, "-n", 6, "--exact", "--ignore-eos", "--method", "h2o", "--probes", "paper", "-B", 24, *more], "sinks.kvf")


def attention_maps():
    """Compares the maps from the queries and keys that both record; rejects a cache for which the device rounds queries."""
    maps = []
    for exe, device in ((KVFATE, "cpu"), (EMULATED, "cuda")):
        argv = ["run", *PROMPT, "-n", 6, "--ignore-eos", "--method", "h2o", "-B", 24, "-o", path("raw.kvf"), "--overwrite", "--device", device, "--probes", "lean,raw:0.1,1.0"]
        r = run(exe, [*argv, "--exact"], device)
        expect(r.returncode == 0, "--probes raw", device, r.said)
        maps.append(json.loads(run(KVFATE, ["attention", path("raw.kvf"), "--json"]).stdout)["data"])
    expect(maps[0]["token"] == maps[1]["token"] and maps[0]["cached"] == maps[1]["cached"] and min(maps[0]["cached"]) == 0, "entries of the maps")
    expect(max(abs(a - b) for a, b in zip(maps[0]["attention"], maps[1]["attention"])) < 1e-5, "weights of the maps")
    r = run(EMULATED, argv, "cuda")
    expect(r.returncode == 2 and "use --kv-type f32, --exact or --device cpu" in r.said, "raw on a device with an f16 cache", r.said)


def pool_grows():
    """256 heads fill the initial 256 pages of the pool. Each needs another page in a step, and the
    data in the pages move with the pool."""
    wide = Gguf(layers=8, heads=32, kv_heads=32, head_dim=8, dim=16, ffn=16).write(path("wide.gguf"))
    ids = path("ids.txt")
    Path(ids).write_text(" ".join(str(i * 7 % 90 + 3) for i in range(62)), encoding="utf-8")
    both("run of 256 heads", ["run", "-m", wide, "--ids", ids, "-n", 5, "--exact", "--ignore-eos", "--probes", "nll"], "wide.kvf")


def rounds_apart():
    """Sequences decoded together with eviction rounds at different steps: a sequence without a
    round loses no entry in the round of another."""
    prompts = path("apart.jsonl")
    with open(prompts, "w", encoding="utf-8") as f:
        f.write("".join(json.dumps({"id": f"a{i}", "text": "Shells by the shore. " * (1 + i % 2), "n": 5 + 3 * (i % 3) + i}) + "\n" for i in range(5)))
    for together in (1, 3):
        r = run(EMULATED, ["run", "-m", MODEL, "--jsonl", prompts, "--together", together, "--ignore-eos", "-n", 12, "--probes", "paper", "--method", "h2o:every=3", "-B", 12,
                           "--device", "cuda", "-q", "-o", path(f"apart-{together}")])
        expect(r.returncode == 0, "rounds apart", r.returncode, r.said)
    for i in range(5):
        expect(read(path(f"apart-1/a{i}.kvf")) == read(path(f"apart-3/a{i}.kvf")), f"line {i} depends on those beside it")


def what_useful_entries_get():
    """The dilution probe, for named tokens, for those of a plan, and for sequences decoded
    together, has the bytes of the CPU."""
    spans, plan = path("spans.json"), path("h2o.plan.kvf")
    with open(spans, "w", encoding="utf-8") as f:
        json.dump({"spans": [{"name": "start", "useful": True, "start": 3, "end": 40}, {"name": "end", "useful": True, "start": 80, "end": 90}]}, f)
    run(KVFATE, ["run", *PROMPT, "-n", 6, "--exact", "--ignore-eos", "--method", "h2o", "-B", 24, "-q", "-o", path("h2o-24.kvf")])
    r = run(KVFATE, ["trace", "plan", path("h2o-24.kvf"), "-o", plan])
    expect(r.returncode == 0, "a plan", r.said)
    for method in (["full"], ["window", "-B", 24]):
        both(f"run --spans --plan, {method[0]}", ["run", *PROMPT, "-n", 6, "--exact", "--ignore-eos", "--probes", "evict,dilution", "--spans", spans,
                                                  "--plan", plan, "--method", *method], f"useful-{method[0]}.kvf")
    prompts = path("useful.jsonl")
    with open(prompts, "w", encoding="utf-8") as f:
        f.write("".join(json.dumps({"id": f"u{i}", "text": "Shells by the shore. " * (2 + i % 2), "n": 4 + 2 * i}) + "\n" for i in range(4)))
    for exe, device, together in ((KVFATE, "cpu", 1), (EMULATED, "cuda", 3)):
        r = run(exe, ["run", "-m", MODEL, "--jsonl", prompts, "--together", together, "--ignore-eos", "--exact", "--probes", "paper", "--method", "h2o:every=2", "-B", 12,
                      "--probes", "evict,dilution", "--device", device, "-q", "-o", path(f"useful-{device}")])
        expect(r.returncode == 0, "useful entries", r.returncode, r.said)
    for i in range(4):
        expect(read(path(f"useful-cpu/u{i}.kvf")) == read(path(f"useful-cuda/u{i}.kvf")), f"useful entries of line {i}")


def devices():
    d = json.loads(run(EMULATED, ["list", "devices", "--json"], "memory=1000000").stdout)
    expect(d["driver"] == "13.0" and d["why_not"] is None and len(d["devices"]) == 1, "list devices --json", d)
    expect(d["devices"][0]["memory"] == 1000000 and d["devices"][0]["why_not"] is None, "of the device", d)
    d = json.loads(run(EMULATED, ["list", "devices", "--json"], "major=7").stdout)
    expect("bf16" in d["devices"][0]["why_not"], "a device that is too old", d)
    d = json.loads(run(EMULATED, ["list", "devices", "--json"], "kernels=0").stdout)
    expect("-Dnvcc_archs=90" in d["devices"][0]["why_not"], "a device for which no kernels were compiled", d)
    told("no kernels for the device", run(EMULATED, ["generate", "--logits", *PROMPT, "-o", path("none.npy"), "--device", "cuda"], "kernels=0"),
         "compute capability 9.0", "-Dnvcc_archs=90", code=1)
    said = run(EMULATED, ["list", "devices"], "driver=0").stdout.decode()
    expect("no NVIDIA driver" in said and "emulated" not in said, "without a driver", said)
    said = run(EMULATED, ["list", "devices"]).stdout.decode()
    expect("emulated device" in said and "13.0" in said, "for people", said)


def what_it_lacks():
    told("8 bits", run(EMULATED, ["generate", "--logits", *PROMPT, "-o", path("none.npy"), "--device", "cuda", "--kv-type", "q8_0"]), "q8_0", "f16", code=2)
    expect(not os.path.exists(path("none.npy")), "a failure leaves no file")
    r = run(EMULATED, ["generate", "--logits", *PROMPT, "-o", path("auto.npy"), "--device", "auto"])
    expect(r.returncode == 0 and "takes CUDA device 0" in r.said, "auto", r.said)


def numbers(text):
    return [float(x) for x in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]


def alike(name, a, b, share):
    """Compares two lists of numbers relative to the largest one."""
    top = max(map(abs, a), default=0)
    expect(a and len(a) == len(b) and all(abs(x - y) <= share * top for x, y in zip(a, b)), name, a[:8], b[:8])


def derivatives_by_entries():
    argv = ["ablate", "--as", "saliency", "-m", MODEL, "--raw", "-p", "She sells sea shells.", "--loss", "kl", "--weight", "0.5", "-o"]
    run(KVFATE, [*argv, path("cpu.tsv")])
    for precision, words, share in (("cuda f32", ["--exact"], 1e-4), ("cuda bf16", [], 1e-1)):
        r = run(EMULATED, [*argv, path("gpu.tsv"), "--device", "cuda", *words])
        expect(r.returncode == 0, "ablate --as saliency --device cuda", r.said)
        cpu, gpu = (read(path(n)).decode() for n in ("cpu.tsv", "gpu.tsv"))
        expect(precision in gpu and precision not in cpu, "what computed is said", gpu[:600])
        rows = ["\n".join(line for line in t.splitlines() if line[:1] != "#") for t in (cpu, gpu)]
        alike(f"saliency, {precision}", *map(numbers, rows), share)


def trainings(name, argv, out, precisions=((["--exact"], 1e-4), ([], 5e-2))):
    """Compares the losses of both, from the command line to the file."""
    argv = [*argv, "-m", MODEL, "--data", train_data(), "--length", 24, "-t", 1, "--check-every", 0, "--save-every", 1, "--steps", 2, "-o"]
    run(KVFATE, [*argv, path(f"cpu-{out}")])
    for words, share in precisions:
        gpu = path(f"{len(words)}-{out}")
        r = run(EMULATED, [*argv, gpu, "--device", "cuda", *words])
        expect(r.returncode == 0, f"{name} --device cuda", r.said)
        for a, b in zip(losses(path(f"cpu-{out}")), losses(gpu)):
            alike(f"{name} {words}", a, b, share)


def derivatives():
    derivatives_by_entries()
    trainings("train", ["train", "--method", "trimkv:M=8,lr=1e-2"], "g.safetensors")
    trainings("tune", ["tune", "--method", "window", "-B", 16, "--lr", "1e-3"], "m.gguf")
    trainings("tune --rank", ["tune", "--method", "window", "-B", 16, "--rank", 2, "--lr", "1e-2"], "a.safetensors", [(["--exact"], 1e-4)])


def lost_before_anything_is_asked():
    """The first call after the loss reports that the device failed. In the second half of this run,
    this call once asks for memory."""
    for n in range(112) if os.environ.get("KVFATE_TESTS") == "long" else range(40, 70):
        r = run(EMULATED, ["run", "-m", MODEL, "--raw", "-p", "She", "-n", 3, "--ignore-eos", "--device", "cuda", "-q", "-o", path("lost.kvf"), "--overwrite"], f"lost={n}")
        r.stdout = b""  # the answer
        told(f"lost after {n} launches", r, "failed: ")


answers_are_equal()
attention_maps()
sinks_and_biases()
pool_grows()
rounds_apart()
what_useful_entries_get()
lost_before_anything_is_asked()
devices()
derivatives()
what_it_lacks()
check.finish()
