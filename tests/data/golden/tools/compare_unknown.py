#!/usr/bin/env python3
"""Compare files with one unknown tensor or key (tests/cli/unknown_parts.py) with transformers.

usage: compare_unknown.py KVFATE      (needs torch, transformers and gguf)

Every file must be refused by the name of its tensor or key, or have the logits of transformers to 1e-5, relative to the largest one.  The model in
transformers is that of make_family_golden.py, of the plain file with the same meaning.
"""
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "..", "..", "cli")]
import gen_tiny  # noqa: E402
import harness  # noqa: E402
import make_family_golden as golden  # noqa: E402
import unknown_parts  # noqa: E402

KINDS = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "phi3": "Phi3", "gemma2": "Gemma2", "gemma3": "Gemma3", "olmo2": "Olmo2",
         "granite": "Granite", "smollm3": "SmolLM3"}
IDS = [i * 37 % 297 + 3 for i in range(60)]
MOST = 1e-5
plain_value = gen_tiny.value
WIDE = {1: "<b", 3: "<h", 10: "<Q", 11: "<q", 12: "<d"}
gen_tiny.value = lambda kind, v: struct.pack(WIDE[kind], v) if kind in WIDE else plain_value(kind, v)


def reference(path):
    f = golden.File(path)
    kind = "Mistral" if f.arch == "llama" and f.get("attention.sliding_window") else KINDS[f.arch]
    model = golden.load(f, kind, "")
    scale = f.get("attention.scale")
    if scale is not None and f.arch == "llama":
        for layer in model.model.layers:
            layer.self_attn.scaling = scale
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0, -1].double().numpy()


def main():
    torch.set_num_threads(1)
    kvfate, refused, right, wrong = sys.argv[1], 0, [], []
    with tempfile.TemporaryDirectory() as folder:
        path, ids, out = (os.path.join(folder, n) for n in ("m.gguf", "ids.txt", "x.npy"))
        with open(ids, "w") as f:
            f.write(" ".join(map(str, IDS)))
        for key, arch, file, meant in unknown_parts.cases(harness.Gguf):
            r = subprocess.run([kvfate, "generate", "--logits", "-m", file.write(path), "--ids", ids, "--exact", "-t", "1", "-o", out], capture_output=True, text=True)
            off = None
            if r.returncode == 0 and meant is not None:
                want = reference(meant.write(os.path.join(folder, "n.gguf")))
                off = np.abs(np.load(out) - want).max() / np.abs(want).max()
            named = r.returncode == 1 and key in r.stderr and r.stderr.count("\n") == 1
            verdict = "refused" if named else f"{off:.1e}" if off is not None else "no reference"
            refused += named
            if off is not None and off <= MOST:
                right.append(off)
            elif not named:
                wrong.append(key)
            print(f"{arch:8} {key:48} {verdict}")
    print(f"{refused} refused by name, {len(right)} right (at most {max(right):.1e} off), {len(wrong)} neither: {wrong}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
