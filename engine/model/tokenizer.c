#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/model/bpe.h"
#include "engine/model/tokenizer.h"

enum { MAX_TOKENS = 1 << 26, TYPE_CONTROL = 3, TYPE_USER = 4 };

struct tokenizer {
    struct bpe bpe;
    pcre2_code *words;  /* splits text into words */
    bool single_digits; /* numerals are cut out one by one before */
    int32_t *special;   /* [n_special] ids of special tokens, longest text first */
    int n_special;
    int32_t eos, eot;
    char hash[33];
};

/* White_Space of Unicode; PCRE2's own \s has U+180E too. */
#define WS                                                                                         \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}"             \
    "\\x{202F}\\x{205F}\\x{3000}"
#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS       \
    "])|[" WS "]+"
#define LLAMA3(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS                \
    "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"

static const struct {
    const char *name, *regex;
    bool single_digits;
} pre_table[] = {
    {"smollm", GPT2, true},
    {"gpt-2", GPT2, false},
    {"default", GPT2, false},
    {"llama-bpe", LLAMA3("\\p{N}{1,3}"), false},
    {"qwen2", LLAMA3("\\p{N}"), false},
    {"deepseek-r1-qwen", LLAMA3("\\p{N}"), false},
};

static int compile_words(struct tokenizer *t, const struct gguf *g, struct kvf_diag *d)
{
    size_t len = 0;
    const char *pre = gguf_str(g, "tokenizer.ggml.pre", &len);
    if (!pre)
        pre = "default", len = 7;
    for (size_t i = 0; i < sizeof pre_table / sizeof *pre_table; i++) {
        if (strlen(pre_table[i].name) != len || memcmp(pre_table[i].name, pre, len) != 0)
            continue;
        int code;
        PCRE2_SIZE at;
        t->single_digits = pre_table[i].single_digits;
        t->words = pcre2_compile((PCRE2_SPTR)pre_table[i].regex, PCRE2_ZERO_TERMINATED,
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code, &at, NULL);
        if (!t->words)
            return KVF_E_NOMEM;
        pcre2_jit_compile(t->words, PCRE2_JIT_COMPLETE); /* slower without, not wrong */
        return KVF_OK;
    }
    return kvf_fail(d, KVF_E_FORMAT,
                    "%s: pre-tokenizer '%.*s' is not supported; smollm, gpt-2, "
                    "llama-bpe and qwen2 are",
                    gguf_path(g), (int)(len < 40 ? len : 40), pre);
}

static int longer_first(const void *a, const void *b, void *bpe)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    size_t m = bpe_token(bpe, x).len, n = bpe_token(bpe, y).len;
    return m != n ? (m < n) - (m > n) : (x > y) - (x < y);
}

static int read_special(struct tokenizer *t, const struct gguf *g)
{
    int64_t n = gguf_array_ints(g, "tokenizer.ggml.token_type");
    t->special = MEM_NEW(int32_t, n > 0 ? (size_t)n : 1);
    if (!t->special)
        return KVF_E_NOMEM;
    for (int64_t i = 0; i < n && i < t->bpe.n_tokens; i++) {
        int64_t type = gguf_array_int(g, "tokenizer.ggml.token_type", i);
        if ((type == TYPE_CONTROL || type == TYPE_USER) && bpe_token(&t->bpe, (int32_t)i).len)
            t->special[t->n_special++] = (int32_t)i;
    }
    qsort_r(t->special, (size_t)t->n_special, sizeof *t->special, longer_first, &t->bpe);
    t->eos = (int32_t)gguf_int(g, "tokenizer.ggml.eos_token_id", -1);
    t->eot = (int32_t)gguf_int(g, "tokenizer.ggml.eot_token_id", -1);
    return KVF_OK;
}

int tokenizer_create(const struct gguf *g, struct tokenizer **ret_tokenizer, struct kvf_diag *d)
{
    size_t len = 0;
    const char *model = gguf_str(g, "tokenizer.ggml.model", &len);
    if (!model || len != 4 || memcmp(model, "gpt2", 4) != 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: tokenizer model '%.*s' is not supported; 'gpt2' "
                        "(byte-level BPE) is",
                        gguf_path(g), (int)(len < 40 ? len : 40), model ? model : "");
    struct tokenizer *t = MEM_NEW(struct tokenizer, 1);
    if (!t)
        return KVF_E_NOMEM;
    int err = bpe_load(&t->bpe, g, t->hash, d);
    if (err)
        goto fail;
    err = compile_words(t, g, d);
    if (err)
        goto fail;
    err = read_special(t, g);
    if (err)
        goto fail;
    *ret_tokenizer = t;
    return KVF_OK;

fail:
    tokenizer_destroy(t);
    return err;
}

void tokenizer_destroy(struct tokenizer *t)
{
    if (!t)
        return;
    bpe_finish(&t->bpe);
    pcre2_code_free(t->words);
    mem_free(t->special);
    mem_free(t);
}

struct out {
    const struct tokenizer *t;
    struct buf ids; /* int32 values */
    struct bpe_scratch scratch;
    pcre2_match_data *match;
    int err;
};

static void add_word(struct out *o, const char *s, size_t n)
{
    if (!o->err)
        o->err = bpe_encode(&o->t->bpe, s, n, &o->scratch, &o->ids);
}

/* Valid UTF-8 without numerals to be cut out. */
static void add_segment(struct out *o, const char *s, size_t n)
{
    size_t at = 0;
    while (at < n && !o->err) {
        int rc = pcre2_match(o->t->words, (PCRE2_SPTR)s, n, at, PCRE2_NO_UTF_CHECK, o->match, NULL);
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(o->match);
        if (rc < 0 || v[1] <= at) { /* nothing more matches: keep the bytes all the same */
            add_word(o, s + at, n - at);
            return;
        }
        if (v[0] > at)
            add_word(o, s + at, v[0] - at);
        add_word(o, s + v[0], v[1] - v[0]);
        at = v[1];
    }
}

static bool is_numeral(struct out *o, const char *s, size_t len)
{
    uint32_t cp;
    if (!o->t->single_digits || !utf8_decode(s, len, &cp))
        return false;
    if (cp < 128)
        return cp >= '0' && cp <= '9';
    return bpe_is_numeral(&o->t->bpe, s, len);
}

/* Text without special tokens: ill-formed bytes and numerals stand alone. */
static void add_text(struct out *o, const char *s, size_t n)
{
    size_t start = 0, at = 0;
    while (at < n) {
        uint32_t cp;
        size_t len = utf8_decode(s + at, n - at, &cp);
        if (len && !is_numeral(o, s + at, len)) {
            at += len;
            continue;
        }
        add_segment(o, s + start, at - start);
        add_word(o, s + at, len ? len : 1);
        at += len ? len : 1;
        start = at;
    }
    add_segment(o, s + start, n - start);
}

/* The special token that starts at s, or -1. */
static int32_t special_at(const struct tokenizer *t, const char *s, size_t n)
{
    for (int i = 0; i < t->n_special; i++) {
        struct bpe_text x = bpe_token(&t->bpe, t->special[i]);
        if (x.len <= n && memcmp(x.s, s, x.len) == 0)
            return t->special[i];
    }
    return -1;
}

static void add_all(struct out *o, const char *s, size_t n, bool special)
{
    size_t start = 0, at = 0;
    bool first[256] = {false};
    for (int i = 0; special && i < o->t->n_special; i++)
        first[(unsigned char)bpe_token(&o->t->bpe, o->t->special[i]).s[0]] = true;
    while (at < n && !o->err) {
        int32_t id = first[(unsigned char)s[at]] ? special_at(o->t, s + at, n - at) : -1;
        if (id < 0) {
            at++;
            continue;
        }
        add_text(o, s + start, at - start);
        buf_add(&o->ids, &id, sizeof id);
        start = at += bpe_token(&o->t->bpe, id).len;
    }
    add_text(o, s + start, n - start);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special,
                     int32_t **ret_ids, int *ret_n, struct kvf_diag *d)
{
    struct out o = {.t = t, .match = pcre2_match_data_create(1, NULL)};
    if (n > MAX_TOKENS)
        o.err = kvf_fail(d, KVF_E_LIMIT, "text of %zu bytes is too long", n);
    else if (!o.match)
        o.err = KVF_E_NOMEM;
    else
        add_all(&o, text, n, special);
    if (!o.err)
        o.err = o.ids.err;
    int32_t *ids = o.err ? NULL : MEM_NEW(int32_t, o.ids.len / 4 + 1);
    if (!o.err && !ids)
        o.err = KVF_E_NOMEM;
    if (!o.err) {
        if (o.ids.len)
            memcpy(ids, o.ids.data, o.ids.len);
        *ret_ids = ids;
        *ret_n = (int)(o.ids.len / 4);
    }
    buf_finish(&o.ids);
    bpe_scratch_finish(&o.scratch);
    pcre2_match_data_free(o.match);
    return o.err;
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *ret_len)
{
    struct bpe_text x = bpe_token(&t->bpe, id);
    *ret_len = x.len;
    return x.s;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    for (int i = 0; i < t->n_special; i++)
        if (t->special[i] == id)
            return true;
    return false;
}

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
    static const char *const ends[] = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>",
                                       "<|end_of_text|>"};
    if (id == t->eos || id == t->eot)
        return true;
    struct bpe_text x = bpe_token(&t->bpe, id);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (x.len == strlen(ends[i]) && memcmp(x.s, ends[i], x.len) == 0)
            return tokenizer_is_special(t, id);
    return false;
}

int tokenizer_vocab(const struct tokenizer *t)
{
    return t->bpe.n_tokens;
}

void tokenizer_hash(const struct tokenizer *t, char out[33])
{
    memcpy(out, t->hash, 33);
}
