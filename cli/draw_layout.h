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

/* An operand of `kvfate draw`, in its parts. */
enum { DRAW_PATH = 4096 };
struct draw_operand {
    char path[DRAW_PATH];
    const struct figure *figure; /* NULL: none was named */
    const char *option;          /* its keys, borrowed from the operand; NULL: none */
};
/* Divides "TABLE@FIGURE:KEY=VALUE,..." behind the last '@' that a figure's name follows.  What
 * stands behind a '@' and is no figure is KVF_E_ARG, unless a file is called so. */
int draw_operand(const char *text, struct draw_operand *ret, struct kvf_diag *d);

/* Reads the tables and draws the page into path.  KVF_OK or an error with a sentence. */
int draw_layout_write(const struct draw_layout *x, const struct figure_style *s, const char *path,
                      struct kvf_diag *d);

#endif
