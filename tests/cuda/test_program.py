#!/usr/bin/env python3
"""The program on an emulated device against the same on the processor, and what it says of devices that cannot be used.

usage: test_program.py KVFATE_EMULATED FOLDER_OF_TINY_MODELS KVFATE"""
import json
import os
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
    both("generate", ["generate", *PROMPT, "-n", 6, "--exact", "--seed", 3, "--temp", 1])
    both("logits", ["logits", *PROMPT, "--exact"], "x.npy")
    both("effect", ["effect", *PROMPT, "--exact", "--recent", 8, "--score-tokens", 3, "--head", "L0K0", "-o", "-"])
    text = path("text.txt")
    with open(text, "w", encoding="utf-8") as f:
        f.write("".join(f"= Title {i} =\n" + f"The {i} grey cats of the house sleep. " * 40 + "\n" for i in range(3)))
    both("eval", ["eval", "-m", MODEL, "--data", text, "--docs", 2, "--prompt-tokens", 48, "--score-tokens", 3, "--methods", "full,h2o",
                  "--budgets", 16, "--exact", "--json"])


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
    refused("derivatives", ["saliency", *PROMPT, "--device", "cuda"], "", 2, "processor alone")
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


answers_are_equal()
devices()
none_to_use()
nothing_of_the_trace_is_lost()
check.finish()
