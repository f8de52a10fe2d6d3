/* probe_raw.c - queries and cached keys of chosen heads, as blobs of the trace. With them and the
 * eviction steps a reader computes the attention of each query exactly.
 *
 * Blobs of a query head: q after RoPE, and logit (<kvf/schema.h>). Blobs of its KV head: k as the
 * cache has it. A cache of integers also rounds queries, so q is then rounded in the same way. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/probe/arrays.h"
#include "engine/probe/probes.h"
#include "engine/probe/watch.h"

enum { PIECE = 1024 }; /* tokens of a blob */

struct state {
    float **q;              /* [n_raw] rows [cap][head_dim] */
    float **k;              /* [L * H] rows of the KV heads that are read; NaN: no key was cached */
    struct kv_queries ints; /* a query as integers, for caches of integers */
};

/* Returns the place of the KV head that a query head reads. */
static size_t kv_of(const struct probe_config *c, const struct watch_head *at)
{
    return probe_kv_index(c, at->layer, at->head / (c->shape.n_heads / c->shape.n_kv_heads));
}

static int alloc_integers(struct state *own, const struct probe_config *c)
{
    int D = c->shape.head_dim;
    size_t blocks = kv_blocks(D), channels = kv_channels(KV_Q8_0, D);
    channels = channels > kv_channels(KV_I16, D) ? channels : kv_channels(KV_I16, D);
    own->ints.type = c->kv_type;
    own->ints.q = MEM_NEW(int16_t, channels);
    own->ints.scale = MEM_NEW(float, blocks);
    own->ints.sum = MEM_NEW(int32_t, blocks);
    return own->ints.q && own->ints.scale && own->ints.sum ? KVF_OK : KVF_E_NOMEM;
}

static int open_state(struct probe_state *s)
{
    const struct probe_config *c = s->cfg;
    const struct watch *w = c->watch;
    size_t n_kv = (size_t)c->shape.n_layers * (size_t)c->shape.n_kv_heads;
    size_t n = (size_t)c->cap * (size_t)c->shape.head_dim;
    struct state *own = s->own = MEM_NEW(struct state, 1);
    if (!own)
        return KVF_E_NOMEM;
    own->q = MEM_NEW(float *, (size_t)w->n_raw);
    own->k = MEM_NEW(float *, n_kv);
    if (!own->q || !own->k || alloc_integers(own, c))
        return KVF_E_NOMEM;
    for (int i = 0; i < w->n_raw; i++) {
        float **k = &own->k[kv_of(c, &w->raw[i])];
        own->q[i] = MEM_NEW(float, n);
        if (!own->q[i])
            return KVF_E_NOMEM;
        if (*k)
            continue;
        *k = MEM_RAW(float, n);
        if (!*k)
            return KVF_E_NOMEM;
        for (size_t j = 0; j < n; j++)
            (*k)[j] = NAN;
    }
    return KVF_OK;
}

static void close_state(struct probe_state *s)
{
    struct state *own = s->own;
    for (int i = 0; own->q && i < s->cfg->watch->n_raw; i++)
        mem_free(own->q[i]);
    for (int i = 0; own->k && i < s->cfg->shape.n_layers * s->cfg->shape.n_kv_heads; i++)
        mem_free(own->k[i]);
    mem_free_all(own->q, own->k, own->ints.q, own->ints.scale, own->ints.sum, own);
}

static void copy(struct probe_state *s, const struct probe_state *from, int32_t n)
{
    struct state *to = s->own;
    const struct state *source = from->own;
    size_t bytes = (size_t)n * (size_t)s->cfg->shape.head_dim * sizeof(float);
    for (int i = 0; i < s->cfg->watch->n_raw; i++)
        memcpy(to->q[i], source->q[i], bytes);
    for (int i = 0; i < s->cfg->shape.n_layers * s->cfg->shape.n_kv_heads; i++)
        if (to->k[i])
            memcpy(to->k[i], source->k[i], bytes);
}

static void on_key(struct probe_state *s, int layer, int head, int32_t pos, const float *key)
{
    const struct state *own = s->own;
    size_t D = (size_t)s->cfg->shape.head_dim;
    float *k = own->k[probe_kv_index(s->cfg, layer, head)];
    if (k)
        memcpy(k + (size_t)pos * D, key, D * sizeof *key);
}

/* Rounds a query as attention over pages of integers does (kernels.h, struct kv_queries). */
static void round_query(struct state *own, const struct kernels *kernels, float *q, int D)
{
    const int8_t *bytes = own->ints.q;
    const int16_t *words = own->ints.q;
    kernels->attn_queries(&own->ints, q, (size_t)D, 1, D);
    for (int d = 0; d < D; d++)
        q[d] = own->ints.type == KV_I16 ? (float)words[d] * own->ints.scale[0]
                                        : (float)bytes[d] * own->ints.scale[d / KV_BLOCK];
}

static void on_queries(struct probe_state *s, const struct probe_block *b)
{
    const struct watch *w = s->cfg->watch;
    struct state *own = s->own;
    int D = s->cfg->shape.head_dim;
    for (int i = 0; b->turned && i < w->n_raw; i++) {
        if (w->raw[i].layer != b->layer)
            continue;
        for (int t = 0; t < b->n; t++) {
            float *to = own->q[i] + (size_t)(b->t0 + t) * (size_t)D;
            memcpy(to, b->q + (size_t)t * b->ld + (size_t)(w->raw[i].head * D),
                   (size_t)D * sizeof *to);
            if (kv_whole(s->cfg->kv_type))
                round_query(own, s->cfg->kernels, to, D);
        }
    }
}

/* Writes rows [t0, t1) of a head in pieces. */
static int put_rows(const struct probe_sink *sink, const char *name, int layer, int head,
                    const float *rows, int D, int32_t t0, int32_t t1)
{
    struct kvf_blob b = {.dtype = KVF_F32, .rank = 2};
    snprintf(b.name, sizeof b.name, "%s", name);
    b.layer = (uint16_t)layer;
    b.head = (uint16_t)head;
    b.shape[1] = (uint32_t)D;
    for (int32_t t = t0; t < t1; t += PIECE) {
        b.t0 = (uint32_t)t;
        b.shape[0] = (uint32_t)(t1 - t < PIECE ? t1 - t : PIECE);
        int err = probe_put_blob(sink, &b, rows + (size_t)t * (size_t)D);
        if (err)
            return err;
    }
    return KVF_OK;
}

static int put_logit(const struct probe_state *s, const struct probe_sink *sink, int i)
{
    const struct watch *w = s->cfg->watch;
    const float terms[3] = {s->cfg->attn_scale, s->cfg->attn_cap, w->sink[i]};
    struct kvf_blob b = {.name = "logit", .dtype = KVF_F32, .rank = 1, .shape = {3}};
    b.layer = (uint16_t)w->raw[i].layer;
    b.head = (uint16_t)w->raw[i].head;
    return probe_put_blob(sink, &b, terms);
}

static int put_blobs(const struct probe_state *s, const struct probe_sink *sink, int32_t t0,
                     int32_t t1)
{
    const struct state *own = s->own;
    const struct watch *w = s->cfg->watch;
    int D = s->cfg->shape.head_dim, H = s->cfg->shape.n_kv_heads, err = KVF_OK;
    for (int i = 0; !err && i < w->n_raw; i++) {
        const struct watch_head *at = &w->raw[i];
        size_t kv = kv_of(s->cfg, at);
        bool first = i == 0 || kv_of(s->cfg, at - 1) != kv;
        if (t0 == 0)
            err = put_logit(s, sink, i);
        if (!err)
            err = put_rows(sink, "q", at->layer, at->head, own->q[i], D, t0, t1);
        if (!err && first)
            err = put_rows(sink, "k", at->layer, (int)kv % H, own->k[kv], D, t0, t1);
    }
    return err;
}

static double blob_bytes(const struct probe_config *c)
{
    const struct watch *w = c->watch;
    double rows = w ? w->n_raw : 0;
    for (int i = 0; w && i < w->n_raw; i++)
        rows += i == 0 || kv_of(c, &w->raw[i - 1]) != kv_of(c, &w->raw[i]);
    return rows * c->shape.head_dim * 4;
}

const struct probe probe_raw = {
    .name = "raw",
    .summary = "queries and keys of chosen heads (raw:HEADS), for their attention maps",
    .wants = PROBE_QUERY | PROBE_KEY,
    .by_name = true,
    .open = open_state,
    .close = close_state,
    .copy = copy,
    .key = on_key,
    .queries = on_queries,
    .blobs = put_blobs,
    .blob_bytes = blob_bytes,
};
