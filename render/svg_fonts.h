/* svg_fonts.h - subsets and embeds the fonts that SVG text uses. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"

struct hb_face_t;
struct hb_font_t;
struct hb_set_t;
struct _PangoFont;

/* One font face. */
struct svg_face {
    struct hb_face_t *face;
    struct hb_font_t *font; /* in units of the face */
    struct hb_set_t *chars; /* used characters; every writer of text adds its characters */
    char *family;
    int weight;
    bool italic, embeds; /* embeds: the outlines and the licence allow embedding */
};

struct svg_fonts;

/* Returns the face of a Pango font, borrowed from *fonts, which is created if NULL. Returns NULL
 * without memory or with too many faces. */
struct svg_face *svg_font_of(struct svg_fonts **fonts, struct _PangoFont *font);

void svg_fonts_destroy(struct svg_fonts *f); /* accepts NULL */
/* Appends <style> with all fonts of the text; appends no bytes if f is NULL. Returns KVF_OK or an
 * error. */
int svg_fonts_write(const struct svg_fonts *f, struct buf *out);
