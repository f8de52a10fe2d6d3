/* fig_attention_sparsity.c - draws the fraction of tokens with a score below p times the maximum
 * (G-KV, figure 9): one line per layer, coloured by depth, and one for all heads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/plot.h"

struct sparsity_style {
    int by; /* enum plot_by */
};

struct view {
    const struct table *t;
    struct plot_rows k;
    bool layers, heads;
    int p, y, low, high;
    int64_t first, last; /* layers */
};

static void layers_of(struct view *v)
{
    v->first = INT64_MAX;
    v->last = -1;
    for (int64_t r = 0; r < table_rows(v->t); r++) {
        int64_t l = table_int(v->t, v->k.layer, r);
        if (!row_layer(&v->k, r))
            continue;
        v->first = l < v->first ? l : v->first;
        v->last = l > v->last ? l : v->last;
    }
}

/* Adds a row to its line.  The line of a layer has the colour of its depth.  The line of all heads
 * is black and wider. */
static void add_row(struct plot *p, const struct view *v, int64_t r, const char *map)
{
    const char *head = table_str(v->t, v->k.head, r), *panel = v->heads ? head : "";
    bool pooled = row_pooled(&v->k, r), layer = row_layer(&v->k, r);
    const char *line = pooled || v->heads ? "all heads" : head;
    int n = p->n_lines;
    plot_add(p, panel, line, table_real(v->t, v->p, r), table_real(v->t, v->y, r),
             pooled ? value_at(v->t, v->low, r) : NAN, pooled ? value_at(v->t, v->high, r) : NAN);
    plot_documents(p, value_at(v->t, v->k.documents, r));
    if (p->n_lines == n)
        return;
    struct plot_line *l = &p->line[n];
    double at = v->last > v->first ? (double)(table_int(v->t, v->k.layer, r) - v->first)
                                         / (double)(v->last - v->first)
                                   : 0;
    l->hidden = layer || v->heads;
    l->back = layer;
    l->look = (struct chart_look){.colour = layer ? palette_at(map, at) : ink,
                                  .width = layer ? .25 : .55,
                                  .dash = layer ? 0 : 1.8};
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    (void)d;
    struct view v = {.t = t,
                     .k = plot_rows_of(t),
                     .p = table_find(t, "p"),
                     .y = table_find(t, "sparsity"),
                     .low = table_find(t, "low"),
                     .high = table_find(t, "high")};
    const char *form = table_meta(t, "form");
    bool step = form && strcmp(form, "step") == 0;
    const struct sparsity_style *o = s->own;
    v.layers = o->by == BY_LAYER;
    v.heads = o->by == BY_HEAD;
    layers_of(&v);
    p->log_x = true;
    p->xlabel = "p";
    p->ylabel = step ? "fraction below p \xc3\x97 largest weight"
                     : "fraction below p \xc3\x97 largest score";
    p->y0 = 0;
    p->y1 = 1;
    for (int64_t r = 0; r < table_rows(t); r++)
        if (v.heads ? row_head(&v.k, r) : row_pooled(&v.k, r) || (v.layers && row_layer(&v.k, r)))
            add_row(p, &v, r, s->cmap);
    if (v.layers && v.last > v.first) {
        p->ramp_label = "layer";
        p->ramp_lo = (double)v.first;
        p->ramp_hi = (double)v.last;
    }
    snprintf(p->note, sizeof p->note, "%s",
             step ? "mean over queries and heads" : "scores: mean of the last 16 queries");
    return KVF_OK;
}

PLOT_FIGURE(fig_attention_sparsity, .name = "attention-sparsity", .table = "attention-sparsity",
            .summary = "fraction of tokens below p times the largest score, by layer",
            .needs = "head:text layer p sparsity",
            STYLE(struct sparsity_style, WORD_KEY(struct sparsity_style, by, "layer",
                                                  "unit of a line; for heads, the unit of a panel",
                                                  "all", "head", "layer")),
            .cmap = "viridis");
