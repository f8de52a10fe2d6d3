/* raw_blocks.h - reads the blobs q, k and logit of heads (<kvf/schema.h>) and computes attention
 * weights from them. */
#pragma once

#include "analyzers/common.h"

/* The descriptions of all blobs of a trace. */
struct raw_list {
    struct kvf_blob *blob; /* [n] owned */
    int n;
};
/* KVF_OK or an error of kvf_blob; finish in either case. */
int raw_list_read(struct kvf_trace *t, struct raw_list *ret, struct kvf_diag *d);
void raw_list_finish(struct raw_list *l); /* accepts a zeroed struct */

/* Returns true if the trace has blobs of this name of a head. */
bool raw_has(const struct raw_list *l, const char *name, int layer, int head);

/* The blobs of a query head. */
struct raw_head {
    int64_t T;
    int D;                   /* numbers of a query and of a key */
    float *q, *k;            /* [T][D] owned */
    double scale, cap, sink; /* as in the blob logit */
};
/* Reads a query head of a trace of T steps, and its KV head. KVF_E_FORMAT with a sentence if blobs
 * have other types or shapes, lack steps, or differ where they overlap. Finish in either case. */
int raw_head_read(struct kvf_trace *t, const struct raw_list *l, const struct head *h, int64_t T,
                  struct raw_head *ret, struct kvf_diag *d);
void raw_head_finish(struct raw_head *x); /* accepts a zeroed struct */

/* Computes the attention weights of query t over the entries i <= t with end[i] > t, where end[i]
 * is the first query that does not see entry i; other entries have weight 0. out: [t + 1].
 * *ret_lse: logarithm of the sum of exp(logit), with the sink. A query that sees no entry has
 * weights 0. The weights are NaN if a number that the query needs is not finite. */
void raw_weights(const struct raw_head *x, const uint32_t *end, int64_t t, double *out,
                 double *ret_lse);
