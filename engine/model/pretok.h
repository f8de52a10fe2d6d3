/* pretok.h - private to the tokenizer: splits a text into words, within which BPE merges.
 *
 * A pre-tokenizer is a list of patterns. The first pattern splits the text: each match is a piece,
 * and so is each stretch between matches. The second pattern splits these pieces, each as a
 * separate text, and so on. The pieces of the last pattern are the words.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <kvf/err.h>

struct pretok;

enum { PRETOK_PATTERNS = 16 };
/* first byte of a pattern whose matches are kept and the text between them dropped */
enum { PRETOK_DROPS = 1 };

/* Makes the pre-tokenizer with this name in a file (tokenizer.ggml.pre). Returns KVF_OK,
 * KVF_E_FORMAT if the name is unknown, or KVF_E_NOMEM. */
int pretok_create(const char *name, size_t len, struct pretok **ret);
/* Makes a pre-tokenizer from the patterns of a file, in PCRE2 syntax: n consecutive texts, each
 * ended by a NUL, n <= PRETOK_PATTERNS. Without patterns a text is one word. Returns KVF_OK,
 * KVF_E_FORMAT if *ret_bad cannot be compiled, or KVF_E_NOMEM. */
int pretok_from_patterns(const char *pattern, int n, bool whole_words, struct pretok **ret,
                         const char **ret_bad);
/* Returns the name of the i-th known pre-tokenizer; NULL beyond the last. */
const char *pretok_name(int i);
void pretok_destroy(struct pretok *p); /* accepts NULL */

bool pretok_whole_words(const struct pretok *p); /* as in bpe.h */
bool pretok_adds_bos(const struct pretok *p);    /* default if the file does not specify it */
/* Returns true if texts are first converted to Unicode's normal form C, as the published tokenizer
 * of these models does. GGUF has no key for it. */
bool pretok_nfc(const struct pretok *p);

/* A text that is being split; owned by the caller and freed by pretok_cut_finish(). */
struct pretok_cut {
    struct pretok_level *level; /* [patterns + 1] */
    void *match, *limits;       /* data of PCRE2 */
    const struct pretok *p;
    const char *text;
};

int pretok_cut_init(struct pretok_cut *c, const struct pretok *p); /* KVF_OK or KVF_E_NOMEM */
void pretok_cut_finish(struct pretok_cut *c);                      /* accepts a zeroed struct */
/* Starts a text: n bytes of well-formed UTF-8, borrowed until its last word. */
void pretok_start(struct pretok_cut *c, const char *text, size_t n);
/* Returns the next word. Returns false at the end, and if a pattern exceeds its step limit;
 * *ret_err is then KVF_E_LIMIT. */
bool pretok_next(struct pretok_cut *c, const char **ret_word, size_t *ret_n, int *ret_err);
