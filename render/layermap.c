/* layermap.c - one coloured cell per head: layers down, heads across. */
#include <math.h>
#include <stdio.h>

#include "render/figures.h"

enum { LEFT = 14, TOP = 6, RIGHT = 20, BOTTOM = 12 };

static void extent(const struct table *t, int64_t *layers, int64_t *heads)
{
    int layer = table_find(t, "layer"), index = table_find(t, "index");
    *layers = *heads = 1;
    for (int64_t r = 0; r < table_rows(t); r++) {
        int64_t a = table_int(t, layer, r) + 1, b = table_int(t, index, r) + 1;
        *layers = a > *layers ? a : *layers;
        *heads = b > *heads ? b : *heads;
    }
}

void layermap_size(const struct table *t, double *ret_w, double *ret_h)
{
    int64_t layers, heads;
    extent(t, &layers, &heads);
    double cell = fmax(2.2, fmin(6, 110.0 / (double)layers));
    *ret_w = LEFT + RIGHT + fmax(18, fmin(120, cell * 1.6 * (double)heads));
    *ret_h = TOP + BOTTOM + cell * (double)layers;
    if (*ret_h < 45)
        *ret_h = 45;
}

struct value_range {
    double lo, hi;
    int64_t clipped;
};

static struct value_range range_of(const struct table *t, int col,
                                   int (*chosen)(const struct table *, int64_t, const void *),
                                   const void *ctx, const struct figure_style *s)
{
    struct value_range v = {INFINITY, -INFINITY, 0};
    for (int64_t r = 0; r < table_rows(t); r++) {
        double x = table_real(t, col, r);
        if (chosen && !chosen(t, r, ctx))
            continue;
        v.lo = x < v.lo ? x : v.lo;
        v.hi = x > v.hi ? x : v.hi;
    }
    double lo = isnan(s->vmin) ? v.lo : s->vmin, hi = isnan(s->vmax) ? v.hi : s->vmax;
    if (!(hi > lo)) {
        lo = isfinite(lo) ? lo : 0;
        hi = lo + 1;
    }
    for (int64_t r = 0; r < table_rows(t); r++) {
        double x = table_real(t, col, r);
        if (!chosen || chosen(t, r, ctx))
            v.clipped += x < lo || x > hi;
    }
    v.lo = lo;
    v.hi = hi;
    return v;
}

int layermap_draw(struct canvas *c, const struct table *t, const char *value, const char *label,
                  int (*chosen)(const struct table *t, int64_t row, const void *ctx),
                  const void *ctx, const struct figure_style *s)
{
    const struct rgb ink = {0.15, 0.15, 0.15};
    int col = table_find(t, value), layer = table_find(t, "layer"), index = table_find(t, "index");
    int64_t layers, heads;
    char text[64] = "";
    extent(t, &layers, &heads);
    struct value_range v = range_of(t, col, chosen, ctx, s);
    double w = canvas_width(c) - LEFT - RIGHT, h = canvas_height(c) - TOP - BOTTOM;
    double cw = w / (double)heads, ch = h / (double)layers;
    for (int64_t r = 0; r < table_rows(t); r++) {
        int64_t a = table_int(t, layer, r), b = table_int(t, index, r);
        if (a < 0 || b < 0 || (chosen && !chosen(t, r, ctx)))
            continue;
        double x = (table_real(t, col, r) - v.lo) / (v.hi - v.lo);
        canvas_rect(c, LEFT + (double)b * cw, TOP + (double)a * ch, cw, ch, palette_at(s->cmap, x));
    }
    canvas_frame(c, LEFT, TOP, w, h, 0.2, ink);
    int64_t every = layers > 16 ? 5 : 1, across = heads > 12 ? 4 : 1;
    for (int64_t a = 0; a < layers; a += every) {
        snprintf(text, sizeof text, "%lld", (long long)a);
        canvas_text(c, LEFT - 1.2, TOP + ((double)a + 0.5) * ch, text, 6, ALIGN_RIGHT, ink, 0);
    }
    for (int64_t b = 0; b < heads; b += across) {
        snprintf(text, sizeof text, "%lld", (long long)b);
        canvas_text(c, LEFT + ((double)b + 0.5) * cw, TOP + h + 2.2, text, 6, ALIGN_CENTER, ink, 0);
    }
    canvas_text(c, LEFT + w / 2, TOP + h + 6, "head", 7.5, ALIGN_CENTER, ink, 0);
    canvas_text(c, LEFT - 8, TOP + h / 2, "layer", 7.5, ALIGN_CENTER, ink, 1);
    text[0] = 0;
    if (v.clipped)
        snprintf(text, sizeof text, "%lld clipped", (long long)v.clipped);
    colour_bar(c, LEFT + w + 3, TOP, 3, h, s->cmap, v.lo, v.hi, label, text, 6);
    return KVF_OK;
}
