/* methods.h - the rows of methods that a run has (--method, --override), and the gates and other
 * inputs that they need. */
#ifndef KVF_CLI_METHODS_H
#define KVF_CLI_METHODS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/opt.h"
#include "engine/decode/session.h"

/* The row of some heads in the place of --method. */
struct row_override {
    struct method row;
    struct method_params params;
    unsigned char *take; /* [L * cache heads] */
};

struct methods {
    /* options */
    const char *method, *gates_file;
    struct opt_list override_text;
    int64_t budget;

    /* made by methods_parse */
    struct method row;
    struct method_params params;
    struct row_override *override; /* [override_text.n] owned */

    /* made by methods_open; inputs may be filled between */
    struct gates *gates; /* NULL: none */
    struct method_inputs inputs;
    int cache_heads; /* KV heads of the cache and of the trace */
};

/* What needs no model.  standard: the method where --method is not given.  KVF_OK or an error with
 * a sentence. */
int methods_parse(struct methods *r, const char *standard, struct kvf_diag *d);
/* Opens the gates for an opened model, and checks that all rows have what they need. */
int methods_open(struct methods *r, struct engine *e, struct kvf_diag *d);
void methods_close(struct methods *r); /* accepts a zeroed one */

/* The override of an opened run that decides for a KV head of the cache (layer * cache heads +
 * head); -1: --method does. */
int methods_decider(const struct methods *r, int at);

/* "method", "gates" and "overrides" of the run header, each with a comma before it. */
void methods_put(struct buf *b, const struct methods *r, const struct model_config *m);

/* Column of what the gates give an entry, NULL: they give heads or blocks something, or
 * there are none. */
const char *methods_gate_column(const struct methods *r);
/* Whether queries of any row may not see all entries. */
bool methods_evict(const struct methods *r);
/* Whether texts may be longer than the model's context: all rows go on beyond it. */
bool methods_outlive(const struct methods *r, const struct model_config *m);
bool methods_cut_prompt(const struct methods *r); /* those of the prompt among them */
bool methods_read_pages(const struct methods *r); /* whether any row does */

#endif
