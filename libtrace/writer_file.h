/* writer_file.h - the file of a trace that is being written; private to libtrace.
 *
 * It is at the name with ".unfinished" once its header and schema are written, and is renamed when
 * it is closed. */
#pragma once

#include <kvf/trace.h>

#include "base/replace.h"

struct writer_file {
    struct replace r;
    const char *path; /* borrowed */
    bool only_whole;  /* see struct kvf_writer_options */
    /* Of a trace that is gone on with: */
    bool replays; /* new data is compared with the file, and was the same so far */
    uint64_t
        committed; /* bytes that must be repeated as they are: up to its last commit; above 0 */
};

/* Whether an unfinished trace is gone on with. */
static inline bool writer_resumes(enum kvf_existing existing)
{
    return existing == KVF_RESUME || existing == KVF_RESUME_OVERWRITE;
}
/* No file: for writer_file_abandon. */
void writer_file_none(struct writer_file *f);
/* Begins a file or takes an unfinished one.  KVF_OK, KVF_E_IO, KVF_E_NOMEM, or, for an unfinished
 * one, the errors of kvf_open.  After a failure no cleanup is needed. */
int writer_file_open(struct writer_file *f, const char *path, const struct kvf_writer_options *o,
                     struct kvf_diag *d);
/* Header and schema are down: the file is worth keeping. */
int writer_file_begun(struct writer_file *f, struct kvf_diag *d);
/* True if the n bytes at offset `at` of a continued file are equal to p. */
bool writer_file_same(struct writer_file *f, uint64_t at, const void *p, size_t n);
/* Cuts off the file at offset `at`; from there on it is written.  Errno. */
int writer_file_cut(struct writer_file *f, uint64_t at);
/* Brings the file to its place. */
int writer_file_close(struct writer_file *f, struct kvf_diag *d);
/* Keeps an unfinished file, and removes one that was not begun. */
void writer_file_abandon(struct writer_file *f);
