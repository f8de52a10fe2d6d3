/* sentence.h - draws a sentence in place of a picture that would show one colour, and a note below
 * a picture. */
#pragma once

#include "base/table.h"

struct canvas;
struct figure_style;

enum { SENTENCES = 1024 }; /* bytes of a text */

/* Computes the size in mm of a figure that consists of the lines of a text. */
void sentence_size(const char *text, double *ret_w, double *ret_h);

/* Draws the lines of a text in the middle of the canvas, broken at spaces.  Returns KVF_E_ARG with
 * a message if the canvas is too small. */
int sentence_draw(struct canvas *c, const char *figure, const char *text, struct kvf_diag *d);

/* Returns the height in mm of a note in lines of at most `room` mm, which note_lines_draw draws. */
double note_height(struct canvas *c, const char *text, double room);
/* Returns that height for the font of a style, for a figure that chooses its size. */
double note_height_of(const struct figure_style *s, const char *text, double room);

/* Draws a note as grey lines, broken at spaces and line ends, from (x, y) down. */
void note_lines_draw(struct canvas *c, const char *text, double x, double y, double room);

/* Writes the model, the method and the budget of a table, such as "SmolLM2, h2o, budget 64".
 * Missing parts are left out, and so are the method of several traces, and a budget that the text
 * does not exceed.  Control characters become blanks. */
enum { ABOUT_RUN = 192 };
void about_run(const struct table *t, char out[ABOUT_RUN]);
