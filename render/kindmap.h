/* kindmap.h - layer x head map of kinds: a colour and a sign for each head, so that it reads
 * in grey, too. */
#ifndef KVF_RENDER_KINDMAP_H
#define KVF_RENDER_KINDMAP_H

#include <stdbool.h>
#include <stdint.h>

#include "render/axis.h"

struct kind_cell {
    int64_t layer, index;
    struct rgb fill;
    char sign[8]; /* drawn where cells have room for it */
    bool framed;  /* with a thick frame */
};

struct kindmap {
    const struct kind_cell *cell;
    int64_t n;
    bool query; /* query heads, not KV heads */
};

/* mm that the map takes with its axes: cells of 2.7 x 3.2 mm as long as it has at most
 * most_w x most_h. */
void kindmap_size(const struct kindmap *m, double most_w, double most_h, double *ret_w,
                  double *ret_h);
/* Draws the map into the rectangle, axes and their names included. */
void kindmap_draw(struct canvas *c, const struct kindmap *m, double x, double y, double w,
                  double h);

/* Draws an entry of the key, a swatch with its sign and a text; returns the y of the next line. */
double kindmap_key(struct canvas *c, double x, double y, struct rgb fill, const char *sign,
                   const char *text);

#endif
