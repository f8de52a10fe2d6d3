/* headmap.h - layer x head maps of a table as small multiples with one colour bar.
 *
 * Each map is a row of fig_headmaps.c.  It lists the columns with the numbers (the words of its key
 * `value`) and the columns that distinguish the rows of a head (the keys after the first three).
 * These forms of --style choose the content: COLUMN=VALUE selects rows, value=COLUMN selects the
 * number, panel=COLUMN draws one map per value of the column.  minus=yes subtracts the first map
 * from each other one and uses a diverging map around 0. A table of several traces has a column
 * `trace`, which is the default panel.  If several rows of a head remain, their mean is drawn. */
#pragma once

#include "base/table.h"
#include "render/figure.h"

enum { HEADMAP_FILTERS = 4, HEADMAP_PANELS = 16, HEADMAP_KEYS = 3 };

/* The values of the keys: the HEADMAP_KEYS keys of all maps, then the keys of the columns. */
struct headmap_style {
    int value, minus; /* index in the words of `value`; 1: yes */
    const char *panel;
    const char *row[HEADMAP_FILTERS]; /* requested value, in the order of `filter`; may be NULL */
};

/* The description of a map that HEADMAP of fig_headmaps.c declares. */
struct headmap {
    const char *label; /* of the colour bar; NULL: the name of the column */
    const char *held;  /* the label of criterion `held`; NULL: the same */
    /* columns that are fractions, separated by spaces: colours from 0 to 1; may be NULL */
    const char *fractions;
    const char *panel;      /* panel column of a table without `trace`; may be NULL */
    struct headmap_filter { /* of the keys after the first HEADMAP_KEYS, which name the columns */
        const char *usual;  /* default if the table has it; NULL: value of the first row */
        double of_length;   /* > 0: the default is the number nearest to this fraction of T */
        const char *word;   /* displayed instead of the column name; NULL: the name */
        const char *about;  /* prefix of the metadata ABOUTn that describe number n; may be NULL */
    } filter[HEADMAP_FILTERS];
};

/* The size and draw functions of a figure with a `map`. */
void headmap_size(const struct table *t, const struct figure_style *s, double *ret_w,
                  double *ret_h);
/* Writes the caption of a figure with a `map`: the mean, and the heads with the extreme values. */
void headmap_caption(const struct table *t, const struct figure_style *s, struct buf *out);
int headmap_draw(struct canvas *c, const struct table *t, const struct figure_style *s,
                 struct kvf_diag *d);
