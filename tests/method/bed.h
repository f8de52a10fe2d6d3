/* bed.h - a method with its own cache, to which tests append entries one at a time. */
#ifndef KVF_TESTS_METHOD_BED_H
#define KVF_TESTS_METHOD_BED_H

#include "engine/cache/cache.h"
#include "engine/method/state.h"
#include "tests/gates/file.h"

struct bed {
    struct method row;
    struct method_params params;
    struct method_state *m;
    struct cache *cache;
    int H, D;
};

/* Opens a bed of L layers with H heads and as many query heads. */
static inline void bed_open_with(struct bed *b, const char *method, int budget, int L, int H,
                                 const struct method_inputs *in)
{
    struct method_shape shape = {L, H, H, 2};
    struct cache_config cfg = {L, H, 2, KV_F32};
    *b = (struct bed){.H = H, .D = 2};
    succeeds(method_parse(method, budget, &b->row, &b->params, &d));
    cr_assert(zero(int, method_state_create(&b->row, &b->params, &shape, in, &b->m)));
    cr_assert(zero(int, cache_create(&cfg, &b->cache)));
    cr_assert(zero(int, method_prepare(b->m, 256, 0)));
}

static inline void bed_open(struct bed *b, const char *method, int budget, int L, int H,
                            const struct gates *gates)
{
    bed_open_with(b, method, budget, L, H, &(struct method_inputs){.gates = gates});
}

static inline void bed_close(struct bed *b)
{
    method_state_destroy(b->m);
    cache_destroy(b->cache);
}

/* Appends the entry at position pos with the key (k, 0) and the value (v, 0). gate: the gate value
 * of the entry, or NaN. */
static inline void bed_append(struct bed *b, int layer, int head, int32_t pos, float gate, float k,
                              float v)
{
    float key[2] = {k, 0}, value[2] = {v, 0};
    struct cache_entry e = {pos, method_until(b->m, layer, head, pos, gate), key, value};
    cr_assert(zero(int, cache_reserve(b->cache, layer, head, 1)));
    int slot = cache_append(b->cache, reference(), layer, head, &e);
    method_appended(b->m, b->cache, layer, head, slot, gate, key);
}

/* Computes the scores of layer 0, head 0 at query t. */
static inline void bed_score(struct bed *b, int32_t t, float *out)
{
    float scratch[4096];
    struct score_input in = {b->m, b->cache, 0, 0, cache_view(b->cache, 0, 0), t, t, 1};
    b->row.score->eval(&in, out, scratch);
}

#endif
