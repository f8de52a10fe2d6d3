/* dilution_useful.h - which entries count as useful in an analysis of dilution. */
#ifndef KVF_ANALYZERS_DILUTION_USEFUL_H
#define KVF_ANALYZERS_DILUTION_USEFUL_H

#include <stdbool.h>

#include "analyzers/common.h"

struct useful_set {
    char set[KVF_NAME_MAX / 2]; /* in names: "top64", "mass.90", "slack.1", "span", "plan" */
    char text[KVF_NAME_MAX];    /* the same as the option has it */
    bool prefix;                /* U is a prefix of the order of weights */
    int top;                    /* K of topk:K; 0: sizes are recorded */
};

/* text: the value of --useful; NULL: spans if the trace has them, else topk:64.  Into a zeroed
 * struct.  KVF_E_ARG with a sentence. */
int useful_parse(const struct kvf_trace *t, const char *text, struct useful_set *ret,
                 struct kvf_diag *d);

#endif
