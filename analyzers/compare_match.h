/* compare_match.h - matches the heads of groups of traces by their behaviour over many texts. */
#pragma once

#include "analyzers/common.h"
#include "analyzers/fingerprint.h"

/* A row of the table of `compare`; values that do not apply are NaN, -1 or "". */
struct compare_row {
    int64_t a, b, layer_a, index_a, layer_b, index_b, matched, own, joined;
    const char *head_a, *head_b, *space, *changed;
    double distance, value_a, value_b, rival, nearer, nearer_wrong, p, q;
    char feature[FINGERPRINT_NAME]; /* the text of `changed` */
};

/* The row of two heads of the traces, or groups, a and b (counted from 0); all else undefined. */
struct compare_row compare_row_of(int a, int b, const struct head *p, const struct head *q,
                                  double distance);

/* Heads of one kind over the texts of a group. */
struct sightings {
    enum kvf_space space;
    struct head_list heads;
    int n_f;
    double *score, *value; /* [heads][n_f] means over texts: of rank_scores, of the features; NaN
                            * where a text does not have the feature */
};
/* Traces of one model. */
struct compare_group {
    int n;                     /* texts */
    const struct kvf_trace *t; /* the first of them, borrowed */
    struct sightings query, kv;
};

/* Reads the traces t[which[0..n)], which must have equal heads; *ret is for compare_group_free even
 * after a failure.  KVF_OK, KVF_E_ARG with a sentence, or an error of reading. */
int compare_group_read(struct kvf_trace *const *t, const int *which, int n,
                       const struct analyzer_args *args, struct compare_group *ret,
                       struct kvf_diag *d);
void compare_group_free(struct compare_group *g); /* accepts a zeroed one */

/* Rows of the matches of the groups number ga and gb, query heads before KV heads, to row, which
 * has room for the smaller number of either kind; *ret_n: how many.  A match with q < level is
 * `own`. */
int compare_groups(const struct compare_group *a, const struct compare_group *b, int ga, int gb,
                   double level, struct compare_row *row, int64_t *ret_n, struct kvf_diag *d);
