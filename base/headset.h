/* headset.h - parses sets of heads such as L15K2 (KV head), L15H24 (query head), L0-5K*, or 15.2
 * (a head of the kind that the context defines), separated by commas. */
#ifndef KVF_BASE_HEADSET_H
#define KVF_BASE_HEADSET_H

#include <stdbool.h>

/* A range of layers or heads. */
struct headset_range {
    int lo, hi; /* inclusive; `*` is 0 .. 2^20 */
};
/* An item of a set. */
struct headset_item {
    struct headset_range layer, head;
    char kind; /* 'K', 'H' or '.' */
};

/* Parses one item of *s and the comma after it, and advances *s. Returns false if it is
 * malformed. */
bool headset_next(const char **s, struct headset_item *ret);

/* Marks the heads of a set in take[layer * n_heads + head]. wrong: the letter 'K' or 'H' that is
 * not allowed; 0 if both are. Returns the number of heads, summed over the items; 0 if the set
 * matches no head; -1 if it is malformed. */
int headset_mark(const char *set, char wrong, int n_layers, int n_heads, unsigned char *take);

#endif
