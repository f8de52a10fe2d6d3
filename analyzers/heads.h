/* heads.h - the heads of a trace that a set names, as commands take it: "L0-5K*,15.2". */
#pragma once

#include <stdint.h>

#include <kvf/trace.h>

struct head {
    int layer, index;
    char name[32]; /* "L15K2" or "L15H24" */
};

/* Heads by rising layer and index.  Free with heads_free(). */
struct head_list {
    int n;
    struct head *head; /* owned */
    const char **name; /* [n] owned array, into head[] */
    int64_t *layer, *index;
};

/* Lists the heads of the space that the set names; NULL: all.  The grammar is that of
 * base/headset.h.  KVF_E_ARG with a sentence for a malformed set, and for one that names another
 * space, no head, or a head that the trace does not have.  KVF_E_LIMIT for more heads than the file
 * can have values of. */
int heads_select(const struct kvf_trace *t, enum kvf_space space, const char *set,
                 struct head_list *ret, struct kvf_diag *d);
void heads_free(struct head_list *l); /* accepts a zeroed list */

/* Sets *ret_mask to [n_layers][heads of layer 0], 1 = named, for traces with equally many heads in
 * each layer.  Free with mem_free.  The errors of heads_select(). */
int heads_mask(const struct kvf_trace *t, enum kvf_space space, const char *set,
               unsigned char **ret_mask, struct kvf_diag *d);
