/* raw_blocks.c - queries and keys of heads, and their attention weights (raw_blocks.h). */
#include "analyzers/raw_blocks.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { TERMS = 3, LANES = 8 };

int raw_list_read(struct kvf_trace *t, struct raw_list *ret, struct kvf_diag *d)
{
    int n = kvf_n_blobs(t), err = KVF_OK;
    ret->blob = MEM_NEW(struct kvf_blob, (size_t)n);
    if (!ret->blob)
        return KVF_E_NOMEM;
    for (ret->n = 0; !err && ret->n < n; ret->n++)
        err = kvf_blob(t, ret->n, &ret->blob[ret->n], d);
    return err;
}

void raw_list_finish(struct raw_list *l)
{
    mem_free(l->blob);
    *l = (struct raw_list){0};
}

/* Returns the number of the first blob from `from` on with this name of a head, or -1. */
static int find(const struct raw_list *l, const char *name, int layer, int head, int from)
{
    for (int i = from; i < l->n; i++)
        if (l->blob[i].layer == layer && l->blob[i].head == head
            && strcmp(l->blob[i].name, name) == 0)
            return i;
    return -1;
}

bool raw_has(const struct raw_list *l, const char *name, int layer, int head)
{
    return find(l, name, layer, head, 0) >= 0;
}

static int malformed(const struct kvf_blob *b, struct kvf_diag *d)
{
    return kvf_fail(
        d, KVF_E_FORMAT,
        "the blob %s of layer %d, head %d at token %u must have f32 numbers in the shape "
        "%s",
        b->name, b->layer, b->head, b->t0,
        strcmp(b->name, "logit") == 0 ? "[3]" : "[tokens][head_dim], as the others");
}

/* Copies the rows of a blob. done[T]: tokens that have a row. */
static int take_rows(const struct kvf_blob *b, const float *rows, int64_t T, float *out,
                     unsigned char *done, struct kvf_diag *d)
{
    size_t D = b->shape[1];
    for (int64_t i = 0, t = b->t0; i < b->shape[0] && t < T; i++, t++) {
        const float *row = rows + (size_t)i * D;
        float *to = out + (size_t)t * D;
        if (done[t] && memcmp(to, row, D * sizeof *row) != 0)
            return kvf_fail(d, KVF_E_FORMAT,
                            "blobs %s of layer %d, head %d have different numbers for token %lld",
                            b->name, b->layer, b->head, (long long)t);
        memcpy(to, row, D * sizeof *row);
        done[t] = 1;
    }
    return KVF_OK;
}

/* Checks the shapes of a head's blobs before memory is allocated for them, and finds the number of
 * channels. */
static int measure(const struct raw_list *l, const char *name, int layer, int head, int64_t T,
                   int *ret_D, struct kvf_diag *d)
{
    uint64_t rows = 0;
    int first = find(l, name, layer, head, 0);
    for (int i = first; i >= 0; i = find(l, name, layer, head, i + 1)) {
        const struct kvf_blob *b = &l->blob[i];
        if (b->dtype != KVF_F32 || b->rank != 2 || b->shape[1] != l->blob[first].shape[1])
            return malformed(b, d);
        rows += b->shape[0];
    }
    if (rows < (uint64_t)T)
        return kvf_fail(d, KVF_E_NOTFOUND,
                        "the blobs %s of layer %d, head %d have %llu of %lld tokens", name, layer,
                        head, (unsigned long long)rows, (long long)T);
    *ret_D = (int)l->blob[first].shape[1];
    return KVF_OK;
}

/* Reads the rows [T][D] of the blobs of a head. */
static int read_rows(struct kvf_trace *t, const struct raw_list *l, const char *name, int layer,
                     int head, int64_t T, int *ret_D, float **ret, struct kvf_diag *d)
{
    int err = measure(l, name, layer, head, T, ret_D, d);
    if (err)
        return err;
    unsigned char *done = MEM_NEW(unsigned char, (size_t)T);
    float *out = *ret = mem_alloc((size_t)T * (size_t)*ret_D, sizeof *out);
    err = done && out ? KVF_OK : KVF_E_NOMEM;
    for (int i = find(l, name, layer, head, 0); !err && i >= 0;
         i = find(l, name, layer, head, i + 1)) {
        const void *data;
        err = kvf_blob_view(t, i, &data, d);
        if (!err)
            err = take_rows(&l->blob[i], data, T, out, done, d);
    }
    for (int64_t i = 0; !err && i < T; i++)
        if (!done[i])
            err = kvf_fail(d, KVF_E_FORMAT,
                           "the blobs %s of layer %d, head %d have no row for token %lld", name,
                           layer, head, (long long)i);
    mem_free(done);
    return err;
}

static int read_terms(struct kvf_trace *t, const struct raw_list *l, const struct head *h,
                      struct raw_head *x, struct kvf_diag *d)
{
    const void *data;
    float term[TERMS];
    int i = find(l, "logit", h->layer, h->index, 0);
    const struct kvf_blob *b = &l->blob[i];
    if (b->dtype != KVF_F32 || b->rank != 1 || b->shape[0] != TERMS)
        return malformed(b, d);
    int err = kvf_blob_view(t, i, &data, d);
    if (err)
        return err;
    memcpy(term, data, sizeof term);
    x->scale = (double)term[0];
    x->cap = (double)term[1];
    x->sink = (double)term[2];
    if (isfinite(term[0]) && isfinite(term[1]) && term[1] >= 0 && term[2] < INFINITY)
        return KVF_OK;
    return kvf_fail(d, KVF_E_FORMAT,
                    "the blob logit of %s needs a finite scale, a soft cap of 0 or more and a sink "
                    "below infinity, not %g, %g and %g",
                    h->name, x->scale, x->cap, x->sink);
}

int raw_head_read(struct kvf_trace *t, const struct raw_list *l, const struct head *h, int64_t T,
                  struct raw_head *ret, struct kvf_diag *d)
{
    int share = kvf_n_heads(t, h->layer, KVF_SPACE_QUERY) / kvf_n_heads(t, h->layer, KVF_SPACE_KV);
    int D = 0;
    *ret = (struct raw_head){.T = T};
    int err = read_terms(t, l, h, ret, d);
    if (!err)
        err = read_rows(t, l, "q", h->layer, h->index, T, &ret->D, &ret->q, d);
    if (!err)
        err = read_rows(t, l, "k", h->layer, h->index / share, T, &D, &ret->k, d);
    if (!err && D != ret->D)
        err = kvf_fail(d, KVF_E_FORMAT,
                       "queries of %s have %d numbers, keys of its KV head have %d", h->name,
                       ret->D, D);
    return err;
}

void raw_head_finish(struct raw_head *x)
{
    mem_free_all(x->q, x->k);
    *x = (struct raw_head){0};
}

static double dot(const float *a, const float *b, int D)
{
    double lane[LANES] = {0}, sum = 0;
    int d = 0;
    for (; d + LANES <= D; d += LANES)
        for (int i = 0; i < LANES; i++)
            lane[i] += (double)a[d + i] * (double)b[d + i];
    for (; d < D; d++)
        sum += (double)a[d] * (double)b[d];
    for (int i = 0; i < LANES; i++)
        sum += lane[i];
    return sum;
}

void raw_weights(const struct raw_head *x, const uint32_t *end, int64_t t, double *out,
                 double *ret_lse)
{
    double top = x->sink, sum = 0;
    bool some = top > -INFINITY;
    const float *q = x->q + (size_t)t * (size_t)x->D;
    for (int64_t i = 0; i <= t; i++) {
        out[i] = -INFINITY;
        if (end[i] <= t)
            continue;
        some = true;
        double logit = x->scale * dot(q, x->k + (size_t)i * (size_t)x->D, x->D);
        out[i] = x->cap > 0 ? x->cap * tanh(logit / x->cap) : logit;
        top = fmax(top, out[i]); /* not NaN, which the sum becomes */
    }
    for (int64_t i = 0; i <= t; i++) {
        out[i] = end[i] > t && some ? exp(out[i] - top) : 0;
        sum += out[i];
    }
    sum += some ? exp(x->sink - top) : 0;
    for (int64_t i = 0; i <= t && some; i++)
        out[i] = end[i] > t ? out[i] / sum : 0;
    *ret_lse = some ? top + log(sum) : -INFINITY;
}
