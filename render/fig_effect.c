/* fig_effect.c - layer x head map of what the model loses with a head's memory.  KL spans
 * orders of magnitude, hence a logarithm; --style scale=linear for the number itself. */
#include <math.h>

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
    int err = style_scale("effect", s->option, &linear, d);
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
