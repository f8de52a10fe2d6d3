/* fig_occupancy_curves.c - cached entries over the steps, stacked by token class (DBTrimKV, figure
 * 6).  A panel shows the mean over all heads or over a layer, or one head. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/identity.h"
#include "render/figures.h"
#include "render/plot.h"

struct occupancy_style {
    int by;    /* enum plot_by */
    int steps; /* 0: all, 1: after the prompt */
};

enum { CLASSES = 64, SUMS_OF_ANY = 1 << 20 };

struct view {
    const struct table *t;
    struct plot_rows k;
    int step, entries, budget; /* columns; budget is -1 without budgets per head */
    enum plot_by by;
    char (*panel)[PLOT_NAME];
    const char *class[CLASSES];
    bool held[CLASSES]; /* a head caches an entry of this class at some step */
    int n_panels, n_classes;
    int64_t first, every, steps;
    double from;       /* first step drawn */
    double *sum;       /* [panel][class][step] */
    double *documents; /* indexed as sum: maximum number of documents; 0: unknown */
    int64_t *n;        /* heads in it */
};

static void panel_name(const struct view *v, int64_t r, char out[PLOT_NAME])
{
    char own[48] = "";
    const char *trace = v->k.trace < 0 ? "" : table_str(v->t, v->k.trace, r);
    int64_t most = v->budget < 0 ? 0 : table_int(v->t, v->budget, r);
    if (v->by == BY_HEAD && most > 0)
        snprintf(own, sizeof own, "%.10s, budget %lld", table_str(v->t, v->k.head, r),
                 (long long)most);
    else if (v->by == BY_HEAD)
        snprintf(own, sizeof own, "%.30s", table_str(v->t, v->k.head, r));
    else if (v->by == BY_LAYER)
        snprintf(own, sizeof own, "layer %lld", (long long)table_int(v->t, v->k.layer, r));
    snprintf(out, PLOT_NAME, "%.60s%s%s", trace, *trace && own[0] ? ": " : "", own);
}

static int panel_of(const struct view *v, int64_t r)
{
    char name[PLOT_NAME];
    int i = v->n_panels - 1;
    panel_name(v, r, name);
    while (i >= 0 && strcmp(v->panel[i], name) != 0)
        i--;
    return i;
}

static int class_of(const struct view *v, int64_t r)
{
    const char *name = table_str(v->t, v->k.class, r);
    int i = 0;
    while (i < v->n_classes && strcmp(v->class[i], name) != 0)
        i++;
    return i;
}

/* Finds the panels, the classes and the steps.  Rows can be in any order. */
static int survey(struct view *v, struct kvf_diag *d)
{
    int64_t last = 0, second = INT64_MAX;
    v->first = INT64_MAX;
    for (int64_t r = 0; r < table_rows(v->t); r++) {
        int64_t step = table_int(v->t, v->step, r);
        v->first = step < v->first ? step : v->first;
        last = step > last ? step : last;
        if (panel_of(v, r) < 0 && v->n_panels < PLOT_PANELS)
            panel_name(v, r, v->panel[v->n_panels++]);
        else if (panel_of(v, r) < 0)
            return kvf_fail(d, KVF_E_ARG, "more than %d panels; choose fewer with --head",
                            PLOT_PANELS);
        if (class_of(v, r) == v->n_classes && v->n_classes < CLASSES)
            v->class[v->n_classes++] = table_str(v->t, v->k.class, r);
    }
    for (int64_t r = 0; r < table_rows(v->t); r++) {
        int64_t step = table_int(v->t, v->step, r);
        second = step > v->first && step < second ? step : second;
    }
    v->every = second == INT64_MAX ? 1 : second - v->first;
    v->steps = (last - v->first) / v->every + 1;
    int64_t most = table_rows(v->t) > SUMS_OF_ANY ? table_rows(v->t) : SUMS_OF_ANY;
    if (v->first < 0 || v->steps > most / v->n_panels / (v->n_classes ? v->n_classes : 1))
        return kvf_fail(d, KVF_E_LIMIT,
                        "occupancy-curves: the table has too few rows for steps %lld to %lld in "
                        "steps of %lld; draw one that an analysis wrote",
                        (long long)v->first, (long long)last, (long long)v->every);
    return KVF_OK;
}

static size_t cell(const struct view *v, int panel, int class, int64_t step)
{
    return ((size_t)panel * (size_t)v->n_classes + (size_t) class) * (size_t)v->steps
           + (size_t)step;
}

static int add_up(struct view *v)
{
    size_t n = (size_t)v->n_panels * (size_t)v->n_classes;
    v->sum = mem_alloc(n, (size_t)v->steps * sizeof *v->sum);
    v->n = mem_alloc(n, (size_t)v->steps * sizeof *v->n);
    v->documents = mem_alloc(n, (size_t)v->steps * sizeof *v->documents);
    for (int64_t r = 0; v->sum && v->n && v->documents && r < table_rows(v->t); r++) {
        double e = table_real(v->t, v->entries, r);
        int class = class_of(v, r);
        size_t at = cell(v, panel_of(v, r), class < v->n_classes ? class : 0,
                         (table_int(v->t, v->step, r) - v->first) / v->every);
        if (class == v->n_classes || !isfinite(e))
            continue;
        v->held[class] |= e > 0;
        v->sum[at] += e;
        v->documents[at] = fmax(v->documents[at], value_at(v->t, v->k.documents, r));
        v->n[at]++;
    }
    return v->sum && v->n && v->documents ? KVF_OK : KVF_E_NOMEM;
}

static void stack_class(struct plot *p, const struct view *v, int panel, int class, double *base)
{
    char edge[PLOT_NAME];
    snprintf(edge, sizeof edge, "edge of %.60s", v->class[class]);
    for (int64_t i = 0; i < v->steps; i++) {
        size_t at = cell(v, panel, class, i);
        double x = (double)(v->first + i * v->every), top = NAN;
        if (x < v->from)
            continue;
        if (v->n[at])
            top = base[i] + v->sum[at] / (double)v->n[at];
        plot_add(p, v->panel[panel], v->class[class], x, NAN, base[i], top);
        plot_filled(p);
        plot_documents(p, v->documents[at]);
        plot_add(p, v->panel[panel], edge, x, top, NAN, NAN);
        plot_documents(p, v->documents[at]);
        base[i] = isfinite(top) ? top : base[i];
    }
}

static void looks(struct plot *p, const struct view *v)
{
    for (int i = 0, k = 0; i < v->n_classes; i++) {
        char edge[PLOT_NAME];
        snprintf(edge, sizeof edge, "edge of %.60s", v->class[i]);
        struct plot_line *area = plot_line(p, v->class[i]), *line = plot_line(p, edge);
        struct rgb c = identity_of_class(v->class[i], k);
        double tint = k / 12 % 2 ? .6 : .25;
        if (!area || !line)
            continue;
        k++;
        c = (struct rgb){c.r + tint * (1 - c.r), c.g + tint * (1 - c.g), c.b + tint * (1 - c.b)};
        area->look = (struct chart_look){.colour = c, .fill = 1};
        area->back = line->hidden = true;
        line->look = (struct chart_look){.colour = ink, .width = .1};
    }
}

/* Returns true if a class is drawn: it has cached entries and is not the sum of all classes. */
static bool stacked(const struct view *v, int class)
{
    bool sum = v->n_classes > 1 && strcmp(v->class[class], "all") == 0; /* of all classes */
    return !sum && v->held[class];
}

/* Lists in the note the classes without cached entries. */
static void name_empty(struct plot *p, const struct view *v)
{
    const char *begin = "nothing cached of: ";
    for (int class = 0; class < v->n_classes; class ++) {
        size_t n = strlen(p->note);
        if (v->held[class])
            continue;
        snprintf(p->note + n, sizeof p->note - n, "%s%s", begin, v->class[class]);
        begin = ", ";
    }
}

static int stack(struct plot *p, struct view *v)
{
    double *base = MEM_NEW(double, (size_t)v->steps);
    if (!base)
        return KVF_E_NOMEM;
    for (int k = 0; k < v->n_panels; k++) {
        for (int64_t i = 0; i < v->steps; i++)
            base[i] = 0;
        for (int class = 0; class < v->n_classes; class ++)
            if (stacked(v, class))
                stack_class(p, v, k, class, base);
    }
    mem_free(base);
    looks(p, v);
    name_empty(p, v);
    plot_note_run(p, v->t);
    return KVF_OK;
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    const struct occupancy_style *o = s->own;
    struct view v = {.t = t,
                     .k = plot_rows_of(t),
                     .by = (enum plot_by)o->by,
                     .step = table_find(t, "step"),
                     .entries = table_find(t, "entries"),
                     .budget = table_find(t, "head_budget")};
    if (o->steps == 1)
        v.from = table_meta_real(t, "prompt_tokens", 0) + table_meta_real(t, "question_tokens", 0);
    p->whole_x = true;
    p->whole_y = v.by == BY_HEAD;
    p->xlabel = "query step t";
    p->ylabel = v.by == BY_HEAD ? "cached entries" : "cached entries, mean over heads";
    p->y0 = 0;
    p->key_upwards = true;
    int err = KVF_E_NOMEM;
    v.panel = mem_alloc(PLOT_PANELS, sizeof *v.panel);
    if (!v.panel)
        goto done;
    err = survey(&v, d);
    if (!err)
        err = add_up(&v);
    if (!err)
        err = stack(p, &v);
done:
    mem_free_all(v.panel, v.sum, v.n, v.documents);
    return err;
}

PLOT_FIGURE(fig_occupancy_curves, .name = "occupancy-curves", .table = "occupancy",
            .summary = "cached entries by class of token over the steps, as stacked areas",
            .needs = "head:text step class:text entries",
            STYLE(struct occupancy_style,
                  WORD_KEY(struct occupancy_style, by, "all", "unit of a panel", "all", "head",
                           "layer"),
                  WORD_KEY(struct occupancy_style, steps, "all",
                           "all steps, or the steps of the answer", "all", "answer")),
            .side_by_side = true);
