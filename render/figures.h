/* figures.h - the figures, one file each, and parts that several share. */
#ifndef KVF_RENDER_FIGURES_H
#define KVF_RENDER_FIGURES_H

#include <stdbool.h>

#include "render/axis.h"
#include "render/canvas.h"
#include "render/figure.h"
#include "render/heat.h"
#include "render/palette.h"

#define X(name) extern const struct figure fig_##name;
#define MAP(name) X(name)
#include "render/figures.list"
#include "render/style.h"
#undef MAP
#undef X

/* Colours of a map: the style's range or else [lo, hi] widened where it is empty;
 * counts what the caller reports outside of it. */
struct colour_share;
struct colours {
    const char *map;
    double lo, hi;
    int64_t clipped, of;
    struct colour_share *share;
    bool logs; /* lo and hi are logarithms to base 10; lo stands for all that is smaller, too */
};
/* What maps on one page have in common.  When a page is measured each map leaves here which colours
 * it has and where its bar stands; when it is drawn the range is that of all, and the page has the
 * bar. */
struct colour_share {
    bool measured, common; /* the colours are known; they are those of several maps */
    bool barless, logs;    /* the page has the bar; as in struct colours */
    double lo, hi;
    double room, y, h; /* mm: from the bar to the right rim; of the bar */
    char map[16], label[96];
};
struct colours colours_make(const struct figure_style *s, double lo, double hi);
/* The same for fractions: from 0 to 1, and to values that lie beyond, so that equal fractions have
 * equal colours in every figure. */
struct colours colours_fraction(const struct figure_style *s, double lo, double hi);
/* The same from -reach to reach with 0 in the middle of a diverging map, bluered unless the
 * style names another; of vmin and vmax the one farther from 0 replaces reach.  What
 * colours_make gives for a style with such a map. */
struct colours colours_diverging(const struct figure_style *s, double reach);
double colours_at(struct colours *k, double v); /* 0 .. 1; NaN stays */
/* Says how many values lie outside [lo, hi] and have the colour of the nearer end: "12 values
 * beyond this range", or "0.3 % beyond this range" where `of` says of how many; "" where none does.
 */
enum { COLOURS_NOTE = 64 };
void colours_note(const struct colours *k, char note[COLOURS_NOTE]);
/* Draws the colour bar with its label, and that note below it. */
void colours_bar(struct canvas *c, const struct colours *k, double x, double y, double h,
                 const char *label);

/* Small multiples of maps over tokens and steps, one per head (grid.c).  fill gives one number
 * for each of n tokens of a head whose rows start at row0, raster (heat.h) makes the map of
 * them: heat_alpha of ends, counted from the first token shown, or heat_decay.  over (may be
 * NULL) draws onto a map; a has its place and the tokens and steps it shows.  Steps are those
 * of the tokens; the key `steps` shows others. */
struct grid {
    const struct table *t;
    const char *label; /* what the colour bar says */
    void (*fill)(const struct table *t, int64_t row0, int64_t n, double *number);
    heat_column_fn *raster;
    void (*over)(struct canvas *c, const struct table *t, int64_t row0, const struct axis_box *a);
    double margin; /* mm right of each map that over needs */
    int most;      /* heads, for figures that need room; 0: any number */
    /* A column of steps, -1 where nothing happened: the maps begin shortly before its least; NULL:
     * with the first token. */
    const char *event;
    double floor; /* colours by the logarithm of the mean, from floor to 1; 0: by the mean */
};
/* fill of tables of evictions: evict_step counted from the first token shown, INFINITY = alive. */
void grid_ends(const struct table *t, int64_t row0, int64_t n, double *end);
/* What the keys of a figure that is a grid fill. */
struct grid_style {
    const char *steps; /* "C:D"; NULL: those of the tokens, or from shortly before the event on */
    int scale;         /* of figures that have the key */
};
extern const struct opt grid_keys[];
#define GRID_STEPS(absence)                                                                        \
    TEXT_KEY(struct grid_style, steps, "C:D", "the steps that are drawn", .absent = absence)
void grid_size(const struct grid *g, const struct figure_style *s, double *ret_w, double *ret_h);
int grid_draw(struct canvas *c, const struct grid *g, const struct figure_style *s,
              struct kvf_diag *d);

/* Layer x head map of one value per head (layermap.c): layers across, heads down.
 * Rows are those for which chosen(t, row) is true; NULL: all. */
struct layermap {
    const struct table *t;
    const char *value, *label; /* column, and what the colour bar says */
    int (*chosen)(const struct table *t, int64_t row, const void *ctx);
    const void *ctx;
    double (*scale)(double v); /* what is coloured; NULL: the value itself */
    double (*number)(const struct table *t, int64_t row, const void *ctx); /* in place of value */
    int (*marked)(const struct table *t, int64_t row, const void *ctx);    /* a dot; NULL: none */
    const char *note; /* small, below; NULL: none; takes LAYERMAP_NOTE mm */
};
enum { LAYERMAP_NOTE = 3 };
void layermap_size(const struct table *t, double *ret_w, double *ret_h);
int layermap_draw(struct canvas *c, const struct layermap *m, const struct figure_style *s);
/* Writes the numbers first, first + every, ... along a side of n cells of dx or dy mm each. */
void layermap_numbers(struct canvas *c, int64_t first, int64_t n, double x, double y, double dx,
                      double dy);

/* Rows that share a value in the head column from row 0 on: rows per head, for
 * head-major tables. */
int64_t rows_per_head(const struct table *t);
/* The same of the first trace of a table of several, told apart by column `trace`; else all. */
int64_t rows_per_trace(const struct table *t);
/* KVF_E_ARG with a sentence unless the rows of all traces agree in head and in that column. */
int traces_alike(const struct table *t, const char *number, struct kvf_diag *d);

#endif
