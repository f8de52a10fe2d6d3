/* replace.h - a file written beside its place, synced and renamed into it.
 *
 * Readers, and whoever comes after a kill or a power cut, see the old file or the whole new
 * one.  What is written lies in "PATH.part" until then; a part that a killed process left is
 * taken over, one that a living process writes is refused. */
#ifndef KVF_BASE_REPLACE_H
#define KVF_BASE_REPLACE_H

#include <stddef.h>

#include <kvf/err.h>

struct replace {
    const char *path; /* borrowed */
    char *part;       /* owned */
    int fd, number;   /* number: of parts.h */
    int error;        /* errno of the first failure; EBUSY: another process writes the file */
};

/* KVF_OK, KVF_E_IO (with a sentence) or KVF_E_NOMEM; after a failure nothing is left but
 * r->error. */
int replace_open(struct replace *r, const char *path, struct kvf_diag *d);
/* Never fails visibly: replace_finish reports the first failure. */
void replace_write(struct replace *r, const void *p, size_t n);
/* Syncs, renames and syncs the folder.  KVF_E_IO: a sentence, the part is removed and what
 * was at `path` is still there. */
int replace_finish(struct replace *r, struct kvf_diag *d);
void replace_abandon(struct replace *r); /* instead of replace_finish */

#endif
