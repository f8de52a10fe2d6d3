/* align.h - tokens of one text under two tokenizers, and how alike heads are over them. */
#pragma once

#include <stdbool.h>

#include "analyzers/common.h"

/* Piece k of the text is tokens [end[k - 1][0], end[k][0]) of the first trace but for special
 * ones, and [end[k - 1][1], end[k][1]) of the second, end[-1] = start: between two byte offsets at
 * which tokens of both end, and no less. */
struct alignment {
    int64_t n, bytes;
    int64_t start[2];
    int64_t (*end)[2];         /* [n] */
    unsigned char *special[2]; /* [T] tokens that are of no piece */
};

/* Cuts the bytes that both texts begin with into pieces.  Special tokens (analyzers/classes.h) are
 * left out, and so are pieces with a first token in a outside of [t0, t1).  A special token of one
 * trace whose characters are ordinary text in the other counts as text, and the blank that
 * SentencePiece puts before a text does not count.  KVF_E_NOTFOUND with a
 * sentence when a trace lacks the text of a token, or fewer than two pieces are left. */
int align_texts(struct kvf_trace *a, struct kvf_trace *b, int64_t t0, int64_t t1,
                struct alignment *ret, struct kvf_diag *d);
void align_free(struct alignment *x);

/* Ranks of the pieces by a column, of each head of the list, moved and scaled to mean 0 and length
 * 1, so that the product of two is Spearman's correlation: [heads][n], free with mem_free.
 * A piece has the sum of its tokens' values (sum), or their mean.  Heads with undefined or all
 * equal values have NaN.  side: 0 or 1. */
int align_ranks(struct kvf_trace *t, int column, const struct head_list *heads,
                const struct alignment *x, int side, bool sum, float **ret, struct kvf_diag *d);
