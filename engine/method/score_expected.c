/* score_expected.c - the attention that future queries are expected to give (expected attention,
 * Devoto et al. 2025). Unrotated queries are modelled as Gaussian and rotated by the mean rotation
 * of the next positions, z_j = (R mu) . k_j / sqrt(D) + k_j^T (R Sigma R^T) k_j / (2 D), S_j =
 * (mean_g softmax_j z_j + epsilon) |v_j|, with the model's own attention scale instead of 1 /
 * sqrt(D) if it has one. */
#include <math.h>

#include "engine/method/device_eviction.h"
#include "engine/method/parts.h"

enum { MAX_DIM = 1024, ROWS = 8 /* rows that are summed in parallel */ };

/* Mean cosine and sine of the rotations at positions t .. t + horizon - 1. */
static void mean_rotation(const struct method_state *m, enum model_rope kind, int32_t t, int pair,
                          double *c, double *s)
{
    const struct model_config *model = method_inputs_of(m)->model;
    int horizon = method_params_of(m)->horizon;
    double theta = model->theta[kind][pair];
    *c = *s = 0;
    for (int i = 0; i < horizon; i++) {
        *c += cos((double)(t + i) * theta) / horizon;
        *s += sin((double)(t + i) * theta) / horizon;
    }
    *c *= (double)model->rope_attn_factor[kind];
    *s *= (double)model->rope_attn_factor[kind];
}

int expected_turns(const struct method_state *m, int layer, int32_t t, double *turns)
{
    const struct method_inputs *in = method_inputs_of(m);
    enum model_rope kind = model_rope(in->model, layer, in->length);
    int pairs = kind == ROPE_NONE ? 0 : in->model->rope_dim / 2;
    for (int p = 0; p < pairs; p++)
        mean_rotation(m, kind, t, p, &turns[2 * p], &turns[2 * p + 1]);
    return pairs;
}

/* Computes mu [D] and the transpose of Sigma [D][D] of a query head, after the rotation. */
static void expected_queries(const struct score_input *in, int g, const double *turns, int pairs,
                             double *mu, double *cov)
{
    const double *sum, *outer;
    size_t D = (size_t)method_shape_of(in->m)->head_dim;
    double n = (double)evidence_moments(in->m, in->layer, g, &sum, &outer);
    for (size_t i = 0; i < D; i++)
        mu[i] = sum[i] / n;
    for (size_t i = 0; i < D; i++)
        for (size_t j = 0; j <= i; j++)
            cov[i * D + j] = cov[j * D + i] = outer[i * D + j] / n - mu[i] * mu[j];
    for (int p = 0; p < pairs; p++) {
        double c = turns[2 * p], s = turns[2 * p + 1];
        size_t a = 2 * (size_t)p;
        formula_rotate(&mu[a], &mu[a + 1], c, s);
        for (size_t k = 0; k < D; k++) /* rows of Sigma, then columns */
            formula_rotate(&cov[a * D + k], &cov[(a + 1) * D + k], c, s);
        for (size_t k = 0; k < D; k++)
            formula_rotate(&cov[k * D + a], &cov[k * D + a + 1], c, s);
    }
}

double expected_scale(const struct method_state *m)
{
    float D = (float)method_shape_of(m)->head_dim, scale = method_inputs_of(m)->model->attn_scale;
    return scale == 1.0f / sqrtf(D) ? 1 : (double)scale * sqrt((double)D);
}

/* Multiplies rows i .. i + n - 1 of Sigma by the key. Each sum is in the order of the channels. */
static void rows_by_key(const double *cov, const float *key, size_t D, size_t i, size_t n,
                        double *out)
{
    double row[ROWS] = {0};
    for (size_t j = 0; j < D && n == ROWS; j++)
        for (size_t r = 0; r < ROWS; r++)
            row[r] += cov[j * D + i + r] * (double)key[j];
    for (size_t j = 0; j < D && n < ROWS; j++)
        for (size_t r = 0; r < n; r++)
            row[r] += cov[j * D + i + r] * (double)key[j];
    for (size_t r = 0; r < n; r++)
        out[r] = row[r];
}

static float logit(const double *mu, const double *cov, const float *key, size_t D, double scale)
{
    double dot = 0, square = 0, row[ROWS];
    for (size_t i = 0; i < D; i += ROWS) {
        size_t n = D - i < ROWS ? D - i : ROWS;
        rows_by_key(cov, key, D, i, n, row);
        for (size_t r = 0; r < n; r++) {
            dot += mu[i + r] * (double)key[i + r];
            square += row[r] * (double)key[i + r];
        }
    }
    return formula_expected_logit(scale, dot, square, (int)D);
}

/* out += softmax of the expected logits over the entries after the sinks. */
static void add_head(const struct score_input *in, int g, const double *turns, int pairs,
                     float *out, float *z, double *moments)
{
    float key[MAX_DIM];
    size_t D = (size_t)method_shape_of(in->m)->head_dim;
    int sinks = method_params_of(in->m)->sinks;
    double most = -INFINITY, sum = 0, scale = expected_scale(in->m);
    expected_queries(in, g, turns, pairs, moments, moments + D);
    for (int i = 0; i < in->view.n; i++) {
        cache_key(in->cache, in->layer, in->head, i, key);
        z[i] = logit(moments, moments + D, key, D, scale);
        if (in->view.pos[i] >= sinks)
            most = fmax(most, (double)z[i]);
    }
    for (int i = 0; i < in->view.n; i++)
        if (in->view.pos[i] >= sinks)
            sum += exp((double)z[i] - most);
    for (int i = 0; i < in->view.n; i++)
        if (in->view.pos[i] >= sinks)
            out[i] += (float)(exp((double)z[i] - most) / sum);
}

static void eval(const struct score_input *in, float *out, float *scratch)
{
    const float *norm = evidence_value_norms(in->m, in->layer, in->head);
    const double *unused;
    int g0, n_group;
    method_group(in->m, in->head, &g0, &n_group);
    /* doubles first: the scratch of a thread starts on a cache line */
    double *moments = (double *)(void *)scratch;
    size_t D = (size_t)method_shape_of(in->m)->head_dim;
    float *z = scratch + 2 * (D + 1) * D;
    for (int i = 0; i < in->view.n; i++)
        out[i] = 0;
    if (evidence_moments(in->m, in->layer, g0, &unused, &unused) < 1)
        return;
    double turns[MAX_DIM];
    int pairs = expected_turns(in->m, in->layer, in->t, turns);
    for (int g = g0; g < g0 + n_group; g++)
        add_head(in, g, turns, pairs, out, z, moments);
    for (int i = 0; i < in->view.n; i++)
        out[i] = formula_expected(out[i], n_group, method_params_of(in->m)->epsilon, norm[i]);
}

const struct score score_expected = {
    .name = "expected-attention",
    .cost = "g (n D^2 + D horizon)",
    .summary = "expected attention of Gaussian future queries, times the norm of the value",
    .evidence = EVIDENCE_MOMENTS | EVIDENCE_VALUES,
    .uses = USES_EXPECTED,
    .scratch_rows = MOMENTS_AS_ROWS,
    .eval = eval,
};
