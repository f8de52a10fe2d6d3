/* fig_eviction.c - draws alpha_ti of selected heads (TRIM-KV, figures 4 and 13): blue if the entry
 * is cached, grey after its eviction. */

#include "render/figures.h"

static struct grid grid_of(const struct table *t)
{
    return (struct grid){.t = t,
                         .fill = grid_ends,
                         .raster = heat_alpha,
                         .event = "evict_step",
                         .label = "share still in the cache, \xce\xb1"};
}

static void size(const struct table *t, const struct figure_style *s, double *w, double *h)
{
    struct grid g = grid_of(t);
    grid_size(&g, s, w, h);
}

static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d)
{
    struct grid g = grid_of(t);
    return grid_draw(c, &g, s, d);
}

const struct figure fig_eviction = {
    .name = "eviction",
    .table = "eviction",
    .summary = "which entries each query still sees, one map per KV head",
    .needs = "head:text layer index token evict_step",
    .style = grid_keys,
    .style_bytes = sizeof(struct grid_style),
    .cmap = "blues",
    .side_by_side = true,
    .size = size,
    .draw = draw,
};
