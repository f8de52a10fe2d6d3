/* methods.h - the cache methods of a run (--method, --override), and the gates and other inputs
 * that they need. */
#ifndef KVF_CLI_METHODS_H
#define KVF_CLI_METHODS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/opt.h"
#include "engine/decode/session.h"

/* The method of some heads, which replaces --method there (--override). */
struct row_override {
    struct method row;
    struct method_params params;
    unsigned char *take; /* [L * cache heads] nonzero for heads of the override */
};

/* The methods of a run. */
struct methods {
    /* options */
    const char *method, *gates_file, *head_budgets;
    const char *budget_text; /* --budget: entries, or a fraction as "25%"; NULL if not given */
    struct opt_list override_text;

    /* set by methods_parse() */
    struct budget budget;
    struct budget_prompt prompt; /* that methods_resolve() was called with */
    struct method row;
    struct method_params params;
    struct row_override *override; /* [override_text.n] owned */

    /* set by methods_open(); the caller may fill inputs before it */
    struct gates *gates;           /* NULL if no method uses gates */
    struct head_table *head_table; /* of --head-budgets; NULL: none */
    struct method_inputs inputs;
    int cache_heads; /* KV heads per layer of the cache and of the trace */
};

/* Parses the options, without a model. `standard` is the method if --method is not given. Returns
 * KVF_OK or an error with a sentence. */
int methods_parse(struct methods *r, const char *standard, struct kvf_diag *d);
/* Resolves budgets that are fractions for a prompt. Returns KVF_OK, or KVF_E_ARG with a sentence
 * if a method cannot keep its budget there. */
int methods_resolve(struct methods *r, const struct budget_prompt *prompt, struct kvf_diag *d);
/* Returns true if some method cuts the cache after each turn of a chat. */
bool methods_cut_turns(const struct methods *r);
/* Returns true if some budget is a fraction. */
bool methods_fractional(const struct methods *r);
/* Opens the gates for an open model, and checks that every method has its inputs. Returns KVF_OK
 * or an error with a sentence. */
int methods_open(struct methods *r, struct engine *e, struct kvf_diag *d);
/* Finds the tokens that `protect` names in the prompt that r->inputs describes (method_protect).
 * Returns KVF_OK or an error with a sentence. */
int methods_protect(struct methods *r, struct kvf_diag *d);
void methods_close(struct methods *r); /* accepts a zeroed struct */

/* Returns the index of the override that applies to a KV head of the cache (at = layer * cache
 * heads + head), or -1 if --method applies. */
int methods_decider(const struct methods *r, int at);

/* Appends "method", "gates" and "overrides" of the run header, each after a comma. prompt: tokens
 * of the prompt; 0: not known. */
void methods_put(struct buf *b, const struct methods *r, const struct model_config *m, int prompt);

/* The sum and the range of the budgets of the heads that take theirs from --head-budgets. */
struct head_budget_range {
    int64_t sum;                    /* of the heads with a limit */
    int n;                          /* heads that take their budget from the table */
    int free;                       /* of them, heads without a limit */
    int low_at, high_at, low, high; /* of the heads with a limit: layer * cache heads + head */
};
/* Sets *ret, n = 0 if no head has its budget from a table. KVF_OK or KVF_E_NOMEM. */
int methods_head_budgets(const struct methods *r, const struct model_config *m, int prompt,
                         struct head_budget_range *ret);

/* Returns the name of the trace column with the gate value of each entry. Returns NULL if there
 * are no gates, or if they gate heads or blocks. */
const char *methods_gate_column(const struct methods *r);
/* Returns true if queries of some head may not see all entries. */
bool methods_evict(const struct methods *r);
/* Returns true if texts may exceed the model's context because every method keeps a bounded
 * cache. */
bool methods_outlive(const struct methods *r, const struct model_config *m);
/* true if queries of the prompt may not see all entries */
bool methods_cut_prompt(const struct methods *r);
/* true if some method reads selected pages only */
bool methods_read_pages(const struct methods *r);

#endif
