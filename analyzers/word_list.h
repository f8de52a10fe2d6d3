/* word_list.h - a document's distinct strings, and which tokens each place of one has. */
#pragma once

#include <stdbool.h>

#include <kvf/trace.h>

#include "analyzers/classes.h"

enum words_by { BY_WORD, BY_TOKEN, BY_CLASS, BY_ROLE, N_WORDS_BY };

/* Tokens [first, end) make an occurrence of the word. */
struct place {
    int64_t word, first, end;
};

struct word_list {
    int64_t n_words, n_places;
    const char **word;   /* [n_words], as first met; into the buffer below */
    struct place *place; /* [n_places], in order of the text */
    struct buf strings;
    int64_t left_out; /* tokens in no place: only white space, for words */
};

/* Lists the words of the tokens [a, b); tokens outside of these are left out of their place.
 *   BY_WORD text between white space, in the text of the document; a token of
 *             class special, vision or think is one word.  All tokens that share a byte
 *             with a word belong to it.  fold: see word_list.c
 *   BY_TOKEN  the text of one token; BY_CLASS: its class in c; BY_ROLE: its role
 * Strings are shown as utf8_show does.  role: [T], for BY_ROLE; class: [T], of classes_of_trace,
 * else.  KVF_OK or KVF_E_NOMEM; word_list_free in both cases. */
struct word_source {
    struct kvf_trace *t;
    const struct classes *c;
    const uint8_t *class;
    const double *role;
    enum words_by by;
    bool fold;
    int64_t a, b;
};
int word_list_make(const struct word_source *s, struct word_list *ret);
void word_list_free(struct word_list *l); /* accepts a zeroed struct */
