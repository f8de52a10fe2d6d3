/* shadow.c - compares a run with a full-cache run.
 *
 * Let x be the residual streams and z the logits of the full-cache run (full) and the session, and
 * p the distribution of the full-cache run:
 *
 *     residual error = |x - x_full| / |x_full|,
 *     KL(full || session) = sum_v p_v (z_full,v - z_v) - (lse_full - lse).
 *
 * Logits are computed in segments, as for the NLL. Sums over the vocabulary are in double, so that
 * the KL is at least -1e-15. */
#include "engine/decode/shadow.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/decode/session_state.h"

struct part { /* one row over one segment; exponentials relative to the maxima */
    double top_full, sum_full, top, sum, cross;
};

struct shadow {
    float *x;          /* [L][C][d_model] residual stream of the full-cache run after each layer */
    struct part *part; /* [segments][C] */
    int first, n;      /* the compared rows */
    const float *normed_full, *normed;
};

int shadow_create(struct session *s)
{
    const struct model_config *m = &s->e->config;
    size_t C = (size_t)s->chunk;
    struct shadow *w = s->compare.shadow = MEM_NEW(struct shadow, 1);
    if (!w)
        return KVF_E_NOMEM;
    s->compare.full_cache->compare.compared = s;
    w->x = mem_alloc((size_t)m->n_layers * C, (size_t)m->d_model * sizeof *w->x);
    w->part = MEM_NEW(struct part, (size_t)n_segments(s) * C);
    if (!w->x || !w->part)
        return KVF_E_NOMEM;
    int err = nll_alloc(s);
    return err ? err : nll_alloc(s->compare.full_cache);
}

void shadow_destroy(struct shadow *w)
{
    if (!w)
        return;
    mem_free(w->x);
    mem_free(w->part);
    mem_free(w);
}

static float distance(const float *x, const float *full, int n)
{
    double off = 0, norm = 0;
    for (int i = 0; i < n; i++) {
        double d = (double)x[i] - (double)full[i];
        off += d * d;
        norm += (double)full[i] * (double)full[i];
    }
    return off == 0 ? 0 : (float)sqrt(off / norm);
}

void shadow_layer(struct session *s, int layer, int T)
{
    const struct session *run = s->compare.compared ? s->compare.compared : s;
    size_t d = (size_t)s->e->config.d_model;
    if (!run->compare.shadow)
        return;
    float *full = run->compare.shadow->x + (size_t)layer * (size_t)run->chunk * d;
    if (s->compare.compared) {
        memcpy(full, s->buf.x, (size_t)T * d * sizeof *full);
        return;
    }
    for (int t = 0; t < T; t++)
        recorder_full(s->observers.recorder, FULL_RESIDUAL, layer, s->n_past + t,
                      distance(s->buf.x + (size_t)t * d, full + (size_t)t * d, (int)d));
}

static struct part join(const float *full, const float *own, int n)
{
    struct part p = {(double)full[0], 0, (double)own[0], 0, 0};
    for (int i = 1; i < n; i++) {
        p.top_full = fmax(p.top_full, (double)full[i]);
        p.top = fmax(p.top, (double)own[i]);
    }
    for (int i = 0; i < n; i++) {
        double e = exp((double)full[i] - p.top_full);
        p.sum_full += e;
        p.cross += e * ((double)full[i] - (double)own[i]);
        p.sum += exp((double)own[i] - p.top);
    }
    return p;
}

static void segment_task(void *ctx, int seg, int thread)
{
    struct session *s = ctx;
    struct shadow *w = s->compare.shadow;
    float *full, *own;
    int n = segment_logits(s->compare.full_cache, w->normed_full, w->n, seg, thread, &full);
    segment_logits(s, w->normed, w->n, seg, thread, &own);
    for (int t = 0; t < w->n; t++) {
        size_t at = (size_t)t * VOCAB_SEGMENT;
        w->part[(size_t)seg * (size_t)s->chunk + (size_t)t] = join(full + at, own + at, n);
    }
}

/* Computes the KL of a row from its segments, in order. */
static float divergence(const struct session *s, int row)
{
    double top_full = -INFINITY, top = -INFINITY, sum_full = 0, sum = 0, cross = 0;
    int n = n_segments(s);
    const struct part *p = s->compare.shadow->part + row;
    for (int g = 0; g < n; g++) {
        top_full = fmax(top_full, p[(size_t)g * (size_t)s->chunk].top_full);
        top = fmax(top, p[(size_t)g * (size_t)s->chunk].top);
    }
    for (int g = 0; g < n; g++) {
        const struct part *q = &p[(size_t)g * (size_t)s->chunk];
        double scale = exp(q->top_full - top_full);
        sum_full += scale * q->sum_full;
        cross += scale * q->cross;
        sum += exp(q->top - top) * q->sum;
    }
    double kl = cross / sum_full - (top_full + log(sum_full) - top - log(sum));
    return kl > 0 ? (float)kl : 0;
}

/* Applies the final norm to rows of x, in a buffer that is free between layers. */
static const float *normed_rows(struct session *s, int first, int n)
{
    const struct model_config *m = &s->e->config;
    s->e->kernels.rmsnorm(s->buf.branch, s->buf.x + (size_t)first * (size_t)m->d_model,
                          s->e->weights->out_norm, n, m->d_model, m->norm_eps);
    segment_rows(s, s->buf.branch, n);
    return s->buf.branch;
}

void shadow_tokens(struct session *s, int T)
{
    struct shadow *w = s->compare.shadow;
    size_t d = (size_t)s->e->config.d_model;
    int first = 0;
    if (!w)
        return;
    while (first < T
           && memcmp(s->buf.x + (size_t)first * d, s->compare.full_cache->buf.x + (size_t)first * d,
                     d * sizeof *s->buf.x)
                  == 0)
        recorder_full(s->observers.recorder, FULL_KL, 0, s->n_past + first++, 0);
    w->n = T - first;
    if (w->n == 0)
        return;
    w->normed_full = normed_rows(s->compare.full_cache, first, w->n);
    w->normed = normed_rows(s, first, w->n);
    par_run(s->e->pool, n_segments(s), segment_task, s);
    for (int t = 0; t < w->n; t++)
        recorder_full(s->observers.recorder, FULL_KL, 0, s->n_past + first + t, divergence(s, t));
}
