/* tune_masks.h - the evictions that training applies: from a method, or from recorded runs. */
#ifndef KVF_CLI_TUNE_MASKS_H
#define KVF_CLI_TUNE_MASKS_H

#include "base/opt.h"
#include "cli/methods.h"
#include "engine/decode/engine.h"
#include "engine/train/packs.h"

/* Tests that the evictions of an opened method can be a mask.  KVF_OK, or KVF_E_ARG with a sentence
 * for a method that reads a choice of pages or keeps entries per query head. */
int tune_check_method(const struct methods *r, const struct engine *e, struct kvf_diag *d);

/* Makes a pack from each plan (see `kvfate trace plan`).  The plans must be of this model and have
 * at most `length` tokens.  KVF_OK, KVF_E_ARG for a plan without a mask, the errors of plan_open,
 * or KVF_E_NOMEM, with a sentence. */
int tune_plans_open(const struct opt_list *plans, const struct engine *e, int length,
                    struct packs **ret, struct kvf_diag *d);

#endif
