/* corpus_pairs.h - two corpora compared document by document.
 *
 * Of each row and each document that both have, the two values of the analyzer's first measure
 * are kept: 16 bytes for a document and row. */
#pragma once

#include "studies/corpus.h"

enum { PAIRS_SAMPLES = 10000 }; /* random sign patterns for more than STATS_ALL_SIGNS documents */

struct corpus_pairs;

/* For documents 0 .. n - 1 of these ids; c: arguments, settings and which rows have intervals
 * (others are left out); borrowed, as id.  KVF_OK, KVF_E_NOMEM. */
int pairs_create(const struct corpus *c, const uint64_t *id, size_t n, struct corpus_pairs **ret);
void pairs_destroy(struct corpus_pairs *p); /* accepts NULL */

/* Adds document i of both corpora.  Two threads must not call it at once; the order
 * of calls does not matter.  KVF_E_LIMIT with a sentence when more than 2 GiB would be needed. */
int pairs_add(struct corpus_pairs *p, size_t i, const struct corpus_document *a,
              const struct corpus_document *b, struct kvf_diag *d);

/* Makes the table that docs/reference/corpus.md calls "Two corpora".  KVF_OK, KVF_E_NOMEM. */
int pairs_table(const struct corpus_pairs *p, struct table **ret);
void pairs_describe(const struct table *t, struct buf *out);
