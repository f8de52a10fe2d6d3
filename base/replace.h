/* replace.h - the only way to write files: as a temporary file in the same folder, synced, and
 * renamed to its final name.
 *
 * Readers see the older file or the complete new one, also after a kill or a power failure. Until
 * then the data is in the same folder as ".NAME.<16 random digits>.part". This name cannot be
 * predicted, is not shared, and is never opened through a link.
 *
 * If several processes write one name, exactly one continues. It has the lock of ".NAME.lock", and
 * the other processes fail at once. The lock ends with its process. A lock file that a killed
 * process left is taken over, and its temporary file is removed. On a file system without locks no
 * process fails. The temporary names still differ, so the last process to finish wins with a
 * complete file.
 *
 * If the name is a link, the file that it refers to is replaced, and the link stays. The
 * permissions of the older file are kept, and a file without write permission is not replaced. A
 * device, a pipe or an open descriptor (/dev/stdout, /dev/fd/N, "-" for standard output) is
 * written directly and never replaced.
 */
#ifndef KVF_BASE_REPLACE_H
#define KVF_BASE_REPLACE_H

#include <stdbool.h>
#include <stddef.h>

#include <kvf/err.h>

#define REPLACE_UNFINISHED ".unfinished" /* added to the name of a file by replace_show */

/* A file that is being written. */
struct replace {
    const char *path; /* as the caller named it; borrowed */
    char *place;      /* final path with links resolved; NULL if the file is written directly */
    char *part;       /* path of the temporary file; NULL before it exists */
    char *lock;
    int fd, lock_fd;
    int part_number, lock_number; /* numbers of parts.h */
    bool existed;                 /* an older file exists */
    bool shown;                   /* replace_show() was called */
    int error; /* errno of the first failure; EBUSY if another process writes the file */
};

/* A file that is not open; replace_abandon() has no effect on it. */
#define REPLACE_CLOSED                                                                             \
    {                                                                                              \
        .fd = -1, .lock_fd = -1, .part_number = -1, .lock_number = -1                              \
    }

/* Opens a file for writing. Returns KVF_OK, KVF_E_IO with a sentence, or KVF_E_NOMEM. After a
 * failure only r->error is set. */
int replace_open(struct replace *r, const char *path, struct kvf_diag *d);
/* Writes n bytes. Returns no error; replace_finish() reports the first failure. */
void replace_write(struct replace *r, const void *p, size_t n);
/* Sets the offset of the next write; not for devices. */
void replace_seek(struct replace *r, size_t at);
/* Syncs the file, renames it and syncs the folder. Returns KVF_OK. Returns KVF_E_IO with a
 * sentence on failure; then the temporary file is removed, unless replace_show() was called, and
 * an older file is still there. */
int replace_finish(struct replace *r, struct kvf_diag *d);
/* Ends the writing without replacing the file, and removes the temporary file unless
 * replace_show() was called. */
void replace_abandon(struct replace *r);
/* Ends the writing as replace_abandon() does, and always removes the temporary file. */
void replace_drop(struct replace *r);

/* Removes the lock file and the temporary file that a killed writer of this file left. Those of a
 * live writer are kept. Use it for a file that is not written again. Reports no errors. */
void replace_tidy(const char *path);

/* Waits until the names in the folder of this file are on disk. A created or renamed name is
 * durable only then. */
void replace_sync_folder(const char *path);

/* ---- unfinished files that are kept */

/* From now on the data has the final name with REPLACE_UNFINISHED appended, and is kept after any
 * failure, until replace_finish(). An older file of this name is replaced. Returns as
 * replace_open() does. */
int replace_show(struct replace *r, struct kvf_diag *d);
/* Opens a file that replace_show() left; r->fd is open for reading and writing. Returns as
 * replace_open() does. */
int replace_resume(struct replace *r, const char *path, struct kvf_diag *d);

#endif
