#!/usr/bin/env python3
"""usage: test_peft.py KVFATE LIBKVFTRACE SOURCE_ROOT FOLDER_OF_TINY_MODELS

Compares adapters that PEFT makes and saves, applied with --lora, with PEFT's own model: the logits
of small models of five families. The file of the first model has the rows of queries and keys in
another order than Hugging Face. Also opens the output of `kvfate tune` with PEFT. Skips if torch,
transformers, gguf or peft are not installed; KVFATE_TORCH_PYTHON names a Python that has them."""
import os
import subprocess
import sys
import tempfile

from capture_checks import KVFATE, begin

begin("adapters of PEFT", "gguf", "torch", "transformers", "peft")
import numpy as np  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402

from check import check, finish  # noqa: E402
import make_family_golden as golden  # noqa: E402

TINY = os.path.abspath(sys.argv[4])
IDS = [5, 17, 40, 41, 100, 7, 33, 12, 250]
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FUSED = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]


def logits(model, *more):
    with open("ids", "w") as f:
        f.write(" ".join(map(str, IDS)))
    r = subprocess.run([KVFATE, "generate", "--logits", "-m", model, "--ids", "ids", "--exact", *more, "-o", "x.npy"], capture_output=True, text=True)
    return np.load("x.npy") if check(f"{model} {more}", r.returncode == 0, r.stderr) else np.zeros(1)


def compare(name, kind, targets, rslora):
    path = os.path.join(TINY, name + ".gguf")
    torch.manual_seed(1)
    model = golden.load(golden.File(path), kind, "").float().eval()
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, init_lora_weights=False, use_rslora=rslora)).eval()
    adapted.save_pretrained("adapter")
    with torch.no_grad():
        want = adapted(torch.tensor([IDS])).logits[0, -1].numpy()
        with adapted.disable_adapter():
            plain = adapted(torch.tensor([IDS])).logits[0, -1].numpy()
    have, base = logits(path, "--lora", "adapter"), logits(path)
    size = np.abs(want).max()
    check(f"{kind}: without", np.abs(base - plain).max() <= 1e-4 * size, np.abs(base - plain).max(), size)
    check(f"{kind}, {len(targets)} targets, rslora {rslora}", np.abs(have - want).max() <= 1e-4 * size, np.abs(have - want).max(), size)
    check(f"{kind}: the adapter does something", np.abs(have - base).max() > 1e-2 * size)
    print(f"{kind}, {len(targets)} targets: {np.abs(have - want).max() / size:.1e} of the largest logit")


def opened(name, kind):
    """Opens an adapter of tune in PEFT."""
    path = os.path.join(TINY, name + ".gguf")
    with open("text.txt", "w") as f:
        f.write("".join(f" = Title {i} = \n the thing in there and other one is of an it he she ran red bit top hat {i} \n" for i in range(40)))
    os.makedirs("tuned", exist_ok=True)
    r = subprocess.run([KVFATE, "tune", "-m", path, "--data", "text.txt", "--method", "window", "-B", "12", "--length", "48", "--steps", "4", "--lr", "1e-2",
                        "--check-every", "0", "--rank", "3", "--targets", "q,k,v,o,gate,up,down", "--fresh", "-o", "tuned/adapter_model.safetensors"],
                       capture_output=True, text=True)
    check(f"{kind}: tune", r.returncode == 0, r.stderr)
    adapted = peft.PeftModel.from_pretrained(golden.load(golden.File(path), kind, "").float(), "tuned").eval()
    with torch.no_grad():
        want = adapted(torch.tensor([IDS])).logits[0, -1].numpy()
    have, base = logits(path, "--lora", "tuned"), logits(path)
    size = np.abs(want).max()
    check(f"{kind}: PEFT opens what tune makes", np.abs(have - want).max() <= 1e-4 * size, np.abs(have - want).max(), size)
    check(f"{kind}: it learnt something", np.abs(have - base).max() > 1e-3 * size, np.abs(have - base).max())
    print(f"{kind}, made by tune: {np.abs(have - want).max() / size:.1e} of the largest logit")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for model, family, wanted in (("tiny0", "Llama", ALL), ("tiny0", "Llama", ["q_proj", "v_proj"]), ("family1", "Mistral", ALL), ("family3", "Phi3", FUSED),
                                  ("family10", "Qwen2", ALL), ("family11", "Qwen3", ALL), ("family11", "Qwen3", ["k_proj", "down_proj"])):
        compare(model, family, wanted, len(wanted) == 2)
    for model, family in (("tiny0", "Llama"), ("family10", "Qwen2")):
        opened(model, family)
finish()
