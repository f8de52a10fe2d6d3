/* fig_persistence.c - draws the fraction of tokens that are selected at exactly the ages 1, 2, 4,
 * ..., with its interval. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/plot.h"

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    struct row_choice v;
    char begin[PLOT_NAME];
    int age = table_find(t, "age"), low = table_find(t, "low"), high = table_find(t, "high");
    int y = table_find(t, table_find(t, "prior") < 0 ? "rate" : "shrunk");
    int at_risk = table_find(t, "at_risk");
    double most = 0;
    bool left_out = false;
    const struct choice_style *o = s->own;
    int err = choice_open(&v, t, o, d);
    if (err)
        return err;
    plot_by_steps(p, o->y == CHOICE_LOG, "age (steps)", "fraction selected at exactly this age");
    p->y1 = 1;
    for (int64_t r = 0; r < table_rows(t); r++) {
        bool pooled = row_pooled(&v.k, r) || v.heads;
        if (!choice_has(&v, r) || table_real(t, age, r) < 1)
            continue;
        /* the few tokens of great age are the first of the text, which are often selected */
        if (table_real(t, age, r) == 1)
            most = value_at(t, at_risk, r);
        if (value_at(t, at_risk, r) < most / 10) {
            left_out = true;
            continue;
        }
        choice_add(p, &v, r, NULL, table_real(t, age, r), table_real(t, y, r),
                   pooled ? value_at(t, low, r) : NAN, pooled ? value_at(t, high, r) : NAN);
    }
    plot_mark_points(p);
    choice_note(&v, p, begin);
    bool parts = v.heads || v.classes;
    char bands[48];
    snprintf(p->note, sizeof p->note, "%s%s%s%s", begin,
             table_find(t, "prior") < 0 ? bands_text(t, p, bands) : plot_bands(p),
             table_find(t, "prior") >= 0 && parts ? "; heads and classes shrunk" : "",
             left_out ? "; lines end where fewer than a tenth of the tokens are so old" : "");
    choice_note_run(&v, p);
    plot_pad(p);
    plot_hide_empty(p);
    return KVF_OK;
}

PLOT_FIGURE(fig_persistence, .name = "persistence", .table = "persistence",
            .summary = "rate of selection at exactly age 1, 2, 4, ... with intervals",
            .needs = "head:text criterion:text age rate",
            STYLE(struct choice_style, CHOICE_BY("criterion", "class", "head", "trace"), CHOICE_ONE,
                  CHOICE_HEADS, CHOICE_Y),
            .side_by_side = true);
