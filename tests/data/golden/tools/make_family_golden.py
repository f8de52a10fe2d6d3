#!/usr/bin/env python3
"""Write next-token logits of tiny random models of all families as transformers computes them, in float64.

usage: make_family_golden.py -o family_golden.json [--only ARCH]      (models made by gen_tiny.py)

Each model is the class that transformers has for the family, of a config written here, with the tensors of the GGUF file put in under
their own names: no loader that knows the format stands between.  Rows of queries and keys of a file whose RoPE turns neighbours are put
where transformers turns halves; norms of Gemma, which files hold plus 1, lose it.  Of 600 ids every NLL is kept and three rows of logits;
the same model in float32 says how much of a difference is rounding.  For each part that a case is about (a window, a cap, factors) the model
is run without it: the largest logit of the last position must notice.
"""
import argparse
import random
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers

from torch_golden import floats, nll, sha256, tiny, write

SHAPE = "--heads 4 --kv-heads 2 --head-dim 16 --dim 64 --context 1024"
# (options of gen_tiny.py, class, what the case is about: config entries that are taken away one by one; --rope-scale that is given besides)
CASES = [
    (f"--arch llama --layers 3 {SHAPE} --seed 21 --rope factors --rope-base 500000", "Llama", ["factors"]),
    (f"--arch llama --layers 3 {SHAPE} --seed 22 --window 100 --untied", "Mistral", ["sliding_window"]),
    (f"--arch llama --layers 2 {SHAPE} --seed 23 --rope linear", "Llama", ["factors"]),
    (f"--arch phi3 --layers 3 {SHAPE} --seed 24 --rope long --original 256 --window 300 --untied", "Phi3", ["factors", "sliding_window", "gain"]),
    (f"--arch phi3 --layers 2 {SHAPE} --seed 25 --rope long --original 700 --rotary 12", "Phi3", ["factors", "gain"]),
    (f"--arch gemma2 --layers 4 {SHAPE} --seed 26 --window 64", "Gemma2", ["sliding_window", "attn_logit_softcapping", "final_logit_softcapping"]),
    (f"--arch gemma3 --layers 7 {SHAPE} --seed 27 --window 64 --rope linear --rope-base 1000000", "Gemma3", ["sliding_window", "factors", "local_base"]),
    (f"--arch olmo2 --layers 3 {SHAPE} --seed 28 --rope-base 500000 --untied", "Olmo2", []),
    (f"--arch granite --layers 3 {SHAPE} --seed 29", "Granite", ["embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier"]),
    (f"--arch smollm3 --layers 5 {SHAPE} --seed 30 --rope-base 5000000", "SmolLM3", ["no_rope_layers"]),
    (f"--arch qwen2 --layers 3 {SHAPE} --seed 31 --rope yarn --original 256 --rope-base 1000000", "Qwen2", ["factors", "gain"]),
    (f"--arch qwen3 --layers 4 {SHAPE} --seed 32 --window 90 --local-from 2 --rope-base 1000000", "Qwen3", ["sliding_window", "all_windows"]),
    (f"--arch olmo2 --layers 5 {SHAPE} --seed 33 --window 80 --rope yarn --original 256 --untied", "Olmo3", ["sliding_window", "factors", "gain", "local_plain"]),
    (f"--arch llama --layers 2 {SHAPE} --seed 34", "Llama", ["factors"], "linear:3"),
    (f"--arch llama --layers 2 {SHAPE} --seed 35", "Llama", ["factors"], "ntk:4"),
    (f"--arch llama --layers 2 {SHAPE} --seed 36", "Llama", ["factors", "gain"], "yarn:4"),
    (f"--arch gemma3 --layers 6 {SHAPE} --seed 37 --window 64 --rope-base 1000000", "Gemma3", ["factors", "gain"], "yarn:2"),
    (f"--arch llama --layers 3 {SHAPE} --seed 38 --sinks --biases", "Llama", ["sinks", "biases"]),
    (f"--arch gemma2 --layers 4 {SHAPE} --seed 39 --window 64 --sinks", "Gemma2", ["sinks", "sliding_window"]),
]
INSIDE = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
          "attn_qkv": "self_attn.qkv_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_output": "self_attn.o_proj",
          "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
          "attn_sinks": "self_attn.sinks", "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
NEIGHBOURS = ("llama", "granite", "smollm3")  # RoPE turns channels 2i and 2i + 1 of a head


def name_of(arch, tensor):
    """The name in transformers of a tensor of the GGUF file; None: it belongs to the config."""
    part, kind = tensor.rsplit(".", 1)
    if part.startswith("rope_"):
        return None
    if part in OUTSIDE:
        return f"{OUTSIDE[part]}.{kind}"
    _, layer, part = part.split(".")
    name = INSIDE[part]
    if part == "ffn_norm" and arch.startswith("gemma"):
        name = "pre_feedforward_layernorm"
    if part == "ffn_up" and arch == "phi3":
        name = "mlp.gate_up_proj"
    return f"model.layers.{layer}.{name}" + (f".{kind}" if part != "attn_sinks" else "")


def halves(x, heads):
    """Rows of pairs, as rows of halves."""
    return x.reshape(heads, -1, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def tensor_of(arch, name, x, heads, kv_heads):
    if arch in NEIGHBOURS and (".attn_q." in name or ".attn_k." in name):
        x = halves(x, heads if ".attn_q." in name else kv_heads)
    if arch.startswith("gemma") and "norm" in name:
        x = x - 1
    return torch.from_numpy(np.ascontiguousarray(x))


class File:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.arch = reader.fields["general.architecture"].contents()
        self.fields = reader.fields
        self.tensors = {t.name: gguf.dequantize(t.data, t.tensor_type).astype("float64") for t in reader.tensors}

    def get(self, key, otherwise=None):
        field = self.fields.get(f"{self.arch}.{key}")
        return otherwise if field is None else field.contents()


def asked_for(scale):
    """The rope_parameters of --rope-scale.  transformers has NTK-aware scaling in its dynamic form alone: a factor of 3 and texts twice the length
    are a base times 3 * 2 - 2 to the power of d / (d - 2)."""
    kind, factor = scale.split(":")
    if kind == "ntk":
        assert float(factor) == 4
        return {"rope_type": "dynamic", "factor": 3.0}
    return {"rope_type": kind, "factor": float(factor), **({"original_max_position_embeddings": 1024} if kind == "yarn" else {})}


def rope_of(f, without, scale):
    """rope_parameters of the global layers"""
    base, rope = float(f.get("rope.freq_base")), {"rope_type": "default"}
    if "factors" in without:
        pass
    elif scale:
        rope = asked_for(scale)
    elif f.get("rope.scaling.type") == "yarn":
        rope = {"rope_type": "yarn", "factor": float(f.get("rope.scaling.factor")),
                "original_max_position_embeddings": int(f.get("rope.scaling.original_context_length"))}
    elif f.get("rope.scaling.type") == "linear":
        rope = {"rope_type": "linear", "factor": float(f.get("rope.scaling.factor"))}
    elif "rope_factors_long.weight" in f.tensors:
        n = int(f.get("rope.scaling.original_context_length"))
        rope = {"rope_type": "longrope", "long_factor": f.tensors["rope_factors_long.weight"].tolist(), "original_max_position_embeddings": n,
                "short_factor": f.tensors["rope_factors_short.weight"].tolist(),
                "attention_factor": 1.0 if "gain" in without else float(f.get("rope.scaling.attn_factor"))}
    if rope["rope_type"] == "yarn" and "gain" in without:
        rope["attention_factor"] = 1.0
    return {**rope, "rope_theta": base}


def config_of(f, kind, without, scale):
    get, tied = f.get, "output.weight" not in f.tensors
    layers, window = get("block_count"), None if "sliding_window" in without else get("attention.sliding_window")
    more = {"rope_parameters": rope_of(f, without, scale), "rope_theta": float(get("rope.freq_base"))}
    if kind in ("Mistral", "Phi3"):
        more["sliding_window"] = window
    if kind == "Phi3":
        more["original_max_position_embeddings"] = more["rope_parameters"].get("original_max_position_embeddings", 1024)
        more["rope_parameters"]["partial_rotary_factor"] = get("rope.dimension_count") / get("attention.key_length")
        more["partial_rotary_factor"] = more["rope_parameters"]["partial_rotary_factor"]
    if kind in ("Gemma2", "Gemma3"):
        every = {"Gemma2": 2, "Gemma3": 6}[kind]
        more["sliding_window"] = window or 4096
        more["layer_types"] = ["full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(layers)]
        more["query_pre_attn_scalar"] = get("attention.key_length")
        for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
            more[cap] = None if cap in without or get(cap) is None else float(get(cap))
    if kind == "Gemma3":
        local = more["rope_parameters"]["rope_theta"] if "local_base" in without else 10000.0
        more["rope_parameters"] = {"full_attention": more["rope_parameters"], "sliding_attention": {"rope_type": "default", "rope_theta": local}}
        more["rope_local_base_freq"] = local
    if kind == "Qwen3":
        more |= {"use_sliding_window": window is not None, "sliding_window": window, "max_window_layers": 2}
        if window:
            local = f.get("attention.sliding_window_pattern")
            more["layer_types"] = ["sliding_attention" if x or "all_windows" in without else "full_attention" for x in local]
    if kind == "Olmo3":
        plain = {"rope_type": "default", "rope_theta": float(get("rope.freq_base"))}
        more["rope_parameters"] = {"full_attention": more["rope_parameters"],
                                   "sliding_attention": more["rope_parameters"] if "local_plain" in without else plain}
        more["sliding_window"] = window or 4096
        more["layer_types"] = ["full_attention" if (i + 1) % 4 == 0 else "sliding_attention" for i in range(layers)]
    if kind == "Granite":
        more |= {"embedding_multiplier": float(get("embedding_scale")), "residual_multiplier": float(get("residual_scale")),
                 "logits_scaling": float(get("logit_scale")), "attention_multiplier": float(get("attention.scale"))}
        plain = {"attention_multiplier": get("attention.key_length") ** -.5}
        more |= {key: plain.get(key, 1.0) for key in without}
    if kind == "SmolLM3":
        more["no_rope_layers"] = [int((i + 1) % 4 != 0 or "no_rope_layers" in without) for i in range(layers)]
    config_class = getattr(transformers, {"Gemma3": "Gemma3TextConfig"}.get(kind, kind + "Config"))
    return config_class(
        vocab_size=get("vocab_size"), hidden_size=get("embedding_length"), intermediate_size=get("feed_forward_length"),
        num_hidden_layers=layers, num_attention_heads=get("attention.head_count"), num_key_value_heads=get("attention.head_count_kv"),
        head_dim=get("attention.key_length"), rms_norm_eps=get("attention.layer_norm_rms_epsilon"), max_position_embeddings=300 if scale.startswith("ntk") else 1024,
        tie_word_embeddings=tied, attn_implementation="eager", pad_token_id=2, bos_token_id=1, eos_token_id=2, **more)


def put_factors(model, factors):
    """llama3's factors, which transformers works out of four numbers, as a file of llama.cpp has them: one by one."""
    rotary = model.model.rotary_emb
    rotary.inv_freq = rotary.original_inv_freq = rotary.inv_freq.double() / torch.from_numpy(factors)


def attend_with_sinks(module, query, key, value, mask, scaling=None, softcap=None, **more):
    """Eager attention of gpt-oss, whose softmax has the sink of each head as one more column; with the cap of Gemma."""
    groups = module.num_key_value_groups
    key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    s = query @ key.transpose(2, 3) * (module.scaling if scaling is None else scaling)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    s = s + mask[..., :key.shape[-2]]
    p = torch.cat([s, module.sinks.reshape(1, -1, 1, 1).expand(s.shape[0], -1, s.shape[-2], -1)], -1).softmax(-1)[..., :-1]
    return (p @ value).transpose(1, 2).contiguous(), p


def load(f, kind, scale, without=()):
    config = config_of(f, kind, without, scale)
    biases = "blk.0.attn_output.bias" in f.tensors
    if biases:
        config.attention_bias = config.mlp_bias = True
    sinks = "blk.0.attn_sinks.weight" in f.tensors
    if sinks:
        transformers.AttentionInterface.register("eager_with_sinks", attend_with_sinks)
        transformers.AttentionMaskInterface.register("eager_with_sinks", transformers.masking_utils.eager_mask)
        config._attn_implementation = "eager_with_sinks"
    model = getattr(transformers, kind + "ForCausalLM")(config)
    for layer in model.model.layers if sinks else ():
        layer.self_attn.sinks = torch.nn.Parameter(torch.zeros(config.num_attention_heads))
    model = model.double().eval()
    heads, kv_heads = f.get("attention.head_count"), f.get("attention.head_count_kv")
    tensors = {name_of(f.arch, name): tensor_of(f.arch, name, x, heads, kv_heads) for name, x in f.tensors.items() if name_of(f.arch, name)}
    missing, unknown = model.load_state_dict(tensors, strict=False)
    if unknown or set(missing) - {"lm_head.weight"}:
        sys.exit(f"{f.arch}: tensors missing {missing}, unknown {unknown}")
    for name, x in model.named_parameters():
        if "biases" in without and name.endswith("bias"):
            x.data.zero_()
        if "sinks" in without and name.endswith("sinks"):
            x.data.fill_(-1e30)
    model.tie_weights()
    if "rope_freqs.weight" in f.tensors and "factors" not in without:
        put_factors(model, f.tensors["rope_freqs.weight"])
    return model


@torch.no_grad()
def logits_of(model, ids):
    return model(torch.tensor([ids])).logits[0].double().numpy()


def make_case(options, path, kind, about, scale, i):
    rng, f = random.Random(2000 + i), File(path)
    ids = [rng.randrange(f.get("vocab_size")) for _ in range(600)]
    rows = logits_of(load(f, kind, scale), ids)
    single = logits_of(load(f, kind, scale).float(), ids)
    most = np.abs(rows).max()
    rounding = np.abs(rows - single).max() / most
    print(f"{options} {scale}\n    logits {rows.min():.3f}..{rows.max():.3f}, float32 is {rounding:.1e} away, relative to the largest")
    for part in about:
        moved = np.abs(rows - logits_of(load(f, kind, scale, (part,)), ids)).max(1) / most
        print(f"    without {part}: {moved[-1]:.2e} at the end, first moved at {np.argmax(moved > 1e-3)}")
        if moved[-1] < 5e-3:
            sys.exit(f"the end does not notice {part}")
    more = {"rope_scale": scale} if scale else {}
    return {"args": options, **more, "sha256": sha256(path), "ids": ids, "nll": nll(rows, ids, 7),
            "rows": [{"t": t, "logits": floats(rows[t], 8)} for t in (70, 299, 599)], "diff_f32": float(f"{rounding:.2g}")}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("-o", required=True)
    ap.add_argument("--only", default="")
    args = ap.parse_args()
    torch.set_num_threads(1)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for i, (options, kind, about, *more) in enumerate(CASES):
            if args.only not in options:
                continue
            cases.append(make_case(options, tiny(options, folder, i), kind, about, more[0] if more else "", i))
    write(args.o, {"cases": cases})


if __name__ == "__main__":
    main()
