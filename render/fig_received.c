/* fig_received.c - draws how many of the last queries use selected tokens (WG-KV, figure 3): a
 * panel per head, a line per token.  A query uses a token if it gives it more attention than
 * uniform attention over the text would, 1 / (t + 1).  A line begins once a quarter of the window
 * has seen the entry, and ends at the eviction.  --style show=attention draws the attention itself.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "render/figures.h"
#include "render/marks.h"
#include "render/plot.h"

enum { Y_AUTO, Y_LINEAR, Y_LOG };
enum { SHOW_USED, SHOW_ATTENTION, SHOW_CUMULATIVE };
struct received_style {
    int y;          /* Y_AUTO, ... */
    int show;       /* SHOW_USED, ... */
    int64_t window; /* steps */
};

enum { NAMED = 16 }; /* tokens with names; more are only coloured */

struct view {
    const struct table *t;
    struct plot_rows k;
    int token, text, step, y, seen;
    int64_t first, last; /* tokens */
    bool used;           /* draw the fraction of queries that use the token */
    double window;       /* steps */
    int64_t every;       /* steps from row to row */
    const char *map;
};

static void name_line(const struct view *v, int64_t r, char line[PLOT_NAME])
{
    long long token = table_int(v->t, v->token, r);
    if (v->text >= 0 && table_str(v->t, v->text, r)[0])
        snprintf(line, PLOT_NAME, "token %lld \xe2\x80\x9c%.60s\xe2\x80\x9d", token,
                 table_str(v->t, v->text, r));
    else
        snprintf(line, PLOT_NAME, "token %lld", token);
}

/* Adds a cross at height y, at the last query before the entry was evicted. */
static void mark_end(struct plot *p, const struct view *v, int64_t r, double y)
{
    char line[PLOT_NAME];
    bool next = r + 1 < table_rows(v->t)
                && table_int(v->t, v->token, r + 1) == table_int(v->t, v->token, r)
                && table_real(v->t, v->step, r + 1) > table_real(v->t, v->step, r);
    if (v->seen < 0 || !next || table_int(v->t, v->seen, r) != 1
        || table_int(v->t, v->seen, r + 1) != 0)
        return;
    name_line(v, r, line);
    plot_mark(p, table_str(v->t, v->k.head, r), line, table_real(v->t, v->step, r), y, true);
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

/* Returns true if a row is of the same token and head as the row before. */
static bool continues(const struct view *v, int64_t r)
{
    return r > 0 && table_int(v->t, v->token, r) == table_int(v->t, v->token, r - 1)
           && strcmp(table_str(v->t, v->k.head, r), table_str(v->t, v->k.head, r - 1)) == 0;
}

/* Returns true if the query of a row is later than the token and can see it. */
static bool counts(const struct view *v, int64_t r)
{
    return table_real(v->t, v->step, r) > table_real(v->t, v->token, r)
           && (v->seen < 0 || table_int(v->t, v->seen, r) != 0);
}

static bool uses(const struct view *v, int64_t r)
{
    return table_real(v->t, v->y, r) > 1 / (table_real(v->t, v->step, r) + 1);
}

/* The queries of the window that ends at a row. */
struct window {
    int64_t first;       /* row */
    double queries, use; /* that count; that use the token */
};

/* Moves the window to row r of the same line; `every` is the number of steps from row to row.
 * Returns the fraction of its queries that use the token, or NaN if the query does not see it or
 * the window has too few queries. */
static double slide(const struct view *v, struct window *w, int64_t r, double every)
{
    double now = table_real(v->t, v->step, r);
    for (; table_real(v->t, v->step, w->first) <= now - v->window; w->first++)
        if (counts(v, w->first)) {
            w->queries--;
            w->use -= uses(v, w->first);
        }
    if (!counts(v, r))
        return NAN;
    w->queries++;
    w->use += uses(v, r);
    return 4 * w->queries * every >= v->window ? w->use / w->queries : NAN;
}

static void add_rows(struct plot *p, const struct view *v)
{
    char line[PLOT_NAME];
    struct window w = {0, 0, 0};
    for (int64_t r = 0; r < table_rows(v->t); r++) {
        double x = table_real(v->t, v->step, r), y = table_real(v->t, v->y, r);
        bool begins = !continues(v, r);
        if (begins)
            w = (struct window){r, 0, 0};
        if (v->used)
            y = slide(v, &w, r, begins ? 1 : x - table_real(v->t, v->step, r - 1));
        name_line(v, r, line);
        plot_add(p, table_str(v->t, v->k.head, r), line, x, y, NAN, NAN);
        mark_end(p, v, r, y);
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
        p->line[i].look.width = v->used ? .4 : .22;
        p->line[i].look.dash = i < shapes ? 0 : p->line[i].look.dash;
        p->line[i].look.sign = ramp ? 0 : 1 + (int)shape[i % shapes];
        if (!ramp)
            continue;
        sscanf(p->line[i].name, "token %lld", &token);
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

/* Returns true if a query of a drawn head uses the token of a line. */
static bool any_use(const struct view *v, const char *line)
{
    long long token = -1;
    bool found = false;
    sscanf(line, "token %lld", &token);
    for (int64_t r = 0; !found && r < table_rows(v->t); r++)
        found = table_int(v->t, v->token, r) == token && counts(v, r) && uses(v, r);
    return found;
}

/* Adds the tokens that no query of any drawn head uses to the note.  Queries between the rows of
 * the table are not known. */
static void add_never(const struct view *v, struct plot *p)
{
    const char *begin = v->every > 1 ? "; not used by these queries: " : "; never used: ";
    for (int i = 0; v->used && !p->ramp_label && i < p->n_lines; i++) {
        if (any_use(v, p->line[i].name))
            continue;
        size_t n = strlen(p->note);
        snprintf(p->note + n, sizeof p->note - n, "%s%.40s", begin, p->line[i].name);
        begin = ", ";
    }
}

/* Sets the number of steps from row to row. */
static void find_every(struct view *v)
{
    v->every = 1;
    for (int64_t r = 1; v->every == 1 && r < table_rows(v->t); r++)
        if (continues(v, r))
            v->every = table_int(v->t, v->step, r) - table_int(v->t, v->step, r - 1);
}

/* Rejects a window of which no token has a quarter: the figure would have no line. */
static int check_window(const struct view *v, const struct plot *p, struct kvf_diag *d)
{
    int64_t most = 0, n = 0;
    for (int i = 0; i < p->n_series; i++)
        for (int k = 0; k < p->series[i].data.n; k++)
            if (isfinite(p->series[i].data.y[k]))
                return KVF_OK;
    for (int64_t r = 0; v->used && r < table_rows(v->t); r++) {
        n = (continues(v, r) ? n : 0) + counts(v, r);
        most = n > most ? n : most;
    }
    return most == 0 ? KVF_OK
                     : kvf_fail(d, KVF_E_ARG,
                                "--style: window=%.0f needs %.0f steps after a token, and the most "
                                "here are %lld; choose a smaller window",
                                v->window, ceil(v->window / 4), (long long)(most * v->every));
}

/* Writes which queries count, and how they use a token. */
static void write_note(const struct view *v, struct plot *p)
{
    char part[48] = "";
    if (v->every > 1)
        snprintf(part, sizeof part, ", one in %lld", (long long)v->every);
    if (v->used)
        snprintf(p->note, sizeof p->note,
                 "of the queries of the last %.0f steps%s; using: attention above uniform, 1 / (t "
                 "+ 1)",
                 v->window, part);
}

static int build(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d)
{
    const struct received_style *o = s->own;
    bool sum = o->show == SHOW_CUMULATIVE;
    struct view v = {.t = t,
                     .k = plot_rows_of(t),
                     .token = table_find(t, "token"),
                     .text = table_find(t, "text"),
                     .step = table_find(t, "step"),
                     .y = table_find(t, sum ? "cumulative" : "attention"),
                     .seen = table_find(t, "seen"),
                     .used = o->show == SHOW_USED,
                     .window = (double)o->window,
                     .map = s->cmap};
    if (v.y < 0)
        return kvf_fail(d, KVF_E_ARG,
                        "--style: show=cumulative needs the table made with "
                        "--cumulative");
    if (v.used && o->y == Y_LOG)
        return kvf_fail(d, KVF_E_ARG, "--style: y=log needs show=attention or show=cumulative");
    p->log_y = !v.used && o->y != Y_LINEAR;
    p->whole_x = true;
    p->xlabel = "query step t";
    p->ylabel = sum ? "attention received up to t" : "attention received";
    p->y0 = p->log_y ? NAN : 0;
    if (v.used) {
        p->ylabel = "fraction using the token";
        p->y0 = -.04; /* the frame covers no line at 0 or 1 */
        p->y1 = 1.04;
    }
    p->panel_h = 40;
    tokens_of(&v);
    find_every(&v);
    add_rows(p, &v);
    int err = check_window(&v, p, d);
    if (err)
        return err;
    looks(p, &v);
    write_note(&v, p);
    size_t n = strlen(p->note);
    if (p->n_marks)
        snprintf(p->note + n, sizeof p->note - n, "%scrosses: evicted", n ? "; " : "");
    add_never(&v, p);
    plot_note_run(p, t);
    plot_hide_empty(p);
    return KVF_OK;
}

PLOT_FIGURE(
    fig_received, .name = "received", .table = "received",
    .summary = "fraction of the last queries that use chosen tokens, or the attention they give",
    .needs = "head:text token step attention",
    STYLE(struct received_style,
          WORD_KEY(struct received_style, y, "auto",
                   "scale of the vertical axis; auto: log for attention", "auto", "linear", "log"),
          WORD_KEY(struct received_style, show, "used",
                   "fraction of the last queries that use the token, attention of each "
                   "query, or its sum up to t",
                   "used", "attention", "cumulative"),
          COUNT_KEY(struct received_style, window, 1, 1000000, "steps over which show=used counts",
                    .standard = "32")),
    .cmap = "viridis");
