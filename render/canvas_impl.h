/* canvas_impl.h - the inside of a canvas, for the file that lays out text with pango. */
#ifndef KVF_RENDER_CANVAS_IMPL_H
#define KVF_RENDER_CANVAS_IMPL_H

#include <stdbool.h>

#include "render/ansi.h"
#include "render/canvas.h"
#include "render/svg_text.h"

struct _PangoContext;
struct _PangoFontDescription;

/* Borrowed from the canvas. */
struct canvas_inner {
    struct _cairo *cr;                        /* in mm */
    struct _PangoContext *context;            /* with the font options of the canvas */
    const struct _PangoFontDescription *font; /* without size and weight */
    struct svg *svg;                          /* where to draw instead of cr; NULL: on cr */
    bool cells;                               /* a terminal: pieces go to canvas_word */
};
struct canvas_inner canvas_inner(struct canvas *c);

void canvas_fail(struct canvas *c, int err); /* the first error stays */

#endif
