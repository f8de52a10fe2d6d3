/* parameters.c - parameters and moments: optimizer steps, host copies and checkpoints. */
#include "engine/train/parameters.h"

#include <string.h>

#include "base/mem.h"
#include "engine/train/checkpoint.h"

int parameters_create(const struct compute *c, float *w, size_t n, float *w_device,
                      struct parameters *ret)
{
    const struct ops *on = ops(c);
    *ret = (struct parameters){.c = *c,
                               .n = n,
                               .w = w,
                               .w_device = w_device,
                               .m = MEM_NEW(float, n),
                               .v = MEM_NEW(float, n)};
    if (!ret->m || !ret->v)
        return KVF_E_NOMEM;
    ret->m_device = on->device_copy(c, ret->m, n);
    ret->v_device = on->device_copy(c, ret->v, n);
    return ret->m_device && ret->v_device ? KVF_OK : KVF_E_NOMEM;
}

void parameters_finish(struct parameters *l)
{
    const struct ops *on = ops(&l->c);
    on->device_copy_free(&l->c, l->m_device);
    on->device_copy_free(&l->c, l->v_device);
    mem_free(l->m);
    mem_free(l->v);
    memset(l, 0, sizeof *l);
}

void parameters_step(struct parameters *l, const struct optimizer *o, int64_t t, double norm,
                     const float *grad)
{
    ops(&l->c)->step(&l->c, o, t, norm, grad, l->w_device, l->m_device, l->v_device, l->n);
}

int parameters_to_host(const struct parameters *l, struct kvf_diag *d)
{
    ops(&l->c)->to_host(&l->c, l->w, l->w_device, l->n * sizeof *l->w);
    return ops(&l->c)->check(&l->c, d);
}

/* Lists the parameters and both moments as three tensors. The configuration describes the
 * layout. */
static void describe(const struct parameters *l, struct checkpoint_tensor tensor[3])
{
    static const char *const name[] = {"parameters", "moment1", "moment2"};
    float *const data[] = {l->w, l->m, l->v};
    for (int i = 0; i < 3; i++)
        tensor[i] = (struct checkpoint_tensor){name[i], 1, {l->n, 1, 1}, data[i]};
}

int parameters_save(const struct parameters *l, const char *path, const char *config, int64_t step,
                    const char *log, struct kvf_diag *d)
{
    const struct ops *on = ops(&l->c);
    struct checkpoint_tensor tensor[3];
    struct checkpoint c = {tensor, 3, config, step, (char *)(uintptr_t)log};
    on->to_host(&l->c, l->m, l->m_device, l->n * sizeof *l->m);
    on->to_host(&l->c, l->v, l->v_device, l->n * sizeof *l->v);
    int err = parameters_to_host(l, d);
    describe(l, tensor);
    return err ? err : checkpoint_write(path, &c, d);
}

int parameters_resume(struct parameters *l, const char *path, const char *config, int64_t *ret_step,
                      char **ret_log, int *ret_found, struct kvf_diag *d)
{
    const struct ops *on = ops(&l->c);
    struct checkpoint_tensor tensor[3];
    struct checkpoint c = {tensor, 3, config, 0, NULL};
    describe(l, tensor);
    int err = checkpoint_read(path, &c, ret_found, d);
    if (err)
        return err;
    on->to_device(&l->c, l->w_device, l->w, l->n * sizeof *l->w);
    on->to_device(&l->c, l->m_device, l->m, l->n * sizeof *l->m);
    on->to_device(&l->c, l->v_device, l->v, l->n * sizeof *l->v);
    *ret_step = c.step;
    *ret_log = c.log;
    return KVF_OK;
}
