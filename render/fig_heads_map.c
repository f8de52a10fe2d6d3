/* fig_heads_map.c - layer x head map of one column of the evidence of kinds. */
#include "render/figures.h"
#include "render/headmap.h"

static const struct headmap map = {
    .figure = "heads-map",
    .values = "score|sink_mass|recent|window|spread|last_use|never|uneven|top_tenth|"
              "entropy|number|gist|filler|prompt|residence|last_use_sparsity",
    .label = "score of its kind",
};

static const char *const needs[] = {"head", "layer", "index", "kind", "score", NULL};

HEADMAP_FIGURE(fig_heads_map, "heads-map", "heads",
               "layer x head map of one column of the evidence of kinds", map, needs);
