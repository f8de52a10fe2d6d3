/* documents.c - divides texts into documents of equal length. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/experiment/documents.h"
#include "engine/experiment/texts.h"

/* Returns the FNV-1a hash of the ids as little-endian bytes. */
static uint64_t hash_ids(const int32_t *ids, int n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++)
        for (int b = 0; b < 32; b += 8)
            h = (h ^ ((uint32_t)ids[i] >> b & 255)) * 0x100000001b3u;
    return h;
}

static int add_document(struct documents *docs, int32_t *ids, const struct text *t, int64_t line)
{
    if (docs->n == docs->cap) {
        int cap = docs->cap ? 2 * docs->cap : 64;
        struct document *doc = mem_grow(docs->doc, (size_t)docs->n, (size_t)cap, sizeof *doc);
        if (!doc)
            return KVF_E_NOMEM;
        docs->doc = doc;
        docs->cap = cap;
    }
    docs->doc[docs->n++] = (struct document){ids, hash_ids(ids, docs->length), t->path, line};
    return KVF_OK;
}

static int encode(const struct tokenizer *tok, const struct text *t, int first, int last,
                  int32_t **ret_ids, int *ret_n, struct kvf_diag *d)
{
    size_t at = t->unit[first].at, end = t->unit[last].at + t->unit[last].len;
    return tokenizer_encode(tok, t->bytes.data + at, end - at, TOKENIZER_BOS, ret_ids, ret_n, d);
}

/* Adds one document that starts at unit *first, or none at the end of the file. Tokens are counted
 * unit by unit, and units are encoded together only when their sum is about long enough, since a
 * joint may add a few tokens. Encoding all units for every count would take quadratic time. */
static int cut_one(const struct tokenizer *tok, const struct text *t, int *first,
                   struct documents *docs, struct kvf_diag *d)
{
    enum { JOINT = 4 };
    int64_t about = 0;
    for (int last = *first; last < t->n; last++) {
        int32_t *ids = NULL;
        int n = 0, err = encode(tok, t, last, last, &ids, &n, d);
        if (err)
            return err;
        about += n + JOINT;
        if (about >= docs->length && last > *first) {
            mem_free(ids);
            err = encode(tok, t, *first, last, &ids, &n, d);
            if (err)
                return err;
        }
        if (about < docs->length || n < docs->length) {
            mem_free(ids);
            continue;
        }
        int64_t line = t->unit[*first].line;
        *first = last + 1;
        err = add_document(docs, ids, t, line);
        if (err)
            mem_free(ids);
        return err;
    }
    *first = t->n;
    return KVF_OK;
}

int documents_read_share(const struct tokenizer *tok, const char *path,
                         const struct text_share *share, struct documents *ret, struct kvf_diag *d)
{
    struct text t;
    int err = text_read(path, share, &t, d);
    for (int at = 0; !err && at < t.n;)
        err = cut_one(tok, &t, &at, ret, d);
    text_finish(&t);
    return err;
}

int documents_read(const struct tokenizer *tok, const char *path, struct documents *ret,
                   struct kvf_diag *d)
{
    return documents_read_share(tok, path, &(struct text_share){0, 1}, ret, d);
}

void documents_shuffle(struct documents *docs, uint64_t seed)
{
    struct rng r;
    rng_init(&r, seed);
    for (int i = 0; i + 1 < docs->n; i++) {
        int j = i + (int)rng_below(&r, (uint64_t)(docs->n - i));
        struct document tmp = docs->doc[i];
        docs->doc[i] = docs->doc[j];
        docs->doc[j] = tmp;
    }
}

void documents_finish(struct documents *docs)
{
    for (int i = 0; i < docs->n; i++)
        mem_free(docs->doc[i].ids);
    mem_free(docs->doc);
    *docs = (struct documents){0};
}

int documents_choose(const struct tokenizer *t, const struct documents_source *from,
                     struct documents *ret, struct kvf_diag *d)
{
    for (int i = 0; i < from->n; i++) {
        int err = documents_read(t, from->path[i], ret, d);
        if (err)
            return err;
    }
    if (ret->n < from->docs)
        return kvf_fail(d, KVF_E_LIMIT,
                        "the data have %d documents of %d tokens, not %d; lower --docs or "
                        "--prompt-tokens, or give more --data",
                        ret->n, ret->length, from->docs);
    documents_shuffle(ret, from->seed);
    return KVF_OK;
}
