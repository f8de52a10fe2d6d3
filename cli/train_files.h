/* train_files.h - the three files of a training: what it makes, its checkpoint and its record. */
#ifndef KVF_CLI_TRAIN_FILES_H
#define KVF_CLI_TRAIN_FILES_H

#include "base/buf.h"
#include "base/opt.h"

struct train_files {
    const char *out;       /* borrowed */
    struct buf state, log; /* OUT.state, or as --state says; OUT.log.jsonl */
};

/* state: --state, or NULL.  KVF_OK, or KVF_E_ARG with a sentence when the checkpoint would lie at
 * `out` or any of the files is one of the data. */
int train_files_name(struct train_files *f, const char *out, const char *state,
                     const struct opt_list *data, struct kvf_diag *d);
/* KVF_E_ARG with a sentence when `input` would be overwritten. */
int train_files_keep(const struct train_files *f, const char *input, struct kvf_diag *d);
/* Hours of training must not end at a place where nothing can be written: KVF_OK, or KVF_E_IO with
 * a sentence. */
int train_files_try(const struct train_files *f, struct kvf_diag *d);
/* Replaces the record. */
int train_files_record(const struct train_files *f, const struct buf *record, struct kvf_diag *d);
void train_files_finish(struct train_files *f); /* accepts a zeroed one */

#endif
