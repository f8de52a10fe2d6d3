/* fig_overlap.c - draws the overlap of the top p % tokens of the last window with the ones of
 * earlier windows and of their union (G-KV, figures 1 and 16).
 *
 * A dashed line next to each line is the overlap of random sets.  y=kappa draws the overlap beyond
 * chance. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "render/figures.h"
#include "render/cells.h"
#include "render/plot.h"

struct overlap_style {
    int by; /* enum plot_by */
    int y;  /* 0: overlap, 1: kappa */
};

struct view {
    const struct table *t;
    struct plot_rows k;
    bool layers, heads, kappa;
    int window, p, y, low, high, expected;
    int windows; /* earlier ones */
};

static const char *const by_chance = "by chance";

/* Returns the number of earlier windows, which the table numbers from the earliest, 0. */
static int windows_of(const struct view *v)
{
    char cell[24];
    int n = 0;
    for (int64_t r = 0; r < table_rows(v->t); r++) {
        const char *window = cell_text(v->t, v->window, r, cell);
        if (window[0] >= '0' && window[0] <= '9' && strtol(window, NULL, 10) >= n)
            n = (int)strtol(window, NULL, 10) + 1;
    }
    return n;
}

static double widest(const struct view *v)
{
    double most = 0;
    for (int64_t r = 0; r < table_rows(v->t); r++)
        most = fmax(most, table_real(v->t, v->p, r));
    return most;
}

/* Sets the colours: earlier windows from light to dark, and the union in another hue.  Dashes are
 * for chance. */
static void look(struct plot *p, const char *line, const char *window)
{
    static const struct rgb shade[] = {{.60, .79, .90}, {.26, .57, .78}, {.03, .25, .55}};
    struct plot_line *l = plot_line(p, line);
    if (!l)
        return;
    int i = window[0] >= '0' && window[0] <= '9' ? (window[0] - '0') % 3 : -1;
    l->look = (struct chart_look){.colour = i < 0 ? (struct rgb){.84, .37, 0} : shade[i],
                                  .width = i < 0 ? .5 : .4};
}

static void add_chance(struct plot *p, const struct view *v, int64_t r, const char *panel,
                       const char *line)
{
    char name[PLOT_NAME];
    snprintf(name, sizeof name, "%.60s %s", line, by_chance);
    plot_add(p, panel, name, table_real(v->t, v->p, r), table_real(v->t, v->expected, r), NAN, NAN);
    struct plot_line *l = plot_line(p, name), *of = plot_line(p, line);
    if (!l || !of)
        return;
    l->look = (struct chart_look){.colour = of->look.colour, .dash = .9, .width = .22};
    l->hidden = l->back = true;
}

static void add_row(struct plot *p, const struct view *v, int64_t r)
{
    char cell[24];
    const char *window = cell_text(v->t, v->window, r, cell);
    char line[PLOT_NAME];
    char panel[PLOT_NAME] = "";
    bool known = strcmp(window, "union") == 0;
    if (v->layers)
        snprintf(panel, sizeof panel, "layer %lld", (long long)table_int(v->t, v->k.layer, r));
    else if (v->heads)
        snprintf(panel, sizeof panel, "%.60s", table_str(v->t, v->k.head, r));
    int back = v->windows - (int)strtol(window, NULL, 10);
    snprintf(line, sizeof line, known ? "any of them" : "%d window%s earlier", back,
             back > 1 ? "s" : "");
    plot_add(p, panel, line, table_real(v->t, v->p, r), table_real(v->t, v->y, r),
             value_at(v->t, v->low, r), value_at(v->t, v->high, r));
    plot_documents(p, value_at(v->t, v->k.documents, r));
    look(p, line, window);
    if (!v->kappa)
        add_chance(p, v, r, panel, line);
}

static bool shown(const struct view *v, int64_t r)
{
    if (v->layers)
        return row_layer(&v->k, r);
    return v->heads ? row_head(&v->k, r) : row_pooled(&v->k, r);
}

static void add_rows(struct plot *p, const struct view *v)
{
    for (int64_t r = 0; r < table_rows(v->t); r++)
        if (shown(v, r))
            add_row(p, v, r);
    if (v->kappa || !p->n_series)
        return;
    plot_add(p, p->panel[0], by_chance, NAN, NAN, NAN, NAN); /* for the key */
    struct plot_line *l = plot_line(p, by_chance);
    if (l)
        l->look = (struct chart_look){.colour = {.4, .4, .4}, .dash = .9, .width = .22};
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    (void)d;
    const struct overlap_style *o = s->own;
    bool kappa = o->y == 1;
    struct view v = {t,
                     plot_rows_of(t),
                     o->by == BY_LAYER,
                     o->by == BY_HEAD,
                     kappa,
                     table_find(t, "window"),
                     table_find(t, "p"),
                     table_find(t, kappa ? "kappa" : "overlap"),
                     table_find(t, kappa ? "kappa_low" : "low"),
                     table_find(t, kappa ? "kappa_high" : "high"),
                     table_find(t, "expected")};
    const char *candidates = table_meta(t, "candidates");
    v.windows = windows_of(&v);
    p->xlabel = "selected tokens p (% with the largest scores)";
    p->ylabel = kappa ? "agreement beyond chance \xce\xba" : "overlap with the last window";
    p->x0 = 0;
    p->y0 = kappa ? NAN : 0;
    p->y1 = 1;
    p->level = kappa ? 0 : NAN;
    add_rows(p, &v);
    for (int i = 0; widest(&v) > 50 && i <= 5; i++)
        plot_tick(p, 20 * i);
    for (int i = 0; kappa && i < p->n_series; i++)
        for (int k = 0; k < p->series[i].data.n; k++)
            if (p->series[i].data.y[k] < -1)
                p->y0 = -1; /* kappa decreases without limit as p rises: points below are counted */
    char bands[48];
    const char *queries = table_meta(t, "queries");
    char heads[HEADS_TEXT];
    snprintf(p->note, sizeof p->note, "windows: %.20s queries each; candidates: %.60s; ",
             queries ? queries : "some", candidates ? candidates : "see table");
    size_t n = strlen(p->note);
    snprintf(p->note + n, sizeof p->note - n, "%s%s%s", plot_heads_text(&v.k, heads),
             v.low >= 0 ? "; " : "", v.low >= 0 ? bands_text(t, p, bands) : "");
    plot_note_run(p, t);
    return KVF_OK;
}

PLOT_FIGURE(fig_overlap, .name = "overlap", .table = "overlap",
            .summary = "overlap of windows by the fraction of tokens, and chance",
            .needs = "head:text layer window:either p overlap expected kappa",
            STYLE(struct overlap_style,
                  WORD_KEY(struct overlap_style, by, "all", "unit of a panel", "all", "head",
                           "layer"),
                  WORD_KEY(struct overlap_style, y, "overlap",
                           "the overlap, or the part of it beyond chance", "overlap", "kappa")));
