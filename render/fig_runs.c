/* fig_runs.c - draws the mean length of runs of consecutive cached entries in each layer, and the
 * length that as many entries at random positions would have. */
#include <math.h>
#include <string.h>

#include "render/figures.h"
#include "render/plot.h"

enum { MOST_LAYERS = 1024 };
static const char observed[] = "observed", at_random[] = "at random";

/* Sums over the heads of a layer. */
struct layer_sums {
    double kept, runs, expected;
};

/* Adds the points of the rows [r0, r1), which are of one trace. */
static void add_trace(struct plot *p, const struct table *t, int64_t r0, int64_t r1,
                      const char *panel)
{
    int layer = table_find(t, "layer"), kept = table_find(t, "kept");
    int runs = table_find(t, "runs"), expected = table_find(t, "expected_runs");
    int last = -1;
    struct layer_sums sum = {0};
    for (int64_t r = r0; r <= r1; r++) {
        double at = r < r1 ? table_real(t, layer, r) : -1;
        if ((int)at != last && last >= 0) {
            plot_add(p, panel, observed, last, sum.runs > 0 ? sum.kept / sum.runs : NAN, NAN, NAN);
            plot_add(p, panel, at_random, last, sum.expected > 0 ? sum.kept / sum.expected : NAN,
                     NAN, NAN);
            sum = (struct layer_sums){0};
        }
        last = at >= 0 && at < MOST_LAYERS ? (int)at : -1;
        if (last < 0 || isnan(table_real(t, expected, r)))
            continue;
        sum.kept += table_real(t, kept, r);
        sum.runs += table_real(t, runs, r);
        sum.expected += table_real(t, expected, r);
    }
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    struct plot_rows k = plot_rows_of(t);
    int64_t n = table_rows(t);
    (void)s;
    (void)d;
    p->whole_x = true;
    p->xlabel = "layer";
    p->ylabel = "mean run of cached entries (tokens)";
    p->y0 = 0;
    for (int64_t r = 0, end; r < n; r = end) {
        const char *name = k.trace < 0 ? "" : table_str(t, k.trace, r);
        for (end = r + 1; end < n && (k.trace < 0 || row_is(t, k.trace, end, name));)
            end++;
        add_trace(p, t, r, end, name);
    }
    for (int i = 0; i < p->n_lines; i++)
        p->line[i].look.points = true;
    plot_note_run(p, t);
    plot_hide_empty(p);
    return KVF_OK;
}

PLOT_FIGURE(fig_runs, .name = "runs", .table = "runs",
            .summary = "length of runs of cached entries by layer, and at random",
            .needs = "head:text layer kept runs expected_runs", .side_by_side = true);
