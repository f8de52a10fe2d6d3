/* cpu.c - the CPU backend. */
#include "base/mem.h"
#include "engine/decode/session_state.h"

static int nothing_shared(struct engine *e, struct kvf_diag *d)
{
    (void)e;
    (void)d;
    return KVF_OK;
}

static void close_nothing(struct engine *e)
{
    (void)e;
}

/* Allocates the keys of a layer after RoPE by rank (reading.c). */
static int alloc_turned(struct session *s)
{
    size_t keys = (size_t)s->cache_heads * s->attn.ld_strip;
    s->reading.rotated_keys = mem_alloc(keys, (size_t)s->e->config.head_dim
                                                  * sizeof *s->reading.rotated_keys);
    return s->reading.rotated_keys ? KVF_OK : KVF_E_NOMEM;
}

static int begin(struct session *s, const struct session_options *opt, struct kvf_diag *d)
{
    int err = s->positions_in_cache ? alloc_turned(s) : KVF_OK;
    if (!err && !opt->no_preallocation)
        err = preallocate_entries(s, s->chunk);
    return err ? kvf_fail(d, err, "not enough memory for a session of %d tokens", s->cap) : KVF_OK;
}

static void end(struct session *s)
{
    mem_free(s->reading.rotated_keys);
    s->reading.rotated_keys = NULL;
}

/* Normalises all rows: on the CPU the rows before `first` cost little. */
static int leave(struct session *s, int first, int T)
{
    const struct model_config *m = &s->e->config;
    (void)first;
    s->e->kernels.rmsnorm(s->buf.normed, s->buf.x, s->e->weights->out_norm, T, m->d_model,
                          m->norm_eps);
    return KVF_OK;
}

static void head(struct session *s)
{
    const struct matmul_input in = {.x = s->buf.normed, .ld = (size_t)s->e->config.d_model};
    linear(s, s->buf.logits, s->buf.ld_logits, &in, 1, &s->e->weights->head);
}

static int nothing_away(struct session *s)
{
    (void)s;
    return KVF_OK;
}

static int check(struct session *s)
{
    (void)s;
    return KVF_OK;
}

const struct backend backend_cpu = {
    .name = "cpu",
    .host_memory = true,
    .precision = "weights as stored, 16-bit activations where quantised",
    .rows = CHUNK_DEFAULT,
    .open = nothing_shared,
    .close = close_nothing,
    .begin = begin,
    .end = end,
    .embed = embed_tokens,
    .steps = steps_cpu,
    .final_norm = leave,
    .lm_head = head,
    .sync_evidence = nothing_away,
    .check = check,
};
