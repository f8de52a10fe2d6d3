/* normalize.h - private to the tokenizer: the normalization of SentencePiece. */
#pragma once

#include "base/buf.h"
#include "engine/model/gguf.h"

/* The rules of a normalization. */
struct normalizer {
    bool prefix;       /* a space is added before a text */
    bool prefix_first; /* only if the text is the start of the complete input */
    bool prefix_new;   /* only if it does not begin with a space */
    bool collapse;     /* spaces at both ends are removed, and runs of spaces become one */
    /* Replacement rules for byte sequences, such as those of NFKC: a trie as a double array (Aoe
     * 1989) in the layout of Darts-clone, and the replacement texts. The values of the trie are
     * offsets of texts. */
    uint32_t *trie; /* [n_trie]; NULL if there are no rules */
    size_t n_trie;
    char *target; /* [n_target], the last byte is NUL */
    size_t n_target;
};

/* Reads tokenizer.ggml.add_space_prefix, .remove_extra_whitespaces and .precompiled_charsmap, and
 * tokenizer.kvfate.prefix_first and .prefix_new. Returns KVF_OK, KVF_E_FORMAT with a sentence, or
 * KVF_E_NOMEM. */
int normalizer_open(struct normalizer *z, const struct gguf *g, struct kvf_diag *d);
void normalizer_finish(struct normalizer *z); /* accepts a zeroed struct */

/* Appends the normalized text. U+2581 becomes a space, and ill-formed bytes are unchanged. first:
 * the text is the start of the complete input. An error is stored in out->err. */
void normalize(const struct normalizer *z, const char *s, size_t n, bool first, struct buf *out);
