/* corpus_traces.h - the traces of a corpus, by the documents they are of. */
#ifndef KVF_CLI_CORPUS_TRACES_H
#define KVF_CLI_CORPUS_TRACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

#include "base/par.h"
#include "cli/where.h"

struct corpus_trace {
    char *path;                /* owned */
    const struct where *where; /* borrowed, of the list */
    uint64_t document, print;  /* studies/corpus.h, corpus_identify */
    char *why;                 /* owned: it cannot be read; else NULL */
    uint32_t steps;            /* its length */
    bool partial;              /* it was not closed, or holds no steps */
    bool no_memory;            /* nothing is known of it */
    bool unwanted;             /* the conditions do not hold of it */
};

struct corpus_traces {
    struct corpus_trace *trace; /* readable ones first: by document, print and path */
    size_t n, n_readable, cap;
    const struct where *where; /* borrowed; NULL: all are meant */
};

/* Adds one trace of that name.  KVF_E_NOMEM. */
int traces_add_file(struct corpus_traces *t, const char *path);

/* Adds a trace, the .kvf files of a folder, or with "@LIST" the names that a file has one a
 * line.  KVF_E_IO with a sentence, KVF_E_NOMEM. */
int traces_add(struct corpus_traces *t, const char *operand, struct kvf_diag *d);

/* Opens each trace, drops those of which `where` does not hold, finds out which document the others
 * are of, and sorts the list.  KVF_E_NOMEM. */
int traces_identify(struct corpus_traces *t, struct par *pool);

/* Keeps the readable traces of documents of shard `shard` of `of`, counted from 1: a document
 * is whole in one of them, whichever the folder or the order of the traces. */
void traces_shard(struct corpus_traces *t, int64_t shard, int64_t of);

void traces_free(struct corpus_traces *t);

#endif
