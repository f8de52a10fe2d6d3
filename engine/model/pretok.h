/* pretok.h - cuts a text into words before BPE merges inside of each; private to the tokenizer.
 *
 * A pre-tokenizer is a row of patterns.  The first cuts the text: each match is a piece, and so is
 * each stretch between matches.  The second cuts those pieces, which it sees as texts of their
 * own, and so on; what the last leaves are the words. */
#ifndef KVF_ENGINE_PRETOK_H
#define KVF_ENGINE_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

#include <kvf/err.h>

struct pretok;

enum { PRETOK_PATTERNS = 16 };
enum { PRETOK_DROPS = 1 }; /* first byte of a pattern between whose matches nothing is text */

/* A row of the table by its name in a file (tokenizer.ggml.pre).  KVF_E_FORMAT: there is no such
 * row; KVF_E_NOMEM. */
int pretok_create(const char *name, size_t len, struct pretok **ret);
/* Of patterns that a file carries itself, in PCRE2's syntax: n texts, each ended by a NUL, one
 * behind the other; n <= PRETOK_PATTERNS; of none a text is one word.  KVF_E_FORMAT: *ret_bad
 * cannot be used. */
int pretok_from_patterns(const char *pattern, int n, bool whole_words, struct pretok **ret,
                         const char **ret_bad);
/* The name of the i-th row; NULL behind the last. */
const char *pretok_name(int i);
void pretok_destroy(struct pretok *p); /* accepts NULL */

bool pretok_whole_words(const struct pretok *p); /* bpe.h */
bool pretok_adds_bos(const struct pretok *p);    /* where the file does not say */

/* One text that is being cut; the caller owns it, pretok_cut_finish frees it. */
struct pretok_cut {
    struct pretok_level *level; /* [patterns + 1] */
    void *match, *limits;       /* of PCRE2 */
    const struct pretok *p;
    const char *text;
};

int pretok_cut_init(struct pretok_cut *c, const struct pretok *p); /* KVF_OK or KVF_E_NOMEM */
void pretok_cut_finish(struct pretok_cut *c);                      /* accepts a zeroed one */
/* Begins a text: n bytes of well-formed UTF-8, borrowed until its last word. */
void pretok_start(struct pretok_cut *c, const char *text, size_t n);
/* The next word; false at the end, and when the text asks too much of a pattern: *ret_err is then
 * KVF_E_LIMIT. */
bool pretok_next(struct pretok_cut *c, const char **ret_word, size_t *ret_n, int *ret_err);

#endif
