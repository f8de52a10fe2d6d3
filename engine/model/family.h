/* family.h - what sets families of models apart: one row for each architecture of GGUF files.
 *
 * To add a family whose parts are all there: one row in family.c, one case of
 * tests/data/golden/tools/make_family_golden.py with its tensors in gen_tiny.py, and its line
 * in docs/reference/parity.md. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"

struct family {
    const char *name;   /* general.architecture */
    const char *models; /* what people know under it */

    /* Tensors. */
    bool rope_neox; /* RoPE turns channels j and j + rope_dim / 2 of a head, else 2j and 2j + 1 */
    bool qkv_bias;  /* of the projections to queries, keys and values */
    bool qk_norm;   /* an RMSNorm of queries and one of keys, before RoPE: over each head, */
    bool qk_norm_wide; /* or over all heads together */
    bool no_pre_norm;  /* branches read the residual stream as it is */
    bool post_norm;    /* an RMSNorm of what a branch gives, before it is added */
    bool fused_qkv;    /* one tensor for queries, keys and values, one for gate and up */
    bool gelu;         /* the gate is gelu (by tanh) instead of silu */

    /* Numbers that files leave out; 0: none. */
    bool embedding_by_width; /* the embedding is multiplied by sqrt(d_model) */
    int window;              /* entries that a query of a local layer sees */
    int global_every;        /* every so many layers the last one sees everything; 0: all are
                              local where there is a window */
    double local_base;       /* of the rotations of local layers */
    bool local_plain;        /* local layers rotate as if nothing scaled positions */
    int nope_every;          /* every so many layers the last one does not rotate */
    float attn_cap, logit_cap;
    int depth_by_width; /* the depth of the one size whose attention is scaled by
                           1 / sqrt(d_model / n_heads) */

    /* Numbers that are obeyed where files have them. */
    enum {
        WINDOWS_NONE,
        WINDOWS_LISTED, /* where attention.sliding_window_pattern lists the layers */
        WINDOWS_READ
    } windows;        /* attention.sliding_window */
    bool logit_caps;  /* final_logit_softcapping */
    bool multipliers; /* of the embedding, of what branches add, of the logits */
};

/* The row of an architecture, or NULL. */
const struct family *family_find(const char *name);
/* The i-th row; NULL behind the last. */
const struct family *family_at(int i);
/* Why an architecture that has no row cannot be run ("a mixture of experts"), or NULL. */
const char *family_refusal(const char *name);
/* The i-th architecture that is refused, and why; NULL behind the last. */
const char *family_refused_at(int i, const char **ret_why);
/* What of a family is more than the plain block, "norms of queries and keys, ...": appended. */
void family_traits(const struct family *f, struct buf *b);
