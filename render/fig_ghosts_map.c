/* fig_ghosts_map.c - layer x head map of later use of evicted entries. */
#include "render/figures.h"
#include "render/headmap.h"

static const struct headmap map = {
    .figure = "ghosts-map",
    .values = "hits|mass",
    .label = "queries that would use it",
};

static const char *const needs[] = {"head", "layer", "index", "hits", "mass", NULL};

HEADMAP_FIGURE(fig_ghosts_map, "ghosts-map", "ghosts",
               "layer x head map of later use of evicted entries", map, needs);
