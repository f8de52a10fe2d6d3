/* tune_masks.h - what a training sees of evictions: those of a method, or of recorded runs. */
#ifndef KVF_CLI_TUNE_MASKS_H
#define KVF_CLI_TUNE_MASKS_H

#include "base/opt.h"
#include "cli/methods.h"
#include "engine/decode/engine.h"
#include "engine/train/packs.h"

/* KVF_OK, or KVF_E_ARG with a sentence for an opened method whose evictions are no mask: one that
 * chooses what is read, or keeps entries for each query head. */
int tune_check_method(const struct methods *r, const struct engine *e, struct kvf_diag *d);

/* A pack for each plan (kvfate-plan), all made with this model and of at most `length` tokens.
 * KVF_OK, or with a sentence KVF_E_ARG for a plan that gives no mask, the errors of plan_open, and
 * KVF_E_NOMEM. */
int tune_plans_open(const struct opt_list *plans, const struct engine *e, int length,
                    struct packs **ret, struct kvf_diag *d);

#endif
