/* words_list.h - rows of table words, chosen and ordered: what the bars and the cloud draw. */
#ifndef KVF_RENDER_WORDS_LIST_H
#define KVF_RENDER_WORDS_LIST_H

#include <stdbool.h>

#include "base/table.h"

struct word_row {
    const char *word;         /* borrowed from the table */
    double count, base;       /* held, of all */
    double share, base_share; /* of all held, of the text; NaN where documents were pooled */
    double kept, low, high;   /* count / base with its interval, NaN: none */
    double lift;              /* kept against that of all rows together */
    int64_t place;            /* row of the table */
};

enum words_sort { WORDS_RATIO, WORDS_COUNT, WORDS_TABLE };

struct words_list {
    struct word_row *row;
    int64_t n;   /* rows with a base count */
    int64_t all; /* rows of the table */
    double rate; /* sum of counts / sum of base counts */
    bool pooled; /* over documents: shares mean nothing there */
};

/* Reads a table with the columns that the figures of words declare.  KVF_OK or KVF_E_NOMEM;
 * words_free in every case. */
int words_read(const struct table *t, enum words_sort sort, struct words_list *ret);
void words_free(struct words_list *w);

#endif
