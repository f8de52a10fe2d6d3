/* session.c - creates and frees the device mirror of a session. */
#include "base/mem.h"
#include "engine/device/probes.h"
#include "engine/device/decode.h"

static float *floats(struct gpu *g, size_t rows, size_t cols)
{
    size_t n;
    return mem_mul(rows, cols, &n) ? gpu_alloc(g, n, sizeof(float)) : NULL;
}

static int alloc_buffers(struct session *s, struct device_session *m)
{
    const struct model_config *c = &s->e->config;
    size_t C = device_session_rows(s->chunk), d = (size_t)c->d_model;
    m->x = floats(m->gpu, C, d);
    m->normed = floats(m->gpu, C, d);
    m->qkv = floats(m->gpu, C, s->ld_qkv);
    m->att = floats(m->gpu, C, s->ld_att);
    m->branch = floats(m->gpu, C, d);
    m->gate_up = floats(m->gpu, C,
                        s->ld_ffn + (size_t)c->d_ffn); /* projections, then their product */
    m->row = floats(m->gpu, 1, d);
    return m->x && m->normed && m->qkv && m->att && m->branch && m->gate_up && m->row
                   && !device_session_hold_logits(s, 1)
               ? KVF_OK
               : KVF_E_NOMEM;
}

int device_session_hold_logits(struct session *s, int T)
{
    struct device_session *m = s->device_state;
    if (T <= m->n_logits)
        return KVF_OK;
    gpu_free(m->gpu, m->logits);
    m->logits = floats(m->gpu, (size_t)T, s->ld_vocab);
    m->n_logits = m->logits ? T : 0;
    return m->logits ? KVF_OK : KVF_E_NOMEM;
}

int device_session_hold_normed(struct session *s, int T)
{
    struct device_session *m = s->device_state;
    if (T <= m->n_kept)
        return KVF_OK;
    gpu_free(m->gpu, m->kept);
    m->ld_kept = (size_t)T * (size_t)s->e->config.d_model;
    m->kept = floats(m->gpu, (size_t)s->e->config.n_layers, m->ld_kept);
    m->n_kept = m->kept ? T : 0;
    return m->kept ? KVF_OK : KVF_E_NOMEM;
}

static int alloc_tables(struct session *s, struct device_session *m)
{
    size_t heads = (size_t)s->cache_heads, all = heads * (size_t)s->e->config.n_layers;
    size_t blocks = (size_t)(s->chunk + QUERY_BLOCK - 1) / QUERY_BLOCK;
    size_t ld_slot = s->ld_strip, G = (size_t)s->e->config.n_heads;
    m->ld_table = (int)(ld_slot / PAGE_SLOTS);
    m->page_bytes = 2 * kv_half_bytes(s->kv_type, s->e->config.head_dim);
    m->table = gpu_pin(m->gpu, all, (size_t)m->ld_table * sizeof *m->table);
    m->held = MEM_NEW(int32_t, all);
    m->n = mem_alloc(blocks + 1, heads * sizeof *m->n);
    m->until = mem_alloc(heads, ld_slot * sizeof *m->until);
    m->d_table = gpu_alloc(m->gpu, heads * (size_t)m->ld_table, sizeof *m->d_table);
    m->d_n = gpu_alloc(m->gpu, (blocks + 1) * heads, sizeof *m->d_n);
    m->d_until = gpu_alloc(m->gpu, heads * ld_slot, sizeof *m->d_until);
    m->d_page = gpu_alloc(m->gpu, heads, sizeof *m->d_page);
    m->d_chosen = s->chosen ? gpu_alloc(m->gpu, G, s->ld_chosen) : NULL;
    struct gpu_attention most = {
        .cache = {.heads = s->cache_heads, .D = s->e->config.head_dim, .most = (int)ld_slot},
        .n_heads = s->e->config.n_heads};
    m->work = gpu_alloc(m->gpu, gpu_step_work(&most), sizeof *m->work);
    if (m->work)
        gpu_zero(m->gpu, m->work, gpu_step_work(&most) * sizeof *m->work);
    return m->table && m->held && m->n && m->until && m->d_table && m->d_n && m->d_until
                   && m->d_page && m->work && (!s->chosen || m->d_chosen)
               ? KVF_OK
               : KVF_E_NOMEM;
}

/* Returns the number of queries with rows on the device at the same time. With a recorder it is
 * larger, while the rows need at most MOST_ROWS bytes. */
static int row_block(const struct session *s)
{
    enum { MOST_QUERIES = 256, MOST_ROWS = 256 << 20 };
    size_t bytes = (size_t)s->e->config.n_heads * s->ld_strip * sizeof(float);
    int block = s->recorder ? MOST_QUERIES : QUERY_BLOCK;
    while (block > QUERY_BLOCK && (size_t)block * bytes > MOST_ROWS)
        block /= 2;
    return block;
}

static int alloc_rows(struct session *s, struct device_session *m)
{
    size_t G = (size_t)s->e->config.n_heads, rows = G * QUERY_BLOCK;
    m->row_block = row_block(s);
    size_t there = G * (size_t)m->row_block;
    m->d_rows = floats(m->gpu, there, s->ld_strip);
    m->d_lse = floats(m->gpu, there, 1);
    m->d_entropy = floats(m->gpu, there, 1);
    m->d_seen = gpu_alloc(m->gpu, there, sizeof *m->d_seen);
    m->rows = mem_alloc(rows, s->ld_strip * sizeof *m->rows);
    m->lse = MEM_NEW(float, rows);
    m->entropy = MEM_NEW(float, rows);
    m->seen = MEM_NEW(int32_t, rows);
    return m->d_rows && m->d_lse && m->d_entropy && m->d_seen && m->rows && m->lse && m->entropy
                   && m->seen
               ? KVF_OK
               : KVF_E_NOMEM;
}

int device_session_begin(struct session *s, const struct session_options *opt, struct kvf_diag *d)
{
    if (s->kv_type == KV_Q8_0 || s->kv_type == KV_I16)
        return kvf_fail(d, KVF_E_ARG,
                        "a cache of %s is held on the processor alone: take f16, or "
                        "--device cpu",
                        kv_type_name(s->kv_type));
    if (s->e->config.head_dim > GPU_MOST_CHANNELS)
        return kvf_fail(d, KVF_E_ARG,
                        "heads of %d channels are computed on the processor alone, a device has "
                        "kernels for %d at most: take --device cpu",
                        s->e->config.head_dim, GPU_MOST_CHANNELS);
    (void)opt;
    struct device_session *m = MEM_NEW(struct device_session, 1);
    if (!m)
        return KVF_E_NOMEM;
    s->device_state = m;
    m->gpu = ((struct device_weights *)s->e->device)->gpu;
    int err = alloc_buffers(s, m);
    if (!err)
        err = alloc_tables(s, m);
    if (!err)
        err = alloc_rows(s, m);
    if (!err)
        err = device_probes_open(s);
    if (err)
        return gpu_no_room(m->gpu, d,
                           "the device has no room for a session of %d tokens: a smaller -c, or "
                           "--device cpu",
                           s->cap);
    return KVF_OK;
}

void device_session_end(struct session *s)
{
    struct device_session *m = s->device_state;
    if (!m)
        return;
    for (int i = 0; i < MIRROR_GRAPHS; i++)
        gpu_graph_free(m->gpu, m->graph[i]);
    device_draw_close(s);
    device_decode_free(m);
    device_prompt_close(s);
    device_gates_free_session(m);
    page_positions_close(m);
    device_ranks_close(m);
    gpu_unpin(m->gpu, m->table);
    device_probes_close(s);
    void *const device[] = {m->x,      m->normed, m->qkv,      m->att,     m->branch, m->gate_up,
                            m->logits, m->row,    m->pool,     m->d_table, m->d_n,    m->d_until,
                            m->d_page, m->work,   m->d_chosen, m->d_rows,  m->d_lse,  m->d_entropy,
                            m->d_seen, m->d_pos,  m->kept};
    void *const host[] = {m->free, m->held,    m->n,    m->until, m->rows,
                          m->lse,  m->entropy, m->seen, m->pos};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        gpu_free(m->gpu, device[i]);
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        mem_free(host[i]);
    mem_free(m);
    s->device_state = NULL;
}
