#!/usr/bin/env python3
"""The program on an emulated device against the same on the processor, and what it says of devices that cannot be used.

usage: test_program.py KVFATE_EMULATED FOLDER_OF_TINY_MODELS KVFATE"""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import check  # noqa: E402
from check import expect  # noqa: E402

EMULATED, MODELS, KVFATE = map(os.path.abspath, sys.argv[1:4])
work = tempfile.TemporaryDirectory(prefix="kvfate-device-")
MODEL = os.path.join(MODELS, "tiny4.gguf")
PROMPT = ["-m", MODEL, "--raw", "-p", "She sells sea shells by the sea shore. " * 4]


def path(name):
    return os.path.join(work.name, name)


def run(exe, argv, device=""):
    """The portable kernels of the processor: those that a device sums like."""
    r = subprocess.run([exe, *map(str, argv)], capture_output=True, timeout=120,
                       env={**os.environ, "KVFATE_CPU_MASK": "0", "KVF_EMULATED": device})
    r.said = r.stderr.decode("utf-8", "replace")
    expect("emulation" not in r.said, "the emulation found a fault", argv, r.said)
    return r


def read(name):
    with open(name, "rb") as f:
        return f.read()


def both(name, argv, out=None):
    """The same answer of both, on the standard output or in the file -o; that of the processor."""
    answers = []
    for exe, device in ((KVFATE, "cpu"), (EMULATED, "cuda")):
        to = ["-o", path(f"{device}-{out}"), *(["--overwrite"] if out.endswith(".kvf") else [])] if out else []
        r = run(exe, [*argv, *to, "--device", device])
        expect(r.returncode == 0, name, device, r.returncode, r.said)
        answers.append(read(to[1]) if out and r.returncode == 0 else r.stdout)
    expect(answers[0] == answers[1] and answers[0], f"{name}: the device answers otherwise", *(a[:400] for a in answers))
    return answers[0]


def refused(name, argv, device, code, *words):
    r = run(EMULATED, argv, device)
    ok = r.returncode == code and r.said.count("\n") == 1 and not r.stdout
    expect(ok and all(w in r.said for w in words), name, r.returncode, r.said, words)


def answers_are_equal():
    for method, budget in (("full", None), ("h2o", 24), ("snapkv", 24)):
        more = ["-B", budget] if budget else []
        both(f"run --method {method}", ["run", *PROMPT, "-n", 6, "--exact", "--method", method, *more], f"{method}.kvf")
    both("run, drawn", ["run", *PROMPT, "-n", 6, "--exact", "--temp", 2, "--top-p", 0.8, "--seed", 3, "--probes", "nll"], "drawn.kvf")
    both("generate", ["generate", *PROMPT, "-n", 6, "--exact", "--seed", 3, "--temp", 1])
    prompts = path("prompts.jsonl")
    with open(prompts, "w", encoding="utf-8") as f:
        f.write("".join(json.dumps({"text": "Shells by the shore. " * (i + 1), "n": 3 + i}) + "\n" for i in range(5)))
    for method in ("full", "h2o:every=1"):
        more = [] if method == "full" else ["-B", 24]
        both(f"generate --jsonl, {method}", ["generate", "-m", MODEL, "--jsonl", prompts, "--together", 3, "--exact", "--ignore-eos", "--method", method, *more])
    both("logits", ["logits", *PROMPT, "--exact"], "x.npy")
    both("effect", ["effect", *PROMPT, "--exact", "--recent", 8, "--score-tokens", 3, "--head", "L0K0", "-o", "-"])
    text = path("text.txt")
    with open(text, "w", encoding="utf-8") as f:
        f.write("".join(f"= Title {i} =\n" + f"The {i} grey cats of the house sleep. " * 40 + "\n" for i in range(3)))
    both("eval", ["eval", "-m", MODEL, "--data", text, "--docs", 2, "--prompt-tokens", 48, "--score-tokens", 3, "--methods", "full,h2o",
                  "--budgets", 16, "--exact", "--json"])


def rounds_apart():
    """Sequences side by side whose rounds come at different steps: one without a round loses nothing in that of another."""
    prompts = path("apart.jsonl")
    with open(prompts, "w", encoding="utf-8") as f:
        f.write("".join(json.dumps({"id": f"a{i}", "text": "Shells by the shore. " * (1 + i % 2), "n": 5 + 3 * (i % 3) + i}) + "\n" for i in range(5)))
    for together in (1, 3):
        r = run(EMULATED, ["run", "-m", MODEL, "--jsonl", prompts, "--together", together, "--ignore-eos", "-n", 12, "--method", "h2o:every=3", "-B", 12,
                           "--device", "cuda", "-q", "-o", path(f"apart-{together}")])
        expect(r.returncode == 0, "rounds apart", r.returncode, r.said)
    for i in range(5):
        expect(read(path(f"apart-1/a{i}.kvf")) == read(path(f"apart-3/a{i}.kvf")), f"line {i} depends on those beside it")


def devices():
    d = json.loads(run(EMULATED, ["devices", "--json"], "memory=1000000").stdout)
    expect(d["driver"] == "13.0" and d["why_not"] is None and len(d["devices"]) == 1, "devices --json", d)
    expect(d["devices"][0]["memory"] == 1000000 and d["devices"][0]["why_not"] is None, "of the device", d)
    d = json.loads(run(EMULATED, ["devices", "--json"], "major=7").stdout)
    expect("bf16" in d["devices"][0]["why_not"], "a device that is too old", d)
    said = run(EMULATED, ["devices"], "driver=0").stdout.decode()
    expect("no NVIDIA driver" in said and "emulated" not in said, "without a driver", said)
    said = run(EMULATED, ["devices"]).stdout.decode()
    expect("emulated device" in said and "13.0" in said, "for people", said)


def none_to_use():
    argv = ["logits", *PROMPT, "-o", path("none.npy"), "--device", "cuda"]
    refused("no driver", argv, "driver=0", 1, "no NVIDIA driver", "--device cpu")
    refused("an old driver", argv, "driver=12040", 1, "too old", "CUDA 12.4", "13.0")
    refused("no device", argv, "devices=0", 1, "no device", "--device cpu")
    refused("no bf16", argv, "major=7", 1, "7.0", "bf16", "--device cpu")
    refused("no room for the weights", argv, "memory=40960", 1, "no room for the weights", "--device cpu")
    refused("no room for a session", argv, "memory=700000", 1, "no room for a session", "--device cpu")
    refused("no device for derivatives", ["saliency", *PROMPT, "--device", "cuda"], "devices=0", 1, "no device", "--device cpu")
    refused("no room for both directions", ["saliency", *PROMPT, "--device", "cuda"], "memory=40960", 1, "on the device")
    refused("no room for a pass", ["saliency", *PROMPT, "--device", "cuda", "--exact"], "memory=700000", 1, "on the device")
    refused("8 bits", [*argv, "--kv-type", "q8_0"], "", 2, "q8_0", "f16")
    expect(not os.path.exists(path("none.npy")), "a failure leaves no file")
    r = run(EMULATED, ["logits", *PROMPT, "-o", path("auto.npy"), "--device", "auto"], "driver=0")
    expect(r.returncode == 0 and "takes the processor: there is no NVIDIA driver" in r.said, "auto without a device", r.said)
    r = run(EMULATED, ["logits", *PROMPT, "-o", path("auto.npy"), "--device", "auto"])
    expect(r.returncode == 0 and "takes CUDA device 0" in r.said, "auto with one", r.said)


def nothing_of_the_trace_is_lost():
    """A device that fails in the middle: what was recorded is as that of the processor, which goes on with it."""
    argv = ["run", *PROMPT, "-n", 90, "--ignore-eos", "--exact", "--method", "window", "-B", 24, "--probes", "lean", "-q", "-o"]
    run(KVFATE, [*argv, path("whole.kvf")])
    # 112 tokens in a chunk, then 30 or so by themselves: the first block of 128 is on the disk by then
    r = run(EMULATED, [*argv, path("lost.kvf"), "--device", "cuda"], "lost=2200")
    expect(r.returncode == 1 and r.said.count("\n") == 1 and "unspecified launch failure" in r.said and "--resume" in r.said, "a lost device", r.returncode, r.said)
    expect(os.path.exists(path("lost.kvf.unfinished")) and not os.path.exists(path("lost.kvf")), "what was recorded is kept",
           os.listdir(work.name))
    r = run(KVFATE, [*argv, path("lost.kvf"), "--resume"])
    expect(r.returncode == 0, "--resume", r.said)
    expect(read(path("lost.kvf")) == read(path("whole.kvf")), "resumed on the processor it has the bytes of one run")


def numbers(text):
    return [float(x) for x in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]


def alike(name, a, b, share):
    """Two lists of numbers, by the largest of them."""
    top = max(map(abs, a), default=0)
    expect(a and len(a) == len(b) and all(abs(x - y) <= share * top for x, y in zip(a, b)), name, a[:8], b[:8])


def derivatives_by_entries():
    argv = ["saliency", "-m", MODEL, "--raw", "-p", "She sells sea shells.", "--loss", "kl", "--weight", "0.5", "-o"]
    run(KVFATE, [*argv, path("cpu.tsv")])
    for precision, words, share in (("cuda f32", ["--exact"], 1e-4), ("cuda bf16", [], 1e-1)):
        r = run(EMULATED, [*argv, path("gpu.tsv"), "--device", "cuda", *words])
        expect(r.returncode == 0, "saliency --device cuda", r.said)
        cpu, gpu = (read(path(n)).decode() for n in ("cpu.tsv", "gpu.tsv"))
        expect(precision in gpu and precision not in cpu, "what computed is said", gpu[:600])
        rows = ["\n".join(line for line in t.splitlines() if line[:1] != "#") for t in (cpu, gpu)]
        alike(f"saliency, {precision}", *map(numbers, rows), share)


def train_data():
    name = path("train.txt")
    with open(name, "w", encoding="utf-8") as f:
        f.write("".join(f" = Title {i} = \n" + f" The {i} grey cats of the house sleep .\n" * 12 for i in range(12)))
    return name


def losses(name):
    lines = [json.loads(x) for x in read(name + ".log.jsonl").splitlines()]
    return [x["loss"] for x in lines if "loss" in x], [x["norm"] for x in lines if "norm" in x]


def trainings(name, argv, out, launches, precisions=((["--exact"], 1e-4), ([], 5e-2))):
    """The same losses of both, from the command line to the file; what a device leaves that is lost after so many launches is taken up."""
    argv = [*argv, "-m", MODEL, "--data", train_data(), "--length", 24, "-t", 1, "--check-every", 0, "--save-every", 1, "--steps", 2, "-o"]
    run(KVFATE, [*argv, path(f"cpu-{out}")])
    for words, share in precisions:
        gpu = path(f"{len(words)}-{out}")
        r = run(EMULATED, [*argv, gpu, "--device", "cuda", *words])
        expect(r.returncode == 0, f"{name} --device cuda", r.said)
        for a, b in zip(losses(path(f"cpu-{out}")), losses(gpu)):
            alike(f"{name} {words}", a, b, share)
    lost = path(f"lost-{out}")
    more = ["--device", "cuda", "--exact"]
    r = run(EMULATED, [*argv, lost, *more], f"lost={launches}")
    expect(r.returncode == 1 and r.said.count("failed") == 1, f"{name}: a lost device", r.returncode, r.said)
    expect(os.path.exists(lost + ".state") and len(losses(lost)[0]) == 1, f"{name}: the first step was kept", os.listdir(work.name))
    r = run(KVFATE, [*argv, lost])
    expect(r.returncode == 2 and "computed" in r.said, f"{name}: the processor does not go on with it", r.returncode, r.said)
    r = run(EMULATED, [*argv, lost, *more])
    expect(r.returncode == 0 and read(lost) == read(path(f"1-{out}")), f"{name}: taken up it has the bytes of one run", r.said)


def derivatives():
    derivatives_by_entries()
    trainings("train", ["train", "--method", "trimkv:M=8,lr=1e-2"], "g.safetensors", 190)
    trainings("tune", ["tune", "--method", "window", "-B", 16, "--lr", "1e-3"], "m.gguf", 160)
    trainings("tune --rank", ["tune", "--method", "window", "-B", 16, "--rank", 2, "--lr", "1e-2"], "a.safetensors", 220, [(["--exact"], 1e-4)])


answers_are_equal()
rounds_apart()
devices()
derivatives()
none_to_use()
nothing_of_the_trace_is_lost()
check.finish()
