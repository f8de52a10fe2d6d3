/* received.h - the other tables of the analyzer received (received_spread.c). */
#ifndef KVF_ANALYZERS_RECEIVED_H
#define KVF_ANALYZERS_RECEIVED_H

#include <stdbool.h>

#include "analyzers/analyzer.h"

enum spread { SPREAD_SHARES, SPREAD_TOKENS, SPREAD_HEADS, N_SPREADS };
extern const char *const spread_names[N_SPREADS];

/* How the attention that tokens received spreads over heads or tokens, from mass.sum.
 * mass: the part that share_90 and its kind count up to, in (0, 1].
 * contrib: weighs with mass.sum times out_norm, the sum over queries of a_ti |W_O v_i|. */
int received_spread(struct kvf_trace *t, enum spread kind, double mass, bool contrib,
                    const struct analyzer_args *args, struct table **ret_table, struct kvf_diag *d);
void received_describe_spread(const struct table *t, struct buf *out);

#endif
