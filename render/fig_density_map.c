/* fig_density_map.c - where in the text the entries of each head lie, in the mean. */
#include "render/figures.h"
#include "render/headmap.h"

static const struct headmap map = {
    .figure = "density-map",
    .values = "mean",
    .label = "mean place of what is held",
};

static const char *const needs[] = {"head", "layer", "index", "mean", NULL};

HEADMAP_FIGURE(fig_density_map, "density-map", "density",
               "where in the text the entries of each head lie, in the mean", map, needs);
