/* predict.h - does a statistic of a trace tell which memory matters?  The rank correlation of
 * what `kvfate effect` measured with statistics of the same text (docs/reference/effect.md). */
#ifndef KVF_STUDIES_PREDICT_H
#define KVF_STUDIES_PREDICT_H

#include <stdbool.h>

#include <kvf/trace.h>

#include "base/buf.h"
#include "base/table.h"

enum { PREDICT_MOST = 64 }; /* pairs; traces and tables of a pair */
enum { PREDICT_REPLICATES = 2000, PREDICT_PERMUTATIONS = 10000 };

/* An effect of one document, and what is known of that document.  Where several of a pair
 * have a statistic, the first counts. */
struct predict_pair {
    const struct table *effect; /* rows of heads, or of single entries */
    const char *path;           /* of the effect, for sentences */
    struct kvf_trace *trace[PREDICT_MOST];
    const struct table *table[PREDICT_MOST]; /* a row per head, or per head and token */
    const char *table_path[PREDICT_MOST];
    int n_traces, n_tables;
};

struct predict_args {
    const struct predict_pair *pair; /* [n_pairs], all of heads or all of entries */
    int n_pairs;
    const char *value;      /* column of the effect */
    const char *criteria;   /* selected sets: a list, or "all" */
    int64_t horizon, sinks; /* -1: those of the effect, else 64 and 4 */
    const char *only;       /* names of candidates, a list; NULL: all there are */
    bool units;             /* table "predict-units": the two numbers of every unit */
};

/* Whether a table is an effect that can be predicted: rows of heads, or of single entries. */
bool predict_is_effect(const struct table *t);

/* Table "predict": a row per candidate and reduction, those of the traces first; or, with
 * units, "predict-units": a row per candidate, reduction, pair and unit.  KVF_E_ARG,
 * KVF_E_FORMAT, KVF_E_NOTFOUND or KVF_E_LIMIT with a sentence. */
int predict_run(const struct predict_args *args, struct table **ret, struct kvf_diag *d);

/* For people: the best first. */
int predict_describe(const struct table *t, struct buf *out);

#endif
