/* fig_kv_size.c - how large the cache of each head is, as layer x head maps (WG-KV, figure 13). */
#include "render/figures.h"
#include "render/headmap.h"

static const struct headmap map = {
    .figure = "kv-size",
    .values = "size|ratio|entries|step",
    .label = "cache, share of all tokens",
    .panel = "at",
    .filter = {{"at", "end", 0}},
};

static const char *const needs[] = {"head", "layer", "index", "at", "size", NULL};

HEADMAP_FIGURE(fig_kv_size, "kv-size", "kv-size",
               "how large the cache of each head is, as layer x head maps", map, needs);
