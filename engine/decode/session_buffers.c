/* session_buffers.c - buffers of a session that do not depend on its method. */
#include <string.h>

#include "base/mem.h"
#include "engine/decode/session_state.h"

static size_t panels(int n)
{
    return ((size_t)n + PANEL - 1) / PANEL * PANEL;
}

/* Returns the distance in floats between rows of n floats. Rows at multiples of a memory page would
 * share a few sets of the L1 cache; then the distance is one step larger. */
static size_t apart(size_t n, size_t step)
{
    return n % 1024 == 0 ? n + step : n;
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

static float *floats(size_t rows, size_t cols)
{
    return mem_alloc(rows, cols * sizeof(float));
}

/* Returns the channels of the widest input of a matrix. */
static size_t widest(const struct model_config *m)
{
    return (size_t)max_int(m->d_model, max_int(m->n_heads * m->head_dim, m->d_ffn));
}

/* Returns the bytes of a row as integers, in complete blocks. */
static size_t integer_bytes(const struct model_config *m)
{
    return words_blocks((int)widest(m)) * WBLOCK * sizeof(int16_t);
}

/* A buffer of floats, [rows][cols]. */
struct buffer {
    float **at;
    size_t rows, cols;
};
enum { BUFFERS = 16 };

/* Lists all buffers of floats and sets their strides. */
static void list_buffers(struct session *s, const struct model_config *m, int threads,
                         struct buffer out[BUFFERS])
{
    size_t C = (size_t)s->chunk, d = (size_t)m->d_model;
    size_t wide = widest(m);
    s->buf.ld_qkv = apart(panels((m->n_heads + 2 * m->n_kv_heads) * m->head_dim), PANEL);
    s->buf.ld_att = (size_t)m->n_heads * (size_t)m->head_dim;
    s->buf.ld_branch = apart(panels(m->d_model), PANEL);
    s->buf.ld_gate_up = apart(panels(2 * m->d_ffn), PANEL);
    s->buf.ld_logits = panels(m->vocab);
    s->attn.ld_strip = apart(((size_t)s->cap + PAGE_SLOTS - 1) / PAGE_SLOTS * PAGE_SLOTS,
                             PAGE_SLOTS);
    s->matmul.ld_tile = C * TILE_PANELS * PANEL;
    const struct buffer all[BUFFERS] = {
        {&s->buf.x, C, d},
        {&s->buf.normed, C, d},
        {&s->buf.qkv, C, s->buf.ld_qkv},
        {&s->buf.att, C, s->buf.ld_att},
        {&s->buf.branch, C, s->buf.ld_branch},
        {&s->buf.gate_up, C, s->buf.ld_gate_up},
        {&s->buf.cos_sin, 2 * C, (size_t)m->rope_dim},
        {&s->buf.logits, 1, s->buf.ld_logits},
        {&s->matmul.input.scale, C, wide / QBLOCK + 1},
        {&s->matmul.input.sum, C, wide / QBLOCK + 1},
        {&s->matmul.input.half, C, wide / QBLOCK * 2 + 2},
        {&s->matmul.activated.scale, C, wide / QBLOCK + 1},
        {&s->matmul.activated.sum, C, wide / QBLOCK + 1},
        {&s->matmul.activated.half, C, wide / QBLOCK * 2 + 2},
        {&s->matmul.tile, (size_t)threads, s->matmul.ld_tile},
        {&s->attn.scores, (size_t)threads * STRIP_ROWS, s->attn.ld_strip},
    };
    memcpy(out, all, sizeof all);
}

int session_alloc_buffers(struct session *s)
{
    struct buffer all[BUFFERS];
    list_buffers(s, &s->e->config, par_threads(s->e->pool), all);
    for (int i = 0; i < BUFFERS; i++) {
        *all[i].at = floats(all[i].rows, all[i].cols);
        if (!*all[i].at)
            return KVF_E_NOMEM;
    }
    s->matmul.input.hi_alone = s->matmul.activated.hi_alone = s->e->i8_activations;
    s->matmul.input.q = mem_alloc((size_t)s->chunk, integer_bytes(&s->e->config));
    s->matmul.activated.q = mem_alloc((size_t)s->chunk, integer_bytes(&s->e->config));
    return s->matmul.input.q && s->matmul.activated.q ? KVF_OK : KVF_E_NOMEM;
}

void session_free_buffers(struct session *s)
{
    struct buffer all[BUFFERS];
    list_buffers(s, &s->e->config, par_threads(s->e->pool), all);
    for (int i = 0; i < BUFFERS; i++)
        mem_free(*all[i].at);
    mem_free(s->matmul.input.q);
    mem_free(s->matmul.activated.q);
}

int session_chunk(int asked, int rows, int cap)
{
    int chunk = asked > 0 ? asked : rows;
    return chunk < cap ? chunk : cap;
}

int64_t session_buffer_bytes(const struct model_config *m, int length, int chunk, int threads)
{
    struct session s = {.cap = length, .chunk = session_chunk(chunk, CHUNK_DEFAULT, length)};
    struct buffer all[BUFFERS];
    int64_t sum = 2 * (int64_t)s.chunk * (int64_t)integer_bytes(m);
    list_buffers(&s, m, threads, all);
    for (int i = 0; i < BUFFERS; i++)
        sum += (int64_t)(all[i].rows * all[i].cols * sizeof(float));
    return sum;
}
