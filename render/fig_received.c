/* fig_received.c - draws the attention that selected tokens receive from each later query (WG-KV,
 * figure 3): a panel per head, a line per token. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/marks.h"
#include "render/plot.h"

struct received_style {
    int y;    /* 0: linear, 1: log */
    int show; /* 0: attention, 1: cumulative */
};

enum { NAMED = 16 }; /* tokens with names; more are only coloured */

struct view {
    const struct table *t;
    struct plot_rows k;
    int token, text, step, y, seen;
    int64_t first, last; /* tokens */
    const char *map;
};

static void name_line(const struct view *v, int64_t r, char line[PLOT_NAME])
{
    long long token = table_int(v->t, v->token, r);
    if (v->text >= 0 && table_str(v->t, v->text, r)[0])
        snprintf(line, PLOT_NAME, "%lld \xe2\x80\x9c%.60s\xe2\x80\x9d", token,
                 table_str(v->t, v->text, r));
    else
        snprintf(line, PLOT_NAME, "token %lld", token);
}

/* Adds a cross at the last query before the entry was evicted. */
static void mark_end(struct plot *p, const struct view *v, int64_t r)
{
    char line[PLOT_NAME];
    bool next = r + 1 < table_rows(v->t)
                && table_int(v->t, v->token, r + 1) == table_int(v->t, v->token, r)
                && table_real(v->t, v->step, r + 1) > table_real(v->t, v->step, r);
    if (v->seen < 0 || !next || table_int(v->t, v->seen, r) != 1
        || table_int(v->t, v->seen, r + 1) != 0)
        return;
    name_line(v, r, line);
    plot_mark(p, table_str(v->t, v->k.head, r), line, table_real(v->t, v->step, r),
              table_real(v->t, v->y, r), true);
}

static void tokens_of(struct view *v)
{
    v->first = INT64_MAX;
    v->last = 0;
    for (int64_t r = 0; r < table_rows(v->t); r++) {
        int64_t i = table_int(v->t, v->token, r);
        v->first = i < v->first ? i : v->first;
        v->last = i > v->last ? i : v->last;
    }
}

static void add_rows(struct plot *p, const struct view *v)
{
    char line[PLOT_NAME];
    for (int64_t r = 0; r < table_rows(v->t); r++) {
        double x = table_real(v->t, v->step, r);
        name_line(v, r, line);
        plot_add(p, table_str(v->t, v->k.head, r), line, p->log_x ? x + 1 : x,
                 table_real(v->t, v->y, r), NAN, NAN);
        mark_end(p, v, r);
    }
}

/* Sets the looks of lines.  A few lines differ in colour and sign, because they are too rough for
 * dashes.  Many lines are coloured by token position. */
static void looks(struct plot *p, const struct view *v)
{
    static const enum mark shape[] = {MARK_DISC, MARK_SQUARE, MARK_TRIANGLE, MARK_DIAMOND,
                                      MARK_DOWN, MARK_RING,   MARK_FRAME};
    const int shapes = (int)(sizeof shape / sizeof *shape);
    bool ramp = p->n_lines > NAMED && v->last > v->first;
    for (int i = 0; i < p->n_lines; i++) {
        long long token = 0;
        p->line[i].look.width = .22;
        p->line[i].look.dash = i < shapes ? 0 : p->line[i].look.dash;
        p->line[i].look.sign = ramp ? 0 : 1 + (int)shape[i % shapes];
        if (!ramp)
            continue;
        if (sscanf(p->line[i].name, "token %lld", &token) != 1)
            sscanf(p->line[i].name, "%lld", &token);
        p->line[i].hidden = true;
        p->line[i].look.colour = palette_at(v->map, (double)(token - v->first)
                                                        / (double)(v->last - v->first));
    }
    if (ramp) {
        p->ramp_label = "token position";
        p->ramp_lo = (double)v->first;
        p->ramp_hi = (double)v->last;
    }
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    const struct received_style *o = s->own;
    bool sum = o->show == 1;
    struct view v = {.t = t,
                     .k = plot_rows_of(t),
                     .token = table_find(t, "token"),
                     .text = table_find(t, "text"),
                     .step = table_find(t, "step"),
                     .y = table_find(t, sum ? "cumulative" : "attention"),
                     .seen = table_find(t, "seen"),
                     .map = s->cmap};
    if (v.y < 0)
        return kvf_fail(d, KVF_E_ARG,
                        "--style: show=cumulative needs the table made with "
                        "--cumulative");
    p->log_y = o->y == 1;
    p->whole_x = true;
    p->xlabel = "query step t";
    p->ylabel = sum ? "attention received up to t" : "attention received";
    p->y0 = p->log_y ? NAN : 0;
    p->panel_h = 40;
    tokens_of(&v);
    add_rows(p, &v);
    looks(p, &v);
    snprintf(p->note, sizeof p->note, "%s", p->n_marks ? "crosses: evicted after this query" : "");
    return KVF_OK;
}

PLOT_FIGURE(fig_received, .name = "received", .table = "received",
            .summary = "attention that chosen tokens receive from each later query",
            .needs = "head:text token step attention",
            STYLE(struct received_style,
                  WORD_KEY(struct received_style, y, "log", "quantity on the vertical axis",
                           "linear", "log"),
                  WORD_KEY(struct received_style, show, "attention",
                           "of each query, or summed up to it", "attention", "cumulative")),
            .cmap = "viridis");
