/* retention_rows.h - what retention alone would make of attention: the rows of a head whose
 * logits are all equal, w_ti = beta_i^(t - i) / sum over j <= t of beta_j^(t - j). */
#ifndef KVF_ANALYZERS_RETENTION_ROWS_H
#define KVF_ANALYZERS_RETENTION_ROWS_H

#include <stdint.h>

/* From log_beta[T], each 0 or less, of the rows t < T: sum[i] and most[i] of w_ti over t;
 * last[i], the largest age at which w_ti was at least the even share 1 / (t + 1), or -1; and
 * entropy[t], nats.  scratch: [T].  Takes O(T^2). */
void retention_rows(const double *log_beta, int64_t T, double *sum, double *most, double *last,
                    double *entropy, double *scratch);

#endif
