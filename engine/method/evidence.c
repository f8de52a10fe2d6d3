/* evidence.c - allocates and updates the evidence of scores (evidence.h). */
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

struct evidence_terms evidence_terms_of(unsigned kinds)
{
    static const struct {
        unsigned kind;
        struct evidence_terms terms;
    } part[] = {
        {EVIDENCE_SUM, {.g = 8}},
        {EVIDENCE_WINDOW, {.gw = 4, .g = 4, .one = 8 + 4}}, /* rows; recent, born */
        {EVIDENCE_KEYS, {.D = 4}},
        {EVIDENCE_NORMS, {.one = 4}},
        {EVIDENCE_HISTORY, {.one = 4}},
        {EVIDENCE_GATE, {.one = 4}},
        {EVIDENCE_VALUES, {.one = 4}},
        {EVIDENCE_ANCHOR, {.one = 1}},
        {EVIDENCE_NOTE, {.one = 8}},
        {EVIDENCE_FULL, {.g = 8 + 4}},
        {EVIDENCE_SPREAD, {.g = 16}},
        {EVIDENCE_PAGES, {.D_p = 2 * 4}},
        {EVIDENCE_BLOCKS, {.d_p = 4}},
    };
    struct evidence_terms sum = {0};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (!(kinds & part[i].kind))
            continue;
        sum.gw += part[i].terms.gw;
        sum.g += part[i].terms.g;
        sum.D += part[i].terms.D;
        sum.D_p += part[i].terms.D_p;
        sum.d_p += part[i].terms.d_p;
        sum.one += part[i].terms.one;
    }
    return sum;
}

double evidence_bytes(unsigned kinds, const struct method_params *p,
                      const struct method_shape *shape, int gate_dim)
{
    struct evidence_terms t = evidence_terms_of(kinds);
    double g = (double)shape->n_heads / shape->n_kv_heads, D = shape->head_dim;
    return t.gw * g * p->window + t.g * g + t.D * D + t.D_p * D / p->page
           + t.d_p * gate_dim / p->page + t.one;
}

int evidence_init(struct evidence *e, unsigned kinds, const struct method_params *p,
                  const struct method_shape *shape, const struct gates *gates)
{
    int window = p->window;
    *e = (struct evidence){.kinds = kinds, .shape = *shape, .window = window};
    e->ring = window + 1;
    if (kinds & EVIDENCE_ANCHOR) {
        e->anchor = MEM_NEW(double, n_kv(e) * (size_t)shape->head_dim);
        e->n_counted = MEM_NEW(int, n_kv(e));
        if (!e->anchor || !e->n_counted)
            return KVF_E_NOMEM;
    }
    pages_init(&e->pages, kinds, p->page, (int)n_kv(e), shape->head_dim, gates);
    int err = evidence_query_init(e);
    if (err || !(kinds & EVIDENCE_WINDOW))
        return err;
    e->n_rows = MEM_NEW(int, n_query(e));
    e->row_t = MEM_NEW(int32_t, n_query(e) * (size_t)e->ring);
    e->row_n = MEM_NEW(int, n_query(e) * (size_t)e->ring);
    e->row_lse = MEM_NEW(float, n_query(e) * (size_t)e->ring);
    e->row_ranks = MEM_NEW(struct row_ranks, n_query(e) * (size_t)e->ring);
    e->left = MEM_NEW(int32_t, n_kv(e) * EVIDENCE_LEFT);
    e->n_left = MEM_NEW(int, n_kv(e));
    e->all_know = MEM_NEW(int, n_kv(e));
    e->recent_at = MEM_NEW(int, n_kv(e));
    for (size_t i = 0; e->recent_at && i < n_kv(e); i++)
        e->recent_at[i] = -1;
    bool all = e->n_rows && e->row_t && e->row_n && e->row_lse && e->recent_at;
    return all && e->row_ranks && e->left && e->n_left && e->all_know ? KVF_OK : KVF_E_NOMEM;
}

void evidence_finish(struct evidence *e)
{
    mem_free(e->sum);
    mem_free(e->rows);
    mem_free(e->n_rows);
    mem_free(e->row_t);
    mem_free(e->row_n);
    mem_free(e->row_lse);
    mem_free(e->row_ranks);
    mem_free(e->left);
    mem_free(e->n_left);
    mem_free(e->all_know);
    mem_free(e->born);
    mem_free(e->recent);
    mem_free(e->recent_at);
    mem_free(e->spread);
    mem_free(e->keys);
    mem_free(e->anchor);
    mem_free(e->counted);
    mem_free(e->n_counted);
    mem_free(e->norms);
    mem_free(e->history);
    mem_free(e->note);
    mem_free(e->gate);
    mem_free(e->values);
    pages_finish(&e->pages);
    evidence_query_finish(e);
    memset(e, 0, sizeof *e);
}

int evidence_reserve(struct evidence *e, int slots)
{
    size_t D = (size_t)e->shape.head_dim, Q = n_query(e), H = n_kv(e);
    const struct {
        unsigned kind;
        struct mem_rows rows;
    } all[] = {
        {EVIDENCE_SUM, {&e->sum, Q, 1, sizeof *e->sum}},
        {EVIDENCE_WINDOW, {&e->recent, H, 1, sizeof *e->recent}},
        {EVIDENCE_WINDOW, {&e->born, H, 1, sizeof *e->born}},
        {EVIDENCE_WINDOW, {&e->rows, Q * (size_t)e->ring, 1, sizeof *e->rows}},
        {EVIDENCE_KEYS, {&e->keys, H, D, sizeof *e->keys}},
        {EVIDENCE_NORMS, {&e->norms, H, 1, sizeof *e->norms}},
        {EVIDENCE_HISTORY, {&e->history, H, 1, sizeof *e->history}},
        {EVIDENCE_SPREAD, {&e->spread, 2 * Q, 1, sizeof *e->spread}},
        {EVIDENCE_ANCHOR, {&e->counted, H, 1, sizeof *e->counted}},
        {EVIDENCE_GATE, {&e->gate, H, 1, sizeof *e->gate}},
        {EVIDENCE_VALUES, {&e->values, H, 1, sizeof *e->values}},
        {EVIDENCE_FULL, {&e->full_row, Q, 1, sizeof *e->full_row}},
        {EVIDENCE_NOTE, {&e->note, H, 1, sizeof *e->note}},
        {EVIDENCE_FULL, {&e->full_sum, Q, 1, sizeof *e->full_sum}},
    };
    struct mem_rows kept[sizeof all / sizeof *all];
    int n = 0;
    if (!e->kinds || slots <= e->cap)
        return KVF_OK;
    size_t cap = ((size_t)slots + 63) / 64 * 64;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (e->kinds & all[i].kind)
            kept[n++] = all[i].rows;
    int err = pages_reserve(&e->pages, (int)cap);
    if (!err && !mem_widen(kept, n, (size_t)e->cap, cap))
        err = KVF_E_NOMEM;
    if (!err)
        e->cap = (int)cap;
    return err;
}

static size_t query_index(const struct evidence *e, int layer, int g)
{
    return (size_t)layer * (size_t)e->shape.n_heads + (size_t)g;
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
    double scale = formula_unit_scale(square);
    float *unit = e->kinds & EVIDENCE_KEYS ? key_of(e, layer, head, slot) : NULL;
    for (int d = 0; unit && d < e->shape.head_dim; d++)
        unit[d] = (float)((double)key[d] * scale);
}

/* Adds the unit key of a slot to the anchor or subtracts it, in whole units of 2^-32 (rounding:
 * window.c), so that the sum does not depend on evicted entries. */
static void count_key(const struct evidence *e, int layer, int head, int slot, bool enters)
{
    size_t at = kv_at(e, layer, head, slot), D = (size_t)e->shape.head_dim;
    const float *u = e->keys + at * D;
    double *anchor = e->anchor + ((size_t)layer * (size_t)e->shape.n_kv_heads + (size_t)head) * D;
    if (e->counted[at] == enters)
        return;
    e->counted[at] = enters;
    for (size_t d = 0; d < D; d++) {
        double units = formula_in_units((double)u[d], SCORE_KEY_MAGIC);
        anchor[d] += enters ? units : -units;
    }
}

const double *evidence_sync_anchor(const struct evidence *e, int layer, int head, int n)
{
    size_t at = (size_t)layer * (size_t)e->shape.n_kv_heads + (size_t)head;
    while (e->n_counted[at] > n)
        count_key(e, layer, head, --e->n_counted[at], false);
    return e->anchor + at * (size_t)e->shape.head_dim;
}

/* Subtracts the key of a slot from the anchor, before the key changes. */
static void key_leaves(struct evidence *e, int layer, int head, int slot)
{
    if (e->kinds & EVIDENCE_ANCHOR)
        count_key(e, layer, head, slot, false);
}

static void key_enters(struct evidence *e, int layer, int head, int slot)
{
    int *n = &e->n_counted[(size_t)layer * (size_t)e->shape.n_kv_heads + (size_t)head];
    count_key(e, layer, head, slot, true);
    *n = slot >= *n ? slot + 1 : *n;
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
    if (e->kinds & EVIDENCE_PAGES) /* the slot may have had an evicted entry */
        pages_changed(&e->pages, layer * e->shape.n_kv_heads + head, slot);
    if (e->kinds & EVIDENCE_BLOCKS)
        pages_take_key(&e->pages, layer, head, e->shape.n_kv_heads, slot, k_pre);
    key_leaves(e, layer, head, slot);
    if (e->kinds & (EVIDENCE_KEYS | EVIDENCE_NORMS))
        take_key(e, c, layer, head, slot);
    if (e->kinds & EVIDENCE_ANCHOR)
        key_enters(e, layer, head, slot);
    if (e->kinds & EVIDENCE_HISTORY)
        e->history[kv_at(e, layer, head, slot)] = NAN;
    if (e->kinds & EVIDENCE_NOTE)
        e->note[kv_at(e, layer, head, slot)] = (double)NAN;
    if (e->kinds & EVIDENCE_WINDOW) {
        e->recent[kv_at(e, layer, head, slot)] = 0;
        e->born[kv_at(e, layer, head, slot)] = cache_view(c, layer, head).pos[slot];
    }
    for (int g = head * per; g < (head + 1) * per; g++) {
        size_t q = query_index(e, layer, g);
        if (e->kinds & EVIDENCE_SUM)
            e->sum[q * (size_t)e->cap + (size_t)slot] = 0;
        if (e->kinds & EVIDENCE_SPREAD) {
            int64_t *square, *sum = evidence_spread(e, layer, g, &square);
            sum[slot] = square[slot] = 0;
        }
    }
}

void evidence_take(struct evidence *e, const struct kernels *k, const struct attn_row *row)
{
    size_t q = query_index(e, row->layer, row->head);
    if (e->kinds & EVIDENCE_SUM)
        k->mass_add(e->sum + q * (size_t)e->cap, NULL, row->p, row->n);
    if (e->kinds & EVIDENCE_WINDOW) {
        int at = e->n_rows[q]++ % e->ring;
        memcpy(evidence_ring_row(e, q, at), row->p, (size_t)row->n * sizeof *row->p);
        e->row_t[q * (size_t)e->ring + (size_t)at] = row->t;
        e->row_n[q * (size_t)e->ring + (size_t)at] = row->seen;
        e->row_lse[q * (size_t)e->ring + (size_t)at] = row->lse;
        e->row_ranks[q * (size_t)e->ring + (size_t)at] = (struct row_ranks){
            e->n_left[q / (size_t)(e->shape.n_heads / e->shape.n_kv_heads)], row->n};
    }
}

int evidence_taken(const struct evidence *e, int layer, int query_head)
{
    return e->n_rows[query_index(e, layer, query_head)];
}

double *evidence_recent(const struct evidence *e, int layer, int head, int **ret_at)
{
    size_t at = (size_t)layer * (size_t)e->shape.n_kv_heads + (size_t)head;
    *ret_at = &e->recent_at[at];
    return e->recent + at * (size_t)e->cap;
}

int64_t *evidence_spread(const struct evidence *e, int layer, int g, int64_t **ret_square)
{
    int64_t *sum = e->spread + 2 * query_index(e, layer, g) * (size_t)e->cap;
    *ret_square = sum + e->cap;
    return sum;
}

void evidence_ask_bytes(const void *p, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch((const char *)p + at, 0, 2);
}

void evidence_ask(const struct evidence *e, int layer, int head, int from, int to, bool sums)
{
    struct evidence_array list[EVIDENCE_ARRAYS];
    int per = e->shape.n_heads / e->shape.n_kv_heads;
    size_t bytes = (size_t)to * sizeof *e->rows;
    for (int i = 0, m = evidence_arrays(e, layer, head, list); i < m; i++)
        for (int r = 0; r < list[i].rows; r++)
            evidence_ask_bytes(list[i].first + (size_t)r * list[i].ld + (size_t)from * list[i].size,
                               (size_t)(to - from) * list[i].size);
    for (int g = head * per; sums && g < (head + 1) * per; g++) {
        size_t q = query_index(e, layer, g);
        int newest = e->n_rows[q] - 1;
        if (newest >= 0)
            evidence_ask_bytes(evidence_ring_row(e, q, newest % e->ring), bytes);
        if (newest >= e->window)
            evidence_ask_bytes(evidence_ring_row(e, q, (newest - e->window) % e->ring), bytes);
    }
}

void evidence_ask_turn(const struct evidence *e, int layer, int head)
{
    int per = e->shape.n_heads / e->shape.n_kv_heads;
    for (int g = head * per; g < (head + 1) * per; g++) {
        size_t q = query_index(e, layer, g), ring = (size_t)e->ring;
        int newest = e->n_rows[q] - 1;
        for (int age = 0; age <= e->window && age <= newest; age += e->window) {
            size_t at = q * ring + (size_t)((newest - age) % e->ring);
            __builtin_prefetch(e->row_t + at, 0, 2);
            __builtin_prefetch(e->row_ranks + at, 0, 2);
        }
    }
}

void evidence_move_key(struct evidence *e, int layer, int head, int from, int to)
{
    size_t a = kv_at(e, layer, head, from), b = kv_at(e, layer, head, to);
    key_leaves(e, layer, head, to);
    if (e->kinds & EVIDENCE_KEYS)
        memcpy(key_of(e, layer, head, to), key_of(e, layer, head, from),
               (size_t)e->shape.head_dim * sizeof(float));
    if (e->kinds & EVIDENCE_ANCHOR) { /* the key only moves: the anchor is unchanged */
        int *n = &e->n_counted[layer * e->shape.n_kv_heads + head];
        e->counted[b] = e->counted[a];
        e->counted[a] = 0;
        *n = to >= *n ? to + 1 : *n;
    }
    if (e->kinds & EVIDENCE_PAGES)
        pages_changed(&e->pages, layer * e->shape.n_kv_heads + head, to);
}

int evidence_arrays(const struct evidence *e, int layer, int head, struct evidence_array *ret)
{
    size_t at = kv_at(e, layer, head, 0), cap = (size_t)e->cap;
    int per = e->shape.n_heads / e->shape.n_kv_heads, n = 0;
    size_t q = query_index(e, layer, head * per) * cap;
    const struct {
        unsigned kind;
        void *array;
        size_t first, size;
        int rows;
    } part[EVIDENCE_ARRAYS] = {
        {EVIDENCE_NORMS, e->norms, at, sizeof *e->norms, 1},
        {EVIDENCE_HISTORY, e->history, at, sizeof *e->history, 1},
        {EVIDENCE_NOTE, e->note, at, sizeof *e->note, 1},
        {EVIDENCE_GATE, e->gate, at, sizeof *e->gate, 1},
        {EVIDENCE_VALUES, e->values, at, sizeof *e->values, 1},
        {EVIDENCE_WINDOW, e->recent, at, sizeof *e->recent, 1},
        {EVIDENCE_WINDOW, e->born, at, sizeof *e->born, 1},
        {EVIDENCE_SUM, e->sum, q, sizeof *e->sum, per},
        {EVIDENCE_SPREAD, e->spread, 2 * q, sizeof *e->spread, 2 * per},
    };
    for (int i = 0; i < EVIDENCE_ARRAYS; i++)
        if (e->kinds & part[i].kind)
            ret[n++] = (struct evidence_array){(unsigned char *)part[i].array
                                                   + part[i].first * part[i].size,
                                               part[i].size, cap * part[i].size, part[i].rows};
    return n;
}
