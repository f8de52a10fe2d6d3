/* draw_layout.h - `kvfate draw --layout`: draws saved tables as the panels of one page. */
#ifndef KVF_CLI_DRAW_LAYOUT_H
#define KVF_CLI_DRAW_LAYOUT_H

#include "render/layout.h"

/* The layout of a page and its panels. */
struct draw_layout {
    const char *mosaic;
    enum layout_letters letters;
    int n;              /* 1 .. LAYOUT_PANELS */
    char *const *panel; /* "TABLE", "TABLE@FIGURE" or "TABLE@FIGURE:KEY=VALUE,..." */
};

/* An operand of `kvfate draw`, split into its parts. */
enum { DRAW_PATH = 4096 };
struct draw_operand {
    char path[DRAW_PATH];
    const struct figure *figure; /* NULL if the operand names no figure */
    const char *option; /* the style keys, borrowed from the operand; NULL if it has no keys */
};
/* Splits "TABLE@FIGURE:KEY=VALUE,..." at the last '@' if the name of a figure follows it. Returns
 * KVF_E_ARG with a sentence if another name follows the '@' and no file has the name `text`;
 * otherwise KVF_OK. */
int draw_operand(const char *text, struct draw_operand *ret, struct kvf_diag *d);

/* Reads the tables and draws the page to path. Returns KVF_OK or an error with a sentence. */
int draw_layout_write(const struct draw_layout *x, const struct figure_style *s, const char *path,
                      struct kvf_diag *d);

#endif
