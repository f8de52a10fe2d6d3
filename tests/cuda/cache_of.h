/* cache_of.h - a random ragged cache on the device, with a mirror of its contents on the host. */
#ifndef KVF_TESTS_CUDA_CACHE_OF_H
#define KVF_TESTS_CUDA_CACHE_OF_H

#include "tests/cuda/device.h"

struct cache_of {
    struct gpu_cache c;
    int heads, D, pages, ld_slot, *n;
    int32_t *table, *pos, *until;
    void *pool; /* host copy of the page pool */
    size_t pool_bytes, half;
};

static inline float cache_of_get(const struct cache_of *k, int h, int slot, int d, bool value)
{
    size_t page = (size_t)k->table[h * (k->ld_slot / PAGE_SLOTS) + slot / PAGE_SLOTS];
    size_t at = page * 2 * k->half + (value ? k->half : 0);
    at += value ? (size_t)(slot % PAGE_SLOTS * k->D + d)
                : (size_t)(d * PAGE_SLOTS + slot % PAGE_SLOTS);
    return k->c.type == KV_F16 ? half_to_float(((uint16_t *)k->pool)[at]) : ((float *)k->pool)[at];
}

/* Makes a cache with n[h] entries in head h. Its pages are scattered over the pool; free slots
 * contain NaN. */
static inline struct cache_of cache_of_random(struct gpu *g, struct rng *r, int heads, const int *n,
                                              int D, enum kv_type type)
{
    struct cache_of k = {.heads = heads, .D = D, .half = (size_t)(D * PAGE_SLOTS)};
    int most = 0;
    size_t e = type == KV_F16 ? 2 : 4;
    k.n = NEW(int, (size_t)heads);
    for (int h = 0; h < heads; h++) {
        k.n[h] = n[h];
        most = n[h] > most ? n[h] : most;
    }
    int per = (most + PAGE_SLOTS - 1) / PAGE_SLOTS;
    k.pages = heads * per;
    k.ld_slot = per * PAGE_SLOTS;
    k.table = NEW(int32_t, (size_t)k.pages);
    for (int i = 0; i < k.pages; i++) { /* shuffle the pages */
        int j = (int)rng_below(r, (uint64_t)i + 1);
        k.table[i] = k.table[j];
        k.table[j] = i;
    }
    k.pool_bytes = (size_t)k.pages * 2 * k.half * e;
    k.pool = host_alloc(k.pool_bytes, 1);
    memset(k.pool, 0xff, k.pool_bytes); /* NaN in f16 and in f32 */
    k.pos = NEW(int32_t, (size_t)(heads * k.ld_slot));
    k.until = NEW(int32_t, (size_t)(heads * k.ld_slot));
    for (int h = 0; h < heads; h++)
        for (int s = 0; s < n[h]; s++) {
            size_t page = (size_t)k.table[h * per + s / PAGE_SLOTS] * 2 * k.half;
            k.pos[h * k.ld_slot + s] = s;
            k.until[h * k.ld_slot + s] = INT32_MAX;
            for (int d = 0; d < 2 * D; d++) {
                float x = (float)rng_normal(r);
                size_t at = page;
                if (d < D)
                    at += (size_t)(d * PAGE_SLOTS + s % PAGE_SLOTS);
                else
                    at += k.half + (size_t)(s % PAGE_SLOTS * D + d - D);
                if (type == KV_F16)
                    ((uint16_t *)k.pool)[at] = float_to_half(x);
                else
                    ((float *)k.pool)[at] = x;
            }
        }
    k.c = (struct gpu_cache){
        .type = type, .heads = heads, .D = D, .ld_table = per, .ld_slot = k.ld_slot, .most = most};
    k.c.pool = device_copy(g, k.pool, k.pool_bytes);
    k.c.table = device_copy(g, k.table, (size_t)k.pages * 4);
    k.c.n = device_copy(g, k.n, (size_t)heads * 4);
    k.c.pos = device_copy(g, k.pos, (size_t)(heads * k.ld_slot) * 4);
    k.c.until = device_copy(g, k.until, (size_t)(heads * k.ld_slot) * 4);
    return k;
}

#endif
