/* normalize.h - what SentencePiece does to a text before it looks for tokens; private to the
 * tokenizer. */
#ifndef KVF_ENGINE_NORMALIZE_H
#define KVF_ENGINE_NORMALIZE_H

#include "base/buf.h"
#include "engine/model/gguf.h"

struct normalizer {
    bool prefix;       /* a space is put before a text */
    bool prefix_first; /* only where the text is the start of all */
    bool prefix_new;   /* only where it does not begin with one */
    bool collapse;     /* spaces at both ends go, runs of them become one */
    /* Rules "these bytes become those", such as those of NFKC: a trie as a double array (Aoe 1989)
     * in the layout of Darts-clone, and the texts that its values are offsets of. */
    uint32_t *trie; /* [n_trie] NULL: no rules */
    size_t n_trie;
    char *target; /* [n_target], the last byte is NUL */
    size_t n_target;
};

/* From tokenizer.ggml.add_space_prefix, .remove_extra_whitespaces and .precompiled_charsmap, and
 * tokenizer.kvfate.prefix_first and .prefix_new.
 * KVF_OK, KVF_E_FORMAT with a sentence, KVF_E_NOMEM. */
int normalizer_open(struct normalizer *z, const struct gguf *g, struct kvf_diag *d);
void normalizer_finish(struct normalizer *z); /* accepts a zeroed one */

/* Appends the normalised text, its spaces as spaces (U+2581 becomes one, too).  Ill-formed bytes
 * stay.  first: nothing stands before it.  What fails is in out->err. */
void normalize(const struct normalizer *z, const char *s, size_t n, bool first, struct buf *out);

#endif
