/* corpus.h - the tables of many documents added up, exactly.
 *
 * A document is a prompt: its traces (rollouts) are one cluster.  Rows are named by the key columns
 * of the analyzer's pool.  All sums are integers: counts as they are, real numbers as fixed point
 * in two words (integer, 2^-40), so that the result depends neither on the order of the documents
 * nor on how they were spread over threads and shards.
 *
 * Intervals are by the Poisson bootstrap over documents (Hanley and MacGibbon 2006): in replicate k
 * document d counts w(d, k) times, w = rng_poisson1(rng_hash(seed, d, k, 0)), from whichever
 * machine: replicates of shards add up, too.  docs/reference/corpus.md has the equations. */
#pragma once

#include <stdbool.h>

#include "analyzers/analyzer.h"

enum corpus_intervals {
    CORPUS_AUTO, /* rows of a head `all`; every row of tables without one */
    CORPUS_EVERY,
    CORPUS_NONE
};
extern const char *const corpus_interval_words[]; /* in the order of the enum; ends with NULL */
enum {
    CORPUS_MOST_DOCUMENTS = 1 << 20,
    CORPUS_MOST_REPLICATES = 10000,
    CORPUS_MOST_KEYS = 16,
    CORPUS_MOST_MEASURES = 24,
    CORPUS_FRACTION_BITS = 40,
    CORPUS_WORD_BITS = 41 /* a document's counts and values are below 2^41 */
};

struct corpus_settings {
    int replicates;
    uint64_t seed;
    enum corpus_intervals intervals;
};

/* The inputs of a run; sums of hashes, so that shards add up to the total. */
struct corpus_plan {
    uint64_t documents, traces, hash, unreadable;
};

struct corpus;
struct corpus_document; /* the tables of one document */

/* Makes an empty corpus of the tables of a, which must have a pool.  args: as the analyzer is run,
 * borrowed for the call.  KVF_OK, KVF_E_NOMEM. */
int corpus_create(const struct analyzer *a, const struct analyzer_args *args,
                  const struct corpus_settings *s, struct corpus **ret);
void corpus_destroy(struct corpus *c); /* accepts NULL */

/* Which document a trace is of: the run header's run.document (a text or a number) if there
 * is one, else the ids of its prompt and of the question after it.  *ret_print: of run header,
 * steps and tokens. KVF_E_NOTFOUND with a sentence when the trace has neither; an error of reading.
 */
int corpus_identify(struct kvf_trace *t, uint64_t *ret_document, uint64_t *ret_print,
                    struct kvf_diag *d);

/* The tables of one document as they are added up; each thread has one. */
int corpus_document_create(const struct corpus *c, struct corpus_document **ret);
void corpus_document_destroy(struct corpus_document *x);
void corpus_document_begin(struct corpus_document *x, uint64_t id);
/* Adds the table of one trace.  KVF_E_FORMAT with a sentence for tables that lack a column of
 * the pool, KVF_E_LIMIT for values of 2^41 and more: the document is then not to be added. */
int corpus_document_take(struct corpus_document *x, const struct table *t, struct kvf_diag *d);
/* Notes a trace that could not be read. */
void corpus_document_miss(struct corpus_document *x);

/* Adds a document that is not there yet.  KVF_E_FORMAT if its table has other types than the
 * earlier tables; KVF_E_LIMIT, KVF_E_NOMEM: c is not to be used any more. */
int corpus_add(struct corpus *c, const struct corpus_document *x, struct kvf_diag *d);
bool corpus_has(struct corpus *c, uint64_t id);
bool corpus_overlaps(struct corpus *c, const struct corpus *b); /* both have a document */
/* Traces of a document that is there, added and missed; 0: it is not there. */
int64_t corpus_traces_of(struct corpus *c, uint64_t id);
/* Forgets the documents of which no trace could be read, which are in no sum: they may be added. */
void corpus_forget_missed(struct corpus *c);

/* Adds all of b: KVF_E_ARG with a sentence for other arguments and for documents that both
 * have; c is then not to be used any more. */
int corpus_merge(struct corpus *c, const struct corpus *b, struct kvf_diag *d);

struct corpus_plan *corpus_planned(struct corpus *c);
const struct analyzer *corpus_analyzer(const struct corpus *c);
/* Documents added, documents with a trace, and traces used and missed. */
struct corpus_count {
    int64_t documents, counted, traces, missed;
};
struct corpus_count corpus_counted(const struct corpus *c);

/* Makes the table of the corpus, its rows in the order of their keys, where numbers within texts
 * count as numbers. */
int corpus_table(struct corpus *c, struct table **ret, struct kvf_diag *d);

/* True if the tables' metadata differ under this key. */
bool corpus_differ(const struct corpus *c, const char *key);
/* Returns true if all tables have the metadata with equal values. */
bool corpus_share(const struct corpus *c, const char *key);

/* Appends a few rows of that table for people. */
void corpus_describe(const struct corpus *c, const struct table *t, struct buf *out);

/* ---- state files (docs/reference/corpus.md) */

/* Writes a state file.  Equal sums give equal bytes.  The file appears complete or not at all. */
int corpus_write(struct corpus *c, const char *path, struct kvf_diag *d);
/* Reads a state file.  KVF_E_IO, KVF_E_FORMAT, KVF_E_VERSION, KVF_E_CORRUPT, KVF_E_NOMEM with a
 * sentence that starts with the path. */
int corpus_read(const char *path, struct corpus **ret, struct kvf_diag *d);
int corpus_parse(const void *bytes, size_t n, struct corpus **ret, struct kvf_diag *d);
/* KVF_OK, or KVF_E_ARG with a sentence that names the difference between the arguments of a and
 * b. */
int corpus_same_arguments(const struct corpus *a, const struct corpus *b, struct kvf_diag *d);
