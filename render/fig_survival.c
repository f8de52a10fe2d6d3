/* fig_survival.c - survival curves (DBTrimKV, figures 2a and 9).  The axis of ages is
 * logarithmic: it starts at horizon 1.  A ring is the half-life. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/plot.h"

static void add_rows(struct plot *p, const struct row_choice *v, const struct table *t)
{
    int x = table_find(t, "horizon"), y = table_find(t, "fraction");
    int low = table_find(t, "low"), high = table_find(t, "high");
    for (int64_t r = 0; r < table_rows(t); r++)
        if (choice_has(v, r) && table_real(t, x, r) >= 1)
            choice_add(p, v, r, NULL, table_real(t, x, r), table_real(t, y, r), value_at(t, low, r),
                       value_at(t, high, r));
}

/* Adds a ring at the half-life of each line that has one. */
static void add_half_lives(struct plot *p, const struct row_choice *v, const struct table *t)
{
    char panel[PLOT_NAME], line[PLOT_NAME], last[2 * PLOT_NAME + 1] = "", now[sizeof last];
    int col = table_find(t, "half_life");
    for (int64_t r = 0; col >= 0 && r < table_rows(t); r++) {
        double x = table_real(t, col, r);
        if (!(x >= 1) || !choice_has(v, r) || !choice_name(v, r, panel, line))
            continue;
        snprintf(now, sizeof now, "%s\n%s", panel, line);
        if (strcmp(now, last) != 0)
            plot_mark(p, panel, line, x, .5, false);
        memcpy(last, now, sizeof now);
    }
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    struct row_choice v;
    char begin[PLOT_NAME];
    const char *among = table_meta(t, "denominator");
    const struct choice_style *o = s->own;
    int err = choice_open(&v, t, o, d);
    if (err)
        return err;
    p->whole_x = true;
    p->xlabel = "age n (steps)";
    p->ylabel = v.gaps ? "difference of the shares" : "share selected at age \xe2\x89\xa5 n";
    p->log_x = true;
    p->log_y = o->y == CHOICE_LOG && !v.gaps;
    p->y0 = v.gaps || p->log_y ? NAN : 0;
    p->y1 = v.gaps ? NAN : 1;
    p->level = v.gaps ? 0 : NAN;
    add_rows(p, &v, t);
    if (!v.gaps)
        add_half_lives(p, &v, t);
    choice_note(&v, p, begin);
    char bands[48];
    bool pooled = table_find(t, "low") >= 0;
    snprintf(p->note, sizeof p->note, "%samong %.60s%s%s%s", begin, among ? among : "tokens",
             p->n_marks ? "; rings: half-life" : "", pooled ? "; " : "",
             pooled ? bands_text(t, p, bands) : "");
    return KVF_OK;
}

static const struct opt style[] = {
    CHOICE_BY("criterion", "class", "head", "gap"),
    CHOICE_ONE,
    CHOICE_HEADS,
    CHOICE_Y,
    {.type = OPT_END},
};

static const struct figure_column needs[] = {{"head", COLUMN_TEXT},
                                             {"criterion", COLUMN_TEXT},
                                             {"horizon", COLUMN_NUMBER},
                                             {"fraction", COLUMN_NUMBER},
                                             {NULL, COLUMN_NUMBER}};

PLOT_FIGURE(fig_survival, .name = "survival", .table = "survival",
            .summary = "survival curves by criterion, class or head; half-lives; gaps",
            .needs = needs, .style = style, .style_bytes = sizeof(struct choice_style),
            .side_by_side = true);
