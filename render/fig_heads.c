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

enum { TOP = 3, BOTTOM = 2, KEY = 35, MAX_OTHER = 5, MAX_RULES = 32, LEFT = 27 };
static const double LINE = 3.8, BAR = 4.2;
static const struct rgb white = {1, 1, 1};

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

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    const struct heads_style *o = s->own;
    struct view v;
    if (o->head) {
        *w = 88;
        *h = 65;
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

/* Finds the score columns of row r, the largest score first and undefined ones last.  Returns their
 * number. */
static int sorted_scores(const struct table *t, int64_t r, int col[MAX_RULES])
{
    int n = 0;
    for (int k = 0; k < table_cols(t) && n < MAX_RULES; k++) {
        if (!is_score(t, k))
            continue;
        double v = table_real(t, k, r);
        int i = n++;
        for (; i > 0
               && (v > table_real(t, col[i - 1], r)
                   || (isfinite(v) && isnan(table_real(t, col[i - 1], r))));
             i--)
            col[i] = col[i - 1];
        col[i] = k;
    }
    return n;
}

static void score_bars(struct canvas *c, const struct table *t, int64_t r, struct axis_box *a,
                       double pitch)
{
    double y = a->y + pitch / 2, half = axis_x(a, .5), thick = fmin(2.6, .7 * pitch);
    char name[64], number[24];
    int col[MAX_RULES], n = sorted_scores(t, r, col);
    const double line[] = {half, a->y, half, a->y + a->h};
    canvas_dash(c, .8, .6);
    canvas_line(c, line, 2, 0.2, (struct rgb){.4, .4, .4});
    canvas_dash(c, 0, 0);
    for (int i = 0; i < n; i++) {
        double v = table_real(t, col[i], r), end = a->x;
        struct kind_identity k = rule_of(table_col_name(t, col[i]), name);
        if (isfinite(v)) {
            end = axis_x(a, fmin(1, fmax(0, v)));
            canvas_rect(c, a->x, y - thick / 2, end - a->x, thick, tint(k.fill, i ? .55 : 1));
            snprintf(number, sizeof number, "%.2f", v);
        } else {
            snprintf(number, sizeof number, "undefined");
        }
        canvas_text(c, a->x - 1.5, y, name, PT_TICK, ALIGN_RIGHT, ink, 0);
        double wide = canvas_text_width(c, number, PT_SMALL, 0);
        canvas_rect(c, end + .5, y - thick / 2, wide + 1, thick, white); /* covers the dashes */
        canvas_text(c, end + 1, y, number, PT_SMALL, ALIGN_LEFT, ink, 0);
        y += pitch;
    }
}

/* Writes the features that the rules used, in a few lines below the bars. */
static void features(struct canvas *c, const struct table *t, int64_t r, double y)
{
    static const char *const names[][2] = {{"window", "window of queries"},
                                           {"spread", "octaves of windows"},
                                           {"recent", "recency"},
                                           {"sink_mass", "mass on the first tokens"},
                                           {"entropy", "entropy"},
                                           {"number", "on numbers"},
                                           {"gist", "on stops"},
                                           {"filler", "on fillers"},
                                           {"prompt", "on the prompt"},
                                           {"last_use_sparsity", "sparsity of last uses"}};
    double x = 2;
    for (int k = 0; k < 10; k++) {
        char text[64];
        int col = numeric_column(t, names[k][0]);
        if (col < 0)
            continue;
        double v = table_real(t, col, r);
        snprintf(text, sizeof text, isnan(v) ? "%s \xe2\x80\x93" : "%s %.2f", names[k][1], v);
        minus_signs(text, sizeof text);
        double w = canvas_text_width(c, text, PT_SMALL, 0);
        if (x + w > canvas_width(c) - 2) {
            x = 2;
            y += 2.8;
        }
        canvas_text(c, x, y, text, PT_SMALL, ALIGN_LEFT, (struct rgb){.3, .3, .3}, 0);
        x += w + 3;
    }
}

static int evidence(struct canvas *c, const struct table *t, const char *head, struct kvf_diag *d)
{
    int64_t r = row_of(t, head);
    int bars = 0, score = numeric_column(t, "score");
    char text[128], cell[24];
    int err = canvas_room(c, "heads", 64, 42, d);
    if (err)
        return err;
    for (int col = 0; col < table_cols(t); col++)
        bars += is_score(t, col);
    if (r < 0 || !bars)
        return kvf_fail(d, KVF_E_ARG,
                        r < 0 ? "--style: table %s has no head '%s'"
                              : "--style: table %s has no scores for head '%s'",
                        table_name(t), head);
    struct axis_box a = {.x = LEFT,
                         .y = 7,
                         .w = canvas_width(c) - LEFT - 7,
                         .x1 = 1,
                         .h = fmin(bars * BAR, fmax(4, canvas_height(c) - 28)),
                         .xlabel = "score of the rule; a kind needs 0.5"};
    snprintf(text, sizeof text, "%s: %.40s", head, cell_text(t, table_find(t, "kind"), r, cell));
    if (score >= 0 && isfinite(table_real(t, score, r)))
        snprintf(text + strlen(text), 32, ", score %.2f", table_real(t, score, r));
    canvas_text(c, a.x + a.w / 2, 3.2, text, PT_LABEL, ALIGN_CENTER, ink, 0);
    score_bars(c, t, r, &a, a.h / bars);
    const double edge[] = {a.x, a.y, a.x, a.y + a.h, a.x + a.w, a.y + a.h};
    canvas_line(c, edge, 3, 0.18, ink);
    axis_ticks_x(c, &a);
    canvas_text(c, a.x + a.w / 2, a.y + a.h + 6, a.xlabel, PT_LABEL, ALIGN_CENTER, ink, 0);
    features(c, t, r, a.y + a.h + 10.5);
    return KVF_OK;
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
