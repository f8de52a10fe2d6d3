/* ansi.h - draws pictures on a terminal, where a cell shows two stacked pixels or a character.
 *
 * A pixel is ANSI_PIXEL mm wide and high.  Text of the usual size then uses one cell per character
 * and one row per line. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "render/canvas.h"

#define ANSI_PIXEL 1.4

/* One character cell of the terminal. */
struct ansi_cell {
    char text[5]; /* UTF-8 bytes; "" if the cell shows pixels */
    uint32_t rgb; /* colour of the character */
    bool plain;   /* use the terminal's own text colour */
    bool word;    /* part of running text; without colours, marks replace the background colour */
    char side;    /* side of a frame: 'l', 'r', 't' or 'b'; drawn if the cell is otherwise empty */
    bool taken;   /* occupied, also by the second half of a wide character */
};

/* The text layer of a terminal picture. */
struct ansi {
    int cols, rows;
    bool shades;            /* no colours: draw five shades */
    bool words;             /* the next texts are running text */
    struct ansi_cell *cell; /* [rows][cols], owned */
};

/* Allocates the cells for a picture of w_mm x h_mm.  Returns KVF_OK or KVF_E_NOMEM. */
int ansi_init(struct ansi *a, double w_mm, double h_mm);
/* Frees the cells. */
void ansi_finish(struct ansi *a);

/* Returns the width of UTF-8 text in cells. */
int ansi_width(const char *s);

/* Writes text into a row from column `col` on, or downwards in that column if `down` is true.  Text
 * that does not fit into free cells is left out completely. */
void ansi_text(struct ansi *a, int col, int row, const char *s, struct rgb colour, bool down);

/* Draws the sides of a rectangle given in pixels. */
void ansi_frame(struct ansi *a, double x, double y, double w, double h);

/* Draws an image [h][w] with premultiplied alpha into a rectangle given in pixels.  Each pixel is
 * the area-weighted mean of the image inside it.  x, y, wide, high: pixels. */
void ansi_image(uint32_t *to, int w, int h, int stride, double x, double y, double wide,
                double high, const uint32_t *from, int cols, int rows);

/* Appends the picture as lines of text with escape codes.  pixels: [2 * rows][cols], rows `stride`
 * pixels apart. */
void ansi_write(const struct ansi *a, const uint32_t *pixels, int stride, struct buf *out);
