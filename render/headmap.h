/* headmap.h - layer x head maps of a table, as small multiples with one colour bar.
 *
 * A figure says which columns tell rows of a head apart (filter) and which hold numbers.  The
 * style chooses: COLUMN=VALUE a row, value=COLUMN the number, panel=COLUMN small multiples
 * (one map for each value of the column), minus=yes each of them less the first, with a
 * diverging map around 0.  A table of several traces has the column `trace`: its panel,
 * unless the style says otherwise.  Where rows of a head are left, their mean is drawn. */
#ifndef KVF_RENDER_HEADMAP_H
#define KVF_RENDER_HEADMAP_H

#include "base/table.h"
#include "render/figure.h"

enum { HEADMAP_FILTERS = 4, HEADMAP_PANELS = 16 };

struct headmap {
    const char *figure;     /* its name, for sentences */
    const char *values;     /* "size|ratio": columns to choose from, the first by default */
    const char *label;      /* of the colour bar; NULL: the name of the column */
    const char *panel;      /* column of the panels of a table without `trace`; NULL: none */
    struct headmap_filter { /* columns that the table need not have; ends with NULL */
        const char *column;
        const char *usual; /* default where the table has it; NULL: that of the first row */
        double of_length;  /* > 0: the number nearest to this share of T is the default */
        const char *word;  /* what the figure says in place of the column's name; NULL: that */
        const char *about; /* metadata ABOUTn says what its number n is; NULL: none */
    } filter[HEADMAP_FILTERS + 1];
};

void headmap_size(const struct headmap *m, const struct table *t, const struct figure_style *s,
                  double *ret_w, double *ret_h);
int headmap_draw(struct canvas *c, const struct headmap *m, const struct table *t,
                 const struct figure_style *s, struct kvf_diag *d);

/* A figure of one headmap, in its file:
 * HEADMAP_FIGURE(fig_x, "x", "table", "summary", map, needs) */
#define HEADMAP_FIGURE(symbol, title, of_table, line, map, need)                                   \
    static void size(const struct table *t, const struct figure_style *s, double *w, double *h)    \
    {                                                                                              \
        headmap_size(&map, t, s, w, h);                                                            \
    }                                                                                              \
    static int draw(struct canvas *c, const struct table *t, const struct figure_style *s,         \
                    struct kvf_diag *d)                                                            \
    {                                                                                              \
        return headmap_draw(c, &map, t, s, d);                                                     \
    }                                                                                              \
    const struct figure symbol = {.name = title,                                                   \
                                  .table = of_table,                                               \
                                  .summary = line,                                                 \
                                  .needs = need,                                                   \
                                  .size = size,                                                    \
                                  .draw = draw,                                                    \
                                  .side_by_side = true}

#endif
