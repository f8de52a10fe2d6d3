/* fig_survival_map.c - layer x head map of the survival at one horizon (DBTrimKV, figure 2b). */
#include "render/figures.h"
#include "render/headmap.h"

static const struct headmap map = {
    .figure = "survival-map",
    .values = "fraction|half_life",
    .label = "survival",
    .filter = {{"criterion", NULL, 0}, {"horizon", NULL, 0.25}, {"class", "all", 0}},
};

static const char *const needs[] = {"head",    "layer",    "index", "criterion",
                                    "horizon", "fraction", NULL};

HEADMAP_FIGURE(fig_survival_map, "survival-map", "survival",
               "layer x head map of the survival at one horizon", map, needs);
