/* sentence.h - draws a sentence in place of a picture that would show one colour, and a note below
 * a picture. */
#pragma once

#include "base/table.h"

struct canvas;

enum { SENTENCES = 1024 }; /* bytes of a text */

/* Computes the size in mm of a figure that consists of the lines of a text. */
void sentence_size(const char *text, double *ret_w, double *ret_h);

/* Draws the lines of a text in the middle of the canvas, broken at spaces.  Returns KVF_E_ARG with
 * a message if the canvas is too small. */
int sentence_draw(struct canvas *c, const char *figure, const char *text, struct kvf_diag *d);

/* Returns the height in mm that a note of lines of at most `room` mm needs.  It is estimated from
 * the number of letters, because a figure chooses its size before it has a canvas. */
double note_height(const char *text, double room);

/* Draws a note as grey lines, broken at spaces and line ends, from (x, y) down. */
void note_draw(struct canvas *c, const char *text, double x, double y, double room);

/* Writes the model, the method and the budget of a table, such as "SmolLM2, h2o, budget 64".
 * Missing parts are left out, and so are the method of several traces, and a budget that the text
 * does not exceed. */
enum { ABOUT_RUN = 192 };
void about_run(const struct table *t, char out[ABOUT_RUN]);
