/* fig_attention_sparsity.c - draws the fraction of tokens with a score below p times the maximum
 * (G-KV, figure 9): one line per layer and one for all heads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/marks.h"
#include "render/plot.h"

struct sparsity_style {
    int by; /* enum plot_by */
};

struct view {
    const struct table *t;
    struct plot_rows k;
    bool layers, heads;
    int p, y, low, high;
};

/* Adds a row to its line.  The line of all heads is black and wide. */
static void add_row(struct plot *p, const struct view *v, int64_t r)
{
    const char *head = table_str(v->t, v->k.head, r), *panel = v->heads ? head : "";
    bool pooled = row_pooled(&v->k, r), layer = row_layer(&v->k, r);
    char line[PLOT_NAME] = "all heads";
    if (layer)
        snprintf(line, sizeof line, "layer %lld", (long long)table_int(v->t, v->k.layer, r));
    int n = p->n_lines;
    plot_add(p, panel, line, table_real(v->t, v->p, r), table_real(v->t, v->y, r),
             pooled ? value_at(v->t, v->low, r) : NAN, pooled ? value_at(v->t, v->high, r) : NAN);
    plot_documents(p, value_at(v->t, v->k.documents, r));
    if (p->n_lines == n)
        return;
    struct plot_line *l = &p->line[n];
    l->hidden = layer || v->heads;
    l->back = layer;
    l->look = (struct chart_look){.colour = ink, .width = .55, .sign = 1 + MARK_DISC};
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
    p->log_x = true;
    p->xlabel = step ? "p (relative to the largest weight)" : "p (relative to the largest score)";
    p->ylabel = step ? "fraction of weights below p" : "fraction of tokens with a score below p";
    p->y0 = 0;
    p->y1 = 1;
    for (int64_t r = 0; r < table_rows(t); r++)
        if (v.heads ? row_head(&v.k, r) : row_pooled(&v.k, r) || (v.layers && row_layer(&v.k, r)))
            add_row(p, &v, r);
    plot_layers(p);
    const char *entries = table_meta(t, "entries");
    char heads[HEADS_TEXT];
    snprintf(p->note, sizeof p->note, "%s%s%.40s%s%s",
             step ? "means over queries; " : "score: mean weight from the last 16 queries; ",
             entries ? "entries: " : "", entries ? entries : "", entries ? "; " : "",
             plot_heads_text(&v.k, heads));
    plot_note_run(p, t);
    return KVF_OK;
}

PLOT_FIGURE(fig_attention_sparsity, .name = "attention-sparsity", .table = "attention-sparsity",
            .summary = "fraction of tokens below p times the largest score, by layer",
            .needs = "head:text layer p sparsity",
            STYLE(struct sparsity_style, WORD_KEY(struct sparsity_style, by, "layer",
                                                  "unit of a line; for heads, the unit of a panel",
                                                  "all", "head", "layer")));
