/* kindmap.c - draws layer x head maps of head types and their key. */
#include <math.h>

#include "render/figures.h"
#include "render/kindmap.h"
#include "render/marks.h"

enum { LEFT = 11, BELOW = 8 };
static const double CELL_W = 2.7, CELL_H = 3.2, SIGN_W = 1.9, SIGN_H = 2, LINE = 3.8, SWATCH = 2.9;

struct extent {
    int64_t layer0, layers, head0, heads;
};

static struct extent extent_of(const struct kindmap *m)
{
    int64_t l0 = INT64_MAX, l1 = -1, h0 = INT64_MAX, h1 = -1;
    for (int64_t i = 0; i < m->n; i++) {
        const struct kind_cell *k = &m->cell[i];
        l0 = k->layer < l0 ? k->layer : l0;
        l1 = k->layer > l1 ? k->layer : l1;
        h0 = k->index < h0 ? k->index : h0;
        h1 = k->index > h1 ? k->index : h1;
    }
    return m->n ? (struct extent){l0, l1 - l0 + 1, h0, h1 - h0 + 1} : (struct extent){0, 1, 0, 1};
}

void kindmap_size(const struct kindmap *m, double max_w, double max_h, double *ret_w, double *ret_h)
{
    struct extent e = extent_of(m);
    *ret_w = fmin(max_w, fmax(40, LEFT + CELL_W * (double)e.layers));
    *ret_h = fmin(max_h, fmax(20, BELOW + CELL_H * (double)e.heads));
}

static void cell(struct canvas *c, const struct kind_cell *k, double x, double y, double w,
                 double h)
{
    canvas_cell(c, x, y, w, h, k->fill);
    if (w >= SIGN_W && h >= SIGN_H && k->sign[0] && canvas_text_width(c, k->sign, PT_SMALL, 0) <= w)
        canvas_text(c, x + w / 2, y + h / 2, k->sign, PT_SMALL, ALIGN_CENTER, ink_on(k->fill), 0);
}

void kindmap_draw(struct canvas *c, const struct kindmap *m, double x, double y, double w, double h)
{
    struct extent e = extent_of(m);
    double left = x + LEFT, mw = w - LEFT, mh = h - BELOW;
    double cw = mw / (double)e.layers, ch = mh / (double)e.heads;
    for (int64_t i = 0; i < m->n; i++)
        cell(c, &m->cell[i], left + (double)(m->cell[i].layer - e.layer0) * cw,
             y + (double)(m->cell[i].index - e.head0) * ch, cw, ch);
    if (cw > 1.5 && ch > 1.5) { /* white lines between cells */
        for (int64_t k = 1; k < e.layers; k++) {
            const double xy[] = {left + (double)k * cw, y, left + (double)k * cw, y + mh};
            canvas_line(c, xy, 2, 0.15, (struct rgb){1, 1, 1});
        }
        for (int64_t k = 1; k < e.heads; k++) {
            const double xy[] = {left, y + (double)k * ch, left + mw, y + (double)k * ch};
            canvas_line(c, xy, 2, 0.15, (struct rgb){1, 1, 1});
        }
    }
    for (int64_t i = 0; i < m->n; i++)
        if (m->cell[i].framed)
            canvas_frame(c, left + (double)(m->cell[i].layer - e.layer0) * cw,
                         y + (double)(m->cell[i].index - e.head0) * ch, cw, ch, 0.55, ink);
    canvas_frame(c, left, y, mw, mh, 0.18, ink);
    layermap_numbers(c, e.head0, e.heads, left - 1.3, y, 0, ch);
    layermap_numbers(c, e.layer0, e.layers, left, y + mh + 2.3, cw, 0);
    canvas_text(c, left + mw / 2, y + mh + 5.8, "layer", PT_LABEL, ALIGN_CENTER, ink, 0);
    canvas_text(c, left - 8, y + mh / 2, m->query ? "query head" : "KV head", PT_LABEL,
                ALIGN_CENTER, ink, 1);
}

double kindmap_key(struct canvas *c, double x, double y, struct rgb fill, const char *sign,
                   const char *text)
{
    char fit[128];
    canvas_rect(c, x, y - SWATCH / 2, SWATCH, SWATCH, fill);
    canvas_frame(c, x, y - SWATCH / 2, SWATCH, SWATCH, 0.1, (struct rgb){.6, .6, .6});
    if (canvas_text_width(c, sign, PT_SMALL, 0) <= SWATCH)
        canvas_text(c, x + SWATCH / 2, y, sign, PT_SMALL, ALIGN_CENTER, ink_on(fill), 0);
    x += SWATCH + 1.2;
    canvas_text(c, x, y, text_fit_own(c, text, PT_TICK, canvas_width(c) - x - 0.5, fit, sizeof fit),
                PT_TICK, ALIGN_LEFT, ink, 0);
    return y + LINE;
}
