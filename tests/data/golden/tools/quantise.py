#!/usr/bin/env python3
"""Quantise a Llama of GGUF as llama.cpp's mixes do, with ggml's own quantiser, for measurements of parity.md.

usage: quantise.py SOURCE.gguf OUT.gguf --mix q4_k_m|q6_k|TYPE --ggml libggml-base.so [--wide]

Needs numpy, the gguf package, and ggml as a shared library with ggml_quantize_chunk: the Python packages of llama.cpp and
whisper.cpp carry one (used here: libggml-base.so 0.13.1 of pywhispercpp 1.5.1).  TYPE is one type for all matrices, such as
q3_K.  Widths that are no multiple of 256 fall back as llama.cpp's do: Q4_K to Q5_0, Q5_K to Q5_1, Q6_K to Q8_0, others to IQ4_NL.

--wide pads SmolLM2-135M from 9 heads and 576 channels to 12 and 768 with zeros, so that every width is a multiple of 256: the
norms are scaled by sqrt(576 / 768) and their epsilon by 576 / 768, and the model computes what it did.
"""
import argparse
import ctypes

import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

BLOCK = {"Q5_0": 32, "Q5_1": 32, "Q8_0": 32, "IQ4_NL": 32, "Q4_0": 32, "Q4_1": 32}  # the rest: 256
FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


def more_bits(layer, n):
    return layer < n // 8 or layer >= 7 * n // 8 or (layer - n // 8) % 3 == 2


def type_of(name, mix, layers):
    if mix == "q4_k_m":
        if name in ("token_embd.weight", "output.weight"):
            return "Q6_K"
        layer = int(name.split(".")[1])
        return "Q6_K" if ("attn_v" in name or "ffn_down" in name) and more_bits(layer, layers) else "Q4_K"
    return {"q6_k": "Q6_K"}.get(mix, mix.upper())


def quantise(lib, x, kind):
    if x.shape[1] % BLOCK.get(kind, 256):
        kind = FALLBACK.get(kind, "IQ4_NL")
    number = Type[kind].value
    lib.ggml_quantize_init(number)
    x = np.ascontiguousarray(x, np.float32)
    from gguf.constants import GGML_QUANT_SIZES
    block, size = GGML_QUANT_SIZES[Type[kind]]
    out = np.empty((x.shape[0], x.shape[1] // block * size), np.uint8)
    n = lib.ggml_quantize_chunk(number, x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p),
                                ctypes.c_int64(0), ctypes.c_int64(x.shape[0]), ctypes.c_int64(x.shape[1]), None)
    assert n == out.nbytes, (n, out.nbytes)
    return out, Type[kind]


def widen(name, x):
    """Rows and columns of 576 become 768; the 192 rows of keys and values 256."""
    to = {576: 768, 192: 256}
    out = np.zeros([to.get(n, n) for n in x.shape], np.float32)
    out[tuple(slice(n) for n in x.shape)] = x * (np.float32(np.sqrt(576 / 768)) if "norm" in name else np.float32(1))
    return out


def copy_metadata(reader, w, wide):
    change = {"llama.embedding_length": 768, "llama.attention.head_count": 12, "llama.attention.head_count_kv": 4} if wide else {}
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind, value = field.types[0], change.get(key, field.contents())
        if wide and key.endswith("layer_norm_rms_epsilon"):
            value *= 576 / 768
        if kind == GGUFValueType.ARRAY:
            w.add_array(key, value)
        else:
            w.add_key_value(key, value, kind)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("source")
    p.add_argument("out")
    p.add_argument("--mix", required=True)
    p.add_argument("--ggml", required=True)
    p.add_argument("--wide", action="store_true")
    a = p.parse_args()
    lib = ctypes.CDLL(a.ggml)
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    reader = GGUFReader(a.source)
    w = GGUFWriter(a.out, "llama")
    copy_metadata(reader, w, a.wide)
    layers = reader.fields["llama.block_count"].contents()
    for t in reader.tensors:
        x = dequantize(t.data, t.tensor_type).astype(np.float32)
        x = widen(t.name, x) if a.wide else x
        if x.ndim == 1:
            w.add_tensor(t.name, x)
            continue
        data, kind = quantise(lib, x, type_of(t.name, a.mix, layers))
        w.add_tensor(t.name, data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
