/* saliency_pass.c - one forward and backward pass with fixed gates. */
#include <math.h>

#include "base/mem.h"
#include "engine/train/pass.h"
#include "engine/train/saliency_pass.h"

/* A saliency computation with its buffers. */
struct job {
    struct engine *e;
    const struct saliency_options *opt;
    struct compute c;
    struct frozen frozen;
    struct pass *pass;
    int32_t *first; /* [T] zeros: one document */
    float *held;    /* [L, T, H] gate values */
    float *d;       /* [L, T, H] gradient by the gate values */
    float *share;   /* [T] 1 for a scored prediction */
    int L, H, T;
};

static int open_job(struct job *j, const struct learner *l, struct kvf_diag *d)
{
    const struct model_config *m = &j->e->config;
    struct pass_options opt = {.gating = GATING_WRITE,
                               .window = j->opt->window,
                               .recompute = true,
                               .watch = j->opt->watch,
                               .watch_ctx = j->opt->watch_ctx};
    size_t n = (size_t)j->L * (size_t)j->H * (size_t)j->T;
    opt.quality[j->opt->kl ? QUALITY_FWKL : QUALITY_NTP] = 1;
    int err = compute_open(&j->c, &j->e->kernels, j->e->pool, l, d);
    if (err)
        return err;
    j->c.progress = (struct progress_callback){j->opt->watch, j->opt->watch_ctx};
    j->first = MEM_NEW(int32_t, (size_t)j->T);
    j->held = MEM_NEW(float, n);
    j->d = MEM_NEW(float, n);
    j->share = MEM_NEW(float, (size_t)j->T);
    if (!j->first || !j->held || !j->d || !j->share)
        return KVF_E_NOMEM;
    for (int t = j->opt->from; t < j->T; t++)
        j->share[t] = 1;
    err = frozen_check(m, FEATURES_OF_SALIENCY, d);
    if (!err)
        err = frozen_build(&j->c, m, j->e->weights, &j->frozen, d);
    if (err)
        return err;
    return pass_create(&j->c, &j->frozen, NULL, &opt, j->T, &j->pass);
}

static void close_job(struct job *j)
{
    pass_destroy(j->pass);
    frozen_finish(&j->frozen);
    compute_close(&j->c);
    mem_free_all(j->first, j->held, j->d, j->share);
}

/* Returns the index of entry i of a head in the order of the pass; k indexes [L * H][T]. */
static size_t place(const struct job *j, size_t k)
{
    size_t T = (size_t)j->T, H = (size_t)j->H, head = k / T, i = k % T;
    return (head / H * T + i) * H + head % H;
}

static void hold(struct job *j)
{
    size_t n = (size_t)j->L * (size_t)j->H * (size_t)j->T;
    for (size_t k = 0; k < n; k++)
        j->held[place(j, k)] = j->opt->weights ? j->opt->weights[k] : (float)j->opt->weight;
    pass_fix_gates(j->pass, j->held);
}

static int collect(const struct job *j, float *value, struct kvf_diag *d)
{
    size_t n = (size_t)j->L * (size_t)j->H * (size_t)j->T;
    for (size_t k = 0; k < n; k++) {
        float v = -j->d[place(j, k)];
        if (!isfinite(v))
            return kvf_fail(d, KVF_E_LIMIT,
                            "a derivative is not finite: the model's numbers exceed the range of "
                            "f32 on this text");
        value[k] = v == 0 ? 0 : v; /* no -0 */
    }
    return KVF_OK;
}

int saliency_measure(struct engine *e, const struct learner *l, const int32_t *ids, int n,
                     const struct saliency_options *opt, struct saliency *ret, struct kvf_diag *d)
{
    struct job j = {.e = e, .opt = opt, .L = e->config.n_layers, .H = e->config.n_kv_heads, .T = n};
    int heads = j.L * j.H, *head = MEM_NEW(int, (size_t)heads);
    float *value = MEM_NEW(float, (size_t)heads *(size_t)n);
    struct pass_loss loss = {0};
    int err = value && head ? open_job(&j, l, d) : KVF_E_NOMEM;
    if (err == KVF_E_NOMEM)
        kvf_fail(d, err, "not enough memory %sfor the derivatives of %d tokens; try fewer",
                 ops_where(&j.c), n);
    if (err)
        goto fail;
    struct pack pack = {ids, j.first, n};
    hold(&j);
    /* The pass averages over all predictions unless each has a share. Here they are summed. */
    double all = opt->from > 0 ? 1 : n - 1;
    if (opt->from > 0)
        pass_share(j.pass, j.share);
    pass_run(j.pass, &pack, all, NULL, j.d, &loss);
    err = ops(&j.c)->check(&j.c, d);
    if (!err)
        err = collect(&j, value, d);
    if (err)
        goto fail;
    for (int i = 0; i < heads; i++)
        head[i] = i;
    *ret = (struct saliency){j.L,
                             j.H,
                             n,
                             opt->window,
                             opt->from,
                             value,
                             loss.term[opt->kl ? QUALITY_FWKL : QUALITY_NTP] * all,
                             loss.positions,
                             pass_bytes(j.pass),
                             heads,
                             head};
    close_job(&j);
    return KVF_OK;

fail:
    mem_free_all(value, head);
    close_job(&j);
    return err;
}
