/* frozen.c - checks and uploads the weights of the base model, for both directions of a pass. */
#include <string.h>

#include "base/mem.h"
#include "engine/train/ops.h"

int frozen_check(const struct model_config *config, unsigned features, struct kvf_diag *d)
{
    const char *beyond = executor_lacks(config, features);
    if (!beyond)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG,
                    "a model of architecture '%s' has %s, and derivatives through these are not "
                    "supported: the model can be run, not trained on",
                    config->arch, beyond);
}

int frozen_build(const struct compute *c, const struct model_config *config,
                 const struct weights *w, struct frozen *ret, struct kvf_diag *d)
{
    const char *beyond = ops_of_device(c) ? executor_lacks(config, FEATURES_OF_DEVICES) : NULL;
    int err = KVF_OK, most = ops(c)->max_channels;
    *ret = (struct frozen){0};
    if (beyond)
        err = kvf_fail(d, KVF_E_ARG,
                       "a model of architecture '%s' has %s, and derivatives through these are "
                       "computed only on the CPU: use --device cpu",
                       config->arch, beyond);
    if (!err && most && config->head_dim > most)
        err = kvf_fail(d, KVF_E_ARG,
                       "derivatives of heads of %d channels need the CPU; kernels of devices "
                       "support at most %d: use --device cpu",
                       config->head_dim, most);
    if (err)
        return err;
    *ret = (struct frozen){.c = *c,
                           .config = config,
                           .weights = w,
                           .vector = MEM_NEW(struct frozen_vectors, (size_t)w->n_layers)};
    err = ret->vector ? ops(c)->upload_weights(c, ret) : KVF_E_NOMEM;
    if (!err)
        return KVF_OK;
    frozen_finish(ret);
    return kvf_fail(d, err, "not enough memory %sfor the weights in both directions", ops_where(c));
}

void frozen_finish(struct frozen *f)
{
    if (f->config)
        ops(&f->c)->free_weights(&f->c, f);
    mem_free(f->vector);
    memset(f, 0, sizeof *f);
}
