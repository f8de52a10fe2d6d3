/* fig_decay.c - draws the laws that `decay` fits: the fraction of the tokens in use at the age
 * `from` that are still in use later, by each law. Bands are 95 % CI of the law's parameter, for
 * laws of one parameter, unless they are narrower than lines. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/plot.h"

enum { GEOMETRIC, WEIBULL, POWER, N_LAWS, N_POINTS = 64 };
static const char *const law_names[N_LAWS] = {"geometric", "weibull", "power"};
static const char *const titles[N_LAWS] = {"geometric", "Weibull", "power law"};
static const char *const labels[] = {/* by enum choice_about */
                                     "fraction of tokens still in use",
                                     "fraction of tokens still cached",
                                     "fraction of tokens still in use or cached"};

/* A fitted law: the fraction at m steps after the age `from`. */
struct law {
    int kind;
    double from, scale, value;
};

static double fraction_at(const struct law *l, double m)
{
    switch (l->kind) {
    case GEOMETRIC:
        return pow(l->value, m);
    case WEIBULL:
        return exp(-l->scale * pow(m, l->value));
    default:
        return pow(1 + m / (l->from + 1), -l->value);
    }
}

static int kind_of(const char *name)
{
    int k = 0;
    while (k < N_LAWS && strcmp(name, law_names[k]) != 0)
        k++;
    return k;
}

/* Adds the curve of row r, at ages that are evenly spaced in their logarithm. */
static void add_curve(struct plot *p, const struct table *t, int64_t r, const char *panel,
                      double end)
{
    struct law law = {kind_of(table_row_str(t, r, "law")), table_meta_real(t, "from", 0),
                      table_row_real(t, r, "scale"), table_row_real(t, r, "value")};
    struct law low = law, high = law;
    if (law.kind == N_LAWS)
        return;
    low.value = value_at(t, table_find(t, "low"), r);
    high.value = value_at(t, table_find(t, "high"), r);
    double first = fmax(law.from, 1), reach = fmax(end, first + 1), last = -1;
    for (int k = 0; k < N_POINTS; k++) {
        double age = round(first * pow(reach / first, k / (N_POINTS - 1.0))), m = age - law.from;
        if (age <= last)
            continue;
        double a = law.kind == WEIBULL ? NAN : fraction_at(&low, m);
        double b = law.kind == WEIBULL ? NAN : fraction_at(&high, m);
        plot_add(p, panel, titles[law.kind], age, fraction_at(&law, m), fmin(a, b), fmax(a, b));
        last = age;
    }
}

/* Writes the heading of a panel: the choice of rows, since lines are laws. */
static void heading(const struct row_choice *v, int64_t r, char out[PLOT_NAME])
{
    char panel[PLOT_NAME], line[PLOT_NAME];
    choice_name(v, r, panel, line);
    snprintf(out, PLOT_NAME, "%.45s%s%.45s", panel, panel[0] && line[0] ? ": " : "", line);
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    struct row_choice v;
    const struct choice_style *o = s->own;
    double from = table_meta_real(t, "from", 0);
    int err = choice_open(&v, t, o, d);
    if (err)
        return err;
    plot_by_steps(p, o->y == CHOICE_LOG, "age (steps)", labels[choice_about(&v)]);
    p->y1 = 1;
    for (int64_t r = 0; r < table_rows(t); r++) {
        char panel[PLOT_NAME];
        if (!choice_has(&v, r))
            continue;
        heading(&v, r, panel);
        add_curve(p, t, r, panel, table_meta_real(t, "T", 2 * from + 2));
    }
    snprintf(p->note, sizeof p->note, "fits to the tokens in use at age %.0f; %s", from,
             plot_bands(p));
    plot_hide_empty(p);
    return KVF_OK;
}

PLOT_FIGURE(fig_decay, .name = "decay", .table = "decay",
            .summary = "fitted laws of decay: fraction of tokens still in use, by age",
            .needs = "head:text criterion:text law:text scale value",
            STYLE(struct choice_style, CHOICE_BY("criterion", "class", "head", "trace"), CHOICE_ONE,
                  CHOICE_Y),
            .side_by_side = true);
