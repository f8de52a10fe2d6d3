/* corpus_traces.h - the list of traces of a corpus, sorted by the documents that they belong to. */
#ifndef KVF_CLI_CORPUS_TRACES_H
#define KVF_CLI_CORPUS_TRACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

#include "base/par.h"
#include "cli/where.h"

/* A trace of a corpus. */
struct corpus_trace {
    char *path;                /* owned */
    const struct where *where; /* conditions of the list; borrowed */
    /* ids of the text and of the run, from corpus_identify() (studies/corpus.h) */
    uint64_t document, print;
    char *why;      /* reason why the trace cannot be read, owned; NULL if it can be read */
    uint32_t steps; /* number of steps */
    bool partial;   /* it was not closed, or has no steps */
    bool no_memory; /* memory ran out, so the trace was not examined */
    bool unwanted;  /* the conditions of --where are not met */
};

/* The traces of a corpus; zero it before the first traces_add(). */
struct corpus_traces {
    struct corpus_trace *trace; /* readable traces first, sorted by document, print and path */
    size_t n, n_readable, cap;
    const struct where *where; /* borrowed; NULL selects all traces */
};

/* Adds one trace by its name. Returns KVF_OK or KVF_E_NOMEM. */
int traces_add_file(struct corpus_traces *t, const char *path);

/* Adds a trace, the .kvf files of a folder, or with "@LIST" the traces that a file lists, one name
 * per line. Returns KVF_OK, KVF_E_IO with a sentence, or KVF_E_NOMEM. */
int traces_add(struct corpus_traces *t, const char *operand, struct kvf_diag *d);

/* Opens each trace, drops traces that do not meet the conditions in `where`, identifies the
 * documents of the remaining traces, and sorts the list. Returns KVF_OK or KVF_E_NOMEM. */
int traces_identify(struct corpus_traces *t, struct par *pool);

/* Keeps the readable traces of shard `shard` of `of`, counted from 1. All traces of a document
 * belong to one shard, whatever their folders and order. Unreadable traces stay in the list. */
void traces_shard(struct corpus_traces *t, int64_t shard, int64_t of);

/* Frees the list; accepts a zeroed struct. */
void traces_free(struct corpus_traces *t);

#endif
