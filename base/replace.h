/* replace.h - writes every file under a temporary name in its folder, syncs it, and renames it.
 *
 * Readers see the older file or the complete new one, also after a kill or a power cut.  Until it
 * is complete, it is in the same folder as ".NAME.<16 random digits>.part", an unpredictable name
 * that is not shared and never reached through a link.
 *
 * Of several writers of one name exactly one continues: it holds the lock of ".NAME.lock", and the
 * rest fail at once.  The lock is gone with its process; a lock file of a killed process is taken
 * over, and the part of that process is removed.  (A file system without locks rejects no writer;
 * the names differ there, so that the last to finish wins with a complete file.)
 *
 * A link leads to the file that is replaced and stays a link.  The older file's permissions are
 * kept, and one that may not be written is not replaced.  A device, a pipe or an open descriptor
 * (/dev/stdout, /dev/fd/N, "-" for standard output) is written as it is and never replaced. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <kvf/err.h>

#define REPLACE_UNFINISHED ".unfinished" /* added to the name of a file by replace_show */

struct replace {
    const char *path; /* as the caller named it; borrowed */
    char *place;      /* the place of the file, links followed; NULL: written as it is */
    char *part;       /* the file that is written; NULL before there is one */
    char *lock;
    int fd, lock_fd;
    int part_number, lock_number; /* of parts.h */
    bool existed;                 /* an older file is at the place */
    bool shown;                   /* see replace_show */
    int error;                    /* errno of the first failure; EBUSY: another process writes it */
};

/* One that is not open: replace_abandon has no effect. */
#define REPLACE_CLOSED                                                                             \
    {                                                                                              \
        .fd = -1, .lock_fd = -1, .part_number = -1, .lock_number = -1                              \
    }

/* KVF_OK, KVF_E_IO (with a sentence) or KVF_E_NOMEM; after a failure only r->error is left. */
int replace_open(struct replace *r, const char *path, struct kvf_diag *d);
/* Never fails visibly: replace_finish reports the first failure. */
void replace_write(struct replace *r, const void *p, size_t n);
/* The next write is at this offset; for files that are no devices. */
void replace_seek(struct replace *r, size_t at);
/* Syncs, renames, syncs the folder.  KVF_E_IO: a sentence, the part is removed (unless it is
 * shown) and the older file is unchanged. */
int replace_finish(struct replace *r, struct kvf_diag *d);
/* Instead of replace_finish; removes the part, unless it is shown. */
void replace_abandon(struct replace *r);
/* The same, and removes the part also where it is shown. */
void replace_drop(struct replace *r);

/* Removes the temporary files of a killed writer of this file: its lock, and a part.
 * A writer that lives keeps both.  For a file that is not written again; never fails visibly. */
void replace_tidy(const char *path);

/* Waits until the names in the folder of this file are on the disk: one that was made or renamed
 * lasts only then. */
void replace_sync_folder(const char *path);

/* ---- files that are worth keeping before they are complete */

/* From here on the file is at the place's name with REPLACE_UNFINISHED and stays there until
 * replace_finish.  An older one of this name is replaced. */
int replace_show(struct replace *r, struct kvf_diag *d);
/* As replace_open, for a file that replace_show left: r->fd is open for reading and writing. */
int replace_resume(struct replace *r, const char *path, struct kvf_diag *d);
