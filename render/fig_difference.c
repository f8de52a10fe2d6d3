/* fig_difference.c - draws a layer x head map of the difference of two tables, with 0 in the middle
 * of the colours. */
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
    const char *value = table_meta(t, "value");
    char label[64];
    if (!palette_diverging(s->cmap))
        return kvf_fail(d, KVF_E_ARG,
                        "--cmap: a difference has a sign: bluered, redblue or vik, "
                        "not %s",
                        s->cmap);
    snprintf(label, sizeof label, "difference of %.30s", value ? value : "values");
    struct layermap m = {.t = t, .value = "difference", .label = label};
    return layermap_draw(c, &m, s);
}

const struct figure fig_difference = {
    .name = "difference",
    .table = "difference",
    .summary = "layer x head map of one table less another",
    .needs = "head:text layer index difference",
    .cmap = "bluered",
    .size = size,
    .draw = draw,
};
