/* svg_fonts.h - the fonts that the text of an SVG names: cut down to the characters used, and
 * embedded. */
#ifndef KVF_RENDER_SVG_FONTS_H
#define KVF_RENDER_SVG_FONTS_H

#include <stdbool.h>

#include "base/buf.h"

struct hb_face_t;
struct hb_font_t;
struct hb_set_t;
struct _PangoFont;

struct svg_face {
    struct hb_face_t *face;
    struct hb_font_t *font; /* in units of the face */
    struct hb_set_t *chars; /* used so far; whoever writes a character adds it */
    char *family;
    int weight;
    bool italic, embeds; /* embeds: its outlines and its licence let it be embedded */
};

struct svg_fonts;

/* The face of a font of Pango, borrowed from *fonts, which is made when it is NULL; NULL: there
 * are too many faces, or no memory. */
struct svg_face *svg_font_of(struct svg_fonts **fonts, struct _PangoFont *font);

void svg_fonts_destroy(struct svg_fonts *f); /* accepts NULL */
/* <style> with all fonts of the text; nothing where f is NULL. */
int svg_fonts_write(const struct svg_fonts *f, struct buf *out);

#endif
