/* text_pages.h - puts token texts next to each other on pages. */
#pragma once

#include "render/text_flow.h"

enum { PAGE_MM = 240, MARGIN_MM = 4, TEXT_NAME_BYTES = 96 };

/* The rows of one trace and head (or all heads). */
struct text_panel {
    int64_t row0, row1;
    int64_t lines; /* -1: not yet counted */
    char name[TEXT_NAME_BYTES];
};

/* Panels in bands of `columns` columns. */
struct text_sheet {
    const struct table *t;
    struct text_panel *panel; /* owned */
    size_t room;              /* of panel */
    int n, columns, bands;
    bool one;                  /* every panel is one head */
    const char *head;          /* the single head of all panels, or NULL */
    double pt, pitch, gap;     /* font size; line pitch and column gap, mm */
    double width, top, bottom; /* of a column; of the text on a page, mm */
    struct text_flow flow;     /* the look; canvas for measuring */
};

/* Finds the panels.  Returns KVF_OK or KVF_E_NOMEM. */
int text_sheet_init(struct text_sheet *s, const struct table *t);
void text_sheet_finish(struct text_sheet *s); /* accepts a zeroed struct */

/* Chooses the columns for a canvas of that width (columns 0: as many as are readable). */
void text_sheet_columns(struct text_sheet *s, double width, int columns);

/* Computes the height of all lines; stops counting at `most` mm. */
int text_sheet_height(struct text_sheet *s, double most, double *ret);

/* Lines [from, to) of a band, below its name if `named`, from y down.  The slices of a page are
 * adjacent in the list.  left_out: if set, the slice shows this number of omitted lines instead of
 * lines. */
struct text_slice {
    int page, band;
    int64_t from, to, left_out;
    double y;
    bool named;
};
/* The slices of all pages. */
struct text_slices {
    struct text_slice *item; /* owned */
    int n, pages;
    size_t room;
    int bands; /* bands that are placed */
};
/* Place the panels on as many pages as needed, or shorten them to fit on one page. */
int text_slices_pages(struct text_sheet *s, struct text_slices *ret);
int text_slices_fold(struct text_sheet *s, struct text_slices *ret);

/* Draws the slices of one page; call it for pages 0, 1, ... in order.  draw false: skips the
 * page. */
int text_sheet_draw(struct text_sheet *s, const struct text_slices *of, int page, bool draw,
                    struct text_flow *open);
