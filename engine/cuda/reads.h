/* reads.h - which pages of a head the query of a step reads, on a device (engine/method/read.c).
 *
 * A page is `page` entries that adjoin in order of slots, which here is that of time: heads close
 * ranks (gpu_heads.closes).  All functions here are exact (gpu.h). */
#ifndef KVF_ENGINE_CUDA_READS_H
#define KVF_ENGINE_CUDA_READS_H

#include "engine/cuda/heads.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How pages are chosen, and room for the numbers of the query heads of one layer. */
struct gpu_reads {
    int page, ld;      /* entries of a page; of a row of pages */
    int budget, local; /* entries that are read at most; newest that always are */
    int per;           /* query heads of a head */
    bool together;     /* they read the same pages */
    float *score;      /* [query heads][ld] */
    int32_t *number;   /* [query heads][ld] 0, 1, 2, ... in each row */
    int32_t *n_open;   /* [query heads] pages that may be left out */
    int64_t *lost;     /* [query heads] how many of them are */
    int32_t *count;    /* [query heads] for the kernels */
};

/* The least and the largest of each channel of a page's keys. */
struct gpu_bounds {
    float *least, *most; /* [heads][D][ld] */
};

/* Brings the bounds of heads [first, first + n) up to date: those from slot h->valid on. */
void gpu_take_bounds(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *r, int first,
                     int n, const struct gpu_bounds *b);

/* Scores of the pages that may be left out, for the n_heads heads from `first` on.  q: the queries
 * of the layer.  By bounds: the largest logit that a key in them could have. */
void gpu_score_bounds(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *r,
                      int first, int n_heads, const struct gpu_bounds *b, const float *q);
/* By vectors: q.k / sqrt(dim) in double, of the vector of each head [n_heads][dim] and those of its
 * blocks [heads][ld][dim]. */
void gpu_score_blocks(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *r,
                      int first, int n_heads, const float *key, const float *q, int dim);
/* By weights: the largest that an entry of the page has in the rows p [query heads][ld_p]. */
void gpu_score_weights(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *r,
                       int first, int n_heads, const float *p, size_t ld_p);

/* page[0 .. n_heads) = r->page, or 0 where a head has so few entries that all are read; chosen
 * [query heads][ld]: 0 for pages that the query head does not read.  Two steps, between which
 * scores are made. */
void gpu_count_pages(struct gpu *g, const struct gpu_heads *h, const struct gpu_reads *r, int first,
                     int n_heads, int32_t *page, unsigned char *chosen);
void gpu_choose_pages(struct gpu *g, const struct gpu_reads *r, int n_heads, unsigned char *chosen);

#ifdef __cplusplus
}
#endif
#endif
