/* caption.h - two sentences about a figure, computed from its table: the content, and what to
 * observe. */
#pragma once

#include "base/buf.h"
#include "base/table.h"
#include "render/cells.h"

struct figure_style;

/* The rows of one trace. */
struct caption_run {
    int64_t row0, row1;
    char name[CELL_TEXT]; /* "h2o 64"; "the run" if the table does not name it */
};
enum { CAPTION_RUNS = 32 };
/* Finds the traces of a table, at most CAPTION_RUNS.  Returns their number. */
int caption_runs(const struct table *t, struct caption_run ret[CAPTION_RUNS]);

/* Write a fraction as "26 %", "0.4 %" or "100 %", and a number with at most 3 digits after the
 * point. */
const char *caption_percent(double fraction, char out[24]);
const char *caption_number(double v, char out[24]);

/* The captions of figures with these tables (struct figure). */
void caption_eviction(const struct table *t, const struct figure_style *s, struct buf *out);
void caption_survival(const struct table *t, const struct figure_style *s, struct buf *out);
void caption_hazard(const struct table *t, const struct figure_style *s, struct buf *out);
void caption_retention(const struct table *t, const struct figure_style *s, struct buf *out);
void caption_heads(const struct table *t, const struct figure_style *s, struct buf *out);
void caption_dilution(const struct table *t, const struct figure_style *s, struct buf *out);
void caption_occupancy(const struct table *t, const struct figure_style *s, struct buf *out);
void caption_compare(const struct table *t, const struct figure_style *s, struct buf *out);

/* The caption of the figure fates. drawn: [tokens of the first run]; it describes only these. */
void caption_fates(const struct table *t, const bool *drawn, struct buf *out);
