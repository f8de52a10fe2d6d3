/* chart.h - lines with bands and points over one pair of axes, from the rows of a table.
 *
 * A figure says which rows it draws (keep), which text column tells the lines apart (key) and
 * which columns are x, y and the ends of the interval.  Rows of a line need not be adjacent;
 * their order is kept.  NaN breaks a line and is never drawn as a number. */
#ifndef KVF_RENDER_CHART_H
#define KVF_RENDER_CHART_H

#include <stdbool.h>

#include "base/table.h"
#include "render/axis.h"

struct chart_line {
    const char *name;    /* borrowed from the table; "" without a key */
    int n;               /* points */
    double *x, *y;       /* owned by the chart */
    double *low, *high;  /* interval of y; NULL: none */
    int few;             /* points from this one on are of few, and paler; 0: none are */
    double most;         /* of how many the point of most is; 0: not known */
    double documents[2]; /* behind the point of most, and the last one; 0: not known */
    bool dropped;        /* few is the first point that fewer documents reach */
};

struct chart {
    struct chart_line *line;
    int n;
    double x0, x1, y0, y1; /* range of what is defined, intervals with it; NaN: no point */
};

enum { CHART_LINES = 64 }; /* more lines than that are refused: KVF_E_ARG */

struct chart_columns {
    int key, x, y, low, high; /* column numbers; key, low, high: -1 = none */
    bool (*keep)(const struct table *t, int64_t row, const void *ctx); /* NULL: every row */
    const void *ctx;
};

/* KVF_OK, KVF_E_ARG (too many lines), KVF_E_NOMEM; chart_destroy in every case. */
int chart_collect(const struct table *t, const struct chart_columns *k, struct chart *ret,
                  struct kvf_diag *d);
void chart_destroy(struct chart *h);

/* How line i looks: colours repeat after 8 lines, then dashed. */
struct chart_look {
    struct rgb colour;
    double dash;  /* mm; 0: solid */
    double width; /* mm; 0: no line, the area of the interval alone */
    bool points;  /* a disc at each point; a line of one point always has it */
    bool bars;    /* intervals as bars, not as a band */
    double gap;   /* mm between dashes; 0: 0.6 */
    double fill;  /* opacity of the band; 0: 0.22 */
    int sign;     /* 1 + a mark of marks.h at some points, 9 mm apart; 0: none.  With `points`: at
                   * all that have room, over their discs */
};
struct chart_look chart_look_of(int i);

/* Cuts n points in mm (x0, y0, x1, y1, ...) to what columns of `column` mm show: of points one
 * after the other in one column the first, the lowest, the highest and the last stay, in their
 * order, and exactly.  Points with a coordinate that is not finite break the line; one of
 * them stays, as NaN.  out has room for n points and may be xy; returns how many there are. */
int chart_thin(const double *xy, int n, double column, double *out);

/* Draws a line, what is of few in a pale tint: its band below, then the line, clipped to the axes
 * and cut to what pixels show. Values that are not finite, or have no logarithm on such an axis,
 * break the line; a point between two breaks is a dot. */
void chart_draw_line(struct canvas *c, const struct axis_box *a, const struct chart_line *l,
                     const struct chart_look *look);
/* Draws every line of h in its own look. */
void chart_draw(struct canvas *c, const struct axis_box *a, const struct chart *h);

/* Draws the key of a line, a sample of its look and its name, 3.9 mm high, down from (x, y);
 * returns the y of the next key. */
double chart_key(struct canvas *c, double x, double y, const char *name,
                 const struct chart_look *look);
double chart_keys(struct canvas *c, double x, double y, const struct chart *h);
/* mm that chart_keys takes to the right of x. */
double chart_keys_width(struct canvas *c, const struct chart *h);

/* Writes a sentence, such as "no ...", in grey amid the axes. */
void chart_empty(struct canvas *c, const struct axis_box *a, const char *what);

#endif
