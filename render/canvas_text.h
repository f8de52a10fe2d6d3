/* canvas_text.h - draws running text: paragraphs that are shaped and broken into lines before they
 * are coloured.
 *
 * Colours do not affect the layout.  Joined letters, combining marks and emoji of several code
 * points are shaped correctly even if a token ends within them.  The layout reports the bytes of
 * each drawn piece, a cluster of glyphs that cannot be split.  The caller then chooses the look of
 * each piece. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "render/canvas.h"

enum text_direction { TEXT_NEUTRAL, TEXT_LTR, TEXT_RTL };

/* LEFT-TO-RIGHT ISOLATE and POP DIRECTIONAL ISOLATE. Text between them keeps its direction and does
 * not affect the direction of the line. */
#define TEXT_ISOLATE "\xe2\x81\xa6"
#define TEXT_ISOLATE_END "\xe2\x81\xa9"

/* Returns the direction of the first letter that has one, outside isolates. */
enum text_direction text_direction_of(const char *s, size_t n);

/* Sets start[i] = 1 if byte i begins a user-perceived character, else 0. s: valid UTF-8; start:
 * [n]. */
void text_characters(const char *s, size_t n, unsigned char *start);

struct paragraph;

/* Lays out n bytes of valid UTF-8 without control characters, n < 2^30, in lines of `width` mm.
 * bold: [n], 1 if the byte is bold, or NULL for no bold text; it may change only at the start of a
 * character.  dir: TEXT_NEUTRAL means TEXT_LTR. Returns KVF_OK or KVF_E_NOMEM. */
int paragraph_create(struct canvas *c, const char *s, size_t n, const unsigned char *bold,
                     double pt, double width, enum text_direction dir, struct paragraph **ret);
void paragraph_destroy(struct paragraph *p); /* accepts NULL */

int paragraph_lines(const struct paragraph *p);              /* 1 or more */
size_t paragraph_start(const struct paragraph *p, int line); /* first byte of the line */

/* A cluster of bytes [from, to) that is drawn as a unit, at x mm from the left edge of the
 * paragraph. */
struct text_piece {
    size_t from, to;
    double x, w;
};
/* Returns the number of pieces of a line, or -1 without memory.  *ret lists them from left to
 * right, borrowed until the next call for this paragraph. */
int paragraph_pieces(struct paragraph *p, int line, const struct text_piece **ret);

/* The look of a piece. */
struct text_look {
    struct rgb ink, fill;
    bool filled;     /* fill the background */
    bool hatched;    /* grey hatches over the fill */
    bool underlined; /* in ink */
    bool dot;        /* a dot in the middle, in ink: for white space */
};
/* Draws a line with its baseline at y. look: one per piece of the line. */
void paragraph_draw(struct canvas *c, struct paragraph *p, int line, double x, double y,
                    const struct text_look *look);

/* Starts another page of the same size.  Returns false if the format has no pages (only PDF
 * has). */
bool canvas_new_page(struct canvas *c);
bool canvas_has_pages(const struct canvas *c);
