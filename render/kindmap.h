/* kindmap.h - draws a layer x head map of head types, with a colour and a letter per head, so it is
 * readable in grey. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "render/axis.h"

/* The cell of one head. */
struct kind_cell {
    int64_t layer, index;
    struct rgb fill;
    char sign[8]; /* drawn if the cells are large enough */
    bool framed;  /* thick frame */
};

/* The heads of a map. */
struct kindmap {
    const struct kind_cell *cell;
    int64_t n;
    bool query; /* query heads instead of KV heads */
};

/* Computes the size in mm of the map with its axes.  Cells are 2.7 x 3.2 mm unless the map would
 * exceed max_w x max_h. */
void kindmap_size(const struct kindmap *m, double max_w, double max_h, double *ret_w,
                  double *ret_h);
/* Draws the map with its axes and their names into the rectangle. */
void kindmap_draw(struct canvas *c, const struct kindmap *m, double x, double y, double w,
                  double h);

/* Draws a key entry, a swatch with its letter and a text.  Returns the y of the next line. */
double kindmap_key(struct canvas *c, double x, double y, struct rgb fill, const char *sign,
                   const char *text);
