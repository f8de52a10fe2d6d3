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

/* The factors of a tensor; 1: there are some, 0: there is no such tensor, else an error. */
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

/* One factor for all angles.  Of the other kinds of scaling, those that the tensors spell out
 * need no name here. */
static int linear_factor(const struct gguf *g, const struct model_config *m, bool spelt,
                         double *ret_factor, struct kvf_diag *d)
{
    char key[96];
    size_t len = 0;
    snprintf(key, sizeof key, "%s.rope.scaling.type", m->arch);
    const char *type = gguf_str(g, key, &len);
    bool none = !type || (len == 4 && memcmp(type, "none", 4) == 0);
    bool linear = type && len == 6 && memcmp(type, "linear", 6) == 0;
    *ret_factor = linear ? real_of(g, m, "scaling.factor", 0) : 1;
    if (!none && !linear && !spelt)
        return kvf_fail(
            d, KVF_E_FORMAT,
            "%s: rotary positions scaled by '%.*s' are not supported; plain, linear and "
            "per-channel scaling are",
            gguf_path(g), (int)(len < 32 ? len : 32), type);
    if (!(*ret_factor > 0 && isfinite(*ret_factor)))
        return kvf_fail(
            d, KVF_E_FORMAT,
            "%s: %s.rope.scaling.factor, of scaled rotary positions, is missing or out of range",
            gguf_path(g), m->arch);
    return KVF_OK;
}

static int read_length(const struct gguf *g, struct model_config *m, bool two, struct kvf_diag *d)
{
    char key[96];
    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", m->arch);
    int64_t n = two ? gguf_int(g, key, m->n_ctx) : m->n_ctx;
    if (n < 1 || n > INT32_MAX)
        return kvf_fail(d, KVF_E_FORMAT, "%s: %s is out of range", gguf_path(g), key);
    m->n_ctx_plain = (int)n;
    m->turn_gain = (float)real_of(g, m, "scaling.attn_factor", 1);
    if (!(m->turn_gain > 0 && isfinite(m->turn_gain)))
        return kvf_fail(d, KVF_E_FORMAT, "%s: %s.rope.scaling.attn_factor is out of range",
                        gguf_path(g), m->arch);
    return KVF_OK;
}

int rope_read(const struct gguf *g, struct model_config *m, struct kvf_diag *d)
{
    float plain[MODEL_PAIRS], wide[MODEL_PAIRS];
    double all, local = real_of(g, m, "freq_base_swa", m->family->local_base);
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
    int err = linear_factor(g, m, two > 0, &all, d);
    if (err)
        return err;
    err = read_length(g, m, !one && two > 0, d);
    if (err)
        return err;
    fill(m, m->rope_base, two > 0 ? plain : NULL, all, m->theta[ROPE_PLAIN]);
    fill(m, m->rope_base, !one && two > 0 ? wide : NULL, all, m->theta[ROPE_LONG]);
    if (m->family->local_base > 0 && !(local > 1 && isfinite(local)))
        return kvf_fail(d, KVF_E_FORMAT, "%s: the rotary base of local layers is out of range",
                        gguf_path(g));
    fill(m, m->family->local_base > 0 ? local : m->rope_base, NULL, 1, m->theta[ROPE_LOCAL]);
    return KVF_OK;
}
