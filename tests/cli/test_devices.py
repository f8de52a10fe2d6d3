#!/usr/bin/env python3
"""kvfate list devices and --device on this machine, with or without a device (tests/cuda/test_program.py
has an emulated one)."""
import json

from harness import Suite

s = Suite()
ASK = ["-m", s.model(), "--raw", "-p", "the cat", "--exact"]

listed = json.loads(s.accepted("list devices --json", ["list", "devices", "--json"]).stdout)
shown = s.accepted("devices", ["list", "devices"]).stdout.decode()
usable = [d for d in listed["devices"] if d["why_not"] is None]
s.check("threads", f"cpu     {listed['threads']} threads\n" in shown, shown)
s.check("each device has a line", all(d["name"] in shown for d in listed["devices"]), shown)
s.check("none has a reason", bool(listed["devices"]) == (listed["why_not"] is None) and (listed["why_not"] or "") in shown, shown, listed)
if listed["built"] is None:
    s.check("without kernels: how to build them", "-Dcuda=enabled" in listed["why_not"] and "nvcc" in listed["why_not"], listed["why_not"])
s.refused("operands", ["list", "devices", "x"], 2)
s.refused("words", ["generate", "--logits", *ASK, "-o", s.path("x.npy"), "--device", "gpu"], 2, "cpu", "cuda", "auto")

logits = {}
for word in ("cpu", "auto"):
    r = s.accepted(f"--device {word}", ["generate", "--logits", *ASK, "-o", s.path(word), "--device", word])
    with open(s.path(word), "rb") as f:
        logits[word] = f.read()
    s.check("auto says what it took", ("--device auto takes" in r.stderr.decode()) == (word == "auto"), r.stderr)
if usable:
    s.accepted("--device cuda", ["generate", "--logits", *ASK, "-o", s.path("cuda"), "--device", "cuda"])
else:
    text = s.file("text.txt", b"the cat " * 99)
    learn = ["-m", s.model(), "--data", text]
    for command in (["generate", "--logits", *ASK, "-o", s.path("cuda")], ["ablate", "--as", "saliency", *ASK[:-1]], ["train", *learn, "-o", s.path("g.safetensors")],
                    ["tune", *learn, "--rank", "1", "-o", s.path("a.safetensors")]):
        s.refused(f"{command[0]} --device cuda", [*command, "--device", "cuda"], 1, listed["why_not"] or "", "--device cpu")
    s.check("auto is then the processor", logits["cpu"] == logits["auto"])
s.finish()
