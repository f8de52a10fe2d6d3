/* factors.h - how much of the variance of values a grouping explains. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analyzers/analyzer.h"

/* Level of value c: level[c / block % count], 0 ..  n_levels - 1, or -1 for values without a
 * level. */
struct factor {
    const char *name;
    const int32_t *level; /* [count] borrowed */
    size_t block, count;
    int32_t n_levels;
};

/* Of the values y that have a level and are no NaN.  NaN: fewer than two values, or all
 * are equal; epsilon2 also when each level has one value. */
struct effect {
    int64_t n, levels; /* values; levels that have some */
    double eta2;       /* SS_between / SS_total = R^2 of the means */
    double epsilon2; /* (SS_between - (levels - 1) MS_within) / SS_total: corrected for chance with
                        many levels; the adjusted R^2 */
    bool converged;
};

/* Means of one factor.  KVF_OK or KVF_E_NOMEM. */
int factor_effect(const double *y, size_t n, const struct factor *f, struct effect *ret);

/* Least squares fit y = a[level of f] + b[level of g], by means of both factors in turn until
 * neither moves; levels = the levels of both less one, which both share when every two levels are
 * linked by values.  The watcher is called with the progress.  KVF_OK or KVF_E_NOMEM. */
int factor_additive(const double *y, size_t n, const struct factor *f, const struct factor *g,
                    const struct analyzer_args *args, struct effect *ret);
