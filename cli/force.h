/* force.h - tokens that a run is fed instead of those it would sample. */
#ifndef KVF_CLI_FORCE_H
#define KVF_CLI_FORCE_H

#include <stdint.h>

#include "cli/methods.h"
#include "engine/experiment/plan.h"

struct force {
    const char *file;      /* --force: ids as text, a trace or a plan; NULL: none */
    const char *plan_file; /* --plan; NULL: none */

    struct plan *plan;   /* of --plan */
    struct plan *tokens; /* of --force, when it is a trace or a plan */
    int32_t *text_ids;   /* [n_text] of --force, when it is text */
    int n_text;
    int32_t *until;       /* [L][H][T] of the plan, as methods take it */
    const int32_t *ids;   /* [n_ids] the forced ones, behind the prompt; borrowed */
    const uint8_t *roles; /* of them, or NULL */
    int n_ids;
};

/* The model that plans must be of. */
struct plan_model force_model(const struct engine *e);

/* Whether tokens are forced, or a plan is replayed.  Accepts NULL. */
bool force_given(const struct force *f);

/* Reads the files for an opened engine. */
int force_open(struct force *f, struct engine *e, struct kvf_diag *d);
void force_close(struct force *f);

/* Gives the rows of a run what they need of the plan: evictions and masses; to
 * the row `plan` also what its run did with the prompt.  KVF_E_ARG with a sentence when the
 * plan lacks what a row needs. */
int force_inputs(struct force *f, const struct model_config *m, struct methods *r,
                 struct kvf_diag *d);

/* The prompt that the files hold: its ids, borrowed, and how many.  KVF_E_ARG when they
 * do not say where it ends. */
int force_prompt(const struct force *f, const int32_t **ret_ids, int *ret_n, struct kvf_diag *d);

/* Fixes what follows the prompt.  KVF_E_ARG when the file's tokens do not begin
 * with it. */
int force_follow(struct force *f, const int32_t *prompt, int n, struct kvf_diag *d);

/* Roles of the prompt's tokens, or NULL. */
const uint8_t *force_roles(const struct force *f);

#endif
