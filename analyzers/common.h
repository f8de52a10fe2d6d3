/* common.h - helpers of several analyzers: provenance, chosen heads, columns. */
#pragma once

#include "analyzers/analyzer.h"
#include "analyzers/columns.h"
#include "analyzers/heads.h"

/* KVF_E_NOTFOUND with a sentence if a column has fewer values than n. */
int budget_column(const struct kvf_trace *t, int column, uint64_t n, struct kvf_diag *d);

/* Gives the tokens [*a, *b) that args ask for; KVF_E_ARG where the trace has no such range. */
int tokens_select(const struct kvf_trace *t, const struct analyzer_args *args, int64_t *a,
                  int64_t *b, struct kvf_diag *d);

/* Notes in the metadata which tokens were asked for, unless they are all T. */
void put_tokens(struct table *t, int64_t a, int64_t b, int64_t T);
/* Appends "1046 tokens", or "100 of 1046 tokens" if put_tokens noted a part. */
void describe_tokens(const struct table *t, struct buf *out);

/* Sets *ret to the tokens of the prompt by the run header; -1 if it has no such number.  The errors
 * of trace_number (libtrace/run_header.h). */
int prompt_tokens(const struct kvf_trace *t, int64_t *ret, struct kvf_diag *d);

/* Notes the model, the method, its budget, its protocol (protocol.h), the tokens and more from the
 * run header.
 * The errors of run_header (libtrace/run_header.h). */
int put_provenance(struct table *t, const struct kvf_trace *trace, struct kvf_diag *d);
/* The same of n traces: notes the values that all have, and in `differ` the other keys, with " "
 * between them.  KVF_E_NOMEM or the errors of put_provenance. */
int put_provenance_all(struct table *t, struct kvf_trace *const *traces, int n, struct kvf_diag *d);
/* Puts the metadata `sampled`, a text such as "every 8th query", if the run recorded a sample of
 * the columns of a probe (--probes auto). */
int put_sampled(struct table *t, const struct kvf_trace *trace, const char *probe,
                struct kvf_diag *d);

/* Sets *ret to the first token of the answer by the run header, after the prompt and a question
 * that was fed after it; -1 if it has no such number.  The errors of prompt_tokens. */
int answer_start(const struct kvf_trace *t, int64_t *ret, struct kvf_diag *d);

/* Puts the columns head, layer and index, with one value for each block of rows. */
void put_heads(struct table *t, const struct head_list *l);

/* The same with a block more, for a head `all` of layer and index -1.  KVF_OK or
 * KVF_E_NOMEM. */
int put_heads_all(struct table *t, const struct head_list *l);

/* Reads the evict_step of a head as doubles: T or less for evicted entries, INFINITY for those
 * alive. */
int read_evict(struct kvf_trace *t, int column, const struct head *h, uint32_t n, double *out,
               struct kvf_diag *d);

/* The same as integers, KVF_ALIVE for entries alive, borrowed until the next call that reads
 * from t.  scratch: [n], for columns of another type. */
int view_evict(struct kvf_trace *t, int column, const struct head *h, uint32_t n, uint32_t *scratch,
               const uint32_t **ret, struct kvf_diag *d);

/* Whether every query before step n saw all entries: no entry was evicted, and every entry was
 * read.  False if the trace does not record it. */
bool saw_everything(struct kvf_trace *t, uint32_t n);

/* The column log_beta of retention gates, or KVF_E_NOTFOUND with a sentence. */
int log_beta_need(const struct kvf_trace *t, int *ret_column, struct kvf_diag *d);

/* Mean over the steps t = i .. T - 1 of beta^(t - i), for the entry i of a run of T. */
double mean_retention(double log_beta, int64_t i, int64_t T);

/* KVF_E_FORMAT with a sentence unless the column has a value for each head of the space and
 * token. */
int column_of_heads(const struct kvf_trace *t, int column, enum kvf_space space,
                    struct kvf_diag *d);

/* The column that the run's gates left, whatever their kind: log_beta, write_gate or
 * importance; or KVF_E_NOTFOUND with a sentence. */
int gate_column_need(const struct kvf_trace *t, int *ret_column, struct kvf_diag *d);

/* Of an enum kvf_role: "prompt", "answer", "think", "image", "question"; "?" for other codes. */
const char *role_name(double code);

/* Parses --step: "N", the query N of T, or "end", after the last (T).  An entry i is cached then if
 * i <= step < evict_step.  KVF_E_ARG with a sentence. */
int step_select(const char *text, int64_t T, int64_t *ret_step, struct kvf_diag *d);

/* Of an evict_reason: "alive", "budget", ...; "unknown" for other codes. */
const char *reason_name(double code);

/* Sets *ret to the number of entries that no head exceeds after the prompt; 0 if the run header
 * bounds no single head: without a budget, with overrides, if heads share the budget, or if the
 * cache grows after a cut.  The errors of trace_number (libtrace/run_header.h). */
int trace_head_limit(const struct kvf_trace *t, int64_t *ret, struct kvf_diag *d);

/* Every how many steps a table has a row: as asked for, or where that is 0 the least number that
 * makes at most 512 of T steps. */
int64_t steps_every(int64_t asked, int64_t T);
