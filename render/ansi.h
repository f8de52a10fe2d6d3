/* ansi.h - pictures for terminals: a cell shows two pixels, one above the other, or a
 * character.  A pixel is ANSI_PIXEL mm wide and high, so that text of the usual size takes a
 * cell a character and a line a row. */
#ifndef KVF_RENDER_ANSI_H
#define KVF_RENDER_ANSI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "render/canvas.h"

#define ANSI_PIXEL 1.4

struct ansi_cell {
    char text[5]; /* of UTF-8; "": pixels */
    uint32_t rgb; /* of the character */
    bool plain;   /* in the terminal's own colour */
    bool word;    /* of running text: without colours, marks stand for what is behind it */
    char side;    /* of a frame: 'l', 'r', 't' or 'b'; seen where nothing else is */
    bool taken;   /* also the second half of a wide character */
};

struct ansi {
    int cols, rows;
    bool shades;            /* no colours: five shades */
    bool words;             /* the text to come is running text */
    struct ansi_cell *cell; /* [rows][cols] */
};

int ansi_init(struct ansi *a, double w_mm, double h_mm); /* KVF_OK, KVF_E_NOMEM */
void ansi_finish(struct ansi *a);

/* Width of UTF-8 text in cells. */
int ansi_width(const char *s);

/* Text from a column on in a row, or down a column where `down`; what does not fit into free
 * cells is left out as a whole. */
void ansi_text(struct ansi *a, int col, int row, const char *s, struct rgb colour, bool down);

/* Draws the sides of a rectangle given in pixels. */
void ansi_frame(struct ansi *a, double x, double y, double w, double h);

/* Draws an image [h][w], whose colours are multiplied by alpha, into a rectangle of pixels: each
 * pixel takes the mean, by area, of what of the image lies in it.  x, y, wide, high in pixels. */
void ansi_image(uint32_t *to, int w, int h, int stride, double x, double y, double wide,
                double high, const uint32_t *from, int cols, int rows);

/* Appends the picture as lines of text with escape codes.  pixels: [2 * rows][cols]. */
void ansi_write(const struct ansi *a, const uint32_t *pixels, int stride, struct buf *out);

#endif
