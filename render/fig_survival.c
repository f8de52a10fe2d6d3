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

/* The half-life of each line that has one, once. */
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
    struct style_key keys[] = {{"by", "criterion|class|head|gap", "criterion"},
                               {"criterion", NULL, ""},
                               {"heads", "none|thin", "none"},
                               {"y", "linear|log", "linear"},
                               {NULL, NULL, ""}};
    struct row_choice v;
    char begin[PLOT_NAME];
    const char *among = table_meta(t, "denominator");
    int err = style_keys("survival", s->option, keys, d);
    if (!err)
        err = choice_open(&v, t, keys, d);
    if (err)
        return err;
    p->whole_x = true;
    p->xlabel = "age n (steps)";
    p->ylabel = v.gaps ? "difference of the shares" : "share selected at age \xe2\x89\xa5 n";
    p->log_x = true;
    p->log_y = style_is(keys, "y", "log") && !v.gaps;
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

static const char *const needs[] = {"head", "criterion", "horizon", "fraction", NULL};

PLOT_FIGURE(fig_survival, "survival", "survival",
            "survival curves by criterion, class or head; half-lives; gaps", needs, true);
