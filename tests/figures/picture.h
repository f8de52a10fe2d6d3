/* picture.h - the paths of a figure drawn as SVG, and checks that they match a table. */
#ifndef KVF_TESTS_PICTURE_H
#define KVF_TESTS_PICTURE_H

#include <stdbool.h>

#include "render/figure.h"

enum { MOST_PATHS = 4000, MOST_POINTS = 600 };

struct path {
    double width; /* of the stroke; 0: an area */
    int n;
    double *xy; /* ends of lines and of curves, mm */
    bool closed;
};

struct picture {
    int n, n_frames;
    struct path path[MOST_PATHS];
    const struct path *frame[64]; /* of the panels */
};

extern struct picture pic; /* of the last draw() */
extern double vmax;        /* --vmax of the next figures; NaN: not set */

/* Returns the result of figure_write. path: receives the name of a new file in /tmp. */
int write_figure(const char *name, const struct table *t, const char *option, const char *ext,
                 char path[64], struct kvf_diag *d);
/* Draws into pic; an error fails the test. */
void draw(const char *name, const struct table *t, const char *option);

struct axes {
    double x0, x1, y0, y1;
    bool log_x, log_y;
};

/* Returns true if panel k has a line or an area through these n points. */
bool has(int k, const struct axes *a, const double *x, const double *y, int n, bool line);
/* Returns true if there is a ring or a disc of that radius around the point. */
bool has_ring(int k, const struct axes *a, double x, double y, double radius);

#define LINE(k, a, x, y) cr_expect(has(k, a, x, y, sizeof(y) / sizeof *(y), true), "no line " #y)
#define NO_LINE(k, a, x, y)                                                                        \
    cr_expect(0 == has(k, a, x, y, sizeof(y) / sizeof *(y), true), "line " #y)

#endif
