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
    m->buf.x = floats(m->gpu, C, d);
    m->buf.normed = floats(m->gpu, C, d);
    m->buf.qkv = floats(m->gpu, C, s->buf.ld_qkv);
    m->buf.att = floats(m->gpu, C, s->buf.ld_att);
    m->buf.branch = floats(m->gpu, C, d);
    m->buf.gate_up = floats(
        m->gpu, C, s->buf.ld_gate_up + (size_t)c->d_ffn); /* projections, then their product */
    m->buf.row = floats(m->gpu, 1, d);
    return m->buf.x && m->buf.normed && m->buf.qkv && m->buf.att && m->buf.branch && m->buf.gate_up
                   && m->buf.row && !device_reserve_logits(s, 1)
               ? KVF_OK
               : KVF_E_NOMEM;
}

int device_reserve_logits(struct session *s, int T)
{
    struct device_session *m = s->device_state;
    if (T <= m->buf.n_logits)
        return KVF_OK;
    gpu_free(m->gpu, m->buf.logits);
    m->buf.logits = floats(m->gpu, (size_t)T, s->buf.ld_logits);
    m->buf.n_logits = m->buf.logits ? T : 0;
    return m->buf.logits ? KVF_OK : KVF_E_NOMEM;
}

int device_reserve_attn_in(struct session *s, int T)
{
    struct device_session *m = s->device_state;
    if (T <= m->buf.n_attn_in)
        return KVF_OK;
    gpu_free(m->gpu, m->buf.attn_in);
    m->buf.ld_attn_in = (size_t)T * (size_t)s->e->config.d_model;
    m->buf.attn_in = floats(m->gpu, (size_t)s->e->config.n_layers, m->buf.ld_attn_in);
    m->buf.n_attn_in = m->buf.attn_in ? T : 0;
    return m->buf.attn_in ? KVF_OK : KVF_E_NOMEM;
}

static int alloc_tables(struct session *s, struct device_session *m)
{
    size_t heads = (size_t)s->cache_heads, all = heads * (size_t)s->e->config.n_layers;
    size_t blocks = (size_t)(s->chunk + QUERY_BLOCK - 1) / QUERY_BLOCK;
    size_t ld_slot = s->attn.ld_strip, G = (size_t)s->e->config.n_heads;
    m->pages.ld_table = (int)(ld_slot / PAGE_SLOTS);
    m->pages.page_bytes = 2 * kv_half_bytes(s->kv_type, s->e->config.head_dim);
    m->pages.table = gpu_pin(m->gpu, all, (size_t)m->pages.ld_table * sizeof *m->pages.table);
    m->pages.n_pages = MEM_NEW(int32_t, all);
    m->layer.n = mem_alloc(blocks + 1, heads * sizeof *m->layer.n);
    m->layer.until = mem_alloc(heads, ld_slot * sizeof *m->layer.until);
    m->layer.d_table = gpu_alloc(m->gpu, heads * (size_t)m->pages.ld_table,
                                 sizeof *m->layer.d_table);
    m->layer.d_n = gpu_alloc(m->gpu, (blocks + 1) * heads, sizeof *m->layer.d_n);
    m->layer.d_until = gpu_alloc(m->gpu, heads * ld_slot, sizeof *m->layer.d_until);
    m->layer.d_page = gpu_alloc(m->gpu, heads, sizeof *m->layer.d_page);
    m->layer.d_chosen = s->reading.chosen ? gpu_alloc(m->gpu, G, s->reading.ld_chosen) : NULL;
    struct gpu_attention most = {
        .cache = {.heads = s->cache_heads, .D = s->e->config.head_dim, .most = (int)ld_slot},
        .n_heads = s->e->config.n_heads};
    m->layer.work = gpu_alloc(m->gpu, gpu_step_work(&most), sizeof *m->layer.work);
    if (m->layer.work)
        gpu_zero(m->gpu, m->layer.work, gpu_step_work(&most) * sizeof *m->layer.work);
    return m->pages.table && m->pages.n_pages && m->layer.n && m->layer.until && m->layer.d_table
                   && m->layer.d_n && m->layer.d_until && m->layer.d_page && m->layer.work
                   && (!s->reading.chosen || m->layer.d_chosen)
               ? KVF_OK
               : KVF_E_NOMEM;
}

/* Returns the number of queries with rows on the device at the same time. With a recorder it is
 * larger, while the rows need at most MOST_ROWS bytes. */
static int row_block(const struct session *s)
{
    enum { MOST_QUERIES = 256, MOST_ROWS = 256 << 20 };
    size_t bytes = (size_t)s->e->config.n_heads * s->attn.ld_strip * sizeof(float);
    int block = s->observers.recorder ? MOST_QUERIES : QUERY_BLOCK;
    while (block > QUERY_BLOCK && (size_t)block * bytes > MOST_ROWS)
        block /= 2;
    return block;
}

static int alloc_rows(struct session *s, struct device_session *m)
{
    size_t G = (size_t)s->e->config.n_heads, rows = G * QUERY_BLOCK;
    m->rows.block = row_block(s);
    size_t there = G * (size_t)m->rows.block;
    m->rows.d_p = floats(m->gpu, there, s->attn.ld_strip);
    m->rows.d_lse = floats(m->gpu, there, 1);
    m->rows.d_entropy = floats(m->gpu, there, 1);
    m->rows.d_seen = gpu_alloc(m->gpu, there, sizeof *m->rows.d_seen);
    m->rows.p = mem_alloc(rows, s->attn.ld_strip * sizeof *m->rows.p);
    m->rows.lse = MEM_NEW(float, rows);
    m->rows.entropy = MEM_NEW(float, rows);
    m->rows.seen = MEM_NEW(int32_t, rows);
    return m->rows.d_p && m->rows.d_lse && m->rows.d_entropy && m->rows.d_seen && m->rows.p
                   && m->rows.lse && m->rows.entropy && m->rows.seen
               ? KVF_OK
               : KVF_E_NOMEM;
}

int device_session_begin(struct session *s, const struct session_options *opt, struct kvf_diag *d)
{
    if (s->kv_type == KV_Q8_0 || s->kv_type == KV_I16)
        return kvf_fail(d, KVF_E_ARG, "a cache of type %s needs the CPU: use f16, or --device cpu",
                        kv_type_name(s->kv_type));
    if (s->e->config.head_dim > GPU_MAX_CHANNELS)
        return kvf_fail(d, KVF_E_ARG,
                        "heads of %d channels need the CPU; kernels of devices support at most %d: "
                        "use --device cpu",
                        s->e->config.head_dim, GPU_MAX_CHANNELS);
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
    gpu_unpin(m->gpu, m->pages.table);
    device_probes_close(s);
    void *const device[] = {m->buf.x,        m->buf.normed,     m->buf.qkv,        m->buf.att,
                            m->buf.branch,   m->buf.gate_up,    m->buf.logits,     m->buf.row,
                            m->pages.pool,   m->layer.d_table,  m->layer.d_n,      m->layer.d_until,
                            m->layer.d_page, m->layer.work,     m->layer.d_chosen, m->rows.d_p,
                            m->rows.d_lse,   m->rows.d_entropy, m->rows.d_seen,    m->layer.d_pos,
                            m->buf.attn_in};
    void *const host[] = {m->pages.free, m->pages.n_pages, m->layer.n,   m->layer.until, m->rows.p,
                          m->rows.lse,   m->rows.entropy,  m->rows.seen, m->layer.pos};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        gpu_free(m->gpu, device[i]);
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        mem_free(host[i]);
    mem_free(m);
    s->device_state = NULL;
}
