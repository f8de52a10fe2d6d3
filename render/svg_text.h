/* svg_text.h - writes SVG text: <text> elements at Pango's glyph positions, in fonts that are
 * subset and embedded.
 *
 * Some text cannot be an element.  Right-to-left runs, ligatures, marks and characters without a
 * glyph are drawn as outlines.  Bitmap glyphs (emoji) are drawn as pictures. */
#pragma once

#include "render/svg.h"

struct _cairo;
struct _PangoLayout;

/* The position of a text. */
struct svg_place {
    double x, y;   /* mm: centre of rotation */
    int turn;      /* quarter turns to the left */
    double dx, dy; /* offset to the left end of the baseline before the turn */
};

/* Appends the text of a layout, which is in mm; cr computes outlines. */
void svg_text(struct svg *s, struct _cairo *cr, struct _PangoLayout *layout,
              const struct svg_place *at, double pt, struct rgb colour);

/* Appends the glyphs of one text item. x, y: the left end of their baseline. */
struct _PangoGlyphItem;
void svg_glyphs(struct svg *s, struct _cairo *cr, const char *text,
                const struct _PangoGlyphItem *item, double x, double y, double pt,
                struct rgb colour);
