/* rank_quality.h - how well a score ranks the entries of a head each time that one
 * of them has to go: TRIM-KV's rule simulated only from the retention of the entries. */
#pragma once

#include <stdint.h>

#include <kvf/trace.h>

#include "base/stats.h"

enum rank_score { RANK_BETA, RANK_AGE, RANK_RANDOM, N_RANK_SCORES };
enum { RANK_MOST_BUDGET = 4096 };

struct rank_mean {
    struct sum auroc, tau;
    int64_t n_auroc, n_tau; /* evictions at which each is defined */
};

struct rank_quality {
    int64_t evictions;
    struct rank_mean of[N_RANK_SCORES];
};

struct rank_head {         /* one head's entries */
    const float *log_beta; /* [T] at most 0, no NaN */
    const int32_t *last;   /* [T] largest age at which it was selected; -1 = never */
    int64_t T;
    int layer, index; /* of the random order */
};

/* Before each query t = 1 ..  T - 1 at which the head would cache more than `budget` entries with
 * the newcomer, the entry i with the least f32((t - 1 - i) log_beta_i) is evicted, of equal ones
 * the smallest position (docs/reference/methods.md, trimkv).  The evictions with step0 <= t < step1
 * are added to *head and to *all: against the remaining use of each entry cached before it, u =
 * max(0, i + last - t + 1), the AUROC of u > 0 and Kendall's tau-b of u.  Time: O(budget^2) for
 * each of them.  1 <= budget <= RANK_MOST_BUDGET.  KVF_OK or KVF_E_NOMEM. */
int rank_quality_add(const struct rank_head *h, int budget, int64_t step0, int64_t step1,
                     struct rank_quality *head, struct rank_quality *all);
