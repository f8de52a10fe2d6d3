/* frame.h - the frame of analyses that compute something for each head of one trace and write
 * rows out: it chooses columns, tokens and heads, starts threads and gives each its scratch,
 * makes the table with its provenance, and releases everything.
 *
 * An analyzer fills a struct head_analysis.  Its functions are called in this order, and each
 * may be NULL; steps in brackets are done by the frame:
 *
 *   [f->t, f->options, f->T and the tokens [f->a, f->b); f->state: state_size zeroed bytes]
 *   choose interprets the options: may set f->space and f->column[]
 *   [the columns that are declared -> f->column[]; f->heads; checks that they have enough values]
 *   prepare  how large the work is: f->items, f->n_rows, and memory from frame_alloc
 *   [f->n_rows zeroed rows of row_size bytes -> f->row; threads]
 *   thread   once for each thread, in order: allocates its scratch
 *   head     once for each item and head, on several threads
 *   finish derives the results of all heads together; may still set f->n_rows or add rows
 *   [a table of f->n_rows rows, with the provenance of the trace]
 *   rows     metadata and columns that are no members of the rows
 *   [a column for each of `members`]
 *   close releases resources other than frame_alloc's; the state may be half built
 *
 * The first error ends the analysis: close and the release of memory follow. */
#pragma once

#include <stddef.h>

#include "analyzers/common.h"
#include "analyzers/records.h"

enum { FRAME_COLUMNS = 8 };

/* f->column[k] is the number of the k-th column that the analyzer declares, -1 of one that the
 * trace lacks and the analysis can do without.  Columns that are COLUMN_ASKED are found by
 * choose. */
struct frame {
    const struct analyzer *analyzer;
    struct kvf_trace *t;
    const struct analyzer_args *args;
    const void *options; /* the analyzer's struct of options */
    void *state;
    int64_t T, a, b; /* steps of the trace; tokens [a, b) that are asked for */
    enum kvf_space space;
    int column[FRAME_COLUMNS]; /* of those declared, or as choose set them */
    struct head_list heads;
    int items; /* how often each head is computed, 1 by default. 0: never, for sums that depend on
                  an order: finish reads the heads */
    int64_t n_rows; /* of the table */
    void *row;      /* [n_rows] */
    int n_threads;
    struct frame_private *own;
};

/* The head of a row, as the first members of a struct of rows; h = f->heads.n is for all heads
 * together: "all", -1, -1.  For such a row `prepare` asks for one row more. */
struct row_head {
    const char *head;
    int64_t layer, index;
};
struct row_head frame_row_head(const struct frame *f, int h);
#define ROW_HEAD_MEMBERS(row, of)                                                                  \
    {"head", "", TABLE_STR, offsetof(struct row, of.head)},                                        \
        {"layer", "", TABLE_INT, offsetof(struct row, of.layer)},                                  \
    {                                                                                              \
        "index", "", TABLE_INT, offsetof(struct row, of.index)                                     \
    }

/* The arguments of one call of head(). */
struct frame_head {
    struct kvf_trace *t; /* the reader of this thread */
    int item, h;         /* 0 .. items - 1; place in f->heads */
    const struct head *head;
    void *scratch; /* of this thread */
};
typedef int (*frame_head_fn)(const struct frame *f, const struct frame_head *x, struct kvf_diag *d);

struct head_analysis {
    enum kvf_space space; /* of the heads, unless choose sets another */
    size_t state_size, scratch_size;
    const struct record_member *members; /* columns that are members of a row */
    size_t n_members, row_size;
    int (*choose)(struct frame *f, struct kvf_diag *d);
    int (*prepare)(struct frame *f, struct kvf_diag *d);
    void (*thread)(struct frame *f, void *scratch);
    frame_head_fn head; /* stores results that depend only on its item and head, each at its place,
                           or adds integers to its scratch */
    int (*finish)(struct frame *f, struct kvf_diag *d);
    int (*rows)(struct frame *f, struct table *out, struct kvf_diag *d);
    void (*close)(struct frame *f);
};

/* The head analysis of a struct analyzer. */
#define HEADS(...)                                                                                 \
    .heads = &(const struct head_analysis)                                                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
/* Members of a head_analysis: the sizes of its state and of the scratch of a thread; and the rows,
 * with their members in an array `members`. */
#define FRAME_TYPES(state, scratch) .state_size = sizeof(state), .scratch_size = sizeof(scratch)
#define FRAME_RECORDS(row)                                                                         \
    .members = members, .n_members = sizeof members / sizeof *members, .row_size = sizeof(row)
/* The sizes, and the five functions that most analyses have under their usual names. */
#define FRAME_USUAL(state, scratch)                                                                \
    FRAME_TYPES(state, scratch), .choose = choose, .prepare = prepare, .thread = thread,           \
                                 .head = head, .rows = rows

/* Runs a->heads on the trace.  Errors as for analyzer_run. */
int frame_run(const struct analyzer *a, struct kvf_trace *t, const struct analyzer_args *args,
              struct table **ret_table, struct kvf_diag *d);

/* Notes for the table's metadata that the trace lacks a column without which the analysis does. */
void frame_lacks(struct frame *f, const char *name);

/* n zeroed elements that live as long as the frame.  NULL when memory is out, which ends the
 * analysis after the function that asked: who uses them at once must look. */
void *frame_alloc(struct frame *f, size_t n, size_t size);
#define FRAME_NEW(f, type, n) ((type *)frame_alloc((f), (n), sizeof(type)))

/* Adds a zeroed row at the end of f->row and counts it in f->n_rows; for finish.  NULL when memory
 * is out. */
void *frame_add_row(struct frame *f);

/* Gives the scratch of thread i of f->n_threads to finish and rows. */
void *frame_scratch(const struct frame *f, int i);

/* Computes all heads once more, on the same threads and scratch; for finish. */
int frame_pass(struct frame *f, int items, frame_head_fn head, struct kvf_diag *d);
