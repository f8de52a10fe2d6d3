/* fig_sparsity.c - layer x head map of the sparsity (TRIM-KV, figure 5c). */
#include "render/figures.h"
#include "render/headmap.h"

static const struct headmap map = {
    .figure = "sparsity",
    .values = "sparsity",
    .label = "sparsity",
    .filter = {{"kind", NULL, 0}},
};

static const char *const needs[] = {"head", "layer", "index", "kind", "sparsity", NULL};

HEADMAP_FIGURE(fig_sparsity, "sparsity", "sparsity", "layer x head map of the sparsity", map,
               needs);
