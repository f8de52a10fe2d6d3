/* grid.c - small multiples: one map per head.  Few heads: each with its name
 * and ticks.  Many: layers down, heads across, folded into blocks side by side,
 * names at the margins only. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/mem.h"
#include "render/figures.h"
#include "render/heat.h"

enum { TOP = 5, RIGHT = 20, BOTTOM = 10, NAMED_MOST = 12, TICKS_FROM = 18 };

struct layout {
    int64_t n, per_head;       /* heads; rows of each */
    bool named;                /* every map has its own name */
    int cols, rows, blocks;    /* maps across in a block, rows, blocks */
    double left, label, gap_x, gap_y, gap_block, side;
};

/* Whether every layer shows the same heads; how many. */
static bool is_product(const struct table *t, int64_t n, int64_t per_head, int64_t *heads)
{
    int layer = table_find(t, "layer"), index = table_find(t, "index");
    int64_t k = 1;
    while (k < n && table_int(t, layer, k * per_head) == table_int(t, layer, 0))
        k++;
    *heads = k;
    for (int64_t h = 0; h < n; h++) {
        int64_t first = h - h % k;
        if (table_int(t, layer, h * per_head) != table_int(t, layer, first * per_head)
            || table_int(t, index, h * per_head) != table_int(t, index, h % k * per_head)
            || (h % k == 0 && h && table_int(t, layer, h * per_head)
                                   == table_int(t, layer, (h - 1) * per_head)))
            return false;
    }
    return n % k == 0;
}

static double side_in(const struct layout *l, double width, double height)
{
    double b = l->blocks, x = width - l->left - RIGHT - b * (l->label + (l->cols - 1) * l->gap_x)
                            - (b - 1) * l->gap_block;
    double y = height - TOP - BOTTOM - (l->rows - 1) * l->gap_y;
    return fmin(x / (b * l->cols), y / l->rows);
}

static double width_of(const struct layout *l)
{
    double block = l->label + l->cols * l->side + (l->cols - 1) * l->gap_x;
    return l->left + RIGHT + l->blocks * block + (l->blocks - 1) * l->gap_block;
}

static double height_of(const struct layout *l)
{
    return TOP + BOTTOM + l->rows * l->side + (l->rows - 1) * l->gap_y;
}

/* The arrangement with the largest maps in width x height; a layer's heads stay in
 * one row. */
static struct layout plan(const struct table *t, double width, double height)
{
    struct layout l = {.per_head = rows_per_head(t)};
    int64_t heads;
    l.n = table_rows(t) / l.per_head;
    bool product = is_product(t, l.n, l.per_head, &heads);
    bool by_layer = product && heads > 1 && heads < l.n;
    l.named = !product || l.n <= NAMED_MOST;
    l.left = l.named ? 13 : 6;
    l.label = l.named ? 0 : 6.5;
    l.gap_x = l.named ? 5 : 1.2;
    l.gap_y = l.named ? 6 : 1.2;
    l.gap_block = 1.5;
    int64_t most = l.named ? l.n : l.n / heads, best = 1;
    double side = -INFINITY;
    for (int64_t k = 1; k <= most; k++) { /* k: maps across, or blocks */
        if (l.named && by_layer && k != heads)
            continue;
        l.cols = (int)(l.named ? k : heads);
        l.blocks = (int)(l.named ? 1 : k);
        l.rows = (int)((most + k - 1) / k);
        l.side = side_in(&l, width, height);
        if (isinf(side) || l.side > side * (1 + 1e-9)) {
            side = l.side;
            best = k;
        }
    }
    l.cols = (int)(l.named ? best : heads);
    l.blocks = (int)(l.named ? 1 : best);
    l.rows = (int)((most + best - 1) / best);
    l.side = side;
    return l;
}

void grid_size(const struct table *t, double *ret_w, double *ret_h)
{
    int64_t n = table_rows(t) / rows_per_head(t);
    double w = n == 1 ? 88 : n == 2 ? 140 : 180, h = 150;
    struct layout l = plan(t, w, h);
    while (l.side < 4 && w < 2000) { /* hundreds of heads: beyond a page */
        w *= 1.2;
        h *= 1.2;
        l = plan(t, w, h);
    }
    *ret_w = width_of(&l);
    *ret_h = height_of(&l);
}

static void place(const struct layout *l, int64_t h, double *x, double *y)
{
    int64_t row = h / l->cols, col = h % l->cols, block = row / l->rows;
    double width = l->label + l->cols * l->side + (l->cols - 1) * l->gap_x + l->gap_block;
    *x = l->left + l->label + (double)block * width + (double)col * (l->side + l->gap_x);
    *y = TOP + (double)(row % l->rows) * (l->side + l->gap_y);
}

struct painter {
    struct canvas *c;
    const struct grid *g;
    struct layout l;
    struct colours k;
    int px;
    double *number, *v, *cover, *scratch;
    uint32_t *argb;
};

static void map(struct painter *p, int64_t h)
{
    double x, y;
    place(&p->l, h, &x, &y);
    p->g->fill(p->g->t, h * p->l.per_head, p->l.per_head, p->number);
    p->g->raster(p->number, (long)p->l.per_head, p->px, p->px, p->v, p->cover, p->scratch);
    for (int i = 0; i < p->px * p->px; i++)
        p->argb[i] = !(p->cover[i] > HEAT_LEAST) ? 0
                   : palette_argb_at(p->k.map, colours_at(&p->k, p->v[i]), p->cover[i]);
    canvas_image(p->c, x, y, p->l.side, p->l.side, p->argb, p->px, p->px);
    canvas_frame(p->c, x, y, p->l.side, p->l.side, 0.1, (struct rgb){0.45, 0.45, 0.45});
}

/* Name above the map and, where there is room, ticks at the left and lower rim. */
static void name_and_ticks(const struct painter *p, int64_t h)
{
    const struct table *t = p->g->t;
    double x, y, first = table_real(t, table_find(t, "token"), 0);
    place(&p->l, h, &x, &y);
    canvas_text(p->c, x + p->l.side / 2, y - 1.9,
                table_str(t, table_find(t, "head"), h * p->l.per_head),
                p->l.side < 12 ? PT_SMALL : PT_TICK, ALIGN_CENTER, ink, 0);
    if (p->l.side < TICKS_FROM)
        return;
    double last = first + (double)p->l.per_head;
    struct axis_box a = {.x = x, .y = y, .w = p->l.side, .h = p->l.side, .x0 = first, .x1 = last,
                         .y0 = last, .y1 = first};
    if (h % p->l.cols == 0)
        axis_ticks_y(p->c, &a);
    if (h + p->l.cols >= p->l.n)
        axis_ticks_x(p->c, &a);
}

/* "L15" left of a block's row, "K2" above a block's column. */
static void margin_names(const struct painter *p, int64_t h)
{
    const struct table *t = p->g->t;
    const char *name = table_str(t, table_find(t, "head"), h * p->l.per_head), *second = name;
    char layer[24];
    double x, y;
    place(&p->l, h, &x, &y);
    while (*second && *second != 'K' && *second != 'H')
        second++;
    snprintf(layer, sizeof layer, "%.*s", (int)(second - name), name);
    double pt = p->l.side < 2.4 ? 4 : p->l.side < 6 ? PT_SMALL : PT_TICK;
    if (h % p->l.cols == 0)
        canvas_text(p->c, x - 1, y + p->l.side / 2, layer, pt, ALIGN_RIGHT, ink, 0);
    if (h / p->l.cols % p->l.rows == 0)
        canvas_text(p->c, x + p->l.side / 2, y - 1.9, second, pt, ALIGN_CENTER, ink, 0);
}

static void axis_names(const struct painter *p)
{
    const struct layout *l = &p->l;
    double first = table_real(p->g->t, table_find(p->g->t, "token"), 0);
    char from[24], to[24], x_name[96], y_name[96];
    bool ticks = l->named && l->side >= TICKS_FROM;
    double right = width_of(l) - RIGHT, bottom = height_of(l) - BOTTOM;
    tick_text(first, from);
    tick_text(first + (double)l->per_head, to);
    snprintf(x_name, sizeof x_name, ticks ? "token position i"
             : "token position i (each map: %s to %s)", from, to);
    snprintf(y_name, sizeof y_name, ticks ? "query step t" : "query step t (%s to %s, downwards)",
             from, to);
    double drop = ticks ? 6.2 : 3.6;
    canvas_text(p->c, (l->left + right) / 2, bottom + drop, x_name, PT_LABEL, ALIGN_CENTER, ink, 0);
    canvas_text(p->c, 3.2, (TOP + bottom) / 2, y_name, PT_LABEL, ALIGN_CENTER, ink, 1);
    colours_bar(p->c, &p->k, right + 3, TOP, fmin(bottom - TOP, 60), p->g->label);
}

static int paint(struct painter *p)
{
    size_t area = (size_t)p->px * (size_t)p->px;
    p->number = MEM_NEW(double, (size_t)p->l.per_head);
    p->v = MEM_NEW(double, area);
    p->cover = MEM_NEW(double, area);
    p->scratch = MEM_NEW(double, (size_t)heat_scratch(p->px));
    p->argb = MEM_NEW(uint32_t, area);
    int err = p->number && p->v && p->cover && p->scratch && p->argb ? KVF_OK : KVF_E_NOMEM;
    for (int64_t h = 0; !err && h < p->l.n; h++) {
        map(p, h);
        if (p->l.named)
            name_and_ticks(p, h);
        else
            margin_names(p, h);
    }
    if (!err)
        axis_names(p);
    mem_free(p->number);
    mem_free(p->v);
    mem_free(p->cover);
    mem_free(p->scratch);
    mem_free(p->argb);
    return err;
}

int grid_draw(struct canvas *c, const struct grid *g, const struct figure_style *s,
              struct kvf_diag *d)
{
    struct painter p = {.c = c, .g = g, .k = colours_make(s, 0, 1)};
    p.l = plan(g->t, canvas_width(c), canvas_height(c));
    double pixel = canvas_pixel(c);
    if (!(p.l.side >= 1))
        return kvf_fail(d, KVF_E_ARG,
                        "%lld maps do not fit into %.0f x %.0f mm; choose heads with "
                        "--head or a larger --size",
                        (long long)p.l.n, canvas_width(c), canvas_height(c));
    p.px = (int)(p.l.side / pixel + 1e-6);
    p.px = p.px < 4 ? 4 : p.px > 4000 ? 4000 : p.px;
    if (p.l.side / pixel >= 4 && p.l.side / pixel <= 4000)
        p.l.side = p.px * pixel; /* one value per device pixel */
    return paint(&p);
}
