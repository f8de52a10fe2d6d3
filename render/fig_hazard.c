/* fig_hazard.c - risk that a selection at an age is the token's last, in bins of age: a line for
 * each criterion or class.  Both axes are logarithmic; y=survival draws the product-limit curve
 * with its interval. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/plot.h"

struct columns {
    int low, high, y, y_low, y_high;
    bool steps;
    double end; /* of the longest trace, and so of the last bin */
};

static struct columns columns_of(const struct table *t, const struct style_key *keys)
{
    const char *name = style_is(keys, "y", "survival")    ? "survival"
                       : style_is(keys, "y", "actuarial") ? "actuarial"
                                                          : "hazard";
    char low[32], high[32];
    snprintf(low, sizeof low, "%s_low", name);
    snprintf(high, sizeof high, "%s_high", name);
    return (struct columns){table_find(t, "low"),        table_find(t, "high"),
                            table_find(t, name),         table_find(t, low),
                            table_find(t, high),         strcmp(name, "survival") != 0,
                            table_meta_real(t, "T", NAN)};
}

/* A bin is a level from its first age to the first of the next one. */
static void add_row(struct plot *p, const struct row_choice *v, const struct columns *k, int64_t r)
{
    const struct table *t = v->k.t;
    double x = table_real(t, k->low, r), end = table_real(t, k->high, r);
    double y = value_at(t, k->y, r), low = value_at(t, k->y_low, r);
    double high = value_at(t, k->y_high, r);
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
    struct style_key keys[] = {{"by", "criterion|class|head", "criterion"},
                               {"criterion", NULL, ""},
                               {"heads", "none|thin", "none"},
                               {"y", "hazard|survival|actuarial", "hazard"},
                               {NULL, NULL, ""}};
    struct row_choice v;
    int err = style_keys("hazard", s->option, keys, d);
    if (!err)
        err = choice_open(&v, t, keys, d);
    if (err)
        return err;
    struct columns k = columns_of(t, keys);
    char begin[PLOT_NAME];
    if (k.y < 0)
        return kvf_fail(d, KVF_E_ARG, "--style: the table has no column for y=%s", keys[3].value);
    p->log_x = true;
    p->log_y = style_is(keys, "y", "hazard");
    p->whole_x = true;
    p->xlabel = "age (steps)";
    p->ylabel = style_is(keys, "y", "survival") ? "share still to be selected"
                : p->log_y                      ? "hazard of the last selection (1/step)"
                                                : "share whose last selection is in the bin";
    p->y0 = p->log_y ? NAN : 0;
    p->y1 = style_is(keys, "y", "survival") ? 1 : NAN;
    p->copies = k.steps ? 2 : 1;
    for (int64_t r = 0; r < table_rows(t); r++)
        if (choice_has(&v, r) && table_real(t, k.low, r) >= 1)
            add_row(p, &v, &k, r);
    choice_note(&v, p, begin);
    char bands[48], waits[48] = "";
    double grace = table_meta_real(t, "grace", 0);
    if (grace > 0)
        snprintf(waits, sizeof waits, "; grace %.0f steps", grace);
    snprintf(p->note, sizeof p->note, "%sfrom age 1%s%s%s", begin, waits, k.y_low < 0 ? "" : "; ",
             k.y_low < 0                  ? ""
             : table_meta(t, "documents") ? bands_text(t, p, bands)
                                          : "bands: 95 %");
    return KVF_OK;
}

static const char *const needs[] = {"head", "criterion", "low", "high", "hazard", NULL};

PLOT_FIGURE(fig_hazard, "hazard", "hazard",
            "risk per step that a selection is the last one, by age; Kaplan-Meier curves", needs,
            true);
