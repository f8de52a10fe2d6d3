/* canvas_impl.h - the inside of a canvas: for canvas.c and canvas_file.c, and through canvas_inner
 * for canvas_text.c, which lays out text with pango. */
#ifndef KVF_RENDER_CANVAS_IMPL_H
#define KVF_RENDER_CANVAS_IMPL_H

#include <stdbool.h>

#include "render/ansi.h"
#include "render/canvas.h"
#include "render/svg_text.h"

struct _PangoContext;
struct _PangoFontDescription;
struct _PangoLayout;

/* What a canvas was before a panel of it became the canvas. */
struct canvas_page {
    double w, h, dx, dy;
    bool divided; /* a panel is the canvas */
};

struct canvas {
    enum canvas_format format;
    double w, h, pixel;
    struct _cairo_surface *surface;
    struct _cairo *cr;
    struct _PangoFontDescription *font;
    struct _PangoLayout *layout; /* of the text at hand */
    struct buf bytes;            /* of PDF */
    struct ansi ansi;            /* text, for terminals; the surface has the pixels */
    struct svg svg;              /* what is drawn, for SVG; the surface then measures text alone */
    struct canvas_page page;
    char *title, *keywords;
    int threads; /* of the writing of PNG */
    bool cut;    /* see canvas_cut */
    bool *boxes; /* borrowed: see canvas_boxes; NULL: nobody asks */
    int err;
};

static inline bool is_svg(const struct canvas *c)
{
    return c->format == CANVAS_SVG;
}

static inline bool is_ansi(const struct canvas *c)
{
    return c->format == CANVAS_ANSI;
}

/* Appends s; bytes that are no UTF-8 become visible marks. */
void canvas_clean(struct buf *b, const char *s);

/* What a canvas lends to those who lay out text; all of it is borrowed. */
struct canvas_inner {
    struct _cairo *cr;                        /* in mm */
    struct _PangoContext *context;            /* with the font options of the canvas */
    const struct _PangoFontDescription *font; /* without size and weight */
    struct svg *svg;                          /* where to draw instead of cr; NULL: on cr */
    bool cells;                               /* a terminal: pieces go to canvas_word */
    bool *boxes;                              /* see canvas_boxes; NULL: nobody asks */
};
struct canvas_inner canvas_inner(struct canvas *c);

#endif
