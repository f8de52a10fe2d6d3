/* fig_heads.c - draws a map of head types, layers across and heads down, with a colour and a letter
 * per type, paler for lower scores.  It can also draw the evidence for one head. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/caption.h"
#include "render/figures.h"
#include "render/identity.h"
#include "render/kindmap.h"
#include "render/cells.h"
#include "render/note.h"

enum { TOP = 3, BOTTOM = 2, KEY = 35, MAX_OTHER = 5, MAX_RULES = 32, LEFT = 27, RIGHT = 12 };
enum { TITLE = 10, AXIS = 10, FEATURES = 5, NOTES = 3 }; /* mm, mm, lines, lines */
static const double LINE = 3.8, BAR = 4.2, SMALL_LINE = 2.8;

struct heads_style {
    const char *head; /* NULL: the map of all */
};

struct view {
    struct kind_cell *cell;
    int *kind; /* [n]: of each cell; KINDS_OF_HEADS + i: other types */
    int64_t n;
    const char *other[MAX_OTHER];
    int n_other;
    int64_t count[KINDS_OF_HEADS + MAX_OTHER];
    bool query;
};

static struct kind_identity kind_at(const struct view *v, int k)
{
    struct kind_identity x;
    if (k < KINDS_OF_HEADS)
        return identity_of_kind(k);
    x = (struct kind_identity){.name = v->other[k - KINDS_OF_HEADS], .fill = {.7, .7, .7}};
    x.sign[0] = (char)toupper((unsigned char)x.name[0]);
    return x;
}

static int kind_of(struct view *v, const char *name)
{
    int known = identity_find_kind(name);
    if (known >= 0)
        return known;
    for (int k = 0; k < v->n_other; k++)
        if (strcmp(v->other[k], name) == 0)
            return KINDS_OF_HEADS + k;
    if (v->n_other == MAX_OTHER)
        return KINDS_OF_HEADS - 1;
    v->other[v->n_other] = name;
    return KINDS_OF_HEADS + v->n_other++;
}

/* Returns the opacity of a cell.  A type needs a score of 0.5, which gives the palest cells. */
static double opacity(double score)
{
    return isnan(score) ? 1 : .4 + .6 * fmax(0, fmin(1, (score - .5) / .5));
}

static int read_view(const struct table *t, struct view *v)
{
    int layer = table_find(t, "layer"), index = table_find(t, "index");
    int name = table_find(t, "kind"), score = numeric_column(t, "score");
    size_t n = (size_t)table_rows(t);
    *v = (struct view){.n = 0};
    v->cell = MEM_NEW(struct kind_cell, n);
    v->kind = MEM_NEW(int, n);
    for (int64_t r = 0; v->cell && v->kind && r < (int64_t)n; r++) {
        struct kind_cell *k = &v->cell[v->n];
        *k = (struct kind_cell){.layer = table_int(t, layer, r), .index = table_int(t, index, r)};
        if (k->layer < 0 || k->index < 0)
            continue;
        int which = kind_of(v, table_str(t, name, r));
        struct kind_identity x = kind_at(v, which);
        double sure = score < 0 || which == KINDS_OF_HEADS - 2 ? 1
                                                               : opacity(table_real(t, score, r));
        k->fill = tint(x.fill, sure);
        memcpy(k->sign, x.sign, sizeof x.sign);
        v->count[which]++;
        v->kind[v->n++] = which;
    }
    char cell[24];
    v->query = !strchr(cell_text(t, table_find(t, "head"), 0, cell), 'K');
    return v->cell && v->kind ? KVF_OK : KVF_E_NOMEM;
}

static void free_view(struct view *v)
{
    mem_free_all(v->cell, v->kind);
}

static int key_lines(const struct view *v)
{
    int n = 0;
    for (int k = 0; k < KINDS_OF_HEADS + v->n_other; k++)
        n += v->count[k] > 0;
    return n;
}

static void key(struct canvas *c, const struct view *v, double x, double bottom, bool scores)
{
    char text[64];
    double y = TOP + 1.5;
    if (y + (key_lines(v) - 1 + scores) * LINE > canvas_height(c) - 1)
        canvas_cut(c);
    for (int k = 0; k < KINDS_OF_HEADS + v->n_other && y < bottom; k++) {
        struct kind_identity kind = kind_at(v, k);
        if (!v->count[k])
            continue;
        snprintf(text, sizeof text, "%.24s (%lld)", kind.name, (long long)v->count[k]);
        y = kindmap_key(c, x, y, kind.fill, kind.sign, text);
    }
    if (scores && y < bottom + LINE)
        canvas_text(c, x, y, "pale: score near 0.5", PT_SMALL, ALIGN_LEFT,
                    (struct rgb){.35, .35, .35}, 0);
}

/* ---- the evidence for one head */

static int64_t row_of(const struct table *t, const char *name)
{
    char cell[24];
    for (int64_t r = 0; r < table_rows(t); r++)
        if (strcmp(cell_text(t, table_find(t, "head"), r, cell), name) == 0)
            return r;
    return -1;
}

/* Returns the look of the type that a score column names, for example a-shape for
 * "score_a_shape". */
static struct kind_identity rule_of(const char *column, char name[64])
{
    snprintf(name, 64, "%s", column + strlen("score_"));
    for (char *p = name; *p; p++)
        *p = *p == '_' ? '-' : *p;
    int known = identity_find_kind(name);
    if (known >= 0)
        return identity_of_kind(known);
    return (struct kind_identity){.name = name, .fill = {.7, .7, .7}};
}

static int is_score(const struct table *t, int col)
{
    return strncmp(table_col_name(t, col), "score_", 6) == 0 && table_col_type(t, col) != TABLE_STR;
}

/* Finds the score columns of row r above 0, the largest first.  Returns their number. */
static int positive_scores(const struct table *t, int64_t r, int col[MAX_RULES])
{
    int n = 0;
    for (int k = 0; r >= 0 && k < table_cols(t) && n < MAX_RULES; k++) {
        double v = is_score(t, k) ? table_real(t, k, r) : NAN;
        if (!(v > 0))
            continue;
        int i = n++;
        for (; i > 0 && v > table_real(t, col[i - 1], r); i--)
            col[i] = col[i - 1];
        col[i] = k;
    }
    return n;
}

static void score_bars(struct canvas *c, const struct table *t, int64_t r, struct axis_box *a,
                       const int *col, int n)
{
    double half = axis_x(a, .5), pitch = a->h / fmax(n, 1), thick = fmin(2.6, .7 * pitch);
    char name[64], number[24];
    const double line[] = {half, a->y, half, a->y + a->h};
    for (int i = 0; i < n; i++) {
        double v = table_real(t, col[i], r), y = a->y + (i + .5) * pitch;
        struct kind_identity k = rule_of(table_col_name(t, col[i]), name);
        canvas_rect(c, a->x, y - thick / 2, axis_x(a, fmin(1, v)) - a->x, thick,
                    tint(k.fill, i ? .55 : 1));
        snprintf(number, sizeof number, "%.2f", v);
        canvas_text(c, a->x - 1.5, y, name, PT_TICK, ALIGN_RIGHT, ink, 0);
        canvas_text(c, canvas_width(c) - 2, y, number, PT_TICK, ALIGN_RIGHT, ink, 0);
    }
    canvas_dash(c, .8, .6);
    canvas_line(c, line, 2, 0.25, ink);
    canvas_dash(c, 0, 0);
    canvas_text(c, half, a->y - 1.8, "needed", PT_SMALL, ALIGN_CENTER, ink, 0);
    if (n == 0)
        canvas_text(c, a->x + 2, a->y + a->h / 2, "every rule: 0", PT_TICK, ALIGN_LEFT, quiet, 0);
}

/* Writes the features that the rules used in two columns, each with its value. */
static void features(struct canvas *c, const struct table *t, int64_t r, double y)
{
    static const char *const names[][2] = {{"sink_mass", "attention to the first 4 tokens"},
                                           {"recent", "recency (1: only recent tokens)"},
                                           {"window", "width of the window, tokens"},
                                           {"spread", "spread of windows, octaves"},
                                           {"entropy", "entropy (1: uniform attention)"},
                                           {"gist", "excess on punctuation, space"},
                                           {"number", "excess on numbers"},
                                           {"filler", "excess on function words"},
                                           {"prompt", "excess on the prompt"}};
    double wide = canvas_width(c) / 2 - 3;
    int n = 0;
    for (int k = 0; k < 9; k++) {
        char text[64];
        int col = numeric_column(t, names[k][0]);
        double v = col < 0 ? NAN : table_real(t, col, r);
        if (isnan(v))
            continue;
        double x = n < FEATURES ? 2 : wide + 4, at = y + n++ % FEATURES * SMALL_LINE;
        snprintf(text, sizeof text, "%.2f", v);
        minus_signs(text, sizeof text);
        canvas_text(c, x, at, names[k][1], PT_SMALL, ALIGN_LEFT, ink, 0);
        canvas_text(c, x + wide, at, text, PT_SMALL, ALIGN_RIGHT, ink, 0);
    }
}

/* Writes the model, the length of the text, and the rules without a bar. */
static void evidence_note(struct canvas *c, const struct table *t, int64_t r)
{
    char note[NOTE_TEXT], name[64];
    const char *model = table_meta(t, "model"), *tokens = table_meta(t, "T"), *before = "";
    size_t n = (size_t)snprintf(note, sizeof note, "%.60s%s%.12s%s", model ? model : "",
                                model && tokens ? "; n = " : "", tokens ? tokens : "",
                                tokens ? " tokens; " : "");
    n += (size_t)snprintf(note + n, sizeof note - n,
                          "excess: attention above the share of these tokens; no bar: ");
    size_t begin = n;
    for (int k = 0; k < table_cols(t) && n < sizeof note - 40; k++)
        if (is_score(t, k) && !(table_real(t, k, r) > 0)) {
            rule_of(table_col_name(t, k), name);
            n += (size_t)snprintf(note + n, sizeof note - n, "%s%.30s", before, name);
            before = ", ";
        }
    if (n == begin) /* every rule has a bar */
        *strstr(note, "; no bar") = 0;
    struct note at = {2, canvas_width(c) - 2, .pitch = SMALL_LINE, .most = NOTES};
    note_draw_up(c, &at, canvas_height(c) - 2, note);
}

static int evidence(struct canvas *c, const struct table *t, const char *head, struct kvf_diag *d)
{
    int64_t r = row_of(t, head);
    int rules = 0, col[MAX_RULES], bars = positive_scores(t, r, col);
    char text[128], cell[24];
    double rest = TITLE + AXIS + SMALL_LINE * (FEATURES + NOTES) + 1;
    int err = canvas_room(c, "heads", 76, rest + 2.5 * fmax(bars, 1), d);
    if (err)
        return err;
    for (int k = 0; k < table_cols(t); k++)
        rules += is_score(t, k);
    if (r < 0 || !rules)
        return kvf_fail(d, KVF_E_ARG,
                        r < 0 ? "--style: table %s has no head '%s'"
                              : "--style: table %s has no scores for head '%s'",
                        table_name(t), head);
    struct axis_box a = {.x = LEFT,
                         .y = TITLE,
                         .w = canvas_width(c) - LEFT - RIGHT,
                         .x1 = 1,
                         .h = fmin(fmax(bars, 1) * BAR, canvas_height(c) - rest),
                         .xlabel = "score of the rule"};
    snprintf(text, sizeof text, "%s: %.40s", head, cell_text(t, table_find(t, "kind"), r, cell));
    canvas_text(c, a.x + a.w / 2, 3.2, text, PT_LABEL, ALIGN_CENTER, ink, 0);
    score_bars(c, t, r, &a, col, bars);
    const double edge[] = {a.x, a.y, a.x, a.y + a.h, a.x + a.w, a.y + a.h};
    canvas_line(c, edge, 3, 0.18, ink);
    axis_ticks_x(c, &a);
    canvas_text(c, a.x + a.w / 2, a.y + a.h + 6, a.xlabel, PT_LABEL, ALIGN_CENTER, ink, 0);
    features(c, t, r, a.y + a.h + AXIS + 1.2);
    evidence_note(c, t, r);
    return KVF_OK;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    const struct heads_style *o = s->own;
    struct view v;
    if (o->head) {
        int col[MAX_RULES], bars = positive_scores(t, row_of(t, o->head), col);
        *w = 88;
        *h = TITLE + BAR * fmax(bars, 1) + AXIS + SMALL_LINE * (FEATURES + NOTES) + 2;
        return;
    }
    int lines = 4;
    *w = 88;
    *h = 40;
    if (read_view(t, &v) == KVF_OK) {
        struct kindmap m = {v.cell, v.n, v.query};
        kindmap_size(&m, 180 - KEY - 2, 200, w, h);
        lines = key_lines(&v) + 1;
    }
    free_view(&v);
    *w = fmax(88, *w + KEY + 2);
    *h = fmax(fmax(*h, 24), lines * LINE) + TOP + BOTTOM;
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    const struct heads_style *o = s->own;
    struct view v = {.n = 0};
    if (o->head)
        return evidence(c, t, o->head, d);
    int err = canvas_room(c, "heads", KEY + 32, TOP + BOTTOM + 24, d);
    if (!err)
        err = read_view(t, &v);
    if (!err) {
        struct kindmap m = {v.cell, v.n, v.query};
        double w = canvas_width(c) - KEY - 2, h = canvas_height(c) - TOP - BOTTOM;
        kindmap_draw(c, &m, 0, TOP, w, h);
        key(c, &v, w + 2.5, TOP + h, numeric_column(t, "score") >= 0);
    }
    free_view(&v);
    return err;
}

const struct figure fig_heads = {
    .name = "heads",
    .caption = caption_heads,
    .table = "heads",
    .summary = "layer x head map of the kinds of heads, or the evidence for one",
    .needs = "head:text layer index kind:text",
    STYLE(struct heads_style,
          TEXT_KEY(struct heads_style, head, "NAME", "scores of the rules for only this head",
                   .absent = "all of them")),
    .size = size,
    .draw = draw,
};
