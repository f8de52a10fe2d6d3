/* parameters.h - trained parameters with the moments of the optimizer, in device memory for steps
 * (ops.h) and on the host for reading, saving and resuming. */
#ifndef KVF_ENGINE_TRAIN_PARAMETERS_H
#define KVF_ENGINE_TRAIN_PARAMETERS_H

#include "engine/train/ops.h"

/* Parameters with their moments. Members named *_device are in device memory. */
struct parameters {
    struct compute c;
    size_t n;
    float *w, *w_device;        /* [n] borrowed */
    float *m, *v;               /* [n] on the host, as of the last save */
    float *m_device, *v_device; /* [n] */
};

/* Allocates the moments. w_device: the device copy of w, borrowed. Returns KVF_OK or KVF_E_NOMEM.
 */
int parameters_create(const struct compute *c, float *w, size_t n, float *w_device,
                      struct parameters *ret);
void parameters_finish(struct parameters *l); /* accepts a zeroed struct */

/* Makes step t (from 1) with a gradient in device memory and its norm. The host's w may be outdated
 * afterwards. */
void parameters_step(struct parameters *l, const struct optimizer *o, int64_t t, double norm,
                     const float *grad);
/* Copies the parameters to the host's w. Returns KVF_OK, or KVF_E_BACKEND with a message. */
int parameters_to_host(const struct parameters *l, struct kvf_diag *d);

/* Write and read parameters and moments, with the errors of checkpoint_write and checkpoint_read,
 * or KVF_E_BACKEND. The caller owns *ret_log. */
int parameters_save(const struct parameters *l, const char *path, const char *config, int64_t step,
                    const char *log, struct kvf_diag *d);
int parameters_resume(struct parameters *l, const char *path, const char *config, int64_t *ret_step,
                      char **ret_log, int *ret_found, struct kvf_diag *d);

#endif
