/* eval_rows.h - private: a line of a file of results (eval_state.h). */
#ifndef KVF_ENGINE_EVAL_ROWS_H
#define KVF_ENGINE_EVAL_ROWS_H

#include "engine/experiment/eval.h"

#define EVAL_BEGINNING "# kvfate eval results:"
#define EVAL_CHECK                                                                                 \
    "# head_checksum: " /* of the lines of the head before it; the row of columns follows */
#define EVAL_COLUMNS                                                                               \
    "doc\tdoc_hash\tmethod\toptions\tbudget\tnll\tkl\ttop1_agree\tkv_end\tkv_mean\tkv_peak\t"      \
    "triggers\tright\tchecksum\n"

struct eval_row {
    int doc;         /* number of the document */
    uint64_t hash;   /* of its ids */
    const char *key; /* "method\toptions\tbudget", borrowed from the line */
    struct eval_result r;
};

/* Bytes of the head of a file of n bytes: lines that begin with '#', and the row of columns; 0: the
 * file is of another kind, or ends before its head does. */
size_t eval_head_length(const char *text, size_t n);
/* Ends a head that has its lines with '#' with their checksum and the row of columns. */
void eval_head_finish(struct buf *head);
/* Checks a whole head of n bytes.  KVF_OK with the seed of the checksums of its rows; KVF_E_FORMAT
 * with a sentence where it is damaged, or of a version whose rows have other columns. */
int eval_head_check(const char *path, const char *text, size_t n, uint64_t *ret_seed,
                    struct kvf_diag *d);

/* Cuts up a line without its end: false where its checksum differs, or it is no row.  Numbers are
 * read as they were written. */
bool eval_row_parse(char *line, uint64_t seed, struct eval_row *ret);
/* The sentence for a line for which eval_row_parse returned false; number: from 1.  KVF_E_FORMAT.
 */
int eval_row_damaged(const char *path, size_t number, struct kvf_diag *d);
/* Appends the line, with its checksum and its end. */
void eval_row_put(const struct eval_row *r, uint64_t seed, struct buf *b);

#endif
