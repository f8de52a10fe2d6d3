/* fig_saliency.c - draws the saliency of every entry: tokens across, heads down by layer.  Blue
 * helps, red harms.
 *
 * Values span orders of magnitude, so the scale has decades on both sides of zero.  --style
 * scale=linear draws the values themselves. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "render/figures.h"
#include "render/marks.h"

enum { LEFT = 13, TOP = 3, RIGHT = 22, BOTTOM = 13, DECADES = 2, SUBROWS = 5 };

struct saliency_style {
    int scale; /* 0: log, 1: linear */
};

struct map {
    const struct table *t;
    int64_t tokens, heads; /* rows of the table: heads x tokens */
    bool linear;
    double least; /* smaller sizes are white on the scale of decades */
    int w;        /* width in pixels */
};

static struct map map_of(const struct table *t)
{
    int64_t per = rows_per_head(t);
    return (struct map){.t = t, .tokens = per, .heads = per ? table_rows(t) / per : 0};
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct map m = map_of(t);
    (void)s;
    *w = 180;
    *h = TOP + BOTTOM + fmax(20, fmin(220, 1.2 * (double)m.heads));
}

/* Returns the position of a value on the colour scale: signed decades above the smallest size, or
 * the value itself.  Values below the smallest size are 0. */
static double scaled(const struct map *m, double v)
{
    if (m->linear || isnan(v))
        return v;
    return fabs(v) <= m->least ? 0 : copysign(log10(fabs(v) / m->least), v);
}

/* Writes to out[w] the value farthest from zero for each pixel of a head. */
static void reduce_to_pixels(const struct map *m, const double *v, double *out)
{
    for (int x = 0; x < m->w; x++) {
        int64_t a = m->tokens * x / m->w, b = m->tokens * (x + 1) / m->w;
        out[x] = v[a];
        for (int64_t i = a; i < b; i++)
            out[x] = fabs(v[i]) > fabs(out[x]) ? v[i] : out[x];
    }
}

static double largest(const struct map *m, double *v)
{
    double most = 0;
    for (int64_t h = 0; h < m->heads; h++) {
        table_get(m->t, table_find(m->t, "saliency"), h * m->tokens, m->tokens, v);
        for (int64_t i = 0; i < m->tokens; i++)
            most = fabs(v[i]) > most ? fabs(v[i]) : most;
    }
    return most;
}

/* Returns the colours, and writes their meaning to label[96]. */
static struct colours colours_of(struct map *m, const struct figure_style *s, double most,
                                 char *label)
{
    char least[24];
    m->least = most > 0 ? pow(10, floor(log10(most)) - DECADES) : 1;
    tick_text(m->least, least);
    if (m->linear)
        snprintf(label, 96, "saliency (nats)");
    else
        snprintf(label, 96, "saliency (nats); white: less than %s", least);
    struct colours k = palette_diverging(s->cmap)
                           ? colours_diverging(s, scaled(m, most))
                           : colours_make(s, -scaled(m, most), scaled(m, most));
    k.least = m->linear ? 0 : m->least;
    return k;
}

static struct rgb halfway(struct rgb a, struct rgb b)
{
    return (struct rgb){(a.r + b.r) / 2, (a.g + b.g) / 2, (a.b + b.b) / 2};
}

/* Draws all heads as one image, without seams.  A line along the middle marks negative values, so
 * that signs survive grey. pixels: [SUBROWS heads][w] */
static void paint(struct canvas *c, const struct map *m, struct colours *k, double *v,
                  uint32_t *pixels, const struct axis_box *box)
{
    double *px = v + m->tokens;
    for (int64_t h = 0; h < m->heads; h++) {
        uint32_t *row = pixels + SUBROWS * h * m->w;
        table_get(m->t, table_find(m->t, "saliency"), h * m->tokens, m->tokens, v);
        reduce_to_pixels(m, v, px);
        for (int x = 0; x < m->w; x++) {
            double v_at = scaled(m, px[x]);
            struct rgb fill = palette_at(k->map, colours_at(k, v_at));
            for (int y = 0; y < SUBROWS; y++)
                row[y * m->w + x] = rgb_argb(fill);
            if (colours_negative(k, v_at))
                row[SUBROWS / 2 * m->w + x] = rgb_argb(halfway(fill, ink_on(fill)));
        }
    }
    canvas_image(c, box->x, box->y, box->w, box->h, pixels, m->w, SUBROWS * (int)m->heads);
}

/* Labels the axis of the heads with layers if all layers have equally many heads, else with head
 * numbers. */
static void label_heads(struct canvas *c, const struct map *m, const struct axis_box *box)
{
    int column = table_find(m->t, "layer");
    int64_t first = table_int(m->t, column, 0);
    int64_t layers = table_int(m->t, column, table_rows(m->t) - 1) + 1 - first;
    int64_t each = m->heads / layers;
    bool even = each * layers == m->heads;
    for (int64_t h = 0; even && h < m->heads; h++)
        even = table_int(m->t, column, h * m->tokens) == first + h / each;
    if (even)
        layermap_numbers(c, first, layers, box->x - 1.3, box->y, 0, box->h / (double)layers);
    else
        axis_ticks_y(c, box);
    canvas_text(c, 3, box->y + box->h / 2, even ? "layer" : "head of the set", PT_LABEL,
                ALIGN_CENTER, ink, 1);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    (void)d;
    struct map m = map_of(t);
    double w = canvas_width(c) - LEFT - RIGHT, h = canvas_height(c) - TOP - BOTTOM;
    const struct saliency_style *o = s->own;
    int err = KVF_OK, most = (int)(w / canvas_pixel(c));
    m.linear = o->scale == 1;
    m.w = (int)fmax(1, fmin((double)m.tokens, most));
    double *v = mem_alloc((size_t)(m.tokens + m.w), sizeof *v);
    uint32_t *pixels = mem_alloc((size_t)m.heads, SUBROWS * (size_t)m.w * sizeof *pixels);
    if (!err && (!v || !pixels))
        err = KVF_E_NOMEM;
    if (!err) {
        char label[96];
        struct axis_box box = {.x = LEFT,
                               .y = TOP,
                               .w = w,
                               .h = h,
                               .x1 = (double)m.tokens,
                               .y0 = (double)m.heads,
                               .xlabel = "token",
                               .whole_x = 1};
        struct colours k = colours_of(&m, s, largest(&m, v), label);
        paint(c, &m, &k, v, pixels, &box);
        axis_ticks_x(c, &box);
        label_heads(c, &m, &box);
        canvas_frame(c, box.x, box.y, box.w, box.h, .18, ink);
        canvas_text(c, box.x + w / 2, box.y + h + 6, box.xlabel, PT_LABEL, ALIGN_CENTER, ink, 0);
        canvas_text(c, box.x + w / 2, box.y + h + 10, "a line in a cell: negative", PT_SMALL,
                    ALIGN_CENTER, quiet, 0);
        colours_bar(c, &k, LEFT + w + 2.5, TOP, h, label);
    }
    mem_free_all(v, pixels);
    return err;
}

const struct figure fig_saliency = {
    .name = "saliency",
    .table = "saliency",
    .summary = "tokens across, heads down: which entries help the predictions and which harm",
    .needs = "head:text layer token saliency",
    .cmap = "redblue",
    STYLE(struct saliency_style,
          WORD_KEY(struct saliency_style, scale, "log",
                   "colours: decades with the sign, or numbers", "log", "linear")),
    .size = size,
    .draw = draw,
};
