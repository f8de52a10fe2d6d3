/* learnt.h - trained parameters with the moments of the optimizer, in device memory for steps
 * (ops.h) and on the host for reading, saving and resuming. */
#pragma once

#include "engine/train/ops.h"

/* Parameters with their moments. Members named *_there are in device memory. */
struct learnt {
    struct compute c;
    size_t n;
    float *w, *w_there;       /* [n] borrowed */
    float *m, *v;             /* [n] on the host, as of the last save */
    float *m_there, *v_there; /* [n] */
};

/* Allocates the moments. there: the device copy of w, borrowed. Returns KVF_OK or KVF_E_NOMEM. */
int learnt_create(const struct compute *c, float *w, size_t n, float *there, struct learnt *ret);
void learnt_finish(struct learnt *l); /* accepts a zeroed struct */

/* Makes step t (from 1) with a gradient in device memory and its norm. The host's w may be outdated
 * afterwards. */
void learnt_step(struct learnt *l, const struct optimizer *o, int64_t t, double norm,
                 const float *grad);
/* Copies the parameters to the host's w. Returns KVF_OK, or KVF_E_BACKEND with a message. */
int learnt_home(const struct learnt *l, struct kvf_diag *d);

/* Write and read parameters and moments, with the errors of checkpoint_write and checkpoint_read,
 * or KVF_E_BACKEND. The caller owns *ret_log. */
int learnt_save(const struct learnt *l, const char *path, const char *config, int64_t step,
                const char *log, struct kvf_diag *d);
int learnt_resume(struct learnt *l, const char *path, const char *config, int64_t *ret_step,
                  char **ret_log, int *ret_found, struct kvf_diag *d);
