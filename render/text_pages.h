/* text_pages.h - texts of tokens side by side, on pages. */
#ifndef KVF_RENDER_TEXT_PAGES_H
#define KVF_RENDER_TEXT_PAGES_H

#include "render/text_flow.h"

enum { PAGE_MM = 240, MARGIN_MM = 4, TEXT_NAME_BYTES = 96 };

/* Rows of one trace and head (or all heads). */
struct text_panel {
    int64_t row0, row1;
    int64_t lines; /* -1: not yet counted */
    char name[TEXT_NAME_BYTES];
};

/* Panels stand in bands of `columns` beside each other. */
struct text_sheet {
    const struct table *t;
    struct text_panel *panel; /* owned */
    int n, columns, bands;
    bool one;                  /* every panel is one head */
    const char *head;          /* the one head of all panels, or NULL */
    double pt, pitch, gap;     /* letters; from line to line, and between columns, mm */
    double width, top, bottom; /* of a column; of the text on a page, mm */
    struct text_flow flow;     /* the look; canvas of what is measured */
};

/* Finds the panels.  KVF_OK or KVF_E_NOMEM. */
int text_sheet_init(struct text_sheet *s, const struct table *t);
void text_sheet_finish(struct text_sheet *s); /* accepts a zeroed struct */

/* Columns for a canvas of that width (0: as many as read well). */
void text_sheet_columns(struct text_sheet *s, double width, int columns);

/* The height that all lines need; counts no further than `most` mm. */
int text_sheet_height(struct text_sheet *s, double most, double *ret);

/* Lines [from, to) of a band, its name above them, from y down; the pieces of a page follow
 * each other.  note: instead of lines, how many are left out there. */
struct text_slice {
    int page, band;
    int64_t from, to, left_out;
    double y;
    bool named;
};
struct text_slices {
    struct text_slice *item; /* owned */
    int n, room, pages;
    int bands; /* that have a place */
};
/* Places the panels on as many pages as it takes, or folds them so that one is enough. */
int text_slices_pages(struct text_sheet *s, struct text_slices *ret);
int text_slices_fold(struct text_sheet *s, struct text_slices *ret);

/* Draws the slices of one page, those of page 0, 1, ... in turn; draw false: passes over it. */
int text_sheet_draw(struct text_sheet *s, const struct text_slices *of, int page, bool draw,
                    struct text_flow *open);

#endif
