/* eval_rows.h - private: the lines of a result file (eval_state.h). */
#ifndef KVF_ENGINE_EVAL_ROWS_H
#define KVF_ENGINE_EVAL_ROWS_H

#include "engine/experiment/eval.h"

#define EVAL_BEGINNING "# kvfate eval results:"
/* Checksum of the preceding lines of the head; the row of column names follows. */
#define EVAL_CHECK "# head_checksum: "
#define EVAL_COLUMNS                                                                               \
    "doc\tdoc_hash\tmethod\toptions\tbudget\tnll\tkl\ttop1_agree\tkv_end\tkv_mean\tkv_peak\t"      \
    "triggers\tright\tchecksum\n"

/* A row of a result file. */
struct eval_row {
    int doc;         /* number of the document */
    uint64_t hash;   /* hash of its ids */
    const char *key; /* "method\toptions\tbudget", borrowed from the line */
    struct eval_result r;
};

/* Returns the bytes of the head of a file of n bytes: the lines that begin with '#', and the row
 * of column names. Returns 0 if the file is of another kind, or ends before its head does. */
size_t eval_head_length(const char *text, size_t n);
/* Completes a head of '#' lines with their checksum and the row of column names. */
void eval_head_finish(struct buf *head);
/* Checks a complete head of n bytes. Returns KVF_OK and the seed of the checksums of its rows.
 * Returns KVF_E_FORMAT with a sentence if it is damaged, or has the columns of another version. */
int eval_head_check(const char *path, const char *text, size_t n, uint64_t *ret_seed,
                    struct kvf_diag *d);

/* Parses a line without its line feed. Returns false if its checksum is wrong or it is not a row.
 * Reading a number and writing it again gives the same text. */
bool eval_row_parse(char *line, uint64_t seed, struct eval_row *ret);
/* Returns KVF_E_FORMAT with the sentence for a line that eval_row_parse() rejected. number counts
 * from 1. */
int eval_row_damaged(const char *path, size_t number, struct kvf_diag *d);
/* Appends a row as a line, with its checksum and a line feed. */
void eval_row_put(const struct eval_row *r, uint64_t seed, struct buf *b);

#endif
