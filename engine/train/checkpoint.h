/* checkpoint.h - training state on disk: a safetensors file of parameters and moments with
 * the record as metadata, replaced atomically (written beside, synced, renamed), so that a
 * kill at any moment leaves the old or the new one whole. */
#ifndef KVF_ENGINE_TRAIN_CHECKPOINT_H
#define KVF_ENGINE_TRAIN_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

struct checkpoint_tensor {
    const char *name;
    int n_dims;
    uint64_t dim[3];
    float *data; /* read into, or written from */
};

struct checkpoint {
    struct checkpoint_tensor *tensor; /* [n] names, shapes */
    int n;
    const char *config; /* text that must be equal to go on: every setting, model, data */
    int64_t step;       /* steps done */
    char *log;          /* the loss record so far, JSON lines; owned after a read (mem_free) */
};

/* KVF_OK or with a sentence KVF_E_IO (full disk, permission), KVF_E_LIMIT (config and log are
 * over 16 MiB), KVF_E_ARG (a shape with a 0); the old file then stays.  KVF_E_NOMEM. */
int checkpoint_write(const char *path, const struct checkpoint *c, struct kvf_diag *d);

/* Fills data, step and log.  KVF_E_IO with *ret_found = 0 when there is none;
 * KVF_E_FORMAT: damaged or truncated; KVF_E_ARG: of another configuration, naming the first
 * setting that differs (config has one a line, or is a JSON object).  Nothing is filled unless
 * all is well: an XXH3-128 over the record and all tensors is checked first. */
int checkpoint_read(const char *path, struct checkpoint *c, int *ret_found, struct kvf_diag *d);

#endif
