/* corpus_rows.h - rows by their keys, with integer sums; private to the corpus files. */
#pragma once

#include "base/stats.h"
#include "studies/corpus.h"

/* Words of a row, for each measure.  N: in a document, how many values; in a corpus, how many
 * documents have one.  A, B: sums of numerators and denominators, or a real sum, A integer and B of
 * 2^-40; C: the weight of the real sum. */
enum { WORD_N, WORD_A, WORD_B, WORD_C, N_WORDS, FEW_WORDS = (STATS_FEW - 1) * N_WORDS };

struct row {
    size_t key_at; /* of rows.key: a text with a NUL for each key column */
    uint32_t key_len;
    uint64_t hash;
    int64_t *replicate; /* [rows.replicated][replicates] owned; NULL: no intervals */
    int64_t *few;   /* [measures][FEW_WORDS] owned: for each measure the words of its documents, as
                     * long   as fewer than STATS_FEW have it, with the id for N; ids rising */
    bool interval;  /* it is to have them */
    uint32_t round; /* the newest one in which it was put */
};

struct rows {
    struct buf key;
    struct row *row;
    int64_t *sum; /* [cap][stride] */
    size_t n, cap, stride;
    size_t next;    /* most probably the row that is asked for next: that after the last one */
    uint32_t round; /* rows of other rounds are only remembered */
    bool fresh;     /* the last row put is the first of this round with its key */
    uint32_t *slot; /* row + 1; 0: free */
    size_t n_slots; /* a power of two */
};

/* Finds or makes the row; its sums are 0 when it is fresh. */
int rows_put(struct rows *r, const char *key, size_t len, size_t *ret_row);
bool rows_has(const struct rows *r, size_t row); /* whether it was put in this round */
int64_t *rows_sum(const struct rows *r, size_t row);
/* Empties the rows, but remembers their keys: the rows of the next document are mostly the same, in
 * the same order. */
void rows_next_round(struct rows *r);
void rows_finish(struct rows *r); /* accepts a zeroed struct with its stride */

/* How a measure is pooled. */
enum measure_kind { MEASURE_QUOTIENT, MEASURE_MEAN, MEASURE_WEIGHTED };
static inline enum measure_kind measure_kind(const struct analyzer_measure *m)
{
    if (m->numerator)
        return MEASURE_QUOTIENT;
    return m->denominator ? MEASURE_WEIGHTED : MEASURE_MEAN;
}
/* Words that its replicates have: A and B, and C of means. */
static inline int measure_words(const struct analyzer_measure *m)
{
    return measure_kind(m) == MEASURE_QUOTIENT ? 2 : 3;
}

struct corpus_entry { /* a document that was added */
    uint64_t id;
    uint32_t traces, missed;
};

struct corpus_meta {   /* of the tables' metadata */
    char *key, *value; /* owned; value NULL: they differ */
    uint64_t n;        /* tables that have it */
};

struct corpus {
    const struct analyzer *a;
    struct corpus_settings set;
    struct buf arguments; /* lines */
    int n_keys, n_measures, n_replicated;
    char type[CORPUS_MOST_KEYS]; /* of the keys: s, i, r; 0: no table yet */
    struct rows rows;
    struct corpus_entry *entry;
    size_t n_entries, cap_entries;
    bool sorted; /* entries by id */
    struct corpus_meta *meta;
    int n_meta;
    int64_t least_T, most_T;    /* -1: none */
    uint64_t tables, undefined; /* tables added; values in them that were no number */
    struct corpus_plan plan;
    size_t n_intervals; /* rows with replicates */
    int64_t *weight;    /* [replicates] of the document that is being added */
};

struct corpus_document {
    const struct corpus *c;
    struct corpus_entry entry;
    char type[CORPUS_MOST_KEYS];
    struct rows rows;
    struct corpus_meta *meta; /* [n_meta] each with n: tables of this document */
    int n_meta;
    int64_t least_T, most_T;
    uint64_t undefined;
    struct buf key; /* scratch */
    double *number; /* [columns][BLOCK] scratch */
};

/* Puts the words of a document into the list of a measure that n documents have had so far. */
void corpus_keep_few(int64_t *few, int64_t n, const int64_t *words);
int corpus_meta_put(struct corpus_meta **list, int *n, const char *key, const char *value,
                    uint64_t count);
void corpus_meta_free(struct corpus_meta *list, int n);
void corpus_sort(struct corpus *c); /* entries by id */
/* The numbers of the rows in the order of corpus_table: [rows.n], owned by the caller.  NULL: no
 * memory. */
uint32_t *corpus_order(const struct corpus *c);
/* A row's words with its sums 0, for a key from a file or a document. */
int corpus_row(struct corpus *c, const char *key, size_t len, bool interval, size_t *ret_row,
               struct kvf_diag *d);
