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

int evidence_init(struct evidence *e, unsigned kinds, const struct method_params *p,
                  const struct method_shape *shape, const struct gates *gates)
{
    int window = p->window;
    *e = (struct evidence){.kinds = kinds, .shape = *shape, .window = window};
    pages_init(&e->pages, kinds, p->page, (int)n_kv(e), shape->head_dim, gates);
    int err = evidence_query_init(e);
    if (err || !(kinds & EVIDENCE_WINDOW))
        return err;
    e->n_rows = MEM_NEW(int, n_query(e));
    e->row_t = MEM_NEW(int32_t, n_query(e) * (size_t)window);
    e->row_n = MEM_NEW(int, n_query(e) * (size_t)window);
    return e->n_rows && e->row_t && e->row_n ? KVF_OK : KVF_E_NOMEM;
}

void evidence_finish(struct evidence *e)
{
    mem_free(e->sum);
    mem_free(e->rows);
    mem_free(e->n_rows);
    mem_free(e->row_t);
    mem_free(e->row_n);
    mem_free(e->keys);
    mem_free(e->norms);
    mem_free(e->history);
    mem_free(e->gate);
    mem_free(e->values);
    pages_finish(&e->pages);
    evidence_query_finish(e);
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

/* Widens *p, rows of floats, when the kind is kept. */
static int widen_floats(const struct evidence *e, unsigned kind, float **p, size_t n_rows,
                        size_t old_w, size_t new_w)
{
    void *q = *p;
    int err = e->kinds & kind ? widen(&q, n_rows, old_w, new_w, sizeof **p) : KVF_OK;
    *p = q;
    return err;
}

int evidence_reserve(struct evidence *e, int slots)
{
    if (!e->kinds || slots <= e->cap)
        return KVF_OK;
    size_t old = (size_t)e->cap, cap = ((size_t)slots + 63) / 64 * 64;
    size_t D = (size_t)e->shape.head_dim, rows = n_query(e) * (size_t)e->window;
    void *p = e->sum;
    int err = e->kinds & EVIDENCE_SUM ? widen(&p, n_query(e), old, cap, sizeof *e->sum) : KVF_OK;
    e->sum = p;
    if (!err)
        err = widen_floats(e, EVIDENCE_WINDOW, &e->rows, rows, old, cap);
    if (!err)
        err = widen_floats(e, EVIDENCE_KEYS, &e->keys, n_kv(e), old * D, cap * D);
    if (!err)
        err = widen_floats(e, EVIDENCE_NORMS, &e->norms, n_kv(e), old, cap);
    if (!err)
        err = widen_floats(e, EVIDENCE_HISTORY, &e->history, n_kv(e), old, cap);
    if (!err)
        err = widen_floats(e, EVIDENCE_GATE, &e->gate, n_kv(e), old, cap);
    if (!err)
        err = widen_floats(e, EVIDENCE_VALUES, &e->values, n_kv(e), old, cap);
    if (!err)
        err = widen_floats(e, EVIDENCE_TWIN, &e->twin_row, n_query(e), old, cap);
    p = e->twin_sum;
    if (!err && e->kinds & EVIDENCE_TWIN)
        err = widen(&p, n_query(e), old, cap, sizeof *e->twin_sum);
    e->twin_sum = p;
    if (!err)
        err = pages_reserve(&e->pages, (int)cap);
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

static size_t kv_at(const struct evidence *e, int layer, int head, int slot)
{
    size_t at = (size_t)layer * (size_t)e->shape.n_kv_heads + (size_t)head;
    return at * (size_t)e->cap + (size_t)slot;
}

/* Length of the stored key, and the key scaled to length 1. */
static void take_key(struct evidence *e, const struct cache *c, int layer, int head, int slot)
{
    enum { MAX_DIM = 1024 };
    float key[MAX_DIM];
    double square = 0;
    cache_key(c, layer, head, slot, key);
    for (int d = 0; d < e->shape.head_dim; d++)
        square += (double)key[d] * (double)key[d];
    if (e->kinds & EVIDENCE_NORMS)
        e->norms[kv_at(e, layer, head, slot)] = (float)sqrt(square);
    double scale = square > 0 ? 1.0 / sqrt(square) : 0;
    float *unit = e->kinds & EVIDENCE_KEYS ? key_of(e, layer, head, slot) : NULL;
    for (int d = 0; unit && d < e->shape.head_dim; d++)
        unit[d] = (float)((double)key[d] * scale);
}

static void take_value(struct evidence *e, const struct cache *c, int layer, int head, int slot)
{
    enum { MAX_DIM = 1024 };
    float value[MAX_DIM];
    double square = 0;
    cache_value(c, layer, head, slot, value);
    for (int d = 0; d < e->shape.head_dim; d++)
        square += (double)value[d] * (double)value[d];
    e->values[kv_at(e, layer, head, slot)] = (float)sqrt(square);
}

void evidence_appended(struct evidence *e, const struct cache *c, int layer, int head, int slot,
                       float gate, const float *k_pre)
{
    int per = e->shape.n_heads / e->shape.n_kv_heads;
    if (e->kinds & EVIDENCE_GATE)
        e->gate[kv_at(e, layer, head, slot)] = gate;
    if (e->kinds & EVIDENCE_VALUES)
        take_value(e, c, layer, head, slot);
    if (e->kinds & EVIDENCE_BLOCKS)
        pages_take_key(&e->pages, layer, head, e->shape.n_kv_heads, slot, k_pre);
    if (e->kinds & (EVIDENCE_KEYS | EVIDENCE_NORMS))
        take_key(e, c, layer, head, slot);
    if (e->kinds & EVIDENCE_HISTORY)
        e->history[kv_at(e, layer, head, slot)] = NAN;
    for (int g = head * per; g < (head + 1) * per; g++) {
        size_t q = query_index(e, layer, g);
        if (e->kinds & EVIDENCE_SUM)
            e->sum[q * (size_t)e->cap + (size_t)slot] = 0;
        for (int w = 0; e->kinds & EVIDENCE_WINDOW && w < e->window; w++)
            ring_row(e, q, w)[slot] = 0;
    }
}

void evidence_take(struct evidence *e, const struct attn_row *row)
{
    size_t q = query_index(e, row->layer, row->head);
    if (e->kinds & EVIDENCE_SUM) {
        double *sum = e->sum + q * (size_t)e->cap;
        for (int i = 0; i < row->n; i++)
            sum[i] += (double)row->p[i];
    }
    if (e->kinds & EVIDENCE_WINDOW) {
        int at = e->n_rows[q]++ % e->window;
        memcpy(ring_row(e, q, at), row->p, (size_t)row->n * sizeof *row->p);
        e->row_t[q * (size_t)e->window + (size_t)at] = row->t;
        e->row_n[q * (size_t)e->window + (size_t)at] = row->seen;
    }
}

void evidence_move(struct evidence *e, int layer, int head, int from, int to)
{
    int per = e->shape.n_heads / e->shape.n_kv_heads;
    if (e->kinds & EVIDENCE_KEYS)
        memcpy(key_of(e, layer, head, to), key_of(e, layer, head, from),
               (size_t)e->shape.head_dim * sizeof(float));
    if (e->kinds & EVIDENCE_NORMS)
        e->norms[kv_at(e, layer, head, to)] = e->norms[kv_at(e, layer, head, from)];
    if (e->kinds & EVIDENCE_HISTORY)
        e->history[kv_at(e, layer, head, to)] = e->history[kv_at(e, layer, head, from)];
    if (e->kinds & EVIDENCE_GATE)
        e->gate[kv_at(e, layer, head, to)] = e->gate[kv_at(e, layer, head, from)];
    if (e->kinds & EVIDENCE_VALUES)
        e->values[kv_at(e, layer, head, to)] = e->values[kv_at(e, layer, head, from)];
    if (e->kinds & EVIDENCE_PAGES)
        pages_changed(&e->pages, layer * e->shape.n_kv_heads + head, to);
    for (int g = head * per; g < (head + 1) * per; g++) {
        size_t q = query_index(e, layer, g);
        if (e->kinds & EVIDENCE_SUM) {
            double *sum = e->sum + q * (size_t)e->cap;
            sum[to] = sum[from];
        }
        for (int w = 0; e->kinds & EVIDENCE_WINDOW && w < e->window; w++) {
            float *row = ring_row(e, q, w);
            row[to] = row[from];
        }
    }
}
