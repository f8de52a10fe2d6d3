/* vocab.c - the tokens of a vocabulary, and search by bytes. */
#include "engine/model/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

enum { MOST_TOKENS = 1 << 22 };

static const char tokens_key[] = "tokenizer.ggml.tokens";
static const char types_key[] = "tokenizer.ggml.token_type";

static void on_type(void *ctx, int64_t i, int64_t type)
{
    struct vocab *v = ctx;
    if (i < v->n && type > TOKEN_NORMAL && type <= TOKEN_BYTE)
        v->type[i] = (uint8_t)type;
}

int vocab_open(struct vocab *v, const struct gguf *g, struct kvf_diag *d)
{
    int64_t n = gguf_array_strings(g, tokens_key);
    if (n < 1 || n > MOST_TOKENS)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: the tokenizer's vocabulary is missing, or has more than %d tokens",
                        gguf_path(g), MOST_TOKENS);
    int64_t types = gguf_array_ints(g, types_key);
    if (types >= 0 && types != n)
        return kvf_fail(d, KVF_E_FORMAT, "%s: %s has %lld types of %lld tokens", gguf_path(g),
                        types_key, (long long)types, (long long)n);
    v->n = (int)n;
    v->start = MEM_NEW(size_t, (size_t)n + 1);
    v->type = MEM_NEW(uint8_t, (size_t)n);
    if (!v->start || !v->type)
        return KVF_E_NOMEM;
    memset(v->type, TOKEN_NORMAL, (size_t)n);
    gguf_each_int(g, types_key, on_type, v);
    return KVF_OK;
}

void vocab_finish(struct vocab *v)
{
    buf_finish(&v->bytes);
    mem_free_all(v->start, v->type);
}

void vocab_end_token(struct vocab *v, int64_t i)
{
    v->start[i + 1] = v->bytes.len;
}

struct piece vocab_piece(const struct vocab *v, int32_t id)
{
    if (id < 0 || id >= v->n || !v->bytes.data)
        return (struct piece){"", 0};
    return (struct piece){v->bytes.data + v->start[id], v->start[id + 1] - v->start[id]};
}

static void hash_string(void *ctx, int64_t i, const char *s, size_t len)
{
    (void)i;
    XXH3_128bits_update(ctx, s, len);
    XXH3_128bits_update(ctx, "", 1);
}

int vocab_hash(const struct gguf *g, const float *score, int n, char out[33])
{
    XXH3_state_t *hash = XXH3_createState();
    if (!hash)
        return KVF_E_NOMEM;
    XXH3_128bits_reset(hash);
    gguf_each_str(g, tokens_key, hash_string, hash);
    gguf_each_str(g, "tokenizer.ggml.merges", hash_string, hash);
    if (score)
        XXH3_128bits_update(hash, score, (size_t)n * sizeof *score);
    XXH128_hash_t h = XXH3_128bits_digest(hash);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    XXH3_freeState(hash);
    return KVF_OK;
}

void vocab_hash_name(const char *name, char hash[33])
{
    XXH128_hash_t h = XXH3_128bits_withSeed(hash, 32, XXH3_64bits(name, strlen(name)));
    snprintf(hash, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

int names_open(struct names *x, int n)
{
    x->n_slots = 1024;
    while (x->n_slots < 2 * (size_t)n + 2)
        x->n_slots *= 2;
    x->slot = MEM_NEW(int32_t, x->n_slots);
    x->name = MEM_NEW(struct piece, (size_t)n);
    if (!x->slot || !x->name)
        return KVF_E_NOMEM;
    memset(x->slot, 0xff, x->n_slots * sizeof *x->slot);
    return KVF_OK;
}

void names_finish(struct names *x)
{
    mem_free_all(x->slot, x->name);
}

/* Returns the slot of the token with these bytes, or the free slot for it. */
static size_t find_slot(const struct names *x, struct piece p)
{
    size_t at = XXH3_64bits(p.s, p.len) & (x->n_slots - 1);
    while (x->slot[at] >= 0) {
        const struct piece *t = &x->name[x->slot[at]];
        if (t->len == p.len && memcmp(t->s, p.s, p.len) == 0)
            break;
        at = (at + 1) & (x->n_slots - 1);
    }
    return at;
}

void names_add(struct names *x, int32_t id, struct piece p)
{
    size_t at = find_slot(x, p);
    x->name[id] = p;
    if (x->slot[at] < 0)
        x->slot[at] = id;
}

int32_t names_find(const struct names *x, struct piece p)
{
    return x->slot[find_slot(x, p)];
}

struct entry {
    struct piece piece;
    int32_t id;
};

static int by_bytes(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    size_t n = x->piece.len, m = y->piece.len;
    int c = memcmp(x->piece.s, y->piece.s, n < m ? n : m);
    if (c)
        return c;
    if (n != m)
        return n < m ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

int prefixes_open(struct prefixes *p, const struct vocab *v, unsigned types)
{
    p->vocab = v;
    struct entry *sorted = MEM_NEW(struct entry, (size_t)v->n);
    p->id = MEM_NEW(int32_t, (size_t)v->n);
    if (!p->id || !sorted) {
        mem_free(sorted);
        return KVF_E_NOMEM;
    }
    for (int32_t i = 0; i < v->n; i++)
        if (types >> v->type[i] & 1 && vocab_piece(v, i).len)
            sorted[p->n++] = (struct entry){vocab_piece(v, i), i};
    qsort(sorted, (size_t)p->n, sizeof *sorted, by_bytes);
    for (int32_t i = 0; i < p->n; i++)
        p->id[i] = sorted[i].id;
    mem_free(sorted);
    return KVF_OK;
}

void prefixes_finish(struct prefixes *p)
{
    mem_free(p->id);
}

struct prefix_walk prefixes_walk(const struct prefixes *p)
{
    return (struct prefix_walk){0, p->n, 0};
}

/* Returns the byte of a token at a depth; -1 beyond its end. */
static int byte_at(const struct prefixes *p, int i, size_t depth)
{
    struct piece x = vocab_piece(p->vocab, p->id[i]);
    return depth < x.len ? (unsigned char)x.s[depth] : -1;
}

/* Returns the first token in [lo, hi) whose byte at a depth is at least `byte`. */
static int lower(const struct prefixes *p, int lo, int hi, size_t depth, int byte)
{
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (byte_at(p, mid, depth) < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool prefixes_step(const struct prefixes *p, struct prefix_walk *w, char byte, int32_t *ret_id)
{
    int b = (unsigned char)byte;
    w->lo = lower(p, w->lo, w->hi, w->depth, b);
    w->hi = lower(p, w->lo, w->hi, w->depth, b + 1);
    w->depth++;
    if (w->lo == w->hi)
        return false;
    bool ends = vocab_piece(p->vocab, p->id[w->lo]).len == w->depth;
    *ret_id = ends ? p->id[w->lo] : -1;
    return true;
}
