#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/method/evidence.h"

static size_t n_query(const struct evidence *e)
{
    return (size_t)e->shape.n_layers * (size_t)e->shape.n_heads;
}

static size_t n_kv(const struct evidence *e)
{
    return (size_t)e->shape.n_layers * (size_t)e->shape.n_kv_heads;
}

int evidence_init(struct evidence *e, enum evidence_kind kind, int window,
                  const struct method_shape *shape)
{
    *e = (struct evidence){.kind = kind, .shape = *shape, .window = window};
    if (kind != EVIDENCE_WINDOW)
        return KVF_OK;
    e->n_rows = MEM_NEW(int, n_query(e));
    return e->n_rows ? KVF_OK : KVF_E_NOMEM;
}

void evidence_finish(struct evidence *e)
{
    mem_free(e->sum);
    mem_free(e->rows);
    mem_free(e->n_rows);
    mem_free(e->keys);
    memset(e, 0, sizeof *e);
}

/* Widens rows of old_w elements to new_w; `size` bytes each. */
static int widen(void **p, size_t n_rows, size_t old_w, size_t new_w, size_t size)
{
    size_t row;
    if (!mem_mul(new_w, size, &row))
        return KVF_E_NOMEM;
    unsigned char *q = mem_alloc(n_rows, row);
    if (!q)
        return KVF_E_NOMEM;
    for (size_t r = 0; *p && r < n_rows; r++)
        memcpy(q + r * row, (unsigned char *)*p + r * old_w * size, old_w * size);
    mem_free(*p);
    *p = q;
    return KVF_OK;
}

int evidence_reserve(struct evidence *e, int slots)
{
    if (e->kind == EVIDENCE_NONE || slots <= e->cap)
        return KVF_OK;
    size_t old = (size_t)e->cap, cap = ((size_t)slots + 63) / 64 * 64;
    int err = KVF_OK;
    void *p;
    if (e->kind == EVIDENCE_SUM) {
        p = e->sum;
        err = widen(&p, n_query(e), old, cap, sizeof *e->sum);
        e->sum = p;
    } else if (e->kind == EVIDENCE_WINDOW) {
        p = e->rows;
        err = widen(&p, n_query(e) * (size_t)e->window, old, cap, sizeof *e->rows);
        e->rows = p;
    } else {
        size_t D = (size_t)e->shape.head_dim;
        p = e->keys;
        err = widen(&p, n_kv(e), old * D, cap * D, sizeof *e->keys);
        e->keys = p;
    }
    if (!err)
        e->cap = (int)cap;
    return err;
}

static size_t query_index(const struct evidence *e, int layer, int g)
{
    return (size_t)layer * (size_t)e->shape.n_heads + (size_t)g;
}

static float *ring_row(const struct evidence *e, size_t query, int row)
{
    return e->rows + (query * (size_t)e->window + (size_t)row) * (size_t)e->cap;
}

static float *key_of(const struct evidence *e, int layer, int head, int slot)
{
    size_t at = (size_t)layer * (size_t)e->shape.n_kv_heads + (size_t)head;
    return e->keys + (at * (size_t)e->cap + (size_t)slot) * (size_t)e->shape.head_dim;
}

static void unit_key(struct evidence *e, const struct cache *c, int layer, int head, int slot)
{
    float *k = key_of(e, layer, head, slot);
    double square = 0;
    cache_key(c, layer, head, slot, k);
    for (int d = 0; d < e->shape.head_dim; d++)
        square += (double)k[d] * (double)k[d];
    double scale = square > 0 ? 1.0 / sqrt(square) : 0;
    for (int d = 0; d < e->shape.head_dim; d++)
        k[d] = (float)((double)k[d] * scale);
}

void evidence_appended(struct evidence *e, const struct cache *c, int layer, int head, int slot)
{
    int per = e->shape.n_heads / e->shape.n_kv_heads;
    if (e->kind == EVIDENCE_KEYS)
        unit_key(e, c, layer, head, slot);
    for (int g = head * per; g < (head + 1) * per; g++) {
        size_t q = query_index(e, layer, g);
        if (e->kind == EVIDENCE_SUM)
            e->sum[q * (size_t)e->cap + (size_t)slot] = 0;
        for (int w = 0; e->kind == EVIDENCE_WINDOW && w < e->window; w++)
            ring_row(e, q, w)[slot] = 0;
    }
}

void evidence_take(struct evidence *e, const struct attn_row *row)
{
    size_t q = query_index(e, row->layer, row->head);
    if (e->kind == EVIDENCE_SUM) {
        double *sum = e->sum + q * (size_t)e->cap;
        for (int i = 0; i < row->n; i++)
            sum[i] += (double)row->p[i];
    } else if (e->kind == EVIDENCE_WINDOW) {
        int at = e->n_rows[q]++ % e->window;
        memcpy(ring_row(e, q, at), row->p, (size_t)row->n * sizeof *row->p);
    }
}

void evidence_move(struct evidence *e, int layer, int head, int from, int to)
{
    int per = e->shape.n_heads / e->shape.n_kv_heads;
    if (e->kind == EVIDENCE_KEYS)
        memcpy(key_of(e, layer, head, to), key_of(e, layer, head, from),
               (size_t)e->shape.head_dim * sizeof(float));
    for (int g = head * per; g < (head + 1) * per; g++) {
        size_t q = query_index(e, layer, g);
        if (e->kind == EVIDENCE_SUM) {
            double *sum = e->sum + q * (size_t)e->cap;
            sum[to] = sum[from];
        }
        for (int w = 0; e->kind == EVIDENCE_WINDOW && w < e->window; w++) {
            float *row = ring_row(e, q, w);
            row[to] = row[from];
        }
    }
}
