#!/usr/bin/env python3
"""usage: test_capture_paths.py KVFATE LIBKVFTRACE SOURCE_ROOT

Tests kvfate.capture with each attention function of transformers: eager, SDPA, flex_attention and
flash-attn give the same trace of a padded batch, for a model with a window and for one without.
Plain torch replaces flash-attn's two kernels, which need a device; the surrounding code of
transformers is unchanged. Skips if torch and transformers are not installed; KVFATE_TORCH_PYTHON
names a Python that has them."""
import os
import subprocess
import tempfile

from capture_checks import KVFATE, begin, refused

begin("capture by each attention function", "torch", "transformers")
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers.modeling_flash_attention_utils as flash  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM  # noqa: E402

from check import check, finish  # noqa: E402
import kvfate  # noqa: E402

SIZES = dict(vocab_size=99, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, eos_token_id=None)
CALLED = []


def plain(q, k, v, scale, causal, window, softcap):
    """Returns softmax(scale q k) v over the entries that each query sees, for one sequence: q
    [n][heads][D], k and v [m][KV heads][D]."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    products = torch.einsum("qhd,khd->hqk", q, k) * scale
    products = torch.tanh(products / softcap) * softcap if softcap else products
    after = torch.arange(len(k))[None] - torch.arange(len(q))[:, None] - (len(k) - len(q))
    seen = (after <= 0 if causal else after == after) & (after >= -window[0] if window[0] >= 0 else after == after)
    return torch.einsum("hqk,khd->qhd", products.masked_fill(~seen, -torch.inf).softmax(-1), v)


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0):
    CALLED.append("rows of one length")
    return torch.stack([plain(*x, softmax_scale, causal, window_size, softcap) for x in zip(q, k, v)])


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
                           window_size=(-1, -1), softcap=0.0):
    CALLED.append("rows of several lengths")
    ends = zip(cu_seqlens_q, cu_seqlens_q[1:], cu_seqlens_k, cu_seqlens_k[1:])
    return torch.cat([plain(q[a:b], k[c:d], v[c:d], softmax_scale, causal, window_size, softcap) for a, b, c, d in ends])


def choose(model, how):
    """Sets the function as set_attn_implementation does, which would search for a device for
    flash-attn."""
    if how != "flash_attention_2":
        return model.set_attn_implementation(how)
    flash._flash_fn, flash._flash_varlen_fn, flash._pad_fn, flash._unpad_fn = flash_attn_func, flash_attn_varlen_func, flash._pad_input, flash._unpad_input
    flash._process_flash_kwargs_fn = flash._lazy_define_process_function(flash_attn_varlen_func)
    flash._loaded_implementation = model.config._attn_implementation = how


def columns(model, how, ids, mask):
    """Returns all columns of each sequence of a batch."""
    choose(model, how)
    with kvfate.capture(model, None, out="x.kvf", probes="full", existing="overwrite") as c:
        model.generate(ids, attention_mask=mask, max_new_tokens=5, min_new_tokens=5, do_sample=False, pad_token_id=0)
    for path in c.paths:
        check("%s: verify" % how, subprocess.run([KVFATE, "trace", "verify", "--full", path], capture_output=True).returncode == 0)
    traces = [kvfate.open(path) for path in c.paths]
    check("%s: it is noted" % how, all(t.meta["run"]["captured"]["attention"] == how for t in traces))
    return [{name: np.asarray(column) for name, column in t.columns.items() if not column.intervals} for t in traces]


def compiles(model, ids, mask):
    """Returns True if this release of torch can compile flex_attention for such a batch, without a
    capture."""
    choose(model, "flex_attention")
    try:
        model.generate(ids, attention_mask=mask, max_new_tokens=5, min_new_tokens=5, do_sample=False, pad_token_id=0)
    except Exception as e:
        if not type(e).__module__.startswith(("torch._dynamo.", "torch._inductor.")):  # errors of the compiler
            raise
        print("flex_attention is left out: torch %s does not compile it: %s" % (torch.__version__, type(e).__name__))
        return False
    return True


def each(model, ids, mask, functions=("sdpa", "flash_attention_2")):
    """Every attention function must give the same columns: counts equal, numbers within 1e-5."""
    want = columns(model, "eager", ids, mask)
    for how in functions:
        for k, (a, b) in enumerate(zip(want, columns(model, how, ids, mask))):
            name = "%s by %s, sequence %d" % (type(model).__name__, how, k)
            check(name + ": columns", set(a) == set(b) and len(a) > 30, set(a) ^ set(b))
            for column in a:
                same = np.allclose(a[column], b[column], rtol=1e-5, atol=1e-5, equal_nan=True) if a[column].dtype.kind == "f" else np.array_equal(a[column], b[column])
                check("%s: %s" % (name, column), same)


def others(model, ids):
    """A function of flex_attention that is neither causal nor a window is rejected."""
    from torch.nn.attention.flex_attention import create_block_mask
    odd = create_block_mask(lambda b, h, q, k: (k <= q) & (k != 5), 2, None, 40, 40, device="cpu")
    choose(model, "flex_attention")

    def run():
        with torch.no_grad(), kvfate.capture(model, None, out="odd.kvf", existing="overwrite"):
            model(ids, attention_mask=odd)
    refused("flex_attention's mask with a hole", ["LlamaAttention", "neither causal", "kvfate.Writer"], run)


with tempfile.TemporaryDirectory() as FOLDER:
    os.chdir(FOLDER)
    torch.manual_seed(1)
    llama, text = LlamaForCausalLM(LlamaConfig(**SIZES)), torch.randint(3, 90, (2, 40))
    padded = torch.ones_like(text)
    padded[1, :7] = 0
    flex = ["flex_attention"] if compiles(llama, text, padded) else []  # this takes long
    each(llama, text, padded, ("sdpa", *flex, "flash_attention_2"))
    each(llama, text[:1], padded[:1])
    each(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=16)), text, padded)
    check("both kernels of flash-attn were called", set(CALLED) == {"rows of one length", "rows of several lengths"}, set(CALLED))
    if flex:
        others(llama, text)
finish()
