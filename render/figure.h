/* figure.h - draws tables as figures.
 *
 * A figure is one file, render/fig_NAME.c, that ends with one const struct, and one line of
 * figures.list.  It reads only tables, never traces or models.  A table without rows is drawn as
 * "no data". NaN is drawn as a grey cell or as a gap in a line, never as a number.
 *
 * To add a figure of a table that an analyzer makes, start with `tools/new.py figure NAME
 * "summary"`. It writes a plot of one column without keys; make the table and the pictures as
 * follows:
 *
 * 1. render/fig_NAME.c: functions `size` and `draw`, the columns that the figure needs, the keys
 *    of --style (style.h), and at the end `const struct figure fig_NAME = {.name = "NAME", ...}`.
 *    Use these headers: canvas.h draws in mm. plot.h makes lines, small multiples and their key;
 *    PLOT_FIGURE ends a file whose `build` fills one plot. figures.h has maps of tokens and steps
 *    (grid), maps of layers and heads (layermap) and colours with their bar. axis.h has ticks and
 *    labels, forest.h rows with intervals, kindmap.h head types, marks.h signs that differ in
 *    grey, cells.h cells as text and the message for a canvas that is too small. A map of one
 *    number per head needs no file, only a row of fig_map.c, and step 4.
 * 2. render/figures.list: `X(NAME)`. NAME is the file's: '_' where the figure's name has '-'.
 * 3. docs/reference/gallery.md: a paragraph with the keys, a command that draws it, and its
 *    picture docs/img/NAME.png. To make one picture, write a page lines.md with the gallery
 *    commands that lead to it, each indented by four blanks. Run `KVFATE=$PWD/build/cli/kvfate
 *    PAGE=$PWD/lines.md examples/gallery.sh OUT`, then copy OUT/NAME.png and remove lines.md. The
 *    test `gallery` runs every command of the page with a tiny model.
 * 4. tests/figures/tables/TABLE.tsv.gz, unless it exists: `kvfate TABLE some.kvf -o TABLE.tsv &&
 *    gzip -9n TABLE.tsv`, of a short run, at most a few hundred rows.
 * 5. The reference picture of later comparisons: `/usr/bin/python3 tests/figures/test_contract.py
 *    build/cli/kvfate build/tests/figures/draw_table OUT --update --only NAME` writes
 *    tests/figures/golden/NAME.png: look at it. The tests `contract`, `boxes`, `places` and
 *    `style` then try the figure with every table, size, key and colour map.
 * 6. tests/figures/test_fig_NAME.py: find the values again in the coordinates of the SVG.
 * 7. `meson test -C build --setup quick --suite figures --suite lint --no-suite slow`.
 *
 * `-o X.png` draws the figure with the name of the table, or else the figure map, or else the first
 * that draws the table. --figure NAME draws another. */
#pragma once

#include <stdbool.h>

#include "base/table.h"

struct buf;
struct canvas;
struct colour_share;
struct map_table;
struct plot;
struct plot_shared;
struct opt;

enum { FIGURE_MIN_WIDTH = 40, FIGURE_MIN_HEIGHT = 25 }; /* mm */

/* The options of drawing that callers set. */
struct figure_style {
    /* 0: chosen by the figure; with only a width, the figure chooses the height */
    double width_mm, height_mm;
    int dpi;           /* of rasters and of PNG output; 0 = 300 */
    const char *title; /* may be NULL */
    const char *font;  /* family; NULL: Lato, or DejaVu Sans if Lato is missing */
    const char *cmap;  /* a name of palette.h; NULL: the figure's default */
    double vmin, vmax; /* colour range; NaN: from the data */
    /* maximum; 0: as many as are useful.  Output does not depend on it */
    int threads;
    const char *option; /* "key=value,..." of the figure's keys; may be NULL */
    /* set to true if some text has no font and is drawn as boxes, which is no error; may be NULL */
    bool *boxes;

    /* Fields that figure.c sets for the functions of a figure; callers leave them zero. */
    const struct figure *figure; /* the figure being drawn */
    const void *own;             /* the figure's own struct, filled from `option` (style.h) */
    bool usual_cmap;             /* cmap is the figure's default, not the caller's choice */
    /* settings that panels of a page share (plot.h); NULL: no page */
    const struct plot_shared *shared;
    /* colours that maps of a page share (figures.h); NULL: no page */
    struct colour_share *colours;
};

/* A figure: the table it draws, its options and its functions. */
struct figure {
    const char *name;    /* "eviction"; default figure of the table with this name */
    const char *table;   /* the table it draws; NULL: those of `maps` */
    const char *also;    /* another table that it draws if the style names its columns, or NULL */
    const char *summary; /* one line */
    /* required columns, between blanks: "step" has numbers, "head:text" has text, and "id:either"
     * has names of digits, which a file returns as numbers.  A column that ends with "?" may be
     * missing.  A table read from a file may have a column of another type.  figure.c then reports
     * an error before it draws. */
    const char *needs;
    const struct opt *style; /* keys of --style (style.h); may be NULL */
    size_t style_bytes;      /* size of the struct that the keys fill */
    /* default colour map; NULL: --cmap has no effect, or the default drawing uses no such
     * maps */
    const char *cmap;
    bool side_by_side; /* draws several traces, which column `trace` distinguishes */

    /* Sets the size in mm for this table if the style leaves it open.  A figure that returns the
     * style's width computes its own height for it.  Other figures are scaled and keep their aspect
     * ratio. */
    void (*size)(const struct table *t, const struct figure_style *s, double *ret_w, double *ret_h);

    /* Draws onto the canvas, which stores drawing errors. */
    int (*draw)(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d);

    /* Appends two sentences and a newline: the content of the figure, and what to observe.  The
     * table has rows, and the style has the size of the figure.  NULL: the figure has no caption.
     */
    void (*caption)(const struct table *t, const struct figure_style *s, struct buf *out);

    /* For figures with shared size and draw functions: makes the plot of PLOT_FIGURE (plot.h). */
    int (*build)(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d);
    /* The tables of a figure of several tables, to a row without a name, which replace `table` and
     * `needs` (figures.h); or NULL. */
    const struct map_table *maps;
};

extern const struct figure *const figure_table[];   /* ends with NULL */
const struct figure *figure_find(const char *name); /* NULL if unknown */
/* Returns the words that replace a figure name of earlier versions, or NULL. */
const char *figure_replacement(const char *name);
/* Returns true if some figure needs text in a column of this name.  Such columns of untyped files
 * are read as text even if all values look like numbers. */
bool figure_reads_text(const char *column);
/* Returns the name of table i that a figure draws, or NULL after the last. */
const char *figure_table_at(const struct figure *f, int i);
/* Returns true if a figure draws tables of this name. */
bool figure_draws(const struct figure *f, const char *table);
/* Returns the figure that -o draws for a table: the figure with its name, else the figure map, else
 * the first that draws it, else NULL. */
const struct figure *figure_of_table(const char *table);

/* Returns the column that the figure map draws of a table by default, or NULL. */
const char *figure_value(const char *table);

/* Checks that the style's map, range and font exist.  Returns KVF_OK, or KVF_E_ARG with a
 * message. */
int figure_style_check(const struct figure_style *s, struct kvf_diag *d);

/* Starts loading fonts while the caller computes the table.  Calling it is optional. */
void figure_prepare(void);

/* Draws table t with figure f into path: PNG, SVG or PDF, by the extension.  On error path is
 * unchanged.  The file's metadata receives the provenance, which is the table's metadata.  Returns
 * KVF_OK, KVF_E_ARG (extension, missing column), KVF_E_IO or KVF_E_NOMEM. */
int figure_write(const struct figure *f, const struct table *t, const struct figure_style *s,
                 const char *path, struct kvf_diag *d);

/* Draws the figure and discards it.  Returns the result that figure_write would return, without
 * writing a file. */
int figure_try(const struct figure *f, const struct table *t, const struct figure_style *s,
               struct kvf_diag *d);

/* Options of figure_preview, which draws a figure on a terminal. */
struct figure_screen {
    int cols, rows; /* rows: maximum; 0: no limit */
    bool shades;
};
/* Appends the figure to out as lines of terminal text: half blocks in 24-bit colour, or five
 * shades. */
int figure_preview(const struct figure *f, const struct table *t, const struct figure_style *s,
                   const struct figure_screen *screen, struct buf *out, struct kvf_diag *d);

/* Appends a JSON array with one object per figure and table that it draws, in the order of
 * figure_table.  Its fields are "name", "table", "default" (whether -o draws this figure of the
 * table), "summary", "columns" (objects with "name" and "type": number, text or either),
 * "side_by_side", "cmap" (or null) and "style" (opt_json). */
void figures_json(struct buf *out);

/* Appends the caption of a figure that has one to out. */
int figure_caption(const struct figure *f, const struct table *t, const struct figure_style *s,
                   struct buf *out, struct kvf_diag *d);

/* Returns true if figure_write supports the extension of path. */
int figure_can_write(const char *path);
