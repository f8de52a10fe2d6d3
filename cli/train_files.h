/* train_files.h - the three files of a training: its result, its checkpoint and its record. */
#ifndef KVF_CLI_TRAIN_FILES_H
#define KVF_CLI_TRAIN_FILES_H

#include "base/buf.h"
#include "base/opt.h"

/* Names of the files of a training. */
struct train_files {
    const char *out;       /* borrowed */
    struct buf state, log; /* --state or OUT.state; OUT.log.jsonl */
};

/* Fills the names.  state: --state, or NULL.  KVF_OK, or KVF_E_ARG with a sentence if two of the
 * names are equal or a name is an input of --data. */
int train_files_name(struct train_files *f, const char *out, const char *state,
                     const struct opt_list *data, struct kvf_diag *d);
/* Returns KVF_E_ARG with a sentence if a file would overwrite `input`, else KVF_OK. */
int train_files_keep(const struct train_files *f, const char *input, struct kvf_diag *d);
/* Tests before a long training that all files can be written.  KVF_OK, or KVF_E_IO with a
 * sentence. */
int train_files_try(const struct train_files *f, struct kvf_diag *d);
/* Replaces the file of the record. */
int train_files_record(const struct train_files *f, const struct buf *record, struct kvf_diag *d);
void train_files_finish(struct train_files *f); /* accepts a zeroed one */

#endif
