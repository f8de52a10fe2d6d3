/* heads.h - sets of heads as commands take them: "L0-5K*,15.2". */
#pragma once

#include <kvf/trace.h>

/* Which heads of the space a set names: [n_layers][heads of layer 0], 1 = named, for traces with
 * equally many heads in each layer.  Free with mem_free.  KVF_E_ARG with a sentence for a malformed
 * set, or one without a head. */
int heads_mask(const struct kvf_trace *t, enum kvf_space space, const char *set,
               unsigned char **ret_mask, struct kvf_diag *d);
