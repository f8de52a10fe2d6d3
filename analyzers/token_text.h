/* token_text.h - the texts of tokens as tables show them. */
#pragma once

#include "analyzers/common.h"

/* Of n tokens: text, and joined, in which the first of the tokens of one character has its complete
 * text and the rest are empty.  Control characters and bytes that are no UTF-8 are visible marks
 * (utf8_show). */
struct token_text {
    int64_t n;
    const char **text, **joined; /* [n] owned strings */
};

/* Tokens [a, a + n).  KVF_OK or an error; finish in either case. */
int token_text_read(struct kvf_trace *t, int64_t a, int64_t n, struct token_text *ret);
void token_text_finish(struct token_text *x); /* accepts a zeroed struct */
