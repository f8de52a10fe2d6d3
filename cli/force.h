/* force.h - tokens that a run is fed instead of sampled tokens, and plans that it replays. */
#ifndef KVF_CLI_FORCE_H
#define KVF_CLI_FORCE_H

#include <stdint.h>

#include "cli/methods.h"
#include "engine/experiment/plan.h"

/* The forced tokens and the plan of a run. */
struct force {
    const char *file;      /* --force: ids as text, a trace or a plan; NULL if not given */
    const char *plan_file; /* --plan; NULL if not given */

    struct plan *plan;   /* of --plan */
    struct plan *tokens; /* of --force, if it is a trace or a plan */
    int32_t *text_ids;   /* [n_text] ids of --force, if it is text */
    int n_text;
    int32_t *until;       /* [L][H][T] evictions of the plan, in the form that methods take */
    const int32_t *ids;   /* [n_ids] forced tokens after the prompt; borrowed */
    const uint8_t *roles; /* [n_ids] their roles, or NULL */
    int n_ids;
};

/* Returns the model description that plans must match. */
struct plan_model force_model(const struct engine *e);

/* Returns true if tokens are forced or a plan is replayed. Accepts NULL. */
bool force_given(const struct force *f);

/* Reads the files of --force and --plan for an open engine. Returns KVF_OK or an error with a
 * sentence. */
int force_open(struct force *f, struct engine *e, struct kvf_diag *d);
/* Frees the tokens and plans; accepts a zeroed struct. */
void force_close(struct force *f);

/* Gives the methods of a run the evictions and attention masses of the plan. The preset `plan`
 * also receives the prompt settings of the recorded run. Returns KVF_E_ARG with a sentence if the
 * plan lacks data that a method needs. */
int force_inputs(struct force *f, const struct model_config *m, struct methods *r,
                 struct kvf_diag *d);

/* Sets *ret_ids (borrowed) and *ret_n to the prompt that the files contain. Returns KVF_E_ARG with
 * a sentence if the files do not record where the prompt ends. */
int force_prompt(const struct force *f, const int32_t **ret_ids, int *ret_n, struct kvf_diag *d);

/* Returns the number of tokens after the prompt that are its question (KVF_ROLE_QUESTION). */
int force_question(const struct force *f);

/* Sets the tokens that follow the prompt. Returns KVF_E_ARG with a sentence if the tokens of the
 * file do not begin with the prompt. */
int force_follow(struct force *f, const int32_t *prompt, int n, struct kvf_diag *d);

/* Returns the roles of the prompt's tokens, or NULL. */
const uint8_t *force_roles(const struct force *f);

#endif
