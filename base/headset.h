/* headset.h - sets of heads as people write them: L15K2 (KV head), L15H24 (query
 * head), L0-5K*, 15.2 (a head of whatever kind is meant), separated by commas. */
#pragma once

#include <stdbool.h>

struct headset_range {
    int lo, hi; /* inclusive; `*` is 0 .. 2^20 */
};
struct headset_item {
    struct headset_range layer, head;
    char kind; /* 'K', 'H' or '.' */
};

/* Takes one item off *s, and the comma after it.  False: malformed. */
bool headset_next(const char **s, struct headset_item *ret);

/* Marks the heads of a set in take[layer * n_heads + head]; wrong: 'K' or 'H', the letter that is
 * not allowed there; 0: both may.  How many items' heads there are in all; 0: the set names no
 * head; -1: malformed. */
int headset_mark(const char *set, char wrong, int n_layers, int n_heads, unsigned char *take);
