/* rope_scale.c - scales RoPE angles for long texts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/rope.h"

static const char *const names[] = {
    [ROPE_SCALE_NONE] = "none",
    [ROPE_SCALE_LINEAR] = "linear",
    [ROPE_SCALE_NTK] = "ntk",
    [ROPE_SCALE_YARN] = "yarn",
};

void rope_scale_text(const struct rope_scale *scale, char out[32])
{
    snprintf(out, 32, "%s:%.6g", names[scale->kind], scale->factor);
}

int rope_scale_parse(const char *text, struct rope_scale *ret, struct kvf_diag *d)
{
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0;
    int kind = ROPE_SCALE_YARN;
    while (kind > ROPE_SCALE_NONE
           && (strlen(names[kind]) != len || memcmp(names[kind], text, len) != 0))
        kind--;
    char *end = NULL;
    double factor = kind && colon[1] >= '0' && colon[1] <= '9' ? strtod(colon + 1, &end) : 0;
    if (!kind || !end || *end || !(factor >= 1 && factor <= 1024))
        return kvf_fail(d, KVF_E_ARG,
                        "--rope-scale is linear:F, ntk:F or yarn:F with a factor F from 1 to 1024, "
                        "not '%.60s'",
                        text);
    *ret = (struct rope_scale){(enum rope_scale_kind)kind, factor};
    return KVF_OK;
}

/* Returns the (fractional) index of the pair with this number of rotations within the original
 * length: original theta = 2 pi turns. */
static double pair_of(const struct model_config *m, double original, double turns)
{
    return m->rope_dim * log(original / (turns * 2 * acos(-1))) / (2 * log(m->rope_base));
}

void rope_yarn(struct model_config *m, const struct rope_yarn *y)
{
    double low = pair_of(m, y->original, y->fast), high = pair_of(m, y->original, y->slow);
    if (!y->exact_bounds) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, m->rope_dim - 1);
    if (high <= low)
        high = low + 0.001;
    for (int j = 0; j < m->rope_dim / 2; j++) {
        double slowed = fmin(fmax((j - low) / (high - low), 0), 1);
        m->theta[ROPE_PLAIN][j] *= slowed / y->factor + (1 - slowed);
        m->theta[ROPE_LONG][j] *= slowed / y->factor + (1 - slowed);
    }
    m->rope_attn_factor[ROPE_PLAIN] *= (float)(1 + 0.1 * log(y->factor));
    m->rope_attn_factor[ROPE_LONG] *= (float)(1 + 0.1 * log(y->factor));
}

int rope_scale_apply(const struct rope_scale *scale, struct model_config *m, struct kvf_diag *d)
{
    double f = scale->factor, n = floor(m->n_ctx * f);
    if (scale->kind == ROPE_SCALE_NONE)
        return KVF_OK;
    if (m->turns_scaled)
        return kvf_fail(d, KVF_E_ARG,
                        "--rope-scale: the file of this model scales its rotations already, for a "
                        "context of %d",
                        m->n_ctx);
    if (n > 1 << 24)
        return kvf_fail(d, KVF_E_ARG, "--rope-scale %s:%g: %.0f tokens of context are over 2^24",
                        names[scale->kind], f, n);
    if (scale->kind == ROPE_SCALE_YARN)
        rope_yarn(m, &(struct rope_yarn){m->n_ctx, f, 32, 1, false});
    for (int j = 0; scale->kind != ROPE_SCALE_YARN && j < m->rope_dim / 2; j++) {
        bool ntk = scale->kind == ROPE_SCALE_NTK;
        double by = ntk && m->rope_dim > 2 ? pow(f, -2.0 * j / (m->rope_dim - 2)) : 1 / f;
        m->theta[ROPE_PLAIN][j] *= by;
        m->theta[ROPE_LONG][j] *= by;
    }
    m->n_ctx = m->n_ctx_orig = m->n_ctx_max = (int)n;
    m->rope_scale = *scale;
    return KVF_OK;
}
