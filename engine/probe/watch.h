/* watch.h - the heads and tokens for which raw data are recorded. */
#pragma once

#include <stdbool.h>

#include "engine/probe/probe.h"

enum {
    WATCH_MAX_PAIRS = 1024,  /* (query head, token) pairs, one column each */
    WATCH_MAX_NUMBERS = 2048 /* query vector elements per step, one column each */
};

/* A query head. */
struct watch_head {
    int layer, head; /* query head */
};
/* A query head and a token. */
struct watch_pair {
    struct watch_head at;
    int32_t token;
};

/* The selection of a run. Zero-initialise, add, settle; free with watch_free. */
struct watch {
    struct watch_pair *pair; /* [n_pairs] by head, then rising token, without duplicates */
    int n_pairs;
    struct watch_head *query; /* [n_queries] rising */
    int n_queries;
    bool turned;            /* query vectors after RoPE */
    struct watch_head *raw; /* [n_raw] rising query heads whose queries and keys are recorded */
    int n_raw;
    float *sink; /* [n_raw] one more logit of the softmax; -INFINITY: none */
};

/* Adds "TOKENS@HEADS": "383,400-410@L10H19,L3H*". Returns KVF_OK, KVF_E_ARG with a message (also
 * for tokens that the run cannot reach, and for too many), or KVF_E_NOMEM. */
int watch_add_tokens(struct watch *w, const char *text, const struct probe_config *cfg,
                     struct kvf_diag *d);

/* Sets the heads of query vectors: "HEADS", "HEADS@pre" or "HEADS@post" (RoPE). Errors as in
 * watch_add_tokens. */
int watch_set_queries(struct watch *w, const char *text, const struct probe_config *cfg,
                      struct kvf_diag *d);

/* Sets the heads of raw blocks from the words raw:HEADS of a --probes list, such as
 * "auto,raw:5.3,L6K0". 5.3 and L5H3 are query heads; L6K0 are all query heads of a KV head. Without
 * such a word it changes nothing. Errors as in watch_add_tokens. */
int watch_set_raw(struct watch *w, const char *probes, const struct probe_config *cfg,
                  struct kvf_diag *d);

/* Makes *set (bits of probe_table) and the watch consistent. Probes for which heads were selected
 * join the set, and evict joins raw. The probe queries without heads gets head 0 of the first,
 * middle and last layer. The probe received without heads is KVF_E_ARG. */
int watch_settle(struct watch *w, const struct probe_config *cfg, unsigned *set,
                 struct kvf_diag *d);
/* Frees the lists; accepts a zeroed struct. */
void watch_free(struct watch *w);
