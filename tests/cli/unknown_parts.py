"""Model files with one more tensor or key than the loader's families have, as in published files.

CASES: (name of the tensor or key, the file's options for gen_tiny, the addition, its meaning). The
meaning is None if the file must be rejected by that name, and otherwise the keys of a plain file
with the same logits.
"""
import numpy as np

U8, U16, U32, I32, F32, BOOL, STRING, U64, I64, F64 = 0, 2, 4, 5, 6, 7, 8, 10, 11, 12
SHAPE = {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "dim": 64, "ffn": 96}


def vector(n, seed=1):
    return np.random.RandomState(seed).standard_normal(n).astype(np.float32)


TENSORS = [  # (architecture, tensor, its shape)
    ("llama", "blk.0.attn_q.bias", 64), ("llama", "blk.1.attn_k.bias", 32), ("llama", "blk.0.attn_output.bias", 64),
    ("llama", "blk.0.ffn_gate.bias", 96), ("llama", "blk.1.ffn_down.bias", 64), ("granite", "blk.0.ffn_up.bias", 96),
    ("smollm3", "blk.0.attn_v.bias", 32), ("qwen2", "blk.0.attn_output.bias", 64), ("qwen3", "blk.0.attn_q.bias", 64),
    ("phi3", "blk.0.attn_qkv.bias", 128), ("gemma2", "blk.0.attn_norm.bias", 64), ("llama", "output.bias", 300),
    ("llama", "blk.0.attn_sinks.weight", 4), ("llama", "blk.0.attn_q.scale", 1), ("llama", "blk.0.ffn_gate_inp.weight", 64),
    ("llama", "blk.0.attn_q_norm.weight", 16), ("llama", "blk.0.post_attention_norm.weight", 64), ("olmo2", "blk.0.attn_norm.weight", 64),
    ("llama", "token_embd_norm.weight", 64), ("llama", "position_embd.weight", 64), ("qwen3", "cls.output.weight", 64),
    ("qwen3", "blk.2.attn_norm.weight", 64), ("gemma3", "v.patch_embd.bias", 8), ("llama", "blk.0.attn_gate.weight", 64),
    ("llama", "blk.0.layer_output_scale.weight", 1),
]
KEYS = [  # (architecture, key, its type, its value): rejected
    ("llama", "attention.clamp_kqv", F32, 0.5), ("llama", "logit_scale", F32, 0.5), ("llama", "embedding_scale", F32, 12.0),
    ("qwen2", "residual_scale", F32, 0.25), ("llama", "attention.causal", BOOL, False), ("llama", "use_parallel_residual", BOOL, True),
    ("gemma3", "attn_logit_softcapping", F32, 3.0), ("qwen3", "final_logit_softcapping", F32, 3.0), ("llama", "attention.max_alibi_bias", F32, 8.0),
    ("llama", "attention.temperature_scale", F32, 0.1), ("llama", "attention.value_scale", F32, 0.5), ("gemma2", "rope.freq_base_swa", F32, 500.0),
    ("qwen2", "rope.dimension_sections", I32, [2, 3, 3, 0]), ("llama", "rope.scaling.alpha", F32, 1000.0),
    ("llama", "rope.scaling.yarn_beta_fast", F32, 16.0), ("llama", "expert_used_count", U32, 2), ("llama", "nextn_predict_layers", U32, 1),
    ("granite", "rope.scaling.finetuned", BOOL, False), ("llama", "tensor_data_layout", STRING, "transposed"),
    ("llama", "hidden_activation", STRING, "relu2"), ("llama", "attention.qk_rescale", F32, 2.0), ("gemma3", "rope.global.freq_base", F32, 1e6),
    ("llama", "attention.indexer.top_k", U32, 64), ("llama", "attention.key_length_swa", U32, 8), ("llama", "rope.freq_base", STRING, "500000"),
    ("llama", "rope.freq_base", BOOL, True), ("llama", "attention.head_count_kv", I32, [2, 1]), ("llama", "feed_forward_length", I32, [96, 64]),
    ("llama", "attention.sliding_window", F32, 64.5), ("llama", "attention.sliding_window_pattern", F32, [1.0, 0.0]),
    ("", "qwen2.rope.freq_base", F32, 1e6), ("", "xielu.alpha_p", F32, 0.8), ("", "tokenizer.ggml.normalizer.lowercase", BOOL, True),
    ("", "tokenizer.ggml.suppress_tokens", I32, [5]), ("", "tokenizer.ggml.add_bos_token", F32, 1.5), ("", "tokenizer.ggml.bos_token_id", STRING, "1"),
    ("", "general.alignment", STRING, "32"), ("", "split.count", STRING, "1"),
]
LINEAR = {"rope.scaling.type": (STRING, "linear"), "rope.scaling.factor": (F32, 4.0)}
BASE = {"rope.freq_base": (F32, 500000.0)}
MEANT = [  # (architecture, key, its type, its value, its meaning)
    ("llama", "rope.scale_linear", F32, 4.0, LINEAR), ("llama", "rope.scaling.factor", F32, 4.0, LINEAR), ("qwen2", "rope.scaling.factor", U32, 4, LINEAR),
    *(("llama", "rope.freq_base", kind, 500000, BASE) for kind in (U32, I32, U64, I64, F64)),
    ("llama", "attention.layer_norm_rms_epsilon", F64, 0.015625, {"attention.layer_norm_rms_epsilon": (F32, 0.015625)}),
    ("llama", "attention.sliding_window", F32, 16.0, {"attention.sliding_window": (U32, 16)}),
    ("llama", "attention.head_count_kv", F64, 2.0, {}), ("llama", "block_count", U8, 2, {}), ("llama", "block_count", U16, 2, {}),
    ("llama", "attention.scale", U8, 1, {"attention.scale": (F32, 1.0)}),
    ("granite", "logit_scale", U32, 3, {"logit_scale": (F32, 3.0)}),
    ("gemma3", "final_logit_softcapping", F32, 3.0, {"final_logit_softcapping": (F32, 3.0)}),
    # without an effect
    ("llama", "attention.clamp_kqv", F32, 0.0, {}), ("llama", "attention.causal", U8, 1, {}), ("llama", "expert_count", U32, 0, {}),
    ("llama", "tensor_data_layout", STRING, "Meta AI original pth", {}), ("llama", "rope.freq_base_swa", F32, 10000.0, {}),
    ("llama", "attention.layer_norm_epsilon", F32, 1e-2, {}), ("llama", "pooling_type", U32, 3, {}), ("llama", "hidden_activation", STRING, "silu", {}),
    ("gemma3", "vision.block_count", U32, 27, {}), ("gemma3", "mm.tokens_per_image", U32, 256, {}),
    ("", "general.sampling.temp", F32, 0.6, {}), ("", "quantize.imatrix.chunks_count", I32, 125, {}), ("", "mradermacher.quantized_by", STRING, "x", {}),
    ("", "tokenizer.ggml.fim_pre_token_id", U32, 5, {}), ("", "tokenizer.chat_template.tool_use", STRING, "x", {}),
]


def plain(gguf_class, arch, keys=()):
    g = gguf_class(arch=arch or "llama", untied=True, **SHAPE)
    for name, (kind, value) in dict(keys).items():
        g.set(name if not arch else f"{arch}.{name}", value, kind)
    return g


def cases(gguf_class):
    """Returns (name, architecture, the file, None or the plain file with the same meaning)."""
    for arch, name, n in TENSORS:
        g = plain(gguf_class, arch)
        g.tensors.append([name, [n], 0, vector(n).tobytes()])
        yield name, arch, g, None
    for arch, name, kind, value, *meant in KEYS + MEANT:
        key = f"{arch}.{name}" if arch else name
        g = plain(gguf_class, arch, {name: (kind, value)} if arch else {name: (kind, value)})
        yield key, arch or "llama", g, plain(gguf_class, arch, meant[0]) if meant else None
