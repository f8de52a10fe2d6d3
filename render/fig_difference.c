/* fig_difference.c - draws a layer x head map of the difference of two tables, with 0 in the middle
 * of the colours. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/plot.h"

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    (void)s;
    layermap_size(t, w, h);
    *h += 3;
}

/* Writes what is subtracted from what, for example "top-64 minus mass 0.90", if the metadata of
 * the two tables differ in it.  Returns false if no such metadata differ. */
static bool name_sides(const struct table *t, char *out, size_t cap)
{
    static const char *const known[] = {"method", "criterion", "kind", "model",  "budget",
                                        "held",   "gates",     "loss", "window", "prompt_tokens"};
    char key[2][64], plain[2][PLOT_NAME];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *side[2];
        for (int k = 0; k < 2; k++) {
            snprintf(key[k], sizeof key[k], "%s.%s", k ? "subtrahend" : "minuend", known[i]);
            side[k] = table_meta(t, key[k]);
            if (side[k] && strcmp(known[i], "criterion") == 0)
                criterion_name(side[k], plain[k]);
            else
                snprintf(plain[k], PLOT_NAME, "%.90s", side[k] ? side[k] : "");
        }
        if (side[0] && side[1]) {
            snprintf(out, cap, "%s minus %s", plain[0], plain[1]);
            return true;
        }
    }
    return false;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    const char *value = table_meta(t, "value");
    char label[64], title[3 * PLOT_NAME];
    if (!palette_diverging(s->cmap))
        return kvf_fail(d, KVF_E_ARG,
                        "--cmap: a difference has a sign: bluered, redblue or vik, "
                        "not %s",
                        s->cmap);
    snprintf(label, sizeof label, "difference of %.30s", value ? value : "values");
    struct layermap m = {.t = t, .value = "difference", .label = label};
    if (name_sides(t, title, sizeof title))
        m.title = title;
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
