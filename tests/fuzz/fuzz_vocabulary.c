/* fuzz_vocabulary.c - any vocabulary in a model file, and any text for it. The tokenizer is
 * rejected with a message, or its tokens are in the vocabulary and no more than the text allows. */
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "any_tokenizer.h"
#include "fuzz.h"
#include "source.h"
#include "tests/scoped.h"

enum {
    MOST_TOKENS = 64,
    MOST_MERGES = 64,
    U8 = 0,
    I32 = 5,
    F32 = 6,
    BOOL = 7,
    STRING = 8,
    ARRAY = 9
};

struct token {
    const char *s;
    size_t n;
    int32_t type;
    float score;
};

struct file {
    struct buf pairs;
    uint64_t n_pairs;
    struct token token[MOST_TOKENS];
    int n_tokens;
};

static void put_text(struct buf *b, const char *s, size_t n)
{
    buf_le64(b, n);
    buf_add(b, s, n);
}

static void put_key(struct file *f, const char *name, uint32_t kind)
{
    char key[64];
    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    put_text(&f->pairs, key, strlen(key));
    buf_le32(&f->pairs, kind);
    f->n_pairs++;
}

static void put_array(struct file *f, const char *name, uint32_t element, size_t n)
{
    put_key(f, name, ARRAY);
    buf_le32(&f->pairs, element);
    buf_le64(&f->pairs, n);
}

static void put_string(struct file *f, const char *name, const char *value)
{
    put_key(f, name, STRING);
    put_text(&f->pairs, value, strlen(value));
}

static void put_tokens(struct file *f, struct source *s)
{
    f->n_tokens = (int)(take(s, 1) % (MOST_TOKENS + 1));
    for (int i = 0; i < f->n_tokens; i++) {
        struct token *t = &f->token[i];
        t->type = (int32_t)take(s, 1) % 8;
        t->score = (float)(int8_t)take(s, 1);
        if (t->type == 7)
            t->score = t->score > 0 ? INFINITY : NAN;
        t->s = take_text(s, take(s, 1) % 32, &t->n);
    }
    put_array(f, "tokens", STRING, (size_t)f->n_tokens);
    for (int i = 0; i < f->n_tokens; i++)
        put_text(&f->pairs, f->token[i].s, f->token[i].n);
    put_array(f, "token_type", I32, (size_t)f->n_tokens);
    for (int i = 0; i < f->n_tokens; i++)
        buf_le32(&f->pairs, (uint32_t)f->token[i].type);
    put_array(f, "scores", F32, (size_t)f->n_tokens);
    for (int i = 0; i < f->n_tokens; i++)
        buf_add(&f->pairs, &f->token[i].score, sizeof f->token[i].score);
}

/* Writes pairs of tokens. The input decides if their merges are tokens. */
static void put_merges(struct file *f, struct source *s)
{
    size_t n = f->n_tokens ? take(s, 1) % (MOST_MERGES + 1) : 0;
    put_array(f, "merges", STRING, n);
    for (size_t i = 0; i < n; i++) {
        const struct token *a = &f->token[take(s, 1) % (size_t)f->n_tokens],
                           *b = &f->token[take(s, 1) % (size_t)f->n_tokens];
        buf_le64(&f->pairs, a->n + 1 + b->n);
        buf_add(&f->pairs, a->s, a->n);
        buf_char(&f->pairs, ' ');
        buf_add(&f->pairs, b->s, b->n);
    }
}

static void put_file(struct file *f, struct source *s)
{
    static const char *const models[] = {"gpt2", "llama", "t5", "bert"},
                             *const pres[] = {"gpt-2", "llama-bpe", "deepseek-llm", "tekken", "?"},
                             *const flags[] = {"add_space_prefix", "remove_extra_whitespaces",
                                               "add_bos_token"},
                             *const ids[] = {"bos_token_id", "eos_token_id", "unknown_token_id"};
    unsigned bits = (unsigned)take(s, 1);
    size_t n;
    put_string(f, "model", models[take(s, 1) % 4]);
    put_string(f, "pre", pres[take(s, 1) % 5]);
    put_tokens(f, s);
    put_merges(f, s);
    for (int i = 0; i < 3; i++) {
        put_key(f, flags[i], BOOL);
        buf_char(&f->pairs, (char)(bits >> i & 1));
        put_key(f, ids[i], I32);
        buf_le32(&f->pairs, (uint32_t)(int32_t)(int8_t)take(s, 1));
    }
    const char *rules = take_text(s, bits & 8 ? take(s, 2) : 0, &n);
    put_array(f, "precompiled_charsmap", U8, n);
    buf_add(&f->pairs, rules, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct source s = {data, n};
    struct file f = {.n_pairs = 0};
    SCOPED(buf_finish) struct buf b = {0};
    struct kvf_diag d = {""};
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    char path[64];
    put_file(&f, &s);
    buf_str(&b, "GGUF");
    buf_le32(&b, 3);
    buf_le64(&b, 0);
    buf_le64(&b, f.n_pairs);
    buf_add(&b, f.pairs.data, f.pairs.len);
    int fd = memory_file(b.data, b.len, path);
    MUST(gguf_open(path, &g, &d) == KVF_OK);
    int err = tokenizer_create_as(g, NULL, &t, &d);
    MUST((err == KVF_OK) == (t != NULL));
    MUST(err == KVF_OK || d.text[0]);
    gguf_close(g);
    close(fd);
    for (unsigned flags = 0; t && flags < 4; flags++)
        check_text(t, (const char *)s.p, s.n, flags);
    tokenizer_destroy(t);
    buf_finish(&f.pairs);
    return 0;
}
