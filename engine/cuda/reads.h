/* reads.h - kernels that select the pages of a head that a step's query reads
 * (engine/method/read.c).
 *
 * A page is `page` entries with consecutive slots. Slots are in order of time here, because the
 * heads are compacted after each eviction (gpu_heads.closes). All functions are exact (gpu.h). */
#ifndef KVF_ENGINE_CUDA_READS_H
#define KVF_ENGINE_CUDA_READS_H

#include "engine/cuda/heads.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parameters of the selection, and memory for the query heads of one layer. */
struct gpu_reads {
    int page, ld;      /* entries of a page; stride of a row of pages */
    int budget, local; /* maximum number of entries to read; newest entries that are always read */
    int per;           /* query heads of a head */
    bool together;     /* query heads of a head share their pages */
    float *score;      /* [query heads][ld] */
    int32_t *number;   /* [query heads][ld] 0, 1, 2, ... in each row */
    int32_t *n_open;   /* [query heads] pages that can be skipped */
    int64_t *lost;     /* [query heads] how many of them are skipped */
    int32_t *count;    /* [query heads] for the kernels */
};

/* Minimum and maximum of each channel of a page's keys. */
struct gpu_bounds {
    float *least, *most; /* [heads][D][ld] */
};

/* Updates the bounds of heads [first, first + n) for slots from h->valid on. */
void gpu_take_bounds(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *r, int first,
                     int n, const struct gpu_bounds *b);

/* Scores the pages that can be skipped, for n_heads heads from `first` on. q: the queries of the
 * layer. The score is an upper bound on the logit of a key of the page. */
void gpu_score_bounds(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *r,
                      int first, int n_heads, const struct gpu_bounds *b, const float *q);
/* Scores pages by q.k / sqrt(dim) in double, with the vector of each head [n_heads][dim] and of its
 * blocks [heads][ld][dim]. */
void gpu_score_blocks(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *r,
                      int first, int n_heads, const float *key, const float *q, int dim);
/* Scores pages by the maximum weight of their entries in the rows p [query heads][ld_p]. */
void gpu_score_weights(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *r,
                       int first, int n_heads, const float *p, size_t ld_p);

/* The two steps of the selection; scores are computed in between. page[0 .. n_heads) = r->page, or
 * 0 if a head has so few entries that all are read. chosen [query heads][ld]: 0 for pages that the
 * query head does not read. */
void gpu_count_pages(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *r, int first,
                     int n_heads, int32_t *page, unsigned char *chosen);
void gpu_choose_pages(struct gpu *g, const struct gpu_reads *r, int n_heads, unsigned char *chosen);

#ifdef __cplusplus
}
#endif
#endif
