/* fig_dilution_map.c - layer x head map of the attention that goes past useful entries. */
#include "render/figures.h"
#include "render/headmap.h"

static const struct headmap map = {
    .figure = "dilution-map",
    .values = "dilution|useful_mass|rho_u|rho_d|dilution_retained|bound|"
              "dilution_oracle|useful_entries",
    .label = "dilution",
};

static const char *const needs[] = {"head", "layer", "index", "step", "dilution", NULL};

HEADMAP_FIGURE(fig_dilution_map, "dilution-map", "dilution",
               "layer x head map of the attention that goes past useful entries", map, needs);
