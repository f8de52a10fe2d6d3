/* figure.h - tables in, pictures out.
 *
 * A figure is one file, render/fig_NAME.c, that ends with one const struct, and one line of
 * figures.list.  It knows tables only, never traces or models.  A table without rows is drawn as
 * "no data"; NaN is drawn as a grey cell or as a gap in a line, never as a number.
 *
 * To add a figure of a table that an analyzer makes (tools/new.py figure NAME "summary" begins it:
 * a plot of one column, without keys; the table and the pictures are made as said below):
 *
 * 1. render/fig_NAME.c: functions `size` and `draw`, the columns that the figure needs, the keys of
 *    --style (style.h), and at the end `const struct figure fig_NAME = {.name = "NAME", ...}`.
 *    Headers do most of the drawing: canvas.h draws in mm; plot.h makes lines, small multiples and
 *    their key (PLOT_FIGURE ends a file whose `build` fills one plot); figures.h has maps of tokens
 *    and steps (grid), maps of layers and heads (layermap) and colours with their bar; axis.h has
 *    ticks and labels, forest.h rows with intervals, kindmap.h kinds of heads, marks.h signs that
 *    differ in grey, cells.h cells as text and the sentence for a canvas that is too small.  A map
 *    of one number for each head that --style chooses is a row of fig_headmaps.c, and no file.
 * 2. render/figures.list: `X(NAME)`, or `MAP(NAME)` for such a row.  NAME is the file's: '_' where
 *    the figure's name has '-'.
 * 3. docs/reference/gallery.md: a paragraph with the keys, a command that draws it, and its picture
 *    docs/img/NAME.png.  One picture is made from a page of its own, lines.md, with the commands
 *    of the gallery that lead to it, each indented by four blanks:
 *    `KVFATE=$PWD/build/cli/kvfate PAGE=$PWD/lines.md examples/gallery.sh OUT`, then copy
 *    OUT/NAME.png and remove lines.md.  The test `gallery` runs every command of the page with a
 *    tiny model.
 * 4. tests/figures/tables/TABLE.tsv.gz, unless it is there: `kvfate TABLE some.kvf -o TABLE.tsv &&
 *    gzip -9n TABLE.tsv`, of a short run, at most a few hundred rows.
 * 5. The picture that later ones are compared with:
 *    `/usr/bin/python3 tests/figures/test_contract.py
 *    build/cli/kvfate build/tests/figures/draw_table OUT --update --only NAME` writes
 *    tests/figures/golden/NAME.png: look at it.  The tests `contract`, `boxes`, `places` and
 *    `style` then try the figure with every table, size, key and colour map.
 * 6. tests/figures/test_fig_NAME.py: values found again in the coordinates of the SVG.
 * 7. `meson test -C build --suite figures --suite lint`.
 *
 * `-o X.png` draws the figure with the name of the table, or else the first that draws the table;
 * --figure NAME draws another. */
#ifndef KVF_RENDER_FIGURE_H
#define KVF_RENDER_FIGURE_H

#include <stdbool.h>

#include "base/table.h"

struct canvas;
struct colour_share;
struct headmap;
struct plot;
struct plot_shared;
struct opt;

enum { FIGURE_LEAST_WIDTH = 40, FIGURE_LEAST_HEIGHT = 25 }; /* mm */

struct figure_style {
    double width_mm, height_mm; /* 0: the figure's own choice; a width alone: its height for it */
    int dpi;                    /* of rasters and of PNG output; 0 = 300 */
    const char *title;          /* NULL: none */
    const char *font;           /* family; NULL: Lato, or DejaVu Sans without it */
    const char *cmap;           /* a name of palette.h; NULL: the figure's own */
    double vmin, vmax;          /* colour range; NaN: from the data */
    int threads;                /* at most; 0: as many as pay.  No byte depends on it */
    const char *option;         /* "key=value,..." of the figure's keys; NULL: none */
    bool *boxes;                /* becomes true where text has no font and is drawn as boxes, which
                                 * is no error; NULL: nobody asks */

    /* What figure.c adds for the functions of a figure; callers leave it zero. */
    const struct figure *figure;      /* the one that is drawn */
    const void *own;                  /* its struct, filled from `option` (style.h) */
    bool usual_cmap;                  /* cmap is the figure's, not the caller's */
    const struct plot_shared *shared; /* what panels of a page share (plot.h); NULL: alone */
    struct colour_share *colours;     /* the same of maps (figures.h) */
};

/* A column that a figure needs.  A table that was read from a file may hold numbers where the
 * figure wants text, or text for numbers: figure.c refuses it before anything is drawn. */
enum column_kind {
    COLUMN_NUMBER,
    COLUMN_TEXT,
    COLUMN_EITHER, /* names that may be all digits, and come back from a file as numbers */
};
struct figure_column {
    const char *name;
    enum column_kind kind;
};

struct figure {
    const char *name;    /* "eviction"; the default figure of the table of that name */
    const char *table;   /* which table it draws */
    const char *summary; /* one line */
    const struct figure_column *needs; /* columns that it must have; ends with a NULL name */
    const struct opt *style;           /* keys of --style (style.h); NULL: it has none */
    size_t style_bytes;                /* size of the struct that the keys fill */
    const char *cmap;                  /* colour map unless --cmap names one; NULL: --cmap changes
                                        * nothing, or what is drawn without it is no map of these */
    bool side_by_side; /* draws tables of several traces, told apart by column `trace` */

    /* Size in mm for this table, when the style leaves it open.  A figure that gives the style's
     * width back knows its height for it; others are scaled with their sides' ratio kept. */
    void (*size)(const struct table *t, const struct figure_style *s, double *ret_w, double *ret_h);

    /* Draws onto the canvas (errors of drawing are sticky in it). */
    int (*draw)(struct canvas *c, const struct table *t, const struct figure_style *s,
                struct kvf_diag *d);

    /* Of figures whose size and draw are shared: the plot that PLOT_FIGURE draws (plot.h), the map
     * that HEADMAP_FIGURE draws (headmap.h). */
    int (*build)(const struct table *t, const struct figure_style *s, struct plot *p,
                 struct kvf_diag *d);
    const struct headmap *map;
};

extern const struct figure *const figure_table[];   /* ends with NULL */
const struct figure *figure_find(const char *name); /* or NULL */
/* Whether some figure needs text in columns of that name: of a table that was read from a file
 * without types they are text also where all of it looks like numbers. */
bool figure_reads_text(const char *column);
/* What -o draws of a table: the figure of its name, or else the first that draws it; or NULL. */
const struct figure *figure_of_table(const char *table);

/* Whether the style's map, range and font exist: KVF_OK, or KVF_E_ARG with a sentence. */
int figure_style_check(const struct figure_style *s, struct kvf_diag *d);

/* Starts what drawing needs of the system while the caller makes the table; may be left out. */
void figure_prepare(void);

/* Draws table t with figure f into path: PNG, SVG or PDF by its extension.
 * The file appears whole or not at all.  Provenance (the table's metadata) goes
 * into the file's metadata.  KVF_OK, KVF_E_ARG (extension, missing column),
 * KVF_E_IO, KVF_E_NOMEM. */
int figure_write(const struct figure *f, const struct table *t, const struct figure_style *s,
                 const char *path, struct kvf_diag *d);

/* Draws the figure and throws the picture away: returns what figure_write would return for this
 * table and style, without a file. */
int figure_try(const struct figure *f, const struct table *t, const struct figure_style *s,
               struct kvf_diag *d);

/* Draws the figure for a terminal, as lines of text appended to out: half blocks in 24-bit colour,
 * or five shades. */
struct figure_screen {
    int cols, rows; /* rows: most; 0: any number */
    bool shades;
};
int figure_preview(const struct figure *f, const struct table *t, const struct figure_style *s,
                   const struct figure_screen *screen, struct buf *out, struct kvf_diag *d);

/* Appends a JSON array with an object for each figure, in the order of figure_table: "name",
 * "table", "summary", "columns" (objects with "name" and "type": number, text or either),
 * "side_by_side", "cmap" (or null) and "style" (opt_json). */
void figures_json(struct buf *out);

/* Whether the extension of path is one that figure_write draws. */
int figure_can_write(const char *path);

#endif
