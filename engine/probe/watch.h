/* watch.h - the heads and tokens of a run that raw blocks are recorded of. */
#ifndef KVF_ENGINE_WATCH_H
#define KVF_ENGINE_WATCH_H

#include <stdbool.h>

#include "engine/probe/probe.h"

enum {
    WATCH_MAX_PAIRS = 1024,  /* (query head, token): a column each */
    WATCH_MAX_NUMBERS = 2048 /* of query vectors, per step: a column each */
};

struct watch_head {
    int layer, head; /* query head */
};
struct watch_pair {
    struct watch_head at;
    int32_t token;
};

/* Zero-initialise, add, settle; free with watch_free. */
struct watch {
    struct watch_pair *pair; /* [n_pairs] head by head, tokens rising, each once */
    int n_pairs;
    struct watch_head *query; /* [n_queries] rising */
    int n_queries;
    bool turned; /* query vectors after RoPE */
};

/* Adds "TOKENS@HEADS": "383,400-410@L10H19,L3H*".  KVF_OK, KVF_E_ARG with a sentence (also
 * for tokens that the run cannot reach, and for too many), KVF_E_NOMEM. */
int watch_add_tokens(struct watch *w, const char *text, const struct probe_config *cfg,
                     struct kvf_diag *d);

/* Sets the heads of query vectors: "HEADS", "HEADS@pre" or "HEADS@post" (RoPE).  Errors as
 * above. */
int watch_set_queries(struct watch *w, const char *text, const struct probe_config *cfg,
                      struct kvf_diag *d);

/* Makes *set (bits of probe_table) and the watch agree: probes of what was chosen join the set;
 * the probe queries alone gets head 0 of the first, middle and last layer; received alone is
 * KVF_E_ARG. */
int watch_settle(struct watch *w, const struct probe_config *cfg, unsigned *set,
                 struct kvf_diag *d);
void watch_free(struct watch *w);

#endif
