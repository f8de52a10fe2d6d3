/* fig_sparsity.c - layer x head map of the sparsity (TRIM-KV, figure 5c). */
#include <stdio.h>

#include "render/figures.h"

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    (void)s;
    layermap_size(t, w, h);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    char label[64];
    (void)d;
    snprintf(label, sizeof label, "sparsity (%.20s)", table_str(t, table_find(t, "kind"), 0));
    struct layermap m = {.t = t, .value = "sparsity", .label = label};
    return layermap_draw(c, &m, s);
}

static const char *const needs[] = {"head", "layer", "index", "kind", "sparsity", NULL};

const struct figure fig_sparsity = {
    .name = "sparsity",
    .table = "sparsity",
    .summary = "layer x head map of the sparsity",
    .needs = needs,
    .size = size,
    .draw = draw,
};
