/* rope.c - reads the RoPE angles of a model. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/kernels/packed.h"
#include "engine/model/rope.h"

static void fill(const struct model_config *m, double base, const float *factor, double all,
                 double *theta)
{
    for (int j = 0; j < m->rope_dim / 2; j++) {
        theta[j] = pow(base, -2.0 * j / m->rope_dim);
        if (factor)
            theta[j] /= (double)factor[j];
        if (all != 1)
            theta[j] /= all;
    }
}

/* Reads the factors of a tensor. Returns 1, 0 if there is no such tensor, or an error. */
static int factors(const struct gguf *g, const struct model_config *m, const char *name, float *out,
                   struct kvf_diag *d)
{
    const struct gguf_tensor *t = gguf_find(g, name);
    int n = m->rope_dim / 2;
    if (!t)
        return 0;
    if (!t->bytes || t->dim[0] != (uint64_t)n || t->dim[1] * t->dim[2] * t->dim[3] != 1)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: tensor %s has not %d numbers, one for each turned pair", gguf_path(g),
                        name, n);
    weight_dequant(out, t->data, (enum weight_type)t->type, (size_t)n);
    for (int j = 0; j < n; j++)
        if (!(out[j] > 0 && isfinite(out[j])))
            return kvf_fail(d, KVF_E_FORMAT, "%s: number %d of tensor %s is not a positive factor",
                            gguf_path(g), j, name);
    return 1;
}

static double real_of(const struct gguf *g, const struct model_config *m, const char *name,
                      double otherwise)
{
    char key[96];
    snprintf(key, sizeof key, "%s.rope.%s", m->arch, name);
    return gguf_real(g, key, otherwise);
}

static bool has(const struct gguf *g, const struct model_config *m, const char *name)
{
    char key[96];
    snprintf(key, sizeof key, "%s.rope.%s", m->arch, name);
    return gguf_has(g, key);
}

enum scaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN, SCALING_OTHER };

/* Returns the kind of scaling in the file, and its name in `word`. A factor without a kind means
 * linear scaling. */
static enum scaling kind_of(const struct gguf *g, const struct model_config *m, char word[32])
{
    static const char *const words[] = {"none", "linear", "yarn"};
    char key[96];
    size_t len = 0;
    snprintf(key, sizeof key, "%s.rope.scaling.type", m->arch);
    const char *type = gguf_str(g, key, &len);
    if (!type)
        return has(g, m, "scaling.factor") || has(g, m, "scale_linear") ? SCALING_LINEAR
                                                                        : SCALING_NONE;
    snprintf(word, 32, "%.*s", (int)(len < 31 ? len : 31), type);
    for (int i = 0; i < 3; i++)
        if (strcmp(word, words[i]) == 0)
            return (enum scaling)i;
    return SCALING_OTHER;
}

/* Returns the factor of a scaling, which old files store as rope.scale_linear; NaN if the two keys
 * disagree, and 0 if the file has neither. */
static double factor_of(const struct gguf *g, const struct model_config *m)
{
    double old = real_of(g, m, "scale_linear", 0), factor = real_of(g, m, "scaling.factor", old);
    return has(g, m, "scale_linear") && old != factor ? NAN : factor;
}

/* Sets *ret_factor to the factor of linear scaling, otherwise 1. Other kinds of scaling are only
 * allowed if tensors specify their factors. */
static int linear_factor(const struct gguf *g, const struct model_config *m, enum scaling kind,
                         const char *word, bool by_tensors, double *ret_factor, struct kvf_diag *d)
{
    bool scaled = kind == SCALING_LINEAR || kind == SCALING_YARN;
    bool factors = has(g, m, "scaling.factor") || has(g, m, "scale_linear");
    double factor = scaled ? factor_of(g, m) : 1;
    if (kind == SCALING_OTHER && !by_tensors)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: rotary positions scaled by '%s' are not supported; plain, linear, "
                        "yarn and per-channel scaling are",
                        gguf_path(g), word);
    if (kind == SCALING_OTHER && factors && factor_of(g, m) != 1)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: %s.rope.scaling.factor is not supported with scaling by '%s'",
                        gguf_path(g), m->arch, word);
    if (!(factor > 0 && isfinite(factor)))
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: %s.rope.scaling.factor, of scaled rotary positions, is missing, out "
                        "of range, or not that of rope.scale_linear",
                        gguf_path(g), m->arch);
    *ret_factor = kind == SCALING_LINEAR ? factor : 1;
    return KVF_OK;
}

static int64_t original(const struct gguf *g, const struct model_config *m)
{
    char key[96];
    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", m->arch);
    return gguf_int(g, key, m->n_ctx);
}

static int read_length(const struct gguf *g, struct model_config *m, bool two, struct kvf_diag *d)
{
    int64_t n = two ? original(g, m) : m->n_ctx;
    double gain = real_of(g, m, "scaling.attn_factor", 1);
    if (n < 1 || n > INT32_MAX)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: %s.rope.scaling.original_context_length is out of range", gguf_path(g),
                        m->arch);
    m->n_ctx_orig = (int)n;
    if (!(gain > 0 && isfinite(gain)))
        return kvf_fail(d, KVF_E_FORMAT, "%s: %s.rope.scaling.attn_factor is out of range",
                        gguf_path(g), m->arch);
    m->rope_attn_factor[ROPE_PLAIN] = m->rope_attn_factor[ROPE_LONG] = (float)gain;
    m->rope_attn_factor[ROPE_LOCAL] = m->family->local_plain ? 1 : (float)gain;
    return KVF_OK;
}

static int read_local(const struct gguf *g, struct model_config *m, struct kvf_diag *d)
{
    double base = m->rope_base;
    if (m->family->local_base > 0)
        base = real_of(g, m, "freq_base_swa", m->family->local_base);
    else if (m->family->local_plain)
        base = real_of(g, m, "freq_base_swa", base);
    if (!(base > 1 && isfinite(base)))
        return kvf_fail(d, KVF_E_FORMAT, "%s: the rotary base of local layers is out of range",
                        gguf_path(g));
    fill(m, base, NULL, 1, m->theta[ROPE_LOCAL]);
    return KVF_OK;
}

/* Reads the parameters of YaRN. The context becomes at least the scaled length. */
static int read_yarn(const struct gguf *g, struct model_config *m, struct kvf_diag *d)
{
    struct rope_yarn y = {.original = (double)original(g, m),
                          .factor = factor_of(g, m),
                          .fast = real_of(g, m, "scaling.yarn_beta_fast", 32),
                          .slow = real_of(g, m, "scaling.yarn_beta_slow", 1)};
    char key[96];
    snprintf(key, sizeof key, "%s.rope.scaling.yarn_truncate", m->arch);
    y.exact_bounds = !gguf_bool(g, key, true);
    double gain = real_of(g, m, "scaling.yarn_attn_factor", 1);
    bool usable = y.original >= 1 && y.factor >= 1 && y.factor <= 1e6 && y.fast > 0 && y.slow > 0
                  && isfinite(y.fast) && isfinite(y.slow) && gain > 0 && isfinite(gain);
    if (!usable || real_of(g, m, "scaling.yarn_log_multiplier", 0) != 0
        || real_of(g, m, "scaling.yarn_ext_factor", 1) != 1)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: the numbers of YaRN (%s.rope.scaling...) are out of range, or of a "
                        "kind that is not supported",
                        gguf_path(g), m->arch);
    rope_yarn(m, &y);
    m->rope_attn_factor[ROPE_PLAIN] = m->rope_attn_factor[ROPE_LONG] *= (float)gain;
    if (y.original * y.factor > m->n_ctx && y.original * y.factor <= 1 << 24)
        m->n_ctx_orig = m->n_ctx = m->n_ctx_max = (int)(y.original * y.factor);
    return KVF_OK;
}

/* Extends the context of linear scaling. A context length may be the length before or after
 * scaling. If the file gives the length before it, the context is raised; otherwise a longer
 * context may only be requested. */
static void widen(const struct gguf *g, struct model_config *m, double factor)
{
    bool given = has(g, m, "scaling.original_context_length");
    double most = factor * (given ? (double)original(g, m) : m->n_ctx);
    if (!(most > m->n_ctx && most <= 1 << 24))
        return;
    m->n_ctx_max = (int)most;
    if (given)
        m->n_ctx = m->n_ctx_orig = (int)most;
}

int rope_read(const struct gguf *g, struct model_config *m, struct kvf_diag *d)
{
    float plain[MODEL_PAIRS], wide[MODEL_PAIRS];
    char word[32];
    double all = 1;
    enum scaling kind = kind_of(g, m, word);
    if (m->rope_dim % 2 || m->rope_dim > m->head_dim)
        return kvf_fail(d, KVF_E_FORMAT, "%s: %d rotary dimensions do not fit heads of %d",
                        gguf_path(g), m->rope_dim, m->head_dim);
    int one = factors(g, m, "rope_freqs.weight", plain, d);
    int two = one ? one : factors(g, m, "rope_factors_long.weight", wide, d);
    if (!one && two > 0) {
        int both = factors(g, m, "rope_factors_short.weight", plain, d);
        if (both < 1)
            return both ? both
                        : kvf_fail(d, KVF_E_FORMAT,
                                   "%s: tensor rope_factors_short.weight is missing", gguf_path(g));
    }
    if (two < 0)
        return two;
    int err = linear_factor(g, m, kind, word, two > 0, &all, d);
    if (!err)
        err = read_length(g, m, !one && two > 0, d);
    if (err)
        return err;
    fill(m, m->rope_base, two > 0 ? plain : NULL, all, m->theta[ROPE_PLAIN]);
    fill(m, m->rope_base, !one && two > 0 ? wide : NULL, all, m->theta[ROPE_LONG]);
    m->yarn = kind == SCALING_YARN;
    m->turns_scaled = two > 0 || all != 1 || m->yarn;
    if (m->yarn)
        err = read_yarn(g, m, d);
    else if (all > 1)
        widen(g, m, all);
    return err ? err : read_local(g, m, d);
}
