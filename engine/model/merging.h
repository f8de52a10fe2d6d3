/* merging.h - merges neighbours of a row, best pair first, until none is left; private to the
 * tokenizer.  A heap over a linked list makes that O(n log n). */
#ifndef KVF_ENGINE_MERGING_H
#define KVF_ENGINE_MERGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct merge_node {
    int32_t id; /* equal ids stand for equal bytes */
    int32_t prev, next;
    uint32_t at, len; /* bytes of the text, where the model wants them */
};

struct merge_cand {
    double key; /* the least is merged first, among equals the leftmost */
    int32_t at, left, right, result;
};

struct merging { /* work space that grows as needed; zeroed to begin with */
    struct merge_node *node;
    struct merge_cand *heap;
    size_t cap;
};

/* Whether two neighbours can be merged: sets the key and the result of *ret. */
typedef bool merge_find(const void *ctx, const struct merge_node *left,
                        const struct merge_node *right, struct merge_cand *ret);

enum { MERGING_MOST = 1 << 24 }; /* nodes; they take 1.4 GB */
/* Room for n nodes.  KVF_OK, KVF_E_LIMIT over MERGING_MOST, KVF_E_NOMEM. */
int merging_reserve(struct merging *m, size_t n);
void merging_finish(struct merging *m); /* accepts a zeroed one */
/* Merges nodes 0 to n - 1, whose id, at and len are set.  What is left is the list from node 0
 * on, next < 0 at its end.  n > 0. */
void merging_run(struct merging *m, size_t n, merge_find *find, const void *ctx);

#endif
