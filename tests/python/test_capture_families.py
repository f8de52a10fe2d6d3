#!/usr/bin/env python3
"""usage: test_capture_families.py KVFATE LIBKVFTRACE SOURCE_ROOT

Runs small random models of families that the program does not decode under kvfate.capture. The
attention that each entry receives must equal the attention that transformers returns, or the model
is rejected with a message that names the feature. Families that the installed release does not have
are skipped. Skips if torch or transformers are not installed; KVFATE_TORCH_PYTHON names a Python
that has them."""
import os
import tempfile

from capture_checks import begin, refused

begin("families of transformers under capture", "torch", "transformers")
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from check import check, finish  # noqa: E402
import kvfate  # noqa: E402

SIZES = dict(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
             max_position_embeddings=128, bos_token_id=None, eos_token_id=None, pad_token_id=0, moe_intermediate_size=16, num_experts=4, num_local_experts=4,
             num_experts_per_tok=2, shared_expert_intermediate_size=16)
EQUAL = "Starcoder2 StableLm Cohere Cohere2 Phi Gemma Glm Glm4 Olmo Nemotron Exaone4 Ernie4_5 SeedOss HunYuanDenseV1 Arcee Helium Apertus Qwen2Moe Qwen3Moe Mixtral Olmoe " \
    "GraniteMoe Phimoe"
REFUSED = {"GPTNeoX": ["attention module", "kvfate.Writer"], "Bloom": ["attention module", "kvfate.Writer"], "GptOss": ["GptOssAttention", "s_aux"],
           "DiffLlama": ["DiffLlamaAttention", "more than once"]}
IDS = torch.arange(3, 33)[None]


def made(kind):
    """Returns a model, or None if the release has no such family or cannot run it this way."""
    try:
        torch.manual_seed(0)
        model = getattr(transformers, kind + "ForCausalLM")(getattr(transformers, kind + "Config")(**SIZES)).eval()
        generated(model)
        return model
    except Exception as e:  # each release has different bugs
        print("%s is left out: %s" % (kind, str(e).splitlines()[0][:90] if str(e) else type(e).__name__))


def generated(model):
    return model.generate(IDS, max_new_tokens=4, min_new_tokens=4, do_sample=False)


def captured(model):
    with kvfate.capture(model, None, out="family.kvf", probes="full", existing="overwrite"):
        return generated(model)


def equal(kind, model):
    out = captured(model)
    with kvfate.open("family.kvf") as t:
        t.verify()
        model.set_attn_implementation("eager")
        with torch.no_grad():
            dense = model(out[:, :-1], output_attentions=True).attentions
        off = [float(np.abs(t["mass.sum"][layer] - w[0].double().sum(1).numpy()).max()) for layer, w in enumerate(dense)]
        check(kind, t.steps == 33 and len(off) == 2 and max(off) < 1e-5, t.steps, off)


with tempfile.TemporaryDirectory() as FOLDER:
    os.chdir(FOLDER)
    count = 0
    for name in EQUAL.split():
        subject = made(name)
        if subject is not None:
            equal(name, subject)
            count += 1
    for name, words in REFUSED.items():
        subject = made(name)
        if subject is not None:
            refused(name, words, lambda: captured(subject))
    check("some families", count >= 5, count)
    print("%d families are as the library says" % count)
finish()
