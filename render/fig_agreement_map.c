/* fig_agreement_map.c - layer x head map of how far gates agree. */
#include "render/figures.h"
#include "render/headmap.h"

static const struct headmap map = {
    .figure = "agreement-map",
    .values = "rho|overlap|kept",
    .label = "rank correlation",
    .panel = "b",
    .filter = {{"a", .word = "of trace", .about = "trace_"},
               {"b", .word = "with trace", .about = "trace_"}},
};

static const char *const needs[] = {"head", "layer", "index", "rho", "overlap", NULL};

HEADMAP_FIGURE(fig_agreement_map, "agreement-map", "agreement",
               "layer x head map of how far gates agree", map, needs);
