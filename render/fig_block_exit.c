/* fig_block_exit.c - draws the probability that a token leaves the selected set within a block of b
 * steps, with its 95 % CI, against b. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/plot.h"

static const char *const labels[] = {/* by enum choice_about */
                                     "probability of leaving the selected set",
                                     "probability of eviction",
                                     "probability of leaving or eviction"};

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    struct row_choice v;
    char begin[PLOT_NAME], bands[48], leaving[64] = "";
    double grace = table_meta_real(t, "grace", 0);
    int block = table_find(t, "block"), y = table_find(t, "epsilon");
    int low = table_find(t, "low"), high = table_find(t, "high");
    const struct choice_style *o = s->own;
    int err = choice_open(&v, t, o, d);
    if (err)
        return err;
    plot_by_steps(p, o->y == CHOICE_LOG, "block length (steps)", labels[choice_about(&v)]);
    p->log_x = p->log_y; /* a constant risk is a straight line on both pairs of axes */
    for (int64_t r = 0; r < table_rows(t); r++) {
        if (!choice_has(&v, r) || !(table_real(t, block, r) >= 1))
            continue;
        plot_tick(p, table_real(t, block, r));
        choice_add(p, &v, r, NULL, table_real(t, block, r), table_real(t, y, r),
                   value_at(t, low, r), value_at(t, high, r));
    }
    plot_mark_points(p);
    choice_note(&v, p, begin);
    if (grace > 0)
        snprintf(leaving, sizeof leaving, "leaving: not selected in the next %.0f steps; ", grace);
    snprintf(p->note, sizeof p->note, "%s%s%s", begin, leaving,
             table_meta(t, "documents") ? bands_text(t, p, bands) : plot_bands(p));
    choice_note_run(&v, p);
    plot_pad(p);
    if (!p->log_x)
        p->x0 = fmin(p->x0, 0);
    plot_hide_empty(p);
    return KVF_OK;
}

PLOT_FIGURE(fig_block_exit, .name = "block-exit", .table = "block-exit",
            .summary = "probability of leaving the selected set within a block, by its length",
            .needs = "head:text criterion:text block epsilon",
            STYLE(struct choice_style, CHOICE_BY("criterion", "class", "head", "trace"), CHOICE_ONE,
                  CHOICE_HEADS, CHOICE_Y),
            .side_by_side = true);
