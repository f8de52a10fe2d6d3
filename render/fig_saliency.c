/* fig_saliency.c - draws the saliency of entries: tokens across, layers down, and above the map a
 * bar for each token with the sum over all layers.
 *
 * A cell is the sum of |saliency| over the heads of the layer, on a logarithmic scale.  The highest
 * bars have the text of their token.  --style value=signed adds the values with their signs,
 * rows=head draws a row per head, scale=linear draws the sums themselves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "render/cells.h"
#include "render/figures.h"
#include "render/marks.h"
#include "render/note.h"

enum {
    LEFT = 15,
    TOP = 4,
    STRIP = 18,
    GAP = 2,
    RIGHT = 20,
    BOTTOM = 16,
    DECADES = 2,
    SUBROWS = 5,
    NAMES = 8, /* bars with the text of their token */
    PLACES = 3 /* of a text at its bar */
};
static const double ROW = 1.6, NAME_HEIGHT = 2.2, SIGN_ROW = 1; /* mm */

struct saliency_style {
    int scale; /* 0: log, 1: linear */
    int value; /* 0: size, 1: signed */
    int rows;  /* 0: layers, 1: heads */
};

struct map {
    const struct table *t;
    int64_t tokens, heads; /* rows of the table: heads x tokens */
    int64_t rows;          /* of the map: layers, or heads */
    bool linear, of_sign, by_head;
    double *cell; /* [rows][tokens] sums over the heads of a row */
    double *all;  /* [tokens] sums over all rows */
    double least; /* smaller sizes are white on the scale of decades */
    int w;        /* width in pixels */
};

static struct map map_of(const struct table *t, const struct figure_style *s)
{
    const struct saliency_style *o = s->own;
    int64_t per = rows_per_head(t), layer = table_find(t, "layer");
    struct map m = {.t = t, .tokens = per, .heads = per ? table_rows(t) / per : 0};
    m.linear = o->scale == 1;
    m.of_sign = o->value == 1;
    m.by_head = o->rows == 1;
    for (int64_t h = 0; h < m.heads; h++)
        m.rows += m.by_head || h == 0
                  || table_int(t, (int)layer, h * per) != table_int(t, (int)layer, (h - 1) * per);
    return m;
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct map m = map_of(t, s);
    *w = 140;
    *h = TOP + STRIP + GAP + BOTTOM + fmax(20, fmin(220, ROW * (double)m.rows));
}

/* Adds the values of all heads to the cells of their rows and to the sums of the tokens. */
static void add_heads(struct map *m, double *v)
{
    int layer = table_find(m->t, "layer"), value = table_find(m->t, "saliency");
    int64_t row = -1, last = 0;
    for (int64_t h = 0; h < m->heads; h++) {
        int64_t now = table_int(m->t, layer, h * m->tokens);
        row += m->by_head || h == 0 || now != last;
        last = now;
        table_get(m->t, value, h * m->tokens, m->tokens, v);
        for (int64_t i = 0; i < m->tokens; i++) {
            double x = m->of_sign ? v[i] : fabs(v[i]);
            m->cell[row * m->tokens + i] += x;
            m->all[i] += isnan(x) ? 0 : x;
        }
    }
}

static double farthest(const double *v, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(v[i]) > most ? fabs(v[i]) : most;
    return most;
}

/* Returns the position of a value on the colour scale: its decimal logarithm, with signs the
 * decades above the smallest size, or the value itself. */
static double scaled(const struct map *m, double v)
{
    if (m->linear || isnan(v))
        return v;
    if (!m->of_sign)
        return log10(fmax(v, m->least));
    return fabs(v) <= m->least ? 0 : copysign(log10(fabs(v) / m->least), v);
}

static struct colours colours_of(struct map *m, const struct figure_style *s)
{
    double most = farthest(m->cell, m->rows * m->tokens);
    struct figure_style own = *s;
    m->least = most > 0 ? pow(10, floor(log10(most)) - DECADES + !m->of_sign) : 1;
    if (m->of_sign && s->usual_cmap)
        own.cmap = "redblue";
    double hi = scaled(m, most > 0 ? most : 1);
    if (m->of_sign) {
        struct colours k = palette_diverging(own.cmap) ? colours_diverging(&own, hi)
                                                       : colours_make(&own, -hi, hi);
        k.least = m->linear ? 0 : m->least;
        return k;
    }
    if (!m->linear) {
        own.vmin = log10(s->vmin);
        own.vmax = log10(s->vmax);
    }
    struct colours k = colours_make(&own, m->linear ? 0 : log10(m->least), hi);
    k.logs = !m->linear;
    return k;
}

/* Writes to out[w] the value farthest from zero for each pixel of a row. */
static void reduce_to_pixels(const struct map *m, const double *v, double *out)
{
    for (int x = 0; x < m->w; x++) {
        int64_t a = m->tokens * x / m->w, b = m->tokens * (x + 1) / m->w;
        out[x] = v[a];
        for (int64_t i = a; i < b; i++)
            out[x] = fabs(v[i]) > fabs(out[x]) ? v[i] : out[x];
    }
}

static struct rgb halfway(struct rgb a, struct rgb b)
{
    return (struct rgb){(a.r + b.r) / 2, (a.g + b.g) / 2, (a.b + b.b) / 2};
}

/* Draws all rows as one image, without seams.  In rows that are high enough, a line along the
 * middle marks negative values, so that signs survive grey. pixels: [SUBROWS rows][w] */
static void paint(struct canvas *c, const struct map *m, struct colours *k, double *px,
                  uint32_t *pixels, const struct axis_box *box)
{
    bool signs = box->h / (double)m->rows >= SIGN_ROW;
    for (int64_t r = 0; r < m->rows; r++) {
        uint32_t *row = pixels + SUBROWS * r * m->w;
        reduce_to_pixels(m, m->cell + r * m->tokens, px);
        for (int x = 0; x < m->w; x++) {
            double v_at = scaled(m, px[x]);
            struct rgb fill = palette_at(k->map, colours_at(k, v_at));
            if (!m->linear && fabs(px[x]) <= m->least)
                fill = (struct rgb){1, 1, 1};
            for (int y = 0; y < SUBROWS; y++)
                row[y * m->w + x] = rgb_argb(fill);
            if (signs && colours_negative(k, v_at))
                row[SUBROWS / 2 * m->w + x] = rgb_argb(halfway(fill, ink_on(fill)));
        }
    }
    canvas_image(c, box->x, box->y, box->w, box->h, pixels, m->w, SUBROWS * (int)m->rows);
}

/* Labels the rows with layers if all layers have equally many rows, else with row numbers. */
static void label_rows(struct canvas *c, const struct map *m, const struct axis_box *box)
{
    int column = table_find(m->t, "layer");
    int64_t first = table_int(m->t, column, 0);
    int64_t layers = table_int(m->t, column, table_rows(m->t) - 1) + 1 - first;
    int64_t each = layers > 0 ? m->rows / layers : 0;
    bool even = each * layers == m->rows;
    for (int64_t r = 0; even && m->by_head && r < m->rows; r++)
        even = table_int(m->t, column, r * m->tokens) == first + r / each;
    if (even)
        layermap_numbers(c, first, layers, box->x - 1.3, box->y, 0, box->h / (double)layers);
    else
        axis_ticks_y(c, box);
    const char *name = m->by_head ? "head of the set" : "layer of the set";
    canvas_text(c, 3, box->y + box->h / 2, even ? "layer" : name, PT_LABEL, ALIGN_CENTER, ink, 1);
}

/* ---- the bars above the map */

struct name_box {
    double x0, x1, y0, y1; /* mm */
};

/* Returns true if the box of a name is inside the strip and meets neither a bar nor another name.
 */
static bool is_free(const struct map *m, const struct axis_box *a, const struct name_box *b,
                    const struct name_box *used, int n)
{
    if (b->x0 < a->x || b->x1 > a->x + a->w || b->y0 < a->y || b->y1 > a->y + a->h)
        return false;
    for (int k = 0; k < n; k++)
        if (b->x0 < used[k].x1 && b->x1 > used[k].x0 && b->y0 < used[k].y1 && b->y1 > used[k].y0)
            return false;
    int64_t from = (int64_t)((b->x0 - a->x) / a->w * (double)m->tokens);
    int64_t to = (int64_t)ceil((b->x1 - a->x) / a->w * (double)m->tokens);
    for (int64_t i = from; i < to && i < m->tokens; i++) {
        double top = axis_y(a, fmax(m->all[i], 0)), foot = axis_y(a, fmin(m->all[i], 0));
        if (b->y1 > top && b->y0 < foot)
            return false;
    }
    return true;
}

/* Writes the text of token i at the end of its bar: in its middle, from its left edge on, or beside
 * it.  Returns the number of used boxes. */
static int name_bar(struct canvas *c, const struct map *m, const struct axis_box *a, int64_t i,
                    struct name_box *used, int n)
{
    char room[32], number[32];
    int text = table_find(m->t, "text");
    snprintf(number, sizeof number, "%lld",
             (long long)table_int(m->t, table_find(m->t, "token"), i));
    bool known = text >= 0 && table_col_type(m->t, text) == TABLE_STR;
    const char *name = text_fit(c, known ? table_str(m->t, text, i) : number, PT_SMALL, 20, room,
                                sizeof room);
    double w = canvas_text_width(c, name, PT_SMALL, 0) + 1, end = axis_y(a, m->all[i]);
    double x = axis_x(a, (double)i + 0.5), left = axis_x(a, (double)i) + 0.1;
    double right = axis_x(a, (double)i + 1) + 0.1, h = NAME_HEIGHT;
    double y = m->all[i] < 0 ? end + 0.1 : end - h - 0.1, beside = fmin(end, a->y + a->h - h);
    struct name_box box[PLACES] = {{x - w / 2, x + w / 2, y, y + h},
                                   {left, left + w, y, y + h},
                                   {right, right + w, beside, beside + h}};
    for (int k = 0; k < PLACES; k++)
        if (is_free(m, a, &box[k], used, n)) {
            used[n] = box[k];
            canvas_text(c, (box[k].x0 + box[k].x1) / 2, (box[k].y0 + box[k].y1) / 2, name, PT_SMALL,
                        ALIGN_CENTER, ink, 0);
            return n + 1;
        }
    return n;
}

/* Writes the texts of the highest bars, the highest first. done: [tokens] zeros */
static void name_bars(struct canvas *c, const struct map *m, const struct axis_box *a,
                      unsigned char *done)
{
    struct name_box used[NAMES];
    for (int n = 0, tried = 0; n < NAMES && tried < 3 * NAMES; tried++) {
        int64_t best = -1;
        for (int64_t i = 0; i < m->tokens; i++)
            if (!done[i] && m->all[i] != 0 && (best < 0 || fabs(m->all[i]) > fabs(m->all[best])))
                best = i;
        if (best < 0)
            return;
        done[best] = 1;
        n = name_bar(c, m, a, best, used, n);
    }
}

/* Returns the axes of the bars above the map. */
static struct axis_box bar_axes(const struct map *m, const struct axis_box *box)
{
    double most = 0, low = 0;
    for (int64_t i = 0; i < m->tokens; i++) {
        most = fmax(most, m->all[i]);
        low = fmin(low, m->all[i]);
    }
    return (struct axis_box){.x = box->x,
                             .y = TOP,
                             .w = box->w,
                             .h = STRIP,
                             .x1 = (double)m->tokens,
                             .y0 = 1.15 * low,
                             .y1 = most > low ? 1.15 * most : 1};
}

/* Draws the bars of the sums over all rows.  Tokens that share a pixel are drawn as the largest. */
static void draw_bars(struct canvas *c, const struct map *m, const struct axis_box *a, double *px)
{
    reduce_to_pixels(m, m->all, px);
    for (int x = 0; x < m->w; x++) {
        double top = axis_y(a, fmax(px[x], 0)), foot = axis_y(a, fmin(px[x], 0));
        canvas_cell(c, a->x + a->w * x / m->w, top, a->w / m->w, foot - top, rgb_of(0x2166ac));
    }
    canvas_frame(c, a->x, a->y, a->w, a->h, .18, ink);
    axis_ticks_y(c, a);
    canvas_text(c, 3, a->y + a->h / 2, "sum (nats)", PT_LABEL, ALIGN_CENTER, ink, 1);
}

/* Writes what is added, and what the table is of. */
static void draw_notes(struct canvas *c, const struct map *m, const struct axis_box *box)
{
    char note[NOTE_RUN], about[NOTE_RUN];
    double x = box->x + box->w / 2, y = box->y + box->h + 9.5, right = box->x + box->w + 2.5;
    const char *what = m->of_sign ? "saliency" : "|saliency|";
    if (m->by_head)
        snprintf(note, sizeof note, "bars: sum of %s over %lld KV head%s", what,
                 (long long)m->heads, m->heads == 1 ? "" : "s");
    else
        snprintf(note, sizeof note,
                 "bars: sum of %s over %lld KV head%s; cells: over those of a layer", what,
                 (long long)m->heads, m->heads == 1 ? "" : "s");
    struct note n = note_below(x, right);
    note_draw(c, &n, y, note);
    note_draw(c, &n, y + 3, note_run(m->t, about));
}

static void draw_all(struct canvas *c, struct map *m, const struct figure_style *s, double *px,
                     uint32_t *pixels, unsigned char *done)
{
    double y = TOP + STRIP + GAP;
    struct axis_box box = {.x = LEFT,
                           .y = y,
                           .w = canvas_width(c) - LEFT - RIGHT,
                           .h = canvas_height(c) - y - BOTTOM,
                           .x0 = table_row_real(m->t, 0, "token"),
                           .y0 = (double)m->rows,
                           .whole_x = 1};
    char label[64];
    box.x1 = box.x0 + (double)m->tokens;
    struct colours k = colours_of(m, s);
    struct axis_box bars = bar_axes(m, &box);
    draw_bars(c, m, &bars, px);
    name_bars(c, m, &bars, done);
    paint(c, m, &k, px, pixels, &box);
    axis_ticks_x(c, &box);
    label_rows(c, m, &box);
    canvas_frame(c, box.x, box.y, box.w, box.h, .18, ink);
    canvas_text(c, box.x + box.w / 2, box.y + box.h + 6, "token position i", PT_LABEL, ALIGN_CENTER,
                ink, 0);
    draw_notes(c, m, &box);
    snprintf(label, sizeof label, "%s of a %s (nats%s)", m->of_sign ? "saliency" : "|saliency|",
             m->by_head ? "head" : "layer", m->linear ? "" : ", log scale");
    colours_bar(c, &k, box.x + box.w + 2.5, box.y, fmin(box.h, 60), label);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct map m = map_of(t, s);
    double most = (canvas_width(c) - LEFT - RIGHT) / canvas_pixel(c);
    int err = canvas_room(c, s->figure->name, 60, TOP + STRIP + GAP + BOTTOM + 8, d);
    if (err)
        return err;
    if (!m.linear && !m.of_sign && (s->vmin <= 0 || s->vmax <= 0))
        return kvf_fail(d, KVF_E_ARG, "--vmin, --vmax: a logarithmic scale begins above 0");
    m.w = (int)fmax(1, fmin((double)m.tokens, most));
    size_t n = (size_t)m.tokens;
    m.cell = mem_alloc((size_t)m.rows + 1, n * sizeof *m.cell);
    double *v = mem_alloc(n + (size_t)m.w, sizeof *v);
    uint32_t *pixels = mem_alloc((size_t)m.rows, SUBROWS * (size_t)m.w * sizeof *pixels);
    unsigned char *done = MEM_NEW(unsigned char, n);
    if (!m.cell || !v || !pixels || !done) {
        err = KVF_E_NOMEM;
    } else {
        m.all = m.cell + m.rows * m.tokens;
        add_heads(&m, v);
        draw_all(c, &m, s, v + n, pixels, done);
    }
    mem_free_all(m.cell, v, pixels, done);
    return err;
}

const struct figure fig_saliency = {
    .name = "saliency",
    .table = "saliency",
    .summary = "tokens across, layers down: which entries the predictions depend on",
    .needs = "head:text layer token saliency",
    .cmap = "blues",
    STYLE(struct saliency_style,
          WORD_KEY(struct saliency_style, scale, "log", "colours: decades, or the sums", "log",
                   "linear"),
          WORD_KEY(struct saliency_style, value, "size",
                   "sum the absolute values, or the values with their signs", "size", "signed"),
          WORD_KEY(struct saliency_style, rows, "layer", "a row for each layer or head", "layer",
                   "head")),
    .size = size,
    .draw = draw,
};
