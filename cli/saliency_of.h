/* saliency_of.h - the trace whose tokens and entries `saliency` looks at. */
#ifndef KVF_CLI_SALIENCY_OF_H
#define KVF_CLI_SALIENCY_OF_H

#include "engine/decode/session.h"
#include "engine/experiment/plan.h"

struct saliency_of {
    struct plan *tokens; /* ids and roles; owned */
    double *log_beta;    /* [L * H][T]; NULL: not recorded */
    double *evict_step;  /* the same; INFINITY: alive */
    float *write_gate;   /* the same */
    bool partial;        /* the trace was not closed */
};

/* Reads a trace made with the model.  KVF_OK or an error with a sentence. */
int saliency_of_open(struct saliency_of *of, const char *path, const struct engine *e,
                     struct kvf_diag *d);
void saliency_of_close(struct saliency_of *of); /* accepts a zeroed struct */

#endif
