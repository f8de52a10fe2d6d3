/* hf_vocab.c - reads the tokens of a model folder: the vocabulary and the added tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/hf_tokens.h"

static uint32_t get(const struct hf_tokens *x, uint32_t object, const char *key)
{
    return json_tape_get(x->tape, object, key);
}

static int damaged(const struct hf_tokens *x, const char *what)
{
    return kvf_fail(x->d, KVF_E_FORMAT, "%s: %s; fetch the file again", x->path, what);
}

static struct piece piece_of(const struct hf_tokens *x, int32_t id)
{
    const struct hf_token *t = &x->token[id];
    return (struct piece){x->bytes.data + t->at, t->n};
}

int hf_token_put(struct hf_tokens *x, int64_t id, const char *s, size_t n, uint8_t type)
{
    if (!s)
        return damaged(x, "a token is no text");
    if (id < 0 || id >= x->most)
        return kvf_fail(x->d, KVF_E_FORMAT,
                        "%s: token '%.*s' has the id %lld; the model has ids from 0 to %d "
                        "(vocab_size of config.json)",
                        x->path, (int)(n < 60 ? n : 60), s, (long long)id, x->most - 1);
    struct hf_token *t = &x->token[id];
    if (t->type && (t->n != n || memcmp(x->bytes.data + t->at, s, n) != 0))
        return kvf_fail(x->d, KVF_E_FORMAT,
                        "%s: the id %lld is that of two tokens, '%.*s' and '%.*s'; fetch the file "
                        "again",
                        x->path, (long long)id, (int)(t->n < 60 ? t->n : 60), x->bytes.data + t->at,
                        (int)(n < 60 ? n : 60), s);
    if (!t->type) {
        t->at = x->bytes.len;
        t->n = n;
        buf_add(&x->bytes, s, n);
    }
    t->type = type;
    x->n = id >= x->n ? (int32_t)id + 1 : x->n;
    return x->bytes.err;
}

static bool spells_byte(const char *s, size_t n)
{
    return s && n == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>';
}

static uint8_t type_of(bool bytes, const char *s, size_t n)
{
    return bytes && spells_byte(s, n) ? TOKEN_BYTE : TOKEN_NORMAL;
}

/* Reads an object with an id for each text. */
static int read_object(struct hf_tokens *x, uint32_t vocab, bool bytes)
{
    for (uint32_t v = json_tape_first(x->tape, vocab); v; v = json_tape_next(x->tape, v)) {
        size_t n = 0;
        const char *s = json_tape_key(x->tape, v, &x->scratch, &n);
        int64_t id = json_tape_int(x->tape, v, -1);
        if (s && id >= 0 && id < x->n && x->token[id].type)
            return kvf_fail(x->d, KVF_E_FORMAT,
                            "%s: two tokens have the id %lld, '%.*s' and another one; fetch the "
                            "file again",
                            x->path, (long long)id, (int)(n < 60 ? n : 60), s);
        int err = hf_token_put(x, id, s, n, type_of(bytes, s, n));
        if (err)
            return err;
    }
    return KVF_OK;
}

/* Reads an array of pairs of text and score, in the order of ids. */
static int read_pairs(struct hf_tokens *x, uint32_t vocab, bool bytes)
{
    int32_t id = 0;
    for (uint32_t v = json_tape_first(x->tape, vocab); v; v = json_tape_next(x->tape, v), id++) {
        uint32_t text = json_tape_first(x->tape, v);
        size_t n = 0;
        const char *s = json_tape_str(x->tape, text, &x->scratch, &n);
        double score = json_tape_num(x->tape, json_tape_next(x->tape, text), NAN);
        int err = isfinite(score) ? hf_token_put(x, id, s, n, type_of(bytes, s, n))
                                  : damaged(x, "a token of the unigram has no score");
        if (err)
            return err;
        x->token[id].score = (float)score;
    }
    return KVF_OK;
}

static int read_vocab(struct hf_tokens *x, uint32_t model)
{
    uint32_t vocab = get(x, model, "vocab"), type = get(x, model, "type");
    bool bytes = json_tape_bool(x->tape, get(x, model, "byte_fallback"), false);
    bool bpe = json_tape_is(x->tape, type, "BPE") || (!type && get(x, model, "merges"));
    char kind = json_tape_kind(x->tape, vocab);
    if (bpe && kind == '{')
        return read_object(x, vocab, bytes);
    if (json_tape_is(x->tape, type, "Unigram") && kind == '[' && x->model == HF_PIECES) {
        x->model = HF_UNIGRAM;
        x->scored = true;
        return read_pairs(x, vocab, bytes);
    }
    return kvf_fail(x->d, KVF_E_FORMAT,
                    "%s: the model of the tokenizer is not one that is supported with this "
                    "pre_tokenizer; BPE and Unigram with a vocabulary are",
                    x->path);
}

/* An added token with U+2581 is never typed; only merges produce it. */
static bool is_made(const struct hf_tokens *x, const char *s, size_t n)
{
    return x->tape && x->model != HF_BYTE_LEVEL && memmem(s, n, "\xe2\x96\x81", 3);
}

static int read_added(struct hf_tokens *x, uint32_t list)
{
    for (uint32_t v = json_tape_first(x->tape, list); v; v = json_tape_next(x->tape, v)) {
        size_t n = 0;
        const char *s = json_tape_str(x->tape, get(x, v, "content"), &x->scratch, &n);
        int64_t id = json_tape_int(x->tape, get(x, v, "id"), -1);
        bool special = json_tape_bool(x->tape, get(x, v, "special"), false);
        if (s && n == 0)
            return damaged(x, "an added token is empty");
        uint8_t type = s && is_made(x, s, n) ? TOKEN_NORMAL : TOKEN_USER;
        type = special ? TOKEN_CONTROL : type;
        int err = hf_token_put(x, id, s, n, type);
        if (err)
            return err;
        struct hf_token *t = &x->token[id];
        if (t->added)
            return kvf_fail(x->d, KVF_E_FORMAT,
                            "%s: token %lld is added twice; fetch the file again", x->path,
                            (long long)id);
        t->added = true;
        if (json_tape_bool(x->tape, get(x, v, "lstrip"), false))
            t->strip |= HF_STRIPS_LEFT;
        if (json_tape_bool(x->tape, get(x, v, "rstrip"), false))
            t->strip |= HF_STRIPS_RIGHT;
    }
    return KVF_OK;
}

/* Adds a token of tokenizer_config.json.  Its settings override those of tokenizer.json, as in
 * transformers. */
static int read_decoded(struct hf_tokens *x, const struct json *v)
{
    const char *s = json_str(json_get(v, "content"), NULL), *key = json_key(v);
    char *end = NULL;
    long id = strtol(key, &end, 10);
    if (end == key || *end || id < 0 || id >= x->most || !s || !*s)
        return kvf_fail(x->d, KVF_E_FORMAT,
                        "%s: added_tokens_decoder of the tokenizer_config.json in its folder has "
                        "no token with an id from 0 to %d in '%.40s'",
                        x->path, x->most - 1, key);
    uint8_t type = is_made(x, s, strlen(s)) ? TOKEN_NORMAL : TOKEN_USER;
    type = json_bool(json_get(v, "special"), false) ? TOKEN_CONTROL : type;
    uint8_t before = x->token[id].type;
    bool keeps = before == TOKEN_UNKNOWN || before == TOKEN_BYTE;
    int err = hf_token_put(x, id, s, strlen(s), keeps ? before : type);
    if (err)
        return err;
    x->token[id].strip = 0;
    if (json_bool(json_get(v, "lstrip"), false))
        x->token[id].strip |= HF_STRIPS_LEFT;
    if (json_bool(json_get(v, "rstrip"), false))
        x->token[id].strip |= HF_STRIPS_RIGHT;
    return KVF_OK;
}

int hf_tokens_decoder(struct hf_tokens *x)
{
    const struct json *v = json_is_object(x->decoder) ? json_first(x->decoder) : NULL;
    int err = KVF_OK;
    for (; !err && v; v = json_next(v))
        err = read_decoded(x, v);
    return err;
}

int hf_tokens_index(struct hf_tokens *x)
{
    int err = names_open(&x->names, x->n);
    for (int32_t i = 0; !err && i < x->n; i++) {
        if (!x->token[i].type)
            continue;
        struct piece p = piece_of(x, i);
        int32_t before = names_find(&x->names, p);
        if (before >= 0)
            return kvf_fail(x->d, KVF_E_FORMAT,
                            "%s: token '%.*s' has two ids, %d and %d; fetch the file again",
                            x->path, (int)(p.len < 60 ? p.len : 60), p.s, before, i);
        names_add(&x->names, i, p);
    }
    return err;
}

int hf_tokens_open(struct hf_tokens *x)
{
    x->token = MEM_NEW(struct hf_token, (size_t)x->most);
    return x->token ? KVF_OK : KVF_E_NOMEM;
}

int hf_tokens_read(struct hf_tokens *x, uint32_t root)
{
    uint32_t model = get(x, root, "model"), added = get(x, root, "added_tokens");
    int err = hf_tokens_open(x);
    if (!err)
        err = read_vocab(x, model);
    if (!err)
        err = read_added(x, added);
    if (!err)
        err = hf_tokens_decoder(x);
    if (err)
        return err;
    if (x->n == 0)
        return damaged(x, "the vocabulary is empty");
    return hf_tokens_index(x);
}

void hf_tokens_finish(struct hf_tokens *x)
{
    buf_finish(&x->scratch);
    buf_finish(&x->patterns);
    buf_finish(&x->bytes);
    names_finish(&x->names);
    mem_free(x->token);
}

void hf_tokens_put(const struct hf_tokens *x, struct gguf_put *put)
{
    bool strips = false;
    gguf_put_strings(put, "tokenizer.ggml.tokens", (uint64_t)x->n);
    for (int32_t i = 0; i < x->n; i++) {
        char hole[32];
        if (x->token[i].type) {
            struct piece p = piece_of(x, i);
            gguf_put_text(put, p.s, p.len);
        } else {
            gguf_put_text(put, hole, (size_t)snprintf(hole, sizeof hole, "[PAD%d]", i));
        }
        strips = strips || x->token[i].strip;
    }
    gguf_put_ints(put, "tokenizer.ggml.token_type", (uint64_t)x->n);
    for (int32_t i = 0; i < x->n; i++)
        buf_le32(&put->pairs, x->token[i].type ? x->token[i].type : TOKEN_UNUSED);
    if (strips) {
        gguf_put_ints(put, "tokenizer.kvfate.strips", (uint64_t)x->n);
        for (int32_t i = 0; i < x->n; i++)
            buf_le32(&put->pairs, x->token[i].strip);
    }
    if (!x->scored)
        return;
    gguf_put_reals(put, "tokenizer.ggml.scores", (uint64_t)x->n);
    for (int32_t i = 0; i < x->n; i++) {
        uint32_t bits;
        memcpy(&bits, &x->token[i].score, sizeof bits);
        buf_le32(&put->pairs, bits);
    }
}
