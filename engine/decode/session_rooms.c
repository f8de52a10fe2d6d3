/* session_rooms.c - buffers of a session that do not depend on its method. */
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

static int most(int a, int b)
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
    return (size_t)most(m->d_model, most(m->n_heads * m->head_dim, m->d_ffn));
}

/* Returns the bytes of a row as integers, in complete blocks. */
static size_t integer_bytes(const struct model_config *m)
{
    return words_blocks((int)widest(m)) * WBLOCK * sizeof(int16_t);
}

/* A buffer of a session that does not depend on the method: [rows][cols]. */
struct room {
    float **at;
    size_t rows, cols;
};
enum { ROOMS = 16 };

/* Lists all buffers and sets their strides. */
static void rooms(struct session *s, const struct model_config *m, int threads,
                  struct room out[ROOMS])
{
    size_t C = (size_t)s->chunk, d = (size_t)m->d_model;
    size_t wide = widest(m);
    s->ld_qkv = apart(panels((m->n_heads + 2 * m->n_kv_heads) * m->head_dim), PANEL);
    s->ld_att = (size_t)m->n_heads * (size_t)m->head_dim;
    s->ld_out = apart(panels(m->d_model), PANEL);
    s->ld_ffn = apart(panels(2 * m->d_ffn), PANEL);
    s->ld_vocab = panels(m->vocab);
    s->ld_strip = apart(((size_t)s->cap + PAGE_SLOTS - 1) / PAGE_SLOTS * PAGE_SLOTS, PAGE_SLOTS);
    s->ld_tile = C * TILE_PANELS * PANEL;
    const struct room all[ROOMS] = {
        {&s->x, C, d},
        {&s->normed, C, d},
        {&s->qkv, C, s->ld_qkv},
        {&s->att, C, s->ld_att},
        {&s->branch, C, s->ld_out},
        {&s->gate_up, C, s->ld_ffn},
        {&s->cos_sin, 2 * C, (size_t)m->rope_dim},
        {&s->logits, 1, s->ld_vocab},
        {&s->q.scale, C, wide / QBLOCK + 1},
        {&s->q.sum, C, wide / QBLOCK + 1},
        {&s->q.half, C, wide / QBLOCK * 2 + 2},
        {&s->gated.scale, C, wide / QBLOCK + 1},
        {&s->gated.sum, C, wide / QBLOCK + 1},
        {&s->gated.half, C, wide / QBLOCK * 2 + 2},
        {&s->tile, (size_t)threads, s->ld_tile},
        {&s->score_rows, (size_t)threads * STRIP_ROWS, s->ld_strip},
    };
    memcpy(out, all, sizeof all);
}

/* Allocates the buffers that the tasks of a step share. */
static int alloc_shared(struct session *s)
{
    const struct model_config *m = &s->e->config;
    size_t heads = (size_t)m->n_heads;
    s->rows_done = MEM_NEW(atomic_int, heads);
    s->step_rows = MEM_NEW(atomic_int, heads);
    s->step_sums = MEM_NEW(atomic_int, heads * (size_t)step_blocks(m));
    s->step_weights = MEM_NEW(float, heads *(size_t)step_blocks(m) * ATTN_LANES);
    s->step_tops = MEM_NEW(float, heads *(size_t)step_blocks(m));
    if (!s->rows_done || !s->step_rows || !s->step_sums || !s->step_weights || !s->step_tops)
        return KVF_E_NOMEM;
    return wants_nll(s) ? alloc_segments(s) : KVF_OK;
}

int session_alloc_buffers(struct session *s)
{
    struct room room[ROOMS];
    rooms(s, &s->e->config, par_threads(s->e->pool), room);
    for (int i = 0; i < ROOMS; i++) {
        *room[i].at = floats(room[i].rows, room[i].cols);
        if (!*room[i].at)
            return KVF_E_NOMEM;
    }
    s->q.hi_alone = s->gated.hi_alone = s->e->i8_activations;
    s->q.q = mem_alloc((size_t)s->chunk, integer_bytes(&s->e->config));
    s->gated.q = mem_alloc((size_t)s->chunk, integer_bytes(&s->e->config));
    return s->q.q && s->gated.q ? alloc_shared(s) : KVF_E_NOMEM;
}

int session_chunk(int asked, int rows, int cap)
{
    int chunk = asked > 0 ? asked : rows;
    return chunk < cap ? chunk : cap;
}

int64_t session_buffer_bytes(const struct model_config *m, int length, int chunk, int threads)
{
    struct session s = {.cap = length, .chunk = session_chunk(chunk, CHUNK_DEFAULT, length)};
    struct room room[ROOMS];
    int64_t sum = 2 * (int64_t)s.chunk * (int64_t)integer_bytes(m);
    rooms(&s, m, threads, room);
    for (int i = 0; i < ROOMS; i++)
        sum += (int64_t)(room[i].rows * room[i].cols * sizeof(float));
    return sum;
}
