/* any_tokenizer.h - shared by the fuzz targets of tokenizers in folders: a folder with only a
 * tokenizer, and texts for it. */
#ifndef KVF_TESTS_FUZZ_ANY_TOKENIZER_H
#define KVF_TESTS_FUZZ_ANY_TOKENIZER_H

#include <string.h>

#include "base/mem.h"
#include "engine/model/hf.h"
#include "engine/model/tokenizer.h"
#include "fuzz.h"

static inline void check_text(const struct tokenizer *t, const char *text, size_t n, unsigned flags)
{
    struct kvf_diag d = {""};
    int32_t *ids = NULL, before = -1;
    int n_ids = -1;
    int err = tokenizer_encode(t, text, n, flags, &ids, &n_ids, &d);
    MUST(err == KVF_OK || (err == KVF_E_LIMIT && d.text[0]));
    for (int i = 0; i < n_ids; before = ids[i++]) {
        size_t len;
        MUST(ids[i] >= 0 && ids[i] < tokenizer_vocab(t));
        tokenizer_bytes(t, ids[i], &len);
        MUST(tokenizer_covers(t, before, ids[i], text, n) <= len);
        tokenizer_is_eog(t, ids[i]);
    }
    int64_t *end = MEM_NEW(int64_t, (size_t)n_ids + 1);
    if (err == KVF_OK && end) {
        err = tokenizer_ends(t, text, n, ids, n_ids, end);
        MUST(err == KVF_OK || err == KVF_E_FORMAT);
        for (int i = 1; err == KVF_OK && i < n_ids; i++)
            MUST(end[i - 1] <= end[i] && end[i] <= (int64_t)n);
    }
    mem_free_all(ids, end);
}

static inline struct gguf *view_of(const struct hf_texts *x)
{
    struct kvf_diag d = {""};
    struct gguf_put put = {.n = 0};
    struct gguf *g = NULL;
    int err = hf_tokenizer_read(x, &put, &d);
    MUST(err == KVF_OK || err == KVF_E_NOMEM || d.text[0]);
    const struct gguf_view view = {.pairs = put.pairs, .n_pairs = put.n};
    if (err)
        buf_finish(&put.pairs);
    else
        MUST(gguf_from_view("fuzz", &view, &g, &d) == KVF_OK);
    return g;
}

static inline struct json *parsed(const char *text)
{
    struct kvf_diag d = {""};
    struct json *out = NULL;
    MUST(json_parse(text, strlen(text), &out, &d) == KVF_OK);
    return out;
}

/* Loads the tokenizer of x. It must be rejected with a message or give tokens of its vocabulary for
 * the text. text NULL: the tokenizer must be accepted or rejected only. */
static inline void try_tokenizer(const struct hf_texts *x, const char *text, size_t n)
{
    struct kvf_diag d = {""};
    struct tokenizer *t = NULL;
    struct gguf *g = view_of(x);
    int err = g ? tokenizer_create_as(g, NULL, &t, &d) : KVF_E_FORMAT;
    MUST(!g || err == KVF_OK || d.text[0]);
    gguf_close(g);
    for (unsigned flags = 0; t && text && flags < 4; flags++)
        check_text(t, text, n, flags);
    tokenizer_destroy(t);
}

#endif
