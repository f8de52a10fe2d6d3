/* saliency_of.h - reads the trace with the tokens and entries that `kvfate ablate --as saliency`
 * examines. */
#ifndef KVF_CLI_SALIENCY_OF_H
#define KVF_CLI_SALIENCY_OF_H

#include "engine/decode/session.h"
#include "engine/experiment/plan.h"

/* Tokens and entries of a trace. */
struct saliency_of {
    struct plan *tokens; /* ids and roles; owned */
    double *log_beta;    /* [L * H][T]; NULL if not recorded */
    /* [L * H][T] eviction step, INFINITY if not evicted; NULL if not recorded */
    double *evict_step;
    float *write_gate; /* [L * H][T] in 0 .. 1; NULL if not recorded */
    bool partial;      /* the trace was not closed */
};

/* Reads a trace that was made with the model of e. Returns KVF_OK or an error with a sentence. */
int saliency_of_open(struct saliency_of *of, const char *path, const struct engine *e,
                     struct kvf_diag *d);
void saliency_of_close(struct saliency_of *of); /* accepts a zeroed struct */

#endif
