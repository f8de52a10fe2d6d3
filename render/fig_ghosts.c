/* fig_ghosts.c - draws the fraction of evicted entries that a query needed within a number of steps
 * after eviction, for all heads and for each layer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "render/axis.h"
#include "render/figures.h"
#include "render/marks.h"
#include "render/plot.h"

struct ghosts_style {
    int by; /* enum plot_by */
    int x;  /* 0: steps after eviction, 1: age */
};

struct view {
    const struct table *t;
    struct plot_rows k;
    bool layers, heads, ages, all;
    int token, evict, hit;
    int64_t longest, evicted; /* steps; rows that count */
    int64_t *delay;           /* [rows] of one line */
};

/* Returns the steps from the creation or the eviction of an entry to the first query that needed
 * it, from 1, or 0 if no query did. */
static int64_t delay_of(const struct view *v, int64_t r)
{
    int64_t hit = table_int(v->t, v->hit, r);
    int64_t from = table_int(v->t, v->ages ? v->token : v->evict, r);
    return hit < from || hit < 0 ? 0 : hit - from + 1;
}

static bool counted(const struct view *v, int64_t r)
{
    return table_int(v->t, v->evict, r) >= 0;
}

static void survey(struct view *v)
{
    for (int64_t r = 0; r < table_rows(v->t); r++) {
        int64_t n = counted(v, r) ? delay_of(v, r) : 0;
        v->evicted += counted(v, r);
        v->longest = n > v->longest ? n : v->longest;
    }
}

static int rising(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Adds a line: the fraction of the entries from .. to - 1 that were needed within 1, 2, ...
 * steps. */
static void add_line(struct plot *p, struct view *v, int64_t from, int64_t to, const char *panel,
                     const char *line)
{
    int64_t all = 0, k = 0, put = 0;
    for (int64_t r = from; r < to; r++)
        if (counted(v, r))
            v->delay[all++] = delay_of(v, r);
    qsort(v->delay, (size_t)all, sizeof *v->delay, rising);
    while (k < all && v->delay[k] == 0) /* never needed */
        k++;
    const int64_t never = k;
    while (put < v->longest) { /* points at 1, at each increase and at the end */
        int64_t n = 1;
        if (put)
            n = k < all ? v->delay[k] : v->longest;
        double before = all ? (double)(k - never) / (double)all : NAN;
        while (k < all && v->delay[k] <= n)
            k++;
        if (n - put > 1) /* constant until here */
            plot_add(p, panel, line, (double)(n - 1), before, NAN, NAN);
        plot_add(p, panel, line, (double)n, all ? (double)(k - never) / (double)all : NAN, NAN,
                 NAN);
        put = n;
    }
}

/* Sets the look of the line of all heads, or of a head in its panel. */
static void look(struct plot *p, const char *line, struct rgb colour)
{
    struct plot_line *l = plot_line(p, line);
    if (l)
        l->look = (struct chart_look){.colour = colour, .width = .55, .sign = 1 + MARK_DISC};
}

/* Adds a line per head or layer.  Its rows are adjacent in the table. */
static void add_runs(struct plot *p, struct view *v)
{
    for (int64_t from = 0, to; from < table_rows(v->t); from = to) {
        int64_t layer = table_int(v->t, v->k.layer, from);
        const char *head = table_str(v->t, v->k.head, from);
        char line[PLOT_NAME];
        for (to = from + 1; to < table_rows(v->t); to++)
            if (v->heads ? strcmp(table_str(v->t, v->k.head, to), head) != 0
                         : table_int(v->t, v->k.layer, to) != layer)
                break;
        snprintf(line, sizeof line, "layer %lld", (long long)layer);
        add_line(p, v, from, to, v->heads ? head : "", v->heads ? "one head" : line);
        struct plot_line *l = v->heads ? NULL : plot_line(p, line);
        if (l)
            l->back = l->hidden = true;
    }
    look(p, "one head", palette_line(0));
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    (void)d;
    const struct ghosts_style *o = s->own;
    struct view v = {.t = t,
                     .k = plot_rows_of(t),
                     .layers = o->by == BY_LAYER,
                     .heads = o->by == BY_HEAD,
                     .ages = o->x == 1,
                     .token = table_find(t, "token"),
                     .evict = table_find(t, "evict_step"),
                     .hit = table_find(t, "first_hit")};
    char number[24];
    survey(&v);
    v.delay = MEM_NEW(int64_t, (size_t)table_rows(t));
    if (!v.delay)
        return KVF_E_NOMEM;
    p->log_x = true;
    p->whole_x = true;
    p->xlabel = v.ages ? "age when first needed (steps)" : "steps after the eviction";
    p->ylabel = "fraction of evicted entries needed";
    p->y0 = 0;
    if (v.layers || v.heads)
        add_runs(p, &v);
    if (!v.heads)
        add_line(p, &v, 0, table_rows(t), "", "all heads");
    look(p, "all heads", ink);
    plot_layers(p);
    char heads[HEADS_TEXT];
    note_number((double)v.evicted, number);
    snprintf(p->note, sizeof p->note,
             "needed: would be among the k largest weights of a query that sees k entries; "
             "%s evicted entries in %s",
             number, plot_heads_text(&v.k, heads));
    plot_note_run(p, t);
    mem_free(v.delay);
    return KVF_OK;
}

PLOT_FIGURE(fig_ghosts, .name = "ghosts", .table = "ghosts",
            .summary = "how long after their eviction entries were first needed",
            .needs = "head:text layer token evict_step first_hit",
            STYLE(struct ghosts_style,
                  WORD_KEY(struct ghosts_style, by, "layer",
                           "unit of a line; for heads, the unit of a panel", "all", "head",
                           "layer"),
                  WORD_KEY(struct ghosts_style, x, "away", "steps since the eviction, or the age",
                           "away", "age")));
