/* grid.c - small multiples: one alpha map per head, layers down, heads across,
 * long models folded into blocks of layers side by side. */
#include <math.h>

#include "base/mem.h"
#include "render/figures.h"
#include "render/heat.h"

struct layout {
    int64_t n, per_head;   /* heads; rows of each */
    int cols, rows, blocks; /* heads in a layer; layers in a block */
    double side, x0, y0, gap;
};

enum { LEFT = 12, TOP = 7, RIGHT = 20, BOTTOM = 11 };

static struct layout plan(const struct table *t, double width)
{
    struct layout l = {.per_head = rows_per_head(t), .x0 = LEFT, .y0 = TOP, .gap = 2.6};
    int layer = table_find(t, "layer");
    l.n = l.per_head ? table_rows(t) / l.per_head : 0;
    int64_t layers = 1, widest = 1, run = 1;
    for (int64_t h = 1; h < l.n; h++) {
        bool same = table_int(t, layer, h * l.per_head)
                    == table_int(t, layer, (h - 1) * l.per_head);
        run = same ? run + 1 : 1;
        layers += !same;
        widest = run > widest ? run : widest;
    }
    l.cols = (int)widest;
    l.blocks = 1;
    while ((double)layers / l.blocks > 1.3 * l.cols * l.blocks && l.blocks < layers)
        l.blocks++;
    l.rows = (int)((layers + l.blocks - 1) / l.blocks);
    int across = l.cols * l.blocks;
    l.side = (width - LEFT - RIGHT - l.gap * (across - 1) - 2.0 * (l.blocks - 1)) / across;
    if (l.side > 90)
        l.side = 90;
    return l;
}

void grid_size(const struct table *t, double *ret_w, double *ret_h)
{
    struct layout l = plan(t, 180);
    *ret_w = LEFT + RIGHT + l.cols * l.blocks * (l.side + l.gap) - l.gap + 2.0 * (l.blocks - 1);
    *ret_h = TOP + BOTTOM + l.rows * (l.side + l.gap);
    if (*ret_h < 40)
        *ret_h = 40;
}

static void panel(struct canvas *c, const struct figure_style *s, double x, double y, double side,
                  const double *v, int px, uint32_t *argb)
{
    for (int i = 0; i < px * px; i++)
        argb[i] = isnan(v[i]) ? 0 : palette_argb(s->cmap, v[i]);
    canvas_image(c, x, y, side, side, argb, px, px);
    canvas_frame(c, x, y, side, side, 0.08, (struct rgb){0.5, 0.5, 0.5});
}

static void axes(struct canvas *c, const struct layout *l, const struct grid *g,
                 const struct figure_style *s)
{
    const struct rgb ink = {0.15, 0.15, 0.15};
    char last[24];
    double bottom = l->y0 + l->rows * (l->side + l->gap) - l->gap;
    double right = l->x0 + l->cols * l->blocks * (l->side + l->gap) - l->gap
                   + 2.0 * (l->blocks - 1);
    tick_text((double)l->per_head, last);
    double first = (double)table_int(g->t, table_find(g->t, "token"), 0);
    char from[24];
    tick_text(first, from);
    tick_text(first + (double)l->per_head, last);
    canvas_text(c, l->x0, bottom + 2.4, from, 5.5, ALIGN_CENTER, ink, 0);
    canvas_text(c, l->x0 + l->side, bottom + 2.4, last, 5.5, ALIGN_CENTER, ink, 0);
    canvas_text(c, (l->x0 + right) / 2, bottom + 6.4, "token position i", 7.5, ALIGN_CENTER, ink,
                0);
    canvas_text(c, l->x0 - 1, l->y0, from, 5.5, ALIGN_RIGHT, ink, 0);
    canvas_text(c, l->x0 - 1, l->y0 + l->side, last, 5.5, ALIGN_RIGHT, ink, 0);
    canvas_text(c, l->x0 - 8.5, (l->y0 + bottom) / 2, "query step t", 7.5, ALIGN_CENTER, ink, 1);
    double bar = fmin(bottom - l->y0, 60);
    colour_bar(c, right + 3, l->y0, 3, bar, s->cmap, 0, 1, g->label, NULL, 6);
}

int grid_draw(struct canvas *c, const struct grid *g, const struct figure_style *s)
{
    struct layout l = plan(g->t, canvas_width(c));
    int px = (int)(l.side / canvas_pixel(c));
    px = px < 8 ? 8 : px > 4000 ? 4000 : px;
    double *end = MEM_NEW(double, (size_t)l.per_head);
    double *v = MEM_NEW(double, (size_t)px * (size_t)px);
    double *scratch = MEM_NEW(double, (size_t)heat_scratch(px));
    uint32_t *argb = MEM_NEW(uint32_t, (size_t)px * (size_t)px);
    int head = table_find(g->t, "head"), layer = table_find(g->t, "layer"), row = -1, col = 0;
    int64_t now = -1;
    if (!end || !v || !scratch || !argb) {
        mem_free(end), mem_free(v), mem_free(scratch), mem_free(argb);
        return KVF_E_NOMEM;
    }
    for (int64_t h = 0; h < l.n; h++) {
        int64_t lay = table_int(g->t, layer, h * l.per_head);
        col = lay == now ? col + 1 : 0;
        row += lay != now;
        now = lay;
        int across = (row / l.rows) * l.cols + col;
        double x = l.x0 + across * (l.side + l.gap) + 2.0 * (row / l.rows);
        double y = l.y0 + row % l.rows * (l.side + l.gap);
        g->end_of(g->t, h * l.per_head, l.per_head, end);
        heat_alpha(end, (long)l.per_head, px, px, v, scratch);
        panel(c, s, x, y, l.side, v, px, argb);
        canvas_text(c, x + l.side / 2, y - 1.2, table_str(g->t, head, h * l.per_head), 4.5,
                    ALIGN_CENTER, (struct rgb){0.25, 0.25, 0.25}, 0);
    }
    axes(c, &l, g, s);
    mem_free(end), mem_free(v), mem_free(scratch), mem_free(argb);
    return KVF_OK;
}
