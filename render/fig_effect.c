/* fig_effect.c - layer x head map of what the model loses with a head's memory.  KL spans
 * orders of magnitude, hence a logarithm; --style scale=linear for the number itself. */
#include <math.h>
#include <string.h>

#include "base/opt.h"
#include "render/figures.h"

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    (void)s;
    layermap_size(t, w, h);
}

/* Nothing lost (or less than rounding) has no logarithm: a grey cell. */
static double logarithm(double v)
{
    return v > 0 ? log10(v) : NAN;
}

static int parse_scale(const char *option, bool *ret_linear, struct kvf_diag *d)
{
    char key[32], value[32];
    int more;
    *ret_linear = false;
    if (!option)
        return KVF_OK;
    while ((more = opt_pair(&option, key, value, sizeof key)) == 1) {
        *ret_linear = strcmp(value, "linear") == 0;
        if (strcmp(key, "scale") != 0 || (!*ret_linear && strcmp(value, "log") != 0))
            return kvf_fail(d, KVF_E_ARG, "--style: effect knows scale=log and scale=linear, not "
                            "'%s'", key);
    }
    return more ? kvf_fail(d, KVF_E_ARG, "--style needs key=value pairs") : KVF_OK;
}

/* Not the row of all heads together. */
static int one_head(const struct table *t, int64_t row, const void *ctx)
{
    (void)ctx;
    return table_int(t, table_find(t, "layer"), row) >= 0;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    bool linear;
    int err = parse_scale(s->option, &linear, d);
    struct layermap m = {.t = t, .value = "kl", .chosen = one_head,
                         .scale = linear ? NULL : logarithm,
                         .label = linear ? "KL (nats per step)" : "log10 KL (nats per step)"};
    return err ? err : layermap_draw(c, &m, s);
}

static const char *const needs[] = {"head", "layer", "index", "kl", NULL};

const struct figure fig_effect = {
    .name = "effect",
    .table = "effect",
    .summary = "layer x head map of the KL to the full cache",
    .needs = needs,
    .size = size,
    .draw = draw,
};
