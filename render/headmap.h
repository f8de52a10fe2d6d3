/* headmap.h - layer x head maps of a table, as small multiples with one colour bar.
 *
 * Each map is a row of fig_headmaps.c: which columns hold the numbers (the words of its key
 * `value`) and which columns tell rows of a head apart (the keys after the first three).  --style
 * chooses: COLUMN=VALUE a row, value=COLUMN the number, panel=COLUMN small multiples (one map for
 * each value of the column), minus=yes each of them less the first, with a diverging map around 0.
 * A table of several traces has the column `trace`: its panel, unless the style says otherwise.
 * Where several rows of a head are left, their mean is drawn. */
#ifndef KVF_RENDER_HEADMAP_H
#define KVF_RENDER_HEADMAP_H

#include "base/table.h"
#include "render/figure.h"

enum { HEADMAP_FILTERS = 4, HEADMAP_PANELS = 16, HEADMAP_KEYS = 3 };

/* What the keys of a map fill: HEADMAP_KEYS that all maps have, then those of the columns. */
struct headmap_style {
    int value, minus; /* place in the words of `value`; 1: yes */
    const char *panel;
    const char *row[HEADMAP_FILTERS]; /* value asked for, in the order of `filter`; NULL: none */
};

struct headmap {
    const char *label;      /* of the colour bar; NULL: the name of the column */
    const char *fractions;  /* columns that are fractions, in a list with spaces: their colours go
                             * from 0 to 1; NULL: none */
    const char *panel;      /* column of the panels of a table without `trace`; NULL: none */
    struct headmap_filter { /* of the keys after the first HEADMAP_KEYS, which name the columns */
        const char *usual;  /* default where the table has it; NULL: that of the first row */
        double of_length;   /* > 0: the number nearest to this share of T is the default */
        const char *word;   /* what the figure says in place of the column's name; NULL: that */
        const char *about;  /* metadata ABOUTn says what its number n is; NULL: none */
    } filter[HEADMAP_FILTERS];
};

/* The functions of a figure whose `map` is set. */
void headmap_size(const struct table *t, const struct figure_style *s, double *ret_w,
                  double *ret_h);
int headmap_draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                 struct kvf_diag *d);

#endif
