/* fingerprint.h - numbers by which a head is found again in other texts and in other models.
 *
 * Of a query head, from columns that the probes survival, steps and mass record (S = 4 first
 * tokens, T tokens in all; in logs 1e-9 is added first): share of the tokens S <= i < T - n with
 * the last selection at age n or later, for 11 ages n and five criteria; mean and standard
 * deviation of the entropy, and of the log-sum-exp, over the queries of six ranges; log of the mean
 * of mass.sum over the tokens of eight ranges of positions; logs of seven quantiles of mass.max
 * over i >= S, and of mass.sum and of mass.sum / mass.max over S <= i < T - T / 8, as the last
 * tokens have had few queries.  Of a KV head: mean, least and largest value of each of these over
 * the query heads of its group, which do not depend on their order; seven quantiles of log_beta,
 * write_gate, importance and key_norm; and the share of the entries that are still cached at the 11
 * ages.
 *
 * A range counts when the text reaches its middle.  A feature is NaN if the trace lacks its column
 * or the text is too short. */
#pragma once

#include "analyzers/common.h"

enum {
    FINGERPRINT_QUERY = 108,                     /* features of a query head */
    FINGERPRINT_KV = 3 * FINGERPRINT_QUERY + 39, /* of a KV head */
    FINGERPRINT_NAME = 64,                       /* bytes of a name */
};

/* "survival.top64.128", and of a KV head also "survival.top64.128.largest". */
void fingerprint_name(enum kvf_space space, int feature, char ret[FINGERPRINT_NAME]);

/* Features of the query heads of the list: f [heads][FINGERPRINT_QUERY].  tokens and queries
 * outside of [a, b) are left out.  KVF_OK or an error of reading. */
int fingerprint_query(struct kvf_trace *t, const struct head_list *heads, int64_t a, int64_t b,
                      double *f, struct kvf_diag *d);

/* The KV heads that have all their query heads in the list.  heads_free(ret). */
int fingerprint_kv_heads(const struct kvf_trace *t, const struct head_list *query,
                         struct head_list *ret, struct kvf_diag *d);

/* Features of these KV heads: query [query heads][FINGERPRINT_QUERY] as above, f [kv
 * heads][FINGERPRINT_KV]. */
int fingerprint_kv(struct kvf_trace *t, const struct head_list *query_heads, const double *query,
                   const struct head_list *heads, int64_t a, int64_t b, double *f,
                   struct kvf_diag *d);
