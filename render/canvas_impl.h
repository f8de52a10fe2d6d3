/* canvas_impl.h - the internal state of a canvas, for canvas.c and canvas_file.c.
 *
 * canvas_text.c uses canvas_inner to lay out text with pango. */
#pragma once

#include <stdbool.h>

#include "render/ansi.h"
#include "render/canvas.h"
#include "render/svg_text.h"

struct _PangoContext;
struct _PangoFontDescription;
struct _PangoLayout;

/* The size and origin of a canvas before canvas_panel changed them. */
struct canvas_page {
    double w, h, dx, dy;
    bool divided; /* a panel is open */
};

/* A canvas of one format with its drawing surface. */
struct canvas {
    enum canvas_format format;
    double w, h, pixel;
    struct _cairo_surface *surface;
    struct _cairo *cr;
    struct _PangoFontDescription *font;
    struct _PangoLayout *layout; /* of the text being drawn */
    struct buf bytes;            /* of PDF */
    struct ansi ansi;            /* text layer for terminals; the surface has the pixels */
    struct svg svg;              /* SVG output; the surface then only measures text */
    struct canvas_page page;
    char *title, *keywords;
    int threads; /* for PNG compression */
    bool cut;    /* see canvas_cut */
    bool *boxes; /* borrowed: see canvas_boxes; may be NULL */
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

/* Appends s, with visible marks for bytes that are not valid UTF-8. */
void canvas_clean(struct buf *b, const char *s);

/* The parts of a canvas that text layout uses, all borrowed. */
struct canvas_inner {
    struct _cairo *cr;                        /* in mm */
    struct _PangoContext *context;            /* with the font options of the canvas */
    const struct _PangoFontDescription *font; /* without size and weight */
    struct svg *svg;                          /* draws text if not NULL, else cr does */
    bool cells;                               /* a terminal: canvas_word draws the pieces */
    bool *boxes;                              /* see canvas_boxes; may be NULL */
};
struct canvas_inner canvas_inner(struct canvas *c);
