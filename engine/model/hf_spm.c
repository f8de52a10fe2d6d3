/* hf_spm.c - reads tokenizer.model, a Protocol Buffers message. */
#include "engine/model/hf_spm.h"

#include <math.h>
#include <string.h>

enum wire { WIRE_NUMBER = 0, WIRE_8 = 1, WIRE_BYTES = 2, WIRE_4 = 5 };

/* The unread bytes of a message. */
struct span {
    const unsigned char *p;
    size_t n;
};

/* A field of a message. */
struct field {
    uint64_t number;
    enum wire wire;
    uint64_t value;    /* for WIRE_NUMBER, WIRE_4 and WIRE_8 */
    struct span bytes; /* for WIRE_BYTES */
};

static bool take_number(struct span *s, uint64_t *ret)
{
    uint64_t v = 0;
    for (unsigned shift = 0; s->n > 0 && shift < 64; shift += 7) {
        unsigned char b = *s->p++;
        s->n--;
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128) {
            *ret = v;
            return true;
        }
    }
    return false;
}

static bool take_fixed(struct span *s, size_t n, uint64_t *ret)
{
    if (s->n < n)
        return false;
    *ret = 0;
    for (size_t i = 0; i < n; i++)
        *ret |= (uint64_t)s->p[i] << (8 * i);
    s->p += n;
    s->n -= n;
    return true;
}

/* Reads the next field of a message with s->n > 0. Returns false if it is malformed. */
static bool take_field(struct span *s, struct field *ret)
{
    uint64_t key, n;
    if (!take_number(s, &key))
        return false;
    *ret = (struct field){.number = key >> 3, .wire = (enum wire)(key & 7)};
    switch (ret->wire) {
    case WIRE_NUMBER:
        return take_number(s, &ret->value);
    case WIRE_8:
        return take_fixed(s, 8, &ret->value);
    case WIRE_4:
        return take_fixed(s, 4, &ret->value);
    case WIRE_BYTES:
        if (!take_number(s, &n) || n > s->n)
            return false;
        ret->bytes = (struct span){s->p, (size_t)n};
        s->p += n;
        s->n -= (size_t)n;
        return true;
    }
    return false;
}

static int damaged(const struct hf_tokens *x, const char *what)
{
    return kvf_fail(x->d, KVF_E_FORMAT,
                    "%s: %s; fetch the file again, or give a folder with tokenizer.json", x->path,
                    what);
}

static int malformed(const struct hf_tokens *x)
{
    return damaged(x, "not the file of a SentencePiece vocabulary, or damaged");
}

static int unsupported(const struct hf_tokens *x, const char *what)
{
    return kvf_fail(x->d, KVF_E_FORMAT,
                    "%s: %s; give a folder with tokenizer.json or a .gguf file of the model",
                    x->path, what);
}

/* Reads a SentencePiece: field 1 text, 2 score, 3 type. GGUF uses the same type numbers. */
static int read_piece(struct hf_tokens *x, struct span s, int32_t id)
{
    struct span text = {NULL, 0};
    uint64_t type = TOKEN_NORMAL;
    float score = 0;
    struct field f;
    while (s.n > 0) {
        if (!take_field(&s, &f))
            return malformed(x);
        if (f.number == 1 && f.wire == WIRE_BYTES)
            text = f.bytes;
        if (f.number == 2 && f.wire == WIRE_4) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&score, &bits, sizeof score);
        }
        if (f.number == 3 && f.wire == WIRE_NUMBER)
            type = f.value;
    }
    if (text.n == 0 || !isfinite(score) || type < TOKEN_NORMAL || type > TOKEN_BYTE)
        return damaged(x, "a piece has no text, no score or no type that is known");
    int err = hf_token_put(x, id, (const char *)text.p, text.n, (uint8_t)type);
    if (!err)
        x->token[id].score = score;
    return err;
}

/* Reads the TrainerSpec: field 3 kind, 24 spaces end words, 40 to 42 marks. */
static int read_trainer(struct hf_tokens *x, struct span s, struct hf_spm *ret)
{
    enum { UNIGRAM = 1, BPE = 2 };
    struct field f;
    while (s.n > 0) {
        if (!take_field(&s, &f))
            return malformed(x);
        if (f.wire != WIRE_NUMBER)
            continue;
        if (f.number == 3 && f.value != UNIGRAM && f.value != BPE)
            return unsupported(x, "its pieces are words or characters, neither BPE nor unigram");
        if (f.number == 24 && f.value)
            return unsupported(x, "spaces follow words (treat_whitespace_as_suffix)");
        if (f.number == 3)
            x->model = f.value == BPE ? HF_PIECES : HF_UNIGRAM;
        int64_t *mark[] = {&ret->unknown, &ret->bos, &ret->eos};
        if (f.number >= 40 && f.number <= 42)
            *mark[f.number - 40] = (int64_t)f.value;
    }
    return KVF_OK;
}

/* Reads the NormalizerSpec: field 2 rules, 3 a space before the text, 4 runs of spaces become one,
 * 5 spaces become U+2581. */
static int read_normalizer(struct hf_tokens *x, struct span s, struct hf_spm *ret)
{
    struct field f;
    while (s.n > 0) {
        if (!take_field(&s, &f))
            return malformed(x);
        if (f.number == 2 && f.wire == WIRE_BYTES) {
            ret->rules = f.bytes.p;
            ret->n_rules = f.bytes.n;
        }
        if (f.wire != WIRE_NUMBER)
            continue;
        if (f.number == 3)
            x->prefix = f.value != 0;
        if (f.number == 4)
            x->collapse = f.value != 0;
        if (f.number == 5 && !f.value)
            return unsupported(x, "spaces stay spaces in its pieces (escape_whitespaces)");
    }
    return KVF_OK;
}

int hf_spm_read(struct hf_tokens *x, const void *file, size_t n, struct hf_spm *ret)
{
    struct span s = {file, n};
    struct field f;
    int32_t id = 0;
    int err = KVF_OK;
    *ret = (struct hf_spm){.bos = 1, .eos = 2, .unknown = 0}; /* defaults of the format */
    x->model = HF_UNIGRAM;
    x->scored = x->prefix = x->collapse = true;
    while (!err && s.n > 0) {
        if (!take_field(&s, &f))
            return malformed(x);
        if (f.wire != WIRE_BYTES)
            continue;
        if (f.number == 1)
            err = read_piece(x, f.bytes, id++);
        else if (f.number == 2)
            err = read_trainer(x, f.bytes, ret);
        else if (f.number == 3)
            err = read_normalizer(x, f.bytes, ret);
    }
    return err || id > 0 ? err : malformed(x);
}
