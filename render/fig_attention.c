/* fig_attention.c - attention maps: queries down, entries across, one map per query head. Hatched
 * cells are entries that were not in the cache at the query. Cells later than their query are
 * white. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "render/caption.h"
#include "render/cells.h"
#include "render/clamp.h"
#include "render/figures.h"
#include "render/marks.h"

enum { SCALE_LOG, SCALE_LINEAR };
enum { LABELS_AUTO, LABELS_TOKENS, LABELS_NUMBERS };
enum { MOST_MAPS = 36, MOST_PIXELS = 4000 };
enum { SIDE = 84, WIDE = 180 }; /* mm; of a single map, and of several with their margins */
enum { TOP = 6, RIGHT = 21, BOTTOM = 15, GAP_X = 5, GAP_Y = 6, NUMBERS = 13, WORDS = 20 }; /* mm */
static const double WORD_PITCH = 2.1;                     /* mm between the words of an axis */
static const double HATCH_APART = 0.9, HATCH_WIDTH = 0.2; /* mm */

struct attention_style {
    int scale, labels;
};

/* A map: the boxes of a head in a trace, and its cells in one array. */
struct map {
    int64_t row0, row1;     /* rows of the table */
    int64_t rows, columns;  /* boxes down and across */
    double q0, q1, k0, k1;  /* queries [q0, q1), entries [k0, k1) */
    double *weight, *cache; /* [rows][columns]; weight NaN: later than the query */
};

/* The columns of the table. */
struct columns {
    const struct table *t;
    int head, trace, query, query_end, token, token_end, attention, cached, query_text, text;
};

/* The arrangement of the maps. */
struct plan {
    int64_t n, cols, rows;
    bool words; /* the axes have the texts of tokens */
    double left, below, side, tall, aspect;
};

static struct columns columns_of(const struct table *t)
{
    return (struct columns){.t = t,
                            .head = table_find(t, "head"),
                            .trace = table_find(t, "trace"),
                            .query = table_find(t, "query"),
                            .query_end = table_find(t, "query_end"),
                            .token = table_find(t, "token"),
                            .token_end = table_find(t, "token_end"),
                            .attention = table_find(t, "attention"),
                            .cached = table_find(t, "cached"),
                            .query_text = table_find(t, "query_text"),
                            .text = table_find(t, "text")};
}

/* ---- the maps of a table */

static bool same_map(const struct columns *k, int64_t a, int64_t b)
{
    char x[24], y[24];
    return strcmp(table_str(k->t, k->head, a), table_str(k->t, k->head, b)) == 0
           && (k->trace < 0
               || strcmp(cell_text(k->t, k->trace, a, x), cell_text(k->t, k->trace, b, y)) == 0);
}

/* Finds the map that begins at row r: its rows, and its number of boxes down and across. */
static struct map map_at(const struct columns *k, int64_t r)
{
    struct map m = {.row0 = r, .row1 = r};
    int64_t n = table_rows(k->t), across = 0;
    for (; m.row1 < n && same_map(k, r, m.row1); m.row1++) {
        bool first = m.row1 == r
                     || table_int(k->t, k->query, m.row1) != table_int(k->t, k->query, m.row1 - 1);
        m.rows += first;
        across = first ? 1 : across + 1;
        m.columns = across > m.columns ? across : m.columns;
    }
    m.q0 = table_real(k->t, k->query, r);
    m.q1 = table_real(k->t, k->query_end, m.row1 - 1);
    m.k0 = table_real(k->t, k->token, r);
    m.k1 = table_real(k->t, k->token_end, m.row1 - 1);
    return m;
}

static int map_cells(const struct columns *k, struct map *m)
{
    size_t n = (size_t)m->rows * (size_t)m->columns;
    int64_t row = -1, column = 0;
    m->weight = MEM_NEW(double, n);
    m->cache = MEM_NEW(double, n);
    if (!m->weight || !m->cache)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        m->weight[i] = NAN;
    for (int64_t r = m->row0; r < m->row1; r++) {
        bool first = r == m->row0
                     || table_int(k->t, k->query, r) != table_int(k->t, k->query, r - 1);
        row += first;
        column = first ? 0 : column + 1;
        m->weight[row * m->columns + column] = table_real(k->t, k->attention, r);
        m->cache[row * m->columns + column] = table_real(k->t, k->cached, r);
    }
    return KVF_OK;
}

/* Returns true if the figure shows one map whose boxes have texts, and there is space for them on
 * axes of `side` mm. */
static bool words_wanted(const struct columns *k, const struct map *m, const struct figure_style *s,
                         double side)
{
    const struct attention_style *o = s->own;
    int64_t most = m->rows > m->columns ? m->rows : m->columns;
    bool texts = m->row1 == table_rows(k->t) && k->text >= 0 && k->query_text >= 0
                 && *table_str(k->t, k->text, m->row0);
    return texts && o->labels != LABELS_NUMBERS
           && (side / (double)most >= WORD_PITCH || o->labels == LABELS_TOKENS);
}

/* Counts the maps of a table and finds the largest height over width. */
static struct plan plan_of(const struct columns *k, const struct figure_style *s)
{
    struct plan p = {.aspect = 0.35, .left = NUMBERS, .below = BOTTOM};
    double side = s->width_mm > 0 ? s->width_mm - WORDS - RIGHT : SIDE;
    for (int64_t r = 0; r < table_rows(k->t); p.n++) {
        struct map m = map_at(k, r);
        p.aspect = fmax(p.aspect, fmin((m.q1 - m.q0) / (m.k1 - m.k0), 3));
        p.words = words_wanted(k, &m, s, side);
        r = m.row1;
    }
    p.cols = p.n <= 3 ? p.n : (int64_t)ceil(sqrt((double)p.n));
    p.rows = (p.n + p.cols - 1) / p.cols;
    p.left = p.words ? WORDS : NUMBERS;
    p.below = p.words ? WORDS + 5 : BOTTOM;
    return p;
}

static void fit(struct plan *p, double width, double height)
{
    double x = width - p->left - RIGHT - (double)(p->cols - 1) * GAP_X;
    double y = height - TOP - p->below - (double)(p->rows - 1) * GAP_Y;
    p->side = fmin(x / (double)p->cols, y / ((double)p->rows * p->aspect));
    p->tall = p->side * p->aspect;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct columns k = columns_of(t);
    struct plan p = plan_of(&k, s);
    double room = WIDE - p.left - RIGHT - (double)(p.cols - 1) * GAP_X;
    double side = p.n == 1 ? SIDE : fmax(12, fmin(64, room / (double)p.cols));
    double all = p.left + RIGHT + (double)p.cols * side + (double)(p.cols - 1) * GAP_X;
    *w = s->width_mm > 0 ? s->width_mm : all;
    side = fmax(side + (*w - all) / (double)p.cols, 4);
    *h = TOP + p.below + (double)p.rows * side * p.aspect + (double)(p.rows - 1) * GAP_Y;
}

/* ---- colours */

/* Returns the colours: from a tenth of a uniform weight over the text to 1 on a logarithmic scale,
 * or from 0. */
static int colours_for(const struct columns *k, const struct figure_style *s, struct colours *ret,
                       struct kvf_diag *d)
{
    const struct attention_style *o = s->own;
    struct figure_style own = *s;
    double T = 1, most = 0;
    for (int64_t r = 0; r < table_rows(k->t); r++) {
        T = fmax(T, table_real(k->t, k->query_end, r));
        most = fmax(most, table_real(k->t, k->attention, r));
    }
    if (o->scale == SCALE_LINEAR) {
        *ret = colours_make(s, 0, most > 0 ? most : 1);
        return KVF_OK;
    }
    if (s->vmin <= 0 || s->vmax <= 0)
        return kvf_fail(d, KVF_E_ARG, "--vmin, --vmax: a logarithmic scale begins above 0");
    own.vmin = log10(s->vmin);
    own.vmax = log10(s->vmax);
    *ret = colours_make(&own, fmax(floor(-log10(10 * T)), -8), 0);
    ret->logs = true;
    return KVF_OK;
}

/* A pixel of the hatching. */
static uint32_t hatched(int x, int y, double pixel)
{
    static const struct rgb line = {0.62, 0.62, 0.62}, ground = {0.97, 0.97, 0.97};
    double width = fmax(HATCH_WIDTH, pixel), apart = fmax(HATCH_APART, 3 * pixel);
    return rgb_argb(fmod((x + y) * pixel, apart) < width ? line : ground);
}

/* The boxes of a pixel: n pixels for `boxes` boxes. */
static void boxes_of(int pixel, int n, int64_t boxes, int64_t *first, int64_t *end)
{
    *first = (int64_t)pixel * boxes / n;
    *end = ((int64_t)(pixel + 1) * boxes + n - 1) / n;
    *end = *end > *first ? *end : *first + 1;
}

/* Returns the colour of a pixel: the largest or the mean weight of its boxes; transparent for cells
 * later than their query. */
static uint32_t pixel_of(const struct map *m, struct colours *k, bool mean, int x, int y, int w,
                         int h, double pixel)
{
    int64_t c0, c1, r0, r1, n = 0;
    double value = 0, cached = 0;
    boxes_of(x, w, m->columns, &c0, &c1);
    boxes_of(y, h, m->rows, &r0, &r1);
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) {
            double v = m->weight[r * m->columns + c];
            if (isnan(v))
                continue;
            value = mean ? value + v : fmax(value, v);
            cached += m->cache[r * m->columns + c];
            n++;
        }
    if (n == 0)
        return 0;
    if (!(cached > 0))
        return hatched(x, y, pixel);
    value /= mean ? (double)n : 1;
    k->of++;
    double f = colours_at(k, k->logs ? log10(value) : value);
    return palette_argb(k->map, clamp(f, 0, 1));
}

static int pixels_in(double mm, double pixel)
{
    return (int)clamp(floor(mm / pixel + 0.5), 1, MOST_PIXELS);
}

static int draw_cells(struct canvas *c, const struct columns *k, const struct map *m,
                      const struct axis_box *a, struct colours *colours)
{
    const char *each = table_meta(k->t, "each");
    bool mean = each && strcmp(each, "mean") == 0;
    int w = pixels_in(a->w, canvas_pixel(c)), h = pixels_in(a->h, canvas_pixel(c));
    uint32_t *argb = MEM_NEW(uint32_t, (size_t)w * (size_t)h);
    if (!argb)
        return KVF_E_NOMEM;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            argb[(size_t)y * (size_t)w + (size_t)x] = pixel_of(m, colours, mean, x, y, w, h,
                                                               a->w / w);
    canvas_image(c, a->x, a->y, a->w, a->h, argb, w, h);
    mem_free(argb);
    return KVF_OK;
}

/* ---- words along the axes */

static void word(struct canvas *c, double x, double y, const char *text, int turn)
{
    char shown[CELL_TEXT];
    text = text_fit(c, text, PT_SMALL, WORDS - 6, shown, sizeof shown);
    canvas_text(c, x, y, text, PT_SMALL, ALIGN_RIGHT, ink, turn);
}

/* Writes the texts of the queries, or of the entries, which the last query lists. */
static void draw_words(struct canvas *c, const struct columns *k, const struct map *m,
                       const struct axis_box *a, bool queries)
{
    int64_t n = 0;
    for (int64_t r = queries ? m->row0 : m->row1 - m->columns; r < m->row1; r++) {
        bool first = r == m->row0
                     || table_int(k->t, k->query, r) != table_int(k->t, k->query, r - 1);
        if (queries && !first)
            continue;
        double at = ((double)n++ + 0.5) / (double)(queries ? m->rows : m->columns);
        if (queries)
            word(c, a->x - 1, a->y + at * a->h, table_str(k->t, k->query_text, r), 0);
        else
            word(c, a->x + at * a->w, a->y + a->h + 1, table_str(k->t, k->text, r), 1);
    }
}

/* ---- drawing */

static void draw_name(struct canvas *c, const struct columns *k, const struct map *m,
                      const struct axis_box *a)
{
    char name[2 * CELL_TEXT], fit[2 * CELL_TEXT], cell[24];
    bool named = k->trace >= 0;
    snprintf(name, sizeof name, "%.60s%s%.60s",
             named ? cell_text(k->t, k->trace, m->row0, cell) : "", named ? ": " : "",
             table_str(k->t, k->head, m->row0));
    canvas_text(c, a->x + a->w / 2, a->y - 2.2,
                text_fit(c, name, PT_TICK, a->w + GAP_X - 1, fit, sizeof fit), PT_TICK,
                ALIGN_CENTER, ink, 0);
}

static int draw_map(struct canvas *c, const struct columns *k, struct map *m, const struct plan *p,
                    int64_t i, struct colours *colours)
{
    int64_t col = i % p->cols, row = i / p->cols;
    struct axis_box a = {.x = p->left + (double)col * (p->side + GAP_X),
                         .y = TOP + (double)row * (p->tall + GAP_Y),
                         .w = p->side,
                         .h = p->tall,
                         .x0 = m->k0,
                         .x1 = m->k1,
                         .y0 = m->q1,
                         .y1 = m->q0,
                         .whole_x = 1,
                         .whole_y = 1};
    int err = map_cells(k, m);
    if (!err)
        err = draw_cells(c, k, m, &a, colours);
    canvas_frame(c, a.x, a.y, a.w, a.h, 0.1, (struct rgb){0.45, 0.45, 0.45});
    draw_name(c, k, m, &a);
    if (p->words)
        draw_words(c, k, m, &a, true);
    else if (col == 0)
        axis_ticks_y(c, &a);
    if (p->words)
        draw_words(c, k, m, &a, false);
    else if (i + p->cols >= p->n)
        axis_ticks_x(c, &a);
    mem_free_all(m->weight, m->cache);
    return err;
}

/* Draws a square with the hatching and its meaning. */
static void draw_key(struct canvas *c, const struct columns *k, double x, double y)
{
    enum { PIXELS = 24 };
    uint32_t argb[PIXELS * PIXELS];
    double gone = table_meta_real(k->t, "cells_evicted", NAN),
           window = table_meta_real(k->t, "cells_outside_window", 0);
    const char *text = window > 0 ? "evicted, or outside the window of the layer"
                                  : "evicted before this query";
    if (window > 0 && window >= gone)
        text = "outside the window of the layer";
    if (gone == 0)
        return;
    for (int i = 0; i < PIXELS * PIXELS; i++)
        argb[i] = hatched(i % PIXELS, i / PIXELS, 2.4 / PIXELS);
    canvas_image(c, x, y - 1.2, 2.4, 2.4, argb, PIXELS, PIXELS);
    canvas_frame(c, x, y - 1.2, 2.4, 2.4, 0.1, (struct rgb){0.45, 0.45, 0.45});
    canvas_text(c, x + 3.4, y, text, PT_SMALL, ALIGN_LEFT, ink, 0);
}

static void draw_axes(struct canvas *c, const struct columns *k, const struct plan *p,
                      struct colours *colours)
{
    char label[96];
    const char *each = table_meta(k->t, "each");
    double boxes = table_meta_real(k->t, "queries_per_box", 1)
                   * table_meta_real(k->t, "tokens_per_box", 1);
    double width = (double)p->cols * p->side + (double)(p->cols - 1) * GAP_X;
    double height = (double)p->rows * p->tall + (double)(p->rows - 1) * GAP_Y;
    double foot = TOP + height + p->below;
    canvas_text(c, p->left + width / 2, foot - 7.2, "token position i", PT_LABEL, ALIGN_CENTER, ink,
                0);
    canvas_text(c, 3, TOP + height / 2, "query step t", PT_LABEL, ALIGN_CENTER, ink, 1);
    draw_key(c, k, p->left, foot - 2.6);
    bool mean = each && strcmp(each, "mean") == 0;
    snprintf(label, sizeof label, "attention weight a");
    if (boxes > 1)
        snprintf(label, sizeof label, "attention weight a, %s of a box", mean ? "mean" : "maximum");
    if (colours->logs) /* values below the range have the colour of its end */
        colours->clipped = 0;
    colours_bar(c, colours, p->left + width + 3, TOP, fmin(height, 60), label);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct columns k = columns_of(t);
    struct plan p = plan_of(&k, s);
    struct colours colours;
    int err = colours_for(&k, s, &colours, d);
    if (err)
        return err;
    if (p.n > MOST_MAPS)
        return kvf_fail(d, KVF_E_ARG,
                        "attention shows up to %d maps, not %lld; choose some with "
                        "--head",
                        MOST_MAPS, (long long)p.n);
    fit(&p, canvas_width(c), canvas_height(c));
    if (!(p.side >= 4 && p.tall >= 2))
        return kvf_fail(d, KVF_E_ARG,
                        "%lld maps do not fit into %.0f x %.0f mm; choose heads with --head or a "
                        "larger --size",
                        (long long)p.n, canvas_width(c), canvas_height(c));
    for (int64_t r = 0, i = 0; !err && r < table_rows(t); i++) {
        struct map m = map_at(&k, r);
        err = draw_map(c, &k, &m, &p, i, &colours);
        r = m.row1;
    }
    draw_axes(c, &k, &p, &colours);
    return err;
}

/* ---- the caption */

/* The entry with the largest mean weight over the queries shown that are not earlier. */
struct favourite {
    int64_t column, row; /* row of the table with its text */
    double mean, own;    /* its mean weight, and that of a query's own token; NaN: not shown */
};

static struct favourite favourite_of(const struct columns *k, const struct map *m)
{
    struct favourite f = {.column = -1, .mean = -1};
    double own = 0, shown = 0;
    for (int64_t c = 0; c < m->columns; c++) {
        double sum = 0, n = 0;
        for (int64_t r = 0; r < m->rows; r++) {
            double v = m->weight[r * m->columns + c];
            sum += isnan(v) ? 0 : v;
            n += !isnan(v);
        }
        if (n > 0 && sum / n > f.mean && 2 * n >= (double)m->rows) {
            f.column = c;
            f.mean = sum / n;
        }
    }
    for (int64_t r = m->row0; r < m->row1; r++)
        if (table_int(k->t, k->query, r) == table_int(k->t, k->token, r)) {
            own += table_real(k->t, k->attention, r);
            shown++;
        }
    f.row = m->row1 - m->columns + f.column;
    f.own = shown > 0 ? own / shown : NAN;
    return f;
}

/* Appends the observation for maps whose boxes are single cells. */
static void observe_cells(const struct columns *k, const struct map *m, struct buf *out)
{
    struct favourite f = favourite_of(k, m);
    char a[24], b[24];
    const char *text = k->text >= 0 && f.column >= 0 ? table_str(k->t, k->text, f.row) : "";
    if (f.column < 0)
        return;
    text += strspn(text, " ");
    buf_printf(out, "In %s the queries give token %lld%s%s%s %s of their attention on average",
               table_str(k->t, k->head, m->row0), (long long)table_int(k->t, k->token, f.row),
               *text ? " (" : "", text, *text ? ")" : "", caption_percent(f.mean, a));
    if (isnan(f.own))
        buf_str(out, ".\n");
    else
        buf_printf(out, " and their own token %s.\n", caption_percent(f.own, b));
}

static void caption(const struct table *t, const struct figure_style *s, struct buf *out)
{
    struct columns k = columns_of(t);
    struct plan p = plan_of(&k, s);
    struct map m = map_at(&k, 0);
    char a[24];
    double cells = table_meta_real(t, "cells", NAN),
           gone = table_meta_real(t, "cells_evicted", NAN);
    buf_printf(out,
               "Each cell is the weight that a query, downward, gives to a cached token, across, "
               "in %lld map%s",
               (long long)p.n, p.n == 1 ? "" : "s");
    if (gone > 0 && cells > 0)
        buf_printf(out, ", and hatching marks the %s of the cells whose token was not in the cache",
                   caption_percent(gone / cells, a));
    buf_str(out, ". ");
    bool single = m.q1 - m.q0 == (double)m.rows && m.k1 - m.k0 == (double)m.columns;
    if (single && map_cells(&k, &m) == KVF_OK) {
        observe_cells(&k, &m, out);
    } else {
        int64_t top = m.row0;
        for (int64_t r = m.row0; r < m.row1; r++)
            top = table_real(t, k.attention, r) > table_real(t, k.attention, top) ? r : top;
        buf_printf(out, "In %s the largest value of a box is %s, at query %lld and token %lld.\n",
                   table_str(t, k.head, top), caption_number(table_real(t, k.attention, top), a),
                   (long long)table_int(t, k.query, top), (long long)table_int(t, k.token, top));
    }
    mem_free_all(m.weight, m.cache);
}

const struct figure fig_attention = {
    .name = "attention",
    .caption = caption,
    .table = "attention",
    .summary = "exact attention maps of query heads, evicted entries hatched",
    .needs = "head:text query query_end token token_end attention cached",
    STYLE(struct attention_style,
          WORD_KEY(struct attention_style, scale, "log", "scale of the colours", "log", "linear"),
          WORD_KEY(struct attention_style, labels, "auto",
                   "labels of the axes of one map; auto: texts of tokens if they fit", "auto",
                   "tokens", "numbers")),
    .cmap = "blues",
    .side_by_side = true,
    .size = size,
    .draw = draw,
};
