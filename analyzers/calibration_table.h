/* calibration_table.h - the results of calibration, 24 bytes a row, and the columns that are read
 * from them.
 *
 * Rows of a block, which is a head or, last, all of them: for each pair of an event and a horizon
 * the bins and their total, then one for each score of the ranking. */
#pragma once

#include "analyzers/common.h"
#include "analyzers/rank_quality.h"
#include "base/stats.h"

enum { CALIBRATION_PAIRS = 48, CALIBRATION_NUMBERS = 15 };

struct calibration_cell {
    uint32_t n, yes;         /* tokens; entries with the event */
    double predicted, brier; /* means; NaN for n = 0 */
};

struct calibration_tally { /* of a cell */
    int64_t n, yes;
    struct sum predicted, error; /* error: squared */
};
void calibration_count(struct calibration_tally *y, double predicted, bool yes);
void calibration_put(struct calibration_cell *c, const struct calibration_tally *y);

struct calibration_score { /* of a total: no n and no tau */
    int64_t n, n_auroc, n_tau;
    double auroc, ece, tau;
    double early, near; /* AUROC of the birth step, and of beta in tokens born near each other */
};

struct calibration_found {
    int n_blocks, n_pairs, bins;
    struct calibration_pair {
        const char *event;
        int64_t horizon;
    } pair[CALIBRATION_PAIRS];
    struct calibration_cell *cell;   /* [n_blocks][n_pairs][bins + 1], the last one: in all */
    struct calibration_score *score; /* [n_blocks][n_pairs + N_RANK_SCORES] */
    struct calibration_lazy {        /* the source of the columns */
        const struct calibration_found *from;
        int what;
    } lazy[CALIBRATION_NUMBERS];
};

/* Copies the numbers and pairs of `shape` and makes room, all of it zero.  KVF_OK or
 * KVF_E_NOMEM. */
int calibration_found_create(const struct calibration_found *shape, struct calibration_found **ret);
void calibration_found_destroy(struct calibration_found *x); /* accepts NULL */

int64_t calibration_rows(const struct calibration_found *x); /* of a block */

/* Adds all columns to the table t.  The heads are those given; the row block `all` is added here.
 * t owns x from here on, also when this fails.  KVF_OK or an error. */
int calibration_columns(struct table *t, const struct head_list *heads,
                        struct calibration_found *x);

/* A few lines for people, from such a table. */
void calibration_describe(const struct table *t, struct buf *out);
