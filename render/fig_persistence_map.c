/* fig_persistence_map.c - layer x head map of how often tokens are selected at one age. */
#include "render/figures.h"
#include "render/headmap.h"

static const struct headmap map = {
    .figure = "persistence-map",
    .values = "shrunk|rate|strength",
    .label = "selected",
    .filter = {{"criterion", NULL, 0}, {"age", NULL, 0.25}, {"class", "all", 0}},
};

static const char *const needs[] = {"head", "layer", "index", "age", "shrunk", NULL};

HEADMAP_FIGURE(fig_persistence_map, "persistence-map", "persistence",
               "layer x head map of how often tokens are selected at one age", map, needs);
