/* words_list.h - selects and sorts rows of the table words for the bar chart and the cloud. */
#pragma once

#include <stdbool.h>

#include "base/table.h"

/* One word and its counts. */
struct word_row {
    const char *word;         /* borrowed from the table */
    double count, base;       /* kept occurrences, all occurrences */
    double share, base_share; /* fraction of kept tokens, of the text; NaN over several documents */
    double kept, low, high;   /* count / base with its interval, NaN: not drawn */
    double lift;              /* kept relative to the rate of all rows */
    int64_t place;            /* row of the table */
};

enum words_sort { WORDS_RATIO, WORDS_COUNT, WORDS_TABLE };

/* The sorted words of a table. */
struct words_list {
    struct word_row *row;
    int64_t n;   /* rows with a base count */
    int64_t all; /* rows of the table */
    double rate; /* sum of counts / sum of base counts */
    bool pooled; /* over several documents, where fractions are undefined */
};

/* Reads a table with the columns that the figures of words declare.  Returns KVF_OK or KVF_E_NOMEM;
 * the caller calls words_free in every case. */
int words_read(const struct table *t, enum words_sort sort, struct words_list *ret);
void words_free(struct words_list *w);
