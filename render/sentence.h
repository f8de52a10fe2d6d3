/* sentence.h - draws a sentence in place of a picture that would show one colour. */
#pragma once

#include "base/table.h"

struct canvas;

enum { SENTENCES = 1024 }; /* bytes of a text */

/* Computes the size in mm of a figure that consists of the lines of a text. */
void sentence_size(const char *text, double *ret_w, double *ret_h);

/* Draws the lines of a text in the middle of the canvas, broken at spaces.  Returns KVF_E_ARG with
 * a message if the canvas is too small. */
int sentence_draw(struct canvas *c, const char *figure, const char *text, struct kvf_diag *d);
