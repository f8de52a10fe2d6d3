/* learnt.c - parameters and moments: optimizer steps, host copies and checkpoints. */
#include "engine/train/learnt.h"

#include <string.h>

#include "base/mem.h"
#include "engine/train/checkpoint.h"

int learnt_create(const struct compute *c, float *w, size_t n, float *there, struct learnt *ret)
{
    const struct ops *on = ops(c);
    *ret = (struct learnt){
        .c = *c, .n = n, .w = w, .w_there = there, .m = MEM_NEW(float, n), .v = MEM_NEW(float, n)};
    if (!ret->m || !ret->v)
        return KVF_E_NOMEM;
    ret->m_there = on->device_copy(c, ret->m, n);
    ret->v_there = on->device_copy(c, ret->v, n);
    return ret->m_there && ret->v_there ? KVF_OK : KVF_E_NOMEM;
}

void learnt_finish(struct learnt *l)
{
    const struct ops *on = ops(&l->c);
    on->device_copy_free(&l->c, l->m_there);
    on->device_copy_free(&l->c, l->v_there);
    mem_free_all(l->m, l->v);
    memset(l, 0, sizeof *l);
}

void learnt_step(struct learnt *l, const struct optimizer *o, int64_t t, double norm,
                 const float *grad)
{
    ops(&l->c)->step(&l->c, o, t, norm, grad, l->w_there, l->m_there, l->v_there, l->n);
}

int learnt_home(const struct learnt *l, struct kvf_diag *d)
{
    ops(&l->c)->to_host(&l->c, l->w, l->w_there, l->n * sizeof *l->w);
    return ops(&l->c)->check(&l->c, d);
}

/* Lists the parameters and both moments as three tensors. The configuration describes the
 * layout. */
static void describe(const struct learnt *l, struct checkpoint_tensor tensor[3])
{
    static const char *const name[] = {"parameters", "moment1", "moment2"};
    float *const data[] = {l->w, l->m, l->v};
    for (int i = 0; i < 3; i++)
        tensor[i] = (struct checkpoint_tensor){name[i], 1, {l->n, 1, 1}, data[i]};
}

int learnt_save(const struct learnt *l, const char *path, const char *config, int64_t step,
                const char *log, struct kvf_diag *d)
{
    const struct ops *on = ops(&l->c);
    struct checkpoint_tensor tensor[3];
    struct checkpoint c = {tensor, 3, config, step, (char *)(uintptr_t)log};
    on->to_host(&l->c, l->m, l->m_there, l->n * sizeof *l->m);
    on->to_host(&l->c, l->v, l->v_there, l->n * sizeof *l->v);
    int err = learnt_home(l, d);
    describe(l, tensor);
    return err ? err : checkpoint_write(path, &c, d);
}

int learnt_resume(struct learnt *l, const char *path, const char *config, int64_t *ret_step,
                  char **ret_log, int *ret_found, struct kvf_diag *d)
{
    const struct ops *on = ops(&l->c);
    struct checkpoint_tensor tensor[3];
    struct checkpoint c = {tensor, 3, config, 0, NULL};
    describe(l, tensor);
    int err = checkpoint_read(path, &c, ret_found, d);
    if (err)
        return err;
    on->to_device(&l->c, l->w_there, l->w, l->n * sizeof *l->w);
    on->to_device(&l->c, l->m_there, l->m, l->n * sizeof *l->m);
    on->to_device(&l->c, l->v_there, l->v, l->n * sizeof *l->v);
    *ret_step = c.step;
    *ret_log = c.log;
    return KVF_OK;
}
