/* fig_effect.c - layer x head map of what the model loses with a head's memory. */
#include "render/figures.h"

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    (void)s;
    layermap_size(t, w, h);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct layermap m = {t, "kl", "KL (nats per step)", NULL, NULL};
    (void)d;
    return layermap_draw(c, &m, s);
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
