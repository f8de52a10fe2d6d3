/* fig_compare.c - compares the heads of two runs: the matrix of distances with the best assignment
 * marked, and the distances of matched pairs against all others. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "render/caption.h"
#include "render/chart.h"
#include "render/figures.h"
#include "render/marks.h"
#include "render/cells.h"
#include "render/note.h"

enum {
    LEFT = 13,
    TOP = 4,
    BOTTOM = 17,
    NOTES = 2,
    BAR = 18,
    RIGHT = 3,
    Y_ROOM = 12,
    MAX_SIDE = 16384,
    CELLS_OF_ANY = 1 << 24,
    SINGLE_CELLS = 64 * 64 /* more pairs of heads are averaged by pairs of layers */
};
static const double SIDE = 72, PANEL = 56, NAME = 36; /* mm; minimum side for the run's name */
static const struct rgb mark_ink = {.84, .1, .16};    /* not a method's colour */

/* The heads of a run along a side, by layer.  Each layer has as many places as the largest one. */
struct side {
    int layer, index; /* columns */
    int64_t layer0, layers, heads;
};

struct compare_style {
    const char *pair; /* "A-B"; NULL: the first */
};

struct pairs {
    const struct table *t;
    struct side a, b;
    int64_t run_a, run_b, n; /* the shown pair of runs, and its rows */
    int n_pairs;             /* pairs of runs in the table; 2: two or more */
    int distance, matched;
};

static bool chosen(const struct pairs *p, int64_t r)
{
    const struct table *t = p->t;
    return table_row_int(t, r, "a") == p->run_a && table_row_int(t, r, "b") == p->run_b;
}

static bool is_match(const struct pairs *p, int64_t r)
{
    return table_int(p->t, p->matched, r) == 1;
}

static void extend(const struct pairs *p, struct side *s)
{
    int64_t last = -1;
    s->layer0 = INT64_MAX;
    for (int64_t r = 0; r < table_rows(p->t); r++) {
        if (!chosen(p, r))
            continue;
        int64_t layer = table_int(p->t, s->layer, r), index = table_int(p->t, s->index, r);
        s->layer0 = layer < s->layer0 ? layer : s->layer0;
        last = layer > last ? layer : last;
        s->heads = index >= s->heads ? index + 1 : s->heads;
    }
    s->layers = last < 0 ? 0 : last - s->layer0 + 1;
}

static struct pairs columns_of(const struct table *t)
{
    struct pairs p = {.t = t,
                      .a = {.layer = table_find(t, "layer_a"), .index = table_find(t, "index_a")},
                      .b = {.layer = table_find(t, "layer_b"), .index = table_find(t, "index_b")},
                      .distance = table_find(t, "distance"),
                      .matched = numeric_column(t, "matched")};
    return p;
}

static int64_t length(const struct side *s)
{
    return s->layers * s->heads;
}

static int read_pairs(const struct table *t, const struct figure_style *s, struct pairs *p,
                      struct kvf_diag *d)
{
    const struct compare_style *o = s->own;
    long long a = 0, b = 0;
    *p = columns_of(t);
    if (p->matched < 0)
        return kvf_fail(d, KVF_E_ARG,
                        "matches only have no picture; leave --match out to draw all distances "
                        "with the matches, or write the table as .tsv, .csv, .json, .npz or "
                        ".sqlite");
    if (o->pair && sscanf(o->pair, "%lld-%lld", &a, &b) != 2)
        return kvf_fail(d, KVF_E_ARG, "--style: pair=A-B names two runs by their numbers, not '%s'",
                        o->pair);
    p->run_a = a ? a : table_row_int(t, 0, "a");
    p->run_b = a ? b : table_row_int(t, 0, "b");
    p->n_pairs = 1;
    for (int64_t r = 0; r < table_rows(t); r++) {
        p->n += chosen(p, r);
        p->n_pairs = chosen(p, r) ? p->n_pairs : 2;
    }
    if (p->n == 0)
        return kvf_fail(d, KVF_E_ARG, "--style: the table has no pair %lld-%lld",
                        (long long)p->run_a, (long long)p->run_b);
    extend(p, &p->a);
    extend(p, &p->b);
    const struct side *side[] = {&p->a, &p->b};
    for (int k = 0; k < 2; k++)
        if (side[k]->layers < 1 || side[k]->heads < 1 || side[k]->layers > MAX_SIDE
            || side[k]->heads > MAX_SIDE / side[k]->layers)
            return kvf_fail(d, KVF_E_ARG, "figure compare: heads from 1 to %d a run", MAX_SIDE);
    int64_t cells = length(&p->a) * length(&p->b);
    if (cells > CELLS_OF_ANY && cells > table_rows(p->t))
        return kvf_fail(d, KVF_E_LIMIT,
                        "figure compare: %lld pairs of heads in a table of %lld rows; choose fewer "
                        "heads with --head",
                        (long long)cells, (long long)table_rows(p->t));
    return KVF_OK;
}

static int64_t place(const struct pairs *p, const struct side *s, int64_t r)
{
    return (table_int(p->t, s->layer, r) - s->layer0) * s->heads + table_int(p->t, s->index, r);
}

/* Computes the sides of the matrix in mm.  The longer run fills the space; a short one keeps enough
 * for its numbers. */
static void sides(const struct pairs *p, double room_w, double room_h, double *w, double *h)
{
    double cell = fmin(room_w / (double)length(&p->b), room_h / (double)length(&p->a));
    *w = fmin(room_w, fmax(18, cell * (double)length(&p->b)));
    *h = fmin(room_h, fmax(18, cell * (double)length(&p->a)));
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct pairs p;
    struct kvf_diag unused;
    double mw = SIDE, mh = SIDE;
    if (read_pairs(t, s, &p, &unused) == KVF_OK)
        sides(&p, SIDE, SIDE, &mw, &mh);
    *w = LEFT + mw + BAR + Y_ROOM + PANEL + RIGHT;
    *h = TOP + BOTTOM + fmax(44, mh);
}

/* ---- the matrix */

static struct colours colours_of(const struct pairs *p, const struct figure_style *s)
{
    double lo = INFINITY, hi = -INFINITY;
    for (int64_t r = 0; r < table_rows(p->t); r++) {
        double v = table_real(p->t, p->distance, r);
        if (chosen(p, r) && isfinite(v)) {
            lo = v < lo ? v : lo;
            hi = v > hi ? v : hi;
        }
    }
    return colours_make(s, fmin(lo, 0), hi);
}

/* Returns true if the matrix shows pairs of layers, because distances of many single heads are hard
 * to read. */
static bool by_layers(const struct pairs *p)
{
    return p->a.heads * p->b.heads > 1 && length(&p->a) * length(&p->b) > SINGLE_CELLS;
}

/* Draws the mean distance over the heads of each pair of layers.  *k receives the colours of the
 * means. */
static int raster_of_layers(struct canvas *c, const struct pairs *p, const struct axis_box *a,
                            const struct figure_style *s, struct colours *k)
{
    int64_t n = p->a.layers * p->b.layers;
    double *sum = MEM_NEW(double, (size_t)n), *count = MEM_NEW(double, (size_t)n);
    uint32_t *argb = MEM_NEW(uint32_t, (size_t)n);
    double lo = INFINITY, hi = -INFINITY;
    int err = sum && count && argb ? KVF_OK : KVF_E_NOMEM;
    for (int64_t r = 0; !err && r < table_rows(p->t); r++) {
        double v = table_real(p->t, p->distance, r);
        if (!chosen(p, r) || !isfinite(v))
            continue;
        int64_t at = place(p, &p->a, r) / p->a.heads * p->b.layers
                     + place(p, &p->b, r) / p->b.heads;
        sum[at] += v;
        count[at]++;
    }
    for (int64_t i = 0; !err && i < n; i++) {
        sum[i] = count[i] > 0 ? sum[i] / count[i] : NAN;
        lo = fmin(lo, sum[i]);
        hi = fmax(hi, sum[i]);
    }
    *k = colours_make(s, lo, hi);
    for (int64_t i = 0; !err && i < n; i++)
        argb[i] = palette_argb(k->map, colours_at(k, sum[i]));
    if (!err)
        canvas_image(c, a->x, a->y, a->w, a->h, argb, (int)p->b.layers, (int)p->a.layers);
    mem_free_all(sum, count, argb);
    return err;
}

static int raster(struct canvas *c, const struct pairs *p, const struct axis_box *a,
                  struct colours *k)
{
    int64_t rows = length(&p->a), columns = length(&p->b);
    uint32_t *argb = mem_alloc((size_t)rows * (size_t)columns, sizeof *argb);
    if (!argb)
        return KVF_E_NOMEM;
    for (int64_t i = 0; i < rows * columns; i++)
        argb[i] = palette_argb(k->map, NAN);
    for (int64_t r = 0; r < table_rows(p->t); r++)
        if (chosen(p, r))
            argb[place(p, &p->a, r) * columns + place(p, &p->b, r)] = palette_argb(
                k->map, colours_at(k, table_real(p->t, p->distance, r)));
    canvas_image(c, a->x, a->y, a->w, a->h, argb, (int)columns, (int)rows);
    mem_free(argb);
    return KVF_OK;
}

/* Returns true if a row compares a head with itself, in runs of equal shape. */
static bool same_head(const struct pairs *p, int64_t r)
{
    return p->a.layers == p->b.layers && p->a.heads == p->b.heads
           && place(p, &p->a, r) == place(p, &p->b, r);
}

static void marks(struct canvas *c, const struct pairs *p, const struct axis_box *a)
{
    double cell = a->w / (double)length(&p->b), dot = fmax(.6, fmin(1.6, cell));
    for (int64_t r = 0; r < table_rows(p->t); r++) {
        if (!chosen(p, r) || !is_match(p, r))
            continue;
        double x = axis_x(a, (double)place(p, &p->b, r) + .5);
        double y = axis_y(a, (double)place(p, &p->a, r) + .5);
        bool same = same_head(p, r);
        mark_draw(c, same ? MARK_SQUARE : MARK_DISC, x, y, dot + (dot > 1 ? .3 : .15),
                  same ? ink : (struct rgb){1, 1, 1});
        mark_draw(c, same ? MARK_SQUARE : MARK_DISC, x, y, dot,
                  same ? (struct rgb){1, 1, 1} : mark_ink);
    }
}

static void layer_ticks(struct canvas *c, const struct side *s, const struct axis_box *a, bool down)
{
    static const int64_t steps[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
    double mm = (down ? a->h : a->w) / (double)s->layers;
    int64_t every = 1;
    for (int i = 0; i < 10 && mm * (double)every < (down ? 4 : 5.5); i++)
        every = steps[i];
    for (int64_t k = (every - s->layer0 % every) % every; k < s->layers; k += every) {
        char text[24];
        double at = ((double)k + .5) * mm, edge = (double)k * mm;
        double x = down ? a->x : a->x + edge, y = down ? a->y + edge : a->y + a->h;
        const double xy[] = {x, y, x - (down ? .9 : 0), y + (down ? 0 : .9)};
        snprintf(text, sizeof text, "%lld", (long long)(s->layer0 + k));
        canvas_line(c, xy, 2, .18, ink);
        canvas_text(c, down ? a->x - 1.5 : a->x + at, down ? a->y + at : a->y + a->h + 2.5, text,
                    PT_TICK, down ? ALIGN_RIGHT : ALIGN_CENTER, ink, 0);
    }
}

/* Returns the name of a run without the words that both runs have in front, for example the model;
 * NULL if the table does not name them or both names are equal. */
static const char *run_name(const struct pairs *p, int64_t run)
{
    static const char *const keys[] = {"group", "trace"};
    char key[32];
    for (int k = 0; k < 2; k++) {
        snprintf(key, sizeof key, "%s_%lld", keys[k], (long long)p->run_a);
        const char *a = table_meta(p->t, key);
        snprintf(key, sizeof key, "%s_%lld", keys[k], (long long)p->run_b);
        const char *b = table_meta(p->t, key);
        if (!a || !b || strcmp(a, b) == 0)
            continue;
        size_t same = 0;
        for (size_t i = 0; a[i] && a[i] == b[i]; i++)
            same = a[i] == ' ' && i && a[i - 1] == ',' ? i + 1 : same;
        return (run == p->run_a ? a : b) + same;
    }
    return NULL;
}

/* Returns true if the runs are of several models, whose names the note has. */
static bool several_models(const struct table *t)
{
    return !table_meta(t, "model") && table_meta(t, "differ");
}

/* Writes the name of an axis of the matrix: the number of a run and its name.  A name without room
 * is left to the note, if that has it. */
static void side_name(struct canvas *c, const struct pairs *p, int64_t run, double limit,
                      char out[96])
{
    char full[160];
    const char *name = run_name(p, run);
    if (name) {
        snprintf(full, sizeof full, "heads of run %lld (%.100s), by layer", (long long)run, name);
        if (canvas_text_width(c, full, PT_LABEL, 0) > limit)
            snprintf(full, sizeof full, "run %lld (%.120s)", (long long)run, name);
        if (several_models(p->t) && canvas_text_width(c, full, PT_LABEL, 0) > limit)
            snprintf(full, sizeof full, "run %lld", (long long)run);
        snprintf(out, 96, "%s", text_fit(c, full, PT_LABEL, limit, full, sizeof full));
    } else {
        snprintf(out, 96, limit < NAME ? "run %lld" : "heads of run %lld, by layer",
                 (long long)run);
    }
}

static int matrix(struct canvas *c, const struct pairs *p, const struct axis_box *a,
                  const struct figure_style *s)
{
    struct colours k;
    char text[96];
    bool layers = by_layers(p);
    int err = layers ? raster_of_layers(c, p, a, s, &k) : KVF_OK;
    if (!layers) {
        k = colours_of(p, s);
        err = raster(c, p, a, &k);
    }
    canvas_clip(c, a->x, a->y, a->w, a->h);
    if (!err)
        marks(c, p, a);
    canvas_unclip(c);
    canvas_frame(c, a->x, a->y, a->w, a->h, .18, ink);
    layer_ticks(c, &p->b, a, false);
    layer_ticks(c, &p->a, a, true);
    side_name(c, p, p->run_b, a->w, text);
    canvas_text(c, a->x + a->w / 2, a->y + a->h + 6, text, PT_LABEL, ALIGN_CENTER, ink, 0);
    side_name(c, p, p->run_a, a->h, text);
    canvas_text(c, a->x - 9, a->y + a->h / 2, text, PT_LABEL, ALIGN_CENTER, ink, 1);
    colours_bar(c, &k, a->x + a->w + 2.5, a->y, a->h,
                layers ? "mean distance of two layers" : "distance");
    return err;
}

/* ---- the panel next to the matrix */

/* Draws the cumulative distribution of v[0..n) over the x axis.  It sorts v. */
static void draw_distribution(struct canvas *c, const struct axis_box *a, double *v, size_t n,
                              struct rgb colour, double width, double dash)
{
    double xy[2 * 201];
    size_t k = 0;
    qsort(v, n, sizeof *v, order_double);
    for (int i = 0; i <= 200; i++) {
        double x = a->x0 + (a->x1 - a->x0) * i / 200;
        while (k < n && v[k] <= x)
            k++;
        xy[2 * i] = axis_x(a, x);
        xy[2 * i + 1] = axis_y(a, n ? (double)k / (double)n : NAN);
    }
    canvas_dash(c, dash, .7);
    canvas_line(c, xy, 201, width, colour);
    canvas_dash(c, 0, 0);
}

static int shares(struct canvas *c, const struct pairs *p, const struct axis_box *a)
{
    double *v[2] = {MEM_NEW(double, (size_t)p->n), MEM_NEW(double, (size_t)p->n)};
    size_t n[2] = {0, 0};
    for (int64_t r = 0; v[0] && v[1] && r < table_rows(p->t); r++) {
        double far = table_real(p->t, p->distance, r);
        bool match = is_match(p, r);
        if (chosen(p, r) && isfinite(far))
            v[match][n[match]++] = far;
    }
    int err = v[0] && v[1] ? KVF_OK : KVF_E_NOMEM;
    if (!err) {
        draw_distribution(c, a, v[0], n[0], (struct rgb){.45, .45, .45}, .35, 1.3);
        draw_distribution(c, a, v[1], n[1], mark_ink, .5, 0);
    }
    mem_free_all(v[0], v[1]);
    return err;
}

static double key_line(struct canvas *c, double x, double y, struct rgb colour, double dash,
                       const char *text)
{
    const double xy[] = {x, y, x + 5, y};
    canvas_dash(c, dash, .7);
    canvas_line(c, xy, 2, .4, colour);
    canvas_dash(c, 0, 0);
    canvas_text(c, x + 6, y, text, PT_SMALL, ALIGN_LEFT, ink, 0);
    return x + 9 + canvas_text_width(c, text, PT_SMALL, 0);
}

static int panel(struct canvas *c, const struct pairs *p, struct axis_box *a)
{
    struct colours k = colours_of(p, &(struct figure_style){.vmin = NAN, .vmax = NAN});
    int err = KVF_OK;
    a->x1 = k.hi * 1.03;
    a->y1 = 1;
    a->xlabel = "distance";
    a->ylabel = "fraction of pairs up to this distance";
    err = shares(c, p, a);
    axis_draw(c, a);
    int64_t n = 0;
    char text[48];
    for (int64_t r = 0; r < table_rows(p->t); r++)
        n += chosen(p, r) && is_match(p, r);
    snprintf(text, sizeof text, "matched (%lld)", (long long)n);
    double y = a->y + a->h + 9.8, x = key_line(c, a->x - 2, y, mark_ink, 0, text);
    snprintf(text, sizeof text, "all others (%lld)", (long long)(p->n - n));
    key_line(c, x, y, (struct rgb){.45, .45, .45}, 1.3, text);
    return err;
}

/* A mark of the key; an open one has a rim. */
struct sign {
    enum mark mark;
    struct rgb colour;
    bool open;
};

/* Draws a mark (NULL: none) and its text.  Returns the x after them. */
static double key_mark(struct canvas *c, double x, double y, const struct sign *s, const char *text)
{
    if (s && s->open)
        mark_draw(c, s->mark, x + .8, y, 1.7, ink);
    if (s)
        mark_draw(c, s->mark, x + .8, y, 1.4, s->colour);
    x += s ? 2.2 : 0;
    canvas_text(c, x, y, text, PT_SMALL, ALIGN_LEFT, (struct rgb){.35, .35, .35}, 0);
    return x + 1.6 + canvas_text_width(c, text, PT_SMALL, 0);
}

/* Draws the meaning of the marks and the numbers of matches below the matrix. */
static void note(struct canvas *c, const struct pairs *p, double x, double y)
{
    int64_t n = 0, same = 0;
    char text[64];
    for (int64_t r = 0; r < table_rows(p->t); r++)
        if (chosen(p, r) && is_match(p, r)) {
            n++;
            same += same_head(p, r);
        }
    bool equal = p->a.layers == p->b.layers && p->a.heads == p->b.heads;
    x = key_mark(c, fmax(1, x), y, NULL, "best assignment:");
    snprintf(text, sizeof text, "a head and itself (%lld)", (long long)same);
    if (equal)
        x = key_mark(c, x, y, &(struct sign){MARK_SQUARE, {1, 1, 1}, true}, text);
    snprintf(text, sizeof text, "%s (%lld)", equal ? "another head" : "pairs",
             (long long)(n - same));
    key_mark(c, x, y, &(struct sign){MARK_DISC, mark_ink, false}, text);
}

/* Writes the model of the runs, or the names of runs of several models, and the definition of the
 * distance, below all. */
static void definition(struct canvas *c, const struct pairs *p)
{
    const struct table *t = p->t;
    const char *model = table_meta(t, "model"), *by = table_meta(t, "by");
    const char *a = run_name(p, p->run_a), *b = run_name(p, p->run_b);
    char text[NOTE_TEXT];
    int n = snprintf(text, sizeof text, "%.60s", model ? model : "");
    if (several_models(t) && a && b)
        n = snprintf(text, sizeof text, "run %lld: %.100s; run %lld: %.100s", (long long)p->run_a,
                     a, (long long)p->run_b, b);
    if (by && strcmp(by, "signature") == 0)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%sdistance: root mean square difference of the features of two heads",
                      n ? "; " : "");
    else if (by && strcmp(by, "tokens") == 0)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%sdistance: 1 - rank correlation over the tokens", n ? "; " : "");
    struct note at = {2, canvas_width(c) - 2, canvas_width(c) / 2, .pitch = 2.6, .most = NOTES};
    note_draw_up(c, &at, canvas_height(c) - 1.8, text);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct pairs p;
    int err = read_pairs(t, s, &p, d);
    if (!err)
        err = canvas_room(c, "compare", LEFT + BAR + Y_ROOM + RIGHT + 70, TOP + BOTTOM + 40, d);
    if (err)
        return err;
    double room = canvas_width(c) - LEFT - BAR - Y_ROOM - RIGHT;
    double h = canvas_height(c) - TOP - BOTTOM;
    struct axis_box a = {
        .x = LEFT, .y = TOP, .x1 = (double)length(&p.b), .y0 = (double)length(&p.a)};
    sides(&p, room * .57, h, &a.w, &a.h);
    struct axis_box b = {.x = a.x + a.w + BAR + Y_ROOM, .y = TOP, .h = fmin(h, fmax(a.h, 44))};
    b.w = canvas_width(c) - b.x - RIGHT;
    err = matrix(c, &p, &a, s);
    if (err)
        return err;
    err = panel(c, &p, &b);
    note(c, &p, a.x - 6, a.y + a.h + 9.8);
    definition(c, &p);
    return err;
}

const struct figure fig_compare = {
    .name = "compare",
    .caption = caption_compare,
    .table = "compare",
    .summary = "distances of the heads of two runs with the best assignment",
    .needs = "a b distance layer_a index_a layer_b index_b",
    .cmap = "viridis",
    STYLE(struct compare_style, TEXT_KEY(struct compare_style, pair, "A-B",
                                         "two runs by their numbers", .absent = "the first")),
    .size = size,
    .draw = draw,
};
