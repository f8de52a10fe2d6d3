/* score_redundancy.c - importance against redundancy of keys (R-KV, Cai et al.
 * 2025; G-KV, 2025): lambda I - (1 - lambda) R.  R = softmax(r), r_j = mean over
 * entries i of the cosine of keys i and j, where every i forgives its newest
 * neighbour of cosine over 1/2.  Normalised rows divide I and R by their maximum.
 * With a history the importance is the global score F = max(alpha F', I). */
#include <math.h>

#include "engine/method/scores.h"
#include "engine/method/window.h"

#define SIMILAR 0.5f

/* keys[d * n + i] of the entries in order of time: rows of cosines then come from
 * sums over d whose terms are independent across i. */
static void gather_keys(const struct score_input *in, float *keys)
{
    int n = in->view.n, D = method_shape_of(in->m)->head_dim;
    for (int i = 0; i < n; i++) {
        const float *u = evidence_key(in->m, in->layer, in->head, in->view.order[i]);
        for (int d = 0; d < D; d++)
            keys[(size_t)d * (size_t)n + (size_t)i] = u[d];
    }
}

/* r[i] in order of time; row: n floats. */
static void redundancy(const float *keys, int n, int D, float *r, float *row)
{
    for (int i = 0; i < n; i++)
        r[i] = 0;
    for (int i = 0; i < n; i++) {
        int newest = -1;
        for (int j = 0; j < n; j++)
            row[j] = 0;
        for (int d = 0; d < D; d++) {
            const float *k = keys + (size_t)d * (size_t)n;
            for (int j = 0; j < n; j++)
                row[j] += k[i] * k[j];
        }
        row[i] = 0;
        for (int j = 0; j < n; j++)
            if (row[j] > SIMILAR)
                newest = j;
        if (newest >= 0)
            row[newest] = 0;
        for (int j = 0; j < n; j++)
            r[j] += row[j];
    }
    for (int j = 0; j < n; j++)
        r[j] /= (float)n;
}

static void softmax(float *r, int n)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmax(max, (double)r[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)r[i] - max);
    for (int i = 0; i < n; i++)
        r[i] = (float)(exp((double)r[i] - max) / sum);
}

/* Largest of v over the candidates, by slot or (order == NULL) by rank in time. */
static float largest(const float *v, const int32_t *order, int first, int m)
{
    float max = -INFINITY;
    for (int i = first; i < first + m; i++)
        max = fmaxf(max, v[order ? order[i] : i]);
    return max;
}

/* F from the scores of this cut and those remembered; remembers it. */
static void global_score(const struct score_input *in, float *out, int first, int m)
{
    float alpha = (float)method_params_of(in->m)->history;
    float *history = evidence_history(in->m, in->layer, in->head);
    for (int i = 0; i < in->view.n; i++)
        if (!isnan(history[i]))
            out[i] = fmaxf(alpha * history[i], out[i]);
    for (int i = first; i < first + m; i++) /* only candidates have a score of their own */
        history[in->view.order[i]] = out[in->view.order[i]];
}

static void eval(const struct score_input *in, float *out, float *scratch)
{
    const struct method_params *p = method_params_of(in->m);
    int n = in->view.n, D = method_shape_of(in->m)->head_dim, first, m;
    float *r = scratch, *row = scratch + n, *keys = scratch + 4 * n;
    float lambda = (float)p->lambda;
    window_candidates(in, &first, &m);
    window_reduce(in, out, scratch);
    window_pool_candidates(in, out, scratch);
    bool normalise = method_of(in->m)->normalise;
    float top = normalise ? largest(out, in->view.order, first, m) : 1;
    for (int i = 0; i < n && top > 0; i++)
        out[i] /= top;
    if (p->history > 0)
        global_score(in, out, first, m);
    gather_keys(in, keys);
    redundancy(keys, n, D, r, row);
    softmax(r, n);
    float max = normalise ? largest(r, NULL, first, m) : 1;
    for (int i = 0; i < n; i++) {
        int slot = in->view.order[i];
        out[slot] = lambda * out[slot] - (1 - lambda) * r[i] / max;
    }
}

const struct score score_redundancy = {
    .name = "redundancy",
    .summary = "attention from the last w queries against the redundancy of the key",
    .evidence = EVIDENCE_WINDOW | EVIDENCE_KEYS | EVIDENCE_HISTORY,
    .uses = USES_WINDOW | USES_POOL | USES_GROUP | USES_ACROSS | USES_HISTORY | USES_LAMBDA,
    .scratch_rows = KEYS_AS_ROWS,
    .eval = eval,
};
