/* fig_hazard.c - draws the hazard that a selection at an age is the token's last, in bins of age: a
 * line per criterion or class.  Both axes are logarithmic.  y=survival draws the product-limit
 * curve with its interval. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/stats.h"
#include "render/caption.h"
#include "render/figures.h"
#include "render/plot.h"

enum { HAZARD, SURVIVAL }; /* indices of `curves` and `labels` */
static const char *const curves[] = {"hazard", "survival", "actuarial", NULL};
static const char *const labels[][3] =
    {/* by enum choice_about */
     {"hazard of the last selection (1/step)", "hazard of the eviction (1/step)",
      "hazard of last selection or eviction (1/step)"},
     {"fraction of tokens still in use", "fraction of tokens still cached",
      "fraction of tokens still in use or cached"},
     {"fraction whose last selection is in the bin", "fraction whose eviction is in the bin",
      "fraction whose last selection or eviction is in the bin"}};

struct columns {
    int low, high, y, y_low, y_high;
    int events; /* of a table of hazards without intervals; -1: no such table */
    bool steps;
    double end; /* end of the longest trace, and so of the last bin */
};

static struct columns columns_of(const struct table *t, int which)
{
    const char *name = curves[which];
    char low[32], high[32];
    snprintf(low, sizeof low, "%s_low", name);
    snprintf(high, sizeof high, "%s_high", name);
    int y_low = table_find(t, low);
    return (struct columns){.low = table_find(t, "low"),
                            .high = table_find(t, "high"),
                            .y = table_find(t, name),
                            .y_low = y_low,
                            .y_high = table_find(t, high),
                            .events = which == HAZARD && y_low < 0 ? table_find(t, "events") : -1,
                            .steps = which != SURVIVAL,
                            .end = table_meta_real(t, "T", NAN)};
}

/* Adds a bin as a horizontal segment from its first age to the first age of the next bin. */
static void add_row(struct plot *p, const struct row_choice *v, const struct columns *k, int64_t r)
{
    const struct table *t = v->k.t;
    double x = table_real(t, k->low, r), end = table_real(t, k->high, r);
    double y = value_at(t, k->y, r), low = value_at(t, k->y_low, r);
    double high = value_at(t, k->y_high, r), events = value_at(t, k->events, r);
    if (events > 0) { /* a Poisson rate: log(rate) has the variance 1 / events */
        low = y * exp(-STATS_Z975 / sqrt(events));
        high = y * exp(STATS_Z975 / sqrt(events));
    }
    if (end < 0)
        end = k->end > x ? k->end : 2 * x;
    if (k->end > x)
        end = fmin(end, k->end);
    choice_add(p, v, r, NULL, x, y, low, high);
    if (k->steps)
        choice_add(p, v, r, NULL, end, y, low, high);
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    struct row_choice v;
    const struct choice_style *o = s->own;
    int err = choice_open(&v, t, o, d);
    if (err)
        return err;
    struct columns k = columns_of(t, o->y);
    char begin[PLOT_NAME];
    if (k.y < 0)
        return kvf_fail(d, KVF_E_ARG, "--style: the table has no column for y=%s", curves[o->y]);
    plot_by_steps(p, o->y == HAZARD, "age (steps)", labels[o->y][choice_about(&v)]);
    p->y1 = o->y == SURVIVAL ? 1 : NAN;
    p->copies = k.steps ? 2 : 1;
    for (int64_t r = 0; r < table_rows(t); r++)
        if (choice_has(&v, r) && table_real(t, k.low, r) >= 1)
            add_row(p, &v, &k, r);
    choice_note(&v, p, begin);
    char bands[48], waits[48] = "";
    double grace = table_meta_real(t, "grace", 0);
    if (grace > 0)
        snprintf(waits, sizeof waits, "last: none in the next %.0f steps", grace);
    const char *of = table_meta(t, "documents") ? bands_text(t, p, bands) : "bands: 95 % CI";
    bool any = k.y_low >= 0 || k.events >= 0;
    snprintf(p->note, sizeof p->note, "%s%s%s%s", begin, waits, *waits && any ? "; " : "",
             any ? of : "");
    choice_note_run(&v, p);
    plot_hide_empty(p);
    return KVF_OK;
}

PLOT_FIGURE(
    fig_hazard, .name = "hazard", .caption = caption_hazard, .table = "hazard",
    .summary = "risk per step that a selection is the last one, by age; Kaplan-Meier curves",
    .needs = "head:text criterion:text low high hazard",
    STYLE(struct choice_style, CHOICE_BY("criterion", "class", "head", "trace"), CHOICE_ONE,
          CHOICE_HEADS,
          LIST_KEY(struct choice_style, y, "hazard", "the column that is drawn", curves)),
    .side_by_side = true);
