/* lives.h - how long tokens stay in use, with censoring where the text is too short.
 *
 * Token i of a text of T steps has f = T - 1 - i later queries and an age a: that of its last
 * selection (-1: never), or that before its first exit.  With a grace of W steps it dies at a if a
 * < c, c = f - W, which takes more than W queries without it; else it is censored at c.  Tokens
 * with c < 0 are left out.  At risk at age x are tokens with a >= x and c > x.  So c depends only
 * on the position, and one rule decides at every age.
 *
 * Counts are integers in the cells of base/product_limit.h, of which cell k is age k - 1: cell 0
 * has the tokens that die at -1. */
#pragma once

#include "analyzers/selected.h"
#include "base/product_limit.h"

struct lives_plan {
    int64_t T, a, b, grace; /* steps; tokens [a, b); W */
    const struct token_groups *groups;
    /* Ages, rising, each once: from one to the next the tokens are counted that enter and stay. */
    int n_edges;
    const int64_t *edge;
    int32_t *place; /* [T + 1] edges at or below age x, at x + 1 */
};

/* Grace and the fewest tokens that an estimate rests on: defaults of these analyses. */
enum { LIVES_GRACE = 64, LIVES_AT_LEAST = 20 };
/* W as asked for; below 0 it was not: LIVES_GRACE, or T / 4 in a shorter text. */
int64_t lives_grace(int64_t asked, int64_t T);
extern const struct opt lives_grace_option[]; /* --grace, of an int64_t: the value given */

/* Fills place[] from the edges, in memory of the frame.  KVF_OK or KVF_E_NOMEM. */
int lives_plan_init(struct frame *f, struct lives_plan *p);

/* Of one head, or of many added up; [groups][T + 1] cells, and [groups][n_edges + 1]. */
struct lives {
    int64_t *died, *censored;
    int64_t *entered, *stayed; /* tokens by how many edges they enter before, and reach */
    int64_t most;              /* died is 0 from here on */
};
struct lives lives_create(struct frame *f, const struct lives_plan *p); /* zeros */
void lives_clear(struct lives *x, const struct lives_plan *p);
void lives_add(const struct lives_plan *p, const struct lives *x, struct lives *to);

/* Counts the tokens [a, b) with these ages, of which INT32_MAX is larger than any; queries from
 * `end` <= T on are as if they were not there: c = end - 1 - i - W. */
void lives_count(const struct lives_plan *p, const int32_t *age, int64_t end, struct lives *out);
/* The same of ages of 16 bits, of which all ones are "never", without groups, with end = T. */
void lives_count_narrow(const struct lives_plan *p, const uint16_t *age, struct lives *out);

/* Tokens of group g that are at risk at edge k - 1 (k = 0: from age -1) and have text up to edge k,
 * c >= edge[k]; and how many of these have a >= edge[k].  [n_edges] each. */
void lives_steps(const struct lives_plan *p, const struct lives *x, int g, int64_t *entered,
                 int64_t *stayed);

/* Deaths of group g in the cells before k, and how many are at risk there, added up: k = 0 to
 * T + 1. */
void lives_sums(const struct lives_plan *p, const struct lives *x, int g, int64_t *died,
                int64_t *exposed);

/* The last age n that at least so many tokens of the group could show, c >= n; -2: none. */
int64_t lives_end(const struct lives_plan *p, int g, int64_t end, int64_t at_least);
