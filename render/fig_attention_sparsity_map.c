/* fig_attention_sparsity_map.c - layer x head map of the attention sparsity at one p
 * (G-KV, figure 9). */
#include "render/figures.h"
#include "render/headmap.h"

static const struct headmap map = {
    .figure = "attention-sparsity-map",
    .values = "sparsity|share",
    .label = "share under p \xc3\x97 largest",
    .filter = {{"form", NULL, 0}, {"p", NULL, 0}},
};

static const char *const needs[] = {"head", "layer", "index", "p", "sparsity", NULL};

HEADMAP_FIGURE(fig_attention_sparsity_map, "attention-sparsity-map", "attention-sparsity",
               "layer x head map of the attention sparsity at one p", map, needs);
