/* fig_causal.c - draws how an answer changes when entries are removed at its query, against the
 * attention removed with them.
 *
 * The y axis is the change of the answer's log probability or the fraction of correct answers.
 * There is a panel per group of heads.  Lines are distractors and entries that are neither
 * distractor nor evidence; they start at no removal.  Points are all evidence and the rows of
 * matched mass. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/cells.h"
#include "render/marks.h"
#include "render/palette.h"
#include "render/plot.h"

enum { LOG_P, RIGHT, MOST = 16 }; /* y axis; maximum number of points per line */

struct causal_style {
    int y;
};

static const char *const ups[][3] = {{"dlogp", "dlogp_low", "dlogp_high"},
                                     {"right", "right_low", "right_high"}};

struct view {
    const struct table *t;
    int group, what, dose, mass, y, low, high;
};

static bool is(const struct view *v, int col, int64_t row, const char *word)
{
    return strcmp(table_str(v->t, col, row), word) == 0;
}

/* The lines and points of a panel.  Lines connect fractions of the distractors' mass.  Points are
 * all evidence and matched mass, a different series of doses, so no line joins them. */
enum { SHARES, ALL, MATCHED };
static const struct part {
    const char *what, *name;
    int doses;
} parts[] = {
    {"distractors", "distractors", SHARES},
    {"random", "other tokens", SHARES},
    {"evidence", "all evidence", ALL},
    {"evidence", "evidence, equal attention", MATCHED},
    {"distractors", "distractors, equal attention", MATCHED},
    {"random", "other tokens, equal attention", MATCHED},
    {"sham", "consecutive distractors, equal attention", MATCHED},
};

static bool in_part(const struct view *v, const struct part *k, int64_t r)
{
    bool matched = isnan(table_real(v->t, v->dose, r));
    if (k->doses == SHARES && is(v, v->what, r, "nothing"))
        return true;
    return is(v, v->what, r, k->what) && matched == (k->doses == MATCHED);
}

/* Finds the rows of a part in a group, by increasing mass.  Returns their number. */
static int rows_of(const struct view *v, const char *group, const struct part *k, int64_t *ret)
{
    int n = 0;
    for (int64_t r = 0; r < table_rows(v->t) && n < MOST; r++) {
        double mass = table_real(v->t, v->mass, r);
        if (!is(v, v->group, r, group) || !in_part(v, k, r) || !isfinite(mass))
            continue;
        int at = n++;
        for (; at > 0 && table_real(v->t, v->mass, ret[at - 1]) > mass; at--)
            ret[at] = ret[at - 1];
        ret[at] = r;
    }
    return n;
}

/* Sets the look of a part: a line with rings for fractions, and only the mark for the rest. */
static void look_of(struct plot *p, size_t k)
{
    struct plot_line *l = plot_line(p, parts[k].name);
    if (!l)
        return;
    l->look.colour = palette_line((int)k == 6 ? 7 : (int)k);
    l->look.key = 1 + (parts[k].doses == MATCHED ? MARK_CROSS : MARK_RING);
    l->look.alone = parts[k].doses != SHARES;
    l->look.bars = l->look.alone;
    l->look.width = l->look.alone ? 0 : l->look.width;
}

/* Returns how far a part is moved to the right, in parts of the x range: points of equal attention
 * would cover each other. */
static double apart(size_t k)
{
    return parts[k].doses == MATCHED ? 0.02 * ((double)k - 4.5) : 0;
}

static void add_group(const struct view *v, const char *group, double most, struct plot *p)
{
    int64_t row[MOST];
    char panel[PLOT_NAME];
    if (strcmp(group, "looking") == 0)
        snprintf(panel, sizeof panel, "heads that attend to the evidence");
    else
        snprintf(panel, sizeof panel, "%.60s heads", group);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        const char *name = parts[k].name;
        int n = rows_of(v, group, &parts[k], row);
        for (int i = 0; i < n; i++) {
            double x = table_real(v->t, v->mass, row[i]) + apart(k) * most;
            double y = table_real(v->t, v->y, row[i]);
            plot_add(p, panel, name, x, y, table_real(v->t, v->low, row[i]),
                     table_real(v->t, v->high, row[i]));
            plot_mark(p, panel, name, x, y, parts[k].doses == MATCHED);
            p->x1 = fmax(isnan(p->x1) ? 0 : p->x1, 1.04 * x); /* space for a disc at the end */
            p->x0 = fmin(isnan(p->x0) ? 0 : p->x0, x);
        }
        look_of(p, k);
    }
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    const struct causal_style *o = s->own;
    struct view v = {.t = t,
                     .group = table_find(t, "group"),
                     .what = table_find(t, "removed"),
                     .dose = table_find(t, "dose"),
                     .mass = table_find(t, "mass"),
                     .y = numeric_column(t, ups[o->y][0]),
                     .low = numeric_column(t, ups[o->y][1]),
                     .high = numeric_column(t, ups[o->y][2])};
    if (v.y < 0 || v.low < 0 || v.high < 0)
        return kvf_fail(d, KVF_E_ARG, "figure causal: the table has no numbers %s, %s and %s",
                        ups[o->y][0], ups[o->y][1], ups[o->y][2]);
    double most = 0; /* attention removed */
    for (int64_t r = 0; r < table_rows(t); r++)
        most = fmax(most, isfinite(table_real(t, v.mass, r)) ? table_real(t, v.mass, r) : 0);
    for (int64_t r = 0; r < table_rows(t); r++)
        if (r == 0 || strcmp(table_str(t, v.group, r), table_str(t, v.group, r - 1)) != 0)
            add_group(&v, table_str(t, v.group, r), most, p);
    p->bend_y = o->y == LOG_P ? 0.1 : 0;
    snprintf(p->note, sizeof p->note,
             "n = %s tasks; bars and bands: 95 %% CI; crosses: the same attention removed, moved "
             "apart%s",
             table_meta(t, "tasks") ? table_meta(t, "tasks") : "?",
             o->y == LOG_P ? "; vertical axis: linear up to \xc2\xb1"
                             "0.1, logarithmic beyond"
                           : "");
    p->xlabel = "attention removed with the entries";
    p->ylabel = o->y == LOG_P ? "\xce\x94 ln p(answer) (nats)" : "fraction of correct answers";
    p->level = o->y == LOG_P ? 0 : NAN;
    return KVF_OK;
}

PLOT_FIGURE(fig_causal, .name = "causal", .table = "causal",
            .summary = "change of the answer after attention to distractors is removed",
            .needs = "group:text removed:text dose mass dlogp",
            STYLE(struct causal_style, WORD_KEY(struct causal_style, y, "logp",
                                                "column on the vertical axis", "logp", "right")));
