/* fig_density.c - draws the positions of cached entries in the text (G-KV, figures 7 and 17): an
 * outline over the bins, dots at uniform density. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/plot.h"

struct density_style {
    int by; /* enum plot_by */
};

struct view {
    const struct table *t;
    struct plot_rows k;
    bool heads;
    int low, high, share, share_low, share_high, trace;
};

static void name_row(const struct view *v, int64_t r, const char **panel, const char **line)
{
    *panel = v->heads ? table_str(v->t, v->k.head, r) : "";
    *line = v->trace >= 0 ? table_str(v->t, v->trace, r) : "";
}

/* Adds a bin as a horizontal segment across its width.  The value 1 is uniform density. */
static void add_row(struct plot *p, const struct view *v, int64_t r)
{
    const char *panel, *line;
    double a = table_real(v->t, v->low, r), b = table_real(v->t, v->high, r), wide = b - a;
    double y = table_real(v->t, v->share, r) / wide;
    double low = v->share_low < 0 ? NAN : table_real(v->t, v->share_low, r) / wide;
    double high = v->share_high < 0 ? NAN : table_real(v->t, v->share_high, r) / wide;
    name_row(v, r, &panel, &line);
    bool fill = !isfinite(low) && v->trace < 0; /* a single outline, but not several */
    if (fill) {
        low = isfinite(y) ? 0 : NAN;
        high = y;
    }
    int n = p->n_lines;
    plot_add(p, panel, line, a, y, low, high);
    plot_add(p, panel, line, b, y, low, high);
    if (fill)
        plot_filled(p);
    plot_documents(p, value_at(v->t, v->k.documents, r));
    if (p->n_lines > n && v->trace >= 0) /* traces have the names of methods */
        p->line[n].method = true;
}

static double highest(const struct plot *p)
{
    double top = 1;
    for (int i = 0; i < p->n_series; i++)
        for (int k = 0; k < p->series[i].data.n; k++) {
            const struct chart_line *l = &p->series[i].data;
            top = fmax(top, l->y[k]);
            top = l->high ? fmax(top, l->high[k]) : top;
        }
    return 1.06 * top;
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    (void)d;
    const struct density_style *o = s->own;
    struct view v = {t,
                     plot_rows_of(t),
                     o->by == BY_HEAD,
                     table_find(t, "bin_low"),
                     table_find(t, "bin_high"),
                     table_find(t, "share"),
                     table_find(t, "low"),
                     table_find(t, "high"),
                     table_find(t, "trace")};
    char heads[HEADS_TEXT];
    p->xlabel = "position in the text (fraction of its length)";
    p->ylabel = "density of cached entries (1 = uniform)";
    p->x0 = p->y0 = 0;
    p->x1 = p->level = 1;
    for (int64_t r = 0; r < table_rows(t); r++)
        if (v.heads ? row_head(&v.k, r) : row_pooled(&v.k, r))
            add_row(p, &v, r);
    p->y1 = isnan(s->vmax) ? highest(p) : s->vmax;
    snprintf(p->note, sizeof p->note, "dotted: uniform");
    if (!v.heads && plot_count_heads(&v.k).most)
        snprintf(p->note, sizeof p->note, "dotted: uniform; entries of %s",
                 plot_heads_text(&v.k, heads));
    plot_note_run(p, t);
    return KVF_OK;
}

PLOT_FIGURE(fig_density, .name = "density", .table = "density",
            .summary = "where in the text cached entries are; several traces overlaid",
            .needs = "head:text bin_low bin_high share",
            STYLE(struct density_style,
                  WORD_KEY(struct density_style, by, "all", "unit of a panel", "all", "head")),
            .side_by_side = true);
