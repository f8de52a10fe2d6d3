/* analyzer.h - analyzers: traces in, tables out.
 *
 * An analyzer is one file with one const struct.  Analyzers read traces only: they run on another
 * machine, on old traces, without the engine.
 *
 * To add an analyzer NAME (tools/new.py analyzer NAME "summary" writes all of these):
 *   1. analyzers/an_NAME.c: a struct of option values, the functions of the frame (frame.h) or,
 *      for a table of another shape, `run`; `describe`; and at the end `const struct analyzer
 *      an_NAME = {...}` with its OPTIONS (base/opt.h), COLUMNS (columns.h), HEADS (frame.h) and,
 *      for `kvfate corpus`, its POOL (docs/reference/corpus.md).  table_meta_num() and
 *      table_meta_str() of base/table.h write metadata.  common.h has heads, token ranges and
 *      provenance, selected.h the common part of analyses of selected sets, classes.h the classes
 *      of tokens.
 *   2. analyzers/analyzers.list: its line ('-' is written '_').  The tool puts it last, or with
 *      --after OTHER after the analyzer OTHER.  Users see the analyzers in this order.
 *   3. docs/reference/analyses/NAME.md: `# NAME: question`, an example, equation, columns and
 *      pitfalls.  docs/derive.py adds it to the overview.
 *   4. docs/man/kvfate-NAME.1: the description, the options at length, examples.  Lines of at most
 *      80 bytes.  An analyzer with options has a section `.Sh OPTIONS`: kvfate-density.1 is one;
 *      the texts of --head, --tokens and others that all have are made (docs/man/common.mdoc).
 *   5. tests/analyze/test_NAME.py: the table against dense attention, computed by brute force;
 *      on an empty trace; and each way to fail.  Run it with /usr/bin/python3, which has NumPy.
 *      The test `pools` adds up every pool on recorded runs; made-up traces lack columns that
 *      `corpus` needs.
 *   6. `docs/derive.py build/cli/kvfate` writes the overviews.  Run it again if a summary, an
 *      option or a pool changes.  Then `meson test -C build --setup quick --suite analyze --suite
 *      lint --no-suite slow`.
 * an_sparsity.c is a short analyzer to read first: options, state of a thread, rows, a pool.  The
 * command, its `-h` and usage, its place in `kvfate corpus` and in the overviews are made from the
 * struct.  Without a figure that draws the table (render/figure.h), `-o` takes tables only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <kvf/trace.h>

#include "base/buf.h"
#include "base/opt.h"
#include "base/table.h"

/* Which heads and tokens an analysis is asked for. */
struct analyzer_args {
    const char *heads;      /* a head set as typed ("L0-5K*,15.2"); NULL: all */
    int64_t token0, token1; /* tokens [token0, token1); token1 < 0: to the end */
    const void *options;    /* the struct that the analyzer's options fill; NULL: its defaults */
    int threads;        /* 0: as many as pay, up to the number of cores.  No table depends on it */
    kvf_watch_fn watch; /* called by the calling thread with the number of parts done and in all,
                         * layers or heads, in each pass over them; NULL: not called */
    void *watch_ctx;
};

static inline void analyzer_tell(const struct analyzer_args *a, int64_t done, int64_t of)
{
    if (a->watch)
        a->watch(a->watch_ctx, (uint64_t)done, (uint64_t)of);
}

/* Room for the options of any analyzer: its table of options fills it. */
enum { ANALYZER_OPTIONS_SIZE = 256 };
struct analyzer_options {
    _Alignas(8) unsigned char room[ANALYZER_OPTIONS_SIZE];
};

/* How the tables of several documents become one (studies/corpus.h): rows with equal keys
 * are added up.  Integer counts add exactly; a real column is added as fixed point, so that
 * sums do not depend on order and shards merge to the same bits. */
struct analyzer_measure {
    const char *value; /* the column of the result */
    /* Integer columns of the same table: the value is their quotient of sums.  Only a denominator:
     * the mean of the values, weighted by it.  NULL: the value is the mean over the documents in
     * which it is defined, each counting once. */
    const char *numerator, *denominator;
    /* Of a quotient: a survival curve along the last key, an age.  The counts are events and steps
     * at risk from the age of the row before, -1 for the first, up to that of the row, and the
     * value is the product, up to the row, of (1 - numerator / denominator)^steps.  Where a
     * quotient is not defined the curve ends.  half_life names a column for the first age at which
     * it is below one half, or is NULL. */
    bool product;
    const char *half_life;
    /* Of a product: the last two keys are the ends of a bin [low, high), the counts are of the ages
     * in it, and the value is the product over the bins before: survival at the low end. */
    bool bins;
    /* The result has no columns for the measure if no document has a value. */
    bool optional;
};
struct analyzer_pool {
    const char *const *keys; /* columns that name a row across documents; ends with NULL */
    const struct analyzer_measure *measures; /* ends with .value == NULL */
};

struct head_analysis; /* frame.h */
struct column_use;    /* columns.h */

struct analyzer {
    const char *name;          /* the subcommand; also the table's and the figure's name */
    const char *summary;       /* one line without a full stop */
    const char *example;       /* one line that runs in a folder where the examples before it ran */
    const struct opt *options; /* fill a struct of at most ANALYZER_OPTIONS_SIZE; NULL: none */
    int min_traces;            /* 0 is 1 */
    int max_traces;            /* 0 is 1; up to 256 for analyses that compare */

    /* The columns that it reads, the frame's first: ends with a name of NULL. */
    const struct column_use *columns;

    /* An analysis of one trace that computes something for each head: run by the frame.
     * NULL: run makes the table. */
    const struct head_analysis *heads;

    /* Makes the table.  A column that the trace lacks, and the analysis needs, is KVF_E_NOTFOUND
     * with a sentence that names all of them and their source; an optional column that is missing
     * is noted in the metadata (columns.h), and the values derived from it are blank.  Memory is
     * bounded by the table and a few columns of one head.  Columns may be read from the traces as
     * they are asked for: destroy the table before closing them. */
    int (*run)(struct kvf_trace *const *traces, int n_traces, const struct analyzer_args *args,
               struct table **ret_table, struct kvf_diag *d);

    /* Sets options that were not given and have a default that depends on the length, as for a text
     * of T steps.  So the rows of texts of different length mean the same.  NULL: no default
     * depends on it. */
    void (*of_length)(void *options, int64_t T);

    /* Writes a few lines for people, only from the table. */
    void (*describe)(const struct table *t, struct buf *out);

    const struct analyzer_pool *pool; /* NULL: its tables are not pooled over documents */
};

/* Members of a struct analyzer: its options, and its pool with the keys KEYS("head", ...). */
#define OPTIONS(...)                                                                               \
    .options = (const struct opt[])                                                                \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .type = OPT_END                                                                        \
        }                                                                                          \
    }
#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define POOL(named, ...)                                                                           \
    .pool = &(const struct analyzer_pool)                                                          \
    {                                                                                              \
        named, (const struct analyzer_measure[])                                                   \
        {                                                                                          \
            __VA_ARGS__,                                                                           \
            {                                                                                      \
                .value = NULL                                                                      \
            }                                                                                      \
        }                                                                                          \
    }

/* Makes the table of an analysis, as run above does, with heads or run.  Options that args does
 * not have are the defaults. */
int analyzer_run(const struct analyzer *a, struct kvf_trace *const *traces, int n_traces,
                 const struct analyzer_args *args, struct table **ret_table, struct kvf_diag *d);

extern const struct analyzer *const analyzer_table[];   /* ends with NULL */
const struct analyzer *analyzer_find(const char *name); /* or NULL */
