/* fig_causal.c - what becomes of the answer when entries leave at its query: the change of its log
 * probability, or the share of right answers, against the attention that left with them.  A panel
 * for each group of heads; lines of distractors and of random entries, which begin where nothing
 * left, and points of the evidence and of a sham. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/cells.h"
#include "render/plot.h"

enum { LOG_P, RIGHT, MOST = 16 }; /* what goes up; points of a line */

struct causal_style {
    int y;
};

static const char *const ups[][3] = {{"dlogp", "dlogp_low", "dlogp_high"},
                                     {"right", "right_low", "right_high"}};

struct view {
    const struct table *t;
    int group, what, mass, y, low, high;
};

static bool is(const struct view *v, int col, int64_t row, const char *word)
{
    return strcmp(table_str(v->t, col, row), word) == 0;
}

/* Rows of a group from which `what` left, and the one from which nothing did where `from_zero`, by
 * rising mass.  Returns how many. */
static int rows_of(const struct view *v, const char *group, const char *what, bool from_zero,
                   int64_t *ret)
{
    int n = 0;
    for (int64_t r = 0; r < table_rows(v->t) && n < MOST; r++) {
        bool wanted = is(v, v->what, r, what) || (from_zero && is(v, v->what, r, "nothing"));
        double mass = table_real(v->t, v->mass, r);
        if (!is(v, v->group, r, group) || !wanted || !isfinite(mass))
            continue;
        int at = n++;
        for (; at > 0 && table_real(v->t, v->mass, ret[at - 1]) > mass; at--)
            ret[at] = ret[at - 1];
        ret[at] = r;
    }
    return n;
}

static void add_group(const struct view *v, const char *group, struct plot *p)
{
    static const struct {
        const char *what;
        bool line;
    } part[] = {{"distractors", true}, {"random", true}, {"evidence", false}, {"sham", false}};
    int64_t row[MOST];
    char panel[PLOT_NAME];
    snprintf(panel, sizeof panel, "%.60s heads", group);
    for (size_t k = 0; k < sizeof part / sizeof *part; k++) {
        int n = rows_of(v, group, part[k].what, part[k].line, row);
        for (int i = 0; i < n; i++) {
            double x = table_real(v->t, v->mass, row[i]), y = table_real(v->t, v->y, row[i]);
            plot_add(p, panel, part[k].what, x, y, table_real(v->t, v->low, row[i]),
                     table_real(v->t, v->high, row[i]));
            plot_mark(p, panel, part[k].what, x, y, k == 3);
        }
    }
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    const struct causal_style *o = s->own;
    struct view v = {.t = t,
                     .group = table_find(t, "group"),
                     .what = table_find(t, "removed"),
                     .mass = table_find(t, "mass"),
                     .y = numeric_column(t, ups[o->y][0]),
                     .low = numeric_column(t, ups[o->y][1]),
                     .high = numeric_column(t, ups[o->y][2])};
    if (v.y < 0 || v.low < 0 || v.high < 0)
        return kvf_fail(d, KVF_E_ARG, "figure causal: the table has no numbers %s, %s and %s",
                        ups[o->y][0], ups[o->y][1], ups[o->y][2]);
    for (int64_t r = 0; r < table_rows(t); r++)
        if (r == 0 || strcmp(table_str(t, v.group, r), table_str(t, v.group, r - 1)) != 0)
            add_group(&v, table_str(t, v.group, r), p);
    p->xlabel = "attention that left with the entries";
    p->ylabel = o->y == LOG_P ? "\xce\x94 ln p(answer) (nats)" : "share of right answers";
    p->level = o->y == LOG_P ? 0 : NAN;
    return KVF_OK;
}

static const struct opt style[] = {
    WORD_KEY(struct causal_style, y, "logp", "what goes up", "logp", "right"),
    {.type = OPT_END},
};

static const struct figure_column needs[] = {{"group", COLUMN_TEXT},
                                             {"removed", COLUMN_TEXT},
                                             {"mass", COLUMN_NUMBER},
                                             {"dlogp", COLUMN_NUMBER},
                                             {NULL, COLUMN_NUMBER}};

PLOT_FIGURE(fig_causal, .name = "causal", .table = "causal",
            .summary = "what the answer loses or gains with the attention that leaves it",
            .needs = needs, .style = style, .style_bytes = sizeof(struct causal_style));
