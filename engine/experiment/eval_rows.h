/* eval_rows.h - private: a line of a file of results (eval_state.h). */
#ifndef KVF_ENGINE_EVAL_ROWS_H
#define KVF_ENGINE_EVAL_ROWS_H

#include "engine/experiment/eval.h"

struct eval_row {
    int doc;         /* number of the document */
    uint64_t hash;   /* of its ids */
    const char *key; /* "method\toptions\tbudget", borrowed from the line */
    struct eval_result r;
};

/* A line without its end, which is cut up: false where it is none.  Numbers are read as they were.
 */
bool eval_row_parse(char *line, struct eval_row *ret);
/* Appends the line, with its end. */
void eval_row_put(const struct eval_row *r, struct buf *b);

#endif
