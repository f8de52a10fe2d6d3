/* merging.h - private to the tokenizer: merges adjacent nodes, best pair first, until no pair can
 * be merged. A heap over a linked list makes this O(n log n). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A node of the list. */
struct merge_node {
    int32_t id; /* equal ids have equal bytes */
    int32_t prev, next;
    uint32_t at, len; /* range of the text, if the model needs it */
};

/* A pair that can be merged. */
struct merge_cand {
    double key; /* the smallest key is merged first; ties from left to right */
    int32_t at, left, right, result;
};

struct merging { /* scratch memory that grows as needed; zero it first */
    struct merge_node *node;
    struct merge_cand *heap;
    size_t cap;
};

/* Returns true if two adjacent nodes can be merged, and sets the key and the result of *ret. */
typedef bool merge_find(const void *ctx, const struct merge_node *left,
                        const struct merge_node *right, struct merge_cand *ret);

enum { MERGING_MOST = 1 << 24 }; /* maximum nodes, which use 1.4 GB */
/* Allocates n nodes. Returns KVF_OK, KVF_E_LIMIT for n > MERGING_MOST, or KVF_E_NOMEM. */
int merging_reserve(struct merging *m, size_t n);
void merging_finish(struct merging *m); /* accepts a zeroed struct */
/* Merges nodes 0 to n - 1, n > 0, with id, at and len set by the caller. The remaining nodes are
 * the list that starts at node 0 and ends with next < 0. */
void merging_run(struct merging *m, size_t n, merge_find *find, const void *ctx);
