/* fig_intermittency_map.c - layer x head map of how attention comes and goes. */
#include "render/figures.h"
#include "render/headmap.h"

static const struct headmap map = {
    .figure = "intermittency-map",
    .values = "share|mean|q50|q90|q99|most",
    .label = "share of tokens",
    .filter = {{"criterion", NULL, 0},
               {"quantity", "returns", 0},
               {"above", NULL, 0},
               {"class", "all", 0}},
};

static const char *const needs[] = {"head", "layer", "index", "quantity", "above", "share", NULL};

HEADMAP_FIGURE(fig_intermittency_map, "intermittency-map", "intermittency",
               "layer x head map of how attention comes and goes", map, needs);
