/* hf_spm.h - private to engine/model: reads tokenizer.model, the file of a SentencePiece
 * vocabulary.
 *
 * The file is a Protocol Buffers message with the pieces, their scores and types, the training
 * settings, and the normalization. It is read in place and without recursion, and every length is
 * checked against the remaining bytes.
 */
#pragma once

#include "engine/model/hf_tokens.h"

/* The marks and the normalization rules of the file. */
struct hf_spm {
    int64_t bos, eos, unknown;  /* ids of marks in the file; negative if there is none */
    const unsigned char *rules; /* precompiled_charsmap, borrowed from the file */
    size_t n_rules;
};

/* Adds the pieces as tokens of x with their scores, and sets the handling of spaces in x. Returns
 * KVF_OK, KVF_E_FORMAT with a sentence, or KVF_E_NOMEM. */
int hf_spm_read(struct hf_tokens *x, const void *file, size_t n, struct hf_spm *ret);
