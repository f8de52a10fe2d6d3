/* draw_layout.h - `kvfate draw --layout`: saved tables as panels of a page. */
#ifndef KVF_CLI_DRAW_LAYOUT_H
#define KVF_CLI_DRAW_LAYOUT_H

#include "render/layout.h"

struct draw_layout {
    const char *mosaic;
    enum layout_letters letters;
    int n;              /* 1 .. LAYOUT_PANELS */
    char *const *panel; /* "TABLE", "TABLE@FIGURE" or "TABLE@FIGURE:KEY=VALUE,..." */
};

/* Reads the tables and draws the page into path.  KVF_OK or an error with a sentence. */
int draw_layout_write(const struct draw_layout *x, const struct figure_style *s, const char *path,
                      struct kvf_diag *d);

#endif
