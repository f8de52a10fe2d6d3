/* canvas_text.h - running text on a canvas: paragraphs that are shaped and broken into lines
 * as a whole, whatever the colours of their parts.
 *
 * Letters that join, marks that combine and emoji made of several code points come out
 * right though a token ends within them: colours do not enter into the layout.  The layout
 * says which bytes each drawn piece (a cluster of glyphs that cannot be taken apart) stands
 * for, and the caller then chooses the look of each piece. */
#ifndef KVF_RENDER_CANVAS_TEXT_H
#define KVF_RENDER_CANVAS_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "render/canvas.h"

enum text_direction { TEXT_NEUTRAL, TEXT_LTR, TEXT_RTL };

/* LEFT-TO-RIGHT ISOLATE and POP DIRECTIONAL ISOLATE: what stands between them keeps its own
 * direction and has none for the line. */
#define TEXT_ISOLATE "\xe2\x81\xa6"
#define TEXT_ISOLATE_END "\xe2\x81\xa9"

/* Direction of the first letter that has one, isolates left out. */
enum text_direction text_direction_of(const char *s, size_t n);

/* start[i] = 1 where byte i begins what readers take for one character, else 0.  s: valid
 * UTF-8; start: [n]. */
void text_characters(const char *s, size_t n, unsigned char *start);

struct paragraph;

/* Lays out n bytes of valid UTF-8 without control characters, n < 2^30, in lines of a width
 * in mm.  bold: [n], 1 where the byte is bold; its changes must be at characters.  NULL: none.
 * dir TEXT_NEUTRAL is TEXT_LTR.  KVF_OK or KVF_E_NOMEM. */
int paragraph_create(struct canvas *c, const char *s, size_t n, const unsigned char *bold,
                     double pt, double width, enum text_direction dir, struct paragraph **ret);
void paragraph_destroy(struct paragraph *p); /* accepts NULL */

int paragraph_lines(const struct paragraph *p);              /* 1 or more */
size_t paragraph_start(const struct paragraph *p, int line); /* its first byte */

/* What is drawn as one: bytes [from, to) of the paragraph, at x mm from its left edge. */
struct text_piece {
    size_t from, to;
    double x, w;
};
/* The pieces of a line from left to right: *ret is borrowed until the next call for this
 * paragraph.  Their number; -1: no memory. */
int paragraph_pieces(struct paragraph *p, int line, const struct text_piece **ret);

struct text_look {
    struct rgb ink, fill;
    bool filled;     /* fill is drawn behind it */
    bool hatched;    /* grey hatches over the fill */
    bool underlined; /* in ink */
    bool dot;        /* a dot in its middle, in ink: for white space */
};
/* Draws a line with its baseline at y; look: one for each of its pieces. */
void paragraph_draw(struct canvas *c, struct paragraph *p, int line, double x, double y,
                    const struct text_look *look);

/* A further page of the same size, where the format has pages (PDF); else false. */
bool canvas_new_page(struct canvas *c);
bool canvas_has_pages(const struct canvas *c);

#endif
