/* select.h - the k first of n items in a total order: one implementation for all types of items.
 *
 * SELECT_DEFINE(NAME, TYPE, RULE, BEFORE) defines NAME_first, and SELECT_INSERT_DEFINE with the
 * same arguments defines NAME_insert; both are static.  BEFORE(x, y, rule) is a function that
 * returns true if *x precedes *y; `rule`, of type RULE, is the tie rule that the caller passes.
 * BEFORE must order any two different items, so that the result does not depend on the order in
 * which they are given.
 *
 *   void NAME_first(TYPE *c, int64_t n, int64_t k, RULE rule)
 *     c[0 .. k) become the first k of n, in any order, and c[k] the first of the rest; 0 <= k <= n.
 *     It takes O(n) steps unless an adversary picks the input.
 *   int NAME_insert(TYPE *list, int n, int k, const TYPE *x, RULE rule)
 *     Inserts x into a sorted list of n items that keeps the first k, n <= k.  Returns the new n.
 */
#pragma once

#include <stdint.h>

#define SELECT_DEFINE(NAME, TYPE, RULE, BEFORE)                                                    \
    static inline void NAME##_swap(TYPE *x, TYPE *y)                                               \
    {                                                                                              \
        TYPE kept = *x;                                                                            \
        *x = *y;                                                                                   \
        *y = kept;                                                                                 \
    }                                                                                              \
                                                                                                   \
    /* Moves the median of three items to c[lo]. */                                                \
    static inline void NAME##_pivot(TYPE *c, int64_t lo, int64_t hi, RULE rule)                    \
    {                                                                                              \
        int64_t mid = lo + (hi - lo) / 2;                                                          \
        if (BEFORE(&c[mid], &c[lo], rule))                                                         \
            NAME##_swap(&c[mid], &c[lo]);                                                          \
        if (BEFORE(&c[hi], &c[lo], rule))                                                          \
            NAME##_swap(&c[hi], &c[lo]);                                                           \
        if (BEFORE(&c[hi], &c[mid], rule))                                                         \
            NAME##_swap(&c[hi], &c[mid]);                                                          \
        NAME##_swap(&c[lo], &c[mid]);                                                              \
    }                                                                                              \
                                                                                                   \
    static inline void NAME##_first(TYPE *c, int64_t n, int64_t k, RULE rule)                      \
    {                                                                                              \
        int64_t lo = 0, hi = n - 1;                                                                \
        while (lo < hi && k < n) {                                                                 \
            NAME##_pivot(c, lo, hi, rule);                                                         \
            int64_t at = lo;                                                                       \
            for (int64_t i = lo + 1; i <= hi; i++)                                                 \
                if (BEFORE(&c[i], &c[lo], rule))                                                   \
                    NAME##_swap(&c[++at], &c[i]);                                                  \
            NAME##_swap(&c[lo], &c[at]);                                                           \
            if (at == k)                                                                           \
                return;                                                                            \
            if (at < k)                                                                            \
                lo = at + 1;                                                                       \
            else                                                                                   \
                hi = at - 1;                                                                       \
        }                                                                                          \
    }

#define SELECT_INSERT_DEFINE(NAME, TYPE, RULE, BEFORE)                                             \
    static inline int NAME##_insert(TYPE *list, int n, int k, const TYPE *x, RULE rule)            \
    {                                                                                              \
        if (n == k && !BEFORE(x, &list[k - 1], rule))                                              \
            return n;                                                                              \
        int i = n < k ? n : k - 1;                                                                 \
        for (; i > 0 && BEFORE(x, &list[i - 1], rule); i--)                                        \
            list[i] = list[i - 1];                                                                 \
        list[i] = *x;                                                                              \
        return n < k ? n + 1 : n;                                                                  \
    }
