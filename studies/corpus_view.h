/* corpus_view.h - values of a corpus and their intervals over documents; private to the corpus
 * files.
 *
 * A row that fewer than STATS_LEAST documents have gets no interval.  Below STATS_FEW documents the
 * interval is that of the jackknife over documents with Student's t, which is Student's t on the
 * documents' values for a mean.  Above, it is the expanded percentile interval of the replicates
 * that have a value. */
#pragma once

#include "studies/corpus_rows.h"

struct view { /* of one measure in one row */
    const struct analyzer_measure *m;
    const int64_t *sum;       /* [N_WORDS] */
    const int64_t *few;       /* corpus_rows.h, of this measure, or NULL */
    const int64_t *replicate; /* [words][n_replicates] or NULL */
    size_t n_replicates;
};
struct view corpus_view(const struct corpus *c, uint32_t row, int m);

double view_value(const struct view *v);    /* NaN: not defined */
double view_real_sum(const struct view *v); /* the sum of a mean's values */
/* The interval, NaN if it is not defined.  Returns how many replicates have no value.  scratch:
 * [n_replicates]. */
int64_t view_interval(const struct view *v, double *scratch, double *ret_low, double *ret_high);

/* Key k of a row. */
const char *corpus_field(const struct corpus *c, uint32_t row, int k);

/* ---- corpus_curve.c: products along the last key */

struct curves {
    const struct corpus *c;
    const uint32_t *order;     /* of the rows */
    int m;                     /* the measure */
    double *real, *low, *high; /* [rows] */
    double *half; /* [4][rows] half-life, the ends of its interval, the age that it is above */
};

/* Fills the curves of a measure.  scratch: [replicates].  *undefined grows by the replicates
 * without a value.  KVF_OK or KVF_E_NOMEM. */
int curve_values(const struct curves *x, double *scratch, int64_t *undefined);
