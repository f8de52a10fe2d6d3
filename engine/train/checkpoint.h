/* checkpoint.h - writes and reads training state: a safetensors file of parameters and moments,
 * with the record as metadata.
 *
 * The file is replaced atomically: a temporary file is written, synced and renamed. After a kill at
 * any moment, either the old or the new file is complete. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

/* A tensor of a checkpoint. */
struct checkpoint_tensor {
    const char *name;
    int n_dims;
    uint64_t dim[3];
    float *data; /* destination of a read, source of a write */
};

/* The contents of a checkpoint. */
struct checkpoint {
    struct checkpoint_tensor *tensor; /* [n] names and shapes */
    int n;
    const char *config; /* all settings, model and data as text; must be equal to resume */
    int64_t step;       /* steps done */
    char *log;          /* loss record so far as JSON lines; after a read, owned (mem_free) */
};

/* Writes a checkpoint. Returns KVF_OK, KVF_E_NOMEM, or with a message: KVF_E_IO (full disk,
 * permission), KVF_E_LIMIT (config and log exceed 16 MiB), KVF_E_ARG (a shape with a 0). The old
 * file remains after an error. */
int checkpoint_write(const char *path, const struct checkpoint *c, struct kvf_diag *d);

/* Reads a checkpoint into data, step and log. Returns KVF_E_IO with *ret_found = 0 if the file does
 * not exist. Returns KVF_E_FORMAT if it is damaged or truncated. Returns KVF_E_ARG if the
 * configuration differs, with the first different setting in the message. `config` has one setting
 * per line or is a JSON object. An XXH3-128 over the record and all tensors is checked first, and
 * an error fills no member. */
int checkpoint_read(const char *path, struct checkpoint *c, int *ret_found, struct kvf_diag *d);
