/* headset.h - parses sets of heads such as L15K2 (KV head), L15H24 (query head), L0-5K* and 15.2
 * (either kind), separated by commas. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include <kvf/err.h>

struct headset_range {
    int lo, hi; /* inclusive; `*` is 0 .. HEADSET_ALL */
};
#define HEADSET_ALL INT_MAX
struct headset_item {
    struct headset_range layer, head;
    char kind; /* 'K', 'H' or '.' */
};
/* The heads that a set selects from. */
struct headset_shape {
    const char *owner; /* of the layers, for messages: "the model" or a path */
    int n_layers, n_heads;
    const int *heads; /* [n_layers] heads of each layer, at most n_heads; NULL: n_heads each */
    char kind;        /* 'K' or 'H': the only letter that names these heads; 0: both letters do */
};

/* Takes one item off *s, and the comma after it.  False: malformed. */
bool headset_next(const char **s, struct headset_item *ret);

/* Checks that the heads exist and narrows a `*` to them.  option and set: for messages.  KVF_OK, or
 * KVF_E_ARG with a sentence. */
int headset_fit(const char *option, const char *set, const struct headset_shape *shape,
                struct headset_item *item, struct kvf_diag *d);

/* Sets the flags take[layer * n_heads + head] of the heads of a set.  KVF_OK, or KVF_E_ARG with a
 * sentence if the set is malformed, or names a head that does not exist, or no head. */
int headset_mark(const char *option, const char *set, const struct headset_shape *shape,
                 unsigned char *take, struct kvf_diag *d);
