/* chart.h - lines with intervals and points over one pair of axes, from the rows of a table.
 *
 * A figure chooses the rows (keep), the text column that names the lines (key) and the columns of
 * x, y and the interval.  The rows of a line need not be adjacent; their order is kept.  NaN breaks
 * a line and is never drawn as a number. */
#pragma once

#include <stdbool.h>

#include "base/table.h"
#include "render/axis.h"

/* One line: its points and their intervals. */
struct chart_line {
    const char *name;   /* borrowed from the table; "" without a key */
    int n;              /* points */
    double *x, *y;      /* owned by the chart */
    double *low, *high; /* interval of y; may be NULL */
    int few;            /* first pale point, based on few observations; 0: no point is pale */
    double most;        /* maximum of the points' observation counts; 0: not known */
    /* documents behind the best-covered point and the last point; 0: not known */
    double documents[2];
    bool dropped; /* `few` is the first point with fewer documents */
    bool filled;  /* low and high are the ends of a filled area, and not of an interval */
};

/* The lines of one pair of axes and their range. */
struct chart {
    struct chart_line *line;
    int n;
    double x0, x1, y0, y1; /* range of all finite values, including intervals; NaN: no point */
};

enum { CHART_LINES = 64 }; /* maximum number of lines; more are KVF_E_ARG */

/* The columns that chart_collect reads. */
struct chart_columns {
    int key, x, y, low, high; /* column numbers; key, low, high: -1 = none */
    bool (*keep)(const struct table *t, int64_t row, const void *ctx); /* NULL: every row */
    const void *ctx;
};

/* Collects the lines of a table.  Returns KVF_OK, KVF_E_ARG (too many lines) or KVF_E_NOMEM. The
 * caller calls chart_destroy in every case. */
int chart_collect(const struct table *t, const struct chart_columns *k, struct chart *ret,
                  struct kvf_diag *d);
void chart_destroy(struct chart *h);

/* The look of a line. */
struct chart_look {
    struct rgb colour;
    double dash;  /* mm; 0: solid */
    double width; /* mm; 0: no line, only the interval */
    bool points;  /* a disc at each point; a line of one point always has it */
    bool bars;    /* intervals as bars instead of a band */
    double gap;   /* mm between dashes; 0: 0.6 */
    double fill;  /* opacity of the band; 0: 0.22 */
    /* 1 + a mark of marks.h at some points, 9 mm apart; 0: none.  With `points`: on every disc that
     * has space for it */
    int sign;
    bool alone; /* the key has no line, because the points are not joined */
};

/* Reduces n points in mm (x0, y0, x1, y1, ...) to those visible in columns of `column` mm.  Of
 * consecutive points in one column it keeps the first, lowest, highest and last, in order and
 * unchanged.  Points with a non-finite coordinate break the line and become one NaN. out needs
 * space for n points and may be xy.  Returns the number of points kept. */
int chart_thin(const double *xy, int n, double column, double *out);

/* Draws the band of a line and then the line, clipped to the axes and reduced to visible points.
 * Points from `few` on are pale.  Values that are not finite, or that a logarithmic axis cannot
 * show, break the line.  A point between two breaks is drawn as a dot. */
void chart_draw_line(struct canvas *c, const struct axis_box *a, const struct chart_line *l,
                     const struct chart_look *look);

/* Returns the first pale point of a line if a point from there on is drawn, else 0. */
int chart_few(const struct chart_line *l);

/* Draws the key of a line, a sample and the name, 3.9 mm high, down from (x, y). Returns the y of
 * the next key. */
double chart_key(struct canvas *c, double x, double y, const char *name,
                 const struct chart_look *look);

/* Writes a sentence, for example "no ...", in grey in the middle of the axes. */
void chart_empty(struct canvas *c, const struct axis_box *a, const char *what);
