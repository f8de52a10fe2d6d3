/* svg_text.h - text of SVG: <text> elements placed as Pango placed the glyphs, in fonts that
 * are subset to what is used and embedded.
 *
 * What such text cannot hold is drawn instead: runs from right to left, ligatures, marks, and
 * characters without a glyph as outlines, glyphs that are bitmaps (emoji) as pictures. */
#ifndef KVF_RENDER_SVG_TEXT_H
#define KVF_RENDER_SVG_TEXT_H

#include "render/svg.h"

struct _cairo;
struct _PangoLayout;

struct svg_place {
    double x, y;   /* mm: what the text is turned around */
    int turn;      /* quarter turns to the left */
    double dx, dy; /* from there to the left end of the baseline, before the turn */
};

/* Adds the text of a layout, which is in mm; cr serves for outlines. */
void svg_text(struct svg *s, struct _cairo *cr, struct _PangoLayout *layout,
              const struct svg_place *at, double pt, struct rgb colour);

/* Glyphs of one item of text, from the left end of their baseline. */
struct _PangoGlyphItem;
void svg_glyphs(struct svg *s, struct _cairo *cr, const char *text,
                const struct _PangoGlyphItem *item, double x, double y, double pt,
                struct rgb colour);

#endif
