/* fig_regret.c - draws the fraction of each query's attention on kept entries, the fraction on the
 * same number of largest weights, and the area between them: the cost of the choice. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/plot.h"

struct regret_style {
    int by; /* enum plot_by */
};

struct view {
    const struct table *t;
    struct plot_rows k;
    bool heads;
    int step, kept, oracle, kept_low, kept_high, oracle_low, oracle_high;
};

static void add_row(struct plot *p, const struct view *v, int64_t r)
{
    char panel[PLOT_NAME] = "";
    if (v->k.trace >= 0)
        snprintf(panel, sizeof panel, "%.60s%s", table_str(v->t, v->k.trace, r),
                 v->heads ? ": " : "");
    if (v->heads)
        snprintf(panel + strlen(panel), sizeof panel - strlen(panel), "%.30s",
                 table_str(v->t, v->k.head, r));
    double x = table_real(v->t, v->step, r), kept = table_real(v->t, v->kept, r);
    double oracle = table_real(v->t, v->oracle, r);
    double n = value_at(v->t, v->k.documents, r);
    plot_add(p, panel, "regret", x, kept, kept, oracle);
    plot_filled(p);
    plot_documents(p, n);
    plot_add(p, panel, "n largest (oracle)", x, oracle, value_at(v->t, v->oracle_low, r),
             value_at(v->t, v->oracle_high, r));
    plot_documents(p, n);
    plot_add(p, panel, "kept", x, kept, value_at(v->t, v->kept_low, r),
             value_at(v->t, v->kept_high, r));
    plot_documents(p, n);
}

static void looks(struct plot *p)
{
    struct plot_line *area = plot_line(p, "regret"), *best = plot_line(p, "n largest (oracle)");
    struct plot_line *kept = plot_line(p, "kept");
    if (!area || !best || !kept)
        return;
    area->look = (struct chart_look){.colour = {.97, .80, .66}, .fill = 1};
    area->back = true;
    best->look = (struct chart_look){.colour = {.1, .1, .1}, .width = .3, .dash = 1.4};
    kept->look = (struct chart_look){.colour = palette_line(0), .width = .3};
}

/* Returns the start of the x axis: shortly before the first loss, because both lines are 1 until
 * then.  Returns NaN for the first step of the data. */
static double first_loss(const struct plot *p)
{
    double first = INFINITY, last = -INFINITY;
    for (int i = 0; i < p->n_series; i++) {
        const struct chart_line *l = &p->series[i].data;
        for (int k = 0; k < l->n; k++) {
            last = fmax(last, l->x[k]);
            if (l->y[k] < 1 - 1e-6)
                first = fmin(first, l->x[k]);
        }
    }
    return first < last ? fmax(0, first - .05 * (last - first)) : NAN;
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    const struct regret_style *o = s->own;
    struct view v = {t,
                     plot_rows_of(t),
                     o->by == BY_HEAD,
                     table_find(t, "step"),
                     table_find(t, "kept_mass"),
                     table_find(t, "oracle_mass"),
                     table_find(t, "kept_mass_low"),
                     table_find(t, "kept_mass_high"),
                     table_find(t, "oracle_mass_low"),
                     table_find(t, "oracle_mass_high")};
    if (table_rows(t) && table_real(t, v.step, 0) < 0)
        return kvf_fail(d, KVF_E_ARG,
                        "the table has means over the steps (--mean), which this figure does not "
                        "draw; leave --mean out, or write the table as .tsv, .csv or .json");
    char heads[HEADS_TEXT];
    double mean = table_meta_real(t, "mean_regret", NAN);
    double from = table_meta_real(t, "first_loss", NAN);
    p->whole_x = true;
    p->xlabel = "query step t";
    p->ylabel = "fraction of the attention";
    p->y1 = 1;
    for (int64_t r = 0; r < table_rows(t); r++)
        if ((v.heads ? row_head(&v.k, r) : row_pooled(&v.k, r)) && table_real(t, v.step, r) >= 0)
            add_row(p, &v, r);
    looks(p);
    p->x0 = first_loss(p);
    size_t n = 0;
    if (p->x0 > 0)
        n = (size_t)snprintf(p->note, sizeof p->note, "nothing is lost before these steps");
    if (isfinite(mean) && isfinite(from))
        snprintf(p->note + n, sizeof p->note - n, "%smean regret %.4g over %s, from step %.0f on",
                 n ? "; " : "", mean, plot_heads_text(&v.k, heads), from);
    plot_note_run(p, t);
    return KVF_OK;
}

PLOT_FIGURE(fig_regret, .name = "regret", .table = "regret",
            .summary = "kept mass and the mass of the best set, over the steps",
            .needs = "head:text step kept_mass oracle_mass",
            STYLE(struct regret_style,
                  WORD_KEY(struct regret_style, by, "all", "unit of a panel", "all", "head")),
            .side_by_side = true);
