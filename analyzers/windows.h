/* windows.h - the observation windows of a run (probe `window`), and the common part of their
 * analyzers. */
#pragma once

#include <kvf/schema.h>

#include "analyzers/common.h"

/* Window w has the queries [windows_from(w), windows_from(w + 1)). */
struct windows {
    int64_t T, end;          /* steps; rounded down to a multiple of 16: where windows end */
    int column[KVF_WINDOWS]; /* the attention of its queries to each entry */
    int evict;               /* the column evict_step */
};

/* Opens the windows of a trace.  queries: 128 for all queries of each window, or 16 for its last.
 * A column that the trace lacks is KVF_E_NOTFOUND, one of another kind KVF_E_FORMAT, both with a
 * sentence. */
int windows_open(const struct kvf_trace *t, int queries, struct windows *ret, struct kvf_diag *d);
int64_t windows_from(const struct windows *w, int window); /* below 0: there is no such window */

/* Reads a comma list of numbers above 0 and up to `most`, rising and each once, into out[cap].
 * KVF_E_ARG with a sentence that names the option. */
int windows_shares(const char *option, const char *list, double most, double *out, int cap,
                   int *ret_n, struct kvf_diag *d);

/* The heads that the rows of a table are of: each head, then the chosen heads of each layer
 * together (`L3K*`, index -1), then `all`. */
struct head_groups {
    int n, n_heads;
    const char **name; /* owned, into text and the list of heads */
    char (*text)[16];
    int64_t *layer, *index;
    int *layer_of; /* [n_heads] the group of its layer */
};

/* heads must outlive it.  KVF_OK or KVF_E_NOMEM. */
int groups_create(const struct head_list *heads, enum kvf_space space, struct head_groups *ret);
void head_groups_free(struct head_groups *g);
void put_groups(struct table *t, const struct head_groups *g); /* head, layer, index */
