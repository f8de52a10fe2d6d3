/* heads_of.h - the heads of all layers on a device, with a mirror of their contents on the host. */
#ifndef KVF_TESTS_CUDA_HEADS_OF_H
#define KVF_TESTS_CUDA_HEADS_OF_H

#include "engine/cuda/heads.h"
#include "tests/cuda/cache_of.h"

enum { HEADS = 4, D = 20, PER = 2, RING = 5, ROWS = PER * RING };

/* The heads on the device, and a host mirror of all their arrays. */
struct bed {
    struct gpu *g;
    struct cache_of k;
    struct gpu_heads h;
    int ld;
    int32_t *n, *gap, *hole, *order;
    unsigned char *mark;
    double *sum;   /* [HEADS * PER][ld] */
    float *rows;   /* [HEADS * PER][RING][ld] */
    float *number; /* [HEADS][ld] */
};

static inline void *uploaded(struct bed *b, const void *host, size_t bytes)
{
    return device_copy(b->g, host, bytes);
}

/* Makes heads of n[h] entries in scattered slots. Each head has space for one more entry. */
static inline struct bed bed_of(struct gpu *g, struct rng *r, const int *n, enum kv_type type)
{
    int room[HEADS];
    for (int h = 0; h < HEADS; h++)
        room[h] = n[h] + 1;
    struct bed b = {.g = g, .k = cache_of_random(g, r, HEADS, room, D, type)};
    size_t all = (size_t)(HEADS * b.k.ld_slot);
    b.ld = b.k.ld_slot;
    b.n = host_alloc(HEADS, sizeof *b.n);
    b.gap = NEW(int32_t, HEADS);
    b.hole = NEW(int32_t, HEADS);
    b.order = NEW(int32_t, all);
    b.mark = NEW(unsigned char, all);
    b.sum = NEW(double, all *PER);
    b.rows = NEW(float, all *ROWS);
    b.number = NEW(float, all);
    for (int h = 0; h < HEADS; h++) {
        b.n[h] = n[h];
        for (int i = 0; i < n[h]; i++) { /* positions are 3 apart, in shuffled slots */
            int j = (int)rng_below(r, (uint64_t)i + 1), *o = b.order + h * b.ld;
            o[i] = o[j];
            o[j] = i;
        }
        for (int i = 0; i < n[h]; i++)
            b.k.pos[h * b.ld + b.order[h * b.ld + i]] = 3 * i + h;
    }
    for (size_t i = 0; i < all * PER; i++)
        b.sum[i] = rng_uniform(r);
    for (size_t i = 0; i < all * ROWS; i++)
        b.rows[i] = (float)rng_uniform(r);
    fill(r, b.number, all, 1);
    gpu_put(g, b.k.c.pos, b.k.pos, all * 4);
    b.h = (struct gpu_heads){.cache = b.k.c, .n = uploaded(&b, b.n, HEADS * 4)};
    b.h.cache.n = b.h.n;
    b.h.cache.until = NULL;
    b.h.gap = uploaded(&b, b.gap, HEADS * 4);
    b.h.hole = uploaded(&b, b.hole, HEADS * 4);
    b.h.slot = uploaded(&b, b.hole, HEADS * 4);
    b.h.order = uploaded(&b, b.order, all * 4);
    b.h.renamed = uploaded(&b, b.order, all * 4);
    b.h.mark = uploaded(&b, b.mark, all);
    b.h.column[0] = (struct gpu_column){uploaded(&b, b.sum, all * PER * 8), 8, PER, true};
    b.h.column[1] = (struct gpu_column){uploaded(&b, b.rows, all * ROWS * 4), 4, ROWS, false};
    b.h.column[2] = (struct gpu_column){uploaded(&b, b.number, all * 4), 4, 1, false};
    b.h.n_columns = 3;
    return b;
}

static inline void bed_fetch(struct bed *b)
{
    size_t all = (size_t)(HEADS * b->ld);
    gpu_get(b->g, b->n, b->h.n, HEADS * 4);
    gpu_get(b->g, b->gap, b->h.gap, HEADS * 4);
    gpu_get(b->g, b->hole, b->h.hole, HEADS * 4);
    gpu_get(b->g, b->order, b->h.order, all * 4);
    gpu_get(b->g, b->mark, b->h.mark, all);
    gpu_get(b->g, b->k.pos, b->k.c.pos, all * 4);
    gpu_get(b->g, b->k.pool, b->k.c.pool, b->k.pool_bytes);
    gpu_get(b->g, b->sum, b->h.column[0].data, all * PER * 8);
    gpu_get(b->g, b->rows, b->h.column[1].data, all * ROWS * 4);
    gpu_get(b->g, b->number, b->h.column[2].data, all * 4);
}

#endif
