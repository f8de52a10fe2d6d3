/* figures.h - declares all figures and the maps, colours and helpers that several figures share. */
#pragma once

#include <stdbool.h>

#include "render/axis.h"
#include "render/canvas.h"
#include "render/figure.h"
#include "render/heat.h"
#include "render/palette.h"

#define X(name) extern const struct figure fig_##name;
#define DROPPED(name, replacement)
#include "render/figures.list"
#include "render/style.h"
#undef DROPPED
#undef X

/* A table that the figure map draws (fig_map.c).  Its columns that can select rows are among those
 * that it needs. */
struct map_table {
    const char *table, *needs; /* as in struct figure */
    const char *value;         /* the column that is drawn by default */
    const char *label;         /* of the colour bar of that column */
    const char *held;          /* the label of criterion `held`; NULL: the same */
    const char *fractions;     /* columns with colours from 0 to 1, between blanks */
};
/* Returns the row of a figure with `maps` for a table, or NULL. */
const struct map_table *map_of_table(const struct figure *f, const char *table);
/* Writes the keys of --style that apply to a table, and the end of the list, into ret[FIGURE_KEYS].
 */
enum { FIGURE_KEYS = 24 };
void map_keys(const struct map_table *m, struct opt *ret);

/* The colours of a map: the style's range, or else [lo, hi], widened if it is empty.  colours_at
 * counts the values outside the range. */
struct colour_share;
struct colours {
    const char *map;
    double lo, hi;
    int64_t clipped, of;
    struct colour_share *share;
    bool logs; /* lo and hi are base-10 logarithms; smaller values get the colour of lo */
    /* lo and hi are signed decades above this number, which the bar labels as numbers; 0: they are
     * not */
    double least;
    bool zoomed; /* the caller chose a part of the usual range, which the bar notes */
};
/* Colour settings that the maps of a page share.  While the page is measured, each map stores its
 * colours and the position of its bar here.  While it is drawn, all maps use the common range and
 * the page draws the bar. */
struct colour_share {
    bool measured, common; /* the colours are known; several maps share them */
    bool barless, logs;    /* the page draws the bar; see struct colours */
    double lo, hi;
    double room, y, h; /* mm: from the bar to the right margin; of the bar */
    char map[16], label[96];
};
/* Returns the colours of the style for values from lo to hi. */
struct colours colours_make(const struct figure_style *s, double lo, double hi);
/* Returns the colours of fractions, at least from 0 to 1. Equal fractions then have equal colours
 * in every figure, unless some values are outside 0..1. */
struct colours colours_fraction(const struct figure_style *s, double lo, double hi);
/* Returns the colours from -reach to reach of a diverging map with 0 in the middle.  The map is
 * bluered unless the style names another.  The larger of |vmin| and |vmax| replaces reach.
 * colours_make calls it for a style with a diverging map. */
struct colours colours_diverging(const struct figure_style *s, double reach);
double colours_at(struct colours *k, double v); /* 0 .. 1; NaN stays NaN */
/* Returns true if colours show a sign, and a value is negative and not nearly white. */
bool colours_negative(const struct colours *k, double v);
/* Draws the cell of a value.  Cells of negative values get a minus sign, which print in grey keeps.
 * The bar has minus signs at its negative end. */
void colours_cell(struct canvas *c, struct colours *k, double v, double x, double y, double w,
                  double h);
/* Writes how many values are outside [lo, hi] and have the colour of the nearer end: "12 values
 * beyond this range", or "0.3 % beyond this range" if the total `of` is known.  Writes "" if no
 * value is. */
enum { COLOURS_NOTE = 64 };
void colours_note(const struct colours *k, char note[COLOURS_NOTE]);
/* Draws the colour bar with its label and, below it, the note of colours_note. */
void colours_bar(struct canvas *c, const struct colours *k, double x, double y, double h,
                 const char *label);

/* Small multiples of maps over tokens and steps, one per head (grid.c).
 *
 * fill computes one number for each of the n tokens of a head whose rows start at row0. raster
 * (heat.h) draws the map of these numbers: heat_alpha of end steps counted from the first token
 * shown, or heat_decay.  over, if not NULL, draws onto a map; a has the map's place and the
 * tokens and steps it shows.  The steps are the steps of the tokens unless the key `steps`
 * selects others. */
struct grid {
    const struct table *t;
    const char *label; /* of the colour bar */
    void (*fill)(const struct table *t, int64_t row0, int64_t n, double *number);
    heat_column_fn *raster;
    void (*over)(struct canvas *c, const struct table *t, int64_t row0, const struct axis_box *a);
    double margin; /* mm that over needs to the right of each map */
    /* draws a strip of the tokens above a map, in a box `above` mm high with the tokens across;
     * names: 1 with ticks, 2 also with the name of the axis.  Maps of less than 18 mm have no
     * strip. NULL: none */
    void (*strip)(struct canvas *c, const struct table *t, int64_t row0, struct axis_box a,
                  int names);
    double above; /* mm */
    int most;     /* maximum number of heads; 0: no limit */
    /* A column of steps, -1 if the event did not occur.  The maps begin shortly before the first
     * event; NULL: with the first token. */
    const char *event;
    double floor; /* colour by the logarithm of the mean, from floor to 1; 0: by the mean */
    /* names of the values 1 and 0, which replace the colour bar if every cell has a pixel; NULL:
     * the bar */
    const char *states[2];
    /* continues the key at (x, y), and returns the y below; a: the first map.  NULL: nothing */
    double (*key)(struct canvas *c, const struct table *t, const struct axis_box *a, double x,
                  double y);
};
/* A `fill` for tables of evictions: evict_step counted from the first token shown, INFINITY if the
 * token is still cached. */
void grid_ends(const struct table *t, int64_t row0, int64_t n, double *end);
/* The values of the keys of a grid figure. */
struct grid_style {
    /* "C:D"; NULL: the steps of the tokens, or from shortly before the event on */
    const char *steps;
    int scale, form, strip; /* for figures with these keys */
};
#define GRID_STEPS(absence)                                                                        \
    TEXT_KEY(struct grid_style, steps, "C:D", "the steps that are drawn", .absent = absence)
/* Computes the size in mm of the grid. */
void grid_size(const struct grid *g, const struct figure_style *s, double *ret_w, double *ret_h);
/* Draws the grid.  Returns KVF_OK or an error with a message. */
int grid_draw(struct canvas *c, const struct grid *g, const struct figure_style *s,
              struct kvf_diag *d);

/* A layer x head map of one value per head (layermap.c): layers across, heads down.  chosen(t, row)
 * selects the rows; NULL: all. */
struct layermap {
    const struct table *t;
    const char *value, *label; /* column, and label of the colour bar */
    int (*chosen)(const struct table *t, int64_t row, const void *ctx);
    const void *ctx;
    bool logs;         /* colours are logarithmic; values up to 0 are grey */
    const char *title; /* above the map; may be NULL */
    /* computes the value instead of reading it */
    double (*number)(const struct table *t, int64_t row, const void *ctx);
    /* draws a dot; may be NULL */
    int (*marked)(const struct table *t, int64_t row, const void *ctx);
    const char *note; /* small text below, lines of LAYERMAP_NOTE mm; may be NULL */
};
enum { LAYERMAP_NOTE = 3 };
/* Computes the size in mm of a map without title and note. */
void layermap_size(const struct table *t, double *ret_w, double *ret_h);
int layermap_draw(struct canvas *c, const struct layermap *m, const struct figure_style *s);
/* Writes the numbers first, first + every, ... along a side of n cells of dx or dy mm each. */
void layermap_numbers(struct canvas *c, int64_t first, int64_t n, double x, double y, double dx,
                      double dy);

/* Returns the number of rows per head of a head-major table: the rows from row 0 on with one value
 * in the head column. */
int64_t rows_per_head(const struct table *t);
/* Returns the number of rows of the first trace, which column `trace` names, or else all rows. */
int64_t rows_per_trace(const struct table *t);
/* Returns KVF_OK if all traces have equal rows in the columns head and `number`, else KVF_E_ARG
 * with a message. */
int traces_alike(const struct table *t, const char *number, struct kvf_diag *d);
