/* packs.c - reads training text, tokenises it and packs documents. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/file_bytes.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/room.h"
#include "engine/experiment/documents.h"
#include "engine/experiment/texts.h"
#include "engine/train/packs.h"
#include "engine/train/packs_cache.h"

/* A document or a part of it, of 2 .. T tokens. */
struct piece {
    const int32_t *ids;
    int32_t n, number; /* number: index in the order of the text */
    int32_t next;      /* next piece in the same pack, -1: none */
};

/* All pieces of the text. */
struct pieces {
    struct piece *piece;
    int n;
    int32_t **owned; /* [n_owned] arrays that contain the ids */
    int n_owned;
    size_t cap, cap_owned;
};

enum { MAX_PIECES = 1 << 29 };

/* Splits a document into pieces. Ownership of ids passes to x, also after an error. */
static int add_document(struct pieces *x, int32_t *ids, int n, int length)
{
    if (x->n_owned == MAX_PIECES
        || !mem_room(&x->owned, (size_t)x->n_owned, &x->cap_owned, 256, sizeof *x->owned)) {
        mem_free(ids);
        return KVF_E_NOMEM;
    }
    x->owned[x->n_owned++] = ids;
    for (int at = 0; n - at >= 2; at += length) {
        if (x->n == MAX_PIECES
            || !mem_room(&x->piece, (size_t)x->n, &x->cap, 256, sizeof *x->piece))
            return KVF_E_NOMEM;
        int32_t k = n - at < length ? n - at : length;
        x->piece[x->n] = (struct piece){ids + at, k, x->n, -1};
        x->n++;
        if (n - at <= length)
            break;
    }
    return KVF_OK;
}

static int read_documents(const struct tokenizer *tok, const char *path,
                          const struct text_share *share, int length, struct pieces *x,
                          struct kvf_diag *d)
{
    struct text t;
    int err = text_read(path, share, &t, d);
    if (err)
        goto done;
    for (int i = 0; i < t.n; i++) {
        int32_t *ids = NULL;
        int n = 0;
        err = tokenizer_encode(tok, t.bytes.data + t.unit[i].at, t.unit[i].len, TOKENIZER_BOS, &ids,
                               &n, d);
        if (err) {
            kvf_diag_prefix(d, "%s, line %lld", path, (long long)t.unit[i].line);
            goto done;
        }
        err = add_document(x, ids, n, length);
        if (err)
            goto done;
    }

done:
    text_finish(&t);
    return err;
}

/* Reads runs of exactly T tokens, each a document. Ids move from docs to x. */
static int read_runs(const struct tokenizer *tok, const char *path, const struct text_share *share,
                     int length, struct pieces *x, struct kvf_diag *d)
{
    struct text check; /* documents.h accepts any bytes as text; training does not */
    int err = text_read(path, share, &check, d);
    struct documents docs = {.length = length};
    text_finish(&check);
    if (err)
        return err;
    err = documents_read_share(tok, path, share, &docs, d);
    for (int i = 0; !err && i < docs.n; i++) {
        err = add_document(x, docs.doc[i].ids, length, length);
        docs.doc[i].ids = NULL;
    }
    documents_finish(&docs);
    return err;
}

static int longer_first(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Best-fit decreasing: the longest piece first, each into the fullest pack with enough free tokens.
 * room[r] is the newest pack with r free tokens, before[k] the next such pack. */
static int fit(struct piece *piece, int n, int length, int32_t *head, int32_t *last, int32_t *room,
               int32_t *before)
{
    int packs = 0;
    for (int r = 0; r <= length; r++)
        room[r] = -1;
    for (int i = 0; i < n; i++) {
        int r = piece[i].n;
        while (r <= length && room[r] < 0)
            r++;
        int k = r <= length ? room[r] : packs++, left = (r <= length ? r : length) - piece[i].n;
        if (r <= length) {
            room[r] = before[k];
            piece[last[k]].next = i;
        } else {
            head[k] = i;
        }
        last[k] = i;
        before[k] = room[left];
        room[left] = k;
    }
    return packs;
}

static void lay_out(const struct piece *piece, const int32_t *head, struct packs *p)
{
    int64_t at = 0;
    for (int k = 0; k < p->count; k++) {
        int32_t n = 0;
        for (int32_t i = head[k]; i >= 0; i = piece[i].next) {
            memcpy(p->ids + at + n, piece[i].ids, sizeof *p->ids * (size_t)piece[i].n);
            for (int32_t t = 0; t < piece[i].n; t++)
                p->first[at + n + t] = n;
            n += piece[i].n;
        }
        p->n[k] = n;
        at += n;
    }
}

static int make_packs(struct pieces *x, int length, enum packing packing, struct packs *p)
{
    size_t n = (size_t)x->n;
    int32_t *head = MEM_NEW(int32_t, n), *last = MEM_NEW(int32_t, n);
    int32_t *before = MEM_NEW(int32_t, n), *room = MEM_NEW(int32_t, (size_t)length + 1);
    int err = KVF_E_NOMEM;
    if (!head || !last || !before || !room)
        goto done;
    if (packing == PACK_DOCUMENTS)
        qsort(x->piece, n, sizeof *x->piece, longer_first);
    p->count = fit(x->piece, x->n, length, head, last, room, before);
    for (int i = 0; i < x->n; i++)
        p->tokens += x->piece[i].n;
    p->n = MEM_NEW(int32_t, (size_t)p->count);
    p->ids = MEM_NEW(int32_t, (size_t)p->tokens);
    p->first = MEM_NEW(int32_t, (size_t)p->tokens);
    if (!p->n || !p->ids || !p->first)
        goto done;
    lay_out(x->piece, head, p);
    err = packs_index(p);

done:
    mem_free_all(head, last, before, room);
    return err;
}

static int build(const struct tokenizer *t, const struct packs_source *from, struct packs *p,
                 struct kvf_diag *d)
{
    struct text_share share = {from->from, from->to};
    struct pieces x = {0};
    int err = KVF_OK;
    for (int i = 0; i < from->n_paths; i++) {
        err = (from->packing == PACK_RUN ? read_runs : read_documents)(t, from->path[i], &share,
                                                                       from->length, &x, d);
        if (err)
            goto done;
    }
    if (x.n == 0) {
        err = kvf_fail(d, KVF_E_LIMIT,
                       "%s: the data give no %s; give more text, or shorter "
                       "packs",
                       from->n_paths ? from->path[0] : "no file",
                       from->packing == PACK_RUN ? "run of the length of a pack"
                                                 : "document of 2 tokens or more");
        goto done;
    }
    err = make_packs(&x, from->length, from->packing, p);

done:
    for (int i = 0; i < x.n_owned; i++)
        mem_free(x.owned[i]);
    mem_free_all(x.owned, x.piece);
    return err;
}

static int hash_file(XXH3_state_t *x, const char *path, struct kvf_diag *d)
{
    FILE *f = file_with_end(path);
    char part[65536];
    uint64_t size = 0;
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open the data: %s", path,
                        errno == ENODEV ? "it is a device, which may have no end"
                                        : strerror(errno));
    for (size_t n = 1; n > 0;) {
        n = fread(part, 1, sizeof part, f);
        XXH3_128bits_update(x, part, n);
        size += n;
    }
    int bad = ferror(f) ? errno : 0;
    fclose(f);
    XXH3_128bits_update(x, &size, sizeof size); /* the boundaries of files are part of the hash */
    return bad ? kvf_fail(d, KVF_E_IO, "%s: cannot read the data: %s", path, strerror(bad))
               : KVF_OK;
}

static int make_key(const struct tokenizer *t, const struct packs_source *from,
                    struct packs_key *key, struct kvf_diag *d)
{
    XXH3_state_t *x = XXH3_createState();
    char tokens[33];
    struct {
        double from, to;
        int64_t length, packing;
    } cut;
    if (!x)
        return KVF_E_NOMEM;
    memset(&cut, 0, sizeof cut);
    cut.from = from->from;
    cut.to = from->to;
    cut.length = from->length;
    cut.packing = from->packing;
    tokenizer_hash(t, tokens);
    XXH3_128bits_reset(x);
    XXH3_128bits_update(x, tokens, 32);
    XXH3_128bits_update(x, &cut, sizeof cut);
    int err = KVF_OK;
    for (int i = 0; !err && i < from->n_paths; i++)
        err = hash_file(x, from->path[i], d);
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits_digest(x));
    memcpy(key->hash, c.digest, 16);
    key->length = from->length;
    key->vocab = tokenizer_vocab(t);
    XXH3_freeState(x);
    return err;
}

static int through_cache(const struct tokenizer *t, const struct packs_source *from,
                         struct packs *p, struct kvf_diag *d)
{
    struct packs_key key;
    struct buf path = {0};
    int err = make_key(t, from, &key, d);
    if (err)
        return err;
    mkdir(from->cache_dir, 0777); /* without this folder there is no cache */
    buf_printf(&path, "%s/", from->cache_dir);
    for (int i = 0; i < 16; i++)
        buf_printf(&path, "%02x", key.hash[i]);
    buf_str(&path, ".ids");
    err = path.err;
    if (err || packs_cache_read(path.data, &key, p) == KVF_OK)
        goto done;
    err = build(t, from, p, d);
    if (err)
        goto done;
    packs_cache_write(path.data, &key, p);

done:
    buf_finish(&path);
    return err;
}

int packs_open(const struct tokenizer *t, const struct packs_source *from, struct packs **ret,
               struct kvf_diag *d)
{
    if (from->length < 2 || !(from->from >= 0 && from->from < from->to && from->to <= 1))
        return kvf_fail(d, KVF_E_ARG,
                        "packs need 2 tokens or more, and a share of the data from "
                        "0 to 1");
    struct packs *p = MEM_NEW(struct packs, 1);
    if (!p)
        return KVF_E_NOMEM;
    int err = from->cache_dir ? through_cache(t, from, p, d) : build(t, from, p, d);
    if (err)
        packs_close(p);
    else
        *ret = p;
    return err;
}

static int gather(const struct packs_text *text, int n, struct packs *p)
{
    for (int i = 0; i < n; i++)
        p->tokens += text[i].n;
    p->n = MEM_NEW(int32_t, (size_t)n);
    p->at = MEM_NEW(int64_t, (size_t)n + 1);
    p->order = MEM_NEW(int32_t, (size_t)n);
    p->ids = MEM_NEW(int32_t, (size_t)p->tokens);
    p->first = MEM_NEW(int32_t, (size_t)p->tokens); /* zeroed: each pack is one document */
    if (!p->n || !p->at || !p->order || !p->ids || !p->first)
        return KVF_E_NOMEM;
    for (int i = 0; i < n; i++) {
        p->n[i] = text[i].n;
        p->at[i + 1] = p->at[i] + text[i].n;
        memcpy(p->ids + p->at[i], text[i].ids, (size_t)text[i].n * sizeof *p->ids);
    }
    return KVF_OK;
}

int packs_gather(const struct packs_text *text, int n, size_t per, struct packs **ret)
{
    struct packs *p = MEM_NEW(struct packs, 1);
    int32_t **evicted_at = MEM_NEW(int32_t *, (size_t)n);
    for (int i = 0; i < n; i++) {
        if (evicted_at)
            evicted_at[i] = text[i].evicted_at;
        else
            mem_free(text[i].evicted_at);
    }
    if (!p || !evicted_at) {
        for (int i = 0; evicted_at && i < n; i++)
            mem_free(evicted_at[i]);
        mem_free_all(evicted_at, p);
        return KVF_E_NOMEM;
    }
    *p = (struct packs){.count = n, .evicted_at = evicted_at, .per = per, .epoch = -1};
    int err = gather(text, n, p);
    if (err)
        packs_close(p);
    else
        *ret = p;
    return err;
}

void packs_close(struct packs *p)
{
    if (p)
        packs_finish(p);
    mem_free(p);
}

int packs_count(const struct packs *p)
{
    return p->count;
}

int64_t packs_tokens(const struct packs *p)
{
    return p->tokens;
}

uint64_t packs_hash(const struct packs *p)
{
    uint64_t h = XXH3_64bits(p->n, sizeof *p->n * (size_t)p->count);
    h = XXH3_64bits_withSeed(p->ids, sizeof *p->ids * (size_t)p->tokens, h);
    h = XXH3_64bits_withSeed(p->first, sizeof *p->first * (size_t)p->tokens, h);
    for (int i = 0; p->evicted_at && i < p->count; i++)
        h = XXH3_64bits_withSeed(p->evicted_at[i],
                                 sizeof **p->evicted_at * p->per * (size_t)p->n[i], h);
    return h;
}

/* Fisher-Yates shuffle. The generator is seeded for each (seed, epoch). */
static void shuffle(struct packs *p, uint64_t seed, int64_t epoch)
{
    struct rng r;
    rng_init(&r, rng_hash(seed, (uint64_t)epoch, 0, 0));
    for (int i = 0; i < p->count; i++)
        p->order[i] = i;
    for (int i = p->count - 1; i > 0; i--) {
        int j = (int)rng_below(&r, (uint64_t)i + 1);
        int32_t k = p->order[i];
        p->order[i] = p->order[j];
        p->order[j] = k;
    }
    p->seed = seed;
    p->epoch = epoch;
}

struct pack packs_get(struct packs *p, uint64_t seed, int64_t epoch, int i)
{
    if (p->epoch != epoch || p->seed != seed)
        shuffle(p, seed, epoch);
    int k = p->order[i];
    return (struct pack){p->ids + p->at[k], p->first + p->at[k], p->n[k],
                         p->evicted_at ? p->evicted_at[k] : NULL};
}
