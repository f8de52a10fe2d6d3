/* note.h - the small grey note of a figure names the run and explains marks.  It is a text of parts
 * with "; " between them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct canvas;
struct figure_style;
struct table;

enum { NOTE_TEXT = 640, NOTE_RUN = 320, NOTE_MOST = 8 }; /* bytes, bytes, lines */

/* Writes the run of a table, from its metadata: "SmolLM2-135M-Instruct; h2o, budget 64; 1,046
 * tokens", of a range "100 of 1,046 tokens", of several texts "294 to 1,046 tokens".  Options and
 * overrides follow the budget.  Parts without metadata are left out, also those in which traces
 * differ, but "several models" is written.  Returns out. */
const char *note_run(const struct table *t, char out[NOTE_RUN]);
/* Writes that text without the number of tokens. */
const char *note_method(const struct table *t, char out[NOTE_RUN]);

/* Writes a number as in axes, but with a comma from 1,000 on. */
void note_number(double v, char out[24]);

/* Appends a part to a note.  An empty part is left out. */
void note_add(char note[NOTE_TEXT], const char *part);
/* Keeps only the common parts of two notes in the first one, or removes them from it. */
void note_parts(char *note, const char *other, bool common);

/* Where and how a note is drawn. */
struct note {
    double left, right; /* bounds of the lines in mm */
    double middle; /* lines have their middle here if the bounds allow it; 0: they begin at left */
    double pt, pitch; /* font size; mm from line to line; 0: PT_SMALL; 3 */
    int most;         /* lines; 0: NOTE_MOST */
    bool shorten;     /* a text that is too long loses its last parts; this is no error */
};
/* Returns the place of one line below axes, with its middle at x.  It is moved if it would reach
 * the name of the y axis or cross `right`.  Last parts are left out if it is too long. */
struct note note_below(double x, double right);
/* Returns the height in mm of the lines of a text.  c NULL: measures with the font of style s. */
double note_height(struct canvas *c, const struct figure_style *s, const struct note *n,
                   const char *text);
/* Draws a text with the middle of its first line at y.  Lines end at '\n', after parts, or at
 * spaces if a part is too long.  Text that does not fit is cut and reported to canvas_cut(). */
void note_draw(struct canvas *c, const struct note *n, double y, const char *text);
/* Draws a text with the middle of its last line at y. */
void note_draw_up(struct canvas *c, const struct note *n, double y, const char *text);
