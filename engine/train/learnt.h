/* learnt.h - parameters with the optimizer's moments: where steps are made (ops.h), and here, where
 * they are read, saved and taken up again. */
#ifndef KVF_ENGINE_TRAIN_LEARNT_H
#define KVF_ENGINE_TRAIN_LEARNT_H

#include "engine/train/ops.h"

struct learnt {
    struct compute c;
    size_t n;
    float *w, *w_there;       /* [n] borrowed */
    float *m, *v;             /* [n] here, as of the last save */
    float *m_there, *v_there; /* [n] */
};

/* there: w's twin, borrowed.  KVF_OK or KVF_E_NOMEM. */
int learnt_create(const struct compute *c, float *w, size_t n, float *there, struct learnt *ret);
void learnt_finish(struct learnt *l); /* accepts a zeroed struct */

/* Step t (from 1) from a gradient there, of the length norm; w here may stay as it was. */
void learnt_step(struct learnt *l, const struct optimizer *o, int64_t t, double norm,
                 const float *grad);
/* w here is that of the last step.  KVF_OK, or KVF_E_BACKEND with a sentence. */
int learnt_home(const struct learnt *l, struct kvf_diag *d);

/* As checkpoint_write, of what is there, and checkpoint_read do, or KVF_E_BACKEND with a sentence;
 * *ret_log is owned by the caller. */
int learnt_save(const struct learnt *l, const char *path, const char *config, int64_t step,
                const char *log, struct kvf_diag *d);
int learnt_resume(struct learnt *l, const char *path, const char *config, int64_t *ret_step,
                  char **ret_log, int *ret_found, struct kvf_diag *d);

#endif
