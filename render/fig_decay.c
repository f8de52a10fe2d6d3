/* fig_decay.c - draws the laws that `decay` fits over the observed fraction: of the tokens in use
 * at the age `from`, those still in use later. The key has the largest distance of each law from
 * the observed fraction. Bands are 95 % CI of the law's parameter, for laws of one parameter,
 * unless they are narrower than lines. Bars are those of the observed fraction. The table of a
 * corpus has no column `scale`, and its laws are not drawn. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/cells.h"
#include "render/figures.h"
#include "render/marks.h"
#include "render/plot.h"

enum { GEOMETRIC, WEIBULL, POWER, N_LAWS, N_POINTS = 64 };
static const char *const law_names[N_LAWS] = {"geometric", "weibull", "power"};
static const char *const titles[N_LAWS] = {"geometric", "Weibull", "power law"};
static const char observed[] = "observed";
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

/* Returns the last age with an observed fraction in a drawn row, or T of a table that has none. */
static double last_age(const struct table *t, const struct row_choice *v, double from)
{
    int age = numeric_column(t, "age");
    double end = NAN;
    for (int64_t r = 0; age >= 0 && r < table_rows(t); r++)
        if (choice_has(v, r) && strcmp(table_row_str(t, r, "law"), observed) == 0
            && isfinite(table_row_real(t, r, "value")))
            end = fmax(end, table_real(t, age, r));
    return isnan(end) ? table_meta_real(t, "T", 2 * from + 2) : end;
}

/* Adds the curve of row r, at ages that are evenly spaced in their logarithm. */
static void add_curve(struct plot *p, const struct table *t, int64_t r, const char *panel,
                      double end)
{
    struct law law = {kind_of(table_row_str(t, r, "law")), table_meta_real(t, "from", 0),
                      table_row_real(t, r, "scale"), table_row_real(t, r, "value")};
    struct law low = law, high = law;
    if (law.kind == N_LAWS || !isfinite(law.value) || !isfinite(law.scale))
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

/* Adds the observed fraction of row r as a point, with bars. */
static void add_point(struct plot *p, const struct table *t, int64_t r, const char *panel)
{
    double age = table_row_real(t, r, "age");
    bool corpus = table_find(t, "value_low") >= 0; /* the interval is over documents */
    int low = table_find(t, corpus ? "value_low" : "low");
    int high = table_find(t, corpus ? "value_high" : "high");
    if (age >= 1)
        plot_add(p, panel, observed, age, table_row_real(t, r, "value"), value_at(t, low, r),
                 value_at(t, high, r));
    struct plot_line *l = plot_line(p, observed);
    if (l)
        l->look = (struct chart_look){
            .colour = ink, .points = true, .bars = true, .sign = 1 + MARK_DISC, .alone = true};
}

enum { LISTED = 3 }; /* panels whose distances the key lists; of more it has the range */

/* The largest distances of the laws from the observed fraction. */
struct distances {
    int n[N_LAWS];
    double of[N_LAWS][LISTED], low[N_LAWS], high[N_LAWS];
};

static void add_distance(struct distances *x, int law, double v)
{
    if (law == N_LAWS || !isfinite(v))
        return;
    x->low[law] = x->n[law] ? fmin(v, x->low[law]) : v;
    x->high[law] = x->n[law] ? fmax(v, x->high[law]) : v;
    if (x->n[law] < LISTED)
        x->of[law][x->n[law]] = v;
    x->n[law]++;
}

static const char *distance_text(double v, char out[24])
{
    snprintf(out, 24, v < .005 ? "< 0.01" : "%.2f", v);
    return out;
}

/* Appends the distances of each law to its name in the key. */
static void name_distances(struct plot *p, const struct distances *x)
{
    for (int k = 0; k < N_LAWS; k++) {
        struct plot_line *l = plot_line(p, titles[k]);
        char a[24], b[24];
        if (!l || !x->n[k])
            continue;
        size_t n = strlen(l->name);
        if (x->n[k] > LISTED)
            snprintf(l->name + n, PLOT_NAME - n, ": %s to %s", distance_text(x->low[k], a),
                     distance_text(x->high[k], b));
        for (int i = 0; x->n[k] <= LISTED && i < x->n[k]; i++) {
            snprintf(l->name + n, PLOT_NAME - n, "%s%s", i ? ", " : ": ",
                     distance_text(x->of[k][i], a));
            n = strlen(l->name);
        }
    }
}

/* Writes the heading of a panel: the choice of rows, since lines are laws. */
static void heading(const struct row_choice *v, int64_t r, char out[PLOT_NAME])
{
    char panel[PLOT_NAME], line[PLOT_NAME];
    choice_name(v, r, panel, line);
    snprintf(out, PLOT_NAME, "%.45s%s%.45s", panel, panel[0] && line[0] ? ": " : "", line);
}

static void put_note(struct plot *p, const struct row_choice *v, double from, bool distances)
{
    size_t n = 0;
    double grace = table_meta_real(v->k.t, "grace", 0);
    bool corpus = table_find(v->k.t, "value_low") >= 0;
    char bands[48];
    p->note[0] = 0;
    if (distances)
        n = (size_t)snprintf(p->note, sizeof p->note,
                             "numbers: largest distance from the observed fraction%s; ",
                             p->n_panels > 1 ? ", by panel" : "");
    n += (size_t)snprintf(p->note + n, sizeof p->note - n,
                          "fractions of the tokens in use at age %.0f", from);
    if (grace > 0)
        n += (size_t)snprintf(p->note + n, sizeof p->note - n,
                              "; in use: selected again within %.0f steps", grace);
    snprintf(p->note + n, sizeof p->note - n, "; %s",
             corpus ? bands_text(v->k.t, p, bands) : plot_bands(p));
    choice_note_run(v, p);
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    struct row_choice v;
    struct distances distances = {{0}};
    const struct choice_style *o = s->own;
    double from = table_meta_real(t, "from", 0);
    bool laws = table_find(t, "scale") >= 0; /* a corpus has only means of their parameters */
    int distance = laws ? numeric_column(t, "distance") : -1;
    int err = choice_open(&v, t, o, d);
    if (err)
        return err;
    plot_by_steps(p, o->y == CHOICE_LOG, "age (steps)", labels[choice_about(&v)]);
    p->y1 = 1;
    double end = last_age(t, &v, from);
    for (int64_t r = 0; r < table_rows(t); r++) {
        char panel[PLOT_NAME];
        if (!choice_has(&v, r))
            continue;
        heading(&v, r, panel);
        if (strcmp(table_row_str(t, r, "law"), observed) == 0)
            add_point(p, t, r, panel);
        else if (laws)
            add_curve(p, t, r, panel, end);
        add_distance(&distances, kind_of(table_row_str(t, r, "law")), value_at(t, distance, r));
    }
    put_note(p, &v, from, distances.n[GEOMETRIC] > 0);
    struct plot_line *geometric = plot_line(p, titles[GEOMETRIC]);
    if (geometric) /* wide, since the Weibull law may coincide with it */
        geometric->look.width = 0.8;
    name_distances(p, &distances);
    plot_pad(p);
    plot_hide_empty(p);
    return KVF_OK;
}

PLOT_FIGURE(fig_decay, .name = "decay", .table = "decay",
            .summary = "observed fraction of tokens still in use by age, with fitted laws of decay",
            .needs = "head:text criterion:text law:text value",
            STYLE(struct choice_style, CHOICE_BY("criterion", "class", "head", "trace"), CHOICE_ONE,
                  CHOICE_Y),
            .side_by_side = true);
